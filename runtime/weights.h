/* weights.h: puts the weights of every unit where the plan says and binds them as tensors of that
 * device.
 *
 * Owns one buffer per unit; on the host it is the mapped file itself, elsewhere a copy. Borrows the
 * model (and its mapping) and the devices. Read-only after weights_load. Tested by
 * tests/test_engine.c.
 */
#ifndef TANDEM_RUNTIME_WEIGHTS_H
#define TANDEM_RUNTIME_WEIGHTS_H

#include "kernels/device.h"
#include "runtime/model.h"
#include "runtime/tandem.h"

// A model with a plan for it on open devices; all borrowed.
struct placed_model {
    const struct model *model;
    const struct shape *shape;
    const struct plan *plan;
    struct device *const *devices; // [plan->machine.n_devices]
};

struct weights {
    int32_t n_units;
    struct buffer *buffers; // owned, [n_units]
    // Tensors by slot; data is NULL where the model has none. Globals are bound once per unit that
    // uses them.
    struct tensor embed[W_GLOBAL_COUNT];    // as the embedding unit sees them
    struct tensor head[W_GLOBAL_COUNT];     // as the head unit sees them
    struct tensor (*layers)[W_LAYER_COUNT]; // owned, [n_layers]
};

// Makes the buffers: a mapping on the host, memory elsewhere. ERR_MEMORY or ERR_DEVICE from a
// device. Call weights_close after a failure too.
enum status weights_open(struct weights *w, const struct placed_model *placed, struct err *e);
// Once after weights_open: brings everything into the buffers and binds the tensors. ERR_DEVICE,
// ERR_FILE, ERR_MEMORY, or ERR_CANCELLED from progress.
enum status weights_load(struct weights *w, const struct placed_model *placed,
                         const struct engine_options *options, struct err *e);
void weights_close(struct weights *w); // accepts a zeroed or half-loaded one

// The table that encodes unit u: [W_GLOBAL_COUNT] or [W_LAYER_COUNT].
const struct tensor *weights_of(const struct weights *w, const struct unit *unit);

#endif

/* weights.h: puts the weights of every unit where the plan says and binds them as tensors of that
 * device.
 *
 * Owns one buffer per device (on the host it is the mapped file itself, elsewhere a copy): drivers
 * round every allocation up, so that many of them would take more than was planned. And the arena:
 * host memory that copies to the accelerator read straight. Borrows the model (and its mapping) and
 * the devices. Read-only after weights_load.
 * Tested by tests/runtime/test_engine.c and tests/runtime/test_pipeline.c.
 */
#ifndef TANDEM_RUNTIME_ENGINE_WEIGHTS_H
#define TANDEM_RUNTIME_ENGINE_WEIGHTS_H

#include "kernels/device.h"
#include "runtime/model/model.h"
#include "runtime/options.h"

// A model with a plan for it on open devices; all borrowed.
struct placed_model {
    const struct model *model;
    const struct shape *shape;
    const struct plan *plan;
    struct device *const *devices; // [plan->machine.n_devices]
};

struct weights {
    struct buffer buffers[MAX_DEVICES]; // unit after unit; of the host only counted
    struct buffer arena; // what the CPU has of streamed units, one after the other without padding
    struct device *pinned_for; // borrowed: the accelerator that knows the arena, or NULL
    // Tensors by slot; data is NULL where the model has none. Globals are bound once per unit that
    // uses them.
    struct tensor embed[W_GLOBAL_COUNT];    // as the embedding unit sees them
    struct tensor head[W_GLOBAL_COUNT];     // as the head unit sees them
    struct tensor (*layers)[W_LAYER_COUNT]; // owned, [n_layers], on the unit's home: of split units
                                            // the first rows
    struct tensor (*cpu_layers)[W_LAYER_COUNT]; // owned, [n_layers], the CPU's rows of split units
};

// Makes the buffers: a mapping on the host, memory elsewhere and for the arena. ERR_MEMORY or
// ERR_DEVICE from a device. Call weights_close after a failure too.
enum status weights_open(struct weights *w, const struct placed_model *placed, struct err *e);
// Once after weights_open: brings everything into the buffers and binds the tensors. What goes to
// the arena leaves the file's cache. ERR_DEVICE, ERR_FILE, ERR_MEMORY, or ERR_CANCELLED from
// progress.
enum status weights_load(struct weights *w, const struct placed_model *placed,
                         const struct engine_options *options, struct err *e);
// Accepts a zeroed or half-loaded one. The arena of a lost device stays until the process ends.
void weights_close(struct weights *w);

// The table that encodes the unit on its home: [W_GLOBAL_COUNT] or [W_LAYER_COUNT].
const struct tensor *weights_of(const struct weights *w, const struct unit *unit);
// What the CPU has of an FFN or attention, [W_LAYER_COUNT]: all of it if split is false, else the
// last rows of what is cut, and the vectors.
const struct tensor *weights_of_cpu(const struct weights *w, const struct unit *unit, bool split);

#endif

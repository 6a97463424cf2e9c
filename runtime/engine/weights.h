/* weights.h: loads the weights of every unit to where the plan says, and gives the address of each
 * tensor.
 *
 * Owns one buffer per device (on the host the mapped file itself, elsewhere a copy), since drivers
 * round every allocation up and many buffers would take more memory than planned. Copies go through
 * pinned blocks (upload.h). An accelerator whose memory is the host's uses the mapped file too,
 * where it lets itself be told of it. Owns the arena: host memory from which weights are copied
 * straight to the accelerator; and what the CPU cannot use where the file is mapped: norms, biases
 * and routers that are not F32 there, and the experts of early files if these do not lie at equal
 * distances. Borrows the model (and its mapping) and the devices. Read-only after weights_load.
 * Tested by tests/runtime/test_engine.c and tests/runtime/test_pipeline.c.
 */
#ifndef TANDEM_RUNTIME_ENGINE_WEIGHTS_H
#define TANDEM_RUNTIME_ENGINE_WEIGHTS_H

#include "kernels/device.h"
#include "runtime/model/model.h"
#include "runtime/options.h"

// Bytes of the mapped file that an accelerator was told of.
struct mapped_range {
    const uint8_t *base;
    uint64_t size_bytes;
};

// A model with a plan for it on open devices; all borrowed.
struct placed_model {
    const struct model *model;
    const struct shape *shape;
    const struct plan *plan;
    struct device *const *devices; // [plan->machine.n_devices]
};

struct weights {
    struct buffer buffers[MAX_DEVICES]; // unit after unit; the host's is only counted
    struct buffer in_place;      // what the accelerator uses in the mapped file; only counted
    struct mapped_range *ranges; // owned, [n_ranges]: where that lies, or what the arena would hold
    int32_t n_ranges;            // 0: there are none
    struct buffer arena; // what the CPU has of streamed units, padded as on any other device
    bool lent;           // the accelerator copies from the mapped file: the arena is only counted
    struct buffer made;  // the CPU's tensors, outside the arena, that are such only here
    bool arena_refused;  // the system did not pin it: copies from it are slow
    struct device *pinned_for; // borrowed: the accelerator that knows the arena, or NULL
    struct device *reader;     // borrowed: the accelerator, if there is one
    // Owned, [n_units], one entry per tensor of a unit. home: weights on the unit's device, the
    // first rows or experts of a split unit; cpu: the CPU's of a split unit, and its vectors.
    struct weight (*home)[MAX_UNIT_TENSORS];
    struct weight (*cpu)[MAX_UNIT_TENSORS];
};

// Makes the buffers: a mapping on the host, memory elsewhere and for the arena. ERR_MEMORY or
// ERR_DEVICE from a device. Call weights_close after a failure too.
enum status weights_open(struct weights *w, const struct placed_model *placed, struct err *e);
// Loads all weights into the buffers and sets the addresses of the tensors; called once after
// weights_open. Weights that go to the arena are dropped from the file's cache where memory is
// tight; those of cold units are not read yet. ERR_DEVICE, ERR_FILE, ERR_MEMORY, or ERR_CANCELLED
// from progress.
enum status weights_load(struct weights *w, const struct placed_model *placed,
                         const struct engine_options *options, struct err *e);
// Accepts a zeroed or half-loaded one. The arena of a lost device stays until the process ends.
void weights_close(struct weights *w);

// [MAX_UNIT_TENSORS]: the weights of a unit on its device.
const struct weight *weights_of(const struct weights *w, int32_t unit);
// The CPU's weights of an FFN, attention or experts: all of them if split is false, else the last
// rows or experts of the matrices that are cut, and the vectors.
const struct weight *weights_of_cpu(const struct weights *w, int32_t unit, bool split);

#endif

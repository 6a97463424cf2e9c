/* model.h: a model's numbers and tensors, read from a GGUF and checked before any kernel sees them.
 *
 * A struct model borrows the gguf (and so the mapped weights) and the shape that it fills, and owns
 * nothing else. Filled by model_read (model_read.h), read-only after it; any thread. Tested by
 * tests/runtime/test_model.c.
 */
#ifndef TANDEM_RUNTIME_MODEL_MODEL_H
#define TANDEM_RUNTIME_MODEL_MODEL_H

#include "planner/planner.h"
#include "runtime/gguf/gguf.h"

struct family; // families.h

struct model {
    const struct gguf *gguf;     // borrowed
    struct shape *shape;         // borrowed
    const struct family *family; // constant
    struct hparams hp;
    int32_t windows[MAX_LAYERS];          // positions that a token sees, 0: all
    const struct gguf_tensor *rope_freqs; // NULL: the model has none
    const struct gguf_tensor *tensors[MAX_UNITS][MAX_UNIT_TENSORS]; // of shape->units[..].tensors
};

#endif

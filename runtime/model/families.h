/* families.h: the model families that the runtime has a forward pass for, as data.
 *
 * A family is what its files do not say themselves. Numbers come from keys (model_numbers.h),
 * tensors are those that blocks ask for (planner/blocks/). Constants; any thread. Tested by
 * tests/runtime/test_model.c.
 */
#ifndef TANDEM_RUNTIME_MODEL_FAMILIES_H
#define TANDEM_RUNTIME_MODEL_FAMILIES_H

#include "kernels/ops.h"

#include <stdbool.h>
#include <stddef.h>

struct family {
    const char *architecture; // general.architecture of its files
    const char *models;       // for people: which models are of it
    enum expert_gate expert_gate;
    bool normalise_experts; // as in struct hparams
};

// NULL if there is no family of that name.
const struct family *family_find(const char *architecture);

// Writes "llama (Llama, Mistral)" of every family, with commas between. Returns out.
const char *family_list(char *out, size_t size_bytes);

#endif

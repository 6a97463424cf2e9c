/* families.h: the model families that the runtime can compute, as data.
 *
 * A family holds the facts that its files lack. Numbers come from keys (model_numbers.h); the
 * blocks (planner/blocks/) name the tensors. Constants; any thread. Tested by
 * tests/runtime/test_model.c.
 */
#ifndef TANDEM_RUNTIME_MODEL_FAMILIES_H
#define TANDEM_RUNTIME_MODEL_FAMILIES_H

#include "kernels/ops.h"

#include <stdbool.h>
#include <stddef.h>

struct family {
    const char *architecture; // general.architecture of its files
    const char *models;       // for people: models of the family
    enum expert_gate expert_gate;
    bool normalise_experts, rope_neox; // as in struct hparams
};

// NULL if there is no family of that name.
const struct family *family_find(const char *architecture);

// Writes "llama (Llama, Mistral)" of every family, with commas between. Returns out.
const char *family_list(char *out, size_t size_bytes);

#endif

/* families.c: see families.h. */
#include "runtime/model/families.h"

#include <stdio.h>
#include <string.h>

static const struct family FAMILIES[] = {
    {.architecture = "llama",
     .models = "Llama, Mistral, Mixtral, SmolLM2, TinyLlama, Yi",
     .expert_gate = GATE_SOFTMAX,
     .normalise_experts = true},
    {.architecture = "qwen2", .models = "Qwen2, Qwen2.5, R1-Distill-Qwen", .rope_neox = true},
    {.architecture = "qwen3", .models = "Qwen3", .rope_neox = true},
    {.architecture = "qwen3moe",
     .models = "Qwen3 with experts",
     .expert_gate = GATE_SOFTMAX,
     .normalise_experts = true,
     .rope_neox = true},
};
enum { N_FAMILIES = sizeof FAMILIES / sizeof *FAMILIES };

const struct family *family_find(const char *architecture) {
    for (int i = 0; i < N_FAMILIES; i++)
        if (strcmp(FAMILIES[i].architecture, architecture) == 0) return &FAMILIES[i];
    return NULL;
}

const char *family_list(char *out, size_t size_bytes) {
    size_t length = 0;
    for (int i = 0; i < N_FAMILIES && length < size_bytes; i++)
        length += (size_t)snprintf(out + length, size_bytes - length, "%s%s (%s)", i ? ", " : "",
                                   FAMILIES[i].architecture, FAMILIES[i].models);
    return out;
}

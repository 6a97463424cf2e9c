/* families.c: see families.h. */
#include "runtime/model/families.h"

#include <stdio.h>
#include <string.h>

#define POST_NORMS ROLE_ATTN_POST_NORM, ROLE_FFN_POST_NORM
#define HEAD_NORMS ROLE_ATTN_Q_NORM, ROLE_ATTN_K_NORM

static const struct family FAMILIES[] = {
    {.architecture = "llama", .expert_gate = GATE_SOFTMAX, .normalise_experts = true},
    {.architecture = "qwen2", .rope_neox = true},
    {.architecture = "qwen2moe", .expert_gate = GATE_SOFTMAX, .rope_neox = true},
    {.architecture = "qwen3", .rope_neox = true, .needs = {HEAD_NORMS}},
    {.architecture = "qwen3moe",
     .expert_gate = GATE_SOFTMAX,
     .normalise_experts = true,
     .rope_neox = true,
     .needs = {HEAD_NORMS}},
    {.architecture = "qwen35",
     .rope_neox = true,
     .gates_attention = true,
     .recurrent_period = 4,
     .key_order = KEYS_TILED,
     .needs = {HEAD_NORMS}},
    {.architecture = "qwen35moe",
     .expert_gate = GATE_SOFTMAX,
     .normalise_experts = true,
     .rope_neox = true,
     .gates_attention = true,
     .recurrent_period = 4,
     .key_order = KEYS_TILED,
     .needs = {HEAD_NORMS}},
    {.architecture = "qwen3next",
     .expert_gate = GATE_SOFTMAX,
     .normalise_experts = true,
     .rope_neox = true,
     .gates_attention = true,
     .recurrent_period = 4,
     .key_order = KEYS_GROUPED,
     .needs = {HEAD_NORMS}},
    {.architecture = "deepseek2", .expert_gate = GATE_SOFTMAX, .attends_latent = true},
    {.architecture = "seed_oss", .rope_neox = true},
    {.architecture = "hunyuan-dense",
     .rope_neox = true,
     .norms_turned = true,
     .needs = {HEAD_NORMS}},
    {.architecture = "granite", .expert_gate = GATE_SOFTMAX, .normalise_experts = true},
    {.architecture = "granitemoe", .expert_gate = GATE_SOFTMAX, .normalise_experts = true},
    {.architecture = "ernie4_5"},
    {.architecture = "ernie4_5-moe", .expert_gate = GATE_SOFTMAX, .normalise_experts = true},
    {.architecture = "hunyuan-moe",
     .expert_gate = GATE_SOFTMAX,
     .normalise_experts = true,
     .rope_neox = true,
     .norms_turned = true,
     .needs = {HEAD_NORMS}},
    {.architecture = "olmo2",
     .rope_neox = true,
     .norms_all_heads = true,
     .windows_unscaled = true,
     .needs = {POST_NORMS, HEAD_NORMS},
     .lacks = {ROLE_ATTN_NORM, ROLE_FFN_NORM}},
    {.architecture = "exaone4",
     .rope_neox = true,
     .windows_turn = true,
     .needs = {POST_NORMS, HEAD_NORMS},
     .lacks = {ROLE_ATTN_NORM, ROLE_FFN_NORM}},
    {.architecture = "cohere2",
     .norms_centred = true,
     .windows_turn = true,
     .multiplies_logits = true,
     .lacks = {ROLE_FFN_NORM}},
    {.architecture = "command-r",
     .norms_centred = true,
     .multiplies_logits = true,
     .lacks = {ROLE_FFN_NORM}},
    {.architecture = "starcoder2",
     .glu = GLU_GELU,
     .rope_neox = true,
     .norms_centred = true,
     .lacks = {ROLE_FFN_GATE}},
    {.architecture = "stablelm",
     .rope_neox = true,
     .norms_centred = true,
     .lacks = {ROLE_FFN_NORM}},
    {.architecture = "phi2",
     .glu = GLU_GELU,
     .rope_neox = true,
     .norms_centred = true,
     .lacks = {ROLE_FFN_NORM, ROLE_FFN_GATE}},
    {.architecture = "glm4", .needs = {POST_NORMS}},
    {.architecture = "glm4moe", .expert_gate = GATE_SIGMOID, .rope_neox = true},
    {.architecture = "smollm3", .no_rope_period = 4},
    {.architecture = "mistral3"},
    {.architecture = "phi3", .rope_neox = true},
    {.architecture = "gemma", .glu = GLU_GELU, .rope_neox = true, .scales_embedding = true},
    {.architecture = "gemma2",
     .glu = GLU_GELU,
     .rope_neox = true,
     .scales_embedding = true,
     .n_layers_of_widest = 46,
     .needs = {POST_NORMS}},
    {.architecture = "gemma3",
     .glu = GLU_GELU,
     .rope_neox = true,
     .scales_embedding = true,
     .local_rope_base = 10000,
     .n_layers_of_widest = 62,
     .needs = {POST_NORMS, HEAD_NORMS}},
    {.architecture = "gemma4",
     .glu = GLU_GELU,
     .expert_gate = GATE_SOFTMAX,
     .normalise_experts = true,
     .rope_neox = true,
     .scales_embedding = true,
     .norms_values = true,
     .attention_scale = 1,
     .local_rope_base = 10000,
     .needs = {POST_NORMS, HEAD_NORMS, ROLE_EXPERT_NORM}},
    {.architecture = "gpt-oss",
     .glu = GLU_CLAMPED,
     .glu_limit = 7,
     .expert_gate = GATE_CHOSEN,
     .rope_neox = true,
     .needs = {ROLE_ATTN_SINKS}},
};
enum { N_FAMILIES = sizeof FAMILIES / sizeof *FAMILIES };

const struct family *family_find(const char *architecture) {
    for (int i = 0; i < N_FAMILIES; i++)
        if (strcmp(FAMILIES[i].architecture, architecture) == 0) return &FAMILIES[i];
    return NULL;
}

bool family_lists(const enum tensor_role roles[FAMILY_ROLES], enum tensor_role role) {
    for (int i = 0; i < FAMILY_ROLES && roles[i] != ROLE_OTHER; i++)
        if (roles[i] == role) return true;
    return false;
}

const char *family_list(char *out, size_t size_bytes) {
    size_t length = 0;
    for (int i = 0; i < N_FAMILIES && length < size_bytes; i++)
        length += (size_t)snprintf(out + length, size_bytes - length, "%s%s", i ? ", " : "",
                                   FAMILIES[i].architecture);
    return out;
}

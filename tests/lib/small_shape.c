/* small_shape.c: see small_shape.h. */
#include "tests/lib/small_shape.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

enum { LAYERS = 3, EMBD = 256, HEADS = 4, HEAD_DIM = 64, FF = 512, VOCAB = 1000, EXPERTS = 4 };

static struct unit *add_unit(struct shape *s, enum unit_kind kind, int32_t layer) {
    struct unit *unit = &s->units[s->n_units++];
    *unit = (struct unit){.kind = kind, .layer = layer};
    return unit;
}

static void add_tensor(struct unit *unit, enum tensor_role role, int32_t n_cols, int32_t n_rows) {
    struct unit_tensor *t = &unit->tensors[unit->n_tensors++];
    const char *name = tensor_role_info(role)->name;
    const enum tensor_use use = tensor_use_of(role);
    *t = (struct unit_tensor){.role = role,
                              .use = use,
                              .type = use == USE_VECTOR ? DTYPE_F32 : DTYPE_Q8_0,
                              .n_cols = n_cols,
                              .n_rows = n_rows,
                              .n_matrices = use == USE_EXPERTS ? unit->n_experts : 1};
    if (unit->layer >= 0)
        snprintf(t->name, sizeof t->name, "blk.%d.%s", unit->layer, name);
    else
        snprintf(t->name, sizeof t->name, "%s", name);
    t->size_bytes =
        (uint64_t)t->n_matrices * dtype_bytes(t->type, (uint64_t)n_cols * (uint64_t)n_rows);
}

static void add_layer(struct shape *s, int32_t layer, bool dense, bool experts) {
    struct unit *unit = add_unit(s, UNIT_ATTENTION, layer);
    unit->n_heads = unit->n_kv_heads = HEADS;
    unit->head_dim_k = unit->head_dim_v = HEAD_DIM;
    add_tensor(unit, ROLE_ATTN_NORM, EMBD, 1);
    add_tensor(unit, ROLE_ATTN_Q, EMBD, HEADS * HEAD_DIM);
    if (!dense) unit->window = 512, unit->state_bytes = 64;
    if (dense) {
        add_tensor(unit, ROLE_ATTN_K, EMBD, HEADS * HEAD_DIM);
        add_tensor(unit, ROLE_ATTN_OUTPUT, HEADS * HEAD_DIM, EMBD);
        unit = add_unit(s, UNIT_FFN, layer);
        add_tensor(unit, ROLE_FFN_NORM, EMBD, 1);
        add_tensor(unit, ROLE_FFN_UP, EMBD, FF);
        add_tensor(unit, ROLE_FFN_DOWN, FF, EMBD);
    }
    if (!experts) return;
    unit = add_unit(s, UNIT_EXPERTS, layer);
    unit->n_experts = EXPERTS;
    unit->n_experts_used = 2;
    unit->n_ff_expert = FF;
    add_tensor(unit, ROLE_ROUTER, EMBD, EXPERTS);
    add_tensor(unit, ROLE_EXPERT_UP, EMBD, FF);
}

void small_shape(struct shape *out) {
    memset(out, 0, offsetof(struct shape, units)); // the rest is filled or never looked at
    strcpy(out->name, "small");
    strcpy(out->architecture, "invented");
    out->n_layers = LAYERS;
    out->n_embd = EMBD;
    out->n_heads = out->n_kv_heads = HEADS;
    out->head_dim = out->n_rot = out->n_local_rot = HEAD_DIM;
    out->n_ff = out->n_ff_expert = FF;
    out->n_vocab = VOCAB;
    out->n_ctx_train = 2048;
    out->n_experts = EXPERTS;
    out->n_experts_used = 2;
    add_tensor(add_unit(out, UNIT_EMBED, -1), ROLE_TOKEN_EMBED, EMBD, VOCAB);
    add_layer(out, 0, true, false);
    add_layer(out, 1, false, true);
    add_layer(out, 2, true, true);
    struct unit *head = add_unit(out, UNIT_HEAD, -1);
    add_tensor(head, ROLE_OUTPUT, EMBD, VOCAB);
    add_tensor(head, ROLE_OUTPUT_NORM, EMBD, 1);
}

struct machine small_machine(uint64_t vram_bytes) {
    struct machine m = {.name = "small", .rates = RATES_NONE, .n_devices = vram_bytes ? 2 : 1};
    m.devices[0] = (struct machine_device){.name = "a cpu",
                                           .kind = "cpu",
                                           .capacity_bytes = UINT64_C(1) << 30,
                                           .budget_bytes = UINT64_C(1) << 30,
                                           .align_bytes = 64,
                                           .n_lanes = 4,
                                           .is_host = true};
    m.devices[1] = (struct machine_device){.name = "a gpu",
                                           .kind = "sim",
                                           .capacity_bytes = vram_bytes,
                                           .budget_bytes = vram_bytes,
                                           .align_bytes = 256,
                                           .n_lanes = 1};
    return m;
}

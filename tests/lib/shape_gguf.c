/* shape_gguf.c: see shape_gguf.h. */
#include "tests/lib/shape_gguf.h"

#include "base/mem.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void number(struct gguf_build *b, const struct shape *s, const char *name, int32_t value) {
    char key[96];
    snprintf(key, sizeof key, "%s.%s", s->architecture, name);
    gguf_build_int(b, key, GGUF_U32, (uint64_t)value);
}

// A number where all layers agree, as converters write it; else one number for each layer.
static void list(struct gguf_build *b, const struct shape *s, const char *name,
                 const int32_t *values) {
    char key[96];
    int n_alike = 0;
    while (n_alike < s->n_layers && values[n_alike] == values[0]) n_alike++;
    if (n_alike == s->n_layers) {
        number(b, s, name, values[0]);
        return;
    }
    snprintf(key, sizeof key, "%s.%s", s->architecture, name);
    gguf_build_ints(b, key, values, (uint64_t)s->n_layers);
}

// Keys of heads, which layers with a window may have others of.
static void head_keys(struct gguf_build *b, const struct shape *s, int32_t dim, int32_t local_dim) {
    number(b, s, "attention.key_length", dim);
    number(b, s, "attention.value_length", s->latent.rank ? s->latent.rank : dim);
    number(b, s, "rope.dimension_count", s->n_rot);
    if (s->latent.rank) {
        number(b, s, "attention.kv_lora_rank", s->latent.rank);
        number(b, s, "attention.key_length_mla", s->latent.key_dim);
        number(b, s, "attention.value_length_mla", s->latent.value_dim);
    }
    if (s->latent.query_rank) number(b, s, "attention.q_lora_rank", s->latent.query_rank);
    if (local_dim == dim) return;
    number(b, s, "attention.key_length_swa", local_dim);
    number(b, s, "attention.value_length_swa", local_dim);
    number(b, s, "rope.dimension_count_swa", s->n_local_rot);
}

static void attention_keys(struct gguf_build *b, const struct shape *s) {
    int32_t heads[MAX_LAYERS] = {0}, slides[MAX_LAYERS] = {0}, window = 0, n_shared = 0;
    int32_t dim = s->head_dim, local_dim = s->head_dim;
    for (int u = 0; u < s->n_units; u++) {
        const struct unit *unit = &s->units[u];
        if (unit->kind != UNIT_ATTENTION) continue;
        heads[unit->layer] = unit_with_cache(s, unit)->n_kv_heads;
        slides[unit->layer] = unit->window > 0;
        if (unit->n_heads) *(unit->window ? &local_dim : &dim) = unit->head_dim_k;
        if (unit->window) window = unit->window;
        n_shared += unit->cache_unit > 0;
    }
    number(b, s, "attention.head_count", s->n_heads);
    list(b, s, "attention.head_count_kv", heads);
    head_keys(b, s, dim, window ? local_dim : dim);
    if (n_shared) number(b, s, "attention.shared_kv_layers", n_shared);
    if (!window) return;
    number(b, s, "attention.sliding_window", window);
    list(b, s, "attention.sliding_window_pattern", slides);
}

// Layers whose FFN is all that they have are known by their widths; else layers without a dense FFN
// have the width of the others.
static void width_keys(struct gguf_build *b, const struct shape *s) {
    int32_t widths[MAX_LAYERS] = {0}, n_mixers = 0;
    for (int u = 0; u < s->n_units; u++) {
        const struct unit_tensor *down = unit_find(&s->units[u], ROLE_FFN_DOWN);
        if (down) widths[s->units[u].layer] = down->n_cols;
        n_mixers += s->units[u].kind == UNIT_ATTENTION;
    }
    for (int l = 0; l < s->n_layers && n_mixers == s->n_layers; l++)
        if (!widths[l]) widths[l] = s->n_ff ? s->n_ff : s->n_ff_expert;
    list(b, s, "feed_forward_length", widths);
    if (s->n_layer_input) number(b, s, "embedding_length_per_layer_input", s->n_layer_input);
}

// Keys of experts. A dense FFN in a layer without experts is not a shared expert.
static void expert_keys(struct gguf_build *b, const struct shape *s) {
    int32_t n_dense = 0, n_shared = 0;
    for (int u = 1; u + 1 < s->n_units; u++) {
        if (s->units[u].kind != UNIT_FFN) continue;
        n_dense += s->units[u + 1].kind != UNIT_EXPERTS;
        if (s->units[u + 1].kind == UNIT_EXPERTS)
            n_shared = unit_find(&s->units[u], ROLE_FFN_DOWN)->n_cols;
    }
    number(b, s, "expert_count", s->n_experts);
    number(b, s, "expert_used_count", s->n_experts_used);
    number(b, s, "expert_feed_forward_length", s->n_ff_expert);
    if (n_dense) number(b, s, "leading_dense_block_count", n_dense);
    if (n_shared && n_dense) number(b, s, "expert_shared_feed_forward_length", n_shared);
}

static void state_keys(struct gguf_build *b, const struct shape *s) {
    const struct recurrent_shape *r = &s->recurrent;
    if (r->kind == RECURRENCE_CONV) number(b, s, "shortconv.l_cache", r->n_taps);
    if (r->kind != RECURRENCE_DELTA && r->kind != RECURRENCE_MAMBA) return;
    number(b, s, "ssm.inner_size", r->n_heads * r->head_dim);
    number(b, s, "ssm.state_size", r->kind == RECURRENCE_MAMBA ? r->n_state : r->head_dim);
    number(b, s, "ssm.group_count", r->n_key_heads);
    number(b, s, "ssm.conv_kernel", r->n_taps);
    number(b, s, "ssm.time_step_rank", r->n_heads);
}

static void keys(struct gguf_build *b, const struct shape *s) {
    gguf_build_text(b, "general.architecture", s->architecture);
    gguf_build_text(b, "general.name", s->name);
    number(b, s, "block_count", s->n_layers);
    number(b, s, "embedding_length", s->n_embd);
    number(b, s, "context_length", s->n_ctx_train);
    width_keys(b, s);
    attention_keys(b, s);
    if (s->n_experts) expert_keys(b, s);
    state_keys(b, s);
}

// Columns of a vector that files have as a matrix; 0: they have it as a vector.
static int32_t vector_columns(const struct shape *s, const struct unit_tensor *t) {
    const bool mamba = s->recurrent.kind == RECURRENCE_MAMBA;
    if (t->role == ROLE_SSM_CONV || t->role == ROLE_SHORTCONV) return s->recurrent.n_taps;
    if (mamba && (t->role == ROLE_SSM_A || t->role == ROLE_SSM_D)) return 1;
    return mamba && t->role == ROLE_SSM_NORM ? t->n_cols / s->recurrent.n_key_heads : 0;
}

// Dimensions as files have them: convolutions are matrices, biases of experts too.
static int dimensions(const struct shape *s, const struct unit_tensor *t, int32_t n_heads,
                      uint64_t ne[4]) {
    const int32_t n_cols = vector_columns(s, t);
    ne[0] = (uint64_t)t->n_cols;
    ne[1] = (uint64_t)t->n_rows;
    ne[2] = (uint64_t)t->n_matrices;
    ne[3] = 1;
    if (t->use == USE_EXPERTS && t->n_rows == 1) {
        ne[1] = ne[2];
        return 2;
    }
    if (t->use == USE_EXPERTS) return 3;
    if (tensor_role_info(t->role)->kind == KIND_HEADS) {
        ne[2] = (uint64_t)n_heads;
        ne[1] /= ne[2];
        return 3;
    }
    if (n_cols) {
        ne[1] = ne[0] / (uint64_t)n_cols;
        ne[0] = (uint64_t)n_cols;
        return 2;
    }
    return t->use == USE_VECTOR ? 1 : 2;
}

void shape_gguf_build(struct gguf_build *b, const struct shape *shape, uint64_t *size_bytes) {
    gguf_build_init(b);
    keys(b, shape);
    uint64_t offset = 0, ne[4];
    // From the last to the first: the reader brings tensors of a unit into order.
    for (int u = shape->n_units - 1; u >= 0; u--) {
        const struct unit *unit = &shape->units[u];
        for (int i = unit->n_tensors - 1; i >= (unit->shares_embed ? 1 : 0); i--) {
            const struct unit_tensor *t = &unit->tensors[i];
            const int n_dims = dimensions(shape, t, unit->n_heads, ne);
            gguf_build_record(b, t->name, (uint32_t)n_dims, ne, (uint32_t)t->type, offset);
            offset += round_up(t->size_bytes, b->alignment);
        }
    }
    *size_bytes = offset;
}

void shape_gguf_write(const char *path, const struct shape *shape, uint64_t *header_bytes) {
    struct gguf_build b;
    uint64_t size_bytes;
    shape_gguf_build(&b, shape, &size_bytes);
    gguf_build_finish(&b);
    gguf_build_write(&b, path);
    *header_bytes = round_up(b.file.size, b.alignment);
    ASSERT(truncate(path, (off_t)(*header_bytes + size_bytes)) == 0);
    gguf_build_close(&b);
}

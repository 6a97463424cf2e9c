/* model_take.c: see model_take.h. */
#include "runtime/model/model_take.h"

#include "runtime/model/families.h"
#include "runtime/model/per_layer.h"

#include <stdio.h>
#include <string.h>

enum { EXPERT_ALIGN = 16 }; // matmul_experts_args.slot_bytes

struct unit *model_take_unit(struct model *m, enum unit_kind kind, int32_t layer) {
    ASSERT(m->shape->n_units < MAX_UNITS);
    struct unit *unit = &m->shape->units[m->shape->n_units++];
    *unit = (struct unit){.kind = kind, .layer = layer};
    return unit;
}

static enum status refuse_type(const struct gguf_tensor *t, const char *name, const char *expected,
                               struct err *e) {
    err_set(e, ERR_UNSUPPORTED, "tensor %s has a type that has no kernel", name);
    err_expected(e, "%s", expected);
    err_actual(e, "%s", dtype_name(t->type));
    return err_fix(e, "fetch a Q4_K_M or Q8_0 file of the model");
}

static int64_t matrices_of(const struct tensor_want *want) {
    return want->n_experts ? want->n_experts : want->n_heads ? want->n_heads : 1;
}

static bool has_shape(const struct gguf_tensor *t, const struct tensor_want *want) {
    const int64_t n_matrices = matrices_of(want);
    const bool biases = tensor_role_info(want->role)->kind == KIND_BIASES; // a row for each expert
    return t->ne[0] == (uint64_t)want->n_cols &&
           t->ne[1] == (uint64_t)(biases ? n_matrices : want->n_rows) &&
           t->ne[2] == (uint64_t)(biases ? 1 : n_matrices) && t->ne[3] == 1;
}

// Matrices may have any type with kernels. Other tensors become F32 when they are loaded.
static enum status check_type(const struct gguf_tensor *t, const char *name, bool any,
                              struct err *e) {
    enum weight_type type;
    if (any) return dtype_weight(t->type, &type) ? OK : refuse_type(t, name, weight_names(), e);
    if (t->type == DTYPE_F32 || t->type == DTYPE_F16 || t->type == DTYPE_BF16) return OK;
    return refuse_type(t, name, "F32, F16 or BF16", e);
}

static enum status check_tensor(const struct gguf_tensor *t, const char *name,
                                const struct tensor_want *want, struct err *e) {
    const bool any = !tensor_role_is_f32(want->role);
    if (check_type(t, name, any, e)) return e->status;
    const int64_t n_matrices = matrices_of(want);
    if (!has_shape(t, want)) {
        err_set(e, ERR_FORMAT, "tensor %s has the wrong shape", name);
        err_expected(e, "[%lld, %lld, %lld]", (long long)want->n_cols, (long long)want->n_rows,
                     (long long)n_matrices);
        return err_actual(e, "[%llu, %llu, %llu, %llu]", (unsigned long long)t->ne[0],
                          (unsigned long long)t->ne[1], (unsigned long long)t->ne[2],
                          (unsigned long long)t->ne[3]);
    }
    if (n_matrices == 1 || !any || t->size_bytes / (uint64_t)n_matrices % EXPERT_ALIGN == 0)
        return OK;
    err_set(e, ERR_UNSUPPORTED, "tensor %s: the bytes of one %s", name,
            want->n_heads ? "head" : "expert");
    err_expected(e, "a multiple of %d", EXPERT_ALIGN);
    return err_actual(e, "%llu", (unsigned long long)(t->size_bytes / (uint64_t)n_matrices));
}

static enum status find_named(const struct model *m, const char *name,
                              const struct tensor_want *want, const struct gguf_tensor **out,
                              struct err *e) {
    *out = gguf_find_tensor(m->gguf, name);
    if (*out) return check_tensor(*out, name, want, e);
    if (want->optional) return OK;
    err_set(e, ERR_FORMAT, "tensor %s is missing", name);
    return err_fix(e, "fetch the file again, or a complete conversion of the model");
}

enum status model_take_global(const struct model *m, const struct tensor_want *want,
                              const struct gguf_tensor **out, struct err *e) {
    const char *name = tensor_role_info(want->role)->name;
    if (find_named(m, name, want, out, e)) return e->status;
    return *out && (*out)->type != DTYPE_F32 ? refuse_type(*out, name, "F32", e) : OK;
}

// Writes the name that the file has for a role, or the role's first name if it has none.
static void find_name(const struct model *m, int32_t layer, enum tensor_role role, char *out,
                      size_t size_bytes) {
    const struct gguf_tensor *t = per_layer_tensor(m->gguf, layer, role);
    const char *name = tensor_role_info(role)->name;
    if (t)
        snprintf(out, size_bytes, "%.*s", (int)t->name.length, t->name.bytes);
    else if (layer >= 0)
        snprintf(out, size_bytes, "blk.%d.%s", layer, name);
    else
        snprintf(out, size_bytes, "%s", name);
}

bool model_layer_has(const struct model *m, int32_t layer, enum tensor_role role) {
    return per_layer_tensor(m->gguf, layer, role) != NULL;
}

// Writes the name in the file of a unit's tensor. Where a layer has no other norm before its FFN,
// the norm after attention is that norm; in families whose layers have one part and one norm, the
// norm before attention is.
static void name_of(const struct model *m, int32_t layer, enum tensor_role role, char *out,
                    size_t size_bytes) {
    const bool other = role != ROLE_FFN_NORM && role != ROLE_ATTN_POST_NORM;
    const bool alone = !other && !model_layer_has(m, layer, ROLE_FFN_NORM) &&
                       !model_layer_has(m, layer, ROLE_FFN_POST_NORM) &&
                       model_layer_has(m, layer, ROLE_ATTN_POST_NORM);
    if (layer >= 0 && m->family->parts_layers && !m->mixes[layer] && role == ROLE_FFN_NORM)
        find_name(m, layer, ROLE_ATTN_NORM, out, size_bytes);
    else if (alone && role == ROLE_ATTN_POST_NORM)
        out[0] = 0;
    else
        find_name(m, layer, alone ? ROLE_ATTN_POST_NORM : role, out, size_bytes);
}

// ---- Parts of fused tensors ---------------------------------------------------------------------

// Finds the tensor that holds the rows of several roles, of which this is one; ROLE_OTHER if no
// tensor may hold it besides its own.
static enum tensor_role fused_role(enum tensor_role role) {
    switch (role) {
    case ROLE_ATTN_Q:
    case ROLE_ATTN_K:
    case ROLE_ATTN_V: return ROLE_ATTN_QKV;
    case ROLE_ATTN_Q_BIAS:
    case ROLE_ATTN_K_BIAS:
    case ROLE_ATTN_V_BIAS: return ROLE_ATTN_QKV_BIAS;
    case ROLE_FFN_GATE:
    case ROLE_FFN_UP: return ROLE_FFN_UP;
    case ROLE_EXPERT_GATE:
    case ROLE_EXPERT_UP: return ROLE_EXPERT_GATE_UP;
    default: return ROLE_OTHER;
    }
}

// Sets the rows before a role's rows in its fused tensor, and all rows there: q, k, v; or gate, up.
static void find_rows(const struct model *m, const struct unit *unit, enum tensor_role role,
                      int64_t *first, int64_t *count) {
    const int64_t q = dims_of(m->shape, unit, DIM_Q_ROWS), k = dims_of(m->shape, unit, DIM_KEYS);
    const int64_t v = dims_of(m->shape, unit, DIM_VALUES);
    const int64_t ff = m->n_ff[unit->layer];
    const enum tensor_role whole = fused_role(role);
    *count = whole == ROLE_FFN_UP           ? 2 * ff
             : whole == ROLE_EXPERT_GATE_UP ? 2 * (int64_t)unit->n_ff_expert
                                            : q + k + v;
    *first = 0;
    if (role == ROLE_FFN_UP || role == ROLE_EXPERT_UP) *first = *count / 2;
    if (role == ROLE_ATTN_K || role == ROLE_ATTN_K_BIAS) *first = q;
    if (role == ROLE_ATTN_V || role == ROLE_ATTN_V_BIAS) *first = q + k;
}

// True if the layer has the role's rows in a fused tensor.
static bool is_fused(const struct model *m, int32_t layer, enum tensor_role role) {
    const enum tensor_role whole = fused_role(role);
    if (layer < 0 || whole == ROLE_OTHER || !model_layer_has(m, layer, whole)) return false;
    if (whole == ROLE_FFN_UP && family_lists(m->family->lacks, ROLE_FFN_GATE)) return false;
    return !model_layer_has(m, layer, whole == ROLE_FFN_UP ? ROLE_FFN_GATE : role);
}

// Makes the wanted part of a fused tensor; of one with experts, the same rows of each.
static enum status take_part(struct model *m, const struct unit *unit,
                             const struct tensor_want *want, const struct gguf_tensor **out,
                             struct err *e) {
    const bool vector = tensor_use_of(want->role) == USE_VECTOR;
    struct tensor_want all = *want;
    int64_t first, count;
    char name[TENSOR_NAME + 16];
    find_rows(m, unit, want->role, &first, &count);
    all.role = fused_role(want->role);
    *(vector ? &all.n_cols : &all.n_rows) = count;
    find_name(m, unit->layer, all.role, name, sizeof name);
    const struct gguf_tensor *whole;
    if (find_named(m, name, &all, &whole, e)) return e->status;
    ASSERT(m->n_parts < MAX_LAYERS * MAX_MADE_TENSORS);
    struct gguf_tensor *part = &m->parts[m->n_parts++];
    const uint64_t n_matrices = want->n_experts ? (uint64_t)want->n_experts : 1;
    const uint64_t row_bytes = whole->size_bytes / n_matrices / (uint64_t)count;
    const uint64_t n_rows = (uint64_t)(vector ? want->n_cols : want->n_rows);
    if (want->n_experts)
        m->strides[m->shape->n_units - 1][unit->n_tensors] = row_bytes * (uint64_t)count;
    *part = *whole;
    part->ne[vector ? 0 : 1] = n_rows;
    part->data += row_bytes * (uint64_t)first;
    part->file_offset += row_bytes * (uint64_t)first;
    part->size_bytes = row_bytes * n_rows * n_matrices;
    *out = part;
    return check_tensor(part, name, want, e);
}

// ---- Rows of tensors that hold more -------------------------------------------------------------

bool model_is_joined(const struct model *m, const struct unit *unit, enum tensor_role role) {
    switch (role) {
    case ROLE_ATTN_K_B:
    case ROLE_ATTN_V_B: return m->joins_kv;
    case ROLE_ATTN_QKV:
    case ROLE_ATTN_GATE:
        return m->shape->recurrent.kind == RECURRENCE_DELTA &&
               model_layer_has(m, unit->layer, ROLE_SSM_IN);
    default: return false;
    }
}

// The tensor that holds the rows of a role, and more.
static struct tensor_want joined_of(const struct model *m, const struct tensor_want *want) {
    const struct latent_shape *l = &m->shape->latent;
    const struct recurrent_shape *r = &m->shape->recurrent;
    const int64_t head_rows = l->key_dim - m->shape->n_rot + l->value_dim;
    if (want->n_heads)
        return (struct tensor_want){
            .role = ROLE_ATTN_KV_B, .n_cols = l->rank, .n_rows = want->n_heads * head_rows};
    return (struct tensor_want){.role = ROLE_SSM_IN,
                                .n_cols = want->n_cols,
                                .n_rows =
                                    recurrent_channels(r) + (int64_t)r->n_heads * r->head_dim};
}

static enum status take_joined(struct model *m, const struct unit *unit,
                               const struct tensor_want *want, const struct gguf_tensor **out,
                               struct err *e) {
    const struct tensor_want all = joined_of(m, want);
    char name[TENSOR_NAME + 16];
    const struct gguf_tensor *whole;
    find_name(m, unit->layer, all.role, name, sizeof name);
    if (find_named(m, name, &all, &whole, e)) return e->status;
    if (want->n_heads && want->n_cols * want->n_rows * (int64_t)sizeof(float) % EXPERT_ALIGN)
        return err_set(e, ERR_UNSUPPORTED, "tensor %s: heads of %lld elements", name,
                       (long long)(want->n_cols * want->n_rows));
    ASSERT(m->n_parts < MAX_LAYERS * MAX_MADE_TENSORS);
    struct gguf_tensor *part = &m->parts[m->n_parts++];
    *part = *whole;
    part->n_dims = want->n_heads ? 3 : 2;
    part->ne[0] = (uint64_t)want->n_cols;
    part->ne[1] = (uint64_t)want->n_rows;
    part->ne[2] = want->n_heads ? (uint64_t)want->n_heads : 1;
    part->size_bytes = whole->size_bytes / (uint64_t)all.n_rows * part->ne[1] * part->ne[2];
    *out = part;
    return OK;
}

// ---- Experts that are tensors of their own ------------------------------------------------------

const struct gguf_tensor *model_find_expert(const struct model *m, int32_t layer,
                                            enum tensor_role role, int32_t expert) {
    const char *matrix = role == ROLE_EXPERT_GATE   ? "gate"
                         : role == ROLE_EXPERT_UP   ? "up"
                         : role == ROLE_EXPERT_DOWN ? "down"
                                                    : NULL;
    char name[TENSOR_NAME + 16];
    if (!matrix) return NULL;
    snprintf(name, sizeof name, "blk.%d.ffn_%s.%d.weight", layer, matrix, expert);
    return gguf_find_tensor(m->gguf, name);
}

// The distance between two experts that follow each other, or EXPERTS_APART if it is none that
// kernels can walk in.
static uint64_t stride_of(const struct gguf_tensor *a, const struct gguf_tensor *b) {
    if (a->part != b->part || b->file_offset < a->file_offset + a->size_bytes) return EXPERTS_APART;
    const uint64_t stride = b->file_offset - a->file_offset;
    return stride % EXPERT_ALIGN ? EXPERTS_APART : stride;
}

// Checks an expert's matrix, which must be like the first's.
static enum status check_expert(const struct gguf_tensor *t, const struct gguf_tensor *first,
                                const struct tensor_want *want, struct err *e) {
    struct tensor_want one = *want;
    char name[TENSOR_NAME + 16];
    one.n_experts = 0;
    shape_set_text(name, sizeof name, t->name.bytes, t->name.length);
    if (check_tensor(t, name, &one, e)) return e->status;
    if (t->type == first->type) return OK;
    err_set(e, ERR_UNSUPPORTED, "tensor %s has another type than the first expert", name);
    err_expected(e, "%s", dtype_name(first->type));
    err_actual(e, "%s", dtype_name(t->type));
    return err_fix(e, "fetch a conversion that is newer than 2024-04, with ffn_up_exps");
}

// Takes the experts' matrices together. name is that of the tensor which they are like.
static enum status take_experts(struct model *m, const struct unit *unit,
                                const struct tensor_want *want, const char *name,
                                const struct gguf_tensor **out, struct err *e) {
    const struct gguf_tensor *first = model_find_expert(m, unit->layer, want->role, 0);
    const struct gguf_tensor *last = first;
    uint64_t *stride = &m->strides[m->shape->n_units - 1][unit->n_tensors];
    for (int32_t i = 0; i < want->n_experts; i++) {
        const struct gguf_tensor *t = model_find_expert(m, unit->layer, want->role, i);
        if (!t) return err_set(e, ERR_FORMAT, "%s: the tensor of expert %d is missing", name, i);
        if (check_expert(t, first, want, e)) return e->status;
        if (i == 1) *stride = stride_of(last, t);
        if (i > 1 && *stride != stride_of(last, t)) *stride = EXPERTS_APART;
        last = t;
    }
    ASSERT(m->n_parts < MAX_LAYERS * MAX_MADE_TENSORS);
    struct gguf_tensor *all = &m->parts[m->n_parts++];
    *all = *first;
    all->n_dims = 3;
    all->ne[2] = (uint64_t)want->n_experts;
    all->size_bytes = first->size_bytes * all->ne[2];
    *out = all;
    return check_tensor(all, name, want, e);
}

// ---- Tensors of units ---------------------------------------------------------------------------

// Finds a tensor of a unit in one of the forms in which files have it. name: what it is called.
static enum status find_tensor(struct model *m, const struct unit *unit,
                               const struct tensor_want *want, const char *name,
                               const struct gguf_tensor **out, struct err *e) {
    if (model_is_joined(m, unit, want->role)) return take_joined(m, unit, want, out, e);
    if (is_fused(m, unit->layer, want->role)) return take_part(m, unit, want, out, e);
    if (!gguf_find_tensor(m->gguf, name) && model_find_expert(m, unit->layer, want->role, 0))
        return take_experts(m, unit, want, name, out, e);
    return find_named(m, name, want, out, e);
}

enum status model_take_tensor(struct model *m, const struct tensor_want *want, struct err *e) {
    const int32_t u = m->shape->n_units - 1;
    struct unit *unit = &m->shape->units[u];
    const enum tensor_role listed =
        unit->shares_embed && want->role == ROLE_OUTPUT ? ROLE_TOKEN_EMBED : want->role;
    const struct gguf_tensor *t = NULL;
    char name[TENSOR_NAME + 16];
    name_of(m, unit->layer, listed, name, sizeof name);
    if (find_tensor(m, unit, want, name, &t, e)) return e->status;
    if (!t) return OK;
    ASSERT(unit->n_tensors < MAX_UNIT_TENSORS);
    m->tensors[u][unit->n_tensors] = t;
    struct unit_tensor *out = &unit->tensors[unit->n_tensors++];
    const uint64_t elements = t->ne[0] * t->ne[1] * t->ne[2];
    const bool f32 =
        tensor_role_is_f32(want->role) || (want->n_heads && model_is_joined(m, unit, want->role));
    const bool vector = tensor_use_of(want->role) == USE_VECTOR;
    const int64_t n_rows = want->n_rows * (want->n_heads ? want->n_heads : 1);
    *out = (struct unit_tensor){.role = want->role,
                                .use = tensor_use_of(want->role),
                                .type = f32 ? DTYPE_F32 : t->type,
                                .n_cols =
                                    (int32_t)(vector ? want->n_cols * want->n_rows : want->n_cols),
                                .n_rows = vector ? 1 : (int32_t)n_rows,
                                .n_matrices = want->n_experts ? want->n_experts : 1,
                                .size_bytes = f32 ? elements * sizeof(float) : t->size_bytes};
    if (model_find_expert(m, unit->layer, want->role, 0))
        shape_set_text(out->name, sizeof out->name, name, strlen(name));
    else
        shape_set_text(out->name, sizeof out->name, t->name.bytes, t->name.length);
    return OK;
}

struct key {
    char text[128];
};

static struct key key_of(const struct model *m, const char *name) {
    struct key key;
    snprintf(key.text, sizeof key.text, "%s.%s", m->shape->architecture, name);
    return key;
}

static enum status read_range(const struct model *m, const char *key, int32_t low, int32_t high,
                              int32_t *out, struct err *e) {
    uint64_t value = (uint64_t)*out;
    if (gguf_read_u64(m->gguf, key_of(m, key).text, (uint64_t)low, (uint64_t)high, &value, e))
        return e->status;
    *out = (int32_t)value;
    return OK;
}

enum status model_take_count(const struct model *m, const char *key, int32_t high, int32_t *out,
                             struct err *e) {
    return read_range(m, key, 0, high, out, e);
}

enum status model_take_int(const struct model *m, const char *key, int32_t high, int32_t *out,
                           struct err *e) {
    if (read_range(m, key, 1, high, out, e)) return e->status;
    if (*out) return OK;
    err_set(e, ERR_FORMAT, "key %s is missing", key_of(m, key).text);
    return err_fix(e, "fetch a complete conversion of the model");
}

enum status model_take_float(const struct model *m, const char *key, float *out, struct err *e) {
    return gguf_read_f32(m->gguf, key_of(m, key).text, out, e);
}

enum status model_take_bool(const struct model *m, const char *key, bool *out, struct err *e) {
    return gguf_read_bool(m->gguf, key_of(m, key).text, out, e);
}

enum status model_take_text(const struct model *m, const char *key, struct gguf_text *out,
                            struct err *e) {
    return gguf_read_text(m->gguf, key_of(m, key).text, out, e);
}

/* shape.c: checks a shape and computes sums over it. See shape.h.
 *
 * Owns nothing; pure functions. shape_check is the one place where the ranges of a shape's numbers
 * are written down. Any thread. Tested by tests/planner/test_shape.c and tests/fuzz/fuzz_shape.c.
 */
#include "planner/shape/shape.h"

#include "base/mem.h"
#include "base/number.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { MAX_COLUMNS = 1 << 30 };
static const uint64_t MAX_TENSOR_BYTES = UINT64_C(1) << 44;
static const uint64_t MAX_STATE_BYTES = UINT64_C(1) << 36;

static_assert((int)OWNER_EMBED == UNIT_EMBED && (int)OWNER_HEAD == UNIT_HEAD,
              "the units that have tensors are the kinds of units");

const char *unit_kind_name(enum unit_kind kind) {
    static const char *const names[UNIT_KINDS] = {"embed", "attention", "ffn", "experts", "head"};
    return (unsigned)kind < UNIT_KINDS ? names[kind] : "unknown";
}

const struct unit_tensor *unit_find(const struct unit *unit, enum tensor_role role) {
    for (int i = 0; i < unit->n_tensors && role != ROLE_OTHER; i++)
        if (unit->tensors[i].role == role) return &unit->tensors[i];
    return NULL;
}

const struct unit_tensor *unit_post_norm(const struct unit *unit) {
    if (unit->kind == UNIT_ATTENTION) return unit_find(unit, ROLE_ATTN_POST_NORM);
    if (unit->kind == UNIT_EMBED || unit->kind == UNIT_HEAD) return NULL;
    const struct unit_tensor *before_experts = unit_find(unit, ROLE_FFN_POST_NORM_1);
    return before_experts ? before_experts : unit_find(unit, ROLE_FFN_POST_NORM);
}

bool unit_leaves_branch(const struct unit *unit) {
    return unit_post_norm(unit) || unit->joint_norm;
}

int32_t unit_leader(const struct shape *shape, int32_t unit) {
    const int32_t other = shape->units[unit].cache_unit;
    return other ? other : unit;
}

int32_t shape_layer_inputs(const struct shape *shape) {
    return shape->n_layers * shape->n_layer_input;
}

const struct unit *unit_with_cache(const struct shape *shape, const struct unit *unit) {
    return unit->cache_unit ? &shape->units[unit->cache_unit] : unit;
}

bool unit_reads_normed(const struct shape *shape, int32_t unit) {
    const struct unit *u = &shape->units[unit];
    return u->reads_normed ||
           (u->kind == UNIT_EXPERTS && u[-1].kind == UNIT_FFN && u[-1].layer == u->layer);
}

bool unit_is_tail(const struct shape *shape, const struct unit *unit) {
    const bool is_ffn = unit->kind == UNIT_FFN || unit->kind == UNIT_EXPERTS;
    return unit->kind == UNIT_HEAD || (is_ffn && unit->layer == shape->n_layers - 1);
}

bool unit_has_state(const struct shape *shape, const struct unit *unit) {
    return shape->recurrent.kind != RECURRENCE_NONE && unit->state_bytes > 0;
}

int64_t recurrent_channels(const struct recurrent_shape *r) {
    const int64_t width = (int64_t)r->n_heads * r->head_dim;
    if (r->kind == RECURRENCE_CONV) return r->n_channels;
    if (r->kind == RECURRENCE_MAMBA) return width + 2 * (int64_t)r->n_key_heads * r->n_state;
    return width + 2 * (int64_t)r->n_key_heads * r->head_dim;
}

int64_t recurrent_cells(const struct recurrent_shape *r) {
    const int64_t n_cols = r->kind == RECURRENCE_MAMBA ? r->n_state : r->head_dim;
    return (int64_t)r->n_heads * r->head_dim * n_cols;
}

uint64_t recurrent_state_bytes(const struct recurrent_shape *r) {
    return 4 * (uint64_t)(recurrent_cells(r) + (r->n_taps - 1) * recurrent_channels(r));
}

enum tensor_use tensor_use_of(enum tensor_role role) {
    static const enum tensor_use uses[] = {
        [KIND_MATRIX] = USE_MATRIX,   [KIND_VECTOR] = USE_VECTOR,  [KIND_ROWS] = USE_ROWS,
        [KIND_EXPERTS] = USE_EXPERTS, [KIND_BIASES] = USE_EXPERTS, [KIND_ROUTER] = USE_MATRIX,
        [KIND_HEADS] = USE_MATRIX,
    };
    return uses[tensor_role_info(role)->kind];
}

void plan_unit_name(const struct unit *unit, char *out, size_t size_bytes) {
    if (unit->layer >= 0)
        snprintf(out, size_bytes, "blk.%d.%s", unit->layer, unit_kind_name(unit->kind));
    else
        snprintf(out, size_bytes, "%s", unit_kind_name(unit->kind));
}

void shape_set_text(char *out, size_t size_bytes, const char *text, size_t length) {
    ASSERT(size_bytes > 0);
    const size_t count = length < size_bytes - 1 ? length : size_bytes - 1;
    memset(out, 0, size_bytes);
    for (size_t i = 0; i < count; i++) {
        const unsigned char byte = (unsigned char)text[i];
        out[i] = (char)(byte < 0x20 || byte == 0x7f ? '?' : byte);
    }
}

int32_t shape_window(const struct shape *shape) {
    int32_t longest = 0;
    for (int u = 0; u < shape->n_units; u++) longest = max_i32(longest, shape->units[u].window);
    return longest;
}

bool shape_has_matrices(const struct shape *shape, enum dtype type) {
    for (int u = 0; u < shape->n_units; u++)
        for (int i = 0; i < shape->units[u].n_tensors; i++) {
            const struct unit_tensor *tensor = &shape->units[u].tensors[i];
            const bool multiplies = tensor->use == USE_MATRIX || tensor->use == USE_EXPERTS;
            if (multiplies && tensor->type == type) return true;
        }
    return false;
}

uint64_t shape_weight_bytes(const struct shape *shape) {
    uint64_t total = 0;
    for (int u = 0; u < shape->n_units; u++) {
        const struct unit *unit = &shape->units[u];
        for (int i = unit->shares_embed ? 1 : 0; i < unit->n_tensors; i++)
            total += unit->tensors[i].size_bytes;
    }
    return total;
}

// ---- Checks -------------------------------------------------------------------------------------

// The unit and the tensor, if any, that a check is about, for messages.
struct place {
    const struct shape *shape;
    const struct unit *unit;
    const struct unit_tensor *tensor;
    struct err *e;
};

static enum status refuse(const struct place *at, const char *field) {
    struct err *e = at->e;
    err_set(e, ERR_FORMAT, "%s", field);
    if (at->tensor) err_context(e, "tensor %.*s", TENSOR_NAME - 1, at->tensor->name);
    if (at->unit && at->unit->layer >= 0)
        err_context(e, "%s of layer %d", unit_kind_name(at->unit->kind), at->unit->layer);
    else if (at->unit)
        err_context(e, "%s", unit_kind_name(at->unit->kind));
    return e->status;
}

static enum status check_range(const struct place *at, const char *field, int64_t value,
                               int64_t low, int64_t high) {
    if (value >= low && value <= high) return OK;
    refuse(at, field);
    err_expected(at->e, "%" PRId64 " to %" PRId64, low, high);
    return err_actual(at->e, "%" PRId64, value);
}

// One field of a struct with its range, so that a struct's checks are a table.
struct field {
    const char *name;
    int64_t value, low, high;
};

static enum status check_fields(const struct place *at, const struct field *fields, int count) {
    for (int i = 0; i < count; i++) {
        const struct field *f = &fields[i];
        if (check_range(at, f->name, f->value, f->low, f->high)) return at->e->status;
    }
    return OK;
}
#define CHECK_FIELDS(at, fields) check_fields(at, fields, (int)(sizeof(fields) / sizeof *(fields)))

static enum status check_text(const struct place *at, const char *field, const char *text,
                              size_t size_bytes) {
    const char *end = memchr(text, 0, size_bytes);
    bool good = end && end != text;
    for (const char *p = text; good && p < end; p++)
        good = (unsigned char)*p >= 0x20 && (unsigned char)*p != 0x7f;
    if (good) return OK;
    refuse(at, field);
    return err_expected(at->e, "1 to %zu printable characters", size_bytes - 1);
}

static enum status check_numbers(const struct place *at) {
    const struct shape *s = at->shape;
    const struct field fields[] = {
        {"n_layers", s->n_layers, 1, MAX_LAYERS},
        {"n_embd", s->n_embd, 1, SHAPE_WIDTH},
        {"n_vocab", s->n_vocab, 1, SHAPE_VOCAB},
        {"n_ctx_train", s->n_ctx_train, 1, SHAPE_CONTEXT},
        {"n_heads", s->n_heads, 0, SHAPE_HEADS},
        {"n_kv_heads", s->n_kv_heads, 0, s->n_heads},
        {"head_dim", s->head_dim, 0, SHAPE_HEAD_DIM},
        {"n_rot", s->n_rot, 0, s->head_dim},
        {"n_local_rot", s->n_local_rot, 0, s->head_dim},
        {"n_layer_input", s->n_layer_input, 0, SHAPE_WIDTH / max_i32(s->n_layers, 1)},
        {"n_ff", s->n_ff, 0, SHAPE_WIDTH},
        {"n_experts", s->n_experts, 0, SHAPE_EXPERTS},
        {"n_experts_used", s->n_experts_used, s->n_experts > 0, s->n_experts},
        {"n_ff_expert", s->n_ff_expert, s->n_experts > 0, s->n_experts > 0 ? SHAPE_WIDTH : 0},
        {"n_heads * head_dim", (int64_t)s->n_heads * s->head_dim, 0, SHAPE_WIDTH},
        {"n_kv_heads * head_dim", (int64_t)s->n_kv_heads * s->head_dim, 0, SHAPE_KV_WIDTH},
        {"n_units", s->n_units, 2 + (int64_t)s->n_layers, 2 + 3 * (int64_t)s->n_layers},
    };
    if (check_text(at, "name", s->name, sizeof s->name) ||
        check_text(at, "architecture", s->architecture, sizeof s->architecture))
        return at->e->status;
    return CHECK_FIELDS(at, fields);
}

// The limits keep the bytes of a state in range.
static enum status check_recurrent(const struct place *at) {
    const struct recurrent_shape *r = &at->shape->recurrent;
    const bool any = r->kind != RECURRENCE_NONE, conv = r->kind == RECURRENCE_CONV;
    const bool heads = any && !conv, mamba = r->kind == RECURRENCE_MAMBA;
    const int64_t shared = heads && r->n_key_heads > 0 ? r->n_heads % r->n_key_heads : 0;
    const struct field fields[] = {
        {"recurrent.kind", (int64_t)r->kind, RECURRENCE_NONE, RECURRENCE_MAMBA},
        {"recurrent.n_heads", r->n_heads, heads, heads ? SHAPE_DELTA_HEADS : 0},
        {"recurrent.n_key_heads", r->n_key_heads, heads, r->n_heads},
        {"recurrent.n_heads % n_key_heads", shared, 0, 0},
        {"recurrent.head_dim", r->head_dim, heads, heads ? SHAPE_DELTA_DIM : 0},
        {"recurrent.n_taps", r->n_taps, any ? 2 : 0, any ? SHAPE_DELTA_TAPS : 0},
        {"recurrent.n_state", r->n_state, mamba, mamba ? SHAPE_DELTA_DIM : 0},
        {"recurrent.beside", r->beside, 0, mamba},
        {"recurrent.n_channels", r->n_channels, conv, conv ? SHAPE_WIDTH : 0},
    };
    return CHECK_FIELDS(at, fields);
}

// Rows of the cache are as wide as keys; values are a part of them.
static enum status check_latent(const struct place *at) {
    const struct latent_shape *l = &at->shape->latent;
    const int32_t n_rot = at->shape->n_rot, most = l->rank > 0 ? SHAPE_HEAD_DIM : 0;
    const struct field fields[] = {
        {"latent.rank", l->rank, 0, SHAPE_HEAD_DIM - n_rot},
        {"latent.query_rank", l->query_rank, 0, l->rank > 0 ? SHAPE_WIDTH : 0},
        {"latent.key_dim", l->key_dim, l->rank > 0 ? n_rot + 1 : 0, most},
        {"latent.value_dim", l->value_dim, l->rank > 0, most},
        {"latent.n_rot", l->rank > 0 ? n_rot : 1, 1, SHAPE_HEAD_DIM},
    };
    return CHECK_FIELDS(at, fields);
}

static enum status check_tensor_use(const struct place *at) {
    const enum unit_kind kind = at->unit->kind;
    switch (at->tensor->use) {
    case USE_MATRIX:
    case USE_VECTOR: return OK;
    case USE_ROWS:
        if (kind == UNIT_EMBED) return OK;
        break;
    case USE_EXPERTS:
        if (kind == UNIT_EXPERTS) return OK;
        break;
    }
    return refuse(at, "use: not one that such a unit has");
}

// True if such a unit can have a tensor of that owner.
static bool owns(enum unit_kind kind, enum tensor_owner owner) {
    switch (owner) {
    case OWNER_AFTER:
    case OWNER_LAST: return kind == UNIT_FFN || kind == UNIT_EXPERTS;
    case OWNER_FIRST:
    case OWNER_POST: return kind == UNIT_ATTENTION;
    case OWNER_NOWHERE: return false;
    default: return (int)owner == (int)kind;
    }
}

static enum status check_role(const struct place *at) {
    const struct unit_tensor *t = at->tensor;
    if ((unsigned)t->role >= ROLES) return refuse(at, "role: none that is known");
    if (t->role == ROLE_OTHER) return OK;
    if (!owns(at->unit->kind, tensor_role_info(t->role)->owner))
        return refuse(at, "role: not one that such a unit has");
    if (unit_find(at->unit, t->role) != t) return refuse(at, "role: twice in the unit");
    return t->use == tensor_use_of(t->role) ? OK : refuse(at, "use: not what its role says");
}

static enum status check_tensor(const struct place *at) {
    const struct unit_tensor *t = at->tensor;
    const int64_t n_matrices = t->use == USE_EXPERTS ? at->unit->n_experts : 1;
    const struct field fields[] = {
        {"n_cols", t->n_cols, 1, MAX_COLUMNS},
        {"n_rows", t->n_rows, 1, t->use == USE_VECTOR ? 1 : MAX_COLUMNS},
        {"n_matrices", t->n_matrices, n_matrices, n_matrices},
    };
    if (check_text(at, "name", t->name, sizeof t->name) || check_tensor_use(at) || check_role(at) ||
        CHECK_FIELDS(at, fields))
        return at->e->status;
    if (!dtype_find((uint32_t)t->type)) return refuse(at, "type: not one of the format");
    const uint64_t row_bytes = dtype_bytes(t->type, (uint64_t)t->n_cols);
    if (!row_bytes) {
        refuse(at, "n_cols: no whole number of blocks");
        err_expected(at->e, "a multiple of %u for %s",
                     dtype_find((uint32_t)t->type)->block_elements, dtype_name(t->type));
        return err_actual(at->e, "%d", t->n_cols);
    }
    uint64_t bytes = 0;
    const uint64_t n_rows = (uint64_t)t->n_rows * (uint64_t)t->n_matrices;
    if (!mul_size(row_bytes, n_rows, &bytes) || bytes > MAX_TENSOR_BYTES)
        return refuse(at, "larger than 16 TiB");
    if (bytes == t->size_bytes) return OK;
    refuse(at, "size_bytes");
    err_expected(at->e, "%" PRIu64, bytes);
    return err_actual(at->e, "%" PRIu64, t->size_bytes);
}

// Checks attention that reads the cache of another unit, which must be like its own.
static enum status check_reader(const struct place *at) {
    const struct unit *u = at->unit, *other = unit_with_cache(at->shape, u);
    if (other == u) return OK;
    if (other->kind == UNIT_ATTENTION && other->lends_cache && other->window == u->window &&
        other->head_dim_k == u->head_dim_k && other->head_dim_v == u->head_dim_v &&
        other->n_heads == u->n_heads)
        return OK;
    return refuse(at, "cache_unit: the cache of another kind of attention");
}

static enum status check_attention(const struct place *at) {
    const struct unit *u = at->unit;
    const struct shape *s = at->shape;
    const bool attention = u->kind == UNIT_ATTENTION, has_cache = u->n_kv_heads > 0;
    const bool may_read = attention && !has_cache && u->state_bytes == 0;
    const bool may_join = u->kind == UNIT_FFN || u->kind == UNIT_EXPERTS;
    const bool recurrent = unit_has_state(s, u), latent = attention && s->latent.rank;
    const int32_t row_width = latent ? s->latent.rank + s->n_rot : 0;
    const int64_t state = u->state_bytes <= MAX_STATE_BYTES ? (int64_t)u->state_bytes : INT64_MAX;
    const int64_t expected = recurrent ? (int64_t)recurrent_state_bytes(&s->recurrent) : 0;
    const struct field fields[] = {
        {"n_heads", u->n_heads, has_cache, attention ? s->n_heads : 0},
        {"n_kv_heads", u->n_kv_heads, latent,
         latent      ? 1
         : attention ? s->n_kv_heads
                     : 0},
        {"head_dim_k", u->head_dim_k, latent ? row_width : has_cache,
         latent      ? row_width
         : attention ? s->head_dim
                     : 0},
        {"head_dim_v", u->head_dim_v, 0, attention && !latent ? s->head_dim : 0},
        {"window", u->window, 0, attention && !latent ? SHAPE_CONTEXT : 0},
        {"gated", u->gated, 0, has_cache && s->has_gated_q},
        {"gated_apart", u->gated_apart, 0, has_cache && !u->gated && s->has_gates_apart},
        {"norms_values", u->norms_values, 0, has_cache},
        {"lends_cache", u->lends_cache, 0, has_cache},
        {"reads_normed", u->reads_normed, 0, u->kind == UNIT_FFN},
        {"joint_norm", u->joint_norm, 0, may_join && s->has_joint_norms},
        {"cache_unit", u->cache_unit, 0, may_read ? u - s->units - 1 : 0},
        {"state_bytes", state, expected,
         recurrent   ? expected
         : attention ? (int64_t)MAX_STATE_BYTES
                     : 0},
    };
    return CHECK_FIELDS(at, fields) ? at->e->status : check_reader(at);
}

static enum status check_experts(const struct place *at) {
    const struct unit *u = at->unit;
    const struct shape *s = at->shape;
    const bool experts = u->kind == UNIT_EXPERTS;
    const struct field fields[] = {
        {"n_experts", u->n_experts, experts, experts ? s->n_experts : 0},
        {"n_experts_used", u->n_experts_used, experts,
         experts && u->n_experts < s->n_experts_used ? u->n_experts
         : experts                                   ? s->n_experts_used
                                                     : 0},
        {"n_ff_expert", u->n_ff_expert, experts, experts ? s->n_ff_expert : 0},
    };
    return CHECK_FIELDS(at, fields);
}

// Checks that the table of the embedding or the head is the unit's first tensor.
static enum status check_table(const struct place *at, enum tensor_role role) {
    struct place first = *at;
    const struct unit_tensor *t = first.tensor = &at->unit->tensors[0];
    const struct field fields[] = {
        {"role", (int64_t)t->role, (int64_t)role, (int64_t)role},
        {"n_cols", t->n_cols, at->shape->n_embd, at->shape->n_embd},
        {"n_rows", t->n_rows, at->shape->n_vocab, at->shape->n_vocab},
    };
    return CHECK_FIELDS(&first, fields);
}

static enum status check_shared(const struct place *at) {
    const struct unit_tensor *mine = &at->unit->tensors[0];
    const struct unit_tensor *table = &at->shape->units[0].tensors[0];
    if (!at->unit->shares_embed) return OK;
    if (at->unit->kind == UNIT_HEAD && mine->type == table->type &&
        mine->size_bytes == table->size_bytes)
        return OK;
    return refuse(at, "shares_embed: its first tensor is not the embedding");
}

static enum status check_unit(const struct place *at) {
    const struct unit *u = at->unit;
    if (check_range(at, "n_tensors", u->n_tensors, 1, MAX_UNIT_TENSORS) || check_attention(at) ||
        check_experts(at))
        return at->e->status;
    bool has_experts = false;
    for (int i = 0; i < u->n_tensors; i++) {
        struct place inner = *at;
        inner.tensor = &u->tensors[i];
        if (check_tensor(&inner)) return at->e->status;
        has_experts = has_experts || u->tensors[i].use == USE_EXPERTS;
    }
    if (u->kind == UNIT_EXPERTS && !has_experts) return refuse(at, "no tensor has experts");
    if (u->kind == UNIT_EMBED && check_table(at, ROLE_TOKEN_EMBED)) return at->e->status;
    if (u->kind == UNIT_HEAD && check_table(at, ROLE_OUTPUT)) return at->e->status;
    return check_shared(at);
}

// True if a unit may follow another: embed, layers, head. A layer has at least one of attention, an
// FFN and experts, in this order.
static bool follows(const struct unit *last, const struct unit *unit, int32_t n_layers) {
    if (last->kind == UNIT_HEAD || unit->kind == UNIT_EMBED) return false;
    if (unit->kind == UNIT_HEAD) return unit->layer == -1 && last->layer == n_layers - 1;
    if ((unsigned)unit->kind > UNIT_HEAD) return false;
    if (unit->layer == last->layer + 1) return true;
    return unit->layer >= 0 && unit->layer == last->layer && unit->kind > last->kind;
}

static enum status check_order(const struct place *at) {
    const struct shape *s = at->shape;
    bool good = s->units[0].kind == UNIT_EMBED && s->units[0].layer == -1;
    for (int u = 1; good && u < s->n_units; u++) {
        good = follows(&s->units[u - 1], &s->units[u], s->n_layers);
        if (good) continue;
        err_set(at->e, ERR_FORMAT, "units[%d] (%s, layer %d) is out of order", u,
                unit_kind_name(s->units[u].kind), s->units[u].layer);
        return err_expected(
            at->e, "embed, for each layer attention, ffn, experts or some of these, then head");
    }
    if (!good) return err_set(at->e, ERR_FORMAT, "units[0] is not the embedding");
    if (s->units[s->n_units - 1].kind == UNIT_HEAD) return OK;
    return err_set(at->e, ERR_FORMAT, "the last unit is not the head");
}

enum status shape_check(const struct shape *shape, struct err *e) {
    struct place at = {.shape = shape, .e = e};
    if (check_numbers(&at) || check_recurrent(&at) || check_latent(&at) || check_order(&at))
        return e->status;
    for (int u = 0; u < shape->n_units; u++) {
        at.unit = &shape->units[u];
        if (check_unit(&at)) return e->status;
    }
    return OK;
}

// ---- Smaller types ------------------------------------------------------------------------------

// The next type down the ladder for rows of n_cols, or the same type.
static enum dtype smaller_type(enum dtype type, int32_t n_cols) {
    static const enum dtype by_256[] = {DTYPE_Q8_0, DTYPE_Q6_K, DTYPE_Q5_K,
                                        DTYPE_Q4_K, DTYPE_Q3_K, DTYPE_Q2_K};
    static const enum dtype by_32[] = {DTYPE_Q8_0, DTYPE_Q5_1, DTYPE_Q5_0, DTYPE_Q4_1, DTYPE_Q4_0};
    enum { ELEMENTS = 256 }; // a multiple of every block of the types on a ladder
    const uint64_t now = dtype_bytes(type, ELEMENTS);
    if (n_cols % 32) return type;
    const bool wide = n_cols % ELEMENTS == 0;
    const enum dtype *ladder = wide ? by_256 : by_32;
    const size_t count = wide ? sizeof by_256 / sizeof *by_256 : sizeof by_32 / sizeof *by_32;
    for (size_t i = 0; i < count; i++)
        if (dtype_bytes(ladder[i], ELEMENTS) < now) return ladder[i];
    return type;
}

bool shape_smaller_quant(const struct shape *shape, struct shape *out) {
    bool any = false;
    if (out != shape) *out = *shape;
    for (int u = 0; u < out->n_units; u++) {
        struct unit *unit = &out->units[u];
        for (int i = 0; i < unit->n_tensors; i++) {
            struct unit_tensor *t = &unit->tensors[i];
            if (t->use == USE_VECTOR || t->n_rows == 1 || tensor_role_is_f32(t->role)) continue;
            const enum dtype type = smaller_type(t->type, t->n_cols);
            if (type == t->type) continue;
            any = true;
            t->type = type;
            t->size_bytes = dtype_bytes(type, (uint64_t)t->n_cols) * (uint64_t)t->n_rows *
                            (uint64_t)t->n_matrices;
        }
    }
    return any;
}

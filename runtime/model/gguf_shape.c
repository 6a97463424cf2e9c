/* gguf_shape.c: see gguf_shape.h. Sources: the keys and tensor names of the GGUF format of ggml. */
#include "runtime/model/gguf_shape.h"

#include "base/mem.h"
#include "base/number.h"
#include "runtime/model/model_read.h"
#include "runtime/model/per_layer.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

enum { MAX_INNER = 1 << 20, MAX_STATE = 1 << 14, MAX_GROUPS = 1 << 10, MAX_KERNEL = 64 };

struct layer {
    int32_t n_heads, n_kv_heads, head_dim_k, head_dim_v, window;
    bool has_unit[UNIT_KINDS], has_role[ROLES];
    int16_t unit_of[UNIT_KINDS];
};

struct reader {
    const struct gguf *g;
    struct shape *out;
    struct err *e;
    int32_t n_layers;     // that a pass runs
    int32_t n_blocks;     // with the blocks for drafting tokens, which come last
    int32_t n_own_caches; // layers behind so many read the cache of an earlier one
    int32_t kv_rank;      // width of latent keys and values
    int32_t n_experts, n_experts_used;
    uint64_t state_bytes, conv_bytes; // of a layer
    int32_t values[MAX_LAYERS];       // of the key that was read last
    struct layer layers[MAX_LAYERS];
};

// ---- Keys ---------------------------------------------------------------------------------------

struct key {
    char text[128];
};

static struct key key_of(const struct reader *r, const char *name) {
    struct key key;
    snprintf(key.text, sizeof key.text, "%s.%s", r->out->architecture, name);
    return key;
}

static enum status wrong_key(const struct reader *r, const char *name, const char *what) {
    return err_set(r->e, ERR_FORMAT, "key %s %s", key_of(r, name).text, what);
}

// Reads an integer. A missing key leaves *out unchanged; if *out is below low, the key is required.
static enum status read_int(struct reader *r, const char *name, int32_t low, int32_t high,
                            int32_t *out) {
    const struct key key = key_of(r, name);
    if (!gguf_find(r->g, key.text)) {
        if (*out >= low) return OK;
        wrong_key(r, name, "is missing");
        return err_fix(r->e, "fetch a complete conversion of the model");
    }
    uint64_t value = 0;
    if (gguf_read_u64(r->g, key.text, (uint64_t)low, (uint64_t)high, &value, r->e))
        return r->e->status;
    *out = (int32_t)value;
    return OK;
}

static struct layer_numbers layers_of(const struct reader *r) {
    return (struct layer_numbers){r->g, r->out->architecture, r->n_layers};
}

// Reads one number for all layers, or a list with one for each, into r->values; other if the key is
// missing.
static enum status read_each(struct reader *r, const char *name, int32_t high, int32_t other) {
    const struct layer_numbers layers = layers_of(r);
    return per_layer_read(&layers, name, high, other, r->values, r->e);
}

static enum status read_top(struct reader *r) {
    struct shape *s = r->out;
    struct gguf_text architecture = {0}, name = {"unnamed", 7};
    if (gguf_read_text(r->g, "general.architecture", &architecture, r->e) ||
        gguf_read_text(r->g, "general.name", &name, r->e))
        return r->e->status;
    if (!architecture.length) {
        err_set(r->e, ERR_FORMAT, "key general.architecture is missing");
        return err_fix(r->e, "this file holds no model; `tandem inspect` shows what it holds");
    }
    if (!name.length) name = (struct gguf_text){"unnamed", 7};
    shape_set_text(s->architecture, sizeof s->architecture, architecture.bytes,
                   architecture.length);
    shape_set_text(s->name, sizeof s->name, name.bytes, name.length);
    int32_t n_drafting = 0, n_sharing = 0;
    if (read_int(r, "block_count", 1, MAX_LAYERS, &r->n_blocks) ||
        read_int(r, "nextn_predict_layers", 0, r->n_blocks - 1, &n_drafting) ||
        read_int(r, "embedding_length", 1, SHAPE_WIDTH, &s->n_embd) ||
        read_int(r, "context_length", 1, SHAPE_CONTEXT, &s->n_ctx_train) ||
        read_int(r, "expert_count", 0, SHAPE_EXPERTS, &r->n_experts) ||
        read_int(r, "expert_used_count", r->n_experts > 0, r->n_experts, &r->n_experts_used))
        return r->e->status;
    s->n_layers = r->n_layers = r->n_blocks - n_drafting;
    if (read_int(r, "attention.shared_kv_layers", 0, r->n_layers - 1, &n_sharing))
        return r->e->status;
    r->n_own_caches = r->n_layers - n_sharing;
    return OK;
}

static enum status read_heads(struct reader *r) {
    int32_t most = 0, dim_k, dim_v;
    if (read_each(r, "attention.head_count", SHAPE_HEADS, 0)) return r->e->status;
    for (int32_t l = 0; l < r->n_layers; l++) {
        r->layers[l].n_heads = r->values[l];
        if (r->values[l] > most) most = r->values[l];
    }
    if (read_each(r, "attention.head_count_kv", SHAPE_HEADS, most)) return r->e->status;
    dim_k = dim_v = most ? r->out->n_embd / most : 0;
    if (read_int(r, "attention.key_length", 0, SHAPE_HEAD_DIM, &dim_k)) return r->e->status;
    dim_v = dim_k;
    if (read_int(r, "attention.value_length", 0, SHAPE_HEAD_DIM, &dim_v)) return r->e->status;
    for (int32_t l = 0; l < r->n_layers; l++) {
        struct layer *layer = &r->layers[l];
        layer->n_kv_heads = r->values[l] < layer->n_heads ? r->values[l] : layer->n_heads;
        layer->head_dim_k = dim_k;
        layer->head_dim_v = dim_v;
    }
    return OK;
}

// Layers with a window may have other heads.
static enum status read_windows(struct reader *r) {
    const struct layer_numbers layers = layers_of(r);
    int32_t dim_k = 0, dim_v = 0;
    if (read_int(r, "attention.key_length_swa", 0, SHAPE_HEAD_DIM, &dim_k) ||
        read_int(r, "attention.value_length_swa", 0, SHAPE_HEAD_DIM, &dim_v) ||
        per_layer_windows(&layers, r->values, r->e))
        return r->e->status;
    for (int32_t l = 0; l < r->n_layers; l++) {
        struct layer *layer = &r->layers[l];
        layer->window = r->values[l];
        if (layer->window && dim_k) layer->head_dim_k = dim_k;
        if (layer->window && dim_v) layer->head_dim_v = dim_v;
    }
    return OK;
}

// True if some layer of the file has a tensor of that role.
static bool any_has(const struct reader *r, enum tensor_role role) {
    for (int32_t l = 0; l < r->n_layers; l++)
        if (r->layers[l].has_role[role]) return true;
    return false;
}

// Layers that have attention beside a state.
static int32_t count_both(const struct reader *r) {
    int32_t n = 0;
    for (int32_t l = 0; l < r->n_layers; l++) {
        const bool *has = r->layers[l].has_role;
        n += (has[ROLE_SSM_A] || has[ROLE_SHORTCONV_IN]) && has[ROLE_ATTN_K];
    }
    return n;
}

// Reads the sizes of the states of Mamba and delta nets: a state matrix for each head and the last
// inputs of a convolution.
static enum status read_matrices(struct reader *r, struct recurrent_shape *out) {
    int32_t inner = 0, state = 0, groups = 0, kernel = 0, rank = 0;
    const bool joined = any_has(r, ROLE_SSM_BETA_ALPHA);
    if (read_int(r, "ssm.inner_size", 1, MAX_INNER, &inner) ||
        read_int(r, "ssm.state_size", 1, MAX_STATE, &state) ||
        read_int(r, "ssm.group_count", 0, MAX_GROUPS, &groups) ||
        read_int(r, "ssm.time_step_rank", 0, MAX_INNER, &rank) ||
        read_int(r, "ssm.conv_kernel", 1, MAX_KERNEL, &kernel))
        return r->e->status;
    const int64_t channels = inner + 2 * (int64_t)groups * state;
    r->state_bytes = 4 * (uint64_t)((int64_t)inner * state + (kernel - 1) * channels);
    *out = (struct recurrent_shape){
        .n_key_heads = groups, .n_taps = kernel, .joins_gates = joined, .n_heads = inner / state};
    if (joined || any_has(r, ROLE_SSM_ALPHA)) {
        out->kind = RECURRENCE_DELTA;
        out->head_dim = state;
    } else if (any_has(r, ROLE_SSM_IN) && any_has(r, ROLE_SSM_D) && rank > 0) {
        out->kind = RECURRENCE_MAMBA;
        out->n_heads = rank;
        out->head_dim = inner / rank;
        out->n_state = state;
    }
    const bool whole = out->n_heads > 0 && inner % out->n_heads == 0 && groups > 0 &&
                       out->n_heads % groups == 0 && kernel > 1;
    if (!whole) out->kind = RECURRENCE_NONE;
    return OK;
}

// Reads the sizes of states. Layers of one kind that have a state in place of attention are known
// by them.
static enum status read_states(struct reader *r) {
    const bool any_state = any_has(r, ROLE_SSM_A), any_conv = any_has(r, ROLE_SHORTCONV_IN);
    struct recurrent_shape state = {0};
    int32_t kernel = 0;
    if (any_state && read_matrices(r, &state)) return r->e->status;
    if (any_conv && read_int(r, "shortconv.l_cache", 1, MAX_KERNEL, &kernel)) return r->e->status;
    if (any_conv) r->conv_bytes = 4 * (uint64_t)(kernel - 1) * (uint64_t)r->out->n_embd;
    if (any_conv && kernel > 1)
        state = (struct recurrent_shape){
            .kind = RECURRENCE_CONV, .n_taps = kernel, .n_channels = r->out->n_embd};
    const int32_t n_both = count_both(r);
    state.beside = state.kind == RECURRENCE_MAMBA && n_both == r->n_layers;
    if (state.kind && any_state != any_conv && (n_both == 0 || state.beside))
        r->out->recurrent = state;
    return OK;
}

// ---- Names --------------------------------------------------------------------------------------

// Finds the unit of a tensor that the list of roles lacks by the beginning of its name; the first
// match counts.
struct beginning {
    const char *name;
    enum tensor_owner owner;
};
static const struct beginning IN_LAYERS[] = {
    {"attn_", OWNER_ATTENTION},      {"ssm_", OWNER_ATTENTION},
    {"shortconv.", OWNER_ATTENTION}, {"post_attention_norm", OWNER_POST},
    {"exp_probs_b", OWNER_EXPERTS},  {"ffn_gate_inp_shexp", OWNER_FFN},
    {"ffn_gate_inp", OWNER_EXPERTS}, {"ffn_norm", OWNER_AFTER},
    {"ffn_post_norm", OWNER_AFTER},  {"ffn_", OWNER_FFN},
    {"post_ffw_norm", OWNER_AFTER},  {"pre_ffw_norm", OWNER_AFTER},
    {"post_norm", OWNER_AFTER},      {"inp_gate", OWNER_AFTER},
    {"proj.", OWNER_AFTER},          {"layer_out", OWNER_AFTER},
};
static const struct beginning OUTSIDE[] = {
    {"token_embd", OWNER_EMBED},    {"per_layer_", OWNER_EMBED}, {"token_types", OWNER_EMBED},
    {"position_embd", OWNER_EMBED}, {"output", OWNER_HEAD},      {"rope_f", OWNER_NOWHERE},
};

static bool begins(const char *text, const char *with) {
    return strncmp(text, with, strlen(with)) == 0;
}

// A tensor with the parts of its name.
struct named {
    const struct gguf_tensor *tensor;
    char text[64];    // its name, without control bytes
    int32_t layer;    // -1: of no layer
    const char *rest; // of the name, behind "blk.N."
    enum tensor_role role;
    enum tensor_owner owner;
    bool drafts; // in a block for drafting tokens: not counted
};

static enum status wrong_tensor(const struct reader *r, const struct named *n, enum status status,
                                const char *what) {
    return err_set(r->e, status, "tensor %s %s", n->text, what);
}

// Early files have one tensor for each expert: "ffn_up.7.weight".
static bool is_single_expert(const char *rest) {
    static const char *const names[] = {"ffn_gate.", "ffn_up.", "ffn_down."};
    for (int i = 0; i < 3; i++) {
        const char *digit = rest + strlen(names[i]);
        if (begins(rest, names[i]) && *digit >= '0' && *digit <= '9') return true;
    }
    return false;
}

static bool is_of_layer(enum tensor_owner owner) {
    return owner != OWNER_EMBED && owner != OWNER_HEAD && owner != OWNER_NOWHERE;
}

// Sets the role and the owner of a tensor; false if no unit knows the name.
static bool find_role(struct named *n) {
    const struct beginning *list = n->layer < 0 ? OUTSIDE : IN_LAYERS;
    const size_t size_bytes = n->layer < 0 ? sizeof OUTSIDE : sizeof IN_LAYERS;
    n->role = tensor_role_find(n->rest);
    n->owner = tensor_role_info(n->role)->owner;
    if (n->role != ROLE_OTHER && is_of_layer(n->owner) == (n->layer >= 0)) return true;
    n->role = ROLE_OTHER;
    n->owner = OWNER_EXPERTS;
    if (n->layer >= 0 && begins(n->rest, "ffn_") && strstr(n->rest, "_exps")) return true;
    for (size_t i = 0; i < size_bytes / sizeof *list; i++) {
        n->owner = list[i].owner;
        if (begins(n->rest, list[i].name)) return true;
    }
    return false;
}

static enum status refuse_name(const struct reader *r, const struct named *n) {
    wrong_tensor(r, n, ERR_UNSUPPORTED, "has a name that belongs to no part of a model known here");
    err_expected(r->e, "names such as blk.0.attn_q.weight, blk.0.ffn_up.weight, output.weight");
    return err_fix(r->e, "plan it from a file of configs/models instead (--shape)");
}

static enum status split_name(const struct reader *r, const struct gguf_tensor *tensor,
                              struct named *n) {
    *n = (struct named){.tensor = tensor, .layer = -1};
    shape_set_text(n->text, sizeof n->text, tensor->name.bytes, tensor->name.length);
    n->rest = n->text;
    if (!begins(n->text, "blk.")) return find_role(n) ? OK : refuse_name(r, n);
    const char *digit = n->text + 4;
    int32_t layer = 0;
    for (; *digit >= '0' && *digit <= '9' && layer <= MAX_LAYERS; digit++)
        layer = 10 * layer + (*digit - '0');
    if (digit == n->text + 4 || *digit != '.') return refuse_name(r, n);
    if (layer >= r->n_blocks) {
        wrong_tensor(r, n, ERR_FORMAT, "is of a layer that the model does not have");
        return err_expected(r->e, "a layer below %d", r->n_blocks);
    }
    n->layer = layer;
    n->rest = digit + 1;
    n->drafts = layer >= r->n_layers;
    if (n->drafts) return OK;
    if (is_single_expert(n->rest)) {
        wrong_tensor(r, n, ERR_UNSUPPORTED, "holds a single expert");
        return err_fix(r->e, "fetch a conversion that is newer than 2024-04, with ffn_up_exps");
    }
    return find_role(n) ? OK : refuse_name(r, n);
}

// Notes that the layer has such a tensor.
static void note(struct reader *r, const struct named *n) {
    if (n->layer < 0 || n->drafts) return;
    struct layer *layer = &r->layers[n->layer];
    if (n->owner < OWNER_AFTER) layer->has_unit[n->owner] = true;
    layer->has_role[n->role] = true;
}

// ---- Units --------------------------------------------------------------------------------------

static struct unit *start(struct reader *r, enum unit_kind kind, int32_t layer) {
    struct unit *unit = &r->out->units[r->out->n_units++];
    *unit = (struct unit){.kind = kind, .layer = layer};
    return unit;
}

// True if a layer has attention; one that reads the cache of another may have queries alone.
static bool attends(const struct reader *r, int32_t layer) {
    const bool *has = r->layers[layer].has_role;
    const bool recurrent = has[ROLE_SSM_A] || has[ROLE_SHORTCONV_IN];
    if (has[ROLE_ATTN_K] || has[ROLE_ATTN_KV_A]) return true;
    return (!recurrent && has[ROLE_ATTN_QKV]) || (has[ROLE_ATTN_Q] && layer >= r->n_own_caches);
}

static void set_attention(const struct reader *r, int32_t l, struct unit *unit) {
    const struct layer *from = &r->layers[l];
    const bool *has = from->has_role;
    if (has[ROLE_SSM_A]) unit->state_bytes += r->state_bytes;
    if (has[ROLE_SHORTCONV_IN]) unit->state_bytes += r->conv_bytes;
    if (!attends(r, l)) return;
    unit->n_heads = from->n_heads;
    unit->n_kv_heads = from->n_kv_heads;
    unit->head_dim_k = from->head_dim_k;
    unit->head_dim_v = from->head_dim_v;
    unit->window = from->window;
    if (!has[ROLE_ATTN_KV_A] || !r->kv_rank) return;
    // One row of latent values and rotated keys serves all heads; the values are a part of that
    // row.
    unit->n_kv_heads = unit->n_heads > 0;
    unit->head_dim_k = r->kv_rank + r->out->n_rot;
    unit->head_dim_v = 0;
}

static enum status start_layer(struct reader *r, int32_t l) {
    struct layer *layer = &r->layers[l];
    const bool *has = layer->has_unit;
    if (!has[UNIT_ATTENTION] && !has[UNIT_FFN] && !has[UNIT_EXPERTS]) {
        err_set(r->e, ERR_UNSUPPORTED, "layer %d has no matrices", l);
        return err_expected(r->e, "attention, a recurrent block or an FFN in every layer");
    }
    const bool joint = has[UNIT_FFN] && has[UNIT_EXPERTS] && per_layer_joint_norm(r->g, l);
    for (int kind = UNIT_ATTENTION; kind <= UNIT_EXPERTS; kind++) {
        if (!has[kind]) continue;
        layer->unit_of[kind] = (int16_t)r->out->n_units;
        struct unit *unit = start(r, (enum unit_kind)kind, l);
        if (kind == UNIT_ATTENTION) set_attention(r, l, unit);
        unit->joint_norm = joint && kind != UNIT_ATTENTION;
        if (kind != UNIT_EXPERTS) continue;
        unit->n_experts = r->n_experts;
        unit->n_experts_used = r->n_experts_used;
    }
    return OK;
}

// Finds the unit of a tensor; NULL: none. Units must have been started. If a layer has no other
// norm before its FFN, the norm after attention is that norm; if it has no attention, the norm
// before attention is.
static struct unit *find_unit(const struct reader *r, struct named *n) {
    struct unit *units = r->out->units;
    if (n->drafts || n->owner == OWNER_NOWHERE) return NULL;
    if (n->owner == OWNER_EMBED) return &units[0];
    if (n->owner == OWNER_HEAD) return &units[r->out->n_units - 1];
    const struct layer *layer = &r->layers[n->layer];
    if (n->owner == OWNER_POST) {
        const bool other = layer->has_role[ROLE_FFN_NORM] || layer->has_role[ROLE_FFN_POST_NORM];
        n->owner = other ? OWNER_ATTENTION : OWNER_AFTER;
        if (!other && n->role == ROLE_ATTN_POST_NORM) n->role = ROLE_FFN_NORM;
    }
    if (n->owner == OWNER_FIRST) {
        n->owner = layer->has_unit[UNIT_ATTENTION] ? OWNER_ATTENTION : OWNER_AFTER;
        if (n->owner == OWNER_AFTER) n->role = ROLE_FFN_NORM;
    }
    if (n->owner == OWNER_LAST)
        n->owner = layer->has_unit[UNIT_EXPERTS] ? OWNER_EXPERTS : OWNER_FFN;
    if (n->owner == OWNER_AFTER) n->owner = layer->has_unit[UNIT_FFN] ? OWNER_FFN : OWNER_EXPERTS;
    return &units[layer->unit_of[n->owner]];
}

// Guesses how a tensor that the list of roles lacks is read. Norms, convolutions and similar
// tensors may have two dimensions.
static enum tensor_use guess_use(const struct named *n) {
    static const char *const vectors[] = {"norm", "conv", "scale"};
    const struct gguf_tensor *t = n->tensor;
    if (n->owner == OWNER_EXPERTS && strstr(n->rest, "_exps") && t->n_dims > 1) return USE_EXPERTS;
    if (t->n_dims < 2) return USE_VECTOR;
    for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++)
        if (t->type == DTYPE_F32 && strstr(n->rest, vectors[i])) return USE_VECTOR;
    return n->owner == OWNER_EMBED ? USE_ROWS : USE_MATRIX;
}

static enum status convert(const struct reader *r, const struct named *n, struct unit_tensor *out) {
    const struct gguf_tensor *t = n->tensor;
    const uint64_t elements = t->ne[0] * t->ne[1] * t->ne[2] * t->ne[3];
    uint64_t n_cols = t->ne[0], n_rows = t->ne[1] * t->ne[2] * t->ne[3], n_matrices = 1;
    *out = (struct unit_tensor){.role = n->role, .type = t->type, .size_bytes = t->size_bytes};
    out->use = n->role == ROLE_OTHER ? guess_use(n) : tensor_use_of(n->role);
    memcpy(out->name, n->text, sizeof out->name);
    out->name[sizeof out->name - 1] = 0;
    if (out->use == USE_EXPERTS) {
        n_rows = t->n_dims > 2 ? t->ne[1] : 1;
        n_matrices = elements / n_cols / n_rows;
    } else if (out->use == USE_VECTOR) {
        n_cols = elements;
        n_rows = 1;
    }
    if (n_cols > INT32_MAX || n_rows > INT32_MAX || n_matrices > INT32_MAX)
        return wrong_tensor(r, n, ERR_FORMAT, "is larger than any of a model");
    out->n_cols = (int32_t)n_cols;
    out->n_rows = (int32_t)n_rows;
    out->n_matrices = (int32_t)n_matrices;
    return OK;
}

// Order of a role in its unit: tensors that the list of roles lacks come last, in the order of the
// file.
static int rank_of(enum tensor_role role) { return role == ROLE_OTHER ? ROLES : (int)role; }

// Puts a tensor into a unit, in the order of the roles.
static enum status put_tensor(struct reader *r, const struct named *n, struct unit *unit) {
    struct unit_tensor tensor;
    if (convert(r, n, &tensor)) return r->e->status;
    if (unit->n_tensors == MAX_UNIT_TENSORS) {
        wrong_tensor(r, n, ERR_UNSUPPORTED, "is one too many in its part of the layer");
        return err_expected(r->e, "at most %d", MAX_UNIT_TENSORS);
    }
    int at = unit->n_tensors++;
    for (; at > 0 && rank_of(unit->tensors[at - 1].role) > rank_of(n->role); at--)
        unit->tensors[at] = unit->tensors[at - 1];
    unit->tensors[at] = tensor;
    return OK;
}

// Puts a tensor into its unit. Experts that have a norm with a shared one, which is the unit before
// theirs, make its input again.
static enum status add_tensor(struct reader *r, struct named *n) {
    struct unit *unit = find_unit(r, n);
    if (!unit) return OK;
    if (n->role == ROLE_FFN_NORM && unit->joint_norm && put_tensor(r, n, unit + 1))
        return r->e->status;
    return put_tensor(r, n, unit);
}

// Lets the head multiply with the embedding's table if it has none of its own.
static enum status tie(struct reader *r) {
    struct shape *s = r->out;
    const struct unit *embed = &s->units[0];
    struct unit *head = &s->units[s->n_units - 1];
    if (!gguf_find_tensor(r->g, "token_embd.weight")) {
        err_set(r->e, ERR_FORMAT, "tensor token_embd.weight is missing");
        return err_fix(r->e, "fetch the file again, or a complete conversion of the model");
    }
    s->n_vocab = embed->tensors[0].n_rows;
    if (gguf_find_tensor(r->g, "output.weight")) return OK;
    if (head->n_tensors == MAX_UNIT_TENSORS)
        return err_set(r->e, ERR_UNSUPPORTED, "the head has too many tensors");
    memmove(&head->tensors[1], &head->tensors[0], (size_t)head->n_tensors * sizeof *head->tensors);
    head->n_tensors++;
    head->tensors[0] = embed->tensors[0];
    head->tensors[0].role = ROLE_OUTPUT;
    head->tensors[0].use = USE_MATRIX;
    head->shares_embed = true;
    return OK;
}

// ---- Numbers that keys and tensors both tell ----------------------------------------------------

static enum status check_rows(const struct reader *r, const struct unit *unit,
                              enum tensor_role role, int64_t n_rows) {
    const struct unit_tensor *t = unit_find(unit, role);
    if (!t || t->n_rows == n_rows) return OK;
    err_set(r->e, ERR_FORMAT, "tensor %s has rows that its keys do not tell of", t->name);
    err_expected(r->e, "%lld", (long long)n_rows);
    return err_actual(r->e, "%d", t->n_rows);
}

static enum status check_attention(const struct reader *r, const struct unit *unit) {
    const int64_t k = (int64_t)unit->n_kv_heads * unit->head_dim_k,
                  v = (int64_t)unit->n_kv_heads * unit->head_dim_v;
    if (unit_find(unit, ROLE_ATTN_KV_A)) return OK;
    if (unit_find(unit, ROLE_ATTN_K)) {
        return check_rows(r, unit, ROLE_ATTN_K, k) ? r->e->status
                                                   : check_rows(r, unit, ROLE_ATTN_V, v);
    }
    if (unit->n_heads == 0) return OK;
    return check_rows(r, unit, ROLE_ATTN_QKV, (int64_t)unit->n_heads * unit->head_dim_k + k + v);
}

// Widens the shape's numbers, which are the largest of any layer, by those of a unit.
static void widen(struct shape *s, const struct unit *unit) {
    s->has_other_angles = s->has_other_angles || unit->window;
    s->has_gated_q = s->has_gated_q || unit->gated;
    s->has_gates_apart = s->has_gates_apart || unit->gated_apart;
    s->has_joint_norms = s->has_joint_norms || unit->joint_norm;
    s->n_heads = max_i32(s->n_heads, unit->n_heads);
    s->n_kv_heads = max_i32(s->n_kv_heads, unit->n_kv_heads);
    s->head_dim = max_i32(s->head_dim, max_i32(unit->head_dim_k, unit->head_dim_v));
    s->n_experts = max_i32(s->n_experts, unit->n_experts);
    s->n_experts_used = max_i32(s->n_experts_used, unit->n_experts_used);
    s->n_ff_expert = max_i32(s->n_ff_expert, unit->n_ff_expert);
    const struct unit_tensor *down = unit_find(unit, ROLE_FFN_DOWN);
    if (down) s->n_ff = max_i32(s->n_ff, down->n_cols);
    s->has_shared_gates = s->has_shared_gates || unit_find(unit, ROLE_SHARED_GATE);
}

// Lets the attention of one of the last layers read the cache of the last one of its kind that has
// one.
static void share_cache(const struct reader *r, int32_t unit) {
    struct unit *units = r->out->units, *u = &units[unit];
    if (u->kind != UNIT_ATTENTION || u->layer < r->n_own_caches) return;
    u->n_kv_heads = 0;
    for (int32_t i = unit - 1; i > 0 && !u->cache_unit; i--) {
        struct unit *other = &units[i];
        if (other->n_kv_heads == 0 || other->window != u->window) continue;
        if (other->head_dim_k != u->head_dim_k || other->head_dim_v != u->head_dim_v) continue;
        if (other->n_heads != u->n_heads) continue;
        u->cache_unit = i;
        other->lends_cache = true;
    }
}

static enum status finish(struct reader *r) {
    struct shape *s = r->out;
    s->has_other_angles = gguf_find(r->g, key_of(r, "attention.temperature_scale").text);
    for (int u = 1; u + 1 < s->n_units; u++) {
        struct unit *unit = &s->units[u];
        if (unit->kind == UNIT_ATTENTION && check_attention(r, unit)) return r->e->status;
        const struct unit_tensor *q = unit_find(unit, ROLE_ATTN_Q);
        unit->gated =
            q && unit->n_heads > 0 && q->n_rows == 2 * (int64_t)unit->n_heads * unit->head_dim_k;
        const struct unit_tensor *gate = unit_find(unit, ROLE_ATTN_GATE);
        const bool by_head = gate && gate->n_rows == unit->n_heads;
        s->gates_heads = s->gates_heads || (by_head && unit->state_bytes == 0);
        unit->gated_apart = gate && unit->state_bytes == 0 &&
                            (by_head || gate->n_rows == (int64_t)unit->n_heads * unit->head_dim_v);
        share_cache(r, u);
        const struct unit_tensor *down = unit_find(unit, ROLE_EXPERT_DOWN);
        if (unit->kind == UNIT_EXPERTS && down) unit->n_ff_expert = down->n_cols;
        widen(s, unit);
    }
    // Latent keys were derived from n_rot; all other keys limit it.
    if (r->kv_rank) return OK;
    s->n_rot = s->head_dim;
    if (read_int(r, "rope.dimension_count", 0, s->head_dim, &s->n_rot)) return r->e->status;
    s->n_local_rot = s->n_rot;
    return OK;
}

// True if every layer has attention to latent vectors, with the matrices of keys and values apart.
static bool is_latent(const struct reader *r) {
    for (int32_t l = 0; l < r->n_layers; l++) {
        const bool *has = r->layers[l].has_role;
        if (!has[ROLE_ATTN_KV_A] || !has[ROLE_ATTN_K_B] || !has[ROLE_ATTN_V_B]) return false;
    }
    return r->kv_rank > 0;
}

// Reads the sizes of latent attention, of files that tell them.
static enum status read_latent(struct reader *r) {
    struct latent_shape l = {.rank = r->kv_rank};
    if (!is_latent(r)) return OK;
    if (read_int(r, "attention.key_length_mla", 0, SHAPE_HEAD_DIM, &l.key_dim) ||
        read_int(r, "attention.value_length_mla", 0, SHAPE_HEAD_DIM, &l.value_dim))
        return r->e->status;
    if (r->layers[0].has_role[ROLE_ATTN_Q_A] &&
        read_int(r, "attention.q_lora_rank", 1, SHAPE_WIDTH, &l.query_rank))
        return r->e->status;
    if (l.key_dim > r->out->n_rot && l.value_dim > 0) r->out->latent = l;
    return OK;
}

// ---- The whole ----------------------------------------------------------------------------------

static enum status read_names(struct reader *r) {
    struct named n;
    for (uint32_t i = 0; i < r->g->n_tensors; i++) {
        if (split_name(r, &r->g->tensors[i], &n)) return r->e->status;
        note(r, &n);
    }
    if (read_states(r)) return r->e->status;
    start(r, UNIT_EMBED, -1);
    for (int32_t l = 0; l < r->n_layers; l++)
        if (start_layer(r, l)) return r->e->status;
    start(r, UNIT_HEAD, -1);
    for (uint32_t i = 0; i < r->g->n_tensors; i++) {
        if (split_name(r, &r->g->tensors[i], &n) || add_tensor(r, &n)) return r->e->status;
    }
    return tie(r);
}

static enum status read_all(struct reader *r) {
    if (read_top(r) || read_heads(r) || read_windows(r) ||
        read_int(r, "attention.kv_lora_rank", 0, SHAPE_HEAD_DIM, &r->kv_rank))
        return r->e->status;
    if (r->kv_rank && read_int(r, "rope.dimension_count", 1, SHAPE_HEAD_DIM, &r->out->n_rot))
        return r->e->status;
    if (read_names(r) || read_latent(r) || finish(r)) return r->e->status;
    return shape_check(r->out, r->e);
}

enum status gguf_shape_by_names(struct shape *out, const struct gguf *g, struct err *e) {
    ASSERT(out);
    ASSERT(g);
    *e = (struct err){.status = OK};
    memset(out, 0, offsetof(struct shape, units)); // start() clears each unit
    struct reader *r = mem_alloc(1, sizeof *r);
    if (!r) return err_memory(e, sizeof *r, "reading the model's shape");
    r->g = g;
    r->out = out;
    r->e = e;
    read_all(r);
    mem_free(r);
    return e->status;
}

enum status gguf_shape(struct shape *out, const struct gguf *g, struct err *e) {
    ASSERT(out);
    ASSERT(g);
    struct model *model = mem_alloc(1, sizeof *model);
    if (!model) return err_memory(e, sizeof *model, "reading the model");
    enum status status = model_read(model, out, g, e);
    if (status == OK) status = shape_check(out, e);
    mem_free(model);
    if (status != ERR_UNSUPPORTED) return status;
    char why_not[sizeof out->why_not];
    snprintf(why_not, sizeof why_not, "%s%s%s", e->what, e->actual[0] ? ": " : "", e->actual);
    if (gguf_shape_by_names(out, g, e)) return e->status;
    memcpy(out->why_not, why_not, sizeof why_not);
    return OK;
}

enum status gguf_shape_of_file(struct shape *out, const char *path, struct err *e) {
    struct gguf gguf;
    if (gguf_open(&gguf, path, e)) return e->status; // the error names the wrong part
    const enum status status = gguf_shape(out, &gguf, e) ? err_context(e, "%s", path) : OK;
    gguf_close(&gguf);
    return status;
}

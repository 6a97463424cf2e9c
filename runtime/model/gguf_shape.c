/* gguf_shape.c: see gguf_shape.h. Sources: the keys and tensor names of the GGUF format of ggml. */
#include "runtime/model/gguf_shape.h"

#include "base/mem.h"
#include "runtime/model/model.h"

#include <stdio.h>
#include <string.h>

enum { MAX_INNER = 1 << 20, MAX_STATE = 1 << 14, MAX_GROUPS = 1 << 10, MAX_KERNEL = 64 };

// Where a tensor belongs. The first are the units; the rest depends on what else the layer has.
enum place {
    PLACE_ATTENTION = UNIT_ATTENTION,
    PLACE_FFN = UNIT_FFN,
    PLACE_EXPERTS = UNIT_EXPERTS,
    PLACE_AFTER = UNIT_KINDS, // with the dense FFN, or with the experts if there is none
    PLACE_POST,               // with attention if another norm is before the FFN, else PLACE_AFTER
    PLACE_SKIP,               // not counted
    PLACE_NOWHERE,
};

struct layer {
    int32_t n_heads, n_kv_heads, head_dim_k, head_dim_v, window;
    bool has_place[UNIT_KINDS];
    bool has_ffn_norm; // or one behind the FFN: then post_attention_norm belongs to attention
    bool has_keys, has_latent, has_fused, has_state, has_conv; // attn_k, attn_kv_a, attn_qkv, ...
    int16_t unit_of[UNIT_KINDS];
};

struct reader {
    const struct gguf *g;
    struct shape *out;
    struct err *e;
    int32_t n_layers; // that a pass runs
    int32_t n_blocks; // with those for drafting tokens ahead, which come last
    int32_t kv_rank;  // width of latent keys and values
    int32_t n_experts, n_experts_used;
    uint64_t state_bytes, conv_bytes; // of a layer
    int32_t values[MAX_LAYERS];       // of the key that was read last
    struct layer layers[MAX_LAYERS];
    uint8_t ranks[MAX_UNITS][MAX_UNIT_TENSORS];
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

// *out keeps what it had where the key is missing; if that is below low, the key must be there.
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

static bool is_list(const struct gguf_value *value) {
    switch (value->element) {
    case GGUF_STRING:
    case GGUF_ARRAY:
    case GGUF_F32:
    case GGUF_F64: return false;
    default: return value->type == GGUF_ARRAY;
    }
}

// One number for all layers or a list with one for each, into r->values; other where it is missing.
static enum status read_each(struct reader *r, const char *name, int32_t high, int32_t other) {
    const struct key key = key_of(r, name);
    const struct gguf_value *value = gguf_find(r->g, key.text);
    if (!value || !is_list(value)) {
        if (read_int(r, name, 0, high, &other)) return r->e->status;
        for (int32_t l = 0; l < r->n_layers; l++) r->values[l] = other;
        return OK;
    }
    if (value->count < (uint64_t)r->n_layers) {
        wrong_key(r, name, "has too few elements");
        err_expected(r->e, "one for each of %d layers", r->n_layers);
        return err_actual(r->e, "%llu", (unsigned long long)value->count);
    }
    for (int32_t l = 0; l < r->n_layers; l++) {
        const int64_t number = gguf_array_int(value, (uint64_t)l);
        if (number < 0 || number > high) {
            wrong_key(r, name, "is out of range");
            err_expected(r->e, "0 to %d", high);
            return err_actual(r->e, "%lld for layer %d", (long long)number, l);
        }
        r->values[l] = (int32_t)number;
    }
    return OK;
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
    int32_t n_drafting = 0;
    if (read_int(r, "block_count", 1, MAX_LAYERS, &r->n_blocks) ||
        read_int(r, "nextn_predict_layers", 0, r->n_blocks - 1, &n_drafting) ||
        read_int(r, "embedding_length", 1, SHAPE_WIDTH, &s->n_embd) ||
        read_int(r, "context_length", 1, SHAPE_CONTEXT, &s->n_ctx_train) ||
        read_int(r, "expert_count", 0, SHAPE_EXPERTS, &r->n_experts) ||
        read_int(r, "expert_used_count", r->n_experts > 0, r->n_experts, &r->n_experts_used))
        return r->e->status;
    s->n_layers = r->n_layers = r->n_blocks - n_drafting;
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

// Architectures whose sliding layers are not told by the file: all but the last of each period.
static const struct {
    const char *architecture;
    int32_t period, window;
} WINDOWS[] = {{"gemma2", 2, 4096}, {"gemma3", 6, 0},  {"gemma3n", 5, 0}, {"gpt-oss", 2, 0},
               {"cohere2", 4, 0},   {"exaone4", 4, 0}, {"olmo2", 4, 0}};

// Sets layers[].window to 1 where a layer slides.
static enum status read_pattern(struct reader *r, int32_t period) {
    static const char name[] = "attention.sliding_window_pattern";
    const struct gguf_value *value = gguf_find(r->g, key_of(r, name).text);
    const bool listed = value && is_list(value);
    if (listed ? read_each(r, name, 1, 0) : read_int(r, name, 0, MAX_LAYERS, &period))
        return r->e->status;
    for (int32_t l = 0; l < r->n_layers; l++) {
        const bool slides = period == 0 || l % period < period - 1;
        r->layers[l].window = listed ? r->values[l] : slides;
    }
    return OK;
}

static enum status read_windows(struct reader *r) {
    int32_t period = 1, window = 0, dim_k = 0, dim_v = 0;
    for (size_t i = 0; i < sizeof WINDOWS / sizeof *WINDOWS; i++) {
        if (strcmp(WINDOWS[i].architecture, r->out->architecture) != 0) continue;
        period = WINDOWS[i].period;
        window = WINDOWS[i].window;
    }
    if (read_pattern(r, period) ||
        read_int(r, "attention.key_length_swa", 0, SHAPE_HEAD_DIM, &dim_k) ||
        read_int(r, "attention.value_length_swa", 0, SHAPE_HEAD_DIM, &dim_v) ||
        read_each(r, "attention.sliding_window", SHAPE_CONTEXT, window))
        return r->e->status;
    for (int32_t l = 0; l < r->n_layers; l++) {
        struct layer *layer = &r->layers[l];
        if (layer->window && dim_k) layer->head_dim_k = dim_k;
        if (layer->window && dim_v) layer->head_dim_v = dim_v;
        layer->window = layer->window ? r->values[l] : 0;
    }
    return OK;
}

// A state matrix for each head and the last inputs of a convolution, as Mamba and delta nets have.
static enum status read_states(struct reader *r) {
    bool any_state = false, any_conv = false;
    for (int32_t l = 0; l < r->n_layers; l++) {
        any_state = any_state || r->layers[l].has_state;
        any_conv = any_conv || r->layers[l].has_conv;
    }
    int32_t inner = 0, state = 0, groups = 0, kernel = 0;
    if (any_state) {
        if (read_int(r, "ssm.inner_size", 1, MAX_INNER, &inner) ||
            read_int(r, "ssm.state_size", 1, MAX_STATE, &state) ||
            read_int(r, "ssm.group_count", 0, MAX_GROUPS, &groups) ||
            read_int(r, "ssm.conv_kernel", 1, MAX_KERNEL, &kernel))
            return r->e->status;
        const int64_t channels = inner + 2 * (int64_t)groups * state;
        r->state_bytes = 4 * (uint64_t)((int64_t)inner * state + (kernel - 1) * channels);
    }
    kernel = 0;
    if (any_conv && read_int(r, "shortconv.l_cache", 1, MAX_KERNEL, &kernel)) return r->e->status;
    if (any_conv) r->conv_bytes = 4 * (uint64_t)(kernel - 1) * (uint64_t)r->out->n_embd;
    return OK;
}

// ---- Names --------------------------------------------------------------------------------------

struct known {
    const char *name;
    enum place place;
};

// Tensors of a layer in the order that units list them. Others come behind them, in file order.
static const struct known KNOWN[] = {
    {"attn_norm.weight", PLACE_ATTENTION},
    {"attn_q.weight", PLACE_ATTENTION},
    {"attn_k.weight", PLACE_ATTENTION},
    {"attn_v.weight", PLACE_ATTENTION},
    {"attn_output.weight", PLACE_ATTENTION},
    {"attn_q.bias", PLACE_ATTENTION},
    {"attn_k.bias", PLACE_ATTENTION},
    {"attn_v.bias", PLACE_ATTENTION},
    {"attn_output.bias", PLACE_ATTENTION},
    {"attn_q_norm.weight", PLACE_ATTENTION},
    {"attn_k_norm.weight", PLACE_ATTENTION},
    {"attn_sinks.weight", PLACE_ATTENTION},
    {"attn_qkv.weight", PLACE_ATTENTION},
    {"attn_gate.weight", PLACE_ATTENTION},
    {"ssm_conv1d.weight", PLACE_ATTENTION},
    {"ssm_dt.bias", PLACE_ATTENTION},
    {"ssm_a", PLACE_ATTENTION},
    {"ssm_alpha.weight", PLACE_ATTENTION},
    {"ssm_beta.weight", PLACE_ATTENTION},
    {"ssm_norm.weight", PLACE_ATTENTION},
    {"ssm_out.weight", PLACE_ATTENTION},
    {"post_attention_norm.weight", PLACE_POST},
    {"ffn_norm.weight", PLACE_AFTER},
    {"ffn_gate_inp.weight", PLACE_EXPERTS},
    {"ffn_gate_inp.bias", PLACE_EXPERTS},
    {"ffn_gate.weight", PLACE_FFN},
    {"ffn_up.weight", PLACE_FFN},
    {"ffn_down.weight", PLACE_FFN},
    {"ffn_gate_shexp.weight", PLACE_FFN},
    {"ffn_up_shexp.weight", PLACE_FFN},
    {"ffn_down_shexp.weight", PLACE_FFN},
    {"ffn_gate_inp_shexp.weight", PLACE_FFN},
    {"ffn_gate_exps.weight", PLACE_EXPERTS},
    {"ffn_up_exps.weight", PLACE_EXPERTS},
    {"ffn_gate_up_exps.weight", PLACE_EXPERTS},
    {"ffn_down_exps.weight", PLACE_EXPERTS},
    {"ffn_gate_exps.bias", PLACE_EXPERTS},
    {"ffn_up_exps.bias", PLACE_EXPERTS},
    {"ffn_down_exps.bias", PLACE_EXPERTS},
    {"post_ffw_norm.weight", PLACE_AFTER},
};
enum { N_KNOWN = sizeof KNOWN / sizeof *KNOWN };

// What a name that is not known begins with: the first that fits.
static const struct known BEGINNINGS[] = {
    {"attn_", PLACE_ATTENTION},      {"ssm_", PLACE_ATTENTION},
    {"shortconv.", PLACE_ATTENTION}, {"post_attention_norm", PLACE_POST},
    {"exp_probs_b", PLACE_EXPERTS},  {"ffn_gate_inp_shexp", PLACE_FFN},
    {"ffn_gate_inp", PLACE_EXPERTS}, {"ffn_norm", PLACE_AFTER},
    {"ffn_post_norm", PLACE_AFTER},  {"ffn_", PLACE_FFN},
    {"post_ffw_norm", PLACE_AFTER},  {"pre_ffw_norm", PLACE_AFTER},
    {"post_norm", PLACE_AFTER},      {"inp_gate", PLACE_AFTER},
    {"proj.", PLACE_AFTER},          {"layer_out", PLACE_AFTER},
};
static const struct {
    const char *name;
    enum unit_kind kind;
    bool skip;
} GLOBALS[] = {{"token_embd", UNIT_EMBED, false},  {"per_layer_", UNIT_EMBED, false},
               {"token_types", UNIT_EMBED, false}, {"position_embd", UNIT_EMBED, false},
               {"output", UNIT_HEAD, false},       {"rope_freqs", UNIT_EMBED, true},
               {"rope_factors_", UNIT_EMBED, true}};

static bool begins(const char *text, const char *with) {
    return strncmp(text, with, strlen(with)) == 0;
}

// A tensor with its name taken apart.
struct named {
    const struct gguf_tensor *tensor;
    char text[64];    // its name, without control bytes
    int32_t layer;    // -1: of no layer
    const char *rest; // of the name, behind "blk.N."
    int rank;         // its place in KNOWN, or behind it
    enum place place; // of a layer's tensor
};

static enum status wrong_tensor(const struct reader *r, const struct named *n, enum status status,
                                const char *what) {
    return err_set(r->e, status, "tensor %s %s", n->text, what);
}

// Files of the first years had one tensor for each expert: "ffn_up.7.weight".
static bool is_single_expert(const char *rest) {
    static const char *const names[] = {"ffn_gate.", "ffn_up.", "ffn_down."};
    for (int i = 0; i < 3; i++) {
        const char *digit = rest + strlen(names[i]);
        if (begins(rest, names[i]) && *digit >= '0' && *digit <= '9') return true;
    }
    return false;
}

static enum place place_of(const char *rest, int *rank) {
    for (int i = 0; i < N_KNOWN; i++)
        if (strcmp(KNOWN[i].name, rest) == 0) return *rank = i, KNOWN[i].place;
    *rank = N_KNOWN;
    if (begins(rest, "ffn_") && strstr(rest, "_exps")) return PLACE_EXPERTS;
    for (size_t i = 0; i < sizeof BEGINNINGS / sizeof *BEGINNINGS; i++)
        if (begins(rest, BEGINNINGS[i].name)) return BEGINNINGS[i].place;
    return PLACE_NOWHERE;
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
    if (!begins(n->text, "blk.")) return OK;
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
    n->place = layer < r->n_layers ? place_of(n->rest, &n->rank) : PLACE_SKIP;
    if (is_single_expert(n->rest) && n->place != PLACE_SKIP) {
        wrong_tensor(r, n, ERR_UNSUPPORTED, "holds a single expert");
        return err_fix(r->e, "fetch a conversion that is newer than 2024-04, with ffn_up_exps");
    }
    return n->place == PLACE_NOWHERE ? refuse_name(r, n) : OK;
}

// Notes what a layer has.
static void note(struct reader *r, const struct named *n) {
    if (n->layer < 0 || n->place == PLACE_SKIP) return;
    struct layer *layer = &r->layers[n->layer];
    if (n->place < PLACE_AFTER) layer->has_place[n->place] = true;
    if (begins(n->rest, "ffn_norm") || begins(n->rest, "post_ffw_norm")) layer->has_ffn_norm = true;
    if (begins(n->rest, "attn_k.weight")) layer->has_keys = true;
    if (begins(n->rest, "attn_kv")) layer->has_latent = true;
    if (begins(n->rest, "attn_qkv.weight")) layer->has_fused = true;
    if (begins(n->rest, "ssm_")) layer->has_state = true;
    if (begins(n->rest, "shortconv.")) layer->has_conv = true;
}

// ---- Units --------------------------------------------------------------------------------------

static struct unit *start(struct reader *r, enum unit_kind kind, int32_t layer) {
    struct unit *unit = &r->out->units[r->out->n_units++];
    *unit = (struct unit){.kind = kind, .layer = layer};
    return unit;
}

static void set_attention(const struct reader *r, const struct layer *from, struct unit *unit) {
    if (from->has_state) unit->state_bytes += r->state_bytes;
    if (from->has_conv) unit->state_bytes += r->conv_bytes;
    const bool recurrent = from->has_state || from->has_conv;
    if (!from->has_keys && !from->has_latent && (recurrent || !from->has_fused)) return;
    unit->n_heads = from->n_heads;
    unit->n_kv_heads = from->n_kv_heads;
    unit->head_dim_k = from->head_dim_k;
    unit->head_dim_v = from->head_dim_v;
    unit->window = from->window;
    if (!from->has_latent || !r->kv_rank) return;
    // One row of latent values and rotated keys serves all heads; values are a part of it.
    unit->n_kv_heads = unit->n_heads > 0;
    unit->head_dim_k = r->kv_rank + r->out->n_rot;
    unit->head_dim_v = 0;
}

static enum status start_layer(struct reader *r, int32_t l) {
    struct layer *layer = &r->layers[l];
    static const char *const names[UNIT_KINDS] = {
        [UNIT_ATTENTION] = "attention", [UNIT_FFN] = "feed-forward"};
    for (int kind = UNIT_ATTENTION; kind <= UNIT_FFN; kind++) {
        if (layer->has_place[kind] || (kind == UNIT_FFN && layer->has_place[UNIT_EXPERTS]))
            continue;
        err_set(r->e, ERR_UNSUPPORTED, "layer %d has no %s tensors", l, names[kind]);
        return err_expected(r->e, "attention or a recurrent block, then an FFN, in every layer");
    }
    for (int kind = UNIT_ATTENTION; kind <= UNIT_EXPERTS; kind++) {
        if (!layer->has_place[kind]) continue;
        layer->unit_of[kind] = (int16_t)r->out->n_units;
        struct unit *unit = start(r, (enum unit_kind)kind, l);
        if (kind == UNIT_ATTENTION) set_attention(r, layer, unit);
        if (kind != UNIT_EXPERTS) continue;
        unit->n_experts = r->n_experts;
        unit->n_experts_used = r->n_experts_used;
    }
    return OK;
}

// The unit that a tensor goes to; NULL: none. Units must have been started.
static enum status find_unit(const struct reader *r, const struct named *n, struct unit **out) {
    struct unit *units = r->out->units;
    *out = NULL;
    if (n->layer >= 0) {
        const struct layer *layer = &r->layers[n->layer];
        enum place place = n->place;
        if (place == PLACE_SKIP) return OK;
        if (place == PLACE_POST) place = layer->has_ffn_norm ? PLACE_ATTENTION : PLACE_AFTER;
        if (place == PLACE_AFTER) place = layer->has_place[UNIT_FFN] ? PLACE_FFN : PLACE_EXPERTS;
        *out = &units[layer->unit_of[place]];
        return OK;
    }
    for (size_t i = 0; i < sizeof GLOBALS / sizeof *GLOBALS; i++) {
        if (!begins(n->text, GLOBALS[i].name)) continue;
        if (GLOBALS[i].skip) return OK;
        *out = GLOBALS[i].kind == UNIT_EMBED ? &units[0] : &units[r->out->n_units - 1];
        return OK;
    }
    return refuse_name(r, n);
}

// Read element by element: norms, convolutions and the like, also those of two dimensions.
static bool is_vector(const struct named *n) {
    static const char *const parts[] = {"norm", "conv", "ssm_a", "ssm_d.", "sinks", "scale"};
    if (n->tensor->n_dims < 2) return true;
    if (strcmp(n->rest, "ssm_alpha.weight") == 0) return false;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (n->tensor->type == DTYPE_F32 && strstr(n->rest, parts[i])) return true;
    return false;
}

static enum status convert(struct reader *r, const struct named *n, const struct unit *unit,
                           struct unit_tensor *out) {
    const struct gguf_tensor *t = n->tensor;
    const uint64_t elements = t->ne[0] * t->ne[1] * t->ne[2] * t->ne[3];
    uint64_t n_cols = t->ne[0], n_rows = t->ne[1] * t->ne[2] * t->ne[3], n_matrices = 1;
    *out = (struct unit_tensor){.use = USE_MATRIX, .type = t->type, .size_bytes = t->size_bytes};
    memcpy(out->name, n->text, sizeof out->name);
    out->name[sizeof out->name - 1] = 0;
    const bool experts = unit->kind == UNIT_EXPERTS && strstr(n->rest, "_exps") && t->n_dims > 1;
    if (experts) {
        out->use = USE_EXPERTS;
        n_rows = t->n_dims > 2 ? t->ne[1] : 1;
        n_matrices = elements / n_cols / n_rows;
    } else if (is_vector(n)) {
        out->use = USE_VECTOR;
        n_cols = elements;
        n_rows = 1;
    } else if (unit->kind == UNIT_EMBED && !begins(n->text, "per_layer_model")) {
        out->use = USE_ROWS;
    }
    if (n_cols > INT32_MAX || n_rows > INT32_MAX || n_matrices > INT32_MAX)
        return wrong_tensor(r, n, ERR_FORMAT, "is larger than any of a model");
    out->n_cols = (int32_t)n_cols;
    out->n_rows = (int32_t)n_rows;
    out->n_matrices = (int32_t)n_matrices;
    return OK;
}

// Puts a tensor into its unit, in the order of KNOWN.
static enum status add_tensor(struct reader *r, const struct named *n) {
    struct unit *unit;
    struct unit_tensor tensor;
    if (find_unit(r, n, &unit)) return r->e->status;
    if (!unit) return OK;
    if (convert(r, n, unit, &tensor)) return r->e->status;
    if (unit->n_tensors == MAX_UNIT_TENSORS) {
        wrong_tensor(r, n, ERR_UNSUPPORTED, "is one too many in its part of the layer");
        return err_expected(r->e, "at most %d", MAX_UNIT_TENSORS);
    }
    uint8_t *ranks = r->ranks[unit - r->out->units];
    uint8_t rank = (uint8_t)n->rank;
    if (n->layer < 0) // the table before what else there is
        rank = strcmp(n->text, "token_embd.weight") && strcmp(n->text, "output.weight");
    int at = unit->n_tensors++;
    for (; at > 0 && ranks[at - 1] > rank; at--) {
        unit->tensors[at] = unit->tensors[at - 1];
        ranks[at] = ranks[at - 1];
    }
    unit->tensors[at] = tensor;
    ranks[at] = rank;
    return OK;
}

// The head multiplies with the embedding's table where it has none of its own.
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
    head->tensors[0].use = USE_MATRIX;
    head->shares_embed = true;
    return OK;
}

// ---- Numbers that keys and tensors both tell ----------------------------------------------------

static const struct unit_tensor *find(const struct unit *unit, const char *rest) {
    for (int i = 0; i < unit->n_tensors; i++) {
        const char *name = strchr(unit->tensors[i].name + 4, '.');
        if (name && strcmp(name + 1, rest) == 0) return &unit->tensors[i];
    }
    return NULL;
}

static enum status check_rows(const struct reader *r, const struct unit *unit, const char *rest,
                              int64_t n_rows) {
    const struct unit_tensor *t = find(unit, rest);
    if (!t || t->n_rows == n_rows) return OK;
    err_set(r->e, ERR_FORMAT, "tensor %s has rows that its keys do not tell of", t->name);
    err_expected(r->e, "%lld", (long long)n_rows);
    return err_actual(r->e, "%d", t->n_rows);
}

static enum status check_attention(const struct reader *r, const struct unit *unit) {
    const int64_t k = (int64_t)unit->n_kv_heads * unit->head_dim_k,
                  v = (int64_t)unit->n_kv_heads * unit->head_dim_v;
    const struct layer *layer = &r->layers[unit->layer];
    if (layer->has_latent) return OK;
    if (layer->has_keys) {
        return check_rows(r, unit, "attn_k.weight", k) ? r->e->status
                                                       : check_rows(r, unit, "attn_v.weight", v);
    }
    if (unit->n_heads == 0) return OK;
    return check_rows(r, unit, "attn_qkv.weight",
                      (int64_t)unit->n_heads * unit->head_dim_k + k + v);
}

static int32_t max_i32(int32_t a, int32_t b) { return a > b ? a : b; }

// The largest of any layer.
static void widen(struct shape *s, const struct unit *unit) {
    s->n_heads = max_i32(s->n_heads, unit->n_heads);
    s->n_kv_heads = max_i32(s->n_kv_heads, unit->n_kv_heads);
    s->head_dim = max_i32(s->head_dim, max_i32(unit->head_dim_k, unit->head_dim_v));
    s->n_experts = max_i32(s->n_experts, unit->n_experts);
    s->n_experts_used = max_i32(s->n_experts_used, unit->n_experts_used);
    s->n_ff_expert = max_i32(s->n_ff_expert, unit->n_ff_expert);
    static const char *const downs[] = {"ffn_down.weight", "ffn_down_shexp.weight"};
    for (int i = 0; i < 2 && unit->kind == UNIT_FFN; i++) {
        const struct unit_tensor *t = find(unit, downs[i]);
        if (t) s->n_ff = max_i32(s->n_ff, t->n_cols);
    }
}

static enum status finish(struct reader *r) {
    struct shape *s = r->out;
    int32_t n_shared = 0;
    if (read_int(r, "attention.shared_kv_layers", 0, r->n_layers, &n_shared)) return r->e->status;
    for (int u = 1; u + 1 < s->n_units; u++) {
        struct unit *unit = &s->units[u];
        if (unit->kind == UNIT_ATTENTION && check_attention(r, unit)) return r->e->status;
        // The last layers read the cache of an earlier one.
        if (unit->layer >= r->n_layers - n_shared) unit->n_kv_heads = 0;
        const struct unit_tensor *down = find(unit, "ffn_down_exps.weight");
        if (unit->kind == UNIT_EXPERTS && down) unit->n_ff_expert = down->n_cols;
        widen(s, unit);
    }
    // Latent keys were made of n_rot, all others limit it.
    if (r->kv_rank) return OK;
    s->n_rot = s->head_dim;
    return read_int(r, "rope.dimension_count", 0, s->head_dim, &s->n_rot);
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
    if (read_names(r) || finish(r)) return r->e->status;
    return shape_check(r->out, r->e);
}

enum status gguf_shape_by_names(struct shape *out, const struct gguf *g, struct err *e) {
    ASSERT(out);
    ASSERT(g);
    *e = (struct err){.status = OK};
    memset(out, 0, sizeof *out);
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
    enum status status = model_read(model, g, e);
    if (status == OK) {
        model_shape(model, out);
        status = shape_check(out, e);
    }
    mem_free(model);
    return status == ERR_UNSUPPORTED ? gguf_shape_by_names(out, g, e) : status;
}

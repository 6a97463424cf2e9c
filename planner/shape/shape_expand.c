/* shape_expand.c: makes units and tensors from hyper-parameters and a quantisation rule. See
 * shape_spec.h and configs/models/README.md.
 *
 * Owns nothing; pure functions. Knows the tensors of a layer and the types that a rule gives them,
 * but no architecture by name. Any thread. Tested by tests/planner/test_shape.c.
 */
#include "planner/shape/shape_spec.h"

#include "base/number.h"
#include <stddef.h>
#include <stdio.h>
#include <string.h>

// ---- Quantisation rules -------------------------------------------------------------------------

// The layers that get the better type of a rule.
enum where { NOWHERE, FIRST_FOUR, FIRST_EIGHTH, FIRST_SIXTEENTH, FIRST_TWO, SPREAD, EVERYWHERE };

struct rule {
    const char *name;
    enum dtype base;
    enum dtype v, v_more; // attn_v, and its type in layers with more bits
    enum where v_where;
    enum dtype down, down_more; // ffn_down, also of routed experts
    enum where down_where;
    enum dtype o, qkv;
};

// The mixtures of types in quantised files. Any other name of a rule is a type, which every matrix
// gets.
static const struct rule RULES[] = {
    {"Q4_K_M", DTYPE_Q4_K, DTYPE_Q4_K, DTYPE_Q6_K, SPREAD, DTYPE_Q4_K, DTYPE_Q6_K, SPREAD,
     DTYPE_Q4_K, DTYPE_Q5_K},
    {"Q4_K_S", DTYPE_Q4_K, DTYPE_Q4_K, DTYPE_Q5_K, FIRST_FOUR, DTYPE_Q4_K, DTYPE_Q5_K, FIRST_EIGHTH,
     DTYPE_Q4_K, DTYPE_Q4_K},
    {"Q5_K_M", DTYPE_Q5_K, DTYPE_Q5_K, DTYPE_Q6_K, SPREAD, DTYPE_Q5_K, DTYPE_Q6_K, SPREAD,
     DTYPE_Q5_K, DTYPE_Q6_K},
    {"Q3_K_M", DTYPE_Q3_K, DTYPE_Q4_K, DTYPE_Q5_K, FIRST_TWO, DTYPE_Q4_K, DTYPE_Q5_K,
     FIRST_SIXTEENTH, DTYPE_Q4_K, DTYPE_Q4_K},
};

static bool is_plain_float(enum dtype type) {
    return type == DTYPE_F32 || type == DTYPE_F16 || type == DTYPE_BF16;
}

// Finds a rule by its name, or makes one of a type's name. False if the name is neither.
static bool find_rule(const char *name, struct rule *out) {
    for (size_t i = 0; i < sizeof RULES / sizeof *RULES; i++) {
        if (strcmp(name, RULES[i].name) != 0) continue;
        *out = RULES[i];
        return true;
    }
    for (uint32_t number = 0; number < DTYPE_COUNT; number++) {
        const struct dtype_info *info = dtype_find(number);
        const enum dtype type = (enum dtype)number;
        if (!info || strcmp(name, info->name) != 0) continue;
        if (info->block_elements == 1 && !is_plain_float(type)) return false;
        *out = (struct rule){
            .name = info->name, .base = type, .v = type, .down = type, .o = type, .qkv = type};
        return true;
    }
    return false;
}

static bool is_in(enum where where, int32_t i, int32_t n) {
    switch (where) {
    case FIRST_TWO: return i < 2;
    case FIRST_FOUR: return i < 4;
    case FIRST_EIGHTH: return i < n / 8;
    case FIRST_SIXTEENTH: return i < n / 16;
    case SPREAD: return i < n / 8 || i >= 7 * n / 8 || (i - n / 8) % 3 == 2;
    case EVERYWHERE: return true;
    default: return false;
    }
}

// The type that replaces another if rows are no whole number of its blocks.
static enum dtype fallback(enum dtype type, int32_t n_cols) {
    const uint64_t count = (uint64_t)n_cols;
    if (dtype_bytes(type, count)) return type;
    enum dtype smaller = DTYPE_IQ4_NL;
    if (type == DTYPE_Q2_K || type == DTYPE_Q3_K) smaller = DTYPE_Q4_0;
    if (type == DTYPE_Q4_K) smaller = DTYPE_Q5_0;
    if (type == DTYPE_Q5_K) smaller = DTYPE_Q5_1;
    if (type == DTYPE_Q6_K) smaller = DTYPE_Q8_0;
    return dtype_bytes(smaller, count) ? smaller : DTYPE_F16;
}

// ---- Expansion ----------------------------------------------------------------------------------

struct build {
    const struct shape_spec *spec;
    struct shape *out;
    struct rule rule;
    struct unit *unit;                // the unit that tensors are added to
    int32_t i_attention, n_attention; // layers with attention before this one, and in all
};

// One tensor to add.
struct part {
    enum tensor_role role;
    int64_t n_cols, n_rows;
    int32_t n_matrices;
    const char *name; // in files, after "blk.N." in a layer; NULL: the name in the list of roles
};

// The type of values in this layer: the better type if the rule has one for the layer.
static enum dtype type_of_values(const struct build *b) {
    const struct rule *r = &b->rule;
    const bool huge = b->spec->n_layers == 80 && b->spec->n_embd == 8192; // 70B models of Llama
    const enum dtype type = is_in(r->v_where, b->i_attention, b->n_attention) ? r->v_more : r->v;
    if (r->v_where == NOWHERE) return type;
    if (b->spec->experts.n_experts == 8) return DTYPE_Q8_0;
    return huge && (type == DTYPE_Q3_K || type == DTYPE_Q4_K) ? DTYPE_Q5_K : type;
}

// The type of a quantised matrix whose rows are whole numbers of blocks.
static enum dtype quantised_type(const struct build *b, const struct part *p) {
    const struct rule *r = &b->rule;
    const bool eight = r->v_where != NOWHERE && b->spec->experts.n_experts == 8;
    const int32_t n_layers = b->spec->n_layers;
    const bool fits = dtype_bytes(r->base, (uint64_t)p->n_cols) > 0;
    const enum dtype of_output = fits && r->base != DTYPE_Q8_0 ? DTYPE_Q6_K : DTYPE_Q8_0;
    switch (p->role) {
    case ROLE_TOKEN_EMBED: return b->spec->tied ? of_output : r->base;
    case ROLE_OUTPUT: return of_output;
    case ROLE_ATTN_V: return type_of_values(b);
    case ROLE_ATTN_K: return eight ? DTYPE_Q8_0 : r->base;
    case ROLE_ATTN_OUTPUT: return eight && r->base != DTYPE_Q5_K ? DTYPE_Q5_K : r->o;
    case ROLE_ATTN_QKV: return r->qkv;
    case ROLE_FFN_DOWN:
    case ROLE_EXPERT_DOWN:
        return is_in(r->down_where, b->unit->layer, n_layers) ? r->down_more : r->down;
    default: return r->base;
    }
}

static enum dtype type_of(const struct build *b, const struct part *p) {
    const enum dtype base = b->rule.base;
    const int32_t n_cols = (int32_t)p->n_cols;
    if (tensor_role_is_f32(p->role)) return DTYPE_F32;
    if (is_plain_float(base)) return base;
    if (base != DTYPE_MXFP4) return fallback(quantised_type(b, p), n_cols);
    return fallback(tensor_use_of(p->role) == USE_EXPERTS ? DTYPE_MXFP4 : DTYPE_Q8_0, n_cols);
}

static void add(struct build *b, struct part p) {
    struct unit *unit = b->unit;
    ASSERT(unit->n_tensors < MAX_UNIT_TENSORS);
    ASSERT(p.n_cols <= INT32_MAX && p.n_rows <= INT32_MAX); // products of limited fields
    struct unit_tensor *t = &unit->tensors[unit->n_tensors++];
    const char *name = p.name ? p.name : tensor_role_info(p.role)->name;
    if (unit->layer >= 0)
        snprintf(t->name, sizeof t->name, "blk.%d.%s", unit->layer, name);
    else
        snprintf(t->name, sizeof t->name, "%s", name);
    t->role = p.role;
    t->use = tensor_use_of(p.role);
    t->type = type_of(b, &p);
    t->n_cols = (int32_t)p.n_cols;
    t->n_rows = (int32_t)p.n_rows;
    t->n_matrices = p.n_matrices;
    t->size_bytes =
        dtype_bytes(t->type, (uint64_t)t->n_cols) * (uint64_t)t->n_rows * (uint64_t)t->n_matrices;
}

static void add_matrix(struct build *b, enum tensor_role role, int64_t n_cols, int64_t n_rows) {
    add(b, (struct part){role, n_cols, n_rows, 1, NULL});
}

static void add_vector(struct build *b, enum tensor_role role, int64_t count) {
    add(b, (struct part){role, count, 1, 1, NULL});
}

static void start(struct build *b, enum unit_kind kind, int32_t layer) {
    b->unit = &b->out->units[b->out->n_units++];
    *b->unit = (struct unit){.kind = kind, .layer = layer};
}

// True for every layer but the last of each period.
static bool is_inside(int32_t period, int32_t layer) {
    return period > 0 && layer % period < period - 1;
}

static char letter_of(const struct shape_spec *s, int32_t layer) {
    if (s->layers[0]) return s->layers[layer];
    return is_inside(s->recurrent.period, layer) ? LAYER_RECURRENT : LAYER_ATTENTION;
}

// True if a layer has attention, or a state, or an FFN, or experts, and nothing else.
static bool parts_layers(const struct shape_spec *s) {
    return strchr(s->layers, LAYER_FFN) || strchr(s->layers, LAYER_EXPERTS);
}

// Lets the attention of the last unit read the cache of the last layer of its kind that has one.
static void share_cache(struct build *b) {
    struct unit *unit = b->unit, *units = b->out->units;
    const int32_t n_own = b->spec->n_layers - b->spec->attention.n_shared;
    for (int32_t u = b->out->n_units - 2; u > 0 && !unit->cache_unit; u--) {
        struct unit *other = &units[u];
        if (other->kind != UNIT_ATTENTION || other->layer >= n_own) continue;
        if (other->n_kv_heads == 0 || other->window != unit->window) continue;
        unit->cache_unit = u;
        unit->n_kv_heads = 0;
        unit->norms_values = false;
        other->lends_cache = true;
    }
}

// Sets the numbers of an attention unit, which differ between layers with and without a window.
static void set_attention(struct build *b, int32_t layer) {
    const struct shape_spec *s = b->spec;
    const bool local = is_inside(s->window.period, layer);
    struct unit *unit = b->unit;
    unit->n_heads = s->attention.n_heads;
    unit->n_kv_heads = local ? s->window.n_kv_heads : s->attention.n_kv_heads;
    unit->head_dim_k = unit->head_dim_v = local ? s->window.head_dim : s->attention.head_dim;
    unit->window = local ? s->window.positions : 0;
    unit->gated = s->attention.gated;
    unit->norms_values = s->attention.value_norm;
    b->out->has_other_angles = b->out->has_other_angles || unit->window;
    if (layer >= s->n_layers - s->attention.n_shared) share_cache(b);
}

// Adds attention to latent vectors, whose cache has one row for all heads.
static void add_latent(struct build *b) {
    const struct shape_spec *s = b->spec;
    const struct latent_shape *l = &s->attention.latent;
    const int64_t n_heads = s->attention.n_heads, values = n_heads * l->value_dim;
    const int32_t row = l->rank + s->attention.n_rot, n_plain = l->key_dim - s->attention.n_rot;
    b->unit->n_heads = s->attention.n_heads;
    b->unit->n_kv_heads = 1;
    b->unit->head_dim_k = row;
    add_vector(b, ROLE_ATTN_NORM, s->n_embd);
    if (!l->query_rank) add_matrix(b, ROLE_ATTN_Q, s->n_embd, n_heads * l->key_dim);
    add_matrix(b, ROLE_ATTN_OUTPUT, values, s->n_embd);
    if (l->query_rank) {
        add_matrix(b, ROLE_ATTN_Q_A, s->n_embd, l->query_rank);
        add_vector(b, ROLE_ATTN_Q_A_NORM, l->query_rank);
        add_matrix(b, ROLE_ATTN_Q_B, l->query_rank, n_heads * l->key_dim);
    }
    add_matrix(b, ROLE_ATTN_KV_A, s->n_embd, row);
    add_vector(b, ROLE_ATTN_KV_A_NORM, l->rank);
    add_matrix(b, ROLE_ATTN_K_B, n_plain, n_heads * l->rank);
    add_matrix(b, ROLE_ATTN_V_B, l->rank, values);
    b->i_attention++;
}

static void add_attention(struct build *b, int32_t layer) {
    const struct shape_spec *s = b->spec;
    struct unit *unit = b->unit;
    if (s->attention.latent.rank) return add_latent(b);
    set_attention(b, layer);
    const int64_t q = (int64_t)unit->n_heads * unit->head_dim_k,
                  kv = (int64_t)unit->n_kv_heads * unit->head_dim_k;
    const int64_t bias_sizes[BIASES] = {q, kv, kv, s->n_embd};
    static const enum tensor_role biases[BIASES] = {ROLE_ATTN_Q_BIAS, ROLE_ATTN_K_BIAS,
                                                    ROLE_ATTN_V_BIAS, ROLE_ATTN_OUTPUT_BIAS};
    if (!s->lacks_pre_norms) add_vector(b, ROLE_ATTN_NORM, s->n_embd);
    add_matrix(b, ROLE_ATTN_Q, s->n_embd, s->attention.gated ? 2 * q : q);
    if (kv) add_matrix(b, ROLE_ATTN_K, s->n_embd, kv);
    if (kv && (unit->window || !s->attention.keys_are_values))
        add_matrix(b, ROLE_ATTN_V, s->n_embd, kv);
    add_matrix(b, ROLE_ATTN_OUTPUT, q, s->n_embd);
    for (int i = 0; i < BIASES; i++)
        if (s->attention.has_bias[i]) add_vector(b, biases[i], bias_sizes[i]);
    const bool joint = s->attention.joint_qk_norm, normed = s->attention.qk_norm || joint;
    if (normed) add_vector(b, ROLE_ATTN_Q_NORM, joint ? q : unit->head_dim_k);
    if (normed && kv) add_vector(b, ROLE_ATTN_K_NORM, joint ? kv : unit->head_dim_k);
    if (s->attention.sinks) add_vector(b, ROLE_ATTN_SINKS, unit->n_heads);
    if (s->attention.post_norm) add_vector(b, ROLE_ATTN_POST_NORM, s->n_embd);
    b->i_attention++;
}

// Adds a gated delta net: a state matrix for each head and the last inputs of a convolution.
static void add_delta_net(struct build *b) {
    const struct shape_spec *s = b->spec;
    const int64_t inner = (int64_t)s->recurrent.n_heads * s->recurrent.state_size;
    const int64_t channels = recurrent_channels(&b->out->recurrent);
    add_matrix(b, ROLE_ATTN_QKV, s->n_embd, channels);
    add_matrix(b, ROLE_ATTN_GATE, s->n_embd, inner);
    add_vector(b, ROLE_SSM_CONV, s->recurrent.conv_kernel * channels);
    add_vector(b, ROLE_SSM_DT_BIAS, s->recurrent.n_heads);
    add_vector(b, ROLE_SSM_A, s->recurrent.n_heads);
    if (s->recurrent.joins_gates) {
        add_matrix(b, ROLE_SSM_BETA_ALPHA, s->n_embd, 2 * (int64_t)s->recurrent.n_heads);
    } else {
        add_matrix(b, ROLE_SSM_ALPHA, s->n_embd, s->recurrent.n_heads);
        add_matrix(b, ROLE_SSM_BETA, s->n_embd, s->recurrent.n_heads);
    }
    add_vector(b, ROLE_SSM_NORM, s->recurrent.state_size);
    add_matrix(b, ROLE_SSM_OUT, inner, s->n_embd);
}

// Adds a state space model, whose products are a gate, what the convolution takes, and time steps.
static void add_mamba(struct build *b) {
    const struct shape_spec *s = b->spec;
    const int64_t n_heads = s->recurrent.n_heads, inner = n_heads * s->recurrent.head_dim;
    const int64_t channels = recurrent_channels(&b->out->recurrent);
    add_matrix(b, ROLE_SSM_IN, s->n_embd, inner + channels + n_heads);
    add_vector(b, ROLE_SSM_CONV, s->recurrent.conv_kernel * channels);
    add_vector(b, ROLE_SSM_CONV_BIAS, channels);
    add_vector(b, ROLE_SSM_DT_BIAS, n_heads);
    add_vector(b, ROLE_SSM_A, n_heads);
    add_vector(b, ROLE_SSM_D, n_heads);
    if (s->recurrent.norm) add_vector(b, ROLE_SSM_NORM, inner);
    add_matrix(b, ROLE_SSM_OUT, inner, s->n_embd);
}

static void add_convolution(struct build *b) {
    const int64_t n_embd = b->spec->n_embd;
    add_matrix(b, ROLE_SHORTCONV_IN, n_embd, 3 * n_embd);
    add_vector(b, ROLE_SHORTCONV, b->spec->recurrent.conv_kernel * n_embd);
    add_matrix(b, ROLE_SHORTCONV_OUT, n_embd, n_embd);
}

// Adds what has a state in place of attention, or beside it and behind its norm.
static void add_recurrent(struct build *b) {
    const struct recurrent_shape *r = &b->out->recurrent;
    b->unit->state_bytes = recurrent_state_bytes(r);
    if (!r->beside) add_vector(b, ROLE_ATTN_NORM, b->spec->n_embd);
    if (r->kind == RECURRENCE_DELTA) add_delta_net(b);
    if (r->kind == RECURRENCE_CONV) add_convolution(b);
    if (r->kind == RECURRENCE_MAMBA) add_mamba(b);
}

// Adds the norm before an FFN or experts, which has another name in some files.
static void add_ffn_norm(struct build *b) {
    char name[TENSOR_NAME];
    if (b->spec->lacks_pre_norms) return;
    snprintf(name, sizeof name, "%s.weight", b->spec->ffn_norm_name);
    add(b, (struct part){ROLE_FFN_NORM, b->spec->n_embd, 1, 1, name});
}

// Adds what ends a layer, in its last unit: a norm, the layer's input and a scale.
static void add_layer_end(struct build *b) {
    const int32_t n_embd = b->spec->n_embd, n_input = b->spec->n_layer_input;
    if (b->spec->ffn.post_norm) add_vector(b, ROLE_FFN_POST_NORM, n_embd);
    if (n_input) {
        add_matrix(b, ROLE_LAYER_GATE, n_embd, n_input);
        add_matrix(b, ROLE_LAYER_PROJ, n_input, n_embd);
        add_vector(b, ROLE_LAYER_POST_NORM, n_embd);
    }
    if (b->spec->layer_scale) add_vector(b, ROLE_LAYER_SCALE, 1);
}

static void add_dense_ffn(struct build *b, int32_t layer) {
    const struct shape_spec *s = b->spec;
    const bool sharing = layer >= s->n_layers - s->attention.n_shared;
    const int32_t n_embd = s->n_embd, n_ff = sharing ? s->ffn.n_ff_sharing : s->ffn.n_ff;
    add_ffn_norm(b);
    if (!s->ffn.ungated) add_matrix(b, ROLE_FFN_GATE, n_embd, n_ff);
    add_matrix(b, ROLE_FFN_UP, n_embd, n_ff);
    add_matrix(b, ROLE_FFN_DOWN, n_ff, n_embd);
    if (s->experts.beside_ffn)
        add_vector(b, ROLE_FFN_POST_NORM_1, n_embd);
    else
        add_layer_end(b);
}

// Adds a shared expert, which is a dense FFN with other names.
static void add_shared_expert(struct build *b) {
    const int32_t n_embd = b->spec->n_embd, n_ff = b->spec->experts.n_ff_shared;
    add_ffn_norm(b);
    if (!b->spec->experts.ungated)
        add(b, (struct part){ROLE_FFN_GATE, n_embd, n_ff, 1, "ffn_gate_shexp.weight"});
    add(b, (struct part){ROLE_FFN_UP, n_embd, n_ff, 1, "ffn_up_shexp.weight"});
    add(b, (struct part){ROLE_FFN_DOWN, n_ff, n_embd, 1, "ffn_down_shexp.weight"});
    if (b->spec->experts.shared_gate) add_vector(b, ROLE_SHARED_GATE, n_embd);
}

// Adds the norms and scales of experts beside a dense FFN.
static void add_norms_beside(struct build *b) {
    add_vector(b, ROLE_EXPERT_SCALE, b->spec->experts.n_experts);
    add_vector(b, ROLE_EXPERT_NORM, b->spec->n_embd);
    add_vector(b, ROLE_FFN_POST_NORM_2, b->spec->n_embd);
    add_layer_end(b);
    b->out->has_expert_norms = true;
}

// Adds routed experts, with the norm before them unless a shared expert has it.
static void add_experts(struct build *b) {
    const struct shape_spec *s = b->spec;
    const int32_t n = s->experts.n_experts, n_ff = s->experts.n_ff, n_embd = s->n_embd;
    struct unit *unit = b->unit;
    unit->n_experts = n;
    unit->n_experts_used = s->experts.n_experts_used;
    unit->n_ff_expert = n_ff;
    const bool beside = s->experts.beside_ffn;
    if (s->experts.n_ff_shared == 0 && !beside) add_ffn_norm(b);
    add_matrix(b, ROLE_ROUTER, n_embd, n);
    if (s->experts.biases) add_vector(b, ROLE_ROUTER_BIAS, n);
    if (beside) add_vector(b, ROLE_ROUTER_SCALE, n_embd);
    if (s->experts.selection_bias) add_vector(b, ROLE_SELECTION_BIAS, n);
    if (!s->experts.ungated) add(b, (struct part){ROLE_EXPERT_GATE, n_embd, n_ff, n, NULL});
    add(b, (struct part){ROLE_EXPERT_UP, n_embd, n_ff, n, NULL});
    add(b, (struct part){ROLE_EXPERT_DOWN, n_ff, n_embd, n, NULL});
    if (beside) add_norms_beside(b);
    if (!s->experts.biases) return;
    add(b, (struct part){ROLE_EXPERT_GATE_BIAS, n_ff, 1, n, NULL});
    add(b, (struct part){ROLE_EXPERT_UP_BIAS, n_ff, 1, n, NULL});
    add(b, (struct part){ROLE_EXPERT_DOWN_BIAS, n_embd, 1, n, NULL});
}

static void add_mixer(struct build *b, int32_t layer) {
    const bool recurrent = letter_of(b->spec, layer) == LAYER_RECURRENT;
    start(b, UNIT_ATTENTION, layer);
    if (!recurrent) add_attention(b, layer);
    if (recurrent || b->spec->recurrent.beside) add_recurrent(b);
}

static void add_layer(struct build *b, int32_t layer) {
    const struct shape_spec *s = b->spec;
    const char letter = letter_of(s, layer);
    const bool mixes = letter == LAYER_ATTENTION || letter == LAYER_RECURRENT;
    const bool dense = s->experts.n_experts == 0 || layer < s->experts.n_dense_layers;
    if (mixes) add_mixer(b, layer);
    if (mixes && parts_layers(s)) return;
    if (dense || letter == LAYER_FFN) {
        start(b, UNIT_FFN, layer);
        add_dense_ffn(b, layer);
        return;
    }
    if (s->experts.beside_ffn) {
        start(b, UNIT_FFN, layer);
        add_dense_ffn(b, layer);
    }
    if (s->experts.n_ff_shared > 0) {
        start(b, UNIT_FFN, layer);
        add_shared_expert(b);
        b->out->has_shared_gates = s->experts.shared_gate;
    }
    start(b, UNIT_EXPERTS, layer);
    add_experts(b);
}

static void set_numbers(const struct shape_spec *s, struct shape *out) {
    memcpy(out->name, s->name, sizeof out->name);
    memcpy(out->architecture, s->architecture, sizeof out->architecture);
    out->n_layers = s->n_layers;
    out->n_embd = s->n_embd;
    out->n_vocab = s->n_vocab;
    out->n_ctx_train = s->n_ctx_train;
    out->n_heads = s->attention.n_heads;
    out->n_kv_heads = max_i32(s->attention.n_kv_heads, s->window.n_kv_heads);
    out->head_dim = max_i32(s->attention.head_dim, s->window.head_dim);
    out->n_rot = s->attention.n_rot;
    out->latent = s->attention.latent;
    if (out->latent.rank) {
        out->n_kv_heads = 1;
        out->head_dim = out->latent.rank + out->n_rot;
    }
    out->n_local_rot = s->window.n_rot;
    out->n_layer_input = s->n_layer_input;
    out->has_gated_q = s->attention.gated;
    const bool mamba = s->recurrent.kind == RECURRENCE_MAMBA;
    out->recurrent =
        (struct recurrent_shape){.kind = s->recurrent.kind,
                                 .n_heads = s->recurrent.n_heads,
                                 .n_key_heads = s->recurrent.n_groups,
                                 .head_dim = s->recurrent.head_dim,
                                 .n_taps = s->recurrent.conv_kernel,
                                 .n_state = mamba ? s->recurrent.state_size : 0,
                                 .n_channels = s->recurrent.kind == RECURRENCE_CONV ? s->n_embd : 0,
                                 .joins_gates = s->recurrent.joins_gates,
                                 .beside = s->recurrent.beside};
    out->norms_all_heads = s->attention.joint_qk_norm;
    out->n_ff = max_i32(max_i32(s->ffn.n_ff, s->ffn.n_ff_sharing), s->experts.n_ff_shared);
    out->n_experts = s->experts.n_experts;
    out->n_experts_used = s->experts.n_experts_used;
    out->n_ff_expert = s->experts.n_ff;
    out->can_run = s->can_run;
}

enum status shape_expand(struct shape *out, const struct shape_spec *spec, struct err *e) {
    const struct shape_spec *s = spec;
    struct build b = {.spec = spec, .out = out};
    memset(out, 0, offsetof(struct shape, units)); // start() clears each unit
    if (!find_rule(spec->quant, &b.rule)) {
        err_set(e, ERR_FORMAT, "field quant");
        err_expected(e, "Q4_K_M, Q4_K_S, Q5_K_M, Q3_K_M, MXFP4, or a type such as Q8_0 or F16");
        return err_actual(e, "\"%s\"", spec->quant);
    }
    for (int32_t l = 0; l < s->n_layers; l++) b.n_attention += letter_of(s, l) == LAYER_ATTENTION;
    set_numbers(s, out);
    start(&b, UNIT_EMBED, -1);
    add_matrix(&b, ROLE_TOKEN_EMBED, s->n_embd, s->n_vocab);
    if (s->n_layer_input) {
        add_matrix(&b, ROLE_LAYER_EMBED, shape_layer_inputs(out), s->n_vocab);
        add_matrix(&b, ROLE_LAYER_EMBED_PROJ, s->n_embd, shape_layer_inputs(out));
        add_vector(&b, ROLE_LAYER_EMBED_NORM, s->n_layer_input);
    }
    for (int32_t l = 0; l < s->n_layers; l++) add_layer(&b, l);
    start(&b, UNIT_HEAD, -1);
    b.unit->shares_embed = s->tied;
    add(&b, (struct part){ROLE_OUTPUT, s->n_embd, s->n_vocab, 1,
                          s->tied ? tensor_role_info(ROLE_TOKEN_EMBED)->name : NULL});
    add_vector(&b, ROLE_OUTPUT_NORM, s->n_embd);
    return shape_check(out, e);
}

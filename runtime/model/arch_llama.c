/* arch_llama.c: the llama family (Llama 1-3, Mistral, SmolLM2, TinyLlama, Yi): its numbers, its
 * tensors, its forward pass.
 *
 * Switches of the family: tied embeddings, biases on q k v o, rope_freqs, grouped queries,
 * key_length, linear and YaRN rope scaling. Owns nothing; any thread. Sources: Touvron et al. 2023;
 * the GGUF keys of ggml. Tested by tests/runtime/test_model.c, tests/cli/cli_tiny.sh and
 * tests/cli/cli_golden.sh.
 */
#include "runtime/model/arch.h"
#include "runtime/model/model_read.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MAX_WIDTH = 1 << 20, MAX_HEADS = 1 << 12, MAX_VOCAB = 1 << 24, MAX_TRAIN_CONTEXT = 1 << 26 };

static enum status unsupported(struct err *e, const char *what, int expected, int actual) {
    err_set(e, ERR_UNSUPPORTED, "%s", what);
    err_expected(e, "%d", expected);
    err_actual(e, "%d", actual);
    return err_fix(e, "this version runs dense llama models with equal key and value heads");
}

static enum status refuse_experts(const struct model *m, struct err *e) {
    char key[64];
    uint64_t n_experts = 0;
    snprintf(key, sizeof key, "%s.expert_count", m->shape->architecture);
    if (gguf_read_u64(m->gguf, key, 0, 1 << 16, &n_experts, e)) return e->status;
    if (n_experts <= 1) return OK;
    return unsupported(e, "the model is a mixture of experts", 0, (int)n_experts);
}

static enum status read_heads(struct model *m, struct err *e) {
    struct shape *s = m->shape;
    s->n_kv_heads = s->n_heads;
    if (model_read_int(m, "attention.head_count_kv", MAX_HEADS, &s->n_kv_heads, e))
        return e->status;
    if (s->n_heads % s->n_kv_heads) {
        err_set(e, ERR_FORMAT, "%s.attention.head_count is no multiple of head_count_kv",
                s->architecture);
        err_expected(e, "a multiple of %d", s->n_kv_heads);
        return err_actual(e, "%d", s->n_heads);
    }
    s->head_dim = s->n_embd / s->n_heads;
    if (model_read_int(m, "attention.key_length", MAX_WIDTH, &s->head_dim, e)) return e->status;
    int32_t value_length = s->head_dim;
    if (model_read_int(m, "attention.value_length", MAX_WIDTH, &value_length, e)) return e->status;
    if (value_length != s->head_dim) {
        return unsupported(e, "value heads differ from key heads", s->head_dim, value_length);
    }
    if (s->head_dim > HEAD_DIM_MAX || s->head_dim % 2) {
        err_set(e, ERR_UNSUPPORTED, "%s: the size of an attention head", s->architecture);
        err_expected(e, "an even number up to %d", HEAD_DIM_MAX);
        return err_actual(e, "%d", s->head_dim);
    }
    return OK;
}

static enum status read_dimensions(struct model *m, struct err *e) {
    struct shape *s = m->shape;
    if (refuse_experts(m, e) || model_read_int(m, "block_count", MAX_LAYERS, &s->n_layers, e) ||
        model_read_int(m, "context_length", MAX_TRAIN_CONTEXT, &s->n_ctx_train, e) ||
        model_read_int(m, "embedding_length", MAX_WIDTH, &s->n_embd, e) ||
        model_read_int(m, "feed_forward_length", MAX_WIDTH, &s->n_ff, e) ||
        model_read_int(m, "attention.head_count", MAX_HEADS, &s->n_heads, e))
        return e->status;
    return read_heads(m, e);
}

static enum status check_positive(const struct model *m, const char *key, float value,
                                  struct err *e) {
    if (isfinite(value) && value > 0) return OK;
    err_set(e, ERR_FORMAT, "key %s.%s", m->shape->architecture, key);
    err_expected(e, "a positive number");
    return err_actual(e, "%g", (double)value);
}

// YaRN (Peng et al. 2023): pairs that turn more often than beta_fast times in the original context
// keep their frequency, those below beta_slow are interpolated.
static enum status read_yarn(struct model *m, float factor, struct err *e) {
    struct hparams *hp = &m->hp;
    int32_t original = m->shape->n_ctx_train;
    float beta_fast = 32, beta_slow = 1;
    if (model_read_int(m, "rope.scaling.original_context_length", MAX_TRAIN_CONTEXT, &original,
                       e) ||
        model_read_float(m, "rope.scaling.yarn_beta_fast", &beta_fast, e) ||
        model_read_float(m, "rope.scaling.yarn_beta_slow", &beta_slow, e) ||
        check_positive(m, "rope.scaling.yarn_beta_fast", beta_fast, e) ||
        check_positive(m, "rope.scaling.yarn_beta_slow", beta_slow, e)) {
        return e->status;
    }
    const double per_turn = m->shape->n_rot / (2 * log((double)hp->rope_base));
    const double low = floor(per_turn * log(original / (2 * M_PI * (double)beta_fast)));
    const double high = ceil(per_turn * log(original / (2 * M_PI * (double)beta_slow)));
    hp->rope_ext = 1;
    hp->rope_corr_low = (float)fmax(0, low);
    hp->rope_corr_high = (float)fmin(m->shape->n_rot - 1, high);
    if (factor > 1) hp->rope_magnitude = 1 + 0.1f * logf(factor);
    return OK;
}

static enum status read_rope(struct model *m, struct err *e) {
    struct hparams *hp = &m->hp;
    m->shape->n_rot = m->shape->head_dim;
    hp->rope_base = 10000;
    hp->rope_magnitude = 1;
    float factor = 0, attn_factor = 1;
    struct gguf_text type = {"linear", 6};
    if (model_read_int(m, "rope.dimension_count", m->shape->head_dim, &m->shape->n_rot, e) ||
        model_read_float(m, "rope.freq_base", &hp->rope_base, e) ||
        check_positive(m, "rope.freq_base", hp->rope_base, e) ||
        model_read_float(m, "rope.scale_linear", &factor, e) ||
        model_read_float(m, "rope.scaling.factor", &factor, e) ||
        model_read_float(m, "rope.scaling.attn_factor", &attn_factor, e) ||
        gguf_read_text(m->gguf, "llama.rope.scaling.type", &type, e)) {
        return e->status;
    }
    if (m->shape->n_rot % 2)
        return unsupported(e, "rope.dimension_count is odd", m->shape->n_rot - 1, m->shape->n_rot);
    bool none = type.length == 4 && memcmp(type.bytes, "none", 4) == 0;
    bool linear = type.length == 6 && memcmp(type.bytes, "linear", 6) == 0;
    bool yarn = type.length == 4 && memcmp(type.bytes, "yarn", 4) == 0;
    if (!none && !linear && !yarn) {
        err_set(e, ERR_UNSUPPORTED, "key llama.rope.scaling.type");
        err_expected(e, "none, linear or yarn");
        return err_actual(e, "%.*s", (int)(type.length < 64 ? type.length : 64), type.bytes);
    }
    if (factor == 0 || none) factor = 1; // old files store 0 for "no scaling"
    if (check_positive(m, "rope.scaling.factor", factor, e)) return e->status;
    hp->rope_scale = 1 / factor;
    if (yarn && read_yarn(m, factor, e)) return e->status;
    hp->rope_magnitude *= attn_factor;
    return OK;
}

static enum status add_tensors(struct model *m, const struct tensor_want *wants, size_t count,
                               struct err *e) {
    for (size_t i = 0; i < count; i++)
        if (model_add_tensor(m, &wants[i], e)) return e->status;
    return OK;
}
#define ADD_TENSORS(m, wants, e) add_tensors(m, wants, sizeof(wants) / sizeof *(wants), e)

static enum status read_embed(struct model *m, struct err *e) {
    struct shape *s = m->shape;
    const struct gguf_tensor *embed = gguf_find_tensor(m->gguf, "token_embd.weight");
    if (embed && embed->ne[1] <= MAX_VOCAB) s->n_vocab = (int32_t)embed->ne[1];
    const struct tensor_want table = {ROLE_TOKEN_EMBED, s->n_embd, s->n_vocab, false};
    const struct tensor_want freqs = {ROLE_ROPE_FREQS, s->n_rot / 2, 1, true};
    model_add_unit(m, UNIT_EMBED, -1);
    if (model_add_tensor(m, &table, e)) return e->status;
    return model_find_tensor(m, &freqs, &m->rope_freqs, e);
}

static enum status read_head(struct model *m, struct err *e) {
    const int64_t n_embd = m->shape->n_embd;
    const struct tensor_want wants[] = {{ROLE_OUTPUT, n_embd, m->shape->n_vocab, false},
                                        {ROLE_OUTPUT_NORM, n_embd, 1, false}};
    struct unit *unit = model_add_unit(m, UNIT_HEAD, -1);
    unit->shares_embed = !gguf_find_tensor(m->gguf, tensor_role_info(ROLE_OUTPUT)->name);
    return ADD_TENSORS(m, wants, e);
}

static enum status read_attention(struct model *m, int32_t layer, struct err *e) {
    const struct shape *s = m->shape;
    const int64_t n_embd = s->n_embd, q = (int64_t)s->n_heads * s->head_dim,
                  kv = (int64_t)s->n_kv_heads * s->head_dim;
    const struct tensor_want wants[] = {
        {ROLE_ATTN_NORM, n_embd, 1, false},       {ROLE_ATTN_Q, n_embd, q, false},
        {ROLE_ATTN_K, n_embd, kv, false},         {ROLE_ATTN_V, n_embd, kv, false},
        {ROLE_ATTN_OUTPUT, q, n_embd, false},     {ROLE_ATTN_Q_BIAS, q, 1, true},
        {ROLE_ATTN_K_BIAS, kv, 1, true},          {ROLE_ATTN_V_BIAS, kv, 1, true},
        {ROLE_ATTN_OUTPUT_BIAS, n_embd, 1, true},
    };
    struct unit *unit = model_add_unit(m, UNIT_ATTENTION, layer);
    unit->n_heads = s->n_heads;
    unit->n_kv_heads = s->n_kv_heads;
    unit->head_dim_k = unit->head_dim_v = s->head_dim;
    return ADD_TENSORS(m, wants, e);
}

static enum status read_ffn(struct model *m, int32_t layer, struct err *e) {
    const int64_t n_embd = m->shape->n_embd, n_ff = m->shape->n_ff;
    const struct tensor_want wants[] = {{ROLE_FFN_NORM, n_embd, 1, false},
                                        {ROLE_FFN_GATE, n_embd, n_ff, false},
                                        {ROLE_FFN_UP, n_embd, n_ff, false},
                                        {ROLE_FFN_DOWN, n_ff, n_embd, false}};
    model_add_unit(m, UNIT_FFN, layer);
    return ADD_TENSORS(m, wants, e);
}

static enum status llama_read(struct model *m, struct err *e) {
    struct hparams *hp = &m->hp;
    hp->norm_eps = 1e-5f;
    if (read_dimensions(m, e) ||
        model_read_float(m, "attention.layer_norm_rms_epsilon", &hp->norm_eps, e) ||
        check_positive(m, "attention.layer_norm_rms_epsilon", hp->norm_eps, e) || read_rope(m, e) ||
        read_embed(m, e)) {
        return e->status;
    }
    for (int32_t l = 0; l < m->shape->n_layers; l++)
        if (read_attention(m, l, e) || read_ffn(m, l, e)) return e->status;
    return read_head(m, e);
}

const struct weight *forward_weight(const struct forward *f, int piece, enum tensor_role role) {
    const struct unit_tensor *t = unit_find(f->unit, role);
    if (!t) return NULL;
    const struct weight *w = &f->pieces[piece][t - f->unit->tensors];
    return w->n_rows ? w : NULL;
}

// The numbers of a vector, which every device has whole, from first on; NULL if there is none.
static const float *vector_from(const struct forward *f, enum tensor_role role, int32_t first) {
    const struct weight *w = forward_weight(f, 0, role);
    return w ? (const float *)w->data + first : NULL;
}

static const float *vector_of(const struct forward *f, enum tensor_role role) {
    return vector_from(f, role, 0);
}

static enum weight_type type_of(const struct weight *w) {
    enum weight_type type;
    const bool known = dtype_weight(w->type, &type);
    ASSERT(known);
    return type;
}

// out = w * x (+ bias) (+ residual), every row of w, into columns of rows of out_stride.
static void matmul(const struct forward *f, float *out, const float *x, const struct weight *w,
                   const struct matmul_args *more) {
    struct matmul_args args = *more;
    args.out = out;
    args.x = x;
    args.weight = w->data;
    args.scratch = f->matmul;
    args.n_tokens = f->n_tokens;
    args.n_cols = w->n_cols;
    args.row_count = w->n_rows;
    f->ops->matmul(f->stream, type_of(w), &args);
}

static void norm(const struct forward *f, float *out, const float *x, const float *weight,
                 int32_t n_rows) {
    f->ops->rms_norm(f->stream, &(struct rms_norm_args){out, x, weight, n_rows, f->shape->n_embd,
                                                        f->hp->norm_eps});
}

static void encode_embed(const struct forward *f) {
    const struct weight *w = forward_weight(f, 0, ROLE_TOKEN_EMBED);
    f->ops->embed(f->stream, type_of(w),
                  &(struct embed_args){f->residual, w->data, f->tokens, f->n_tokens, w->n_cols,
                                       w->n_rows, 1.0f});
}

static void encode_angles(const struct forward *f) {
    const struct hparams *hp = f->hp;
    f->ops->rope_table(f->stream, &(struct rope_table_args){.out = f->angles,
                                                            .positions = f->positions,
                                                            .freq_factors = f->freqs,
                                                            .n_tokens = f->n_tokens,
                                                            .n_rot = f->shape->n_rot,
                                                            .base = hp->rope_base,
                                                            .scale = hp->rope_scale,
                                                            .magnitude = hp->rope_magnitude,
                                                            .ext_factor = hp->rope_ext,
                                                            .corr_low = hp->rope_corr_low,
                                                            .corr_high = hp->rope_corr_high});
}

// All keys or values of the tokens, where their matrix is.
static void encode_keys(const struct forward *f, float *out, enum tensor_role matrix,
                        enum tensor_role bias) {
    const struct weight *w = forward_weight(f, 0, matrix);
    if (!w) return;
    matmul(f, out, f->normed, w,
           &(struct matmul_args){.bias = vector_of(f, bias), .out_stride = w->n_rows});
}

// q = Q x, k = K x, v = V x, x = norm(residual): of q the columns of the pieces' rows; k and v
// where their matrices are.
static void encode_attention_in(const struct forward *f) {
    norm(f, f->normed, f->residual, vector_of(f, ROLE_ATTN_NORM), f->n_tokens);
    for (int i = 0; i < f->n_pieces; i++) {
        const struct weight *w = forward_weight(f, i, ROLE_ATTN_Q);
        const float *bias = vector_from(f, ROLE_ATTN_Q_BIAS, w->first_row);
        matmul(f, f->q + w->first_row, f->normed, w,
               &(struct matmul_args){.bias = bias,
                                     .out_stride = f->unit->n_heads * f->unit->head_dim_k});
    }
    encode_keys(f, f->k, ROLE_ATTN_K, ROLE_ATTN_K_BIAS);
    encode_keys(f, f->v, ROLE_ATTN_V, ROLE_ATTN_V_BIAS);
}

// attended = attention(rope(q), rope(k), v), with what the cache has of earlier keys and values.
static void encode_attention_mid(const struct forward *f) {
    const struct unit *u = f->unit;
    f->ops->rope(f->stream,
                 &(struct rope_args){f->q, f->k, f->angles, f->n_tokens, u->n_heads, u->n_kv_heads,
                                     u->head_dim_k, f->shape->n_rot, false});
    f->ops->kv_store(f->stream, &(struct kv_store_args){
                                    f->k_cache, f->v_cache, f->k, f->v, f->slots, f->n_tokens,
                                    u->n_kv_heads * u->head_dim_k, f->k_type, f->v_type});
    f->ops->attention(f->stream,
                      &(struct attention_args){.out = f->attended,
                                               .q = f->q,
                                               .k_cache = f->k_cache,
                                               .v_cache = f->v_cache,
                                               .pages = f->pages,
                                               .positions = f->positions,
                                               .sequences = f->sequences,
                                               .n_tokens = f->n_tokens,
                                               .n_heads = u->n_heads,
                                               .n_kv_heads = u->n_kv_heads,
                                               .head_dim = u->head_dim_k,
                                               .max_pages = f->max_pages,
                                               .k_type = f->k_type,
                                               .v_type = f->v_type,
                                               .scale = 1.0f / sqrtf((float)u->head_dim_k)});
}

// residual += matrix * x (+ bias), in the columns of the pieces' rows.
static void add_to_residual(const struct forward *f, const float *x, enum tensor_role matrix,
                            enum tensor_role bias) {
    for (int i = 0; i < f->n_pieces; i++) {
        const struct weight *w = forward_weight(f, i, matrix);
        float *out = f->residual + w->first_row;
        matmul(f, out, x, w,
               &(struct matmul_args){.bias = vector_from(f, bias, w->first_row),
                                     .residual = out,
                                     .out_stride = f->shape->n_embd});
    }
}

static void encode_attention(const struct forward *f) {
    const bool all = f->phase == PHASE_ALL;
    if (all || f->phase == PHASE_IN) encode_attention_in(f);
    if (all || f->phase == PHASE_MID) encode_attention_mid(f);
    if (all || f->phase == PHASE_OUT)
        add_to_residual(f, f->attended, ROLE_ATTN_OUTPUT, ROLE_ATTN_OUTPUT_BIAS);
}

// gate = silu(gate) * up in the columns first..first+count-1 of all tokens.
static void encode_swiglu(const struct forward *f, int32_t n_ff, int32_t first, int32_t count) {
    // One call over everything is cheapest, even if it makes rubbish of columns yet to come.
    if (count == n_ff || (f->n_tokens > 1 && !f->shares_hidden)) {
        f->ops->swiglu(f->stream,
                       &(struct swiglu_args){f->gate, f->gate, f->up, (int64_t)f->n_tokens * n_ff});
        return;
    }
    for (int32_t t = 0; t < f->n_tokens; t++) {
        float *gate = f->gate + (int64_t)t * n_ff + first;
        const float *up = f->up + (int64_t)t * n_ff + first;
        f->ops->swiglu(f->stream, &(struct swiglu_args){gate, gate, up, count});
    }
}

// gate = silu(gate x) * up x, x = norm(residual), in the columns of the pieces' rows.
static void encode_ffn_in(const struct forward *f) {
    const int32_t n_ff = unit_find(f->unit, ROLE_FFN_GATE)->n_rows;
    const struct matmul_args columns = {.out_stride = n_ff};
    int32_t n_own = 0;
    norm(f, f->normed, f->residual, vector_of(f, ROLE_FFN_NORM), f->n_tokens);
    for (int i = 0; i < f->n_pieces; i++) {
        const struct weight *gate = forward_weight(f, i, ROLE_FFN_GATE);
        const struct weight *up = forward_weight(f, i, ROLE_FFN_UP);
        matmul(f, f->gate + gate->first_row, f->normed, gate, &columns);
        matmul(f, f->up + up->first_row, f->normed, up, &columns);
        n_own += gate->n_rows;
    }
    encode_swiglu(f, n_ff, forward_weight(f, 0, ROLE_FFN_GATE)->first_row, n_own);
}

static void encode_ffn(const struct forward *f) {
    if (f->phase != PHASE_OUT) encode_ffn_in(f);
    if (f->phase != PHASE_IN) add_to_residual(f, f->gate, ROLE_FFN_DOWN, ROLE_OTHER);
}

// logits = output * norm(residual), for the rows that are wanted
static void encode_head(const struct forward *f) {
    const struct weight *output = forward_weight(f, 0, ROLE_OUTPUT);
    f->ops->gather_rows(f->stream,
                        &(struct gather_rows_args){f->gathered, f->residual, f->rows, f->n_logits,
                                                   f->shape->n_embd, f->n_tokens});
    norm(f, f->gathered, f->gathered, vector_of(f, ROLE_OUTPUT_NORM), f->n_logits);
    struct forward rows = *f;
    rows.n_tokens = f->n_logits;
    matmul(&rows, f->logits, f->gathered, output,
           &(struct matmul_args){.out_stride = output->n_rows});
}

static void llama_encode(const struct forward *f) {
    static void (*const encoders[UNIT_KINDS])(const struct forward *) = {
        [UNIT_EMBED] = encode_embed,
        [UNIT_ATTENTION] = encode_attention,
        [UNIT_FFN] = encode_ffn,
        [UNIT_HEAD] = encode_head,
    };
    encoders[f->unit->kind](f);
}

const struct arch arch_llama = {"llama", llama_read, encode_angles, llama_encode};

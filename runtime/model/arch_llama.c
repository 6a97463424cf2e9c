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

static enum status read_dimensions(struct model *m, struct err *e) {
    struct hparams *hp = &m->hp;
    int32_t experts = 1, value_length;
    char key[64];
    uint64_t n_experts = 0;
    snprintf(key, sizeof key, "%s.expert_count", m->architecture);
    if (gguf_read_u64(m->gguf, key, 0, 1 << 16, &n_experts, e)) return e->status;
    experts = (int32_t)n_experts;
    if (experts > 1) return unsupported(e, "the model is a mixture of experts", 0, experts);
    if (model_read_int(m, "block_count", MAX_LAYERS, &hp->n_layers, e) ||
        model_read_int(m, "context_length", MAX_TRAIN_CONTEXT, &hp->n_ctx_train, e) ||
        model_read_int(m, "embedding_length", MAX_WIDTH, &hp->n_embd, e) ||
        model_read_int(m, "feed_forward_length", MAX_WIDTH, &hp->n_ff, e) ||
        model_read_int(m, "attention.head_count", MAX_HEADS, &hp->n_heads, e)) {
        return e->status;
    }
    hp->n_kv_heads = hp->n_heads;
    if (model_read_int(m, "attention.head_count_kv", MAX_HEADS, &hp->n_kv_heads, e))
        return e->status;
    if (hp->n_heads % hp->n_kv_heads) {
        err_set(e, ERR_FORMAT, "%s.attention.head_count is no multiple of head_count_kv",
                m->architecture);
        err_expected(e, "a multiple of %d", hp->n_kv_heads);
        return err_actual(e, "%d", hp->n_heads);
    }
    hp->head_dim = hp->n_embd / hp->n_heads;
    if (model_read_int(m, "attention.key_length", MAX_WIDTH, &hp->head_dim, e)) return e->status;
    value_length = hp->head_dim;
    if (model_read_int(m, "attention.value_length", MAX_WIDTH, &value_length, e)) return e->status;
    if (value_length != hp->head_dim) {
        return unsupported(e, "value heads differ from key heads", hp->head_dim, value_length);
    }
    if (hp->head_dim > HEAD_DIM_MAX || hp->head_dim % 2) {
        err_set(e, ERR_UNSUPPORTED, "%s: the size of an attention head", m->architecture);
        err_expected(e, "an even number up to %d", HEAD_DIM_MAX);
        return err_actual(e, "%d", hp->head_dim);
    }
    return OK;
}

static enum status check_positive(const struct model *m, const char *key, float value,
                                  struct err *e) {
    if (isfinite(value) && value > 0) return OK;
    err_set(e, ERR_FORMAT, "key %s.%s", m->architecture, key);
    err_expected(e, "a positive number");
    return err_actual(e, "%g", (double)value);
}

// YaRN (Peng et al. 2023): pairs that turn more often than beta_fast times in the original context
// keep their frequency, those below beta_slow are interpolated.
static enum status read_yarn(struct model *m, float factor, struct err *e) {
    struct hparams *hp = &m->hp;
    int32_t original = hp->n_ctx_train;
    float beta_fast = 32, beta_slow = 1;
    if (model_read_int(m, "rope.scaling.original_context_length", MAX_TRAIN_CONTEXT, &original,
                       e) ||
        model_read_float(m, "rope.scaling.yarn_beta_fast", &beta_fast, e) ||
        model_read_float(m, "rope.scaling.yarn_beta_slow", &beta_slow, e) ||
        check_positive(m, "rope.scaling.yarn_beta_fast", beta_fast, e) ||
        check_positive(m, "rope.scaling.yarn_beta_slow", beta_slow, e)) {
        return e->status;
    }
    const double per_turn = hp->n_rot / (2 * log((double)hp->rope_base));
    const double low = floor(per_turn * log(original / (2 * M_PI * (double)beta_fast)));
    const double high = ceil(per_turn * log(original / (2 * M_PI * (double)beta_slow)));
    hp->rope_ext = 1;
    hp->rope_corr_low = (float)fmax(0, low);
    hp->rope_corr_high = (float)fmin(hp->n_rot - 1, high);
    if (factor > 1) hp->rope_magnitude = 1 + 0.1f * logf(factor);
    return OK;
}

static enum status read_rope(struct model *m, struct err *e) {
    struct hparams *hp = &m->hp;
    hp->n_rot = hp->head_dim;
    hp->rope_base = 10000;
    hp->rope_magnitude = 1;
    float factor = 0, attn_factor = 1;
    struct gguf_text type = {"linear", 6};
    if (model_read_int(m, "rope.dimension_count", hp->head_dim, &hp->n_rot, e) ||
        model_read_float(m, "rope.freq_base", &hp->rope_base, e) ||
        check_positive(m, "rope.freq_base", hp->rope_base, e) ||
        model_read_float(m, "rope.scale_linear", &factor, e) ||
        model_read_float(m, "rope.scaling.factor", &factor, e) ||
        model_read_float(m, "rope.scaling.attn_factor", &attn_factor, e) ||
        gguf_read_text(m->gguf, "llama.rope.scaling.type", &type, e)) {
        return e->status;
    }
    if (hp->n_rot % 2)
        return unsupported(e, "rope.dimension_count is odd", hp->n_rot - 1, hp->n_rot);
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

static enum status read_globals(struct model *m, struct err *e) {
    struct hparams *hp = &m->hp;
    const struct gguf_tensor *embed = gguf_find_tensor(m->gguf, "token_embd.weight");
    if (embed && embed->ne[1] <= MAX_VOCAB) hp->n_vocab = (int32_t)embed->ne[1];
    const uint64_t n_embd = (uint64_t)hp->n_embd, n_vocab = (uint64_t)hp->n_vocab;
    const struct tensor_want wants[W_GLOBAL_COUNT] = {
        [W_EMBED] = {"token_embd.weight", n_embd, n_vocab, true, false},
        [W_ROPE_FREQS] = {"rope_freqs.weight", (uint64_t)hp->n_rot / 2, 1, false, true},
        [W_OUT_NORM] = {"output_norm.weight", n_embd, 1, false, false},
        [W_OUTPUT] = {"output.weight", n_embd, n_vocab, true, true},
    };
    for (int i = 0; i < W_GLOBAL_COUNT; i++) {
        if (model_find_tensor(m, &wants[i], &m->globals[i], e)) return e->status;
    }
    hp->tied = m->globals[W_OUTPUT] == NULL;
    return OK;
}

static enum status read_layer(struct model *m, int32_t layer, struct err *e) {
    const struct hparams *hp = &m->hp;
    const uint64_t embd = (uint64_t)hp->n_embd, ff = (uint64_t)hp->n_ff;
    const uint64_t q = (uint64_t)(hp->n_heads * hp->head_dim),
                   kv = (uint64_t)(hp->n_kv_heads * hp->head_dim);
    const struct tensor_want wants[W_LAYER_COUNT] = {
        [W_ATTN_NORM] = {"attn_norm.weight", embd, 1, false, false},
        [W_Q] = {"attn_q.weight", embd, q, true, false},
        [W_K] = {"attn_k.weight", embd, kv, true, false},
        [W_V] = {"attn_v.weight", embd, kv, true, false},
        [W_O] = {"attn_output.weight", q, embd, true, false},
        [W_Q_BIAS] = {"attn_q.bias", q, 1, false, true},
        [W_K_BIAS] = {"attn_k.bias", kv, 1, false, true},
        [W_V_BIAS] = {"attn_v.bias", kv, 1, false, true},
        [W_O_BIAS] = {"attn_output.bias", embd, 1, false, true},
        [W_FFN_NORM] = {"ffn_norm.weight", embd, 1, false, false},
        [W_GATE] = {"ffn_gate.weight", embd, ff, true, false},
        [W_UP] = {"ffn_up.weight", embd, ff, true, false},
        [W_DOWN] = {"ffn_down.weight", ff, embd, true, false},
    };
    for (int i = 0; i < W_LAYER_COUNT; i++) {
        char name[64];
        snprintf(name, sizeof name, "blk.%d.%s", layer, wants[i].name);
        struct tensor_want want = wants[i];
        want.name = name;
        if (model_find_tensor(m, &want, &m->layers[layer][i], e)) return e->status;
    }
    return OK;
}

static enum status llama_read(struct model *m, struct err *e) {
    struct hparams *hp = &m->hp;
    hp->norm_eps = 1e-5f;
    if (read_dimensions(m, e) ||
        model_read_float(m, "attention.layer_norm_rms_epsilon", &hp->norm_eps, e) ||
        check_positive(m, "attention.layer_norm_rms_epsilon", hp->norm_eps, e) || read_rope(m, e) ||
        read_globals(m, e)) {
        return e->status;
    }
    for (int32_t l = 0; l < hp->n_layers; l++) {
        if (read_layer(m, l, e)) return e->status;
    }
    return OK;
}

// out = w * x (+ bias) (+ residual), every row of w, into columns of rows of out_stride.
static void matmul_into(const struct forward *f, float *out, const float *x, const struct tensor *w,
                        const struct matmul_args *more) {
    enum weight_type type;
    bool known = dtype_weight(w->type, &type);
    ASSERT(known);
    struct matmul_args args = *more;
    args.out = out;
    args.x = x;
    args.weight = w->data;
    args.scratch = f->matmul;
    args.n_tokens = f->n_tokens;
    args.n_cols = (int32_t)w->ne[0];
    args.row_count = (int32_t)w->ne[1];
    f->ops->matmul(f->stream, type, &args);
}

// Likewise where w is whole. A bias may be NULL or have no data.
static void matmul(const struct forward *f, float *out, const float *x, const struct tensor *w,
                   const struct tensor *bias) {
    matmul_into(
        f, out, x, w,
        &(struct matmul_args){.bias = bias ? bias->data : NULL, .out_stride = (int32_t)w->ne[1]});
}

static void norm(const struct forward *f, float *out, const float *x, const struct tensor *w,
                 int32_t n_rows) {
    f->ops->rms_norm(f->stream, &(struct rms_norm_args){out, x, w->data, n_rows, f->hp->n_embd,
                                                        f->hp->norm_eps});
}

static void encode_embed(const struct forward *f) {
    const struct tensor *w = &f->pieces[0].weights[W_EMBED];
    enum weight_type type;
    bool known = dtype_weight(w->type, &type);
    ASSERT(known);
    f->ops->embed(f->stream, type,
                  &(struct embed_args){f->residual, w->data, f->tokens, f->n_tokens, f->hp->n_embd,
                                       f->hp->n_vocab, 1.0f});
}

static void encode_angles(const struct forward *f) {
    const struct hparams *hp = f->hp;
    f->ops->rope_table(f->stream, &(struct rope_table_args){.out = f->angles,
                                                            .positions = f->positions,
                                                            .freq_factors = f->freqs,
                                                            .n_tokens = f->n_tokens,
                                                            .n_rot = hp->n_rot,
                                                            .base = hp->rope_base,
                                                            .scale = hp->rope_scale,
                                                            .magnitude = hp->rope_magnitude,
                                                            .ext_factor = hp->rope_ext,
                                                            .corr_low = hp->rope_corr_low,
                                                            .corr_high = hp->rope_corr_high});
}

// Of a bias, which every device has whole, what belongs to rows from first on; NULL if there is
// none.
static const float *bias_from(const struct tensor *bias, int32_t first) {
    return bias->data ? (const float *)bias->data + first : NULL;
}

// q = Q x, k = K x, v = V x, x = norm(residual): of q the columns of the pieces' rows; k and v
// where their matrices are.
static void encode_attention_in(const struct forward *f) {
    const struct hparams *hp = f->hp;
    const struct tensor *w = f->pieces[0].weights;
    norm(f, f->normed, f->residual, &w[W_ATTN_NORM], f->n_tokens);
    for (int i = 0; i < f->n_pieces; i++) {
        const struct piece *piece = &f->pieces[i];
        const int32_t first = piece->first_query;
        matmul_into(f, f->q + first, f->normed, &piece->weights[W_Q],
                    &(struct matmul_args){.bias = bias_from(&w[W_Q_BIAS], first),
                                          .out_stride = hp->n_heads * hp->head_dim});
    }
    if (!w[W_K].data) return;
    matmul(f, f->k, f->normed, &w[W_K], &w[W_K_BIAS]);
    matmul(f, f->v, f->normed, &w[W_V], &w[W_V_BIAS]);
}

// attended = attention(rope(q), rope(k), v), with what the cache has of earlier keys and values.
static void encode_attention_mid(const struct forward *f) {
    const struct hparams *hp = f->hp;
    f->ops->rope(f->stream, &(struct rope_args){f->q, f->k, f->angles, f->n_tokens, hp->n_heads,
                                                hp->n_kv_heads, hp->head_dim, hp->n_rot, false});
    f->ops->kv_store(f->stream, &(struct kv_store_args){
                                    f->k_cache, f->v_cache, f->k, f->v, f->slots, f->n_tokens,
                                    hp->n_kv_heads * hp->head_dim, f->k_type, f->v_type});
    f->ops->attention(f->stream,
                      &(struct attention_args){.out = f->attended,
                                               .q = f->q,
                                               .k_cache = f->k_cache,
                                               .v_cache = f->v_cache,
                                               .pages = f->pages,
                                               .positions = f->positions,
                                               .sequences = f->sequences,
                                               .n_tokens = f->n_tokens,
                                               .n_heads = hp->n_heads,
                                               .n_kv_heads = hp->n_kv_heads,
                                               .head_dim = hp->head_dim,
                                               .max_pages = f->max_pages,
                                               .k_type = f->k_type,
                                               .v_type = f->v_type,
                                               .scale = 1.0f / sqrtf((float)hp->head_dim)});
}

// residual += O attended, in the columns of the pieces' rows.
static void encode_attention_out(const struct forward *f) {
    const struct tensor *bias = &f->pieces[0].weights[W_O_BIAS];
    for (int i = 0; i < f->n_pieces; i++) {
        const struct piece *piece = &f->pieces[i];
        float *out = f->residual + piece->first_embd;
        matmul_into(f, out, f->attended, &piece->weights[W_O],
                    &(struct matmul_args){.bias = bias_from(bias, piece->first_embd),
                                          .residual = out,
                                          .out_stride = f->hp->n_embd});
    }
}

static void encode_attention(const struct forward *f) {
    const bool all = f->phase == PHASE_ALL;
    if (all || f->phase == PHASE_IN) encode_attention_in(f);
    if (all || f->phase == PHASE_MID) encode_attention_mid(f);
    if (all || f->phase == PHASE_OUT) encode_attention_out(f);
}

// gate = silu(gate x) * up x, x = norm(residual), in the columns of the pieces' rows.
static void encode_ffn_in(const struct forward *f) {
    const int32_t n_ff = f->hp->n_ff, first = f->pieces[0].first_ff;
    const struct matmul_args columns = {.out_stride = n_ff};
    int32_t n_own = 0;
    norm(f, f->normed, f->residual, &f->pieces[0].weights[W_FFN_NORM], f->n_tokens);
    for (int i = 0; i < f->n_pieces; i++) {
        const struct piece *piece = &f->pieces[i];
        matmul_into(f, f->gate + piece->first_ff, f->normed, &piece->weights[W_GATE], &columns);
        matmul_into(f, f->up + piece->first_ff, f->normed, &piece->weights[W_UP], &columns);
        n_own += (int32_t)piece->weights[W_GATE].ne[1];
    }
    // One call over everything is cheapest, even if it makes rubbish of columns yet to come.
    if (n_own == n_ff || (f->n_tokens > 1 && !f->shares_hidden)) {
        f->ops->swiglu(f->stream,
                       &(struct swiglu_args){f->gate, f->gate, f->up, (int64_t)f->n_tokens * n_ff});
        return;
    }
    for (int32_t t = 0; t < f->n_tokens; t++) {
        float *gate = f->gate + (int64_t)t * n_ff + first;
        const float *up = f->up + (int64_t)t * n_ff + first;
        f->ops->swiglu(f->stream, &(struct swiglu_args){gate, gate, up, n_own});
    }
}

// residual += down gate, in the columns of the pieces' rows.
static void encode_ffn_out(const struct forward *f) {
    for (int i = 0; i < f->n_pieces; i++) {
        const struct piece *piece = &f->pieces[i];
        float *out = f->residual + piece->first_embd;
        matmul_into(f, out, f->gate, &piece->weights[W_DOWN],
                    &(struct matmul_args){.residual = out, .out_stride = f->hp->n_embd});
    }
}

static void encode_ffn(const struct forward *f) {
    if (f->phase != PHASE_OUT) encode_ffn_in(f);
    if (f->phase != PHASE_IN) encode_ffn_out(f);
}

// logits = output * norm(residual), for the rows that are wanted
static void encode_head(const struct forward *f) {
    const struct tensor *w = f->pieces[0].weights;
    f->ops->gather_rows(f->stream,
                        &(struct gather_rows_args){f->gathered, f->residual, f->rows, f->n_logits,
                                                   f->hp->n_embd, f->n_tokens});
    norm(f, f->gathered, f->gathered, &w[W_OUT_NORM], f->n_logits);
    struct forward rows = *f;
    rows.n_tokens = f->n_logits;
    matmul(&rows, f->logits, f->gathered, &w[W_OUTPUT], NULL);
}

static void llama_encode(const struct forward *f, enum unit_kind kind) {
    static void (*const encoders[UNIT_KINDS])(const struct forward *) = {
        [UNIT_EMBED] = encode_embed,
        [UNIT_ATTENTION] = encode_attention,
        [UNIT_FFN] = encode_ffn,
        [UNIT_HEAD] = encode_head,
    };
    encoders[kind](f);
}

const struct arch arch_llama = {"llama", llama_read, encode_angles, llama_encode};

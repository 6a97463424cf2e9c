/* arch_llama.c: the llama family (Llama 1-3, Mistral, SmolLM2, TinyLlama, Yi): its numbers and its
 * tensors.
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

const struct arch arch_llama = {"llama", llama_read};

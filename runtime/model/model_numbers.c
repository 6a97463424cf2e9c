/* model_numbers.c: see model_numbers.h. Sources: the keys of the GGUF format of ggml; Su et al.
 * 2021 for rotary positions. */
#include "runtime/model/model_numbers.h"

#include "base/number.h"
#include "runtime/model/families.h"
#include "runtime/model/model_take.h"
#include "runtime/model/per_layer.h"

#include <assert.h>
#include <math.h>
#include <string.h>

enum { MAX_WIDTH = 1 << 20, MAX_HEADS = 1 << 12, MAX_TRAIN_CONTEXT = 1 << 26 };

static enum status unsupported(struct err *e, const char *what, int expected, int actual) {
    err_set(e, ERR_UNSUPPORTED, "%s", what);
    err_expected(e, "%d", expected);
    return err_actual(e, "%d", actual);
}

static enum status refuse_missing(const struct model *m, const char *key, struct err *e) {
    err_set(e, ERR_FORMAT, "key %s.%s is missing", m->shape->architecture, key);
    return err_fix(e, "fetch a complete conversion of the model");
}

static enum status check_positive(const struct model *m, const char *key, float value,
                                  struct err *e) {
    if (isfinite(value) && value > 0) return OK;
    err_set(e, ERR_FORMAT, "key %s.%s", m->shape->architecture, key);
    err_expected(e, "a positive number");
    return err_actual(e, "%g", (double)value);
}

// Reads a factor or a cap that files of most families lack; 0 then.
static enum status read_optional(struct model *m, const char *key, float *out, struct err *e) {
    if (model_take_float(m, key, out, e)) return e->status;
    return *out != 0 ? check_positive(m, key, *out, e) : OK;
}

// Sets the widths of dense FFNs and of shared experts: what the keys say, and what the FFN has
// where they say nothing and the layer has such tensors. m->n_ff: the widths of dense FFNs.
static enum status read_widths(struct model *m, struct err *e) {
    struct shape *s = m->shape;
    int32_t n_shared = 0, n_ff_shared = 0;
    if (s->n_experts) {
        if (model_take_count(m, "leading_dense_block_count", s->n_layers, &m->n_dense_layers, e) ||
            model_take_count(m, "expert_shared_count", SHAPE_EXPERTS, &n_shared, e))
            return e->status;
        n_ff_shared = n_shared <= MAX_WIDTH / s->n_ff_expert ? n_shared * s->n_ff_expert : 0;
        if (model_take_count(m, "expert_shared_feed_forward_length", MAX_WIDTH, &n_ff_shared, e))
            return e->status;
    }
    s->n_ff = 0;
    for (int32_t l = 0; l < s->n_layers; l++) {
        const bool dense = !s->n_experts || l < m->n_dense_layers;
        if (!dense && m->feeds[l] && (n_ff_shared || !model_layer_has(m, l, ROLE_FFN_DOWN)))
            m->n_ff[l] = n_ff_shared;
        if (m->n_ff[l] > s->n_ff) s->n_ff = m->n_ff[l];
    }
    return OK;
}

// Experts may be chosen from the best of equal groups alone, each of two experts or more. No key
// says how groups are ranked: those of a softmax, which only DeepSeek V2 has, by their best expert.
static enum status read_groups(struct model *m, struct err *e) {
    struct hparams *hp = &m->hp;
    const struct shape *s = m->shape;
    if (model_take_count(m, "expert_group_count", s->n_experts / 2, &hp->n_expert_groups, e) ||
        model_take_count(m, "expert_group_used_count", hp->n_expert_groups,
                         &hp->n_expert_groups_used, e))
        return e->status;
    const int32_t n = hp->n_expert_groups, n_used = hp->n_expert_groups_used;
    hp->groups_by_best = hp->expert_gate == GATE_SOFTMAX;
    if (n <= 1 || (n_used > 0 && s->n_experts % n == 0 &&
                   (int64_t)s->n_experts / n * n_used >= s->n_experts_used))
        return OK;
    return err_set(e, ERR_FORMAT, "key %s.expert_group_count does not agree with the experts",
                   s->architecture);
}

// The gate of files that do not name it. Early files of GLM's latent models are known by their
// sizes alone.
static enum expert_gate default_gate(const struct model *m) {
    const struct gguf_tensor *table =
        gguf_find_tensor(m->gguf, tensor_role_info(ROLE_TOKEN_EMBED)->name);
    const bool glm = m->family->attends_latent && table && table->ne[1] == 154880 &&
                     (m->shape->n_layers == 47 || m->shape->n_layers == 48);
    return glm ? GATE_SIGMOID : m->family->expert_gate;
}

// Files of most families do not say how the weights of a token's experts are made.
static enum status read_expert_weights(struct model *m, struct err *e) {
    struct hparams *hp = &m->hp;
    int32_t gate = 0; // 1 softmax, 2 sigmoid, 3 softmax over the chosen
    hp->expert_gate = default_gate(m);
    hp->normalise_experts = m->family->normalise_experts;
    if (model_take_count(m, "expert_gating_func", 3, &gate, e) ||
        model_take_bool(m, "expert_weights_norm", &hp->normalise_experts, e) ||
        read_optional(m, "expert_weights_scale", &hp->expert_scale, e))
        return e->status;
    if (gate)
        hp->expert_gate = (enum expert_gate[]){GATE_SOFTMAX, GATE_SIGMOID, GATE_CHOSEN}[gate - 1];
    return OK;
}

static struct layer_numbers layers_of(const struct model *m) {
    return (struct layer_numbers){m->gguf, m->shape->architecture, m->shape->n_layers};
}

// Tells what layers have.
static void part_layers(struct model *m) {
    const bool parts = m->family->parts_layers;
    for (int32_t l = 0; l < m->shape->n_layers; l++) {
        m->feeds[l] = !(parts || m->family->skips_attention) || m->n_ff[l];
        m->mixes[l] = !parts || !m->n_ff[l];
    }
}

// Reads the widths of dense FFNs, of which files of one family hold twice as much.
static enum status read_dense_widths(struct model *m, struct err *e) {
    const struct layer_numbers layers = layers_of(m);
    if (per_layer_read(&layers, "feed_forward_length", MAX_WIDTH, 0, m->n_ff, e)) return e->status;
    for (int32_t l = 0; l < m->shape->n_layers && m->family->halves_ffn; l++) m->n_ff[l] /= 2;
    return OK;
}

// Reads the numbers of experts. Files of dense models may say that there is one expert.
static enum status read_experts(struct model *m, struct err *e) {
    struct shape *s = m->shape;
    if (read_dense_widths(m, e)) return e->status;
    const int32_t n_ff = m->n_ff[0];
    part_layers(m);
    if (model_take_count(m, "expert_count", SHAPE_EXPERTS, &s->n_experts, e)) return e->status;
    if (s->n_experts <= 1) s->n_experts = 0;
    int32_t step = 1, n_latent = 0;
    if (model_take_count(m, "moe_latent_size", MAX_WIDTH, &n_latent, e)) return e->status;
    if (n_latent) return unsupported(e, "moe_latent_size: experts of latent vectors", 0, n_latent);
    if (model_take_int(m, "interleave_moe_layer_step", s->n_layers, &step, e)) return e->status;
    if (s->n_experts && step > 1)
        return unsupported(e, "interleave_moe_layer_step: layers with experts alternate", 1, step);
    // Files whose layers all have experts may lack the width of a dense FFN.
    for (int32_t l = 0; l < s->n_layers && !s->n_experts; l++)
        if (!m->n_ff[l] && m->feeds[l]) return refuse_missing(m, "feed_forward_length", e);
    if (!s->n_experts) return read_widths(m, e);
    s->n_ff_expert = n_ff;
    if (model_take_int(m, "expert_used_count", s->n_experts, &s->n_experts_used, e) ||
        model_take_int(m, "expert_feed_forward_length", MAX_WIDTH, &s->n_ff_expert, e) ||
        read_expert_weights(m, e) || read_groups(m, e) || read_widths(m, e))
        return e->status;
    if (s->n_experts > EXPERTS_MAX)
        return unsupported(e, "experts of a layer", EXPERTS_MAX, s->n_experts);
    if (s->n_experts_used > EXPERTS_USED_MAX)
        return unsupported(e, "experts of a token", EXPERTS_USED_MAX, s->n_experts_used);
    return OK;
}

// Reads the query heads, of which layers of some families have none.
static enum status read_query_heads(struct model *m, struct err *e) {
    struct shape *s = m->shape;
    const struct layer_numbers layers = layers_of(m);
    const bool may_lack = m->family->skips_attention;
    if (per_layer_read(&layers, "attention.head_count", MAX_HEADS, 0, m->n_heads, e))
        return e->status;
    for (int32_t l = 0; l < s->n_layers; l++) s->n_heads = max_i32(s->n_heads, m->n_heads[l]);
    if (!s->n_heads) return refuse_missing(m, "attention.head_count", e);
    for (int32_t l = 0; l < s->n_layers; l++) {
        if (may_lack) m->mixes[l] = m->n_heads[l] > 0;
        if (m->n_heads[l] || may_lack) continue;
        return err_set(e, ERR_FORMAT, "key %s.attention.head_count is 0 for layer %d",
                       s->architecture, l);
    }
    return OK;
}

// Refuses layers that have a matrix in place of attention, and those without an FFN.
static enum status check_skipping(const struct model *m, struct err *e) {
    for (int32_t l = 0; l < m->shape->n_layers && m->family->skips_attention; l++) {
        if (!m->feeds[l]) return err_set(e, ERR_UNSUPPORTED, "layer %d has no FFN", l);
        if (m->mixes[l] && !m->n_kv_heads[l])
            return err_set(e, ERR_UNSUPPORTED, "layer %d has a matrix in place of attention", l);
    }
    return OK;
}

// Reads the KV heads, of which layers without attention may have none.
static enum status read_kv_heads(struct model *m, struct err *e) {
    struct shape *s = m->shape;
    const struct layer_numbers layers = layers_of(m);
    if (per_layer_read(&layers, "attention.head_count_kv", MAX_HEADS, s->n_heads, m->n_kv_heads, e))
        return e->status;
    for (int32_t l = 0; l < s->n_layers; l++) {
        const int32_t n = m->n_kv_heads[l];
        s->n_kv_heads = max_i32(s->n_kv_heads, n);
        if (!n || m->n_heads[l] % n == 0) continue;
        err_set(e, ERR_FORMAT, "%s.attention.head_count is no multiple of head_count_kv",
                s->architecture);
        err_expected(e, "a multiple of %d", n);
        return err_actual(e, "%d in layer %d", m->n_heads[l], l);
    }
    if (s->n_kv_heads) return check_skipping(m, e);
    return err_set(e, ERR_FORMAT, "key %s.attention.head_count_kv is 0", s->architecture);
}

// Reads the size of heads, in layers with a window or without, in which keys and values are alike.
static enum status read_head_dim(struct model *m, bool local, int32_t *out, struct err *e) {
    if (model_take_int(m, local ? "attention.key_length_swa" : "attention.key_length", MAX_WIDTH,
                       out, e))
        return e->status;
    int32_t value_length = *out;
    if (model_take_int(m, local ? "attention.value_length_swa" : "attention.value_length",
                       MAX_WIDTH, &value_length, e))
        return e->status;
    if (value_length != *out)
        return unsupported(e, "value heads differ from key heads", *out, value_length);
    if (*out <= HEAD_DIM_MAX && *out % 2 == 0) return OK;
    err_set(e, ERR_UNSUPPORTED, "%s: the size of an attention head", m->shape->architecture);
    err_expected(e, "an even number up to %d", HEAD_DIM_MAX);
    return err_actual(e, "%d", *out);
}

// Reads the sizes of attention to latent vectors. Whether queries are made in one step is told by
// their tensors alone. Files of before 2025-04, and all of minicpm3, have the matrices of keys and
// values in one, and tell of heads under the usual keys.
static enum status read_latent(struct model *m, struct err *e) {
    struct shape *s = m->shape;
    struct latent_shape *l = &s->latent;
    m->joins_kv = !model_layer_has(m, 0, ROLE_ATTN_K_B) && model_layer_has(m, 0, ROLE_ATTN_KV_B);
    if (m->joins_kv) l->value_dim = s->n_embd / s->n_heads;
    const char *key = m->joins_kv ? "attention.key_length" : "attention.key_length_mla";
    const char *value = m->joins_kv ? "attention.value_length" : "attention.value_length_mla";
    if (model_take_int(m, "attention.kv_lora_rank", HEAD_DIM_MAX, &l->rank, e) ||
        model_take_int(m, "rope.dimension_count", HEAD_DIM_MAX, &s->n_rot, e) ||
        model_take_int(m, key, SHAPE_HEAD_DIM, &l->key_dim, e) ||
        model_take_int(m, value, SHAPE_HEAD_DIM, &l->value_dim, e))
        return e->status;
    if (model_layer_has(m, 0, ROLE_ATTN_Q_A) &&
        model_take_int(m, "attention.q_lora_rank", MAX_WIDTH, &l->query_rank, e))
        return e->status;
    if (l->key_dim <= s->n_rot)
        return err_set(e, ERR_FORMAT, "key %s.%s is not above the rotated %d", s->architecture, key,
                       s->n_rot);
    if (s->n_heads > EXPERTS_MAX)
        return unsupported(e, "heads of latent attention", EXPERTS_MAX, s->n_heads);
    s->n_kv_heads = 1;
    s->head_dim = l->rank + s->n_rot;
    for (int32_t i = 0; i < s->n_layers; i++) {
        m->n_kv_heads[i] = 1;
        m->head_dims[i] = s->head_dim;
    }
    if (s->head_dim <= HEAD_DIM_MAX && s->head_dim % 2 == 0) return OK;
    return unsupported(e, "elements of a row of latent attention", HEAD_DIM_MAX, s->head_dim);
}

// Layers with a window may have other heads.
static enum status read_heads(struct model *m, struct err *e) {
    if (m->family->attends_latent) return read_latent(m, e);
    struct shape *s = m->shape;
    const struct layer_numbers layers = layers_of(m);
    int32_t dim = s->n_embd / s->n_heads;
    if (read_kv_heads(m, e) || read_head_dim(m, false, &dim, e) ||
        per_layer_windows(&layers, m->windows, e))
        return e->status;
    int32_t local_dim = dim;
    if (read_head_dim(m, true, &local_dim, e)) return e->status;
    for (int32_t l = 0; l < s->n_layers; l++) {
        m->head_dims[l] = m->windows[l] ? local_dim : dim;
        s->head_dim = max_i32(s->head_dim, m->head_dims[l]);
        s->has_other_angles = s->has_other_angles || m->windows[l];
    }
    m->hp.windows_turn = m->family->windows_turn && s->has_other_angles;
    return OK;
}

// Reads how many of the last layers read the cache of an earlier one.
static enum status read_sharing(struct model *m, struct err *e) {
    int32_t n_sharing = 0;
    if (model_take_count(m, "attention.shared_kv_layers", m->shape->n_layers - 1, &n_sharing, e))
        return e->status;
    m->n_own_caches = m->shape->n_layers - n_sharing;
    return OK;
}

static enum status read_dimensions(struct model *m, struct err *e) {
    struct shape *s = m->shape;
    int32_t n_drafting = 0;
    if (model_take_int(m, "block_count", MAX_LAYERS, &s->n_layers, e) ||
        model_take_count(m, "nextn_predict_layers", s->n_layers - 1, &n_drafting, e) ||
        model_take_int(m, "context_length", MAX_TRAIN_CONTEXT, &s->n_ctx_train, e) ||
        model_take_int(m, "embedding_length", MAX_WIDTH, &s->n_embd, e) ||
        model_take_count(m, "embedding_length_per_layer_input", MAX_WIDTH, &s->n_layer_input, e))
        return e->status;
    m->n_blocks = s->n_layers;
    s->n_layers -= n_drafting; // the blocks for drafting tokens come last
    if (read_sharing(m, e)) return e->status;
    return read_experts(m, e) || read_query_heads(m, e) ? e->status : read_heads(m, e);
}

// YaRN (Peng et al. 2023): pairs that make more than beta_fast turns in the original context keep
// their frequency; those with fewer than beta_slow are interpolated.
static enum status read_yarn(struct model *m, float factor, struct err *e) {
    struct hparams *hp = &m->hp;
    float beta_fast = 32, beta_slow = 1;
    if (model_take_float(m, "rope.scaling.yarn_beta_fast", &beta_fast, e) ||
        model_take_float(m, "rope.scaling.yarn_beta_slow", &beta_slow, e) ||
        check_positive(m, "rope.scaling.yarn_beta_fast", beta_fast, e) ||
        check_positive(m, "rope.scaling.yarn_beta_slow", beta_slow, e)) {
        return e->status;
    }
    const double per_turn = m->shape->n_rot / (2 * log((double)hp->rope.base));
    const double low = floor(per_turn * log(m->n_ctx_short / (2 * M_PI * (double)beta_fast)));
    const double high = ceil(per_turn * log(m->n_ctx_short / (2 * M_PI * (double)beta_slow)));
    hp->rope.ext = 1;
    hp->rope.corr_low = (float)fmax(0, low);
    hp->rope.corr_high = (float)fmin(m->shape->n_rot - 1, high);
    if (factor > 1) hp->rope.magnitude = 1 + 0.1f * logf(factor);
    return OK;
}

// Gets YaRN's magnitude right where the file says how much of it scores have already. Latent
// attention then scales scores alone, so that columns without rotary positions count as much.
static enum status read_magnitude(struct model *m, float factor, struct err *e) {
    float multiplier = 0;
    if (model_take_float(m, "rope.scaling.yarn_log_multiplier", &multiplier, e)) return e->status;
    if (multiplier == 0) return OK;
    if (m->family->attends_latent) {
        const float scale = factor > 1 ? 1 + multiplier * logf(factor) : 1;
        m->hp.rope.magnitude = 1;
        m->hp.attention_scale *= scale * scale;
        return OK;
    }
    if (factor > 1) m->hp.rope.magnitude /= 1 + 0.1f * multiplier * logf(factor);
    return OK;
}

// Ways to map positions beyond the training context into it.
enum scaling { SCALING_NONE, SCALING_LINEAR, SCALING_YARN, SCALING_LONGROPE, SCALINGS };

static enum status read_scaling(const struct model *m, enum scaling *out, struct err *e) {
    static const char *const names[SCALINGS] = {"none", "linear", "yarn", "longrope"};
    struct gguf_text type = {"linear", 6};
    if (model_take_text(m, "rope.scaling.type", &type, e)) return e->status;
    for (*out = 0; *out < SCALINGS; ++*out)
        if (type.length == strlen(names[*out]) && !memcmp(type.bytes, names[*out], type.length))
            return OK;
    err_set(e, ERR_UNSUPPORTED, "key %s.rope.scaling.type", m->shape->architecture);
    err_expected(e, "none, linear, yarn or longrope");
    return err_actual(e, "%.*s", (int)(type.length < 64 ? type.length : 64), type.bytes);
}

static enum status read_rope(struct model *m, struct err *e) {
    struct shape *s = m->shape;
    struct hparams *hp = &m->hp;
    float factor = 0, attn_factor = 1;
    enum scaling scaling;
    s->n_rot = s->head_dim;
    hp->rope.base = 10000;
    hp->rope.magnitude = 1;
    hp->rope_neox = m->family->rope_neox;
    if (model_take_int(m, "rope.dimension_count", s->head_dim, &s->n_rot, e) ||
        model_take_float(m, "rope.freq_base", &hp->rope.base, e) ||
        check_positive(m, "rope.freq_base", hp->rope.base, e) ||
        model_take_float(m, "rope.scale_linear", &factor, e) ||
        model_take_float(m, "rope.scaling.factor", &factor, e) ||
        model_take_float(m, "rope.scaling.attn_factor", &attn_factor, e) ||
        read_scaling(m, &scaling, e))
        return e->status;
    s->n_local_rot = s->n_rot;
    if (model_take_int(m, "rope.dimension_count_swa", s->head_dim, &s->n_local_rot, e))
        return e->status;
    if (s->n_rot % 2) return unsupported(e, "rope.dimension_count is odd", s->n_rot - 1, s->n_rot);
    if (s->n_local_rot % 2)
        return unsupported(e, "rope.dimension_count_swa is odd", s->n_local_rot - 1,
                           s->n_local_rot);
    m->n_ctx_short = s->n_ctx_train;
    if (model_take_int(m, "rope.scaling.original_context_length", MAX_TRAIN_CONTEXT,
                       &m->n_ctx_short, e))
        return e->status;
    if (scaling == SCALING_LONGROPE) factor = 1;            // divisors say it for each frequency
    if (factor == 0 || scaling == SCALING_NONE) factor = 1; // old files store 0 for "no scaling"
    if (check_positive(m, "rope.scaling.factor", factor, e)) return e->status;
    hp->rope.scale = 1 / factor;
    if (scaling == SCALING_YARN && (read_yarn(m, factor, e) || read_magnitude(m, factor, e)))
        return e->status;
    hp->rope.magnitude *= attn_factor;
    return OK;
}

// Layers with a window may have another base; positions are not scaled there. Files may tell a base
// without any such layer.
static enum status read_local_rope(struct model *m, struct err *e) {
    float base = m->family->windows_unscaled ? m->hp.rope.base : m->family->local_rope_base;
    if (!m->shape->has_other_angles) return OK;
    if (model_take_float(m, "rope.freq_base_swa", &base, e)) return e->status;
    if (base != 0 && check_positive(m, "rope.freq_base_swa", base, e)) return e->status;
    m->hp.local_rope = (struct rope_numbers){.base = base, .scale = 1, .magnitude = 1};
    return OK;
}

// Heads, which may differ between layers, must have the elements that turn. Layers with a window
// that have no angles of their own turn as many as the others.
static enum status check_turning(const struct model *m, struct err *e) {
    const struct shape *s = m->shape;
    if (s->has_other_angles && s->n_local_rot != s->n_rot && !(m->hp.local_rope.base > 0))
        return unsupported(e, "rope.dimension_count_swa without rope.freq_base_swa", s->n_rot,
                           s->n_local_rot);
    for (int32_t l = 0; l < s->n_layers; l++) {
        const int32_t n_rot = m->windows[l] ? s->n_local_rot : s->n_rot;
        if (n_rot <= m->head_dims[l]) continue;
        err_set(e, ERR_FORMAT, "key %s.rope.dimension_count%s is greater than a head of layer %d",
                s->architecture, m->windows[l] ? "_swa" : "", l);
        err_expected(e, "at most %d", m->head_dims[l]);
        return err_actual(e, "%d", n_rot);
    }
    return OK;
}

// Scores of far positions may be scaled by a temperature, through the angles of queries.
static enum status read_temperature(struct model *m, struct err *e) {
    struct hparams *hp = &m->hp;
    float temperature = 0;
    int32_t period = m->n_ctx_short;
    if (model_take_float(m, "attention.temperature_scale", &temperature, e) ||
        model_take_int(m, "attention.temperature_length", MAX_TRAIN_CONTEXT, &period, e))
        return e->status;
    if (!(temperature > 0)) return OK;
    if (hp->local_rope.base > 0)
        return err_set(e, ERR_UNSUPPORTED, "key %s.attention.temperature_scale beside windows",
                       m->shape->architecture);
    m->shape->has_other_angles = true;
    hp->query_rope = hp->rope;
    // The columns of latent queries turn apart from this.
    if (m->family->attends_latent)
        hp->query_rope = (struct rope_numbers){.base = hp->rope.base, .magnitude = 1};
    hp->query_rope.temperature = temperature;
    hp->query_rope.period = period;
    return OK;
}

// Reads the factors and caps of embedding, attention and logits. Most files hold the divisor of
// logits.
static enum status read_factors(struct model *m, struct err *e) {
    struct hparams *hp = &m->hp;
    const struct shape *s = m->shape;
    float divisor = 0;
    hp->attention_scale = m->family->attention_scale;
    hp->attention_softcap = m->family->attention_softcap;
    hp->logit_softcap = m->family->logit_softcap;
    if (m->family->scales_embedding) hp->embed_scale = sqrtf((float)s->n_embd);
    if (s->n_layers == m->family->n_layers_of_widest)
        hp->attention_scale = sqrtf((float)s->n_heads / (float)s->n_embd);
    if (s->latent.rank) hp->attention_scale = 1 / sqrtf((float)s->latent.key_dim);
    if (read_optional(m, "attention.scale", &hp->attention_scale, e) ||
        read_optional(m, "attn_logit_softcapping", &hp->attention_softcap, e) ||
        read_optional(m, "logit_scale", &divisor, e) ||
        read_optional(m, "final_logit_softcapping", &hp->logit_softcap, e))
        return e->status;
    if (m->family->head_factor > 0) hp->logit_scale = m->family->head_factor / (float)s->n_embd;
    if (divisor > 0) hp->logit_scale = m->family->multiplies_logits ? divisor : 1 / divisor;
    return OK;
}

// Reads the factor of what attention and FFN add to the residual stream. The stream is kept divided
// by it, so that they add what they make: norms of the stream are the same with a greater epsilon.
static enum status read_residual_scale(struct model *m, struct err *e) {
    struct hparams *hp = &m->hp;
    float scale = m->family->depth_factor / sqrtf((float)m->shape->n_layers);
    if (m->family->embed_factor > 0) hp->embed_scale = m->family->embed_factor;
    if (read_optional(m, "embedding_scale", &hp->embed_scale, e) ||
        read_optional(m, "residual_scale", &scale, e))
        return e->status;
    if (m->family->needs_scales && scale == 0) return refuse_missing(m, "residual_scale", e);
    if (scale == 0) scale = 1;
    hp->residual_eps = hp->norm_eps / (scale * scale);
    if (scale != 1) hp->embed_scale = (hp->embed_scale > 0 ? hp->embed_scale : 1) / scale;
    return OK;
}

// Reads which layers are recurrent: flags, or all but the last of each period, or those without KV
// heads.
static enum status read_recurrent_layers(struct model *m, struct err *e) {
    const struct layer_numbers layers = layers_of(m);
    int32_t period = m->family->recurrent_period;
    if (per_layer_read(&layers, "attention.recurrent_layers", 1, -1, m->recurrent, e) ||
        model_take_count(m, "full_attention_interval", MAX_LAYERS, &period, e))
        return e->status;
    for (int32_t l = 0; l < m->shape->n_layers; l++) {
        if (period == 0) m->recurrent[l] = m->n_kv_heads[l] == 0 || m->family->recurs_beside;
        if (m->recurrent[l] < 0) m->recurrent[l] = (l + 1) % period > 0;
    }
    return OK;
}

static enum status refuse_recurrent(const struct model *m, const char *key, struct err *e) {
    return err_set(e, ERR_FORMAT, "key %s.%s does not agree with the others of ssm",
                   m->shape->architecture, key);
}

// Reads the sizes of delta nets, whose heads are as wide as their states, or of Mamba-2.
static enum status read_state_space(struct model *m, struct err *e) {
    struct recurrent_shape *r = &m->shape->recurrent;
    int32_t width = 0, n_state = 0;
    if (model_take_int(m, "ssm.time_step_rank", SHAPE_DELTA_HEADS, &r->n_heads, e) ||
        model_take_int(m, "ssm.group_count", SHAPE_DELTA_HEADS, &r->n_key_heads, e) ||
        model_take_int(m, "ssm.state_size", SHAPE_DELTA_DIM, &n_state, e) ||
        model_take_int(m, "ssm.conv_kernel", SHAPE_DELTA_TAPS, &r->n_taps, e) ||
        model_take_int(m, "ssm.inner_size", SHAPE_WIDTH, &width, e))
        return e->status;
    const bool mamba = r->kind == RECURRENCE_MAMBA;
    r->head_dim = mamba ? width / r->n_heads : n_state;
    r->n_state = mamba ? n_state : 0;
    for (int32_t l = 0; l < m->shape->n_layers; l++)
        r->joins_gates = r->joins_gates || model_layer_has(m, l, ROLE_SSM_BETA_ALPHA);
    if (r->n_heads % r->n_key_heads) return refuse_recurrent(m, "ssm.group_count", e);
    if (r->head_dim == 0 || width != r->n_heads * r->head_dim)
        return refuse_recurrent(m, "ssm.inner_size", e);
    static_assert((int)DELTA_DIM_MAX == (int)MAMBA_STATE_MAX, "one limit for both");
    if (n_state > DELTA_DIM_MAX)
        return unsupported(e, "columns of a recurrent state", DELTA_DIM_MAX, n_state);
    return OK;
}

// Reads the sizes of recurrent layers.
static enum status read_recurrent(struct model *m, struct err *e) {
    struct recurrent_shape *r = &m->shape->recurrent;
    r->kind = m->family->recurrence;
    r->beside = m->family->recurs_beside;
    if (r->kind == RECURRENCE_NONE) return OK;
    m->hp.key_order = m->family->key_order;
    m->shape->has_gated_q = m->family->gates_attention;
    if (read_recurrent_layers(m, e)) return e->status;
    if (r->kind == RECURRENCE_CONV) {
        r->n_channels = m->shape->n_embd;
        if (model_take_int(m, "shortconv.l_cache", SHAPE_DELTA_TAPS, &r->n_taps, e))
            return e->status;
    } else if (read_state_space(m, e)) {
        return e->status;
    }
    if (r->n_taps >= 2 && r->n_taps <= CONV_TAPS_MAX) return OK;
    return unsupported(e, "taps of a short convolution", 4, r->n_taps);
}

// Checks that every layer with attention and a cache of its own has KV heads.
static enum status check_kv_heads(const struct model *m, struct err *e) {
    for (int32_t l = 0; l < m->n_own_caches; l++) {
        const bool attends = m->mixes[l] && (!m->recurrent[l] || m->family->recurs_beside);
        if (!attends || m->n_kv_heads[l]) continue;
        err_set(e, ERR_FORMAT, "%s.attention.head_count_kv of layer %d", m->shape->architecture, l);
        err_expected(e, "at least 1, since the layer is no recurrent one");
        return err_actual(e, "0");
    }
    return OK;
}

// Some families have models without rotary positions, whose files say that they were not trained
// with them, or do not say it.
static enum status read_turning(struct model *m, struct err *e) {
    bool turns = true;
    if (m->shape->n_layers == m->family->n_layers_of_sloped)
        return err_set(
            e, ERR_UNSUPPORTED,
            "%s with %d layers has slopes of scores (ALiBi) in place of rotary positions",
            m->shape->architecture, m->shape->n_layers);
    m->hp.no_rope_period = m->family->no_rope_period;
    if (!m->family->may_not_turn) return OK;
    if (model_take_bool(m, "rope.scaling.finetuned", &turns, e)) return e->status;
    if (!turns) m->hp.no_rope_period = 1;
    return OK;
}

// ln(1 + e^x), which is x where that would overflow
static float softplus(float x) { return x > 30 ? x : (float)log1p(exp((double)x)); }

// Reads the numbers of xIELU, of which files have two that training keeps positive: they are ln(1 +
// e^x) of these. The one below 0 is above the linear part.
static enum status read_xielu(struct model *m, struct err *e) {
    const struct layer_numbers layers = layers_of(m);
    float above[MAX_LAYERS], below[MAX_LAYERS], linear[MAX_LAYERS], top[MAX_LAYERS];
    if (m->hp.glu != GLU_XIELU) return OK;
    if (per_layer_floats(&layers, "xielu.alpha_p", above, e) ||
        per_layer_floats(&layers, "xielu.alpha_n", below, e) ||
        per_layer_floats(&layers, "xielu.beta", linear, e) ||
        per_layer_floats(&layers, "xielu.eps", top, e))
        return e->status;
    for (int32_t l = 0; l < m->shape->n_layers; l++)
        m->hp.xielu[l] = (struct xielu_numbers){.positive = softplus(above[l]),
                                                .negative = linear[l] + softplus(below[l]),
                                                .linear = linear[l],
                                                .top = top[l]};
    return OK;
}

// Large models of two families have a norm of its own for each head, which others lack.
static void read_norms_of_heads(struct model *m) {
    const struct gguf_tensor *norm = gguf_find_tensor(m->gguf, "blk.0.attn_q_norm.weight");
    m->shape->norms_all_heads = m->family->norms_all_heads;
    m->shape->norms_each_head = m->family->norms_centred && norm && norm->n_dims > 1;
}

enum status model_numbers(struct model *m, struct err *e) {
    static const char *const keys[] = {"attention.layer_norm_epsilon",
                                       "attention.layer_norm_rms_epsilon"};
    const bool centred = m->family->norms_centred;
    const char *eps = keys[!centred];
    m->hp.norm_eps = 1e-5f;
    m->hp.glu = m->family->glu;
    m->hp.glu_limit = m->family->glu_limit;
    m->hp.norms_turned = m->family->norms_turned;
    m->hp.norms_centred = m->family->norms_centred;
    m->hp.gates_softly = m->family->gates_softly;
    m->shape->gates_heads = m->family->gates_heads;
    read_norms_of_heads(m);
    if (read_dimensions(m, e) || model_take_float(m, keys[centred], &m->hp.norm_eps, e) ||
        model_take_float(m, eps, &m->hp.norm_eps, e) || check_positive(m, eps, m->hp.norm_eps, e) ||
        read_recurrent(m, e) || check_kv_heads(m, e) || read_turning(m, e) || read_factors(m, e) ||
        read_residual_scale(m, e) || read_rope(m, e) || read_xielu(m, e))
        return e->status;
    return read_local_rope(m, e) || check_turning(m, e) ? e->status : read_temperature(m, e);
}

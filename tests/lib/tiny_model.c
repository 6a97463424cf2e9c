/* tiny_model.c: see tiny_model.h. */
#include "tests/lib/tiny_model.h"

#include "base/mem.h"
#include "kernels/cpu/cpu.h"

#include <fnmatch.h>
#include <stdio.h>
#include <string.h>

// xorshift64*, Vigna 2016; -1..1.
static float noise(uint64_t *state) {
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return (float)(int32_t)(*state * 0x2545f4914f6cdd1du >> 32) / 2147483648.0f;
}

struct builder {
    struct gguf_build *b;
    const char *architecture, *skip;
    bool halves;
    uint64_t state;
};

static bool skipped(const struct builder *t, const char *name) {
    return t->skip && fnmatch(t->skip, name, 0) == 0;
}

// n matrices of a tensor.
static void matrices(struct builder *t, const char *name, uint64_t cols, uint64_t rows, uint64_t n,
                     float scale) {
    uint16_t *data = mem_alloc(cols * rows * n, sizeof *data);
    for (uint64_t i = 0; data && i < cols * rows * n; i++)
        data[i] = float_to_half(scale * noise(&t->state));
    if (!skipped(t, name))
        gguf_build_tensor(t->b, name, n > 1 ? 3 : 2, (uint64_t[]){cols, rows, n}, DTYPE_F16, data);
    mem_free(data);
}

static void matrix(struct builder *t, const char *name, uint64_t cols, uint64_t rows, float scale) {
    matrices(t, name, cols, rows, 1, scale);
}

// A tensor that is F32 in most files.
static void floats(struct builder *t, const char *name, int n_dims, const uint64_t *ne,
                   const float *data) {
    uint16_t halves[TINY_FF * TINY_MAX_EXPERTS];
    const uint64_t count = ne[0] * (n_dims > 1 ? ne[1] : 1);
    if (skipped(t, name)) return;
    for (uint64_t i = 0; i < count; i++) halves[i] = float_to_half(data[i]);
    if (t->halves)
        gguf_build_tensor(t->b, name, n_dims, ne, DTYPE_F16, halves);
    else
        gguf_build_tensor(t->b, name, n_dims, ne, DTYPE_F32, data);
}

static void vector(struct builder *t, const char *name, uint64_t count, float middle, float scale) {
    float data[TINY_VOCAB];
    for (uint64_t i = 0; i < count; i++) data[i] = middle + scale * noise(&t->state);
    floats(t, name, 1, &count, data);
}

static void number(struct builder *t, const char *name, uint32_t value) {
    char key[64];
    snprintf(key, sizeof key, "%s.%s", t->architecture, name);
    if (!skipped(t, key)) gguf_build_int(t->b, key, GGUF_U32, value);
}

// One token per byte, as byte-level BPE spells them, then 16 words, less those without a token.
static void vocabulary(struct builder *t, int padding) {
    static char texts[TINY_VOCAB][8];
    const char *tokens[TINY_VOCAB];
    int32_t types[TINY_VOCAB];
    int next = 256;
    for (int i = 0; i < TINY_VOCAB; i++) {
        bool plain = (i >= 33 && i <= 126) || (i >= 161 && i <= 172) || i >= 174;
        int code = plain ? i : next++;
        if (i >= 256)
            snprintf(texts[i], sizeof texts[i], "<s%d>", i);
        else if (code < 0x80)
            snprintf(texts[i], sizeof texts[i], "%c", code);
        else
            snprintf(texts[i], sizeof texts[i], "%c%c", 0xc0 | code >> 6, 0x80 | (code & 63));
        tokens[i] = texts[i];
        types[i] = i >= 256 ? 3 : 1;
    }
    gguf_build_text(t->b, "tokenizer.ggml.model", "gpt2");
    gguf_build_text(t->b, "tokenizer.ggml.pre", "gpt-2");
    const uint64_t n_tokens = (uint64_t)(TINY_VOCAB - padding);
    gguf_build_texts(t->b, "tokenizer.ggml.tokens", tokens, n_tokens);
    gguf_build_ints(t->b, "tokenizer.ggml.token_type", types, n_tokens);
    gguf_build_texts(t->b, "tokenizer.ggml.merges", (const char *const[]){"a b"}, 0);
    gguf_build_int(t->b, "tokenizer.ggml.eos_token_id", GGUF_U32, 256);
}

static void tempered_keys(struct builder *t) {
    char key[64];
    snprintf(key, sizeof key, "%s.rope.scaling.type", t->architecture);
    gguf_build_text(t->b, key, "yarn");
    snprintf(key, sizeof key, "%s.rope.scaling.factor", t->architecture);
    gguf_build_f32(t->b, key, 16);
    snprintf(key, sizeof key, "%s.attention.temperature_scale", t->architecture);
    gguf_build_f32(t->b, key, 0.1f);
    number(t, "rope.scaling.original_context_length", 64);
}

// True for delta nets, between which attention is gated and norms have other names.
static bool is_delta(const struct tiny_model *m) {
    return m->delta_period && !m->convolves && !m->scans && !m->scans_beside;
}

// Short convolutions and Mamba-2 are in the layers without KV heads.
static void kv_heads(struct builder *t, const struct tiny_model *m) {
    int32_t n[TINY_MAX_LAYERS];
    char key[64];
    if (!m->convolves && !m->scans) {
        number(t, "attention.head_count_kv", TINY_KV_HEADS);
        return;
    }
    for (int l = 0; l < m->n_layers; l++) n[l] = (l + 1) % m->delta_period ? 0 : TINY_KV_HEADS;
    snprintf(key, sizeof key, "%s.attention.head_count_kv", t->architecture);
    gguf_build_ints(t->b, key, n, (uint64_t)m->n_layers);
}

static int heads_of(const struct tiny_model *m, int l) {
    return m->other_heads && l % 2 ? m->other_heads : TINY_HEADS;
}

static void query_heads(struct builder *t, const struct tiny_model *m) {
    int32_t n[TINY_MAX_LAYERS];
    char key[64];
    if (!m->other_heads) {
        number(t, "attention.head_count", TINY_HEADS);
        return;
    }
    for (int l = 0; l < m->n_layers; l++) n[l] = heads_of(m, l);
    snprintf(key, sizeof key, "%s.attention.head_count", t->architecture);
    if (!skipped(t, key)) gguf_build_ints(t->b, key, n, (uint64_t)m->n_layers);
}

static void recurrent_keys(struct builder *t, const struct tiny_model *m) {
    char key[64];
    if (m->convolves) {
        number(t, "shortconv.l_cache", TINY_DELTA_TAPS);
        return;
    }
    const bool scans = m->scans || m->scans_beside;
    if (!scans) number(t, "full_attention_interval", (uint32_t)m->delta_period);
    snprintf(key, sizeof key, "%s.rope.scaling.finetuned", t->architecture);
    if (m->scans) gguf_build_int(t->b, key, GGUF_BOOL, 1);
    number(t, "ssm.time_step_rank", TINY_DELTA_HEADS);
    number(t, "ssm.group_count", TINY_DELTA_KEYS);
    number(t, "ssm.state_size", scans ? TINY_MAMBA_STATE : TINY_DELTA_DIM);
    number(t, "ssm.conv_kernel", TINY_DELTA_TAPS);
    number(t, "ssm.inner_size", TINY_DELTA_HEADS * TINY_DELTA_DIM);
}

static void keys(struct builder *t, const struct tiny_model *m) {
    char key[64];
    gguf_build_text(t->b, "general.architecture", t->architecture);
    gguf_build_text(t->b, "general.name", "tiny");
    number(t, "block_count", (uint32_t)m->n_layers);
    number(t, "context_length", 512);
    number(t, "embedding_length", TINY_EMBD);
    number(t, "feed_forward_length", TINY_FF);
    query_heads(t, m);
    kv_heads(t, m);
    if (m->head_dim) {
        number(t, "attention.key_length", (uint32_t)m->head_dim);
        number(t, "attention.value_length", (uint32_t)m->head_dim);
    }
    snprintf(key, sizeof key, "%s.attention.layer_norm_rms_epsilon", t->architecture);
    gguf_build_f32(t->b, key, 1e-5f);
    if (m->capped) {
        snprintf(key, sizeof key, "%s.logit_scale", t->architecture);
        gguf_build_f32(t->b, key, 2);
        snprintf(key, sizeof key, "%s.final_logit_softcapping", t->architecture);
        gguf_build_f32(t->b, key, 5);
    }
    static const char *const scales[] = {"embedding_scale", "residual_scale", "attention.scale"};
    for (int i = 0; m->scaled && i < 3; i++) {
        snprintf(key, sizeof key, "%s.%s", t->architecture, scales[i]);
        gguf_build_f32(t->b, key, (const float[]){3, 0.5f, 0.2f}[i]);
    }
    if (m->tempered) tempered_keys(t);
    if (m->local_head_dim) {
        number(t, "attention.key_length_swa", (uint32_t)m->local_head_dim);
        number(t, "attention.value_length_swa", (uint32_t)m->local_head_dim);
        number(t, "rope.dimension_count_swa", (uint32_t)m->local_head_dim);
    }
    if (m->n_sharing) number(t, "attention.shared_kv_layers", (uint32_t)m->n_sharing);
    if (m->n_inputs) number(t, "embedding_length_per_layer_input", (uint32_t)m->n_inputs);
    if (m->window) number(t, "attention.sliding_window", (uint32_t)m->window);
    if (m->window) number(t, "attention.sliding_window_pattern", 2);
    if (m->delta_period) recurrent_keys(t, m);
    if (m->latent_rank) {
        number(t, "attention.kv_lora_rank", (uint32_t)m->latent_rank);
        number(t, "attention.key_length_mla", TINY_LATENT_KEY);
        number(t, "attention.value_length_mla", TINY_LATENT_VALUE);
        number(t, "rope.dimension_count", TINY_LATENT_ROT);
        number(t, "attention.q_lora_rank", TINY_QUERY_RANK);
    }
    if (!m->n_experts) return;
    number(t, "expert_count", (uint32_t)m->n_experts);
    number(t, "expert_used_count", 2);
    if (m->shared) number(t, "expert_shared_feed_forward_length", TINY_FF);
}

static int head_dim(const struct tiny_model *m) {
    return m->head_dim ? m->head_dim : TINY_HEAD_DIM;
}

// A tensor of a convolution, F32.
static void taps(struct builder *t, int l, const char *name, uint64_t n_channels) {
    float conv[4 * TINY_EMBD * TINY_DELTA_TAPS];
    char full[64];
    for (uint64_t i = 0; i < n_channels * TINY_DELTA_TAPS; i++) conv[i] = noise(&t->state);
    snprintf(full, sizeof full, "blk.%d.%s.weight", l, name);
    if (!skipped(t, full))
        gguf_build_tensor(t->b, full, 2, (uint64_t[]){TINY_DELTA_TAPS, n_channels}, DTYPE_F32,
                          conv);
}

static void delta_net(struct builder *t, const struct tiny_model *m, int l) {
    enum { WIDTH = TINY_DELTA_HEADS * TINY_DELTA_DIM };
    enum { CHANNELS = WIDTH + 2 * TINY_DELTA_KEYS * TINY_DELTA_DIM };
    static const struct {
        const char *name;
        uint64_t cols, rows;
    } matrices[] = {
        {"attn_qkv", TINY_EMBD, CHANNELS},           {"attn_gate", TINY_EMBD, WIDTH},
        {"ssm_alpha", TINY_EMBD, TINY_DELTA_HEADS},  {"ssm_beta", TINY_EMBD, TINY_DELTA_HEADS},
        {"ssm_ba", TINY_EMBD, 2 * TINY_DELTA_HEADS}, {"ssm_out", WIDTH, TINY_EMBD}};
    char name[64];
    for (int i = 0; i < 6; i++) {
        if (m->joined ? i == 2 || i == 3 : i == 4) continue;
        snprintf(name, sizeof name, "blk.%d.%s.weight", l, matrices[i].name);
        matrix(t, name, matrices[i].cols, matrices[i].rows, 0.25f);
    }
    taps(t, l, "ssm_conv1d", CHANNELS);
    snprintf(name, sizeof name, "blk.%d.ssm_a", l);
    vector(t, name, TINY_DELTA_HEADS, -0.5f, 0.45f);
    snprintf(name, sizeof name, "blk.%d.ssm_dt.bias", l);
    vector(t, name, TINY_DELTA_HEADS, -1, 1);
    snprintf(name, sizeof name, "blk.%d.ssm_norm.weight", l);
    vector(t, name, TINY_DELTA_DIM, 1, 0.2f);
}

static void short_convolution(struct builder *t, int l) {
    char name[64];
    snprintf(name, sizeof name, "blk.%d.shortconv.in_proj.weight", l);
    matrix(t, name, TINY_EMBD, 3 * (uint64_t)TINY_EMBD, 0.25f);
    snprintf(name, sizeof name, "blk.%d.shortconv.out_proj.weight", l);
    matrix(t, name, TINY_EMBD, TINY_EMBD, 0.25f);
    taps(t, l, "shortconv.conv", TINY_EMBD);
}

static void mamba(struct builder *t, int l) {
    enum { WIDTH = TINY_DELTA_HEADS * TINY_DELTA_DIM };
    enum { CHANNELS = WIDTH + 2 * TINY_DELTA_KEYS * TINY_MAMBA_STATE };
    static const struct {
        const char *name;
        uint64_t ne[2];
        float middle, scale;
    } vectors[] = {{"ssm_a", {1, TINY_DELTA_HEADS}, -0.5f, 0.45f},
                   {"ssm_d", {1, TINY_DELTA_HEADS}, 1, 0.2f},
                   {"ssm_norm.weight", {WIDTH / TINY_DELTA_KEYS, TINY_DELTA_KEYS}, 1, 0.2f}};
    float data[WIDTH];
    char name[64];
    snprintf(name, sizeof name, "blk.%d.ssm_in.weight", l);
    matrix(t, name, TINY_EMBD, WIDTH + CHANNELS + TINY_DELTA_HEADS, 0.25f);
    snprintf(name, sizeof name, "blk.%d.ssm_out.weight", l);
    matrix(t, name, WIDTH, TINY_EMBD, 0.25f);
    taps(t, l, "ssm_conv1d", CHANNELS);
    snprintf(name, sizeof name, "blk.%d.ssm_conv1d.bias", l);
    vector(t, name, CHANNELS, 0, 0.2f);
    snprintf(name, sizeof name, "blk.%d.ssm_dt.bias", l);
    vector(t, name, TINY_DELTA_HEADS, -1, 1);
    for (int i = 0; i < 3; i++) {
        const uint64_t count = vectors[i].ne[0] * vectors[i].ne[1];
        for (uint64_t k = 0; k < count; k++)
            data[k] = vectors[i].middle + vectors[i].scale * noise(&t->state);
        snprintf(name, sizeof name, "blk.%d.%s", l, vectors[i].name);
        floats(t, name, 2, vectors[i].ne, data);
    }
}

static void latent_attention(struct builder *t, const struct tiny_model *m, int l) {
    const uint64_t rank = (uint64_t)m->latent_rank, q = (uint64_t)TINY_HEADS * TINY_LATENT_KEY;
    const struct {
        const char *name;
        uint64_t cols, rows, n;
    } tensors[] = {
        {"attn_q", TINY_EMBD, m->low_queries ? 0 : q, 1},
        {"attn_q_a", TINY_EMBD, m->low_queries ? TINY_QUERY_RANK : 0, 1},
        {"attn_q_b", TINY_QUERY_RANK, m->low_queries ? q : 0, 1},
        {"attn_kv_a_mqa", TINY_EMBD, rank + TINY_LATENT_ROT, 1},
        {"attn_k_b", TINY_LATENT_KEY - TINY_LATENT_ROT, rank, TINY_HEADS},
        {"attn_v_b", rank, TINY_LATENT_VALUE, TINY_HEADS},
        {"attn_output", (uint64_t)TINY_HEADS * TINY_LATENT_VALUE, TINY_EMBD, 1},
    };
    char name[64];
    for (int i = 0; i < 7; i++) {
        snprintf(name, sizeof name, "blk.%d.%s.weight", l, tensors[i].name);
        if (!tensors[i].rows) continue;
        matrices(t, name, tensors[i].cols, tensors[i].rows, tensors[i].n, 0.25f);
    }
    snprintf(name, sizeof name, "blk.%d.attn_q_a_norm.weight", l);
    if (m->low_queries) vector(t, name, TINY_QUERY_RANK, 1, 0.2f);
    snprintf(name, sizeof name, "blk.%d.attn_kv_a_norm.weight", l);
    vector(t, name, rank, 1, 0.2f);
}

static void attention(struct builder *t, const struct tiny_model *m, int l) {
    const int dim = m->local_head_dim && l % 2 == 0 ? m->local_head_dim : head_dim(m);
    const bool shares = l >= m->n_layers - m->n_sharing;
    const int n_heads = heads_of(m, l);
    const uint64_t q = (uint64_t)(n_heads * dim);
    const uint64_t q_rows = is_delta(m) ? 2 * q : q;
    const uint64_t kv = (uint64_t)(TINY_KV_HEADS * dim);
    const struct {
        const char *name;
        uint64_t cols, rows;
    } tensors[] = {{"attn_q", TINY_EMBD, q_rows},
                   {"attn_k", TINY_EMBD, kv},
                   {"attn_v", TINY_EMBD, kv},
                   {"attn_output", q, TINY_EMBD},
                   {"attn_qkv", TINY_EMBD, q + 2 * kv}};
    char name[64];
    for (int i = m->fused ? 3 : 0; i < (m->fused ? 5 : 4); i++) {
        if (shares && (i == 1 || i == 2)) continue;
        snprintf(name, sizeof name, "blk.%d.%s.weight", l, tensors[i].name);
        matrix(t, name, tensors[i].cols, tensors[i].rows, 0.25f);
        if (!m->biased) continue;
        snprintf(name, sizeof name, "blk.%d.%s.bias", l, tensors[i].name);
        vector(t, name, tensors[i].rows, 0, 0.2f);
    }
    snprintf(name, sizeof name, "blk.%d.attn_gate.weight", l);
    const uint64_t gates = m->gates_heads ? (uint64_t)n_heads : q;
    if (m->gated_apart) matrix(t, name, TINY_EMBD, gates, 0.25f);
    snprintf(name, sizeof name, "blk.%d.attn_sinks.weight", l);
    if (m->sinks) vector(t, name, TINY_HEADS, 0, 1);
    for (int i = 0; m->normed && i < (shares ? 1 : 2); i++) {
        snprintf(name, sizeof name, "blk.%d.%s_norm.weight", l, tensors[i].name);
        vector(t, name, m->normed_whole ? tensors[i].rows : (uint64_t)dim, 1, 0.2f);
    }
}

static void expert_biases(struct builder *t, int l, uint64_t n) {
    static const char *const names[] = {"ffn_gate_exps", "ffn_up_exps", "ffn_down_exps"};
    float biases[TINY_FF * TINY_MAX_EXPERTS];
    char name[64];
    for (int i = 0; i < 3; i++) {
        const uint64_t rows = i < 2 ? TINY_FF : TINY_EMBD;
        for (uint64_t k = 0; k < rows * n; k++) biases[k] = 0.2f * noise(&t->state);
        snprintf(name, sizeof name, "blk.%d.%s.bias", l, names[i]);
        floats(t, name, 2, (uint64_t[]){rows, n}, biases);
    }
    snprintf(name, sizeof name, "blk.%d.ffn_gate_inp.bias", l);
    vector(t, name, n, 0, 0.2f);
}

static void shared_expert(struct builder *t, int l) {
    static const char *const names[] = {"ffn_gate", "ffn_up", "ffn_down"};
    char name[64];
    for (int i = 0; i < 3; i++) {
        snprintf(name, sizeof name, "blk.%d.%s_shexp.weight", l, names[i]);
        matrix(t, name, i < 2 ? TINY_EMBD : TINY_FF, i < 2 ? TINY_FF : TINY_EMBD, 0.25f);
    }
    snprintf(name, sizeof name, "blk.%d.ffn_gate_inp_shexp.weight", l);
    vector(t, name, TINY_EMBD, 0, 0.3f);
}

// Experts in the order of early files.
static void experts_apart(struct builder *t, int l, int n) {
    static const char *const names[] = {"ffn_gate", "ffn_down", "ffn_up"};
    char name[64];
    for (int i = 0; i < 3 * n; i++) {
        const bool down = i % 3 == 1;
        snprintf(name, sizeof name, "blk.%d.%s.%d.weight", l, names[i % 3], i / 3);
        matrix(t, name, down ? TINY_FF : TINY_EMBD, down ? TINY_EMBD : TINY_FF, 0.25f);
    }
}

// A dense FFN beside the experts, whose gates and ups are one tensor, and the vectors of both.
static void experts_beside(struct builder *t, int l, uint64_t n) {
    static const char *const names[] = {"ffn_gate", "ffn_up", "ffn_down"};
    static const char *const norms[] = {"ffn_gate_inp.scale", "pre_ffw_norm_2.weight",
                                        "post_ffw_norm_1.weight", "post_ffw_norm_2.weight"};
    char name[64];
    for (int i = 0; i < 3; i++) {
        snprintf(name, sizeof name, "blk.%d.%s.weight", l, names[i]);
        matrix(t, name, i < 2 ? TINY_EMBD : TINY_FF, i < 2 ? TINY_FF : TINY_EMBD, 0.25f);
    }
    snprintf(name, sizeof name, "blk.%d.ffn_gate_up_exps.weight", l);
    matrices(t, name, TINY_EMBD, 2 * TINY_FF, n, 0.25f);
    snprintf(name, sizeof name, "blk.%d.ffn_down_exps.weight", l);
    matrices(t, name, TINY_FF, TINY_EMBD, n, 0.25f);
    for (int i = 0; i < 4; i++) {
        snprintf(name, sizeof name, "blk.%d.%s", l, norms[i]);
        vector(t, name, TINY_EMBD, 1, 0.2f);
    }
    snprintf(name, sizeof name, "blk.%d.ffn_down_exps.scale", l);
    vector(t, name, n, 1, 0.2f);
}

// The input of a layer, and the factor of all of it.
static void layer_input(struct builder *t, int l, uint64_t n_inputs) {
    char name[64];
    snprintf(name, sizeof name, "blk.%d.inp_gate.weight", l);
    matrix(t, name, TINY_EMBD, n_inputs, 0.25f);
    snprintf(name, sizeof name, "blk.%d.proj.weight", l);
    matrix(t, name, n_inputs, TINY_EMBD, 0.25f);
    snprintf(name, sizeof name, "blk.%d.post_norm.weight", l);
    vector(t, name, TINY_EMBD, 1, 0.2f);
    snprintf(name, sizeof name, "blk.%d.layer_output_scale.weight", l);
    vector(t, name, 1, 0.8f, 0.1f);
}

// A router, whose matrix is F32, and three matrices for each expert.
static void ffn(struct builder *t, const struct tiny_model *m, int l) {
    static const char *const names[] = {"ffn_gate", "ffn_up", "ffn_down"};
    const uint64_t n = m->n_experts ? (uint64_t)m->n_experts : 1;
    float router[TINY_EMBD * TINY_MAX_EXPERTS];
    char name[64];
    if (m->apart) experts_apart(t, l, m->n_experts);
    if (m->beside) experts_beside(t, l, n);
    for (int i = m->fused || m->ungated ? 1 : 0; i < 3 && !m->apart && !m->beside; i++) {
        const uint64_t cols = i < 2 ? TINY_EMBD : TINY_FF, rows = i == 2     ? TINY_EMBD
                                                                  : m->fused ? 2 * TINY_FF
                                                                             : TINY_FF;
        snprintf(name, sizeof name, "blk.%d.%s%s.weight", l, names[i], m->n_experts ? "_exps" : "");
        matrices(t, name, cols, rows, n, 0.25f);
    }
    if (!m->n_experts) return;
    for (uint64_t i = 0; i < n * TINY_EMBD; i++) router[i] = noise(&t->state);
    snprintf(name, sizeof name, "blk.%d.ffn_gate_inp.weight", l);
    floats(t, name, 2, (uint64_t[]){TINY_EMBD, n}, router);
    if (m->biased) expert_biases(t, l, n);
    snprintf(name, sizeof name, "blk.%d.exp_probs_b.bias", l);
    if (m->selected) vector(t, name, n, 0, 0.5f);
    if (m->shared) shared_expert(t, l);
}

// A norm before attention, the FFN or the head.
static void norm_before(struct builder *t, const struct tiny_model *m, const char *prefix) {
    char name[64];
    snprintf(name, sizeof name, "%s.weight", prefix);
    vector(t, name, TINY_EMBD, 1, 0.2f);
    snprintf(name, sizeof name, "%s.bias", prefix);
    if (m->norm_biases) vector(t, name, TINY_EMBD, 0, 0.2f);
}

static void norms_before(struct builder *t, const struct tiny_model *m, int l) {
    char name[64];
    if (m->no_norms) return;
    snprintf(name, sizeof name, "blk.%d.attn_norm", l);
    norm_before(t, m, name);
    snprintf(name, sizeof name, "blk.%d.%s", l,
             m->sinks || is_delta(m) ? "post_attention_norm" : "ffn_norm");
    if (!m->side_by_side) norm_before(t, m, name);
    if (!m->norm_biases) return;
    snprintf(name, sizeof name, "blk.%d.ffn_up.bias", l);
    vector(t, name, TINY_FF, 0, 0.2f);
    snprintf(name, sizeof name, "blk.%d.ffn_down.bias", l);
    vector(t, name, TINY_EMBD, 0, 0.2f);
}

static void layer(struct builder *t, const struct tiny_model *m, int l) {
    char name[64];
    const bool recurrent = m->delta_period && (l + 1) % m->delta_period;
    if (recurrent && m->convolves)
        short_convolution(t, l);
    else if (recurrent && m->scans)
        mamba(t, l);
    else if (recurrent)
        delta_net(t, m, l);
    else if (m->latent_rank)
        latent_attention(t, m, l);
    else
        attention(t, m, l);
    if (m->scans_beside) mamba(t, l);
    ffn(t, m, l);
    norms_before(t, m, l);
    if (m->n_inputs) layer_input(t, l, (uint64_t)m->n_inputs);
    static const char *const last[] = {"post_attention_norm", "post_ffw_norm"};
    for (int i = 0; m->ends_with_norms && i < 2; i++) {
        snprintf(name, sizeof name, "blk.%d.%s.weight", l, last[i]);
        vector(t, name, TINY_EMBD, 1, 0.2f);
    }
}

void tiny_model_build(struct gguf_build *b, const struct tiny_model *m, const char *skip) {
    struct builder t = {b, m->architecture ? m->architecture : "llama", skip, m->halves,
                        m->seed * 2 + 88172645463325252u};
    gguf_build_init(b);
    keys(&t, m);
    vocabulary(&t, m->padding);
    matrix(&t, "token_embd.weight", TINY_EMBD, TINY_VOCAB, 1);
    norm_before(&t, m, "output_norm");
    if (m->n_inputs) {
        const uint64_t width = (uint64_t)(m->n_inputs * m->n_layers);
        matrix(&t, "per_layer_token_embd.weight", width, TINY_VOCAB, 0.5f);
        matrix(&t, "per_layer_model_proj.weight", TINY_EMBD, width, 0.25f);
        vector(&t, "per_layer_proj_norm.weight", (uint64_t)m->n_inputs, 1, 0.2f);
    }
    if (!m->tied) matrix(&t, "output.weight", TINY_EMBD, TINY_VOCAB, 1);
    if (m->freqs) vector(&t, "rope_freqs.weight", (uint64_t)head_dim(m) / 2, 4, 3);
    for (int l = 0; l < m->n_layers; l++) layer(&t, m, l);
}

void tiny_model_write(const struct tiny_model *m, const char *path) {
    struct gguf_build b;
    tiny_model_build(&b, m, NULL);
    gguf_build_finish(&b);
    gguf_build_write(&b, path);
    gguf_build_close(&b);
}

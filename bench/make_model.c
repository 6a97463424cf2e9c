/* make_model.c: writes a llama or qwen3moe model of any shape with random weights, to measure
 * speed.
 *
 *   make_model FILE [layers=32] [embd=4096] [ff=14336] [heads=32] [kv=8] [head_dim=embd/heads]
 *              [vocab=128256] [type=Q4_K_M] [experts=0] [used=8]
 *
 * The defaults are those of an 8B model in Q4_K_M (4.9 GB): the matrices are Q4_K but for half of v
 * and down and the output, which are Q6_K. type may be any weight type instead. With experts the
 * model is a qwen3moe whose experts have ff rows each. The weights are random, in the range of a
 * model's whose training begins: what a layer adds is small beside a token's embedding. Otherwise
 * the average that attention takes would grow from layer to layer until all tokens look alike and
 * go to the same experts. Only one chunk is in memory at a time.
 */
#include "base/mem.h"
#include "bench/lib/random_weights.h"
#include "tests/lib/gguf_build.h"
#include "tests/lib/vocab_build.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK_BLOCKS = 65521, MAX_TENSORS = 16384, TEXT_BYTES = 16 };

struct model {
    uint64_t layers, embd, ff, heads, kv, head_dim, vocab;
    uint64_t experts, used; // 0: a dense model
    bool mixed;             // Q4_K_M
    enum weight_type type;  // of all matrices, if not mixed
};

struct record { // of a tensor whose bytes follow later
    enum weight_type type;
    uint64_t count;
    float deviation; // 0: a norm, all ones
};

struct writer {
    struct gguf_build build;
    struct record *records; // [MAX_TENSORS]
    int n_records;
    uint64_t data_bytes;
};

// Adds a tensor of slices matrices, 0: one matrix; rows 0: a norm. size: of its products, if x has
// numbers around 1.
static void add(struct writer *w, const char *name, const uint64_t ne[3], enum weight_type type,
                float size) {
    const bool norm = ne[1] == 0;
    const uint64_t slices = ne[2] ? ne[2] : 1, count = norm ? ne[0] : ne[0] * ne[1] * slices;
    ASSERT(w->n_records < MAX_TENSORS);
    w->data_bytes = round_up(w->data_bytes, w->build.alignment);
    gguf_build_record(&w->build, name,
                      norm    ? 1
                      : ne[2] ? 3
                              : 2,
                      ne, weight_dtype(type), w->data_bytes);
    w->data_bytes += dtype_bytes(weight_dtype(type), count);
    w->records[w->n_records++] =
        (struct record){type, count, norm ? 0 : size / sqrtf((float)ne[0])};
}

// Q4_K_M keeps more bits in v and down of the first and last eighth of the layers, and of every
// third between.
static bool more_bits(const struct model *m, uint64_t layer) {
    const uint64_t eighth = m->layers / 8;
    return layer < eighth || layer >= 7 * eighth || (layer - eighth) % 3 == 2;
}

struct tensor {
    const char *name;
    uint64_t ne[3]; // columns, rows, experts
    enum weight_type type;
    float size; // as in add
};

static void add_tensors(struct writer *w, uint64_t layer, const struct tensor *tensors, size_t n) {
    for (size_t i = 0; i < n; i++) {
        char name[64];
        snprintf(name, sizeof name, "blk.%llu.%s.weight", (unsigned long long)layer,
                 tensors[i].name);
        add(w, name, tensors[i].ne, tensors[i].type, tensors[i].size);
    }
}

static void add_layer(struct writer *w, const struct model *m, uint64_t layer) {
    const uint64_t q = m->head_dim * m->heads, kv = m->head_dim * m->kv;
    const enum weight_type plain = m->mixed ? WEIGHT_Q4_K : m->type;
    const enum weight_type fine = m->mixed && more_bits(m, layer) ? WEIGHT_Q6_K : plain;
    const float added = 1 / sqrtf(2 * (float)m->layers); // to the residual stream, two a layer
    const struct tensor attention[] = {
        {"attn_norm", {m->embd}, WEIGHT_F32, 1},     {"attn_q", {m->embd, q}, plain, 1},
        {"attn_k", {m->embd, kv}, plain, 1},         {"attn_v", {m->embd, kv}, fine, 1},
        {"attn_output", {q, m->embd}, plain, added}, {"ffn_norm", {m->embd}, WEIGHT_F32, 1},
    };
    const struct tensor dense[] = {
        {"ffn_gate", {m->embd, m->ff}, plain, 1},
        {"ffn_up", {m->embd, m->ff}, plain, 1},
        {"ffn_down", {m->ff, m->embd}, fine, added},
    };
    const struct tensor experts[] = {
        {"attn_q_norm", {m->head_dim}, WEIGHT_F32, 1},
        {"attn_k_norm", {m->head_dim}, WEIGHT_F32, 1},
        {"ffn_gate_inp", {m->embd, m->experts}, WEIGHT_F32, 1},
        {"ffn_gate_exps", {m->embd, m->ff, m->experts}, plain, 1},
        {"ffn_up_exps", {m->embd, m->ff, m->experts}, plain, 1},
        {"ffn_down_exps", {m->ff, m->embd, m->experts}, fine, added},
    };
    add_tensors(w, layer, attention, sizeof attention / sizeof *attention);
    if (m->experts)
        add_tensors(w, layer, experts, sizeof experts / sizeof *experts);
    else
        add_tensors(w, layer, dense, sizeof dense / sizeof *dense);
}

// As many tokens as the output has rows, which other programs ask for: bytes, so that the model
// takes any text, but for 0, which ends one; then numbers.
static void add_vocabulary(struct gguf_build *b, uint64_t n) {
    char(*texts)[TEXT_BYTES] = mem_alloc(n, sizeof *texts);
    const char **tokens = mem_alloc(n, sizeof *tokens);
    struct vocab_build *bytes = mem_alloc(1, sizeof *bytes);
    ASSERT(texts);
    ASSERT(tokens);
    ASSERT(bytes);
    vocab_init_bpe(bytes);
    for (uint64_t i = 0; i < n; i++) {
        snprintf(texts[i], sizeof texts[i], "<%d>", (int)i);
        tokens[i] = i > 0 && i < bytes->n_tokens ? bytes->tokens[i] : texts[i];
    }
    gguf_build_text(b, "tokenizer.ggml.model", "gpt2");
    gguf_build_text(b, "tokenizer.ggml.pre", "gpt-2");
    gguf_build_texts(b, "tokenizer.ggml.tokens", tokens, n);
    gguf_build_texts(b, "tokenizer.ggml.merges", tokens, 0);
    gguf_build_int(b, "tokenizer.ggml.eos_token_id", GGUF_U32, 0);
    mem_free(bytes);
    mem_free(texts);
    mem_free(tokens);
}

static void add_keys(struct gguf_build *b, const struct model *m) {
    const char *family = m->experts ? "qwen3moe" : "llama";
    const struct {
        const char *key;
        uint64_t value; // 0: the key is left out
    } numbers[] = {
        {"block_count", m->layers},
        {"context_length", 8192},
        {"embedding_length", m->embd},
        {"feed_forward_length", m->ff},
        {"attention.head_count", m->heads},
        {"attention.head_count_kv", m->kv},
        {"attention.key_length", m->head_dim},
        {"attention.value_length", m->head_dim},
        {"rope.dimension_count", m->head_dim},
        {"expert_count", m->experts},
        {"expert_used_count", m->experts ? m->used : 0},
        {"expert_feed_forward_length", m->experts ? m->ff : 0},
    };
    char key[64];
    gguf_build_text(b, "general.architecture", family);
    gguf_build_text(b, "general.name", "random");
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        snprintf(key, sizeof key, "%s.%s", family, numbers[i].key);
        if (numbers[i].value) gguf_build_int(b, key, GGUF_U32, numbers[i].value);
    }
    snprintf(key, sizeof key, "%s.attention.layer_norm_rms_epsilon", family);
    gguf_build_f32(b, key, 1e-5F);
    snprintf(key, sizeof key, "%s.rope.freq_base", family);
    gguf_build_f32(b, key, 500000);
}

static bool write_tensor(FILE *out, const struct record *r, char *chunk, uint64_t *state) {
    const struct dtype_info *info = dtype_find((uint32_t)weight_dtype(r->type));
    uint64_t blocks = r->count / info->block_elements;
    if (r->deviation == 0) {
        for (uint64_t i = 0; i < r->count; i++) ((float *)chunk)[i] = 1;
        return fwrite(chunk, info->block_bytes, blocks, out) == blocks;
    }
    // The same chunk is written again and again; its length is prime, so rows differ.
    random_weights(r->type, chunk, CHUNK_BLOCKS * (uint64_t)info->block_elements, r->deviation,
                   state);
    while (blocks > 0) {
        const uint64_t n = blocks < CHUNK_BLOCKS ? blocks : CHUNK_BLOCKS;
        if (fwrite(chunk, info->block_bytes, n, out) != n) return false;
        blocks -= n;
    }
    return true;
}

static bool write_model(struct writer *w, const char *path) {
    static const char zeros[64];
    FILE *out = fopen(path, "wb");
    char *chunk = mem_alloc(CHUNK_BLOCKS, 256); // the largest block has 210 bytes
    uint64_t state = 88172645463325252u, at = 0;
    gguf_build_finish(&w->build);
    bool good = out && chunk &&
                fwrite(w->build.file.bytes, 1, w->build.file.size, out) == w->build.file.size;
    for (int i = 0; i < w->n_records && good; i++) {
        const uint64_t start = round_up(at, w->build.alignment);
        const struct record *r = &w->records[i];
        good =
            fwrite(zeros, 1, start - at, out) == start - at && write_tensor(out, r, chunk, &state);
        at = start + dtype_bytes(weight_dtype(r->type), r->count);
    }
    if (out && fclose(out) != 0) good = false;
    mem_free(chunk);
    return good;
}

static bool set_type(struct model *m, const char *name) {
    if (strcmp(name, "Q4_K_M") == 0) return true;
    m->mixed = false;
    for (int t = 0; t < WEIGHT_COUNT; t++) {
        m->type = (enum weight_type)t;
        if (strcmp(dtype_name(weight_dtype(m->type)), name) == 0) return true;
    }
    return false;
}

static bool set(struct model *m, const char *argument) {
    const struct {
        const char *name;
        uint64_t *value;
    } numbers[] = {{"layers=", &m->layers}, {"embd=", &m->embd},       {"ff=", &m->ff},
                   {"heads=", &m->heads},   {"kv=", &m->kv},           {"head_dim=", &m->head_dim},
                   {"vocab=", &m->vocab},   {"experts=", &m->experts}, {"used=", &m->used}};
    if (strncmp(argument, "type=", 5) == 0) return set_type(m, argument + 5);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        const size_t length = strlen(numbers[i].name);
        if (strncmp(argument, numbers[i].name, length) != 0) continue;
        *numbers[i].value = strtoull(argument + length, NULL, 10);
        return *numbers[i].value > 0;
    }
    return false;
}

int main(int argc, char **argv) {
    struct model m = {.layers = 32,
                      .embd = 4096,
                      .ff = 14336,
                      .heads = 32,
                      .kv = 8,
                      .vocab = 128256,
                      .used = 8,
                      .mixed = true,
                      .type = WEIGHT_Q4_K};
    bool good = argc >= 2 && argv[1][0] != '-'; // an option is no name of a file
    for (int i = 2; i < argc && good; i++) good = set(&m, argv[i]);
    if (!m.head_dim) m.head_dim = m.embd / m.heads;
    if (!good || m.layers > 1000 || m.embd % 256 || m.ff % 256 || m.head_dim * m.heads % 256) {
        fprintf(stderr, "usage: make_model FILE [layers=N] [embd=N] [ff=N] [heads=N] [kv=N] "
                        "[head_dim=N] [vocab=N] [type=NAME] [experts=N] [used=N]; embd, ff and "
                        "heads * head_dim are multiples of 256\n");
        return 2;
    }
    struct writer w = {.records = mem_alloc(MAX_TENSORS, sizeof *w.records)};
    ASSERT(w.records);
    gguf_build_init(&w.build);
    add_keys(&w.build, &m);
    add_vocabulary(&w.build, m.vocab);
    const uint64_t table[3] = {m.embd, m.vocab}, norm[3] = {m.embd};
    add(&w, "token_embd.weight", table, m.mixed ? WEIGHT_Q4_K : m.type, sqrtf((float)m.embd));
    for (uint64_t l = 0; l < m.layers; l++) add_layer(&w, &m, l);
    add(&w, "output_norm.weight", norm, WEIGHT_F32, 1);
    add(&w, "output.weight", table, m.mixed ? WEIGHT_Q6_K : m.type, 1);
    good = write_model(&w, argv[1]);
    if (!good) fprintf(stderr, "make_model: %s cannot be written\n", argv[1]);
    gguf_build_close(&w.build);
    mem_free(w.records);
    return good ? 0 : 1;
}

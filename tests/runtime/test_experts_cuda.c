/* test_experts_cuda.c: models with experts, quantised as people have them, give the CPU's logits on
 * the emulated GPU however the experts are split, with routers in F32 and F16.
 *
 * CPU and GPU round differently, so where two experts are nearly equal either may be chosen, and
 * the logits of that token are others. Here no two are: the first columns of the embedding are
 * levels of the experts, and no layer writes to them, so that the chosen experts are far ahead of
 * the others. A position whose experts are wrong has an NMSE of some tenths.
 */
#include "base/mem.h"
#include "kernels/cpu/cpu.h"
#include "kernels/drivers.h"
#include "runtime/engine/engine.h"
#include "runtime/quantize/quantize_file.h"
#include "tests/lib/find_emulator.h"
#include "tests/lib/gguf_build.h"
#include "tests/lib/slow.h"
#include "tests/lib/vocab_build.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { HOST, GPU };
enum { LAYERS = 2, EMBD = 256, FF = 256, HEADS = 4, KV_HEADS = 2, HEAD_DIM = 64, EXPERTS = 8 };
enum { USED = 2, VOCAB = 256, N_CTX = 64, N_PROMPT = 20, N_SOME = 2, N_ONES = 1 };
static const double MOST_NMSE = 4e-4; // of a position; int8 activations give 1e-4

struct kind {
    const char *architecture;
    enum dtype router;
};

struct fixture {
    char wide[32], path[32]; // the model in F32, and quantised
    char device[512];
    int32_t tokens[N_CTX];
    float expected[N_CTX][VOCAB]; // alone on the CPU
    double worst;                 // NMSE of a position
};

// Sanitizers are slow: every fourth split.
enum { STRIDE = SLOW ? 4 : 1 };

// -1..1.
static float noise(uint32_t *state) {
    *state = *state * 1664525 + 1013904223;
    return (float)(*state >> 8) / 8388608 - 1;
}

// n matrices of random numbers with rows 0 to n_zero - 1 of each left at zero.
static void matrices(struct gguf_build *b, const char *name, const uint64_t ne[3], uint64_t n_zero,
                     uint32_t *state) {
    const uint64_t cols = ne[0], rows = ne[1], n = ne[2] ? ne[2] : 1;
    float *data = mem_alloc(cols * rows * n, sizeof *data);
    assert_non_null(data);
    for (uint64_t i = 0; i < cols * rows * n; i++) {
        const float x = 0.1F * noise(state);
        data[i] = i / cols % rows < n_zero ? 0 : x;
    }
    gguf_build_tensor(b, name, ne[2] ? 3 : 2, ne, DTYPE_F32, data);
    mem_free(data);
}

static void ones(struct gguf_build *b, const char *name, uint64_t count) {
    float data[EMBD];
    for (uint64_t i = 0; i < count; i++) data[i] = 1;
    gguf_build_tensor(b, name, 1, &count, DTYPE_F32, data);
}

// Column e of the first EXPERTS is the level of expert e for the token: 0 to 14, each once.
static void embedding(struct gguf_build *b, uint32_t *state) {
    static float data[VOCAB][EMBD];
    for (uint32_t t = 0; t < VOCAB; t++) {
        for (uint32_t i = 0; i < EMBD; i++) data[t][i] = 2 * noise(state);
        for (uint32_t e = 0; e < EXPERTS; e++)
            data[t][e] = (float)(2 * ((t * 5 + t / 8 + e * (2 * (t / 64) + 1)) % EXPERTS));
    }
    gguf_build_tensor(b, "token_embd.weight", 2, (uint64_t[]){EMBD, VOCAB}, DTYPE_F32, data);
}

// Expert e reads column e, and a little of all columns that layers write to. Halves hold it
// exactly.
static void router(struct gguf_build *b, const char *name, enum dtype type, uint32_t *state) {
    static float data[EXPERTS][EMBD];
    static uint16_t halves[EXPERTS][EMBD];
    for (int e = 0; e < EXPERTS; e++) {
        for (int i = 0; i < EMBD; i++) {
            const float x = i < EXPERTS ? (float)(i == e) : noise(state) / 128;
            halves[e][i] = float_to_half(x);
            data[e][i] = half_to_float(halves[e][i]);
        }
    }
    gguf_build_tensor(b, name, 2, (uint64_t[]){EMBD, EXPERTS}, type,
                      type == DTYPE_F16 ? (void *)halves : (void *)data);
}

static void add_layer(struct gguf_build *b, const struct kind *k, int layer, uint32_t *state) {
    static const struct {
        const char *name;
        uint64_t ne[3];
        uint64_t n_zero;
    } tensors[] = {
        {"attn_q", {EMBD, HEADS * HEAD_DIM}, 0},
        {"attn_k", {EMBD, KV_HEADS * HEAD_DIM}, 0},
        {"attn_v", {EMBD, KV_HEADS * HEAD_DIM}, 0},
        {"attn_output", {HEADS * HEAD_DIM, EMBD}, EXPERTS},
        {"ffn_gate_exps", {EMBD, FF, EXPERTS}, 0},
        {"ffn_up_exps", {EMBD, FF, EXPERTS}, 0},
        {"ffn_down_exps", {FF, EMBD, EXPERTS}, EXPERTS},
    };
    static const char *const norms[] = {"attn_norm", "ffn_norm", "attn_q_norm", "attn_k_norm"};
    const int n_norms = strcmp(k->architecture, "qwen3moe") == 0 ? 4 : 2;
    char name[64];
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++) {
        snprintf(name, sizeof name, "blk.%d.%s.weight", layer, tensors[i].name);
        matrices(b, name, tensors[i].ne, tensors[i].n_zero, state);
    }
    for (int i = 0; i < n_norms; i++) {
        snprintf(name, sizeof name, "blk.%d.%s.weight", layer, norms[i]);
        ones(b, name, i < 2 ? EMBD : HEAD_DIM);
    }
    snprintf(name, sizeof name, "blk.%d.ffn_gate_inp.weight", layer);
    router(b, name, k->router, state);
}

static void add_keys(struct gguf_build *b, const char *architecture) {
    static const struct {
        const char *key;
        uint64_t number;
    } keys[] = {
        {"block_count", LAYERS},
        {"context_length", N_CTX},
        {"embedding_length", EMBD},
        {"feed_forward_length", FF},
        {"expert_feed_forward_length", FF},
        {"attention.head_count", HEADS},
        {"attention.head_count_kv", KV_HEADS},
        {"attention.key_length", HEAD_DIM},
        {"attention.value_length", HEAD_DIM},
        {"rope.dimension_count", HEAD_DIM},
        {"expert_count", EXPERTS},
        {"expert_used_count", USED},
    };
    char key[64];
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        snprintf(key, sizeof key, "%s.%s", architecture, keys[i].key);
        gguf_build_int(b, key, GGUF_U32, keys[i].number);
    }
    snprintf(key, sizeof key, "%s.attention.layer_norm_rms_epsilon", architecture);
    gguf_build_f32(b, key, 1e-6F);
}

static void write_model(const char *path, const struct kind *k) {
    struct vocab_build v;
    struct gguf_build b;
    uint32_t state = 1;
    gguf_build_init(&b);
    gguf_build_text(&b, "general.architecture", k->architecture);
    add_keys(&b, k->architecture);
    vocab_init_bpe(&v);
    gguf_build_text(&b, "tokenizer.ggml.model", v.model);
    gguf_build_text(&b, "tokenizer.ggml.pre", v.pre);
    gguf_build_texts(&b, "tokenizer.ggml.tokens", v.tokens, v.n_tokens);
    gguf_build_texts(&b, "tokenizer.ggml.merges", v.merges, v.n_merges);
    embedding(&b, &state);
    for (int l = 0; l < LAYERS; l++) add_layer(&b, k, l, &state);
    ones(&b, "output_norm.weight", EMBD);
    matrices(&b, "output.weight", (uint64_t[3]){EMBD, VOCAB}, 0, &state);
    gguf_build_finish(&b);
    gguf_build_write(&b, path);
    gguf_build_close(&b);
}

// Levels that are 2 apart move by at most 0.6.
static void quantize(const struct fixture *f) {
    struct quantize_options o = {.source = f->wide, .target = f->path, .n_threads = 1};
    struct quantize_result result;
    struct err e;
    char text[1024];
    unlink(f->path);
    assert_int_equal(mixture_find(&o.mixture, "Q4_K_M", &e), OK);
    if (quantize_file(&o, &result, &e)) fail_msg("%s", err_text(&e, text, sizeof text));
}

static struct engine_options options_of(const struct fixture *f, const char *device) {
    int n_drivers;
    const struct device_driver *drivers = device_drivers(&n_drivers);
    return (struct engine_options){
        .model_path = f->path,
        .device_spec = device,
        .drivers = drivers,
        .n_drivers = n_drivers,
        .cpu = {.isa = ISA_AUTO, .n_threads = 1},
        .workload = {.n_ctx = N_CTX,
                     .n_ubatch = 16,
                     .max_logits = N_CTX,
                     .kv_type_k = DTYPE_F16,
                     .kv_type_v = DTYPE_F16},
        .strict = true,
        .constraints = {.gpu_layers = GPU_LAYERS_AUTO},
    };
}

static double nmse(const float *got, const float *expected) {
    double error = 0, sum = 0;
    for (int i = 0; i < VOCAB; i++) {
        const double d = (double)got[i] - (double)expected[i];
        error += d * d;
        sum += (double)expected[i] * (double)expected[i];
    }
    return error / sum;
}

// Feeds count tokens at once. Keeps the logits, or compares them with what was kept.
static void feed(struct fixture *f, struct engine *en, struct session *s, int32_t count,
                 bool keep) {
    struct batch_item items[N_CTX];
    struct err e;
    char text[1024];
    const int32_t first = session_length(s);
    for (int32_t i = 0; i < count; i++)
        items[i] = (struct batch_item){s, f->tokens[first + i], true};
    if (engine_eval(en, items, count, &e)) fail_msg("%s", err_text(&e, text, sizeof text));
    for (int32_t i = 0; i < count; i++) {
        float *expected = f->expected[first + i];
        if (keep) {
            memcpy(expected, engine_logits(en, i), sizeof *f->expected);
            continue;
        }
        const double error = nmse(engine_logits(en, i), expected);
        if (error > f->worst) f->worst = error;
        if (!(error <= MOST_NMSE)) fail_msg("NMSE %.2e at position %d", error, first + i);
    }
}

// A prompt of two micro-batches, some tokens, and one after the other.
static void run(struct fixture *f, const struct engine_options *o, bool keep) {
    struct engine *en;
    struct session *s;
    struct err e;
    char text[1024];
    if (engine_open(&en, o, &e)) fail_msg("%s", err_text(&e, text, sizeof text));
    assert_int_equal(session_new(&s, en, &e), OK);
    feed(f, en, s, N_PROMPT, keep);
    feed(f, en, s, N_SOME, keep);
    for (int i = 0; i < N_ONES; i++) feed(f, en, s, 1, keep);
    session_free(s);
    engine_close(en);
}

static int setup(void **state) {
    struct fixture *f = mem_alloc(1, sizeof *f);
    char driver[400];
    if (!f) return -1;
    *state = f;
    snprintf(f->wide, sizeof f->wide, "/tmp/experts_wide.%d", (int)getpid());
    snprintf(f->path, sizeof f->path, "/tmp/experts.%d", (int)getpid());
    if (find_emulator(driver, sizeof driver))
        snprintf(f->device, sizeof f->device, "cuda:driver=%s", driver);
    for (int i = 0; i < N_CTX; i++) f->tokens[i] = (i * 37 + i * i * 11) % VOCAB;
    return 0;
}

static int teardown(void **state) {
    struct fixture *f = *state;
    unlink(f->wide);
    unlink(f->path);
    mem_free(f);
    return 0;
}

static void use_model(struct fixture *f, const struct kind *k) {
    write_model(f->wide, k);
    quantize(f);
    const struct engine_options o = options_of(f, "none");
    run(f, &o, true);
}

// Experts of both layers are split, from all on the GPU to all on the CPU; the first attention is
// on the CPU in every second placement.
static void place(struct placement *p, int parts) {
    *p = (struct placement){0};
    for (int u = 0; u < 2 * LAYERS + 2; u++) {
        const bool experts = u > 0 && u % 2 == 0;
        const bool all = experts && parts == UNIT_PARTS;
        p->units[u].device = u == 0 || all || (u == 1 && parts / 4 % 2) ? HOST : GPU;
        p->units[u].cpu_parts = experts && !all ? (uint8_t)parts : 0;
    }
}

// The part of the experts that the CPU has goes up by one expert.
static void test_every_split(void **state) {
    struct fixture *f = *state;
    static const struct kind kinds[] = {{"qwen3moe", DTYPE_F32},
                                        {"qwen3moe", DTYPE_F16},
                                        {"llama", DTYPE_F32},
                                        {"llama", DTYPE_F16}};
    static const char *const capabilities[] = {"6.1", "7.5", "8.6"};
    if (!*f->device) skip();
    struct engine_options o = options_of(f, f->device);
    o.constraints.has_units = o.constraints.has_placement = true;
    for (int k = 0; k < 4; k++) {
        use_model(f, &kinds[k]);
        for (int parts = 0; parts <= UNIT_PARTS; parts += STRIDE * UNIT_PARTS / EXPERTS) {
            setenv("EMU_CUDA_CC", capabilities[(k + parts / 4) % 3], 1);
            place(&o.constraints.place, parts);
            run(f, &o, false);
        }
    }
    print_message("# largest NMSE of a position: %.1e\n", f->worst);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_split)};
    return cmocka_run_group_tests(tests, setup, teardown);
}

/* test_session_file.c: sessions in files: saved on one placement and loaded on another they give
 * the logits of fresh ones, bit for bit; files that are damaged or do not fit leave a session
 * alone.
 */
#include "runtime/engine/engine.h"

#include "base/file.h"
#include "base/mem.h"
#include "runtime/engine/session_file.h"
#include "tests/lib/tiny_model.h"
#include "tests/sim/sim_device.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { N_CTX = 200, N_MODELS = 6 };

static const struct tiny_model MODELS[N_MODELS] = {
    {.n_layers = 3, .biased = true, .seed = 5, .head_dim = 32},
    {.architecture = "gemma3",
     .n_layers = 3,
     .ends_with_norms = true,
     .normed = true,
     .window = 30,
     .seed = 6},
    {.architecture = "qwen35", .n_layers = 3, .delta_period = 2, .normed = true, .seed = 7},
    {.architecture = "lfm2",
     .n_layers = 3,
     .normed = true,
     .delta_period = 2,
     .convolves = true,
     .seed = 7},
    {.architecture = "falcon-h1",
     .n_layers = 3,
     .delta_period = 1,
     .scans_beside = true,
     .seed = 7},
    {.architecture = "deepseek2", .n_layers = 3, .latent_rank = 40, .seed = 7},
};

struct fixture {
    char models[N_MODELS][64], saved[64];
    int32_t tokens[N_CTX];
    float *expected[N_MODELS]; // [N_CTX, TINY_VOCAB], after each token
};

struct way {
    const char *device;
    enum strategy strategy;
    int32_t n_ubatch, n_ctx;
    enum dtype type;
};

static struct engine *open_engine(const struct fixture *f, int model, const struct way *way,
                                  int32_t max_logits) {
    struct engine *en;
    struct err e;
    char text[512];
    const struct engine_options o = {
        .model_path = f->models[model],
        .device_spec = way->device,
        .drivers = &sim_driver,
        .n_drivers = 1,
        .cpu = {.isa = ISA_AUTO, .n_threads = 1},
        .workload = {.n_ctx = way->n_ctx,
                     .n_ubatch = way->n_ubatch,
                     .max_logits = max_logits,
                     .kv_type_k = way->type,
                     .kv_type_v = way->type},
        .constraints = {.gpu_layers = GPU_LAYERS_AUTO, .strategy = way->strategy},
    };
    if (engine_open(&en, &o, &e)) fail_msg("%s", err_text(&e, text, sizeof text));
    return en;
}

static const struct way PLAIN = {"none", STRATEGY_AUTO, 16, N_CTX, DTYPE_F16};

// Feeds the session its next n tokens; the last must have the logits of a fresh session.
static void feed(const struct fixture *f, int model, struct engine *en, struct session *s,
                 int32_t n) {
    struct batch_item items[N_CTX];
    struct err e;
    const int32_t at = session_length(s);
    for (int32_t i = 0; i < n; i++)
        items[i] = (struct batch_item){s, f->tokens[at + i], i == n - 1};
    if (engine_eval(en, items, n, &e)) fail_msg("%s", e.what);
    assert_memory_equal(engine_logits(en, 0),
                        f->expected[model] + (size_t)(at + n - 1) * TINY_VOCAB,
                        TINY_VOCAB * sizeof(float));
}

static int setup(void **state) {
    struct fixture *f = *state = mem_alloc(1, sizeof *f);
    static const struct way whole = {"none", STRATEGY_AUTO, N_CTX, N_CTX, DTYPE_F16};
    struct batch_item items[N_CTX];
    struct session *s;
    struct err e;
    snprintf(f->saved, sizeof f->saved, "/tmp/tandem_test_session.%d", (int)getpid());
    for (int t = 0; t < N_CTX; t++) f->tokens[t] = (t * 53 + t * t * 7) % 256;
    for (int i = 0; i < N_MODELS; i++) {
        snprintf(f->models[i], sizeof f->models[i], "%s.%d.gguf", f->saved, i);
        tiny_model_write(&MODELS[i], f->models[i]);
        f->expected[i] = mem_alloc(N_CTX * TINY_VOCAB, sizeof *f->expected[i]);
        struct engine *en = open_engine(f, i, &whole, N_CTX);
        assert_int_equal(session_new(&s, en, &e), OK);
        for (int t = 0; t < N_CTX; t++) items[t] = (struct batch_item){s, f->tokens[t], true};
        assert_int_equal(engine_eval(en, items, N_CTX, &e), OK);
        memcpy(f->expected[i], engine_logits(en, 0), N_CTX * TINY_VOCAB * sizeof(float));
        session_free(s);
        engine_close(en);
    }
    return 0;
}

static int teardown(void **state) {
    struct fixture *f = *state;
    for (int i = 0; i < N_MODELS; i++) {
        unlink(f->models[i]);
        mem_free(f->expected[i]);
    }
    unlink(f->saved);
    mem_free(f);
    return 0;
}

// Saves n tokens of which pending is not computed yet, from one way, and goes on in another.
static void move_session(const struct fixture *f, int model, const struct way *from,
                         const struct way *to, int32_t n, bool pending) {
    struct session *s;
    struct err e;
    struct engine *en = open_engine(f, model, from, 1);
    assert_int_equal(session_new(&s, en, &e), OK);
    feed(f, model, en, s, n - pending);
    if (session_save(s, pending ? f->tokens[n - 1] : -1, f->saved, &e)) fail_msg("%s", e.what);
    feed(f, model, en, s, 3);
    session_free(s);
    engine_close(en);
    en = open_engine(f, model, to, 1);
    assert_int_equal(session_new(&s, en, &e), OK);
    feed(f, model, en, s, 9); // is replaced
    if (session_load(s, f->saved, &e)) fail_msg("%s", e.what);
    assert_int_equal(session_length(s), n);
    assert_memory_equal(session_tokens(s), f->tokens, (size_t)n * sizeof *f->tokens);
    feed(f, model, en, s, 5);
    session_truncate(s, n - 3);
    feed(f, model, en, s, 1);
    session_truncate(s, n / 2);
    feed(f, model, en, s, 20);
    session_free(s);
    engine_close(en);
}

static void test_every_way(void **state) {
    static const struct way ways[] = {
        {"none", STRATEGY_AUTO, 64, N_CTX, DTYPE_F16},
        {"sim:vram=16M", STRATEGY_AUTO, 7, 180, DTYPE_F16},
        {"sim:vram=16M", STRATEGY_ROW_SPLIT, 33, N_CTX, DTYPE_F16},
        {"sim:vram=300K", STRATEGY_STREAMED, 40, N_CTX, DTYPE_F16},
    };
    for (int model = 0; model < N_MODELS; model++)
        for (int i = 0; i < 16; i++)
            move_session(*state, model, &ways[i / 4], &ways[i % 4], 70 + 6 * i, i % 3 == 0);
}

// Saves the first n tokens of the model with windows, and returns the bytes of the file.
static uint64_t saved_bytes(const struct fixture *f, int32_t n) {
    struct session *s;
    struct file file;
    struct err e;
    struct engine *en = open_engine(f, 1, &PLAIN, 1);
    assert_int_equal(session_new(&s, en, &e), OK);
    feed(f, 1, en, s, n);
    assert_int_equal(session_save(s, -1, f->saved, &e), OK);
    session_free(s);
    engine_close(en);
    assert_int_equal(file_open(&file, f->saved, &e), OK);
    const uint64_t size_bytes = file.size_bytes;
    file_close(&file);
    return size_bytes;
}

// One of its three layers sees all positions; of the others those that have left the ring are not
// written. Keys and values are F16.
static void test_window(void **state) {
    const uint64_t sooner = saved_bytes(*state, 140), later = saved_bytes(*state, 180);
    const uint64_t row_bytes = 2 * TINY_KV_HEADS * TINY_HEAD_DIM * sizeof(uint16_t);
    assert_int_equal(later - sooner, 40 * (sizeof(int32_t) + row_bytes));
}

// Takes eight bytes of the caches out of a saved session, and makes its sizes and checksum right.
static size_t shorten(uint64_t *bytes, size_t size_bytes) {
    const size_t words = size_bytes / 8 - 1, piece_bytes = 8; // the last word of the header
    bytes[piece_bytes] -= 8;
    bytes[words - 1] = session_file_sum(0, bytes, 8 * (words - 1));
    return 8 * words;
}

// Every byte that is changed, and every cut, is found, and the session stays what it was.
static void test_damage(void **state) {
    struct fixture *f = *state;
    struct session *s;
    struct err e;
    size_t size_bytes;
    char *bytes;
    struct engine *en = open_engine(f, 1, &PLAIN, 1);
    assert_int_equal(session_new(&s, en, &e), OK);
    feed(f, 1, en, s, 20);
    assert_int_equal(session_save(s, -1, f->saved, &e), OK);
    assert_int_equal(file_read_text(&bytes, &size_bytes, f->saved, 1 << 24, &e), OK);
    feed(f, 1, en, s, 11);
    for (size_t at = 0; at < 2 * size_bytes; at += at < 300 ? 1 : 997) {
        FILE *out = fopen(f->saved, "wb");
        const size_t cut = at < size_bytes ? size_bytes : at - size_bytes;
        if (at < size_bytes) bytes[at] ^= 4;
        fwrite(bytes, 1, cut, out);
        fclose(out);
        if (at < size_bytes) bytes[at] ^= 4;
        assert_int_not_equal(session_load(s, f->saved, &e), OK);
        assert_non_null(strstr(e.what, f->saved));
        if (cut > 0) assert_true(e.fix[0]);
        assert_int_equal(session_length(s), 31);
    }
    FILE *out = fopen(f->saved, "wb");
    fwrite(bytes, 1, shorten((uint64_t *)(void *)bytes, size_bytes), out);
    fclose(out);
    assert_int_equal(session_load(s, f->saved, &e), ERR_FORMAT);
    assert_non_null(strstr(e.what, "the size of its caches"));
    assert_int_equal(session_length(s), 31);
    feed(f, 1, en, s, 2);
    mem_free(bytes);
    session_free(s);
    engine_close(en);
}

// Parses a file of four tokens, the last of which is given, whose sizes and checksum are right.
static enum status parse_numbers(const struct session_file *numbers, int32_t last, bool recurrent,
                                 struct err *e) {
    const struct session_key key = {.kv_type_k = DTYPE_F16,
                                    .kv_type_v = DTYPE_F16,
                                    .n_ctx = 8,
                                    .n_vocab = 10,
                                    .recurrent = recurrent};
    const int32_t tokens[] = {1, 2, 3, last};
    uint64_t words[16] = {0};
    uint8_t *bytes = (uint8_t *)words;
    struct session_file f = *numbers;
    f.tokens = tokens;
    f.n_tokens = 4;
    f.piece_bytes = sizeof *words;
    const uint64_t summed_bytes = session_file_head_bytes(f.n_tokens) + f.piece_bytes;
    assert_true(summed_bytes + sizeof *words <= sizeof words);
    session_file_head(&f, &key, bytes);
    const uint64_t sum = session_file_sum(0, bytes, summed_bytes);
    memcpy(bytes + summed_bytes, &sum, sizeof sum);
    return session_file_parse(&f, bytes, summed_bytes + sizeof sum, &key, e);
}

// A file whose checksum is right may still say what no session can be.
static void test_numbers(void **state) {
    (void)state;
    static const struct {
        struct session_file numbers;
        int32_t last;
        bool recurrent;
        const char *broken; // NULL: nothing is
    } cases[] = {
        {{.n = 4}, 4, false, NULL},
        {{.n = 4, .low = 4}, 9, false, NULL},
        {{.n = 3, .low = 3}, 0, false, NULL},
        {{.n = 3, .low = 4}, 4, false, "its lengths"},
        {{.n = 5}, 4, false, "its lengths"},
        {{.n = -1}, 4, false, "its lengths"},
        {{.n = 4, .low = -1}, 4, false, "its lengths"},
        {{.n = 4}, 10, false, "a token"},
        {{.n = 4}, -1, false, "a token"},
        {{.n = 4, .n_slots = 2, .at = {1, 4}}, 4, true, NULL},
        {{.n = 4, .n_slots = 2, .at = {1, 0}}, 4, true, "the place of a state"},
        {{.n = 4, .n_slots = 2, .at = {1, 5}}, 4, true, "the place of a state"},
        {{.n = 4, .n_slots = STATE_SLOTS + 1}, 4, true, "its number of states"},
        {{.n = 4, .n_slots = -1}, 4, true, "its number of states"},
        {{.n = 4, .n_slots = 1, .at = {1}}, 4, false, "its number of states"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct err e = {0};
        const enum status status =
            parse_numbers(&cases[i].numbers, cases[i].last, cases[i].recurrent, &e);
        if (status != (cases[i].broken ? ERR_FORMAT : OK)) fail_msg("case %zu: %s", i, e.what);
        if (cases[i].broken) assert_non_null(strstr(e.what, cases[i].broken));
    }
}

static void test_refusals(void **state) {
    struct fixture *f = *state;
    static const struct way others[] = {{"none", STRATEGY_AUTO, 16, N_CTX, DTYPE_F32},
                                        {"none", STRATEGY_AUTO, 16, 40, DTYPE_F16}};
    static const enum status expected[] = {ERR_USAGE, ERR_LIMIT, ERR_USAGE};
    struct session *s;
    struct err e;
    struct engine *en = open_engine(f, 0, &PLAIN, 1);
    assert_int_equal(session_new(&s, en, &e), OK);
    feed(f, 0, en, s, 50);
    assert_int_equal(session_save(s, -1, f->saved, &e), OK);
    assert_int_equal(session_save(s, -1, "/nowhere/at/all", &e), ERR_FILE);
    assert_int_equal(session_load(s, "/nowhere/at/all", &e), ERR_FILE);
    feed(f, 0, en, s, 1);
    session_free(s);
    engine_close(en);
    for (int i = 0; i < 3; i++) {
        en = open_engine(f, i == 2, i == 2 ? &PLAIN : &others[i], 1);
        assert_int_equal(session_new(&s, en, &e), OK);
        assert_int_equal(session_load(s, f->saved, &e), expected[i]);
        assert_true(e.fix[0]);
        assert_int_equal(session_length(s), 0);
        session_free(s);
        engine_close(en);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_way),
                                       cmocka_unit_test(test_window), cmocka_unit_test(test_damage),
                                       cmocka_unit_test(test_numbers),
                                       cmocka_unit_test(test_refusals)};
    return cmocka_run_group_tests(tests, setup, teardown);
}

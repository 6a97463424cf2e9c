/* test_engine.c: the engine on tiny models: batches, sessions, splits, calls that fail, faults,
 * refused allocations.
 *
 * The rule behind most of it: logits do not depend on how the work is cut, bit for bit, whether by
 * micro-batch, by session or by device (the simulated device computes with the CPU's kernels).
 */
// link: wrap-alloc
#include "runtime/engine/engine.h"
#include "runtime/host/calibration_cache.h"
#include "runtime/host/devices.h"

#include "base/mem.h"
#include "tests/lib/alloc_fail.h"
#include "tests/sim/sim_device.h"
#include "tests/lib/tiny_model.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { N_PROMPT = 90, N_LAYERS = 3, N_UNITS = 2 * N_LAYERS + 2, MAX_ROWS = 4 };

struct fixture {
    char path[64];
    int32_t prompt[N_PROMPT];
    float expected[TINY_VOCAB]; // after the whole prompt, alone on the CPU
    struct engine_options options;
};

static int setup(void **state) {
    struct fixture *f = mem_alloc(1, sizeof *f);
    if (!f) return -1;
    *state = f;
    snprintf(f->path, sizeof f->path, "/tmp/tandem_test_engine.%d.gguf", (int)getpid());
    tiny_model_write(
        &(struct tiny_model){
            .n_layers = N_LAYERS, .tied = true, .biased = true, .freqs = true, .seed = 3},
        f->path);
    for (int i = 0; i < N_PROMPT; i++) f->prompt[i] = (i * 37 + i * i * 11) % 256;
    f->options = (struct engine_options){
        .model_path = f->path,
        .device_spec = "none",
        .drivers = &sim_driver,
        .n_drivers = 1,
        .cpu = {.isa = ISA_AUTO, .n_threads = 2},
        .workload = {.n_ctx = 128,
                     .n_ubatch = 128,
                     .max_logits = MAX_ROWS,
                     .n_sessions = 3,
                     .kv_type_k = DTYPE_F16,
                     .kv_type_v = DTYPE_F16},
        .constraints = {.gpu_layers = GPU_LAYERS_AUTO},
    };
    return 0;
}

static int teardown(void **state) {
    struct fixture *f = *state;
    unlink(f->path);
    mem_free(f);
    return 0;
}

static struct engine *open_ok(const struct engine_options *o) {
    struct engine *en;
    struct err e;
    char text[1024];
    if (engine_open(&en, o, &e)) fail_msg("%s", err_text(&e, text, sizeof text));
    return en;
}

// Feeds n tokens in one call; logits of the last are wanted.
static enum status feed(struct engine *en, struct session *s, const int32_t *tokens, int32_t n,
                        struct err *e) {
    struct batch_item items[N_PROMPT];
    for (int32_t i = 0; i < n; i++) items[i] = (struct batch_item){s, tokens[i], i == n - 1};
    return engine_eval(en, items, n, e);
}

// Logits after the prompt, fed in calls of at most `step` tokens to a fresh engine.
static void prompt_logits(struct fixture *f, const struct engine_options *o, int32_t step,
                          float *out) {
    struct engine *en = open_ok(o);
    struct session *s;
    struct err e;
    assert_int_equal(session_new(&s, en, &e), OK);
    for (int32_t i = 0; i < N_PROMPT; i += step) {
        int32_t n = N_PROMPT - i < step ? N_PROMPT - i : step;
        assert_int_equal(feed(en, s, f->prompt + i, n, &e), OK);
    }
    assert_int_equal(session_length(s), N_PROMPT);
    memcpy(out, engine_logits(en, 0), TINY_VOCAB * sizeof *out);
    session_free(s);
    engine_close(en);
}

static void expect_same(struct fixture *f, const float *logits, const char *what) {
    if (memcmp(f->expected, logits, sizeof f->expected) != 0) fail_msg("%s: other logits", what);
}

static void test_micro_batches(void **state) {
    struct fixture *f = *state;
    float logits[TINY_VOCAB];
    prompt_logits(f, &f->options, N_PROMPT, f->expected);
    double sum = 0;
    for (int i = 0; i < TINY_VOCAB; i++) sum += (double)f->expected[i] * (double)f->expected[i];
    assert_true(sum > 1); // the model does something
    for (int32_t step = 1; step < N_PROMPT; step += 13) {
        prompt_logits(f, &f->options, step, logits);
        expect_same(f, logits, "calls of fewer tokens");
    }
    struct engine_options o = f->options;
    for (o.workload.n_ubatch = 1; o.workload.n_ubatch < N_PROMPT; o.workload.n_ubatch += 6) {
        prompt_logits(f, &o, N_PROMPT, logits);
        expect_same(f, logits, "micro-batches");
    }
}

// Logits after the prompt of a model of one layer whose scores have the scale, and a temperature
// from position 32 on.
static void scored_logits(struct fixture *f, const struct tiny_model *tiny, float scale,
                          float temperature, float *out) {
    struct engine_options o = f->options;
    struct gguf_build b;
    char key[64], path[80];
    snprintf(path, sizeof path, "%s.scored", f->path);
    o.model_path = path;
    o.cpu.isa = ISA_REF;
    o.workload.kv_type_k = o.workload.kv_type_v = DTYPE_F32;
    tiny_model_build(&b, tiny, NULL);
    snprintf(key, sizeof key, "%s.attention.scale", tiny->architecture);
    gguf_build_f32(&b, key, scale);
    snprintf(key, sizeof key, "%s.attention.temperature_scale", tiny->architecture);
    gguf_build_f32(&b, key, temperature);
    snprintf(key, sizeof key, "%s.attention.temperature_length", tiny->architecture);
    gguf_build_int(&b, key, GGUF_U32, 32);
    snprintf(key, sizeof key, "%s.rope.freq_base_swa", tiny->architecture);
    gguf_build_f32(&b, key, 500); // of layers with a window, which the model has not
    gguf_build_finish(&b);
    gguf_build_write(&b, path);
    gguf_build_close(&b);
    prompt_logits(f, &o, N_PROMPT, out);
    unlink(path);
}

static double relative_error(const float *expected, const float *actual) {
    double error = 0, sum = 0;
    for (int i = 0; i < TINY_VOCAB; i++) {
        error += pow((double)expected[i] - (double)actual[i], 2);
        sum += pow((double)expected[i], 2);
    }
    return error / sum;
}

// In a single layer only the last token's scores matter: a temperature is a factor of its scale.
static void test_temperature(void **state) {
    static const struct tiny_model models[] = {
        {.architecture = "mistral3", .n_layers = 1},
        {.architecture = "deepseek2", .n_layers = 1, .latent_rank = 40, .low_queries = true},
        {.architecture = "deepseek2", .n_layers = 1, .latent_rank = 56},
    };
    const float factor = 1 + 0.7F * logf(1 + (N_PROMPT - 1) / 32);
    float tempered[TINY_VOCAB], scaled[TINY_VOCAB], plain[TINY_VOCAB];
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        scored_logits(*state, &models[i], 0.3F, 0.7F, tempered);
        scored_logits(*state, &models[i], 0.3F * factor, 0, scaled);
        scored_logits(*state, &models[i], 0.3F, 0, plain);
        assert_true(relative_error(scaled, tempered) < 1e-10);
        assert_true(relative_error(plain, tempered) > 1e-6);
    }
}

// Two timelines mixed in one batch, and a third that begins later, each give what each gives alone.
static void test_sessions(void **state) {
    struct fixture *f = *state;
    struct engine *en = open_ok(&f->options);
    struct session *a, *b, *c, *none;
    struct err e;
    assert_int_equal(session_new(&a, en, &e), OK);
    assert_int_equal(session_new(&b, en, &e), OK);
    assert_int_equal(session_new(&c, en, &e), OK);
    assert_int_equal(session_new(&none, en, &e), ERR_LIMIT);
    for (int32_t i = 0; i < N_PROMPT; i++) {
        bool last = i == N_PROMPT - 1;
        struct batch_item items[3] = {
            {b, f->prompt[N_PROMPT - 1 - i], last}, {a, f->prompt[i], last}, {c, 7, false}};
        assert_int_equal(engine_eval(en, items, i % 3 ? 3 : 2, &e), OK);
    }
    expect_same(f, engine_logits(en, 1), "a session beside others");
    float reversed[TINY_VOCAB];
    memcpy(reversed, engine_logits(en, 0), sizeof reversed);
    // Undo and redo the end of a; its logits come back.
    session_truncate(a, 60);
    assert_int_equal(feed(en, a, f->prompt + 60, N_PROMPT - 60, &e), OK);
    expect_same(f, engine_logits(en, 0), "undone and redone");
    session_free(b);
    assert_int_equal(session_new(&b, en, &e), OK);
    int32_t backwards[N_PROMPT];
    for (int i = 0; i < N_PROMPT; i++) backwards[i] = f->prompt[N_PROMPT - 1 - i];
    assert_int_equal(feed(en, b, backwards, N_PROMPT, &e), OK);
    assert_memory_equal(engine_logits(en, 0), reversed, sizeof reversed);
    session_free(a);
    session_free(b);
    session_free(c);
    engine_close(en);
}

static void check_books(const struct engine *en) {
    struct memory_row rows[16];
    int32_t n = engine_memory(en, rows, 16);
    assert_int_equal(n, 2 * PURPOSE_COUNT);
    for (int i = 0; i < n; i++) assert_int_equal(rows[i].planned_bytes, rows[i].allocated_bytes);
}

// Every number of layers, and 40 random placements of single units.
static void test_splits(void **state) {
    struct fixture *f = *state;
    struct engine_options o = f->options;
    float logits[TINY_VOCAB];
    o.device_spec = "sim:vram=16M";
    for (int32_t n = 0; n <= N_LAYERS + 1; n++) {
        o.constraints.gpu_layers = n;
        prompt_logits(f, &o, 31, logits);
        expect_same(f, logits, "layers on the device");
    }
    o.constraints.has_units = true;
    srand(11);
    for (int i = 0; i < 40; i++) {
        for (int u = 0; u < N_UNITS; u++)
            o.constraints.place.units[u].device = (int8_t)(rand() % 2);
        o.workload.n_ubatch = 1 + rand() % 100;
        prompt_logits(f, &o, 1 + rand() % N_PROMPT, logits);
        expect_same(f, logits, "units anywhere");
    }
    struct engine *en = open_ok(&o);
    check_books(en);
    engine_close(en);
}

// Calls that are refused leave no trace, and rows of logits come in the order of their items.
static void test_limits(void **state) {
    struct fixture *f = *state;
    struct engine *en = open_ok(&f->options);
    struct session *s, *alone;
    struct err e;
    const int32_t first = N_PROMPT - MAX_ROWS;
    assert_int_equal(session_new(&s, en, &e), OK);
    assert_int_equal(session_new(&alone, en, &e), OK);
    assert_int_equal(feed(en, s, f->prompt, first, &e), OK);
    assert_int_equal(feed(en, s, f->prompt, 50, &e), ERR_LIMIT); // 136 > 128
    assert_int_equal(session_length(s), first);
    assert_int_equal(feed(en, s, (int32_t[]){TINY_VOCAB}, 1, &e), ERR_LIMIT);
    assert_int_equal(feed(en, s, (int32_t[]){-1}, 1, &e), ERR_LIMIT);
    struct batch_item items[MAX_ROWS + 1];
    for (int i = 0; i <= MAX_ROWS; i++)
        items[i] = (struct batch_item){s, f->prompt[(first + i) % N_PROMPT], true};
    assert_int_equal(engine_eval(en, items, MAX_ROWS + 1, &e), ERR_LIMIT);
    assert_int_equal(engine_eval(en, items, MAX_ROWS, &e), OK);
    assert_int_equal(session_length(s), N_PROMPT);
    float rows[MAX_ROWS][TINY_VOCAB];
    for (int i = 0; i < MAX_ROWS; i++) memcpy(rows[i], engine_logits(en, i), sizeof rows[i]);
    expect_same(f, rows[MAX_ROWS - 1], "after refused calls");
    assert_int_equal(feed(en, alone, f->prompt, first, &e), OK);
    for (int i = 0; i < MAX_ROWS; i++) {
        assert_int_equal(feed(en, alone, f->prompt + first + i, 1, &e), OK);
        assert_memory_equal(engine_logits(en, 0), rows[i], sizeof rows[i]);
    }
    session_free(s);
    session_free(alone);
    engine_close(en);
}

// Rows of the head without a token can never be drawn; all other logits are those of the model
// without padding.
static void test_padding(void **state) {
    enum { PADDING = 5, KNOWN = TINY_VOCAB - PADDING };
    struct fixture *f = *state;
    struct engine_options o = f->options;
    char path[64];
    struct session *s;
    struct err e;
    snprintf(path, sizeof path, "/tmp/tandem_test_engine.%d.padded.gguf", (int)getpid());
    tiny_model_write(&(struct tiny_model){.n_layers = N_LAYERS,
                                          .tied = true,
                                          .biased = true,
                                          .freqs = true,
                                          .seed = 3,
                                          .padding = PADDING},
                     path);
    o.model_path = path;
    o.workload.n_ubatch = 40; // two of the rows of logits are of earlier micro-batches
    struct engine *en = open_ok(&o);
    unlink(path);
    assert_int_equal(session_new(&s, en, &e), OK);
    struct batch_item items[N_PROMPT];
    for (int i = 0; i < N_PROMPT; i++)
        items[i] = (struct batch_item){s, f->prompt[i], i % 30 == 29};
    assert_int_equal(engine_eval(en, items, N_PROMPT, &e), OK);
    for (int row = 0; row < 3; row++) {
        const float *logits = engine_logits(en, row);
        for (int i = 0; i < TINY_VOCAB; i++) assert_int_equal(isfinite(logits[i]), i < KNOWN);
        for (int i = KNOWN; i < TINY_VOCAB; i++) assert_true(logits[i] < 0);
    }
    assert_memory_equal(engine_logits(en, 2), f->expected, KNOWN * sizeof(float));
    session_free(s);
    engine_close(en);
}

// Tokens that the file says are never to be drawn; a list of others is refused.
static void test_suppressed_tokens(void **state) {
    struct fixture *f = *state;
    struct engine_options o = f->options;
    const int32_t tokens[2][2] = {{7, TINY_VOCAB - 1}, {7, TINY_VOCAB}};
    char path[64];
    snprintf(path, sizeof path, "/tmp/tandem_test_engine.%d.suppressed.gguf", (int)getpid());
    o.model_path = path;
    for (int i = 0; i < 2; i++) {
        struct gguf_build b;
        struct engine *en;
        struct session *s;
        struct err e;
        tiny_model_build(&b, &(struct tiny_model){.n_layers = N_LAYERS, .seed = 3}, NULL);
        gguf_build_ints(&b, "tokenizer.ggml.suppress_tokens", tokens[i], 2);
        gguf_build_finish(&b);
        gguf_build_write(&b, path);
        gguf_build_close(&b);
        const enum status status = engine_open(&en, &o, &e);
        unlink(path);
        if (i) {
            assert_int_equal(status, ERR_FORMAT);
            assert_non_null(strstr(e.what, "tokenizer.ggml.suppress_tokens"));
            break;
        }
        assert_int_equal(status, OK);
        assert_int_equal(session_new(&s, en, &e), OK);
        const struct batch_item item = {s, f->prompt[0], true};
        assert_int_equal(engine_eval(en, &item, 1, &e), OK);
        for (int v = 0; v < TINY_VOCAB; v++)
            assert_int_equal(isfinite(engine_logits(en, 0)[v]), v != 7 && v != TINY_VOCAB - 1);
        session_free(s);
        engine_close(en);
    }
}

// The heads of the tiny model are half a block of Q8_0.
static void test_refused_cache_type(void **state) {
    struct fixture *f = *state;
    struct engine_options o = f->options;
    struct engine *en;
    struct err e;
    assert_true(TINY_HEAD_DIM % 32 != 0);
    o.workload.kv_type_k = DTYPE_Q8_0;
    assert_int_equal(engine_open(&en, &o, &e), ERR_USAGE);
    assert_non_null(strstr(e.what, "-ctk"));
}

// ---- Calls that fail ----------------------------------------------------------------------------

enum { N_MIXED = 3 };

// The next counts[i] tokens of the prompt for each session in one call, which take turns.
static enum status feed_mixed(struct fixture *f, struct engine *en, struct session **sessions,
                              const int32_t counts[N_MIXED], struct err *e) {
    struct batch_item items[N_MIXED * N_PROMPT];
    int32_t n = 0, n_fed[N_MIXED] = {0};
    for (int32_t turn = 0; turn < N_PROMPT; turn++) {
        for (int i = 0; i < N_MIXED; i++) {
            if (n_fed[i] == counts[i]) continue;
            const int32_t at = session_length(sessions[i]) + n_fed[i]++;
            items[n++] = (struct batch_item){sessions[i], f->prompt[at % N_PROMPT], false};
        }
    }
    return engine_eval(en, items, n, e);
}

// A call for three sessions of different lengths fails with that status after some micro-batches:
// all are as they were, and the rest of the prompt gives each the logits it gives alone.
static void fails_for_all(struct fixture *f, const struct engine_options *o,
                          const int32_t counts[N_MIXED], enum status expected) {
    static const int32_t lengths[N_MIXED] = {20, 10, 5};
    struct engine *en = open_ok(o);
    struct session *sessions[N_MIXED];
    struct err e;
    for (int i = 0; i < N_MIXED; i++) assert_int_equal(session_new(&sessions[i], en, &e), OK);
    assert_int_equal(feed_mixed(f, en, sessions, lengths, &e), OK);
    assert_int_equal(feed_mixed(f, en, sessions, counts, &e), expected);
    for (int i = 0; i < N_MIXED; i++) assert_int_equal(session_length(sessions[i]), lengths[i]);
    for (int i = 0; i < N_MIXED; i++) {
        for (int32_t at = lengths[i], n; at < N_PROMPT; at += n) {
            n = N_PROMPT - at < 50 ? N_PROMPT - at : 50;
            assert_int_equal(feed(en, sessions[i], f->prompt + at, n, &e), OK);
        }
        expect_same(f, engine_logits(en, 0), "a session that a failed call had");
        session_free(sessions[i]);
    }
    engine_close(en);
}

static bool stop_at_60(void *context, const char *what, uint64_t done, uint64_t total) {
    (void)context;
    (void)total;
    return strcmp(what, "prefill") != 0 || done < 60;
}

// At 30 of 120 tokens or more, which *context gets.
static bool stop_within(void *context, const char *what, uint64_t done, uint64_t total) {
    if (strcmp(what, "prefill") != 0 || total != 120 || done < 30) return true;
    *(uint64_t *)context = done;
    return false;
}

static void test_cancel(void **state) {
    struct fixture *f = *state;
    struct engine_options o = f->options;
    o.workload.n_ubatch = 10;
    o.progress.tell = stop_at_60;
    fails_for_all(f, &o, (int32_t[]){30, 20, 70}, ERR_CANCELLED);
}

// Within a micro-batch: the CPU has a part in each of these plans, if only the embedding.
static void test_cancel_within(void **state) {
    static const int32_t gpu_layers[] = {0, 2, GPU_LAYERS_ALL};
    struct fixture *f = *state;
    for (size_t i = 0; i < 3; i++) {
        struct engine_options o = f->options;
        uint64_t last = 0;
        o.device_spec = i ? "sim:vram=16M" : "none";
        o.constraints.gpu_layers = gpu_layers[i];
        o.trace_spans = 100;
        o.progress.tell = stop_within;
        o.progress.context = &last;
        fails_for_all(f, &o, (int32_t[]){30, 20, 70}, ERR_CANCELLED);
        assert_in_range(last, 30, 119);
    }
}

// The context of the second session alone is too short.
static void test_one_session_is_full(void **state) {
    struct fixture *f = *state;
    struct engine_options o = f->options;
    o.workload.n_ubatch = 10;
    o.workload.n_ctx = 90;
    fails_for_all(f, &o, (int32_t[]){40, 81, 60}, ERR_LIMIT);
}

struct reports { // of one kind of work
    const char *what;
    uint64_t done, total;
    int n;
};

static bool add_report(void *context, const char *what, uint64_t done, uint64_t total) {
    struct reports *r = context;
    if (strcmp(what, r->what) != 0) return true;
    assert_true(done >= r->done && done <= total);
    assert_true(r->n == 0 || total == r->total);
    *r = (struct reports){r->what, done, total, r->n + 1};
    return true;
}

// Reported progress never goes back, and ends at the total that was reported from the beginning.
static void test_progress(void **state) {
    static const char *const devices[] = {"none", "sim:vram=16M"};
    struct fixture *f = *state;
    float logits[TINY_VOCAB];
    for (int d = 0; d < 2; d++) {
        struct engine_options o = f->options;
        struct reports load = {.what = "load"}, prefill = {.what = "prefill"};
        struct reports reserve = {.what = "reserve"};
        o.device_spec = devices[d];
        o.constraints.gpu_layers = d ? 2 : GPU_LAYERS_AUTO;
        o.workload.n_ubatch = 25;
        o.progress.tell = add_report;
        o.progress.context = &load;
        struct engine *en = open_ok(&o);
        assert_int_equal(load.n, N_UNITS);
        assert_true(load.total > 0);
        assert_int_equal(load.done, load.total);
        engine_close(en);
        o.progress.context = &reserve;
        en = open_ok(&o);
        assert_int_equal(reserve.n, 1);
        assert_int_equal(reserve.total, plan_device_bytes(engine_plan(en), DEVICE_HOST));
        engine_close(en);
        o.progress.context = &prefill;
        prompt_logits(f, &o, N_PROMPT, logits);
        assert_int_equal(prefill.n, 4);
        assert_int_equal(prefill.total, N_PROMPT);
        assert_int_equal(prefill.done, N_PROMPT);
    }
}

// The plan is made for the text that is known, unless the workload says other lengths.
static void test_known_text(void **state) {
    struct fixture *f = *state;
    struct engine_options o = f->options;
    char text[301] = {0};
    memset(text, 'a', sizeof text - 1);
    o.prompt = text;
    o.prompt_bytes = 40;
    o.new_tokens = 7;
    struct engine *en = open_ok(&o);
    assert_int_equal(engine_workload(en)->n_prompt, 40);
    assert_int_equal(engine_workload(en)->n_gen, 7);
    engine_close(en);
    o.prompt_bytes = sizeof text - 1;
    o.new_tokens = 1000;
    en = open_ok(&o);
    assert_int_equal(engine_workload(en)->n_prompt, 128);
    assert_int_equal(engine_workload(en)->n_gen, 128);
    engine_close(en);
    o.workload.n_prompt = 9;
    o.workload.n_gen = 3;
    en = open_ok(&o);
    assert_int_equal(engine_workload(en)->n_prompt, 9);
    assert_int_equal(engine_workload(en)->n_gen, 3);
    engine_close(en);
}

// A fault at the nth allocation, copy or op, and a lost device: a clear error, and everything can
// be closed.
static void test_device_faults(void **state) {
    struct fixture *f = *state;
    static const char *const kinds[] = {"alloc", "copy", "op", "lost"};
    int failures[4] = {0};
    for (int kind = 0; kind < 4; kind++) {
        for (int n = 1; n < 60; n += kind ? 5 : 1) {
            char spec[64];
            snprintf(spec, sizeof spec, "sim:vram=16M,fail=%s:%d", kinds[kind], n);
            struct engine_options o = f->options;
            o.device_spec = spec;
            o.constraints.gpu_layers = 2;
            o.strict = true;
            struct engine *en;
            struct session *s;
            struct err e = {0};
            enum status status = engine_open(&en, &o, &e);
            if (!status) {
                assert_int_equal(session_new(&s, en, &e), OK);
                for (int i = 0; i < 6 && !status; i++) status = feed(en, s, f->prompt + i, 1, &e);
                if (status) assert_int_equal(feed(en, s, f->prompt, 1, &e), ERR_DEVICE);
                session_free(s);
                engine_close(en);
            }
            if (status) assert_int_equal(status, kind ? ERR_DEVICE : ERR_MEMORY);
            if (status) assert_true(e.what[0] != 0);
            failures[kind] += status != OK;
        }
    }
    for (int kind = 0; kind < 4; kind++) assert_true(failures[kind] >= 3);
}

// Bytes left on a device with that fault; the logits and the books stay right. n_replans: plans
// that are to be made anew.
static uint64_t left_on(struct fixture *f, const char *fault, int n_replans) {
    char spec[64];
    float logits[TINY_VOCAB];
    struct engine_options o = f->options;
    struct engine *en;
    struct err e;
    snprintf(spec, sizeof spec, "sim:vram=16M%s", fault);
    o.device_spec = spec;
    o.constraints.gpu_layers = GPU_LAYERS_ALL;
    prompt_logits(f, &o, 31, logits);
    expect_same(f, logits, spec);
    en = open_ok(&o);
    check_books(en);
    assert_int_equal(engine_n_replans(en), n_replans);
    const uint64_t left = plan_device_bytes(engine_plan(en), 1);
    assert_int_equal(engine_peak_bytes(en, 1), left); // nothing of a plan that was refused
    engine_close(en);
    o.strict = true;
    if (n_replans > 0) assert_int_equal(engine_open(&en, &o, &e), ERR_MEMORY);
    return left;
}

// The plan for a device that refuses memory takes what there is at most; half of what was refused,
// if the device says that there is enough.
static void test_refusals(void **state) {
    struct fixture *f = *state;
    const uint64_t used = left_on(f, "", 0);
    for (int n = 1; n <= 3; n++) {
        char fault[48];
        snprintf(fault, sizeof fault, ",fail=alloc:%d", n);
        assert_true(left_on(f, fault, 1) <= used / 2);
    }
    uint64_t before = used;
    // That much of what it needs is taken by others.
    for (unsigned percent = 20; percent <= 100; percent += 40) {
        char fault[48];
        const unsigned long long room = used * (100 - percent) / 100 >> 10;
        snprintf(fault, sizeof fault, ",taken=%lluK", (16 << 10) - room);
        const uint64_t left = left_on(f, fault, 1);
        assert_true(left <= before && left <= room << 10);
        before = left;
    }
    assert_int_equal(before, 0);
}

// Keeps rates in o's cache, in *file, by which its accelerator is worth the copies of a tiny model.
static void keep_fast_rates(const struct engine_options *o, char file[CALIBRATION_PATH]) {
    struct device *devices[MAX_DEVICES] = {0};
    struct calibration_key key;
    struct machine m;
    struct err e;
    int32_t n;
    assert_int_equal(devices_open(devices, &n, o, &e), OK);
    assert_int_equal(devices_machine(&m, devices, n, o, &e), OK);
    struct device_rates *cpu = &m.devices[DEVICE_HOST].rates;
    m.devices[1].rates = *cpu;
    m.devices[1].rates.op_us = m.devices[1].rates.pass_us = 0.001;
    m.devices[1].link = (struct link_rates){100, 100, 100, 0.001, 100};
    for (int t = 0; t < WEIGHT_COUNT; t++)
        for (int c = 0; c < RATE_CLASSES; c++) cpu->weight_gbps[t][c] /= 1000;
    cpu->op_us = cpu->pass_us = 1000;
    cpu->cache_bytes = 0;
    m.rates = RATES_MEASURED;
    calibration_key_of(&key, devices, n, o);
    assert_int_equal(calibration_store(&m, &(struct calibration){0}, o->cache_path, &key, &e), OK);
    assert_true(calibration_path(file, o->cache_path, &key));
    devices_close(devices);
}

// Where the accelerator says what it has, the smaller plan uses that, not half of what was refused.
static void test_smaller_plan(void **state) {
    struct fixture *f = *state;
    char folder[64], files[2][CALIBRATION_PATH], spec[64];
    struct engine_options o = f->options;
    snprintf(folder, sizeof folder, "/tmp/tandem_test_engine.%d", (int)getpid());
    o.device_spec = "sim:vram=16M";
    o.cache_path = folder;
    keep_fast_rates(&o, files[0]);
    struct engine *en = open_ok(&o);
    const uint64_t used = plan_device_bytes(engine_plan(en), 1), room_kib = used * 9 / 10 >> 10;
    engine_close(en);
    assert_true(used > 0);
    snprintf(spec, sizeof spec, "sim:vram=16M,taken=%lluK", (16ULL << 10) - room_kib);
    o.device_spec = spec;
    keep_fast_rates(&o, files[1]);
    en = open_ok(&o);
    assert_int_equal(engine_n_replans(en), 1);
    const uint64_t left = plan_device_bytes(engine_plan(en), 1);
    assert_true(left > used / 2 && left <= room_kib << 10);
    engine_close(en);
    for (int i = 0; i < 2; i++) assert_int_equal(unlink(files[i]), 0);
    assert_int_equal(rmdir(folder), 0);
}

// A smaller plan has the context that was asked for, and no other micro-batch than one that the
// planner chooses; where that context does not fit, the model is refused.
static void test_smaller_plan_keeps_context(void **state) {
    struct fixture *f = *state;
    struct engine_options o = f->options;
    struct engine *en;
    struct err e;
    o.workload.n_ctx = 4096;
    o.workload.n_ubatch = 0;
    o.workload.n_sessions = 1;
    o.constraints.gpu_layers = 0;
    en = open_ok(&o);
    const struct workload alone = engine_plan(en)->workload;
    engine_close(en);
    o.device_spec = "sim:vram=16M,taken=16M";
    o.constraints.gpu_layers = GPU_LAYERS_ALL;
    en = open_ok(&o);
    assert_true(engine_n_replans(en) > 0);
    assert_int_equal(engine_plan(en)->workload.n_ctx, 4096);
    assert_int_equal(engine_plan(en)->workload.n_ubatch, alone.n_ubatch);
    engine_close(en);
    // That is so where the refused plan has another one, too.
    o.device_spec = "sim:vram=2M";
    en = open_ok(&o);
    assert_int_not_equal(engine_plan(en)->workload.n_ubatch, alone.n_ubatch);
    engine_close(en);
    o.device_spec = "sim:vram=2M,taken=2M";
    en = open_ok(&o);
    assert_true(engine_n_replans(en) > 0);
    assert_int_equal(engine_plan(en)->workload.n_ubatch, alone.n_ubatch);
    engine_close(en);
    // One that was asked for stays.
    o.device_spec = "sim:vram=16M,taken=16M";
    o.workload.n_ubatch = 48;
    assert_int_not_equal(alone.n_ubatch, o.workload.n_ubatch);
    en = open_ok(&o);
    assert_true(engine_n_replans(en) > 0);
    assert_int_equal(engine_plan(en)->workload.n_ubatch, 48);
    engine_close(en);
    // Half of the context would fit.
    const int32_t layers[] = {GPU_LAYERS_AUTO, GPU_LAYERS_ALL};
    o.workload.n_ubatch = 64;
    o.constraints.gpu_layers = 0;
    en = open_ok(&o);
    o.constraints.ram_bytes = engine_peak_bytes(en, 0) / 4 * 3;
    engine_close(en);
    for (int i = 0; i < 2; i++) {
        o.constraints.gpu_layers = layers[i];
        assert_int_equal(engine_open(&en, &o, &e), ERR_MEMORY);
        assert_non_null(strstr(e.fix, "without the GPU: -c 2048 fits; or raise --ram"));
    }
}

// A model that fits neither the device nor the CPU is refused with the sizes that would fit.
static void test_nothing_fits(void **state) {
    struct fixture *f = *state;
    struct engine_options o = f->options;
    struct engine *en;
    struct err e;
    o.constraints.gpu_layers = GPU_LAYERS_ALL;
    o.device_spec = "sim:vram=16M";
    en = open_ok(&o);
    o.constraints.ram_bytes = engine_peak_bytes(en, 0); // enough only while the device has room
    engine_close(en);
    en = open_ok(&o);
    engine_close(en);
    o.device_spec = "sim:vram=16M,taken=16M";
    assert_int_equal(engine_open(&en, &o, &e), ERR_MEMORY);
    assert_non_null(strstr(e.what, "simulated"));
    assert_non_null(strstr(e.fix, "without the GPU"));
    unsigned long long ram_mib = 0;
    const char *raise = strstr(e.fix, "--ram to ");
    assert_non_null(raise);
    assert_int_equal(sscanf(raise, "--ram to %lluM", &ram_mib), 1);
    o.constraints.ram_bytes = ram_mib << 20;
    en = open_ok(&o);
    assert_true(engine_n_replans(en) > 0);
    engine_close(en);
}

// Every host allocation of engine_open refused in turn: ERR_MEMORY, or a smaller plan; nothing is
// left behind.
static void test_refused_allocations(void **state) {
    struct fixture *f = *state;
    struct engine_options o = f->options;
    o.device_spec = "sim:vram=16M";
    o.constraints.gpu_layers = 2;
    const int64_t mapped_bytes = alloc_fail_mapped_bytes();
    int refused = 0;
    for (int n = 1;; n++) {
        struct engine *en;
        struct err e = {0};
        alloc_fail_at(n);
        enum status status = engine_open(&en, &o, &e);
        bool happened = alloc_fail_happened();
        alloc_fail_at(0);
        const bool replanned = status == OK && engine_n_replans(en) > 0;
        if (status == OK) engine_close(en);
        assert_int_equal(alloc_fail_mapped_bytes(), mapped_bytes);
        if (!happened) break;
        refused++;
        // Memory of the simulated device comes from the host too.
        if (status != ERR_MEMORY && !replanned)
            fail_msg("allocation %d: status %s, %s", n, status_name(status), e.what);
    }
    assert_true(refused > 10);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_micro_batches),
        cmocka_unit_test(test_temperature),
        cmocka_unit_test(test_sessions),
        cmocka_unit_test(test_splits),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_padding),
        cmocka_unit_test(test_suppressed_tokens),
        cmocka_unit_test(test_refused_cache_type),
        cmocka_unit_test(test_cancel),
        cmocka_unit_test(test_cancel_within),
        cmocka_unit_test(test_one_session_is_full),
        cmocka_unit_test(test_progress),
        cmocka_unit_test(test_known_text),
        cmocka_unit_test(test_device_faults),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_smaller_plan),
        cmocka_unit_test(test_smaller_plan_keeps_context),
        cmocka_unit_test(test_nothing_fits),
        cmocka_unit_test(test_refused_allocations),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}

/* test_state.c: recurrent states and the rings of layers with a window: which slots of a session
 * are read, written and kept, and sessions that are cut back, cancelled and used again give the
 * logits of fresh ones, bit for bit, and compute no token again that a kept state or a ring saves.
 */
#include "runtime/engine/engine.h"
#include "runtime/engine/states.h"

#include "base/mem.h"
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

enum { N_CTX = 300, N_UBATCH = 16, N_SESSIONS = 2, WINDOW = 30 };

// ---- Slots --------------------------------------------------------------------------------------

// Steps n tokens of a session in one micro-batch. Returns the slot read and the slot written, or -1
// for both if not all tokens form a chain.
static void step_tokens(struct states *s, int32_t session, int32_t first, int32_t n,
                        int32_t slots[2]) {
    int32_t step[2];
    states_step(s, session, first, first, slots);
    for (int32_t i = 1; i < n; i++) {
        states_step(s, session, first + i, first + i, step);
        assert_int_equal(step[0], slots[1]);
        assert_int_equal(step[1], slots[1]);
    }
}

// Steps n tokens of session 1, which has no states.
static void step_ring(struct states *s, int32_t first, int32_t n, int32_t step[2]) {
    for (int32_t i = 0; i < n; i++) states_step(s, 1, first + i, first + i, step);
}

static struct shape *delta_shape_of(struct shape *out) {
    *out = (struct shape){
        .recurrent = {
            .kind = RECURRENCE_DELTA, .n_heads = 1, .n_key_heads = 1, .head_dim = 8, .n_taps = 4}};
    return out;
}

// A prompt keeps its start and then its end; single tokens alternate between the other two slots.
static void test_slots(void **state) {
    static const struct workload w = {.n_ctx = N_CTX, .n_sessions = N_SESSIONS, .n_ubatch = 8};
    struct shape *shape = mem_alloc(1, sizeof *shape);
    struct states s;
    struct err e;
    int32_t slots[2], other[2];
    (void)state;
    assert_int_equal(states_open(&s, delta_shape_of(shape), &w, &e), OK);
    assert_int_equal(states_length(&s, 1, 5), 0);
    step_tokens(&s, 1, 0, 8, slots);
    assert_int_equal(slots[0], -1);
    assert_true(slots[1] >= STATE_SLOTS && slots[1] < 2 * STATE_SLOTS); // of session 1
    states_end(&s, true);
    assert_int_equal(states_length(&s, 1, 8), 8);
    states_keep(&s, 1);
    const int32_t kept = slots[1];
    for (int32_t at = 8; at < 13; at++) {
        step_tokens(&s, 1, at, 1, other);
        assert_int_equal(other[0], slots[1]);
        assert_true(other[1] != kept && other[1] != other[0]);
        states_end(&s, true);
        memcpy(slots, other, sizeof slots);
    }
    assert_int_equal(states_token(&s, 1, 12), 12);
    states_truncate(&s, 1, 12); // the last state but one is there
    assert_int_equal(states_length(&s, 1, 12), 12);
    states_truncate(&s, 1, 11);
    assert_int_equal(states_length(&s, 1, 11), 8);
    step_tokens(&s, 1, 8, 3, other);
    assert_int_equal(other[0], kept);
    states_end(&s, false); // fails
    assert_int_equal(states_length(&s, 1, 11), 8);
    step_tokens(&s, 1, 8, 1, slots);
    states_end(&s, true);
    step_tokens(&s, 1, 9, 1, other);
    states_end(&s, true);
    step_tokens(&s, 1, 10, 1, slots); // writes over the state of 9 tokens
    states_end(&s, false);
    states_truncate(&s, 1, 9);
    assert_int_equal(states_length(&s, 1, 9), 8);
    states_truncate(&s, 1, 7);
    assert_int_equal(states_length(&s, 1, 7), 0);
    assert_int_equal(states_length(&s, 0, 9), 0); // nothing has touched the other session
    states_close(&s);
    mem_free(shape);
}

// A session that is cut back behind its newest state has the one before, and has it still when
// other sessions have run.
static void test_others_run(void **state) {
    static const struct workload w = {.n_ctx = N_CTX, .n_sessions = N_SESSIONS, .n_ubatch = 8};
    struct shape *shape = mem_alloc(1, sizeof *shape);
    struct states s;
    struct err e;
    int32_t slots[2];
    (void)state;
    assert_int_equal(states_open(&s, delta_shape_of(shape), &w, &e), OK);
    step_tokens(&s, 0, 0, 5, slots);
    states_end(&s, true);
    const int32_t first = slots[1];
    step_tokens(&s, 0, 5, 3, slots);
    states_end(&s, true);
    states_truncate(&s, 0, 6);
    assert_int_equal(states_length(&s, 0, 6), 5);
    for (int i = 0; i < 2; i++) {
        step_tokens(&s, 1, i, 1, slots);
        states_end(&s, true);
    }
    assert_int_equal(states_length(&s, 0, 6), 5);
    step_tokens(&s, 0, 5, 1, slots);
    assert_int_equal(slots[0], first);
    states_close(&s);
    mem_free(shape);
}

// A ring of 64 rows for a window of 30: what newer positions have overwritten is missing, whether
// their micro-batch succeeded or not, until the session begins anew.
static void test_rows_of_a_ring(void **state) {
    static const struct workload w = {
        .n_ctx = N_CTX, .n_sessions = N_SESSIONS, .n_ubatch = 8, .window = WINDOW};
    struct shape *shape = mem_alloc(1, sizeof *shape);
    struct states s;
    struct err e;
    int32_t slots[2] = {7, 7};
    (void)state;
    assert_int_equal(workload_ring_pages(&w), 1);
    assert_int_equal(states_open(&s, shape, &w, &e), OK);
    for (int32_t at = 0; at < 96; at += 8) {
        assert_int_equal(states_length(&s, 1, at), at);
        step_ring(&s, at, 8, slots);
        states_end(&s, true);
    }
    assert_int_equal(slots[0], 7); // there are no states
    states_truncate(&s, 1, 96 - 64 + WINDOW - 1);
    assert_int_equal(states_length(&s, 1, 61), 61);
    states_truncate(&s, 1, 60);
    assert_int_equal(states_length(&s, 1, 60), 0);
    step_ring(&s, 0, 8, slots);
    states_end(&s, true);
    step_ring(&s, 8, 8, slots);
    states_end(&s, false);
    assert_int_equal(states_length(&s, 1, 60), 8);
    for (int32_t at = 8; at < 64; at += 8) {
        step_ring(&s, at, 8, slots);
        states_end(&s, true);
    }
    step_ring(&s, 64, 8, slots);
    states_end(&s, false);
    assert_int_equal(states_length(&s, 1, 64), 64);
    states_truncate(&s, 1, 37);
    assert_int_equal(states_length(&s, 1, 37), 37);
    states_truncate(&s, 1, 36); // position 7 may have been overwritten
    assert_int_equal(states_length(&s, 1, 36), 0);
    assert_int_equal(s.all[1].low, 8);
    states_truncate(&s, 1, 7); // so no row counts, as a saved session has to say
    assert_int_equal(s.all[1].done, 0);
    assert_int_equal(s.all[1].low, 0);
    // A session of an engine with a longer ring: the rows that fit here are the last ones.
    static const int32_t saved[96];
    struct session_states numbers = s.all[1];
    numbers.low = 0;
    numbers.done = 96;
    states_restore(&s, 1, &numbers, saved, 96);
    states_truncate(&s, 1, 61);
    assert_int_equal(states_length(&s, 1, 61), 61);
    states_truncate(&s, 1, 60);
    assert_int_equal(states_length(&s, 1, 60), 0);
    states_close(&s);
    mem_free(shape);
}

// Without a window every position stays in the cache, so no cut loses any.
static void test_no_ring(void **state) {
    static const struct workload w = {.n_ctx = N_CTX, .n_sessions = N_SESSIONS, .n_ubatch = 8};
    struct shape *shape = mem_alloc(1, sizeof *shape);
    struct states s;
    struct err e;
    int32_t slots[2];
    (void)state;
    assert_int_equal(states_open(&s, shape, &w, &e), OK);
    for (int32_t at = 0; at < 296; at += 8) {
        step_ring(&s, at, 8, slots);
        states_end(&s, true);
    }
    states_truncate(&s, 1, 10);
    assert_int_equal(states_length(&s, 1, 10), 10);
    states_close(&s);
    mem_free(shape);
}

// ---- Sessions -----------------------------------------------------------------------------------

static const struct tiny_model MODELS[] = {
    {.architecture = "qwen35", .n_layers = 3, .delta_period = 2, .normed = true, .seed = 5},
    {.architecture = "lfm2",
     .n_layers = 3,
     .delta_period = 2,
     .convolves = true,
     .normed = true,
     .seed = 5},
    {.architecture = "granitehybrid", .n_layers = 3, .delta_period = 2, .scans = true, .seed = 5},
    {.architecture = "falcon-h1",
     .n_layers = 3,
     .delta_period = 1,
     .scans_beside = true,
     .seed = 5},
    {.architecture = "gemma3",
     .n_layers = 3,
     .ends_with_norms = true,
     .normed = true,
     .window = WINDOW,
     .seed = 6},
};
enum { RECURRENT, CONVOLVING, SCANNING, BESIDE, WINDOWED, N_MODELS };

struct model_file {
    char path[64];
    float *expected; // [N_CTX, TINY_VOCAB], of a session that was never cut
};

struct fixture {
    struct model_file models[N_MODELS];
    int32_t tokens[N_CTX];
    const struct model_file *model; // of the engine
    bool full_windows;
    struct engine *en;
    uint64_t total; // tokens that the last call had to compute, as it told
    int32_t left;   // tells until one is refused
};

static bool listen(void *context, const char *what, uint64_t done, uint64_t total) {
    struct fixture *f = context;
    assert_true(done <= total);
    if (strcmp(what, "prefill") != 0) return true;
    f->total = total;
    return f->left-- > 0;
}

static void open_engine(struct fixture *f, int model, const char *device, int32_t n_ubatch,
                        int32_t max_logits) {
    f->model = &f->models[model];
    struct err e;
    char text[512];
    const struct engine_options o = {
        .model_path = f->model->path,
        .device_spec = device,
        .drivers = &sim_driver,
        .n_drivers = 1,
        .cpu = {.isa = ISA_AUTO, .n_threads = 1},
        .workload = {.n_ctx = N_CTX,
                     .n_ubatch = n_ubatch,
                     .max_logits = max_logits,
                     .full_windows = f->full_windows,
                     .n_sessions = N_SESSIONS,
                     .kv_type_k = DTYPE_F16,
                     .kv_type_v = DTYPE_F16},
        .progress = {listen, f},
        .constraints = {.gpu_layers = GPU_LAYERS_AUTO},
    };
    f->left = INT32_MAX;
    if (engine_open(&f->en, &o, &e)) fail_msg("%s", err_text(&e, text, sizeof text));
}

// Feeds the session its next n tokens, and compares the logits of the last with a fresh session's.
// Returns how many tokens were computed.
static uint64_t feed(struct fixture *f, struct session *s, int32_t n) {
    struct batch_item items[N_CTX];
    struct err e;
    const int32_t at = session_length(s);
    for (int32_t i = 0; i < n; i++)
        items[i] = (struct batch_item){s, f->tokens[at + i], i == n - 1};
    f->total = (uint64_t)n;
    if (engine_eval(f->en, items, n, &e)) fail_msg("%s", e.what);
    assert_int_equal(session_length(s), at + n);
    assert_memory_equal(engine_logits(f->en, 0),
                        f->model->expected + (size_t)(at + n - 1) * TINY_VOCAB,
                        TINY_VOCAB * sizeof(float));
    return f->total;
}

static int write_model(struct fixture *f, int i) {
    struct model_file *m = &f->models[i];
    struct batch_item items[N_CTX];
    struct session *s;
    struct err e;
    snprintf(m->path, sizeof m->path, "/tmp/tandem_test_state.%d.%d.gguf", i, (int)getpid());
    tiny_model_write(&MODELS[i], m->path);
    m->expected = mem_alloc(N_CTX * TINY_VOCAB, sizeof *m->expected);
    open_engine(f, i, "none", N_CTX, N_CTX);
    if (session_new(&s, f->en, &e)) return -1;
    for (int t = 0; t < N_CTX; t++) items[t] = (struct batch_item){s, f->tokens[t], true};
    if (engine_eval(f->en, items, N_CTX, &e)) return -1;
    memcpy(m->expected, engine_logits(f->en, 0), N_CTX * TINY_VOCAB * sizeof(float));
    session_free(s);
    engine_close(f->en);
    return 0;
}

static int setup(void **state) {
    struct fixture *f = mem_alloc(1, sizeof *f);
    if (!f) return -1;
    *state = f;
    for (int i = 0; i < N_CTX; i++) f->tokens[i] = (i * 53 + i * i * 7) % 256;
    for (int i = 0; i < N_MODELS; i++)
        if (write_model(f, i)) return -1;
    return 0;
}

static int teardown(void **state) {
    struct fixture *f = *state;
    for (int i = 0; i < N_MODELS; i++) {
        unlink(f->models[i].path);
        mem_free(f->models[i].expected);
    }
    mem_free(f);
    return 0;
}

static void cut_back(struct fixture *f) {
    struct session *s;
    struct err e;
    assert_int_equal(session_new(&s, f->en, &e), OK);
    assert_int_equal(feed(f, s, 40), 40);
    for (int i = 0; i < 12; i++) assert_int_equal(feed(f, s, 1), 1);
    session_truncate(s, 51); // the state before the last token is still there
    assert_int_equal(feed(f, s, 1), 1);
    session_truncate(s, 47); // from the end of the prompt on
    assert_int_equal(session_length(s), 47);
    assert_int_equal(feed(f, s, 3), 3 + 7);
    session_truncate(s, 47); // the start of the last call
    assert_int_equal(feed(f, s, 1), 1);
    session_truncate(s, 47); // and again
    assert_int_equal(feed(f, s, 20), 20);
    session_truncate(s, 63); // the last micro-batch but one ended there
    assert_int_equal(feed(f, s, 1), 1);
    session_truncate(s, 10);
    assert_int_equal(feed(f, s, 2), 12);
    session_truncate(s, 0);
    assert_int_equal(feed(f, s, 30), 30);
    session_free(s);
    assert_int_equal(session_new(&s, f->en, &e), OK); // the same slots
    assert_int_equal(feed(f, s, 1), 1);
    session_free(s);
}

static void test_cut_back(void **state) {
    struct fixture *f = *state;
    static const char *const devices[] = {"none", "sim:vram=16M"};
    for (int i = 0; i < 8; i++) {
        open_engine(f, RECURRENT + i / 2, devices[i % 2], N_UBATCH, 1);
        cut_back(f);
        engine_close(f->en);
    }
}

// Cuts a session of N_CTX tokens back to a length and fills it again. Tokens are computed again
// only if the ring, of which rows are left, lacks a position that the window sees.
static void cut_ring(struct fixture *f, struct session *s, int32_t length, int32_t n_ring_rows) {
    const int32_t low = N_CTX > n_ring_rows ? N_CTX - n_ring_rows : 0;
    const int32_t seen = length > WINDOW ? length - WINDOW + 1 : 0;
    session_truncate(s, length);
    assert_int_equal(feed(f, s, 1), 1 + (seen < low ? length : 0));
    if (length + 1 < N_CTX) feed(f, s, N_CTX - length - 1);
}

// Micro-batches of all sizes, contexts of ten windows, cut back to every length.
static void test_cut_rings(void **state) {
    struct fixture *f = *state;
    static const int32_t ubatches[] = {1, 7, 16, 33, 35, 64, 200, N_CTX};
    static const char *const devices[] = {"none", "sim:vram=16M"};
    struct session *s;
    struct err e;
    for (size_t i = 0; i < 2 * (sizeof ubatches / sizeof *ubatches); i++) {
        const int32_t n_ubatch = ubatches[i / 2], rows = (WINDOW + n_ubatch + 63) / 64 * 64;
        open_engine(f, WINDOWED, devices[i % 2], n_ubatch, 1);
        assert_int_equal(session_new(&s, f->en, &e), OK);
        feed(f, s, N_CTX);
        // Lengths around the first that the ring reaches, and others.
        for (int32_t length = N_CTX - 1; length > 0; length -= i == 4 ? 1 : 23)
            cut_ring(f, s, length, rows);
        for (int32_t d = -2; d < 3 && rows < N_CTX; d++)
            cut_ring(f, s, N_CTX - rows + WINDOW - 1 + d, rows);
        session_free(s);
        engine_close(f->en);
    }
}

// With all positions kept, nothing is computed again, and the caches are those of other layers.
static void test_full_windows(void **state) {
    struct fixture *f = *state;
    struct session *s;
    struct err e;
    f->full_windows = true;
    open_engine(f, WINDOWED, "none", 7, 1);
    const struct plan *plan = engine_plan(f->en);
    uint64_t kv_bytes = 0;
    for (int32_t u = 0; u < plan->n_units; u++) {
        if (kv_bytes && plan->unit_kv_bytes[u]) assert_int_equal(plan->unit_kv_bytes[u], kv_bytes);
        if (plan->unit_kv_bytes[u]) kv_bytes = plan->unit_kv_bytes[u];
    }
    assert_int_equal(session_new(&s, f->en, &e), OK);
    feed(f, s, N_CTX);
    cut_ring(f, s, 40, N_CTX);
    cut_ring(f, s, 1, N_CTX);
    session_free(s);
    engine_close(f->en);
    f->full_windows = false;
}

// Two sessions in one call, of which one has to catch up, and the other goes on.
static void test_sessions_apart(void **state) {
    struct fixture *f = *state;
    struct session *a, *b;
    struct batch_item items[4];
    struct err e;
    open_engine(f, RECURRENT, "sim:vram=16M", N_UBATCH, 2);
    assert_int_equal(session_new(&a, f->en, &e), OK);
    assert_int_equal(session_new(&b, f->en, &e), OK);
    feed(f, a, 30);
    feed(f, b, 21);
    feed(f, a, 1);
    session_truncate(a, 25);
    items[0] = (struct batch_item){b, f->tokens[21], false};
    items[1] = (struct batch_item){a, f->tokens[25], true};
    items[2] = (struct batch_item){b, f->tokens[22], true};
    assert_int_equal(engine_eval(f->en, items, 3, &e), OK);
    assert_int_equal(f->total, 3 + 25 - 16); // a was cut back to the end of a micro-batch
    for (int i = 0; i < 2; i++)
        assert_memory_equal(engine_logits(f->en, i),
                            f->model->expected + (i ? 22 : 25) * TINY_VOCAB,
                            TINY_VOCAB * sizeof(float));
    session_free(a);
    session_free(b);
    engine_close(f->en);
}

// A call is cancelled after each of its micro-batches, also while it computes tokens again.
static void cancel(struct fixture *f, int model) {
    struct session *s;
    struct err e;
    struct batch_item items[N_CTX];
    int32_t n_cancelled = 0;
    open_engine(f, model, "sim:vram=16M", N_UBATCH, 1);
    for (int32_t left = 0; left < 12; left++) {
        assert_int_equal(session_new(&s, f->en, &e), OK);
        feed(f, s, 133);
        for (int i = 0; i < 4; i++) feed(f, s, 1);
        session_truncate(s, 60); // nothing before 132 is kept, and no row before 73
        for (int32_t i = 0; i < 90; i++)
            items[i] = (struct batch_item){s, f->tokens[60 + i], false};
        f->left = left;
        if (engine_eval(f->en, items, 90, &e)) {
            assert_int_equal(e.status, ERR_CANCELLED);
            assert_int_equal(session_length(s), 60);
            n_cancelled++;
        } else {
            session_truncate(s, 60);
        }
        f->left = INT32_MAX;
        feed(f, s, 1);
        feed(f, s, 40);
        session_free(s);
    }
    assert_true(n_cancelled >= 5);
    engine_close(f->en);
}

static void test_cancelled(void **state) {
    cancel(*state, RECURRENT);
    cancel(*state, WINDOWED);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_slots),          cmocka_unit_test(test_others_run),
        cmocka_unit_test(test_rows_of_a_ring), cmocka_unit_test(test_no_ring),
        cmocka_unit_test(test_cut_back),       cmocka_unit_test(test_cut_rings),
        cmocka_unit_test(test_full_windows),   cmocka_unit_test(test_sessions_apart),
        cmocka_unit_test(test_cancelled),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}

/* test_state.c: recurrent states: which slots of a session are read, written and kept, and sessions
 * that are cut back, cancelled and used again give the logits of fresh ones, bit for bit, and
 * compute no token again that a kept state saves.
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

enum { N_CTX = 128, N_UBATCH = 16, N_SESSIONS = 2 };

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

static struct shape *delta_shape_of(struct shape *out) {
    *out = (struct shape){.delta = {.n_heads = 1, .n_key_heads = 1, .head_dim = 8, .n_taps = 4}};
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
    states_truncate(&s, 1, 7);
    assert_int_equal(states_length(&s, 1, 7), 0);
    assert_int_equal(states_length(&s, 0, 9), 0); // nothing has touched the other session
    states_close(&s);
    shape->delta.n_heads = 0;
    assert_int_equal(states_open(&s, shape, &w, &e), OK);
    assert_int_equal(states_length(&s, 1, 5), 5);
    states_close(&s);
    mem_free(shape);
}

// ---- Sessions -----------------------------------------------------------------------------------

struct fixture {
    char path[64];
    int32_t tokens[N_CTX];
    float *expected; // [N_CTX, TINY_VOCAB], of a session that was never cut
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

static void open_engine(struct fixture *f, const char *device, int32_t n_ubatch,
                        int32_t max_logits) {
    struct err e;
    char text[512];
    const struct engine_options o = {
        .model_path = f->path,
        .device_spec = device,
        .drivers = &sim_driver,
        .n_drivers = 1,
        .cpu = {.isa = ISA_AUTO, .n_threads = 1},
        .workload = {.n_ctx = N_CTX,
                     .n_ubatch = n_ubatch,
                     .max_logits = max_logits,
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
    assert_memory_equal(engine_logits(f->en, 0), f->expected + (size_t)(at + n - 1) * TINY_VOCAB,
                        TINY_VOCAB * sizeof(float));
    return f->total;
}

static int setup(void **state) {
    const struct tiny_model tiny = {
        .architecture = "qwen35", .n_layers = 3, .delta_period = 2, .normed = true, .seed = 5};
    struct fixture *f = mem_alloc(1, sizeof *f);
    struct batch_item items[N_CTX];
    struct session *s;
    struct err e;
    if (!f) return -1;
    *state = f;
    snprintf(f->path, sizeof f->path, "/tmp/tandem_test_state.%d.gguf", (int)getpid());
    tiny_model_write(&tiny, f->path);
    f->expected = mem_alloc(N_CTX * TINY_VOCAB, sizeof *f->expected);
    for (int i = 0; i < N_CTX; i++) f->tokens[i] = (i * 53 + i * i * 7) % 256;
    open_engine(f, "none", N_CTX, N_CTX);
    if (session_new(&s, f->en, &e)) return -1;
    for (int i = 0; i < N_CTX; i++) items[i] = (struct batch_item){s, f->tokens[i], true};
    if (engine_eval(f->en, items, N_CTX, &e)) return -1;
    memcpy(f->expected, engine_logits(f->en, 0), N_CTX * TINY_VOCAB * sizeof(float));
    session_free(s);
    engine_close(f->en);
    return 0;
}

static int teardown(void **state) {
    struct fixture *f = *state;
    unlink(f->path);
    mem_free(f->expected);
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
    for (int i = 0; i < 2; i++) {
        open_engine(f, devices[i], N_UBATCH, 1);
        cut_back(f);
        engine_close(f->en);
    }
}

// Two sessions in one call, of which one has to catch up, and the other goes on.
static void test_sessions_apart(void **state) {
    struct fixture *f = *state;
    struct session *a, *b;
    struct batch_item items[4];
    struct err e;
    open_engine(f, "sim:vram=16M", N_UBATCH, 2);
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
        assert_memory_equal(engine_logits(f->en, i), f->expected + (i ? 22 : 25) * TINY_VOCAB,
                            TINY_VOCAB * sizeof(float));
    session_free(a);
    session_free(b);
    engine_close(f->en);
}

// A call is cancelled after each of its micro-batches, also while it computes tokens again.
static void test_cancelled(void **state) {
    struct fixture *f = *state;
    struct session *s;
    struct err e;
    struct batch_item items[N_CTX];
    int32_t n_cancelled = 0;
    open_engine(f, "sim:vram=16M", N_UBATCH, 1);
    for (int32_t left = 0; left < 8; left++) {
        assert_int_equal(session_new(&s, f->en, &e), OK);
        feed(f, s, 33);
        for (int i = 0; i < 4; i++) feed(f, s, 1);
        session_truncate(s, 30); // nothing before 32 is kept
        for (int32_t i = 0; i < 50; i++)
            items[i] = (struct batch_item){s, f->tokens[30 + i], false};
        f->left = left;
        if (engine_eval(f->en, items, 50, &e)) {
            assert_int_equal(e.status, ERR_CANCELLED);
            assert_int_equal(session_length(s), 30);
            n_cancelled++;
        } else {
            session_truncate(s, 30);
        }
        f->left = INT32_MAX;
        feed(f, s, 1);
        feed(f, s, 40);
        session_free(s);
    }
    assert_true(n_cancelled >= 5);
    engine_close(f->en);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_slots),
        cmocka_unit_test(test_cut_back),
        cmocka_unit_test(test_sessions_apart),
        cmocka_unit_test(test_cancelled),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}

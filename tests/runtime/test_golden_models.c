/* test_golden_models.c: each model of tests/golden/tiny, whatever its family, on the CPU alone and
 * in random placements on the simulated device: whatever becomes of a session, which is fed in
 * pieces, copied, cut back and fed again, its logits are those of a fresh one on the CPU, bit for
 * bit. cli_tiny.sh holds those against the goldens.
 */
#include "runtime/engine/engine.h"

#include "base/mem.h"
#include "runtime/gguf/gguf.h"
#include "runtime/model/gguf_shape.h"
#include "tests/sim/sim_device.h"

#include <glob.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { HOST, GPU, N_CTX = 48, N_PLANS = 1, MAX_VOCAB = 1024 };

struct fixture {
    uint64_t random;
    struct shape *shape;
    float *expected; // [N_CTX, n_vocab]
    int32_t tokens[N_CTX], n_vocab;
    const char *path;
};

static int32_t below(struct fixture *f, int32_t n) { // xorshift64*, Vigna 2016
    f->random ^= f->random >> 12;
    f->random ^= f->random << 25;
    f->random ^= f->random >> 27;
    return (int32_t)((f->random * 0x2545f4914f6cdd1du >> 33) % (uint64_t)n);
}

static int setup(void **state) {
    struct fixture *f = mem_alloc(1, sizeof *f);
    if (!f) return -1;
    *state = f;
    f->random = 20261123;
    f->shape = mem_alloc(1, sizeof *f->shape);
    f->expected = mem_alloc((size_t)N_CTX * MAX_VOCAB, sizeof *f->expected);
    for (int i = 0; i < N_CTX; i++) f->tokens[i] = (i * 37 + i * i * 11) % 256;
    return f->shape && f->expected ? 0 : -1;
}

static int teardown(void **state) {
    struct fixture *f = *state;
    mem_free(f->shape);
    mem_free(f->expected);
    mem_free(f);
    return 0;
}

static struct engine_options options_of(const struct fixture *f) {
    return (struct engine_options){
        .model_path = f->path,
        .device_spec = "none",
        .drivers = &sim_driver,
        .n_drivers = 1,
        .cpu = {.isa = ISA_AUTO, .n_threads = 1},
        .workload = {.n_ctx = N_CTX,
                     .n_ubatch = N_CTX,
                     .max_logits = N_CTX,
                     .n_sessions = 2,
                     .kv_type_k = DTYPE_F16,
                     .kv_type_v = DTYPE_F16},
        .constraints = {.gpu_layers = GPU_LAYERS_AUTO},
    };
}

static struct engine *open_ok(const struct fixture *f, const struct engine_options *o) {
    struct engine *en;
    struct err e;
    char text[1024];
    if (engine_open(&en, o, &e)) fail_msg("%s: %s", f->path, err_text(&e, text, sizeof text));
    return en;
}

// Feeds the session its next n tokens, wants the logits of all, the last, none or some of them, and
// compares these with the expected ones. What nobody wants is not computed behind the last
// attention.
static void feed(struct fixture *f, struct engine *en, struct session *s, int32_t n) {
    enum { ALL, LAST, NONE, SOME, WISHES };
    struct batch_item items[N_CTX];
    struct err e;
    const int32_t at = session_length(s), wish = below(f, WISHES);
    const size_t row = (size_t)f->n_vocab;
    for (int32_t i = 0; i < n; i++) {
        const bool wanted =
            wish == ALL || (wish == LAST && i == n - 1) || (wish == SOME && below(f, 4) == 0);
        items[i] = (struct batch_item){s, f->tokens[at + i], wanted};
    }
    if (engine_eval(en, items, n, &e)) fail_msg("%s: %s", f->path, e.what);
    for (int32_t i = 0, k = 0; i < n; i++) {
        if (!items[i].want_logits) continue;
        const float *logits = engine_logits(en, k++);
        if (memcmp(logits, f->expected + (size_t)(at + i) * row, row * sizeof(float)))
            fail_msg("%s: position %d differs", f->path, at + i);
    }
}

// The logits of a session that gets all tokens at once.
static void make_expected(struct fixture *f) {
    const struct engine_options o = options_of(f);
    struct engine *en = open_ok(f, &o);
    struct batch_item items[N_CTX];
    struct session *s;
    struct err e;
    f->n_vocab = engine_n_vocab(en);
    assert_true(f->n_vocab <= MAX_VOCAB);
    assert_int_equal(session_new(&s, en, &e), OK);
    for (int i = 0; i < N_CTX; i++) items[i] = (struct batch_item){s, f->tokens[i], true};
    assert_int_equal(engine_eval(en, items, N_CTX, &e), OK);
    memcpy(f->expected, engine_logits(en, 0),
           (size_t)N_CTX * (size_t)f->n_vocab * sizeof *f->expected);
    session_free(s);
    engine_close(en);
}

// Feeds, copies and cuts back.
static void check_sessions(struct fixture *f, struct engine *en) {
    struct session *a, *b;
    struct err e;
    const int32_t n_first = 2 + below(f, N_CTX / 2), cut = 1 + below(f, n_first - 1);
    assert_int_equal(session_new(&a, en, &e), OK);
    assert_int_equal(session_new(&b, en, &e), OK);
    feed(f, en, a, n_first);
    assert_int_equal(session_copy(b, a, &e), OK);
    feed(f, en, a, N_CTX - n_first);
    session_truncate(b, cut);
    feed(f, en, b, 1);
    feed(f, en, b, N_CTX - cut - 1);
    session_truncate(a, N_CTX - 1);
    feed(f, en, a, 1);
    session_truncate(a, n_first);
    feed(f, en, a, 3);
    session_truncate(b, 0);
    feed(f, en, b, n_first);
    session_free(a);
    session_free(b);
}

// Places each unit on one of the devices, or split or streamed where that is allowed.
static void place_units(struct fixture *f, struct constraints *c) {
    c->has_units = c->has_placement = true;
    c->place = (struct placement){.feed = FEED_ARENA};
    for (int32_t u = 0; u < f->shape->n_units; u++) {
        const struct unit *unit = &f->shape->units[u];
        struct unit_place *place = &c->place.units[u];
        place->device =
            (int8_t)(unit->cache_unit ? c->place.units[unit->cache_unit].device : below(f, 2));
        if (unit_can_split(unit) && !unit->cache_unit && !unit->lends_cache && below(f, 2)) {
            place->device = GPU;
            place->cpu_parts = (uint8_t)(1 + below(f, UNIT_PARTS - 1));
        } else if (place->device == HOST && unit_can_stream(unit) && !unit->cache_unit) {
            place->streamed = below(f, 2);
        }
    }
}

static void read_shape(struct fixture *f) {
    struct gguf g;
    struct err e;
    assert_int_equal(gguf_open(&g, f->path, &e), OK);
    assert_int_equal(gguf_shape(f->shape, &g, &e), OK);
    assert_true(f->shape->can_run);
    gguf_close(&g);
}

static void test_all(void **state) {
    struct fixture *f = *state;
    glob_t files;
    assert_int_equal(glob("tests/golden/tiny/*.gguf", 0, NULL, &files), 0);
    for (size_t i = 0; i < files.gl_pathc; i++) {
        f->path = files.gl_pathv[i];
        const char *part = strstr(f->path, "-of-");
        if (part && strncmp(part - 5, "00001", 5) != 0) continue;
        read_shape(f);
        make_expected(f);
        for (int k = 0; k <= N_PLANS; k++) {
            struct engine_options o = options_of(f);
            o.workload.n_ubatch = 1 + below(f, N_CTX);
            if (k > 0) {
                o.device_spec = "sim:vram=4M";
                place_units(f, &o.constraints);
            }
            struct engine *en = open_ok(f, &o);
            check_sessions(f, en);
            engine_close(en);
        }
    }
    assert_true(files.gl_pathc > 90);
    globfree(&files);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test_setup_teardown(test_all, setup, teardown)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* test_expert_counts.c: the exponent that follows from counted experts, the file that keeps them,
 * and a model with experts that is run, counted and planned anew.
 */
#include "runtime/engine/engine.h"

#include "base/mem.h"
#include "runtime/host/expert_counts.h"
#include "runtime/measure/bench_measure.h"
#include "tests/lib/invent.h"
#include "tests/lib/tiny_model.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { N_EXPERTS = 64, N_USED = 4, N_PROMPT = 24 };

struct fixture {
    char folder[64], model[96];
    struct shape shape;
    struct expert_counts counts, other;
};

static int setup(void **state) {
    struct fixture *f = mem_alloc(1, sizeof *f);
    if (!f) return -1;
    *state = f;
    snprintf(f->folder, sizeof f->folder, "/tmp/tandem_test_counts.XXXXXX");
    if (!mkdtemp(f->folder)) return -1;
    snprintf(f->model, sizeof f->model, "%s/model.gguf", f->folder);
    f->shape = (struct shape){.name = "some", .n_experts = N_EXPERTS, .n_experts_used = N_USED};
    expert_counts_init(&f->counts, &f->shape);
    return 0;
}

static int teardown(void **state) {
    struct fixture *f = *state;
    char command[128];
    snprintf(command, sizeof command, "rm -r %s", f->folder);
    const int code = system(command);
    mem_free(f);
    return code;
}

// Counts a micro-batch in which every token chooses at random, of the first n_experts alone.
static void count_random(struct fixture *f, struct dice *dice, int32_t n_tokens, int n_experts) {
    int32_t of[N_EXPERTS] = {0}, starts[N_EXPERTS + 1] = {0};
    for (int32_t t = 0; t < n_tokens; t++) {
        bool has[N_EXPERTS] = {false};
        for (int i = 0; i < N_USED;) {
            const int k = dice_int(dice, 0, n_experts - 1);
            if (has[k]) continue;
            has[k] = true;
            of[k]++;
            i++;
        }
    }
    for (int k = 0; k < N_EXPERTS; k++) starts[k + 1] = starts[k] + of[k];
    expert_counts_add(&f->counts, n_tokens, starts);
}

// Independent choices have the exponent 1, also where every expert is chosen at last; tokens that
// choose alike less; one token tells nothing, and a few tell too little.
static void test_exponent(void **state) {
    struct fixture *f = *state;
    struct dice dice = {7};
    for (int i = 0; i < 1000; i++) count_random(f, &dice, 1, N_EXPERTS);
    for (int i = 0; i < 20; i++) count_random(f, &dice, 30, N_EXPERTS);
    assert_true(expert_counts_exponent(&f->counts) == 0);
    for (int i = 0; i < 400; i++) count_random(f, &dice, 2 + i, N_EXPERTS);
    assert_true(expert_counts_exponent(&f->counts) > 0.97);
    expert_counts_init(&f->counts, &f->shape);
    for (int i = 0; i < 200; i++) count_random(f, &dice, 32, 16);
    // 16 of 64 experts are 1 - (15/16)^m: m is 4.46, and 32^0.431.
    const double exponent = expert_counts_exponent(&f->counts);
    assert_true(fabs(exponent - log(log(0.75) / log(15.0 / 16)) / log(32)) < 2e-3);
}

// Counts come back from the file and go on growing; another model has none.
static void test_file(void **state) {
    struct fixture *f = *state;
    struct dice dice = {8};
    struct err e;
    for (int i = 0; i < 200; i++) count_random(f, &dice, 2 + i, N_EXPERTS / 2);
    assert_int_equal(expert_counts_store(&f->counts, f->folder, &f->shape, &e), OK);
    expert_counts_init(&f->other, &f->shape);
    expert_counts_load(&f->other, f->folder, &f->shape);
    assert_memory_equal(f->other.n, f->counts.n, sizeof f->other.n);
    assert_memory_equal(f->other.chosen, f->counts.chosen, sizeof f->other.chosen);
    assert_true(f->other.n_added == 0);
    expert_counts_load(&f->other, f->folder, &f->shape);
    assert_true(f->other.chosen[9] == 2 * f->counts.chosen[9]);
    struct shape another = f->shape;
    another.n_experts_used = 3;
    expert_counts_init(&f->other, &another);
    expert_counts_load(&f->other, f->folder, &another);
    assert_true(f->other.n[9] == 0);
}

static void write_over(const struct fixture *f, const char *text) {
    char command[256];
    snprintf(command, sizeof command, "printf '%s' > $(ls %s/experts-*.txt)", text, f->folder);
    assert_int_equal(system(command), 0);
}

// A damaged file counts for nothing.
static void test_damaged(void **state) {
    static const char *const damaged[] = {"nothing",   "2 1",       "1 1 1\\n",  "513 1 1\\n",
                                          "2 1 65\\n", "2 -1 1\\n", "2 1 1\\nx", "2 1 1\\0 2"};
    struct fixture *f = *state;
    struct err e;
    f->counts.n[2] = f->counts.chosen[2] = 3;
    assert_int_equal(expert_counts_store(&f->counts, f->folder, &f->shape, &e), OK);
    for (size_t i = 0; i < sizeof damaged / sizeof *damaged; i++) {
        write_over(f, damaged[i]);
        expert_counts_init(&f->other, &f->shape);
        expert_counts_load(&f->other, f->folder, &f->shape);
        assert_true(f->other.n[2] == 0 && f->other.chosen[2] == 0);
    }
    write_over(f, "2 1 7\\n");
    expert_counts_load(&f->other, f->folder, &f->shape);
    assert_true(f->other.n[2] == 1 && f->other.chosen[2] == 7);
    assert_int_not_equal(expert_counts_store(&f->counts, "/dev/null/folder", &f->shape, &e), OK);
}

static struct engine_options options_of(const struct fixture *f, bool no_counting) {
    return (struct engine_options){.model_path = f->model,
                                   .device_spec = "none",
                                   .cpu = {.isa = ISA_AUTO, .n_threads = 1},
                                   .workload = {.n_ctx = 64,
                                                .kv_type_k = DTYPE_F16,
                                                .kv_type_v = DTYPE_F16,
                                                .n_sessions = 2,
                                                .max_logits = 2},
                                   .constraints = {.gpu_layers = 0},
                                   .cache_path = f->folder,
                                   .no_counting = no_counting};
}

// Runs prompts of a tiny model, and returns the exponent that it was planned with.
static double run_model(const struct fixture *f, int n_prompts, bool no_counting) {
    const struct engine_options o = options_of(f, no_counting);
    struct batch_item items[N_PROMPT];
    struct session *s[2];
    struct engine *en;
    struct err e;
    assert_int_equal(engine_open(&en, &o, &e), OK);
    for (int i = 0; i < 2; i++) assert_int_equal(session_new(&s[i], en, &e), OK);
    for (int k = 0; k < n_prompts; k++) {
        session_truncate(s[0], 0);
        for (int i = 0; i < N_PROMPT; i++)
            items[i] = (struct batch_item){s[0], (i * 37 + k * 11 + 3) % 256, i == N_PROMPT - 1};
        assert_int_equal(engine_eval(en, items, N_PROMPT, &e), OK);
    }
    // One token each of two sessions: nothing to learn.
    for (int i = 0; i < 2; i++) items[i] = (struct batch_item){s[i], 5, true};
    assert_int_equal(engine_eval(en, items, 2, &e), OK);
    const double exponent = engine_workload(en)->expert_exponent;
    for (int i = 0; i < 2; i++) session_free(s[i]);
    engine_close(en);
    return exponent;
}

static void write_model(const struct fixture *f) {
    const struct tiny_model tiny = {
        .architecture = "qwen3moe", .normed = true, .n_experts = 16, .n_layers = 3, .seed = 5};
    tiny_model_write(&tiny, f->model);
}

// Tokens of a benchmark are no text.
static void test_benchmark_counts_nothing(void **state) {
    struct fixture *f = *state;
    write_model(f);
    const struct engine_options o = options_of(f, false);
    struct bench_engine b;
    struct err e;
    assert_int_equal(bench_engine_open(&b, &o, N_PROMPT, &e), OK);
    for (int i = 0; i < 40; i++) {
        session_truncate(b.session, 0);
        assert_int_equal(bench_engine_prompt(&b, N_PROMPT, &e), OK);
    }
    bench_engine_close(&b);
    assert_true(run_model(f, 0, false) == 0);
}

static void test_engine_counts(void **state) {
    struct fixture *f = *state;
    write_model(f);
    assert_true(run_model(f, 40, true) == 0);
    assert_true(run_model(f, 40, false) == 0); // nothing was kept
    const double exponent = run_model(f, 1, true);
    assert_true(exponent > 0.2 && exponent <= 1);
    assert_true(run_model(f, 0, false) == exponent);
    char command[128];
    int n_tokens = 0, n = 0, chosen = 0;
    snprintf(command, sizeof command, "cat %s/experts-*.txt", f->folder);
    FILE *in = popen(command, "r");
    assert_non_null(in);
    assert_int_equal(fscanf(in, "%d %d %d", &n_tokens, &n, &chosen), 3);
    pclose(in);
    assert_int_equal(n_tokens, N_PROMPT);
    assert_int_equal(n, 40 * 2); // the last layer computes one token of a prompt
    assert_in_range(chosen, n * 2, n * 16);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_exponent, setup, teardown),
        cmocka_unit_test_setup_teardown(test_file, setup, teardown),
        cmocka_unit_test_setup_teardown(test_damaged, setup, teardown),
        cmocka_unit_test_setup_teardown(test_benchmark_counts_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(test_engine_counts, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

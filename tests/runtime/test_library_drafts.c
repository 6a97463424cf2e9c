/* test_library_drafts.c: drafts by the public interface: answers are those without, in sessions
 * that take turns, are cut, forked and fed; both models share the limits; what cannot be is
 * refused.
 */
#include "runtime/engine/engine.h"
#include "tests/lib/api.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { N_ANSWER = 30 };

// Two sessions that have taken turns.
struct story {
    int32_t tokens[2][API_CTX + 1];
    size_t n[2];
    int64_t n_guessed, n_right;
};

static void answer(struct api_fixture *f, struct tandem_session *s, int32_t from, int32_t n,
                   struct story *out) {
    struct api_taken t = {0};
    struct tandem_result result;
    struct tandem_error e;
    const struct tandem_generate_options o = api_options(f, &t, n);
    api_ok(tandem_generate_tokens(s, f->prompt + from, 20, &o, &result, &e), &e);
    assert_true(result.n_right >= 0 && result.n_right <= result.n_guessed);
    out->n_guessed += result.n_guessed;
    out->n_right += result.n_right;
}

static void write_story(struct api_fixture *f, struct story *out) {
    struct tandem_session *s[2] = {api_session(f), api_session(f)};
    struct tandem_error e;
    *out = (struct story){0};
    answer(f, s[0], 0, 20, out);
    answer(f, s[1], 30, 20, out);
    tandem_session_truncate(s[0], 25);
    answer(f, s[0], 50, N_ANSWER, out);
    api_ok(tandem_eval(s[1], f->prompt + 60, 10, &e), &e);
    answer(f, s[1], 5, N_ANSWER, out);
    tandem_session_free(s[0]);
    api_ok(tandem_session_fork(&s[0], s[1], &e), &e);
    tandem_session_truncate(s[0], 60);
    answer(f, s[0], 40, 25, out);
    for (int i = 0; i < 2; i++) {
        const int32_t *tokens = tandem_session_tokens(s[i], &out->n[i]);
        memcpy(out->tokens[i], tokens, out->n[i] * sizeof *tokens);
        tandem_session_free(s[i]);
    }
}

static void assert_same_story(const struct story *a, const struct story *b) {
    for (int i = 0; i < 2; i++) {
        assert_int_equal(a->n[i], b->n[i]);
        assert_memory_equal(a->tokens[i], b->tokens[i], a->n[i] * sizeof *a->tokens[i]);
    }
}

static void test_answers_stay_the_same(void **state) {
    struct api_fixture *f = *state;
    struct tandem_error e;
    char other[80];
    struct story plain, drafted;
    snprintf(other, sizeof other, "%s.draft", f->path);
    const struct tiny_model another = {.n_layers = 1, .seed = 3};
    tiny_model_write(&another, other);
    write_story(f, &plain);
    assert_true(plain.n_guessed == 0);
    tandem_close(f->engine);
    const char *const models[] = {f->path, other, NULL};
    for (int i = 0; i < 3; i++) {
        f->options.draft_model = models[i];
        f->options.draft_max = i == 1 ? 0 : 5; // 0: 16 with a draft model
        api_ok(tandem_open(&f->engine, f->path, &f->options, &e), &e);
        write_story(f, &drafted);
        assert_same_story(&plain, &drafted);
        if (models[i]) assert_true(drafted.n_guessed > 0);
        if (i == 0) assert_true(drafted.n_right > 0); // it is the model
        if (i < 2) tandem_close(f->engine);
    }
    unlink(other);
    f->options.draft_max = 0;
}

static void test_limits_are_for_both(void **state) {
    struct api_fixture *f = *state;
    struct tandem_plan *alone, *beside;
    struct tandem_error e;
    char text[1024];
    struct tandem_engine_options o = f->options;
    o.ram_bytes = UINT64_C(64) << 20;
    api_ok(tandem_plan_model(&alone, f->path, &o, &e), &e);
    o.draft_model = f->path;
    api_ok(tandem_plan_model(&beside, f->path, &o, &e), &e);
    assert_true(alone->devices[0].budget_bytes == o.ram_bytes);
    assert_true(beside->devices[0].budget_bytes < alone->devices[0].budget_bytes);
    tandem_plan_free(alone);
    tandem_plan_free(beside);
    struct tandem_engine *engine;
    o.ram_bytes = UINT64_C(2) << 20;
    assert_int_equal(tandem_open(&engine, f->path, &o, &e), TANDEM_ERR_MEMORY);
    assert_null(engine);
    assert_non_null(strstr(tandem_error_text(&e, text, sizeof text), "leave out the draft model"));
}

static void test_bad_drafts_are_refused(void **state) {
    struct api_fixture *f = *state;
    struct tandem_engine *engine;
    struct tandem_plan *plan;
    struct tandem_error e;
    char text[1024];
    struct tandem_engine_options o = f->options;
    o.draft_model = "/tmp/no such model.gguf";
    assert_int_equal(tandem_open(&engine, f->path, &o, &e), TANDEM_ERR_FILE);
    assert_int_equal(tandem_plan_model(&plan, f->path, &o, &e), TANDEM_ERR_FILE);
    o.draft_model = NULL;
    o.draft_max = -1;
    assert_int_equal(tandem_open(&engine, f->path, &o, &e), TANDEM_ERR_USAGE);
    assert_non_null(strstr(tandem_error_text(&e, text, sizeof text), "draft_max"));
    o.draft_max = 1025;
    assert_int_equal(tandem_open(&engine, f->path, &o, &e), TANDEM_ERR_USAGE);
    o.draft_max = 4;
    o.draft_gpu_layers = -2;
    assert_int_equal(tandem_open(&engine, f->path, &o, &e), TANDEM_ERR_USAGE);
    assert_non_null(strstr(tandem_error_text(&e, text, sizeof text), "draft_gpu_layers"));
}

// Writes a plan with one row of logits.
static void write_plan(const struct api_fixture *f, const char *path) {
    const struct engine_options o = {
        .model_path = f->path,
        .device_spec = "none",
        .cpu = {.isa = ISA_AUTO, .n_threads = 1},
        .workload = {
            .n_ctx = API_CTX, .n_sessions = 2, .kv_type_k = DTYPE_F16, .kv_type_v = DTYPE_F16}};
    struct engine *engine;
    struct err e;
    FILE *out = fopen(path, "w");
    assert_non_null(out);
    assert_int_equal(engine_open(&engine, &o, &e), OK);
    assert_int_equal(plan_save(engine_plan(engine), engine_shape(engine), out, &e), OK);
    fclose(out);
    engine_close(engine);
}

static void test_a_plan_without_rows_is_refused(void **state) {
    struct api_fixture *f = *state;
    struct tandem_engine *engine;
    struct tandem_error e;
    char text[1024], path[80];
    struct tandem_engine_options o = f->options;
    snprintf(path, sizeof path, "%s.plan", f->path);
    write_plan(f, path);
    o.plan_path = path;
    o.draft_max = 4;
    assert_int_equal(tandem_open(&engine, f->path, &o, &e), TANDEM_ERR_USAGE);
    assert_non_null(strstr(tandem_error_text(&e, text, sizeof text), "expected 5, got 1"));
    o.draft_model = f->path; // both models are open then, and closed
    assert_int_equal(tandem_open(&engine, f->path, &o, &e), TANDEM_ERR_USAGE);
    assert_null(engine);
    o.draft_model = NULL;
    o.draft_max = 0;
    api_ok(tandem_open(&engine, f->path, &o, &e), &e);
    tandem_close(engine);
    unlink(path);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_answers_stay_the_same),
        cmocka_unit_test(test_limits_are_for_both),
        cmocka_unit_test(test_bad_drafts_are_refused),
        cmocka_unit_test(test_a_plan_without_rows_is_refused),
    };
    return cmocka_run_group_tests(tests, api_setup, api_teardown);
}

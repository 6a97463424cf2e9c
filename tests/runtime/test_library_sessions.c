/* test_library_sessions.c: the public interface on a tiny model: what it promises of sessions,
 * answers, stops, threads and cancelling.
 */
#include "base/utf8.h"
#include "tests/lib/api.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

// ---- Sessions -----------------------------------------------------------------------------------

// Sessions do not see each other, whether computed alone or together.
static void test_sessions(void **state) {
    struct api_fixture *f = *state;
    struct tandem_session *a = api_session(f), *b = api_session(f), *c;
    struct tandem_error e;
    float alone[2][TINY_VOCAB], both[2][TINY_VOCAB];
    assert_int_equal(tandem_session_new(&c, f->engine, &e), TANDEM_ERR_LIMIT);
    assert_null(c);
    api_ok(tandem_eval(a, f->prompt, 40, &e), &e);
    api_logits(f, 0, alone[0]);
    api_ok(tandem_eval(b, f->prompt + 40, 30, &e), &e);
    api_logits(f, 0, alone[1]);
    assert_null(tandem_logits(f->engine, 1));
    tandem_session_truncate(a, 39);
    tandem_session_truncate(b, 29);
    tandem_session_truncate(b, 50);
    assert_int_equal(api_length(b), 29);
    const struct tandem_item items[] = {{b, f->prompt[69], true}, {a, f->prompt[39], true}};
    api_ok(tandem_eval_batch(f->engine, items, 2, &e), &e);
    api_logits(f, 0, both[1]);
    api_logits(f, 1, both[0]);
    assert_memory_equal(alone, both, sizeof both);
    assert_int_equal(api_length(a), 40);
    const struct tandem_item nobody = {NULL, 1, true};
    assert_int_equal(tandem_eval_batch(f->engine, &nobody, 1, &e), TANDEM_ERR_USAGE);
    assert_null(tandem_logits(f->engine, 0));
    assert_int_equal(tandem_eval(a, f->prompt, 0, &e), TANDEM_ERR_USAGE);
    tandem_session_free(a);
    a = api_session(f);
    assert_int_equal(api_length(a), 0);
    tandem_session_free(a);
    tandem_session_free(b);
}

// A fork has what its source has, with the token that was drawn but not computed, and neither sees
// what the other does then.
static void test_fork(void **state) {
    struct api_fixture *f = *state;
    struct tandem_session *a = api_session(f), *b = NULL, *c;
    struct tandem_generate_options o;
    struct api_taken t = {0};
    struct tandem_error e;
    float expected[TINY_VOCAB], logits[TINY_VOCAB];
    size_t n, m;
    o = api_options(f, &t, 5);
    api_ok(tandem_generate_tokens(a, f->prompt, 40, &o, NULL, &e), &e);
    api_ok(tandem_session_fork(&b, a, &e), &e);
    const int32_t *one = tandem_session_tokens(a, &n), *other = tandem_session_tokens(b, &m);
    assert_true(n == 45 && m == 45 && one != other);
    assert_memory_equal(one, other, n * sizeof *one);
    assert_int_equal(tandem_session_fork(&c, a, &e), TANDEM_ERR_LIMIT);
    assert_null(c);
    api_ok(tandem_eval(b, f->prompt + 7, 30, &e), &e);
    api_ok(tandem_eval(a, f->prompt, 3, &e), &e);
    api_logits(f, 0, expected);
    tandem_session_truncate(b, 45);
    api_ok(tandem_eval(b, f->prompt, 3, &e), &e);
    api_logits(f, 0, logits);
    assert_memory_equal(expected, logits, sizeof logits);
    tandem_session_free(a);
    api_ok(tandem_session_fork(&a, b, &e), &e);
    tandem_session_truncate(a, 20);
    api_ok(tandem_eval(a, f->prompt + 20, 20, &e), &e);
    assert_int_equal(api_length(a), 40);
    tandem_session_free(a);
    tandem_session_free(b);
}

// A saved session comes back with the token that was drawn but not computed.
static void test_saved(void **state) {
    struct api_fixture *f = *state;
    struct tandem_session *a = api_session(f), *b = api_session(f);
    struct tandem_generate_options o;
    struct api_taken t = {0};
    struct tandem_error e;
    float expected[TINY_VOCAB], logits[TINY_VOCAB];
    char path[80];
    size_t n;
    snprintf(path, sizeof path, "%s.session", f->path);
    o = api_options(f, &t, 5);
    api_ok(tandem_generate_tokens(a, f->prompt, 40, &o, NULL, &e), &e);
    assert_int_equal(tandem_session_load(b, path, &e), TANDEM_ERR_FILE);
    assert_int_equal(tandem_session_load(b, NULL, &e), TANDEM_ERR_USAGE);
    assert_int_equal(tandem_session_save(a, NULL, &e), TANDEM_ERR_USAGE);
    api_ok(tandem_session_save(a, path, &e), &e);
    api_ok(tandem_eval(b, f->prompt + 3, 7, &e), &e);
    assert_int_equal(tandem_session_load(b, f->path, &e), TANDEM_ERR_FORMAT);
    assert_int_equal(api_length(b), 7);
    api_ok(tandem_session_load(b, path, &e), &e);
    unlink(path);
    assert_memory_equal(tandem_session_tokens(a, &n), tandem_session_tokens(b, &n), 45 * 4);
    assert_int_equal(n, 45);
    api_ok(tandem_eval(a, f->prompt, 3, &e), &e);
    api_logits(f, 0, expected);
    api_ok(tandem_eval(b, f->prompt, 3, &e), &e);
    api_logits(f, 0, logits);
    assert_memory_equal(expected, logits, sizeof logits);
    tandem_session_free(a);
    tandem_session_free(b);
}

// Tokens that do not fit leave the session unchanged.
static void test_full_session(void **state) {
    struct api_fixture *f = *state;
    struct tandem_session *s = api_session(f);
    struct tandem_generate_options o;
    struct tandem_result result;
    struct tandem_error e;
    struct api_taken t = {0};
    const int32_t unknown = TINY_VOCAB;
    api_ok(tandem_eval(s, f->prompt, API_PROMPT, &e), &e);
    assert_int_equal(tandem_eval(s, f->prompt, API_CTX - API_PROMPT + 1, &e), TANDEM_ERR_LIMIT);
    assert_int_equal(tandem_eval(s, &unknown, 1, &e), TANDEM_ERR_LIMIT);
    assert_int_equal(api_length(s), API_PROMPT);
    o = api_options(f, &t, 0);
    assert_int_equal(tandem_generate_tokens(s, f->prompt, API_PROMPT, &o, NULL, &e),
                     TANDEM_ERR_LIMIT);
    assert_int_equal(api_length(s), API_PROMPT);
    api_ok(tandem_generate_tokens(s, f->prompt, 8, &o, &result, &e), &e);
    assert_int_equal(result.stop, TANDEM_STOP_CONTEXT);
    assert_true(api_length(s) >= API_CTX);
    assert_int_equal(tandem_eval(s, f->prompt, 1, &e), TANDEM_ERR_LIMIT);
    char path[80];
    snprintf(path, sizeof path, "%s.full", f->path);
    api_ok(tandem_session_save(s, path, &e), &e);
    api_ok(tandem_session_load(s, path, &e), &e);
    unlink(path);
    assert_int_equal(api_length(s), API_CTX);
    assert_int_equal(tandem_generate_tokens(s, f->prompt, 1, &o, NULL, &e), TANDEM_ERR_LIMIT);
    tandem_session_truncate(s, 10);
    api_ok(tandem_eval(s, f->prompt + 10, 1, &e), &e);
    tandem_session_free(s);
}

// ---- Generation ---------------------------------------------------------------------------------

// An answer in two parts is the answer in one: the last token drawn is not lost.
static void test_goes_on(void **state) {
    struct api_fixture *f = *state;
    int32_t drawn[30];
    struct api_taken whole, t = {0};
    struct tandem_error e;
    float expected[TINY_VOCAB], logits[TINY_VOCAB];
    f->greedy.repeat_penalty = 1.2F; // of everything in the session, read and written
    f->greedy.repeat_last_n = -1;
    api_answer(f, 30, &whole, drawn);
    struct tandem_session *s = api_session(f), *other = api_session(f);
    struct tandem_generate_options o = api_options(f, &t, 10);
    api_ok(tandem_generate_tokens(s, f->prompt, 20, &o, NULL, &e), &e);
    o.max_tokens = 19;
    api_ok(tandem_generate_tokens(s, drawn + 10, 1, &o, NULL, &e), &e);
    size_t n;
    const int32_t *tokens = tandem_session_tokens(s, &n);
    assert_int_equal(n, 50);
    assert_memory_equal(tokens + 20, drawn, sizeof drawn);
    api_ok(tandem_eval(s, f->prompt, 1, &e), &e);
    api_ok(tandem_eval(s, f->prompt + 1, 1, &e), &e);
    api_logits(f, 0, logits);
    api_ok(tandem_eval(other, f->prompt, 20, &e), &e);
    api_ok(tandem_eval(other, drawn, 30, &e), &e);
    api_ok(tandem_eval(other, f->prompt, 2, &e), &e);
    api_logits(f, 0, expected);
    assert_memory_equal(expected, logits, sizeof logits);
    tandem_session_truncate(s, 20);
    api_ok(tandem_generate_tokens(s, drawn, 1, &o, NULL, &e), &e);
    tandem_session_truncate(s, api_length(s) - 1); // the one that was not computed
    api_ok(tandem_eval(s, drawn + 19, 11, &e), &e);
    api_ok(tandem_eval(s, f->prompt, 2, &e), &e);
    api_logits(f, 0, logits);
    assert_memory_equal(expected, logits, sizeof logits);
    f->greedy.repeat_penalty = 1;
    tandem_session_free(s);
    tandem_session_free(other);
}

// A text begins with bos, and ends with any token that the model ends with.
static void test_begin_and_end(void **state) {
    enum { BOS = 258 };
    struct api_fixture *f = *state;
    int32_t drawn[10];
    struct api_taken whole, t = {0};
    struct tandem_generate_options o = api_options(f, &t, 10);
    struct tandem_engine *engine;
    struct tandem_session *s;
    struct tandem_result result;
    struct tandem_error e;
    char path[80];
    size_t n;
    api_answer(f, 10, &whole, drawn);
    int32_t at = 0;
    while (drawn[at] != drawn[9]) at++;
    snprintf(path, sizeof path, "%s.bos", f->path);
    api_write_model(path, BOS, drawn[9]);
    api_ok(tandem_open(&engine, path, &f->options, &e), &e);
    unlink(path);
    api_ok(tandem_session_new(&s, engine, &e), &e);
    o.ignore_end = false;
    api_ok(tandem_generate_tokens(s, f->prompt, 20, &o, &result, &e), &e);
    assert_int_equal(result.stop, TANDEM_STOP_END);
    assert_int_equal(result.n_tokens, at);
    assert_int_equal(api_length(s), 20 + at);
    tandem_session_truncate(s, 0);
    o.ignore_end = true;
    api_ok(tandem_generate_tokens(s, f->prompt, 20, &o, &result, &e), &e);
    assert_int_equal(result.stop, TANDEM_STOP_LIMIT);
    tandem_session_truncate(s, 0);
    api_ok(tandem_generate(s, "ab", &o, &result, &e), &e);
    assert_int_equal(result.n_prompt, 3);
    const int32_t *tokens = tandem_session_tokens(s, &n);
    assert_int_equal(tokens[0], BOS);
    assert_int_equal(tokens[1], 'a');
    api_ok(tandem_generate(s, "ab", &o, &result, &e), &e);
    assert_int_equal(result.n_prompt, 2);
    tandem_close(engine);
}

// A model that computes nonsense: what was read before the first token is forgotten.
static void test_failed_answer(void **state) {
    struct api_fixture *f = *state;
    struct gguf_build b;
    float nan[TINY_EMBD];
    char path[64];
    struct tandem_engine *engine;
    struct tandem_session *s;
    struct tandem_error e;
    memset(nan, 0xff, sizeof nan);
    tiny_model_build(&b, &(struct tiny_model){.n_layers = 1, .tied = true, .seed = 1},
                     "output_norm.weight");
    gguf_build_tensor(&b, "output_norm.weight", 1, (uint64_t[]){TINY_EMBD}, DTYPE_F32, nan);
    gguf_build_finish(&b);
    snprintf(path, sizeof path, "%s.nan", f->path);
    gguf_build_write(&b, path);
    gguf_build_close(&b);
    api_ok(tandem_open(&engine, path, &f->options, &e), &e);
    unlink(path);
    api_ok(tandem_session_new(&s, engine, &e), &e);
    assert_int_equal(tandem_generate_tokens(s, f->prompt, 20, NULL, NULL, &e), TANDEM_ERR_DEVICE);
    assert_int_equal(api_length(s), 0);
    tandem_close(engine);
}

// The characters from first on, n of them, as a text of its own.
static void cut(char out[16], const char *text, size_t first, int n) {
    size_t length = 0;
    for (int i = 0; i < n; i++) length += utf8_step(text + first + length, 4);
    memcpy(out, text + first, length);
    out[length] = 0;
}

// Wherever a stop text comes, the answer ends before it; what was drawn of it is in the session.
static void test_stop_texts(void **state) {
    struct api_fixture *f = *state;
    struct api_taken whole;
    api_answer(f, 24, &whole, NULL);
    assert_true(whole.length > 16);
    for (size_t first = 0; first + 16 < whole.length; first += utf8_step(whole.text + first, 4)) {
        struct api_taken t = {0};
        struct tandem_session *s = api_session(f);
        struct tandem_generate_options o = api_options(f, &t, 24);
        struct tandem_result result;
        struct tandem_error e;
        char stop[16];
        cut(stop, whole.text, first, 3);
        const char *const stops[] = {"not in the text", stop};
        o.stop = stops;
        o.n_stop = 2;
        api_ok(tandem_generate_tokens(s, f->prompt, 20, &o, &result, &e), &e);
        assert_int_equal(result.stop, TANDEM_STOP_STRING);
        const size_t length = (size_t)(strstr(whole.text, stop) - whole.text);
        assert_int_equal(t.length, length);
        assert_memory_equal(t.text, whole.text, length);
        assert_int_equal(api_length(s), 20 + result.n_tokens);
        o.stop = NULL;
        assert_int_equal(tandem_generate_tokens(s, f->prompt, 1, &o, &result, &e),
                         TANDEM_ERR_USAGE);
        tandem_session_free(s);
    }
}

static void test_results(void **state) {
    struct api_fixture *f = *state;
    struct tandem_session *s = api_session(f);
    struct api_taken t = {.stop_at = 3};
    struct tandem_generate_options o = api_options(f, &t, 24);
    struct tandem_sampling drawn;
    struct tandem_result result;
    struct tandem_error e;
    api_ok(tandem_generate_tokens(s, f->prompt, 20, &o, &result, &e), &e);
    assert_int_equal(result.stop, TANDEM_STOP_CALLBACK);
    assert_int_equal(t.n_calls, 3);
    assert_int_equal(result.n_prompt, 20);
    assert_int_equal(api_length(s), 20 + result.n_tokens);
    assert_true(result.prompt_s > 0);
    assert_true(result.answer_s > 0);
    tandem_sampling_defaults(&drawn, sizeof drawn);
    o.sampling = &drawn;
    o.on_text = NULL;
    api_ok(tandem_generate(s, "text", &o, &result, &e), &e);
    assert_true(result.seed >= 0);
    assert_int_equal(result.n_prompt, 4);
    const struct tandem_logit_bias only = {.token = 65, .bias = 1000}, none = {-1, 0};
    struct tandem_sampling biased = {.struct_size = sizeof biased, .samplers = "temp"};
    biased.logit_bias = &only;
    biased.n_logit_bias = 1;
    o.sampling = &biased;
    api_ok(tandem_generate(s, "text", &o, &result, &e), &e);
    size_t length;
    const int32_t *tokens = tandem_session_tokens(s, &length);
    assert_int_equal(tokens[length - 1], 65);
    biased.logit_bias = &none;
    assert_int_equal(tandem_generate(s, "text", &o, &result, &e), TANDEM_ERR_USAGE);
    biased.n_logit_bias = 0;
    biased.samplers = "temp;top_secret";
    assert_int_equal(tandem_generate(s, "text", &o, &result, &e), TANDEM_ERR_USAGE);
    struct api_taken taken = {0};
    struct tandem_generate_options bound = api_options(f, &taken, 24);
    bound.grammar = "root ::= \"Q\"{3}";
    api_ok(tandem_generate(s, "text", &bound, &result, &e), &e);
    assert_int_equal(result.stop, TANDEM_STOP_END);
    assert_true(taken.length == 3 && memcmp(taken.text, "QQQ", 3) == 0);
    bound.grammar = "root ::= none";
    assert_int_equal(tandem_generate(s, "text", &bound, &result, &e), TANDEM_ERR_FORMAT);
    o.sampling = &drawn;
    drawn.repeat_penalty = -1;
    assert_int_equal(tandem_generate(s, "text", &o, &result, &e), TANDEM_ERR_USAGE);
    drawn.repeat_penalty = 1;
    drawn.dry_base = 0.5F; // each further token of a repetition would cost less
    assert_int_equal(tandem_generate(s, "text", &o, &result, &e), TANDEM_ERR_USAGE);
    drawn.dry_base = 0;
    assert_int_equal(tandem_generate(s, "", &o, &result, &e), TANDEM_ERR_USAGE);
    assert_int_equal(tandem_generate(s, NULL, &o, &result, &e), TANDEM_ERR_USAGE);
    o.max_tokens = -1;
    o.sampling = NULL;
    assert_int_equal(tandem_generate(s, "text", &o, &result, &e), TANDEM_ERR_USAGE);
    tandem_session_free(s);
}

// The answer is at its limit with a part of a stop text held: what was held does not come after the
// call that returned false.
static void test_callback_at_limit(void **state) {
    struct api_fixture *f = *state;
    struct tandem_session *s = api_session(f);
    struct api_taken t = {.stop_at = 1};
    struct tandem_generate_options o = api_options(f, &t, 3);
    const struct tandem_logit_bias only = {.token = 'a', .bias = 1000};
    const char *const stop = "aab"; // of "aaa" the first character is handed over, the others held
    struct tandem_sampling sampling = f->greedy;
    struct tandem_result result;
    struct tandem_error e;
    sampling.logit_bias = &only;
    sampling.n_logit_bias = 1;
    o.sampling = &sampling;
    o.stop = &stop;
    o.n_stop = 1;
    api_ok(tandem_generate_tokens(s, f->prompt, 20, &o, &result, &e), &e);
    assert_int_equal(t.n_calls, 1);
    assert_true(t.length == 1 && t.text[0] == 'a');
    assert_int_equal(result.stop, TANDEM_STOP_CALLBACK);
    assert_int_equal(result.n_tokens, 3);
    tandem_session_free(s);
}

struct errand { // of another thread
    struct api_fixture *fixture;
    struct api_taken taken;
};

static void *answer_in_thread(void *context) {
    struct errand *errand = context;
    api_answer(errand->fixture, 10, &errand->taken, NULL);
    return NULL;
}

// The thread that uses an engine need not be the one that opened it.
static void test_other_thread(void **state) {
    struct errand here = {.fixture = *state}, there = here;
    pthread_t thread;
    answer_in_thread(&here);
    assert_int_equal(pthread_create(&thread, NULL, answer_in_thread, &there), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_string_equal(here.taken.text, there.taken.text);
}

static void *tokenize_often(void *context) {
    const struct errand *errand = context;
    const struct api_fixture *f = errand->fixture;
    const struct tandem_message message = {TANDEM_USER, "What is the capital of France?"};
    for (int i = 0; i < 50; i++) {
        struct tandem_tokens tokens;
        struct tandem_error e;
        api_ok(tandem_chat_tokens(f->engine, &message, 1, TANDEM_CHAT_REPLY, &tokens, &e), &e);
        tandem_free(tokens.ids);
    }
    return NULL;
}

// Each in a thread of its own, and a third thread that only reads one of them.
static void test_two_engines(void **state) {
    struct api_fixture *f = *state, second = *f;
    struct errand expected = {.fixture = f}, errands[3] = {expected, expected, expected};
    void *(*const work[3])(void *context) = {answer_in_thread, answer_in_thread, tokenize_often};
    pthread_t threads[3];
    struct tandem_error e;
    errands[1].fixture = &second;
    second.options.log_context = second.options.progress_context = &second.listener;
    api_ok(tandem_open(&second.engine, f->path, &second.options, &e), &e);
    answer_in_thread(&expected);
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, work[i], &errands[i]), 0);
    for (int i = 0; i < 3; i++) assert_int_equal(pthread_join(threads[i], NULL), 0);
    for (int i = 0; i < 2; i++) assert_string_equal(errands[i].taken.text, expected.taken.text);
    tandem_close(second.engine);
}

// The same seed gives the same text, also in a session that goes on.
static void test_seeds(void **state) {
    struct api_fixture *f = *state;
    struct api_taken t[3] = {0};
    struct tandem_sampling sampling;
    struct tandem_error e;
    tandem_sampling_defaults(&sampling, sizeof sampling);
    sampling.temp = 2;
    sampling.top_k = 0;
    sampling.top_p = 0;
    sampling.min_p = 0;
    for (int i = 0; i < 3; i++) {
        struct tandem_session *s = api_session(f);
        struct tandem_generate_options o = api_options(f, &t[i], 20);
        sampling.seed = i == 2 ? 8 : 7;
        o.sampling = &sampling;
        api_ok(tandem_generate_tokens(s, f->prompt, 20, &o, NULL, &e), &e);
        tandem_session_free(s);
    }
    assert_string_equal(t[0].text, t[1].text);
    assert_string_not_equal(t[0].text, t[2].text);
}

// ---- Cancelling ---------------------------------------------------------------------------------

// Within a prompt: the session is as it was, and goes on as if nothing had been.
static void test_cancel_prompt(void **state) {
    struct api_fixture *f = *state;
    struct api_taken whole, t = {0};
    struct tandem_error e;
    struct tandem_result result;
    int32_t drawn[10];
    api_answer(f, 10, &whole, drawn);
    struct tandem_session *s = api_session(f);
    struct tandem_generate_options o = api_options(f, &t, 5);
    api_ok(tandem_generate_tokens(s, f->prompt, 20, &o, NULL, &e), &e);
    const struct api_listener ways[] = {
        {.cancel = f->engine}, {.cancel = f->engine, .from_thread = true}, {.refuse = "prefill"}};
    for (int i = 0; i < 6; i++) {
        f->listener = ways[i % 3];
        if (i < 3)
            assert_int_equal(tandem_generate_tokens(s, f->prompt, API_PROMPT, &o, &result, &e),
                             TANDEM_ERR_CANCELLED);
        else
            assert_int_equal(tandem_eval(s, f->prompt, API_PROMPT, &e), TANDEM_ERR_CANCELLED);
        assert_true(f->listener.n_prefill <= 2); // of the six micro-batches
        assert_int_equal(api_length(s), 25);
    }
    f->listener = (struct api_listener){0};
    o.max_tokens = 4;
    api_ok(tandem_generate_tokens(s, drawn + 5, 1, &o, NULL, &e), &e);
    size_t n;
    const int32_t *tokens = tandem_session_tokens(s, &n);
    assert_int_equal(n, 30);
    assert_memory_equal(tokens + 20, drawn, sizeof drawn);
    tandem_session_free(s);
}

// Within the one micro-batch that has all of the prompt.
static void test_cancel_within_micro_batch(void **state) {
    struct api_fixture *f = *state;
    struct tandem_engine_options large = f->options;
    struct tandem_engine *engine;
    struct tandem_session *s, *never = api_session(f);
    struct tandem_error e;
    struct api_taken t = {0};
    struct tandem_generate_options o = api_options(f, &t, 10);
    size_t n, n_never;
    large.n_ubatch = API_CTX;
    api_ok(tandem_open(&engine, f->path, &large, &e), &e);
    api_ok(tandem_session_new(&s, engine, &e), &e);
    api_ok(tandem_generate_tokens(s, f->prompt, 20, &o, NULL, &e), &e);
    for (int i = 0; i < 4; i++) {
        f->listener = (struct api_listener){.cancel = engine, .from_thread = i % 2};
        assert_int_equal(tandem_generate_tokens(s, f->prompt, 70, &o, NULL, &e),
                         TANDEM_ERR_CANCELLED);
        assert_true(f->listener.done < 70);
        assert_int_equal(api_length(s), 30);
    }
    f->listener = (struct api_listener){0};
    api_ok(tandem_generate_tokens(s, f->prompt, 70, &o, NULL, &e), &e);
    api_ok(tandem_generate_tokens(never, f->prompt, 20, &o, NULL, &e), &e);
    api_ok(tandem_generate_tokens(never, f->prompt, 70, &o, NULL, &e), &e);
    const int32_t *tokens = tandem_session_tokens(s, &n);
    const int32_t *expected = tandem_session_tokens(never, &n_never);
    assert_int_equal(n, 110);
    assert_int_equal(n_never, 110);
    assert_memory_equal(tokens, expected, 110 * sizeof *tokens);
    tandem_session_free(never);
    tandem_close(engine);
}

struct nuisance { // of another thread
    struct tandem_engine *engine;
    atomic_bool ended;
};

static void *cancel_often(void *context) {
    struct nuisance *n = context;
    while (!atomic_load(&n->ended)) {
        tandem_cancel(n->engine);
        usleep(20);
    }
    return NULL;
}

// At any time: a call does all or nothing.
static void test_cancel_any_time(void **state) {
    struct api_fixture *f = *state;
    struct nuisance nuisance = {.engine = f->engine};
    struct tandem_session *s = api_session(f);
    struct tandem_error e;
    float expected[TINY_VOCAB], logits[TINY_VOCAB];
    pthread_t thread;
    api_ok(tandem_eval(s, f->prompt, API_PROMPT, &e), &e);
    api_logits(f, 0, expected);
    assert_int_equal(pthread_create(&thread, NULL, cancel_often, &nuisance), 0);
    for (int i = 0; i < 40; i++) {
        tandem_session_truncate(s, 10);
        const enum tandem_status status = tandem_eval(s, f->prompt + 10, API_PROMPT - 10, &e);
        if (status != TANDEM_ERR_CANCELLED) api_ok(status, &e);
        assert_int_equal(api_length(s), status == TANDEM_OK ? API_PROMPT : 10);
        assert_int_equal(tandem_logits(f->engine, 0) != NULL, status == TANDEM_OK);
    }
    atomic_store(&nuisance.ended, true);
    assert_int_equal(pthread_join(thread, NULL), 0);
    tandem_session_truncate(s, 10);
    api_ok(tandem_eval(s, f->prompt + 10, API_PROMPT - 10, &e), &e);
    api_logits(f, 0, logits);
    assert_memory_equal(expected, logits, sizeof logits);
    tandem_session_free(s);
}

// Within an answer: what was drawn stays, and its text came.
static void test_cancel_answer(void **state) {
    struct api_fixture *f = *state;
    struct api_taken t = {.stop_at = 2, .cancel = f->engine};
    struct tandem_session *s = api_session(f);
    struct tandem_generate_options o = api_options(f, &t, 24);
    const struct tandem_logit_bias only = {.token = 'a', .bias = 1000};
    struct tandem_sampling sampling = f->greedy;
    struct tandem_result result;
    struct tandem_error e;
    sampling.logit_bias = &only;
    sampling.n_logit_bias = 1;
    o.sampling = &sampling;
    tandem_cancel(f->engine); // nothing runs
    api_ok(tandem_generate_tokens(s, f->prompt, 20, &o, &result, &e), &e);
    assert_int_equal(result.stop, TANDEM_STOP_CANCELLED);
    assert_int_equal(t.n_calls, 2);
    assert_int_equal(t.length, 2);
    assert_int_equal(result.n_tokens, 2);
    assert_int_equal(api_length(s), 20 + result.n_tokens);
    tandem_session_free(s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fork),
        cmocka_unit_test(test_saved),
        cmocka_unit_test(test_sessions),
        cmocka_unit_test(test_full_session),
        cmocka_unit_test(test_goes_on),
        cmocka_unit_test(test_failed_answer),
        cmocka_unit_test(test_begin_and_end),
        cmocka_unit_test(test_stop_texts),
        cmocka_unit_test(test_results),
        cmocka_unit_test(test_callback_at_limit),
        cmocka_unit_test(test_other_thread),
        cmocka_unit_test(test_two_engines),
        cmocka_unit_test(test_seeds),
        cmocka_unit_test(test_cancel_prompt),
        cmocka_unit_test(test_cancel_within_micro_batch),
        cmocka_unit_test(test_cancel_any_time),
        cmocka_unit_test(test_cancel_answer),
    };
    return cmocka_run_group_tests(tests, api_setup, api_teardown);
}

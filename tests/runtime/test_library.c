/* test_library.c: the public interface on tiny models: what it promises of options, sessions,
 * stops, cancelling and errors.
 */
// link: wrap-alloc
#include "runtime/tandem.h"

#include "runtime/text/utf8.h"
#include "tests/lib/alloc_fail.h"
#include "tests/lib/find_emulator.h"
#include "tests/lib/tiny_model.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { N_LAYERS = 3, N_PROMPT = 90, N_CTX = 128, N_UBATCH = 16, TEXT_BYTES = 2048, END = 256 };

// Text of an answer, and what its callback does.
struct taken {
    char text[TEXT_BYTES];
    size_t length;
    int n_calls, stop_at;         // stop_at 0: never
    struct tandem_engine *cancel; // in the call stop_at instead of stopping; NULL: not
};

// Callbacks of an engine.
struct listener {
    struct tandem_engine *cancel; // at the first "prefill"; NULL: not
    bool from_thread;             // by another thread
    const char *refuse;           // what to answer false to; NULL: nothing
    int n_load, n_prefill, n_lines;
    uint64_t done;  // as the last "prefill" told
    char line[256]; // the last one at TANDEM_LOG_WARN
};

struct fixture {
    char path[64];
    int32_t prompt[N_PROMPT];
    struct listener listener;
    struct tandem_engine_options options;
    struct tandem_sampling greedy;
    struct tandem_engine *engine;
};

// ---- The model and its engine -------------------------------------------------------------------

static void *cancel_engine(void *engine) {
    tandem_cancel(engine);
    return NULL;
}

static bool on_progress(void *context, const char *what, uint64_t done, uint64_t total) {
    struct listener *l = context;
    pthread_t thread;
    assert_true(done <= total);
    l->n_load += strcmp(what, "load") == 0;
    if (strcmp(what, "prefill") == 0) l->done = done;
    if (strcmp(what, "prefill") == 0 && ++l->n_prefill == 1 && l->cancel) {
        if (!l->from_thread) tandem_cancel(l->cancel);
        if (l->from_thread && pthread_create(&thread, NULL, cancel_engine, l->cancel) == 0)
            pthread_join(thread, NULL);
    }
    return !l->refuse || strcmp(what, l->refuse) != 0;
}

static void on_log(void *context, enum tandem_log_level level, const char *line) {
    struct listener *l = context;
    l->n_lines++;
    if (level == TANDEM_LOG_WARN) snprintf(l->line, sizeof l->line, "%s", line);
}

// With a template of ChatML. There are no 9999 tokens: as bos that is worth a warning.
static void write_model(const char *path, uint32_t bos, int32_t end_of_turn) {
    struct gguf_build b;
    tiny_model_build(
        &b, &(struct tiny_model){.n_layers = N_LAYERS, .biased = true, .freqs = true, .seed = 9},
        NULL);
    gguf_build_text(&b, "tokenizer.chat_template", "{{ '<|im_start|>' + role }}");
    gguf_build_int(&b, "tokenizer.ggml.bos_token_id", GGUF_U32, bos);
    gguf_build_int(&b, "tokenizer.ggml.add_bos_token", GGUF_BOOL, bos < TINY_VOCAB);
    gguf_build_int(&b, "tokenizer.ggml.eot_token_id", GGUF_U32, (uint32_t)end_of_turn);
    gguf_build_finish(&b);
    gguf_build_write(&b, path);
    gguf_build_close(&b);
}

static void expect_ok(enum tandem_status status, const struct tandem_error *e) {
    char text[1024];
    if (status != TANDEM_OK) fail_msg("%s", tandem_error_text(e, text, sizeof text));
    assert_int_equal(e->status, TANDEM_OK);
}

static int setup(void **state) {
    struct fixture *f = calloc(1, sizeof *f);
    struct tandem_error e;
    *state = f;
    snprintf(f->path, sizeof f->path, "/tmp/tandem_test_library.%d.gguf", (int)getpid());
    write_model(f->path, 9999, END);
    for (int i = 0; i < N_PROMPT; i++) f->prompt[i] = (i * 37 + i * i * 11) % 256;
    tandem_engine_defaults(&f->options, sizeof f->options);
    f->options.device = "none";
    f->options.n_ctx = N_CTX;
    f->options.n_ubatch = N_UBATCH;
    f->options.n_sessions = 2;
    f->options.max_logits = 4;
    f->options.n_threads = 2;
    f->options.log = on_log;
    f->options.log_context = &f->listener;
    f->options.progress = on_progress;
    f->options.progress_context = &f->listener;
    tandem_sampling_defaults(&f->greedy, sizeof f->greedy);
    f->greedy.temp = 0;
    expect_ok(tandem_open(&f->engine, f->path, &f->options, &e), &e);
    return 0;
}

static int teardown(void **state) {
    struct fixture *f = *state;
    tandem_close(f->engine);
    unlink(f->path);
    free(f);
    return 0;
}

static struct tandem_session *new_session(const struct fixture *f) {
    struct tandem_session *session;
    struct tandem_error e;
    expect_ok(tandem_session_new(&session, f->engine, &e), &e);
    return session;
}

static bool take(void *context, const char *text, size_t length) {
    struct taken *t = context;
    assert_true(length > 0 && t->length + length < TEXT_BYTES);
    memcpy(t->text + t->length, text, length);
    t->length += length;
    if (++t->n_calls != t->stop_at) return true;
    if (t->cancel) tandem_cancel(t->cancel);
    return t->cancel != NULL;
}

// Options for max_tokens, always the likeliest, taken by *t.
static struct tandem_generate_options options_for(struct fixture *f, struct taken *t,
                                                  int32_t max_tokens) {
    struct tandem_generate_options o;
    tandem_generate_defaults(&o, sizeof o);
    o.max_tokens = max_tokens;
    o.ignore_end = true;
    o.sampling = &f->greedy;
    o.on_text = take;
    o.context = t;
    return o;
}

static size_t length_of(const struct tandem_session *session) {
    size_t n;
    (void)tandem_session_tokens(session, &n);
    return n;
}

// The text and, if not NULL, the tokens[max_tokens] of an answer to the prompt in a new session.
static void answer(struct fixture *f, int32_t max_tokens, struct taken *t, int32_t *tokens) {
    struct tandem_session *session = new_session(f);
    struct tandem_generate_options o;
    struct tandem_result result;
    struct tandem_error e;
    size_t n;
    *t = (struct taken){0};
    o = options_for(f, t, max_tokens);
    expect_ok(tandem_generate_tokens(session, f->prompt, 20, &o, &result, &e), &e);
    assert_int_equal(result.stop, TANDEM_STOP_LIMIT);
    const int32_t *all = tandem_session_tokens(session, &n);
    assert_int_equal(n, 20 + max_tokens);
    if (tokens) memcpy(tokens, all + 20, (size_t)max_tokens * sizeof *tokens);
    tandem_session_free(session);
}

// ---- Versions, options, errors ------------------------------------------------------------------

static void test_version(void **state) {
    char numbers[32];
    (void)state;
    snprintf(numbers, sizeof numbers, "%d.%d.%d", TANDEM_VERSION_MAJOR, TANDEM_VERSION_MINOR,
             TANDEM_VERSION_PATCH);
    assert_string_equal(TANDEM_VERSION, numbers);
    assert_string_equal(tandem_version(), numbers);
}

// Structs of zeros ask for nothing that is not sensible.
static void test_zeros(void **state) {
    struct fixture *f = *state;
    const struct tandem_engine_options zeros = {0};
    const struct tandem_sampling sampling = {0};
    struct tandem_generate_options o = {.sampling = &sampling, .max_tokens = 8};
    struct tandem_engine *engine;
    struct tandem_session *session;
    struct tandem_error e;
    struct tandem_result result;
    struct taken expected, t = {0};
    answer(f, 8, &expected, NULL);
    expect_ok(tandem_open(&engine, f->path, &zeros, &e), &e);
    expect_ok(tandem_session_new(&session, engine, &e), &e);
    o.on_text = take;
    o.context = &t;
    o.ignore_end = true;
    expect_ok(tandem_generate_tokens(session, f->prompt, 20, &o, &result, &e), &e);
    assert_int_equal(result.seed, 0);
    assert_string_equal(t.text, expected.text);
    tandem_close(engine);
    expect_ok(tandem_open(&engine, f->path, NULL, &e), &e);
    assert_int_equal(tandem_engine_model(engine)->n_ctx, 512); // what the model was trained with
    tandem_close(engine);
}

// A program may have been compiled for an earlier or a later version.
static void test_struct_sizes(void **state) {
    struct fixture *f = *state;
    struct {
        struct tandem_engine_options options;
        char later[16];
    } o = {.options = f->options};
    struct tandem_plan *plan;
    struct tandem_error e;
    o.options.struct_size = sizeof o;
    expect_ok(tandem_plan_model(&plan, f->path, &o.options, &e), &e);
    tandem_plan_free(plan);
    o.later[15] = 1;
    assert_int_equal(tandem_plan_model(&plan, f->path, &o.options, &e), TANDEM_ERR_UNSUPPORTED);
    assert_null(plan);
    o.options.struct_size = sizeof(size_t);
    assert_int_equal(tandem_plan_model(&plan, f->path, &o.options, &e), TANDEM_ERR_USAGE);
    struct tandem_sampling sampling;
    memset(&sampling, 1, sizeof sampling);
    tandem_sampling_defaults(&sampling, offsetof(struct tandem_sampling, top_p));
    assert_int_equal(sampling.top_k, 40);
    assert_int_equal(((char *)&sampling.top_p)[0], 1); // nothing is written behind the size
}

static void test_wrong_options(void **state) {
    struct fixture *f = *state;
    struct tandem_engine_options wrong[8];
    struct tandem_engine *engine;
    struct tandem_error e;
    for (int i = 0; i < 8; i++) wrong[i] = f->options;
    wrong[0].n_ctx = -1;
    wrong[1].gpu_layers = -2;
    wrong[2].kv_type_k = (enum tandem_kv_type)9;
    wrong[3].strategy = "fastest";
    wrong[4].log_level = (enum tandem_log_level)9;
    wrong[5].wait_limit_s = -1;
    wrong[6].device = "nothing:at=all";
    wrong[7].gpu_layers = 2; // there is no accelerator
    for (int i = 0; i < 8; i++) {
        engine = f->engine;
        assert_int_equal(tandem_open(&engine, f->path, &wrong[i], &e), TANDEM_ERR_USAGE);
        assert_int_equal(e.status, TANDEM_ERR_USAGE);
        assert_true(e.what[0]);
        assert_null(engine);
    }
    assert_int_equal(tandem_open(&engine, NULL, NULL, &e), TANDEM_ERR_USAGE);
}

static void test_errors(void **state) {
    struct tandem_engine *engine;
    struct tandem_error e;
    char text[512], cut[8];
    (void)state;
    assert_int_equal(tandem_open(&engine, "/nowhere.gguf", NULL, NULL), TANDEM_ERR_FILE);
    assert_int_equal(tandem_open(&engine, "/nowhere.gguf", NULL, &e), TANDEM_ERR_FILE);
    assert_non_null(strstr(tandem_error_text(&e, text, sizeof text), "/nowhere.gguf"));
    assert_int_equal(strlen(tandem_error_text(&e, cut, sizeof cut)), sizeof cut - 1);
    assert_string_equal(tandem_status_name(e.status), "file");
    assert_string_equal(tandem_status_name(TANDEM_ERR_CANCELLED), "cancelled");
    tandem_close(NULL);
    tandem_session_free(NULL);
    tandem_plan_free(NULL);
    tandem_free(NULL);
}

static void test_log_and_load(void **state) {
    struct fixture *f = *state;
    struct tandem_engine *engine;
    struct tandem_error e;
    f->listener = (struct listener){0};
    expect_ok(tandem_open(&engine, f->path, &f->options, &e), &e);
    tandem_close(engine);
    assert_true(f->listener.n_load > 0);
    assert_int_equal(f->listener.n_lines, 1);
    assert_non_null(strstr(f->listener.line, "tokenizer.ggml.bos_token_id is 9999"));
    f->listener = (struct listener){.refuse = "load"};
    assert_int_equal(tandem_open(&engine, f->path, &f->options, &e), TANDEM_ERR_CANCELLED);
    f->listener = (struct listener){0};
}

// ---- Models, devices, plans ---------------------------------------------------------------------

static void test_model(void **state) {
    const struct fixture *f = *state;
    const struct tandem_model *m = tandem_engine_model(f->engine);
    assert_string_equal(m->name, "tiny");
    assert_string_equal(m->architecture, "llama");
    assert_int_equal(m->n_vocab, TINY_VOCAB);
    assert_int_equal(m->n_tokens, TINY_VOCAB);
    assert_int_equal(m->n_ctx, N_CTX);
    assert_int_equal(m->n_ctx_train, 512);
    assert_int_equal(m->bos, -1);
    assert_int_equal(m->eos, END);
    assert_false(m->adds_bos);
    assert_true(m->has_chat);
    assert_true(m->weights_bytes > 2 * TINY_VOCAB * TINY_EMBD);
    assert_true(tandem_is_end(f->engine, END));
    assert_false(tandem_is_end(f->engine, 65));
    assert_false(tandem_is_end(f->engine, -1));
}

static void test_devices(void **state) {
    const struct fixture *f = *state;
    struct tandem_device *devices;
    struct tandem_error e;
    size_t n = 0;
    expect_ok(tandem_devices(&devices, &n, &f->options, &e), &e);
    assert_int_equal(n, 1);
    assert_string_equal(devices[0].kind, "cpu");
    assert_true(devices[0].name[0]);
    assert_true(devices[0].capacity_bytes >= devices[0].free_bytes);
    assert_true(devices[0].free_bytes > 0);
    tandem_free(devices);
}

static void test_plan(void **state) {
    const struct fixture *f = *state;
    struct tandem_plan *plan;
    struct tandem_error e;
    expect_ok(tandem_plan_model(&plan, f->path, &f->options, &e), &e);
    assert_string_equal(plan->model, "tiny");
    assert_true(plan->can_run);
    assert_false(plan->measured);
    assert_int_equal(plan->n_ctx, N_CTX);
    assert_int_equal(plan->n_ubatch, N_UBATCH);
    assert_true(plan->decode_tokens_per_s > 0);
    assert_true(plan->prompt_tokens_per_s > plan->decode_tokens_per_s);
    assert_true(plan->first_token_s > 0);
    assert_int_equal(plan->n_devices, 1);
    assert_true(plan->devices[0].weights_bytes > 0);
    assert_true(plan->devices[0].kv_bytes >= 2 * 2 * N_CTX * N_LAYERS * 32);
    assert_true(plan->devices[0].budget_bytes > plan->devices[0].weights_bytes);
    assert_int_equal(plan->n_layers, N_LAYERS);
    for (int l = 0; l < N_LAYERS; l++) {
        assert_int_equal(plan->layers[l].attention_device, 0);
        assert_int_equal(plan->layers[l].ffn_cpu_percent, 100);
        assert_int_equal(plan->layers[l].experts_device, -1);
    }
    assert_non_null(strstr(plan->text, "tiny (llama): 3 layers"));
    assert_memory_equal(&tandem_engine_plan(f->engine)->devices[0], &plan->devices[0],
                        offsetof(struct tandem_plan_device, budget_bytes));
    tandem_plan_free(plan);
}

static void test_plan_does_not_fit(void **state) {
    struct fixture *f = *state;
    struct tandem_engine_options o = f->options;
    struct tandem_plan *plan;
    struct tandem_error e;
    o.ram_bytes = 1 << 16;
    assert_int_equal(tandem_plan_model(&plan, f->path, &o, &e), TANDEM_ERR_MEMORY);
    assert_null(plan);
    assert_true(e.expected[0] || e.fix[0]);
}

// The same answer with all layers on an accelerator, as the plan says beforehand.
static void test_accelerator(void **state) {
    struct fixture *f = *state;
    struct tandem_engine_options o = f->options;
    char path[4000], device[4096];
    struct tandem_device *devices;
    struct tandem_plan *plan;
    struct tandem_error e;
    size_t n;
    if (!find_emulator(path, sizeof path)) skip();
    snprintf(device, sizeof device, "cuda:driver=%s", path);
    o.device = device;
    o.gpu_layers = TANDEM_LAYERS_ALL;
    expect_ok(tandem_devices(&devices, &n, &o, &e), &e);
    assert_int_equal(n, 2);
    assert_string_equal(devices[1].kind, "cuda");
    tandem_free(devices);
    expect_ok(tandem_plan_model(&plan, f->path, &o, &e), &e);
    assert_int_equal(plan->n_devices, 2);
    assert_true(plan->devices[1].kv_bytes > 0);
    for (int l = 0; l < N_LAYERS; l++) {
        assert_int_equal(plan->layers[l].attention_device, 1);
        assert_int_equal(plan->layers[l].ffn_device, 1);
        assert_int_equal(plan->layers[l].ffn_cpu_percent, 0);
    }
    tandem_plan_free(plan);
    o.gpu_layers = TANDEM_LAYERS_NONE;
    expect_ok(tandem_plan_model(&plan, f->path, &o, &e), &e);
    assert_int_equal(plan->devices[1].weights_bytes, 0);
    tandem_plan_free(plan);
}

// ---- Text ---------------------------------------------------------------------------------------

static void test_text_and_tokens(void **state) {
    const struct fixture *f = *state;
    const char *text = "a \xc3\xa9 <s257>\n";
    struct tandem_tokens plain, parsed;
    struct tandem_text back;
    struct tandem_error e;
    expect_ok(tandem_tokenize(f->engine, text, strlen(text), 0, &plain, &e), &e);
    assert_int_equal(plain.count, strlen(text)); // a token per byte
    expect_ok(tandem_tokenize(f->engine, text, strlen(text), TANDEM_PARSE_SPECIAL, &parsed, &e),
              &e);
    assert_int_equal(parsed.count, 7);
    assert_int_equal(parsed.ids[5], 257);
    expect_ok(tandem_detokenize(f->engine, plain.ids, plain.count, 0, &back, &e), &e);
    assert_string_equal(back.bytes, text);
    assert_int_equal(back.length, strlen(text));
    tandem_free(back.bytes);
    expect_ok(tandem_detokenize(f->engine, parsed.ids, 7, TANDEM_SHOW_SPECIAL, &back, &e), &e);
    assert_string_equal(back.bytes, text);
    tandem_free(back.bytes);
    expect_ok(tandem_detokenize(f->engine, parsed.ids, 7, 0, &back, &e), &e);
    assert_string_equal(back.bytes, "a \xc3\xa9 \n");
    tandem_free(back.bytes);
    expect_ok(tandem_detokenize(f->engine, NULL, 0, 0, &back, &e), &e);
    assert_string_equal(back.bytes, "");
    tandem_free(back.bytes);
    tandem_free(plain.ids);
    tandem_free(parsed.ids);
}

static void test_chat(void **state) {
    const struct fixture *f = *state;
    const struct tandem_message messages[] = {{TANDEM_SYSTEM, "Be brief."},
                                              {TANDEM_USER, "<s257>"}};
    const struct tandem_message wrong = {(enum tandem_role)7, "hm"};
    struct tandem_tokens tokens;
    struct tandem_text text, back;
    struct tandem_error e;
    expect_ok(tandem_chat_text(f->engine, messages, 2, TANDEM_CHAT_REPLY, &text, &e), &e);
    assert_string_equal(text.bytes, "<|im_start|>system\nBe brief.<|im_end|>\n"
                                    "<|im_start|>user\n<s257><|im_end|>\n<|im_start|>assistant\n");
    expect_ok(tandem_chat_tokens(f->engine, messages, 2, TANDEM_CHAT_REPLY, &tokens, &e), &e);
    expect_ok(tandem_detokenize(f->engine, tokens.ids, tokens.count, 0, &back, &e), &e);
    assert_string_equal(back.bytes, text.bytes); // what a user types is no control token
    tandem_free(back.bytes);
    tandem_free(text.bytes);
    tandem_free(tokens.ids);
    expect_ok(tandem_chat_text(f->engine, messages + 1, 1, TANDEM_CHAT_WHOLE, &text, &e), &e);
    assert_string_equal(text.bytes, "<|im_start|>user\n<s257><|im_end|>\n");
    tandem_free(text.bytes);
    expect_ok(tandem_chat_text(f->engine, messages + 1, 1, TANDEM_CHAT_NEXT, &text, &e), &e);
    assert_string_equal(text.bytes, "<|im_end|>\n<|im_start|>user\n<s257><|im_end|>\n"
                                    "<|im_start|>assistant\n");
    tandem_free(text.bytes);
    assert_int_equal(tandem_chat_text(f->engine, &wrong, 1, TANDEM_CHAT_REPLY, &text, &e),
                     TANDEM_ERR_USAGE);
    assert_null(text.bytes);
}

// ---- Sessions -----------------------------------------------------------------------------------

static void copy_logits(const struct fixture *f, size_t i, float out[TINY_VOCAB]) {
    const float *logits = tandem_logits(f->engine, i);
    assert_non_null(logits);
    memcpy(out, logits, TINY_VOCAB * sizeof *out);
}

// Sessions do not see each other, whether computed alone or together.
static void test_sessions(void **state) {
    struct fixture *f = *state;
    struct tandem_session *a = new_session(f), *b = new_session(f), *c;
    struct tandem_error e;
    float alone[2][TINY_VOCAB], both[2][TINY_VOCAB];
    assert_int_equal(tandem_session_new(&c, f->engine, &e), TANDEM_ERR_LIMIT);
    assert_null(c);
    expect_ok(tandem_eval(a, f->prompt, 40, &e), &e);
    copy_logits(f, 0, alone[0]);
    expect_ok(tandem_eval(b, f->prompt + 40, 30, &e), &e);
    copy_logits(f, 0, alone[1]);
    assert_null(tandem_logits(f->engine, 1));
    tandem_session_truncate(a, 39);
    tandem_session_truncate(b, 29);
    tandem_session_truncate(b, 50);
    assert_int_equal(length_of(b), 29);
    const struct tandem_item items[] = {{b, f->prompt[69], true}, {a, f->prompt[39], true}};
    expect_ok(tandem_eval_batch(f->engine, items, 2, &e), &e);
    copy_logits(f, 0, both[1]);
    copy_logits(f, 1, both[0]);
    assert_memory_equal(alone, both, sizeof both);
    assert_int_equal(length_of(a), 40);
    const struct tandem_item nobody = {NULL, 1, true};
    assert_int_equal(tandem_eval_batch(f->engine, &nobody, 1, &e), TANDEM_ERR_USAGE);
    assert_null(tandem_logits(f->engine, 0));
    assert_int_equal(tandem_eval(a, f->prompt, 0, &e), TANDEM_ERR_USAGE);
    tandem_session_free(a);
    a = new_session(f);
    assert_int_equal(length_of(a), 0);
    tandem_session_free(a);
    tandem_session_free(b);
}

// What does not fit leaves the session alone.
static void test_full_session(void **state) {
    struct fixture *f = *state;
    struct tandem_session *s = new_session(f);
    struct tandem_generate_options o;
    struct tandem_result result;
    struct tandem_error e;
    struct taken t = {0};
    const int32_t unknown = TINY_VOCAB;
    expect_ok(tandem_eval(s, f->prompt, N_PROMPT, &e), &e);
    assert_int_equal(tandem_eval(s, f->prompt, N_CTX - N_PROMPT + 1, &e), TANDEM_ERR_LIMIT);
    assert_int_equal(tandem_eval(s, &unknown, 1, &e), TANDEM_ERR_LIMIT);
    assert_int_equal(length_of(s), N_PROMPT);
    o = options_for(f, &t, 0);
    assert_int_equal(tandem_generate_tokens(s, f->prompt, N_PROMPT, &o, NULL, &e),
                     TANDEM_ERR_LIMIT);
    assert_int_equal(length_of(s), N_PROMPT);
    expect_ok(tandem_generate_tokens(s, f->prompt, 8, &o, &result, &e), &e);
    assert_int_equal(result.stop, TANDEM_STOP_CONTEXT);
    assert_true(length_of(s) >= N_CTX);
    assert_int_equal(tandem_eval(s, f->prompt, 1, &e), TANDEM_ERR_LIMIT);
    assert_int_equal(tandem_generate_tokens(s, f->prompt, 1, &o, NULL, &e), TANDEM_ERR_LIMIT);
    tandem_session_truncate(s, 10);
    expect_ok(tandem_eval(s, f->prompt + 10, 1, &e), &e);
    tandem_session_free(s);
}

// ---- Generation ---------------------------------------------------------------------------------

// An answer in two parts is the answer in one: the last token drawn is not lost.
static void test_goes_on(void **state) {
    struct fixture *f = *state;
    int32_t drawn[30];
    struct taken whole, t = {0};
    struct tandem_error e;
    float expected[TINY_VOCAB], logits[TINY_VOCAB];
    f->greedy.repeat_penalty = 1.2F; // of everything in the session, read and written
    f->greedy.repeat_last_n = -1;
    answer(f, 30, &whole, drawn);
    struct tandem_session *s = new_session(f), *other = new_session(f);
    struct tandem_generate_options o = options_for(f, &t, 10);
    expect_ok(tandem_generate_tokens(s, f->prompt, 20, &o, NULL, &e), &e);
    o.max_tokens = 19;
    expect_ok(tandem_generate_tokens(s, drawn + 10, 1, &o, NULL, &e), &e);
    size_t n;
    const int32_t *tokens = tandem_session_tokens(s, &n);
    assert_int_equal(n, 50);
    assert_memory_equal(tokens + 20, drawn, sizeof drawn);
    expect_ok(tandem_eval(s, f->prompt, 1, &e), &e);
    expect_ok(tandem_eval(s, f->prompt + 1, 1, &e), &e);
    copy_logits(f, 0, logits);
    expect_ok(tandem_eval(other, f->prompt, 20, &e), &e);
    expect_ok(tandem_eval(other, drawn, 30, &e), &e);
    expect_ok(tandem_eval(other, f->prompt, 2, &e), &e);
    copy_logits(f, 0, expected);
    assert_memory_equal(expected, logits, sizeof logits);
    tandem_session_truncate(s, 20);
    expect_ok(tandem_generate_tokens(s, drawn, 1, &o, NULL, &e), &e);
    tandem_session_truncate(s, length_of(s) - 1); // the one that was not computed
    expect_ok(tandem_eval(s, drawn + 19, 11, &e), &e);
    expect_ok(tandem_eval(s, f->prompt, 2, &e), &e);
    copy_logits(f, 0, logits);
    assert_memory_equal(expected, logits, sizeof logits);
    f->greedy.repeat_penalty = 1;
    tandem_session_free(s);
    tandem_session_free(other);
}

// A text begins with bos, and ends with any token that the model ends with.
static void test_begin_and_end(void **state) {
    enum { BOS = 258 };
    struct fixture *f = *state;
    int32_t drawn[10];
    struct taken whole, t = {0};
    struct tandem_generate_options o = options_for(f, &t, 10);
    struct tandem_engine *engine;
    struct tandem_session *s;
    struct tandem_result result;
    struct tandem_error e;
    char path[80];
    size_t n;
    answer(f, 10, &whole, drawn);
    int32_t at = 0;
    while (drawn[at] != drawn[9]) at++;
    snprintf(path, sizeof path, "%s.bos", f->path);
    write_model(path, BOS, drawn[9]);
    expect_ok(tandem_open(&engine, path, &f->options, &e), &e);
    unlink(path);
    expect_ok(tandem_session_new(&s, engine, &e), &e);
    o.ignore_end = false;
    expect_ok(tandem_generate_tokens(s, f->prompt, 20, &o, &result, &e), &e);
    assert_int_equal(result.stop, TANDEM_STOP_END);
    assert_int_equal(result.n_tokens, at);
    assert_int_equal(length_of(s), 20 + at);
    tandem_session_truncate(s, 0);
    o.ignore_end = true;
    expect_ok(tandem_generate_tokens(s, f->prompt, 20, &o, &result, &e), &e);
    assert_int_equal(result.stop, TANDEM_STOP_LIMIT);
    tandem_session_truncate(s, 0);
    expect_ok(tandem_generate(s, "ab", &o, &result, &e), &e);
    assert_int_equal(result.n_prompt, 3);
    const int32_t *tokens = tandem_session_tokens(s, &n);
    assert_int_equal(tokens[0], BOS);
    assert_int_equal(tokens[1], 'a');
    expect_ok(tandem_generate(s, "ab", &o, &result, &e), &e);
    assert_int_equal(result.n_prompt, 2);
    tandem_close(engine);
}

// A model that computes nonsense: what was read before the first token is forgotten.
static void test_failed_answer(void **state) {
    struct fixture *f = *state;
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
    expect_ok(tandem_open(&engine, path, &f->options, &e), &e);
    unlink(path);
    expect_ok(tandem_session_new(&s, engine, &e), &e);
    assert_int_equal(tandem_generate_tokens(s, f->prompt, 20, NULL, NULL, &e), TANDEM_ERR_DEVICE);
    assert_int_equal(length_of(s), 0);
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
    struct fixture *f = *state;
    struct taken whole;
    answer(f, 24, &whole, NULL);
    assert_true(whole.length > 16);
    for (size_t first = 0; first + 16 < whole.length; first += utf8_step(whole.text + first, 4)) {
        struct taken t = {0};
        struct tandem_session *s = new_session(f);
        struct tandem_generate_options o = options_for(f, &t, 24);
        struct tandem_result result;
        struct tandem_error e;
        char stop[16];
        cut(stop, whole.text, first, 3);
        const char *const stops[] = {"not in the text", stop};
        o.stop = stops;
        o.n_stop = 2;
        expect_ok(tandem_generate_tokens(s, f->prompt, 20, &o, &result, &e), &e);
        assert_int_equal(result.stop, TANDEM_STOP_STRING);
        const size_t length = (size_t)(strstr(whole.text, stop) - whole.text);
        assert_int_equal(t.length, length);
        assert_memory_equal(t.text, whole.text, length);
        assert_int_equal(length_of(s), 20 + result.n_tokens);
        o.stop = NULL;
        assert_int_equal(tandem_generate_tokens(s, f->prompt, 1, &o, &result, &e),
                         TANDEM_ERR_USAGE);
        tandem_session_free(s);
    }
}

static void test_results(void **state) {
    struct fixture *f = *state;
    struct tandem_session *s = new_session(f);
    struct taken t = {.stop_at = 3};
    struct tandem_generate_options o = options_for(f, &t, 24);
    struct tandem_sampling drawn;
    struct tandem_result result;
    struct tandem_error e;
    expect_ok(tandem_generate_tokens(s, f->prompt, 20, &o, &result, &e), &e);
    assert_int_equal(result.stop, TANDEM_STOP_CALLBACK);
    assert_int_equal(t.n_calls, 3);
    assert_int_equal(result.n_prompt, 20);
    assert_int_equal(length_of(s), 20 + result.n_tokens);
    assert_true(result.prompt_s > 0);
    assert_true(result.answer_s > 0);
    tandem_sampling_defaults(&drawn, sizeof drawn);
    o.sampling = &drawn;
    o.on_text = NULL;
    expect_ok(tandem_generate(s, "text", &o, &result, &e), &e);
    assert_true(result.seed >= 0);
    assert_int_equal(result.n_prompt, 4);
    drawn.repeat_penalty = -1;
    assert_int_equal(tandem_generate(s, "text", &o, &result, &e), TANDEM_ERR_USAGE);
    assert_int_equal(tandem_generate(s, "", &o, &result, &e), TANDEM_ERR_USAGE);
    o.max_tokens = -1;
    o.sampling = NULL;
    assert_int_equal(tandem_generate(s, "text", &o, &result, &e), TANDEM_ERR_USAGE);
    tandem_session_free(s);
}

struct errand { // of another thread
    struct fixture *fixture;
    struct taken taken;
};

static void *answer_in_thread(void *context) {
    struct errand *errand = context;
    answer(errand->fixture, 10, &errand->taken, NULL);
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

// The same seed gives the same text, also in a session that goes on.
static void test_seeds(void **state) {
    struct fixture *f = *state;
    struct taken t[3] = {0};
    struct tandem_sampling sampling;
    struct tandem_error e;
    tandem_sampling_defaults(&sampling, sizeof sampling);
    sampling.temp = 2;
    sampling.top_k = 0;
    sampling.top_p = 0;
    sampling.min_p = 0;
    for (int i = 0; i < 3; i++) {
        struct tandem_session *s = new_session(f);
        struct tandem_generate_options o = options_for(f, &t[i], 20);
        sampling.seed = i == 2 ? 8 : 7;
        o.sampling = &sampling;
        expect_ok(tandem_generate_tokens(s, f->prompt, 20, &o, NULL, &e), &e);
        tandem_session_free(s);
    }
    assert_string_equal(t[0].text, t[1].text);
    assert_string_not_equal(t[0].text, t[2].text);
}

// ---- Cancelling ---------------------------------------------------------------------------------

// Within a prompt: the session is as it was, and goes on as if nothing had been.
static void test_cancel_prompt(void **state) {
    struct fixture *f = *state;
    struct taken whole, t = {0};
    struct tandem_error e;
    struct tandem_result result;
    int32_t drawn[10];
    answer(f, 10, &whole, drawn);
    struct tandem_session *s = new_session(f);
    struct tandem_generate_options o = options_for(f, &t, 5);
    expect_ok(tandem_generate_tokens(s, f->prompt, 20, &o, NULL, &e), &e);
    const struct listener ways[] = {
        {.cancel = f->engine}, {.cancel = f->engine, .from_thread = true}, {.refuse = "prefill"}};
    for (int i = 0; i < 6; i++) {
        f->listener = ways[i % 3];
        if (i < 3)
            assert_int_equal(tandem_generate_tokens(s, f->prompt, N_PROMPT, &o, &result, &e),
                             TANDEM_ERR_CANCELLED);
        else
            assert_int_equal(tandem_eval(s, f->prompt, N_PROMPT, &e), TANDEM_ERR_CANCELLED);
        assert_true(f->listener.n_prefill <= 2); // of the six micro-batches
        assert_int_equal(length_of(s), 25);
    }
    f->listener = (struct listener){0};
    o.max_tokens = 4;
    expect_ok(tandem_generate_tokens(s, drawn + 5, 1, &o, NULL, &e), &e);
    size_t n;
    const int32_t *tokens = tandem_session_tokens(s, &n);
    assert_int_equal(n, 30);
    assert_memory_equal(tokens + 20, drawn, sizeof drawn);
    tandem_session_free(s);
}

// Within the one micro-batch that has all of the prompt.
static void test_cancel_within(void **state) {
    struct fixture *f = *state;
    struct tandem_engine_options large = f->options;
    struct tandem_engine *engine;
    struct tandem_session *s, *never = new_session(f);
    struct tandem_error e;
    struct taken t = {0};
    struct tandem_generate_options o = options_for(f, &t, 10);
    size_t n, n_never;
    large.n_ubatch = N_CTX;
    expect_ok(tandem_open(&engine, f->path, &large, &e), &e);
    expect_ok(tandem_session_new(&s, engine, &e), &e);
    expect_ok(tandem_generate_tokens(s, f->prompt, 20, &o, NULL, &e), &e);
    for (int i = 0; i < 4; i++) {
        f->listener = (struct listener){.cancel = engine, .from_thread = i % 2};
        assert_int_equal(tandem_generate_tokens(s, f->prompt, 70, &o, NULL, &e),
                         TANDEM_ERR_CANCELLED);
        assert_true(f->listener.done < 70);
        assert_int_equal(length_of(s), 30);
    }
    f->listener = (struct listener){0};
    expect_ok(tandem_generate_tokens(s, f->prompt, 70, &o, NULL, &e), &e);
    expect_ok(tandem_generate_tokens(never, f->prompt, 20, &o, NULL, &e), &e);
    expect_ok(tandem_generate_tokens(never, f->prompt, 70, &o, NULL, &e), &e);
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
    struct fixture *f = *state;
    struct nuisance nuisance = {.engine = f->engine};
    struct tandem_session *s = new_session(f);
    struct tandem_error e;
    float expected[TINY_VOCAB], logits[TINY_VOCAB];
    pthread_t thread;
    expect_ok(tandem_eval(s, f->prompt, N_PROMPT, &e), &e);
    copy_logits(f, 0, expected);
    assert_int_equal(pthread_create(&thread, NULL, cancel_often, &nuisance), 0);
    for (int i = 0; i < 40; i++) {
        tandem_session_truncate(s, 10);
        const enum tandem_status status = tandem_eval(s, f->prompt + 10, N_PROMPT - 10, &e);
        if (status != TANDEM_ERR_CANCELLED) expect_ok(status, &e);
        assert_int_equal(length_of(s), status == TANDEM_OK ? N_PROMPT : 10);
        assert_int_equal(tandem_logits(f->engine, 0) != NULL, status == TANDEM_OK);
    }
    atomic_store(&nuisance.ended, true);
    assert_int_equal(pthread_join(thread, NULL), 0);
    tandem_session_truncate(s, 10);
    expect_ok(tandem_eval(s, f->prompt + 10, N_PROMPT - 10, &e), &e);
    copy_logits(f, 0, logits);
    assert_memory_equal(expected, logits, sizeof logits);
    tandem_session_free(s);
}

// Within an answer: what was drawn stays.
static void test_cancel_answer(void **state) {
    struct fixture *f = *state;
    struct taken t = {.stop_at = 2, .cancel = f->engine};
    struct tandem_session *s = new_session(f);
    struct tandem_generate_options o = options_for(f, &t, 24);
    struct tandem_result result;
    struct tandem_error e;
    tandem_cancel(f->engine); // nothing runs
    expect_ok(tandem_generate_tokens(s, f->prompt, 20, &o, &result, &e), &e);
    assert_int_equal(result.stop, TANDEM_STOP_CANCELLED);
    assert_int_equal(t.n_calls, 2);
    assert_true(result.n_tokens >= 2 && result.n_tokens < 24);
    assert_int_equal(length_of(s), 20 + result.n_tokens);
    tandem_session_free(s);
}

// ---- Refused memory -----------------------------------------------------------------------------

static enum tandem_status open_and_close(struct fixture *f, struct tandem_error *e) {
    struct tandem_engine *engine;
    const enum tandem_status status = tandem_open(&engine, f->path, &f->options, e);
    tandem_close(engine);
    return status;
}

static enum tandem_status use_engine(struct fixture *f, struct tandem_error *e) {
    static const char *const stops[] = {"never in the text"};
    const struct tandem_message message = {TANDEM_USER, "hm"};
    struct tandem_session *s;
    struct tandem_tokens tokens = {0}, chat = {0};
    struct tandem_text text = {0};
    struct taken t = {0};
    struct tandem_generate_options o = options_for(f, &t, 2);
    o.stop = stops;
    o.n_stop = 1;
    enum tandem_status status = tandem_session_new(&s, f->engine, e);
    if (status == TANDEM_OK) status = tandem_tokenize(f->engine, "text", 4, 0, &tokens, e);
    if (status == TANDEM_OK) status = tandem_detokenize(f->engine, tokens.ids, 4, 0, &text, e);
    if (status == TANDEM_OK)
        status = tandem_chat_tokens(f->engine, &message, 1, TANDEM_CHAT_REPLY, &chat, e);
    if (status == TANDEM_OK) status = tandem_generate(s, "text", &o, NULL, e);
    tandem_free(tokens.ids);
    tandem_free(chat.ids);
    tandem_free(text.bytes);
    tandem_session_free(s);
    return status;
}

static enum tandem_status ask(struct fixture *f, struct tandem_error *e) {
    struct tandem_device *devices;
    struct tandem_plan *plan;
    size_t n;
    enum tandem_status status = tandem_plan_model(&plan, f->path, &f->options, e);
    tandem_plan_free(plan);
    if (status != TANDEM_OK) return status;
    status = tandem_devices(&devices, &n, &f->options, e);
    tandem_free(devices);
    return status;
}

// Refuses every allocation of use in turn; returns their number.
static int sweep(struct fixture *f,
                 enum tandem_status (*use)(struct fixture *f, struct tandem_error *e)) {
    for (int n = 1;; n++) {
        struct tandem_error e = {0};
        alloc_fail_at(n);
        const enum tandem_status status = use(f, &e);
        const bool happened = alloc_fail_happened();
        alloc_fail_at(0);
        if (!happened) {
            expect_ok(status, &e);
            return n - 1;
        }
        if (status != TANDEM_ERR_MEMORY) fail_msg("allocation %d: %s", n, e.what);
    }
}

static void test_refused_allocations(void **state) {
    assert_true(sweep(*state, open_and_close) > 20);
    assert_true(sweep(*state, use_engine) > 10);
    assert_true(sweep(*state, ask) > 5);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_version),
        cmocka_unit_test(test_zeros),
        cmocka_unit_test(test_struct_sizes),
        cmocka_unit_test(test_wrong_options),
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_log_and_load),
        cmocka_unit_test(test_model),
        cmocka_unit_test(test_devices),
        cmocka_unit_test(test_plan),
        cmocka_unit_test(test_plan_does_not_fit),
        cmocka_unit_test(test_accelerator),
        cmocka_unit_test(test_text_and_tokens),
        cmocka_unit_test(test_chat),
        cmocka_unit_test(test_sessions),
        cmocka_unit_test(test_full_session),
        cmocka_unit_test(test_goes_on),
        cmocka_unit_test(test_failed_answer),
        cmocka_unit_test(test_begin_and_end),
        cmocka_unit_test(test_stop_texts),
        cmocka_unit_test(test_results),
        cmocka_unit_test(test_other_thread),
        cmocka_unit_test(test_seeds),
        cmocka_unit_test(test_cancel_prompt),
        cmocka_unit_test(test_cancel_within),
        cmocka_unit_test(test_cancel_any_time),
        cmocka_unit_test(test_cancel_answer),
        cmocka_unit_test(test_refused_allocations),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}

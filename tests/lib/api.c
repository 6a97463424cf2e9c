/* api.c: see api.h. */
#include "tests/lib/api.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static void *cancel_engine(void *engine) {
    tandem_cancel(engine);
    return NULL;
}

static bool on_progress(void *context, const char *what, uint64_t done, uint64_t total) {
    struct api_listener *l = context;
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
    struct api_listener *l = context;
    l->n_lines++;
    if (level == TANDEM_LOG_WARN) snprintf(l->line, sizeof l->line, "%s", line);
}

void api_write_model(const char *path, uint32_t bos, int32_t end_of_turn) {
    struct gguf_build b;
    tiny_model_build(
        &b, &(struct tiny_model){.n_layers = API_LAYERS, .biased = true, .freqs = true, .seed = 9},
        NULL);
    gguf_build_text(
        &b, "tokenizer.chat_template",
        "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}"
        "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}"
        "{% endif %}");
    gguf_build_text(&b, "tokenizer.chat_template.tool_use",
                    "<tool_call>{% for t in tools %}{{ t.function.name }};{% endfor %}"
                    "{% for m in messages %}{{ m.content }};{% endfor %}");
    gguf_build_int(&b, "tokenizer.ggml.bos_token_id", GGUF_U32, bos);
    gguf_build_int(&b, "tokenizer.ggml.add_bos_token", GGUF_BOOL, bos < TINY_VOCAB);
    gguf_build_int(&b, "tokenizer.ggml.eot_token_id", GGUF_U32, (uint32_t)end_of_turn);
    gguf_build_finish(&b);
    gguf_build_write(&b, path);
    gguf_build_close(&b);
}

void api_ok(enum tandem_status status, const struct tandem_error *e) {
    char text[1024];
    if (status != TANDEM_OK) fail_msg("%s", tandem_error_text(e, text, sizeof text));
    assert_int_equal(e->status, TANDEM_OK);
}

int api_setup(void **state) {
    struct api_fixture *f = calloc(1, sizeof *f);
    struct tandem_error e;
    *state = f;
    snprintf(f->path, sizeof f->path, "/tmp/tandem_test_library.%d.gguf", (int)getpid());
    api_write_model(f->path, 9999, API_END);
    for (int i = 0; i < API_PROMPT; i++) f->prompt[i] = (i * 37 + i * i * 11) % 256;
    tandem_engine_defaults(&f->options, sizeof f->options);
    f->options.device = "none";
    f->options.n_ctx = API_CTX;
    f->options.n_ubatch = API_UBATCH;
    f->options.n_sessions = 2;
    f->options.max_logits = 4;
    f->options.n_threads = 2;
    f->options.log = on_log;
    f->options.log_context = &f->listener;
    f->options.progress = on_progress;
    f->options.progress_context = &f->listener;
    tandem_sampling_defaults(&f->greedy, sizeof f->greedy);
    f->greedy.temp = 0;
    api_ok(tandem_open(&f->engine, f->path, &f->options, &e), &e);
    return 0;
}

int api_teardown(void **state) {
    struct api_fixture *f = *state;
    tandem_close(f->engine);
    unlink(f->path);
    free(f);
    return 0;
}

struct tandem_session *api_session(const struct api_fixture *f) {
    struct tandem_session *session;
    struct tandem_error e;
    api_ok(tandem_session_new(&session, f->engine, &e), &e);
    return session;
}

bool api_take(void *context, const char *text, size_t length) {
    struct api_taken *t = context;
    assert_true(length > 0 && t->length + length < API_TEXT_BYTES);
    memcpy(t->text + t->length, text, length);
    t->length += length;
    if (++t->n_calls != t->stop_at) return true;
    if (t->cancel) tandem_cancel(t->cancel);
    return t->cancel != NULL;
}

struct tandem_generate_options api_options(struct api_fixture *f, struct api_taken *t,
                                           int32_t max_tokens) {
    struct tandem_generate_options o;
    tandem_generate_defaults(&o, sizeof o);
    o.max_tokens = max_tokens;
    o.ignore_end = true;
    o.sampling = &f->greedy;
    o.on_text = api_take;
    o.context = t;
    return o;
}

size_t api_length(const struct tandem_session *session) {
    size_t n;
    (void)tandem_session_tokens(session, &n);
    return n;
}

void api_answer(struct api_fixture *f, int32_t max_tokens, struct api_taken *t, int32_t *tokens) {
    struct tandem_session *session = api_session(f);
    struct tandem_generate_options o;
    struct tandem_result result;
    struct tandem_error e;
    size_t n;
    *t = (struct api_taken){0};
    o = api_options(f, t, max_tokens);
    api_ok(tandem_generate_tokens(session, f->prompt, 20, &o, &result, &e), &e);
    assert_int_equal(result.stop, TANDEM_STOP_LIMIT);
    const int32_t *all = tandem_session_tokens(session, &n);
    assert_int_equal(n, 20 + max_tokens);
    if (tokens) memcpy(tokens, all + 20, (size_t)max_tokens * sizeof *tokens);
    tandem_session_free(session);
}

void api_logits(const struct api_fixture *f, size_t i, float out[TINY_VOCAB]) {
    const float *logits = tandem_logits(f->engine, i);
    assert_non_null(logits);
    memcpy(out, logits, TINY_VOCAB * sizeof *out);
}

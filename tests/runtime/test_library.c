/* test_library.c: the public interface on a tiny model: what it promises of options, devices,
 * plans, texts and errors. Sessions have test_library_sessions.c.
 */
// link: wrap-alloc
#include "tests/lib/alloc_fail.h"
#include "tests/lib/api.h"
#include "tests/lib/find_emulator.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

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
    struct api_fixture *f = *state;
    const struct tandem_engine_options zeros = {0};
    const struct tandem_sampling sampling = {0};
    struct tandem_generate_options o = {.sampling = &sampling, .max_tokens = 8};
    struct tandem_engine *engine;
    struct tandem_session *session;
    struct tandem_error e;
    struct tandem_result result;
    struct api_taken expected, t = {0};
    api_answer(f, 8, &expected, NULL);
    api_ok(tandem_open(&engine, f->path, &zeros, &e), &e);
    api_ok(tandem_session_new(&session, engine, &e), &e);
    o.on_text = api_take;
    o.context = &t;
    o.ignore_end = true;
    api_ok(tandem_generate_tokens(session, f->prompt, 20, &o, &result, &e), &e);
    assert_int_equal(result.seed, 0);
    assert_string_equal(t.text, expected.text);
    tandem_close(engine);
    api_ok(tandem_open(&engine, f->path, NULL, &e), &e);
    assert_int_equal(tandem_engine_model(engine)->n_ctx, 512); // what the model was trained with
    tandem_close(engine);
}

// A program may have been compiled for an earlier or a later version.
static void test_struct_sizes(void **state) {
    struct api_fixture *f = *state;
    struct {
        struct tandem_engine_options options;
        char later[16];
    } o = {.options = f->options};
    struct tandem_plan *plan;
    struct tandem_error e;
    o.options.struct_size = sizeof o;
    api_ok(tandem_plan_model(&plan, f->path, &o.options, &e), &e);
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
    struct api_fixture *f = *state;
    struct tandem_engine_options wrong[7];
    struct tandem_engine *engine;
    struct tandem_error e;
    for (int i = 0; i < 7; i++) wrong[i] = f->options;
    wrong[0].n_ctx = -1;
    wrong[1].gpu_layers = -2;
    wrong[2].kv_type_k = (enum tandem_kv_type)9;
    wrong[3].strategy = "fastest";
    wrong[4].log_level = (enum tandem_log_level)9;
    wrong[5].wait_limit_s = -1;
    wrong[6].device = "nothing:at=all";
    for (int i = 0; i < 7; i++) {
        engine = f->engine;
        assert_int_equal(tandem_open(&engine, f->path, &wrong[i], &e), TANDEM_ERR_USAGE);
        assert_int_equal(e.status, TANDEM_ERR_USAGE);
        assert_true(e.what[0]);
        assert_null(engine);
    }
    wrong[2] = f->options;
    wrong[2].kv_type_v = (enum tandem_kv_type)9; // the message names the one that is wrong
    assert_int_equal(tandem_open(&engine, f->path, &wrong[2], &e), TANDEM_ERR_USAGE);
    assert_string_equal(e.actual, "9");
    wrong[5].wait_limit_s = NAN;
    assert_int_equal(tandem_open(&engine, f->path, &wrong[5], &e), TANDEM_ERR_USAGE);
    assert_non_null(strstr(e.actual, "nan"));
    assert_int_equal(tandem_open(&engine, NULL, NULL, &e), TANDEM_ERR_USAGE);
    struct tandem_engine_options layers = f->options;
    layers.gpu_layers = 2; // without an accelerator all layers go to the CPU
    assert_int_equal(tandem_open(&engine, f->path, &layers, &e), TANDEM_OK);
    tandem_close(engine);
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
    struct api_fixture *f = *state;
    struct tandem_engine *engine;
    struct tandem_error e;
    f->listener = (struct api_listener){0};
    api_ok(tandem_open(&engine, f->path, &f->options, &e), &e);
    tandem_close(engine);
    assert_true(f->listener.n_load > 0);
    assert_int_equal(f->listener.n_lines, 1);
    assert_non_null(strstr(f->listener.line, "tokenizer.ggml.bos_token_id is 9999"));
    f->listener = (struct api_listener){.refuse = "load"};
    assert_int_equal(tandem_open(&engine, f->path, &f->options, &e), TANDEM_ERR_CANCELLED);
    f->listener = (struct api_listener){0};
}

// ---- Models, devices, plans ---------------------------------------------------------------------

static void test_model(void **state) {
    const struct api_fixture *f = *state;
    const struct tandem_model *m = tandem_engine_model(f->engine);
    assert_string_equal(m->name, "tiny");
    assert_string_equal(m->architecture, "llama");
    assert_int_equal(m->n_vocab, TINY_VOCAB);
    assert_int_equal(m->n_tokens, TINY_VOCAB);
    assert_int_equal(m->n_ctx, API_CTX);
    assert_int_equal(m->n_ctx_train, 512);
    assert_int_equal(m->bos, -1);
    assert_int_equal(m->eos, API_END);
    assert_false(m->adds_bos);
    assert_true(m->has_chat);
    assert_true(m->weights_bytes > 2 * TINY_VOCAB * TINY_EMBD);
    assert_true(tandem_is_end(f->engine, API_END));
    assert_false(tandem_is_end(f->engine, 65));
    assert_false(tandem_is_end(f->engine, -1));
}

static void test_devices(void **state) {
    const struct api_fixture *f = *state;
    struct tandem_device *devices;
    struct tandem_error e;
    size_t n = 0;
    api_ok(tandem_devices(&devices, &n, &f->options, &e), &e);
    assert_int_equal(n, 1);
    assert_string_equal(devices[0].kind, "cpu");
    assert_true(devices[0].name[0]);
    assert_true(devices[0].capacity_bytes >= devices[0].free_bytes);
    assert_true(devices[0].free_bytes > 0);
    tandem_free(devices);
}

static void test_plan(void **state) {
    const struct api_fixture *f = *state;
    struct tandem_plan *plan;
    struct tandem_error e;
    api_ok(tandem_plan_model(&plan, f->path, &f->options, &e), &e);
    assert_string_equal(plan->model, "tiny");
    assert_true(plan->can_run);
    assert_false(plan->measured);
    assert_int_equal(plan->n_ctx, API_CTX);
    assert_int_equal(plan->n_ubatch, API_UBATCH);
    assert_true(plan->decode_tokens_per_s > 0);
    assert_true(plan->prompt_tokens_per_s > plan->decode_tokens_per_s);
    assert_true(plan->first_token_s > 0);
    assert_int_equal(plan->n_devices, 1);
    assert_true(plan->devices[0].weights_bytes > 0);
    assert_true(plan->devices[0].kv_bytes >= 2 * 2 * API_CTX * API_LAYERS * 32);
    assert_true(plan->devices[0].budget_bytes > plan->devices[0].weights_bytes);
    assert_int_equal(plan->n_layers, API_LAYERS);
    for (int l = 0; l < API_LAYERS; l++) {
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
    struct api_fixture *f = *state;
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
    struct api_fixture *f = *state;
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
    api_ok(tandem_devices(&devices, &n, &o, &e), &e);
    assert_int_equal(n, 2);
    assert_string_equal(devices[1].kind, "cuda");
    tandem_free(devices);
    api_ok(tandem_plan_model(&plan, f->path, &o, &e), &e);
    assert_int_equal(plan->n_devices, 2);
    assert_true(plan->devices[1].kv_bytes > 0);
    for (int l = 0; l < API_LAYERS; l++) {
        assert_int_equal(plan->layers[l].attention_device, 1);
        assert_int_equal(plan->layers[l].ffn_device, 1);
        assert_int_equal(plan->layers[l].ffn_cpu_percent, 0);
    }
    tandem_plan_free(plan);
    o.gpu_layers = TANDEM_LAYERS_NONE;
    api_ok(tandem_plan_model(&plan, f->path, &o, &e), &e);
    assert_int_equal(plan->devices[1].weights_bytes, 0);
    tandem_plan_free(plan);
}

// ---- Text ---------------------------------------------------------------------------------------

static void test_text_and_tokens(void **state) {
    const struct api_fixture *f = *state;
    const char *text = "a \xc3\xa9 <s257>\n";
    struct tandem_tokens plain, parsed;
    struct tandem_text back;
    struct tandem_error e;
    api_ok(tandem_tokenize(f->engine, text, strlen(text), 0, &plain, &e), &e);
    assert_int_equal(plain.count, strlen(text)); // a token per byte
    api_ok(tandem_tokenize(f->engine, text, strlen(text), TANDEM_PARSE_SPECIAL, &parsed, &e), &e);
    assert_int_equal(parsed.count, 7);
    assert_int_equal(parsed.ids[5], 257);
    api_ok(tandem_detokenize(f->engine, plain.ids, plain.count, 0, &back, &e), &e);
    assert_string_equal(back.bytes, text);
    assert_int_equal(back.length, strlen(text));
    tandem_free(back.bytes);
    api_ok(tandem_detokenize(f->engine, parsed.ids, 7, TANDEM_SHOW_SPECIAL, &back, &e), &e);
    assert_string_equal(back.bytes, text);
    tandem_free(back.bytes);
    api_ok(tandem_detokenize(f->engine, parsed.ids, 7, 0, &back, &e), &e);
    assert_string_equal(back.bytes, "a \xc3\xa9 \n");
    tandem_free(back.bytes);
    api_ok(tandem_detokenize(f->engine, NULL, 0, 0, &back, &e), &e);
    assert_string_equal(back.bytes, "");
    tandem_free(back.bytes);
    tandem_free(plain.ids);
    tandem_free(parsed.ids);
}

static void test_chat(void **state) {
    const struct api_fixture *f = *state;
    const struct tandem_message messages[] = {{TANDEM_SYSTEM, "Be brief."},
                                              {TANDEM_USER, "<s257>"}};
    const struct tandem_message wrong[] = {{TANDEM_USER, "hm"}, {(enum tandem_role)7, "hm"}};
    struct tandem_tokens tokens;
    struct tandem_text text, back;
    struct tandem_error e;
    api_ok(tandem_chat_text(f->engine, messages, 2, TANDEM_CHAT_REPLY, &text, &e), &e);
    assert_string_equal(text.bytes, "<|im_start|>system\nBe brief.<|im_end|>\n"
                                    "<|im_start|>user\n<s257><|im_end|>\n<|im_start|>assistant\n");
    api_ok(tandem_chat_tokens(f->engine, messages, 2, TANDEM_CHAT_REPLY, &tokens, &e), &e);
    api_ok(tandem_detokenize(f->engine, tokens.ids, tokens.count, 0, &back, &e), &e);
    assert_string_equal(back.bytes, text.bytes); // what a user types is no control token
    tandem_free(back.bytes);
    tandem_free(text.bytes);
    tandem_free(tokens.ids);
    api_ok(tandem_chat_text(f->engine, messages + 1, 1, TANDEM_CHAT_WHOLE, &text, &e), &e);
    assert_string_equal(text.bytes, "<|im_start|>user\n<s257><|im_end|>\n");
    tandem_free(text.bytes);
    api_ok(tandem_chat_text(f->engine, messages + 1, 1, TANDEM_CHAT_NEXT, &text, &e), &e);
    assert_string_equal(text.bytes, "<|im_end|>\n<|im_start|>user\n<s257><|im_end|>\n"
                                    "<|im_start|>assistant\n");
    tandem_free(text.bytes);
    assert_int_equal(tandem_chat_text(f->engine, wrong, 2, TANDEM_CHAT_REPLY, &text, &e),
                     TANDEM_ERR_USAGE);
    assert_null(text.bytes);
    assert_string_equal(e.what, "message 2 has no known role or no text");
}

// ---- Refused memory -----------------------------------------------------------------------------

static enum tandem_status open_and_close(struct api_fixture *f, struct tandem_error *e) {
    struct tandem_engine *engine;
    const enum tandem_status status = tandem_open(&engine, f->path, &f->options, e);
    tandem_close(engine);
    return status;
}

static enum tandem_status use_engine(struct api_fixture *f, struct tandem_error *e) {
    static const char *const stops[] = {"never in the text"};
    const struct tandem_message message = {TANDEM_USER, "hm"};
    struct tandem_session *s;
    struct tandem_tokens tokens = {0}, chat = {0};
    struct tandem_text text = {0};
    struct api_taken t = {0};
    struct tandem_generate_options o = api_options(f, &t, 2);
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

static enum tandem_status ask(struct api_fixture *f, struct tandem_error *e) {
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
static int sweep(struct api_fixture *f,
                 enum tandem_status (*use)(struct api_fixture *f, struct tandem_error *e)) {
    for (int n = 1;; n++) {
        struct tandem_error e = {0};
        alloc_fail_at(n);
        const enum tandem_status status = use(f, &e);
        const bool happened = alloc_fail_happened();
        alloc_fail_at(0);
        if (!happened) {
            api_ok(status, &e);
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
        cmocka_unit_test(test_version),      cmocka_unit_test(test_zeros),
        cmocka_unit_test(test_struct_sizes), cmocka_unit_test(test_wrong_options),
        cmocka_unit_test(test_errors),       cmocka_unit_test(test_log_and_load),
        cmocka_unit_test(test_model),        cmocka_unit_test(test_devices),
        cmocka_unit_test(test_plan),         cmocka_unit_test(test_plan_does_not_fit),
        cmocka_unit_test(test_accelerator),  cmocka_unit_test(test_text_and_tokens),
        cmocka_unit_test(test_chat),         cmocka_unit_test(test_refused_allocations),
    };
    return cmocka_run_group_tests(tests, api_setup, api_teardown);
}

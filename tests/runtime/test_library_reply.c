/* test_library_reply.c: conversations with tools, schemas and parts of replies in the public
 * interface, on a tiny model with the template of Qwen2.5. */
#include "tests/lib/api.h"

#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static const char TOOLS[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"look\",\"parameters\":{\"type\":\"object\","
    "\"properties\":{\"at\":{\"enum\":[\"sun\"]}},\"required\":[\"at\"]}}}]";

// An engine with that template.
static struct tandem_engine *open_engine(const struct api_fixture *f) {
    struct tandem_engine_options o = f->options;
    struct tandem_engine *engine;
    struct tandem_error e;
    o.chat_template = "tests/golden/templates/Qwen-Qwen2.5-7B-Instruct.jinja";
    o.n_ctx = 512;
    api_ok(tandem_open(&engine, f->path, &o, &e), &e);
    return engine;
}

struct parts {
    char text[4][512];
    bool refuses;
};

static bool take_part(void *context, enum tandem_part part, const char *text, size_t length) {
    struct parts *p = context;
    assert_true(length > 0 && strlen(p->text[part]) + length < sizeof p->text[part]);
    strncat(p->text[part], text, length);
    return !p->refuses;
}

// Answers, without white space between the signs of JSON, so that answers are short.
static enum tandem_status answer(struct tandem_engine *engine, struct tandem_generate_options o,
                                 struct tandem_result *result) {
    struct tandem_sampling sampling = {.struct_size = sizeof sampling};
    struct tandem_logit_bias biases[2];
    struct tandem_session *session;
    struct tandem_tokens ids;
    struct tandem_error e;
    for (int i = 0; i < 2; i++) {
        api_ok(tandem_tokenize(engine, i ? "\n" : " ", 1, 0, &ids, &e), &e);
        assert_int_equal(ids.count, 1);
        biases[i] = (struct tandem_logit_bias){ids.ids[0], -INFINITY};
        tandem_free(ids.ids);
    }
    sampling.logit_bias = biases;
    sampling.n_logit_bias = 2;
    o.struct_size = sizeof o;
    o.sampling = &sampling;
    o.max_tokens = 200;
    api_ok(tandem_session_new(&session, engine, &e), &e);
    const enum tandem_status status = tandem_generate(session, "Hello", &o, result, &e);
    tandem_session_free(session);
    return status;
}

static void test_schema(void **state) {
    struct tandem_engine *engine = open_engine(*state);
    struct api_taken t = {.stop_at = 0};
    struct tandem_result result;
    const struct tandem_generate_options o = {
        .json_schema =
            "{\"type\":\"object\",\"properties\":{\"a\":{\"enum\":[7]}},\"required\":[\"a\"]}",
        .on_text = api_take,
        .context = &t};
    assert_int_equal(answer(engine, o, &result), TANDEM_OK);
    assert_string_equal(t.text, "{\"a\":7}");
    assert_int_equal(result.stop, TANDEM_STOP_END);
    const struct tandem_generate_options wrong = {.json_schema = "{\"type\":1}"};
    assert_int_equal(answer(engine, wrong, &result), TANDEM_ERR_FORMAT);
    tandem_close(engine);
}

static void test_calls(void **state) {
    struct tandem_engine *engine = open_engine(*state);
    struct parts parts = {.refuses = false};
    struct tandem_result result;
    struct tandem_generate_options o = {
        .tools = TOOLS, .must_call = true, .on_part = take_part, .context = &parts};
    assert_int_equal(answer(engine, o, &result), TANDEM_OK);
    assert_non_null(strstr(parts.text[TANDEM_PART_CALL], "look"));
    assert_memory_equal(parts.text[TANDEM_PART_ARGUMENTS], "{\"at\":\"sun\"}", 12);
    assert_null(strchr(parts.text[TANDEM_PART_ANSWER], '{')); // but a mark that is cut off
    parts = (struct parts){.refuses = true};
    assert_int_equal(answer(engine, o, &result), TANDEM_OK);
    assert_int_equal(result.stop, TANDEM_STOP_CALLBACK);
    assert_string_equal(parts.text[TANDEM_PART_ARGUMENTS], "");
    o.grammar = "root ::= \"a\"";
    assert_int_equal(answer(engine, o, &result), TANDEM_ERR_USAGE);
    o.grammar = NULL;
    o.tools = "{}";
    assert_int_equal(answer(engine, o, &result), TANDEM_ERR_FORMAT);
    tandem_close(engine);
}

// The text of a conversation that is given as JSON; the caller frees it.
static char *tell(const struct tandem_engine *engine, const char *messages, const char *tools,
                  enum tandem_status expected) {
    const struct tandem_conversation c = {sizeof c, messages, tools, TANDEM_CHAT_REPLY};
    struct tandem_tokens ids;
    struct tandem_text text = {0};
    struct tandem_error e;
    assert_int_equal(tandem_conversation_tokens(engine, &c, &ids, &e), expected);
    if (expected == TANDEM_OK)
        api_ok(tandem_detokenize(engine, ids.ids, ids.count, TANDEM_SHOW_SPECIAL, &text, &e), &e);
    tandem_free(ids.ids);
    return text.bytes;
}

static void test_conversations(void **state) {
    struct tandem_engine *engine = open_engine(*state);
    char *text =
        tell(engine,
             "[{\"role\":\"developer\",\"content\":[{\"type\":\"text\",\"text\":\"Be \"},{\"type\":"
             "\"text\",\"text\":\"brief.\"}]},{\"role\":\"user\",\"content\":\"Where?\"},{\"role\":"
             "\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":\"1\",\"type\":\"function\","
             "\"function\":{\"name\":\"look\",\"arguments\":\"{\\\"at\\\":\\\"sun\\\"}\"}}]},"
             "{\"role\":\"tool\",\"tool_call_id\":\"1\",\"content\":\"bright\"}]",
             TOOLS, TANDEM_OK);
    assert_non_null(strstr(text, "Be brief."));
    assert_non_null(strstr(text, "\"name\": \"look\", \"parameters\""));
    assert_non_null(strstr(text, "{\"name\": \"look\", \"arguments\": {\"at\": \"sun\"}}"));
    assert_non_null(strstr(text, "<tool_response>\nbright"));
    tandem_free(text);
    tell(engine, "{}", NULL, TANDEM_ERR_FORMAT);
    tell(engine, "[{\"role\":\"other\",\"content\":\"\"}]", NULL, TANDEM_ERR_FORMAT);
    tell(engine, "[{\"role\":\"user\",\"content\":1}]", NULL, TANDEM_ERR_FORMAT);
    tell(engine, "[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\"}]}]", NULL,
         TANDEM_ERR_UNSUPPORTED);
    tell(engine, "[{\"role\":\"user\",\"content\":\"a\"}]", "[1]", TANDEM_ERR_FORMAT);
    static const char *const wrong[] = {"{}", "[5]", "[{\"function\":{\"name\":5}}]"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char calls[128];
        snprintf(calls, sizeof calls, "[{\"role\":\"assistant\",\"tool_calls\":%s}]", wrong[i]);
        tell(engine, calls, NULL, TANDEM_ERR_FORMAT);
    }
    tandem_close(engine);
}

// Messages are counted from 1.
static void test_wrong_message_is_named(void **state) {
    struct tandem_engine *engine = open_engine(*state);
    const struct tandem_conversation c = {
        .struct_size = sizeof c,
        .messages = "[{\"role\":\"user\",\"content\":\"Where?\"},{\"role\":\"moon\"}]"};
    struct tandem_tokens ids;
    struct tandem_error e;
    assert_int_equal(tandem_conversation_tokens(engine, &c, &ids, &e), TANDEM_ERR_FORMAT);
    assert_string_equal(e.what, "message 2 has no role that is known");
    tandem_close(engine);
}

// The model's file has another template for conversations with tools.
static void test_tool_template(void **state) {
    const struct api_fixture *f = *state;
    const char *messages = "[{\"role\":\"user\",\"content\":\"Where?\"}]";
    struct tandem_engine_options options = f->options;
    struct tandem_engine *engine;
    struct tandem_result result;
    struct tandem_error e;
    struct parts parts = {.refuses = false};
    const struct tandem_generate_options o = {
        .tools = TOOLS, .must_call = true, .on_part = take_part, .context = &parts};
    options.n_ctx = 512;
    api_ok(tandem_open(&engine, f->path, &options, &e), &e);
    char *text = tell(engine, messages, TOOLS, TANDEM_OK);
    assert_string_equal(text, "<tool_call>look;Where?;");
    tandem_free(text);
    text = tell(engine, messages, NULL, TANDEM_OK);
    assert_non_null(strstr(text, "<|im_start|>user\nWhere?"));
    tandem_free(text);
    assert_int_equal(answer(engine, o, &result), TANDEM_OK);
    assert_non_null(strstr(parts.text[TANDEM_PART_CALL], "look"));
    tandem_close(engine);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_schema),        cmocka_unit_test(test_calls),
        cmocka_unit_test(test_conversations), cmocka_unit_test(test_wrong_message_is_named),
        cmocka_unit_test(test_tool_template),
    };
    return cmocka_run_group_tests(tests, api_setup, api_teardown);
}

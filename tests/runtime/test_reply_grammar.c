/* test_reply_grammar.c: tests of runtime/generate/reply_grammar.h and runtime/grammar/
 * grammar_until.h: which replies the grammar of a family allows. */
// link: wrap-alloc
#include "base/mem.h"
#include "runtime/generate/reply_grammar.h"
#include "runtime/grammar/grammar.h"
#include "runtime/grammar/grammar_until.h"
#include "tests/lib/alloc_fail.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#define DSML       \
    "\xef\xbd\x9c" \
    "DSML\xef\xbd\x9c"

#define SOLAR "<|begin|>assistant<|think|><|tool_call:begin|>"

static const char TOOLS[] =
    "[{\"name\":\"get\",\"parameters\":{\"type\":\"object\",\"properties\":{"
    "\"city\":{\"type\":\"string\"},"
    "\"days\":{\"type\":\"integer\",\"minimum\":1,\"maximum\":9},"
    "\"unit\":{\"type\":\"string\",\"enum\":[\"C\",\"F\"]},"
    "\"deep\":{\"$ref\":\"#/$defs/d\"},"
    "\"flag\":{\"type\":\"boolean\"}},"
    "\"required\":[\"city\"],"
    "\"$defs\":{\"d\":{\"type\":\"array\",\"items\":{\"type\":\"boolean\"}}}}},{\"name\":\"stop\"}"
    "]";

struct reader {
    struct grammar grammar;
    struct grammar_state state;
};

static void open_text(struct reader *r, const char *text, const char *root) {
    struct err e;
    if (grammar_parse(&r->grammar, text, strlen(text), root, &e) ||
        grammar_state_open(&r->state, &r->grammar, &e))
        fail_msg("%s: %s %s", text, e.what, e.actual);
}

static void close_reader(struct reader *r) {
    grammar_state_close(&r->state);
    grammar_close(&r->grammar);
}

// 2: a whole reply, 1: the beginning of one, 0: none.
static int look(struct reader *r, const char *text) {
    struct err e;
    grammar_state_reset(&r->state);
    if (grammar_accept(&r->state, text, strlen(text), &e)) return 0;
    return grammar_can_end(&r->state) ? 2 : 1;
}

// ---- Text up to a mark --------------------------------------------------------------------------

// Every text of few letters is taken just as far as a search for the mark says.
static void finds_every_mark(void **state) {
    static const char *const marks[] = {"a", "aab", "aabaaa", "abab", "aaa", "ab"};
    (void)state;
    for (size_t m = 0; m < sizeof marks / sizeof *marks; m++) {
        struct schema_text text = {0};
        struct reader r;
        schema_text_add(&text, "root ::= t-0\n");
        grammar_add_until(&text, "t", marks[m], "\"!\"", false);
        open_text(&r, text.bytes, "root");
        for (int word = 0; word < 3 * 3 * 3 * 3 * 3 * 3 * 3; word++) {
            char letters[10] = "";
            for (int i = 0, w = word; i < 7; i++, w /= 3) letters[i] = "abc"[w % 3];
            const char *found = strstr(letters, marks[m]);
            if (found) letters[found - letters + (ptrdiff_t)strlen(marks[m])] = 0;
            assert_int_equal(look(&r, letters), 1);
            strcat(letters, "!");
            assert_int_equal(look(&r, letters), found ? 2 : 1);
            strcat(letters, "x");
            assert_int_equal(look(&r, letters), found ? 0 : 1);
        }
        close_reader(&r);
        schema_text_close(&text);
    }
}

// The same for two marks, of which the first to come ends the text.
static void finds_either_mark(void **state) {
    static const struct grammar_end pairs[][2] = {{{"aab", "\"!\""}, {"abc", "\"?\""}},
                                                  {{"ca", "\"!\""}, {"aacb", "\"?\""}},
                                                  {{"abab", "\"!\""}, {"bb", "\"?\""}},
                                                  {{"a", "\"!\""}, {"bc", "\"?\""}},
                                                  {{"acc", "\"!\""}, {"abb", "\"?\""}}};
    (void)state;
    for (size_t p = 0; p < sizeof pairs / sizeof *pairs; p++) {
        struct schema_text text = {0};
        struct reader r;
        schema_text_add(&text, "root ::= t-0\n");
        grammar_add_until_either(&text, "t", pairs[p], 2, false);
        open_text(&r, text.bytes, "root");
        for (int word = 0; word < 3 * 3 * 3 * 3 * 3 * 3 * 3; word++) {
            char letters[10] = "";
            const char *found = NULL;
            int which = 0;
            for (int i = 0, w = word; i < 7; i++, w /= 3) letters[i] = "abc"[w % 3];
            for (int k = 0; k < 2; k++) {
                const char *at = strstr(letters, pairs[p][k].mark);
                const char *end = at ? at + strlen(pairs[p][k].mark) : NULL;
                if (end && (!found || end < found)) found = end, which = k;
            }
            if (found) letters[found - letters] = 0;
            assert_int_equal(look(&r, letters), 1);
            strcat(letters, which ? "?" : "!");
            assert_int_equal(look(&r, letters), found ? 2 : 1);
            letters[strlen(letters) - 1] = which ? '!' : '?';
            assert_int_equal(look(&r, letters), found ? 0 : 1);
        }
        close_reader(&r);
        schema_text_close(&text);
    }
}

// ---- Replies ------------------------------------------------------------------------------------

struct allowed {
    const char *text;
    int expected;
};

static void check_replies(const char *source, const char *tools_json,
                          const struct reply_rules *rules, const struct allowed *cases, size_t n) {
    struct chat_tools tools = {0};
    struct reader r;
    struct err e = {0};
    char *text;
    if (tools_json && chat_tools_open(&tools, tools_json, strlen(tools_json), &e))
        fail_msg("%s", e.what);
    const struct chat_style style = {chat_marks_find(source, strlen(source)),
                                     call_marks_find(source, strlen(source)),
                                     tools_json ? &tools : NULL};
    if (reply_grammar(&text, &style, rules, NULL, &e)) fail_msg("%s: %s", source, e.what);
    assert_non_null(text);
    open_text(&r, text, REPLY_ROOT);
    for (size_t i = 0; i < n; i++)
        if (look(&r, cases[i].text) != cases[i].expected)
            fail_msg("%s: %s: %d", source, cases[i].text, look(&r, cases[i].text));
    close_reader(&r);
    mem_free(text);
    chat_tools_close(&tools);
}

#define CHECK(source, tools, rules, cases)                                \
    check_replies(source, tools, &(const struct reply_rules)rules, cases, \
                  sizeof cases / sizeof *cases)

static void answers_begin_behind_thoughts(void **state) {
    static const struct allowed plain[] = {{"yes", 2}, {"<think>no</think>yes", 0}, {"no", 0}};
    static const struct allowed thinks[] = {{"yes", 2},
                                            {"no", 0},
                                            {"<think>no </thin", 1},
                                            {"<think>no</think>\n\nyes", 2},
                                            {"<think></think>n", 0},
                                            {"<th", 1},
                                            {"\n<think>", 1}};
    static const struct allowed channels[] = {
        {"<|channel|>final<|message|>yes", 2},
        {"<|channel|>final <|constrain|>json<|message|>yes", 2},
        {"<|channel|>analysis<|message|>no<|end|><|start|>assistant<|channel|>analysis<|message|>a"
         "<|end|><|start|>assistant<|channel|>final json<|message|>yes",
         2},
        {"<|channel|>commentary", 0},
        {"yes", 0},
        {"<|channel|>analysis<|message|>no<|end|><|start|>assistant<|channel|>final<|message|>yes",
         2},
        {"<|channel|>analysis<|message|>no<|end|><|start|>assistant<|channel|>final<|message|>no",
         0}};
    static const struct allowed solar[] = {
        {"<|content|>yes", 2},
        {"yes", 0},
        {"<|think|>no<|end|><|begin|>assistant<|content|>yes", 2},
        {"<|think|>no<|end|><|begin|>assistant<|content|>no", 0}};
    static const struct allowed json[] = {{"<think>a</think>{\"a\":1}", 2},
                                          {"<think>a</think>x", 0}};
    (void)state;
    CHECK("plain", NULL, {.grammar = "root ::= \"yes\""}, plain);
    CHECK("</think>", NULL, {.grammar = "root ::= \"yes\""}, thinks);
    CHECK("<|channel|><|message|>", NULL, {.grammar = "root ::= \"yes\""}, channels);
    CHECK("<|begin|>assistant<|think|>", NULL, {.grammar = "root ::= \"yes\""}, solar);
    CHECK("</think>", NULL, {.schema = "{\"type\":\"object\"}"}, json);
}

// Marks around an answer do not belong to it.
static void answers_stand_between_marks(void **state) {
    static const struct allowed cohere[] = {
        {"<|START_THINKING|>no<|END_THINKING|><|START_RESPONSE|>yes<|END_RESPONSE|>", 2},
        {"<|START_RESPONSE|>yes<|END_RESPONSE|>", 2},
        {"<|START_RESPONSE|>yes", 1},
        {"<|START_RESPONSE|>yes<|END_RESPONSE|>n", 0},
        {"<|START_RESPONSE|>no", 0},
        {"<|START_THINKING|>no<|END_THINKING|>yes", 2}};
    static const struct allowed hunyuan[] = {
        {"<think>\nno\n</think>\n<answer>\nyes\n</answer>", 2}, {"<answer>no", 0}, {"yes", 2}};
    static const struct allowed apriel[] = {
        {"Here are my reasoning steps:\nno\n[BEGIN FINAL RESPONSE]\nyes\n[END FINAL RESPONSE]", 2},
        {"yes", 2},
        {"no", 0}};
    static const struct allowed solar[] = {
        {"<|content|>yes<|end|>", 2}, {"<|content|>yes", 2}, {"<|content|>yes<|end|>n", 0}};
    (void)state;
    CHECK("<|START_THINKING|>", NULL, {.grammar = "root ::= \"yes\""}, cohere);
    CHECK("<answer>", NULL, {.grammar = "root ::= \"yes\""}, hunyuan);
    CHECK("[BEGIN FINAL RESPONSE]", NULL, {.grammar = "root ::= \"yes\""}, apriel);
    CHECK(SOLAR, NULL, {.grammar = "root ::= \"yes\""}, solar);
}

static void calls_are_valid(void **state) {
    static const struct allowed hermes[] = {
        {"Free < text", 2},
        {"<think>a</think>Let me.\n<tool_call>\n{\"name\": \"get\", \"arguments\": {\"city\": "
         "\"Ulm\", "
         "\"days\": 3, \"deep\": [true]}}\n</tool_call>",
         2},
        {"<tool_call>{\"name\": \"got\"", 0},
        {"<tool_call>{\"name\": \"get\", \"arguments\": {\"days\"", 0},
        {"<tool_call>{\"name\": \"get\", \"arguments\": {\"city\": \"a\", \"days\": 10", 0},
        {"<tool_call>{\"name\": \"get\", \"arguments\": {\"city\": \"a\", \"deep\": [1", 0},
        {"<tool_call>{\"name\":\"stop\",\"arguments\":{}}</"
         "tool_call>\n<tool_call>{\"name\":\"stop\","
         "\"arguments\":{}}</tool_call> text",
         2},
        {"<tool_call>x", 0},
    };
    static const struct allowed must[] = {
        {"Text", 0},
        {"<tool_call>{\"name\":\"stop\",\"arguments\":{}}</tool_call>", 2},
        {"<tool_call>{\"name\":\"stop\",\"arguments\":{}}</tool_call>x", 0},
        {"<think>a</think>\n<tool_call>", 1}};
    static const struct allowed coder[] = {
        {"<tool_call>\n<function=get>\n<parameter=city>\na\n<b>\n</"
         "parameter>\n<parameter=days>\n3\n"
         "</parameter>\n<parameter=unit>\nC\n</parameter>\n</function>\n</tool_call>",
         2},
        {"<tool_call>\n<function=get>\n<parameter=days>", 0},
        {"<tool_call>\n<function=get>\n<parameter=city>\na\n</parameter>\n<parameter=unit>\nK", 0},
        {"<tool_call>\n<function=stop>\n</function>\n</tool_call>", 2}};
    static const struct allowed glm[] = {
        {"<tool_call>get\n<arg_key>city</arg_key>\n<arg_value>Ulm</arg_value>\n<arg_key>days</"
         "arg_key>"
         "\n<arg_value>3</arg_value>\n</tool_call>",
         2},
        {"<tool_call>get<arg_key>city</arg_key><arg_value>Ulm</arg_value><arg_key>days</arg_key>"
         "<arg_value>3</arg_value></tool_call>",
         2},
        {"<tool_call>stop</tool_call>", 2},
        {"<tool_call>get\n<arg_key>town", 0}};
    static const struct allowed gemma[] = {
        {"<|tool_call>call:get{city:<|\"|>Ulm<|\"|>,days:3,deep:[true]}<tool_call|>", 2},
        {"<|tool_call>call:get{days", 0},
        {"<|tool_call>call:stop{}<tool_call|>", 2}};
    static const struct allowed mistral[] = {
        {"a[TOOL_CALLS]get[ARGS]{\"city\": \"Ulm\"}[TOOL_CALLS]stop[ARGS]{}", 2},
        {"[TOOL_CALLS]get[ARGS]{}", 0}};
    static const struct allowed llama[] = {
        {"{\"name\": \"get\", \"parameters\": {\"city\": \"Ulm\"}}", 2},
        {"{\"name\": \"got", 0},
        {"Text {", 2},
        {"<|python_tag|>{\"name\": \"stop\", \"parameters\": {}}", 2}};
    (void)state;
    CHECK("<tool_call></think>", TOOLS, {.must_call = false}, hermes);
    CHECK("<tool_call></think>", TOOLS, {.must_call = true}, must);
    CHECK("<tool_call><function=", TOOLS, {.must_call = false}, coder);
    CHECK("<tool_call><arg_key>", TOOLS, {.must_call = false}, glm);
    CHECK("<|tool_call>", TOOLS, {.must_call = false}, gemma);
    CHECK("[TOOL_CALLS][ARGS]", TOOLS, {.must_call = false}, mistral);
    CHECK("\"parameters\"<|start_header_id|>", TOOLS, {.must_call = false}, llama);
}

static void calls_are_messages(void **state) {
    static const struct allowed channels[] = {
        {"<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>commentary "
         "to=functions.get <|constrain|>json<|message|>{\"city\": \"Ulm\"}",
         2},
        {"<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>analysis<|message|>b<|"
         "end|>"
         "<|start|>assistant<|channel|>analysis to=functions.stop<|message|>{}",
         2},
        {"<|channel|>commentary to=functions.got", 0},
        {"<|channel|>final<|message|>any", 2}};
    (void)state;
    CHECK("<|channel|><|message|>", TOOLS, {.must_call = false}, channels);
}

static void calls_are_objects(void **state) {
    static const struct allowed functionary[] = {
        {"a<function=get>{\"city\": \"Ulm\"}</function><function=stop>{}</function>", 2},
        {"<function=got", 0},
        {"<function=get>{}", 0}};
    static const struct allowed gigachat[] = {
        {"a<|function_call|>{\"name\": \"stop\", \"arguments\": {}}", 2},
        {"<|function_call|>{\"name\": \"stop\", \"arguments\": {}}a", 0},
        {"<|function_call|>[", 0}};
    (void)state;
    CHECK("<function=f>{}</function>", TOOLS, {.must_call = false}, functionary);
    CHECK("<|function_call|>", TOOLS, {.must_call = false}, gigachat);
}

// Calls have an id or a number in some families.
static void calls_have_ids(void **state) {
    static const struct allowed mistral[] = {
        {"[TOOL_CALLS]stop[CALL_ID]a1B2c3D4e[ARGS]{}[TOOL_CALLS]stop[ARGS]{}", 2},
        {"[TOOL_CALLS]stop[CALL_ID][ARGS]", 0}};
    static const struct allowed kimi[] = {
        {"<|tool_calls_section_begin|><|tool_call_begin|>functions.stop:0"
         "<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_call_begin|>functions.get:12"
         "<|tool_call_argument_begin|>{\"city\": "
         "\"Ulm\"}<|tool_call_end|><|tool_calls_section_end|>",
         2},
        {"<|tool_calls_section_begin|><|tool_call_begin|>stop", 0},
        {"<|tool_calls_section_begin|><|tool_call_begin|>functions.stop<", 0},
        {"a<|tool_call_begin|>functions.stop:0<|tool_call_argument_begin|>{}<|tool_call_end|>", 2},
        {"<think>a<|tool_call_begin|>functions.stop:0<|tool_call_argument_begin|>{}"
         "<|tool_call_end|><|tool_call_begin|>functions.get:1<|tool_call_argument_begin|>"
         "{\"city\": \"Ulm\"}<|tool_call_end|><|tool_calls_section_end|>b",
         2},
        {"<|tool_call_begin|>functions.got", 0}};
    (void)state;
    CHECK("[TOOL_CALLS][CALL_ID][ARGS]", TOOLS, {.must_call = false}, mistral);
    CHECK("<|tool_call_begin|></think>", TOOLS, {.must_call = false}, kimi);
}

// Where marks open answers and calls alike, each is a part of the reply.
static void calls_are_parts(void **state) {
    static const struct allowed solar[] = {
        {"<|think|>a<|end|><|begin|>assistant<|tool_calls|><|tool_call:begin|>a1b2c3d4e5<|tool_"
         "call:name|>"
         "get<|tool_call:args|>{\"city\": \"Ulm\"}<|tool_call:end|><|tool_call:begin|>a1b2c3d4e6"
         "<|tool_call:name|>stop<|tool_call:args|>{}<|tool_call:end|>",
         2},
        {"<|tool_calls|><|tool_call:begin|>a1b2c3d4e5<|tool_call:name|>stop<|tool_call:args|>{}",
         1},
        {"<|tool_calls|><|tool_call:begin|>a1b2c3d4e5<|tool_call:name|>got", 0},
        {"<|tool_calls|><|tool_call:begin|><|tool_call:name|>", 0},
        {"<|tool_calls|>no", 0}};
    static const struct allowed may[] = {
        {"<|content|>Any", 2}, {"<|think|>a<|end|><|begin|>assistant<|content|>b", 2}, {"Any", 0}};
    static const struct allowed must[] = {{"<|content|>", 0},
                                          {"<|think|>a<|end|><|begin|>assistant<|c", 0}};
    (void)state;
    CHECK(SOLAR, TOOLS, {.must_call = false}, solar);
    CHECK(SOLAR, TOOLS, {.must_call = true}, solar);
    CHECK(SOLAR, TOOLS, {.must_call = false}, may);
    CHECK(SOLAR, TOOLS, {.must_call = true}, must);
}

static void calls_in_lists_are_valid(void **state) {
    static const struct allowed list[] = {{"[TOOL_CALLS][{\"name\": \"stop\", \"arguments\": {}}, "
                                           "{\"name\": \"stop\", \"arguments\": {}}]",
                                           2},
                                          {"[TOOL_CALLS][{\"name\": \"stop\", \"arguments\": {}, "
                                           "\"id\": \"a1B2c3D4e\"}]",
                                           2},
                                          {"[TOOL_CALLS]{", 0}};
    static const struct allowed hunyuan[] = {
        {"<think>a</think>\n<tool_calls>[{\"name\": \"stop\", \"arguments\": {}}]</tool_calls>", 2},
        {"<tool_calls>{", 0},
        {"<tool_calls>[{\"name\": \"got", 0}};
    static const struct allowed minimax[] = {{"<tool_calls>\n{\"name\": \"stop\", \"arguments\": "
                                              "{}}\n{\"name\": \"get\", \"arguments\": "
                                              "{\"city\": \"Ulm\"}}\n</tool_calls>",
                                              2},
                                             {"<tool_calls>[", 0}};
    static const struct allowed cohere[] = {
        {"<|START_THINKING|>a<|END_THINKING|><|START_ACTION|>[\n    {\"tool_call_id\": \"0\", "
         "\"tool_name\": \"stop\", \"parameters\": {}},\n    {\"tool_call_id\": \"1\", "
         "\"tool_name\": "
         "\"get\", \"parameters\": {\"city\": \"Ulm\"}}\n]<|END_ACTION|>",
         2},
        {"<|START_RESPONSE|>any<|END_RESPONSE|>", 2},
        {"<|START_ACTION|>[{\"tool_name", 0},
        {"<|START_ACTION|>[{\"tool_call_id\": \"0\", \"tool_name\": \"got", 0}};
    static const struct allowed apertus[] = {
        {"a<|tools_prefix|>[{\"stop\": {}}, {\"get\": {\"city\": \"Ulm\"}}]<|tools_suffix|>", 2},
        {"<|inner_prefix|>a <|b<|tools_prefix|>[{\"stop\": {}}]<|tools_suffix|>", 2},
        {"<|inner_prefix|>a<|inner_suffix|>b", 2},
        {"<|inner_prefix|>a<|tools_prefix|>[{\"got", 0},
        {"<|tools_prefix|>[{\"stop\": {}}]<|tools_suffix|>[", 0},
        {"<|tools_prefix|>[{\"got", 0},
        {"<|tools_prefix|>[{\"get\": {\"days", 0}};
    (void)state;
    CHECK("[TOOL_CALLS]", TOOLS, {.must_call = false}, list);
    CHECK("<tool_calls><answer>", TOOLS, {.must_call = false}, hunyuan);
    CHECK("<|START_ACTION|><|START_THINKING|>", TOOLS, {.must_call = false}, cohere);
    CHECK("<tool_calls><beginning_of_sentence>", TOOLS, {.must_call = false}, minimax);
    CHECK("<|tools_prefix|><|inner_prefix|>", TOOLS, {.must_call = false}, apertus);
}

static void calls_in_tags_are_valid(void **state) {
    static const struct allowed minimax[] = {
        {"<think>a</think>\n\nb\n<minimax:tool_call>\n<invoke name=\"get\">\n<parameter "
         "name=\"city\">\na\n</parameter>\n<parameter name=\"unit\">C</parameter>\n<parameter "
         "name=\"deep\">[true]</parameter>\n</invoke>\n<invoke name=\"stop\">\n</invoke>\n"
         "</minimax:tool_call>",
         2},
        {"<minimax:tool_call>\n<invoke name=\"get\">\n<parameter name=\"city\">a</parameter> ", 0},
        {"<minimax:tool_call>\n<invoke name=\"get\">\n<parameter name=\"days", 0},
        {"<minimax:tool_call>\n</minimax", 0},
        {"<minimax:tool_call>\n<invoke name=\"got", 0}};
    static const struct allowed coder[] = {
        {"<think>a <b> </thi<tool_call>\n<function=stop>\n</function>\n</tool_call>", 2},
        {"<think>a <tool_call> b", 0},
        {"<think>a</think>b", 2}};
    static const struct allowed seed[] = {
        {"<seed:tool_call>\n<function=get>\n<parameter=city>Ulm\n</parameter>\n<parameter=days>3"
         "</parameter>\n<parameter=flag>True</parameter>\n</function>\n</seed:tool_call>",
         2},
        {"<seed:tool_call>\n<function=get>\n<parameter=city>Ulm</parameter>\n<parameter=flag>true",
         1},
        {"<seed:tool_call>\n<function=get>\n<parameter=city>Ulm</parameter>\n<parameter=flag>yes",
         0}};
    static const struct allowed minicpm[] = {
        {"a<function name=\"get\"><param name=\"city\"><![CDATA[U\nlm]]></param><param "
         "name=\"days\">3</param></function>\n<function name=\"stop\"></function>",
         2},
        {"<function name=\"get\"><param name=\"days", 0},
        {"<function name=\"got", 0},
        {"<function name=\"stop\">\n", 0}};
    static const struct allowed deepseek[] = {
        {"a\n\n<" DSML "function_calls>\n<" DSML "invoke name=\"get\">\n<" DSML
         "parameter name=\"city\" string=\"true\">Ulm</" DSML "parameter>\n<" DSML
         "parameter name=\"days\" string=\"false\">3</" DSML "parameter>\n</" DSML "invoke>\n<" DSML
         "invoke name=\"stop\">\n</" DSML "invoke>\n</" DSML "function_calls>",
         2},
        {"<" DSML "function_calls>\n<" DSML "invoke name=\"get\">\n<" DSML
         "parameter name=\"city\" string=\"f",
         0},
        {"<" DSML "function_calls>\n<" DSML "invoke name=\"got", 0}};
    (void)state;
    CHECK("<minimax:tool_call></think>", TOOLS, {.must_call = false}, minimax);
    CHECK("<tool_call><function=</think>", TOOLS, {.must_call = false}, coder);
    CHECK("<seed:tool_call><function=", TOOLS, {.must_call = false}, seed);
    CHECK("<function name=\"<param name=\"", TOOLS, {.must_call = false}, minicpm);
    CHECK(DSML "function_calls>", TOOLS, {.must_call = false}, deepseek);
}

static void calls_of_python_are_valid(void **state) {
    static const struct allowed lfm[] = {
        {"a<|tool_call_start|>[get(city='Ul\\'m', days=3, unit=\"C\", deep=[True, {'a': None}]), "
         "stop()]<|tool_call_end|>b",
         2},
        {"<|tool_call_start|>[get(days", 0},
        {"<|tool_call_start|>[get(city=\"a\",days=10", 0},
        {"<|tool_call_start|>[get(city=\"a\", unit='K", 0},
        {"<|tool_call_start|>[get(city='a\"", 1},
        {"<|tool_call_start|>[get(city='a', ", 1},
        {"<|tool_call_start|>stop()", 0}};
    (void)state;
    CHECK("<|tool_call_start|>", TOOLS, {.must_call = false}, lfm);
}

// Every family's grammar can be read, and the parser finds the call that the grammar allows.
static void nothing_is_asked_for_nothing(void **state) {
    const struct chat_style none = {0};
    struct chat_style unknown = {0};
    const struct reply_rules rules = {0};
    struct chat_tools tools;
    struct err e;
    char *text;
    (void)state;
    assert_int_equal(reply_grammar(&text, &none, &rules, NULL, &e), OK);
    assert_null(text);
    assert_int_equal(chat_tools_open(&tools, TOOLS, strlen(TOOLS), &e), OK);
    unknown.tools = &tools;
    assert_int_equal(reply_grammar(&text, &unknown, &rules, NULL, &e), ERR_UNSUPPORTED);
    chat_tools_close(&tools);
}

static void openings_are_of_the_prompt(void **state) {
    static const struct {
        const char *source, *prompt, *expected;
    } cases[] = {
        {"</think>", "<|im_start|>assistant\n", ""},
        {"</think>", "<|im_start|>assistant\n<think>\n", "<think>"},
        {"</think>", "assistant\n<think>\n\n</think>\n\n", "<think></think>"},
        {"<|channel|>", "<|start|>assistant", ""},
        {"<|channel|>", "<|start|>assistant<|channel|>analysis<|message|>",
         "<|channel|>analysis<|message|>"},
        {"plain", "<think>", ""},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char out[REPLY_OPENING_BYTES];
        reply_opening(out, chat_marks_find(cases[i].source, strlen(cases[i].source)),
                      cases[i].prompt, strlen(cases[i].prompt));
        assert_string_equal(out, cases[i].expected);
    }
}

static void memory_may_be_refused(void **state) {
    static const char source[] = "<tool_call><function=</think>";
    struct chat_tools tools;
    struct err e;
    (void)state;
    assert_int_equal(chat_tools_open(&tools, TOOLS, strlen(TOOLS), &e), OK);
    const struct chat_style style = {chat_marks_find(source, strlen(source)),
                                     call_marks_find(source, strlen(source)), &tools};
    const struct reply_rules rules = {0};
    for (int64_t n = 1;; n++) {
        char *text;
        alloc_fail_at(n);
        const enum status status = reply_grammar(&text, &style, &rules, NULL, &e);
        const bool happened = alloc_fail_happened();
        alloc_fail_at(0);
        assert_int_equal(status, happened ? ERR_MEMORY : OK);
        mem_free(text);
        if (!happened) break;
    }
    chat_tools_close(&tools);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finds_every_mark),
        cmocka_unit_test(finds_either_mark),
        cmocka_unit_test(answers_begin_behind_thoughts),
        cmocka_unit_test(answers_stand_between_marks),
        cmocka_unit_test(calls_are_valid),
        cmocka_unit_test(calls_are_messages),
        cmocka_unit_test(calls_are_objects),
        cmocka_unit_test(calls_have_ids),
        cmocka_unit_test(calls_are_parts),
        cmocka_unit_test(calls_in_lists_are_valid),
        cmocka_unit_test(calls_in_tags_are_valid),
        cmocka_unit_test(calls_of_python_are_valid),
        cmocka_unit_test(nothing_is_asked_for_nothing),
        cmocka_unit_test(openings_are_of_the_prompt),
        cmocka_unit_test(memory_may_be_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

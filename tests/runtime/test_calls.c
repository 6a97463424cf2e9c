/* test_calls.c: tests of runtime/text: chat_tools.h, chat_calls.h, and chat_reply.h with tools. */
// link: wrap-alloc
#include "runtime/text/chat.h"
#include "tests/lib/alloc_fail.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#define BAR  "\xef\xbd\x9c"
#define LOW  "\xe2\x96\x81"
#define DEEP "<" BAR "tool" LOW
#define DSML BAR "DSML" BAR

static const char TOOLS[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"get_weather\",\"parameters\":{\"type\":"
    "\"object\",\"properties\":{\"city\":{\"type\":\"string\"},\"days\":{\"type\":\"integer\"},"
    "\"any\":{}},\"required\":[\"city\"]}}},{\"name\":\"stop\"},{\"name\":\"find\",\"parameters\":{"
    "\"properties\":{\"zip\":{\"type\":[\"string\",\"null\"]},\"id\":{\"anyOf\":[{\"type\":"
    "\"string\"},{"
    "\"type\":\"null\"}]},\"level\":{\"enum\":[\"1\",\"2\"]},\"n\":{\"type\":[\"integer\","
    "\"string\"]},"
    "\"ref\":{\"anyOf\":[{\"$ref\":\"#/$defs/x\"},{\"type\":\"string\"}]},"
    "\"list\":{\"type\":\"array\"}}}}]";

static void open_tools(struct chat_tools *t) {
    struct err e;
    if (chat_tools_open(t, TOOLS, strlen(TOOLS), &e)) fail_msg("%s", e.what);
}

// ---- Replies ------------------------------------------------------------------------------------

// Writes thoughts in brackets, the name of a call behind an @.
static void take_part(void *context, enum chat_part part, const char *text, size_t length) {
    static const char *const heads[] = {
        [CHAT_THOUGHT] = "~", [CHAT_ANSWER] = "", [CHAT_CALL] = "@", [CHAT_ARGUMENTS] = ""};
    char *out = context;
    assert_true(length > 0);
    assert_true(strlen(out) + length + 2 < 4096);
    const bool thinks_on = part == CHAT_THOUGHT && strchr(out, '~');
    sprintf(out + strlen(out), "%s%.*s%s", thinks_on ? "" : heads[part], (int)length, text,
            part == CHAT_CALL ? " " : "");
}

struct reply_case {
    const char *source; // of the template
    const char *text, *expected;
};

static void check_case(const struct reply_case *c, const struct chat_tools *tools) {
    const size_t n_source = strlen(c->source), length = strlen(c->text);
    const struct chat_style style = {.thoughts = chat_marks_find(c->source, n_source),
                                     .calls = call_marks_find(c->source, n_source),
                                     .tools = tools};
    assert_non_null(style.calls);
    for (size_t step = 1; step <= length; step++) { // however the text is cut
        char out[4096] = "";
        struct chat_reply r = {.take = take_part, .context = out};
        chat_reply_begin(&r, &style, "", 0);
        for (size_t at = 0; at < length; at += step)
            chat_reply_write(&r, c->text + at, length - at < step ? length - at : step);
        chat_reply_end(&r);
        assert_string_equal(out, c->expected);
    }
}

#define HERMES      "<tool_call></think>"
#define LLAMA       "<|start_header_id|> {\"name\": N, \"parameters\": {}}"
#define CODER       "<tool_call>\n<function="
#define GLM         "<tool_call><arg_key>"
#define LFM         "<|tool_call_start|></think>"
#define COHERE      "<|START_ACTION|><|START_THINKING|>"
#define APERTUS     "<|tools_prefix|><|inner_prefix|>"
#define MINIMAX     "<minimax:tool_call></think>"
#define DEEP32      DSML "function_calls>"
#define SOLAR       "<|begin|>assistant<|think|><|tool_call:begin|>"
#define FUNCTIONARY "<function=f>{}</function>"
#define MINICPM     "<function name=\"f\"><param name=\"p\"></think>"
#define HARMONY     "<|start|><|channel|><|message|>"

static const struct reply_case CASES[] = {
    // Objects of JSON between marks.
    {HERMES,
     "<think>a</think>\nI look.\n<tool_call>\n{\"name\": \"get_weather\", \"arguments\": "
     "{\"city\": \"K\\\"\xc3\xb6ln}\"}}\n</tool_call>",
     "~aI look.@get_weather {\"city\": \"K\\\"\xc3\xb6ln}\"}"},
    {HERMES,
     "<tool_call>{\"name\":\"a\",\"arguments\":{}}</tool_call>\n<tool_call>{\"name\":\"b\","
     "\"arguments\":{\"x\":[{}]}}</tool_call> done",
     "@a {}@b {\"x\":[{}]}done"},
    {HERMES, "<tool_call>{\"name\":\"a\"}</tool_call>", "@a {}"},
    {HERMES,
     "<tool_call>{\"id\":\"1\",\"type\":\"function\",\"function\":{\"name\":\"a\","
     "\"arguments\":\"{\\\"x\\\":\\\"\\u00e4\\\\n\\\"}\"}}</tool_call>",
     "@a {\"x\":\"\\u00e4\\n\"}"},
    {HERMES, "<tool_call>{\"name\":\"a\",\"arguments\":{\"x\":1}\n</tool_call>", "@a {\"x\":1}"},
    {HERMES, "<tool_call>{\"name\":\"a\",\"arguments\":{\"x\":[1, 2", "@a {\"x\":[1, 2"},
    {HERMES, "<tool_call>{\"name\":\"a\",\"argum", "<tool_call>{\"name\":\"a\",\"argum"},
    {HERMES, "a < b and <tool_calls> {x}", "a < b and <tool_calls> {x}"},
    {HERMES, "<tool_call>no<tool_call>{\"name\":\"a\",\"arguments\":{}}", "<tool_call>no@a {}"},
    {HERMES, "<tool_call>{\"name\":\"a b\",\"arguments\":{}}",
     "<tool_call>{\"name\":\"a b\",\"arguments\":{}}"},
    {HERMES, "{\"name\":\"a\",\"arguments\":{}}", "{\"name\":\"a\",\"arguments\":{}}"},
    // Lists of such objects.
    {"[TOOL_CALLS]",
     "[TOOL_CALLS][{\"name\": \"a\", \"arguments\": {\"x\": 1}, \"id\": \"123456789\"}, "
     "{\"name\": \"b\", \"arguments\": {}}]",
     "@a {\"x\": 1}@b {}"},
    {"<|tool_call|>", "<|tool_call|>[{\"name\": \"a\", \"arguments\": {}}]", "@a {}"},
    {"<|tool_call|><|/tool_call|>",
     "<|tool_call|>[{\"name\": \"a\", \"arguments\": {}}]<|/tool_call|>", "@a {}"},
    {"<tool_calls>",
     "Yes.<tool_calls>[{\"name\": \"a\", \"arguments\": {\"x\": 1}}, {\"name\": \"b\", "
     "\"arguments\": {}}]</tool_calls>",
     "Yes.@a {\"x\": 1}@b {}"},
    // One behind the other.
    {"<tool_calls><beginning_of_sentence>",
     "Yes.\n<tool_calls>\n{\"name\": \"a\", \"arguments\": {\"x\": \"}\"}}\n{\"name\": \"b\", "
     "\"arguments\": {}}\n</tool_calls>c",
     "Yes.@a {\"x\": \"}\"}@b {}c"},
    {"<tool_calls><beginning_of_sentence>", "<tool_calls>\n{\"name\": \"a\", \"arg",
     "<tool_calls>\n{\"name\": \"a\", \"arg"},
    {"<TOOLCALL>", "<TOOLCALL>[{\"name\": \"a\", \"arguments\": {\"x\": 1}}]</TOOLCALL>",
     "@a {\"x\": 1}"},
    {COHERE,
     "<|START_THINKING|>a<|END_THINKING|><|START_ACTION|>[\n    {\"tool_call_id\": \"0\", "
     "\"tool_name\": \"a\", \"parameters\": {\"x\": {\"y\": \"]<|END_ACTION|>\\\"}\"}}},\n    "
     "{\"tool_call_id\": \"1\", \"tool_name\": \"b\", \"parameters\": {}}\n]<|END_ACTION|>",
     "~a@a {\"x\": {\"y\": \"]<|END_ACTION|>\\\"}\"}}@b {}"},
    {COHERE,
     "<|START_ACTION|>[{\"tool_call_id\": \"0\", \"tool_name\": \"a\", \"parameters\": {\"x\"",
     "@a {\"x\""},
    {COHERE, "<|START_ACTION|>[{\"tool_call_id\": \"0\", \"tool_na",
     "<|START_ACTION|>[{\"tool_call_id\": \"0\", \"tool_na"},
    {COHERE, "<|START_RESPONSE|>[{\"tool_name\": 1}]<|END_RESPONSE|>", "[{\"tool_name\": 1}]"},
    // The name as the key of the arguments.
    {APERTUS,
     "<|inner_prefix|>a<|inner_suffix|>I look.<|tools_prefix|>[{\"a\": {\"x\": [{\"y\": "
     "\"\\\"}]<|tools_suffix|>\"}]}}, {\"b\": {}}]<|tools_suffix|>",
     "~aI look.@a {\"x\": [{\"y\": \"\\\"}]<|tools_suffix|>\"}]}@b {}"},
    {APERTUS, "<|tools_prefix|> [ { \"a\" : {\"x\": 1} } ] <|tools_suffix|>b", "@a {\"x\": 1}b"},
    {APERTUS, "<|tools_prefix|>[{\"a\": {\"x\": \"y", "@a {\"x\": \"y"},
    {APERTUS, "<|inner_prefix|>a <|b<|tools_prefix|>[{\"a\": {}}]<|tools_suffix|>", "~a <|b@a {}"},
    {APERTUS, "<|inner_prefix|>a<|tools_pre", "~a<|tools_pre"},
    {APERTUS, "<|tools_prefix|>[{\"a\":", "<|tools_prefix|>[{\"a\":"},
    {APERTUS, "[{\"a\": {}}]", "[{\"a\": {}}]"},
    // The object alone.
    {LLAMA, "{\"name\": \"a\", \"parameters\": {\"x\": \"y\"}}", "@a {\"x\": \"y\"}"},
    {LLAMA, " {\"name\": \"a\", \"parameters\": {}}; {\"name\": \"b\", \"parameters\": {}}",
     "@a {}@b {}"},
    {LLAMA, "<|python_tag|>{\"name\": \"a\", \"parameters\": {}}", "@a {}"},
    {LLAMA, "{\"city\": 1}", "{\"city\": 1}"},
    {LLAMA, "{\"name\": \"Bob\"}", "{\"name\": \"Bob\"}"},
    {LLAMA, "{\"name\": \"stop\"}", "@stop {}"},
    {LLAMA, "<|python_tag|>{\"name\": \"a\"}", "@a {}"},
    {LLAMA, "{\"name\": \"a\", \"parameters\": {}}; {\"name\": \"stop\"}", "@a {}@stop {}"},
    {LLAMA, "So: {\"name\": \"a\", \"parameters\": {}}",
     "So: {\"name\": \"a\", \"parameters\": {}}"},
    // The name before the arguments.
    {"[TOOL_CALLS][ARGS]", "Yes.[TOOL_CALLS]a[ARGS]{\"x\": 1}[TOOL_CALLS]b[CALL_ID]9aB[ARGS]{}",
     "Yes.@a {\"x\": 1}@b {}"},
    {"[TOOL_CALLS][ARGS]", "[TOOL_CALLS]a{\"x\": 1}", "@a {\"x\": 1}"},
    {DEEP "call" LOW "begin" BAR ">```json",
     DEEP "calls" LOW "begin" BAR ">" DEEP "call" LOW "begin" BAR ">function" DEEP "sep" BAR
          ">a\n```json\n{\"x\": 1}\n```" DEEP "call" LOW "end" BAR ">\n" DEEP "call" LOW "begin" BAR
          ">function" DEEP "sep" BAR ">b\n```json\n{}\n```" DEEP "call" LOW "end" BAR ">" DEEP
          "calls" LOW "end" BAR ">",
     "@a {\"x\": 1}@b {}"},
    {DEEP "call" LOW "begin" BAR ">",
     "Ja" BAR "." DEEP "calls" LOW "begin" BAR ">" DEEP "call" LOW "begin" BAR ">a" DEEP "sep" BAR
     ">{\"x\": 1}" DEEP "call" LOW "end" BAR ">" DEEP "calls" LOW "end" BAR ">",
     "Ja" BAR ".@a {\"x\": 1}"},
    {"<|tool_call_begin|>",
     "<|tool_calls_section_begin|><|tool_call_begin|>functions.a:0<|tool_call_argument_begin|>{}"
     "<|tool_call_end|><|tool_calls_section_end|>",
     "@a {}"},
    {"<|tool_call_begin|></think>",
     "<think>a <|tool<|tool_call_begin|>functions.a:0<|tool_call_argument_begin|>{\"x\": 1}"
     "<|tool_call_end|><|tool_call_begin|>functions.b:1<|tool_call_argument_begin|>{}"
     "<|tool_call_end|>",
     "~a <|tool@a {\"x\": 1}@b {}"},
    {"<|tool_call_begin|>", "a<|tool_call_begin|>no", "a<|tool_call_begin|>no"},
    {SOLAR,
     "<|think|>a<|end|><|begin|>assistant<|tool_calls|><|tool_call:begin|>a1b2c3d4e5<|tool_call:"
     "name|>a"
     "<|tool_call:args|>{\"x\": {\"y\": "
     "\"<|tool_call:end|>\\\"\"}}<|tool_call:end|><|tool_call:begin|>"
     "f6<|tool_call:name|>b<|tool_call:args|>{}<|tool_call:end|>",
     "~a@a {\"x\": {\"y\": \"<|tool_call:end|>\\\"\"}}@b {}"},
    {SOLAR, "<|tool_calls|><|tool_call:begin|><|tool_call:name|>a<|tool_call:args|>{\"x\": \"y",
     "@a {\"x\": \"y"},
    {SOLAR, "<|tool_calls|><|tool_call:begin|>a1b2<|tool_call:na",
     "<|tool_calls|><|tool_call:begin|>a1b2<|tool_call:na"},
    {SOLAR,
     "<|content|>I "
     "look.<|end|><|begin|>assistant<|tool_calls|><|tool_call:begin|>a<|tool_call:name|>b"
     "<|tool_call:args|>{}<|tool_call:end|>",
     "I look.@b {}"},
    {FUNCTIONARY, "Yes.<function=a>{\"x\": \"</function>\"}</function><function=b>{}</function> c",
     "Yes.@a {\"x\": \"</function>\"}@b {}c"},
    {FUNCTIONARY, "<function=a>{\"x\": \"y", "@a {\"x\": \"y"},
    {FUNCTIONARY, "<function=a b>{}", "<function=a b>{}"},
    {"<|function_call|>",
     "Yes.<|function_call|>{\"name\": \"a\", \"arguments\": {\"x\": {\"y\": 1}}}",
     "Yes.@a {\"x\": {\"y\": 1}}"},
    // Arguments in tags; strings by the schema, others by what they look like.
    {CODER,
     "<tool_call>\n<function=get_weather>\n<parameter=city>\n12\n</parameter>\n<parameter="
     "days>\n3\n</parameter>\n<parameter=any>\nTrue\n</parameter>\n</function>\n</tool_call>",
     "@get_weather {\"city\": \"12\", \"days\": 3, \"any\": true}"},
    {CODER,
     "<tool_call><function=get_weather><parameter=city>a\n<b>\n\"c\\</parameter>"
     "<parameter=any>x y</parameter><parameter=any>[1, {\"a\": 2}]</parameter></function>"
     "</tool_call>!",
     "@get_weather {\"city\": \"a\\n<b>\\n\\\"c\\\\\", \"any\": \"x y\", \"any\": [1, {\"a\": "
     "2}]}!"},
    // A value that may be a string is one, where its schema excludes what it looks like.
    {CODER,
     "<tool_call>\n<function=find>\n<parameter=zip>\n01234\n</parameter>\n<parameter=id>\n12\n"
     "</parameter>\n<parameter=level>\n1\n</parameter>\n<parameter=n>\n7\n</parameter>\n"
     "<parameter=ref>\n8\n</parameter>\n</function>\n</tool_call>",
     "@find {\"zip\": \"01234\", \"id\": \"12\", \"level\": \"1\", \"n\": 7, \"ref\": 8}"},
    {CODER,
     "<tool_call><function=find><parameter=zip>null</parameter><parameter=id>True</parameter>"
     "<parameter=level>\"2\"</parameter><parameter=n>7.5</parameter></function></tool_call>",
     "@find {\"zip\": null, \"id\": \"True\", \"level\": \"2\", \"n\": \"7.5\"}"},
    {GLM,
     "<tool_call>find\n<arg_key>zip</arg_key>\n<arg_value>90210</arg_value>\n<arg_key>id</arg_key>"
     "\n<arg_value>[1]</arg_value>\n</tool_call>",
     "@find {\"zip\": \"90210\", \"id\": \"[1]\"}"},
    {CODER "</think>",
     "<think>a <b> </thi\n<tool_call>\n<function=stop>\n</function>\n</tool_call>\nb</think>",
     "~a <b> </thi\n@stop {}b</think>"},
    // The mark before a call may be missing.
    {CODER,
     "Yes.\n<function=get_weather>\n<parameter=city>\nUlm\n</parameter>\n</function>\n</"
     "tool_call>\n"
     "<tool_call>\n<function=stop>\n</function>\n</tool_call>",
     "Yes.@get_weather {\"city\": \"Ulm\"}@stop {}"},
    {CODER, "<function=other>\n</function>", "<function=other>\n</function>"},
    {CODER, "a <func", "a <func"},
    {CODER, "<tool_call>\n<function=other>\n</function>\n</tool_call>", "@other {}"},
    {CODER "</think>", "<think>a <tool_call", "~a <tool_call"},
    {CODER, "<tool_call>\n<function=stop>\n</function>\n</tool_call>", "@stop {}"},
    {CODER, "<tool_call>\n<function=get_weather>\n<parameter=city>\nBer",
     "@get_weather {\"city\": \"Ber"},
    {"<seed:tool_call><function=",
     "<seed:tool_call>\n<function=stop>\n</function>\n</seed:tool_call>", "@stop {}"},
    {"<seed:tool_call><function=",
     "<seed:tool_call>\n<function=get_weather>\n<parameter=city>\nUlm\n</"
     "parameter>\n<parameter=any>"
     "False</parameter>\n</function>\n</seed:tool_call>",
     "@get_weather {\"city\": \"\\nUlm\\n\", \"any\": false}"},
    // Values as Python writes them, where the schema wants a list or an object.
    {"<seed:tool_call><function=",
     "<seed:tool_call>\n<function=find>\n<parameter=list>[{'a': True, 'b': None}, (1, \"it's\"), "
     "'\\'\\n']</parameter>\n</function>\n</seed:tool_call>",
     "@find {\"list\": [{\"a\": true, \"b\": null}, [1, \"it's\"], \"'\\n\"]}"},
    {"<seed:tool_call><function=",
     "<seed:tool_call>\n<function=find>\n<parameter=list>['a']]</parameter>\n"
     "<parameter=list>['a'] b</parameter>\n<parameter=n>['a']"
     "</parameter>\n</function>\n</seed:tool_call>",
     "@find {\"list\": \"['a']]\", \"list\": \"['a'] b\", \"n\": \"['a']\"}"},
    {GLM,
     "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Ulm</arg_value>\n<arg_key>days"
     "</arg_key>\n<arg_value>2</arg_value>\n</tool_call>",
     "@get_weather {\"city\": \"Ulm\", \"days\": 2}"},
    {GLM, "<tool_call>stop</tool_call>", "@stop {}"},
    {MINIMAX,
     "<think>a</think>\nI look.\n<minimax:tool_call>\n<invoke name=\"get_weather\">\n<parameter "
     "name=\"city\">\n</invoke> \"Ulm\"</parameter>\n<parameter "
     "name=\"days\">2</parameter>\n<parameter "
     "name=\"any\">{\"a\": [\"<b>\", {}]}</parameter>\n</invoke>\n<invoke "
     "name=\"stop\">\n</invoke>\n"
     "</minimax:tool_call>\nb",
     "~aI look.@get_weather {\"city\": \"\\n</invoke> \\\"Ulm\\\"\", \"days\": 2, \"any\": {\"a\": "
     "[\"<b>\", {}]}}@stop {}b"},
    {MINIMAX, "<minimax:tool_call>\n<invoke name=\"find\">\n<parameter name=\"zip\">01",
     "@find {\"zip\": "},
    {MINIMAX, "<minimax:tool_call>\n<invoke name=\"find",
     "<minimax:tool_call>\n<invoke name=\"find"},
    {MINIMAX, "<minimax:tool_call>no<invoke name=\"stop\">",
     "<minimax:tool_call>no<invoke name=\"stop\">"},
    {DEEP32,
     "Yes.\n\n<" DSML "function_calls>\n<" DSML "invoke name=\"find\">\n<" DSML
     "parameter name=\"zip\" string=\"true\">1</" DSML "parameter>\n<" DSML
     "parameter name=\"n\" string=\"true\">7\n</" DSML "parameter>\n<" DSML
     "parameter name=\"ref\" string=\"false\">[1, {\"a\": \"b\"}]</" DSML "parameter>\n</" DSML
     "invoke>\n<" DSML "invoke name=\"stop\">\n</" DSML "invoke>\n</" DSML "function_calls>",
     "Yes.@find {\"zip\": \"1\", \"n\": \"7\\n\", \"ref\": [1, {\"a\": \"b\"}]}@stop {}"},
    {DEEP32,
     "<" DSML "function_calls>\n<" DSML "invoke name=\"a\">\n<" DSML
     "parameter name=\"x\" string=\"true\">y\"</" DSML "par",
     "@a {\"x\": \"y\\\""},
    {DSML,
     "<" DSML "tool_calls>\n<" DSML "invoke name=\"stop\">\n</" DSML "invoke>\n</" DSML
     "tool_calls>",
     "@stop {}"},
    {MINICPM,
     "<think>a</think>Yes.\n<function name=\"get_weather\"><param name=\"city\">U < lm</param>"
     "<param name=\"days\">2</param></function>\n<function name=\"stop\"></function>b",
     "~aYes.@get_weather {\"city\": \"U < lm\", \"days\": 2}@stop {}b"},
    {MINICPM,
     "<function name=\"get_weather\"><param name=\"city\"><![CDATA[a</param>\n]]]></param>"
     "<param name=\"any\"><![CDATA[[1]]]></param></function>",
     "@get_weather {\"city\": \"a</param>\\n]\", \"any\": [1]}"},
    {MINICPM, "a <function b", "a <function b"},
    // Gemma's own notation.
    {"<|tool_call>",
     "<|tool_call>call:a{s:<|\"|>x \"{y}<|\"|>,n:-1.5,o:{k:[true,null],e:<|\"|><|\"|>}}"
     "<tool_call|><|tool_call>call:b{}<tool_call|>",
     "@a {\"s\":\"x \\\"{y}\",\"n\":-1.5,\"o\":{\"k\":[true,null],\"e\":\"\"}}@b {}"},
    {"<|tool_call>", "<|tool_call>call:a{s:word,\"t\":\"q}\"}<tool_call|>",
     "@a {\"s\":\"word\",\"t\":\"q}\"}"},
    // Calls as Python writes them.
    {LFM,
     "Yes.<|tool_call_start|>[get_weather(city='K\\'\"\xc3\xb6ln', days=-2, any=[True, None, "
     "'a=b', "
     "(1.5,), {'k': {}}]), stop()]<|tool_call_end|>Done.",
     "Yes.@get_weather {\"city\": \"K'\\\"\xc3\xb6ln\", \"days\": -2, \"any\": [true, null, "
     "\"a=b\", "
     "[1.5], {\"k\": {}}]}@stop {}Done."},
    {"<|tool_list_start|>",
     "<|tool_call_start|>a(x=\"\\n\\\\\\d\\x41\\u00e4\", y={1: false, \"b\": "
     "word})<|tool_call_end|>",
     "@a {\"x\": \"\\n\\\\\\\\d\\u0041\\u00e4\", \"y\": {\"1\": false, \"b\": \"word\"}}"},
    {LFM, "<|tool_call_start|>[a(x=[1, 'y<|tool_call_end|>", "@a {\"x\": [1, \"y<|tool_call_end|>"},
    {LFM, "<|tool_call_start|>[a(x=[1, 2<|tool_call_end|> b", "@a {\"x\": [1, 2b"},
    {LFM, "<|tool_call_start|>no (x)<|tool_call_end|>",
     "<|tool_call_start|>no (x)<|tool_call_end|>"},
    {LFM, "[a(x=1)]", "[a(x=1)]"},
    {"List of tools: [", "<|tool_call_start|>[a(x=1)]<|tool_call_end|>", "@a {\"x\": 1}"},
    // Messages with channels.
    {HARMONY,
     "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>commentary "
     "to=functions.get_weather <|constrain|>json<|message|>{\"city\": \"Ulm\"}<|call|>",
     "~hm@get_weather {\"city\": \"Ulm\"}"},
    {HARMONY,
     "<|channel|>analysis<|message|>hm<|start|>assistant to=functions.a<|channel|>commentary "
     "json<|message|>{}",
     "~hm@a {}"},
    {HARMONY,
     "<|channel|>commentary<|message|>I < look.<|end|><|start|>assistant<|channel|>final"
     "<|message|>b",
     "I < look.b"},
    {HARMONY, "<|channel|>analysis to=functions.a<|message|>{\"x\": 1}<|call|>", "@a {\"x\": 1}"},
    {HARMONY, "<|channel|>final <|constrain|>json<|message|>{\"x\": 1}", "{\"x\": 1}"},
    {HARMONY, "plain", "plain"},
};

static void check_calls(void **state) {
    struct chat_tools tools;
    (void)state;
    open_tools(&tools);
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) check_case(&CASES[i], &tools);
    chat_tools_close(&tools);
}

// Without tools, text that looks like a call is text.
static void check_no_tools(void **state) {
    (void)state;
    static const struct reply_case c = {HERMES, "<tool_call>{\"name\":\"a\",\"arguments\":{}}",
                                        "<tool_call>{\"name\":\"a\",\"arguments\":{}}"};
    check_case(&c, NULL);
    assert_null(call_marks_find("plain", 5));
    assert_null(call_marks_find("]<]minimax[>[<tool_call>", 24));
}

static void take_long(void *context, enum chat_part part, const char *text, size_t length) {
    if (part == CHAT_ARGUMENTS) strncat(context, text, length);
}

// Values and heads beyond the buffers: an object goes through, a word becomes a string.
static void check_long(void **state) {
    enum { LONG = 3 * CALLS_VALUE_BYTES };
    static char text[LONG + 200], out[LONG + 200];
    static const char *const values[] = {"[1,1,1,1", "word"};
    struct chat_tools tools;
    (void)state;
    open_tools(&tools);
    for (int i = 0; i < 2; i++) {
        const size_t start = (size_t)sprintf(text, "<tool_call><function=a><parameter=x>");
        for (size_t k = 0; k < LONG; k++) text[start + k] = values[i][k % strlen(values[i])];
        sprintf(text + start + LONG, "%s</parameter></function></tool_call>", i ? "" : "]");
        struct chat_calls c;
        out[0] = 0;
        chat_calls_begin(&c, call_marks_find(CODER, strlen(CODER)), &tools, take_long, out);
        chat_calls_write(&c, text, strlen(text));
        chat_calls_end(&c);
        const size_t head = strlen("{\"x\": ");
        assert_memory_equal(out, i ? "{\"x\": \"" : "{\"x\": ", head + (i == 1));
        assert_int_equal(strlen(out), head + LONG + (i ? 3 : 2));
    }
    chat_tools_close(&tools);
}

// ---- Tools --------------------------------------------------------------------------------------

static void check_tools(void **state) {
    static const struct {
        const char *json, *what;
    } wrong[] = {
        {"{}", "no list"},
        {"[", "line 1"},
        {"[{\"function\":{}}]", "no name"},
        {"[{\"name\":\"a b\"}]", "no name"},
        {"[{\"name\":\"\"}]", "no name"},
        {"[{\"name\":\"a\"},{\"function\":{\"name\":\"a\"}}]", "two tools a"},
        {"[1]", "no name"},
    };
    struct chat_tools t;
    struct err e;
    (void)state;
    open_tools(&t);
    assert_int_equal(chat_tools_count(&t), 3);
    assert_string_equal(chat_tools_name(&t, 1), "stop");
    assert_non_null(chat_tools_parameters(&t, 0));
    assert_true(json_is_object(chat_tools_parameters(&t, 1)));
    assert_non_null(chat_tools_argument(&t, "get_weather", "days"));
    assert_null(chat_tools_argument(&t, "stop", "days"));
    assert_non_null(strstr(t.text, "\"properties\": {}"));
    chat_tools_close(&t);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_equal(chat_tools_open(&t, wrong[i].json, strlen(wrong[i].json), &e), ERR_FORMAT);
        assert_non_null(strstr(e.what, wrong[i].what));
        assert_null(t.list);
    }
}

static const struct chat_message CALLED[] = {
    {.role = CHAT_USER, .text = "Weather?", .length = 8},
    {.role = CHAT_ASSISTANT,
     .text = "",
     .calls = "[{\"type\":\"function\",\"id\":\"abcdefghi\",\"function\":{\"name\":\"get_weather\","
              "\"arguments\":\"{\\\"city\\\": \\\"Ulm\\\"}\"}}]"},
    {.role = CHAT_TOOL, .text = "sunny", .length = 5, .call_id = "abcdefghi"},
};

static void render_with(const char *template, const struct chat_conversation *c, bool calls,
                        struct chat_text *t) {
    struct gguf g;
    struct chat_format f;
    struct err e;
    const struct chat_options o = {.template = template, .now_s = 1};
    assert_int_equal(gguf_open(&g, "tests/golden/tiny/plain.gguf", &e), OK);
    if (chat_open(&f, &g, &o, NULL, &e)) fail_msg("%s: %s", template, e.what);
    if (chat_render(&f, c, t, &e)) fail_msg("%s: %s", template, e.what);
    assert_true(!calls || f.calls);
    chat_close(&f);
    gguf_close(&g);
}

static void render_called(const char *path, const struct chat_tools *tools, struct chat_text *t) {
    char template[128];
    const struct chat_conversation c = {CALLED, 3, tools, true};
    snprintf(template, sizeof template, "tests/golden/templates/%s.jinja", path);
    render_with(template, &c, true, t);
}

// Calls stand in the text where a template leaves them out.
static void check_hidden_calls(void **state) {
    static const struct {
        const char *template, *expected;
    } cases[] = {
        {"List of tools: [{% for m in messages %}{{ m.content }};{% endfor %}",
         "Weather?;I look.<|tool_call_start|>[get_weather(city='K\xc3\xb6ln', days=-2, any=[True, "
         "None, \"it's\"]), stop()]<|tool_call_end|>;sunny;"},
        {"<|tool_call|>{% for m in messages %}{{ m.content }};{% endfor %}",
         "I look.<|tool_call|>[{\"name\": \"get_weather\", \"arguments\": {\"city\": "
         "\"K\xc3\xb6ln\", "
         "\"days\": -2, \"any\": [true, null, \"it's\"]}}, {\"name\": \"stop\", \"arguments\": "
         "{}}];"},
        {"<tool_call>{% for m in messages %}{{ m.content }};{% endfor %}",
         "}</tool_call><tool_call>{\"name\": \"stop\", \"arguments\": {}}</tool_call>;"},
        {"<tool_call>{% for m in messages %}{{ m.content }};{% for c in m.tool_calls or [] %}"
         "{{ c.function.name }},{% endfor %}{% endfor %}",
         "I look.;get_weather,stop,sunny;"},
    };
    struct chat_message messages[3];
    (void)state;
    for (int i = 0; i < 3; i++) messages[i] = CALLED[i];
    messages[1].text = "I look.";
    messages[1].length = 7;
    messages[1].calls =
        "[{\"type\":\"function\",\"id\":\"abcdefghi\",\"function\":{\"name\":\"get_weather\","
        "\"arguments\":\"{\\\"city\\\": \\\"K\xc3\xb6ln\\\", \\\"days\\\": -2, \\\"any\\\": [true, "
        "null, "
        "\\\"it's\\\"]}\"}},{\"type\":\"function\",\"id\":\"bcdefghij\",\"function\":{\"name\":"
        "\"stop\","
        "\"arguments\":{}}}]";
    const struct chat_conversation c = {messages, 3, NULL, true};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct chat_text t = {0};
        render_with(cases[i].template, &c, true, &t);
        if (!memmem(t.bytes, t.length, cases[i].expected, strlen(cases[i].expected)))
            fail_msg("%s: %.*s", cases[i].template, (int)t.length, t.bytes);
        chat_text_close(&t);
    }
}

// Thoughts before a call have the name that a template knows them by.
static void check_thoughts(void **state) {
    static const struct {
        const char *template, *expected;
    } cases[] = {
        {"{% for m in messages %}{{ m.content }}|{{ m.reasoning_content }};{% endfor %}",
         "Weather?|;I look.|hm;sunny|;"},
        {"{% for m in messages %}{{ m.content }}|{{ m.reasoning }};{% endfor %}", "I look.|hm;"},
        {"{% for m in messages %}{{ m.content }}|{{ m.thinking }};{% endfor %}", "I look.|hm;"},
        // Its template refuses both a thought and a text before a call.
        {"tests/golden/templates/openai-gpt-oss-120b.jinja",
         "<|channel|>analysis<|message|>hm<|end|><|start|>assistant to=functions.get_weather"},
    };
    struct chat_message messages[3];
    (void)state;
    for (int i = 0; i < 3; i++) messages[i] = CALLED[i];
    messages[1].text = "I look.";
    messages[1].length = 7;
    messages[1].reasoning = "hm";
    messages[1].reasoning_length = 2;
    const struct chat_conversation c = {messages, 3, NULL, true};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct chat_text t = {0};
        render_with(cases[i].template, &c, false, &t);
        if (!memmem(t.bytes, t.length, cases[i].expected, strlen(cases[i].expected)))
            fail_msg("%s: %.*s", cases[i].template, (int)t.length, t.bytes);
        chat_text_close(&t);
    }
}

// Each family's template shows the tool, the call as the family writes it, and what came of it.
static void check_templates(void **state) {
    static const struct {
        const char *path, *call;
    } cases[] = {
        {"Qwen-Qwen2.5-7B-Instruct", "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": "
                                     "{\"city\": \"Ulm\"}}\n</tool_call>"},
        {"Qwen-Qwen3-0.6B", "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": "
                            "\"Ulm\"}}\n</tool_call>"},
        {"ibm-granite-granite-4.0", "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": "
                                    "{\"city\": \"Ulm\"}}\n</tool_call>"},
        {"Qwen3-Coder", "<tool_call>\n<function=get_weather>\n<parameter=city>\nUlm\n</parameter>\n"
                        "</function>\n</tool_call>"},
        {"Qwen3.5-4B", "<function=get_weather>\n<parameter=city>\nUlm\n</parameter>"},
        {"GLM-4.6",
         "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Ulm</arg_value>\n"},
        {"ByteDance-Seed-OSS", "<seed:tool_call>\n<function=get_weather>\n<parameter=city>Ulm"},
        {"Mistral-Small-3.2-24B-Instruct-2506",
         "[TOOL_CALLS]get_weather[CALL_ID]abcdefghi[ARGS]{\"city\": \"Ulm\"}"},
        {"mistralai-Mistral-Nemo-Instruct-2407", "[TOOL_CALLS][{\"name\": \"get_weather\""},
        {"deepseek-ai-DeepSeek-V3.1", "get_weather" DEEP "sep" BAR ">{\"city\": \"Ulm\"}"},
        {"openai-gpt-oss-120b", "to=functions.get_weather"},
        {"Apertus-8B-Instruct", "<|tools_prefix|>[{\"get_weather\": {\"city\": \"Ulm\"}}]"},
    };
    struct chat_tools tools;
    (void)state;
    open_tools(&tools);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct chat_text t = {0};
        // One leaves the tools to the system message.
        const bool hides = strstr(cases[i].path, "DeepSeek-V3.1");
        render_called(cases[i].path, hides ? NULL : &tools, &t);
        if (!memmem(t.bytes, t.length, cases[i].call, strlen(cases[i].call)) ||
            !memmem(t.bytes, t.length, "sunny", 5))
            fail_msg("%s: %.*s", cases[i].path, (int)t.length, t.bytes);
        chat_text_close(&t);
    }
    chat_tools_close(&tools);
}

// A template that knows nothing of tools says so.
static void check_toolless(void **state) {
    struct chat_tools tools;
    struct chat_format f;
    struct chat_text t = {0};
    struct gguf g;
    struct err e;
    const struct chat_options o = {.template = "chatml"};
    const struct chat_conversation c = {CALLED, 1, &tools, true};
    (void)state;
    open_tools(&tools);
    assert_int_equal(gguf_open(&g, "tests/golden/tiny/plain.gguf", &e), OK);
    assert_int_equal(chat_open(&f, &g, &o, NULL, &e), OK);
    assert_int_equal(chat_render(&f, &c, &t, &e), ERR_UNSUPPORTED);
    assert_non_null(strstr(e.what, "get_weather"));
    chat_text_close(&t);
    chat_close(&f);
    gguf_close(&g);
    chat_tools_close(&tools);
}

static void check_refused_memory(void **state) {
    (void)state;
    for (int64_t n = 1;; n++) {
        struct chat_tools t;
        struct err e;
        alloc_fail_at(n);
        const enum status status = chat_tools_open(&t, TOOLS, strlen(TOOLS), &e);
        const bool happened = alloc_fail_happened();
        alloc_fail_at(0);
        if (status) assert_null(t.list);
        chat_tools_close(&t);
        assert_int_equal(status, happened ? ERR_MEMORY : OK);
        if (!happened) break;
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(check_calls),          cmocka_unit_test(check_no_tools),
        cmocka_unit_test(check_long),           cmocka_unit_test(check_tools),
        cmocka_unit_test(check_templates),      cmocka_unit_test(check_toolless),
        cmocka_unit_test(check_thoughts),       cmocka_unit_test(check_hidden_calls),
        cmocka_unit_test(check_refused_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

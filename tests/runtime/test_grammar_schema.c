/* test_grammar_schema.c: tests of runtime/grammar/grammar_schema.h: the grammars of schemas allow
 * texts that Python's jsonschema finds valid and refuse those that it does not
 * (tests/golden/make_schema_golden.py); what no schema is; refused allocations. */
// link: wrap-alloc
#include "base/mem.h"
#include "runtime/grammar/grammar.h"
#include "runtime/grammar/grammar_schema.h"
#include "tests/lib/alloc_fail.h"

#include <inttypes.h>
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

struct language {
    struct grammar grammar;
    struct grammar_state state;
};

static void open_schema(struct language *l, const char *schema) {
    struct err e;
    char *text = NULL;
    if (grammar_from_schema(&text, schema, strlen(schema), NULL, &e) ||
        grammar_parse(&l->grammar, text, strlen(text), "root", &e) ||
        grammar_state_open(&l->state, &l->grammar, &e))
        fail_msg("%s: %s\n%s", schema, e.what, text ? text : "");
    mem_free(text);
}

static void close_language(struct language *l) {
    grammar_state_close(&l->state);
    grammar_close(&l->grammar);
}

static bool is_in(struct language *l, const char *text) {
    struct err e;
    grammar_state_reset(&l->state);
    return grammar_accept(&l->state, text, strlen(text), &e) == OK && grammar_can_end(&l->state);
}

static int check_list(struct language *l, const json_t *line, const char *list, bool valid) {
    const json_t *text;
    size_t i;
    json_array_foreach(json_object_get(line, list), i, text) {
        const char *bytes = json_string_value(text);
        if (is_in(l, bytes) != valid) fail_msg("%s is %s", bytes, valid ? "out" : "in");
    }
    return (int)json_array_size(json_object_get(line, list));
}

static void texts_are_those_that_jsonschema_takes(void **state) {
    (void)state;
    FILE *file = fopen("tests/golden/schemas.jsonl", "r");
    char *line = NULL;
    size_t size = 0;
    int n_lines = 0, n_texts = 0, n_wrong = 0;
    assert_non_null(file);
    for (; getline(&line, &size, file) > 0; n_lines++) {
        json_t *json = json_loads(line, 0, NULL);
        char *schema = json_dumps(json_object_get(json, "schema"), JSON_ENCODE_ANY);
        struct language l;
        open_schema(&l, schema);
        n_texts += check_list(&l, json, "texts", true);
        n_wrong += check_list(&l, json, "wrong", false);
        close_language(&l);
        free(schema);
        json_decref(json);
    }
    free(line);
    fclose(file);
    assert_true(n_lines >= 200 && n_texts > 1000 && n_wrong > 500);
}

struct edges {
    const char *schema, *in[5], *out[5];
};

static void check_edges(const struct edges *cases, size_t n) {
    for (size_t i = 0; i < n; i++) {
        struct language l;
        open_schema(&l, cases[i].schema);
        for (int k = 0; k < 5 && cases[i].in[k]; k++)
            if (!is_in(&l, cases[i].in[k])) fail_msg("%s: %s", cases[i].schema, cases[i].in[k]);
        for (int k = 0; k < 5 && cases[i].out[k]; k++)
            if (is_in(&l, cases[i].out[k])) fail_msg("%s: %s", cases[i].schema, cases[i].out[k]);
        close_language(&l);
    }
}

static void edges_are_exact(void **state) {
    (void)state;
    static const struct edges cases[] = {
        {"{\"type\":\"integer\",\"minimum\":-12,\"maximum\":105}",
         {"-12", "-9", "0", "99", "105"},
         {"-13", "106", "-100", "007", "1.0"}},
        {"{\"type\":\"integer\",\"minimum\":30}", {"30", "99", "100", "9000"}, {"29", "3", "-30"}},
        {"{\"type\":\"integer\",\"maximum\":-7}", {"-7", "-10", "-999"}, {"-6", "0", "7"}},
        {"{\"type\":\"integer\",\"minimum\":-9007199254740991,\"maximum\":9007199254740991}",
         {"-9007199254740991", "0", "9007199254740991", "1700000000000"},
         {"9007199254740992", "-9007199254740992", "90071992547409910", "-", "007"}},
        {"{\"type\":\"integer\",\"minimum\":9007199254740991}",
         {"9007199254740991", "9007199254740992", "9999999999999999"},
         {"9007199254740990", "1", "-9007199254740991", "10000000000000000"}},
        {"{\"type\":\"integer\",\"exclusiveMinimum\":4,\"maximum\":5}", {"5"}, {"4", "6", "50"}},
        {"{\"type\":\"string\",\"minLength\":1,\"maxLength\":2}",
         {"\"a\"", "\"\\u00e4b\"", "\"\\\"\""},
         {"\"\"", "\"abc\"", "a", "\"\n\""}},
        {"{\"type\":\"string\",\"pattern\":\"^[a-c]{2}(x|\\\\.)$\"}",
         {"\"abx\"", "\"cc.\""},
         {"\"ab\"", "\"abxx\"", "\"abq\""}},
        {"{\"type\":\"array\",\"items\":{\"type\":\"null\"},\"minItems\":1,\"maxItems\":2}",
         {"[null]", "[ null , null ]"},
         {"[]", "[null,null,null]", "[null,]", "[1]"}},
        {"{\"properties\":{\"a\":{\"type\":\"null\"},\"b\":{\"type\":\"null\"}},\"required\":["
         "\"b\"]}",
         {"{\"b\":null}", "{\"a\":null,\"b\":null}"},
         {"{}", "{\"a\":null}", "{\"b\":null,\"c\":1}", "{,\"b\":null}"}},
        {"{\"properties\":{\"ab\":{\"type\":\"null\"}},\"additionalProperties\":{\"type\":"
         "\"integer\"}}",
         {"{}", "{\"a\":1}", "{\"abc\":1,\"\":2}", "{\"ab\":null,\"b\":1}"},
         {"{\"ab\":1}", "{\"a\":null}", "{\"\\u0061b\":1}"}},
        {"{\"required\":[\"x\"]}", {"{\"x\":[1,{}]}"}, {"{}"}},
        {"{\"required\":[\"x\"],\"additionalProperties\":{\"type\":\"integer\"}}",
         {"{\"x\":1}", "{\"x\":1,\"y\":2}"},
         {"{\"x\":null}", "{}", "{\"x\":1,\"y\":null}"}},
        {"{\"minimum\":5}", {"5", "6.5"}, {"4", "4.9", "-5", "0"}},
        {"{\"exclusiveMaximum\":5}", {"4", "-4.5"}, {"5", "6"}},
        {"{\"$ref\":\"#/$defs/l\",\"$defs\":{\"l\":{\"type\":\"array\",\"items\":{\"$ref\":\"#/"
         "$defs/l\"}}}}",
         {"[]", "[[],[[]]]"},
         {"[1]", "[["}},
        {"{\"type\":[\"array\",\"null\"],\"items\":{\"$ref\":\"#\"}}",
         {"null", "[[null],[]]"},
         {"[1]", "[[]"}},
        {"{\"properties\":{\"a\":{\"$ref\":\"#/$defs/b~1c~0d\"}},\"$defs\":{\"b/c~d\":{\"type\":"
         "\"null\"}}}",
         {"{\"a\":null}"},
         {"{\"a\":1}"}},
        {"{\"type\":\"integer\",\"minimum\":0.5,\"maximum\":2.5}", {"1", "2"}, {"0", "3", "1.5"}},
        {"{\"type\":\"integer\",\"exclusiveMinimum\":-1.0,\"exclusiveMaximum\":1}",
         {"0"},
         {"-1", "1"}},
        {"{\"type\":\"number\",\"minimum\":0,\"maximum\":1}",
         {"0", "1", "0.25", "1.000", "0.0"},
         {"-0.1", "1.01", "2", "00.5", "0."}},
        {"{\"type\":\"number\",\"exclusiveMinimum\":0,\"exclusiveMaximum\":1}",
         {"0.5", "0.001", "0.999"},
         {"0", "1", "0.0", "1.0", "-0.5"}},
        {"{\"type\":\"number\",\"minimum\":2,\"exclusiveMinimum\":true}",
         {"2.1", "77"},
         {"2", "2.0", "1"}},
        {"{\"type\":\"number\",\"maximum\":-3.25}",
         {"-3.25", "-3.250", "-4", "-123.5"},
         {"-3.2", "-3", "0", "4"}},
        {"{\"const\":{\"a\":\"\\\"\"}}", {"{\"a\":\"\\\"\"}"}, {"{}"}},
    };
    check_edges(cases, sizeof cases / sizeof *cases);
}

static void references_may_be_percent_encoded(void **state) {
    (void)state;
    static const struct edges cases[] = {
        {"{\"$ref\":\"#/$defs/a%3cb%3E%7E0%25\",\"$defs\":{\"a<b>~%\":{\"type\":\"null\"}}}",
         {"null"},
         {"1"}},
        {"{\"$ref\":\"#/$defs/100%\",\"$defs\":{\"100%\":{\"type\":\"null\"}}}", {"null"}, {"1"}},
    };
    check_edges(cases, sizeof cases / sizeof *cases);
}

// allOf, and words beside anyOf, oneOf and $ref, all hold.
static void all_words_of_a_schema_hold(void **state) {
    (void)state;
    static const struct edges cases[] = {
        {"{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"},\"b\":{\"type\":"
         "\"null\"}},\"anyOf\":[{\"required\":[\"a\"]},{\"required\":[\"b\"]}]}",
         {"{\"a\":1}", "{\"b\":null}", "{\"a\":1,\"b\":null}"},
         {"{}", "{\"a\":null}", "{\"b\":1}"}},
        {"{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"}},\"required\":[\"a\"],"
         "\"oneOf\":[{\"properties\":{\"k\":{\"const\":1}},\"required\":[\"k\"]},{\"type\":"
         "\"null\"}]}",
         {"{\"a\":7,\"k\":1}"},
         {"{\"k\":1}", "{\"a\":7}", "{\"a\":7,\"k\":2}", "null"}},
        {"{\"type\":\"string\",\"allOf\":[{\"minLength\":2},{\"maxLength\":3},{\"minLength\":1}]}",
         {"\"ab\"", "\"abc\""},
         {"\"a\"", "\"abcd\"", "{}"}},
        {"{\"allOf\":[{\"type\":[\"number\",\"null\"],\"minimum\":3},{\"type\":\"integer\","
         "\"maximum\":5,\"minimum\":1}]}",
         {"3", "5"},
         {"1", "6", "3.5", "null"}},
        {"{\"allOf\":[{\"properties\":{\"a\":{\"type\":\"integer\"}},\"required\":[\"a\"]},"
         "{\"properties\":{\"a\":{\"minimum\":3}}}]}",
         {"{\"a\":3}"},
         {"{\"a\":2}", "{\"a\":3.5}", "{}"}},
        {"{\"allOf\":[{\"enum\":[1,2,3]},{\"enum\":[2,3,4]}]}", {"2", "3"}, {"1", "4"}},
        {"{\"allOf\":[{\"enum\":[\"a\",\"bcd\",1,9,null,2.5]},{\"type\":[\"string\",\"integer\"],"
         "\"maximum\":5,"
         "\"minLength\":2}]}",
         {"\"bcd\"", "1"},
         {"\"a\"", "9", "null", "2.5"}},
        {"{\"type\":\"string\",\"anyOf\":[{\"const\":1},{\"const\":\"x\"},{\"enum\":[2,null]}]}",
         {"\"x\""},
         {"1", "2", "null"}},
        {"{\"allOf\":[{\"anyOf\":[{\"type\":\"null\"},{\"const\":1}]},{\"anyOf\":[{\"type\":"
         "\"string\"},"
         "{\"type\":\"null\"}]}]}",
         {"null"},
         {"\"\"", "2"}},
        {"{\"$ref\":\"#/$defs/a\",\"minimum\":5,\"$defs\":{\"a\":{\"$ref\":\"#/$defs/b\"},\"b\":"
         "{\"type\":\"integer\",\"maximum\":6}}}",
         {"5", "6"},
         {"4", "7"}},
        {"{\"allOf\":[{\"$ref\":\"#/$defs/e\"}],\"default\":\"x\",\"$defs\":{\"e\":{\"type\":"
         "\"string\",\"enum\":[\"x\"]}}}",
         {"\"x\""},
         {"\"y\"", "{}"}},
        {"{\"properties\":{\"v\":{\"type\":\"null\"},\"n\":{\"allOf\":[{\"$ref\":\"#\"}]}},"
         "\"anyOf\":[{"
         "\"required\":[\"v\"]},{\"required\":[\"n\"]}]}",
         {"{\"v\":null}", "{\"n\":{\"n\":{\"v\":null}}}"},
         {"{}", "{\"n\":{}}", "{\"n\":null}"}},
    };
    check_edges(cases, sizeof cases / sizeof *cases);
}

static void values_obey_what_stands_beside_them(void **state) {
    (void)state;
    static const struct edges cases[] = {
        {"{\"type\":\"string\",\"enum\":[1,\"b\",null]}", {"\"b\""}, {"1", "null"}},
        {"{\"$ref\":\"#/$defs/a\",\"enum\":[1,\"b\"],\"$defs\":{\"a\":{\"type\":\"string\"}}}",
         {"\"b\""},
         {"1"}},
        {"{\"enum\":[1,2,3],\"anyOf\":[{\"const\":2},{\"minimum\":3}]}", {"2", "3"}, {"1"}},
        {"{\"enum\":[1,2,3,4],\"exclusiveMinimum\":1,\"maximum\":4,\"exclusiveMaximum\":true}",
         {"2", "3"},
         {"1", "4"}},
        {"{\"enum\":[[],[1],[1,2]],\"minItems\":1,\"maxItems\":1.0}", {"[1]"}, {"[]", "[1,2]"}},
        {"{\"enum\":[{},{\"a\":1}],\"required\":[\"a\"]}", {"{\"a\":1}"}, {"{}"}},
        {"{\"minItems\":1.0,\"items\":{\"type\":\"null\"}}", {"[null]"}, {"[]"}},
    };
    check_edges(cases, sizeof cases / sizeof *cases);
}

static void additional_and_unevaluated_properties_are_obeyed(void **state) {
    (void)state;
    static const struct edges cases[] = {
        {"{\"additionalProperties\":true,\"properties\":{\"a\":false,\"b\":{\"type\":\"null\"}}}",
         {"{}", "{\"b\":null}", "{\"b\":null,\"c\":1}", "{\"c\":1}"},
         {"{\"a\":1}", "{\"b\":1}", "{\"b\":null,\"a\":1}"}},
        {"{\"allOf\":[{\"properties\":{\"a\":{}},\"additionalProperties\":false},"
         "{\"properties\":{\"a\":{\"type\":\"null\"},\"b\":{}}}]}",
         {"{}", "{\"a\":null}"},
         {"{\"b\":1}", "{\"a\":1}"}},
        {"{\"properties\":{\"a\":{}},\"additionalProperties\":{\"type\":\"integer\"},"
         "\"allOf\":[{\"properties\":{\"b\":{\"minimum\":3}}}]}",
         {"{\"a\":null}", "{\"b\":3}", "{\"c\":1}"},
         {"{\"b\":2}", "{\"b\":3.5}", "{\"c\":null}"}},
        {"{\"type\":\"object\",\"unevaluatedProperties\":false}", {"{}"}, {"{\"a\":1}", "[]"}},
        {"{\"$ref\":\"#/$defs/a\",\"properties\":{\"b\":{}},\"unevaluatedProperties\":false,"
         "\"$defs\":{\"a\":{\"properties\":{\"a\":{\"type\":\"null\"}}}}}",
         {"{\"a\":null,\"b\":1}", "{\"b\":[]}"},
         {"{\"a\":1}", "{\"c\":1}"}},
        {"{\"prefixItems\":[{\"type\":\"null\"}],\"unevaluatedItems\":{\"type\":\"integer\"}}",
         {"[null]", "[null,1]"},
         {"[null,null]"}},
        {"{\"unevaluatedItems\":false}", {"[]"}, {"[1]"}},
    };
    check_edges(cases, sizeof cases / sizeof *cases);
}

// Strings have quotation marks and backslashes behind a backslash only.
static void sets_of_patterns_are_exact(void **state) {
    (void)state;
    static const struct edges cases[] = {
        {"{\"pattern\":\"^[ -~]$\"}",
         {"\" \"", "\"~\"", "\"\\\"\"", "\"\\\\\"", "\"]\""},
         {"\"\"\"", "\"\\\"", "\"\x7f\"", "\"\xc3\xa4\"", "\"\\n\""}},
        {"{\"pattern\":\"^[#-\\\\[]$\"}", {"\"#\"", "\"[\""}, {"\"\\\"\"", "\"\\\\\""}},
        {"{\"pattern\":\"^[\\\"\\\\\\\\]$\"}", {"\"\\\"\"", "\"\\\\\""}, {"\"a\"", "\"\""}},
        {"{\"pattern\":\"^[^\\\" -,]$\"}", {"\"-\"", "\"a\""}, {"\"\\\"\"", "\"+\"", "\" \""}},
        {"{\"pattern\":\"^[\\\\w-\\\\.]$\"}", {"\"a\"", "\"-\"", "\".\""}, {"\"/\"", "\",\""}},
        {"{\"pattern\":\"^[\\\\d-]$\"}", {"\"7\"", "\"-\""}, {"\"a\""}},
        {"{\"pattern\":\"^[]a\\\\^-]$\"}",
         {"\"]\"", "\"a\"", "\"^\"", "\"-\""},
         {"\"b\"", "\"_\""}},
        {"{\"pattern\":\"^[\xc3\xa4-\xc3\xbc]$\"}", {"\"\xc3\xb6\""}, {"\"\xc3\xa3\"", "\"a\""}},
    };
    check_edges(cases, sizeof cases / sizeof *cases);
}

// Drafts before 2020-12 have a list in items, and additionalItems for what follows.
static void tuples_of_earlier_drafts_are_read(void **state) {
    (void)state;
    static const struct edges cases[] = {
        {"{\"items\":[{\"type\":\"null\"},{\"type\":\"integer\"}]}",
         {"[null,1]", "[ null , 20 ]", "[null,1,\"x\",{}]"},
         {"[1,null]", "[null]", "[]", "[null,null]", "[null,1,]"}},
        {"{\"type\":\"array\",\"items\":[{\"type\":\"null\"},{\"$ref\":\"#/items/0\"}],"
         "\"additionalItems\":false}",
         {"[null,null]"},
         {"[null,null,null]", "[null]", "[null,1]"}},
        {"{\"items\":[{\"type\":\"null\"}],\"additionalItems\":{\"type\":\"integer\"},"
         "\"minItems\":2,\"maxItems\":3}",
         {"[null,1]", "[null,1,2]"},
         {"[null]", "[null,null]", "[null,1,2,3]", "[1,2]"}},
        {"{\"items\":[],\"additionalItems\":{\"type\":\"null\"}}", {"[]", "[null,null]"}, {"[1]"}},
        {"{\"items\":{\"type\":\"null\"},\"additionalItems\":false}",
         {"[]", "[null,null]"},
         {"[1]"}},
        {"{\"prefixItems\":[{\"type\":\"null\"}],\"additionalItems\":false}",
         {"[null]", "[null,1]"},
         {"[1]"}},
    };
    check_edges(cases, sizeof cases / sizeof *cases);
}

static void times_are_those_of_rfc_3339(void **state) {
    (void)state;
    static const struct edges cases[] = {
        {"{\"format\":\"time\"}",
         {"\"00:00:00Z\"", "\"23:59:59.5+23:59\"", "\"12:34:56.123456789-00:00\"", "\"23:59:60Z\"",
          "\"23:59:60.25Z\""},
         {"\"24:00:00Z\"", "\"12:60:00Z\"", "\"12:00:60Z\"", "\"12:00:00.Z\"", "\"12:00:00\""}},
        {"{\"format\":\"time\"}",
         {"\"10:20:30+01:00\""},
         {"\"10:20:30+24:00\"", "\"10:20:30+1:00\"", "\"10:20Z\"", "\"23:59:60+01:00\""}},
        {"{\"format\":\"date-time\"}",
         {"\"2030-10-31T10:20:30Z\"", "\"2016-12-31T23:59:60Z\""},
         {"\"2030-10-31 10:20:30Z\"", "\"2030-10-31\"", "\"2030-10-31T10:20:30\""}},
    };
    check_edges(cases, sizeof cases / sizeof *cases);
}

static void dates_are_those_of_the_calendar(void **state) {
    (void)state;
    static const int years[] = {0, 4, 1600, 1900, 1990, 2000, 2023, 2024, 2030, 2100, 9996, 9999};
    static const int days[14] = {0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    struct language date, both;
    open_schema(&date, "{\"format\":\"date\"}");
    open_schema(&both, "{\"format\":\"date-time\"}");
    for (size_t i = 0; i < sizeof years / sizeof *years; i++)
        for (int month = 0; month <= 13; month++)
            for (int day = 0; day <= 32; day++) {
                const int year = years[i];
                const bool leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
                const bool is = day >= 1 && day <= days[month] + (month == 2 && leap);
                char text[48];
                snprintf(text, sizeof text, "\"%04d-%02d-%02d\"", year, month, day);
                if (is_in(&date, text) != is) fail_msg("%s is %s", text, is ? "out" : "in");
                snprintf(text, sizeof text, "\"%04d-%02d-%02dT08:00:00Z\"", year, month, day);
                if (is_in(&both, text) != is) fail_msg("%s is %s", text, is ? "out" : "in");
            }
    close_language(&date);
    close_language(&both);
}

static uint32_t roll(uint64_t *dice, uint32_t n) {
    *dice = *dice * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((*dice >> 33) % n);
}

// Writes a number between -30 and 30 with up to three decimals.
static double roll_number(uint64_t *dice, char text[32]) {
    const int digits = (int)roll(dice, 4);
    const int32_t scale[] = {1, 10, 100, 1000}, most = 30 * scale[digits];
    const int32_t value = (int32_t)roll(dice, (uint32_t)(2 * most + 1)) - most;
    snprintf(text, 32, "%s%d", value < 0 ? "-" : "", abs(value) / scale[digits]);
    if (digits > 0) snprintf(text + strlen(text), 8, ".%0*d", digits, abs(value) % scale[digits]);
    return strtod(text, NULL);
}

static void numbers_keep_to_their_bounds(void **state) {
    (void)state;
    uint64_t dice = 3;
    int n_in = 0, n_out = 0;
    for (int i = 0; i < 400; i++) {
        char schema[256], low_text[32], high_text[32], text[32];
        double low = roll_number(&dice, low_text), high = roll_number(&dice, high_text);
        const bool has_low = roll(&dice, 4) > 0, has_high = !has_low || roll(&dice, 3) > 0;
        const bool open_low = roll(&dice, 2), open_high = roll(&dice, 2);
        if (has_low && has_high && low >= high) continue;
        snprintf(schema, sizeof schema, "{\"type\":\"number\"");
        if (has_low)
            snprintf(schema + strlen(schema), 64, ",\"%s\":%s",
                     open_low ? "exclusiveMinimum" : "minimum", low_text);
        if (has_high)
            snprintf(schema + strlen(schema), 64, ",\"%s\":%s",
                     open_high ? "exclusiveMaximum" : "maximum", high_text);
        strcat(schema, "}");
        struct language l;
        open_schema(&l, schema);
        for (int k = 0; k < 60; k++) {
            const bool at_bound = k < 4;
            double value = at_bound ? (k % 2 ? low : high) : roll_number(&dice, text);
            if (at_bound) snprintf(text, sizeof text, "%s", k % 2 ? low_text : high_text);
            const bool above = !has_low || value > low || (!open_low && value >= low);
            const bool below = !has_high || value < high || (!open_high && value <= high);
            if (is_in(&l, text) != (above && below)) fail_msg("%s: %s", schema, text);
            n_in += above && below;
            n_out += !(above && below);
        }
        close_language(&l);
    }
    assert_true(n_in > 4000 && n_out > 4000);
}

// A whole number of up to 16 digits whose size is at most 2^53 - 1.
static int64_t roll_whole(uint64_t *dice) {
    static const int64_t most = 9007199254740991;
    int64_t value = most - roll(dice, 3);
    if (roll(dice, 4) > 0) {
        value = (int64_t)roll(dice, 1u << 30) << 23 | roll(dice, 1 << 23);
        for (uint32_t n = roll(dice, 16); n > 0; n--) value /= 10;
    }
    return roll(dice, 2) ? -value : value;
}

static void integers_keep_to_their_bounds(void **state) {
    (void)state;
    uint64_t dice = 5;
    int n_in = 0, n_out = 0;
    for (int i = 0; i < 400; i++) {
        int64_t low = roll_whole(&dice), high = roll_whole(&dice);
        const bool has_low = roll(&dice, 4) > 0, has_high = !has_low || roll(&dice, 3) > 0;
        const bool open_low = roll(&dice, 2), open_high = roll(&dice, 2);
        if (has_low && has_high && low + open_low > high - open_high) continue;
        char schema[256] = "{\"type\":\"integer\"";
        if (has_low)
            snprintf(schema + strlen(schema), 64, ",\"%s\":%" PRId64,
                     open_low ? "exclusiveMinimum" : "minimum", low);
        if (has_high)
            snprintf(schema + strlen(schema), 64, ",\"%s\":%" PRId64,
                     open_high ? "exclusiveMaximum" : "maximum", high);
        strcat(schema, "}");
        low += open_low;
        high -= open_high;
        struct language l;
        open_schema(&l, schema);
        for (int k = 0; k < 40; k++) {
            char text[32];
            const int64_t near = (k % 2 ? low : high) + k / 2 - 3;
            const int64_t value = k < 14 ? near : roll_whole(&dice);
            const bool is = (!has_low || value >= low) && (!has_high || value <= high);
            snprintf(text, sizeof text, "%" PRId64, value);
            if (is_in(&l, text) != is) fail_msg("%s: %s is %s", schema, text, is ? "out" : "in");
            n_in += is;
            n_out += !is;
        }
        close_language(&l);
    }
    assert_true(n_in > 4000 && n_out > 4000);
}

static void what_is_no_schema_is_refused(void **state) {
    (void)state;
    static const struct {
        const char *schema;
        enum status status;
    } cases[] = {
        {"", ERR_FORMAT},
        {"[1]", ERR_FORMAT},
        {"{\"type\":\"text\"}", ERR_FORMAT},
        {"{\"type\":7}", ERR_FORMAT},
        {"{\"enum\":[]}", ERR_FORMAT},
        {"{\"items\":3}", ERR_FORMAT},
        {"{\"items\":[3]}", ERR_FORMAT},
        {"{\"unevaluatedItems\":1}", ERR_FORMAT},
        {"{\"prefixItems\":[{}],\"items\":[{}]}", ERR_FORMAT},
        {"{\"items\":[{},{}],\"maxItems\":1}", ERR_FORMAT},
        {"{\"required\":[\"a\"],\"properties\":{\"a\":false}}", ERR_FORMAT},
        {"{\"required\":[\"a\"],\"additionalProperties\":false}", ERR_FORMAT},
        {"{\"type\":\"string\",\"const\":1}", ERR_FORMAT},
        {"{\"type\":\"string\",\"enum\":[1,null]}", ERR_FORMAT},
        {"{\"allOf\":[{\"type\":\"object\",\"additionalProperties\":false},{\"required\":[\"a\"],"
         "\"properties\":{\"a\":{}}}]}",
         ERR_FORMAT},
        {"{\"type\":\"string\",\"minLength\":3,\"maxLength\":2}", ERR_FORMAT},
        {"{\"type\":\"integer\",\"minimum\":3,\"maximum\":2}", ERR_FORMAT},
        {"{\"type\":\"integer\",\"maximum\":9007199254740992}", ERR_UNSUPPORTED},
        {"{\"type\":\"integer\",\"exclusiveMinimum\":-9007199254740993}", ERR_UNSUPPORTED},
        {"{\"type\":\"integer\",\"minimum\":1e300}", ERR_UNSUPPORTED},
        {"{\"type\":\"integer\",\"minimum\":0.2,\"maximum\":0.8}", ERR_FORMAT},
        {"{\"type\":\"number\",\"minimum\":0.8,\"maximum\":0.2}", ERR_FORMAT},
        {"{\"type\":\"number\",\"minimum\":1,\"exclusiveMaximum\":1}", ERR_FORMAT},
        {"{\"type\":\"number\",\"minimum\":0.123456789012345678}", ERR_UNSUPPORTED},
        {"{\"type\":\"number\",\"maximum\":1e300}", ERR_UNSUPPORTED},
        {"{\"type\":\"number\",\"maximum\":-1e-300}", ERR_UNSUPPORTED},
        {"{\"pattern\":\"abc\"}", ERR_UNSUPPORTED},
        {"{\"pattern\":\"^a(?=b)$\"}", ERR_UNSUPPORTED},
        {"{\"pattern\":\"^\\\\b$\"}", ERR_UNSUPPORTED},
        {"{\"pattern\":\"^[a\"}", ERR_UNSUPPORTED},
        {"{\"pattern\":\"^[a-\\\\\"}", ERR_UNSUPPORTED},
        {"{\"pattern\":\"^[z-a]$\"}", ERR_UNSUPPORTED},
        {"{\"allOf\":[{\"type\":\"string\"},{\"type\":\"null\"}]}", ERR_FORMAT},
        {"{\"type\":\"null\",\"anyOf\":[{\"type\":\"string\"}]}", ERR_FORMAT},
        {"{\"allOf\":[{\"items\":3},{}]}", ERR_FORMAT},
        {"{\"allOf\":[3]}", ERR_FORMAT},
        {"{\"allOf\":[{\"const\":1},{\"const\":2}]}", ERR_FORMAT},
        {"{\"allOf\":[{\"const\":1},{\"enum\":[2]}]}", ERR_FORMAT},
        {"{\"allOf\":[{\"pattern\":\"^a$\"},{\"pattern\":\"^.$\"}]}", ERR_UNSUPPORTED},
        {"{\"$ref\":\"#/nowhere\"}", ERR_UNSUPPORTED},
        {"{\"$ref\":\"http://example.org/s\"}", ERR_UNSUPPORTED},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *text;
        struct err e;
        const char *schema = cases[i].schema;
        if (grammar_from_schema(&text, schema, strlen(schema), NULL, &e) != cases[i].status)
            fail_msg("%s", schema);
        assert_null(text);
    }
}

// A part that leads back to itself before anything is written is named: alone, by way of others, as
// a choice, or beside other words.
static void a_schema_that_only_refers_to_itself_is_named(void **state) {
    (void)state;
    static const struct {
        const char *schema, *reference;
    } cases[] = {
        {"{\"$ref\":\"#\"}", "#"},
        {"{\"$ref\":\"#/a\",\"a\":{\"$ref\":\"#/b\"},\"b\":{\"$ref\":\"#/a\"}}", "#/"},
        {"{\"items\":{\"$ref\":\"#/a\"},\"a\":{\"$ref\":\"#/b\"},\"b\":{\"$ref\":\"#/c\"},"
         "\"c\":{\"$ref\":\"#/b\"}}",
         "#/"},
        {"{\"properties\":{\"x\":{\"$ref\":\"#/properties/x\"}}}", "#/properties/x"},
        {"{\"anyOf\":[{\"type\":\"string\"},{\"$ref\":\"#\"}]}", "#"},
        {"{\"oneOf\":[{\"anyOf\":[{\"$ref\":\"#\"},true]},{\"type\":\"null\"}]}", "#"},
        // The loop is closed by parts that were written as items before.
        {"{\"anyOf\":[{\"items\":{\"$ref\":\"#/a\"}},{\"$ref\":\"#/a\"}],\"a\":{\"$ref\":\"#\"}}",
         "#"},
        {"{\"$ref\":\"#\",\"type\":\"string\"}", "#"},
        {"{\"allOf\":[{\"$ref\":\"#\"}]}", "#"},
        {"{\"$ref\":\"#/a\",\"minimum\":1,\"a\":{\"allOf\":[{},{\"$ref\":\"#/a\"}]}}", "#/a"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *text, named[64];
        struct err e;
        const char *schema = cases[i].schema;
        if (grammar_from_schema(&text, schema, strlen(schema), NULL, &e) != ERR_FORMAT)
            fail_msg("%s", schema);
        assert_null(text);
        (void)snprintf(named, sizeof named, "schema: $ref '%s", cases[i].reference);
        if (!strstr(e.what, named) || !strstr(e.what, "' leads back to itself"))
            fail_msg("%s: %s", schema, e.what);
        assert_true(e.expected[0] && e.fix[0]);
    }
}

// Schemas that refer to themselves further in, or twice to a part, have texts.
static void a_schema_may_refer_to_itself_further_in(void **state) {
    (void)state;
    static const char *const schemas[] = {
        "{\"items\":{\"$ref\":\"#\"}}",
        "{\"anyOf\":[{\"type\":\"null\"},{\"items\":{\"$ref\":\"#\"}},{\"items\":{\"$ref\":\"#\"}}]"
        "}",
        "{\"anyOf\":[{\"$ref\":\"#/a\"},{\"$ref\":\"#/b\"}],\"a\":{\"$ref\":\"#/b\"},"
        "\"b\":{\"type\":\"null\"}}",
        "{\"allOf\":[{\"$ref\":\"#/a\"},{\"$ref\":\"#/a\"}],\"a\":{\"type\":\"null\"}}",
        "{\"anyOf\":[true,true,{\"anyOf\":[true]}]}",
    };
    for (size_t i = 0; i < sizeof schemas / sizeof *schemas; i++) {
        struct language l;
        open_schema(&l, schemas[i]);
        assert_true(is_in(&l, i == 0 ? "[]" : "null"));
        close_language(&l);
    }
}

// Adds the words that a warning names to the text at context.
static void note_warning(void *context, enum log_level level, const char *text) {
    static const char start[] = "schema: ", end[] = " is not obeyed";
    const char *word = text + sizeof start - 1, *behind = strstr(text, end);
    char *told = context;
    assert_int_equal(level, LOG_WARN);
    assert_true(strncmp(text, start, sizeof start - 1) == 0 && behind && !behind[sizeof end - 1]);
    snprintf(told + strlen(told), 256 - strlen(told), "%s%.*s", *told ? " " : "",
             (int)(behind - word), word);
}

// The words that warnings name, with blanks between.
static const char *warnings_of(const char *schema) {
    static char told[256];
    char *text;
    struct err e;
    const struct log log = {.level = LOG_WARN, .tell = note_warning, .context = told};
    told[0] = 0;
    if (grammar_from_schema(&text, schema, strlen(schema), &log, &e))
        fail_msg("%s: %s", schema, e.what);
    mem_free(text);
    return told;
}

// Schemas with no warning, of what is obeyed or says nothing about validity.
static void what_is_obeyed_is_not_told(void **state) {
    (void)state;
    static const char *const schemas[] = {
        "{\"$schema\":\"x\",\"$id\":\"x\",\"$comment\":\"x\",\"title\":\"x\",\"description\":\"x\","
        "\"default\":1,\"examples\":[1],\"deprecated\":true,\"readOnly\":true,\"writeOnly\":true,"
        "\"contentEncoding\":\"x\",\"contentMediaType\":\"x\",\"$defs\":{},\"definitions\":{},"
        "\"x-other\":1}",
        "{\"type\":\"string\",\"format\":\"password\"}",
        "{\"format\":\"uuid\"}",
        "{\"type\":\"integer\",\"format\":\"int32\"}",
        "{\"type\":\"string\",\"maxLength\":3}",
        "{\"type\":\"string\",\"maxLength\":2000}",
        "{\"type\":\"array\",\"uniqueItems\":false,\"not\":false}",
        "{\"if\":{\"type\":\"null\"}}",
        "{\"enum\":[1,\"a\"],\"properties\":{},\"items\":{}}",
        "{\"type\":\"object\",\"unevaluatedProperties\":false}",
        "{\"oneOf\":[{\"type\":\"null\"},{\"type\":[\"string\",\"integer\"]},{\"const\":true}]}",
        "{\"type\":\"object\",\"required\":[\"k\"],\"oneOf\":[{\"$ref\":\"#/$defs/a\"},"
        "{\"properties\":{\"k\":{\"enum\":[\"b\",\"c\"]}}}],"
        "\"$defs\":{\"a\":{\"properties\":{\"k\":{\"const\":\"a\"}}}}}",
        "{\"oneOf\":[{\"type\":\"object\",\"required\":[\"a\"],\"properties\":{\"a\":{}}},"
        "{\"type\":\"object\",\"properties\":{\"b\":{}},\"additionalProperties\":false}]}",
    };
    for (size_t i = 0; i < sizeof schemas / sizeof *schemas; i++)
        assert_string_equal(warnings_of(schemas[i]), "");
}

static void what_is_not_obeyed_is_told(void **state) {
    (void)state;
    static const char *const words[][2] = {
        {"not", "{\"const\":1}"},
        {"patternProperties", "{}"},
        {"contains", "{}"},
        {"uniqueItems", "true"},
        {"multipleOf", "3"},
        {"minProperties", "1"},
        {"maxProperties", "1"},
        {"dependencies", "{}"},
        {"dependentRequired", "{}"},
        {"dependentSchemas", "{}"},
        {"propertyNames", "{}"},
        {"$dynamicRef", "\"#a\""},
        {"$recursiveRef", "\"#\""},
        {"format", "\"email\""},
        {"format", "\"regex\""},
        {"minLength", "-1"},
        {"maxLength", "1.5"},
        {"minItems", "\"1\""},
        {"maxItems", "null"},
        {"minimum", "\"1\""},
        {"maximum", "true"},
        {"exclusiveMinimum", "\"1\""},
        {"exclusiveMaximum", "{}"},
        {"pattern", "1"},
        {"$ref", "1"},
        {"allOf", "{}"},
        {"prefixItems", "{}"},
        {"required", "true"},
        {"properties", "[]"},
        {"additionalProperties", "\"no\""},
        {"unevaluatedProperties", "0"},
    };
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        char plain[128], inside[256];
        snprintf(plain, sizeof plain, "{\"%s\":%s}", words[i][0], words[i][1]);
        assert_string_equal(warnings_of(plain), words[i][0]);
        snprintf(inside, sizeof inside, "{\"items\":{\"anyOf\":[{\"type\":\"null\"},%s,%s]}}",
                 plain, plain);
        assert_string_equal(warnings_of(inside), words[i][0]); // once
    }
}

// No grammar counts beyond 2000.
static void bounds_beyond_what_a_grammar_counts_are_told(void **state) {
    (void)state;
    assert_string_equal(warnings_of("{\"type\":\"string\",\"maxLength\":2001}"),
                        "maxLength above 2000");
    assert_string_equal(warnings_of("{\"type\":\"array\",\"maxItems\":2001}"), "");
    assert_string_equal(warnings_of("{\"type\":\"array\",\"maxItems\":9000}"),
                        "maxItems above 2000");
    assert_string_equal(
        warnings_of("{\"type\":\"array\",\"prefixItems\":[{},{}],\"maxItems\":2003}"),
        "maxItems above 2000");
}

static void what_is_not_obeyed_beside_other_words_is_told(void **state) {
    (void)state;
    static const char one_of[] = "oneOf, where several of its choices are met,";
    const struct {
        const char *schema, *told;
    } cases[] = {
        {"{\"pattern\":\"^a+$\",\"maxLength\":3}", "maxLength"},
        {"{\"pattern\":\"^a+$\",\"minLength\":3,\"format\":\"date\"}", "format minLength"},
        {"{\"format\":\"date\",\"maxLength\":3}", "maxLength"},
        {"{\"if\":{},\"then\":{}}", "if"},
        {"{\"if\":{},\"else\":{}}", "if"},
        {"{\"enum\":[\"a\"],\"pattern\":\"^b$\"}", "pattern"},
        {"{\"const\":\"a\",\"format\":\"date\"}", "format"},
        {"{\"enum\":[1,[1]],\"items\":{\"type\":\"null\"}}", "items"},
        {"{\"const\":{\"a\":1},\"properties\":{\"a\":{\"type\":\"null\"}}}", "properties"},
        {"{\"allOf\":[{\"not\":{}},{\"type\":\"null\"}]}", "not"},
        {"{\"allOf\":[{\"properties\":{},\"unevaluatedProperties\":false}]}",
         "unevaluatedProperties"},
        {"{\"oneOf\":[{\"type\":\"integer\"},{\"type\":\"number\"}]}", one_of},
        {"{\"oneOf\":[{\"required\":[\"a\"]},{\"required\":[\"b\"]}]}", one_of},
        {"{\"allOf\":[{\"oneOf\":[{\"enum\":[1,2]},{\"enum\":[2,3]}]}]}", one_of},
        {"{\"type\":\"object\",\"oneOf\":[{\"properties\":{\"k\":{\"const\":1}}},"
         "{\"properties\":{\"k\":{\"const\":2}}}]}",
         one_of},
        // Each choice requires itself three times: looking into all of that would never end.
        {"{\"oneOf\":[{\"$ref\":\"#/$defs/a\"},{\"$ref\":\"#/$defs/"
         "b\"}],\"$defs\":{\"a\":{\"type\":"
         "\"object\",\"required\":[\"l\",\"m\",\"r\"],\"properties\":{\"l\":{\"$ref\":\"#/$defs/"
         "a\"},\"m\":"
         "{\"$ref\":\"#/$defs/a\"},\"r\":{\"$ref\":\"#/$defs/"
         "a\"}}},\"b\":{\"type\":\"object\",\"required\":["
         "\"l\",\"m\",\"r\"],\"properties\":{\"l\":{\"$ref\":\"#/$defs/b\"},\"m\":{\"$ref\":\"#/"
         "$defs/b\"},"
         "\"r\":{\"$ref\":\"#/$defs/b\"}}}}}",
         one_of},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_string_equal(warnings_of(cases[i].schema), cases[i].told);
}

static void nesting_has_a_limit(void **state) {
    (void)state;
    char schema[8192] = "", *text;
    struct err e;
    for (int i = 0; i < 200; i++) strcat(schema, "{\"items\":");
    strcat(schema, "{}");
    for (int i = 0; i < 200; i++) strcat(schema, "}");
    assert_int_equal(grammar_from_schema(&text, schema, strlen(schema), NULL, &e), ERR_LIMIT);
    schema[0] = 0;
    for (int i = 0; i < 40; i++) strcat(schema, "{\"allOf\":[");
    strcat(schema, "{}");
    for (int i = 0; i < 40; i++) strcat(schema, "]}");
    assert_int_equal(grammar_from_schema(&text, schema, strlen(schema), NULL, &e), ERR_LIMIT);
}

// The least count is named that no grammar can ask for.
static void counts_have_a_limit(void **state) {
    (void)state;
    static const char *const words[] = {"minLength", "minItems"};
    for (int i = 0; i < 2; i++) {
        char schema[64], what[64], *text;
        struct language l;
        struct err e;
        (void)snprintf(schema, sizeof schema, "{\"%s\":%d}", words[i], GRAMMAR_REPEATS);
        open_schema(&l, schema);
        close_language(&l);
        (void)snprintf(schema, sizeof schema, "{\"%s\":%d}", words[i], GRAMMAR_REPEATS + 1);
        assert_int_equal(grammar_from_schema(&text, schema, strlen(schema), NULL, &e), ERR_LIMIT);
        assert_null(text);
        (void)snprintf(what, sizeof what, "schema: %s", words[i]);
        assert_string_equal(e.what, what);
        assert_string_equal(e.expected, "at most 2000");
        assert_string_equal(e.actual, "2001");
    }
}

static void refused_allocations_are_errors(void **state) {
    (void)state;
    static const char schema[] = "{\"properties\":{\"a\":{\"items\":{\"enum\":[1]}}},"
                                 "\"additionalProperties\":true}";
    bool refused = true;
    for (int64_t n = 1; refused; n++) {
        char *text;
        struct err e;
        alloc_fail_at(n);
        const enum status status = grammar_from_schema(&text, schema, sizeof schema - 1, NULL, &e);
        refused = alloc_fail_happened();
        alloc_fail_at(0);
        assert_int_equal(status, refused ? ERR_MEMORY : OK);
        assert_true(n < 200);
        mem_free(text);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_are_those_that_jsonschema_takes),
        cmocka_unit_test(edges_are_exact),
        cmocka_unit_test(references_may_be_percent_encoded),
        cmocka_unit_test(all_words_of_a_schema_hold),
        cmocka_unit_test(values_obey_what_stands_beside_them),
        cmocka_unit_test(additional_and_unevaluated_properties_are_obeyed),
        cmocka_unit_test(sets_of_patterns_are_exact),
        cmocka_unit_test(tuples_of_earlier_drafts_are_read),
        cmocka_unit_test(times_are_those_of_rfc_3339),
        cmocka_unit_test(dates_are_those_of_the_calendar),
        cmocka_unit_test(numbers_keep_to_their_bounds),
        cmocka_unit_test(integers_keep_to_their_bounds),
        cmocka_unit_test(what_is_no_schema_is_refused),
        cmocka_unit_test(a_schema_that_only_refers_to_itself_is_named),
        cmocka_unit_test(a_schema_may_refer_to_itself_further_in),
        cmocka_unit_test(what_is_obeyed_is_not_told),
        cmocka_unit_test(what_is_not_obeyed_is_told),
        cmocka_unit_test(bounds_beyond_what_a_grammar_counts_are_told),
        cmocka_unit_test(what_is_not_obeyed_beside_other_words_is_told),
        cmocka_unit_test(nesting_has_a_limit),
        cmocka_unit_test(counts_have_a_limit),
        cmocka_unit_test(refused_allocations_are_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

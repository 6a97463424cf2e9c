/* test_jinja.c: the interpreter of chat templates: constructs, filters, tests and methods against
 * what Python's Jinja2 prints (tests/golden/make_jinja_golden.py), where data goes, hostile
 * templates, and every allocation refused in turn. A further mode, for that script:
 *   test_jinja --render TEMPLATE INPUT.json   prints the text, or the error and exit code 1
 */
// link: wrap-alloc
#include "base/hash.h"
#include "runtime/jinja/jinja.h"
#include "runtime/jinja/jinja_json.h"
#include "tests/lib/alloc_fail.h"

#include <inttypes.h>
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

// 2026-11-21, a Saturday.
static const struct tm NOW = {
    .tm_year = 126, .tm_mon = 10, .tm_mday = 21, .tm_wday = 6, .tm_yday = 324};

static char *read_file(const char *path, size_t *length) {
    FILE *file = fopen(path, "rb");
    if (!file) return NULL;
    char *text = calloc(1, 1 << 22);
    *length = fread(text, 1, (1 << 22) - 1, file);
    fclose(file);
    return text;
}

static int render_files(const char *template_path, const char *input_path) {
    struct err e = {0};
    struct jinja *template = NULL;
    struct jinja_heap heap;
    struct jinja_text out;
    size_t n_source = 0, n_input = 0;
    char *source = read_file(template_path, &n_source), *input = read_file(input_path, &n_input);
    if (!source || !input) return 2;
    jinja_heap_open(&heap, &e);
    const struct jinja_value variables = jinja_from_json(&heap, input, n_input);
    struct err parse_error = {0};
    if (jinja_open(&template, source, n_source, &parse_error) == OK)
        jinja_render(template, &heap, variables, &NOW, &out);
    const struct err *failed = parse_error.status ? &parse_error : &e;
    if (failed->status == OK)
        fwrite(out.bytes, 1, out.length, stdout);
    else
        fprintf(stderr, "%s\n", failed->what);
    const int code = failed->status != OK;
    jinja_close(template);
    jinja_heap_close(&heap);
    free(source);
    free(input);
    return code;
}

// ---- Golden renderings --------------------------------------------------------------------------

// Renders a source with the members of an object; *e has the status.
static char *render(const char *source, const char *json, struct err *e) {
    struct jinja *template = NULL;
    struct jinja_heap heap;
    struct jinja_text out;
    char *text = NULL;
    if (jinja_open(&template, source, strlen(source), e) != OK) return NULL;
    jinja_heap_open(&heap, e);
    const struct jinja_value variables = jinja_from_json(&heap, json, strlen(json));
    if (jinja_render(template, &heap, variables, &NOW, &out) == OK) {
        text = calloc(out.length + 1, 1);
        memcpy(text, out.bytes, out.length);
    }
    jinja_close(template);
    jinja_heap_close(&heap);
    return text;
}

static void hash(const char *text, char out[17]) {
    snprintf(out, 17, "%016" PRIx64, hash_more(HASH_OF_NOTHING, text, strlen(text)));
}

static void check_file(const json_t *line, char *inputs[], int n_inputs) {
    char path[256], actual[17];
    size_t length;
    struct err e;
    const char *name = json_string_value(json_object_get(line, "file"));
    snprintf(path, sizeof path, "tests/golden/templates/%s", name);
    char *source = read_file(path, &length);
    assert_non_null(source);
    for (int i = 0; i < n_inputs; i++) {
        const json_t *expected = json_array_get(json_object_get(line, "hashes"), (size_t)i);
        if (json_is_null(expected)) continue; // Python refused it
        char *text = render(source, inputs[i], &e);
        if (!text) fail_msg("%s, conversation %d: %s", name, i, e.what);
        hash(text, actual);
        if (strcmp(actual, json_string_value(expected)) != 0)
            fail_msg("%s, conversation %d: differs from Jinja2", name, i);
        free(text);
    }
    free(source);
}

static void check_snippet(const json_t *line, const char *data) {
    struct err e;
    const char *source = json_string_value(json_object_get(line, "source"));
    char *text = render(source, data, &e);
    if (!text) fail_msg("%s: %s", source, e.what);
    assert_string_equal(text, json_string_value(json_object_get(line, "text")));
    free(text);
}

static void check_golden(void **state) {
    (void)state;
    FILE *file = fopen("tests/golden/jinja.jsonl", "r");
    assert_non_null(file);
    char *line = NULL, *data = NULL, *inputs[8];
    size_t size = 0;
    int n_inputs = 0, n_files = 0, n_snippets = 0;
    while (getline(&line, &size, file) > 0) {
        json_t *json = json_loads(line, 0, NULL);
        assert_non_null(json);
        if (json_object_get(json, "data")) {
            data = json_dumps(json_object_get(json, "data"), 0);
        } else if (json_object_get(json, "input")) {
            inputs[n_inputs++] = json_dumps(json_object_get(json, "input"), 0);
        } else if (json_object_get(json, "file")) {
            check_file(json, inputs, n_inputs);
            n_files++;
        } else {
            check_snippet(json, data);
            n_snippets++;
        }
        json_decref(json);
    }
    assert_true(n_inputs == 5 && n_files >= 20 && n_snippets >= 50);
    while (n_inputs > 0) free(inputs[--n_inputs]);
    free(data);
    free(line);
    fclose(file);
}

// ---- Data ---------------------------------------------------------------------------------------

// Every x and y of the output must be data, every L a literal.
static void check_marks(const char *source) {
    struct jinja *template;
    struct jinja_heap heap;
    struct jinja_text out;
    struct err e;
    static const char json[] = "{\"s\": \" xy \", \"d\": {\"yx\": \"xyx\"}, \"l\": [\"x\", \"y\"]}";
    assert_int_equal(jinja_open(&template, source, strlen(source), &e), OK);
    jinja_heap_open(&heap, &e);
    const struct jinja_value variables = jinja_from_json(&heap, json, strlen(json));
    if (jinja_render(template, &heap, variables, &NOW, &out) != OK) fail_msg("%s", e.what);
    bool data = false;
    for (uint32_t i = 0; i < out.length; i++) {
        const bool mark = jinja_text_is_data(jinja_text_part(out, i, 1));
        const char c = out.bytes[i];
        if (strchr("xyXY", c) && !mark) fail_msg("%s: byte %u is no data", source, i);
        if (c == 'L' && mark) fail_msg("%s: byte %u is data", source, i);
        data |= mark;
    }
    if (!data) fail_msg("%s: no data", source);
    jinja_close(template);
    jinja_heap_close(&heap);
}

static void check_data(void **state) {
    (void)state;
    static const char *const sources[] = {
        "L{{ s }}L",
        "{{ 'L' + s + 'L' }}",
        "{{ 'L' | safe + s + '<L' }}",
        "{{ 'L' ~ s ~ 1 }}",
        "{{ ('L' + s).strip() + 'L' }}",
        "{{ ('L' + s + 'L').split('L') | join('L') }}",
        "{{ ('L' + s).replace(' ', 'L') }}",
        "{{ s.replace('x', 'L') }}",
        "{{ 'aLa'.replace('a', s) }}",
        "{{ ('l' + s) | upper }}",
        "{{ ('L' + s)[::-1] }}",
        "{{ ('L' + s)[1:] }}{{ s[1] }}",
        "{{ ('L' + s).split() | last }}",
        "{{ l | join('L') }}",
        "{{ l }}{{ d | tojson }}{{ d }}",
        "{% for k, v in d.items() %}L{{ k }}L{{ v }}{% endfor %}",
        "{% for c in 'L' + s %}{{ c }}{% endfor %}",
        "{% set a %}L{{ s }}{% endset %}{{ a }}",
        "{% macro f(a) %}L{{ a }}{% endmacro %}{{ f(s) }}{{ f('L' + s) | trim }}",
        "{% filter upper %}l{{ s }}{% endfilter %}",
        "{{ ('L\n' + s + '\nL') | indent(2) }}",
        "{{ 'L{}L'.format(s) }}",
        "{{ s * 2 }}{{ 'L' * 2 }}",
        "{{ s | default('L') }}{{ nothing | default('L') }}",
        "{{ ('L' + s).splitlines() | first }}",
        "{{ (s + 'L') | capitalize | replace('l', 'L') }}",
        "{{ '[\"x\"]' | from_json }}",
    };
    for (size_t i = 0; i < sizeof sources / sizeof *sources; i++) check_marks(sources[i]);
}

// ---- Errors -------------------------------------------------------------------------------------

static void expect_error(const char *source, const char *what) {
    struct err e = {0};
    char *text = render(source, "{\"s\": \"text\", \"l\": [1]}", &e);
    if (text) fail_msg("%s: no error", source);
    assert_int_equal(e.status, ERR_FORMAT);
    if (!strstr(e.what, what)) fail_msg("%s: %s", source, e.what);
}

static void check_errors(void **state) {
    (void)state;
    static const struct {
        const char *source, *what;
    } cases[] = {
        {"a\nb {{ s", "line 2: a tag has no end"},
        {"{{ 'x }}", "a string has no end"},
        {"{{ '\\Uffffffff' + 1 }}", "is not possible"},
        {"{# x", "a comment has no end"},
        {"{% if s %}", "endif"},
        {"{% for x in l %}{% else %}", "endfor"},
        {"{% endif %}", "the tag {% endif %} is not known"},
        {"{% include 'x' %}", "include"},
        {"{{ }}", "an expression is expected"},
        {"{{ s s }}", "}} is expected"},
        {"{{ (1 }}", "a bracket has no partner"},
        {"{{ s ? 1 }}", "unexpected character"},
        {"{{ 99999999999999999999 }}", "too large"},
        {"{{ s | nofilter }}", "there is no filter nofilter"},
        {"{{ s is notest }}", "there is no test notest"},
        {"{{ nothing() }}", "nothing() is called, but it is undefined"},
        {"{{ s.nothing() }}", "it is undefined"},
        {"{{ nothing + 'x' }}", "+ is not possible between undefined and str"},
        {"{{ 1 / 0 }}", "divided by 0"},
        {"{{ 1 < 'x' }}", "have no order"},
        {"{{ 9223372036854775807 + 1 }}", "too large"},
        {"{{ -9223372036854775807 - 2 }}", "too large"},
        {"{{ 10 ** 30 }}", "too large"},
        {"{% for x in 1 %}{% endfor %}", "int cannot be iterated"},
        {"{% for a, b in [[1]] %}{% endfor %}", "1 value does not fit"},
        {"{% set s.x = 1 %}", "only attributes of a namespace"},
        {"{{ raise_exception('no ' + s) }}", "refuses the conversation: no text"},
        {"{{ '{' | from_json }}", "JSON"},
        {"{{ range | tojson }}", "cannot be written as JSON"},
        {"{{ strftime_now('%9999999d') }}", "too long"},
        {"{{ 'x'.split('') }}", "empty separator"},
        {"{{ [1].pop(4) }}", "outside"},
        {"{{ l[::0] }}", "step 0"},
        {"{{ dict([[1]]) }}", "no pair"},
        {"{{ 9223372036854775807 | round(-1) }}", "too large"},
        {"{{ '9223372036854775808' | int }}", "too large"},
        {"{{ 1.5 | round(0, 'up') }}", "common, ceil or floor"},
        {"{{ dict(1) }}", "cannot be iterated"},
        {"{% macro f() %}{% endmacro %}{{ f(1) }}", "more arguments"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        expect_error(cases[i].source, cases[i].what);
}

// A source with a part that comes n times.
static void expect_error_many(const char *first, const char *part, int n, const char *last) {
    const size_t length = strlen(part);
    char *source = calloc(strlen(first) + length * (size_t)n + strlen(last) + 1, 1);
    char *end = stpcpy(source, first);
    for (int i = 0; i < n; i++) end = stpcpy(end, part);
    strcpy(end, last);
    expect_error(source, n > 1000 ? "deeper than" : "");
    free(source);
}

// Each of these would take for ever, or all memory, or the stack.
static void check_hostile(void **state) {
    (void)state;
    static const char *const sources[] = {
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{% macro f(n) %}{{ f(n) ~ f(n) }}{% endmacro %}{{ f(1) }}",
        "{% set ns = namespace(s='x') %}{% for i in range(99) %}{% set ns.s = ns.s + ns.s %}"
        "{% endfor %}",
        "{{ 'x' * 99999999999 }}",
        "{{ [1] * 99999999999 }}",
        "{% set a = 'x' * 9999999 %}{% for i in range(9999) %}{{ a | upper }}{% endfor %}",
        "{% set a = 'x' * 9999999 %}{% for i in range(9999) %}{% set b = a.split('y') %}"
        "{{ b | length }}{% endfor %}",
        "{% set a = 'x' * 9999999 %}{% for i in range(9999) %}{% if a == a + '' %}{% endif %}"
        "{% endfor %}",
        "{% set a = 'x' * 9999999 %}{% for i in range(9999) %}{% if a.find('xxy') %}{% endif %}"
        "{% endfor %}",
        "{% set a = range(99999) | list %}{% for i in a %}{% if -1 in a %}{% endif %}{% endfor %}",
        "{% set l2 = [] %}{% set _ = l2.append(l2) %}{{ l2 }}",
        "{% set l2 = [] %}{% set _ = l2.append(l2) %}{{ l2 | tojson }}",
        "{% set l2 = [] %}{% set _ = l2.append(l2) %}{% set m = [] %}{% set _ = m.append(m) %}"
        "{{ l2 == m }}",
        "{% set m = [0] %}{% for x in range(999999999) %}{% endfor %}",
        "{{ range(99999) | map('string') | map('upper') | list | tojson(indent=99999) }}",
        "{{ 'a' | indent(9999999999, true) }}",
        "{{ range(99999) | sort(reverse=true) | list | length }}",
        "{{ ['x'] | map('map', 'map', 'map') | list }}{{ 1 + 'x' }}",
        "{% for i in range(99999) %}{{ 'x' * 999 }}{% endfor %}",
    };
    for (size_t i = 0; i < sizeof sources / sizeof *sources; i++) expect_error(sources[i], "");
    expect_error_many("{{ ", "(", 100000, "");
    expect_error_many("{{ ", "-", 100000, "1 }}");
    expect_error_many("{{ ", "not ", 100000, "1 }}");
    expect_error_many("{{ 1", " + 1", 100000, " }}");
    expect_error_many("{{ s", "[0]", 100000, " }}");
    expect_error_many("{{ s", "|trim", 100000, " }}");
    expect_error_many("{{ 1", " if 1 else 1", 70000, " }}");
    expect_error_many("", "{% if 1 %}", 70000, "");
    expect_error_many("{% filter trim", "|trim", 70000, " %}{% endfilter %}");
}

// ---- Allocations --------------------------------------------------------------------------------

static void check_refused_allocations(void **state) {
    (void)state;
    static const char source[] =
        "{% macro f(a, b=1) %}{{ a }}{{ caller() }}{% endmacro %}{% set ns = namespace(a=[]) %}"
        "{% for x in l %}{% call f(x) %}{{ x ~ 'y' }}{% endcall %}{% set ns.a = ns.a + [x] %}"
        "{% endfor %}{{ ns.a | tojson }}{{ 'x' * 100000 }}{{ s.split('e') | join | upper }}";
    for (int64_t n = 1;; n++) {
        struct err e = {0};
        alloc_fail_at(n);
        char *text = render(source, "{\"s\": \"text\", \"l\": [1, 2]}", &e);
        if (!alloc_fail_happened()) {
            assert_non_null(text);
            assert_true(n > 3);
            free(text);
            break;
        }
        assert_null(text);
        assert_int_equal(e.status, ERR_MEMORY);
    }
    alloc_fail_at(0);
}

int main(int argc, char **argv) {
    if (argc == 4 && strcmp(argv[1], "--render") == 0) return render_files(argv[2], argv[3]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(check_golden),
        cmocka_unit_test(check_data),
        cmocka_unit_test(check_errors),
        cmocka_unit_test(check_hostile),
        cmocka_unit_test(check_refused_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

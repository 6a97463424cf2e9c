/* test_grammar.c: tests of runtime/grammar/grammar.h: which texts grammars allow, as a whole, in
 * pieces and many of them at once (grammar_walk.h), wrong and hostile grammars, refused
 * allocations.
 */
// link: wrap-alloc
#include "base/mem.h"
#include "runtime/grammar/grammar.h"
#include "runtime/grammar/grammar_walk.h"
#include "tests/lib/alloc_fail.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

struct language {
    struct grammar grammar;
    struct grammar_state state;
};

static void open_language(struct language *l, const char *text) {
    struct err e;
    if (grammar_parse(&l->grammar, text, strlen(text), "root", &e))
        fail_msg("%s: %s", text, e.what);
    if (grammar_state_open(&l->state, &l->grammar, &e)) fail_msg("%s: %s", text, e.what);
}

static void close_language(struct language *l) {
    grammar_state_close(&l->state);
    grammar_close(&l->grammar);
}

// True if text is a whole text of the language; it is taken in pieces of so many bytes.
static bool is_in(struct language *l, const char *text, size_t piece) {
    const size_t length = strlen(text);
    struct err e;
    grammar_state_reset(&l->state);
    for (size_t at = 0; at < length; at += piece) {
        const size_t n = length - at < piece ? length - at : piece;
        const bool allowed = grammar_allows(&l->state, text + at, n);
        assert_int_equal(grammar_accept(&l->state, text + at, n, &e) == OK, allowed);
        if (!allowed) return false;
    }
    return grammar_can_end(&l->state);
}

struct language_case {
    const char *grammar;
    const char *in[6], *out[6];
};

static void texts_are_in_the_language_or_not(void **state) {
    (void)state;
    static const struct language_case cases[] = {
        {"root ::= \"abc\"", {"abc"}, {"", "ab", "abcd", "abd"}},
        {"root ::= \"\"", {""}, {"a"}},
        {"root ::= [a-c]+", {"a", "abccba"}, {"", "d", "abd"}},
        {"root ::= [^a-c\\n]", {"d", "\xc3\xa4", "\xf0\x9f\x98\x80"}, {"a", "b", "\n", "dd"}},
        {"root ::= .", {"x", "\n", "\xe2\x82\xac"}, {"", "xy"}},
        {"root ::= \"a\"* \"b\"?", {"", "aaa", "aab", "b"}, {"abb", "ba"}},
        {"root ::= \"ab\"{2}", {"abab"}, {"ab", "ababab", "aba"}},
        {"root ::= \"ab\"{1,3}", {"ab", "ababab"}, {"", "abababab"}},
        {"root ::= \"a\"{2,}", {"aa", "aaaaaa"}, {"", "a"}},
        {"root ::= \"a\"{0,2} \"b\"", {"b", "aab"}, {"aaab"}},
        {"root ::= \"x\"{0} \"y\"", {"y"}, {"xy"}},
        {"root ::= \"a\" | \"b\" |\n  \"c\"", {"a", "b", "c"}, {"", "ab"}},
        {"root ::= (\"a\" |\n \"b\" # or\n)+ \"c\"", {"ac", "babc"}, {"c", "ab"}},
        {"root ::= item (\",\" item)*\nitem ::= [0-9]+\n", {"1", "12,3,45"}, {"", ",", "1,"}},
        {"# nested\nroot ::= \"(\" root \")\" | \"x\"", {"x", "((x))"}, {"(x", "x)", "()"}},
        {"root ::= a b\r\na ::= \"1\"?\r\nb ::= \"2\"", {"2", "12"}, {"1", "112"}},
        {"root ::= \"\\x41\\u00e4\\U0001F600\\\"\\\\\"", {"A\xc3\xa4\xf0\x9f\x98\x80\"\\"}, {"A"}},
        {"root ::= [\\]\\-x-z]+", {"]-xyz"}, {"w"}},
        {"root ::= [a-]+", {"a-a"}, {"b"}},
        {"root ::= s s\ns ::= \"a\" | \"aa\"", {"aa", "aaa", "aaaa"}, {"a", "aaaaa"}},
        {"root ::= my-rule_2\nmy-rule_2 ::= \"k\"", {"k"}, {"K"}},
        {"root ::= [] | []{2} | \"\"", {""}, {"a", "[]"}}, // a grammar without any range
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct language l;
        open_language(&l, cases[i].grammar);
        for (size_t piece = 1; piece < 6; piece++) {
            for (int k = 0; k < 6 && cases[i].in[k]; k++)
                if (!is_in(&l, cases[i].in[k], piece))
                    fail_msg("%s: '%s' is out", cases[i].grammar, cases[i].in[k]);
            for (int k = 0; k < 6 && cases[i].out[k]; k++)
                if (is_in(&l, cases[i].out[k], piece))
                    fail_msg("%s: '%s' is in", cases[i].grammar, cases[i].out[k]);
        }
        close_language(&l);
    }
}

static void unfinished_characters_are_judged_by_what_they_can_become(void **state) {
    (void)state;
    struct language l;
    struct err e;
    open_language(&l, "root ::= [\\u00e0-\\u00ff] [\\u0800-\\u0fff] [\\U00010000-\\U0010FFFF]");
    assert_true(grammar_allows(&l.state, "\xc3", 1));
    assert_false(grammar_allows(&l.state, "\xc2", 1)); // U+0080 to U+00BF
    assert_false(grammar_allows(&l.state, "\xe2", 1));
    assert_false(grammar_allows(&l.state, "\xc3\x9f", 2));
    assert_int_equal(grammar_prefix(&l.state, "\xc3\xa4zz", 4), 2);
    assert_int_equal(grammar_accept(&l.state, "\xc3", 1, &e), OK);
    assert_false(grammar_can_end(&l.state));
    assert_int_equal(grammar_accept(&l.state, "\x9f", 1, &e), ERR_FORMAT); // and nothing changed
    assert_int_equal(grammar_accept(&l.state, "\xa4\xe0", 2, &e), OK);
    assert_false(grammar_allows(&l.state, "\x80", 1)); // an overlong form
    assert_int_equal(grammar_accept(&l.state, "\xa0\x80\xf0", 3, &e), OK);
    assert_false(grammar_allows(&l.state, "\x80", 1));
    assert_true(grammar_allows(&l.state, "\x90\x80\x80", 3));
    close_language(&l);
    open_language(&l, "root ::= .*");
    const char *const bad[] = {"\x80",         "\xc0\x80",         "\xff",
                               "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xe2\x41"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(grammar_allows(&l.state, bad[i], strlen(bad[i])));
    close_language(&l);
}

// ---- Many texts ---------------------------------------------------------------------------------

enum { WALKED = 200, WALKED_BYTES = 1700 };

struct walked {
    char texts[WALKED][WALKED_BYTES];
    size_t lengths[WALKED], fits[WALKED];
};

static uint32_t roll(uint32_t *dice) {
    *dice = *dice * 1103515245 + 12345;
    return *dice >> 8;
}

// Fills texts of up to most bytes of the alphabet; each has its beginning from the one before.
static void roll_texts(struct walked *w, const char *alphabet, size_t most) {
    uint32_t dice = 7;
    for (int i = 0; i < WALKED; i++) {
        const size_t old = i ? w->lengths[i - 1] : 0;
        w->lengths[i] = roll(&dice) % (most + 1);
        bool same = i > 0;
        for (size_t k = 0; k < w->lengths[i]; k++) {
            same = same && k < old && roll(&dice) % 16 != 0;
            const char letter = alphabet[roll(&dice) % strlen(alphabet)];
            w->texts[i][k] = same ? w->texts[i - 1][k] : letter;
        }
    }
}

static size_t shared_bytes(const struct walked *w, int i) {
    size_t same = 0;
    if (i == 0) return 0;
    while (same < w->lengths[i - 1] && same < w->lengths[i] &&
           w->texts[i - 1][same] == w->texts[i][same])
        same++;
    return same;
}

// Compares what a walk says of the texts with what is said of each. Returns how many are allowed.
static int check_walk(struct grammar_walk *walk, struct walked *w) {
    int n_allowed = 0;
    grammar_walk_begin(walk);
    for (int i = 0; i < WALKED; i++)
        w->fits[i] = grammar_walk_prefix(walk, w->texts[i], w->lengths[i], shared_bytes(w, i));
    grammar_walk_end(walk);
    for (int i = 0; i < WALKED; i++) {
        assert_int_equal(w->fits[i], grammar_prefix(walk->state, w->texts[i], w->lengths[i]));
        n_allowed += w->fits[i] == w->lengths[i];
    }
    return n_allowed;
}

static void walks_judge_as_single_texts_are_judged(void **state) {
    (void)state;
    static const struct {
        const char *grammar, *opening, *alphabet;
        size_t most;
    } cases[] = {
        {"root ::= \"\\\"\" ([^\"\\\\\\x00-\\x1f] | \"\\\\\" [nt])* \"\\\"\"", "\"a", "ab\"\\n",
         12},
        {"root ::= [a-m\\u00e4\\u20ac]* [^\\u0800-\\u0fff]*", "a", "az\xc3\xa4\xe2\x82\xac\xf0", 9},
        {"root ::= [\\u00e0-\\u00ff]+", "\xc3", "\xa4\xc3\x9f", 5}, // begins within a character
        // More positions than a walk keeps, by several texts or by one.
        {"root ::= \"a\" [abc]{0,600} | \"b\" [abc]{0,600} | \"c\" [abc]{0,600}", "", "abc", 700},
        {"root ::= \"a\"{0,1500}", "", "a", 1700},
        {"root ::= x*\nx ::= \"a\" x \"b\" | \"a\" x \"c\" | \"a\"", "", "aaab", 40}, // stacks
        {"root ::= \"ab\" | \"abc\" \"d\"?", "", "abcd", 5},
    };
    struct walked *walked = mem_alloc(1, sizeof *walked);
    assert_non_null(walked);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct language l;
        struct grammar_walk w;
        struct err e;
        open_language(&l, cases[i].grammar);
        assert_int_equal(grammar_walk_open(&w, &l.state, &e), OK);
        const char *opening = cases[i].opening;
        assert_int_equal(grammar_accept(&l.state, opening, strlen(opening), &e), OK);
        const uint32_t n_nodes = l.state.n_nodes;
        roll_texts(walked, cases[i].alphabet, cases[i].most);
        const int n = check_walk(&w, walked);
        if (n < 10 || n > WALKED - 10) fail_msg("%s: %d allowed", cases[i].grammar, n);
        assert_int_equal(l.state.n_nodes, n_nodes);
        grammar_walk_close(&w);
        close_language(&l);
    }
    mem_free(walked);
}

static void wrong_grammars_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *grammar, *what;
    } cases[] = {
        {"", "no rule root"},
        {"a ::= \"x\"", "no rule root"},
        {"root ::= b", "rule b is not defined"},
        {"root ::= root \"x\" | \"y\"", "root begins with itself"},
        {"root ::= a\na ::= \"\" b\nb ::= c? root", "begins with itself"},
        {"root ::= (\"a\"?)*", "begins with itself"},
        {"root ::= \"abc", "ends within"},
        {"root ::= [abc", "ends within"},
        {"root ::= (\"a\"", "does not end"},
        {"root ::= \"a\")", "did not begin"},
        {"root ::= *", "nothing stands before"},
        {"root ::= \"a\"**", "nothing stands before"},
        {"root ::= \"a\"{3,2}", "more repetitions"},
        {"root ::= \"a\"{2001}", "2000"},
        {"root ::= \"a\"{0,2001}", "2000"},
        {"root ::= \"a\"{x}", "number is missing"},
        {"root ::= \"a\"{2", "end with }"},
        {"root ::= \"\\q\"", "unknown escape"},
        {"root ::= \"\\xg0\"", "hexadecimal"},
        {"root ::= \"\\U00110000\"", "no character"},
        {"root ::= [z-a]", "before it begins"},
        {"root := \"a\"", "::= is missing"},
        {"root ::= \"a\"\nroot ::= \"b\"", "twice"},
        {"root ::= <think>", "not supported"},
        {"root ::= \"a\"\n\n  %", "line 3"},
        {"root ::= \"\xff\"", "no UTF-8"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct grammar g;
        struct err e;
        const char *text = cases[i].grammar;
        if (!grammar_parse(&g, text, strlen(text), "root", &e)) fail_msg("%s is taken", text);
        if (!strstr(e.what, cases[i].what)) fail_msg("%s: %s", text, e.what);
        assert_null(g.elements);
    }
}

// Stacks of lists do not grow; those of nesting do, until the limit refuses more.
static void hostile_texts_meet_limits(void **state) {
    (void)state;
    struct language l;
    struct err e;
    open_language(&l, "root ::= item*\nitem ::= \"[\" item* \"]\" | \"x\"");
    for (int i = 0; i < 200000; i++) assert_int_equal(grammar_accept(&l.state, "x", 1, &e), OK);
    enum status status = OK;
    int depth = 0;
    for (; depth < 100000 && !status; depth++) status = grammar_accept(&l.state, "[", 1, &e);
    assert_int_equal(status, ERR_LIMIT);
    assert_true(depth > 10000);
    assert_true(grammar_allows(&l.state, "]", 1)); // it can still be closed
    close_language(&l);

    char *text = mem_alloc(400000, 1);
    assert_non_null(text);
    struct grammar g;
    size_t used = (size_t)sprintf(text, "root ::= ");
    for (int i = 0; i < 5000; i++) used += (size_t)sprintf(text + used, "(");
    assert_int_equal(grammar_parse(&g, text, used, "root", &e), ERR_FORMAT); // too deep
    used = (size_t)sprintf(text, "root ::= \"a\"");
    for (int i = 0; i < 2; i++) used += (size_t)sprintf(text + used, " (\"b\"{2000} \"c\"){2000}");
    assert_int_equal(grammar_parse(&g, text, used, "root", &e), OK); // groups are not copied
    grammar_close(&g);
    used = (size_t)sprintf(text, "root ::= \"a\"");
    for (int i = 0; i < 2000; i++) used += (size_t)sprintf(text + used, " | \"a\" r%d", i);
    for (int i = 0; i < 2000; i++) used += (size_t)sprintf(text + used, "\nr%d ::= [^\"]*", i);
    assert_int_equal(grammar_parse(&g, text, used, "root", &e), OK);
    struct grammar_state s; // 2000 stacks at once, then nothing that grows
    assert_int_equal(grammar_state_open(&s, &g, &e), OK);
    for (int i = 0; i < 100; i++) assert_int_equal(grammar_accept(&s, "a", 1, &e), OK);
    grammar_state_close(&s);
    grammar_close(&g);
    used = 0;
    for (int i = 0; i < 60; i++)
        used += (size_t)sprintf(text + used, "r%d ::= r%d{2000}\n", i, i + 1);
    sprintf(text + used, "r60 ::= \"a\"\nroot ::= r0{2000}");
    assert_int_equal(grammar_parse(&g, text, strlen(text), "root", &e), OK);
    grammar_close(&g);
    mem_free(text);
}

static void refused_allocations_are_errors(void **state) {
    (void)state;
    static const char text[] = "root ::= (\"ab\" | [c-f] x){2,3}\nx ::= \"\" | \"y\"+";
    bool refused = true;
    for (int64_t n = 1; refused; n++) {
        struct language l = {0};
        struct err e;
        enum status status = OK;
        alloc_fail_at(n);
        if (grammar_parse(&l.grammar, text, strlen(text), "root", &e) ||
            grammar_state_open(&l.state, &l.grammar, &e))
            status = e.status;
        refused = alloc_fail_happened();
        alloc_fail_at(0);
        assert_int_equal(status, refused ? ERR_MEMORY : OK);
        assert_true(n < 100);
        close_language(&l);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_are_in_the_language_or_not),
        cmocka_unit_test(unfinished_characters_are_judged_by_what_they_can_become),
        cmocka_unit_test(walks_judge_as_single_texts_are_judged),
        cmocka_unit_test(wrong_grammars_are_refused),
        cmocka_unit_test(hostile_texts_meet_limits),
        cmocka_unit_test(refused_allocations_are_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* test_constraint.c: tests of runtime/generate/constraint.h: the tokens that a grammar allows, one
 * by one and as a mask, over the vocabulary of a tiny model. */
// link: wrap-alloc
#include "base/mem.h"
#include "runtime/generate/constraint.h"
#include "runtime/gguf/gguf.h"
#include "tests/lib/alloc_fail.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

enum { VOCAB = 320 }; // more columns than tokens

struct fixture {
    struct gguf gguf;
    struct tokenizer *tokenizer;
    struct constraint constraint;
};

static int setup(void **state) {
    static struct fixture f;
    struct err e;
    f = (struct fixture){0};
    assert_int_equal(gguf_open(&f.gguf, "tests/golden/tiny/experts_mixed.gguf", &e), OK);
    assert_int_equal(tokenizer_open(&f.tokenizer, &f.gguf, NULL, &e), OK);
    assert_true(tokenizer_count(f.tokenizer) < VOCAB);
    *state = &f;
    return 0;
}

static int teardown(void **state) {
    struct fixture *f = *state;
    constraint_close(&f->constraint);
    tokenizer_close(f->tokenizer);
    gguf_close(&f->gguf);
    return 0;
}

static void open_grammar(struct fixture *f, const char *grammar) {
    struct err e;
    constraint_close(&f->constraint);
    if (constraint_open(&f->constraint, grammar, "root", f->tokenizer, VOCAB, &e))
        fail_msg("%s", e.what);
}

static int32_t token_of(const struct fixture *f, const char *piece) {
    const int32_t token = tokenizer_find(f->tokenizer, piece, strlen(piece));
    assert_true(token >= 0);
    return token;
}

// Compares the mask with what is said of each token. Returns how many are allowed.
static int check_mask(struct fixture *f) {
    float logits[VOCAB];
    int n = 0;
    for (int i = 0; i < VOCAB; i++) logits[i] = (float)i;
    const float *masked = constraint_mask(&f->constraint, logits);
    for (int32_t i = 0; i < VOCAB; i++) {
        const bool allowed = constraint_allows(&f->constraint, i);
        n += allowed;
        if (!masked) assert_false(allowed);
        if (masked) assert_true(allowed ? masked[i] == (float)i : masked[i] == -INFINITY);
    }
    return n;
}

static void masks_hold_what_is_allowed(void **state) {
    struct fixture *f = *state;
    struct err e;
    open_grammar(f, "root ::= \"the\" \" the\"? [in]+");
    const int32_t t = token_of(f, "t"), the = token_of(f, "\u0120the"), he = token_of(f, "he");
    assert_true(constraint_allows(&f->constraint, t));
    assert_false(constraint_allows(&f->constraint, the));
    assert_int_equal(check_mask(f), 1); // there is no "the" and no "th"
    assert_int_equal(constraint_accept(&f->constraint, t, &e), OK);
    assert_int_equal(check_mask(f), 3); // "h", "he", "hen"
    assert_int_equal(constraint_accept(&f->constraint, he, &e), OK);
    assert_true(constraint_allows(&f->constraint, the));
    check_mask(f);
    assert_int_equal(constraint_accept(&f->constraint, the, &e), OK);
    assert_int_equal(constraint_accept(&f->constraint, the, &e), ERR_FORMAT);
    check_mask(f);
    assert_int_equal(constraint_begin(&f->constraint, "", &e), OK);
    assert_int_equal(check_mask(f), 1);
}

static void the_end_is_allowed_where_a_text_may_end(void **state) {
    struct fixture *f = *state;
    struct err e;
    const int32_t end = tokenizer_eos(f->tokenizer);
    open_grammar(f, "root ::= \"a\"{2}");
    const int32_t a = token_of(f, "a");
    for (int i = 0; i < 2; i++) {
        assert_false(constraint_allows(&f->constraint, end));
        assert_int_equal(constraint_accept(&f->constraint, a, &e), OK);
    }
    assert_true(constraint_allows(&f->constraint, end));
    assert_false(constraint_allows(&f->constraint, a));
    assert_int_equal(check_mask(f), 1);
}

// Accepts a text, a token for each of its letters.
static void accept_letters(struct fixture *f, const char *text) {
    for (; *text; text++) {
        const char letter[] = {*text, 0};
        struct err e;
        assert_int_equal(constraint_accept(&f->constraint, token_of(f, letter), &e), OK);
    }
}

// A grammar that allows the marks of thoughts as text does not let a text end within one.
static void no_text_ends_within_a_thought(void **state) {
    struct fixture *f = *state;
    struct err e;
    const int32_t end = tokenizer_eos(f->tokenizer);
    open_grammar(f, "root ::= [^!]*");
    f->constraint.style.thoughts = chat_marks_find("</think>", 8);
    for (int opened = 0; opened < 2; opened++) {
        assert_int_equal(constraint_begin(&f->constraint, opened ? "<think>" : "", &e), OK);
        assert_int_equal(constraint_allows(&f->constraint, end), !opened);
        if (!opened) accept_letters(f, "<think>");
        accept_letters(f, "a</thin");
        assert_false(constraint_allows(&f->constraint, end));
        check_mask(f);
        accept_letters(f, "k>");
        assert_true(constraint_allows(&f->constraint, end));
        accept_letters(f, "<think>"); // behind a thought this is text
        assert_true(constraint_allows(&f->constraint, end));
        check_mask(f);
    }
    assert_int_equal(constraint_begin(&f->constraint, "", &e), OK);
    accept_letters(f, "a<think>");
    assert_true(constraint_allows(&f->constraint, end));
}

// Tokens of single bytes build up characters.
static void characters_may_come_in_parts(void **state) {
    struct fixture *f = *state;
    struct err e;
    open_grammar(f, "root ::= \"\\u20ac\"");
    assert_int_equal(check_mask(f), 1); // 0xE2
    const int32_t first = token_of(f, "\u00e2");
    assert_true(constraint_allows(&f->constraint, first));
    assert_int_equal(constraint_accept(&f->constraint, first, &e), OK);
    assert_int_equal(check_mask(f), 1); // 0x82
}

static void nothing_may_be_allowed(void **state) {
    struct fixture *f = *state;
    float logits[VOCAB] = {0};
    open_grammar(f, "root ::= [^\\x00-\\U0010FFFF]");
    assert_int_equal(check_mask(f), 0);
    assert_null(constraint_mask(&f->constraint, logits));
}

static void refused_allocations_are_errors(void **state) {
    struct fixture *f = *state;
    bool refused = true;
    for (int64_t n = 1; refused; n++) {
        struct err e;
        struct constraint c;
        alloc_fail_at(n);
        const enum status status =
            constraint_open(&c, "root ::= \"a\"*", "root", f->tokenizer, VOCAB, &e);
        refused = alloc_fail_happened();
        alloc_fail_at(0);
        assert_int_equal(status, refused ? ERR_MEMORY : OK);
        assert_true(n < 100);
        constraint_close(&c);
    }
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(masks_hold_what_is_allowed),    TEST(the_end_is_allowed_where_a_text_may_end),
        TEST(no_text_ends_within_a_thought), TEST(characters_may_come_in_parts),
        TEST(nothing_may_be_allowed),        TEST(refused_allocations_are_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

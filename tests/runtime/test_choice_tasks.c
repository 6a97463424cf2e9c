/* test_choice_tasks.c: tests of runtime/commands/choice_tasks.h, twister.h, hellaswag.h,
 * winogrande.h, multiple_choice.h and choice_tokens.h: what files mean, and what is refused. */
// link: wrap-alloc
#include "runtime/commands/choice_tokens.h"
#include "runtime/commands/hellaswag.h"
#include "runtime/commands/multiple_choice.h"
#include "runtime/commands/twister.h"
#include "runtime/commands/winogrande.h"
#include "tests/lib/alloc_fail.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#define TINY "tests/golden/tiny/converted_llama.gguf"

typedef enum status read_fn(struct choice_tasks *out, const char *text, size_t length,
                            struct err *e);

static void assert_words(struct words w, const char *text) {
    if (w.length != strlen(text) || (w.length && memcmp(w.bytes, text, w.length) != 0))
        fail_msg("'%.*s' is not '%s'", (int)w.length, w.bytes, text);
}

// The file is refused with a message that holds text.
static void refuses(read_fn *read, const char *bytes, size_t size_bytes, const char *text) {
    struct choice_tasks t = {0};
    struct err e = {0};
    char line[1024];
    assert_int_equal(read(&t, bytes, size_bytes, &e), ERR_FORMAT);
    err_text(&e, line, sizeof line);
    if (!strstr(line, text)) fail_msg("'%s' does not say '%s'", line, text);
    choice_tasks_close(&t);
}
#define REFUSES(read, file, text) refuses(read, file, strlen(file), text)

static void reads_hellaswag(void **state) {
    (void)state;
    static const char file[] = "A\n3\na\nb\n\nd\nB b\r\n0\r\ne\r\nf\r\ng\r\nh\r\n\r\n\n";
    struct choice_tasks t = {0};
    struct err e;
    assert_int_equal(hellaswag_read(&t, file, sizeof file - 1, &e), OK);
    assert_true(t.n_tasks == 2 && t.n_choices == 8);
    assert_words(t.tasks[0].before, "A");
    assert_words(t.choices[2].text, ""); // an ending may be empty
    assert_words(t.tasks[1].before, "B b");
    assert_words(t.choices[7].text, "h");
    assert_true(t.tasks[1].first == 4 && t.tasks[1].n == 4 && t.tasks[1].number == 2);
    for (int i = 0; i < 8; i++) assert_int_equal(t.choices[i].is_right, i == 3 || i == 4);
    choice_tasks_close(&t);
    REFUSES(hellaswag_read, "A\n0\na\nb\nc\nd\nB\n1\na\n", "line 9: the file ends within task 2");
    REFUSES(hellaswag_read, "A\n0\na\nb\nc\n\n", "expected 6 lines for each task, got 5");
    REFUSES(hellaswag_read, "A", "got 1");
    REFUSES(hellaswag_read, "A\n4\na\nb\nc\nd\n", "line 2: the number of the right ending is none");
    REFUSES(hellaswag_read, "A\n10\na\nb\nc\nd\n", "expected 0 to 3, got '10'");
    REFUSES(hellaswag_read, "A\n\na\nb\nc\nd\n", "got ''");
    assert_int_equal(hellaswag_read(&t, "\n\r\n", 3, &e), OK);
    assert_true(t.n_tasks == 0);
}

static void reads_winogrande(void **state) {
    (void)state;
    static const char file[] = "0,Ann saw Bo as _ sat.,Ann,Bo,2\r\n"
                               "1,\"He, \"\"the _\"\", ran_.\",a dog,the cat, 1 \n"
                               "x,_,a,,1,more"; // the last line need not end
    struct choice_tasks t = {0};
    struct err e;
    assert_int_equal(winogrande_read(&t, file, sizeof file - 1, &e), OK);
    assert_true(t.n_tasks == 3 && t.n_choices == 6);
    assert_words(t.tasks[0].before, "Ann saw Bo as ");
    assert_words(t.tasks[0].after, " sat.");
    assert_words(t.choices[1].text, "Bo");
    assert_words(t.tasks[1].before, "He, \"\"the ");
    assert_words(t.tasks[1].after, "\"\", ran_.");
    assert_words(t.choices[2].text, "a dog");
    assert_words(t.tasks[2].before, "");
    assert_words(t.choices[5].text, "");
    for (int i = 0; i < 6; i++) assert_int_equal(t.choices[i].is_right, i == 1 || i == 2 || i == 4);
    choice_tasks_close(&t);
    REFUSES(winogrande_read, "0,a _ b,c,d,1\n0,a _ b,c,d\n", "line 2: the task has not all");
    REFUSES(winogrande_read, "0,\"a _ b,c,d,1\n", "five between commas");
    REFUSES(winogrande_read, "0,a - b,c,d,1\n", "line 1: the sentence has no gap");
    REFUSES(winogrande_read, "0,a _ b,c,d,3\n", "expected 1 or 2, got '3'");
    REFUSES(winogrande_read, "0,a _ b,c,d,12\n", "got '12'");
    REFUSES(winogrande_read, "\n0,a _ b,c,d,1\n", "line 1:");
}

// A file of two tasks.
struct bytes {
    char bytes[256];
    size_t n;
};

static void put_number(struct bytes *f, uint32_t number) {
    memcpy(f->bytes + f->n, &number, sizeof number);
    f->n += sizeof number;
}

static void put_text(struct bytes *f, const char *text) {
    put_number(f, (uint32_t)strlen(text));
    memcpy(f->bytes + f->n, text, strlen(text));
    f->n += strlen(text);
}

static void put_task(struct bytes *f, const char *question, const char *const answers[3],
                     uint32_t right) {
    put_text(f, question);
    put_number(f, 3);
    for (int i = 0; i < 3; i++) put_text(f, answers[i]);
    for (uint32_t i = 0; i < 3; i++) put_number(f, i == right);
    put_number(f, 1); // the second list
    put_text(f, "more");
    put_number(f, 1);
}

static void put_two(struct bytes *f, const char *question, const char *answer, uint32_t right) {
    f->n = 0;
    put_number(f, 2);
    put_number(f, 0); // positions, which are not used
    put_number(f, 0);
    put_task(f, "Q", (const char *const[]){"a", "b", "c"}, 2);
    put_task(f, question, (const char *const[]){"d", answer, "f"}, right);
}

static void reads_multiple_choice(void **state) {
    (void)state;
    struct bytes f;
    struct choice_tasks t = {0};
    struct err e;
    put_two(&f, "R", "e", 0);
    assert_int_equal(multiple_choice_read(&t, f.bytes, f.n, &e), OK);
    assert_true(t.n_tasks == 2 && t.n_choices == 6 && t.tasks[1].first == 3);
    assert_words(t.tasks[1].before, "R");
    assert_words(t.choices[4].text, "e");
    for (int i = 0; i < 6; i++) assert_int_equal(t.choices[i].is_right, i == 2 || i == 3);
    choice_tasks_close(&t);
    for (size_t n = 0; n < f.n; n++) refuses(multiple_choice_read, f.bytes, n, "the file ends");
    refuses(multiple_choice_read, f.bytes, f.n - 1, "task 2: the file ends within the labels");
    put_two(&f, "", "e", 0);
    refuses(multiple_choice_read, f.bytes, f.n, "task 2: the question is empty");
    put_two(&f, "R", "", 0);
    refuses(multiple_choice_read, f.bytes, f.n, "task 2: answer 2 is empty");
    put_two(&f, "R", "e", 3);
    refuses(multiple_choice_read, f.bytes, f.n, "task 2: no answer is the right one");
    f.n = 0;
    for (int i = 0; i < 2; i++) put_number(&f, 1);
    put_text(&f, "Q");
    put_number(&f, 101);
    refuses(multiple_choice_read, f.bytes, f.n, "expected at most 100, got 101");
    f.n = 0;
    put_number(&f, UINT32_MAX);
    put_number(&f, 0);
    refuses(multiple_choice_read, f.bytes, f.n, "within the positions");
}

// The numbers are those of std::mt19937, std::uniform_int_distribution and llama-perplexity's own
// way, by the library of GCC 12.
static void draws_as_llama_does(void **state) {
    (void)state;
    static const int32_t shuffled[] = {8, 19, 13, 17, 0,  2,  6, 18, 3,  5,
                                       1, 10, 7,  11, 12, 15, 9, 16, 14, 4};
    static const int32_t swapped[] = {8, 18, 12, 15, 0, 1, 4, 17, 14, 2};
    struct twister random;
    struct err e;
    twister_init(&random, 5489);
    for (int i = 1; i < 10000; i++) twister_next(&random);
    assert_true(twister_next(&random) == 4123659995U); // as ISO C++ says
    for (int draw = 0; draw < 2; draw++)
        for (int32_t n = 0; n <= 21; n++) {
            struct choice_tasks t = {0};
            for (int i = 0; i < 20; i++)
                assert_int_equal(choice_tasks_add(&t, (struct words){0}, (struct words){0}, &e),
                                 OK);
            assert_int_equal(choice_tasks_draw(&t, n, draw ? DRAW_SHUFFLED : DRAW_IN_ORDER, &e),
                             OK);
            const bool all = n == 0 || n >= 20;
            assert_int_equal(t.n_tasks, all ? 20 : n);
            for (int32_t i = 0; i < t.n_tasks && (draw || all || i < 10); i++)
                assert_int_equal(t.tasks[i].number, 1 + (draw  ? shuffled[i]
                                                         : all ? i
                                                               : swapped[i]));
            choice_tasks_close(&t);
        }
}

struct cut {
    read_fn *read;
    const char *file;
    enum choice_rule rule;
    int32_t common, ranges[2][2]; // of the first two texts; behind BOS, a space, Q and a space
                                  // there is a token for each letter
};

// Reads, draws and cuts a file, with whatever happens.
static enum status take(const struct cut *c, const struct tokenizer *tokenizer,
                        struct choice_tokens *tokens, struct err *e) {
    struct choice_tasks t = {0};
    enum status status = c->read(&t, c->file, strlen(c->file), e);
    if (status == OK) status = choice_tasks_draw(&t, 1, DRAW_SHUFFLED, e);
    if (status == OK) status = choice_tokens_open(tokens, &t, tokenizer, c->rule, e);
    choice_tasks_close(&t);
    return status;
}

static void ranges_and_refused_memory(void **state) {
    (void)state;
    static const struct cut cases[] = {
        {hellaswag_read, "Q\n0\nX\nXXX\nZ\nK\n", CHOICE_ENDINGS, 3, {{4, 5}, {4, 7}}},
        // One ending is the beginning of all others.
        {hellaswag_read, "Q\n0\nX\nXX\nXK\nXJ\n", CHOICE_ENDINGS, 3, {{4, 5}, {5, 6}}},
        {winogrande_read, "0,Q _ZJKV,X,XX,1", CHOICE_SENTENCE, 4, {{5, 8}, {6, 9}}},
        // Few tokens are behind what the sentences have in common.
        {winogrande_read, "0,Q _Z,X,K,1", CHOICE_SENTENCE, 3, {{4, 5}, {4, 5}}},
        {winogrande_read, "0,Q _,X,K,1", CHOICE_SENTENCE, 3, {{4, 5}, {4, 5}}},
    };
    struct gguf gguf = {0};
    struct tokenizer *tokenizer = NULL;
    struct err e = {0};
    assert_int_equal(gguf_open(&gguf, TINY, &e), OK);
    assert_int_equal(tokenizer_open(&tokenizer, &gguf, NULL, &e), OK);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int64_t n = 1;; n++) {
            struct choice_tokens tokens = {0};
            alloc_fail_at(n);
            const enum status status = take(&cases[i], tokenizer, &tokens, &e);
            const bool happened = alloc_fail_happened();
            alloc_fail_at(0);
            assert_int_equal(status, happened ? ERR_MEMORY : OK);
            if (happened) assert_null(tokens.texts);
            for (int k = 0; !happened && k < 2; k++) {
                assert_int_equal(tokens.common[0], cases[i].common);
                assert_int_equal(tokens.texts[k].first, cases[i].ranges[k][0]);
                assert_int_equal(tokens.texts[k].last, cases[i].ranges[k][1]);
            }
            choice_tokens_close(&tokens);
            if (!happened) break;
        }
    tokenizer_close(tokenizer);
    gguf_close(&gguf);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_hellaswag),           cmocka_unit_test(reads_winogrande),
        cmocka_unit_test(reads_multiple_choice),     cmocka_unit_test(draws_as_llama_does),
        cmocka_unit_test(ranges_and_refused_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* subject.c: see subject.h. */
#include "tests/lib/subject.h"

#include "tests/lib/vocab_open.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

enum status subject_try(struct subject *s, const struct vocab_build *v) {
    size_t size;
    *s = (struct subject){0};
    FILE *out = open_memstream(&s->warnings, &size);
    assert_non_null(out);
    struct log log = {.out = out, .level = LOG_INFO};
    enum status status = vocab_open(v, &s->g, &s->t, &log, &s->e);
    fclose(out);
    return status;
}

void subject_open(struct subject *s, const struct vocab_build *v) {
    char text[1024];
    if (subject_try(s, v) != OK) fail_msg("%s", err_text(&s->e, text, sizeof text));
}

void subject_close(struct subject *s) {
    tokenizer_close(s->t);
    gguf_close(&s->g);
    free(s->warnings);
}

const char *subject_ids(struct subject *s, const char *text, size_t length,
                        struct tokenizer_flags flags, char *out) {
    struct token_list list = {0};
    struct err e;
    assert_int_equal(tokenizer_encode(s->t, text, length, flags, &list, &e), OK);
    size_t n = 0;
    out[0] = 0;
    for (uint64_t i = 0; i < list.count; i++)
        n += (size_t)sprintf(out + n, "%s%d", i ? " " : "", list.ids[i]);
    token_list_close(&list);
    return out;
}

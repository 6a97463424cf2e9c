/* subject.h: an open tokenizer of a small vocabulary, and the ids of texts as "1 2 3".
 *
 * A struct subject owns what it opened. For cmocka programs only: what fails unexpectedly ends the
 * test. One thread. Used by the tests of the tokenizer.
 */
#ifndef TANDEM_TESTS_LIB_SUBJECT_H
#define TANDEM_TESTS_LIB_SUBJECT_H

#include "tests/lib/vocab_build.h"

struct subject { // an open tokenizer with what it warned about
    struct gguf g;
    struct tokenizer *t;
    char *warnings; // owned
    struct err e;
};

// Fills *s, which subject_close frees, also after a failure.
enum status subject_try(struct subject *s, const struct vocab_build *v);
void subject_open(struct subject *s, const struct vocab_build *v); // does not fail
void subject_close(struct subject *s);

// The ids of text[length] as "1 2 3", in a buffer of the caller's.
const char *subject_ids(struct subject *s, const char *text, size_t length,
                        struct tokenizer_flags flags, char *out);

#define PLAIN   ((struct tokenizer_flags){.add_special = false})
#define SPECIAL ((struct tokenizer_flags){.parse_special = true})
#define FRAMED  ((struct tokenizer_flags){.add_special = true})

#define assert_ids(subject, text, flags, expected)                                               \
    do {                                                                                         \
        char buffer_[4096];                                                                      \
        assert_string_equal(subject_ids(subject, text, strlen(text), flags, buffer_), expected); \
    } while (0)

#endif

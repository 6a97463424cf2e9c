/* test_tokenizer_golden.c: the ids of 2,900 texts against those of the original tokenizers, for one
 * vocabulary of each family we read. The texts and the hashes of the ids are made by
 * tests/golden/make_tokenizer_golden.py; the vocabularies come from make model and
 * tests/fetch_fixtures.sh. Pre-tokenizers are compared by the words alone, and need none.
 */
#include "base/hash.h"
#include "base/mem.h"
#include "runtime/gguf/gguf.h"
#include "runtime/text/pretokenize.h"
#include "runtime/text/tokenizer.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct vocabulary {
    const char *file, *golden, *get;
    bool parse_special; // sentencepiece never takes control tokens from text
    int n_refused;      // strings with characters that have no token, which Hugging Face leaves out
};

static const struct vocabulary SMOLLM2 = {"models/SmolLM2-135M-Instruct.Q4_1.gguf",
                                          "tests/golden/tokenizer/smollm2.txt", "make model", true,
                                          60};
static const struct vocabulary LLAMA = {"models/fixtures/ggml-vocab-llama-bpe.gguf",
                                        "tests/golden/tokenizer/llama-bpe.txt",
                                        "sh tests/fetch_fixtures.sh", true, 0};
static const struct vocabulary QWEN2 = {"models/fixtures/ggml-vocab-qwen2.gguf",
                                        "tests/golden/tokenizer/qwen2.txt",
                                        "sh tests/fetch_fixtures.sh", true, 0};
static const struct vocabulary GEMMA = {"models/fixtures/gemma-3-270m-vocab.gguf",
                                        "tests/golden/tokenizer/gemma3.txt",
                                        "sh tests/fetch_fixtures.sh", false, 0};
static const struct vocabulary GEMMA4 = {"models/fixtures/ggml-vocab-gemma-4.gguf",
                                         "tests/golden/tokenizer/gemma4.txt",
                                         "sh tests/fetch_fixtures.sh", true, 0};
static const struct vocabulary UNIGRAM = {"tests/golden/tokenizer/unigram.gguf",
                                          "tests/golden/tokenizer/unigram.txt", "git checkout",
                                          false, 0};

// With one more number, as four bytes, the lowest first.
static uint64_t hash_one(uint64_t h, uint32_t number) {
    const uint8_t bytes[] = {(uint8_t)number, (uint8_t)(number >> 8), (uint8_t)(number >> 16),
                             (uint8_t)(number >> 24)};
    return hash_more(h, bytes, sizeof bytes);
}

static uint64_t hash_ids(const struct token_list *list) {
    uint64_t h = HASH_OF_NOTHING;
    for (uint64_t i = 0; i < list->count; i++) h = hash_one(h, (uint32_t)list->ids[i]);
    return h;
}

// The text of one line: "..." or {"text": "...", "times": n}. The caller frees it.
static char *read_text(const char *line, size_t *length) {
    json_error_t error;
    json_t *json = json_loads(line, JSON_DECODE_ANY | JSON_ALLOW_NUL, &error);
    if (!json) fail_msg("%s: %s", line, error.text);
    json_t *unit = json_is_object(json) ? json_object_get(json, "text") : json;
    size_t times =
        json_is_object(json) ? (size_t)json_integer_value(json_object_get(json, "times")) : 1;
    size_t unit_length = json_string_length(unit);
    *length = unit_length * times;
    char *text = malloc(*length + 1);
    assert_non_null(text);
    for (size_t i = 0; i < times; i++)
        memcpy(text + i * unit_length, json_string_value(unit), unit_length);
    json_decref(json);
    return text;
}

static FILE *open_text(const char *path) {
    FILE *file = fopen(path, "r");
    if (!file) fail_msg("%s is missing", path);
    return file;
}

static int check_texts(const struct tokenizer *t, const struct vocabulary *v) {
    FILE *strings = open_text("tests/golden/tokenizer/strings.jsonl");
    FILE *golden = open_text(v->golden);
    char *line = NULL;
    size_t line_size = 0;
    int n = 0, n_wrong = 0, n_refused = 0;
    for (; getline(&line, &line_size, strings) > 0; n++) {
        struct token_list ids = {0};
        struct err e;
        size_t length;
        char *text = read_text(line, &length);
        struct tokenizer_flags flags = {.parse_special = v->parse_special};
        const enum status status = tokenizer_encode(t, text, length, flags, &ids, &e);
        uint64_t count, hash;
        assert_int_equal(fscanf(golden, "%" SCNu64 " %" SCNx64, &count, &hash), 2);
        if (status) {
            assert_non_null(strstr(e.what, "no token of the model stands for the character U+"));
            n_refused++;
        } else if (ids.count != count || hash_ids(&ids) != hash) {
            n_wrong++;
            print_message("%s: line %d, %" PRIu64 " ids instead of %" PRIu64 ": %.200s\n", v->file,
                          n + 1, ids.count, count, line);
        }
        token_list_close(&ids);
        free(text);
    }
    assert_true(n > 2200);
    assert_int_equal(n_refused, v->n_refused);
    free(line);
    fclose(strings);
    fclose(golden);
    return n_wrong;
}

static void check_vocabulary(void **state) {
    const struct vocabulary *v = *state;
    struct gguf g;
    struct tokenizer *t;
    struct err e;
    char text[1024];
    if (gguf_open(&g, v->file, &e) != OK)
        fail_msg("%s (to get it: %s)", err_text(&e, text, sizeof text), v->get);
    struct log log = {.out = stderr, .level = LOG_WARN};
    if (tokenizer_open(&t, &g, &log, &e) != OK) fail_msg("%s", err_text(&e, text, sizeof text));
    assert_int_equal(check_texts(t, v), 0);
    tokenizer_close(t);
    gguf_close(&g);
}

// The hash of the bytes of the words of up to 128 texts, each with a 0 behind it.
static uint64_t hash_words(const struct pretokenizer *p, FILE *strings, char **line, size_t *size) {
    uint64_t h = HASH_OF_NOTHING;
    for (int i = 0; i < 128 && getline(line, size, strings) > 0; i++) {
        struct split_list words = {0};
        struct err e;
        size_t length, first = 0;
        char *text = read_text(*line, &length);
        assert_int_equal(pretokenizer_split(p, text, length, &words, &e), OK);
        for (size_t w = 0; w < words.count; first = words.ends[w++])
            h = hash_one(h, (uint32_t)(words.ends[w] - first));
        h = hash_one(h, 0);
        split_list_close(&words);
        free(text);
    }
    return h;
}

static int check_words_of(const char *name, char *hashes, FILE *strings) {
    struct pretokenizer *p;
    struct err e;
    char *line = NULL, *rest = hashes;
    size_t size = 0;
    int n_wrong = 0;
    assert_int_equal(pretokenizer_open(&p, name, strlen(name), &e), OK);
    rewind(strings);
    for (int block = 0; *rest && *rest != '\n'; block++) {
        uint64_t expected = strtoull(rest, &rest, 16);
        if (hash_words(p, strings, &line, &size) == expected) continue;
        print_message("%s: words of lines %d to %d differ\n", name, block * 128 + 1,
                      block * 128 + 128);
        n_wrong++;
    }
    assert_true(getline(&line, &size, strings) < 0); // no text is left
    free(line);
    pretokenizer_close(p);
    return n_wrong;
}

static void check_words(void **state) {
    (void)state;
    FILE *golden = open_text("tests/golden/tokenizer/words.txt");
    FILE *strings = open_text("tests/golden/tokenizer/strings.jsonl");
    char *line = NULL;
    size_t size = 0;
    int n = 0, n_wrong = 0;
    for (; getline(&line, &size, golden) > 0; n++) {
        char *hashes = strchr(line, ' ');
        assert_non_null(hashes);
        *hashes = 0;
        n_wrong += check_words_of(line, hashes + 1, strings);
    }
    assert_int_equal(n, 26);
    assert_int_equal(n_wrong, 0);
    free(line);
    fclose(strings);
    fclose(golden);
}

#define VOCABULARY(name, v) \
    { name, check_vocabulary, NULL, NULL, (void *)(uintptr_t) & (v) }

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(check_words),
        VOCABULARY("smollm2 agrees with Hugging Face tokenizers", SMOLLM2),
        VOCABULARY("llama-bpe agrees with Hugging Face tokenizers", LLAMA),
        VOCABULARY("qwen2 agrees with Hugging Face tokenizers", QWEN2),
        VOCABULARY("gemma3 agrees with sentencepiece", GEMMA),
        VOCABULARY("unigram agrees with sentencepiece", UNIGRAM),
        VOCABULARY("gemma4 agrees with Hugging Face tokenizers", GEMMA4),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* test_unigram.c: unigram models of SentencePiece: which tokens are the likeliest, the map of the
 * normaliser, and files whose map is broken. The goldens of the sentencepiece library are in
 * test_tokenizer_golden.c.
 */
#include "tests/lib/vocab_open.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

enum { N_UNITS = 512, MAP_BYTES = 4 + 4 * N_UNITS + 4 };

// A map of one entry: A becomes "a b".
static void fill_charsmap(uint8_t *map) {
    const uint32_t size = 4 * N_UNITS;
    const uint32_t units[][2] = {
        {0, 256u << 10},                       // how far the children of the root are
        {256 ^ 'A', 'A' | 1u << 8 | 1u << 10}, // an entry ends here, with its value beside it
        {256 ^ 'A' ^ 1, 1u << 31},             // where its text begins
    };
    memset(map, 0, MAP_BYTES);
    memcpy(map, &size, 4);
    for (int i = 0; i < 3; i++) memcpy(map + 4 + 4 * (size_t)units[i][0], &units[i][1], 4);
    memcpy(map + 4 + size, "a b", 4);
}

static void fill_vocabulary(struct vocab_build *v, const uint8_t *map, size_t n_map) {
    vocab_init_spm(v); // bytes from id 3 on
    v->model = "t5";
    v->charsmap = map;
    v->n_charsmap = n_map;
    vocab_add(v, "a", TOKEN_NORMAL, -2);        // 259
    vocab_add(v, "b", TOKEN_NORMAL, -2);        // 260
    vocab_add(v, "ab", TOKEN_NORMAL, -5);       // 261, less likely than its letters
    vocab_add(v, "\u2581b", TOKEN_NORMAL, -3);  // 262
    vocab_add(v, "abc", TOKEN_UNUSED, -1);      // 263
    vocab_add(v, "<A>", TOKEN_USER_DEFINED, 0); // 264
    vocab_add(v, "aab", TOKEN_NORMAL, -5.5f);   // 265, likelier than its letters
    vocab_key(v, (struct vocab_key){"tokenizer.ggml.eos_token_id", GGUF_U32, 2, NULL});
    vocab_key(v, (struct vocab_key){"tokenizer.ggml.unknown_token_id", GGUF_U32, 0, NULL});
    vocab_key(v, (struct vocab_key){"tokenizer.ggml.remove_extra_whitespaces", GGUF_BOOL, 1, NULL});
}

// Compares the ids of a text with "1 2 3".
static void check_ids(const struct tokenizer *t, const char *text, bool framed, const char *ids) {
    struct token_list list = {0};
    struct err e;
    char out[256] = "";
    size_t n = 0;
    struct tokenizer_flags flags = {.add_special = framed};
    assert_int_equal(tokenizer_encode(t, text, strlen(text), flags, &list, &e), OK);
    for (uint64_t i = 0; i < list.count; i++)
        n += (size_t)snprintf(out + n, sizeof out - n, "%s%d", i ? " " : "", list.ids[i]);
    token_list_close(&list);
    assert_string_equal(out, ids);
}

static void check_likeliest(void **state) {
    (void)state;
    uint8_t map[MAP_BYTES];
    struct vocab_build v;
    struct tokenizer *t;
    struct gguf g;
    struct err e;
    fill_charsmap(map);
    fill_vocabulary(&v, map, sizeof map);
    assert_int_equal(vocab_open(&v, &g, &t, NULL, &e), OK);
    check_ids(t, "ab", false, "259 260");
    check_ids(t, "aab", false, "265");
    check_ids(t, "abc", false, "259 260 102"); // no unused token, and a byte of what is unknown
    check_ids(t, "A", false, "259 262");
    check_ids(t, "<A>A", false, "264 259 262"); // user-defined tokens are not normalised
    check_ids(t, "  a   b  ", false, "259 262");
    check_ids(t, "   ", false, "");
    check_ids(t, "\xff", false, "258");
    check_ids(t, "a", true, "259 2"); // these models end with EOS unless the file says otherwise
    tokenizer_close(t);
    gguf_close(&g);

    v.charsmap = NULL;
    v.n_keys = 0;
    assert_int_equal(vocab_open(&v, &g, &t, NULL, &e), OK);
    check_ids(t, "a  b", false, "229 153 132 259 229 153 132 262"); // with a space in front
    tokenizer_close(t);
    gguf_close(&g);
}

// A character without a token costs ten more than the least likely token.
static void check_unknown(void **state) {
    (void)state;
    struct vocab_build v;
    for (int tenths = 95; tenths <= 105; tenths += 10) {
        struct tokenizer *t;
        struct gguf g;
        struct err e;
        vocab_init_spm(&v);
        v.model = "t5";
        vocab_add(&v, "xy", TOKEN_NORMAL, -20);               // 259
        vocab_add(&v, "y", TOKEN_NORMAL, (float)tenths / 10); // 260
        vocab_key(&v, (struct vocab_key){"tokenizer.ggml.unknown_token_id", GGUF_U32, 0, NULL});
        assert_int_equal(vocab_open(&v, &g, &t, NULL, &e), OK);
        check_ids(t, "xy", false, tenths < 100 ? "259" : "123 260");
        tokenizer_close(t);
        gguf_close(&g);
    }
}

static void check_broken_charsmap(void **state) {
    (void)state;
    uint8_t map[MAP_BYTES];
    struct vocab_build v;
    struct tokenizer *t;
    struct gguf g;
    struct err e;
    fill_charsmap(map);
    for (int size = 1; size < 4 + 4 * N_UNITS; size += 100) {
        fill_vocabulary(&v, map, (size_t)size);
        assert_int_equal(vocab_open(&v, &g, &t, NULL, &e), ERR_FORMAT);
        assert_string_equal(e.what, "tokenizer.ggml.precompiled_charsmap: cut off");
    }
    fill_vocabulary(&v, map, MAP_BYTES - 4); // the entry points to a text that is not there
    assert_int_equal(vocab_open(&v, &g, &t, NULL, &e), OK);
    check_ids(t, "A", false, "68");
    tokenizer_close(t);
    gguf_close(&g);
    v.charsmap = NULL;
    vocab_key(&v, (struct vocab_key){"tokenizer.ggml.precompiled_charsmap", GGUF_U32, 1, NULL});
    assert_int_equal(vocab_open(&v, &g, &t, NULL, &e), ERR_FORMAT);
    assert_string_equal(e.what, "tokenizer.ggml.precompiled_charsmap: wrong type");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(check_likeliest),
        cmocka_unit_test(check_unknown),
        cmocka_unit_test(check_broken_charsmap),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

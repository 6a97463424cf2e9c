/* test_tokenizer.c: splitting, merging, special tokens, decoding and streams on small vocabularies;
 * broken vocabularies; refused allocations. Rules of single families: test_tokenizer_families.c.
 * Real vocabularies: test_tokenizer_golden.c.
 */
// link: wrap-alloc
#include "base/mem.h"
#include "base/utf8.h"
#include "runtime/text/pretokenize.h"
#include "runtime/text/tokenizer.h"
#include "tests/lib/alloc_fail.h"
#include "tests/lib/subject.h"
#include "tests/lib/vocab_open.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---- Words --------------------------------------------------------------------------------------

#define T1 "Hello, I'LL can't  go.\n\n  def f(x1, 12345):\treturn x/2 \n"
#define T2 "camelCaseHTTPServer ÉCOLE naïve नमस्ते 日本語テスト 3.14€ 😀!?\r\n ok  "

static const struct {
    const char *pre, *text, *words; // words: joined by "·", with "_" for a space
} SPLITS[] = {
    {"gpt-2", T1,
     "Hello·,·_I·'·LL·_can·'t·_·_go·.·\n\n_·_def·_f·(·x·1·,·_12345·):·\t·return·_x·/·2·_\n"},
    {"gpt-2", T2,
     "camelCaseHTTPServer·_ÉCOLE·_naïve·_नमस·्·त·े·_日本語テスト·_3·.·14·€·_😀!?·\r\n·_ok·__"},
    {"llama-bpe", T1,
     "Hello·,·_I·'LL·_can·'t·_·_go·.\n\n·_·_def·_f·(x·1·,·_·123·45·):·\treturn·_x·/·2·_\n"},
    {"llama-bpe", T2,
     "camelCaseHTTPServer·_ÉCOLE·_naïve·_नमस·्त·े·_日本語テスト·_·3·.·14·€·_😀!?\r\n·_ok·__"},
    {"qwen2", T1,
     "Hello·,·_I·'LL·_can·'t·_·_go·.\n\n·_·_def·_f·(x·1·,·_·1·2·3·4·5·):·\treturn·_x·/·2·_\n"},
    {"qwen2", T2,
     "camelCaseHTTPServer·_ÉCOLE·_naïve·_नमस·्त·े·_日本語テスト·_·3·.·1·4·€·_😀!?\r\n·_ok·__"},
    {"qwen35", T1,
     "Hello·,·_I·'LL·_can·'t·_·_go·.\n\n·_·_def·_f·(x·1·,·_·1·2·3·4·5·):·\treturn·_x·/·2·_\n"},
    {"qwen35", T2,
     "camelCaseHTTPServer·_ÉCOLE·_naïve·_नमस्ते·_日本語テスト·_·3·.·1·4·€·_😀!?\r\n·_ok·__"},
    {"smollm", T1,
     "Hello·,·_I·'·LL·_can·'t·_·_go·.·\n\n_·_def·_f·(·x·1·,·_·1·2·3·4·5·):·\t·return·_x·/·2·_\n"},
    {"smollm", T2,
     "camelCaseHTTPServer·_ÉCOLE·_naïve·_नमस·्·त·े·_日本語テスト·_·3·.·1·4·€·_😀!?·\r\n·_ok·__"},
    {"tekken", T1,
     "Hello·,·_I·'LL·_can·'t·_·_go·.\n\n·_·_def·_f·(x·1·,·_·1·2·3·4·5·):·\treturn·_x·/·2·_\n"},
    {"tekken", T2,
     "camel·Case·HTTPServer·_ÉCOLE·_naïve·_नमस्ते·_日本語テスト·_·3·.·1·4·€·_😀!?\r\n·_ok·__"},
    {"gpt-4o", T1,
     "Hello·,·_I'LL·_can't·_·_go·.\n\n·_·_def·_f·(x·1·,·_·123·45·):·\treturn·_x·/·2·_\n"},
    {"gpt-4o", T2,
     "camel·Case·HTTPServer·_ÉCOLE·_naïve·_नमस्ते·_日本語テスト·_·3·.·14·€·_😀!?\r\n·_ok·__"},
    {"deepseek-v3", T1,
     "Hello·,·_I·'LL·_can·'t·_·_go·.\n\n·_·_def·_f·(x·1·,·_·123·45·):·\treturn·_x·/·2·_\n"},
    {"deepseek-v3", T2,
     "camelCaseHTTPServer·_ÉCOLE·_naïve·_नमस्ते·_·日本語テスト·_·3·.·14·€·_😀!?\r\n·_ok·__"},
    {"deepseek-llm", "Hi  Éa 12 日本!\n  ", "Hi·_·_É·a·_·1·2·_·日本·!·\n·__"},
    {"deepseek-coder", "Hi  é 12 日本!\n  ", "Hi·_·_é·_·1·2·_·日本·!·\n·__"},
    {"falcon", "a`b 12345+x", "a·`·b·_·123·45·+·x"},
    {"default", "a`b 12345+x", "a·`·b·_·123·45·+·x"},
    {"gpt-2", "a\u180eb", "a·\u180e·b"},    // no white space since Unicode 6.3
    {"llama-bpe", "I'\u017f", "I·'\u017f"}, // the long s is an s in any case
    {"glm4", "1234", "123·4"},
    {"jina-v5-nano", "", ""},
};

static void check_splits(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof SPLITS / sizeof *SPLITS; i++) {
        struct pretokenizer *p;
        struct split_list words = {0};
        struct err e;
        const char *text = SPLITS[i].text;
        assert_int_equal(pretokenizer_open(&p, SPLITS[i].pre, strlen(SPLITS[i].pre), &e), OK);
        assert_int_equal(pretokenizer_split(p, text, strlen(text), &words, &e), OK);
        char joined[512];
        size_t n = 0;
        for (size_t w = 0, at = 0; w < words.count; w++) {
            if (w > 0) n += (size_t)sprintf(joined + n, "·");
            for (; at < words.ends[w]; at++) joined[n++] = text[at] == ' ' ? '_' : text[at];
        }
        joined[n] = 0;
        assert_string_equal(joined, SPLITS[i].words);
        split_list_close(&words);
        pretokenizer_close(p);
    }
}

static const char *const NAMES[] = {
    "llama-bpe", "qwen2",       "qwen35",       "gpt-2",          "smollm",   "tekken",
    "gpt-4o",    "deepseek-v3", "deepseek-llm", "deepseek-coder", "falcon",   "default",
    "dbrx",      "megrez",      "command-r",    "llama4",         "kimi-k2",  "tiny_aya",
    "afmoe",     "exaone-moe",  "youtu",        "jais-2",         "spark2_5", "viking"};
enum { N_NAMES = sizeof NAMES / sizeof *NAMES };

// Random bytes of which most are telling: words are never empty and end where the text ends.
static size_t random_text(uint64_t *seed, char *text, size_t size) {
    static const char *const parts[] = {
        " ",        "\n",       "a", "B",  "1", "'s", "\xff", "\xe2\x96\x81", "\xe6\x97\xa5",
        "\xcc\x81", "\xf0\x9f", ".", "\t", "\0"};
    size_t n = 0;
    while (n + 4 < size) {
        *seed = *seed * 6364136223846793005u + 1442695040888963407u;
        const char *part = parts[(*seed >> 33) % (sizeof parts / sizeof *parts)];
        size_t length = *part ? strlen(part) : 1;
        memcpy(text + n, part, length);
        n += length;
        if ((*seed >> 50) % 40 == 0) break;
    }
    return n;
}

static void check_split_covers(void **state) {
    (void)state;
    uint64_t seed = 1;
    for (size_t name = 0; name < N_NAMES; name++) {
        struct pretokenizer *p;
        struct split_list words = {0};
        struct err e;
        char text[200];
        assert_int_equal(pretokenizer_open(&p, NAMES[name], strlen(NAMES[name]), &e), OK);
        for (int round = 0; round < 200; round++) {
            size_t length = random_text(&seed, text, sizeof text), last = 0;
            assert_int_equal(pretokenizer_split(p, text, length, &words, &e), OK);
            for (size_t w = 0; w < words.count; last = words.ends[w++])
                assert_true(words.ends[w] > last);
            assert_int_equal(last, length);
        }
        split_list_close(&words);
        pretokenizer_close(p);
    }
}

static void check_unknown_name(void **state) {
    (void)state;
    static const char *const names[] = {"", "gpt", "gpt-22", "|gpt-2", "gpt-2|phi-2", "nobody"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct pretokenizer *p;
        struct err e = {0};
        assert_int_equal(pretokenizer_open(&p, names[i], strlen(names[i]), &e), ERR_UNSUPPORTED);
        assert_null(p);
        assert_non_null(strstr(e.expected, "llama-bpe"));
        assert_string_equal(e.actual, names[i]);
        assert_true(e.fix[0]);
    }
}

// ---- Byte-level BPE -----------------------------------------------------------------------------

static void check_merges(void **state) {
    (void)state;
    struct vocab_build v;
    struct subject s;
    vocab_init_bpe(&v);
    vocab_merge(&v, "l l", "ll");           // 256
    vocab_merge(&v, "h e", "he");           // 257
    vocab_merge(&v, "ll o", "llo");         // 258
    vocab_merge(&v, "he llo", "hello");     // 259
    vocab_merge(&v, "e l", "el");           // 260, always too late
    vocab_merge(&v, "a a", "aa");           // 261
    vocab_merge(&v, "aa aa", "aaaa");       // 262
    vocab_merge(&v, "\u0120 h", "\u0120h"); // 263
    subject_open(&s, &v);
    assert_string_equal(s.warnings, "tandem: warning: tokenizer.ggml.eos_token_id is missing; only "
                                    "tokens known by name end a text\n");
    assert_ids(&s, "hello", PLAIN, "259");
    assert_ids(&s, "hell", PLAIN, "257 256");
    assert_ids(&s, "lll", PLAIN, "256 108"); // of equals the leftmost
    assert_ids(&s, "aaaaaaa", PLAIN, "262 261 97");
    assert_ids(&s, " he", PLAIN, "32 257");
    assert_ids(&s, " h", PLAIN, "263");
    assert_ids(&s, "he\xff\nx", PLAIN, "257 255 10 120");
    assert_ids(&s, "", FRAMED, "");
    subject_close(&s);
}

static void check_ignore_merges(void **state) {
    (void)state;
    struct vocab_build v;
    struct subject s;
    vocab_init_bpe(&v);
    vocab_add(&v, "word", TOKEN_NORMAL, 0);     // 256, reached by no merge
    vocab_add(&v, "control", TOKEN_CONTROL, 0); // 257
    vocab_key(&v, (struct vocab_key){"tokenizer.ggml.bos_token_id", GGUF_U32, 257, NULL});
    subject_open(&s, &v);
    assert_ids(&s, "word", PLAIN, "119 111 114 100");
    assert_ids(&s, "a", FRAMED, "97");
    assert_false(tokenizer_adds_bos(s.t));
    subject_close(&s);
    v.pre = "llama-bpe";
    subject_open(&s, &v);
    assert_ids(&s, "word", PLAIN, "256");
    assert_ids(&s, "control", PLAIN, "99 111 110 116 114 111 108");
    assert_ids(&s, "a", FRAMED, "257 97");
    assert_true(tokenizer_adds_bos(s.t));
    subject_close(&s);
}

// Text is never merged into a control token, whose parts stay.
static void check_control_merges(void **state) {
    (void)state;
    struct vocab_build v;
    struct subject s;
    vocab_init_bpe(&v);
    vocab_merge(&v, "c t", "ct");   // 256
    vocab_merge(&v, "ct r", "ctr"); // 257
    v.types[257] = TOKEN_CONTROL;
    subject_open(&s, &v);
    assert_ids(&s, "ctr", PLAIN, "256 114");
    assert_ids(&s, "ctr", SPECIAL, "257");
    subject_close(&s);
    vocab_init_spm(&v);
    vocab_add(&v, "<", TOKEN_NORMAL, -3);  // 259
    vocab_add(&v, "s", TOKEN_NORMAL, -3);  // 260
    vocab_add(&v, ">", TOKEN_NORMAL, -3);  // 261
    vocab_add(&v, "<s", TOKEN_NORMAL, -2); // 262
    subject_open(&s, &v);
    assert_ids(&s, "<s>", PLAIN, "262 261");
    assert_ids(&s, "<s>", SPECIAL, "1");
    subject_close(&s);
}

static void check_normal_form(void **state) {
    (void)state;
    struct vocab_build v;
    struct subject s;
    vocab_init_bpe(&v);
    v.pre = "qwen2";
    subject_open(&s, &v);
    assert_ids(&s, "e\u0301", PLAIN, "195 169"); // U+00E9
    assert_ids(&s,
               "xe\u0301\xff"
               "e\u0301y",
               PLAIN, "120 195 169 255 195 169 121");
    assert_ids(&s, "\u0301", PLAIN, "204 129");
    assert_ids(&s, "e\xcc", PLAIN, "101 204");
    assert_ids(&s, "\u1112\u1161\u11ab", PLAIN, "237 149 156"); // Hangul
    subject_close(&s);
    v.pre = "gpt-2";
    subject_open(&s, &v);
    assert_ids(&s, "e\u0301", PLAIN, "101 204 129");
    subject_close(&s);
}

// The text is refused, and the message has the words.
static void assert_lost(struct subject *s, const char *text, const char *words) {
    struct token_list ids = {0};
    struct err e;
    assert_int_equal(tokenizer_encode(s->t, text, strlen(text), SPECIAL, &ids, &e),
                     ERR_UNSUPPORTED);
    if (!strstr(e.what, words)) fail_msg("%s: %s", words, e.what);
    assert_true(e.fix[0] && ids.count == 0);
    token_list_close(&ids);
}

static void check_missing_bytes(void **state) {
    (void)state;
    struct vocab_build v;
    struct subject s;
    vocab_init_bpe(&v);
    v.tokens['b'] = "bb";
    subject_open(&s, &v);
    assert_non_null(strstr(s.warnings, "1 byte has no token"));
    assert_ids(&s, "ac", PLAIN, "97 99");
    assert_lost(&s, "abc", "the character U+0062, 'b', at offset 1 of the text");
    subject_close(&s);
    vocab_init_bpe(&v);
    v.pre = "qwen2"; // makes normal form C
    v.tokens[0xa9] = "a9", v.tokens[0xff] = "ff";
    vocab_add(&v, "<c>", TOKEN_CONTROL, 0); // 256
    subject_open(&s, &v);
    assert_lost(&s, "a\xc3\xbf\xff", "stands for the byte 0xff, at offset 3 of the text");
    assert_non_null(strstr(s.warnings, "2 bytes have no token"));
    assert_lost(&s, "\xff<c>\xff", "0xff, at offset 0 of");
    assert_lost(&s, "a<c>b\xff<c>", "0xff, at offset 5 of");
    assert_lost(&s, "\xc3x\xa9x\u00e9", "the byte 0xa9, at offset 2 of");
    assert_lost(&s, "a\u00e9", "the character U+00E9, '\u00e9', at offset 1 of the text");
    assert_lost(&s, "ae\u0301", "the character U+00E9, '\u00e9',"); // is not in the text
    subject_close(&s);
}

// ---- SentencePiece ------------------------------------------------------------------------------

static void check_scores(void **state) {
    (void)state;
    struct vocab_build v;
    struct subject s;
    vocab_init_spm(&v);
    vocab_add(&v, "a", TOKEN_NORMAL, -9);       // 259
    vocab_add(&v, "b", TOKEN_NORMAL, -9);       // 260
    vocab_add(&v, "ab", TOKEN_NORMAL, -2);      // 261
    vocab_add(&v, "ba", TOKEN_NORMAL, -1);      // 262
    vocab_add(&v, "aa", TOKEN_NORMAL, -3);      // 263
    vocab_add(&v, "\u2581", TOKEN_NORMAL, -9);  // 264
    vocab_add(&v, "\u2581a", TOKEN_NORMAL, -4); // 265
    subject_open(&s, &v);
    assert_ids(&s, "ab", PLAIN, "261");
    assert_ids(&s, "aba", PLAIN, "259 262"); // the better score first
    assert_ids(&s, "aaa", PLAIN, "263 259"); // of equals the leftmost
    assert_ids(&s, " a", PLAIN, "265");
    assert_ids(&s, "\u2581a", PLAIN, "265");
    assert_ids(&s, "\u00e9", PLAIN, "198 172"); // bytes C3 A9
    assert_ids(&s, "a\xff", PLAIN, "259 258");
    assert_ids(&s, "", PLAIN, "");
    assert_ids(&s, "a", FRAMED, "1 259");
    subject_close(&s);
    v.whole_scores = true;
    subject_open(&s, &v);
    assert_ids(&s, "aba", PLAIN, "259 262");
    assert_ids(&s, "aaa", PLAIN, "263 259");
    subject_close(&s);
    v.n_scores = 0; // as if all were equal
    subject_open(&s, &v);
    assert_ids(&s, "aba", PLAIN, "261 259");
    assert_ids(&s, "aaa", PLAIN, "263 259");
    subject_close(&s);
}

static void check_prefix(void **state) {
    (void)state;
    struct vocab_build v;
    struct subject s;
    char text[16];
    vocab_init_spm(&v);
    v.n_keys = 0;                                 // the default is a prefix
    vocab_add(&v, "\u2581", TOKEN_NORMAL, -9);    // 259
    vocab_add(&v, "a", TOKEN_NORMAL, -9);         // 260
    vocab_add(&v, "\u2581a", TOKEN_NORMAL, -1);   // 261
    vocab_add(&v, "<u>", TOKEN_USER_DEFINED, -9); // 262
    subject_open(&s, &v);
    assert_ids(&s, "a", PLAIN, "261");
    assert_ids(&s, "a</s>a", SPECIAL, "261 2 261");  // again after a control token
    assert_ids(&s, "a<u>a", SPECIAL, "261 262 260"); // not after a user-defined one
    assert_ids(&s, "", PLAIN, "");
    assert_int_equal(tokenizer_decode(s.t, 261, true, false, text, sizeof text), 1);
    assert_memory_equal(text, "a", 1);
    assert_int_equal(tokenizer_decode(s.t, 261, false, false, text, sizeof text), 2);
    assert_memory_equal(text, " a", 2);
    subject_close(&s);
}

static void check_user_defined(void **state) {
    (void)state;
    struct vocab_build v;
    struct subject s;
    char text[16];
    vocab_init_spm(&v);
    vocab_add(&v, "a", TOKEN_NORMAL, -1);             // 259
    vocab_add(&v, "  ", TOKEN_USER_DEFINED, -1000);   // 260, stored with spaces
    vocab_add(&v, "   ", TOKEN_USER_DEFINED, -1000);  // 261
    vocab_add(&v, "<h1>", TOKEN_USER_DEFINED, -1000); // 262
    vocab_add(&v, "<h", TOKEN_USER_DEFINED, -1000);   // 263
    vocab_add(&v, "\u2581", TOKEN_NORMAL, -1);        // 264
    subject_open(&s, &v);
    assert_ids(&s, "a     a", PLAIN, "259 261 260 259"); // longest first
    assert_ids(&s, " a", PLAIN, "264 259");
    assert_ids(&s, "<h1>a<ha", PLAIN, "262 259 263 259");
    assert_int_equal(tokenizer_decode(s.t, 261, false, false, text, sizeof text), 3);
    assert_memory_equal(text, "   ", 3);
    subject_close(&s);
}

// An unused token takes part in merges and is taken apart in the end.
static void check_unused(void **state) {
    (void)state;
    struct vocab_build v;
    struct subject s;
    vocab_init_spm(&v);
    vocab_add(&v, "a", TOKEN_NORMAL, -9);    // 259
    vocab_add(&v, "b", TOKEN_NORMAL, -9);    // 260
    vocab_add(&v, "c", TOKEN_NORMAL, -9);    // 261
    vocab_add(&v, "ab", TOKEN_UNUSED, -1);   // 262
    vocab_add(&v, "abc", TOKEN_UNUSED, -2);  // 263
    vocab_add(&v, "abcc", TOKEN_NORMAL, -3); // 264
    subject_open(&s, &v);
    assert_ids(&s, "ab", PLAIN, "259 260");
    assert_ids(&s, "abc", PLAIN, "259 260 261");
    assert_ids(&s, "abcc", PLAIN, "264");
    subject_close(&s);
}

static void check_no_byte_tokens(void **state) {
    (void)state;
    struct vocab_build v;
    struct subject s;
    vocab_init_spm(&v);
    v.n_tokens = v.n_types = v.n_scores = 3;
    vocab_add(&v, "a", TOKEN_NORMAL, -9); // 3
    subject_open(&s, &v);
    assert_non_null(strstr(s.warnings, "256 bytes have no token"));
    assert_ids(&s, "axyzax", PLAIN, "3 0 3 0"); // one unknown for a run
    subject_close(&s);
    vocab_key(&v, (struct vocab_key){"tokenizer.ggml.unknown_token_id", GGUF_U32, 99, NULL});
    v.n_tokens = v.n_types = v.n_scores = 1;
    vocab_add(&v, "a", TOKEN_NORMAL, -9); // 1: too few tokens for the default ids
    subject_open(&s, &v);
    assert_ids(&s, "aa", FRAMED, "1 1");
    assert_lost(&s, "aax", "the character U+0078, 'x', at offset 2 of the text");
    assert_lost(&s, "a\xfe", "the byte 0xfe, at offset 1 of the text");
    assert_int_equal(tokenizer_bos(s.t), -1);
    subject_close(&s);
    vocab_init_spm(&v);
    v.n_tokens = v.n_types = v.n_scores = 3 + 'y' + 1; // bytes up to y have tokens
    subject_open(&s, &v);
    assert_ids(&s, "zzyz", PLAIN, "0 124 0"); // a byte ends a run of unknown characters
    subject_close(&s);
}

// ---- Special tokens -----------------------------------------------------------------------------

static void check_special(void **state) {
    (void)state;
    struct vocab_build v;
    struct subject s;
    vocab_init_bpe(&v);
    vocab_add(&v, "<|a|>", TOKEN_CONTROL, 0);    // 256
    vocab_add(&v, "<|a|>b", TOKEN_CONTROL, 0);   // 257
    vocab_add(&v, "<|a", TOKEN_USER_DEFINED, 0); // 258
    vocab_add(&v, "|>b<", TOKEN_CONTROL, 0);     // 259
    vocab_add(&v, "<unk>", TOKEN_UNKNOWN, 0);    // 260
    vocab_add(&v, "<|never|>", TOKEN_UNUSED, 0); // 261
    subject_open(&s, &v);
    assert_ids(&s, "<|a|>", SPECIAL, "256");
    assert_ids(&s, "x<|a|>by", SPECIAL, "120 257 121"); // leftmost, then longest
    assert_ids(&s, "<|a|b", SPECIAL, "258 124 98");
    assert_ids(&s, "<|a|>", PLAIN, "258 124 62"); // only user-defined ones
    assert_ids(&s, "<unk><", SPECIAL, "260 60");
    assert_ids(&s, "<|n", SPECIAL, "60 124 110");
    char out[64];
    assert_string_equal(subject_ids(&s, "\0<|a|>\0", 7, SPECIAL, out), "0 256 0");
    subject_close(&s);
}

// No control token takes a byte that is data, whichever of its bytes that is.
static void check_data(void **state) {
    (void)state;
    struct vocab_build v;
    struct subject s;
    static const struct {
        const char *text, *data, *expected;
    } cases[] = {
        {"<|a|>b", "000000", "257"},           {"<|a|>b", "000001", "256 98"},
        {"<|a|>b", "000010", "258 124 62 98"}, {"<|a|>b", "100000", "258 124 62 98"},
        {"<|a|>b<", "111000", "258 259"},      {"<|a|>b<", "111100", "258 124 62 98 60"},
        {"<|a<|a|>", "11100000", "258 256"},   {"<|a<|a|>", "00010000", "258 258 124 62"},
    };
    vocab_init_bpe(&v);
    vocab_add(&v, "<|a|>", TOKEN_CONTROL, 0);    // 256
    vocab_add(&v, "<|a|>b", TOKEN_CONTROL, 0);   // 257
    vocab_add(&v, "<|a", TOKEN_USER_DEFINED, 0); // 258
    vocab_add(&v, "|>b<", TOKEN_CONTROL, 0);     // 259
    subject_open(&s, &v);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint8_t data[16] = {0};
        for (size_t at = 0; cases[i].data[at]; at++) data[at] = cases[i].data[at] == '1';
        const struct tokenizer_flags flags = {.parse_special = true, .data = data};
        assert_ids(&s, cases[i].text, flags, cases[i].expected);
    }
    subject_close(&s);
}

static void check_frame(void **state) {
    (void)state;
    struct vocab_build v;
    struct subject s;
    vocab_init_bpe(&v);
    vocab_add(&v, "<s>", TOKEN_CONTROL, 0);  // 256
    vocab_add(&v, "</s>", TOKEN_CONTROL, 0); // 257
    vocab_key(&v, (struct vocab_key){"tokenizer.ggml.bos_token_id", GGUF_U64, 256, NULL});
    vocab_key(&v, (struct vocab_key){"tokenizer.ggml.eos_token_id", GGUF_I16, 257, NULL});
    vocab_key(&v, (struct vocab_key){"tokenizer.ggml.add_bos_token", GGUF_BOOL, 1, NULL});
    vocab_key(&v, (struct vocab_key){"tokenizer.ggml.add_eos_token", GGUF_BOOL, 1, NULL});
    subject_open(&s, &v);
    assert_ids(&s, "a", FRAMED, "256 97 257");
    assert_ids(&s, "", FRAMED, "256 257");
    assert_ids(&s, "a", PLAIN, "97");
    assert_int_equal(tokenizer_eos(s.t), 257);
    subject_close(&s);
}

// ---- Decoding -----------------------------------------------------------------------------------

// Random bytes come back as they were.
static void check_round_trip(void **state) {
    (void)state;
    for (int family = 0; family < 2; family++) {
        struct vocab_build v;
        struct subject s;
        (family ? vocab_init_spm : vocab_init_bpe)(&v);
        if (family) vocab_add(&v, "\u2581", TOKEN_NORMAL, -2);
        if (family)
            vocab_add(&v, "\u2581a", TOKEN_NORMAL, -1);
        else
            vocab_merge(&v, "\u0120 a", "\u0120a");
        subject_open(&s, &v);
        uint64_t seed = 7;
        for (int round = 0; round < 300; round++) {
            char text[200], back[300];
            struct token_list ids = {0};
            size_t length = random_text(&seed, text, sizeof text), n = 0;
            assert_int_equal(tokenizer_encode(s.t, text, length, PLAIN, &ids, &s.e), OK);
            for (uint64_t i = 0; i < ids.count; i++)
                n += tokenizer_decode(s.t, ids.ids[i], i == 0, false, back + n, sizeof back - n);
            // SentencePiece cannot tell U+2581 from a space.
            if (!family || !memmem(text, length, "\u2581", 3)) {
                assert_int_equal(n, length);
                assert_memory_equal(back, text, length);
            }
            token_list_close(&ids);
        }
        subject_close(&s);
    }
}

static void check_decode(void **state) {
    (void)state;
    struct vocab_build v;
    struct subject s;
    char text[32];
    vocab_init_bpe(&v);
    vocab_add(&v, "<|c|>", TOKEN_CONTROL, 0);          // 256
    vocab_add(&v, "\u0120<u>", TOKEN_USER_DEFINED, 0); // 257, not mapped
    vocab_add(&v, "a\u65e5\u0120", TOKEN_NORMAL, 0);   // 258, partly no bytes
    subject_open(&s, &v);
    assert_int_equal(tokenizer_decode(s.t, 256, false, false, text, sizeof text), 0);
    assert_int_equal(tokenizer_decode(s.t, 256, false, true, text, sizeof text), 5);
    assert_memory_equal(text, "<|c|>", 5);
    assert_int_equal(tokenizer_decode(s.t, 257, false, false, text, sizeof text), 5);
    assert_memory_equal(text, "\u0120<u>", 5);
    assert_int_equal(tokenizer_decode(s.t, 258, false, false, text, sizeof text), 5);
    assert_memory_equal(text, "a\u65e5 ", 5);
    assert_int_equal(tokenizer_decode(s.t, -1, false, false, text, sizeof text), 0);
    assert_int_equal(tokenizer_decode(s.t, 259, false, false, text, sizeof text), 0);
    text[1] = '#';
    assert_int_equal(tokenizer_decode(s.t, 256, false, true, text, 1), 5); // length, but one byte
    assert_memory_equal(text, "<#", 2);
    assert_int_equal(tokenizer_find(s.t, "<|c|>", 5), 256);
    assert_int_equal(tokenizer_find(s.t, "nobody", 6), -1);
    assert_int_equal(tokenizer_find(s.t, "", 0), -1);
    assert_int_equal(tokenizer_piece(s.t, 256).length, 5);
    assert_int_equal(tokenizer_piece(s.t, 300).length, 0);
    assert_int_equal(tokenizer_count(s.t), 259);
    subject_close(&s);
}

// Each character comes out in one piece, with the byte that completes it.
static void check_stream(void **state) {
    (void)state;
    static const struct {
        const char *bytes, *pushed; // what each byte gives, "|" between; then the end
    } cases[] = {
        {"a\u00e9\U0001f600b", "a||\u00e9||||\U0001f600|b|"},
        {"\u65e5", "||\u65e5|"},
        {"\xff"
         "a",
         "\ufffd|a|"},
        {"\xe6\x97"
         "a",
         "||\ufffd"
         "a|"},
        {"\xe6\x97\xe6\x97\xa5", "||\ufffd||\u65e5|"},
        {"\xf0\x9f\x98", "|||\ufffd"},
        {"\xed\xa0\x80", "|\ufffd\ufffd|\ufffd|"}, // a surrogate
        {"\xc3\xc3\xa9", "|\ufffd|\u00e9|"},
    };
    struct vocab_build v;
    struct subject s;
    vocab_init_bpe(&v);
    subject_open(&s, &v);
    size_t capacity = 8 + tokenizer_longest(s.t);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char out[256], got[256] = "";
        struct token_stream stream;
        token_stream_init(&stream, s.t, false);
        for (const char *byte = cases[i].bytes; *byte; byte++) {
            strncat(got, out, token_stream_push(&stream, (uint8_t)*byte, out, capacity));
            strcat(got, "|");
        }
        strncat(got, out, token_stream_finish(&stream, out, capacity));
        assert_string_equal(got, cases[i].pushed);
    }
    subject_close(&s);
}

// A token of many bad bytes takes the most room there can be.
static void check_stream_room(void **state) {
    (void)state;
    struct vocab_build v;
    struct subject s;
    char text[256], all[256];
    vocab_init_spm(&v);
    vocab_add(&v, "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", TOKEN_NORMAL, 0); // 259
    vocab_add(&v, "\x9f\x98\x80\xf0\x9f", TOKEN_NORMAL, 0);                             // 260
    subject_open(&s, &v);
    struct token_stream stream;
    token_stream_init(&stream, s.t, false);
    size_t capacity = 8 + tokenizer_longest(s.t), n = 0;
    assert_true(capacity < sizeof text);
    assert_int_equal(token_stream_push(&stream, 3 + 0xf0, text, capacity), 0);
    n += token_stream_push(&stream, 260, all + n, capacity);
    n += token_stream_push(&stream, 259, all + n, capacity);
    assert_int_equal(n, 4 + 3 + 36);
    assert_memory_equal(all, "\U0001f600\ufffd\ufffd", 10);
    subject_close(&s);
}

static void check_stream_start(void **state) {
    (void)state;
    struct vocab_build v;
    struct subject s;
    char text[256];
    vocab_init_spm(&v);
    v.n_keys = 0;
    vocab_add(&v, "\u2581a", TOKEN_NORMAL, -1); // 259
    subject_open(&s, &v);
    size_t capacity = 8 + tokenizer_longest(s.t);
    struct token_stream stream;
    token_stream_init(&stream, s.t, false);
    assert_int_equal(token_stream_push(&stream, 1, text, capacity), 0);   // BOS is no start
    assert_int_equal(token_stream_push(&stream, 259, text, capacity), 1); // no space
    assert_int_equal(token_stream_push(&stream, 259, text, capacity), 2); // a space
    assert_int_equal(token_stream_push(&stream, 0, text, capacity), 5);   // unknown
    assert_int_equal(token_stream_finish(&stream, text, capacity), 0);
    subject_close(&s);
}

static void check_utf8(void **state) {
    (void)state;
    // Every code point comes back; every surrogate is bad.
    for (uint32_t code = 0; code < 0x110000; code++) {
        char text[4];
        size_t n = utf8_write(code, text), length;
        enum utf8_class class = utf8_look(text, n, &length);
        if (code >= 0xd800 && code < 0xe000) {
            assert_int_equal(class, UTF8_BAD);
            continue;
        }
        assert_int_equal(class, UTF8_WHOLE);
        assert_int_equal(length, n);
        assert_int_equal(utf8_code(text, n), code);
    }
    static const char *const bad[] = {"\x80",
                                      "\xbf",
                                      "\xc0\x80",
                                      "\xc1\xbf",
                                      "\xe0\x9f\x80",
                                      "\xf0\x8f\x80\x80",
                                      "\xf4\x90\x80\x80",
                                      "\xf5\x80",
                                      "\xc3("};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        size_t length;
        assert_int_equal(utf8_look(bad[i], strlen(bad[i]), &length), UTF8_BAD);
        assert_int_equal(length, 1);
    }
}

// ---- Big texts ----------------------------------------------------------------------------------

// A line of one letter would take hours if merging or splitting were quadratic.
static void check_long(void **state) {
    (void)state;
    size_t length = 1 << 20;
    char *text = malloc(length);
    assert_non_null(text);
    for (int family = 0; family < 2; family++) {
        struct vocab_build v;
        struct subject s;
        (family ? vocab_init_spm : vocab_init_bpe)(&v);
        for (int kind = 0; kind < 2; kind++) { // "aa" in one family each, both are harmless
            vocab_add(&v, kind ? "aa" : "a", TOKEN_NORMAL, (float)kind);
            if (!family) v.merges[v.n_merges++] = kind ? "aa aa" : "a a";
        }
        vocab_add(&v, "aaaa", TOKEN_NORMAL, 2);
        subject_open(&s, &v);
        static const char fills[] = {'a', ' ', '\n', '<', (char)0xff};
        for (size_t i = 0; i < sizeof fills; i++) {
            struct token_list ids = {0};
            memset(text, fills[i], length);
            assert_int_equal(tokenizer_encode(s.t, text, length, SPECIAL, &ids, &s.e), OK);
            if (fills[i] == 'a')
                assert_int_equal(ids.count, length / 4);
            else if (fills[i] == (char)0xff)
                assert_int_equal(ids.count, length);
            token_list_close(&ids);
        }
        subject_close(&s);
    }
    free(text);
}

// ---- Broken vocabularies ------------------------------------------------------------------------

static void check_refused(void **state) {
    (void)state;
    struct vocab_build v;
    struct subject s;
    struct {
        const char *model, *pre;
        bool spm;
        uint64_t n_tokens, n_types, n_scores; // UINT64_MAX: unchanged
        enum status status;
        const char *what;
    } cases[] = {
        {NULL, "gpt-2", false, 256, 256, 0, ERR_FORMAT, "tokenizer.ggml.model"},
        {"bert", "gpt-2", false, 256, 256, 0, ERR_UNSUPPORTED, "tokenizer.ggml.model"},
        {"gpt2", "nobody", false, 256, 256, 0, ERR_UNSUPPORTED, "tokenizer.ggml.pre"},
        {"gpt2", "gpt-2", false, 0, 256, 0, ERR_FORMAT, "tokenizer.ggml.tokens"},
        {"gpt2", "gpt-2", false, 256, 255, 0, ERR_FORMAT, "tokenizer.ggml.token_type"},
        {"llama", NULL, true, 259, 259, 258, ERR_FORMAT, "tokenizer.ggml.scores"},
        {"t5", NULL, true, 259, 259, 0, ERR_FORMAT, "tokenizer.ggml.scores"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        (cases[i].spm ? vocab_init_spm : vocab_init_bpe)(&v);
        v.model = cases[i].model;
        v.pre = cases[i].pre;
        v.n_tokens = cases[i].n_tokens;
        v.n_types = cases[i].n_types;
        v.n_scores = cases[i].n_scores;
        assert_int_equal(subject_try(&s, &v), cases[i].status);
        assert_null(s.t);
        assert_non_null(strstr(s.e.what, cases[i].what));
        free(s.warnings);
    }
}

// A key of the wrong type, in place of the right one.
static void check_wrong_types(void **state) {
    (void)state;
    static const char *const keys[] = {"tokenizer.ggml.tokens",       "tokenizer.ggml.token_type",
                                       "tokenizer.ggml.merges",       "tokenizer.ggml.scores",
                                       "tokenizer.ggml.model",        "tokenizer.ggml.pre",
                                       "tokenizer.ggml.add_bos_token"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        struct gguf_build b;
        struct gguf g;
        struct tokenizer *t;
        struct err e = {0};
        const char *tokens[] = {"a", "b"};
        float scores[] = {0, 0};
        bool spm = i == 3;
        gguf_build_init(&b);
        if (i != 4) gguf_build_text(&b, "tokenizer.ggml.model", spm ? "llama" : "gpt2");
        if (i != 5) gguf_build_text(&b, "tokenizer.ggml.pre", "gpt-2");
        if (i != 0) gguf_build_texts(&b, "tokenizer.ggml.tokens", tokens, 2);
        if (i != 2) gguf_build_texts(&b, "tokenizer.ggml.merges", tokens, 2);
        if (i != 1) gguf_build_ints(&b, "tokenizer.ggml.token_type", (int32_t[]){1, 1}, 2);
        if (i == 1 || i == 6)
            gguf_build_texts(&b, keys[i], tokens, 2);
        else
            gguf_build_floats(&b, keys[i], scores, i == 3 ? 1 : 2);
        gguf_build_finish(&b);
        assert_int_equal(vocab_open_bytes(b.file.bytes, b.file.size, &g, &e), OK);
        assert_int_equal(tokenizer_open(&t, &g, NULL, &e), ERR_FORMAT);
        assert_non_null(strstr(e.what, keys[i]));
        gguf_close(&g);
        gguf_build_close(&b);
    }
}

static void check_warnings(void **state) {
    (void)state;
    struct vocab_build v;
    struct subject s;
    vocab_init_bpe(&v);
    v.pre = NULL;
    vocab_add(&v, "", TOKEN_NORMAL, 0);
    vocab_add(&v, "a", TOKEN_NORMAL, 0);
    vocab_add(&v, "odd", (enum token_kind)9, 0); // 258
    vocab_merge(&v, "nospace", "unused1");
    vocab_merge(&v, "x  y", "unused2");
    vocab_merge(&v, "a nobody", "unused3");
    vocab_merge(&v, " ", "unused4");
    vocab_merge(&v, "ab ", "ab"); // 263: nothing behind the space
    v.merges[v.n_merges++] = "a b";
    v.merges[v.n_merges++] = "a b"; // the first rank counts
    vocab_key(&v, (struct vocab_key){"tokenizer.ggml.bos_token_id", GGUF_U32, 264, NULL});
    vocab_key(&v, (struct vocab_key){"tokenizer.ggml.eos_token_id", GGUF_I32, -1, NULL});
    vocab_key(&v, (struct vocab_key){"tokenizer.ggml.eot_token_id", GGUF_STRING, 0, "x"});
    subject_open(&s, &v);
    assert_non_null(strstr(s.warnings, "1 empty and 1 repeated"));
    assert_non_null(strstr(s.warnings, "1 token of unknown type is taken"));
    assert_non_null(strstr(s.warnings, "tokenizer.ggml.merges: 5 of 7"));
    assert_non_null(strstr(s.warnings, "tokenizer.ggml.pre is missing"));
    assert_non_null(strstr(s.warnings, "tokenizer.ggml.bos_token_id is 264"));
    assert_non_null(strstr(s.warnings, "tokenizer.ggml.eos_token_id is -1"));
    assert_non_null(strstr(s.warnings, "tokenizer.ggml.eot_token_id is not a number"));
    assert_int_equal(tokenizer_bos(s.t), -1);
    assert_int_equal(tokenizer_kind(s.t, 258), TOKEN_NORMAL);
    assert_ids(&s, "ab", FRAMED, "263");
    subject_close(&s);
}

// ---- Refused allocations ------------------------------------------------------------------------

// Opens and encodes with the nth allocation refused (0: none).
static enum status encode_refused(const struct gguf *g, int64_t n, struct token_list *ids,
                                  bool *reached) {
    static const char text[] = "Hello e\u0301 \xff<u> world aaaa";
    struct tokenizer *t;
    struct err e;
    alloc_fail_at(n);
    enum status status = tokenizer_open(&t, g, NULL, &e);
    if (status == OK) status = tokenizer_encode(t, text, sizeof text - 1, FRAMED, ids, &e);
    *reached = alloc_fail_happened();
    alloc_fail_at(0);
    tokenizer_close(t);
    return status;
}

static void check_refused_memory(void **state) {
    (void)state;
    for (int family = 0; family < 3; family++) {
        struct vocab_build v;
        (family ? vocab_init_spm : vocab_init_bpe)(&v);
        if (family == 2) v.model = "t5";
        v.pre = "qwen2";
        vocab_add(&v, "a", TOKEN_NORMAL, -1);
        vocab_add(&v, "aa", TOKEN_UNUSED, -1);
        vocab_add(&v, "<u>", TOKEN_USER_DEFINED, -1);
        struct gguf_build b;
        struct gguf g;
        struct err e;
        vocab_write(&v, &b);
        assert_int_equal(vocab_open_bytes(b.file.bytes, b.file.size, &g, &e), OK);
        struct token_list expected = {0};
        bool reached;
        int n_refused = 0;
        assert_int_equal(encode_refused(&g, 0, &expected, &reached), OK);
        reached = true;
        for (int64_t n = 1; reached; n++) {
            struct token_list ids = {0};
            enum status status = encode_refused(&g, n, &ids, &reached);
            n_refused += status != OK;
            if (status == OK) { // also where only the JIT of a pattern was refused
                assert_int_equal(ids.count, expected.count);
                assert_memory_equal(ids.ids, expected.ids, ids.count * sizeof *ids.ids);
            } else {
                assert_int_equal(status, ERR_MEMORY);
                assert_int_equal(ids.count, 0);
            }
            token_list_close(&ids);
        }
        assert_true(n_refused >= 10);
        token_list_close(&expected);
        gguf_close(&g);
        gguf_build_close(&b);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(check_splits),         cmocka_unit_test(check_split_covers),
        cmocka_unit_test(check_unknown_name),   cmocka_unit_test(check_merges),
        cmocka_unit_test(check_ignore_merges),  cmocka_unit_test(check_normal_form),
        cmocka_unit_test(check_control_merges), cmocka_unit_test(check_missing_bytes),
        cmocka_unit_test(check_scores),         cmocka_unit_test(check_prefix),
        cmocka_unit_test(check_user_defined),   cmocka_unit_test(check_unused),
        cmocka_unit_test(check_no_byte_tokens), cmocka_unit_test(check_special),
        cmocka_unit_test(check_frame),          cmocka_unit_test(check_data),
        cmocka_unit_test(check_round_trip),     cmocka_unit_test(check_decode),
        cmocka_unit_test(check_stream),         cmocka_unit_test(check_stream_room),
        cmocka_unit_test(check_stream_start),   cmocka_unit_test(check_utf8),
        cmocka_unit_test(check_long),           cmocka_unit_test(check_refused),
        cmocka_unit_test(check_wrong_types),    cmocka_unit_test(check_warnings),
        cmocka_unit_test(check_refused_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

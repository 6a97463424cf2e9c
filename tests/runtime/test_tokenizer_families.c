/* test_tokenizer_families.c: rules of single families: merges of characters, names of tokens that
 * end a text, white space that control tokens take. Everything else: test_tokenizer.c.
 */
#include "runtime/text/tokenizer.h"
#include "tests/lib/subject.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <string.h>

// The family of Gemma 4: merges of characters, spaces as U+2581, runs of newlines as one token.
static void check_characters(void **state) {
    (void)state;
    struct vocab_build v;
    struct subject s;
    vocab_init_spm(&v); // bytes from id 3 on
    v.model = "gemma4";
    v.pre = "gemma4";
    v.n_scores = 0;
    vocab_key(&v, (struct vocab_key){"tokenizer.ggml.bos_token_id", GGUF_U32, 1, NULL});
    vocab_key(&v, (struct vocab_key){"tokenizer.ggml.add_bos_token", GGUF_BOOL, 0, NULL});
    vocab_add(&v, "\u2581", TOKEN_NORMAL, 0);         // 259
    vocab_add(&v, "a", TOKEN_NORMAL, 0);              // 260
    vocab_add(&v, "b", TOKEN_NORMAL, 0);              // 261
    vocab_add(&v, "\u00e9", TOKEN_NORMAL, 0);         // 262
    vocab_add(&v, "\n", TOKEN_NORMAL, 0);             // 263
    vocab_add(&v, "\n\n\n", TOKEN_NORMAL, 0);         // 264, of no merge
    vocab_merge(&v, "a b", "ab");                     // 265
    vocab_merge(&v, "\u2581 ab", "\u2581ab");         // 266
    vocab_merge(&v, "\u00e9 a", "\u00e9a");           // 267
    vocab_merge(&v, "\u2581 \u2581", "\u2581\u2581"); // 268
    vocab_add(&v, "\x01", TOKEN_CONTROL, 0);          // 269
    subject_open(&s, &v);
    assert_ids(&s, "ab ab", PLAIN, "265 266");
    assert_ids(&s, " aab", PLAIN, "259 260 265");
    assert_ids(&s, "\u00e9a  b", PLAIN, "267 268 261");
    assert_ids(&s, "a\n\n\nb", PLAIN, "260 264 261");
    assert_ids(&s, "a\n\nb", PLAIN, "260 263 263 261");
    assert_ids(&s, "a\u65e5\xff", PLAIN, "260 233 154 168 258"); // bytes of a character, and one
    assert_ids(&s, "ab\x01", PLAIN, "265 4");                    // no control token
    assert_ids(&s, "ab", FRAMED, "1 265");                       // whatever the key says
    char out[16] = "";
    assert_int_equal(tokenizer_decode(s.t, 266, true, false, out, sizeof out), 3);
    assert_string_equal(out, " ab");
    assert_int_equal(tokenizer_decode(s.t, 233, true, false, out, sizeof out), 1);
    assert_int_equal((uint8_t)out[0], 0xe6);
    subject_close(&s);
    v.model = "gpt2"; // as converters of other families write, whose pre-tokenizer tells
    subject_open(&s, &v);
    assert_ids(&s, "\u00e9a  b ab\n", FRAMED, "1 267 268 261 266 263");
    subject_close(&s);
    v.pre = "sarvam-moe"; // the key says whether BOS comes first
    subject_open(&s, &v);
    assert_ids(&s, "\u00e9a  b ab\n", FRAMED, "267 268 261 266 263");
    assert_int_equal(tokenizer_decode(s.t, 266, true, false, out, sizeof out), 3);
    assert_string_equal(out, " ab");
    subject_close(&s);
    v.model = "gemma4";
    v.pre = "qwen2"; // with normal form C before
    subject_open(&s, &v);
    assert_ids(&s, "e\u0301a  b ab", PLAIN, "267 268 261 266");
    subject_close(&s);
}

static void check_ends(void **state) {
    (void)state;
    struct vocab_build v;
    struct subject s;
    char text[16];
    vocab_init_bpe(&v);
    vocab_add(&v, "<|im_end|>", TOKEN_NORMAL, 0);  // 256: typed wrongly
    vocab_add(&v, "</s>", TOKEN_NORMAL, 0);        // 257: just text
    vocab_add(&v, "<|end|>", TOKEN_CONTROL, 0);    // 258
    vocab_add(&v, "stop", TOKEN_CONTROL, 0);       // 259
    vocab_add(&v, "[PAD]", TOKEN_CONTROL, 0);      // 260
    vocab_add(&v, "<reponame>", TOKEN_CONTROL, 0); // 261
    vocab_add(&v, "<PAD>", TOKEN_NORMAL, 0);       // 262: just text
    vocab_key(&v, (struct vocab_key){"tokenizer.ggml.eot_token_id", GGUF_U32, 259, NULL});
    subject_open(&s, &v);
    assert_non_null(strstr(s.warnings, "<|im_end|>"));
    assert_true(tokenizer_is_end(s.t, 256));
    assert_int_equal(tokenizer_kind(s.t, 256), TOKEN_CONTROL);
    assert_false(tokenizer_is_end(s.t, 257));
    assert_true(tokenizer_is_end(s.t, 258));
    assert_true(tokenizer_is_end(s.t, 259));
    assert_true(tokenizer_is_end(s.t, 260));
    assert_true(tokenizer_is_end(s.t, 261));
    assert_false(tokenizer_is_end(s.t, 262));
    assert_false(tokenizer_is_end(s.t, -1));
    assert_false(tokenizer_is_end(s.t, 9999));
    subject_close(&s);
    // Harmony: <|end|> only ends a message, and its marks are printed.
    vocab_add(&v, "<|return|>", TOKEN_CONTROL, 0);  // 263
    vocab_add(&v, "<|call|>", TOKEN_CONTROL, 0);    // 264
    vocab_add(&v, "<|channel|>", TOKEN_CONTROL, 0); // 265
    subject_open(&s, &v);
    assert_false(tokenizer_is_end(s.t, 258));
    assert_true(tokenizer_is_end(s.t, 263));
    assert_int_equal(tokenizer_decode(s.t, 265, false, false, text, sizeof text), 11);
    assert_int_equal(tokenizer_decode(s.t, 263, false, false, text, sizeof text), 0);
    subject_close(&s);
}

// Marks around thoughts, answers and calls are control tokens in most files, and have a text,
// without which these could not be told apart.
static void check_marks(void **state) {
    (void)state;
    static const char *const marks[] = {
        "<think>",
        "</think>",
        "<|START_THINKING|>",
        "<|END_THINKING|>",
        "<|START_RESPONSE|>",
        "<|END_RESPONSE|>",
        "<|START_TEXT|>",
        "<|END_TEXT|>",
        "<|START_ACTION|>",
        "<|END_ACTION|>",
        "<|inner_prefix|>",
        "<|inner_suffix|>",
        "<|tools_prefix|>",
        "<|tools_suffix|>",
        "[BEGIN FINAL RESPONSE]",
        "[END FINAL RESPONSE]",
        "<response>",
        "</response>",
        "<answer>",
        "</answer>",
        "<tool_calls>",
        "</tool_calls>",
        "<function",
        "</function>",
        "<param",
        "</param>",
        "<minimax:tool_call>",
        "</minimax:tool_call>",
        "\xef\xbd\x9c"
        "DSML\xef\xbd\x9c",
        "<|function_call|>",
        "<TOOLCALL>",
        "</TOOLCALL>",
        "<|tool_call_start|>",
        "<|tool_call_end|>",
    };
    struct vocab_build v;
    struct subject s;
    char text[32];
    vocab_init_bpe(&v);
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++)
        vocab_add(&v, marks[i], TOKEN_CONTROL, 0);
    const int32_t other = vocab_add(&v, "<|START_OF_TURN_TOKEN|>", TOKEN_CONTROL, 0);
    subject_open(&s, &v);
    for (int32_t i = 256; i < other; i++) {
        const size_t n = tokenizer_decode(s.t, i, false, false, text, sizeof text);
        assert_int_equal(n, strlen(marks[i - 256]));
        assert_memory_equal(text, marks[i - 256], n);
    }
    assert_int_equal(tokenizer_decode(s.t, other, false, false, text, sizeof text), 0);
    subject_close(&s);
}

// Solar Open ends each part of a reply with <|end|>, a thought before the answer as well.
static void check_ends_of_parts(void **state) {
    (void)state;
    char text[32];
    struct vocab_build v;
    struct subject s;
    vocab_init_bpe(&v);
    vocab_add(&v, "<|end|>", TOKEN_CONTROL, 0);   // 256
    vocab_add(&v, "<|calls|>", TOKEN_CONTROL, 0); // 257
    subject_open(&s, &v);
    assert_true(tokenizer_is_end(s.t, 256));
    subject_close(&s);
    vocab_add(&v, "<|flush|>", TOKEN_CONTROL, 0); // 258
    vocab_add(&v, "<|think|>", TOKEN_CONTROL, 0); // 259
    vocab_add(&v, "<|tool_call:begin|>", TOKEN_CONTROL, 0);
    subject_open(&s, &v);
    assert_false(tokenizer_is_end(s.t, 256));
    assert_true(tokenizer_is_end(s.t, 257));
    assert_true(tokenizer_is_end(s.t, 258));
    assert_int_equal(tokenizer_decode(s.t, 256, false, false, text, sizeof text), 7);
    assert_int_equal(tokenizer_decode(s.t, 258, false, false, text, sizeof text), 0);
    assert_int_equal(tokenizer_decode(s.t, 259, false, false, text, sizeof text), 9);
    assert_int_equal(tokenizer_decode(s.t, 260, false, false, text, sizeof text), 19);
    subject_close(&s);
}

// A tag of HTML in the vocabularies of Gemma, the end of a text in those of Llama 2.
static void check_closing_tag(void **state) {
    (void)state;
    struct vocab_build v;
    struct subject s;
    vocab_init_bpe(&v);
    const int32_t tag = vocab_add(&v, "</s>", TOKEN_USER_DEFINED, 0);
    vocab_add(&v, "<eos>", TOKEN_CONTROL, 0);
    subject_open(&s, &v);
    assert_false(tokenizer_is_end(s.t, tag));
    assert_true(tokenizer_is_end(s.t, tag + 1));
    subject_close(&s);
    v.types[tag] = TOKEN_CONTROL;
    subject_open(&s, &v);
    assert_true(tokenizer_is_end(s.t, tag));
    subject_close(&s);
    v.types[tag] = TOKEN_USER_DEFINED;
    vocab_key(&v, (struct vocab_key){"tokenizer.ggml.eos_token_id", GGUF_U32, tag, NULL});
    subject_open(&s, &v);
    assert_true(tokenizer_is_end(s.t, tag));
    subject_close(&s);
}

static void check_phi3(void **state) {
    (void)state;
    struct vocab_build v;
    struct subject s;
    vocab_init_bpe(&v);
    vocab_add(&v, "<|user|>", TOKEN_CONTROL, 0);      // 256
    vocab_add(&v, "<|endoftext|>", TOKEN_CONTROL, 0); // 257
    static const char *const names[] = {"my-phi3", "Phi3", "Phi-3-mini", "Phi 3 Mini 4k Instruct",
                                        "My PHI-3"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        v.n_keys = 0;
        vocab_key(&v, (struct vocab_key){"general.name", GGUF_STRING, 0, names[i]});
        subject_open(&s, &v);
        assert_ids(&s, "<|user|> \n a", SPECIAL, "256 97");
        assert_ids(&s, "<|endoftext|>\n", SPECIAL, "257 10");
        subject_close(&s);
    }
    static const char *const others[] = {"Phi 2", "Phi-4", "phi", "Phi-", "3 phi"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        v.n_keys = 0;
        vocab_key(&v, (struct vocab_key){"general.name", GGUF_STRING, 0, others[i]});
        subject_open(&s, &v);
        assert_ids(&s, "<|user|> a", SPECIAL, "256 32 97");
        subject_close(&s);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(check_characters),  cmocka_unit_test(check_ends),
        cmocka_unit_test(check_marks),       cmocka_unit_test(check_ends_of_parts),
        cmocka_unit_test(check_closing_tag), cmocka_unit_test(check_phi3),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

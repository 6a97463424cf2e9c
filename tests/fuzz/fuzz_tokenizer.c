/* fuzz_tokenizer.c: libFuzzer entry for vocabularies and texts.
 *
 * The first byte chooses the family and the pre-tokenizer, the second and third how much of the
 * rest makes tokens, kinds, scores and merges; what is left is the text. What opens must encode any
 * text for which it has tokens, decode to bytes of its own and keep the promises of tokenizer.h.
 * Run by tests/fuzz/fuzz.sh.
 */
#include "base/mem.h"
#include "base/utf8.h"
#include "runtime/text/tokenizer.h"
#include "tests/lib/vocab_open.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size_bytes);

enum { ROOM = 1 << 14 };

static const char *const PRE[] = {
    "llama-bpe", "qwen2",       "qwen35",       "gpt-2",          "smollm",     "tekken",
    "gpt-4o",    "deepseek-v3", "deepseek-llm", "deepseek-coder", "falcon",     "gemma4",
    "default",   NULL,          "nobody",       "seed-coder",     "exaone-moe", "tiny_aya",
    "kimi-k2",   "youtu",       "afmoe",        "jais-2",         "viking"};

struct input {
    const uint8_t *bytes;
    size_t size;
};

static uint8_t next(struct input *in) {
    if (in->size == 0) return 0;
    in->size--;
    return *in->bytes++;
}

// A short text without zeros out of the input, in arena, which has room.
static char *next_text(struct input *in, char **arena) {
    char *text = *arena;
    for (int n = next(in) & 15; n > 0; n--) {
        char c = (char)next(in);
        *(*arena)++ = c ? c : 'a';
    }
    *(*arena)++ = 0;
    return text;
}

// Adds tokens, merges and keys out of the input to a vocabulary of bytes.
static void mutate(struct vocab_build *v, struct input *in, char *arena) {
    for (int n = next(in); n > 0 && in->size > 0 && v->n_tokens < VOCAB_ROOM - 1; n--) {
        uint8_t what = next(in);
        char *text = next_text(in, &arena);
        if (what & 128 && v->n_merges < VOCAB_ROOM)
            v->merges[v->n_merges++] = text;
        else
            vocab_add(v, text, (enum token_kind)(what & 7), (float)(int8_t)next(in));
    }
    static const char *const keys[] = {
        "tokenizer.ggml.bos_token_id",     "tokenizer.ggml.eos_token_id",
        "tokenizer.ggml.unknown_token_id", "tokenizer.ggml.add_bos_token",
        "tokenizer.ggml.add_eos_token",    "tokenizer.ggml.eot_token_id"};
    uint8_t chosen = next(in);
    for (int i = 0; i < 6; i++)
        if (chosen >> i & 1) {
            bool is_bool = i == 3 || i == 4;
            int64_t number = is_bool ? 1 : next(in) * 2 - 4;
            vocab_key(v, (struct vocab_key){keys[i], is_bool ? GGUF_BOOL : GGUF_I32, number, NULL});
        }
    if (chosen & 64) v->n_keys = 0;
    // Bytes that have no token, and arrays that do not fit.
    if (chosen & 128)
        for (int n = next(in) & 31; n > 0; n--) v->tokens[next(in)] = "";
    if (next(in) == 255) v->n_types = next(in);
    if (next(in) == 255 && v->n_scores) v->n_scores = next(in);
}

static void require(bool condition) {
    if (!condition) abort();
}

// Every token through a stream: what comes out is UTF-8 and fits.
static void check_stream(const struct tokenizer *t, const struct token_list *ids) {
    size_t capacity = 8 + tokenizer_longest(t);
    char *out = mem_alloc(capacity, 1);
    require(out);
    struct token_stream stream;
    token_stream_init(&stream, t, ids->count & 1);
    for (uint64_t i = 0; i < ids->count; i++) {
        size_t n = token_stream_push(&stream, ids->ids[i], out, capacity);
        require(n <= capacity && utf8_valid(out, n));
    }
    size_t n = token_stream_finish(&stream, out, capacity);
    require(n <= capacity && utf8_valid(out, n));
    mem_free(out);
}

static void check_text(const struct tokenizer *t, struct gguf_text text, uint8_t options) {
    struct token_list ids = {0};
    struct err e;
    struct tokenizer_flags flags = {options & 1, options & 2};
    const enum status status = tokenizer_encode(t, text.bytes, text.length, flags, &ids, &e);
    require(status == OK || (status == ERR_UNSUPPORTED && ids.count == 0));
    for (uint64_t i = 0; i < ids.count; i++) {
        require(ids.ids[i] >= 0 && (uint32_t)ids.ids[i] < tokenizer_count(t));
        tokenizer_is_end(t, ids.ids[i]);
        // Without parse_special no control token comes out of text.
        require((options & 3) || tokenizer_kind(t, ids.ids[i]) != TOKEN_CONTROL);
    }
    check_stream(t, &ids);
    token_list_close(&ids);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size_bytes) {
    struct input in = {bytes, size_bytes};
    char *arena = malloc(ROOM);
    struct vocab_build *v = malloc(sizeof *v);
    require(arena && v);
    uint8_t first = next(&in), options = next(&in);
    if (first & 1)
        vocab_init_spm(v);
    else
        vocab_init_bpe(v);
    if (first & 1 && options & 4) v->model = options & 8 ? "t5" : "gemma4";
    v->pre = PRE[(first >> 1) % (sizeof PRE / sizeof *PRE)];
    mutate(v, &in, arena);
    if (options & 16) { // a map out of the whole input
        v->charsmap = bytes;
        v->n_charsmap = size_bytes;
    }

    struct gguf g;
    struct tokenizer *t;
    struct err e = {0};
    if (vocab_open(v, &g, &t, NULL, &e) == OK) {
        check_text(t, (struct gguf_text){(const char *)in.bytes, in.size}, options);
        tokenizer_close(t);
        gguf_close(&g);
    } else {
        require(e.status != OK && e.what[0]);
    }
    free(v);
    free(arena);
    return 0;
}

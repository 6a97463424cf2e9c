/* vocab_build.c: see vocab_build.h. */
#include "tests/lib/vocab_build.h"

#include "base/utf8.h"

#include <stdio.h>
#include <string.h>

int32_t vocab_add(struct vocab_build *v, const char *text, enum token_kind kind, float score) {
    ASSERT(v->n_tokens < VOCAB_ROOM);
    v->tokens[v->n_tokens] = text;
    v->types[v->n_types++] = (int32_t)kind;
    v->scores[v->n_tokens] = score;
    if (v->n_scores > 0) v->n_scores++;
    return (int32_t)v->n_tokens++;
}

int32_t vocab_merge(struct vocab_build *v, const char *merge, const char *text) {
    ASSERT(v->n_merges < VOCAB_ROOM);
    v->merges[v->n_merges++] = merge;
    return vocab_add(v, text, TOKEN_NORMAL, 0);
}

void vocab_key(struct vocab_build *v, struct vocab_key key) {
    ASSERT((size_t)v->n_keys < sizeof v->keys / sizeof *v->keys);
    v->keys[v->n_keys++] = key;
}

void vocab_init_bpe(struct vocab_build *v) {
    *v = (struct vocab_build){.model = "gpt2", .pre = "gpt-2"};
    uint32_t next = 256;
    for (uint32_t byte = 0; byte < 256; byte++) {
        bool printable = byte > 32 && byte != 127 && byte != 173 && !(byte > 127 && byte < 161);
        char *text = v->byte_texts[byte];
        text[utf8_write(printable ? byte : next++, text)] = 0;
        vocab_add(v, text, TOKEN_NORMAL, 0);
    }
}

void vocab_init_spm(struct vocab_build *v) {
    *v = (struct vocab_build){.model = "llama", .pre = "default"};
    vocab_add(v, "<unk>", TOKEN_UNKNOWN, 0);
    vocab_add(v, "<s>", TOKEN_CONTROL, 0);
    vocab_add(v, "</s>", TOKEN_CONTROL, 0);
    for (uint32_t byte = 0; byte < 256; byte++) {
        snprintf(v->byte_texts[byte], sizeof v->byte_texts[byte], "<0x%02X>", byte);
        vocab_add(v, v->byte_texts[byte], TOKEN_BYTE, 0);
    }
    v->n_scores = v->n_tokens;
    vocab_key(v, (struct vocab_key){"tokenizer.ggml.add_space_prefix", GGUF_BOOL, 0, NULL});
}

static void write_scores(const struct vocab_build *v, struct gguf_build *b) {
    const char *key = "tokenizer.ggml.scores";
    int32_t whole[VOCAB_ROOM];
    if (!v->whole_scores) {
        gguf_build_floats(b, key, v->scores, v->n_scores);
        return;
    }
    for (uint64_t i = 0; i < v->n_scores; i++) whole[i] = (int32_t)v->scores[i];
    gguf_build_ints(b, key, whole, v->n_scores);
}

void vocab_write(const struct vocab_build *v, struct gguf_build *b) {
    gguf_build_init(b);
    gguf_build_text(b, "general.architecture", "llama");
    if (v->model) gguf_build_text(b, "tokenizer.ggml.model", v->model);
    if (v->pre) gguf_build_text(b, "tokenizer.ggml.pre", v->pre);
    if (v->n_tokens) gguf_build_texts(b, "tokenizer.ggml.tokens", v->tokens, v->n_tokens);
    if (v->n_types) gguf_build_ints(b, "tokenizer.ggml.token_type", v->types, v->n_types);
    if (v->n_scores) write_scores(v, b);
    if (v->n_merges || (v->model && strcmp(v->model, "gpt2") == 0))
        gguf_build_texts(b, "tokenizer.ggml.merges", v->merges, v->n_merges);
    if (v->charsmap) {
        gguf_build_array(b, "tokenizer.ggml.precompiled_charsmap", GGUF_U8, v->n_charsmap);
        gguf_bytes_raw(&b->values, v->charsmap, v->n_charsmap);
    }
    for (int i = 0; i < v->n_keys; i++) {
        struct vocab_key key = v->keys[i];
        if (key.type == GGUF_STRING)
            gguf_build_text(b, key.key, key.text);
        else
            gguf_build_int(b, key.key, key.type, (uint64_t)key.number);
    }
    gguf_build_finish(b);
}

/* token_list.h: kinds of tokens, lists of token ids, and working memory for one call of the
 * tokenizer.
 *
 * The caller owns lists and memory, zeroed at first. Must not know the vocabulary. One thread uses
 * one of them at a time. Tested by tests/runtime/test_tokenizer.c.
 */
#ifndef TANDEM_RUNTIME_TEXT_TOKEN_LIST_H
#define TANDEM_RUNTIME_TEXT_TOKEN_LIST_H

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

enum token_kind { // tokenizer.ggml.token_type
    TOKEN_NORMAL = 1,
    TOKEN_UNKNOWN,
    TOKEN_CONTROL,
    TOKEN_USER_DEFINED,
    TOKEN_UNUSED,
    TOKEN_BYTE,
};

struct token_list { // caller owns ids, frees with token_list_close
    int32_t *ids;
    uint64_t count, capacity;
};

void token_list_close(struct token_list *list);
// Makes room for and appends one id. ERR_MEMORY if refused.
enum status token_list_push(struct token_list *list, int32_t id, struct err *e);

struct token_buffer { // grows; the contents are lost when it does
    void *memory;
    size_t size_bytes;
};

// Makes room for count elements. ERR_MEMORY if refused.
enum status token_buffer_reserve(struct token_buffer *b, size_t count, size_t element_bytes,
                                 struct err *e);

#endif

/* chat.h: turns a conversation into text with control tokens, in the format that the model was
 * trained on.
 *
 * Two families are written by hand, ChatML and Llama 3; tokenizer.chat_template of the GGUF file
 * decides which of them, and contains the default system message. A chat_format owns that one text;
 * segments borrow constants, the format and the messages. Control tokens come from the template
 * only: text that a person types never becomes one. Read-only after chat_detect; any thread. Tested
 * by tests/runtime/test_chat.c.
 */
#ifndef TANDEM_RUNTIME_TEXT_CHAT_H
#define TANDEM_RUNTIME_TEXT_CHAT_H

#include "base/err.h"
#include "base/log.h"
#include "runtime/gguf/gguf.h"
#include "runtime/text/tokenizer.h"

#include <stdbool.h>
#include <stddef.h>

enum chat_family {
    CHAT_CHATML, // <|im_start|>role\ntext<|im_end|>\n
    CHAT_LLAMA3, // <|start_header_id|>role<|end_header_id|>\n\ntext<|eot_id|>
};
enum chat_role { CHAT_SYSTEM, CHAT_USER, CHAT_ASSISTANT };

struct chat_message {
    enum chat_role role;
    const char *text; // borrowed; any bytes
    size_t length;
};

struct chat_format {
    enum chat_family family;
    char *default_system; // owned; put first if the first message is no system message; or NULL
    bool dated;           // Llama 3.1 and later: every conversation opens with two date lines
    bool bos;             // the template itself puts BOS first
};

struct chat_segment {
    const char *text; // borrowed
    size_t length;
    bool parse_special; // control tokens of the template; otherwise plain text
};

struct chat_segments { // a zeroed one is empty; the caller owns the list
    struct chat_segment *list;
    size_t count, capacity;
    bool starts; // a conversation from its beginning: BOS comes first if the file wants it
    bool bos;    // BOS comes first even if the vocabulary does not add it
};

// Finds the family of the file's template. Without a template it is ChatML, with a warning to log
// (which may be NULL). ERR_UNSUPPORTED for a template of another family.
enum status chat_detect(struct chat_format *f, const struct gguf *g, const struct log *log,
                        struct err *e);
void chat_format_close(struct chat_format *f); // accepts a zeroed one; leaves it zeroed

// Renders a whole conversation. with_reply: it ends with the head of an assistant message, which
// the model continues. Replaces *out.
enum status chat_render(const struct chat_format *f, const struct chat_message *messages,
                        size_t n_messages, bool with_reply, struct chat_segments *out,
                        struct err *e);

// Renders the continuation of a session that ends with a reply of the model without its end token:
// the end of that reply, the new messages, the head of the next reply. Replaces *out.
enum status chat_render_next(const struct chat_format *f, const struct chat_message *messages,
                             size_t n_messages, struct chat_segments *out, struct err *e);

// Appends the ids. Adjacent plain segments are tokenized as one text, as the original tokenizers
// do.
enum status chat_encode(const struct tokenizer *t, const struct chat_segments *segments,
                        struct token_list *out, struct err *e);

void chat_segments_close(struct chat_segments *segments);

#endif

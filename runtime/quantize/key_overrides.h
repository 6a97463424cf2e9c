/* key_overrides.h: values that a user gives keys of the new file.
 *
 * A struct key_overrides owns its list and keys and borrows the texts. One thread. Must not know
 * what keys mean but those that say where the file's parts are. Tested by
 * tests/runtime/test_quantize_file.c.
 */
#ifndef TANDEM_RUNTIME_QUANTIZE_KEY_OVERRIDES_H
#define TANDEM_RUNTIME_QUANTIZE_KEY_OVERRIDES_H

#include "runtime/gguf/gguf_write.h"

struct key_override {
    char *key;           // owned
    enum gguf_type type; // u32, f32, bool or string
    uint32_t number;     // of a u32 or bool
    float real;          // of an f32
    const char *text;    // of a string
};

struct key_overrides {
    struct key_override *list; // owned; no key comes twice
    int32_t n;
};

// Reads texts[n], such as "llama.context_length=int:4096"; of one key the last counts. ERR_USAGE
// for what cannot be read or would make the file unreadable, ERR_MEMORY. On failure *o is closed.
enum status key_overrides_open(struct key_overrides *o, const char *const *texts, int32_t n,
                               struct err *e);
void key_overrides_close(struct key_overrides *o); // accepts a zeroed one; leaves it zeroed

bool key_overrides_have(const struct key_overrides *o, struct gguf_text key);
void key_overrides_write(const struct key_overrides *o, struct gguf_head *h);

#endif

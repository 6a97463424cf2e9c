/* gguf_write.h: the head of a GGUF file (version 3), in memory: keys and tensor records.
 *
 * A struct gguf_head owns its bytes. The parts are added in the order of the file: the keys, then
 * the tensors. Must not know an architecture. A refused allocation sticks until gguf_head_finish
 * tells of it. One thread. Tested by
 * tests/runtime/test_quantize_file.c.
 */
#ifndef TANDEM_RUNTIME_GGUF_GGUF_WRITE_H
#define TANDEM_RUNTIME_GGUF_GGUF_WRITE_H

#include "runtime/gguf/gguf.h"

struct gguf_head {
    uint8_t *bytes; // owned
    size_t size, capacity;
    uint64_t n_values, n_tensors;
    bool refused; // an allocation
};

void gguf_head_open(struct gguf_head *h);
void gguf_head_close(struct gguf_head *h); // accepts a zeroed one; leaves it zeroed

void gguf_head_value(struct gguf_head *h, const struct gguf_value *value); // copies a key
void gguf_head_u16(struct gguf_head *h, const char *key, uint16_t number);
void gguf_head_i32(struct gguf_head *h, const char *key, int32_t number);
void gguf_head_u32(struct gguf_head *h, const char *key, uint32_t number);
void gguf_head_f32(struct gguf_head *h, const char *key, float number);
void gguf_head_bool(struct gguf_head *h, const char *key, bool is);
void gguf_head_text(struct gguf_head *h, const char *key, const char *text);
void gguf_head_texts(struct gguf_head *h, const char *key, const char *const *texts, uint64_t n);
// A tensor of that name and shape with another type, at an offset in the data section.
void gguf_head_tensor(struct gguf_head *h, const struct gguf_tensor *t, enum dtype type,
                      uint64_t offset);

// Fills in the counts and pads to where the data section begins. ERR_MEMORY.
enum status gguf_head_finish(struct gguf_head *h, uint32_t alignment, struct err *e);

#endif

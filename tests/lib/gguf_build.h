/* gguf_build.h: writes GGUF files in memory for tests, valid ones and deliberately broken ones.
 *
 * A struct gguf_build owns its byte buffers. Keys, tensor records and tensor data grow apart, in
 * any order, and gguf_build_finish joins them; broken files are made by appending raw bytes to a
 * buffer or by patching the finished file. A refused allocation ends the test. One thread.
 */
#ifndef TANDEM_TESTS_LIB_GGUF_BUILD_H
#define TANDEM_TESTS_LIB_GGUF_BUILD_H

#include "kernels/dtypes.h"
#include "runtime/gguf/gguf.h"

#include <stddef.h>
#include <stdint.h>

struct gguf_bytes { // a zeroed one is empty
    uint8_t *bytes; // owned
    size_t size, capacity;
};

// Little-endian appends. A text is a u64 length and the bytes, as GGUF stores strings.
void gguf_bytes_raw(struct gguf_bytes *b, const void *bytes, size_t size_bytes);
void gguf_bytes_int(struct gguf_bytes *b, uint64_t number, size_t size_bytes); // 1 to 8 bytes
void gguf_bytes_f32(struct gguf_bytes *b, float number);
void gguf_bytes_f64(struct gguf_bytes *b, double number);
void gguf_bytes_text(struct gguf_bytes *b, const char *text);
void gguf_bytes_close(struct gguf_bytes *b); // leaves it zeroed

struct gguf_build {
    struct gguf_bytes values, tensors, data; // the three sections
    struct gguf_bytes file;                  // the whole, after gguf_build_finish
    uint64_t n_values, n_tensors;
    uint32_t version, alignment;
};

// A file of version 3, alignment 32, without keys and tensors.
void gguf_build_init(struct gguf_build *b);
void gguf_build_close(struct gguf_build *b);

// The start of a key's record: its name and type. The value is appended to b->values by the caller.
void gguf_build_key(struct gguf_build *b, const char *key, uint32_t type);
// The start of an array's record; the caller appends the elements.
void gguf_build_array(struct gguf_build *b, const char *key, uint32_t element, uint64_t count);
// Whole records. gguf_build_int takes any integer type or bool.
void gguf_build_int(struct gguf_build *b, const char *key, enum gguf_type type, uint64_t number);
void gguf_build_f32(struct gguf_build *b, const char *key, float number);
void gguf_build_text(struct gguf_build *b, const char *key, const char *text);
void gguf_build_texts(struct gguf_build *b, const char *key, const char *const *texts,
                      uint64_t count);
void gguf_build_ints(struct gguf_build *b, const char *key, const int32_t *numbers, uint64_t count);
void gguf_build_floats(struct gguf_build *b, const char *key, const float *numbers, uint64_t count);

// One tensor record as it is told, right or wrong; no data.
void gguf_build_record(struct gguf_build *b, const char *name, uint32_t n_dims, const uint64_t *ne,
                       uint32_t type, uint64_t offset);
// A valid tensor behind all data so far. Its bytes are copied from data, or counted up if NULL.
void gguf_build_tensor(struct gguf_build *b, const char *name, int n_dims, const uint64_t *ne,
                       enum dtype type, const void *data);

// The keys of part number (from 0) of a split model.
void gguf_build_split(struct gguf_build *b, uint64_t number, uint64_t count, uint64_t n_tensors);

// Joins the sections into b->file: header, keys, records, padding, data.
void gguf_build_finish(struct gguf_build *b);
// Overwrites size bytes at a position of the finished file.
void gguf_build_patch(struct gguf_build *b, size_t position, uint64_t number, size_t size_bytes);
// Writes the finished file. Ends the test if the file system refuses.
void gguf_build_write(const struct gguf_build *b, const char *path);

#endif

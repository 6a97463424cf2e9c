/* gguf.h: reads GGUF files (versions 2 and 3, little-endian, whole or split in parts), nothing else
 * of the model.
 *
 * A struct gguf owns the mappings of all parts and its tables; keys, strings and tensor bytes are
 * lent out of the mappings until gguf_close. Every number in the file is checked before it is used:
 * sizes, counts, types, overlaps. Must not know an architecture. One thread opens; then any thread
 * may read. Tested by tests/runtime/test_gguf.c and tests/fuzz/fuzz_gguf.c. Source: the GGUF format
 * of ggml, docs/gguf.md.
 */
#ifndef TANDEM_RUNTIME_GGUF_GGUF_H
#define TANDEM_RUNTIME_GGUF_GGUF_H

#include "base/err.h"
#include "base/file.h"
#include "base/strmap.h"
#include "kernels/dtypes.h"

#include <stdbool.h>
#include <stdint.h>

enum gguf_type {
    GGUF_U8,
    GGUF_I8,
    GGUF_U16,
    GGUF_I16,
    GGUF_U32,
    GGUF_I32,
    GGUF_F32,
    GGUF_BOOL,
    GGUF_STRING,
    GGUF_ARRAY,
    GGUF_U64,
    GGUF_I64,
    GGUF_F64,
    GGUF_TYPE_COUNT,
};

struct gguf_text { // borrowed bytes in the mapping, not terminated
    const char *bytes;
    uint64_t length;
};

struct gguf_value {
    struct gguf_text key;
    enum gguf_type type;
    enum gguf_type element; // of an array, else equal to type
    uint64_t count;         // elements of an array, else 1
    const uint8_t *data;    // first element (for strings: its length field); unaligned
    uint64_t size_bytes;    // of all elements
};

struct gguf_tensor {
    struct gguf_text name;
    enum dtype type;
    int n_dims;     // 0 (a scalar) to 4
    uint64_t ne[4]; // ne[0] is contiguous; unused ones are 1
    uint64_t size_bytes;
    const uint8_t *data;  // in the mapping of its part, at a multiple of gguf.alignment
    uint32_t part;        // index of the part
    uint64_t file_offset; // of data in that part
};

struct gguf {
    struct file *parts; // owned; parts[0] holds the metadata
    uint32_t n_parts;
    struct gguf_value *values; // owned
    uint32_t n_values;
    struct gguf_tensor *tensors; // owned, in file order
    uint32_t n_tensors;
    struct strmap value_index, tensor_index;
    uint32_t version;
    uint32_t alignment; // a power of two, at least 4
};

// Opens path and, for part 1 of a split file, all its other parts. ERR_FILE, ERR_FORMAT,
// ERR_UNSUPPORTED or ERR_MEMORY, naming the file, the key or tensor, the expected and the actual
// value. On failure *g is closed. Only headers are read. If another process shortens the file while
// it is open, SIGBUS ends this process, as with every mapping: replace model files by renaming.
enum status gguf_open(struct gguf *g, const char *path, struct err *e);

// Accepts a zeroed or half-open struct; leaves it zeroed.
void gguf_close(struct gguf *g);

// The last 120 bytes of a part's path, so that the rest of a message has room. Borrowed.
const char *gguf_part_name(const struct file *file);

// NULL if there is no such key or tensor. The result is borrowed until gguf_close.
const struct gguf_value *gguf_find(const struct gguf *g, const char *key);
const struct gguf_tensor *gguf_find_tensor(const struct gguf *g, const char *name);

// Read one value. A missing key is OK and leaves *out unchanged; present keys convert between
// integer types with a range check (low..high), else ERR_FORMAT naming key, range and value.
// gguf_read_f32 accepts f32, f64. gguf_read_bool accepts bool (any byte but 0 is true).
// gguf_read_text lends the bytes.
enum status gguf_read_u64(const struct gguf *g, const char *key, uint64_t low, uint64_t high,
                          uint64_t *out, struct err *e);
enum status gguf_read_f32(const struct gguf *g, const char *key, float *out, struct err *e);
enum status gguf_read_bool(const struct gguf *g, const char *key, bool *out, struct err *e);
enum status gguf_read_text(const struct gguf *g, const char *key, struct gguf_text *out,
                           struct err *e);

// Returns element i of an integer array (any integer or bool element type) as i64, of a float array
// as double. i < count is a precondition; a wrong element type is too (check value->element first).
// Scalars count as arrays of one. A u64 above INT64_MAX gives INT64_MAX, a bool 0 or 1.
int64_t gguf_array_int(const struct gguf_value *value, uint64_t i);
uint64_t gguf_array_u64(const struct gguf_value *value, uint64_t i); // of u64 alone, exactly
double gguf_array_float(const struct gguf_value *value, uint64_t i);

// Walks an array of strings: *cursor starts at NULL; fills *out and moves on. False at the end.
bool gguf_next_text(const struct gguf_value *value, const uint8_t **cursor, struct gguf_text *out);

// Bytes of one element: 1 to 8, or 0 for strings and arrays, whose size is in the file.
uint32_t gguf_type_bytes(enum gguf_type type);

// Writes "u32", "array of string" ... to out; returns out.
char *gguf_type_text(const struct gguf_value *value, char *out, size_t size_bytes);

#endif

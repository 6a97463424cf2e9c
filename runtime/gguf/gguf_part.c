/* gguf_part.c: see gguf_part.h. */
#include "runtime/gguf/gguf_part.h"

#include "base/mem.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "numbers are read as they lie in a file");

enum {
    HEADER_BYTES = 24,
    VALUE_RECORD_BYTES = 13,  // the shortest one: an empty key and a u8
    TENSOR_RECORD_BYTES = 24, // the shortest one: an empty name and no dimensions
    RECORD_LIMIT = 1 << 20,   // keys or tensors: real files have thousands at most
    KEY_LIMIT = 1 << 16,
    NAME_LIMIT = 63,
    TEXT_LIMIT = 1 << 30,
    ELEMENT_LIMIT = 1 << 30,
    DEFAULT_ALIGNMENT = 32,
    ALIGNMENT_LEAST = 4, // of F32 tensors, which are read where the file is mapped
    ALIGNMENT_LIMIT = 1 << 16,
    SHOWN_NAME = 80, // bytes of a key that messages show
    TEXT_CHARS = 64, // of a file, by which it is a text
};

static const char FETCH_AGAIN[] = "fetch the file again, the download is incomplete or damaged";

// Walks the header of one file. at never passes the end of the file.
struct reader {
    const struct file *file;
    uint64_t at;           // next unread byte
    const char *section;   // "key" or "tensor", for messages; NULL in the header
    uint64_t index;        // of that key or tensor
    struct gguf_text name; // its name, once it is known
    struct err *e;
};

// Starts every error of this file: "path: key general.name: what", or "path: key 3: what" before
// the name is known.
__attribute__((format(printf, 3, 4))) static enum status
refuse(const struct reader *r, enum status status, const char *what, ...) {
    char text[160], item[16 + SHOWN_NAME] = "";
    va_list args;
    va_start(args, what);
    vsnprintf(text, sizeof text, what, args);
    va_end(args);
    int shown = r->name.length < SHOWN_NAME ? (int)r->name.length : SHOWN_NAME;
    if (shown)
        snprintf(item, sizeof item, "%s %.*s: ", r->section, shown, r->name.bytes);
    else if (r->section)
        snprintf(item, sizeof item, "%s %" PRIu64 ": ", r->section, r->index + 1);
    return err_set(r->e, status, "%s: %s%s", gguf_part_name(r->file), item, text);
}

static uint64_t left(const struct reader *r) { return r->file->size_bytes - r->at; }

static enum status ends_inside(const struct reader *r, uint64_t wanted, const char *what) {
    refuse(r, ERR_FORMAT, "the file ends inside %s", what);
    err_expected(r->e, "%" PRIu64 " byte%s from byte %" PRIu64 " on", wanted,
                 wanted == 1 ? "" : "s", r->at);
    err_actual(r->e, "%" PRIu64, left(r));
    return err_fix(r->e, "%s", FETCH_AGAIN);
}

// Moves over size bytes and lends them; NULL if the file has fewer.
static const uint8_t *take(struct reader *r, uint64_t size_bytes, const char *what) {
    if (size_bytes > left(r)) {
        ends_inside(r, size_bytes, what);
        return NULL;
    }
    const uint8_t *bytes = r->file->map + r->at;
    r->at += size_bytes;
    return bytes;
}

// Each fills *out and returns true, or leaves the error in *r->e.
static bool take_u32(struct reader *r, const char *what, uint32_t *out) {
    const uint8_t *bytes = take(r, sizeof *out, what);
    if (!bytes) return false;
    memcpy(out, bytes, sizeof *out);
    return true;
}

static bool take_u64(struct reader *r, const char *what, uint64_t *out) {
    const uint8_t *bytes = take(r, sizeof *out, what);
    if (!bytes) return false;
    memcpy(out, bytes, sizeof *out);
    return true;
}

static bool take_text(struct reader *r, uint64_t limit, const char *what, struct gguf_text *out) {
    uint64_t length;
    if (!take_u64(r, what, &length)) return false;
    if (length > limit) {
        refuse(r, ERR_FORMAT, "the length of %s is impossible", what);
        err_expected(r->e, "at most %" PRIu64 " bytes", limit);
        err_actual(r->e, "%" PRIu64, length);
        return false;
    }
    const uint8_t *bytes = take(r, length, what);
    if (!bytes) return false;
    *out = (struct gguf_text){(const char *)bytes, length};
    return true;
}

// Header

static bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

// The bytes with which a file of another kind begins, from offset on, and what to do with it.
static const struct beginning {
    uint32_t offset;
    const char *bytes, *fix;
} beginnings[] = {
    {0, "tjgg", "this is a ggml file from before GGUF: fetch a GGUF of the model"},
    {0, "lmgg", "this is a ggml file from before GGUF: fetch a GGUF of the model"},
    {0, "fmgg", "this is a ggml file from before GGUF: fetch a GGUF of the model"},
    {8, "{\"",
     "this is a safetensors file: fetch a GGUF of the model, or make one with llama.cpp's "
     "convert_hf_to_gguf.py"},
    {0, "PK\3\4",
     "this is a zip archive, as PyTorch's files are: unpack it, or fetch a GGUF of the model"},
    {0, "\x1f\x8b", "this file is compressed: unpack it with gunzip"},
    {0, "\x28\xb5\x2f\xfd", "this file is compressed: unpack it with unzstd"},
};

// The way out for a text: a pointer of git, or the answer of a server in place of the file.
static const char *fix_of_text(const char *bytes, uint64_t size) {
    static const char pointer[] = "version https://git-lfs";
    if (size >= sizeof pointer - 1 && memcmp(bytes, pointer, sizeof pointer - 1) == 0)
        return "this looks like a Git LFS pointer: run git lfs pull";
    while (size > 0 && is_blank(*bytes)) bytes++, size--;
    if (size > 0 && *bytes == '<')
        return "this is a web page: at huggingface.co the address of a file has /resolve/ where "
               "that of its page has /blob/";
    return "this is a text, perhaps a server's error: read it, then fetch the file again";
}

// The way out for a file that is no GGUF file.
static const char *fix_of_other_file(const char *bytes, uint64_t size) {
    bool is_text = true;
    for (uint64_t i = 0; i < size && i < TEXT_CHARS; i++)
        is_text &= (bytes[i] >= ' ' && bytes[i] <= '~') || is_blank(bytes[i]);
    if (is_text) return fix_of_text(bytes, size);
    for (size_t i = 0; i < sizeof beginnings / sizeof *beginnings; i++) {
        const struct beginning *b = &beginnings[i];
        const size_t length = strlen(b->bytes);
        if (size >= b->offset + length && memcmp(bytes + b->offset, b->bytes, length) == 0)
            return b->fix;
    }
    return size >= 4 && memcmp(bytes, "\0\0\0", 4) == 0 ? FETCH_AGAIN : "give a .gguf file";
}

static enum status check_magic(const struct reader *r) {
    uint8_t magic[4] = {0};
    size_t present = r->file->size_bytes < 4 ? r->file->size_bytes : 4;
    if (present) memcpy(magic, r->file->map, present);
    if (present == 4 && memcmp(magic, "GGUF", 4) == 0) {
        if (r->file->size_bytes >= HEADER_BYTES) return OK;
        return ends_inside(r, HEADER_BYTES, "its header");
    }
    refuse(r, ERR_FORMAT, "is no GGUF file");
    err_expected(r->e, "a file that begins with \"GGUF\"");
    if (present < 4) {
        err_actual(r->e, "%" PRIu64 " bytes in all", r->file->size_bytes);
        return err_fix(r->e, "%s", FETCH_AGAIN);
    }
    bool is_text = true;
    for (size_t i = 0; i < present; i++) is_text &= magic[i] >= ' ' && magic[i] <= '~';
    if (is_text)
        err_actual(r->e, "\"%.4s\"", (const char *)magic);
    else
        err_actual(r->e, "the bytes %02x %02x %02x %02x", magic[0], magic[1], magic[2], magic[3]);
    return err_fix(r->e, "%s", fix_of_other_file((const char *)r->file->map, r->file->size_bytes));
}

static enum status check_version(const struct reader *r, uint32_t version) {
    if (version == 2 || version == 3) return OK;
    if (version != 0 && (version & 0xffff) == 0) {
        refuse(r, ERR_UNSUPPORTED, "is a big-endian GGUF file");
        err_expected(r->e, "little-endian");
        return err_fix(r->e, "fetch the little-endian file of this model");
    }
    refuse(r, version == 0 ? ERR_FORMAT : ERR_UNSUPPORTED, "GGUF version %" PRIu32, version);
    err_expected(r->e, "version 2 or 3");
    err_actual(r->e, "version %" PRIu32, version);
    if (version == 0) return err_fix(r->e, "%s", FETCH_AGAIN);
    return err_fix(r->e, version == 1 ? "fetch a newer conversion of this model"
                                      : "update tandem, or fetch a version 3 file");
}

// Checks a number of records, which must fit the rest of the file, before anything is allocated.
static enum status check_count(const struct reader *r, uint64_t count, uint64_t record_bytes,
                               const char *what) {
    uint64_t room = left(r) / record_bytes;
    if (count <= room && count <= RECORD_LIMIT) return OK;
    refuse(r, count > room ? ERR_FORMAT : ERR_UNSUPPORTED, "the number of %s is impossible", what);
    err_expected(r->e, "at most %" PRIu64, room < RECORD_LIMIT ? room : RECORD_LIMIT);
    err_actual(r->e, "%" PRIu64, count);
    return count > room ? err_fix(r->e, "%s", FETCH_AGAIN) : r->e->status;
}

static enum status read_header(struct reader *r, struct gguf *g) {
    uint64_t n_tensors, n_values;
    if (check_magic(r) != OK) return r->e->status;
    r->at = 4;
    if (!take_u32(r, "the version", &g->version)) return r->e->status;
    if (check_version(r, g->version) != OK) return r->e->status;
    if (!take_u64(r, "the number of tensors", &n_tensors)) return r->e->status;
    if (!take_u64(r, "the number of keys", &n_values)) return r->e->status;
    if (check_count(r, n_values, VALUE_RECORD_BYTES, "keys") != OK) return r->e->status;
    if (check_count(r, n_tensors, TENSOR_RECORD_BYTES, "tensors") != OK) return r->e->status;
    g->n_values = (uint32_t)n_values;
    g->n_tensors = (uint32_t)n_tensors;
    return OK;
}

// Keys and values

// Moves over count strings without looking at their bytes: vocabularies have hundreds of thousands.
static enum status skip_texts(struct reader *r, uint64_t count) {
    const uint8_t *map = r->file->map;
    const uint64_t end = r->file->size_bytes;
    uint64_t at = r->at, length;
    for (uint64_t i = 0; i < count; i++) {
        if (end - at < sizeof length) goto cut;
        memcpy(&length, map + at, sizeof length);
        at += sizeof length;
        if (length > end - at || length > TEXT_LIMIT) {
            r->at = at;
            refuse(r, ERR_FORMAT, "the length of string %" PRIu64 " is impossible", i);
            err_expected(r->e, "at most %" PRIu64 " bytes",
                         left(r) < TEXT_LIMIT ? left(r) : TEXT_LIMIT);
            err_actual(r->e, "%" PRIu64, length);
            return err_fix(r->e, "%s", FETCH_AGAIN);
        }
        at += length;
    }
    r->at = at;
    return OK;
cut:
    r->at = at;
    return ends_inside(r, sizeof length, "an array of strings");
}

static enum status read_array(struct reader *r, struct gguf_value *value) {
    uint32_t element;
    if (!take_u32(r, "its element type", &element)) return r->e->status;
    if (!take_u64(r, "its element count", &value->count)) return r->e->status;
    if (element == GGUF_ARRAY)
        return refuse(r, ERR_UNSUPPORTED, "arrays of arrays are not supported");
    if (element >= GGUF_TYPE_COUNT) {
        refuse(r, ERR_FORMAT, "unknown element type");
        err_expected(r->e, "0 to %d", GGUF_TYPE_COUNT - 1);
        return err_actual(r->e, "%" PRIu32, element);
    }
    if (value->count > ELEMENT_LIMIT) {
        refuse(r, ERR_FORMAT, "the element count is impossible");
        err_expected(r->e, "at most %d", ELEMENT_LIMIT);
        return err_actual(r->e, "%" PRIu64, value->count);
    }
    value->element = (enum gguf_type)element;
    // The smallest string is its length field; the count limit keeps the product small.
    uint64_t stride = element == GGUF_STRING ? sizeof(uint64_t) : gguf_type_bytes(value->element);
    if (value->count * stride > left(r))
        return ends_inside(r, value->count * stride, "its elements");
    value->data = r->file->map + r->at;
    if (element == GGUF_STRING) return skip_texts(r, value->count);
    r->at += value->count * stride;
    return OK;
}

static enum status read_value(struct reader *r, struct gguf_value *value) {
    uint32_t type;
    struct gguf_text text;
    if (!take_text(r, KEY_LIMIT, "a key", &value->key)) return r->e->status;
    if (value->key.length == 0) return refuse(r, ERR_FORMAT, "the key is empty");
    r->name = value->key;
    if (!take_u32(r, "its value type", &type)) return r->e->status;
    if (type >= GGUF_TYPE_COUNT) {
        refuse(r, ERR_FORMAT, "unknown value type");
        err_expected(r->e, "0 to %d", GGUF_TYPE_COUNT - 1);
        return err_actual(r->e, "%" PRIu32, type);
    }
    value->type = value->element = (enum gguf_type)type;
    value->count = 1;
    value->data = r->file->map + r->at;
    if (type == GGUF_ARRAY)
        read_array(r, value);
    else if (type == GGUF_STRING)
        take_text(r, TEXT_LIMIT, "its string", &text);
    else
        take(r, gguf_type_bytes(value->type), "its value");
    if (r->e->status != OK) return r->e->status;
    value->size_bytes = (uint64_t)(r->file->map + r->at - value->data);
    return OK;
}

static enum status read_values(struct reader *r, struct gguf *g) {
    g->values = mem_alloc(g->n_values, sizeof *g->values);
    if (!g->values) return err_memory(r->e, g->n_values * sizeof *g->values, "the keys of a GGUF");
    if (strmap_init(&g->value_index, g->n_values, r->e) != OK) return r->e->status;
    r->section = "key";
    for (uint32_t i = 0; i < g->n_values; i++) {
        struct gguf_value *value = &g->values[i];
        r->index = i;
        r->name.length = 0;
        if (read_value(r, value) != OK) return r->e->status;
        if (!strmap_put(&g->value_index, value->key.bytes, (uint32_t)value->key.length, i))
            return refuse(r, ERR_FORMAT, "the key is there twice");
    }
    return OK;
}

static enum status read_alignment(struct reader *r, struct gguf *g) {
    const struct gguf_value *value = gguf_find(g, "general.alignment");
    g->alignment = DEFAULT_ALIGNMENT;
    if (!value) return OK;
    r->name = value->key;
    if (value->type != GGUF_U32) {
        char type[32];
        refuse(r, ERR_FORMAT, "wrong value type");
        err_expected(r->e, "u32");
        return err_actual(r->e, "%s", gguf_type_text(value, type, sizeof type));
    }
    memcpy(&g->alignment, value->data, sizeof g->alignment);
    uint32_t a = g->alignment;
    if (a >= ALIGNMENT_LEAST && (a & (a - 1)) == 0 && a <= ALIGNMENT_LIMIT) return OK;
    refuse(r, ERR_FORMAT, "impossible alignment");
    err_expected(r->e, "a power of two from %d up to %d", ALIGNMENT_LEAST, ALIGNMENT_LIMIT);
    err_actual(r->e, "%" PRIu32, a);
    return err_fix(r->e, "convert the model with general.alignment 32");
}

// Tensors

static enum status refuse_type(const struct reader *r, uint32_t number) {
    bool repacked = number >= 31 && number <= 33, fork = number >= 96;
    const char *kind = "an unknown type";
    if (number == 4 || number == 5 || repacked || (number >= 36 && number <= 38))
        kind = "a type that was removed from the format";
    else if (fork)
        kind = "a type of a llama.cpp fork";
    if (number > INT32_MAX) {
        refuse(r, ERR_FORMAT, "impossible element type");
        return err_actual(r->e, "%" PRId32, (int32_t)number);
    }
    refuse(r, ERR_UNSUPPORTED, "element type %" PRIu32 " is %s", number, kind);
    err_expected(r->e, "a type of the current GGUF format");
    err_actual(r->e, "%" PRIu32, number);
    if (repacked) return err_fix(r->e, "fetch Q4_0, which has the same weights");
    return err_fix(r->e, "fetch another quantisation of this model, such as Q4_K_M or Q8_0");
}

static enum status read_shape(struct reader *r, struct gguf_tensor *t) {
    uint32_t n_dims;
    if (!take_u32(r, "its number of dimensions", &n_dims)) return r->e->status;
    if (n_dims > 4) {
        refuse(r, ERR_FORMAT, "too many dimensions");
        err_expected(r->e, "0 to 4");
        return err_actual(r->e, "%" PRIu32, n_dims);
    }
    t->n_dims = (int)n_dims;
    for (uint32_t d = 0; d < 4; d++) {
        t->ne[d] = 1;
        if (d >= n_dims) continue;
        if (!take_u64(r, "its dimensions", &t->ne[d])) return r->e->status;
        if (t->ne[d] == 0 || t->ne[d] > INT64_MAX) {
            refuse(r, ERR_FORMAT, "impossible dimension %" PRIu32, d);
            err_expected(r->e, "1 or more");
            return err_actual(r->e, "%" PRId64, (int64_t)t->ne[d]);
        }
    }
    return OK;
}

static enum status read_type(struct reader *r, struct gguf_tensor *t) {
    uint32_t number;
    if (!take_u32(r, "its element type", &number)) return r->e->status;
    const struct dtype_info *info = dtype_find(number);
    if (!info) return refuse_type(r, number);
    t->type = (enum dtype)number;
    if (t->ne[0] % info->block_elements) {
        refuse(r, ERR_FORMAT, "row length does not fit type %s", info->name);
        err_expected(r->e, "a multiple of %" PRIu32 " elements", info->block_elements);
        return err_actual(r->e, "%" PRIu64, t->ne[0]);
    }
    uint64_t elements = t->ne[0], size = t->ne[0] / info->block_elements;
    bool fits = mul_size(size, info->block_bytes, &size);
    for (int d = 1; d < 4 && fits; d++)
        fits = mul_size(elements, t->ne[d], &elements) && mul_size(size, t->ne[d], &size);
    if (!fits || elements > INT64_MAX || size > INT64_MAX) {
        refuse(r, ERR_FORMAT, "impossible size");
        err_expected(r->e, "less than 2^63 elements and bytes");
        return err_actual(r->e, "%" PRIu64 " x %" PRIu64 " x %" PRIu64 " x %" PRIu64 " of %s",
                          t->ne[0], t->ne[1], t->ne[2], t->ne[3], info->name);
    }
    t->size_bytes = size;
    return OK;
}

// file_offset counts from the data section until place_tensors.
static enum status read_tensor(struct reader *r, struct gguf_tensor *t, uint32_t alignment) {
    if (!take_text(r, NAME_LIMIT, "its name", &t->name)) return r->e->status;
    if (t->name.length == 0) return refuse(r, ERR_FORMAT, "the name is empty");
    r->name = t->name;
    if (read_shape(r, t) != OK) return r->e->status;
    if (read_type(r, t) != OK) return r->e->status;
    if (!take_u64(r, "its offset", &t->file_offset)) return r->e->status;
    if (t->file_offset % alignment) {
        refuse(r, ERR_FORMAT, "the offset is not aligned");
        err_expected(r->e, "a multiple of %" PRIu32, alignment);
        return err_actual(r->e, "%" PRIu64, t->file_offset);
    }
    return OK;
}

static enum status read_tensors(struct reader *r, struct gguf *g) {
    g->tensors = mem_alloc(g->n_tensors, sizeof *g->tensors);
    if (!g->tensors)
        return err_memory(r->e, g->n_tensors * sizeof *g->tensors, "the tensors of a GGUF");
    if (strmap_init(&g->tensor_index, g->n_tensors, r->e) != OK) return r->e->status;
    r->section = "tensor";
    for (uint32_t i = 0; i < g->n_tensors; i++) {
        struct gguf_tensor *t = &g->tensors[i];
        r->index = i;
        r->name.length = 0;
        if (read_tensor(r, t, g->alignment) != OK) return r->e->status;
        if (!strmap_put(&g->tensor_index, t->name.bytes, (uint32_t)t->name.length, i))
            return refuse(r, ERR_FORMAT, "the tensor is there twice");
    }
    return OK;
}

// Placement

static enum status refuse_cut(struct reader *r, const struct gguf_tensor *missing, uint64_t end) {
    uint64_t size = r->file->size_bytes;
    r->name = missing->name;
    refuse(r, ERR_FORMAT, "%" PRIu64 " byte%s missing from here on", end - size,
           end - size == 1 ? " is" : "s are");
    err_expected(r->e, "a file of %" PRIu64 " bytes", end);
    err_actual(r->e, "%" PRIu64, size);
    return err_fix(r->e, "%s", FETCH_AGAIN);
}

// Gives every tensor its place in the file, which must hold all of it.
static enum status place_tensors(struct reader *r, struct gguf *g) {
    const uint64_t data_start = round_up(r->at, g->alignment), size = r->file->size_bytes;
    const struct gguf_tensor *missing = NULL;
    uint64_t last_end = 0, end;
    for (uint32_t i = 0; i < g->n_tensors; i++) {
        struct gguf_tensor *t = &g->tensors[i];
        uint64_t offset = t->file_offset;
        if (!add_size(offset, data_start, &t->file_offset) ||
            !add_size(t->file_offset, t->size_bytes, &end) || end > INT64_MAX) {
            r->name = t->name;
            refuse(r, ERR_FORMAT, "impossible offset");
            return err_actual(r->e, "%" PRIu64 " with a size of %" PRIu64, offset, t->size_bytes);
        }
        if (end > size && (!missing || t->file_offset < missing->file_offset)) missing = t;
        if (end > last_end) last_end = end;
    }
    if (missing) return refuse_cut(r, missing, last_end);
    for (uint32_t i = 0; i < g->n_tensors; i++)
        g->tensors[i].data = r->file->map + g->tensors[i].file_offset;
    return OK;
}

static int compare_offsets(const void *a, const void *b) {
    const struct gguf_tensor *const *x = a, *const *y = b;
    return ((*x)->file_offset > (*y)->file_offset) - ((*x)->file_offset < (*y)->file_offset);
}

// Checks neighbours by offset: if any tensors overlap, two neighbours do.
static enum status check_overlaps(struct reader *r, const struct gguf *g) {
    const struct gguf_tensor **sorted = mem_alloc(g->n_tensors, sizeof(struct gguf_tensor *));
    if (!sorted)
        return err_memory(r->e, g->n_tensors * sizeof(struct gguf_tensor *), "a list of tensors");
    for (uint32_t i = 0; i < g->n_tensors; i++) sorted[i] = &g->tensors[i];
    qsort(sorted, g->n_tensors, sizeof(struct gguf_tensor *), compare_offsets);
    for (uint32_t i = 1; i < g->n_tensors; i++) {
        const struct gguf_tensor *before = sorted[i - 1], *t = sorted[i];
        if (before->file_offset + before->size_bytes <= t->file_offset) continue;
        r->name = t->name;
        refuse(r, ERR_FORMAT, "overlaps tensor %.*s", (int)before->name.length, before->name.bytes);
        err_expected(r->e, "byte %" PRIu64 " or later", before->file_offset + before->size_bytes);
        err_actual(r->e, "byte %" PRIu64, t->file_offset);
        break;
    }
    mem_free(sorted);
    return r->e->status;
}

enum status gguf_part_open(struct gguf *g, const char *path, struct err *e) {
    *g = (struct gguf){0};
    *e = (struct err){.status = OK};
    g->parts = mem_alloc(1, sizeof *g->parts);
    if (!g->parts) return err_memory(e, sizeof *g->parts, "an open file");
    if (file_open(&g->parts[0], path, e) != OK) return e->status;
    g->n_parts = 1;
    struct reader r = {.file = &g->parts[0], .e = e};
    if (read_header(&r, g) != OK) return e->status;
    if (read_values(&r, g) != OK) return e->status;
    if (read_alignment(&r, g) != OK) return e->status;
    if (read_tensors(&r, g) != OK) return e->status;
    if (place_tensors(&r, g) != OK) return e->status;
    return check_overlaps(&r, g);
}

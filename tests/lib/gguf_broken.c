/* gguf_broken.c: see gguf_broken.h. */
#include "tests/lib/gguf_broken.h"

#include <stdio.h>
#include <string.h>

#define RAW(literal) .text = (literal), .numbers = {sizeof(literal) - 1}

enum split_fault {
    FAULT_MISSING,   // no such part
    FAULT_NUMBER,    // wrong split.no, numbers[2]
    FAULT_COUNT,     // wrong split.count
    FAULT_TOTAL,     // wrong split.tensors.count
    FAULT_NO_KEYS,   // no split keys
    FAULT_NO_TOTAL,  // no split.tensors.count
    FAULT_DUPLICATE, // the tensor of part 0
    FAULT_MAGIC,     // not a GGUF file
    FAULT_TYPE,      // split.no is a string
    FAULT_CUT,       // 8 bytes are missing
    FAULT_NONE,
};

void gguf_broken_base(struct gguf_build *b) {
    static const char *const TOKENS[] = {"a", "bc", "", "d e"};
    gguf_build_init(b);
    gguf_build_text(b, "general.architecture", "test");
    gguf_build_int(b, "test.block_count", GGUF_U32, 2);
    gguf_build_texts(b, "tokenizer.ggml.tokens", TOKENS, 4);
    gguf_build_floats(b, "tokenizer.ggml.scores", (const float[]){0, -1, -2.5f, 3}, 4);
    gguf_build_int(b, "test.flag", GGUF_BOOL, 1);
    gguf_build_tensor(b, "a", 2, (const uint64_t[]){4, 3}, DTYPE_F32, NULL);
    gguf_build_tensor(b, "b", 2, (const uint64_t[]){32, 2}, DTYPE_Q8_0, NULL);
    gguf_build_tensor(b, "c", 0, NULL, DTYPE_F16, NULL);
}

// The base file with numbers[1], numbers[2] bytes long, at position numbers[0].
static bool patched(struct gguf_build *b, uint32_t part, const struct gguf_broken *row) {
    (void)part;
    gguf_broken_base(b);
    gguf_build_finish(b);
    gguf_build_patch(b, row->numbers[0], row->numbers[1], row->numbers[2]);
    return true;
}

// The first numbers[0] bytes of the base file, or all but the last numbers[1].
static bool cut(struct gguf_build *b, uint32_t part, const struct gguf_broken *row) {
    (void)part;
    gguf_broken_base(b);
    gguf_build_finish(b);
    b->file.size = row->numbers[1] ? b->file.size - row->numbers[1] : row->numbers[0];
    return true;
}

// Nothing but the numbers[0] bytes of text.
static bool whole(struct gguf_build *b, uint32_t part, const struct gguf_broken *row) {
    (void)part;
    gguf_build_init(b);
    gguf_bytes_raw(&b->file, row->text, row->numbers[0]);
    return true;
}

// One key record, the numbers[0] bytes of text.
static bool record(struct gguf_build *b, uint32_t part, const struct gguf_broken *row) {
    (void)part;
    gguf_build_init(b);
    gguf_bytes_raw(&b->values, row->text, row->numbers[0]);
    b->n_values = 1;
    gguf_build_finish(b);
    return true;
}

// The key text, of value type numbers[0], with numbers[1] in numbers[2] bytes as its value.
static bool value(struct gguf_build *b, uint32_t part, const struct gguf_broken *row) {
    (void)part;
    gguf_broken_base(b);
    gguf_build_key(b, row->text, (uint32_t)row->numbers[0]);
    gguf_bytes_int(&b->values, row->numbers[1], row->numbers[2]);
    gguf_build_finish(b);
    return true;
}

// A string under a key, numbers[0] bytes by its length field, with 3 bytes in the file.
static bool text_value(struct gguf_build *b, uint32_t part, const struct gguf_broken *row) {
    (void)part;
    gguf_build_init(b);
    gguf_build_key(b, "text", GGUF_STRING);
    gguf_bytes_int(&b->values, row->numbers[0], 8);
    gguf_bytes_raw(&b->values, "abc", 3);
    gguf_build_finish(b);
    return true;
}

// An array of element type numbers[0] and count numbers[1] as the last thing of the file, followed
// by a string field of length numbers[2] and numbers[3] bytes.
static bool array(struct gguf_build *b, uint32_t part, const struct gguf_broken *row) {
    (void)part;
    gguf_build_init(b);
    gguf_build_array(b, "list", (uint32_t)row->numbers[0], row->numbers[1]);
    gguf_bytes_int(&b->values, row->numbers[2], 8);
    for (uint64_t i = 0; i < row->numbers[3]; i++) gguf_bytes_int(&b->values, 'x', 1);
    gguf_build_finish(b);
    return true;
}

// numbers[0] keys of one byte each are promised, in a file that has room for them.
static bool too_many(struct gguf_build *b, uint32_t part, const struct gguf_broken *row) {
    (void)part;
    static const uint8_t ZEROS[1024];
    gguf_build_init(b);
    b->n_values = row->numbers[0];
    while (b->values.size < row->numbers[0] * 13) gguf_bytes_raw(&b->values, ZEROS, sizeof ZEROS);
    gguf_build_finish(b);
    return true;
}

// The base file with one more tensor: name text, numbers: n_dims, type, offset, ne0, ne1, ne2.
// Behind the base tensors (256 bytes) there is no data.
static bool tensor(struct gguf_build *b, uint32_t part, const struct gguf_broken *row) {
    (void)part;
    gguf_broken_base(b);
    gguf_bytes_text(&b->tensors, row->text);
    gguf_bytes_int(&b->tensors, row->numbers[0], 4);
    for (uint64_t d = 0; d < row->numbers[0] && d < 5; d++)
        gguf_bytes_int(&b->tensors, d < 3 ? row->numbers[3 + d] : 1, 8);
    gguf_bytes_int(&b->tensors, row->numbers[1], 4);
    gguf_bytes_int(&b->tensors, row->numbers[2], 8);
    b->n_tensors++;
    gguf_build_finish(b);
    return true;
}

// Two tensors of 9 bytes in a file of the least alignment, the second from byte numbers[0] on.
static bool neighbours(struct gguf_build *b, uint32_t part, const struct gguf_broken *row) {
    (void)part;
    gguf_build_init(b);
    gguf_build_int(b, "general.alignment", GGUF_U32, b->alignment = 4);
    gguf_build_record(b, "first", 1, (const uint64_t[]){9}, DTYPE_I8, 0);
    gguf_build_record(b, "second", 1, (const uint64_t[]){9}, DTYPE_I8, row->numbers[0]);
    for (uint64_t i = 0; i < row->numbers[0] + 9; i++) gguf_bytes_int(&b->data, i, 1);
    gguf_build_finish(b);
    return true;
}

// One tensor record, the numbers[0] bytes of text.
static bool tensor_record(struct gguf_build *b, uint32_t part, const struct gguf_broken *row) {
    (void)part;
    gguf_build_init(b);
    gguf_bytes_raw(&b->file, "GGUF\3\0\0\0\1\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 24);
    gguf_bytes_raw(&b->file, row->text, row->numbers[0]);
    return true;
}

// A split set with one tensor in each part and fault numbers[0] in part numbers[1].
static bool split(struct gguf_build *b, uint32_t part, const struct gguf_broken *row) {
    enum split_fault fault =
        part == row->numbers[1] ? (enum split_fault)row->numbers[0] : FAULT_NONE;
    char name[16];
    uint32_t n_parts = row->n_parts ? row->n_parts : 3;
    if (fault == FAULT_MISSING) return false;
    gguf_build_init(b);
    if (part == 0) gguf_build_text(b, "general.architecture", "test");
    if (fault == FAULT_TYPE) {
        gguf_build_text(b, "split.no", "one");
    } else if (fault != FAULT_NO_KEYS) {
        gguf_build_int(b, "split.no", GGUF_U16, fault == FAULT_NUMBER ? row->numbers[2] : part);
        gguf_build_int(b, "split.count", GGUF_U16, fault == FAULT_COUNT ? 9 : n_parts);
    }
    if (fault != FAULT_NO_KEYS && fault != FAULT_NO_TOTAL)
        gguf_build_int(b, "split.tensors.count", GGUF_I32,
                       fault == FAULT_TOTAL ? row->numbers[2] : n_parts);
    snprintf(name, sizeof name, "t%u", fault == FAULT_DUPLICATE ? 0 : part);
    gguf_build_tensor(b, name, 1, (const uint64_t[]){8}, DTYPE_F32, NULL);
    gguf_build_finish(b);
    if (fault == FAULT_MAGIC) gguf_build_patch(b, 0, 0x5858, 2);
    if (fault == FAULT_CUT) b->file.size -= 8;
    return true;
}

#define K       "\1\0\0\0\0\0\0\0k" // a key record's start
#define NAME_64 "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static const struct gguf_broken ROWS[] = {
    // The header.
    {"empty", cut, "0 bytes in all", ERR_FORMAT, .numbers = {0}},
    {"three-bytes", cut, "3 bytes in all", ERR_FORMAT, .numbers = {3}},
    {"short-header", cut, "ends inside its header", ERR_FORMAT, .numbers = {23}},
    {"magic", patched, "\"XXUF\"", ERR_FORMAT, .numbers = {0, 0x5858, 2}},
    {"old-ggml", patched, "before GGUF", ERR_FORMAT, .numbers = {0, 0x67676a74, 4}},
    {"lfs-pointer", whole, "git lfs pull", ERR_FORMAT,
     RAW("version https://git-lfs.github.com/spec/v1\noid sha256:0\n")},
    {"web-page", whole, "\"<htm\"", ERR_FORMAT, RAW("<html><body>404</body></html>")},
    {"version-0", patched, "got version 0. Fix: fetch the file again", ERR_FORMAT,
     .numbers = {4, 0, 4}},
    {"version-1", patched, "newer conversion", ERR_UNSUPPORTED, .numbers = {4, 1, 4}},
    {"version-4", patched, "version 2 or 3", ERR_UNSUPPORTED, .numbers = {4, 4, 4}},
    {"big-endian", patched, "is a big-endian GGUF file", ERR_UNSUPPORTED,
     .numbers = {4, 0x03000000, 4}},
    {"many-tensors", patched, "number of tensors", ERR_FORMAT, .numbers = {8, 1u << 30, 8}},
    {"negative-tensors", patched, "number of tensors", ERR_FORMAT, .numbers = {8, UINT64_MAX, 8}},
    {"many-keys", patched, "number of keys", ERR_FORMAT, .numbers = {16, 1u << 30, 8}},
    {"negative-keys", patched, "number of keys", ERR_FORMAT, .numbers = {16, UINT64_MAX, 8}},
    {"million-keys", too_many, "at most 1048576", ERR_UNSUPPORTED, .numbers = {(1 << 20) + 1}},
    {"cut-header", cut, "number of keys", ERR_FORMAT, .numbers = {60}},

    // Keys and values.
    {"key-length", record, "length of a key is impossible", ERR_FORMAT,
     RAW("\xff\xff\xff\xff\xff\xff\xff\x7f"
         "abcde")},
    {"key-too-long", record, "65536 bytes, got 65537", ERR_FORMAT, RAW("\1\0\1\0\0\0\0\0abcde")},
    {"key-cut", record, "key 1: the file ends inside a key", ERR_FORMAT,
     RAW("\x20\0\0\0\0\0\0\0abcde")},
    {"key-empty", record, "key 1: the key is empty", ERR_FORMAT, RAW("\0\0\0\0\0\0\0\0\0\0\0\0\0")},
    {"key-twice", value, "test.flag: the key is there twice", ERR_FORMAT, .text = "test.flag",
     .numbers = {GGUF_U8, 0, 1}},
    {"type-unknown", record, "key k: unknown value type", ERR_FORMAT, RAW(K "\x0d\0\0\0")},
    {"type-negative", record, "key k: unknown value type", ERR_FORMAT, RAW(K "\xff\xff\xff\xff")},
    {"type-cut", record, "inside its value type", ERR_FORMAT, RAW("\3\0\0\0\0\0\0\0abc\4\0")},
    {"value-cut", record, "key k: the file ends inside its value", ERR_FORMAT,
     RAW(K "\x0a\0\0\0\1\2\3\4")},
    {"value-missing", record, "1 byte from byte 37", ERR_FORMAT, RAW(K "\7\0\0\0")},
    {"text-huge", text_value, "length of its string is impossible", ERR_FORMAT,
     .numbers = {1ull << 62}},
    {"text-negative", text_value, "length of its string is impossible", ERR_FORMAT,
     .numbers = {UINT64_MAX}},
    {"text-cut", text_value, "key text: the file ends inside its string", ERR_FORMAT,
     .numbers = {4}},
    {"text-no-length", record, "key k: the file ends inside its string", ERR_FORMAT,
     RAW(K "\x08\0\0\0\1\2\3")},
    {"array-no-type", record, "inside its element type", ERR_FORMAT, RAW(K "\x09\0\0\0\1\2")},
    {"array-no-count", record, "inside its element count", ERR_FORMAT,
     RAW(K "\x09\0\0\0\4\0\0\0\1\2")},
    {"array-of-arrays", array, "key list: arrays of arrays", ERR_UNSUPPORTED,
     .numbers = {GGUF_ARRAY, 1}},
    {"array-type", array, "key list: unknown element type", ERR_FORMAT, .numbers = {13, 1}},
    {"array-type-between", value, "key bad: unknown element type", ERR_FORMAT, .text = "bad",
     .numbers = {GGUF_ARRAY, 13, 4}},
    {"array-huge", array, "element count is impossible", ERR_FORMAT,
     .numbers = {GGUF_U8, (1u << 30) + 1}},
    {"array-overflow", array, "element count is impossible", ERR_FORMAT,
     .numbers = {GGUF_U64, (1ull << 61) + 1}},
    {"array-cut", array, "key list: the file ends inside its elements", ERR_FORMAT,
     .numbers = {GGUF_U32, 3}},
    {"array-many-texts", array, "key list: the file ends inside its elements", ERR_FORMAT,
     .numbers = {GGUF_STRING, 2}},
    {"array-text-length", array, "length of string 0 is impossible", ERR_FORMAT,
     .numbers = {GGUF_STRING, 1, 9, 8}},
    {"array-text-negative", array, "length of string 0 is impossible", ERR_FORMAT,
     .numbers = {GGUF_STRING, 1, UINT64_MAX, 8}},
    {"array-text-cut", array, "ends inside an array of strings", ERR_FORMAT,
     .numbers = {GGUF_STRING, 2, 4, 10}},

    // The alignment.
    {"alignment-0", value, "general.alignment: impossible alignment", ERR_FORMAT,
     .text = "general.alignment", .numbers = {GGUF_U32, 0, 4}},
    {"alignment-2", value, "expected a power of two from 4 up to 65536, got 2", ERR_FORMAT,
     .text = "general.alignment", .numbers = {GGUF_U32, 2, 4}},
    {"alignment-24", value, "a power of two", ERR_FORMAT, .text = "general.alignment",
     .numbers = {GGUF_U32, 24, 4}},
    {"alignment-huge", value, "up to 65536, got 131072", ERR_FORMAT, .text = "general.alignment",
     .numbers = {GGUF_U32, 1 << 17, 4}},
    {"alignment-type", value, "expected u32, got u64", ERR_FORMAT, .text = "general.alignment",
     .numbers = {GGUF_U64, 32, 8}},

    // Tensor records.
    {"tensor-5-dims", tensor, "tensor bad: too many dimensions", ERR_FORMAT, .text = "bad",
     .numbers = {5, DTYPE_F32, 256, 1, 1, 1}},
    {"tensor-all-dims", tensor, "tensor bad: too many dimensions", ERR_FORMAT, .text = "bad",
     .numbers = {UINT32_MAX, DTYPE_F32, 256, 1, 1, 1}},
    {"tensor-no-elements", tensor, "tensor bad: impossible dimension 1", ERR_FORMAT, .text = "bad",
     .numbers = {3, DTYPE_F32, 256, 4, 0, 4}},
    {"tensor-negative", tensor, "impossible dimension 0: expected 1 or more, got -4", ERR_FORMAT,
     .text = "bad", .numbers = {1, DTYPE_F32, 256, -4ull}},
    {"tensor-elements", tensor, "tensor bad: impossible size", ERR_FORMAT, .text = "bad",
     .numbers = {2, DTYPE_F32, 256, 1ull << 32, 1ull << 32}},
    {"tensor-bytes", tensor, "tensor bad: impossible size", ERR_FORMAT, .text = "bad",
     .numbers = {1, DTYPE_F32, 256, 1ull << 62}},
    {"tensor-bytes-signed", tensor, "tensor bad: impossible size", ERR_FORMAT, .text = "bad",
     .numbers = {1, DTYPE_F64, 256, 1ull << 60}},
    {"tensor-few-bits", tensor, "tensor bad: impossible size", ERR_FORMAT, .text = "bad",
     .numbers = {2, DTYPE_Q1_0, 256, 1ull << 62, 4}},
    {"tensor-removed", tensor, "element type 4 is a type that was removed", ERR_UNSUPPORTED,
     .text = "bad", .numbers = {1, 4, 256, 32}},
    {"tensor-repacked", tensor, "fetch Q4_0", ERR_UNSUPPORTED, .text = "bad",
     .numbers = {1, 31, 256, 32}},
    {"tensor-repacked-33", tensor, "fetch Q4_0", ERR_UNSUPPORTED, .text = "bad",
     .numbers = {1, 33, 256, 32}},
    {"tensor-removed-38", tensor, "was removed", ERR_UNSUPPORTED, .text = "bad",
     .numbers = {1, 38, 256, 32}},
    {"tensor-removed-36", tensor, "was removed", ERR_UNSUPPORTED, .text = "bad",
     .numbers = {1, 36, 256, 32}},
    {"tensor-unknown", tensor, "element type 43 is an unknown type", ERR_UNSUPPORTED, .text = "bad",
     .numbers = {1, 43, 256, 32}},
    {"tensor-fork", tensor, "element type 139 is a type of a llama.cpp fork", ERR_UNSUPPORTED,
     .text = "bad", .numbers = {1, 139, 256, 256}},
    {"tensor-type-negative", tensor, "got -1", ERR_FORMAT, .text = "bad",
     .numbers = {1, UINT32_MAX, 256, 32}},
    {"tensor-block-32", tensor, "a multiple of 32 elements, got 33", ERR_FORMAT, .text = "bad",
     .numbers = {1, DTYPE_Q4_0, 256, 33}},
    {"tensor-block-256", tensor, "does not fit type Q4_K", ERR_FORMAT, .text = "bad",
     .numbers = {2, DTYPE_Q4_K, 256, 128, 2}},
    {"tensor-scalar-block", tensor, "does not fit type Q8_0", ERR_FORMAT, .text = "bad",
     .numbers = {0, DTYPE_Q8_0, 256}},
    {"tensor-no-name", tensor, "tensor 4: the name is empty", ERR_FORMAT, .text = "",
     .numbers = {0, DTYPE_F32, 256}},
    {"tensor-long-name", tensor, "at most 63 bytes, got 64", ERR_FORMAT, .text = NAME_64,
     .numbers = {0, DTYPE_F32, 256}},
    {"tensor-twice", tensor, "tensor b: the tensor is there twice", ERR_FORMAT, .text = "b",
     .numbers = {0, DTYPE_F32, 256}},
    {"tensor-escapes", tensor, "tensor ?[31mred: impossible dimension", ERR_FORMAT,
     .text = "\033[31mred", .numbers = {1, DTYPE_F32, 256, 0}},
    {"tensor-name-cut", tensor_record, "tensor 1: the file ends inside its name", ERR_FORMAT,
     RAW("\x20\0\0\0\0\0\0\0abcdefghijklmnopq")},
    {"tensor-shape-cut", tensor_record, "tensor x: the file ends inside its dimensions", ERR_FORMAT,
     RAW("\1\0\0\0\0\0\0\0x\2\0\0\0\1\0\0\0\0\0\0\0\1\0\0")},
    {"tensor-type-cut", tensor_record, "tensor x: the file ends inside its element type",
     ERR_FORMAT, RAW("\1\0\0\0\0\0\0\0x\1\0\0\0\1\0\0\0\0\0\0\0\1\0\0")},
    {"tensor-offset-cut", tensor_record, "tensor x: the file ends inside its offset", ERR_FORMAT,
     RAW("\1\0\0\0\0\0\0\0x\0\0\0\0\0\0\0\0\1\2\3\4\5\6\7")},

    // Where the tensors lie.
    {"offset-odd", tensor, "tensor bad: the offset is not aligned", ERR_FORMAT, .text = "bad",
     .numbers = {1, DTYPE_F32, 257, 8}},
    {"offset-negative", tensor, "tensor bad: impossible offset", ERR_FORMAT, .text = "bad",
     .numbers = {1, DTYPE_F32, -32ull, 8}},
    {"offset-overflow", tensor, "tensor bad: impossible offset", ERR_FORMAT, .text = "bad",
     .numbers = {1, DTYPE_F32, (1ull << 63) - 4096, 1 << 20}},
    {"offset-behind", tensor, "tensor bad: 1048686 bytes are missing", ERR_FORMAT, .text = "bad",
     .numbers = {1, DTYPE_F32, 162 + 94 + (1 << 20), 4}},
    {"tensor-huge", tensor, "tensor bad: ", ERR_FORMAT, .text = "bad",
     .numbers = {1, DTYPE_F32, 256, 1ull << 40}},
    {"overlap-same", tensor, "overlaps tensor ", ERR_FORMAT, .text = "bad",
     .numbers = {1, DTYPE_F32, 64, 8}},
    {"overlap-inside", tensor, "tensor bad: overlaps tensor b", ERR_FORMAT, .text = "bad",
     .numbers = {1, DTYPE_F32, 96, 2}},
    {"overlap-last-byte", neighbours, "tensor second: overlaps tensor first", ERR_FORMAT,
     .numbers = {8}},
    {"download-last-byte", cut, "tensor c: 1 byte is missing", ERR_FORMAT, .numbers = {0, 1}},
    {"download-middle", cut, "tensor b: 40 bytes are missing", ERR_FORMAT, .numbers = {0, 40}},
    {"download-header-only", cut, "tensor a: 162 bytes are missing", ERR_FORMAT,
     .numbers = {0, 162}},

    // Split sets.
    {"split-missing", split, "part 2 of 3", ERR_FILE, .n_parts = 3, .numbers = {FAULT_MISSING, 1}},
    {"split-number", split, "key split.no is not that of its name: expected 2, got 7", ERR_FORMAT,
     .n_parts = 3, .numbers = {FAULT_NUMBER, 2, 7}},
    {"split-number-again", split, "key split.no is not that of its name: expected 1, got 0",
     ERR_FORMAT, .n_parts = 3, .numbers = {FAULT_NUMBER, 1, 0}},
    {"split-count", split, "key split.count differs from part 1: expected 3, got 9", ERR_FORMAT,
     .n_parts = 3, .numbers = {FAULT_COUNT, 1}},
    {"split-few-tensors", split, "expected 5 tensors in 3 parts, got 3", ERR_FORMAT, .n_parts = 3,
     .numbers = {FAULT_TOTAL, 0, 5}},
    {"split-many-tensors", split, "expected 2 tensors in 3 parts, got 3", ERR_FORMAT, .n_parts = 3,
     .numbers = {FAULT_TOTAL, 0, 2}},
    {"split-total-negative", split, "split.tensors.count: out of range", ERR_FORMAT, .n_parts = 3,
     .numbers = {FAULT_TOTAL, 1, UINT32_MAX}},
    {"split-no-keys", split, "keys split.no and split.count are missing", ERR_FORMAT, .n_parts = 3,
     .numbers = {FAULT_NO_KEYS, 2}},
    {"split-no-total", split, "key split.tensors.count is missing", ERR_FORMAT, .n_parts = 3,
     .numbers = {FAULT_NO_TOTAL, 0}},
    {"split-twice", split, "tensor t0 is in two parts", ERR_FORMAT, .n_parts = 3,
     .numbers = {FAULT_DUPLICATE, 2}},
    {"split-magic", split, "00002-of-00003.gguf: is no GGUF file", ERR_FORMAT, .n_parts = 3,
     .numbers = {FAULT_MAGIC, 1}},
    {"split-type", split, "key split.no: wrong value type: expected an integer, got string",
     ERR_FORMAT, .n_parts = 3, .numbers = {FAULT_TYPE, 1}},
    {"split-cut", split, "tensor t2: 8 bytes are missing", ERR_FORMAT, .n_parts = 3,
     .numbers = {FAULT_CUT, 2}},
    {"split-part-2", split, "expected part 1 of 3", ERR_FORMAT, .n_parts = 3, .opened = 1,
     .numbers = {FAULT_NONE}},
    {"split-renamed", split, "a name that ends in -00001-of-00003.gguf", ERR_FORMAT,
     .numbers = {FAULT_NONE}},
};

const struct gguf_broken *gguf_broken_rows(size_t *count) {
    *count = sizeof ROWS / sizeof *ROWS;
    return ROWS;
}

void gguf_broken_write(const struct gguf_broken *row, const char *folder, char *path,
                       size_t path_bytes) {
    uint32_t n = row->n_parts ? row->n_parts : 1;
    char one[4096];
    for (uint32_t part = 0; part < n; part++) {
        struct gguf_build b;
        if (row->n_parts)
            snprintf(one, sizeof one, "%s/%s-%05u-of-%05u.gguf", folder, row->name, part + 1, n);
        else
            snprintf(one, sizeof one, "%s/%s.gguf", folder, row->name);
        if (part == row->opened) snprintf(path, path_bytes, "%s", one);
        if (!row->build(&b, part, row)) continue;
        gguf_build_write(&b, one);
        gguf_build_close(&b);
    }
}

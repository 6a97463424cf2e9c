/* test_gguf.c: the GGUF reader on valid files, on one broken file per check, on split sets, on
 * mutants, and with every allocation refused in turn. Further modes, for tests of the whole program
 * and for people:
 *   test_gguf --write DIR            writes every broken file and two valid ones (valid*.gguf)
 *   test_gguf --mutate FILE SEED OUT writes one mutant of a small file
 *   test_gguf --open FILE...         opens and reads each whole, and prints times
 */
// link: wrap-alloc
#include "base/clock.h"
#include "base/mem.h"
#include "tests/lib/alloc_fail.h"
#include "tests/lib/gguf_broken.h"
#include "tests/lib/gguf_build.h"
#include "tests/lib/gguf_walk.h"
#include "tests/lib/mutate_gguf.h"

#include <dirent.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

enum { PATH_BYTES = 4096, N_MUTANTS = 3000 };

static int make_folder(void **state) {
    char template[] = "/tmp/test_gguf.XXXXXX";
    *state = mkdtemp(template) ? mem_text(template, strlen(template)) : NULL;
    return *state ? 0 : -1;
}

static int remove_folder(void **state) {
    char path[PATH_BYTES];
    DIR *folder = opendir(*state);
    for (struct dirent *entry; folder && (entry = readdir(folder));) {
        snprintf(path, sizeof path, "%s/%s", (char *)*state, entry->d_name);
        unlink(path);
    }
    if (folder) closedir(folder);
    int status = rmdir(*state);
    mem_free(*state);
    return status;
}

static char *in_folder(void **state, const char *name, char path[PATH_BYTES]) {
    snprintf(path, PATH_BYTES, "%s/%s", (char *)*state, name);
    return path;
}

// Finishes b, writes it, opens it, and frees b. The test fails if the file is refused.
static void open_built(struct gguf *g, struct gguf_build *b, void **state) {
    char path[PATH_BYTES], text[1024];
    struct err e = {.status = OK};
    gguf_build_finish(b);
    gguf_build_write(b, in_folder(state, "built.gguf", path));
    gguf_build_close(b);
    if (gguf_open(g, path, &e) != OK) fail_msg("%s", err_text(&e, text, sizeof text));
    gguf_walk(g);
}

static bool same_text(struct gguf_text text, const char *expected) {
    return text.length == strlen(expected) && memcmp(text.bytes, expected, text.length) == 0;
}

static void assert_closed(const struct gguf *g) {
    static const struct gguf ZERO;
    assert_memory_equal(g, &ZERO, sizeof ZERO);
}

// Broken files

static void test_broken_files(void **state) {
    size_t n_rows;
    const struct gguf_broken *rows = gguf_broken_rows(&n_rows);
    int n_wrong = 0;
    assert_true(n_rows >= 45);
    for (size_t i = 0; i < n_rows; i++) {
        char path[PATH_BYTES], text[1024] = "accepted";
        struct gguf g;
        struct err e = {.status = OK};
        gguf_broken_write(&rows[i], *state, path, sizeof path);
        enum status status = gguf_open(&g, path, &e);
        if (status != OK) err_text(&e, text, sizeof text);
        if (status != rows[i].status || e.status != status || !strstr(text, rows[i].says) ||
            !strstr(text, rows[i].name)) {
            print_error("%s: wanted %s \"%s\", came: %s %s\n", rows[i].name,
                        status_name(rows[i].status), rows[i].says, status_name(status), text);
            n_wrong++;
        }
        assert_closed(&g);
    }
    assert_int_equal(n_wrong, 0);
}

static void test_files_that_are_none(void **state) {
    char path[PATH_BYTES];
    struct gguf g;
    struct err e;
    assert_int_equal(gguf_open(&g, in_folder(state, "nowhere.gguf", path), &e), ERR_FILE);
    assert_non_null(strstr(e.what, "nowhere.gguf"));
    assert_closed(&g);
    assert_int_equal(gguf_open(&g, *state, &e), ERR_FILE);
    assert_string_equal(e.actual, "a folder");
    assert_closed(&g);
    gguf_close(&g);
}

// A message has room for what is wrong, however long the path is.
static void test_long_path(void **state) {
    char name[256], path[PATH_BYTES];
    struct gguf g;
    struct gguf_build b;
    struct err e;
    memset(name, 'n', 240);
    strcpy(name + 240, ".gguf");
    gguf_broken_base(&b);
    gguf_build_finish(&b);
    b.file.size--;
    gguf_build_write(&b, in_folder(state, name, path));
    gguf_build_close(&b);
    assert_int_equal(gguf_open(&g, path, &e), ERR_FORMAT);
    assert_non_null(strstr(e.what, "nnn.gguf: tensor c: 1 byte is missing"));
}

// Valid files

static void build_scalars(struct gguf_build *b) {
    gguf_build_int(b, "u8", GGUF_U8, 200);
    gguf_build_int(b, "i8", GGUF_I8, (uint8_t)-7);
    gguf_build_int(b, "u16", GGUF_U16, 60000);
    gguf_build_int(b, "i16", GGUF_I16, (uint16_t)-300);
    gguf_build_int(b, "u32", GGUF_U32, 4000000000u);
    gguf_build_int(b, "i32", GGUF_I32, (uint32_t)-70000);
    gguf_build_f32(b, "f32", 0.25f);
    gguf_build_int(b, "no", GGUF_BOOL, 0);
    gguf_build_int(b, "yes", GGUF_BOOL, 1);
    gguf_build_int(b, "yes too", GGUF_BOOL, 0x80);
    gguf_build_text(b, "text", "gr\xc3\xbc\xc3\x9f dich");
    gguf_build_text(b, "empty text", "");
    gguf_build_int(b, "u64", GGUF_U64, UINT64_MAX);
    gguf_build_int(b, "i64", GGUF_I64, (uint64_t)INT64_MIN);
    gguf_build_key(b, "f64", GGUF_F64);
    gguf_bytes_f64(&b->values, 1e-300);
}

static void test_scalars(void **state) {
    static const struct {
        const char *key;
        enum gguf_type type;
        int64_t number;
    } INTEGERS[] = {
        {"u8", GGUF_U8, 200},         {"i8", GGUF_I8, -7},           {"u16", GGUF_U16, 60000},
        {"i16", GGUF_I16, -300},      {"u32", GGUF_U32, 4000000000}, {"i32", GGUF_I32, -70000},
        {"u64", GGUF_U64, INT64_MAX}, {"i64", GGUF_I64, INT64_MIN},  {"no", GGUF_BOOL, 0},
        {"yes", GGUF_BOOL, 1},        {"yes too", GGUF_BOOL, 1}};
    struct gguf_build b;
    struct gguf g;
    gguf_build_init(&b);
    build_scalars(&b);
    open_built(&g, &b, state);
    assert_int_equal(g.n_values, 15);
    for (size_t i = 0; i < sizeof INTEGERS / sizeof *INTEGERS; i++) {
        const struct gguf_value *value = gguf_find(&g, INTEGERS[i].key);
        assert_non_null(value);
        assert_int_equal(value->type, INTEGERS[i].type);
        assert_int_equal(value->count, 1);
        assert_true(gguf_array_int(value, 0) == INTEGERS[i].number);
    }
    assert_true(gguf_array_float(gguf_find(&g, "f32"), 0) == 0.25);
    assert_true(gguf_array_float(gguf_find(&g, "f64"), 0) == 1e-300);
    assert_null(gguf_find(&g, "u"));
    assert_null(gguf_find(&g, ""));
    gguf_close(&g);
    assert_closed(&g);
}

static void build_arrays(struct gguf_build *b) {
    static const char *const WORDS[] = {"", "one", "\xe2\x96\x81two", "three words here"};
    gguf_build_texts(b, "words", WORDS, 4);
    gguf_build_texts(b, "no words", NULL, 0);
    gguf_build_array(b, "no numbers", GGUF_I64, 0);
    gguf_build_ints(b, "ints", (const int32_t[]){-1, INT32_MIN, 5}, 3);
    gguf_build_floats(b, "floats", (const float[]){1.5f, -0.0f}, 2);
    gguf_build_array(b, "bytes", GGUF_U8, 3);
    gguf_bytes_raw(&b->values, "\xff\0\1", 3);
    gguf_build_array(b, "flags", GGUF_BOOL, 2);
    gguf_bytes_raw(&b->values, "\0\2", 2);
    gguf_build_array(b, "big", GGUF_U64, 2);
    gguf_bytes_int(&b->values, 1ull << 63, 8);
    gguf_bytes_int(&b->values, 7, 8);
}

static void test_arrays(void **state) {
    static const char *const WORDS[] = {"", "one", "\xe2\x96\x81two", "three words here"};
    struct gguf_build b;
    struct gguf g;
    char type[32];
    struct gguf_text text;
    gguf_build_init(&b);
    build_arrays(&b);
    open_built(&g, &b, state);
    const struct gguf_value *words = gguf_find(&g, "words");
    assert_int_equal(words->count, 4);
    assert_string_equal(gguf_type_text(words, type, sizeof type), "array of string");
    const uint8_t *cursor = NULL;
    for (int i = 0; i < 4; i++) {
        assert_true(gguf_next_text(words, &cursor, &text));
        assert_true(same_text(text, WORDS[i]));
    }
    assert_false(gguf_next_text(words, &cursor, &text));
    cursor = NULL;
    assert_false(gguf_next_text(gguf_find(&g, "no words"), &cursor, &text));
    assert_int_equal(gguf_find(&g, "no numbers")->count, 0);
    assert_true(gguf_array_int(gguf_find(&g, "ints"), 1) == INT32_MIN);
    assert_true(gguf_array_int(gguf_find(&g, "ints"), 2) == 5);
    assert_true(gguf_array_float(gguf_find(&g, "floats"), 0) == 1.5);
    assert_true(gguf_array_int(gguf_find(&g, "bytes"), 0) == 255);
    assert_true(gguf_array_int(gguf_find(&g, "flags"), 1) == 1);
    assert_true(gguf_array_int(gguf_find(&g, "big"), 0) == INT64_MAX);
    assert_true(gguf_array_int(gguf_find(&g, "big"), 1) == 7);
    gguf_close(&g);
}

// The longest key and name that are allowed, a name with a zero byte, and nothing at all.
static void test_limits(void **state) {
    struct gguf_build b;
    struct gguf g;
    static char key[(1 << 16) + 1];
    char name[64];
    memset(key, 'k', sizeof key - 1);
    memset(name, 'n', 63);
    name[63] = 0;
    gguf_build_init(&b);
    gguf_build_int(&b, key, GGUF_U8, 1);
    gguf_build_tensor(&b, name, 1, (const uint64_t[]){1}, DTYPE_I8, NULL);
    open_built(&g, &b, state);
    assert_non_null(gguf_find(&g, key));
    assert_non_null(gguf_find_tensor(&g, name));
    gguf_close(&g);

    gguf_build_init(&b);
    b.version = 2;
    open_built(&g, &b, state);
    assert_int_equal(g.n_values + g.n_tensors, 0);
    assert_int_equal(g.version, 2);
    assert_int_equal(g.alignment, 32);
    assert_null(gguf_find(&g, "general.architecture"));
    assert_null(gguf_find_tensor(&g, "output.weight"));
    gguf_close(&g);
}

// The last bytes of a file are the last string of an array.
static void test_strings_at_the_end(void **state) {
    static const char *const ENDS[] = {"", "x"};
    for (int i = 0; i < 2; i++) {
        struct gguf_build b;
        struct gguf g;
        struct gguf_text text;
        const uint8_t *cursor = NULL;
        gguf_build_init(&b);
        gguf_build_texts(&b, "words", &ENDS[i], 1);
        open_built(&g, &b, state);
        assert_true(gguf_next_text(gguf_find(&g, "words"), &cursor, &text));
        assert_true(same_text(text, ENDS[i]));
        gguf_close(&g);
    }
}

static void test_tensors(void **state) {
    static const uint64_t SHAPE[] = {256, 2, 3, 2};
    struct gguf_build b;
    struct gguf g;
    char name[16];
    int n_types = 0;
    gguf_build_init(&b);
    gguf_build_tensor(&b, "scalar", 0, NULL, DTYPE_F64, (const double[]){2.5});
    for (uint32_t type = 0; type < DTYPE_COUNT; type++) {
        snprintf(name, sizeof name, "type %u", type);
        if (!dtype_find(type)) continue;
        gguf_build_tensor(&b, name, 1 + n_types++ % 4, SHAPE, (enum dtype)type, NULL);
    }
    open_built(&g, &b, state);
    assert_int_equal(g.n_tensors, n_types + 1);
    const struct gguf_tensor *scalar = gguf_find_tensor(&g, "scalar");
    assert_int_equal(scalar->n_dims, 0);
    assert_int_equal(scalar->size_bytes, 8);
    assert_memory_equal(scalar->data, (const double[]){2.5}, 8);
    for (uint32_t i = 1; i < g.n_tensors; i++) {
        const struct gguf_tensor *t = &g.tensors[i];
        uint64_t n = 1;
        for (int d = 0; d < 4; d++) {
            assert_int_equal(t->ne[d], d < t->n_dims ? SHAPE[d] : 1);
            n *= t->ne[d];
        }
        assert_int_equal(t->size_bytes, dtype_bytes(t->type, n));
        assert_int_equal(t->file_offset % 32, 0);
        for (uint64_t k = 0; k < t->size_bytes; k++)
            assert_int_equal(t->data[k], (uint8_t)(k + i + 1));
    }
    gguf_close(&g);
}

// Offsets may go in any order and leave gaps; padding behind the last tensor may be missing.
static void test_order_and_gaps(void **state) {
    struct gguf_build b;
    struct gguf g;
    gguf_build_init(&b);
    gguf_build_int(&b, "general.alignment", GGUF_U32, b.alignment = 8);
    gguf_build_record(&b, "third", 1, (const uint64_t[]){3}, DTYPE_I8, 40);
    gguf_build_record(&b, "first", 1, (const uint64_t[]){2}, DTYPE_F32, 0);
    gguf_build_record(&b, "second", 1, (const uint64_t[]){9}, DTYPE_I8, 8);
    for (uint64_t i = 0; i < 43; i++) gguf_bytes_int(&b.data, i, 1);
    open_built(&g, &b, state);
    assert_int_equal(g.alignment, 8);
    assert_int_equal(gguf_find_tensor(&g, "third")->data[2], 42);
    assert_int_equal(gguf_find_tensor(&g, "second")->data[0], 8);
    assert_true(same_text(g.tensors[1].name, "first"));
    gguf_close(&g);

    gguf_build_init(&b);
    gguf_build_int(&b, "general.alignment", GGUF_U32, b.alignment = 1 << 16);
    gguf_build_tensor(&b, "far", 1, (const uint64_t[]){5}, DTYPE_I8, "12345");
    open_built(&g, &b, state);
    assert_int_equal(gguf_find_tensor(&g, "far")->file_offset, 1 << 16);
    assert_memory_equal(gguf_find_tensor(&g, "far")->data, "12345", 5);
    gguf_close(&g);
}

// 20 GB of weights: opening may not read them, nor take memory for them.
static void test_sparse_file(void **state) {
    const uint64_t size = 20ull << 30;
    char path[PATH_BYTES], text[1024];
    struct gguf_build b;
    struct gguf g;
    struct err e = {.status = OK};
    struct rusage before, after;
    gguf_build_init(&b);
    gguf_build_record(&b, "big", 2, (const uint64_t[]){1 << 20, size >> 21}, DTYPE_F16, 0);
    gguf_build_finish(&b);
    uint64_t data_start = b.file.size;
    gguf_build_write(&b, in_folder(state, "sparse.gguf", path));
    gguf_build_close(&b);
    assert_int_equal(truncate(path, (off_t)(data_start + size)), 0);
    getrusage(RUSAGE_SELF, &before);
    if (gguf_open(&g, path, &e) != OK) fail_msg("%s", err_text(&e, text, sizeof text));
    getrusage(RUSAGE_SELF, &after);
    assert_true(g.tensors[0].size_bytes == size);
    assert_in_range(after.ru_minflt + after.ru_majflt - before.ru_minflt - before.ru_majflt, 0,
                    200);
    gguf_close(&g);
    assert_int_equal(truncate(path, (off_t)(data_start + size - 1)), 0);
    assert_int_equal(gguf_open(&g, path, &e), ERR_FORMAT);
    assert_non_null(strstr(e.what, "tensor big: 1 byte is missing"));
}

// Reading single values

enum reader { READ_U64, READ_F32, READ_BOOL, READ_TEXT };

static enum status read_any(const struct gguf *g, enum reader reader, const char *key, uint64_t low,
                            uint64_t high, struct err *e) {
    uint64_t number = 77;
    float real = 77;
    bool flag = true;
    struct gguf_text text = {"77", 2};
    switch (reader) {
    case READ_U64: return gguf_read_u64(g, key, low, high, &number, e);
    case READ_F32: return gguf_read_f32(g, key, &real, e);
    case READ_BOOL: return gguf_read_bool(g, key, &flag, e);
    case READ_TEXT: return gguf_read_text(g, key, &text, e);
    }
    fail();
    return OK;
}

static void test_refused_values(void **state) {
    static const struct {
        const char *key;
        enum reader reader;
        uint64_t low, high;
        const char *says;
    } ROWS[] = {
        {"u8", READ_U64, 201, 300, "key u8: out of range: expected 201 to 300, got 200"},
        {"u8", READ_U64, 0, 199, "expected 0 to 199, got 200"},
        {"i8", READ_U64, 0, UINT64_MAX, "got -7"},
        {"i16", READ_U64, 0, UINT64_MAX, "got -300"},
        {"i32", READ_U64, 0, UINT64_MAX, "got -70000"},
        {"i64", READ_U64, 0, UINT64_MAX, "got -9223372036854775808"},
        {"u64", READ_U64, 0, UINT64_MAX - 1, "got 18446744073709551615"},
        {"yes", READ_U64, 0, 1, "expected an integer, got bool"},
        {"f32", READ_U64, 0, 1, "expected an integer, got f32"},
        {"text", READ_U64, 0, 1, "expected an integer, got string"},
        {"ints", READ_U64, 0, 1, "expected an integer, got array of i32"},
        {"u32", READ_F32, 0, 0, "expected f32 or f64, got u32"},
        {"floats", READ_F32, 0, 0, "expected f32 or f64, got array of f32"},
        {"huge", READ_F32, 0, 0, "key huge: out of range: expected a number that fits f32"},
        {"u8", READ_BOOL, 0, 0, "expected bool, got u8"},
        {"flags", READ_BOOL, 0, 0, "expected bool, got array of bool"},
        {"u8", READ_TEXT, 0, 0, "expected string, got u8"},
        {"words", READ_TEXT, 0, 0, "expected string, got array of string"},
    };
    struct gguf_build b;
    struct gguf g;
    gguf_build_init(&b);
    build_scalars(&b);
    build_arrays(&b);
    gguf_build_key(&b, "huge", GGUF_F64);
    gguf_bytes_f64(&b.values, -1e39);
    open_built(&g, &b, state);
    for (size_t i = 0; i < sizeof ROWS / sizeof *ROWS; i++) {
        struct err e = {.status = OK};
        char text[1024];
        assert_int_equal(read_any(&g, ROWS[i].reader, ROWS[i].key, ROWS[i].low, ROWS[i].high, &e),
                         ERR_FORMAT);
        err_text(&e, text, sizeof text);
        if (!strstr(text, ROWS[i].says)) fail_msg("%s, not %s", text, ROWS[i].says);
        assert_non_null(strstr(text, "built.gguf"));
    }
    gguf_close(&g);
}

static void test_read_values(void **state) {
    struct gguf_build b;
    struct gguf g;
    struct err e = {.status = OK};
    uint64_t number = 77;
    float real = 77;
    bool flag = true;
    struct gguf_text text = {"77", 2};
    gguf_build_init(&b);
    build_scalars(&b);
    gguf_build_int(&b, "positive i8", GGUF_I8, 127);
    open_built(&g, &b, state);
    assert_int_equal(gguf_read_u64(&g, "absent", 0, 1, &number, &e), OK);
    assert_int_equal(gguf_read_f32(&g, "absent", &real, &e), OK);
    assert_int_equal(gguf_read_bool(&g, "absent", &flag, &e), OK);
    assert_int_equal(gguf_read_text(&g, "absent", &text, &e), OK);
    assert_true(number == 77 && real == 77 && flag && same_text(text, "77"));
    assert_int_equal(gguf_read_u64(&g, "u64", 0, UINT64_MAX, &number, &e), OK);
    assert_true(number == UINT64_MAX);
    assert_int_equal(gguf_read_u64(&g, "positive i8", 127, 127, &number, &e), OK);
    assert_true(number == 127);
    assert_int_equal(gguf_read_f32(&g, "f32", &real, &e), OK);
    assert_true(real == 0.25f);
    assert_int_equal(gguf_read_f32(&g, "f64", &real, &e), OK);
    assert_true(real == 0);
    assert_int_equal(gguf_read_bool(&g, "no", &flag, &e), OK);
    assert_false(flag);
    assert_int_equal(gguf_read_bool(&g, "yes too", &flag, &e), OK);
    assert_true(flag);
    assert_int_equal(gguf_read_text(&g, "empty text", &text, &e), OK);
    assert_true(same_text(text, ""));
    assert_int_equal(gguf_read_text(&g, "text", &text, &e), OK);
    assert_true(same_text(text, "gr\xc3\xbc\xc3\x9f dich"));
    gguf_close(&g);
}

// Split models

// Three parts as real ones are: the first without tensors, with other integer types and another
// alignment in each.
static void write_split(void **state, char first[PATH_BYTES]) {
    static const enum gguf_type TYPES[] = {GGUF_U16, GGUF_I32, GGUF_U64};
    for (uint32_t part = 0; part < 3; part++) {
        struct gguf_build b;
        char name[32], path[PATH_BYTES];
        gguf_build_init(&b);
        b.alignment = 32u << part;
        gguf_build_int(&b, "general.alignment", GGUF_U32, b.alignment);
        if (part == 0) gguf_build_text(&b, "general.architecture", "test");
        gguf_build_int(&b, "split.no", TYPES[part], part);
        gguf_build_int(&b, "split.count", TYPES[part], 3);
        gguf_build_int(&b, "split.tensors.count", TYPES[2 - part], 4);
        for (uint32_t i = 0; part > 0 && i < 2; i++) {
            snprintf(name, sizeof name, "t%u.%u", part, i);
            gguf_build_tensor(&b, name, 1, (const uint64_t[]){10}, DTYPE_I8, NULL);
        }
        gguf_build_finish(&b);
        snprintf(name, sizeof name, "m-%05u-of-00003.gguf", part + 1);
        gguf_build_write(&b, in_folder(state, name, path));
        if (part == 0) strcpy(first, path);
        gguf_build_close(&b);
    }
}

static void test_split(void **state) {
    char path[PATH_BYTES], text[1024];
    struct gguf g;
    struct err e = {.status = OK};
    write_split(state, path);
    if (gguf_open(&g, path, &e) != OK) fail_msg("%s", err_text(&e, text, sizeof text));
    gguf_walk(&g);
    assert_int_equal(g.n_parts, 3);
    assert_int_equal(g.n_tensors, 4);
    assert_int_equal(g.alignment, 32);
    assert_non_null(gguf_find(&g, "general.architecture"));
    assert_int_equal(gguf_find_tensor(&g, "t1.1")->part, 1);
    assert_int_equal(gguf_find_tensor(&g, "t2.0")->part, 2);
    assert_int_equal(gguf_find_tensor(&g, "t2.1")->file_offset % 128, 0);
    assert_int_equal(gguf_find_tensor(&g, "t2.1")->data[0], 2);
    assert_true(same_text(g.tensors[0].name, "t1.0"));
    gguf_close(&g);
    assert_closed(&g);
}

// A split of one part is a whole model, whatever its name.
static void test_split_of_one(void **state) {
    struct gguf_build b;
    struct gguf g;
    gguf_build_init(&b);
    gguf_build_split(&b, 0, 1, 1);
    gguf_build_tensor(&b, "t", 1, (const uint64_t[]){10}, DTYPE_I8, NULL);
    open_built(&g, &b, state);
    assert_int_equal(g.n_parts, 1);
    gguf_close(&g);
}

// Refused allocations

// Lines of a file in /proc/self that contain text: what is still open or mapped.
static int count_lines(const char *path, const char *text) {
    char line[PATH_BYTES];
    int n = 0;
    FILE *in = fopen(path, "r");
    assert_non_null(in);
    while (fgets(line, sizeof line, in)) n += strstr(line, text) != NULL;
    fclose(in);
    return n;
}

static int count_descriptors(void) {
    int n = 0;
    DIR *folder = opendir("/proc/self/fd");
    assert_non_null(folder);
    while (readdir(folder)) n++;
    closedir(folder);
    return n;
}

// Opens path with allocation 1, 2, ... refused until none is; memory leaks show in the asan build.
static int64_t sweep(const char *path) {
    int n_open = count_descriptors();
    for (int64_t n = 1; n < 1000; n++) {
        struct gguf g;
        struct err e = {.status = OK};
        alloc_fail_at(n);
        enum status status = gguf_open(&g, path, &e);
        bool reached = alloc_fail_happened();
        alloc_fail_at(0);
        if (!reached) {
            assert_int_equal(status, OK);
            gguf_close(&g);
            return n - 1;
        }
        assert_int_equal(status, ERR_MEMORY);
        assert_int_equal(e.status, ERR_MEMORY);
        assert_true(e.what[0] && e.expected[0]);
        assert_closed(&g);
        assert_int_equal(count_lines("/proc/self/maps", path), 0);
        assert_int_equal(count_descriptors(), n_open);
    }
    fail_msg("no end of allocations");
    return 0;
}

static void test_refused_allocations(void **state) {
    char path[PATH_BYTES];
    struct gguf_build b;
    gguf_broken_base(&b);
    gguf_build_finish(&b);
    gguf_build_write(&b, in_folder(state, "sweep.gguf", path));
    gguf_build_close(&b);
    int64_t n_single = sweep(path);
    assert_in_range((uint64_t)n_single, 6, 20);
    write_split(state, path);
    assert_in_range((uint64_t)sweep(path), (uint64_t)(3 * n_single), 60);
}

// Mutants

static void test_mutants(void **state) {
    (void)state;
    struct gguf_build b;
    struct gguf_bytes mutant = {0};
    int n_accepted = 0, n_refused = 0;
    gguf_broken_base(&b);
    build_arrays(&b);
    gguf_build_finish(&b);
    for (uint64_t seed = 0; seed < N_MUTANTS; seed++) {
        mutant.size = 0;
        gguf_bytes_raw(&mutant, b.file.bytes, b.file.size);
        mutate_gguf(&mutant, seed);
        enum status status = gguf_walk_bytes(mutant.bytes, mutant.size);
        if (status != OK && status != ERR_FORMAT && status != ERR_UNSUPPORTED)
            fail_msg("seed %" PRIu64 ": status %s", seed, status_name(status));
        if (status == OK)
            n_accepted++;
        else
            n_refused++;
    }
    print_message("# %d mutants: %d accepted, %d refused\n", N_MUTANTS, n_accepted, n_refused);
    assert_in_range(n_accepted, N_MUTANTS / 20, N_MUTANTS / 2);
    gguf_build_close(&b);
    gguf_bytes_close(&mutant);
}

// The same seed gives the same mutant, another seed another one.
static void test_mutants_repeat(void **state) {
    (void)state;
    struct gguf_build b[3];
    for (int i = 0; i < 3; i++) {
        gguf_broken_base(&b[i]);
        gguf_build_finish(&b[i]);
        mutate_gguf(&b[i].file, i < 2 ? 5 : 6);
    }
    assert_int_equal(b[0].file.size, b[1].file.size);
    assert_memory_equal(b[0].file.bytes, b[1].file.bytes, b[0].file.size);
    assert_true(b[2].file.size != b[0].file.size ||
                memcmp(b[2].file.bytes, b[0].file.bytes, b[0].file.size) != 0);
    for (int i = 0; i < 3; i++) gguf_build_close(&b[i]);
}

// Modes

static int write_all(const char *folder) {
    size_t n_rows;
    const struct gguf_broken *rows = gguf_broken_rows(&n_rows);
    char path[PATH_BYTES];
    struct gguf_build b;
    for (size_t i = 0; i < n_rows; i++) gguf_broken_write(&rows[i], folder, path, sizeof path);
    gguf_broken_base(&b);
    gguf_build_finish(&b);
    snprintf(path, sizeof path, "%s/valid.gguf", folder);
    gguf_build_write(&b, path);
    gguf_build_close(&b);
    gguf_build_init(&b);
    build_scalars(&b);
    build_arrays(&b);
    gguf_build_finish(&b);
    snprintf(path, sizeof path, "%s/valid-values.gguf", folder);
    gguf_build_write(&b, path);
    gguf_build_close(&b);
    return 0;
}

static int write_mutant(const char *path, uint64_t seed, const char *out) {
    struct file source;
    struct gguf_build b = {0};
    struct err e;
    if (file_open(&source, path, &e) != OK) {
        fprintf(stderr, "test_gguf: %s\n", e.what);
        return 1;
    }
    gguf_bytes_raw(&b.file, source.map, source.size_bytes);
    file_close(&source);
    mutate_gguf(&b.file, seed);
    gguf_build_write(&b, out);
    gguf_build_close(&b);
    return 0;
}

static int open_all(char **paths, int count) {
    int n_refused = 0;
    for (int i = 0; i < count; i++) {
        struct gguf g;
        struct err e;
        char text[1024];
        uint64_t start = clock_ns();
        if (gguf_open(&g, paths[i], &e) != OK) {
            printf("refused: %s\n", err_text(&e, text, sizeof text));
            n_refused++;
            continue;
        }
        uint64_t opened = clock_ns();
        gguf_walk(&g);
        printf("%7.2f ms open, %7.2f ms read, %4u keys, %4u tensors, %s\n",
               (double)(opened - start) / 1e6, (double)(clock_ns() - opened) / 1e6, g.n_values,
               g.n_tensors, paths[i]);
        gguf_close(&g);
    }
    return n_refused > 0;
}

int main(int argc, char **argv) {
    if (argc == 3 && strcmp(argv[1], "--write") == 0) return write_all(argv[2]);
    if (argc == 5 && strcmp(argv[1], "--mutate") == 0)
        return write_mutant(argv[2], strtoull(argv[3], NULL, 0), argv[4]);
    if (argc >= 3 && strcmp(argv[1], "--open") == 0) return open_all(argv + 2, argc - 2);
    if (argc > 1) {
        fprintf(stderr,
                "usage: test_gguf [--write DIR | --mutate FILE SEED OUT | --open FILE...]\n");
        return 2;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_broken_files),
        cmocka_unit_test(test_files_that_are_none),
        cmocka_unit_test(test_long_path),
        cmocka_unit_test(test_scalars),
        cmocka_unit_test(test_arrays),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_strings_at_the_end),
        cmocka_unit_test(test_tensors),
        cmocka_unit_test(test_order_and_gaps),
        cmocka_unit_test(test_sparse_file),
        cmocka_unit_test(test_refused_values),
        cmocka_unit_test(test_read_values),
        cmocka_unit_test(test_split),
        cmocka_unit_test(test_split_of_one),
        cmocka_unit_test(test_refused_allocations),
        cmocka_unit_test(test_mutants),
        cmocka_unit_test(test_mutants_repeat),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}

/* test_base.c: tests of base/: errors, memory, files, the string map, the clock and the log.
 *
 * Works in a folder of its own under /tmp, which each file test makes and removes. Nothing here
 * depends on time.
 */
#include "base/clock.h"
#include "base/disk.h"
#include "base/err.h"
#include "base/file.h"
#include "base/gate.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/new_file.h"
#include "base/progress.h"
#include "base/strmap.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

// ---- Errors ------------------------------------------------------------------------------------

static void err_reads_as_one_line(void **state) {
    (void)state;
    struct err e;
    char text[256];
    assert_int_equal(err_set(&e, ERR_FORMAT, "tensor %s", "blk.0.q"), ERR_FORMAT);
    assert_string_equal(err_text(&e, text, sizeof text), "tensor blk.0.q");
    assert_int_equal(err_actual(&e, "%d", 7), ERR_FORMAT);
    assert_string_equal(err_text(&e, text, sizeof text), "tensor blk.0.q: got 7");
    assert_int_equal(err_expected(&e, "%s", "8"), ERR_FORMAT);
    assert_int_equal(err_fix(&e, "fetch it again"), ERR_FORMAT);
    assert_string_equal(err_text(&e, text, sizeof text),
                        "tensor blk.0.q: expected 8, got 7. Fix: fetch it again");
    assert_int_equal(err_context(&e, "%s.gguf", "model"), ERR_FORMAT);
    assert_string_equal(err_text(&e, text, sizeof text),
                        "model.gguf: tensor blk.0.q: expected 8, got 7. Fix: fetch it again");
}

// The caller and the callee may both name the file.
static void err_context_names_a_thing_once(void **state) {
    (void)state;
    struct err e;
    err_set(&e, ERR_FILE, "model.gguf: No such file");
    assert_int_equal(err_context(&e, "%s", "model.gguf"), ERR_FILE);
    assert_string_equal(e.what, "model.gguf: No such file");
    err_context(&e, "%s", "model");
    assert_string_equal(e.what, "model: model.gguf: No such file");
    err_set(&e, ERR_FILE, "model.gguf");
    err_context(&e, "model.gguf");
    assert_string_equal(e.what, "model.gguf");
    err_context(&e, "model.gguf.part");
    assert_string_equal(e.what, "model.gguf.part: model.gguf");
}

// A second error in the same struct keeps nothing of the first.
static void err_set_forgets_what_was_there(void **state) {
    (void)state;
    struct err e;
    char text[256];
    err_set(&e, ERR_FORMAT, "first");
    err_expected(&e, "a");
    err_actual(&e, "b");
    err_fix(&e, "c");
    assert_int_equal(err_set(&e, ERR_LIMIT, "second"), ERR_LIMIT);
    assert_string_equal(err_text(&e, text, sizeof text), "second");
}

static void err_sizes_round_limits_down_and_needs_up(void **state) {
    (void)state;
    static const struct {
        uint64_t size_bytes;
        const char *limit, *needed;
    } cases[] = {
        {0, "0 bytes", "0 bytes"},
        {1023, "1023 bytes", "1023 bytes"},
        {1024, "1.00 KiB", "1.00 KiB"},
        {(1 << 20) - 1, "1023.99 KiB", "1024.00 KiB"},
        {100 << 20, "100.00 MiB", "100.00 MiB"},
        {(100 << 20) + 1, "100.00 MiB", "100.01 MiB"},
        {UINT64_C(5) << 28, "1.25 GiB", "1.25 GiB"},
        {UINT64_C(1) << 60, "1073741824.00 GiB", "1073741824.00 GiB"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[ERR_SIZE_CHARS];
        assert_string_equal(err_size_limit(text, cases[i].size_bytes), cases[i].limit);
        assert_string_equal(err_size_needed(text, cases[i].size_bytes), cases[i].needed);
    }
}

// Names come from files: a terminal must never see their control bytes.
static void err_shows_no_control_bytes(void **state) {
    (void)state;
    struct err e;
    char text[512];
    const char *evil = "\x1b[31m\n\r\b\x7f\x01 Gr\xc3\xbc\xc3\x9f\te";
    err_set(&e, ERR_FORMAT, "%s", evil);
    assert_string_equal(e.what, "?[31m????? Gr\xc3\xbc\xc3\x9f\te");
    err_expected(&e, "%s", evil);
    err_actual(&e, "%s", evil);
    err_fix(&e, "%s", evil);
    err_context(&e, "%s", evil);
    err_text(&e, text, sizeof text);
    for (const char *p = text; *p; p++) assert_true((unsigned char)*p >= 0x20 || *p == '\t');
    assert_null(strchr(text, 0x7f));
}

static void err_cuts_what_is_too_long(void **state) {
    (void)state;
    char name[2000], text[64];
    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = 0;
    struct err e;
    err_set(&e, ERR_FILE, "%s", name);
    assert_int_equal(strlen(e.what), sizeof e.what - 1);
    err_expected(&e, "%s", name);
    assert_int_equal(strlen(e.expected), sizeof e.expected - 1);
    err_actual(&e, "%s", name);
    assert_int_equal(strlen(e.actual), sizeof e.actual - 1);
    err_fix(&e, "%s", name);
    assert_int_equal(strlen(e.fix), sizeof e.fix - 1);
    err_context(&e, "%s", name);
    assert_int_equal(strlen(e.what), sizeof e.what - 1);
    assert_int_equal(strlen(err_text(&e, text, sizeof text)), sizeof text - 1);
    assert_string_equal(err_text(&e, text, 1), "");
}

static void err_context_keeps_the_end_where_it_fits(void **state) {
    (void)state;
    struct err e;
    err_set(&e, ERR_FILE, "inner");
    err_context(&e, "outer %d", 1);
    err_context(&e, "outermost");
    assert_string_equal(e.what, "outermost: outer 1: inner");
    assert_int_equal(e.status, ERR_FILE);
}

static void err_errno_and_memory_name_their_cause(void **state) {
    (void)state;
    struct err e;
    char text[512];
    assert_int_equal(err_errno(&e, 2, "%s", "a.gguf"), ERR_FILE);
    assert_string_equal(e.what, "a.gguf: No such file or directory");
    assert_int_equal(err_memory(&e, 123456, "the vocabulary"), ERR_MEMORY);
    err_text(&e, text, sizeof text);
    assert_non_null(strstr(text, "the vocabulary"));
    assert_non_null(strstr(text, "120.57 KiB"));
    assert_non_null(strstr(text, "Fix: "));
}

static void every_status_has_its_own_name(void **state) {
    (void)state;
    for (int i = OK; i <= ERR_CANCELLED; i++) {
        assert_string_not_equal(status_name((enum status)i), "unknown");
        for (int j = OK; j < i; j++)
            assert_string_not_equal(status_name((enum status)i), status_name((enum status)j));
    }
    assert_string_equal(status_name((enum status)(ERR_CANCELLED + 1)), "unknown");
    assert_string_equal(status_name((enum status) - 1), "unknown");
}

// Runs in a child, as the process ends. True if it ended by SIGABRT.
static bool aborts(bool condition) {
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        if (!freopen("/dev/null", "w", stderr)) _exit(1);
        signal(SIGABRT, SIG_DFL);
        ASSERT(condition);
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
}

static void a_broken_assert_ends_the_process(void **state) {
    (void)state;
    assert_true(aborts(false));
    assert_false(aborts(true));
}

// ---- Memory ------------------------------------------------------------------------------------

static void sizes_are_checked(void **state) {
    (void)state;
    uint64_t out = 5;
    assert_true(mul_size(1u << 31, 1u << 31, &out));
    assert_true(out == 1ull << 62);
    assert_false(mul_size(1ull << 32, 1ull << 32, &out));
    assert_true(out == 1ull << 62);
    assert_true(mul_size(UINT64_MAX, 1, &out));
    assert_true(out == UINT64_MAX);
    assert_true(mul_size(UINT64_MAX, 0, &out));
    assert_true(out == 0);
    assert_true(add_size(UINT64_MAX - 1, 1, &out));
    assert_true(out == UINT64_MAX);
    assert_false(add_size(UINT64_MAX, 1, &out));
    assert_true(out == UINT64_MAX);
    assert_int_equal(round_up(0, 64), 0);
    assert_int_equal(round_up(1, 64), 64);
    assert_int_equal(round_up(64, 64), 64);
    assert_int_equal(round_up(65, 64), 128);
}

static void mem_alloc_gives_zeroed_bytes_or_refuses(void **state) {
    (void)state;
    unsigned char *bytes = mem_alloc(1000, 3);
    assert_non_null(bytes);
    for (int i = 0; i < 3000; i++) assert_int_equal(bytes[i], 0);
    mem_free(bytes);
    assert_null(mem_alloc(SIZE_MAX, 2));
    assert_null(mem_alloc(SIZE_MAX / 2 + 1, 2));
    void *none = mem_alloc(0, 8);
    assert_non_null(none);
    mem_free(none);
    none = mem_alloc(8, 0);
    assert_non_null(none);
    mem_free(none);
    mem_free(NULL);
}

static void mem_resize_keeps_the_content(void **state) {
    (void)state;
    uint32_t *numbers = mem_alloc(4, sizeof *numbers);
    assert_non_null(numbers);
    for (uint32_t i = 0; i < 4; i++) numbers[i] = i + 1;
    uint32_t *more = mem_resize(numbers, 100000, sizeof *more);
    assert_non_null(more);
    for (uint32_t i = 0; i < 4; i++) assert_int_equal(more[i], i + 1);
    assert_null(mem_resize(more, SIZE_MAX, sizeof *more));
    assert_int_equal(more[3], 4);
    uint32_t *empty = mem_resize(more, 0, sizeof *empty);
    assert_non_null(empty);
    mem_free(empty);
}

static void mem_text_copies_any_bytes(void **state) {
    (void)state;
    char *text = mem_text("a\0bcd", 3);
    assert_non_null(text);
    assert_memory_equal(text, "a\0b", 4);
    mem_free(text);
    text = mem_text(NULL, 0);
    assert_non_null(text);
    assert_string_equal(text, "");
    mem_free(text);
    assert_null(mem_text("", SIZE_MAX));
}

static bool is_mapped(unsigned char *page) {
    unsigned char in_memory;
    const bool mapped = mincore(page, 1, &in_memory) == 0;
    assert_true(mapped || errno == ENOMEM);
    return mapped;
}

// Skipped where a file's pages cannot be dropped, and where its file system has no disk of its own
// (device number 0), as in memory or on another machine.
static void bytes_from_the_disk_are_counted(void **state) {
    (void)state;
    enum { SIZE = 1 << 20 };
    char path[] = "build/test_base_XXXXXX";
    const int file = mkstemp(path);
    assert_true(file >= 0 && unlink(path) == 0 && ftruncate(file, SIZE) == 0);
    assert_int_equal(pwrite(file, "x", 1, SIZE / 2), 1);
    assert_true(fsync(file) == 0 && posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED) == 0);
    unsigned char in_memory = 1, *map = mmap(NULL, SIZE, PROT_READ, MAP_SHARED, file, 0);
    assert_true(map != MAP_FAILED && mincore(map + SIZE / 2, 1, &in_memory) == 0);
    const struct disk_reads before = disk_reads();
    struct stat info;
    assert_return_code(fstat(file, &info), errno);
    const int byte = ((volatile unsigned char *)map)[SIZE / 2];
    const struct disk_reads after = disk_reads();
    munmap(map, SIZE);
    close(file);
    assert_int_equal(byte, 'x');
    if ((in_memory & 1) || major(info.st_dev) == 0) skip();
    assert_in_range(after.size_bytes - before.size_bytes, 4096, SIZE);
    assert_in_range(after.faults - before.faults, 1, SIZE / 4096);
}

static void mapped_pages_are_aligned_zeroed_and_given_back(void **state) {
    (void)state;
    const size_t huge = 2u << 20, sizes[] = {1, 4096, huge - 1, huge, huge + 1, 9u << 20};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        unsigned char *pages = mem_map_pages(sizes[i]);
        assert_non_null(pages);
        assert_true(mem_populate(pages, sizes[i]));
        const size_t page = sizes[i] < huge ? 64u << 10 : huge;
        assert_int_equal((uintptr_t)pages % page, 0);
        assert_int_equal(pages[0] | pages[sizes[i] / 2] | pages[sizes[i] - 1], 0);
        pages[0] = pages[sizes[i] - 1] = 1;
        unsigned char *last_page = pages + round_up(sizes[i], 64u << 10) - 4096;
        assert_true(is_mapped(pages) && is_mapped(last_page));
        assert_false(is_mapped(last_page + 4096)); // no more than what was asked for
        mem_unmap_pages(pages, sizes[i]);
        assert_false(is_mapped(pages) || is_mapped(last_page));
    }
    assert_null(mem_map_pages(SIZE_MAX));
    assert_null(mem_map_pages(SIZE_MAX - (4u << 20)));
    assert_null(mem_map_pages(SIZE_MAX / 2));
    mem_unmap_pages(NULL, 1);
}

// ---- Files -------------------------------------------------------------------------------------

struct folder {
    char path[64]; // of the folder
    char file[80]; // of the file "data" in it
};

static int folder_make(void **state) {
    struct folder *folder = test_calloc(1, sizeof *folder);
    strcpy(folder->path, "/tmp/tandem_base_XXXXXX");
    if (!mkdtemp(folder->path)) return -1;
    snprintf(folder->file, sizeof folder->file, "%s/data", folder->path);
    *state = folder;
    return 0;
}

static int folder_remove(void **state) {
    struct folder *folder = *state;
    unlink(folder->file);
    int code = rmdir(folder->path);
    test_free(folder);
    return code;
}

static void file_write(const struct folder *folder, const void *bytes, size_t size_bytes) {
    FILE *out = fopen(folder->file, "wb");
    assert_non_null(out);
    assert_int_equal(fwrite(bytes, 1, size_bytes, out), size_bytes);
    assert_int_equal(fclose(out), 0);
}

static void file_maps_and_reads_the_same_bytes(void **state) {
    const struct folder *folder = *state;
    unsigned char bytes[10000], part[777];
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (unsigned char)(i * 37 + i / 251);
    file_write(folder, bytes, sizeof bytes);
    struct file f;
    struct err e;
    assert_int_equal(file_open(&f, folder->file, &e), OK);
    assert_string_equal(f.path, folder->file);
    assert_int_equal(f.size_bytes, sizeof bytes);
    assert_memory_equal(f.map, bytes, sizeof bytes);
    assert_int_equal(file_read(&f, part, 5000, sizeof part, &e), OK);
    assert_memory_equal(part, bytes + 5000, sizeof part);
    assert_int_equal(file_read(&f, part, sizeof bytes, 0, &e), OK);
    assert_int_equal(file_populate(&f, 0, sizeof bytes, &e), OK);
    assert_int_equal(file_populate(&f, 4999, 2, &e), OK);
    assert_int_equal(file_populate(&f, sizeof bytes, 0, &e), OK);
    // A file that was cut since: the pages that are gone are an error, not a signal.
    assert_int_equal(truncate(folder->file, 4096), 0);
    assert_int_equal(file_populate(&f, 0, 4096, &e), OK);
    assert_int_equal(file_populate(&f, 0, sizeof bytes, &e), ERR_FILE);
    assert_non_null(strstr(e.what, folder->file));
    file_close(&f);
    assert_null(f.map);
    assert_null(f.path);
    assert_int_equal(f.descriptor, -1);
    file_close(&f);
}

static void file_says_how_much_is_missing(void **state) {
    const struct folder *folder = *state;
    file_write(folder, "0123456789", 10);
    struct file f;
    struct err e;
    char target[64];
    assert_int_equal(file_open(&f, folder->file, &e), OK);
    assert_int_equal(file_read(&f, target, 6, 10, &e), ERR_FILE);
    assert_non_null(strstr(e.what, folder->file));
    assert_non_null(strstr(e.what, "6 bytes are missing"));
    assert_int_equal(file_read(&f, target, 1u << 20, 3, &e), ERR_FILE);
    assert_non_null(strstr(e.what, "3 bytes are missing"));
    assert_int_equal(file_read(&f, target, UINT64_MAX - 8, 4, &e), ERR_FILE);

    // The file becomes shorter after it was opened.
    assert_int_equal(truncate(folder->file, 4), 0);
    assert_int_equal(file_read(&f, target, 2, 4, &e), ERR_FILE);
    assert_non_null(strstr(e.what, "2 bytes are missing"));
    file_close(&f);
}

static void file_takes_an_empty_one(void **state) {
    const struct folder *folder = *state;
    file_write(folder, "", 0);
    struct file f;
    struct err e;
    char byte;
    assert_int_equal(file_open(&f, folder->file, &e), OK);
    assert_null(f.map);
    assert_int_equal(f.size_bytes, 0);
    assert_int_equal(file_read(&f, &byte, 0, 1, &e), ERR_FILE);
    file_close(&f);
}

static void refused(const char *path, const char *actual) {
    struct file f;
    struct err e;
    memset(&f, 0x5a, sizeof f);
    assert_int_equal(file_open(&f, path, &e), ERR_FILE);
    assert_int_equal(e.status, ERR_FILE);
    assert_non_null(strstr(e.what, path));
    assert_string_equal(e.actual, actual);
    assert_null(f.map);
    assert_null(f.path);
    assert_int_equal(f.descriptor, -1);
    file_close(&f);
}

// A pipe in place of the file must be refused at once, not waited for.
static void file_refuses_what_is_no_file(void **state) {
    const struct folder *folder = *state;
    refused(folder->file, "");
    refused(folder->path, "a folder");
    refused("/dev/null", "a pipe or device");
    assert_int_equal(mkfifo(folder->file, 0600), 0);
    refused(folder->file, "a pipe or device");
    struct file zeroed = {0};
    file_close(&zeroed);
}

static void file_read_text_gives_all_or_names_the_limit(void **state) {
    const struct folder *folder = *state;
    enum { SIZE = 200000 };
    char *bytes = mem_alloc(SIZE, 1), *text = NULL;
    assert_non_null(bytes);
    for (size_t i = 0; i < SIZE; i++) bytes[i] = (char)('a' + i % 26);
    struct err e;
    size_t size_bytes = 0;
    const size_t lengths[] = {0, 1, 65535, 65536, 65537, 131072, SIZE};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        file_write(folder, bytes, lengths[i]);
        assert_int_equal(file_read_text(&text, &size_bytes, folder->file, lengths[i], &e), OK);
        assert_int_equal(size_bytes, lengths[i]);
        assert_memory_equal(text, bytes, size_bytes);
        assert_int_equal(text[size_bytes], 0);
        mem_free(text);
        if (lengths[i] == 0) continue;
        assert_int_equal(file_read_text(&text, &size_bytes, folder->file, lengths[i] - 1, &e),
                         ERR_LIMIT);
        assert_non_null(strstr(e.what, folder->file));
    }
    mem_free(bytes);
}

static void file_read_text_names_what_it_cannot_read(void **state) {
    const struct folder *folder = *state;
    struct err e;
    size_t size_bytes;
    char *text;
    assert_int_equal(file_read_text(&text, &size_bytes, folder->file, 100, &e), ERR_FILE);
    assert_non_null(strstr(e.what, "No such file"));
    assert_int_equal(file_read_text(&text, &size_bytes, folder->path, 100, &e), ERR_FILE);
    assert_non_null(strstr(e.what, folder->path));
}

static void file_make_folders_makes_all_or_names_what_is_in_the_way(void **state) {
    const struct folder *folder = *state;
    char path[600];
    struct err e;
    snprintf(path, sizeof path, "%s/one/two", folder->path);
    assert_int_equal(file_make_folders(path, &e), OK);
    assert_int_equal(file_make_folders(path, &e), OK);
    assert_int_equal(rmdir(path), 0);
    *strrchr(path, '/') = 0;
    assert_int_equal(rmdir(path), 0);
    file_write(folder, "x", 1);
    snprintf(path, sizeof path, "%s/two", folder->file);
    assert_int_equal(file_make_folders(path, &e), ERR_FILE);
    assert_non_null(strstr(e.what, folder->file));
}

// ---- The string map ----------------------------------------------------------------------------

enum { N_KEYS = 100000, KEY_ROOM = 12 };

static void strmap_finds_100000_keys(void **state) {
    (void)state;
    struct strmap m;
    struct err e;
    char(*keys)[KEY_ROOM] = mem_alloc(N_KEYS, sizeof *keys);
    assert_non_null(keys);
    assert_int_equal(strmap_init(&m, N_KEYS, &e), OK);
    for (uint32_t i = 0; i < N_KEYS; i++) {
        snprintf(keys[i], KEY_ROOM, "blk.%u", i);
        assert_true(strmap_put(&m, keys[i], (uint32_t)strlen(keys[i]), i));
    }
    assert_int_equal(m.count, N_KEYS);
    char key[KEY_ROOM];
    uint32_t value;
    for (uint32_t i = 0; i < 2 * N_KEYS; i++) {
        snprintf(key, sizeof key, "blk.%u", i);
        assert_int_equal(strmap_get(&m, key, (uint32_t)strlen(key), &value), i < N_KEYS);
        if (i < N_KEYS) assert_int_equal(value, i);
    }
    // Every key is there: putting it again adds nothing, even when the map is full.
    for (uint32_t i = 0; i < N_KEYS; i += 1000)
        assert_false(strmap_put(&m, keys[i], (uint32_t)strlen(keys[i]), 7));
    assert_true(strmap_get(&m, "blk.1000", 8, &value));
    assert_int_equal(value, 1000);
    strmap_close(&m);
    assert_null(m.slots);
    assert_false(strmap_get(&m, "blk.1", 5, &value));
    strmap_close(&m);
    mem_free(keys);
}

// In a table of 16 slots eight keys share slots whatever the hash is: over all pairs of letters,
// some of every eight meet. Each must still be found, and none that was not put.
static void strmap_keeps_colliding_keys_apart(void **state) {
    (void)state;
    static const char LETTERS[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
    struct err e;
    uint32_t collisions = 0, value;
    for (uint32_t group = 0; group + 8 < sizeof LETTERS; group++) {
        struct strmap m;
        assert_int_equal(strmap_init(&m, 8, &e), OK);
        for (uint32_t i = 0; i < 8; i++) assert_true(strmap_put(&m, LETTERS + group + i, 1, i));
        for (uint32_t i = 0; i < sizeof LETTERS - 1; i++) {
            bool is_in = i >= group && i < group + 8;
            assert_int_equal(strmap_get(&m, LETTERS + i, 1, &value), is_in);
            if (is_in) assert_int_equal(value, i - group);
        }
        for (uint32_t i = 0; i <= m.mask; i++)
            collisions += m.slots[i].key && (m.slots[i].hash & m.mask) != i;
        strmap_close(&m);
    }
    assert_true(collisions > 0);
}

static void strmap_compares_bytes_and_lengths(void **state) {
    (void)state;
    struct strmap m;
    struct err e;
    uint32_t value;
    assert_int_equal(strmap_init(&m, 4, &e), OK);
    assert_true(strmap_put(&m, "a\0b", 3, 1));
    assert_true(strmap_put(&m, "a\0c", 3, 2));
    assert_true(strmap_put(&m, "a", 1, 3));
    assert_true(strmap_put(&m, "", 0, 4));
    assert_true(strmap_get(&m, "a\0b", 3, &value) && value == 1);
    assert_true(strmap_get(&m, "a\0c", 3, &value) && value == 2);
    assert_true(strmap_get(&m, "a", 1, &value) && value == 3);
    assert_true(strmap_get(&m, "", 0, &value) && value == 4);
    assert_false(strmap_get(&m, "a\0", 2, &value));
    strmap_close(&m);
}

static void strmap_of_no_keys_holds_nothing(void **state) {
    (void)state;
    struct strmap m, zeroed = {0};
    struct err e;
    uint32_t value;
    assert_int_equal(strmap_init(&m, 0, &e), OK);
    assert_false(strmap_get(&m, "a", 1, &value));
    strmap_close(&m);
    assert_false(strmap_get(&zeroed, "a", 1, &value));
    strmap_close(&zeroed);
}

static void strmap_refuses_more_than_it_can_index(void **state) {
    (void)state;
    struct strmap m;
    struct err e;
    assert_int_equal(strmap_init(&m, UINT32_MAX, &e), ERR_MEMORY);
    assert_non_null(strstr(e.what, "a name table"));
    strmap_close(&m);
}

// ---- Clock and log -----------------------------------------------------------------------------

static void clock_never_goes_back(void **state) {
    (void)state;
    uint64_t before = clock_ns();
    for (int i = 0; i < 1000; i++) {
        uint64_t now = clock_ns();
        assert_true(now >= before);
        before = now;
    }
    clock_sleep_ns(1000000);
    assert_true(clock_ns() >= before + 1000000);
}

static void log_writes_what_its_level_lets_through(void **state) {
    (void)state;
    char *text = NULL;
    size_t size_bytes = 0;
    FILE *out = open_memstream(&text, &size_bytes);
    assert_non_null(out);
    struct log log = {.out = out, .level = LOG_INFO};
    log_line(&log, LOG_WARN, "%s is low", "memory");
    log_line(&log, LOG_INFO, "plan %d", 1);
    log_line(&log, LOG_DEBUG, "step");
    log.level = LOG_QUIET;
    log_line(&log, LOG_WARN, "unheard");
    log_line(NULL, LOG_WARN, "nowhere");
    log_line(&(struct log){.level = LOG_DEBUG}, LOG_WARN, "nowhere");
    assert_int_equal(fclose(out), 0);
    assert_string_equal(text, "tandem: warning: memory is low\ntandem: plan 1\n");
    free(text);
}

static void keep_line(void *context, enum log_level level, const char *text) {
    char *kept = context;
    snprintf(kept, 64, "%d %s", (int)level, text);
}

static void log_tells_its_listener(void **state) {
    (void)state;
    char kept[64] = "";
    const struct log log = {.level = LOG_WARN, .tell = keep_line, .context = kept};
    log_line(&log, LOG_INFO, "unheard");
    assert_string_equal(kept, "");
    log_line(&log, LOG_WARN, "%d left", 3);
    assert_string_equal(kept, "2 3 left");
}

#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, folder_make, folder_remove)

static bool until_five(void *context, const char *what, uint64_t done, uint64_t total) {
    assert_string_equal(what, "load");
    assert_int_equal(total, 10);
    *(uint64_t *)context = done;
    return done < 5;
}

static void progress_without_a_listener_goes_on(void **state) {
    (void)state;
    uint64_t seen = 0;
    const struct progress none = {0}, listened = {until_five, &seen};
    assert_true(progress_tell(&none, "load", 10, 10));
    assert_true(progress_tell(&listened, "load", 4, 10));
    assert_int_equal(seen, 4);
    assert_false(progress_tell(&listened, "load", 5, 10));
    assert_int_equal(seen, 5);
}

// ---- new_file.h ---------------------------------------------------------------------------------

static void new_files_appear_whole_or_not_at_all(void **state) {
    (void)state;
    char folder[] = "/tmp/newfileXXXXXX", path[64];
    struct new_file f;
    struct err e;
    char *text;
    size_t size;
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/file", folder);
    assert_int_equal(new_file_open(&f, path, &e), OK);
    assert_int_equal(new_file_reserve(&f, 10, &e), OK);
    assert_int_equal(new_file_write(&f, "one", 3, &e), OK);
    assert_int_not_equal(access(path, F_OK), 0);
    new_file_close(&f); // nothing is left
    assert_int_equal(new_file_open(&f, path, &e), OK);
    assert_int_equal(new_file_write(&f, "one ", 4, &e), OK);
    assert_int_equal(new_file_write(&f, "two", 3, &e), OK);
    assert_int_equal(new_file_commit(&f, &e), OK);
    assert_int_equal(file_read_text(&text, &size, path, 100, &e), OK);
    assert_string_equal(text, "one two");
    mem_free(text);

    assert_int_equal(new_file_open(&f, path, &e), ERR_FILE); // it exists
    unlink(path);
    assert_int_equal(new_file_open(&f, path, &e), OK);
    assert_int_equal(symlink("nowhere", path), 0); // the name is taken meanwhile
    assert_int_equal(new_file_commit(&f, &e), ERR_FILE);
    unlink(path);
    assert_int_equal(rmdir(folder), 0);
    assert_int_equal(new_file_open(&f, path, &e), ERR_FILE);
    new_file_close(&f);
}

// A process that is killed leaves nothing, where the file system has files without a name.
static void new_files_of_a_killed_process_are_gone(void **state) {
    (void)state;
    char folder[] = "/tmp/newfileXXXXXX", path[64];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/file", folder);
    const int unnamed = disk_open_unnamed(folder);
    if (unnamed >= 0) close(unnamed);
    const pid_t child = unnamed >= 0 ? fork() : -1;
    if (child == 0) {
        struct new_file f;
        struct err e;
        if (new_file_open(&f, path, &e) || new_file_write(&f, "one", 3, &e)) _exit(1);
        raise(SIGKILL);
    }
    int status = 0;
    if (child > 0) waitpid(child, &status, 0);
    assert_int_equal(rmdir(folder), 0);
    if (child < 0) skip();
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

static void assert_content(const char *path, const char *expected) {
    struct err e;
    char *text;
    size_t size;
    assert_int_equal(file_read_text(&text, &size, path, 100, &e), OK);
    assert_string_equal(text, expected);
    mem_free(text);
}

// A link stays one, and what is no regular file gets the bytes.
static void new_files_replace_files_alone(void **state) {
    (void)state;
    char folder[] = "/tmp/newfileXXXXXX", file[64], link[64], pipe[64], text[8] = "";
    struct new_file f;
    struct stat now;
    struct err e;
    assert_non_null(mkdtemp(folder));
    snprintf(file, sizeof file, "%s/file", folder);
    snprintf(link, sizeof link, "%s/link", folder);
    snprintf(pipe, sizeof pipe, "%s/pipe", folder);
    close(open(file, O_WRONLY | O_CREAT, 0600));
    assert_int_equal(symlink("file", link), 0);
    assert_int_equal(mkfifo(pipe, 0600), 0);
    assert_int_equal(new_file_open_over(&f, link, &e), OK);
    assert_int_equal(new_file_write(&f, "one", 3, &e), OK);
    assert_int_equal(new_file_commit(&f, &e), OK);
    assert_true(lstat(link, &now) == 0 && S_ISLNK(now.st_mode));
    assert_true(stat(file, &now) == 0 && now.st_size == 3);

    const int reader = open(pipe, O_RDONLY | O_NONBLOCK);
    assert_int_equal(new_file_open_over(&f, pipe, &e), OK);
    assert_int_equal(new_file_reserve(&f, 3, &e), OK);
    assert_int_equal(new_file_write(&f, "two", 3, &e), OK);
    assert_int_equal(new_file_commit(&f, &e), OK);
    assert_int_equal(read(reader, text, sizeof text), 3);
    assert_string_equal(text, "two");
    close(reader);

    // The bytes follow what is printed before them and precede what is printed after.
    const int standard = dup(STDOUT_FILENO), printed = open(file, O_WRONLY | O_TRUNC);
    fflush(stdout);
    dup2(printed, STDOUT_FILENO);
    fputs("<", stdout);
    const enum status opened = new_file_open_over(&f, "/dev/stdout", &e);
    const bool written = !opened && !new_file_reserve(&f, 99, &e) &&
                         !new_file_write(&f, "two", 3, &e) && !new_file_commit(&f, &e);
    fputs(">", stdout);
    fflush(stdout);
    dup2(standard, STDOUT_FILENO);
    close(standard);
    close(printed);
    assert_true(written);
    assert_content(file, "<two>");
    assert_true(unlink(file) == 0 && unlink(link) == 0 && unlink(pipe) == 0);
    assert_int_equal(new_file_open_over(&f, folder, &e), ERR_FILE);
    assert_int_equal(rmdir(folder), 0);
}

static enum status print_text(FILE *out, const void *text, struct err *e) {
    return fputs(text, out) >= 0 ? OK : err_errno(e, EIO, "writing");
}

static enum status print_half(FILE *out, const void *text, struct err *e) {
    fputs(text, out);
    return err_set(e, ERR_MEMORY, "no memory");
}

// A file that cannot be printed to the end stays as it was.
static void new_files_are_printed_whole_or_not_at_all(void **state) {
    (void)state;
    char folder[] = "/tmp/newfileXXXXXX", path[64];
    struct err e;
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/file", folder);
    assert_int_equal(new_file_check(path, &e), OK);
    assert_int_not_equal(access(path, F_OK), 0);
    assert_int_equal(new_file_print(path, print_text, "one", &e), OK);
    assert_content(path, "one");
    assert_int_equal(new_file_print(path, print_half, "two", &e), ERR_MEMORY);
    assert_content(path, "one");
    assert_int_equal(new_file_check(path, &e), OK);
    assert_content(path, "one");
    assert_int_equal(new_file_print(path, print_text, "three", &e), OK);
    assert_content(path, "three");
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(folder), 0);
    assert_int_equal(new_file_check(path, &e), ERR_FILE);
    assert_int_equal(new_file_print(path, print_text, "four", &e), ERR_FILE);
    if (access("/dev/full", W_OK) != 0) return;
    assert_int_equal(new_file_print("/dev/full", print_text, "five", &e), ERR_FILE);
    assert_string_equal(e.what, "/dev/full: No space left on device");
}

struct door {
    struct gate gate;
    atomic_int n; // that were let through so far
};

struct visitor {
    struct door *door;
    pthread_t thread;
    int turn; // of going through, from 0
};

static bool is_my_turn(const void *context) {
    const struct visitor *v = context;
    return atomic_load(&v->door->n) == v->turn;
}

static void *visit(void *context) {
    const struct visitor *v = context;
    gate_wait(&v->door->gate, is_my_turn, v);
    atomic_fetch_add(&v->door->n, 1);
    gate_open(&v->door->gate);
    return NULL;
}

// Threads that wait for each other in a row are all woken, whenever they fall asleep.
static void gates_wake_everybody(void **state) {
    (void)state;
    for (int round = 0; round < 200; round++) {
        struct door door = {.n = 0};
        struct visitor visitors[4];
        gate_init(&door.gate);
        for (int i = 3; i >= 0; i--) {
            visitors[i] = (struct visitor){.door = &door, .turn = i};
            assert_int_equal(pthread_create(&visitors[i].thread, NULL, visit, &visitors[i]), 0);
        }
        for (int i = 0; i < 4; i++) pthread_join(visitors[i].thread, NULL);
        assert_int_equal(door.n, 4);
        assert_int_equal(door.gate.n_asleep, 0);
        gate_close(&door.gate);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(err_reads_as_one_line),
        cmocka_unit_test(err_context_names_a_thing_once),
        cmocka_unit_test(err_set_forgets_what_was_there),
        cmocka_unit_test(err_shows_no_control_bytes),
        cmocka_unit_test(err_sizes_round_limits_down_and_needs_up),
        cmocka_unit_test(err_cuts_what_is_too_long),
        cmocka_unit_test(err_context_keeps_the_end_where_it_fits),
        cmocka_unit_test(err_errno_and_memory_name_their_cause),
        cmocka_unit_test(every_status_has_its_own_name),
        cmocka_unit_test(a_broken_assert_ends_the_process),
        cmocka_unit_test(sizes_are_checked),
        cmocka_unit_test(mem_alloc_gives_zeroed_bytes_or_refuses),
        cmocka_unit_test(mem_resize_keeps_the_content),
        cmocka_unit_test(mem_text_copies_any_bytes),
        cmocka_unit_test(mapped_pages_are_aligned_zeroed_and_given_back),
        cmocka_unit_test(bytes_from_the_disk_are_counted),
        IN_FOLDER(file_maps_and_reads_the_same_bytes),
        IN_FOLDER(file_says_how_much_is_missing),
        IN_FOLDER(file_takes_an_empty_one),
        IN_FOLDER(file_refuses_what_is_no_file),
        IN_FOLDER(file_read_text_gives_all_or_names_the_limit),
        IN_FOLDER(file_read_text_names_what_it_cannot_read),
        IN_FOLDER(file_make_folders_makes_all_or_names_what_is_in_the_way),
        cmocka_unit_test(strmap_finds_100000_keys),
        cmocka_unit_test(strmap_keeps_colliding_keys_apart),
        cmocka_unit_test(strmap_compares_bytes_and_lengths),
        cmocka_unit_test(strmap_of_no_keys_holds_nothing),
        cmocka_unit_test(strmap_refuses_more_than_it_can_index),
        cmocka_unit_test(progress_without_a_listener_goes_on),
        cmocka_unit_test(clock_never_goes_back),
        cmocka_unit_test(log_writes_what_its_level_lets_through),
        cmocka_unit_test(log_tells_its_listener),
        cmocka_unit_test(new_files_appear_whole_or_not_at_all),
        cmocka_unit_test(new_files_of_a_killed_process_are_gone),
        cmocka_unit_test(new_files_replace_files_alone),
        cmocka_unit_test(new_files_are_printed_whole_or_not_at_all),
        cmocka_unit_test(gates_wake_everybody),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

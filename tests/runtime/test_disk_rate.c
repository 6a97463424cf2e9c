/* test_disk_rate.c: the rate of a disk is what the clock says, whatever the disk; and files that
 * are dropped from memory are read as before. */
#include "runtime/host/disk_rate.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { SIZE = 32 << 20, PIECE_NS = 4 << 20 };

// Each reading of the clock takes PIECE_NS, a nanosecond for each byte of an eighth of the file.
static uint64_t fake_now(void *context) { return *(uint64_t *)context += PIECE_NS; }
static uint64_t fake_others(void *context) { return (void)context, 0; }

static void write_bytes(const char *path, size_t size_bytes) {
    char *bytes = malloc(size_bytes);
    assert_non_null(bytes);
    for (size_t i = 0; i < size_bytes; i++) bytes[i] = (char)(i * 7 + i / 4096);
    FILE *out = fopen(path, "w");
    assert_non_null(out);
    assert_int_equal(fwrite(bytes, 1, size_bytes, out), size_bytes);
    assert_int_equal(fflush(out) || fsync(fileno(out)), 0);
    fclose(out);
    free(bytes);
}

static void test_rate(void **state) {
    (void)state;
    char path[] = "test_disk_rate.XXXXXX"; // where the build is: /tmp may be memory
    const int descriptor = mkstemp(path);
    assert_true(descriptor >= 0);
    close(descriptor);
    uint64_t now_ns = 0;
    const struct meter meter = {fake_now, fake_others, NULL, &now_ns};
    write_bytes(path, 4096);
    assert_true(disk_rate_of(path, &meter) == 0); // too small
    write_bytes(path, SIZE);
    // A file system in memory has no disk to measure.
    const double gbps = disk_rate_of(path, &meter);
    assert_true(gbps == 0 || gbps == 1);
    unlink(path);
    assert_true(disk_rate_of(path, &meter) == 0);
}

// Makes a file of SIZE bytes and opens it.
static void open_new(struct file *f, char *path) {
    struct err e;
    const int descriptor = mkstemp(path);
    assert_true(descriptor >= 0);
    close(descriptor);
    write_bytes(path, SIZE);
    assert_int_equal(file_open(f, path, &e), OK);
}

// Pieces that another mapping keeps in memory say nothing about the disk.
static void test_resident_pieces_do_not_count(void **state) {
    (void)state;
    char path[] = "test_disk_rate.XXXXXX";
    uint64_t now_ns = 0;
    const struct meter meter = {fake_now, fake_others, NULL, &now_ns};
    struct err e;
    struct file held;
    open_new(&held, path);
    assert_int_equal(file_populate(&held, 0, SIZE, &e), OK);
    assert_true(disk_rate_of(path, &meter) == 0);
    file_close(&held);
    unlink(path);
}

static void test_dropped_bytes_come_back(void **state) {
    (void)state;
    char path[] = "test_disk_rate.XXXXXX";
    struct err e;
    struct file f;
    open_new(&f, path);
    unlink(path);
    file_drop(&f, 4000, SIZE / 2);
    file_read_singly(&f, 4000, SIZE / 2);
    assert_true(file_resident_bytes(&f, 0, SIZE) >= SIZE / 2 - 8192); // the rest is still there
    file_expect(&f, 4000, SIZE / 2);
    assert_int_equal(file_populate(&f, 4000, SIZE / 2, &e), OK);
    assert_true(file_resident_bytes(&f, 4000, SIZE / 2) >= SIZE / 2);
    for (size_t i = 0; i < SIZE; i += 997) assert_int_equal(f.map[i], (uint8_t)(i * 7 + i / 4096));
    assert_int_equal(file_lock(&f, 5, 5000, &e), OK); // any system locks two pages
    file_close(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rate),
        cmocka_unit_test(test_resident_pieces_do_not_count),
        cmocka_unit_test(test_dropped_bytes_come_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* test_upload.c: files reach an accelerator through blocks of pinned memory byte for byte, and what
 * cannot be read, copied or waited for ends in an error that says so. On the simulated accelerator,
 * whose streams run in threads of their own, and the emulated NVIDIA GPU. */
// link: wrap-alloc
#include "base/mem.h"
#include "kernels/cuda/cuda_device.h"
#include "runtime/engine/upload.h"
#include "tests/lib/alloc_fail.h"
#include "tests/lib/find_emulator.h"
#include "tests/lib/open_device.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { FILE_BYTES = 9 * UPLOAD_BLOCK_BYTES + 77 };

struct bench {
    struct device *device;
    struct buffer target;
    struct file file;
    char path[32];
    uint8_t *bytes; // of the file
};

static struct device *open_emulated(void) {
    struct cuda_options o = {0};
    struct device *d;
    struct err e = {0};
    if (!find_emulator(o.driver, sizeof o.driver)) return NULL;
    assert_int_equal(cuda_device_open(&d, &o, NULL, &e), OK);
    return d;
}

static struct bench open_bench(struct device *device) {
    struct bench b = {.device = device, .path = "/tmp/test_upload_XXXXXX"};
    struct err e = {0};
    b.target = new_buffer(device, FILE_BYTES, PURPOSE_WEIGHTS);
    b.bytes = mem_alloc(FILE_BYTES, 1);
    assert_non_null(b.bytes);
    uint32_t random = 1;
    for (int i = 0; i < FILE_BYTES; i++)
        b.bytes[i] = (uint8_t)((random = random * 1664525 + 1013904223) >> 24);
    const int descriptor = mkstemp(b.path);
    assert_true(descriptor >= 0);
    assert_int_equal(write(descriptor, b.bytes, FILE_BYTES), FILE_BYTES);
    assert_int_equal(close(descriptor), 0);
    assert_int_equal(file_open(&b.file, b.path, &e), OK);
    return b;
}

static void close_bench(struct bench *b) {
    file_close(&b->file);
    assert_int_equal(unlink(b->path), 0);
    mem_free(b->bytes);
    buffer_free(&b->target);
    device_close(b->device);
}

static void *at(const struct bench *b, uint64_t offset) { return (char *)b->target.base + offset; }

// The whole file in stretches of many sizes, the last first, and one of nothing.
static enum status upload_all(struct bench *b, struct upload *u, struct err *e) {
    static const uint64_t sizes[] = {UPLOAD_BLOCK_BYTES,    1, 4 * UPLOAD_BLOCK_BYTES - 1, 0, 513,
                                     UPLOAD_BLOCK_BYTES + 1};
    uint64_t end = FILE_BYTES;
    for (int i = 0; end > 0; i++) {
        const uint64_t wanted = sizes[i % 6], n = wanted < end ? wanted : end;
        end -= n;
        const struct stretch from = {&b->file, end, n, i % 2};
        if (upload_add(u, &from, at(b, end), e)) return e->status;
    }
    return upload_wait(u, e);
}

static void expect_bytes(struct bench *b) {
    struct stream *s = new_stream(b->device, STREAM_COPY_OUT);
    uint8_t *there = mem_alloc(FILE_BYTES, 1);
    assert_non_null(there);
    stream_copy(s, there, b->target.base, FILE_BYTES, COPY_FROM_DEVICE);
    wait_ok(s);
    assert_memory_equal(there, b->bytes, FILE_BYTES);
    mem_free(there);
    stream_free(s);
}

static void check_upload(struct device *device) {
    struct bench b = open_bench(device);
    struct upload u;
    struct err e = {0};
    assert_int_equal(upload_open(&u, b.device, &e), OK);
    assert_int_equal(upload_all(&b, &u, &e), OK);
    expect_bytes(&b);
    upload_close(&u);
    upload_close(&u);
    close_bench(&b);
}

static void test_bytes(void **state) {
    (void)state;
    check_upload(open_sim("vram=64M"));
    check_upload(open_sim("vram=64M,h2d=4G"));
    struct device *emulated = open_emulated();
    if (emulated) check_upload(emulated);
}

// The file lost its end since it was opened. What is left can still be read.
static void test_short_file(void **state) {
    (void)state;
    struct bench b = open_bench(open_sim("vram=64M"));
    struct upload u;
    struct err e = {0};
    assert_int_equal(truncate(b.path, FILE_BYTES - 1), 0);
    assert_int_equal(upload_open(&u, b.device, &e), OK);
    const struct stretch end = {&b.file, FILE_BYTES - 9, 9, false};
    assert_int_equal(upload_add(&u, &end, at(&b, FILE_BYTES - 9), &e), OK);
    assert_int_equal(upload_wait(&u, &e), ERR_FILE);
    assert_non_null(strstr(e.what, b.path));
    assert_non_null(strstr(e.what, "1 byte is missing"));
    e = (struct err){0};
    assert_int_equal(upload_all(&b, &u, &e), ERR_FILE); // found by a later stretch or by the wait
    upload_close(&u);
    close_bench(&b);
}

static void test_failed_copy(void **state) {
    (void)state;
    struct bench b = open_bench(open_sim("vram=64M,fail=copy:3"));
    struct upload u;
    struct err e = {0};
    assert_int_equal(upload_open(&u, b.device, &e), OK);
    assert_int_equal(upload_all(&b, &u, &e), ERR_DEVICE);
    upload_close(&u);
    close_bench(&b);
}

#if defined(__SANITIZE_ADDRESS__)
// See test_pipeline.c.
__attribute__((visibility("default"))) const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void) { return "leak:upload_open"; }
#endif

static void test_lost_device(void **state) {
    (void)state;
    struct bench b = open_bench(open_sim("vram=64M,stall=2:0.5"));
    struct upload u;
    struct err e = {0};
    device_limit_waits(b.device, 0.05);
    assert_int_equal(upload_open(&u, b.device, &e), OK);
    assert_int_equal(upload_all(&b, &u, &e), ERR_DEVICE);
    assert_true(b.device->lost);
    void *blocks = u.blocks;
    upload_close(&u); // the blocks stay, since a call may still fill them
    memset(blocks, 1, UPLOAD_BLOCKS * UPLOAD_BLOCK_BYTES);
    usleep(600000); // the file is read by the call that was late
    close_bench(&b);
}

// Any allocation may be refused.
static void test_no_memory(void **state) {
    (void)state;
    struct bench b = open_bench(open_sim("vram=64M"));
    const int64_t mapped_bytes = alloc_fail_mapped_bytes();
    int n = 0;
    do {
        struct upload u;
        struct err e = {0};
        alloc_fail_at(++n);
        const enum status status = upload_open(&u, b.device, &e);
        assert_int_equal(status, alloc_fail_happened() ? ERR_MEMORY : OK);
        upload_close(&u);
        assert_int_equal(alloc_fail_mapped_bytes(), mapped_bytes);
    } while (alloc_fail_happened());
    alloc_fail_at(0);
    assert_true(n > 3);
    close_bench(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bytes),       cmocka_unit_test(test_short_file),
        cmocka_unit_test(test_failed_copy), cmocka_unit_test(test_lost_device),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

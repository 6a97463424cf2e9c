/* test_cuda_copy.c: copies of the CUDA backend on a compute stream, on the emulated driver: which
 * of them are launches in the stream's list, and that all move the same bytes. Copies on other
 * streams are test_cuda.c's. */
#include "base/mem.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/params.h"
#include "tests/lib/find_emulator.h"

#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { SIZE = 4 << 20 };

struct bench { // a device with a compute stream, its memory and pinned memory of the host
    struct device *device;
    struct stream *stream;
    struct buffer memory;
    uint8_t *host;
};

static struct bench open_bench(bool maps) {
    struct bench b = {0};
    struct cuda_options o = {0};
    struct err e = {0};
    setenv("EMU_CUDA_MAP", maps ? "1" : "0", 1);
    assert_true(find_emulator(o.driver, sizeof o.driver));
    assert_int_equal(cuda_device_open(&b.device, &o, NULL, &e), OK);
    assert_int_equal(stream_new(b.device, STREAM_COMPUTE, &b.stream, &e), OK);
    assert_int_equal(buffer_new(b.device, SIZE, PURPOSE_SCRATCH, &b.memory, &e), OK);
    b.host = mem_map_pages(SIZE);
    assert_non_null(b.host);
    assert_true(device_host_register(b.device, b.host, SIZE));
    assert_int_equal(b.device->info.reaches_host, maps);
    return b;
}

static void close_bench(struct bench *b) {
    device_host_unregister(b->device, b->host);
    mem_unmap_pages(b->host, SIZE);
    stream_free(b->stream);
    buffer_free(&b->memory);
    device_close(b->device);
}

static struct cuda_queue *queue_of(const struct bench *b) {
    return &((struct cuda_stream *)b->stream)->queue;
}

static void finish(const struct bench *b) {
    struct err e = {0};
    if (stream_wait(b->stream, &e) != OK) fail_msg("%s", e.what);
}

// Rows of a copy there, at from_host and to_device, and whether kernels may move them.
struct rows {
    int32_t n_rows;
    uint64_t row_bytes, host_stride, device_stride, from_host, to_device;
    bool by_kernel;
};

// Copies rows to the device and back to another place; returns how many of the two are launches.
static int there_and_back(const struct bench *b, const struct rows *r) {
    uint8_t *source = b->host + r->from_host, *back = source + SIZE / 2;
    char *middle = (char *)b->memory.base + r->to_device;
    for (int i = 0; i < SIZE; i++) b->host[i] = (uint8_t)(i * 7 + i / 251);
    const struct row_copy to = {middle,         source,       r->device_stride,
                                r->host_stride, r->row_bytes, r->n_rows},
                          from = {back,         middle,   r->host_stride, r->device_stride,
                                  r->row_bytes, r->n_rows};
    stream_copy_rows(b->stream, &to, COPY_TO_DEVICE);
    int n_launches = queue_of(b)->list.n_launches;
    stream_copy_rows(b->stream, &from, COPY_FROM_DEVICE);
    if (queue_of(b)->list.n_launches) n_launches = queue_of(b)->list.n_launches;
    finish(b);
    for (int32_t row = 0; row < r->n_rows; row++) {
        const uint64_t at = (uint64_t)row * r->host_stride;
        assert_memory_equal(back + at, source + at, r->row_bytes);
        const uint8_t *behind = back + at + r->row_bytes; // stays as it was
        if (r->host_stride > r->row_bytes)
            assert_int_equal(*behind, (uint8_t)((behind - b->host) * 7 + (behind - b->host) / 251));
    }
    return n_launches;
}

static void test_rows(void **state) {
    (void)state;
    static const struct rows cases[] = {
        {1, 16384, 16384, 16384, 0, 0, true},
        {1, 4, 4, 4, 16, 0, true},
        {1, MOVE_BYTES + 16, 8192, 8192, 0, 256, true},
        {3, 16, 64, 32, 32, 0, true},
        {5, 2052, 4096, 2304, 4, 16, true}, // 4 bytes at a time
        {32, 5120, 9728, 9728, 1024, 512, true},
        {1, MOVE_MAX_BYTES, MOVE_MAX_BYTES, MOVE_MAX_BYTES, 0, 0, true},
        {1, MOVE_MAX_BYTES + 16, MOVE_MAX_BYTES + 16, MOVE_MAX_BYTES + 16, 0, 0, false},
        {2, 10, 16, 16, 0, 0, false}, // no multiple of 4
        {2, 16, 18, 16, 0, 0, false},
        {2, 16, 16, 16, 2, 0, false},
    };
    for (int maps = 0; maps < 2; maps++) {
        struct bench b = open_bench(maps);
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
            assert_int_equal(there_and_back(&b, &cases[i]), maps && cases[i].by_kernel ? 2 : 0);
        close_bench(&b);
    }
}

// Memory of the host that is not pinned, or no more, is the driver's.
static void test_not_pinned(void **state) {
    (void)state;
    struct bench b = open_bench(true);
    static uint32_t values[64];
    stream_copy(b.stream, b.memory.base, values, sizeof values, COPY_TO_DEVICE);
    assert_int_equal(queue_of(&b)->list.n_launches, 0);
    // A copy that leaves the pinned memory at its end.
    device_host_unregister(b.device, b.host);
    assert_true(device_host_register(b.device, b.host, SIZE / 2));
    stream_copy(b.stream, b.memory.base, b.host + SIZE / 2 - 16, 32, COPY_TO_DEVICE);
    assert_int_equal(queue_of(&b)->list.n_launches, 0);
    stream_copy(b.stream, b.memory.base, b.host + SIZE / 2 - 32, 32, COPY_TO_DEVICE);
    assert_int_equal(queue_of(&b)->list.n_launches, 1);
    finish(&b);
    close_bench(&b);
}

// Floats come from the host, are multiplied and go back within one graph.
static void test_graph(void **state) {
    (void)state;
    enum { N = 500 };
    struct bench b = open_bench(true);
    float *x = (float *)(void *)b.host, *y = x + N;
    for (int round = 0; round < 4; round++) {
        for (int i = 0; i < N; i++) x[i] = (float)(i + round), y[i] = 0;
        stream_copy(b.stream, b.memory.base, x, N * sizeof *x, COPY_TO_DEVICE);
        const struct swiglu_args a = {.out = b.memory.base,
                                      .gate = b.memory.base,
                                      .up = b.memory.base,
                                      .n_rows = 1,
                                      .n_cols = N,
                                      .stride = N,
                                      .up_stride = N,
                                      .form = GLU_PRODUCT};
        b.device->ops->swiglu(b.stream, &a);
        stream_copy(b.stream, y, b.memory.base, N * sizeof *y, COPY_FROM_DEVICE);
        assert_int_equal(queue_of(&b)->list.n_launches, 3);
        finish(&b);
        assert_int_equal(queue_of(&b)->n_replays, round);
        for (int i = 0; i < N; i++) assert_true(y[i] == x[i] * x[i]);
    }
    close_bench(&b);
}

int main(void) {
    char path[PATH_MAX];
    if (!find_emulator(path, sizeof path)) {
        puts("1..1\nok 1 # SKIP there is no emulator (it needs x86-64 and a C++ compiler)");
        return 0;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_not_pinned),
        cmocka_unit_test(test_graph),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

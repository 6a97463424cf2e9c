/* test_paging.c: tensors that lie near each other in a file are read from it as one. */
#include "runtime/engine/paging.h"

#include "base/mem.h"
#include "kernels/cpu/device/cpu_device.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { SIZE = 1 << 20, ROW = 1024, TENSOR_BYTES = 4 * ROW };

static void open_file(struct file *f, const char *path, int descriptor) {
    struct err e;
    assert_true(descriptor >= 0);
    assert_int_equal(ftruncate(descriptor, SIZE), 0);
    close(descriptor);
    assert_int_equal(file_open(f, path, &e), OK);
}

// Reads a unit of tensors at these places through a pager, and copies the ranges that it read.
static int32_t read_unit_at(const uint64_t *places, int32_t n, struct paged_range *ranges) {
    char path[] = "test_paging.XXXXXX";
    struct file file;
    struct err e;
    struct device *host;
    struct stream *s;
    struct pager pager;
    struct weight home[1][MAX_UNIT_TENSORS] = {0};
    struct model *model = mem_alloc(1, sizeof *model);
    struct shape *shape = mem_alloc(1, sizeof *shape);
    struct plan *plan = mem_alloc(1, sizeof *plan);
    assert_true(model && shape && plan);
    open_file(&file, path, mkstemp(path));
    const struct gguf gguf = {.parts = &file, .n_parts = 1};
    const struct weights weights = {.home = home};
    for (int32_t i = 0; i < n; i++)
        home[0][i] = (struct weight){.type = DTYPE_F32,
                                     .n_cols = ROW,
                                     .n_rows = 1,
                                     .data = (void *)(uintptr_t)(file.map + places[i])};
    model->gguf = &gguf;
    shape->units[0].kind = UNIT_FFN;
    plan->n_units = 1;
    plan->unit_cold_bytes[0] = (uint64_t)n * TENSOR_BYTES;
    const struct placed_model placed = {.model = model, .shape = shape, .plan = plan};
    assert_int_equal(pager_open(&pager, &placed, &weights, &e), OK);
    assert_int_equal(device_open_cpu(&host, &(struct cpu_options){.n_threads = 1}, NULL, &e), OK);
    assert_int_equal(stream_new(host, STREAM_COMPUTE, &s, &e), OK);
    pager_read(&pager, 0, s);
    assert_int_equal(stream_wait(s, &e), OK);
    const int32_t n_ranges = pager.units[0].n_ranges;
    memcpy(ranges, pager.units[0].ranges, (size_t)n_ranges * sizeof *ranges);
    stream_free(s);
    device_close(host);
    pager_close(&pager);
    file_close(&file);
    unlink(path);
    mem_free(model);
    mem_free(shape);
    mem_free(plan);
    return n_ranges;
}

static void test_neighbours_are_one(void **state) {
    (void)state;
    struct paged_range ranges[MAX_UNIT_TENSORS];
    // In any order; two are near each other, and the third is far behind them.
    const uint64_t places[] = {512 << 10, 0, 32 << 10};
    assert_int_equal(read_unit_at(places, 3, ranges), 2);
    assert_int_equal(ranges[0].offset, 0);
    assert_int_equal(ranges[0].size_bytes, (32 << 10) + TENSOR_BYTES);
    assert_int_equal(ranges[1].offset, 512 << 10);
    assert_int_equal(ranges[1].size_bytes, TENSOR_BYTES);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_neighbours_are_one)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

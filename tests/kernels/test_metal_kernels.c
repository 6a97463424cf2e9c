/* test_metal_kernels.c: the Metal kernels by themselves, compiled for the host, without a device.
 *
 * The same .metal files as Metal gets. Their results are compared with kernels/cpu/ref.c.
 */
#include "kernels/metal/metal_source.h"
#include "kernels/metal/params.h"
#include "tests/metal/kernel_table.h"
#include "tests/metal/run_kernel.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct simt *engine;
static struct simt_report report;

static int open_engine(void **state) {
    (void)state;
    const struct simt_options options = {.n_workers = 2};
    engine = simt_open(&options);
    return engine ? 0 : -1;
}
static int close_engine(void **state) {
    (void)state;
    simt_close(engine);
    engine = NULL;
    return 0;
}

static void test_copies_rows_in_units(void **state) {
    (void)state;
    enum { ROWS = 3, TARGET = 10016, SOURCE = 9600, BYTES = 9424 };
    static _Alignas(16) uint8_t target[ROWS * TARGET], source[ROWS * SOURCE];
    for (int i = 0; i < ROWS * SOURCE; i++) source[i] = (uint8_t)(i * 31 % 251);
    for (int unit = 1; unit <= 16; unit *= 4) {
        const struct move_params p = {.target = target,
                                      .source = source,
                                      .target_stride = TARGET,
                                      .source_stride = SOURCE,
                                      .row_bytes = BYTES,
                                      .unit_bytes = unit,
                                      .n_rows = ROWS};
        const struct metal_grid grid = {(BYTES + MOVE_BYTES - 1) / MOVE_BYTES, ROWS, 1,
                                        MOVE_THREADS, 0};
        memset(target, 0xee, sizeof target);
        if (!run_kernel(engine, "move_rows", grid, &p, 2, &report)) fail_msg("%s", report.text);
        for (int row = 0; row < ROWS; row++) {
            assert_memory_equal(target + row * TARGET, source + row * SOURCE, BYTES);
            for (int i = BYTES; i < TARGET; i++) assert_int_equal(target[row * TARGET + i], 0xee);
        }
    }
}

// Each kernel gets its parameters at index 0, and the text that Metal compiles has them all.
static void test_every_kernel_is_whole(void **state) {
    (void)state;
    static const struct {
        const char *name;
        size_t params_bytes;
        uint32_t n_pointers;
    } listed[] = {
#define METAL_KERNEL(name, params, n_pointers) {#name, sizeof(params), n_pointers},
#include "kernels/metal/kernels.def"
#undef METAL_KERNEL
    };
    assert_true(strlen(metal_source) > 1000);
    for (size_t i = 0; i < sizeof listed / sizeof *listed; i++) {
        const struct metal_function *f = metal_function_find(listed[i].name);
        bool has_params = false;
        assert_non_null(f);
        for (uint32_t k = 0; k < f->n_arguments; k++) {
            const struct metal_argument *a = &f->arguments[k];
            if (a->kind == METAL_THREADGROUP) continue;
            assert_true(a->index <= listed[i].n_pointers);
            if (a->index > 0) continue;
            has_params = true;
            assert_int_equal(a->kind, METAL_CONSTANT);
            assert_int_equal(a->size_bytes, listed[i].params_bytes);
        }
        assert_true(has_params);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_copies_rows_in_units),
        cmocka_unit_test(test_every_kernel_is_whole),
    };
    return cmocka_run_group_tests_name("metal_kernels", tests, open_engine, close_engine);
}

/* test_simt.c: the emulator's engine: toy kernels that are right give what plain loops give, in any
 * order of threads; each that is wrong is reported with the place.
 */
#include "tests/emulator/simt.h"
#include "tests/emulator/toys.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#if defined(__SANITIZE_ADDRESS__)
#define WATCHED 1
#elif defined(__has_feature)
#define WATCHED __has_feature(address_sanitizer)
#else
#define WATCHED 0
#endif

#define TOY(name)                 \
    void name(struct toy params); \
    static void run_##name(const void *params) { name(*(const struct toy *)params); }
TOYS_RIGHT(TOY)
TOYS_WRONG(TOY)
#undef TOY

enum { IN = 1024, OUT = 1024 };

static _Alignas(SIMT_LINE) float in[IN], out[OUT];
static struct simt *engine;
static struct simt_report report;

static int open_engine(int n_workers, unsigned seed, bool counts_lines) {
    const struct simt_options options = {
        .n_workers = n_workers, .seed = seed, .counts_lines = counts_lines};
    for (int i = 0; i < IN; i++) in[i] = (float)(i % 97) - 20;
    engine = simt_open(&options);
    return engine ? 0 : -1;
}
static int open_plain(void **state) { return (void)state, open_engine(1, 0, false); }
static int open_random(void **state) { return (void)state, open_engine(2, 7, false); }
static int open_counting(void **state) { return (void)state, open_engine(2, 7, true); }
static int close_engine(void **state) {
    (void)state;
    simt_close(engine);
    engine = NULL;
    return 0;
}

static bool run(void (*kernel)(const void *), const struct toy *toy, unsigned n_blocks,
                unsigned n_threads) {
    struct toy params = {.out = out, .in = in};
    if (toy) params = *toy;
    params.out = out;
    params.in = in;
    const struct simt_launch launch = {.kernel = kernel,
                                       .params = &params,
                                       .name = "toy",
                                       .grid = {n_blocks, 1, 1},
                                       .block = {n_threads, 1, 1},
                                       .shared_bytes = 64 * sizeof(float),
                                       .arch = 80};
    return simt_run(engine, &launch, &report);
}

static void runs(void (*kernel)(const void *), const struct toy *toy, unsigned n_blocks,
                 unsigned n_threads) {
    if (!run(kernel, toy, n_blocks, n_threads)) fail_msg("%s", report.text);
}

// ---- Right ones --------------------------------------------------------------------------------

static void test_indices(void **state) {
    (void)state;
    const struct toy params = {.out = out, .in = in};
    const struct simt_launch launch = {.kernel = run_indices,
                                       .params = &params,
                                       .name = "indices",
                                       .grid = {3, 2, 2},
                                       .block = {5, 3, 4}};
    memset(out, 0, sizeof out);
    assert_true(simt_run(engine, &launch, &report));
    for (int i = 0; i < 3 * 2 * 2 * 5 * 3 * 4; i++) assert_int_equal(out[i], i);
}

static void test_block_sum(void **state) {
    (void)state;
    runs(run_block_sum, NULL, 16, 64);
    for (int b = 0; b < 16; b++) {
        float sum = 0;
        for (int i = 0; i < 64; i++) sum += in[b * 64 + i];
        assert_int_equal(out[b], sum);
    }
}

static void test_shuffles(void **state) {
    (void)state;
    runs(run_shuffles, NULL, 1, 64);
    for (int i = 0; i < 64; i++) {
        int warp = i / 32 * 32, lane = i % 32;
        assert_int_equal(out[i], in[warp + 5]);
        assert_int_equal(out[64 + i], in[i ^ 3]);
        assert_int_equal(out[128 + i], in[lane < 28 ? i + 4 : i]);
        assert_int_equal(out[192 + i], in[warp + lane / 8 * 8 + (lane + 1) % 8]);
        assert_int_equal(out[256 + i], in[lane % 16 < 14 ? i + 2 : i]);
        assert_int_equal(out[320 + i], lane ^ 16);
    }
}

static void test_ballot(void **state) {
    (void)state;
    runs(run_ballot, NULL, 1, 64);
    for (int i = 0; i < 64; i++) {
        int n = 0;
        for (int k = 0; k < 32; k++) n += in[i / 32 * 32 + k] > 10;
        assert_int_equal(out[i], n);
    }
}

static void test_half_warps(void **state) {
    (void)state;
    runs(run_half_warps, NULL, 1, 64);
    for (int w = 0; w < 2; w++) {
        float sum = 0;
        for (int k = 0; k < 16; k++) sum += in[w * 32 + k];
        for (int k = 0; k < 16; k++) assert_int_equal(out[w * 32 + k], sum);
    }
}

static void test_atomics(void **state) {
    (void)state;
    int count;
    memset(out, 0, sizeof out);
    runs(run_atomics, NULL, 10, 64);
    memcpy(&count, out + 1, sizeof count);
    assert_int_equal(out[0], 640);
    assert_int_equal(count, 10 * 63 * 64 / 2);
}

static void test_arithmetic(void **state) {
    (void)state;
    runs(run_arithmetic, NULL, 1, 64);
    for (int i = 0; i < 64; i++) {
        int a = i * 0x01030507, b = 0x7f80ff01 - i, sum = -i;
        for (int k = 0; k < 32; k += 8) sum += (int8_t)(a >> k) * (int8_t)(b >> k);
        assert_int_equal(out[i], sum);
        assert_float_equal(out[64 + i], in[i] * 1.0009765625F, fabsf(in[i]) / 2048);
        assert_int_equal(out[128 + i], rintf(in[i] * 0.5F)); // ties to even
        assert_int_equal(out[192 + i], -in[i]);
    }
}

static void test_pipeline(void **state) {
    (void)state;
    const struct toy toy = {.n = 4};
    runs(run_pipeline, &toy, 1, 64);
    for (int i = 0; i < 64; i++) {
        float sum = 0;
        for (int k = 0; k < 16; k++) sum += in[k / 4 * 256 + 4 * (63 - i) + k % 4];
        assert_int_equal(out[i], sum);
    }
}

static void test_tiles(void **state) {
    (void)state;
    _Alignas(16) uint16_t rows[32][8];
    for (int i = 0; i < 256; i++) rows[i / 8][i % 8] = (uint16_t)(i * 251);
    const struct toy toy = {.a = rows};
    runs(run_tiles, &toy, 1, 32);
    for (int k = 0; k < 6; k++)
        for (int i = 0; i < 32; i++)
            assert_memory_equal(&out[k * 32 + i], &rows[k % 4 * 8 + i / 4][i % 4 * 2], 4);
}

// ---- Matrix instructions against three loops ---------------------------------------------------

// Whole numbers that a half holds.
static uint16_t half_of(int v) {
    static const uint16_t HALVES[] = {0xc200, 0xc000, 0xbc00, 0x0000, 0x3c00, 0x4000, 0x4200};
    return HALVES[v + 3];
}

static void check_product(void (*kernel)(const void *), int n_rows, int depth, bool bytes) {
    int a[16][32], b[8][32];
    _Alignas(16) uint16_t half_a[16 * 32], half_b[8 * 32];
    _Alignas(16) int8_t byte_a[16 * 32], byte_b[8 * 32];
    for (int k = 0; k < depth; k++) {
        for (int r = 0; r < n_rows; r++)
            a[r][k] = bytes ? (r * 37 + k * 11) % 255 - 127 : (r * 5 + k * 3) % 7 - 3;
        for (int c = 0; c < 8; c++)
            b[c][k] = bytes ? (c * 91 + k * 29) % 256 - 128 : (c * 2 + k * 5) % 7 - 3;
        for (int r = 0; r < n_rows; r++)
            if (bytes)
                byte_a[r * depth + k] = (int8_t)a[r][k];
            else
                half_a[r * depth + k] = half_of(a[r][k]);
        for (int c = 0; c < 8; c++)
            if (bytes)
                byte_b[c * depth + k] = (int8_t)b[c][k];
            else
                half_b[c * depth + k] = half_of(b[c][k]);
    }
    for (int i = 0; i < n_rows * 8; i++) out[i] = (float)(i - 50);
    const struct toy toy = {.a = bytes ? (const void *)byte_a : half_a,
                            .b = bytes ? (const void *)byte_b : half_b};
    runs(kernel, &toy, 1, 32);
    for (int r = 0; r < n_rows; r++)
        for (int c = 0; c < 8; c++) {
            int sum = r * 8 + c - 50;
            for (int k = 0; k < depth; k++) sum += a[r][k] * b[c][k];
            assert_int_equal(out[r * 8 + c], sum);
        }
}

static void test_products(void **state) {
    (void)state;
    check_product(run_mma_16_8_16, 16, 16, false);
    check_product(run_mma_16_8_8, 16, 8, false);
    check_product(run_mma_16_8_32, 16, 32, true);
    check_product(run_mma_8_8_16, 8, 16, true);
}

static uint64_t lines_of_loads(int n, unsigned n_blocks) {
    runs(run_loads, &(struct toy){.n = n}, n_blocks, 64);
    return report.n_lines;
}

static void test_no_lines(void **state) {
    (void)state;
    assert_int_equal(lines_of_loads(1, 1), 0);
}

static void test_lines(void **state) {
    (void)state;
    // 16 bytes of a lane: 4 lines of the first warp, 1 of the eight lanes of the second.
    assert_int_equal(lines_of_loads(1, 1), 2 * 1 + 5);
    assert_int_equal(lines_of_loads(2, 1), 2 * 2 + 5);
    assert_int_equal(lines_of_loads(32, 1), 2 * 32 + 5);
    assert_int_equal(lines_of_loads(32, 3), 3 * (2 * 32 + 5));
    assert_int_equal(lines_of_loads(0, 1), 2 * 1 + 5);
}

// ---- Wrong ones --------------------------------------------------------------------------------

// The report says what is wrong and where, and the engine goes on.
static void reported(void (*kernel)(const void *), const char *word, const char *other) {
    if (run(kernel, NULL, 3, 64)) fail_msg("\"%s\" was not reported", word);
    if (!strstr(report.text, word) || !strstr(report.text, other))
        fail_msg("wanted \"%s\" and \"%s\" in: %s", word, other, report.text);
    runs(run_block_sum, NULL, 4, 64);
}

static void test_barriers(void **state) {
    (void)state;
    reported(run_divergent_barrier, "divergent barrier", "toys.cu:");
    reported(run_early_exit, "barrier", "toys.cu:");
    reported(run_late_barrier, "barrier", "toys.cu:");
}

static void test_exchanges(void **state) {
    (void)state;
    reported(run_half_a_warp, "deadlock", "wait in a warp exchange at");
    reported(run_absent_lane, "reads lane 20 outside its mask 0000ffff", "toys.cu:");
    reported(run_foreign_mask, "is not in its own mask", "toys.cu:");
    reported(run_ended_lanes, "lanes", "toys.cu:");
    reported(run_divergent_shuffle, "divergent warp exchange", "toys.cu:");
}

static void test_asynchronous_copies(void **state) {
    (void)state;
    reported(run_forgotten_copy, "1 asynchronous copies not waited for", "block (");
    reported(run_crooked_copy, "no multiple of 16", "toys.cu:");
    reported(run_too_many_copies, "more than 64 copies in flight", "toys.cu:");
    reported(run_crooked_tile, "not aligned to 16", "toys.cu:");
}

static void test_shared_memory(void **state) {
    (void)state;
    // Under ASan the overrun ends the program, as it should.
    if (!WATCHED) reported(run_shared_overrun, "byte 256 of 256 bytes of shared memory", "block (");
    runs(run_unset_shared, NULL, 1, 64);
    for (int i = 0; i < 64; i++) assert_int_equal(isnan(out[i]) != 0, i == 7);
    runs(run_early_read, NULL, 1, 64);
    for (int i = 0; i < 64; i++) assert_true(isnan(out[i]));
}

static void test_sizes(void **state) {
    (void)state;
    assert_false(run(run_block_sum, NULL, 1, SIMT_THREADS_MAX + 1));
    assert_non_null(strstr(report.text, "1025 threads"));
    assert_false(run(run_block_sum, NULL, 1, 0));
    runs(run_block_sum, NULL, 0, 64); // no blocks at all
    runs(run_atomics, NULL, 1, SIMT_THREADS_MAX);
}

#define BOTH_WAYS(test)                                                 \
    {#test, test, open_plain, close_engine, NULL}, {                    \
#test "_in_random_order", test, open_random, close_engine, NULL \
    }

int main(void) {
    const struct CMUnitTest tests[] = {
        BOTH_WAYS(test_indices),
        BOTH_WAYS(test_block_sum),
        BOTH_WAYS(test_shuffles),
        BOTH_WAYS(test_ballot),
        BOTH_WAYS(test_half_warps),
        BOTH_WAYS(test_atomics),
        BOTH_WAYS(test_arithmetic),
        BOTH_WAYS(test_pipeline),
        BOTH_WAYS(test_tiles),
        BOTH_WAYS(test_products),
        BOTH_WAYS(test_barriers),
        BOTH_WAYS(test_exchanges),
        BOTH_WAYS(test_asynchronous_copies),
        BOTH_WAYS(test_shared_memory),
        BOTH_WAYS(test_sizes),
        cmocka_unit_test_setup_teardown(test_lines, open_counting, close_engine),
        BOTH_WAYS(test_no_lines),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

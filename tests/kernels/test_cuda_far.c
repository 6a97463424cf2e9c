/* test_cuda_far.c: the CUDA kernels reach operands more than 4 GiB behind the start of an array,
 * and more than 2^31 elements, on the emulated driver. Each op computes twice, with what it reads
 * or writes at the start of a large buffer and far behind it, and both results must be the same
 * bytes. The emulator leaves the buffer's untouched pages to the system, so none of it takes
 * memory. Also tests attention over a long context against sums in double. */
#include "base/mem.h"
#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/params.h"
#include "kernels/op_cost.h"
#include "tests/lib/find_emulator.h"
#include "tests/lib/invent.h"
#include "tests/lib/open_cuda.h"
#include "tests/lib/open_device.h"
#include "tests/lib/slow.h"

#include <assert.h>
#include <limits.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define GB (1LL << 30)

// The buffer: arrays that are read begin at 0, those that are written at OUT, the rest is small.
#define OUT       (10 * GB)
#define SMALL     (20 * GB)
#define ALL_BYTES (SMALL + (128 << 20))
enum { N_ROWS = 70, N_COLS = 768, MORE_COLS = 1024, N_TOKENS_MAX = 40 };

// A far place: 5 GiB behind the start, more than 2^31 floats for arrays of floats.
#define FAR_BYTES  (5 * GB)
#define FAR_FLOATS (9 * GB / 4)

// Slow programs try the first alone, which has the others' kernels too.
static const char *const CAPABILITIES[] = {"8.6", "7.5", "6.1"};
enum { N_CAPABILITIES = SLOW ? 1 : 3 };

struct bench {
    struct device *device;
    struct stream *stream;
    struct buffer memory;
    char *small; // the next free byte of the small part
    struct dice dice;
};

static struct bench open_bench(const char *capability) {
    struct bench b = {.dice = {7}};
    setenv("EMU_CUDA_VRAM", "32G", 1);
    setenv("EMU_CUDA_SPARSE", "1", 1);
    b.device = open_cuda(capability);
    b.stream = new_stream(b.device, STREAM_COMPUTE);
    b.memory = new_buffer(b.device, ALL_BYTES, PURPOSE_SCRATCH);
    b.small = (char *)b.memory.base + SMALL;
    return b;
}

static void close_bench(struct bench *b) {
    stream_free(b->stream);
    buffer_free(&b->memory);
    device_close(b->device);
}

// The emulator's addresses are the host's.
static void *at(const struct bench *b, int64_t offset) { return (char *)b->memory.base + offset; }

static void *take(struct bench *b, int64_t size_bytes) {
    char *taken = b->small;
    b->small += (size_bytes + 255) / 256 * 256;
    assert_true(b->small <= (char *)b->memory.base + ALL_BYTES);
    return taken;
}

static float *take_floats(struct bench *b, int64_t count) {
    float *values = take(b, count * 4);
    for (int64_t i = 0; i < count; i++)
        values[i] = (float)dice_int(&b->dice, -10000, 10000) / 10000;
    return values;
}

static void *take_scratch(struct bench *b) {
    return take(b, (int64_t)matmul_scratch_bytes(WEIGHT_BF16, MORE_COLS, N_TOKENS_MAX, 1));
}

// Bytes that are small positive numbers in every weight type.
static void fill_weights(struct bench *b, uint8_t *bytes, int64_t count) {
    for (int64_t i = 0; i < count; i++) bytes[i] = (uint8_t)dice_int(&b->dice, 1, 47);
}

static void finish(struct bench *b) {
    struct err e = {0};
    assert_int_equal(stream_wait(b->stream, &e), OK);
}

// ---- Weights -----------------------------------------------------------------------------------

static int64_t row_bytes(int type, int32_t n_cols) {
    return (int64_t)dtype_bytes(weight_dtype((enum weight_type)type), (uint64_t)n_cols);
}

// Multiplies rows from row_first on and copies the results to out.
static void multiply(struct bench *b, int type, struct matmul_args a, float *out) {
    float *far_out = at(b, OUT);
    a.out = far_out, a.weight = at(b, 0);
    a.out_stride = a.row_first + a.row_count;
    b->device->ops->matmul(b->stream, (enum weight_type)type, &a);
    finish(b);
    for (int t = 0; t < a.n_tokens; t++)
        memcpy(out + t * N_ROWS, far_out + (int64_t)t * a.out_stride + a.row_first, N_ROWS * 4);
}

static void check_rows(struct bench *b, int type, struct matmul_args a, float *near, float *far) {
    const int64_t bytes = row_bytes(type, a.n_cols);
    const int32_t first = (int32_t)(FAR_BYTES / bytes);
    fill_weights(b, at(b, 0), N_ROWS * bytes);
    memcpy(at(b, first * bytes), at(b, 0), (size_t)(N_ROWS * bytes));
    multiply(b, type, a, near);
    a.row_first = first;
    multiply(b, type, a, far);
    assert_memory_equal(near, far, (size_t)(a.n_tokens * N_ROWS) * 4);
}

static void test_rows(void **state) {
    // By mat-vec, in narrow tiles, in full ones, and in narrow ones whose columns are split.
    static const int32_t TOKENS_COLS[][2] = {
        {1, N_COLS}, {MATVEC_TOKENS, N_COLS}, {20, N_COLS}, {40, N_COLS}, {20, MORE_COLS}};
    (void)state;
    for (int c = 0; c < N_CAPABILITIES; c++) {
        struct bench b = open_bench(CAPABILITIES[c]);
        const int64_t out_bytes = (int64_t)N_TOKENS_MAX * N_ROWS * 4;
        float *near = take(&b, out_bytes), *far = take(&b, out_bytes);
        struct matmul_args a = {.x = take_floats(&b, N_TOKENS_MAX * MORE_COLS),
                                .scratch = take_scratch(&b),
                                .row_count = N_ROWS};
        for (int type = 0; type < WEIGHT_COUNT; type++)
            for (size_t i = 0; i < sizeof TOKENS_COLS / sizeof *TOKENS_COLS; i++) {
                a.n_tokens = TOKENS_COLS[i][0], a.n_cols = TOKENS_COLS[i][1];
                check_rows(&b, type, a, near, far);
            }
        close_bench(&b);
    }
}

// Two experts, of which each token goes to both: their weights lie in two slots.
static void multiply_experts(struct bench *b, int type, struct matmul_experts_args a,
                             int32_t *slots, int32_t first_slot) {
    slots[0] = first_slot + 1, slots[1] = first_slot;
    a.slots = slots;
    b->device->ops->matmul_experts(b->stream, (enum weight_type)type, &a);
    finish(b);
}

static void test_slots(void **state) {
    static const int32_t COUNTS[] = {1, MATVEC_TOKENS, N_TOKENS_MAX};
    (void)state;
    for (int c = 0; c < N_CAPABILITIES; c++) {
        struct bench b = open_bench(CAPABILITIES[c]);
        const size_t out_bytes = (size_t)2 * N_TOKENS_MAX * N_ROWS * 4;
        void *near = take(&b, (int64_t)out_bytes), *far = take(&b, (int64_t)out_bytes);
        int32_t *slots = take(&b, 8);
        struct matmul_experts_args a = {.x = take_floats(&b, N_TOKENS_MAX * N_COLS),
                                        .weight = at(&b, 0),
                                        .scratch = take_scratch(&b),
                                        .n_used = 2,
                                        .n_experts = 2,
                                        .n_cols = N_COLS,
                                        .n_rows = N_ROWS,
                                        .row_count = N_ROWS,
                                        .out_stride = N_ROWS};
        for (int type = 0; type < WEIGHT_COUNT; type++) {
            a.slot_bytes = (uint64_t)(N_ROWS * row_bytes(type, N_COLS) + 15) / 16 * 16;
            const int32_t slot = (int32_t)(FAR_BYTES / (int64_t)a.slot_bytes);
            fill_weights(&b, at(&b, 0), 2 * (int64_t)a.slot_bytes);
            memcpy(at(&b, slot * (int64_t)a.slot_bytes), at(&b, 0), 2 * a.slot_bytes);
            for (size_t i = 0; i < sizeof COUNTS / sizeof *COUNTS; i++) {
                a.n_tokens = COUNTS[i];
                a.out = near;
                multiply_experts(&b, type, a, slots, 0);
                a.out = far;
                multiply_experts(&b, type, a, slots, slot);
                assert_memory_equal(near, far, (size_t)(2 * a.n_tokens * N_ROWS) * 4);
            }
        }
        close_bench(&b);
    }
}

// Rows of the table of embeddings, and of activations.
static void test_tables(void **state) {
    (void)state;
    struct bench b = open_bench("8.6");
    int32_t *numbers = take(&b, 8);
    float *out = take(&b, 2 * N_COLS * 4);
    for (int type = 0; type < WEIGHT_COUNT; type++) {
        const int64_t bytes = row_bytes(type, N_COLS);
        const struct embed_args a = {.out = out,
                                     .table = at(&b, 0),
                                     .tokens = numbers,
                                     .n_tokens = 2,
                                     .n_cols = N_COLS,
                                     .n_rows = INT32_MAX,
                                     .scale = 1};
        numbers[0] = 1, numbers[1] = (int32_t)(FAR_BYTES / bytes);
        fill_weights(&b, at(&b, bytes), bytes);
        memcpy(at(&b, numbers[1] * bytes), at(&b, bytes), (size_t)bytes);
        b.device->ops->embed(b.stream, (enum weight_type)type, &a);
        finish(&b);
        assert_memory_equal(out, out + N_COLS, N_COLS * 4);
    }
    const struct gather_rows_args a = {.out = out,
                                       .x = at(&b, 0),
                                       .rows = numbers,
                                       .n_rows = 2,
                                       .n_cols = N_COLS,
                                       .n_x_rows = INT32_MAX};
    numbers[1] = (int32_t)(FAR_FLOATS / N_COLS);
    memcpy(at(&b, N_COLS * 4), take_floats(&b, N_COLS), N_COLS * 4);
    memcpy(at(&b, FAR_FLOATS * 4), at(&b, N_COLS * 4), N_COLS * 4);
    b.device->ops->gather_rows(b.stream, &a);
    finish(&b);
    assert_memory_equal(out, out + N_COLS, N_COLS * 4);
    close_bench(&b);
}

// ---- The KV cache ------------------------------------------------------------------------------

enum { N_HEADS = 4, N_STORED = 2 * KV_PAGE };
static const enum dtype CACHE_TYPES[] = {DTYPE_F32, DTYPE_F16, DTYPE_Q8_0, DTYPE_Q4_0};

struct numbers { // of the batch
    int32_t positions[N_STORED], sequences[N_STORED], cache_rows[N_STORED], pages[2];
};

// Stores keys and values of one KV head into two pages, k cache at 0 and v cache at OUT, and
// attends to them with the last tokens.
static void store_and_attend(struct bench *b, struct attention_args a, const float *values,
                             struct numbers *numbers, int32_t page) {
    const struct kv_store_args store = {.k_cache = at(b, 0),
                                        .v_cache = at(b, OUT),
                                        .k = values,
                                        .v = values + N_STORED,
                                        .cache_rows = numbers->cache_rows,
                                        .n_tokens = N_STORED,
                                        .n_cols = a.head_dim,
                                        .k_type = a.k_type,
                                        .v_type = a.v_type};
    *numbers = (struct numbers){.pages = {page, page + 1}};
    for (int i = 0; i < N_STORED; i++) numbers->cache_rows[i] = page * KV_PAGE + i;
    for (int t = 0; t < a.n_tokens; t++) numbers->positions[t] = N_STORED - a.n_tokens + t;
    a.k_cache = store.k_cache, a.v_cache = store.v_cache;
    a.positions = numbers->positions, a.sequences = numbers->sequences, a.pages = numbers->pages;
    b->device->ops->kv_store(b->stream, &store);
    b->device->ops->attention(b->stream, &a);
    finish(b);
}

// Compares two pages of both caches, and what attention made of them, at the start and far behind.
static void check_pages(struct bench *b, struct attention_args a, const float *values,
                        struct numbers *numbers, float *out) {
    const int64_t elements = (int64_t)KV_PAGE * a.head_dim;
    const int64_t page_bytes = (int64_t)dtype_bytes(a.k_type, (uint64_t)elements);
    const int64_t by_elements = FAR_FLOATS / elements, by_bytes = FAR_BYTES / page_bytes;
    const int64_t page = by_elements > by_bytes ? by_elements : by_bytes;
    const size_t out_floats = (size_t)a.n_tokens * N_HEADS * (size_t)a.head_dim;
    a.out = out;
    store_and_attend(b, a, values, numbers, 0);
    a.out = out + out_floats;
    store_and_attend(b, a, values, numbers, (int32_t)page);
    assert_memory_equal(at(b, 0), at(b, page * page_bytes), 2 * (size_t)page_bytes);
    assert_memory_equal(at(b, OUT), at(b, OUT + page * page_bytes), 2 * (size_t)page_bytes);
    assert_memory_equal(out, out + out_floats, out_floats * sizeof *out);
    memset(at(b, page * page_bytes), 0, 2 * (size_t)page_bytes);
    memset(at(b, OUT + page * page_bytes), 0, 2 * (size_t)page_bytes);
}

static void test_pages(void **state) {
    static const int32_t HEAD_DIMS[] = {64, 128, 256};
    (void)state;
    for (int c = 0; c < N_CAPABILITIES; c++) {
        struct bench b = open_bench(CAPABILITIES[c]);
        struct numbers *numbers = take(&b, sizeof *numbers);
        const float *values = take_floats(&b, (N_STORED + 1) * 256);
        float *out = take(&b, 2 * 20 * N_HEADS * 256 * 4);
        struct attention_args a = {
            .q = values, .n_heads = N_HEADS, .n_kv_heads = 1, .max_pages = 2};
        for (size_t i = 0; i < sizeof HEAD_DIMS / sizeof *HEAD_DIMS; i++)
            for (size_t k = 0; k < sizeof CACHE_TYPES / sizeof *CACHE_TYPES; k++) {
                a.head_dim = HEAD_DIMS[i], a.k_type = a.v_type = CACHE_TYPES[k];
                a.scale = 1 / sqrtf((float)a.head_dim);
                a.n_tokens = 1;
                check_pages(&b, a, values, numbers, out);
                a.n_tokens = 20; // by matrix instructions, if there are any
                check_pages(&b, a, values, numbers, out);
            }
        close_bench(&b);
    }
}

// ---- A long context ----------------------------------------------------------------------------

enum {
    LONG_KEYS = 40000,
    LONG_PAGES = LONG_KEYS / KV_PAGE,
    LONG_DIM = 64,
    LONG_TOKENS = MATVEC_TOKENS + 1
};
static_assert(LONG_KEYS % KV_PAGE == 0, "whole pages");

// Adds the squares of the errors, and of the right values, of head h of token t.
static void add_errors(const struct attention_args *a, const float *keys, const float *values,
                       int t, int h, double sums[2]) {
    const float *q = a->q + (t * N_HEADS + h) * LONG_DIM;
    const float *out = a->out + (t * N_HEADS + h) * LONG_DIM;
    double expected[LONG_DIM] = {0}, sum = 0;
    for (int key = 0; key <= a->positions[t]; key++) {
        double score = 0;
        for (int i = 0; i < LONG_DIM; i++) score += (double)q[i] * (double)keys[key * LONG_DIM + i];
        const double weight = exp(score * (double)a->scale);
        for (int i = 0; i < LONG_DIM; i++)
            expected[i] += weight * (double)values[key * LONG_DIM + i];
        sum += weight;
    }
    for (int i = 0; i < LONG_DIM; i++) {
        const double right = expected[i] / sum, off = (double)out[i] - right;
        sums[0] += off * off, sums[1] += right * right;
    }
}

struct long_numbers {
    int32_t positions[LONG_TOKENS], sequences[LONG_TOKENS], pages[LONG_PAGES], rows[LONG_KEYS];
};

// The last tokens of a prompt attend to all before them. The pages are in no order.
static void check_long(struct bench *b, struct attention_args a, const float *keys,
                       const float *values) {
    struct long_numbers *numbers = take(b, sizeof *numbers);
    memset(numbers, 0, sizeof *numbers);
    for (int i = 0; i < LONG_PAGES; i++) numbers->pages[i] = i * 7 % LONG_PAGES;
    for (int i = 0; i < LONG_KEYS; i++)
        numbers->rows[i] = numbers->pages[i / KV_PAGE] * KV_PAGE + i % KV_PAGE;
    for (int t = 0; t < a.n_tokens; t++) numbers->positions[t] = LONG_KEYS - a.n_tokens + t;
    const struct kv_store_args store = {.k_cache = at(b, 0),
                                        .v_cache = at(b, OUT),
                                        .k = keys,
                                        .v = values,
                                        .cache_rows = numbers->rows,
                                        .n_tokens = LONG_KEYS,
                                        .n_cols = LONG_DIM,
                                        .k_type = a.k_type,
                                        .v_type = a.v_type};
    b->device->ops->kv_store(b->stream, &store);
    a.k_cache = store.k_cache, a.v_cache = store.v_cache;
    a.positions = numbers->positions, a.sequences = numbers->sequences, a.pages = numbers->pages;
    b->device->ops->attention(b->stream, &a);
    finish(b);
    double sums[2] = {0};
    for (int h = 0; h < N_HEADS; h++) add_errors(&a, keys, values, a.n_tokens - 1, h, sums);
    assert_true(sums[0] <= 1e-5 * sums[1]); // a page of 625 is 1.6e-3
}

static void test_long_context(void **state) {
    (void)state;
    for (int c = 0; c < N_CAPABILITIES; c++) {
        struct bench b = open_bench(CAPABILITIES[c]);
        const float *keys = take_floats(&b, LONG_KEYS * LONG_DIM);
        const float *values = take_floats(&b, LONG_KEYS * LONG_DIM);
        const int64_t n_out = LONG_TOKENS * N_HEADS * LONG_DIM;
        struct attention_args a = {.out = take(&b, n_out * 4),
                                   .q = take_floats(&b, n_out),
                                   .n_heads = N_HEADS,
                                   .n_kv_heads = 1,
                                   .head_dim = LONG_DIM,
                                   .max_pages = LONG_PAGES,
                                   .scale = 0.125F};
        for (int type = 0; type < 2; type++) {
            a.k_type = a.v_type = type ? DTYPE_F16 : DTYPE_F32;
            a.n_tokens = 1;
            check_long(&b, a, keys, values);
            a.n_tokens = LONG_TOKENS; // by matrix instructions, if there are any
            check_long(&b, a, keys, values);
        }
        close_bench(&b);
    }
}

int main(void) {
    char path[PATH_MAX];
    if (!find_emulator(path, sizeof path)) {
        puts("no emulator in this build");
        return 0;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows),         cmocka_unit_test(test_slots),
        cmocka_unit_test(test_tables),       cmocka_unit_test(test_pages),
        cmocka_unit_test(test_long_context),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* test_metal_matmul.c: the Metal kernels that read weights, for every weight type, against
 * kernels/cpu/ref.c, with the bounds of check_ops.
 *
 * The kernels run on the host without a device, so that those of devices without simdgroup matrices
 * are tested like the others.
 */
#include "base/mem.h"
#include "kernels/cpu/cpu.h"
#include "kernels/metal/params.h"
#include "tests/lib/block_scales.h"
#include "tests/lib/slow.h"
#include "tests/metal/run_kernel.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { TYPES_STEP = SLOW ? 3 : 1 }; // each shape takes every so many types
enum { EMPTY = 0xff, EDGE = 64 };   // the bytes of an output, and how many of them lie behind it

static struct simt *engine;
static struct cpu_table definitions;
static const struct lane LANE = {.count = 1};
static uint64_t seed;

static int open_engine(void **state) {
    (void)state;
    const struct simt_options options = {.n_workers = 2};
    engine = simt_open(&options);
    cpu_table_ref(&definitions);
    return engine ? 0 : -1;
}
static int close_engine(void **state) {
    (void)state;
    simt_close(engine);
    engine = NULL;
    return 0;
}

// ---- Numbers -----------------------------------------------------------------------------------

static uint32_t draw(uint32_t n) {
    seed = seed * 6364136223846793005U + 1442695040888963407U;
    return (uint32_t)((seed >> 33) % n);
}
static float draw_float(void) { return (float)draw(1U << 24) * 0x1p-23F - 1; }

static void *room(uint64_t size_bytes) {
    void *p = mem_alloc(1, size_bytes + EDGE);
    assert_non_null(p);
    memset(p, EMPTY, size_bytes + EDGE);
    return p;
}

static float *draw_floats(int64_t n) {
    float *x = room((uint64_t)n * sizeof *x);
    for (int64_t i = 0; i < n; i++) x[i] = draw_float();
    return x;
}

static void draw_plain(enum weight_type type, uint8_t *out, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        float value = draw_float();
        uint32_t bits;
        memcpy(&bits, &value, sizeof bits);
        uint16_t two = type == WEIGHT_F16 ? float_to_half(value) : (uint16_t)(bits >> 16);
        if (type == WEIGHT_F32)
            memcpy(out + 4 * i, &value, sizeof value);
        else
            memcpy(out + 2 * i, &two, sizeof two);
    }
}

static uint8_t *draw_weights(enum weight_type type, int64_t n) {
    const struct dtype_info *info = dtype_find((uint32_t)weight_dtype(type));
    const struct block_scales scales = block_scales_of(type);
    uint8_t *out = room(dtype_bytes(weight_dtype(type), (uint64_t)n));
    if (info->block_elements == 1) {
        draw_plain(type, out, n);
        return out;
    }
    for (int64_t b = 0; b < n / info->block_elements; b++) {
        uint8_t *block = out + b * info->block_bytes;
        const float values[2] = {scales.factor[0] * draw_float(), scales.factor[1] * draw_float()};
        for (uint32_t i = 0; i < info->block_bytes; i++) block[i] = (uint8_t)draw(256);
        block_scales_put(&scales, values, block);
    }
    return out;
}

// The columns of the shapes: a multiple of what blocks need, and for plain types an odd number.
static int32_t columns_of(enum weight_type type, int32_t blocks) {
    uint32_t elements = dtype_find((uint32_t)weight_dtype(type))->block_elements;
    if (elements == 1) return 32 * blocks + (blocks & 1 ? 5 : 0);
    return (int32_t)(elements == 32 ? 32U * (uint32_t)blocks : 256U * ((uint32_t)blocks / 4 + 1));
}

// ---- Comparisons -------------------------------------------------------------------------------

// Outputs that the definition left alone are untouched; the others have together at most limit of
// the reference's energy as error, and so has the memory behind them.
static void compare(const char *name, const float *got, const float *wanted, int64_t n,
                    double limit) {
    double error = 0, energy = 0;
    int64_t count = 0;
    for (int64_t i = 0; i < n; i++) {
        if (!memcmp(&wanted[i], "\xff\xff\xff\xff", 4)) {
            if (memcmp(&got[i], "\xff\xff\xff\xff", 4)) fail_msg("%s writes output %ld", name, i);
            continue;
        }
        double off = (double)got[i] - (double)wanted[i];
        if (!(fabs(off) < 1e30)) fail_msg("%s: output %ld is %g", name, i, (double)got[i]);
        error += off * off;
        energy += (double)wanted[i] * (double)wanted[i];
        count++;
    }
    assert_true(count > 0);
    if (!(error <= limit * energy)) fail_msg("%s: error %.3g", name, error / energy);
    for (int i = 0; i < EDGE; i++)
        if (((const uint8_t *)(got + n))[i] != EMPTY) fail_msg("%s writes past its end", name);
}

static void run(const char *kernel, const char *type, struct metal_grid grid, const void *params,
                uint32_t n_pointers) {
    struct simt_report report;
    char name[64];
    snprintf(name, sizeof name, "%s_%s", kernel, type);
    if (!run_kernel(engine, name, grid, params, n_pointers, &report)) fail_msg("%s", report.text);
}

static const char *const NAMES[] = {
#define WEIGHT(NAME, name, ...) #name,
#include "kernels/weights.def"
#undef WEIGHT
};

static uint32_t parts(int64_t n, int64_t size) { return (uint32_t)((n + size - 1) / size); }
static double limit_of(enum weight_type type) {
    return weight_kind(type) == KIND_BYTES ? 5e-4 : 1e-6;
}

// ---- embed -------------------------------------------------------------------------------------

static void check_embed(enum weight_type type) {
    enum { ROWS = 7, TOKENS = 5 };
    static const int32_t TOKEN[TOKENS] = {6, 0, 3, 3, 1};
    struct embed_args a = {.tokens = TOKEN,
                           .n_tokens = TOKENS,
                           .n_cols = columns_of(type, 35),
                           .n_rows = ROWS,
                           .scale = 1.5F};
    const int64_t n = (int64_t)TOKENS * a.n_cols;
    uint8_t *table = draw_weights(type, (int64_t)ROWS * a.n_cols);
    float *wanted = room((uint64_t)n * sizeof *wanted), *got = room((uint64_t)n * sizeof *got);
    a.table = table, a.out = wanted;
    definitions.embed[type](&LANE, &a);
    a.out = got;
    run("embed", NAMES[type],
        (struct metal_grid){TOKENS, parts(a.n_cols, EMBED_COLS), 1, EMBED_THREADS, 0}, &a, 3);
    compare("embed", got, wanted, n, 1e-12);
    mem_free(table), mem_free(wanted), mem_free(got);
}

static void test_embeds_every_type(void **state) {
    (void)state;
    for (int type = 0; type < WEIGHT_COUNT; type++) check_embed((enum weight_type)type);
}

// ---- matmul ------------------------------------------------------------------------------------

struct matmul_shape {
    int32_t n_tokens, blocks, n_rows, row_first, row_count;
    bool bias, residual;
};

static struct metal_grid matmul_grid(const char *kernel, const struct matmul_args *a,
                                     enum weight_kind kind) {
    const int32_t turns = MATVEC_THREADS / 32;
    if (!strcmp(kernel, "matmul_vec"))
        return (struct metal_grid){parts(a->row_count, turns * MATVEC_ROWS), 1, 1, MATVEC_THREADS,
                                   0};
    if (!strcmp(kernel, "matmul_few"))
        return (struct metal_grid){parts(a->row_count, turns * MATVEC_FEW_ROWS), 1, 1,
                                   MATVEC_THREADS, 0};
    return (struct metal_grid){parts(a->n_tokens, GEMM_TOKENS), parts(a->row_count, GEMM_ROWS), 1,
                               GEMM_THREADS, gemm_memory_bytes(kind)};
}

static void check_matmul(const char *kernel, enum weight_type type, const struct matmul_shape *s) {
    struct matmul_args a = {.n_tokens = s->n_tokens,
                            .n_cols = columns_of(type, s->blocks),
                            .row_first = s->row_first,
                            .row_count = s->row_count,
                            .out_stride = s->n_rows + 3};
    const int64_t n = (int64_t)a.n_tokens * a.out_stride;
    uint8_t *weight = draw_weights(type, (int64_t)s->n_rows * a.n_cols);
    float *x = draw_floats((int64_t)a.n_tokens * a.n_cols), *bias = draw_floats(s->n_rows);
    float *residual = draw_floats(n);
    float *wanted = room((uint64_t)n * sizeof *wanted), *got = room((uint64_t)n * sizeof *got);
    a.weight = weight, a.x = x, a.out = wanted;
    if (s->bias) a.bias = bias;
    if (s->residual) a.residual = residual;
    definitions.matmul[type](&LANE, &a);
    a.out = got;
    run(kernel, NAMES[type], matmul_grid(kernel, &a, weight_kind(type)), &a, 6);
    compare(kernel, got, wanted, n, limit_of(type));
    mem_free(weight), mem_free(x), mem_free(bias), mem_free(residual);
    mem_free(wanted), mem_free(got);
}

static void check_matmuls(const char *kernel, const struct matmul_shape *shapes, size_t n_shapes) {
    for (size_t i = 0; i < n_shapes; i++)
        for (int type = (int)i % TYPES_STEP; type < WEIGHT_COUNT; type += TYPES_STEP) {
            seed = (uint64_t)type * 100 + i;
            check_matmul(kernel, (enum weight_type)type, &shapes[i]);
        }
}

static void test_multiplies_one_token(void **state) {
    (void)state;
    static const struct matmul_shape SHAPES[] = {{1, 9, 21, 0, 21, true, true},
                                                 {1, 4, 13, 3, 7, false, false},
                                                 {1, 1, 2, 1, 1, true, false}};
    check_matmuls("matmul_vec", SHAPES, sizeof SHAPES / sizeof *SHAPES);
}

static void test_multiplies_a_few_tokens(void **state) {
    (void)state;
    static const struct matmul_shape SHAPES[] = {{8, 9, 11, 0, 11, true, true},
                                                 {5, 4, 13, 3, 7, false, false},
                                                 {2, 1, 3, 1, 1, false, true}};
    check_matmuls("matmul_few", SHAPES, sizeof SHAPES / sizeof *SHAPES);
}

static const struct matmul_shape TILES[] = {{33, 5, 70, 0, 70, true, true},
                                            {9, 4, 200, 67, 65, false, false},
                                            {32, 1, 64, 0, 64, false, true}};
static void test_multiplies_tiles_by_simdgroup_matrices(void **state) {
    (void)state;
    check_matmuls("gemm", TILES, sizeof TILES / sizeof *TILES);
}
static void test_multiplies_tiles_by_vectors(void **state) {
    (void)state;
    check_matmuls("tiles", TILES, sizeof TILES / sizeof *TILES);
}

// ---- Experts -----------------------------------------------------------------------------------

enum { EXPERTS = 5 };

struct experts_shape {
    int32_t n_tokens, n_used, blocks, n_rows, row_first, row_count;
    bool bias, x_per_pair, is_routed; // else every token goes to every expert
};

// Spreads the pairs at random, and expert 2 gets none; expert 4 is on another device and experts 0
// and 3 share a slot.
static void draw_lists(int32_t n_pairs, int32_t starts[EXPERTS + 1], int32_t *order) {
    int32_t *expert = room((uint64_t)n_pairs * sizeof *expert), place = 0;
    for (int32_t i = 0; i < n_pairs; i++) {
        expert[i] = (int32_t)draw(EXPERTS - 1);
        if (expert[i] == 2) expert[i] = 4;
    }
    for (int32_t e = 0; e < EXPERTS; e++) {
        starts[e] = place;
        for (int32_t i = 0; i < n_pairs; i++)
            if (expert[i] == e) order[place++] = i;
    }
    starts[EXPERTS] = place;
    mem_free(expert);
}

static struct metal_grid experts_grid(const char *kernel, const struct matmul_experts_args *a,
                                      enum weight_kind kind) {
    const int32_t n_pairs = a->n_tokens * a->n_used;
    if (!strcmp(kernel, "experts_vec"))
        return (struct metal_grid){parts(a->row_count, MATVEC_THREADS / 32 * MATVEC_FEW_ROWS),
                                   (uint32_t)n_pairs, 1, MATVEC_THREADS, 0};
    return (struct metal_grid){expert_tiles(n_pairs, a->n_experts, GEMM_TOKENS),
                               parts(a->row_count, GEMM_ROWS), 1, GEMM_THREADS,
                               gemm_memory_bytes(kind)};
}

static void check_experts(const char *kernel, enum weight_type type,
                          const struct experts_shape *s) {
    static const int32_t SLOTS[EXPERTS] = {1, 0, 2, 1, -1};
    const int32_t n_used = s->is_routed ? s->n_used : EXPERTS;
    const int32_t n_pairs = s->n_tokens * n_used;
    struct matmul_experts_args a = {.n_tokens = s->n_tokens,
                                    .n_used = n_used,
                                    .n_experts = EXPERTS,
                                    .n_cols = columns_of(type, s->blocks),
                                    .n_rows = s->n_rows,
                                    .row_first = s->row_first,
                                    .row_count = s->row_count,
                                    .out_stride = s->n_rows + 1,
                                    .x_per_pair = s->x_per_pair};
    const uint64_t matrix =
        dtype_bytes(weight_dtype(type), (uint64_t)s->n_rows * (uint64_t)a.n_cols);
    a.slot_bytes = (matrix + 15) / 16 * 16;
    int32_t starts[EXPERTS + 1], *order = room((uint64_t)n_pairs * sizeof *order);
    uint8_t *weight = room(EXPERTS * a.slot_bytes);
    for (int e = 0; e < EXPERTS; e++) {
        uint8_t *one = draw_weights(type, (int64_t)s->n_rows * a.n_cols);
        memcpy(weight + (uint64_t)e * a.slot_bytes, one, matrix);
        mem_free(one);
    }
    draw_lists(n_pairs, starts, order);
    if (s->is_routed) a.slots = SLOTS, a.starts = starts, a.order = order;
    float *bias = draw_floats((int64_t)EXPERTS * s->n_rows);
    float *x = draw_floats((int64_t)(s->x_per_pair ? n_pairs : s->n_tokens) * a.n_cols);
    const int64_t n = (int64_t)n_pairs * a.out_stride;
    float *wanted = room((uint64_t)n * sizeof *wanted), *got = room((uint64_t)n * sizeof *got);
    a.weight = weight, a.x = x, a.out = wanted;
    if (s->bias) a.bias = bias;
    definitions.matmul_experts[type](&LANE, &a);
    a.out = got;
    run(kernel, NAMES[type], experts_grid(kernel, &a, weight_kind(type)), &a, 8);
    compare(kernel, got, wanted, n, limit_of(type));
    mem_free(order), mem_free(weight), mem_free(bias), mem_free(x);
    mem_free(wanted), mem_free(got);
}

static const struct experts_shape ROUTED[] = {{11, 2, 3, 9, 0, 9, true, false, true},
                                              {1, 3, 2, 7, 2, 4, false, true, true},
                                              {6, 0, 1, 5, 0, 5, true, true, false}};
static void check_all_experts(const char *kernel, const struct experts_shape *shapes, size_t n) {
    for (size_t i = 0; i < n; i++)
        for (int type = (int)i % TYPES_STEP; type < WEIGHT_COUNT; type += TYPES_STEP) {
            seed = (uint64_t)type * 100 + i + 50;
            check_experts(kernel, (enum weight_type)type, &shapes[i]);
        }
}

static void test_multiplies_experts(void **state) {
    (void)state;
    check_all_experts("experts_vec", ROUTED, sizeof ROUTED / sizeof *ROUTED);
}

static const struct experts_shape TILED[] = {{70, 2, 2, 67, 1, 66, true, false, true},
                                             {35, 0, 1, 5, 0, 5, false, true, false}};
static void test_multiplies_experts_by_simdgroup_matrices(void **state) {
    (void)state;
    check_all_experts("experts_gemm", TILED, sizeof TILED / sizeof *TILED);
}
static void test_multiplies_experts_by_vectors(void **state) {
    (void)state;
    check_all_experts("experts_tiles", TILED, sizeof TILED / sizeof *TILED);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_embeds_every_type),
        cmocka_unit_test(test_multiplies_one_token),
        cmocka_unit_test(test_multiplies_a_few_tokens),
        cmocka_unit_test(test_multiplies_tiles_by_simdgroup_matrices),
        cmocka_unit_test(test_multiplies_tiles_by_vectors),
        cmocka_unit_test(test_multiplies_experts),
        cmocka_unit_test(test_multiplies_experts_by_simdgroup_matrices),
        cmocka_unit_test(test_multiplies_experts_by_vectors),
    };
    return cmocka_run_group_tests_name("metal_matmul", tests, open_engine, close_engine);
}

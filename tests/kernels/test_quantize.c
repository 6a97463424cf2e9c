/* test_quantize.c: tests of kernels/cpu/quantize.h: the errors of every type beside those of
 * llama.cpp (tests/golden/make_quantize_golden.py), those of products, importance, blocks without a
 * scale. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/device/table.h"
#include "kernels/cpu/quantize.h"
#include "kernels/cpu/quantize_fit.h"
#include "kernels/op_cost.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { ROWS = 64, COLUMNS = 1024, ROW_BYTES = 2 * COLUMNS, COSINES = 4096 };

static uint64_t splitmix(uint64_t i) {
    uint64_t z = i * 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

// The rows of the golden errors.
static void make_row(int row, float out[COLUMNS]) {
    for (int i = 0; i < COLUMNS; i++) {
        const uint64_t z = splitmix((uint64_t)(row * COLUMNS + i) + 1);
        const int64_t total =
            (int64_t)((z & 0xffff) + (z >> 16 & 0xffff) + (z >> 32 & 0xffff) + (z >> 48)) -
            2 * 0xffff;
        out[i] = (float)total / 65536 * (i % 16 == 5 ? 4 : 1);
    }
}

static void make_importance(float out[COLUMNS]) {
    for (int i = 0; i < COLUMNS; i++) out[i] = (float)(1 + i * 7 % 13);
}

static enum dtype type_named(const char *name) {
    for (uint32_t t = 0; t < DTYPE_COUNT; t++)
        if (dtype_find(t) && dtype_find(t)->name && strcmp(dtype_find(t)->name, name) == 0)
            return (enum dtype)t;
    fail_msg("no type %s", name);
    return DTYPE_F32;
}

// Quantises x[n] and fills out with what the blocks mean.
static void round_trip(enum dtype type, const float *x, const float *importance, int n,
                       float *out) {
    uint8_t bytes[ROW_BYTES + 64];
    enum weight_type weight;
    const size_t used = dtype_bytes(type, (uint64_t)n);
    memset(bytes, 0xa5, sizeof bytes);
    assert_true(used > 0 && used <= ROW_BYTES && dtype_weight(type, &weight));
    quantize_row(type, x, importance, bytes, n);
    for (size_t i = used; i < used + 64; i++) assert_int_equal(bytes[i], 0xa5);
    dequantize_row(weight, bytes, out, n);
}

static double error_of(enum dtype type, const float *importance) {
    static float x[COLUMNS], again[COLUMNS];
    double sum = 0;
    for (int row = 0; row < ROWS; row++) {
        make_row(row, x);
        round_trip(type, x, importance, COLUMNS, again);
        for (int i = 0; i < COLUMNS; i++) {
            const double error = (double)again[i] - x[i];
            sum += error * error * (importance ? (double)importance[i] : 1);
        }
    }
    return sqrt(sum / (ROWS * COLUMNS));
}

static void errors_are_those_of_llama_cpp(void **state) {
    (void)state;
    float importance[COLUMNS];
    char name[16];
    double plain, weighted;
    int n = 0;
    FILE *file = fopen("tests/golden/quantize.txt", "r");
    assert_non_null(file);
    make_importance(importance);
    for (; fscanf(file, "%15s %lf %lf", name, &plain, &weighted) == 3; n++) {
        const enum dtype type = type_named(name);
        const double by_plain = error_of(type, NULL), by_weighted = error_of(type, importance);
        print_message("%s: %+.1f %%, with importance %+.1f %%\n", name,
                      100 * (by_plain / plain - 1), 100 * (by_weighted / weighted - 1));
        assert_true(by_plain <= 1.02 * plain && by_plain > 0.5 * plain);
        assert_true(by_weighted <= 1.02 * weighted && by_weighted > 0.5 * weighted);
    }
    fclose(file);
    assert_int_equal(n, 20);
}

// All types that rows can become but the ones that are exact.
// The codebooks come last, which have no 0 and little for a group with one large element.
static const enum dtype types[] = {
    DTYPE_Q8_0,  DTYPE_Q4_0,  DTYPE_Q4_1,    DTYPE_Q5_0,  DTYPE_Q5_1,   DTYPE_Q2_K,
    DTYPE_Q3_K,  DTYPE_Q4_K,  DTYPE_Q5_K,    DTYPE_Q6_K,  DTYPE_IQ4_NL, DTYPE_IQ4_XS,
    DTYPE_MXFP4, DTYPE_IQ3_S, DTYPE_IQ3_XXS, DTYPE_IQ2_S, DTYPE_IQ2_XS, DTYPE_IQ2_XXS};
enum { N_TYPES = sizeof types / sizeof *types, N_CODEBOOKS = 5 };

static bool has_codebook(int t) { return t >= N_TYPES - N_CODEBOOKS; }

// The dot product of a quantised row with another row, by the kernels of a level.
static double product_of(const struct cpu_table *table, enum dtype type, const float *row,
                         const float *x) {
    static uint8_t bytes[COSINES * sizeof(float)];
    const struct lane lane = {.count = 1};
    enum weight_type weight;
    float out = NAN;
    assert_true(dtype_weight(type, &weight));
    quantize_row(type, row, NULL, bytes, COSINES);
    void *scratch = aligned_alloc(64, (matmul_scratch_bytes(weight, COSINES, 1, 1) + 63) / 64 * 64);
    assert_non_null(scratch);
    table->matmul[weight](&lane, &(struct matmul_args){.out = &out,
                                                       .x = x,
                                                       .weight = bytes,
                                                       .scratch = scratch,
                                                       .n_tokens = 1,
                                                       .n_cols = COSINES,
                                                       .row_count = 1,
                                                       .out_stride = 1});
    free(scratch);
    return (double)out;
}

// llama.cpp's test-quantize-fns: rows 0.1 + 2 cos(i) and 0.1 + 2 cos(i + 1), the error of their dot
// product by the number of elements, which is 1.09 exactly.
static void products_are_within_the_bounds_of_llama_cpp(void **state) {
    (void)state;
    static float row[COSINES], x[COSINES];
    static struct cpu_table table;
    double exact = 0;
    for (int i = 0; i < COSINES; i++) {
        row[i] = 0.1F + 2 * cosf((float)i);
        x[i] = 0.1F + 2 * cosf((float)i + 1);
        exact += (double)row[i] * (double)x[i];
    }
    for (int isa = ISA_REF; isa < ISA_AUTO; isa++) {
        if (!cpu_has_isa((enum cpu_isa)isa)) continue;
        cpu_table_init(&table, (enum cpu_isa)isa);
        for (int t = 0; t < N_TYPES; t++) {
            // llama.cpp has no bound for these, whose signs must be even.
            if (types[t] == DTYPE_IQ2_XS || types[t] == DTYPE_IQ2_XXS) continue;
            const double error = fabs(product_of(&table, types[t], row, x) - exact) / COSINES;
            print_message("%s, level %d: %.5f\n", dtype_name(types[t]), isa, error);
            assert_true(error < (types[t] == DTYPE_Q2_K || has_codebook(t) ? 0.04 : 0.02));
        }
    }
}

static void important_columns_have_smaller_errors(void **state) {
    (void)state;
    float x[COLUMNS], again[COLUMNS], importance[COLUMNS], errors[2] = {0};
    for (int i = 0; i < COLUMNS; i++) importance[i] = i % 8 == 3 ? 1000 : 0.001F;
    for (int t = 1; t < N_TYPES; t++) // Q8_0 has no choice, MXFP4 hardly any
        for (int with = 0; with < 2 && types[t] != DTYPE_MXFP4; with++) {
            errors[with] = 0;
            for (int row = 0; row < 8; row++) {
                make_row(row, x);
                round_trip(types[t], x, with ? importance : NULL, COLUMNS, again);
                for (int i = 3; i < COLUMNS; i += 8)
                    errors[with] += (again[i] - x[i]) * (again[i] - x[i]);
            }
            if (with && errors[1] > 0.8F * errors[0])
                fail_msg("%s: %g with importance, %g without", dtype_name(types[t]),
                         (double)errors[1], (double)errors[0]);
        }
}

// Zeros, equal numbers, numbers of one sign, and the ends of what halves can scale.
static void odd_blocks_come_back(void **state) {
    (void)state;
    static const float bases[] = {0, 1, -3, 65504, -65504, 1e-7F, 1e-30F, 1e-42F};
    float x[256], again[256], nothing[256] = {0};
    for (int t = 0; t < N_TYPES; t++)
        for (size_t b = 0; b < sizeof bases / sizeof *bases; b++)
            for (int with = 0; with < 2; with++) {
                for (int i = 0; i < 256; i++) x[i] = bases[b];
                round_trip(types[t], x, with ? nothing : NULL, 256, again);
                const float allowed = 0.2F * fabsf(bases[b]) + 1e-6F;
                for (int i = 0; i < 256; i++)
                    if (!(fabsf(again[i] - x[i]) <= allowed))
                        fail_msg("%s: %g became %g", dtype_name(types[t]), (double)x[i],
                                 (double)again[i]);
            }
}

static void one_large_element_keeps_its_value(void **state) {
    (void)state;
    float x[256] = {0}, again[256];
    for (int t = 0; t < N_TYPES - N_CODEBOOKS; t++)
        for (int sign = -1; sign <= 1; sign += 2) {
            x[77] = (float)sign * 100;
            round_trip(types[t], x, NULL, 256, again);
            assert_true(fabsf(again[77] - x[77]) < 8);
            for (int i = 0; i < 256; i++)
                if (i != 77) assert_true(fabsf(again[i]) < 4);
        }
}

// The uneven values are no mirror of themselves: a block may need either sign of the scale.
static void uneven_values_come_back_with_either_sign(void **state) {
    (void)state;
    static const enum dtype uneven[] = {DTYPE_IQ4_NL, DTYPE_IQ4_XS};
    float x[256], again[256];
    for (int t = 0; t < 2; t++)
        for (int first = 0; first < 2; first++)
            for (int sign = -1; sign <= 1; sign += 2) {
                for (int i = 0; i < 256; i++)
                    x[i] = (float)sign * UNEVEN[first + i % (16 - first)] / 64;
                round_trip(uneven[t], x, NULL, 256, again);
                for (int i = 0; i < 256; i++) assert_true(fabsf(again[i] - x[i]) < 1e-3F);
            }
}

static void halves_are_rounded(void **state) {
    (void)state;
    const float x[4] = {1, -65504, 0.1F, 6e-8F};
    float again[4];
    round_trip(DTYPE_F16, x, NULL, 4, again);
    for (int i = 0; i < 4; i++) assert_true(again[i] == half_to_float(float_to_half(x[i])));
}

// Exactly halfway between two numbers, one with an even last bit is taken.
static void upper_halves_are_rounded(void **state) {
    (void)state;
    static const float x[] = {1, -3, 0x1.01p0F, 0x1.03p0F, 0x1.0101p0F, 0x1.fep127F, 0x1p-140F};
    static const float rounded[] = {1, -3, 1, 0x1.04p0F, 0x1.02p0F, 0x1.fep127F, 0};
    float again[7];
    round_trip(DTYPE_BF16, x, NULL, 7, again);
    for (int i = 0; i < 7; i++) assert_true(again[i] == rounded[i]);
    round_trip(DTYPE_F32, x, NULL, 7, again);
    assert_memory_equal(again, x, sizeof x);
    assert_true(quantize_most(DTYPE_BF16) == 0x1.fep127F && quantize_most(DTYPE_Q8_0) == 65504);
}

static void only_these_types_are_known(void **state) {
    (void)state;
    for (int t = 0; t < N_TYPES; t++) assert_true(quantize_knows(types[t]));
    assert_true(quantize_knows(DTYPE_F16) && quantize_knows(DTYPE_BF16));
    assert_true(quantize_knows(DTYPE_F32));
    assert_true(quantize_knows(DTYPE_TQ1_0) && quantize_knows(DTYPE_TQ2_0));
    assert_false(quantize_knows(DTYPE_IQ1_S));
}

static void nearest_number_goes_to_even(void **state) {
    (void)state;
    static const float in[] = {0.5F, 1.5F, 2.5F, -0.5F, -1.5F, 0.49F, -7.51F, 4e5F};
    static const int32_t out[] = {0, 2, 2, 0, -2, 0, -8, 400000};
    for (int i = 0; i < 8; i++) assert_int_equal(fit_nearest(in[i]), out[i]);
    assert_int_equal(fit_number(1e30F, -8, 7), 7);
    assert_int_equal(fit_number(-1e30F, -8, 7), -8);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(errors_are_those_of_llama_cpp),
        cmocka_unit_test(products_are_within_the_bounds_of_llama_cpp),
        cmocka_unit_test(important_columns_have_smaller_errors),
        cmocka_unit_test(odd_blocks_come_back),
        cmocka_unit_test(one_large_element_keeps_its_value),
        cmocka_unit_test(uneven_values_come_back_with_either_sign),
        cmocka_unit_test(halves_are_rounded),
        cmocka_unit_test(upper_halves_are_rounded),
        cmocka_unit_test(only_these_types_are_known),
        cmocka_unit_test(nearest_number_goes_to_even),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

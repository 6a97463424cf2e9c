/* test_blocks.c: the block formats of kernels/cpu/dequantize.c against values worked out from the
 * format's description, and half precision against an exact reading of its bits. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/kv_block.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

// Byte i of the block is 37 i + 11, then the half at each scale offset is overwritten: 0.0625 at
// the first, 0.03125 at the second (-1: there is none), 125 for 2^-3 in a block of MXFP4, and
// 0.0625 in the top nibbles of four words of IQ1_M.
struct vector {
    enum weight_type type;
    int scale_offsets[2];
    double first[4], last, sum, sum_abs;
};

static const struct vector VECTORS[] = {
    {WEIGHT_Q4_0, {0, -1}, {-0.1875, 0.125, 0.4375, -0.25}, 0, -1.3125, 7.6875},
    {WEIGHT_Q4_1, {0, 2}, {0.96875, 0.28125, 0.59375, 0.90625}, 0.78125, 16.3125, 16.3125},
    {WEIGHT_Q5_0, {0, -1}, {0.5625, -0.125, 0.1875, -0.5}, 0.0625, 0.9375, 15.4375},
    {WEIGHT_Q5_1, {0, 2}, {1.21875, 1.53125, 1.84375, 1.15625}, 0.34375, 32.5625, 32.5625},
    {WEIGHT_Q8_0, {0, -1}, {5.3125, 7.625, -6.0625, -3.75}, -3, -11, 135.75},
    {WEIGHT_Q4_K, {0, 2}, {19.71875, -1.59375, 8.09375, 17.78125}, 3.03125, 3402.5, 3439.25},
    {WEIGHT_Q5_K, {0, 2}, {50.71875, -1.59375, 39.09375, 17.78125}, 6.78125, 7263.5, 7284.9375},
    {WEIGHT_Q6_K, {208, -1}, {-89.4375, 106, 36.4375, -33.125}, -3.75, 288.25, 16656.375},
    {WEIGHT_Q3_K, {108, -1}, {5.0625, -6.75, 1.6875, -3.375}, 2.625, 59.875, 575.625},
    {WEIGHT_Q2_K, {80, 82}, {2.0625, 0, 0.6875, 1.375}, 0.28125, 128.6875, 160.25},
    {WEIGHT_TQ1_0, {52, -1}, {-0.0625, -0.0625, -0.0625, 0}, -0.0625, -0.125, 10.875},
    {WEIGHT_TQ2_0, {64, -1}, {0.125, -0.0625, 0, 0.0625}, -0.0625, 8.0625, 16.1875},
    {WEIGHT_IQ4_NL, {0, -1}, {-2.1875, 1.5625, 7.0625, -3.0625}, 0.0625, -16.0625, 106.5625},
    {WEIGHT_MXFP4, {-1, -1}, {0, 0.75, -0.25, -1.5}, 0.75, 3.125, 18.875},
    {WEIGHT_IQ4_XS, {0, -1}, {4.0625, -0.0625, -4.3125, 5.1875}, -1, -687.8125, 10416.4375},
    {WEIGHT_IQ2_XXS,
     {0, -1},
     {-3.6953125, 3.6953125, 2.1484375, -2.1484375},
     -5.0390625,
     47.734375,
     660.4375},
    {WEIGHT_IQ2_XS,
     {0, -1},
     {-0.6875, 2.1484375, -0.6875, -3.6953125},
     -1.1875,
     93.15625,
     631.859375},
    {WEIGHT_IQ2_S,
     {0, -1},
     {-9.0703125, 5.2734375, -1.6875, 1.6875},
     4.8828125,
     -50.0390625,
     584.0078125},
    {WEIGHT_IQ3_XXS, {0, -1}, {-0.8125, 0.5625, -0.4375, 0.1875}, -0.9375, -42.75, 1262.75},
    {WEIGHT_IQ3_S, {0, -1}, {-5.0625, 15.1875, -21.9375, -11.8125}, 14.0625, 91, 1778.25},
    {WEIGHT_IQ1_S,
     {0, -1},
     {-0.1640625, 0.0234375, 0.2109375, 0.2109375},
     -0.2734375,
     1.25,
     82.359375},
    {WEIGHT_IQ1_M,
     {-1, -1},
     {-0.0546875, 0.3828125, -0.0546875, -0.0546875},
     -0.1171875,
     2.5625,
     72.375},
};

static void put_half(uint8_t *block, int offset, uint16_t half) {
    if (offset >= 0) memcpy(block + offset, &half, sizeof half);
}

// Every quantised weight type is in VECTORS: the remaining three are plain.
_Static_assert(sizeof VECTORS / sizeof *VECTORS + 3 == WEIGHT_COUNT, "a weight type has no vector");

static void blocks_match_vectors(void **state) {
    (void)state;
    for (size_t v = 0; v < sizeof VECTORS / sizeof *VECTORS; v++) {
        const struct vector *want = &VECTORS[v];
        const struct dtype_info *info = dtype_find((uint32_t)weight_dtype(want->type));
        uint8_t block[256];
        float y[256];
        for (uint32_t i = 0; i < info->block_bytes; i++) block[i] = (uint8_t)(37 * i + 11);
        put_half(block, want->scale_offsets[0], 0x2c00);
        put_half(block, want->scale_offsets[1], 0x2800);
        if (want->type == WEIGHT_MXFP4) block[0] = 125;
        for (int i = 0; i < 4 && want->type == WEIGHT_IQ1_M; i++)
            block[49 + 2 * i] = (uint8_t)((block[49 + 2 * i] & 15) | (0x2c00 >> 4 * i & 15) << 4);
        dequantize_row(want->type, block, y, info->block_elements);
        double sum = 0, sum_abs = 0;
        for (uint32_t i = 0; i < info->block_elements; i++) sum += y[i], sum_abs += fabs(y[i]);
        for (int i = 0; i < 4; i++) assert_true(y[i] == want->first[i]);
        assert_true(y[info->block_elements - 1] == want->last);
        assert_true(sum == want->sum);
        assert_true(sum_abs == want->sum_abs);
    }
}

static void rows_are_blocks_back_to_back(void **state) {
    (void)state;
    for (int type = 0; type < WEIGHT_COUNT; type++) {
        const struct dtype_info *info = dtype_find((uint32_t)weight_dtype((enum weight_type)type));
        uint8_t row[3 * 256];
        float whole[3 * 256], one[256];
        for (uint32_t i = 0; i < 3 * info->block_bytes; i++) row[i] = (uint8_t)(i * 29 % 113);
        dequantize_row((enum weight_type)type, row, whole, 3 * info->block_elements);
        for (uint32_t b = 0; b < 3; b++) {
            dequantize_row((enum weight_type)type, row + b * info->block_bytes, one,
                           info->block_elements);
            assert_memory_equal(one, whole + b * info->block_elements,
                                info->block_elements * sizeof *one);
        }
    }
}

// The checksum of zlib, of text.
static uint32_t crc32_add(uint32_t crc, const char *text) {
    for (crc = ~crc; *text; text++) {
        crc ^= (uint8_t)*text;
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? 0xedb88320 : 0);
    }
    return ~crc;
}

// The codes of a codebook as one line of hexadecimal digits have the checksum of the format.
static void codebooks_are_those_of_the_format(void **state) {
    static const struct {
        int digits, n;
        uint32_t crc;
        uint16_t codes[2048];
    } BOOKS[] = {
#define CODES(...) __VA_ARGS__,
        {4,
         256,
         0x757ee0cc,
         {
#define IQ2_XXS CODES
#include "kernels/grids.def"
         }},
        {4,
         512,
         0x0ee9db97,
         {
#define IQ2_XS CODES
#include "kernels/grids.def"
         }},
        {4,
         1024,
         0x86810c0e,
         {
#define IQ2_S CODES
#include "kernels/grids.def"
         }},
        {3,
         256,
         0xd4e0a9cc,
         {
#define IQ3_XXS CODES
#include "kernels/grids.def"
         }},
        {3,
         512,
         0xb012af85,
         {
#define IQ3_S CODES
#include "kernels/grids.def"
         }},
        {4,
         2048,
         0x776605f5,
         {
#define IQ1_S CODES
#include "kernels/grids.def"
         }},
    };
    (void)state;
    for (size_t b = 0; b < sizeof BOOKS / sizeof *BOOKS; b++) {
        uint32_t crc = 0;
        for (int i = 0; i < BOOKS[b].n; i++) {
            char text[8];
            snprintf(text, sizeof text, "%0*x", BOOKS[b].digits, BOOKS[b].codes[i]);
            crc = crc32_add(crc, text);
        }
        assert_int_equal(crc, BOOKS[b].crc);
    }
}

static void plain_types(void **state) {
    (void)state;
    const float source[5] = {0, -0.0F, 1.5F, -3e38F, 1e-40F};
    const uint16_t bf16[5] = {0x3f80, 0xc000, 0x0001, 0x7f80, 0x8000};
    float y[5];
    dequantize_row(WEIGHT_F32, source, y, 5);
    assert_memory_equal(y, source, sizeof y);
    dequantize_row(WEIGHT_BF16, bf16, y, 5);
    assert_true(y[0] == 1.0F && y[1] == -2.0F && y[2] == 0x1p-133F && isinf(y[3]) && signbit(y[4]));
}

// The value of a half by its definition: (-1)^s 2^(e-15) 1.f, or 2^-14 0.f for e = 0.
static double half_value(unsigned half) {
    int exponent = (int)(half >> 10 & 31), fraction = (int)(half & 1023);
    double magnitude = exponent ? ldexp(1024 + fraction, exponent - 25) : ldexp(fraction, -24);
    return half & 0x8000 ? -magnitude : magnitude;
}

static void every_half_is_read_and_written_back(void **state) {
    (void)state;
    for (unsigned half = 0; half < 65536; half++) {
        float value = half_to_float((uint16_t)half);
        bool special = (half & 0x7c00) == 0x7c00;
        if (special && half & 0x3ff) {
            assert_true(isnan(value));
            assert_true(isnan(half_to_float(float_to_half(value))));
            continue;
        }
        if (special)
            assert_true(isinf(value));
        else
            assert_true(value == half_value(half));
        assert_true(!signbit(value) == !(half & 0x8000));
        assert_int_equal(float_to_half(value), half);
    }
}

// Between each half and the next one up: below the middle rounds down, above it up, the middle to
// the even one. The step after the largest half leads to infinity.
static void rounding_is_to_nearest_even(void **state) {
    (void)state;
    for (unsigned half = 0; half < 0x7c00; half++) {
        double low = half_value(half), high = half == 0x7bff ? 65536 : half_value(half + 1);
        float middle = (float)((low + high) / 2);
        unsigned even = half & 1 ? half + 1 : half;
        assert_int_equal(float_to_half(middle), even);
        assert_int_equal(float_to_half(-middle), even | 0x8000);
        assert_int_equal(float_to_half(nextafterf(middle, 0)), half);
        assert_int_equal(float_to_half(nextafterf(middle, 1e9F)), half + 1);
    }
    assert_int_equal(float_to_half(3e38F), 0x7c00);
    assert_int_equal(float_to_half(1e-45F), 0);
    assert_int_equal(float_to_half(-INFINITY), 0xfc00);
}

// The bytes that quantize_row_q4_0_ref of ggml makes: the sixth number and two others have
// the largest magnitude, with both signs.
static void q4_0_of_a_cache_is_that_of_ggml(void **state) {
    (void)state;
    static const uint8_t expected[BLOCK_BYTES_Q4_0] = {91,  56, 115, 13, 166, 63, 200, 80,  251,
                                                       132, 29, 166, 63, 217, 98, 252, 148, 46};
    float x[32];
    uint8_t block[BLOCK_BYTES_Q4_0];
    for (int i = 0; i < 32; i++) x[i] = ((float)((i * 37 + 11) % 64) - 30.5F) / 7;
    x[5] = -x[10];
    kv_block_q4_0(block, x);
    assert_memory_equal(block, expected, sizeof expected);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_match_vectors),
        cmocka_unit_test(rows_are_blocks_back_to_back),
        cmocka_unit_test(codebooks_are_those_of_the_format),
        cmocka_unit_test(plain_types),
        cmocka_unit_test(every_half_is_read_and_written_back),
        cmocka_unit_test(rounding_is_to_nearest_even),
        cmocka_unit_test(q4_0_of_a_cache_is_that_of_ggml),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

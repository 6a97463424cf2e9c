/* test_dtypes.c: tests of kernels/dtypes.h against the block sizes of the GGUF format, written down
 * here a second time as "elements, parts of the block" from its description.
 */
#include "kernels/dtypes.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { HALF = 2 };

// Every type of the format: its number, elements and bytes of a block as the sum of its parts.
static const struct {
    const char *name;
    uint32_t number, block_elements, block_bytes;
} FORMAT[] = {
    {"F32", 0, 1, 4},
    {"F16", 1, 1, HALF},
    {"Q4_0", 2, 32, HALF + 16},               // scale, nibbles
    {"Q4_1", 3, 32, HALF + HALF + 16},        // scale, minimum, nibbles
    {"Q5_0", 6, 32, HALF + 4 + 16},           // scale, fifth bits, nibbles
    {"Q5_1", 7, 32, HALF + HALF + 4 + 16},    // scale, minimum, fifth bits, nibbles
    {"Q8_0", 8, 32, HALF + 32},               // scale, bytes
    {"Q8_1", 9, 32, HALF + HALF + 32},        // scale, scaled sum, bytes
    {"Q2_K", 10, 256, 16 + 64 + HALF + HALF}, // scales, two-bit values, two super-scales
    {"Q3_K", 11, 256, 32 + 64 + 12 + HALF},   // high bits, two-bit values, scales, super-scale
    {"Q4_K", 12, 256, HALF + HALF + 12 + 128},
    {"Q5_K", 13, 256, HALF + HALF + 12 + 32 + 128},
    {"Q6_K", 14, 256, 128 + 64 + 16 + HALF},
    {"Q8_K", 15, 256, 4 + 256 + 16 * 2}, // f32 scale, bytes, sums of 16
    {"IQ2_XXS", 16, 256, HALF + 8 * 8},
    {"IQ2_XS", 17, 256, HALF + 32 * 2 + 8},
    {"IQ3_XXS", 18, 256, HALF + 64 + 8 * 4},
    {"IQ1_S", 19, 256, HALF + 32 + 8 * 2},
    {"IQ4_NL", 20, 32, HALF + 16},
    {"IQ3_S", 21, 256, HALF + 64 + 8 + 32 + 4},
    {"IQ2_S", 22, 256, HALF + 32 + 32 + 8 + 8},
    {"IQ4_XS", 23, 256, HALF + 2 + 4 + 128},
    {"I8", 24, 1, 1},
    {"I16", 25, 1, 2},
    {"I32", 26, 1, 4},
    {"I64", 27, 1, 8},
    {"F64", 28, 1, 8},
    {"IQ1_M", 29, 256, 32 + 16 + 4 * 2},
    {"BF16", 30, 1, 2},
    {"TQ1_0", 34, 256, 48 + 4 + HALF},
    {"TQ2_0", 35, 256, 64 + HALF},
    {"MXFP4", 39, 32, 1 + 16},
    {"NVFP4", 40, 64, 4 + 32},
    {"Q1_0", 41, 128, HALF + 16},
    {"Q2_0", 42, 64, HALF + 16},
};
enum { N_FORMAT = sizeof FORMAT / sizeof *FORMAT };

static void every_type_has_its_name_and_block(void **state) {
    (void)state;
    for (size_t i = 0; i < N_FORMAT; i++) {
        const struct dtype_info *info = dtype_find(FORMAT[i].number);
        assert_non_null(info);
        assert_string_equal(info->name, FORMAT[i].name);
        assert_string_equal(dtype_name((enum dtype)FORMAT[i].number), FORMAT[i].name);
        assert_int_equal(info->block_elements, FORMAT[i].block_elements);
        assert_int_equal(info->block_bytes, FORMAT[i].block_bytes);
    }
}

// Numbers outside the list above are no types: removed ones, those of forks, and arbitrary ones.
static void other_numbers_are_no_types(void **state) {
    (void)state;
    size_t found = 0;
    for (uint32_t number = 0; number < 1000; number++) found += dtype_find(number) != NULL;
    assert_int_equal(found, N_FORMAT);
    const uint32_t none[] = {4, 5, 31, 32, 33, 36, 37, 38, DTYPE_COUNT, 1u << 31, UINT32_MAX};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        assert_null(dtype_find(none[i]));
        assert_string_equal(dtype_name((enum dtype)none[i]), "unknown");
        assert_int_equal(dtype_bytes((enum dtype)none[i], 256), 0);
    }
}

static void bytes_are_whole_blocks(void **state) {
    (void)state;
    for (size_t i = 0; i < N_FORMAT; i++) {
        enum dtype type = (enum dtype)FORMAT[i].number;
        uint64_t elements = FORMAT[i].block_elements, bytes = FORMAT[i].block_bytes;
        assert_int_equal(dtype_bytes(type, 0), 0);
        assert_int_equal(dtype_bytes(type, elements), bytes);
        assert_int_equal(dtype_bytes(type, elements * 1000), bytes * 1000);
        if (elements == 1) continue;
        assert_int_equal(dtype_bytes(type, 1), 0);
        assert_int_equal(dtype_bytes(type, elements + 1), 0);
        assert_int_equal(dtype_bytes(type, elements * 2 - 1), 0);
    }
    // A 70B matrix is beyond 32 bits.
    assert_true(dtype_bytes(DTYPE_F32, 1ull << 33) == 1ull << 35);
    assert_true(dtype_bytes(DTYPE_Q4_K, 8192ull * 128256) == 8192ull * 128256 / 256 * 144);
}

static void weight_types_map_both_ways(void **state) {
    (void)state;
    for (int i = 0; i < WEIGHT_COUNT; i++) {
        enum weight_type weight = WEIGHT_COUNT;
        assert_true(dtype_weight(weight_dtype((enum weight_type)i), &weight));
        assert_int_equal(weight, i);
    }
    assert_int_equal(weight_dtype(WEIGHT_F32), 0);
    assert_int_equal(weight_dtype(WEIGHT_Q6_K), 14);
    assert_int_equal(weight_dtype(WEIGHT_BF16), 30);
    assert_int_equal(weight_kind(WEIGHT_F32), KIND_FLOATS);
    assert_int_equal(weight_kind(WEIGHT_BF16), KIND_HALVES);
    assert_int_equal(weight_kind(WEIGHT_Q6_K), KIND_BYTES);
}

static void weight_names_are_words(void **state) {
    (void)state;
    assert_non_null(strstr(weight_names(), "Q4_K Q6_K"));
    assert_true(*weight_names() != ' ');
}

static void cache_types_and_their_dtypes(void **state) {
    (void)state;
    enum kv_type type;
    for (int i = 0; i < KV_TYPES; i++) {
        assert_true(dtype_kv(kv_dtype((enum kv_type)i), &type));
        assert_int_equal(type, i);
        assert_non_null(strstr(kv_names(), dtype_name(kv_dtype((enum kv_type)i))));
    }
    assert_int_equal(kv_dtype(KV_Q4_0), 2);
    assert_false(dtype_kv(DTYPE_Q4_1, &type));
}

static void other_types_are_no_weights(void **state) {
    (void)state;
    int found = 0;
    for (uint32_t number = 0; number < 100; number++) {
        enum weight_type weight = WEIGHT_COUNT;
        bool is_weight = dtype_weight((enum dtype)number, &weight);
        found += is_weight;
        if (!is_weight) assert_int_equal(weight, WEIGHT_COUNT);
    }
    assert_int_equal(found, WEIGHT_COUNT);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_type_has_its_name_and_block),
        cmocka_unit_test(other_numbers_are_no_types),
        cmocka_unit_test(bytes_are_whole_blocks),
        cmocka_unit_test(weight_types_map_both_ways),
        cmocka_unit_test(weight_names_are_words),
        cmocka_unit_test(cache_types_and_their_dtypes),
        cmocka_unit_test(other_types_are_no_weights),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

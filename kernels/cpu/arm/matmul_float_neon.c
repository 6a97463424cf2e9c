/* matmul_float_neon.c: tiles of F32, F16 and BF16 weights times tokens, with NEON.
 *
 * A tile is four rows by up to four tokens, or eight rows by one; each of its elements has one
 * vector of partial sums, which takes four columns at a time by multiply-add, first to last, and is
 * added up at the end, so a value does not depend on the tile. Columns beyond a multiple of four
 * are completed with zeros. Owns nothing; matmul_work.c calls for every lane. Emulated by qemu, not
 * run on ARM hardware. Tested by tests/kernels/check_ops.c.
 */
#include "kernels/cpu/arm/arm.h"
#include "kernels/cpu/matmul_work.h"

#include "base/inline.h"

#include <arm_neon.h>
#include <stdio.h>
#include <string.h>

#define UNROLL _Pragma("GCC unroll 16")

enum { TILE_ROWS = 8, SOME_ROWS = 4, TOKENS = 4, SUMS = SOME_ROWS * TOKENS, COLS = 4 };
_Static_assert(TILE_ROWS <= (int)SUMS, "the sums of eight rows fit");

// Loads four elements from a column on as floats.
INLINE float32x4_t load4(enum weight_type type, const void *row, int64_t column) {
    if (type == WEIGHT_F32) return vld1q_f32((const float *)row + column);
    uint16x4_t halves = vld1_u16((const uint16_t *)row + column);
    if (type == WEIGHT_F16) return vcvt_f32_f16(vreinterpret_f16_u16(halves));
    ASSERT(type == WEIGHT_BF16);
    return vreinterpretq_f32_u32(vshll_n_u16(halves, 16));
}

// Loads the last n < COLS elements of a row, then zeros.
INLINE float32x4_t load_rest(enum weight_type type, const void *row, int64_t column, int64_t n) {
    const int64_t element_bytes = type == WEIGHT_F32 ? 4 : 2;
    float rest[COLS] = {0}; // room for any element type
    memcpy(rest, (const char *)row + column * element_bytes, (size_t)(n * element_bytes));
    return load4(type, rest, 0);
}

// Some rows by some tokens; the counts are constants after inlining.
struct block {
    int64_t row;
    int32_t token;
    int n_rows, n_tokens;
};

struct operands {
    const char *w; // rows at equal distances
    int64_t row_bytes;
    const void *x[TOKENS];
};

// Adds the products of n <= COLS columns from c on to the sums of a block.
INLINE void add_columns(enum weight_type type, const struct operands *o, int64_t c, int64_t n,
                        struct block b, float32x4_t *acc) {
    float32x4_t xs[TOKENS];
    UNROLL for (int t = 0; t < b.n_tokens; t++) {
        xs[t] = n == COLS ? load4(WEIGHT_F32, o->x[t], c) : load_rest(WEIGHT_F32, o->x[t], c, n);
    }
    UNROLL for (int r = 0; r < b.n_rows; r++) {
        const char *row = o->w + r * o->row_bytes;
        const float32x4_t weight = n == COLS ? load4(type, row, c) : load_rest(type, row, c, n);
        UNROLL for (int t = 0; t < b.n_tokens; t++) {
            acc[r * b.n_tokens + t] = vfmaq_f32(acc[r * b.n_tokens + t], weight, xs[t]);
        }
    }
}

INLINE void store_block(const struct matmul_args *a, const struct matmul_tokens *tokens,
                        struct block b, const float32x4_t *acc) {
    for (int i = 0; i < b.n_rows * b.n_tokens; i++) {
        const int64_t row = b.row + i / b.n_tokens;
        const int64_t at = tokens->places[b.token + i % b.n_tokens] * (int64_t)a->out_stride + row;
        float value = vaddvq_f32(acc[i]);
        if (a->bias) value += a->bias[row];
        if (a->residual) value += a->residual[at];
        a->out[at] = value;
    }
}

INLINE void multiply(const struct matmul_args *a, enum weight_type type,
                     const struct matmul_tokens *tokens, struct block b) {
    const int64_t row_bytes = a->n_cols * (type == WEIGHT_F32 ? 4 : 2);
    const int64_t whole = a->n_cols / COLS * COLS;
    struct operands o = {(const char *)a->weight + b.row * row_bytes, row_bytes, {0}};
    float32x4_t acc[SUMS], sums[SUMS]; // compilers would store sums in every step
    UNROLL for (int t = 0; t < b.n_tokens; t++) o.x[t] = tokens->x[b.token + t];
    UNROLL for (int i = 0; i < b.n_rows * b.n_tokens; i++) acc[i] = vdupq_n_f32(0);
    for (int64_t c = 0; c < whole; c += COLS) add_columns(type, &o, c, COLS, b, acc);
    if (whole < a->n_cols) add_columns(type, &o, whole, a->n_cols - whole, b, acc);
    UNROLL for (int i = 0; i < b.n_rows * b.n_tokens; i++) sums[i] = acc[i];
    store_block(a, tokens, b, sums);
}

// Makes the number of tokens a constant.
INLINE void few_tokens(const struct matmul_args *a, enum weight_type type,
                       const struct matmul_tokens *tokens, struct block b) {
    const int n = b.n_tokens;
    if (n == 1) multiply(a, type, tokens, (struct block){b.row, b.token, b.n_rows, 1});
    if (n == 2) multiply(a, type, tokens, (struct block){b.row, b.token, b.n_rows, 2});
    if (n == 3) multiply(a, type, tokens, (struct block){b.row, b.token, b.n_rows, 3});
    if (n == 4) multiply(a, type, tokens, (struct block){b.row, b.token, b.n_rows, 4});
}

// All tokens, in as few parts as the registers allow, about equal ones.
INLINE void some_rows(const struct matmul_args *a, enum weight_type type, int64_t row,
                      const struct matmul_tokens *tokens, int n_rows) {
    const int32_t n_parts = (tokens->n + TOKENS - 1) / TOKENS;
    for (int32_t part = 0, t = 0, end; part < n_parts; part++, t = end) {
        end = (part + 1) * tokens->n / n_parts;
        few_tokens(a, type, tokens, (struct block){row, t, n_rows, end - t});
    }
}

INLINE void tile_of(const struct matmul_args *a, int64_t index, const struct matmul_tokens *tokens,
                    enum weight_type type) {
    const int64_t n_rows = a->row_count < TILE_ROWS ? 1 : TILE_ROWS;
    const int64_t end = a->row_first + a->row_count;
    int64_t row = a->row_first + index * n_rows;
    const int64_t last = row + n_rows < end ? row + n_rows : end;
    if (tokens->n == 1 && last - row == TILE_ROWS) {
        multiply(a, type, tokens, (struct block){row, 0, TILE_ROWS, 1});
        return;
    }
    for (; row + SOME_ROWS <= last; row += SOME_ROWS) some_rows(a, type, row, tokens, SOME_ROWS);
    for (; row < last; row++) some_rows(a, type, row, tokens, 1);
}

#define DEFINE_BYTES(NAME, name)
#define DEFINE_HALVES(NAME, name)                                       \
    static void tile_##name(const struct matmul_args *a, int64_t index, \
                            const struct matmul_tokens *tokens) {       \
        tile_of(a, index, tokens, WEIGHT_##NAME);                       \
    }                                                                   \
    MATMUL_OPS(name,                                                    \
               {tile_##name, TILE_ROWS, MATMUL_TOKENS_MAX, NULL, ACT_SUM, 0, 1, WEIGHT_##NAME})
#define DEFINE_FLOATS                 DEFINE_HALVES
#define WEIGHT(NAME, name, KIND, ...) DEFINE_##KIND(NAME, name)
#include "kernels/weights.def"
#undef WEIGHT

void cpu_matmul_float_neon(struct cpu_table *table) {
#define INSTALL_BYTES(NAME, name)
#define INSTALL_HALVES(NAME, name)    MATMUL_INSTALL(table, NAME, name, "neon")
#define INSTALL_FLOATS                INSTALL_HALVES
#define WEIGHT(NAME, name, KIND, ...) INSTALL_##KIND(NAME, name)
#include "kernels/weights.def"
#undef WEIGHT
}

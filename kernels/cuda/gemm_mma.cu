/* gemm_mma.cu: gemm_mma_<type>, a weight times more than MATVEC_TOKENS tokens on tensor cores, 7.5
 * and later; experts_mma_<type>, the same for the pairs of experts: grid (expert_tiles, row tiles),
 * see rows.cuh. In images for less the kernels are empty; the host does not launch those.
 *
 * Grid (token tiles, row tiles) of 64 x 64; see gemm.cuh. A warp sums 32 rows x 32 tokens in 2 x 4
 * tiles of 16 x 8.
 *
 * Quantised types: 32 columns, a group of the weight and of the activations, are one int8
 * instruction per tile (m16n8k32; four m8n8k16 on 7.5). Its integers become floats with one add,
 * one product of scales and one multiply-add each, and one more with an offset: 12 or 16 float
 * operations per lane for one mma, which limit its speed. The scales of Q6_K cover 16 columns, so
 * it takes twice the instructions, half of each on zeros from 8.0 on. It reads the same bytes as
 * gemm_dp4a.cu and gives the same result, bit for bit.
 *
 * F16 and BF16: x and BF16 weights are rounded to halves, 32 columns a step, for f16 instructions
 * with float sums (error of the result 2^-12 of its size; F32 weights would lose as much again and
 * are left to gemm_dp4a_f32). Halves end at 65504 and get coarse below 2^-14, so each line's
 * largest element is watched; where one lies outside 2^-6..2^15, the block starts again with that
 * line scaled by a power of two. Only such blocks read twice. A block reads 64 rows (2 bytes a
 * column) and 64 tokens (4): 21 operations per byte of L2.
 *
 * 20 KiB of shared memory. n_cols a multiple of 32 for quantised types, any for others. Differs in
 * rounding from matmul_vec_<type>. Tested by tests/kernels/check_ops.c.
 */
#include "kernels/cuda/gemm.cuh"

#if CUDA_ARCH >= 750

// ---- What both have in common ------------------------------------------------------------------

// The four warps cover rows 0..31 and 32..63 by tokens 0..31 and 32..63. sums[16 m + 4 n + e] is
// element e of the tile at rows 16 m and tokens 8 n of the warp's part.
struct mma_places {
    DEVICE_FN int lane() { return (int)threadIdx.x % 32; }
    DEVICE_FN int first_row() { return (int)threadIdx.x / 32 % 2 * 32; }
    DEVICE_FN int first_token() { return (int)threadIdx.x / 64 * 32; }
    DEVICE_FN int row(int sum) {
        return first_row() + sum / 16 * 16 + sum / 2 % 2 * 8 + lane() / 4;
    }
    DEVICE_FN int token(int sum) {
        return first_token() + sum / 4 % 4 * 8 + lane() % 4 * 2 + sum % 2;
    }

    // Chunks 2 pair and 2 pair + 1 of the warp's lines as operands: w[m] is 16 rows x 32 bytes,
    // x[n / 2] + n % 2 * 2 is 8 tokens x 32 bytes.
    DEVICE_FN void load(uint32_t w[2][4], uint32_t x[2][4], const gemm_tile &tile, int pair) {
        int line = lane() % 8, eight = lane() / 8;
#pragma unroll
        for (int i = 0; i < 2; i++) {
            int row = first_row() + 16 * i + eight % 2 * 8 + line;
            int token = first_token() + 16 * i + eight / 2 * 8 + line;
            ldmatrix_x4(w[i], tile.lines[row].chunks + 2 * pair + eight / 2);
            ldmatrix_x4(x[i], tile.lines[GEMM_SIDE + token].chunks + 2 * pair + eight % 2);
        }
    }
};

// ---- Quantised types ---------------------------------------------------------------------------

// d += 16 rows x 32 (16) bytes times 8 tokens.
DEVICE_FN void mma_32_bytes(int *d, const uint32_t *w, const uint32_t *x) {
#if CUDA_ARCH >= 800
    mma_m16n8k32_s8(d, w, x);
#else
    mma_m8n8k16_s8(d, w[0], x[0]), mma_m8n8k16_s8(d + 2, w[1], x[0]);
    mma_m8n8k16_s8(d, w[2], x[1]), mma_m8n8k16_s8(d + 2, w[3], x[1]);
#endif
}
DEVICE_FN void mma_16_bytes(int *d, const uint32_t *w, uint32_t x) {
#if CUDA_ARCH >= 800
    const uint32_t padded_w[4] = {w[0], w[1], 0, 0}, padded_x[2] = {x, 0};
    mma_m16n8k32_s8(d, padded_w, padded_x);
#else
    mma_m8n8k16_s8(d, w[0], x), mma_m8n8k16_s8(d + 2, w[1], x);
#endif
}

template <class W> struct mma_math : mma_places {
    // Adds the four integers of a tile to sums. scale[] is of its two rows, x[] of its two tokens.
    DEVICE_FN void add_scaled(float *sums, const int *d, const float *scale, const float2 *x) {
#pragma unroll
        for (int e = 0; e < 4; e++)
            sums[e] = fmaf(scale[e / 2] * x[e % 2].x, gemm_float(d[e]), sums[e]);
    }
    DEVICE_FN void add_tile(float *sums, const uint32_t *w, const uint32_t *x,
                            const float2 *w_scales, const float2 *x_scales) {
        const float first[2] = {w_scales[0].x, w_scales[1].x};
        const float last[2] = {w_scales[0].y, w_scales[1].y}; // or the offsets
        int d[4] = {GEMM_FLOAT_BITS, GEMM_FLOAT_BITS, GEMM_FLOAT_BITS, GEMM_FLOAT_BITS};
        if (W::TWO_SCALES) {
            int d_last[4] = {GEMM_FLOAT_BITS, GEMM_FLOAT_BITS, GEMM_FLOAT_BITS, GEMM_FLOAT_BITS};
            mma_16_bytes(d, w, x[0]);
            mma_16_bytes(d_last, w + 2, x[1]);
            add_scaled(sums, d, first, x_scales);
            add_scaled(sums, d_last, last, x_scales);
            return;
        }
        mma_32_bytes(d, w, x);
        if (quantised_lines<W>::HAS_OFFSET) {
#pragma unroll
            for (int e = 0; e < 4; e++) sums[e] = fmaf(last[e / 2], x_scales[e % 2].y, sums[e]);
        }
        if (W::TWO_OFFSETS) {
#pragma unroll
            for (int e = 0; e < 4; e++)
                sums[e] = add_two_offsets(sums[e], last[e / 2], x_scales[e % 2]);
        }
        add_scaled(sums, d, first, x_scales);
    }
    DEVICE_FN void add(float *sums, const gemm_tile &tile) {
#pragma unroll 1
        for (int group = 0; group < 2; group++) {
            uint32_t w[2][4], x[2][4];
            load(w, x, tile, group);
            float2 w_scales[4];
#pragma unroll
            for (int i = 0; i < 4; i++) // rows 8 apart
                w_scales[i] = tile.lines[row(i / 2 * 16 + i % 2 * 2)].scales[group];
#pragma unroll
            for (int n = 0; n < 4; n++) {
                const float2 x_scales[2] = {tile.lines[GEMM_SIDE + token(4 * n)].scales[group],
                                            tile.lines[GEMM_SIDE + token(4 * n + 1)].scales[group]};
#pragma unroll
                for (int m = 0; m < 2; m++)
                    add_tile(sums + 16 * m + 4 * n, w[m], x[n / 2] + n % 2 * 2, w_scales + 2 * m,
                             x_scales);
            }
        }
    }
};

// ---- F16 and BF16 ------------------------------------------------------------------------------

// Lines of halves: 32 columns per step.
template <class W> struct half_lines {
    static constexpr bool SCALES = false;
    const uint8_t *line;
    int n_cols;
    float scale;   // a power of two
    float largest; // largest magnitude so far, before scaling; 0 if every element is a half already

    template <class Rows>
    DEVICE_FN half_lines open(const typename Rows::params &p, const Rows &rows) {
        if (gemm_brings_weight()) return {gemm_weight(p, rows), p.a.n_cols, 1, 0};
        const float *x = p.a.x + gemm_x_row(p, rows) * p.a.n_cols;
        return {(const uint8_t *)x, p.a.n_cols, 1, 0};
    }
    DEVICE_FN int steps(int n_cols) { return (n_cols + 31) / 32; }
    DEVICE_FN uint32_t two_to_halves(float a, float b) {
        return __float2half(a).bits | (uint32_t)__float2half(b).bits << 16;
    }
    template <class T> DEVICE_FN void load_as(gemm_line *out, half_lines &l, int step) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float v[8];
            gemm_eight<T>(v, l.line, 32 * step + 8 * i, l.n_cols);
#pragma unroll
            for (int k = 0; k < 8 && !T::IS_HALF; k++)
                l.largest = fmaxf(l.largest, fabsf(v[k])), v[k] *= l.scale;
            out->chunks[i] = make_uint4(two_to_halves(v[0], v[1]), two_to_halves(v[2], v[3]),
                                        two_to_halves(v[4], v[5]), two_to_halves(v[6], v[7]));
        }
    }
    DEVICE_FN void load(gemm_line *out, half_lines &l, int step) {
        if (gemm_brings_weight())
            load_as<W>(out, l, step);
        else
            load_as<weight_f32>(out, l, step);
    }
};

struct half_math : mma_places {
    DEVICE_FN void add_tile(float *sums, const uint32_t *w, const uint32_t *x) {
#if CUDA_ARCH >= 800
        mma_m16n8k16_f16(sums, w, x);
#else
        mma_m16n8k8_f16(sums, w, x[0]), mma_m16n8k8_f16(sums, w + 2, x[1]);
#endif
    }
    DEVICE_FN void add(float *sums, const gemm_tile &tile) {
#pragma unroll
        for (int pair = 0; pair < 2; pair++) {
            uint32_t w[2][4], x[2][4];
            load(w, x, tile, pair);
#pragma unroll
            for (int i = 0; i < 8; i++) add_tile(sums + 4 * i, w[i / 4], x[i % 4 / 2] + i % 2 * 2);
        }
    }
};

// The power of two that scales a line's largest element to 1..2, or 1 if halves hold it without
// scaling.
DEVICE_FN float half_scale(float largest) {
    if (largest == 0 || (largest >= 0.015625F && largest <= 32768)) return 1;
    int exponent = (int)(__float_as_uint(largest) >> 23); // biased by 127
    return __uint_as_float((uint32_t)min(max(254 - exponent, 1), 253) << 23);
}
DEVICE_FN float inverse_of_power(float power) {
    return __uint_as_float((254U << 23) - __float_as_uint(power));
}

// True in all threads if any line of the block needs a scale. scales[] has one for each line.
DEVICE_FN bool any_scaled(const float *scales) {
    bool scaled = false;
    for (int i = (int)threadIdx.x % 32; i < GEMM_THREADS; i += 32) scaled |= scales[i] != 1;
    return __ballot_sync(0xffffffffU, scaled) != 0;
}

template <class Rows, class W> DEVICE_FN void gemm_halves(const typename Rows::params &p) {
    __shared__ gemm_tile tiles[2];
    __shared__ float scales[GEMM_THREADS]; // of rows, then of tokens
    __shared__ Rows kept;
    float sums[GEMM_SUMS];
    Rows rows;
    gemm_find(&rows, p);
    if (rows.count == 0) return;
    if (Rows::SEARCHED && threadIdx.x == 0) kept = rows;
    half_lines<W> lines = half_lines<W>::open(p, rows);
    bool again = false;
    do {
#pragma unroll
        for (int i = 0; i < GEMM_SUMS; i++) sums[i] = 0;
        gemm_sum<half_lines<W>, half_math>(sums, tiles, lines, p.a.n_cols);
        if (again) break;
        lines.scale = scales[threadIdx.x] = half_scale(lines.largest);
        __syncthreads();
        again = any_scaled(scales);
    } while (again);
    if (again) {
#pragma unroll
        for (int i = 0; i < GEMM_SUMS; i++) {
            sums[i] *= inverse_of_power(scales[half_math::row(i)]);
            sums[i] *= inverse_of_power(scales[GEMM_SIDE + half_math::token(i)]);
        }
    }
    gemm_write<half_math>(p, Rows::SEARCHED ? kept : rows, sums);
}

#define GEMM_BYTES_BODY(rows, type) \
    gemm<rows, quantised_lines<weight_##type>, mma_math<weight_##type>>(p)
#define GEMM_HALVES_BODY(rows, type) gemm_halves<rows, weight_##type>(p)

#else
#define GEMM_BYTES_BODY(rows, type)  (void)p
#define GEMM_HALVES_BODY(rows, type) (void)p
#endif

#define GEMM_MMA(type, body)                                \
    KERNEL void __launch_bounds__(GEMM_MMA_THREADS)         \
        gemm_mma_##type(const struct matmul_params p) {     \
        body(token_rows, type);                             \
    }                                                       \
    KERNEL void __launch_bounds__(GEMM_MMA_THREADS)         \
        experts_mma_##type(const struct experts_params p) { \
        body(expert_rows, type);                            \
    }
#define GEMM_MMA_FLOATS(name)
#define GEMM_MMA_HALVES(name)         GEMM_MMA(name, GEMM_HALVES_BODY)
#define GEMM_MMA_BYTES(name)          GEMM_MMA(name, GEMM_BYTES_BODY)
#define WEIGHT(NAME, name, KIND, ...) GEMM_MMA_##KIND(name)
#include "kernels/weights.def"
#undef WEIGHT

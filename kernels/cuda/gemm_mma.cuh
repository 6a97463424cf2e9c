/* gemm_mma.cuh: tiles of a matmul on tensor cores, 7.5 and later, for gemm_mma.cu and
 * gemm_mma_narrow.cu; see gemm.cuh. In images for less the bodies are empty.
 *
 * A warp sums 32 rows x 32 tokens in 2 x 4 tiles of 16 x 8, of a narrow tile 32 x 16 in 2 x 2.
 *
 * Quantised types: 32 columns, a group of the weight and of the activations, are one int8
 * instruction per tile (m16n8k32; four m8n8k16 on 7.5). Its integers become floats with one add,
 * one product of scales and one multiply-add each, and one more with an offset: 12 or 16 float
 * operations per lane for one mma, which limit its speed. The scales of Q6_K cover 16 columns, so
 * it takes twice the instructions, of half the size (m16n8k16). It reads the same bytes as
 * gemm_dp4a.cu and gives the same result, bit for bit.
 *
 * F16 and BF16: x and BF16 weights are rounded to halves, 32 columns a step, for f16 instructions
 * with float sums (error of the result 2^-12 of its size; F32 weights would lose as much again and
 * are left to gemm_floats_f32). Halves end at 65504 and get coarse below 2^-14, so each line's
 * largest element is watched; where one lies outside 2^-6..2^15, the block starts again with that
 * line scaled by a power of two. Only such blocks read twice. A block reads 64 rows (2 bytes a
 * column) and 64 tokens (4): 21 operations per byte of L2.
 *
 * Owns nothing; device code only. Tested by tests/kernels/check_ops.c on every matmul of more than
 * MATVEC_TOKENS tokens.
 */
#ifndef TANDEM_KERNELS_CUDA_GEMM_MMA_CUH
#define TANDEM_KERNELS_CUDA_GEMM_MMA_CUH

#include "kernels/cuda/gemm.cuh"

#if CUDA_ARCH >= 750

// ---- What both have in common ------------------------------------------------------------------

// The four warps cover rows 0..31 and 32..63 by the two halves of the tokens. sums[4 N m + 4 n + e]
// is element e of the tile at rows 16 m and tokens 8 n of the warp's part.
template <int TILE_TOKENS> struct mma_places {
    static constexpr int TOKENS = TILE_TOKENS;
    static constexpr int N = TOKENS / 16; // tiles of 8 tokens of a warp
    static constexpr int X_LOADS = TOKENS / 32;
    using tile_type = gemm_tile<TOKENS>;

    DEVICE_FN int first_row(int t) { return t / 32 % 2 * 32; }
    DEVICE_FN int first_token(int t) { return t / 64 * (TOKENS / 2); }
    // t: this thread.
    DEVICE_FN int row(int sum, int t) {
        return first_row(t) + sum / (4 * N) * 16 + sum / 2 % 2 * 8 + t % 32 / 4;
    }
    DEVICE_FN int token(int sum, int t) {
        return first_token(t) + sum / 4 % N * 8 + t % 4 * 2 + sum % 2;
    }

    // Chunks 2 pair and 2 pair + 1 of the warp's lines as operands: w[m] is 16 rows x 32 bytes,
    // x[n / 2] + n % 2 * 2 is 8 tokens x 32 bytes.
    DEVICE_FN void load(uint32_t w[2][4], uint32_t x[X_LOADS][4], const tile_type &tile, int pair) {
        const int t = (int)threadIdx.x, line = t % 8, eight = t % 32 / 8;
#pragma unroll
        for (int i = 0; i < 2; i++) {
            int row = first_row(t) + 16 * i + eight % 2 * 8 + line;
            int token = first_token(t) + 16 * i + eight / 2 * 8 + line;
            ldmatrix_x4(w[i], tile.lines[row].chunks + 2 * pair + eight / 2);
            if (X_LOADS == 2 || i == 0)
                ldmatrix_x4(x[i], tile.lines[GEMM_ROWS + token].chunks + 2 * pair + eight % 2);
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
    mma_m16n8k16_s8(d, w, x);
#else
    mma_m8n8k16_s8(d, w[0], x), mma_m8n8k16_s8(d + 2, w[1], x);
#endif
}

template <class W, int TOKENS> struct mma_math : mma_places<TOKENS> {
    using places = mma_places<TOKENS>;
    using places::first_row, places::first_token, places::load, places::row, places::token;
    using places::N, places::X_LOADS;
    using typename places::tile_type;

    // Adds the four integers of a tile to sums, times the scales of its two rows and two tokens.
    DEVICE_FN void add_scaled(float *sums, const int *d, const float *w, const float *x) {
#pragma unroll
        for (int e = 0; e < 4; e++) sums[e] = fmaf(w[e / 2] * x[e % 2], gemm_float(d[e]), sums[e]);
    }
    DEVICE_FN void add_tile(float *sums, const uint32_t *w, const uint32_t *x,
                            const float2 *w_scales, const float2 *x_scales) {
        const float scales[2] = {w_scales[0].x, w_scales[1].x};
        const float offsets[2] = {w_scales[0].y, w_scales[1].y};
        const float of_tokens[2] = {x_scales[0].x, x_scales[1].x};
        int d[4] = {GEMM_FLOAT_BITS, GEMM_FLOAT_BITS, GEMM_FLOAT_BITS, GEMM_FLOAT_BITS};
        mma_32_bytes(d, w, x);
        if (quantised_lines<W, TOKENS>::HAS_OFFSET) {
#pragma unroll
            for (int e = 0; e < 4; e++) sums[e] = fmaf(offsets[e / 2], x_scales[e % 2].y, sums[e]);
        }
        if (W::TWO_OFFSETS) {
#pragma unroll
            for (int e = 0; e < 4; e++)
                sums[e] = add_two_offsets(sums[e], offsets[e / 2], x_scales[e % 2]);
        }
        add_scaled(sums, d, scales, of_tokens);
    }
    DEVICE_FN void add_group(float *sums, const tile_type &tile, int group) {
        const int t = (int)threadIdx.x;
        uint32_t w[2][4], x[X_LOADS][4];
        load(w, x, tile, group);
        float2 w_scales[4];
#pragma unroll
        for (int i = 0; i < 4; i++) // rows 8 apart
            w_scales[i] = tile.lines[row(i / 2 * 4 * N + i % 2 * 2, t)].scales[group];
#pragma unroll
        for (int n = 0; n < N; n++) {
            const float2 x_scales[2] = {tile.lines[GEMM_ROWS + token(4 * n, t)].scales[group],
                                        tile.lines[GEMM_ROWS + token(4 * n + 1, t)].scales[group]};
#pragma unroll
            for (int m = 0; m < 2; m++)
                add_tile(sums + 4 * N * m + 4 * n, w[m], x[n / 2] + n % 2 * 2, w_scales + 2 * m,
                         x_scales);
        }
    }
    // 16 columns of a type with two scales. Both halves of a group at once took 16 registers more.
    DEVICE_FN void add_chunk(float *sums, const tile_type &tile, int chunk) {
        const int t = (int)threadIdx.x;
        uint32_t w[4], x[4]; // w + 2 m: 16 rows, x + n: 8 tokens
        ldmatrix_x4(w, tile.lines[first_row(t) + t % 32].chunks + chunk);
        const int token_line = GEMM_ROWS + first_token(t) + t % (TOKENS / 2);
        if constexpr (N == 4)
            ldmatrix_x4(x, tile.lines[token_line].chunks + chunk);
        else
            ldmatrix_x2(x, tile.lines[token_line].chunks + chunk);
        float scales[4];
#pragma unroll
        for (int i = 0; i < 4; i++)
            scales[i] =
                (&tile.lines[row(i / 2 * 4 * N + i % 2 * 2, t)].scales[chunk / 2].x)[chunk % 2];
#pragma unroll
        for (int n = 0; n < N; n++) {
            const float of_tokens[2] = {
                tile.lines[GEMM_ROWS + token(4 * n, t)].scales[chunk / 2].x,
                tile.lines[GEMM_ROWS + token(4 * n + 1, t)].scales[chunk / 2].x};
#pragma unroll
            for (int m = 0; m < 2; m++) {
                int d[4] = {GEMM_FLOAT_BITS, GEMM_FLOAT_BITS, GEMM_FLOAT_BITS, GEMM_FLOAT_BITS};
                mma_16_bytes(d, w + 2 * m, x[n]);
                add_scaled(sums + 4 * N * m + 4 * n, d, scales + 2 * m, of_tokens);
            }
        }
    }
    DEVICE_FN void add(float *sums, const tile_type &tile) {
        constexpr int PARTS = W::TWO_SCALES ? 4 : 2;
        NO_UNROLL
        for (int i = 0; i < PARTS; i++) {
            if (W::TWO_SCALES)
                add_chunk(sums, tile, i);
            else
                add_group(sums, tile, i);
        }
    }
};

// ---- F16 and BF16 ------------------------------------------------------------------------------

// Lines of halves: 32 columns per step.
template <class W, int TOKENS> struct half_lines {
    using tile_type = gemm_tile<TOKENS>;
    const uint8_t *line;
    int n_cols;
    float scale;   // a power of two
    float largest; // largest magnitude so far, before scaling; 0 if every element is a half already

    template <class Rows>
    DEVICE_FN void open(half_lines &l, const typename Rows::params &p, const Rows &rows) {
        l.line = gemm_line_of(p, rows), l.n_cols = p.a.n_cols;
        l.scale = 1, l.largest = 0;
    }
    DEVICE_FN int steps(int n_cols) { return (n_cols + 31) / 32; }
    DEVICE_FN uint32_t two_to_halves(float a, float b) {
        return __float2half(a).bits | (uint32_t)__float2half(b).bits << 16;
    }
    template <class T> DEVICE_FN void load_as(half_lines &l, gemm_line *target, int step) {
        float v[4][8];
        gemm_eights<T, 4>(v, l.line, 32 * step, l.n_cols);
#pragma unroll
        for (int i = 0; i < 4; i++) {
#pragma unroll
            for (int k = 0; k < 8 && !T::IS_HALF; k++)
                l.largest = fmaxf(l.largest, fabsf(v[i][k])), v[i][k] *= l.scale;
            target->chunks[i] =
                make_uint4(two_to_halves(v[i][0], v[i][1]), two_to_halves(v[i][2], v[i][3]),
                           two_to_halves(v[i][4], v[i][5]), two_to_halves(v[i][6], v[i][7]));
        }
    }
    DEVICE_FN void fetch(half_lines &l, tile_type *tile, int step) {
        if constexpr (TOKENS < GEMM_TOKENS) // fewer lines than threads
            if (threadIdx.x >= GEMM_ROWS + TOKENS) return;
        if (gemm_brings_weight())
            load_as<W>(l, tile->lines + threadIdx.x, step);
        else
            load_as<weight_f32>(l, tile->lines + threadIdx.x, step);
    }
    DEVICE_FN void store(tile_type *, const half_lines &, int) {}
};

template <int TOKENS> struct half_math : mma_places<TOKENS> {
    using places = mma_places<TOKENS>;
    using places::load, places::N, places::X_LOADS;
    using typename places::tile_type;

    DEVICE_FN void add_tile(float *sums, const uint32_t *w, const uint32_t *x) {
#if CUDA_ARCH >= 800
        mma_m16n8k16_f16(sums, w, x);
#else
        mma_m16n8k8_f16(sums, w, x[0]), mma_m16n8k8_f16(sums, w + 2, x[1]);
#endif
    }
    DEVICE_FN void add(float *sums, const tile_type &tile) {
#pragma unroll
        for (int pair = 0; pair < 2; pair++) {
            uint32_t w[2][4], x[X_LOADS][4];
            load(w, x, tile, pair);
#pragma unroll
            for (int i = 0; i < 2 * N; i++)
                add_tile(sums + 4 * i, w[i / N], x[i % N / 2] + i % 2 * 2);
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

template <class Rows, class W, int TOKENS>
DEVICE_FN void gemm_halves(const typename Rows::params &p) {
    using lines_type = half_lines<W, TOKENS>;
    using math = half_math<TOKENS>;
    constexpr int SUMS = gemm_tile<TOKENS>::SUMS;
    __shared__ gemm_tile<TOKENS> tiles[2];
    __shared__ float scales[GEMM_THREADS]; // of rows, then of tokens
    __shared__ Rows kept;                  // as in gemm
    float sums[SUMS];
    Rows rows;
    gemm_find<TOKENS>(&rows, p);
    if (rows.count == 0) return;
    if (threadIdx.x == 0) kept = rows;
    lines_type lines;
    lines_type::open(lines, p, rows);
    bool again = false;
    do {
#pragma unroll
        for (int i = 0; i < SUMS; i++) sums[i] = 0;
        gemm_sum<lines_type, math, gemm_splits<typename Rows::params>::ANY>(
            sums, tiles, lines, gemm_first(p), gemm_end(p));
        if (again) break;
        lines.scale = scales[threadIdx.x] = half_scale(lines.largest);
        __syncthreads();
        again = any_scaled(scales);
    } while (again);
    if (again) {
#pragma unroll
        for (int i = 0; i < SUMS; i++) {
            sums[i] *= inverse_of_power(scales[math::row(i, (int)threadIdx.x)]);
            sums[i] *= inverse_of_power(scales[GEMM_ROWS + math::token(i, (int)threadIdx.x)]);
        }
    }
    gemm_write<math>(p, kept, sums);
}

#define GEMM_BYTES_BODY(rows, type, tokens) \
    gemm<rows, quantised_lines<weight_##type, tokens>, mma_math<weight_##type, tokens>>(p)
#define GEMM_HALF_BODY(rows, type, tokens) gemm_halves<rows, weight_##type, tokens>(p)

#else
#define GEMM_BYTES_BODY(rows, type, tokens) (void)p
#define GEMM_HALF_BODY(rows, type, tokens)  (void)p
#endif

#endif

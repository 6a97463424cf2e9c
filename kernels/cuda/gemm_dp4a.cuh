/* gemm_dp4a.cuh: tiles of a matmul without tensor cores, for gemm_dp4a.cu and gemm_dp4a_narrow.cu;
 * see gemm.cuh. Integer dot products of four columns; for F32, F16 and BF16 plain multiply-adds.
 *
 * A thread sums 8 rows x 4 tokens, of a narrow tile 8 x 2: per 16 bytes of a line 12 loads of 16
 * bytes from shared memory (the eight rows of a quarter warp lie in different banks, a token is one
 * address for all of it) feed 128 dot products; of a narrow one 10 loads 64. After 32 columns (16
 * for Q6_K) the integer sums become floats: one add, one product of scales and one multiply-add per
 * sum, and one more with an offset. A block reads 64 rows of the weight once (0.56 bytes a column
 * for Q4_K, 1.06 for Q8_0) and 64 tokens (1.25), writes 64 x 64 floats: 70 (Q4_K) or 55 (Q8_0)
 * operations per byte of L2. Owns nothing; device code only. Tested by tests/kernels/check_ops.c on
 * every matmul of more than MATVEC_TOKENS tokens.
 */
#ifndef TANDEM_KERNELS_CUDA_GEMM_DP4A_CUH
#define TANDEM_KERNELS_CUDA_GEMM_DP4A_CUH

#include "kernels/cuda/gemm.cuh"

// Lane l of warp w sums rows l % 8 + 8 i and tokens l / 8 + 4 w + 16 j in sums[8 j + i].
template <int TILE_TOKENS> struct dp4a_places {
    static constexpr int TOKENS = TILE_TOKENS;
    static constexpr int SUMS = gemm_tile<TOKENS>::SUMS;
    static constexpr int N = SUMS / 8; // tokens of a thread
    using tile_type = gemm_tile<TOKENS>;

    // t: this thread.
    DEVICE_FN int row(int sum, int t) { return t % 8 + sum % 8 * 8; }
    DEVICE_FN int token(int sum, int t) { return t / 8 + sum / 8 * 16; }
};

template <class W, int TOKENS> struct dp4a_math : dp4a_places<TOKENS> {
    using places = dp4a_places<TOKENS>;
    using places::N, places::row, places::SUMS, places::token;
    using typename places::tile_type;

    static constexpr int SPAN = W::TWO_SCALES ? 1 : 2; // chunks of 16 columns with one scale

    DEVICE_FN int dot(int sum, uint4 w, uint4 x) {
        sum = __dp4a((int)w.x, (int)x.x, sum), sum = __dp4a((int)w.y, (int)x.y, sum);
        sum = __dp4a((int)w.z, (int)x.z, sum), sum = __dp4a((int)w.w, (int)x.w, sum);
        return sum;
    }
    DEVICE_FN void add_dots(int *dots, const tile_type &tile, int chunk) {
        const int t = (int)threadIdx.x;
        uint4 x[N];
#pragma unroll
        for (int j = 0; j < N; j++) x[j] = tile.lines[GEMM_ROWS + token(8 * j, t)].chunks[chunk];
#pragma unroll
        for (int i = 0; i < 8; i++) {
            uint4 w = tile.lines[row(i, t)].chunks[chunk];
#pragma unroll
            for (int j = 0; j < N; j++) dots[8 * j + i] = dot(dots[8 * j + i], w, x[j]);
        }
    }
    DEVICE_FN void add_scaled(float *sums, const int *dots, const tile_type &tile, int chunk) {
        const int t = (int)threadIdx.x;
        float2 x[N];
#pragma unroll
        for (int j = 0; j < N; j++)
            x[j] = tile.lines[GEMM_ROWS + token(8 * j, t)].scales[chunk / 2];
#pragma unroll
        for (int i = 0; i < 8; i++) {
            float2 w = tile.lines[row(i, t)].scales[chunk / 2];
            float scale = W::TWO_SCALES && chunk % 2 ? w.y : w.x;
#pragma unroll
            for (int j = 0; j < N; j++) {
                float *sum = sums + 8 * j + i;
                if (quantised_lines<W, TOKENS>::HAS_OFFSET) *sum = fmaf(w.y, x[j].y, *sum);
                if (W::TWO_OFFSETS) *sum = add_two_offsets(*sum, w.y, x[j]);
                *sum = fmaf(scale * x[j].x, gemm_float(dots[8 * j + i]), *sum);
            }
        }
    }
    DEVICE_FN void add(float *sums, const tile_type &tile) {
#pragma unroll 1
        for (int chunk = 0; chunk < 4; chunk += SPAN) {
            int dots[SUMS];
#pragma unroll
            for (int i = 0; i < SUMS; i++) dots[i] = GEMM_FLOAT_BITS;
#pragma unroll 1
            for (int k = 0; k < SPAN; k++) add_dots(dots, tile, chunk + k);
            add_scaled(sums, dots, tile, chunk);
        }
    }
};

// Lines of floats: 16 columns per step.
template <class W, int TOKENS> struct float_lines {
    using tile_type = gemm_tile<TOKENS>;
    const uint8_t *line;
    int n_cols;

    template <class Rows>
    DEVICE_FN void open(float_lines &l, const typename Rows::params &p, const Rows &rows) {
        l.line = gemm_line_of(p, rows), l.n_cols = p.a.n_cols;
    }
    DEVICE_FN int steps(int n_cols) { return (n_cols + 15) / 16; }
    DEVICE_FN void fetch(float_lines &l, tile_type *tile, int step) {
        if constexpr (TOKENS < GEMM_TOKENS) // fewer lines than threads
            if (threadIdx.x >= GEMM_ROWS + TOKENS) return;
        gemm_line *target = tile->lines + threadIdx.x;
        float v[2][8];
        if (gemm_brings_weight())
            gemm_eights<W, 2>(v, l.line, 16 * step, l.n_cols);
        else
            gemm_eights<weight_f32, 2>(v, l.line, 16 * step, l.n_cols);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float *four = v[i / 2] + i % 2 * 4;
            target->chunks[i] = make_uint4(__float_as_uint(four[0]), __float_as_uint(four[1]),
                                           __float_as_uint(four[2]), __float_as_uint(four[3]));
        }
    }
    DEVICE_FN void store(tile_type *, const float_lines &, int) {}
};

template <int TOKENS> struct float_math : dp4a_places<TOKENS> {
    using places = dp4a_places<TOKENS>;
    using places::N, places::row, places::token;
    using typename places::tile_type;

    DEVICE_FN float dot(float sum, uint4 w, uint4 x) {
        sum = fmaf(__uint_as_float(w.x), __uint_as_float(x.x), sum);
        sum = fmaf(__uint_as_float(w.y), __uint_as_float(x.y), sum);
        sum = fmaf(__uint_as_float(w.z), __uint_as_float(x.z), sum);
        return fmaf(__uint_as_float(w.w), __uint_as_float(x.w), sum);
    }
    DEVICE_FN void add(float *sums, const tile_type &tile) {
#pragma unroll 1
        for (int chunk = 0; chunk < 4; chunk++) {
            const int t = (int)threadIdx.x;
            uint4 x[N];
#pragma unroll
            for (int j = 0; j < N; j++)
                x[j] = tile.lines[GEMM_ROWS + token(8 * j, t)].chunks[chunk];
#pragma unroll
            for (int i = 0; i < 8; i++) {
                uint4 w = tile.lines[row(i, t)].chunks[chunk];
#pragma unroll
                for (int j = 0; j < N; j++) sums[8 * j + i] = dot(sums[8 * j + i], w, x[j]);
            }
        }
    }
};

// As many blocks of a multiprocessor as there happen to be, but for Q5_1 of 8.0 and later in narrow
// tiles, which spilled; floats are measured with it.
static constexpr int DP4A_NARROW_BLOCKS = CUDA_ARCH < 800 ? 0 : 4;

// The lines and the math of a weight type of each kind, for tiles of that many tokens.
#define DP4A_FLOATS(name, n_tokens) float_lines<weight_##name, n_tokens>, float_math<n_tokens>
#define DP4A_HALVES                 DP4A_FLOATS
#define DP4A_BYTES(name, n_tokens) \
    quantised_lines<weight_##name, n_tokens>, dp4a_math<weight_##name, n_tokens>

#endif

/* gemm.cuh: what the tiled matmul kernels share: the tile in shared memory, how weights and
 * activations get there, the loop over columns and the writing of the results.
 *
 * A block of GEMM_THREADS threads multiplies GEMM_SIDE rows of the weight with GEMM_SIDE tokens:
 * consecutive tokens for matmul, pairs of one expert in route's order for matmul_experts
 * (rows.cuh). It walks along the columns in steps; a step's tile is a line of 80 bytes per row and
 * per token, and each thread loads one line: the first half of the block the rows, the other half
 * the tokens. The kernel's Lines defines what a line holds (bytes with scales, halves or floats);
 * its Math multiplies two lines. There are two tiles: a thread loads the lines of the next step
 * into registers before it computes the sums of this one, and stores them after, so one barrier per
 * step suffices.
 *
 * 80 bytes are 20 banks: 16 bytes of eight neighbouring lines, or 8 of every other line, lie in
 * different banks. Rows and tokens past the end repeat the last one and are not written. The
 * products of a sum and their order depend on n_cols alone, so a result is the same for every
 * number of tokens and every row range. Owns nothing; device code only. Tested by
 * tests/kernels/check_ops.c on every matmul of more than MATVEC_TOKENS tokens.
 */
#ifndef TANDEM_KERNELS_CUDA_GEMM_CUH
#define TANDEM_KERNELS_CUDA_GEMM_CUH

#include "kernels/cuda/activations.cuh"
#include "kernels/cuda/blocks.cuh"
#include "kernels/cuda/params.h"
#include "kernels/cuda/rows.cuh"

static constexpr int GEMM_SIDE = 64;               // rows, and tokens, of a tile
static constexpr int GEMM_THREADS = 2 * GEMM_SIDE; // a line each
static constexpr int GEMM_SUMS = GEMM_SIDE * GEMM_SIDE / GEMM_THREADS; // of one thread
static_assert(GEMM_DP4A_THREADS == GEMM_THREADS && GEMM_MMA_THREADS == GEMM_THREADS,
              "a thread brings a line");
static_assert(GEMM_DP4A_ROWS == GEMM_SIDE && GEMM_DP4A_TOKENS == GEMM_SIDE &&
                  GEMM_MMA_ROWS == GEMM_SIDE && GEMM_MMA_TOKENS == GEMM_SIDE,
              "the tiles are square");

// A row's or a token's part of a step. Quantised: 64 columns as signed bytes, and for each of their
// two groups scales[i] = {scale, offset} of a weight, {scale of 0..15, scale of 16..31} of a weight
// with two scales, {scale, sum} of a token; with two offsets see add_two_offsets. Else 16 columns
// as floats or 32 as halves.
struct alignas(16) gemm_line {
    uint4 chunks[4];
    float2 scales[2];
};
static_assert(sizeof(gemm_line) == 80, "lines lie 20 banks apart");

struct gemm_tile {
    gemm_line lines[GEMM_THREADS]; // the rows, then the tokens
};

// ---- Lines -------------------------------------------------------------------------------------

// True if this thread loads a line of the weight, false if a line of a token.
DEVICE_FN bool gemm_brings_weight() { return threadIdx.x < GEMM_SIDE; }
template <class Rows>
DEVICE_FN const uint8_t *gemm_weight(const typename Rows::params &p, const Rows &rows) {
    int row = (int)blockIdx.y * GEMM_SIDE + (int)threadIdx.x % GEMM_SIDE;
    return Rows::weight(p, rows) + (p.a.row_first + min(row, p.a.row_count - 1)) * p.weight_stride;
}
// The row of activations of this thread's line.
template <class Rows>
DEVICE_FN int64_t gemm_x_row(const typename Rows::params &p, const Rows &rows) {
    return Rows::x_row(p, rows, min((int)threadIdx.x % GEMM_SIDE, rows.count - 1));
}

// Finds the block's tokens or pairs. If it has none, count is 0 and the block must return.
DEVICE_FN void gemm_find(token_rows *rows, const struct matmul_params &p) {
    rows->first = (int)blockIdx.x * GEMM_SIDE;
    rows->count = min(p.a.n_tokens - rows->first, GEMM_SIDE);
}
DEVICE_FN void gemm_find(expert_rows *rows, const struct experts_params &p) {
    *rows = find_tile(p.a, (int)blockIdx.x, GEMM_SIDE);
}

// The minima of a group with TWO_OFFSETS lie in the lowest bits of its offset, which are 0 in a
// half that became a float; a token's scale has the sums of both halves beside it, 16 bits each.
DEVICE_FN float with_minima(float offset, uint32_t minima) {
    return __uint_as_float(__float_as_uint(offset) | minima);
}
DEVICE_FN float half_sums(uint4 low, uint4 high) {
    const uint32_t words[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
    int sums[2] = {0, 0};
#pragma unroll
    for (int i = 0; i < 8; i++) sums[i / 4] = __dp4a((int)words[i], 0x01010101, sums[i / 4]);
    return __uint_as_float((uint32_t)(sums[0] & 0xffff) | (uint32_t)sums[1] << 16);
}
// sum + both offsets times a token, from the scales of their lines.
DEVICE_FN float add_two_offsets(float sum, float w, float2 x) {
    uint32_t bits = __float_as_uint(w), pair = __float_as_uint(x.y);
    int low = (int)(bits & 15) * (int16_t)pair,
        high = (int)(bits >> 4 & 15) * (int16_t)(pair >> 16);
    return fmaf(__uint_as_float(bits & ~0xffu) * x.x, (float)(low + high), sum);
}

// Lines of a quantised type. A step is 64 columns: an item of two groups (for Q6_K two columns of
// groups apart) or two items of one.
template <class W> struct quantised_lines {
    static constexpr bool SCALES = true;
    static constexpr bool HAS_OFFSET = W::HAS_OFFSET && W::CENTRE == 0;
    const uint8_t *line;
    int n_cols;

    template <class Rows>
    DEVICE_FN quantised_lines open(const typename Rows::params &p, const Rows &rows) {
        if (gemm_brings_weight()) return {gemm_weight(p, rows), p.a.n_cols};
        return {(const uint8_t *)p.a.scratch + gemm_x_row(p, rows) * p.acts_stride, p.a.n_cols};
    }
    DEVICE_FN int steps(int n_cols) { return (n_cols + 63) / 64; }
    DEVICE_FN int group(int step, int i) {
        return W::ITEM_GROUPS == 2 ? W::first_group(step) + i * W::ITEM_STEP : 2 * step + i;
    }
    DEVICE_FN void put(gemm_line *out, int i, const weight_group &g) {
        uint32_t words[8];
#pragma unroll
        for (int k = 0; k < 8; k++)
            words[k] = W::CENTRE ? centre_bytes<W::CENTRE>(g.words[k]) : g.words[k];
        out->chunks[2 * i] = make_uint4(words[0], words[1], words[2], words[3]);
        out->chunks[2 * i + 1] = make_uint4(words[4], words[5], words[6], words[7]);
        float second = W::TWO_SCALES ? g.scale_high : g.offset;
        if (W::TWO_OFFSETS) second = with_minima(second, g.minima);
        out->scales[i] = make_float2(g.scale, second);
    }
    // The last step of a row with an odd number of groups has no second group.
    DEVICE_FN void clear_second(gemm_line *out) {
        out->chunks[2] = out->chunks[3] = make_uint4(0, 0, 0, 0);
        out->scales[1] = make_float2(0, 0);
    }
    DEVICE_FN void load_weight(gemm_line *out, const quantised_lines &l, int step) {
        weight_group groups[2];
        W::load(groups, l.line, W::ITEM_GROUPS == 2 ? step : 2 * step);
        put(out, 0, groups[0]);
        if (W::ITEM_GROUPS == 1) {
            if (64 * step + 32 >= l.n_cols) return clear_second(out);
            W::load(groups + 1, l.line, 2 * step + 1);
        }
        put(out, 1, groups[1]);
    }
    DEVICE_FN void load_acts(gemm_line *out, const quantised_lines &l, int step) {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            int g = group(step, i);
            if (32 * g >= l.n_cols) return clear_second(out);
            const uint4 *bytes = (const uint4 *)acts_bytes(l.line, g);
            out->chunks[2 * i] = __ldg(bytes), out->chunks[2 * i + 1] = __ldg(bytes + 1);
            out->scales[i] = acts_scale(l.line, l.n_cols, g);
            if (W::TWO_OFFSETS)
                out->scales[i].y = half_sums(out->chunks[2 * i], out->chunks[2 * i + 1]);
        }
    }
    DEVICE_FN void load(gemm_line *out, quantised_lines &l, int step) {
        if (gemm_brings_weight())
            load_weight(out, l, step);
        else
            load_acts(out, l, step);
    }
};

// Loads eight columns from column on as floats, with zeros past the end.
template <class W>
DEVICE_FN void gemm_eight(float *out, const uint8_t *line, int column, int n_cols) {
    if (n_cols % 8 == 0 && column < n_cols) {
        W::eight(out, line, column);
        return;
    }
#pragma unroll
    for (int i = 0; i < 8; i++) out[i] = column + i < n_cols ? W::element(line, column + i) : 0;
}

// ---- The loop and its results ------------------------------------------------------------------

template <class Lines> DEVICE_FN void gemm_store(gemm_tile *tile, const gemm_line &line) {
    gemm_line *target = tile->lines + threadIdx.x;
#pragma unroll
    for (int i = 0; i < 4; i++) target->chunks[i] = line.chunks[i];
    if (!Lines::SCALES) return;
    target->scales[0] = line.scales[0], target->scales[1] = line.scales[1];
}

// Adds the products of all columns to sums. Shared memory may be reused at once afterwards.
template <class Lines, class Math>
DEVICE_FN void gemm_sum(float *sums, gemm_tile *tiles, Lines &lines, int n_cols) {
    int n_steps = Lines::steps(n_cols);
    gemm_line line;
    Lines::load(&line, lines, 0);
    gemm_store<Lines>(tiles, line);
    __syncthreads();
    for (int step = 0; step < n_steps; step++) {
        bool more = step + 1 < n_steps;
        if (more) Lines::load(&line, lines, step + 1);
        Math::add(sums, tiles[step % 2]);
        if (more) gemm_store<Lines>(tiles + (step + 1) % 2, line);
        __syncthreads();
    }
}

// The place of sums[i] in out: Math::row(i) and Math::token(i) are its row and token in the tile.
// row is the row of the weight, -1 outside of the matrix.
struct gemm_place {
    int row;
    int64_t out;
};
template <class Math, class Rows>
DEVICE_FN gemm_place gemm_place_of(const typename Rows::params &p, const Rows &rows, int i) {
    int row = (int)blockIdx.y * GEMM_SIDE + Math::row(i), place = Math::token(i);
    if (row >= p.a.row_count || place >= rows.count) return {-1, 0};
    row += p.a.row_first;
    return {row, (int64_t)Rows::out_row(p, rows, place) * p.a.out_stride + row};
}

// Writes four sums at a time: residual may be out, so the compiler moves no load before a store,
// and 32 loads would wait for each other. With eight at a time the F16 kernel spilled registers on
// 9.0.
template <class Math, class Rows>
DEVICE_FN void gemm_write(const typename Rows::params &p, const Rows &rows, const float *sums) {
    constexpr int N = 4;
#pragma unroll
    for (int first = 0; first < GEMM_SUMS; first += N) {
        gemm_place places[N];
        float bias[N], residual[N];
#pragma unroll
        for (int i = 0; i < N; i++) {
            places[i] = gemm_place_of<Math>(p, rows, first + i);
            bias[i] = places[i].row >= 0 ? Rows::bias(p, rows, places[i].row) : 0;
            residual[i] = places[i].row >= 0 ? Rows::residual(p, places[i].out) : 0;
        }
#pragma unroll
        for (int i = 0; i < N; i++)
            if (places[i].row >= 0)
                p.a.out[places[i].out] = sums[first + i] + bias[i] + residual[i];
    }
}

template <class Rows, class Lines, class Math> DEVICE_FN void gemm(const typename Rows::params &p) {
    __shared__ gemm_tile tiles[2];
    __shared__ Rows kept; // kept here during the loop, which has no registers to spare
    float sums[GEMM_SUMS] = {};
    Rows rows;
    gemm_find(&rows, p);
    if (rows.count == 0) return;
    if (Rows::SEARCHED && threadIdx.x == 0) kept = rows;
    Lines lines = Lines::open(p, rows);
    gemm_sum<Lines, Math>(sums, tiles, lines, p.a.n_cols);
    gemm_write<Math>(p, Rows::SEARCHED ? kept : rows, sums);
}

// ---- Sums of bytes to floats -------------------------------------------------------------------

// Added to an integer sum of magnitude below 2^22 this gives the bits of the float 1.5 * 2^23 plus
// the sum. Subtracting the constant is cheaper than a conversion, and as exact.
static constexpr int GEMM_FLOAT_BITS = 0x4b400000;
DEVICE_FN float gemm_float(int bits) { return __int_as_float(bits) - 12582912.0F; }

#endif

/* gemm.cuh: what the tiled matmul kernels share: the tile in shared memory, how weights and
 * activations get there, the loop over columns and the writing of the results.
 *
 * A block of GEMM_THREADS threads multiplies GEMM_ROWS rows of the weight with GEMM_TOKENS tokens,
 * in narrow tiles with GEMM_NARROW_TOKENS: consecutive tokens for matmul, pairs of one expert in
 * route's order for matmul_experts (rows.cuh). It walks along the columns in steps; a step's tile
 * is a line of 80 bytes per row and per token. The kernel's Lines defines what a line holds (bytes
 * with scales, halves or floats) and which thread brings what; its Math multiplies two lines. There
 * are two tiles: threads fetch what the lines of the next step are made of into registers before
 * they compute the sums of this one, and store the lines after, so one barrier per step suffices
 * and no arithmetic waits for memory. Lines that take arithmetic of their own (floats, halves,
 * types of codebooks) are stored as they are fetched, which keeps 8 to 16 registers free.
 *
 * Quantised types: two neighbouring threads load half of a row each, in units of 16 bytes
 * (gemm_raw.cuh), and the tokens' tiles (activations.cuh) as they lie in memory. The loads of a
 * step and block touch 120 cache lines of 128 bytes for Q4_K: 64 for nibbles, 16 for headers, which
 * are loaded for four steps at once, 40 for tokens.
 *
 * 80 bytes are 20 banks: 16 bytes of eight neighbouring lines, or 8 of every other line, lie in
 * different banks. Rows and tokens past the end repeat the last one and are not written. The
 * products of a sum and their order depend on n_cols alone, and in narrow tiles on the number of
 * splits, which follows from the grid; else a result is the same for every number of tokens and
 * every row range. Owns nothing; device code only. Tested by tests/kernels/check_ops.c on every
 * matmul of more than MATVEC_TOKENS tokens.
 */
#ifndef TANDEM_KERNELS_CUDA_GEMM_CUH
#define TANDEM_KERNELS_CUDA_GEMM_CUH

#include "kernels/cuda/activations.cuh"
#include "kernels/cuda/gemm_raw.cuh"
#include "kernels/cuda/params.h"
#include "kernels/cuda/rows.cuh"

// A thread brings a line, or half of one of the weight and of one of a token.
static_assert(GEMM_THREADS == GEMM_ROWS + GEMM_TOKENS, "a line for each thread of a full tile");
static_assert(GEMM_THREADS == 2 * GEMM_ROWS, "two threads bring a row of a quantised weight");
static_assert(ACTS_TILE == GEMM_TOKENS && ACTS_TILE % GEMM_NARROW_TOKENS == 0,
              "the tokens of a block lie in one tile");

// A row's or a token's part of a step. Quantised: 64 columns as signed bytes, and for each of their
// two groups scales[i] = {scale, offset} of a weight, {scale of 0..15, scale of 16..31} of a weight
// with two scales, {scale, sum} of a token; with two offsets see add_two_offsets. Else 16 columns
// as floats or 32 as halves.
struct alignas(16) gemm_line {
    uint4 chunks[4];
    float2 scales[2];
};
static_assert(sizeof(gemm_line) == 80, "lines lie 20 banks apart");

template <int TOKENS> struct gemm_tile {
    static constexpr int SUMS = GEMM_ROWS * TOKENS / GEMM_THREADS; // of one thread
    gemm_line lines[GEMM_ROWS + TOKENS];                           // the rows, then the tokens
};

// ---- Lines -------------------------------------------------------------------------------------

// How floats and halves are loaded: the first half of the block the rows, the other half the
// tokens, a line each. True if this thread loads a line of the weight.
DEVICE_FN bool gemm_brings_weight() { return threadIdx.x < GEMM_ROWS; }
template <class Rows>
DEVICE_FN const uint8_t *gemm_weight(const typename Rows::params &p, const Rows &rows, int line) {
    int row = (int)blockIdx.y * GEMM_ROWS + line;
    return Rows::weight(p, rows) + (p.a.row_first + min(row, p.a.row_count - 1)) * p.weight_stride;
}
// The row of activations of a token's line.
template <class Rows>
DEVICE_FN int gemm_x_row(const typename Rows::params &p, const Rows &rows, int line) {
    return Rows::x_row(p, rows, min(line, rows.count - 1));
}
// The line of floats or halves that this thread loads.
template <class Rows>
DEVICE_FN const uint8_t *gemm_line_of(const typename Rows::params &p, const Rows &rows) {
    const int line = (int)threadIdx.x % GEMM_ROWS;
    if (gemm_brings_weight()) return gemm_weight(p, rows, line);
    return (const uint8_t *)(p.a.x + (int64_t)gemm_x_row(p, rows, line) * p.a.n_cols);
}

// Finds the block's tokens or pairs. If it has none, count is 0 and the block must return.
template <int TOKENS, class Params>
DEVICE_FN void gemm_find(rows_of_tokens<Params> *rows, const Params &p) {
    rows->first = (int)blockIdx.x * TOKENS;
    rows->count = min(p.a.n_tokens - rows->first, TOKENS);
}
template <int TOKENS> DEVICE_FN void gemm_find(expert_rows *rows, const struct experts_params &p) {
    *rows = find_tile(p.a, (int)blockIdx.x, TOKENS);
}

// The columns of the block are those before gemm_end, from 0 or, in a split, a multiple of 256 on.
template <class Params> struct gemm_splits { static constexpr bool ANY = false; };
template <> struct gemm_splits<struct narrow_params> { static constexpr bool ANY = true; };
template <class Params> DEVICE_FN int gemm_end(const Params &p) { return p.a.n_cols; }
DEVICE_FN int gemm_end(const struct narrow_params &p) {
    return min((int)(blockIdx.z + 1) * p.split_cols, p.a.n_cols);
}
template <class Params> DEVICE_FN int gemm_first(const Params &) { return 0; }
DEVICE_FN int gemm_first(const struct narrow_params &p) { return (int)blockIdx.z * p.split_cols; }

// sum + both offsets times a token, from the scales of their lines. The minima of a group with
// TWO_OFFSETS lie in the lowest bits of its offset (with_minima); a token's scale has the sums of
// both halves beside it, 16 bits each.
DEVICE_FN float add_two_offsets(float sum, float w, float2 x) {
    uint32_t bits = __float_as_uint(w), pair = __float_as_uint(x.y);
    int low = (int)(bits & 15) * (int16_t)pair,
        high = (int)(bits >> 4 & 15) * (int16_t)(pair >> 16);
    return fmaf(__uint_as_float(bits & ~0xffu) * x.x, (float)(low + high), sum);
}

// The rows of activations of a matmul, in tiles.
template <class Params> DEVICE_FN int gemm_n_x(const Params &p) { return p.a.n_tokens; }
DEVICE_FN int gemm_n_x(const struct experts_params &p) {
    return p.a.x_per_pair ? p.a.n_tokens * p.a.n_used : p.a.n_tokens;
}

// Where the bytes of a token and its scales lie in the tile of step 0, and how far apart tiles are,
// in units of 16 bytes.
struct gemm_acts_place {
    int bytes, scales, apart;
};
template <class Rows>
DEVICE_FN gemm_acts_place gemm_acts_at(const typename Rows::params &p, const Rows &rows,
                                       int token) {
    const int x_row = gemm_x_row(p, rows, token);
    const int height = acts_tile_height(x_row, gemm_n_x(p)), line = x_row % ACTS_TILE;
    const int tile = (int)(acts_tile_at(x_row, 0, (p.a.n_cols + 63) / 64, height) / 16);
    return {tile + 4 * line, tile + 4 * height + line, height * ACTS_LINE / 16};
}

// Brings the tokens' lines of a quantised type: a thread two chunks and the scale of a group. Eight
// threads load the chunks of tokens 4 apart, which they store to different banks. From 8.0 on the
// chunks are copied to the tile without a register.
template <class W, int TOKENS> struct gemm_acts {
    static constexpr bool COPIES = CUDA_ARCH >= 800;
    static constexpr int CHUNKS = 4 * TOKENS / GEMM_THREADS; // of one thread
    using tile_type = gemm_tile<TOKENS>;
    uint4 chunks[CHUNKS]; // unless COPIES
    float2 scale;

    // Thread t brings these.
    DEVICE_FN int chunk_token(int t, int i) {
        return 32 * i + t / 32 * 8 + t / 8 % 4 + t / 4 % 2 * 4;
    }
    DEVICE_FN int chunk(int t) { return t % 4; }
    DEVICE_FN int scale_token(int t) { return t / 2; }
    DEVICE_FN int scale_group(int t) { return t % 2; }

    // Group i of a step.
    DEVICE_FN int group(int step, int i) {
        return W::ITEM_GROUPS == 2 ? W::first_group(step) + i * W::ITEM_STEP : 2 * step + i;
    }
    // source: all tiles in memory.
    DEVICE_FN void fetch(gemm_acts &acts, tile_type *tile, const void *source,
                         const gemm_acts_place *places, int step) {
        const int t = in_loop((int)threadIdx.x);
        const int g = group(step, chunk(t) / 2), of_scale = group(step, scale_group(t));
#pragma unroll
        for (int i = 0; i < CHUNKS; i++) {
            const gemm_acts_place place = places[chunk_token(t, i)];
            const uint4 *bytes = (const uint4 *)source + place.bytes + g / 2 * place.apart +
                                 g % 2 * 2 + chunk(t) % 2;
            if (COPIES)
                cp_async16(tile->lines[GEMM_ROWS + chunk_token(t, i)].chunks + chunk(t), bytes);
            else
                acts.chunks[i] = __ldg(bytes);
        }
        cp_async_commit();
        if constexpr (TOKENS < GEMM_TOKENS)
            if (t >= 2 * TOKENS) return;
        const gemm_acts_place place = places[scale_token(t)];
        const uint4 *pair = (const uint4 *)source + place.scales + of_scale / 2 * place.apart;
        uint2 bits = __ldg((const uint2 *)pair + of_scale % 2);
        acts.scale = make_float2(__uint_as_float(bits.x), __uint_as_float(bits.y));
    }
    DEVICE_FN int sum_of(uint4 bytes) {
        const int ones = 0x01010101;
        int sum = __dp4a((int)bytes.x, ones, __dp4a((int)bytes.y, ones, 0));
        return __dp4a((int)bytes.z, ones, __dp4a((int)bytes.w, ones, sum));
    }
    DEVICE_FN void store(tile_type *tile, const gemm_acts &acts, int t) {
        cp_async_wait<0>();
#pragma unroll
        for (int i = 0; i < CHUNKS; i++) {
            gemm_line *line = tile->lines + GEMM_ROWS + chunk_token(t, i);
            if (!COPIES) line->chunks[chunk(t)] = acts.chunks[i];
            if (W::TWO_OFFSETS)
                ((int16_t *)&line->scales[chunk(t) / 2].y)[chunk(t) % 2] =
                    (int16_t)sum_of(line->chunks[chunk(t)]);
        }
        if constexpr (TOKENS < GEMM_TOKENS)
            if (t >= 2 * TOKENS) return;
        float2 *scale = tile->lines[GEMM_ROWS + scale_token(t)].scales + scale_group(t);
        if (W::TWO_OFFSETS)
            scale->x = acts.scale.x;
        else
            *scale = acts.scale;
    }
};

// Lines of a quantised type. A step is 64 columns: an item of two groups (for Q6_K two columns of
// groups apart) or two items of one. Two threads bring a row (see gemm_raw), and all the tokens.
template <class W, int TOKENS> struct quantised_lines {
    using tile_type = gemm_tile<TOKENS>;
    static constexpr bool HAS_OFFSET = W::HAS_OFFSET && W::CENTRE == 0;
    const uint8_t *row;
    const void *tiles;
    const gemm_acts_place *places; // of the block's tokens
    int n_cols;
    typename gemm_raw<W>::words raw;
    gemm_acts<W, TOKENS> acts;

    // The row of this thread: those of eight threads are 2 apart, so that they store to different
    // banks.
    DEVICE_FN int line(int t) { return t / 16 * 8 + t / 8 % 2 + t / 2 % 4 * 2; }
    DEVICE_FN int half(int t) { return t % 2; }
    template <class Rows>
    DEVICE_FN void open(quantised_lines &l, const typename Rows::params &p, const Rows &rows) {
        l.row = gemm_weight(p, rows, line((int)threadIdx.x));
        l.tiles = p.a.scratch, l.n_cols = p.a.n_cols;
        __shared__ gemm_acts_place places[TOKENS]; // registers are short
        if (threadIdx.x < TOKENS) places[threadIdx.x] = gemm_acts_at(p, rows, (int)threadIdx.x);
        l.places = places;
        __syncthreads();
    }
    DEVICE_FN int steps(int n_cols) { return (n_cols + 63) / 64; }
    DEVICE_FN void put(tile_type *tile, const typename gemm_raw<W>::words &raw, gemm_item item,
                       int t) {
        gemm_half w;
        gemm_raw<W>::unpack(w, raw, item);
        gemm_line *target = tile->lines + line(t);
        const int first = gemm_raw<W>::BY_GROUP ? 2 * half(t) : half(t);
        target->chunks[first] = w.chunks[0];
        target->chunks[first + (gemm_raw<W>::BY_GROUP ? 1 : 2)] = w.chunks[1];
        if (W::TWO_SCALES && !gemm_raw<W>::BY_GROUP)
            (&target->scales[0].x)[half(t)] = w.scale.x,
            (&target->scales[1].x)[half(t)] = w.scale.y;
        else
            target->scales[half(t)] = w.scale;
    }
    DEVICE_FN void fetch(quantised_lines &l, tile_type *tile, int step) {
        const int t = in_loop((int)threadIdx.x);
        const gemm_item item = {step, half(t), l.n_cols};
        if (gemm_raw<W>::AT_ONCE) {
            typename gemm_raw<W>::words raw;
            gemm_raw<W>::fetch(raw, l.row, item);
            put(tile, raw, item, t);
        } else {
            gemm_raw<W>::fetch(l.raw, l.row, item);
        }
        gemm_acts<W, TOKENS>::fetch(l.acts, tile, l.tiles, l.places, step);
    }
    DEVICE_FN void store(tile_type *tile, const quantised_lines &l, int step) {
        const int t = in_loop((int)threadIdx.x); // or all these places stay in registers
        if (!gemm_raw<W>::AT_ONCE) put(tile, l.raw, gemm_item{step, half(t), l.n_cols}, t);
        gemm_acts<W, TOKENS>::store(tile, l.acts, t);
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

// The same for N times eight columns, with one branch for all, so that all loads are under way
// before the first is used.
template <class W, int N>
DEVICE_FN void gemm_eights(float out[N][8], const uint8_t *line, int column, int n_cols) {
    if (n_cols % 8 == 0 && column + 8 * N <= n_cols) {
#pragma unroll
        for (int i = 0; i < N; i++) W::eight(out[i], line, column + 8 * i);
    } else {
#pragma unroll
        for (int i = 0; i < N; i++) gemm_eight<W>(out[i], line, column + 8 * i, n_cols);
    }
}

// ---- The loop and its results ------------------------------------------------------------------

// Adds the products of the columns from first_col to end_col to sums; without SPLITS first_col is
// 0. Shared memory may be reused at once afterwards.
template <class Lines, class Math, bool SPLITS>
DEVICE_FN void gemm_sum(float *sums, typename Lines::tile_type *tiles, Lines &lines, int first_col,
                        int end_col) {
    const int first = SPLITS ? Lines::steps(first_col) : 0, n_steps = Lines::steps(end_col);
    Lines::fetch(lines, tiles, first);
    Lines::store(tiles, lines, first);
    __syncthreads();
    for (int step = first; step < n_steps; step++) {
        bool more = step + 1 < n_steps;
        if (more) Lines::fetch(lines, tiles + (step + 1) % 2, step + 1);
        Math::add(sums, tiles[step % 2]);
        if (more) Lines::store(tiles + (step + 1) % 2, lines, step + 1);
        __syncthreads();
    }
}

// The place of sums[i] of thread t in out: Math::row and Math::token are its row and token in the
// tile. row is the row of the weight, -1 outside of the matrix.
struct gemm_place {
    int row;
    int64_t out;
};
template <class Math, class Rows>
DEVICE_FN gemm_place gemm_place_of(const typename Rows::params &p, const Rows &rows, int i, int t) {
    int row = (int)blockIdx.y * GEMM_ROWS + Math::row(i, t), place = Math::token(i, t);
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
    const int t = in_loop((int)threadIdx.x); // or places are kept over the loop
#pragma unroll
    for (int first = 0; first < gemm_tile<Math::TOKENS>::SUMS; first += N) {
        gemm_place places[N];
        float bias[N], residual[N];
#pragma unroll
        for (int i = 0; i < N; i++) {
            places[i] = gemm_place_of<Math>(p, rows, first + i, t);
            bias[i] = places[i].row >= 0 ? Rows::bias(p, rows, places[i].row) : 0;
            residual[i] = places[i].row >= 0 ? Rows::residual(p, places[i].out) : 0;
        }
#pragma unroll
        for (int i = 0; i < N; i++)
            if (places[i].row >= 0)
                p.a.out[places[i].out] = sums[first + i] + bias[i] + residual[i];
    }
}

// The sums of one of several splits go to partial, as narrow_params says.
template <class Math>
DEVICE_FN void gemm_write(const struct narrow_params &p, const narrow_rows &rows,
                          const float *sums) {
    if (!p.partial) {
        gemm_write<Math, narrow_rows>(p, rows, sums);
        return;
    }
    const int t = in_loop((int)threadIdx.x), row_first = (int)blockIdx.y * GEMM_ROWS;
    const int64_t token_first = (int64_t)blockIdx.z * p.a.n_tokens + rows.first;
#pragma unroll
    for (int i = 0; i < gemm_tile<Math::TOKENS>::SUMS; i++) {
        const int row = row_first + Math::row(i, t), place = Math::token(i, t);
        if (row < p.a.row_count && place < rows.count)
            p.partial[(token_first + place) * p.a.row_count + row] = sums[i];
    }
}

template <class Rows, class Lines, class Math> DEVICE_FN void gemm(const typename Rows::params &p) {
    __shared__ typename Lines::tile_type tiles[2];
    __shared__ Rows kept; // kept here during the loop, which has no registers to spare
    float sums[gemm_tile<Math::TOKENS>::SUMS] = {};
    Rows rows;
    gemm_find<Math::TOKENS>(&rows, p);
    if (rows.count == 0) return;
    if (threadIdx.x == 0) kept = rows;
    Lines lines;
    Lines::open(lines, p, rows);
    gemm_sum<Lines, Math, gemm_splits<typename Rows::params>::ANY>(sums, tiles, lines,
                                                                   gemm_first(p), gemm_end(p));
    gemm_write<Math>(p, kept, sums);
}

// ---- Sums of bytes to floats -------------------------------------------------------------------

// Added to an integer sum of magnitude below 2^22 this gives the bits of the float 1.5 * 2^23 plus
// the sum. Subtracting the constant is cheaper than a conversion, and as exact.
static constexpr int GEMM_FLOAT_BITS = 0x4b400000;
DEVICE_FN float gemm_float(int bits) { return __int_as_float(bits) - 12582912.0F; }

#endif

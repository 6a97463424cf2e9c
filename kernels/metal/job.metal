/* job.metal: the rows of activations that a threadgroup multiplies, and their matrix. Only in this
 * the matmul kernels of one weight and those of experts differ.
 *
 * matmul takes consecutive tokens. For experts the pairs of one expert are read from route's lists,
 * which lie in device memory, so grids are sized for the worst case and threadgroups without pairs
 * have a job of none. Owns nothing. Tested by tests/kernels/test_metal_kernels.c and check_ops.c.
 */
#ifndef TANDEM_KERNELS_METAL_JOB_METAL
#define TANDEM_KERNELS_METAL_JOB_METAL

#include "kernels/metal/device.metal"

struct matmul_job {
    device float *out;            // [.., out_stride]
    device const float *x;        // [.., n_cols]
    device const uchar *weight;   // row 0 of the matrix
    device const float *bias;     // of row 0
    device const float *residual; // as out
    device const int *order;      // pairs by expert
    int n_cols, row_first, row_count, out_stride;
    int first, count;             // tokens, or places in order; 0: nothing to do
    int n_tokens, n_used, expert; // of experts; n_used is 0 for matmul
    bool has_bias, has_residual, has_order, x_per_pair;
};

// The row of out of a place among the job's rows. Places past the end are the last one.
static int out_row(thread const matmul_job &j, int place) {
    const int i = j.first + min(place, j.count - 1);
    if (j.n_used == 0) return i;
    return j.has_order ? j.order[i] : i % j.n_tokens * j.n_used + j.expert;
}

static int x_row(thread const matmul_job &j, int place) {
    const int row = out_row(j, place);
    return j.n_used == 0 || j.x_per_pair ? row : row / j.n_used;
}

// Writes the sum of a row of the matrix, counted from row_first, at a place.
static void write_sum(thread const matmul_job &j, int row, int place, float sum) {
    const int weight_row = j.row_first + row;
    const long at = long(out_row(j, place)) * j.out_stride + weight_row;
    if (j.has_bias) sum += j.bias[weight_row];
    if (j.has_residual) sum += j.residual[at];
    j.out[at] = sum;
}

// The place in order of an expert's first pair. Without lists each expert has a pair of every
// token.
static int start_of(constant matmul_experts_args &a, device const int *starts, int e) {
    return a.starts != 0 ? starts[e] : e * a.n_tokens;
}

// The first tile of expert e if each expert's pairs are cut into tiles of size: tile number
// starts[e] / size + e. An expert with n pairs has at most (starts[e] % size + n - 1) / size + 1
// tiles, so the tiles of the next expert begin later, and all tiles lie within n_pairs / size +
// n_experts. With size 1 and spread 0 the tile is the place in order itself.
static int first_tile_of(constant matmul_experts_args &a, device const int *starts, int e, int size,
                         int spread) {
    return start_of(a, starts, e) / size + e * spread;
}

// The last expert whose tiles begin at or before this one. A simdgroup compares 32 experts at a
// time, in two rounds.
static int find_expert(constant matmul_experts_args &a, device const int *starts, int tile, int size,
                       int spread, int lane) {
    int first = 0;
    for (int step = 32; step > 0; step /= 32) {
        const int e = first + step * lane;
        const bool before =
            e < a.n_experts && first_tile_of(a, starts, min(e, a.n_experts), size, spread) <= tile;
        first += step * (int(simd_sum(before ? 1 : 0)) - 1);
    }
    return first;
}
static_assert(EXPERTS_MAX <= 32 * 32, "two rounds");

// The pairs of one expert: a tile of at most size pairs, or, as a run, the pairs from place tile in
// order on, at most size, if a run of size of their expert begins there. The grid has n_pairs / size
// + n_experts tiles, or n_pairs places; with runs none is idle if every pair has an expert of its
// own. The same for all threads.
static void find_pairs(thread matmul_job &j, constant matmul_experts_args &a,
                       device const int *starts, device const int *slots, int tile, int size,
                       bool is_run, int lane) {
    const int e = find_expert(a, starts, tile, is_run ? 1 : size, is_run ? 0 : 1, lane);
    const int begin = start_of(a, starts, e), end = start_of(a, starts, e + 1);
    const int slot = a.slots != 0 ? slots[e] : e;
    j.first = is_run ? tile : begin + (tile - first_tile_of(a, starts, e, size, 1)) * size;
    j.count = min(end - j.first, size);
    if (slot < 0 || j.count < 0 || (is_run && (tile - begin) % size != 0)) j.count = 0;
    j.expert = e;
    j.weight += ulong(max(slot, 0)) * a.slot_bytes;
    j.bias += long(e) * (a.bias != 0 ? a.n_rows : 0);
}

#endif

/* rows.cuh: the rows of activations that a block multiplies, and their matrix. Only in this the
 * matmul kernels of one weight and those of experts differ.
 *
 * A policy has the parameters' type and a struct that each thread holds: places 0..count-1 are the
 * rows of the block, weight is row 0 of its matrix. matmul takes consecutive tokens; for experts
 * the pairs of one expert are read from route's lists, which lie in device memory, so grids are
 * sized for the worst case and blocks without pairs return. Owns nothing; device code only. Tested
 * by tests/kernels/check_ops.c on every matmul.
 */
#ifndef TANDEM_KERNELS_CUDA_ROWS_CUH
#define TANDEM_KERNELS_CUDA_ROWS_CUH

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/params.h"

// Tokens first..first+count-1 and the only matrix.
template <class Params> struct rows_of_tokens {
    using params = Params;
    int first, count;

    DEVICE_FN const uint8_t *weight(const params &p, const rows_of_tokens &) {
        return (const uint8_t *)p.a.weight;
    }
    DEVICE_FN int x_row(const params &, const rows_of_tokens &r, int place) {
        return r.first + place;
    }
    DEVICE_FN int out_row(const params &, const rows_of_tokens &r, int place) {
        return r.first + place;
    }
    DEVICE_FN float bias(const params &p, const rows_of_tokens &, int row) {
        return p.a.bias ? p.a.bias[row] : 0;
    }
    DEVICE_FN float residual(const params &p, int64_t out) {
        return p.a.residual ? p.a.residual[out] : 0;
    }
};
typedef rows_of_tokens<struct matmul_params> token_rows;
typedef rows_of_tokens<struct narrow_params> narrow_rows;

// Pairs order[first]..order[first+count-1], all of one expert; places past the end are the last
// one. count 0: nothing to do.
struct expert_rows {
    using params = struct experts_params;
    int first, count, expert, slot;

    DEVICE_FN const uint8_t *weight(const params &p, const expert_rows &r) {
        return (const uint8_t *)p.a.weight + (uint64_t)r.slot * p.a.slot_bytes;
    }
    DEVICE_FN int out_row(const params &p, const expert_rows &r, int place) {
        int i = r.first + min(place, r.count - 1);
        if (!p.a.order) return i % p.a.n_tokens * p.a.n_used + r.expert;
        return __ldg(p.a.order + i);
    }
    DEVICE_FN int x_row(const params &p, const expert_rows &r, int place) {
        int pair = out_row(p, r, place);
        return p.a.x_per_pair ? pair : pair / p.a.n_used;
    }
    DEVICE_FN float bias(const params &p, const expert_rows &r, int row) {
        return p.a.bias ? p.a.bias[(int64_t)r.expert * p.a.n_rows + row] : 0;
    }
    DEVICE_FN float residual(const params &, int64_t) { return 0; }
};

// The place in order of an expert's first pair. Without lists each expert has a pair of every
// token.
DEVICE_FN int start_of(const struct matmul_experts_args &a, int e) {
    return a.starts ? __ldg(a.starts + e) : e * a.n_tokens;
}

DEVICE_FN int slot_of(const struct matmul_experts_args &a, int e) {
    return a.slots ? __ldg(a.slots + e) : e;
}

// The first tile of expert e if each expert's pairs are cut into tiles of size: tile number
// starts[e] / size + e. An expert with n pairs has at most (starts[e] % size + n - 1) / size + 1
// tiles, so the tiles of the next expert begin later, and all tiles lie within n_pairs / size +
// n_experts. With size 1 and spread 0 the tile is the place in order itself.
DEVICE_FN int first_tile_of(const struct matmul_experts_args &a, int e, int size, int spread) {
    return start_of(a, e) / size + e * spread;
}

// The last expert whose tiles begin at or before this one. A warp compares 32 experts at a time, in
// two rounds.
DEVICE_FN int find_expert(const struct matmul_experts_args &a, int tile, int size, int spread) {
    static_assert(EXPERTS_MAX <= 32 * 32, "two questions");
    int first = 0, lane = (int)threadIdx.x % 32;
#pragma unroll
    for (int step = 32; step > 0; step /= 32) {
        int e = first + step * lane;
        bool before = e < a.n_experts && first_tile_of(a, e, size, spread) <= tile;
        first += step * (__popc(__ballot_sync(0xffffffffU, before)) - 1);
    }
    return first;
}

// Finds a tile of at most size pairs; the grid has n_pairs / size + n_experts tiles.
DEVICE_FN expert_rows find_tile(const struct matmul_experts_args &a, int tile, int size) {
    int e = find_expert(a, tile, size, 1);
    int first = start_of(a, e) + (tile - first_tile_of(a, e, size, 1)) * size;
    int count = min(start_of(a, e + 1) - first, size), slot = slot_of(a, e);
    return {first, slot < 0 ? 0 : max(count, 0), e, slot};
}

// Finds the pairs from place in order on, at most size, if a run of size of their expert begins
// there. The grid has n_pairs places; none is idle if every pair has an expert of its own.
DEVICE_FN expert_rows find_run(const struct matmul_experts_args &a, int place, int size) {
    int e = find_expert(a, place, 1, 0), begin = start_of(a, e);
    int count = min(start_of(a, e + 1) - place, size), slot = slot_of(a, e);
    return {place, slot < 0 || (place - begin) % size ? 0 : count, e, slot};
}

#endif

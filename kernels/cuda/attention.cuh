/* attention.cuh: helpers that the attention kernels share.
 *
 * Owns nothing; device code only. Tested by tests/kernels/check_ops.c.
 */
#ifndef TANDEM_KERNELS_CUDA_ATTENTION_CUH
#define TANDEM_KERNELS_CUDA_ATTENTION_CUH

#include "kernels/cuda/device.cuh"
#include "kernels/ops.h"

DEVICE_FN float minus_infinity() { return __uint_as_float(0xff800000u); }
// The least finite float. Beside a maximum of it scores of minus infinity have no weight.
DEVICE_FN float least_maximum() { return __uint_as_float(0xff7fffffu); }

DEVICE_FN float cap_score(float score, float softcap) { // softcap * tanh(score / softcap)
    return softcap - __fdividef(2 * softcap, 1 + __expf(__fdividef(2 * score, softcap)));
}

// Bytes of n elements of a cache of that type; n is a multiple of 32 if it has blocks.
DEVICE_FN int64_t cache_bytes(enum dtype type, int64_t n) {
    if (type == DTYPE_Q8_0) return n / 32 * BLOCK_BYTES_Q8_0;
    if (type == DTYPE_Q4_0) return n / 32 * BLOCK_BYTES_Q4_0;
    return n * (type == DTYPE_F16 ? 2 : 4);
}

// The first key that a token at that position sees.
DEVICE_FN int first_key(int position, int window) {
    return window > 0 && position >= window ? position - window + 1 : 0;
}

// The element of the caches at which a key's row of that kv head starts.
DEVICE_FN int64_t key_start(const struct attention_args &a, const int32_t *pages, int kv_head,
                            int key) {
    int64_t row = (int64_t)pages[key / KV_PAGE] * KV_PAGE + key % KV_PAGE;
    return (row * a.n_kv_heads + kv_head) * a.head_dim;
}

// The keys of a tile that a block reads; a tile lies within a page.
struct tile_keys {
    int64_t start; // key_start of the tile's first key
    int from, to;  // keys from..to-1 of the tile
};

#endif

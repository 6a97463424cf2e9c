/* rope.cuh: rotates a head, for rope and rope_store.
 *
 * Owns nothing; device code only. Tested by tests/kernels/check_ops.c.
 */
#ifndef TANDEM_KERNELS_CUDA_ROPE_CUH
#define TANDEM_KERNELS_CUDA_ROPE_CUH

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/params.h"

// Rotates a head of q, or from n_heads on of k: the block's threads stride over its pairs by
// ROPE_THREADS.
DEVICE_FN void rotate_head(const struct rope_args &a, int64_t token, int h) {
    int n_pairs = a.n_rot / 2;
    float *head = h < a.n_heads ? a.q + (token * a.n_heads + h) * a.head_dim
                                : a.k + (token * a.n_kv_heads + h - a.n_heads) * a.head_dim;
    const float *table = a.table + token * a.n_rot;
    int apart = a.neox ? n_pairs : 1;
    for (int i = (int)threadIdx.x; i < n_pairs; i += ROPE_THREADS) {
        float *pair = head + (a.neox ? i : 2 * i);
        float cosine = table[2 * i], sine = table[2 * i + 1];
        float x = pair[0], y = pair[apart];
        pair[0] = x * cosine - y * sine;
        pair[apart] = x * sine + y * cosine;
    }
}

#endif

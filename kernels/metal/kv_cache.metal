/* kv_cache.metal: reads the rows of a KV cache as floats, for the attention kernels.
 *
 * A row of a head starts at an even element, since head_dim is even, and at a block of types with
 * blocks. Owns nothing. Tested by tests/kernels/check_ops.c.
 */
#ifndef TANDEM_KERNELS_METAL_KV_CACHE_METAL
#define TANDEM_KERNELS_METAL_KV_CACHE_METAL

#include "kernels/metal/device.metal"

// A score less than all others. It is finite, so that no difference of two scores is a NaN.
constant float NO_SCORE = -3e38f;

static float cap_score(float score, float softcap) {
    return softcap > 0 ? softcap * tanh(score / softcap) : score;
}

// Bytes of n elements of a cache of that type; n is a multiple of 32 if it has blocks.
static long cache_bytes(enum dtype type, long n) {
    if (type == DTYPE_Q8_0) return n / 32 * BLOCK_BYTES_Q8_0;
    if (type == DTYPE_Q4_0) return n / 32 * BLOCK_BYTES_Q4_0;
    return n * (type == DTYPE_F16 ? 2 : 4);
}

// The first key that a token at that position sees.
static int first_key(int position, int window) {
    return window > 0 && position >= window ? position - window + 1 : 0;
}

// The element of the caches at which a key's row of that kv head starts.
static long key_start(constant attention_args &a, device const int *pages, int kv_head, int key) {
    const long row = long(pages[key / KV_PAGE]) * KV_PAGE + key % KV_PAGE;
    return (row * a.n_kv_heads + kv_head) * a.head_dim;
}

// Loads elements 2 * pair and 2 * pair + 1 of a row. Bytes of Q4_0 hold the first 16 elements of
// their block in their low halves.
static float2 cache_pair(device const uchar *row, enum dtype type, int pair) {
    if (type == DTYPE_F32) return ((device const float2 *)row)[pair];
    if (type == DTYPE_F16) return float2(((device const half2 *)row)[pair]);
    if (type == DTYPE_Q8_0) {
        device const uchar *block = row + pair / 16 * BLOCK_BYTES_Q8_0;
        device const char *q = (device const char *)block + 2 + pair % 16 * 2;
        const float d = float(*(device const half *)block);
        return float2(d * float(q[0]), d * float(q[1]));
    }
    device const uchar *block = row + pair / 16 * BLOCK_BYTES_Q4_0;
    device const uchar *q = block + 2 + pair % 8 * 2;
    const float d = float(*(device const half *)block);
    const int shift = pair / 8 % 2 * 4;
    return float2(d * float(((q[0] >> shift) & 15) - 8), d * float(((q[1] >> shift) & 15) - 8));
}

// Loads elements c..c+7 of a row, a multiple of 8; zeros from head_dim on.
static void cache_eight(thread float *out, device const uchar *row, enum dtype type, int c,
                        int head_dim) {
    if (type == DTYPE_Q8_0) {
        device const uchar *block = row + c / 32 * BLOCK_BYTES_Q8_0;
        device const char *q = (device const char *)block + 2 + c % 32;
        const float d = float(*(device const half *)block);
        for (int i = 0; i < 8; i++) out[i] = d * float(q[i]);
    } else if (type == DTYPE_Q4_0) {
        device const uchar *block = row + c / 32 * BLOCK_BYTES_Q4_0;
        device const uchar *q = block + 2 + c % 16;
        const float d = float(*(device const half *)block);
        const int shift = c / 16 % 2 * 4;
        for (int i = 0; i < 8; i++) out[i] = d * float(((q[i] >> shift) & 15) - 8);
    } else {
        for (int i = 0; i < 8; i += 2) {
            const float2 two = c + i < head_dim ? cache_pair(row, type, (c + i) / 2) : float2(0);
            out[i] = two.x;
            out[i + 1] = two.y;
        }
    }
}

#endif

/* kv.cu: kv_store writes new rows of K and V to their rows of the caches; rope_store rotates the
 * heads of q and k before.
 *
 * kv_store: grid (n_tokens, chunks of KV_STORE_COLS columns); a thread strides over the columns of
 * the chunk by KV_STORE_THREADS, in K and in V; a warp converts 32 neighbouring columns, which are
 * a block of Q8_0 or Q4_0. Reads 8 bytes per column and writes the bytes of both types; rounds to
 * nearest even. A token whose cache row is negative writes nothing.
 *
 * rope_store: grid (n_tokens, n_heads + n_kv_heads). A block rotates one head; if it is one of k,
 * the block then stores its columns of K and V. head_dim is a multiple of 32. Tested by
 * tests/kernels/check_ops.c.
 */
#include "kernels/cuda/rope.cuh"

static_assert(KV_STORE_THREADS % 32 == 0 && KV_STORE_COLS % 32 == 0, "a warp has whole blocks");
static_assert(ROPE_THREADS % 32 == 0, "here too");

// The largest magnitude of the warp's values, as bits: magnitudes are compared as integers, in
// whose order infinities and NaNs are the largest.
DEVICE_FN unsigned largest_bits(float value) {
    unsigned top = __float_as_uint(value) & 0x7fffffffu;
    for (int apart = 16; apart > 0; apart /= 2)
        top = max(top, __shfl_xor_sync(0xffffffffu, top, apart));
    return top;
}

DEVICE_FN bool is_finite(unsigned bits) { return (bits & 0x7fffffffu) < 0x7f800000u; }

// Called by a whole warp; place is a multiple of 32 in lane 0.
DEVICE_FN void store_q8_0(void *cache, int64_t place, float value) {
    unsigned top_bits = largest_bits(value);
    bool finite = is_finite(top_bits);
    float top = __uint_as_float(top_bits), inverse = top >= 1e-30F ? 127 / top : 0;
    int8_t *block = (int8_t *)cache + place / 32 * BLOCK_BYTES_Q8_0;
    int in_block = (int)(place % 32);
    block[2 + in_block] = finite ? (int8_t)__float2int_rn(value * inverse) : 0;
    if (in_block == 0) *(uint16_t *)block = finite ? __float2half(top / 127).bits : 0x7e00;
}

// The same; a lane of the first half writes its number and that of the lane 16 further.
DEVICE_FN void store_q4_0(void *cache, int64_t place, float value) {
    unsigned top_bits = largest_bits(value), bits = __float_as_uint(value);
    unsigned tops = __ballot_sync(0xffffffffu, (bits & 0x7fffffffu) == top_bits);
    int first = __popc((tops & -tops) - 1);
    float top = __shfl_sync(0xffffffffu, value, first);
    bool finite = is_finite(top_bits);
    float halves = value * (__uint_as_float(top_bits) >= 1e-30F ? -16 / top : 0);
    int q = finite ? min((((int)floorf(halves) + 1) >> 1) + 8, 15) : 0;
    int high = __shfl_down_sync(0xffffffffu, q, 16);
    uint8_t *block = (uint8_t *)cache + place / 32 * BLOCK_BYTES_Q4_0;
    int in_block = (int)(place % 32);
    if (in_block < 16) block[2 + in_block] = (uint8_t)(q | high << 4);
    if (in_block == 0) *(uint16_t *)block = finite ? __float2half(top / -8).bits : 0x7e00;
}

DEVICE_FN void store(void *cache, enum dtype type, int64_t place, float value) {
    if (type == DTYPE_Q8_0)
        store_q8_0(cache, place, value);
    else if (type == DTYPE_Q4_0)
        store_q4_0(cache, place, value);
    else if (type == DTYPE_F16)
        ((__half *)cache)[place] = __float2half(value);
    else
        ((float *)cache)[place] = value;
}

// Columns first..last-1 of a token, by a block of n_threads.
DEVICE_FN void store_columns(const struct kv_store_args &a, int64_t token, int first, int last,
                             int n_threads) {
    int64_t source = token * a.n_cols, row = a.cache_rows[token];
    if (row < 0) return;
    for (int c = first + (int)threadIdx.x; c < last; c += n_threads) {
        store(a.k_cache, a.k_type, row * a.n_cols + c, a.k[source + c]);
        if (a.v) store(a.v_cache, a.v_type, row * a.n_cols + c, a.v[source + c]);
    }
}

KERNEL void __launch_bounds__(KV_STORE_THREADS) kv_store(const struct kv_store_args a) {
    int first = (int)blockIdx.y * KV_STORE_COLS;
    store_columns(a, blockIdx.x, first, min(first + KV_STORE_COLS, a.n_cols), KV_STORE_THREADS);
}

KERNEL void __launch_bounds__(ROPE_THREADS) rope_store(const struct rope_store_params p) {
    int h = (int)blockIdx.y, first = (h - p.rope.n_heads) * p.rope.head_dim;
    rotate_head(p.rope, blockIdx.x, h);
    if (first < 0) return; // a head of q
    __syncthreads();       // other threads have rotated the columns
    store_columns(p.store, blockIdx.x, first, first + p.rope.head_dim, ROPE_THREADS);
}

/* kv.metal: kv_store writes new rows of K and V to their rows of the caches.
 *
 * Grid (n_tokens, chunks of KV_STORE_COLS columns); a thread strides over the columns of the chunk
 * by KV_STORE_THREADS, in K and in V; a simdgroup converts 32 neighbouring columns, which are a
 * block of Q8_0 or Q4_0. Reads 8 bytes per column and writes the bytes of both types; rounds to
 * nearest even. A token whose cache row is negative writes nothing. Quotients must be rounded
 * rightly, so blocks are the definition's bytes only without fast math. Tested by
 * tests/kernels/check_ops.c.
 */
#include "kernels/metal/device.metal"

static_assert(KV_STORE_THREADS % 32 == 0 && KV_STORE_COLS % 32 == 0, "a simdgroup has blocks");

// Magnitudes are compared as integers, in whose order infinities and NaNs are the largest.
static uint kv_magnitude(float value) { return as_type<uint>(value) & 0x7fffffffu; }
static bool kv_is_finite(uint magnitude) { return magnitude < 0x7f800000u; }

static void kv_store_half(device uchar *block, half value) { *(device half *)block = value; }

// Called by a whole simdgroup; place is a multiple of 32 in lane 0.
static void kv_store_q8_0(device uchar *cache, long place, float value) {
    const uint largest = simd_max(kv_magnitude(value));
    const bool finite = kv_is_finite(largest);
    const float top = as_type<float>(largest), inverse = top >= 1e-30f ? 127 / top : 0.0f;
    device uchar *block = cache + place / 32 * BLOCK_BYTES_Q8_0;
    const int in_block = int(place % 32);
    block[2 + in_block] = finite ? uchar(int(rint(value * inverse))) : uchar(0);
    if (in_block != 0) return;
    kv_store_half(block, finite ? half(top / 127) : as_type<half>(ushort(0x7e00)));
}

// The same; a lane of the first half writes its number and that of the lane 16 further.
static void kv_store_q4_0(device uchar *cache, long place, float value) {
    const uint magnitude = kv_magnitude(value), largest = simd_max(magnitude);
    const int in_block = int(place % 32);
    const int first = simd_min(magnitude == largest ? in_block : 32);
    const float top = simd_shuffle(value, ushort(first));
    const bool finite = kv_is_finite(largest);
    const float halves = value * (as_type<float>(largest) >= 1e-30f ? -16 / top : 0.0f);
    const int q = finite ? min(((int(floor(halves)) + 1) >> 1) + 8, 15) : 0;
    const int high = simd_shuffle_down(q, ushort(16));
    device uchar *block = cache + place / 32 * BLOCK_BYTES_Q4_0;
    if (in_block < 16) block[2 + in_block] = uchar(q | high << 4);
    if (in_block != 0) return;
    kv_store_half(block, finite ? half(top / -8) : as_type<half>(ushort(0x7e00)));
}

static void kv_store_element(device uchar *cache, enum dtype type, long place, float value) {
    if (type == DTYPE_Q8_0)
        kv_store_q8_0(cache, place, value);
    else if (type == DTYPE_Q4_0)
        kv_store_q4_0(cache, place, value);
    else if (type == DTYPE_F16)
        ((device half *)cache)[place] = half(value);
    else
        ((device float *)cache)[place] = value;
}

kernel void kv_store(constant kv_store_args &a [[buffer(0)]],
                     device uchar *k_cache [[buffer(1)]],
                     device uchar *v_cache [[buffer(2)]],
                     device const float *k [[buffer(3)]],
                     device const float *v [[buffer(4)]],
                     device const int *cache_rows [[buffer(5)]],
                     uint2 group [[threadgroup_position_in_grid]],
                     uint index [[thread_index_in_threadgroup]]) {
    const long source = long(group.x) * a.n_cols, row = cache_rows[group.x];
    if (row < 0) return;
    const int first = int(group.y) * KV_STORE_COLS, last = min(first + KV_STORE_COLS, a.n_cols);
    for (int c = first + int(index); c < last; c += KV_STORE_THREADS) {
        kv_store_element(k_cache, a.k_type, row * a.n_cols + c, k[source + c]);
        if (a.v != 0) kv_store_element(v_cache, a.v_type, row * a.n_cols + c, v[source + c]);
    }
}

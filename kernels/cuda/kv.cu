/* kv.cu: kv_store, new rows of K and V into their places in the caches.
 *
 * Grid (n_tokens, chunks of KV_STORE_COLS columns); a thread converts every KV_STORE_THREADS-th
 * column of the chunk, in K and in V. Reads 8 bytes and writes 4 or 8 per column; halves round to
 * nearest even. A token whose slot is negative writes nothing. Tested by tests/check_ops.c.
 */
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/params.h"

DEVICE_FN void store(void *cache, enum dtype type, int64_t place, float value) {
    if (type == DTYPE_F16)
        ((__half *)cache)[place] = __float2half(value);
    else
        ((float *)cache)[place] = value;
}

KERNEL void __launch_bounds__(KV_STORE_THREADS) kv_store(const struct kv_store_args a) {
    int64_t source = (int64_t)blockIdx.x * a.n_cols, slot = a.slots[blockIdx.x];
    if (slot < 0) return;
    int first = (int)blockIdx.y * KV_STORE_COLS, last = min(first + KV_STORE_COLS, a.n_cols);
    for (int c = first + (int)threadIdx.x; c < last; c += KV_STORE_THREADS) {
        store(a.k_cache, a.k_type, slot * a.n_cols + c, a.k[source + c]);
        store(a.v_cache, a.v_type, slot * a.n_cols + c, a.v[source + c]);
    }
}

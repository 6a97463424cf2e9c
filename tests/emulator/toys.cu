/* toys.cu: see toys.h. Blocks of 64 threads, unless the test says otherwise. */
#include "kernels/cuda/device.cuh"
#include "tests/emulator/toys.h"

// ---- Right ones --------------------------------------------------------------------------------

// Every thread of a grid of three dimensions writes its number.
KERNEL void indices(const struct toy p) {
    unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
    unsigned thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    unsigned threads = blockDim.x * blockDim.y * blockDim.z;
    p.out[block * threads + thread] = (float)(block * threads + thread);
}

KERNEL void block_sum(const struct toy p) {
    __shared__ float sums[64];
    sums[threadIdx.x] = p.in[blockIdx.x * 64 + threadIdx.x];
    __syncthreads();
    for (unsigned half = 32; half > 0; half /= 2) {
        if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0) p.out[blockIdx.x] = sums[0];
}

KERNEL void shuffles(const struct toy p) {
    float v = p.in[threadIdx.x];
    int lane = (int)threadIdx.x % 32;
    p.out[threadIdx.x] = __shfl_sync(~0u, v, 5);
    p.out[64 + threadIdx.x] = __shfl_xor_sync(~0u, v, 3);
    p.out[128 + threadIdx.x] = __shfl_down_sync(~0u, v, 4);
    p.out[192 + threadIdx.x] = __shfl_sync(~0u, v, lane + 1, 8);
    p.out[256 + threadIdx.x] = __shfl_down_sync(~0u, v, 2, 16);
    p.out[320 + threadIdx.x] = (float)__shfl_xor_sync(~0u, lane, 16);
}

KERNEL void ballot(const struct toy p) {
    p.out[threadIdx.x] = (float)__popc(__ballot_sync(~0u, p.in[threadIdx.x] > 10));
}

// Two masks of one warp at the same moment, in two branches.
KERNEL void half_warps(const struct toy p) {
    float v = p.in[threadIdx.x];
    if (threadIdx.x % 32 < 16) {
        for (int apart = 8; apart > 0; apart /= 2) v += __shfl_xor_sync(0xffffu, v, apart);
    } else {
        for (int apart = 8; apart > 0; apart /= 2) v -= __shfl_xor_sync(0xffff0000u, v, apart);
    }
    __syncwarp();
    p.out[threadIdx.x] = v;
}

KERNEL void atomics(const struct toy p) {
    atomicAdd(p.out, 1.0f);
    atomicAdd((int *)p.out + 1, (int)threadIdx.x);
}

KERNEL void arithmetic(const struct toy p) {
    int i = (int)threadIdx.x, a = i * 0x01030507, b = 0x7f80ff01 - i;
    p.out[i] = (float)__dp4a(a, b, -i);
    p.out[64 + i] = __half2float(__float2half(p.in[i] * 1.0009765625f));
    p.out[128 + i] = (float)__float2int_rn(p.in[i] * 0.5f);
    p.out[192 + i] = __uint_as_float(__float_as_uint(p.in[i]) ^ 0x80000000u);
}

// Copies of the next piece are in flight while this one is read.
KERNEL void pipeline(const struct toy p) {
    __shared__ float4 pieces[2][64];
    const float4 *in = (const float4 *)p.in;
    float sum = 0;
    cp_async16(&pieces[0][threadIdx.x], in + threadIdx.x);
    cp_async_commit();
    for (int i = 0; i < p.n; i++) {
        if (i + 1 < p.n)
            cp_async16(&pieces[(i + 1) % 2][threadIdx.x], in + (i + 1) * 64 + threadIdx.x);
        cp_async_commit();
        cp_async_wait<1>();
        __syncthreads();
        float4 v = pieces[i % 2][63 - threadIdx.x];
        sum += v.x + v.y + v.z + v.w;
        __syncthreads();
    }
    cp_async_wait<0>();
    p.out[threadIdx.x] = sum;
}

// Lane i gets of tile k the two halves at row i / 4, columns 2 * (i % 4) and the next.
KERNEL void tiles(const struct toy p) {
    __shared__ uint4 rows[32];
    uint32_t four[4], two[2];
    uint32_t *out = (uint32_t *)p.out;
    rows[threadIdx.x] = ((const uint4 *)p.a)[threadIdx.x];
    __syncwarp();
    ldmatrix_x4(four, &rows[threadIdx.x]);
    ldmatrix_x2(two, &rows[threadIdx.x % 16]);
    for (int k = 0; k < 4; k++) out[k * 32 + threadIdx.x] = four[k];
    for (int k = 0; k < 2; k++) out[128 + k * 32 + threadIdx.x] = two[k];
}

// The matrix kernels: a [M][K] and b [8][K] (a column of B is a row here), out [M][8] adds to what
// is there. The places of fragments are those of the PTX manual.
KERNEL void mma_16_8_16(const struct toy p) {
    unsigned g = threadIdx.x / 4, t = threadIdx.x % 4;
    const uint16_t *a = (const uint16_t *)p.a, *b = (const uint16_t *)p.b;
    uint32_t fa[4], fb[2];
    for (unsigned i = 0; i < 4; i++)
        fa[i] = *(const uint32_t *)&a[(g + i % 2 * 8) * 16 + t * 2 + i / 2 * 8];
    for (unsigned i = 0; i < 2; i++) fb[i] = *(const uint32_t *)&b[g * 16 + t * 2 + i * 8];
    float *low = &p.out[g * 8 + t * 2], *high = &p.out[(g + 8) * 8 + t * 2];
    float d[4] = {low[0], low[1], high[0], high[1]};
    mma_m16n8k16_f16(d, fa, fb);
    low[0] = d[0], low[1] = d[1], high[0] = d[2], high[1] = d[3];
}

KERNEL void mma_16_8_8(const struct toy p) {
    unsigned g = threadIdx.x / 4, t = threadIdx.x % 4;
    const uint16_t *a = (const uint16_t *)p.a, *b = (const uint16_t *)p.b;
    const uint32_t fa[2] = {*(const uint32_t *)&a[g * 8 + t * 2],
                            *(const uint32_t *)&a[(g + 8) * 8 + t * 2]};
    float *low = &p.out[g * 8 + t * 2], *high = &p.out[(g + 8) * 8 + t * 2];
    float d[4] = {low[0], low[1], high[0], high[1]};
    mma_m16n8k8_f16(d, fa, *(const uint32_t *)&b[g * 8 + t * 2]);
    low[0] = d[0], low[1] = d[1], high[0] = d[2], high[1] = d[3];
}

KERNEL void mma_16_8_32(const struct toy p) {
    unsigned g = threadIdx.x / 4, t = threadIdx.x % 4;
    const int8_t *a = (const int8_t *)p.a, *b = (const int8_t *)p.b;
    uint32_t fa[4], fb[2];
    for (unsigned i = 0; i < 4; i++)
        fa[i] = *(const uint32_t *)&a[(g + i % 2 * 8) * 32 + t * 4 + i / 2 * 16];
    for (unsigned i = 0; i < 2; i++) fb[i] = *(const uint32_t *)&b[g * 32 + t * 4 + i * 16];
    float *low = &p.out[g * 8 + t * 2], *high = &p.out[(g + 8) * 8 + t * 2];
    int d[4] = {(int)low[0], (int)low[1], (int)high[0], (int)high[1]};
    mma_m16n8k32_s8(d, fa, fb);
    low[0] = (float)d[0], low[1] = (float)d[1], high[0] = (float)d[2], high[1] = (float)d[3];
}

KERNEL void mma_8_8_16(const struct toy p) {
    unsigned g = threadIdx.x / 4, t = threadIdx.x % 4;
    const int8_t *a = (const int8_t *)p.a, *b = (const int8_t *)p.b;
    float *out = &p.out[g * 8 + t * 2];
    int d[2] = {(int)out[0], (int)out[1]};
    mma_m8n8k16_s8(d, *(const uint32_t *)&a[g * 16 + t * 4], *(const uint32_t *)&b[g * 16 + t * 4]);
    out[0] = (float)d[0], out[1] = (float)d[1];
}

// A float of every lane, n floats apart; then 16 bytes of the first 40 threads.
KERNEL void loads(const struct toy p) {
    float sum = __ldg(p.in + (int)threadIdx.x * p.n % 1024);
    if (threadIdx.x < 40) sum += __ldg((const float4 *)p.in + threadIdx.x).x;
    p.out[threadIdx.x] = sum;
}

// ---- Wrong ones --------------------------------------------------------------------------------

KERNEL void divergent_barrier(const struct toy p) {
    if (threadIdx.x < 32) {
        __syncthreads();
    } else {
        p.out[threadIdx.x] = 1;
        __syncthreads();
    }
}

KERNEL void early_exit(const struct toy p) {
    if (threadIdx.x >= 40) return;
    __syncthreads();
    p.out[threadIdx.x] = 1;
}

// Threads that ended before the first barrier is reached.
KERNEL void late_barrier(const struct toy p) {
    if (threadIdx.x < 40) return;
    __syncthreads();
    p.out[threadIdx.x] = 1;
}

KERNEL void half_a_warp(const struct toy p) {
    float v = p.in[threadIdx.x];
    if (threadIdx.x % 32 < 16)
        v = __shfl_xor_sync(~0u, v, 1);
    else
        __syncthreads();
    p.out[threadIdx.x] = v;
}

KERNEL void absent_lane(const struct toy p) {
    float v = p.in[threadIdx.x];
    if (threadIdx.x % 32 < 16) v = __shfl_sync(0xffffu, v, 20);
    p.out[threadIdx.x] = v;
}

KERNEL void foreign_mask(const struct toy p) {
    p.out[threadIdx.x] = __shfl_xor_sync(0xffffu, p.in[threadIdx.x], 1);
}

KERNEL void ended_lanes(const struct toy p) {
    if (threadIdx.x % 32 >= 20) return;
    p.out[threadIdx.x] = __shfl_xor_sync(~0u, p.in[threadIdx.x], 1);
}

KERNEL void divergent_shuffle(const struct toy p) {
    float v = p.in[threadIdx.x];
    if (threadIdx.x % 2)
        v = __shfl_xor_sync(~0u, v, 1);
    else
        v = 1 + __shfl_xor_sync(~0u, v, 1);
    p.out[threadIdx.x] = v;
}

KERNEL void forgotten_copy(const struct toy p) {
    __shared__ float4 piece[64];
    cp_async16(&piece[threadIdx.x], (const float4 *)p.in + threadIdx.x);
    cp_async_commit();
    __syncthreads();
    p.out[threadIdx.x] = piece[threadIdx.x].x;
}

KERNEL void crooked_copy(const struct toy p) {
    __shared__ float4 piece[64];
    cp_async16(&piece[threadIdx.x], p.in + 1 + 4 * threadIdx.x);
    cp_async_commit();
    cp_async_wait<0>();
    p.out[threadIdx.x] = piece[threadIdx.x].x;
}

KERNEL void too_many_copies(const struct toy p) {
    __shared__ float4 piece[64];
    for (int i = 0; i < 100; i++) cp_async16(&piece[threadIdx.x], (const float4 *)p.in);
    cp_async_commit();
    cp_async_wait<0>();
    p.out[threadIdx.x] = piece[threadIdx.x].x;
}

KERNEL void crooked_tile(const struct toy p) {
    __shared__ uint4 rows[33];
    uint32_t d[4];
    rows[threadIdx.x % 32] = uint4{0, 0, 0, 0};
    __syncwarp();
    ldmatrix_x4(d, (const char *)&rows[threadIdx.x % 32] + 4);
    p.out[threadIdx.x] = (float)d[0];
}

KERNEL void shared_overrun(const struct toy p) {
    DYN_SHARED(float, values);
    values[threadIdx.x + 1] = 1;
    __syncthreads();
    p.out[threadIdx.x] = values[threadIdx.x];
}

// These two end as if nothing were: the test looks for NaN.
KERNEL void unset_shared(const struct toy p) {
    DYN_SHARED(float, values);
    if (threadIdx.x != 7) values[threadIdx.x] = 1;
    __syncthreads();
    p.out[threadIdx.x] = values[threadIdx.x];
}

KERNEL void early_read(const struct toy p) {
    __shared__ float4 piece[64];
    cp_async16(&piece[threadIdx.x], (const float4 *)p.in + threadIdx.x);
    cp_async_commit();
    p.out[threadIdx.x] = piece[threadIdx.x].x;
    cp_async_wait<0>();
}

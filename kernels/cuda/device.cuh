/* device.cuh: the language that the kernels are written in, for its three readers.
 *
 * nvcc defines most of these names; clang -x cuda without a toolkit gets them here; the emulator
 * reads the same sources as C++ and includes tests/emulator/cuda_host.hpp before this file. Only
 * what is listed here may be used, so that what the emulator proves is what a card runs:
 *
 *   KERNEL, __device__, __forceinline__, __launch_bounds__, __constant__, __shared__, DYN_SHARED
 *   #pragma unroll; UNROLL_BY(n), NO_UNROLL for a loop whose length is not known; in_loop
 *   threadIdx, blockIdx, blockDim, gridDim; CUDA_ARCH: 610, 750, 800, ...
 *   int2 int4 uint2 uint4 float2 float4 and make_...; __half with __half2float, __float2half
 *   __syncthreads, __syncwarp, __shfl_sync, __shfl_xor_sync, __shfl_down_sync, __ballot_sync
 *   __dp4a, __popc, __byte_perm, __ldg, atomicAdd (int, unsigned, float), __threadfence
 *   fmaf fmaxf fminf fabsf sqrtf rsqrtf floorf rintf exp2f __expf __logf __fdividef, min, max
 *   fma fabs floor rint sqrt (double; slow on cards, for tables only)
 *   __float_as_uint __float_as_int __uint_as_float __int_as_float __float2int_rn
 *   __double_as_longlong __longlong_as_double
 *   cp_async16, cp_async_commit, cp_async_wait<N>; below 8.0 they copy at once
 *   ldmatrix_x4, ldmatrix_x2, sub_halves, mul_halves (7.5); mma_... (see below)
 *
 * Not there: other half arithmetic, sinf, cosf, powf, tanhf, printf, the C++ library.
 */
#ifndef TANDEM_KERNELS_CUDA_DEVICE_CUH
#define TANDEM_KERNELS_CUDA_DEVICE_CUH

#include <stdint.h>

#ifndef EMULATED

#ifdef __CUDA_ARCH__
#define CUDA_ARCH __CUDA_ARCH__
#else
#define CUDA_ARCH 0
#endif

// ---- What nvcc knows and a bare clang does not -------------------------------------------------

#ifdef __clang__

#define __global__             __attribute__((global))
#define __device__             __attribute__((device))
#define __host__               __attribute__((host))
#define __shared__             __attribute__((shared))
#define __constant__           __attribute__((constant))
#define __forceinline__        inline __attribute__((always_inline))
#define __launch_bounds__(...) __attribute__((launch_bounds(__VA_ARGS__)))
#define UNROLL_BY(n)           // clang does not unroll such loops, and warns about the pragma
#define NO_UNROLL              _Pragma("nounroll")
#define DEVICE_FN              static __device__ __forceinline__

struct cuda_index {
    unsigned x, y, z;
};

#define CUDA_INDEX(r)                                     \
    (cuda_index{(unsigned)__nvvm_read_ptx_sreg_##r##_x(), \
                (unsigned)__nvvm_read_ptx_sreg_##r##_y(), \
                (unsigned)__nvvm_read_ptx_sreg_##r##_z()})
#define threadIdx CUDA_INDEX(tid)
#define blockIdx  CUDA_INDEX(ctaid)
#define blockDim  CUDA_INDEX(ntid)
#define gridDim   CUDA_INDEX(nctaid)

#define CUDA_VECTOR_2(name, type) \
    struct alignas(8) name {      \
        type x, y;                \
    };                            \
    DEVICE_FN name make_##name(type x, type y) { return name{x, y}; }
#define CUDA_VECTOR_4(name, type) \
    struct alignas(16) name {     \
        type x, y, z, w;          \
    };                            \
    DEVICE_FN name make_##name(type x, type y, type z, type w) { return name{x, y, z, w}; }
CUDA_VECTOR_2(int2, int)
CUDA_VECTOR_2(uint2, unsigned)
CUDA_VECTOR_2(float2, float)
CUDA_VECTOR_4(int4, int)
CUDA_VECTOR_4(uint4, unsigned)
CUDA_VECTOR_4(float4, float)

DEVICE_FN float fmaf(float a, float b, float c) { return __nvvm_fma_rn_f(a, b, c); }
DEVICE_FN float fmaxf(float a, float b) { return __nvvm_fmax_f(a, b); }
DEVICE_FN float fminf(float a, float b) { return __nvvm_fmin_f(a, b); }
DEVICE_FN float fabsf(float a) { return __nvvm_fabs_f(a); }
DEVICE_FN float sqrtf(float a) { return __nvvm_sqrt_rn_f(a); }
DEVICE_FN float rsqrtf(float a) { return __nvvm_rsqrt_approx_f(a); }
DEVICE_FN float floorf(float a) { return __nvvm_floor_f(a); }
DEVICE_FN float rintf(float a) { return __nvvm_round_f(a); }
DEVICE_FN float exp2f(float a) { return __nvvm_ex2_approx_f(a); }
DEVICE_FN float __expf(float a) { return __nvvm_ex2_approx_f(a * 1.44269504F); }
DEVICE_FN float __logf(float a) { return __nvvm_lg2_approx_f(a) * 0.693147181F; }
DEVICE_FN float __fdividef(float a, float b) { return __nvvm_div_approx_f(a, b); }
DEVICE_FN double fma(double a, double b, double c) { return __nvvm_fma_rn_d(a, b, c); }
DEVICE_FN double fabs(double a) { return __nvvm_fabs_d(a); }
DEVICE_FN double floor(double a) { return __nvvm_floor_d(a); }
DEVICE_FN double rint(double a) { return __nvvm_round_d(a); }
DEVICE_FN double sqrt(double a) { return __nvvm_sqrt_rn_d(a); }
DEVICE_FN int min(int a, int b) { return a < b ? a : b; }
DEVICE_FN int max(int a, int b) { return a > b ? a : b; }
DEVICE_FN unsigned min(unsigned a, unsigned b) { return a < b ? a : b; }
DEVICE_FN unsigned max(unsigned a, unsigned b) { return a > b ? a : b; }

DEVICE_FN int __float2int_rn(float a) { return __nvvm_f2i_rn(a); }
DEVICE_FN int __float_as_int(float a) { return __builtin_bit_cast(int, a); }
DEVICE_FN unsigned __float_as_uint(float a) { return __builtin_bit_cast(unsigned, a); }
DEVICE_FN float __int_as_float(int a) { return __builtin_bit_cast(float, a); }
DEVICE_FN float __uint_as_float(unsigned a) { return __builtin_bit_cast(float, a); }
DEVICE_FN long long __double_as_longlong(double a) { return __builtin_bit_cast(long long, a); }
DEVICE_FN double __longlong_as_double(long long a) { return __builtin_bit_cast(double, a); }
DEVICE_FN int __popc(unsigned a) { return __builtin_popcount(a); }
DEVICE_FN unsigned __byte_perm(unsigned a, unsigned b, unsigned selector) {
    return __nvvm_prmt(a, b, selector);
}
DEVICE_FN int __dp4a(int a, int b, int c) {
    int d;
    asm("dp4a.s32.s32 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
    return d;
}

DEVICE_FN void __syncwarp(unsigned mask = 0xffffffffU) { __nvvm_bar_warp_sync(mask); }
DEVICE_FN void __threadfence() { __nvvm_membar_gl(); }
// The last argument of a shuffle: the lanes above the segment, and the highest lane in it.
DEVICE_FN int cuda_segment(int width) { return (32 - width) << 8 | 31; }
DEVICE_FN int __shfl_sync(unsigned mask, int v, int lane, int width = 32) {
    return __nvvm_shfl_sync_idx_i32(mask, v, lane, cuda_segment(width));
}
DEVICE_FN int __shfl_xor_sync(unsigned mask, int v, int lanes, int width = 32) {
    return __nvvm_shfl_sync_bfly_i32(mask, v, lanes, cuda_segment(width));
}
DEVICE_FN int __shfl_down_sync(unsigned mask, int v, unsigned by, int width = 32) {
    return __nvvm_shfl_sync_down_i32(mask, v, (int)by, cuda_segment(width));
}
#define CUDA_SHUFFLES(type, bits_of, of_bits)                                             \
    DEVICE_FN type __shfl_sync(unsigned mask, type v, int lane, int width = 32) {         \
        return of_bits(__shfl_sync(mask, bits_of(v), lane, width));                       \
    }                                                                                     \
    DEVICE_FN type __shfl_xor_sync(unsigned mask, type v, int lanes, int width = 32) {    \
        return of_bits(__shfl_xor_sync(mask, bits_of(v), lanes, width));                  \
    }                                                                                     \
    DEVICE_FN type __shfl_down_sync(unsigned mask, type v, unsigned by, int width = 32) { \
        return of_bits(__shfl_down_sync(mask, bits_of(v), by, width));                    \
    }
CUDA_SHUFFLES(float, __float_as_int, __int_as_float)
CUDA_SHUFFLES(unsigned, (int), (unsigned))
DEVICE_FN unsigned __ballot_sync(unsigned mask, int v) {
    return __nvvm_vote_ballot_sync(mask, v != 0);
}

DEVICE_FN int atomicAdd(int *p, int v) { return __nvvm_atom_add_gen_i(p, v); }
DEVICE_FN unsigned atomicAdd(unsigned *p, unsigned v) {
    return (unsigned)__nvvm_atom_add_gen_i((int *)p, (int)v);
}
DEVICE_FN float atomicAdd(float *p, float v) { return __nvvm_atom_add_gen_f(p, v); }

// Reads through the read-only cache: nobody writes there while the kernel runs.
DEVICE_FN int __ldg(const int *p) {
    int v;
    asm("ld.global.nc.s32 %0, [%1];" : "=r"(v) : "l"(p));
    return v;
}
DEVICE_FN unsigned __ldg(const unsigned *p) { return (unsigned)__ldg((const int *)p); }
DEVICE_FN float __ldg(const float *p) { return __int_as_float(__ldg((const int *)p)); }
DEVICE_FN uint2 __ldg(const uint2 *p) {
    uint2 v;
    asm("ld.global.nc.v2.u32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "l"(p));
    return v;
}
DEVICE_FN uint4 __ldg(const uint4 *p) {
    uint4 v;
    asm("ld.global.nc.v4.u32 {%0, %1, %2, %3}, [%4];"
        : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
        : "l"(p));
    return v;
}
DEVICE_FN int4 __ldg(const int4 *p) {
    uint4 v = __ldg((const uint4 *)p);
    return int4{(int)v.x, (int)v.y, (int)v.z, (int)v.w};
}
DEVICE_FN float4 __ldg(const float4 *p) {
    float4 v;
    asm("ld.global.nc.v4.f32 {%0, %1, %2, %3}, [%4];"
        : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
        : "l"(p));
    return v;
}

DEVICE_FN unsigned cuda_shared_address(const void *p) {
    unsigned address;
    asm("{ .reg .u64 t; cvta.to.shared.u64 t, %1; cvt.u32.u64 %0, t; }" : "=r"(address) : "l"(p));
    return address;
}

#else // nvcc

#define CUDA_PRAGMA(text) _Pragma(#text)
#define UNROLL_BY(n)      CUDA_PRAGMA(unroll n)
#define NO_UNROLL         CUDA_PRAGMA(unroll 1)

#define DEVICE_FN static __device__ __forceinline__

DEVICE_FN unsigned cuda_shared_address(const void *p) {
    return (unsigned)__cvta_generic_to_shared(p);
}

#endif

// Returns x. The compiler takes it for a new value each time, and so keeps nothing that follows
// from it in registers from one round of a loop to the next.
DEVICE_FN int in_loop(int x) {
    asm volatile("" : "+r"(x));
    return x;
}

// ---- What both get from here: names of ours, and instructions without a name in C --------------

#define KERNEL extern "C" __global__

extern __shared__ __attribute__((aligned(16))) unsigned char cuda_dynamic_shared[];
#define DYN_SHARED(T, name) T *name = reinterpret_cast<T *>(cuda_dynamic_shared)

struct __half {
    uint16_t bits;
};
DEVICE_FN float __half2float(__half h) {
    float f;
    asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h.bits));
    return f;
}
DEVICE_FN __half __float2half(float f) { // nearest even
    __half h;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h.bits) : "f"(f));
    return h;
}

// Copies 16 bytes from global to shared memory asynchronously. The thread itself sees them after
// cp_async_wait<N>, which leaves the N groups committed last in flight; other threads see them
// after a barrier as well.
#if CUDA_ARCH >= 800
DEVICE_FN void cp_async16(void *shared, const void *global) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(cuda_shared_address(shared)),
                 "l"(global)
                 : "memory");
}
DEVICE_FN void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N> DEVICE_FN void cp_async_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}
#else
DEVICE_FN void cp_async16(void *shared, const void *global) {
    *static_cast<uint4 *>(shared) = *static_cast<const uint4 *>(global);
}
DEVICE_FN void cp_async_commit() {}
template <int N> DEVICE_FN void cp_async_wait() {}
#endif

#if CUDA_ARCH >= 750
// Two pairs of halves, each rounded to the nearest even one.
DEVICE_FN uint32_t sub_halves(uint32_t a, uint32_t b) {
    uint32_t d;
    asm("sub.rn.f16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
    return d;
}
DEVICE_FN uint32_t mul_halves(uint32_t a, uint32_t b) {
    uint32_t d;
    asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
    return d;
}

// Loads four (two) 8x8 tiles of 16-bit elements: lane i names row i % 8 of tile i / 8, 16 bytes
// aligned to 16, in shared memory; d[k] of lane i gets elements 2 * (i % 4) and the next of row i /
// 4 of tile k.
DEVICE_FN void ldmatrix_x4(uint32_t d[4], const void *row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
                 : "r"(cuda_shared_address(row))
                 : "memory");
}
DEVICE_FN void ldmatrix_x2(uint32_t d[2], const void *row) { // lanes 0..15 name the rows
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
                 : "=r"(d[0]), "=r"(d[1])
                 : "r"(cuda_shared_address(row))
                 : "memory");
}

// d += A B by the whole warp. A is row major, B column major, d row major. With g = lane / 4 and
// t = lane % 4 a lane holds
//   d: rows g (d[0], d[1]) and g + 8 (d[2], d[3]), columns 2t, 2t + 1
//   m16n8k8  f16: a[i] row g + 8i, columns 2t, 2t + 1;  b column g, rows 2t, 2t + 1
//   m16n8k16 f16: a[i] row g + 8 (i & 1), columns 2t + 8 (i >> 1), next;  b[i] column g, rows 2t +
//                 8i, next
//   m8n8k16  s8:  d row g, columns 2t, 2t + 1; a row g, columns 4t..4t+3; b column g, rows
//                 4t..4t+3
//   m16n8k16 s8:  a[i] row g + 8i, columns 4t..4t+3;  b column g, rows 4t..4t+3
//   m16n8k32 s8:  a[i] row g + 8 (i & 1), columns 4t + 16 (i >> 1)..+3;  b[i] column g, rows 4t +
//                 16i..+3
DEVICE_FN void mma_m16n8k8_f16(float d[4], const uint32_t a[2], uint32_t b) {
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(b));
}
DEVICE_FN void mma_m8n8k16_s8(int d[2], uint32_t a, uint32_t b) {
    asm volatile("mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%0, %1}, {%2}, {%3}, {%0, %1};"
                 : "+r"(d[0]), "+r"(d[1])
                 : "r"(a), "r"(b));
}
#endif

#if CUDA_ARCH >= 800
DEVICE_FN void mma_m16n8k16_f16(float d[4], const uint32_t a[4], const uint32_t b[2]) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
DEVICE_FN void mma_m16n8k16_s8(int d[4], const uint32_t a[2], uint32_t b) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 "
                 "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
                 : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(b));
}
DEVICE_FN void mma_m16n8k32_s8(int d[4], const uint32_t a[4], const uint32_t b[2]) {
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
#endif

#endif // EMULATED
#endif

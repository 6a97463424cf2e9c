/* cuda_host.hpp: CUDA's names for the host's compiler, so that a .cu file runs on simt.c.
 *
 * Included before the first line of every .cu file, which is compiled as C++ once per instruction
 * set of the images, with CUDA_ARCH=610, 750, ... on the command line. Owns nothing; lane state
 * lives in the engine. Must not offer what kernels/cuda/device.cuh does not list. __shared__ arrays
 * are thread-local: a worker runs one block at a time. Tested by tests/kernels/test_simt.c.
 */
#ifndef TANDEM_TESTS_EMULATOR_CUDA_HOST_HPP
#define TANDEM_TESTS_EMULATOR_CUDA_HOST_HPP

#include "tests/emulator/simt.h"

#include <immintrin.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#define EMULATED 1

#define KERNEL extern "C"
#define __device__
#define __host__
#define __constant__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define UNROLL_BY(n)
#define NO_UNROLL
#define __shared__          static thread_local
#define DYN_SHARED(T, name) T *name = static_cast<T *>(simt_self()->block->shared)
#define DEVICE_FN           static inline __attribute__((unused))
#define threadIdx           (simt_self()->index)
#define blockIdx            (simt_self()->block->index)
#define blockDim            (simt_self()->block->size)
#define gridDim             (simt_self()->block->grid)
#define __syncthreads()     simt_barrier(simt_place{__FILE__, __LINE__})
DEVICE_FN int in_loop(int x) { return x; }
// The line of the call: only a default argument that is nothing but these knows it.
#define SIMT_HERE  const char *file = __builtin_FILE(), int line = __builtin_LINE()
#define SIMT_PLACE (simt_place{file, line})

// ---- Vectors and halves ------------------------------------------------------------------------

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

struct __half {
    uint16_t bits;
};
DEVICE_FN float __half2float(__half h) { return _cvtsh_ss(h.bits); }
DEVICE_FN __half __float2half(float f) { // any NaN becomes 0x7fff, as on an H100
    return __half{f == f ? _cvtss_sh(f, _MM_FROUND_TO_NEAREST_INT) : (unsigned short)0x7fff};
}

// ---- Arithmetic --------------------------------------------------------------------------------

template <class To, class From> DEVICE_FN To bits_as(From from) {
    static_assert(sizeof(To) == sizeof(From), "same size");
    To to;
    memcpy(&to, &from, sizeof to);
    return to;
}
DEVICE_FN int __float_as_int(float a) { return bits_as<int>(a); }
DEVICE_FN unsigned __float_as_uint(float a) { return bits_as<unsigned>(a); }
DEVICE_FN float __int_as_float(int a) { return bits_as<float>(a); }
DEVICE_FN float __uint_as_float(unsigned a) { return bits_as<float>(a); }
DEVICE_FN long long __double_as_longlong(double a) { return bits_as<long long>(a); }
DEVICE_FN double __longlong_as_double(long long a) { return bits_as<double>(a); }
DEVICE_FN int __float2int_rn(float a) { // as the device has it: saturated, 0 for a NaN
    if (a != a) return 0;
    return a >= 2147483648.0F ? INT32_MAX : a <= -2147483648.0F ? INT32_MIN : (int)rintf(a);
}
DEVICE_FN float rsqrtf(float a) { return 1.0F / sqrtf(a); }
DEVICE_FN float __fdividef(float a, float b) { return a / b; }
DEVICE_FN int __popc(unsigned a) { return __builtin_popcount(a); }
DEVICE_FN int min(int a, int b) { return a < b ? a : b; }
DEVICE_FN int max(int a, int b) { return a > b ? a : b; }
DEVICE_FN unsigned min(unsigned a, unsigned b) { return a < b ? a : b; }
DEVICE_FN unsigned max(unsigned a, unsigned b) { return a > b ? a : b; }
// glibc has the names with two underscores for itself.
#define __expf(a) expf(a)
#define __logf(a) logf(a)

DEVICE_FN int __dp4a(int a, int b, int c) {
    __m128i products = _mm_madd_epi16(_mm_cvtepi8_epi16(_mm_cvtsi32_si128(a)),
                                      _mm_cvtepi8_epi16(_mm_cvtsi32_si128(b)));
    return (int)((unsigned)c + (unsigned)_mm_cvtsi128_si32(products) +
                 (unsigned)_mm_extract_epi32(products, 1));
}

// Byte i of the result is the byte of b:a that nibble i of the selector names with three bits.
DEVICE_FN unsigned __byte_perm(unsigned a, unsigned b, unsigned selector) {
    const uint64_t bytes = (uint64_t)b << 32 | a;
    unsigned out = 0;
    for (int i = 0; i < 4; i++)
        out |= (unsigned)(bytes >> 8 * (selector >> 4 * i & 7) & 255) << 8 * i;
    return out;
}

DEVICE_FN void simt_loads(const void *p) {
    if (simt_counts_lines) simt_note_load(p);
}
template <class T> DEVICE_FN T __ldg(const T *p) {
    simt_loads(p);
    return *p;
}
DEVICE_FN int atomicAdd(int *p, int v) { return __atomic_fetch_add(p, v, __ATOMIC_RELAXED); }
DEVICE_FN unsigned atomicAdd(unsigned *p, unsigned v) {
    return __atomic_fetch_add(p, v, __ATOMIC_RELAXED);
}
DEVICE_FN float atomicAdd(float *p, float v) {
    unsigned *bits = reinterpret_cast<unsigned *>(p);
    unsigned old = __atomic_load_n(bits, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(bits, &old, bits_as<unsigned>(bits_as<float>(old) + v),
                                        false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
    return bits_as<float>(old);
}
DEVICE_FN void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }

// ---- The warp ----------------------------------------------------------------------------------

DEVICE_FN void __syncwarp(unsigned mask = ~0U, SIMT_HERE) {
    simt_exchange(mask, nullptr, 0, nullptr, SIMT_PLACE);
}

// Returns the v of lane source of the own warp.
template <class T>
DEVICE_FN T simt_read_lane(unsigned mask, T v, unsigned source, simt_place here) {
    static_assert(sizeof(T) == 4, "shuffles move 32 bits");
    uint64_t word = bits_as<unsigned>(v);
    const simt_lanes *lanes = simt_exchange(mask, &word, 1, nullptr, here);
    if (!(mask >> source & 1))
        simt_fault("a shuffle at %s:%d reads lane %u outside its mask %08x", here.file, here.line,
                   source, mask);
    return bits_as<T>((unsigned)lanes->word[source][0]);
}
template <class T>
DEVICE_FN T __shfl_sync(unsigned mask, T v, int lane, int width = 32, SIMT_HERE) {
    unsigned own = simt_self()->lane, low = (unsigned)width - 1;
    return simt_read_lane(mask, v, (own & ~low) | ((unsigned)lane & low), SIMT_PLACE);
}
template <class T>
DEVICE_FN T __shfl_xor_sync(unsigned mask, T v, int lanes, int width = 32, SIMT_HERE) {
    unsigned own = simt_self()->lane, source = own ^ (unsigned)lanes;
    return simt_read_lane(mask, v, source > (own | ((unsigned)width - 1)) ? own : source,
                          SIMT_PLACE);
}
template <class T>
DEVICE_FN T __shfl_down_sync(unsigned mask, T v, unsigned by, int width = 32, SIMT_HERE) {
    unsigned own = simt_self()->lane, low = (unsigned)width - 1;
    return simt_read_lane(mask, v, (own & low) + by > low ? own : own + by, SIMT_PLACE);
}

DEVICE_FN unsigned __ballot_sync(unsigned mask, int v, SIMT_HERE) {
    uint64_t word = v != 0;
    const simt_lanes *lanes = simt_exchange(mask, &word, 1, nullptr, SIMT_PLACE);
    unsigned ballot = 0;
    for (unsigned i = 0; i < SIMT_WARP; i++)
        if (mask >> i & 1) ballot |= (unsigned)lanes->word[i][0] << i;
    return ballot;
}

// ---- Asynchronous copies -----------------------------------------------------------------------

// The data may land at any moment between the request and the wait: the target is spoilt at once
// and gets its bytes at the wait.
#if CUDA_ARCH >= 800
DEVICE_FN void cp_async16(void *shared, const void *global, SIMT_HERE) {
    simt_thread *t = simt_self();
    if (((uintptr_t)shared | (uintptr_t)global) & 15)
        simt_fault("cp_async16 at %s:%d: an address is no multiple of 16", file, line);
    if (t->n_copies == SIMT_COPIES_MAX)
        simt_fault("cp_async16 at %s:%d: more than %d copies in flight", file, line,
                   SIMT_COPIES_MAX);
    simt_loads(global);
    t->copies[t->n_copies++] = simt_copy{shared, global, t->copy_group};
    memset(shared, 0xff, 16);
}
DEVICE_FN void cp_async_commit() { simt_self()->copy_group++; }
template <int N> DEVICE_FN void cp_async_wait() {
    simt_thread *t = simt_self();
    unsigned kept = 0;
    for (unsigned i = 0; i < t->n_copies; i++) {
        simt_copy copy = t->copies[i];
        if (copy.group + N < t->copy_group)
            memcpy(copy.target, copy.source, 16);
        else
            t->copies[kept++] = copy;
    }
    t->n_copies = kept;
}
#else
DEVICE_FN void cp_async16(void *shared, const void *global) {
    *static_cast<uint4 *>(shared) = *static_cast<const uint4 *>(global);
}
DEVICE_FN void cp_async_commit() {}
template <int N> DEVICE_FN void cp_async_wait() {}
#endif

// ---- Matrix instructions -----------------------------------------------------------------------

#if CUDA_ARCH >= 750

// A float holds more than twice the digits of a half, so rounding twice changes nothing.
template <class Op> DEVICE_FN uint32_t simt_halves(uint32_t a, uint32_t b, Op op) {
    const float low = op(__half2float(__half{(uint16_t)a}), __half2float(__half{(uint16_t)b}));
    const float high =
        op(__half2float(__half{(uint16_t)(a >> 16)}), __half2float(__half{(uint16_t)(b >> 16)}));
    return __float2half(low).bits | (uint32_t)__float2half(high).bits << 16;
}
DEVICE_FN uint32_t sub_halves(uint32_t a, uint32_t b) {
    return simt_halves(a, b, [](float x, float y) { return x - y; });
}
DEVICE_FN uint32_t mul_halves(uint32_t a, uint32_t b) {
    return simt_halves(a, b, [](float x, float y) { return x * y; });
}

// The row addresses go through the exchange; every lane then reads for itself.
template <int TILES> DEVICE_FN void simt_ldmatrix(uint32_t *d, const void *row, simt_place here) {
    uint64_t word = (uintptr_t)row;
    unsigned lane = simt_self()->lane;
    if (lane < 8 * TILES && word & 15)
        simt_fault("ldmatrix at %s:%d: a row is not aligned to 16 bytes", here.file, here.line);
    const simt_lanes *lanes = simt_exchange(~0U, &word, 1, nullptr, here);
    const uint32_t *source[TILES];
    for (unsigned k = 0; k < TILES; k++)
        source[k] = (const uint32_t *)(uintptr_t)lanes->word[8 * k + lane / 4][0] + lane % 4;
    for (unsigned k = 0; k < TILES; k++) memcpy(&d[k], source[k], 4);
}
DEVICE_FN void ldmatrix_x4(uint32_t d[4], const void *row, SIMT_HERE) {
    simt_ldmatrix<4>(d, row, SIMT_PLACE);
}
DEVICE_FN void ldmatrix_x2(uint32_t d[2], const void *row, SIMT_HERE) {
    simt_ldmatrix<2>(d, row, SIMT_PLACE);
}

// Rows of a times rows of b. Bytes are multiplied as 16-bit numbers, whose products are added in
// pairs; then those of eight columns are added up together.
template <int M, int K>
DEVICE_FN void simt_products(const int8_t (*a)[K], const int8_t (*b)[K], int (*sums)[8]) {
    __m256i wide_b[8][K / 16];
    for (int column = 0; column < 8; column++)
        for (int k = 0; k < K / 16; k++)
            wide_b[column][k] = _mm256_cvtepi8_epi16(_mm_load_si128((__m128i *)b[column] + k));
    for (int row = 0; row < M; row++) {
        __m256i part[8];
        for (int column = 0; column < 8; column++) part[column] = _mm256_setzero_si256();
        for (int k = 0; k < K / 16; k++) {
            __m256i wide_a = _mm256_cvtepi8_epi16(_mm_load_si128((__m128i *)a[row] + k));
            for (int column = 0; column < 8; column++)
                part[column] =
                    _mm256_add_epi32(part[column], _mm256_madd_epi16(wide_a, wide_b[column][k]));
        }
        for (int i = 0; i < 4; i++) part[i] = _mm256_hadd_epi32(part[2 * i], part[2 * i + 1]);
        __m256i low = _mm256_hadd_epi32(part[0], part[1]);
        __m256i high = _mm256_hadd_epi32(part[2], part[3]);
        _mm256_store_si256((__m256i *)sums[row],
                           _mm256_add_epi32(_mm256_permute2x128_si256(low, high, 0x20),
                                            _mm256_permute2x128_si256(low, high, 0x31)));
    }
}
template <int M, int K>
DEVICE_FN void simt_products(const __half (*a)[K], const __half (*b)[K], float (*sums)[8]) {
    alignas(32) float wide_b[K][8];
    for (int column = 0; column < 8; column++)
        for (int k = 0; k < K; k++) wide_b[k][column] = __half2float(b[column][k]);
    for (int row = 0; row < M; row++) {
        __m256 sum = _mm256_setzero_ps();
        for (int k = 0; k < K; k++)
            sum = _mm256_fmadd_ps(_mm256_set1_ps(__half2float(a[row][k])),
                                  _mm256_load_ps(wide_b[k]), sum);
        _mm256_store_ps(sums[row], sum);
    }
}

// An instruction of M x 8 x K: lanes hold NA registers of a, NB of b and ND of d, and put them into
// the exchange in that order. The last lane multiplies for the whole warp.
template <class Element, class Sum, int M, int K> struct simt_mma {
    static constexpr int PER = 4 / (int)sizeof(Element); // elements in a register
    static constexpr int NA = M * K / 32 / PER, NB = 8 * K / 32 / PER, ND = M * 8 / 32;
    static_assert((NA + NB + ND) * 4 <= SIMT_WORDS * 8, "fits into an exchange");

    // The first element of register i of a lane along K; its row (of a) or column (of b) is lane
    // / 4.
    static constexpr int k_of(int lane, int i, int rows) {
        return lane % 4 * PER + i / rows * 4 * PER;
    }

    static void multiply(simt_lanes *lanes) {
        constexpr int ROWS = M / 8; // registers of a for rows 8 apart
        alignas(32) Element a[M][K], b[8][K];
        alignas(32) Sum sums[M][8];
        for (int lane = 0; lane < SIMT_WARP; lane++) {
            const char *held = (const char *)lanes->word[lane];
            for (int i = 0; i < NA; i++)
                memcpy(&a[lane / 4 + i % ROWS * 8][k_of(lane, i, ROWS)], held + 4 * i, 4);
            for (int i = 0; i < NB; i++)
                memcpy(&b[lane / 4][k_of(lane, i, 1)], held + 4 * (NA + i), 4);
        }
        simt_products<M, K>(a, b, sums);
        for (int lane = 0; lane < SIMT_WARP; lane++)
            for (int i = 0; i < ND; i++) {
                char *d = (char *)lanes->word[lane] + 4 * (NA + NB + i);
                Sum sum;
                memcpy(&sum, d, sizeof sum);
                sum += sums[lane / 4 + i / 2 * 8][lane % 4 * 2 + i % 2];
                memcpy(d, &sum, sizeof sum);
            }
    }

    static void run(Sum *d, const uint32_t *a, const uint32_t *b, simt_place here) {
        uint64_t words[SIMT_WORDS];
        char *bytes = (char *)words;
        memcpy(bytes, a, NA * 4);
        memcpy(bytes + NA * 4, b, NB * 4);
        memcpy(bytes + (NA + NB) * 4, d, ND * 4);
        const simt_lanes *lanes = simt_exchange(~0U, words, (NA + NB + ND + 1) / 2, multiply, here);
        memcpy(d, (const char *)lanes->word[simt_self()->lane] + (NA + NB) * 4, ND * 4);
    }
};
DEVICE_FN void mma_m16n8k8_f16(float d[4], const uint32_t a[2], uint32_t b, SIMT_HERE) {
    simt_mma<__half, float, 16, 8>::run(d, a, &b, SIMT_PLACE);
}
DEVICE_FN void mma_m8n8k16_s8(int d[2], uint32_t a, uint32_t b, SIMT_HERE) {
    simt_mma<int8_t, int, 8, 16>::run(d, &a, &b, SIMT_PLACE);
}
#endif

#if CUDA_ARCH >= 800
DEVICE_FN void mma_m16n8k16_f16(float d[4], const uint32_t a[4], const uint32_t b[2], SIMT_HERE) {
    simt_mma<__half, float, 16, 16>::run(d, a, b, SIMT_PLACE);
}
DEVICE_FN void mma_m16n8k16_s8(int d[4], const uint32_t a[2], uint32_t b, SIMT_HERE) {
    simt_mma<int8_t, int, 16, 16>::run(d, a, &b, SIMT_PLACE);
}
DEVICE_FN void mma_m16n8k32_s8(int d[4], const uint32_t a[4], const uint32_t b[2], SIMT_HERE) {
    simt_mma<int8_t, int, 16, 32>::run(d, a, b, SIMT_PLACE);
}
#endif

#endif

/* peak.cu: peak_<type>_<instruction>, the rate of one instruction with nothing in its way: what the
 * matmuls of gemm_mma.cu and gemm_dp4a.cu are measured against.
 *
 * Operands and sums stay in registers, and the PEAK_CHAINS sums of a thread do not wait for each
 * other, so that 8 warps of a multiprocessor's quarter have 64 instructions to choose from. No
 * memory is read; a thread writes one word at the end, by which the host sees that all was
 * computed. Every lane has the same operands, hence every element of a product the same value.
 * Sums of floats stay exact: the products are equal powers of two, less than 2^24 of them. Chains
 * start at different values, or a compiler could make them one. The mma instructions are those that
 * the GEMMs take in the same image; below 7.5 these two are empty and the host does not launch
 * them. Tested by tests/cli/cli_kernels.sh.
 */
#include "bench/cuda/peak.h"
#include "kernels/cuda/device.cuh"

#define PEAK_KERNEL(name) \
    KERNEL void __launch_bounds__(PEAK_THREADS) name(const struct peak_params p)

// C::step adds the product of a and b to the C::SUMS sums of a chain.
template <class C> DEVICE_FN void multiply(const struct peak_params &p) {
    typename C::sum sums[PEAK_CHAINS][C::SUMS];
#pragma unroll
    for (int c = 0; c < PEAK_CHAINS; c++)
#pragma unroll
        for (int i = 0; i < C::SUMS; i++) sums[c][i] = (typename C::sum)c;
#pragma unroll 1
    for (int round = 0; round < p.n_rounds; round++)
#pragma unroll
        for (int step = 0; step < PEAK_STEPS; step++)
#pragma unroll
            for (int c = 0; c < PEAK_CHAINS; c++) C::step(sums[c], p.a, p.b);
    bool equal = true;
#pragma unroll
    for (int c = 0; c < PEAK_CHAINS; c++)
#pragma unroll
        for (int i = 0; i < C::SUMS; i++)
            equal = equal && sums[c][i] == sums[0][0] + (typename C::sum)c;
    p.out[blockIdx.x * PEAK_THREADS + threadIdx.x] =
        equal ? C::bits(sums[0][0]) : (uint32_t)PEAK_DIFFERENT;
}

struct int_chain {
    typedef int sum;
    DEVICE_FN uint32_t bits(int v) { return (uint32_t)v; }
};
struct float_chain {
    typedef float sum;
    DEVICE_FN uint32_t bits(float v) { return __float_as_uint(v); }
};

struct dp4a_chain : int_chain {
    static constexpr int SUMS = 1;
    DEVICE_FN void step(int *d, uint32_t a, uint32_t b) { *d = __dp4a((int)a, (int)b, *d); }
};
struct fma_chain : float_chain {
    static constexpr int SUMS = 1;
    DEVICE_FN void step(float *d, uint32_t a, uint32_t b) {
        *d = fmaf(__uint_as_float(a), *d, __uint_as_float(b));
    }
};

#if CUDA_ARCH >= 800
struct s8_chain : int_chain {
    static constexpr int SUMS = 4;
    DEVICE_FN void step(int *d, uint32_t a, uint32_t b) {
        const uint32_t w[4] = {a, a, a, a}, x[2] = {b, b};
        mma_m16n8k32_s8(d, w, x);
    }
};
struct f16_chain : float_chain {
    static constexpr int SUMS = 4;
    DEVICE_FN void step(float *d, uint32_t a, uint32_t b) {
        const uint32_t w[4] = {a, a, a, a}, x[2] = {b, b};
        mma_m16n8k16_f16(d, w, x);
    }
};
#elif CUDA_ARCH >= 750
struct s8_chain : int_chain {
    static constexpr int SUMS = 2;
    DEVICE_FN void step(int *d, uint32_t a, uint32_t b) { mma_m8n8k16_s8(d, a, b); }
};
struct f16_chain : float_chain {
    static constexpr int SUMS = 4;
    DEVICE_FN void step(float *d, uint32_t a, uint32_t b) {
        const uint32_t w[2] = {a, a};
        mma_m16n8k8_f16(d, w, b);
    }
};
#endif

#if CUDA_ARCH >= 750
PEAK_KERNEL(peak_s8_mma) { multiply<s8_chain>(p); }
PEAK_KERNEL(peak_f16_mma) { multiply<f16_chain>(p); }
#else
PEAK_KERNEL(peak_s8_mma) { (void)p; }
PEAK_KERNEL(peak_f16_mma) { (void)p; }
#endif
PEAK_KERNEL(peak_s8_dp4a) { multiply<dp4a_chain>(p); }
PEAK_KERNEL(peak_f32_fma) { multiply<fma_chain>(p); }

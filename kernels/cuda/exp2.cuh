/* exp2.cuh: 2^x in double, where a float would not do: the angles of rope and the scores of route.
 *
 * Slow on most cards, so for tables and choices only. Owns nothing; device code only. Tested by
 * tests/kernels/check_ops.c.
 */
#ifndef TANDEM_KERNELS_CUDA_EXP2_CUH
#define TANDEM_KERNELS_CUDA_EXP2_CUH

#include "kernels/cuda/device.cuh"

// 2^n, |n| < 1023.
DEVICE_FN double power_of_two(int n) { return __longlong_as_double((long long)(n + 1023) << 52); }

// 2^x: a power of two made of exponent bits, as two factors so that neither overflows, times the
// series of e^y, |y| < 0.347; the first term left out is below 1e-16.
DEVICE_FN double exp2_of(double x) {
    if (x < -1100) return 0;
    if (x > 1100) return power_of_two(1000) * power_of_two(1000);
    if (x != x) return x;
    double whole = rint(x), y = (x - whole) * 0.69314718055994530942, sum = 1;
    for (int k = 13; k > 0; k--) sum = 1 + sum * (y * (1.0 / k));
    int half = (int)whole / 2, rest = (int)whole - half;
    return sum * power_of_two(half) * power_of_two(rest);
}

#endif

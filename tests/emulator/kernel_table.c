/* kernel_table.c: see kernel_table.h. Compiled with KERNEL_TABLE=kernels_800 and the like. */
#include "tests/emulator/kernel_table.h"

#include "bench/cuda/peak.h"
#include "kernels/cuda/params.h"

// The kernels are C++ with C linkage; the struct goes by value as to any function.
#define CUDA_KERNEL(name, type) \
    void name(type params);     \
    static void run_##name(const void *params) { name(*(const type *)params); }
#include "bench/cuda/peak.def"
#include "kernels/cuda/kernels.def"
#undef CUDA_KERNEL

const struct fake_kernel KERNEL_TABLE[] = {
#define CUDA_KERNEL(name, type) {#name, run_##name, sizeof(type)},
#include "bench/cuda/peak.def"
#include "kernels/cuda/kernels.def"
#undef CUDA_KERNEL
    {NULL, NULL, 0},
};

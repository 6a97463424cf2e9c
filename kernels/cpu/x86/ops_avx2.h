/* ops_avx2.h: the AVX2 kernels of the ops that are no matmul.
 *
 * Owns nothing. Call only on a CPU with AVX2, FMA and F16C. Results for a token depend on nothing
 * else in the batch, bit for bit. Tested by tests/kernels/check_ops.c.
 */
#ifndef TANDEM_KERNELS_CPU_X86_OPS_AVX2_H
#define TANDEM_KERNELS_CPU_X86_OPS_AVX2_H

#include "kernels/cpu/cpu.h"

// Overwrites rms_norm, rope, kv_store, attention and swiglu of table.
void cpu_ops_avx2(struct cpu_table *table);

// In attention_avx2.c.
void attention_avx2(const struct lane *lane, const struct attention_args *args);

#endif

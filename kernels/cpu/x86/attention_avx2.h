/* attention_avx2.h: the AVX2 kernel of attention, which ops_avx2.c puts into the table.
 *
 * Owns nothing. Call only on a CPU with AVX2, FMA and F16C. Results for a token depend on nothing
 * else in the batch, bit for bit. Tested by tests/kernels/check_ops.c.
 */
#ifndef TANDEM_KERNELS_CPU_X86_ATTENTION_AVX2_H
#define TANDEM_KERNELS_CPU_X86_ATTENTION_AVX2_H

#include "kernels/cpu/cpu.h"

void attention_avx2(const struct lane *lane, const struct attention_args *args);

#endif

/* matmul_x86.h: installs the x86 matmuls of each instruction-set level.
 *
 * Owns nothing; call only on a CPU that has the level's instructions. Weights of integer types give
 * the same bits on every level. Used by the table files. Tested by tests/check_ops.c.
 */
#ifndef TANDEM_KERNELS_CPU_MATMUL_X86_H
#define TANDEM_KERNELS_CPU_MATMUL_X86_H

#include "kernels/cpu/cpu.h"

void cpu_matmul_avx2(struct cpu_table *table);    // every weight type
void cpu_matmul_avxvnni(struct cpu_table *table); // integer types; F32, F16 and BF16 stay
void cpu_matmul_avx512(struct cpu_table *table);  // every weight type

#endif

/* arm.h: puts the kernels of each level of aarch64 instructions into the CPU's table.
 *
 * Owns nothing; any thread. device/table.c knows what the CPU has and calls these. Tested by
 * tests/kernels/check_ops.c, under qemu by make test-arm.
 */
#ifndef TANDEM_KERNELS_CPU_ARM_ARM_H
#define TANDEM_KERNELS_CPU_ARM_ARM_H

#include "kernels/cpu/cpu.h"

// Each overwrites the entries for which it has a better kernel, matmul_experts with matmul. Call
// the weakest level first, and only levels whose instructions the CPU has.
void cpu_matmul_neon(struct cpu_table *table);       // integer types
void cpu_matmul_float_neon(struct cpu_table *table); // the other types
void cpu_ops_neon(struct cpu_table *table);          // the ops between matmuls that take time
void cpu_matmul_dotprod(struct cpu_table *table);    // integer types
void cpu_matmul_i8mm(struct cpu_table *table);       // integer types

#endif

/* x86.h: puts the kernels of each x86 level of instructions into the CPU's table.
 *
 * Owns nothing; any thread. device/table.c knows what the CPU has and calls these. Tested by
 * tests/kernels/check_ops.c.
 */
#ifndef TANDEM_KERNELS_CPU_X86_X86_H
#define TANDEM_KERNELS_CPU_X86_X86_H

#include "kernels/cpu/cpu.h"

// Each overwrites the entries for which it has a better kernel, matmul_experts with matmul. Call
// the weakest level first, and only levels whose instructions the CPU has.
void cpu_matmul_avx2(struct cpu_table *table);       // every weight type
void cpu_ops_avx2(struct cpu_table *table);          // element by element, and attention
void cpu_matmul_avxvnni(struct cpu_table *table);    // integer types
void cpu_matmul_avx512(struct cpu_table *table);     // every weight type
void cpu_matmul_vbmi(struct cpu_table *table);       // types of codebooks
void cpu_matmul_zen4(struct cpu_table *table);       // types of codebooks
void cpu_matmul_avx512bf16(struct cpu_table *table); // BF16

#endif

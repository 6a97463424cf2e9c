/* matmul_neon.c: matmuls of integer types with the instructions that every aarch64 CPU has.
 *
 * The code is in the .inc file. Owns nothing; every lane calls. Tested by
 * tests/kernels/check_ops.c.
 */
#define LEVEL "neon"
#define DOT   0
#define MMLA  0
#include "kernels/cpu/arm/matmul_arm.inc"

void cpu_matmul_neon(struct cpu_table *table) { install(table); }

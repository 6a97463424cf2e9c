/* matmul_dotprod.c: matmuls of integer types with SDOT, which adds four byte products to a 32-bit
 * lane at once.
 *
 * The code is in the .inc file. Owns nothing; every lane calls. Tested by
 * tests/kernels/check_ops.c.
 */
#define LEVEL "dotprod"
#define DOT   1
#define MMLA  0
#include "kernels/cpu/arm/matmul_arm.inc"

void cpu_matmul_dotprod(struct cpu_table *table) { install(table); }

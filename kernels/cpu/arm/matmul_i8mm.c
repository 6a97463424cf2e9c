/* matmul_i8mm.c: matmuls of integer types with SMMLA, which multiplies eight columns of two rows
 * with two tokens at once.
 *
 * The code is in the .inc file. Owns nothing; every lane calls. Tested by
 * tests/kernels/check_ops.c.
 */
#define LEVEL "i8mm"
#define DOT   1
#define MMLA  1
#include "kernels/cpu/arm/matmul_arm.inc"

void cpu_matmul_i8mm(struct cpu_table *table) { install(table); }

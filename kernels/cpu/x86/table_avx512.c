/* table_avx512.c: what the CPU backend runs with AVX-512 F, BW, VL, DQ and VNNI, over the AVX2
 * table.
 *
 * Owns nothing; any thread. Tested by tests/kernels/check_ops.c.
 */
#include "kernels/cpu/x86/matmul_x86.h"

void cpu_table_avx512(struct cpu_table *table) { cpu_matmul_avx512(table); }

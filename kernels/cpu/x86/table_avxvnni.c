/* table_avxvnni.c: what the CPU backend runs with AVX-VNNI, over the AVX2 table.
 *
 * Owns nothing; any thread. Tested by tests/kernels/check_ops.c.
 */
#include "kernels/cpu/x86/matmul_x86.h"

void cpu_table_avxvnni(struct cpu_table *table) { cpu_matmul_avxvnni(table); }

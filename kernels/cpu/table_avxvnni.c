/* table_avxvnni.c: what the CPU backend runs with AVX-VNNI, over the AVX2 table.
 *
 * Owns nothing; any thread. Tested by tests/check_ops.c.
 */
#include "kernels/cpu/matmul_x86.h"

void cpu_table_avxvnni(struct cpu_table *table) { cpu_matmul_avxvnni(table); }

/* table_avx2.c: what the CPU backend runs with AVX2, FMA and F16C.
 *
 * Owns nothing; any thread. Tested by tests/kernels/check_ops.c.
 */
#include "kernels/cpu/x86/matmul_x86.h"
#include "kernels/cpu/x86/ops_avx2.h"

void cpu_table_avx2(struct cpu_table *table) {
    cpu_matmul_avx2(table);
    cpu_ops_avx2(table);
}

/* matmul_avx512bf16.c: matmuls of BF16 with products of pairs of such numbers (vdpbf16ps).
 *
 * All other types keep the kernels of the levels below. Activations are rounded to BF16, an error
 * of 2^-9 at most. The code is in the .inc file. Owns nothing; every lane calls. Tested by
 * tests/kernels/check_ops.c.
 */
#define LEVEL "avx512bf16"
#define WIDE  1
#define PAIRS 1
#include "kernels/cpu/x86/matmul_float_x86.inc"

void cpu_matmul_avx512bf16(struct cpu_table *table) { install_float(table); }

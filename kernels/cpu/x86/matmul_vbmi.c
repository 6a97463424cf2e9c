/* matmul_vbmi.c: matmuls of the IQ types with AVX-512 VBMI, whose permutations of bytes look
 * entries of codebooks up in registers.
 *
 * All other types keep the kernels of AVX-512. The code is in the .inc file. Owns nothing; every
 * lane calls. Tested by tests/kernels/check_ops.c.
 */
#define LEVEL "vbmi"
#define WIDE  1
#define VNNI  1
#define BOOKS 1
#define DOT4  _mm512_dpbusd_epi32
#include "kernels/cpu/x86/matmul_x86.inc"

void cpu_matmul_vbmi(struct cpu_table *table) { install_quantized(table); }

/* matmul_zen4.c: matmuls of the IQ types for AMD's Zen 4 and later: like matmul_vbmi.c, with all
 * codebooks looked up by permutations of two registers.
 *
 * All other types keep the kernels of AVX-512. The code is in the .inc file. Owns nothing; every
 * lane calls. Tested by tests/kernels/check_ops.c.
 */
#define LEVEL      "zen4"
#define WIDE       1
#define VNNI       1
#define BOOKS      1
#define TABLES_128 1
#define DOT4       _mm512_dpbusd_epi32
#include "kernels/cpu/x86/matmul_x86.inc"

void cpu_matmul_zen4(struct cpu_table *table) { install_quantized(table); }

/* matmul_avxvnni.c: matmuls with AVX-VNNI, which adds four byte products to a 32-bit lane at once.
 *
 * Float types gain nothing from it and keep the AVX2 kernels; so do all where the compiler does not
 * know AVX-VNNI. The code is in the .inc file. Owns nothing; every lane calls. Tested by
 * tests/kernels/check_ops.c.
 */
#ifdef __AVXVNNI__
#define LEVEL "avxvnni"
#define WIDE  0
#define VNNI  1
#define BOOKS 0
#define DOT4  _mm256_dpbusd_avx_epi32
#include "kernels/cpu/x86/matmul_x86.inc"

void cpu_matmul_avxvnni(struct cpu_table *table) { install_quantized(table); }
#else
#include "kernels/cpu/x86/x86.h"

void cpu_matmul_avxvnni(struct cpu_table *table) { (void)table; }
#endif

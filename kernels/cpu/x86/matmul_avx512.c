/* matmul_avx512.c: matmuls with 512-bit vectors and VNNI: panels of 16 rows.
 *
 * The code is in the two .inc files. Owns nothing; every lane calls. Tested by
 * tests/kernels/check_ops.c.
 */
#define LEVEL "avx512"
#define WIDE  1
#define VNNI  1
#define BOOKS 0
#define PAIRS 0
#define DOT4  _mm512_dpbusd_epi32
#include "kernels/cpu/x86/matmul_x86.inc"
#include "kernels/cpu/x86/matmul_float_x86.inc"

void cpu_matmul_avx512(struct cpu_table *table) {
    install_quantized(table);
    install_float(table);
}

/* matmul_avx2.c: matmuls with AVX2, FMA and F16C: integer types by pairs of bytes, float types.
 *
 * The code is in the two .inc files. Owns nothing; every lane calls. Tested by
 * tests/kernels/check_ops.c.
 */
#define LEVEL "avx2"
#define WIDE  0
#define VNNI  0
#define BOOKS 0
#define PAIRS 0
#include "kernels/cpu/x86/matmul_x86.inc"
#include "kernels/cpu/x86/matmul_float_x86.inc"

void cpu_matmul_avx2(struct cpu_table *table) {
    install_quantized(table);
    install_float(table);
}

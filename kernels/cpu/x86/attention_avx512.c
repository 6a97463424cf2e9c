/* attention_avx512.c: attention with 512-bit vectors.
 *
 * The code is in attention_x86.inc. Owns nothing; every lane calls. Tested by
 * tests/kernels/check_attention.c.
 */
#include "kernels/cpu/x86/attention_x86.h"
#include "kernels/cpu/x86/vector_avx512.h"

#define WIDE 1
#include "kernels/cpu/x86/attention_x86.inc"

void attention_avx512(const struct lane *lane, const struct attention_args *args) {
    attention_work(lane, args, attend);
}

/* attention_avx2.c: attention with AVX2.
 *
 * The code is in attention_x86.inc. Owns nothing; every lane calls. Tested by
 * tests/kernels/check_attention.c.
 */
#include "kernels/cpu/x86/attention_x86.h"

#define WIDE 0
#include "kernels/cpu/x86/attention_x86.inc"

void attention_avx2(const struct lane *lane, const struct attention_args *args) {
    attention_work(lane, args, attend);
}

/* attention_avxvnni.c: attention with AVX-VNNI, which multiplies words and adds them at once.
 *
 * Caches in blocks gain from it. Where the compiler does not know AVX-VNNI, it is that of AVX2. The
 * code is in attention_x86.inc. Owns nothing; every lane calls. Tested by
 * tests/kernels/check_attention.c.
 */
#include "kernels/cpu/x86/attention_x86.h"

#ifdef __AVXVNNI__
#define WIDE 0
#include "kernels/cpu/x86/attention_x86.inc"

void attention_avxvnni(const struct lane *lane, const struct attention_args *args) {
    attention_work(lane, args, attend);
}
#else
void attention_avxvnni(const struct lane *lane, const struct attention_args *args) {
    attention_avx2(lane, args);
}
#endif

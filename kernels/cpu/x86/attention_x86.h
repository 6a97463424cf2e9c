/* attention_x86.h: the kernels of attention, which ops_avx2.c and table.c put into the table.
 *
 * Owns nothing. Call only on a CPU with the level's instructions. Results for a token depend on
 * nothing else in the batch, bit for bit. Tested by tests/kernels/check_attention.c.
 */
#ifndef TANDEM_KERNELS_CPU_X86_ATTENTION_X86_H
#define TANDEM_KERNELS_CPU_X86_ATTENTION_X86_H

#include "kernels/cpu/cpu.h"

void attention_avx2(const struct lane *lane, const struct attention_args *args);
void attention_avxvnni(const struct lane *lane, const struct attention_args *args);
void attention_avx512(const struct lane *lane, const struct attention_args *args);

#endif

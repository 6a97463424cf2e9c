/* state_x86.h: the kernels of the ops with a state, which ops_avx2.c puts into the table.
 *
 * Owns nothing. Call only on a CPU with AVX2. Results for a token depend on the values of its state
 * and on nothing else in the batch, bit for bit. Tested by tests/kernels/check_ops.c.
 */
#ifndef TANDEM_KERNELS_CPU_X86_STATE_X86_H
#define TANDEM_KERNELS_CPU_X86_STATE_X86_H

#include "kernels/cpu/cpu.h"

void short_conv_avx2(const struct lane *lane, const struct short_conv_args *args);
void delta_rule_avx2(const struct lane *lane, const struct delta_rule_args *args);
void mamba_scan_avx2(const struct lane *lane, const struct mamba_scan_args *args);

#endif

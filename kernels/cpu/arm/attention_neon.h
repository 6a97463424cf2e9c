/* attention_neon.h: the NEON kernel of attention, which ops_neon.c puts into the table.
 *
 * Owns nothing. Results for a token depend on nothing else in the batch, bit for bit. Tested by
 * tests/kernels/check_ops.c.
 */
#ifndef TANDEM_KERNELS_CPU_ARM_ATTENTION_NEON_H
#define TANDEM_KERNELS_CPU_ARM_ATTENTION_NEON_H

#include "kernels/cpu/cpu.h"

void attention_neon(const struct lane *lane, const struct attention_args *args);

#endif

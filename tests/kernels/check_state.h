/* check_state.h: the checks of the ops with a state, and of split_rows beside them, for
 * check_ops.c.
 *
 * Each runs its op in many shapes on the rigs of an op_check, between op_line_start and
 * op_line_end. Owns nothing. One thread.
 */
#ifndef TANDEM_TESTS_KERNELS_CHECK_STATE_H
#define TANDEM_TESTS_KERNELS_CHECK_STATE_H

#include "tests/kernels/op_check.h"

void check_split_rows(struct op_check *c);
void check_short_conv(struct op_check *c);
void check_delta_rule(struct op_check *c);
void check_mamba_scan(struct op_check *c);

#endif

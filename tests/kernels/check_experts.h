/* check_experts.h: the checks of the ops of experts, for check_ops.c.
 *
 * Each runs its op in many shapes on the rigs of an op_check, between op_line_start and
 * op_line_end. Owns nothing. One thread.
 */
#ifndef TANDEM_TESTS_KERNELS_CHECK_EXPERTS_H
#define TANDEM_TESTS_KERNELS_CHECK_EXPERTS_H

#include "tests/kernels/op_check.h"

void check_route(struct op_check *c);
void check_matmul_experts(struct op_check *c, enum weight_type type);
void check_combine_experts(struct op_check *c);

#endif

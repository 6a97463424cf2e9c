/* check_chains.h: the check of several ops in one list, for check_ops.c.
 *
 * Runs between op_line_start and op_line_end on the rigs of an op_check. Owns nothing. One thread.
 */
#ifndef TANDEM_TESTS_KERNELS_CHECK_CHAINS_H
#define TANDEM_TESTS_KERNELS_CHECK_CHAINS_H

#include "tests/kernels/op_check.h"

void check_layer(struct op_check *c);

#endif

/* check_attention.h: the checks of the ops with a KV cache, for check_ops.c.
 *
 * Each runs its op in many shapes on the rigs of an op_check, between op_line_start and
 * op_line_end. Owns nothing. One thread.
 */
#ifndef TANDEM_TESTS_KERNELS_CHECK_ATTENTION_H
#define TANDEM_TESTS_KERNELS_CHECK_ATTENTION_H

#include "tests/kernels/op_check.h"

void check_kv_store(struct op_check *c);
void check_attention(struct op_check *c);

#endif

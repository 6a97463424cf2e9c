/* small_shape.h: a model and a machine for tests of plans: a few layers with every kind of unit.
 *
 * Fills what the caller provides, owns nothing. Any thread. Used by tests/planner/test_plan_file.c
 * and tests/fuzz/fuzz_plan.c.
 */
#ifndef TANDEM_TESTS_LIB_SMALL_SHAPE_H
#define TANDEM_TESTS_LIB_SMALL_SHAPE_H

#include "planner/planner.h"

// Three layers with attention and a dense FFN, routed experts, or both; passes shape_check. The
// attention of the second can be neither split nor streamed.
void small_shape(struct shape *out);
// A CPU with 1 GiB and an accelerator of kind "sim" with vram_bytes (0: none); no rates.
struct machine small_machine(uint64_t vram_bytes);

#endif

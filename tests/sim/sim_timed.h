/* sim_timed.h: the ops of a simulated accelerator that has the rates of a GPU instead of this
 * CPU's.
 *
 * Its large ops are not computed: they would take a core, and the memory's rate, from the CPU that
 * works beside it, as no GPU does. Their results are zeros, the residual stream as it was, or what
 * was there before. Everything that chooses experts is computed. So it serves to measure time
 * alone. Owns nothing; any thread. Tested by tests/sim/test_sim.c.
 */
#ifndef TANDEM_TESTS_SIM_SIM_TIMED_H
#define TANDEM_TESTS_SIM_SIM_TIMED_H

#include "kernels/op_command.h"
#include "tests/sim/sim_spec.h"

// True if ops take the time of the rates that the specification gives.
bool sim_is_timed(const struct sim_spec *spec);
// Nanoseconds of an op whose pointers the host can follow: its bytes or its operations by the
// rates, whichever takes longer. What a product reads and writes besides weights passes memory
// twice, before and after that: activations are read, written as they are multiplied, and read
// again. A GPU may hide a part of it. Experts and keys count as the tables say, tokens as of one
// sequence.
uint64_t sim_timed_ns(const struct sim_spec *spec, const struct op_command *op);
// Writes what stands for the results of an op that is not computed, if anything has to: what takes
// longer than the op itself would falsify its time. False: it has to be computed.
bool sim_stand_in(const struct op_command *op);

#endif

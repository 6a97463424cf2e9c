/* table.h: the kernels that the CPU backend runs with the instructions of this CPU.
 *
 * Owns nothing; any thread. Tested by tests/kernels/check_ops.c.
 */
#ifndef TANDEM_KERNELS_CPU_DEVICE_TABLE_H
#define TANDEM_KERNELS_CPU_DEVICE_TABLE_H

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/device/isa.h"

struct op_command; // kernels/op_command.h

// The table for a level: ref, then every level up to isa that is built in. ISA_AUTO: every level
// that this CPU has.
void cpu_table_init(struct cpu_table *table, enum cpu_isa isa);
// Fills the table for a level that a user asked for. ERR_UNSUPPORTED, naming the levels of this
// CPU, if it cannot run it.
enum status cpu_table_open(struct cpu_table *table, enum cpu_isa isa, struct err *e);
// Where the lane's share of the weights of a matmul or matmul_experts begins; NULL: unknown. Call
// it for matmul_experts only when the lists of route are written.
const void *cpu_first_weight(const struct cpu_table *table, const struct lane *lane,
                             const struct op_command *command);
// Runs one lane's share of the op that a command names.
void cpu_run_op(const struct cpu_table *table, const struct lane *lane,
                const struct op_command *command);

#endif

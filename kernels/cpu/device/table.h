/* table.h: which kernels the CPU backend runs, by what this CPU can do.
 *
 * Owns nothing; any thread. Tested by tests/kernels/check_ops.c.
 */
#ifndef TANDEM_KERNELS_CPU_DEVICE_TABLE_H
#define TANDEM_KERNELS_CPU_DEVICE_TABLE_H

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/device/isa.h"

struct op_command; // kernels/op_command.h

// The table for a level: ref, then every level up to isa that is built in. ISA_AUTO: all that this
// CPU has.
void cpu_table_init(struct cpu_table *table, enum cpu_isa isa);
// cpu_table_init for a level that a user asked for: ERR_UNSUPPORTED, naming what the CPU has, if it
// cannot run it.
enum status cpu_table_open(struct cpu_table *table, enum cpu_isa isa, struct err *e);
// Calls the kernel that a command names: one lane's share of it.
void cpu_run_op(const struct cpu_table *table, const struct lane *lane,
                const struct op_command *command);

#endif

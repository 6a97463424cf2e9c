/* cores.h: the processors that this process may use, in the order in which threads should take
 * them.
 *
 * A struct core_list owns its array. Must not bind anything; team.c does. Reads the machine through
 * hwloc (cores_hwloc.c) or, in a build with HWLOC=0, through the system alone (cores_none.c), which
 * knows the threads of a core but not which cores are slower. Any thread. Tested by
 * tests/kernels/test_cores.c with invented machines.
 */
#ifndef TANDEM_KERNELS_CPU_CORES_H
#define TANDEM_KERNELS_CPU_CORES_H

#include "base/affinity.h"
#include "base/err.h"

#include <stdint.h>

struct core_list {
    // Numbers of the operating system: one of every performance core, one of every slower core,
    // then the second ones of each in the same order, and so on.
    int32_t *cpus;   // [n_cpus], owned
    int32_t n_cpus;  // at least 1
    int32_t n_cores; // the first n_cores of cpus lie on different cores
    int32_t n_fast;  // the first n_fast of these are performance cores: the fastest kind, and as
                     // many slower kinds as it takes to have a quarter of the cores
};

// Lists the processors of this machine that the calling thread's affinity and cpuset allow.
enum status core_list_open(struct core_list *out, struct err *e);
// Lists them without hwloc: one processor of every core, then the second ones, by number. folder is
// /sys/devices/system/cpu; a processor that it does not describe counts as a core. ERR_DEVICE if
// none is allowed.
enum status core_list_plain(struct core_list *out, const struct affinity *allowed,
                            const char *folder, struct err *e);
// Accepts a zeroed list; leaves it zeroed.
void core_list_close(struct core_list *list);

#endif

/* cores_hwloc.h: makes the list of cores.h from a topology of hwloc, which knows which cores are
 * slower.
 *
 * Owns nothing beyond the list. Must not bind anything. Linked unless the build says HWLOC=0. Any
 * thread. Tested by tests/kernels/test_cores.c with invented machines.
 */
#ifndef TANDEM_KERNELS_CPU_CORES_HWLOC_H
#define TANDEM_KERNELS_CPU_CORES_HWLOC_H

#include "kernels/cpu/cores.h"

#include <hwloc.h>

// core_list_open for a loaded topology and the processors that may be used.
enum status core_list_of(struct core_list *out, hwloc_topology_t topology,
                         hwloc_const_cpuset_t allowed, struct err *e);

#endif

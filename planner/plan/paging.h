/* paging.h: weights that do not stay in RAM: which they are, and the time to read them from the
 * disk.
 *
 * The CPU uses weights where the file is mapped. Those of cold units are read from the disk for
 * each pass and dropped behind it, so that the others stay; the runtime does so by unit_cold_bytes.
 * Any thread. Included through planner/planner.h. Tested by tests/planner/test_paging.c.
 */
#ifndef TANDEM_PLANNER_PLAN_PAGING_H
#define TANDEM_PLANNER_PLAN_PAGING_H

#include "planner/plan/plan.h"

#define DISK_GBPS_UNKNOWN 1.0                  // estimated for a disk that was not measured
#define PAGING_AHEAD      (UINT64_C(16) << 20) // bytes that are read ahead; at least the next unit

// The rate of reading weights from the machine's disk.
double paging_disk_gbps(const struct machine *m);

// Chooses the cold units of a plan for RAM of that many bytes: routed experts first, of which a
// token reads few, then FFNs and attention, from the last layer on; none in an arena, which is
// pinned. ERR_MEMORY if what is no weight, the arena, and the two units that are read at once do
// not fit either; then nothing is changed.
enum status paging_choose(struct plan *plan, const struct shape *shape, uint64_t ram_bytes,
                          struct err *e);

// Bytes of weights that are cold, of all units; 0: all stay.
uint64_t paging_cold_bytes(const struct plan *plan);

// The time to read the cold weights for that pass; 0 without cold units or rates.
double paging_us(const struct plan *plan, const struct shape *shape, const struct pass *pass);

#endif

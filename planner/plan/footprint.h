/* footprint.h: the exact bytes of every buffer, used by the solver and by the runtime when it
 * allocates.
 *
 * Pure functions of shape, workload and device; nothing is owned. Any thread. Included through
 * planner/planner.h. Tested by tests/planner/test_planner.c and tests/planner/test_schedule.c.
 */
#ifndef TANDEM_PLANNER_PLAN_FOOTPRINT_H
#define TANDEM_PLANNER_PLAN_FOOTPRINT_H

#include "planner/plan/plan.h"
#include "planner/plan/ways.h"

// Bytes of the unit's weights on a device, without the embedding table if that is there already.
// Every tensor starts at a multiple of align_bytes. Weights that the CPU uses where the file is
// mapped are counted in the same way.
uint64_t footprint_unit_weights(const struct unit *unit, const struct machine_device *device,
                                bool embed_is_here);
// States of a recurrent block that each session keeps. A pass reads one and writes another, and a
// third is from the end of the last prompt: a state cannot be cut back, only left for an older one.
enum { STATE_SLOTS = 3 };
// Bytes of the cache of an attention unit (workload_unit_pages), with its states if it is a
// recurrent block; 0 for other kinds.
uint64_t footprint_unit_kv(const struct unit *unit, const struct workload *w,
                           const struct machine_device *device);
// Where a matrix with n_rows rows is cut: rows 0..result-1 are on the accelerator, the rest on the
// CPU. A multiple of 32, at least 32 and at most n_rows - 32 if 0 < cpu_parts < UNIT_PARTS; n_rows
// if cpu_parts is 0.
int32_t footprint_split_row(int32_t n_rows, int32_t cpu_parts);
// Where a tensor of a split unit that is cut is cut: of n rows, or n experts, the first are on the
// accelerator, the others on the CPU; each has at least one. All are first if cpu_parts is 0.
struct cut {
    int32_t n, first;
};
struct cut footprint_cut(const struct unit_tensor *tensor, int32_t cpu_parts);
// Bytes of a split unit's weights on one of its two devices. Some matrices are cut, vectors and
// biases of experts are on both. Every tensor starts at a multiple of align_bytes.
uint64_t footprint_split_weights(const struct unit *unit, const struct machine_device *device,
                                 int32_t cpu_parts);
// Bytes of this unit in a slot: the CPU's rows of its tensors, each at a multiple of align_bytes of
// the accelerator, with vectors only if the unit is not split; then, for attention on the CPU, its
// whole cache in the accelerator's layout.
uint64_t footprint_slot(const struct unit *unit, const struct workload *w,
                        const struct machine_device *accelerator, int32_t cpu_parts);
// Bytes of the weights in that slot, each tensor at a multiple of align_bytes. With 1: without
// padding, which a fetch copies besides the cache.
uint64_t footprint_fetch(const struct unit *unit, int32_t cpu_parts, uint64_t align_bytes);
// Columns that the devices of a split unit exchange: the output of swiglu, or the queries.
int32_t footprint_split_width(const struct unit *unit);
// True if a fetch of this unit brings its cache too, and a store takes the new rows back.
bool footprint_fetches_kv(const struct unit *unit, const struct unit_place *place);
// Bytes of the keys and values of one position in the cache of an attention unit; 0 for other
// kinds.
uint64_t footprint_kv_row(const struct unit *unit, const struct workload *w);
// Makes the cache Q8_0. False if that is no smaller, or if the cache of a unit cannot be.
bool footprint_shrink_kv(struct workload *w, const struct shape *shape);
// The pinned blocks between the mapped file and a ring whose largest fetch is fetch_bytes: 4 of at
// most 8 MiB with FEED_STAGED, else none.
void footprint_blocks(enum feed feed, uint64_t fetch_bytes, int32_t *n_blocks,
                      uint64_t *block_bytes);
// Bytes from AREA_PAIR_STARTS to AREA_PAIR_ORDER, which lies behind it.
uint64_t footprint_starts(const struct shape *shape);
// Lays out the areas that the blocks need (planner/blocks/areas.def), each after those that are in
// use at the same time. kinds: bit k: the device computes at least one unit of kind k;
// SPLIT_EXPERTS: one of experts is split.
enum { SPLIT_EXPERTS = 1 << UNIT_KINDS, KIND_MASKS = 2 * SPLIT_EXPERTS };
void footprint_scratch(const struct shape *shape, const struct workload *w,
                       const struct machine_device *device, uint32_t kinds,
                       struct scratch_layout *out);
void footprint_tables(const struct shape *shape, const struct workload *w,
                      struct tables_layout *out);

#endif

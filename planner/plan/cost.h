/* cost.h: the time of a unit or a copy on a device, by the device's rates.
 *
 * Pure functions; nothing is owned. Any thread. Included through planner/planner.h. Tested by
 * tests/planner/test_planner.c and tests/planner/test_simulate.c.
 */
#ifndef TANDEM_PLANNER_PLAN_COST_H
#define TANDEM_PLANNER_PLAN_COST_H

#include "planner/plan/part.h"

// The time of a part of a unit by its cause. Reading weights and caches counts as memory up to the
// device's rate of plain reads; the rest is computing.
struct cost {
    double memory_us, compute_us, overhead_us;
    double launch_us;  // of overhead_us, in which the calling thread encodes for an accelerator
    double read_bytes; // of weights: of routed experts, those that the pass is expected to choose
};
struct cost_place {
    const struct shape *shape;
    const struct machine_device *device;
    const struct workload *w;
    double cached; // the share of the unit's weights that the device's cache keeps from pass to
                   // pass (cost_share_cached)
};
struct cost cost_of_part(const struct cost_place *at, const struct unit *unit,
                         struct unit_part part, const struct pass *pass);
static inline double cost_sum(struct cost c) { return c.memory_us + c.compute_us + c.overhead_us; }
// Adds n units like that one, each with so many bytes of weights, all or the CPU's part.
void cost_add_reads(struct host_reads *reads, const struct unit *unit, uint64_t size_bytes,
                    uint64_t n);
// The share of so many bytes that the CPU's cache keeps until they are read again.
double cost_kept(const struct device_rates *rates, double size_bytes);
// The shares that the CPU's cache keeps from pass to pass: of weights that each token reads, for
// which there has to be room beside the experts of one token; of experts, of which the next token
// reads others, so that all count.
struct host_cached {
    double shared, experts;
};
struct host_cached cost_host_cached(const struct machine *m, const struct host_reads *reads);
static inline double cost_share_cached(struct host_cached cached, const struct unit *unit) {
    return unit->n_experts > 0 ? cached.experts : cached.shared;
}
// Time of an op with that share of its weights from the CPU's cache, which takes us with all from
// memory; plain reads of its bytes take memory_us.
double cost_cached_us(const struct device_rates *rates, double share, double memory_us, double us);
// Bytes that count for a matmul's activations: they are read, written in 8 bits and read again, and
// results are written.
double cost_activation_bytes(struct op_cost matmul);
// Bytes that count for the queries of attention on the CPU, whatever number of keys they see: ten
// times what it writes. Queries are read, and their tiles zeroed and written; sums are zeroed and
// read; results are zeroed, then read and written twice, where sums are merged and at the division.
// Calibration leaves the same bytes out of the rate of attention.
double cost_query_bytes(struct op_cost attention);
// All weights that every pass may read: all but the tables of the embedding.
uint64_t cost_all_read_bytes(const struct unit *unit);
// Time of bytes at a rate in units of 1e9 bytes per second; 0 without a rate.
double cost_move_us(double gbps, double size_bytes);

#endif

/* clocks.h: computes when the steps of a pass begin and end: the one model of time.
 *
 * There is a clock for the calling thread, in which the CPU computes, and for each accelerator's
 * compute, copy-in, copy-out and fetch streams, as in runtime/engine/pipeline.c. A step starts when
 * its stream is free and its waits are over: a fetch when its slot is free, a compute that reads a
 * slot when it is full. A slot is free when the compute that read it is done, or when the new rows
 * of a cache have been stored from it. simulate.c drives the clocks with the steps of a plan,
 * search/evaluate.c with those of a proposal. A struct clocks is a plain value. Must not know
 * costs: the caller gives the duration of each step. Any thread. Tested by
 * tests/planner/test_simulate.c.
 */
#ifndef TANDEM_PLANNER_PLAN_CLOCKS_H
#define TANDEM_PLANNER_PLAN_CLOCKS_H

#include "planner/plan/plan.h"

// A step's duration, the bytes that it moves through the host's memory, and the time in which the
// calling thread encodes it for an accelerator.
struct step_work {
    double us, dram_bytes, launch_us;
};

// Start and end of a step, in us from the start of its pass.
struct step_times {
    double first_us, last_us;
};

struct clocks {
    const struct machine *machine; // borrowed
    double start_us;               // the time to wake all devices that work
    double pass_us[MAX_DEVICES];
    double compute[MAX_DEVICES], copy_in[MAX_DEVICES], copy_out[MAX_DEVICES], fetch[MAX_DEVICES];
    double slot_full[RING_SLOTS], slot_free[RING_SLOTS];
    double last_us; // end of the last step
    // Sums of durations: computing, copies to a device (tables among them), fetches, stores.
    double busy_us[MAX_DEVICES], to_us[MAX_DEVICES], inputs_us[MAX_DEVICES];
    double fetch_us[MAX_DEVICES], store_us[MAX_DEVICES], copy_us;
    // Bytes through the host's memory: read by the CPU, tables, fetched or stored.
    double host_bytes, table_bytes, fetch_bytes;
    double memory_us; // when the memory that both share has been read; 0 where it is not shared
    double covered_us, covered_until_us; // time in which a device computes
    bool host_sent;                      // the CPU has sent something, or does not begin
    bool shares_memory; // the accelerator's memory is the host's: what both compute at once reads
                        // no faster than that gives to both
};

// used: devices that work in the pass. first_device has the residual stream at first.
void clocks_start(struct clocks *c, const struct machine *machine, const bool used[MAX_DEVICES],
                  int first_device);
struct step_times clocks_run(struct clocks *c, const struct step *step,
                             const struct step_work *work);

// The time of the pass. The host's memory serves the CPU, the copies of tables and the fetches at
// once, so two stretches last at least as long as the memory takes for all their bytes: from the
// start to the CPU's first send, with the tables; and, if anything is fetched, the whole pass, with
// fetches and stores.
double clocks_total_us(const struct clocks *c);

// Time between equal passes that overlap: the greatest busy time of the CPU, an accelerator, one
// way of a link or the host's memory, and at most the total. It depends on the order of steps but
// not on which step is faster, so a faster device or link never makes a slower pass.
double clocks_period_us(const struct clocks *c);

// The time of copies during which a device computed.
double clocks_hidden_us(const struct clocks *c);

#endif

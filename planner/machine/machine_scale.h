/* machine_scale.h: rates for more or fewer threads, memory channels or wider memory than those that
 * were measured.
 *
 * Arithmetic on struct device_rates; owns nothing. A rate near that of memory counts as bound by
 * it, any other as bound by computing. Included through planner/planner.h. Any thread. Tested by
 * tests/planner/test_machine.c and tests/runtime/test_calibrate.c.
 */
#ifndef TANDEM_PLANNER_MACHINE_MACHINE_SCALE_H
#define TANDEM_PLANNER_MACHINE_MACHINE_SCALE_H

#include "planner/machine/machine.h"

// How many times as fast a device reads its memory, and computes.
struct rate_factors {
    double memory, compute;
};

// Scales the rates of one token and those of more.
void rates_scale(struct device_rates *rates, struct rate_factors one, struct rate_factors many);

// The factors between two teams of the machine's CPU: memory as its teams read (between two sizes
// interpolated, in proportion below the smallest, constant above the largest), computing as the
// number of threads, up to all cores.
struct rate_factors machine_team_factors(const struct machine *m, int32_t from, int32_t to);

#endif

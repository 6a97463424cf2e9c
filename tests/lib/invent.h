/* invent.h: random machines, models and workloads from a seed, for tests of the planner.
 *
 * Fills structs of the caller; the same seed gives the same. The numbers are those of real
 * computers and models, spread wider. Any thread.
 */
#ifndef TANDEM_TESTS_LIB_INVENT_H
#define TANDEM_TESTS_LIB_INVENT_H

#include "planner/planner.h"

struct dice {
    uint64_t state;
};
uint64_t dice_roll(struct dice *dice);                          // 64 random bits
int32_t dice_int(struct dice *dice, int32_t low, int32_t high); // low..high
double dice_real(struct dice *dice, double low, double high);   // evenly spread
double dice_scale(struct dice *dice, double low, double high);  // evenly spread logarithm
bool dice_chance(struct dice *dice, double probability);

enum invent_family { INVENT_DENSE, INVENT_EXPERTS, INVENT_BOTH }; // both: a shared expert as well

// A model of any widths and types with that many layers.
void invent_shape(struct shape *out, struct dice *dice, enum invent_family family,
                  int32_t n_layers);
// The family of the dice's choice, at most max_units units.
void invent_small_shape(struct shape *out, struct dice *dice, int32_t max_units);
// A machine with an accelerator, and limits from far too small to more than enough for the model.
void invent_machine(struct machine *out, struct dice *dice, const struct shape *shape);
// n_ubatch is 0 or given.
void invent_workload(struct workload *out, struct dice *dice, const struct shape *shape);
// Devices for all units, at random in runs; what can be split or streamed is, at random too; a feed
// and a ring. For a machine with an accelerator.
void invent_ways(struct constraints *out, struct dice *dice, const struct shape *shape);

#endif

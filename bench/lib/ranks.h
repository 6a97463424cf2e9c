/* ranks.h: which of a list of sorted values stands for a share of them.
 *
 * A pure function; any thread. Used by bench_prediction.c and bench_plans.c. Tested by
 * tests/bench/test_ranks.c.
 */
#ifndef TANDEM_BENCH_LIB_RANKS_H
#define TANDEM_BENCH_LIB_RANKS_H

#include <stdint.h>

// The index of the nearest rank: the least of n >= 1 sorted values that percent (1 to 100) of all
// do not exceed.
int32_t nearest_rank(int32_t n, int32_t percent);

#endif

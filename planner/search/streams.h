/* streams.h: the groups of units that a proposal streams, and the sets of groups that are tried.
 *
 * A slot is as large as the largest unit that is streamed, and routed experts are many times as
 * large as other units, so they are a group of their own. Pure functions; nothing is owned. Any
 * thread. Tested by tests/planner/test_solver.c.
 */
#ifndef TANDEM_PLANNER_SEARCH_STREAMS_H
#define TANDEM_PLANNER_SEARCH_STREAMS_H

#include "planner/plan/placement.h"

// The kinds of units on the CPU, whole or split.
enum {
    STREAM_FFNS = 1,
    STREAM_EXPERTS = 2,
    STREAM_SPLIT_ATTENTION = 4,
    STREAM_ATTENTION = 8,
    STREAM_SETS = 5,
};

// The group of a unit that can be streamed (unit_can_stream), in that place; 0 if the CPU has
// nothing of it.
uint8_t streams_group(enum unit_kind kind, const struct unit_place *place);

// The ith set of groups to try, of STREAM_SETS.
uint8_t streams_set(int i);

#endif

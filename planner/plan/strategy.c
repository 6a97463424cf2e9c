/* strategy.c: the names of strategies.
 *
 * Pure functions. Any thread. What each of them allows is in search.c. Tested by
 * tests/planner/test_solver.c.
 */
#include "planner/planner.h"

#include <string.h>

static const char *const STRATEGY_NAMES[STRATEGIES] = {
    "auto", "cpu", "layers", "attention-first", "streamed", "row-split"};

const char *strategy_name(enum strategy strategy) {
    return (unsigned)strategy < STRATEGIES ? STRATEGY_NAMES[strategy] : "unknown";
}

bool strategy_parse(const char *name, enum strategy *out) {
    for (int i = 0; i < STRATEGIES; i++)
        if (strcmp(name, STRATEGY_NAMES[i]) == 0) return *out = (enum strategy)i, true;
    return false;
}

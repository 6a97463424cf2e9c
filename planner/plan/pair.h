/* pair.h: the numbers of the two devices of a plan.
 *
 * Constants. Only for planner/ and its tests.
 */
#ifndef TANDEM_PLANNER_PLAN_PAIR_H
#define TANDEM_PLANNER_PLAN_PAIR_H

enum { HOST = 0, GPU = 1 };

#endif

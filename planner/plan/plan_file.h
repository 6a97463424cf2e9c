/* plan_file.h: plans as JSON files.
 *
 * Owns nothing: values go into the caller's structs. Any thread. Included through
 * planner/planner.h. Tested by tests/planner/test_plan_file.c and tests/fuzz/fuzz_plan.c.
 */
#ifndef TANDEM_PLANNER_PLAN_PLAN_FILE_H
#define TANDEM_PLANNER_PLAN_PLAN_FILE_H

#include "planner/plan/plan.h"

#include <stdio.h>

// Plans as files (JSON): where each unit is, by name ("embed", "blk.7.attention", "blk.7.ffn",
// "blk.7.experts", "head"), which are split or streamed and how, the workload, and the bytes and
// times that the plan had.
struct plan_file {
    struct workload workload;
    struct constraints constraints; // every unit; no limits
    char kinds[MAX_DEVICES][16];    // kinds of the plan's devices; empty: no such device
    uint64_t bytes[MAX_DEVICES][PLAN_PURPOSES];
};
enum status plan_save(const struct plan *plan, const struct shape *shape, FILE *out, struct err *e);
// ERR_FORMAT, naming the field, for a file that is no plan; ERR_USAGE for the plan of another
// model.
enum status plan_parse(struct plan_file *out, const struct shape *shape, const char *text,
                       size_t length, struct err *e);
enum status plan_load(struct plan_file *out, const struct shape *shape, const char *path,
                      struct err *e);

#endif

/* evaluate.h: computes the bytes of a proposed placement, and the time of the workload.
 *
 * The bytes are those of plan/accounts.c, the steps those of plan/schedule.c, their times those of
 * plan/cost.c and plan/clocks.c: an evaluation equals plan_predict_after of the finished plan
 * (tests/planner/test_solver.c compares). A struct evaluator remembers the figures of equal units,
 * since thousands of proposals consist of the same few. It owns that memory until evaluator_close;
 * shape and machine are borrowed. One thread at a time.
 */
#ifndef TANDEM_PLANNER_SEARCH_EVALUATE_H
#define TANDEM_PLANNER_SEARCH_EVALUATE_H

#include "planner/plan/accounts.h"
#include "planner/plan/footprint.h"
#include "planner/plan/predict.h"
#include "planner/plan/schedule.h"

// One micro-batch that the planner may choose.
struct choice {
    struct workload w;
    int32_t n_samples, n_prompt; // the first n_prompt samples are of the prompt
    struct sample samples[MAX_SAMPLES];
    int32_t first_line; // of the first sample among all n_lines of the evaluator
    uint64_t tables_bytes;
    uint64_t scratch_bytes[MAX_DEVICES][KIND_MASKS]; // 0: not asked for yet
};

// Passes of the prompt that the next one does not wait for, those that it does, decoded tokens.
enum pass_kind { PASS_AHEAD, PASS_WAITS, PASS_DECODE, PASS_KINDS };

// The times of a unit in one place, over the workload and by micro-batch; decoded tokens take the
// same with every one, [0].
struct unit_time {
    // From the moment the residual stream is on a device to the end of the unit, copies included.
    double chain_us[PASS_KINDS][MAX_DEVICES][MAX_CHOICES];
    // The same from the unit's own device, as if copies took no time; no link changes it.
    double decode_alone_us, prompt_alone_us[MAX_CHOICES];
    // How long each device computes, and how long the unit is fetched.
    double busy_us[PASS_KINDS][MAX_DEVICES][MAX_CHOICES], fetch_us[PASS_KINDS][FEEDS][MAX_CHOICES];
};

// The search asks these of a unit time and again.
struct unit_facts {
    int32_t twin; // the first unit with the same figures, maybe itself
    bool can_split, can_stream;
    uint64_t read_bytes; // weights that every pass may read
};

struct evaluator {
    const struct shape *shape;
    const struct machine *machine;
    uint64_t own_bytes; // the host's budget of the machine, whatever the user allows
    int32_t n_choices, n_lines;
    struct choice choices[MAX_CHOICES];
    bool kv_varies;           // caches depend on the micro-batch
    struct unit_facts *facts; // [n_units]
    // Figures are found when they are first asked for. Rows are those of twins.
    struct unit_bytes *bytes;   // [n_units, places, choices], 0: not yet
    struct step_work *work;     // [n_units, parts of units, n_lines]
    struct unit_time *times;    // [n_units, places, with the host's weights cached]
    bool *has_work, *has_times; // what was found of these two, whose memory nothing else touches;
                                // one allocation
};

// machine, shape: borrowed until evaluator_close. ERR_MEMORY.
enum status evaluator_open(struct evaluator *ev, const struct shape *shape,
                           const struct machine *machine, uint64_t own_bytes,
                           const struct workload *w, struct err *e);
void evaluator_close(struct evaluator *ev);

struct evaluation {
    uint64_t bytes[MAX_CHOICES][MAX_DEVICES]; // 0 if they are not counted
    bool fits[MAX_CHOICES];
    double us[MAX_CHOICES];       // the workload's time, INFINITY if it is not computed
    double least_us[MAX_CHOICES]; // a lower bound of it
    bool hopeless;                // even with other units streamed it does not fit, or is too slow
    bool settled;                 // no feed that pins less memory can be faster
};
// Evaluates a placement with all choices of the micro-batch. Choices that do not fit, or cannot be
// faster than limit_us, get INFINITY. limit_us INFINITY: all choices get their time.
void evaluate(struct evaluator *ev, const struct placement *place, double limit_us,
              struct evaluation *out);

// The times of a unit in its place; valid until evaluator_close.
const struct unit_time *evaluator_unit_time(struct evaluator *ev, int32_t unit,
                                            const struct placement *place, bool cached);

#endif

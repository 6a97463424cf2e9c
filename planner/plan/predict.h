/* predict.h: the passes that stand for a workload, and the time they take together.
 *
 * Owns nothing; any thread. Included through planner/planner.h. Tested by
 * tests/planner/test_planner.c.
 */
#ifndef TANDEM_PLANNER_PLAN_PREDICT_H
#define TANDEM_PLANNER_PLAN_PREDICT_H

#include "planner/plan/plan.h"

// The bound of a phase: the part of the machine that takes most of its time.
enum bound {
    BOUND_CPU_MEMORY,
    BOUND_CPU_COMPUTE,
    BOUND_GPU_MEMORY,
    BOUND_GPU_COMPUTE,
    BOUND_LINK,
    BOUND_DISK, // cold weights (paging.h)
    BOUND_OVERHEAD,
    BOUNDS
};

// Shares of the time of a phase; copies may run beside the devices.
struct phase_shares {
    double devices[MAX_DEVICES], copies;
    enum bound bound;   // what takes most of it
    double bound_share; // what that alone takes
};

struct prediction {
    double prompt_us; // of one session, until the first token after n_prompt tokens is drawn
    double decode_us; // one token of each session, mean over n_gen tokens after the prompt
    double total_us;  // n_sessions * prompt_us + (n_gen - 1) * decode_us
    struct phase_shares prompt, decode;
};
// With n_past positions in the cache before the prompt.
void plan_predict_after(const struct plan *plan, const struct shape *shape, int32_t n_past,
                        struct prediction *out);
// With an empty cache.
static inline void plan_predict(const struct plan *plan, const struct shape *shape,
                                struct prediction *out) {
    plan_predict_after(plan, shape, 0, out);
}

enum { MAX_SAMPLES = 6 }; // two pieces each of whole micro-batches, the last one, and decode
// weight passes that take as long as this one on average.
struct sample {
    struct pass pass;
    double weight;
    bool is_prompt;
};
// The time of a pass is piecewise linear in n_past, with a kink where a window is full, so one pass
// in the middle of each piece stands for all of it exactly; only nearly where keys and values begin
// to outgrow a device's cache, or a fetch to bring a whole window.
int32_t workload_samples(const struct workload *w, const struct shape *shape, int32_t n_past,
                         struct sample out[MAX_SAMPLES]);

// True if nothing follows the pass before its logits are computed: it takes total_us, other passes
// take period_us.
static inline bool sample_waits(const struct sample *sample) {
    return !sample->is_prompt || sample->pass.n_logits > 0;
}

#endif

/* predict.c: the passes of a workload, and their time together.
 *
 * A prompt runs in micro-batches, the last of which makes one row of logits; then each pass has one
 * token of each session, as far as one call may ask for their logits. All micro-batches but the
 * last take their period, which is shorter than their time if the plan runs ahead. Owns nothing;
 * any thread. Tested by tests/planner/test_planner.c.
 */
#include "planner/plan/predict.h"

#include "base/number.h"
#include "planner/plan/simulate.h"

// count passes like first, each step positions further than the one before, and all that so often.
struct run {
    struct pass first;
    int64_t count, step;
    double times;
    bool is_prompt;
};

// Tokens of a session that are decoded: the first one comes from the prompt's last pass.
static int32_t decoded(const struct workload *w) { return max_i32(w->n_gen - 1, 1); }

// Appends one sample for each piece of the run in which the time is linear: up to the first pass
// whose tokens see a full window on average, and from there on.
static void add_run(const struct run *run, const struct shape *shape, struct sample *out,
                    int32_t *n_samples) {
    const int64_t half = (run->first.n_tokens + 1) / 2;
    const int64_t room = shape_window(shape) - half - run->first.n_past;
    const int64_t full = room > 0 ? (room + run->step - 1) / run->step : 0;
    for (int64_t i = 0; i < run->count;) {
        const int64_t end = i < full && full < run->count ? full : run->count;
        struct sample *sample = &out[(*n_samples)++];
        *sample = (struct sample){run->first, run->times * (double)(end - i), run->is_prompt};
        sample->pass.n_past += (int32_t)((i + end - 1) * run->step / 2);
        i = end;
    }
}

int32_t workload_samples(const struct workload *w, const struct shape *shape, int32_t n_past,
                         struct sample out[MAX_SAMPLES]) {
    ASSERT(w->n_ubatch >= 1 && w->n_prompt >= 1 && w->n_gen >= 1);
    ASSERT(w->n_sessions >= 1 && w->max_logits >= 1);
    const int32_t n_full = (w->n_prompt - 1) / w->n_ubatch;
    const int32_t n_last = w->n_prompt - n_full * w->n_ubatch;
    const int32_t end = n_past + w->n_prompt;
    int32_t n = 0;
    const int32_t n_sessions = w->n_sessions;
    add_run(&(struct run){{w->n_ubatch, 0, n_past}, n_full, w->n_ubatch, n_sessions, true}, shape,
            out, &n);
    add_run(&(struct run){{n_last, 1, end - n_last}, 1, 1, n_sessions, true}, shape, out, &n);
    enum { MOST = 32 }; // tokens of the small class
    const int32_t together =
        min_i32(min_i32(n_sessions, w->max_logits), min_i32(w->n_ubatch, MOST));
    const int32_t n_passes = (n_sessions + together - 1) / together;
    const struct pass first = {together, together, end};
    add_run(&(struct run){first, decoded(w), 1, n_passes, false}, shape, out, &n);
    return n;
}

// The totals of one kind of pass.
struct total {
    double us, compute_us[MAX_DEVICES], bound_us[BOUNDS];
};

static void add_sample(struct total *t, const struct plan *plan, const struct shape *shape,
                       const struct sample *sample) {
    const double weight = sample->weight;
    struct simulation sim;
    plan_simulate(plan, shape, &sample->pass, &sim);
    const double us = sample_waits(sample) ? sim.total_us : sim.period_us;
    double rest = us - sim.copy_us - sim.disk_us;
    for (int d = 0; d < plan->machine.n_devices; d++) {
        t->compute_us[d] += weight * sim.compute_us[d];
        const bool on_host = d == DEVICE_HOST;
        const struct cost *cost = &sim.cost[d];
        t->bound_us[on_host ? BOUND_CPU_MEMORY : BOUND_GPU_MEMORY] += weight * cost->memory_us;
        t->bound_us[on_host ? BOUND_CPU_COMPUTE : BOUND_GPU_COMPUTE] += weight * cost->compute_us;
        rest -= cost->memory_us + cost->compute_us;
    }
    t->us += weight * us;
    t->bound_us[BOUND_LINK] += weight * sim.copy_us;
    t->bound_us[BOUND_DISK] += weight * sim.disk_us;
    t->bound_us[BOUND_OVERHEAD] += weight * rest;
}

static struct phase_shares shares_of(const struct total *t) {
    struct phase_shares out = {0};
    for (int i = 1; i < BOUNDS; i++)
        if (t->bound_us[i] > t->bound_us[out.bound]) out.bound = (enum bound)i;
    if (!(t->us > 0)) return out;
    for (int d = 0; d < MAX_DEVICES; d++) out.devices[d] = t->compute_us[d] / t->us;
    out.copies = t->bound_us[BOUND_LINK] / t->us;
    out.bound_share = t->bound_us[out.bound] / t->us;
    return out;
}

void plan_predict_after(const struct plan *plan, const struct shape *shape, int32_t n_past,
                        struct prediction *out) {
    struct sample samples[MAX_SAMPLES];
    const int32_t n = workload_samples(&plan->workload, shape, n_past, samples);
    struct total prompt = {0}, decode = {0};
    for (int i = 0; i < n; i++)
        add_sample(samples[i].is_prompt ? &prompt : &decode, plan, shape, &samples[i]);
    const struct workload *w = &plan->workload;
    *out = (struct prediction){.prompt_us = prompt.us / w->n_sessions,
                               .decode_us = decode.us / decoded(w),
                               .prompt = shares_of(&prompt),
                               .decode = shares_of(&decode)};
    out->total_us = prompt.us + (w->n_gen - 1) * out->decode_us;
}

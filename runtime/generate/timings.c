/* timings.c: see timings.h. */
#include "runtime/generate/timings.h"

#include "base/err.h"
#include "base/number.h"

double timings_ms(uint64_t ns) { return (double)ns / 1e6; }

double timings_rate(int64_t count, uint64_t ns) {
    return ns ? (double)count * 1e9 / (double)ns : 0;
}

double timings_each_ms(int64_t count, uint64_t ns) {
    return count ? timings_ms(ns) / (double)count : 0;
}

double timings_per_pass(const struct timings *t) {
    const int64_t passes = t->decode_steps - t->accepted;
    return passes > 0 ? (double)t->decode_steps / (double)passes : 0;
}

double timings_deviation(double predicted, double measured) {
    return measured > 0 ? (predicted - measured) / measured : 0;
}

static struct simulation simulate(const struct plan *plan, const struct shape *shape,
                                  const struct pass *pass) {
    struct simulation simulation;
    plan_simulate(plan, shape, pass, &simulation);
    return simulation;
}

void timings_predict_prompt(struct timings *t, const struct plan *plan, const struct shape *shape,
                            int32_t past, int32_t count, int32_t n_logits) {
    ASSERT(n_logits >= 0);
    ASSERT(n_logits <= count);
    const int32_t most = plan->workload.n_ubatch;
    for (int32_t first = 0, n; first < count; first += n) {
        n = count - first < most ? count - first : most;
        const int32_t wanted = first + n - (count - n_logits);
        const struct pass pass = {n, wanted < 0 ? 0 : wanted < n ? wanted : n, past + first};
        const struct simulation s = simulate(plan, shape, &pass);
        t->predicted_prompt_us += first + n < count ? s.period_us : s.total_us;
        t->prompt_passes++;
    }
}

static void predict_drafts(struct timings *t, const struct plan *plan, const struct shape *shape,
                           int32_t length, const struct timings *before) {
    const int64_t passes = t->draft_passes - before->draft_passes;
    if (passes == 0) return;
    const int32_t n = 1 + (int32_t)((t->drafted - before->drafted + passes / 2) / passes);
    const struct pass pass = {n, n, max_i32(length - n, 0)};
    t->predicted_decode_us += simulate(plan, shape, &pass).total_us * (double)passes;
}

void timings_predict_decode(struct timings *t, const struct plan *plan, const struct shape *shape,
                            int32_t length, const struct timings *before) {
    const int64_t steps = t->decode_steps - before->decode_steps,
                  passes = steps - (t->accepted - before->accepted) -
                           (t->draft_passes - before->draft_passes);
    ASSERT(steps <= length);
    predict_drafts(t, plan, shape, length, before);
    if (passes == 0) return;
    const struct pass pass = {1, 1, length - (int32_t)(steps + 1) / 2};
    t->predicted_decode_us += simulate(plan, shape, &pass).total_us * (double)passes;
}

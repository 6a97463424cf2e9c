/* divergence.c: see divergence.h. */
#include "runtime/commands/divergence.h"

#include "base/mem.h"
#include "base/number.h"

#include <math.h>
#include <stdlib.h>

enum { FEWEST = 10 };            // values that have a standard error
static const double DEPTH = -16; // the least ln p of the other model that counts

enum status divergence_open(struct divergence *d, int64_t capacity, struct err *e) {
    *d = (struct divergence){.capacity = capacity};
    d->values = mem_alloc((size_t)capacity, sizeof *d->values);
    return d->values ? OK : err_memory(e, (size_t)capacity * sizeof *d->values, "divergences");
}

void divergence_close(struct divergence *d) {
    mem_free(d->values);
    *d = (struct divergence){0};
}

void divergence_add(struct divergence *d, const float *logits, int32_t n_vocab,
                    const struct logits_row *base, int32_t next, double nats) {
    ASSERT(d->n < d->capacity);
    int32_t best = 0, base_best = 0;
    double total = 0, value = 0; // total: ln of the sum of all exp(logit)
    for (int32_t i = 1; i < n_vocab; i++) {
        if (logits[i] > logits[best]) best = i;
        if (base->steps[i] > base->steps[base_best]) base_best = i;
    }
    for (int32_t i = 0; i < n_vocab; i++) total += exp((double)logits[i] - logits[best]);
    total = log(total) + logits[best];
    for (int32_t i = 0; i < n_vocab; i++) {
        const double log_base = (double)base->step * base->steps[i] + base->least;
        if (log_base > DEPTH) value += exp(log_base) * (log_base - logits[i] + total);
    }
    const double base_nats = -((double)base->step * base->steps[next] + base->least);
    const double gap = exp(-nats) - exp(-base_nats);
    d->values[d->n++] = value;
    d->n_same_best += best == base_best;
    d->sum += value;
    d->squares += value * value;
    d->base_nats += base_nats;
    d->base_squares += base_nats * base_nats;
    d->products += nats * base_nats;
    d->gap_squares += gap * gap;
    d->gap_fourths += gap * gap * gap * gap;
}

struct estimate divergence_mean(double sum, double squares, int64_t n) {
    const double mean = n ? sum / (double)n : 0;
    const double variance = n ? squares / (double)n - mean * mean : 0;
    return (struct estimate){mean,
                             n > FEWEST && variance > 0 ? sqrt(variance / (double)(n - 1)) : 0};
}

// The value below which that share of the sorted values lies, between neighbours.
static double percentile(const struct divergence *d, double share) {
    const double place = share * (double)(d->n - 1);
    const int64_t i = (int64_t)place, next = i + 1 < d->n ? i + 1 : i;
    const double part = place - (double)i;
    return (1 - part) * d->values[i] + part * d->values[next];
}

void divergence_result(struct divergence *d, double nats, double squares,
                       struct divergence_result *out) {
    const double n = (double)d->n;
    ASSERT(d->n > 0);
    qsort(d->values, (size_t)d->n, sizeof *d->values, order_f64);
    const struct estimate own = divergence_mean(nats, squares, d->n);
    const struct estimate gaps = divergence_mean(d->gap_squares, d->gap_fourths, d->n);
    const double root = sqrt(gaps.value), same = (double)d->n_same_best / n;
    *out = (struct divergence_result){
        .base_nats = divergence_mean(d->base_nats, d->base_squares, d->n),
        .mean = divergence_mean(d->sum, d->squares, d->n),
        .median = percentile(d, 0.5),
        .p90 = percentile(d, 0.9),
        .p99 = percentile(d, 0.99),
        .p999 = percentile(d, 0.999),
        .most = d->values[d->n - 1],
        .gap = {root, root > 0 ? 0.5 / root * gaps.error : 0},
        .same_best = {same, d->n > 1 ? sqrt(same * (1 - same) / (n - 1)) : 0},
    };
    // Both models see the same tokens, so much of their errors is common.
    const double common =
        d->n > FEWEST ? (d->products / n - own.value * out->base_nats.value) / (n - 1) : 0;
    const double variance = own.error * own.error + out->base_nats.error * out->base_nats.error;
    out->ratio.value = own.value - out->base_nats.value;
    out->ratio.error = variance > 2 * common ? sqrt(variance - 2 * common) : 0;
}

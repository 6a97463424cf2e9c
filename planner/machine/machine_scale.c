/* machine_scale.c: see machine_scale.h. */
#include "planner/machine/machine_scale.h"

#include "base/number.h"

// A rate that is at least this share of memory's counts as bound by it.
static const double BOUND_BY_MEMORY = 0.7;

void rates_scale(struct device_rates *rates, struct rate_factors one, struct rate_factors many) {
    for (int c = 0; c < RATE_CLASSES; c++) {
        const struct rate_factors f = c == 0 ? one : many;
        for (int t = 0; t < WEIGHT_COUNT; t++) {
            double *gbps = &rates->weight_gbps[t][c];
            *gbps *= *gbps >= BOUND_BY_MEMORY * rates->memory_gbps ? f.memory : f.compute;
        }
        for (int k = 0; k < KV_TYPES; k++) rates->attention_gflops[k][c] *= f.compute;
    }
    rates->vector_gbps *= min_us(many.compute, many.memory); // in a cache, or not
    rates->memory_gbps *= one.memory;
}

// The rate of reading memory by n threads; 0 without teams.
static double team_gbps(const struct machine *m, int32_t n) {
    if (m->n_team_sizes == 0) return 0;
    if (n <= m->team_size[0]) return m->team_gbps[0] * n / m->team_size[0];
    for (int32_t i = 1; i < m->n_team_sizes; i++) {
        if (n > m->team_size[i]) continue;
        const double part =
            (double)(n - m->team_size[i - 1]) / (double)(m->team_size[i] - m->team_size[i - 1]);
        return (1 - part) * m->team_gbps[i - 1] + part * m->team_gbps[i];
    }
    return m->team_gbps[m->n_team_sizes - 1];
}

struct rate_factors machine_team_factors(const struct machine *m, int32_t from, int32_t to) {
    ASSERT(from > 0 && to > 0);
    const double before = team_gbps(m, from);
    const int32_t most = max_i32(m->n_cores, from);
    return (struct rate_factors){.memory = before > 0 ? team_gbps(m, to) / before : 1,
                                 .compute = (double)min_i32(to, most) / from};
}

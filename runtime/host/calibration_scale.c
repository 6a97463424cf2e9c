/* calibration_scale.c: see calibration_scale.h. */
#include "runtime/host/calibration_scale.h"

#include "base/number.h"

#include <stdio.h>
#include <string.h>

// A rate that is at least this share of memory's counts as bound by it.
static const double BOUND_BY_MEMORY = 0.7;

// Speeds of computing relative to AVX2: many tokens of SmolLM2 in Q4_1 by one lane, 75, 750, 826
// and 1390 tokens/s (bench/results.tsv). Levels of aarch64 were never timed.
static const double ISA_SPEED[ISA_COUNT] = {
    [ISA_REF] = 0.1,   [ISA_AVX2] = 1, [ISA_AVXVNNI] = 1.1, [ISA_AVX512] = 1.85,
    [ISA_VBMI] = 1.85, [ISA_NEON] = 1, [ISA_DOTPROD] = 1,   [ISA_I8MM] = 1,
};

// The rate of reading memory by n threads: between two teams interpolated, in proportion below the
// smallest, constant above the largest. 0 without teams.
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

// How reading and computing change from one team to another.
struct factors {
    double memory, compute;
};

static struct factors factors_of(const struct machine *m, int32_t from, int32_t to, double isa) {
    const double before = team_gbps(m, from);
    const int32_t most = m->n_cores > from ? m->n_cores : from;
    return (struct factors){.memory = before > 0 ? team_gbps(m, to) / before : 1,
                            .compute = isa * (to < most ? to : most) / from};
}

static void scale(double *rate, double memory_gbps, const struct factors *f) {
    *rate *= *rate >= BOUND_BY_MEMORY * memory_gbps ? f->memory : f->compute;
}

void calibration_scale(struct machine *m, const struct cpu_setting *measured,
                       const struct cpu_setting *asked) {
    ASSERT(measured->decode > 0 && measured->prefill > 0 && asked->decode > 0 &&
           asked->prefill > 0);
    struct device_rates *r = &m->devices[DEVICE_HOST].rates;
    const double isa = ISA_SPEED[asked->isa] / ISA_SPEED[measured->isa];
    const struct factors one = factors_of(m, measured->decode, asked->decode, isa);
    const struct factors many = factors_of(m, measured->prefill, asked->prefill, isa);
    for (int c = 0; c < RATE_CLASSES; c++) {
        const struct factors *f = c == 0 ? &one : &many;
        for (int t = 0; t < WEIGHT_COUNT; t++) scale(&r->weight_gbps[t][c], r->memory_gbps, f);
        for (int k = 0; k < KV_TYPES; k++) r->attention_gflops[k][c] *= f->compute;
    }
    r->vector_gbps *= min_us(many.compute, 1); // it is cached, or bound by memory
    r->memory_gbps *= one.memory;
    const size_t used = strlen(m->source);
    (void)snprintf(m->source + used, sizeof m->source - used, "; scaled to %d and %d threads, %s",
                   (int)asked->decode, (int)asked->prefill, cpu_isa_name(asked->isa));
}

/* calibration_scale.c: see calibration_scale.h. */
#include "runtime/host/calibration_scale.h"

#include <stdio.h>
#include <string.h>

// Speeds of computing relative to AVX2: many tokens of SmolLM2 in Q4_1 by one lane, 75, 750, 826
// and 1390 tokens/s (bench/results.tsv). Levels of aarch64 were never timed.
static const double ISA_SPEED[ISA_COUNT] = {
    [ISA_REF] = 0.1,   [ISA_AVX2] = 1,    [ISA_AVXVNNI] = 1.1,     [ISA_AVX512] = 1.85,
    [ISA_VBMI] = 1.85, [ISA_ZEN4] = 1.85, [ISA_AVX512BF16] = 1.85, [ISA_NEON] = 1,
    [ISA_DOTPROD] = 1, [ISA_I8MM] = 1,
};

struct cpu_setting calibration_asked(const struct cpu_options *options,
                                     const struct cpu_setting *usual) {
    struct cpu_setting asked = *usual;
    if (options->n_threads) asked.decode = asked.prefill = options->n_threads;
    if (options->n_threads_batch) asked.prefill = options->n_threads_batch;
    if (options->isa != ISA_AUTO) asked.isa = options->isa;
    return asked;
}

void calibration_scale(struct machine *m, const struct cpu_setting *measured,
                       const struct cpu_setting *asked) {
    if (memcmp(measured, asked, sizeof *asked) == 0) return;
    const double isa = ISA_SPEED[asked->isa] / ISA_SPEED[measured->isa];
    struct rate_factors one = machine_team_factors(m, measured->decode, asked->decode);
    struct rate_factors many = machine_team_factors(m, measured->prefill, asked->prefill);
    one.compute *= isa;
    many.compute *= isa;
    rates_scale(&m->devices[DEVICE_HOST].rates, one, many);
    const size_t used = strlen(m->source);
    (void)snprintf(m->source + used, sizeof m->source - used, "%sscaled to %d and %d threads, %s",
                   used ? "; " : "", (int)asked->decode, (int)asked->prefill,
                   cpu_isa_name(asked->isa));
}

/* calibration.c: see calibration.h. */
#include "runtime/host/calibration.h"

#include <math.h>
#include <stdio.h>
#include <time.h>

// On an idle computer a quarter of the figures differ by 5 to 10 %, and services take less than a
// tenth of a processor.
static const double SPREAD_LIMIT = 0.25, OTHERS_LIMIT = 0.5;

double calibration_noise(const struct calibration *c) {
    return fmax(c->spread / SPREAD_LIMIT, c->busy_others / OTHERS_LIMIT);
}

bool calibration_replaces(const struct calibration *c, const struct calibration *older) {
    return !calibration_is_noisy(c) || calibration_noise(c) <= calibration_noise(older);
}

char *calibration_reason(const struct calibration *c, char *out, size_t size_bytes) {
    const bool spread = c->spread > SPREAD_LIMIT, others = c->busy_others > OTHERS_LIMIT;
    int used = 0;
    out[0] = 0;
    if (spread) used = snprintf(out, size_bytes, "the speeds varied by %.0f %%", 100 * c->spread);
    if (others && (size_t)used < size_bytes)
        (void)snprintf(out + used, size_bytes - (size_t)used,
                       "%sother programs kept %.1f processors busy", spread ? " and " : "",
                       c->busy_others);
    return out;
}

char *calibration_date(const struct calibration *c, char *out, size_t size_bytes) {
    const time_t made_at = (time_t)c->made_at;
    struct tm day;
    if (c->made_at <= 0 || !localtime_r(&made_at, &day) ||
        strftime(out, size_bytes, "%Y-%m-%d", &day) == 0)
        (void)snprintf(out, size_bytes, "an unknown day");
    return out;
}

/* meter.c: see meter.h. */
#include "runtime/host/meter.h"

#include "base/clock.h"
#include "base/host.h"

uint64_t meter_now_ns(const struct meter *meter) {
    return meter ? meter->now_ns(meter->context) : clock_ns();
}

uint64_t meter_others_ns(const struct meter *meter) {
    if (meter) return meter->others_ns(meter->context);
    const uint64_t all_ns = host_busy_ns(&HOST_ROOTS), own_ns = clock_process_ns();
    return all_ns > own_ns ? all_ns - own_ns : 0;
}

bool meter_own_ns(const struct meter *meter, uint64_t *out) {
    if (meter && !meter->own_ns) return false;
    *out = meter ? meter->own_ns(meter->context) : clock_process_ns();
    return true;
}

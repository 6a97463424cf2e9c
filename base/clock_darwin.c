/* clock_darwin.c: see clock.h.
 *
 * The monotonic clock of macOS tells microseconds only, and goes on while the Mac sleeps; this one
 * does neither. Built by make macos-check, never run on a Mac.
 */
#include "base/clock.h"

#include <errno.h>
#include <time.h>

uint64_t clock_ns(void) { return clock_gettime_nsec_np(CLOCK_UPTIME_RAW); }

void clock_sleep_exactly(void) {}

void clock_wait_init(pthread_cond_t *changed) { pthread_cond_init(changed, NULL); }

// Conditions know the wall clock alone, or how long to wait.
bool clock_wait(pthread_cond_t *changed, pthread_mutex_t *lock, uint64_t deadline_ns) {
    const uint64_t now_ns = clock_ns();
    if (now_ns >= deadline_ns) return false;
    const struct timespec left = {(time_t)((deadline_ns - now_ns) / 1000000000U),
                                  (long)((deadline_ns - now_ns) % 1000000000U)};
    return pthread_cond_timedwait_relative_np(changed, lock, &left) != ETIMEDOUT;
}

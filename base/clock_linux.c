/* clock_linux.c: see clock.h. */
#include "base/clock.h"

#include <errno.h>
#include <sys/prctl.h>
#include <time.h>

uint64_t clock_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void clock_sleep_exactly(void) { (void)prctl(PR_SET_TIMERSLACK, 1000UL, 0UL, 0UL, 0UL); }

void clock_wait_init(pthread_cond_t *changed) {
    pthread_condattr_t by_clock;
    pthread_condattr_init(&by_clock);
    pthread_condattr_setclock(&by_clock, CLOCK_MONOTONIC);
    pthread_cond_init(changed, &by_clock);
    pthread_condattr_destroy(&by_clock);
}

bool clock_wait(pthread_cond_t *changed, pthread_mutex_t *lock, uint64_t deadline_ns) {
    const struct timespec end = {(time_t)(deadline_ns / 1000000000U),
                                 (long)(deadline_ns % 1000000000U)};
    return pthread_cond_timedwait(changed, lock, &end) != ETIMEDOUT;
}

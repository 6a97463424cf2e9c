/* clock.c: see clock.h. */
#include "base/clock.h"

#include <sched.h>
#include <time.h>

enum {
    SPIN_NS = 30000,     // a wait polls without a pause for so long,
    YIELD_NS = 20000000, // then lets other threads go first for so long, and then sleeps
    SLEEP_PART = 256,    // 1/256 of the time waited so far,
    SLEEP_NS_MAX = 2000000,
};

uint64_t clock_process_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void clock_sleep_ns(uint64_t duration_ns) {
    struct timespec wait = {.tv_sec = (time_t)(duration_ns / 1000000000u),
                            .tv_nsec = (long)(duration_ns % 1000000000u)};
    nanosleep(&wait, 0);
}

void clock_rest(uint64_t waited_ns) {
    const uint64_t part_ns = waited_ns / SLEEP_PART;
    if (waited_ns < SPIN_NS) return;
    if (waited_ns < YIELD_NS)
        (void)sched_yield();
    else
        clock_sleep_ns(part_ns < SLEEP_NS_MAX ? part_ns : SLEEP_NS_MAX);
}

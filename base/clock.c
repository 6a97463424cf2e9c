/* clock.c: see clock.h. */
#include "base/clock.h"

#include <time.h>

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

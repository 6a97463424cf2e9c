/* clock.h: one monotonic clock for every measurement. Owns nothing; any thread. Tested by
 * tests/base/test_base.c. */
#ifndef TANDEM_BASE_CLOCK_H
#define TANDEM_BASE_CLOCK_H

#include <stdint.h>

// Nanoseconds since an arbitrary start; never goes back.
uint64_t clock_ns(void);

// Processor time that this process has taken so far, of all its threads.
uint64_t clock_process_ns(void);

// Sleeps about that long; returns early only on a signal.
void clock_sleep_ns(uint64_t duration_ns);

#endif

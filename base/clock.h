/* clock.h: one monotonic clock for every measurement. Owns nothing; any thread. Tested by
 * tests/base/test_base.c. */
#ifndef TANDEM_BASE_CLOCK_H
#define TANDEM_BASE_CLOCK_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

// Nanoseconds since an arbitrary start; never goes back.
uint64_t clock_ns(void);

// Processor time that this process has taken so far, of all its threads.
uint64_t clock_process_ns(void);

// Sleeps about that long; returns early only on a signal.
void clock_sleep_ns(uint64_t duration_ns);
// Has sleeps of the calling thread end within microseconds of their time, where the system lets
// them take longer.
void clock_sleep_exactly(void);

// Prepares a condition for clock_wait.
void clock_wait_init(pthread_cond_t *changed);
// Waits for a change, with the lock held, until clock_ns reaches the deadline. False if it has.
bool clock_wait(pthread_cond_t *changed, pthread_mutex_t *lock, uint64_t deadline_ns);

// A pause between two looks of a thread that polls and has waited that long: none at first, since
// it has nothing else to do, then other threads go first, then it sleeps for a small part of that
// time, so that the wait ends hardly late.
void clock_rest(uint64_t waited_ns);

#endif

/* gate.h: where threads sleep until a condition is true.
 *
 * A waiting thread sleeps at once, so callers spin before if the condition is near. Opening a gate
 * at which nobody sleeps is one load. Owns a lock and a condition variable. Any number of threads
 * may wait and open. Tested by tests/base/test_base.c.
 */
#ifndef TANDEM_BASE_GATE_H
#define TANDEM_BASE_GATE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

struct gate {
    atomic_int n_asleep; // threads that sleep or are about to
    pthread_mutex_t lock;
    pthread_cond_t opened;
};

void gate_init(struct gate *gate);
void gate_close(struct gate *gate); // nobody waits any more
// Sleeps until is_open(context) is true. is_open must read atomics in sequentially consistent order
// alone, since it competes with gate_open's look for sleepers.
void gate_wait(struct gate *gate, bool (*is_open)(const void *context), const void *context);
// Wakes those whose condition became true before, by a sequentially consistent change.
void gate_open(struct gate *gate);

#endif

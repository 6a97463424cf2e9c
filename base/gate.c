/* gate.c: see gate.h. */
#include "base/gate.h"

void gate_init(struct gate *gate) {
    atomic_init(&gate->n_asleep, 0);
    pthread_mutex_init(&gate->lock, NULL);
    pthread_cond_init(&gate->opened, NULL);
}

void gate_close(struct gate *gate) {
    pthread_cond_destroy(&gate->opened);
    pthread_mutex_destroy(&gate->lock);
}

// The count comes before the look at the condition, and the opener's change before its look at the
// count, so at least one of both sees the other. The opener takes the lock, so it cannot slip in
// between a waiter's look and its sleep.
void gate_wait(struct gate *gate, bool (*is_open)(const void *context), const void *context) {
    atomic_fetch_add(&gate->n_asleep, 1);
    pthread_mutex_lock(&gate->lock);
    while (!is_open(context)) pthread_cond_wait(&gate->opened, &gate->lock);
    pthread_mutex_unlock(&gate->lock);
    atomic_fetch_sub(&gate->n_asleep, 1);
}

void gate_open(struct gate *gate) {
    if (atomic_load(&gate->n_asleep) == 0) return;
    pthread_mutex_lock(&gate->lock);
    pthread_cond_broadcast(&gate->opened);
    pthread_mutex_unlock(&gate->lock);
}

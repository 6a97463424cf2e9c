/* affinity_darwin.c: see affinity.h. macOS binds no thread; a class of service says how much a
 * thread matters, and those that matter run on the performance cores.
 *
 * Built by make macos-check, never run on a Mac.
 */
#include "base/affinity.h"

#include <pthread.h>

bool affinity_get(struct affinity *out) {
    (void)out;
    return false;
}

bool affinity_set(const struct affinity *set) {
    (void)set;
    return false;
}

bool affinity_set_cpu(int32_t cpu) {
    (void)cpu;
    return false;
}

int32_t affinity_cpu(void) { return -1; }

void affinity_prefer_fast(void) {
    (void)pthread_set_qos_class_self_np(QOS_CLASS_USER_INITIATED, 0);
}

/* affinity.h: on which processors the calling thread may run.
 *
 * Owns nothing and allocates nothing, so that it may be called between two tokens. On an operating
 * system without affinity every call returns false or -1 and nothing is bound. Any thread; a thread
 * sees and changes only itself. Tested by tests/kernels/test_team.c.
 */
#ifndef TANDEM_BASE_AFFINITY_H
#define TANDEM_BASE_AFFINITY_H

#include <stdbool.h>
#include <stdint.h>

enum { AFFINITY_CPUS = 8192 }; // more than any kernel is built for

struct affinity {
    uint64_t mask[AFFINITY_CPUS / 64]; // bit c: the thread may run on processor c
};

// Reads the set of the calling thread. False if the system does not tell.
bool affinity_get(struct affinity *out);
// Restricts the calling thread to a set. False if the system refuses; the set is then unchanged.
bool affinity_set(const struct affinity *set);
// Restricts the calling thread to one processor, numbered as the operating system does.
bool affinity_set_cpu(int32_t cpu);
// Asks for the performance cores for the calling thread where the system chooses them itself.
void affinity_prefer_fast(void);
// The processor that the calling thread is on now; -1 if the system does not tell.
int32_t affinity_cpu(void);

#endif

/* affinity_linux.c: see affinity.h. */
#include "base/affinity.h"

#include "base/err.h"

#include <sched.h>
#include <string.h>

bool affinity_get(struct affinity *out) {
    memset(out, 0, sizeof *out);
    return sched_getaffinity(0, sizeof out->mask, (cpu_set_t *)(void *)out->mask) == 0;
}

bool affinity_set(const struct affinity *set) {
    return sched_setaffinity(0, sizeof set->mask, (const cpu_set_t *)(const void *)set->mask) == 0;
}

bool affinity_set_cpu(int32_t cpu) {
    ASSERT(cpu >= 0 && cpu < AFFINITY_CPUS);
    struct affinity one = {0};
    one.mask[cpu / 64] = UINT64_C(1) << (cpu % 64);
    return affinity_set(&one);
}

int32_t affinity_cpu(void) { return sched_getcpu(); }

void affinity_prefer_fast(void) {}

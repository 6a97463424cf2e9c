/* host.h: what this process may use of the machine: memory, processor time, and the processor's
 * name.
 *
 * Reads /proc and the control groups (versions 1 and 2, every level up the path), on macOS the
 * tables of its kernel (base/apple.h), where no roots are needed; owns nothing and allocates
 * nothing. Must not trust one source alone: in a container MemAvailable is the machine's. Any
 * thread. Tested by tests/base/test_host.c with invented trees and tests/base/test_apple.c with
 * invented tables.
 */
#ifndef TANDEM_BASE_HOST_H
#define TANDEM_BASE_HOST_H

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

struct host_roots {
    const char *proc;   // "/proc"
    const char *cgroup; // "/sys/fs/cgroup"
};
#define HOST_ROOTS ((struct host_roots){"/proc", "/sys/fs/cgroup"})

struct host_memory {
    uint64_t total_bytes; // MemTotal, or the tightest limit set on this process if that is less
    uint64_t free_bytes;  // what may still be used: MemAvailable, or what a limit leaves if less
    uint64_t available_bytes; // MemAvailable, whatever the limits are
    char limited_by[160]; // what free_bytes comes from: "MemAvailable", a file of a control group,
                          // "RLIMIT_AS"
};

// File pages of a control group count as free, as they do in MemAvailable: they can be dropped. So
// do files that this process has mapped for reading, of RLIMIT_AS: weights lie there.
// ERR_FILE if meminfo cannot be read; limits that cannot be read are no limits.
enum status host_memory_read(struct host_memory *out, const struct host_roots *roots,
                             struct err *e);

// The processor time that the control groups allow, in whole processors, at least 1; 0 without a
// limit.
int32_t host_cpu_quota(const struct host_roots *roots);

// Processor time that all programs of the machine have taken since it started, and a hypervisor has
// taken from it; 0 if the system does not tell.
uint64_t host_busy_ns(const struct host_roots *roots);

// Major faults of all programs of the machine since it started: pages that a thread has waited for
// until they came from a disk. 0 if the system does not tell.
uint64_t host_major_faults(const struct host_roots *roots);

// The processor's name into out[size_bytes], "CPU" if the system does not tell. Returns out.
char *host_cpu_name(const struct host_roots *roots, char *out, size_t size_bytes);

struct host_cores {
    int32_t n_threads, n_cores, n_performance, n_efficiency; // processors; cores, and of these
    uint64_t cache_bytes; // of the last level, all together; 0: the system does not tell
};
// Counts the processors without hwloc. Where the system does not tell of cores, each processor is a
// performance core.
void host_cores_read(struct host_cores *out);

// The instructions of aarch64 that the processor has, by the bits of Linux: AT_HWCAP, AT_HWCAP2.
// Means nothing on other processors.
void host_hwcaps(uint64_t out[2]);

#endif

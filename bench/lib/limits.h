/* limits.h: measures what no kernel can exceed on this machine: how fast lanes read memory, and how
 * fast they multiply.
 *
 * Owns nothing but the memory of limits_map. One thread, which may use the team. Used by
 * bench_ops.c and bench_engine.c.
 */
#ifndef TANDEM_BENCH_LIB_LIMITS_H
#define TANDEM_BENCH_LIB_LIMITS_H

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/device/isa.h"

// Returns memory in pages as small as those of a mapped file, or in pages of 2 MiB where the system
// has them, all of it there. NULL if it is refused.
void *limits_map(uint64_t size_bytes, bool huge_pages);
void limits_unmap(void *memory, uint64_t size_bytes); // NULL is allowed

// Nanoseconds since an arbitrary start: of a team of one lane those in which it had a processor, so
// that other programs count as little as possible.
uint64_t limits_clock_ns(const struct team *team);

// The best rate, in GB/s, at which the team reads that memory, each lane its share from front to
// back: without prefetches and with prefetches at several distances, by eighths of the memory,
// 12 times over. Take several times the last-level cache.
double limits_read_gbps(struct team *team, const void *memory, uint64_t size_bytes);

struct limits_peak { // in GFLOP/s, a multiply-add counts as two; 0: not known for this level
    double floats;   // multiply-adds of floats in registers
    double pairs;    // products of pairs of BF16, added to floats, in registers
    double blocks; // dots of 32 bytes in registers, each with a conversion, a scale, a multiply-add
};

// The peaks of the team at that level, which this CPU has, by the best of several runs.
struct limits_peak limits_peak(struct team *team, enum cpu_isa isa);

#endif

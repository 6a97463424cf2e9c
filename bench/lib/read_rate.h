/* read_rate.h: measures the rate of reading memory, which limits decode.
 *
 * Owns nothing after it returns. Uses OpenMP threads; call it before anything else is running.
 */
#ifndef TANDEM_BENCH_LIB_READ_RATE_H
#define TANDEM_BENCH_LIB_READ_RATE_H

#include <stdint.h>

// Bytes per second that n_threads read together from a buffer of size bytes (take several times the
// last-level cache if memory allows), each thread its own share from front to back: the best of
// n_runs. 0 if the memory is refused.
double read_rate_measure(int32_t n_threads, uint64_t size_bytes, int32_t n_runs);

#endif

/* read_rate.c: see read_rate.h. */
#include "bench/lib/read_rate.h"

#include "base/clock.h"
#include "base/mem.h"

#include <string.h>

// Eight sums hide the latency of the additions; the compiler makes vectors of them.
#if defined(__x86_64__)
__attribute__((target_clones("avx512f", "avx2", "default")))
#endif
static uint64_t
sum_words(const uint64_t *words, uint64_t count) {
    uint64_t sums[32] = {0}, total = 0;
    for (uint64_t i = 0; i + 32 <= count; i += 32) {
        for (int k = 0; k < 32; k++) sums[k] += words[i + (unsigned)k];
    }
    for (int k = 0; k < 32; k++) total += sums[k];
    return total;
}

double read_rate_measure(int32_t n_threads, uint64_t size_bytes, int32_t n_runs) {
    const uint64_t words = size_bytes / 8 / (uint64_t)n_threads;
    uint64_t *memory = mem_map_pages(size_bytes);
    if (!memory) return 0;
    double best = 0;
    uint64_t total = 0;
    memset(memory, 1, size_bytes);
    for (int32_t run = 0; run < n_runs; run++) {
        const uint64_t start = clock_ns();
#pragma omp parallel for num_threads(n_threads) reduction(+ : total) schedule(static)
        for (int32_t t = 0; t < n_threads; t++)
            total += sum_words(memory + (uint64_t)t * words, words);
        const double seconds = (double)(clock_ns() - start) * 1e-9;
        const double rate = (double)words * 8 * n_threads / seconds;
        if (rate > best) best = rate;
    }
    mem_unmap_pages(memory, size_bytes);
    return total ? best : 0; // the sum is used, so it is computed
}

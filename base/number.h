/* number.h: the smaller and the larger of two numbers, and their order. Owns nothing; any thread.
 */
#ifndef TANDEM_BASE_NUMBER_H
#define TANDEM_BASE_NUMBER_H

#include <stdint.h>

static inline int32_t min_i32(int32_t a, int32_t b) { return a < b ? a : b; }
static inline int32_t max_i32(int32_t a, int32_t b) { return a > b ? a : b; }
static inline uint64_t min_u64(uint64_t a, uint64_t b) { return a < b ? a : b; }
static inline uint64_t max_u64(uint64_t a, uint64_t b) { return a > b ? a : b; }
// Times in microseconds; none is NaN.
static inline double min_us(double a, double b) { return a < b ? a : b; }
static inline double max_us(double a, double b) { return a > b ? a : b; }
// For qsort of doubles, the smallest first; none is NaN.
static inline int order_f64(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

#endif

/* ranks.c: see ranks.h. */
#include "bench/lib/ranks.h"

#include "base/err.h"

int32_t nearest_rank(int32_t n, int32_t percent) {
    ASSERT(n >= 1 && percent >= 1 && percent <= 100);
    return (int32_t)(((int64_t)n * percent + 99) / 100 - 1);
}

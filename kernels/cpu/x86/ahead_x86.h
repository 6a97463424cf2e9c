/* ahead_x86.h: prefetches of the weights that a matmul reads next, on x86.
 *
 * Says which lines are due and how many at a time; the kernels say when. Pure inline functions; any
 * thread; must not read the lines, which may lie beyond the matrix. Included by the x86 matmul
 * files only. Tested by tests/kernels/check_ops.c.
 */
#ifndef TANDEM_KERNELS_CPU_X86_AHEAD_X86_H
#define TANDEM_KERNELS_CPU_X86_AHEAD_X86_H

#include "kernels/cpu/matmul_work.h"
#include "kernels/cpu/x86/wide_x86.h"

#include <immintrin.h>

enum {
    LINE = 64,              // bytes of a cache line
    AHEAD_BYTES = 32 << 10, // at least, from what is read to its prefetches
};

// The place of the next prefetch. However the rows of a tile are read, prefetches run ahead of them
// by whole tiles and in the order of memory, into the second-level cache: hardware then sees one
// stream, and few misses of the first-level cache wait for memory.
struct ahead {
    const char *at;
    int64_t due; // bytes to prefetch, less than a line
};

// From the place of a tile of n_rows rows.
INLINE struct ahead ahead_of(const struct matmul_args *a, const void *tile, int64_t row_bytes,
                             int n_rows, struct sequel after) {
    const int64_t tile_bytes = n_rows * row_bytes, end = after.row * row_bytes;
    const int64_t tiles = (AHEAD_BYTES + tile_bytes - 1) / tile_bytes;
    const int64_t at = (const char *)tile - (const char *)a->weight + tiles * tile_bytes;
    const bool beyond = after.weight && at >= end;
    return (struct ahead){.at = beyond ? (const char *)after.weight + at - end
                                       : (const char *)a->weight + at};
}

// Prefetches the next n_bytes, which may lie beyond the matrix.
INLINE void prefetch_next(struct ahead *a, int64_t n_bytes) {
    for (a->due += n_bytes; a->due >= LINE; a->due -= LINE) {
        _mm_prefetch(a->at, _MM_HINT_T1);
        a->at += LINE;
    }
}

// Prefetches a line into the first-level cache if near, else into the second-level one: after what
// makes the vector at after, if that is not NULL. Compilers move prefetches of whose place nothing
// depends, all of a loop to its beginning.
INLINE void prefetch_line(const char *line, bool near, veci *after) {
    if (after && near)
        __asm__ volatile("prefetcht0 %1" : "+v"(*after) : "m"(*line));
    else if (after)
        __asm__ volatile("prefetcht1 %1" : "+v"(*after) : "m"(*line));
    else if (near)
        _mm_prefetch(line, _MM_HINT_T0);
    else
        _mm_prefetch(line, _MM_HINT_T1);
}

// Prefetches the lines of the ith of n equal parts of n_bytes as prefetch_line does. Many
// prefetches at once fill the core's buffers of misses, and the loads behind them wait even for
// what lies in the second-level cache.
INLINE void prefetch_part(const void *at, int64_t n_bytes, int i, int n, bool near, veci *after) {
    const int64_t first = (i * n_bytes / n + LINE - 1) / LINE;
    const int64_t end = ((i + 1) * n_bytes / n + LINE - 1) / LINE;
    for (int64_t k = first; k < end; k++) prefetch_line((const char *)at + k * LINE, near, after);
}

// The part of n_bytes to prefetch beside each of n_panels panels, which meet at_once tokens at a
// time.
INLINE int64_t share_of(int64_t n_bytes, int32_t n_panels, int32_t n_tokens, int32_t at_once) {
    const int64_t parts = (int64_t)n_panels * ((n_tokens + at_once - 1) / at_once);
    return (n_bytes + parts - 1) / parts;
}

// Prefetches where the sums of two tiles with a token are stored: one of few beside each panel.
INLINE void prefetch_out(const struct matmul_args *a, int32_t row, int64_t token) {
    const int64_t at = token * a->out_stride + row;
    for (int i = 0; i < 2 * ROWS; i += ROWS) {
        _mm_prefetch((const char *)(a->out + at + i), _MM_HINT_T0);
        if (a->residual) _mm_prefetch((const char *)(a->residual + at + i), _MM_HINT_T0);
    }
}

#endif

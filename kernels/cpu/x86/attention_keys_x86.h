/* attention_keys_x86.h: loads the elements of a KV cache as vectors of floats, and turns keys.
 *
 * Included by attention_x86.inc, whose includer sets WIDE. Owns nothing. Must not read keys by row
 * behind the last one that some query sees: their memory may never have been touched. Tested by
 * tests/kernels/check_attention.c.
 */
#ifndef TANDEM_KERNELS_CPU_X86_ATTENTION_KEYS_X86_H
#define TANDEM_KERNELS_CPU_X86_ATTENTION_KEYS_X86_H

#include "kernels/cpu/x86/attention_work_avx2.h"
#include "kernels/cpu/x86/vector_avx2.h"
#include "kernels/cpu/x86/wide_x86.h"
#include "kernels/kv_page.h"

#include <string.h>

#if WIDE
#define V_LOAD(at) _mm512_loadu_si512(at)
#else
#define V_LOAD(at) _mm256_loadu_si256((const void *)(at))
#endif

enum {
    LINE = 64,          // bytes of a cache line
    SOON_BYTES = 128,   // the longest row of a head of which the first-level cache holds two pages
    VECTORS = ROWS / 4, // of a tile, whose sums take 24 of 32 registers, with 256 bits 12 of 16
};

// One kv head's part of the cache rows of a page.
struct page {
    const char *k, *v;                    // of the first key of the page
    int64_t k_stride, v_stride;           // bytes from a key to the next
    int64_t k_bytes, v_bytes;             // of a head
    int64_t k_element;                    // of turned keys, to their next element; 0: keys are rows
                                          // or blocks
    bool by_head;                         // the order of the cache
    const char *k_next, *v_next;          // what is prefetched while the first key is read
    int64_t k_next_stride, v_next_stride; // from that to what is prefetched at the next key
    enum kv_type k_type, v_type;
    int32_t head_dim, dim; // dim: rounded up as query_dim does
    int32_t first, last;   // keys first..last-1 of the page are seen by some query
    float softcap;
};

// Up to TILE_QUERIES queries of one kv head, and the part of a page that each sees.
struct tile {
    struct query *queries;
    const float *q;        // [dim, TILE_QUERIES]
    const int16_t *ints;   // [dim / 8, TILE_QUERIES, 8]
    const float *q_scales; // [dim / BLOCK, TILE_QUERIES, 4]
    float *sum_v;          // [TILE_QUERIES, dim]
    float *scores;         // [TILE_QUERIES, KV_PAGE], then the weights
    int n;
    int32_t from[TILE_QUERIES], to[TILE_QUERIES]; // keys from..to-1
    int32_t first, last;                          // keys that some query of the tile sees
};

// The block that element i belongs to; it begins with its scale.
INLINE const char *block_at(const char *row, int32_t i, enum dtype type) {
    return row + i / 32 * (type == DTYPE_Q8_0 ? BLOCK_BYTES_Q8_0 : BLOCK_BYTES_Q4_0);
}

// The numbers of ROWS elements of a block as bytes, in the lower half if ROWS is 8.
INLINE __m128i load_bytes(const char *row, int32_t i, enum dtype type) {
    const char *bytes = block_at(row, i, type) + 2 + i % (type == DTYPE_Q8_0 ? 32 : 16);
#if WIDE
    __m128i q = _mm_loadu_si128((const void *)bytes);
#else
    __m128i q = _mm_loadl_epi64((const void *)bytes);
#endif
    if (type == DTYPE_Q8_0) return q;
    q = _mm_and_si128(_mm_srl_epi16(q, _mm_cvtsi32_si128(i / 16 % 2 * 4)), _mm_set1_epi8(15));
    return _mm_sub_epi8(q, _mm_set1_epi8(8));
}

// Loads ROWS numbers of half precision. Clang would load some of them one by one where it knows
// what becomes of them.
INLINE vecf load_halves(const char *at) {
#if WIDE
    __m256i halves = _mm256_loadu_si256((const void *)at);
    __asm__("" : "+v"(halves));
    return _mm512_cvtph_ps(halves);
#else
    __m128i halves = _mm_loadu_si128((const void *)at);
    __asm__("" : "+x"(halves));
    return _mm256_cvtph_ps(halves);
#endif
}

// Loads ROWS elements as floats. Those of blocks lack the scale.
INLINE vecf load(const char *row, int32_t i, enum dtype type) {
#if WIDE
    if (has_blocks(type)) return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(load_bytes(row, i, type)));
#else
    if (has_blocks(type)) return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(load_bytes(row, i, type)));
#endif
    if (type == DTYPE_F16) return load_halves(row + 2 * i);
    return V(loadu_ps)((const float *)(const void *)row + i);
}

// Loads the last n < ROWS elements from i on, then zeros; not of blocks.
INLINE vecf load_rest(const char *row, int32_t i, int32_t n, enum dtype type) {
    float rest[ROWS] = {0};
    const int32_t element_bytes = type == DTYPE_F16 ? 2 : 4;
    memcpy(rest, row + i * element_bytes, (size_t)(n * element_bytes));
    return load((const char *)rest, 0, type);
}

// Turns ROWS vectors: lane r of vector c was lane c of vector r.
INLINE void turn(vecf v[ROWS]) {
    vecf w[ROWS];
    UNROLL for (int i = 0; i < ROWS; i += 4) { // 4 x 4 lanes of each 128-bit part
        vecf a = V(unpacklo_ps)(v[i], v[i + 1]), b = V(unpackhi_ps)(v[i], v[i + 1]);
        vecf c = V(unpacklo_ps)(v[i + 2], v[i + 3]), d = V(unpackhi_ps)(v[i + 2], v[i + 3]);
        w[i] = V(shuffle_ps)(a, c, 0x44);
        w[i + 1] = V(shuffle_ps)(a, c, 0xee);
        w[i + 2] = V(shuffle_ps)(b, d, 0x44);
        w[i + 3] = V(shuffle_ps)(b, d, 0xee);
    }
    UNROLL for (int c = 0; c < 4; c++) { // then the parts
#if WIDE
        vecf low = _mm512_shuffle_f32x4(w[c], w[4 + c], 0x44);
        vecf high = _mm512_shuffle_f32x4(w[8 + c], w[12 + c], 0x44);
        v[c] = _mm512_shuffle_f32x4(low, high, 0x88);
        v[4 + c] = _mm512_shuffle_f32x4(low, high, 0xdd);
        low = _mm512_shuffle_f32x4(w[c], w[4 + c], 0xee);
        high = _mm512_shuffle_f32x4(w[8 + c], w[12 + c], 0xee);
        v[8 + c] = _mm512_shuffle_f32x4(low, high, 0x88);
        v[12 + c] = _mm512_shuffle_f32x4(low, high, 0xdd);
#else
        v[c] = _mm256_permute2f128_ps(w[c], w[4 + c], 0x20);
        v[4 + c] = _mm256_permute2f128_ps(w[c], w[4 + c], 0x31);
#endif
    }
}

// Elements whose bytes are about a line.
INLINE int32_t line_elements(enum dtype type) {
    return type == DTYPE_F32 ? 16 : type == DTYPE_Q4_0 ? 64 : 32;
}

// Bytes of an element that is no block.
INLINE int64_t element_bytes(enum dtype type) { return type == DTYPE_F16 ? 2 : 4; }

// The place of element i, the first of its block if there are blocks.
INLINE const char *element_at(const char *row, int32_t i, enum dtype type) {
    return has_blocks(type) ? block_at(row, i, type) : row + i * element_bytes(type);
}

// Prefetches the line of element i, the first of its line, of the n elements at row. Rows of blocks
// begin anywhere in a line: their last byte may be in one more.
INLINE void prefetch(const char *row, int32_t i, int32_t n, enum dtype type) {
    _mm_prefetch(element_at(row, i, type), _MM_HINT_T1);
    if (has_blocks(type) && i + line_elements(type) >= n)
        _mm_prefetch(element_at(row, n, type) - 1, _MM_HINT_T1);
}

// Prefetches the line of element i into the first-level cache.
INLINE void prefetch_soon(const char *row, int32_t i, enum dtype type) {
    _mm_prefetch(element_at(row, i, type), _MM_HINT_T0);
}

// Prefetches n bytes.
INLINE void prefetch_bytes(const char *at, int64_t n) {
    for (int64_t line = 0; line < n; line += LINE) _mm_prefetch(at + line, _MM_HINT_T0);
}

// Prefetches n bytes of the keys or values that come next, of which each has row_bytes: into the
// first-level cache, if it holds them beside those that are read.
INLINE void prefetch_next(const char *at, int64_t n, int64_t row_bytes) {
    for (int64_t line = 0; line < n; line += LINE) {
        if (row_bytes <= SOON_BYTES)
            _mm_prefetch(at + line, _MM_HINT_T0);
        else
            _mm_prefetch(at + line, _MM_HINT_T1);
    }
}

// ROWS keys. A register for every fourth one and one for three strides address them all.
struct group {
    const char *quad[ROWS / 4];
    int64_t stride;
};

INLINE const char *row_of_group(const struct group *g, int r) {
    return g->quad[r / 4] + r % 4 * g->stride;
}

INLINE struct group group_at(const char *first, int64_t stride) {
    struct group g = {.stride = stride};
    UNROLL for (int i = 0; i < ROWS / 4; i++) {
        g.quad[i] = first + 4 * i * stride;
        __asm__("" : "+r"(g.quad[i])); // hides that the quads have a common base
    }
    return g;
}

// Scales of the blocks of element i, a key per lane.
INLINE vecf block_scales(const struct group *g, int32_t i, enum dtype type) {
    uint16_t d[ROWS];
    UNROLL for (int r = 0; r < ROWS; r++) memcpy(&d[r], block_at(row_of_group(g, r), i, type), 2);
#if WIDE
    return _mm512_cvtph_ps(_mm256_loadu_si256((const void *)d));
#else
    return _mm256_cvtph_ps(_mm_loadu_si128((const void *)d));
#endif
}

// Loads the scales of n rows at element i. Fills out up to a multiple of ROWS.
INLINE void load_scales(const char *row, int64_t stride, int32_t n, int32_t i, float *out,
                        enum dtype type) {
    uint16_t d[KV_PAGE];
    row = block_at(row, i, type);
    for (int r = 0; r < n; r++, row += stride) memcpy(&d[r], row, sizeof *d);
    for (int r = 0; r < n; r += ROWS) V(storeu_ps)(out + r, load_halves((const char *)(d + r)));
}

// Loads elements i to i + ROWS - 1 of a group of keys, turned: a key per lane. Those of blocks lack
// their scales.
INLINE void load_square(const struct group *g, int32_t i, vecf v[ROWS], enum dtype type) {
    UNROLL for (int r = 0; r < ROWS; r++) v[r] = load(row_of_group(g, r), i, type);
    turn(v);
}

// The same of the last elements, fewer than ROWS.
INLINE void load_square_rest(const struct group *g, int32_t i, int32_t n, vecf v[ROWS],
                             enum dtype type) {
    for (int r = 0; r < ROWS; r++) v[r] = load_rest(row_of_group(g, r), i, n, type);
    turn(v);
}

// Finds ROWS keys from key on. Rows after the last key that some query sees are not read, since
// their memory was not touched for long; zeros in copy stand for them.
INLINE struct group find_group(const struct page *p, int32_t key, char *copy) {
    if (key + ROWS <= p->last) return group_at(p->k + key * p->k_stride, p->k_stride);
    memset(copy, 0, (size_t)(ROWS * p->k_bytes));
    for (int32_t r = 0; key + r < p->last; r++)
        memcpy(copy + r * p->k_bytes, p->k + (key + r) * p->k_stride, (size_t)p->k_bytes);
    return group_at(copy, p->k_bytes);
}

// Turns ROWS keys from key on into columns of out, [head_dim, KV_PAGE]. Scales of blocks become
// columns of scales, [head_dim / BLOCK, KV_PAGE].
INLINE void pack_group(const struct page *p, int32_t key, float *out, float *scales,
                       enum dtype type) {
    char copy[ROWS * HEAD_DIM_MAX * sizeof(float)];
    const struct group g = find_group(p, key, copy);
    const char *next = p->k_next + key * p->k_next_stride;
    vecf v[ROWS];
    int32_t i = 0;
    for (; i + ROWS <= p->head_dim; i += ROWS) {
        load_square(&g, i, v, type);
        const bool is_line = i % line_elements(type) == 0;
        if (has_blocks(type) && i % BLOCK == 0)
            V(store_ps)(scales + i / BLOCK * KV_PAGE + key, block_scales(&g, i, type));
        UNROLL for (int c = 0; c < ROWS; c++) {
            V(store_ps)(out + (i + c) * KV_PAGE + key, v[c]);
            if (is_line) prefetch(next + c * p->k_next_stride, i, p->head_dim, type);
        }
    }
    if (i == p->head_dim) return;
    load_square_rest(&g, i, p->head_dim - i, v, type);
    for (int c = 0; i + c < p->head_dim; c++) V(store_ps)(out + (i + c) * KV_PAGE + key, v[c]);
}

// Prefetches element i of the next keys, which are turned, of all keys of a page.
INLINE void prefetch_column(const struct page *p, int32_t i) {
    const char *next = p->k_next + i * p->k_element;
    for (int64_t line = 0; line < p->k_element; line += LINE)
        _mm_prefetch(next + line, _MM_HINT_T0);
}

// Converts the groups of turned keys that some query sees to floats.
INLINE void pack_columns(const struct page *p, float *out, enum dtype type) {
    const char *column = p->k;
    for (int32_t i = 0; i < p->head_dim; i++, column += p->k_element, out += KV_PAGE) {
        for (int32_t key = p->first / ROWS * ROWS; key < p->last; key += ROWS)
            V(store_ps)(out + key, load(column, key, type));
        prefetch_column(p, i);
    }
}

// Bytes of the numbers of blocks that a page by head has before those of element i, of one key:
// Q4_0 has elements i and i + 16 of a block in one byte.
INLINE int32_t number_at(int32_t i, enum dtype type) {
    return type == DTYPE_Q8_0 ? i : i / 32 * 16 + i % 16;
}

// Bits of that byte below the element.
INLINE int number_shift(int32_t i, enum dtype type) {
    return type == DTYPE_Q8_0 ? 0 : i / 16 % 2 * 4;
}

// The numbers of a page by head, which come after the scales.
INLINE const char *numbers_of(const char *page, int32_t head_dim) {
    return page + head_dim / BLOCK * KV_PAGE * KV_SCALE_BYTES;
}

// Four elements from i on of keys from key on, which begin with four bytes each.
INLINE const char *quads_at(const char *numbers, int32_t head_dim, int32_t i, int32_t key,
                            enum dtype type) {
    const int32_t run = key / KV_RUN * (number_at(head_dim, type) / KV_QUAD);
    return numbers + ((run + number_at(i, type) / KV_QUAD) * KV_RUN + key % KV_RUN) * KV_QUAD;
}

// Element i % 4 of each four bytes as floats, without their scales.
INLINE vecf load_of_quads(const char *quads, int32_t i, enum dtype type) {
    const veci q = V_LOAD(quads);
    if (type == DTYPE_Q8_0)
        return V(cvtepi32_ps)(
            V(srai_epi32)(V(slli_epi32)(q, (shift_count)(24 - i % KV_QUAD * 8)), 24));
    const veci number = V(srli_epi32)(q, (shift_count)(i % KV_QUAD * 8 + number_shift(i, type)));
    return V(cvtepi32_ps)(V(sub_epi32)(V_SI(and)(number, V(set1_epi32)(15)), V(set1_epi32)(8)));
}

// Converts the groups of keys in blocks by head that some query sees to floats, [head_dim,
// KV_PAGE], without their scales, which are [head_dim / BLOCK, KV_PAGE].
INLINE void pack_quads(const struct page *p, float *out, float *scales, enum dtype type) {
    const char *numbers = numbers_of(p->k, p->head_dim);
    for (int32_t key = p->first / ROWS * ROWS; key < p->last; key += ROWS) {
        for (int32_t i = 0; i < p->head_dim; i += KV_QUAD) {
            if (i % BLOCK == 0) V(store_ps)
            (scales + i / BLOCK * KV_PAGE + key,
             load_halves(p->k + (i / BLOCK * KV_PAGE + key) * KV_SCALE_BYTES));
            UNROLL for (int32_t c = i; c < i + KV_QUAD; c++) {
                V(store_ps)
                (out + c * KV_PAGE + key,
                 load_of_quads(quads_at(numbers, p->head_dim, i, key, type), c, type));
            }
        }
    }
    prefetch_bytes(p->k_next, KV_PAGE * p->k_bytes);
}

// Turns the groups with keys that some query sees.
INLINE void pack_keys(const struct page *p, float *out, float *scales, enum dtype type) {
    if (p->by_head) {
        has_blocks(type) ? pack_quads(p, out, scales, type) : pack_columns(p, out, type);
        return;
    }
    for (int32_t key = p->first / ROWS * ROWS; key < p->last; key += ROWS)
        pack_group(p, key, out, scales, type);
}

#endif

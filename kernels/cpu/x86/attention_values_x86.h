/* attention_values_x86.h: multiplies the values of a KV cache by their weights and adds the
 * products.
 *
 * Included by attention_x86.inc, whose includer sets WIDE. Values that are floats or halves become
 * floats. Values in blocks stay integers: the weights of a page's keys, times the scales of their
 * blocks, are rounded to WEIGHT_BITS and a sign, with a power of two for each query and block (NMSE
 * 1e-8 in check_ops). So the sum of a page is exact however it is added, and takes its power once.
 * Two rows at a time are multiplied and added, a word of each in a 32-bit lane; pages by head have
 * them side by side. Owns nothing. Must not read values by row behind the last ones that some query
 * sees: their memory may never have been touched. Tested by tests/kernels/check_attention.c.
 */
#ifndef TANDEM_KERNELS_CPU_X86_ATTENTION_VALUES_X86_H
#define TANDEM_KERNELS_CPU_X86_ATTENTION_VALUES_X86_H

#include "kernels/cpu/x86/attention_keys_x86.h"

enum {
    BLOCKS_MAX = HEAD_DIM_MAX / BLOCK, // of a head
    WEIGHT_BITS = 15,
};

// Scales of V's blocks in a page, of the keys that some query sees; the other ones are any numbers.
struct value_scales {
    _Alignas(LINE) float of[BLOCKS_MAX][KV_PAGE + ROWS];
};

// The weights of a tile's queries times the scales of V's blocks.
struct whole_weights {
    _Alignas(LINE) int16_t ints[TILE_QUERIES][BLOCKS_MAX][KV_PAGE];
    float steps[TILE_QUERIES][BLOCKS_MAX]; // what one stands for
};

// ---- floats and halves --------------------------------------------------------------------------

// V rows as one head sees them; of blocks, pairs of rows of a page by head, or joined ones.
struct values {
    const char *rows, *next; // next: what is prefetched while the first row is added, or NULL
    int64_t stride, next_stride;
    int64_t next_bytes; // of a row, if next is a page by head, which has them in sequence; else 0
    int32_t dim;
    int32_t first, last;  // rows first..last-1 are added
    const float *weights; // [n, KV_PAGE], of the n queries whose sums they are added to
    const struct whole_weights *whole; // of rows in blocks, instead of weights
};

// Where prefetching begins, or NULL, and how far it goes on with each row.
struct ahead {
    const char *at;
    int64_t step;
};

// The same while width bytes of each row are added from dimension i on: by head in the order of
// memory, by row the same bytes of the next rows, if they begin a line.
INLINE struct ahead ahead_of_values(const struct values *v, int32_t i, int64_t width,
                                    enum dtype type) {
    const int64_t start = i * element_bytes(type);
    if (v->next_bytes > 0)
        return (struct ahead){v->next + start * KV_PAGE + v->first * width, width};
    if (!v->next || start % LINE > 0) return (struct ahead){0};
    return (struct ahead){v->next + start + v->first * v->next_stride, v->next_stride};
}

// Adds V rows, which are no blocks, times their weights to n_vectors vectors of the sums of n
// queries, from dimension i on; the counts are constants after inlining.
INLINE void add_tile(float *sum_v, const struct values *v, int32_t i, int n, int n_vectors,
                     enum dtype type) {
    vecf sums[TILE_QUERIES][VECTORS];
    UNROLL for (int j = 0; j < n; j++) {
        UNROLL for (int k = 0; k < n_vectors; k++) {
            sums[j][k] = V(loadu_ps)(sum_v + j * v->dim + i + k * ROWS);
        }
    }
    const float *weights = v->weights;
    const int64_t stride = v->stride, width = n_vectors * ROWS * element_bytes(type);
    const char *row = v->rows + v->first * stride;
    struct ahead ahead = ahead_of_values(v, i, width, type);
    for (int32_t key = v->first; key < v->last; key++, row += stride) {
        vecf value[VECTORS];
        UNROLL for (int k = 0; k < n_vectors; k++) value[k] = load(row, i + k * ROWS, type);
        if (ahead.at) {
            prefetch_next(ahead.at, width, v->next_bytes);
            ahead.at += ahead.step;
        }
        UNROLL for (int j = 0; j < n; j++) {
            vecf weight = V(set1_ps)(weights[j * KV_PAGE + key]);
            UNROLL for (int k = 0; k < n_vectors; k++) {
                sums[j][k] = V(fmadd_ps)(weight, value[k], sums[j][k]);
            }
        }
    }
    UNROLL for (int j = 0; j < n; j++) {
        UNROLL for (int k = 0; k < n_vectors; k++) {
            V(storeu_ps)(sum_v + j * v->dim + i + k * ROWS, sums[j][k]);
        }
    }
}

// The same for all dimensions.
INLINE void add_values(float *sum_v, const struct values *v, int n, enum dtype type) {
    int32_t i = 0;
    for (; i + VECTORS * ROWS <= v->dim; i += VECTORS * ROWS)
        add_tile(sum_v, v, i, n, VECTORS, type);
    for (; i < v->dim; i += ROWS) add_tile(sum_v, v, i, n, 1, type);
}

// Converts the V rows that some query sees, which are no blocks, to floats, rows of dim with zeros
// at their end.
INLINE void widen(const struct page *p, float *out, enum dtype type) {
    for (int32_t key = p->first; key < p->last; key++) {
        const char *row = p->v + key * p->v_stride;
        const char *next = p->v_next + key * p->v_next_stride;
        float *to = out + key * p->dim;
        for (int32_t i = 0; i < p->head_dim; i += ROWS) {
            const int32_t left = p->head_dim - i;
            vecf v = left >= ROWS ? load(row, i, type) : load_rest(row, i, left, type);
            if (i % line_elements(type) == 0) prefetch(next, i, p->head_dim, type);
            V(storeu_ps)(to + i, v);
        }
    }
}

// ---- values in blocks ---------------------------------------------------------------------------

// Loads the scales of rows that are apart.
INLINE void gather_value_scales(const struct page *p, struct value_scales *scales,
                                enum dtype type) {
    const char *row = p->v + p->first * p->v_stride;
    for (int32_t i = 0; i < p->head_dim; i += BLOCK)
        load_scales(row, p->v_stride, p->last - p->first, i, scales->of[i / BLOCK] + p->first,
                    type);
}

// The same of a page by head.
INLINE void widen_value_scales(const struct page *p, struct value_scales *scales) {
    for (int32_t i = 0; i < p->head_dim / BLOCK; i++) {
        UNROLL for (int k = 0; k < KV_PAGE; k += ROWS) {
            V(storeu_ps)(scales->of[i] + k, load_halves(p->v + (i * KV_PAGE + k) * KV_SCALE_BYTES));
        }
    }
}

// Weights times scales of ROWS keys.
INLINE vecf scaled_weights(const float *weights, const float *scales) {
    return V(mul_ps)(V(loadu_ps)(weights), V(loadu_ps)(scales));
}

// The bits of the largest size among the scaled weights of a page, or of a NaN, in some lane.
INLINE veci largest_bits(const float *weights, const float *scales) {
    const vecf sign = V(set1_ps)(-0.0F);
    veci top = V_SI(setzero)();
    UNROLL for (int i = 0; i < KV_PAGE; i += ROWS) {
        const vecf size = V(andnot_ps)(sign, scaled_weights(weights + i, scales + i));
        top = V(max_epi32)(top, V_SI(castps)(size));
    }
    return top;
}

// The maximum of all lanes of four vectors.
INLINE __m128i max_fours(const veci v[4]) {
    const veci a = V(max_epi32)(V(unpacklo_epi32)(v[0], v[1]), V(unpackhi_epi32)(v[0], v[1]));
    const veci b = V(max_epi32)(V(unpacklo_epi32)(v[2], v[3]), V(unpackhi_epi32)(v[2], v[3]));
    const veci c = V(max_epi32)(V(unpacklo_epi64)(a, b), V(unpackhi_epi64)(a, b));
#if WIDE
    const __m256i d = _mm256_max_epi32(_mm512_castsi512_si256(c), _mm512_extracti64x4_epi64(c, 1));
#else
    const __m256i d = c;
#endif
    return _mm_max_epi32(_mm256_castsi256_si128(d), _mm256_extracti128_si256(d, 1));
}

// Rounds scaled weights times factor.
INLINE void store_whole(int16_t *out, const float *weights, const float *scales, float factor) {
    UNROLL for (int i = 0; i < KV_PAGE; i += 2 * ROWS) {
        veci v[2];
        UNROLL for (int k = 0; k < 2; k++) {
            const int at = i + k * ROWS;
            const vecf scaled = scaled_weights(weights + at, scales + at);
            v[k] = V(cvtps_epi32)(V(mul_ps)(scaled, V(set1_ps)(factor)));
        }
        const veci words = V(packs_epi32)(v[0], v[1]); // by 128-bit parts
#if WIDE
        const __m512i order = _mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7);
        _mm512_storeu_si512(out + i, _mm512_permutexvar_epi64(order, words));
#else
        _mm256_storeu_si256((void *)(out + i), _mm256_permute4x64_epi64(words, 0xd8));
#endif
    }
}

// Four queries and blocks, and where their integers and steps go.
struct four_weights {
    const float *weights[4], *scales[4];
    int16_t *ints[4];
    float *steps[4];
};

// Rounds them. The largest weight gets WEIGHT_BITS; all are zero if it is below 2^-111, and their
// step is NaN if one of them is not finite.
INLINE void round_fours(const struct four_weights *f) {
    float factors[4], steps[4];
    veci tops[4];
    UNROLL for (int u = 0; u < 4; u++) tops[u] = largest_bits(f->weights[u], f->scales[u]);
    const __m128i exponent = _mm_srli_epi32(max_fours(tops), 23), all = _mm_set1_epi32(255);
    const __m128i normal = _mm_and_si128(_mm_cmpgt_epi32(exponent, _mm_set1_epi32(15)),
                                         _mm_cmpgt_epi32(all, exponent));
    const __m128i nan = _mm_srli_epi32(_mm_cmpeq_epi32(exponent, all), 1);
    const __m128i factor = _mm_sub_epi32(_mm_set1_epi32(254 + WEIGHT_BITS - 1), exponent);
    const __m128i step = _mm_sub_epi32(exponent, _mm_set1_epi32(WEIGHT_BITS - 1));
    _mm_storeu_si128((void *)factors, _mm_and_si128(normal, _mm_slli_epi32(factor, 23)));
    _mm_storeu_si128((void *)steps,
                     _mm_or_si128(nan, _mm_and_si128(normal, _mm_slli_epi32(step, 23))));
    UNROLL for (int u = 0; u < 4; u++) {
        *f->steps[u] = steps[u];
        store_whole(f->ints[u], f->weights[u], f->scales[u], factors[u]);
    }
}

// Sets the weights and the scales of keys that a query does not see to zero.
static const struct value_scales *hide_values(float *weights, const struct value_scales *scales,
                                              int32_t n_blocks, int32_t from, int32_t to,
                                              struct value_scales *own) {
    if (from == 0 && to == KV_PAGE) return scales;
    if (from >= to) from = to = 0;
    for (int32_t i = 0; i < KV_PAGE; i++) weights[i] = i >= from && i < to ? weights[i] : 0;
    for (int32_t b = 0; b < n_blocks; b++) {
        memset(own->of[b], 0, sizeof own->of[b]);
        memcpy(own->of[b] + from, scales->of[b] + from, (size_t)(to - from) * sizeof(float));
    }
    return own;
}

// Rounds the weights of a tile.
static void round_weights(const struct tile *t, const struct value_scales *scales, int32_t n_blocks,
                          struct whole_weights *out) {
    struct value_scales own[TILE_QUERIES];
    struct four_weights f;
    int n = 0;
    for (int j = 0; j < t->n; j++) {
        float *weights = t->scores + j * KV_PAGE;
        const struct value_scales *of =
            hide_values(weights, scales, n_blocks, t->from[j], t->to[j], &own[j]);
        for (int32_t b = 0; b < n_blocks; b++) {
            f.weights[n] = weights;
            f.scales[n] = of->of[b];
            f.ints[n] = out->ints[j][b];
            f.steps[n] = &out->steps[j][b];
            if (++n < 4) continue;
            round_fours(&f);
            n = 0;
        }
    }
    if (n == 0) return;
    for (int u = n; u < 4; u++) { // the last one again
        f.weights[u] = f.weights[n - 1];
        f.scales[u] = f.scales[n - 1];
        f.ints[u] = f.ints[n - 1];
        f.steps[u] = f.steps[n - 1];
    }
    round_fours(&f);
}

// Adds products of neighbouring words to 32-bit lanes. The barrier keeps gcc from holding all
// products, or the old sums, in registers.
INLINE veci add_products(veci sum, veci a, veci b) {
#if WIDE
    sum = _mm512_dpwssd_epi32(sum, a, b);
#elif defined __AVXVNNI__
    sum = _mm256_dpwssd_avx_epi32(sum, a, b);
#else
    sum = _mm256_add_epi32(sum, _mm256_madd_epi16(a, b));
#endif
    __asm__("" : "+v"(sum));
    return sum;
}

// Loads 2 x ROWS bytes of numbers as words: all of Q8_0 into low; of Q4_0 the lower halves of bytes
// and the upper ones into high.
INLINE void load_numbers(const char *at, veci *low, veci *high, enum dtype type) {
#if WIDE
    const __m256i q = _mm256_loadu_si256((const void *)at);
    const veci words = type == DTYPE_Q8_0 ? _mm512_cvtepi8_epi16(q) : _mm512_cvtepu8_epi16(q);
#else
    const __m128i q = _mm_loadu_si128((const void *)at);
    const veci words = type == DTYPE_Q8_0 ? _mm256_cvtepi8_epi16(q) : _mm256_cvtepu8_epi16(q);
#endif
    *low = words;
    if (type == DTYPE_Q8_0) return;
    *low = V(sub_epi16)(V_SI(and)(words, V(set1_epi16)(15)), V(set1_epi16)(8));
    *high = V(sub_epi16)(V(srli_epi16)(words, 4), V(set1_epi16)(8));
}

// Element i of a pair of rows of a page by head, of which the pair begins in the first block at
// `pair`.
INLINE const char *pair_at(const char *pair, int32_t i, enum dtype type) {
    return pair + i / BLOCK * KV_PAGE * number_at(BLOCK, type) + 2 * number_at(i % BLOCK, type);
}

// Joins the rows of a page by head: its pairs lie so.
INLINE void widen_pairs(const struct page *p, veci *out, enum dtype type) {
    const char *numbers = numbers_of(p->v, p->head_dim);
    const int32_t halves = type == DTYPE_Q4_0 ? BLOCK / 2 : 0; // elements before upper halves
    out += p->first / 2 * (p->dim / ROWS);
    for (int32_t pair = p->first / 2; pair < (p->last + 1) / 2; pair++, out += p->dim / ROWS) {
        const char *at = numbers + pair * 2 * number_at(BLOCK, type);
        for (int32_t i = 0; i < p->head_dim; i += ROWS) {
            if (halves && i % BLOCK >= halves) continue;
            veci *to = out + i / ROWS;
            load_numbers(pair_at(at, i, type), to, to + halves / ROWS, type);
        }
    }
}

// Loads ROWS elements of a row of blocks as 32-bit numbers.
INLINE veci load_row(const char *row, int32_t i, enum dtype type) {
    const __m128i bytes = load_bytes(row, i, type);
#if WIDE
    return _mm512_cvtepi8_epi32(bytes);
#else
    return _mm256_cvtepi8_epi32(bytes);
#endif
}

// Joins rows of blocks that are apart.
INLINE void join_rows(const struct page *p, veci *out, enum dtype type) {
    out += p->first / 2 * (p->dim / ROWS);
    for (int32_t key = p->first & ~1; key < p->last; key += 2) {
        const char *row = p->v + key * p->v_stride, *next = p->v_next + key * p->v_next_stride;
        const char *second = key + 1 < p->last ? row + p->v_stride : row; // without weight then
        for (int32_t i = 0; i < p->head_dim; i += ROWS) {
            const veci low = load_row(row, i, type), high = load_row(second, i, type);
            *out++ = V_SI(or)(V_SI(and)(low, V(set1_epi32)(0xffff)), V(slli_epi32)(high, 16));
            if (i % line_elements(type) > 0) continue;
            prefetch(next, i, p->head_dim, type);
            prefetch(next + p->v_next_stride, i, p->head_dim, type);
        }
    }
}

// Joins the rows of blocks that some query sees in pairs: [KV_PAGE / 2, dim / ROWS], a word of each
// in a lane.
INLINE void pair_rows(const struct page *p, veci *out, enum dtype type) {
    p->by_head ? widen_pairs(p, out, type) : join_rows(p, out, type);
}

// The first dimension of vector k of a tile, from that of the tile on. A byte of Q4_0 holds
// dimensions i and i + 16, which are in vectors side by side.
INLINE int32_t dim_of_vector(int k, enum dtype type) {
    return type == DTYPE_Q4_0 ? k / 2 * BLOCK + k % 2 * 16 : k * ROWS;
}

// Loads n_vectors vectors of a pair of rows of a page by head, from element i of a block on.
INLINE void load_pair(const char *pair, int32_t i, int n_vectors, veci rows[VECTORS],
                      enum dtype type) {
    UNROLL for (int k = 0; k < n_vectors; k += type == DTYPE_Q4_0 ? 2 : 1) {
        const char *at = pair_at(pair, i + dim_of_vector(k, type), type);
        load_numbers(at, &rows[k], &rows[k + 1], type);
    }
}

// Adds pairs of rows times their weights to n_vectors vectors of the sums of n queries, from
// dimension i on; type F32 stands for joined rows. The counts are constants after inlining.
INLINE void add_pairs_tile(float *sum_v, const struct values *v, int32_t i, int n, int n_vectors,
                           enum dtype type) {
    const bool joined = type == DTYPE_F32;
    const int32_t inner = n_vectors * ROWS % BLOCK == 0 ? 0 : i % BLOCK;   // of the first block
    const int64_t width = n_vectors * ROWS * (type == DTYPE_Q4_0 ? 1 : 2); // of a pair's numbers
    veci sums[TILE_QUERIES][VECTORS];
    UNROLL for (int j = 0; j < n; j++) {
        UNROLL for (int k = 0; k < n_vectors; k++) sums[j][k] = V_SI(setzero)();
    }
    const int32_t first = v->first & ~1;
    const char *pair = v->rows + first * v->stride;
    pair = joined ? pair + 4 * i : pair_at(pair, i - inner, type);
    const char *next = v->next + number_at(i, type) * KV_PAGE + first / 2 * width;
    const int16_t *ints = v->whole->ints[0][i / BLOCK] + first;
    for (int32_t key = first; key < v->last; key += 2, ints += 2, pair += 2 * v->stride) {
        veci rows[VECTORS];
        if (!joined) {
            load_pair(pair, inner, n_vectors, rows, type);
            prefetch_bytes(next, width);
            next += width;
        }
        UNROLL for (int k = 0; joined && k < n_vectors; k++) rows[k] = V_LOAD(pair + 4 * k * ROWS);
        UNROLL for (int j = 0; j < n; j++) {
            UNROLL for (int k = 0; k < n_vectors; k++) {
                const int block = dim_of_vector(k, type) / BLOCK;
                int32_t both;
                memcpy(&both, ints + (j * BLOCKS_MAX + block) * KV_PAGE, sizeof both);
                sums[j][k] = add_products(sums[j][k], rows[k], V(set1_epi32)(both));
            }
        }
    }
    UNROLL for (int j = 0; j < n; j++) {
        UNROLL for (int k = 0; k < n_vectors; k++) {
            const int32_t dim = i + dim_of_vector(k, type);
            float *at = sum_v + j * v->dim + dim;
            const vecf step = V(set1_ps)(v->whole->steps[j][dim / BLOCK]);
            V(storeu_ps)(at, V(fmadd_ps)(V(cvtepi32_ps)(sums[j][k]), step, V(loadu_ps)(at)));
        }
    }
}

// The same for all dimensions. A tile of Q4_0 has ROWS dimensions of either half of each of its
// blocks, so that with 256 bits two tiles make a block.
INLINE void add_pairs(float *sum_v, const struct values *v, int n, enum dtype type) {
    const bool halves = type == DTYPE_Q4_0;
    const int32_t width = halves ? VECTORS / 2 * BLOCK : VECTORS * ROWS;
    const int32_t rest = halves ? BLOCK : ROWS, end = halves ? BLOCK / 2 : 1;
    int32_t i = 0;
    for (; i + width <= v->dim; i += width) {
        for (int32_t c = 0; c < end; c += ROWS) add_pairs_tile(sum_v, v, i + c, n, VECTORS, type);
    }
    for (; i < v->dim; i += rest) {
        for (int32_t c = 0; c < end; c += ROWS)
            add_pairs_tile(sum_v, v, i + c, n, 1 + halves, type);
    }
}

#endif

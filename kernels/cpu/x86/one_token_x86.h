/* one_token_x86.h: a tile of block-quantised weights times one token, or with codebooks in
 * registers a few.
 *
 * Four rows at a time are multiplied as they lie, 2048 columns of each, the next four after them
 * (row_x86.h); the exact sums (4 or 8 KiB) become lanes of rows afterwards and are scaled as those
 * of panels are. With 512 bits the scales of blocks of 32 are taken out of the rows while these are
 * multiplied. Other nibbles in rows up to SHORT_ROW are multiplied by panels in registers, and so
 * are pairs of bits in all rows (strips_token), with VNNI also digits in base 3 (digits_token).
 *
 * Codebooks take longer to look up than to multiply. Where they fit registers (BOOKS), up to
 * QUAD_TOKENS tokens share what is looked up, each with sums of its own; else tokens meet what is
 * looked up as panels (book_tokens).
 *
 * Tried and lost, GB/s of Q4_K and Q8_0 with 2048 columns: prefetches of the same columns of the
 * next four rows, in four streams, into the first-level cache (Zen 4: 10 and 11 where one stream
 * into the second-level cache gives 22 and 15, and a plain read 20; Zen 5: 26 and 26 of 36); one
 * stream into the first-level cache (Zen 4: 8 to 19 and 8 to 11); one row after the other, its
 * products through the first-level cache (Zen 4: 15 and 13; Zen 5: 27 and 28); the next rows by
 * loads instead of prefetches (Zen 5: 7 to 14); four rows a quarter of the matrix apart, which
 * hardware prefetches as four long streams (Zen 4: 12 and 22 of 27 and 28, though a plain reader of
 * such streams has 34); prefetches 8, 64 and 128 KiB ahead (equal; Zen 5: 8 and 16 KiB 1.00
 * to 1.07, IQ4_NL 0.9); Q3_K by panels, with its third bits joined or by dots of their own (Zen 4:
 * 0.92 to 1.07 of the speed). On an Emerald Rapids, rows of 4096 and 8192 columns: 4096 at a time,
 * which with the next four rows and the sums fill the first-level cache (0.91 to 1.0 of the speed),
 * and 1024 (0.94 to 1.04).
 *
 * Inline functions over the caller's memory; any thread. Must keep the order of float operations of
 * tile_x86.h, whose settings it shares. Included by matmul_x86.inc only. Tested by
 * tests/kernels/check_ops.c.
 */
#ifndef TANDEM_KERNELS_CPU_X86_ONE_TOKEN_X86_H
#define TANDEM_KERNELS_CPU_X86_ONE_TOKEN_X86_H

#include "kernels/cpu/x86/tile_x86.h"

enum {
    SHORT_ROW = 2048,
    CHUNK_BLOCKS = 64,     // blocks of each row that it takes at once: 2048 columns
    QUAD_TOKENS = 4,       // tokens that look codebooks up together
    NEAR_BYTES = 24 << 10, // of a tile that the first-level cache holds twice
};

#if !BOOKS
// acc + the products of a panel whose bytes are shifted left by up.
INLINE vecf add_shifted(vecf acc, const struct panel *p, const int8_t *x,
                        const struct act_head *act, enum act_extra extra, int up) {
    const bool parts = act_has_parts(extra);
    veci halves[2];
    UNROLL for (int h = 0; h < 2; h++) {
        halves[h] = dot16(V_SI(setzero)(), p->bytes + 4 * h, x + 16 * h, extra);
    }
    if (!parts) halves[0] = V(add_epi32)(halves[0], halves[1]);
    for (int h = 0; up && h < 1 + parts; h++) halves[h] = V(srai_epi32)(halves[h], (shift_count)up);
    if (parts) return add_parts(acc, pair_lanes(halves[0], halves[1]), p, act, extra);
    return add_block(acc, halves[0], p, act, extra);
}

// Prefetches n_bytes at offset of the ith eighth of the rows into the first-level cache.
INLINE void prefetch_rows(struct rows rows, int64_t offset, int64_t n_bytes, int i) {
    UNROLL for (int r = i * ROWS / 8; r < (i + 1) * ROWS / 8; r++) {
        prefetch_part(rows.group[r / 4] + r % 4 * rows.stride + offset, n_bytes, 0, 1, true, NULL);
    }
}

// One token by panels of pairs of bits, made when they are due. Bits are taken out by masks alone
// where they lie, at the bottom or two bits further up, and one shift serves two panels. Rows are
// read side by side, so what is due next is prefetched once more, into the first-level cache: the
// next tile if that has room for it, else the next block of each row.
INLINE vecf strips_token(const struct matmul_args *a, const struct tile *tile, const int8_t *x,
                         struct format f) {
    const int64_t n_blocks = a->n_cols / 256, step_bytes = ROWS * f.block_bytes;
    const int64_t tile_bytes = n_blocks * step_bytes;
    const struct act_head *act = (const struct act_head *)(const void *)(x + a->n_cols);
    const char *next = (const char *)tile->rows.group[0] + tile_bytes;
    const char *far =
        ahead_of(a, tile->rows.group[0], n_blocks * f.block_bytes, ROWS, tile->after).at;
    vecf acc = V(setzero_ps)();
    veci pairs[8];
    for (int64_t b = 0; b < n_blocks; b++, next += step_bytes, far += step_bytes) {
        const int64_t at = b * f.block_bytes;
        struct heads_of_pairs heads = f.strip.heads(tile->rows, at);
        UNROLL for (int i = 0; i < 8; i++, x += ACT_COLS, act++) {
            struct panel panel;
            const int up = i % 2 * 2;
            prefetch_part(far, step_bytes, i, 8, false, NULL);
            if (tile_bytes <= NEAR_BYTES)
                prefetch_part(next, step_bytes, i, 8, true, NULL);
            else
                prefetch_rows(tile->rows, at + f.block_bytes, f.block_bytes, i);
            if (i % 4 == 0) gather32(tile->rows, at + f.strip.pairs_at + i / 4 * 32, pairs);
            UNROLL for (int c = 0; c < 8; c++) {
                if (i % 4 == 2) pairs[c] = V(srli_epi32)(pairs[c], 4);
                panel.bytes[c] = and_bytes(pairs[c], (char)(3 << up));
            }
            f.strip.scale(heads, i, &panel);
            acc = add_shifted(acc, &panel, x, act, f.extra, up);
        }
    }
    return acc;
}

#if VNNI
// Adds to sums the products of n vectors of bytes, four columns each, with x, and those of what is
// left of these bytes behind their first digits in base 3, which they become.
INLINE void dot_digits(veci *bytes, int n, const int8_t *x, veci sums[2]) {
    UNROLL for (int c = 0; c < n; c++) {
        const veci acts = broadcast4(x + 4 * c);
        sums[0] = DOT4(sums[0], bytes[c], acts);
        bytes[c] = triple_bytes(bytes[c]);
        sums[1] = DOT4(sums[1], bytes[c], acts);
    }
}

// One token by TQ1_0 with the digits left in their bytes: of a byte v that counts 256ths, 256 times
// the first digit is 3 v less what is left, so two dots and two additions take the place of
// next_digit and a dot.
INLINE vecf digits_token(const struct matmul_args *a, const struct tile *tile, const int8_t *x,
                         struct format f) {
    const int64_t n_blocks = a->n_cols / 256, step_bytes = ROWS * f.block_bytes;
    const int64_t tile_bytes = n_blocks * step_bytes;
    const struct act_head *act = (const struct act_head *)(const void *)(x + a->n_cols);
    const char *next = (const char *)tile->rows.group[0] + tile_bytes;
    const char *far =
        ahead_of(a, tile->rows.group[0], n_blocks * f.block_bytes, ROWS, tile->after).at;
    vecf acc = V(setzero_ps)();
    for (int64_t b = 0; b < n_blocks; b++, next += step_bytes, far += step_bytes) {
        veci many[8], fewer[4], tail[4];
        const int64_t at = b * f.block_bytes;
        gather32(tile->rows, at, many);
        gather16(tile->rows, at + 32, fewer);
        gather16(tile->rows, at + 38, tail);
        veci last = V_SI(or)(V(srli_epi32)(tail[2], 16), V(slli_epi32)(tail[3], 16));
        struct panel panel = {.scale = {half_high(tail[3])}};
        panel.scale[1] = minus(panel.scale[0]);
        UNROLL for (int i = 0; i < 8; i++, x += ACT_COLS, act++) {
            veci sums[2] = {V_SI(setzero)(), V_SI(setzero)()};
            prefetch_part(far, step_bytes, i, 8, false, NULL);
            if (tile_bytes <= NEAR_BYTES) prefetch_part(next, step_bytes, i, 8, true, NULL);
            if (i < 5) {
                dot_digits(many, 8, x, sums);
            } else {
                dot_digits(fewer, 4, x, sums);
                if (i < 7) dot_digits(fewer, 4, x + 16, sums);
                for (int c = 4; i == 7 && c < 8; c++) dot_digits(&last, 1, x + 4 * c, sums);
            }
            sums[1] = V(sub_epi32)(V(add_epi32)(sums[0], V(slli_epi32)(sums[0], 1)), sums[1]);
            acc = add_block(acc, V(srai_epi32)(sums[1], 8), &panel, act, f.extra);
        }
    }
    return acc;
}
#endif
#endif

enum { CHUNK_COLS = (CHUNK_BLOCKS + STEP_BLOCKS) * ACT_COLS }; // of the longest chunk

// A chunk of every row of a tile, and the dot products of its blocks. A vector of them has
// QUAD_BLOCKS blocks of four rows. Types with a scale per 16 columns have sums of halves, those
// with parts as pairs of 16 bits.
struct chunk {
    const int8_t *x;              // the token's bytes
    const struct act_head *heads; // and their heads
    int64_t n_blocks;
    veci sums[2][(CHUNK_BLOCKS + STEP_BLOCKS) / QUAD_BLOCKS][QUADS];
#if WIDE && !BOOKS
    veci heads_of_rows[(CHUNK_BLOCKS + STEP_BLOCKS) / QUAD_BLOCKS][QUADS]; // see block_heads
#endif
#if BOOKS
    int8_t planes[CHUNK_COLS];        // the bytes in the order of grid_vbmi.h
    veci starts[CHUNK_COLS / 256][2]; // of the sums of two rows, or of their halves
    _Alignas(32) uint16_t scales[CHUNK_COLS / 256][ROWS]; // of blocks: floats of half precision
#endif
};

// Puts the sums of halves of QUAD_BLOCKS blocks where type needs them.
INLINE void put_sums(struct chunk *c, int64_t k, int q, const veci halves[2],
                     enum act_extra extra) {
    veci sum = halves[0];
    if (!act_has_halves(extra)) sum = V(add_epi32)(halves[0], halves[1]);
    if (act_has_parts(extra)) sum = pair_lanes(halves[0], halves[1]);
    if (act_has_half_scales(extra)) c->sums[1][k][q] = halves[1];
    c->sums[0][k][q] = sum;
}

#if BOOKS
// sum * 16 + the lowest four bits of nibbles
INLINE veci pack_sum(veci sum, veci nibbles) {
    return _mm512_ternarylogic_epi32(_mm512_set1_epi32(15), nibbles, _mm512_slli_epi32(sum, 4),
                                     0xca);
}

// Reads the planes of two pairs of rows in a step of a chunk, 256 columns.
INLINE void read_pairs(struct quad rows, struct format f, struct plane planes[2][PLANES]) {
    UNROLL for (int i = 0; i < 2; i++) {
        const uint8_t *at = rows.at + 2 * i * rows.stride;
        prefetch_beside(rows, 2 * i, 0, 1, NULL);
        f.planes(at, at + rows.stride, planes[i]);
        prefetch_beside(rows, 2 * i + 1, 0, 1, NULL);
    }
}

// The dots of two pairs of rows in a step with n tokens, a chunk for each.
INLINE void dot_pairs(const struct chunk *c, int n, struct quad rows, int64_t step, struct format f,
                      veci (*halves)[2][2]) {
    const bool parts = f.extra == ACT_HALF_PARTS;
    const int last = f.planes_order == BY_FOURS ? 0 : 1;
    const int8_t *x[QUAD_TOKENS];
    struct plane planes[2][PLANES];
    read_pairs(rows, f, planes);
    UNROLL for (int t = 0; t < n; t++) {
        x[t] = c[t].planes + step * 256;
        UNROLL for (int i = 0; i < 2; i++) {
            halves[t][i][0] = parts ? V_SI(setzero)() : c[t].starts[step][0];
            halves[t][i][1] = parts ? V_SI(setzero)() : c[t].starts[step][last];
        }
    }
    dot_planes(planes, x, n, f.planes_order, halves);
}

// The sums of pair i of rows with a token, of its first and last planes, in lanes as turn_sums
// wants them, with the pair's nibbles.
INLINE void pack_pair(const veci halves[2], const veci nibbles[2], veci start, struct format f,
                      int i, veci out[2][2]) {
    if (f.extra == ACT_HALF_PARTS) {
        out[0][i] = V(madd_epi16)(pair_lanes(halves[0], halves[1]), nibbles[0]);
        out[1][i] = V(madd_epi16)(start, nibbles[0]);
    } else if (act_has_halves(f.extra)) {
        out[0][i] = pack_sum(halves[0], nibbles[0]);
        out[1][i] = pack_sum(halves[1], nibbles[1]);
    } else {
        out[0][i] = pack_sum(f.planes_order == BY_FOURS ? add_pairs(halves[0], halves[1], false)
                                                        : V(add_epi32)(halves[0], halves[1]),
                             nibbles[0]);
    }
}

// Stores the sums of both pairs with a token, from vector k of a quad of its chunk on.
INLINE void store_pairs(struct chunk *c, const veci sums[2][2], int64_t k, int quad,
                        struct format f) {
    const int n_sums = act_has_halves(f.extra) ? 2 : 1;
    UNROLL for (int i = 0; i < n_sums; i++) {
        veci turned[2];
        turn_sums(sums[i], f.planes_order, turned);
        c->sums[i][k][quad] = turned[0];
        c->sums[i][k + 1][quad] = turned[1];
    }
}

// The sums of n tokens, a chunk for each, in a step from block b on: 256 columns.
INLINE void step_sums(struct chunk *c, int n, struct quad rows, int64_t b, int64_t k,
                      struct format f) {
    const int q = rows.number;
    const int64_t step = b / STEP_BLOCKS;
    veci halves[QUAD_TOKENS][2][2], nibbles[2][2];
    dot_pairs(c, n, rows, step, f, halves);
    UNROLL for (int i = 0; i < 2; i++) {
        const uint8_t *at = rows.at + 2 * i * rows.stride;
        f.nibbles(at, at + rows.stride, nibbles[i]);
    }
    UNROLL for (int t = 0; t < n; t++) {
        veci sums[2][2];
        UNROLL for (int i = 0; i < 2; i++) {
            pack_pair(halves[t][i], nibbles[i], c[t].starts[step][0], f, i, sums);
        }
        store_pairs(c + t, sums, k, q, f);
    }
    UNROLL for (int r = 0; r < 4; r++) {
        const uint8_t *at = rows.at + r * rows.stride;
        c->scales[step][4 * q + r] = f.extra == ACT_HALF_PARTS ? half_iq1_m(at) : grid_word16(at);
    }
}

INLINE void begin_chunk(struct chunk *c, struct format f) {
    for (int64_t at = 0; at < c->n_blocks * ACT_COLS; at += 256) {
        turn_acts(c->x + at, f.extra, f.planes_order, c->planes + at);
        start_sums(load_vector((const void *)(c->heads + at / ACT_COLS)), f.extra, f.planes_order,
                   c->starts[at / 256]);
    }
}
#else
// The same of one token.
INLINE void step_sums(struct chunk *c, UNUSED int n, struct quad rows, int64_t b, int64_t k,
                      struct format f) {
    const int q = rows.number;
    const int8_t *x = c->x + b * ACT_COLS;
    UNROLL for (int i = 0; i < STEP_BLOCKS / QUAD_BLOCKS; i++) {
        veci halves[2];
#if WIDE
        if (f.head) c->heads_of_rows[k + i][q] = block_heads(rows, i, f.block_bytes);
#endif
        if (f.halves) {
            c->sums[0][k + i][q] = dot_halves(rows, x, i, f.extra, f.halves);
            continue;
        }
        veci dots[2];
        UNROLL for (int v = 0; v < 2; v++) {
            dots[v] = dot_quad(rows, x, 2 * i + v, f.order, f.extra, f.columns);
        }
        split_parts(dots[0], dots[1], halves);
        put_sums(c, k + i, q, halves, f.extra);
    }
}

INLINE void begin_chunk(struct chunk *c, struct format f) { (void)c, (void)f; }
#endif

// The first block of the step that is due at start. The last one begins early enough to end with
// the chunk.
INLINE int64_t step_at(const struct chunk *c, int64_t start) {
    const int64_t last = c->n_blocks - STEP_BLOCKS;
    return start < last ? start : last;
}

// Fills the sums of a quad.
INLINE void quad_sums(struct chunk *c, int n, struct quad rows, struct format f,
                      struct ahead *ahead) {
    for (int64_t start = 0, k = 0; start < c->n_blocks; start += STEP_BLOCKS) {
        const int64_t b = step_at(c, start);
        struct quad at = rows;
        at.at += b / f.block_panels * f.block_bytes;
        at.next = at.at + at.to_next;
        if (!BOOKS) __asm__("" : "+r"(at.next)); // hides that both have a common base
        at.far = ahead->at;
        ahead->at += at.far_bytes;
        step_sums(c, n, at, b, k, f);
        k += STEP_BLOCKS / QUAD_BLOCKS;
    }
}

#if BOOKS
// acc + the products of a step's blocks, whose sums are vectors from the kth on. Far ahead
// QUADS steps of a row are prefetched, unless far is NULL.
INLINE vecf add_step(vecf acc, const struct chunk *c, int64_t k, const uint16_t *scales,
                     struct format f, const void *far) {
    const bool parts = f.extra == ACT_HALF_PARTS, low = f.extra == ACT_SCALED_SUM;
    const int n = act_has_halves(f.extra) ? 2 : 1;
    const int64_t step = k * QUAD_BLOCKS / STEP_BLOCKS;
    const struct act_head *act = c->heads + step * STEP_BLOCKS;
    const vecf first = V(set1_ps)(f.offsets[0]);
    const vecf offsets = V(mask_mov_ps)(first, 0xff00, V(set1_ps)(f.offsets[1]));
    const vecf d =
        V(mul_ps)(_mm512_cvtph_ps(_mm256_load_si256((const void *)scales)), V(set1_ps)(f.factor));
    veci sums[2][STEP_BLOCKS];
    UNROLL for (int j = 0; j < STEP_BLOCKS; j++, act++) {
        if (far) prefetch_part(far, QUADS * f.block_bytes, j, STEP_BLOCKS, false, NULL);
        UNROLL for (int i = 0; i < n; i++) {
            if (j % QUAD_BLOCKS == 0) turn_parts(c->sums[i][k + j / QUAD_BLOCKS], sums[i] + j);
            const veci sum = sums[i][j];
            if (parts) {
                acc = add_scaled(acc, sum, i ? V(mul_ps)(d, first) : d, act->scale);
                continue;
            }
            const vecf scale = V(mul_ps)(d, V(permutexvar_ps)(sum, V(loadu_ps)(f.odd)));
            acc = add_scaled(acc, V(srai_epi32)(sum, 4), scale, act->scale);
            if (!low) continue;
            const vecf offset = V(mul_ps)(scale, V(permutexvar_ps)(sum, offsets));
            acc = V(fmadd_ps)(offset, V(set1_ps)(act->scaled_sum), acc);
        }
    }
    return acc;
}
#else
// acc + the products of a step's blocks, whose sums are vectors from the kth on. Those that an
// earlier step had are left out. Far ahead QUADS steps of a row are prefetched, unless ahead is
// NULL.
INLINE vecf add_step(vecf acc, const struct chunk *c, int64_t k, const struct panel *panels,
                     struct format f, const struct ahead *ahead) {
    const int64_t done = k * QUAD_BLOCKS, first = step_at(c, done);
    // Sums are turned when the first of their blocks is due: all at once where blocks are
    // reordered.
    const int together = WIDE && f.order != IN_ORDER ? STEP_BLOCKS : QUAD_BLOCKS;
    veci sums[2][STEP_BLOCKS];
    UNROLL for (int j = 0; j < STEP_BLOCKS; j++) {
        const struct act_head *act = c->heads + first + j;
        if (ahead)
            prefetch_part(ahead->at, QUADS * STEP_BLOCKS * f.block_bytes / f.block_panels, j,
                          STEP_BLOCKS, false, (veci *)&acc);
        const int place = place_of_block(f.order, j);
        for (int i = j; j % together == 0 && i < j + together; i += QUAD_BLOCKS, k++) {
            turn_parts(c->sums[0][k], sums[0] + i);
            if (act_has_half_scales(f.extra)) turn_parts(c->sums[1][k], sums[1] + i);
        }
        if (first + j < done) continue;
        if (act_has_half_scales(f.extra)) {
            UNROLL for (int half = 0; half < 2; half++) {
                veci sum = sums[half][place];
                sum = V(add_epi32)(sum, half_offset(act, half, f.extra));
                acc = add_scaled(acc, sum, panels[j].scale[half], act->scale);
            }
            continue;
        }
        veci sum = sums[0][place];
        if (act_has_parts(f.extra)) {
            acc = add_parts(acc, sum, panels + j, act, f.extra);
            continue;
        }
        if (f.extra == ACT_SUM && VNNI) sum = V(add_epi32)(sum, V(set1_epi32)(act->offset));
        acc = add_block(acc, sum, panels + j, act, f.extra);
    }
    return acc;
}

// Sets the scales of the panels of a step from block b of the chunk on.
INLINE void step_scales(const struct chunk *c, struct rows rows, int64_t b, int64_t k,
                        struct panel *panels, struct format f) {
#if WIDE && !BOOKS
    for (int i = 0; f.head && i < STEP_BLOCKS; i += QUAD_BLOCKS, k++) {
        veci heads[QUAD_BLOCKS];
        turn_parts(c->heads_of_rows[k], heads);
        UNROLL for (int j = 0; j < QUAD_BLOCKS; j++) f.head(heads[j], panels + i + j);
    }
    if (f.head) return;
#endif
    (void)c, (void)k;
    UNROLL for (int i = 0; i < STEP_BLOCKS; i += f.block_panels) {
        f.scales(rows, (b + i) / f.block_panels * f.block_bytes, panels + i);
    }
}

#endif

INLINE void add_chunk(vecf *acc, const struct chunk *c, int n, struct rows rows, struct format f,
                      struct ahead *ahead) {
    const int64_t step_bytes = STEP_BLOCKS * f.block_bytes / f.block_panels;
    for (int64_t start = 0, k = 0; start < c->n_blocks; start += STEP_BLOCKS) {
#if BOOKS
        (void)rows;
        const uint16_t *scales = c->scales[start / STEP_BLOCKS];
        UNROLL for (int t = 0; t < n; t++) {
            acc[t] = add_step(acc[t], c + t, k, scales, f, t == 0 ? ahead->at : NULL);
        }
#else
        const int64_t b = step_at(c, start);
        struct panel panels[STEP_BLOCKS];
        step_scales(c, rows, b, k, panels, f);
        UNROLL for (int t = 0; t < n; t++) {
            acc[t] = add_step(acc[t], c + t, k, panels, f, t == 0 ? ahead : NULL);
        }
#endif
        ahead->at += QUADS * step_bytes;
        k += STEP_BLOCKS / QUAD_BLOCKS;
    }
}

// The chunk of each of n tokens from a block on.
INLINE void begin_chunks(struct chunk *c, int n, const void *const *x, int64_t n_cols,
                         int64_t block, struct format f) {
    const int64_t left = n_cols / ACT_COLS - block;
    const int64_t most = n > 2 ? CHUNK_BLOCKS / 2 : CHUNK_BLOCKS;
    for (int t = 0; t < n; t++) {
        c[t].x = (const int8_t *)x[t] + block * ACT_COLS;
        c[t].heads = (const struct act_head *)(const void *)((const int8_t *)x[t] + n_cols) + block;
        c[t].n_blocks = left <= most + STEP_BLOCKS ? left : most;
        begin_chunk(c + t, f);
    }
}

// n tokens by the dot products of four rows at a time, a chunk of columns of all rows of the tile
// before the next. The sums are turned into lanes of rows and scaled, in the order of blocks.
// n is a constant, 1 unless BOOKS.
INLINE void quads_tokens(const struct matmul_args *a, const struct tile *tile, const void *const *x,
                         struct format f, int n, vecf *acc) {
    const int64_t total = a->n_cols / ACT_COLS;
    struct rows rows = tile->rows;
    struct ahead ahead =
        ahead_of(a, rows.group[0], total / f.block_panels * f.block_bytes, ROWS, tile->after);
    const int64_t step_bytes = STEP_BLOCKS * f.block_bytes / f.block_panels;
    struct quad quad = {.stride = rows.stride,
                        .three_strides = 3 * rows.stride,
                        .near_bytes = f.no_near ? 0 : step_bytes,
                        .far_bytes = 3 * step_bytes};   // the scales bring the fourth quarter
    if (!BOOKS) __asm__("" : "+r"(quad.three_strides)); // else gcc keeps 4 to 7 strides
    struct chunk c[BOOKS ? QUAD_TOKENS : 1];
    UNROLL for (int t = 0; t < n; t++) acc[t] = V(setzero_ps)();
    for (int64_t block = 0; block < total; block += c->n_blocks) {
        const int64_t left = total - block;
        begin_chunks(c, n, x, a->n_cols, block, f);
        const int64_t done = block / f.block_panels * f.block_bytes; // of each row
        const int64_t chunk_bytes = c->n_blocks / f.block_panels * f.block_bytes;
        for (int q = 0; q < QUADS; q++) {
            quad.number = q;
            quad.at = rows.group[q];
            quad.to_next = 4 * rows.stride;
            if (q == QUADS - 1) // the next chunk of the tile, or the first one of the next tile
                quad.to_next += left > c->n_blocks ? chunk_bytes - ROWS * rows.stride : -done;
            quad_sums(c, n, quad, f, &ahead);
        }
        add_chunk(acc, c, n, rows, f, &ahead);
        UNROLL for (int q = 0; q < QUADS; q++) { rows.group[q] += chunk_bytes; }
    }
}

// True if one token meets panels in registers. Short rows are faster so where unpacking is most of
// the work, unless their scales are read along with the columns in whole steps; fewer blocks than a
// step have no other way.
INLINE bool one_by_panels(int64_t n_cols, UNUSED int64_t row_bytes, UNUSED struct format f) {
    if (n_cols < STEP_BLOCKS * ACT_COLS) return true;
#if BOOKS
    return false;
#else
    const bool nibbles = f.block_panels == 1 && f.block_bytes < ACT_COLS;
    const bool heads = WIDE && f.halves && f.head && n_cols % (STEP_BLOCKS * ACT_COLS) == 0;
    return nibbles && !heads && row_bytes <= SHORT_ROW;
#endif
}

INLINE vecf one_token(const struct matmul_args *a, const struct tile *tile, const int8_t *x,
                      struct format f) {
#if !BOOKS
    if (f.strip.heads) return strips_token(a, tile, x, f);
#if VNNI
    if (f.digits) return digits_token(a, tile, x, f);
#endif
#endif
    const void *const tokens[] = {x};
    vecf acc;
#if !BOOKS
    if (f.book.find) {
        book_tokens(a, tile, tokens, f, 1, &acc);
        return acc;
    }
#endif
    if (one_by_panels(a->n_cols, tile->rows.stride, f))
        panels_tokens(a, tile, tokens, f, 1, &acc);
    else
        quads_tokens(a, tile, tokens, f, 1, &acc);
    return acc;
}

#endif

/* tile_x86.h: what all matmuls of block-quantised weights share: the format of a type, the tile of
 * rows, and the products of a panel with tokens.
 *
 * Activations are blocks of 32 signed bytes with a float scale. A panel holds 32 columns of ROWS
 * rows, one row per 32-bit lane, so the integer dot product of ROWS rows with one token needs no
 * sum across lanes, and one multiply-add per block takes it into the float accumulator of that
 * token. Integers are exact, so an element's value depends only on the order of its blocks: first
 * to last, always. A range of fewer rows than ROWS computes each row in all lanes.
 *
 * Inline functions over the caller's memory; any thread. Must keep one order of float operations
 * per output element. WIDE, VNNI, DOT4 and BOOKS come from the including file (matmul_x86.inc).
 * Tested by tests/kernels/check_ops.c.
 */
#ifndef TANDEM_KERNELS_CPU_X86_TILE_X86_H
#define TANDEM_KERNELS_CPU_X86_TILE_X86_H

#ifndef WIDE
#define WIDE  0 // the level's settings, where this file is compiled alone
#define VNNI  0
#define BOOKS 0
#endif
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/x86/ahead_x86.h"

#define SIGNED_BYTES (!VNNI)
#include "kernels/cpu/x86/grid_x86.h"
#if BOOKS
#include "kernels/cpu/x86/grid_vbmi.h"
#endif
#include "kernels/cpu/x86/panel_x86.h"
#include "kernels/cpu/x86/row_x86.h"

#include <stddef.h>
#include <string.h>

enum { TOKENS = WIDE ? 8 : 4 }; // multiplied with a panel at once: as many as fit the registers

// Types of which a byte has pairs of bits of four columns, 32 apart, and which one token multiplies
// panel by panel.
struct strip {
    int pairs_at; // first of 64 bytes of the block
    struct heads_of_pairs (*heads)(struct rows rows, int64_t offset);
    void (*scale)(struct heads_of_pairs heads, int i, struct panel *out); // sets that of panel i
};

struct format {
    // See panel_x86.h: one of both is NULL, and both are with a book. A part has part_panels panels
    // (1 without parts); up to direct_tokens tokens meet them in registers, or look codebooks up
    // together.
    void (*part)(struct rows rows, int64_t offset, int i, int p, struct shared *shared,
                 struct panel *out);
    void (*unpack)(struct rows rows, int64_t offset, struct panel *out);
    int part_panels, direct_tokens;
    void (*scales)(struct rows rows, int64_t offset, struct panel *out); // of the panels alone
#if BOOKS
    planes_fn *planes; // see grid_vbmi.h
    nibbles_fn *nibbles;
    enum planes_order planes_order;
    float factor, offsets[2]; // see BOOK_NAME
    const float *odd;
#else
    veci (*columns)(const uint8_t *at, int i); // see row_x86.h; NULL: has halves
    void (*halves)(const uint8_t *at, int i, veci out[2]);
    struct book book; // see grid_x86.h; its find is NULL where a type has none
    void (*head)(veci head, struct panel *out); // see panel_x86.h; NULL: scales lie elsewhere
    struct strip strip;
    bool digits; // in base 3: see digits_token
#endif
    bool no_near; // columns take longer than memory, and many registers: see struct quad
    enum block_order order;
    int64_t block_bytes;
    int32_t block_panels; // 32-column groups in one block of the file
    enum act_extra extra;
};

// Unpacks the panels of a block.
INLINE void unpack_block(struct format f, struct rows rows, int64_t offset, struct panel *out) {
    if (f.unpack) {
        f.unpack(rows, offset, out);
        return;
    }
    struct shared shared;
#if !BOOKS
    if (f.book.find) {
        find_rows(f.book, rows, offset, &shared);
        f.scales(rows, offset, out);
        for (int i = 0; i < 8; i++) look_up_panel(f.book, &shared, i, out + i);
        return;
    }
#endif
    f.scales(rows, offset, out);
    for (int i = 0; i < f.block_panels; i += f.part_panels) {
        UNROLL for (int p = 0; p < f.part_panels; p++) {
            f.part(rows, offset, i, p, &shared, out + i + p);
        }
    }
}

// Rows of quantised activations, of up to TOKENS tokens. Each has a pointer, since the tokens of an
// expert do not lie at equal distances.
struct acts {
    const int8_t *rows[TOKENS];
    int64_t heads_at; // where the heads begin in each
};

INLINE const struct act_head *act_head(const struct acts *acts, int t, int64_t block) {
    return (const struct act_head *)(const void *)(acts->rows[t] + acts->heads_at) + block;
}

INLINE veci broadcast4(const int8_t *q) {
    int32_t word;
    memcpy(&word, q, sizeof word);
    return V(set1_epi32)(word);
}

// True if activations have an offset of 128 and the bytes of panels none, see grid_vbmi.h.
INLINE bool acts_have_offset(enum act_extra extra) { return BOOKS && extra == ACT_WIDE_HALVES; }

// True if the sums of a block's bytes with activations start from the offset of these.
INLINE bool sums_have_offset(enum act_extra extra) {
    return extra == ACT_WIDE_SUM || (extra == ACT_SUM && VNNI);
}

#if VNNI
INLINE veci dot4(veci sum, veci w, veci x, enum act_extra extra) {
    return acts_have_offset(extra) ? DOT4(sum, x, w) : DOT4(sum, w, x);
}
#endif

// Returns sum + the dot products of 16 columns: 4 vectors of a panel with 16 activation bytes.
INLINE veci dot16(veci sum, const veci w[4], const int8_t *q, enum act_extra extra) {
#if VNNI
    UNROLL for (int c = 0; c < 4; c++) sum = dot4(sum, w[c], broadcast4(q + 4 * c), extra);
    return sum;
#else
    const veci ones = V(set1_epi16)(1);
    veci pairs[4];
    UNROLL for (int c = 0; c < 4; c++) {
        veci x = broadcast4(q + 4 * c);
        pairs[c] = extra == ACT_SUM ? V(maddubs_epi16)(V(abs_epi8)(w[c]), V(sign_epi8)(x, w[c]))
                                    : V(maddubs_epi16)(w[c], x);
    }
    // A sum of two products is at most 2*127*128 for signed and wide bytes, 2*127*63 for Q6_K and
    // 2*127*31 otherwise, shifted bits included: one, two or four such sums fit 16 bits.
    if (extra == ACT_SUM || extra == ACT_WIDE_SUM || extra == ACT_WIDE_HALVES) {
        UNROLL for (int c = 0; c < 4; c++) {
            sum = V(add_epi32)(sum, V(madd_epi16)(pairs[c], ones));
            __asm__("" : "+v"(sum)); // gcc would add the products of many tokens later
        }
        return sum;
    }
    veci a = V(add_epi16)(pairs[0], pairs[1]), b = V(add_epi16)(pairs[2], pairs[3]);
    if (extra != ACT_HALF_SUMS) {
        return V(add_epi32)(sum, V(madd_epi16)(V(add_epi16)(a, b), ones));
    }
    return V(add_epi32)(V(add_epi32)(sum, V(madd_epi16)(a, ones)), V(madd_epi16)(b, ones));
#endif
}

// acc + scale * act_scale * sum
INLINE vecf add_scaled(vecf acc, veci sum, vecf scale, float act_scale) {
    return V(fmadd_ps)(V(cvtepi32_ps)(sum), V(mul_ps)(scale, V(set1_ps)(act_scale)), acc);
}

// acc + the products of a block whose bytes gave sum, for types with a scale per block.
INLINE vecf add_block(vecf acc, veci sum, const struct panel *p, const struct act_head *act,
                      enum act_extra extra) {
    acc = add_scaled(acc, sum, p->scale[0], act->scale);
    if (extra != ACT_SCALED_SUM) return acc;
    return V(fmadd_ps)(p->scale[1], V(set1_ps)(act->scaled_sum), acc);
}

// The activations' sums of halves as a pair of 16 bits in each lane.
INLINE veci half_sums(const struct act_head *act) {
    int32_t pair;
    memcpy(&pair, act->half_sums, sizeof pair);
    return V(set1_epi32)(pair);
}

// The activations' sum of one half times minus the centre of bytes with scales of halves.
INLINE veci half_offset(const struct act_head *act, int half, enum act_extra extra) {
    const uint32_t factor = (uint16_t)-act_centre(extra);
    return V(madd_epi16)(half_sums(act), V(set1_epi32)((int32_t)(factor << 16 * half)));
}

// The same as add_block for types with parts: sums are those of both halves, as pairs of 16 bits.
INLINE vecf add_parts(vecf acc, veci sums, const struct panel *p, const struct act_head *act,
                      enum act_extra extra) {
    if (extra == ACT_HALF_FACTORS) sums = V(sub_epi16)(sums, V(slli_epi16)(half_sums(act), 2));
    acc = add_scaled(acc, V(madd_epi16)(sums, p->parts[0]), p->scale[0], act->scale);
    if (extra == ACT_HALF_FACTORS) return acc;
    return add_scaled(acc, V(madd_epi16)(half_sums(act), p->parts[1]), p->scale[1], act->scale);
}

// Adds the products of 16 columns, 4 vectors of a panel, with n tokens to their sums (n is a
// constant after inlining); at is the place of the columns in the rows of activations.
INLINE void dot_half(const veci w[4], const struct acts *acts, int64_t at, enum act_extra extra,
                     int n, veci *sums) {
#if VNNI
    UNROLL for (int c = 0; c < 4; c++) {
        veci weights = w[c];
        __asm__("" : "+v"(weights)); // loaded once, not for each token
        UNROLL for (int t = 0; t < n; t++) {
            sums[t] = dot4(sums[t], weights, broadcast4(acts->rows[t] + at + 4 * c), extra);
        }
    }
#else
    UNROLL for (int t = 0; t < n; t++) sums[t] = dot16(sums[t], w, acts->rows[t] + at, extra);
#endif
}

// Multiplies one panel with the same block of n tokens (n is a constant after inlining). One token
// has two separate half sums, which shortens the chain of dependent dots.
INLINE void dot_panel(const struct panel *p, const struct acts *acts, int64_t block,
                      enum act_extra extra, int n, vecf *acc) {
    const bool parts = act_has_parts(extra);
    veci sum[TOKENS];
    UNROLL for (int half = 0; half < 2; half++) {
        veci part[TOKENS];
        UNROLL for (int t = 0; t < n; t++) {
            const struct act_head *act = act_head(acts, t, block);
            part[t] = half == 1 && n > 1 && !parts ? sum[t] : V_SI(setzero)();
            if (acts_have_offset(extra)) {
                part[t] = p->parts[half];
            } else if (act_has_half_scales(extra)) {
                part[t] = half_offset(act, half, extra);
            } else if (sums_have_offset(extra) && half == 0) {
                part[t] = V(set1_epi32)(act->offset);
            }
        }
        dot_half(p->bytes + 4 * half, acts, block * ACT_COLS + 16 * half, extra, n, part);
        UNROLL for (int t = 0; t < n; t++) {
            const struct act_head *act = act_head(acts, t, block);
            if (half == 1 && parts) {
                acc[t] = add_parts(acc[t], pair_lanes(sum[t], part[t]), p, act, extra);
            }
            sum[t] = half == 1 && n == 1 ? V(add_epi32)(sum[t], part[t]) : part[t];
            if (act_has_half_scales(extra)) {
                acc[t] = add_scaled(acc[t], part[t], p->scale[half], act->scale);
            }
        }
    }
    if (act_has_halves(extra)) return;
    UNROLL for (int t = 0; t < n; t++) {
        const struct act_head *act = act_head(acts, t, block);
        acc[t] = add_block(acc[t], sum[t], p, act, extra);
    }
}

#if SIGNED_BYTES
// The same for panels of ACT_SUM whose signs are split: an exclusive or, which three ports take,
// instead of a sign, which the two ports of multiplications take. Two products are at least
// -2*128*128, and at most 2*128*127.
INLINE void dot_split(const struct panel *p, const struct acts *acts, int64_t block, int n,
                      vecf *acc) {
    const veci ones = V(set1_epi16)(1);
    veci sum[TOKENS];
    UNROLL for (int t = 0; t < n; t++) sum[t] = p->parts[0];
    UNROLL for (int c = 0; c < 8; c++) {
        UNROLL for (int t = 0; t < n; t++) {
            const veci x = broadcast4(acts->rows[t] + block * ACT_COLS + 4 * c);
            const veci pairs = V(maddubs_epi16)(p->bytes[c], V_SI(xor)(x, p->signs[c]));
            sum[t] = V(add_epi32)(sum[t], V(madd_epi16)(pairs, ones));
            __asm__("" : "+v"(sum[t])); // gcc would add later, and keep 32 products
        }
    }
    UNROLL for (int t = 0; t < n; t++) {
        acc[t] = add_block(acc[t], sum[t], p, act_head(acts, t, block), ACT_SUM);
    }
}
#endif

// Rows that one panel computes. A range that ends within a panel shifts its last panel back and
// stores only the lanes that no other panel has; in a range of fewer rows than lanes, every panel
// holds one row in all its lanes.
struct tile {
    struct rows rows;
    int32_t row;             // row of lane 0
    int32_t first, n_stored; // lanes to store
    struct sequel after;     // see struct matmul_tokens
};

INLINE struct tile tile_at(const struct matmul_args *a, int64_t row_bytes, int64_t index) {
    struct tile t = {.n_stored = 1, .row = a->row_first + (int32_t)index};
    int32_t end = a->row_first + a->row_count;
    bool few = a->row_count < ROWS;
    if (!few) {
        t.row = a->row_first + (int32_t)index * ROWS;
        t.first = t.row + ROWS > end ? t.row + ROWS - end : 0;
        t.row -= t.first;
        t.n_stored = ROWS - t.first;
    }
    t.rows = rows_at((const uint8_t *)a->weight + t.row * row_bytes, few ? 0 : row_bytes);
    return t;
}

// The scales of a panel without its bytes.
INLINE struct panel scales_of(const struct panel *p, enum act_extra extra) {
    struct panel out;
    out.scale[0] = p->scale[0];
    if (!act_has_parts(extra) || extra == ACT_HALF_PARTS) out.scale[1] = p->scale[1];
    if (act_has_parts(extra)) out.parts[0] = p->parts[0];
    if (extra == ACT_HALF_PARTS) out.parts[1] = p->parts[1];
    return out;
}

// The products of a tile with n tokens (a constant, up to TOKENS) at x. Panels of types with parts
// stay in registers: each is multiplied when it is made.
INLINE void panels_tokens(const struct matmul_args *a, const struct tile *tile,
                          const void *const *x, struct format f, int n, vecf *acc) {
    const int64_t n_blocks = a->n_cols / (ACT_COLS * f.block_panels);
    struct ahead ahead =
        ahead_of(a, tile->rows.group[0], n_blocks * f.block_bytes, ROWS, tile->after);
    struct acts acts = {.heads_at = a->n_cols};
    UNROLL for (int t = 0; t < n; t++) acts.rows[t] = x[t];
    UNROLL for (int t = 0; t < n; t++) acc[t] = V(setzero_ps)();
    for (int64_t b = 0; b < n_blocks; b++) {
        struct panel panels[8]; // of a type with parts their scales alone
        struct shared shared;
        (f.part ? f.scales : f.unpack)(tile->rows, b * f.block_bytes, panels);
        for (int i = 0; i < f.block_panels; i += f.part_panels) {
            UNROLL for (int p = 0; p < f.part_panels; p++) {
                struct panel panel = f.part ? scales_of(panels + i + p, f.extra) : panels[i + p];
                prefetch_next(&ahead, ROWS * f.block_bytes / f.block_panels);
                if (f.part) f.part(tile->rows, b * f.block_bytes, i, p, &shared, &panel);
                dot_panel(&panel, &acts, b * f.block_panels + i + p, f.extra, n, acc);
            }
        }
    }
}

#if !BOOKS
// The products of panel i of found rows with 32 activations at x, the sums of both halves of
// columns. Entries are magnitudes up to 64, four products of which fit 16 bits; the activations
// take the signs, so sums have no offset.
INLINE void dot_book(struct book book, const struct shared *shared, int i, const int8_t *x,
                     veci sums[2]) {
    UNROLL for (int h = 0; h < 2; h++) {
        sums[h] = V_SI(setzero)();
        UNROLL for (int c = 4 * h; c < 4 * h + 4; c += 2) {
            veci w[2], v[2];
            UNROLL for (int k = 0; k < 2; k++) {
                look_up(book, shared, i, c + k, w);
                const sign_bits minus = signs_of(shared->high[i], c + k);
                v[k] = put_signs(broadcast4(x + 4 * (c + k)), minus, 0);
#if VNNI
                sums[h] = DOT4(sums[h], w[k], v[k]);
#else
                v[k] = V(maddubs_epi16)(w[k], v[k]);
#endif
            }
#if !VNNI
            v[0] = V(madd_epi16)(V(add_epi16)(v[0], v[1]), V(set1_epi16)(1));
            sums[h] = V(add_epi32)(sums[h], v[0]);
#endif
        }
    }
}

// acc + the products of a panel whose sums these are.
INLINE vecf add_halves(vecf acc, const veci sums[2], const struct panel *p,
                       const struct act_head *act, enum act_extra extra) {
    if (!act_has_half_scales(extra))
        return add_block(acc, V(add_epi32)(sums[0], sums[1]), p, act, extra);
    UNROLL for (int h = 0; h < 2; h++) acc = add_scaled(acc, sums[h], p->scale[h], act->scale);
    return acc;
}

// The same as panels_tokens for types of codebooks. One token is multiplied as entries are looked
// up, where its activations take the signs; else panels meet the tokens in registers.
INLINE void book_tokens(const struct matmul_args *a, const struct tile *tile, const void *const *x,
                        struct format f, int n, vecf *acc) {
    const int64_t n_blocks = a->n_cols / 256;
    struct ahead ahead =
        ahead_of(a, tile->rows.group[0], n_blocks * f.block_bytes, ROWS, tile->after);
    struct acts acts = {.heads_at = a->n_cols};
    UNROLL for (int t = 0; t < n; t++) acts.rows[t] = x[t];
    UNROLL for (int t = 0; t < n; t++) acc[t] = V(setzero_ps)();
    for (int64_t b = 0; b < n_blocks; b++) {
        struct panel panels[8]; // their scales alone
        struct shared shared;
        find_rows(f.book, tile->rows, b * f.block_bytes, &shared);
        f.scales(tile->rows, b * f.block_bytes, panels);
        for (int i = 0; i < 8; i++) {
            const int64_t block = 8 * b + i;
            prefetch_next(&ahead, ROWS * f.block_bytes / 8);
            if (n == 1 && f.book.signed_acts) {
                veci sums[2];
                dot_book(f.book, &shared, i, acts.rows[0] + block * ACT_COLS, sums);
                *acc = add_halves(*acc, sums, panels + i, act_head(&acts, 0, block), f.extra);
                continue;
            }
            struct panel panel = scales_of(panels + i, f.extra);
            look_up_panel(f.book, &shared, i, &panel);
            dot_panel(&panel, &acts, block, f.extra, n, acc);
        }
    }
}
#endif

// out = acc + bias + residual for one token. Rows of out often lie a multiple of 4096 bytes apart,
// in few sets of the caches, so a store misses them: many in a row would wait, while a few at a
// time do so beside the dots of the next tokens.
INLINE void store_tile(const struct matmul_args *a, const struct tile *tile, int64_t token,
                       vecf acc) {
    int64_t at = token * a->out_stride + tile->row;
    if (tile->n_stored == ROWS) {
        if (a->bias) acc = V(add_ps)(acc, V(loadu_ps)(a->bias + tile->row));
        if (a->residual) acc = V(add_ps)(acc, V(loadu_ps)(a->residual + at));
        V(storeu_ps)(a->out + at, acc);
        return;
    }
    float values[ROWS];
    V(storeu_ps)(values, acc);
    for (int32_t i = tile->first; i < tile->first + tile->n_stored; i++) {
        float value = values[i];
        if (a->bias) value += a->bias[tile->row + i];
        if (a->residual) value += a->residual[at + i];
        a->out[at + i] = value;
    }
}

#endif

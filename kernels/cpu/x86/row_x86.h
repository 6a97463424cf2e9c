/* row_x86.h: weights of a row in the order of its columns, and the exact dot products of four rows.
 *
 * Where one token is multiplied, each weight meets one activation, and turning weights into panels
 * (panel_x86.h) costs more than the products. Here vectors hold columns of one row, the activations
 * are loaded as they lie, and the sums are turned instead: of four rows at once, so that every
 * 128-bit part of a vector ends with 16 columns or a block of them, one row per lane. Which blocks
 * share a vector is as the bytes of the file have it. Integers are exact, so the sums are those of
 * the panels. Tried and lost, AVX-512 on a Zen 5, cycles for 256 columns of Q2_K and Q4_K in the
 * first-level cache: lanes added by interleaving pairs of vectors instead of by packing (12.9 and
 * 13.0 against 12.0 and 12.3). Pure inline functions; reads nothing beyond the given blocks;
 * any thread. WIDE, VNNI, DOT4 and SIGNED_BYTES come from the including file. Tested by
 * tests/kernels/check_ops.c.
 */
#ifndef TANDEM_KERNELS_CPU_X86_ROW_X86_H
#define TANDEM_KERNELS_CPU_X86_ROW_X86_H

#include "kernels/cpu/x86/ahead_x86.h"
#include "kernels/cpu/x86/panel_x86.h"
#include "kernels/dtypes.h"

#include <string.h>

enum {
    QUADS = ROWS / 4,                // groups of four rows in a tile; 128-bit parts of a vector
    VECTOR_BLOCKS = ROWS / 8,        // blocks of 32 columns in a vector
    QUAD_BLOCKS = 2 * VECTOR_BLOCKS, // blocks of two vectors, whose sums fill one
    STEP_BLOCKS = 8                  // blocks of 32 columns that are multiplied in a step
};

// 32 bytes of one block, and in a wide vector those of the next, step bytes further on.
INLINE veci load_blocks(const uint8_t *at, int64_t step) {
    __m256i first = _mm256_loadu_si256((const __m256i *)at);
#if WIDE
    __m256i second = _mm256_loadu_si256((const __m256i *)(at + step));
    return _mm512_mask_broadcast_i64x4(_mm512_castsi256_si512(first), 0xf0, second);
#else
    (void)step;
    return first;
#endif
}

// 32 bytes, twice in a wide vector.
INLINE veci load_32(const uint8_t *at) {
    __m256i v = _mm256_loadu_si256((const __m256i *)at);
#if WIDE
    return _mm512_broadcast_i64x4(v);
#else
    return v;
#endif
}

INLINE veci load_vector(const uint8_t *at) { return V_SI(loadu)((const void *)at); }

INLINE veci shift_right(veci v, int bits) { return bits ? V(srli_epi32)(v, (shift_count)bits) : v; }

// Bits bit and, in the second half of a wide vector, bit + more of each byte become bit target;
// other bits are any.
INLINE veci move_bit(veci v, int bit, int more, int target) {
#if WIDE
    const int64_t a = target - bit, b = a - more;
    return _mm512_rolv_epi64(v, _mm512_setr_epi64(a, a, a, a, b, b, b, b));
#else
    (void)more;
    if (bit > target) return _mm256_srli_epi64(v, bit - target);
    return _mm256_slli_epi64(v, target - bit);
#endif
}

// The bits of a that are in mask_a and those of b in mask_b, of which none is in both.
INLINE veci select_bits(veci a, veci b, char mask_a, char mask_b) {
#if WIDE
    const veci own = _mm512_set1_epi8(mask_a);
    return and_bytes(_mm512_ternarylogic_epi32(own, a, b, 0xca), (char)(mask_a | mask_b));
#else
    return _mm256_or_si256(and_bytes(a, mask_a), and_bytes(b, mask_b));
#endif
}

// The lowest n_bits of low and the next n_more of high.
INLINE veci join_bits(veci low, veci high, int n_bits, int n_more) {
    return select_bits(low, high, (char)((1 << n_bits) - 1), (char)(((1 << n_more) - 1) << n_bits));
}

#if WIDE
// Indices of 16-bit words for the bytes from number skip on of four blocks of step bytes: those of
// a vector from byte first on count from 0, those of a vector at the blocks' end from 32. A block
// whose bytes lie at even distances from first is taken from that vector if they are all there.
INLINE __m512i words_of_blocks(int skip, int step, int first) {
    int64_t pairs[4];
    UNROLL for (int b = 0; b < 4; b++) {
        const int at = b * step + skip;
        const bool early = at + 16 <= first + 64 && (at - first) % 2 == 0;
        pairs[b] = early ? (at - first) / 2 : (at + 128 - 4 * step) / 2;
    }
    const __m512i count = _mm512_set1_epi64(0x0003000200010000);
    const __m512i words =
        _mm512_setr_epi64(pairs[0] * 0x0001000100010001, (pairs[0] + 4) * 0x0001000100010001,
                          pairs[1] * 0x0001000100010001, (pairs[1] + 4) * 0x0001000100010001,
                          pairs[2] * 0x0001000100010001, (pairs[2] + 4) * 0x0001000100010001,
                          pairs[3] * 0x0001000100010001, (pairs[3] + 4) * 0x0001000100010001);
    return _mm512_add_epi16(count, words);
}
#endif

// 16 bytes of each of QUAD_BLOCKS blocks of step bytes, from number skip on. With 512 bits a
// permutation of words of two vectors takes the place of three inserts. If blocks have an odd
// number of bytes, every second one is at even bytes of each vector.
INLINE veci load_sixteens(const uint8_t *at, int skip, int step) {
    if (step == 16) return load_vector(at);
#if WIDE
    const int first = step % 2 * skip;
    return _mm512_permutex2var_epi16(load_vector(at + first), words_of_blocks(skip, step, first),
                                     load_vector(at + 4 * step - 64));
#else
    __m128i v[QUAD_BLOCKS];
    UNROLL for (int i = 0; i < QUAD_BLOCKS; i++) {
        v[i] = _mm_loadu_si128((const __m128i *)(at + skip + i * step));
    }
    return _mm256_inserti128_si256(_mm256_castsi128_si256(v[0]), v[1], 1);
#endif
}

#if WIDE
// The places of words that permutex2var takes: word k of the bits of each block, for k 0 and then
// 1, in the first and the last 64 bytes of four blocks of step bytes. Bits begin skip bytes behind
// the block.
INLINE __m128i words_of_bits(int skip, int step) {
    int16_t place[8];
    UNROLL for (int i = 0; i < 8; i++) {
        const int at = i % 4 * step + skip + i / 4 * 2;
        place[i] = (int16_t)(at < 64 ? at / 2 : 32 + (at - (4 * step - 64)) / 2);
    }
    return _mm_setr_epi16(place[0], place[1], place[2], place[3], place[4], place[5], place[6],
                          place[7]);
}

// Adds 16 to columns of four blocks, the lower 16 of each in out[0], where their bits say so. Masks
// are loaded from where the bits of all four were stored side by side: joined one by one by scalar
// instructions they took longer than the products.
INLINE void add_fifth_bits(veci out[2], const uint8_t *at, int skip, int step) {
    uint64_t set[2];
    const veci places = _mm512_castsi128_si512(words_of_bits(skip, step));
    const veci bits =
        _mm512_permutex2var_epi16(load_vector(at), places, load_vector(at + 4 * step - 64));
    _mm_storeu_si128((__m128i *)(void *)set, _mm512_castsi512_si128(bits));
    __asm__("" : "+m"(set)); // compilers would take them out of the register one by one
    UNROLL for (int h = 0; h < 2; h++) {
        out[h] = _mm512_mask_add_epi8(out[h], set[h], out[h], _mm512_set1_epi8(16));
    }
}
#else
// All bits of byte j where bit j of every 32-bit lane is set.
INLINE __m256i set_bytes(__m256i bits) {
    const __m256i own = _mm256_set1_epi64x((int64_t)0x8040201008040201);
    const __m256i byte =
        _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
    __m256i v = _mm256_shuffle_epi8(bits, byte);
    return _mm256_cmpeq_epi8(_mm256_and_si256(v, own), own);
}

// The columns of a block's 16 bytes of nibbles, low ones first, with 16 more in column j where bit
// j of the four bytes bits is set.
INLINE veci load_fifths(const uint8_t *nibbles, const uint8_t *bits) {
    const __m256i both = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)nibbles));
    const __m256i low = and_bytes(_mm256_srlv_epi64(both, _mm256_setr_epi64x(0, 0, 4, 4)), 15);
    uint32_t word;
    memcpy(&word, bits, sizeof word);
    return _mm256_or_si256(low, and_bytes(set_bytes(_mm256_set1_epi32((int32_t)word)), 16));
}
#endif

// Order of a wide vector's blocks, of eight: in the order of columns; or a block and the fourth or
// the second after it, which lie side by side in the file.
enum block_order { IN_ORDER, BY_FOURTHS, BY_SECONDS };

// The nth block in the vectors' order, and the place of a block in it.
INLINE int nth_block(enum block_order order, int n) {
#if WIDE
    if (order == BY_FOURTHS) return n % 2 * 4 + n / 2;
    if (order == BY_SECONDS) return n / 4 * 4 + n % 2 * 2 + n / 2 % 2;
#endif
    (void)order;
    return n;
}

INLINE int place_of_block(enum block_order order, int block) {
#if WIDE
    if (order == BY_FOURTHS) return block % 4 * 2 + block / 4;
#endif
    return nth_block(order, block); // which is its own inverse
}

// ROW_NAME is how a type's columns come as the bytes that unpack_name makes of them, 256 of them
// from at on; i is a constant.
// columns_name: vector i, of VECTOR_BLOCKS blocks. (Those of codebooks are books: grid_x86.h.)
// halves_name: the lower 16 columns of the ith QUAD_BLOCKS blocks, and the upper ones.

// Lower and upper nibbles.
INLINE void put_halves(veci q, veci out[2]) {
    out[0] = and_bytes(q, 15);
    out[1] = and_bytes(V(srli_epi32)(q, 4), 15);
}

#define ROW_Q4_0 .halves = halves_q4_0, .head = head_q4_0
INLINE void halves_q4_0(const uint8_t *at, int i, veci out[2]) {
    at += QUAD_BLOCKS * i * BLOCK_BYTES_Q4_0;
    put_halves(load_sixteens(at, 2, BLOCK_BYTES_Q4_0), out);
}

#define ROW_Q4_1 .halves = halves_q4_1, .head = head_q4_1
INLINE void halves_q4_1(const uint8_t *at, int i, veci out[2]) {
    at += QUAD_BLOCKS * i * BLOCK_BYTES_Q4_1;
    put_halves(load_sixteens(at, 4, BLOCK_BYTES_Q4_1), out);
}

#if WIDE
#define ROW_Q5_0 .halves = halves_q5_0, .head = head_q5_0
INLINE void halves_q5_0(const uint8_t *at, int i, veci out[2]) {
    at += QUAD_BLOCKS * i * BLOCK_BYTES_Q5_0;
    put_halves(load_sixteens(at, 6, BLOCK_BYTES_Q5_0), out);
    add_fifth_bits(out, at, 2, BLOCK_BYTES_Q5_0);
}

#define ROW_Q5_1 .halves = halves_q5_1, .head = head_q4_1
INLINE void halves_q5_1(const uint8_t *at, int i, veci out[2]) {
    at += QUAD_BLOCKS * i * BLOCK_BYTES_Q5_1;
    put_halves(load_sixteens(at, 8, BLOCK_BYTES_Q5_1), out);
    add_fifth_bits(out, at, 4, BLOCK_BYTES_Q5_1);
}
#else
#define ROW_Q5_0 .columns = columns_q5_0
INLINE veci columns_q5_0(const uint8_t *at, int i) {
    at += i * BLOCK_BYTES_Q5_0;
    return load_fifths(at + 6, at + 2);
}

#define ROW_Q5_1 .columns = columns_q5_1
INLINE veci columns_q5_1(const uint8_t *at, int i) {
    at += i * BLOCK_BYTES_Q5_1;
    return load_fifths(at + 8, at + 4);
}
#endif

#define ROW_Q8_0 .columns = columns_q8_0, .head = head_q8_0
INLINE veci columns_q8_0(const uint8_t *at, int i) {
    veci v = load_blocks(at + VECTOR_BLOCKS * i * BLOCK_BYTES_Q8_0 + 2, BLOCK_BYTES_Q8_0);
#if !SIGNED_BYTES
    v = V_SI(xor)(v, V(set1_epi8)((char)-128));
#endif
    return v;
}

// Nibbles of Q4_K and Q5_K, with what lies beyond them.
INLINE veci nibbles_k(const uint8_t *at, int i) {
    return shift_right(load_vector(at + (int)sizeof(veci) * (i / 2)), i % 2 * 4);
}

#define ROW_Q4_K .columns = columns_q4_k, .order = BY_SECONDS
INLINE veci columns_q4_k(const uint8_t *at, int i) { return and_bytes(nibbles_k(at + 16, i), 15); }

#define ROW_Q5_K .columns = columns_q5_k, .order = BY_SECONDS
INLINE veci columns_q5_k(const uint8_t *at, int i) {
    int block = nth_block(BY_SECONDS, i * VECTOR_BLOCKS);
    return join_bits(nibbles_k(at + 48, i), move_bit(load_32(at + 16), block, 2, 4), 4, 1);
}

#define ROW_Q6_K .columns = columns_q6_k
INLINE veci columns_q6_k(const uint8_t *at, int i) {
    int block = i * VECTOR_BLOCKS, half = block / 4, quarter = block % 4;
    veci low = load_vector(at + 64 * half + 32 * (quarter % 2));
    veci upper = move_bit(load_32(at + 128 + 32 * half), 2 * quarter, 2, 4);
    return join_bits(shift_right(low, quarter / 2 * 4), upper, 4, 2);
}

#define ROW_IQ4_NL .halves = halves_iq4_nl, .head = head_q8_0
INLINE void halves_iq4_nl(const uint8_t *at, int i, veci out[2]) {
    at += QUAD_BLOCKS * i * BLOCK_BYTES_IQ4_NL;
    put_halves(load_sixteens(at, 2, BLOCK_BYTES_IQ4_NL), out);
    UNROLL for (int h = 0; h < 2; h++) out[h] = uneven_values(out[h]);
}

#define ROW_MXFP4 .halves = halves_mxfp4, .head = head_mxfp4
INLINE void halves_mxfp4(const uint8_t *at, int i, veci out[2]) {
    at += QUAD_BLOCKS * i * BLOCK_BYTES_MXFP4;
    put_halves(load_sixteens(at, 1, BLOCK_BYTES_MXFP4), out);
    UNROLL for (int h = 0; h < 2; h++) out[h] = floats_of_4(out[h]);
}

#define ROW_IQ4_XS .halves = halves_iq4_xs
INLINE void halves_iq4_xs(const uint8_t *at, int i, veci out[2]) {
    put_halves(load_sixteens(at + 8 + 16 * QUAD_BLOCKS * i, 0, 16), out);
    UNROLL for (int h = 0; h < 2; h++) out[h] = uneven_values(out[h]);
}

// Vectors with odd numbers hold four times their columns, so that two vectors share a shift of the
// pairs of bits, and three the place of the third bits (see dot_quad).
#define ROW_Q3_K .columns = columns_q3_k, .order = BY_FOURTHS
INLINE veci columns_q3_k(const uint8_t *at, int i) {
    const char low = i % 2 ? 12 : 3, high = i % 2 ? 16 : 4;
    const veci pairs = shift_right(load_vector(at + 32 + i / 4 * 32), i % 4 / 2 * 4);
    veci bits = load_32(at);
#if WIDE
    bits = _mm512_rolv_epi64(bits, _mm512_setr_epi64(0, 0, 0, 0, 60, 60, 60, 60));
#else
    bits = shift_right(bits, i / 4 * 4);
#endif
    if (i % 4 < 2) bits = V(slli_epi32)(bits, 2);
    if (i % 2) bits = V(add_epi8)(bits, bits);
    return select_bits(pairs, bits, low, high);
}

// See struct strip.
#define ROW_Q2_K  .strip = {16, heads_q2_k, scale_q2_k}
#define ROW_TQ2_0 .strip = {0, heads_tq2_0, scale_tq2_0}

#if VNNI
#define ROW_TQ1_0 .digits = true // see digits_token
#else
// Bytes times 3^place, of which the upper bits fall away.
INLINE __m256i shift_digits(__m256i v, int place) {
    for (int k = 0; k < place; k++) v = triple_bytes(v);
    return v;
}

#define ROW_TQ1_0 .columns = columns_tq1_0, .no_near = true
// Digits of bytes that count 256ths are columns: the first ones of these bytes.
INLINE veci columns_tq1_0(const uint8_t *at, int i) {
    __m256i v;
    if (i < 5) {
        v = shift_digits(_mm256_loadu_si256((const __m256i *)at), i);
        return next_digit(&v);
    }
    const __m128i bytes = _mm_loadu_si128((const __m128i *)(at + 32));
    v = shift_digits(_mm256_broadcastsi128_si256(bytes), 2 * (i - 5));
    __m256i next = shift_digits(v, 1);
    if (i == 7) {
        uint32_t last;
        memcpy(&last, at + 48, sizeof last);
        const __m256i first = _mm256_set1_epi32((int32_t)last), second = shift_digits(first, 1);
        const __m256i third = shift_digits(second, 1), fourth = shift_digits(third, 1);
        next = _mm256_blend_epi32(_mm256_blend_epi32(first, second, 0x20),
                                  _mm256_blend_epi32(third, fourth, 0x80), 0xc0);
    }
    v = _mm256_blend_epi32(v, next, 0xf0);
    return next_digit(&v);
}
#endif

// The lower 16 bits of each lane of a, then those of b.
INLINE veci pair_lanes(veci a, veci b) {
    b = V(slli_epi32)(b, 16);
#if WIDE
    return _mm512_mask_mov_epi16(b, 0x55555555, a);
#else
    return _mm256_blend_epi16(b, a, 0x55);
#endif
}

// The products of a vector's columns with x, added up by fours.
INLINE veci dot_fours(veci w, veci x, enum act_extra extra) {
#if VNNI
    (void)extra;
    return DOT4(V_SI(setzero)(), w, x);
#else
    if (extra == ACT_SUM) __asm__("" : "+v"(w)); // gcc would store it and load it twice
    veci pairs = extra == ACT_SUM ? V(maddubs_epi16)(V(abs_epi8)(w), V(sign_epi8)(x, w))
                                  : V(maddubs_epi16)(w, x);
    return V(madd_epi16)(pairs, V(set1_epi16)(1));
#endif
}

// Sums of adjacent lanes: in each 128-bit part two of a, then two of b. Lanes that fit 16 bits need
// one operation less.
INLINE veci add_pairs(veci a, veci b, bool fits) {
    if (fits) return V(madd_epi16)(V(packs_epi32)(a, b), V(set1_epi16)(1));
    vecf even = V(shuffle_ps)((vecf)a, (vecf)b, 0x88), odd = V(shuffle_ps)((vecf)a, (vecf)b, 0xdd);
    return V(add_epi32)((veci)even, (veci)odd);
}

// The even and the odd 128-bit parts of a and b.
INLINE void split_parts(veci a, veci b, veci out[2]) {
#if WIDE
    out[0] = _mm512_shuffle_i32x4(a, b, 0x88);
    out[1] = _mm512_shuffle_i32x4(a, b, 0xdd);
#else
    out[0] = _mm256_permute2x128_si256(a, b, 0x20);
    out[1] = _mm256_permute2x128_si256(a, b, 0x31);
#endif
}

// QUADS vectors with a part for each of QUADS blocks become one vector for each block.
INLINE void turn_parts(const veci in[QUADS], veci out[QUADS]) {
#if WIDE
    veci a[2], b[2];
    for (int i = 0; i < 2; i++) {
        a[i] = _mm512_shuffle_i32x4(in[2 * i], in[2 * i + 1], 0x44);
        b[i] = _mm512_shuffle_i32x4(in[2 * i], in[2 * i + 1], 0xee);
    }
    split_parts(a[0], a[1], out);
    split_parts(b[0], b[1], out + 2);
#else
    split_parts(in[0], in[1], out);
#endif
}

// A step of four rows at equal distances, and what is prefetched while it is multiplied: far_bytes
// far ahead and, into the first-level cache, near_bytes of each of the four rows that are read
// next, which are all of the step or none.
struct quad {
    const uint8_t *at, *next;
    int number;                    // of the tile's quads
    int64_t to_next;               // from at to next
    int64_t stride, three_strides; // the latter in a register of its own, see quads_tokens
    int64_t near_bytes;
    const void *far;
    int64_t far_bytes;
};

// Prefetches what is due beside row r's part i of n, after what makes a vector, or NULL.
INLINE void prefetch_beside(struct quad rows, int r, int i, int n, veci *after) {
    const uint8_t *next = rows.next + (r == 3 ? rows.three_strides : r * rows.stride);
    if (rows.near_bytes == 0) after = NULL;
    prefetch_part(rows.far, rows.far_bytes, 4 * i + r, 4 * n, false, after);
    prefetch_part(next, rows.near_bytes, i, n, true, after);
}

#if WIDE
// The words of the heads of blocks b, at word index of 64, as a pair in each of 4 lanes.
INLINE __m512i head_words(const int64_t at[4]) {
    int32_t pair[4];
    UNROLL for (int b = 0; b < 4; b++) pair[b] = (int32_t)(at[b] / 2 | (at[b] / 2 + 1) << 16);
    return _mm512_setr_epi32(pair[0], pair[0], pair[0], pair[0], pair[1], pair[1], pair[1], pair[1],
                             pair[2], pair[2], pair[2], pair[2], pair[3], pair[3], pair[3],
                             pair[3]);
}

// The first 4 bytes of the ith four blocks of the four rows: a 128-bit part for every block, a lane
// for every row. Blocks of step bytes are loaded as one or two vectors; those at odd bytes give
// three bytes.
INLINE __m512i block_heads(struct quad rows, int i, int64_t step) {
    const bool one = 3 * step + 4 <= 64;
    const int64_t second = 4 * step - 64 < 64 ? 4 * step - 64 : 64;
    int64_t at[4];
    UNROLL for (int b = 0; b < 4; b++) {
        at[b] = b * step;
        if (at[b] + 4 > 64) at[b] += 64 - second;
    }
    const __m512i words = head_words(at);
    __m512i out = _mm512_setzero_si512();
    UNROLL for (int r = 0; r < 4; r++) {
        const uint8_t *row = rows.at + r * rows.stride + 4 * i * step;
        const __mmask16 lanes = (__mmask16)(0x1111 << r);
        const __m512i first = load_vector(row);
        __m512i heads = one ? _mm512_permutexvar_epi16(words, first)
                            : _mm512_permutex2var_epi16(first, words, load_vector(row + second));
        out = _mm512_mask_mov_epi32(out, lanes, heads);
    }
    if (step % 2 == 0) return out;
    return _mm512_srlv_epi32(out,
                             _mm512_setr_epi32(0, 0, 0, 0, 8, 8, 8, 8, 0, 0, 0, 0, 8, 8, 8, 8));
}
#endif

// Lane sums of the four rows: in each 128-bit part a lane for every row. v has sums of n_products
// (4 or 8) of a weight with up to n_bits bits; if they fit 16 bits, adding them up is cheaper.
INLINE veci add_rows(const veci v[4], int n_products, enum act_extra extra) {
    const int most = extra == ACT_SUM || extra == ACT_WIDE_HALVES ? 255
                     : extra == ACT_HALF_SUMS                     ? 63
                                                                  : 31;
    const bool fit = n_products * most * 127 < 32768,
               twice_fit = 2 * n_products * most * 127 < 32768;
    return add_pairs(add_pairs(v[0], v[1], fit), add_pairs(v[2], v[3], fit), twice_fit);
}

// Vector i of the four rows' columns times that of x: a 128-bit part for every 16 columns.
INLINE veci dot_quad(struct quad rows, const int8_t *x, int i, enum block_order order,
                     enum act_extra extra, veci (*columns)(const uint8_t *at, int i)) {
    const int first = nth_block(order, i * VECTOR_BLOCKS);
    const int second = nth_block(order, i * VECTOR_BLOCKS + VECTOR_BLOCKS - 1);
    const uint8_t *bytes = (const uint8_t *)x + 32 * first;
    const bool shared = extra == ACT_HALF_FACTORS; // Q3_K's vectors share what a row's loads give
    veci acts = load_blocks(bytes, 32 * (second - first)), v[4];
    if (order == IN_ORDER) acts = load_vector(bytes);
    UNROLL for (int r = 0; r < 4; r++) {
        v[r] = dot_fours(columns(rows.at + r * rows.stride, i), acts, extra);
        prefetch_beside(rows, r, i, STEP_BLOCKS / VECTOR_BLOCKS, shared ? NULL : v + r);
    }
    const veci sums = add_rows(v, 4, extra);
    // see columns_q3_k
    return extra == ACT_HALF_FACTORS && i % 2 ? V(srai_epi32)(sums, 2) : sums;
}

// The ith QUAD_BLOCKS blocks of the four rows times those of x: a 128-bit part for every block.
INLINE veci dot_halves(struct quad rows, const int8_t *x, int i, enum act_extra extra,
                       void (*halves)(const uint8_t *at, int i, veci out[2])) {
    const uint8_t *at = (const uint8_t *)x + 2 * (int)sizeof(veci) * i;
    veci acts[2], w[2], v[4];
    split_parts(load_vector(at), load_vector(at + sizeof(veci)), acts);
    UNROLL for (int r = 0; r < 4; r++) {
        halves(rows.at + r * rows.stride, i, w);
#if VNNI
        v[r] = DOT4(DOT4(V_SI(setzero)(), w[0], acts[0]), w[1], acts[1]);
#else
        v[r] = V(add_epi32)(dot_fours(w[0], acts[0], extra), dot_fours(w[1], acts[1], extra));
#endif
        prefetch_beside(rows, r, i, STEP_BLOCKS / QUAD_BLOCKS, v + r);
    }
    return add_rows(v, 8, extra);
}

#endif

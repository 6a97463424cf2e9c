/* act.h: activations as blocks of 32 signed bytes with a float scale, for integer matmuls, or of 32
 * numbers of BF16.
 *
 * Only the form, which all levels of instructions share; the levels' headers make such
 * blocks. Owns nothing. Tested by tests/kernels/check_ops.c.
 */
#ifndef TANDEM_KERNELS_CPU_ACT_H
#define TANDEM_KERNELS_CPU_ACT_H

#include <stdbool.h>
#include <stdint.h>

enum { ACT_COLS = 32 }; // elements of one block

// How a type makes weights of the bytes of 32 columns, which decides the sums of activations that
// its products need. s and m are floats of each 32 columns.
enum act_extra {
    ACT_SCALED_SUM,  // s n + m, n up to 31: m meets scale * (sum of the activations)
    ACT_SUM,         // s n, n from -128 to 127
    ACT_WIDE_SUM,    // s (n - 64), n up to 127
    ACT_HALF_SUMS,   // s[column / 16] (n - 32), n up to 63
    ACT_WIDE_HALVES, // s[column / 16] (n - 64), n up to 127
    ACT_HALF_PARTS,  // s f[column / 16] n + m o[column / 16], n up to 15, f and o signed bytes: the
                     // sums of halves meet f and the activations' sums o as integers
    ACT_HALF_FACTORS, // s f[column / 16] (n - 4), n up to 7, f from -32 to 31, all but s as
                      // integers
    ACT_PAIRS,        // weights are BF16, and so are activations, which have no heads
};

// True if there is a float for every 16 columns.
static inline bool act_has_half_scales(enum act_extra extra) {
    return extra == ACT_HALF_SUMS || extra == ACT_WIDE_HALVES;
}

// True if integers of every 16 columns meet the sums.
static inline bool act_has_parts(enum act_extra extra) {
    return extra == ACT_HALF_PARTS || extra == ACT_HALF_FACTORS;
}

// True if the sums of a block's lower and upper 16 columns are kept apart.
static inline bool act_has_halves(enum act_extra extra) {
    return act_has_half_scales(extra) || act_has_parts(extra);
}

// The number that bytes with scales of halves are stored with an offset of.
static inline int act_centre(enum act_extra extra) { return extra == ACT_WIDE_HALVES ? 64 : 32; }

// A row of activations is those of BF16, or its bytes, -127..127 (with -128, pairs of products
// would overflow 16 bits), and then a head for each block of them. So a vector loads the bytes of
// adjacent blocks.
struct act_head {
    float scale; // an element is scale * its byte
    union {
        float scaled_sum;
        int32_t offset; // -128 * sum of the bytes, or with ACT_WIDE_SUM -64 *
        int16_t half_sums[2];
    };
};
_Static_assert(sizeof(struct act_head) + ACT_COLS == 40,
               "matmul_scratch_bytes counts 40 bytes a block");

// Bytes of a block but its head.
static inline int64_t act_block_bytes(enum act_extra extra) {
    return extra == ACT_PAIRS ? 2 * ACT_COLS : ACT_COLS;
}

// Quantises n_blocks blocks of x; heads is not read for ACT_PAIRS. A block's result depends on its
// 32 floats alone, and is the same with every level's function, but for the order and the offset of
// bytes that kernels of a type may ask for (order_acts in grid_vbmi.h).
typedef void act_quantize_fn(const float *x, int64_t n_blocks, enum act_extra extra, int8_t *bytes,
                             struct act_head *heads);

// Fills the head of a block whose lower and upper 16 bytes have these sums.
static inline void act_head_set(struct act_head *out, float scale, const int32_t sums[2],
                                enum act_extra extra) {
    out->scale = scale;
    if (extra == ACT_SCALED_SUM) out->scaled_sum = scale * (float)(sums[0] + sums[1]);
    if (extra == ACT_SUM) out->offset = -128 * (sums[0] + sums[1]);
    if (extra == ACT_WIDE_SUM) out->offset = -64 * (sums[0] + sums[1]);
    if (act_has_halves(extra)) {
        out->half_sums[0] = (int16_t)sums[0];
        out->half_sums[1] = (int16_t)sums[1];
    }
}

#endif

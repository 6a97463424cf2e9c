/* kv_block.h: makes blocks of a KV cache as ops.h defines them, the same bytes at every level.
 *
 * Pure inline functions that own nothing; any thread. Included by ref.c and by the files of a level
 * that store rows. Tested by tests/kernels/check_attention.c.
 */
#ifndef TANDEM_KERNELS_CPU_KV_BLOCK_H
#define TANDEM_KERNELS_CPU_KV_BLOCK_H

#include "kernels/cpu/cpu.h"

#include <math.h>
#include <string.h>

// Sixteen bytes follow the scale: element i in the low half of byte i, element i + 16 in the high
// one. Rounding must not add floats: some compilers would join that with the product before.
static inline void kv_block_q4_0(uint8_t *block, const float *x) {
    enum { HALF = BLOCK_ELEMENTS_Q4_0 / 2 };
    float top = 0;
    bool finite = true;
    for (int i = 0; i < 2 * HALF; i++) {
        top = fabsf(x[i]) > fabsf(top) ? x[i] : top;
        finite = finite && isfinite(x[i]);
    }
    const float twice = fabsf(top) >= 1e-30F ? -16 / top : 0;
    const uint16_t d = finite ? float_to_half(top / -8) : 0x7e00;
    uint8_t q[2 * HALF];
    for (int i = 0; finite && i < 2 * HALF; i++) {
        const float halves = x[i] * twice;
        int32_t floor = (int32_t)halves;
        floor -= halves < (float)floor;
        const int32_t nearest = ((floor + 1) >> 1) + 8;
        q[i] = (uint8_t)(nearest < 15 ? nearest : 15);
    }
    memset(block, 0, BLOCK_BYTES_Q4_0);
    memcpy(block, &d, sizeof d);
    for (int i = 0; finite && i < HALF; i++) block[2 + i] = (uint8_t)(q[i] | q[i + HALF] << 4);
}

#endif

/* embed.metal: embed_<type>, rows of the token table as floats.
 *
 * Grid (n_tokens, chunks of EMBED_COLS columns). A thread writes eight columns at a time, so
 * neighbouring threads read neighbouring bytes; the scales of a block come from cache. Reads a
 * row's weights and writes 4 bytes per column; any n_cols that the type allows. Tested by
 * tests/kernels/test_metal_kernels.c and check_ops.c.
 */
#include "kernels/metal/blocks_iq.metal"

template <class W>
kernel void embed(constant embed_args &a [[buffer(0)]],
                  device float *out [[buffer(1)]],
                  device const uchar *table [[buffer(2)]],
                  device const int *tokens [[buffer(3)]],
                  uint2 group [[threadgroup_position_in_grid]],
                  uint index [[thread_index_in_threadgroup]]) {
    device const uchar *row = table + long(tokens[group.x]) * row_bytes<W>(a.n_cols);
    device float *to = out + long(group.x) * a.n_cols;
    const int first = int(group.y) * EMBED_COLS / 8;
    const int last = min(first + EMBED_COLS / 8, (a.n_cols + 7) / 8);
    for (int i = first + int(index); i < last; i += EMBED_THREADS) {
        const eight v = read_eight<W>(row, i, a.n_cols);
        for (int k = 0; k < 4; k++)
            if (8 * i + k < a.n_cols) to[8 * i + k] = a.scale * v.low[k];
        for (int k = 0; k < 4; k++)
            if (8 * i + 4 + k < a.n_cols) to[8 * i + 4 + k] = a.scale * v.high[k];
    }
}

typedef decltype(embed<weight_f32>) embed_fn;
#define WEIGHT(NAME, name, ...) \
    template [[host_name("embed_" #name)]] kernel embed_fn embed<weight_##name>;
#include "kernels/weights.def"
#undef WEIGHT

/* attention_rows.cuh: what the attention kernels of many tokens share: the rows of a block, which
 * are the query heads of one kv head for a tile of tokens, the runs of tokens whose keys a block
 * goes through, and the loading of caches of blocks.
 *
 * Owns nothing; device code only. Tested by tests/kernels/check_ops.c.
 */
#ifndef TANDEM_KERNELS_CUDA_ATTENTION_ROWS_CUH
#define TANDEM_KERNELS_CUDA_ATTENTION_ROWS_CUH

#include "kernels/cuda/attention.cuh"

struct query_row {
    int head;        // its row of q and out, as [n_tokens * n_heads, head_dim]; -1: none
    int first, last; // keys that it sees
};

// Tokens at neighbouring positions of one sequence, all of whose heads are first_head..last_head,
// and the keys they see. Each of these keys is seen by some token and so was written. A key that
// was never written may be NaN, and a weight of zero does not remove a NaN.
struct token_run {
    int first_head, last_head, first_key, last_key;
    const int32_t *pages;
};

// The tokens of the block.
struct token_tile {
    int first, count;
};

// n_rows: rows of a block.
DEVICE_FN token_tile find_tile(const struct attention_args &a, int n_rows) {
    int tokens = n_rows / (in_loop(a.n_heads) / a.n_kv_heads);
    int first = (int)blockIdx.x * tokens;
    return token_tile{first, min(tokens, a.n_tokens - first)};
}

DEVICE_FN query_row find_row(const struct attention_args &a, token_tile tile, int row) {
    int group = a.n_heads / a.n_kv_heads;
    query_row r = {-1, 0, -1};
    if (row >= tile.count * group) return r;
    int token = tile.first + row / group;
    r.head = token * a.n_heads + (int)blockIdx.y * group + row % group;
    r.last = a.positions[token], r.first = first_key(r.last, a.window);
    return r;
}

// The run that starts at that token, one of the tile's.
DEVICE_FN token_run find_run(const struct attention_args &a, token_tile tile, int token) {
    const int first = a.positions[token], sequence = a.sequences[token];
    int next = token + 1;
    while (next < tile.first + tile.count && a.sequences[next] == sequence &&
           a.positions[next] == first + (next - token))
        next++;
    return token_run{token * a.n_heads, next * a.n_heads - 1, first_key(first, a.window),
                     first + (next - token) - 1, a.pages + (int64_t)sequence * a.max_pages};
}

// Cuts a run to the keys of the block's split, whole pages.
DEVICE_FN void split_run(token_run *run, int n_splits) {
    int first_page = run->first_key / KV_PAGE, n_pages = run->last_key / KV_PAGE - first_page + 1;
    int split = (int)blockIdx.z;
    int start = first_page + n_pages * split / n_splits;
    int end = first_page + n_pages * (split + 1) / n_splits;
    run->first_key = max(run->first_key, start * KV_PAGE);
    run->last_key = min(run->last_key, end * KV_PAGE - 1);
}

// Whether a row sees one of the keys of a tile that starts at that key.
DEVICE_FN bool row_sees(const query_row &r, const token_run &run, int key, int n_keys) {
    return r.head >= run.first_head && r.head <= run.last_head && r.last >= key &&
           r.first < key + n_keys;
}

// ---- Units of a cache
// ----------------------------------------------------------------------------

// Eight elements of a key's row as they are stored: loads and conversion are apart, so that all
// loads of a tile are under way before the first conversion waits.
struct raw_unit {
    uint32_t words[4]; // halves; of a block: elements, the last two of them, scale
};

// The numbers that tell Q8_0 from Q4_0. An element is (its byte, shifted, masked and flipped, less
// centre) * scale.
struct block_form {
    int bytes;
    uint32_t mask, flip;
    uint32_t centre; // twice, as the half 1024 + centre
};

// Its numbers are chosen anew in each round: kept over the loop, they spilled with nvcc on 9.0.
DEVICE_FN block_form form_of(enum dtype type) {
    if (in_loop((int)type) == DTYPE_Q8_0)
        return block_form{BLOCK_BYTES_Q8_0, 0xffffffffu, 0x80808080u, 0x64806480u};
    return block_form{BLOCK_BYTES_Q4_0, 0x0f0f0f0fu, 0, 0x64086408u};
}

// The block of 32 elements in which a unit lies.
DEVICE_FN int64_t block_of(const struct attention_args &a, tile_keys keys, int key, int unit) {
    return keys.start / 32 + (int64_t)key * (in_loop(a.n_kv_heads) * a.head_dim / 32) + unit / 4;
}

// Loads a unit of a block, which is 2-byte aligned, by the aligned words in which it lies.
DEVICE_FN raw_unit load_block_unit(const void *cache, const block_form &form, int64_t number,
                                   int unit) {
    const uint8_t *block = (const uint8_t *)cache + number * form.bytes;
    const uint8_t *p = block + 2 + unit % (form.bytes == BLOCK_BYTES_Q8_0 ? 4 : 2) * 8;
    const uint32_t *aligned = (const uint32_t *)(p - ((uintptr_t)p & 2));
    return raw_unit{
        {__ldg(aligned), __ldg(aligned + 1), *(const uint16_t *)(p + 6), *(const uint16_t *)block}};
}

// The eight elements of a unit of a block as bytes, that many above centre.
DEVICE_FN uint2 block_bytes(const uint32_t words[4], const block_form &form, int64_t number,
                            int unit) {
    // Blocks are an odd number of 2 bytes, so the elements of even ones start amid a word.
    const uint32_t bytes = number & 1 ? 0x3210 : 0x5432;
    const int shift = form.bytes == BLOCK_BYTES_Q4_0 ? unit % 4 / 2 * 4 : 0;
    return make_uint2((__byte_perm(words[0], words[1], bytes) >> shift & form.mask) ^ form.flip,
                      (__byte_perm(words[1], words[2], bytes) >> shift & form.mask) ^ form.flip);
}

#endif

/* matmul_work.c: decides which lane multiplies which tile with which tokens, for matmul and
 * matmul_experts at every level.
 *
 * The tiles are computed by the level's kernel (matmul_work.h). A matmul is tiles by groups of
 * tokens. An expert is a matmul over its own tokens, wherever they lie; the tiles of all experts
 * form one list, weighted by the time of each tile, so that all lanes are busy both with one token
 * on 8 experts and with 512 tokens that crowd at some of them. Lanes take portions of their shares,
 * and then of those of others, until nothing is left, so a lane that is slow, or whose processor
 * does something else, keeps the others waiting for a portion at most. Owns nothing; every lane
 * calls with the same arguments. Tested by tests/kernels/check_ops.c.
 */
#include "kernels/cpu/matmul_work.h"
#include "kernels/cpu/expert_pairs.h"

#include "base/err.h"

#include <string.h>

// Reading and unpacking the weights of a tile takes as long as multiplying so many tokens.
enum { TILE_COST = 8 };

enum {
    TAKE_WEIGHTS = 64 << 10,       // weights that are worth a lane's look for more, for one token
    FEW_LOOKS = 32,                // of each lane: a matmul that has no more is shared out at once
    TAKE_BLOCKS = 64,              // blocks to quantise that are worth a look
    EXPERTS_GRAIN = 4 * TILE_COST, // the same, four of an expert's tiles
    TAKES = 32, // that each lane has at least, if groups of SMALL_GROUP tokens allow
    SMALL_GROUP = 64,
    GROUP_BYTES = 5 << 18, // floats of a group at most, where a tile reads all of them at a time,
    LONG_GROUP = 18,       // but a group has so many tokens, however long their rows are
    BAND_BYTES = 4 << 20,  // a group of tokens passes tiles of so many bytes as floats before the
    BANDS_BYTES = 1 << 20, // next group comes, where the tokens have more bytes of floats than that
};

// The rows that the kernel reads: floats or quantised activations, stride bytes apart.
struct x_rows {
    char *base; // only read if the kernel takes floats
    int64_t stride;
};

static int64_t count_tiles(int32_t row_count, const struct matmul_kernel *k) {
    return row_count < k->tile_rows ? row_count : (row_count + k->tile_rows - 1) / k->tile_rows;
}

static int64_t count_groups(int64_t n_tokens, int32_t together) {
    return (n_tokens + together - 1) / together;
}

static int64_t count_blocks(int32_t n_cols) { return (n_cols + ACT_COLS - 1) / ACT_COLS; }

// Quantises blocks blocks[0]..blocks[1]-1, counted over all rows of x, into rows at equal
// distances. Columns that are missing in the last block of a row become zeros.
static void quantize(const float *x, int32_t n_cols, const struct matmul_kernel *k,
                     const int64_t blocks[2], struct x_rows rows) {
    const int64_t per_row = count_blocks(n_cols), whole = n_cols / ACT_COLS;
    const int64_t block_bytes = act_block_bytes(k->extra);
    for (int64_t i = blocks[0], n; i < blocks[1]; i += n) {
        const int64_t first = i % per_row, in_row = whole - first, left = blocks[1] - i;
        const float *from = x + i / per_row * n_cols + first * ACT_COLS;
        char *row = rows.base + i / per_row * rows.stride;
        int8_t *bytes = (int8_t *)row + first * block_bytes;
        struct act_head *heads = (struct act_head *)(void *)(row + whole * block_bytes);
        n = in_row < left ? in_row : left;
        if (n > 0) {
            k->quantize(from, n, k->extra, bytes, heads + first);
            continue;
        }
        float rest[ACT_COLS] = {0};
        memcpy(rest, from, (size_t)(n_cols % ACT_COLS) * sizeof *x);
        k->quantize(rest, n = 1, k->extra, bytes, heads);
    }
}

// Rows lie as matmul_scratch_bytes counts them: a single row of each lane's own, or all rows.
static struct x_rows rows_in(const struct matmul_kernel *k, const float *x, int32_t n_cols,
                             void *scratch) {
    const int64_t head_bytes = k->extra == ACT_PAIRS ? 0 : sizeof(struct act_head);
    if (!k->quantize)
        return (struct x_rows){(char *)(uintptr_t)x, (int64_t)n_cols * (int64_t)sizeof *x};
    const int64_t row_bytes = count_blocks(n_cols) * (act_block_bytes(k->extra) + head_bytes);
    return (struct x_rows){scratch, (row_bytes + 64 + 63) / 64 * 64};
}

// Quantises several rows of x for all lanes, which meet afterwards.
static void quantize_rows(const struct lane *lane, const struct matmul_kernel *k, const float *x,
                          int64_t n_rows, int32_t n_cols, struct x_rows rows) {
    const int64_t n = n_rows * count_blocks(n_cols);
    for (int64_t blocks[2] = {0}; lane_take(lane, n, TAKE_BLOCKS, blocks);)
        quantize(x, n_cols, k, blocks, rows);
    lane_barrier(lane);
}

// Quantises a single row for this lane, which is cheaper than a barrier.
static struct x_rows quantize_own(const struct lane *lane, const struct matmul_kernel *k,
                                  const float *x, int32_t n_cols, struct x_rows rows) {
    const int64_t blocks[2] = {0, count_blocks(n_cols)};
    rows.base += lane->index * rows.stride;
    quantize(x, n_cols, k, blocks, rows);
    return rows;
}

// Tiles that are multiplied with the tokens first..end-1, and what is read after them.
struct piece {
    int64_t tile;
    int32_t n_tiles, first, end;
    struct sequel after;
};

static void run_piece(const struct matmul_args *a, const struct matmul_kernel *k, struct x_rows x,
                      struct piece p) {
    struct matmul_tokens tokens; // 3 KiB, which one token should not clear for each tile
    tokens.n = p.end - p.first;
    tokens.n_tiles = p.n_tiles;
    tokens.after = p.after;
    for (int32_t t = 0; t < tokens.n; t++) {
        tokens.places[t] = p.first + t;
        tokens.x[t] = x.base + (p.first + t) * x.stride;
    }
    k->tile(a, p.tile, &tokens);
}

// The first row of a tile, or the row behind the last one.
static int32_t row_of_tile(int32_t row_first, int32_t row_count, const struct matmul_kernel *k,
                           int64_t tile) {
    const int64_t row = row_count < k->tile_rows ? tile : tile * k->tile_rows;
    return row_first + (row < row_count ? (int32_t)row : row_count);
}

static const void *row_at(const void *weight, const struct matmul_kernel *k, int32_t n_cols,
                          int32_t row) {
    const uint64_t row_bytes = dtype_bytes(weight_dtype(k->type), (uint64_t)n_cols);
    return (const char *)weight + (uint64_t)row * row_bytes;
}

// The end of what the lane reads in sequence from a range on: of its share, or of a range of
// another's.
static int64_t end_of_sequence(const int64_t share[2], const int64_t range[2]) {
    return range[0] >= share[0] && range[0] < share[1] ? share[1] : range[1];
}

// Tokens of a group: as many as the kernel takes at once, or fewer to give every lane several
// tiles, or to keep their floats in the second-level cache.
static int32_t group_tokens(const struct matmul_args *a, const struct matmul_kernel *k,
                            int64_t n_tiles, int32_t n_lanes) {
    int32_t together = k->n_together;
    const bool whole_rows = !k->quantize && k->many_tiles == 1;
    const int64_t row_bytes = whole_rows ? a->n_cols * (int64_t)sizeof *a->x : 0;
    while (together >= 2 * LONG_GROUP && together * row_bytes > GROUP_BYTES) together /= 2;
    while (together > SMALL_GROUP &&
           n_tiles * count_groups(a->n_tokens, together) < (int64_t)TAKES * n_lanes) {
        together /= 2;
    }
    return together;
}

// Tiles that the kernel takes at once, of n_tiles.
static int32_t tiles_at_once(const struct matmul_kernel *k, int64_t n_tokens, int64_t n_tiles) {
    if (n_tokens < k->many_tokens) return 1;
    return n_tiles < k->many_tiles ? (int32_t)n_tiles : k->many_tiles;
}

// The same for a matmul: fewer where lanes would have too few portions to share.
static int32_t tiles_to_share(const struct matmul_args *a, const struct matmul_kernel *k,
                              int64_t n_tiles, int32_t n_lanes) {
    if (a->row_count < k->tile_rows) return 1;
    const int64_t n_groups = count_groups(a->n_tokens, k->n_together);
    int32_t at_once = tiles_at_once(k, a->n_tokens, n_tiles);
    while (at_once > 2 && n_tiles / at_once * n_groups < (int64_t)TAKES * n_lanes) at_once /= 2;
    return at_once;
}

// Tiles that are taken at once, and a group of tokens.
struct place {
    int64_t tile;
    int32_t group;
};

// The ith of all: bands of tiles one after the other, within a band group by group. In a band of
// one tile all groups pass each tile, so its weights are read once. Where the floats of all groups
// do not fit the caches, that would read them from memory for every tile.
static struct place place_of(int64_t i, int64_t n_tiles, int64_t n_groups, int64_t band) {
    const int64_t first = i / (band * n_groups) * band, j = i - first * n_groups;
    const int64_t width = n_tiles - first < band ? n_tiles - first : band;
    return (struct place){first + j % width, (int32_t)(j / width)};
}

// Portions of at_once tiles that a group of tokens passes before the next group comes.
static int64_t band_tiles(const struct matmul_args *a, const struct matmul_kernel *k,
                          int32_t at_once) {
    const int64_t row_bytes = a->n_cols * (int64_t)sizeof *a->x;
    if ((k->quantize && k->extra != ACT_PAIRS) || a->n_tokens * row_bytes <= BANDS_BYTES) return 1;
    const int64_t n = BAND_BYTES / (at_once * k->tile_rows * row_bytes);
    return n > 1 ? n : 1;
}

// The tiles that a lane takes at least, all of them to share them out at once. A tile of few tokens
// takes less than a microsecond, for which lanes should not meet.
static int64_t matmul_grain(const struct matmul_args *a, const struct matmul_kernel *k,
                            int32_t at_once, int64_t n_tiles, int32_t n_lanes) {
    const int64_t tile_weights = (int64_t)at_once * k->tile_rows * a->n_cols;
    const int64_t together = a->n_tokens < k->n_together ? a->n_tokens : k->n_together;
    const int64_t grain = 1 + TAKE_WEIGHTS * TILE_COST / (tile_weights * (TILE_COST + together));
    return n_tiles <= FEW_LOOKS * grain * n_lanes ? n_tiles : grain;
}

// How a matmul is divided among lanes: into n_portions of at_once tiles, times n_groups of tokens.
struct division {
    int64_t n_tiles, n_portions, band, grain; // see band_tiles and matmul_grain
    int32_t at_once, n_groups, together;      // together: tokens of a group
};

static struct division divide(const struct matmul_args *a, const struct matmul_kernel *k,
                              int32_t n_lanes) {
    struct division d = {.n_tiles = count_tiles(a->row_count, k)};
    d.at_once = tiles_to_share(a, k, d.n_tiles, n_lanes);
    d.n_portions = (d.n_tiles + d.at_once - 1) / d.at_once;
    d.together = group_tokens(a, k, d.n_portions, n_lanes);
    d.n_groups = (int32_t)count_groups(a->n_tokens, d.together);
    d.band = band_tiles(a, k, d.at_once);
    d.grain = matmul_grain(a, k, d.at_once, d.n_portions * d.n_groups, n_lanes);
    return d;
}

// Number i of all pieces.
static struct piece piece_at(const struct matmul_args *a, const struct division *d, int64_t i,
                             struct sequel after) {
    const struct place at = place_of(i, d->n_portions, d->n_groups, d->band);
    struct piece p = {
        .tile = at.tile * d->at_once, .first = at.group * d->together, .after = after};
    const int64_t left = d->n_tiles - p.tile, end = p.first + d->together;
    p.n_tiles = left < d->at_once ? (int32_t)left : d->at_once;
    p.end = end < a->n_tokens ? (int32_t)end : a->n_tokens;
    return p;
}

const void *matmul_first_weight(const struct lane *lane, const struct matmul_args *a,
                                const struct matmul_kernel *k) {
    const struct division d = divide(a, k, lane->count);
    int64_t share[2];
    lane_first_share(lane, d.n_portions * d.n_groups, d.grain, share);
    if (d.n_groups != 1 || share[0] == share[1]) return NULL;
    const int32_t row = row_of_tile(a->row_first, a->row_count, k, share[0] * d.at_once);
    return row_at(a->weight, k, a->n_cols, row);
}

void matmul_work(const struct lane *lane, const struct matmul_args *a,
                 const struct matmul_kernel *k) {
    struct x_rows x = rows_in(k, a->x, a->n_cols, a->scratch);
    bool own = k->quantize && a->n_tokens == 1;
    if (k->quantize && !own) quantize_rows(lane, k, a->x, a->n_tokens, a->n_cols, x);
    const struct division d = divide(a, k, lane->count);
    const int64_t n = d.n_portions * d.n_groups;
    int64_t share[2];
    lane_first_share(lane, n, d.grain, share);
    for (int64_t range[2] = {0}; lane_take(lane, n, d.grain, range);) {
        if (own) x = quantize_own(lane, k, a->x, a->n_cols, x);
        own = false;
        struct sequel after = {.weight = d.n_groups == 1 ? lane->next_weight : NULL};
        after.row =
            row_of_tile(a->row_first, a->row_count, k, end_of_sequence(share, range) * d.at_once);
        for (int64_t i = range[0]; i < range[1]; i++) run_piece(a, k, x, piece_at(a, &d, i, after));
    }
}

// Collects up to n_together pairs of an expert, from its first-th on; the result of a pair goes to
// the row of out with its number.
static void pick_pairs(const struct matmul_experts_args *a, struct x_rows x, int32_t expert,
                       int32_t first, struct matmul_tokens *out) {
    for (int32_t i = 0; i < out->n; i++) {
        const int32_t pair = expert_pair(a, expert, first + i);
        const int32_t row = a->x_per_pair ? pair : pair / a->n_used;
        out->places[i] = pair;
        out->x[i] = x.base + row * x.stride;
    }
}

static const void *expert_weight(const struct matmul_experts_args *a, int32_t expert) {
    return (const char *)a->weight + (uint64_t)expert_slot(a, expert) * a->slot_bytes;
}

// The sequel of the tiles before tile end of an expert: the next expert that has pairs here, or
// next if there is none or if other tiles of this one, another lane's, follow.
static struct sequel after_expert(const struct matmul_experts_args *a,
                                  const struct matmul_kernel *k, int32_t expert, int64_t end,
                                  const void *next) {
    const int32_t row = row_of_tile(a->row_first, a->row_count, k, end);
    if (row < a->row_first + a->row_count) return (struct sequel){next, row};
    while (++expert < a->n_experts && expert_n_pairs(a, expert) == 0) {
    }
    if (expert == a->n_experts) return (struct sequel){next, row};
    return (struct sequel){row_at(expert_weight(a, expert), k, a->n_cols, a->row_first), row};
}

// Multiplies tiles tiles[0]..tiles[1]-1 of one expert with all its pairs.
static void expert_tiles(const struct matmul_experts_args *a, const struct matmul_kernel *k,
                         struct x_rows x, int32_t expert, const int64_t tiles[2],
                         struct sequel after) {
    const struct matmul_args own = {
        .out = a->out,
        .weight = expert_weight(a, expert),
        .bias = a->bias ? a->bias + (int64_t)expert * a->n_rows : NULL,
        .n_cols = a->n_cols,
        .row_first = a->row_first,
        .row_count = a->row_count,
        .out_stride = a->out_stride,
    };
    int32_t n_pairs = expert_n_pairs(a, expert);
    struct matmul_tokens tokens;
    tokens.n = n_pairs;
    tokens.after = after;
    if (n_pairs <= k->n_together) pick_pairs(a, x, expert, 0, &tokens);
    for (int64_t tile = tiles[0]; tile < tiles[1]; tile += tokens.n_tiles) {
        tokens.n_tiles =
            a->row_count < k->tile_rows ? 1 : tiles_at_once(k, n_pairs, tiles[1] - tile);
        if (n_pairs <= k->n_together) {
            k->tile(&own, tile, &tokens);
            continue;
        }
        for (int32_t i = 0; i < n_pairs; i += k->n_together) {
            tokens.n = n_pairs - i < k->n_together ? n_pairs - i : k->n_together;
            pick_pairs(a, x, expert, i, &tokens);
            k->tile(&own, tile, &tokens);
        }
    }
}

// Cost of a tile of an expert, in tokens; 0 if it has no pairs here.
static int64_t tile_cost(const struct matmul_experts_args *a, const struct matmul_kernel *k,
                         int32_t expert) {
    int64_t n_pairs = expert_n_pairs(a, expert);
    return n_pairs + TILE_COST * count_groups(n_pairs, k->n_together);
}

// Number of an expert's n tiles that lie before place, if the first begins at start.
static int64_t tiles_before(int64_t place, int64_t start, int64_t cost, int64_t n) {
    int64_t tiles = place <= start ? 0 : (place - start) / cost;
    return tiles < n ? tiles : n;
}

// The sum of the costs of all tiles.
static int64_t experts_cost(const struct matmul_experts_args *a, const struct matmul_kernel *k) {
    int64_t total = 0;
    for (int32_t i = 0; i < a->n_experts; i++) total += tile_cost(a, k, i);
    return total * count_tiles(a->row_count, k);
}

const void *matmul_experts_first_weight(const struct lane *lane,
                                        const struct matmul_experts_args *a,
                                        const struct matmul_kernel *k) {
    const int64_t n_tiles = count_tiles(a->row_count, k);
    int64_t share[2], start = 0;
    lane_first_share(lane, experts_cost(a, k), EXPERTS_GRAIN, share);
    for (int32_t e = 0; e < a->n_experts && start < share[1]; e++) {
        const int64_t cost = tile_cost(a, k, e);
        const int64_t tile = cost ? tiles_before(share[0], start, cost, n_tiles) : n_tiles;
        start += cost * n_tiles;
        if (tile == n_tiles) continue;
        return row_at(expert_weight(a, e), k, a->n_cols,
                      row_of_tile(a->row_first, a->row_count, k, tile));
    }
    return NULL;
}

void matmul_experts_work(const struct lane *lane, const struct matmul_experts_args *a,
                         const struct matmul_kernel *k) {
    ASSERT(a->row_first >= 0 && a->row_first + a->row_count <= a->n_rows);
    int64_t n_x = a->x_per_pair ? (int64_t)a->n_tokens * a->n_used : a->n_tokens;
    struct x_rows x = rows_in(k, a->x, a->n_cols, a->scratch);
    bool own = k->quantize && n_x == 1;
    if (k->quantize && !own) quantize_rows(lane, k, a->x, n_x, a->n_cols, x);
    const int64_t n_tiles = count_tiles(a->row_count, k), total = experts_cost(a, k);
    int64_t start = 0, share[2];
    int32_t e = 0;
    lane_first_share(lane, total, EXPERTS_GRAIN, share);
    for (int64_t range[2] = {0}; lane_take(lane, total, EXPERTS_GRAIN, range);) {
        if (own) x = quantize_own(lane, k, a->x, a->n_cols, x);
        own = false;
        const int64_t end = end_of_sequence(share, range);
        if (range[0] < start) e = 0, start = 0; // of another lane's share
        for (; e < a->n_experts && start < range[1]; e++) {
            int64_t cost = tile_cost(a, k, e);
            if (cost == 0) continue;
            const int64_t tiles[2] = {tiles_before(range[0], start, cost, n_tiles),
                                      tiles_before(range[1], start, cost, n_tiles)};
            const struct sequel after =
                after_expert(a, k, e, tiles_before(end, start, cost, n_tiles), lane->next_weight);
            if (tiles[0] < tiles[1]) expert_tiles(a, k, x, e, tiles, after);
            if (start + cost * n_tiles > range[1]) break; // the next range begins here
            start += cost * n_tiles;
        }
    }
    lane_need_all(lane); // the costs come from what route chose
}

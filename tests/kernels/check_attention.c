/* check_attention.c: kv_store and attention against their definitions, with caches of every pair of
 * types, by row and in the order that the device reads fastest. Used by check_ops.c.
 */
#include "tests/kernels/check_attention.h"
#include "kernels/kv_page.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

// ---- kv_store -----------------------------------------------------------------------------------

struct kv_store_shape {
    uint64_t k_cache, v_cache, k, v, cache_rows;
    const int32_t *cache_rows_in_host;
    int32_t first, n_tokens, n_cols;
    enum dtype k_type, v_type;
    enum kv_order order;
    int32_t head_dim;
    bool keys_alone;
};

static void place_kv_store(union op_args *args, const void *shape, char *base) {
    const struct kv_store_shape *s = shape;
    int64_t skip = (int64_t)s->first * s->n_cols;
    args->kv_store = (struct kv_store_args){
        .k_cache = base + s->k_cache,
        .v_cache = base + s->v_cache,
        .k = floats_at(base, s->k) + skip,
        .v = s->keys_alone ? NULL : floats_at(base, s->v) + skip,
        .cache_rows = (const int32_t *)(base + s->cache_rows) + s->first,
        .n_tokens = s->n_tokens,
        .n_cols = s->n_cols,
        .k_type = s->k_type,
        .v_type = s->v_type,
        .order = s->order,
        .head_dim = s->head_dim,
    };
}

// The types of a cache.
static const char *const CACHE_NAMES[KV_TYPES] = {
#define KV_TYPE(NAME, name) #name,
#include "kernels/kv_types.def"
#undef KV_TYPE
};

static const char *const ORDER_NAMES[] = {[KV_BY_ROW] = "by row", [KV_BY_HEAD] = "by head"};

static bool has_blocks(enum dtype k_type, enum dtype v_type) {
    return dtype_find(k_type)->block_elements > 1 || dtype_find(v_type)->block_elements > 1;
}

static enum op_role cache_role(enum dtype type) {
    return type == DTYPE_F32 ? ROLE_F32 : type == DTYPE_F16 ? ROLE_F16 : ROLE_BITS;
}

// Marks a row of the cache at a place of the scene.
static void mark_row(uint8_t *roles, uint64_t cache, struct kv_view view, int32_t row) {
    char marks[HEAD_DIM_MAX * sizeof(float)];
    const uint64_t bytes = dtype_bytes(view.type, (uint64_t)view.head_dim);
    memset(marks, (int)cache_role(view.type), sizeof marks);
    view.base = (char *)roles + cache;
    for (int32_t h = 0; h < view.n_heads; h++) {
        if (view.order == KV_BY_HEAD)
            kv_copy_row(&view, row, h, marks, true);
        else
            op_mark(roles, cache + (uint64_t)kv_place(&view, row, h), bytes, cache_role(view.type));
    }
}

static void mark_kv_store(uint8_t *roles, const void *shape) {
    const struct kv_store_shape *s = shape;
    const int32_t n_heads = s->n_cols / s->head_dim;
    const struct kv_view k = kv_keys(s->order, NULL, s->k_type, n_heads, s->head_dim);
    const struct kv_view v = kv_values(s->order, NULL, s->v_type, n_heads, s->head_dim);
    for (int32_t t = s->first; t < s->first + s->n_tokens; t++) {
        const int32_t row = s->cache_rows_in_host[t];
        if (row < 0) continue;
        mark_row(roles, s->k_cache, k, row);
        if (!s->keys_alone) mark_row(roles, s->v_cache, v, row);
    }
}

// Values that are hard to round: ties, subnormal halves, too large ones, zeros. In blocks of 32:
// one whose scale is infinite as a half, ties, a scale that is subnormal, too small ones, one with
// an infinity, one with a NaN.
static void spice(float *x, int32_t n) {
    static const float HARD[] = {65519.9F, 65520, -1e9F,      6e-8F,
                                 2.98e-8F, -0.0F, 0x1.002p0F, 6.1e-5F};
    for (int32_t i = 0; i < n && i < 8; i++) x[i] = HARD[i];
    if (n < 192) return;
    for (int32_t i = 32; i < 64; i++) x[i] = (float)(i - 48) + 0.5F;
    x[40] = -127;
    for (int32_t i = 64; i < 96; i++) x[i] *= 1e-5F;
    for (int32_t i = 96; i < 128; i++) x[i] *= 1e-31F;
    x[130] = -INFINITY, x[180] = NAN;
}

void check_kv_store(struct op_check *c) {
    static const int32_t COLS[] = {192, 2, 1027}, BLOCK_COLS[] = {192, 32, 1056};
    static const int32_t HEAD_DIMS[] = {64, 2, 79}, BLOCK_HEAD_DIMS[] = {64, 32, 96};
    const enum kv_order best = c->rigs[0].device->info.kv_order;
    enum { N_ROWS = 3 * KV_PAGE };
    struct op_case k = {
        .op = OP_kv_store, .may_skip = true, .place = place_kv_store, .mark = mark_kv_store};
    enum { PAIRS = KV_TYPES * KV_TYPES };
    for (int i = 0; i < op_n_batches(c) * PAIRS; i++) {
        struct kv_store_shape s = {.n_tokens = op_batch(c, i / PAIRS)};
        s.k_type = kv_dtype((enum kv_type)(i % KV_TYPES));
        s.v_type = kv_dtype((enum kv_type)(i / KV_TYPES % KV_TYPES));
        int size = (i + i / KV_TYPES) % 3;
        const bool blocks = has_blocks(s.k_type, s.v_type);
        s.n_cols = blocks ? BLOCK_COLS[size] : COLS[size];
        s.head_dim = blocks ? BLOCK_HEAD_DIMS[size] : HEAD_DIMS[size];
        s.order = i % 2 ? best : KV_BY_ROW;
        op_describe(c, "%d tokens, %d columns, %s and %s, %s", s.n_tokens, s.n_cols,
                    dtype_name(s.k_type), dtype_name(s.v_type), ORDER_NAMES[s.order]);
        op_scene_clear(c);
        uint64_t n_cached = N_ROWS * (uint64_t)s.n_cols;
        s.k = op_scene_normal(c, (int64_t)s.n_tokens * s.n_cols, 3);
        s.v = op_scene_normal(c, (int64_t)s.n_tokens * s.n_cols, 3);
        spice(op_scene_at(c, s.k), s.n_cols);
        spice(op_scene_at(c, s.v), s.n_cols);
        s.cache_rows = op_scene_add(c, (uint64_t)s.n_tokens * 4);
        s.k_cache = op_scene_add(c, dtype_bytes(s.k_type, n_cached));
        s.v_cache = op_scene_add(c, dtype_bytes(s.v_type, n_cached));
        int32_t *cache_rows = op_scene_at(c, s.cache_rows), start = (int32_t)op_random(c, N_ROWS);
        for (int t = 0; t < s.n_tokens; t++) // 67 and 192 have no common factor: no row twice
            cache_rows[t] = t % 5 == 4 ? -1 - (int32_t)op_random(c, 9) : (start + 67 * t) % N_ROWS;
        s.cache_rows_in_host = cache_rows;
        op_run_whole(c, &k, &s);
        s.first = s.n_tokens / 2, s.n_tokens = 1;
        s.keys_alone = i % 2;
        op_run_part(c, &k, &s);
    }
}

// ---- attention ----------------------------------------------------------------------------------

enum {
    N_SEQUENCES = 3,
    MAX_PAGES = 5, // of a sequence, but FAR_PAGES where tokens are far apart
    N_KEYS = 300,
    N_PAGES = N_SEQUENCES * MAX_PAGES, // of the caches
    FAR_PAGES = 3000
};

struct attention_shape {
    uint64_t out, q, k_cache, v_cache, pages, positions, sequences, sinks;
    int32_t first;
    bool has_sinks;
    struct attention_args args; // without its pointers
};

static void place_attention(union op_args *args, const void *shape, char *base) {
    const struct attention_shape *s = shape;
    struct attention_args *a = &args->attention;
    *a = s->args;
    int64_t skip = (int64_t)s->first * a->n_heads * a->head_dim;
    a->out = (float *)(base + s->out) + skip;
    a->q = floats_at(base, s->q) + skip;
    a->k_cache = base + s->k_cache;
    a->v_cache = base + s->v_cache;
    a->pages = (const int32_t *)(base + s->pages);
    a->positions = (const int32_t *)(base + s->positions) + s->first;
    a->sequences = (const int32_t *)(base + s->sequences) + s->first;
    if (s->has_sinks) a->sinks = floats_at(base, s->sinks);
}

static void mark_attention(uint8_t *roles, const void *shape) {
    const struct attention_shape *s = shape;
    uint64_t row_bytes = (uint64_t)s->args.n_heads * (uint64_t)s->args.head_dim * 4;
    op_mark(roles, s->out + (uint64_t)s->first * row_bytes, (uint64_t)s->args.n_tokens * row_bytes,
            ROLE_F32);
}

// Stores a row of both caches.
static void store_row(struct op_check *c, const struct attention_shape *s, int32_t row,
                      const float *k, const float *v) {
    const struct attention_args *a = &s->args;
    const struct kv_store_args store = {.k_cache = op_scene_at(c, s->k_cache),
                                        .v_cache = op_scene_at(c, s->v_cache),
                                        .k = k,
                                        .v = v,
                                        .cache_rows = &row,
                                        .n_tokens = 1,
                                        .n_cols = a->n_kv_heads * a->head_dim,
                                        .k_type = a->k_type,
                                        .v_type = a->v_type,
                                        .order = a->order,
                                        .head_dim = a->head_dim};
    c->definition.kv_store(&(struct lane){.count = 1}, &store);
}

// Fills a row of both caches, whose rows were all NaN, unless that was done before. One value is no
// number if spoilt.
static void fill_row(struct op_check *c, const struct attention_shape *s, int32_t row, float *k,
                     float *v, bool spoilt) {
    const struct attention_args *a = &s->args;
    const struct kv_view keys =
        kv_keys(a->order, op_scene_at(c, s->k_cache), a->k_type, a->n_kv_heads, a->head_dim);
    const int32_t n_cols = a->n_kv_heads * a->head_dim;
    uint16_t probe;
    memcpy(&probe, keys.base + kv_place(&keys, row, 0), sizeof probe);
    if (probe != 0xffff) return; // filled for another token
    op_fill_normal(c, k, n_cols, 1);
    op_fill_normal(c, v, n_cols, 1);
    if (spoilt) v[op_random(c, (uint32_t)n_cols)] = NAN;
    store_row(c, s, row, k, v);
}

// Adds caches in which only the rows that some token sees hold numbers; all others stay NaN.
static void lay_caches(struct op_check *c, struct attention_shape *s) {
    const uint64_t n_cols = (uint64_t)s->args.n_kv_heads * (uint64_t)s->args.head_dim;
    const uint64_t n = N_PAGES * KV_PAGE * n_cols;
    s->k_cache = op_scene_add(c, dtype_bytes(s->args.k_type, n));
    s->v_cache = op_scene_add(c, dtype_bytes(s->args.v_type, n));
    const uint64_t k = op_scene_add(c, n_cols * 4), v = op_scene_add(c, n_cols * 4);
    const int32_t *pages = op_scene_at(c, s->pages);
    const int32_t *positions = op_scene_at(c, s->positions);
    const int32_t *sequences = op_scene_at(c, s->sequences);
    // A value that is no number is lost to no token that sees it, and reaches no other one. Kernels
    // of GPUs are not held to that: they multiply values that a token does not see by zero.
    const int32_t n_tokens = s->args.n_tokens;
    const bool spoils = c->rigs[0].device->info.is_host && op_random(c, 3) == 0;
    const int32_t spoilt = spoils ? (int32_t)op_random(c, (uint32_t)n_tokens) : -1;
    for (int32_t t = 0; t < n_tokens; t++) {
        int32_t window = s->args.window > 0 ? s->args.window : INT32_MAX / 2;
        int32_t key = positions[t] - window + 1 > 0 ? positions[t] - window + 1 : 0;
        for (; key <= positions[t]; key++) {
            const int32_t page = pages[sequences[t] * s->args.max_pages + key / KV_PAGE];
            fill_row(c, s, page * KV_PAGE + key % KV_PAGE, op_scene_at(c, k), op_scene_at(c, v),
                     t == spoilt && key == positions[t]);
        }
    }
}

// Tokens anywhere, or two prompts: neighbouring positions of one sequence, then of another, which
// goes on at the next position, so that the sequence alone tells them apart.
static void place_tokens(struct op_check *c, int32_t n_tokens, int32_t *positions,
                         int32_t *sequences) {
    const bool prompts = op_random(c, 2) == 0;
    const int32_t n_first = (n_tokens + 1) / 2,
                  start = (int32_t)op_random(c, (uint32_t)(N_KEYS - n_tokens));
    for (int32_t t = 0; t < n_tokens; t++) {
        positions[t] = prompts ? start + t : (int32_t)op_random(c, N_KEYS);
        sequences[t] = prompts ? t / n_first : (int32_t)op_random(c, N_SEQUENCES);
    }
    if (!prompts && n_tokens > 2) positions[1] = 0, positions[2] = KV_PAGE - 1;
}

// Neighbouring tokens of one sequence whose positions may be hundreds of segments apart.
static void place_far(struct op_check *c, int32_t n_tokens, int32_t *positions,
                      int32_t *sequences) {
    for (int32_t t = 0; t < n_tokens; t++) {
        positions[t] = (int32_t)op_random(c, FAR_PAGES * KV_PAGE);
        sequences[t] = 0;
    }
}

static struct attention_shape lay_attention(struct op_check *c, struct attention_args args) {
    struct attention_shape s = {.args = args};
    const int32_t n_pages = N_SEQUENCES * args.max_pages;
    int64_t n_out = (int64_t)args.n_tokens * args.n_heads * args.head_dim;
    op_scene_clear(c);
    s.q = op_scene_normal(c, n_out, 1.5F);
    // A query that is no number makes no others so, and is not lost.
    ((float *)op_scene_at(c, s.q))[op_random(c, (uint32_t)args.head_dim)] = NAN;
    s.pages = op_scene_add(c, (uint64_t)n_pages * 4);
    s.positions = op_scene_add(c, (uint64_t)args.n_tokens * 4);
    s.sequences = op_scene_add(c, (uint64_t)args.n_tokens * 4);
    int32_t *pages = op_scene_at(c, s.pages), *positions = op_scene_at(c, s.positions);
    int32_t *sequences = op_scene_at(c, s.sequences);
    for (int i = 0; i < n_pages; i++) pages[i] = i * 7 % N_PAGES; // shuffled
    args.max_pages > MAX_PAGES ? place_far(c, args.n_tokens, positions, sequences)
                               : place_tokens(c, args.n_tokens, positions, sequences);
    lay_caches(c, &s);
    s.sinks = op_scene_normal(c, args.n_heads, 3); // some above all scores, some below
    s.out = op_scene_add(c, (uint64_t)n_out * 4);
    return s;
}

static void check_attention_types(struct op_check *c, enum dtype k_type, enum dtype v_type,
                                  enum kv_order order) {
    static const int32_t HEADS[][3] = {{9, 3, 64},  {6, 2, 128},  {8, 1, 80},
                                       {2, 1, 256}, {4, 1, 192},  {4, 2, 2},
                                       {7, 1, 50},  {20, 1, 576}, {2, 2, 390}};
    enum { N_HEADS = sizeof HEADS / sizeof *HEADS };
    static const int32_t WINDOWS[] = {0, 100, 0, 1};
    bool exact = k_type == DTYPE_F32 && v_type == DTYPE_F32, blocks = has_blocks(k_type, v_type);
    struct op_case k = {.op = OP_attention,
                        .limit = exact ? 1e-6 : 5e-4,
                        .may_be_nan = true,
                        .place = place_attention,
                        .mark = mark_attention};
    // Keys and values are read apart: the most tokens are for two caches of one type alone.
    const int32_t n_batches = op_n_batches(c) - (k_type != v_type && c->max_tokens > 7);
    for (int i = 0; i < n_batches * N_HEADS; i++) {
        const int32_t *heads = HEADS[i % N_HEADS],
                      head_dim = blocks ? (heads[2] + 31) & ~31 : heads[2];
        struct attention_args args = {.n_tokens = op_batch(c, i / N_HEADS),
                                      .n_heads = heads[0],
                                      .n_kv_heads = heads[1],
                                      .head_dim = head_dim,
                                      .max_pages = MAX_PAGES,
                                      .window = WINDOWS[op_random(c, 4)],
                                      .k_type = k_type,
                                      .v_type = v_type,
                                      .order = order,
                                      .scale = 1 / sqrtf((float)head_dim),
                                      .softcap = op_random(c, 3) ? 0 : 2.5F};
        const bool has_sinks = op_random(c, 3) == 0;
        op_describe(c, "%d tokens, heads %d/%d of %d, window %d, softcap %g, sinks %d, %s",
                    args.n_tokens, args.n_heads, args.n_kv_heads, args.head_dim, args.window,
                    args.softcap, has_sinks, ORDER_NAMES[args.order]);
        struct attention_shape s = lay_attention(c, args);
        s.has_sinks = has_sinks;
        op_run_whole(c, &k, &s);
        s.first = args.n_tokens / 3, s.args.n_tokens = 1;
        op_run_part(c, &k, &s);
        s.first = args.n_tokens / 2, s.args.n_tokens = (args.n_tokens + 3) / 4;
        op_run_part(c, &k, &s);
    }
}

// Keys of a block of far tokens are more segments than the room of a lane takes.
static void check_far_tokens(struct op_check *c, enum dtype type) {
    struct op_case k = {.op = OP_attention,
                        .limit = type == DTYPE_F32 ? 1e-6 : 5e-4,
                        .may_be_nan = true,
                        .place = place_attention,
                        .mark = mark_attention};
    for (int i = 0; i < 2 * op_n_batches(c); i++) {
        const struct attention_args args = {.n_tokens = op_batch(c, i / 2),
                                            .n_heads = 8,
                                            .n_kv_heads = 8,
                                            .head_dim = 64,
                                            .max_pages = FAR_PAGES,
                                            .window = i % 2 ? 1 : 300,
                                            .k_type = type,
                                            .v_type = type,
                                            .order = KV_BY_ROW,
                                            .scale = 0.125F};
        op_describe(c, "%d tokens far apart, window %d", args.n_tokens, args.window);
        const struct attention_shape s = lay_attention(c, args);
        op_run_whole(c, &k, &s);
    }
}

enum { FEW_KV_HEADS = 2, FEW_DIMS = 64, FEW_COLS = FEW_KV_HEADS * FEW_DIMS };

// Lays out the last tokens of one sequence, of which the caches have n_rows rows and no more.
static struct attention_shape lay_sequence(struct op_check *c, struct attention_args args,
                                           int32_t n_rows) {
    args.n_heads = 4 * FEW_KV_HEADS;
    args.n_kv_heads = FEW_KV_HEADS;
    args.head_dim = FEW_DIMS;
    args.max_pages = (n_rows + KV_PAGE - 1) / KV_PAGE;
    args.scale = 0.125F;
    struct attention_shape s = {.args = args};
    const int64_t n_out = (int64_t)args.n_tokens * args.n_heads * args.head_dim;
    op_scene_clear(c);
    s.q = op_scene_normal(c, n_out, 1.5F);
    s.pages = op_scene_add(c, (uint64_t)args.max_pages * 4);
    s.positions = op_scene_add(c, (uint64_t)args.n_tokens * 4);
    s.sequences = op_scene_add(c, (uint64_t)args.n_tokens * 4);
    s.k_cache = op_scene_add(c, dtype_bytes(args.k_type, (uint64_t)n_rows * FEW_COLS));
    s.v_cache = op_scene_add(c, dtype_bytes(args.v_type, (uint64_t)n_rows * FEW_COLS));
    s.sinks = op_scene_normal(c, args.n_heads, 3);
    s.out = op_scene_add(c, (uint64_t)n_out * 4);
    int32_t *pages = op_scene_at(c, s.pages), *positions = op_scene_at(c, s.positions);
    memset(op_scene_at(c, s.sequences), 0, (size_t)args.n_tokens * 4);
    for (int32_t i = 0; i < args.max_pages; i++) pages[i] = i;
    for (int32_t t = 0; t < args.n_tokens; t++) positions[t] = n_rows > t ? n_rows - 1 - t : 0;
    return s;
}

// Fills a row of both caches; element 0 of each key is first, unless that is NaN.
static void fill_key(struct op_check *c, const struct attention_shape *s, int32_t row,
                     float first) {
    float k[FEW_COLS], v[FEW_COLS];
    op_fill_normal(c, k, FEW_COLS, 1);
    op_fill_normal(c, v, FEW_COLS, 1);
    for (int32_t i = 0; i < FEW_COLS && !isnan(first); i += FEW_DIMS) k[i] = first;
    store_row(c, s, row, k, v);
}

static double attention_limit(enum dtype k_type, enum dtype v_type) {
    return k_type == DTYPE_F32 && v_type == DTYPE_F32 ? 1e-6 : 5e-4;
}

// Caches by row that end behind the last key that is seen: to read the next row touches a closed
// page in half of the cases, as chance decides where an operand lies. 15 keys are all but one of a
// group of any level.
static void check_last_keys(struct op_check *c, enum dtype k_type, enum dtype v_type) {
    static const int32_t N_SEEN[] = {1, 15, 37, KV_PAGE + 15};
    struct op_case k = {.op = OP_attention,
                        .limit = attention_limit(k_type, v_type),
                        .place = place_attention,
                        .mark = mark_attention};
    for (int i = 0; i < 4 * 8; i++) {
        const int32_t n_seen = N_SEEN[i % 4];
        const struct attention_args args = {.n_tokens = i / 4 % 2 ? 1 : op_batch(c, 2),
                                            .k_type = k_type,
                                            .v_type = v_type,
                                            .order = KV_BY_ROW};
        op_describe(c, "%d tokens that see all of %d keys", args.n_tokens, n_seen);
        const struct attention_shape s = lay_sequence(c, args, n_seen);
        for (int32_t row = 0; row < n_seen; row++) fill_key(c, &s, row, NAN);
        op_run_whole(c, &k, &s);
    }
}

// Scores that rise or fall by hundreds from page to page, so that weights by any but the largest
// one overflow or are all zero, and pages of keys, and all of a segment of four, whose scores are
// minus infinity: they have no weight, wherever they stand. Where a page's are infinite, those of
// the first head are plus infinity: its answer is no number, and no other head's becomes so. Each
// token sees a key of the last page.
static void check_steep_pages(struct op_check *c, enum dtype k_type, enum dtype v_type,
                              enum kv_order order) {
    enum { PAGES = 5, N_ROWS = 300, MOST = N_ROWS - (PAGES - 1) * KV_PAGE, STEEP = 2, CASES = 5 };
    // Steps of 300: weights are 0 beside them, where 100 gives subnormal ones, which are 0 with
    // AVX2 and not with AVX-512. That rounds ties of products otherwise.
    static const float SCORES[CASES][PAGES] = {
        {-300, 0, 300, 600, 900},
        {900, 600, 300, 0, -300},
        {-INFINITY, -INFINITY, 0, 300, -INFINITY},
        {0, -INFINITY, 300, 0, -INFINITY},
        {-INFINITY, -INFINITY, -INFINITY, -INFINITY, 0},
    };
    struct op_case k = {.op = OP_attention,
                        .limit = attention_limit(k_type, v_type),
                        .place = place_attention,
                        .mark = mark_attention};
    const int n_cases = has_blocks(k_type, k_type) ? STEEP : CASES;
    const int32_t most = op_batch(c, op_n_batches(c) - 1),
                  n_tokens[] = {1, op_batch(c, 2), most < MOST ? most : MOST};
    for (int i = 0; i < 6 * n_cases; i++) {
        const struct attention_args args = {
            .n_tokens = n_tokens[i % 3], .k_type = k_type, .v_type = v_type, .order = order};
        op_describe(c, "%d tokens, steep pages %d, sinks %d, %s", args.n_tokens, i / 6, i / 3 % 2,
                    ORDER_NAMES[order]);
        struct attention_shape s = lay_sequence(c, args, PAGES * KV_PAGE);
        int32_t *positions = op_scene_at(c, s.positions);
        float *q = op_scene_at(c, s.q);
        for (int32_t t = 0; t < args.n_tokens; t++) positions[t] = N_ROWS - args.n_tokens + t;
        k.may_be_nan = i / 6 >= STEEP;
        for (int32_t h = 0; h < args.n_tokens * s.args.n_heads; h++, q += FEW_DIMS) {
            memset(q, 0, FEW_DIMS / 2 * sizeof *q); // one block, in which a key has large numbers
            q[0] = (k.may_be_nan && h == 0 ? -1 : 1) / s.args.scale;
        }
        for (int32_t row = 0; row < N_ROWS; row++)
            fill_key(c, &s, row, SCORES[i / 6][row / KV_PAGE]);
        s.has_sinks = i / 3 % 2;
        op_run_whole(c, &k, &s);
    }
}

// The order of a cache changes no bits.
static void check_orders(struct op_check *c, enum dtype k_type, enum dtype v_type) {
    const enum kv_order best = c->rigs[0].device->info.kv_order;
    check_attention_types(c, k_type, v_type, KV_BY_ROW);
    check_steep_pages(c, k_type, v_type, KV_BY_ROW);
    if (best == KV_BY_ROW) return;
    const uint64_t bits = c->bits;
    c->bits = 0;
    c->random = c->seed; // the same cases
    check_attention_types(c, k_type, v_type, best);
    check_steep_pages(c, k_type, v_type, best);
    if (c->bits != bits) op_fail(c, "other bits than by row");
}

_Static_assert(KV_TYPES *KV_TYPES <= (int)WEIGHT_COUNT, "level_bits has a place for each line");

void check_attention(struct op_check *c) {
    for (int i = 0; i < KV_TYPES * KV_TYPES; i++) { // a line each
        const int k = i / KV_TYPES, v = i % KV_TYPES;
        char label[24];
        (void)snprintf(label, sizeof label, k == v ? "%s" : "%s/%s", CACHE_NAMES[k],
                       CACHE_NAMES[v]);
        if (i > 0) op_line_end(c);
        op_line_start(c, OP_attention, label);
        check_orders(c, kv_dtype((enum kv_type)k), kv_dtype((enum kv_type)v));
        check_last_keys(c, kv_dtype((enum kv_type)k), kv_dtype((enum kv_type)v));
        if (k == v && c->rigs[0].device->info.is_host)
            check_far_tokens(c, kv_dtype((enum kv_type)k));
        op_compare_levels(c, i);
    }
}

/* check_state.c: short_conv, delta_rule and mamba_scan against their definitions, for sequences
 * that begin, go on, are mixed, or hand their state on through memory after each token; and
 * split_rows. Used by check_ops.c.
 */
#include "tests/kernels/check_state.h"

#include <math.h>

// States 0..N_SEQUENCES-1 exist before the call; the others are NaN until a token writes them.
enum { N_SEQUENCES = 3, N_STATES = 2 * N_SEQUENCES + 2 };

// How the tokens of a call are chained.
enum chain {
    CHAIN_NEW,      // one sequence, from no state to state LAST
    CHAIN_ON,       // one sequence, from state 0 to state LAST
    CHAIN_IN_PLACE, // one sequence, from state 0 to state 0
    CHAIN_MIXED,    // three sequences; the second is new
    CHAIN_MEMORY, // as CHAIN_ON, but every token's state goes to another place than the last one's
    CHAINS
};
enum { LAST = N_SEQUENCES, OTHER = 2 * N_SEQUENCES };

struct state_shape {
    uint64_t out, states, x, steps[CHAINS];
    uint64_t weight, bias;            // of short_conv
    uint64_t d;                       // of mamba_scan, with alpha as its dt
    uint64_t alpha, beta, a, dt_bias; // of delta_rule
    enum chain chain;
    bool is_begin; // of the whole: its states are those of an earlier token
    int32_t n_tokens;
    uint64_t row, state; // floats of a row of out, and of a state
    int32_t n_cols, x_stride, n_taps, n_heads, n_key_heads, head_dim, n_state;
    bool has_bias, is_plain;
    enum key_order order;
};

static void fill_steps(struct op_check *c, int32_t *steps, enum chain chain, int32_t n_tokens) {
    int32_t from[N_SEQUENCES] = {0, 1, 2};
    if (chain == CHAIN_NEW) from[0] = -1;
    if (chain == CHAIN_MIXED) from[1] = -1;
    for (int32_t t = 0; t < n_tokens; t++) {
        const int32_t s = chain == CHAIN_MIXED ? (int32_t)op_random(c, N_SEQUENCES) : 0;
        int32_t to = LAST + s;
        if (chain == CHAIN_IN_PLACE) to = 0;
        if (chain == CHAIN_MEMORY && t + 1 < n_tokens) to = OTHER + t % 2;
        steps[2 * t] = from[s];
        steps[2 * t + 1] = from[s] = to;
    }
}

// Adds what both ops have. The whole comes last, so that the steps of all its parts are there.
static void lay_state(struct op_check *c, struct state_shape *s, int64_t x_row) {
    s->x = op_scene_normal(c, s->n_tokens * x_row, 1);
    s->states = op_scene_add(c, N_STATES * s->state * 4);
    op_fill_normal(c, op_scene_at(c, s->states), (int64_t)(N_SEQUENCES * s->state), 0.5F);
    s->out = op_scene_add(c, (uint64_t)s->n_tokens * s->row * 4);
    for (int chain = 0; chain < CHAINS; chain++) {
        s->steps[chain] = op_scene_add(c, (uint64_t)s->n_tokens * 8);
        fill_steps(c, op_scene_at(c, s->steps[chain]), (enum chain)chain, s->n_tokens);
    }
}

static void mark_one(uint8_t *roles, const struct state_shape *s, int32_t state,
                     enum op_role role) {
    op_mark(roles, s->states + (uint64_t)state * s->state * 4, s->state * 4, role);
}

static void mark_state(uint8_t *roles, const void *shape) {
    const struct state_shape *s = shape;
    const int32_t state = s->chain == CHAIN_IN_PLACE ? 0 : LAST;
    op_mark(roles, s->out, (uint64_t)s->n_tokens * s->row * 4, ROLE_F32);
    for (int i = 0; i < 2 && s->chain == CHAIN_MEMORY; i++)
        mark_one(roles, s, OTHER + i, ROLE_SCRATCH);
    for (int i = 0; i < (s->chain == CHAIN_MIXED ? N_SEQUENCES : 1); i++)
        mark_one(roles, s, state + i, s->is_begin ? ROLE_SCRATCH : ROLE_F32);
}

// Runs all chains of the shape. Mixed sequences may not all have a token, so what the definition
// leaves as NaN may stay so.
static void run_chains(struct op_check *c, struct op_case *k, struct state_shape *s) {
    for (int chain = 0; chain < CHAIN_MEMORY; chain++) {
        struct state_shape part = *s;
        part.chain = s->chain = (enum chain)chain;
        k->may_be_nan = k->of_many = chain == CHAIN_MIXED;
        op_run_whole(c, k, s);
        part.is_begin = true;
        part.n_tokens = (s->n_tokens + 1) / 2;
        op_run_part(c, k, &part);
        if (chain != CHAIN_ON) continue;
        part = *s;
        part.chain = CHAIN_MEMORY;
        op_run_part(c, k, &part);
    }
}

// ---- split_rows ---------------------------------------------------------------------------------

struct split_rows_shape {
    uint64_t first_part, second_part, x;
    int32_t first, n_rows, n_first, n_second, first_stride, second_stride;
    bool drops; // the second part
};

static void place_split_rows(union op_args *args, const void *shape, char *base) {
    const struct split_rows_shape *s = shape;
    const int64_t row = s->first;
    float *second = (float *)(base + s->second_part) + row * s->second_stride;
    args->split_rows =
        (struct split_rows_args){.first = (float *)(base + s->first_part) + row * s->first_stride,
                                 .second = s->drops ? NULL : second,
                                 .x = floats_at(base, s->x) + row * (s->n_first + s->n_second),
                                 .n_rows = s->n_rows,
                                 .n_first = s->n_first,
                                 .n_second = s->n_second,
                                 .first_stride = s->first_stride,
                                 .second_stride = s->second_stride};
}

static void mark_split_rows(uint8_t *roles, const void *shape) {
    const struct split_rows_shape *s = shape;
    for (uint64_t i = (uint64_t)s->first; i < (uint64_t)(s->first + s->n_rows); i++) {
        op_mark(roles, s->first_part + i * (uint64_t)s->first_stride * 4, (uint64_t)s->n_first * 4,
                ROLE_F32);
        if (!s->drops)
            op_mark(roles, s->second_part + i * (uint64_t)s->second_stride * 4,
                    (uint64_t)s->n_second * 4, ROLE_F32);
    }
}

void check_split_rows(struct op_check *c) {
    static const int32_t COLS[][2] = {{1, 1}, {67, 67}, {1100, 1100}, {3, 300}, {512, 64}, {9, 0}};
    enum { SIZES = sizeof COLS / sizeof *COLS };
    struct op_case k = {.op = OP_split_rows, .place = place_split_rows, .mark = mark_split_rows};
    for (int i = 0; i < op_n_batches(c) * SIZES; i++) {
        struct split_rows_shape s = {.n_rows = op_batch(c, i / SIZES),
                                     .n_first = COLS[i % SIZES][0],
                                     .n_second = COLS[i % SIZES][1],
                                     .drops = i % 4 == 3};
        s.first_stride = s.n_first + i % 3;
        s.second_stride = s.n_second + i % 2 * 5;
        op_describe(c, "%d rows, %d and %d columns, strides %d and %d, drops %d", s.n_rows,
                    s.n_first, s.n_second, s.first_stride, s.second_stride, s.drops);
        op_scene_clear(c);
        s.x = op_scene_normal(c, (int64_t)s.n_rows * (s.n_first + s.n_second), 1);
        s.first_part = op_scene_add(c, (uint64_t)s.n_rows * (uint64_t)s.first_stride * 4);
        s.second_part = op_scene_add(c, (uint64_t)s.n_rows * (uint64_t)s.second_stride * 4 + 4);
        op_run_whole(c, &k, &s);
        s.first = s.n_rows / 2, s.n_rows = 1;
        op_run_part(c, &k, &s);
    }
}

// ---- short_conv ---------------------------------------------------------------------------------

static void place_short_conv(union op_args *args, const void *shape, char *base) {
    const struct state_shape *s = shape;
    args->short_conv =
        (struct short_conv_args){.out = (float *)(base + s->out),
                                 .states = (float *)(base + s->states),
                                 .x = floats_at(base, s->x),
                                 .weight = floats_at(base, s->weight),
                                 .bias = s->has_bias ? floats_at(base, s->bias) : NULL,
                                 .steps = (const int32_t *)(base + s->steps[s->chain]),
                                 .n_tokens = s->n_tokens,
                                 .n_cols = s->n_cols,
                                 .x_stride = s->x_stride,
                                 .n_taps = s->n_taps,
                                 .is_plain = s->is_plain};
}

void check_short_conv(struct op_check *c) {
    static const struct {
        int32_t n_cols, n_taps;
    } SIZES[] = {{1, 2}, {7, 4}, {64, 4}, {200, 4}, {67, 3}, {33, CONV_TAPS_MAX}, {72, 3}};
    struct op_case k = {
        .op = OP_short_conv, .limit = 1e-6, .place = place_short_conv, .mark = mark_state};
    for (int i = 0; i < op_n_batches(c) * 7; i++) {
        struct state_shape s = {.n_tokens = op_batch(c, i / 7),
                                .n_cols = SIZES[i % 7].n_cols,
                                .x_stride = SIZES[i % 7].n_cols + i % 3,
                                .n_taps = SIZES[i % 7].n_taps,
                                .has_bias = i % 2,
                                .is_plain = i % 4 > 1};
        op_describe(c, "%d tokens, %d columns, stride %d, %d taps, bias %d, plain %d", s.n_tokens,
                    s.n_cols, s.x_stride, s.n_taps, s.has_bias, s.is_plain);
        op_scene_clear(c);
        s.row = (uint64_t)s.n_cols;
        s.state = s.row * (uint64_t)(s.n_taps - 1);
        s.weight = op_scene_normal(c, (int64_t)s.n_cols * s.n_taps, 1);
        s.bias = op_scene_normal(c, s.n_cols, 1);
        lay_state(c, &s, s.x_stride);
        run_chains(c, &k, &s);
    }
}

// ---- delta_rule ---------------------------------------------------------------------------------

static void place_delta_rule(union op_args *args, const void *shape, char *base) {
    const struct state_shape *s = shape;
    args->delta_rule =
        (struct delta_rule_args){.out = (float *)(base + s->out),
                                 .states = (float *)(base + s->states),
                                 .qkv = floats_at(base, s->x),
                                 .alpha = floats_at(base, s->alpha),
                                 .beta = floats_at(base, s->beta),
                                 .a = floats_at(base, s->a),
                                 .dt_bias = floats_at(base, s->dt_bias),
                                 .steps = (const int32_t *)(base + s->steps[s->chain]),
                                 .n_tokens = s->n_tokens,
                                 .n_heads = s->n_heads,
                                 .n_key_heads = s->n_key_heads,
                                 .head_dim = s->head_dim,
                                 .order = s->order,
                                 .eps = 1e-6F};
}

// Adds the operands. Decays lie between 0 and 1, some of them at the ends; a key of zeros stays
// one.
static void lay_delta_rule(struct op_check *c, struct state_shape *s) {
    const int64_t n_gates = (int64_t)s->n_tokens * s->n_heads;
    const int64_t x_row = (int64_t)(2 * s->n_key_heads + s->n_heads) * s->head_dim;
    op_scene_clear(c);
    s->row = (uint64_t)s->n_heads * (uint64_t)s->head_dim;
    s->state = s->row * (uint64_t)s->head_dim;
    s->alpha = op_scene_normal(c, n_gates, 3);
    s->beta = op_scene_normal(c, n_gates, 3);
    s->a = op_scene_normal(c, s->n_heads, 2);
    s->dt_bias = op_scene_normal(c, s->n_heads, 1);
    float *a = op_scene_at(c, s->a), *alpha = op_scene_at(c, s->alpha);
    for (int32_t h = 0; h < s->n_heads; h++) a[h] = -fabsf(a[h]);
    alpha[0] = 40;
    alpha[n_gates - 1] = -40;
    lay_state(c, s, x_row);
    float *x = op_scene_at(c, s->x);
    for (int32_t i = 0; i < s->head_dim && s->n_tokens > 4; i++)
        x[4 * x_row + s->n_key_heads * s->head_dim + i] = 0;
}

void check_delta_rule(struct op_check *c) {
    static const struct {
        int32_t n_heads, n_key_heads, head_dim;
        enum key_order order;
    } SIZES[] = {{1, 1, 1, KEYS_TILED},    {4, 2, 12, KEYS_TILED}, {6, 2, 8, KEYS_GROUPED},
                 {6, 2, 40, KEYS_TILED},   {3, 3, 64, KEYS_TILED}, {2, 1, 128, KEYS_GROUPED},
                 {1, 1, 256, KEYS_GROUPED}};
    struct op_case k = {
        .op = OP_delta_rule, .limit = 1e-6, .place = place_delta_rule, .mark = mark_state};
    for (int i = 0; i < op_n_batches(c) * 7; i++) {
        struct state_shape s = {.n_tokens = op_batch(c, i / 7),
                                .n_heads = SIZES[i % 7].n_heads,
                                .n_key_heads = SIZES[i % 7].n_key_heads,
                                .head_dim = SIZES[i % 7].head_dim,
                                .order = SIZES[i % 7].order};
        op_describe(c, "%d tokens, %d heads, %d key heads of %d", s.n_tokens, s.n_heads,
                    s.n_key_heads, s.head_dim);
        lay_delta_rule(c, &s);
        run_chains(c, &k, &s);
    }
}

// ---- mamba_scan ---------------------------------------------------------------------------------

static void place_mamba_scan(union op_args *args, const void *shape, char *base) {
    const struct state_shape *s = shape;
    args->mamba_scan =
        (struct mamba_scan_args){.out = (float *)(base + s->out),
                                 .states = (float *)(base + s->states),
                                 .x = floats_at(base, s->x),
                                 .dt = floats_at(base, s->alpha),
                                 .a = floats_at(base, s->a),
                                 .d = floats_at(base, s->d),
                                 .dt_bias = floats_at(base, s->dt_bias),
                                 .steps = (const int32_t *)(base + s->steps[s->chain]),
                                 .n_tokens = s->n_tokens,
                                 .n_heads = s->n_heads,
                                 .n_groups = s->n_key_heads,
                                 .head_dim = s->head_dim,
                                 .n_state = s->n_state,
                                 .dt_stride = s->x_stride};
}

// Adds the operands. Decays lie between 0 and 1, some of them at the ends.
static void lay_mamba_scan(struct op_check *c, struct state_shape *s) {
    const int64_t n_steps = (int64_t)s->n_tokens * s->x_stride;
    op_scene_clear(c);
    s->row = (uint64_t)s->n_heads * (uint64_t)s->head_dim;
    s->state = s->row * (uint64_t)s->n_state;
    s->alpha = op_scene_normal(c, n_steps, 2);
    s->a = op_scene_normal(c, s->n_heads, 2);
    s->d = op_scene_normal(c, s->n_heads, 1);
    s->dt_bias = op_scene_normal(c, s->n_heads, 1);
    float *a = op_scene_at(c, s->a), *dt = op_scene_at(c, s->alpha);
    for (int32_t h = 0; h < s->n_heads; h++) a[h] = -fabsf(a[h]);
    dt[0] = 25;
    dt[n_steps - 1] = -40;
    lay_state(c, s, (int64_t)s->row + 2 * (int64_t)s->n_key_heads * s->n_state);
}

void check_mamba_scan(struct op_check *c) {
    static const struct {
        int32_t n_heads, n_groups, head_dim, n_state;
    } SIZES[] = {{1, 1, 1, 1}, {4, 2, 7, 12}, {6, 3, 16, 64}, {4, 1, 64, 128}, {2, 2, 9, 256}};
    struct op_case k = {
        .op = OP_mamba_scan, .limit = 1e-6, .place = place_mamba_scan, .mark = mark_state};
    for (int i = 0; i < op_n_batches(c) * 5; i++) {
        struct state_shape s = {.n_tokens = op_batch(c, i / 5),
                                .n_heads = SIZES[i % 5].n_heads,
                                .n_key_heads = SIZES[i % 5].n_groups,
                                .head_dim = SIZES[i % 5].head_dim,
                                .n_state = SIZES[i % 5].n_state,
                                .x_stride = SIZES[i % 5].n_heads + i % 3};
        op_describe(c, "%d tokens, %d heads of %d, %d groups of %d", s.n_tokens, s.n_heads,
                    s.head_dim, s.n_key_heads, s.n_state);
        lay_mamba_scan(c, &s);
        run_chains(c, &k, &s);
    }
}

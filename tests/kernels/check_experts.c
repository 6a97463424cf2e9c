/* check_experts.c: route, matmul_experts and combine_experts against their definitions.
 *
 * Checks the definitions too, against examples worked out by hand, and matmul_experts against
 * matmul. The choice of experts must be exact on every device, so logits are drawn in which no two
 * scores that decide something are so near that rounding could turn them; those that are equal are
 * equal in every bit. Used by check_ops.c.
 */
#include "tests/kernels/check_experts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

// ---- route --------------------------------------------------------------------------------------

struct route_shape {
    uint64_t chosen, weights, starts, order, logits, bias, expert_scale; // 0: NULL
    int32_t first;                                                       // token
    bool is_part;           // of a whole: other starts, another order
    struct route_args args; // without its pointers
};

static void place_route(union op_args *args, const void *shape, char *base) {
    const struct route_shape *s = shape;
    int64_t pair = (int64_t)s->first * s->args.n_used;
    args->route = s->args;
    args->route.chosen = (int32_t *)(base + s->chosen) + pair;
    args->route.weights = (float *)(base + s->weights) + pair;
    args->route.starts = (int32_t *)(base + s->starts);
    args->route.order = (int32_t *)(base + s->order);
    args->route.logits = floats_at(base, s->logits) + (int64_t)s->first * s->args.n_experts;
    args->route.selection_bias = s->bias ? floats_at(base, s->bias) : NULL;
    args->route.expert_scale = s->expert_scale ? floats_at(base, s->expert_scale) : NULL;
}

static void mark_route(uint8_t *roles, const void *shape) {
    const struct route_shape *s = shape;
    uint64_t pair_bytes = (uint64_t)s->args.n_used * 4;
    uint64_t skip = (uint64_t)s->first * pair_bytes;
    uint64_t size_bytes = (uint64_t)s->args.n_tokens * pair_bytes;
    op_mark(roles, s->chosen + skip, size_bytes, ROLE_BITS);
    op_mark(roles, s->weights + skip, size_bytes, ROLE_F32);
    op_mark(roles, s->starts, (uint64_t)(s->args.n_experts + 1) * 4,
            s->is_part ? ROLE_SCRATCH : ROLE_BITS);
    op_mark(roles, s->order, size_bytes, s->is_part ? ROLE_SCRATCH : ROLE_BITS);
}

static int descending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x < y) - (x > y);
}

// True if rounding to float could change which n of the scores are the best, or (in_order) their
// order. Sorts the scores.
static bool is_close(double *scores, int32_t n_scores, int32_t n, bool in_order) {
    qsort(scores, (size_t)n_scores, sizeof *scores, descending);
    for (int32_t i = in_order ? 1 : n; i <= n && i < n_scores; i++) {
        double gap = scores[i - 1] - scores[i];
        if (gap > 0 && gap < 5e-7 + 4e-6 * fabs(scores[i])) return true;
    }
    return false;
}

// True if the choice for these logits is a matter of rounding.
static bool is_unsure(const struct route_args *a, const float *logits, const float *bias) {
    double scores[EXPERTS_MAX], sums[EXPERTS_MAX], sorted[EXPERTS_MAX], exp_sum = 0;
    float max = -INFINITY;
    int32_t n_groups = a->n_groups > 1 ? a->n_groups : 1, size = a->n_experts / n_groups;
    if (!bias && n_groups == 1) return false; // logits decide, and they are exact
    for (int32_t e = 0; e < a->n_experts; e++) max = fmaxf(max, logits[e]);
    for (int32_t e = 0; e < a->n_experts; e++) exp_sum += exp((double)logits[e] - max);
    for (int32_t e = 0; e < a->n_experts; e++) {
        double l = logits[e], g = a->gate == GATE_SIGMOID ? 1 / (1 + exp(-l)) : l;
        if (a->gate == GATE_SOFTMAX) g = exp(l - max) / exp_sum;
        scores[e] = isnan(g) ? -INFINITY : g + (bias ? bias[e] : 0);
    }
    if (n_groups == 1) return is_close(scores, a->n_experts, a->n_used, true);
    for (int32_t g = 0; g < n_groups; g++) {
        memcpy(sorted, scores + (int64_t)g * size, (size_t)size * sizeof *sorted);
        qsort(sorted, (size_t)size, sizeof *sorted, descending);
        sums[g] = a->groups_by_best ? sorted[0] : sorted[0] + sorted[1];
    }
    memcpy(sorted, sums, (size_t)n_groups * sizeof *sums);
    if (is_close(sorted, n_groups, a->n_groups_used, false)) return true;
    double least = sorted[a->n_groups_used - 1];
    int32_t n_left = 0;
    for (int32_t e = 0; e < a->n_experts; e++) // a group that ties does no harm here
        if (sums[e / size] >= least) sorted[n_left++] = scores[e];
    return is_close(sorted, n_left, a->n_used, true);
}

enum logit_kind { LOGITS_NORMAL, LOGITS_TIED, LOGITS_BROKEN, LOGIT_KINDS };

// One token's logits: of a normal distribution, some twice (with their biases); of few values; or
// with infinities and NaNs among them.
static void draw_logits(struct op_check *c, const struct route_args *a, enum logit_kind kind,
                        float *logits, const float *bias) {
    static const float BROKEN[] = {NAN, INFINITY, -INFINITY, -NAN, 3e38F, -INFINITY};
    uint32_t n = (uint32_t)a->n_experts;
    do {
        op_fill_normal(c, logits, a->n_experts, 2);
        for (uint32_t e = 0; e < n; e++) {
            uint32_t other = op_random(c, n);
            bool may_tie = !bias || memcmp(&bias[e], &bias[other], sizeof *bias) == 0;
            if (kind == LOGITS_TIED) logits[e] = 0.5F * rintf(logits[e]);
            if (kind == LOGITS_NORMAL && may_tie && op_random(c, 8) == 0) logits[e] = logits[other];
        }
        uint32_t n_broken = kind == LOGITS_BROKEN ? 1 + op_random(c, 3) : 0;
        if (n_broken > 0 && op_random(c, 8) == 0) n_broken = 4 * n; // nearly all
        for (uint32_t i = 0; i < n_broken; i++) logits[op_random(c, n)] = BROKEN[op_random(c, 6)];
    } while (kind != LOGITS_TIED && is_unsure(a, logits, bias));
}

static struct route_shape lay_route(struct op_check *c, struct route_args args,
                                    enum logit_kind kind, bool has_bias, bool has_scale) {
    struct route_shape s = {.args = args};
    uint64_t pairs_bytes = (uint64_t)args.n_tokens * (uint64_t)args.n_used * 4;
    op_scene_clear(c);
    s.logits = op_scene_add(c, (uint64_t)args.n_tokens * (uint64_t)args.n_experts * 4);
    s.bias = has_bias ? op_scene_normal(c, args.n_experts, 0.25F) : 0;
    s.expert_scale = has_scale ? op_scene_normal(c, args.n_experts, 1) : 0;
    s.chosen = op_scene_add(c, pairs_bytes);
    s.weights = op_scene_add(c, pairs_bytes);
    s.starts = op_scene_add(c, (uint64_t)(args.n_experts + 1) * 4);
    s.order = op_scene_add(c, pairs_bytes);
    float *bias = has_bias ? op_scene_at(c, s.bias) : NULL;
    for (int32_t e = 1; bias && e < args.n_experts; e++) // some are equal, and exact in a few bits
        bias[e] = op_random(c, 4) ? 0.125F * rintf(8 * bias[e]) : bias[e - 1];
    float *logits = op_scene_at(c, s.logits);
    for (int32_t t = 0; t < args.n_tokens; t++)
        draw_logits(c, &args, kind, logits + (int64_t)t * args.n_experts, bias);
    return s;
}

static bool is_example(struct op_check *c, const struct route_args *args, const int32_t *chosen,
                       const float *weights) {
    int32_t found[8], starts[9], order[8], n_pairs = args->n_tokens * args->n_used;
    float found_weights[8];
    struct route_args a = *args;
    a.chosen = found, a.weights = found_weights, a.starts = starts, a.order = order;
    c->definition.route(&(const struct lane){.count = 1}, &a);
    bool same = memcmp(found, chosen, (size_t)n_pairs * sizeof *chosen) == 0;
    for (int32_t i = 0; i < n_pairs; i++)
        same = same && (isnan(weights[i]) ? isnan(found_weights[i])
                                          : fabsf(found_weights[i] - weights[i]) < 1e-6F);
    for (int32_t e = 0; e < a.n_experts; e++)
        for (int32_t i = starts[e]; i < starts[e + 1]; i++)
            same = same && found[order[i]] == e && (i == starts[e] || order[i - 1] < order[i]);
    return same && starts[0] == 0 && starts[a.n_experts] == n_pairs;
}

// Examples done by hand.
static void check_route_definition(struct op_check *c) {
    static const float LOGITS[] = {1, 3, 3, 2, 2, -INFINITY, 0, 2};
    static const float SCALES[] = {1, 1, 2, 1};
    struct route_args a = {.logits = LOGITS,
                           .expert_scale = SCALES,
                           .n_tokens = 2,
                           .n_experts = 4,
                           .n_used = 2,
                           .normalise = true,
                           .scale = 2.5F};
    op_describe(c, "the definition");
    if (!is_example(c, &a, (const int32_t[]){1, 2, 0, 3},
                    (const float[]){1.25F, 2.5F, 1.25F, 1.25F}))
        op_fail(c, "softmax, normalised, with a factor for each expert");
    // The best expert is in the second group, the better group is the first, whose second expert
    // has the larger bias; its weight is the sigmoid of 0.
    static const float GROUPED[] = {0, 0, 2, -20}, BIAS[] = {0, 0.25F, 0, 0};
    a = (struct route_args){.logits = GROUPED,
                            .selection_bias = BIAS,
                            .n_tokens = 1,
                            .n_experts = 4,
                            .n_used = 1,
                            .n_groups = 2,
                            .n_groups_used = 1,
                            .gate = GATE_SIGMOID,
                            .scale = 1};
    if (!is_example(c, &a, (const int32_t[]){1}, (const float[]){0.5F}))
        op_fail(c, "sigmoid, a bias, groups");
    a.groups_by_best = true;
    if (!is_example(c, &a, (const int32_t[]){2}, (const float[]){0.8807971F}))
        op_fail(c, "sigmoid, a bias, groups by their best expert");
    static const float BROKEN[] = {NAN, 0, 1.0986123F};
    a = (struct route_args){.logits = BROKEN,
                            .n_tokens = 1,
                            .n_experts = 3,
                            .n_used = 2,
                            .gate = GATE_CHOSEN,
                            .scale = 1};
    if (!is_example(c, &a, (const int32_t[]){2, 1}, (const float[]){0.75F, 0.25F}))
        op_fail(c, "softmax of the chosen, one NaN");
    a.n_used = 3;
    if (!is_example(c, &a, (const int32_t[]){2, 1, 0}, (const float[]){NAN, NAN, NAN}))
        op_fail(c, "softmax of the chosen with a NaN");
}

void check_route(struct op_check *c) {
    // The last ones take a watched GPU minutes.
    static const int32_t SIZES[][4] = {{1, 1, 0, 0},     {8, 2, 0, 0},     {61, 4, 1, 1},
                                       {64, 6, 8, 3},    {32, 32, 0, 0},   {12, 3, 6, 2},
                                       {128, 8, 0, 0},   {256, 8, 8, 4},   {257, 32, 0, 0},
                                       {1024, 10, 0, 0}, {1024, 8, 512, 4}};
    enum { N_QUICK = 6, N_SIZES = sizeof SIZES / sizeof *SIZES };
    const int n_sizes = c->quick ? N_QUICK : N_SIZES;
    struct op_case k = {.op = OP_route,
                        .limit = 1e-6,
                        .may_be_nan = true,
                        .place = place_route,
                        .mark = mark_route};
    check_route_definition(c);
    for (int i = 0; i < op_n_batches(c) * n_sizes * 3; i++) {
        const int32_t *size = SIZES[i / 3 % n_sizes];
        enum logit_kind kind = (enum logit_kind)op_random(c, LOGIT_KINDS);
        bool has_bias = op_random(c, 2), has_scale = op_random(c, 2);
        struct route_args args = {.n_tokens = op_batch(c, i / (n_sizes * 3)),
                                  .n_experts = size[0],
                                  .n_used = size[1],
                                  .n_groups = size[2],
                                  .n_groups_used = size[3],
                                  .gate = (enum expert_gate)(i % 3),
                                  .normalise = op_random(c, 2),
                                  .groups_by_best = op_random(c, 2),
                                  .scale = op_random(c, 2) ? 1 : 2.5F};
        // Sums of gates would tie but for rounding.
        bool is_rounded = (has_bias || size[2] > 1) && args.gate != GATE_CHOSEN;
        if (kind == LOGITS_TIED && is_rounded) kind = LOGITS_NORMAL;
        op_describe(c, "%d tokens, %d of %d experts, %d of %d groups, gate %d, logits %d%s",
                    args.n_tokens, size[1], size[0], size[3], size[2], i % 3, (int)kind,
                    has_bias ? ", bias" : "");
        struct route_shape s = lay_route(c, args, kind, has_bias, has_scale);
        op_run_whole(c, &k, &s);
        s.is_part = true;
        s.first = args.n_tokens / 2, s.args.n_tokens = 1;
        op_run_part(c, &k, &s);
        s.first = args.n_tokens / 3, s.args.n_tokens = (args.n_tokens + 2) / 3;
        op_run_part(c, &k, &s);
    }
}

// ---- matmul_experts -----------------------------------------------------------------------------

enum { PAIRS_MAX = 128 * 8, SLOT_ROWS_MAX = 65 * 75 };

// Starts and order of tokens first..first+n_tokens-1 alone, laid into the scene.
struct expert_lists {
    uint64_t starts, order;
    int32_t first, n_tokens;
};

struct experts_shape {
    uint64_t out, x, weight, slots, bias, scratch, scratch_bytes;
    struct expert_lists lists;
    struct matmul_experts_args args; // without its pointers
    bool has_bias, is_dense;         // is_dense: every token goes to every expert, without lists
    const int32_t *chosen;           // [pairs of all tokens], of the check's own
    const int32_t *places;           // [n_experts], what the slots are
    const double *squares;           // [slots, n_rows], see op_row_squares
};

static void place_matmul_experts(union op_args *args, const void *shape, char *base) {
    const struct experts_shape *s = shape;
    struct matmul_experts_args *a = &args->matmul_experts;
    int64_t pair = (int64_t)s->lists.first * s->args.n_used;
    *a = s->args;
    a->n_tokens = s->lists.n_tokens;
    a->out = (float *)(base + s->out) + pair * s->args.out_stride;
    a->x = floats_at(base, s->x) + (s->args.x_per_pair ? pair : s->lists.first) * s->args.n_cols;
    a->weight = base + s->weight;
    a->bias = s->has_bias ? floats_at(base, s->bias) : NULL;
    a->scratch = base + s->scratch;
    if (s->is_dense) return;
    a->slots = (const int32_t *)(base + s->slots);
    a->starts = (const int32_t *)(base + s->lists.starts);
    a->order = (const int32_t *)(base + s->lists.order);
}

// The first byte of the asked rows of a pair's results.
static uint64_t pair_at(const struct experts_shape *s, int32_t pair) {
    return s->out +
           ((uint64_t)pair * (uint64_t)s->args.out_stride + (uint64_t)s->args.row_first) * 4;
}

static void mark_matmul_experts(uint8_t *roles, const void *shape) {
    const struct experts_shape *s = shape;
    int32_t first = s->lists.first * s->args.n_used, n = s->lists.n_tokens * s->args.n_used;
    for (int32_t i = first; i < first + n; i++)
        if (s->places[s->chosen[i]] >= 0)
            op_mark(roles, pair_at(s, i), (uint64_t)s->args.row_count * 4, ROLE_F32);
    op_mark(roles, s->scratch, s->scratch_bytes, ROLE_SCRATCH);
}

// The energy to expect of the asked rows of a pair.
static double expect_of_pair(const struct experts_shape *s, int32_t pair) {
    int32_t place = s->places[s->chosen[pair]];
    double sum = 0;
    if (place < 0) return 0;
    const double *squares = s->squares + (int64_t)place * s->args.n_rows + s->args.row_first;
    for (int32_t r = 0; r < s->args.row_count; r++) sum += squares[r];
    return sum;
}

static double expect_matmul_experts(const void *shape) {
    const struct experts_shape *s = shape;
    int32_t first = s->lists.first * s->args.n_used, n = s->lists.n_tokens * s->args.n_used;
    double sum = 0;
    for (int32_t i = first; i < first + n; i++) sum += expect_of_pair(s, i);
    return sum;
}

// One pair of a struct experts_shape as a matmul of one token.
struct pair_shape {
    const struct experts_shape *of;
    int32_t pair;
};

static void place_pair(union op_args *args, const void *shape, char *base) {
    const struct pair_shape *p = shape;
    const struct experts_shape *s = p->of;
    int32_t expert = s->chosen[p->pair], row = p->pair / (s->args.x_per_pair ? 1 : s->args.n_used);
    args->matmul = (struct matmul_args){
        .out = (float *)(base + s->out) + (int64_t)p->pair * s->args.out_stride,
        .x = floats_at(base, s->x) + (int64_t)row * s->args.n_cols,
        .weight = base + s->weight + (uint64_t)s->places[expert] * s->args.slot_bytes,
        .bias = s->has_bias ? floats_at(base, s->bias) + (int64_t)expert * s->args.n_rows : NULL,
        .scratch = base + s->scratch,
        .n_tokens = 1,
        .n_cols = s->args.n_cols,
        .row_first = s->args.row_first,
        .row_count = s->args.row_count,
        .out_stride = s->args.out_stride,
    };
}

static void mark_pair(uint8_t *roles, const void *shape) {
    const struct pair_shape *p = shape;
    op_mark(roles, pair_at(p->of, p->pair), (uint64_t)p->of->args.row_count * 4, ROLE_F32);
    op_mark(roles, p->of->scratch, p->of->scratch_bytes, ROLE_SCRATCH);
}

static double expect_pair(const void *shape) {
    const struct pair_shape *p = shape;
    return expect_of_pair(p->of, p->pair);
}

// n_used different experts for each token; the first few experts are chosen often.
static void choose_experts(struct op_check *c, const struct experts_shape *s, int32_t *chosen) {
    const struct matmul_experts_args *a = &s->args;
    for (int32_t i = 0; i < a->n_tokens * a->n_used; i++) {
        chosen[i] = i % a->n_used;
        if (s->is_dense) continue;
        int32_t first = i - i % a->n_used, same = i;
        while (same >= first) { // until the only equal one is at or beyond i
            uint32_t limit = op_random(c, 2) ? (uint32_t)a->n_used + 1 : (uint32_t)a->n_experts;
            chosen[i] = (int32_t)op_random(c, limit) % a->n_experts;
            for (same = i - 1; same >= first && chosen[same] != chosen[i];) same--;
        }
    }
}

static struct expert_lists lay_lists(struct op_check *c, const struct experts_shape *s,
                                     int32_t first, int32_t n_tokens) {
    struct expert_lists lists = {.first = first, .n_tokens = n_tokens};
    const int32_t *chosen = s->chosen + (int64_t)first * s->args.n_used;
    int32_t n_pairs = n_tokens * s->args.n_used, n = 0;
    lists.starts = op_scene_add(c, (uint64_t)(s->args.n_experts + 1) * 4);
    lists.order = op_scene_add(c, (uint64_t)n_pairs * 4);
    int32_t *starts = op_scene_at(c, lists.starts), *order = op_scene_at(c, lists.order);
    for (int32_t e = 0; e < s->args.n_experts; e++) {
        starts[e] = n;
        for (int32_t i = 0; i < n_pairs; i++)
            if (chosen[i] == e) order[n++] = i;
    }
    starts[s->args.n_experts] = n;
    return lists;
}

// Numbers for the rows of x that are read; the others stay NaN.
static void lay_x(struct op_check *c, enum weight_type type, struct experts_shape *s) {
    int32_t n_pairs = s->args.n_tokens * s->args.n_used;
    int32_t n_rows = s->args.x_per_pair ? n_pairs : s->args.n_tokens;
    s->x = op_scene_add(c, (uint64_t)n_rows * (uint64_t)s->args.n_cols * 4);
    float *x = op_scene_at(c, s->x);
    for (int32_t i = 0; i < n_pairs; i++) {
        int32_t row = s->args.x_per_pair ? i : i / s->args.n_used;
        if (s->places[s->chosen[i]] >= 0)
            op_fill_normal(c, x + (int64_t)row * s->args.n_cols, s->args.n_cols, 1);
    }
    s->scratch_bytes = op_scratch_bytes(c, type, s->args.n_cols, n_rows);
    s->scratch = op_scene_add(c, s->scratch_bytes);
}

// Variant bits: 1 bias, 2 x per pair, 4 missing experts, 8 not all rows, 16 room between slots.
static void lay_experts(struct op_check *c, enum weight_type type, struct experts_shape *s,
                        int variant, int32_t *places, double *squares) {
    struct matmul_experts_args *a = &s->args;
    int32_t n_slots = s->is_dense ? a->n_experts : a->n_experts / 2 + 1; // fewer: some share one
    int64_t matrix = (int64_t)a->n_rows * a->n_cols;
    a->slot_bytes = (dtype_bytes(weight_dtype(type), (uint64_t)matrix) + 15) / 16 * 16;
    a->slot_bytes += variant & 16 ? 48 : 0;
    a->out_stride = a->n_rows + 5;
    a->row_first = variant & 8 ? a->n_rows / 3 : 0;
    a->row_count = variant & 8 ? a->n_rows / 2 + 1 : a->n_rows;
    a->x_per_pair = variant & 2;
    s->has_bias = variant & 1;
    op_scene_clear(c);
    s->weight = op_scene_add(c, (uint64_t)n_slots * a->slot_bytes);
    ASSERT(n_slots * a->n_rows <= SLOT_ROWS_MAX);
    for (int32_t i = 0; i < n_slots; i++) {
        uint64_t slot = s->weight + (uint64_t)i * a->slot_bytes;
        op_fill_weights(c, type, op_scene_at(c, slot), matrix);
        op_row_squares(c, type, slot, a->n_rows, a->n_cols, squares + (int64_t)i * a->n_rows);
    }
    s->squares = squares;
    s->slots = op_scene_add(c, (uint64_t)a->n_experts * 4);
    for (int32_t e = 0; e < a->n_experts; e++) {
        bool is_missing = variant & 4 && op_random(c, 3) == 0;
        places[e] =
            is_missing ? -1 - (int32_t)op_random(c, 2) : (int32_t)op_random(c, (uint32_t)n_slots);
        if (s->is_dense) places[e] = e;
    }
    memcpy(op_scene_at(c, s->slots), places, (size_t)a->n_experts * sizeof *places);
    s->bias = op_scene_normal(c, (int64_t)a->n_experts * a->n_rows, 1);
    lay_x(c, type, s);
    s->out = op_scene_add(c, (uint64_t)(a->n_tokens * a->n_used) * (uint64_t)a->out_stride * 4);
}

// Runs with few tokens or few rows, and matmul on single pairs, give the same results.
static void check_experts_parts(struct op_check *c, const struct op_case *k,
                                const struct experts_shape *s, const struct expert_lists *parts) {
    const struct op_case single = {.op = OP_matmul,
                                   .type = k->type,
                                   .limit = k->limit,
                                   .is_other = true,
                                   .expect = expect_pair,
                                   .place = place_pair,
                                   .mark = mark_pair};
    struct experts_shape part = *s;
    part.lists = parts[0];
    op_run_part(c, k, &part);
    part.args.row_count = 1;
    op_run_part(c, k, &part);
    part.lists = parts[1];
    part.args.row_first = s->args.row_first + s->args.row_count / 3;
    part.args.row_count = s->args.row_count - s->args.row_count / 3;
    op_run_part(c, k, &part);
    for (int i = 0; i < 3; i++) {
        uint32_t n_pairs = (uint32_t)(s->args.n_tokens * s->args.n_used);
        const struct pair_shape pair = {s, (int32_t)op_random(c, n_pairs)};
        if (s->places[s->chosen[pair.pair]] >= 0) op_run_part(c, &single, &pair);
    }
}

void check_matmul_experts(struct op_check *c, enum weight_type type) {
    static const int32_t SIZES[][2] = {{1, 1}, {4, 2}, {8, 8}, {13, 3}, {128, 8}};
    static const int32_t ROWS[] = {3, 37, 75};
    static const int32_t COLS[3][3] = {{1, 67, 1056}, {32, 96, 608}, {256, 512, 1280}};
    uint32_t block = dtype_find((uint32_t)weight_dtype(type))->block_elements;
    const int32_t *cols = COLS[block == 1 ? 0 : block == 32 ? 1 : 2];
    int32_t chosen[PAIRS_MAX], places[EXPERTS_MAX];
    double squares[SLOT_ROWS_MAX];
    struct op_case k = {.op = OP_matmul_experts,
                        .type = type,
                        .limit = op_product_limit(c, type),
                        .may_skip = true,
                        .expect = expect_matmul_experts,
                        .place = place_matmul_experts,
                        .mark = mark_matmul_experts};
    for (int i = 0; i < op_n_batches(c) * 5; i++) {
        const int32_t *size = SIZES[i % 5], n_tokens = op_batch(c, i / 5);
        // Two of four experts have some 64 of 128 tokens each, with the third shape.
        int shape = size[0] == 128 ? 1 : (i + 2) % 3, variant = (int)op_random(c, 32);
        struct experts_shape s = {.args = {.n_tokens = n_tokens,
                                           .n_used = size[1],
                                           .n_experts = size[0],
                                           .n_cols = cols[shape],
                                           .n_rows = ROWS[shape]},
                                  .is_dense = size[0] == size[1] && i % 2,
                                  .chosen = chosen,
                                  .places = places};
        op_describe(c, "%d tokens, %d of %d experts, %d x %d, variant %d, without lists %d",
                    n_tokens, size[1], size[0], s.args.n_rows, s.args.n_cols, variant, s.is_dense);
        choose_experts(c, &s, chosen);
        lay_experts(c, type, &s, variant, places, squares);
        s.lists = lay_lists(c, &s, 0, n_tokens);
        struct expert_lists parts[] = {lay_lists(c, &s, n_tokens - 1, 1),
                                       lay_lists(c, &s, n_tokens / 3, (n_tokens + 2) / 3)};
        op_run_whole(c, &k, &s);
        check_experts_parts(c, &k, &s, parts);
    }
}

// ---- combine_experts ----------------------------------------------------------------------------

enum { COMBINE_EXPERTS = 40 };

struct combine_shape {
    uint64_t out, x, weights, chosen, slots, residual, absent; // 0: NULL
    int32_t first, n_tokens, n_cols, n_used;
};

static void place_combine_experts(union op_args *args, const void *shape, char *base) {
    const struct combine_shape *s = shape;
    int64_t pair = (int64_t)s->first * s->n_used, skip = (int64_t)s->first * s->n_cols;
    args->combine_experts = (struct combine_experts_args){
        .out = (float *)(base + s->out) + skip,
        .x = floats_at(base, s->x) + pair * s->n_cols,
        .weights = floats_at(base, s->weights) + pair,
        .chosen = (const int32_t *)(base + s->chosen) + pair,
        .slots = s->slots ? (const int32_t *)(base + s->slots) : NULL,
        .residual = s->residual ? floats_at(base, s->residual) + skip : NULL,
        .absent = s->absent ? floats_at(base, s->absent) + pair * s->n_cols : NULL,
        .n_tokens = s->n_tokens,
        .n_cols = s->n_cols,
        .n_used = s->n_used,
        .n_experts = COMBINE_EXPERTS,
    };
}

static void mark_combine_experts(uint8_t *roles, const void *shape) {
    const struct combine_shape *s = shape;
    op_mark(roles, s->out + (uint64_t)s->first * (uint64_t)s->n_cols * 4,
            (uint64_t)s->n_tokens * (uint64_t)s->n_cols * 4, ROLE_F32);
}

// Variant 0 has no residual, 1 one of its own, 2 one in place; 3, 4 and 5 the same with missing
// experts, whose rows of x stay NaN; 6, 7 and 8 with these rows elsewhere, where others stay NaN.
static void lay_combine(struct op_check *c, struct combine_shape *s, int variant) {
    int64_t n_pairs = (int64_t)s->n_tokens * s->n_used, n_out = (int64_t)s->n_tokens * s->n_cols;
    bool missing[COMBINE_EXPERTS] = {false};
    op_scene_clear(c);
    s->x = op_scene_add(c, (uint64_t)(n_pairs * s->n_cols) * 4);
    s->weights = op_scene_normal(c, n_pairs, 1);
    s->chosen = op_scene_add(c, (uint64_t)n_pairs * 4);
    s->slots = variant >= 3 ? op_scene_add(c, COMBINE_EXPERTS * 4) : 0;
    s->absent = variant >= 6 ? op_scene_add(c, (uint64_t)(n_pairs * s->n_cols) * 4) : 0;
    s->residual = variant % 3 > 0 ? op_scene_normal(c, n_out, 1) : 0;
    s->out = variant % 3 == 2 ? s->residual : op_scene_add(c, (uint64_t)n_out * 4);
    for (int e = 0; s->slots && e < COMBINE_EXPERTS; e++) {
        missing[e] = op_random(c, 2);
        ((int32_t *)op_scene_at(c, s->slots))[e] = missing[e] ? -1 : COMBINE_EXPERTS - e;
    }
    int32_t *chosen = op_scene_at(c, s->chosen);
    float *x = op_scene_at(c, s->x), *absent = s->absent ? op_scene_at(c, s->absent) : NULL;
    for (int64_t i = 0; i < n_pairs; i++) {
        chosen[i] = (int32_t)op_random(c, COMBINE_EXPERTS);
        float *rows = missing[chosen[i]] ? absent : x;
        if (rows) op_fill_normal(c, rows + i * s->n_cols, s->n_cols, 1);
    }
}

// Sums that cancel are held against outputs of a quarter: a weight alone is about 1.
static double expect_combine(const void *shape) {
    const struct combine_shape *s = shape;
    return (double)s->n_tokens * s->n_cols / 16;
}

static void check_combine_definition(struct op_check *c) {
    static const float X[] = {1, 2, NAN, NAN, 3, 4}, WEIGHTS[] = {2, 1, 0.5F};
    static const float RESIDUAL[] = {10, 20}, ABSENT[] = {NAN, NAN, 5, 6, NAN, NAN};
    static const int32_t CHOSEN[] = {2, 0, 1}, SLOTS[] = {-1, 1, 0};
    float out[2];
    struct combine_experts_args a = {.out = out,
                                     .x = X,
                                     .weights = WEIGHTS,
                                     .chosen = CHOSEN,
                                     .slots = SLOTS,
                                     .residual = RESIDUAL,
                                     .n_tokens = 1,
                                     .n_cols = 2,
                                     .n_used = 3,
                                     .n_experts = 3};
    c->definition.combine_experts(&(const struct lane){.count = 1}, &a);
    op_describe(c, "the definition");
    if (out[0] != 13.5F || out[1] != 26) op_fail(c, "13.5 and 26 are %g and %g", out[0], out[1]);
    a.absent = ABSENT;
    c->definition.combine_experts(&(const struct lane){.count = 1}, &a);
    if (out[0] != 18.5F || out[1] != 32) op_fail(c, "18.5 and 32 are %g and %g", out[0], out[1]);
}

void check_combine_experts(struct op_check *c) {
    static const int32_t COLS[] = {1, 67, 576, 1027}, USED[] = {1, 2, 8, 32};
    struct op_case k = {.op = OP_combine_experts,
                        .limit = 1e-6,
                        .expect = expect_combine,
                        .place = place_combine_experts,
                        .mark = mark_combine_experts};
    check_combine_definition(c);
    for (int i = 0; i < op_n_batches(c) * 16; i++) {
        struct combine_shape s = {
            .n_tokens = op_batch(c, i / 16), .n_cols = COLS[i % 4], .n_used = USED[i / 4 % 4]};
        int variant = (int)op_random(c, 9);
        if (s.n_tokens * s.n_used > 1024) s.n_used = 8; // what fits the scene
        op_describe(c, "%d tokens, %d experts each, %d columns, variant %d", s.n_tokens, s.n_used,
                    s.n_cols, variant);
        lay_combine(c, &s, variant);
        op_run_whole(c, &k, &s);
        s.first = s.n_tokens / 2, s.n_tokens = (s.n_tokens + 3) / 4;
        op_run_part(c, &k, &s);
    }
}

/* experts.c: routed experts: a router chooses some of many FFNs for each token. Their rows are
 * pairs of a token and an expert. Tested by tests/cli/cli_tiny.sh and
 * tests/runtime/test_pipeline.c. Source: Shazeer et al. 2017.
 */
#include "planner/blocks/encode.h"

#include <math.h>

static int32_t *integers(const struct forward *f, enum area area) {
    return (int32_t *)(void *)f->area[area];
}

// Makes the input of a router that reads a norm of its own, and scales its logits by the norm's
// length, so that it is as if the residual stream had the length 1; x is its input else.
static const float *encode_router_input(const struct forward *f, const float *x) {
    float *in = f->area[AREA_EXPERT_IN];
    if (!unit_find(f->unit, ROLE_ROUTER_SCALE)) return x;
    encode_norm(f, in, f->area[AREA_RESIDUAL], ROLE_ROUTER_SCALE, f->n_tokens);
    return in;
}

static void encode_logits(const struct forward *f, const float *x) {
    float *logits = f->area[AREA_ROUTER_LOGITS];
    const int32_t n_experts = f->unit->n_experts;
    const float *in = encode_router_input(f, x);
    encode_product(f, &(struct product){.matrix = ROLE_ROUTER,
                                        .bias = ROLE_ROUTER_BIAS,
                                        .out = logits,
                                        .x = in,
                                        .n_rows = f->n_tokens,
                                        .out_stride = n_experts});
    if (in == x) return;
    const float scale = 1 / sqrtf((float)f->shape->n_embd);
    f->ops->cap_logits(f->stream,
                       &(struct cap_logits_args){logits, f->n_tokens, n_experts, scale, 0});
}

// Chooses the experts of each token by x and their weights, and sorts the pairs by expert.
static void encode_route(const struct forward *f, const float *x) {
    const float scale = f->hp->expert_scale;
    encode_logits(f, x);
    f->ops->route(f->stream,
                  &(struct route_args){.chosen = integers(f, AREA_CHOSEN),
                                       .weights = f->area[AREA_CHOSEN_WEIGHTS],
                                       .starts = integers(f, AREA_PAIR_STARTS),
                                       .order = integers(f, AREA_PAIR_ORDER),
                                       .logits = f->area[AREA_ROUTER_LOGITS],
                                       .selection_bias = encode_vector(f, ROLE_SELECTION_BIAS),
                                       .expert_scale = encode_vector(f, ROLE_EXPERT_SCALE),
                                       .n_tokens = f->n_tokens,
                                       .n_experts = f->unit->n_experts,
                                       .n_used = f->unit->n_experts_used,
                                       .n_groups = f->hp->n_expert_groups,
                                       .n_groups_used = f->hp->n_expert_groups_used,
                                       .gate = f->hp->expert_gate,
                                       .normalise = f->hp->normalise_experts,
                                       .groups_by_best = f->hp->groups_by_best,
                                       .scale = scale > 0 ? scale : 1});
}

// The matrices of experts and their biases.
static const enum tensor_role GATES[] = {ROLE_EXPERT_GATE, ROLE_EXPERT_GATE_BIAS};
static const enum tensor_role UPS[] = {ROLE_EXPERT_UP, ROLE_EXPERT_UP_BIAS};
static const enum tensor_role DOWNS[] = {ROLE_EXPERT_DOWN, ROLE_EXPERT_DOWN_BIAS};

// out[pair] = the matrix of the pair's expert times x, which has a row for each token or each pair,
// plus the expert's bias if it has one, for the pairs of the pieces' experts.
static void encode_experts(const struct forward *f, float *out, const float *x,
                           const enum tensor_role roles[2], bool x_per_pair) {
    for (int i = 0; i < f->n_pieces; i++) {
        const struct weight *w = encode_weight(f, i, roles[0]);
        if (!w) continue;
        const uint64_t matrix_bytes =
            dtype_bytes(w->type, (uint64_t)w->n_cols) * (uint64_t)w->n_rows;
        f->ops->matmul_experts(f->stream, encode_type(w),
                               &(struct matmul_experts_args){
                                   .out = out,
                                   .x = x,
                                   .weight = w->data,
                                   .slots = f->slots[i],
                                   .bias = encode_vector(f, roles[1]),
                                   .starts = integers(f, AREA_PAIR_STARTS),
                                   .order = integers(f, AREA_PAIR_ORDER),
                                   .scratch = f->area[AREA_MATMUL],
                                   .slot_bytes = w->slot_bytes ? w->slot_bytes : matrix_bytes,
                                   .n_tokens = f->n_tokens,
                                   .n_used = f->unit->n_experts_used,
                                   .n_experts = f->unit->n_experts,
                                   .n_cols = w->n_cols,
                                   .n_rows = w->n_rows,
                                   .row_count = w->n_rows,
                                   .out_stride = w->n_rows,
                                   .x_per_pair = x_per_pair});
    }
}

// The rows of the pieces' experts = down(gated unit of gate x and up x), or of up x alone where
// experts have no gates.
static void encode_rows(const struct forward *f, const float *x) {
    const struct unit *u = f->unit;
    const int32_t n_pairs = f->n_tokens * u->n_experts_used;
    const bool gated = unit_find(u, ROLE_EXPERT_GATE);
    float *gate = f->area[AREA_GATE], *up = gated ? f->area[AREA_UP] : NULL;
    encode_experts(f, gate, x, GATES, false);
    encode_experts(f, gated ? up : gate, x, UPS, false);
    f->ops->swiglu(f->stream, &(struct swiglu_args){.out = gate,
                                                    .gate = gate,
                                                    .up = up,
                                                    .n_rows = n_pairs,
                                                    .n_cols = u->n_ff_expert,
                                                    .stride = u->n_ff_expert,
                                                    .up_stride = u->n_ff_expert,
                                                    .form = f->hp->glu,
                                                    .limit = f->hp->glu_limit});
    encode_experts(f, f->area[AREA_EXPERT_OUT], gate, DOWNS, true);
}

// out = sum over the chosen experts of weight * row, plus residual unless it is NULL. Of experts
// that are split the other device has made some rows. out may be residual.
static void encode_sum(const struct forward *f, float *out, const float *residual) {
    const bool split = f->phase != PHASE_ALL;
    f->ops->combine_experts(
        f->stream, &(struct combine_experts_args){.out = out,
                                                  .x = f->area[AREA_EXPERT_OUT],
                                                  .weights = f->area[AREA_CHOSEN_WEIGHTS],
                                                  .chosen = integers(f, AREA_CHOSEN),
                                                  .slots = split ? f->slots[0] : NULL,
                                                  .residual = residual,
                                                  .absent = split ? f->area[AREA_CPU_OUT] : NULL,
                                                  .n_tokens = f->n_tokens,
                                                  .n_cols = f->shape->n_embd,
                                                  .n_used = f->unit->n_experts_used,
                                                  .n_experts = f->unit->n_experts});
}

// Adds the norm of the experts' sum to that of the dense FFN, and ends the layer with both.
static void encode_beside_ffn(const struct forward *f) {
    float *in = f->area[AREA_EXPERT_IN], *normed = f->area[AREA_NORMED];
    encode_norm(f, in, f->area[AREA_RESIDUAL], ROLE_EXPERT_NORM, f->n_tokens);
    encode_rows(f, in);
    encode_sum(f, in, NULL);
    f->ops->rms_norm(f->stream,
                     &(struct rms_norm_args){.out = normed,
                                             .x = in,
                                             .weight = encode_vector(f, ROLE_FFN_POST_NORM_2),
                                             .residual = normed,
                                             .n_rows = f->n_tokens,
                                             .n_cols = f->shape->n_embd,
                                             .eps = f->hp->norm_eps});
    encode_post_norm(f);
}

// out = the experts' sum, plus what a shared expert has left there; residual += norm(out)
static void encode_normed_sum(const struct forward *f) {
    float *out = f->area[AREA_NORMED];
    encode_sum(f, out, f->unit->joint_norm ? out : NULL);
    encode_post_norm(f);
}

// x = norm(residual), residual += the experts' sum, or its norm. Behind a shared expert, which has
// added to the residual stream, x is there, unless both have one norm of their sum.
static void encode_unit(const struct forward *f) {
    float *residual = f->area[AREA_RESIDUAL];
    float *x = f->area[f->unit->joint_norm ? AREA_EXPERT_IN : AREA_NORMED];
    const bool all = f->phase == PHASE_ALL, in = all || f->phase == PHASE_IN;
    const bool out = all || f->phase == PHASE_OUT;
    if (in && unit_find(f->unit, ROLE_FFN_NORM))
        encode_norm(f, x, residual, ROLE_FFN_NORM, f->n_tokens);
    if (in) encode_route(f, x);
    if (unit_find(f->unit, ROLE_EXPERT_NORM)) {
        encode_beside_ffn(f);
        return;
    }
    if (all || f->phase == PHASE_MID) encode_rows(f, x);
    if (out && unit_post_norm(f->unit))
        encode_normed_sum(f);
    else if (out)
        encode_sum(f, residual, residual);
}

static const struct block_tensor TENSORS[] = {
    {ROLE_FFN_NORM, DIM_EMBD, DIM_ONE, false}, // unless a shared expert alone has it
    {ROLE_ROUTER, DIM_EMBD, DIM_EXPERTS, false},
    {ROLE_ROUTER_BIAS, DIM_EXPERTS, DIM_ONE, true},
    {ROLE_ROUTER_SCALE, DIM_EXPERT_IN, DIM_ONE, false},
    {ROLE_SELECTION_BIAS, DIM_EXPERTS, DIM_ONE, true},
    {ROLE_EXPERT_GATE, DIM_EMBD, DIM_FF_EXPERT, false},
    {ROLE_EXPERT_UP, DIM_EMBD, DIM_FF_EXPERT, false},
    {ROLE_EXPERT_DOWN, DIM_FF_EXPERT, DIM_EMBD, false},
    {ROLE_EXPERT_GATE_BIAS, DIM_FF_EXPERT, DIM_ONE, true},
    {ROLE_EXPERT_UP_BIAS, DIM_FF_EXPERT, DIM_ONE, true},
    {ROLE_EXPERT_DOWN_BIAS, DIM_EMBD, DIM_ONE, true},
    {ROLE_EXPERT_SCALE, DIM_EXPERTS, DIM_ONE, true},
    {ROLE_EXPERT_NORM, DIM_EXPERT_IN, DIM_ONE, false},
    {ROLE_FFN_POST_NORM_2, DIM_EXPERT_IN, DIM_ONE, false},
    BLOCK_LAYER_END_TENSORS};

static const struct block_area NEEDED[] = {{AREA_RESIDUAL, ROWS_TOKENS, DIM_EMBD},
                                           {AREA_NORMED, ROWS_TOKENS, DIM_EMBD},
                                           {AREA_EXPERT_SLOTS, ROWS_ONE, DIM_EXPERTS},
                                           {AREA_GATE, ROWS_PAIRS, DIM_FF_EXPERT},
                                           {AREA_UP, ROWS_PAIRS, DIM_FF_EXPERT},
                                           {AREA_EXPERT_IN, ROWS_TOKENS, DIM_EXPERT_IN},
                                           {AREA_EXPERT_IN, ROWS_TOKENS, DIM_JOINT_IN},
                                           {AREA_EXPERT_OUT, ROWS_PAIRS, DIM_EMBD},
                                           {AREA_ROUTER_LOGITS, ROWS_TOKENS, DIM_EXPERTS},
                                           {AREA_CHOSEN, ROWS_PAIRS, DIM_ONE},
                                           {AREA_CHOSEN_WEIGHTS, ROWS_PAIRS, DIM_ONE},
                                           {AREA_PAIR_ORDER, ROWS_PAIRS, DIM_ONE},
                                           {AREA_PAIR_STARTS, ROWS_ONE, DIM_EXPERT_BOUNDS},
                                           {AREA_MATMUL, ROWS_TOKENS, DIM_EMBD},
                                           {AREA_MATMUL, ROWS_PAIRS, DIM_FF_EXPERT},
                                           BLOCK_LAYER_END_AREAS};

const struct block block_experts = {BLOCK_TENSORS(TENSORS), BLOCK_AREAS(NEEDED),
                                    .encode = encode_unit};

/* experts.c: routed experts: a router chooses some of many FFNs for each token. Their rows are
 * pairs of a token and an expert. Tested by tests/cli/cli_tiny.sh and
 * tests/runtime/test_pipeline.c. Source: Shazeer et al. 2017.
 */
#include "planner/blocks/encode.h"

static int32_t *integers(const struct forward *f, enum area area) {
    return (int32_t *)(void *)f->area[area];
}

// Chooses the experts of each token and their weights, and sorts the pairs by expert.
static void encode_route(const struct forward *f) {
    const float scale = f->hp->expert_scale;
    encode_product(f, &(struct product){.matrix = ROLE_ROUTER,
                                        .bias = ROLE_ROUTER_BIAS,
                                        .out = f->area[AREA_ROUTER_LOGITS],
                                        .x = f->area[AREA_NORMED],
                                        .n_rows = f->n_tokens,
                                        .out_stride = f->unit->n_experts});
    f->ops->route(f->stream, &(struct route_args){.chosen = integers(f, AREA_CHOSEN),
                                                  .weights = f->area[AREA_CHOSEN_WEIGHTS],
                                                  .starts = integers(f, AREA_PAIR_STARTS),
                                                  .order = integers(f, AREA_PAIR_ORDER),
                                                  .logits = f->area[AREA_ROUTER_LOGITS],
                                                  .n_tokens = f->n_tokens,
                                                  .n_experts = f->unit->n_experts,
                                                  .n_used = f->unit->n_experts_used,
                                                  .gate = f->hp->expert_gate,
                                                  .normalise = f->hp->normalise_experts,
                                                  .scale = scale > 0 ? scale : 1});
}

// The matrices of experts and their biases.
static const enum tensor_role GATES[] = {ROLE_EXPERT_GATE, ROLE_EXPERT_GATE_BIAS};
static const enum tensor_role UPS[] = {ROLE_EXPERT_UP, ROLE_EXPERT_UP_BIAS};
static const enum tensor_role DOWNS[] = {ROLE_EXPERT_DOWN, ROLE_EXPERT_DOWN_BIAS};

// out[pair] = the matrix of the pair's expert times x, which has a row for each token or each pair,
// plus the expert's bias if it has one.
static void encode_experts(const struct forward *f, float *out, const float *x,
                           const enum tensor_role roles[2], bool x_per_pair) {
    const struct weight *w = encode_weight(f, 0, roles[0]);
    if (!w) return;
    const uint64_t matrix_bytes = dtype_bytes(w->type, (uint64_t)w->n_cols) * (uint64_t)w->n_rows;
    f->ops->matmul_experts(
        f->stream, encode_type(w),
        &(struct matmul_experts_args){.out = out,
                                      .x = x,
                                      .weight = w->data,
                                      .slots = integers(f, AREA_EXPERT_SLOTS),
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

// residual += sum over the chosen experts of weight * down(gated unit of gate x and up x), x =
// norm(residual). Behind a shared expert, which has added to the residual stream, x is there.
static void encode_unit(const struct forward *f) {
    const struct unit *u = f->unit;
    const int32_t n_pairs = f->n_tokens * u->n_experts_used;
    float *gate = f->area[AREA_GATE], *up = f->area[AREA_UP], *residual = f->area[AREA_RESIDUAL];
    if (unit_find(u, ROLE_FFN_NORM))
        encode_norm(f, f->area[AREA_NORMED], residual, ROLE_FFN_NORM, f->n_tokens);
    encode_route(f);
    encode_experts(f, gate, f->area[AREA_NORMED], GATES, false);
    encode_experts(f, up, f->area[AREA_NORMED], UPS, false);
    f->ops->swiglu(f->stream, &(struct swiglu_args){gate, gate, up, NULL, n_pairs, u->n_ff_expert,
                                                    u->n_ff_expert, u->n_ff_expert, f->hp->glu,
                                                    f->hp->glu_limit});
    encode_experts(f, f->area[AREA_EXPERT_OUT], gate, DOWNS, true);
    f->ops->combine_experts(f->stream,
                            &(struct combine_experts_args){.out = residual,
                                                           .x = f->area[AREA_EXPERT_OUT],
                                                           .weights = f->area[AREA_CHOSEN_WEIGHTS],
                                                           .chosen = integers(f, AREA_CHOSEN),
                                                           .residual = residual,
                                                           .n_tokens = f->n_tokens,
                                                           .n_cols = f->shape->n_embd,
                                                           .n_used = u->n_experts_used,
                                                           .n_experts = u->n_experts});
}

static const struct block_tensor TENSORS[] = {
    {ROLE_FFN_NORM, DIM_EMBD, DIM_ONE, false}, // unless a shared expert has it
    {ROLE_ROUTER, DIM_EMBD, DIM_EXPERTS, false},
    {ROLE_ROUTER_BIAS, DIM_EXPERTS, DIM_ONE, true},
    {ROLE_EXPERT_GATE, DIM_EMBD, DIM_FF_EXPERT, false},
    {ROLE_EXPERT_UP, DIM_EMBD, DIM_FF_EXPERT, false},
    {ROLE_EXPERT_DOWN, DIM_FF_EXPERT, DIM_EMBD, false},
    {ROLE_EXPERT_GATE_BIAS, DIM_FF_EXPERT, DIM_ONE, true},
    {ROLE_EXPERT_UP_BIAS, DIM_FF_EXPERT, DIM_ONE, true},
    {ROLE_EXPERT_DOWN_BIAS, DIM_EMBD, DIM_ONE, true},
};

static const struct block_area NEEDED[] = {
    {AREA_RESIDUAL, ROWS_TOKENS, DIM_EMBD},
    {AREA_NORMED, ROWS_TOKENS, DIM_EMBD},
    {AREA_EXPERT_SLOTS, ROWS_ONE, DIM_EXPERTS},
    {AREA_GATE, ROWS_PAIRS, DIM_FF_EXPERT},
    {AREA_UP, ROWS_PAIRS, DIM_FF_EXPERT},
    {AREA_EXPERT_OUT, ROWS_PAIRS, DIM_EMBD},
    {AREA_ROUTER_LOGITS, ROWS_TOKENS, DIM_EXPERTS},
    {AREA_CHOSEN, ROWS_PAIRS, DIM_ONE},
    {AREA_CHOSEN_WEIGHTS, ROWS_PAIRS, DIM_ONE},
    {AREA_PAIR_ORDER, ROWS_PAIRS, DIM_ONE},
    {AREA_PAIR_STARTS, ROWS_ONE, DIM_EXPERT_BOUNDS},
    {AREA_MATMUL, ROWS_TOKENS, DIM_EMBD},
    {AREA_MATMUL, ROWS_PAIRS, DIM_FF_EXPERT},
};

const struct block block_experts = {BLOCK_TENSORS(TENSORS), BLOCK_AREAS(NEEDED),
                                    .encode = encode_unit};

/* route.metal: chooses the experts of each token, and sums up their outputs.
 *
 * route: grid (chunks of ROUTE_TOKENS tokens); a simdgroup chooses the experts of a token. The
 * scores lie in threadgroup memory as integers of the same order; a lane compares every 32nd. The
 * simdgroup takes the best score n_used times, so a token reads its logits two or three times and
 * takes n_used * n_experts / 32 steps. Without bias or groups logits are compared as they are;
 * scores with a bias or groups are floats, so two that differ by less than about 1e-7 may change
 * places. Lane i computes the weight of the i-th chosen expert. NaNs and infinities among the
 * logits need a compiler without fast math.
 *
 * sort_pairs: grid (n_experts), after route. A threadgroup serves one expert and reads the expert
 * of every pair twice: first each simdgroup counts, in its share of the pairs, those of lower
 * experts and those of its own expert; then it writes the latter at their places. There are no
 * atomics, so pairs keep their order. Reads n_experts * n_pairs * 8 bytes from cache.
 *
 * combine_experts: grid (n_tokens, chunks of COMBINE_COLS columns). Each thread adds up four
 * columns, in the order of the token's experts. Reads each row of an expert on this device once.
 * Tested by tests/kernels/check_ops.c.
 */
#include "kernels/metal/device.metal"

static_assert(ROUTE_THREADS == 32 * ROUTE_TOKENS, "a simdgroup chooses for a token");
static_assert(EXPERTS_USED_MAX <= 32, "a chosen expert is a lane's");

enum {
    SORT_SIMDGROUPS = SORT_PAIRS_THREADS / 32,
    COMBINE_EACH = COMBINE_COLS / COMBINE_THREADS, // columns of a thread
};

// Scores become integers in the same order, with NaN below all of them. Both zeros become one.
constant uint RANK_TAKEN = 0; // less than a NaN: chosen already, or excluded
constant uint RANK_NAN = 1;
constant uint RANK_POSITIVE = 0x80000000u;

static uint rank_of(float score) {
    const uint bits = as_type<uint>(score);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return RANK_NAN;
    if (bits == RANK_POSITIVE) return RANK_POSITIVE; // minus zero
    return (bits & RANK_POSITIVE) != 0 ? ~bits : bits | RANK_POSITIVE;
}

static float score_of(uint rank) {
    if (rank == RANK_NAN) return as_type<float>(0x7fc00000u);
    return as_type<float>((rank & RANK_POSITIVE) != 0 ? rank ^ RANK_POSITIVE : ~rank);
}

// Returns the number of the best of n ranks, the lowest among equals, and sets that rank to
// RANK_TAKEN. Lane i reads and writes only ranks i, i + 32, ...
static int take_best(threadgroup uint *ranks, int n, int lane) {
    uint best = RANK_TAKEN;
    int place = n;
    for (int i = lane; i < n; i += 32) {
        if (ranks[i] <= best) continue;
        best = ranks[i];
        place = i;
    }
    place = simd_min(simd_max(best) == best ? place : n);
    if (place < n && place % 32 == lane) ranks[place] = RANK_TAKEN;
    return place;
}

// Computes g (ops.h) from a logit, with values that are the same for all experts of a token.
struct route_gate {
    enum expert_gate form;
    float largest, inverse; // largest logit, and 1 / the sum of exponentials, for GATE_SOFTMAX
};

static float route_apply(route_gate g, float logit) {
    if (g.form == GATE_SOFTMAX) return exp(logit - g.largest) * g.inverse;
    return g.form == GATE_SIGMOID ? 1 / (1 + exp(-logit)) : logit;
}

static route_gate route_find_gate(constant route_args &a, device const float *logits, int lane) {
    route_gate g = {a.gate, -INFINITY, 1};
    if (a.gate != GATE_SOFTMAX) return g;
    for (int e = lane; e < a.n_experts; e += 32) g.largest = fmax(g.largest, logits[e]);
    g.largest = simd_max(g.largest);
    float sum = 0;
    for (int e = lane; e < a.n_experts; e += 32) sum += exp(logits[e] - g.largest);
    g.inverse = 1 / simd_sum(sum);
    return g;
}

static void route_rank(constant route_args &a, device const float *logits, device const float *bias,
                       threadgroup uint *ranks, int lane) {
    if (a.selection_bias == 0 && a.n_groups <= 1) {
        for (int e = lane; e < a.n_experts; e += 32) ranks[e] = rank_of(logits[e]);
        return;
    }
    const route_gate gate = route_find_gate(a, logits, lane);
    for (int e = lane; e < a.n_experts; e += 32) {
        const float score = route_apply(gate, logits[e]);
        ranks[e] = rank_of(a.selection_bias != 0 ? score + bias[e] : score);
    }
}

// Excludes the experts of all groups but the best n_groups_used.
static void route_keep_groups(constant route_args &a, threadgroup uint *ranks,
                              threadgroup uint *groups, int lane) {
    const int size = a.n_experts / a.n_groups;
    simdgroup_barrier(mem_flags::mem_threadgroup);
    for (int g = lane; g < a.n_groups; g += 32) {
        uint best = RANK_TAKEN, second = RANK_TAKEN;
        for (int e = g * size; e < (g + 1) * size; e++) {
            const uint rank = ranks[e];
            second = rank > best ? best : max(second, rank);
            best = max(best, rank);
        }
        groups[g] = a.groups_by_best ? best : rank_of(score_of(best) + score_of(second));
    }
    for (int i = 0; i < a.n_groups_used; i++) take_best(groups, a.n_groups, lane);
    simdgroup_barrier(mem_flags::mem_threadgroup);
    for (int e = lane; e < a.n_experts; e += 32)
        if (groups[e / size] != RANK_TAKEN) ranks[e] = RANK_TAKEN;
}

// The weight of the expert that this lane holds; undefined in lanes from n_used on.
static float route_weigh(constant route_args &a, device const float *logits, int expert, int lane) {
    const bool holds = lane < a.n_used;
    const float logit = holds ? logits[expert] : -INFINITY;
    route_gate gate = route_find_gate(a, logits, lane);
    if (a.gate == GATE_CHOSEN) {
        gate.form = GATE_SOFTMAX;
        gate.largest = simd_max(fmax(logit, -INFINITY)); // not a NaN
        gate.inverse = 1 / simd_sum(holds ? exp(logit - gate.largest) : 0.0f);
    }
    const float weight = holds ? route_apply(gate, logit) : 0.0f;
    const float sum = fmax(simd_sum(weight), 6.103515625e-5f); // 2^-14
    return (a.normalise ? weight / sum : weight) * a.scale;
}

kernel void route(constant route_args &a [[buffer(0)]],
                  device int *chosen [[buffer(1)]],
                  device float *weights [[buffer(2)]],
                  device const float *logits [[buffer(5)]],
                  device const float *selection_bias [[buffer(6)]],
                  device const float *expert_scale [[buffer(7)]],
                  uint group [[threadgroup_position_in_grid]],
                  uint lane [[thread_index_in_simdgroup]],
                  uint simdgroup [[simdgroup_index_in_threadgroup]]) {
    threadgroup uint ranks_of[ROUTE_TOKENS * EXPERTS_MAX];
    threadgroup uint groups_of[ROUTE_TOKENS * EXPERTS_MAX / 2]; // of two experts or more
    threadgroup uint *ranks = ranks_of + simdgroup * EXPERTS_MAX;
    const int own = int(lane);
    const long token = long(group) * ROUTE_TOKENS + simdgroup;
    if (token >= a.n_tokens) return; // the whole simdgroup; there are no barriers of all
    device const float *of_token = logits + token * a.n_experts;
    route_rank(a, of_token, selection_bias, ranks, own);
    if (a.n_groups > 1) route_keep_groups(a, ranks, groups_of + simdgroup * (EXPERTS_MAX / 2), own);
    int expert = 0;
    for (int k = 0; k < a.n_used; k++) {
        const int best = take_best(ranks, a.n_experts, own);
        if (k == own) expert = best;
    }
    const float weight = route_weigh(a, of_token, expert, own);
    if (own >= a.n_used) return;
    chosen[token * a.n_used + own] = expert;
    weights[token * a.n_used + own] = a.expert_scale != 0 ? weight * expert_scale[expert] : weight;
}

kernel void sort_pairs(constant route_args &a [[buffer(0)]],
                       device const int *chosen [[buffer(1)]],
                       device int *starts [[buffer(3)]],
                       device int *order [[buffer(4)]],
                       uint group [[threadgroup_position_in_grid]],
                       uint index [[thread_index_in_threadgroup]],
                       uint lane [[thread_index_in_simdgroup]],
                       uint simdgroup [[simdgroup_index_in_threadgroup]]) {
    threadgroup int lower_of[SORT_SIMDGROUPS];
    threadgroup int equal_of[SORT_SIMDGROUPS];
    const int expert = int(group), own = int(simdgroup), n_pairs = a.n_tokens * a.n_used;
    const int share = (n_pairs + SORT_PAIRS_THREADS - 1) / SORT_PAIRS_THREADS * 32;
    const int first = own * share, last = min(first + share, n_pairs);
    int lower = 0, equal = 0;
    for (int i = first + int(lane); i < last; i += 32) {
        lower += chosen[i] < expert ? 1 : 0;
        equal += chosen[i] == expert ? 1 : 0;
    }
    lower = simd_sum(lower);
    equal = simd_sum(equal);
    if (lane == 0) {
        lower_of[own] = lower;
        equal_of[own] = equal;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    int start = 0, place = 0;
    for (int i = 0; i < SORT_SIMDGROUPS; i++) {
        start += lower_of[i];
        if (i < own) place += equal_of[i];
    }
    place += start;
    if (index == 0) starts[expert] = start;
    if (index == 0 && expert == a.n_experts - 1) starts[a.n_experts] = n_pairs;
    for (int i = first; i < last; i += 32) {
        const int pair = i + int(lane);
        const int is_own = pair < last && chosen[pair] == expert ? 1 : 0;
        const int before = simd_prefix_exclusive_sum(is_own);
        if (is_own != 0) order[place + before] = pair;
        place += simd_sum(is_own);
    }
}

kernel void combine_experts(constant combine_experts_args &a [[buffer(0)]],
                            device float *out [[buffer(1)]],
                            device const float *x [[buffer(2)]],
                            device const float *weights [[buffer(3)]],
                            device const int *chosen [[buffer(4)]],
                            device const int *slots [[buffer(5)]],
                            device const float *residual [[buffer(6)]],
                            device const float *absent [[buffer(7)]],
                            uint2 group [[threadgroup_position_in_grid]],
                            uint index [[thread_index_in_threadgroup]]) {
    const long token = group.x, pair = token * a.n_used, at = token * a.n_cols;
    const int column = int(group.y) * COMBINE_COLS + int(index);
    float sums[COMBINE_EACH] = {0};
#pragma unroll
    for (int i = 0; i < COMBINE_EACH; i++) {
        const int c = column + i * COMBINE_THREADS;
        if (a.residual != 0 && c < a.n_cols) sums[i] = residual[at + c];
    }
    for (int k = 0; k < a.n_used; k++) {
        const bool is_here = a.slots == 0 || slots[chosen[pair + k]] >= 0;
        if (!is_here && a.absent == 0) continue;
        device const float *row = (is_here ? x : absent) + (pair + k) * a.n_cols;
        const float weight = weights[pair + k];
#pragma unroll
        for (int i = 0; i < COMBINE_EACH; i++) {
            const int c = column + i * COMBINE_THREADS;
            if (c < a.n_cols) sums[i] = fma(weight, row[c], sums[i]);
        }
    }
#pragma unroll
    for (int i = 0; i < COMBINE_EACH; i++) {
        const int c = column + i * COMBINE_THREADS;
        if (c < a.n_cols) out[at + c] = sums[i];
    }
}

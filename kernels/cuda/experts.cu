/* experts.cu: chooses the experts of each token, and sums up their outputs.
 *
 * route: grid (chunks of ROUTE_TOKENS tokens); a warp chooses the experts of a token. The scores
 * lie in shared memory as integers of the same order; a lane compares every 32nd. The warp takes
 * the best score n_used times, so a token reads its logits two or three times and takes n_used *
 * n_experts / 32 steps. Scores are doubles, because no choice may depend on rounding; exponentials
 * are doubles only with a bias or groups, where they are part of the score. Lane i computes the
 * weight of the i-th chosen expert.
 *
 * sort_pairs: grid (n_experts), after route. A block serves one expert and reads the expert of
 * every pair twice: first each warp counts, in its quarter of the pairs, those of lower experts and
 * those of its own expert; then it writes the latter at their places. There are no atomics, so
 * pairs keep their order. Reads n_experts * n_pairs * 8 bytes from cache, 4 MiB for 512 tokens with
 * 8 of 128 experts.
 *
 * combine_experts: grid (n_tokens, chunks of COMBINE_COLS columns). Each thread adds up four
 * columns, in the order of the token's experts. Reads each row of an expert once.
 * Tested by tests/kernels/check_ops.c.
 */
#include "kernels/cuda/exp2.cuh"
#include "kernels/cuda/params.h"

static_assert(ROUTE_THREADS == 32 * ROUTE_TOKENS, "a warp chooses for a token");
static_assert(EXPERTS_USED_MAX <= 32, "a chosen expert is a lane's");

enum { SORT_WARPS = SORT_PAIRS_THREADS / 32 };

DEVICE_FN float minus_infinity() { return __uint_as_float(0xff800000U); }
DEVICE_FN int own_lane() { return (int)threadIdx.x % 32; }

DEVICE_FN uint64_t swap_lanes(uint64_t v, int apart) {
    unsigned high = __shfl_xor_sync(0xffffffffU, (unsigned)(v >> 32), apart);
    return (uint64_t)high << 32 | __shfl_xor_sync(0xffffffffU, (unsigned)v, apart);
}
DEVICE_FN double swap_lanes(double v, int apart) {
    return __longlong_as_double((long long)swap_lanes((uint64_t)__double_as_longlong(v), apart));
}
DEVICE_FN float swap_lanes(float v, int apart) { return __shfl_xor_sync(0xffffffffU, v, apart); }
DEVICE_FN int swap_lanes(int v, int apart) { return __shfl_xor_sync(0xffffffffU, v, apart); }

// The sum of v over the warp, in every lane.
template <class T> DEVICE_FN T warp_sum(T v) {
    for (int apart = 16; apart > 0; apart /= 2) v += swap_lanes(v, apart);
    return v;
}
DEVICE_FN float warp_largest(float v) {
    for (int apart = 16; apart > 0; apart /= 2) v = fmaxf(v, swap_lanes(v, apart));
    return v;
}

// ---- Ranks -------------------------------------------------------------------------------------

// Scores become integers in the same order, with NaN below all of them. Both zeros become one.
static constexpr uint64_t RANK_TAKEN = 0; // less than a NaN: chosen already, or excluded
static constexpr uint64_t RANK_NAN = 1;
static constexpr uint64_t RANK_POSITIVE = 1ULL << 63;
DEVICE_FN uint64_t rank_of(double score) {
    if (score != score) return RANK_NAN;
    uint64_t bits = (uint64_t)__double_as_longlong(score + 0.0);
    return bits & RANK_POSITIVE ? ~bits : bits | RANK_POSITIVE;
}
DEVICE_FN double score_of(uint64_t rank) {
    if (rank == RANK_NAN) return __longlong_as_double(0x7ff8LL << 48);
    return __longlong_as_double((long long)(rank & RANK_POSITIVE ? rank ^ RANK_POSITIVE : ~rank));
}

// Returns the number of the best of n ranks, the lowest among equals, and sets that rank to
// RANK_TAKEN. Lane i reads and writes only ranks i, i + 32, ...
DEVICE_FN int take_best(uint64_t *ranks, int n) {
    uint64_t best = RANK_TAKEN;
    int place = n;
    for (int i = own_lane(); i < n; i += 32)
        if (ranks[i] > best) best = ranks[i], place = i;
    for (int apart = 16; apart > 0; apart /= 2) {
        uint64_t other = swap_lanes(best, apart);
        int other_place = swap_lanes(place, apart);
        if (other > best || (other == best && other_place < place))
            best = other, place = other_place;
    }
    if (place % 32 == own_lane() && place < n) ranks[place] = RANK_TAKEN;
    return place;
}

// ---- route -------------------------------------------------------------------------------------

DEVICE_FN float exp_of(float x) { return __expf(x); }
DEVICE_FN double exp_of(double x) { return exp2_of(x * 1.4426950408889634074); }

// Computes g (ops.h) from a logit, with values that are the same for all experts of a token. T is
// float or double.
template <class T> struct gate_of {
    enum expert_gate gate;
    float largest; // largest logit, and the inverse of the sum of exponentials, for GATE_SOFTMAX
    T inverse;

    DEVICE_FN T apply(const gate_of &g, float logit) {
        if (g.gate == GATE_SOFTMAX) return exp_of((T)logit - (T)g.largest) * g.inverse;
        return g.gate == GATE_SIGMOID ? 1 / (1 + exp_of(-(T)logit)) : (T)logit;
    }
};

template <class T> DEVICE_FN gate_of<T> find_gate(const struct route_args &a, const float *logits) {
    gate_of<T> g = {a.gate, minus_infinity(), 1};
    if (a.gate != GATE_SOFTMAX) return g;
    for (int e = own_lane(); e < a.n_experts; e += 32) g.largest = fmaxf(g.largest, logits[e]);
    g.largest = warp_largest(g.largest);
    T sum = 0;
    for (int e = own_lane(); e < a.n_experts; e += 32) sum += exp_of((T)logits[e] - (T)g.largest);
    g.inverse = 1 / warp_sum(sum);
    return g;
}

DEVICE_FN void rank_experts(const struct route_args &a, const float *logits, uint64_t *ranks) {
    if (!a.selection_bias && a.n_groups <= 1) {
        for (int e = own_lane(); e < a.n_experts; e += 32) ranks[e] = rank_of((double)logits[e]);
        return;
    }
    gate_of<double> gate = find_gate<double>(a, logits);
    for (int e = own_lane(); e < a.n_experts; e += 32) {
        double score = gate_of<double>::apply(gate, logits[e]);
        ranks[e] = rank_of(a.selection_bias ? score + (double)a.selection_bias[e] : score);
    }
}

// Excludes the experts of all groups but the best n_groups_used.
DEVICE_FN void keep_best_groups(const struct route_args &a, uint64_t *ranks, uint64_t *groups) {
    int size = a.n_experts / a.n_groups;
    __syncwarp();
    for (int g = own_lane(); g < a.n_groups; g += 32) {
        uint64_t best = RANK_TAKEN, second = RANK_TAKEN;
        for (int e = g * size; e < (g + 1) * size; e++) {
            if (ranks[e] > best)
                second = best, best = ranks[e];
            else if (ranks[e] > second)
                second = ranks[e];
        }
        groups[g] = a.groups_by_best ? best : rank_of(score_of(best) + score_of(second));
    }
    for (int i = 0; i < a.n_groups_used; i++) take_best(groups, a.n_groups);
    __syncwarp();
    for (int e = own_lane(); e < a.n_experts; e += 32)
        if (groups[e / size] != RANK_TAKEN) ranks[e] = RANK_TAKEN;
}

// The weight of the expert that this lane holds; undefined in lanes from n_used on.
DEVICE_FN float weigh(const struct route_args &a, const float *logits, int expert) {
    bool holds = own_lane() < a.n_used;
    float logit = holds ? logits[expert] : minus_infinity();
    gate_of<float> gate = find_gate<float>(a, logits);
    if (a.gate == GATE_CHOSEN) {
        gate = {GATE_SOFTMAX, warp_largest(logit), 1};
        gate.inverse = 1 / warp_sum(holds ? exp_of(logit - gate.largest) : 0);
    }
    float weight = holds ? gate_of<float>::apply(gate, logit) : 0;
    if (a.normalise) weight /= fmaxf(warp_sum(weight), 6.103515625e-5F); // 2^-14
    weight *= a.scale;
    return holds && a.expert_scale ? weight * a.expert_scale[expert] : weight;
}

KERNEL void __launch_bounds__(ROUTE_THREADS) route(const struct route_args a) {
    __shared__ uint64_t ranks_of[ROUTE_TOKENS][EXPERTS_MAX];
    __shared__ uint64_t groups_of[ROUTE_TOKENS][EXPERTS_MAX / 2]; // of two experts or more
    int warp = (int)threadIdx.x / 32, lane = own_lane(), expert = 0;
    int64_t token = (int64_t)blockIdx.x * ROUTE_TOKENS + warp;
    if (token >= a.n_tokens) return;
    const float *logits = a.logits + token * a.n_experts;
    rank_experts(a, logits, ranks_of[warp]);
    if (a.n_groups > 1) keep_best_groups(a, ranks_of[warp], groups_of[warp]);
    for (int k = 0; k < a.n_used; k++) {
        int best = take_best(ranks_of[warp], a.n_experts);
        if (k == lane) expert = best;
    }
    float weight = weigh(a, logits, expert);
    if (lane >= a.n_used) return;
    a.chosen[token * a.n_used + lane] = expert;
    a.weights[token * a.n_used + lane] = weight;
}

// ---- sort_pairs --------------------------------------------------------------------------------

// Numbers of pairs in one warp's quarter.
struct pair_counts {
    int lower, equal;
};

KERNEL void __launch_bounds__(SORT_PAIRS_THREADS) sort_pairs(const struct route_args a) {
    __shared__ pair_counts counts[SORT_WARPS];
    int expert = (int)blockIdx.x, warp = (int)threadIdx.x / 32, lane = own_lane();
    int n_pairs = a.n_tokens * a.n_used;
    int quarter = (n_pairs + SORT_PAIRS_THREADS - 1) / SORT_PAIRS_THREADS * 32;
    int first = warp * quarter, last = min(first + quarter, n_pairs);
    pair_counts own = {0, 0};
    for (int i = first + lane; i < last; i += 32) {
        int chosen = a.chosen[i];
        own.lower += chosen < expert, own.equal += chosen == expert;
    }
    own.lower = warp_sum(own.lower), own.equal = warp_sum(own.equal);
    if (lane == 0) counts[warp] = own;
    __syncthreads();
    int start = 0, place = 0;
    for (int w = 0; w < SORT_WARPS; w++) {
        start += counts[w].lower;
        if (w < warp) place += counts[w].equal;
    }
    place += start;
    if (threadIdx.x == 0) a.starts[expert] = start;
    if (threadIdx.x == 0 && expert == a.n_experts - 1) a.starts[a.n_experts] = n_pairs;
    for (int i = first; i < last; i += 32) {
        bool is_own = i + lane < last && a.chosen[i + lane] == expert;
        unsigned ballot = __ballot_sync(0xffffffffU, is_own);
        if (is_own) a.order[place + __popc(ballot & ((1U << lane) - 1))] = i + lane;
        place += __popc(ballot);
    }
}

// ---- combine_experts ---------------------------------------------------------------------------

KERNEL void __launch_bounds__(COMBINE_THREADS)
    combine_experts(const struct combine_experts_args a) {
    constexpr int N = COMBINE_COLS / COMBINE_THREADS;
    int64_t token = blockIdx.x, pair = token * a.n_used;
    int column = (int)blockIdx.y * COMBINE_COLS + (int)threadIdx.x;
    float sums[N] = {};
    if (a.residual) {
#pragma unroll
        for (int i = 0; i < N; i++)
            if (column + i * COMBINE_THREADS < a.n_cols)
                sums[i] = a.residual[token * a.n_cols + column + i * COMBINE_THREADS];
    }
    for (int k = 0; k < a.n_used; k++) {
        const float *rows = a.slots && a.slots[a.chosen[pair + k]] < 0 ? a.absent : a.x;
        if (!rows) continue;
        const float *x = rows + (pair + k) * a.n_cols + column;
        float weight = a.weights[pair + k];
#pragma unroll
        for (int i = 0; i < N; i++)
            if (column + i * COMBINE_THREADS < a.n_cols)
                sums[i] = fmaf(weight, x[i * COMBINE_THREADS], sums[i]);
    }
#pragma unroll
    for (int i = 0; i < N; i++)
        if (column + i * COMBINE_THREADS < a.n_cols)
            a.out[token * a.n_cols + column + i * COMBINE_THREADS] = sums[i];
}

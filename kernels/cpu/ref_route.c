/* ref_route.c: the definition of route, in plain C. Every level of the CPU runs it, since its time
 * is negligible beside the matmuls of the experts.
 *
 * Each lane chooses the experts of its tokens; then the lanes meet, and the first one sorts the
 * pairs. A single token is the first lane's work alone. Scores and sums are in double. A NaN or an
 * infinity among the logits can make weights NaN, never an expert that does not exist. Owns
 * nothing. Must not use an instruction set. Tested by tests/kernels/check_ops.c.
 */
#include "kernels/cpu/cpu.h"

#include "base/err.h"

#include <math.h>

// Orders scores: a NaN is less than everything. False for equal scores.
static bool is_better(double a, double b) { return a > b || (isnan(b) && !isnan(a)); }

// Finds the places of the n_best best of n scores, the best first; among equal scores the lower
// place comes first. Only groups of group_size places whose allowed flag is set take part; NULL:
// all do.
static void find_best(const double *scores, int32_t n, const bool *allowed, int32_t group_size,
                      int32_t n_best, int32_t *best) {
    int32_t n_found = 0;
    for (int32_t i = 0; i < n; i++) {
        if (allowed && !allowed[i / group_size]) continue;
        if (n_found == n_best && !is_better(scores[i], scores[best[n_best - 1]])) continue;
        int32_t place = n_found < n_best ? n_found++ : n_best - 1;
        for (; place > 0 && is_better(scores[i], scores[best[place - 1]]); place--)
            best[place] = best[place - 1];
        best[place] = i;
    }
    ASSERT(n_found == n_best);
}

// weights[i] = e^logit over the sum of all: They are NaN if a logit is NaN or +infinite, or all are
// -infinite.
static void softmax(const double *logits, int32_t n, double *weights) {
    double max = -INFINITY, sum = 0;
    for (int32_t i = 0; i < n; i++) max = fmax(max, logits[i]);
    for (int32_t i = 0; i < n; i++) sum += weights[i] = exp(logits[i] - max);
    for (int32_t i = 0; i < n; i++) weights[i] /= sum;
}

// Sets the flags of the n_groups_used groups with the largest best scores, or sums of the two best.
static void allow_groups(const struct route_args *a, const double *scores, bool *allowed) {
    int32_t size = a->n_experts / a->n_groups, best[EXPERTS_MAX];
    double sums[EXPERTS_MAX];
    for (int32_t g = 0; g < a->n_groups; g++) {
        const double *group = scores + (int64_t)g * size;
        find_best(group, size, NULL, 0, 2, best);
        sums[g] = a->groups_by_best ? group[best[0]] : group[best[0]] + group[best[1]];
        allowed[g] = false;
    }
    find_best(sums, a->n_groups, NULL, 0, a->n_groups_used, best);
    for (int32_t i = 0; i < a->n_groups_used; i++) allowed[best[i]] = true;
}

// Computes g of ops.h for every expert of one token. For GATE_CHOSEN g is the logit.
static void open_gates(const struct route_args *a, const double *logits, double *gates) {
    if (a->gate == GATE_SOFTMAX) {
        softmax(logits, a->n_experts, gates);
        return;
    }
    for (int32_t e = 0; e < a->n_experts; e++)
        gates[e] = a->gate == GATE_SIGMOID ? 1 / (1 + exp(-logits[e])) : logits[e];
}

static void weigh(const struct route_args *a, const double *gates, const int32_t *chosen,
                  float *out) {
    double weights[EXPERTS_USED_MAX], sum = 0;
    for (int32_t k = 0; k < a->n_used; k++) weights[k] = gates[chosen[k]];
    if (a->gate == GATE_CHOSEN) softmax(weights, a->n_used, weights);
    for (int32_t k = 0; k < a->n_used; k++) sum += weights[k];
    double factor = a->normalise ? a->scale / fmax(sum, 0x1p-14) : a->scale;
    for (int32_t k = 0; k < a->n_used; k++) {
        double own = a->expert_scale ? a->expert_scale[chosen[k]] : 1;
        out[k] = (float)(weights[k] * factor * own);
    }
}

static void choose(const struct route_args *a, int64_t t) {
    double logits[EXPERTS_MAX], gates[EXPERTS_MAX], scores[EXPERTS_MAX];
    bool allowed[EXPERTS_MAX], grouped = a->n_groups > 1;
    int32_t *chosen = a->chosen + t * a->n_used;
    for (int32_t e = 0; e < a->n_experts; e++) logits[e] = a->logits[t * a->n_experts + e];
    open_gates(a, logits, gates);
    for (int32_t e = 0; e < a->n_experts; e++) {
        double gate = grouped || a->selection_bias ? gates[e] : logits[e];
        scores[e] = a->selection_bias ? gate + a->selection_bias[e] : gate;
    }
    if (grouped) allow_groups(a, scores, allowed);
    find_best(scores, a->n_experts, grouped ? allowed : NULL,
              grouped ? a->n_experts / a->n_groups : 1, a->n_used, chosen);
    weigh(a, gates, chosen, a->weights + t * a->n_used);
}

// Sorts by counting: each pair goes to the next free place of its expert.
static void sort_pairs(const struct route_args *a) {
    int32_t next[EXPERTS_MAX] = {0}, n_pairs = a->n_tokens * a->n_used, start = 0;
    for (int32_t i = 0; i < n_pairs; i++) next[a->chosen[i]]++;
    for (int32_t e = 0; e < a->n_experts; e++) {
        int32_t count = next[e];
        a->starts[e] = next[e] = start;
        start += count;
    }
    a->starts[a->n_experts] = start;
    for (int32_t i = 0; i < n_pairs; i++) a->order[next[a->chosen[i]]++] = i;
}

static void check_sizes(const struct route_args *a) {
    ASSERT(a->n_experts >= 1);
    ASSERT(a->n_experts <= EXPERTS_MAX);
    ASSERT(a->n_used >= 1);
    ASSERT(a->n_used <= a->n_experts);
    ASSERT(a->n_used <= EXPERTS_USED_MAX);
    ASSERT(a->n_tokens <= INT32_MAX / a->n_used);
    if (a->n_groups <= 1) return;
    ASSERT(a->n_experts % a->n_groups == 0);
    ASSERT(a->n_experts / a->n_groups >= 2);
    ASSERT(a->n_groups_used >= 1);
    ASSERT(a->n_groups_used <= a->n_groups);
    ASSERT(a->n_used <= a->n_experts / a->n_groups * a->n_groups_used);
}

void cpu_route(const struct lane *lane, const struct route_args *a) {
    int64_t first = 0, last = 1;
    check_sizes(a);
    if (a->n_tokens == 1 && lane->index != 0) return;
    if (a->n_tokens != 1) lane_share(lane, a->n_tokens, 1, &first, &last);
    for (int64_t t = first; t < last; t++) choose(a, t);
    if (a->n_tokens != 1) lane_barrier(lane);
    if (lane->index == 0) sort_pairs(a);
}

/* candidates.c: see candidates.h. */
#include "runtime/generate/candidates.h"

#include "base/err.h"
#include "base/inline.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

// ---- Heaps --------------------------------------------------------------------------------------

// True if a comes off the heap before b; h is a number that the order depends on.
typedef bool (*before_fn)(const struct candidate *a, const struct candidate *b, float h);

static bool likelier(const struct candidate *a, const struct candidate *b, float h) {
    (void)h;
    return a->logit > b->logit || (a->logit == b->logit && a->token < b->token);
}

static bool unlikelier(const struct candidate *a, const struct candidate *b, float h) {
    return likelier(b, a, h);
}

// How far the surprise of a token is from the entropy.
static float oddity(const struct candidate *c, float entropy) {
    return c->p > 0 ? fabsf(-logf(c->p) - entropy) : INFINITY;
}

static bool more_typical(const struct candidate *a, const struct candidate *b, float entropy) {
    const float x = oddity(a, entropy), y = oddity(b, entropy);
    return x < y || (x == y && a->token < b->token);
}

// Restores a heap of n candidates below place i. The heaps are compiled for each order, so that a
// comparison is no call.
INLINE void sift_down(struct candidate *heap, int32_t i, int32_t n, before_fn before, float h) {
    const struct candidate moved = heap[i];
    for (int32_t child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && before(&heap[child + 1], &heap[child], h)) child++;
        if (!before(&heap[child], &moved, h)) break;
        heap[i] = heap[child];
    }
    heap[i] = moved;
}

INLINE void make_heap(struct candidate *heap, int32_t n, before_fn before, float h) {
    for (int32_t i = n / 2; i-- > 0;) sift_down(heap, i, n, before, h);
}

// Moves the first of the heap of *left candidates behind it.
INLINE const struct candidate *pop(struct candidate *heap, int32_t *left, before_fn before,
                                   float h) {
    const struct candidate first = heap[0];
    heap[0] = heap[--*left];
    heap[*left] = first;
    sift_down(heap, 0, *left, before, h);
    return &heap[*left];
}

// Keeps those that were popped: all from place first on.
static void keep_from(struct candidates *c, int32_t first) {
    c->n -= first;
    memmove(c->list, c->list + first, (size_t)c->n * sizeof *c->list);
}

// ---- Probabilities ------------------------------------------------------------------------------

int32_t candidates_best(const struct candidates *c) {
    int32_t best = 0;
    for (int32_t i = 1; i < c->n; i++)
        if (likelier(&c->list[i], &c->list[best], 0)) best = i;
    return best;
}

void candidates_softmax(struct candidates *c) {
    ASSERT(c->n > 0);
    const float most = c->list[candidates_best(c)].logit;
    double sum = 0;
    for (int32_t i = 0; i < c->n; i++) sum += c->list[i].p = expf(c->list[i].logit - most);
    for (int32_t i = 0; i < c->n; i++) c->list[i].p = (float)(c->list[i].p / sum);
}

static float entropy_of(const struct candidates *c) {
    double entropy = 0;
    for (int32_t i = 0; i < c->n; i++)
        if (c->list[i].p > 0) entropy -= c->list[i].p * logf(c->list[i].p);
    return (float)entropy;
}

// ---- Cuts ---------------------------------------------------------------------------------------

// A heap with the unlikeliest kept candidate on top lets nearly every other one go after one
// comparison.
void candidates_top_k(struct candidates *c, int32_t k) {
    if (k <= 0 || k >= c->n) return;
    make_heap(c->list, k, unlikelier, 0);
    for (int32_t i = k; i < c->n; i++) {
        if (!likelier(&c->list[i], &c->list[0], 0)) continue;
        c->list[0] = c->list[i];
        sift_down(c->list, 0, k, unlikelier, 0);
    }
    c->n = k;
}

// Candidates are taken off a heap one by one, so the unlikely rest is never sorted.
void candidates_top_p(struct candidates *c, float p) {
    if (p >= 1) return;
    int32_t left = c->n;
    double sum = 0;
    candidates_softmax(c);
    make_heap(c->list, left, likelier, 0);
    do sum += pop(c->list, &left, likelier, 0)->p;
    while (sum < p && left > 0);
    keep_from(c, left);
}

void candidates_typical(struct candidates *c, float p) {
    if (p >= 1 || p <= 0) return;
    int32_t left = c->n;
    double sum = 0;
    candidates_softmax(c);
    const float entropy = entropy_of(c);
    make_heap(c->list, left, more_typical, entropy);
    do sum += pop(c->list, &left, more_typical, entropy)->p;
    while (sum <= p && left > 0);
    keep_from(c, left);
}

void candidates_min_p(struct candidates *c, float p) {
    if (p <= 0) return;
    const float most = c->list[candidates_best(c)].logit, least = most + logf(p);
    int32_t kept = 0;
    for (int32_t i = 0; i < c->n; i++)
        if (c->list[i].logit >= least || c->list[i].logit == most) c->list[kept++] = c->list[i];
    c->n = kept;
}

void candidates_top_n_sigma(struct candidates *c, float n) {
    if (n <= 0 || c->n <= 1) return;
    const float most = c->list[candidates_best(c)].logit;
    double sum = 0, squares = 0;
    int32_t count = 0;
    for (int32_t i = 0; i < c->n; i++) {
        if (c->list[i].logit == -INFINITY) continue;
        sum += c->list[i].logit;
        count++;
    }
    if (count == 0) return;
    for (int32_t i = 0; i < c->n; i++) {
        const double distance = c->list[i].logit - sum / count;
        if (c->list[i].logit != -INFINITY) squares += distance * distance;
    }
    const float least = most - n * (float)sqrt(squares / count);
    for (int32_t i = 0; i < c->n; i++)
        if (c->list[i].logit < least) c->list[i].logit = -INFINITY;
}

void candidates_exclude_top(struct candidates *c, float threshold) {
    int32_t least = -1, kept = 0, n_top = 0;
    candidates_softmax(c);
    for (int32_t i = 0; i < c->n; i++) {
        if (c->list[i].p < threshold || c->list[i].p <= 0) continue;
        n_top++;
        if (least < 0 || unlikelier(&c->list[i], &c->list[least], 0)) least = i;
    }
    if (n_top < 2) return;
    const int32_t last = c->list[least].token;
    for (int32_t i = 0; i < c->n; i++)
        if (c->list[i].p < threshold || c->list[i].p <= 0 || c->list[i].token == last)
            c->list[kept++] = c->list[i];
    c->n = kept;
}

// ---- Temperature --------------------------------------------------------------------------------

void candidates_temper(struct candidates *c, float temp) {
    const int32_t best = candidates_best(c);
    if (temp <= 0 || !isfinite(c->list[best].logit / temp)) {
        c->list[0] = c->list[best];
        c->n = 1;
        return;
    }
    for (int32_t i = 0; i < c->n; i++) c->list[i].logit /= temp;
}

void candidates_temper_by_entropy(struct candidates *c, float low, float high, float exponent) {
    if (c->n <= 1) return;
    candidates_softmax(c);
    const float share = entropy_of(c) / logf((float)c->n);
    candidates_temper(c, low + (high - low) * powf(share, exponent));
}

// ---- Mirostat -----------------------------------------------------------------------------------

enum { FALL_OFF_TOKENS = 100 }; // the likeliest ones, from which mirostat 1 estimates

// The exponent s of Zipf's law, p_i ~ i^-s, by least squares over the likeliest.
static double fall_off(struct candidates *c) {
    int32_t left = c->n;
    double tb = 0, tt = 0;
    make_heap(c->list, left, likelier, 0);
    float last = pop(c->list, &left, likelier, 0)->p;
    for (int32_t i = 0; i < FALL_OFF_TOKENS - 1 && left > 0; i++) {
        const float p = pop(c->list, &left, likelier, 0)->p;
        const double t = log((double)(i + 2) / (i + 1));
        tb += t * log((double)last / p);
        tt += t * t;
        last = p;
    }
    return tb / tt;
}

void candidates_mirostat_1(struct candidates *c, float mu, int32_t n_vocab) {
    candidates_softmax(c);
    const double s = fall_off(c), excess = s - 1;
    const double k = pow(excess * exp2(mu) / (1 - pow(n_vocab, -excess)), 1 / s);
    if (k >= c->n) return;
    candidates_top_k(c, k >= 1 ? (int32_t)k : 1); // without a number, as with one candidate: 1
}

void candidates_mirostat_2(struct candidates *c, float mu) {
    candidates_softmax(c);
    const struct candidate best = c->list[candidates_best(c)];
    int32_t kept = 0;
    for (int32_t i = 0; i < c->n; i++)
        if (-log2f(c->list[i].p) <= mu) c->list[kept++] = c->list[i];
    if (kept == 0) c->list[kept++] = best;
    c->n = kept;
}

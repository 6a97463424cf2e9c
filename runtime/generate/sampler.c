/* sampler.c: see sampler.h. */
#include "runtime/generate/sampler.h"

#include "base/clock.h"
#include "base/mem.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>
#include <sys/random.h>

// ---- Random numbers -----------------------------------------------------------------------------

// xoshiro256**, seeded by splitmix64. Source: Blackman and Vigna 2018.

static uint64_t splitmix(uint64_t *state) {
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static uint64_t rotate_left(uint64_t x, int bits) { return x << bits | x >> (64 - bits); }

static uint64_t next_random(uint64_t s[4]) {
    uint64_t result = rotate_left(s[1] * 5, 7) * 9, t = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = rotate_left(s[3], 45);
    return result;
}

double sampler_uniform(struct sampler *s) {
    return (double)(next_random(s->state) >> 11) * 0x1p-53;
}

static int64_t random_seed(void) {
    uint32_t seed;
    if (getentropy(&seed, sizeof seed) != 0) seed = (uint32_t)clock_ns();
    return seed;
}

// ---- Opening and closing ------------------------------------------------------------------------

enum status sampler_init(struct sampler *s, const struct sampler_options *options, int32_t n_vocab,
                         int32_t n_ctx, struct err *e) {
    ASSERT(n_vocab > 0);
    ASSERT(n_ctx > 0);
    ASSERT(options->repeat_penalty > 0);
    *s = (struct sampler){.options = *options, .n_vocab = n_vocab};
    if (s->options.seed < 0) s->options.seed = random_seed();
    uint64_t seed = (uint64_t)s->options.seed;
    for (int i = 0; i < 4; i++) s->state[i] = splitmix(&seed);

    bool penalty = options->repeat_penalty != 1 && options->repeat_last_n != 0;
    if (penalty) {
        bool whole = options->repeat_last_n < 0 || options->repeat_last_n > n_ctx;
        s->n_window = whole ? n_ctx : options->repeat_last_n;
    }
    s->candidates = mem_alloc((size_t)n_vocab, sizeof *s->candidates);
    s->recent = mem_alloc((size_t)s->n_window, sizeof *s->recent);
    if (penalty) s->logits = mem_alloc((size_t)n_vocab, sizeof *s->logits);
    if (s->candidates && s->recent && (s->logits || !penalty)) return OK;
    sampler_close(s);
    return err_memory(e, (size_t)n_vocab * sizeof *s->candidates, "the sampler");
}

void sampler_close(struct sampler *s) {
    mem_free(s->candidates);
    mem_free(s->logits);
    mem_free(s->recent);
    *s = (struct sampler){0};
}

void sampler_accept(struct sampler *s, int32_t token) {
    ASSERT(token >= 0 && token < s->n_vocab);
    if (!s->n_window) return;
    s->recent[s->next] = token;
    s->next = (s->next + 1) % s->n_window;
    if (s->n_recent < s->n_window) s->n_recent++;
}

void sampler_forget(struct sampler *s) { s->n_recent = s->next = 0; }

// ---- The chain ----------------------------------------------------------------------------------

// Returns the logits with the penalty on every token of the window, once however often it occurs.
static const float *penalise(struct sampler *s, const float *logits) {
    if (!s->n_recent) return logits;
    memcpy(s->logits, logits, (size_t)s->n_vocab * sizeof *logits);
    float penalty = s->options.repeat_penalty;
    for (int32_t i = 0; i < s->n_recent; i++) {
        float logit = logits[s->recent[i]];
        s->logits[s->recent[i]] = logit <= 0 ? logit * penalty : logit / penalty;
    }
    return s->logits;
}

// Finds the likeliest token. ERR_DEVICE if the logits cannot be a model's.
static enum status check_logits(const float *logits, int32_t n_vocab, int32_t *best,
                                struct err *e) {
    *best = -1;
    float most = -INFINITY;
    for (int32_t i = 0; i < n_vocab; i++) {
        if (!(logits[i] < INFINITY)) {
            const bool is_nan = isnan(logits[i]);
            err_set(e, ERR_DEVICE, "the logit of token %d is %s", i,
                    is_nan ? "not a number" : "infinite");
            // Keys and values from 65520 on are infinite in halves.
            return err_fix(e, "%scheck the model file; compare with --device none --isa ref",
                           is_nan ? "try -ctk f32 -ctv f32, since numbers may have been too large "
                                    "for the F16 KV cache; "
                                  : "");
        }
        if (logits[i] > most) {
            most = logits[i];
            *best = i;
        }
    }
    if (*best >= 0) return OK;
    return err_set(e, ERR_DEVICE, "all %d logits are minus infinity", n_vocab);
}

static bool likelier(struct candidate a, struct candidate b) {
    return a.logit > b.logit || (a.logit == b.logit && a.token < b.token);
}

// Restores a heap of n candidates below place i; on top is the likeliest, or else the unlikeliest.
static void sift_down(struct candidate *heap, int32_t i, int32_t n, bool likeliest_on_top) {
    struct candidate moved = heap[i];
    for (int32_t child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && likelier(heap[child + 1], heap[child]) == likeliest_on_top) child++;
        if (likelier(heap[child], moved) != likeliest_on_top) break;
        heap[i] = heap[child];
    }
    heap[i] = moved;
}

static void make_heap(struct candidate *heap, int32_t n, bool likeliest_on_top) {
    for (int32_t i = n / 2; i-- > 0;) sift_down(heap, i, n, likeliest_on_top);
}

// Keeps the k likeliest of the logits and returns their number. A heap with the unlikeliest kept
// candidate on top lets nearly every logit go after one comparison.
static int32_t top_k(struct candidate *list, const float *logits, int32_t n_vocab, int32_t k) {
    int32_t n = 0;
    if (k <= 0 || k > n_vocab) k = n_vocab;
    for (int32_t i = 0; i < n_vocab; i++) {
        struct candidate c = {logits[i], i};
        if (c.logit == -INFINITY) continue;
        if (n < k) {
            list[n++] = c;
            if (n == k && k < n_vocab) make_heap(list, n, false);
        } else if (likelier(c, list[0])) {
            list[0] = c;
            sift_down(list, 0, n, false);
        }
    }
    return n;
}

static double sum_of_weights(const struct candidate *list, int32_t n, float most, double temp) {
    double sum = 0;
    for (int32_t i = 0; i < n; i++) sum += exp(((double)list[i].logit - most) / temp);
    return sum;
}

// Keeps the likeliest candidates whose probabilities reach p together. They are taken off a heap
// one by one, so the unlikely rest is never sorted. Returns their number; they move to the front.
static int32_t top_p(struct candidate *list, int32_t n, float most, float p) {
    if (p >= 1) return n;
    double wanted = p * sum_of_weights(list, n, most, 1), sum = 0;
    make_heap(list, n, true);
    int32_t left = n;
    do {
        struct candidate best = list[0];
        list[0] = list[--left];
        list[left] = best;
        sift_down(list, 0, left, true);
        sum += exp((double)best.logit - most);
    } while (sum < wanted && left > 0);
    memmove(list, list + left, (size_t)(n - left) * sizeof *list);
    return n - left;
}

static int32_t min_p(struct candidate *list, int32_t n, float most, float p) {
    if (p <= 0) return n;
    double least = most + log(p);
    int32_t kept = 0;
    for (int32_t i = 0; i < n; i++)
        if (list[i].logit >= least || list[i].logit == most) list[kept++] = list[i];
    return kept;
}

static int32_t draw(struct sampler *s, int32_t n, float most) {
    double temp = s->options.temp;
    double left = sampler_uniform(s) * sum_of_weights(s->candidates, n, most, temp);
    for (int32_t i = 0; i < n - 1; i++) {
        left -= exp(((double)s->candidates[i].logit - most) / temp);
        if (left < 0) return s->candidates[i].token;
    }
    return s->candidates[n - 1].token;
}

enum status sampler_draw(struct sampler *s, const float *logits, int32_t *token, struct err *e) {
    const float *used = penalise(s, logits);
    enum status status = check_logits(used, s->n_vocab, token, e);
    if (status != OK || s->options.temp <= 0) return status;

    float most = used[*token];
    int32_t n = top_k(s->candidates, used, s->n_vocab, s->options.top_k);
    n = top_p(s->candidates, n, most, s->options.top_p);
    n = min_p(s->candidates, n, most, s->options.min_p);
    *token = draw(s, n, most);
    return OK;
}

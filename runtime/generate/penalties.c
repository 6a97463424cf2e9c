/* penalties.c: see penalties.h. */
#include "runtime/generate/penalties.h"

#include "base/mem.h"

#include <math.h>

// ---- The window ---------------------------------------------------------------------------------

static bool repeat_on(const struct penalty_options *o) {
    return o->last_n != 0 && (o->repeat != 1 || o->frequency != 0 || o->presence != 0);
}

bool dry_is_on(const struct dry_options *o) {
    return o->last_n != 0 && o->multiplier != 0 && o->base >= 1;
}

static int32_t window_of(int32_t last_n, int32_t n_ctx) {
    return last_n < 0 || last_n > n_ctx ? n_ctx : last_n;
}

enum status penalties_open(struct penalties *p, const struct penalty_options *repeat,
                           const struct dry_options *dry, int32_t n_vocab, int32_t n_ctx,
                           struct err *e) {
    ASSERT(repeat->repeat > 0);
    *p = (struct penalties){.repeat = *repeat, .dry = *dry};
    p->repeat.last_n = repeat_on(repeat) ? window_of(repeat->last_n, n_ctx) : 0;
    p->dry.last_n = dry_is_on(dry) ? window_of(dry->last_n, n_ctx) : 0;
    p->n_window = p->repeat.last_n > p->dry.last_n ? p->repeat.last_n : p->dry.last_n;
    if (p->n_window == 0) return OK;
    p->recent = mem_alloc((size_t)p->n_window, sizeof *p->recent);
    p->lengths = mem_alloc((size_t)p->n_window, sizeof *p->lengths);
    p->counts = mem_alloc((size_t)n_vocab, sizeof *p->counts);
    if (p->recent && p->lengths && p->counts) return OK;
    penalties_close(p);
    return err_memory(e, (size_t)n_vocab * sizeof *p->counts, "the penalties of the sampler");
}

void penalties_close(struct penalties *p) {
    mem_free(p->recent);
    mem_free(p->lengths);
    mem_free(p->counts);
    *p = (struct penalties){0};
}

void penalties_accept(struct penalties *p, int32_t token) {
    if (!p->n_window) return;
    p->recent[p->next] = token;
    p->next = (p->next + 1) % p->n_window;
    if (p->n_recent < p->n_window) p->n_recent++;
}

void penalties_forget(struct penalties *p) { p->n_recent = p->next = 0; }

// The token i places before the end of the text; 0 is the last one.
static int32_t recent_token(const struct penalties *p, int32_t i) {
    const int32_t at = p->next - 1 - i;
    return p->recent[at < 0 ? at + p->n_window : at];
}

static int32_t in_window(const struct penalties *p, int32_t last_n) {
    return p->n_recent < last_n ? p->n_recent : last_n;
}

// ---- Tokens that occurred -----------------------------------------------------------------------

static float penalised(const struct penalty_options *o, float logit, int32_t count) {
    const float scaled = logit <= 0 ? logit * o->repeat : logit / o->repeat;
    return scaled - ((float)count * o->frequency + o->presence);
}

void penalties_repeat(struct penalties *p, struct candidates *c) {
    const int32_t n = in_window(p, p->repeat.last_n);
    if (n == 0) return;
    for (int32_t i = 0; i < n; i++) p->counts[recent_token(p, i)]++;
    for (int32_t i = 0; i < c->n; i++) {
        const int32_t count = p->counts[c->list[i].token];
        if (count > 0) c->list[i].logit = penalised(&p->repeat, c->list[i].logit, count);
    }
    for (int32_t i = 0; i < n; i++) p->counts[recent_token(p, i)] = 0;
}

// ---- Tokens that would continue a repetition ----------------------------------------------------

// True if the tail follows the token i places before the end.
static bool tail_follows(const struct penalties *p, const struct breaker *b, int32_t i) {
    if (b->n_tail > i) return false;
    for (int32_t k = 0; k < b->n_tail; k++)
        if (b->tail[k] != recent_token(p, i - k - 1)) return false;
    return true;
}

// Tokens behind the last breaker among the last n ones.
static int32_t since_breaker(const struct penalties *p, int32_t n) {
    for (int32_t i = 0; i < n && p->dry.breakers; i++) {
        int32_t n_breakers, longest = -1;
        const struct breaker *b = breakers_of(p->dry.breakers, recent_token(p, i), &n_breakers);
        for (int32_t k = 0; k < n_breakers; k++)
            if (b[k].n_tail > longest && tail_follows(p, &b[k], i)) longest = b[k].n_tail;
        if (longest >= 0) return i - longest;
    }
    return n;
}

// Fills lengths[k] with the number of tokens at the end of the text that also stand k places before
// it: the Z function of the text read backwards.
static void find_repetitions(struct penalties *p, int32_t n) {
    int32_t *z = p->lengths;
    for (int32_t k = 1, left = 0, right = 0; k < n; k++) {
        int32_t length = 0;
        if (k < right) length = z[k - left] < right - k ? z[k - left] : right - k;
        while (k + length < n && recent_token(p, length) == recent_token(p, k + length)) length++;
        z[k] = length;
        if (k + length > right) {
            left = k;
            right = k + length;
        }
    }
}

static bool is_breaker(const struct penalties *p, int32_t token) {
    int32_t n = 0;
    const struct breaker *b = p->dry.breakers ? breakers_of(p->dry.breakers, token, &n) : NULL;
    for (int32_t i = 0; i < n; i++)
        if (b[i].n_tail == 0) return true;
    return false;
}

static float dry_penalty(const struct dry_options *o, int32_t length) {
    // The power stays a finite float.
    const int32_t most = o->base > 1.000001F ? (int32_t)(88.7228391F / logf(o->base)) : 0;
    int32_t exponent = length - o->allowed_length;
    if (most > 0 && exponent > most) exponent = most;
    return o->multiplier * (float)pow(o->base, exponent);
}

void penalties_dry(struct penalties *p, struct candidates *c) {
    const int32_t n = in_window(p, p->dry.last_n), allowed = p->dry.allowed_length;
    if (n <= allowed) return;
    const int32_t limit = since_breaker(p, n);
    if (limit < allowed) return;
    find_repetitions(p, n);
    // The longest repetition that each token would continue, and 1, since 0 stands for none.
    for (int32_t k = 1; k < n; k++) {
        const int32_t length = p->lengths[k] < limit ? p->lengths[k] : limit;
        int32_t *most = &p->counts[recent_token(p, k - 1)];
        if (length >= allowed && length + 1 > *most) *most = length + 1;
    }
    for (int32_t i = 0; i < c->n; i++) {
        const int32_t length = p->counts[c->list[i].token] - 1;
        if (length >= 0 && !is_breaker(p, c->list[i].token))
            c->list[i].logit -= dry_penalty(&p->dry, length);
    }
    for (int32_t k = 0; k < n; k++) p->counts[recent_token(p, k)] = 0;
}

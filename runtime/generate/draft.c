/* draft.c: see draft.h. */
#include "runtime/generate/draft.h"

#include "base/err.h"
#include "base/number.h"

#include <math.h>
#include <string.h>

enum { FIRST_LENGTH = 4, LEAST_LENGTH = 2, LEAST_PAUSE = 16, MOST_PAUSE = 1024, MOST_DRAFTS = 16 };

static const double MARGIN = 4; // passes of one token that drafts may lose before a pause

int32_t draft_find(const struct draft_text *text, int32_t size_n, int32_t most, int32_t *out) {
    ASSERT(size_n >= 1);
    const int32_t *tokens = text->tokens, n = text->n, before = size_n - 1;
    for (int32_t at = n - 1; at >= before; at--) {
        if (tokens[at] != text->last ||
            memcmp(tokens + at - before, tokens + n - before, (size_t)before * sizeof *tokens) != 0)
            continue;
        for (int32_t i = 0; i < most; i++) {
            const int32_t next = at + 1 + i;
            out[i] = next < n ? tokens[next] : next == n ? text->last : out[next - n - 1];
        }
        return max_i32(most, 0);
    }
    return 0;
}

int32_t draft_pace_length(const struct draft_pace *p, int32_t most) {
    if (p->one_ns <= 0 || p->n_skipped > 0 || p->n_drafts >= MOST_DRAFTS) return 0;
    return min_i32(p->length ? p->length : FIRST_LENGTH, most);
}

// Adds saved time to the balance, up to the margin, so that old gains do not hide new losses.
static void add_saved(struct draft_pace *p, double ns) {
    const double margin = MARGIN * p->one_ns;
    p->balance_ns += ns;
    if (p->balance_ns >= margin) {
        p->balance_ns = margin;
        p->pause = 0;
    } else if (p->balance_ns < -margin) {
        p->n_skipped = p->pause ? p->pause : LEAST_PAUSE;
        p->pause = min_i32(2 * p->n_skipped, MOST_PAUSE);
        p->balance_ns = 0;
    }
}

// A pass that was long by chance counts as two. After a draft that was cut short, a model with a
// recurrent state computes tokens again in the next pass, which is the draft's loss.
static void note_one(struct draft_pace *p, double ns) {
    if (p->n_skipped > 0) p->n_skipped--;
    if (p->cut && p->one_ns > 0 && ns > p->one_ns)
        add_saved(p, p->one_ns - ns);
    else
        p->one_ns += p->one_ns > 0 ? (fmin(ns, 2 * p->one_ns) - p->one_ns) / 8 : ns;
}

// A pass that was long by chance adds no more than one of one token, or twice what is known.
static void note_more(struct draft_pace *p, double ns) {
    const double known_ns = p->more_ns, most_ns = known_ns > 0 ? 2 * known_ns : p->one_ns;
    const double more_ns = fmin(fmax(ns, 0), most_ns);
    p->more_ns += known_ns > 0 ? (more_ns - known_ns) / 8 : more_ns;
}

void draft_pace_note(struct draft_pace *p, int32_t n_drafted, int32_t n_accepted, double ns,
                     double guess_ns) {
    ASSERT(n_accepted >= 0);
    ASSERT(n_accepted <= n_drafted);
    p->n_drafts = n_drafted > 0 ? p->n_drafts + 1 : 0;
    if (n_drafted == 0) {
        note_one(p, ns);
        if (guess_ns > 0) { // for nothing: what a draft adds is measured anew at some time
            add_saved(p, -guess_ns);
            p->more_ns -= p->more_ns / 8;
        }
    } else {
        const int32_t length = p->length ? p->length : FIRST_LENGTH;
        if (n_accepted < n_drafted)
            p->length = max_i32(n_accepted + 1, LEAST_LENGTH);
        else if (n_drafted >= length)
            p->length = min_i32(2 * length, DRAFT_SIZE_MOST);
        add_saved(p, (1 + n_accepted) * p->one_ns - ns - guess_ns);
        note_more(p, (ns - p->one_ns) / n_drafted);
    }
    p->cut = n_accepted < n_drafted;
}

/* sampler_order.c: see sampler_order.h. */
#include "runtime/generate/sampler_order.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { OTHER_NAMES = 3 };
static const struct {
    const char *name, *others[OTHER_NAMES];
    char letter;
} steps[SAMPLER_STEPS] = {
    [SAMPLER_PENALTIES] = {"penalties", {NULL}, 'e'},
    [SAMPLER_DRY] = {"dry", {NULL}, 'd'},
    [SAMPLER_TOP_N_SIGMA] = {"top_n_sigma", {NULL}, 's'},
    [SAMPLER_TOP_K] = {"top_k", {NULL}, 'k'},
    [SAMPLER_TYPICAL] = {"typ_p", {"typical_p", "typical", "typ"}, 'y'},
    [SAMPLER_TOP_P] = {"top_p", {"nucleus"}, 'p'},
    [SAMPLER_MIN_P] = {"min_p", {NULL}, 'm'},
    [SAMPLER_XTC] = {"xtc", {NULL}, 'x'},
    [SAMPLER_TEMPERATURE] = {"temperature", {"temp"}, 't'},
};

struct sampler_order sampler_order_of(const struct sampler_order *given) {
    struct sampler_order all = {.n = SAMPLER_STEPS};
    for (int i = 0; i < SAMPLER_STEPS; i++) all.steps[i] = (enum sampler_step)i;
    return given->n > 0 ? *given : all;
}

static enum status refuse(const char *text, size_t length, struct err *e) {
    char known[160] = "";
    size_t used = 0;
    for (int i = 0; i < SAMPLER_STEPS; i++)
        used += (size_t)snprintf(known + used, sizeof known - used, "%s%s (%c)", i ? ", " : "",
                                 steps[i].name, steps[i].letter);
    err_set(e, ERR_USAGE, "no sampler '%.*s'", (int)(length < 40 ? length : 40), text);
    return err_expected(e, "%s", known);
}

static enum status add_step(struct sampler_order *out, enum sampler_step step, struct err *e) {
    if (out->n == 2 * SAMPLER_STEPS)
        return err_set(e, ERR_USAGE, "more than %d samplers in a row", 2 * SAMPLER_STEPS);
    out->steps[out->n++] = step;
    return OK;
}

static bool same_name(const char *name, const char *text, size_t length) {
    if (!name || strlen(name) != length) return false;
    for (size_t i = 0; i < length; i++)
        if (name[i] != (text[i] == '-' ? '_' : text[i])) return false;
    return true;
}

static bool is_step(enum sampler_step step, const char *text, size_t length) {
    bool same = same_name(steps[step].name, text, length);
    for (int i = 0; i < OTHER_NAMES; i++) same |= same_name(steps[step].others[i], text, length);
    return same;
}

enum status sampler_order_names(struct sampler_order *out, const char *text, struct err *e) {
    *out = (struct sampler_order){0};
    for (;;) {
        const size_t length = strcspn(text, ";");
        int step = 0;
        while (step < SAMPLER_STEPS && !is_step((enum sampler_step)step, text, length)) step++;
        if (step == SAMPLER_STEPS) return refuse(text, length, e);
        if (add_step(out, (enum sampler_step)step, e)) return e->status;
        if (!text[length]) return OK;
        text += length + 1;
    }
}

enum status sampler_order_letters(struct sampler_order *out, const char *text, struct err *e) {
    *out = (struct sampler_order){0};
    if (!*text) return refuse(text, 0, e);
    for (const char *letter = text; *letter; letter++) {
        int step = 0;
        while (step < SAMPLER_STEPS && steps[step].letter != *letter) step++;
        if (step == SAMPLER_STEPS) return refuse(text, strlen(text), e);
        if (add_step(out, (enum sampler_step)step, e)) return e->status;
    }
    return OK;
}

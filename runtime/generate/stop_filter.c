/* stop_filter.c: see stop_filter.h. */
#include "runtime/generate/stop_filter.h"

#include "base/mem.h"
#include "base/utf8.h"

#include <string.h>

static enum status add_stop(struct stop_filter *f, const char *text, size_t *longest,
                            struct err *e) {
    const size_t length = strlen(text);
    if (length == 0 || !utf8_valid(text, length)) {
        err_set(e, ERR_USAGE, "a text that ends the output");
        err_expected(e, "at least one character of UTF-8");
        return err_actual(e, "'%.100s'", text);
    }
    char *copy = mem_text(text, length);
    if (!copy) return err_memory(e, length, "a stop text");
    f->stops[f->n_stops++] = copy;
    if (length > *longest) *longest = length;
    return OK;
}

enum status stop_filter_open(struct stop_filter *f, const char *const *texts, int32_t n,
                             size_t most_bytes, struct err *e) {
    size_t longest = 0;
    *f = (struct stop_filter){.stops = mem_alloc((size_t)n, sizeof *f->stops)};
    if (!f->stops) return err_memory(e, (size_t)n * sizeof *f->stops, "the stop texts");
    for (int32_t i = 0; i < n; i++)
        if (add_stop(f, texts[i], &longest, e)) goto fail;
    f->capacity = longest + most_bytes; // less than a whole stop text is held back
    f->text = mem_alloc(f->capacity, 1);
    if (f->text) return OK;
    err_memory(e, f->capacity, "the stop texts");
fail:
    stop_filter_close(f);
    return e->status;
}

void stop_filter_close(struct stop_filter *f) {
    for (int32_t i = 0; i < f->n_stops; i++) mem_free(f->stops[i]);
    mem_free(f->stops);
    mem_free(f->text);
    *f = (struct stop_filter){0};
}

void stop_filter_reset(struct stop_filter *f) {
    f->n_text = f->n_ready = 0;
    f->met = false;
}

// Returns where the first whole stop text begins, or n_text.
static size_t find_whole(const struct stop_filter *f) {
    size_t first = f->n_text;
    for (int32_t i = 0; i < f->n_stops; i++) {
        const char *at = memmem(f->text, f->n_text, f->stops[i], strlen(f->stops[i]));
        if (at && (size_t)(at - f->text) < first) first = (size_t)(at - f->text);
    }
    return first;
}

// True if a stop text begins with all bytes from at on.
static bool may_begin(const struct stop_filter *f, size_t at) {
    for (int32_t i = 0; i < f->n_stops; i++)
        if (strncmp(f->stops[i], f->text + at, f->n_text - at) == 0) return true;
    return false;
}

void stop_filter_push(struct stop_filter *f, const char *piece, size_t length) {
    const size_t held = f->n_text - f->n_ready;
    ASSERT(held + length <= f->capacity);
    memmove(f->text, f->text + f->n_ready, held);
    memcpy(f->text + held, piece, length);
    f->n_text = f->met ? 0 : held + length;
    f->n_ready = find_whole(f);
    if (f->n_ready < f->n_text) {
        f->n_text = f->n_ready;
        f->met = true;
    } else
        for (f->n_ready = 0; f->n_ready < f->n_text && !may_begin(f, f->n_ready);) f->n_ready++;
}

void stop_filter_finish(struct stop_filter *f) { f->n_ready = f->n_text; }

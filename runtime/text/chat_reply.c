/* chat_reply.c: see chat_reply.h. */
#include "runtime/text/chat_reply.h"

#include "base/err.h"

#include <string.h>

// The first row whose sign a template has is used.
static const struct chat_marks MARKS[] = {
    {"<|channel>", "<|channel>thought", "<channel|>", NULL},
    {"<|channel|>", "<|channel|>analysis<|message|>",
     "<|start|>assistant<|channel|>final<|message|>", "<|channel|>final<|message|>"},
    {"[THINK]", "[THINK]", "[/THINK]", NULL},
    {"seed:think>", "<seed:think>", "</seed:think>", NULL},
    {"</think>", "<think>", "</think>", NULL},
    {"<think>", "<think>", "</think>", NULL},
};

const struct chat_marks *chat_marks_find(const char *source, size_t length) {
    for (size_t i = 0; i < sizeof MARKS / sizeof *MARKS; i++)
        if (memmem(source, length, MARKS[i].sign, strlen(MARKS[i].sign))) return &MARKS[i];
    return NULL;
}

static bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

void chat_reply_begin(struct chat_reply *r, const struct chat_marks *marks, const char *prompt,
                      size_t length) {
    r->marks = marks;
    r->n_held = 0;
    r->state = marks ? REPLY_STARTS : REPLY_ANSWERS;
    if (!marks) return;
    while (length > 0 && is_space(prompt[length - 1])) length--;
    const size_t n = strlen(marks->open);
    if (length >= n && memcmp(prompt + length - n, marks->open, n) == 0) r->state = REPLY_THINKS;
}

static void hand_over(struct chat_reply *r, size_t length) {
    const enum chat_part part = r->state == REPLY_THINKS ? CHAT_THOUGHT : CHAT_ANSWER;
    if (length > 0) r->take(r->context, part, r->held, length);
    r->n_held -= length;
    memmove(r->held, r->held + length, r->n_held);
}

// How far held[first..] goes along a mark: 0 not at all, 1 to its end, -1 part of it.
static int goes_along(const struct chat_reply *r, size_t first, const char *mark) {
    const size_t n = r->n_held - first, length = mark ? strlen(mark) : 0;
    if (n > length || memcmp(r->held + first, mark, n) != 0) return 0;
    return n == length ? 1 : -1;
}

// White space and a mark may open a reply; all else is the answer.
static void look_for_start(struct chat_reply *r) {
    size_t space = 0;
    while (space < r->n_held && is_space(r->held[space])) space++;
    if (space == r->n_held && space < CHAT_HELD_BYTES / 4) return;
    const int open = goes_along(r, space, r->marks->open);
    const int direct = r->marks->direct ? goes_along(r, space, r->marks->direct) : 0;
    if (open < 0 || direct < 0) return;
    if (open > 0 || direct > 0) r->n_held = 0;
    r->state = open > 0 ? REPLY_THINKS : direct > 0 ? REPLY_SKIPS : REPLY_ANSWERS;
    hand_over(r, r->n_held);
}

static void look_for_close(struct chat_reply *r) {
    size_t first = 0;
    while (first < r->n_held && goes_along(r, first, r->marks->close) == 0) first++;
    hand_over(r, first);
    if (r->n_held == 0 || goes_along(r, 0, r->marks->close) < 0) return;
    r->n_held = 0;
    r->state = REPLY_SKIPS;
}

void chat_reply_write(struct chat_reply *r, const char *text, size_t length) {
    for (size_t i = 0; i < length; i++) {
        if (r->state == REPLY_SKIPS && !is_space(text[i])) r->state = REPLY_ANSWERS;
        if (r->state == REPLY_ANSWERS) {
            r->take(r->context, CHAT_ANSWER, text + i, length - i);
            return;
        }
        if (r->state == REPLY_SKIPS) continue;
        ASSERT(r->n_held < CHAT_HELD_BYTES);
        r->held[r->n_held++] = text[i];
        if (r->state == REPLY_STARTS)
            look_for_start(r);
        else
            look_for_close(r);
    }
}

void chat_reply_end(struct chat_reply *r) { hand_over(r, r->n_held); }

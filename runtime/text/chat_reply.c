/* chat_reply.c: see chat_reply.h. */
#include "runtime/text/chat_reply.h"

#include "base/err.h"

#include <string.h>

// The first row whose sign a template has is used.
static const struct chat_marks MARKS[] = {
    {.sign = "<|channel>", .open = "<|channel>thought", .close = "<channel|>"},
    {.sign = "<|channel|>",
     .open = "<|channel|>analysis<|message|>",
     .close = "<|end|><|start|>assistant<|channel|>final<|message|>",
     .direct = "<|channel|>final<|message|>",
     .channels = true},
    {.sign = "[THINK]", .open = "[THINK]", .close = "[/THINK]"},
    {.sign = "seed:think>", .open = "<seed:think>", .close = "</seed:think>"},
    {.sign = "<|begin|>assistant<|think|>",
     .open = "<|think|>",
     .close = "<|end|>",
     .head = "<|begin|>assistant",
     .direct = "<|content|>",
     .before = "<|content|>",
     .behind = "<|end|>"},
    {.sign = "<|START_TEXT|>",
     .open = "<|START_THINKING|>",
     .close = "<|END_THINKING|>",
     .before = "<|START_TEXT|>",
     .behind = "<|END_TEXT|>"},
    {.sign = "<|START_THINKING|>",
     .open = "<|START_THINKING|>",
     .close = "<|END_THINKING|>",
     .before = "<|START_RESPONSE|>",
     .behind = "<|END_RESPONSE|>"},
    {.sign = "<|inner_prefix|>", .open = "<|inner_prefix|>", .close = "<|inner_suffix|>"},
    {.sign = "[BEGIN FINAL RESPONSE]",
     .open = "Here are my reasoning steps:",
     .close = "[BEGIN FINAL RESPONSE]",
     .behind = "[END FINAL RESPONSE]"},
    {.sign = "<response></response>",
     .open = "<think>",
     .close = "</think>",
     .before = "<response>",
     .behind = "</response>"},
    {.sign = "<answer>",
     .open = "<think>",
     .close = "</think>",
     .before = "<answer>",
     .behind = "\n</answer>"},
    {.sign = "</think>", .open = "<think>", .close = "</think>"},
    {.sign = "<think>", .open = "<think>", .close = "</think>"},
};

const struct chat_marks *chat_marks_find(const char *source, size_t length) {
    for (size_t i = 0; i < sizeof MARKS / sizeof *MARKS; i++)
        if (memmem(source, length, MARKS[i].sign, strlen(MARKS[i].sign))) return &MARKS[i];
    return NULL;
}

static bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

static bool ends_with(const char *text, size_t length, const char *mark) {
    const size_t n = strlen(mark);
    return length >= n && memcmp(text + length - n, mark, n) == 0;
}

enum chat_opening chat_opening_of(const struct chat_marks *marks, const char *prompt,
                                  size_t length) {
    while (length > 0 && is_space(prompt[length - 1])) length--;
    if (!marks) return CHAT_OPENS_FREE;
    if (ends_with(prompt, length, marks->open)) return CHAT_OPENS_THOUGHT;
    return ends_with(prompt, length, marks->close) ? CHAT_OPENS_ANSWER : CHAT_OPENS_FREE;
}

void chat_reply_begin(struct chat_reply *r, const struct chat_style *style, const char *prompt,
                      size_t length) {
    const struct chat_marks *marks = style->thoughts;
    const enum chat_opening opening = chat_opening_of(marks, prompt, length);
    const bool thinks = opening == CHAT_OPENS_THOUGHT;
    r->style = *style;
    r->n_held = 0;
    r->wrapped = false;
    r->part = opening == CHAT_OPENS_ANSWER ? CHAT_ANSWER : CHAT_THOUGHT;
    r->state = !marks ? REPLY_ANSWERS : thinks ? REPLY_THINKS : REPLY_STARTS;
    if (marks && marks->channels)
        r->state = opening == CHAT_OPENS_FREE ? REPLY_HEADS : REPLY_MESSAGE;
    const bool calls = style->tools && style->calls && style->calls->shape != CALL_CHANNELS;
    chat_calls_begin(&r->calls, calls ? style->calls : NULL, style->tools, r->take, r->context);
}

// Hands over the front of what is held.
static void hand_over(struct chat_reply *r, enum chat_part part, size_t length) {
    if (part == CHAT_ANSWER)
        chat_calls_write(&r->calls, r->held, length);
    else
        chat_calls_pass(&r->calls, part, r->held, length);
    r->n_held -= length;
    memmove(r->held, r->held + length, r->n_held);
}

// How far held[first..] goes along a mark: 0 not at all, 1 to its end, -1 part of it.
static int goes_along(const struct chat_reply *r, size_t first, const char *mark) {
    const size_t n = r->n_held - first, length = mark ? strlen(mark) : 0;
    if (n > length || memcmp(r->held + first, mark, n) != 0) return 0;
    return n == length ? 1 : -1;
}

static void look_for_end_of_answer(struct chat_reply *r);

// Begins an answer, of which some may be held.
static void begin_answer(struct chat_reply *r, bool wrapped) {
    const struct chat_marks *marks = r->style.thoughts;
    r->state = marks->behind && (wrapped || !marks->before) ? REPLY_WRAPPED : REPLY_ANSWERS;
    if (r->state == REPLY_WRAPPED)
        look_for_end_of_answer(r);
    else
        hand_over(r, CHAT_ANSWER, r->n_held);
}

// Some white space and a mark may open a reply; all else is the answer.
static void look_for_start(struct chat_reply *r) {
    enum { SPACE_MOST = 24 };
    const struct chat_marks *marks = r->style.thoughts;
    size_t space = 0;
    while (space < r->n_held && is_space(r->held[space])) space++;
    if (space == r->n_held && space < SPACE_MOST) return;
    const bool text = space < r->n_held;
    const int open = text ? goes_along(r, space, marks->open) : 0;
    const int before = text ? goes_along(r, space, marks->before) : 0;
    if (open <= 0 && before <= 0 && (open < 0 || before < 0)) return;
    if (open > 0 || before > 0) r->n_held = 0;
    if (open > 0)
        r->state = REPLY_THINKS;
    else if (before > 0)
        r->state = REPLY_SKIPS, r->wrapped = true;
    else
        begin_answer(r, false);
}

// The head of a part may come, and the mark that stands right before an answer.
static void look_for_before(struct chat_reply *r) {
    const int head = goes_along(r, 0, r->style.thoughts->head);
    const int before = goes_along(r, 0, r->style.thoughts->before);
    if (head <= 0 && before <= 0 && (head < 0 || before < 0)) return;
    if (head > 0 || before > 0) {
        r->n_held = 0;
        r->state = REPLY_SKIPS;
        r->wrapped = before > 0;
    } else
        begin_answer(r, false);
}

// Hands over an answer up to the mark behind it.
static void look_for_end_of_answer(struct chat_reply *r) {
    const struct chat_marks *marks = r->style.thoughts;
    size_t first = 0;
    while (first < r->n_held && goes_along(r, first, marks->behind) == 0) first++;
    hand_over(r, CHAT_ANSWER, first);
    if (r->n_held == 0 || goes_along(r, 0, marks->behind) < 0) return;
    r->n_held = 0;
    r->wrapped = false;
    r->state = marks->head ? REPLY_SKIPS : REPLY_ANSWERS;
}

// Whether the end of a thought, or a call that ends it, comes; *call: the latter.
static int ends_thought(const struct chat_reply *r, size_t first, bool *call) {
    const struct call_marks *calls = r->style.tools ? r->style.calls : NULL;
    const int close = goes_along(r, first, r->style.thoughts->close);
    const bool loose = calls && calls->in_thoughts && calls->shape == CALL_NAMED;
    const int open = calls && calls->in_thoughts ? goes_along(r, first, calls->open) : 0;
    const int lead = loose ? goes_along(r, first, chat_calls_loose_mark(calls)) : 0;
    *call = open > 0 || lead > 0;
    return close ? close : open ? open : lead;
}

static void look_for_close(struct chat_reply *r) {
    bool call = false;
    size_t first = 0;
    while (first < r->n_held && ends_thought(r, first, &call) == 0) first++;
    hand_over(r, CHAT_THOUGHT, first);
    if (r->n_held == 0 || ends_thought(r, 0, &call) < 0) return;
    if (call) {
        r->state = REPLY_ANSWERS;
        hand_over(r, CHAT_ANSWER, r->n_held);
        return;
    }
    r->n_held = 0;
    r->state = REPLY_SKIPS;
}

// ---- Messages with channels ---------------------------------------------------------------------

static bool head_has(const struct chat_reply *r, const char *text) {
    return memmem(r->held, r->n_held, text, strlen(text));
}

// Begins the message whose head is held. A message to a tool is a call; others are to the person.
static void begin_message(struct chat_reply *r) {
    static const char to[] = "to=functions.";
    const char *name = memmem(r->held, r->n_held, to, strlen(to));
    r->state = REPLY_MESSAGE;
    r->part = head_has(r, "<|channel|>analysis") ? CHAT_THOUGHT : CHAT_ANSWER;
    if (name && r->style.tools) {
        name += strlen(to);
        const char *end = name;
        while (*end != '<' && !is_space(*end)) end++; // the head ends with a mark
        if (end > name) {
            r->part = CHAT_ARGUMENTS;
            chat_calls_pass(&r->calls, CHAT_CALL, name, (size_t)(end - name));
        }
    }
    r->n_held = 0;
}

// A head ends with a mark. What does not look like one is the answer.
static void look_for_message(struct chat_reply *r) {
    static const char mark[] = "<|message|>";
    const bool odd = r->n_held == 1 && r->held[0] != '<' && r->held[0] != ' ';
    if (ends_with(r->held, r->n_held, mark)) {
        begin_message(r);
    } else if (r->n_held == CHAT_HELD_BYTES || (odd && r->part == CHAT_THOUGHT)) {
        r->state = REPLY_ANSWERS;
        hand_over(r, CHAT_ANSWER, r->n_held);
    }
}

static void look_for_end(struct chat_reply *r) {
    static const char *const ends[] = {"<|end|>", "<|start|>", "<|channel|>", "<|call|>",
                                       "<|return|>"};
    for (;;) {
        int along = 0;
        for (size_t i = 0; i < sizeof ends / sizeof *ends && along <= 0; i++) {
            const int one = goes_along(r, 0, ends[i]);
            if (one) along = one;
        }
        if (along < 0 || r->n_held == 0) return;
        if (along > 0) break;
        hand_over(r, r->part, 1);
    }
    r->state = REPLY_HEADS;
    r->part = CHAT_ANSWER; // a second head may begin with any letter
    if (goes_along(r, 0, "<|channel|>") <= 0) r->n_held = 0;
}

// ---- The whole ----------------------------------------------------------------------------------

static void look(struct chat_reply *r) {
    switch (r->state) {
    case REPLY_STARTS: look_for_start(r); return;
    case REPLY_THINKS: look_for_close(r); return;
    case REPLY_HEADS: look_for_message(r); return;
    case REPLY_MESSAGE: look_for_end(r); return;
    case REPLY_UNWRAPS: look_for_before(r); return;
    case REPLY_WRAPPED: look_for_end_of_answer(r); return;
    case REPLY_SKIPS:
    case REPLY_ANSWERS: return;
    }
}

static void take_byte(struct chat_reply *r, char byte) {
    if (r->state == REPLY_SKIPS && is_space(byte)) return;
    if (r->state == REPLY_SKIPS && r->style.thoughts->before && !r->wrapped)
        r->state = REPLY_UNWRAPS;
    else if (r->state == REPLY_SKIPS)
        begin_answer(r, r->wrapped);
    if (r->state == REPLY_ANSWERS) {
        chat_calls_write(&r->calls, &byte, 1);
        return;
    }
    ASSERT(r->n_held < CHAT_HELD_BYTES);
    r->held[r->n_held++] = byte;
    look(r);
}

void chat_reply_write(struct chat_reply *r, const char *text, size_t length) {
    for (size_t i = 0; i < length; i++) take_byte(r, text[i]);
    chat_calls_flush(&r->calls);
}

bool chat_reply_thinks(const struct chat_reply *r) {
    return r->state == REPLY_THINKS || (r->state == REPLY_MESSAGE && r->part == CHAT_THOUGHT);
}

void chat_reply_end(struct chat_reply *r) {
    const bool in_message = r->state == REPLY_MESSAGE, thinks = r->state == REPLY_THINKS;
    hand_over(r, in_message ? r->part : thinks ? CHAT_THOUGHT : CHAT_ANSWER, r->n_held);
    chat_calls_end(&r->calls);
}

/* choice_tokens.c: see choice_tokens.h. */
#include "runtime/commands/choice_tokens.h"

#include "base/mem.h"
#include "base/number.h"

#include <string.h>

enum { FEW = 3 }; // tokens behind what sentences have in common: the choice is scored with them

// Room for the longest text, and the list that it is cut into.
struct encoder {
    const struct tokenizer *tokenizer;
    char *text; // owned
    size_t room;
};

static enum status append(struct encoder *en, size_t *length, struct words words, struct err *e) {
    if (words.length > en->room - *length) {
        const size_t wanted = 2 * (*length + words.length);
        char *larger = mem_resize(en->text, wanted, 1);
        if (!larger) return err_memory(e, wanted, "the text of a task");
        en->text = larger;
        en->room = wanted;
    }
    if (words.length > 0) memcpy(en->text + *length, words.bytes, words.length);
    *length += words.length;
    return OK;
}

// Appends the tokens of three texts in a row.
static enum status encode(struct encoder *en, const struct words parts[3], struct token_list *out,
                          struct err *e) {
    const struct tokenizer_flags flags = {.add_special = true};
    size_t length = 0;
    for (int i = 0; i < 3; i++)
        if (append(en, &length, parts[i], e)) return e->status;
    return tokenizer_encode(en->tokenizer, length ? en->text : "", length, flags, out, e);
}

// Sets common of task t to the tokens with which all of its texts begin.
static void find_common(struct choice_tokens *c, const struct choice_task *task, int32_t t) {
    const struct choice_text *texts = &c->texts[task->first];
    const int32_t *ids = c->ids.ids;
    int32_t common = texts[0].count;
    for (int32_t i = 1; i < task->n; i++) {
        int32_t same = 0;
        while (same < common && same < texts[i].count &&
               ids[texts[0].begin + (uint64_t)same] == ids[texts[i].begin + (uint64_t)same])
            same++;
        common = same;
    }
    c->common[t] = common;
}

// Sets which tokens of the texts of task t count. In first each text of a sentence has the tokens
// up to the end of its choice. The first token of a text has no probability, and one token counts
// even if the text is the beginning of all others.
static void set_range(struct choice_tokens *c, const struct choice_task *task, int32_t t,
                      enum choice_rule rule) {
    struct choice_text *texts = &c->texts[task->first];
    bool behind_choice = rule == CHOICE_SENTENCE;
    for (int32_t i = 0; i < task->n; i++) behind_choice &= texts[i].count - c->common[t] > FEW;
    int32_t common = c->common[t];
    for (int32_t i = 0; i < task->n; i++) {
        struct choice_text *text = &texts[i];
        const int32_t first = behind_choice ? text->first : c->common[t];
        text->first = max_i32(1, min_i32(first, text->count - 1));
        text->last = text->count;
        if (rule == CHOICE_SENTENCE && text->last - text->first > 1) text->last--;
        common = min_i32(common, text->first - 1);
    }
    c->common[t] = common;
}

static enum status too_short(const struct choice_task *task, int32_t count, struct err *e) {
    err_set(e, ERR_FORMAT, "task %d: a text is too short to be scored", task->number);
    err_expected(e, "two tokens");
    return err_actual(e, "%d", count);
}

static enum status encode_task(struct choice_tokens *c, struct encoder *en,
                               const struct choice_tasks *tasks, int32_t t, enum choice_rule rule,
                               struct err *e) {
    const struct choice_task *task = &tasks->tasks[t];
    const struct words space = {" ", 1};
    for (int32_t i = 0; i < task->n; i++) {
        const struct words choice = tasks->choices[task->first + i].text;
        struct words parts[3] = {task->before, rule == CHOICE_ENDINGS ? space : choice,
                                 rule == CHOICE_ENDINGS ? choice : (struct words){0}};
        struct choice_text *text = &c->texts[task->first + i];
        const uint64_t begin = text->begin = c->ids.count;
        if (rule == CHOICE_SENTENCE) {
            if (encode(en, parts, &c->ids, e)) return e->status;
            text->first = (int32_t)(c->ids.count - begin);
            c->ids.count = begin;
            parts[2] = task->after;
        }
        if (encode(en, parts, &c->ids, e)) return e->status;
        text->count = (int32_t)(c->ids.count - begin);
        if (text->count < 2) return too_short(task, text->count, e);
        c->longest = max_i32(c->longest, text->count);
    }
    c->most = max_i32(c->most, task->n);
    find_common(c, task, t);
    set_range(c, task, t, rule);
    return OK;
}

enum status choice_tokens_open(struct choice_tokens *c, const struct choice_tasks *tasks,
                               const struct tokenizer *tokenizer, enum choice_rule rule,
                               struct err *e) {
    const size_t n_tasks = (size_t)tasks->n_tasks, n_texts = (size_t)tasks->n_choices;
    struct encoder en = {.tokenizer = tokenizer};
    enum status status = OK;
    *c = (struct choice_tokens){.texts = mem_alloc(n_texts, sizeof *c->texts),
                                .common = mem_alloc(n_tasks, sizeof *c->common)};
    if (!c->texts || !c->common)
        status = err_memory(e, n_texts * sizeof *c->texts, "the texts of tasks");
    for (int32_t t = 0; status == OK && t < tasks->n_tasks; t++)
        status = encode_task(c, &en, tasks, t, rule, e);
    mem_free(en.text);
    if (status != OK) choice_tokens_close(c);
    return status;
}

void choice_tokens_close(struct choice_tokens *c) {
    token_list_close(&c->ids);
    mem_free(c->texts);
    mem_free(c->common);
    *c = (struct choice_tokens){0};
}

double choice_text_score(const struct choice_text *text) {
    return text->log_sum / (text->last - text->first);
}

int32_t choice_tokens_best(const struct choice_tokens *c, const struct choice_task *task) {
    int32_t best = 0;
    for (int32_t i = 1; i < task->n; i++)
        if (choice_text_score(&c->texts[task->first + i]) >
            choice_text_score(&c->texts[task->first + best]))
            best = i;
    return best;
}

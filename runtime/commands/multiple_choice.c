/* multiple_choice.c: see multiple_choice.h. */
#include "runtime/commands/multiple_choice.h"

#include <string.h>

enum { MOST_ANSWERS = 100 };

struct reader {
    const char *at;
    size_t left;
    uint32_t task; // from 1
};

static enum status ends_early(const struct reader *r, const char *within, uint64_t wanted,
                              struct err *e) {
    err_set(e, ERR_FORMAT, "task %u: the file ends within %s", r->task, within);
    err_expected(e, "%llu more bytes", (unsigned long long)wanted);
    return err_actual(e, "%zu", r->left);
}

static enum status take_number(struct reader *r, const char *within, uint32_t *out, struct err *e) {
    if (r->left < sizeof *out) return ends_early(r, within, sizeof *out, e);
    memcpy(out, r->at, sizeof *out);
    r->at += sizeof *out;
    r->left -= sizeof *out;
    return OK;
}

static enum status take_words(struct reader *r, const char *within, struct words *out,
                              struct err *e) {
    uint32_t length = 0;
    if (take_number(r, within, &length, e)) return e->status;
    if (length > r->left) return ends_early(r, within, length, e);
    *out = (struct words){r->at, length};
    r->at += length;
    r->left -= length;
    return OK;
}

// Adds a list of answers to the last task; out NULL: passes over it.
static enum status take_answers(struct reader *r, struct choice_tasks *out, struct err *e) {
    uint32_t n = 0, label = 0;
    if (take_number(r, "the number of answers", &n, e)) return e->status;
    if (n > MOST_ANSWERS) {
        err_set(e, ERR_FORMAT, "task %u: the number of answers is out of range", r->task);
        err_expected(e, "at most %d", MOST_ANSWERS);
        return err_actual(e, "%u", n);
    }
    for (uint32_t i = 0; i < n; i++) {
        struct words answer;
        if (take_words(r, "an answer", &answer, e)) return e->status;
        if (out && choice_tasks_add_choice(out, answer, false, e)) return e->status;
        if (out && answer.length == 0)
            return err_set(e, ERR_FORMAT, "task %u: answer %u is empty", r->task, i + 1);
    }
    for (uint32_t i = 0; i < n; i++) {
        if (take_number(r, "the labels of answers", &label, e)) return e->status;
        if (out) out->choices[out->n_choices - (int32_t)n + (int32_t)i].is_right = label == 1;
    }
    return OK;
}

static enum status take_task(struct reader *r, struct choice_tasks *out, struct err *e) {
    struct words question;
    bool has_right = false;
    if (take_words(r, "the question", &question, e)) return e->status;
    if (question.length == 0)
        return err_set(e, ERR_FORMAT, "task %u: the question is empty", r->task);
    if (choice_tasks_add(out, question, (struct words){0}, e) || take_answers(r, out, e) ||
        take_answers(r, NULL, e))
        return e->status;
    const struct choice_task *task = &out->tasks[out->n_tasks - 1];
    for (int32_t i = 0; i < task->n; i++) has_right |= out->choices[task->first + i].is_right;
    if (has_right) return OK;
    err_set(e, ERR_FORMAT, "task %u: no answer is the right one", r->task);
    err_expected(e, "an answer with the label 1");
    return err_actual(e, "%d answers without it", task->n);
}

enum status multiple_choice_read(struct choice_tasks *out, const char *bytes, size_t size_bytes,
                                 struct err *e) {
    struct reader r = {bytes, size_bytes, 0};
    uint32_t n_tasks = 0;
    if (take_number(&r, "the number of tasks", &n_tasks, e)) return e->status;
    if (n_tasks > r.left / sizeof(uint32_t)) {
        err_set(e, ERR_FORMAT, "the file ends within the positions of its tasks");
        err_expected(e, "%u positions", n_tasks);
        return err_actual(e, "%zu", r.left / sizeof(uint32_t));
    }
    r.at += n_tasks * sizeof(uint32_t);
    r.left -= n_tasks * sizeof(uint32_t);
    for (r.task = 1; r.task <= n_tasks; r.task++)
        if (take_task(&r, out, e)) return e->status;
    return OK;
}

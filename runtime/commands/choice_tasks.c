/* choice_tasks.c: see choice_tasks.h. */
#include "runtime/commands/choice_tasks.h"

#include "base/mem.h"
#include "runtime/commands/twister.h"

#include <string.h>

enum { FIRST_ROOM = 64 };

void choice_tasks_close(struct choice_tasks *t) {
    mem_free(t->tasks);
    mem_free(t->choices);
    *t = (struct choice_tasks){0};
}

// Makes room for one more element of a list. Returns the list, or NULL after an error.
static void *grow(void *list, int32_t count, int32_t *room, size_t size_bytes, struct err *e) {
    if (count < *room) return list;
    if (count > INT32_MAX / 2) return err_set(e, ERR_LIMIT, "there are too many tasks"), NULL;
    const int32_t wanted = count ? 2 * count : FIRST_ROOM;
    void *larger = mem_resize(list, (size_t)wanted, size_bytes);
    if (!larger) return err_memory(e, (size_t)wanted * size_bytes, "the tasks"), NULL;
    *room = wanted;
    return larger;
}

enum status choice_tasks_add(struct choice_tasks *t, struct words before, struct words after,
                             struct err *e) {
    struct choice_task *tasks = grow(t->tasks, t->n_tasks, &t->task_room, sizeof *tasks, e);
    if (!tasks) return e->status;
    t->tasks = tasks;
    const int32_t i = t->n_tasks++;
    tasks[i] = (struct choice_task){before, after, i + 1, t->n_choices, 0};
    return OK;
}

enum status choice_tasks_add_choice(struct choice_tasks *t, struct words text, bool is_right,
                                    struct err *e) {
    ASSERT(t->n_tasks > 0);
    struct choice *choices = grow(t->choices, t->n_choices, &t->choice_room, sizeof *choices, e);
    if (!choices) return e->status;
    t->choices = choices;
    choices[t->n_choices++] = (struct choice){text, is_right};
    t->tasks[t->n_tasks - 1].n++;
    return OK;
}

// ---- Drawing ------------------------------------------------------------------------------------

// Takes out a random one of n numbers, all alike likely; those behind it move up. Source: Lemire
// 2019, which std::uniform_int_distribution of GNU follows.
static int32_t draw_shuffled(struct twister *random, int32_t *left, int32_t n) {
    const uint32_t range = (uint32_t)n, least = (0 - range) % range;
    uint64_t product = (uint64_t)twister_next(random) * range;
    while ((uint32_t)product < least) product = (uint64_t)twister_next(random) * range;
    const int32_t at = (int32_t)(product >> 32), drawn = left[at];
    memmove(left + at, left + at + 1, (size_t)(n - at - 1) * sizeof *left);
    return drawn;
}

// Takes out a random one of n numbers; the last one takes its place. A product that is rounded up
// to n would name none.
static int32_t draw_swapped(struct twister *random, int32_t *left, int32_t n) {
    const float share = (float)twister_next(random) * 0x1p-32F;
    const int32_t product = (int32_t)(share * (float)n), at = product < n ? product : n - 1;
    const int32_t drawn = left[at];
    left[at] = left[n - 1];
    return drawn;
}

enum status choice_tasks_draw(struct choice_tasks *t, int32_t n, enum draw draw, struct err *e) {
    const bool all = n <= 0 || n >= t->n_tasks;
    if (all && draw == DRAW_IN_ORDER) return OK;
    if (all) n = t->n_tasks;
    struct twister random;
    struct choice_task *drawn = mem_alloc((size_t)n, sizeof *drawn);
    int32_t *left = mem_alloc((size_t)t->n_tasks, sizeof *left);
    if (!drawn || !left) {
        mem_free(drawn);
        mem_free(left);
        return err_memory(e, (size_t)n * sizeof *drawn, "the tasks that are drawn");
    }
    twister_init(&random, 1);
    for (int32_t i = 0; i < t->n_tasks; i++) left[i] = i;
    for (int32_t i = 0; i < n; i++) {
        const int32_t n_left = t->n_tasks - i;
        drawn[i] = t->tasks[draw == DRAW_SHUFFLED ? draw_shuffled(&random, left, n_left)
                                                  : draw_swapped(&random, left, n_left)];
    }
    mem_free(left);
    mem_free(t->tasks);
    t->tasks = drawn;
    t->n_tasks = t->task_room = n;
    return OK;
}

// ---- Lines --------------------------------------------------------------------------------------

void line_reader_init(struct line_reader *r, const char *text, size_t length) {
    while (length > 0 && (text[length - 1] == '\n' || text[length - 1] == '\r')) length--;
    *r = (struct line_reader){length ? text : NULL, text + length, 0};
}

bool line_reader_next(struct line_reader *r, struct words *line) {
    if (!r->at) return false;
    const size_t left = (size_t)(r->end - r->at);
    const char *stop = memchr(r->at, '\n', left);
    *line = (struct words){r->at, stop ? (size_t)(stop - r->at) : left};
    r->at = stop ? stop + 1 : NULL;
    r->number++;
    if (line->length > 0 && line->bytes[line->length - 1] == '\r') line->length--;
    return true;
}

/* choice_tasks.h: tasks of which a model shall find the right one of several texts, as they are in
 * the files that llama-perplexity reads.
 *
 * A struct choice_tasks owns its lists and borrows the text of the file, which outlives it. Tasks
 * are added one by one, each with its choices behind it, and can then be drawn. Must not know a
 * model. One thread. Tested by tests/runtime/test_choice_tasks.c and fuzz_choice_tasks.c.
 */
#ifndef TANDEM_RUNTIME_COMMANDS_CHOICE_TASKS_H
#define TANDEM_RUNTIME_COMMANDS_CHOICE_TASKS_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct words { // borrowed
    const char *bytes;
    size_t length;
};

struct choice {
    struct words text;
    bool is_right;
};

struct choice_task {
    struct words before, after; // the text before each of its choices, and the text behind it
    int32_t number;             // of the file's tasks, from 1
    int32_t first, n;           // its choices
};

struct choice_tasks {
    struct choice_task *tasks; // owned
    struct choice *choices;    // owned
    int32_t n_tasks, n_choices, task_room, choice_room;
};

void choice_tasks_close(struct choice_tasks *t); // accepts a zeroed one; leaves it zeroed

// Adds a task without choices, and a choice to the last task. ERR_MEMORY; ERR_LIMIT above
// INT32_MAX.
enum status choice_tasks_add(struct choice_tasks *t, struct words before, struct words after,
                             struct err *e);
enum status choice_tasks_add_choice(struct choice_tasks *t, struct words text, bool is_right,
                                    struct err *e);

// How llama-perplexity draws tasks.
enum draw {
    DRAW_IN_ORDER, // as with DRAW_SOME, but all of them stay as the file has them
    DRAW_SHUFFLED, // all of them are drawn too
};
// Keeps n random tasks in the order in which they are drawn, which is the same each time. 0, or
// more than there are: all. ERR_MEMORY leaves them as they were.
enum status choice_tasks_draw(struct choice_tasks *t, int32_t n, enum draw draw, struct err *e);

// The lines of a text, one after the other, without what ends them; empty ones at the end of the
// text are none.
struct line_reader {
    const char *at, *end; // at NULL: all lines were read
    int32_t number;       // of the last line that was read, from 1
};
void line_reader_init(struct line_reader *r, const char *text, size_t length);
bool line_reader_next(struct line_reader *r, struct words *line); // false: there is no more

#endif

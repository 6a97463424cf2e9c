/* fuzz_choice_tasks.c: libFuzzer entry for files of HellaSwag, WinoGrande and multiple choice.
 *
 * The first byte chooses the reader and how tasks are drawn. Refusals say why; texts of accepted
 * tasks lie in the file. Run by tests/fuzz/fuzz.sh.
 */
#include "runtime/commands/hellaswag.h"
#include "runtime/commands/multiple_choice.h"
#include "runtime/commands/winogrande.h"

#include "base/mem.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size_bytes);

static void inside(struct words w, const char *file, size_t length) {
    if (w.length == 0) return;
    ASSERT(w.bytes >= file && w.length <= length);
    ASSERT((size_t)(w.bytes - file) <= length - w.length);
}

static void check(const struct choice_tasks *t, const char *file, size_t length) {
    for (int32_t i = 0; i < t->n_tasks; i++) {
        const struct choice_task *task = &t->tasks[i];
        int32_t n_right = 0;
        inside(task->before, file, length);
        inside(task->after, file, length);
        ASSERT(task->n > 0 && task->first >= 0 && task->n <= t->n_choices - task->first);
        for (int32_t k = 0; k < task->n; k++) {
            inside(t->choices[task->first + k].text, file, length);
            n_right += t->choices[task->first + k].is_right;
        }
        ASSERT(n_right > 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size_bytes) {
    if (size_bytes < 1) return 0;
    const size_t length = size_bytes - 1;
    const int32_t wanted = bytes[0] / 8;
    struct choice_tasks t = {0};
    struct err e = {0};
    char *file = mem_text((const char *)bytes + 1, length);
    if (!file) return 0;
    const enum status status = bytes[0] % 4 == 0   ? hellaswag_read(&t, file, length, &e)
                               : bytes[0] % 4 == 1 ? winogrande_read(&t, file, length, &e)
                                                   : multiple_choice_read(&t, file, length, &e);
    if (status == OK) {
        const enum draw draw = bytes[0] & 4 ? DRAW_SHUFFLED : DRAW_IN_ORDER;
        check(&t, file, length);
        ASSERT(choice_tasks_draw(&t, wanted, draw, &e) == OK);
        ASSERT(wanted == 0 || t.n_tasks <= wanted);
        check(&t, file, length);
    } else {
        ASSERT(status == ERR_FORMAT && e.what[0]);
    }
    choice_tasks_close(&t);
    mem_free(file);
    return 0;
}

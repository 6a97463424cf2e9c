/* machine_builtin.c: see machine.h. The machines of configs/machines, as text inside the program.
 *
 * The build writes the list of files (configs/machines/machines.mk). Constant; any thread. Tested
 * by tests/planner/test_machine.c.
 */
#include "planner/machine/machine.h"

#include "base/embed.h"

#include <string.h>

// MACHINE_FILES has a line for each file, in the order of their names: MACHINE_FILE(number, name,
// path). A byte 0 follows each text.
#define MACHINE_FILE(number, name, path) EMBED_FILE(machine_file_##number, path, 1)
#include MACHINE_FILES
#undef MACHINE_FILE

static const struct {
    const char *name, *text;
} FILES[] = {
#define MACHINE_FILE(number, name, path) {name, machine_file_##number},
#include MACHINE_FILES
#undef MACHINE_FILE
};

int32_t machine_builtin_count(void) { return (int32_t)(sizeof FILES / sizeof *FILES); }

const char *machine_builtin_name(int32_t i) {
    ASSERT(i >= 0 && i < machine_builtin_count());
    return FILES[i].name;
}

enum status machine_builtin(struct machine *out, int32_t i, struct err *e) {
    ASSERT(i >= 0 && i < machine_builtin_count());
    if (machine_parse(out, FILES[i].text, strlen(FILES[i].text), e))
        return err_context(e, "built-in machine %s", FILES[i].name);
    return OK;
}

/* shape_builtin.c: see shape.h. The models of configs/models, as text inside the program.
 *
 * The build writes the list of files (configs/models/models.mk). Constant; any thread. Tested by
 * tests/planner/test_shape.c and tests/cli/cli_plan.sh.
 */
#include "planner/shape/shape.h"

#include "base/embed.h"

#include <string.h>

// MODEL_FILES has a line for each file, in the order of names: MODEL_FILE(number, name, path). A
// byte 0 follows each text.
#define MODEL_FILE(number, name, path) EMBED_FILE(model_file_##number, path, 1)
#include MODEL_FILES
#undef MODEL_FILE

static const struct {
    const char *name, *text;
} FILES[] = {
#define MODEL_FILE(number, name, path) {name, model_file_##number},
#include MODEL_FILES
#undef MODEL_FILE
};

int32_t shape_builtin_count(void) { return (int32_t)(sizeof FILES / sizeof *FILES); }

const char *shape_builtin_name(int32_t i) { return FILES[i].name; }

enum status shape_builtin(struct shape *out, int32_t i, struct err *e) {
    if (shape_parse(out, FILES[i].text, strlen(FILES[i].text), e))
        return err_context(e, "built-in model %s", FILES[i].name);
    return OK;
}

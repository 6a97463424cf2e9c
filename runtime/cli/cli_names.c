/* cli_names.c: models and machines as the command line names them: files, or what is built into the
 * program. See cli_command.h. */
#include "planner/planner.h"
#include "runtime/cli/cli_command.h"
#include "runtime/model/gguf_shape.h"

#include <string.h>
#include <unistd.h>

// The machines or models that are built into the program, by name.
struct builtins {
    const char *option;
    int32_t count;
    const char *(*name)(int32_t i);
};

// The index of name in *list, or -1 if it is a file's path. ERR_USAGE if it is neither.
static enum status find_builtin(const struct builtins *list, const char *name, int32_t *index,
                                struct err *e) {
    char known[sizeof e->what - 64] = "";
    for (*index = 0; *index < list->count; ++*index) {
        if (strcmp(name, list->name(*index)) == 0) return OK;
        size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, "%s%s", used ? ", " : "", list->name(*index));
    }
    *index = -1;
    if (strchr(name, '/') || access(name, F_OK) == 0) return OK;
    err_set(e, ERR_USAGE, "%s: '%.40s' is no file and none of %s", list->option, name, known);
    return err_fix(e, "take one of these names or the path of a JSON file");
}

static enum status read_named_shape(struct shape *out, const char *name, struct err *e) {
    const struct builtins known = {"--shape", shape_builtin_count(), shape_builtin_name};
    int32_t i;
    if (find_builtin(&known, name, &i, e)) return e->status;
    return i < 0 ? shape_load(out, name, e) : shape_builtin(out, i, e);
}

enum status cli_read_shape(struct shape *out, const struct cli_options *o, struct err *e) {
    if (o->shape) return read_named_shape(out, o->shape, e);
    struct gguf gguf;
    if (gguf_open(&gguf, o->model, e)) return e->status;
    enum status status = gguf_shape(out, &gguf, e) ? err_context(e, "%s", o->model) : OK;
    gguf_close(&gguf);
    return status;
}

enum status cli_read_machine(struct machine *out, const char *name, struct err *e) {
    const struct builtins known = {"--machine", machine_builtin_count(), machine_builtin_name};
    int32_t i;
    if (find_builtin(&known, name, &i, e)) return e->status;
    return i < 0 ? machine_load(out, name, e) : machine_builtin(out, i, e);
}

/* cli_names.c: models and machines as the command line names them: files, or what is built into the
 * program. See cli_command.h. */
#include "planner/planner.h"
#include "runtime/cli/cli_command.h"
#include "runtime/model/gguf_shape.h"
#include "runtime/report/report_json.h"
#include "runtime/text/vocab_match.h"

#include <ctype.h>
#include <string.h>
#include <unistd.h>

enum { NAME_CHARS = 48 };

// The machines or models that are built into the program, by name.
struct builtins {
    const char *option;
    int32_t count;
    const char *(*name)(int32_t i);
};

// Letters and digits alone count, so that "RTX3060 Laptop" finds rtx-3060-laptop-6g.
static void fold(char out[NAME_CHARS], const char *name) {
    size_t used = 0;
    for (; *name && used < NAME_CHARS - 1; name++)
        if (isalnum((unsigned char)*name)) out[used++] = (char)tolower((unsigned char)*name);
    out[used] = 0;
}

// Counts the names that begin with name, both folded, and writes them to text[size]. *index is the
// one that is meant: the whole name, or the only one.
static int32_t find_names(const struct builtins *list, const char *name, int32_t *index, char *text,
                          size_t size) {
    char wanted[NAME_CHARS], own[NAME_CHARS];
    int32_t count = 0;
    fold(wanted, name);
    text[0] = 0;
    for (int32_t i = 0; i < list->count; i++) {
        fold(own, list->name(i));
        if (strncmp(own, wanted, strlen(wanted)) != 0) continue;
        if (strcmp(own, wanted) == 0) return *index = i, 1;
        *index = i;
        count++;
        err_list_add(text, size, list->name(i));
    }
    return count;
}

// The index of what name means in *list, or -1 if it is a file's path. ERR_USAGE if it is neither.
static enum status find_builtin(const struct builtins *list, const char *name, int32_t *index,
                                struct err *e) {
    char found[sizeof e->fix - 32];
    *index = -1;
    if (strchr(name, '/') || access(name, F_OK) == 0) return OK;
    const int32_t count = *name ? find_names(list, name, index, found, sizeof found) : 0;
    if (count == 1) return OK;
    if (count > 0) {
        err_set(e, ERR_USAGE, "%s: '%.40s' begins %d names", list->option, name, (int)count);
        return err_fix(e, "take one of %s", found);
    }
    err_set(e, ERR_USAGE, "%s: '%.40s' is no file and none of the %d names that are built in",
            list->option, name, (int)list->count);
    return err_fix(e, "'tandem plan %s list' shows them; the beginning of one is enough",
                   list->option);
}

static struct builtins known_shapes(void) {
    return (struct builtins){"--shape", shape_builtin_count(), shape_builtin_name};
}

static struct builtins known_machines(void) {
    return (struct builtins){"--machine", machine_builtin_count(), machine_builtin_name};
}

enum status cli_print_names(const struct cli_options *o, struct err *e) {
    const bool shapes = o->shape && strcmp(o->shape, "list") == 0;
    const struct builtins known = shapes ? known_shapes() : known_machines();
    json_t *names = o->json ? json_array() : NULL;
    for (int32_t i = 0; i < known.count; i++) {
        if (o->json)
            json_array_append_new(names, json_string(known.name(i)));
        else
            puts(known.name(i));
    }
    return o->json ? report_json_write(json_pack("{s:o}", "names", names), stdout, e) : OK;
}

static enum status read_named_shape(struct shape *out, const char *name, struct err *e) {
    const struct builtins known = known_shapes();
    int32_t i;
    if (find_builtin(&known, name, &i, e)) return e->status;
    return i < 0 ? shape_load(out, name, e) : shape_builtin(out, i, e);
}

enum status cli_read_shape(struct shape *out, const struct cli_options *o, struct err *e) {
    return o->shape ? read_named_shape(out, o->shape, e) : gguf_shape_of_file(out, o->model, e);
}

enum status cli_read_draft_shape(struct shape *out, const struct cli_options *o, struct err *e) {
    struct err ignored;
    if (access(o->draft_model.path, F_OK) != 0 &&
        read_named_shape(out, o->draft_model.path, &ignored) == OK)
        return OK;
    if (gguf_shape_of_file(out, o->draft_model.path, e)) return e->status;
    return o->shape ? OK : vocab_match_files(o->model, o->draft_model.path, e);
}

enum status cli_read_machine(struct machine *out, const char *name, struct err *e) {
    const struct builtins known = known_machines();
    int32_t i;
    if (find_builtin(&known, name, &i, e)) return e->status;
    return i < 0 ? machine_load(out, name, e) : machine_builtin(out, i, e);
}

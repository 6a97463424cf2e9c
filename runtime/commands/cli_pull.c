/* cli_pull.c: `tandem pull`, `list` and `rm`: fetches models by name, lists and removes them. See
 * commands.h. */
#include "runtime/commands/commands.h"

#include "base/mem.h"
#include "runtime/cli/cli_models.h"
#include "runtime/commands/inspect_summary.h"
#include "runtime/report/report_json.h"

#include <string.h>
#include <sys/stat.h>
#include <time.h>

// ---- pull ---------------------------------------------------------------------------------------

// Says where the model would run here and how fast, from its header alone. What goes wrong on the
// way is told, and no reason not to fetch it.
static void tell_plan(struct cli *cli, const char *repo, const struct hub_files *files) {
    struct inspect_summary summary = {0};
    struct gguf gguf = {0};
    struct err e = {0};
    struct hub_heads heads = {0};
    char text[1024];
    if (cli->options.quiet) return;
    if (cli_models_heads(cli, repo, files, &heads, &e) || gguf_open(&gguf, heads.path, &e) ||
        inspect_summary_make(&summary, &gguf, cli, &e))
        fprintf(stderr, "tandem: no plan: %s\n", err_sentence(&e, text, sizeof text));
    else
        inspect_summary_print_speed(&summary, stderr);
    inspect_summary_close(&summary);
    gguf_close(&gguf);
    hub_heads_close(&heads);
}

static enum status print_pulled(struct cli *cli, const char *repo, const struct hub_files *files,
                                struct err *e) {
    char path[PATH_MAX], name[MODEL_NAME_CHARS];
    if (hub_cache_path(path, cli->models.hub.folder, repo, &files->list[0], e)) return e->status;
    cli_models_name(name, repo, &files->list[0]);
    if (cli->options.json)
        return report_json_write(json_pack("{s:s, s:o, s:o, s:o}", "name", name, "path",
                                           report_json_text(path, strlen(path)), "bytes",
                                           report_json_count(hub_files_bytes(files)), "files",
                                           report_json_count((uint64_t)files->n)),
                                 stdout, e);
    printf("%s\n", path);
    if (!cli->options.quiet && !hub_path_is_model(files->list[0].path))
        fprintf(stderr, "tandem: %s of %s is here\n", files->list[0].path, repo);
    else if (!cli->options.quiet)
        fprintf(stderr, "tandem: %s is here; try it: tandem chat -hf %s\n", name, name);
    return OK;
}

enum status cli_pull(struct cli *cli, struct err *e) {
    const struct cli_options *o = &cli->options;
    const struct hub *hub = &cli->models.hub;
    struct hub_name name;
    struct hub_files files = {0};
    if (cli_models_check_folder(cli, e) || hub_name_parse(&name, o->hub_repo, e)) return e->status;
    enum status status = hub->offline ? cli_models_find_offline(cli, &name, o->hub_file, &files, e)
                                      : hub_ask(&files, hub, &name, o->hub_file, e);
    if (status == OK && hub_missing(hub, name.repo, &files) > 0) tell_plan(cli, name.repo, &files);
    if (status == OK) status = cli_models_fetch(cli, name.repo, &files, e);
    if (status == OK) status = print_pulled(cli, name.repo, &files, e);
    hub_files_close(&files);
    return status;
}

// ---- list ---------------------------------------------------------------------------------------

struct listing {
    const struct cli *cli;
    json_t *json; // with --json, else NULL
    int32_t n;
};

// The name that chooses this model among all that are here, or that of the repository if none does.
static void name_model(char name[MODEL_NAME_CHARS], const char *repo, const struct hub_files *all,
                       const struct hub_file *file) {
    struct hub_files chosen = {0};
    struct err ignored;
    const char *tag = strchr(cli_models_name(name, repo, file), ':');
    if (tag && (hub_files_choose(&chosen, all, repo, tag + 1, NULL, &ignored) != OK ||
                strcmp(chosen.list[0].path, file->path) != 0))
        snprintf(name, MODEL_NAME_CHARS, "%s", repo);
    hub_files_close(&chosen);
}

static void add_model(struct listing *l, const char *repo, const struct hub_files *all,
                      const struct hub_files *model, struct err *e) {
    char path[PATH_MAX], name[MODEL_NAME_CHARS], size[ERR_SIZE_CHARS];
    const uint64_t bytes = hub_files_bytes(model);
    if (hub_cache_path(path, l->cli->models.hub.folder, repo, &model->list[0], e)) return;
    name_model(name, repo, all, &model->list[0]);
    l->n++;
    if (l->json)
        json_array_append_new(l->json, json_pack("{s:s, s:o, s:o}", "name", name, "path",
                                                 report_json_text(path, strlen(path)), "bytes",
                                                 report_json_count(bytes)));
    else
        printf("%-56s %12s  %s\n", name, err_size_needed(size, bytes), model->list[0].path);
}

// Tells of what 'pull' left, which is no model yet but takes room: parts of files, and n_bytes of
// whole files of split models.
static enum status tell_parts(const struct cli *cli, const char *repo, uint64_t n_bytes,
                              struct err *e) {
    uint64_t bytes;
    char size[ERR_SIZE_CHARS];
    if (hub_cache_parts(cli->models.hub.folder, repo, false, &bytes, e)) return e->status;
    if (bytes + n_bytes > 0 && !cli->options.quiet)
        fprintf(stderr,
                "tandem: %s of %s were fetched in part; 'tandem pull' goes on, 'tandem rm %s' "
                "removes all of it\n",
                err_size_limit(size, bytes + n_bytes), repo, repo);
    return OK;
}

static enum status list_repo(void *context, const char *repo, struct err *e) {
    struct listing *l = context;
    struct hub_files all = {0};
    if (hub_cache_files(&all, l->cli->models.hub.folder, repo, e)) return e->status;
    uint64_t left = hub_files_bytes(&all); // that no model has
    for (int32_t i = 0; i < all.n; i++) {
        struct hub_part part;
        struct hub_files model = {0};
        struct err incomplete;
        if (hub_part_of(&part, all.list[i].path) && part.number == 1 &&
            hub_files_choose(&model, &all, repo, "", all.list[i].path, &incomplete) == OK) {
            add_model(l, repo, &all, &model, e);
            left -= hub_files_bytes(&model);
        }
        hub_files_close(&model);
    }
    hub_files_close(&all);
    return e->status ? e->status : tell_parts(l->cli, repo, left, e);
}

enum status cli_list(struct cli *cli, struct err *e) {
    struct listing l = {.cli = cli, .json = cli->options.json ? json_array() : NULL};
    if (cli_models_check_folder(cli, e)) return e->status;
    const enum status status = hub_cache_repos(cli->models.hub.folder, list_repo, &l, e);
    if (status == OK && l.json) return report_json_write(l.json, stdout, e);
    json_decref(l.json);
    if (status == OK && l.n == 0 && !cli->options.quiet)
        fprintf(stderr, "tandem: no models in %s; 'tandem pull' fetches one\n",
                cli->models.hub.folder);
    return status;
}

// ---- rm -----------------------------------------------------------------------------------------

// Removes what the newest snapshot has of the model at path, or of all without one. *found says
// whether there was anything.
static enum status remove_once(const struct hub *hub, const struct hub_name *name, const char *path,
                               uint64_t *freed, bool *found, struct err *e) {
    struct hub_files files = {0};
    uint64_t bytes = 0;
    enum status status = path ? hub_find(&files, hub, name, path, e)
                              : hub_cache_files(&files, hub->folder, name->repo, e);
    *found = status == OK && files.n > 0;
    if (*found) status = hub_cache_remove(hub->folder, name->repo, &files, &bytes, e);
    *freed += bytes;
    hub_files_close(&files);
    return status;
}

enum status cli_rm(struct cli *cli, struct err *e) {
    struct hub_name name;
    const struct hub *hub = &cli->models.hub;
    struct hub_files first = {0};
    const char *path = cli->options.hub_file;
    uint64_t freed = 0;
    char size[ERR_SIZE_CHARS];
    bool found = false, more = true;
    if (cli_models_check_folder(cli, e) || hub_name_parse(&name, cli->options.hub_repo, e))
        return e->status;
    if (!path && name.file[0]) path = name.file;
    if (name.tag[0] && !path) {
        if (hub_find(&first, hub, &name, NULL, e)) return e->status;
        more = first.n > 0;
        path = more ? first.list[0].path : NULL;
    }
    enum status status = OK;
    if (!path && more) {
        status = hub_cache_parts(hub->folder, name.repo, true, &freed, e);
        found = freed > 0;
    }
    // Older snapshots may have it too.
    while (status == OK && more) {
        status = remove_once(hub, &name, path, &freed, &more, e);
        found |= more;
    }
    hub_files_close(&first);
    if (status) return status;
    if (!found) {
        err_set(e, ERR_FILE, "%s is not here", cli->options.hub_repo);
        return err_fix(e, "'tandem list' shows what is here");
    }
    if (!cli->options.quiet)
        fprintf(stderr, "tandem: removed %s, %s\n", cli->options.hub_repo,
                err_size_limit(size, freed));
    return OK;
}

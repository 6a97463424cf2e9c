/* cli_models.c: see cli_models.h. */
#include "runtime/cli/cli_models.h"

#include "base/file.h"
#include "base/mem.h"
#include "runtime/cli/cli_signal.h"
#include "runtime/gguf/gguf.h"

#include <errno.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

static const char ENDPOINT[] = "https://huggingface.co";

// Headers are mostly vocabulary: 1 to 20 MiB.
static const uint64_t FIRST_HEAD_BYTES = 1 << 20, MOST_HEAD_BYTES = 64 << 20;

// ---- Where --------------------------------------------------------------------------------------

// Writes base/rest to out[PATH_MAX], as the hub's own programs read a path: ~ is the home, and one
// that is relative begins where the program was started.
static bool join(char *out, const char *base, const char *rest, const char *home) {
    char here[PATH_MAX];
    const bool at_home = base[0] == '~' && (!base[1] || base[1] == '/');
    const char *first = base[0] == '/' ? "" : at_home ? home : getcwd(here, sizeof here);
    if (!first) return false;
    const char *slash = base[0] == '/' || at_home ? "" : "/";
    const int length =
        snprintf(out, PATH_MAX, "%s%s%s%s", first, slash, at_home ? base + 1 : base, rest);
    return length > 0 && length < PATH_MAX;
}

// Where something may lie, by a variable that names a folder around it.
struct place {
    const char *variable, *rest;
    bool any; // the path may also be relative
};

// Writes the first place whose variable is set to out[PATH_MAX], and returns the variable; NULL if
// there is none.
static const char *find_place(char *out, const struct place *places, size_t count,
                              char *const *variables) {
    for (size_t i = 0; i < count; i++) {
        const char *base = cli_variable(variables, places[i].variable);
        if (base && (places[i].any || base[0] == '/'))
            return join(out, base, places[i].rest, cli_variable(variables, "HOME"))
                       ? places[i].variable
                       : NULL;
    }
    return NULL;
}

static void find_folder(struct cli_models *m, char *const *variables) {
    static const struct place places[] = {
        {"LLAMA_CACHE", "", true},
        {"HF_HUB_CACHE", "", true},
        {"HUGGINGFACE_HUB_CACHE", "", true},
        {"HF_HOME", "/hub", true},
        {"XDG_CACHE_HOME", "/huggingface/hub", false},
        {"HOME", "/.cache/huggingface/hub", false},
    };
    m->variable = find_place(m->folder, places, sizeof places / sizeof *places, variables);
    if (m->variable) m->hub.folder = m->folder;
}

// Reads the first word of the file that 'hf auth login' writes.
static bool read_token(struct cli_models *m, const char *path) {
    char *text;
    size_t length;
    struct err ignored;
    if (access(path, R_OK) != 0 ||
        file_read_text(&text, &length, path, sizeof m->token - 1, &ignored))
        return false;
    snprintf(m->token, sizeof m->token, "%.*s", (int)strcspn(text, " \r\n\t"), text);
    mem_free(text);
    return m->token[0] != 0;
}

static void find_token(struct cli_models *m, const char *given, char *const *variables) {
    static const struct place places[] = {
        {"HF_TOKEN_PATH", "", true},
        {"HF_HOME", "/token", true},
        {"XDG_CACHE_HOME", "/huggingface/token", false},
        {"HOME", "/.cache/huggingface/token", false},
    };
    char path[PATH_MAX];
    if (!given) given = cli_variable(variables, "HF_TOKEN");
    m->hub.token = given;
    if (!given && find_place(path, places, sizeof places / sizeof *places, variables) &&
        read_token(m, path))
        m->hub.token = m->token;
}

// The option or variable that forbids to ask the hub; NULL without one. The hub's own programs read
// the second variable only where the first is not set.
static const char *find_offline(bool by_option, char *const *variables) {
    static const char *const names[] = {"HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"};
    static const char *const words[] = {"1", "on", "yes", "true"};
    bool on;
    const char *text = cli_variable(variables, "LLAMA_ARG_OFFLINE");
    if (by_option) return "--offline";
    if (text && llama_switch_parse(text, &on) && on) return "LLAMA_ARG_OFFLINE"; // of pull
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        text = cli_variable(variables, names[i]);
        for (size_t k = 0; text && k < sizeof words / sizeof *words; k++)
            if (strcasecmp(text, words[k]) == 0) return names[i];
        if (text) return NULL;
    }
    return NULL;
}

void cli_models_open(struct cli *cli, char *const *variables) {
    struct cli_models *m = &cli->models;
    const char *endpoint = cli_variable(variables, "HF_ENDPOINT");
    m->hub = (struct hub){.endpoint = endpoint ? endpoint : ENDPOINT,
                          .progress = cli_progress(cli),
                          .log = &cli->log};
    m->hub.offline = find_offline(cli->options.offline, variables);
    find_folder(m, variables);
    find_token(m, cli->options.hub_token, variables);
}

void cli_models_close(struct cli *cli) {
    hub_heads_close(&cli->models.heads);
    hub_heads_close(&cli->models.draft_heads);
}

enum status cli_models_check_folder(const struct cli *cli, struct err *e) {
    const struct cli_models *m = &cli->models;
    struct stat found;
    if (!m->hub.folder) {
        err_set(e, ERR_FILE, "there is no folder for models by name");
        return err_fix(e, "set HOME or HF_HUB_CACHE to an absolute path");
    }
    const bool there = stat(m->hub.folder, &found) == 0;
    if (there ? S_ISDIR(found.st_mode) : errno == ENOENT) return OK; // it is made when it is needed
    err_errno(e, there ? ENOTDIR : errno, "the folder for models, %s", m->hub.folder);
    return err_fix(e, "%s names it: set that to a folder", m->variable);
}

char *cli_models_name(char out[MODEL_NAME_CHARS], const char *repo, const struct hub_file *file) {
    struct hub_part part = {0};
    hub_part_of(&part, file->path);
    const bool has_tag = part.tag[0] && hub_path_is_model(file->path);
    snprintf(out, MODEL_NAME_CHARS, "%s%s%s", repo, has_tag ? ":" : "", has_tag ? part.tag : "");
    return out;
}

// ---- Fetching -----------------------------------------------------------------------------------

enum status cli_models_find_offline(const struct cli *cli, const struct hub_name *name,
                                    const char *file, struct hub_files *files, struct err *e) {
    const struct hub *hub = &cli->models.hub;
    if (hub_find(files, hub, name, file, e)) return e->status;
    if (files->n > 0) return OK;
    err_set(e, ERR_FILE, "%s%s%s is not here, and %s forbids to fetch it", name->repo,
            name->tag[0] ? ":" : "", name->tag, hub->offline);
    return err_fix(e, "'tandem list' shows what is here");
}

enum status cli_models_fetch(struct cli *cli, const char *repo, const struct hub_files *files,
                             struct err *e) {
    char name[MODEL_NAME_CHARS], all[ERR_SIZE_CHARS], left[ERR_SIZE_CHARS];
    const uint64_t total = hub_files_bytes(files),
                   missing = hub_missing(&cli->models.hub, repo, files);
    cli_models_name(name, repo, &files->list[0]);
    if (!cli->options.quiet && missing == total)
        fprintf(stderr, "tandem: fetching %s, %s, into %s\n", name, err_size_needed(all, total),
                cli->models.hub.folder);
    else if (!cli->options.quiet && missing > 0)
        fprintf(stderr, "tandem: fetching the rest of %s, %s of %s, into %s\n", name,
                err_size_needed(left, missing), err_size_needed(all, total),
                cli->models.hub.folder);
    const enum status status = hub_fetch(&cli->models.hub, repo, files, e);
    progress_bar_clear(&cli->bar);
    if (status == ERR_CANCELLED) err_fix(e, "the same command goes on");
    return status;
}

enum status cli_models_heads(const struct cli *cli, const char *repo, const struct hub_files *files,
                             struct hub_heads *heads, struct err *e) {
    struct gguf gguf;
    struct hub quiet = cli->models.hub;
    quiet.progress = (struct progress){0};
    // A header that is cut reads as wrong: in its place are zeros.
    for (uint64_t bytes = FIRST_HEAD_BYTES;; bytes *= 4) {
        if (hub_heads_fetch(heads, &quiet, repo, files, bytes, e)) return e->status;
        if (gguf_open(&gguf, heads->path, e) == OK) break;
        if (bytes >= MOST_HEAD_BYTES || bytes >= files->list[0].size_bytes) return e->status;
        *e = (struct err){0};
    }
    gguf_close(&gguf);
    return OK;
}

// ---- The model of a command ---------------------------------------------------------------------

// True if the command reads the header of a model alone.
static bool needs_header(enum command command) {
    return command == COMMAND_PLAN || command == COMMAND_INSPECT || command == COMMAND_SHOW ||
           command == COMMAND_TOKENIZE || command == COMMAND_DOCTOR;
}

// A model that the options name, and where its path goes.
struct wanted {
    const char *text, *file; // its name, and of its files this one, or NULL
    char *path;              // [PATH_MAX]
    struct hub_heads *heads;
};

static enum status find_files(struct cli *cli, const struct wanted *w, const struct hub_name *name,
                              struct hub_files *files, struct err *e) {
    const struct cli_models *m = &cli->models;
    if (m->hub.offline && cli_models_find_offline(cli, name, w->file, files, e)) return e->status;
    if (!m->hub.offline && hub_find(files, &m->hub, name, w->file, e)) return e->status;
    if (files->n == 0) {
        if (hub_ask(files, &m->hub, name, w->file, e)) return e->status;
        if (needs_header(cli->options.command)) {
            if (cli_models_heads(cli, name->repo, files, w->heads, e)) return e->status;
            snprintf(w->path, PATH_MAX, "%s", w->heads->path);
            return OK;
        }
        if (cli_models_fetch(cli, name->repo, files, e)) return e->status;
    }
    return hub_cache_path(w->path, m->hub.folder, name->repo, &files->list[0], e);
}

static enum status find_model(struct cli *cli, const struct wanted *w, struct err *e) {
    struct hub_name name;
    struct hub_files files = {0};
    if (cli_models_check_folder(cli, e) || hub_name_parse(&name, w->text, e)) return e->status;
    const enum status status = find_files(cli, w, &name, &files, e);
    hub_files_close(&files);
    return status;
}

static bool ends_in_gguf(const char *text) {
    const char *end = strrchr(text, '.');
    return end && strcmp(end, ".gguf") == 0;
}

// Refuses a path that is none, but the name of a model on the hub or an address.
static enum status check_path(const char *path, struct err *e) {
    if (strstr(path, "://") && access(path, F_OK) != 0) {
        err_errno(e, ENOENT, "%s", path);
        return err_fix(e, "-m names a file; the address of one at huggingface.co: -mu %s", path);
    }
    if (!hub_name_is(path) || ends_in_gguf(path) || access(path, F_OK) == 0) return OK;
    err_errno(e, ENOENT, "%s", path);
    return err_fix(e, "-m names a file; a model of that name at huggingface.co: -hf %s", path);
}

static enum status check_draft_path(const char *path, struct err *e) {
    if (!hub_name_is(path) || ends_in_gguf(path) || access(path, F_OK) == 0) return OK;
    err_errno(e, ENOENT, "%s", path);
    return err_fix(e, "-md names a file; a model of that name at huggingface.co: -hfd %s", path);
}

static enum status check_paths(const struct cli_options *o, struct err *e) {
    if (o->model && check_path(o->model, e)) return e->status;
    if (o->draft_model.path && check_draft_path(o->draft_model.path, e)) return e->status;
    for (int32_t i = 0; o->command == COMMAND_BENCH && i < o->bench.models.n; i++)
        if (check_path(o->bench.models.texts[i], e)) return e->status;
    return OK;
}

// True if show is given a file, there or not.
static bool shows_file(const struct cli_options *o) {
    const bool is_address = strstr(o->hub_repo, "://");
    return o->command == COMMAND_SHOW &&
           (access(o->hub_repo, F_OK) == 0 || (ends_in_gguf(o->hub_repo) && !is_address));
}

static enum status take_draft_model(struct cli *cli, struct err *e) {
    struct cli_options *o = &cli->options;
    struct cli_models *m = &cli->models;
    const struct wanted w = {o->draft_model.repo, NULL, m->draft_path, &m->draft_heads};
    if (!w.text || o->drafts != DRAFTS_MODEL) return OK;
    signal_watch();
    if (find_model(cli, &w, e)) return err_context(e, "the draft model");
    o->draft_model.path = m->draft_path;
    return OK;
}

static enum status take_model(struct cli *cli, struct err *e) {
    struct cli_options *o = &cli->options;
    struct cli_models *m = &cli->models;
    const struct wanted w = {o->hub_repo, o->hub_file, m->path, &m->heads};
    const bool manages = o->command == COMMAND_PULL || o->command == COMMAND_RM;
    signal_watch(); // from here on Ctrl-C stops transfers, and what came is kept
    if (manages) return OK;
    if (shows_file(o)) {
        o->model = o->hub_repo;
        return OK;
    }
    if (find_model(cli, &w, e)) return e->status;
    if (o->command == COMMAND_BENCH)
        o->bench.models.texts[o->bench.models.n++] = m->path;
    else
        o->model = m->path;
    return OK;
}

enum status cli_models_take(struct cli *cli, struct err *e) {
    const struct cli_options *o = &cli->options;
    if (cli_options_list_names(o) || o->bench.list_devices) return OK; // needs no model
    if (check_paths(o, e) || (o->hub_repo && take_model(cli, e))) return e->status;
    return take_draft_model(cli, e);
}

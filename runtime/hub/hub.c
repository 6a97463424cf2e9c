/* hub.c: see hub.h. */
#include "runtime/hub/hub.h"

#include "base/file.h"
#include "base/mem.h"
#include "base/number.h"
#include "runtime/hub/transfer.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum {
    ANSWER_BYTES = 32 << 20, // of the hub about a model
    PAGES_MOST = 200,        // of a list of files; the hub's have a thousand each
    URL_CHARS = TRANSFER_URL_CHARS,
    LATER_HEAD_BYTES = 1 << 20, // of a part after the first: the records of its tensors
};

// ---- Addresses ----------------------------------------------------------------------------------

// endpoint/before/commit/path, with what is no letter or the like as %XX. path may be "".
static void make_url(char out[URL_CHARS], const struct hub *hub, const char *before,
                     const char *path) {
    const size_t length = strlen(hub->endpoint);
    const bool slash = length > 0 && hub->endpoint[length - 1] == '/';
    size_t used = (size_t)snprintf(out, URL_CHARS, "%.*s/%s%s", (int)length - slash, hub->endpoint,
                                   before, path[0] ? "/" : "");
    for (; *path && used + 4 < URL_CHARS; path++) {
        const bool plain = isalnum((unsigned char)*path) || strchr("-._~/", *path);
        used += (size_t)snprintf(out + used, URL_CHARS - used, plain ? "%c" : "%%%02X",
                                 (unsigned char)*path);
    }
}

static void file_url(char out[URL_CHARS], const struct hub *hub, const char *repo,
                     const struct hub_file *file) {
    char before[HUB_REPO_CHARS + HUB_COMMIT_CHARS + 16];
    snprintf(before, sizeof before, "%s/resolve/%s", repo, file->commit);
    make_url(out, hub, before, file->path);
}

// The file that is asked for; NULL: the tag decides.
static const char *wanted_file(const struct hub_name *name, const char *file) {
    return file || !name->file[0] ? file : name->file;
}

// ---- Finding ------------------------------------------------------------------------------------

enum status hub_find(struct hub_files *out, const struct hub *hub, const struct hub_name *name,
                     const char *file, struct err *e) {
    struct hub_files all = {0};
    struct err absent = {0};
    enum status status = hub_cache_files(&all, hub->folder, name->repo, e);
    if (status == OK && all.n > 0 &&
        hub_files_choose(out, &all, name->repo, name->tag, wanted_file(name, file), &absent) !=
            OK) {
        hub_files_close(out);
        if (absent.status == ERR_MEMORY) {
            *e = absent;
            status = e->status;
        }
    }
    hub_files_close(&all);
    return status;
}

static enum status ask(struct transfer_answer *out, const struct hub *hub, const char *what,
                       struct err *e) {
    char url[URL_CHARS];
    make_url(url, hub, what, "");
    const struct transfer_source source = {url, hub->token, hub->progress, hub->log};
    return transfer_text(&source, out, ANSWER_BYTES, e);
}

static enum status ask_commit(char commit[HUB_COMMIT_CHARS + 1], const struct hub *hub,
                              const char *repo, struct err *e) {
    char what[HUB_REPO_CHARS + 32];
    struct transfer_answer answer;
    snprintf(what, sizeof what, "api/models/%s/revision/main", repo);
    if (ask(&answer, hub, what, e)) return e->status;
    const enum status status = hub_parse_commit(commit, answer.text, answer.length, e);
    mem_free(answer.text);
    return status;
}

// Adds the files of all pages of the list. The address of a next page may name the hub that a
// mirror stands for: what counts is its path there, so that nobody else is asked, nor gets the
// token.
static enum status ask_files(struct hub_files *all, const struct hub *hub, const char *repo,
                             const char *commit, struct err *e) {
    static const char api[] = "api/models/";
    char what[URL_CHARS];
    snprintf(what, sizeof what, "%s%s/tree/%s?recursive=true", api, repo, commit);
    for (int page = 0; page < PAGES_MOST; page++) {
        struct transfer_answer answer;
        if (ask(&answer, hub, what, e)) return e->status;
        const enum status status = hub_files_parse(all, commit, answer.text, answer.length, e);
        mem_free(answer.text);
        if (status || !answer.next[0]) return status;
        const char *next = strstr(answer.next, api);
        if (!next) return err_set(e, ERR_FORMAT, "the hub's list of files goes on nowhere");
        snprintf(what, sizeof what, "%s", next);
    }
    return err_set(e, ERR_LIMIT, "the hub's list of files has more than %d pages", PAGES_MOST);
}

enum status hub_ask(struct hub_files *out, const struct hub *hub, const struct hub_name *name,
                    const char *file, struct err *e) {
    char commit[HUB_COMMIT_CHARS + 1];
    struct hub_files all = {0};
    if (ask_commit(commit, hub, name->repo, e)) return e->status;
    enum status status = ask_files(&all, hub, name->repo, commit, e);
    if (status == OK)
        status = hub_files_choose(out, &all, name->repo, name->tag, wanted_file(name, file), e);
    for (int32_t i = 0; status == OK && i < out->n; i++)
        if (!out->list[i].sha256[0])
            status = err_set(e, ERR_FORMAT, "the hub gives no sha256 of %.120s", out->list[i].path);
    hub_files_close(&all);
    return status;
}

// ---- Fetching -----------------------------------------------------------------------------------

static uint64_t size_of(const char *path) {
    struct stat found;
    return stat(path, &found) == 0 && S_ISREG(found.st_mode) ? (uint64_t)found.st_size : 0;
}

// True if the file is here: as a blob, or itself in the snapshot, where a disk knows no links.
static bool is_here(const struct hub *hub, const char *repo, const struct hub_file *file) {
    char path[PATH_MAX];
    struct err ignored;
    if (hub_cache_blob(path, hub->folder, repo, file, false, &ignored) == OK &&
        size_of(path) == file->size_bytes)
        return true;
    return hub_cache_path(path, hub->folder, repo, file, &ignored) == OK &&
           size_of(path) == file->size_bytes;
}

// The bytes of a file that are here, whole or as a part.
static uint64_t present(const struct hub *hub, const char *repo, const struct hub_file *file) {
    char path[PATH_MAX];
    struct err ignored;
    if (is_here(hub, repo, file)) return file->size_bytes;
    if (hub_cache_blob(path, hub->folder, repo, file, true, &ignored)) return 0;
    return min_u64(size_of(path), file->size_bytes);
}

uint64_t hub_missing(const struct hub *hub, const char *repo, const struct hub_files *files) {
    uint64_t bytes = 0;
    for (int32_t i = 0; i < files->n; i++)
        bytes += files->list[i].size_bytes - present(hub, repo, &files->list[i]);
    return bytes;
}

static enum status check_room(const struct hub *hub, uint64_t bytes, struct err *e) {
    struct statvfs disk;
    char size[ERR_SIZE_CHARS];
    if (statvfs(hub->folder, &disk) != 0) return err_errno(e, errno, "%s", hub->folder);
    const uint64_t room = (uint64_t)disk.f_bavail * disk.f_frsize;
    if (room >= bytes) return OK;
    err_set(e, ERR_FILE, "%s has no room for the model", hub->folder);
    err_expected(e, "%s", err_size_needed(size, bytes));
    err_actual(e, "%s", err_size_limit(size, room));
    return err_fix(
        e,
        "remove models with 'tandem rm', or name another folder with LLAMA_CACHE or HF_HUB_CACHE");
}

// Fetches one file, whose blob may be there: other commits or programs fetched it.
static enum status fetch_file(const struct hub *hub, const char *repo, const struct hub_file *file,
                              uint64_t done_bytes, uint64_t total_bytes, struct err *e) {
    char url[URL_CHARS], part[PATH_MAX], blob[PATH_MAX];
    if (is_here(hub, repo, file)) return hub_cache_link(hub->folder, repo, file, e);
    if (hub_cache_blob(part, hub->folder, repo, file, true, e) ||
        hub_cache_blob(blob, hub->folder, repo, file, false, e))
        return e->status;
    file_url(url, hub, repo, file);
    const struct transfer_source source = {url, hub->token, hub->progress, hub->log};
    const struct transfer_target target = {part, file->size_bytes, file->sha256, done_bytes,
                                           total_bytes};
    if (transfer_file(&source, &target, e)) return e->status;
    // Another program that waited for the lock may have given it its name.
    if (rename(part, blob) != 0 && size_of(blob) != file->size_bytes)
        return err_errno(e, errno, "%s", blob);
    return hub_cache_link(hub->folder, repo, file, e);
}

enum status hub_fetch(const struct hub *hub, const char *repo, const struct hub_files *files,
                      struct err *e) {
    const uint64_t total = hub_files_bytes(files);
    uint64_t done = 0;
    if (hub_cache_begin(hub->folder, repo, e) || check_room(hub, hub_missing(hub, repo, files), e))
        return e->status;
    for (int32_t i = 0; i < files->n; i++) {
        if (fetch_file(hub, repo, &files->list[i], done, total, e)) return e->status;
        done += files->list[i].size_bytes;
    }
    return OK;
}

// ---- Headers ------------------------------------------------------------------------------------

static enum status begin_heads(struct hub_heads *heads, const struct hub *hub,
                               const struct hub_files *files, struct err *e) {
    const char *first = strrchr(files->list[0].path, '/');
    if (file_make_folders(hub->folder, e)) return e->status;
    const int length =
        snprintf(heads->folder, PATH_MAX, "%s/.tandem-%ld", hub->folder, (long)getpid());
    if (length < 0 || length + HUB_PATH_CHARS >= PATH_MAX) {
        heads->folder[0] = 0;
        return err_set(e, ERR_LIMIT, "the path %.80s... is too long", hub->folder);
    }
    if (mkdir(heads->folder, 0700) != 0 && errno != EEXIST)
        return err_errno(e, errno, "%s", heads->folder);
    snprintf(heads->path, PATH_MAX, "%s/%s", heads->folder,
             first ? first + 1 : files->list[0].path);
    return OK;
}

// Brings the bytes up to n_bytes of a file to its copy, which is as long as the file.
static enum status fetch_head(const struct hub_heads *heads, const struct hub *hub,
                              const char *repo, const struct hub_file *file, uint64_t n_bytes,
                              struct err *e) {
    char path[PATH_MAX], url[URL_CHARS];
    const char *name = strrchr(file->path, '/');
    const uint64_t first = heads->n_bytes, last = min_u64(n_bytes, file->size_bytes);
    if (last <= first) return OK;
    snprintf(path, sizeof path, "%s/%s", heads->folder, name ? name + 1 : file->path);
    const int descriptor = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (descriptor < 0) return err_errno(e, errno, "%s", path);
    file_url(url, hub, repo, file);
    const struct transfer_source source = {url, hub->token, hub->progress, hub->log};
    enum status status = OK;
    if (ftruncate(descriptor, (off_t)file->size_bytes) != 0 ||
        lseek(descriptor, (off_t)first, SEEK_SET) < 0)
        status = err_errno(e, errno, "%s", path);
    if (status == OK) status = transfer_range(&source, descriptor, first, last - first, e);
    close(descriptor);
    return status;
}

enum status hub_heads_fetch(struct hub_heads *heads, const struct hub *hub, const char *repo,
                            const struct hub_files *files, uint64_t n_bytes, struct err *e) {
    if (!heads->folder[0] && begin_heads(heads, hub, files, e)) return e->status;
    for (int32_t i = 0; i < files->n; i++) {
        const uint64_t limit = i == 0 ? n_bytes : min_u64(n_bytes, LATER_HEAD_BYTES);
        if (fetch_head(heads, hub, repo, &files->list[i], limit, e)) return e->status;
    }
    heads->n_bytes = n_bytes;
    return OK;
}

void hub_heads_close(struct hub_heads *heads) {
    struct dirent *entry;
    DIR *folder = heads->folder[0] ? opendir(heads->folder) : NULL;
    while (folder && (entry = readdir(folder)))
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            unlinkat(dirfd(folder), entry->d_name, 0);
    if (folder) closedir(folder);
    if (heads->folder[0]) rmdir(heads->folder);
    *heads = (struct hub_heads){0};
}

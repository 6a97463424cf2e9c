/* hub_cache.c: see hub_cache.h. */
#include "runtime/hub/hub_cache.h"

#include "base/file.h"
#include "base/mem.h"
#include "base/new_file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { DEPTH_LIMIT = 4 }; // folders in a snapshot
static const char PREFIX[] = "models--";

// ---- Paths --------------------------------------------------------------------------------------

static enum status join(char out[PATH_MAX], struct err *e, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static enum status join(char out[PATH_MAX], struct err *e, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    const int length = vsnprintf(out, PATH_MAX, format, arguments);
    va_end(arguments);
    if (length > 0 && length < PATH_MAX) return OK;
    return err_set(e, ERR_LIMIT, "the path %.80s... is too long", out);
}

// folder/models--ORG--REPO
static enum status repo_folder(char out[PATH_MAX], const char *folder, const char *repo,
                               struct err *e) {
    const char *slash = strchr(repo, '/');
    ASSERT(slash);
    return join(out, e, "%s/%s%.*s--%s", folder, PREFIX, (int)(slash - repo), repo, slash + 1);
}

// below, in the folder of the repository, with name right behind it.
static enum status repo_path(char out[PATH_MAX], const char *folder, const char *repo,
                             const char *below, const char *name, struct err *e) {
    char base[PATH_MAX];
    if (repo_folder(base, folder, repo, e)) return e->status;
    return join(out, e, "%s/%s%s", base, below, name);
}

enum status hub_cache_path(char out[PATH_MAX], const char *folder, const char *repo,
                           const struct hub_file *file, struct err *e) {
    char text[HUB_COMMIT_CHARS + HUB_PATH_CHARS + 2];
    ASSERT(hub_path_is_safe(file->path) && hub_is_hex(file->commit, HUB_COMMIT_CHARS));
    snprintf(text, sizeof text, "%s/%s", file->commit, file->path);
    return repo_path(out, folder, repo, "snapshots/", text, e);
}

enum status hub_cache_blob(char out[PATH_MAX], const char *folder, const char *repo,
                           const struct hub_file *file, bool incomplete, struct err *e) {
    char text[HUB_SHA256_CHARS + 16];
    ASSERT(hub_is_hex(file->sha256, HUB_SHA256_CHARS));
    snprintf(text, sizeof text, "%s%s", file->sha256, incomplete ? ".incomplete" : "");
    return repo_path(out, folder, repo, "blobs/", text, e);
}

// ---- Writing ------------------------------------------------------------------------------------

enum status hub_cache_begin(const char *folder, const char *repo, struct err *e) {
    static const char *const parts[] = {"blobs", "refs", "snapshots"};
    char path[PATH_MAX];
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (repo_path(path, folder, repo, parts[i], "", e) || file_make_folders(path, e))
            return e->status;
    return OK;
}

static enum status write_ref(const char *folder, const char *repo, const char *commit,
                             struct err *e) {
    char path[PATH_MAX];
    struct new_file file = {0};
    if (repo_path(path, folder, repo, "refs/", "main", e) == OK &&
        new_file_open_over(&file, path, e) == OK &&
        new_file_write(&file, commit, strlen(commit), e) == OK)
        new_file_commit(&file, e);
    new_file_close(&file);
    return e->status;
}

static bool is_whole(const char *path, const struct hub_file *file) {
    struct stat found;
    return stat(path, &found) == 0 && S_ISREG(found.st_mode) &&
           (uint64_t)found.st_size == file->size_bytes;
}

// Links path to the blob at target, or lets the link of a program that was faster be. A disk that
// knows no links gets the blob itself there, as the hub's own library does it.
static enum status link_blob(const char *folder, const char *repo, const struct hub_file *file,
                             const char *path, const char *target, struct err *e) {
    char blob[PATH_MAX];
    unlink(path);
    if (symlink(target, path) == 0) return OK;
    const int failure = errno;
    if (failure == EEXIST && is_whole(path, file)) return OK;
    const bool no_links = failure == EPERM || failure == EOPNOTSUPP || failure == ENOSYS;
    if (!no_links) return err_errno(e, failure, "%s", path);
    if (hub_cache_blob(blob, folder, repo, file, false, e)) return e->status;
    return rename(blob, path) == 0 ? OK : err_errno(e, errno, "%s", path);
}

enum status hub_cache_link(const char *folder, const char *repo, const struct hub_file *file,
                           struct err *e) {
    char path[PATH_MAX], target[PATH_MAX];
    struct stat found;
    size_t used = 0;
    if (hub_cache_path(path, folder, repo, file, e)) return e->status;
    if (lstat(path, &found) == 0 && S_ISREG(found.st_mode) &&
        (uint64_t)found.st_size == file->size_bytes)
        return write_ref(folder, repo, file->commit, e);
    char *const slash = strrchr(path, '/');
    *slash = 0;
    if (file_make_folders(path, e)) return e->status;
    *slash = '/';
    // From the folder of the link: up to the snapshot, then out of it and of snapshots/.
    for (const char *at = file->path; *at; at++)
        if (*at == '/') used += (size_t)snprintf(target + used, sizeof target - used, "../");
    snprintf(target + used, sizeof target - used, "../../blobs/%s", file->sha256);
    if (link_blob(folder, repo, file, path, target, e)) return e->status;
    return write_ref(folder, repo, file->commit, e);
}

// ---- Reading ------------------------------------------------------------------------------------

// The names in a folder, sorted; a folder that is not there has none. ERR_FILE.
static enum status scan(const char *path, struct dirent ***names, int *n, struct err *e) {
    *names = NULL;
    *n = scandir(path, names, NULL, alphasort);
    if (*n >= 0) return OK;
    const bool none = errno == ENOENT || errno == ENOTDIR;
    *n = 0;
    return none ? OK : err_errno(e, errno, "%s", path);
}

// They come from libc's malloc.
static void close_scan(struct dirent **names, int n) {
    for (int i = 0; i < n; i++) mem_free(names[i]);
    mem_free(names);
}

// Adds the file at path, whose name in the snapshot is name, if it is a whole GGUF file.
static enum status add_file(struct hub_files *out, const char *path, const char *commit,
                            const char *name, struct err *e) {
    struct hub_file file = {0};
    struct hub_part part;
    struct stat found;
    char target[PATH_MAX];
    if (!hub_part_of(&part, name) || !hub_path_is_safe(name) || stat(path, &found) != 0 ||
        !S_ISREG(found.st_mode))
        return OK;
    for (int32_t i = 0; i < out->n; i++)
        if (strcmp(out->list[i].path, name) == 0) return OK; // of a newer commit
    const ssize_t length = readlink(path, target, sizeof target - 1);
    target[length > 0 ? length : 0] = 0;
    const char *blob = strrchr(target, '/');
    const bool summed = blob && hub_is_hex(blob + 1, HUB_SHA256_CHARS);
    if (summed) snprintf(file.sha256, sizeof file.sha256, "%s", blob + 1);
    // A file that the hub keeps in git itself has the name of its SHA-1 there.
    if (summed || (blob && hub_is_hex(blob + 1, HUB_COMMIT_CHARS)))
        snprintf(file.blob, sizeof file.blob, "%s", blob + 1);
    snprintf(file.path, sizeof file.path, "%s", name);
    snprintf(file.commit, sizeof file.commit, "%s", commit);
    file.size_bytes = (uint64_t)found.st_size;
    return hub_files_add(out, &file, e);
}

// Adds the files of a folder of a snapshot, whose path in it is below ("" for itself).
static enum status add_folder(struct hub_files *out, const char *path, const char *commit,
                              const char *below, struct err *e) {
    struct dirent **names;
    int n, depth = 0;
    for (const char *at = below; *at; at++) depth += *at == '/';
    if (depth == DEPTH_LIMIT) return OK;
    if (scan(path, &names, &n, e)) return e->status;
    enum status status = OK;
    for (int i = 0; i < n && status == OK; i++) {
        char child[PATH_MAX], name[PATH_MAX];
        struct stat found;
        if (names[i]->d_name[0] == '.') continue;
        if (join(child, e, "%s/%s", path, names[i]->d_name) ||
            join(name, e, "%s%s", below, names[i]->d_name)) {
            status = e->status;
        } else if (lstat(child, &found) == 0 && S_ISDIR(found.st_mode)) {
            status = join(name, e, "%s%s/", below, names[i]->d_name);
            if (status == OK) status = add_folder(out, child, commit, name, e);
        } else {
            status = add_file(out, child, commit, name, e);
        }
    }
    close_scan(names, n);
    return status;
}

static enum status add_commit(struct hub_files *out, const char *folder, const char *repo,
                              const char *commit, struct err *e) {
    char path[PATH_MAX];
    if (!hub_is_hex(commit, HUB_COMMIT_CHARS)) return OK;
    if (repo_path(path, folder, repo, "snapshots/", commit, e)) return e->status;
    return add_folder(out, path, commit, "", e);
}

// The newest commit; "" if nobody knows it.
static enum status read_ref(char commit[HUB_COMMIT_CHARS + 1], const char *folder, const char *repo,
                            struct err *e) {
    char path[PATH_MAX], *text;
    struct err ignored;
    size_t length;
    commit[0] = 0;
    if (repo_path(path, folder, repo, "refs/", "main", e)) return e->status;
    if (file_read_text(&text, &length, path, 4096, &ignored)) return OK;
    if (length >= HUB_COMMIT_CHARS) {
        text[HUB_COMMIT_CHARS] = 0; // an editor may have ended the line
        if (hub_is_hex(text, HUB_COMMIT_CHARS)) memcpy(commit, text, HUB_COMMIT_CHARS + 1);
    }
    mem_free(text);
    return OK;
}

enum status hub_cache_files(struct hub_files *out, const char *folder, const char *repo,
                            struct err *e) {
    char path[PATH_MAX], newest[HUB_COMMIT_CHARS + 1];
    struct dirent **names;
    int n;
    if (read_ref(newest, folder, repo, e) || add_commit(out, folder, repo, newest, e) ||
        repo_path(path, folder, repo, "snapshots", "", e) || scan(path, &names, &n, e))
        return e->status;
    enum status status = OK;
    for (int i = 0; i < n && status == OK; i++)
        status = add_commit(out, folder, repo, names[i]->d_name, e);
    close_scan(names, n);
    return status;
}

enum status hub_cache_repos(const char *folder, hub_cache_visit visit, void *context,
                            struct err *e) {
    struct dirent **names;
    int n;
    if (scan(folder, &names, &n, e)) return e->status;
    enum status status = OK;
    for (int i = 0; i < n && status == OK; i++) {
        const char *name = names[i]->d_name + sizeof PREFIX - 1;
        char repo[HUB_REPO_CHARS];
        const char *cut =
            strncmp(names[i]->d_name, PREFIX, sizeof PREFIX - 1) == 0 ? strstr(name, "--") : NULL;
        if (!cut) continue;
        const int length = snprintf(repo, sizeof repo, "%.*s/%s", (int)(cut - name), name, cut + 2);
        if (length > 0 && length < HUB_REPO_CHARS && hub_name_is(repo))
            status = visit(context, repo, e);
    }
    close_scan(names, n);
    return status;
}

// ---- Removing -----------------------------------------------------------------------------------

static bool needs(const struct hub_files *files, const char *blob) {
    for (int32_t i = 0; i < files->n; i++)
        if (strcmp(files->list[i].blob, blob) == 0) return true;
    return false;
}

// Removes the folder of path, and those around it up to the repository's, as far as they are empty.
static void remove_folders(char path[PATH_MAX], size_t repo_length) {
    for (char *slash; (slash = strrchr(path, '/')) && (size_t)(slash - path) > repo_length;) {
        *slash = 0;
        if (rmdir(path) != 0) return;
    }
}

// Once no snapshot is left, the repository's own folders go.
static enum status remove_repo(const char *folder, const char *repo, struct err *e) {
    static const char *const parts[] = {"refs/main", "refs", "blobs", "snapshots", ""};
    char path[PATH_MAX];
    if (repo_path(path, folder, repo, "snapshots", "", e)) return e->status;
    if (access(path, F_OK) == 0 && rmdir(path) != 0) return OK; // other files are there
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        if (repo_path(path, folder, repo, parts[i], "", e)) return e->status;
        remove(path); // what is not empty stays
    }
    return OK;
}

// Removes a file's entry of its snapshot, and counts the bytes if it is the file itself.
static enum status remove_link(const char *folder, const char *repo, const struct hub_file *file,
                               uint64_t *freed_bytes, struct err *e) {
    char path[PATH_MAX], base[PATH_MAX];
    struct stat found;
    if (hub_cache_path(path, folder, repo, file, e) || repo_folder(base, folder, repo, e))
        return e->status;
    const bool itself = lstat(path, &found) == 0 && S_ISREG(found.st_mode);
    if (unlink(path) != 0) return err_errno(e, errno, "%s", path);
    if (itself) *freed_bytes += (uint64_t)found.st_size;
    remove_folders(path, strlen(base) + sizeof "/snapshots" - 1);
    return OK;
}

enum status hub_cache_remove(const char *folder, const char *repo, const struct hub_files *files,
                             uint64_t *freed_bytes, struct err *e) {
    struct hub_files left = {0};
    char path[PATH_MAX];
    enum status status = OK;
    *freed_bytes = 0;
    for (int32_t i = 0; i < files->n && status == OK; i++)
        status = remove_link(folder, repo, &files->list[i], freed_bytes, e);
    if (status == OK) status = hub_cache_files(&left, folder, repo, e);
    for (int32_t i = 0; i < files->n && status == OK; i++) {
        const struct hub_file *file = &files->list[i];
        if (!file->blob[0] || needs(&left, file->blob)) continue;
        status = repo_path(path, folder, repo, "blobs/", file->blob, e);
        if (status == OK && unlink(path) == 0) *freed_bytes += file->size_bytes;
    }
    if (status == OK) status = remove_repo(folder, repo, e);
    hub_files_close(&left);
    return status;
}

// Counts the bytes of a part that nobody fetches now, and removes it if asked.
static void take_part(const char *path, bool remove, uint64_t *bytes) {
    struct stat found;
    const int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (descriptor < 0) return;
    if (fstat(descriptor, &found) == 0 && S_ISREG(found.st_mode) &&
        flock(descriptor, LOCK_SH | LOCK_NB) == 0 && (!remove || unlink(path) == 0))
        *bytes += (uint64_t)found.st_size;
    close(descriptor);
}

enum status hub_cache_parts(const char *folder, const char *repo, bool remove, uint64_t *bytes,
                            struct err *e) {
    char path[PATH_MAX];
    struct dirent **names;
    int n;
    *bytes = 0;
    if (repo_path(path, folder, repo, "blobs", "", e) || scan(path, &names, &n, e))
        return e->status;
    enum status status = OK;
    for (int i = 0; i < n && status == OK; i++) {
        const char *end = strchr(names[i]->d_name, '.');
        if (!end || strcmp(end, ".incomplete") != 0) continue;
        status = repo_path(path, folder, repo, "blobs/", names[i]->d_name, e);
        if (status == OK) take_part(path, remove, bytes);
    }
    close_scan(names, n);
    return status == OK && remove ? remove_repo(folder, repo, e) : status;
}

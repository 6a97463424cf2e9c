/* hub_files.c: see hub_files.h. */
#include "runtime/hub/hub_files.h"

#include "base/mem.h"

#include <ctype.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

enum { FILE_LIMIT = 10000, FIRST_CAPACITY = 16 };
static const uint64_t SIZE_LIMIT_BYTES = UINT64_C(1) << 50;

enum status hub_files_add(struct hub_files *files, const struct hub_file *file, struct err *e) {
    if (files->n == FILE_LIMIT)
        return err_set(e, ERR_LIMIT, "there are more than %d GGUF files", FILE_LIMIT);
    if (files->n == files->capacity) {
        const int32_t capacity = files->capacity ? 2 * files->capacity : FIRST_CAPACITY;
        struct hub_file *bigger = mem_resize(files->list, (size_t)capacity, sizeof *bigger);
        if (!bigger) return err_memory(e, (size_t)capacity * sizeof *bigger, "a list of files");
        files->list = bigger;
        files->capacity = capacity;
    }
    files->list[files->n++] = *file;
    return OK;
}

void hub_files_close(struct hub_files *files) {
    mem_free(files->list);
    *files = (struct hub_files){0};
}

uint64_t hub_files_bytes(const struct hub_files *files) {
    uint64_t bytes = 0; // at most FILE_LIMIT times SIZE_LIMIT_BYTES, which fits
    for (int32_t i = 0; i < files->n; i++) bytes += files->list[i].size_bytes;
    return bytes;
}

// ---- Answers of the hub -------------------------------------------------------------------------

static enum status no_json(const char *text, size_t length, const json_error_t *where,
                           struct err *e) {
    size_t first = 0;
    while (first < length && isspace((unsigned char)text[first])) first++;
    err_set(e, ERR_FORMAT, "the hub's answer is not JSON");
    err_actual(e, "%s", first < length && text[first] == '<' ? "a web page" : where->text);
    return err_fix(e, "look whether HF_ENDPOINT is right, and whether a proxy answers");
}

enum status hub_parse_commit(char commit[HUB_COMMIT_CHARS + 1], const char *text, size_t length,
                             struct err *e) {
    json_error_t where;
    json_t *root = json_loadb(text, length, 0, &where);
    if (!root) return no_json(text, length, &where, e);
    const char *sha = json_string_value(json_object_get(root, "sha"));
    const bool good = sha && hub_is_hex(sha, HUB_COMMIT_CHARS);
    if (good) memcpy(commit, sha, HUB_COMMIT_CHARS + 1);
    json_decref(root);
    return good ? OK : err_set(e, ERR_FORMAT, "the hub's answer names no commit");
}

// Reads a file of the list. ERR_FORMAT if its name, size or checksum cannot be trusted.
static enum status read_file(struct hub_file *out, const char *path, const json_t *item,
                             struct err *e) {
    const json_t *lfs = json_object_get(item, "lfs");
    const char *sha256 = json_string_value(json_object_get(lfs, "oid"));
    const json_int_t size = json_integer_value(json_object_get(lfs ? lfs : item, "size"));
    if (!hub_path_is_safe(path))
        return err_set(e, ERR_FORMAT, "the hub lists a file with a name that is not safe: %.120s",
                       path);
    if (size <= 0 || (uint64_t)size > SIZE_LIMIT_BYTES)
        return err_set(e, ERR_FORMAT, "the hub gives no size of %.120s", path);
    if (sha256 && !hub_is_hex(sha256, HUB_SHA256_CHARS))
        return err_set(e, ERR_FORMAT, "the hub gives no sha256 of %.120s", path);
    snprintf(out->path, sizeof out->path, "%s", path);
    snprintf(out->sha256, sizeof out->sha256, "%s", sha256 ? sha256 : "");
    out->size_bytes = (uint64_t)size;
    return OK;
}

// One file that cannot be trusted does not take the others along.
static enum status take_file(struct hub_files *files, const char *commit, const json_t *item,
                             struct err *e) {
    const char *type = json_string_value(json_object_get(item, "type"));
    const char *path = json_string_value(json_object_get(item, "path"));
    struct hub_file file = {0};
    struct hub_part part;
    struct err why = {0};
    if (!type || !path) return err_set(e, ERR_FORMAT, "the hub lists a file without a name");
    if (strcmp(type, "file") != 0 || !hub_part_of(&part, path)) return OK;
    if (read_file(&file, path, item, &why)) {
        if (!files->left_out.status) files->left_out = why;
        return OK;
    }
    snprintf(file.commit, sizeof file.commit, "%s", commit);
    return hub_files_add(files, &file, e);
}

enum status hub_files_parse(struct hub_files *files, const char *commit, const char *text,
                            size_t length, struct err *e) {
    json_error_t where;
    json_t *root = json_loadb(text, length, 0, &where);
    if (!root) return no_json(text, length, &where, e);
    enum status status = OK;
    if (!json_is_array(root)) status = err_set(e, ERR_FORMAT, "the hub's answer lists no files");
    for (size_t i = 0; status == OK && i < json_array_size(root); i++)
        status = take_file(files, commit, json_array_get(root, i), e);
    json_decref(root);
    return status;
}

// ---- The choice ---------------------------------------------------------------------------------

// True if path has tag before a dot or a dash. whole: and nothing of a word before it, so that F16
// is not found in BF16.
static bool has_tag(const char *path, const char *tag, bool whole) {
    const size_t length = strlen(tag);
    for (const char *at = path; *at; at++) {
        if (strncasecmp(at, tag, length) != 0 || !at[length] || !strchr(".-", at[length])) continue;
        const bool begins = at == path || !isalnum((unsigned char)at[-1]);
        if (begins || !whole) return true;
    }
    return false;
}

// The first model whose name has tag, or of any name without one; NULL if there is none.
static const struct hub_file *find_tag(const struct hub_files *all, const char *tag) {
    for (int whole = 1; whole >= 0; whole--)
        for (int32_t i = 0; i < all->n; i++) {
            const struct hub_file *file = &all->list[i];
            struct hub_part part;
            if (hub_path_is_model(file->path) && hub_part_of(&part, file->path) &&
                part.number == 1 && (!tag || has_tag(file->path, tag, whole)))
                return file;
        }
    return NULL;
}

static const struct hub_file *find_path(const struct hub_files *all, const char *path) {
    for (int32_t i = 0; i < all->n; i++)
        if (strcmp(all->list[i].path, path) == 0) return &all->list[i];
    return NULL;
}

// Adds to an error about an absent file that the list had one which was left out.
static enum status add_left_out(const struct hub_files *all, struct err *e) {
    const size_t used = strlen(e->what);
    if (all->left_out.status)
        snprintf(e->what + used, sizeof e->what - used, "; %s", all->left_out.what);
    return e->status;
}

static enum status nothing_there(const struct hub_files *all, const char *repo, const char *wanted,
                                 struct err *e) {
    char known[sizeof e->fix - 16] = "";
    for (int32_t i = 0; i < all->n; i++) {
        struct hub_part part;
        if (!hub_path_is_model(all->list[i].path) || !hub_part_of(&part, all->list[i].path) ||
            part.number != 1 || !part.tag[0])
            continue;
        err_list_add(known, sizeof known, part.tag);
    }
    if (all->n == 0 && all->left_out.status) return *e = all->left_out, e->status;
    if (all->n == 0) {
        err_set(e, ERR_FILE, "%s has no GGUF files", repo);
        return err_fix(e, "models in GGUF files are often in a repository of another name: look "
                          "for one that ends in -GGUF");
    }
    err_set(e, ERR_FILE, "%s has no %s", repo, wanted);
    add_left_out(all, e);
    return known[0] ? err_fix(e, "take one of %s", known) : e->status;
}

// Adds all parts of the model that first begins.
static enum status add_parts(struct hub_files *out, const struct hub_files *all,
                             const struct hub_file *first, struct err *e) {
    struct hub_part whole, part;
    hub_part_of(&whole, first->path);
    for (uint32_t number = 1; number <= whole.count; number++) {
        const struct hub_file *found = NULL;
        for (int32_t i = 0; i < all->n && !found; i++)
            if (hub_part_of(&part, all->list[i].path) && part.count == whole.count &&
                part.number == number && part.prefix_chars == whole.prefix_chars &&
                strcmp(all->list[i].commit, first->commit) == 0 &&
                strncmp(all->list[i].path, first->path, whole.prefix_chars) == 0)
                found = &all->list[i];
        if (!found)
            err_set(e, ERR_FILE, "part %u of %u of %.160s is missing", number, whole.count,
                    first->path);
        if (!found) return add_left_out(all, e);
        if (hub_files_add(out, found, e)) return e->status;
    }
    return OK;
}

enum status hub_files_choose(struct hub_files *out, const struct hub_files *all, const char *repo,
                             const char *tag, const char *file, struct err *e) {
    const struct hub_file *first = file ? find_path(all, file) : NULL;
    struct hub_part part;
    if (!file && *tag) first = find_tag(all, tag);
    if (!file && !*tag) first = find_tag(all, "Q4_K_M");
    if (!file && !*tag && !first) first = find_tag(all, "Q8_0");
    if (!file && !*tag && !first) first = find_tag(all, NULL);
    if (!first) return nothing_there(all, repo, file ? file : *tag ? tag : "model", e);
    hub_part_of(&part, first->path);
    if (part.number != 1)
        return err_set(e, ERR_USAGE, "%.160s is part %u of a model; name part 1", first->path,
                       part.number);
    return add_parts(out, all, first, e);
}

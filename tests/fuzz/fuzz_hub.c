/* fuzz_hub.c: libFuzzer entry for names of models and for the answers of the hub.
 *
 * The input is a name, a path and an answer at once. What is accepted makes paths that stay in the
 * cache: no part of them begins with a dot, and none is empty. Run by tests/fuzz/fuzz.sh.
 */
#include "runtime/hub/hub_files.h"

#include "base/mem.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size_bytes);

static void check_path(const char *path) {
    ASSERT(path[0] && path[0] != '/' && path[0] != '.' && strlen(path) < HUB_PATH_CHARS);
    ASSERT(!strstr(path, "//") && !strstr(path, "/."));
}

static void check_file(const struct hub_file *file) {
    struct hub_part part;
    check_path(file->path);
    ASSERT(hub_part_of(&part, file->path) && part.number >= 1 && part.number <= part.count);
    ASSERT(!file->sha256[0] || strlen(file->sha256) == HUB_SHA256_CHARS);
    ASSERT(file->size_bytes > 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size_bytes) {
    char *text = mem_text((const char *)bytes, size_bytes);
    char commit[HUB_COMMIT_CHARS + 1] = "0123456789abcdef0123456789abcdef01234567";
    struct hub_files all = {0}, chosen = {0};
    struct hub_name name = {{0}, {0}, {0}};
    struct err e = {0};
    if (hub_name_parse(&name, text, &e) == OK) {
        check_path(name.repo);
        if (name.file[0]) check_path(name.file);
        ASSERT(!strchr(name.tag, '/') && strchr(name.repo, '/') == strrchr(name.repo, '/'));
    }
    if (hub_path_is_safe(text)) check_path(text);
    if (hub_parse_commit(commit, text, size_bytes, &e) == OK)
        ASSERT(hub_is_hex(commit, HUB_COMMIT_CHARS));
    if (hub_files_parse(&all, commit, text, size_bytes, &e) == OK) {
        for (int32_t i = 0; i < all.n; i++) check_file(&all.list[i]);
        if (hub_files_choose(&chosen, &all, "org/repo", name.tag, NULL, &e) == OK)
            ASSERT(chosen.n > 0);
        else
            ASSERT(e.what[0]);
    }
    hub_files_close(&all);
    hub_files_close(&chosen);
    mem_free(text);
    return 0;
}

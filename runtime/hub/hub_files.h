/* hub_files.h: lists of the GGUF files of a model on the hub or in the cache, and the choice among
 * them.
 *
 * A struct hub_files owns its list. Reads text that a server sent: every name, number and checksum
 * is checked here, so that what comes later can build paths of it. Opens no file and no connection.
 * Any thread. Tested by tests/runtime/test_hub.c and tests/fuzz/fuzz_hub.c.
 */
#ifndef TANDEM_RUNTIME_HUB_HUB_FILES_H
#define TANDEM_RUNTIME_HUB_HUB_FILES_H

#include "runtime/hub/hub_name.h"

enum { HUB_COMMIT_CHARS = 40, HUB_SHA256_CHARS = 64 };

struct hub_file {
    char path[HUB_PATH_CHARS];         // in the repository; hub_path_is_safe
    char commit[HUB_COMMIT_CHARS + 1]; // that it is of
    char sha256[HUB_SHA256_CHARS + 1]; // of its bytes; "" if nobody knows
    char blob[HUB_SHA256_CHARS + 1];   // name in the cache's blobs/; "" if a file is not from there
    uint64_t size_bytes;
};

struct hub_files {
    struct hub_file *list; // owned, in the order in which they were added
    int32_t n, capacity;
    struct err left_out; // of the first file that could not be trusted; OK: there is none
};

// Appends a copy. ERR_MEMORY, or ERR_LIMIT beyond 10,000.
enum status hub_files_add(struct hub_files *files, const struct hub_file *file, struct err *e);
void hub_files_close(struct hub_files *files); // accepts a zeroed one; leaves it zeroed

// Reads the commit of a branch from the hub's answer about it: {"sha": ...}. ERR_FORMAT.
enum status hub_parse_commit(char commit[HUB_COMMIT_CHARS + 1], const char *text, size_t length,
                             struct err *e);

// Adds the GGUF files of the hub's list of a commit: [{"type": "file", "path": ..., "size": ...,
// "lfs": {"oid": sha256, "size": ...}}, ...]. Anything that is no GGUF file is passed over. A
// file whose name would lead out of a folder, or whose size or checksum makes no sense, is left
// out, and left_out says so. Any other answer is ERR_FORMAT.
enum status hub_files_parse(struct hub_files *files, const char *commit, const char *text,
                            size_t length, struct err *e);

// Appends to *out the parts of one model, in their order: that of the file named file, or without
// one the first whose name has tag, before a dot or a dash, in any case of letters; without a tag
// Q4_K_M, else Q8_0, else the first. repo is for errors: ERR_FILE lists what there is.
enum status hub_files_choose(struct hub_files *out, const struct hub_files *all, const char *repo,
                             const char *tag, const char *file, struct err *e);

uint64_t hub_files_bytes(const struct hub_files *files);

#endif

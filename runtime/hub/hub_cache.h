/* hub_cache.h: the folder of models that were fetched, in the layout of the hub's own library, so
 * that huggingface_hub, transformers and llama.cpp find what tandem fetched, and the other way
 * round.
 *
 *     models--ORG--REPO/blobs/SHA256             the bytes, by their checksum
 *     models--ORG--REPO/blobs/SHA256.incomplete  while they are fetched
 *     models--ORG--REPO/snapshots/COMMIT/PATH    a link to a blob, or the file itself where a disk
 *                                                knows no links
 *     models--ORG--REPO/refs/main                the newest commit that was seen
 *
 * The name of a blob is its ETag at the hub, so a part that was fetched once fits for ever. Owns
 * nothing; paths go to buffers of the caller. One thread; other programs may work in the folder at
 * the same time. Tested by tests/runtime/test_hub.c and tests/cli/cli_pull.sh.
 */
#ifndef TANDEM_RUNTIME_HUB_HUB_CACHE_H
#define TANDEM_RUNTIME_HUB_HUB_CACHE_H

#include "runtime/hub/hub_files.h"

#include <limits.h>

// Where the file lies, or would: its link in the snapshot of its commit. ERR_LIMIT if the path is
// too long, like all functions here that make paths.
enum status hub_cache_path(char out[PATH_MAX], const char *folder, const char *repo,
                           const struct hub_file *file, struct err *e);
// The blob of a file, and with ".incomplete" behind it.
enum status hub_cache_blob(char out[PATH_MAX], const char *folder, const char *repo,
                           const struct hub_file *file, bool incomplete, struct err *e);

// Makes the folders of a repository. ERR_FILE.
enum status hub_cache_begin(const char *folder, const char *repo, struct err *e);
// Links the file to its blob, unless the file itself is in the snapshot, and keeps the commit as
// the newest. ERR_FILE.
enum status hub_cache_link(const char *folder, const char *repo, const struct hub_file *file,
                           struct err *e);

// Adds the whole GGUF files of a repository: those of the newest commit, then of others, by name.
// None is no error.
enum status hub_cache_files(struct hub_files *out, const char *folder, const char *repo,
                            struct err *e);

// Calls visit for each repository that the folder has, by name, until one fails.
typedef enum status (*hub_cache_visit)(void *context, const char *repo, struct err *e);
enum status hub_cache_repos(const char *folder, hub_cache_visit visit, void *context,
                            struct err *e);

// Removes the links of files, the blobs that no link of the repository needs any more, and folders
// that are empty then. *freed_bytes gets what that freed. ERR_FILE.
enum status hub_cache_remove(const char *folder, const char *repo, const struct hub_files *files,
                             uint64_t *freed_bytes, struct err *e);

// Counts the bytes of the files that were fetched in part, but for those that tandem fetches now;
// remove: and removes them, with the repository's folders where nothing else is in them. ERR_FILE.
enum status hub_cache_parts(const char *folder, const char *repo, bool remove, uint64_t *bytes,
                            struct err *e);

#endif

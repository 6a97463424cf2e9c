/* hub.h: models by name: what the hub has, and how its files come into the cache.
 *
 * The hub is huggingface.co or another server with its protocol. Owns nothing; a struct hub_files
 * belongs to the caller. What is fetched is kept in parts after a failure or Ctrl-C, and appears
 * under its name when its checksum is right. One thread. Tested by tests/cli/cli_pull.sh.
 */
#ifndef TANDEM_RUNTIME_HUB_HUB_H
#define TANDEM_RUNTIME_HUB_HUB_H

#include "base/log.h"
#include "base/progress.h"
#include "runtime/hub/hub_cache.h"

struct hub {
    const char *folder;       // of the cache (hub_cache.h)
    const char *endpoint;     // https://huggingface.co, or another server
    const char *token;        // who asks, or NULL
    const char *offline;      // the option or variable that forbids to ask and to fetch, or NULL
    struct progress progress; // told of bytes
    const struct log *log;    // told of waits that the server asks for, or NULL
};

// Finds a model in the cache: the parts of the one that name and file (or NULL: that of the name)
// choose, as hub_files_choose does. An empty *out: it is not there.
enum status hub_find(struct hub_files *out, const struct hub *hub, const struct hub_name *name,
                     const char *file, struct err *e);

// Asks the hub the same. ERR_FILE: no connection, no such model; ERR_FORMAT: answers that make no
// sense.
enum status hub_ask(struct hub_files *out, const struct hub *hub, const struct hub_name *name,
                    const char *file, struct err *e);

// The bytes of these files that are not in the cache yet.
uint64_t hub_missing(const struct hub *hub, const char *repo, const struct hub_files *files);

// Fetches what is missing, checks it and links it. ERR_FILE also if the disk lacks the room.
enum status hub_fetch(const struct hub *hub, const char *repo, const struct hub_files *files,
                      struct err *e);

// Copies of files that hold their first bytes, and zeros: enough to read their headers.
struct hub_heads {
    char folder[PATH_MAX]; // of its own, below the cache's; "": none yet
    char path[PATH_MAX];   // of part 1
    uint64_t n_bytes;      // of part 1 that are there
};

// Makes n_bytes of part 1 be there, and fewer of the others, which have no vocabulary. Zeroed
// before the first call; later calls add bytes.
enum status hub_heads_fetch(struct hub_heads *heads, const struct hub *hub, const char *repo,
                            const struct hub_files *files, uint64_t n_bytes, struct err *e);
void hub_heads_close(struct hub_heads *heads); // removes them; accepts a zeroed one

#endif

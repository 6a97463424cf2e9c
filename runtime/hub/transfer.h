/* transfer.h: fetches what addresses name, by HTTP, whole or from a byte on.
 *
 * transfer_curl.c does it through libcurl and, for checksums, nettle; transfer_none.c is for builds
 * without them and fails with a name. Follows a few redirections, from https to https alone, and
 * gives the token to the first host only. Waits
 * up to five minutes where a server that is busy asks for it. Every size is limited by the caller.
 * Owns nothing between calls. One thread. Tested by tests/cli/cli_pull.sh with a server of its own.
 */
#ifndef TANDEM_RUNTIME_HUB_TRANSFER_H
#define TANDEM_RUNTIME_HUB_TRANSFER_H

#include "base/err.h"
#include "base/log.h"
#include "base/progress.h"

struct transfer_source {
    const char *url;          // http or https; named in errors
    const char *token;        // who asks, or NULL
    struct progress progress; // told of bytes; may stop the transfer: ERR_CANCELLED
    const struct log *log;    // told of waits, or NULL
};

enum { TRANSFER_URL_CHARS = 2048 };

// A text that a server sent.
struct transfer_answer {
    char *text; // terminated; the owner frees it with mem_free
    size_t length;
    char next[TRANSFER_URL_CHARS]; // where the answer says that it goes on; "": it is whole
};

// Fetches a text of at most limit bytes. ERR_FILE: no connection, or an answer that refuses;
// ERR_LIMIT: it is longer. On failure out->text is NULL.
enum status transfer_text(const struct transfer_source *source, struct transfer_answer *out,
                          size_t limit_bytes, struct err *e);

// Appends the bytes from offset to offset + size to the file. ERR_FORMAT if the server sends others
// or fewer.
enum status transfer_range(const struct transfer_source *source, int descriptor, uint64_t offset,
                           uint64_t size_bytes, struct err *e);

struct transfer_target {
    const char *path;     // of the file, which may hold a first part
    uint64_t size_bytes;  // that it will have
    const char *sha256;   // that these bytes have, in hexadecimal
    uint64_t done_bytes;  // of earlier files, for the progress
    uint64_t total_bytes; // of all files
};

// Fetches what the file at target->path lacks, and goes on where a broken connection ended, until
// it is whole and its checksum right. The file stays if the transfer fails, so that a later call
// goes on; a file with a wrong checksum is removed: ERR_FORMAT. ERR_FILE also if another process
// fetches it now.
enum status transfer_file(const struct transfer_source *source,
                          const struct transfer_target *target, struct err *e);

#endif

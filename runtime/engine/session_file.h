/* session_file.h: the file of a saved session: tokens, and the bytes of their caches.
 *
 * A struct session_file borrows the bytes that it was parsed from. The file holds a header, the
 * tokens, the pieces of the caches in the order of pieces.h, and a checksum, in the byte order of
 * the computer, each part at a multiple of 8 bytes. It says nothing of the placement, the context
 * or the micro-batch. Files are hostile: every number is checked before it is used. Must not know
 * devices. Any thread. Tested by tests/runtime/test_session_file.c and
 * tests/fuzz/fuzz_session_file.c.
 */
#ifndef TANDEM_RUNTIME_ENGINE_SESSION_FILE_H
#define TANDEM_RUNTIME_ENGINE_SESSION_FILE_H

#include "planner/planner.h"
#include "runtime/gguf/gguf.h"

// The facts that a file and the session that takes it must have in common.
struct session_key {
    uint64_t model; // session_file_model
    enum dtype kv_type_k, kv_type_v;
    int32_t n_ctx, n_vocab; // more tokens than n_ctx do not fit; others are not in the vocabulary
    bool recurrent;         // the model has recurrent states
};

struct session_file {
    const int32_t *tokens; // [n_tokens]
    int32_t n_tokens;
    int32_t n;               // tokens that the caches have seen; the others are computed again
    int32_t low;             // the first position in the rings
    int32_t at[STATE_SLOTS]; // tokens that each recurrent state has seen; n_slots are set
    int32_t n_slots;
    const uint8_t *pieces; // each padded to 8 bytes
    uint64_t piece_bytes;
};

// A number that two model files hardly share: of the names, types and sizes of all tensors and the
// first bytes of each.
uint64_t session_file_model(const struct gguf *g);

// The sum of size_bytes, a multiple of 8, that continues sum. Whatever changes in one place shows.
uint64_t session_file_sum(uint64_t sum, const void *bytes, uint64_t size_bytes);

// Writes the header and the tokens of a file to out, of session_file_head_bytes. piece_bytes is
// set, pieces is not read.
uint64_t session_file_head_bytes(int32_t n_tokens);
void session_file_head(const struct session_file *f, const struct session_key *key, uint8_t *out);

// Reads a whole file. bytes are at a multiple of 8. ERR_FORMAT, ERR_UNSUPPORTED (another version),
// ERR_USAGE (of another model or other types of the cache), ERR_LIMIT (a longer context).
enum status session_file_parse(struct session_file *out, const uint8_t *bytes, uint64_t size_bytes,
                               const struct session_key *key, struct err *e);

#endif

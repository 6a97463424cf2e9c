/* fuzz_session_file.c: libFuzzer entry for the reader of saved sessions.
 *
 * The magic, the model and the checksum are made right, so that everything behind them is reached.
 * Accepted files are read to their end; refusals must say why. Run by tests/fuzz/fuzz.sh.
 */
#include "runtime/engine/session_file.h"

#include "base/mem.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size_bytes);

static void read_all(const struct session_file *f) {
    uint64_t sum = 0;
    for (int32_t i = 0; i < f->n_tokens; i++) sum += (uint64_t)f->tokens[i];
    for (uint64_t i = 0; i < f->piece_bytes; i++) sum += f->pieces[i];
    ASSERT(f->n <= f->n_tokens && f->low <= f->n && sum < UINT64_MAX);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size_bytes) {
    const struct session_key key = {.kv_type_k = DTYPE_F16,
                                    .kv_type_v = DTYPE_Q8_0,
                                    .n_ctx = 512,
                                    .n_vocab = 300,
                                    .recurrent = true};
    struct session_file f;
    struct err e = {0};
    const size_t whole = size_bytes / 8 * 8;
    uint8_t *copy = mem_alloc(whole + 16, 1);
    if (!copy) return 0;
    memcpy(copy, bytes, size_bytes);
    if (whole >= 24) {
        memcpy(copy, "tandemSF", 8);
        memset(copy + 16, 0, 8);
        const uint64_t sum = session_file_sum(0, copy, whole - 8);
        memcpy(copy + whole - 8, &sum, 8);
    }
    if (session_file_parse(&f, copy, whole, &key, &e) == OK)
        read_all(&f);
    else
        ASSERT(e.what[0]);
    mem_free(copy);
    return 0;
}

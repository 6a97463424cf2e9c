/* session_file.c: see session_file.h. */
#include "runtime/engine/session_file.h"

#include "base/mem.h"
#include "base/number.h"

#include <string.h>

enum { VERSION = 1, SAMPLE_BYTES = 64 };

struct header {
    char magic[8];
    uint32_t version, header_bytes;
    uint64_t model;
    int32_t kv_type_k, kv_type_v;
    int32_t n_tokens, n, low, n_slots;
    int32_t at[STATE_SLOTS], unused;
    uint64_t piece_bytes;
};
static_assert(sizeof(struct header) == 72, "a header in files");

static const char MAGIC[8] = "tandemSF";

uint64_t session_file_sum(uint64_t sum, const void *bytes, uint64_t size_bytes) {
    const uint8_t *at = bytes;
    ASSERT(size_bytes % 8 == 0);
    for (uint64_t i = 0; i < size_bytes; i += 8) {
        uint64_t word;
        memcpy(&word, at + i, 8);
        sum = (sum ^ word) * UINT64_C(0x9e3779b97f4a7c15); // odd: no word's change is lost
        sum ^= sum >> 32;
    }
    return sum;
}

// Adds text of any length.
static uint64_t add_text(uint64_t sum, const void *text, uint64_t length) {
    uint64_t word[1 + SAMPLE_BYTES / 8] = {length};
    memcpy(word + 1, text, min_u64(length, SAMPLE_BYTES));
    return session_file_sum(sum, word, sizeof word);
}

uint64_t session_file_model(const struct gguf *g) {
    uint64_t sum = g->n_tensors;
    for (uint32_t i = 0; i < g->n_tensors; i++) {
        const struct gguf_tensor *t = &g->tensors[i];
        const uint64_t numbers[] = {(uint64_t)t->type, t->ne[0], t->ne[1], t->ne[2], t->ne[3]};
        sum = add_text(sum, t->name.bytes, t->name.length);
        sum = session_file_sum(sum, numbers, sizeof numbers);
        sum = add_text(sum, t->data, min_u64(t->size_bytes, SAMPLE_BYTES));
    }
    return sum;
}

// ---- Writing ------------------------------------------------------------------------------------

uint64_t session_file_head_bytes(int32_t n_tokens) {
    return sizeof(struct header) + round_up((uint64_t)n_tokens * sizeof(int32_t), 8);
}

void session_file_head(const struct session_file *f, const struct session_key *key, uint8_t *out) {
    struct header h = {.version = VERSION,
                       .header_bytes = sizeof h,
                       .model = key->model,
                       .kv_type_k = (int32_t)key->kv_type_k,
                       .kv_type_v = (int32_t)key->kv_type_v,
                       .n_tokens = f->n_tokens,
                       .n = f->n,
                       .low = f->low,
                       .n_slots = f->n_slots,
                       .piece_bytes = f->piece_bytes};
    memcpy(h.magic, MAGIC, sizeof MAGIC);
    memcpy(h.at, f->at, sizeof h.at);
    memset(out, 0, session_file_head_bytes(f->n_tokens));
    memcpy(out, &h, sizeof h);
    memcpy(out + sizeof h, f->tokens, (size_t)f->n_tokens * sizeof *f->tokens);
}

// ---- Reading ------------------------------------------------------------------------------------

static enum status broken(const char *what, struct err *e) {
    err_set(e, ERR_FORMAT, "the saved session is damaged: %s", what);
    return err_fix(e, "remove the file, or give another name");
}

static enum status check_key(const struct header *h, const struct session_key *key, struct err *e) {
    if (h->model != key->model) {
        err_set(e, ERR_USAGE, "the saved session is of another model");
        return err_fix(e, "give another file, or remove this one");
    }
    if (h->kv_type_k != (int32_t)key->kv_type_k || h->kv_type_v != (int32_t)key->kv_type_v) {
        err_set(e, ERR_USAGE, "the saved session has other types in its KV cache");
        err_expected(e, "%s keys and %s values", dtype_name(key->kv_type_k),
                     dtype_name(key->kv_type_v));
        return err_fix(e, "take the -ctk and -ctv that it was saved with, or another file");
    }
    if (h->n_tokens <= key->n_ctx) return OK;
    err_set(e, ERR_LIMIT, "the saved session does not fit into the context of %d tokens",
            key->n_ctx);
    err_actual(e, "%d", h->n_tokens);
    return err_fix(e, "use a longer context (-c), or another file");
}

static enum status check_numbers(const struct header *h, const struct session_key *key,
                                 struct err *e) {
    if (h->n_tokens < 0 || h->n < 0 || h->n > h->n_tokens || h->low < 0 || h->low > h->n)
        return broken("its lengths", e);
    const int32_t most_slots = key->recurrent ? STATE_SLOTS : 0;
    if (h->n_slots < 0 || h->n_slots > most_slots) return broken("its number of states", e);
    for (int32_t i = 0; i < h->n_slots; i++)
        if (h->at[i] < 1 || h->at[i] > h->n_tokens) return broken("the place of a state", e);
    return OK;
}

// Checks the sizes and the checksum of a file with this header.
static enum status check_bytes(const struct header *h, const uint8_t *bytes, uint64_t size_bytes,
                               struct err *e) {
    const uint64_t head_bytes = session_file_head_bytes(h->n_tokens);
    uint64_t sum;
    if (h->header_bytes != sizeof *h || size_bytes < head_bytes + 8 ||
        h->piece_bytes != size_bytes - head_bytes - 8 || h->piece_bytes % 8 != 0)
        return broken("its size", e);
    memcpy(&sum, bytes + size_bytes - 8, 8);
    return session_file_sum(0, bytes, size_bytes - 8) == sum ? OK : broken("its checksum", e);
}

enum status session_file_parse(struct session_file *out, const uint8_t *bytes, uint64_t size_bytes,
                               const struct session_key *key, struct err *e) {
    struct header h;
    *out = (struct session_file){0};
    if (size_bytes < sizeof h || memcmp(bytes, MAGIC, sizeof MAGIC) != 0) {
        err_set(e, ERR_FORMAT, "the file is no saved session");
        return err_fix(e, "give another file");
    }
    memcpy(&h, bytes, sizeof h);
    if (h.version != VERSION) {
        err_set(e, ERR_UNSUPPORTED, "the saved session has another version");
        err_expected(e, "%d", VERSION);
        err_actual(e, "%u", h.version);
        return err_fix(e, "remove the file, or give another name");
    }
    if (check_key(&h, key, e) || check_numbers(&h, key, e) || check_bytes(&h, bytes, size_bytes, e))
        return e->status;
    *out = (struct session_file){.tokens = (const int32_t *)(bytes + sizeof h),
                                 .n_tokens = h.n_tokens,
                                 .n = h.n,
                                 .low = h.low,
                                 .n_slots = h.n_slots,
                                 .pieces = bytes + session_file_head_bytes(h.n_tokens),
                                 .piece_bytes = h.piece_bytes};
    memcpy(out->at, h.at, sizeof h.at);
    for (int32_t i = 0; i < h.n_tokens; i++)
        if (out->tokens[i] < 0 || out->tokens[i] >= key->n_vocab)
            return broken("a token that is not in the vocabulary", e);
    return OK;
}

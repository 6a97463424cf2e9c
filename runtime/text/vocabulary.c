/* vocabulary.c: see vocabulary.h. */
#include "runtime/text/vocabulary.h"

#include "base/mem.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

// ---- Finding pieces -----------------------------------------------------------------------------

uint32_t piece_hash(const char *text, size_t length) {
    uint64_t h = length * 0x9e3779b97f4a7c15u, word;
    for (; length >= 8; text += 8, length -= 8) {
        memcpy(&word, text, 8);
        h = (h ^ word) * 0xff51afd7ed558ccdu;
        h ^= h >> 32;
    }
    word = 0;
    memcpy(&word, text, length);
    h = (h ^ word) * 0xff51afd7ed558ccdu;
    h ^= h >> 32;
    return (uint32_t)(h * 0xc4ceb9fe1a85ec53u >> 32);
}

// Finds the slot of the piece, or the free slot for it.
static struct piece_slot *find_slot(const struct tokenizer *t, const char *text, size_t length,
                                    uint32_t hash) {
    struct piece_slot key = {.id_size = length < 255 ? (uint32_t)length : 255};
    memcpy(key.head, text, length < sizeof key.head ? length : sizeof key.head);
    for (uint32_t i = hash & t->slot_mask;; i = (i + 1) & t->slot_mask) {
        struct piece_slot *slot = &t->slots[i];
        if (slot->id_size == 0) return slot;
        if ((slot->id_size & 255) != key.id_size || memcmp(slot->head, key.head, sizeof key.head))
            continue;
        if (length <= sizeof key.head) return slot;
        struct gguf_text piece = t->pieces[(slot->id_size >> 8) - 1];
        if (piece.length == length && memcmp(piece.bytes, text, length) == 0) return slot;
    }
}

int32_t piece_find(const struct tokenizer *t, const char *text, size_t length, uint32_t hash) {
    return (int32_t)(find_slot(t, text, length, hash)->id_size >> 8) - 1;
}

int32_t vocabulary_find(const struct tokenizer *t, const char *piece, size_t length) {
    return length > 0 ? piece_find(t, piece, length, piece_hash(piece, length)) : -1;
}

enum status piece_map_build(struct tokenizer *t, struct err *e) {
    uint64_t n_slots = 16;
    while (n_slots < (uint64_t)t->count * 2) n_slots *= 2;
    t->slots = mem_alloc(n_slots, sizeof *t->slots);
    if (!t->slots) return err_memory(e, n_slots * sizeof *t->slots, "the vocabulary");
    t->slot_mask = (uint32_t)(n_slots - 1);

    uint32_t n_empty = 0, n_double = 0;
    for (uint32_t id = 0; id < t->count; id++) {
        struct gguf_text piece = t->pieces[id];
        if (piece.length == 0) {
            n_empty++;
            continue;
        }
        size_t length = (size_t)piece.length;
        struct piece_slot *slot =
            find_slot(t, piece.bytes, length, piece_hash(piece.bytes, length));
        if (slot->id_size) {
            n_double++;
            continue;
        }
        memcpy(slot->head, piece.bytes, length < sizeof slot->head ? length : sizeof slot->head);
        slot->id_size = (id + 1) << 8 | (length < 255 ? (uint32_t)length : 255);
    }
    if (n_empty + n_double > 0)
        log_line(t->log, LOG_WARN,
                 "vocabulary: %" PRIu32 " empty and %" PRIu32
                 " repeated tokens will never be produced from text",
                 n_empty, n_double);
    return OK;
}

// ---- Special tokens in text ---------------------------------------------------------------------

static bool is_before(const struct gguf_text *x, const struct gguf_text *y) {
    const int order = memcmp(x->bytes, y->bytes, x->length < y->length ? x->length : y->length);
    return order ? order < 0 : x->length < y->length;
}

// Lets the id at `at` sink below those of the heap ids[n] that come after it.
static void sink(const struct tokenizer *t, int32_t *ids, uint32_t n, uint32_t at) {
    const int32_t id = ids[at];
    for (uint32_t child; (child = 2 * at + 1) < n; at = child) {
        if (child + 1 < n && is_before(&t->pieces[ids[child]], &t->pieces[ids[child + 1]])) child++;
        if (!is_before(&t->pieces[id], &t->pieces[ids[child]])) break;
        ids[at] = ids[child];
    }
    ids[at] = id;
}

// Sorts ids by the bytes of their pieces. Systems disagree about a qsort with a context.
static void sort_ids(const struct tokenizer *t, int32_t *ids, uint32_t n) {
    for (uint32_t at = n / 2; at-- > 0;) sink(t, ids, n, at);
    for (uint32_t last = n; last-- > 1;) {
        const int32_t id = ids[last];
        ids[last] = ids[0];
        ids[0] = id;
        sink(t, ids, last, 0);
    }
}

enum status special_set_build(const struct tokenizer *t, struct special_set *set,
                              bool (*wanted)(const struct tokenizer *t, int32_t id),
                              struct err *e) {
    uint32_t n = 0;
    for (uint32_t id = 0; id < t->count; id++) n += wanted(t, (int32_t)id);
    set->ids = mem_alloc(n, sizeof *set->ids);
    if (!set->ids) return err_memory(e, n * sizeof *set->ids, "special tokens");
    n = 0;
    for (int32_t id = 0; id < (int32_t)t->count; id++) {
        struct gguf_text piece = t->pieces[id];
        if (wanted(t, id) && vocabulary_find(t, piece.bytes, piece.length) == id)
            set->ids[n++] = id;
    }
    sort_ids(t, set->ids, n);
    for (uint32_t i = 0; i < n; i++) set->starts[(uint8_t)t->pieces[set->ids[i]].bytes[0] + 1]++;
    for (int b = 0; b < 256; b++) set->starts[b + 1] += set->starts[b];
    return OK;
}

// Finds the first entry in [first, last) whose byte at depth is not below byte. All entries are
// longer than depth and equal before it.
static uint32_t lower_bound(const struct tokenizer *t, const struct special_set *set,
                            uint32_t first, uint32_t last, size_t depth, unsigned byte) {
    while (first < last) {
        uint32_t middle = first + (last - first) / 2;
        if ((uint8_t)t->pieces[set->ids[middle]].bytes[depth] < byte)
            first = middle + 1;
        else
            last = middle;
    }
    return first;
}

int32_t special_set_step(const struct tokenizer *t, const struct special_set *set,
                         struct set_walk *w, uint8_t byte) {
    if (w->depth == 0) {
        w->first = set->starts[byte];
        w->last = set->starts[byte + 1];
    } else {
        w->first = lower_bound(t, set, w->first, w->last, w->depth, byte);
        w->last = lower_bound(t, set, w->first, w->last, w->depth, byte + 1u);
    }
    w->depth++;
    bool ends = w->first < w->last && t->pieces[set->ids[w->first]].length == w->depth;
    return ends ? set->ids[w->first++] : -1;
}

int32_t special_set_match(const struct tokenizer *t, const struct special_set *set,
                          const char *text, size_t length) {
    struct set_walk walk = {0};
    int32_t best = -1;
    for (size_t i = 0; i < length; i++) {
        int32_t id = special_set_step(t, set, &walk, (uint8_t)text[i]);
        if (id >= 0) best = id;
        if (walk.first >= walk.last) break;
    }
    return best;
}

/* tokenizer_unigram.c: SentencePiece unigram, tokenizer.ggml.model "t5".
 *
 * The text goes through the map of the normaliser and spaces become U+2581; of all ways to cut it
 * into tokens, that with the greatest sum of scores is taken. A character without a token costs
 * more than any token. This is what the sentencepiece library does, sums in float32 included; it
 * differs in one thing: a byte that is not UTF-8 stays, and does not become U+FFFD. Reads the
 * tables of struct tokenizer; works in the caller's scratch. Tested by
 * tests/runtime/test_unigram.c and the goldens.
 */
#include "runtime/text/tokenizer_internal.h"

#include "base/utf8.h"

#include <float.h>
#include <string.h>

#define SPACE_MARK "\xe2\x96\x81" // U+2581

// ---- Loading ------------------------------------------------------------------------------------

static bool is_candidate(const struct tokenizer *t, int32_t id) {
    return kind_of(t, id) == TOKEN_NORMAL || kind_of(t, id) == TOKEN_USER_DEFINED;
}

enum status unigram_load(struct tokenizer *t, const struct gguf *g, struct err *e) {
    const struct gguf_value *map = gguf_find(g, "tokenizer.ggml.precompiled_charsmap");
    const char *squeezes = "tokenizer.ggml.remove_extra_whitespaces";
    if (map && charsmap_open(&t->charsmap, map, e) != OK) return e->status;
    if (gguf_read_bool(g, squeezes, &t->squeezes, e) != OK) return e->status;
    t->add_bos = false;
    t->add_eos = t->eos >= 0;
    t->least_score = FLT_MAX;
    t->most_score = 0; // as in sentencepiece, where scores below it do not count here
    for (int32_t id = 0; id < (int32_t)t->count; id++) {
        if (kind_of(t, id) != TOKEN_NORMAL) continue;
        if (t->scores[id] < t->least_score) t->least_score = t->scores[id];
        if (t->scores[id] > t->most_score) t->most_score = t->scores[id];
    }
    return special_set_build(t, &t->candidates, is_candidate, e);
}

// ---- Normalising --------------------------------------------------------------------------------

// Returns what becomes of the front of text, and how many bytes of it that takes. User-defined
// tokens stay as they are.
static struct gguf_text normalise_front(const struct tokenizer *t, struct gguf_text text,
                                        size_t *taken) {
    struct gguf_text out;
    int32_t id = special_set_match(t, &t->frozen, text.bytes, (size_t)text.length);
    if (id >= 0)
        *taken = (size_t)t->pieces[id].length;
    else if ((*taken = charsmap_match(&t->charsmap, text, &out)) > 0)
        return out;
    else
        *taken = utf8_step(text.bytes, (size_t)text.length);
    return (struct gguf_text){text.bytes, *taken};
}

// Appends to out[*n], or only counts if out is NULL; spaces are marked. *spaced: the last character
// was a space after which others vanish.
static void put(struct gguf_text text, bool *spaced, char *out, size_t *n) {
    size_t from = 0;
    while (*spaced && from < text.length && text.bytes[from] == ' ') from++;
    for (size_t i = from; i < text.length; i++) {
        const bool space = text.bytes[i] == ' ';
        if (out) memcpy(out + *n, space ? SPACE_MARK : text.bytes + i, space ? 3 : 1);
        *n += space ? 3 : 1;
    }
    if (from < text.length) *spaced = text.bytes[text.length - 1] == ' ';
}

// Writes the normal form to out and returns its length; NULL: returns how many bytes it can take.
// Stops when that is more than can be encoded.
static size_t normalise(const struct tokenizer *t, struct gguf_text text, bool prefix, char *out) {
    struct gguf_text front = {NULL, 0};
    size_t at = 0, taken = 0, n = 0;
    while (t->squeezes && at < text.length) {
        front = normalise_front(t, (struct gguf_text){text.bytes + at, text.length - at}, &taken);
        if (front.length != 1 || front.bytes[0] != ' ') break;
        at += taken;
    }
    bool spaced = false;
    if (prefix && at < text.length) put((struct gguf_text){" ", 1}, &spaced, out, &n);
    spaced = t->squeezes;
    for (; at < text.length && n <= INT32_MAX; at += taken) {
        front = normalise_front(t, (struct gguf_text){text.bytes + at, text.length - at}, &taken);
        put(front, &spaced, out, &n);
        spaced = spaced && t->squeezes;
    }
    while (out && t->squeezes && n >= 3 && memcmp(out + n - 3, SPACE_MARK, 3) == 0) n -= 3;
    return n;
}

// ---- The likeliest pieces -----------------------------------------------------------------------

enum { NO_START = UINT32_MAX };
static const float UNKNOWN_PENALTY = 10;

static void offer(struct unigram_node *node, double score, int32_t id, uint32_t start) {
    if (node->start != NO_START && !(score > (double)node->score)) return;
    *node = (struct unigram_node){(float)score, id, start, 0};
}

// Offers every token that begins at start to the node where it ends. length: of the character
// there.
static void extend(const struct tokenizer *t, struct gguf_text text, struct unigram_node *nodes,
                   uint32_t start, size_t length) {
    const double so_far = (double)nodes[start].score;
    struct set_walk walk = {0};
    bool whole = false; // the character itself is a token
    for (size_t i = start; i < text.length; i++) {
        int32_t id = special_set_step(t, &t->candidates, &walk, (uint8_t)text.bytes[i]);
        if (id >= 0) {
            const double most = (double)((float)walk.depth * t->most_score);
            const bool user = kind_of(t, id) == TOKEN_USER_DEFINED;
            const double score = user ? most - 0.1 : (double)t->scores[id];
            offer(&nodes[start + walk.depth], score + so_far, id, start);
            whole = whole || walk.depth == length;
        }
        if (walk.first >= walk.last) break;
    }
    const float unknown = t->least_score - UNKNOWN_PENALTY;
    if (!whole) offer(&nodes[start + length], (double)(unknown + nodes[start].score), -1, start);
}

// Chains the nodes of the best way forward, by next.
static void chain(struct unigram_node *nodes, uint32_t end) {
    while (end > 0) {
        nodes[nodes[end].start].next = end;
        end = nodes[end].start;
    }
}

enum status unigram_encode(const struct tokenizer *t, struct encode_scratch *scratch,
                           struct gguf_text text, bool prefix, struct token_list *out,
                           struct err *e) {
    const size_t room = normalise(t, text, prefix, NULL);
    if (room > INT32_MAX) {
        err_set(e, ERR_LIMIT, "the normalised text is too long");
        return err_expected(e, "at most %d bytes", INT32_MAX);
    }
    if (token_buffer_reserve(&scratch->text, room, 1, e) != OK) return e->status;
    const size_t n = normalise(t, text, prefix, scratch->text.memory);
    if (token_buffer_reserve(&scratch->symbols, n + 1, sizeof(struct unigram_node), e) != OK)
        return e->status;
    text = (struct gguf_text){scratch->text.memory, n};
    struct unigram_node *nodes = scratch->symbols.memory;
    for (size_t i = 0; i <= n; i++) nodes[i] = (struct unigram_node){.start = NO_START};
    for (size_t at = 0, length; at < n; at += length) {
        length = utf8_step(text.bytes + at, n - at);
        extend(t, text, nodes, (uint32_t)at, length);
    }
    chain(nodes, (uint32_t)n);
    bool after_unknown = false;
    for (uint32_t at = 0, end; at < n; at = end) {
        end = nodes[at].next;
        struct gguf_text piece = {text.bytes + at, end - at};
        enum status status;
        if (nodes[end].id < 0) {
            status = spm_emit_bytes(t, scratch, piece, &after_unknown, out, e);
        } else {
            after_unknown = false;
            status = token_list_push(out, nodes[end].id, e);
        }
        if (status != OK) return status;
    }
    return OK;
}

/* pruning.c: see pruning.h. */
#include "runtime/quantize/pruning.h"

#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LAYERS_MOST = 1 << 20, DIGITS = 9 };

// Finds the digits of N in "blk.N." and their number. False if the name has none.
static bool find_layer(struct gguf_text name, size_t *at, size_t *n_digits, uint64_t *layer) {
    static const char mark[] = "blk.";
    const char *found = memmem(name.bytes, name.length, mark, sizeof mark - 1);
    if (!found) return false;
    *at = (size_t)(found - name.bytes) + sizeof mark - 1;
    *layer = 0;
    for (size_t i = *at; i < name.length && i <= *at + DIGITS; i++) {
        const char c = name.bytes[i];
        *n_digits = i - *at;
        if (c == '.') return *n_digits > 0;
        if (c < '0' || c > '9') return false;
        *layer = 10 * *layer + (uint64_t)(c - '0');
    }
    return false;
}

size_t pruning_rename(const struct pruning *p, struct gguf_text name, char *out) {
    size_t at, n_digits;
    uint64_t layer, n_before = 0;
    char number[DIGITS + 12];
    if (p->n_gone == 0 || !find_layer(name, &at, &n_digits, &layer)) {
        memcpy(out, name.bytes, name.length);
        return name.length;
    }
    if (layer < p->n_layers && p->gone[layer]) return 0;
    for (uint64_t i = 0; i < layer && i < p->n_layers; i++) n_before += p->gone[i];
    const size_t length =
        (size_t)snprintf(number, sizeof number, "%llu", (unsigned long long)(layer - n_before));
    const size_t rest = name.length - at - n_digits;
    memcpy(out, name.bytes, at);
    memcpy(out + at, number, length);
    memcpy(out + at + length, name.bytes + at + n_digits, rest);
    return at + length + rest;
}

static enum status wrong_list(const struct pruning *p, const char *what, const char *list,
                              struct err *e) {
    err_set(e, ERR_USAGE, "--prune-layers: %s", what);
    err_expected(e, "numbers from 0 to %llu with commas between them",
                 (unsigned long long)p->n_layers - 1);
    return err_actual(e, "'%.60s'", list);
}

static enum status read_list(struct pruning *p, const char *list, struct err *e) {
    for (const char *at = list;; at++) {
        char *end;
        const unsigned long long layer = strtoull(at, &end, 10);
        if (*at < '0' || *at > '9' || (*end && *end != ','))
            return wrong_list(p, "the list cannot be read", list, e);
        if (layer >= p->n_layers) return wrong_list(p, "there is no such layer", list, e);
        p->n_gone += !p->gone[layer];
        p->gone[layer] = true;
        at = end;
        if (!*at) break;
    }
    if (p->n_gone < p->n_layers) return OK;
    return err_set(e, ERR_USAGE, "--prune-layers: no layer would be left");
}

// Refuses keys of the architecture with a value for each layer: nobody knows whether those of the
// layers that go are to go, too.
static enum status check_keys(const struct pruning *p, const struct gguf *g, struct err *e) {
    const size_t prefix = strlen(p->key) - strlen("block_count");
    for (uint32_t i = 0; i < g->n_values; i++) {
        const struct gguf_value *v = &g->values[i];
        if (v->type != GGUF_ARRAY || v->count != p->n_layers || v->key.length <= prefix ||
            memcmp(v->key.bytes, p->key, prefix) != 0)
            continue;
        return err_set(e, ERR_UNSUPPORTED,
                       "--prune-layers: key %.*s has a value for each layer, which no layer can "
                       "be taken from",
                       (int)(v->key.length < 100 ? v->key.length : 100), v->key.bytes);
    }
    return OK;
}

// Reads how many layers the model has.
static enum status read_layers(struct pruning *p, const struct gguf *g, struct err *e) {
    struct gguf_text name = {"", 0};
    if (gguf_read_text(g, "general.architecture", &name, e)) return e->status;
    snprintf(p->key, sizeof p->key, "%.*s.block_count", (int)(name.length < 64 ? name.length : 64),
             name.bytes);
    if (gguf_read_u64(g, p->key, 1, LAYERS_MOST, &p->n_layers, e)) return e->status;
    if (p->n_layers == 0)
        return err_set(e, ERR_FORMAT, "--prune-layers: the model has no key %s", p->key);
    p->gone = mem_alloc(p->n_layers, sizeof *p->gone);
    return p->gone ? OK : err_memory(e, p->n_layers, "the layers that go");
}

static enum status index_tensors(struct gguf *g, struct err *e) {
    strmap_close(&g->tensor_index);
    if (strmap_init(&g->tensor_index, g->n_tensors, e)) return e->status;
    for (uint32_t i = 0; i < g->n_tensors; i++) {
        const struct gguf_text name = g->tensors[i].name;
        if (!strmap_put(&g->tensor_index, name.bytes, (uint32_t)name.length, i))
            return err_set(e, ERR_FORMAT, "--prune-layers: two tensors would be called %.*s",
                           (int)(name.length < 100 ? name.length : 100), name.bytes);
    }
    return OK;
}

static enum status take_out(struct pruning *p, struct gguf *g, struct err *e) {
    uint64_t bytes = 0;
    uint32_t n = 0;
    for (uint32_t i = 0; i < g->n_tensors; i++) bytes += g->tensors[i].name.length;
    p->names = mem_alloc(bytes, 1);
    if (!p->names) return err_memory(e, bytes, "the names of tensors");
    char *next = p->names;
    for (uint32_t i = 0; i < g->n_tensors; i++) {
        struct gguf_tensor t = g->tensors[i];
        const size_t length = pruning_rename(p, t.name, next);
        if (length == 0) continue;
        t.name = (struct gguf_text){next, length};
        next += length;
        g->tensors[n++] = t;
    }
    g->n_tensors = n;
    return index_tensors(g, e);
}

enum status pruning_open(struct pruning *p, const char *list, struct gguf *g, struct err *e) {
    *p = (struct pruning){0};
    if (!list) return OK;
    if (read_layers(p, g, e) || read_list(p, list, e) || check_keys(p, g, e) || take_out(p, g, e)) {
        pruning_close(p);
        return e->status;
    }
    return OK;
}

void pruning_close(struct pruning *p) {
    mem_free(p->gone);
    mem_free(p->names);
    *p = (struct pruning){0};
}

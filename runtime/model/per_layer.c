/* per_layer.c: see per_layer.h. */
#include "runtime/model/per_layer.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

struct key {
    char text[128];
};

static struct key key_of(const struct layer_numbers *n, const char *name) {
    struct key key;
    snprintf(key.text, sizeof key.text, "%s.%s", n->architecture, name);
    return key;
}

static bool is_list(const struct gguf_value *value) {
    switch (value->element) {
    case GGUF_STRING:
    case GGUF_ARRAY:
    case GGUF_F32:
    case GGUF_F64: return false;
    default: return value->type == GGUF_ARRAY;
    }
}

static enum status check_count(const struct gguf_value *value, const char *key, int32_t n_layers,
                               struct err *e) {
    if (value->count >= (uint64_t)n_layers) return OK;
    err_set(e, ERR_FORMAT, "key %s has too few elements", key);
    err_expected(e, "one for each of %d layers", n_layers);
    return err_actual(e, "%llu", (unsigned long long)value->count);
}

static enum status read_list(const struct gguf_value *value, const char *key, int32_t n_layers,
                             int32_t high, int32_t *out, struct err *e) {
    if (check_count(value, key, n_layers, e)) return e->status;
    for (int32_t l = 0; l < n_layers; l++) {
        const int64_t number = gguf_array_int(value, (uint64_t)l);
        if (number < 0 || number > high) {
            err_set(e, ERR_FORMAT, "key %s is out of range", key);
            err_expected(e, "0 to %d", high);
            return err_actual(e, "%lld for layer %d", (long long)number, l);
        }
        out[l] = (int32_t)number;
    }
    return OK;
}

enum status per_layer_read(const struct layer_numbers *n, const char *name, int32_t high,
                           int32_t other, int32_t *out, struct err *e) {
    const struct key key = key_of(n, name);
    const struct gguf_value *value = gguf_find(n->gguf, key.text);
    if (value && is_list(value)) return read_list(value, key.text, n->n_layers, high, out, e);
    uint64_t all = (uint64_t)other;
    if (gguf_read_u64(n->gguf, key.text, 0, (uint64_t)high, &all, e)) return e->status;
    for (int32_t l = 0; l < n->n_layers; l++) out[l] = (int32_t)all;
    return OK;
}

enum status per_layer_floats(const struct layer_numbers *n, const char *key, float *out,
                             struct err *e) {
    const struct gguf_value *value = gguf_find(n->gguf, key);
    const bool listed = value && value->type == GGUF_ARRAY && value->element == GGUF_F32;
    if (!value) {
        err_set(e, ERR_FORMAT, "key %s is missing", key);
        return err_fix(e, "fetch a complete conversion of the model");
    }
    if (listed && check_count(value, key, n->n_layers, e)) return e->status;
    for (int32_t l = 0; l < n->n_layers; l++) {
        if (listed) out[l] = (float)gguf_array_float(value, (uint64_t)l);
        if (!listed && gguf_read_f32(n->gguf, key, &out[l], e)) return e->status;
        if (isfinite(out[l])) continue;
        err_set(e, ERR_FORMAT, "key %s of layer %d", key, l);
        err_expected(e, "a number");
        return err_actual(e, "%g", (double)out[l]);
    }
    return OK;
}

// Architectures whose files do not say which layers slide: all but the last of each period, or all
// but the first.
static const struct {
    const char *architecture;
    int32_t period, window;
    bool first_sees_all;
} WINDOWS[] = {{"gemma2", 2, 4096, false}, {"gemma3", 6, 0, false},  {"gemma3n", 5, 0, false},
               {"gpt-oss", 2, 0, false},   {"cohere2", 4, 0, false}, {"exaone4", 4, 0, false},
               {"olmo2", 4, 0, false},     {"mellum", 4, 0, false},  {"exaone-moe", 4, 0, false},
               {"afmoe", 4, 0, false},     {"laguna", 4, 0, true}};

// Sets out[l] to 1 where layer l slides: the key is a period, or a list of flags.
static enum status read_pattern(const struct layer_numbers *n, int32_t period, bool first_sees_all,
                                int32_t *out, struct err *e) {
    static const char name[] = "attention.sliding_window_pattern";
    const struct gguf_value *value = gguf_find(n->gguf, key_of(n, name).text);
    if (value && is_list(value)) return per_layer_read(n, name, 1, 0, out, e);
    if (per_layer_read(n, name, MAX_LAYERS, period, out, e)) return e->status;
    for (int32_t l = 0; l < n->n_layers; l++)
        out[l] = out[l] == 0 || l % out[l] != (first_sees_all ? 0 : out[l] - 1);
    return OK;
}

enum status per_layer_windows(const struct layer_numbers *n, int32_t *out, struct err *e) {
    int32_t slides[MAX_LAYERS], period = 1, window = 0;
    bool first_sees_all = false;
    ASSERT(n->n_layers <= MAX_LAYERS);
    for (size_t i = 0; i < sizeof WINDOWS / sizeof *WINDOWS; i++) {
        if (strcmp(WINDOWS[i].architecture, n->architecture) != 0) continue;
        period = WINDOWS[i].period;
        window = WINDOWS[i].window;
        first_sees_all = WINDOWS[i].first_sees_all;
    }
    if (read_pattern(n, period, first_sees_all, slides, e) ||
        per_layer_read(n, "attention.sliding_window", SHAPE_CONTEXT, window, out, e))
        return e->status;
    for (int32_t l = 0; l < n->n_layers; l++) out[l] = slides[l] ? out[l] : 0;
    return OK;
}

const struct gguf_tensor *per_layer_tensor(const struct gguf *g, int32_t layer,
                                           enum tensor_role role) {
    const struct gguf_tensor *found = NULL;
    const char *name;
    char text[TENSOR_NAME + 16];
    for (int i = 0; !found && (name = tensor_role_name(role, i)); i++) {
        if (layer >= 0) snprintf(text, sizeof text, "blk.%d.%s", layer, name);
        found = gguf_find_tensor(g, layer >= 0 ? text : name);
    }
    return found;
}

bool per_layer_joint_norm(const struct gguf *g, int32_t layer) {
    return per_layer_tensor(g, layer, ROLE_FFN_POST_NORM) &&
           !per_layer_tensor(g, layer, ROLE_EXPERT_NORM);
}

/* shape_file.c: reads a model's shape from JSON. See shape.h and configs/models/README.md.
 *
 * Owns nothing that outlives a call. Every field is checked before it is used, unknown ones are
 * refused. shape_expand.c turns the fields into units and tensors. Any thread. Tested by
 * tests/planner/test_shape.c and tests/fuzz/fuzz_shape.c.
 */
#include "planner/shape/shape_spec.h"

#include "base/file.h"
#include "base/mem.h"
#include "base/number.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

enum {
    FILE_LIMIT = 1 << 20,
    MAX_STATE = 1 << 10,
    MAX_KERNEL = 64,
    MAX_FIELDS = 24, // of one object
};

// ---- JSON ---------------------------------------------------------------------------------------

// One object while it is read, and the fields that were asked for. After an error the readers do
// nothing more, so that a list of fields needs no checks in between.
struct object {
    const char *path; // "attention.", for messages
    const json_t *json;
    const char *known[MAX_FIELDS];
    int n_known;
    struct err *e;
};

static bool failed(const struct object *o) { return o->e->status != OK; }

static void refuse(const struct object *o, const char *field, const char *expected,
                   const json_t *actual) {
    static const char *const types[] = {
        [JSON_OBJECT] = "an object", [JSON_ARRAY] = "a list",  [JSON_STRING] = "a text",
        [JSON_INTEGER] = "a number", [JSON_REAL] = "a number", [JSON_TRUE] = "true",
        [JSON_FALSE] = "false",      [JSON_NULL] = "null",
    };
    err_set(o->e, ERR_FORMAT, "field %s%s", o->path, field);
    err_expected(o->e, "%s", expected);
    if (!actual)
        err_actual(o->e, "nothing");
    else if (json_is_integer(actual))
        err_actual(o->e, "%lld", (long long)json_integer_value(actual));
    else if (json_is_real(actual))
        err_actual(o->e, "%g", json_real_value(actual));
    else if (json_is_string(actual))
        err_actual(o->e, "\"%.60s\"", json_string_value(actual));
    else
        err_actual(o->e, "%s", types[json_typeof(actual)]);
}

static const json_t *get(struct object *o, const char *field) {
    ASSERT(o->n_known < MAX_FIELDS);
    o->known[o->n_known++] = field;
    return json_object_get(o->json, field);
}

// Reads an integer. A missing field leaves *out unchanged; if *out is 0, the field is required.
static void read_int(struct object *o, const char *field, int32_t low, int32_t high, int32_t *out) {
    if (failed(o)) return;
    const json_t *value = get(o, field);
    const json_int_t number = value ? json_integer_value(value) : *out;
    if ((!value || json_is_integer(value)) && number >= low && number <= high) {
        *out = (int32_t)number;
        return;
    }
    char expected[64];
    snprintf(expected, sizeof expected, "a whole number, %d to %d", low, high);
    refuse(o, field, expected, value);
}

static void read_bool(struct object *o, const char *field, bool *out) {
    if (failed(o)) return;
    const json_t *value = get(o, field);
    if (!value) return;
    if (!json_is_boolean(value)) return refuse(o, field, "true or false", value);
    *out = json_is_true(value);
}

// Reads a text, which is required if *out is empty.
static void read_text(struct object *o, const char *field, size_t size_bytes, char *out) {
    if (failed(o)) return;
    const json_t *value = get(o, field);
    if (!value && out[0]) return;
    const size_t length = json_string_length(value);
    char expected[64];
    snprintf(expected, sizeof expected, "a text of 1 to %zu bytes", size_bytes - 1);
    if (length == 0 || length >= size_bytes) return refuse(o, field, expected, value);
    shape_set_text(out, size_bytes, json_string_value(value), length);
}

// Reads the fields for people and tests: the source of the numbers, the bytes of the weights.
static void read_notes(struct object *o) {
    if (failed(o)) return;
    const json_t *source = get(o, "source"), *weights_gb = get(o, "weights_gb");
    if (source && !json_is_string(source)) return refuse(o, "source", "a text", source);
    if (weights_gb && !(json_number_value(weights_gb) > 0)) {
        refuse(o, "weights_gb", "a number above 0", weights_gb);
    }
}

static void read_biases(struct object *o, bool out[BIASES]) {
    static const char *const names[BIASES] = {"q", "k", "v", "output"};
    if (failed(o)) return;
    const json_t *list = get(o, "biases");
    if (!list) return;
    if (!json_is_array(list)) return refuse(o, "biases", "a list of names", list);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *name = json_array_get(list, i);
        int n = json_is_string(name) ? 0 : BIASES;
        while (n < BIASES && strcmp(names[n], json_string_value(name)) != 0) n++;
        if (n == BIASES) return refuse(o, "biases", "names out of q, k, v, output", name);
        out[n] = true;
    }
}

// Enters the object in a field; false if it is missing, which is an error if it is required.
static bool enter(struct object *parent, const char *field, bool required, const char *path,
                  struct object *out) {
    if (failed(parent)) return false;
    const json_t *value = get(parent, field);
    *out = (struct object){.path = path, .json = value, .e = parent->e};
    if (json_is_object(value)) return true;
    if (value || required) refuse(parent, field, "an object", value);
    return false;
}

// Refuses a field that no reader asked for.
static void leave(struct object *o) {
    if (failed(o)) return;
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)o->json, key, value) {
        int i = 0;
        while (i < o->n_known && strcmp(o->known[i], key) != 0) i++;
        if (i < o->n_known) continue;
        err_set(o->e, ERR_FORMAT, "field %s%.60s is unknown", o->path, key);
        err_fix(o->e, "configs/models/README.md lists the fields");
        return;
    }
}

// ---- Fields -------------------------------------------------------------------------------------

static void read_latent(struct object *attention, struct shape_spec *s) {
    struct latent_shape *l = &s->attention.latent;
    struct object o;
    if (!enter(attention, "latent", false, "attention.latent.", &o)) return;
    read_int(&o, "rank", 1, SHAPE_HEAD_DIM, &l->rank);
    read_int(&o, "query_rank", 0, SHAPE_WIDTH, &l->query_rank);
    read_int(&o, "value_dim", 1, SHAPE_HEAD_DIM, &l->value_dim);
    l->key_dim = s->attention.head_dim;
    leave(&o);
}

static void read_attention(struct object *top, struct shape_spec *s) {
    struct object o;
    if (!enter(top, "attention", true, "attention.", &o)) return;
    read_int(&o, "n_heads", 1, SHAPE_HEADS, &s->attention.n_heads);
    s->attention.n_kv_heads = s->attention.n_heads;
    read_int(&o, "n_kv_heads", 1, s->attention.n_heads, &s->attention.n_kv_heads);
    if (!failed(&o)) s->attention.head_dim = s->n_embd / s->attention.n_heads;
    read_int(&o, "head_dim", 1, SHAPE_HEAD_DIM, &s->attention.head_dim);
    s->attention.n_rot = s->attention.head_dim;
    read_int(&o, "n_rot", 0, s->attention.head_dim, &s->attention.n_rot);
    read_biases(&o, s->attention.has_bias);
    read_bool(&o, "qk_norm", &s->attention.qk_norm);
    read_bool(&o, "joint_qk_norm", &s->attention.joint_qk_norm);
    read_bool(&o, "sinks", &s->attention.sinks);
    read_bool(&o, "gated", &s->attention.gated);
    read_bool(&o, "post_norm", &s->attention.post_norm);
    read_bool(&o, "value_norm", &s->attention.value_norm);
    read_bool(&o, "keys_are_values", &s->attention.keys_are_values);
    read_int(&o, "n_shared", 0, s->n_layers - 1, &s->attention.n_shared);
    read_latent(&o, s);
    leave(&o);
    s->window.n_kv_heads = s->attention.n_kv_heads;
    s->window.head_dim = s->attention.head_dim;
    s->window.n_rot = s->attention.n_rot;
}

// Reads the letters of layers: a line of them has one for each layer.
static void read_letters(struct object *top, struct shape_spec *s) {
    static const char letters[] = {LAYER_ATTENTION, LAYER_RECURRENT, LAYER_FFN, LAYER_EXPERTS, 0};
    if (failed(top) || !json_object_get(top->json, "layers")) {
        if (!failed(top)) get(top, "layers");
        return;
    }
    read_text(top, "layers", sizeof s->layers, s->layers);
    if (failed(top)) return;
    if ((int32_t)strlen(s->layers) == s->n_layers && !s->layers[strspn(s->layers, letters)]) return;
    refuse(top, "layers", "a letter for each layer: a, r, f or e",
           json_object_get(top->json, "layers"));
}

static enum recurrence read_kind(struct object *o) {
    static const char *const names[] = {
        [RECURRENCE_DELTA] = "delta", [RECURRENCE_CONV] = "conv", [RECURRENCE_MAMBA] = "mamba"};
    char name[8] = "delta";
    read_text(o, "kind", sizeof name, name);
    for (int kind = RECURRENCE_DELTA; kind <= RECURRENCE_MAMBA; kind++)
        if (strcmp(names[kind], name) == 0) return (enum recurrence)kind;
    if (!failed(o)) refuse(o, "kind", "delta, conv or mamba", json_object_get(o->json, "kind"));
    return RECURRENCE_NONE;
}

static void read_recurrent(struct object *top, struct shape_spec *s) {
    struct object o;
    if (!enter(top, "recurrent", false, "recurrent.", &o)) return;
    const enum recurrence kind = s->recurrent.kind = read_kind(&o);
    if (kind == RECURRENCE_MAMBA) read_bool(&o, "beside", &s->recurrent.beside);
    if (!s->layers[0] && !s->recurrent.beside)
        read_int(&o, "period", 2, MAX_LAYERS, &s->recurrent.period);
    if (kind != RECURRENCE_CONV) {
        read_int(&o, "n_heads", 1, MAX_STATE, &s->recurrent.n_heads);
        read_int(&o, "n_groups", 1, MAX_STATE, &s->recurrent.n_groups);
        read_int(&o, "state_size", 1, MAX_STATE, &s->recurrent.state_size);
        s->recurrent.head_dim = s->recurrent.state_size;
    }
    if (kind == RECURRENCE_MAMBA) {
        read_int(&o, "head_dim", 1, MAX_STATE, &s->recurrent.head_dim);
        read_bool(&o, "norm", &s->recurrent.norm);
    }
    read_int(&o, "conv_kernel", 2, MAX_KERNEL, &s->recurrent.conv_kernel);
    if (kind == RECURRENCE_DELTA) read_bool(&o, "joins_gates", &s->recurrent.joins_gates);
    leave(&o);
}

static void read_layer_kinds(struct object *top, struct shape_spec *s) {
    struct object o;
    if (enter(top, "window", false, "window.", &o)) {
        read_int(&o, "positions", 1, SHAPE_CONTEXT, &s->window.positions);
        read_int(&o, "period", 2, MAX_LAYERS, &s->window.period);
        read_int(&o, "n_kv_heads", 1, s->attention.n_heads, &s->window.n_kv_heads);
        read_int(&o, "head_dim", 1, SHAPE_HEAD_DIM, &s->window.head_dim);
        s->window.n_rot = min_i32(s->window.n_rot, s->window.head_dim);
        read_int(&o, "n_rot", 0, s->window.head_dim, &s->window.n_rot);
        leave(&o);
    }
    read_letters(top, s);
    read_recurrent(top, s);
    if (failed(top) || s->recurrent.kind || !strchr(s->layers, LAYER_RECURRENT)) return;
    refuse(top, "recurrent", "an object, as some layers are recurrent", NULL);
}

static void read_experts(struct object *top, struct shape_spec *s) {
    struct object o;
    if (!enter(top, "experts", false, "experts.", &o)) return;
    read_int(&o, "n_experts", 1, SHAPE_EXPERTS, &s->experts.n_experts);
    read_int(&o, "n_experts_used", 1, s->experts.n_experts, &s->experts.n_experts_used);
    read_int(&o, "n_ff", 1, SHAPE_WIDTH, &s->experts.n_ff);
    read_int(&o, "n_ff_shared", 0, SHAPE_WIDTH, &s->experts.n_ff_shared);
    read_int(&o, "n_dense_layers", 0, s->n_layers, &s->experts.n_dense_layers);
    read_bool(&o, "shared_gate", &s->experts.shared_gate);
    read_bool(&o, "biases", &s->experts.biases);
    read_bool(&o, "beside_ffn", &s->experts.beside_ffn);
    read_bool(&o, "selection_bias", &s->experts.selection_bias);
    read_bool(&o, "ungated", &s->experts.ungated);
    leave(&o);
}

static void read_ffn(struct object *top, struct shape_spec *s) {
    struct object o;
    const bool any = s->experts.n_experts == 0 || s->experts.n_dense_layers > 0;
    const bool required = any || s->experts.beside_ffn || strchr(s->layers, LAYER_FFN);
    if (!enter(top, "ffn", required, "ffn.", &o)) return;
    if (!required) return refuse(top, "ffn", "nothing, as every layer has experts", o.json);
    read_int(&o, "n_ff", 1, SHAPE_WIDTH, &s->ffn.n_ff);
    s->ffn.n_ff_sharing = s->ffn.n_ff;
    read_int(&o, "n_ff_sharing", 1, SHAPE_WIDTH, &s->ffn.n_ff_sharing);
    read_bool(&o, "post_norm", &s->ffn.post_norm);
    read_bool(&o, "ungated", &s->ffn.ungated);
    leave(&o);
}

static void read_spec(struct object *top, struct shape_spec *s) {
    memcpy(s->ffn_norm_name, "ffn_norm", sizeof "ffn_norm");
    read_text(top, "name", sizeof s->name, s->name);
    read_text(top, "architecture", sizeof s->architecture, s->architecture);
    read_text(top, "quant", sizeof s->quant, s->quant);
    read_text(top, "ffn_norm_name", sizeof s->ffn_norm_name, s->ffn_norm_name);
    read_int(top, "n_layers", 1, MAX_LAYERS, &s->n_layers);
    read_int(top, "n_embd", 1, SHAPE_WIDTH, &s->n_embd);
    read_int(top, "n_vocab", 1, SHAPE_VOCAB, &s->n_vocab);
    read_int(top, "n_ctx_train", 1, SHAPE_CONTEXT, &s->n_ctx_train);
    read_bool(top, "tied", &s->tied);
    read_bool(top, "can_run", &s->can_run);
    read_int(top, "n_layer_input", 0, SHAPE_WIDTH / MAX_LAYERS, &s->n_layer_input);
    read_bool(top, "layer_scale", &s->layer_scale);
    read_bool(top, "lacks_pre_norms", &s->lacks_pre_norms);
    read_notes(top);
    read_attention(top, s);
    read_layer_kinds(top, s);
    read_experts(top, s);
    read_ffn(top, s);
    leave(top);
}

// ---- Files --------------------------------------------------------------------------------------

static enum status build_shape(struct shape *out, const json_t *json, struct err *e) {
    struct shape_spec spec = {0};
    struct object top = {.path = "", .json = json, .e = e};
    if (!json_is_object(json))
        return err_set(e, ERR_FORMAT, "the file is no JSON object in { and }");
    read_spec(&top, &spec);
    if (e->status) return e->status;
    return shape_expand(out, &spec, e);
}

enum status shape_parse(struct shape *out, const char *text, size_t length, struct err *e) {
    ASSERT(out);
    ASSERT(text || length == 0);
    json_error_t error;
    json_t *json = json_loadb(text ? text : "", length, JSON_REJECT_DUPLICATES, &error);
    *e = (struct err){.status = OK};
    if (!json) {
        return err_set(e, ERR_FORMAT, "line %d, column %d: %s", error.line, error.column,
                       error.text);
    }
    build_shape(out, json, e);
    json_decref(json);
    return e->status;
}

enum status shape_load(struct shape *out, const char *path, struct err *e) {
    char *text;
    size_t length;
    if (file_read_text(&text, &length, path, FILE_LIMIT, e)) return e->status;
    shape_parse(out, text, length, e);
    mem_free(text);
    return e->status ? err_context(e, "%s", path) : OK;
}

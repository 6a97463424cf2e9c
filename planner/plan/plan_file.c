/* plan_file.c: plans as JSON: written, read back, and replayed to the byte.
 *
 * Owns nothing: values go into the caller's structs. A file is hostile until plan_parse has taken
 * every field by name, type and range; sizes are only compared, never allocated. Must not open
 * devices. Any thread. Tested by tests/planner/test_plan_file.c and tests/fuzz/fuzz_plan.c.
 */
#include "planner/plan/plan_file.h"

#include "base/file.h"
#include "base/mem.h"
#include "planner/plan/predict.h"

#include <inttypes.h>
#include <string.h>

#include <jansson.h>

enum { FILE_LIMIT_BYTES = 4 << 20, UNIT_NAME = 48, VERSION = 1 };

// ---- Writing ------------------------------------------------------------------------------------

static json_t *count_value(uint64_t count) {
    return json_integer(count > INT64_MAX ? INT64_MAX : (json_int_t)count);
}

// Names come from files and drivers and may be no UTF-8, which JSON cannot hold.
static json_t *name_value(const char *name) {
    json_t *value = json_string(name);
    return value ? value : json_string("unknown");
}

static json_t *model_value(const struct shape *shape) {
    return json_pack("{s:o, s:o, s:i, s:i, s:o}", "name", name_value(shape->name), "architecture",
                     name_value(shape->architecture), "layers", shape->n_layers, "units",
                     shape->n_units, "weights_bytes", count_value(shape_weight_bytes(shape)));
}

static json_t *workload_value(const struct workload *w) {
    json_t *value =
        json_pack("{s:i, s:i, s:i, s:i, s:s, s:s, s:i, s:i}", "n_ctx", w->n_ctx, "n_ubatch",
                  w->n_ubatch, "n_sessions", w->n_sessions, "max_logits", w->max_logits,
                  "cache_type_k", dtype_name(w->kv_type_k), "cache_type_v",
                  dtype_name(w->kv_type_v), "prompt_tokens", w->n_prompt, "gen_tokens", w->n_gen);
    if (w->full_windows) json_object_set_new(value, "full_windows", json_true());
    return value;
}

static json_t *devices_value(const struct plan *plan) {
    json_t *list = json_array();
    for (int32_t d = 0; d < plan->machine.n_devices; d++) {
        const struct machine_device *device = &plan->machine.devices[d];
        json_t *row =
            json_pack("{s:s, s:o}", "kind", device->kind, "name", name_value(device->name));
        for (int p = 0; p < PLAN_PURPOSES; p++)
            json_object_set_new(row, plan_purpose_name((enum plan_purpose)p),
                                count_value(plan->devices[d].bytes[p]));
        json_array_append_new(list, row);
    }
    return list;
}

static json_t *placement_value(const struct plan *plan, const struct shape *shape) {
    json_t *places = json_object();
    for (int32_t u = 0; u < plan->n_units; u++) {
        char name[UNIT_NAME];
        plan_unit_name(&shape->units[u], name, sizeof name);
        json_object_set_new(places, name,
                            json_string(plan->machine.devices[plan->place.units[u].device].kind));
    }
    return places;
}

// Adds the fields of split and streamed units, if there are any.
static void add_ways(json_t *root, const struct plan *plan, const struct shape *shape) {
    json_t *parts = json_object(), *streamed = json_array();
    for (int32_t u = 0; u < plan->n_units; u++) {
        char name[UNIT_NAME];
        plan_unit_name(&shape->units[u], name, sizeof name);
        if (plan->place.units[u].cpu_parts)
            json_object_set_new(parts, name, json_integer(plan->place.units[u].cpu_parts));
        if (plan->place.units[u].streamed) json_array_append_new(streamed, json_string(name));
    }
    if (json_object_size(parts)) json_object_set(root, "cpu_parts", parts);
    if (json_array_size(streamed)) {
        json_object_set(root, "streamed", streamed);
        json_object_set_new(root, "feed", json_string(feed_name(plan->place.feed)));
    }
    json_decref(parts);
    json_decref(streamed);
}

static json_t *prediction_value(const struct plan *plan, const struct shape *shape) {
    struct prediction prediction;
    if (plan->machine.rates == RATES_NONE) return json_null();
    plan_predict(plan, shape, &prediction);
    return json_pack("{s:f, s:f}", "prompt_ms", prediction.prompt_us / 1e3, "decode_ms",
                     prediction.decode_us / 1e3);
}

enum status plan_save(const struct plan *plan, const struct shape *shape, FILE *out,
                      struct err *e) {
    json_t *root =
        json_pack("{s:i, s:o, s:o, s:o, s:o, s:o, s:o}", "tandem_plan", VERSION, "model",
                  model_value(shape), "machine", name_value(plan->machine.name), "workload",
                  workload_value(&plan->workload), "devices", devices_value(plan), "prediction",
                  prediction_value(plan, shape), "placement", placement_value(plan, shape));
    if (!root) return err_memory(e, 0, "the text of the plan");
    add_ways(root, plan, shape);
    int result = json_dumpf(root, out, JSON_INDENT(1) | JSON_REAL_PRECISION(6));
    json_decref(root);
    if (result == 0 && fputc('\n', out) != EOF && fflush(out) == 0) return OK;
    return err_set(e, ERR_FILE, "the plan could not be written");
}

// ---- Reading ------------------------------------------------------------------------------------

static const char *type_name(const json_t *value) {
    if (!value) return "nothing";
    switch (json_typeof(value)) {
    case JSON_OBJECT: return "an object";
    case JSON_ARRAY: return "a list";
    case JSON_STRING: return "a text";
    case JSON_INTEGER: return "a whole number";
    case JSON_REAL: return "a number";
    case JSON_TRUE:
    case JSON_FALSE: return "true or false";
    case JSON_NULL: return "null";
    }
    return "something else";
}

static enum status wrong_type(struct err *e, const char *field, const char *expected,
                              const json_t *value) {
    err_set(e, ERR_FORMAT, "field %s", field);
    err_expected(e, "%s", expected);
    return err_actual(e, "%s", type_name(value));
}

static enum status read_count(const json_t *parent, const char *field, uint64_t high, uint64_t *out,
                              struct err *e) {
    const json_t *value = json_object_get(parent, field);
    if (!json_is_integer(value)) return wrong_type(e, field, "a whole number", value);
    json_int_t number = json_integer_value(value);
    if (number >= 0 && (uint64_t)number <= high) return *out = (uint64_t)number, OK;
    err_set(e, ERR_FORMAT, "field %s", field);
    err_expected(e, "0 to %" PRIu64, high);
    return err_actual(e, "%lld", (long long)number);
}

static enum status read_int(const json_t *parent, const char *field, int32_t *out, struct err *e) {
    uint64_t value = 0;
    if (read_count(parent, field, INT32_MAX, &value, e)) return e->status;
    if (value == 0) return err_set(e, ERR_FORMAT, "field %s is 0", field);
    *out = (int32_t)value;
    return OK;
}

static enum status read_text(const json_t *parent, const char *field, const char **out,
                             struct err *e) {
    const json_t *value = json_object_get(parent, field);
    if (!json_is_string(value)) return wrong_type(e, field, "a text", value);
    *out = json_string_value(value);
    return OK;
}

static enum status read_cache_type(const json_t *parent, const char *field, enum dtype *out,
                                   struct err *e) {
    const char *text = "";
    if (read_text(parent, field, &text, e)) return e->status;
    for (int i = 0; i < KV_TYPES; i++) {
        *out = kv_dtype((enum kv_type)i);
        if (strcmp(text, dtype_name(*out)) == 0) return OK;
    }
    err_set(e, ERR_FORMAT, "field %s", field);
    err_expected(e, "one of %s", kv_names());
    return err_actual(e, "'%s'", text);
}

// Checks that the plan is of a model with exactly these bytes; its name may differ.
static enum status check_model(const json_t *root, const struct shape *shape, struct err *e) {
    const json_t *model = json_object_get(root, "model");
    const char *name = "", *architecture = "";
    int32_t layers = 0, units = 0;
    uint64_t bytes = 0;
    if (!json_is_object(model)) return wrong_type(e, "model", "an object", model);
    if (read_text(model, "name", &name, e) || read_text(model, "architecture", &architecture, e) ||
        read_int(model, "layers", &layers, e) || read_int(model, "units", &units, e) ||
        read_count(model, "weights_bytes", INT64_MAX, &bytes, e))
        return e->status;
    if (strcmp(architecture, shape->architecture) == 0 && layers == shape->n_layers &&
        units == shape->n_units && bytes == shape_weight_bytes(shape))
        return OK;
    err_set(e, ERR_USAGE, "the plan is of another model");
    err_expected(e, "%.60s (%s, %d layers, %" PRIu64 " bytes)", shape->name, shape->architecture,
                 shape->n_layers, shape_weight_bytes(shape));
    err_actual(e, "%.60s (%.20s, %d layers, %" PRIu64 " bytes)", name, architecture, layers, bytes);
    return err_fix(e, "make a plan of this model: tandem plan ... --save FILE");
}

static enum status parse_workload(struct workload *w, const json_t *root, const struct shape *shape,
                                  struct err *e) {
    const json_t *value = json_object_get(root, "workload");
    if (!json_is_object(value)) return wrong_type(e, "workload", "an object", value);
    *w = (struct workload){0};
    if (read_int(value, "n_ctx", &w->n_ctx, e) || read_int(value, "n_ubatch", &w->n_ubatch, e) ||
        read_int(value, "n_sessions", &w->n_sessions, e) ||
        read_int(value, "max_logits", &w->max_logits, e) ||
        read_cache_type(value, "cache_type_k", &w->kv_type_k, e) ||
        read_cache_type(value, "cache_type_v", &w->kv_type_v, e) ||
        read_int(value, "prompt_tokens", &w->n_prompt, e) ||
        read_int(value, "gen_tokens", &w->n_gen, e))
        return err_context(e, "workload");
    const json_t *full = json_object_get(value, "full_windows");
    if (full && !json_is_boolean(full))
        return wrong_type(e, "workload: full_windows", "true or false", full);
    w->full_windows = json_is_true(full);
    w->window = shape_window(shape);
    return OK;
}

static enum status parse_device(struct plan_file *out, int32_t d, const json_t *row,
                                struct err *e) {
    const char *kind = "";
    if (!json_is_object(row)) return wrong_type(e, "devices", "a list of objects", row);
    if (read_text(row, "kind", &kind, e)) return err_context(e, "device %d", d);
    if (!*kind || strlen(kind) >= sizeof out->kinds[d] || (d == 0) != !strcmp(kind, "cpu")) {
        err_set(e, ERR_FORMAT, "device %d: field kind", d);
        err_expected(e, d == 0 ? "cpu" : "the kind of a GPU");
        return err_actual(e, "'%.40s'", kind);
    }
    strcpy(out->kinds[d], kind);
    for (int p = 0; p < PLAN_PURPOSES; p++)
        if (read_count(row, plan_purpose_name((enum plan_purpose)p), INT64_MAX, &out->bytes[d][p],
                       e))
            return err_context(e, "device %d", d);
    return OK;
}

static enum status parse_devices(struct plan_file *out, const json_t *root, struct err *e) {
    const json_t *list = json_object_get(root, "devices");
    if (!json_is_array(list)) return wrong_type(e, "devices", "a list", list);
    size_t n = json_array_size(list);
    if (n < 1 || n > MAX_DEVICES) {
        err_set(e, ERR_FORMAT, "field devices");
        err_expected(e, "1 to %d devices", MAX_DEVICES);
        return err_actual(e, "%zu", n);
    }
    for (size_t d = 0; d < n; d++)
        if (parse_device(out, (int32_t)d, json_array_get(list, d), e)) return e->status;
    return OK;
}

static enum status parse_placement(struct plan_file *out, const json_t *root,
                                   const struct shape *shape, struct err *e) {
    const json_t *places = json_object_get(root, "placement");
    if (!json_is_object(places)) return wrong_type(e, "placement", "an object", places);
    out->constraints.has_units = true;
    for (int32_t u = 0; u < shape->n_units; u++) {
        char name[UNIT_NAME];
        const char *kind = "";
        plan_unit_name(&shape->units[u], name, sizeof name);
        if (read_text(places, name, &kind, e)) return err_context(e, "placement");
        int8_t device = -1;
        for (int8_t d = 0; d < MAX_DEVICES; d++)
            if (*out->kinds[d] && strcmp(kind, out->kinds[d]) == 0) device = d;
        if (device < 0) {
            err_set(e, ERR_FORMAT, "placement: %s is on no device of the plan", name);
            err_expected(e, "%s%s%s", out->kinds[0], *out->kinds[1] ? " or " : "", out->kinds[1]);
            return err_actual(e, "'%.40s'", kind);
        }
        out->constraints.place.units[u].device = device;
    }
    if (json_object_size(places) == (size_t)shape->n_units) return OK;
    err_set(e, ERR_FORMAT, "placement: names that this model does not have");
    err_expected(e, "%d names", shape->n_units);
    return err_actual(e, "%zu", json_object_size(places));
}

static enum status unknown_units(const char *field, size_t count, size_t known, struct err *e) {
    err_set(e, ERR_FORMAT, "%s: names that this model does not have, or twice the same", field);
    err_expected(e, "%zu names", known);
    return err_actual(e, "%zu", count);
}

static enum status parse_parts(struct constraints *c, const json_t *root, const struct shape *shape,
                               struct err *e) {
    const json_t *parts = json_object_get(root, "cpu_parts");
    if (!parts) return OK;
    if (!json_is_object(parts)) return wrong_type(e, "cpu_parts", "an object", parts);
    size_t n_known = 0;
    for (int32_t u = 0; u < shape->n_units; u++) {
        char name[UNIT_NAME];
        uint64_t count;
        plan_unit_name(&shape->units[u], name, sizeof name);
        if (!json_object_get(parts, name)) continue;
        if (read_count(parts, name, UNIT_PARTS - 1, &count, e)) return err_context(e, "cpu_parts");
        c->place.units[u].cpu_parts = (uint8_t)count;
        n_known++;
    }
    if (json_object_size(parts) == n_known) return OK;
    return unknown_units("cpu_parts", json_object_size(parts), n_known, e);
}

// Makes an object of the texts of a list, to find them by name. NULL if one is no text.
static json_t *set_of(const json_t *list) {
    json_t *set = json_object();
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *text = json_string_value(json_array_get(list, i));
        if (text && json_object_set_new(set, text, json_true()) == 0) continue;
        json_decref(set);
        return NULL;
    }
    return set;
}

static enum status parse_streamed(struct constraints *c, const json_t *root,
                                  const struct shape *shape, struct err *e) {
    const json_t *list = json_object_get(root, "streamed");
    if (!list) return OK;
    json_t *set = json_is_array(list) ? set_of(list) : NULL;
    if (!set) return wrong_type(e, "streamed", "a list of texts", list);
    size_t n_known = 0;
    for (int32_t u = 0; u < shape->n_units; u++) {
        char name[UNIT_NAME];
        plan_unit_name(&shape->units[u], name, sizeof name);
        c->place.units[u].streamed = json_object_get(set, name) != NULL;
        n_known += c->place.units[u].streamed;
    }
    json_decref(set);
    if (json_array_size(list) == n_known) return OK;
    return unknown_units("streamed", json_array_size(list), n_known, e);
}

// Reads the fields of split and streamed units, which other plans lack.
static enum status parse_ways(struct constraints *c, const json_t *root, const struct shape *shape,
                              struct err *e) {
    c->has_placement = true;
    if (parse_parts(c, root, shape, e) || parse_streamed(c, root, shape, e)) return e->status;
    if (!json_object_get(root, "streamed")) return OK;
    const char *feed = "";
    uint64_t n_slots = RING_SLOTS;
    if (read_text(root, "feed", &feed, e)) return e->status;
    if (json_object_get(root, "slots") && read_count(root, "slots", INT32_MAX, &n_slots, e))
        return e->status;
    if (n_slots != RING_SLOTS) { // earlier versions had rings of up to four
        err_set(e, ERR_FORMAT, "field slots");
        err_expected(e, "%d, the slots of every ring", RING_SLOTS);
        return err_actual(e, "%" PRIu64, n_slots);
    }
    if (feed_parse(feed, &c->place.feed) && c->place.feed != FEED_NONE) return OK;
    err_set(e, ERR_FORMAT, "field feed");
    err_expected(e, "arena or staged");
    return err_actual(e, "'%.40s'", feed);
}

static enum status parse_root(struct plan_file *out, const json_t *root, const struct shape *shape,
                              struct err *e) {
    uint64_t version = 0;
    if (!json_is_object(root)) return wrong_type(e, "of the whole file", "an object", root);
    if (read_count(root, "tandem_plan", INT32_MAX, &version, e))
        return err_fix(e, "a plan is written by: tandem plan ... --save FILE");
    if (version != VERSION) {
        err_set(e, ERR_UNSUPPORTED, "the plan has another version");
        err_expected(e, "%d", VERSION);
        return err_actual(e, "%" PRIu64, version);
    }
    if (check_model(root, shape, e) || parse_workload(&out->workload, root, shape, e) ||
        parse_devices(out, root, e) || parse_placement(out, root, shape, e))
        return e->status;
    return parse_ways(&out->constraints, root, shape, e);
}

enum status plan_parse(struct plan_file *out, const struct shape *shape, const char *text,
                       size_t length, struct err *e) {
    json_error_t error;
    *out = (struct plan_file){.constraints = {.gpu_layers = GPU_LAYERS_AUTO}};
    json_t *root = json_loadb(text, length, JSON_REJECT_DUPLICATES, &error);
    if (!root) {
        err_set(e, ERR_FORMAT, "line %d: %s", error.line, error.text);
        return err_fix(e, "a plan is written by: tandem plan ... --save FILE");
    }
    enum status status = parse_root(out, root, shape, e);
    json_decref(root);
    return status;
}

enum status plan_load(struct plan_file *out, const struct shape *shape, const char *path,
                      struct err *e) {
    char *text;
    size_t length;
    if (file_read_text(&text, &length, path, FILE_LIMIT_BYTES, e)) return e->status;
    enum status status = plan_parse(out, shape, text, length, e);
    mem_free(text);
    return status == OK ? OK : err_context(e, "%s", path);
}

// ---- Replaying ----------------------------------------------------------------------------------

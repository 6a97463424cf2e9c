/* machine_file.c: see machine.h. Reads and writes machines as JSON.
 *
 * machine_fields.c lists the fields of a file. Forms that are shorter than those of machine_save
 * (one number for a row of rates, one row for all types) are expanded here and nowhere else.
 * configs/machines/README.md describes both.
 */
#include "planner/machine/machine.h"

#include "base/file.h"
#include "base/mem.h"
#include "planner/machine/machine_fields.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

enum { FILE_LIMIT_BYTES = 1 << 20, ALIGN_HOST = 64, ALIGN_DEVICE = 256 };

// ---- Reading values -----------------------------------------------------------------------------

// Describes a value in a few words, for messages.
static const char *describe(const json_t *value, char *out, size_t size) {
    if (!value)
        snprintf(out, size, "nothing");
    else if (json_is_string(value))
        snprintf(out, size, "\"%s\"", json_string_value(value));
    else if (json_is_integer(value))
        snprintf(out, size, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
    else if (json_is_real(value))
        snprintf(out, size, "%g", json_real_value(value));
    else if (json_is_array(value))
        snprintf(out, size, "a list of %zu", json_array_size(value));
    else
        snprintf(out, size, "%s",
                 json_is_object(value)  ? "an object"
                 : json_is_true(value)  ? "true"
                 : json_is_false(value) ? "false"
                                        : "null");
    return out;
}

static enum status bad(struct err *e, const char *where, const char *name, const char *expected,
                       const json_t *got) {
    char text[128];
    err_set(e, ERR_FORMAT, "%s%s%s", where, *where && *name ? "." : "", name);
    err_expected(e, "%s", expected);
    return err_actual(e, "%s", describe(got, text, sizeof text));
}

static enum status read_text(char *out, size_t size, const json_t *value, const char *where,
                             const char *name, struct err *e) {
    char expected[48];
    snprintf(expected, sizeof expected, "a text of at most %zu bytes", size - 1);
    if (!json_is_string(value) || json_string_length(value) >= size)
        return bad(e, where, name, expected, value);
    memcpy(out, json_string_value(value), json_string_length(value));
    return OK;
}

static enum status read_field(const struct machine_field *field, void *at, const json_t *value,
                              const char *where, struct err *e) {
    json_int_t whole = json_integer_value(value);
    bool is_whole = json_is_integer(value) && whole >= 0;
    switch (field->kind) {
    case FIELD_TEXT: return read_text(at, field->size, value, where, field->name, e);
    case FIELD_COUNT:
        if (!is_whole || whole > INT32_MAX) break;
        *(int32_t *)at = (int32_t)whole;
        return OK;
    case FIELD_BYTES:
        if (!is_whole || (field->size == sizeof(uint32_t) && whole > UINT32_MAX)) break;
        if (field->size == sizeof(uint32_t))
            *(uint32_t *)at = (uint32_t)whole;
        else
            *(uint64_t *)at = (uint64_t)whole;
        return OK;
    case FIELD_FLAG:
        if (!json_is_boolean(value)) return bad(e, where, field->name, "true or false", value);
        *(bool *)at = json_is_true(value);
        return OK;
    case FIELD_REAL:
    case FIELD_RATE:
        if (!json_is_number(value)) return bad(e, where, field->name, "a number", value);
        *(double *)at = json_number_value(value);
        return OK;
    }
    return bad(e, where, field->name, "a whole number, not negative", value);
}

// ---- Reading objects ----------------------------------------------------------------------------

static bool known(enum machine_section section, const char *const *others, const char *key) {
    size_t n;
    const struct machine_field *fields = machine_fields(section, &n);
    for (size_t i = 0; i < n; i++)
        if (strcmp(fields[i].name, key) == 0) return true;
    for (; others && *others; others++)
        if (strcmp(*others, key) == 0) return true;
    return false;
}

// Reads the fields of a section into base. Missing fields stay unchanged; the caller reads all
// other keys. Any object may have a text "source", for people.
static enum status read_section(enum machine_section section, void *base, const json_t *object,
                                const char *const *others, const char *where, struct err *e) {
    if (!json_is_object(object))
        return bad(e, *where ? where : "the machine", "", "an object", object);
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)object, key, value) {
        bool note = strcmp(key, "source") == 0 && json_is_string(value);
        if (!note && !known(section, others, key))
            return bad(e, where, *key ? key : "\"\"", "no field of that name", value);
    }
    size_t n;
    const struct machine_field *fields = machine_fields(section, &n);
    for (size_t i = 0; i < n; i++) {
        value = json_object_get(object, fields[i].name);
        if (!value && fields[i].required) return bad(e, where, fields[i].name, "a value", NULL);
        if (value && read_field(&fields[i], (char *)base + fields[i].offset, value, where, e))
            return e->status;
    }
    return OK;
}

// ---- Reading rates ------------------------------------------------------------------------------

struct row_reader {
    const struct machine_matrix *matrix;
    const json_t *compute; // compute_gflops, or NULL
    const char *where;
};

// Expands one number to a row of weight rates: the time of a class is the longer one of reading the
// weights and of computing with them.
static enum status expand_row(double *out, double gbps, const struct row_reader *r, int32_t row,
                              struct err *e) {
    const json_t *compute = r->compute;
    if (json_is_object(compute)) {
        const json_t *own = json_object_get(compute, machine_row_name(r->matrix, row));
        compute = own ? own : json_object_get(compute, "default");
    }
    double gflops = json_number_value(compute);
    if (!json_is_number(compute) || gflops <= 0)
        return bad(e, r->where, "compute_gflops",
                   "a positive number for each type whose rate is one number", compute);
    const struct dtype_info *info = dtype_find((uint32_t)weight_dtype((enum weight_type)row));
    for (int c = 0; c < RATE_CLASSES; c++) {
        double flops_per_byte = 2.0 * RATE_TOKENS[c] * info->block_elements / info->block_bytes;
        double computed = gflops / flops_per_byte;
        out[c] = computed < gbps ? computed : gbps;
    }
    return OK;
}

static enum status read_row(double *out, const json_t *value, const struct row_reader *r,
                            int32_t row, struct err *e) {
    char name[64];
    snprintf(name, sizeof name, "%s.%s", r->matrix->name, machine_row_name(r->matrix, row));
    if (json_is_number(value) && r->matrix->by_weight)
        return expand_row(out, json_number_value(value), r, row, e);
    if (json_is_number(value)) {
        for (int c = 0; c < RATE_CLASSES; c++) out[c] = json_number_value(value);
        return OK;
    }
    if (!json_is_array(value) || json_array_size(value) != RATE_CLASSES)
        return bad(e, r->where, name, "a number, or one for each of 6 batch classes", value);
    for (size_t c = 0; c < RATE_CLASSES; c++) {
        const json_t *number = json_array_get(value, c);
        if (!json_is_number(number))
            return bad(e, r->where, name, "a number in each place", number);
        out[c] = json_number_value(number);
    }
    return OK;
}

static bool is_row(const struct machine_matrix *matrix, const char *key) {
    bool found = strcmp(key, "default") == 0;
    for (int32_t row = 0; row < matrix->n_rows; row++)
        found |= strcmp(key, machine_row_name(matrix, row)) == 0;
    return found;
}

// Checks that every key of a table of rates is a row's name or "default".
static enum status check_rows(const struct machine_matrix *matrix, const json_t *table,
                              const char *where, const char *name, struct err *e) {
    const char *key;
    json_t *value;
    if (!json_is_object(table)) return OK;
    json_object_foreach((json_t *)table, key, value) {
        char full[64], expected[64] = "\"default\" or a weight type like Q4_K";
        snprintf(full, sizeof full, "%s.%s", name, key);
        if (!matrix->by_weight)
            snprintf(expected, sizeof expected, "\"default\" or one of %s", kv_names());
        if (!is_row(matrix, key)) return bad(e, where, full, expected, value);
    }
    return OK;
}

static enum status read_matrix(struct device_rates *rates, const struct machine_matrix *matrix,
                               const json_t *object, const char *where, struct err *e) {
    const json_t *table = json_object_get(object, matrix->name);
    const json_t *compute = json_object_get(object, "compute_gflops");
    if (!table) return bad(e, where, matrix->name, "a value", NULL);
    if (check_rows(matrix, table, where, matrix->name, e)) return e->status;
    if (matrix->by_weight && check_rows(matrix, compute, where, "compute_gflops", e))
        return e->status;
    const struct row_reader reader = {matrix, compute, where};
    double *out = (double *)((char *)rates + matrix->offset);
    for (int32_t row = 0; row < matrix->n_rows; row++) {
        const char *name = machine_row_name(matrix, row);
        const json_t *value = table;
        if (json_is_object(table)) {
            value = json_object_get(table, name);
            if (!value) value = json_object_get(table, "default");
        }
        // A file from before a type of cache says nothing of it; it is much like Q8_0.
        if (!value && !matrix->by_weight && row > KV_Q8_0) {
            memcpy(out + row * RATE_CLASSES, out + KV_Q8_0 * RATE_CLASSES,
                   RATE_CLASSES * sizeof *out);
            continue;
        }
        if (read_row(out + row * RATE_CLASSES, value, &reader, row, e)) return e->status;
    }
    return OK;
}

static enum status read_rates(struct device_rates *out, const json_t *object, const char *where,
                              struct err *e) {
    static const char *const others[] = {"weight_gbps", "attention_gflops", "compute_gflops", NULL};
    if (read_section(SECTION_RATES, out, object, others, where, e)) return e->status;
    for (int i = 0; i < MACHINE_MATRICES; i++)
        if (read_matrix(out, &MACHINE_MATRIX[i], object, where, e)) return e->status;
    return OK;
}

// ---- Reading a machine --------------------------------------------------------------------------

// Sets the members that a device's object leaves out.
static void device_defaults(struct machine_device *device, const json_t *object, bool host,
                            int32_t n_cores) {
    if (!json_object_get(object, "is_host")) device->is_host = host;
    if (!json_object_get(object, "align_bytes"))
        device->align_bytes = host ? ALIGN_HOST : ALIGN_DEVICE;
    if (!json_object_get(object, "lanes")) device->n_lanes = host && n_cores > 0 ? n_cores : 1;
    if (!json_object_get(object, "budget_bytes"))
        device->budget_bytes = device->capacity_bytes > device->reserve_bytes
                                   ? device->capacity_bytes - device->reserve_bytes
                                   : 0;
}

static enum status read_device(struct machine *m, int32_t d, const json_t *object, struct err *e) {
    static const char *const others[] = {"rates", "link", NULL};
    struct machine_device *device = &m->devices[d];
    char where[24], inner[40];
    snprintf(where, sizeof where, "devices[%d]", (int)d);
    if (read_section(SECTION_DEVICE, device, object, others, where, e)) return e->status;
    device_defaults(device, object, d == 0, m->n_cores);
    const json_t *rates = json_object_get(object, "rates"), *link = json_object_get(object, "link");
    snprintf(inner, sizeof inner, "%s.rates", where);
    if (rates && read_rates(&device->rates, rates, inner, e)) return e->status;
    snprintf(inner, sizeof inner, "%s.link", where);
    if (link && read_section(SECTION_LINK, &device->link, link, NULL, inner, e)) return e->status;
    return OK;
}

static enum status read_devices(struct machine *m, const json_t *list, struct err *e) {
    if (!json_is_array(list) || json_array_size(list) < 1 || json_array_size(list) > MAX_DEVICES)
        return bad(e, "", "devices", "a list of the CPU and at most one GPU", list);
    m->n_devices = (int32_t)json_array_size(list);
    for (int32_t d = 0; d < m->n_devices; d++)
        if (read_device(m, d, json_array_get(list, (size_t)d), e)) return e->status;
    return OK;
}

// Reads "team_gbps": [[1, 12.5], [2, 21.0]].
static enum status read_teams(struct machine *m, const json_t *list, struct err *e) {
    static const char expected[] = "a list of pairs of threads and GB/s, at most 16";
    if (!list) return OK;
    if (!json_is_array(list) || json_array_size(list) > MAX_TEAM_SIZES)
        return bad(e, "memory", "team_gbps", expected, list);
    m->n_team_sizes = (int32_t)json_array_size(list);
    for (size_t i = 0; i < (size_t)m->n_team_sizes; i++) {
        const json_t *pair = json_array_get(list, i);
        const json_t *size = json_array_get(pair, 0), *gbps = json_array_get(pair, 1);
        if (json_array_size(pair) != 2 || !json_is_integer(size) || !json_is_number(gbps) ||
            json_integer_value(size) < 1 || json_integer_value(size) > INT32_MAX)
            return bad(e, "memory", "team_gbps", expected, pair);
        m->team_size[i] = (int32_t)json_integer_value(size);
        m->team_gbps[i] = json_number_value(gbps);
    }
    return OK;
}

// Reads the source of the rates, "file" if devices have rates and the file does not say.
static enum status read_source(struct machine *m, const json_t *root, struct err *e) {
    const json_t *devices = json_object_get(root, "devices");
    const json_t *word = json_object_get(root, "rates_from");
    size_t n = 0;
    for (size_t d = 0; d < json_array_size(devices); d++)
        n += json_object_get(json_array_get(devices, d), "rates") != NULL;
    if (n != 0 && n != json_array_size(devices))
        return err_set(e, ERR_FORMAT, "devices: one has rates and another has none");
    m->rates = n ? RATES_FILE : RATES_NONE;
    bool found = !word;
    for (int r = RATES_NONE; word && r <= (int)RATES_MEASURED; r++)
        if (json_is_string(word) && strcmp(json_string_value(word), MACHINE_RATES_WORDS[r]) == 0) {
            m->rates = (enum rates_source)r;
            found = true;
        }
    if (!found) return bad(e, "", "rates_from", "none, nearest, file or measured", word);
    if (m->rates == RATES_FILE && !json_object_get(root, "rates_name"))
        memcpy(m->rates_name, m->name, sizeof m->name);
    return OK;
}

// cpu_given: *m has the CPU side from a topology already; then "cpu" may be left out, and must
// agree otherwise.
static enum status read_machine(struct machine *m, const json_t *root, bool cpu_given,
                                struct err *e) {
    static const char *const top[] = {"cpu", "memory", "devices", "rates_from", "topology", NULL};
    static const char *const memory[] = {"team_gbps", NULL};
    if (read_section(SECTION_TOP, m, root, top, "", e)) return e->status;
    const json_t *cpu = json_object_get(root, "cpu"), *ram = json_object_get(root, "memory");
    const json_t *topology = json_object_get(root, "topology");
    if (topology && !json_is_string(topology))
        return bad(e, "", "topology", "the name of a file", topology);
    if (((cpu || !cpu_given) && read_section(SECTION_CPU, m, cpu, NULL, "cpu", e)) ||
        read_section(SECTION_MEMORY, m, ram, memory, "memory", e) ||
        read_teams(m, json_object_get(ram, "team_gbps"), e) ||
        read_devices(m, json_object_get(root, "devices"), e) || read_source(m, root, e))
        return e->status;
    return machine_check(m, e);
}

static enum status parse_root(json_t **root, const char *text, size_t length, struct err *e) {
    json_error_t error;
    *root = json_loadb(text, length, JSON_REJECT_DUPLICATES, &error);
    if (*root) return OK;
    return err_set(e, ERR_FORMAT, "line %d, column %d: %s", error.line, error.column, error.text);
}

enum status machine_parse(struct machine *out, const char *text, size_t length, struct err *e) {
    memset(out, 0, sizeof *out);
    json_t *root;
    if (parse_root(&root, text, length, e)) return e->status;
    enum status status = read_machine(out, root, false, e);
    json_decref(root);
    return status;
}

// ---- With a topology ----------------------------------------------------------------------------

// Makes the path of the topology file that root names, in the folder of path; NULL if it names none
// or memory is refused.
static char *topology_path(const char *path, const json_t *root, struct err *e) {
    const json_t *name = json_object_get(root, "topology");
    e->status = OK;
    if (!name) return NULL;
    const char *file = json_string_value(name), *slash = strrchr(path, '/');
    if (!file || !*file || strchr(file, '/')) {
        bad(e, "", "topology", "the name of a file in the same folder", name);
        return NULL;
    }
    size_t folder = slash ? (size_t)(slash + 1 - path) : 0, length = strlen(file);
    char *full = mem_alloc(folder + length + 1, 1);
    if (!full) {
        err_memory(e, folder + length + 1, "a file's name");
        return NULL;
    }
    memcpy(full, path, folder);
    memcpy(full + folder, file, length);
    return full;
}

static uint64_t count_at(const void *place, bool wide) {
    if (wide) return *(const uint64_t *)place;
    return (uint64_t) * (const int32_t *)place;
}

// Checks that the file's figures of the CPU are those of its topology, where the topology has them.
static enum status compare_cpu(const struct machine *m, const struct machine *topology,
                               struct err *e) {
    size_t n;
    const struct machine_field *fields = machine_fields(SECTION_CPU, &n);
    for (size_t i = 0; i < n; i++) {
        const void *a = (const char *)m + fields[i].offset;
        const void *b = (const char *)topology + fields[i].offset;
        bool wide = fields[i].kind == FIELD_BYTES;
        const uint64_t said = count_at(a, wide), has = count_at(b, wide);
        if (has == 0 || said == has) continue;
        err_set(e, ERR_FORMAT, "cpu.%s", fields[i].name);
        err_expected(e, "what the topology file has, %" PRIu64, has);
        return err_actual(e, "%" PRIu64, said);
    }
    return OK;
}

static enum status load_root(struct machine *out, const char *path, const json_t *root,
                             struct err *e) {
    char *xml = topology_path(path, root, e);
    if (e->status != OK) return e->status;
    if (!xml) return read_machine(out, root, false, e);
    struct machine topology;
    memset(&topology, 0, sizeof topology);
    double link_gbps;
    enum status status = machine_probe(&topology, xml, NULL, &link_gbps, e);
    mem_free(xml);
    // A build that cannot read topologies still accepts a file that has all figures itself.
    bool given = status == OK;
    if (!given && (status != ERR_UNSUPPORTED || !json_object_get(root, "cpu"))) return status;
    if (given) {
        *out = topology;
        out->ram_bytes = 0;
        memset(out->ram_limited_by, 0, sizeof out->ram_limited_by);
    }
    status = read_machine(out, root, given, e);
    return status == OK && given ? compare_cpu(out, &topology, e) : status;
}

enum status machine_load(struct machine *out, const char *path, struct err *e) {
    memset(out, 0, sizeof *out);
    char *text;
    size_t length;
    if (file_read_text(&text, &length, path, FILE_LIMIT_BYTES, e)) return e->status;
    json_t *root = NULL;
    enum status status = parse_root(&root, text, length, e);
    mem_free(text);
    if (status == OK) status = load_root(out, path, root, e);
    json_decref(root);
    return status == OK ? OK : err_context(e, "%s", path);
}

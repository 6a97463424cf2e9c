/* cli_inspect.c: `tandem inspect`: shows the contents of a GGUF file, supported or not; `tandem
 * show` only the ten lines that sum them up. See commands.h. */
#include "runtime/commands/commands.h"

#include "runtime/commands/inspect_summary.h"
#include "runtime/gguf/gguf.h"
#include "runtime/report/report.h"
#include "runtime/report/report_json.h"

#include <inttypes.h>
#include <string.h>

enum { SHOWN_ELEMENTS = 8, SHOWN_CHARACTERS = 100 };

// ---- For people ---------------------------------------------------------------------------------

static bool is_float(enum gguf_type type) { return type == GGUF_F32 || type == GGUF_F64; }

static void print_number(const struct gguf_value *v, uint64_t i) {
    if (is_float(v->element))
        printf("%.9g", gguf_array_float(v, i));
    else if (v->element == GGUF_BOOL)
        fputs(gguf_array_int(v, i) ? "true" : "false", stdout);
    else if (v->element == GGUF_U64)
        printf("%" PRIu64, gguf_array_u64(v, i));
    else
        printf("%" PRId64, gguf_array_int(v, i));
}

static void print_texts(const struct gguf_value *v) {
    const uint8_t *cursor = NULL;
    struct gguf_text text;
    for (int i = 0; i < SHOWN_ELEMENTS && gguf_next_text(v, &cursor, &text); i++) {
        fputs(i ? ", '" : "'", stdout);
        report_print_escaped(text.bytes, text.length, SHOWN_CHARACTERS, stdout);
        putchar('\'');
    }
}

static void print_elements(const struct gguf_value *v) {
    if (v->element == GGUF_STRING) {
        print_texts(v);
    } else if (v->element != GGUF_ARRAY) {
        for (uint64_t i = 0; i < v->count && i < SHOWN_ELEMENTS; i++) {
            if (i) fputs(", ", stdout);
            print_number(v, i);
        }
    }
}

static void print_value(const struct gguf_value *v) {
    char type[64];
    gguf_type_text(v, type, sizeof type);
    report_print_escaped(v->key.bytes, v->key.length, SHOWN_CHARACTERS, stdout);
    if (v->type == GGUF_ARRAY) {
        printf(" = %s, %" PRIu64 ": [", type, v->count);
        print_elements(v);
        puts(v->count > SHOWN_ELEMENTS ? ", ...]" : "]");
    } else {
        printf(" = %s: ", type);
        print_elements(v);
        putchar('\n');
    }
}

static void print_tensor(const struct gguf_tensor *t) {
    printf("  %-8s %14" PRIu64 "  [", dtype_name(t->type), t->size_bytes);
    for (int d = 0; d < t->n_dims; d++) printf("%s%" PRIu64, d ? ", " : "", t->ne[d]);
    fputs("]  ", stdout);
    report_print_escaped(t->name.bytes, t->name.length, SHOWN_CHARACTERS, stdout);
    putchar('\n');
}

struct totals {
    uint64_t count[DTYPE_COUNT], bytes[DTYPE_COUNT], all_bytes;
};

static void add_up(const struct gguf *g, struct totals *totals) {
    *totals = (struct totals){0};
    for (uint32_t i = 0; i < g->n_tensors; i++) {
        const struct gguf_tensor *t = &g->tensors[i];
        totals->count[t->type]++;
        totals->bytes[t->type] += t->size_bytes;
        totals->all_bytes += t->size_bytes;
    }
}

// tensors: each of them too.
static void print_file(const struct gguf *g, bool tensors) {
    uint64_t size = 0;
    for (uint32_t i = 0; i < g->n_parts; i++) size += g->parts[i].size_bytes;
    printf("\nGGUF version %u, alignment %u, %u part%s, %" PRIu64 " bytes\n", g->version,
           g->alignment, g->n_parts, g->n_parts == 1 ? "" : "s", size);
    printf("\n%u key%s\n", g->n_values, g->n_values == 1 ? "" : "s");
    for (uint32_t i = 0; i < g->n_values; i++) {
        fputs("  ", stdout);
        print_value(&g->values[i]);
    }
    if (tensors)
        printf("\n%u tensor%s (type, bytes, shape, name)\n", g->n_tensors,
               g->n_tensors == 1 ? "" : "s");
    for (uint32_t i = 0; tensors && i < g->n_tensors; i++) print_tensor(&g->tensors[i]);

    struct totals totals;
    add_up(g, &totals);
    printf("\ntotal %" PRIu64 " bytes of tensors%s\n", totals.all_bytes,
           tensors ? "" : "; -v lists each of them");
    for (int t = 0; t < DTYPE_COUNT; t++)
        if (totals.count[t])
            printf("  %-8s %14" PRIu64 "  in %" PRIu64 "\n", dtype_name((enum dtype)t),
                   totals.bytes[t], totals.count[t]);
}

// ---- JSON ---------------------------------------------------------------------------------------

static json_t *number_report(const struct gguf_value *v, uint64_t i) {
    if (is_float(v->element)) {
        json_t *value = json_real(gguf_array_float(v, i));
        return value ? value : json_null(); // JSON has no NaN and no infinity
    }
    if (v->element == GGUF_BOOL) return json_boolean(gguf_array_int(v, i) != 0);
    // Jansson has no such integers; nearly right is better than the largest that it has.
    if (v->element == GGUF_U64 && gguf_array_u64(v, i) > INT64_MAX)
        return json_real((double)gguf_array_u64(v, i));
    return json_integer(gguf_array_int(v, i));
}

// The first elements of an array.
static json_t *elements_report(const struct gguf_value *v) {
    json_t *list = json_array();
    const uint8_t *cursor = NULL;
    struct gguf_text text;
    if (v->element == GGUF_STRING) {
        for (int i = 0; i < SHOWN_ELEMENTS && gguf_next_text(v, &cursor, &text); i++)
            json_array_append_new(list, report_json_text(text.bytes, text.length));
    } else if (v->element != GGUF_ARRAY) {
        for (uint64_t i = 0; i < v->count && i < SHOWN_ELEMENTS; i++)
            json_array_append_new(list, number_report(v, i));
    }
    return list;
}

static json_t *value_report(const struct gguf_value *v) {
    char type[64];
    gguf_type_text(v, type, sizeof type);
    json_t *list = elements_report(v), *value = list;
    if (v->type != GGUF_ARRAY) {
        value = json_incref(json_array_get(list, 0));
        json_decref(list);
    }
    json_t *row =
        json_pack("{s:o, s:s}", "key", report_json_text(v->key.bytes, v->key.length), "type", type);
    if (v->type == GGUF_ARRAY) json_object_set_new(row, "count", report_json_count(v->count));
    json_object_set_new(row, v->type == GGUF_ARRAY ? "first" : "value", value);
    return row;
}

static json_t *tensor_report(const struct gguf_tensor *t) {
    json_t *shape = json_array();
    for (int d = 0; d < t->n_dims; d++) json_array_append_new(shape, report_json_count(t->ne[d]));
    return json_pack("{s:o, s:s, s:o, s:o, s:i, s:o}", "name",
                     report_json_text(t->name.bytes, t->name.length), "type", dtype_name(t->type),
                     "shape", shape, "bytes", report_json_count(t->size_bytes), "part",
                     (int)t->part, "offset", report_json_count(t->file_offset));
}

static enum status write_file(const struct gguf *g, const struct inspect_summary *summary,
                              struct err *e) {
    const bool runs = summary->refused.status == OK;
    json_t *values = json_array(), *tensors = json_array(), *types = json_object();
    for (uint32_t i = 0; i < g->n_values; i++)
        json_array_append_new(values, value_report(&g->values[i]));
    for (uint32_t i = 0; i < g->n_tensors; i++)
        json_array_append_new(tensors, tensor_report(&g->tensors[i]));
    struct totals totals;
    add_up(g, &totals);
    for (int t = 0; t < DTYPE_COUNT; t++)
        if (totals.count[t])
            json_object_set_new(types, dtype_name((enum dtype)t),
                                json_pack("{s:o, s:o}", "tensors",
                                          report_json_count(totals.count[t]), "bytes",
                                          report_json_count(totals.bytes[t])));
    return report_json_write(
        json_pack("{s:b, s:o, s:i, s:i, s:i, s:o, s:o, s:o, s:o}", "runs_here", runs, "refused",
                  runs ? json_null()
                       : report_json_text(summary->refused.what, strlen(summary->refused.what)),
                  "version", (int)g->version, "alignment", (int)g->alignment, "parts",
                  (int)g->n_parts, "keys", values, "tensors", tensors, "types", types,
                  "tensor_bytes", report_json_count(totals.all_bytes)),
        stdout, e);
}

enum status cli_inspect(struct cli *cli, struct err *e) {
    struct gguf gguf;
    if (gguf_open(&gguf, cli->options.model, e)) return e->status;
    struct inspect_summary summary;
    enum status status = inspect_summary_make(&summary, &gguf, cli, e);
    if (status == OK && cli->options.json) {
        status = write_file(&gguf, &summary, e);
    } else if (status == OK) {
        inspect_summary_print(&summary, &gguf, stdout);
        if (cli->options.command != COMMAND_SHOW) print_file(&gguf, cli->options.verbose);
    }
    inspect_summary_close(&summary);
    gguf_close(&gguf);
    return status;
}

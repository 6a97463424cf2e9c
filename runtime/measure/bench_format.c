/* bench_format.c: see bench_format.h. */
#include "runtime/measure/bench_format.h"

#include "base/mem.h"
#include "runtime/report/report_json.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

bool bench_output_parse(const char *name, enum bench_output *out) {
    static const char *const names[BENCH_OUTPUTS] = {"md", "csv", "json", "jsonl", "sql"};
    for (int i = 0; i < BENCH_OUTPUTS; i++)
        if (strcmp(name, names[i]) == 0) {
            *out = (enum bench_output)i;
            return true;
        }
    return false;
}

static bool is_list(const struct bench_field *f) {
    return f->kind == BENCH_COUNTS || f->kind == BENCH_REALS;
}

// Writes the text between two marks; a mark inside the text is doubled.
static void write_quoted(const char *text, char mark, FILE *out) {
    fputc(mark, out);
    for (; *text; text++) {
        if (*text == mark) fputc(mark, out);
        fputc(*text, out);
    }
    fputc(mark, out);
}

// Writes every field that is no list as text in marks; unknown values as the word for them.
static void write_values(const struct bench_record *r, char mark, const char *between,
                         const char *unknown, FILE *out) {
    const char *before = "";
    for (int32_t i = 0; i < r->n_fields; i++) {
        const struct bench_field *f = &r->fields[i];
        char number[64];
        if (is_list(f)) continue;
        fputs(before, out);
        before = between;
        if (f->kind == BENCH_REAL && !isfinite(f->real)) {
            fputs(unknown, out);
            continue;
        }
        if (f->kind == BENCH_REAL)
            snprintf(number, sizeof number, "%f", f->real);
        else
            snprintf(number, sizeof number, "%lld", (long long)f->count);
        write_quoted(f->kind == BENCH_TEXT ? f->text : number, mark, out);
    }
}

static void write_names(const struct bench_record *r, const char *between, bool types, FILE *out) {
    const char *before = "";
    for (int32_t i = 0; i < r->n_fields; i++) {
        const struct bench_field *f = &r->fields[i];
        if (is_list(f)) continue;
        fprintf(out, "%s%s", before, f->name);
        before = between;
        if (!types) continue;
        fputs(f->kind == BENCH_TEXT ? " TEXT" : f->kind == BENCH_REAL ? " REAL" : " INTEGER", out);
    }
}

// ---- Markdown -----------------------------------------------------------------------------------

// Columns on a terminal: bytes of UTF-8 without those that continue a character.
static int32_t width_of(const char *text) {
    int32_t width = 0;
    for (; *text; text++) width += (*text & 0xc0) != 0x80;
    return width;
}

static void write_cell(const struct bench_column *column, const char *text, FILE *out) {
    const int32_t fill = column->width - width_of(text);
    if (!column->left) fprintf(out, "%*s", fill > 0 ? fill : 0, "");
    fputs(text, out);
    if (column->left) fprintf(out, "%*s", fill > 0 ? fill : 0, "");
    fputs(" |", out);
}

static void begin_table(const struct bench_writer *w) {
    fputc('|', w->out);
    for (int32_t i = 0; i < w->n_columns; i++) {
        fputc(' ', w->out);
        write_cell(&w->columns[i], w->columns[i].heading, w->out);
    }
    fputs("\n|", w->out);
    for (int32_t i = 0; i < w->n_columns; i++) {
        const bool left = w->columns[i].left;
        fputc(' ', w->out);
        for (int32_t k = 0; k < w->columns[i].width - !left; k++) fputc('-', w->out);
        fputs(left ? " |" : ": |", w->out);
    }
    fputc('\n', w->out);
}

static void write_cells(const struct bench_writer *w, const struct bench_record *r) {
    fputc('|', w->out);
    for (int32_t i = 0; i < w->n_columns; i++) {
        char text[BENCH_CELL_BYTES];
        snprintf(text, sizeof text, "%s", r->cells[i]);
        for (char *c = text; *c; c++)
            if (*c == '|') *c = '/'; // a bar would end the cell
        fputc(' ', w->out);
        write_cell(&w->columns[i], text, w->out);
    }
    fputc('\n', w->out);
}

// ---- JSON ---------------------------------------------------------------------------------------

static json_t *value_of(const struct bench_field *f) {
    json_t *list = NULL;
    switch (f->kind) {
    case BENCH_TEXT: return report_json_text(f->text, strlen(f->text));
    case BENCH_COUNT: return json_integer(f->count);
    case BENCH_REAL: return !isfinite(f->real) ? json_null() : json_real(f->real);
    case BENCH_FLAG: return json_boolean(f->count);
    case BENCH_COUNTS:
    case BENCH_REALS:
        list = json_array();
        for (int32_t i = 0; i < f->n; i++)
            if (json_array_append_new(list, f->kind == BENCH_COUNTS
                                                ? report_json_count(f->counts[i])
                                                : json_real(f->reals[i]))) {
                json_decref(list);
                return NULL;
            }
        return list;
    }
    return NULL;
}

static enum status write_object(const struct bench_record *r, size_t flags, FILE *out,
                                struct err *e) {
    json_t *root = json_object();
    bool good = root != NULL;
    for (int32_t i = 0; i < r->n_fields && good; i++)
        good = json_object_set_new(root, r->fields[i].name, value_of(&r->fields[i])) == 0;
    const bool written = good && json_dumpf(root, out, flags | JSON_REAL_PRECISION(9)) == 0;
    json_decref(root);
    if (!good) return err_memory(e, 0, "the JSON result");
    return written ? OK : err_errno(e, errno ? errno : EIO, "the results");
}

// ---- Rows ---------------------------------------------------------------------------------------

static void begin_sql(const struct bench_writer *w, const struct bench_record *r) {
    fprintf(w->out, "CREATE TABLE IF NOT EXISTS %s (\n  ", w->table);
    write_names(r, ",\n  ", true, w->out);
    fputs("\n);\n\n", w->out);
}

static void begin(const struct bench_writer *w, const struct bench_record *r) {
    switch (w->format) {
    case BENCH_MD: begin_table(w); break;
    case BENCH_CSV:
        write_names(r, ",", false, w->out);
        fputc('\n', w->out);
        break;
    case BENCH_SQL: begin_sql(w, r); break;
    case BENCH_JSON: fputs("[\n", w->out); break;
    case BENCH_JSONL:
    case BENCH_OUTPUTS: break;
    }
}

static enum status finish(const struct bench_writer *w, struct err *e) {
    errno = 0;
    if (fflush(w->out) == 0 && !ferror(w->out)) return OK;
    return err_errno(e, errno ? errno : EIO, "the results");
}

enum status bench_writer_row(struct bench_writer *w, const struct bench_record *record,
                             struct err *e) {
    enum status status = OK;
    const bool first = w->n_rows++ == 0;
    if (first) begin(w, record);
    switch (w->format) {
    case BENCH_MD: write_cells(w, record); break;
    case BENCH_CSV:
        write_values(record, '"', ",", "", w->out);
        fputc('\n', w->out);
        break;
    case BENCH_SQL:
        fprintf(w->out, "INSERT INTO %s (", w->table);
        write_names(record, ", ", false, w->out);
        fputs(") VALUES (", w->out);
        write_values(record, '\'', ", ", "NULL", w->out);
        fputs(");\n", w->out);
        break;
    case BENCH_JSON:
        if (!first) fputs(",\n", w->out);
        status = write_object(record, JSON_INDENT(2), w->out, e);
        break;
    case BENCH_JSONL:
        status = write_object(record, 0, w->out, e);
        fputc('\n', w->out);
        break;
    case BENCH_OUTPUTS: break;
    }
    return status ? status : finish(w, e);
}

enum status bench_writer_end(struct bench_writer *w, struct err *e) {
    if (w->format == BENCH_JSON) fputs(w->n_rows ? "\n]\n" : "[]\n", w->out);
    return finish(w, e);
}

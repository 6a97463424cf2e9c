/* machine_save.c: see machine.h. Writes machines as JSON: every field, a line each, in the order of
 * machine_fields.c, so that two files can be compared. */
#include "planner/machine/machine.h"

#include "planner/machine/machine_fields.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

struct writer {
    FILE *out;
    int depth;
    bool first; // of the object that is being written
    struct err *e;
};

static void line(struct writer *w) {
    fprintf(w->out, "%s\n%*s", w->first ? "" : ",", 2 * w->depth, "");
    w->first = false;
}

static void key(struct writer *w, const char *name) {
    line(w);
    fprintf(w->out, "\"%s\": ", name);
}

static void open_with(struct writer *w, char bracket) {
    fputc(bracket, w->out);
    w->depth++;
    w->first = true;
}

static void close_with(struct writer *w, char bracket) {
    w->depth--;
    fprintf(w->out, "\n%*s%c", 2 * w->depth, "", bracket);
    w->first = false;
}

static enum status write_text(struct writer *w, const char *name, const char *text) {
    json_t *string = json_string(text);
    if (!string) return err_set(w->e, ERR_FORMAT, "%s: its text is not UTF-8", name);
    int failed = json_dumpf(string, w->out, JSON_ENCODE_ANY);
    json_decref(string);
    // A failure of the file itself is reported at the end.
    return failed && !ferror(w->out) ? err_memory(w->e, 0, "writing a machine") : OK;
}

// The shortest text that reads as the same number.
static void write_real(struct writer *w, double value) {
    char text[32];
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, value);
        if (strtod(text, NULL) == value) break;
    }
    fputs(text, w->out);
}

static enum status write_section(struct writer *w, enum machine_section section, const void *base) {
    size_t n;
    const struct machine_field *fields = machine_fields(section, &n);
    for (size_t i = 0; i < n; i++) {
        const void *at = (const char *)base + fields[i].offset;
        key(w, fields[i].name);
        switch (fields[i].kind) {
        case FIELD_TEXT:
            if (write_text(w, fields[i].name, at)) return w->e->status;
            break;
        case FIELD_COUNT: fprintf(w->out, "%" PRId32, *(const int32_t *)at); break;
        case FIELD_BYTES:
            if (fields[i].size == sizeof(uint32_t))
                fprintf(w->out, "%" PRIu32, *(const uint32_t *)at);
            else
                fprintf(w->out, "%" PRIu64, *(const uint64_t *)at);
            break;
        case FIELD_FLAG: fputs(*(const bool *)at ? "true" : "false", w->out); break;
        case FIELD_REAL:
        case FIELD_RATE: write_real(w, *(const double *)at); break;
        }
    }
    return OK;
}

static void write_matrix(struct writer *w, const struct machine_matrix *matrix,
                         const struct device_rates *rates) {
    const double *at = (const double *)((const char *)rates + matrix->offset);
    key(w, matrix->name);
    open_with(w, '{');
    for (int32_t row = 0; row < matrix->n_rows; row++) {
        key(w, machine_row_name(matrix, row));
        for (int c = 0; c < RATE_CLASSES; c++) {
            fputs(c ? ", " : "[", w->out);
            write_real(w, at[row * RATE_CLASSES + c]);
        }
        fputc(']', w->out);
    }
    close_with(w, '}');
}

static void write_teams(struct writer *w, const struct machine *m) {
    key(w, "team_gbps");
    fputc('[', w->out);
    for (int32_t i = 0; i < m->n_team_sizes; i++) {
        fprintf(w->out, "%s[%" PRId32 ", ", i ? ", " : "", m->team_size[i]);
        write_real(w, m->team_gbps[i]);
        fputc(']', w->out);
    }
    fputc(']', w->out);
}

static enum status write_device(struct writer *w, const struct machine_device *device) {
    line(w);
    open_with(w, '{');
    if (write_section(w, SECTION_DEVICE, device)) return w->e->status;
    key(w, "rates");
    open_with(w, '{');
    if (write_section(w, SECTION_RATES, &device->rates)) return w->e->status;
    for (int i = 0; i < MACHINE_MATRICES; i++) write_matrix(w, &MACHINE_MATRIX[i], &device->rates);
    close_with(w, '}');
    key(w, "link");
    open_with(w, '{');
    if (write_section(w, SECTION_LINK, &device->link)) return w->e->status;
    close_with(w, '}');
    close_with(w, '}');
    return OK;
}

static enum status write_machine(struct writer *w, const struct machine *m) {
    open_with(w, '{');
    if (write_section(w, SECTION_TOP, m)) return w->e->status;
    key(w, "rates_from");
    fprintf(w->out, "\"%s\"", MACHINE_RATES_WORDS[m->rates]);
    key(w, "cpu");
    open_with(w, '{');
    if (write_section(w, SECTION_CPU, m)) return w->e->status;
    close_with(w, '}');
    key(w, "memory");
    open_with(w, '{');
    if (write_section(w, SECTION_MEMORY, m)) return w->e->status;
    write_teams(w, m);
    close_with(w, '}');
    key(w, "devices");
    open_with(w, '[');
    for (int32_t d = 0; d < m->n_devices; d++)
        if (write_device(w, &m->devices[d])) return w->e->status;
    close_with(w, ']');
    close_with(w, '}');
    fputc('\n', w->out);
    return OK;
}

enum status machine_save(const struct machine *m, FILE *out, struct err *e) {
    if (machine_check(m, e)) return e->status;
    struct writer w = {.out = out, .first = true, .e = e};
    if (write_machine(&w, m)) return e->status;
    if (fflush(out) != 0 || ferror(out)) return err_errno(e, errno, "writing a machine");
    return OK;
}

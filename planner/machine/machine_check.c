/* machine_check.c: see machine.h. Checks machines: every field of machine_fields.c, then what some
 * fields have to do with others. */
#include "planner/machine/machine.h"

#include "planner/machine/machine_fields.h"

#include <math.h>
#include <string.h>

static enum status bad(struct err *e, const char *where, const char *name, const char *expected) {
    err_set(e, ERR_FORMAT, "%s%s%s", where, *where && *name ? "." : "", name);
    return err_expected(e, "%s", expected);
}

static enum status check_text(const char *text, size_t size, const char *where, const char *name,
                              struct err *e) {
    if (!memchr(text, 0, size)) return bad(e, where, name, "a text with an end");
    for (; *text; text++)
        if ((unsigned char)*text < ' ' || *text == 127)
            return bad(e, where, name, "a text without control characters");
    return OK;
}

static enum status check_whole(int64_t value, double max, const char *where, const char *name,
                               struct err *e) {
    if (value >= 0 && (double)value <= max) return OK;
    bad(e, where, name, "");
    err_expected(e, "a whole number from 0 to %.0f", max);
    return err_actual(e, "%lld", (long long)value);
}

// A negative zero would change in a file.
static enum status check_real(double value, double min, double max, const char *where,
                              const char *name, struct err *e) {
    if (value >= min && value <= max && !signbit(value)) return OK;
    bad(e, where, name, "");
    err_expected(e, "a number from %g to %g", min, max);
    return err_actual(e, "%g", value);
}

static enum status check_bytes(const struct machine_field *field, const void *at, const char *where,
                               struct err *e) {
    uint64_t value =
        field->size == sizeof(uint32_t) ? *(const uint32_t *)at : *(const uint64_t *)at;
    return check_whole(value > INT64_MAX ? INT64_MAX : (int64_t)value, field->max, where,
                       field->name, e);
}

static enum status check_section(enum machine_section section, const void *base, bool rates,
                                 const char *where, struct err *e) {
    size_t n;
    const struct machine_field *fields = machine_fields(section, &n);
    for (size_t i = 0; i < n; i++) {
        const struct machine_field *field = &fields[i];
        const void *at = (const char *)base + field->offset;
        enum status status = OK;
        if (field->kind == FIELD_TEXT)
            status = check_text(at, field->size, where, field->name, e);
        else if (field->kind == FIELD_COUNT)
            status = check_whole(*(const int32_t *)at, field->max, where, field->name, e);
        else if (field->kind == FIELD_BYTES)
            status = check_bytes(field, at, where, e);
        else if (field->kind != FIELD_FLAG)
            status = check_real(*(const double *)at,
                                field->kind == FIELD_RATE && rates ? MACHINE_RATE_MIN : 0,
                                field->max, where, field->name, e);
        if (status != OK) return status;
    }
    return OK;
}

static enum status check_matrix(const struct machine_matrix *matrix,
                                const struct device_rates *rates, bool needed, const char *where,
                                struct err *e) {
    const double *at = (const double *)((const char *)rates + matrix->offset);
    const double min = needed ? MACHINE_RATE_MIN : 0;
    for (int32_t row = 0; row < matrix->n_rows; row++)
        for (int32_t c = 0; c < RATE_CLASSES; c++) {
            char name[64];
            snprintf(name, sizeof name, "%s.%s[%d]", matrix->name, machine_row_name(matrix, row),
                     (int)c);
            if (check_real(at[row * RATE_CLASSES + c], min, 1e9, where, name, e)) return e->status;
        }
    return OK;
}

static enum status check_device(const struct machine *m, int32_t d, struct err *e) {
    const struct machine_device *device = &m->devices[d];
    bool rates = m->rates != RATES_NONE;
    char where[32], rates_where[48], link_where[48];
    snprintf(where, sizeof where, "devices[%d]", (int)d);
    snprintf(rates_where, sizeof rates_where, "%s.rates", where);
    snprintf(link_where, sizeof link_where, "%s.link", where);
    if (check_section(SECTION_DEVICE, device, rates, where, e) ||
        check_section(SECTION_RATES, &device->rates, rates, rates_where, e) ||
        check_section(SECTION_LINK, &device->link, rates && d > 0, link_where, e))
        return e->status;
    for (int i = 0; i < MACHINE_MATRICES; i++)
        if (check_matrix(&MACHINE_MATRIX[i], &device->rates, rates, rates_where, e))
            return e->status;
    if (device->is_host != (d == 0))
        return bad(e, where, "is_host",
                   d == 0 ? "true: the first device is the CPU"
                          : "false: only the first device is the CPU");
    if (device->budget_bytes > device->capacity_bytes) {
        bad(e, where, "budget_bytes", "");
        err_expected(e, "at most capacity_bytes, %llu", (unsigned long long)device->capacity_bytes);
        return err_actual(e, "%llu", (unsigned long long)device->budget_bytes);
    }
    uint32_t align = device->align_bytes;
    if (align == 0 || (align & (align - 1))) return bad(e, where, "align_bytes", "a power of two");
    if (device->n_lanes < 1) return bad(e, where, "lanes", "at least 1");
    return OK;
}

static enum status check_teams(const struct machine *m, struct err *e) {
    if (m->n_team_sizes < 0 || m->n_team_sizes > MAX_TEAM_SIZES) {
        bad(e, "memory", "team_gbps", "");
        err_expected(e, "at most %d teams", MAX_TEAM_SIZES);
        return err_actual(e, "%d", (int)m->n_team_sizes);
    }
    for (int32_t i = 0; i < m->n_team_sizes; i++) {
        char name[32];
        snprintf(name, sizeof name, "team_gbps[%d]", (int)i);
        if (m->team_size[i] < 1 || (i > 0 && m->team_size[i] <= m->team_size[i - 1]))
            return bad(e, "memory", name, "team sizes from 1, each larger than the one before");
        if (check_real(m->team_gbps[i], MACHINE_RATE_MIN, 1e6, "memory", name, e)) return e->status;
    }
    return OK;
}

enum status machine_check(const struct machine *m, struct err *e) {
    if ((int)m->rates < RATES_NONE || (int)m->rates > RATES_MEASURED)
        return bad(e, "", "rates", "none, nearest, file or measured");
    bool rates = m->rates != RATES_NONE;
    if (check_section(SECTION_TOP, m, rates, "", e) ||
        check_section(SECTION_CPU, m, rates, "cpu", e) ||
        check_section(SECTION_MEMORY, m, rates, "memory", e) || check_teams(m, e))
        return e->status;
    if (m->n_devices < 1 || m->n_devices > MAX_DEVICES) {
        bad(e, "", "devices", "");
        err_expected(e, "1 to %d, more are only counted in unused_accelerators", MAX_DEVICES);
        return err_actual(e, "%d", (int)m->n_devices);
    }
    for (int32_t d = 0; d < m->n_devices; d++)
        if (check_device(m, d, e)) return e->status;
    return OK;
}

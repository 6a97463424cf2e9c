/* machine.c: see machine.h. Checks and prints machines. */
#include "planner/machine/machine.h"

#include "planner/machine/machine_fields.h"

#include <math.h>
#include <string.h>

const int32_t RATE_TOKENS[RATE_CLASSES] = {1, 2, 4, 8, 32, 512};

// ---- Checks -------------------------------------------------------------------------------------

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

// A negative zero would not survive a file.
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
    if (field->kind == FIELD_LIMIT && value == UINT64_MAX) return OK;
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
        else if (field->kind == FIELD_BYTES || field->kind == FIELD_LIMIT)
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
    double min = needed && !matrix->optional ? MACHINE_RATE_MIN : 0;
    for (int32_t row = 0; row < matrix->n_rows; row++)
        for (int32_t c = 0; c < RATE_CLASSES; c++) {
            char name[64];
            snprintf(name, sizeof name, "%s.%s[%d]", matrix->name, machine_row_name(matrix, row),
                     (int)c);
            double value = at[row * RATE_CLASSES + c];
            bool absent = matrix->optional && value == 0;
            if (check_real(value, absent ? 0 : min, 1e9, where, name, e)) return e->status;
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

// ---- Questions ----------------------------------------------------------------------------------

int32_t machine_decode_team(const struct machine *m) {
    double best = 0;
    for (int32_t i = 0; i < m->n_team_sizes; i++)
        if (m->team_gbps[i] > best) best = m->team_gbps[i];
    for (int32_t i = 0; i < m->n_team_sizes; i++)
        if (m->team_gbps[i] >= 0.97 * best) return m->team_size[i];
    return 0;
}

// ---- For people ---------------------------------------------------------------------------------

static double gib(uint64_t bytes) { return (double)bytes / (1 << 30); }

// GFLOP/s of a matmul in the largest batch class.
static double gflops(const struct device_rates *rates, enum weight_type type) {
    const struct dtype_info *info = dtype_find((uint32_t)weight_dtype(type));
    return 2.0 * RATE_TOKENS[RATE_CLASSES - 1] * info->block_elements / info->block_bytes *
           rates->weight_gbps[type][RATE_CLASSES - 1];
}

static void print_cpu(const struct machine *m, FILE *out) {
    fprintf(out, "processor  %d cores", (int)m->n_cores);
    if (m->n_efficiency_cores)
        fprintf(out, " (%d fast, %d slow)", (int)m->n_performance_cores,
                (int)m->n_efficiency_cores);
    fprintf(out, ", %d threads", (int)m->n_threads);
    if (m->n_packages > 1) fprintf(out, ", %d packages", (int)m->n_packages);
    if (m->n_numa > 1) fprintf(out, ", %d NUMA nodes", (int)m->n_numa);
    if (m->cache_bytes) fprintf(out, ", cache %.1f MiB", (double)m->cache_bytes / (1 << 20));
    fprintf(out, "\nmemory     %.1f GiB", gib(m->ram_bytes));
    if (m->ram_limited_by[0]) fprintf(out, " (limited by %s)", m->ram_limited_by);
    if (m->n_memory_channels)
        fprintf(out, ", %d channel%s", (int)m->n_memory_channels,
                m->n_memory_channels > 1 ? "s" : "");
    if (m->dram_gbps > 0) fprintf(out, ", %.1f GB/s", m->dram_gbps);
    if (m->pinned_bytes != UINT64_MAX)
        fprintf(out, ", %.1f MiB may be pinned", (double)m->pinned_bytes / (1 << 20));
    fputc('\n', out);
}

static void print_device(const struct machine *m, int32_t d, FILE *out) {
    const struct machine_device *device = &m->devices[d];
    const struct link_rates *link = &device->link;
    fprintf(out, "%-9s  %s%s%s: %.2f of %.2f GiB for the model%s%s\n", device->kind, device->name,
            device->capability[0] ? ", " : "", device->capability, gib(device->budget_bytes),
            gib(device->capacity_bytes), device->pci_id[0] ? ", " : "", device->pci_id);
    if (m->rates == RATES_NONE) return;
    fprintf(out, "           Q4_K: one token %.1f GB/s, %d tokens %.0f GFLOP/s; op %.1f us\n",
            device->rates.weight_gbps[WEIGHT_Q4_K][0], (int)RATE_TOKENS[RATE_CLASSES - 1],
            gflops(&device->rates, WEIGHT_Q4_K), device->rates.op_us);
    if (d == 0) return;
    char staged[32] = "";
    if (link->staged_to_gbps > 0)
        snprintf(staged, sizeof staged, "; staged to %.1f", link->staged_to_gbps);
    fprintf(out, "           copies to %.1f, from %.1f GB/s (not pinned %.1f, %.1f%s), %.0f us\n",
            link->to_gbps, link->from_gbps, link->pageable_to_gbps, link->pageable_from_gbps,
            staged, link->latency_us);
}

void machine_print(const struct machine *m, FILE *out) {
    static const char *const from[] = {"not known", "those of the nearest machine known", "file",
                                       "measured here"};
    fprintf(out, "machine    %s\n", m->name);
    print_cpu(m, out);
    for (int32_t d = 0; d < m->n_devices; d++) print_device(m, d, out);
    if (m->n_unused_accelerators)
        fprintf(out, "           %d more accelerator%s, not used\n", (int)m->n_unused_accelerators,
                m->n_unused_accelerators > 1 ? "s" : "");
    fprintf(out, "rates      %s%s%s\n", from[m->rates], m->rates_name[0] ? ": " : "",
            m->rates_name);
    if (m->source[0]) fprintf(out, "source     %s\n", m->source);
}

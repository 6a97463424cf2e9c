/* placement.c: see placement.h. */
#include "runtime/placement.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

static_assert((int)PURPOSE_COUNT == (int)PLAN_PURPOSES && (int)PURPOSE_STAGING == (int)PLAN_STAGING,
              "the planner and the devices name the same purposes");

static enum status unknown_kind(const struct engine_options *options, struct err *e) {
    char known[128] = "none";
    for (int i = 0; i < options->n_drivers; i++) {
        size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, ", %s", options->drivers[i].prefix);
    }
    err_set(e, ERR_USAGE, "--device names an unknown kind of device");
    err_expected(e, "%s", known);
    return err_actual(e, "%s", options->device_spec);
}

// The driver named by "prefix" or "prefix:spec", or NULL; *spec is what follows the colon.
static const struct device_driver *find_driver(const struct engine_options *o, const char **spec) {
    const size_t length = strcspn(o->device_spec, ":");
    for (int i = 0; i < o->n_drivers; i++) {
        const char *prefix = o->drivers[i].prefix;
        if (strlen(prefix) != length || strncmp(prefix, o->device_spec, length) != 0) continue;
        *spec = o->device_spec + length + (o->device_spec[length] == ':');
        return &o->drivers[i];
    }
    return NULL;
}

static enum status open_accelerator(struct device **out, const struct engine_options *o,
                                    struct err *e) {
    if (!o->device_spec) {
        for (int i = 0; i < o->n_drivers && !*out; i++) {
            struct err ignored = {0};
            if (o->drivers[i].open(out, "", &o->cpu, o->log, &ignored) == OK) return OK;
            *out = NULL;
            char text[512];
            // A machine without one is no news; one that cannot be used is.
            log_line(o->log, ignored.status == ERR_UNSUPPORTED ? LOG_INFO : LOG_WARN,
                     "no %s device: %s", o->drivers[i].prefix,
                     err_text(&ignored, text, sizeof text));
        }
        return OK;
    }
    if (strcmp(o->device_spec, "none") == 0) return OK;
    const char *spec = NULL;
    const struct device_driver *driver = find_driver(o, &spec);
    if (!driver) return unknown_kind(o, e);
    return driver->open(out, spec, &o->cpu, o->log, e);
}

enum status placement_open_devices(struct device *devices[MAX_DEVICES], int32_t *n,
                                   const struct engine_options *options, struct err *e) {
    *n = 0;
    if (device_open_cpu(&devices[0], &options->cpu, options->log, e) ||
        open_accelerator(&devices[1], options, e)) {
        placement_close_devices(devices);
        return e->status;
    }
    *n = devices[1] ? 2 : 1;
    return OK;
}

void placement_close_devices(struct device *devices[MAX_DEVICES]) {
    for (int d = MAX_DEVICES - 1; d >= 0; d--) {
        device_close(devices[d]);
        devices[d] = NULL;
    }
}

enum status placement_solve(struct plan *plan, const struct shape *shape,
                            struct device *const *devices, int32_t n_devices,
                            const struct engine_options *options, struct err *e) {
    struct machine machine = {.n_devices = n_devices};
    for (int d = 0; d < n_devices; d++) {
        const struct device_info *info = &devices[d]->info;
        struct machine_device *out = &machine.devices[d];
        memcpy(out->name, info->name, sizeof out->name);
        memcpy(out->kind, info->kind, sizeof out->kind);
        out->capacity_bytes = info->capacity_bytes;
        out->budget_bytes = info->free_bytes;
        out->align_bytes = info->align_bytes;
        out->n_lanes = info->n_lanes;
        out->is_host = info->is_host;
    }
    return planner_solve(plan, shape, &machine, &options->workload, &options->constraints, e);
}

/* devices.c: see devices.h. */
#include "runtime/host/devices.h"

#include "base/host.h"
#include "base/mem.h"
#include "base/number.h"
#include "runtime/host/calibrate.h"
#include "runtime/host/calibration_cache.h"
#include "runtime/host/calibration_scale.h"
#include "runtime/host/disk_rate.h"
#include "runtime/host/plan_request.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static_assert((int)PURPOSE_COUNT == (int)PLAN_PURPOSES && (int)PURPOSE_STAGING == (int)PLAN_STAGING,
              "the planner and the devices name the same purposes");

// RAM that no plan may use: libraries, the tokenizer and tables of the program itself take 25 MiB
// with SmolLM2 and 37 with Gemma 3, about 10 of which count as used when the plan is made.
#define PROGRAM_BYTES (UINT64_C(32) << 20)

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

// The driver named by "prefix", "prefix:spec" or, as llama.cpp writes it, "PREFIX0", or NULL; *spec
// is what follows the name and the colon.
static const struct device_driver *find_driver(const struct engine_options *o, const char **spec) {
    for (int i = 0; i < o->n_drivers; i++) {
        const char *prefix = o->drivers[i].prefix;
        const size_t length = strlen(prefix);
        if (strncasecmp(prefix, o->device_spec, length) != 0) continue;
        const char next = o->device_spec[length];
        if (next && next != ':' && !(next >= '0' && next <= '9')) continue;
        *spec = o->device_spec + length + (next == ':');
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
            // A missing device is no news, a device that cannot be used is.
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

// ---- The machine --------------------------------------------------------------------------------

static void describe_device(struct machine_device *out, const struct device_info *info) {
    const uint64_t reserve_bytes = info->is_host ? PROGRAM_BYTES : 0;
    *out = (struct machine_device){.capacity_bytes = info->capacity_bytes,
                                   .budget_bytes =
                                       info->free_bytes - min_u64(info->free_bytes, reserve_bytes),
                                   .reserve_bytes = reserve_bytes,
                                   .align_bytes = info->align_bytes,
                                   .n_lanes = info->n_lanes,
                                   .is_host = info->is_host,
                                   .unified = info->unified,
                                   .bus_gbps = info->bus_gbps};
    memcpy(out->name, info->name, sizeof out->name);
    memcpy(out->kind, info->kind, sizeof out->kind);
    memcpy(out->driver, info->driver, sizeof out->driver);
    memcpy(out->capability, info->capability, sizeof out->capability);
    memcpy(out->pci_id, info->pci_id, sizeof out->pci_id);
}

enum status devices_describe(struct machine *out, struct device *const *devices, int32_t n,
                             struct err *e) {
    double link_gbps = 0;
    *out = (struct machine){.n_devices = n};
    const char *pci_id = n > 1 ? devices[1]->info.pci_id : NULL;
    if (machine_probe(out, NULL, pci_id, &link_gbps, e)) return e->status;
    host_cpu_name(&HOST_ROOTS, out->name, sizeof out->name);
    for (int32_t d = 0; d < n; d++) describe_device(&out->devices[d], &devices[d]->info);
    if (n > 1) out->devices[1].link.theoretical_gbps = link_gbps;
    return OK;
}

// Takes the rates that are kept for those devices, or were measured earlier in this process.
static bool take_measured(struct machine *m, const struct calibration_key *key,
                          const struct engine_options *o) {
    if (calibration_load(m, o->cache_path, key, o->log)) return true;
    if (!o->measured || o->measured->rates == RATES_NONE) return false;
    bool same = o->measured->n_devices == m->n_devices;
    for (int32_t d = 0; d < m->n_devices && same; d++)
        same = strcmp(o->measured->devices[d].name, m->devices[d].name) == 0;
    if (same) machine_copy_rates(m, o->measured);
    return same;
}

// Takes the rates of the nearest known machine, which are for one thread per performance core, for
// the threads that are asked for. For which instructions they are is not known.
static enum status take_nearest(struct machine *m, const struct cpu_options *cpu, struct err *e) {
    if (machine_take_nearest_rates(m, e)) return e->status;
    const int32_t n_cores = machine_performance_cores(m);
    if (n_cores < 1) return OK;
    const struct cpu_setting usual = {n_cores, n_cores, cpu_best_isa()};
    struct cpu_setting asked = calibration_asked(cpu, &usual);
    asked.isa = usual.isa;
    calibration_scale(m, &usual, &asked);
    return OK;
}

enum status devices_machine(struct machine *out, struct device *const *devices, int32_t n,
                            const struct engine_options *options, struct err *e) {
    struct calibration_key key;
    if (devices_describe(out, devices, n, e)) return e->status;
    calibration_key_of(&key, devices, n, options);
    if (take_measured(out, &key, options)) return OK;
    return take_nearest(out, &options->cpu, e);
}

// ---- Measuring unasked --------------------------------------------------------------------------

// Keeps what was measured, in memory if not in a file, and says what became of it.
static void keep(const struct machine *m, const struct calibration *calibration,
                 const struct calibration_key *key, const struct engine_options *o) {
    char text[512];
    struct err e = {0};
    if (calibration_is_noisy(calibration))
        log_line(o->log, LOG_WARN,
                 "measured, but %s; close other programs and run 'tandem calibrate'",
                 calibration_reason(calibration, text, sizeof text));
    if (calibration_store(m, calibration, o->cache_path, key, &e) == OK) {
        log_line(o->log, LOG_NOTE, "measured in %.1f s; 'tandem calibrate' does it anew",
                 calibration->seconds);
        return;
    }
    if (o->measured) *o->measured = *m;
    log_line(o->log, LOG_WARN,
             "measured in %.1f s, for this run only: %s; with XDG_CACHE_HOME at a folder that can "
             "be written it is done once",
             calibration->seconds, err_sentence(&e, text, sizeof text));
}

// Measures the rates of m. After a failure, or where its progress call wants no more, a line says
// so, and the planner uses the rates of another machine.
static void measure(struct machine *m, struct device *accelerator,
                    const struct calibration_key *key, const struct engine_options *o) {
    const struct calibration_options options = {
        .cpu = o->cpu, .limit_ns = o->calibrate_limit_ns, .progress = o->progress};
    struct calibration calibration;
    struct err e = {0};
    char text[512];
    log_line(o->log, LOG_NOTE,
             "measuring this computer, once, for about %d s, to plan well (Ctrl-C skips it)",
             accelerator ? 12 : 8);
    const enum status status = calibrate(m, accelerator, &options, &calibration, &e);
    progress_tell(&o->progress, "calibrate", 1, 1); // the bar goes away
    if (!status)
        keep(m, &calibration, key, o);
    else if (status == ERR_CANCELLED)
        log_line(o->log, LOG_NOTE, "skipped: speeds are estimated; 'tandem calibrate' measures");
    else
        log_line(o->log, LOG_WARN, "this computer was not measured: %s",
                 err_text(&e, text, sizeof text));
}

// Opens the CPU again with the team that is enough for one token, if another one was measured.
static enum status adopt_team(struct device **cpu, int32_t team, const struct engine_options *o,
                              struct err *e) {
    struct cpu_options options = o->cpu;
    const int32_t n_lanes = (*cpu)->info.n_lanes;
    if (team <= 0 || team >= n_lanes) return OK;
    options.n_threads = team;
    if (!options.n_threads_batch) options.n_threads_batch = n_lanes;
    device_close(*cpu);
    *cpu = NULL;
    return device_open_cpu(cpu, &options, o->log, e);
}

static enum status use_calibration(struct device *devices[MAX_DEVICES], int32_t n,
                                   const struct engine_options *o, struct err *e) {
    const bool chooses =
        n == 1 || (o->constraints.gpu_layers == GPU_LAYERS_AUTO && !o->constraints.has_units);
    const bool wanted = o->calibrate && !o->plan_path && chooses;
    if (!o->cache_path || (!wanted && o->cpu.n_threads > 0)) return OK;
    struct calibration_key key;
    struct machine *m = mem_alloc(1, sizeof *m);
    if (!m) return err_memory(e, sizeof *m, "the machine");
    calibration_key_of(&key, devices, n, o);
    enum status status = devices_describe(m, devices, n, e);
    if (!status && !take_measured(m, &key, o) && wanted) measure(m, devices[1], &key, o);
    if (!status && o->cpu.n_threads == 0)
        status = adopt_team(&devices[0], machine_decode_team(m), o, e);
    mem_free(m);
    return status;
}

// ---- What callers see ---------------------------------------------------------------------------

// Threads that share a processor wait for each other at every op.
static void check_threads(const struct engine_options *options) {
    const long here = sysconf(_SC_NPROCESSORS_ONLN);
    const int32_t n = options->cpu.n_threads, n_batch = options->cpu.n_threads_batch;
    const int32_t most = n > n_batch ? n : n_batch;
    if (here > 0 && most > here)
        log_line(options->log, LOG_WARN,
                 "%d threads on %ld processor%s: more than there are make everything slow", most,
                 here, here == 1 ? "" : "s");
}

enum status devices_open(struct device *devices[MAX_DEVICES], int32_t *n,
                         const struct engine_options *options, struct err *e) {
    *n = 0;
    check_threads(options);
    if (device_open_cpu(&devices[0], &options->cpu, options->log, e) ||
        open_accelerator(&devices[1], options, e) ||
        use_calibration(devices, devices[1] ? 2 : 1, options, e)) {
        devices_close(devices);
        return e->status;
    }
    *n = devices[1] ? 2 : 1;
    return OK;
}

void devices_close(struct device *devices[MAX_DEVICES]) {
    for (int d = MAX_DEVICES - 1; d >= 0; d--) {
        device_close(devices[d]);
        devices[d] = NULL;
    }
}

// Measures the disk below the model's file if its weights may not fit in memory.
static void measure_disk(struct machine *m, const struct shape *shape,
                         const struct engine_options *o) {
    const struct constraints *c = &o->constraints;
    uint64_t room = c->ram_bytes ? c->ram_bytes : m->devices[DEVICE_HOST].budget_bytes;
    if (o->budget_bytes[DEVICE_HOST]) room = min_u64(room, o->budget_bytes[DEVICE_HOST]);
    for (int32_t d = DEVICE_HOST + 1; d < m->n_devices; d++) room += m->devices[d].budget_bytes;
    if (!o->model_path || shape_weight_bytes(shape) < room / 4 * 3) return;
    const double gbps = disk_rate_of(o->model_path, NULL);
    if (gbps > 0) m->disk_gbps = gbps;
}

enum status devices_plan(struct plan *plan, const struct shape *shape,
                         struct device *const *devices, int32_t n_devices,
                         const struct engine_options *options, struct err *e) {
    struct machine *machine = mem_alloc(1, sizeof *machine);
    if (!machine) return err_memory(e, sizeof *machine, "the machine");
    enum status status = devices_machine(machine, devices, n_devices, options, e);
    if (!status) {
        measure_disk(machine, shape, options);
        status = plan_request_solve(plan, shape, machine, options, e);
    }
    mem_free(machine);
    return status;
}

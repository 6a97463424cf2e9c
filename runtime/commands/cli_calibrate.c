/* cli_calibrate.c: `tandem calibrate`: measures the rates of this computer for planning. See
 * commands.h.
 */
#include "runtime/commands/commands.h"

#include "base/mem.h"
#include "base/new_file.h"
#include "runtime/host/calibrate.h"
#include "runtime/host/calibration_cache.h"
#include "runtime/cli/cli_signal.h"
#include "runtime/host/devices.h"
#include "runtime/report/report_json.h"

#include <string.h>

struct measuring { // too big for the stack
    struct engine_options options;
    struct device *devices[MAX_DEVICES];
    int32_t n_devices;
    struct machine machine;
    struct calibration result;
    struct calibration_key key;
    char path[CALIBRATION_PATH]; // of the file that is written; empty: none
    char not_saved[512];         // why there is none
    bool is_old;                 // it was measured earlier, and is only shown
};

// ---- For people ---------------------------------------------------------------------------------

static void print_types(const struct measuring *m, int d) {
    const struct machine_device *device = &m->machine.devices[d];
    const struct device_rates *r = &device->rates;
    printf("  GB/s of weights by tokens at once, %% of what memory gives (%.1f GB/s)\n         ",
           r->memory_gbps);
    for (int c = 0; c < RATE_CLASSES; c++) printf("%8d     ", (int)RATE_TOKENS[c]);
    putchar('\n');
    for (int t = 0; t < WEIGHT_COUNT; t++) {
        const bool own = m->result.measured[d] >> t & 1;
        printf("  %-5s%s ", dtype_name(weight_dtype((enum weight_type)t)), own ? " " : "*");
        for (int c = 0; c < RATE_CLASSES; c++)
            printf(" %7.2f %3.0f%%", r->weight_gbps[t][c],
                   100 * r->weight_gbps[t][c] / r->memory_gbps);
        puts("");
    }
    if (m->result.measured[d] != (1u << WEIGHT_COUNT) - 1)
        puts("  * estimated from others in part: there was no time to measure all");
}

static void print_device(const struct measuring *m, int d) {
    const struct machine_device *device = &m->machine.devices[d];
    const struct device_rates *r = &device->rates;
    printf("%s: %s\n", device->kind, device->name);
    print_types(m, d);
    for (int k = 0; k < KV_TYPES; k++) {
        printf("  attention over %-4s", dtype_name(kv_dtype((enum kv_type)k)));
        for (int c = 0; c < RATE_CLASSES; c++) printf(" %.1f", r->attention_gflops[k][c]);
        puts(" GFLOP/s");
    }
    printf("  vectors %.1f GB/s; overhead %.2f us for each op, %.1f us for each token",
           r->vector_gbps, r->op_us, r->pass_us);
    if (r->launch_us > 0) printf("; the CPU launches an op in %.2f us", r->launch_us);
    if (r->start_us > 0) printf("; weights that lie elsewhere take %.1f us more", r->start_us);
    if (r->cache_bytes)
        printf("; the cache keeps three quarters of %.0f MiB and a quarter of %.0f, %.1f times as "
               "fast as memory",
               (double)r->cache_bytes / (1 << 20), (double)r->cache_quarter_bytes / (1 << 20),
               r->cache_factor);
    putchar('\n');
}

static void print_teams(const struct measuring *m) {
    const struct machine *machine = &m->machine;
    for (int32_t i = 0; i < machine->n_team_sizes; i++)
        printf("  %d thread%s: %.1f GB/s%s\n", machine->team_size[i],
               machine->team_size[i] == 1 ? "" : "s", machine->team_gbps[i],
               machine->team_size[i] == m->result.decode_team ? ", enough for one token" : "");
}

static void print_link(const struct measuring *m) {
    const struct calibration *c = &m->result;
    const struct link_rates *link = &m->machine.devices[1].link;
    if (c->blocks[0].size_bytes) puts("copies, GB/s   to device  from device");
    for (int i = 0; i < LINK_BLOCKS; i++) {
        const struct link_block *b = &c->blocks[i];
        if (!(b->to_gbps > 0)) continue;
        printf("  %6llu KiB %12.2f %12.2f\n", (unsigned long long)b->size_bytes >> 10, b->to_gbps,
               b->from_gbps);
    }
    printf("  copies: %.2f GB/s to the device, %.2f GB/s from it, %.2f GB/s to it through pinned "
           "blocks\n",
           link->to_gbps, link->from_gbps, link->staged_to_gbps);
    printf("  each copy takes %.1f us more", link->latency_us);
    if (link->theoretical_gbps > 0) printf("; PCIe allows %.1f GB/s", link->theoretical_gbps);
    puts("");
    if (c->cpu_alone_gbps > 0)
        printf("  together: CPU %.1f (alone %.1f), copies %.1f (alone %.1f) GB/s\n",
               c->cpu_beside_gbps, c->cpu_alone_gbps, c->copy_beside_gbps, c->copy_alone_gbps);
}

static void print_all(const struct measuring *m) {
    char date[16];
    print_device(m, 0);
    print_teams(m);
    if (m->n_devices > 1) {
        print_device(m, 1);
        print_link(m);
    }
    puts(m->machine.source);
    if (m->is_old)
        printf("measured on %s, saved in %s\n", calibration_date(&m->result, date, sizeof date),
               m->path);
    else if (m->path[0])
        printf("saved in %s\n", m->path);
    else
        printf("not saved: %s\n", m->not_saved);
}

// ---- As JSON ------------------------------------------------------------------------------------

static json_t *link_report(const struct calibration *c) {
    json_t *list = json_array();
    for (int i = 0; i < LINK_BLOCKS; i++) {
        const struct link_block *b = &c->blocks[i];
        if (!b->size_bytes) continue;
        json_array_append_new(list, json_pack("{s:o, s:f, s:f}", "size_bytes",
                                              report_json_count(b->size_bytes), "to_gbps",
                                              b->to_gbps, "from_gbps", b->from_gbps));
    }
    return list;
}

static json_t *measured_report(const struct measuring *m) {
    json_t *devices = json_array();
    for (int32_t d = 0; d < m->n_devices; d++) {
        json_t *types = json_array();
        for (int t = 0; t < WEIGHT_COUNT; t++)
            if (m->result.measured[d] >> t & 1)
                json_array_append_new(types,
                                      json_string(dtype_name(weight_dtype((enum weight_type)t))));
        json_array_append_new(devices, types);
    }
    return devices;
}

// The machine as in a machine file.
static json_t *machine_report(const struct machine *machine, struct err *e) {
    FILE *file = tmpfile();
    if (!file) return NULL;
    json_t *value = NULL;
    if (machine_save(machine, file, e) == OK && fflush(file) == 0) {
        rewind(file);
        value = json_loadf(file, 0, NULL);
    }
    fclose(file);
    return value;
}

static enum status write_json(const struct measuring *m, struct err *e) {
    const struct calibration *c = &m->result;
    json_t *beside = json_pack("{s:f, s:f, s:f, s:f}", "cpu_alone_gbps", c->cpu_alone_gbps,
                               "cpu_gbps", c->cpu_beside_gbps, "copy_alone_gbps",
                               c->copy_alone_gbps, "copy_gbps", c->copy_beside_gbps);
    json_t *root =
        json_pack("{s:o, s:o, s:o, s:o, s:i, s:f, s:f, s:f, s:b, s:s}", "machine",
                  machine_report(&m->machine, e), "measured", measured_report(m), "copies",
                  link_report(c), "together", beside, "decode_team", c->decode_team, "seconds",
                  c->seconds, "spread", c->spread, "busy_others", c->busy_others, "noisy",
                  calibration_is_noisy(c), "kept", m->path);
    return report_json_write(root, stdout, e);
}

// ---- The command --------------------------------------------------------------------------------

static enum status write_machine(FILE *out, const void *machine, struct err *e) {
    return machine_save(machine, out, e);
}

// True if a kept measurement is better than this one; says so in not_saved.
static bool older_is_better(struct measuring *m) {
    struct calibration older;
    char reason[120], date[16];
    if (!calibration_is_worse(&m->result, m->options.cache_path, &m->key, &older)) return false;
    (void)snprintf(m->not_saved, sizeof m->not_saved,
                   "%s, so the better measurement of %s stays; close other programs and measure "
                   "again, or drop that one with 'tandem calibrate --forget'",
                   calibration_reason(&m->result, reason, sizeof reason),
                   calibration_date(&older, date, sizeof date));
    return true;
}

// Keeps the result, or notes why it is not kept.
static enum status keep(struct measuring *m, const struct cli *cli, struct err *e) {
    const char *cache = m->options.cache_path, *machine_out = cli->options.machine_out;
    char reason[120];
    struct err refused = {0};
    if (machine_out && new_file_print(machine_out, write_machine, &m->machine, e)) return e->status;
    if (!cache) {
        (void)snprintf(m->not_saved, sizeof m->not_saved,
                       "neither XDG_CACHE_HOME nor HOME names a folder");
        return OK;
    }
    if (older_is_better(m)) return OK;
    if (calibration_store(&m->machine, &m->result, cache, &m->key, &refused)) {
        (void)err_text(&refused, m->not_saved, sizeof m->not_saved);
        return OK;
    }
    if (calibration_is_noisy(&m->result))
        log_line(&cli->log, LOG_WARN,
                 "a noisy measurement: %s; close other programs and run 'tandem calibrate' again",
                 calibration_reason(&m->result, reason, sizeof reason));
    (void)calibration_path(m->path, cache, &m->key);
    return OK;
}

// Reads what was measured earlier with these options.
static enum status recall(struct measuring *m, const struct cli *cli, struct err *e) {
    const char *cache = m->options.cache_path;
    calibration_key_of(&m->key, m->devices, m->n_devices, &m->options);
    if (devices_describe(&m->machine, m->devices, m->n_devices, e)) return e->status;
    if (!cache || !calibration_load_notes(&m->result, cache, &m->key) ||
        !calibration_load(&m->machine, cache, &m->key, &cli->log)) {
        err_set(e, ERR_FILE, "this computer was not measured with these options");
        return err_fix(e, "'tandem calibrate' measures it");
    }
    m->is_old = true;
    (void)calibration_path(m->path, cache, &m->key);
    return OK;
}

static enum status forget(const struct cli *cli, struct err *e) {
    const int32_t n = cli->cache_path ? calibration_forget(cli->cache_path, e) : 0;
    if (n < 0) return e->status;
    if (cli->options.json)
        return report_json_write(json_pack("{s:i}", "removed", (int)n), stdout, e);
    printf("removed %d measurement%s\n", n, n == 1 ? "" : "s");
    return OK;
}

static enum status measure(struct measuring *m, struct cli *cli, struct err *e) {
    const struct engine_options *o = &m->options;
    const struct calibration_options options = {.cpu = o->cpu, .progress = o->progress};
    struct device *accelerator = m->n_devices > 1 ? m->devices[1] : NULL;
    calibration_key_of(&m->key, m->devices, m->n_devices, o);
    if (devices_describe(&m->machine, m->devices, m->n_devices, e)) return e->status;
    const enum status status = calibrate(&m->machine, accelerator, &options, &m->result, e);
    progress_bar_clear(&cli->bar);
    return status;
}

enum status cli_calibrate(struct cli *cli, struct err *e) {
    if (cli->options.calibrate_forget) return forget(cli, e);
    const char *machine_out = cli->options.calibrate_show ? NULL : cli->options.machine_out;
    if (machine_out && new_file_check(machine_out, e)) return e->status;
    struct measuring *m = mem_alloc(1, sizeof *m);
    if (!m) return err_memory(e, sizeof *m, "the calibration");
    cli_engine_options(cli, &m->options);
    signal_watch();
    enum status status = devices_open(m->devices, &m->n_devices, &m->options, e);
    if (!status) status = cli->options.calibrate_show ? recall(m, cli, e) : measure(m, cli, e);
    if (!status && !m->is_old) status = keep(m, cli, e);
    if (!status && cli->options.json)
        status = write_json(m, e);
    else if (!status)
        print_all(m);
    devices_close(m->devices);
    mem_free(m);
    return status;
}

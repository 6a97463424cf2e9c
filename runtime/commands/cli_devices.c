/* cli_devices.c: `tandem devices`: lists the devices of this computer. See commands.h. */
#include "runtime/commands/commands.h"

#include "kernels/cpu/device/table.h"
#include "runtime/host/devices.h"
#include "runtime/report/report_json.h"

#include <string.h>

static const double GIB = 1024.0 * 1024.0 * 1024.0;

static json_t *cpu_report(enum cpu_isa isa) {
    json_t *levels = json_array(), *emulated = json_array(), *paths = json_object();
    struct cpu_table table;
    cpu_table_init(&table, isa);
    for (enum cpu_isa i = ISA_REF; i < ISA_AUTO; i++) {
        if (!cpu_has_isa(i) || !cpu_isa_pays(i)) continue;
        json_array_append_new(levels, json_string(cpu_isa_name(i)));
        if (!cpu_isa_was_run(i)) json_array_append_new(emulated, json_string(cpu_isa_name(i)));
    }
    for (int w = 0; w < WEIGHT_COUNT; w++)
        json_object_set_new(paths, dtype_name(weight_dtype((enum weight_type)w)),
                            json_string(table.matmul_path[w]));
    return json_pack("{s:o, s:o, s:o}", "isa", levels, "isa_emulated", emulated, "matmul", paths);
}

static json_t *device_report(const struct device_info *info) {
    return json_pack("{s:o, s:s, s:i, s:o, s:o, s:s, s:o}", "name",
                     report_json_text(info->name, strlen(info->name)), "kind", info->kind, "lanes",
                     info->n_lanes, "capacity_bytes", report_json_count(info->capacity_bytes),
                     "free_bytes", report_json_count(info->free_bytes), "pci", info->pci_id,
                     "details", report_json_text(info->details, strlen(info->details)));
}

static enum status write_devices(struct device *const *devices, int32_t n, enum cpu_isa isa,
                                 struct err *e) {
    json_t *list = json_array();
    for (int32_t d = 0; d < n; d++) json_array_append_new(list, device_report(&devices[d]->info));
    return report_json_write(json_pack("{s:o, s:o}", "devices", list, "cpu", cpu_report(isa)),
                             stdout, e);
}

static void print_cpu(enum cpu_isa isa) {
    struct cpu_table table;
    cpu_table_init(&table, isa);
    printf("     instructions:");
    for (enum cpu_isa i = ISA_REF; i < ISA_AUTO; i++) {
        if (!cpu_has_isa(i) || !cpu_isa_pays(i)) continue;
        printf(" %s%s", cpu_isa_name(i), cpu_isa_was_run(i) ? "" : " (never run on real hardware)");
    }
    printf("\n     matmul:");
    for (int w = 0; w < WEIGHT_COUNT; w++)
        printf("%s %s %s", w ? "," : "", dtype_name(weight_dtype((enum weight_type)w)),
               table.matmul_path[w]);
    putchar('\n');
}

// Prints each line of the details under the device's name.
static void print_details(const char *line) {
    while (*line) {
        const int length = (int)strcspn(line, "\n");
        printf("     %.*s\n", length, line);
        line += length + (line[length] == '\n');
    }
}

// Says why none of the accelerators that this program knows could be opened.
static void print_none(const struct engine_options *o) {
    if (o->n_drivers == 0) puts("no GPU: this program was built for the CPU only");
    for (int i = 0; i < o->n_drivers; i++) {
        struct device *device = NULL;
        struct err e;
        char text[512];
        if (o->drivers[i].open(&device, "", &o->cpu, o->log, &e) != OK)
            printf("no %s device: %s\n%s%s%s", o->drivers[i].prefix,
                   err_sentence(&e, text, sizeof text), e.fix[0] ? "     " : "", e.fix,
                   e.fix[0] ? "\n" : "");
        device_close(device);
    }
}

static void print_devices(struct device *const *devices, int32_t n, enum cpu_isa isa) {
    for (int32_t d = 0; d < n; d++) {
        const struct device_info *info = &devices[d]->info;
        printf("%-4s %s\n     memory: %.2f GiB, %.2f GiB to use\n", info->kind, info->name,
               (double)info->capacity_bytes / GIB, (double)info->free_bytes / GIB);
        print_details(info->details);
        if (info->is_host) print_cpu(isa);
    }
}

enum status cli_devices(struct cli *cli, struct err *e) {
    struct engine_options options;
    cli_engine_options(cli, &options);
    struct device *devices[MAX_DEVICES] = {NULL};
    int32_t n = 0;
    if (devices_open(devices, &n, &options, e)) return e->status;
    enum status status = OK;
    if (cli->options.json)
        status = write_devices(devices, n, options.cpu.isa, e);
    else
        print_devices(devices, n, options.cpu.isa);
    if (n == 1 && !cli->options.json) print_none(&options);
    devices_close(devices);
    return status;
}

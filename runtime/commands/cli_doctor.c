/* cli_doctor.c: `tandem doctor`: gathers facts about this computer, has them examined, and prints
 * what holds it back. See commands.h. */
#include "runtime/commands/commands.h"

#include "base/clock.h"
#include "base/disk.h"
#include "base/mem.h"
#include "base/number.h"
#include "kernels/cpu/device/isa.h"
#include "runtime/gguf/gguf.h"
#include "runtime/host/doctor.h"
#include "runtime/host/devices.h"
#include "runtime/report/report_json.h"

#include <math.h>
#include <string.h>

static const char EXAMPLE[] = "llama-3.1-8b"; // costs are given for this model if none is named

enum { VENDOR_NVIDIA = 0x10de, PROBE_BYTES = 16 << 20, WATCH_NS = 200000000 };

struct consultation { // too big for the stack
    struct engine_options options;
    struct shape shape;
    struct doctor_facts facts;
    struct device *devices[MAX_DEVICES];
    int32_t n_devices;
    struct finding findings[MAX_FINDINGS];
    int32_t n_findings;
};

// Says why no GPU of NVIDIA opens, the only ones whose cards are found without their driver.
static void ask_why_none(struct consultation *c) {
    char *out = c->facts.no_accelerator;
    const size_t size_bytes = sizeof c->facts.no_accelerator;
    if (c->n_devices > 1) return;
    (void)snprintf(out, size_bytes, "this program was built without a backend for it");
    for (int i = 0; i < c->options.n_drivers; i++) {
        const struct device_driver *driver = &c->options.drivers[i];
        struct device *device = NULL;
        struct err e;
        if (driver->pci_vendor != VENDOR_NVIDIA) continue;
        *out = 0;
        if (driver->open(&device, "", &c->options.cpu, NULL, &e) != OK)
            err_text(&e, out, size_bytes);
        device_close(device);
    }
}

// Offers some memory to be pinned, as the engine does.
static enum status try_pinning(struct consultation *c, struct err *e) {
    if (c->n_devices < 2) return OK;
    void *memory = mem_map_pages(PROBE_BYTES);
    if (!memory) return err_memory(e, PROBE_BYTES, "memory to pin");
    c->facts.pin_refused = !device_host_register(c->devices[1], memory, PROBE_BYTES);
    device_host_unregister(c->devices[1], memory);
    mem_unmap_pages(memory, PROBE_BYTES);
    return OK;
}

// Plans as `tandem plan` and `tandem run` do, so that both say the same of a model.
static enum status ask_for_a_plan(struct consultation *c, struct err *e) {
    struct plan *plan = mem_alloc(1, sizeof *plan);
    if (!plan) return err_memory(e, sizeof *plan, "a plan");
    struct engine_options options = c->options;
    options.log = NULL;
    const enum status status = devices_plan(plan, &c->shape, c->devices, c->n_devices, &options, e);
    mem_free(plan);
    if (status == ERR_MEMORY) c->facts.refused = *e;
    return status == ERR_MEMORY ? OK : status;
}

// Looks for the file of the model, all parts of it, in RAM.
static enum status look_for_file(struct consultation *c, const char *path, struct err *e) {
    struct gguf gguf;
    if (!path) return OK;
    if (gguf_open(&gguf, path, e)) return e->status;
    for (uint32_t i = 0; i < gguf.n_parts; i++) {
        const struct file *part = &gguf.parts[i];
        c->facts.file_bytes += part->size_bytes;
        c->facts.cached_bytes +=
            min_u64(file_resident_bytes(part, 0, part->size_bytes), part->size_bytes);
    }
    gguf_close(&gguf);
    return OK;
}

// Major faults of other programs since start.
static uint64_t others_faults(void) { return host_major_faults(&HOST_ROOTS) - disk_reads().faults; }

static enum status gather(struct consultation *c, struct err *e) {
    struct doctor_facts *f = &c->facts;
    char cards[1][16];
    if (devices_machine(&f->machine, c->devices, c->n_devices, &c->options, e) ||
        host_memory_read(&f->memory, &HOST_ROOTS, e) || try_pinning(c, e))
        return e->status;
    f->cpu_quota = host_cpu_quota(&HOST_ROOTS);
    f->available_bytes = f->memory.available_bytes;
    f->n_nvidia_cards = hardware_display_cards(HARDWARE_SYS, VENDOR_NVIDIA, cards, 1);
    (void)hardware_memory_modules(HARDWARE_SYS, &f->modules);
    f->wsl2 = hardware_is_wsl2(HARDWARE_DEV);
    f->on_battery = hardware_on_battery(HARDWARE_SYS);
    hardware_governor(HARDWARE_SYS, f->governor, sizeof f->governor);
    if (c->n_devices > 1)
        (void)hardware_pci_link(HARDWARE_SYS, c->devices[1]->info.pci_id, &f->link);
    const enum cpu_isa isa = cpu_best_isa();
    (void)snprintf(f->isa, sizeof f->isa, "%s", cpu_isa_name(isa));
    f->has_vector_isa = isa != ISA_REF;
    f->shape = &c->shape;
    f->workload = c->options.workload;
    f->ram_bytes = c->options.constraints.ram_bytes;
    f->vram_bytes = c->options.constraints.vram_bytes;
    ask_why_none(c);
    return ask_for_a_plan(c, e);
}

// ---- What comes out -----------------------------------------------------------------------------

static json_t *text_of(const char *text) { return report_json_text(text, strlen(text)); }

static enum status write_findings(const struct consultation *c, struct err *e) {
    json_t *list = json_array();
    for (int32_t i = 0; i < c->n_findings; i++) {
        const struct finding *f = &c->findings[i];
        json_array_append_new(list,
                              json_pack("{s:s, s:s, s:o, s:o, s:o}", "name", f->name, "severity",
                                        severity_name(f->severity), "what", text_of(f->what),
                                        "cost", text_of(f->cost), "fix", text_of(f->fix)));
    }
    return report_json_write(json_pack("{s:o, s:o, s:o, s:o, s:f}", "findings", list, "model",
                                       text_of(c->shape.name), "file_bytes",
                                       report_json_count(c->facts.file_bytes), "file_bytes_in_ram",
                                       report_json_count(c->facts.cached_bytes),
                                       "major_faults_per_second", c->facts.faults_per_s),
                             stdout, e);
}

static void print_findings(const struct consultation *c) {
    const struct doctor_facts *f = &c->facts;
    const struct machine *m = &f->machine;
    char all[ERR_SIZE_CHARS], some[ERR_SIZE_CHARS];
    printf("%s", m->devices[0].name);
    if (m->n_devices > 1) printf(" with %s", m->devices[1].name);
    if (c->n_findings == 0)
        puts(": no problems found");
    else
        printf(": %d problem%s found\n", c->n_findings, c->n_findings == 1 ? "" : "s");
    if (f->file_bytes)
        printf("%s of the model's file are in RAM, of %s\n", err_size_limit(some, f->cached_bytes),
               err_size_needed(all, f->file_bytes));
    printf("%.0f major faults a second: pages of other programs that come from a disk\n",
           f->faults_per_s);
    for (int32_t i = 0; i < c->n_findings; i++) {
        const struct finding *found = &c->findings[i];
        printf("\n%-6s %s\n  cost %s\n  fix  %s\n", severity_name(found->severity), found->what,
               found->cost, found->fix);
    }
}

// Gathers the facts, for so long that major faults can be counted.
static enum status watch(struct consultation *c, const char *path, struct err *e) {
    const uint64_t start_ns = clock_ns(), before = others_faults();
    if (look_for_file(c, path, e) || gather(c, e)) return e->status;
    const uint64_t took_ns = clock_ns() - start_ns;
    if (took_ns < WATCH_NS) clock_sleep_ns(WATCH_NS - took_ns);
    const double seconds = (double)(clock_ns() - start_ns) * 1e-9;
    c->facts.faults_per_s = fmax(0, (double)(int64_t)(others_faults() - before)) / seconds;
    return OK;
}

static enum status consult(struct cli *cli, struct consultation *c, struct err *e) {
    cli_engine_options(cli, &c->options);
    struct cli_options named = cli->options;
    if (!named.model && !named.shape) named.shape = EXAMPLE;
    if (cli_read_shape(&c->shape, &named, e) ||
        devices_open(c->devices, &c->n_devices, &c->options, e) ||
        watch(c, named.shape ? NULL : named.model, e))
        return e->status;
    c->n_findings = doctor_examine(&c->facts, c->findings, e);
    if (c->n_findings < 0) return e->status;
    if (cli->options.json) return write_findings(c, e);
    print_findings(c);
    return OK;
}

enum status cli_doctor(struct cli *cli, struct err *e) {
    if (cli_options_list_names(&cli->options)) return cli_print_names(&cli->options, e);
    struct consultation *c = mem_alloc(1, sizeof *c);
    if (!c) return err_memory(e, sizeof *c, "the facts");
    const enum status status = consult(cli, c, e);
    devices_close(c->devices);
    mem_free(c);
    return status;
}

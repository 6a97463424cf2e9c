/* cli_doctor.c: `tandem doctor`: gathers facts about this computer, has them examined, and prints
 * what holds it back. See commands.h. */
#include "runtime/commands/commands.h"

#include "base/mem.h"
#include "kernels/cpu/device/isa.h"
#include "runtime/host/doctor.h"
#include "runtime/host/devices.h"
#include "runtime/report/report_json.h"

#include <string.h>

static const char EXAMPLE[] = "llama-3.1-8b"; // costs are given for this model if none is named

enum { VENDOR_NVIDIA = 0x10de, PROBE_BYTES = 16 << 20 };

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
    return report_json_write(
        json_pack("{s:o, s:o}", "findings", list, "model", text_of(c->shape.name)), stdout, e);
}

static void print_findings(const struct consultation *c) {
    const struct machine *m = &c->facts.machine;
    printf("%s", m->devices[0].name);
    if (m->n_devices > 1) printf(" with %s", m->devices[1].name);
    if (c->n_findings == 0)
        puts(": no problems found");
    else
        printf(": %d problem%s found\n", c->n_findings, c->n_findings == 1 ? "" : "s");
    for (int32_t i = 0; i < c->n_findings; i++) {
        const struct finding *f = &c->findings[i];
        printf("\n%-6s %s\n  cost %s\n  fix  %s\n", severity_name(f->severity), f->what, f->cost,
               f->fix);
    }
}

static enum status consult(struct cli *cli, struct consultation *c, struct err *e) {
    cli_engine_options(cli, &c->options);
    struct cli_options named = cli->options;
    if (!named.model && !named.shape) named.shape = EXAMPLE;
    if (cli_read_shape(&c->shape, &named, e) ||
        devices_open(c->devices, &c->n_devices, &c->options, e) || gather(c, e))
        return e->status;
    c->n_findings = doctor_examine(&c->facts, c->findings, e);
    if (c->n_findings < 0) return e->status;
    if (cli->options.json) return write_findings(c, e);
    print_findings(c);
    return OK;
}

enum status cli_doctor(struct cli *cli, struct err *e) {
    if (cli_options_list_names(&cli->options)) return cli_print_names(&cli->options, stdout), OK;
    struct consultation *c = mem_alloc(1, sizeof *c);
    if (!c) return err_memory(e, sizeof *c, "the facts");
    const enum status status = consult(cli, c, e);
    devices_close(c->devices);
    mem_free(c);
    return status;
}

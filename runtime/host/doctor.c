/* doctor.c: see doctor.h. */
#include "runtime/host/doctor.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

static const double GIB = 1024.0 * 1024.0 * 1024.0;

struct examination {
    const struct doctor_facts *facts;
    struct finding *findings;
    int32_t n;
    struct plan *plan;    // room to plan in
    struct machine other; // the machine without the problem
    struct prediction now;
    bool has_now; // the model fits the machine as it is
};

static struct finding *add(struct examination *x, enum severity severity, const char *name) {
    ASSERT(x->n < MAX_FINDINGS);
    struct finding *f = &x->findings[x->n++];
    *f = (struct finding){.severity = severity};
    snprintf(f->name, sizeof f->name, "%s", name);
    return f;
}

#define WRITE(field, ...) ((void)snprintf(field, sizeof(field), __VA_ARGS__))

static bool predict(struct examination *x, const struct machine *m, struct prediction *out) {
    const struct doctor_facts *f = x->facts;
    const struct constraints any = {
        .gpu_layers = GPU_LAYERS_AUTO, .ram_bytes = f->ram_bytes, .vram_bytes = f->vram_bytes};
    struct err ignored;
    if (m->rates == RATES_NONE) return false;
    if (planner_solve(x->plan, f->shape, m, &f->workload, &any, &ignored)) return false;
    plan_predict(x->plan, f->shape, out);
    return true;
}

// Writes the cost of a problem: in words, and as the speed of the model on x->other.
static void tell_cost(struct examination *x, struct finding *f, const char *words) {
    struct prediction then;
    if (!predict(x, &x->other, &then)) {
        WRITE(f->cost, "%s", words);
    } else if (!x->has_now) {
        WRITE(f->cost, "%s; %s does not fit now and would run at %.3g tokens/s", words,
              x->facts->shape->name, 1e6 / then.decode_us);
    } else {
        WRITE(
            f->cost,
            "%s; %s: %.3g tokens/s now, %.3g without this; first token after %.3g s, %.3g without",
            words, x->facts->shape->name, 1e6 / x->now.decode_us, 1e6 / then.decode_us,
            x->now.prompt_us / 1e6, then.prompt_us / 1e6);
    }
}

static void look_for_accelerator(struct examination *x) {
    const struct doctor_facts *f = x->facts;
    if (f->machine.n_devices > 1 || f->n_nvidia_cards == 0) return;
    struct finding *found = add(x, FINDING_BROKEN, "accelerator");
    WRITE(found->what, "there is an NVIDIA card that cannot be used: %s", f->no_accelerator);
    WRITE(found->cost, "everything runs on the CPU");
    WRITE(found->fix, "install or update the NVIDIA driver (`nvidia-smi` must show the card), then "
                      "run `tandem devices`");
}

static void scale_link(struct link_rates *link, double factor) {
    link->to_gbps *= factor;
    link->from_gbps *= factor;
    link->staged_to_gbps *= factor;
}

// Cards lower their link's speed when idle, so only the width is compared with the slot's.
static void look_at_link(struct examination *x) {
    const struct pci_link *link = &x->facts->link;
    if (x->facts->machine.n_devices < 2 || link->width <= 0 || link->width >= link->max_width)
        return;
    struct finding *found = add(x, FINDING_SLOW, "link");
    WRITE(found->what, "the GPU's PCIe link is x%d and could be x%d", link->width, link->max_width);
    WRITE(found->fix,
          "put the card into a slot that is wired as x%d, and reseat it; on some boards an M.2 "
          "slot takes half of it",
          link->max_width);
    const double factor = (double)link->max_width / link->width;
    char words[96];
    WRITE(words, "copies take %.2g times as long", factor);
    scale_link(&x->other.devices[machine_accelerator(&x->other)].link, factor);
    tell_cost(x, found, words);
}

static void scale_memory(struct machine *m, double factor) {
    struct device_rates *r = &m->devices[DEVICE_HOST].rates;
    m->dram_gbps *= factor;
    r->memory_gbps *= factor;
    r->vector_gbps *= factor;
    for (int w = 0; w < WEIGHT_COUNT; w++)
        for (int c = 0; RATE_TOKENS[c] <= 4; c++) r->weight_gbps[w][c] *= factor;
}

static void look_at_memory_channels(struct examination *x) {
    const struct memory_modules *m = &x->facts->modules;
    if (!(m->n_channels == 1 || (m->n_channels == 0 && m->n_modules == 1))) return;
    struct finding *found = add(x, FINDING_SLOW, "memory-channels");
    WRITE(found->what, "the memory runs on a single channel: %d module%s of %.0f GiB in all",
          m->n_modules, m->n_modules == 1 ? "" : "s", (double)m->size_bytes / GIB);
    WRITE(found->fix, "add a second, equal module in the slot of the other channel");
    scale_memory(&x->other, 1.9);
    tell_cost(x, found, "the CPU reads weights about half as fast as it could");
}

static void look_at_vram(struct examination *x) {
    const int8_t accelerator = machine_accelerator(&x->facts->machine);
    const struct machine_device *d = &x->facts->machine.devices[accelerator];
    if (accelerator == DEVICE_HOST || d->unified) return;
    const uint64_t free_bytes = d->budget_bytes + d->reserve_bytes;
    if (free_bytes >= d->capacity_bytes) return;
    const uint64_t taken = d->capacity_bytes - free_bytes;
    if (taken * 16 < d->capacity_bytes) return; // as little as a context and an idle desktop take
    struct finding *found = add(x, FINDING_SLOW, "vram");
    WRITE(found->what, "%.2f of %.2f GiB of the GPU's memory are taken by others",
          (double)taken / GIB, (double)d->capacity_bytes / GIB);
    WRITE(found->fix, "close what uses the card (browsers, games, other models: `nvidia-smi` lists "
                      "them), or move the desktop to the built-in graphics");
    x->other.devices[accelerator].budget_bytes += taken;
    tell_cost(x, found, "fewer layers fit");
}

static void look_at_ram(struct examination *x) {
    const struct doctor_facts *f = x->facts;
    if (f->memory.free_bytes < f->available_bytes - f->available_bytes / 16) {
        struct finding *found = add(x, FINDING_SLOW, "memory-limit");
        WRITE(found->what, "this process may use %.2f of the %.2f GiB that are free: %s",
              (double)f->memory.free_bytes / GIB, (double)f->available_bytes / GIB,
              f->memory.limited_by);
        WRITE(found->fix,
              "raise the limit (container: --memory; systemd: MemoryMax=; shell: ulimit "
              "-v)");
        x->other.devices[0].budget_bytes = f->available_bytes;
        tell_cost(x, found, "larger models are refused or paged");
    }
}

// Tells what a run would be refused with, in the planner's own words.
static void look_at_refusal(struct examination *x) {
    const struct err *refused = &x->facts->refused;
    if (refused->status != ERR_MEMORY) return;
    struct finding *found = add(x, FINDING_BROKEN, "refused");
    (void)err_sentence(refused, found->what, sizeof found->what);
    WRITE(found->cost, "`tandem run` refuses it");
    WRITE(found->fix, "%s", refused->fix);
}

// A quarter that lacks takes little time.
static void look_at_file_cache(struct examination *x) {
    const struct doctor_facts *f = x->facts;
    const uint64_t lacking = f->file_bytes - f->cached_bytes;
    char rest[ERR_SIZE_CHARS], room[ERR_SIZE_CHARS];
    if (lacking <= f->file_bytes / 4) return;
    struct finding *found = add(x, FINDING_NOTE, "file-cache");
    WRITE(found->what, "%s of the model's file are not in RAM", err_size_needed(rest, lacking));
    const double gbps = paging_disk_gbps(&f->machine);
    WRITE(found->cost, "the next start takes about %.2g s longer: the disk reads %.2g GB/s",
          (double)lacking / (gbps * 1e9), gbps);
    if (lacking <= f->memory.free_bytes)
        WRITE(found->fix, "run it once: the system keeps the file while nothing else needs the "
                          "RAM; --mlock keeps it during a run");
    else
        WRITE(found->fix, "close other programs: %s of RAM are free for it",
              err_size_limit(room, f->memory.free_bytes));
}

// An idle machine has next to none; a disk serves thousands.
static void look_at_faults(struct examination *x) {
    enum { MANY = 100 };
    const double rate = x->facts->faults_per_s;
    if (rate < MANY) return;
    struct finding *found = add(x, FINDING_SLOW, "major-faults");
    WRITE(found->what, "programs wait for pages from the disk %.0f times a second", rate);
    WRITE(found->cost, "weights that leave RAM come back from the disk, many times as slowly");
    WRITE(found->fix, "close programs until RAM is free; --mlock keeps weights there");
}

static void look_at_processor(struct examination *x) {
    const struct doctor_facts *f = x->facts;
    if (!f->has_vector_isa) {
        struct finding *found = add(x, FINDING_SLOW, "instructions");
        WRITE(found->what, "the processor's best instruction set for this program is %s", f->isa);
        WRITE(found->cost, "the CPU computes without vector kernels, several times slower");
        WRITE(found->fix,
              "in a virtual machine pass the host's processor through (AVX2); else none");
    }
    if (f->cpu_quota && f->cpu_quota < f->machine.n_cores) {
        struct finding *found = add(x, FINDING_SLOW, "cpu-quota");
        WRITE(found->what, "a control group allows %d of %d cores", f->cpu_quota,
              f->machine.n_cores);
        WRITE(found->cost, "the CPU's share of prompts takes up to %.2g times as long",
              (double)f->machine.n_cores / f->cpu_quota);
        WRITE(found->fix, "raise the quota (container: --cpus; systemd: CPUQuota=)");
    }
    if (strcmp(f->governor, "powersave") == 0 && f->on_battery) {
        struct finding *found = add(x, FINDING_SLOW, "power");
        WRITE(found->what, "the machine runs on its battery, with the governor \"%s\"",
              f->governor);
        WRITE(found->cost, "processor and graphics card run below their speed; how far is measured "
                           "by `tandem calibrate`");
        WRITE(found->fix, "plug it in, then run `tandem calibrate` again");
    } else if (f->on_battery) {
        struct finding *found = add(x, FINDING_NOTE, "power");
        WRITE(found->what, "the machine runs on its battery");
        WRITE(found->cost, "most laptops lower the speed of processor and graphics card");
        WRITE(found->fix, "plug it in");
    }
}

static void look_at_pinning(struct examination *x) {
    const struct doctor_facts *f = x->facts;
    const int8_t accelerator = machine_accelerator(&f->machine);
    if (accelerator == DEVICE_HOST || f->machine.devices[accelerator].unified) return;
    if (!f->pin_refused) return;
    struct finding *found = add(x, FINDING_SLOW, "pinned-memory");
    WRITE(found->what, "the system does not let this process pin memory for copies");
    WRITE(found->fix,
          "the kernel's log (`dmesg`) has the driver's reason; free memory helps most often, and "
          "the limit of locked memory (`ulimit -l`) does not count for a GPU");
    WRITE(found->cost, "copies go through a buffer of the driver and wait for each other");
}

static void look_at_windows(struct examination *x) {
    if (!x->facts->wsl2) return;
    struct finding *found = add(x, FINDING_NOTE, "wsl2");
    WRITE(found->what, "this is WSL2: Windows owns the GPU and lends it to Linux");
    WRITE(found->cost, "work starts later, and Windows may move the GPU's memory to main memory "
                       "when other programs want it, so free memory is only what it was at the "
                       "start");
    WRITE(found->fix, "close programs that use the GPU in Windows; for all of its speed, run Linux "
                      "itself");
}

static void look_at_rates(struct examination *x) {
    const struct machine *m = &x->facts->machine;
    if (m->rates == RATES_MEASURED) return;
    struct finding *found = add(x, FINDING_NOTE, "calibration");
    WRITE(found->what, "this machine was not measured: plans use %s%s",
          m->rates == RATES_NONE ? "guesses" : "the speeds of ", m->rates_name);
    WRITE(found->cost, "the plan may not be the fastest, and predictions are rough");
    WRITE(found->fix, "run `tandem calibrate` once (10 s)");
}

static void look_at_unused(struct examination *x) {
    const int32_t n = x->facts->machine.n_unused_accelerators;
    if (n <= 0) return;
    struct finding *found = add(x, FINDING_NOTE, "unused");
    WRITE(found->what, "%d more GPU%s not used", n, n == 1 ? " is" : "s are");
    WRITE(found->cost, "their memory and speed are idle: this version plans for one");
    WRITE(found->fix, "choose which one with --device KIND:N (`tandem devices` lists them)");
}

static int worst_first(const void *a, const void *b) {
    const struct finding *x = a, *y = b;
    if (x->severity != y->severity) return (int)y->severity - (int)x->severity;
    return strcmp(x->name, y->name);
}

int32_t doctor_examine(const struct doctor_facts *facts, struct finding out[MAX_FINDINGS],
                       struct err *e) {
    static void (*const looks[])(struct examination *) = {
        look_for_accelerator, look_at_link,    look_at_memory_channels, look_at_vram,
        look_at_ram,          look_at_refusal, look_at_processor,       look_at_pinning,
        look_at_rates,        look_at_unused,  look_at_windows,         look_at_file_cache,
        look_at_faults,
    };
    struct examination *x = mem_alloc(1, sizeof *x);
    if (!x) return err_memory(e, sizeof *x, "the examination"), -1;
    *x = (struct examination){.facts = facts, .findings = out};
    x->plan = mem_alloc(1, sizeof *x->plan);
    if (!x->plan) {
        err_memory(e, sizeof *x->plan, "a plan");
        mem_free(x);
        return -1;
    }
    x->has_now = predict(x, &facts->machine, &x->now);
    for (size_t i = 0; i < sizeof looks / sizeof *looks; i++) {
        x->other = facts->machine;
        looks[i](x);
    }
    const int32_t n = x->n;
    qsort(out, (size_t)n, sizeof *out, worst_first);
    mem_free(x->plan);
    mem_free(x);
    return n;
}

const char *severity_name(enum severity severity) {
    static const char *const names[] = {"note", "slow", "broken"};
    ASSERT((unsigned)severity <= FINDING_BROKEN);
    return names[severity];
}

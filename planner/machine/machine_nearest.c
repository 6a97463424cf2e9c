/* machine_nearest.c: see machine.h. Rates for a machine that was never measured.
 *
 * Every device takes the rates of the nearest device of a built-in machine, scaled by cores, memory
 * channels and the peak rate of the accelerator's memory, as far as these are known; among equally
 * near devices the one of the machine that is nearer as a whole, then the first by name. The
 * distance is in doublings: half as much memory is one doubling. Tested by
 * tests/planner/test_machine.c.
 */
#include "planner/machine/machine.h"

#include "planner/machine/machine_scale.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

// A difference in kind counts more than any number.
#define FAR 100.0

// Doublings between two figures; 0 if one is unknown.
static double doublings(double a, double b) { return a > 0 && b > 0 ? fabs(log2(a / b)) : 0; }

// The runtime appends details to names of processors, so a known name may be a prefix.
static double names_differ(const char *own, const char *known) {
    return strncmp(own, known, strlen(known)) == 0 ? 0 : 0.5;
}

static bool is_unified(const struct machine *m) {
    return m->n_devices > 1 && m->devices[1].unified;
}

int32_t machine_performance_cores(const struct machine *m) {
    return m->n_performance_cores > 0 ? m->n_performance_cores : m->n_cores;
}

// Compares cores, memory channels, caches and memory. The CPU of a machine without an accelerator
// is compared with CPUs of such machines: a laptop with a GPU says little about a server.
static double host_distance(const struct machine *m, const struct machine *known) {
    return FAR * (is_unified(m) != is_unified(known)) +
           FAR * (m->n_devices < 2 && known->n_devices > 1) +
           doublings(machine_performance_cores(m), machine_performance_cores(known)) +
           doublings(m->n_memory_channels, known->n_memory_channels) +
           doublings((double)m->cache_bytes, (double)known->cache_bytes) / 4 +
           doublings((double)m->ram_bytes, (double)known->ram_bytes) / 8 +
           names_differ(m->devices[0].name, known->devices[0].name);
}

// Compares kind, compute capability (one major version is four doublings) and memory.
static double accelerator_distance(const struct machine *m, const struct machine *known) {
    if (known->n_devices < 2) return FAR * FAR;
    const struct machine_device *a = &m->devices[1], *b = &known->devices[1];
    double capability = strtod(a->capability, NULL) - strtod(b->capability, NULL);
    return FAR * (strcmp(a->kind, b->kind) != 0) +
           (a->capability[0] && b->capability[0] ? 4 * fabs(capability) : 0) +
           doublings((double)a->capacity_bytes, (double)b->capacity_bytes) +
           names_differ(a->name, b->name);
}

struct nearest {
    int32_t machine; // -1: none yet
    double own, whole;
};

static void offer(struct nearest *best, int32_t machine, double own, double whole) {
    bool nearer = own < best->own || (own == best->own && whole < best->whole);
    if (best->machine < 0 || nearer) *best = (struct nearest){machine, own, whole};
}

// Rates of reading memory come with the host's rates; teams larger than this machine are left out.
static void take_host(struct machine *m, const struct machine *known) {
    if (!(m->dram_gbps > 0)) m->dram_gbps = known->dram_gbps;
    if (m->n_team_sizes > 0) return;
    for (int32_t i = 0; i < known->n_team_sizes; i++) {
        if (known->team_size[i] > m->n_cores) continue;
        m->team_size[m->n_team_sizes] = known->team_size[i];
        m->team_gbps[m->n_team_sizes++] = known->team_gbps[i];
    }
}

static void take_device(struct machine_device *device, const struct machine_device *known) {
    double theoretical = device->link.theoretical_gbps;
    device->rates = known->rates;
    device->link = known->link;
    if (theoretical > 0) device->link.theoretical_gbps = theoretical;
}

static double ratio(double own, double known) { return own > 0 && known > 0 ? own / known : 1; }

// Scales the CPU's rates from the known machine's cores and memory channels to those of m. Speeds
// of memory modules are not known.
static void scale_host(struct machine *m, const struct machine *known) {
    const int32_t own_cores = machine_performance_cores(m);
    const int32_t known_cores = machine_performance_cores(known);
    const double channels = ratio(m->n_memory_channels, known->n_memory_channels);
    if (own_cores < 1 || known_cores < 1) return;
    struct rate_factors f = machine_team_factors(known, known_cores, own_cores);
    f.compute = (double)own_cores / known_cores;
    f.memory *= channels;
    rates_scale(&m->devices[DEVICE_HOST].rates, f, f);
    m->dram_gbps *= channels;
    for (int32_t i = 0; i < m->n_team_sizes; i++) m->team_gbps[i] *= channels;
}

// Scales what an accelerator reads by its memory's peak rate: bus width times clock.
static void scale_accelerator(struct machine_device *device, const struct machine_device *known) {
    const struct rate_factors f = {.memory = ratio(device->bus_gbps, known->bus_gbps),
                                   .compute = 1};
    rates_scale(&device->rates, f, f);
}

enum status machine_take_nearest_rates(struct machine *m, struct err *e) {
    struct nearest best[MAX_DEVICES] = {{.machine = -1}, {.machine = -1}};
    struct machine known;
    for (int32_t i = 0; i < machine_builtin_count(); i++) {
        if (machine_builtin(&known, i, e)) return e->status;
        double own[MAX_DEVICES] = {host_distance(m, &known)};
        double whole = own[0];
        if (m->n_devices > 1) whole += own[1] = accelerator_distance(m, &known);
        for (int32_t d = 0; d < m->n_devices; d++) offer(&best[d], i, own[d], whole);
    }
    for (int32_t d = 0; d < m->n_devices; d++) {
        if (machine_builtin(&known, best[d].machine, e)) return e->status;
        if (d == DEVICE_HOST) take_host(m, &known);
        take_device(&m->devices[d], &known.devices[d]);
        if (d == DEVICE_HOST)
            scale_host(m, &known);
        else
            scale_accelerator(&m->devices[d], &known.devices[d]);
    }
    const char *host = machine_builtin_name(best[0].machine);
    memset(m->rates_name, 0, sizeof m->rates_name);
    if (m->n_devices > 1 && best[1].machine != best[0].machine)
        snprintf(m->rates_name, sizeof m->rates_name, "%s, the CPU's of %s",
                 machine_builtin_name(best[1].machine), host);
    else
        snprintf(m->rates_name, sizeof m->rates_name, "%s", host);
    m->rates = RATES_NEAREST;
    return OK;
}

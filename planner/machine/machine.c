/* machine.c: see machine.h. Answers questions about machines and prints them. */
#include "planner/machine/machine.h"

const int32_t RATE_TOKENS[RATE_CLASSES] = {1, 2, 4, 8, 32, 512};

// ---- Questions ----------------------------------------------------------------------------------

struct link machine_link(const struct machine *m, int from, int to) {
    ASSERT((from == DEVICE_HOST) != (to == DEVICE_HOST));
    if (from == DEVICE_HOST) {
        const struct link_rates *rates = &m->devices[to].link;
        return (struct link){rates->to_gbps, rates->staged_to_gbps, rates->latency_us};
    }
    const struct link_rates *rates = &m->devices[from].link;
    return (struct link){.gbps = rates->from_gbps, .latency_us = rates->latency_us};
}

int8_t machine_accelerator(const struct machine *m) { return m->n_devices > 1 ? 1 : DEVICE_HOST; }

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
    fprintf(out, "           copies to %.1f (staged %.1f), from %.1f GB/s, %.0f us\n",
            link->to_gbps, link->staged_to_gbps, link->from_gbps, link->latency_us);
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

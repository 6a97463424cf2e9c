/* machine_fields.c: see machine_fields.h. */
#include "planner/machine/machine_fields.h"

#define BYTES_MAX  1152921504606846976.0 // 2^60: sums of a few stay in 64 bits
#define GBPS_MAX   1e6
#define US_MAX     1e6
#define FACTOR_MAX 1e6

#define FIELD(kind, type, member, name, required, max) \
    { name, kind, required, offsetof(struct type, member), sizeof((struct type *)0)->member, max }
#define TEXT(type, member, name, required)  FIELD(FIELD_TEXT, type, member, name, required, 0)
#define COUNT(type, member, name, required) FIELD(FIELD_COUNT, type, member, name, required, 1e6)
#define BYTES(type, member, name, required) \
    FIELD(FIELD_BYTES, type, member, name, required, BYTES_MAX)
#define GBPS(type, member, name) FIELD(FIELD_REAL, type, member, name, false, GBPS_MAX)
#define RATE(type, member, name) FIELD(FIELD_RATE, type, member, name, true, GBPS_MAX)
#define TIME(type, member, name) FIELD(FIELD_REAL, type, member, name, true, US_MAX)

static const struct machine_field TOP[] = {
    TEXT(machine, name, "name", true),
    TEXT(machine, source, "source", false),
    TEXT(machine, rates_name, "rates_name", false),
    COUNT(machine, n_unused_accelerators, "unused_accelerators", false),
};

static const struct machine_field CPU[] = {
    COUNT(machine, n_packages, "packages", false),
    COUNT(machine, n_cores, "cores", true),
    COUNT(machine, n_threads, "threads", true),
    COUNT(machine, n_performance_cores, "performance_cores", false),
    COUNT(machine, n_efficiency_cores, "efficiency_cores", false),
    COUNT(machine, n_numa, "numa_nodes", false),
    BYTES(machine, cache_bytes, "cache_bytes", false),
};

static const struct machine_field MEMORY[] = {
    BYTES(machine, ram_bytes, "ram_bytes", true),
    TEXT(machine, ram_limited_by, "limited_by", false),
    GBPS(machine, dram_gbps, "dram_gbps"),
    COUNT(machine, n_memory_channels, "channels", false),
    GBPS(machine, disk_gbps, "disk_gbps"),
};

static const struct machine_field DEVICE[] = {
    TEXT(machine_device, name, "name", true),
    TEXT(machine_device, kind, "kind", true),
    BYTES(machine_device, capacity_bytes, "capacity_bytes", true),
    BYTES(machine_device, budget_bytes, "budget_bytes", false),
    BYTES(machine_device, reserve_bytes, "reserve_bytes", false),
    BYTES(machine_device, align_bytes, "align_bytes", false),
    COUNT(machine_device, n_lanes, "lanes", false),
    FIELD(FIELD_FLAG, machine_device, is_host, "is_host", false, 1),
    FIELD(FIELD_FLAG, machine_device, unified, "unified", false, 1),
    TEXT(machine_device, driver, "driver", false),
    TEXT(machine_device, capability, "capability", false),
    TEXT(machine_device, pci_id, "pci_id", false),
    GBPS(machine_device, bus_gbps, "bus_gbps"),
};

static const struct machine_field RATES[] = {
    BYTES(device_rates, cache_bytes, "cache_bytes", false),
    BYTES(device_rates, cache_quarter_bytes, "cache_quarter_bytes", false),
    FIELD(FIELD_REAL, device_rates, cache_factor, "cache_factor", false, FACTOR_MAX),
    RATE(device_rates, vector_gbps, "vector_gbps"),
    RATE(device_rates, memory_gbps, "memory_gbps"),
    TIME(device_rates, op_us, "op_us"),
    TIME(device_rates, pass_us, "pass_us"),
    FIELD(FIELD_REAL, device_rates, launch_us, "launch_us", false, US_MAX),
    FIELD(FIELD_REAL, device_rates, start_us, "start_us", false, US_MAX),
};

static const struct machine_field LINK[] = {
    RATE(link_rates, to_gbps, "to_gbps"),
    RATE(link_rates, from_gbps, "from_gbps"),
    RATE(link_rates, staged_to_gbps, "staged_to_gbps"),
    TIME(link_rates, latency_us, "latency_us"),
    GBPS(link_rates, theoretical_gbps, "theoretical_gbps"),
};

const struct machine_field *machine_fields(enum machine_section section, size_t *n) {
    static const struct {
        const struct machine_field *fields;
        size_t n;
    } sections[SECTION_COUNT] = {
        {TOP, sizeof TOP / sizeof *TOP},          {CPU, sizeof CPU / sizeof *CPU},
        {MEMORY, sizeof MEMORY / sizeof *MEMORY}, {DEVICE, sizeof DEVICE / sizeof *DEVICE},
        {RATES, sizeof RATES / sizeof *RATES},    {LINK, sizeof LINK / sizeof *LINK},
    };
    *n = sections[section].n;
    return sections[section].fields;
}

const struct machine_matrix MACHINE_MATRIX[MACHINE_MATRICES] = {
    {"weight_gbps", offsetof(struct device_rates, weight_gbps), WEIGHT_COUNT, true},
    {"attention_gflops", offsetof(struct device_rates, attention_gflops), KV_TYPES, false},
};

const char *machine_row_name(const struct machine_matrix *matrix, int32_t row) {
    return dtype_name(matrix->by_weight ? weight_dtype((enum weight_type)row)
                                        : kv_dtype((enum kv_type)row));
}

const char *const MACHINE_RATES_WORDS[RATES_MEASURED + 1] = {"none", "nearest", "file", "measured"};

/* apple.c: see apple.h. */
#include "base/apple.h"

#include <stdio.h>

enum { LEVELS = 8 };

// A value of one level of cores, as in "hw.perflevel0.physicalcpu".
static bool level_value(const struct apple_table *table, int level, const char *what,
                        uint64_t *out) {
    char name[64];
    snprintf(name, sizeof name, "hw.perflevel%d.%s", level, what);
    return table->number(table->context, name, out);
}

static uint64_t value_or(const struct apple_table *table, const char *name, uint64_t otherwise) {
    uint64_t value;
    return table->number(table->context, name, &value) ? value : otherwise;
}

static int32_t count_of(uint64_t n) { return n < 1 ? 1 : n > INT16_MAX ? INT16_MAX : (int32_t)n; }

// Sums the second-level caches, one of which belongs to a cluster of cores: nothing tells of the
// cache behind them.
static uint64_t cache_of_level(const struct apple_table *table, int level, uint64_t n_cores) {
    uint64_t bytes, sharing;
    if (!level_value(table, level, "l2cachesize", &bytes)) return 0;
    if (!level_value(table, level, "cpusperl2", &sharing) || sharing == 0) sharing = n_cores;
    return bytes * ((n_cores + sharing - 1) / sharing);
}

void apple_cores(struct host_cores *out, const struct apple_table *table) {
    *out = (struct host_cores){.n_threads = count_of(value_or(table, "hw.logicalcpu", 1))};
    out->n_cores = count_of(value_or(table, "hw.physicalcpu", (uint64_t)out->n_threads));
    uint64_t n;
    for (int level = 0; level < LEVELS && level_value(table, level, "physicalcpu", &n); level++) {
        if (n > (uint64_t)out->n_cores) break; // no such table is right
        if (level == 0) out->n_performance = (int32_t)n;
        out->cache_bytes += cache_of_level(table, level, n);
    }
    if (out->n_performance < 1) out->n_performance = out->n_cores;
    out->n_efficiency = out->n_cores - out->n_performance;
    const uint64_t last = value_or(table, "hw.l3cachesize", 0);
    if (last > 0) out->cache_bytes = last;
    if (out->cache_bytes == 0) out->cache_bytes = value_or(table, "hw.l2cachesize", 0);
}

// Systems before 12 have other names for some of them.
void apple_hwcaps(uint64_t out[2], const struct apple_table *table) {
    out[0] = out[1] = 0;
    if (value_or(table, "hw.optional.neon", value_or(table, "hw.optional.AdvSIMD", 0)))
        out[0] |= UINT64_C(1) << 1;
    if (value_or(table, "hw.optional.arm.FEAT_DotProd", 0)) out[0] |= UINT64_C(1) << 20;
    if (value_or(table, "hw.optional.arm.FEAT_I8MM", 0)) out[1] |= UINT64_C(1) << 13;
    if (value_or(table, "hw.optional.arm.FEAT_BF16", 0)) out[1] |= UINT64_C(1) << 14;
}

uint64_t apple_free_bytes(uint64_t total_bytes, uint64_t page_bytes,
                          const struct apple_pages *pages) {
    const uint64_t held =
        pages->internal > pages->purgeable ? pages->internal - pages->purgeable : 0;
    const uint64_t used_bytes = (held + pages->wired + pages->compressed) * page_bytes;
    return used_bytes < total_bytes ? total_bytes - used_bytes : 0;
}

/* cores.c: see cores.h. */
#include "kernels/cpu/cores.h"

#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>

static bool may_use(const struct affinity *set, int32_t cpu) {
    return set->mask[cpu / 64] >> (cpu % 64) & 1;
}

// The place of a processor among the allowed ones of its core, which the system lists as "0,4" or
// "0-1"; 0 where it lists none.
static int32_t rank_in_core(const char *folder, const struct affinity *allowed, int32_t cpu) {
    char path[512], text[512], *end;
    int32_t rank = 0;
    snprintf(path, sizeof path, "%s/cpu%d/topology/thread_siblings_list", folder, cpu);
    FILE *in = fopen(path, "re");
    if (!in) return 0;
    const char *list = fgets(text, sizeof text, in) ? text : "";
    fclose(in);
    for (;; list = end + 1) {
        long first = strtol(list, &end, 10), last = first;
        if (end == list || first < 0) break;
        if (*end == '-') last = strtol(end + 1, &end, 10);
        for (long c = first; c <= last && c < cpu; c++) rank += may_use(allowed, (int32_t)c);
        if (*end != ',') break;
    }
    return rank;
}

enum status core_list_plain(struct core_list *out, const struct affinity *allowed,
                            const char *folder, struct err *e) {
    *out = (struct core_list){0};
    int32_t n = 0;
    for (int32_t c = 0; c < AFFINITY_CPUS; c++) n += may_use(allowed, c);
    if (n == 0) return err_set(e, ERR_DEVICE, "no processor is left to run on");
    out->cpus = mem_alloc((size_t)n, sizeof *out->cpus);
    if (!out->cpus) return err_memory(e, (size_t)n * sizeof *out->cpus, "the list of processors");
    // A rank counts the allowed processors of a core before this one, so all ranks are below n.
    for (int32_t rank = 0; rank < n && out->n_cpus < n; rank++) {
        for (int32_t c = 0; c < AFFINITY_CPUS; c++)
            if (may_use(allowed, c) && rank_in_core(folder, allowed, c) == rank)
                out->cpus[out->n_cpus++] = c;
        if (rank == 0) out->n_cores = out->n_fast = out->n_cpus;
    }
    return OK;
}

void core_list_close(struct core_list *list) {
    mem_free(list->cpus);
    *list = (struct core_list){0};
}

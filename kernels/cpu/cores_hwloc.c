/* cores_hwloc.c: see cores_hwloc.h and cores.h. */
#include "kernels/cpu/cores_hwloc.h"

#include "base/mem.h"

// hwloc before 2.4, which Ubuntu 20.04 has, knows no kinds of cores: then all are alike.
#pragma weak hwloc_cpukinds_get_nr
#pragma weak hwloc_cpukinds_get_info
static int count_cpukinds(hwloc_topology_t topology) {
    return hwloc_cpukinds_get_nr ? hwloc_cpukinds_get_nr(topology, 0) : 0;
}

// The place of a processor among the allowed ones of its core: 0 for the first.
static int rank_in_core(hwloc_obj_t cpu, hwloc_const_cpuset_t allowed) {
    hwloc_obj_t core = cpu->parent;
    while (core && core->type != HWLOC_OBJ_CORE) core = core->parent;
    if (!core) return 0;
    int rank = 0, first = hwloc_bitmap_first(core->cpuset);
    for (int c = first; c >= 0 && c < (int)cpu->os_index; c = hwloc_bitmap_next(core->cpuset, c))
        rank += hwloc_bitmap_isset(allowed, (unsigned)c) != 0;
    return rank;
}

// Appends the allowed processors of one kind that have that rank.
static void append(struct core_list *list, hwloc_topology_t topology, hwloc_const_cpuset_t allowed,
                   hwloc_const_cpuset_t kind, int rank) {
    hwloc_obj_t cpu = NULL;
    while ((cpu = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_PU, cpu))) {
        if (!hwloc_bitmap_isset(allowed, cpu->os_index)) continue;
        if (kind && !hwloc_bitmap_isset(kind, cpu->os_index)) continue;
        if (rank_in_core(cpu, allowed) == rank) list->cpus[list->n_cpus++] = (int32_t)cpu->os_index;
    }
}

// Counts the performance cores among the first n_cores processors, which are sorted by kind. kind
// is room for a set. Where hwloc does not know which kind is faster, all cores are alike.
static int32_t count_fast(const struct core_list *list, hwloc_topology_t topology,
                          hwloc_bitmap_t kind) {
    int32_t n = 0;
    for (int k = count_cpukinds(topology) - 1; k >= 0 && n * 4 < list->n_cores; k--) {
        int efficiency;
        if (hwloc_cpukinds_get_info(topology, (unsigned)k, kind, &efficiency, NULL, NULL, 0) != 0 ||
            efficiency < 0)
            return list->n_cores;
        while (n < list->n_cores && hwloc_bitmap_isset(kind, (unsigned)list->cpus[n])) n++;
    }
    return n > 0 ? n : list->n_cores;
}

static int32_t count_allowed(hwloc_topology_t topology, hwloc_const_cpuset_t allowed) {
    int32_t n = 0;
    hwloc_obj_t cpu = NULL;
    while ((cpu = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_PU, cpu)))
        n += hwloc_bitmap_isset(allowed, cpu->os_index) != 0;
    return n;
}

enum status core_list_of(struct core_list *out, hwloc_topology_t topology,
                         hwloc_const_cpuset_t allowed, struct err *e) {
    *out = (struct core_list){0};
    int32_t n = count_allowed(topology, allowed);
    if (n == 0) return err_set(e, ERR_DEVICE, "no processor is left to run on");
    out->cpus = mem_alloc((size_t)n, sizeof *out->cpus);
    hwloc_bitmap_t kind = hwloc_bitmap_alloc();
    if (!out->cpus || !kind) {
        err_memory(e, (size_t)n * sizeof *out->cpus, "the list of processors");
        goto fail;
    }
    // Kinds are sorted by efficiency: the last one is the fastest. Without kinds all cores are
    // alike.
    int n_kinds = count_cpukinds(topology);
    for (int rank = 0; out->n_cpus < n; rank++) {
        int32_t before = out->n_cpus;
        for (int k = n_kinds - 1; k >= 0; k--)
            if (hwloc_cpukinds_get_info(topology, (unsigned)k, kind, NULL, NULL, NULL, 0) == 0)
                append(out, topology, allowed, kind, rank);
        if (n_kinds <= 0) append(out, topology, allowed, NULL, rank);
        if (out->n_cpus == before) break; // the rest belongs to no kind
        if (rank == 0) out->n_cores = out->n_cpus;
    }
    if (out->n_cpus == 0) {
        err_set(e, ERR_DEVICE, "no processor is left to run on");
        goto fail;
    }
    out->n_fast = count_fast(out, topology, kind);
    hwloc_bitmap_free(kind);
    return OK;
fail:
    hwloc_bitmap_free(kind);
    core_list_close(out);
    return e->status;
}

enum status core_list_open(struct core_list *out, struct err *e) {
    *out = (struct core_list){0};
    hwloc_topology_t topology = NULL;
    hwloc_bitmap_t allowed = NULL;
    enum status status;
    if (hwloc_topology_init(&topology) != 0) return err_memory(e, 0, "the machine's topology");
    if (hwloc_topology_load(topology) != 0) {
        status = err_set(e, ERR_DEVICE, "hwloc cannot read the machine's topology");
        goto done;
    }
    allowed = hwloc_bitmap_alloc();
    if (!allowed) {
        status = err_memory(e, 0, "the machine's topology");
        goto done;
    }
    hwloc_const_cpuset_t cpuset = hwloc_topology_get_allowed_cpuset(topology);
    if (hwloc_get_cpubind(topology, allowed, HWLOC_CPUBIND_THREAD) == 0)
        hwloc_bitmap_and(allowed, allowed, cpuset);
    else
        hwloc_bitmap_copy(allowed, cpuset);
    status = core_list_of(out, topology, allowed, e);
done:
    hwloc_bitmap_free(allowed);
    hwloc_topology_destroy(topology);
    return status;
}

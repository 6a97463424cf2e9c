/* probe_hwloc.c: machine_probe of machine.h: finds the processors, caches and memory of a computer.
 *
 * hwloc reads processors, caches and the place of cards, of this computer or of an XML file;
 * nothing is bound. Memory comes from base/host, since hwloc's figure is wrong in some virtual
 * machines and ignores control groups; links that hwloc does not know come from base/hardware.
 * Components that would start a graphics driver are left out. A build without hwloc asks the
 * operating system for the number of processors. Tested by tests/planner/test_machine.c.
 */
#include "planner/machine/machine.h"

#include "base/hardware.h"
#include "base/host.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#ifndef HAVE_HWLOC
#define HAVE_HWLOC 1
#endif

static enum status probe_memory(struct machine *out, struct err *e) {
    struct host_memory memory;
    if (host_memory_read(&memory, &HOST_ROOTS, e)) return e->status;
    out->ram_bytes = memory.total_bytes;
    memset(out->ram_limited_by, 0, sizeof out->ram_limited_by);
    snprintf(out->ram_limited_by, sizeof out->ram_limited_by, "%s", memory.limited_by);
    struct memory_modules modules;
    if (hardware_memory_modules(HARDWARE_SYS, &modules))
        out->n_memory_channels = modules.n_channels;
    return OK;
}

static double link_now(const char *pci_id) {
    struct pci_link link;
    if (!hardware_pci_link(HARDWARE_SYS, pci_id, &link)) return 0;
    return hardware_link_gbps(link.gtps, link.width);
}

#if HAVE_HWLOC
#include <hwloc.h>

static int32_t count_of(hwloc_topology_t topology, hwloc_obj_type_t type) {
    int n = hwloc_get_nbobjs_by_type(topology, type);
    return n > 0 ? n : 0;
}

// Sums all caches of the last level.
static uint64_t last_level_cache(hwloc_topology_t topology) {
    static const hwloc_obj_type_t levels[] = {HWLOC_OBJ_L4CACHE, HWLOC_OBJ_L3CACHE,
                                              HWLOC_OBJ_L2CACHE, HWLOC_OBJ_L1CACHE};
    for (size_t i = 0; i < sizeof levels / sizeof *levels; i++) {
        uint64_t sum = 0;
        hwloc_obj_t cache = NULL;
        while ((cache = hwloc_get_next_obj_by_type(topology, levels[i], cache)))
            sum += cache->attr->cache.size;
        if (sum > 0) return sum;
    }
    return 0;
}

static int32_t cores_inside(hwloc_topology_t topology, hwloc_const_cpuset_t set) {
    int32_t n = 0;
    hwloc_obj_t core = NULL;
    while ((core = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_CORE, core)))
        n += hwloc_bitmap_intersects(core->cpuset, set) != 0;
    return n;
}

// hwloc before 2.4, which Ubuntu 20.04 has, knows no kinds of cores: then all are alike.
#pragma weak hwloc_cpukinds_get_nr
#pragma weak hwloc_cpukinds_get_info
static int count_cpukinds(hwloc_topology_t topology) {
    return hwloc_cpukinds_get_nr ? hwloc_cpukinds_get_nr(topology, 0) : 0;
}

// Counts performance cores as the CPU's team does (n_fast in kernels/cpu/cores.h): the fastest kind
// and as many slower ones as it takes to have a quarter of the cores. Kinds are sorted by
// efficiency, the fastest last; if hwloc does not know which is faster (-1), all cores are alike.
static enum status count_kinds(struct machine *out, hwloc_topology_t topology, struct err *e) {
    out->n_performance_cores = out->n_cores;
    out->n_efficiency_cores = 0;
    const int n_kinds = count_cpukinds(topology);
    if (n_kinds < 2) return OK;
    hwloc_bitmap_t set = hwloc_bitmap_alloc();
    if (!set) return err_memory(e, 0, "the machine's topology");
    int32_t n = 0;
    for (int k = n_kinds - 1; k >= 0 && n * 4 < out->n_cores; k--) {
        int efficiency;
        if (hwloc_cpukinds_get_info(topology, (unsigned)k, set, &efficiency, NULL, NULL, 0) != 0 ||
            efficiency < 0) {
            n = out->n_cores;
            break;
        }
        n += cores_inside(topology, set);
    }
    hwloc_bitmap_free(set);
    if (n > 0 && n < out->n_cores) out->n_performance_cores = n;
    out->n_efficiency_cores = out->n_cores - out->n_performance_cores;
    return OK;
}

static double link_of(hwloc_topology_t topology, const char *pci_id) {
    hwloc_obj_t card = hwloc_get_pcidev_by_busidstring(topology, pci_id);
    return card ? (double)card->attr->pcidev.linkspeed : 0;
}

// Listing cards takes time, so it is done only if with_cards, and without the operating system's
// devices for them, for which hwloc would start graphics drivers. Its component for libpciaccess
// leaks memory and knows no more than /sys.
static enum status open_topology(hwloc_topology_t *out, const char *xml_path, bool with_cards,
                                 struct err *e) {
    if (hwloc_topology_init(out) != 0) {
        *out = NULL;
        return err_memory(e, 0, "the machine's topology");
    }
    hwloc_topology_set_components(*out, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, "pci");
    if (with_cards) {
        hwloc_topology_set_type_filter(*out, HWLOC_OBJ_PCI_DEVICE,
                                       HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
        hwloc_topology_set_type_filter(*out, HWLOC_OBJ_BRIDGE, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
    }
    // Checked first, since hwloc does not say what was wrong.
    if (xml_path && access(xml_path, R_OK) != 0) return err_errno(e, errno, "%s", xml_path);
    if (xml_path && hwloc_topology_set_xml(*out, xml_path) != 0) goto no_topology;
    if (hwloc_topology_load(*out) == 0) return OK;
    if (!xml_path) return err_set(e, ERR_DEVICE, "hwloc cannot read the machine's topology");
no_topology:
    err_set(e, ERR_FORMAT, "%s", xml_path);
    return err_expected(e, "a topology in hwloc's XML, version 2");
}

enum status machine_probe(struct machine *out, const char *xml_path, const char *pci_id,
                          double *link_gbps, struct err *e) {
    *link_gbps = 0;
    hwloc_topology_t topology = NULL;
    bool with_card = pci_id && *pci_id;
    enum status status = open_topology(&topology, xml_path, with_card, e);
    if (status != OK) goto done;
    out->n_threads = count_of(topology, HWLOC_OBJ_PU);
    out->n_cores = count_of(topology, HWLOC_OBJ_CORE);
    if (out->n_cores == 0) out->n_cores = out->n_threads;
    out->n_packages = count_of(topology, HWLOC_OBJ_PACKAGE);
    out->n_numa = count_of(topology, HWLOC_OBJ_NUMANODE);
    out->cache_bytes = last_level_cache(topology);
    if (with_card) *link_gbps = link_of(topology, pci_id);
    if (with_card && !xml_path && !(*link_gbps > 0)) *link_gbps = link_now(pci_id);
    status = count_kinds(out, topology, e);
    if (status == OK && !xml_path) status = probe_memory(out, e);
    if (xml_path) {
        out->ram_bytes = hwloc_get_root_obj(topology)->total_memory;
        memset(out->ram_limited_by, 0, sizeof out->ram_limited_by);
        snprintf(out->ram_limited_by, sizeof out->ram_limited_by, "topology file");
    }
done:
    if (topology) hwloc_topology_destroy(topology);
    return status;
}

#else

enum status machine_probe(struct machine *out, const char *xml_path, const char *pci_id,
                          double *link_gbps, struct err *e) {
    *link_gbps = 0;
    if (xml_path) {
        err_set(e, ERR_UNSUPPORTED, "%s: this program was built without hwloc", xml_path);
        return err_fix(e, "build with hwloc to read topology files");
    }
    struct host_cores cores;
    host_cores_read(&cores);
    out->n_threads = cores.n_threads;
    out->n_cores = cores.n_cores;
    out->n_performance_cores = cores.n_performance;
    out->n_efficiency_cores = cores.n_efficiency;
    out->n_packages = out->n_numa = 0;
    out->cache_bytes = cores.cache_bytes;
    if (pci_id && *pci_id) *link_gbps = link_now(pci_id);
    return probe_memory(out, e);
}

#endif

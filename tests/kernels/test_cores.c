/* test_cores.c: tests of kernels/cpu/cores.h on invented machines, and of the size of a team that
 * follows from them. */
#include "base/affinity.h"
#include "base/host.h"
#include "kernels/cpu/cores_hwloc.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/device/cpu_device.h"
#include "kernels/device.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static void test_default_team(void **state) {
    (void)state;
    struct core_list cores;
    struct err e;
    int32_t n;
    assert_int_equal(core_list_open(&cores, &e), OK);
    assert_int_equal(team_default_size(&n, &e), OK);
    assert_in_range(n, 1, cores.n_fast);
    core_list_close(&cores);
}

// Registers kinds of processors: lists of them with a semicolon between, the fastest first; the
// rest are slower still. Behind a question mark nobody knows which kind is faster.
static void register_kinds(hwloc_topology_t topology, const char *kinds) {
    hwloc_bitmap_t set = hwloc_bitmap_alloc(), rest = hwloc_bitmap_alloc();
    char list[64];
    const bool known = *kinds != '?';
    int efficiency = 9;
    hwloc_bitmap_copy(rest, hwloc_topology_get_complete_cpuset(topology));
    for (const char *k = kinds + !known; *k; k += *k == ';') {
        snprintf(list, sizeof list, "%.*s", (int)strcspn(k, ";"), k);
        k += strlen(list);
        hwloc_bitmap_list_sscanf(set, list);
        hwloc_bitmap_andnot(rest, rest, set);
        hwloc_cpukinds_register(topology, set, known ? efficiency-- : -1, 0, NULL, 0);
    }
    hwloc_cpukinds_register(topology, rest, known ? efficiency : -1, 0, NULL, 0);
    hwloc_bitmap_free(set);
    hwloc_bitmap_free(rest);
}

// The order of processors on an invented machine, as "0 2 4 ..."; empty: any.
static void check_order(const char *machine, const char *kinds, const char *allowed_text,
                        const char *order, int32_t n_cores, int32_t n_fast) {
    hwloc_topology_t topology;
    assert_int_equal(hwloc_topology_init(&topology), 0);
    assert_int_equal(hwloc_topology_set_synthetic(topology, machine), 0);
    assert_int_equal(hwloc_topology_load(topology), 0);
    hwloc_bitmap_t set = hwloc_bitmap_alloc();
    if (kinds) register_kinds(topology, kinds);
    hwloc_bitmap_list_sscanf(set, allowed_text);
    struct core_list list;
    struct err e;
    assert_int_equal(core_list_of(&list, topology, set, &e), OK);
    char text[128] = "";
    for (int32_t i = 0; i < list.n_cpus; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), i ? " %d" : "%d", list.cpus[i]);
    if (*order) assert_string_equal(text, order);
    assert_int_equal(list.n_cores, n_cores);
    assert_int_equal(list.n_fast, n_fast);
    core_list_close(&list);
    hwloc_bitmap_zero(set);
    assert_int_equal(core_list_of(&list, topology, set, &e), ERR_DEVICE);
    core_list_close(&list);
    hwloc_bitmap_free(set);
    hwloc_topology_destroy(topology);
}

static void test_order_of_cores(void **state) {
    (void)state;
    check_order("core:4 pu:1", NULL, "0-3", "0 1 2 3", 4, 4);
    check_order("core:3 pu:2", NULL, "0-5", "0 2 4 1 3 5", 3, 3);
    check_order("core:3 pu:2", NULL, "1,3-5", "1 3 4 5", 3, 3);
    check_order("core:4 pu:2", "4-7", "0-7", "4 6 0 2 5 7 1 3", 4, 2);
    check_order("core:4 pu:2", "4-7", "0,2,5", "5 0 2", 3, 1);
    check_order("core:4 pu:2", "4-7", "0-3", "0 2 1 3", 2, 2);       // slower cores alone
    check_order("core:8 pu:1", "7", "0-7", "7 0 1 2 3 4 5 6", 8, 8); // one prime core
    check_order("core:4 pu:1", "3", "0-3", "3 0 1 2", 4, 1);         // a quarter is enough
    check_order("core:5 pu:1", "4", "0-4", "4 0 1 2 3", 5, 5);       // a fifth is not
    check_order("core:8 pu:1", "7;4-6", "0-7", "7 4 5 6 0 1 2 3", 8, 4);
    check_order("core:8 pu:1", "6-7;4-5", "0-7", "6 7 4 5 0 1 2 3", 8, 2);
    check_order("core:8 pu:1", "6-7;4-5", "0-5", "4 5 0 1 2 3", 6, 2);
    check_order("core:8 pu:1", "?7;4-6", "0-7", "", 8, 8);
}

// Opens the CPU with that many threads on an invented machine, of which hwloc reads from a file.
// Its device has so many lanes, or fewer where this process may not use as much time, and details.
static void check_device(const char *machine, const char *kinds, const struct cpu_options *options,
                         int32_t n_lanes, const char *details) {
    char path[] = "/tmp/tandem_test_cores.XXXXXX";
    const int32_t quota = host_cpu_quota(&HOST_ROOTS);
    hwloc_topology_t topology;
    struct device *device;
    struct err e;
    close(mkstemp(path));
    assert_int_equal(hwloc_topology_init(&topology), 0);
    assert_int_equal(hwloc_topology_set_synthetic(topology, machine), 0);
    assert_int_equal(hwloc_topology_load(topology), 0);
    if (kinds) register_kinds(topology, kinds);
    assert_int_equal(hwloc_topology_export_xml(topology, path, 0), 0);
    hwloc_topology_destroy(topology);
    setenv("HWLOC_XMLFILE", path, 1);
    assert_int_equal(device_open_cpu(&device, options, NULL, &e), OK);
    if (options->n_threads == 0 && quota > 0 && quota < n_lanes) n_lanes = quota;
    assert_int_equal(device->info.n_lanes, n_lanes);
    assert_string_equal(device->info.details, details);
    device_close(device);
    unsetenv("HWLOC_XMLFILE");
    unlink(path);
}

// By default there is a thread on each performance core, and the device says where threads are.
static void test_default_team_of_machines(void **state) {
    (void)state;
    const struct cpu_options by_default = {.isa = ISA_REF}, seven = {ISA_REF, 7, 7, false},
                             unbound = {.isa = ISA_REF, .no_bind = true};
    check_device("core:14 pu:1", "0-5;6-11", &by_default, 6,
                 "cores: 6 performance, 8 slower; threads are bound to performance cores first");
    check_device("core:14 pu:1", "0-5;6-11", &seven, 7,
                 "cores: 6 performance, 8 slower; threads are bound to performance cores first");
    check_device("core:14 pu:1", "0-5;6-11", &unbound, 6, "cores: 6 performance, 8 slower");
    check_device("core:8 pu:1", "7;4-6", &unbound, 4, "cores: 4 performance, 4 slower");
    check_device("core:5 pu:1", "4", &by_default, 5, ""); // one that is faster than four
    check_device("core:3 pu:2", NULL, &by_default, 3, "");
}

// The list has only the processors that the thread may use.
static void test_bound_caller(void **state) {
    (void)state;
    struct affinity before;
    struct core_list all, one;
    struct err e;
    if (!affinity_get(&before)) skip();
    assert_int_equal(core_list_open(&all, &e), OK);
    const int32_t last = all.cpus[all.n_cpus - 1];
    if (affinity_set_cpu(last)) {
        assert_int_equal(core_list_open(&one, &e), OK);
        assert_int_equal(one.n_cpus, 1);
        assert_int_equal(one.cpus[0], last);
        core_list_close(&one);
        assert_true(affinity_set(&before));
    }
    core_list_close(&all);
}

// The same from the system's lists of the processors of a core, without hwloc. siblings: a list per
// processor, empty where the system has none, then NULL.
static void check_plain_order(const char *const *siblings, uint64_t allowed_mask, const char *order,
                              int32_t n_cores) {
    char folder[] = "/tmp/tandem_test_cores.XXXXXX", command[64], path[128], text[128] = "";
    assert_non_null(mkdtemp(folder));
    for (int cpu = 0; siblings[cpu]; cpu++) {
        if (!*siblings[cpu]) continue;
        snprintf(path, sizeof path, "%s/cpu%d", folder, cpu);
        assert_int_equal(mkdir(path, 0700), 0);
        snprintf(path, sizeof path, "%s/cpu%d/topology", folder, cpu);
        assert_int_equal(mkdir(path, 0700), 0);
        snprintf(path, sizeof path, "%s/cpu%d/topology/thread_siblings_list", folder, cpu);
        FILE *out = fopen(path, "w");
        assert_non_null(out);
        fprintf(out, "%s\n", siblings[cpu]);
        fclose(out);
    }
    const struct affinity allowed = {.mask = {allowed_mask}};
    struct core_list list;
    struct err e;
    assert_int_equal(core_list_plain(&list, &allowed, folder, &e), OK);
    for (int32_t i = 0; i < list.n_cpus; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), i ? " %d" : "%d", list.cpus[i]);
    assert_string_equal(text, order);
    assert_int_equal(list.n_cores, n_cores);
    core_list_close(&list);
    snprintf(command, sizeof command, "rm -r %s", folder);
    assert_int_equal(system(command), 0);
}

static void test_plain_order_of_cores(void **state) {
    (void)state;
    const char *const nothing[] = {"", "", "", "", NULL};
    const char *const far_apart[] = {"0,3", "1,4", "2,5", "0,3", "1,4", "2,5", NULL};
    const char *const adjacent[] = {"0-1", "0-1", "2-3", "2-3", NULL};
    const char *const four[] = {"0-1,4-5", "0-1,4-5", "2", "", "0-1,4-5", "0-1,4-5", NULL};
    const char *const broken[] = {"x", "0-", "-1-3", "9-2,", NULL};
    check_plain_order(nothing, 0xf, "0 1 2 3", 4);
    check_plain_order(far_apart, 0x3f, "0 1 2 3 4 5", 3);
    check_plain_order(far_apart, 0x3a, "1 3 5 4", 3);
    check_plain_order(adjacent, 0xf, "0 2 1 3", 2);
    check_plain_order(four, 0x3f, "0 2 3 1 4 5", 3);
    check_plain_order(broken, 0xf, "0 2 3 1", 3); // "0-" is 0
    const struct affinity none = {0};
    struct core_list list;
    struct err e;
    assert_int_equal(core_list_plain(&list, &none, "/", &e), ERR_DEVICE);
    core_list_close(&list);
    // This machine has as many processors either way.
    struct affinity all;
    assert_true(affinity_get(&all));
    assert_int_equal(core_list_plain(&list, &all, "/sys/devices/system/cpu", &e), OK);
    const int32_t n = list.n_cpus;
    core_list_close(&list);
    assert_int_equal(core_list_open(&list, &e), OK);
    assert_int_equal(list.n_cpus, n);
    core_list_close(&list);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_default_team),
        cmocka_unit_test(test_order_of_cores),
        cmocka_unit_test(test_default_team_of_machines),
        cmocka_unit_test(test_bound_caller),
        cmocka_unit_test(test_plain_order_of_cores),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

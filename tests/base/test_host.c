/* test_host.c: base/host on invented /proc and control-group trees, and on this machine. */
#include "base/host.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define MIB (UINT64_C(1) << 20)

struct tree { // a made-up system below a temporary folder
    char top[64], proc[96], cgroup[96];
};

// Writes top/path with its folders.
static void put(const struct tree *tree, const char *path, const char *text) {
    char full[512];
    snprintf(full, sizeof full, "%s/%s", tree->top, path);
    for (char *p = strchr(full + 1, '/'); p; p = strchr(p + 1, '/')) {
        *p = 0;
        mkdir(full, 0700);
        *p = '/';
    }
    FILE *out = fopen(full, "w");
    assert_non_null(out);
    fputs(text, out);
    fclose(out);
}

static int make_tree(void **state) {
    struct tree *tree = calloc(1, sizeof *tree);
    snprintf(tree->top, sizeof tree->top, "/tmp/tandem_host_XXXXXX");
    if (!mkdtemp(tree->top)) return -1;
    snprintf(tree->proc, sizeof tree->proc, "%s/proc", tree->top);
    snprintf(tree->cgroup, sizeof tree->cgroup, "%s/cgroup", tree->top);
    put(tree, "proc/meminfo",
        "MemTotal:       8388608 kB\nMemFree: 1 kB\nMemAvailable:   4194304 kB\n");
    *state = tree;
    return 0;
}

static int remove_tree(void **state) {
    struct tree *tree = *state;
    char command[128];
    snprintf(command, sizeof command, "rm -r %s", tree->top);
    int result = system(command);
    free(tree);
    return result;
}

static struct host_memory read_memory(const struct tree *tree) {
    struct host_memory memory;
    struct err e;
    assert_int_equal(host_memory_read(&memory, &(struct host_roots){tree->proc, tree->cgroup}, &e),
                     OK);
    return memory;
}

static void test_without_limits(void **state) {
    struct host_memory memory = read_memory(*state);
    assert_int_equal(memory.total_bytes, 8192 * MIB);
    assert_int_equal(memory.free_bytes, 4096 * MIB);
    assert_string_equal(memory.limited_by, "MemAvailable");
}

static void test_version2_limit_of_a_parent(void **state) {
    const struct tree *tree = *state;
    put(tree, "proc/self/cgroup", "0::/slice/job\n");
    put(tree, "cgroup/slice/job/memory.max", "max\n");
    put(tree, "cgroup/slice/memory.max", "2147483648\n");
    put(tree, "cgroup/slice/memory.current", "1610612736\n");
    put(tree, "cgroup/slice/memory.stat",
        "anon 5\ninactive_file 104857600\nactive_file 209715200\n");
    struct host_memory memory = read_memory(tree);
    assert_int_equal(memory.total_bytes, 2048 * MIB);
    assert_int_equal(memory.free_bytes, (512 + 300) * MIB);
    assert_non_null(strstr(memory.limited_by, "/cgroup/slice/memory.max"));
}

static void test_version2_high_is_a_limit(void **state) {
    const struct tree *tree = *state;
    put(tree, "proc/self/cgroup", "0::/job\n");
    put(tree, "cgroup/job/memory.max", "2147483648\n");
    put(tree, "cgroup/job/memory.high", "1073741824\n");
    put(tree, "cgroup/job/memory.current", "2147483648\n");
    assert_int_equal(read_memory(tree).free_bytes, 0);
    assert_int_equal(read_memory(tree).total_bytes, 1024 * MIB);
}

static void test_version1_and_hybrid(void **state) {
    const struct tree *tree = *state;
    put(tree, "proc/self/cgroup",
        "9:name=systemd:/\n4:hugetlb,memory:/a/b\n1:cpu,cpuacct:/a\n0::/\n");
    put(tree, "cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    put(tree, "cgroup/memory/a/memory.limit_in_bytes", "3221225472\n");
    put(tree, "cgroup/memory/a/memory.usage_in_bytes", "2147483648\n");
    put(tree, "cgroup/memory/a/memory.stat",
        "inactive_file 7\ntotal_inactive_file 1048576\ntotal_active_file 0\n");
    assert_int_equal(read_memory(tree).free_bytes, 1025 * MIB);
    put(tree, "cgroup/unified/memory.max", "1048576\n");
    assert_int_equal(read_memory(tree).free_bytes, MIB);
}

// Inside a container the path of the group may not exist below the mount: the levels above count.
static void test_path_outside_the_mount(void **state) {
    const struct tree *tree = *state;
    put(tree, "proc/self/cgroup", "0::/docker/0123\n");
    put(tree, "cgroup/memory.max", "4194304\n");
    assert_int_equal(read_memory(tree).free_bytes, 4 * MIB);
}

// The address space, of which files that are mapped for reading alone count as free, and 32 MiB do
// not.
static void test_limit_of_the_process(void **state) {
    const struct tree *tree = *state;
    const rlim_t limit = (rlim_t)1 << 46; // more than any sanitizer takes
    const uint64_t page_bytes = (uint64_t)sysconf(_SC_PAGESIZE);
    struct rlimit before, now;
    assert_int_equal(getrlimit(RLIMIT_AS, &before), 0);
    now = (struct rlimit){limit, before.rlim_max};
    if (setrlimit(RLIMIT_AS, &now) != 0) skip();
    put(tree, "proc/meminfo", "MemTotal: 1099511627776 kB\nMemAvailable: 1099511627776 kB\n");
    put(tree, "proc/self/statm", "500000 9 9 9 0 9 0\n");
    assert_true(read_memory(tree).free_bytes == limit - 500000 * page_bytes - 32 * MIB);
    put(tree, "proc/self/maps",
        "10000000-20000000 r--s 00000000 08:01 7    /models/a model r--s.gguf\n"
        "30000000-40000000 r--p 00000000 08:01 8    /lib/libc.so\n"
        "50000000-50001000 rw-s 00000000 00:05 9    /dev/gpu\n"
        "60000000-60100000 r--s 00000000 08:01 7    /models/part 2.gguf\n");
    const struct host_memory memory = read_memory(tree);
    assert_int_equal(setrlimit(RLIMIT_AS, &before), 0);
    assert_true(memory.free_bytes == limit - 500000 * page_bytes - 32 * MIB + 257 * MIB);
    assert_true(memory.total_bytes == limit);
    assert_string_equal(memory.limited_by, "RLIMIT_AS");
}

static void test_missing_and_broken_meminfo(void **state) {
    const struct tree *tree = *state;
    struct host_memory memory;
    struct err e;
    struct host_roots nowhere = {"/nonexistent", "/nonexistent"};
    assert_int_equal(host_memory_read(&memory, &nowhere, &e), ERR_FILE);
    assert_non_null(strstr(e.what, "/nonexistent/meminfo"));
    put(tree, "proc/meminfo", "MemTotal: 5 kB\n");
    struct host_roots roots = {tree->proc, tree->cgroup};
    assert_int_equal(host_memory_read(&memory, &roots, &e), ERR_FILE);
}

static void test_quota(void **state) {
    const struct tree *tree = *state;
    struct host_roots roots = {tree->proc, tree->cgroup};
    assert_int_equal(host_cpu_quota(&roots), 0);
    put(tree, "proc/self/cgroup", "1:cpu,cpuacct:/a\n0::/job/part\n");
    put(tree, "cgroup/job/part/cpu.max", "max 100000\n");
    put(tree, "cgroup/cpu/a/cpu.cfs_quota_us", "-1\n");
    put(tree, "cgroup/cpu/a/cpu.cfs_period_us", "100000\n");
    assert_int_equal(host_cpu_quota(&roots), 0);
    put(tree, "cgroup/job/cpu.max", "350000 100000\n");
    assert_int_equal(host_cpu_quota(&roots), 3);
    put(tree, "cgroup/cpu/a/cpu.cfs_quota_us", "50000\n");
    assert_int_equal(host_cpu_quota(&roots), 1);
}

static void test_cpu_name(void **state) {
    const struct tree *tree = *state;
    struct host_roots roots = {tree->proc, tree->cgroup};
    char name[32];
    assert_string_equal(host_cpu_name(&roots, name, sizeof name), "CPU");
    put(tree, "proc/cpuinfo", "processor\t: 0\nmodel name\t: Fast Chip 9000\ncache: 1\n");
    assert_string_equal(host_cpu_name(&roots, name, sizeof name), "Fast Chip 9000");
    assert_string_equal(host_cpu_name(&roots, name, 5), "Fast");
}

static void test_busy(void **state) {
    const struct tree *tree = *state;
    const struct host_roots roots = {tree->proc, tree->cgroup};
    const uint64_t tick_ns = UINT64_C(1000000000) / (uint64_t)sysconf(_SC_CLK_TCK);
    assert_true(host_busy_ns(&roots) == 0);
    put(tree, "proc/stat", "cpu  100 20 3 99999 88888 4 5 600 7 0\ncpu0 1 1 1 1 1 1 1 1 1 1\n");
    assert_true(host_busy_ns(&roots) == 732 * tick_ns); // neither idle nor waiting for a disk
    put(tree, "proc/stat", "cpu  100 20\n");
    assert_true(host_busy_ns(&roots) == 0);
}

static void test_major_faults(void **state) {
    const struct tree *tree = *state;
    const struct host_roots roots = {tree->proc, tree->cgroup};
    assert_true(host_major_faults(&roots) == 0);
    put(tree, "proc/vmstat", "nr_free_pages 7\npgfault 900\npgmajfault 42\npgrefill 1\n");
    assert_true(host_major_faults(&roots) == 42);
    put(tree, "proc/vmstat", "pgfault 900\n");
    assert_true(host_major_faults(&roots) == 0);
}

static void test_this_machine(void **state) {
    (void)state;
    struct host_memory memory;
    struct err e;
    assert_int_equal(host_memory_read(&memory, &HOST_ROOTS, &e), OK);
    assert_true(memory.free_bytes > 0);
    assert_true(memory.free_bytes <= memory.total_bytes);
    assert_true(host_busy_ns(&HOST_ROOTS) > 0);
}

int main(void) {
#define IN_TREE(test) cmocka_unit_test_setup_teardown(test, make_tree, remove_tree)
    const struct CMUnitTest tests[] = {
        IN_TREE(test_without_limits),
        IN_TREE(test_version2_limit_of_a_parent),
        IN_TREE(test_version2_high_is_a_limit),
        IN_TREE(test_version1_and_hybrid),
        IN_TREE(test_path_outside_the_mount),
        IN_TREE(test_limit_of_the_process),
        IN_TREE(test_missing_and_broken_meminfo),
        IN_TREE(test_quota),
        IN_TREE(test_cpu_name),
        IN_TREE(test_busy),
        IN_TREE(test_major_faults),
        cmocka_unit_test(test_this_machine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

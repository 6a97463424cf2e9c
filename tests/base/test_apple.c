/* test_apple.c: the tables of macOS kernels, written down by hand, and what base/apple.c makes of
 * them. */
#include "base/apple.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

struct entry {
    const char *name;
    uint64_t value;
};

// A table ends with an entry without a name.
static bool find(const void *context, const char *name, uint64_t *out) {
    for (const struct entry *entry = context; entry->name; entry++) {
        if (strcmp(entry->name, name) != 0) continue;
        *out = entry->value;
        return true;
    }
    return false;
}

// A MacBook Air with the first M1 and macOS 13.
static const struct entry M1[] = {
    {"hw.logicalcpu", 8},
    {"hw.physicalcpu", 8},
    {"hw.nperflevels", 2},
    {"hw.perflevel0.physicalcpu", 4},
    {"hw.perflevel0.l2cachesize", 12 << 20},
    {"hw.perflevel0.cpusperl2", 4},
    {"hw.perflevel1.physicalcpu", 4},
    {"hw.perflevel1.l2cachesize", 4 << 20},
    {"hw.perflevel1.cpusperl2", 4},
    {"hw.l2cachesize", 4 << 20},
    {"hw.optional.AdvSIMD", 1},
    {"hw.optional.neon", 1},
    {"hw.optional.arm.FEAT_DotProd", 1},
    {"hw.optional.arm.FEAT_I8MM", 0},
    {"hw.optional.arm.FEAT_BF16", 0},
    {0},
};

// An M2 Max: two clusters of performance cores, of which each has a cache.
static const struct entry M2_MAX[] = {
    {"hw.logicalcpu", 12},
    {"hw.physicalcpu", 12},
    {"hw.perflevel0.physicalcpu", 8},
    {"hw.perflevel0.l2cachesize", 16 << 20},
    {"hw.perflevel0.cpusperl2", 4},
    {"hw.perflevel1.physicalcpu", 4},
    {"hw.perflevel1.l2cachesize", 4 << 20},
    {"hw.perflevel1.cpusperl2", 4},
    {"hw.optional.AdvSIMD", 1},
    {"hw.optional.arm.FEAT_DotProd", 1},
    {"hw.optional.arm.FEAT_I8MM", 1},
    {"hw.optional.arm.FEAT_BF16", 1},
    {0},
};

// A MacBook Pro of 2019: two threads a core, one kind of cores, and a third level of cache.
static const struct entry INTEL[] = {
    {"hw.logicalcpu", 16},
    {"hw.physicalcpu", 8},
    {"hw.nperflevels", 1},
    {"hw.perflevel0.physicalcpu", 8},
    {"hw.perflevel0.l2cachesize", 256 << 10},
    {"hw.perflevel0.cpusperl2", 1},
    {"hw.l2cachesize", 256 << 10},
    {"hw.l3cachesize", 16 << 20},
    {0},
};

static struct host_cores cores_of(const struct entry *entries) {
    struct host_cores out;
    const struct apple_table table = {find, entries};
    apple_cores(&out, &table);
    return out;
}

static void expect_cores(const struct entry *entries, const int32_t counts[4],
                         uint64_t cache_bytes) {
    const struct host_cores cores = cores_of(entries);
    assert_int_equal(cores.n_threads, counts[0]);
    assert_int_equal(cores.n_cores, counts[1]);
    assert_int_equal(cores.n_performance, counts[2]);
    assert_int_equal(cores.n_efficiency, counts[3]);
    assert_int_equal(cores.cache_bytes, cache_bytes);
}

static void test_cores_of_macs(void **state) {
    (void)state;
    expect_cores(M1, (const int32_t[]){8, 8, 4, 4}, 16 << 20);
    expect_cores(M2_MAX, (const int32_t[]){12, 12, 8, 4}, 36 << 20);
    expect_cores(INTEL, (const int32_t[]){16, 8, 8, 0}, 16 << 20);
}

// A system before macOS 12 knows no levels; an empty table leaves one core.
static void test_cores_of_poor_tables(void **state) {
    (void)state;
    static const struct entry old[] = {{"hw.logicalcpu", 8}, {"hw.l2cachesize", 4 << 20}, {0}};
    expect_cores(old, (const int32_t[]){8, 8, 8, 0}, 4 << 20);
    expect_cores(&(const struct entry){0}, (const int32_t[]){1, 1, 1, 0}, 0);
    static const struct entry wrong[] = {{"hw.logicalcpu", 4},
                                         {"hw.physicalcpu", UINT64_MAX},
                                         {"hw.perflevel0.physicalcpu", UINT64_MAX},
                                         {"hw.perflevel0.l2cachesize", 1 << 20},
                                         {0}};
    expect_cores(wrong, (const int32_t[]){4, INT16_MAX, INT16_MAX, 0}, 0);
}

static void expect_hwcaps(const struct entry *entries, uint64_t first, uint64_t second) {
    uint64_t caps[2] = {99, 99};
    const struct apple_table table = {find, entries};
    apple_hwcaps(caps, &table);
    assert_int_equal(caps[0], first);
    assert_int_equal(caps[1], second);
}

static void test_instructions(void **state) {
    (void)state;
    expect_hwcaps(M1, 1 << 1 | 1 << 20, 0);
    expect_hwcaps(M2_MAX, 1 << 1 | 1 << 20, 1 << 13 | 1 << 14);
    expect_hwcaps(INTEL, 0, 0);
}

// An 8 GB Mac with 16 KiB pages: 3 GiB of programs, of which 256 MiB may be discarded, 1 GiB wired
// and 512 MiB compressed leave 3.75 GiB, whatever the files in memory.
static void test_free_memory(void **state) {
    (void)state;
    const uint64_t mib = 1 << 20, page = 16 << 10, pages_in_mib = mib / page;
    struct apple_pages pages = {.internal = 3072 * pages_in_mib,
                                .purgeable = 256 * pages_in_mib,
                                .wired = 1024 * pages_in_mib,
                                .compressed = 512 * pages_in_mib};
    assert_int_equal(apple_free_bytes(8192 * mib, page, &pages), 3840 * mib);
    pages.purgeable = pages.internal + 1;
    assert_int_equal(apple_free_bytes(8192 * mib, page, &pages), 6656 * mib);
    pages.wired = 8192 * pages_in_mib;
    assert_int_equal(apple_free_bytes(8192 * mib, page, &pages), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cores_of_macs),
        cmocka_unit_test(test_cores_of_poor_tables),
        cmocka_unit_test(test_instructions),
        cmocka_unit_test(test_free_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* test_doctor.c: findings from invented facts: nothing wrong, one thing at a time, everything. */
#include "runtime/host/doctor.h"

#include "base/mem.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const uint64_t GIB = 1 << 30;

struct fixture {
    struct shape shape;
    struct doctor_facts facts;
    struct finding findings[MAX_FINDINGS];
    int32_t n;
};

static int32_t builtin(int32_t count, const char *(*name)(int32_t), const char *wanted) {
    for (int32_t i = 0; i < count; i++)
        if (strcmp(name(i), wanted) == 0) return i;
    fail_msg("%s is not built in", wanted);
    return -1;
}

// A machine with an accelerator, calibrated, with nothing wrong.
static int setup(void **state) {
    struct fixture *f = mem_alloc(1, sizeof *f);
    struct err e;
    if (!f) return -1;
    *state = f;
    const int32_t s = builtin(shape_builtin_count(), shape_builtin_name, "llama-3.1-8b");
    const int32_t m = builtin(machine_builtin_count(), machine_builtin_name, "rtx-2060-6g");
    if (shape_builtin(&f->shape, s, &e) || machine_builtin(&f->facts.machine, m, &e)) return -1;
    struct doctor_facts *facts = &f->facts;
    facts->machine.rates = RATES_MEASURED;
    facts->machine.devices[1].reserve_bytes = 0;
    facts->machine.devices[1].budget_bytes = facts->machine.devices[1].capacity_bytes;
    facts->shape = &f->shape;
    facts->workload.kv_type_k = facts->workload.kv_type_v = DTYPE_F16;
    facts->modules = (struct memory_modules){2, 4, 2, 3200, 16 * GIB};
    facts->link = (struct pci_link){8, 8, 16, 16};
    facts->memory = (struct host_memory){16 * GIB, 12 * GIB, 12 * GIB, "MemAvailable"};
    facts->available_bytes = 12 * GIB;
    facts->n_nvidia_cards = 1;
    facts->has_vector_isa = true;
    return 0;
}

static int teardown(void **state) {
    mem_free(*state);
    return 0;
}

static void examine(struct fixture *f) {
    struct err e;
    f->n = doctor_examine(&f->facts, f->findings, &e);
    assert_in_range(f->n, 0, MAX_FINDINGS);
    for (int32_t i = 0; i < f->n; i++) {
        assert_true(f->findings[i].what[0] && f->findings[i].cost[0] && f->findings[i].fix[0]);
        if (i > 0) assert_true(f->findings[i].severity <= f->findings[i - 1].severity);
    }
}

// The only finding, by name.
static const struct finding *only(struct fixture *f, const char *name) {
    examine(f);
    assert_int_equal(f->n, 1);
    assert_string_equal(f->findings[0].name, name);
    return &f->findings[0];
}

// The tokens per second now and without what is wrong, from the cost.
static void expect_gain(const struct finding *f) {
    double now = 0, then = 0;
    const char *at = strstr(f->cost, "Llama");
    assert_non_null(at);
    at = strchr(at, ':');
    assert_non_null(at);
    assert_int_equal(sscanf(at, ": %lf tokens/s now, %lf without", &now, &then), 2);
    assert_true(now > 0 && then > now);
}

static void test_healthy(void **state) {
    struct fixture *f = *state;
    examine(f);
    assert_int_equal(f->n, 0);
}

static void test_link(void **state) {
    struct fixture *f = *state;
    f->facts.link.gtps = 2.5; // an idle card; its width is what counts
    examine(f);
    assert_int_equal(f->n, 0);
    f->facts.link.width = 4;
    const struct finding *found = only(f, "link");
    assert_non_null(strstr(found->what, "is x4 and could be x16"));
    assert_non_null(strstr(found->cost, "4 times as long"));
}

static void test_single_channel(void **state) {
    struct fixture *f = *state;
    f->facts.machine.devices[1].budget_bytes = GIB; // most of the model is with the CPU
    f->facts.machine.devices[1].capacity_bytes = GIB;
    f->facts.modules = (struct memory_modules){1, 2, 1, 2666, 16 * GIB};
    expect_gain(only(f, "memory-channels"));
    f->facts.modules = (struct memory_modules){1, 2, 0, 2666, 16 * GIB}; // slots without names
    (void)only(f, "memory-channels");
    f->facts.modules = (struct memory_modules){0};
    examine(f);
    assert_int_equal(f->n, 0);
}

static void test_vram_taken(void **state) {
    struct fixture *f = *state;
    f->facts.machine.devices[1].budget_bytes /= 2;
    const struct finding *found = only(f, "vram");
    assert_int_equal(found->severity, FINDING_SLOW);
    expect_gain(found);
}

static void test_memory_limit(void **state) {
    struct fixture *f = *state;
    f->facts.memory.free_bytes = 4 * GIB;
    f->facts.machine.devices[0].budget_bytes = 4 * GIB;
    strcpy(f->facts.memory.limited_by, "/sys/fs/cgroup/memory.max");
    const struct finding *found = only(f, "memory-limit");
    assert_non_null(strstr(found->what, "/sys/fs/cgroup/memory.max"));
}

// Names what lies in RAM of the file, what the rest costs, and a way that helps: free RAM for it
// first, if there is too little.
static void test_file_cache(void **state) {
    struct fixture *f = *state;
    f->facts.machine.disk_gbps = 2;
    f->facts.file_bytes = 8 * GIB;
    f->facts.cached_bytes = 6 * GIB;
    examine(f);
    assert_int_equal(f->n, 0);
    f->facts.cached_bytes = 2 * GIB;
    const struct finding *found = only(f, "file-cache");
    assert_int_equal(found->severity, FINDING_NOTE);
    assert_non_null(strstr(found->what, "6.00 GiB of the model's file are not in RAM"));
    assert_non_null(strstr(found->cost, "3.2 s longer: the disk reads 2 GB/s"));
    assert_non_null(strstr(found->fix, "--mlock"));
    f->facts.file_bytes = 20 * GIB;
    assert_non_null(strstr(only(f, "file-cache")->fix, "12.00 GiB of RAM are free"));
}

static void test_major_faults(void **state) {
    struct fixture *f = *state;
    f->facts.faults_per_s = 99;
    examine(f);
    assert_int_equal(f->n, 0);
    f->facts.faults_per_s = 1234;
    const struct finding *found = only(f, "major-faults");
    assert_int_equal(found->severity, FINDING_SLOW);
    assert_non_null(strstr(found->what, "1234 times a second"));
}

static void test_pinning(void **state) {
    struct fixture *f = *state;
    f->facts.pin_refused = true;
    assert_non_null(strstr(only(f, "pinned-memory")->fix, "ulimit -l"));
}

static void test_processor(void **state) {
    struct fixture *f = *state;
    strcpy(f->facts.isa, "ref");
    f->facts.has_vector_isa = false;
    (void)only(f, "instructions");
    f->facts.has_vector_isa = true;
    f->facts.cpu_quota = 1;
    (void)only(f, "cpu-quota");
    f->facts.cpu_quota = f->facts.machine.n_cores;
    f->facts.on_battery = true;
    assert_int_equal(only(f, "power")->severity, FINDING_NOTE);
    strcpy(f->facts.governor, "powersave");
    assert_int_equal(only(f, "power")->severity, FINDING_SLOW);
}

static void test_no_accelerator(void **state) {
    struct fixture *f = *state;
    f->facts.machine.n_devices = 1;
    strcpy(f->facts.no_accelerator, "the driver is too old");
    const struct finding *found = only(f, "accelerator");
    assert_int_equal(found->severity, FINDING_BROKEN);
    assert_non_null(strstr(found->what, "the driver is too old"));
    f->facts.n_nvidia_cards = 0;
    examine(f);
    assert_int_equal(f->n, 0);
}

// Doctor repeats the words in which the planner refuses a model.
static void test_refused(void **state) {
    struct fixture *f = *state;
    err_set(&f->facts.refused, ERR_MEMORY, "Llama needs 41 GiB of RAM, and there are 12 GiB");
    err_fix(&f->facts.refused, "take a smaller quantization");
    const struct finding *found = only(f, "refused");
    assert_int_equal(found->severity, FINDING_BROKEN);
    assert_string_equal(found->what, f->facts.refused.what);
    assert_string_equal(found->fix, "take a smaller quantization");
}

// Costs are those of the memory that the user allows.
static void test_limits(void **state) {
    struct fixture *f = *state;
    char wide[sizeof f->findings->cost];
    f->facts.link.width = 4;
    strcpy(wide, only(f, "link")->cost);
    f->facts.vram_bytes = 2 * GIB;
    assert_string_not_equal(only(f, "link")->cost, wide);
}

static void test_notes(void **state) {
    struct fixture *f = *state;
    f->facts.machine.rates = RATES_NEAREST;
    assert_non_null(strstr(only(f, "calibration")->fix, "tandem calibrate"));
    f->facts.machine.rates = RATES_MEASURED;
    f->facts.machine.n_unused_accelerators = 2;
    assert_non_null(strstr(only(f, "unused")->what, "2 more"));
    f->facts.machine.n_unused_accelerators = 0;
    f->facts.wsl2 = true;
    assert_non_null(strstr(only(f, "wsl2")->what, "Windows owns the GPU"));
}

// All at once fit in the list, worst first.
static void test_everything(void **state) {
    struct fixture *f = *state;
    struct doctor_facts *facts = &f->facts;
    facts->machine.rates = RATES_NEAREST;
    facts->machine.n_unused_accelerators = 1;
    facts->machine.devices[1].budget_bytes /= 2;
    facts->link.width = 1;
    facts->modules.n_channels = 1;
    facts->memory.free_bytes = GIB;
    facts->cpu_quota = 1;
    facts->has_vector_isa = false;
    facts->on_battery = true;
    facts->pin_refused = true;
    facts->wsl2 = true;
    err_set(&facts->refused, ERR_MEMORY, "too large");
    err_fix(&facts->refused, "take a smaller one");
    examine(f);
    assert_int_equal(f->n, 12);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_healthy),        TEST(test_link),         TEST(test_single_channel),
        TEST(test_vram_taken),     TEST(test_memory_limit), TEST(test_pinning),
        TEST(test_file_cache),     TEST(test_major_faults), TEST(test_processor),
        TEST(test_no_accelerator), TEST(test_notes),        TEST(test_refused),
        TEST(test_limits),         TEST(test_everything),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

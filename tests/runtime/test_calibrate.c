/* test_calibrate.c: what calibration measures and makes of times, that it leaves nothing behind,
 * and the file that keeps it.
 *
 * Nothing here depends on how fast the machine is: rates must be there, finite and positive, and a
 * throttled link no faster than its throttle. */
// link: wrap-alloc
// run: alone
#include "runtime/host/calibrate.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/number.h"
#include "runtime/host/calibrate_link.h"
#include "runtime/host/calibration_cache.h"
#include "runtime/host/calibration_scale.h"
#include "runtime/host/devices.h"
#include "runtime/host/rig.h"
#include "runtime/tandem.h"
#include "tests/lib/alloc_fail.h"
#include "tests/lib/slow.h"
#include "tests/sim/sim_device.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define SHORT_NS         UINT64_C(400000000)
#define STEP_NS          UINT64_C(20000000)
#define HOUR_NS          UINT64_C(3600000000000)
#define SMALL            (UINT64_C(8) << 20)
#define THROTTLED        "sim:vram=64M,h2d=200M,d2h=100M,reach=1"
#define BARELY_THROTTLED "sim:vram=64M,h2d=4G,d2h=2G,reach=1"

// A clock that goes on by a step at each reading, and by more where the computer is disturbed.
struct fake_clock {
    uint64_t now_ns, others_ns, own_ns;
    uint64_t step_ns; // four times as long in every other slow_ns of time
    uint64_t slow_ns; // 0: always the same
    double busy_others;
    int32_t n_readings, stop_at; // the program is stopped for an hour before that reading; 0: never
    double own_share;            // of a step in which the program runs
};

struct fixture {
    char folder[64];
    struct fake_clock clock;
    struct meter meter;
    struct engine_options engine;
    struct device *devices[MAX_DEVICES];
    int32_t n_devices;
    struct machine machine;
    struct calibration_options options;
    int32_t n_calls, stop_at; // of progress
    struct calibration result;
};

static bool on_progress(void *context, const char *what, uint64_t done, uint64_t total) {
    struct fixture *f = context;
    assert_string_equal(what, "calibrate");
    assert_true(done <= total);
    return ++f->n_calls != f->stop_at;
}

static uint64_t fake_now(void *context) {
    struct fake_clock *c = context;
    const bool slow = c->slow_ns && c->now_ns / c->slow_ns % 2;
    const uint64_t step_ns = slow ? 4 * c->step_ns : c->step_ns;
    c->others_ns += (uint64_t)(c->busy_others * (double)step_ns);
    c->own_ns += (uint64_t)(c->own_share * (double)step_ns);
    if (++c->n_readings == c->stop_at) c->now_ns += HOUR_NS;
    return c->now_ns += step_ns;
}

static uint64_t fake_others(void *context) { return ((struct fake_clock *)context)->others_ns; }
static uint64_t fake_own(void *context) { return ((struct fake_clock *)context)->own_ns; }

static uint64_t real_now(void *context) { return (void)context, clock_ns(); }
static uint64_t no_others(void *context) { return (void)context, 0; }

// Every reading of the clock takes STEP_NS from here on.
static void fake_clocks(struct fixture *f, uint64_t slow_ns, double busy_others) {
    f->clock = (struct fake_clock){
        .step_ns = STEP_NS, .slow_ns = slow_ns, .busy_others = busy_others, .own_share = 1};
    f->meter = (struct meter){fake_now, fake_others, fake_own, &f->clock};
    f->options.meter = &f->meter;
}

// NULL for the CPU alone.
static void open_on(struct fixture *f, const char *spec) {
    struct err e;
    f->engine.device_spec = spec ? spec : "none";
    if (devices_open(f->devices, &f->n_devices, &f->engine, &e) ||
        devices_describe(&f->machine, f->devices, f->n_devices, &e))
        fail_msg("%s", e.what);
    f->options.cpu = f->engine.cpu;
}

static enum status measure(struct fixture *f, struct err *e) {
    return calibrate(&f->machine, f->devices[1], &f->options, &f->result, e);
}

static void measure_ok(struct fixture *f) {
    struct err e;
    char text[512];
    if (measure(f, &e)) fail_msg("%s", err_text(&e, text, sizeof text));
}

// Nothing is left on a device or mapped, and the devices may still be used.
static void assert_left_alone(const struct fixture *f) {
    struct err e;
    struct buffer buffer;
    assert_int_equal(alloc_fail_mapped_bytes(), 0);
    for (int32_t d = 0; d < f->n_devices; d++) {
        assert_int_equal(device_used_bytes(f->devices[d]), 0);
        assert_false(f->devices[d]->sealed);
        assert_int_equal(buffer_new(f->devices[d], 4096, PURPOSE_SCRATCH, &buffer, &e), OK);
        buffer_free(&buffer);
    }
}

static void assert_rate(double rate) {
    assert_true(isfinite(rate));
    assert_true(rate > 0);
}

static void assert_rates(const struct device_rates *r) {
    for (int t = 0; t < WEIGHT_COUNT; t++)
        for (int c = 0; c < RATE_CLASSES; c++) assert_rate(r->weight_gbps[t][c]);
    for (int k = 0; k < KV_TYPES; k++)
        for (int c = 0; c < RATE_CLASSES; c++) assert_rate(r->attention_gflops[k][c]);
    assert_true(r->cache_bytes ? r->cache_factor > 1 : r->cache_factor == 0);
    assert_true(r->cache_quarter_bytes >= r->cache_bytes);
    assert_true(r->cache_bytes || !r->cache_quarter_bytes);
    assert_rate(r->vector_gbps);
    assert_rate(r->memory_gbps);
    assert_rate(r->op_us);
    assert_rate(r->pass_us);
}

static void assert_measured(const struct machine *m) {
    struct err e;
    assert_int_equal(machine_check(m, &e), OK);
    assert_int_equal(m->rates, RATES_MEASURED);
    assert_non_null(strstr(m->source, "measured on this computer"));
    assert_true(m->n_team_sizes >= 1);
    for (int32_t i = 0; i < m->n_team_sizes; i++) assert_rate(m->team_gbps[i]);
    for (int32_t d = 0; d < m->n_devices; d++) {
        const struct device_rates *r = &m->devices[d].rates;
        assert_rates(r);
        assert_true(d == DEVICE_HOST ? r->launch_us == 0 : r->launch_us > 0);
        assert_true(r->launch_us <= r->op_us);
    }
}

static int setup(void **state) {
    struct fixture *f = mem_alloc(1, sizeof *f);
    if (!f) return -1;
    *state = f;
    snprintf(f->folder, sizeof f->folder, "/tmp/tandem_test_calibrate.XXXXXX");
    if (!mkdtemp(f->folder)) return -1;
    f->engine = (struct engine_options){.drivers = &sim_driver,
                                        .n_drivers = 1,
                                        .cpu = {.isa = ISA_AUTO, .n_threads = 2},
                                        .constraints = {.gpu_layers = GPU_LAYERS_AUTO},
                                        .progress = {on_progress, f}};
    // However little processor time the test gets, the program counts as one that runs.
    f->meter = (struct meter){real_now, no_others, NULL, NULL};
    f->options = (struct calibration_options){.limit_ns = SHORT_NS,
                                              .memory_bytes = SMALL,
                                              .progress = {on_progress, f},
                                              .meter = &f->meter};
    return 0;
}

static int teardown(void **state) {
    struct fixture *f = *state;
    char command[128];
    alloc_fail_at(0);
    devices_close(f->devices);
    snprintf(command, sizeof command, "rm -r %s", f->folder);
    const int code = system(command);
    mem_free(f);
    return code;
}

// ---- What is made of times ----------------------------------------------------------------------

static void test_median(void **state) {
    (void)state;
    double one[] = {7}, odd[] = {9, 1, 300, 2, 8}, even[] = {4, 1, 3, 2};
    assert_true(median_of(one, 1) == 7);
    assert_true(median_of(odd, 5) == 8);
    assert_true(median_of(even, 4) == 3);
}

// 4 GB/s there and 2 GB/s back are 1.024 and 2.048 us for 4096 bytes.
static void test_latency(void **state) {
    (void)state;
    const struct link_rates rates = {.to_gbps = 4, .from_gbps = 2};
    double trips[] = {900, 23.072, 13.072, 33.072, 1};
    assert_true(fabs(link_latency_us(trips, 5, 4096, &rates) - 10) < 1e-9);
    assert_true(link_latency_us(trips, 1, 4096, &rates) == 0.1); // a trip shorter than its bytes
}

// However long noise has made the overheads, something is left.
static void test_overheads(void **state) {
    (void)state;
    const struct rig rig = {.pass_us = 20, .op_us = 2}, noisy = {.pass_us = 500, .op_us = 100};
    assert_true(rig_net_us(&rig, 120, 10) == 8);
    assert_true(rig_net_us(&rig, 24, 1) == 4);
    assert_true(rig_net_us(&noisy, 160, 10) == 1);
}

// ---- Measuring ----------------------------------------------------------------------------------

static void test_cpu(void **state) {
    struct fixture *f = *state;
    open_on(f, NULL);
    measure_ok(f);
    assert_measured(&f->machine);
    assert_int_equal(f->machine.n_team_sizes, 1);
    assert_int_equal(f->machine.team_size[0], 2);
    assert_int_equal(f->result.decode_team, 2);
    assert_true(f->machine.dram_gbps == 0); // nothing shares the memory
    assert_true(f->n_calls > 0);
    assert_left_alone(f);
}

static void test_teams(void **state) {
    struct fixture *f = *state;
    f->engine.cpu.n_threads = 0;
    open_on(f, NULL);
    measure_ok(f);
    const struct machine *m = &f->machine;
    assert_int_equal(m->team_size[0], 1);
    assert_int_equal(m->team_size[m->n_team_sizes - 1], f->devices[0]->info.n_lanes);
    assert_int_equal(f->result.decode_team, machine_decode_team(m));
}

static void test_throttled_link(void **state) {
    struct fixture *f = *state;
    f->options.limit_ns = 3 * SHORT_NS;
    open_on(f, THROTTLED);
    measure_ok(f);
    assert_measured(&f->machine);
    const struct link_rates *link = &f->machine.devices[1].link;
    const double to = 200 * 1048576e-9, from = 100 * 1048576e-9;
    assert_rate(link->latency_us);
    assert_rate(link->to_gbps);
    assert_rate(link->from_gbps);
    assert_rate(link->staged_to_gbps);
    // Other programs may slow copies down, never speed them up.
    assert_true(link->to_gbps <= 1.1 * to);
    assert_true(link->staged_to_gbps <= link->to_gbps);
    assert_true(link->from_gbps <= 1.1 * from);
    assert_rate(f->machine.dram_gbps);
    assert_int_equal(f->result.blocks[0].size_bytes, 4096);
    assert_rate(f->result.blocks[0].to_gbps);
    assert_left_alone(f);
}

// The clock alone decides what is disturbed: how the visits differ, and what other programs take.
static void test_noise(void **state) {
    struct fixture *f = *state;
    char reason[120];
    f->options.limit_ns = STEP_NS;
    open_on(f, NULL);
    fake_clocks(f, 0, 1.9);
    measure_ok(f);
    assert_true(calibration_is_noisy(&f->result));
    calibration_reason(&f->result, reason, sizeof reason);
    assert_string_equal(reason, "other programs kept 1.9 processors busy");
    assert_non_null(strstr(f->machine.source, "noisy: other programs kept 1.9"));
    if (SLOW) return; // something is computed for each step of the clock
    f->options.limit_ns = 9000 * STEP_NS;
    fake_clocks(f, 0, 0.1);
    measure_ok(f);
    assert_true(f->result.spread < 0.01);
    assert_true(fabs(f->result.busy_others - 0.1) < 0.01);
    assert_false(calibration_is_noisy(&f->result));
    assert_null(strstr(f->machine.source, "noisy"));
    fake_clocks(f, 1000 * STEP_NS, 0);
    measure_ok(f);
    assert_true(f->result.spread > 0.25);
    assert_true(calibration_is_noisy(&f->result));
    assert_non_null(strstr(f->machine.source, "noisy: the speeds varied by"));
}

// Opens a rig on the last device that is open. *pool is memory for a rig on the CPU.
static void open_rig(struct fixture *f, struct rig *rig, void **pool) {
    struct err e;
    struct device *device = f->devices[f->n_devices - 1];
    *pool = device->info.is_host ? mem_map_pages(SMALL) : NULL;
    if (*pool) rig_fill(*pool, SMALL);
    if (rig_open(rig, device, *pool, SMALL, 512, &e)) fail_msg("%s", e.what);
}

static void close_rig(struct rig *rig, void *pool) {
    rig_close(rig);
    if (pool) mem_unmap_pages(pool, SMALL);
}

// A watch that begins now, with time for 1,000 readings; the program is stopped before reading at.
static void start_watch(struct fixture *f, struct stopwatch *watch, int32_t at) {
    fake_clocks(f, 0, 0);
    f->clock.stop_at = at;
    *watch = (struct stopwatch){.limit_ns = 1000 * STEP_NS, .meter = &f->meter};
    watch->start_ns = stopwatch_now(watch);
    stopwatch_part(watch, 1);
}

static void assert_alike(double a, double b) {
    if (!(a <= 1.01 * b && b <= 1.01 * a)) fail_msg("%g and %g", a, b);
}

// A stop of an hour, wherever it comes in a measurement, neither changes the figure nor takes time
// from the next ones.
static void test_stopped_runs(void **state) {
    static const char *const devices[] = {NULL, THROTTLED};
    struct fixture *f = *state;
    struct err e;
    struct rig rig;
    struct stopwatch watch;
    void *pool;
    for (int d = 0; d < 2; d++) {
        double us, quiet_us = 0;
        int32_t n = 2;
        open_on(f, devices[d]);
        open_rig(f, &rig, &pool);
        const struct job job = rig_matmul(&rig, WEIGHT_Q4_0, 1, 0);
        for (int32_t at = 0; at < n; at++) {
            start_watch(f, &watch, at);
            assert_int_equal(rig_time(&rig, &watch, &job, &us, &e), OK);
            if (at == 0) quiet_us = us, n = f->clock.n_readings;
            assert_alike(us, quiet_us);
            assert_true(stopwatch_fits(&watch, 900 * (double)STEP_NS * 1e-3));
        }
        assert_true(n > 10);
        close_rig(&rig, pool);
        devices_close(f->devices);
    }
}

// The CPU waits after each call as long as that took, and no wait counts.
static void test_rests(void **state) {
    enum { PARTS = 5 };
    struct fixture *f = *state;
    struct err e;
    struct rig rig;
    struct stopwatch watch;
    void *pool;
    double us, through_us;
    const double step_us = (double)STEP_NS * 1e-3;
    open_on(f, NULL);
    open_rig(f, &rig, &pool);
    struct job job = rig_matmul(&rig, WEIGHT_Q4_0, 1, 0);
    job.n_parts = PARTS;
    start_watch(f, &watch, 0);
    assert_int_equal(rig_pass(&rig, &watch, &job, &through_us, &e), OK);
    job.rests = true;
    rig.pass_us = step_us / 2;
    const uint64_t start_ns = stopwatch_now(&watch);
    assert_int_equal(rig_pass(&rig, &watch, &job, &us, &e), OK);
    const double all_us = (double)(stopwatch_now(&watch) - start_ns) * 1e-3;
    assert_true(through_us < 2 * step_us); // a reading before all calls and one after them
    assert_true(fabs(us - (PARTS + 1) * step_us / 2) < 1);
    assert_true(all_us > 3 * PARTS * step_us); // a reading before and after each call, and a wait
    close_rig(&rig, pool);
}

static void test_stopped_copies(void **state) {
    struct fixture *f = *state;
    struct err e;
    struct rig rig;
    struct stopwatch watch;
    struct link_bench bench;
    struct link_rates rates = {0}, quiet = {0};
    void *pool;
    int32_t n = 2;
    open_on(f, BARELY_THROTTLED); // by the faked clock it is as slow
    open_rig(f, &rig, &pool);
    for (int32_t at = 0; at < n; at += 1 + n / 20) {
        struct link_block blocks[LINK_BLOCKS] = {{0}};
        start_watch(f, &watch, at);
        assert_int_equal(link_open(&bench, &rig, &watch, &e), OK);
        assert_int_equal(link_measure(&bench, &rates, blocks, &e), OK);
        link_close(&bench);
        if (at == 0) quiet = rates, n = f->clock.n_readings;
        assert_alike(rates.to_gbps, quiet.to_gbps);
        assert_alike(rates.from_gbps, quiet.from_gbps);
        assert_alike(rates.staged_to_gbps, quiet.staged_to_gbps);
        assert_alike(rates.latency_us, quiet.latency_us);
    }
    assert_true(n > 20);
    close_rig(&rig, pool);
}

// A program that hardly gets any processor time gives an error and no figures.
static void test_starved(void **state) {
    struct fixture *f = *state;
    struct err e;
    open_on(f, NULL);
    const struct machine before = f->machine;
    f->options.limit_ns = 9000 * STEP_NS;
    fake_clocks(f, 0, 0);
    f->clock.step_ns = 20 * STEP_NS;
    f->clock.own_share = 0.02;
    assert_int_equal(measure(f, &e), ERR_LIMIT);
    assert_non_null(strstr(e.what, "too little processor time"));
    assert_memory_equal(&f->machine, &before, sizeof before);
    assert_left_alone(f);
}

// A noisy measurement never takes the place of a better one.
static void test_better_stays(void **state) {
    (void)state;
    const struct calibration quiet = {.spread = 0.1}, busy = {.busy_others = 1.5},
                             busier = {.spread = 0.1, .busy_others = 2};
    assert_true(calibration_replaces(&quiet, &quiet));
    assert_true(calibration_replaces(&quiet, &busy));
    assert_false(calibration_replaces(&busy, &quiet));
    assert_true(calibration_replaces(&busy, &busier));
    assert_false(calibration_replaces(&busier, &busy));
}

// Without any time every kind of figure is measured once and the rest is scaled, which is said.
static void test_no_time(void **state) {
    struct fixture *f = *state;
    f->options.limit_ns = 1;
    open_on(f, THROTTLED);
    measure_ok(f);
    assert_measured(&f->machine);
    assert_non_null(strstr(f->machine.source, "scaled"));
    assert_int_equal(f->result.measured[0], 0);
    assert_int_equal(f->result.measured[1], 0);
}

static void test_too_small(void **state) {
    struct fixture *f = *state;
    struct err e;
    open_on(f, "sim:vram=1M");
    assert_int_equal(measure(f, &e), ERR_MEMORY);
    assert_left_alone(f);
}

// Stopped at any point: nothing stays allocated, and the machine is as it was.
static void test_cancel(void **state) {
    struct fixture *f = *state;
    struct err e;
    open_on(f, THROTTLED);
    const struct machine before = f->machine;
    f->options.limit_ns = 1;
    measure_ok(f);
    const int32_t n_steps = f->n_calls;
    f->machine = before;
    for (int32_t i = 1; i <= n_steps; i += i < 8 ? 1 : 5) {
        f->n_calls = 0;
        f->stop_at = i;
        assert_int_equal(measure(f, &e), ERR_CANCELLED);
        assert_memory_equal(&f->machine, &before, sizeof before);
        assert_left_alone(f);
    }
}

static void test_faults(void **state) {
    static const char *const specs[] = {"sim:vram=64M,fail=copy:1", "sim:vram=64M,fail=copy:12",
                                        "sim:vram=64M,fail=op:1", "sim:vram=64M,fail=op:30",
                                        "sim:vram=64M,fail=lost:20"};
    struct fixture *f = *state;
    struct err e;
    f->options.limit_ns = 1;
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++) {
        open_on(f, specs[i]);
        const struct machine before = f->machine;
        const enum status status = measure(f, &e);
        if (status != ERR_DEVICE) fail_msg("%s: status %d", specs[i], (int)status);
        assert_memory_equal(&f->machine, &before, sizeof before);
        assert_int_equal(device_used_bytes(f->devices[1]), 0);
        devices_close(f->devices);
    }
}

static void test_refused_allocations(void **state) {
    struct fixture *f = *state;
    struct err e;
    open_on(f, THROTTLED);
    const struct machine before = f->machine;
    f->options.limit_ns = 1;
    alloc_fail_at(0);
    measure_ok(f);
    const int64_t n = alloc_fail_count();
    assert_true(n > 10);
    f->machine = before;
    for (int64_t i = 1; i <= n; i++) {
        alloc_fail_at(i);
        const enum status status = measure(f, &e);
        if (!alloc_fail_happened()) break;
        assert_int_equal(status, ERR_MEMORY);
        alloc_fail_at(0);
        assert_memory_equal(&f->machine, &before, sizeof before);
        assert_left_alone(f);
    }
}

// ---- The file -----------------------------------------------------------------------------------

// Rates of every size, as a calibration leaves them.
static void invent_rates(struct machine *m) {
    m->rates = RATES_MEASURED;
    snprintf(m->source, sizeof m->source, "measured on this computer in 1.0 s");
    m->dram_gbps = 1.0 / 3;
    m->n_team_sizes = 2;
    for (int i = 0; i < 2; i++) m->team_size[i] = i + 1, m->team_gbps[i] = 10.1 * (i + 1);
    for (int32_t d = 0; d < m->n_devices; d++) {
        struct device_rates *r = &m->devices[d].rates;
        for (int t = 0; t < WEIGHT_COUNT; t++)
            for (int c = 0; c < RATE_CLASSES; c++)
                r->weight_gbps[t][c] = 100.0 / (3 + t + 7 * c + d);
        for (int k = 0; k < KV_TYPES; k++)
            for (int c = 0; c < RATE_CLASSES; c++) r->attention_gflops[k][c] = (1 + k) / 3.0 + c;
        r->cache_bytes = 1 << 20;
        r->cache_quarter_bytes = 3 << 20;
        r->cache_factor = 7.0 / 3;
        r->vector_gbps = 1.1;
        r->memory_gbps = 2.2;
        r->op_us = 0.3;
        r->pass_us = 4.4;
        r->launch_us = d ? 0.2 : 0;
        r->start_us = 3.3;
        if (d > 0) m->devices[d].link = (struct link_rates){1.1, 2.2, 0.7, 5.5, 0};
    }
}

static void read_log(FILE *log, char *out, size_t size) {
    rewind(log);
    const size_t length = fread(out, 1, size - 1, log);
    out[length] = 0;
}

static void test_round_trip(void **state) {
    struct fixture *f = *state;
    struct err e;
    struct calibration notes;
    char date[16];
    struct calibration_key key;
    char path[CALIBRATION_PATH], deep[96];
    open_on(f, THROTTLED);
    struct machine read = f->machine;
    invent_rates(&f->machine);
    f->result = (struct calibration){.measured = {5, 1},
                                     .decode_team = 2,
                                     .seconds = 1.0 / 3,
                                     .spread = 0.1,
                                     .busy_others = 1e-3,
                                     .made_at = 1795435200}; // noon in Greenwich
    calibration_key_of(&key, f->devices, f->n_devices, &f->engine);
    snprintf(deep, sizeof deep, "%s/a/b", f->folder);
    assert_false(calibration_load(&read, deep, &key, NULL));
    assert_int_equal(calibration_store(&f->machine, &f->result, deep, &key, &e), OK);
    assert_int_equal(calibration_store(&f->machine, &f->result, deep, &key, &e), OK); // once more
    assert_true(calibration_path(path, deep, &key));
    assert_int_equal(access(path, R_OK), 0);
    assert_true(calibration_load(&read, deep, &key, NULL));
    for (int32_t d = 0; d < 2; d++) {
        assert_memory_equal(&read.devices[d].rates, &f->machine.devices[d].rates,
                            sizeof read.devices[d].rates);
        assert_memory_equal(&read.devices[d].link, &f->machine.devices[d].link,
                            sizeof read.devices[d].link);
    }
    assert_true(read.dram_gbps == f->machine.dram_gbps);
    assert_int_equal(machine_decode_team(&read), 2);
    assert_string_equal(read.source, f->machine.source);
    assert_int_equal(read.rates, RATES_MEASURED);
    assert_false(calibration_load(&read, NULL, &key, NULL));
    assert_true(calibration_load_notes(&notes, deep, &key));
    assert_memory_equal(&notes, &f->result, sizeof notes);
    assert_string_equal(calibration_date(&notes, date, sizeof date), "2026-11-23");
    assert_false(calibration_load_notes(&notes, f->folder, &key));
    assert_true(notes.spread == 0);
}

// Rates near that of memory go as the teams read, others as threads and instructions compute.
static void test_scale(void **state) {
    (void)state;
    struct machine m = {.n_devices = 1, .n_cores = 8, .n_team_sizes = 3};
    const int32_t sizes[] = {1, 2, 4};
    const double gbps[] = {10, 20, 25};
    struct device_rates *r = &m.devices[0].rates;
    memcpy(m.team_size, sizes, sizeof sizes);
    memcpy(m.team_gbps, gbps, sizeof gbps);
    r->memory_gbps = 25;
    r->vector_gbps = 50;
    r->weight_gbps[WEIGHT_Q4_0][0] = 24; // bound by memory
    r->weight_gbps[WEIGHT_Q2_K][0] = 8;
    r->weight_gbps[WEIGHT_Q4_0][5] = 4;
    r->attention_gflops[KV_F16][0] = 40;
    r->attention_gflops[KV_F16][1] = 80;
    const struct cpu_setting measured = {4, 8, ISA_AVX512};
    const struct machine before = m;
    calibration_scale(&m, &measured, &(struct cpu_setting){1, 2, ISA_AVX512});
    assert_true(fabs(r->weight_gbps[WEIGHT_Q4_0][0] - 24 * 10.0 / 25) < 1e-9);
    assert_true(fabs(r->weight_gbps[WEIGHT_Q2_K][0] - 2) < 1e-9);
    assert_true(fabs(r->weight_gbps[WEIGHT_Q4_0][5] - 1) < 1e-9);
    assert_true(fabs(r->attention_gflops[KV_F16][0] - 10) < 1e-9);
    assert_true(fabs(r->attention_gflops[KV_F16][1] - 20) < 1e-9);
    assert_true(fabs(r->memory_gbps - 10) < 1e-9);
    assert_non_null(strstr(m.source, "scaled to 1 and 2 threads, avx512"));
    m = before;
    // More threads than cores compute no faster; more than the largest team read no faster.
    calibration_scale(&m, &measured, &(struct cpu_setting){16, 16, ISA_AVX2});
    assert_true(fabs(r->weight_gbps[WEIGHT_Q4_0][0] - 24) < 1e-9);
    assert_true(fabs(r->weight_gbps[WEIGHT_Q2_K][0] - 16 / 1.85) < 1e-9);
    assert_true(fabs(r->weight_gbps[WEIGHT_Q4_0][5] - 4 / 1.85) < 1e-9);
    assert_true(r->vector_gbps <= 50);
}

// A calibration for the default threads serves others, scaled; one for those threads is better.
static void test_other_threads(void **state) {
    struct fixture *f = *state;
    struct err e;
    struct calibration_key key, one;
    f->engine.cpu = (struct cpu_options){.isa = ISA_AUTO};
    open_on(f, NULL);
    struct machine read = f->machine;
    invent_rates(&f->machine);
    f->result.decode_team = 2;
    calibration_key_of(&key, f->devices, 1, &f->engine);
    assert_string_equal(key.text, key.defaults);
    assert_int_equal(calibration_store(&f->machine, &f->result, f->folder, &key, &e), OK);
    f->engine.cpu.n_threads = 1;
    calibration_key_of(&one, f->devices, 1, &f->engine);
    assert_string_not_equal(one.text, key.text);
    assert_string_equal(one.defaults, key.text);
    assert_true(calibration_load(&read, f->folder, &one, NULL));
    assert_non_null(strstr(read.source, "scaled to 1 and 1 threads"));
    assert_true(fabs(read.devices[0].rates.memory_gbps -
                     f->machine.devices[0].rates.memory_gbps / 2) < 1e-9);
    assert_int_equal(calibration_store(&f->machine, &f->result, f->folder, &one, &e), OK);
    assert_true(calibration_load(&read, f->folder, &one, NULL));
    assert_null(strstr(read.source, "scaled"));
    assert_int_equal(calibration_forget(f->folder, &e), 2);
    assert_false(calibration_load(&read, f->folder, &one, NULL));
    assert_int_equal(calibration_forget(f->folder, &e), 0);
    assert_int_equal(calibration_forget("/nobody/is/here", &e), 0);
    assert_int_equal(calibration_forget("/dev/null", &e), -1);
}

// Two busy programs beside a measurement, by the faked clock: it says so, and the one that was made
// alone stays. Without an older one, or after one beside three, it is kept.
static void test_noisy_leaves_the_better(void **state) {
    struct fixture *f = *state;
    struct err e;
    struct calibration older;
    struct calibration_key key;
    static const double busy[] = {0, 3, 2, 0, 2};
    static const bool stays[] = {false, true, true, false, true};
    const char *notes = f->folder;
    f->options.limit_ns = STEP_NS; // one visit, so nothing differs
    open_on(f, NULL);
    calibration_key_of(&key, f->devices, 1, &f->engine);
    for (int i = 0; i < 5; i++) {
        fake_clocks(f, 0, busy[i]);
        measure_ok(f);
        assert_int_equal(calibration_is_noisy(&f->result), busy[i] > 0);
        assert_int_equal(strstr(f->machine.source, "noisy: other programs") != NULL, busy[i] > 0);
        assert_int_equal(calibration_is_worse(&f->result, notes, &key, &older), stays[i]);
        if (!stays[i])
            assert_int_equal(calibration_store(&f->machine, &f->result, notes, &key, &e), OK);
    }
    assert_int_equal(calibration_forget(f->folder, &e), 1);
    for (int i = 1; i < 4; i++) { // three, then two, then none busy
        fake_clocks(f, 0, busy[i]);
        measure_ok(f);
        assert_false(calibration_is_worse(&f->result, notes, &key, &older));
        assert_int_equal(calibration_store(&f->machine, &f->result, notes, &key, &e), OK);
    }
}

// Whatever the rates depend on makes another file.
static void test_keys(void **state) {
    struct fixture *f = *state;
    struct calibration_key keys[5];
    open_on(f, THROTTLED);
    calibration_key_of(&keys[0], f->devices, 2, &f->engine);
    calibration_key_of(&keys[1], f->devices, 1, &f->engine);
    f->engine.cpu.n_threads_batch = 1;
    calibration_key_of(&keys[2], f->devices, 2, &f->engine);
    snprintf(f->devices[1]->info.driver, sizeof f->devices[1]->info.driver, "12.4");
    calibration_key_of(&keys[3], f->devices, 2, &f->engine);
    f->devices[1]->info.capacity_bytes++;
    calibration_key_of(&keys[4], f->devices, 2, &f->engine);
    for (int i = 0; i < 5; i++)
        for (int k = 0; k < i; k++) {
            char a[CALIBRATION_PATH], b[CALIBRATION_PATH];
            assert_true(calibration_path(a, f->folder, &keys[i]));
            assert_true(calibration_path(b, f->folder, &keys[k]));
            assert_string_not_equal(a, b);
        }
    assert_non_null(strstr(keys[0].text, TANDEM_VERSION));
    char long_path[CALIBRATION_PATH + 1], out[CALIBRATION_PATH];
    memset(long_path, 'a', CALIBRATION_PATH);
    long_path[CALIBRATION_PATH] = 0;
    assert_false(calibration_path(out, long_path, &keys[0]));
}

static void write_text(const char *path, const char *text, size_t length) {
    FILE *out = fopen(path, "w");
    assert_non_null(out);
    assert_int_equal(fwrite(text, 1, length, out), length);
    assert_int_equal(fclose(out), 0);
}

// The file is there but cannot be used: told with its name, and nothing is taken from it.
static void assert_ignored(struct fixture *f, const struct calibration_key *key, const char *path) {
    char text[2048];
    FILE *out = tmpfile();
    assert_non_null(out);
    const struct log log = {.out = out, .level = LOG_WARN};
    const struct machine before = f->machine;
    assert_false(calibration_load(&f->machine, f->folder, key, &log));
    assert_memory_equal(&f->machine, &before, sizeof before);
    read_log(out, text, sizeof text);
    assert_non_null(strstr(text, path));
    assert_non_null(strstr(text, "not used"));
    fclose(out);
}

static void test_damaged(void **state) {
    struct fixture *f = *state;
    struct err e;
    struct calibration_key key, other;
    char path[CALIBRATION_PATH], text[1 << 16];
    open_on(f, THROTTLED);
    const struct machine plain = f->machine;
    invent_rates(&f->machine);
    calibration_key_of(&key, f->devices, 2, &f->engine);
    assert_int_equal(calibration_store(&f->machine, &f->result, f->folder, &key, &e), OK);
    f->machine = plain;
    assert_true(calibration_path(path, f->folder, &key));
    FILE *in = fopen(path, "r");
    assert_non_null(in);
    const size_t length = fread(text, 1, sizeof text - 1, in);
    fclose(in);
    text[length] = 0;
    for (size_t cut = 0; cut + 2 < length; cut += 1 + length / 40) {
        write_text(path, text, cut);
        assert_ignored(f, &key, path);
    }
    write_text(path, "{\"key\": 5}", 10);
    assert_ignored(f, &key, path);
    char *number = strstr(text, "\"memory_gbps\"");
    assert_non_null(number);
    memcpy(strchr(number, ':') + 1, "-9", 2); // a negative rate
    write_text(path, text, length);
    assert_ignored(f, &key, path);
    // A file of another computer under this one's name is refused.
    char other_path[CALIBRATION_PATH];
    calibration_key_of(&other, f->devices, 1, &f->engine);
    invent_rates(&f->machine);
    assert_int_equal(calibration_store(&f->machine, &f->result, f->folder, &other, &e), OK);
    f->machine = plain;
    assert_true(calibration_path(other_path, f->folder, &other));
    assert_int_equal(rename(other_path, path), 0);
    assert_ignored(f, &key, path);
}

static void test_no_folder(void **state) {
    struct fixture *f = *state;
    struct err e;
    struct calibration_key key;
    char path[128];
    open_on(f, NULL);
    invent_rates(&f->machine);
    calibration_key_of(&key, f->devices, 1, &f->engine);
    snprintf(path, sizeof path, "%s/file", f->folder);
    write_text(path, "", 0);
    snprintf(path, sizeof path, "%s/file/below", f->folder);
    assert_int_equal(calibration_store(&f->machine, &f->result, path, &key, &e), ERR_FILE);
}

// ---- Who uses it --------------------------------------------------------------------------------

static void test_devices_take_it(void **state) {
    struct fixture *f = *state;
    struct err e;
    struct calibration_key key;
    struct machine m;
    f->engine.cpu.n_threads = 0;
    open_on(f, THROTTLED);
    const int32_t n_lanes = f->devices[0]->info.n_lanes;
    assert_int_equal(devices_machine(&m, f->devices, 2, &f->engine, &e), OK);
    assert_int_equal(m.rates, RATES_NEAREST);
    assert_true(m.rates_name[0] != 0);
    invent_rates(&f->machine);
    f->machine.team_gbps[1] = f->machine.team_gbps[0]; // one thread is enough for one token
    calibration_key_of(&key, f->devices, 2, &f->engine);
    assert_int_equal(calibration_store(&f->machine, &f->result, f->folder, &key, &e), OK);
    f->engine.cache_path = f->folder;
    f->engine.calibrate = true; // not needed any more
    devices_close(f->devices);
    open_on(f, THROTTLED);
    assert_int_equal(f->n_calls, 0);
    assert_int_equal(f->devices[0]->info.n_lanes, n_lanes); // of the larger team, for prompts
    assert_int_equal(devices_machine(&m, f->devices, 2, &f->engine, &e), OK);
    assert_int_equal(m.rates, RATES_MEASURED);
    assert_true(m.devices[1].rates.vector_gbps == 1.1);
}

// The rates of the CPU without a calibration, for those threads of decode and prefill.
static struct device_rates rates_for(struct fixture *f, int32_t decode, int32_t prefill) {
    struct machine m;
    struct err e;
    f->engine.cpu =
        (struct cpu_options){.isa = ISA_AUTO, .n_threads = decode, .n_threads_batch = prefill};
    open_on(f, NULL);
    assert_int_equal(devices_machine(&m, f->devices, 1, &f->engine, &e), OK);
    assert_int_equal(m.rates, RATES_NEAREST);
    devices_close(f->devices);
    return m.devices[DEVICE_HOST].rates;
}

// The nearest machine's rates are those of all performance cores, and go as the threads asked for.
static void test_nearest_for_threads(void **state) {
    struct fixture *f = *state;
    enum { MANY = RATE_CLASSES - 1 };
    const struct device_rates all = rates_for(f, 0, 0);
    const int32_t n_fast = machine_performance_cores(&f->machine), n_cores = f->machine.n_cores;
    const int32_t n_threads[] = {1, n_fast, 2 * n_cores};
    for (size_t i = 0; i < sizeof n_threads / sizeof *n_threads; i++) {
        const struct device_rates r = rates_for(f, n_threads[i], 0);
        const double factor = (double)min_i32(n_threads[i], n_cores) / n_fast;
        assert_alike(r.attention_gflops[KV_F16][0], factor * all.attention_gflops[KV_F16][0]);
        assert_alike(r.attention_gflops[KV_F16][MANY], factor * all.attention_gflops[KV_F16][MANY]);
        assert_true(n_threads[i] != 1 || n_fast == 1 || r.memory_gbps < all.memory_gbps);
    }
    const struct device_rates r = rates_for(f, 1, n_fast);
    assert_alike(r.attention_gflops[KV_F16][0], all.attention_gflops[KV_F16][0] / n_fast);
    assert_alike(r.attention_gflops[KV_F16][MANY], all.attention_gflops[KV_F16][MANY]);
}

// Measuring begins unasked where it is allowed and of use, and the user can stop it.
static void test_opening_measures(void **state) {
    struct fixture *f = *state;
    struct err e;
    f->stop_at = 1;
    f->engine.cache_path = f->folder;
    f->engine.device_spec = THROTTLED;
    f->engine.calibrate = true;
    // Whoever wants no measurement is asked once, is told that it is over, and goes on without.
    assert_int_equal(devices_open(f->devices, &f->n_devices, &f->engine, &e), OK);
    devices_close(f->devices);
    assert_int_equal(f->n_calls, 2);
    f->n_calls = 0;
    f->engine.constraints.gpu_layers = 3; // nothing to choose
    open_on(f, THROTTLED);
    devices_close(f->devices);
    f->engine.constraints.gpu_layers = GPU_LAYERS_AUTO;
    f->engine.calibrate = false;
    open_on(f, THROTTLED);
    devices_close(f->devices);
    assert_int_equal(f->n_calls, 0);
    f->engine.calibrate = true;
    open_on(f, NULL); // the CPU alone
    assert_int_equal(f->n_calls, 2);
}

// Rates that no file keeps are used all the same, and measured once in a process.
static void test_not_kept(void **state) {
    struct fixture *f = *state;
    struct err e;
    struct machine m, *measured = mem_alloc(1, sizeof *measured);
    char text[2048];
    FILE *out = tmpfile();
    assert_non_null(measured);
    assert_non_null(out);
    const struct log log = {.out = out, .level = LOG_WARN};
    f->engine.cache_path = "/dev/null/x";
    f->engine.calibrate = true;
    f->engine.calibrate_limit_ns = 1;
    f->engine.measured = measured;
    f->engine.log = &log;
    open_on(f, NULL);
    const int32_t n_calls = f->n_calls;
    assert_true(n_calls > 2);
    assert_int_equal(devices_machine(&m, f->devices, 1, &f->engine, &e), OK);
    assert_int_equal(m.rates, RATES_MEASURED);
    devices_close(f->devices);
    read_log(out, text, sizeof text);
    assert_non_null(strstr(text, "for this run only: /dev/null/x"));
    open_on(f, NULL); // not measured again
    assert_int_equal(f->n_calls, n_calls);
    devices_close(f->devices);
    f->engine.cpu.n_threads = 1; // these are other rates
    f->engine.calibrate = false;
    open_on(f, NULL);
    assert_int_equal(devices_machine(&m, f->devices, 1, &f->engine, &e), OK);
    assert_int_equal(m.rates, RATES_NEAREST);
    mem_free(measured);
    fclose(out);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

// RAM is left for the program itself, but no memory of an accelerator, whose context is open.
static void test_room_for_the_program(void **state) {
    struct fixture *f = *state;
    open_on(f, "sim:vram=64M");
    const struct machine_device *cpu = &f->machine.devices[0], *gpu = &f->machine.devices[1];
    assert_int_equal(cpu->reserve_bytes, UINT64_C(32) << 20);
    assert_int_equal(cpu->budget_bytes + cpu->reserve_bytes, f->devices[0]->info.free_bytes);
    assert_int_equal(gpu->reserve_bytes, 0);
    assert_int_equal(gpu->budget_bytes, f->devices[1]->info.free_bytes);
}

// Small matrices hide what many lanes reach: 82 tokens/s were planned of 193 with 16.
static void test_sizes(void **state) {
    (void)state;
    static const int32_t expected[][2] = {{1, 1024}, {2, 1024},  {3, 2048},
                                          {8, 2048}, {16, 4096}, {512, 4096}};
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++)
        assert_int_equal(rig_size_for_lanes(expected[i][0]), expected[i][1]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_median),
        cmocka_unit_test(test_latency),
        cmocka_unit_test(test_overheads),
        TEST(test_room_for_the_program),
        TEST(test_cpu),
        TEST(test_teams),
        TEST(test_throttled_link),
        TEST(test_noise),
        TEST(test_stopped_runs),
        TEST(test_rests),
        TEST(test_stopped_copies),
        TEST(test_starved),
        cmocka_unit_test(test_better_stays),
        TEST(test_no_time),
        TEST(test_too_small),
        TEST(test_cancel),
        TEST(test_faults),
        TEST(test_refused_allocations),
        TEST(test_round_trip),
        cmocka_unit_test(test_scale),
        TEST(test_other_threads),
        TEST(test_noisy_leaves_the_better),
        TEST(test_keys),
        TEST(test_damaged),
        TEST(test_no_folder),
        TEST(test_devices_take_it),
        TEST(test_nearest_for_threads),
        TEST(test_opening_measures),
        TEST(test_not_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* test_device.c: the promises of device.h, held by the CPU and by the simulated accelerator, and
 * what is special to each: teams of threads here, an address space and faults on demand there. */
// link: wrap-alloc
#include "base/affinity.h"
#include "base/clock.h"
#include "base/mem.h"
#include "kernels/cpu/cores_hwloc.h"
#include "kernels/cpu/cpu.h"
#include "kernels/device.h"
#include "tests/alloc_fail.h"
#include "tests/sim_device.h"
#include "tests/sim_spec.h"

#include <inttypes.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define MIB (UINT64_C(1) << 20)

// ---- Ways to open things -----------------------------------------------------------------------

static struct device *open_sim(const char *spec) {
    struct device *d = NULL;
    struct err e = {0};
    struct cpu_options options = {.isa = ISA_REF};
    if (sim_driver.open(&d, spec, &options, NULL, &e) != OK) fail_msg("%s", e.what);
    return d;
}

static struct device *open_cpu(int32_t n_threads, int32_t n_threads_batch) {
    struct device *d = NULL;
    struct err e = {0};
    struct cpu_options options = {ISA_REF, n_threads, n_threads_batch, false};
    if (device_open_cpu(&d, &options, NULL, &e) != OK) fail_msg("%s", e.what);
    return d;
}

// The tests of the interface run on each of these.
enum { N_KINDS = 4 };
static struct device *open_kind(int kind) {
    static const int32_t threads[N_KINDS] = {1, 2, 4, 0};
    return kind < N_KINDS - 1 ? open_cpu(threads[kind], 3) : open_sim("vram=64M");
}

static struct stream *new_stream(struct device *d, enum stream_kind kind) {
    struct stream *s = NULL;
    struct err e = {0};
    if (stream_new(d, kind, &s, &e) != OK) fail_msg("%s", e.what);
    return s;
}

static struct event new_event(struct device *d) {
    struct event event = {0};
    struct err e = {0};
    if (event_new(d, &event, &e) != OK) fail_msg("%s", e.what);
    return event;
}

static struct buffer new_buffer(struct device *d, uint64_t size_bytes, enum purpose purpose) {
    struct buffer b = {0};
    struct err e = {0};
    if (buffer_new(d, size_bytes, purpose, &b, &e) != OK) fail_msg("%s", e.what);
    return b;
}

static void wait_ok(struct stream *s) {
    struct err e = {0};
    if (stream_wait(s, &e) != OK) fail_msg("%s", e.what);
}

static void wait_fails(struct stream *s, const char *what) {
    struct err e = {0};
    assert_int_equal(stream_wait(s, &e), ERR_DEVICE);
    if (!strstr(e.what, what)) fail_msg("\"%s\" does not say \"%s\"", e.what, what);
}

// out = gate * sigmoid(gate) * up over count floats: the simplest op that computes.
static void swiglu(struct stream *s, void *out, void *gate, void *up, int64_t count) {
    s->device->ops->swiglu(s, &(struct swiglu_args){out, gate, up, count});
}

// ---- What every device promises ----------------------------------------------------------------

static void test_books(void **state) {
    (void)state;
    for (int kind = 0; kind < N_KINDS; kind++) {
        struct device *d = open_kind(kind);
        struct err e;
        struct buffer weights = new_buffer(d, 3 * MIB + 1, PURPOSE_WEIGHTS);
        struct buffer kv = new_buffer(d, MIB, PURPOSE_KV);
        struct buffer none = new_buffer(d, 0, PURPOSE_SCRATCH);
        assert_int_equal((uintptr_t)weights.base % d->info.align_bytes, 0);
        assert_null(none.base);
        assert_int_equal(d->used_bytes[PURPOSE_WEIGHTS], 3 * MIB + 1);
        assert_int_equal(device_used_bytes(d), 4 * MIB + 1);
        buffer_free(&kv);
        assert_null(kv.device);
        buffer_free(&kv);
        assert_int_equal(d->used_bytes[PURPOSE_KV], 0);
        assert_int_equal(d->peak_bytes, 4 * MIB + 1);
        device_seal(d);
        struct stream *s;
        struct event event;
        assert_int_equal(buffer_new(d, 1, PURPOSE_KV, &kv, &e), ERR_MEMORY);
        assert_int_equal(stream_new(d, STREAM_COMPUTE, &s, &e), ERR_DEVICE);
        assert_int_equal(event_new(d, &event, &e), ERR_DEVICE);
        buffer_free(&weights);
        buffer_free(&none);
        device_close(d);
    }
    device_close(NULL);
    stream_free(NULL);
}

static void test_mapped_memory_counts(void **state) {
    (void)state;
    static char file[4096];
    struct device *d = open_cpu(1, 1);
    struct buffer b;
    buffer_map(d, file, sizeof file, PURPOSE_WEIGHTS, &b);
    assert_int_equal(device_used_bytes(d), sizeof file);
    buffer_free(&b);
    assert_int_equal(device_used_bytes(d), 0);
    device_close(d);
}

static void test_too_much_memory(void **state) {
    (void)state;
    for (int kind = 0; kind < N_KINDS; kind++) {
        struct device *d = open_kind(kind);
        struct buffer first = new_buffer(d, MIB, PURPOSE_KV), b;
        struct err e;
        uint64_t wanted = d->info.capacity_bytes - MIB + 1;
        char number[32];
        assert_int_equal(buffer_new(d, wanted, PURPOSE_WEIGHTS, &b, &e), ERR_MEMORY);
        snprintf(number, sizeof number, "%" PRIu64 " bytes", wanted);
        assert_string_equal(e.expected, number);
        snprintf(number, sizeof number, "%" PRIu64 " bytes", wanted - 1);
        assert_memory_equal(e.actual, number, strlen(number));
        assert_non_null(strstr(e.what, "weights"));
        assert_null(b.device);
        buffer_free(&first);
        device_close(d);
    }
}

static void test_copies_and_order(void **state) {
    (void)state;
    enum { N = 100000 };
    static uint8_t source[N], target[N];
    for (int i = 0; i < N; i++) source[i] = (uint8_t)(i * 7);
    for (int kind = 0; kind < N_KINDS; kind++) {
        struct device *d = open_kind(kind);
        struct stream *s = new_stream(d, STREAM_COPY_IN);
        struct buffer a = new_buffer(d, N, PURPOSE_KV), b = new_buffer(d, N, PURPOSE_KV);
        memset(target, 0, N);
        stream_copy(s, a.base, source, N, COPY_TO_DEVICE);
        stream_copy(s, (char *)b.base + 1, a.base, N - 1, COPY_WITHIN);
        stream_copy(s, b.base, source + 5, 1, COPY_TO_DEVICE);
        stream_copy(s, target, b.base, N, COPY_FROM_DEVICE);
        stream_copy(s, NULL, NULL, 0, COPY_WITHIN);
        wait_ok(s);
        assert_int_equal(target[0], source[5]);
        assert_memory_equal(target + 1, source, N - 1);
        stream_free(s);
        buffer_free(&a);
        buffer_free(&b);
        device_close(d);
    }
}

// Many more commands than any list holds, each of which needs the one before.
static void test_long_lists(void **state) {
    (void)state;
    enum { N = 10000 };
    for (int kind = 0; kind < N_KINDS; kind++) {
        struct device *d = open_kind(kind);
        struct stream *s = new_stream(d, STREAM_COMPUTE);
        struct buffer b = new_buffer(d, (N + 1) * 8, PURPOSE_SCRATCH);
        uint64_t seed = 42, *cells = b.base, last = 0;
        stream_copy(s, cells, &seed, 8, COPY_TO_DEVICE);
        for (int i = 0; i < N; i++) stream_copy(s, cells + i + 1, cells + i, 8, COPY_WITHIN);
        stream_copy(s, &last, cells + N, 8, COPY_FROM_DEVICE);
        wait_ok(s);
        assert_int_equal(last, 42);
        stream_free(s);
        buffer_free(&b);
        device_close(d);
    }
}

// A block of bytes travels from row to row of host memory through two devices in turn; nobody
// waits on the host, so only the events keep the order. The same two events serve every round.
static void test_events_between_devices(void **state) {
    (void)state;
    enum { ROUNDS = 200, ROW = 2048 };
    static uint8_t rows[ROUNDS + 1][ROW];
    for (int kind = 0; kind < N_KINDS; kind++) {
        struct device *devices[2] = {open_kind(kind), open_sim("vram=1M,h2d=64M,d2h=64M")};
        struct stream *streams[2];
        struct event events[2];
        struct buffer cells[2];
        for (int i = 0; i < 2; i++) {
            streams[i] = new_stream(devices[i], STREAM_COMPUTE);
            events[i] = new_event(devices[i]);
            cells[i] = new_buffer(devices[i], ROW, PURPOSE_STAGING);
            device_seal(devices[i]);
        }
        memset(rows, 0, sizeof rows);
        memset(rows[0], 0xc3, ROW);
        for (int r = 0; r < ROUNDS; r++) {
            int i = r % 2;
            stream_wait_event(streams[i], &events[1 - i]);
            stream_copy(streams[i], cells[i].base, rows[r], ROW, COPY_TO_DEVICE);
            stream_copy(streams[i], rows[r + 1], cells[i].base, ROW, COPY_FROM_DEVICE);
            stream_record(streams[i], &events[i]);
            stream_flush(streams[i]);
        }
        struct err e;
        assert_int_equal(event_wait(&events[(ROUNDS - 1) % 2], &e), OK);
        assert_memory_equal(rows[ROUNDS], rows[0], ROW);
        for (int i = 0; i < 2; i++) {
            wait_ok(streams[i]);
            stream_free(streams[i]);
            event_free(&events[i]);
            buffer_free(&cells[i]);
            device_close(devices[i]);
        }
    }
}

// What is never recorded is not waited for; a second event_free is allowed.
static void test_idle_events(void **state) {
    (void)state;
    for (int kind = 0; kind < N_KINDS; kind++) {
        struct device *d = open_kind(kind);
        struct stream *s = new_stream(d, STREAM_COMPUTE);
        struct event event = new_event(d);
        struct err e;
        assert_int_equal(event_wait(&event, &e), OK);
        stream_wait_event(s, &event);
        wait_ok(s);
        event_free(&event);
        event_free(&event);
        stream_free(s);
        device_close(d);
    }
}

// The same numbers, bit for bit, on every device and team size.
static void test_ops_compute(void **state) {
    (void)state;
    enum { N = 5000 };
    static float gate[N], up[N], expected[N], out[N];
    for (int i = 0; i < N; i++) gate[i] = (float)(i - N / 2) / 300, up[i] = (float)(i % 17);
    struct cpu_table table;
    cpu_table_ref(&table);
    table.swiglu(&(struct lane){0, 1, NULL}, &(struct swiglu_args){expected, gate, up, N});
    for (int kind = 0; kind < N_KINDS; kind++) {
        struct device *d = open_kind(kind);
        struct stream *s = new_stream(d, STREAM_COMPUTE);
        struct buffer b = new_buffer(d, 2 * sizeof gate, PURPOSE_SCRATCH);
        float *x = b.base, *y = x + N;
        for (int32_t n_tokens = 1; n_tokens <= 8; n_tokens *= 8) {
            memset(out, 0, sizeof out);
            device_batch_hint(d, n_tokens);
            stream_copy(s, x, gate, sizeof gate, COPY_TO_DEVICE);
            stream_copy(s, y, up, sizeof up, COPY_TO_DEVICE);
            swiglu(s, x, x, y, N);
            stream_copy(s, out, x, sizeof out, COPY_FROM_DEVICE);
            wait_ok(s);
            assert_memory_equal(out, expected, sizeof out);
        }
        stream_free(s);
        buffer_free(&b);
        device_close(d);
    }
}

static void test_nothing_is_allocated_while_running(void **state) {
    (void)state;
    for (int kind = 0; kind < N_KINDS; kind++) {
        struct device *d = open_kind(kind);
        struct stream *s = new_stream(d, STREAM_COMPUTE);
        struct event event = new_event(d);
        struct buffer b = new_buffer(d, MIB, PURPOSE_SCRATCH);
        float zero[4] = {0};
        device_seal(d);
        alloc_fail_at(0);
        for (int i = 0; i < 1000; i++) {
            device_batch_hint(d, 1 + i % 2);
            stream_copy(s, b.base, zero, sizeof zero, COPY_TO_DEVICE);
            for (int op = 0; op < 10; op++) swiglu(s, b.base, b.base, b.base, 4);
            stream_record(s, &event);
            stream_wait_event(s, &event);
            stream_flush(s);
        }
        wait_ok(s);
        assert_int_equal(alloc_fail_count(), 0);
        event_free(&event);
        stream_free(s);
        buffer_free(&b);
        device_close(d);
    }
}

// Opens a device with a stream, an event and a buffer; true if nothing was refused.
static bool open_all(bool cpu) {
    struct cpu_options options = {ISA_REF, 2, 2, false};
    struct device *d = NULL;
    struct stream *s = NULL;
    struct event event = {0};
    struct buffer b = {0};
    struct err e = {0};
    enum status status = cpu ? device_open_cpu(&d, &options, NULL, &e)
                             : sim_driver.open(&d, "vram=1M", &options, NULL, &e);
    if (status == OK) status = stream_new(d, STREAM_COMPUTE, &s, &e);
    if (status == OK) status = event_new(d, &event, &e);
    if (status == OK) status = buffer_new(d, 1000, PURPOSE_KV, &b, &e);
    if (status != OK) assert_int_equal(e.status, ERR_MEMORY);
    stream_free(s);
    event_free(&event);
    buffer_free(&b);
    device_close(d);
    return status == OK;
}

static void test_every_refused_allocation(void **state) {
    (void)state;
    for (int cpu = 0; cpu < 2; cpu++) {
        int64_t n = 0;
        bool whole = false;
        while (!whole && n < 50) {
            alloc_fail_at(++n);
            whole = open_all(cpu);
            alloc_fail_at(0);
        }
        assert_true(whole);
        assert_true(n > 5);
    }
}

// ---- The CPU -----------------------------------------------------------------------------------

static void test_cpu_info(void **state) {
    (void)state;
    struct device *d = open_cpu(1, 3);
    assert_string_equal(d->info.kind, "cpu");
    assert_true(d->info.is_host);
    assert_int_equal(d->info.n_lanes, 3);
    assert_non_null(strstr(d->info.name, "3 threads, ref"));
    assert_true(d->info.free_bytes <= d->info.capacity_bytes);
    device_close(d);
}

static void test_isa_beyond_the_cpu(void **state) {
    (void)state;
    struct err e;
    struct cpu_table table;
    for (enum cpu_isa isa = ISA_REF; isa < ISA_COUNT; isa++) {
        enum status status = cpu_table_open(&table, isa, &e);
        assert_int_equal(status, cpu_has_isa(isa) ? OK : ERR_UNSUPPORTED);
        if (status == OK) continue;
        assert_string_equal(e.actual, cpu_isa_name(isa));
        assert_non_null(strstr(e.expected, cpu_isa_name(cpu_best_isa())));
    }
    assert_true(cpu_has_isa(cpu_best_isa()));
}

struct stress {
    int n_rounds;
    int64_t cells[4]; // one per lane, summed by all after each barrier
    atomic_int n_wrong;
};

static void stress_lane(const struct lane *lane, void *context) {
    struct stress *stress = context;
    for (int round = 0; round < stress->n_rounds; round++) {
        stress->cells[lane->index] = round;
        lane_barrier(lane);
        int64_t sum = 0;
        for (int32_t i = 0; i < lane->count; i++) sum += stress->cells[i];
        if (sum != (int64_t)round * lane->count) atomic_fetch_add(&stress->n_wrong, 1);
        lane_barrier(lane);
    }
}

static void test_barriers(void **state) {
    (void)state;
    for (int32_t n = 1; n <= 4; n++) {
        struct team *team;
        struct err e;
        assert_int_equal(team_open(&team, n, true, &e), OK);
        for (int32_t used = 1; used <= n; used++) {
            struct stress stress = {.n_rounds = 2000 / n};
            team_use(team, used);
            assert_int_equal(team_size(team), used);
            for (int run = 0; run < 20; run++) team_run(team, stress_lane, &stress);
            assert_int_equal(stress.n_wrong, 0);
        }
        team_close(team);
    }
    team_close(NULL);
}

static void test_too_many_threads(void **state) {
    (void)state;
    struct team *team;
    struct err e;
    assert_int_equal(team_open(&team, 1 << 20, true, &e), ERR_USAGE);
    assert_null(team);
}

struct place {
    int32_t cpus[4]; // where each lane ran
    struct affinity caller;
};

static void note_place(const struct lane *lane, void *context) {
    struct place *place = context;
    place->cpus[lane->index] = affinity_cpu();
    if (lane->index == 0) affinity_get(&place->caller);
}

// Each lane on a processor of its own while it works; the caller is free again afterwards.
static void test_binding(void **state) {
    (void)state;
    struct core_list cores;
    struct team *team;
    struct err e;
    struct affinity before, after;
    assert_int_equal(core_list_open(&cores, &e), OK);
    assert_true(cores.n_cores >= 1);
    int32_t n = cores.n_cpus < 4 ? cores.n_cpus : 4;
    assert_int_equal(team_open(&team, n, true, &e), OK);
    bool told = affinity_get(&before);
    struct place place = {0};
    team_run(team, note_place, &place);
    assert_int_equal(affinity_get(&after), told);
    if (told && n > 1) {
        assert_memory_equal(&before, &after, sizeof before);
        for (int32_t i = 0; i < n; i++) assert_int_equal(place.cpus[i], cores.cpus[i]);
        int bits = 0;
        for (int i = 0; i < AFFINITY_CPUS / 64; i++)
            bits += __builtin_popcountll(place.caller.mask[i]);
        assert_int_equal(bits, 1);
    }
    team_close(team);
    core_list_close(&cores);
}

static void test_default_team(void **state) {
    (void)state;
    struct core_list cores;
    struct err e;
    int32_t n;
    assert_int_equal(core_list_open(&cores, &e), OK);
    assert_int_equal(team_default_size(&n, &e), OK);
    assert_in_range(n, 1, cores.n_cores);
    core_list_close(&cores);
}

// The order of processors on an invented machine, as "0 2 4 ...".
static void check_order(const char *machine, const char *fast, const char *allowed_text,
                        const char *order, int32_t n_cores) {
    hwloc_topology_t topology;
    assert_int_equal(hwloc_topology_init(&topology), 0);
    assert_int_equal(hwloc_topology_set_synthetic(topology, machine), 0);
    assert_int_equal(hwloc_topology_load(topology), 0);
    hwloc_bitmap_t set = hwloc_bitmap_alloc();
    if (fast) {
        hwloc_bitmap_list_sscanf(set, fast);
        hwloc_cpukinds_register(topology, set, 2, 0, NULL, 0);
        hwloc_bitmap_andnot(set, hwloc_topology_get_complete_cpuset(topology), set);
        hwloc_cpukinds_register(topology, set, 1, 0, NULL, 0);
    }
    hwloc_bitmap_list_sscanf(set, allowed_text);
    struct core_list list;
    struct err e;
    assert_int_equal(core_list_of(&list, topology, set, &e), OK);
    char text[128] = "";
    for (int32_t i = 0; i < list.n_cpus; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), i ? " %d" : "%d", list.cpus[i]);
    assert_string_equal(text, order);
    assert_int_equal(list.n_cores, n_cores);
    core_list_close(&list);
    hwloc_bitmap_zero(set);
    assert_int_equal(core_list_of(&list, topology, set, &e), ERR_DEVICE);
    core_list_close(&list);
    hwloc_bitmap_free(set);
    hwloc_topology_destroy(topology);
}

static void test_order_of_cores(void **state) {
    (void)state;
    check_order("core:4 pu:1", NULL, "0-3", "0 1 2 3", 4);
    check_order("core:3 pu:2", NULL, "0-5", "0 2 4 1 3 5", 3);
    check_order("core:3 pu:2", NULL, "1,3-5", "1 3 4 5", 3);
    check_order("core:4 pu:2", "4-7", "0-7", "4 6 0 2 5 7 1 3", 4);
    check_order("core:4 pu:2", "4-7", "0,2,5", "5 0 2", 3);
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

// ---- The simulated accelerator -----------------------------------------------------------------

static void test_spec(void **state) {
    (void)state;
    struct sim_spec spec;
    struct err e;
    assert_int_equal(sim_spec_parse(&spec, "", ISA_AUTO, &e), OK);
    assert_int_equal(spec.vram_bytes, 1024 * MIB);
    assert_int_equal(spec.isa, ISA_AUTO);
    assert_int_equal(sim_spec_parse(&spec,
                                    "vram=96M,h2d=2G,d2h=512K,isa=ref,fail=copy:3,fail=lost:12",
                                    ISA_AUTO, &e),
                     OK);
    assert_int_equal(spec.vram_bytes, 96 * MIB);
    assert_int_equal(spec.rate[COPY_TO_DEVICE], 2048 * MIB);
    assert_int_equal(spec.rate[COPY_FROM_DEVICE], MIB / 2);
    assert_int_equal(spec.isa, ISA_REF);
    assert_int_equal(spec.fail_at[SIM_FAULT_COPY], 3);
    assert_int_equal(spec.fail_at[SIM_FAULT_LOST], 12);
    assert_int_equal(spec.fail_at[SIM_FAULT_OP], 0);
    static const char *const wrong[] = {
        "vram",          "vram=",           "vram=0",
        "vram=-1",       "vram=1T",         "vram=1.5G",
        "h2d=x",         "ram=1M",          "isa=sse",
        "fail=copy",     "fail=copy:0",     "fail=x:1",
        "fail=alloc:1K", "vram=1M,,h2d=1G", ",",
        "fail=opx:1",    "fail=o:1",        "vram=99999999999999999999G",
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        if (sim_spec_parse(&spec, wrong[i], ISA_AUTO, &e) != ERR_USAGE)
            fail_msg("\"%s\" is accepted", wrong[i]);
    struct device *d;
    struct cpu_options options = {.isa = ISA_REF};
    assert_int_equal(sim_driver.open(&d, "vram=no", &options, NULL, &e), ERR_USAGE);
    assert_null(d);
}

// Follows an address in a process of its own; false if that process ends well.
static bool kills(const volatile char *address) {
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        signal(SIGSEGV, SIG_DFL); // cmocka's handler would go on with the tests
        close(STDERR_FILENO);
        _exit(*address == 'x');
    }
    int status = 0;
    waitpid(child, &status, 0);
    return !WIFEXITED(status) || WEXITSTATUS(status) > 1;
}

static void test_host_cannot_follow_addresses(void **state) {
    (void)state;
    struct device *d = open_sim("vram=1M");
    struct buffer b = new_buffer(d, 100, PURPOSE_KV);
    char on_host = 0;
    assert_true(kills(b.base));
    assert_false(kills(&on_host));
    buffer_free(&b);
    device_close(d);
}

// A stream that runs one bad command reports it; returns after closing all but the device.
static void expect_bad(struct device *d, void (*encode)(struct stream *, struct buffer *),
                       const char *what) {
    struct stream *s = new_stream(d, STREAM_COMPUTE);
    struct buffer b = new_buffer(d, 4096, PURPOSE_SCRATCH);
    encode(s, &b);
    wait_fails(s, what);
    swiglu(s, b.base, b.base, b.base, 1);
    wait_fails(s, what); // the first failure stays
    stream_free(s);
    buffer_free(&b);
}

static void use_freed(struct stream *s, struct buffer *b) {
    void *old = b->base;
    buffer_free(b);
    *b = new_buffer(s->device, 4096, PURPOSE_SCRATCH);
    swiglu(s, old, b->base, b->base, 1);
}

static void use_past_end(struct stream *s, struct buffer *b) {
    swiglu(s, (char *)b->base + b->size_bytes, b->base, b->base, 1);
}

static void use_host_memory(struct stream *s, struct buffer *b) {
    static float host[4];
    swiglu(s, b->base, host, b->base, 1);
}

static void copy_past_end(struct stream *s, struct buffer *b) {
    static char host[4096];
    stream_copy(s, (char *)b->base + 1, host, sizeof host, COPY_TO_DEVICE);
}

static void copy_wrong_way(struct stream *s, struct buffer *b) {
    stream_copy(s, b->base, b->base, 16, COPY_TO_DEVICE);
}

static void test_bad_addresses(void **state) {
    (void)state;
    struct device *d = open_sim("vram=1M");
    expect_bad(d, use_freed, "op swiglu touches freed memory");
    expect_bad(d, use_past_end, "op swiglu touches freed memory or none");
    expect_bad(d, use_host_memory, "op swiglu is given the host's memory");
    expect_bad(d, copy_past_end, "a copy touches freed memory or none");
    expect_bad(d, copy_wrong_way, "for the host's memory");
    device_close(d);
}

// A copy of 1 MiB takes at least as long as the link says, and two of them twice that. There is no
// upper bound: the machine may be busy.
static void test_throttle(void **state) {
    (void)state;
    static char host[MIB];
    struct device *d = open_sim("vram=4M,h2d=100M,d2h=50M");
    struct stream *in = new_stream(d, STREAM_COPY_IN), *out = new_stream(d, STREAM_COPY_OUT);
    struct buffer b = new_buffer(d, MIB, PURPOSE_STAGING);
    uint64_t start_ns = clock_ns();
    stream_copy(in, b.base, host, MIB, COPY_TO_DEVICE);
    stream_copy(out, b.base, host, MIB, COPY_TO_DEVICE);
    wait_ok(in);
    wait_ok(out);
    assert_true(clock_ns() - start_ns >= 20 * UINT64_C(1000000));
    start_ns = clock_ns();
    stream_copy(out, host, b.base, MIB, COPY_FROM_DEVICE);
    wait_ok(out);
    assert_true(clock_ns() - start_ns >= 20 * UINT64_C(1000000));
    stream_free(in);
    stream_free(out);
    buffer_free(&b);
    device_close(d);
}

static void test_refused_buffers(void **state) {
    (void)state;
    for (int n = 1; n <= 3; n++) {
        char spec[64];
        snprintf(spec, sizeof spec, "vram=1M,fail=alloc:%d", n);
        struct device *d = open_sim(spec);
        struct buffer b[4];
        struct err e;
        for (int i = 0; i < 4; i++)
            assert_int_equal(buffer_new(d, 1000, PURPOSE_KV, &b[i], &e),
                             i + 1 == n ? ERR_MEMORY : OK);
        assert_int_equal(device_used_bytes(d), 3000);
        for (int i = 0; i < 4; i++) buffer_free(&b[i]);
        device_close(d);
    }
}

// Six copies and six ops in turn, two events between them; the fault comes at the nth.
static void check_fault(const char *kind, int n, int first_bad, const char *what) {
    char spec[64];
    snprintf(spec, sizeof spec, "vram=1M,fail=%s:%d", kind, n);
    struct device *d = open_sim(spec), *cpu = open_cpu(2, 2);
    struct stream *s = new_stream(d, STREAM_COMPUTE), *other = new_stream(d, STREAM_COPY_OUT);
    struct stream *host = new_stream(cpu, STREAM_COMPUTE);
    struct buffer b = new_buffer(d, 64, PURPOSE_KV);
    struct event before = new_event(d), after = new_event(d), last = new_event(cpu);
    float zeros[4] = {0}, untouched = 5;
    struct err e;
    if (first_bad == 0) stream_record(s, &before);
    for (int i = 0; i < 6; i++) {
        stream_copy(s, b.base, zeros, sizeof zeros, COPY_TO_DEVICE);
        if (2 * i + 1 == first_bad) stream_record(s, &before);
        swiglu(s, b.base, b.base, b.base, 4);
        if (2 * i + 2 == first_bad) stream_record(s, &before);
    }
    stream_record(s, &after);
    assert_int_equal(event_wait(&before, &e), OK);
    assert_int_equal(event_wait(&after, &e), ERR_DEVICE);
    assert_non_null(strstr(e.what, what));
    // The failure goes on to whoever waits: a stream of the device, the CPU, and back.
    stream_wait_event(other, &after);
    stream_copy(other, &untouched, b.base, 4, COPY_FROM_DEVICE);
    stream_wait_event(host, &after);
    stream_copy(host, &untouched, zeros, 4, COPY_WITHIN);
    stream_record(host, &last);
    stream_flush(host);
    stream_wait_event(other, &last);
    wait_fails(other, what);
    wait_fails(host, what);
    wait_fails(s, what);
    assert_true(untouched == 5);
    stream_free(s);
    stream_free(other);
    stream_free(host);
    event_free(&before);
    event_free(&after);
    event_free(&last);
    buffer_free(&b);
    device_close(cpu);
    device_close(d);
}

static void test_faults(void **state) {
    (void)state;
    for (int n = 1; n <= 6; n++) check_fault("copy", n, 2 * n - 2, "a copy failed");
    for (int n = 1; n <= 6; n++) check_fault("op", n, 2 * n - 1, "op swiglu failed");
    for (int n = 1; n <= 12; n++) check_fault("lost", n, n - 1, "the device is lost");
}

// A CPU event whose stream failed stops a stream that waits for it.
static void test_failure_from_the_cpu(void **state) {
    (void)state;
    struct device *broken = open_sim("vram=1M,fail=copy:1"), *cpu = open_cpu(2, 2);
    struct device *whole = open_sim("vram=1M");
    struct stream *streams[3] = {new_stream(broken, STREAM_COPY_IN),
                                 new_stream(cpu, STREAM_COMPUTE),
                                 new_stream(whole, STREAM_COMPUTE)};
    struct event events[2] = {new_event(broken), new_event(cpu)};
    struct buffer b = new_buffer(broken, 64, PURPOSE_KV);
    char host[64] = {0};
    stream_copy(streams[0], b.base, host, sizeof host, COPY_TO_DEVICE);
    stream_record(streams[0], &events[0]);
    stream_wait_event(streams[1], &events[0]);
    stream_record(streams[1], &events[1]);
    stream_flush(streams[1]);
    stream_wait_event(streams[2], &events[1]);
    for (int i = 0; i < 3; i++) {
        wait_fails(streams[i], "a copy failed");
        stream_free(streams[i]);
    }
    event_free(&events[0]);
    event_free(&events[1]);
    buffer_free(&b);
    device_close(whole);
    device_close(cpu);
    device_close(broken);
}

// After the loss nothing is given out any more, and every stream says so, even an idle one.
static void test_lost_device(void **state) {
    (void)state;
    struct device *d = open_sim("vram=1M,fail=lost:1");
    struct stream *s = new_stream(d, STREAM_COMPUTE), *idle = new_stream(d, STREAM_COPY_IN);
    struct buffer b = new_buffer(d, 64, PURPOSE_KV), more;
    struct err e;
    swiglu(s, b.base, b.base, b.base, 1);
    wait_fails(s, "lost");
    wait_fails(idle, "lost");
    assert_int_equal(buffer_new(d, 64, PURPOSE_KV, &more, &e), ERR_DEVICE);
    assert_int_equal(device_used_bytes(d), 64);
    stream_free(s);
    stream_free(idle);
    buffer_free(&b);
    device_close(d);
}

// A failed stream is freed with its list full of work that will not be done.
static void test_free_while_failed(void **state) {
    (void)state;
    for (int cpu = 0; cpu < 2; cpu++) {
        struct device *d = open_sim("vram=1M,fail=op:1");
        struct device *worker = cpu ? open_cpu(2, 2) : d;
        struct stream *s = new_stream(d, STREAM_COMPUTE),
                      *tail = new_stream(worker, STREAM_COMPUTE);
        struct buffer b = new_buffer(d, 64, PURPOSE_KV);
        struct event event = new_event(d);
        char host[2] = {0};
        swiglu(s, b.base, b.base, b.base, 1);
        stream_record(s, &event);
        stream_wait_event(tail, &event);
        for (int i = 0; i < 5000; i++)
            stream_copy(tail, cpu ? host : b.base, host + 1, 1, cpu ? COPY_WITHIN : COPY_TO_DEVICE);
        stream_free(tail);
        stream_free(s);
        event_free(&event);
        buffer_free(&b);
        if (cpu) device_close(worker);
        device_close(d);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_host_cannot_follow_addresses), // forks: before there are threads
        cmocka_unit_test(test_books),
        cmocka_unit_test(test_mapped_memory_counts),
        cmocka_unit_test(test_too_much_memory),
        cmocka_unit_test(test_copies_and_order),
        cmocka_unit_test(test_long_lists),
        cmocka_unit_test(test_events_between_devices),
        cmocka_unit_test(test_idle_events),
        cmocka_unit_test(test_ops_compute),
        cmocka_unit_test(test_nothing_is_allocated_while_running),
        cmocka_unit_test(test_every_refused_allocation),
        cmocka_unit_test(test_cpu_info),
        cmocka_unit_test(test_isa_beyond_the_cpu),
        cmocka_unit_test(test_barriers),
        cmocka_unit_test(test_too_many_threads),
        cmocka_unit_test(test_binding),
        cmocka_unit_test(test_default_team),
        cmocka_unit_test(test_order_of_cores),
        cmocka_unit_test(test_plain_order_of_cores),
        cmocka_unit_test(test_spec),
        cmocka_unit_test(test_bad_addresses),
        cmocka_unit_test(test_throttle),
        cmocka_unit_test(test_refused_buffers),
        cmocka_unit_test(test_faults),
        cmocka_unit_test(test_failure_from_the_cpu),
        cmocka_unit_test(test_lost_device),
        cmocka_unit_test(test_free_while_failed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

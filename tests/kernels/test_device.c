/* test_device.c: the promises of device.h, held by the CPU and by the simulated accelerator, and
 * what is special to the CPU: teams of threads. The simulated one's own are in test_sim.c. */
// link: wrap-alloc
#include "base/affinity.h"
#include "base/clock.h"
#include "base/host.h"
#include "base/mem.h"
#include "kernels/cpu/cores_hwloc.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/device/cpu_device.h"
#include "kernels/cpu/device/table.h"
#include "kernels/device.h"
#include "tests/lib/alloc_fail.h"
#include "tests/lib/open_device.h"
#include "tests/sim/sim_device.h"

#include <inttypes.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#define MIB (UINT64_C(1) << 20)

// The tests of the interface run on each of these.
enum { N_KINDS = 4 };
static struct device *open_kind(int kind) {
    static const int32_t threads[N_KINDS] = {1, 2, 4, 0};
    return kind < N_KINDS - 1 ? open_cpu(threads[kind], 3) : open_sim("vram=64M");
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

// A control group may allow less memory than the file has: caches take the room of its pages.
static void test_mapped_weights_leave_room(void **state) {
    (void)state;
    static char file[4096];
    struct device *d = open_cpu(1, 1);
    struct buffer weights, kv, scratch;
    struct err e;
    d->info.capacity_bytes = MIB;
    buffer_map(d, file, 4 * MIB, PURPOSE_WEIGHTS, &weights); // never touched
    assert_int_equal(buffer_new(d, MIB, PURPOSE_KV, &kv, &e), OK);
    assert_int_equal(buffer_new(d, 1, PURPOSE_SCRATCH, &scratch, &e), ERR_MEMORY);
    buffer_free(&kv);
    buffer_free(&weights);
    device_close(d);
}

static void test_too_much_memory(void **state) {
    (void)state;
    for (int kind = 0; kind < N_KINDS; kind++) {
        struct device *d = open_kind(kind);
        struct buffer first = new_buffer(d, MIB, PURPOSE_KV), b;
        struct err e;
        uint64_t wanted = d->info.capacity_bytes - MIB + 1;
        char size[ERR_SIZE_CHARS];
        assert_int_equal(buffer_new(d, wanted, PURPOSE_WEIGHTS, &b, &e), ERR_MEMORY);
        assert_string_equal(e.expected, err_size_needed(size, wanted));
        err_size_limit(size, wanted - 1);
        assert_memory_equal(e.actual, size, strlen(size));
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

// Rows go there, about and back, at another distance each time; what lies between them stays.
static void check_rows(struct device *d, int32_t n_rows, uint64_t row_bytes, uint64_t gap) {
    const uint64_t near = row_bytes + gap, far = row_bytes + 2 * gap;
    uint8_t *source = mem_alloc((size_t)n_rows, far), *target = mem_alloc((size_t)n_rows, near);
    struct stream *s = new_stream(d, STREAM_COPY_IN);
    struct buffer a = new_buffer(d, (uint64_t)n_rows * near, PURPOSE_KV);
    struct buffer b = new_buffer(d, (uint64_t)n_rows * far, PURPOSE_KV);
    assert_true(source && target);
    for (uint64_t i = 0; i < (uint64_t)n_rows * far; i++) source[i] = (uint8_t)(i * 7 + i / 256);
    memset(target, 1, (uint64_t)n_rows * near);
    const struct row_copy in = {a.base, source, near, far, row_bytes, n_rows},
                          about = {b.base, a.base, far, near, row_bytes, n_rows},
                          out = {target, b.base, near, far, row_bytes, n_rows};
    stream_copy_rows(s, &in, COPY_TO_DEVICE);
    stream_copy_rows(s, &about, COPY_WITHIN);
    stream_copy_rows(s, &out, COPY_FROM_DEVICE);
    stream_copy_rows(s, &(struct row_copy){0}, COPY_WITHIN);
    wait_ok(s);
    for (int32_t r = 0; r < n_rows; r++) {
        assert_memory_equal(target + (uint64_t)r * near, source + (uint64_t)r * far, row_bytes);
        for (uint64_t i = row_bytes; i < near; i++)
            assert_int_equal(target[(uint64_t)r * near + i], 1);
    }
    stream_free(s);
    buffer_free(&a);
    buffer_free(&b);
    mem_free(source);
    mem_free(target);
}

static void test_rows(void **state) {
    (void)state;
    for (int kind = 0; kind < N_KINDS; kind++) {
        struct device *d = open_kind(kind);
        check_rows(d, 1000, 4, 12);   // many rows for a lane
        check_rows(d, 3, 100000, 28); // many lanes for a row
        check_rows(d, 1, 5000, 8);
        check_rows(d, 50, 300, 0); // they touch: a plain copy
        device_close(d);
    }
}

// A number comes from the device, a call of the host changes it, and it goes back; another stream
// waits for that. Without the order the number of a round before would be seen.
static void test_calls(void **state) {
    (void)state;
    enum { ROUNDS = 100 };
    for (int kind = 0; kind < N_KINDS; kind++) {
        struct device *d = open_kind(kind);
        struct stream *s = new_stream(d, STREAM_COPY_IN), *other = new_stream(d, STREAM_COPY_OUT);
        struct event changed = new_event(d), read = new_event(d);
        struct buffer cell = new_buffer(d, 8, PURPOSE_STAGING);
        struct host_work work = {0};
        int64_t seen[ROUNDS] = {0}, zero = 0;
        stream_copy(s, cell.base, &zero, 8, COPY_TO_DEVICE);
        for (int r = 0; r < ROUNDS; r++) {
            stream_wait_event(s, &read);
            stream_copy(s, &work.source, cell.base, 8, COPY_FROM_DEVICE);
            stream_call(s, add_one, &work);
            stream_copy(s, cell.base, &work.target, 8, COPY_TO_DEVICE);
            stream_record(s, &changed);
            stream_flush(s);
            stream_wait_event(other, &changed);
            stream_copy(other, &seen[r], cell.base, 8, COPY_FROM_DEVICE);
            stream_record(other, &read);
            stream_flush(other);
        }
        wait_ok(s);
        wait_ok(other);
        for (int r = 0; r < ROUNDS; r++) assert_int_equal(seen[r], r + 1);
        assert_int_equal(work.n_calls, ROUNDS);
        stream_free(s);
        stream_free(other);
        event_free(&changed);
        event_free(&read);
        buffer_free(&cell);
        device_close(d);
    }
}

// Events are passed in order, at times between two looks at the clock.
static void test_times(void **state) {
    (void)state;
    enum { N = 6 };
    static char host[MIB];
    for (int kind = 0; kind < N_KINDS; kind++) {
        struct device *d = open_kind(kind);
        struct stream *s = new_stream(d, STREAM_COPY_IN);
        struct buffer b = new_buffer(d, MIB, PURPOSE_STAGING);
        struct event events[N], idle = new_event(d);
        struct host_work work = {0};
        struct err e;
        uint64_t last_ns, time_ns;
        for (int i = 0; i < N; i++) events[i] = new_event(d);
        for (int round = 0; round < 3; round++) {
            last_ns = clock_ns();
            for (int i = 0; i < N; i++) {
                if (i % 2) stream_copy(s, b.base, host, sizeof host, COPY_TO_DEVICE);
                if (i % 3 == 2) stream_call(s, add_one, &work);
                stream_record(s, &events[i]);
            }
            wait_ok(s);
            const uint64_t end_ns = clock_ns();
            for (int i = 0; i < N; i++) {
                assert_int_equal(event_time(&events[i], &time_ns, &e), OK);
                assert_true(time_ns >= last_ns);
                last_ns = time_ns;
            }
            assert_true(last_ns <= end_ns);
        }
        assert_int_equal(event_time(&idle, &time_ns, &e), OK);
        assert_int_equal(time_ns, 0);
        for (int i = 0; i < N; i++) event_free(&events[i]);
        event_free(&idle);
        stream_free(s);
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

// Nobody waits for an event that was never recorded; a second event_free is allowed.
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
    table.swiglu(&(struct lane){0, 1, NULL},
                 &(struct swiglu_args){expected, gate, up, NULL, 1, N, N, N, GLU_SILU, 0});
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
        const struct row_copy rows = {b.base, zero, 8, 8, 4, 2};
        struct host_work work = {0};
        device_seal(d);
        alloc_fail_at(0);
        for (int i = 0; i < 1000; i++) {
            device_batch_hint(d, 1 + i % 2);
            stream_copy(s, b.base, zero, sizeof zero, COPY_TO_DEVICE);
            stream_copy_rows(s, &rows, COPY_TO_DEVICE);
            stream_call(s, add_one, &work);
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
        const int64_t mapped_bytes = alloc_fail_mapped_bytes();
        int64_t n = 0;
        bool whole = false;
        while (!whole && n < 50) {
            alloc_fail_at(++n);
            whole = open_all(cpu);
            alloc_fail_at(0);
            assert_int_equal(alloc_fail_mapped_bytes(), mapped_bytes);
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

// The best level takes what it has of levels that pay, and leaves out those that do not. Each can
// be asked for.
static void test_levels_that_pay(void **state) {
    (void)state;
    struct err e;
    struct cpu_table table;
    char name[96];
    host_cpu_name(&HOST_ROOTS, name, sizeof name);
    if (strstr(name, "AMD")) assert_true(cpu_isa_pays(ISA_ZEN4));
    if (strstr(name, "Intel")) assert_false(cpu_isa_pays(ISA_ZEN4));
    assert_true(cpu_isa_pays(cpu_best_isa()));
    assert_int_equal(cpu_table_open(&table, ISA_AUTO, &e), OK);
    const char *best = table.matmul_path[WEIGHT_IQ2_S];
    if (!cpu_has_isa(ISA_ZEN4)) {
        assert_string_not_equal(best, "zen4");
        return;
    }
    assert_string_equal(best, cpu_isa_pays(ISA_ZEN4) ? "zen4" : "vbmi");
    assert_int_equal(cpu_table_open(&table, ISA_ZEN4, &e), OK);
    assert_string_equal(table.matmul_path[WEIGHT_IQ2_S], "zen4");
    assert_int_equal(cpu_table_open(&table, ISA_VBMI, &e), OK);
    assert_string_equal(table.matmul_path[WEIGHT_IQ2_S], "vbmi");
}

// The bits that Linux reports of an ARM processor decide on its levels; x86 has none of them.
static void test_levels_of_arm(void **state) {
    (void)state;
    const uint64_t asimd = 1 << 1, asimddp = 1 << 20, i8mm = 1 << 13;
    static const enum cpu_isa LEVELS[] = {ISA_NEON, ISA_DOTPROD, ISA_I8MM};
    const struct {
        uint64_t hwcap, hwcap2;
        int n_levels; // the first ones of LEVELS
    } cpus[] = {
        {0, 0, 0},
        {asimd, 0, 1}, // Cortex-A57
        {asimd, i8mm, 1},
        {asimddp, i8mm, 0},
        {asimd | asimddp, 0, 2},    // Neoverse N1
        {asimd | asimddp, i8mm, 3}, // Neoverse V1
        {UINT64_MAX & ~asimddp, UINT64_MAX, 1},
        {UINT64_MAX, UINT64_MAX & ~i8mm, 2},
    };
    for (size_t i = 0; i < sizeof cpus / sizeof *cpus; i++) {
        for (int l = 0; l < 3; l++)
            assert_int_equal(cpu_isa_in_hwcaps(LEVELS[l], cpus[i].hwcap, cpus[i].hwcap2),
                             l < cpus[i].n_levels);
        assert_false(cpu_isa_in_hwcaps(ISA_AVX2, cpus[i].hwcap, cpus[i].hwcap2));
    }
#if HAVE_X86
    for (int l = 0; l < 3; l++) assert_false(cpu_has_isa(LEVELS[l]));
#endif
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

enum { N_ITEMS = 1000 };

struct taking {
    atomic_int times[N_ITEMS]; // that each item was taken
};

static void take_lane(const struct lane *lane, void *context) {
    struct taking *taking = context;
    for (int round = 0; round < 10; round++) {
        for (int64_t range[2] = {0}; lane_take(lane, N_ITEMS, 1 + round, range);)
            for (int64_t i = range[0]; i < range[1]; i++) atomic_fetch_add(&taking->times[i], 1);
        lane_barrier(lane);
    }
}

// Lanes take each item once between two barriers.
static void test_taken_once(void **state) {
    (void)state;
    for (int32_t n = 1; n <= 4; n++) {
        struct team *team;
        struct err e;
        struct taking taking = {0};
        assert_int_equal(team_open(&team, n, true, &e), OK);
        for (int run = 0; run < 3; run++) team_run(team, take_lane, &taking);
        for (int i = 0; i < N_ITEMS; i++) assert_int_equal(taking.times[i], 30);
        team_close(team);
    }
}

// Items lie at most half beside a lane's equal share, so two lanes differ by one item at most; of
// nine segments of 8,320 keys the last is short, and the fifth belongs to the second lane.
static void test_items_of_lanes(void **state) {
    (void)state;
    const struct lane two = {.count = 2};
    assert_int_equal(lane_of_item(&two, 3 * 1024, 1024, 8320), 0);
    assert_int_equal(lane_of_item(&two, 4 * 1024, 1024, 8320), 1);
    for (int32_t count = 1; count <= 8; count++) {
        const struct lane lane = {.count = count};
        for (int64_t total = 1; total <= 40; total++) {
            for (int64_t cost = 1; cost <= total; cost++) {
                int64_t work[8] = {0};
                int32_t before = 0;
                for (int64_t at = 0; at < total; at += cost) {
                    const int64_t own = cost < total - at ? cost : total - at; // the last: the rest
                    const int32_t n = lane_of_item(&lane, at, own, total);
                    assert_in_range(n, before, count - 1);
                    before = n;
                    work[n] += own;
                }
                if (count == 2) assert_in_range(work[0] - work[1] + cost, 0, 2 * cost);
                for (int32_t n = 0; n < count; n++)
                    assert_in_range(count * work[n] + count * cost, total,
                                    total + 2 * count * cost);
            }
        }
    }
}

struct lateness {
    struct taking taking;
    atomic_bool others_done;
    atomic_int n_late; // items that the late lane took
};

static void take_late(const struct lane *lane, void *context) {
    struct lateness *late = context;
    const bool is_late = lane->index == lane->count - 1;
    while (is_late && !atomic_load(&late->others_done)) sched_yield();
    for (int round = 0; round < 10; round++) {
        for (int64_t range[2] = {0}; lane_take(lane, N_ITEMS, 1, range);) {
            if (is_late) atomic_fetch_add(&late->n_late, 1);
            for (int64_t i = range[0]; i < range[1]; i++)
                atomic_fetch_add(&late->taking.times[i], 1);
        }
        lane_barrier(lane);
    }
    if (lane->index == 0) atomic_store(&late->others_done, true);
}

// Lanes that took all the work go on without the one that is still to come; it finds nothing left.
static void test_late_lane(void **state) {
    (void)state;
    for (int32_t n = 2; n <= 4; n++) {
        struct team *team;
        struct err e;
        struct lateness late = {0};
        assert_int_equal(team_open(&team, n, true, &e), OK);
        team_run(team, take_late, &late);
        for (int i = 0; i < N_ITEMS; i++) assert_int_equal(late.taking.times[i], 10);
        assert_int_equal(late.n_late, 0);
        team_close(team);
    }
}

// In a time of its own, in which the first lane has a third of the others' speed, a team is done in
// at most 1.15 of the time that no division of the work could beat.
static void test_slow_lane(void **state) {
    (void)state;
    for (int32_t n = 2; n <= 16; n *= 2) {
        double free_at[16] = {0}, end = 0;
        for (int64_t left = 100 * n; left > 0;) {
            int32_t next = 0;
            for (int32_t i = 1; i < n; i++)
                if (free_at[i] < free_at[next]) next = i;
            const int64_t portion = lane_portion(left, n, 1);
            free_at[next] += (double)portion * (next == 0 ? 3 : 1);
            left -= portion;
        }
        for (int32_t i = 0; i < n; i++) end = free_at[i] > end ? free_at[i] : end;
        assert_true(end <= 1.15 * 100 * n / (n - 1 + 1.0 / 3));
    }
}

struct sleeper {
    int32_t index; // of the lane
    pid_t thread;
};

static void note_thread(const struct lane *lane, void *context) {
    struct sleeper *s = context;
    if (lane->index == s->index) s->thread = (pid_t)syscall(SYS_gettid);
}

// Reads a line of a thread's status by its name. Returns its number, or the first letter.
static long status_of(pid_t thread, const char *name) {
    char path[64], line[128];
    long value = -1;
    snprintf(path, sizeof path, "/proc/self/task/%d/status", (int)thread);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    while (fgets(line, sizeof line, file)) {
        if (strncmp(line, name, strlen(name)) != 0) continue;
        const char *text = line + strlen(name) + strspn(line + strlen(name), ":\t ");
        value = *text >= '0' && *text <= '9' ? atol(text) : *text;
    }
    fclose(file);
    return value;
}

static long n_sleeps(pid_t thread) { return status_of(thread, "voluntary_ctxt_switches"); }

// A thread of no team that sleeps until its pipe is closed.
struct dormant {
    pthread_t thread;
    pid_t id;
    int pipe[2];
};

static void *sleep_at_pipe(void *context) {
    struct dormant *d = context;
    char byte;
    __atomic_store_n(&d->id, (pid_t)syscall(SYS_gettid), __ATOMIC_RELEASE);
    (void)!read(d->pipe[0], &byte, 1);
    return NULL;
}

static void start_dormant(struct dormant *d) {
    *d = (struct dormant){0};
    assert_int_equal(pipe(d->pipe), 0);
    assert_int_equal(pthread_create(&d->thread, NULL, sleep_at_pipe, d), 0);
    while (__atomic_load_n(&d->id, __ATOMIC_ACQUIRE) == 0 || status_of(d->id, "State") != 'S')
        sched_yield();
}

static void end_dormant(struct dormant *d) {
    close(d->pipe[1]);
    pthread_join(d->thread, NULL);
    close(d->pipe[0]);
}

// Lanes that have nothing to do fall asleep, and runs of other lanes do not wake them. What stops
// the process for a while, a debugger or a freezer, wakes every thread: a lane and one of no team
// alike.
static void test_idle_lanes(void **state) {
    (void)state;
    struct team *team;
    struct err e;
    struct dormant dormant;
    struct stress stress = {.n_rounds = 10};
    struct sleeper sleepers[2] = {{.index = 1}, {.index = 3}};
    assert_int_equal(team_open(&team, 4, true, &e), OK);
    for (int i = 0; i < 2; i++) {
        team_run(team, note_thread, &sleepers[i]);
        while (status_of(sleepers[i].thread, "State") != 'S') sched_yield();
    }
    start_dormant(&dormant);
    const long before = n_sleeps(sleepers[1].thread) - n_sleeps(dormant.id);
    team_use(team, 2);
    for (int run = 0; run < 100; run++) team_run(team, stress_lane, &stress);
    assert_int_equal(n_sleeps(sleepers[1].thread) - n_sleeps(dormant.id), before);
    assert_int_equal(status_of(sleepers[1].thread, "State"), 'S');
    end_dormant(&dormant);
    team_use(team, 4);
    team_run(team, stress_lane, &stress);
    assert_int_equal(stress.n_wrong, 0);
    team_close(team);
}

static void stack_of(const struct lane *lane, void *context) {
    uint64_t *bytes = context;
    pthread_attr_t attr;
    size_t size = 0;
    assert_int_equal(pthread_getattr_np(pthread_self(), &attr), 0);
    assert_int_equal(pthread_attr_getstacksize(&attr, &size), 0);
    pthread_attr_destroy(&attr);
    bytes[lane->index] = size;
}

// Threads have room for the kernels where the system gives threads little, as macOS does.
static void test_stacks(void **state) {
    (void)state;
    pthread_attr_t given, small;
    uint64_t bytes[3] = {0};
    struct team *team = NULL;
    struct err e;
    assert_int_equal(pthread_getattr_default_np(&given), 0);
    assert_int_equal(pthread_attr_init(&small), 0);
    assert_int_equal(pthread_attr_setstacksize(&small, MIB / 2), 0);
    assert_int_equal(pthread_setattr_default_np(&small), 0);
    assert_int_equal(team_open(&team, 3, false, &e), OK);
    team_run(team, stack_of, bytes);
    team_close(team);
    assert_int_equal(pthread_setattr_default_np(&given), 0);
    assert_true(bytes[1] >= 2 * MIB);
    assert_true(bytes[2] >= 2 * MIB);
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
    assert_in_range(n, 1, cores.n_fast);
    core_list_close(&cores);
}

// The order of processors on an invented machine, as "0 2 4 ...".
static void check_order(const char *machine, const char *fast, const char *allowed_text,
                        const char *order, int32_t n_cores, int32_t n_fast) {
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
        cmocka_unit_test(test_books),
        cmocka_unit_test(test_mapped_memory_counts),
        cmocka_unit_test(test_mapped_weights_leave_room),
        cmocka_unit_test(test_too_much_memory),
        cmocka_unit_test(test_copies_and_order),
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_calls),
        cmocka_unit_test(test_times),
        cmocka_unit_test(test_long_lists),
        cmocka_unit_test(test_events_between_devices),
        cmocka_unit_test(test_idle_events),
        cmocka_unit_test(test_ops_compute),
        cmocka_unit_test(test_nothing_is_allocated_while_running),
        cmocka_unit_test(test_every_refused_allocation),
        cmocka_unit_test(test_cpu_info),
        cmocka_unit_test(test_isa_beyond_the_cpu),
        cmocka_unit_test(test_levels_that_pay),
        cmocka_unit_test(test_levels_of_arm),
        cmocka_unit_test(test_barriers),
        cmocka_unit_test(test_taken_once),
        cmocka_unit_test(test_items_of_lanes),
        cmocka_unit_test(test_late_lane),
        cmocka_unit_test(test_slow_lane),
        cmocka_unit_test(test_idle_lanes),
        cmocka_unit_test(test_stacks),
        cmocka_unit_test(test_too_many_threads),
        cmocka_unit_test(test_binding),
        cmocka_unit_test(test_default_team),
        cmocka_unit_test(test_order_of_cores),
        cmocka_unit_test(test_plain_order_of_cores),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* test_device.c: the promises of device.h, held by the CPU and by the simulated accelerator, and
 * the levels of the CPU. The simulated one's own are in test_sim.c. */
// link: wrap-alloc
#include "base/clock.h"
#include "base/host.h"
#include "base/mem.h"
#include "kernels/cpu/device/cpu_device.h"
#include "kernels/cpu/device/table.h"
#include "kernels/device.h"
#include "kernels/op_command.h"
#include "tests/lib/alloc_fail.h"
#include "tests/lib/open_device.h"
#include "tests/lib/thread_status.h"
#include "tests/sim/sim_device.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
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

// The CPU's memory is there once it is promised: every page of it is taken.
static void test_pages_are_taken(void **state) {
    (void)state;
    static unsigned char resident[1024];
    struct device *d = open_cpu(1, 1);
    const uint64_t page_bytes = (uint64_t)sysconf(_SC_PAGESIZE);
    struct buffer b = new_buffer(d, 1000 * page_bytes, PURPOSE_KV);
    assert_int_equal(mincore(b.base, 1000 * page_bytes, resident), 0);
    for (int i = 0; i < 1000; i++) assert_true(resident[i] & 1);
    buffer_free(&b);
    device_close(d);
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
    table.swiglu(&(struct lane){.count = 1}, &(struct swiglu_args){.out = expected,
                                                                   .gate = gate,
                                                                   .up = up,
                                                                   .n_rows = 1,
                                                                   .n_cols = N,
                                                                   .stride = N,
                                                                   .up_stride = N});
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

// A lane that takes part in an op falls asleep once more after it.
static int32_t lanes_of_run(struct stream *s, float *x, const pid_t *workers, int32_t n) {
    long before[8];
    int32_t n_lanes = 1; // the caller
    for (int32_t i = 0; i < n; i++) {
        while (thread_status(workers[i], "State") != 'S') usleep(100);
        before[i] = thread_sleeps(workers[i]);
    }
    swiglu(s, x, x, x, 5000);
    wait_ok(s);
    for (int32_t i = 0; i < n; i++) {
        while (thread_status(workers[i], "State") != 'S') usleep(100);
        n_lanes += thread_sleeps(workers[i]) != before[i];
    }
    return n_lanes;
}

// How many lanes an op runs on. What stops the process for a while sends every thread to sleep once
// more, so the least of some runs counts.
static int32_t lanes_of_op(struct stream *s, float *x, const pid_t *workers, int32_t n) {
    int32_t least = n + 1;
    for (int run = 0; run < 5; run++) {
        const int32_t n_lanes = lanes_of_run(s, x, workers, n);
        if (n_lanes < least) least = n_lanes;
    }
    return least;
}

// One token runs on the threads of -t, more of them on those of -tb, whichever are more.
static void test_hints_choose_lanes(void **state) {
    (void)state;
    static const int32_t sizes[][2] = {{2, 4}, {4, 2}, {1, 3}, {3, 3}};
    static const int32_t n_tokens[] = {1, 2, 1, 512, 1};
    static float x[5000];
    pid_t known[8], workers[8];
    const int32_t n_known = threads_but(NULL, 0, known, 8);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct device *d = open_cpu(sizes[i][0], sizes[i][1]);
        struct stream *s = new_stream(d, STREAM_COMPUTE);
        const int32_t n = threads_but(known, n_known, workers, 8);
        assert_int_equal(n + 1, sizes[i][sizes[i][1] > sizes[i][0]]);
        for (size_t t = 0; t < sizeof n_tokens / sizeof *n_tokens; t++) {
            device_batch_hint(d, n_tokens[t]);
            assert_int_equal(lanes_of_op(s, x, workers, n), sizes[i][n_tokens[t] > 1]);
        }
        stream_free(s);
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
    assert_int_equal(cpu_isa_pays(ISA_AVX512BF16), cpu_isa_pays(ISA_ZEN4));
    assert_true(cpu_isa_pays(cpu_best_isa()));
    assert_int_equal(cpu_table_open(&table, ISA_AUTO, &e), OK);
    const bool pairs = !strcmp(table.matmul_path[WEIGHT_BF16], cpu_isa_name(ISA_AVX512BF16));
    assert_int_equal(pairs, cpu_has_isa(ISA_AVX512BF16) && cpu_isa_pays(ISA_AVX512BF16));
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

// A lane's share of a matrix begins with the row behind those of the lanes before it; a matrix that
// several groups of tokens pass has no such place, nor has the definition.
static void test_first_weights(void **state) {
    (void)state;
    struct cpu_table table;
    const char *weight = (const char *)(uintptr_t)4096;
    struct op_command c = {.op = OP_matmul, .weight = WEIGHT_Q8_0};
    c.args.matmul = (struct matmul_args){
        .weight = weight, .n_tokens = 1, .n_cols = 2048, .row_first = 64, .row_count = 4096};
    const int64_t row_bytes = 2048 / 32 * 34;
    cpu_table_init(&table, cpu_best_isa());
    for (int32_t i = 0; i < 4; i++) {
        const struct lane lane = {.index = i, .count = 4};
        assert_ptr_equal(cpu_first_weight(&table, &lane, &c), weight + (64 + 1024 * i) * row_bytes);
    }
    c.args.matmul.n_tokens = 4096;
    assert_null(cpu_first_weight(&table, &(struct lane){.count = 4}, &c));
    cpu_table_init(&table, ISA_REF);
    c.args.matmul.n_tokens = 1;
    assert_null(cpu_first_weight(&table, &(struct lane){.count = 4}, &c));
}

// The second and the last of four experts are used, in slots 2 and 0; three lanes share their 48
// tiles in fourteenths.
static void test_first_weights_of_experts(void **state) {
    (void)state;
    static const int32_t SLOTS[] = {1, 2, 3, 0}, STARTS[] = {0, 0, 1, 1, 2}, ORDER[] = {0, 1};
    struct cpu_table table;
    const char *weight = (const char *)(uintptr_t)4096;
    struct op_command c = {.op = OP_matmul_experts, .weight = WEIGHT_Q8_0};
    c.args.matmul_experts = (struct matmul_experts_args){.weight = weight,
                                                         .slots = SLOTS,
                                                         .starts = STARTS,
                                                         .order = ORDER,
                                                         .slot_bytes = 1 << 20,
                                                         .n_tokens = 1,
                                                         .n_used = 2,
                                                         .n_experts = 4,
                                                         .n_cols = 2048,
                                                         .n_rows = 768,
                                                         .row_first = 192,
                                                         .row_count = 384};
    const int64_t row_bytes = 2048 / 32 * 34;
    cpu_table_init(&table, cpu_best_isa());
    const struct lane lanes[] = {{.count = 3}, {.index = 1, .count = 3}, {.index = 2, .count = 3}};
    assert_ptr_equal(cpu_first_weight(&table, &lanes[0], &c), weight + (2 << 20) + 192 * row_bytes);
    assert_ptr_equal(cpu_first_weight(&table, &lanes[1], &c),
                     weight + (2 << 20) + (192 + 224) * row_bytes);
    assert_ptr_equal(cpu_first_weight(&table, &lanes[2], &c), weight + (192 + 128) * row_bytes);
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_books),
        cmocka_unit_test(test_pages_are_taken),
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
        cmocka_unit_test(test_hints_choose_lanes),
        cmocka_unit_test(test_nothing_is_allocated_while_running),
        cmocka_unit_test(test_every_refused_allocation),
        cmocka_unit_test(test_cpu_info),
        cmocka_unit_test(test_isa_beyond_the_cpu),
        cmocka_unit_test(test_levels_that_pay),
        cmocka_unit_test(test_first_weights),
        cmocka_unit_test(test_first_weights_of_experts),
        cmocka_unit_test(test_levels_of_arm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

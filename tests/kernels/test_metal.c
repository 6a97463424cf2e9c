/* test_metal.c: the Metal backend on the look-alike Metal: opening and all that may refuse it,
 * kernels that do not compile, memory, copies, calls, events, command buffers, failures, and waits
 * that end. The numbers that kernels compute are check_ops's. */
// link: wrap-alloc
#include "base/clock.h"
#include "base/mem.h"
#include "kernels/cpu/device/cpu_device.h"
#include "kernels/metal/metal_backend.h"
#include "kernels/metal/metal_device.h"
#include "kernels/metal/params.h"
#include "tests/lib/alloc_fail.h"
#include "tests/lib/find_emulator.h"
#include "tests/lib/in_child.h"
#include "tests/lib/open_device.h"

#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define MIB (UINT64_C(1) << 20)

enum { CLOCK_COMMANDS = 8 }; // command buffers that opening a device runs, all empty

// ---- The emulated machine ----------------------------------------------------------------------

// Every variable of the look-alike, unset before each test.
static const char *const VARIABLES[] = {
    "DEVICES",     "NAME",       "FAMILY",      "UNIFIED",       "MEMORY",        "BUFFER",
    "WIDTH",       "THREADS",    "SEED",        "FAIL_LIBRARY",  "FAIL_FUNCTION", "FAIL_PIPELINE",
    "FAIL_QUEUE",  "FAIL_EVENT", "FAIL_BUFFER", "FAIL_COMMANDS", "FAIL_COMPUTE",  "FAIL_BLIT",
    "FAIL_KERNEL", "FAIL_COPY",  "FAIL_MEMORY", "FAIL_STALL",
};

static void emulate(const char *name, const char *value) {
    char full[64];
    snprintf(full, sizeof full, "EMU_METAL_%s", name);
    for (size_t i = 0; i < sizeof VARIABLES / sizeof *VARIABLES; i++) {
        if (strcmp(VARIABLES[i], name)) continue;
        if (value)
            setenv(full, value, 1);
        else
            unsetenv(full);
        return;
    }
    fail_msg("%s is not in the list of variables", name);
}

static int plain_machine(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof VARIABLES / sizeof *VARIABLES; i++) emulate(VARIABLES[i], NULL);
    alloc_fail_at(0);
    return 0;
}

static void fail_at(const char *what, int n) {
    char name[32], text[16];
    snprintf(name, sizeof name, "FAIL_%s", what);
    snprintf(text, sizeof text, "%d", n);
    emulate(name, text);
}

static struct metal_options emulated(void) {
    struct metal_options o = {0};
    if (!find_metal(o.driver, sizeof o.driver)) fail_msg("the look-alike Metal is gone");
    return o;
}

static struct device *open_with(const struct metal_options *o) {
    struct device *d = NULL;
    struct err e = {0};
    char text[1024];
    if (metal_device_open(&d, o, NULL, &e) != OK) fail_msg("%s", err_text(&e, text, sizeof text));
    return d;
}

static struct device *open_device(void) {
    const struct metal_options o = emulated();
    return open_with(&o);
}

// Opening fails with that status, and its text has both words.
static void refused_with(const struct metal_options *o, enum status status, const char *word,
                         const char *other) {
    struct device *d = NULL;
    struct err e = {0};
    char text[1024];
    assert_int_equal(metal_device_open(&d, o, NULL, &e), status);
    assert_null(d);
    err_text(&e, text, sizeof text);
    if (!strstr(text, word) || !strstr(text, other))
        fail_msg("wanted \"%s\" and \"%s\" in: %s", word, other, text);
}

static void refused(enum status status, const char *word, const char *other) {
    const struct metal_options o = emulated();
    refused_with(&o, status, word, other);
}

// Encodes a kernel that copies, whatever the stream has.
static void move(struct stream *s, void *target, const void *source, uint64_t size_bytes) {
    const struct move_params p = {.target = target,
                                  .source = source,
                                  .row_bytes = (int64_t)size_bytes,
                                  .unit_bytes = 1,
                                  .n_rows = 1};
    const uint32_t n_chunks = (uint32_t)((size_bytes + MOVE_BYTES - 1) / MOVE_BYTES);
    metal_add((struct metal_stream *)s, METAL_move_rows,
              (struct metal_grid){n_chunks, 1, 1, MOVE_THREADS, 0}, &p, sizeof p);
}

static void fill(uint8_t *bytes, uint64_t size_bytes, int seed) {
    for (uint64_t i = 0; i < size_bytes; i++)
        bytes[i] = (uint8_t)(i * 7 + i / 251 + (uint64_t)seed * 13);
}

// ---- Opening -----------------------------------------------------------------------------------

static void test_spec(void **state) {
    (void)state;
    struct metal_options o;
    struct err e;
    assert_int_equal(metal_options_parse(&o, "", &e), OK);
    assert_int_equal(o.index, 0);
    assert_int_equal(metal_options_parse(&o, "3", &e), OK);
    assert_int_equal(o.index, 3);
    assert_int_equal(metal_options_parse(&o, "index=1,driver=/x,source=/y,matrix=0", &e), OK);
    assert_int_equal(o.index, 1);
    assert_string_equal(o.driver, "/x");
    assert_string_equal(o.source, "/y");
    assert_true(o.no_matrices);
    static const char *const wrong[] = {"x",     "-1",        "index=", "index=1x", "matrix=2",
                                        "gpu=1", "index=256", "matrix", "="};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_int_equal(metal_options_parse(&o, wrong[i], &e), ERR_USAGE);
    char text[400] = "source=";
    memset(text + 7, 'a', sizeof text - 8);
    text[sizeof text - 1] = 0;
    assert_int_equal(metal_options_parse(&o, text, &e), ERR_USAGE);
}

static void test_no_metal(void **state) {
    (void)state;
    struct metal_options o = {0};
    refused_with(&o, ERR_UNSUPPORTED, "no Metal on this machine", "Apple silicon");
    snprintf(o.driver, sizeof o.driver, "libm.so.6"); // a library that is not Metal
    refused_with(&o, ERR_DEVICE, "lacks the call objc_getClass", "macOS");
}

static void test_refused_devices(void **state) {
    (void)state;
    emulate("DEVICES", "0");
    refused(ERR_UNSUPPORTED, "finds no GPU", "virtual machine");
    emulate("DEVICES", "2");
    struct metal_options o = emulated();
    o.index = 1;
    device_close(open_with(&o));
    o.index = 2;
    refused_with(&o, ERR_USAGE, "no GPU number 2", "0 to 1");
    emulate("UNIFIED", "0");
    emulate("NAME", "AMD Radeon Pro 5500M");
    refused(ERR_UNSUPPORTED, "AMD Radeon Pro 5500M is no GPU of Apple silicon", "--device none");
    plain_machine(NULL);
    emulate("FAMILY", "0");
    refused(ERR_UNSUPPORTED, "no GPU of Apple silicon", "--device none");
    plain_machine(NULL);
    emulate("WIDTH", "64");
    refused(ERR_DEVICE, metal_kernel_name(0), "simdgroups of 32 threads, got 64");
    plain_machine(NULL);
    emulate("BUFFER", "4K");
    refused(ERR_DEVICE, "makes no buffers", "");
}

static void test_info(void **state) {
    (void)state;
    emulate("MEMORY", "256M");
    emulate("NAME", "Apple M2");
    emulate("FAMILY", "8");
    struct device *d = open_device();
    assert_string_equal(d->info.name, "Apple M2");
    assert_string_equal(d->info.kind, "metal");
    assert_string_equal(d->info.capability, "Apple8");
    assert_int_equal(d->info.capacity_bytes, 256 * MIB);
    assert_true(d->info.free_bytes > 230 * MIB && d->info.free_bytes <= 240 * MIB);
    assert_int_equal(device_free_bytes(d), d->info.free_bytes);
    assert_false(d->info.is_host);
    assert_true(d->info.reaches_host && d->info.rounds_by_batch && d->info.unified);
    assert_non_null(strstr(d->info.driver, "macOS"));
    assert_non_null(strstr(d->info.details, "with simdgroup matrices"));
    assert_true(metal_of(d)->features.has_simdgroup_matrix);
    assert_int_equal(metal_of(d)->features.max_threadgroup_bytes, 32768);
    device_close(d);
    struct metal_options o = emulated();
    o.no_matrices = true;
    d = open_with(&o);
    assert_false(metal_of(d)->features.has_simdgroup_matrix);
    device_close(d);
    emulate("FAMILY", "6");
    d = open_device();
    assert_false(metal_of(d)->features.has_simdgroup_matrix);
    assert_non_null(strstr(d->info.details, "without simdgroup matrices"));
    device_close(d);
}

// ---- Kernels that do not compile ---------------------------------------------------------------

// Opens a device with kernels that are refused; the log gets all that Metal says.
static void compile(const struct metal_options *o, const char *word, const char *in_log) {
    char text[4096] = "";
    FILE *out = fmemopen(text, sizeof text, "w");
    const struct log log = {.out = out, .level = LOG_WARN};
    struct device *d = NULL;
    struct err e = {0};
    assert_int_equal(metal_device_open(&d, o, &log, &e), ERR_DEVICE);
    assert_null(d);
    fclose(out);
    if (!strstr(e.what, word)) fail_msg("wanted \"%s\" in: %s", word, e.what);
    if (!strstr(text, in_log)) fail_msg("wanted \"%s\" in the log: %s", in_log, text);
    assert_true(e.fix[0]);
}

static void test_refused_kernels(void **state) {
    (void)state;
    struct metal_options o = emulated();
    emulate("FAIL_LIBRARY", "1");
    compile(&o,
            "the kernels do not compile: kernels/metal/norm.metal:12:5: error: use of undeclared",
            "simd_som(sum);\n");
    plain_machine(NULL);
    fail_at("PIPELINE", METAL_move_rows + 1);
    compile(&o, "the kernel move_rows is refused: Compiler encountered an internal error", "");
    plain_machine(NULL);
    fail_at("FUNCTION", METAL_move_rows + 1);
    refused(ERR_DEVICE, "Metal finds no kernel move_rows", "");
}

// A file of kernels in place of the program's: the line of its error is named.
static void test_source_of_file(void **state) {
    (void)state;
    struct metal_options o = emulated();
    snprintf(o.source, sizeof o.source, "/tmp/test_metal_XXXXXX");
    const int file = mkstemp(o.source);
    static const char text[] = "// a file {\n"
                               "#line 40 \"kernels/metal/own.metal\"\n"
                               "kernel void own(uint i [[thread_index_in_threadgroup]) {\n"
                               "}\n";
    assert_true(file >= 0);
    assert_int_equal(write(file, text, sizeof text - 1), sizeof text - 1);
    assert_int_equal(close(file), 0);
    compile(&o, "do not compile: kernels/metal/own.metal:40:54: error: expected ']'", ": ) {\n");
    unlink(o.source);
    struct device *d = NULL;
    struct err e = {0};
    assert_int_equal(metal_device_open(&d, &o, NULL, &e), ERR_FILE);
}

static void test_announced(void **state) {
    (void)state;
    char text[4096] = "";
    FILE *out = fmemopen(text, sizeof text, "w");
    const struct log log = {.out = out, .level = LOG_INFO};
    const struct metal_options o = emulated();
    struct device *d;
    struct err e = {0};
    assert_int_equal(metal_device_open(&d, &o, &log, &e), OK);
    fclose(out);
    assert_non_null(strstr(text, "compiling"));
    assert_non_null(strstr(text, "kernels compiled in"));
    device_close(d);
}

// ---- Memory ------------------------------------------------------------------------------------

static void test_buffers(void **state) {
    (void)state;
    emulate("MEMORY", "128M");
    struct device *d = open_device();
    struct buffer a = new_buffer(d, 5 * MIB + 1, PURPOSE_SCRATCH), b;
    struct err e = {0};
    assert_int_equal((uintptr_t)a.base % d->info.align_bytes, 0);
    assert_int_equal(device_used_bytes(d), 5 * MIB + 1);
    assert_true(device_free_bytes(d) < d->info.free_bytes - 5 * MIB);
    assert_int_equal(buffer_new(d, d->info.free_bytes, PURPOSE_WEIGHTS, &b, &e), ERR_MEMORY);
    assert_non_null(strstr(e.what, "no memory for weights"));
    assert_true(e.fix[0]);
    // All that was promised is there.
    b = new_buffer(d, d->info.free_bytes - 5 * MIB - 1, PURPOSE_SCRATCH);
    buffer_free(&a);
    buffer_free(&b);
    assert_int_equal(device_free_bytes(d), d->info.free_bytes);
    device_close(d);
}

// Memory that is longer than a Metal buffer: all of it is reached, and copies cross the parts.
static void test_long_buffer(void **state) {
    (void)state;
    emulate("BUFFER", "1M");
    struct device *d = open_device();
    struct metal_memory *memory = &metal_of(d)->memory;
    enum { SIZE = 5 << 20, HALF = 1 << 19 };
    struct buffer a = new_buffer(d, SIZE, PURPOSE_SCRATCH),
                  b = new_buffer(d, SIZE, PURPOSE_SCRATCH);
    struct stream *s = new_stream(d, STREAM_COMPUTE);
    char *base = a.base;
    for (uint64_t at = 0; at < SIZE; at += 4099) {
        const struct metal_region *region = metal_memory_find(memory, base + at);
        assert_non_null(region);
        const uint64_t inside = (uint64_t)(base + at - region->base);
        const uint64_t left = SIZE - at;
        assert_true(region->reach_bytes - inside >= (left < HALF ? left : HALF));
        assert_ptr_equal(region->owner, base);
    }
    assert_null(metal_memory_find(memory, base + SIZE));
    assert_true(metal_memory_holds(memory, base, SIZE));
    assert_true(metal_memory_holds(memory, base + 1, SIZE - 1));
    assert_false(metal_memory_holds(memory, base + 1, SIZE));
    fill(a.base, SIZE, 1);
    move(s, b.base, a.base, 4); // so that the copy is Metal's
    stream_copy(s, b.base, a.base, SIZE, COPY_WITHIN);
    wait_ok(s);
    assert_memory_equal(a.base, b.base, SIZE);
    stream_free(s);
    buffer_free(&b);
    assert_true(metal_memory_holds(memory, base, SIZE));
    buffer_free(&a);
    assert_null(metal_memory_find(memory, base));
    device_close(d);
}

// Registered memory need not fill whole pages, and its neighbours in a page are not reached.
static void test_registered_memory(void **state) {
    (void)state;
    struct device *d = open_device();
    const struct metal_memory *memory = &metal_of(d)->memory;
    const int32_t before = memory->n_regions;
    char *pages = mem_map_pages(4 * 4096);
    assert_true(device_host_register(d, pages + 100, 5000));
    assert_true(device_host_register(d, pages + 5100, 1000)); // the next one in the same page
    assert_null(metal_memory_find(memory, pages + 99));
    assert_true(metal_memory_holds(memory, pages + 100, 5000));
    assert_false(metal_memory_holds(memory, pages + 100, 5001));
    assert_int_equal(metal_memory_find(memory, pages + 5200)->owner == pages + 5100, 1);
    assert_true(metal_memory_holds(memory, pages + 5100, 1000));
    device_host_unregister(d, pages + 100);
    assert_null(metal_memory_find(memory, pages + 100));
    assert_true(metal_memory_holds(memory, pages + 5100, 1000));
    device_host_unregister(d, pages + 5100);
    device_host_unregister(d, pages); // never registered
    assert_int_equal(memory->n_regions, before);
    mem_unmap_pages(pages, 4 * 4096);
    device_close(d);
}

// ---- Copies, calls and events ------------------------------------------------------------------

// Bytes go there, about and back, on three streams held together by events. Long ones are Metal's,
// short ones a kernel's, and with memory that the GPU does not reach the host's.
static void copy_about(uint64_t size_bytes, bool registered, uint64_t skew) {
    struct device *d = open_device();
    struct stream *in = new_stream(d, STREAM_COPY_IN), *out = new_stream(d, STREAM_COPY_OUT);
    struct stream *compute = new_stream(d, STREAM_COMPUTE);
    struct buffer a = new_buffer(d, size_bytes + skew, PURPOSE_SCRATCH),
                  b = new_buffer(d, size_bytes, PURPOSE_SCRATCH);
    struct event arrived = new_event(d), moved = new_event(d), left = new_event(d);
    struct err e = {0};
    assert_int_equal(event_wait(&arrived, &e), OK); // never recorded: done
    uint8_t *source = mem_map_pages(size_bytes), *target = mem_map_pages(size_bytes);
    assert_true(source && target);
    if (registered) assert_true(device_host_register(d, source, size_bytes));
    if (registered) assert_true(device_host_register(d, target, size_bytes));
    char *at = (char *)a.base + skew;
    for (int round = 0; round < 5; round++) {
        fill(source, size_bytes, round);
        stream_wait_event(in, &moved);
        stream_copy(in, at, source, size_bytes, COPY_TO_DEVICE);
        stream_record(in, &arrived);
        stream_wait_event(compute, &arrived);
        stream_wait_event(compute, &left);
        stream_copy(compute, b.base, at, size_bytes, COPY_WITHIN);
        stream_record(compute, &moved);
        stream_wait_event(out, &moved);
        stream_copy(out, target, b.base, size_bytes, COPY_FROM_DEVICE);
        stream_record(out, &left);
        wait_ok(out);
        assert_memory_equal(source, target, size_bytes);
    }
    assert_int_equal(event_wait(&moved, &e), OK);
    device_host_unregister(d, source);
    device_host_unregister(d, target);
    event_free(&arrived);
    event_free(&moved);
    event_free(&left);
    stream_free(in);
    stream_free(out);
    stream_free(compute);
    buffer_free(&a);
    buffer_free(&b);
    mem_unmap_pages(source, size_bytes);
    mem_unmap_pages(target, size_bytes);
    device_close(d);
}

static void test_copies(void **state) {
    (void)state;
    static const uint64_t sizes[] = {3 << 20, (3 << 20) + 2, 100000, 64, 5};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int registered = 0; registered < 2; registered++) {
            emulate("SEED", i % 2 ? "5" : NULL);
            copy_about(sizes[i], registered, i % 3);
        }
}

// Rows go there, about and back, at another distance each time; what lies between them stays.
static void copy_rows(uint64_t row_bytes, bool registered, bool busy) {
    enum { ROWS = 60, NEAR = 512, FAR = 1000 };
    const uint64_t row = row_bytes;
    struct device *d = open_device();
    struct stream *s = new_stream(d, STREAM_COPY_IN);
    struct buffer a = new_buffer(d, ROWS * NEAR, PURPOSE_SCRATCH),
                  b = new_buffer(d, ROWS * FAR, PURPOSE_SCRATCH);
    uint8_t *host = mem_map_pages(ROWS * (NEAR + FAR)), *source = host + ROWS * NEAR;
    fill(source, ROWS * FAR, 3);
    memset(host, 1, ROWS * NEAR);
    if (registered) assert_true(device_host_register(d, host, ROWS * (NEAR + FAR)));
    const struct row_copy in = {a.base, source, NEAR, FAR, row, ROWS},
                          about = {b.base, a.base, FAR, NEAR, row, ROWS},
                          out = {host, b.base, NEAR, FAR, row, ROWS};
    if (busy) move(s, a.base, b.base, 1);
    stream_copy_rows(s, &in, COPY_TO_DEVICE);
    if (busy) move(s, b.base, (char *)b.base + row, 1);
    stream_copy_rows(s, &about, COPY_WITHIN);
    stream_copy_rows(s, &out, COPY_FROM_DEVICE);
    wait_ok(s);
    for (int r = 0; r < ROWS; r++) {
        assert_memory_equal(host + r * NEAR, source + r * FAR, row);
        for (int i = (int)row; i < NEAR; i++) assert_int_equal(host[r * NEAR + i], 1);
    }
    const struct row_copy beyond = {(char *)a.base + NEAR, source, NEAR, FAR, row, ROWS};
    stream_copy_rows(s, &beyond, COPY_TO_DEVICE);
    wait_fails(s, "a copy to the device leaves its memory");
    stream_free(s);
    device_host_unregister(d, host);
    buffer_free(&a);
    buffer_free(&b);
    mem_unmap_pages(host, ROWS * (NEAR + FAR));
    device_close(d);
}

static void test_rows(void **state) {
    (void)state;
    for (int way = 0; way < 4; way++) {
        copy_rows(500, way & 1, way & 2);
        copy_rows(496, way & 1, way & 2);
        copy_rows(7, way & 1, way & 2);
    }
}

static void double_it(void *context) { *(int64_t *)context *= 2; }
static void increment(void *context) { *(int64_t *)context += 1; }

// A number comes from the device, a call of the host doubles it, and it goes back; another stream
// waits for that. More calls than wait at once.
static void test_calls(void **state) {
    (void)state;
    enum { ROUNDS = 20 };
    struct device *d = open_device();
    struct stream *s = new_stream(d, STREAM_COMPUTE), *other = new_stream(d, STREAM_COPY_OUT);
    struct buffer cell = new_buffer(d, 8, PURPOSE_SCRATCH);
    struct event changed = new_event(d), read = new_event(d);
    int64_t seen[ROUNDS], number = 1;
    stream_copy(s, cell.base, &number, 8, COPY_TO_DEVICE);
    for (int r = 0; r < ROUNDS; r++) {
        stream_wait_event(s, &read);
        stream_copy(s, &number, cell.base, 8, COPY_FROM_DEVICE);
        stream_call(s, double_it, &number);
        stream_copy(s, cell.base, &number, 8, COPY_TO_DEVICE);
        stream_record(s, &changed);
        stream_wait_event(other, &changed);
        stream_copy(other, &seen[r], cell.base, 8, COPY_FROM_DEVICE);
        stream_record(other, &read);
    }
    wait_ok(s);
    wait_ok(other);
    for (int r = 0; r < ROUNDS; r++) assert_int_equal(seen[r], INT64_C(2) << r);
    number = 1;
    for (int r = 0; r < 3 * METAL_JOBS; r++) stream_call(s, increment, &number);
    wait_ok(s);
    assert_int_equal(number, 3 * METAL_JOBS + 1);
    stream_free(s);
    stream_free(other);
    event_free(&changed);
    event_free(&read);
    buffer_free(&cell);
    device_close(d);
}

// Metal's clock is the host's here; another one is taken for what it is.
static void test_times(void **state) {
    (void)state;
    enum { N = 5 };
    struct device *d = open_device();
    struct stream *s = new_stream(d, STREAM_COPY_IN);
    struct buffer b = new_buffer(d, MIB, PURPOSE_SCRATCH);
    struct event events[N], never = new_event(d);
    struct err e = {0};
    uint64_t time_ns, last_ns = 0;
    for (int i = 0; i < N; i++) events[i] = new_event(d);
    assert_int_equal(metal_of(d)->clock_offset_ns, 0);
    const uint64_t begin_ns = clock_ns();
    for (int i = 0; i < N; i++) {
        move(s, b.base, (char *)b.base + MIB / 2, MIB / 2);
        stream_record(s, &events[i]);
    }
    wait_ok(s);
    const uint64_t end_ns = clock_ns();
    for (int i = 0; i < N; i++) {
        assert_int_equal(event_time(&events[i], &time_ns, &e), OK);
        assert_true(time_ns + 1000 >= begin_ns && time_ns <= end_ns + 1000);
        assert_true(time_ns >= last_ns);
        last_ns = time_ns;
    }
    metal_of(d)->clock_offset_ns = 5000000;
    assert_int_equal(event_time(&events[N - 1], &time_ns, &e), OK);
    assert_int_equal(time_ns, last_ns + 5000000);
    assert_int_equal(event_time(&never, &time_ns, &e), OK);
    assert_int_equal(time_ns, 0);
    for (int i = 0; i < N; i++) event_free(&events[i]);
    event_free(&never);
    stream_free(s);
    buffer_free(&b);
    device_close(d);
}

// The CPU waits for the GPU, and the GPU for the CPU.
static void test_events_of_two_devices(void **state) {
    (void)state;
    const struct cpu_options options = {.isa = ISA_REF, .n_threads = 1, .no_bind = true};
    struct device *gpu = open_device(), *cpu;
    struct err e = {0};
    assert_int_equal(device_open_cpu(&cpu, &options, NULL, &e), OK);
    struct stream *on_gpu = new_stream(gpu, STREAM_COMPUTE),
                  *on_cpu = new_stream(cpu, STREAM_COMPUTE);
    struct buffer there = new_buffer(gpu, 64, PURPOSE_SCRATCH),
                  behind = new_buffer(gpu, 64, PURPOSE_SCRATCH);
    struct event sent = new_event(gpu), ready = new_event(cpu);
    float a[16], b[16] = {0}, c[16] = {0};
    for (int i = 0; i < 16; i++) a[i] = (float)i - 3;
    stream_copy(on_cpu, b, a, sizeof a, COPY_WITHIN);
    stream_record(on_cpu, &ready);
    stream_flush(on_cpu);
    stream_wait_event(on_gpu, &ready);
    stream_copy(on_gpu, there.base, b, sizeof b, COPY_TO_DEVICE);
    move(on_gpu, behind.base, there.base, sizeof b);
    memset(b, 0, sizeof b);
    stream_copy(on_gpu, b, behind.base, sizeof b, COPY_FROM_DEVICE);
    stream_record(on_gpu, &sent);
    stream_wait_event(on_cpu, &sent);
    stream_copy(on_cpu, c, b, sizeof b, COPY_WITHIN);
    wait_ok(on_cpu);
    assert_memory_equal(a, c, sizeof a);
    stream_free(on_cpu);
    stream_free(on_gpu);
    event_free(&sent);
    event_free(&ready);
    buffer_free(&there);
    buffer_free(&behind);
    device_close(cpu);
    device_close(gpu);
}

// ---- Command buffers ---------------------------------------------------------------------------

// One command buffer takes all until a flush, or until it is long; then the next one begins.
static void test_command_buffers(void **state) {
    (void)state;
    struct device *d = open_device();
    struct stream *s = new_stream(d, STREAM_COMPUTE);
    struct metal_stream *own = (struct metal_stream *)s;
    struct buffer b = new_buffer(d, 4096, PURPOSE_SCRATCH);
    uint8_t *bytes = b.base;
    memset(bytes, 0, 4096);
    bytes[0] = 9;
    for (int i = 0; i < METAL_DISPATCHES - 1; i++) move(s, bytes + i + 1, bytes + i, 1);
    assert_int_equal(own->n_dispatches, METAL_DISPATCHES - 1);
    assert_int_equal(own->n_running, 0);
    move(s, bytes + METAL_DISPATCHES, bytes + METAL_DISPATCHES - 1, 1);
    assert_int_equal(own->n_dispatches, 0);
    assert_null(own->commands);
    move(s, bytes + METAL_DISPATCHES + 1, bytes + METAL_DISPATCHES, 1);
    wait_ok(s);
    assert_int_equal(own->n_running, 0);
    for (int i = 0; i < METAL_DISPATCHES + 2; i++) assert_int_equal(bytes[i], 9);
    assert_int_equal(bytes[METAL_DISPATCHES + 2], 0);
    for (int i = 0; i < 3 * METAL_RUNNING; i++) { // more than may be under way
        move(s, bytes + i + 1, bytes + i, 1);
        stream_flush(s);
        assert_true(own->n_running <= METAL_RUNNING);
    }
    move(s, bytes, bytes + 1, 0); // a grid of nothing
    assert_null(own->commands);
    wait_ok(s);
    stream_free(s);
    buffer_free(&b);
    device_close(d);
}

// ---- Failures ----------------------------------------------------------------------------------

// A kernel that the device does not take fails its stream, not the device.
static void test_refused_dispatch(void **state) {
    (void)state;
    emulate("THREADS", "64");
    struct device *d = open_device();
    struct stream *s = new_stream(d, STREAM_COMPUTE), *other = new_stream(d, STREAM_COPY_IN);
    struct buffer b = new_buffer(d, 4096, PURPOSE_SCRATCH);
    move(s, b.base, (char *)b.base + 64, 16);
    wait_fails(s, "the kernel move_rows takes 128 threads of 64");
    stream_free(s);
    device_close(NULL);
    static char elsewhere[64];
    const struct move_params p = {.target = b.base, .source = elsewhere, .n_rows = 1};
    metal_add((struct metal_stream *)other, METAL_move_rows, (struct metal_grid){1, 1, 1, 32, 0},
              &p, sizeof p);
    wait_fails(other, "pointer 1 of the kernel move_rows leaves its memory");
    stream_free(other);
    s = new_stream(d, STREAM_COMPUTE);
    stream_copy(s, b.base, elsewhere, 64, COPY_TO_DEVICE);
    wait_ok(s);
    stream_free(s);
    buffer_free(&b);
    device_close(d);
}

// A failure while a command buffer runs reaches all that waits for it, and every other stream.
static void test_failure_while_running(void **state) {
    (void)state;
    static const struct {
        const char *fault, *text;
    } faults[] = {{"KERNEL", "computing: Caused GPU Address Fault Error"},
                  {"COPY", "computing: Caused GPU Address Fault Error"},
                  {"MEMORY", "computing: Insufficient Memory"}};
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        plain_machine(NULL);
        fail_at(faults[i].fault, 1);
        struct device *d = open_device();
        struct stream *s = new_stream(d, STREAM_COMPUTE), *other = new_stream(d, STREAM_COPY_OUT);
        struct buffer a = new_buffer(d, 4 * MIB, PURPOSE_SCRATCH),
                      b = new_buffer(d, 4 * MIB, PURPOSE_SCRATCH);
        struct event done = new_event(d), late = new_event(d);
        struct err e = {0};
        int64_t number = 1;
        if (i == 1)
            ((struct metal_stream *)s)->n_dispatches = 0, metal_begin((struct metal_stream *)s);
        else
            move(s, b.base, a.base, 64);
        stream_copy(s, b.base, a.base, 4 * MIB, COPY_WITHIN);
        stream_record(s, &done);
        stream_wait_event(other, &done); // nobody signals it
        move(other, b.base, a.base, 64);
        stream_call(other, double_it, &number);
        stream_record(other, &late);
        assert_int_equal(event_wait(&late, &e), ERR_DEVICE);
        if (!strstr(e.what, faults[i].text)) fail_msg("%s", e.what);
        assert_true(e.fix[0]);
        wait_fails(s, faults[i].text);
        wait_fails(other, faults[i].text);
        wait_fails(s, faults[i].text); // it stays
        uint64_t time_ns = 0;
        assert_int_equal(event_time(&done, &time_ns, &e), ERR_DEVICE);
        stream_call(s, double_it, &number); // skipped
        wait_fails(s, faults[i].text);
        assert_int_equal(number, 1);
        event_free(&done);
        event_free(&late);
        stream_free(s);
        stream_free(other);
        buffer_free(&a);
        buffer_free(&b);
        device_close(d);
    }
}

// Metal gives no command buffer or encoder: at the call, and then nothing more is encoded.
static void test_failed_encoding(void **state) {
    (void)state;
    static const struct {
        const char *fault, *text;
        int n;
    } faults[] = {{"COMMANDS", "Metal gives no command buffer", CLOCK_COMMANDS + 1},
                  {"COMPUTE", "Metal gives no encoder for kernels", 1},
                  {"BLIT", "Metal gives no encoder for copies", 1}};
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        plain_machine(NULL);
        fail_at(faults[i].fault, faults[i].n);
        struct device *d = open_device();
        struct stream *s = new_stream(d, STREAM_COMPUTE), *other = new_stream(d, STREAM_COPY_IN);
        struct buffer a = new_buffer(d, 4 * MIB, PURPOSE_SCRATCH),
                      b = new_buffer(d, 4 * MIB, PURPOSE_SCRATCH);
        struct event done = new_event(d);
        struct err e = {0};
        fill(a.base, 4 * MIB, 1);
        memset(b.base, 0, 4 * MIB);
        if (i == 2) metal_begin((struct metal_stream *)s);
        if (i != 2) move(s, b.base, a.base, 64);
        stream_copy(s, b.base, a.base, 4 * MIB, COPY_WITHIN);
        stream_record(s, &done);
        wait_fails(s, faults[i].text);
        assert_int_equal(*(char *)b.base, 0);
        assert_int_equal(event_wait(&done, &e), ERR_DEVICE);
        uint64_t time_ns = 0;
        assert_int_equal(event_time(&done, &time_ns, &e), ERR_DEVICE);
        assert_non_null(strstr(e.what, faults[i].text));
        stream_wait_event(other, &done);
        wait_fails(other, faults[i].text); // and reaches who waits for it
        event_free(&done);
        stream_free(s);
        stream_free(other);
        buffer_free(&a);
        buffer_free(&b);
        device_close(d);
    }
}

// The log says it once. A later piece may still be reached, and copies go on.
static void test_refused_registration(void **state) {
    (void)state;
    enum { N_PIECES = 4, PIECE = 4096 };
    for (int all = 0; all < 2; all++) {
        char text[512] = "";
        FILE *out = fmemopen(text, sizeof text, "w");
        const struct log log = {.out = out, .level = LOG_WARN};
        const struct metal_options o = emulated();
        struct device *d;
        struct err e = {0};
        emulate("FAIL_BUFFER", all ? NULL : "3"); // one is the device's, one the buffer's
        assert_int_equal(metal_device_open(&d, &o, &log, &e), OK);
        struct buffer b = new_buffer(d, PIECE, PURPOSE_SCRATCH);
        struct stream *s = new_stream(d, STREAM_COPY_IN);
        char *memory = mem_map_pages(N_PIECES * PIECE);
        metal_of(d)->memory.limit_bytes = all ? 4096 : metal_of(d)->memory.limit_bytes;
        const int32_t n_regions = metal_of(d)->memory.n_regions;
        if (all) metal_of(d)->memory.n_regions = METAL_REGIONS; // the table is full
        for (int i = 0; i < N_PIECES; i++)
            assert_int_equal(device_host_register(d, memory + i * PIECE, PIECE), !all && i > 0);
        if (all) metal_of(d)->memory.n_regions = n_regions;
        fflush(out);
        const char *said = strstr(text, "the GPU does not reach 4096 bytes of memory");
        assert_non_null(said);
        assert_null(strstr(said + 1, "copies"));
        fill((uint8_t *)memory, PIECE, 2);
        move(s, b.base, (char *)b.base + 8, 8);
        stream_copy(s, b.base, memory, PIECE, COPY_TO_DEVICE);
        wait_ok(s);
        assert_memory_equal(b.base, memory, PIECE);
        for (int i = 0; i < N_PIECES; i++) device_host_unregister(d, memory + i * PIECE);
        stream_free(s);
        buffer_free(&b);
        device_close(d);
        mem_unmap_pages(memory, N_PIECES * PIECE);
        fclose(out);
    }
}

// Opens all that an engine opens. False if something was refused, with the reason in *e.
static bool open_everything(struct err *e) {
    const struct metal_options o = emulated();
    struct device *d = NULL;
    struct stream *streams[3] = {NULL};
    struct buffer buffer = {0};
    struct event event = {0};
    bool good = metal_device_open(&d, &o, NULL, e) == OK;
    for (int i = 0; i < 3 && good; i++)
        good = stream_new(d, (enum stream_kind)i, &streams[i], e) == OK;
    good = good && event_new(d, &event, e) == OK;
    good = good && buffer_new(d, MIB, PURPOSE_KV, &buffer, e) == OK;
    buffer_free(&buffer);
    event_free(&event);
    for (int i = 0; i < 3; i++) stream_free(streams[i]);
    device_close(d);
    return good;
}

// Every allocation of ours is refused in turn.
static void test_refused_host_memory(void **state) {
    (void)state;
    int n_refused = 0;
    for (int n = 1;; n++) {
        struct err e = {0};
        alloc_fail_at(n);
        bool good = open_everything(&e), happened = alloc_fail_happened();
        alloc_fail_at(0);
        if (!happened) break;
        assert_false(good);
        assert_int_equal(e.status, ERR_MEMORY);
        n_refused++;
    }
    assert_true(n_refused >= 8);
}

// Every call that gives an object is refused in turn: nothing is left behind, and the error says
// what is lacking.
static void test_refused_calls(void **state) {
    (void)state;
    enum { KERNELS_STEP = 73 };
    static const struct {
        const char *call;
        enum status status;
        int n;    // so many must fail, one by one
        int step; // of the calls that are tried; those for kernels are alike
        const char *word;
    } calls[] = {{"LIBRARY", ERR_DEVICE, 1, 1, "do not compile"},
                 {"FUNCTION", ERR_DEVICE, METAL_KERNEL_COUNT, KERNELS_STEP, "finds no kernel"},
                 {"PIPELINE", ERR_DEVICE, METAL_KERNEL_COUNT, KERNELS_STEP, "is refused"},
                 {"QUEUE", ERR_MEMORY, 4, 1, "command queue"},
                 {"EVENT", ERR_MEMORY, 4, 1, "shared event"},
                 {"BUFFER", ERR_MEMORY, 3, 1, "refuse"},
                 {"COMMANDS", ERR_DEVICE, CLOCK_COMMANDS, 1, "command buffer"}};
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        struct err e = {0};
        for (int n = 1; n <= calls[i].n; n += calls[i].step) {
            plain_machine(NULL);
            fail_at(calls[i].call, n);
            if (open_everything(&e)) fail_msg("%s %d was not refused", calls[i].call, n);
            assert_int_equal(e.status, calls[i].status);
            if (!strstr(e.what, calls[i].word)) fail_msg("%s: %s", calls[i].call, e.what);
        }
        plain_machine(NULL);
        fail_at(calls[i].call, calls[i].n + 1); // there are no more
        if (!open_everything(&e)) fail_msg("%s: %s", calls[i].call, e.what);
    }
}

// ---- A device that does not answer -------------------------------------------------------------

static void lost(struct device *d, enum status status, const struct err *e) {
    assert_int_equal(status, ERR_DEVICE);
    if (!strstr(e->what, d->info.name) || !strstr(e->what, "limit of 0.05 s"))
        fail_msg("%s", e->what);
    assert_true(d->lost);
}

enum way_to_wait { WAIT_STREAM, WAIT_EVENT, WAIT_ON_CPU, WAIT_FREE, WAIT_CALLS, WAIT_FULL, N_WAYS };

// A command buffer that never ends; everything else ends all the same.
static void wait_in_vain(void) {
    const struct cpu_options options = {.isa = ISA_REF, .n_threads = 1, .no_bind = true};
    fail_at("STALL", CLOCK_COMMANDS + 1);
    for (enum way_to_wait way = WAIT_STREAM; way < N_WAYS; way++) {
        struct device *d = open_device(), *cpu;
        struct stream *s = new_stream(d, STREAM_COPY_IN), *c = new_stream(d, STREAM_COMPUTE);
        struct stream *on_cpu;
        struct event event = new_event(d);
        struct buffer b = new_buffer(d, 4096, PURPOSE_SCRATCH), more;
        struct err e = {0};
        int64_t number = 1;
        static char host[64];
        assert_int_equal(device_open_cpu(&cpu, &options, NULL, &e), OK);
        on_cpu = new_stream(cpu, STREAM_COMPUTE);
        assert_true(d->wait_limit_s == DEVICE_WAIT_LIMIT_S);
        device_limit_waits(d, 0.05);
        move(s, b.base, (char *)b.base + 64, 64);
        stream_record(s, &event);
        stream_wait_event(c, &event);
        stream_wait_event(on_cpu, &event);
        if (way == WAIT_STREAM) lost(d, stream_wait(s, &e), &e);
        if (way == WAIT_EVENT) lost(d, event_wait(&event, &e), &e);
        if (way == WAIT_ON_CPU) lost(d, stream_wait(on_cpu, &e), &e);
        if (way == WAIT_CALLS)
            for (int i = 0; i < METAL_JOBS + 1; i++) stream_call(s, double_it, &number);
        if (way == WAIT_FULL)
            for (int i = 0; i < METAL_RUNNING + 2; i++) stream_record(c, &event);
        if (way == WAIT_FREE) stream_free(s);
        assert_true(d->lost);
        lost(d, event_wait(&event, &e), &e);
        move(c, b.base, (char *)b.base + 64, 64);
        stream_record(c, &event);
        lost(d, stream_wait(c, &e), &e);
        stream_copy(c, b.base, host, sizeof host, COPY_TO_DEVICE);
        uint64_t time_ns;
        lost(d, event_time(&event, &time_ns, &e), &e);
        lost(d, buffer_new(d, 64, PURPOSE_KV, &more, &e), &e);
        assert_int_equal(device_free_bytes(d), 0);
        assert_false(device_host_register(d, &e, sizeof e));
        device_host_unregister(d, &e);
        if (way != WAIT_FREE) stream_free(s);
        stream_free(c);
        stream_free(on_cpu);
        event_free(&event);
        buffer_free(&b);
        device_close(d);
        device_close(cpu);
        assert_int_equal(number, 1);
    }
}

static void test_waits_end(void **state) {
    (void)state;
    in_child(wait_in_vain);
}

int main(void) {
    char path[PATH_MAX];
    if (!find_metal(path, sizeof path)) {
        puts("1..1\nok 1 # SKIP there is no look-alike Metal (it needs x86-64 and a C++ compiler)");
        return 0;
    }
#define TEST(name) cmocka_unit_test_setup(name, plain_machine)
    const struct CMUnitTest tests[] = {
        TEST(test_spec),
        TEST(test_no_metal),
        TEST(test_refused_devices),
        TEST(test_info),
        TEST(test_refused_kernels),
        TEST(test_source_of_file),
        TEST(test_announced),
        TEST(test_buffers),
        TEST(test_long_buffer),
        TEST(test_registered_memory),
        TEST(test_copies),
        TEST(test_rows),
        TEST(test_calls),
        TEST(test_times),
        TEST(test_events_of_two_devices),
        TEST(test_command_buffers),
        TEST(test_refused_dispatch),
        TEST(test_failure_while_running),
        TEST(test_failed_encoding),
        TEST(test_refused_registration),
        TEST(test_refused_host_memory),
        TEST(test_refused_calls),
        TEST(test_waits_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

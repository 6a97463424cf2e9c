/* test_cuda.c: the CUDA backend on the emulated driver: opening and all that may refuse it, memory,
 * copies, calls, events, lists of launches and their graphs, the choice of kernels, and waits that
 * end. The numbers that kernels compute are check_ops's. */
// link: wrap-alloc
#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "kernels/cpu/device/cpu_device.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/cuda_device.h"
#include "tests/lib/alloc_fail.h"
#include "tests/lib/find_emulator.h"
#include "tests/lib/in_child.h"
#include "tests/lib/open_cuda.h"
#include "tests/lib/open_device.h"

#include <limits.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define MIB (UINT64_C(1) << 20)

// ---- The emulated machine ----------------------------------------------------------------------

// Every variable of the emulator, unset before each test.
static const char *const VARIABLES[] = {
    "EMU_CUDA_VRAM",          "EMU_CUDA_DEVICES",     "EMU_CUDA_CC",
    "EMU_CUDA_NAME",          "EMU_CUDA_DRIVER",      "EMU_CUDA_INIT",
    "EMU_CUDA_FAIL_ALLOC",    "EMU_CUDA_FAIL_MODULE", "EMU_CUDA_FAIL_LAUNCH",
    "EMU_CUDA_FAIL_COPY",     "EMU_CUDA_FAIL_KERNEL", "EMU_CUDA_FAIL_DMA",
    "EMU_CUDA_FAIL_STREAM",   "EMU_CUDA_FAIL_EVENT",  "EMU_CUDA_FAIL_CONTEXT",
    "EMU_CUDA_FAIL_REGISTER", "EMU_CUDA_FAIL_GRAPH",  "EMU_CUDA_H2D",
};

static int plain_machine(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof VARIABLES / sizeof *VARIABLES; i++) unsetenv(VARIABLES[i]);
    alloc_fail_at(0);
    return 0;
}

static void emulate(const char *name, const char *value) {
    char full[64];
    snprintf(full, sizeof full, "EMU_CUDA_%s", name);
    for (size_t i = 0; i < sizeof VARIABLES / sizeof *VARIABLES; i++)
        if (strcmp(VARIABLES[i], full) == 0) {
            setenv(full, value, 1);
            return;
        }
    fail_msg("%s is not in the list of variables", full);
}

static struct cuda_options emulated(void) {
    struct cuda_options o = {0};
    if (!find_emulator(o.driver, sizeof o.driver)) fail_msg("the emulator is gone");
    return o;
}

static struct device *open_with(const struct cuda_options *o) {
    struct device *d = NULL;
    struct err e = {0};
    char text[1024];
    if (cuda_device_open(&d, o, NULL, &e) != OK) fail_msg("%s", err_text(&e, text, sizeof text));
    return d;
}

static struct device *open_device(void) {
    const struct cuda_options o = emulated();
    return open_with(&o);
}

// Opening fails with that status, and its text has both words.
static void refused(enum status status, const char *word, const char *other) {
    const struct cuda_options o = emulated();
    struct device *d = NULL;
    struct err e = {0};
    char text[1024];
    assert_int_equal(cuda_device_open(&d, &o, NULL, &e), status);
    assert_null(d);
    err_text(&e, text, sizeof text);
    if (!strstr(text, word) || !strstr(text, other))
        fail_msg("wanted \"%s\" and \"%s\" in: %s", word, other, text);
}

// ---- Opening -----------------------------------------------------------------------------------

static void test_spec(void **state) {
    (void)state;
    struct cuda_options o;
    struct err e;
    assert_int_equal(cuda_options_parse(&o, "", &e), OK);
    assert_int_equal(o.index, 0);
    assert_int_equal(cuda_options_parse(&o, "3", &e), OK);
    assert_int_equal(o.index, 3);
    assert_int_equal(cuda_options_parse(&o,
                                        "index=1,driver=/x,image=sm_86,graphs=0,flags=0,tensor=0,"
                                        "times=1",
                                        &e),
                     OK);
    assert_int_equal(o.index, 1);
    assert_string_equal(o.driver, "/x");
    assert_string_equal(o.image, "sm_86");
    assert_true(o.no_graphs && o.no_flags && o.no_tensor_cores && o.times);
    static const char *const wrong[] = {
        "x",     "-1",        "index=", "index=1x", "graphs=2",
        "gpu=1", "index=256", "graphs", "=",        "image=aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_int_equal(cuda_options_parse(&o, wrong[i], &e), ERR_USAGE);
}

static void test_no_driver(void **state) {
    (void)state;
    struct cuda_options o = {.driver = "/nowhere/libcuda.so.1"};
    struct device *d = NULL;
    struct err e = {0};
    assert_int_equal(cuda_device_open(&d, &o, NULL, &e), ERR_UNSUPPORTED);
    assert_null(d);
    assert_non_null(strstr(e.what, "no NVIDIA driver"));
    assert_true(e.fix[0]);
    // A library that is no driver.
    snprintf(o.driver, sizeof o.driver, "libm.so.6");
    assert_int_equal(cuda_device_open(&d, &o, NULL, &e), ERR_DEVICE);
    assert_non_null(strstr(e.what, "lacks the call cuInit"));
}

static void test_driver_refuses(void **state) {
    (void)state;
    emulate("INIT", "100");
    refused(ERR_UNSUPPORTED, "finds no GPU", "CUDA_ERROR_NO_DEVICE");
    emulate("INIT", "34");
    refused(ERR_UNSUPPORTED, "stub", "LD_LIBRARY_PATH");
    emulate("INIT", "214");
    refused(ERR_DEVICE, "does not start", "CUDA_ERROR_ECC_UNCORRECTABLE");
    plain_machine(NULL);
    emulate("DEVICES", "0");
    refused(ERR_UNSUPPORTED, "finds no GPU", "CUDA_VISIBLE_DEVICES");
    plain_machine(NULL);
    emulate("DRIVER", "8000");
    refused(ERR_DEVICE, "too old", "8.0");
    plain_machine(NULL);
    emulate("CC", "5.0");
    refused(ERR_DEVICE, "too old", "5.0");
}

static void test_info(void **state) {
    (void)state;
    emulate("VRAM", "256M");
    emulate("CC", "8.6");
    emulate("NAME", "NVIDIA GeForce RTX 3060");
    struct device *d = open_device();
    assert_string_equal(d->info.name, "NVIDIA GeForce RTX 3060");
    assert_string_equal(d->info.kind, "cuda");
    assert_int_equal(d->info.capacity_bytes, 256 * MIB);
    assert_true(d->info.free_bytes >= 200 * MIB && d->info.free_bytes < 256 * MIB);
    assert_false(d->info.is_host);
    assert_non_null(strchr(d->info.pci_id, ':'));
    assert_non_null(strstr(d->info.details, "compute capability 8.6"));
    assert_non_null(strstr(d->info.details, "with tensor cores"));
    device_close(d);
    emulate("DEVICES", "2");
    struct cuda_options o = emulated();
    o.index = 1;
    device_close(open_with(&o));
    o.index = 2;
    struct err e = {0};
    assert_int_equal(cuda_device_open(&d, &o, NULL, &e), ERR_USAGE);
}

// ---- Images ------------------------------------------------------------------------------------

static int target_of(const char *cc, const char *driver) {
    emulate("CC", cc);
    emulate("DRIVER", driver);
    struct device *d = open_device();
    int arch = ((struct cuda_device *)d)->program.arch;
    device_close(d);
    return arch;
}

// Only PTX is in every build: with native code the architecture may be nearer to the device's.
static void test_choice_of_images(void **state) {
    (void)state;
    assert_int_equal(target_of("6.1", "9000"), 61);
    assert_int_equal(target_of("6.1", "13000"), 61);
    assert_int_equal(target_of("7.0", "12020"), 61);
    assert_int_equal(target_of("7.5", "10020"), 75);
    assert_int_equal(target_of("7.5", "10010"), 61); // PTX 6.5 came with CUDA 10.2
    assert_int_equal(target_of("8.6", "11040"), 80);
    assert_int_equal(target_of("8.6", "10020"), 75);
    assert_true(target_of("9.0", "13000") >= 80);
    assert_true(target_of("12.0", "13000") >= 80);
}

static void test_refused_images(void **state) {
    (void)state;
    struct cuda_options o = emulated();
    emulate("CC", "8.0");
    emulate("DRIVER", "12020");
    emulate("FAIL_MODULE", "1");
    struct device *d = open_with(&o);
    assert_int_equal(((struct cuda_device *)d)->program.arch, 75);
    assert_non_null(strstr(d->info.details, "compute_80"));
    device_close(d);
    snprintf(o.image, sizeof o.image, "compute_61");
    d = NULL;
    struct err e = {0};
    assert_int_equal(cuda_device_open(&d, &o, NULL, &e), ERR_DEVICE); // the one that is allowed
    assert_non_null(strstr(e.what, "no kernels for this GPU: compute_61"));
    assert_non_null(strstr(e.what, "CUDA_ERROR_INVALID_IMAGE"));
    plain_machine(NULL);
    d = open_with(&o);
    assert_int_equal(((struct cuda_device *)d)->program.arch, 61);
    assert_false(((struct cuda_device *)d)->tensor_cores);
    device_close(d);
    snprintf(o.image, sizeof o.image, "sm_1");
    assert_int_equal(cuda_device_open(&d, &o, NULL, &e), ERR_DEVICE);
}

// A device loads the tiles that it runs, and no others; floats have the same everywhere.
static void check_tiles(const struct cuda_device *cuda) {
    const struct cuda_program *p = &cuda->program;
    assert_int_equal(p->kernels[KERNEL_gemm_mma_q4_k] != NULL, cuda->tensor_cores);
    assert_int_equal(p->kernels[KERNEL_attention_mma_64] != NULL, cuda->tensor_cores);
    assert_int_equal(p->kernels[KERNEL_gemm_dp4a_q4_k] != NULL, !cuda->tensor_cores);
    assert_int_equal(p->kernels[KERNEL_narrow_dp4a_q8_0] != NULL, !cuda->tensor_cores);
    assert_true(p->kernels[KERNEL_gemm_floats_f32] && p->kernels[KERNEL_narrow_floats_f32]);
    assert_true(p->kernels[KERNEL_experts_floats_f32] && p->kernels[KERNEL_matmul_one_q4_k]);
}

static void test_tensor_cores(void **state) {
    (void)state;
    static const struct {
        const char *cc, *name;
        bool expected;
    } cards[] = {
        {"6.1", "NVIDIA GeForce GTX 1060 6GB", false},
        {"7.5", "NVIDIA GeForce GTX 1660 Ti", false},
        {"7.5", "NVIDIA GeForce MX450", false},
        {"7.5", "NVIDIA T400 4GB", false},
        {"7.5", "Quadro T1000", false},
        {"7.5", "Tesla T4", true},
        {"7.5", "GRID T4-8Q", true},
        {"7.5", "GRID RTX6000-4Q", true},
        {"7.5", "NVIDIA GeForce RTX 2080 Super with Max-Q Design", true},
        {"7.5", "NVIDIA GeForce RTX 2060", true},
        {"7.5", "Quadro RTX 5000", true},
        {"7.5", "TITAN RTX", true},
        {"8.0", "NVIDIA A100-SXM4-40GB", true},
        {"12.0", "NVIDIA GeForce RTX 5090", true},
    };
    for (size_t i = 0; i < sizeof cards / sizeof *cards; i++) {
        emulate("CC", cards[i].cc);
        emulate("NAME", cards[i].name);
        struct device *d = open_device();
        if (((struct cuda_device *)d)->tensor_cores != cards[i].expected)
            fail_msg("%s: %s", cards[i].name, d->info.details);
        check_tiles((struct cuda_device *)d);
        device_close(d);
    }
}

// ---- Memory, copies, events --------------------------------------------------------------------

static void test_buffers(void **state) {
    (void)state;
    emulate("VRAM", "128M");
    struct device *d = open_device();
    struct buffer a = new_buffer(d, 5 * MIB + 1, PURPOSE_SCRATCH), b;
    struct err e = {0};
    assert_int_equal((uintptr_t)a.base % d->info.align_bytes, 0);
    assert_int_equal(device_used_bytes(d), 5 * MIB + 1);
    assert_int_equal(buffer_new(d, d->info.free_bytes, PURPOSE_WEIGHTS, &b, &e), ERR_MEMORY);
    assert_non_null(strstr(e.what, "no memory for weights"));
    assert_true(e.fix[0]);
    // All that was promised is there.
    b = new_buffer(d, d->info.free_bytes - 5 * MIB - 1, PURPOSE_SCRATCH);
    buffer_free(&a);
    buffer_free(&b);
    device_close(d);
}

// Bytes go there, about and back, on three streams held together by events, while copies are slow.
static void test_copies(void **state) {
    (void)state;
    enum { SIZE = 3 << 20 };
    struct device *d = open_device();
    struct stream *in = new_stream(d, STREAM_COPY_IN), *out = new_stream(d, STREAM_COPY_OUT);
    struct stream *compute = new_stream(d, STREAM_COMPUTE);
    struct buffer a = new_buffer(d, SIZE, PURPOSE_SCRATCH),
                  b = new_buffer(d, SIZE, PURPOSE_SCRATCH);
    struct event arrived, moved;
    struct err e = {0};
    assert_int_equal(event_new(d, &arrived, &e), OK);
    assert_int_equal(event_new(d, &moved, &e), OK);
    assert_int_equal(event_wait(&arrived, &e), OK); // never recorded: done
    uint8_t *source = mem_map_pages(SIZE), *target = mem_map_pages(SIZE);
    assert_true(source && target);
    device_host_register(d, source, SIZE);
    device_host_register(d, target, SIZE);
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < SIZE; i++) source[i] = (uint8_t)(i * 7 + i / 251 + round);
        stream_copy(in, a.base, source, SIZE, COPY_TO_DEVICE);
        stream_record(in, &arrived);
        stream_wait_event(compute, &arrived);
        stream_copy(compute, b.base, a.base, SIZE, COPY_WITHIN);
        stream_record(compute, &moved);
        stream_wait_event(out, &moved);
        stream_copy(out, target, b.base, SIZE, COPY_FROM_DEVICE);
        wait_ok(out);
        assert_memory_equal(source, target, SIZE);
    }
    assert_int_equal(event_wait(&moved, &e), OK);
    device_host_unregister(d, source);
    device_host_unregister(d, target);
    device_host_unregister(d, &e); // never registered
    mem_unmap_pages(source, SIZE);
    mem_unmap_pages(target, SIZE);
    event_free(&arrived);
    event_free(&moved);
    stream_free(in);
    stream_free(out);
    stream_free(compute);
    buffer_free(&a);
    buffer_free(&b);
    device_close(d);
}

// Rows go there, about and back, at another distance each time; what lies between them stays.
static void test_rows(void **state) {
    (void)state;
    enum { ROWS = 60, ROW = 500, NEAR = 512, FAR = 1000 };
    static uint8_t source[ROWS][FAR], target[ROWS][NEAR];
    struct device *d = open_device();
    struct stream *s = new_stream(d, STREAM_COPY_IN);
    struct buffer a = new_buffer(d, ROWS * NEAR, PURPOSE_SCRATCH),
                  b = new_buffer(d, ROWS * FAR, PURPOSE_SCRATCH);
    for (int r = 0; r < ROWS; r++)
        for (int i = 0; i < FAR; i++) source[r][i] = (uint8_t)(r * 11 + i * 3 + i / 256);
    memset(target, 1, sizeof target);
    const struct row_copy in = {a.base, source, NEAR, FAR, ROW, ROWS},
                          about = {b.base, a.base, FAR, NEAR, ROW, ROWS},
                          out = {target, b.base, NEAR, FAR, ROW, ROWS};
    stream_copy_rows(s, &in, COPY_TO_DEVICE);
    stream_copy_rows(s, &about, COPY_WITHIN);
    stream_copy_rows(s, &out, COPY_FROM_DEVICE);
    wait_ok(s);
    for (int r = 0; r < ROWS; r++) {
        assert_memory_equal(target[r], source[r], ROW);
        for (int i = ROW; i < NEAR; i++) assert_int_equal(target[r][i], 1);
    }
    const struct row_copy beyond = {(char *)a.base + NEAR, source, NEAR, FAR, ROW, ROWS};
    stream_copy_rows(s, &beyond, COPY_TO_DEVICE);
    wait_fails(s, "a copy to the device: CUDA_ERROR_INVALID_VALUE");
    stream_free(s);
    buffer_free(&a);
    buffer_free(&b);
    device_close(d);
}

static void double_it(void *context) { *(int64_t *)context *= 2; }

// A number comes from the device, a call of the host doubles it, and it goes back; another stream
// waits for that. An old driver cannot call: the same comes out.
static void test_calls(void **state) {
    (void)state;
    enum { ROUNDS = 20 };
    for (int old = 0; old < 2; old++) {
        struct device *d = open_device();
        struct stream *s = new_stream(d, STREAM_COMPUTE), *other = new_stream(d, STREAM_COPY_OUT);
        struct buffer cell = new_buffer(d, 8, PURPOSE_SCRATCH);
        struct event changed, read;
        struct err e = {0};
        int64_t seen[ROUNDS], number = 1;
        if (old) ((struct cuda_device *)d)->driver.has_host_calls = false;
        assert_int_equal(event_new(d, &changed, &e), OK);
        assert_int_equal(event_new(d, &read, &e), OK);
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
        stream_free(s);
        stream_free(other);
        event_free(&changed);
        event_free(&read);
        buffer_free(&cell);
        device_close(d);
    }
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
    struct buffer there = new_buffer(gpu, 64, PURPOSE_SCRATCH);
    struct event sent, ready;
    assert_int_equal(event_new(gpu, &sent, &e), OK);
    assert_int_equal(event_new(cpu, &ready, &e), OK);
    float a[16], b[16] = {0}, c[16] = {0};
    for (int i = 0; i < 16; i++) a[i] = (float)i - 3;
    stream_copy(on_cpu, b, a, sizeof a, COPY_WITHIN);
    stream_record(on_cpu, &ready);
    stream_flush(on_cpu);
    stream_wait_event(on_gpu, &ready);
    stream_copy(on_gpu, there.base, b, sizeof b, COPY_TO_DEVICE);
    gpu->ops->swiglu(on_gpu, &(struct swiglu_args){.out = there.base,
                                                   .gate = there.base,
                                                   .up = there.base,
                                                   .n_rows = 1,
                                                   .n_cols = 16,
                                                   .stride = 16,
                                                   .up_stride = 16});
    stream_copy(on_gpu, b, there.base, sizeof b, COPY_FROM_DEVICE);
    stream_record(on_gpu, &sent);
    stream_wait_event(on_cpu, &sent);
    stream_copy(on_cpu, c, b, sizeof b, COPY_WITHIN);
    wait_ok(on_cpu);
    for (int i = 0; i < 16; i++) assert_float_equal(c[i], a[i] * a[i] / (1 + expf(-a[i])), 1e-4F);
    stream_free(on_cpu);
    stream_free(on_gpu);
    event_free(&sent);
    event_free(&ready);
    buffer_free(&there);
    device_close(cpu);
    device_close(gpu);
}

// ---- Lists of launches -------------------------------------------------------------------------

struct chain { // x *= silu(x), N_LINKS times
    struct device *device;
    struct stream *stream;
    struct buffer x;
};
enum { N_LINKS = 6, N_VALUES = 1000 };

static struct chain open_chain(const struct cuda_options *o) {
    struct chain c = {.device = open_with(o)};
    c.stream = new_stream(c.device, STREAM_COMPUTE);
    c.x = new_buffer(c.device, N_VALUES * sizeof(float), PURPOSE_SCRATCH);
    return c;
}

static void close_chain(struct chain *c) {
    stream_free(c->stream);
    buffer_free(&c->x);
    device_close(c->device);
}

static void encode_chain(struct chain *c, int n_links, int32_t count) {
    for (int i = 0; i < n_links; i++) {
        struct swiglu_args a; // what lies in its padding must not matter
        memset(&a, i + count, sizeof a);
        a.out = c->x.base, a.gate = c->x.base, a.up = c->x.base, a.row_gate = NULL;
        a.n_rows = 1, a.n_cols = count, a.stride = a.up_stride = count;
        a.form = GLU_SILU, a.limit = 0, a.xielu = (struct xielu_numbers){0};
        c->device->ops->swiglu(c->stream, &a);
    }
}

static void run_chain(struct chain *c, float *values) {
    for (int i = 0; i < N_VALUES; i++) values[i] = 0.9F + 0.001F * (float)i;
    stream_copy(c->stream, c->x.base, values, N_VALUES * sizeof *values, COPY_TO_DEVICE);
    encode_chain(c, N_LINKS, N_VALUES);
    stream_copy(c->stream, values, c->x.base, N_VALUES * sizeof *values, COPY_FROM_DEVICE);
    wait_ok(c->stream);
}

static void test_graphs(void **state) {
    (void)state;
    struct cuda_options with = emulated(), without = emulated();
    without.no_graphs = true;
    struct chain a = open_chain(&with), b = open_chain(&without);
    const struct cuda_queue *queue = &((struct cuda_stream *)a.stream)->queue;
    const struct cuda_queue *single = &((struct cuda_stream *)b.stream)->queue;
    float replayed[N_VALUES], direct[N_VALUES];
    run_chain(&b, direct);
    for (int round = 0; round < 4; round++) {
        run_chain(&a, replayed);
        assert_memory_equal(replayed, direct, sizeof direct);
        assert_int_equal(queue->n_replays, round); // the first time it is only remembered
    }
    run_chain(&b, direct);
    assert_int_equal(single->n_replays, 0);
    assert_memory_equal(replayed, direct, sizeof direct);
    // Many different lists in turn, as where the CPU has a part of every layer.
    enum { N_LISTS = 100, ROUNDS = 3 };
    for (int round = 0; round < ROUNDS; round++)
        for (int32_t count = 1; count <= N_LISTS; count++) {
            encode_chain(&a, N_LINKS, count);
            wait_ok(a.stream);
        }
    assert_int_equal(queue->n_replays, 3 + (ROUNDS - 1) * N_LISTS);
    run_chain(&a, replayed);
    assert_int_equal(queue->n_replays, 4 + (ROUNDS - 1) * N_LISTS);
    assert_memory_equal(replayed, direct, sizeof direct);
    // More than are remembered, and the first ones again.
    for (int32_t i = 0; i < CUDA_GRAPHS + 10; i++) {
        encode_chain(&a, CUDA_GRAPH_LAUNCHES + i / N_VALUES, 1 + i % N_VALUES);
        stream_flush(a.stream);
    }
    wait_ok(a.stream);
    assert_int_equal(queue->history.n, CUDA_GRAPHS);
    run_chain(&a, replayed);
    assert_int_equal(queue->n_replays, 4 + (ROUNDS - 1) * N_LISTS);
    assert_memory_equal(replayed, direct, sizeof direct);
    close_chain(&a);
    close_chain(&b);
}

// Writes a copy of the emulated driver without the calls that came after CUDA 9.0, under names that
// nobody asks for.
static void write_old_driver(const char *path) {
    static const char *const newer[] = {"cuDevicePrimaryCtxRelease_v2", "cuLaunchHostFunc",
                                        "cuGraphInstantiateWithFlags"};
    const struct cuda_options o = emulated();
    struct err e = {0};
    char *bytes;
    size_t size_bytes;
    assert_int_equal(file_read_text(&bytes, &size_bytes, o.driver, 64 * MIB, &e), OK);
    for (size_t i = 0; i < sizeof newer / sizeof *newer; i++) {
        char *at = bytes, *end = bytes + size_bytes;
        int n = 0;
        while ((at = memmem(at, (size_t)(end - at), newer[i], strlen(newer[i]) + 1))) {
            *at = 'x';
            n++;
        }
        assert_true(n > 0);
    }
    FILE *out = fopen(path, "wb");
    assert_non_null(out);
    assert_int_equal(fwrite(bytes, 1, size_bytes, out), size_bytes);
    assert_int_equal(fclose(out), 0);
    mem_free(bytes);
}

// A driver of CUDA 9.0 has a call under another name and lacks others: the same comes out.
static void test_old_driver(void **state) {
    (void)state;
    float now[N_VALUES], then[N_VALUES];
    emulate("CC", "6.1");
    struct cuda_options o = emulated();
    struct chain c = open_chain(&o);
    run_chain(&c, now);
    close_chain(&c);
    char path[] = "/tmp/test_cuda_XXXXXX";
    const int file = mkstemp(path);
    assert_true(file >= 0 && close(file) == 0);
    write_old_driver(path);
    emulate("DRIVER", "9000");
    snprintf(o.driver, sizeof o.driver, "%s", path);
    c = open_chain(&o);
    const struct cuda_driver *driver = &((struct cuda_device *)c.device)->driver;
    assert_false(driver->has_graphs || driver->has_host_calls);
    for (int round = 0; round < 2; round++) run_chain(&c, then);
    assert_memory_equal(now, then, sizeof now);
    close_chain(&c);
    unlink(path);
}

// A graph that is refused is no failure.
static void test_refused_graph(void **state) {
    (void)state;
    const struct cuda_options o = emulated();
    emulate("FAIL_GRAPH", "3"); // two are made at the start
    struct chain c = open_chain(&o);
    const struct cuda_queue *queue = &((struct cuda_stream *)c.stream)->queue;
    float first[N_VALUES], later[N_VALUES];
    run_chain(&c, first);
    assert_true(queue->use_graphs);
    for (int round = 0; round < 3; round++) {
        run_chain(&c, later);
        assert_memory_equal(first, later, sizeof first);
    }
    assert_false(queue->use_graphs);
    close_chain(&c);
}

static void test_long_list(void **state) {
    (void)state;
    const struct cuda_options o = emulated();
    struct chain c = open_chain(&o);
    const struct cuda_queue *queue = &((struct cuda_stream *)c.stream)->queue;
    encode_chain(&c, CUDA_LIST_LAUNCHES + 10, 1);
    assert_int_equal(queue->list.n_launches, 10); // the rest is under way
    wait_ok(c.stream);
    assert_int_equal(queue->list.n_launches, 0);
    close_chain(&c);
}

// Activations that several matmuls share are quantised once, and again when something has written.
static void test_quantized_once(void **state) {
    (void)state;
    const struct cuda_options o = emulated();
    struct chain c = open_chain(&o);
    const struct cuda_queue *queue = &((struct cuda_stream *)c.stream)->queue;
    struct buffer memory = new_buffer(c.device, 1 << 20, PURPOSE_SCRATCH);
    char *base = memory.base;
    struct matmul_args a = {.out = (float *)base,
                            .x = (float *)(base + 4096),
                            .weight = base + 8192,
                            .scratch = base + 65536,
                            .n_tokens = 1,
                            .n_cols = 256,
                            .row_count = 8,
                            .out_stride = 8};
    c.device->ops->matmul(c.stream, WEIGHT_Q8_0, &a);
    assert_int_equal(queue->list.n_launches, 2);
    a.out += 8;
    c.device->ops->matmul(c.stream, WEIGHT_Q4_K, &a);
    assert_int_equal(queue->list.n_launches, 2); // the same x, so in the same launch
    a.out = (float *)(base + 4096);
    c.device->ops->matmul(c.stream, WEIGHT_Q8_0, &a);
    assert_int_equal(queue->list.n_launches, 3); // writes x
    c.device->ops->matmul(c.stream, WEIGHT_Q8_0, &a);
    assert_int_equal(queue->list.n_launches, 5);
    a.out = (float *)base;
    c.device->ops->swiglu(c.stream, &(struct swiglu_args){.out = c.x.base,
                                                          .gate = c.x.base,
                                                          .up = c.x.base,
                                                          .n_rows = 1,
                                                          .n_cols = 1,
                                                          .stride = 1,
                                                          .up_stride = 1});
    c.device->ops->matmul(c.stream, WEIGHT_Q8_0, &a);
    assert_int_equal(queue->list.n_launches, 8); // another op came between
    c.device->ops->matmul(c.stream, WEIGHT_F16, &a);
    assert_int_equal(queue->list.n_launches, 9); // takes floats
    a.n_tokens = 0;
    c.device->ops->matmul(c.stream, WEIGHT_F16, &a);
    assert_int_equal(queue->list.n_launches, 9); // nothing to do
    wait_ok(c.stream);
    buffer_free(&memory);
    close_chain(&c);
}

// ---- Failures ----------------------------------------------------------------------------------

static void fail_at(const char *what, int n) {
    char name[32], text[16];
    snprintf(name, sizeof name, "FAIL_%s", what);
    snprintf(text, sizeof text, "%d", n);
    emulate(name, text);
}

static void test_failed_launch(void **state) {
    (void)state;
    const struct cuda_options o = emulated();
    fail_at("LAUNCH", CUDA_LAUNCHES_AT_START + 2);
    struct chain c = open_chain(&o);
    struct stream *other = new_stream(c.device, STREAM_COPY_OUT);
    struct event done;
    struct err e = {0};
    assert_int_equal(event_new_timed(c.device, &done, &e), OK);
    encode_chain(&c, 2, N_VALUES);
    stream_record(c.stream, &done);
    encode_chain(&c, 2, N_VALUES); // skipped
    wait_fails(c.stream, "starting the kernel swiglu: CUDA_ERROR_LAUNCH_FAILED");
    wait_fails(c.stream, "starting the kernel swiglu"); // it stays
    assert_int_equal(event_wait(&done, &e), ERR_DEVICE);
    uint64_t time_ns = 0;
    assert_int_equal(event_time(&done, &time_ns, &e), ERR_DEVICE);
    assert_non_null(strstr(e.what, "starting the kernel swiglu"));
    stream_wait_event(other, &done);
    wait_fails(other, "starting the kernel swiglu"); // and reaches who waits for it
    event_free(&done);
    stream_free(other);
    close_chain(&c);
}

static void test_failed_graph_launch(void **state) {
    (void)state;
    const struct cuda_options o = emulated();
    float values[N_VALUES];
    fail_at("LAUNCH", CUDA_LAUNCHES_AT_START + N_LINKS + 1);
    struct chain c = open_chain(&o);
    run_chain(&c, values);
    encode_chain(&c, N_LINKS, N_VALUES);
    wait_fails(c.stream, "starting a graph of 6 launches");
    close_chain(&c);
}

// A failure while a kernel runs is reported by the wait for it.
static void test_failure_while_running(void **state) {
    (void)state;
    const struct cuda_options o = emulated();
    static const char *const faults[] = {"DMA", "KERNEL"};
    static const char *const names[] = {"CUDA_ERROR_ECC_UNCORRECTABLE",
                                        "CUDA_ERROR_ILLEGAL_ADDRESS"};
    for (int i = 0; i < 2; i++) {
        plain_machine(NULL);
        fail_at(faults[i], i == 0 ? 2 : CUDA_KERNELS_AT_START + 1);
        struct chain c = open_chain(&o);
        struct event done;
        struct err e = {0};
        float values[N_VALUES] = {0};
        assert_int_equal(event_new(c.device, &done, &e), OK);
        stream_copy(c.stream, c.x.base, values, sizeof values, COPY_TO_DEVICE);
        wait_ok(c.stream);
        encode_chain(&c, 1, N_VALUES);
        stream_copy(c.stream, values, c.x.base, sizeof values, COPY_FROM_DEVICE);
        stream_record(c.stream, &done);
        if (event_wait(&done, &e) != OK) assert_non_null(strstr(e.what, names[i]));
        wait_fails(c.stream, names[i]);
        wait_fails(c.stream, names[i]);
        event_free(&done);
        close_chain(&c);
    }
}

// At the call, and then nothing more is encoded.
static void test_failed_copy(void **state) {
    (void)state;
    const struct cuda_options o = emulated();
    emulate("FAIL_COPY", "2");
    struct chain c = open_chain(&o);
    float values[4] = {1, 2, 3, 4};
    stream_copy(c.stream, c.x.base, values, sizeof values, COPY_TO_DEVICE);
    wait_ok(c.stream);
    stream_copy(c.stream, values, c.x.base, sizeof values, COPY_FROM_DEVICE);
    wait_fails(c.stream, "a copy from the device: CUDA_ERROR_LAUNCH_FAILED");
    stream_copy(c.stream, values, c.x.base, sizeof values, COPY_FROM_DEVICE); // skipped
    const struct row_copy rows = {values, c.x.base, 8, 8, 4, 2};
    int64_t number = 1;
    stream_copy_rows(c.stream, &rows, COPY_FROM_DEVICE); // and these
    stream_call(c.stream, double_it, &number);
    wait_fails(c.stream, "a copy from the device");
    assert_int_equal(number, 1);
    assert_true(values[0] == 1);
    close_chain(&c);
}

// The log says it once. A later piece may still be pinned.
static void test_refused_registration(void **state) {
    (void)state;
    static const char *const refused[] = {"2", "all"}; // the first one is of flags
    enum { N_PIECES = 4, PIECE = 4096 };
    for (int all = 0; all < 2; all++) {
        emulate("FAIL_REGISTER", refused[all]);
        char text[512] = "";
        FILE *out = fmemopen(text, sizeof text, "w");
        const struct log log = {.out = out, .level = LOG_WARN};
        const struct cuda_options o = emulated();
        struct device *d;
        struct err e = {0};
        assert_int_equal(cuda_device_open(&d, &o, &log, &e), OK);
        char *memory = mem_map_pages(N_PIECES * PIECE);
        for (int i = 0; i < N_PIECES; i++)
            assert_int_equal(device_host_register(d, memory + i * PIECE, PIECE), !all && i > 0);
        fflush(out);
        const char *said = strstr(text, "copies will be slower, 4096 bytes are not pinned");
        assert_non_null(said);
        assert_null(strstr(said + 1, "copies"));
        for (int i = 0; i < N_PIECES; i++) device_host_unregister(d, memory + i * PIECE);
        device_close(d);
        mem_unmap_pages(memory, N_PIECES * PIECE);
        fclose(out);
    }
}

// Opens all that an engine opens. False if something was refused, with the reason in *e.
static bool open_everything(struct err *e) {
    const struct cuda_options o = emulated();
    struct device *d = NULL;
    struct stream *streams[3] = {NULL};
    struct buffer buffer = {0};
    struct event event = {0};
    bool good = cuda_device_open(&d, &o, NULL, e) == OK;
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
    assert_true(n_refused > 10);
}

// Every call of the driver that takes memory is refused in turn. A refused graph changes nothing.
static void test_refused_driver_calls(void **state) {
    (void)state;
    static const struct {
        const char *call;
        int least; // so many must fail
    } calls[] = {{"CONTEXT", 1}, {"ALLOC", 2}, {"STREAM", 5}, {"EVENT", 2}};
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        int n_refused = 0;
        for (int n = 1; n < 100; n++) {
            struct err e = {0};
            plain_machine(NULL);
            fail_at(calls[i].call, n);
            if (open_everything(&e)) break;
            assert_true(e.status == ERR_MEMORY);
            assert_non_null(strstr(e.what, "CUDA_ERROR_OUT_OF_MEMORY"));
            assert_true(e.fix[0]);
            n_refused++;
        }
        assert_int_equal(n_refused, calls[i].least);
    }
}

// Checks the error of every call to a device that does not answer.
static void lost(struct device *d, enum status status, const struct err *e) {
    assert_int_equal(status, ERR_DEVICE);
    if (!strstr(e->what, d->info.name) || !strstr(e->what, "limit of 0.05 s"))
        fail_msg("%s", e->what);
    assert_true(d->lost);
}

enum way_to_wait { WAIT_STREAM, WAIT_EVENT, WAIT_ON_CPU, WAIT_FREE, N_WAYS };

// A copy that takes an hour; everything ends all the same.
static void wait_in_vain(void) {
    static char host[4096]; // the copies go on until the process ends
    const struct cpu_options options = {.isa = ISA_REF, .n_threads = 1, .no_bind = true};
    emulate("H2D", "1");
    for (enum way_to_wait way = WAIT_STREAM; way < N_WAYS; way++) {
        const struct cuda_options o = emulated();
        struct chain c = open_chain(&o);
        struct device *d = c.device, *cpu;
        struct stream *s = new_stream(d, STREAM_COPY_IN), *on_cpu;
        struct event event;
        struct buffer b = new_buffer(d, sizeof host, PURPOSE_SCRATCH), more;
        struct err e = {0};
        assert_int_equal(device_open_cpu(&cpu, &options, NULL, &e), OK);
        on_cpu = new_stream(cpu, STREAM_COMPUTE);
        assert_true(d->wait_limit_s == DEVICE_WAIT_LIMIT_S);
        device_limit_waits(d, 0.05);
        assert_int_equal(event_new_timed(d, &event, &e), OK);
        device_host_register(d, host, sizeof host);
        for (int i = 0; i < 2; i++) { // the second time there is a graph
            encode_chain(&c, N_LINKS, N_VALUES);
            stream_flush(c.stream);
        }
        stream_copy(s, b.base, host, sizeof host, COPY_TO_DEVICE);
        stream_record(s, &event);
        stream_wait_event(c.stream, &event);
        stream_wait_event(on_cpu, &event);
        if (way == WAIT_STREAM) lost(d, stream_wait(s, &e), &e);
        if (way == WAIT_EVENT) lost(d, event_wait(&event, &e), &e);
        if (way == WAIT_ON_CPU) lost(d, stream_wait(on_cpu, &e), &e);
        if (way == WAIT_FREE) stream_free(s);
        assert_true(d->lost);
        lost(d, event_wait(&event, &e), &e);
        encode_chain(&c, N_LINKS, N_VALUES);
        stream_record(c.stream, &event);
        lost(d, stream_wait(c.stream, &e), &e);
        uint64_t time_ns;
        lost(d, event_time(&event, &time_ns, &e), &e);
        lost(d, buffer_new(d, 64, PURPOSE_KV, &more, &e), &e);
        assert_false(device_host_register(d, &e, sizeof e));
        if (way != WAIT_FREE) stream_free(s);
        stream_free(on_cpu);
        event_free(&event);
        device_host_unregister(d, host);
        buffer_free(&b);
        close_chain(&c);
        device_close(cpu);
    }
}

static void test_waits_end(void **state) {
    (void)state;
    in_child(wait_in_vain);
}

int main(void) {
    char path[PATH_MAX];
    if (!find_emulator(path, sizeof path)) {
        puts("1..1\nok 1 # SKIP there is no emulator (it needs x86-64 and a C++ compiler)");
        return 0;
    }
#define TEST(name) cmocka_unit_test_setup(name, plain_machine)
    const struct CMUnitTest tests[] = {
        TEST(test_spec),
        TEST(test_no_driver),
        TEST(test_driver_refuses),
        TEST(test_info),
        TEST(test_choice_of_images),
        TEST(test_refused_images),
        TEST(test_tensor_cores),
        TEST(test_buffers),
        TEST(test_copies),
        TEST(test_rows),
        TEST(test_calls),

        TEST(test_events_of_two_devices),
        TEST(test_graphs),
        TEST(test_old_driver),
        TEST(test_refused_graph),
        TEST(test_long_list),
        TEST(test_quantized_once),
        TEST(test_failed_launch),
        TEST(test_failed_graph_launch),
        TEST(test_failed_copy),
        TEST(test_failure_while_running),
        TEST(test_refused_registration),
        TEST(test_refused_host_memory),
        TEST(test_refused_driver_calls),
        TEST(test_waits_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

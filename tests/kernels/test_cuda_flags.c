/* test_cuda_flags.c: the CPU and a CUDA device that wait for each other by flags, on the emulated
 * driver: all of it is submitted before the CPU computes, waits block and end, failures reach both,
 * and where the driver cannot do it there are no flags. */
#include "base/clock.h"
#include "base/mem.h"
#include "kernels/cpu/device/cpu_device.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/cuda_device.h"
#include "tests/lib/find_emulator.h"
#include "tests/lib/in_child.h"

#include <limits.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { N_VALUES = 16, N_TURNS = 5, PAGE = 4096 };

// ---- The emulated machine ----------------------------------------------------------------------

static const char *const VARIABLES[] = {
    "EMU_CUDA_FLAGS",       "EMU_CUDA_MAP",         "EMU_CUDA_DRIVER",
    "EMU_CUDA_FAIL_FLAG",   "EMU_CUDA_H2D",         "EMU_CUDA_FAIL_REGISTER",
    "EMU_CUDA_FAIL_LAUNCH", "EMU_CUDA_FAIL_KERNEL", "CUDA_LAUNCH_BLOCKING",
};

static int plain_machine(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof VARIABLES / sizeof *VARIABLES; i++) unsetenv(VARIABLES[i]);
    return 0;
}

static struct device *open_gpu(const char *spec) {
    struct cuda_options o;
    struct device *d = NULL;
    struct err e = {0};
    assert_int_equal(cuda_options_parse(&o, spec, &e), OK);
    assert_true(find_emulator(o.driver, sizeof o.driver));
    if (cuda_device_open(&d, &o, NULL, &e) != OK) fail_msg("%s", e.what);
    return d;
}

// The CPU and a GPU with a stream each, values that both reach, and a flag for each turn and side.
struct bench {
    struct device *cpu, *gpu;
    struct stream *on_cpu, *on_gpu;
    struct buffer there;
    float *host; // pinned: [0, N_VALUES) from the CPU, [N_VALUES, 2 * N_VALUES) from the GPU
    struct event given[N_TURNS], taken[N_TURNS];
};

static struct bench open_bench(void) {
    const struct cpu_options options = {.isa = ISA_REF, .n_threads = 2, .no_bind = true};
    struct bench b = {.gpu = open_gpu("")};
    struct err e = {0};
    assert_int_equal(device_open_cpu(&b.cpu, &options, NULL, &e), OK);
    assert_int_equal(stream_new(b.cpu, STREAM_COMPUTE, &b.on_cpu, &e), OK);
    assert_int_equal(stream_new(b.gpu, STREAM_COMPUTE, &b.on_gpu, &e), OK);
    assert_int_equal(buffer_new(b.gpu, PAGE, PURPOSE_SCRATCH, &b.there, &e), OK);
    b.host = mem_map_pages(PAGE);
    assert_true(device_host_register(b.gpu, b.host, PAGE));
    assert_int_equal(b.gpu->info.n_flags, CUDA_FLAGS);
    for (int i = 0; i < N_TURNS; i++) {
        assert_int_equal(event_new_flag(b.gpu, &b.given[i], &e), OK);
        assert_int_equal(event_new_flag(b.gpu, &b.taken[i], &e), OK);
        assert_true(event_is_up(&b.given[i]));
    }
    return b;
}

static void close_bench(struct bench *b) {
    const bool lost = b->gpu->lost;
    stream_free(b->on_gpu);
    stream_free(b->on_cpu);
    for (int i = 0; i < N_TURNS; i++) {
        event_free(&b->given[i]);
        event_free(&b->taken[i]);
    }
    device_host_unregister(b->gpu, b->host);
    if (!lost) mem_unmap_pages(b->host, PAGE);
    buffer_free(&b->there);
    device_close(b->gpu);
    device_close(b->cpu);
}

// Encodes turns of both: the CPU takes the GPU's values, the GPU makes v * silu(v) of the CPU's.
static void encode_turns(struct bench *b) {
    const uint64_t size_bytes = N_VALUES * sizeof(float);
    float *back = b->host + N_VALUES;
    for (int i = 0; i < N_TURNS; i++) {
        stream_copy(b->on_cpu, b->host, back, size_bytes, COPY_WITHIN);
        stream_record(b->on_cpu, &b->given[i]);
        stream_wait_event(b->on_gpu, &b->given[i]);
        stream_copy(b->on_gpu, b->there.base, b->host, size_bytes, COPY_TO_DEVICE);
        b->gpu->ops->swiglu(b->on_gpu, &(struct swiglu_args){.out = b->there.base,
                                                             .gate = b->there.base,
                                                             .up = b->there.base,
                                                             .n_rows = 1,
                                                             .n_cols = N_VALUES,
                                                             .stride = N_VALUES,
                                                             .up_stride = N_VALUES});
        stream_copy(b->on_gpu, back, b->there.base, size_bytes, COPY_FROM_DEVICE);
        stream_record(b->on_gpu, &b->taken[i]);
        stream_wait_event(b->on_cpu, &b->taken[i]);
    }
}

static void fill(struct bench *b, float *expected) {
    for (int i = 0; i < N_VALUES; i++) {
        float v = 1.5F + 0.01F * (float)i;
        b->host[N_VALUES + i] = v;
        for (int turn = 0; turn < N_TURNS; turn++) v *= v / (1 + expf(-v));
        expected[i] = v;
    }
}

static const struct cuda_queue *queue_of(const struct bench *b) {
    return &((struct cuda_stream *)b->on_gpu)->queue;
}

static void finish(struct stream *s) {
    struct err e = {0};
    if (stream_wait(s, &e) != OK) fail_msg("%s", e.what);
}

// ---- Waits --------------------------------------------------------------------------------------

// All turns are one list, which is a graph when it is seen again. It waits for the CPU, and the
// CPU for it, whether it was flushed before the CPU or not.
static void test_turns(void **state) {
    (void)state;
    struct bench b = open_bench();
    float expected[N_VALUES];
    for (int round = 0; round < 6; round++) {
        fill(&b, expected);
        encode_turns(&b);
        assert_int_equal(queue_of(&b)->list.n_launches, 5 * N_TURNS); // flags are two of five
        assert_false(event_is_up(&b.given[0]) || event_is_up(&b.taken[N_TURNS - 1]));
        if (round % 2) {
            stream_flush(b.on_gpu);
            assert_int_equal(queue_of(&b)->list.n_launches, 0);
            clock_sleep_ns(5000000);
            assert_false(event_is_up(&b.taken[0])); // the CPU has not begun
        }
        finish(b.on_cpu);
        assert_true(event_is_up(&b.taken[N_TURNS - 1]));
        finish(b.on_gpu);
        for (int i = 0; i < N_VALUES; i++)
            assert_float_equal(b.host[N_VALUES + i] / expected[i], 1, 1e-4);
        assert_int_equal(queue_of(&b)->n_replays, round);
    }
    close_bench(&b);
}

// A thread without a stream stands for the CPU, as calibration does.
static void test_thread(void **state) {
    (void)state;
    struct bench b = open_bench();
    struct err e = {0};
    for (int round = 0; round < 3; round++) {
        event_lower(&b.given[0]);
        stream_wait_event(b.on_gpu, &b.given[0]);
        stream_copy(b.on_gpu, b.there.base, b.host, 64, COPY_TO_DEVICE);
        stream_copy(b.on_gpu, b.host + N_VALUES, b.there.base, 64, COPY_FROM_DEVICE);
        stream_record(b.on_gpu, &b.taken[0]);
        stream_flush(b.on_gpu);
        for (int i = 0; i < N_VALUES; i++) b.host[i] = (float)(i + round);
        event_raise(&b.given[0]);
        assert_int_equal(event_wait(&b.taken[0], &e), OK);
        assert_memory_equal(b.host, b.host + N_VALUES, 64);
    }
    close_bench(&b);
}

static void test_number(void **state) {
    (void)state;
    struct device *d = open_gpu("");
    static struct event flags[CUDA_FLAGS];
    struct event more;
    struct err e = {0};
    for (int i = 0; i < CUDA_FLAGS; i++) assert_int_equal(event_new_flag(d, &flags[i], &e), OK);
    assert_int_equal(event_new_flag(d, &more, &e), ERR_MEMORY);
    event_free(&flags[7]);
    assert_int_equal(event_new_flag(d, &flags[7], &e), OK);
    for (int i = 0; i < CUDA_FLAGS; i++) event_free(&flags[i]);
    device_close(d);
}

// ---- Where there are none
// ------------------------------------------------------------------------

static int32_t flags_of(const char *spec) {
    struct device *d = open_gpu(spec);
    const int32_t n = d->info.n_flags;
    device_close(d);
    plain_machine(NULL);
    return n;
}

static void test_no_flags(void **state) {
    (void)state;
    assert_int_equal(flags_of(""), CUDA_FLAGS);
    assert_int_equal(flags_of("flags=1"), CUDA_FLAGS);
    static const char *const specs[] = {"flags=0", "graphs=0", "wsl2=1", "times=1"};
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++)
        assert_int_equal(flags_of(specs[i]), 0);
    static const char *const refuse[][2] = {{"EMU_CUDA_FLAGS", "0"},
                                            {"EMU_CUDA_MAP", "0"},
                                            {"EMU_CUDA_DRIVER", "11060"},
                                            {"EMU_CUDA_FAIL_REGISTER", "1"},
                                            {"CUDA_LAUNCH_BLOCKING", "1"}};
    for (size_t i = 0; i < sizeof refuse / sizeof *refuse; i++) {
        setenv(refuse[i][0], refuse[i][1], 1);
        assert_int_equal(flags_of(""), 0);
    }
    for (int n = 1; n <= 5; n++) { // of a list that is launched singly, and of its graph
        char text[8];
        snprintf(text, sizeof text, "%d", n);
        setenv("EMU_CUDA_FAIL_FLAG", text, 1);
        assert_int_equal(flags_of(""), n < 5 ? 0 : CUDA_FLAGS);
    }
}

// ---- Failures -----------------------------------------------------------------------------------

// Every call and every kernel of the turns fails in turn: both streams end, one of them with the
// driver's word.
static void test_faults(void **state) {
    (void)state;
    static const char *const faults[] = {"EMU_CUDA_FAIL_LAUNCH", "EMU_CUDA_FAIL_KERNEL",
                                         "EMU_CUDA_FAIL_FLAG"};
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        int n_failed = 0;
        bool good = false;
        for (int n = 7; n < 80 && !good; n++) {
            char text[8];
            float ignored[N_VALUES];
            struct err e = {0}, other = {0};
            plain_machine(NULL);
            snprintf(text, sizeof text, "%d", n);
            setenv(faults[i], text, 1);
            struct bench b = open_bench();
            fill(&b, ignored);
            for (int round = 0; round < 2; round++) {
                encode_turns(&b);
                stream_flush(b.on_gpu);
                const enum status first = stream_wait(b.on_cpu, &e);
                const enum status second = stream_wait(b.on_gpu, &other);
                good = first == OK && second == OK;
                if (second != OK) assert_non_null(strstr(other.what, "CUDA_ERROR_"));
                if (first != OK) assert_non_null(strstr(e.what, "CUDA_ERROR_"));
                if (!good) break;
            }
            n_failed += !good;
            close_bench(&b);
        }
        assert_true(good);
        assert_true(n_failed >= 2 * N_TURNS - 2);
    }
}

static void expect_lost(struct device *d, enum status status, const struct err *e) {
    assert_int_equal(status, ERR_DEVICE);
    if (!strstr(e->what, "limit of 0.05 s")) fail_msg("%s", e->what);
    assert_true(d->lost);
}

// The CPU's phase never comes, or the GPU stands still. Then the GPU waits for nothing any more.
static void wait_in_vain(void) {
    setenv("EMU_CUDA_H2D", "1", 1); // read once, since the first context stays
    struct bench b = open_bench();
    struct err e = {0};
    device_limit_waits(b.gpu, 0.05);
    event_lower(&b.given[0]);
    event_lower(&b.given[1]);
    stream_wait_event(b.on_gpu, &b.given[0]);
    stream_copy(b.on_gpu, b.there.base, b.host, 64, COPY_TO_DEVICE);
    stream_wait_event(b.on_gpu, &b.given[1]);
    stream_record(b.on_gpu, &b.taken[0]);
    expect_lost(b.gpu, stream_wait(b.on_gpu, &e), &e);
    assert_true(event_is_up(&b.given[0]) && event_is_up(&b.given[1]));
    for (int i = 0; i < 2000 && !event_is_up(&b.taken[0]); i++) clock_sleep_ns(1000000);
    assert_true(event_is_up(&b.taken[0])); // what was submitted has ended
    expect_lost(b.gpu, event_wait(&b.taken[0], &e), &e);
    close_bench(&b);

    b = open_bench();
    device_limit_waits(b.gpu, 0.05);
    // The driver copies memory that starts at an odd byte, here for minutes.
    stream_copy(b.on_gpu, b.there.base, b.host + 1, 63, COPY_TO_DEVICE);
    stream_record(b.on_gpu, &b.taken[0]);
    stream_wait_event(b.on_cpu, &b.taken[0]);
    stream_record(b.on_cpu, &b.given[0]);
    expect_lost(b.gpu, stream_wait(b.on_cpu, &e), &e);
    assert_true(event_is_up(&b.given[0]));
    close_bench(&b);
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
    const struct CMUnitTest tests[] = {TEST(test_turns),  TEST(test_thread),
                                       TEST(test_number), TEST(test_no_flags),
                                       TEST(test_faults), TEST(test_waits_end)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

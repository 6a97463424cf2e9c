/* test_cuda_event.c: times of events and of kernels of the CUDA backend, and flushes on WSL2, on
 * the emulated driver. Order and failures of events are test_cuda.c's. */
#include "base/clock.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/cuda_device.h"
#include "tests/lib/find_emulator.h"

#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

enum { MIB = 1 << 20 };

static struct device *open_device(bool wsl2) {
    struct device *d = NULL;
    struct cuda_options o = {.wsl2 = wsl2};
    struct err e = {0};
    assert_true(find_emulator(o.driver, sizeof o.driver));
    assert_int_equal(cuda_device_open(&d, &o, NULL, &e), OK);
    return d;
}

static void finish(struct stream *s) {
    struct err e = {0};
    if (stream_wait(s, &e) != OK) fail_msg("%s", e.what);
}

// The driver's event is the first member of ours.
static struct CUevent_st *handle_of(const struct event *event) {
    return *(struct CUevent_st *const *)event->handle;
}

// The error of a base is far less than a second, and any other error is far more.
static void test_times(void **state) {
    (void)state;
    enum { N = 5 };
    static const uint64_t slack_ns = 1000000000, OLD_NS = 10000000000;
    struct device *d = open_device(false);
    struct cuda_device *cuda = (struct cuda_device *)d;
    struct stream *s;
    struct buffer b;
    struct event events[N], idle;
    struct err e = {0};
    static char host[MIB];
    uint64_t time_ns, last_ns = 0;
    assert_int_equal(stream_new(d, STREAM_COPY_IN, &s, &e), OK);
    assert_int_equal(buffer_new(d, MIB, PURPOSE_SCRATCH, &b, &e), OK);
    assert_int_equal(event_new_timed(d, &idle, &e), OK);
    for (int i = 0; i < N; i++) assert_int_equal(event_new_timed(d, &events[i], &e), OK);
    const uint64_t begin_ns = clock_ns(), first_base_ns = cuda->clock_base.time_ns;
    cuda->clock_base.time_ns -= OLD_NS; // recording only encodes: it leaves the base as it is
    for (int i = 0; i < N; i++) {
        stream_copy(s, b.base, host, sizeof host, COPY_TO_DEVICE);
        stream_record(s, &events[i]);
    }
    finish(s);
    const uint64_t end_ns = clock_ns();
    assert_true(cuda->clock_base.time_ns == first_base_ns - OLD_NS);
    cuda->clock_base.time_ns = first_base_ns;
    for (int i = 0; i < N; i++) {
        // The base is too old from the third on: it is recorded anew, later than all events.
        if (i == 2) cuda->clock_base.time_ns -= OLD_NS;
        assert_int_equal(event_time(&events[i], &time_ns, &e), OK);
        assert_true(time_ns + slack_ns >= begin_ns && time_ns <= end_ns + slack_ns);
        assert_true(i == 2 || time_ns >= last_ns); // by the same base
        assert_true(i < 2 || cuda->clock_base.time_ns >= begin_ns);
        last_ns = time_ns;
    }
    assert_int_equal(event_time(&idle, &time_ns, &e), OK);
    assert_int_equal(time_ns, 0);
    // All others are made without a time, which a driver then does not have.
    float ms;
    event_free(&idle);
    assert_int_equal(event_new(d, &idle, &e), OK);
    stream_record(s, &idle);
    finish(s);
    assert_int_equal(cuda->driver.event_elapsed(&ms, cuda->clock_base.event, handle_of(&idle)),
                     400); // CUDA_ERROR_INVALID_HANDLE
    for (int i = 0; i < N; i++) event_free(&events[i]);
    event_free(&idle);
    stream_free(s);
    buffer_free(&b);
    device_close(d);
}

// Some systems start work only when they are asked about it (WSL2): a flush asks.
static int n_queries;
static unsigned (*real_query)(struct CUstream_st *stream);
static unsigned count_query(struct CUstream_st *stream) {
    n_queries++;
    return real_query(stream);
}

static void test_wsl2(void **state) {
    (void)state;
    for (int wsl2 = 0; wsl2 < 2; wsl2++) {
        struct device *d = open_device(wsl2);
        struct cuda_device *cuda = (struct cuda_device *)d;
        struct stream *s;
        struct buffer b;
        struct err e = {0};
        static char host[MIB];
        assert_int_equal(cuda->wsl2, wsl2);
        assert_int_equal(stream_new(d, STREAM_COPY_IN, &s, &e), OK);
        assert_int_equal(buffer_new(d, MIB, PURPOSE_SCRATCH, &b, &e), OK);
        real_query = cuda->driver.stream_query;
        cuda->driver.stream_query = count_query;
        n_queries = 0;
        stream_copy(s, b.base, host, sizeof host, COPY_TO_DEVICE);
        stream_flush(s);
        assert_int_equal(n_queries, wsl2);
        cuda->driver.stream_query = real_query;
        finish(s);
        stream_free(s);
        buffer_free(&b);
        device_close(d);
    }
}

static void test_times_of_kernels(void **state) {
    (void)state;
    enum { N_FLUSHES = 3, N_LAUNCHES = 2, COLS = 64 };
    struct cuda_options o = {.times = true};
    struct device *d = NULL;
    struct stream *s;
    struct buffer b;
    struct err e = {0};
    assert_true(find_emulator(o.driver, sizeof o.driver));
    assert_int_equal(cuda_device_open(&d, &o, NULL, &e), OK);
    struct cuda_times *times = &((struct cuda_device *)d)->times;
    assert_int_equal(stream_new(d, STREAM_COMPUTE, &s, &e), OK);
    assert_int_equal(buffer_new(d, MIB, PURPOSE_SCRATCH, &b, &e), OK);
    float *x = b.base;
    const struct swiglu_args args = {.out = x,
                                     .gate = x + COLS,
                                     .up = x + 2 * COLS,
                                     .n_rows = 1,
                                     .n_cols = COLS,
                                     .stride = COLS,
                                     .up_stride = COLS};
    for (int i = 0; i < N_FLUSHES; i++) {
        for (int k = 0; k < N_LAUNCHES; k++) d->ops->swiglu(s, &args);
        stream_flush(s);
    }
    finish(s);
    cuda_times_read(times);
    assert_int_equal(times->n[KERNEL_swiglu], N_FLUSHES * N_LAUNCHES);
    assert_true(times->ms[KERNEL_swiglu] >= 0);
    assert_int_equal(times->n_missed, 0);
    assert_int_equal(times->n_recorded, 0);
    // A launch that finds no event runs and is not measured.
    const int32_t n_events = times->n_events;
    times->n_events = 0;
    d->ops->swiglu(s, &args);
    cuda_submit((struct cuda_stream *)s);
    assert_int_equal(times->n_missed, 1);
    finish(s);
    times->n_events = n_events;
    assert_int_equal(times->n[KERNEL_swiglu], N_FLUSHES * N_LAUNCHES);
    stream_free(s);
    buffer_free(&b);
    device_close(d);
}

int main(void) {
    char path[PATH_MAX];
    if (!find_emulator(path, sizeof path)) {
        puts("1..1\nok 1 # SKIP there is no emulator (it needs x86-64 and a C++ compiler)");
        return 0;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_times),
        cmocka_unit_test(test_wsl2),
        cmocka_unit_test(test_times_of_kernels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

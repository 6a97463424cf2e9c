/* open_device.c: see open_device.h. */
#include "tests/lib/open_device.h"

#include "kernels/cpu/device/cpu_device.h"
#include "tests/sim/sim_device.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

struct device *open_sim(const char *spec) {
    struct device *d = NULL;
    struct err e = {0};
    struct cpu_options options = {.isa = ISA_REF};
    if (sim_driver.open(&d, spec, &options, NULL, &e) != OK) fail_msg("%s", e.what);
    return d;
}

struct device *open_cpu(int32_t n_threads, int32_t n_threads_batch) {
    struct device *d = NULL;
    struct err e = {0};
    struct cpu_options options = {ISA_REF, n_threads, n_threads_batch, false};
    if (device_open_cpu(&d, &options, NULL, &e) != OK) fail_msg("%s", e.what);
    return d;
}

struct stream *new_stream(struct device *d, enum stream_kind kind) {
    struct stream *s = NULL;
    struct err e = {0};
    if (stream_new(d, kind, &s, &e) != OK) fail_msg("%s", e.what);
    return s;
}

struct event new_event(struct device *d) {
    struct event event = {0};
    struct err e = {0};
    if (event_new_timed(d, &event, &e) != OK) fail_msg("%s", e.what);
    return event;
}

struct buffer new_buffer(struct device *d, uint64_t size_bytes, enum purpose purpose) {
    struct buffer b = {0};
    struct err e = {0};
    if (buffer_new(d, size_bytes, purpose, &b, &e) != OK) fail_msg("%s", e.what);
    return b;
}

void wait_ok(struct stream *s) {
    struct err e = {0};
    char text[1024];
    if (stream_wait(s, &e) != OK) fail_msg("%s", err_text(&e, text, sizeof text));
}

void wait_fails(struct stream *s, const char *what) {
    struct err e = {0};
    assert_int_equal(stream_wait(s, &e), ERR_DEVICE);
    if (!strstr(e.what, what)) fail_msg("\"%s\" does not say \"%s\"", e.what, what);
}

void swiglu(struct stream *s, void *out, void *gate, void *up, int32_t count) {
    s->device->ops->swiglu(s, &(struct swiglu_args){.out = out,
                                                    .gate = gate,
                                                    .up = up,
                                                    .n_rows = 1,
                                                    .n_cols = count,
                                                    .stride = count,
                                                    .up_stride = count});
}

void add_one(void *context) {
    struct host_work *work = context;
    work->target = work->source + 1;
    atomic_fetch_add(&work->n_calls, 1);
}

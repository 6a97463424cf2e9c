/* device.c: the public calls of device.h: they check preconditions, keep the books and go through
 * the class.
 *
 * Owns nothing itself. Must not name a backend. One thread drives a device at a time. Tested by
 * tests/kernels/test_device.c.
 */
#include "kernels/device.h"

#include "base/clock.h"

#include <string.h>

const char *purpose_name(enum purpose purpose) {
    static const char *const names[PURPOSE_COUNT] = {"weights", "kv", "scratch", "staging"};
    ASSERT(purpose < PURPOSE_COUNT);
    return names[purpose];
}

uint64_t device_used_bytes(const struct device *d) {
    uint64_t sum = 0;
    for (int p = 0; p < PURPOSE_COUNT; p++) sum += d->used_bytes[p];
    return sum;
}

void device_forget_peak(struct device *d) { d->peak_bytes = device_used_bytes(d); }

static void count_in(struct device *d, const struct buffer *b) {
    d->used_bytes[b->purpose] += b->size_bytes;
    uint64_t used = device_used_bytes(d);
    if (used > d->peak_bytes) d->peak_bytes = used;
}

enum status buffer_new(struct device *d, uint64_t size_bytes, enum purpose purpose,
                       struct buffer *out, struct err *e) {
    ASSERT(d);
    ASSERT(purpose < PURPOSE_COUNT);
    *out = (struct buffer){0};
    if (d->sealed) {
        char size[ERR_SIZE_CHARS];
        err_set(e, ERR_MEMORY, "%s: no more buffers after start, wanted %s for %s", d->info.name,
                err_size_needed(size, size_bytes), purpose_name(purpose));
        return err_fix(e, "this is a bug: report it");
    }
    struct buffer b = {.device = d, .size_bytes = size_bytes, .purpose = purpose};
    if (size_bytes > 0) {
        enum status status = d->class->buffer_new(d, size_bytes, purpose, &b.base, e);
        d->n_refused += status == ERR_MEMORY;
        if (status != OK) return status;
        ASSERT((uintptr_t)b.base % d->info.align_bytes == 0);
    }
    count_in(d, &b);
    *out = b;
    return OK;
}

void buffer_map(struct device *d, void *base, uint64_t size_bytes, enum purpose purpose,
                struct buffer *out) {
    ASSERT(d->info.is_host || d->info.unified);
    ASSERT(base || size_bytes == 0);
    ASSERT(purpose < PURPOSE_COUNT);
    *out = (struct buffer){
        .device = d, .base = base, .size_bytes = size_bytes, .purpose = purpose, .mapped = true};
    count_in(d, out);
}

void buffer_free(struct buffer *b) {
    struct device *d = b->device;
    if (d) {
        ASSERT(d->used_bytes[b->purpose] >= b->size_bytes);
        d->used_bytes[b->purpose] -= b->size_bytes;
        if (b->base && !b->mapped && !b->abandoned)
            d->class->buffer_free(d, b->base, b->size_bytes);
    }
    *b = (struct buffer){0};
}

uint64_t device_free_bytes(struct device *d) {
    ASSERT(d);
    return d->class->free_bytes(d);
}

bool device_host_register(struct device *d, void *base, uint64_t size_bytes) {
    ASSERT(d);
    return !base || size_bytes == 0 || d->class->host_register(d, base, size_bytes);
}

bool device_host_lend(struct device *d, const void *base, uint64_t size_bytes) {
    ASSERT(d);
    ASSERT(base);
    ASSERT(size_bytes > 0);
    return d->info.pins_files && d->class->host_lend(d, base, size_bytes);
}

void device_host_unregister(struct device *d, void *base) {
    ASSERT(d);
    if (base) d->class->host_unregister(d, base);
}

// Refuses to make streams and events after device_seal; buffer_new has its own message with a size.
static enum status refuse_sealed(const struct device *d, const char *what, struct err *e) {
    err_set(e, ERR_DEVICE, "%s: no more %s after start", d->info.name, what);
    return err_fix(e, "this is a bug: report it");
}

enum status stream_new(struct device *d, enum stream_kind kind, struct stream **out,
                       struct err *e) {
    ASSERT(d);
    *out = NULL;
    if (d->sealed) return refuse_sealed(d, "streams", e);
    enum status status = d->class->stream_new(d, kind, out, e);
    d->n_refused += status == ERR_MEMORY;
    if (status != OK) return status;
    ASSERT((*out)->device == d);
    ASSERT((*out)->kind == kind);
    return OK;
}

void stream_free(struct stream *s) {
    if (s) s->device->class->stream_free(s);
}

static enum status make_event(struct device *d, enum event_kind kind, struct event *out,
                              struct err *e) {
    ASSERT(d);
    *out = (struct event){0};
    if (d->sealed) return refuse_sealed(d, "events", e);
    if (d->class->event_new(d, kind, out, e)) return e->status;
    out->kind = kind;
    ASSERT((kind == EVENT_FLAG) == (out->flag != NULL));
    return OK;
}

enum status event_new(struct device *d, struct event *out, struct err *e) {
    return make_event(d, EVENT_PLAIN, out, e);
}

enum status event_new_timed(struct device *d, struct event *out, struct err *e) {
    return make_event(d, EVENT_TIMED, out, e);
}

enum status event_new_flag(struct device *d, struct event *out, struct err *e) {
    ASSERT(d->info.n_flags > 0);
    return make_event(d, EVENT_FLAG, out, e);
}

void event_lower(struct event *flag) {
    ASSERT(flag->flag);
    atomic_store_explicit(flag->flag, 0, memory_order_relaxed);
}

bool event_is_up(const struct event *flag) {
    ASSERT(flag->flag);
    return atomic_load_explicit(flag->flag, memory_order_acquire);
}

void event_raise(struct event *flag) {
    ASSERT(flag->flag);
    atomic_store_explicit(flag->flag, 1, memory_order_release);
}

void event_free(struct event *event) {
    if (event->device) event->device->class->event_free(event);
    *event = (struct event){0};
}

void stream_copy(struct stream *s, void *target, const void *source, uint64_t size_bytes,
                 enum copy_direction way) {
    ASSERT(s);
    ASSERT(way <= COPY_WITHIN);
    if (size_bytes == 0) return;
    ASSERT(target);
    ASSERT(source);
    s->device->class->copy(s, target, source, size_bytes, way);
}

void stream_copy_rows(struct stream *s, const struct row_copy *copy, enum copy_direction way) {
    ASSERT(s);
    ASSERT(way <= COPY_WITHIN);
    ASSERT(copy->n_rows >= 0);
    ASSERT(copy->target_stride >= copy->row_bytes);
    ASSERT(copy->source_stride >= copy->row_bytes);
    if (copy->n_rows == 0 || copy->row_bytes == 0) return;
    ASSERT(copy->target);
    ASSERT(copy->source);
    const bool apart =
        copy->target_stride != copy->row_bytes || copy->source_stride != copy->row_bytes;
    if (apart && copy->n_rows > 1)
        s->device->class->copy_rows(s, copy, way);
    else
        s->device->class->copy(s, copy->target, copy->source,
                               copy->row_bytes * (uint64_t)copy->n_rows, way);
}

void stream_call(struct stream *s, void (*fn)(void *context), void *context) {
    ASSERT(s);
    ASSERT(fn);
    s->device->class->call(s, fn, context);
}

void stream_record(struct stream *s, struct event *event) {
    ASSERT(s);
    ASSERT(event->device == s->device || (event->flag && s->device->info.is_host));
    ASSERT(!event->flag || s->kind == STREAM_COMPUTE);
    s->device->class->record(s, event);
}

void stream_wait_event(struct stream *s, struct event *event) {
    ASSERT(s);
    ASSERT(event->device);
    ASSERT(!event->flag || s->kind == STREAM_COMPUTE);
    s->device->class->wait_event(s, event);
}

enum status event_wait(struct event *event, struct err *e) {
    ASSERT(event->device);
    return event->device->class->event_wait(event, e);
}

enum status event_time(struct event *event, uint64_t *out_ns, struct err *e) {
    ASSERT(event->device);
    ASSERT(event->kind == EVENT_TIMED);
    *out_ns = 0;
    return event->device->class->event_time(event, out_ns, e);
}

void device_limit_waits(struct device *d, double seconds) {
    ASSERT(seconds > 0);
    d->wait_limit_s = seconds;
}

uint64_t device_deadline_ns(const struct device *d) {
    const double longest_s = 1e9; // further than any process runs; the sum stays a number
    const double limit_s = d->wait_limit_s < longest_s ? d->wait_limit_s : longest_s;
    return clock_ns() + (uint64_t)(limit_s * 1e9);
}

enum status device_lose(struct device *d, struct err *e) {
    d->lost = true;
    err_set(e, ERR_DEVICE, "%s: no answer within the limit of %g s, given up", d->info.name,
            d->wait_limit_s);
    return err_fix(e, "raise --wait-limit if it is only slow; else look at dmesg, or use "
                      "--device none");
}

void stream_flush(struct stream *s) {
    ASSERT(s);
    s->device->class->flush(s);
}

enum status stream_wait(struct stream *s, struct err *e) {
    ASSERT(s);
    s->device->class->flush(s);
    struct err failure;
    if (s->device->class->wait(s, &failure) != OK && s->failure.status == OK) s->failure = failure;
    if (s->failure.status == OK) return OK;
    *e = s->failure;
    return e->status;
}

void device_batch_hint(struct device *d, int32_t n_tokens) {
    ASSERT(n_tokens >= 1);
    d->class->batch_hint(d, n_tokens);
}

void device_seal(struct device *d) { d->sealed = true; }

void device_close(struct device *d) {
    if (!d) return;
    ASSERT(device_used_bytes(d) == 0);
    d->class->close(d);
}

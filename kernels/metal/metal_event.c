/* metal_event.c: events of a Metal device: order between streams, waits with a limit, and times.
 *
 * An event is a shared event whose value grows with each record; the command buffer that signals it
 * is kept, since it tells the time and whether it failed. Waits of the calling thread poll, without
 * a pause at first. Metal tells times in seconds of a clock that is compared with clock_ns once.
 * One thread drives a device at a time. Tested by tests/kernels/test_metal.c.
 */
#include "base/clock.h"
#include "base/mem.h"
#include "kernels/metal/metal_backend.h"

enum {
    CLOCK_TRIES = 8,
    SAME_CLOCK_NS = 20000000, // the host hears of an end much sooner: the clocks are one
};

// ---- Time --------------------------------------------------------------------------------------

// Time between the end of an empty command buffer and the moment when the host hears of it. The
// shortest of some tries counts.
enum status metal_clock_start(struct metal_device *d, struct err *e) {
    const struct metal_objc *objc = &d->objc;
    struct mtl_queue *queue = METAL_SEND(objc, new_queue, d->handle, 1);
    enum status status = OK;
    int64_t least_ns = INT64_MAX;
    if (!queue) return err_set(e, ERR_MEMORY, "%s: no command queue", d->base.info.name);
    for (int i = 0; i < CLOCK_TRIES && !status; i++) {
        void *pool = objc->pool_push();
        struct mtl_commands *commands = METAL_SEND(objc, commands_of, queue);
        if (commands) {
            METAL_SEND(objc, commit, commands);
            status = metal_await(d, commands, e);
            const int64_t end_ns = (int64_t)(METAL_SEND(objc, commands_end_s, commands) * 1e9);
            const int64_t late_ns = (int64_t)clock_ns() - end_ns;
            if (late_ns < least_ns) least_ns = late_ns;
            if (!status && METAL_SEND(objc, commands_status, commands) > METAL_STATUS_COMPLETED)
                status =
                    err_set(e, ERR_DEVICE, "%s does not compute: %s", d->base.info.name,
                            metal_error_text(objc, METAL_SEND(objc, commands_error, commands)));
        } else {
            status = err_set(e, ERR_DEVICE, "%s: no command buffer", d->base.info.name);
        }
        objc->pool_pop(pool);
    }
    objc->release(queue);
    d->clock_offset_ns = least_ns >= 0 && least_ns < SAME_CLOCK_NS ? 0 : least_ns;
    return status;
}

// ---- Entries of the class ----------------------------------------------------------------------

enum status metal_event_new(struct device *device, enum event_kind kind, struct event *out,
                            struct err *e) {
    (void)kind; // all of them have times, and there are no flags
    struct metal_device *d = metal_of(device);
    struct metal_event *event = mem_alloc(1, sizeof *event);
    if (!event) return err_memory(e, sizeof *event, "an event of a Metal device");
    event->handle = METAL_SEND(&d->objc, new_event, d->handle);
    if (!event->handle) {
        mem_free(event);
        return err_set(e, ERR_MEMORY, "%s: no shared event", device->info.name);
    }
    event->next = d->events;
    d->events = event;
    *out = (struct event){.device = device, .handle = event};
    return OK;
}

void metal_event_free(struct event *event) {
    struct metal_device *d = metal_of(event->device);
    struct metal_event *own = event->handle, **link = &d->events;
    while (*link != own) link = &(*link)->next;
    *link = own->next;
    if (!d->base.lost) {
        d->objc.release(own->commands);
        d->objc.release(own->handle);
    }
    mem_free(own);
}

void metal_record(struct stream *stream, struct event *event) {
    struct metal_stream *s = (struct metal_stream *)stream;
    struct metal_device *d = metal_of(stream->device);
    struct metal_event *own = event->handle;
    if (metal_begin(s)) {
        metal_end_encoders(s);
        METAL_SEND(&d->objc, signal, s->commands, own->handle, ++own->value);
        d->objc.release(own->commands);
        own->commands = s->commands;
        (void)d->objc.retain(own->commands);
        metal_submit(s);
    }
    own->failure = s->failure;
}

// The calling thread waits for an event of another device, since Metal knows only its own events.
void metal_wait_event(struct stream *stream, struct event *event) {
    struct metal_stream *s = (struct metal_stream *)stream;
    const struct metal_event *own = event->handle;
    if (event->device->class != stream->device->class) {
        struct err failure;
        metal_submit(s);
        if (s->failure.status == OK && event->device->class->event_wait(event, &failure) != OK)
            metal_keep(s, &failure);
        return;
    }
    if (own->failure.status != OK) metal_keep(s, &own->failure);
    if (own->value == 0 || !metal_begin(s)) return;
    metal_end_encoders(s);
    METAL_SEND(&metal_of(stream->device)->objc, await, s->commands, own->handle, own->value);
}

// The status of an event that has failed, or of a lost device.
static enum status check_event(const struct event *event, struct err *e) {
    const struct metal_event *own = event->handle;
    if (event->device->lost) return device_lose(event->device, e);
    if (own->failure.status == OK) return OK;
    *e = own->failure;
    return e->status;
}

enum status metal_event_wait(struct event *event, struct err *e) {
    const struct metal_event *own = event->handle;
    if (check_event(event, e)) return e->status;
    return own->commands ? metal_await_event(metal_of(event->device), own, e) : OK;
}

enum status metal_event_time(struct event *event, uint64_t *out_ns, struct err *e) {
    struct metal_device *d = metal_of(event->device);
    const struct metal_event *own = event->handle;
    if (check_event(event, e)) return e->status;
    if (!own->commands) return OK;
    if (metal_await(d, own->commands, e)) return e->status;
    const double end_s = METAL_SEND(&d->objc, commands_end_s, own->commands);
    *out_ns = (uint64_t)((int64_t)(end_s * 1e9) + d->clock_offset_ns);
    return OK;
}

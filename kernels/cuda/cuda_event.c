/* cuda_event.c: events of a CUDA device: order between streams, waits with a limit, and times.
 *
 * The driver's waits have no limit, so a wait polls the state of an event or a stream, at first
 * without a pause, since the thread has nothing else to do. The driver gives times as milliseconds
 * between two events, in a float: they are measured from a base whose time is known on both clocks,
 * earlier or later than the event, and recorded anew when a time is asked for and the float would
 * get coarse. Events whose time nobody asks for are made without one. Owns the base. One thread
 * drives a device at a time. Tested by tests/kernels/test_cuda.c.
 */
#include "base/clock.h"
#include "base/mem.h"
#include "kernels/cuda/cuda_backend.h"

enum {
    BASE_TRIES = 8,
    BASE_WIDTH_NS = 30000, // the error of a base is at most half of the time that recording it took
};

static const uint64_t BASE_AGE_NS = 8000000000; // the float still resolves half a microsecond
// A wait for a flag asks the driver so often whether something has failed.
static const uint64_t ASK_NS = 1000000;

struct cuda_event {
    struct CUevent_st *handle; // NULL: it is a flag
    struct err failure;        // of the stream that recorded it
    bool recorded;
    int place;                  // of a flag
    struct cuda_stream *stream; // that recorded a flag
};

// ---- Waiting -----------------------------------------------------------------------------------

// Waits for the event, or for the stream if it is NULL.
static enum status await(struct cuda_device *cuda, struct CUstream_st *stream,
                         struct CUevent_st *event, struct err *e) {
    const struct cuda_driver *driver = &cuda->driver;
    const uint64_t begin_ns = clock_ns(), deadline_ns = device_deadline_ns(&cuda->base);
    unsigned code;
    if (cuda->base.lost) return device_lose(&cuda->base, e);
    while ((code = event ? driver->event_query(event) : driver->stream_query(stream)) ==
           DRIVER_NOT_READY) {
        const uint64_t now_ns = clock_ns();
        if (now_ns >= deadline_ns) return cuda_lose(cuda, e);
        clock_rest(now_ns - begin_ns);
    }
    return cuda_check(driver, code, e, "%s: computing", cuda->base.info.name);
}

// Waits for a flag of the device without calls of the driver, but now and then one for a failure:
// after that no flag comes.
static enum status await_flag(struct cuda_device *cuda, const struct event *event, struct err *e) {
    const struct cuda_event *own = event->handle;
    const uint64_t begin_ns = clock_ns(), deadline_ns = device_deadline_ns(&cuda->base);
    uint64_t asked_ns = begin_ns;
    ASSERT(own->stream);
    if (!event_is_up(event)) cuda_submit(own->stream);
    while (!event_is_up(event)) {
        const uint64_t now_ns = clock_ns();
        if (own->stream->failure.status != OK) {
            *e = own->stream->failure;
            return e->status;
        }
        if (now_ns >= deadline_ns) return cuda_lose(cuda, e);
        if (now_ns - asked_ns > ASK_NS) {
            const unsigned code = cuda->driver.stream_query(own->stream->handle);
            asked_ns = now_ns;
            if (code != DRIVER_NOT_READY) cuda_keep(own->stream, code, "computing");
        }
        clock_rest(now_ns - begin_ns);
    }
    return OK;
}

enum status cuda_await_stream(struct cuda_device *cuda, struct CUstream_st *stream, struct err *e) {
    return await(cuda, stream, NULL, e);
}

// ---- Time --------------------------------------------------------------------------------------

// Records the base anew. Its time lies between two readings of the clock, which are repeated until
// they are close; the last try counts.
static enum status set_base(struct cuda_device *cuda, struct err *e) {
    struct cuda_base *base = &cuda->clock_base;
    for (int i = 0; i < BASE_TRIES; i++) {
        const uint64_t before_ns = clock_ns();
        const unsigned code = cuda->driver.event_record(base->event, cuda->clock);
        if (cuda_check(&cuda->driver, code, e, "%s: setting its clock", cuda->base.info.name) ||
            await(cuda, NULL, base->event, e))
            return e->status;
        const uint64_t width_ns = clock_ns() - before_ns;
        base->time_ns = before_ns + width_ns / 2;
        if (width_ns <= BASE_WIDTH_NS) break;
    }
    return OK;
}

enum status cuda_clock_open(struct cuda_device *cuda, struct err *e) {
    const char *name = cuda->base.info.name;
    unsigned code = cuda->driver.stream_create(&cuda->clock, DRIVER_STREAM_NON_BLOCKING);
    if (cuda_check(&cuda->driver, code, e, "%s: making a stream", name)) return e->status;
    code = cuda->driver.event_create(&cuda->clock_base.event, 0);
    return cuda_check(&cuda->driver, code, e, "%s: making an event", name);
}

enum status cuda_clock_start(struct cuda_device *cuda, struct err *e) { return set_base(cuda, e); }

void cuda_clock_close(struct cuda_device *cuda) {
    if (cuda->clock_base.event) (void)cuda->driver.event_destroy(cuda->clock_base.event);
    if (cuda->clock) (void)cuda->driver.stream_destroy(cuda->clock);
}

// ---- Entries of the class ----------------------------------------------------------------------

static enum status new_flag(struct cuda_device *cuda, struct cuda_event *event, struct event *out,
                            struct err *e) {
    *out = (struct event){.device = &cuda->base, .handle = event};
    event->place = cuda_flag_take(cuda, &out->flag);
    if (event->place >= 0) return OK;
    mem_free(event);
    return err_set(e, ERR_MEMORY, "%s: more than %d flags", cuda->base.info.name, CUDA_FLAGS);
}

enum status cuda_event_new(struct device *d, enum event_kind kind, struct event *out,
                           struct err *e) {
    struct cuda_device *cuda = cuda_of(d);
    struct cuda_event *event = mem_alloc(1, sizeof *event);
    if (!event) return err_memory(e, sizeof *event, "an event of a CUDA device");
    if (kind == EVENT_FLAG) return new_flag(cuda, event, out, e);
    cuda_enter(cuda);
    const unsigned flags = kind == EVENT_TIMED ? 0 : DRIVER_EVENT_DISABLE_TIMING;
    const unsigned code = cuda->driver.event_create(&event->handle, flags);
    if (cuda_check(&cuda->driver, code, e, "%s: making an event", d->info.name)) {
        mem_free(event);
        return e->status;
    }
    *out = (struct event){.device = d, .handle = event};
    return OK;
}

void cuda_event_free(struct event *event) {
    struct cuda_device *cuda = cuda_of(event->device);
    struct cuda_event *own = event->handle;
    if (event->flag) {
        cuda_flag_give_back(cuda, own->place);
    } else if (!event->device->lost) {
        cuda_enter(cuda);
        (void)cuda->driver.event_destroy(own->handle);
    }
    mem_free(own);
}

// The flag is a part of the stream's list.
static void record_flag(struct cuda_stream *s, struct event *event) {
    struct cuda_event *own = event->handle;
    own->failure = s->failure;
    own->stream = s;
    if (s->failure.status != OK || s->base.device->lost) return;
    ASSERT(event_is_up(event)); // its last record was passed
    event_lower(event);
    cuda_flag_encode(s, CUDA_RAISE_FLAG, own->place);
}

void cuda_record(struct stream *stream, struct event *event) {
    struct cuda_stream *s = (struct cuda_stream *)stream;
    struct cuda_device *cuda = cuda_of(stream->device);
    struct cuda_event *own = event->handle;
    if (event->flag) {
        record_flag(s, event);
        return;
    }
    cuda_submit(s);
    if (s->failure.status == OK)
        cuda_keep(s, cuda->driver.event_record(own->handle, s->handle), "recording an event");
    own->recorded = true;
    own->failure = s->failure;
}

// The calling thread waits for an event of another device, since the driver knows only its own
// events.
void cuda_wait_event(struct stream *stream, struct event *event) {
    struct cuda_stream *s = (struct cuda_stream *)stream;
    if (event->flag) {
        const struct cuda_event *flag = event->handle;
        s->quantized = (struct cuda_quantized){0};
        cuda_flag_encode(s, CUDA_WAIT_FLAG, flag->place);
        return;
    }
    cuda_submit(s);
    s->quantized = (struct cuda_quantized){0};
    if (s->failure.status != OK) return;
    if (event->device->class != stream->device->class) {
        struct err failure;
        if (event->device->class->event_wait(event, &failure) != OK) s->failure = failure;
        return;
    }
    struct cuda_event *own = event->handle;
    if (own->failure.status != OK)
        s->failure = own->failure;
    else
        cuda_keep(s, cuda_of(stream->device)->driver.stream_wait_event(s->handle, own->handle, 0),
                  "waiting for an event");
}

enum status cuda_event_wait(struct event *event, struct err *e) {
    struct cuda_device *cuda = cuda_of(event->device);
    struct cuda_event *own = event->handle;
    if (event->device->lost) return device_lose(event->device, e);
    cuda_enter(cuda);
    if (own->failure.status == OK)
        return event->flag ? await_flag(cuda, event, e) : await(cuda, NULL, own->handle, e);
    *e = own->failure;
    return e->status;
}

enum status cuda_event_time(struct event *event, uint64_t *out_ns, struct err *e) {
    struct cuda_device *cuda = cuda_of(event->device);
    const struct cuda_event *own = event->handle;
    float ms = 0;
    if (event->device->lost) return device_lose(event->device, e);
    if (!own->recorded) return OK;
    if (own->failure.status != OK) {
        *e = own->failure;
        return e->status;
    }
    cuda_enter(cuda);
    const struct cuda_base *base = &cuda->clock_base;
    if (clock_ns() - base->time_ns > BASE_AGE_NS && set_base(cuda, e)) return e->status;
    const unsigned code = cuda->driver.event_elapsed(&ms, base->event, own->handle);
    if (cuda_check(&cuda->driver, code, e, "%s: the time of an event", event->device->info.name))
        return e->status;
    *out_ns = base->time_ns + (uint64_t)(int64_t)((double)ms * 1e6); // ms may be negative
    return OK;
}

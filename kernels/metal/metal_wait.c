/* metal_wait.c: command buffers that are under way: which are done, which have failed, and waits
 * that end; see metal_backend.h.
 *
 * Waits of the calling thread poll, without a pause at first. The first failure of a command buffer
 * is the device's and fails every stream. One thread drives a device at a time. Tested by
 * tests/kernels/test_metal.c.
 */
#include "base/clock.h"
#include "kernels/metal/metal_backend.h"

void metal_keep(struct metal_stream *s, const struct err *failure) {
    if (s->failure.status == OK) s->failure = *failure;
}

// ---- Failures ----------------------------------------------------------------------------------

// Drops the jobs of the stream that have not begun, and lets go what waits for them.
static void skip_jobs(struct metal_stream *s) {
    struct metal_host *host = &s->host;
    (void)pthread_mutex_lock(&host->lock);
    host->skip = true;
    METAL_SEND(&metal_of(s->base.device)->objc, event_set, host->event, host->value);
    (void)pthread_mutex_unlock(&host->lock);
}

// The code of a command buffer that failed; 0 if Metal does not say it.
static long code_of(const struct metal_device *d, struct mtl_commands *commands) {
    struct ns_error *error = METAL_SEND(&d->objc, commands_error, commands);
    return error ? METAL_SEND(&d->objc, error_code, error) : 0;
}

// After a failure Metal drops what other queues have: the one that failed by itself, if there is
// any beside the one given, which is returned otherwise.
static struct mtl_commands *find_cause(const struct metal_device *d,
                                       struct mtl_commands *commands) {
    if (code_of(d, commands) != METAL_ERROR_ACCESS_REVOKED) return commands;
    for (const struct metal_stream *s = d->streams; s; s = s->next)
        for (int i = 0; i < s->n_running; i++) {
            struct mtl_commands *other = s->running[(s->first + i) % METAL_RUNNING];
            if (METAL_SEND(&d->objc, commands_status, other) > METAL_STATUS_COMPLETED &&
                code_of(d, other) != METAL_ERROR_ACCESS_REVOKED)
                return other;
        }
    return commands;
}

// The first failure of a command buffer is the device's. Whatever waits for events is let go, since
// nobody signals them any more.
static void fail_device(struct metal_device *d, struct mtl_commands *commands) {
    void *pool = d->objc.pool_push();
    if (d->failure.status == OK) {
        struct mtl_commands *cause = find_cause(d, commands);
        const long code = code_of(d, cause);
        err_set(&d->failure, ERR_DEVICE, "%s: computing: %s (%ld)", d->base.info.name,
                metal_error_text(&d->objc, METAL_SEND(&d->objc, commands_error, cause)), code);
        err_fix(&d->failure, code == METAL_ERROR_OUT_OF_MEMORY
                                 ? "close other programs, or give tandem less memory (--vram)"
                                 : "start again; if it stays, use --device none");
    }
    d->objc.pool_pop(pool);
    for (struct metal_stream *s = d->streams; s; s = s->next) skip_jobs(s);
    for (const struct metal_event *event = d->events; event; event = event->next)
        METAL_SEND(&d->objc, event_set, event->handle, event->value);
}

void metal_reap(struct metal_stream *s) {
    struct metal_device *d = metal_of(s->base.device);
    while (s->n_running > 0) {
        struct mtl_commands *oldest = s->running[s->first];
        const objc_number status = METAL_SEND(&d->objc, commands_status, oldest);
        if (status < METAL_STATUS_COMPLETED) return;
        s->first = (s->first + 1) % METAL_RUNNING;
        s->n_running--;
        if (status > METAL_STATUS_COMPLETED) fail_device(d, oldest);
        d->objc.release(oldest);
    }
}

enum status metal_look(struct metal_device *d) {
    for (struct metal_stream *s = d->streams; s; s = s->next) metal_reap(s);
    return d->failure.status;
}

bool metal_is_idle(struct metal_stream *s) {
    if (s->failure.status != OK || s->base.device->lost || s->commands) return false;
    metal_reap(s);
    return s->n_running == 0 && metal_of(s->base.device)->failure.status == OK;
}

bool metal_is_good(struct metal_stream *s) {
    struct metal_device *d = metal_of(s->base.device);
    if (s->failure.status == OK && d->base.lost) (void)device_lose(&d->base, &s->failure);
    if (s->failure.status == OK && d->failure.status != OK) s->failure = d->failure;
    return s->failure.status == OK;
}

// ---- Waiting -----------------------------------------------------------------------------------

static bool is_done(const struct metal_device *d, struct mtl_commands *commands,
                    const struct metal_event *event) {
    if (event && METAL_SEND(&d->objc, event_value, event->handle) >= event->value) return true;
    return METAL_SEND(&d->objc, commands_status, commands) >= METAL_STATUS_COMPLETED;
}

// Waits until the commands are done, or have signalled the event if there is one.
static enum status await(struct metal_device *d, struct mtl_commands *commands,
                         const struct metal_event *event, struct err *e) {
    const uint64_t begin_ns = clock_ns(), deadline_ns = device_deadline_ns(&d->base);
    if (d->base.lost) return device_lose(&d->base, e);
    (void)d->objc.retain(commands); // their stream may let them go meanwhile
    while (!is_done(d, commands, event) && !d->base.lost) {
        const uint64_t now_ns = clock_ns();
        if (now_ns >= deadline_ns) (void)device_lose(&d->base, e);
        (void)metal_look(d); // a failure elsewhere lets go what these commands wait for
        clock_rest(now_ns - begin_ns);
    }
    d->objc.release(commands);
    if (d->base.lost) return device_lose(&d->base, e);
    if (metal_look(d) == OK) return OK;
    *e = d->failure;
    return e->status;
}

enum status metal_await_event(struct metal_device *d, const struct metal_event *event,
                              struct err *e) {
    return await(d, event->commands, event, e);
}

enum status metal_await(struct metal_device *d, struct mtl_commands *commands, struct err *e) {
    return await(d, commands, NULL, e);
}

enum status metal_await_stream(struct metal_stream *s, struct err *e) {
    struct metal_device *d = metal_of(s->base.device);
    metal_reap(s);
    if (s->n_running > 0) // they end in order
        return metal_await(d, s->running[(s->first + s->n_running - 1) % METAL_RUNNING], e);
    if (d->base.lost) return device_lose(&d->base, e);
    if (d->failure.status == OK) return OK;
    *e = d->failure;
    return e->status;
}

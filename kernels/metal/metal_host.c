/* metal_host.c: work of the host in the order of a Metal stream: calls, and copies of memory that
 * the GPU does not reach.
 *
 * A stream has a thread and a shared event. The command buffer before a job signals the event, the
 * thread sees that, does the job and raises the event by one, which the next command buffer waits
 * for. So no completion handler is needed, which would be a block. The thread owns nothing and
 * reads the stream under its lock. Tested by tests/kernels/test_metal.c.
 */
#include "base/clock.h"
#include "kernels/metal/metal_backend.h"

#include <string.h>

enum {
    SLEEP_NS_MIN = 20000, // the thread looks so often at first,
    SLEEP_PART = 8,       // then after 1/8 of the time waited so far
    SLEEP_NS_MAX = 1000000,
};

void metal_copy_by_host(const struct row_copy *c) {
    const bool whole = c->target_stride == c->row_bytes && c->source_stride == c->row_bytes;
    const uint64_t size_bytes = whole ? c->row_bytes * (uint64_t)c->n_rows : c->row_bytes;
    for (uint64_t i = 0; i < (whole ? 1 : (uint64_t)c->n_rows); i++)
        memcpy((char *)c->target + i * c->target_stride,
               (const char *)c->source + i * c->source_stride, size_bytes);
}

// ---- The thread --------------------------------------------------------------------------------

static bool is_ending(struct metal_host *host) {
    (void)pthread_mutex_lock(&host->lock);
    const bool ending = host->quit;
    (void)pthread_mutex_unlock(&host->lock);
    return ending;
}

// Waits until everything before the job is done. False if the thread is to end.
static bool await_ready(struct metal_stream *s, uint64_t ready) {
    const struct metal_objc *objc = &metal_of(s->base.device)->objc;
    const uint64_t begin_ns = clock_ns();
    while (METAL_SEND(objc, event_value, s->host.event) < ready) {
        if (is_ending(&s->host)) return false;
        uint64_t sleep_ns = (clock_ns() - begin_ns) / SLEEP_PART;
        if (sleep_ns < SLEEP_NS_MIN) sleep_ns = SLEEP_NS_MIN;
        clock_sleep_ns(sleep_ns < SLEEP_NS_MAX ? sleep_ns : SLEEP_NS_MAX);
    }
    return true;
}

static void do_job(struct metal_stream *s, const struct metal_job *job) {
    struct metal_host *host = &s->host;
    (void)pthread_mutex_lock(&host->lock);
    const bool skipped = host->skip;
    (void)pthread_mutex_unlock(&host->lock);
    if (skipped) return;
    if (job->fn)
        job->fn(job->context);
    else
        metal_copy_by_host(&job->copy);
}

// A skipped stream's event has its last value already.
static void end_job(struct metal_stream *s, const struct metal_job *job) {
    struct metal_host *host = &s->host;
    (void)pthread_mutex_lock(&host->lock);
    if (!host->skip)
        METAL_SEND(&metal_of(s->base.device)->objc, event_set, host->event, job->ready + 1);
    host->first = (host->first + 1) % METAL_JOBS;
    host->n_jobs--;
    (void)pthread_mutex_unlock(&host->lock);
}

static void *run_host(void *argument) {
    struct metal_stream *s = argument;
    struct metal_host *host = &s->host;
    for (;;) {
        (void)pthread_mutex_lock(&host->lock);
        while (host->n_jobs == 0 && !host->quit)
            (void)pthread_cond_wait(&host->changed, &host->lock);
        const bool quit = host->quit;
        const struct metal_job job = host->jobs[host->first];
        (void)pthread_mutex_unlock(&host->lock);
        if (quit || !await_ready(s, job.ready)) return NULL;
        do_job(s, &job);
        end_job(s, &job);
    }
}

// ---- For the thread that drives the device -----------------------------------------------------

enum status metal_host_open(struct metal_stream *s, struct err *e) {
    struct metal_device *d = metal_of(s->base.device);
    struct metal_host *host = &s->host;
    (void)pthread_mutex_init(&host->lock, NULL);
    (void)pthread_cond_init(&host->changed, NULL);
    host->event = METAL_SEND(&d->objc, new_event, d->handle);
    if (!host->event) return err_set(e, ERR_MEMORY, "%s: no shared event", d->base.info.name);
    host->has_thread = pthread_create(&host->thread, NULL, run_host, s) == 0;
    return host->has_thread ? OK : err_set(e, ERR_MEMORY, "%s: no thread", d->base.info.name);
}

void metal_host_close(struct metal_stream *s) {
    struct metal_device *d = metal_of(s->base.device);
    struct metal_host *host = &s->host;
    (void)pthread_mutex_lock(&host->lock);
    host->quit = true;
    (void)pthread_cond_signal(&host->changed);
    (void)pthread_mutex_unlock(&host->lock);
    if (d->base.lost) {
        if (host->has_thread) (void)pthread_detach(host->thread); // a job may hang
        return;
    }
    if (host->has_thread) (void)pthread_join(host->thread, NULL);
    d->objc.release(host->event);
    (void)pthread_cond_destroy(&host->changed);
    (void)pthread_mutex_destroy(&host->lock);
}

static int jobs_left(struct metal_host *host) {
    (void)pthread_mutex_lock(&host->lock);
    const int n = host->n_jobs;
    (void)pthread_mutex_unlock(&host->lock);
    return n;
}

// Waits until there is room for one more job. False if the stream has failed or is lost now.
static bool await_room(struct metal_stream *s) {
    struct metal_device *d = metal_of(s->base.device);
    struct err failure;
    const uint64_t begin_ns = clock_ns(), deadline_ns = device_deadline_ns(&d->base);
    while (jobs_left(&s->host) == METAL_JOBS) {
        const uint64_t now_ns = clock_ns();
        if (now_ns >= deadline_ns) {
            (void)device_lose(&d->base, &failure);
            metal_keep(s, &failure);
            return false;
        }
        (void)metal_look(d);
        clock_rest(now_ns - begin_ns);
    }
    return true;
}

void metal_host_add(struct metal_stream *s, const struct metal_job *job) {
    const struct metal_objc *objc = &metal_of(s->base.device)->objc;
    struct metal_host *host = &s->host;
    if (!metal_begin(s)) return;
    metal_end_encoders(s);
    METAL_SEND(objc, signal, s->commands, host->event, host->value + 1);
    metal_submit(s);
    if (!await_room(s) || !metal_begin(s)) return;
    METAL_SEND(objc, await, s->commands, host->event, host->value + 2);
    (void)pthread_mutex_lock(&host->lock);
    struct metal_job *place = &host->jobs[(host->first + host->n_jobs++) % METAL_JOBS];
    *place = *job;
    place->ready = host->value + 1;
    host->value += 2;
    (void)pthread_cond_signal(&host->changed);
    (void)pthread_mutex_unlock(&host->lock);
}

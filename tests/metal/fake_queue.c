/* fake_queue.c: queues, command buffers and shared events of the look-alike Metal; see fake.h.
 *
 * A queue is a thread that runs its command buffers in the order of their commits, so that work
 * whose event nobody waited for is seen to be missing. With a seed, queues idle at random moments.
 * After a failure all that is committed later fails, and events are not signalled. Tested by
 * tests/kernels/test_metal_rules.c.
 */
#include "tests/metal/fake.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    STATUS_COMMITTED = 2,
    STATUS_SCHEDULED = 3,
    STATUS_ERROR = 5,

    ERROR_PAGE_FAULT = 3,

    DELAY_US_MAX = 300,
};

struct fake_queue {
    struct fake_object object;
    struct fake_device *device;
    pthread_t thread;
    pthread_mutex_t lock; // all below
    pthread_cond_t changed;
    struct fake_commands *first, *last; // committed; the first is running
    objc_number n_made, n_max;          // command buffers that are not done
    bool quit;
    unsigned random;
};

// All events, and what command buffers have come to, have one lock: a signal wakes every queue that
// waits, and TSan sees that what was done before it is done.
static struct {
    pthread_mutex_t lock;
    pthread_cond_t signalled;
} state = {.lock = PTHREAD_MUTEX_INITIALIZER, .signalled = PTHREAD_COND_INITIALIZER};

// ---- Events ------------------------------------------------------------------------------------

static uint64_t event_value(struct fake_event *event, void *selector) {
    (void)selector;
    pthread_mutex_lock(&state.lock);
    const uint64_t value = event->value;
    pthread_mutex_unlock(&state.lock);
    return value;
}

static void set_value(struct fake_event *event, uint64_t value) {
    pthread_mutex_lock(&state.lock);
    event->value = value;
    pthread_cond_broadcast(&state.signalled);
    pthread_mutex_unlock(&state.lock);
}

static void event_set(struct fake_event *event, void *selector, uint64_t value) {
    (void)selector;
    set_value(event, value);
}

static const struct fake_method EVENT_METHODS[] = {
    {"signaledValue", event_value}, {"setSignaledValue:", event_set}, {NULL, NULL}};
static struct fake_class event_class = {.name = "MTLSharedEvent", .methods = EVENT_METHODS};

void *fake_new_event(struct fake_device *device, void *selector) {
    (void)device, (void)selector;
    return fake_fault(FAULT_EVENT) ? NULL : fake_new(&event_class, sizeof(struct fake_event));
}

// ---- Running -----------------------------------------------------------------------------------

static double now_s(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

// NULL or what failed.
static struct fake_error *run_dispatch(const struct fake_command *c) {
    const struct metal_function *f = c->pipeline->function;
    struct metal_bound bound = {0};
    uint32_t shared_bytes = 0;
    atomic_fetch_add(&fake()->n_dispatches, 1);
    atomic_store(&fake()->dispatched[c->pipeline->number], true);
    for (int i = 0; i < METAL_SLOTS; i++)
        bound.buffer[i] = c->slots[i].bytes    ? c->slots[i].bytes
                          : c->slots[i].buffer ? c->slots[i].buffer->bytes + c->slots[i].offset
                                               : NULL;
    for (uint32_t i = 0; i < f->n_arguments; i++) {
        if (f->arguments[i].kind != METAL_THREADGROUP) continue;
        bound.threadgroup_offset[f->arguments[i].index] = shared_bytes;
        shared_bytes += c->threadgroup_bytes[f->arguments[i].index];
    }
    if (fake_fault(FAULT_KERNEL))
        return fake_error(ERROR_PAGE_FAULT, "Caused GPU Address Fault Error (0000000b:"
                                            "kIOGPUCommandBufferCallbackErrorPageFault)");
    const struct simt_launch launch = {
        .kernel = f->run,
        .params = &bound,
        .name = f->name,
        .grid = {(unsigned)c->grid.x, (unsigned)c->grid.y, (unsigned)c->grid.z},
        .block = {(unsigned)c->threads.x, (unsigned)c->threads.y, (unsigned)c->threads.z},
        .shared_bytes = shared_bytes};
    struct simt_report report;
    if (simt_run(fake()->simt, &launch, &report)) return NULL;
    fake_complain("%s", report.text);
    return fake_error(ERROR_PAGE_FAULT, "%s", report.text);
}

static struct fake_error *run_copy(const struct fake_command *c) {
    atomic_fetch_add(&fake()->n_copies, 1);
    if (fake_fault(FAULT_COPY))
        return fake_error(ERROR_PAGE_FAULT, "Caused GPU Address Fault Error (0000000b:"
                                            "kIOGPUCommandBufferCallbackErrorPageFault)");
    memcpy(c->target->bytes + c->target_offset, c->source->bytes + c->source_offset, c->size_bytes);
    return NULL;
}

static void wait_event(const struct fake_command *c) {
    pthread_mutex_lock(&state.lock);
    while (c->event->value < c->value) pthread_cond_wait(&state.signalled, &state.lock);
    pthread_mutex_unlock(&state.lock);
}

static struct fake_error *run_command(const struct fake_command *c) {
    switch (c->kind) {
    case FAKE_DISPATCH: return run_dispatch(c);
    case FAKE_COPY: return run_copy(c);
    case FAKE_SIGNAL: set_value(c->event, c->value); return NULL;
    case FAKE_WAIT: wait_event(c); return NULL;
    }
    return NULL;
}

static void set_status(struct fake_commands *commands, int status) {
    pthread_mutex_lock(&state.lock);
    commands->status = status;
    pthread_mutex_unlock(&state.lock);
}

static objc_number get_status(const struct fake_commands *commands) {
    pthread_mutex_lock(&state.lock);
    const int status = commands->status;
    pthread_mutex_unlock(&state.lock);
    return (objc_number)status;
}

// Never ends: the process does.
static void stall(void) {
    atomic_store(&fake()->stalled, true);
    for (;;) pause();
}

static struct fake_error *run_commands(struct fake_commands *commands) {
    struct fake_error *error = NULL;
    if (atomic_load(&fake()->failed))
        return fake_error(METAL_ERROR_ACCESS_REVOKED,
                          "Ignored (for causing prior/excessive GPU errors) "
                          "(00000004:kIOGPUCommandBufferCallbackError"
                          "SubmissionsIgnored)");
    if (fake_fault(FAULT_STALL)) stall();
    if (commands->first && fake_fault(FAULT_MEMORY))
        error =
            fake_error(METAL_ERROR_OUT_OF_MEMORY, "Insufficient Memory (00000008:"
                                                  "kIOGPUCommandBufferCallbackErrorOutOfMemory)");
    for (const struct fake_command *c = commands->first; c && !error; c = c->next)
        error = run_command(c);
    return error;
}

static void idle(struct fake_queue *q) {
    q->random = q->random * 1664525U + 1013904223U;
    const struct timespec delay = {0, (long)(q->random >> 8) % (DELAY_US_MAX * 1000L)};
    if (q->random >> 31 == 0) clock_nanosleep(CLOCK_MONOTONIC, 0, &delay, NULL);
}

static void run_buffer(struct fake_queue *q, struct fake_commands *commands) {
    if (fake()->options.seed) idle(q);
    atomic_fetch_add(&fake()->n_commands, 1);
    set_status(commands, STATUS_SCHEDULED);
    commands->error = run_commands(commands);
    commands->end_s = now_s();
    // The others fail after this one.
    const bool failed = commands->error;
    set_status(commands, failed ? STATUS_ERROR : METAL_STATUS_COMPLETED);
    if (failed) atomic_store(&fake()->failed, true);
}

static void *run_queue(void *argument) {
    struct fake_queue *q = argument;
    pthread_mutex_lock(&q->lock);
    for (;;) {
        while (!q->first && !q->quit) pthread_cond_wait(&q->changed, &q->lock);
        struct fake_commands *commands = q->first;
        if (!commands) break;
        pthread_mutex_unlock(&q->lock);
        run_buffer(q, commands);
        pthread_mutex_lock(&q->lock);
        q->first = commands->next;
        if (!q->first) q->last = NULL;
        q->n_made--;
        pthread_cond_broadcast(&q->changed);
        fake_release(commands);
    }
    pthread_mutex_unlock(&q->lock);
    return NULL;
}

// ---- Command buffers ---------------------------------------------------------------------------

static void free_commands(void *object) {
    struct fake_commands *commands = object;
    if (commands->encoder) fake_rule("encoder-open", "a command buffer goes with an open encoder");
    if (!commands->committed) {
        pthread_mutex_lock(&commands->queue->lock);
        commands->queue->n_made--;
        pthread_cond_broadcast(&commands->queue->changed);
        pthread_mutex_unlock(&commands->queue->lock);
    }
    while (commands->first) {
        struct fake_command *c = commands->first;
        commands->first = c->next;
        fake_free_command(c);
    }
    fake_release(commands->error);
}

void fake_check_open(const struct fake_commands *commands, const char *what) {
    if (commands->committed) fake_rule("committed", "%s after commit", what);
    if (commands->encoder) fake_rule("encoder-open", "%s while an encoder is open", what);
}

struct fake_command *fake_append(struct fake_commands *commands, enum fake_kind kind) {
    struct fake_command *c = calloc(1, sizeof *c);
    if (!c) abort();
    c->kind = kind;
    if (commands->last)
        commands->last->next = c;
    else
        commands->first = c;
    commands->last = c;
    return c;
}

static void append_event(struct fake_commands *commands, struct fake_event *event, uint64_t value,
                         enum fake_kind kind, const char *what) {
    fake_check_open(commands, what);
    if (!event) fake_rule("nil-argument", "%s of nil", what);
    struct fake_command *c = fake_append(commands, kind);
    c->event = fake_retain(event);
    c->value = value;
}

static void encode_signal(struct fake_commands *commands, void *selector, struct fake_event *event,
                          uint64_t value) {
    (void)selector;
    append_event(commands, event, value, FAKE_SIGNAL, "encodeSignalEvent:");
}

static void encode_wait(struct fake_commands *commands, void *selector, struct fake_event *event,
                        uint64_t value) {
    (void)selector;
    append_event(commands, event, value, FAKE_WAIT, "encodeWaitForEvent:");
}

static void commit(struct fake_commands *commands, void *selector) {
    (void)selector;
    struct fake_queue *q = commands->queue;
    fake_check_open(commands, "commit");
    fake_check_live(q, "commit");
    fake_retain(commands);
    pthread_mutex_lock(&q->lock);
    commands->committed = true;
    set_status(commands, STATUS_COMMITTED);
    if (q->last)
        q->last->next = commands;
    else
        q->first = commands;
    q->last = commands;
    pthread_cond_broadcast(&q->changed);
    pthread_mutex_unlock(&q->lock);
}

static objc_number commands_status(struct fake_commands *commands, void *selector) {
    (void)selector;
    return get_status(commands);
}

static void *commands_error(struct fake_commands *commands, void *selector) {
    (void)selector;
    if (get_status(commands) < METAL_STATUS_COMPLETED || !commands->error) return NULL;
    return fake_autorelease(fake_retain(commands->error));
}

static double end_time(struct fake_commands *commands, void *selector) {
    (void)selector;
    return get_status(commands) < METAL_STATUS_COMPLETED ? 0 : commands->end_s;
}

static const struct fake_method COMMANDS_METHODS[] = {
    {"computeCommandEncoder", fake_compute_encoder},
    {"blitCommandEncoder", fake_blit_encoder},
    {"encodeSignalEvent:value:", encode_signal},
    {"encodeWaitForEvent:value:", encode_wait},
    {"commit", commit},
    {"status", commands_status},
    {"error", commands_error},
    {"GPUEndTime", end_time},
    {NULL, NULL},
};
static struct fake_class commands_class = {
    .name = "MTLCommandBuffer", .methods = COMMANDS_METHODS, .dealloc = free_commands};

// ---- Queues ------------------------------------------------------------------------------------

// Waits, as Metal does, while as many command buffers are there as the queue may have.
static void *new_commands(struct fake_queue *q, void *selector) {
    (void)selector;
    if (fake_fault(FAULT_COMMANDS)) return NULL;
    pthread_mutex_lock(&q->lock);
    while (q->n_made == q->n_max) pthread_cond_wait(&q->changed, &q->lock);
    q->n_made++;
    pthread_mutex_unlock(&q->lock);
    struct fake_commands *commands = fake_new(&commands_class, sizeof *commands);
    commands->queue = q;
    return fake_autorelease(commands);
}

// Runs what was committed first.
static void free_queue(void *object) {
    struct fake_queue *q = object;
    pthread_mutex_lock(&q->lock);
    q->quit = true;
    pthread_cond_broadcast(&q->changed);
    pthread_mutex_unlock(&q->lock);
    pthread_join(q->thread, NULL);
    pthread_cond_destroy(&q->changed);
    pthread_mutex_destroy(&q->lock);
    fake_release(q->device);
}

static const struct fake_method QUEUE_METHODS[] = {{"commandBuffer", new_commands}, {NULL, NULL}};
static struct fake_class queue_class = {
    .name = "MTLCommandQueue", .methods = QUEUE_METHODS, .dealloc = free_queue};

void *fake_new_queue(struct fake_device *device, void *selector, objc_number n_commands) {
    (void)selector;
    if (n_commands == 0) fake_rule("queue-length", "a queue for no command buffers");
    if (fake_fault(FAULT_QUEUE)) return NULL;
    struct fake_queue *q = fake_new(&queue_class, sizeof *q);
    q->device = fake_device_hold(device);
    q->n_max = n_commands;
    q->random = fake()->options.seed * 2654435761U + (unsigned)n_commands;
    pthread_mutex_init(&q->lock, NULL);
    pthread_cond_init(&q->changed, NULL);
    if (pthread_create(&q->thread, NULL, run_queue, q)) abort();
    return q;
}

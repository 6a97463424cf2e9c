/* fake_stream.c: streams, events, copies and calls of the look-alike driver; see fake.h.
 *
 * A stream is a thread with a queue: a call only puts work there, so that work whose event nobody
 * waited for is seen to be missing. Events count their records; a wait is for the last record
 * before it. With a seed, streams idle at random moments. After a failure the context's streams
 * drop their work. Tested by tests/kernels/test_emulator.c.
 */
#include "tests/emulator/fake.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

enum { DELAY_US_MAX = 300, QUERY_NS = 200000, LOOK_NS = 10000 };

// Read and written under the context's lock.
struct CUevent_st {
    struct CUctx_st *context;
    bool timed;
    uint64_t recorded, passed; // records asked for, and done
    uint64_t passed_ns;        // when the last one was
    int n_users;               // work that names it, plus one until it is destroyed
};

enum work_kind { WORK_COPY, WORK_LAUNCH, WORK_CALL, WORK_RECORD, WORK_WAIT, WORK_MEMORY };

struct work {
    enum work_kind kind;
    struct work *next;
    void *target; // a copy
    const void *source;
    size_t n_rows, row_bytes, target_stride, source_stride;
    int engine; // 0: to the device, 1: from it, -1: on it
    void (*fn)(void *context);
    void *context;
    struct CUevent_st *event;
    uint64_t record; // which of the event's
    struct cuda_memory_op op;
    struct fake_launch launch;
};

struct CUstream_st {
    struct CUctx_st *context;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct work *first, *last; // first is running
    bool quit;
    unsigned random;
};

// ---- The stream's thread -----------------------------------------------------------------------

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000U + (uint64_t)now.tv_nsec;
}

static struct timespec after(struct timespec start, uint64_t ns) {
    ns += (uint64_t)start.tv_nsec;
    start.tv_sec += (time_t)(ns / 1000000000U);
    start.tv_nsec = (long)(ns % 1000000000U);
    return start;
}

static void sleep_until(struct timespec start, uint64_t ns) {
    start = after(start, ns);
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &start, NULL) == EINTR) {
    }
}

static void run_copy(struct CUctx_st *c, const struct work *w) {
    struct timespec start;
    uint64_t rate = w->engine < 0 ? 0 : fake()->options.rate[w->engine];
    unsigned code = fake_fault(FAULT_DMA);
    if (code) {
        fake_fail(c, code);
        return;
    }
    if (w->engine >= 0) pthread_mutex_lock(&c->engines[w->engine]);
    clock_gettime(CLOCK_MONOTONIC, &start);
    const double size_bytes = (double)w->row_bytes * (double)w->n_rows;
    if (rate) sleep_until(start, (uint64_t)(size_bytes * 1e9 / (double)rate));
    for (size_t i = 0; i < w->n_rows; i++) // late, so that too early a use is seen
        memcpy((char *)w->target + i * w->target_stride,
               (const char *)w->source + i * w->source_stride, w->row_bytes);
    if (w->engine >= 0) pthread_mutex_unlock(&c->engines[w->engine]);
}

static void release_event(struct CUevent_st *e) { // under the context's lock
    if (--e->n_users == 0) free(e);
}

static void wait_record(struct CUctx_st *c, const struct work *w) {
    pthread_mutex_lock(&c->lock);
    while (w->event->passed < w->record && !c->failure) pthread_cond_wait(&c->moved, &c->lock);
    pthread_mutex_unlock(&c->lock);
}

// Looks at the word until it is as large, as a signed difference, or writes it.
static void run_memory(struct CUctx_st *c, const struct cuda_memory_op *op) {
    uint32_t *word = (uint32_t *)(uintptr_t)op->address;
    const uint32_t value = (uint32_t)op->value;
    const struct timespec pause = {0, LOOK_NS};
    if (op->operation == DRIVER_MEMORY_OP_WRITE) {
        if (fake_fault(FAULT_RAISE)) return;
        __atomic_store_n(word, value, __ATOMIC_RELEASE);
        return;
    }
    for (bool failed = false; !failed;) {
        if ((int32_t)(__atomic_load_n(word, __ATOMIC_ACQUIRE) - value) >= 0) return;
        clock_nanosleep(CLOCK_MONOTONIC, 0, &pause, NULL);
        pthread_mutex_lock(&c->lock);
        failed = c->failure;
        pthread_mutex_unlock(&c->lock);
    }
}

static void run_call(const struct work *w) {
    pthread_setspecific(fake()->calling, w);
    w->fn(w->context);
    pthread_setspecific(fake()->calling, NULL);
}

static void run_work(struct CUctx_st *c, const struct work *w) {
    pthread_mutex_lock(&c->lock);
    bool failed = c->failure;
    pthread_mutex_unlock(&c->lock);
    if (failed) return;
    if (w->kind == WORK_WAIT) wait_record(c, w);
    if (w->kind == WORK_CALL) run_call(w);
    if (w->kind == WORK_MEMORY) run_memory(c, &w->op);
    if (w->kind != WORK_COPY && w->kind != WORK_LAUNCH) return;
    fake_memory_enter(c);
    if (w->kind == WORK_COPY) run_copy(c, w);
    if (w->kind == WORK_LAUNCH) fake_run_launch(c, &w->launch);
    fake_memory_leave(c);
}

static void end_work(struct CUctx_st *c, struct work *w) {
    pthread_mutex_lock(&c->lock);
    if (w->kind == WORK_RECORD && w->event->passed < w->record) {
        w->event->passed = w->record;
        w->event->passed_ns = now_ns();
    }
    if (w->event) release_event(w->event);
    pthread_cond_broadcast(&c->moved);
    pthread_mutex_unlock(&c->lock);
    free(w);
}

static void idle(struct CUstream_st *s) {
    s->random = s->random * 1664525U + 1013904223U;
    const struct timespec delay = {0, (long)(s->random >> 8) % (DELAY_US_MAX * 1000L)};
    if (s->random >> 30 == 0) clock_nanosleep(CLOCK_MONOTONIC, 0, &delay, NULL);
}

static void *run_stream(void *argument) {
    struct CUstream_st *s = argument;
    (void)prctl(PR_SET_TIMERSLACK, 1000UL, 0UL, 0UL, 0UL); // sleeps end when they should
    pthread_mutex_lock(&s->lock);
    for (;;) {
        while (!s->first && !s->quit) pthread_cond_wait(&s->changed, &s->lock);
        struct work *w = s->first;
        if (!w) break;
        pthread_mutex_unlock(&s->lock);
        if (fake()->options.seed) idle(s);
        run_work(s->context, w);
        pthread_mutex_lock(&s->lock);
        s->first = w->next;
        if (!s->first) s->last = NULL;
        end_work(s->context, w);
        pthread_cond_broadcast(&s->changed);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

// ---- Streams -----------------------------------------------------------------------------------

// Before a query says that work is not done it waits for a moment: a caller that polls would take
// the time of the processors that compute the kernels.
static void wait_a_moment(pthread_cond_t *changed, pthread_mutex_t *lock) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    now = after(now, QUERY_NS);
    pthread_cond_timedwait(changed, lock, &now);
}

unsigned cuStreamCreate(struct CUstream_st **stream, unsigned flags) {
    unsigned code;
    struct CUctx_st *c = fake_current(&code);
    if (!c) return code;
    if (flags & ~(unsigned)DRIVER_STREAM_NON_BLOCKING) return CODE_INVALID_VALUE;
    if ((code = fake_fault(FAULT_STREAM))) return code;
    struct CUstream_st *s = calloc(1, sizeof *s);
    if (!s) return DRIVER_OUT_OF_MEMORY;
    s->context = c;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->changed, NULL);
    pthread_mutex_lock(&c->lock);
    s->random = fake()->options.seed * 2654435761U + (unsigned)c->n_streams;
    c->n_streams++;
    pthread_mutex_unlock(&c->lock);
    if (pthread_create(&s->thread, NULL, run_stream, s)) {
        pthread_mutex_lock(&c->lock);
        c->n_streams--;
        pthread_mutex_unlock(&c->lock);
        free(s);
        return DRIVER_OUT_OF_MEMORY;
    }
    *stream = s;
    return DRIVER_SUCCESS;
}

// Finishes all queued commands first.
unsigned cuStreamDestroy_v2(struct CUstream_st *s) {
    if (!s) return CODE_INVALID_HANDLE;
    pthread_mutex_lock(&s->lock);
    s->quit = true;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
    pthread_join(s->thread, NULL);
    pthread_mutex_lock(&s->context->lock);
    s->context->n_streams--;
    pthread_mutex_unlock(&s->context->lock);
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->lock);
    free(s);
    return DRIVER_SUCCESS;
}

unsigned cuStreamSynchronize(struct CUstream_st *s) {
    unsigned code;
    if (!s) return CODE_INVALID_HANDLE;
    pthread_mutex_lock(&s->lock);
    while (s->first) pthread_cond_wait(&s->changed, &s->lock);
    pthread_mutex_unlock(&s->lock);
    pthread_mutex_lock(&s->context->lock);
    code = s->context->failure;
    pthread_mutex_unlock(&s->context->lock);
    return code;
}

unsigned cuStreamQuery(struct CUstream_st *s) {
    if (!s) return CODE_INVALID_HANDLE;
    pthread_mutex_lock(&s->lock);
    if (s->first) wait_a_moment(&s->changed, &s->lock);
    const bool busy = s->first;
    pthread_mutex_unlock(&s->lock);
    pthread_mutex_lock(&s->context->lock);
    const unsigned code = s->context->failure;
    pthread_mutex_unlock(&s->context->lock);
    return !code && busy ? DRIVER_NOT_READY : code;
}

static unsigned queue(struct CUstream_st *s, const struct work *work) {
    struct work *w = malloc(sizeof *w);
    if (!w) return DRIVER_OUT_OF_MEMORY;
    *w = *work;
    w->next = NULL;
    pthread_mutex_lock(&s->lock);
    if (s->last)
        s->last->next = w;
    else
        s->first = w;
    s->last = w;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
    return DRIVER_SUCCESS;
}

// The null stream is not used: it would wait for all others.
static unsigned check_stream(const struct CUstream_st *s) {
    unsigned code;
    const struct CUctx_st *c = fake_current(&code);
    if (!c) return code;
    if (s && s->context == c) return DRIVER_SUCCESS;
    fake_complain(s ? "a stream of another context" : "the null stream is not emulated");
    return CODE_INVALID_HANDLE;
}

unsigned fake_stream_launch(struct CUstream_st *s, const struct fake_launch *launch) {
    unsigned code = check_stream(s);
    const struct work work = {.kind = WORK_LAUNCH, .launch = *launch};
    return code ? code : queue(s, &work);
}

void fake_stream_fail(struct CUstream_st *s, unsigned code) {
    if (s) fake_fail(s->context, code);
}

// ---- Copies ------------------------------------------------------------------------------------

static bool on_device(const struct CUstream_st *s, unsigned long long address, size_t size_bytes) {
    if (fake_memory_holds(s->context, address, size_bytes)) return true;
    fake_complain("a copy of %zu bytes at %llx leaves its allocation", size_bytes, address);
    return false;
}

// The stretch of host memory that a copy of so many bytes touches.
static bool on_host(const void *p, size_t stretch_bytes, size_t size_bytes) {
    bool pinned = fake_memory_is_pinned(p, stretch_bytes);
    pthread_mutex_lock(&fake()->lock);
    *(pinned ? &fake()->pinned_bytes : &fake()->pageable_bytes) += size_bytes;
    pthread_mutex_unlock(&fake()->lock);
    if (p && !fake_memory_is_device(p)) return true;
    fake_complain("%p is the host side of a copy, but no host memory", p);
    return false;
}

static bool may_write(const void *p, size_t size_bytes) {
    if (!fake_memory_is_read_only(p, size_bytes)) return true;
    fake_complain("%p is written by a copy and was pinned for reading only", p);
    return false;
}

static unsigned queue_copy(struct CUstream_st *s, struct work work) {
    unsigned code = fake_fault(FAULT_COPY);
    fake_count(&fake()->n_copies);
    if (code) {
        fake_fail(s->context, code);
        return code;
    }
    work.kind = WORK_COPY;
    return work.row_bytes && work.n_rows ? queue(s, &work) : DRIVER_SUCCESS;
}

unsigned cuMemcpyHtoDAsync_v2(unsigned long long target, const void *source, size_t size_bytes,
                              struct CUstream_st *stream) {
    unsigned code = check_stream(stream);
    if (code) return code;
    if (!on_device(stream, target, size_bytes) || !on_host(source, size_bytes, size_bytes))
        return CODE_INVALID_VALUE;
    return queue_copy(stream, (struct work){.target = (void *)(uintptr_t)target,
                                            .source = source,
                                            .n_rows = 1,
                                            .row_bytes = size_bytes,
                                            .engine = 0});
}

unsigned cuMemcpyDtoHAsync_v2(void *target, unsigned long long source, size_t size_bytes,
                              struct CUstream_st *stream) {
    unsigned code = check_stream(stream);
    if (code) return code;
    if (!on_device(stream, source, size_bytes) || !on_host(target, size_bytes, size_bytes) ||
        !may_write(target, size_bytes))
        return CODE_INVALID_VALUE;
    return queue_copy(stream, (struct work){.target = target,
                                            .source = (const void *)(uintptr_t)source,
                                            .n_rows = 1,
                                            .row_bytes = size_bytes,
                                            .engine = 1});
}

unsigned cuMemcpyDtoDAsync_v2(unsigned long long target, unsigned long long source,
                              size_t size_bytes, struct CUstream_st *stream) {
    unsigned code = check_stream(stream);
    if (code) return code;
    bool apart = target >= source + size_bytes || source >= target + size_bytes;
    if (!apart) fake_complain("a copy on the device onto itself");
    if (!on_device(stream, source, size_bytes) || !on_device(stream, target, size_bytes) || !apart)
        return CODE_INVALID_VALUE;
    return queue_copy(stream, (struct work){.target = (void *)(uintptr_t)target,
                                            .source = (const void *)(uintptr_t)source,
                                            .n_rows = 1,
                                            .row_bytes = size_bytes,
                                            .engine = -1});
}

// One side of a copy of rows: its address, or NULL after a complaint.
static void *check_rows(const struct CUstream_st *s, const struct cuda_rows *side,
                        const struct cuda_copy_2d *c) {
    if (side->first_byte || side->first_row || side->array) {
        fake_complain("a copy of rows starts elsewhere than at its first byte");
        return NULL;
    }
    if (side->stride_bytes < c->row_bytes) return NULL;
    const size_t stretch_bytes = (c->n_rows - 1) * side->stride_bytes + c->row_bytes;
    const size_t size_bytes = c->n_rows * c->row_bytes;
    if (side->kind == DRIVER_MEMORY_DEVICE && on_device(s, side->device, stretch_bytes))
        return (void *)(uintptr_t)side->device;
    if (side->kind == DRIVER_MEMORY_HOST && on_host(side->host, stretch_bytes, size_bytes))
        return (void *)(uintptr_t)side->host;
    return NULL;
}

unsigned cuMemcpy2DAsync_v2(const struct cuda_copy_2d *c, struct CUstream_st *stream) {
    unsigned code = check_stream(stream);
    if (code || !c->n_rows || !c->row_bytes) return code;
    const bool from_device = c->source.kind == DRIVER_MEMORY_DEVICE;
    const bool to_device = c->target.kind == DRIVER_MEMORY_DEVICE;
    const void *source = check_rows(stream, &c->source, c);
    void *target = source ? check_rows(stream, &c->target, c) : NULL;
    if (!target || (!from_device && !to_device)) return CODE_INVALID_VALUE;
    return queue_copy(stream, (struct work){.target = target,
                                            .source = source,
                                            .n_rows = c->n_rows,
                                            .row_bytes = c->row_bytes,
                                            .target_stride = c->target.stride_bytes,
                                            .source_stride = c->source.stride_bytes,
                                            .engine = from_device && to_device ? -1 : from_device});
}

unsigned cuLaunchHostFunc(struct CUstream_st *stream, void (*fn)(void *context), void *context) {
    unsigned code = check_stream(stream);
    if (code) return code;
    const struct work work = {.kind = WORK_CALL, .fn = fn, .context = context};
    return fn ? queue(stream, &work) : CODE_INVALID_VALUE;
}

// ---- Operations on memory ----------------------------------------------------------------------

unsigned fake_check_memory_op(const struct cuda_memory_op *op) {
    const struct fake_options *o = &fake()->options;
    const void *word = (const void *)(uintptr_t)op->address;
    unsigned code = fake_fault(FAULT_FLAG);
    if (!o->flags || o->version < 11070) return CODE_NOT_SUPPORTED;
    if (code) return code;
    if (op->flags || op->address % 4 ||
        (op->operation != DRIVER_MEMORY_OP_WAIT && op->operation != DRIVER_MEMORY_OP_WRITE))
        return CODE_INVALID_VALUE;
    if (fake_memory_is_mapped(word, 4)) return DRIVER_SUCCESS;
    fake_complain("%p is waited for or written by a stream, but is no memory that it reaches",
                  word);
    return CODE_INVALID_VALUE;
}

unsigned fake_stream_memory(struct CUstream_st *s, const struct cuda_memory_op *op) {
    unsigned code = check_stream(s);
    const struct work work = {.kind = WORK_MEMORY, .op = *op};
    return code ? code : queue(s, &work);
}

static unsigned memory_call(struct CUstream_st *s, const struct cuda_memory_op *op) {
    const unsigned code = fake_check_memory_op(op);
    fake_count(&fake()->n_flag_calls);
    return code ? code : fake_stream_memory(s, op);
}

unsigned cuStreamWaitValue32_v2(struct CUstream_st *stream, unsigned long long address,
                                uint32_t value, unsigned flags) {
    return memory_call(stream, &(struct cuda_memory_op){.operation = DRIVER_MEMORY_OP_WAIT,
                                                        .address = address,
                                                        .value = value,
                                                        .flags = flags});
}

unsigned cuStreamWriteValue32_v2(struct CUstream_st *stream, unsigned long long address,
                                 uint32_t value, unsigned flags) {
    return memory_call(stream, &(struct cuda_memory_op){.operation = DRIVER_MEMORY_OP_WRITE,
                                                        .address = address,
                                                        .value = value,
                                                        .flags = flags});
}

// ---- Events ------------------------------------------------------------------------------------

unsigned cuEventCreate(struct CUevent_st **event, unsigned flags) {
    unsigned code;
    struct CUctx_st *c = fake_current(&code);
    if (!c) return code;
    if (flags & ~3U) return CODE_INVALID_VALUE;
    if ((code = fake_fault(FAULT_EVENT))) return code;
    struct CUevent_st *e = calloc(1, sizeof *e);
    if (!e) return DRIVER_OUT_OF_MEMORY;
    e->context = c;
    e->timed = !(flags & DRIVER_EVENT_DISABLE_TIMING);
    e->n_users = 1;
    pthread_mutex_lock(&c->lock);
    c->n_events++;
    pthread_mutex_unlock(&c->lock);
    *event = e;
    return DRIVER_SUCCESS;
}

unsigned cuEventDestroy_v2(struct CUevent_st *e) {
    if (!e) return CODE_INVALID_HANDLE;
    struct CUctx_st *c = e->context;
    pthread_mutex_lock(&c->lock);
    c->n_events--;
    release_event(e);
    pthread_mutex_unlock(&c->lock);
    return DRIVER_SUCCESS;
}

static unsigned queue_event(struct CUstream_st *s, struct CUevent_st *e, enum work_kind kind) {
    unsigned code = check_stream(s);
    if (code) return code;
    if (!e || e->context != s->context) return CODE_INVALID_HANDLE;
    fake_count(&fake()->n_event_calls);
    pthread_mutex_lock(&e->context->lock);
    e->recorded += kind == WORK_RECORD;
    e->n_users++;
    const struct work work = {.kind = kind, .event = e, .record = e->recorded};
    pthread_mutex_unlock(&e->context->lock);
    return queue(s, &work);
}

unsigned cuEventRecord(struct CUevent_st *event, struct CUstream_st *stream) {
    return queue_event(stream, event, WORK_RECORD);
}

unsigned cuStreamWaitEvent(struct CUstream_st *stream, struct CUevent_st *event, unsigned flags) {
    return flags ? CODE_INVALID_VALUE : queue_event(stream, event, WORK_WAIT);
}

unsigned cuEventQuery(struct CUevent_st *e) {
    if (!e) return CODE_INVALID_HANDLE;
    pthread_mutex_lock(&e->context->lock);
    if (e->passed != e->recorded && !e->context->failure)
        wait_a_moment(&e->context->moved, &e->context->lock);
    const bool passed = e->passed == e->recorded;
    const unsigned code = e->context->failure;
    pthread_mutex_unlock(&e->context->lock);
    return code || passed ? code : DRIVER_NOT_READY;
}

// Less than nothing if the second was passed first.
unsigned cuEventElapsedTime(float *ms, struct CUevent_st *first, struct CUevent_st *last) {
    if (!first || !last || first->context != last->context) return CODE_INVALID_HANDLE;
    pthread_mutex_lock(&first->context->lock);
    unsigned code = first->context->failure;
    if (!code && (!first->timed || !last->timed || !first->recorded || !last->recorded))
        code = CODE_INVALID_HANDLE;
    if (!code && (first->passed < first->recorded || last->passed < last->recorded))
        code = DRIVER_NOT_READY;
    if (!code) *ms = (float)((double)(int64_t)(last->passed_ns - first->passed_ns) * 1e-6);
    pthread_mutex_unlock(&first->context->lock);
    return code;
}

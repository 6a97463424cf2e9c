/* sim_device.c: see sim_device.h.
 *
 * One lock guards the books, the counters of faults, the rings' ends and the events of a device;
 * work is done outside of it. Each stream is one thread that takes commands from its own ring; a
 * command stays in its place until it is done, so that nothing is allocated after stream_new. A
 * failed stream goes on taking commands but only finishes events, so nobody waits forever. Streams
 * of a device that is given up run on by themselves, like a real one's: what they use is counted,
 * and the last user frees it.
 *
 * A stream keeps its own time: a throttled copy begins when the command before it ended, not when
 * the thread woke up from it, so that the rate of a link is kept although sleeps end late.
 *
 * A device with rates (sim_timed.h) has one thread for all its streams, which takes commands in the
 * order in which they were encoded, so none waits for one that is not done. It reckons when each
 * would end, and does not wait for that. It stays on the last processor. Whoever waits for a stream
 * or an event does, awake: how fast threads wake up is no matter of a GPU.
 */
#include "tests/sim/sim_device.h"

#include "base/affinity.h"
#include "base/clock.h"
#include "base/mem.h"
#include "kernels/cpu/device/table.h"
#include "kernels/op_command.h"
#include "tests/sim/sim_spec.h"
#include "tests/sim/sim_timed.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
    AWAKE_NS = 20000000, // the thread of a device with rates stays awake for so long
    COMMANDS = 1024,     // in a ring; encoding one more waits for room
    MAX_STREAMS = 32,    // of a device with rates
    MAX_PINNED = 256, // pieces of the host's memory; what is registered beyond counts as pageable
    ALIGN_BYTES = 256,
    GUARD_BYTES = 256, // before and after every buffer, checked when it is freed
    GUARD = 0xa7,
    FRESH = 0xff, // undefined contents: floats are NaN
};

// Device addresses: the high bits make them non-canonical, so that following one on the host
// faults. Below is an offset that only grows: an address is never used twice.
#define ADDRESS_TAG  (UINT64_C(0x5d1a) << 48)
#define ADDRESS_MASK (UINT64_C(0xffff) << 48)
#define ADDRESS_GAP  (UINT64_C(1) << 20)

// How many pointers the arguments of each op begin with. One that is missing in the list is found
// at once: the kernel would follow a device address.
static const uint8_t N_POINTERS[OP_COUNT] = {
#define OP(name, n_pointers, last) [OP_##name] = (n_pointers),
#define OP_W                       OP
#include "kernels/ops.def"
#undef OP
#undef OP_W
};

struct allocation {
    struct allocation *next;
    uint64_t address, size_bytes; // address with the tag
    char *raw;                    // owned; the guard, the buffer and the guard lie inside
    char *memory;                 // where the buffer lies, aligned
    int32_t n_users;              // commands that work on it now
    bool freed;                   // while they did: the last one frees it
};

struct pinned {
    const char *base; // NULL: free
    uint64_t size_bytes;
};

struct sim_event {
    struct sim_device *sim;
    int32_t n_users;     // the one who made it, and commands that name it
    uint64_t n_recorded; // by encoding
    uint64_t n_done;     // the highest of them that a stream has passed
    uint64_t done_ns;    // when, by the stream's time; 0: never
    struct err failure;  // of that stream
};

enum command_kind {
    COMMAND_OP,
    COMMAND_COPY,
    COMMAND_CALL,
    COMMAND_RECORD,
    COMMAND_WAIT,
    COMMAND_FAIL
};

struct command {
    enum command_kind kind;
    uint64_t encoded_ns, number; // number: by order on the device
    union {
        struct op_command op;
        struct {
            struct row_copy rows; // one if it is a plain copy
            enum copy_direction way;
        } copy;
        struct {
            void (*fn)(void *context);
            void *context;
        } call;
        struct {
            struct sim_event *event;
            uint64_t number; // of the record that is meant
        } point;
    };
};

struct sim_stream {
    struct stream base;
    pthread_t thread;    // of a device without rates
    pthread_cond_t work; // something to do, or stopping
    bool stopping;
    bool abandoned;             // nobody waits for the thread: it frees the stream at its end
    uint64_t n_encoded, n_done; // commands so far; at most COMMANDS lie between
    uint64_t time_ns;           // when the last command ended; ahead of the clock only with rates
    struct err failure;         // as the worker knows it; base.failure is what was reported
    struct err foreign;         // the first failed event of another kind of device
    struct command ring[COMMANDS];
};

struct sim_device {
    struct device base;
    struct sim_spec spec;
    struct cpu_table table;
    atomic_int n_users; // the one who opened it, its streams and its events
    pthread_mutex_t lock;
    pthread_cond_t changed; // a stream has room or is done, an event is done, a buffer is left
    int32_t n_freeing;      // who wait for a buffer to be left
    struct allocation *allocations;
    struct pinned pinned[MAX_PINNED]; // the host's memory that is registered
    uint64_t next_address;
    uint64_t n_faults[SIM_FAULT_COUNT]; // calls so far that might have failed
    uint64_t n_commands;                // so far, that might have stalled
    bool gone;                          // by a fault on demand
    uint64_t link_free_ns[2];           // when each direction has carried what it was given
    uint64_t dram_free_ns;              // the same of the host's memory
    int32_t n_streams;
    // The rest is used where the device has rates.
    bool timed;
    atomic_bool stopping;
    pthread_t thread;
    pthread_cond_t work;
    atomic_ullong n_pushed, n_worked;        // commands so far, and those that are done
    struct sim_stream *streams[MAX_STREAMS]; // NULL: free
};

static struct sim_device *sim_of(const struct device *d) { return (struct sim_device *)d; }

// Waits for a change of the device, with its lock held. False if the deadline has passed.
static bool wait_change(struct sim_device *sim, uint64_t deadline_ns) {
    return clock_wait(&sim->changed, &sim->lock, deadline_ns);
}

// ---- Who lives how long -------------------------------------------------------------------------

static struct sim_device *hold_device(struct device *d) {
    struct sim_device *sim = sim_of(d);
    atomic_fetch_add(&sim->n_users, 1);
    return sim;
}

static void release_device(struct sim_device *sim) {
    if (atomic_fetch_sub(&sim->n_users, 1) > 1) return;
    pthread_cond_destroy(&sim->changed);
    pthread_mutex_destroy(&sim->lock);
    mem_free(sim);
}

// The event for a command that names it, and the record of it that is meant: a new one or the last.
static struct sim_event *hold_event(struct event *event, bool record, uint64_t *number) {
    struct sim_event *own = event->handle;
    pthread_mutex_lock(&own->sim->lock);
    own->n_users++;
    own->n_recorded += record;
    *number = own->n_recorded;
    pthread_mutex_unlock(&own->sim->lock);
    return own;
}

static void release_event(struct sim_event *event) {
    struct sim_device *sim = event->sim;
    pthread_mutex_lock(&sim->lock);
    const bool last = --event->n_users == 0;
    pthread_mutex_unlock(&sim->lock);
    if (!last) return;
    mem_free(event);
    release_device(sim);
}

// ---- Memory ------------------------------------------------------------------------------------

static enum status gone_error(struct err *e) {
    return err_set(e, ERR_DEVICE, "sim: the device is lost (fault on demand)");
}

// Counts one chance for a fault; true if this is the one. Called with the lock held.
static bool strikes(struct sim_device *sim, enum sim_fault fault) {
    return ++sim->n_faults[fault] == sim->spec.fail_at[fault];
}

static uint64_t sim_free_bytes(struct device *d) {
    const struct sim_device *sim = sim_of(d);
    const uint64_t used = sim->spec.taken_bytes + device_used_bytes(d);
    return used < sim->spec.vram_bytes ? sim->spec.vram_bytes - used : 0;
}

static enum status refuse_memory(struct sim_device *sim, uint64_t size_bytes, enum purpose purpose,
                                 struct err *e) {
    err_set(e, ERR_MEMORY, "%s: no memory for %s", sim->base.info.name, purpose_name(purpose));
    char size[ERR_SIZE_CHARS], all[ERR_SIZE_CHARS];
    err_expected(e, "%s", err_size_needed(size, size_bytes));
    return err_actual(e, "%s free of %s", err_size_limit(size, sim_free_bytes(&sim->base)),
                      err_size_limit(all, sim->base.info.capacity_bytes));
}

static enum status sim_buffer_new(struct device *d, uint64_t size_bytes, enum purpose purpose,
                                  void **base, struct err *e) {
    struct sim_device *sim = sim_of(d);
    pthread_mutex_lock(&sim->lock);
    bool gone = sim->gone, refused = strikes(sim, SIM_FAULT_ALLOC);
    pthread_mutex_unlock(&sim->lock);
    if (gone) return gone_error(e);
    if (refused || size_bytes > sim_free_bytes(d))
        return refuse_memory(sim, size_bytes, purpose, e);
    uint64_t room = size_bytes + 2 * GUARD_BYTES + ALIGN_BYTES;
    struct allocation *a = mem_alloc(1, sizeof *a);
    char *raw = a ? mem_alloc(room, 1) : NULL;
    if (!raw) {
        mem_free(a);
        return err_memory(e, room, "the memory of a simulated device");
    }
    char *memory = (char *)round_up((uintptr_t)raw + GUARD_BYTES, ALIGN_BYTES);
    memset(memory - GUARD_BYTES, GUARD, GUARD_BYTES);
    memset(memory, FRESH, size_bytes);
    memset(memory + size_bytes, GUARD, GUARD_BYTES);
    *a = (struct allocation){NULL, sim->next_address | ADDRESS_TAG, size_bytes, raw, memory, 0,
                             false};
    sim->next_address += round_up(size_bytes, ALIGN_BYTES) + ADDRESS_GAP;
    pthread_mutex_lock(&sim->lock);
    a->next = sim->allocations;
    sim->allocations = a;
    pthread_mutex_unlock(&sim->lock);
    *base = (void *)a->address;
    return OK;
}

static bool guards_are_whole(const struct allocation *a) {
    for (int i = 1; i <= GUARD_BYTES; i++)
        if ((uint8_t)a->memory[-i] != GUARD ||
            (uint8_t)a->memory[a->size_bytes + (uint64_t)i - 1] != GUARD)
            return false;
    return true;
}

static void free_allocation(struct allocation *a) {
    ASSERT(guards_are_whole(a)); // else a kernel wrote past the end
    mem_free(a->raw);
    mem_free(a);
}

static void sim_buffer_free(struct device *d, void *base, uint64_t size_bytes) {
    struct sim_device *sim = sim_of(d);
    const uint64_t deadline_ns = device_deadline_ns(d);
    struct err ignored; // the device is lost then, and says so
    pthread_mutex_lock(&sim->lock);
    struct allocation **link = &sim->allocations;
    while (*link && (*link)->address != (uint64_t)base) link = &(*link)->next;
    struct allocation *a = *link;
    ASSERT(a);
    ASSERT(a->size_bytes == size_bytes);
    *link = a->next; // no later command finds it
    sim->n_freeing++;
    while (a->n_users > 0 && !d->lost)
        if (!wait_change(sim, deadline_ns)) (void)device_lose(d, &ignored);
    sim->n_freeing--;
    a->freed = a->n_users > 0;
    const bool used = a->freed;
    pthread_mutex_unlock(&sim->lock);
    if (!used) free_allocation(a);
}

// Copies are as slow as the specification says, whatever memory they go to; but those of memory
// that is not registered may hold up the calling thread.
static bool sim_host_register(struct device *d, void *base, uint64_t size_bytes) {
    struct pinned *p = sim_of(d)->pinned;
    for (int i = 0; i < MAX_PINNED; i++) {
        if (p[i].base) continue;
        p[i] = (struct pinned){base, size_bytes};
        break;
    }
    return true;
}

static bool is_pinned(const struct sim_device *sim, const char *base) {
    for (const struct pinned *p = sim->pinned; p < sim->pinned + MAX_PINNED; p++)
        if (p->base && base >= p->base && (uint64_t)(base - p->base) < p->size_bytes) return true;
    return false;
}

static bool sim_host_lend(struct device *d, const void *base, uint64_t size_bytes) {
    (void)d;
    (void)base;
    (void)size_bytes;
    return false; // info.pins_files is not set
}

static void sim_host_unregister(struct device *d, void *base) {
    struct pinned *p = sim_of(d)->pinned;
    for (int i = 0; i < MAX_PINNED; i++)
        if (p[i].base == base) p[i] = (struct pinned){0};
}

// The allocation that holds all of [address, address + size), or NULL. Called with the lock held.
static struct allocation *find(struct sim_device *sim, uint64_t address, uint64_t size_bytes) {
    for (struct allocation *a = sim->allocations; a; a = a->next)
        if (address >= a->address && address - a->address < a->size_bytes &&
            size_bytes <= a->size_bytes - (address - a->address))
            return a;
    return NULL;
}

// The allocations that a command works on.
struct pins {
    struct allocation *of[OP_POINTERS_MAX];
    int n;
};

static void unpin(struct sim_device *sim, struct pins *pins) {
    pthread_mutex_lock(&sim->lock);
    for (int i = 0; i < pins->n; i++) {
        struct allocation *a = pins->of[i];
        if (--a->n_users == 0 && a->freed) free_allocation(a);
    }
    if (sim->n_freeing > 0) pthread_cond_broadcast(&sim->changed);
    pthread_mutex_unlock(&sim->lock);
    pins->n = 0;
}

// Turns a device address into the host's and keeps its buffer alive until unpin.
static enum status pin(struct sim_device *sim, struct pins *pins, const char *what, void **pointer,
                       uint64_t size_bytes, struct err *e) {
    uint64_t address = (uint64_t)*pointer;
    if ((address & ADDRESS_MASK) != ADDRESS_TAG)
        return err_set(e, ERR_DEVICE, "sim: %s is given the host's memory at 0x%llx", what,
                       (unsigned long long)address);
    pthread_mutex_lock(&sim->lock);
    struct allocation *a = find(sim, address, size_bytes);
    if (a) {
        a->n_users++;
        pins->of[pins->n++] = a;
        *pointer = a->memory + (address - a->address);
    }
    pthread_mutex_unlock(&sim->lock);
    if (a) return OK;
    return err_set(e, ERR_DEVICE, "sim: %s touches freed memory or none at 0x%llx", what,
                   (unsigned long long)address);
}

// ---- The work of a stream ----------------------------------------------------------------------

static void sleep_until(uint64_t end_ns) {
    for (uint64_t now_ns; (now_ns = clock_ns()) < end_ns;) clock_sleep_ns(end_ns - now_ns);
}

// Counts a copy, an op or a call, and stalls if that is due.
static void take_stall(struct sim_stream *s) {
    struct sim_device *sim = sim_of(s->base.device);
    pthread_mutex_lock(&sim->lock);
    const bool stalls = ++sim->n_commands == sim->spec.stall_at;
    pthread_mutex_unlock(&sim->lock);
    if (!stalls) return;
    sleep_until(clock_ns() + (uint64_t)(sim->spec.stall_s * 1e9));
    s->time_ns = clock_ns();
}

// Counts a copy or an op; fails if a fault is due.
static enum status take_fault(struct sim_device *sim, enum sim_fault fault, const char *what,
                              struct err *e) {
    pthread_mutex_lock(&sim->lock);
    bool gone_now = strikes(sim, SIM_FAULT_LOST), struck = strikes(sim, fault);
    uint64_t number = sim->n_faults[fault];
    sim->gone |= gone_now;
    bool gone = sim->gone;
    pthread_mutex_unlock(&sim->lock);
    if (gone) return gone_error(e);
    if (!struck) return OK;
    return err_set(e, ERR_DEVICE, "sim: %s failed, number %llu of its kind (fault on demand)", what,
                   (unsigned long long)number);
}

static enum status run_op(struct sim_stream *s, const struct command *c, struct err *e) {
    struct sim_device *sim = sim_of(s->base.device);
    uint64_t rated_ns = 0;
    char what[64];
    snprintf(what, sizeof what, "op %s", op_name(c->op.op));
    if (take_fault(sim, SIM_FAULT_OP, what, e) != OK) return e->status;
    struct op_command op = c->op;
    struct pins pins = {0};
    enum status status = OK;
    for (int i = 0; i < N_POINTERS[op.op] && status == OK; i++) {
        void *pointer;
        char *field = (char *)&op.args + (size_t)i * sizeof pointer;
        memcpy(&pointer, field, sizeof pointer);
        if (!pointer) continue; // an optional argument
        status = pin(sim, &pins, what, &pointer, 1, e);
        memcpy(field, &pointer, sizeof pointer);
    }
    if (status == OK && sim->timed) rated_ns = sim_timed_ns(&sim->spec, &op);
    if (status == OK && !(sim->timed && sim_stand_in(&op)))
        cpu_run_op(&sim->table, &(struct lane){.count = 1}, &op);
    s->time_ns = (sim->timed ? s->time_ns + rated_ns : clock_ns()) + sim->spec.op_us * 1000;
    if (!sim->timed && sim->spec.op_us) sleep_until(s->time_ns);
    unpin(sim, &pins);
    return status;
}

// When something that carries one thing after the other is done with these bytes too; at once if it
// has no rate.
static uint64_t carry(uint64_t *free_ns, uint64_t rate, uint64_t size_bytes, uint64_t begin_ns) {
    if (rate == 0) return begin_ns;
    if (*free_ns < begin_ns) *free_ns = begin_ns;
    return *free_ns += (uint64_t)((double)size_bytes * 1e9 / (double)rate);
}

// When the link, which all streams share, and the host's memory have carried this too.
static uint64_t link_end_ns(struct sim_device *sim, enum copy_direction way, uint64_t size_bytes,
                            uint64_t begin_ns) {
    const struct sim_spec *spec = &sim->spec;
    if (way == COPY_WITHIN)
        return begin_ns +
               (spec->read ? (uint64_t)(2e9 * (double)size_bytes / (double)spec->read) : 0);
    // With rates, copies are reckoned before it is their turn, so streams do not wait for each
    // other.
    uint64_t alone_ns = begin_ns;
    uint64_t *link =
        sim->timed && !spec->half ? &alone_ns : &sim->link_free_ns[spec->half ? 0 : way];
    pthread_mutex_lock(&sim->lock);
    const uint64_t link_ns = carry(link, spec->rate[way], size_bytes, begin_ns);
    const uint64_t dram_ns = carry(&sim->dram_free_ns, spec->dram, size_bytes, begin_ns);
    pthread_mutex_unlock(&sim->lock);
    return (link_ns > dram_ns ? link_ns : dram_ns) + spec->latency_us * 1000;
}

// The host's side of a copy must not be the device's.
static enum status check_host(const void *pointer, struct err *e) {
    if (((uint64_t)pointer & ADDRESS_MASK) == 0) return OK;
    return err_set(e, ERR_DEVICE, "sim: a copy takes 0x%llx for the host's memory",
                   (unsigned long long)(uintptr_t)pointer);
}

// The bytes from the first of n rows to the end of the last.
static uint64_t span_bytes(int32_t n_rows, uint64_t stride, uint64_t row_bytes) {
    uint64_t span;
    const bool fits =
        mul_size((uint64_t)n_rows - 1, stride, &span) && add_size(span, row_bytes, &span);
    return fits ? span : UINT64_MAX;
}

// Turns the addresses of a copy into the host's: every row must lie in the same buffer.
static enum status pin_copy(struct sim_device *sim, struct pins *pins, struct row_copy *rows,
                            enum copy_direction way, struct err *e) {
    static const char what[] = "a copy";
    void *source = (void *)(uintptr_t)rows->source;
    enum status status =
        way == COPY_TO_DEVICE
            ? check_host(source, e)
            : pin(sim, pins, what, &source,
                  span_bytes(rows->n_rows, rows->source_stride, rows->row_bytes), e);
    if (status != OK) return status;
    rows->source = source;
    if (way == COPY_FROM_DEVICE) return check_host(rows->target, e);
    return pin(sim, pins, what, &rows->target,
               span_bytes(rows->n_rows, rows->target_stride, rows->row_bytes), e);
}

// The stream's time becomes that at which a link would be done, however late the thread wakes up.
static enum status run_copy(struct sim_stream *s, const struct command *c, struct err *e) {
    struct sim_device *sim = sim_of(s->base.device);
    if (take_fault(sim, SIM_FAULT_COPY, "a copy", e) != OK) return e->status;
    struct row_copy rows = c->copy.rows;
    struct pins pins = {0};
    const enum status status = pin_copy(sim, &pins, &rows, c->copy.way, e);
    const uint64_t begin_ns = clock_ns();
    for (int32_t i = 0; status == OK && i < rows.n_rows; i++)
        memmove((char *)rows.target + (uint64_t)i * rows.target_stride,
                (const char *)rows.source + (uint64_t)i * rows.source_stride, rows.row_bytes);
    if (status == OK) {
        const uint64_t copied_ns = s->time_ns + (clock_ns() - begin_ns);
        const uint64_t end_ns =
            link_end_ns(sim, c->copy.way, rows.row_bytes * (uint64_t)rows.n_rows, s->time_ns);
        if (!sim->timed) sleep_until(end_ns);
        s->time_ns = sim->timed || end_ns > copied_ns ? end_ns : copied_ns;
    }
    unpin(sim, &pins);
    return status;
}

static void finish_event(struct sim_stream *s, const struct command *c) {
    struct sim_device *sim = sim_of(s->base.device);
    struct sim_event *event = c->point.event;
    pthread_mutex_lock(&sim->lock);
    if (event->n_done < c->point.number) event->n_done = c->point.number;
    event->done_ns = s->time_ns;
    event->failure = s->failure;
    pthread_cond_broadcast(&sim->changed);
    pthread_mutex_unlock(&sim->lock);
}

// Waits in a stream until that record of an event of a simulated device is done.
static enum status await_event(struct sim_stream *s, const struct command *c, struct err *e) {
    const struct sim_event *event = c->point.event;
    pthread_mutex_lock(&event->sim->lock);
    while (event->n_done < c->point.number)
        pthread_cond_wait(&event->sim->changed, &event->sim->lock);
    if (event->failure.status != OK) *e = event->failure;
    const enum status status = event->failure.status;
    if (event->done_ns > s->time_ns) s->time_ns = event->done_ns;
    pthread_mutex_unlock(&event->sim->lock);
    return status;
}

static enum status run_unless_failed(struct sim_stream *s, const struct command *c, struct err *e) {
    enum status status = OK;
    if (c->kind == COMMAND_OP || c->kind == COMMAND_COPY || c->kind == COMMAND_CALL) take_stall(s);
    switch (c->kind) {
    case COMMAND_OP: status = run_op(s, c, e); break;
    case COMMAND_COPY: status = run_copy(s, c, e); break;
    case COMMAND_CALL:
        sleep_until(s->time_ns);
        c->call.fn(c->call.context);
        s->time_ns = clock_ns();
        break;
    case COMMAND_WAIT: status = await_event(s, c, e); break;
    case COMMAND_FAIL:
        *e = s->foreign;
        status = e->status;
        break;
    case COMMAND_RECORD: break;
    }
    return status;
}

static void run_command(struct sim_stream *s, const struct command *c) {
    struct sim_device *sim = sim_of(s->base.device);
    struct err e;
    if (s->time_ns < c->encoded_ns) s->time_ns = c->encoded_ns;
    if (c->kind == COMMAND_RECORD) finish_event(s, c);
    if (s->failure.status == OK && run_unless_failed(s, c, &e) != OK) {
        pthread_mutex_lock(&sim->lock);
        s->failure = e;
        pthread_mutex_unlock(&sim->lock);
    }
    if (c->kind == COMMAND_RECORD || c->kind == COMMAND_WAIT) release_event(c->point.event);
}

static void free_stream(struct sim_stream *s) {
    struct sim_device *sim = sim_of(s->base.device);
    pthread_cond_destroy(&s->work);
    mem_free(s);
    release_device(sim);
}

static void *work(void *context) {
    struct sim_stream *s = context;
    struct sim_device *sim = sim_of(s->base.device);
    clock_sleep_exactly();
    pthread_mutex_lock(&sim->lock);
    for (;;) {
        while (s->n_done == s->n_encoded && !s->stopping) pthread_cond_wait(&s->work, &sim->lock);
        if (s->n_done == s->n_encoded) break;
        struct command *c = &s->ring[s->n_done % COMMANDS];
        pthread_mutex_unlock(&sim->lock);
        run_command(s, c);
        pthread_mutex_lock(&sim->lock);
        s->n_done++;
        // Those who wait for a stream or for room in it; waking them for nothing takes time.
        const uint64_t left = s->n_encoded - s->n_done;
        if (left == 0 || left == COMMANDS - 1) pthread_cond_broadcast(&sim->changed);
    }
    const bool abandoned = s->abandoned;
    pthread_mutex_unlock(&sim->lock);
    if (abandoned) free_stream(s);
    return NULL;
}

// ---- The thread of a device with rates ----------------------------------------------------------

// The stream whose next command was encoded first, or NULL. Called with the lock held.
static struct sim_stream *next_stream(struct sim_device *sim) {
    struct sim_stream *first = NULL;
    for (int i = 0; i < MAX_STREAMS; i++) {
        struct sim_stream *s = sim->streams[i];
        if (!s || s->n_done == s->n_encoded) continue;
        const uint64_t number = s->ring[s->n_done % COMMANDS].number;
        if (!first || number < first->ring[first->n_done % COMMANDS].number) first = s;
    }
    return first;
}

// Waits for more than the n commands that were seen, at first awake. Called with the lock held.
static void await_commands(struct sim_device *sim, uint64_t n) {
    pthread_mutex_unlock(&sim->lock);
    const uint64_t end_ns = clock_ns() + AWAKE_NS;
    while (atomic_load(&sim->n_pushed) == n && !atomic_load(&sim->stopping) && clock_ns() < end_ns)
        continue;
    pthread_mutex_lock(&sim->lock);
    if (atomic_load(&sim->n_pushed) == n && !sim->stopping)
        pthread_cond_wait(&sim->work, &sim->lock);
}

// Takes the last processor: a system may leave it idle and put this thread, which stays awake,
// beside the one that waits for it.
static void take_processor(void) {
    (void)affinity_set_cpu((int32_t)sysconf(_SC_NPROCESSORS_ONLN) -
                           1); // a refusal costs speed only
}

static void *work_for_all(void *context) {
    struct sim_device *sim = context;
    take_processor();
    pthread_mutex_lock(&sim->lock);
    while (!sim->stopping) {
        const uint64_t n_pushed = atomic_load(&sim->n_pushed);
        struct sim_stream *s = next_stream(sim);
        if (!s) {
            await_commands(sim, n_pushed);
            continue;
        }
        struct command *c = &s->ring[s->n_done % COMMANDS];
        pthread_mutex_unlock(&sim->lock);
        run_command(s, c);
        pthread_mutex_lock(&sim->lock);
        s->n_done++;
        atomic_fetch_add(&sim->n_worked, 1);
        pthread_cond_broadcast(&sim->changed);
    }
    pthread_mutex_unlock(&sim->lock);
    return NULL;
}

// Gives a stream its thread, or its place in the list that the device's thread looks through.
static bool start_stream(struct sim_device *sim, struct sim_stream *s) {
    if (!sim->timed) return pthread_create(&s->thread, NULL, work, s) == 0;
    pthread_mutex_lock(&sim->lock);
    int i = 0;
    while (i < MAX_STREAMS && sim->streams[i]) i++;
    if (i < MAX_STREAMS) sim->streams[i] = s;
    pthread_mutex_unlock(&sim->lock);
    return i < MAX_STREAMS;
}

// Takes a stream from the device's thread, with the lock held.
static void end_stream(struct sim_device *sim, const struct sim_stream *s) {
    for (int i = 0; i < MAX_STREAMS; i++)
        if (sim->streams[i] == s) sim->streams[i] = NULL;
}

static bool start_device(struct sim_device *sim) {
    sim->timed = sim_is_timed(&sim->spec);
    if (!sim->timed) return true;
    pthread_cond_init(&sim->work, NULL);
    return pthread_create(&sim->thread, NULL, work_for_all, sim) == 0;
}

static void stop_device(struct sim_device *sim) {
    if (!sim->timed) return;
    pthread_mutex_lock(&sim->lock);
    sim->stopping = true;
    pthread_cond_signal(&sim->work);
    pthread_mutex_unlock(&sim->lock);
    pthread_join(sim->thread, NULL);
    pthread_cond_destroy(&sim->work);
}

// ---- What the driving thread calls -------------------------------------------------------------

static enum status sim_stream_new(struct device *d, enum stream_kind kind, struct stream **out,
                                  struct err *e) {
    struct sim_device *sim = sim_of(d);
    struct sim_stream *s = mem_alloc(1, sizeof *s);
    if (!s) return err_memory(e, sizeof *s, "a stream of a simulated device");
    s->base = (struct stream){.device = d, .kind = kind};
    pthread_cond_init(&s->work, NULL);
    if (!start_stream(sim, s)) {
        pthread_cond_destroy(&s->work);
        mem_free(s);
        return err_set(e, ERR_DEVICE, "sim: the system gives no thread for a stream");
    }
    (void)hold_device(d);
    sim->n_streams++;
    *out = &s->base;
    return OK;
}

// Waits until at most n commands of the stream are left, with the lock held. False if the device
// is lost.
static bool drain(struct sim_stream *s, uint64_t n, struct err *e) {
    struct device *d = s->base.device;
    const uint64_t deadline_ns = device_deadline_ns(d);
    while (s->n_encoded - s->n_done > n && !d->lost)
        if (!wait_change(sim_of(d), deadline_ns)) (void)device_lose(d, e);
    return !d->lost || device_lose(d, e) == OK;
}

static void sim_stream_free(struct stream *stream) {
    struct sim_stream *s = (struct sim_stream *)stream;
    struct sim_device *sim = sim_of(stream->device);
    const pthread_t thread = s->thread;
    struct err ignored; // the device is lost then, and says so
    sim->n_streams--;
    pthread_mutex_lock(&sim->lock);
    const bool drained = drain(s, 0, &ignored);
    s->stopping = true;
    s->abandoned = !drained;
    pthread_cond_signal(&s->work);
    while (sim->timed && s->n_done < s->n_encoded) pthread_cond_wait(&sim->changed, &sim->lock);
    if (sim->timed) end_stream(sim, s);
    pthread_mutex_unlock(&sim->lock);
    if (sim->timed) {
        free_stream(s);
        return;
    }
    if (!drained) {
        pthread_detach(thread);
        return;
    }
    pthread_join(thread, NULL);
    free_stream(s);
}

// Appends a command and wakes the thread up. Where the device has been given up it is dropped.
static void push(struct stream *stream, const struct command *command) {
    struct sim_stream *s = (struct sim_stream *)stream;
    struct sim_device *sim = sim_of(stream->device);
    struct err failure;
    pthread_mutex_lock(&sim->lock);
    const bool has_room = drain(s, COMMANDS - 1, &failure);
    if (has_room) {
        struct command *c = &s->ring[s->n_encoded % COMMANDS];
        *c = *command;
        c->encoded_ns = clock_ns();
        c->number = atomic_fetch_add(&sim->n_pushed, 1);
        s->n_encoded++;
        pthread_cond_signal(sim->timed ? &sim->work : &s->work);
    }
    pthread_mutex_unlock(&sim->lock);
    if (has_room) return;
    if (stream->failure.status == OK) stream->failure = failure;
    if (command->kind == COMMAND_RECORD || command->kind == COMMAND_WAIT)
        release_event(command->point.event);
}

// Keeps the calling thread busy for the time of a launch.
static void launch(const struct sim_device *sim) {
    const uint64_t end_ns = clock_ns() + sim->spec.launch_us * 1000;
    while (sim->spec.launch_us && clock_ns() < end_ns) continue;
}

static void sim_encode(struct stream *s, enum op_id op, enum weight_type weight, const void *args,
                       uint32_t args_bytes) {
    struct command c = {.kind = COMMAND_OP, .op = {.op = op, .weight = weight}};
    memcpy(&c.op.args, args, args_bytes);
    launch(sim_of(s->device));
    push(s, &c);
}

#define OP_ENCODE sim_encode
#define OP_TABLE  sim_ops
#include "kernels/op_table.inc"

// Copies; with memory of the host that is not pinned the calling thread may have to wait.
static void push_copy(struct stream *stream, const struct row_copy *rows, enum copy_direction way) {
    struct sim_stream *s = (struct sim_stream *)stream;
    struct sim_device *sim = sim_of(stream->device);
    const char *host = way == COPY_TO_DEVICE ? rows->source : rows->target;
    struct err ignored; // the device is lost then, and says so
    push(stream, &(struct command){.kind = COMMAND_COPY, .copy = {*rows, way}});
    if (!sim->spec.blocks || way == COPY_WITHIN || is_pinned(sim, host)) return;
    pthread_mutex_lock(&sim->lock);
    (void)drain(s, 0, &ignored);
    pthread_mutex_unlock(&sim->lock);
}

static void sim_copy(struct stream *s, void *target, const void *source, uint64_t size_bytes,
                     enum copy_direction way) {
    const struct row_copy rows = {target, source, size_bytes, size_bytes, size_bytes, 1};
    push_copy(s, &rows, way);
}

static void sim_copy_rows(struct stream *s, const struct row_copy *copy, enum copy_direction way) {
    push_copy(s, copy, way);
}

static void sim_call(struct stream *s, void (*fn)(void *context), void *context) {
    push(s, &(struct command){.kind = COMMAND_CALL, .call = {fn, context}});
}

static void sim_record(struct stream *s, struct event *event) {
    struct command c = {.kind = COMMAND_RECORD};
    c.point.event = hold_event(event, true, &c.point.number);
    push(s, &c);
}

// Stays awake, though not for long, until a device with rates has taken all that is encoded.
static void stay_awake(struct sim_device *sim) {
    const uint64_t n = atomic_load(&sim->n_pushed), end_ns = clock_ns() + AWAKE_NS;
    while (sim->timed && atomic_load(&sim->n_worked) < n && clock_ns() < end_ns) continue;
}

// Stays awake until what a device with rates has reckoned is over.
static void await_clock(const struct sim_device *sim, uint64_t end_ns) {
    while (sim->timed && clock_ns() < end_ns) continue;
}

// Waits for the last record before this call.
static enum status sim_event_wait(struct event *event, struct err *e) {
    struct device *d = event->device;
    struct sim_device *sim = sim_of(d);
    const struct sim_event *own = event->handle;
    const uint64_t deadline_ns = device_deadline_ns(d);
    stay_awake(sim);
    pthread_mutex_lock(&sim->lock);
    while (own->n_done < own->n_recorded && !d->lost)
        if (!wait_change(sim, deadline_ns)) (void)device_lose(d, e);
    const enum status status = d->lost ? device_lose(d, e) : own->failure.status;
    if (!d->lost && status != OK) *e = own->failure;
    const uint64_t done_ns = own->done_ns;
    pthread_mutex_unlock(&sim->lock);
    await_clock(sim, done_ns);
    return status;
}

static enum status sim_event_time(struct event *event, uint64_t *out_ns, struct err *e) {
    struct sim_device *sim = sim_of(event->device);
    const struct sim_event *own = event->handle;
    if (event->device->lost) return device_lose(event->device, e);
    pthread_mutex_lock(&sim->lock);
    ASSERT(own->n_done == own->n_recorded); // else nobody has waited
    *out_ns = own->done_ns;
    if (own->failure.status != OK) *e = own->failure;
    const enum status status = own->failure.status;
    pthread_mutex_unlock(&sim->lock);
    return status;
}

// An event of another kind of device, the CPU's, is done by now, and may be recorded anew before
// the worker gets here: it is looked at at once.
static void wait_foreign(struct stream *stream, struct event *event) {
    struct sim_stream *s = (struct sim_stream *)stream;
    struct err e;
    if (event->device->class->event_wait(event, &e) == OK) return;
    if (s->foreign.status == OK) s->foreign = e;
    push(stream, &(struct command){.kind = COMMAND_FAIL});
}

// Waits for what was recorded before this call, whatever is recorded until the stream gets there.
static void sim_wait_event(struct stream *s, struct event *event) {
    if (event->device->class->event_wait != sim_event_wait) {
        wait_foreign(s, event);
        return;
    }
    struct command c = {.kind = COMMAND_WAIT};
    c.point.event = hold_event(event, false, &c.point.number);
    push(s, &c);
}

static enum status sim_event_new(struct device *d, enum event_kind kind, struct event *out,
                                 struct err *e) {
    (void)kind; // all of them have times, and there are no flags
    struct sim_event *event = mem_alloc(1, sizeof *event);
    if (!event) return err_memory(e, sizeof *event, "an event of a simulated device");
    event->sim = hold_device(d);
    event->n_users = 1;
    *out = (struct event){.device = d, .handle = event};
    return OK;
}

static void sim_event_free(struct event *event) { release_event(event->handle); }

static void sim_flush(struct stream *s) { (void)s; } // whatever is encoded has started

static enum status sim_wait(struct stream *stream, struct err *e) {
    struct sim_stream *s = (struct sim_stream *)stream;
    struct sim_device *sim = sim_of(stream->device);
    stay_awake(sim);
    pthread_mutex_lock(&sim->lock);
    enum status status = ERR_DEVICE;
    uint64_t done_ns = 0;
    if (drain(s, 0, e)) { // else the thread may still be at work
        if (sim->gone && s->failure.status == OK) gone_error(&s->failure);
        *e = s->failure;
        status = e->status;
        done_ns = s->time_ns;
    }
    pthread_mutex_unlock(&sim->lock);
    await_clock(sim, done_ns);
    return status;
}

static void sim_batch_hint(struct device *d, int32_t n_tokens) { (void)d, (void)n_tokens; }

static void sim_close(struct device *d) {
    struct sim_device *sim = sim_of(d);
    ASSERT(sim->n_streams == 0);
    ASSERT(!sim->allocations);
    stop_device(sim);
    release_device(sim);
}

static const struct device_class SIM_CLASS = {
    .buffer_new = sim_buffer_new,
    .buffer_free = sim_buffer_free,
    .host_register = sim_host_register,
    .host_lend = sim_host_lend,
    .host_unregister = sim_host_unregister,
    .stream_new = sim_stream_new,
    .stream_free = sim_stream_free,
    .event_new = sim_event_new,
    .event_free = sim_event_free,
    .copy = sim_copy,
    .copy_rows = sim_copy_rows,
    .call = sim_call,
    .record = sim_record,
    .wait_event = sim_wait_event,
    .event_wait = sim_event_wait,
    .event_time = sim_event_time,
    .flush = sim_flush,
    .wait = sim_wait,
    .free_bytes = sim_free_bytes,
    .batch_hint = sim_batch_hint,
    .close = sim_close,
};

// Makes a lock for which a thread stays awake for a while, where the C library has such: it is held
// for less than one sleeps.
static void open_lock(pthread_mutex_t *lock) {
    pthread_mutexattr_t kind;
    pthread_mutexattr_init(&kind);
#ifdef __GLIBC__
    pthread_mutexattr_settype(&kind, PTHREAD_MUTEX_ADAPTIVE_NP);
#endif
    pthread_mutex_init(lock, &kind);
    pthread_mutexattr_destroy(&kind);
}

static enum status sim_open(struct device **out, const char *spec,
                            const struct cpu_options *options, const struct log *log,
                            struct err *e) {
    *out = NULL;
    struct sim_device *sim = mem_alloc(1, sizeof *sim);
    if (!sim) return err_memory(e, sizeof *sim, "a simulated device");
    if (sim_spec_parse(&sim->spec, spec, options->isa, e) != OK ||
        cpu_table_open(&sim->table, sim->spec.isa, e) != OK) {
        mem_free(sim);
        return e->status;
    }
    open_lock(&sim->lock);
    clock_wait_init(&sim->changed);
    atomic_init(&sim->n_users, 1);
    sim->next_address = ADDRESS_GAP;
    if (!start_device(sim)) {
        release_device(sim);
        return err_set(e, ERR_DEVICE, "sim: the system gives no thread for a device");
    }
    sim->base.class = &SIM_CLASS;
    sim->base.wait_limit_s = DEVICE_WAIT_LIMIT_S;
    sim->base.ops = &sim_ops;
    sim->base.info = (struct device_info){
        .kind = "sim",
        .capacity_bytes = sim->spec.vram_bytes,
        .free_bytes = sim->spec.vram_bytes,
        .align_bytes = ALIGN_BYTES,
        .n_lanes = 1,
        .reaches_host = sim->spec.reach != 0,
    };
    enum cpu_isa isa = sim->spec.isa == ISA_AUTO ? cpu_best_isa() : sim->spec.isa;
    snprintf(sim->base.info.name, sizeof sim->base.info.name, "simulated accelerator, %llu MiB, %s",
             (unsigned long long)(sim->spec.vram_bytes >> 20), cpu_isa_name(isa));
    log_line(log, LOG_DEBUG, "%s", sim->base.info.name);
    *out = &sim->base;
    return OK;
}

const struct device_driver sim_driver = {
    .prefix = "sim",
    .help = "a simulated accelerator: sim:vram=96M,h2d=2G,d2h=2G,isa=ref,fail=copy:3",
    .open = sim_open,
};

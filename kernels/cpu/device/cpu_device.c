/* cpu_device.c: the CPU as a device: commands are written into a list and a flush runs the list in
 * the calling thread and its team.
 *
 * The device owns its team, its kernel table and its streams' lists; buffers are pages of the
 * process. One flush is one team run: every lane walks the whole list and meets the others after
 * each command, so that an op costs one barrier and no wake-up. Nothing is allocated after
 * stream_new. One thread at a time. Tested by tests/kernels/test_device.c.
 */
#include "kernels/cpu/device/cpu_device.h"

#include "base/clock.h"
#include "base/host.h"
#include "base/mem.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/device/table.h"
#include "kernels/op_command.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

enum {
    COMMANDS = 4096,    // in a list; the next one flushes it
    COPY_GRAIN = 4096,  // bytes: lanes copy whole pages
    PREFILL_TOKENS = 2, // batches of at least so many tokens run on the prefill team
    ALIGN_BYTES = 64,
};

enum command_kind { COMMAND_OP, COMMAND_COPY, COMMAND_CALL, COMMAND_RECORD, COMMAND_WAIT };

struct command {
    enum command_kind kind;
    union {
        struct op_command op;
        struct row_copy copy; // a plain copy is one row
        struct {
            void (*fn)(void *context);
            void *context;
        } call;
        struct event event; // of RECORD and WAIT
    };
};

struct cpu_stream {
    struct stream base;
    struct cpu_stream *next; // of the device's streams
    int32_t n_commands;
    struct command *commands; // [COMMANDS], owned
};

// A thread of another device reads done; the other members are written before it and read after it.
struct cpu_event {
    atomic_bool done;
    uint64_t time_ns;   // when; 0: never recorded
    struct err failure; // of the stream that recorded it
};

struct cpu_device {
    struct device base;
    struct cpu_table table;
    struct team *team;
    int32_t n_decode, n_prefill; // lanes
    struct cpu_stream *streams;
};

static enum status cpu_buffer_new(struct device *d, uint64_t size_bytes, enum purpose purpose,
                                  void **base, struct err *e) {
    // Weights are mapped from files: the system drops their pages where it needs room, and reads
    // them again.
    const uint64_t used = device_used_bytes(d) - d->used_bytes[PURPOSE_WEIGHTS];
    uint64_t room = d->info.capacity_bytes;
    room = room > used ? room - used : 0;
    *base = size_bytes <= room ? mem_map_pages(size_bytes) : NULL;
    // The pages are taken now, so that the promised memory exists and no token waits for it later.
    if (*base && mem_populate(*base, size_bytes)) return OK;
    if (*base) mem_unmap_pages(*base, size_bytes);
    err_set(e, ERR_MEMORY, "%s: no memory for %s", d->info.name, purpose_name(purpose));
    char size[ERR_SIZE_CHARS], all[ERR_SIZE_CHARS];
    err_expected(e, "%s", err_size_needed(size, size_bytes));
    err_actual(e, "%s left of %s", err_size_limit(size, room),
               err_size_limit(all, d->info.capacity_bytes));
    return err_fix(e, "use a shorter context (-c), a smaller batch (-ub) or a smaller model");
}

static void cpu_buffer_free(struct device *d, void *base, uint64_t size_bytes) {
    (void)d;
    mem_unmap_pages(base, size_bytes);
}

// Pinned or not makes no difference to the CPU.
static bool cpu_host_register(struct device *d, void *base, uint64_t size_bytes) {
    (void)d;
    (void)base;
    (void)size_bytes;
    return true;
}

static bool cpu_host_lend(struct device *d, const void *base, uint64_t size_bytes) {
    (void)d;
    (void)base;
    (void)size_bytes;
    return false; // info.pins_files is not set
}

static void cpu_host_unregister(struct device *d, void *base) {
    (void)d;
    (void)base;
}

static enum status cpu_stream_new(struct device *d, enum stream_kind kind, struct stream **out,
                                  struct err *e) {
    struct cpu_device *cpu = (struct cpu_device *)d;
    struct cpu_stream *s = mem_alloc(1, sizeof *s);
    if (!s) return err_memory(e, sizeof *s, "a stream of the CPU");
    s->commands = mem_alloc(COMMANDS, sizeof *s->commands);
    if (!s->commands) {
        mem_free(s);
        return err_memory(e, COMMANDS * sizeof *s->commands, "a stream of the CPU");
    }
    s->base = (struct stream){.device = d, .kind = kind};
    s->next = cpu->streams;
    cpu->streams = s;
    *out = &s->base;
    return OK;
}

static enum status cpu_event_new(struct device *d, enum event_kind kind, struct event *out,
                                 struct err *e) {
    (void)kind; // all of them have times, and there are no flags of the CPU's
    struct cpu_event *event = mem_alloc(1, sizeof *event);
    if (!event) return err_memory(e, sizeof *event, "an event of the CPU");
    atomic_init(&event->done, true); // nobody waits for an event that was never recorded
    *out = (struct event){.device = d, .handle = event};
    return OK;
}

static void cpu_event_free(struct event *event) { mem_free(event->handle); }

// The lanes share the bytes of all rows as if these were one run.
static void run_copy(const struct lane *lane, const struct row_copy *c) {
    int64_t first, last;
    lane_share(lane, (int64_t)(c->row_bytes * (uint64_t)c->n_rows), COPY_GRAIN, &first, &last);
    for (uint64_t at = (uint64_t)first, end = (uint64_t)last; at < end;) {
        const uint64_t row = at / c->row_bytes, column = at % c->row_bytes;
        const uint64_t rest = c->row_bytes - column, n = rest < end - at ? rest : end - at;
        memmove((char *)c->target + row * c->target_stride + column,
                (const char *)c->source + row * c->source_stride + column, n);
        at += n;
    }
}

// The other lanes have passed a barrier since they wrote, so that a device that sees its flag sees
// what they wrote.
static void finish_event(const struct cpu_stream *s, struct event *event) {
    struct cpu_event *own = event->handle;
    if (event->flag) {
        event_raise(event);
        return;
    }
    own->failure = s->base.failure;
    own->time_ns = clock_ns();
    atomic_store_explicit(&own->done, true, memory_order_release);
}

// Runs a command of events or host calls, in the calling thread alone.
static void run_alone(struct cpu_stream *s, struct command *c) {
    struct err failure;
    if (c->kind == COMMAND_RECORD) {
        finish_event(s, &c->event);
    } else if (s->base.failure.status != OK) {
        return;
    } else if (c->kind == COMMAND_CALL) {
        c->call.fn(c->call.context);
    } else if (c->event.device->class->event_wait(&c->event, &failure) != OK) {
        s->base.failure = failure;
    }
}

static bool multiplies(const struct command *c) {
    return c->kind == COMMAND_OP && (c->op.op == OP_matmul || c->op.op == OP_matmul_experts);
}

// Where a lane goes on reading weights after command i, a matmul; NULL: unknown. Which experts come
// is known beside a matmul of experts, at whose end all lanes meet, if nothing before them chooses
// others or waits for those that another device chose.
static const void *next_weight(const struct cpu_stream *s, const struct lane *lane, int32_t i) {
    const struct cpu_device *cpu = (const struct cpu_device *)s->base.device;
    bool chosen = s->commands[i].op.op == OP_matmul_experts;
    while (++i < s->n_commands && !multiplies(&s->commands[i]))
        chosen &= s->commands[i].kind == COMMAND_OP && s->commands[i].op.op != OP_route;
    if (i == s->n_commands) return NULL;
    const struct op_command *next = &s->commands[i].op;
    if (next->op == OP_matmul_experts && !chosen) return NULL;
    return cpu_first_weight(&cpu->table, lane, next);
}

static void run_op(const struct cpu_stream *s, const struct lane *lane, int32_t i) {
    const struct cpu_device *cpu = (const struct cpu_device *)s->base.device;
    struct lane own = *lane;
    if (multiplies(&s->commands[i])) own.next_weight = next_weight(s, lane, i);
    cpu_run_op(&cpu->table, &own, &s->commands[i].op);
}

// Walks through the list as one lane. After a failed wait only events are still recorded, so that
// nobody waits for them in vain. The failure is read only after a barrier that follows the last
// wait.
static void run_list(const struct lane *lane, void *context) {
    struct cpu_stream *s = context;
    for (int32_t i = 0; i < s->n_commands; i++) {
        struct command *c = &s->commands[i];
        if (c->kind != COMMAND_OP && c->kind != COMMAND_COPY) {
            if (lane->index == 0) run_alone(s, c);
        } else if (s->base.failure.status == OK) {
            if (c->kind == COMMAND_OP) run_op(s, lane, i);
            if (c->kind == COMMAND_COPY) run_copy(lane, &c->copy);
        }
        // No lane reads what a record writes, and the end of the run is a barrier too.
        if (c->kind != COMMAND_RECORD && i + 1 < s->n_commands) lane_barrier(lane);
    }
}

static void cpu_flush(struct stream *stream) {
    struct cpu_stream *s = (struct cpu_stream *)stream;
    if (s->n_commands == 0) return;
    team_run(((struct cpu_device *)stream->device)->team, run_list, s);
    s->n_commands = 0;
}

static struct command *next_command(struct stream *stream, enum command_kind kind) {
    struct cpu_stream *s = (struct cpu_stream *)stream;
    if (s->n_commands == COMMANDS) cpu_flush(stream);
    struct command *c = &s->commands[s->n_commands++];
    c->kind = kind;
    return c;
}

static void cpu_encode(struct stream *s, enum op_id op, enum weight_type weight, const void *args,
                       uint32_t args_bytes) {
    struct command *c = next_command(s, COMMAND_OP);
    c->op.op = op;
    c->op.weight = weight;
    memcpy(&c->op.args, args, args_bytes);
}

#define OP_ENCODE cpu_encode
#define OP_TABLE  cpu_ops
#include "kernels/op_table.inc"

static void cpu_copy(struct stream *s, void *target, const void *source, uint64_t size_bytes,
                     enum copy_direction way) {
    (void)way; // either way both sides are host memory
    ASSERT(size_bytes <= INT64_MAX);
    next_command(s, COMMAND_COPY)->copy =
        (struct row_copy){target, source, size_bytes, size_bytes, size_bytes, 1};
}

static void cpu_copy_rows(struct stream *s, const struct row_copy *copy, enum copy_direction way) {
    (void)way;
    next_command(s, COMMAND_COPY)->copy = *copy;
}

static void cpu_call(struct stream *s, void (*fn)(void *context), void *context) {
    struct command *c = next_command(s, COMMAND_CALL);
    c->call.fn = fn;
    c->call.context = context;
}

static void cpu_record(struct stream *s, struct event *event) {
    struct cpu_event *own = event->handle;
    struct command *c = next_command(s, COMMAND_RECORD);
    if (event->flag)
        event_lower(event); // own is the other device's
    else
        atomic_store_explicit(&own->done, false, memory_order_relaxed);
    c->event = *event;
}

static void cpu_wait_event(struct stream *s, struct event *event) {
    next_command(s, COMMAND_WAIT)->event = *event;
}

static enum status cpu_event_wait(struct event *event, struct err *e) {
    const struct cpu_event *own = event->handle;
    ASSERT(atomic_load_explicit(&own->done, memory_order_acquire)); // the stream was flushed
    if (own->failure.status == OK) return OK;
    *e = own->failure;
    return e->status;
}

static enum status cpu_event_time(struct event *event, uint64_t *out_ns, struct err *e) {
    const struct cpu_event *own = event->handle;
    if (cpu_event_wait(event, e) != OK) return e->status;
    *out_ns = own->time_ns;
    return OK;
}

static enum status cpu_wait(struct stream *s, struct err *e) {
    ASSERT(((struct cpu_stream *)s)->n_commands == 0);
    if (s->failure.status == OK) return OK;
    *e = s->failure;
    return e->status;
}

static void cpu_stream_free(struct stream *stream) {
    struct cpu_stream *s = (struct cpu_stream *)stream;
    struct cpu_device *cpu = (struct cpu_device *)stream->device;
    cpu_flush(stream);
    struct cpu_stream **link = &cpu->streams;
    while (*link != s) link = &(*link)->next;
    *link = s->next;
    mem_free(s->commands);
    mem_free(s);
}

static void cpu_batch_hint(struct device *d, int32_t n_tokens) {
    struct cpu_device *cpu = (struct cpu_device *)d;
    int32_t n_lanes = n_tokens >= PREFILL_TOKENS ? cpu->n_prefill : cpu->n_decode;
    if (n_lanes == team_size(cpu->team)) return;
    for (struct cpu_stream *s = cpu->streams; s; s = s->next) cpu_flush(&s->base);
    team_use(cpu->team, n_lanes);
}

static void cpu_close(struct device *d) {
    struct cpu_device *cpu = (struct cpu_device *)d;
    ASSERT(!cpu->streams);
    team_close(cpu->team);
    mem_free(cpu);
}

static uint64_t cpu_free_bytes(struct device *d) {
    struct host_memory memory;
    struct err ignored;
    (void)d;
    return host_memory_read(&memory, &HOST_ROOTS, &ignored) == OK ? memory.free_bytes : 0;
}

static const struct device_class CPU_CLASS = {
    .buffer_new = cpu_buffer_new,
    .buffer_free = cpu_buffer_free,
    .host_register = cpu_host_register,
    .host_lend = cpu_host_lend,
    .host_unregister = cpu_host_unregister,
    .stream_new = cpu_stream_new,
    .stream_free = cpu_stream_free,
    .event_new = cpu_event_new,
    .event_free = cpu_event_free,
    .copy = cpu_copy,
    .copy_rows = cpu_copy_rows,
    .call = cpu_call,
    .record = cpu_record,
    .wait_event = cpu_wait_event,
    .event_wait = cpu_event_wait,
    .event_time = cpu_event_time,
    .flush = cpu_flush,
    .wait = cpu_wait,
    .free_bytes = cpu_free_bytes,
    .batch_hint = cpu_batch_hint,
    .close = cpu_close,
};

static enum status open_team(struct cpu_device *cpu, const struct cpu_options *options,
                             struct err *e) {
    cpu->n_decode = options->n_threads;
    if (cpu->n_decode == 0 && team_default_size(&cpu->n_decode, e) != OK) return e->status;
    cpu->n_prefill = options->n_threads_batch ? options->n_threads_batch : cpu->n_decode;
    int32_t n_lanes = cpu->n_decode > cpu->n_prefill ? cpu->n_decode : cpu->n_prefill;
    if (team_open(&cpu->team, n_lanes, !options->no_bind, e) != OK) return e->status;
    team_use(cpu->team, cpu->n_decode);
    return OK;
}

static enum status describe(struct cpu_device *cpu, enum cpu_isa isa, struct err *e) {
    struct host_memory memory;
    if (host_memory_read(&memory, &HOST_ROOTS, e) != OK) return e->status;
    int32_t n_lanes = cpu->n_decode > cpu->n_prefill ? cpu->n_decode : cpu->n_prefill;
    struct device_info *info = &cpu->base.info;
    *info = (struct device_info){
        .kind = "cpu",
        .capacity_bytes = memory.total_bytes,
        .free_bytes = memory.free_bytes,
        .align_bytes = ALIGN_BYTES,
        .n_lanes = n_lanes,
        .is_host = true,
        .kv_order = cpu->table.kv_order,
    };
    team_describe(cpu->team, info->details, sizeof info->details);
    char name[64];
    host_cpu_name(&HOST_ROOTS, name, sizeof name);
    snprintf(info->name, sizeof info->name, "%s, %d thread%s, %s", name, n_lanes,
             n_lanes == 1 ? "" : "s", cpu_isa_name(isa));
    return OK;
}

enum status device_open_cpu(struct device **out, const struct cpu_options *options,
                            const struct log *log, struct err *e) {
    ASSERT(options->n_threads >= 0);
    ASSERT(options->n_threads_batch >= 0);
    *out = NULL;
    struct cpu_device *cpu = mem_alloc(1, sizeof *cpu);
    if (!cpu) return err_memory(e, sizeof *cpu, "the CPU's device");
    cpu->base.class = &CPU_CLASS;
    cpu->base.wait_limit_s = DEVICE_WAIT_LIMIT_S;
    cpu->base.ops = &cpu_ops;
    enum cpu_isa isa = options->isa == ISA_AUTO ? cpu_best_isa() : options->isa;
    if (cpu_table_open(&cpu->table, options->isa, e) != OK) goto fail;
    if (open_team(cpu, options, e) != OK) goto fail;
    if (describe(cpu, isa, e) != OK) goto fail;
    log_line(log, LOG_DEBUG, "%s: %d lanes for one token, %d for more", cpu->base.info.name,
             cpu->n_decode, cpu->n_prefill);
    *out = &cpu->base;
    return OK;
fail:
    cpu_close(&cpu->base);
    return e->status;
}

/* metal_device.c: see metal_device.h and kernels/device.h.
 *
 * A buffer is pages of the host, wrapped in a Metal buffer; a stream of ours is a command queue. A
 * failure sticks to the stream. Once the device is lost, Metal is called only to ask, and nothing
 * that the GPU may use is freed. Encoding is in metal_encode.c, waiting in metal_wait.c, copies in
 * metal_copy.c, events in metal_event.c, work of the host in metal_host.c.
 */
#include "kernels/metal/metal_device.h"

#include "base/file.h"
#include "base/mem.h"
#include "kernels/metal/metal_backend.h"
#include "kernels/metal/metal_source.h"

#include <stdio.h>
#include <string.h>

enum {
    ALIGN_BYTES = 256,
    NOTHING_BYTES = 256,
    THREADS_MAX = 1024, // of a threadgroup, on every GPU of Apple
    SOURCE_BYTES_MAX = 16 << 20,
};

// Memory that stays unused, for command buffers and what Metal keeps beside. At most a sixteenth of
// the device's.
static const uint64_t RESERVE_BYTES = UINT64_C(96) << 20;

// ---- Memory ------------------------------------------------------------------------------------

static uint64_t metal_free_bytes(struct device *device) {
    const struct metal_device *d = metal_of(device);
    if (device->lost) return 0;
    const uint64_t total_bytes = METAL_SEND(&d->objc, device_working_set, d->handle);
    const uint64_t used_bytes = METAL_SEND(&d->objc, device_allocated, d->handle);
    const uint64_t reserve = total_bytes / 16 < RESERVE_BYTES ? total_bytes / 16 : RESERVE_BYTES;
    return total_bytes > used_bytes + reserve ? total_bytes - used_bytes - reserve : 0;
}

static enum status refuse_memory(struct metal_device *d, uint64_t size_bytes, enum purpose purpose,
                                 const char *why, struct err *e) {
    char size[ERR_SIZE_CHARS], room[ERR_SIZE_CHARS], unused[ERR_SIZE_CHARS];
    const uint64_t free_bytes = metal_free_bytes(&d->base);
    err_set(e, ERR_MEMORY, "%s: no memory for %s (%s)", d->base.info.name, purpose_name(purpose),
            why);
    err_expected(e, "%s", err_size_needed(size, size_bytes));
    err_actual(e, "%s taken of %s that tandem may use, %s free on the GPU",
               err_size_needed(size, device_used_bytes(&d->base)),
               err_size_limit(room, d->base.info.free_bytes), err_size_limit(unused, free_bytes));
    return err_fix(e, "close other programs, or give tandem less of the GPU's memory (--vram)");
}

static enum status metal_buffer_new(struct device *device, uint64_t size_bytes,
                                    enum purpose purpose, void **base, struct err *e) {
    struct metal_device *d = metal_of(device);
    const uint64_t used = device_used_bytes(device);
    if (device->lost) return device_lose(device, e);
    if (used > device->info.free_bytes || size_bytes > device->info.free_bytes - used)
        return refuse_memory(d, size_bytes, purpose, "more than was free at the start", e);
    void *pages = mem_map_pages(size_bytes);
    if (!pages) return refuse_memory(d, size_bytes, purpose, "the system refuses it", e);
    if (!metal_memory_add(&d->memory, pages, size_bytes)) {
        mem_unmap_pages(pages, size_bytes);
        return refuse_memory(d, size_bytes, purpose, "Metal refuses it", e);
    }
    *base = pages;
    return OK;
}

static void metal_buffer_free(struct device *device, void *base, uint64_t size_bytes) {
    metal_host_unregister(device, base);
    if (!device->lost) mem_unmap_pages(base, size_bytes);
}

// ---- Streams -----------------------------------------------------------------------------------

static void forget_stream(struct metal_stream *s) {
    struct metal_stream **link = &metal_of(s->base.device)->streams;
    while (*link != s) link = &(*link)->next;
    *link = s->next;
}

static void metal_stream_free(struct stream *stream) {
    struct metal_stream *s = (struct metal_stream *)stream;
    struct metal_device *d = metal_of(stream->device);
    struct err ignored; // a wait that fails marks the device as lost
    metal_submit(s);
    (void)metal_await_stream(s, &ignored);
    metal_host_close(s);
    forget_stream(s);
    if (stream->device->lost) return; // its thread may still read it
    if (s->partial) metal_buffer_free(stream->device, s->partial, METAL_PARTIAL_BYTES);
    d->objc.release(s->queue);
    mem_free(s);
}

static enum status open_compute(struct metal_stream *s, struct err *e) {
    struct metal_device *d = metal_of(s->base.device);
    void *pages = mem_map_pages(METAL_PARTIAL_BYTES);
    if (!pages) return err_memory(e, METAL_PARTIAL_BYTES, "partial results of attention");
    if (metal_memory_add(&d->memory, pages, METAL_PARTIAL_BYTES)) {
        s->partial = pages;
        return OK;
    }
    mem_unmap_pages(pages, METAL_PARTIAL_BYTES);
    return err_set(e, ERR_MEMORY, "%s: %d bytes for attention are refused", d->base.info.name,
                   (int)METAL_PARTIAL_BYTES);
}

static enum status metal_stream_new(struct device *device, enum stream_kind kind,
                                    struct stream **out, struct err *e) {
    struct metal_device *d = metal_of(device);
    struct metal_stream *s = mem_alloc(1, sizeof *s);
    if (!s) return err_memory(e, sizeof *s, "a stream of a Metal device");
    s->base = (struct stream){.device = device, .kind = kind};
    s->next = d->streams;
    d->streams = s;
    enum status status = metal_host_open(s, e);
    if (!status) {
        s->queue = METAL_SEND(&d->objc, new_queue, d->handle, METAL_RUNNING + 2);
        if (!s->queue) status = err_set(e, ERR_MEMORY, "%s: no command queue", device->info.name);
    }
    if (!status && kind == STREAM_COMPUTE) status = open_compute(s, e);
    if (status)
        metal_stream_free(&s->base);
    else
        *out = &s->base;
    return status;
}

static void metal_flush(struct stream *s) { metal_submit((struct metal_stream *)s); }

static enum status metal_wait(struct stream *stream, struct err *e) {
    struct metal_stream *s = (struct metal_stream *)stream;
    struct err failure;
    metal_submit(s);
    // A failed stream may still run what was committed before.
    if (metal_await_stream(s, &failure) != OK) metal_keep(s, &failure);
    if (s->failure.status == OK) return OK;
    *e = s->failure;
    return e->status;
}

static void metal_call(struct stream *stream, void (*fn)(void *context), void *context) {
    metal_host_add((struct metal_stream *)stream,
                   &(struct metal_job){.fn = fn, .context = context});
}

// ---- Opening and closing -----------------------------------------------------------------------

static void metal_batch_hint(struct device *d, int32_t n_tokens) {
    (void)d; // kernels are chosen op by op
    (void)n_tokens;
}

static void metal_close(struct device *device) {
    struct metal_device *d = metal_of(device);
    if (!device->lost && d->objc.libraries[0]) {
        metal_library_close(&d->library, &d->objc);
        if (d->memory.objc) metal_memory_close(&d->memory);
        mem_unmap_pages(d->nothing, NOTHING_BYTES);
        d->objc.release(d->handle);
        metal_objc_close(&d->objc);
    }
    if (!device->lost) mem_free(d);
}

static const struct device_class METAL_CLASS = {
    .buffer_new = metal_buffer_new,
    .buffer_free = metal_buffer_free,
    .host_register = metal_host_register,
    .host_lend = metal_host_lend,
    .host_unregister = metal_host_unregister,
    .stream_new = metal_stream_new,
    .stream_free = metal_stream_free,
    .event_new = metal_event_new,
    .event_free = metal_event_free,
    .copy = metal_copy,
    .copy_rows = metal_copy_rows,
    .call = metal_call,
    .record = metal_record,
    .wait_event = metal_wait_event,
    .event_wait = metal_event_wait,
    .event_time = metal_event_time,
    .flush = metal_flush,
    .wait = metal_wait,
    .free_bytes = metal_free_bytes,
    .batch_hint = metal_batch_hint,
    .close = metal_close,
};

static enum status find_device(struct metal_device *d, int32_t index, struct err *e) {
    const struct metal_objc *objc = &d->objc;
    struct ns_array *all = objc->copy_devices();
    const int32_t n = all ? (int32_t)METAL_SEND(objc, array_count, all) : 0;
    if (index < n) {
        d->handle = METAL_SEND(objc, array_at, all, (objc_number)index);
        (void)objc->retain(d->handle);
    }
    objc->release(all);
    if (d->handle) return OK;
    if (n == 0) {
        err_set(e, ERR_UNSUPPORTED, "Metal finds no GPU");
        return err_fix(e, "a virtual machine may have none; use --device none");
    }
    err_set(e, ERR_USAGE, "there is no GPU number %d", index);
    return err_expected(e, "0 to %d", n - 1);
}

// The newest family of Apple's that the device belongs to, as its number; 0: none.
static int apple_family(const struct metal_device *d) {
    int family = METAL_FAMILY_APPLE_NEWEST;
    while (family >= METAL_FAMILY_APPLE1 &&
           !METAL_SEND(&d->objc, device_is_of, d->handle, (long)family))
        family--;
    return family < METAL_FAMILY_APPLE1 ? 0 : family - METAL_FAMILY_APPLE1 + 1;
}

static enum status describe_device(struct metal_device *d, const struct metal_options *o,
                                   struct err *e) {
    const struct metal_objc *objc = &d->objc;
    struct device_info *info = &d->base.info;
    void *pool = objc->pool_push();
    (void)snprintf(info->name, sizeof info->name, "%s",
                   metal_text(objc, METAL_SEND(objc, device_name, d->handle)));
    struct objc_object *process = METAL_SEND(objc, process_info, objc->process_class);
    (void)snprintf(info->driver, sizeof info->driver, "macOS %s",
                   metal_text(objc, METAL_SEND(objc, system_version, process)));
    objc->pool_pop(pool);
    const int family = apple_family(d);
    (void)snprintf(info->kind, sizeof info->kind, "metal");
    (void)snprintf(info->capability, sizeof info->capability, "Apple%d", family);
    info->align_bytes = ALIGN_BYTES;
    info->n_lanes = 1;
    info->rounds_by_batch = true; // few tokens and many take different kernels
    info->reaches_host = true;
    info->unified = true;
    d->features.has_simdgroup_matrix =
        !o->no_matrices && family > METAL_FAMILY_APPLE7 - METAL_FAMILY_APPLE1;
    d->features.max_threadgroup_bytes =
        (uint32_t)METAL_SEND(objc, device_threadgroup_max, d->handle);
    d->features.max_threads = THREADS_MAX;
    if (METAL_SEND(objc, device_is_unified, d->handle) && family > 0) return OK;
    err_set(e, ERR_UNSUPPORTED, "%s is no GPU of Apple silicon", info->name);
    return err_fix(e, "the kernels need one; use --device none");
}

// Memory that is bound where a kernel's pointer is NULL.
static enum status open_nothing(struct metal_device *d, struct err *e) {
    d->nothing = mem_map_pages(NOTHING_BYTES);
    if (!d->nothing) return err_memory(e, NOTHING_BYTES, "a Metal device");
    if (metal_memory_add(&d->memory, d->nothing, NOTHING_BYTES)) {
        d->nothing_buffer = metal_memory_find(&d->memory, d->nothing)->buffer;
        return OK;
    }
    return err_set(e, ERR_MEMORY, "%s: Metal refuses a page", d->base.info.name);
}

static enum status open_kernels(struct metal_device *d, const struct metal_options *o,
                                struct err *e) {
    char *text = NULL;
    size_t size_bytes;
    if (*o->source && file_read_text(&text, &size_bytes, o->source, SOURCE_BYTES_MAX, e))
        return e->status;
    const enum status status =
        metal_library_open(&d->library, &d->objc, d->handle, text ? text : metal_source, d->log, e);
    mem_free(text);
    return status ? err_context(e, "%s", d->base.info.name) : OK;
}

static void tell(struct metal_device *d) {
    struct device_info *info = &d->base.info;
    const char *matrices = d->features.has_simdgroup_matrix ? "with" : "without";
    char limit[ERR_SIZE_CHARS];
    info->capacity_bytes = METAL_SEND(&d->objc, device_working_set, d->handle);
    info->free_bytes = metal_free_bytes(&d->base);
    (void)snprintf(info->details, sizeof info->details,
                   "%s, %s simdgroup matrices, %u bytes of threadgroup memory\n"
                   "%s, buffers of up to %s, memory shared with the CPU\n"
                   "%d kernels compiled from source",
                   info->capability, matrices, d->features.max_threadgroup_bytes, info->driver,
                   err_size_limit(limit, d->memory.limit_bytes), (int)METAL_KERNEL_COUNT);
    log_line(d->log, LOG_INFO, "%s: %s, %s simdgroup matrices", info->name, info->capability,
             matrices);
}

static enum status open_parts(struct metal_device *d, const struct metal_options *o,
                              struct err *e) {
    if (metal_objc_open(&d->objc, *o->driver ? o->driver : NULL, e) ||
        find_device(d, o->index, e) || describe_device(d, o, e) ||
        metal_memory_open(&d->memory, &d->objc, d->handle, e) || open_nothing(d, e) ||
        open_kernels(d, o, e) || metal_clock_start(d, e))
        return e->status;
    tell(d);
    return OK;
}

enum status metal_device_open(struct device **out, const struct metal_options *options,
                              const struct log *log, struct err *e) {
    *out = NULL;
    struct metal_device *d = mem_alloc(1, sizeof *d);
    if (!d) return err_memory(e, sizeof *d, "a Metal device");
    d->base.class = &METAL_CLASS;
    d->base.wait_limit_s = DEVICE_WAIT_LIMIT_S;
    d->base.ops = metal_op_table;
    d->log = log;
    if (open_parts(d, options, e)) {
        metal_close(&d->base);
        return e->status;
    }
    *out = &d->base;
    return OK;
}

enum status metal_device_open_spec(struct device **out, const char *spec,
                                   const struct cpu_options *cpu, const struct log *log,
                                   struct err *e) {
    (void)cpu;
    struct metal_options options;
    if (metal_options_parse(&options, spec, e)) return e->status;
    return metal_device_open(out, &options, log, e);
}

/* metal_copy.c: registered host memory, and copies between it and the buffers of a Metal device.
 *
 * All memory is the host's. While nothing of the stream is under way a small copy is one of the
 * calling thread's, at once. Else copies of memory that the GPU reaches are a kernel's, or Metal's
 * if they are long, and all others are work of the host in the stream's order. One thread drives a
 * device at a time. Tested by tests/kernels/test_metal.c.
 */
#include "base/mem.h"
#include "kernels/metal/metal_backend.h"
#include "kernels/metal/params.h"

enum {
    AT_ONCE_BYTES = 64 << 10, // copied faster than a command buffer starts
    BLIT_BYTES = 1 << 20,     // from here on Metal copies what lies in one piece
    BLIT_ALIGN = 4,           // of offsets and lengths
};

// ---- Registered memory -------------------------------------------------------------------------

bool metal_host_register(struct device *device, void *base, uint64_t size_bytes) {
    struct metal_device *d = metal_of(device);
    if (device->lost) return false;
    if (metal_memory_add(&d->memory, base, size_bytes)) return true;
    if (!d->refused_register)
        log_line(d->log, LOG_WARN,
                 "%s: the GPU does not reach %llu bytes of memory, which are copied instead",
                 device->info.name, (unsigned long long)size_bytes);
    d->refused_register = true;
    return false;
}

bool metal_host_lend(struct device *device, const void *base, uint64_t size_bytes) {
    (void)device;
    (void)base;
    (void)size_bytes;
    return false; // info.pins_files is not set: weights are used where the file is mapped
}

void metal_host_unregister(struct device *device, void *base) {
    struct metal_device *d = metal_of(device);
    struct err ignored; // a wait that fails marks the device as lost
    for (struct metal_stream *s = d->streams; s; s = s->next) {
        metal_submit(s);
        (void)metal_await_stream(s, &ignored);
    }
    if (!device->lost) metal_memory_remove(&d->memory, base);
}

// ---- Copies ------------------------------------------------------------------------------------

static const char *const COPIES[] = {
    [COPY_TO_DEVICE] = "a copy to the device",
    [COPY_FROM_DEVICE] = "a copy from the device",
    [COPY_WITHIN] = "a copy on the device",
};

// Bytes from the first row to the end of the last one.
static uint64_t stretch(const struct row_copy *c, uint64_t stride_bytes) {
    return (uint64_t)(c->n_rows - 1) * stride_bytes + c->row_bytes;
}

static uint64_t reach(const struct metal_region *region, const char *address) {
    return region->reach_bytes - (uint64_t)(address - region->base);
}

// In pieces, since a long memory has several Metal buffers.
static void blit(struct metal_stream *s, const struct row_copy *c) {
    const struct metal_device *d = metal_of(s->base.device);
    char *target = c->target;
    const char *source = c->source;
    uint64_t left = c->row_bytes * (uint64_t)c->n_rows;
    struct mtl_blit *encoder = metal_blit(s);
    while (encoder && left > 0) {
        const struct metal_region *to = metal_memory_find(&d->memory, target);
        const struct metal_region *from = metal_memory_find(&d->memory, source);
        uint64_t size_bytes = reach(to, target) & ~(uint64_t)(BLIT_ALIGN - 1);
        if (size_bytes > reach(from, source)) size_bytes = reach(from, source);
        if (size_bytes > left) size_bytes = left;
        METAL_SEND(&d->objc, copy, encoder, from->buffer,
                   from->offset + (objc_number)(source - from->base), to->buffer,
                   to->offset + (objc_number)(target - to->base), size_bytes);
        target += size_bytes;
        source += size_bytes;
        left -= size_bytes;
    }
}

static void move(struct metal_stream *s, const struct row_copy *c) {
    struct move_params p = {.target = c->target,
                            .source = c->source,
                            .target_stride = (int64_t)c->target_stride,
                            .source_stride = (int64_t)c->source_stride,
                            .row_bytes = (int64_t)c->row_bytes,
                            .n_rows = c->n_rows};
    const uint64_t bits = (uintptr_t)c->target | (uintptr_t)c->source | c->target_stride |
                          c->source_stride | c->row_bytes;
    p.unit_bytes = bits % 4 ? 1 : bits % 16 ? 4 : 16;
    const uint64_t n_chunks = (c->row_bytes + MOVE_BYTES - 1) / MOVE_BYTES;
    metal_add(s, METAL_move_rows,
              (struct metal_grid){(uint32_t)n_chunks, (uint32_t)c->n_rows, 1, MOVE_THREADS, 0}, &p,
              sizeof p);
}

static void copy_reached(struct metal_stream *s, const struct row_copy *c) {
    const uint64_t size_bytes = c->row_bytes * (uint64_t)c->n_rows;
    const bool whole = c->target_stride == c->row_bytes && c->source_stride == c->row_bytes;
    const uint64_t bits = (uintptr_t)c->target | (uintptr_t)c->source | size_bytes;
    if (whole && size_bytes >= BLIT_BYTES && bits % BLIT_ALIGN == 0)
        blit(s, c);
    else
        move(s, c);
}

void metal_copy_rows(struct stream *stream, const struct row_copy *c, enum copy_direction way) {
    struct metal_stream *s = (struct metal_stream *)stream;
    const struct metal_memory *memory = &metal_of(stream->device)->memory;
    const bool has_target = metal_memory_holds(memory, c->target, stretch(c, c->target_stride));
    const bool has_source = metal_memory_holds(memory, c->source, stretch(c, c->source_stride));
    if ((!has_target && way != COPY_FROM_DEVICE) || (!has_source && way != COPY_TO_DEVICE)) {
        struct err failure;
        err_set(&failure, ERR_DEVICE, "%s: %s leaves its memory", stream->device->info.name,
                COPIES[way]);
        metal_keep(s, &failure);
        return;
    }
    const bool reached = has_target && has_source;
    if ((!reached || c->row_bytes * (uint64_t)c->n_rows <= AT_ONCE_BYTES) && metal_is_idle(s))
        metal_copy_by_host(c);
    else if (reached)
        copy_reached(s, c);
    else
        metal_host_add(s, &(struct metal_job){.copy = *c});
}

void metal_copy(struct stream *stream, void *target, const void *source, uint64_t size_bytes,
                enum copy_direction way) {
    const struct row_copy copy = {target, source, size_bytes, size_bytes, size_bytes, 1};
    metal_copy_rows(stream, &copy, way);
}

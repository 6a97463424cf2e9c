/* cuda_copy.c: pinned host memory, and copies between it and a CUDA device.
 *
 * Small copies of a compute stream are launches of a kernel that reaches pinned memory: they belong
 * to the stream's list, and so to its graph. All others are the driver's, for its copy engines.
 * Owns the table of pinned memory in struct cuda_device. One thread drives a device at a time.
 * Tested by tests/kernels/test_cuda_copy.c and tests/kernels/test_cuda.c.
 */
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/params.h"

static unsigned long long address_of(const void *p) { return (unsigned long long)(uintptr_t)p; }

// ---- Pinned memory ------------------------------------------------------------------------------

// Pins memory and enters it in the table; returns the driver's answer.
static unsigned pin(struct cuda_device *cuda, void *base, uint64_t size_bytes, unsigned flags) {
    int place = 0;
    while (place < CUDA_REGIONS && cuda->pinned[place].base) place++;
    ASSERT(place < CUDA_REGIONS);
    cuda_enter(cuda);
    const unsigned code = cuda->driver.host_register(base, size_bytes, flags);
    if (code != DRIVER_SUCCESS) return code;
    struct cuda_region *region = &cuda->pinned[place];
    *region = (struct cuda_region){.base = base, .size_bytes = size_bytes};
    if (place >= cuda->n_pinned) cuda->n_pinned = place + 1;
    if (flags != DRIVER_REGISTER_MAPPED ||
        cuda->driver.host_address(&region->address, base, 0) != DRIVER_SUCCESS)
        region->address = 0; // copies go by the driver then
    return DRIVER_SUCCESS;
}

// The device copies pinned memory by itself, beside everything else.
bool cuda_host_register(struct device *d, void *base, uint64_t size_bytes) {
    struct cuda_device *cuda = cuda_of(d);
    if (d->lost) return false;
    const unsigned code =
        pin(cuda, base, size_bytes, d->info.reaches_host ? DRIVER_REGISTER_MAPPED : 0);
    if (code == DRIVER_SUCCESS) return true;
    if (!cuda->refused_pinning) // what the system allows is known now
        log_line(cuda->log, LOG_WARN, "%s: copies will be slower, %llu bytes are not pinned (%s)",
                 d->info.name, (unsigned long long)size_bytes,
                 cuda_error_name(&cuda->driver, code));
    cuda->refused_pinning = true;
    return false;
}

bool cuda_host_lend(struct device *d, const void *base, uint64_t size_bytes) {
    if (d->lost) return false;
    return pin(cuda_of(d), (void *)(uintptr_t)base, size_bytes, DRIVER_REGISTER_READ_ONLY) ==
           DRIVER_SUCCESS;
}

void cuda_host_unregister(struct device *d, void *base) {
    struct cuda_device *cuda = cuda_of(d);
    for (int i = 0; i < CUDA_REGIONS; i++) {
        if (cuda->pinned[i].base != base) continue;
        cuda->pinned[i] = (struct cuda_region){0};
        if (d->lost) continue;
        cuda_enter(cuda);
        (void)cuda->driver.host_unregister(base);
    }
}

// Where kernels find so many bytes of host memory; NULL if they do not reach them all.
static char *reached(const struct cuda_device *cuda, const void *host, uint64_t size_bytes) {
    const char *first = host;
    for (int i = 0; i < cuda->n_pinned; i++) {
        const struct cuda_region *r = &cuda->pinned[i];
        if (r->address && first >= r->base && first + size_bytes <= r->base + r->size_bytes)
            return (char *)(uintptr_t)(r->address + (uint64_t)(first - r->base));
    }
    return NULL;
}

// ---- Copies -------------------------------------------------------------------------------------

// Copies by a kernel. False if the driver has to do it.
static bool move(struct cuda_stream *s, const struct row_copy *copy, enum copy_direction way) {
    const uint64_t n_rows = (uint64_t)copy->n_rows, row_bytes = copy->row_bytes;
    if (s->base.kind != STREAM_COMPUTE || way == COPY_WITHIN || n_rows == 0 || row_bytes == 0 ||
        row_bytes > MOVE_MAX_BYTES || n_rows > MOVE_MAX_BYTES / row_bytes)
        return false;
    const bool to = way == COPY_TO_DEVICE;
    const uint64_t stretch_bytes =
        (n_rows - 1) * (to ? copy->source_stride : copy->target_stride) + row_bytes;
    char *host = reached(cuda_of(s->base.device), to ? copy->source : copy->target, stretch_bytes);
    if (!host) return false;
    struct move_params p = {.target = to ? copy->target : host,
                            .source = to ? host : copy->source,
                            .target_stride = (int64_t)copy->target_stride,
                            .source_stride = (int64_t)copy->source_stride,
                            .row_bytes = (int32_t)row_bytes};
    const uint64_t bits = address_of(p.target) | address_of(p.source) | copy->target_stride |
                          copy->source_stride | row_bytes;
    if (bits % 4) return false;
    p.unit_bytes = bits % 16 ? 4 : 16;
    const uint32_t n_chunks = (uint32_t)((row_bytes + MOVE_BYTES - 1) / MOVE_BYTES);
    cuda_add(s, KERNEL_move_rows,
             (struct cuda_grid){(uint32_t)n_rows, n_chunks, 1, MOVE_THREADS, 0}, &p, sizeof p);
    return true;
}

static const char *const COPIES[] = {
    [COPY_TO_DEVICE] = "a copy to the device",
    [COPY_FROM_DEVICE] = "a copy from the device",
    [COPY_WITHIN] = "a copy on the device",
};

void cuda_copy(struct stream *stream, void *target, const void *source, uint64_t size_bytes,
               enum copy_direction way) {
    struct cuda_stream *s = (struct cuda_stream *)stream;
    const struct cuda_driver *driver = &cuda_of(stream->device)->driver;
    s->quantized = (struct cuda_quantized){0};
    if (move(s, &(struct row_copy){target, source, size_bytes, size_bytes, size_bytes, 1}, way))
        return;
    cuda_submit(s);
    if (s->failure.status != OK) return;
    unsigned long long to = address_of(target), from = address_of(source);
    unsigned code = DRIVER_SUCCESS;
    switch (way) {
    case COPY_TO_DEVICE: code = driver->copy_to_device(to, source, size_bytes, s->handle); break;
    case COPY_FROM_DEVICE:
        code = driver->copy_from_device(target, from, size_bytes, s->handle);
        break;
    case COPY_WITHIN: code = driver->copy_within(to, from, size_bytes, s->handle); break;
    }
    cuda_keep(s, code, COPIES[way]);
}

// The direction says which side is host memory.
void cuda_copy_rows(struct stream *stream, const struct row_copy *copy, enum copy_direction way) {
    struct cuda_stream *s = (struct cuda_stream *)stream;
    const bool from_host = way == COPY_TO_DEVICE, to_host = way == COPY_FROM_DEVICE;
    s->quantized = (struct cuda_quantized){0};
    if (move(s, copy, way)) return;
    cuda_submit(s);
    if (s->failure.status != OK) return;
    const struct cuda_copy_2d rows = {
        .source = {.kind = from_host ? DRIVER_MEMORY_HOST : DRIVER_MEMORY_DEVICE,
                   .host = from_host ? copy->source : NULL,
                   .device = from_host ? 0 : address_of(copy->source),
                   .stride_bytes = copy->source_stride},
        .target = {.kind = to_host ? DRIVER_MEMORY_HOST : DRIVER_MEMORY_DEVICE,
                   .host = to_host ? copy->target : NULL,
                   .device = to_host ? 0 : address_of(copy->target),
                   .stride_bytes = copy->target_stride},
        .row_bytes = copy->row_bytes,
        .n_rows = (size_t)copy->n_rows,
    };
    cuda_keep(s, cuda_of(stream->device)->driver.copy_rows(&rows, s->handle), COPIES[way]);
}

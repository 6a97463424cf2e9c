/* metal_encode.c: encodes kernels into a stream's command buffer; see metal_list.h and
 * metal_backend.h.
 *
 * Opens command buffers and encoders as commands need them, and commits. One thread drives a device
 * at a time. Tested by tests/kernels/test_metal.c.
 */
#include "kernels/metal/metal_backend.h"

#include <stdio.h>
#include <string.h>

// Pointers that the parameters of each kernel begin with.
static const uint8_t POINTERS[METAL_KERNEL_COUNT] = {
#define METAL_KERNEL(name, params, n_pointers) n_pointers,
#include "kernels/metal/kernels.def"
#undef METAL_KERNEL
};

static void keep_text(struct metal_stream *s, const char *what) {
    struct err failure;
    err_set(&failure, ERR_DEVICE, "%s: %s", s->base.device->info.name, what);
    err_fix(&failure, "start again; if it stays, report it, or use --device none");
    metal_keep(s, &failure);
}

// ---- Command buffers ---------------------------------------------------------------------------

bool metal_begin(struct metal_stream *s) {
    struct metal_device *d = metal_of(s->base.device);
    struct err failure;
    if (!metal_is_good(s)) return false;
    if (s->commands) return true;
    metal_reap(s);
    if (s->n_running == METAL_RUNNING && metal_await(d, s->running[s->first], &failure) != OK)
        metal_keep(s, &failure);
    metal_reap(s);
    if (!metal_is_good(s)) return false;
    void *pool = d->objc.pool_push();
    s->commands = METAL_SEND(&d->objc, commands_of, s->queue);
    if (s->commands)
        (void)d->objc.retain(s->commands);
    else
        keep_text(s, "Metal gives no command buffer");
    d->objc.pool_pop(pool);
    return s->commands;
}

void metal_end_encoders(struct metal_stream *s) {
    const struct metal_objc *objc = &metal_of(s->base.device)->objc;
    if (s->compute) {
        METAL_SEND(objc, end_compute, s->compute);
        objc->release(s->compute);
    }
    if (s->blit) {
        METAL_SEND(objc, end_blit, s->blit);
        objc->release(s->blit);
    }
    s->compute = NULL;
    s->blit = NULL;
}

struct mtl_compute *metal_compute(struct metal_stream *s) {
    const struct metal_objc *objc = &metal_of(s->base.device)->objc;
    if (!metal_begin(s)) return NULL;
    if (s->compute) return s->compute;
    metal_end_encoders(s);
    void *pool = objc->pool_push();
    s->compute = METAL_SEND(objc, compute_of, s->commands);
    if (s->compute)
        (void)objc->retain(s->compute);
    else
        keep_text(s, "Metal gives no encoder for kernels");
    objc->pool_pop(pool);
    return s->compute;
}

struct mtl_blit *metal_blit(struct metal_stream *s) {
    const struct metal_objc *objc = &metal_of(s->base.device)->objc;
    if (!metal_begin(s)) return NULL;
    if (s->blit) return s->blit;
    metal_end_encoders(s);
    void *pool = objc->pool_push();
    s->blit = METAL_SEND(objc, blit_of, s->commands);
    if (s->blit)
        (void)objc->retain(s->blit);
    else
        keep_text(s, "Metal gives no encoder for copies");
    objc->pool_pop(pool);
    return s->blit;
}

void metal_submit(struct metal_stream *s) {
    const struct metal_objc *objc = &metal_of(s->base.device)->objc;
    if (!s->commands) {
        (void)metal_is_good(s);
        return;
    }
    void *pool = objc->pool_push();
    metal_end_encoders(s);
    if (metal_is_good(s)) {
        METAL_SEND(objc, commit, s->commands);
        s->running[(s->first + s->n_running++) % METAL_RUNNING] = s->commands;
    } else {
        objc->release(s->commands);
    }
    s->commands = NULL;
    s->n_dispatches = 0;
    objc->pool_pop(pool);
}

// ---- Dispatches --------------------------------------------------------------------------------

// Binds what the pointers at the head of params point to. False if one leaves the device's memory.
static bool bind(struct metal_stream *s, struct mtl_compute *encoder, enum metal_kernel kernel,
                 const void *params) {
    struct metal_device *d = metal_of(s->base.device);
    char what[96];
    for (objc_number k = 0; k < POINTERS[kernel]; k++) {
        const char *address;
        memcpy(&address, (const char *)params + k * sizeof address, sizeof address);
        const struct metal_region *region = address ? metal_memory_find(&d->memory, address) : NULL;
        if (region) {
            METAL_SEND(&d->objc, use_buffer, encoder, region->buffer,
                       region->offset + (objc_number)(address - region->base), k + 1);
            continue;
        }
        if (address) {
            (void)snprintf(what, sizeof what, "pointer %lu of the kernel %s leaves its memory", k,
                           metal_kernel_name(kernel));
            keep_text(s, what);
            return false;
        }
        METAL_SEND(&d->objc, use_buffer, encoder, d->nothing_buffer, 0, k + 1);
    }
    return true;
}

static bool fits(struct metal_stream *s, enum metal_kernel kernel, struct metal_grid grid) {
    const struct metal_device *d = metal_of(s->base.device);
    char what[128];
    const uint32_t most = d->library.max_threads[kernel];
    if (grid.threads <= most && grid.threadgroup_bytes <= d->features.max_threadgroup_bytes)
        return true;
    (void)snprintf(what, sizeof what,
                   "the kernel %s takes %u threads of %u, and %u bytes of %u for a threadgroup",
                   metal_kernel_name(kernel), grid.threads, most, grid.threadgroup_bytes,
                   d->features.max_threadgroup_bytes);
    keep_text(s, what);
    return false;
}

void metal_add(struct metal_stream *s, enum metal_kernel kernel, struct metal_grid grid,
               const void *params, uint32_t params_bytes) {
    const struct metal_device *d = metal_of(s->base.device);
    const struct metal_objc *objc = &d->objc;
    ASSERT(params_bytes >= POINTERS[kernel] * sizeof(void *) && params_bytes <= METAL_PARAMS_MAX);
    ASSERT(grid.threads > 0 && grid.threadgroup_bytes % 16 == 0);
    if (grid.x == 0 || grid.y == 0 || grid.z == 0) return;
    void *pool = objc->pool_push();
    struct mtl_compute *encoder = metal_compute(s);
    if (encoder && fits(s, kernel, grid) && bind(s, encoder, kernel, params)) {
        METAL_SEND(objc, use_pipeline, encoder, d->library.pipelines[kernel]);
        METAL_SEND(objc, use_bytes, encoder, params, params_bytes, 0);
        if (grid.threadgroup_bytes)
            METAL_SEND(objc, use_threadgroup, encoder, grid.threadgroup_bytes, 0);
        METAL_SEND(objc, dispatch, encoder, ((struct mtl_size){grid.x, grid.y, grid.z}),
                   ((struct mtl_size){grid.threads, 1, 1}));
        if (++s->n_dispatches >= METAL_DISPATCHES) metal_submit(s);
    }
    objc->pool_pop(pool);
}

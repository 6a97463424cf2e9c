/* fake_encoder.c: encoders of the look-alike Metal, which check what is encoded; see fake.h. Tested
 * by tests/kernels/test_metal_rules.c.
 */
#include "tests/metal/fake.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

// ---- Both --------------------------------------------------------------------------------------

struct encoder {
    struct fake_object object;
    struct fake_commands *commands;
    bool ended;
    // A compute encoder's: what the next dispatch gets.
    struct fake_pipeline *pipeline;
    struct fake_slot slots[METAL_SLOTS];
    uint32_t threadgroup_bytes[METAL_SLOTS];
};

static void check(const struct encoder *e, const char *what) {
    if (e->ended) fake_rule("encoder-ended", "%s after endEncoding", what);
}

static void check_index(objc_number index) {
    if (index >= METAL_SLOTS) fake_rule("index", "an argument at index %lu", index);
}

static void clear_slot(struct fake_slot *slot) {
    fake_release(slot->buffer);
    free(slot->bytes);
    *slot = (struct fake_slot){0};
}

static void copy_slot(struct fake_slot *out, const struct fake_slot *slot) {
    *out = *slot;
    fake_retain(out->buffer);
    if (slot->bytes)
        out->bytes = memcpy(malloc(slot->bytes_length), slot->bytes, slot->bytes_length);
}

static void free_encoder(void *object) {
    struct encoder *e = object;
    if (!e->ended) fake_rule("encoder-open", "an encoder is released without endEncoding");
    for (int i = 0; i < METAL_SLOTS; i++) clear_slot(&e->slots[i]);
    fake_release(e->pipeline);
    fake_release(e->commands);
}

static void end_encoding(struct encoder *e, void *selector) {
    (void)selector;
    check(e, "endEncoding");
    e->ended = true;
    e->commands->encoder = NULL;
}

static void *new_encoder(struct fake_commands *commands, struct fake_class *class,
                         const char *what) {
    fake_check_open(commands, what);
    struct encoder *e = fake_new(class, sizeof *e);
    e->commands = fake_retain(commands);
    commands->encoder = e;
    return fake_autorelease(e);
}

void fake_free_command(struct fake_command *c) {
    for (int i = 0; i < METAL_SLOTS; i++) clear_slot(&c->slots[i]);
    fake_release(c->pipeline);
    fake_release(c->target);
    fake_release(c->source);
    fake_release(c->event);
    free(c);
}

// ---- Kernels -----------------------------------------------------------------------------------

static void set_pipeline(struct encoder *e, void *selector, struct fake_pipeline *pipeline) {
    (void)selector;
    check(e, "setComputePipelineState:");
    if (!pipeline) fake_rule("nil-argument", "setComputePipelineState: of nil");
    fake_retain(pipeline);
    fake_release(e->pipeline);
    e->pipeline = pipeline;
}

static void set_bytes(struct encoder *e, void *selector, const void *bytes, objc_number length,
                      objc_number index) {
    (void)selector;
    check(e, "setBytes:");
    check_index(index);
    if (length == 0 || length > FAKE_BYTES_MAX)
        fake_rule("bytes-length", "setBytes: of %lu bytes, at most %d", length, FAKE_BYTES_MAX);
    clear_slot(&e->slots[index]);
    e->slots[index].bytes = memcpy(malloc(length), bytes, length);
    e->slots[index].bytes_length = (uint32_t)length;
}

static void set_buffer(struct encoder *e, void *selector, struct fake_buffer *buffer,
                       objc_number offset, objc_number index) {
    (void)selector;
    check(e, "setBuffer:");
    check_index(index);
    clear_slot(&e->slots[index]);
    if (!buffer) return;
    fake_check_live(buffer, "setBuffer:offset:atIndex:");
    if (offset >= buffer->length)
        fake_rule("buffer-offset", "offset %lu of a buffer of %llu bytes", offset,
                  (unsigned long long)buffer->length);
    e->slots[index].buffer = fake_retain(buffer);
    e->slots[index].offset = offset;
}

static void set_threadgroup(struct encoder *e, void *selector, objc_number length,
                            objc_number index) {
    (void)selector;
    check(e, "setThreadgroupMemoryLength:");
    check_index(index);
    if (length % 16)
        fake_rule("threadgroup-length", "%lu bytes of threadgroup memory, no multiple of 16",
                  length);
    e->threadgroup_bytes[index] = (uint32_t)length;
}

static void check_argument(const struct encoder *e, const char *name,
                           const struct metal_argument *a) {
    if (a->kind == METAL_THREADGROUP) {
        if (e->threadgroup_bytes[a->index] == 0)
            fake_rule("argument-missing", "%s: no threadgroup memory at index %u", name, a->index);
        return;
    }
    const struct fake_slot *slot = &e->slots[a->index];
    if (!slot->buffer && !slot->bytes)
        fake_rule("argument-missing", "%s: nothing is bound at index %u", name, a->index);
    if (slot->bytes && slot->bytes_length < a->size_bytes)
        fake_rule("bytes-short", "%s: %u bytes at index %u, the argument has %u", name,
                  slot->bytes_length, a->index, a->size_bytes);
    if (slot->buffer && a->align_bytes &&
        (uintptr_t)(slot->buffer->bytes + slot->offset) % a->align_bytes)
        fake_rule("offset-alignment", "%s: offset %llu at index %u, the argument needs %u", name,
                  (unsigned long long)slot->offset, a->index, a->align_bytes);
}

static void check_sizes(const struct encoder *e, const char *name, struct mtl_size grid,
                        struct mtl_size threads) {
    const struct metal_function *f = e->pipeline->function;
    const uint32_t all = fake()->options.max_threads;
    const uint32_t most = f->max_threads && f->max_threads < all ? f->max_threads : all;
    uint32_t bytes = f->threadgroup_bytes;
    for (uint32_t i = 0; i < f->n_arguments; i++)
        if (f->arguments[i].kind == METAL_THREADGROUP)
            bytes += e->threadgroup_bytes[f->arguments[i].index];
    if (bytes > FAKE_THREADGROUP_MAX)
        fake_rule("threadgroup-memory", "%s: %u bytes of threadgroup memory, at most %d", name,
                  bytes, FAKE_THREADGROUP_MAX);
    if (!threads.x || !threads.y || !threads.z || threads.x * threads.y * threads.z > most)
        fake_rule("threads", "%s: %lux%lux%lu threads in a threadgroup, at most %u", name,
                  threads.x, threads.y, threads.z, most);
    if (!grid.x || !grid.y || !grid.z || grid.x > UINT32_MAX || grid.y > UINT32_MAX ||
        grid.z > UINT32_MAX)
        fake_rule("grid", "%s: %lux%lux%lu threadgroups", name, grid.x, grid.y, grid.z);
}

static void dispatch(struct encoder *e, void *selector, struct mtl_size grid,
                     struct mtl_size threads) {
    (void)selector;
    check(e, "dispatchThreadgroups:");
    if (!e->pipeline) fake_rule("pipeline-missing", "a dispatch without a pipeline");
    const struct metal_function *f = e->pipeline->function;
    for (uint32_t i = 0; i < f->n_arguments; i++) check_argument(e, f->name, &f->arguments[i]);
    check_sizes(e, f->name, grid, threads);
    struct fake_command *c = fake_append(e->commands, FAKE_DISPATCH);
    c->pipeline = fake_retain(e->pipeline);
    for (int i = 0; i < METAL_SLOTS; i++) copy_slot(&c->slots[i], &e->slots[i]);
    memcpy(c->threadgroup_bytes, e->threadgroup_bytes, sizeof c->threadgroup_bytes);
    c->grid = grid;
    c->threads = threads;
}

static const struct fake_method COMPUTE_METHODS[] = {
    {"setComputePipelineState:", set_pipeline},
    {"setBytes:length:atIndex:", set_bytes},
    {"setBuffer:offset:atIndex:", set_buffer},
    {"setThreadgroupMemoryLength:atIndex:", set_threadgroup},
    {"dispatchThreadgroups:threadsPerThreadgroup:", dispatch},
    {"endEncoding", end_encoding},
    {NULL, NULL},
};
static struct fake_class compute_class = {
    .name = "MTLComputeCommandEncoder", .methods = COMPUTE_METHODS, .dealloc = free_encoder};

void *fake_compute_encoder(struct fake_commands *commands, void *selector) {
    (void)selector;
    if (fake_fault(FAULT_COMPUTE)) return NULL;
    return new_encoder(commands, &compute_class, "computeCommandEncoder");
}

// ---- Copies ------------------------------------------------------------------------------------

static void check_range(const struct fake_buffer *b, objc_number offset, objc_number size,
                        const char *side) {
    if (!b) fake_rule("nil-argument", "a copy without a %s", side);
    fake_check_live(b, "copyFromBuffer:");
    if (offset > b->length || size > b->length - offset)
        fake_rule("blit-range", "%lu bytes at %lu of a %s of %llu", size, offset, side,
                  (unsigned long long)b->length);
}

// Reads its arguments by their places: source, offset, target, offset, size.
static void copy(struct encoder *e, void *selector, struct fake_buffer *source, ...) {
    va_list list;
    (void)selector;
    va_start(list, source);
    const objc_number source_offset = va_arg(list, objc_number);
    struct fake_buffer *target = va_arg(list, struct fake_buffer *);
    const objc_number target_offset = va_arg(list, objc_number);
    const objc_number size = va_arg(list, objc_number);
    va_end(list);
    check(e, "copyFromBuffer:");
    check_range(source, source_offset, size, "source");
    check_range(target, target_offset, size, "target");
    if ((source_offset | target_offset | size) % FAKE_OFFSET_ALIGN)
        fake_rule("blit-alignment", "%lu bytes from %lu to %lu", size, source_offset,
                  target_offset);
    const char *from = source->bytes + source_offset, *to = target->bytes + target_offset;
    if (size == 0 || (from < to + size && to < from + size))
        fake_rule("blit-overlap", "%lu bytes onto themselves", size);
    struct fake_command *c = fake_append(e->commands, FAKE_COPY);
    c->source = fake_retain(source);
    c->target = fake_retain(target);
    c->source_offset = source_offset;
    c->target_offset = target_offset;
    c->size_bytes = size;
}

static const struct fake_method BLIT_METHODS[] = {
    {"copyFromBuffer:sourceOffset:toBuffer:destinationOffset:size:", copy},
    {"endEncoding", end_encoding},
    {NULL, NULL},
};
static struct fake_class blit_class = {
    .name = "MTLBlitCommandEncoder", .methods = BLIT_METHODS, .dealloc = free_encoder};

void *fake_blit_encoder(struct fake_commands *commands, void *selector) {
    (void)selector;
    if (fake_fault(FAULT_BLIT)) return NULL;
    return new_encoder(commands, &blit_class, "blitCommandEncoder");
}

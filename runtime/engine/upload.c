/* upload.c: see upload.h. */
#include "runtime/engine/upload.h"

#include "base/mem.h"
#include "base/number.h"

enum { BLOCKS_BYTES = UPLOAD_BLOCKS * UPLOAD_BLOCK_BYTES };

enum status upload_open(struct upload *u, struct device *device, struct err *e) {
    *u = (struct upload){.device = device};
    u->chunks = mem_alloc(UPLOAD_BLOCKS, sizeof *u->chunks);
    u->blocks = mem_map_pages(BLOCKS_BYTES);
    if (!u->chunks || !u->blocks) return err_memory(e, BLOCKS_BYTES, "loading");
    for (int i = 0; i < UPLOAD_BLOCKS; i++) {
        if (event_new(device, &u->filled[i], e) || event_new(device, &u->drained[i], e))
            return e->status;
    }
    if (stream_new(device, STREAM_COPY_IN, &u->read, e) ||
        stream_new(device, STREAM_COPY_IN, &u->copy, e))
        return e->status;
    device_host_register(device, u->blocks, BLOCKS_BYTES);
    return OK;
}

// Runs in a thread of the driver's.
static void read_chunk(void *context) {
    struct upload_chunk *chunk = context;
    const struct stretch *from = &chunk->from;
    if (file_read(from->file, chunk->block, from->offset, from->size_bytes, &chunk->failure))
        return;
    if (from->forget) file_forget(from->file, from->offset, from->size_bytes);
}

// Waits until block i is empty.
static enum status drain(struct upload *u, int32_t i, struct err *e) {
    if (event_wait(&u->drained[i], e)) return e->status;
    if (u->chunks[i].failure.status) *e = u->chunks[i].failure;
    return u->chunks[i].failure.status;
}

static enum status add_chunk(struct upload *u, const struct stretch *from, void *target,
                             struct err *e) {
    const int32_t i = u->next;
    struct upload_chunk *chunk = &u->chunks[i];
    if (drain(u, i, e)) return e->status;
    u->next = (i + 1) % UPLOAD_BLOCKS;
    *chunk = (struct upload_chunk){*from, u->blocks + (size_t)i * UPLOAD_BLOCK_BYTES, {0}};
    stream_call(u->read, read_chunk, chunk);
    stream_record(u->read, &u->filled[i]);
    stream_flush(u->read);
    stream_wait_event(u->copy, &u->filled[i]);
    stream_copy(u->copy, target, chunk->block, from->size_bytes, COPY_TO_DEVICE);
    stream_record(u->copy, &u->drained[i]);
    stream_flush(u->copy);
    return OK;
}

enum status upload_add(struct upload *u, const struct stretch *from, void *target, struct err *e) {
    for (uint64_t done = 0; done < from->size_bytes; done += UPLOAD_BLOCK_BYTES) {
        struct stretch chunk = *from;
        chunk.offset += done;
        chunk.size_bytes = min_u64(from->size_bytes - done, UPLOAD_BLOCK_BYTES);
        if (add_chunk(u, &chunk, (char *)target + done, e)) return e->status;
    }
    return OK;
}

enum status upload_wait(struct upload *u, struct err *e) {
    if (stream_wait(u->copy, e)) return e->status;
    for (int32_t i = 0; i < UPLOAD_BLOCKS; i++)
        if (drain(u, i, e)) return e->status;
    return OK;
}

void upload_close(struct upload *u) {
    if (!u->device) return;
    stream_free(u->read);
    stream_free(u->copy);
    const bool lost = u->device->lost; // the streams may have found out only now
    for (int i = 0; i < UPLOAD_BLOCKS; i++) {
        event_free(&u->filled[i]);
        event_free(&u->drained[i]);
    }
    if (u->blocks) device_host_unregister(u->device, u->blocks);
    if (!lost) { // else a call or a copy may still run
        mem_unmap_pages(u->blocks, BLOCKS_BYTES);
        mem_free(u->chunks);
    }
    *u = (struct upload){0};
}

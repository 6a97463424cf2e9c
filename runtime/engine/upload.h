/* upload.h: copies parts of files to an accelerator through a few small blocks of pinned memory:
 * one block is read while another is copied, so that neither the disk nor the link waits.
 *
 * A struct upload owns the blocks, two streams and their events; it borrows the device until
 * upload_close. The blocks are the program's own memory while it loads, not the plan's. A thread of
 * the device's reads the files (stream_call). Open it before device_seal. Called by the thread that
 * loads. Tested by tests/runtime/test_upload.c.
 */
#ifndef TANDEM_RUNTIME_ENGINE_UPLOAD_H
#define TANDEM_RUNTIME_ENGINE_UPLOAD_H

#include "base/file.h"
#include "kernels/device.h"

enum { UPLOAD_BLOCKS = 4, UPLOAD_BLOCK_BYTES = 1 << 20 };

// size_bytes of a file from byte offset on.
struct stretch {
    const struct file *file; // borrowed until upload_wait returns OK, or the process ends
    uint64_t offset, size_bytes;
    bool forget; // the system need not keep what was read (file_forget)
};

struct upload_chunk { // that one call reads into its block
    struct stretch from;
    void *block;
    struct err failure; // of the reading
};

struct upload {
    struct device *device; // the accelerator; NULL: not open
    struct stream *read, *copy;
    uint8_t *blocks;             // owned, [UPLOAD_BLOCKS][UPLOAD_BLOCK_BYTES]
    struct upload_chunk *chunks; // owned, [UPLOAD_BLOCKS]
    struct event filled[UPLOAD_BLOCKS], drained[UPLOAD_BLOCKS]; // on read; on copy
    int32_t next;                                               // block to be filled
};

// Opens it, with 4 MiB for the blocks. ERR_MEMORY, ERR_DEVICE. Call upload_close after a failure
// too.
enum status upload_open(struct upload *u, struct device *device, struct err *e);
// Begins to copy a stretch to target, memory of the accelerator; waits while all blocks are full.
// ERR_FILE if an earlier stretch could not be read, ERR_DEVICE.
enum status upload_add(struct upload *u, const struct stretch *from, void *target, struct err *e);
// Waits until all is copied. ERR_FILE if some could not be read, ERR_DEVICE.
enum status upload_wait(struct upload *u, struct err *e);
// Accepts a zeroed or half-open one; waits for what runs. Leaves to the end of the process what a
// lost device may still touch.
void upload_close(struct upload *u);

#endif

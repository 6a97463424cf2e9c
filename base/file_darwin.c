/* file_darwin.c: see file.h. How macOS reads ahead of, keeps and forgets the pages of a file.
 *
 * Built by make macos-check, never run on a Mac.
 */
#include "base/file.h"

#include <fcntl.h>
#include <sys/mman.h>

enum {
    READ_BYTES = 64 << 10,   // at once, to bring pages in
    ADVISED_BYTES = 1 << 30, // that one call announces; the system counts them in an int
};

// Reading fills the cache that the mapping shows, and tells of an error where a touch would end the
// program.
enum status file_populate(const struct file *f, uint64_t offset, uint64_t size_bytes,
                          struct err *e) {
    ASSERT(offset <= f->size_bytes && size_bytes <= f->size_bytes - offset);
    char bytes[READ_BYTES];
    file_expect(f, offset, size_bytes);
    for (uint64_t done = 0; done < size_bytes;) {
        const uint64_t left = size_bytes - done;
        const size_t n = left < sizeof bytes ? (size_t)left : sizeof bytes;
        if (file_read(f, bytes, offset + done, n, e)) return e->status;
        done += n;
    }
    return OK;
}

void file_forget(const struct file *f, uint64_t offset, uint64_t size_bytes) {
    ASSERT(offset <= f->size_bytes && size_bytes <= f->size_bytes - offset);
    if (size_bytes == 0) return;
    const size_t length = file_pages_of(&offset, size_bytes);
    (void)msync((void *)(uintptr_t)(f->map + offset), length, MS_INVALIDATE);
}

void file_expect(const struct file *f, uint64_t offset, uint64_t size_bytes) {
    ASSERT(offset <= f->size_bytes && size_bytes <= f->size_bytes - offset);
    for (uint64_t done = 0; done < size_bytes; done += ADVISED_BYTES) {
        const uint64_t left = size_bytes - done;
        struct radvisory advice = {.ra_offset = (off_t)(offset + done),
                                   .ra_count = (int)(left < ADVISED_BYTES ? left : ADVISED_BYTES)};
        (void)fcntl(f->descriptor, F_RDADVISE, &advice);
    }
}

// Mapped and unmapped copies are the same pages here.
void file_drop(const struct file *f, uint64_t offset, uint64_t size_bytes) {
    file_forget(f, offset, size_bytes);
}

/* file_linux.c: see file.h. How Linux reads ahead of, keeps and forgets the pages of a file. */
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>

// Headers of a C library before 2.34 do not name it; Linux since 5.14 has it whatever they say.
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif

// Linux begins to read that much at least for one call, and on many disks no more.
enum { EXPECT_CHUNK = 128 << 10 };

enum status file_populate(const struct file *f, uint64_t offset, uint64_t size_bytes,
                          struct err *e) {
    ASSERT(offset <= f->size_bytes && size_bytes <= f->size_bytes - offset);
    if (size_bytes == 0) return OK;
    uint64_t first = offset;
    const size_t length = file_pages_of(&first, size_bytes);
    void *start = (void *)(uintptr_t)(f->map + first);
    if (madvise(start, length, MADV_POPULATE_READ) == 0) return OK;
    if (errno != EINVAL) {
        return err_errno(e, errno, "%s: reading %llu bytes at byte %llu", f->path,
                         (unsigned long long)size_bytes, (unsigned long long)offset);
    }
    // Linux before 5.14 has no such call: it reads ahead by itself, and pages come at first touch.
    (void)madvise(start, length, MADV_WILLNEED);
    return OK;
}

void file_forget(const struct file *f, uint64_t offset, uint64_t size_bytes) {
    ASSERT(offset <= f->size_bytes && size_bytes <= f->size_bytes - offset);
    if (size_bytes == 0) return; // to the system it would mean the whole rest
    (void)posix_fadvise(f->descriptor, (off_t)offset, (off_t)size_bytes, POSIX_FADV_DONTNEED);
}

void file_expect(const struct file *f, uint64_t offset, uint64_t size_bytes) {
    ASSERT(offset <= f->size_bytes && size_bytes <= f->size_bytes - offset);
    for (uint64_t done = 0; done < size_bytes; done += EXPECT_CHUNK) {
        const uint64_t left = size_bytes - done, n = left < EXPECT_CHUNK ? left : EXPECT_CHUNK;
        (void)posix_fadvise(f->descriptor, (off_t)(offset + done), (off_t)n, POSIX_FADV_WILLNEED);
    }
}

void file_drop(const struct file *f, uint64_t offset, uint64_t size_bytes) {
    ASSERT(offset <= f->size_bytes && size_bytes <= f->size_bytes - offset);
    const uint64_t wanted = offset;
    if (size_bytes == 0) return;
    const size_t length = file_pages_of(&offset, size_bytes);
    (void)madvise((void *)(uintptr_t)(f->map + offset), length, MADV_DONTNEED);
    file_forget(f, wanted, size_bytes);
}

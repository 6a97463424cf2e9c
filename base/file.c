/* file.c: see file.h. */
#include "base/file.h"

#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum status file_open(struct file *f, const char *path, struct err *e) {
    *f = (struct file){.descriptor = -1};
    f->path = mem_text(path, strlen(path));
    if (!f->path) return err_memory(e, strlen(path), "a file name");
    f->descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat info;
    if (f->descriptor < 0 || fstat(f->descriptor, &info) != 0) {
        err_errno(e, errno, "%s", path);
        goto fail;
    }
    if (!S_ISREG(info.st_mode)) {
        err_set(e, ERR_FILE, "%s", path);
        err_expected(e, "a regular file");
        err_actual(e, S_ISDIR(info.st_mode) ? "a folder" : "a pipe or device");
        goto fail;
    }
    f->size_bytes = (uint64_t)info.st_size;
    if (f->size_bytes == 0) return OK;
    void *map = mmap(NULL, f->size_bytes, PROT_READ, MAP_SHARED, f->descriptor, 0);
    if (map == MAP_FAILED) {
        err_errno(e, errno, "%s: cannot map %llu bytes", path, (unsigned long long)f->size_bytes);
        goto fail;
    }
    f->map = map;
    return OK;
fail:
    file_close(f);
    return e->status;
}

enum status file_read(const struct file *f, void *target, uint64_t offset, size_t size_bytes,
                      struct err *e) {
    size_t done = 0;
    while (done < size_bytes) {
        ssize_t n =
            pread(f->descriptor, (char *)target + done, size_bytes - done, (off_t)(offset + done));
        if (n < 0 && errno == EINTR) continue;
        if (n < 0)
            return err_errno(e, errno, "%s: reading at byte %llu", f->path,
                             (unsigned long long)offset);
        if (n == 0) {
            err_set(e, ERR_FILE, "%s: ends early, %zu byte%s missing", f->path, size_bytes - done,
                    size_bytes - done == 1 ? " is" : "s are");
            return err_fix(e, "fetch the file again");
        }
        done += (size_t)n;
    }
    return OK;
}

size_t file_pages_of(uint64_t *offset, uint64_t size_bytes) {
    const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), first = *offset / page * page;
    const size_t length = *offset + size_bytes - first;
    *offset = first;
    return length;
}

void file_read_singly(const struct file *f, uint64_t offset, uint64_t size_bytes) {
    ASSERT(offset <= f->size_bytes && size_bytes <= f->size_bytes - offset);
    if (size_bytes == 0) return;
    const size_t length = file_pages_of(&offset, size_bytes);
    (void)madvise((void *)(uintptr_t)(f->map + offset), length, MADV_RANDOM);
}

enum status file_lock(const struct file *f, uint64_t offset, uint64_t size_bytes, struct err *e) {
    ASSERT(offset <= f->size_bytes && size_bytes <= f->size_bytes - offset);
    char size[ERR_SIZE_CHARS];
    if (size_bytes == 0) return OK;
    const size_t length = file_pages_of(&offset, size_bytes);
    if (mlock(f->map + offset, length) == 0) return OK;
    err_set(e, ERR_MEMORY, "the system does not lock %s of %s in RAM: %s",
            err_size_needed(size, length), f->path, strerror(errno));
    return err_fix(e, "raise the limit of locked memory (`ulimit -l unlimited`)");
}

uint64_t file_resident_bytes(const struct file *f, uint64_t offset, uint64_t size_bytes) {
    ASSERT(offset <= f->size_bytes && size_bytes <= f->size_bytes - offset);
    const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    uint64_t n = 0;
    char pages[1024];
    for (uint64_t at = offset / page * page; at < offset + size_bytes; at += sizeof pages * page) {
        const uint64_t left = offset + size_bytes - at;
        const size_t length = left < sizeof pages * page ? left : sizeof pages * page;
        if (mincore((void *)(uintptr_t)(f->map + at), length, (void *)pages) != 0) return 0;
        for (uint64_t i = 0; i * page < length; i++) n += pages[i] & 1;
    }
    return n * page;
}

void file_close(struct file *f) {
    if (f->map) munmap((void *)(uintptr_t)f->map, f->size_bytes);
    if (f->path && f->descriptor >= 0) close(f->descriptor);
    mem_free(f->path);
    *f = (struct file){.descriptor = -1};
}

static enum status read_all(char **text, size_t *size_bytes, FILE *in, const char *path,
                            size_t limit_bytes, struct err *e) {
    size_t used = 0, room = 1 << 16;
    char *buffer = mem_alloc(room, 1);
    while (buffer) {
        used += fread(buffer + used, 1, room - used, in);
        if (used < room) break;
        char *bigger = room <= limit_bytes ? mem_resize(buffer, room, 2) : NULL;
        if (!bigger) {
            mem_free(buffer);
            if (room <= limit_bytes) return err_memory(e, room * 2, path);
            err_set(e, ERR_LIMIT, "%s is too long", path);
            return err_expected(e, "at most %zu bytes", limit_bytes);
        }
        buffer = bigger;
        room *= 2;
    }
    if (!buffer) return err_memory(e, room, path);
    if (ferror(in) || used > limit_bytes) {
        mem_free(buffer);
        if (used <= limit_bytes) return err_errno(e, errno, "%s: reading", path);
        err_set(e, ERR_LIMIT, "%s is too long", path);
        return err_expected(e, "at most %zu bytes", limit_bytes);
    }
    buffer[used] = 0;
    *text = buffer;
    *size_bytes = used;
    return OK;
}

enum status file_read_text(char **text, size_t *size_bytes, const char *path, size_t limit_bytes,
                           struct err *e) {
    if (strcmp(path, "-") == 0)
        return read_all(text, size_bytes, stdin, "standard input", limit_bytes, e);
    FILE *in = fopen(path, "rb");
    if (!in) return err_errno(e, errno, "%s", path);
    enum status status = read_all(text, size_bytes, in, path, limit_bytes, e);
    fclose(in);
    return status;
}

enum status file_make_folders(const char *path, struct err *e) {
    char part[PATH_MAX];
    if (snprintf(part, sizeof part, "%s", path) >= (int)sizeof part)
        return err_errno(e, ENAMETOOLONG, "%.80s...", path);
    for (char *at = part + 1;; at++) {
        if (*at && *at != '/') continue;
        const char end = *at;
        *at = 0;
        if (mkdir(part, 0700) != 0 && errno != EEXIST) return err_errno(e, errno, "%s", part);
        if (!end) return OK;
        *at = '/';
    }
}

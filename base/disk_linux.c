/* disk_linux.c: see disk.h. */
#include "base/disk.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

enum { LINK_BYTES = 32 };

// The path by which a file without a name is found. Returns out.
static char *link_of(char out[LINK_BYTES], int descriptor) {
    (void)snprintf(out, LINK_BYTES, "/proc/self/fd/%d", descriptor);
    return out;
}

int disk_open_unnamed(const char *folder) {
    char link[LINK_BYTES];
    const int descriptor = open(folder, O_WRONLY | O_TMPFILE | O_CLOEXEC, 0666);
    if (descriptor < 0 || access(link_of(link, descriptor), F_OK) == 0) return descriptor;
    close(descriptor); // without /proc it would never get a name
    return -1;
}

int disk_name(int descriptor, const char *path) {
    char link[LINK_BYTES];
    return linkat(AT_FDCWD, link_of(link, descriptor), AT_FDCWD, path, AT_SYMLINK_FOLLOW);
}

int disk_preallocate(int descriptor, uint64_t size_bytes) {
    return fallocate(descriptor, FALLOC_FL_KEEP_SIZE, 0, (off_t)size_bytes) == 0 ? 0 : errno;
}

int disk_sync(int descriptor) { return fsync(descriptor); }

struct disk_reads disk_reads(void) {
    struct rusage usage;
    if (getrusage(RUSAGE_SELF, &usage)) return (struct disk_reads){0};
    return (struct disk_reads){(uint64_t)usage.ru_inblock * 512, (uint64_t)usage.ru_majflt};
}

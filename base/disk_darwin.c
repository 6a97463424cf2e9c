/* disk_darwin.c: see disk.h. Built by make macos-check, never run on a Mac. */
#include "base/disk.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

int disk_open_unnamed(const char *folder) {
    (void)folder;
    return -1;
}

int disk_name(int descriptor, const char *path) {
    (void)descriptor;
    (void)path;
    errno = ENOTSUP;
    return -1;
}

int disk_preallocate(int descriptor, uint64_t size_bytes) {
    fstore_t room = {
        .fst_flags = F_ALLOCATEALL, .fst_posmode = F_PEOFPOSMODE, .fst_length = (off_t)size_bytes};
    return fcntl(descriptor, F_PREALLOCATE, &room) == 0 ? 0 : errno;
}

// fsync hands the bytes to the disk, which may still lose them with the power; the first call waits
// until they are safe, and some network volumes refuse it.
int disk_sync(int descriptor) {
    return fcntl(descriptor, F_FULLFSYNC) == 0 ? 0 : fsync(descriptor);
}

struct disk_reads disk_reads(void) {
    struct rusage usage;
    if (getrusage(RUSAGE_SELF, &usage)) return (struct disk_reads){0};
    const uint64_t faults = (uint64_t)usage.ru_majflt;
    return (struct disk_reads){faults * (uint64_t)getpagesize(), faults};
}

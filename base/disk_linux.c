/* disk_linux.c: see disk.h. */
#include "base/disk.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

int disk_preallocate(int descriptor, uint64_t size_bytes) {
    return fallocate(descriptor, FALLOC_FL_KEEP_SIZE, 0, (off_t)size_bytes) == 0 ? 0 : errno;
}

int disk_sync(int descriptor) { return fsync(descriptor); }

struct disk_reads disk_reads(void) {
    struct rusage usage;
    if (getrusage(RUSAGE_SELF, &usage)) return (struct disk_reads){0};
    return (struct disk_reads){(uint64_t)usage.ru_inblock * 512, (uint64_t)usage.ru_majflt};
}

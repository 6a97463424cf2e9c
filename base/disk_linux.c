/* disk_linux.c: see disk.h. */
#include "base/disk.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

int disk_preallocate(int descriptor, uint64_t size_bytes) {
    return fallocate(descriptor, FALLOC_FL_KEEP_SIZE, 0, (off_t)size_bytes) == 0 ? 0 : errno;
}

int disk_sync(int descriptor) { return fsync(descriptor); }

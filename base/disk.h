/* disk.h: how the operating system brings the bytes of a new file to the disk, and how many it has
 * brought from there.
 *
 * Takes descriptors and owns nothing. One thread for each file; disk_bytes_read from any. Tested by
 * tests/base/test_base.c.
 */
#ifndef TANDEM_BASE_DISK_H
#define TANDEM_BASE_DISK_H

#include <stdint.h>

// Gets the room for an empty file of that size. Returns 0, or errno.
int disk_preallocate(int descriptor, uint64_t size_bytes);
// Waits until what was written is on the disk. Returns 0, or -1 and sets errno.
int disk_sync(int descriptor);

// Bytes that the system has read from disks for this process since it began: for mapped files,
// ahead of them, and for the swap (getrusage: ru_inblock). Where the system does not count them,
// the pages that a thread has waited for (ru_majflt).
uint64_t disk_bytes_read(void);

#endif

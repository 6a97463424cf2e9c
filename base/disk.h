/* disk.h: how the operating system brings the bytes of a new file to the disk.
 *
 * Takes descriptors and owns nothing. For base/new_file.c. One thread for each file. Tested by
 * tests/base/test_base.c.
 */
#ifndef TANDEM_BASE_DISK_H
#define TANDEM_BASE_DISK_H

#include <stdint.h>

// Gets the room for an empty file of that size. Returns 0, or errno.
int disk_preallocate(int descriptor, uint64_t size_bytes);
// Waits until what was written is on the disk. Returns 0, or -1 and sets errno.
int disk_sync(int descriptor);

#endif

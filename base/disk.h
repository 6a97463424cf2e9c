/* disk.h: how the operating system brings the bytes of a new file to the disk, and how many it has
 * brought from there.
 *
 * Takes descriptors and owns nothing. One thread for each file; disk_reads from any. Tested by
 * tests/base/test_base.c.
 */
#ifndef TANDEM_BASE_DISK_H
#define TANDEM_BASE_DISK_H

#include <stdint.h>

// Opens a new file in the folder that has no name yet, and is gone with the process however that
// ends. -1 where the system or the file system has no such files.
int disk_open_unnamed(const char *folder);
// Gives it a name that is free. Returns 0, or -1 and sets errno.
int disk_name(int descriptor, const char *path);
// Gets the room for an empty file of that size. Returns 0, or errno.
int disk_preallocate(int descriptor, uint64_t size_bytes);
// Waits until what was written is on the disk. Returns 0, or -1 and sets errno.
int disk_sync(int descriptor);

struct disk_reads {
    uint64_t size_bytes, faults;
};
// Counts since the process began, by getrusage: bytes that the system has read from disks for it,
// for mapped files, ahead of them, and for the swap (ru_inblock; where the system does not count
// them, those of the pages below), and major faults: pages that a thread waited for (ru_majflt).
struct disk_reads disk_reads(void);

#endif

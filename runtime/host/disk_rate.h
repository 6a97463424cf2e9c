/* disk_rate.h: measures how fast parts of a file come from the disk.
 *
 * Drops some pieces of the file from memory and reads them back as the engine reads weights that do
 * not stay in RAM. Pieces that other programs keep in memory do not count. One thread. Tested by
 * tests/runtime/test_disk_rate.c.
 */
#ifndef TANDEM_RUNTIME_HOST_DISK_RATE_H
#define TANDEM_RUNTIME_HOST_DISK_RATE_H

#include "base/file.h"
#include "runtime/host/meter.h"

// GB/s of the disk under that file, by the meter (NULL: this computer's clock); 0 if it is too
// small or stays in memory.
double disk_rate(const struct file *file, const struct meter *meter);
// The same of the file at path; 0 if it cannot be opened.
double disk_rate_of(const char *path, const struct meter *meter);

#endif

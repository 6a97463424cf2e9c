/* file.h: read-only files, mapped or read by position.
 *
 * A struct file owns one descriptor and one mapping; views into the mapping are lent until
 * file_close. Writes no file. One thread opens and closes; any thread may read. Tested by
 * tests/base/test_base.c.
 */
#ifndef TANDEM_BASE_FILE_H
#define TANDEM_BASE_FILE_H

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

struct file {
    char *path;          // owned copy, for messages
    int descriptor;      // -1 when closed
    uint64_t size_bytes; // at the time of opening
    const uint8_t *map;  // whole file, or NULL for an empty one
};

// Opens and maps path. Directories, pipes and devices are refused (ERR_FILE). On failure *f is
// zeroed but for descriptor -1, and file_close on it is allowed. Pages are read on first touch.
enum status file_open(struct file *f, const char *path, struct err *e);

// Reads exactly size bytes at offset into target, or ERR_FILE naming the missing count.
enum status file_read(const struct file *f, void *target, uint64_t offset, size_t size_bytes,
                      struct err *e);

// Brings [offset, offset + size) of the mapping into memory and waits for it, so that nobody waits
// for the disk later. ERR_FILE if the pages cannot be read, for example because the file was cut
// since it was opened.
enum status file_populate(const struct file *f, uint64_t offset, uint64_t size_bytes,
                          struct err *e);

// Tells the system that [offset, offset + size) will not be read from this file again, so that its
// cache need not keep a copy. Only advice: nothing fails, and what is mapped and touched stays.
void file_forget(const struct file *f, uint64_t offset, uint64_t size_bytes);

// Begins to read [offset, offset + size) into memory and does not wait for it. Only advice.
void file_expect(const struct file *f, uint64_t offset, uint64_t size_bytes);
// Has a first touch of [offset, offset + size) read that page alone, and no others around it.
void file_read_singly(const struct file *f, uint64_t offset, uint64_t size_bytes);
// Moves *offset to the start of its page. Returns the bytes of all pages that touch the range.
size_t file_pages_of(uint64_t *offset, uint64_t size_bytes);
// Gives the memory of [offset, offset + size) back, mapped or not, as far as it is in whole pages
// and nobody else uses it; what is read later comes from the disk. Only advice.
void file_drop(const struct file *f, uint64_t offset, uint64_t size_bytes);
// Keeps [offset, offset + size) in memory until file_close. ERR_MEMORY if the system refuses it.
enum status file_lock(const struct file *f, uint64_t offset, uint64_t size_bytes, struct err *e);
// Bytes of [offset, offset + size) that are in memory, in whole pages; 0 if the system does not
// tell.
uint64_t file_resident_bytes(const struct file *f, uint64_t offset, uint64_t size_bytes);

// Accepts a zeroed or half-open struct; leaves it closed.
void file_close(struct file *f);

// The whole of path ("-" is standard input) in one owned, zero-terminated buffer, at most limit
// bytes long; a longer one is ERR_LIMIT. *size gets the length without the terminator. The caller
// frees *text with mem_free.
enum status file_read_text(char **text, size_t *size_bytes, const char *path, size_t limit_bytes,
                           struct err *e);

// Makes every missing folder of the path, readable by the user alone.
enum status file_make_folders(const char *path, struct err *e);

#endif

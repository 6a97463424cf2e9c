/* new_file.h: writes a file that appears under its name when it is whole, or not at all.
 *
 * A struct new_file owns a descriptor and its file, which until new_file_commit has no name, so
 * that nothing stays if the process is killed, or where that cannot be, another one beside the
 * wanted. One thread. Tested by tests/base/test_base.c.
 */
#ifndef TANDEM_BASE_NEW_FILE_H
#define TANDEM_BASE_NEW_FILE_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct new_file {
    char *path, *temporary; // owned; temporary is NULL of what is written to directly
    int descriptor;
    bool unnamed;  // temporary is no file yet
    bool replaces; // path may exist, until new_file_commit takes its place
};

// Begins the file. ERR_FILE if path exists or its folder cannot be written, ERR_MEMORY. On failure
// *f is closed.
enum status new_file_open(struct new_file *f, const char *path, struct err *e);

// The same, but a file at path stays as it is until new_file_commit replaces it. Links to it stay.
// A pipe, a device and what standard output or error goes to are written to directly.
enum status new_file_open_over(struct new_file *f, const char *path, struct err *e);

// Asks for the room of a file of that size, so that a full disk shows before the work; file systems
// that cannot tell give none. ERR_FILE.
enum status new_file_reserve(struct new_file *f, uint64_t size_bytes, struct err *e);

// Appends. ERR_FILE, also if the disk is full.
enum status new_file_write(struct new_file *f, const void *bytes, size_t size_bytes, struct err *e);

// Brings the file to the disk and gives it its name. ERR_FILE, also if the name is taken meanwhile.
// Closes *f in either case.
enum status new_file_commit(struct new_file *f, struct err *e);

// Replaces the file at path by what print writes to the stream, or leaves it as it was. The error
// of one that cannot be written is made here, with the name.
typedef enum status new_file_print_fn(FILE *out, const void *context, struct err *e);
enum status new_file_print(const char *path, new_file_print_fn *print, const void *context,
                           struct err *e);

// ERR_FILE if new_file_open_over would fail. Makes no file.
enum status new_file_check(const char *path, struct err *e);

// Removes the file unless it was committed. Accepts a zeroed struct; leaves it zeroed.
void new_file_close(struct new_file *f);

#endif

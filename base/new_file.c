/* new_file.c: see new_file.h. */
#include "base/new_file.h"

#include "base/disk.h"
#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static enum status check_free(const char *path, struct err *e) {
    if (faccessat(AT_FDCWD, path, F_OK, AT_SYMLINK_NOFOLLOW) != 0) return OK;
    err_set(e, ERR_FILE, "%s exists", path);
    return err_fix(e, "remove it or give another name");
}

// Opens the folder's unnamed file. f->temporary has room for the folder's name.
static bool begin_unnamed(struct new_file *f) {
    char *const folder = f->temporary, *slash;
    strcpy(folder, f->path);
    slash = strrchr(folder, '/');
    if (!slash)
        strcpy(folder, ".");
    else
        slash[slash == folder] = 0; // of the root its slash stays
    f->descriptor = disk_open_unnamed(folder);
    f->unnamed = f->descriptor >= 0;
    return f->unnamed;
}

static enum status begin(struct new_file *f, const char *path, struct err *e) {
    enum { SUFFIX_BYTES = 32 };
    const size_t length = strlen(path);
    f->path = mem_text(path, length);
    f->temporary = mem_alloc(length + SUFFIX_BYTES, 1);
    if (!f->path || !f->temporary) {
        err_memory(e, length, "a file name");
        goto fail;
    }
    const bool unnamed = begin_unnamed(f);
    snprintf(f->temporary, length + SUFFIX_BYTES, "%s.%ld.part", path, (long)getpid());
    if (unnamed) return OK;
    f->descriptor = open(f->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (f->descriptor >= 0) return OK;
    err_errno(e, errno, "%s", path);
fail:
    new_file_close(f);
    return e->status;
}

enum status new_file_open(struct new_file *f, const char *path, struct err *e) {
    *f = (struct new_file){.descriptor = -1};
    return check_free(path, e) ? e->status : begin(f, path, e);
}

// The descriptor of standard output or standard error if it goes to that file, else -1.
static int find_printed(const struct stat *wanted) {
    struct stat found;
    for (int d = STDOUT_FILENO; d <= STDERR_FILENO; d++)
        if (fstat(d, &found) == 0 && found.st_dev == wanted->st_dev &&
            found.st_ino == wanted->st_ino)
            return d;
    return -1;
}

// Opens a pipe or a device, in whose place no file can be put, or what is printed to: a new file in
// its place would get nothing of what is printed later. A pipe that nobody reads is refused, for
// which its opening would wait.
static enum status open_through(struct new_file *f, const char *path, int printed, struct err *e) {
    f->path = mem_text(path, strlen(path));
    if (!f->path) return err_memory(e, strlen(path), "a file name");
    if (printed >= 0 && (fcntl(printed, F_GETFL) & O_ACCMODE) == O_RDONLY) {
        errno = EBADF; // the stream is closed, and its place is held
    } else if (printed >= 0) {
        fflush(printed == STDOUT_FILENO ? stdout : stderr);
        f->descriptor = fcntl(printed, F_DUPFD_CLOEXEC, 0);
        if (f->descriptor >= 0) return OK;
    } else {
        f->descriptor = open(path, O_WRONLY | O_CLOEXEC | O_NONBLOCK);
        if (f->descriptor >= 0 && fcntl(f->descriptor, F_SETFL, O_WRONLY) == 0) return OK;
    }
    err_errno(e, errno, "%s", path);
    new_file_close(f);
    return e->status;
}

enum status new_file_open_over(struct new_file *f, const char *path, struct err *e) {
    char target[PATH_MAX];
    struct stat named, found;
    *f = (struct new_file){.descriptor = -1, .replaces = true};
    if (stat(path, &found) != 0) return begin(f, path, e);
    const int printed = find_printed(&found);
    if (printed >= 0 || !S_ISREG(found.st_mode)) return open_through(f, path, printed, e);
    const bool is_link = lstat(path, &named) == 0 && S_ISLNK(named.st_mode);
    return begin(f, is_link && realpath(path, target) ? target : path, e);
}

enum status new_file_reserve(struct new_file *f, uint64_t size_bytes, struct err *e) {
    const int failure =
        size_bytes > 0 && f->temporary ? disk_preallocate(f->descriptor, size_bytes) : 0;
    if (failure != ENOSPC && failure != EFBIG && failure != EDQUOT) return OK;
    char size[ERR_SIZE_CHARS];
    return err_errno(e, failure, "%s: no room for %s", f->path, err_size_needed(size, size_bytes));
}

enum status new_file_write(struct new_file *f, const void *bytes, size_t size_bytes,
                           struct err *e) {
    for (size_t done = 0; done < size_bytes;) {
        const ssize_t n = write(f->descriptor, (const char *)bytes + done, size_bytes - done);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return err_errno(e, errno, "%s: writing", f->path);
        done += (size_t)n;
    }
    return OK;
}

// Brings a file with a name of its own to the disk, and gives it a temporary one if it has none.
static bool settle(struct new_file *f) {
    if (!f->temporary) return true;
    if (disk_sync(f->descriptor) != 0) return false;
    if (f->unnamed && disk_name(f->descriptor, f->temporary) != 0) return false;
    f->unnamed = false;
    return true;
}

enum status new_file_commit(struct new_file *f, struct err *e) {
    enum status status = OK;
    const int descriptor = f->descriptor;
    const bool settled = settle(f);
    const int failure = errno;
    f->descriptor = -1;
    if (close(descriptor) != 0 || !settled)
        status = err_errno(e, settled ? errno : failure, "%s: writing", f->path);
    else if (!f->replaces && check_free(f->path, e))
        status = e->status;
    else if (f->temporary && rename(f->temporary, f->path) != 0)
        status = err_errno(e, errno, "%s", f->path);
    else {
        mem_free(f->temporary);
        f->temporary = NULL;
    }
    new_file_close(f);
    return status;
}

// Opens a stream that has a descriptor of its own.
static FILE *open_stream(const struct new_file *f) {
    const int copy = fcntl(f->descriptor, F_DUPFD_CLOEXEC, 0);
    FILE *out = copy < 0 ? NULL : fdopen(copy, "w");
    if (!out && copy >= 0) close(copy);
    return out;
}

enum status new_file_print(const char *path, new_file_print_fn *print, const void *context,
                           struct err *e) {
    struct new_file f;
    if (new_file_open_over(&f, path, e)) return e->status;
    FILE *out = open_stream(&f);
    errno = out ? 0 : errno;
    enum status status = out ? print(out, context, e) : ERR_FILE;
    int failure = errno; // of the write, whose error may not know the name
    if (out && fclose(out) != 0 && status == OK) {
        failure = errno;
        status = ERR_FILE;
    }
    if (status == OK) return new_file_commit(&f, e);
    new_file_close(&f);
    return status == ERR_FILE ? err_errno(e, failure ? failure : EIO, "%s", path) : status;
}

enum status new_file_check(const char *path, struct err *e) {
    struct new_file f;
    if (new_file_open_over(&f, path, e)) return e->status;
    new_file_close(&f);
    return OK;
}

void new_file_close(struct new_file *f) {
    if (f->path && f->descriptor >= 0) close(f->descriptor);
    if (f->path && f->temporary && !f->unnamed) unlink(f->temporary);
    mem_free(f->path);
    mem_free(f->temporary);
    *f = (struct new_file){0};
}

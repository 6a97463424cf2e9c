/* err.c: see err.h. */
#include "base/err.h"

#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void scrub(char *text) {
    for (unsigned char *p = (unsigned char *)text; *p; p++)
        if ((*p < 0x20 && *p != '\t') || *p == 0x7f) *p = '?';
}

static void vfill(char *target, size_t size_bytes, const char *format, va_list args) {
    vsnprintf(target, size_bytes, format, args);
    scrub(target);
}

enum status err_set(struct err *e, enum status status, const char *what, ...) {
    ASSERT(e);
    ASSERT(status != OK);
    *e = (struct err){.status = status};
    va_list args;
    va_start(args, what);
    vfill(e->what, sizeof e->what, what, args);
    va_end(args);
    return status;
}

enum status err_expected(struct err *e, const char *expected, ...) {
    va_list args;
    va_start(args, expected);
    vfill(e->expected, sizeof e->expected, expected, args);
    va_end(args);
    return e->status;
}

enum status err_actual(struct err *e, const char *actual, ...) {
    va_list args;
    va_start(args, actual);
    vfill(e->actual, sizeof e->actual, actual, args);
    va_end(args);
    return e->status;
}

enum status err_fix(struct err *e, const char *fix, ...) {
    va_list args;
    va_start(args, fix);
    vfill(e->fix, sizeof e->fix, fix, args);
    va_end(args);
    return e->status;
}

void err_list_add(char *list, size_t size, const char *name) {
    static const char full[] = "...";
    const size_t used = strlen(list), rest = sizeof ", ..." - 1;
    const char *comma = used ? ", " : "";
    if (used >= sizeof full - 1 && strcmp(list + used - (sizeof full - 1), full) == 0) return;
    const bool fits = used + strlen(comma) + strlen(name) + rest < size;
    snprintf(list + used, size - used, "%s%s", comma, fits ? name : full);
}

enum status err_context(struct err *e, const char *prefix, ...) {
    char before[sizeof e->what], old[sizeof e->what];
    va_list args;
    va_start(args, prefix);
    vfill(before, sizeof before, prefix, args);
    va_end(args);
    const size_t named = strlen(before);
    const bool begins = strncmp(e->what, before, named) == 0;
    if (begins && (e->what[named] == ':' || !e->what[named])) return e->status;
    memcpy(old, e->what, sizeof old);
    int length = snprintf(e->what, sizeof e->what, "%s: ", before);
    if (length >= 0 && (size_t)length < sizeof e->what)
        snprintf(e->what + length, sizeof e->what - (size_t)length, "%s", old);
    return e->status;
}

enum status err_errno(struct err *e, int error_number, const char *what, ...) {
    char text[sizeof e->what];
    va_list args;
    va_start(args, what);
    vfill(text, sizeof text, what, args);
    va_end(args);
    return err_set(e, ERR_FILE, "%s: %s", text, strerror(error_number));
}

// Hundredths are exact for sizes below 2^46.
static char *size_text(char out[ERR_SIZE_CHARS], uint64_t size_bytes, bool up) {
    static const char *const units[] = {"KiB", "MiB", "GiB"};
    int unit = 0;
    if (size_bytes < 1024) {
        (void)snprintf(out, ERR_SIZE_CHARS, "%u byte%s", (unsigned)size_bytes,
                       size_bytes == 1 ? "" : "s");
        return out;
    }
    while (unit < 2 && size_bytes >> (10 * unit + 20)) unit++;
    const double hundredths = (double)size_bytes * 100 / (double)(UINT64_C(1) << (10 * unit + 10));
    (void)snprintf(out, ERR_SIZE_CHARS, "%.2f %s",
                   (up ? ceil(hundredths) : floor(hundredths)) / 100, units[unit]);
    return out;
}

char *err_size_limit(char out[ERR_SIZE_CHARS], uint64_t size_bytes) {
    return size_text(out, size_bytes, false);
}

char *err_size_needed(char out[ERR_SIZE_CHARS], uint64_t size_bytes) {
    return size_text(out, size_bytes, true);
}

enum status err_memory(struct err *e, size_t size_bytes, const char *purpose) {
    char size[ERR_SIZE_CHARS];
    err_set(e, ERR_MEMORY, "out of host memory for %s", purpose);
    err_expected(e, "%s", err_size_needed(size, size_bytes));
    return err_fix(e, "close other programs, or use a shorter context (-c) or a smaller model");
}

static char *join(const struct err *e, bool with_fix, char *out, size_t size_bytes) {
    ASSERT(size_bytes > 0);
    size_t used = 0;
    out[0] = 0;
    const char *parts[8] = {e->what[0] ? e->what : status_name(e->status)};
    int n = 1;
    if (e->expected[0]) parts[n++] = ": expected ", parts[n++] = e->expected;
    if (e->actual[0]) parts[n++] = e->expected[0] ? ", got " : ": got ", parts[n++] = e->actual;
    if (e->fix[0] && with_fix) parts[n++] = ". Fix: ", parts[n++] = e->fix;
    for (int i = 0; i < n; i++) {
        int length = snprintf(out + used, size_bytes - used, "%s", parts[i]);
        if (length < 0 || (size_t)length >= size_bytes - used) break;
        used += (size_t)length;
    }
    return out;
}

char *err_text(const struct err *e, char *out, size_t size_bytes) {
    return join(e, true, out, size_bytes);
}

char *err_sentence(const struct err *e, char *out, size_t size_bytes) {
    return join(e, false, out, size_bytes);
}

const char *status_name(enum status status) {
    static const char *const names[] = {"ok",     "usage",  "file",  "format",   "unsupported",
                                        "memory", "device", "limit", "cancelled"};
    return (size_t)status < sizeof names / sizeof *names ? names[status] : "unknown";
}

_Noreturn void assert_failed(const char *condition, const char *file, int line) {
    fprintf(stderr, "tandem: bug at %s:%d: %s does not hold\n", file, line, condition);
    abort();
}

/* err.h: how a world error (file, memory, driver, request) travels up to main.
 *
 * Owns nothing; every struct err belongs to the caller, who reads it only after a status other than
 * OK. Must not print, allocate or exit. Any thread, one thread per struct err. Tested by
 * tests/base/test_base.c.
 */
#ifndef TANDEM_BASE_ERR_H
#define TANDEM_BASE_ERR_H

#include <stddef.h>
#include <stdint.h>

enum status {
    OK = 0,
    ERR_USAGE,       // a wrong command line or option value: exit code 2
    ERR_FILE,        // the operating system refused a file
    ERR_FORMAT,      // a file says something impossible
    ERR_UNSUPPORTED, // a valid file that asks for what this program does not do
    ERR_MEMORY,      // an allocation was refused, or a plan does not fit
    ERR_DEVICE,      // a device failed
    ERR_LIMIT,       // the context, the batch or another stated limit is full
    ERR_CANCELLED,   // the user asked to stop
};

struct err {
    enum status status;
    char what[320];     // the thing and what is wrong with it
    char expected[160]; // empty where it does not apply
    char actual[160];   // what came instead; empty where it does not apply
    char fix[240];      // what the user can do; empty if nobody knows
};

// Each of the four fills one field of *e and returns e->status, so that an error ends in one
// return. Text that is too long is cut. Control bytes in the result become '?', since names and
// keys come from files. e may not be NULL.
enum status err_set(struct err *e, enum status status, const char *what, ...)
    __attribute__((format(printf, 3, 4)));
enum status err_expected(struct err *e, const char *expected, ...)
    __attribute__((format(printf, 2, 3)));
enum status err_actual(struct err *e, const char *actual, ...)
    __attribute__((format(printf, 2, 3)));
enum status err_fix(struct err *e, const char *fix, ...) __attribute__((format(printf, 2, 3)));

// Appends a name to a list for people, such as "a, b, c". A list that is full ends in "...", never
// within a name. list[size] is terminated.
void err_list_add(char *list, size_t size, const char *name);

// Puts "prefix: " before what, for a caller that knows the file or the step; does nothing if what
// begins with the prefix already, so that an error names its file once. Returns e->status.
enum status err_context(struct err *e, const char *prefix, ...)
    __attribute__((format(printf, 2, 3)));

// ERR_FILE from errno: "what: strerror". Returns ERR_FILE.
enum status err_errno(struct err *e, int error_number, const char *what, ...)
    __attribute__((format(printf, 3, 4)));

// ERR_MEMORY for size bytes of host memory wanted by purpose. Returns ERR_MEMORY.
enum status err_memory(struct err *e, size_t size_bytes, const char *purpose);

// Write a size for people to out: "1.25 GiB", "96.00 MiB", "1.50 KiB" or "12 bytes". Limits are
// rounded down and needs up, so that a need above a limit never reads like it. Both return out.
enum { ERR_SIZE_CHARS = 32 };
char *err_size_limit(char out[ERR_SIZE_CHARS], uint64_t size_bytes);
char *err_size_needed(char out[ERR_SIZE_CHARS], uint64_t size_bytes);

// One line "what: expected X, got Y (fix)" into out[size_bytes], always terminated. Returns out.
char *err_text(const struct err *e, char *out, size_t size_bytes);

// The same without the fix, for who shows that apart.
char *err_sentence(const struct err *e, char *out, size_t size_bytes);

// A short constant name of a status ("format"), for logs and JSON.
const char *status_name(enum status status);

// A broken precondition is a bug in this program, not an event in the world: it ends the process.
// On in release builds too; inner loops use assert() of libc.
#define ASSERT(condition) ((condition) ? (void)0 : assert_failed(#condition, __FILE__, __LINE__))
_Noreturn void assert_failed(const char *condition, const char *file, int line);

#endif

/* thread_status.h: what the system tells about a thread of this process, in /proc (Linux).
 *
 * Owns and borrows nothing. Any thread. A helper for tests.
 */
#ifndef TANDEM_TESTS_LIB_THREAD_STATUS_H
#define TANDEM_TESTS_LIB_THREAD_STATUS_H

#include <stdint.h>
#include <sys/types.h>

// Reads a line of a thread's status by its name. Returns its number, or the first letter.
long thread_status(pid_t thread, const char *name);

// How often the thread has fallen asleep.
long thread_sleeps(pid_t thread);

// Fills in the threads of this process that are not among the known ones. Returns how many.
int32_t threads_but(const pid_t *known, int32_t n_known, pid_t *out, int32_t most);

#endif

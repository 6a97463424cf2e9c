/* tandem_error.h: translates errors and structs between tandem.h and the rooms behind it.
 *
 * Owns nothing: everything is copied. Must not know an engine. Any thread. Tested by
 * tests/runtime/test_library.c.
 */
#ifndef TANDEM_RUNTIME_LIBRARY_TANDEM_ERROR_H
#define TANDEM_RUNTIME_LIBRARY_TANDEM_ERROR_H

#include "base/err.h"
#include "runtime/tandem.h"

#include <stddef.h>

// Bytes of a struct up to the end of a field. A caller whose struct_size is 0 knows the fields of
// version 0.1, whose last one each reader names.
#define END_OF_FIELD(type, field) (offsetof(type, field) + sizeof((type *)0)->field)

// Copies a caller's struct, which begins with its struct_size, to out[known_bytes] as this version
// knows it; first_bytes is the size of its first version. NULL leaves *out unchanged. ERR_USAGE if
// it is too short, ERR_UNSUPPORTED if it has fields of a later version that are set.
enum status tandem_struct_read(void *out, size_t known_bytes, size_t first_bytes, const void *in,
                               struct err *e);

// Returns the status, and copies *e to *out if the status is not OK and out is not NULL.
enum tandem_status tandem_error_give(enum status status, const struct err *e,
                                     struct tandem_error *out);

#endif

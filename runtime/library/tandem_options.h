/* tandem_options.h: the options of tandem.h as the engine takes them.
 *
 * A struct tandem_request owns nothing: it borrows the caller's texts and callbacks, and the engine
 * borrows its log and its progress, so it must not move while the engine is open. Any thread may
 * set cancelled; all else belongs to the thread that opens. Tested by tests/runtime/test_library.c.
 */
#ifndef TANDEM_RUNTIME_LIBRARY_TANDEM_OPTIONS_H
#define TANDEM_RUNTIME_LIBRARY_TANDEM_OPTIONS_H

#include "runtime/options.h"
#include "runtime/tandem.h"

#include <stdatomic.h>

struct tandem_request {
    struct tandem_engine_options asked;
    struct engine_options engine;
    struct engine_options draft; // model_path NULL: there is no draft model
    int32_t draft_max;           // tokens of a draft; 0: there are none
    struct machine measured;     // see engine_options
    struct log log;
    atomic_bool cancelled; // progress answers false from then on
};

// Fills *r, which must be zeroed, from options, which may be NULL. ERR_USAGE names the field that
// is wrong.
enum status tandem_request_read(struct tandem_request *r, const char *model_path,
                                const struct tandem_engine_options *options, struct err *e);

#endif

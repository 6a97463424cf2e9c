/* patterns.h: turns "-ot" texts into devices of units.
 *
 * Owns nothing that outlives a call. Any thread. Tested by
 * tests/planner/test_shape.c and tests/fuzz/fuzz_patterns.c.
 */
#ifndef TANDEM_PLANNER_SEARCH_PATTERNS_H
#define TANDEM_PLANNER_SEARCH_PATTERNS_H

#include "planner/plan/request.h"

// Bytes of the first "regex=DEVICE" of a text: up to its end, or to the first of the separators
// that is behind a "=", such as that of (?<=x), and in no count of repetitions such as {1,2}.
size_t patterns_length(const char *text, const char *separators);
// ERR_USAGE if a pattern or a device of an "-ot" text, as below, is wrong for every model.
enum status patterns_check(const char *patterns, struct err *e);

// Turns an "-ot" text, "regex=DEVICE[,regex=DEVICE]", into place.units. Patterns are Perl's
// and match anywhere in a tensor's name, where capitals count; the first that matches decides.
// DEVICE is CPU or GPU, or one of device_names.def. A unit goes where its big matrices go: those of
// the experts in an experts unit, else all of them; vectors and routers follow, so
// "ffn_.*_exps=CPU" moves whole experts units. A tied head has the name output.weight. A unit that
// no pattern matches keeps its device, which is DEVICE_ANY at first. ERR_USAGE if a pattern is
// wrong, decides nothing, or separates tensors of a unit (it names the tensors and a pattern that
// keeps them together).
enum status constraints_add_patterns(struct constraints *c, const struct shape *shape,
                                     const char *patterns, struct err *e);

#endif

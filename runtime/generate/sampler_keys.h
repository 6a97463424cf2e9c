/* sampler_keys.h: how a model wants to be sampled, by the keys general.sampling.* of its file.
 *
 * The keys are those of llama.cpp, which takes them where no option was given. Plain functions; any
 * thread. Tested by tests/runtime/test_sampler_keys.c.
 */
#ifndef TANDEM_RUNTIME_GENERATE_SAMPLER_KEYS_H
#define TANDEM_RUNTIME_GENERATE_SAMPLER_KEYS_H

#include "runtime/generate/sampler.h"
#include "runtime/gguf/gguf.h"

enum { SAMPLER_KEYS_CHARS = 512 };

// Sets the members of *o that the file has keys for and that nobody gave: given, of sizeof *o, is
// true at the offset of a member that was. Writes what was set to told, as options of the command
// line ("--temp 0.6 --top-k 20"), "" for nothing. ERR_FORMAT for a key that is no number in the
// option's range, or names no steps; *o is in part set then.
enum status sampler_take_keys(struct sampler_options *o, const bool *given, const struct gguf *g,
                              char told[SAMPLER_KEYS_CHARS], struct err *e);

#endif

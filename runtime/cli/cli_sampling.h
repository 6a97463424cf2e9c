/* cli_sampling.h: options of sampling that the model's file gives, by its keys general.sampling.*.
 *
 * The keys are those of llama.cpp, which takes them where no option was given. Must not set what
 * was. One thread per struct cli_options. Tested by tests/runtime/test_cli_sampling.c.
 */
#ifndef TANDEM_RUNTIME_CLI_CLI_SAMPLING_H
#define TANDEM_RUNTIME_CLI_CLI_SAMPLING_H

#include "runtime/cli/cli_options.h"
#include "runtime/gguf/gguf.h"

enum { SAMPLING_CHARS = 512 };

// Sets the options of sampling that the file has keys for and that neither the command line nor a
// variable gave. Writes them to told as they would be given ("--temp 0.6 --top-k 20"), "" for none.
// ERR_FORMAT names the key whose value does not fit its option; others may be set then.
enum status cli_take_sampling(struct cli_options *o, const struct gguf *g,
                              char told[SAMPLING_CHARS], struct err *e);

#endif

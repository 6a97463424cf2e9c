/* cli_generate.h: an open engine with a generator whose text goes to standard output: what run and
 * chat share.
 *
 * A struct cli_generator owns the engine, the generator and the buffer of standard output, and
 * borrows the cli. Ctrl-C ends prompts and texts. cli_generate_write allocates nothing, which the
 * counters in it show. One thread. Tested by tests/cli/cli_sim.sh.
 */
#ifndef TANDEM_RUNTIME_CLI_CLI_GENERATE_H
#define TANDEM_RUNTIME_CLI_CLI_GENERATE_H

#include "runtime/cli/cli_command.h"
#include "runtime/cli/heap.h"
#include "runtime/generate/generate.h"

// The counters of the heap at one moment, or what they have grown by.
struct heap_mark {
    uint64_t thread_bytes, allocations; // bytes by this thread, calls by the whole process
};

struct cli_generator {
    struct cli *cli; // borrowed
    struct engine *engine;
    struct generator generator;
    char *output;      // the buffer of standard output
    size_t text_bytes; // given out by the last cli_generate_write
    // Since the second token of the last cli_generate_write: no step after the first may allocate.
    int64_t n_calls; // of the sink by it
    struct heap_watch heap;
    struct heap_mark start, grown; // at that token; of all texts together
};

// all_logits: every position of a prompt gives logits, for --logits-out. On failure *g is closed.
enum status cli_generate_open(struct cli_generator *g, struct cli *cli, bool all_logits,
                              struct err *e);
void cli_generate_close(struct cli_generator *g); // accepts a zeroed one; leaves it zeroed

// generate_read without a bar on the screen afterwards.
enum status cli_generate_read(struct cli_generator *g, const struct token_list *tokens,
                              const struct logits_sink *logits, struct err *e);

// generate_write to standard output, or nowhere with silent. What was printed before a failure is
// ended with a newline.
enum status cli_generate_write(struct cli_generator *g, int32_t limit, bool silent,
                               enum stop_reason *reason, struct err *e);

// At the end, unless -q was given: times, predictions and with -v how busy everything was.
void cli_generate_report(const struct cli_generator *g);

#endif

/* cli_generate.h: an open engine with a generator whose text goes to standard output, for run and
 * chat.
 *
 * A struct cli_generator owns the engine, the draft model, the generator and the buffer of standard
 * output, and borrows the cli. Ctrl-C ends prompts and texts. cli_generate_write allocates nothing,
 * as the counters in the struct show. One thread. Tested by tests/cli/cli_sim.sh.
 */
#ifndef TANDEM_RUNTIME_CLI_CLI_GENERATE_H
#define TANDEM_RUNTIME_CLI_CLI_GENERATE_H

#include "runtime/cli/cli_command.h"
#include "runtime/cli/cli_draft.h"
#include "runtime/cli/heap.h"
#include "runtime/generate/generate.h"
#include "runtime/text/chat_reply.h"

// The counters of the heap at one moment, or their growth.
struct heap_mark {
    uint64_t thread_bytes, allocations; // bytes by this thread, calls by the whole process
};

struct cli_generator {
    struct cli *cli;                // borrowed
    const struct chat_style *style; // of replies, borrowed; NULL: texts are no replies
    struct engine *engine;
    struct cli_draft draft; // guesses for the generator, if there is a draft model
    struct generator generator;
    char *output;           // the buffer of standard output
    char *grammar, *schema; // as given, owned; NULL: not given
    // Takes the text in place of standard output; NULL: nobody.
    void (*print)(void *context, const char *text, size_t length);
    void *print_context;
    size_t text_bytes; // handed over by the last cli_generate_write
    int64_t n_calls;   // of the sink by the last cli_generate_write
    // No step after the first may allocate: the growth counts from the second token of each text.
    struct heap_watch heap;
    struct heap_mark start, grown; // at the second token; of all texts together
};

struct cli_texts {
    bool all_logits; // every position of a prompt gives logits, for --logits-out
    // Lent until cli_generate_close: a grammar begins behind the thoughts, and with tools calls are
    // valid. NULL: texts are no replies.
    const struct chat_style *style;
    const char *prompt; // [prompt_bytes]: the only one, that the plan is made for; NULL: not known
    size_t prompt_bytes;
};
// Reads and checks the grammar before it loads the model. On failure *g is closed.
enum status cli_generate_open(struct cli_generator *g, struct cli *cli,
                              const struct cli_texts *texts, struct err *e);
void cli_generate_close(struct cli_generator *g); // accepts a zeroed one; leaves it zeroed

// Takes the sampling options of the cli for the texts to come. Errors as cli_generate_open's.
enum status cli_generate_set_options(struct cli_generator *g, struct err *e);

// Flushes standard output, so that what is printed on standard error comes after its text.
void cli_flush_output(struct cli *cli);

// Calls generate_read and clears the progress bar.
enum status cli_generate_read(struct cli_generator *g, const struct token_list *tokens,
                              const struct logits_sink *logits, struct err *e);

// Calls generate_write with standard output as the sink, or with silent none. After a failure a
// newline ends the text that was printed so far.
enum status cli_generate_write(struct cli_generator *g, int32_t limit, bool silent,
                               enum stop_reason *reason, struct err *e);
// Calls generate_end with standard output as the sink.
void cli_generate_end(struct cli_generator *g);

// Prints times, bytes and predictions, with -v also how busy devices were; nothing with -q.
void cli_generate_report(const struct cli_generator *g);

#endif

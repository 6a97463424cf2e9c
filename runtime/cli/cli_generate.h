/* cli_generate.h: an engine with one session, a sampler and a place for text to go: what run and
 * chat share.
 *
 * A struct generator owns the engine, the session, the sampler and its buffers, and borrows the
 * cli. generator_write allocates nothing, which the counters in it show. One thread. Tested by
 * tests/cli/cli_sim.sh.
 */
#ifndef TANDEM_RUNTIME_CLI_CLI_GENERATE_H
#define TANDEM_RUNTIME_CLI_CLI_GENERATE_H

#include "runtime/cli/cli_command.h"
#include "runtime/cli/heap.h"
#include "runtime/report/report.h"
#include "runtime/generate/sampler.h"
#include "runtime/text/tokenizer.h"

enum stop_reason { STOP_END, STOP_LIMIT, STOP_CONTEXT, STOP_INTERRUPT };
const char *stop_reason_name(enum stop_reason reason); // "eos", "limit", "context", "interrupt"

enum { OUTPUT_BYTES = 1 << 16 };

struct generator {
    struct cli *cli; // borrowed
    struct engine *engine;
    struct session *session;
    const struct tokenizer *tokenizer; // borrowed from the engine
    struct sampler sampler;
    int32_t n_ctx;
    struct batch_item *items; // [n_batch]
    int32_t n_batch;          // tokens of one engine_eval
    int32_t *tokens;          // [n_ctx + 1]: what the last generator_write drew, without the end
    int32_t n_tokens;
    char *piece; // room for one token's text
    size_t piece_bytes;
    char *output;       // [OUTPUT_BYTES], the buffer of standard output
    int32_t prompt_row; // of the logits, after generator_read, that the next token is drawn from
    struct timings timings;
    // What was allocated in decode steps, but the first of each generator_write: by this thread, in
    // bytes, and by the whole process, in calls.
    struct heap_watch heap;
    uint64_t heap_bytes, heap_allocations;
};

// all_logits: every position of a prompt gives logits, for --logits-out. On failure *g is closed.
enum status generator_open(struct generator *g, struct cli *cli, bool all_logits, struct err *e);
void generator_close(struct generator *g); // accepts a zeroed one; leaves it zeroed

// Puts n tokens behind what the session holds; the logits of the last one are then there to draw
// from. With logits, all of them are written to it. ERR_LIMIT if the context is too short,
// ERR_CANCELLED at Ctrl-C. On failure the session is as it was.
enum status generator_read(struct generator *g, const int32_t *ids, int32_t n, FILE *logits,
                           struct err *e);

// Draws at most limit tokens (below 0: no limit) and prints their text unless silent. The last
// drawn token may not be in the session. Called after generator_read.
enum status generator_write(struct generator *g, int32_t limit, bool silent,
                            enum stop_reason *reason, struct err *e);

#endif

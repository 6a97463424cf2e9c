/* engine.h: opens a model, computes timelines of tokens, lends logits.
 *
 * An engine owns the model, its devices, the plan and all memory; a session is one timeline of
 * tokens in the engine's KV cache. Nothing is allocated after engine_open, which refuses a model
 * that does not fit, with numbers. One thread uses an engine at a time. Nothing here prints or
 * exits: errors come back in struct err, lines for people go to the log. Tested by
 * tests/runtime/test_engine.c and the cli_*.sh scripts.
 */
#ifndef TANDEM_RUNTIME_ENGINE_ENGINE_H
#define TANDEM_RUNTIME_ENGINE_ENGINE_H

#include "base/err.h"
#include "kernels/device.h"
#include "planner/planner.h"
#include "runtime/options.h"

#include <stdbool.h>
#include <stdint.h>

struct engine;
struct session;
struct tokenizer;
struct trace;      // trace.h
struct input_sums; // input_sums.h

// Opens the model, plans, allocates and loads. On failure *out is NULL and nothing stays behind.
// ERR_MEMORY means that no plan fits and says what would fit. If an accelerator refuses memory that
// was free when the plan was made, a plan for less is made and the log says so; with strict that is
// ERR_MEMORY.
enum status engine_open(struct engine **out, const struct engine_options *options, struct err *e);
// NULL is allowed; all sessions must be freed before. Never waits for a device that did not answer;
// host memory that it may still touch then stays until the process ends.
void engine_close(struct engine *engine);

// Borrowed until engine_close.
const struct tokenizer *engine_tokenizer(const struct engine *engine);
const struct gguf *engine_gguf(const struct engine *engine);
const struct plan *engine_plan(const struct engine *engine);
const struct shape *engine_shape(const struct engine *engine);
const struct workload *engine_workload(const struct engine *engine); // with the defaults filled in
int32_t engine_n_vocab(const struct engine *engine); // columns of the logits; may exceed the token
                                                     // list (those are -inf)

// Starts a timeline. ERR_LIMIT if workload.n_sessions are in use. session_free gives its cache
// pages back; NULL is allowed.
enum status session_new(struct session **out, struct engine *engine, struct err *e);
void session_free(struct session *session);
int32_t session_length(const struct session *session); // tokens stored
// Forgets every token from position length on (0 empties it): undo, context reuse. length <=
// session_length. A recurrent state, or the ring of a layer with a window, may not reach back that
// far (states.h): then the next engine_eval first computes the tokens again from where they do.
void session_truncate(struct session *session, int32_t length);

// Makes target, an empty session, a copy of source, a session of the same engine: both go on alike,
// and are cut back alike. ERR_USAGE if target is not empty, ERR_DEVICE if a device failed; target
// is then empty.
enum status session_copy(struct session *target, const struct session *source, struct err *e);

// Writes the session to a file that appears, or replaces another, when it is whole: its tokens,
// then pending if that is not negative, and their caches. ERR_FILE, ERR_MEMORY, ERR_DEVICE.
enum status session_save(const struct session *session, int32_t pending, const char *path,
                         struct err *e);
// Replaces the session by that of a file, whatever the placement, context and micro-batch with
// which it was saved. It has no logits before the next engine_eval. ERR_FILE, ERR_FORMAT,
// ERR_UNSUPPORTED, ERR_USAGE (another model, or other types of the cache) and ERR_LIMIT (the
// context is too short) leave the session as it was; after ERR_DEVICE it is empty.
enum status session_load(struct session *session, const char *path, struct err *e);
// The tokens of the session, session_length of them; borrowed until it changes.
const int32_t *session_tokens(const struct session *session);

struct batch_item { // the next token of a timeline
    struct session *session;
    int32_t token;
    bool want_logits;
};

// Runs items through the model, in order, in micro-batches; items of several sessions may be mixed.
// ERR_LIMIT if a session would pass the context or more than workload.max_logits rows are wanted,
// ERR_DEVICE if a device failed or did not answer within wait_limit_s (the engine can then only be
// closed), ERR_CANCELLED from the progress call. On failure every session has the length it had
// before the call.
enum status engine_eval(struct engine *engine, const struct batch_item *items, int32_t n_items,
                        struct err *e);

// The [n_vocab] logits of the i-th item with want_logits of the last engine_eval, in host memory,
// valid until the next engine_eval.
const float *engine_logits(const struct engine *engine, int32_t i);

// Times of the steps so far, NULL without trace_spans. Borrowed until engine_close.
const struct trace *engine_trace(const struct engine *engine);

// Adds up the squares of what matrices multiply from now on. ERR_UNSUPPORTED if an accelerator
// computes too, ERR_MEMORY. Called once.
enum status engine_sum_inputs(struct engine *engine, struct err *e);
// NULL before engine_sum_inputs. Borrowed until engine_close.
const struct input_sums *engine_input_sums(const struct engine *engine);

// True if a device of the engine may round a token's results differently in another batch;
// otherwise every plan gives the same logits, bit for bit.
bool engine_rounds_by_batch(const struct engine *engine);

// Plans that were made because the accelerator refused the memory of the one before.
int32_t engine_n_replans(const struct engine *engine);

// Bytes that are allocated, beside the bytes of the plan.
struct memory_row {
    const char *device; // borrowed until engine_close
    enum purpose purpose;
    uint64_t planned_bytes, allocated_bytes;
};
// Fills rows (devices x purposes, at most capacity) and returns their number.
int32_t engine_memory(const struct engine *engine, struct memory_row *rows, int32_t capacity);
// The most that device i (0 is the CPU) had allocated at one time for this plan; what a larger one
// took before it was refused does not count.
uint64_t engine_peak_bytes(const struct engine *engine, int32_t device);

#endif

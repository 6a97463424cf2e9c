/* states.h: which of a session's slots holds its recurrent state after how many tokens, and the
 * tokens from which a state can be computed again.
 *
 * A state cannot be cut back. So each micro-batch reads one slot and writes another, and older
 * slots stay as places to return to: the state before the running call, and the one at the end of
 * the last call with more than one token. A struct states owns these numbers and a copy of the
 * tokens; the memory of the states belongs to the pipeline. Nothing is allocated after states_open.
 * One thread. Tested by tests/runtime/test_state.c.
 */
#ifndef TANDEM_RUNTIME_ENGINE_STATES_H
#define TANDEM_RUNTIME_ENGINE_STATES_H

#include "planner/planner.h"

struct session_states {
    int32_t at[STATE_SLOTS]; // tokens that the slot's state has seen; -1: there is none
    int32_t now;             // the slot with the latest state; -1: no token was seen yet
    int32_t kept;            // a slot that is not overwritten; -1: none
    int32_t target;          // the slot that the running micro-batch writes; -1: none
    int32_t reached;         // tokens that it will have seen
};

struct states {
    int32_t n_sessions, n_ctx;  // n_sessions 0: the model has no states
    struct session_states *all; // owned, [n_sessions]
    int32_t *tokens;            // owned, [n_sessions, n_ctx]
};

// For a model without states nothing is allocated, and the other calls do nothing.
enum status states_open(struct states *s, const struct shape *shape, const struct workload *w,
                        struct err *e);
void states_close(struct states *s); // accepts a zeroed or half-open one

// The tokens that the latest state of a session of length tokens has seen; the later ones have to
// be computed again before the session can go on. length for a model without states.
int32_t states_length(const struct states *s, int32_t session, int32_t length);
// A token of the session, for computing it again.
int32_t states_token(const struct states *s, int32_t session, int32_t position);

// Keeps the latest state, until this is called again, as one to return to.
void states_keep(struct states *s, int32_t session);
// Notes the token at a position, and sets the slots that ops read (-1: zeros) and write for it. The
// first token of a session in a micro-batch opens a slot.
void states_step(struct states *s, int32_t session, int32_t position, int32_t token,
                 int32_t step[2]);
// Ends a micro-batch: the slots that it wrote hold the latest states, or are lost if it failed.
void states_end(struct states *s, bool succeeded);
// Forgets states that have seen more than length tokens.
void states_truncate(struct states *s, int32_t session, int32_t length);

// Floats of all slots of one unit for the inputs of its convolution; the matrices lie behind them.
int64_t states_conv_floats(const struct workload *w, const struct delta_shape *delta);

#endif

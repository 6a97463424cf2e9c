/* states.h: how far back the caches of a session reach, and the tokens from which they can be
 * computed again.
 *
 * A recurrent state cannot be cut back. So each micro-batch reads one slot and writes another, and
 * older slots stay as places to return to: the state before the running call, and the one at the
 * end of the last call with more than one token. The ring of a layer with a window lacks the
 * positions that newer ones have overwritten: from its start on it can only be filled again. A
 * struct states owns these numbers and a copy of the tokens; the memory of states and rings belongs
 * to the pipeline. Nothing is allocated after states_open. One thread. Tested by
 * tests/runtime/test_state.c.
 */
#ifndef TANDEM_RUNTIME_ENGINE_STATES_H
#define TANDEM_RUNTIME_ENGINE_STATES_H

#include "planner/planner.h"

struct session_states {
    int32_t at[STATE_SLOTS]; // tokens that the slot's state has seen; -1: there is none
    int32_t now;             // the slot with the latest state; -1: no token was seen yet
    int32_t kept;            // a slot that is not overwritten; -1: none
    int32_t target;          // the slot that the running micro-batch writes; -1: none
    int32_t reached;         // tokens that all caches will have seen after it
    bool runs;               // the running micro-batch has tokens of the session
    int32_t done;            // tokens that all caches have seen
    int32_t low;             // the first position that no newer one has overwritten in the ring
};

struct states {
    int32_t n_sessions, n_ctx;
    bool recurrent;              // the model has recurrent states; else at, now, kept and target
                                 // are not used
    int32_t window, n_ring_rows; // positions in the longest window, 0: none; and in the ring,
                                 // INT32_MAX: the whole context
    struct session_states *all;  // owned, [n_sessions]
    int32_t *tokens;             // owned, [n_sessions, n_ctx]
};

enum status states_open(struct states *s, const struct shape *shape, const struct workload *w,
                        struct err *e);
void states_close(struct states *s); // accepts a zeroed or half-open one

// The tokens of a session of length tokens from which its caches can go on; the later ones have to
// be computed again before.
int32_t states_length(const struct states *s, int32_t session, int32_t length);
// A token of the session, for computing it again.
int32_t states_token(const struct states *s, int32_t session, int32_t position);

// Keeps the latest recurrent state, until this is called again, as one to return to.
void states_keep(struct states *s, int32_t session);
// Notes the token at a position, and in a model with recurrent states sets the slots that ops read
// (-1: zeros) and write for it. The first token of a session in a micro-batch opens a slot.
void states_step(struct states *s, int32_t session, int32_t position, int32_t token,
                 int32_t step[2]);
// Ends a micro-batch: what it wrote holds the latest states, or is lost if it failed.
void states_end(struct states *s, bool succeeded);
// Forgets what has seen more than length tokens.
void states_truncate(struct states *s, int32_t session, int32_t length);

// Makes target, an empty session, what source is, as far as these numbers and tokens say it.
void states_copy(struct states *s, int32_t target, int32_t source);

// Makes an empty session what numbers say: at, done and low; the others are set by these.
// tokens[n_tokens] are copied.
void states_restore(struct states *s, int32_t session, const struct session_states *numbers,
                    const int32_t *tokens, int32_t n_tokens);

// Floats of all slots of one unit for the inputs of its convolution; the matrices lie behind them.
int64_t states_conv_floats(const struct workload *w, const struct recurrent_shape *recurrent);

#endif

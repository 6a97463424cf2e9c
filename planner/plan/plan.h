/* plan.h: the plan: where every unit lives, the bytes of every buffer, the steps of a pass.
 *
 * A struct plan is a plain value without pointers, filled by planner_solve. Nothing is owned. Must
 * not decide anything. Any thread. Included through planner/planner.h. Tested by
 * tests/planner/test_planner.c and tests/planner/test_schedule.c.
 */
#ifndef TANDEM_PLANNER_PLAN_PLAN_H
#define TANDEM_PLANNER_PLAN_PLAN_H

#include "planner/blocks/block.h"
#include "planner/machine/machine.h"
#include "planner/plan/placement.h"
#include "planner/plan/request.h"
#include "planner/shape/shape.h"

#include <stdbool.h>
#include <stdint.h>

enum { MAX_STEPS = 12 * MAX_UNITS + 16 }; // a layer of three split units has 35

enum step_kind {
    STEP_INPUTS, // device gets the batch's tables (positions, sequences, cache rows, pages, rows,
                 // tokens)
    STEP_FETCH,  // the CPU's weights of unit, and for attention that is streamed whole the rows of
                // its cache that the batch sees, go to a slot of device, as soon as the slot's last
                // user is done
    STEP_COMPUTE, // device computes unit, or its part of a split unit
    STEP_SEND,    // columns of data go from device to peer
    STEP_WAIT,    // device waits until the last send of peer has arrived
    STEP_STORE,   // the rows that streamed attention has added to its cache go from the slot of
                  // device to the host's cache; only then is the slot free
    STEP_LOGITS,  // logits come from device to the host
};
const char *step_kind_name(enum step_kind kind); // "inputs", "fetch", ...
// The data of a send.
enum step_data {
    DATA_RESIDUAL, // the residual stream, [n_tokens, n_embd]
    DATA_HIDDEN,   // the output of swiglu in a split FFN, [n_tokens, n_ff]
    DATA_QUERIES,  // of split attention, before rope, [n_tokens, n_heads * head_dim]
    DATA_ATTENDED, // the output of split attention before its last matmul, same shape
    DATA_BRANCH,   // the output of a split unit that is not added as it is, [n_tokens, n_embd]
    DATA_SHARED, // the residual stream, then the norm that the last unit has read and the next one
                 // reads too, as routed experts behind a shared one do, or what the last unit has
                 // left for the next one to add, [2, n_tokens, n_embd]
    DATA_LAYER_INPUTS, // what the embedding makes for each layer, [n_tokens, n_layers,
                       // n_layer_input]; sent once, behind the embedding
    DATA_ROUTED,  // the input of split experts, [n_tokens, n_embd], and the sorted pairs of tokens
                  // and experts
    DATA_EXPERTS, // the rows of the CPU's experts, and room for the others, [pairs, n_embd]
    STEP_DATA
};
const char *step_data_name(enum step_data data); // "residual", "hidden", ...
// The routed experts of a pass are known only after their router has run, so no step names one, and
// one list of steps holds for every choice, with the cost of the expected number of different
// experts (op_cost_distinct_experts) on each device; a fetch brings all of them. The executor knows
// where each expert's weights are and gives matmul_experts a slot table (kernels/ops.h), in which
// all are in place now. A cache of experts would be another table, with fetches whose bytes_fixed
// are the expected bytes.
struct step {
    enum step_kind kind;
    int8_t device, peer;       // peer: of send and wait
    int8_t slot;               // of fetch and store, and of a compute that reads weights there;
                               // else -1
    enum step_phase phase;     // of compute
    enum step_data data;       // of send and wait
    int32_t first_col, n_cols; // of send: of data, in elements
    bool tail;                 // of unit_is_tail: for the tokens alone whose logits are wanted
    int16_t unit;              // of compute, fetch and store; else -1, or of send and wait within
                               // a split unit: that unit
    uint64_t bytes_per_row;    // copied for each token (send, store) or each row of logits (logits,
                               // and of the tail); else 0
    uint64_t bytes_fixed;      // copied once per micro-batch: inputs, fetch, sorted pairs; else 0
    uint64_t bytes_per_past;   // of fetch: copied for each past position in the KV cache; else 0
    int32_t most_past;         // of fetch: past positions that it copies at most; a window has few
};

// Bytes of its cache that a fetch copies for a micro-batch after n_past positions; 0 for others.
uint64_t step_past_bytes(const struct step *step, int32_t n_past);

// The link of a step that copies: an input, a fetch, a send, a store, or logits.
struct link step_link(const struct machine *m, const struct step *step);

enum batch_class { BATCH_ONE, BATCH_SMALL, BATCH_PREFILL, BATCH_CLASSES }; // 1 token, 2-32, more
enum batch_class batch_class_of(int32_t n_tokens);

enum plan_purpose {
    PLAN_WEIGHTS,
    PLAN_KV,
    PLAN_SCRATCH,
    PLAN_STAGING,
    PLAN_PURPOSES
}; // as enum purpose of device.h

// The field of a plan file that holds its bytes: "weights_bytes", ...
const char *plan_purpose_name(enum plan_purpose purpose);

// The tables of a batch that ops read, as one block: built on the host in staging memory, copied
// whole to other devices.
struct tables_layout {
    uint64_t tokens, positions, sequences, cache_rows; // int32 [n_ubatch] each
    uint64_t rows;                                     // int32 [max_logits]
    uint64_t pages;                                    // int32 [n_sessions, pages per session]
    uint64_t ring_rows, ring_pages; // as cache_rows and pages, for layers with a window
    uint64_t steps;                 // int32 [n_ubatch, 2], of models with delta nets
    uint64_t size_bytes;
};

// Where the areas of a device's scratch buffer start, and their bytes: 0 if no unit on the device
// needs them.
struct scratch_layout {
    uint64_t at[AREAS], size[AREAS];
    uint64_t size_bytes;
};

struct plan_device {
    uint64_t bytes[PLAN_PURPOSES];
    struct scratch_layout scratch;
};

// Weights that passes read on the CPU: all of them, and those of one token, which goes to few of a
// layer's experts.
struct host_reads {
    uint64_t all_bytes, token_bytes;
};

struct plan {
    struct machine machine;
    struct workload workload;
    int32_t n_units;
    struct placement place;
    uint64_t slot_bytes;   // of one of the ring's RING_SLOTS; 0: nothing is streamed
    int32_t n_blocks;      // with FEED_STAGED: pinned blocks in the host's memory
    uint64_t block_bytes;  // of one block
    uint64_t pinned_bytes; // bytes of the host's memory that copies and the feed pin
    // The next micro-batch of a prompt may start before this one is done: in prefill the residual
    // stream goes to the accelerator at most once, and never back.
    bool runs_ahead;
    uint64_t unit_weight_bytes[MAX_UNITS]; // buffer of the unit's weights on its device, 0 if
                                           // shared with another unit
    uint64_t unit_cpu_bytes[MAX_UNITS];    // buffer of a split unit's weights on the CPU, else 0
    uint64_t unit_kv_bytes[MAX_UNITS];     // buffer of the unit's KV cache; 0 but for attention
    uint64_t unit_read_bytes[MAX_UNITS];   // weights that one pass reads
    struct host_reads host_reads;          // of these, on the CPU
    uint64_t unit_cold_bytes[MAX_UNITS];   // the CPU's weights that do not stay in RAM (paging.h)
    struct plan_device devices[MAX_DEVICES];
    struct tables_layout tables;
    int32_t n_steps[BATCH_CLASSES];
    struct step steps[BATCH_CLASSES][MAX_STEPS];
};

// One pass: n_tokens in one micro-batch, n_logits rows for the head, n_past positions already in
// the KV cache. Tokens that all make logits are of as many sequences, others of one.
struct pass {
    int32_t n_tokens, n_logits, n_past;
};
static inline int32_t pass_sequences(const struct pass *pass) {
    return pass->n_logits == pass->n_tokens ? pass->n_tokens : 1;
}
// Makes the pass as a unit sees it: those of the tail have as many tokens as logits, maybe
// none. They run from the first such token on, which is as many if the last ones are wanted.
struct pass pass_of_unit(const struct pass *pass, const struct shape *shape,
                         const struct unit *unit);
// As many tokens with independent choices of experts as those of the pass count for.
double pass_expert_tokens(const struct pass *pass, const struct workload *w);

// The device that computes the unit (the first phase of a split one: both) in that class.
int8_t placement_device(const struct placement *place, enum batch_class batch, int32_t unit);

// True if all of the unit is on the accelerator.
bool plan_unit_is_whole(const struct plan *plan, int32_t unit);

// Returns an example of a pass of that class: one token after the prompt, some tokens, or a whole
// micro-batch.
struct pass plan_pass(const struct plan *plan, enum batch_class batch);
int32_t plan_layers_on_gpu(
    const struct plan *plan,
    const struct shape *shape); // whole layers on the accelerator, the head as one more

#endif

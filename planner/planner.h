/* planner.h: everything the runtime knows of the planner: machine, shape, workload, constraints in;
 * a plan out.
 *
 * The plan is the schedule: (a) where every unit lives, (b) the bytes of every buffer on every
 * device, (c) the flat list of steps that one forward pass runs, per batch class. It is read by
 * simulate.c (adds it up), by the runtime's pipeline.c (runs it) and by plan.c (prints it); nobody
 * holds a second copy. All structs are plain values without pointers, filled by the caller or by
 * planner_solve; nothing is owned. Any thread. Tested by tests/planner/test_planner.c.
 */
#ifndef TANDEM_PLANNER_PLANNER_H
#define TANDEM_PLANNER_PLANNER_H

#include "base/err.h"
#include "kernels/dtypes.h"
#include "kernels/op_cost.h"
#include "planner/machine/machine.h"
#include "planner/shape/shape.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum {
    MAX_STEPS = 10 * MAX_UNITS + 16, // a layer of two split units has 25
    UNIT_PARTS = 32,                 // what a split unit's rows are counted in
    MIN_SLOTS = 2,                   // of the ring that streamed weights pass through
    MAX_SLOTS = 4,
};

// What is asked of the model. 0 means the default in brackets, filled in by workload_defaults.
struct workload {
    int32_t n_ctx;                   // positions of one session [the model's, at most 4096]
    int32_t n_ubatch;                // tokens of one micro-batch [the planner's choice]
    int32_t n_sessions;              // timelines at once [1]
    int32_t max_logits;              // rows of logits one call may ask for [1]
    enum dtype kv_type_k, kv_type_v; // DTYPE_F32, DTYPE_F16 or DTYPE_Q8_0
    int32_t n_prompt, n_gen;         // what the time is predicted for [512, 128; at most n_ctx]
};
// n_ubatch stays 0 if it is. ERR_USAGE if a value is out of range, naming its option, or if a head
// is no whole number of blocks of a kv type.
enum status workload_defaults(struct workload *w, const struct shape *shape, struct err *e);

enum { GPU_LAYERS_AUTO = -1, GPU_LAYERS_ALL = INT32_MAX, DEVICE_ANY = -1 };

// Families of plans that a user or a benchmark may ask for. All but AUTO keep to one idea, and are
// the fastest of it that fits.
enum strategy {
    STRATEGY_AUTO,            // the fastest of all
    STRATEGY_CPU,             // everything on the CPU
    STRATEGY_LAYERS,          // the last layers whole on the accelerator, the rest on the CPU
    STRATEGY_ATTENTION_FIRST, // attention on the accelerator, then what else fits of the last
                              // layers
    STRATEGY_STREAMED,        // in prefill, what can be streamed of what the CPU has is
    STRATEGY_ROW_SPLIT,       // every dense FFN that is not whole on the accelerator is split, and
                              // attention where it pays
    STRATEGIES
};
const char *
strategy_name(enum strategy strategy); // "auto", "cpu", "layers", "attention-first", ...
bool strategy_parse(const char *name, enum strategy *out);

// How streamed weights leave the host's memory.
enum feed {
    FEED_NONE,     // of a plan: nothing is streamed; of constraints: the planner's choice
    FEED_ARENA,    // they live in pinned memory, from which copies read straight
    FEED_STAGED,   // copied block by block from the mapped file into a few pinned blocks
    FEED_PAGEABLE, // copied straight from the mapped file, by the driver's own staging
    FEEDS
};
const char *feed_name(enum feed feed); // "none", "arena", "staged", "pageable"
bool feed_parse(const char *name, enum feed *out);

struct constraints {
    int32_t gpu_layers;  // N layers, counted from the last, the head as one more; GPU_LAYERS_AUTO:
                         // the fastest placement that fits
    uint64_t vram_bytes; // upper limit for the accelerator, 0: its budget
    uint64_t ram_bytes;  // limit for the CPU, 0: its budget
    bool cpu_experts;    // --cpu-moe: routed experts stay on the CPU
    bool kv_auto;        // the planner may choose Q8_0 for the cache
    bool has_units;      // unit_device is set
    int8_t unit_device[MAX_UNITS]; // a device that the unit must be on: overrides all above; or
                                   // DEVICE_ANY: as if there were no constraint on it
    bool has_ways; // with has_units and a device for every unit: these are given too, and nothing
                   // but the micro-batch is chosen
    uint8_t unit_cpu_parts[MAX_UNITS];
    bool unit_streamed[MAX_UNITS];
    enum strategy strategy;
    enum feed feed;  // FEED_NONE: the planner's choice; FEED_ARENA if the ways are given
    int32_t n_slots; // MIN_SLOTS..MAX_SLOTS, 0: MIN_SLOTS
};

enum step_kind {
    STEP_INPUTS,  // device gets the batch's tables (positions, sequences, slots, pages, rows,
                  // tokens)
    STEP_FETCH,   // weights of unit that the CPU has, and of attention that is streamed whole what
                  // the batch sees of its cache, go to a slot of device, as soon as what was
                  // computed with the slot before is done
    STEP_COMPUTE, // device computes unit, or its part of a split unit
    STEP_SEND,    // columns of data go from device to peer
    STEP_WAIT,    // device waits until what peer sent last has arrived
    STEP_STORE,   // what streamed attention has added to its cache goes from the slot of device to
                  // the host's cache; only then is the slot free
    STEP_LOGITS,  // logits come from device to the host
};
const char *step_kind_name(enum step_kind kind); // "inputs", "fetch", ...
// What a send carries.
enum step_data {
    DATA_RESIDUAL, // the residual stream, [n_tokens, n_embd]
    DATA_HIDDEN,   // what swiglu made of a split FFN, [n_tokens, n_ff]
    DATA_QUERIES,  // of split attention, before rope, [n_tokens, n_heads * head_dim]
    DATA_ATTENDED, // what split attention has attended to, likewise
    STEP_DATA
};
const char *step_data_name(enum step_data data); // "residual", "hidden", ...
// What of a unit a compute step computes. A split FFN has two phases, with a join after each: IN is
// norm, gate, up and swiglu for the device's rows of gate and up; OUT is the device's rows of down,
// added to its residual stream. Split attention has three: IN is norm and the device's rows of the
// queries, on the accelerator also keys and values; when the CPU's queries have come, MID is rope,
// cache and attention itself, on the accelerator alone; when what was attended to has gone to the
// CPU, OUT is the device's rows of the output, added to its residual stream.
//
// Which routed experts a pass needs is known when their router has run, so no step names one: a
// list holds for every choice. An experts unit is PHASE_ALL on one device, and costs what its
// expected number of different experts does (op_cost_distinct_experts). Where each expert's weights
// are is the executor's, which gives matmul_experts a slot table (kernels/ops.h): all in place now.
// A cache of experts would be another table, and fetches whose bytes_fixed are the expected ones.
enum step_phase { PHASE_ALL, PHASE_IN, PHASE_MID, PHASE_OUT };
struct step {
    enum step_kind kind;
    int8_t device, peer;       // peer: of send and wait
    int8_t slot;               // of fetch and store, and of a compute that reads weights there;
                               // else -1
    enum step_phase phase;     // of compute
    enum step_data data;       // of send and wait
    int32_t first_col, n_cols; // of send: of data, in elements
    int16_t unit;              // of compute, fetch and store; else -1, or of send and wait within
                               // a split unit: that unit
    uint64_t bytes_per_row;  // copied for each token (send, store) or each row of logits (logits);
                             // else 0
    uint64_t bytes_fixed;    // copied once per micro-batch: inputs and fetch; else 0
    uint64_t bytes_per_past; // of fetch: copied for each position cached before; else 0
};

enum batch_class { BATCH_ONE, BATCH_SMALL, BATCH_PREFILL, BATCH_CLASSES }; // 1 token, 2-32, more
enum batch_class batch_class_of(int32_t n_tokens);

enum plan_purpose {
    PLAN_WEIGHTS,
    PLAN_KV,
    PLAN_SCRATCH,
    PLAN_STAGING,
    PLAN_PURPOSES
}; // as enum purpose of device.h

// The batch as the ops read it, one block: built on the host in staging memory, copied whole to
// other devices.
struct tables_layout {
    uint64_t tokens, positions, sequences, slots; // int32 [n_ubatch] each
    uint64_t rows;                                // int32 [max_logits]
    uint64_t pages;                               // int32 [n_sessions, pages per session]
    uint64_t size_bytes;
};

// Where the parts of a device's scratch buffer start. Parts that no unit on the device needs are
// empty. Attention, FFN and head never live at the same time, so their parts lie over each other.
struct scratch_layout {
    uint64_t tables;           // copy of the tables; on the host they are read in staging
    uint64_t residual, normed; // F32 [n_ubatch, n_embd]
    uint64_t freqs, angles;    // F32 [n_rot/2], [n_ubatch, n_rot/2, 2]
    uint64_t q, attended;      // F32 [n_ubatch, n_heads * head_dim]
    uint64_t k, v;             // F32 [n_ubatch, n_kv_heads * head_dim]
    uint64_t gate, up;         // F32 [n_ubatch, n_ff], or [n_ubatch * n_experts_used, n_ff_expert]
    uint64_t expert_out;       // F32 [n_ubatch * n_experts_used, n_embd]
    uint64_t routing;          // logits F32 [n_ubatch, n_experts], chosen, weights, order
                               // [n_ubatch * n_experts_used], starts [n_experts + 1]
    uint64_t gathered;         // F32 [max_logits, n_embd]
    uint64_t matmul;           // quantised activations
    uint64_t logits;           // F32 [max_logits, n_vocab]; the host always has it
    uint64_t size_bytes;
};

struct plan_device {
    uint64_t bytes[PLAN_PURPOSES];
    struct scratch_layout scratch;
};

struct plan {
    struct machine machine;
    struct workload workload;
    int32_t n_units;
    // Where a unit's weights and cache are, and where it is computed but for the two cases below.
    int8_t unit_device[MAX_UNITS];
    // Split units, dense FFNs and attention on the accelerator: parts out of UNIT_PARTS of the rows
    // of each matrix that is cut (unit_is_cut) that the CPU has instead, the last ones
    // (footprint_split_row). The cache of split attention is on the accelerator. 0: not split.
    uint8_t unit_cpu_parts[MAX_UNITS];
    // In prefill, the accelerator computes what the CPU has of this unit (a dense FFN or attention
    // on the CPU, or the CPU's rows of a split one), with weights that a fetch has brought into a
    // slot. Of attention on the CPU the fetch brings the cache too, and a store takes back what is
    // new in it.
    bool unit_streamed[MAX_UNITS];
    enum feed feed;
    int32_t n_slots;      // of the ring in the accelerator's memory, 0: nothing is streamed
    uint64_t slot_bytes;  // of one slot
    int32_t n_blocks;     // with FEED_STAGED: pinned blocks in the host's memory
    uint64_t block_bytes; // of one block
    // The next micro-batch of a prompt may start before this one is done: in prefill the residual
    // stream goes to the accelerator at most once, and never back.
    bool runs_ahead;
    uint64_t unit_weight_bytes[MAX_UNITS]; // buffer of the unit's weights on its device, 0 if
                                           // shared with another unit
    uint64_t unit_cpu_bytes[MAX_UNITS];    // buffer of a split unit's weights on the CPU, else 0
    uint64_t unit_kv_bytes[MAX_UNITS];     // buffer of the unit's KV cache; 0 but for attention
    uint64_t unit_read_bytes[MAX_UNITS];   // weights that one pass reads
    struct plan_device devices[MAX_DEVICES];
    struct tables_layout tables;
    int32_t n_steps[BATCH_CLASSES];
    struct step steps[BATCH_CLASSES][MAX_STEPS];
};

// Fills *plan: the placement and micro-batch with the least predicted time for the workload's
// prompt and generation that fit every limit (AUTO), or the asked ones. Deterministic. ERR_MEMORY
// if the asked or every placement passes a limit: names device, purpose, needed and available bytes
// and what would fit. ERR_USAGE if layers are asked for a GPU and there is none. With RATES_NONE
// the accelerator is filled by bytes from the end of the model. struct plan is big: put it on the
// heap.
enum status planner_solve(struct plan *plan, const struct shape *shape,
                          const struct machine *machine, const struct workload *workload,
                          const struct constraints *constraints, struct err *e);

// Everything of a plan but where the units are: bytes and steps for plan->machine, workload,
// unit_device, unit_cpu_parts, unit_streamed, feed and n_slots, as planner_solve leaves them. Feed
// and n_slots must be given if anything is streamed, and become none if nothing is. For replaying
// and demoting. ERR_MEMORY as above.
enum status planner_complete(struct plan *plan, const struct shape *shape, struct err *e);

// Gives up one thing on the accelerator, the one whose loss costs least time for the bytes it
// frees, and completes the plan again: a unit, which goes whole to the CPU, or the ring, and then
// nothing is streamed any more. false if nothing is left there or the CPU's budget is full. *unit
// gets the unit's index, or DEMOTED_RING.
enum { DEMOTED_RING = -1 };
bool planner_demote(struct plan *plan, const struct shape *shape, int32_t *unit);

// Devices that work in the plan: 1, the CPU alone, where the accelerator has not a byte.
int32_t plan_n_lanes(const struct plan *plan);

// Turns an "-ot" text, "regex=DEVICE[,regex=DEVICE]", into unit_device. Patterns are POSIX extended
// ones (and \d and (?:...) of others) that match anywhere in a tensor's name; the first that
// matches decides. DEVICE is CPU or GPU, or one of device_names.def. A unit goes where its big
// matrices go: those of the experts in an experts unit, else all of them; vectors and routers
// follow, so "ffn_.*_exps=CPU" moves whole experts units. A tied head goes by the name
// output.weight. What no pattern matches keeps what it had, which is DEVICE_ANY at first. ERR_USAGE
// if a pattern is wrong, decides nothing, or takes a unit apart (names the tensors and a pattern
// that does not).
enum status constraints_add_patterns(struct constraints *c, const struct shape *shape,
                                     const char *patterns, struct err *e);

// Footprint: exact bytes, used by the solver and by the runtime when it allocates.
uint64_t footprint_unit_weights(const struct unit *unit, const struct machine_device *device,
                                bool embed_is_here);
// The cache of an attention unit, with its state if it is a recurrent block; 0 for other kinds. Of
// a model that can only be planned, a unit with a window keeps that many positions and a
// micro-batch; else every unit has room for all, as the runtime's cache has.
uint64_t footprint_unit_kv(const struct shape *shape, const struct unit *unit,
                           const struct workload *w, const struct machine_device *device);
// Rows 0..result-1 of a matrix with n_rows rows are on the accelerator, the rest on the CPU: a
// multiple of 32, at least 32 and at most n_rows - 32 if 0 < cpu_parts < UNIT_PARTS; n_rows if
// cpu_parts is 0.
int32_t footprint_split_row(int32_t n_rows, int32_t cpu_parts);
// A unit that can be split: a dense FFN with matrices up and down that all have at least 64 rows,
// or attention with a cache that has a matrix of queries and one of outputs, likewise, and equally
// large heads of keys and values.
bool unit_can_split(const struct unit *unit);
// Whether a tensor of such a unit is cut when it is split: every matrix of an FFN; of attention
// those of queries and outputs, while the others are on the accelerator alone.
bool unit_is_cut(const struct unit *unit, const struct unit_tensor *tensor);
// A unit that can be streamed: a dense FFN, or attention with a cache, no state and no window.
bool unit_can_stream(const struct unit *unit);
// Weights on the two devices of a split unit. Some matrices are cut, vectors are on both. On the
// accelerator every tensor starts at a multiple of align_bytes; on the CPU they are not padded.
uint64_t footprint_split_weights(const struct unit *unit, const struct machine_device *device,
                                 int32_t cpu_parts);
// What a slot must hold for this unit: what the CPU has of it, each tensor at a multiple of
// align_bytes of the accelerator; vectors only if the unit is not split. Then the whole cache of
// attention on the CPU, as on the accelerator.
uint64_t footprint_slot(const struct shape *shape, const struct unit *unit,
                        const struct workload *w, const struct machine_device *accelerator,
                        int32_t cpu_parts);
// The weights among it without padding: what a fetch copies besides the cache.
uint64_t footprint_fetch(const struct unit *unit, int32_t cpu_parts);
// Keys and values of one position in the cache of an attention unit; 0 for other kinds.
uint64_t footprint_kv_row(const struct unit *unit, const struct workload *w);
// The pinned blocks between the mapped file and a ring whose largest fetch is fetch_bytes: 4 of at
// most 8 MiB with FEED_STAGED, else none.
void footprint_blocks(enum feed feed, uint64_t fetch_bytes, int32_t *n_blocks,
                      uint64_t *block_bytes);
// The device that computes the unit (the first phase of a split one: both) in that class.
int8_t plan_compute_device(const struct plan *plan, enum batch_class batch, int32_t unit);
// What the feed of streamed weights and the copies of the pass want pinned: staging, the host's
// scratch, with FEED_ARENA what the CPU has of streamed units, and unless the feed is FEED_PAGEABLE
// the CPU's caches of streamed attention.
uint64_t plan_pinned_bytes(const struct plan *plan);
// has[kind]: the device computes at least one unit of that kind.
void footprint_scratch(const struct shape *shape, const struct workload *w,
                       const struct machine_device *device, const bool has[UNIT_KINDS],
                       struct scratch_layout *out);
void footprint_tables(const struct workload *w, struct tables_layout *out);
int32_t workload_pages(const struct workload *w); // pages in the KV pool, all sessions
int32_t workload_pages_per_session(const struct workload *w);

// One pass, in numbers: n_tokens in one micro-batch, n_logits rows for the head, n_past positions
// cached before.
struct pass {
    int32_t n_tokens, n_logits, n_past;
};

// What a walk over the steps adds up to. Times are 0 with RATES_NONE.
struct simulation {
    uint64_t peak_bytes[MAX_DEVICES];   // by device
    uint64_t weight_bytes[MAX_DEVICES]; // weights read by one pass
    uint64_t copied_bytes;              // between devices
    int32_t n_copies, n_steps;
    double total_us;  // from the first step to the last
    double period_us; // between passes like this one in a row: total_us unless plan->runs_ahead
    double compute_us[MAX_DEVICES]; // of which the device computes
    double copy_us;                 // of which copies run
    double hidden_copy_us;          // of copy_us, while a device computed
};
void plan_simulate(const struct plan *plan, const struct shape *shape, const struct pass *pass,
                   struct simulation *out);
// Start and end of every step of that pass, [n_steps of its class], in us from its start.
struct step_times {
    double first_us, last_us;
};
void plan_step_times(const struct plan *plan, const struct shape *shape, const struct pass *pass,
                     struct step_times *out);

// Time of one unit on a device for a pass (cost.c): the sum of its ops by the device's rates.
// cached: the weights of a whole pass stay in the device's cache, and its keys and values if they
// fit there too.
double cost_unit_us(const struct shape *shape, const struct unit *unit,
                    const struct machine_device *device, const struct workload *w,
                    const struct pass *pass, bool cached);

// What binds: the part of the machine that most of the time goes to.
enum bound {
    BOUND_CPU_MEMORY,
    BOUND_CPU_COMPUTE,
    BOUND_GPU_MEMORY,
    BOUND_GPU_COMPUTE,
    BOUND_LINK,
    BOUND_OVERHEAD,
    BOUNDS
};
const char *bound_name(enum bound bound); // "reading the CPU's memory", ...

struct prediction {
    double prompt_us; // until the first token of n_prompt tokens is there
    double decode_us; // one token, mean over n_gen tokens after the prompt
    double total_us;  // prompt_us + (n_gen - 1) * decode_us: what the solver makes small
    double prompt_share[MAX_DEVICES], decode_share[MAX_DEVICES]; // of that time by device
    double prompt_copy_share, decode_copy_share;
    enum bound prompt_bound, decode_bound;
};
void plan_predict(const struct plan *plan, const struct shape *shape, struct prediction *out);

// What would help, each a whole new plan: false where there is no such thing (no accelerator, no
// smaller type, context at its least). out[i].decode_us 0 if it would not fit.
enum advice { ADVICE_VRAM, ADVICE_SMALLER_QUANT, ADVICE_SHORTER_CONTEXT, ADVICE_KV_Q8_0, ADVICES };
struct advice_result {
    bool exists;
    char text[96]; // "1 GiB more of VRAM"
    struct prediction prediction;
    int32_t units_on_gpu;
};
enum status planner_advise(const struct plan *plan, const struct shape *shape,
                           const struct constraints *constraints, struct advice_result out[ADVICES],
                           struct err *e);

// Plans as files (JSON): where each unit is, by name ("embed", "blk.7.attention", "blk.7.ffn",
// "blk.7.experts", "head"), which are split or streamed and how, the workload, and the bytes and
// times that the plan had.
struct plan_file {
    struct workload workload;
    struct constraints constraints; // every unit; no limits
    char kinds[MAX_DEVICES][16];    // of its devices; empty: there was none
    uint64_t bytes[MAX_DEVICES][PLAN_PURPOSES];
};
void plan_unit_name(const struct unit *unit, char *out, size_t size_bytes);
enum status plan_save(const struct plan *plan, const struct shape *shape, FILE *out, struct err *e);
// ERR_FORMAT, naming the field, for what is no plan; ERR_USAGE for the plan of another model.
enum status plan_parse(struct plan_file *out, const struct shape *shape, const char *text,
                       size_t length, struct err *e);
enum status plan_load(struct plan_file *out, const struct shape *shape, const char *path,
                      struct err *e);
// planner_solve for a plan file on this machine, under the memory limits of limits: the same
// placement and bytes, or ERR_USAGE (a device is missing, a purpose needs other bytes now) or
// ERR_MEMORY.
enum status plan_replay(struct plan *plan, const struct shape *shape, const struct machine *machine,
                        const struct plan_file *file, const struct constraints *limits,
                        struct err *e);

// For people: bytes per device and purpose, one character per layer for where it is, what is
// predicted and what binds, and what there is to know about the machine and the rates.
void plan_print(const struct plan *plan, const struct shape *shape, FILE *out);
// What would help, from planner_advise: a line for each, with its factor.
void plan_print_advice(const struct plan *plan, const struct shape *shape,
                       const struct advice_result advice[ADVICES], FILE *out);
// An example of a pass of that class: one token after the prompt, some, or a whole micro-batch.
struct pass plan_pass(const struct plan *plan, enum batch_class batch);
int32_t plan_layers_on_gpu(
    const struct plan *plan,
    const struct shape *shape); // whole layers on the accelerator, the head as one more
// With the predicted time of each where there are rates, for the pass of plan_pass.
void plan_print_steps(const struct plan *plan, const struct shape *shape, enum batch_class batch,
                      FILE *out);

#endif

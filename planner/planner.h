/* planner.h: everything the runtime knows of the planner: machine, shape, workload, constraints in;
 * a plan out.
 *
 * The plan is the schedule: (a) where every unit lives, (b) the bytes of every buffer on every
 * device, (c) the flat list of steps that one forward pass runs, per batch class. It is read by
 * simulate.c (adds it up), by the runtime's pipeline.c (runs it) and by plan.c (prints it); nobody
 * holds a second copy. All structs are plain values without pointers, filled by the caller or by
 * planner_solve; nothing is owned. Any thread. Tested by tests/test_planner.c.
 */
#ifndef TANDEM_PLANNER_PLANNER_H
#define TANDEM_PLANNER_PLANNER_H

#include "base/err.h"
#include "kernels/dtypes.h"
#include "kernels/op_cost.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum {
    MAX_LAYERS = 1024,
    MAX_UNITS = 2 * MAX_LAYERS + 2,
    MAX_DEVICES = 2, // the CPU and one accelerator
    MAX_STEPS = 4 * MAX_UNITS + 16,
    MAX_UNIT_TENSORS = 12,
};

// Units of placement, in the order in which a forward pass meets them.
enum unit_kind { UNIT_EMBED, UNIT_ATTENTION, UNIT_FFN, UNIT_HEAD, UNIT_KINDS };
const char *unit_kind_name(enum unit_kind kind); // "embed", "attention", "ffn", "head"

struct unit {
    enum unit_kind kind;
    int32_t layer; // of attention and ffn; else -1
    int32_t n_tensors;
    uint64_t tensor_bytes[MAX_UNIT_TENSORS];
    bool shares_embed; // the head multiplies with the embedding table (tensor 0): one copy if both
                       // are on one device
};

// Bytes and dimensions of a model, from its header alone.
struct shape {
    char name[64], architecture[32];
    int32_t n_layers, n_embd, n_heads, n_kv_heads, head_dim, n_rot, n_ff, n_vocab, n_ctx_train;
    int32_t n_units;
    struct unit units[MAX_UNITS];
};

// What is asked of the model. 0 means the default in brackets, filled in by workload_defaults.
struct workload {
    int32_t n_ctx;                   // positions of one session [the model's, at most 4096]
    int32_t n_ubatch;                // tokens of one micro-batch [512]
    int32_t n_sessions;              // timelines at once [1]
    int32_t max_logits;              // rows of logits one call may ask for [1]
    enum dtype kv_type_k, kv_type_v; // DTYPE_F32, DTYPE_F16 or DTYPE_Q8_0
};
// ERR_USAGE if a value is out of range, naming its option, or if a head is no whole number of
// blocks of a kv type.
enum status workload_defaults(struct workload *w, const struct shape *shape, struct err *e);

struct machine_device {
    char name[96], kind[16];
    uint64_t capacity_bytes; // memory it has
    uint64_t budget_bytes;   // memory that may be planned
    uint32_t align_bytes;
    int32_t n_lanes;
    bool is_host; // the CPU: weights are used where the file is mapped
};
struct machine { // devices[0] is the CPU
    int32_t n_devices;
    struct machine_device devices[MAX_DEVICES];
};

enum { GPU_LAYERS_AUTO = -1, GPU_LAYERS_ALL = INT32_MAX, DEVICE_ANY = -1 };

struct constraints {
    int32_t gpu_layers;  // N layers, counted from the last, the head as one more; GPU_LAYERS_AUTO
                         // fills the memory
    uint64_t vram_bytes; // upper limit for the accelerator, 0: its budget
    uint64_t ram_bytes;  // upper limit for the CPU, 0: its budget
    bool has_units;      // unit_device is set
    int8_t unit_device[MAX_UNITS]; // DEVICE_ANY or a device for each unit: overrides gpu_layers
};

enum step_kind {
    STEP_INPUTS,  // device gets the batch's tables (positions, sequences, slots, pages, rows,
                  // tokens)
    STEP_COMPUTE, // device computes unit
    STEP_SEND,    // the residual stream goes from device to peer
    STEP_WAIT,    // device waits until the residual stream sent by peer has arrived
    STEP_LOGITS,  // logits come from device to the host
};
struct step {
    enum step_kind kind;
    int8_t device, peer;    // peer: of send and wait
    int16_t unit;           // of compute; else -1
    uint64_t bytes_per_row; // copied for each token (send) or each row of logits (logits); else 0
    uint64_t bytes_fixed;   // copied once per micro-batch: inputs; else 0
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
    uint64_t gate, up;         // F32 [n_ubatch, n_ff]
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
    int8_t unit_device[MAX_UNITS];
    uint64_t unit_weight_bytes[MAX_UNITS]; // buffer of the unit's weights on its device, 0 if
                                           // shared with another unit
    uint64_t unit_kv_bytes[MAX_UNITS];     // buffer of the unit's KV cache; 0 but for attention
    uint64_t unit_read_bytes[MAX_UNITS];   // weights that one pass reads
    struct plan_device devices[MAX_DEVICES];
    struct tables_layout tables;
    int32_t n_steps[BATCH_CLASSES];
    struct step steps[BATCH_CLASSES][MAX_STEPS];
};

// Fills *plan: the placement with the most units on the accelerator that fits (AUTO), or the asked
// one. ERR_MEMORY if the asked or every placement passes a limit: names device, purpose, needed and
// available bytes and what would fit. ERR_USAGE if layers are asked for a GPU and there is none.
// struct plan is big: put it on the heap.
enum status planner_solve(struct plan *plan, const struct shape *shape,
                          const struct machine *machine, const struct workload *workload,
                          const struct constraints *constraints, struct err *e);

// Footprint: exact bytes, used by the solver and by the runtime when it allocates.
uint64_t footprint_unit_weights(const struct unit *unit, const struct machine_device *device,
                                bool embed_is_here);
uint64_t footprint_unit_kv(const struct shape *shape, const struct workload *w,
                           const struct machine_device *device);
// has[kind]: the device computes at least one unit of that kind.
void footprint_scratch(const struct shape *shape, const struct workload *w,
                       const struct machine_device *device, const bool has[UNIT_KINDS],
                       struct scratch_layout *out);
void footprint_tables(const struct workload *w, struct tables_layout *out);
int32_t workload_pages(const struct workload *w); // pages in the KV pool, all sessions
int32_t workload_pages_per_session(const struct workload *w);

// What a walk over the steps adds up to, for n_tokens in one micro-batch with n_logits rows.
struct simulation {
    uint64_t peak_bytes[MAX_DEVICES];   // by device
    uint64_t weight_bytes[MAX_DEVICES]; // weights read by one pass
    uint64_t copied_bytes;              // between devices
    int32_t n_copies, n_steps;
};
void plan_simulate(const struct plan *plan, int32_t n_tokens, int32_t n_logits,
                   struct simulation *out);

// For people: a table of bytes per device and purpose, and one character per unit.
void plan_print(const struct plan *plan, const struct shape *shape, FILE *out);
int32_t plan_layers_on_gpu(
    const struct plan *plan); // whole layers on the accelerator, the head as one more
void plan_print_steps(const struct plan *plan, const struct shape *shape, enum batch_class batch,
                      FILE *out);

#endif

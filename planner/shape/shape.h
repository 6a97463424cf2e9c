/* shape.h: bytes and dimensions of a model, which are all that the planner knows of it.
 *
 * A struct shape is a plain value without pointers, filled from a GGUF header
 * (runtime/model/model_read.c, runtime/model/gguf_shape.c) or from a JSON file (shape_file.c), so a
 * model can be planned without its file. It is big: put it on the heap. Must not know devices. Any
 * thread. Included through planner/planner.h. Tested by tests/planner/test_shape.c.
 */
#ifndef TANDEM_PLANNER_SHAPE_SHAPE_H
#define TANDEM_PLANNER_SHAPE_SHAPE_H

#include "base/err.h"
#include "kernels/dtypes.h"
#include "planner/shape/tensor_roles.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    MAX_LAYERS = 1024,
    MAX_UNITS = 3 * MAX_LAYERS + 2,
    MAX_UNIT_TENSORS = 20,
    TENSOR_NAME = 48,
};

// Limits that shape_check enforces.
enum {
    SHAPE_WIDTH = 1 << 20, // n_embd, n_ff, n_heads * head_dim
    SHAPE_VOCAB = 1 << 24,
    SHAPE_CONTEXT = 1 << 26,
    SHAPE_HEADS = 1 << 12,
    SHAPE_HEAD_DIM = 1 << 13,
    SHAPE_KV_WIDTH = 1 << 17, // n_kv_heads * head_dim
    SHAPE_EXPERTS = 1 << 16,
    SHAPE_DELTA_HEADS = 1 << 10,
    SHAPE_DELTA_DIM = 1 << 10,
    SHAPE_DELTA_TAPS = 1 << 6,
};

// Units of placement, in the order of a forward pass. A layer has attention (or a recurrent or
// convolution block in its place, with a state), and a dense FFN (a shared expert is one), routed
// experts with their router, or both. Layers of some models have only what comes before the "and"
// or only what comes behind it.
enum unit_kind { UNIT_EMBED, UNIT_ATTENTION, UNIT_FFN, UNIT_EXPERTS, UNIT_HEAD, UNIT_KINDS };
const char *unit_kind_name(enum unit_kind kind); // "embed", "attention", "ffn", "experts", "head"

// How a pass reads a tensor.
enum tensor_use {
    USE_MATRIX,  // whole, by a matmul with every token
    USE_VECTOR,  // whole, element by element: norms, biases
    USE_ROWS,    // one row for each token: the embedding
    USE_EXPERTS, // the matrices of the chosen experts, or their biases (one row each)
};

struct unit_tensor {
    char name[TENSOR_NAME]; // as in the file: "blk.3.ffn_up.weight", cut if longer
    enum tensor_role role;  // decides how ops use it; the name is for people
    enum tensor_use use;    // given by the role's kind if the list has the role
    enum dtype type;
    int32_t n_cols, n_rows; // of one matrix; a vector is one row
    int32_t n_matrices;     // 1, or the number of experts
    uint64_t size_bytes;    // all of it
};

struct unit {
    enum unit_kind kind;
    int32_t layer;     // of attention, ffn and experts; else -1
    bool shares_embed; // the head multiplies with the embedding table (tensor 0), which exists once
                       // if both are on one device
    int32_t n_tensors;
    struct unit_tensor tensors[MAX_UNIT_TENSORS];
    // Members of attention units.
    // n_kv_heads 0: no KV cache. head_dim_v 0: values are part of the keys.
    int32_t n_heads, n_kv_heads, head_dim_k, head_dim_v;
    int32_t window;    // positions that a token sees, 0: all
    bool gated;        // the rows of the queries are those of a head, then its gate of the output
    bool gated_apart;  // a matrix of its own makes the gate of the output
    bool norms_values; // values, which are the keys before their norm if the unit has no matrix for
                       // them, go through a norm without a weight, head by head
    bool lends_cache;  // later units read its cache
    int32_t cache_unit;   // an earlier unit whose cache it reads in place of one of its own; else 0
    uint64_t state_bytes; // state of a recurrent block, for each session
    // A member of FFN units: in place of a norm of its own, it reads that of the attention before
    // it.
    bool reads_normed;
    // A member of a shared expert and of the experts behind it: they add one norm of the sum of
    // both. The shared expert leaves its output to them, and they make its input once more.
    bool joint_norm;
    // Members of experts units.
    int32_t n_experts, n_experts_used, n_ff_expert;
};

// Some layers may have a state in place of attention, all of one kind.
enum recurrence {
    RECURRENCE_NONE,
    RECURRENCE_DELTA, // a gated delta net
    RECURRENCE_CONV,  // a gated short convolution
    RECURRENCE_MAMBA, // a state space model (Mamba-2)
};

// A member that the kind does not have is 0.
struct recurrent_shape {
    enum recurrence kind;
    int32_t n_heads;     // of a delta net those of values
    int32_t n_key_heads; // of a delta net; of Mamba-2 its groups, which share B and C
    int32_t head_dim;
    int32_t n_taps;     // of the convolution
    int32_t n_state;    // of Mamba-2: columns of a head's state
    int32_t n_channels; // of a gated convolution
    bool joins_gates;   // betas and alphas of a delta net are one tensor, by key head
    bool beside;        // attention, in every layer, not in place of it
};

// Attention to latent vectors, with the same sizes in all layers: a row of the cache is a latent
// vector, which all heads share, and a rotated key. rank 0: the model has none.
struct latent_shape {
    int32_t rank, query_rank;   // of the latent vector; of queries, 0: they are made in one step
    int32_t key_dim, value_dim; // of a head; n_rot elements of a key turn
};

struct shape {
    char name[64], architecture[32];
    int32_t n_layers, n_embd, n_vocab, n_ctx_train;
    int32_t n_heads, n_kv_heads, head_dim, n_rot, n_ff; // the largest of any layer
    int32_t n_local_rot;                                // n_rot of layers with a window
    int32_t n_layer_input; // elements that the embedding makes of a token for each layer, else 0
    int32_t n_experts, n_experts_used, n_ff_expert; // the largest of any layer, 0 without experts
    struct recurrent_shape recurrent;
    struct latent_shape latent;
    bool has_other_angles; // layers with a window, or queries, have a table of their own
    bool has_shared_gates; // a shared expert has a gate for each token
    bool has_gated_q;      // attention is gated in some layer
    bool has_gates_apart;  // the gates of some layer's attention have a matrix of their own
    bool gates_heads;      // those gates are one number for each head, not for each column
    bool norms_all_heads;  // queries have one norm for all heads together, and so have keys
    bool norms_each_head;  // each head of queries and keys has a norm with weights of its own
    bool has_expert_norms; // experts read another norm than the dense FFN beside them
    bool has_joint_norms;  // some experts and a shared one have a norm of their sum
    bool can_run;          // false: the runtime cannot compute the model, which can only be planned
    char why_not[160];     // of a file that cannot run; may be ""
    int32_t n_units;
    struct unit units[MAX_UNITS];
};

// Finds the tensor of that role, of which a unit has at most one; NULL if it has none, and for
// ROLE_OTHER.
const struct unit_tensor *unit_find(const struct unit *unit, enum tensor_role role);
enum tensor_use tensor_use_of(enum tensor_role role);
// Finds the norm that the output of attention or an FFN goes through before it is added to the
// residual stream; NULL if the unit adds it as it is.
const struct unit_tensor *unit_post_norm(const struct unit *unit);
// True if the output of a unit is not added to the residual stream as it is.
bool unit_leaves_branch(const struct unit *unit);

// Elements that the embedding makes of a token for all layers.
int32_t shape_layer_inputs(const struct shape *shape);
// The attention whose cache a unit reads: another's, or its own.
const struct unit *unit_with_cache(const struct shape *shape, const struct unit *unit);
// The unit on whose device a unit has to be: the one whose cache it reads, or itself.
int32_t unit_leader(const struct shape *shape, int32_t unit);

// True for an FFN beside attention, which has computed the norm that both read, and for routed
// experts behind a dense FFN of the same layer: a shared expert has computed the norm that both
// read, another FFN what is added to theirs.
bool unit_reads_normed(const struct shape *shape, int32_t unit);
// True for the tail of a model: units behind its last attention or state, which a pass needs for
// the tokens alone whose logits are wanted. They are the FFN and the experts of the last layer, and
// the head.
bool unit_is_tail(const struct shape *shape, const struct unit *unit);
// True if the unit has a state, in place of attention or beside it.
bool unit_has_state(const struct shape *shape, const struct unit *unit);
// Columns of the convolution: of a delta net queries, keys and values; of Mamba-2 x, B and C.
int64_t recurrent_channels(const struct recurrent_shape *recurrent);
// Elements of the matrices of a state.
int64_t recurrent_cells(const struct recurrent_shape *recurrent);
// Bytes of its state: the last inputs of the convolution, and a matrix for each head.
uint64_t recurrent_state_bytes(const struct recurrent_shape *recurrent);

// Writes the name of a unit in files and errors: "embed", "blk.7.attention", "blk.7.ffn",
// "blk.7.experts", "head".
void plan_unit_name(const struct unit *unit, char *out, size_t size_bytes);

// Copies text into out, cut to size_bytes and terminated, with '?' for control bytes: names come
// from files and go to terminals.
void shape_set_text(char *out, size_t size_bytes, const char *text, size_t length);

// Positions in the longest window of a layer; 0: no layer has one.
int32_t shape_window(const struct shape *shape);
// True if a matmul, or one of experts, has weights of the type.
bool shape_has_matrices(const struct shape *shape, enum dtype type);
// Bytes of the whole model's weights; a shared embedding counts once.
uint64_t shape_weight_bytes(const struct shape *shape);
// Checks that every number is in range and the units are in order: embed, for each layer attention,
// ffn, experts or some of these, head. The whole planner relies on it. The ranges keep the bytes of
// a whole model, its caches and states below 2^63. ERR_FORMAT names the field.
enum status shape_check(const struct shape *shape, struct err *e);

// Reads a shape from JSON text (configs/models/README.md has the format). ERR_FORMAT with line or
// field. shape_load reads the file and names it in errors.
enum status shape_parse(struct shape *out, const char *text, size_t length, struct err *e);
enum status shape_load(struct shape *out, const char *path, struct err *e);

// The models of configs/models, built into the program. i in 0..count-1.
int32_t shape_builtin_count(void);
const char *shape_builtin_name(int32_t i); // "qwen3-8b"
enum status shape_builtin(struct shape *out, int32_t i, struct err *e);

// Makes the same model with every matrix in the next smaller type that the runtime can multiply
// with (rows of whole 256-blocks: Q8_0 Q6_K Q5_K Q4_K, else Q8_0 Q5_1 Q5_0 Q4_1 Q4_0); matrices
// without a smaller type, vectors and routers stay. False if all stay. out may be shape.
bool shape_smaller_quant(const struct shape *shape, struct shape *out);

#endif

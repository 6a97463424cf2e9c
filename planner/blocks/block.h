/* block.h: a block computes a unit (attention, a dense FFN, routed experts, the embedding or the
 * head) by op calls.
 *
 * A block is constant data. It stands between the shape, which it reads, and two callers: the
 * pipeline lets it encode with a device's op table, and the planner counts the ops that it encodes.
 * Blocks know no model family: a unit's tensors and the numbers of struct hparams determine the
 * computation. They never follow an address. Owns nothing; any thread. Included through
 * planner/planner.h. Tested by tests/runtime/test_pipeline.c and tests/cli/cli_tiny.sh.
 */
#ifndef TANDEM_PLANNER_BLOCKS_BLOCK_H
#define TANDEM_PLANNER_BLOCKS_BLOCK_H

#include "kernels/ops.h"
#include "planner/blocks/areas.h"

enum { MAX_PIECES = 2 };

// The part of a unit that a compute step computes. A split FFN has two phases, with a join after
// each: IN is norm, gate, up and swiglu for the device's rows of gate and up; OUT is the device's
// rows of down, added to its residual stream. Split attention has three: IN is norm and the
// device's rows of the queries, on the accelerator also keys and values; when the CPU's queries
// have come, MID is norms of heads, rope, cache and attention itself, on the accelerator alone;
// when the CPU has its columns of the result, OUT is the device's rows of the output, added to its
// residual stream. Where a unit ends with a norm, OUT leaves its columns in AREA_NORMED, and NORM
// adds the norm of all columns to the residual stream, on the accelerator alone. Split experts have
// three with one join: IN chooses the experts, on the accelerator alone; MID is the device's
// experts, on both at once; OUT adds all up, on the accelerator alone.
enum step_phase { PHASE_ALL, PHASE_IN, PHASE_MID, PHASE_OUT, PHASE_NORM, STEP_PHASES };

// The arguments of rope_table.
struct rope_numbers {
    float base, scale, magnitude, ext, corr_low, corr_high;
    float temperature;
    int32_t period; // of the temperature; 0: none
};

// Numbers of a model that ops need besides its shape. A number that is 0 changes nothing.
struct hparams {
    float norm_eps;     // of norms of a head, or of what attention or an FFN makes
    float residual_eps; // of norms of the residual stream
    struct rope_numbers rope;
    struct rope_numbers local_rope;   // of layers with a window; base 0: as in the others
    struct rope_numbers query_rope;   // of queries, of all columns if latent; base 0: as of keys
    float embed_scale;                // of rows of the embedding
    float attention_scale;            // of scores; 0: 1 / sqrt(head_dim)
    float attention_softcap;          // as in struct attention_args
    float logit_scale, logit_softcap; // as in struct cap_logits_args
    enum glu glu;
    float glu_limit;                        // of GLU_CLAMPED
    struct xielu_numbers xielu[MAX_LAYERS]; // of dense FFNs
    enum expert_gate expert_gate;
    enum key_order key_order;                      // of delta nets
    bool normalise_experts;                        // the weights of a token's experts add up to 1
    float expert_scale;                            // of these weights
    int32_t n_expert_groups, n_expert_groups_used; // as in struct route_args
    bool groups_by_best;                           // as in struct route_args
    int32_t no_rope_period; // the last layer of each so many has no rotary positions; 0: all have
    bool windows_turn;      // layers without a window have no rotary positions
    bool norms_centred;     // norms of the residual stream subtract the mean of a row
    bool norms_turned;      // heads are normed behind their rotary positions, not before
    bool gates_softly;      // heads are gated by the softplus of a gate, not by its sigmoid
    bool rope_neox;         // rotary positions turn the halves of a head, not neighbours
};

// A tensor of a unit on a device: all of it, some rows of it, or the matrices of some experts.
struct weight {
    enum dtype type;
    int32_t n_cols, n_rows; // n_rows 0: the device has nothing of it
    int32_t first_row;      // the first of the tensor's rows on this device
    void *data;             // on the device
    uint64_t slot_bytes;    // from one expert's matrix to the next; 0: they follow each other
};

// The tables of a micro-batch that ops read.
struct batch_tables {
    int32_t *tokens, *positions, *sequences, *cache_rows; // [n_tokens]
    int32_t *rows;  // [n_logits], tokens whose logits are wanted, in order
    int32_t *pages; // [n_sessions, max_pages]
    int32_t *steps; // [n_tokens, 2], the states that ops read and write; of recurrent layers only
    // cache_rows and pages of layers with a window, which keep a ring of pages: page i of the
    // context is page i modulo the ring's length.
    int32_t *ring_rows, *ring_pages;
};

// Everything that one unit needs on its device for one micro-batch. All pointers are addresses of
// that device.
struct forward {
    struct stream *stream;
    const struct op_table *ops;
    const struct hparams *hp;
    const struct shape *shape;
    const struct unit *unit;
    // Weights by the unit's tensors. A split unit may have two pieces, whose rows are consecutive;
    // matrices that are not cut are then in the first piece on the accelerator.
    const struct weight *pieces[MAX_PIECES];
    int32_t n_pieces;
    const int32_t *slots[MAX_PIECES]; // [n_experts]: where each expert is in the piece
    enum step_phase phase;            // PHASE_ALL unless the unit is split between devices
    struct batch_tables tables;
    int32_t n_tokens, n_logits, max_pages;
    float *area[AREAS]; // AREA_FREQS: NULL if the model has no frequencies
    // The cache that the unit reads (unit_with_cache): pages of n_kv_heads heads.
    void *k_cache, *v_cache;
    enum dtype k_type, v_type;
    enum kv_order kv_order;
    // The unit's states: [slots of all sessions, n_taps - 1, channels] and [slots, n_heads,
    // head_dim, columns].
    float *conv_states, *matrix_states;
};

// A tensor that a block computes with.
struct block_tensor {
    enum tensor_role role;
    enum dim n_cols, n_rows; // DIM_ONE rows: a vector; so is a convolution, whose file has rows. A
                             // unit where either is 0 has no such tensor
    bool optional;           // the block leaves the tensor out if the unit lacks it
};

struct block {
    const struct block_tensor *tensors; // in the order in which units list them
    int32_t n_tensors;
    const struct block_area *areas; // the scratch that it needs
    int32_t n_areas;
    // f->unit or one phase of it. For an FFN, IN leaves in AREA_GATE the columns of its pieces'
    // rows, and OUT adds those of down to the residual stream. For attention, IN leaves in
    // AREA_Q the columns of its pieces' rows, and AREA_K and AREA_V if the first piece has
    // their matrices; MID makes AREA_ATTENDED of these three and the cache, OUT adds the rows of
    // the output. If the unit ends with a norm (unit_post_norm), OUT leaves the columns in
    // AREA_NORMED, and NORM adds their norm. NULL: such units can be planned but not computed
    // yet.
    void (*encode)(const struct forward *f);
    // Encodes data that all units of the block read, once per micro-batch on each device, before
    // the first unit there that is computed whole or in its phase MID. NULL: there is no such data.
    void (*encode_shared)(const struct forward *f);
};

#endif

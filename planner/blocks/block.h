/* block.h: what computes a unit: attention, a dense FFN, routed experts, the embedding or the head,
 * as op calls.
 *
 * A block is constant data. It stands between the shape, which it reads, and two callers: the
 * pipeline lets it encode with a device's op table, and the planner counts what it encodes. Blocks
 * know no model family: a unit's tensors and the numbers of struct hparams say what there is to
 * compute. They never follow an address. Owns nothing; any thread. Included through
 * planner/planner.h. Tested by tests/runtime/test_pipeline.c and tests/cli/cli_tiny.sh.
 */
#ifndef TANDEM_PLANNER_BLOCKS_BLOCK_H
#define TANDEM_PLANNER_BLOCKS_BLOCK_H

#include "kernels/ops.h"
#include "planner/blocks/areas.h"

enum { MAX_PIECES = 2 };

// What of a unit a compute step computes. A split FFN has two phases, with a join after each: IN is
// norm, gate, up and swiglu for the device's rows of gate and up; OUT is the device's rows of down,
// added to its residual stream. Split attention has three: IN is norm and the device's rows of the
// queries, on the accelerator also keys and values; when the CPU's queries have come, MID is rope,
// cache and attention itself, on the accelerator alone; when what was attended to has gone to the
// CPU, OUT is the device's rows of the output, added to its residual stream.
enum step_phase { PHASE_ALL, PHASE_IN, PHASE_MID, PHASE_OUT };

// What ops take besides what the shape tells: the numbers of a model.
struct hparams {
    float norm_eps, rope_base, rope_scale, rope_magnitude, rope_ext, rope_corr_low, rope_corr_high;
    enum expert_gate expert_gate;
    bool normalise_experts; // the weights of a token's experts add up to 1
};

// A tensor of a unit as a device has it: all of it, or some rows of each of its matrices.
struct weight {
    enum dtype type;
    int32_t n_cols, n_rows; // n_rows 0: the device has nothing of it
    int32_t first_row;      // of the tensor's rows, that lies first here
    void *data;             // on the device
};

// A micro-batch as the ops read it.
struct batch_tables {
    int32_t *tokens, *positions, *sequences, *cache_rows; // [n_tokens]
    int32_t *rows;  // [n_logits], tokens whose logits are wanted
    int32_t *pages; // [n_sessions, max_pages]
};

// Everything that one unit needs on its device for one micro-batch. All pointers are addresses of
// that device.
struct forward {
    struct stream *stream;
    const struct op_table *ops;
    const struct hparams *hp;
    const struct shape *shape;
    const struct unit *unit;
    // Weights by the unit's tensors. Two pieces are rows that follow each other, of a unit that is
    // split; matrices that are not cut are then in the first piece on the accelerator.
    const struct weight *pieces[MAX_PIECES];
    int32_t n_pieces;
    enum step_phase phase; // PHASE_ALL unless the unit is split between devices
    struct batch_tables tables;
    int32_t n_tokens, n_logits, max_pages;
    float *area[AREAS]; // AREA_FREQS: NULL if the model has no frequencies
    // The unit's cache: [pages * KV_PAGE, n_kv_heads * head_dim].
    void *k_cache, *v_cache;
    enum dtype k_type, v_type;
};

// A tensor that a block computes with.
struct block_tensor {
    enum tensor_role role;
    enum dim n_cols, n_rows; // DIM_ONE rows: a vector
    bool optional;           // the block leaves out what the unit does not have
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
    // the output. NULL: such units can be planned but not computed yet.
    void (*encode)(const struct forward *f);
    // Once per micro-batch on each device, before the first of the block's units there that is
    // computed whole or in its phase MID: what all of them read. NULL: there is nothing.
    void (*encode_shared)(const struct forward *f);
};

#endif

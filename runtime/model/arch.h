/* arch.h: what a model family brings: how to read its numbers and tensors, and its forward pass as
 * op calls.
 *
 * An arch is constant data. arch_*.c include this header; families.c lists them; pipeline.c calls
 * encode for each unit of the plan. Must not know devices beyond the op table it is given. Any
 * thread. Tested by tests/runtime/test_model.c.
 */
#ifndef TANDEM_RUNTIME_MODEL_ARCH_H
#define TANDEM_RUNTIME_MODEL_ARCH_H

#include "kernels/device.h"
#include "runtime/model/model.h"

enum { MAX_PIECES = 2 };

// A tensor of a unit as a device has it: all of it, or some rows of each of its matrices.
struct weight {
    enum dtype type;
    int32_t n_cols, n_rows; // n_rows 0: the device has nothing of it
    int32_t first_row;      // of the tensor's rows, that lies first here
    void *data;             // on the device
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
    bool shares_hidden;    // other columns of gate may arrive while this runs: they stay untouched
    // The batch.
    const int32_t *tokens, *positions, *sequences, *slots; // [n_tokens]
    const int32_t *rows;  // [n_logits], tokens whose logits are wanted
    const int32_t *pages; // [sequences, max_pages]
    int32_t n_tokens, n_logits, max_pages;
    // Activations, F32.
    float *residual, *normed; // [n_tokens, n_embd]
    float *freqs;             // [n_rot/2], or NULL if the model has none
    float *angles;            // [n_tokens, n_rot/2, 2]
    float *q, *attended;      // [n_tokens, n_heads * head_dim]
    float *k, *v;             // [n_tokens, n_kv_heads * head_dim]
    float *gate, *up;         // [n_tokens, n_ff]; what swiglu makes goes to gate
    float *gathered;          // [n_logits, n_embd]
    float *logits;            // [n_logits, n_vocab]
    void *matmul;             // scratch of the matmuls
    // The unit's cache: [pages * KV_PAGE, n_kv_heads * head_dim].
    void *k_cache, *v_cache;
    enum dtype k_type, v_type;
};

// The weight of that role in a piece; NULL if the unit has none or the piece nothing of it.
const struct weight *forward_weight(const struct forward *f, int piece, enum tensor_role role);

struct arch {
    const char *name; // general.architecture
    // Fills m->hp, m->tensors and m->shape from m->gguf, checking everything.
    enum status (*read)(struct model *m, struct err *e);
    // Once per micro-batch on each device with attention units, before the first of them.
    void (*encode_angles)(const struct forward *f);
    // f->unit or one phase of it. Of an FFN, IN leaves in gate the columns of its pieces' rows,
    // and OUT adds those of down to the residual stream. Of attention, IN leaves in q the columns
    // of its pieces' rows, and k and v if the first piece has their matrices; MID makes attended of
    // q, k, v and the cache, OUT adds the rows of the output.
    void (*encode)(const struct forward *f);
};

extern const struct arch arch_llama;

#endif

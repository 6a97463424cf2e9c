/* model.h: a model's hyper-parameters and tensors, read from a GGUF and checked before any kernel
 * sees them.
 *
 * A struct model borrows the gguf (and so the mapped weights) and owns nothing else. model_read
 * takes every value by name with a range, every tensor by name, type and exact shape. It knows
 * architectures only through their names in arch_*.c. Read-only after model_read; any thread.
 * Tested by tests/runtime/test_model.c.
 */
#ifndef TANDEM_RUNTIME_MODEL_MODEL_H
#define TANDEM_RUNTIME_MODEL_MODEL_H

#include "planner/planner.h"
#include "runtime/gguf/gguf.h"

// A weight as the file has it; bound to device memory by weights.h.
enum weight_slot {
    W_EMBED,      // [n_vocab, n_embd]
    W_ROPE_FREQS, // [n_rot/2] F32, optional
    W_OUT_NORM,   // [n_embd] F32
    W_OUTPUT,     // [n_vocab, n_embd], absent when tied
    W_GLOBAL_COUNT,
    // per layer
    W_ATTN_NORM = 0, // [n_embd] F32
    W_Q,             // [n_heads * head_dim, n_embd]
    W_K,             // [n_kv_heads * head_dim, n_embd]
    W_V,
    W_O, // [n_embd, n_heads * head_dim]
    W_Q_BIAS,
    W_K_BIAS,
    W_V_BIAS,
    W_O_BIAS,   // F32, optional
    W_FFN_NORM, // [n_embd] F32
    W_GATE,     // [n_ff, n_embd]
    W_UP,
    W_DOWN, // [n_embd, n_ff]
    W_LAYER_COUNT,
};

struct hparams {
    int32_t n_layers, n_embd, n_heads, n_kv_heads, head_dim, n_rot, n_ff, n_vocab, n_ctx_train;
    float norm_eps, rope_base, rope_scale, rope_magnitude, rope_ext, rope_corr_low, rope_corr_high;
    bool tied;
};

struct arch; // arch.h

struct model {
    const struct gguf *gguf; // borrowed
    const struct arch *arch; // constant
    char architecture[32], name[64];
    struct hparams hp;
    const struct gguf_tensor *globals[W_GLOBAL_COUNT];           // NULL where optional and absent
    const struct gguf_tensor *layers[MAX_LAYERS][W_LAYER_COUNT]; // likewise
};

// Reads and checks everything. ERR_UNSUPPORTED (architecture, tensor type), ERR_FORMAT (key or
// tensor, expected, got). struct model is big: put it on the heap.
enum status model_read(struct model *m, const struct gguf *g, struct err *e);

// The planner's view: units in forward order with the bytes of each tensor.
void model_shape(const struct model *m, struct shape *out);

// Tensors of a unit, in the order of struct unit's tensor_bytes, each at most MAX_UNIT_TENSORS;
// returns their number.
int32_t model_unit_tensors(const struct model *m, const struct unit *unit,
                           const struct gguf_tensor **out);

#endif

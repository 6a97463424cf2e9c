/* model.h: a model's numbers and tensors, read from a GGUF and checked before any kernel sees them.
 *
 * A struct model borrows the gguf (and so the mapped weights) and the shape that it fills, and owns
 * nothing else. Filled by model_read (model_read.h), read-only after it; any thread. Tested by
 * tests/runtime/test_model.c.
 */
#ifndef TANDEM_RUNTIME_MODEL_MODEL_H
#define TANDEM_RUNTIME_MODEL_MODEL_H

#include "planner/planner.h"
#include "runtime/gguf/gguf.h"

struct family; // families.h

// A layer has at most q, k, v, their biases, keys and values of latent attention, gate, up, and 3
// of experts.
enum { MAX_MADE_TENSORS = 13 };
#define EXPERTS_APART UINT64_MAX

struct model {
    const struct gguf *gguf;     // borrowed
    struct shape *shape;         // borrowed
    const struct family *family; // constant
    struct hparams hp;
    int32_t n_blocks;            // layers in the file, with those that draft tokens
    int32_t windows[MAX_LAYERS]; // positions that a token sees, 0: all
    int32_t n_heads[MAX_LAYERS], n_kv_heads[MAX_LAYERS];
    int32_t head_dims[MAX_LAYERS];
    bool joins_kv;            // latent attention has the matrices of keys and values in one
    int32_t n_own_caches;     // layers behind so many read the cache of an earlier one
    int32_t n_ff[MAX_LAYERS]; // width of the dense FFN or the shared expert, 0: neither
    int32_t n_dense_layers;   // at the start, without experts where others have them
    bool mixes[MAX_LAYERS], feeds[MAX_LAYERS]; // has attention or a state; has an FFN or experts
    int32_t recurrent[MAX_LAYERS];             // 1: the layer has a state in place of attention
    // Divisors of the frequencies of rotary positions; NULL: the model has none. Some models have
    // others for contexts longer than n_ctx_short and for shorter ones.
    const struct gguf_tensor *rope_freqs, *long_freqs, *short_freqs;
    int32_t n_ctx_short;
    // Rows of fused tensors, and all experts of early files, as if the file had such tensors.
    struct gguf_tensor parts[MAX_LAYERS * MAX_MADE_TENSORS];
    int32_t n_parts;
    // As they are in the file, of shape->units[..].tensors, where small ones may have another type,
    // and those of model_is_joined are made of other rows.
    const struct gguf_tensor *tensors[MAX_UNITS][MAX_UNIT_TENSORS];
    // Bytes from one expert's matrix to the next where they do not follow each other: in early
    // files, where each is a tensor of its own, and where others lie between. EXPERTS_APART: no
    // such number; 0: they are one tensor.
    uint64_t strides[MAX_UNITS][MAX_UNIT_TENSORS];
};

#endif

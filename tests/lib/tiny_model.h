/* tiny_model.h: a model of a few kilobytes with random weights, written by the tests that need
 * one.
 *
 * Owns nothing: writes a file. One thread.
 */
#ifndef TANDEM_TESTS_LIB_TINY_MODEL_H
#define TANDEM_TESTS_LIB_TINY_MODEL_H

#include "tests/lib/gguf_build.h"

enum {
    TINY_VOCAB = 272,
    TINY_EMBD = 64,
    TINY_FF = 96,
    TINY_HEADS = 4,
    TINY_KV_HEADS = 2,
    TINY_HEAD_DIM = 16,
    TINY_MAX_EXPERTS = 16,
    TINY_MAX_LAYERS = 16, // with layers that differ in KV heads
    TINY_DELTA_HEADS = 4,
    TINY_DELTA_KEYS = 2,
    TINY_DELTA_DIM = 16,
    TINY_DELTA_TAPS = 4,
    TINY_MAMBA_STATE = 24,
    TINY_LATENT_KEY = 24, // elements of a key of latent attention, of which so many turn
    TINY_LATENT_ROT = 8,
    TINY_LATENT_VALUE = 20,
    TINY_QUERY_RANK = 40,
};

struct tiny_model {
    const char *architecture; // NULL: llama
    int n_layers;
    bool tied;            // no output.weight
    bool biased;          // q, k, v and o have biases, and experts and their router
    bool halves;          // norms, biases and routers are F16
    bool freqs;           // rope_freqs.weight
    bool normed;          // q and k have norms of their heads
    bool normed_whole;    // and each such norm is one for all heads
    bool norm_biases;     // of the norms before attention, the FFN and the head, and the FFN's
    bool no_norms;        // attention and FFN read the residual stream
    bool side_by_side;    // the FFN reads the norm before attention
    bool ungated;         // a dense FFN has no gate
    bool selected;        // experts are chosen by their gates and a bias
    bool gated_apart;     // a matrix of its own makes the gate of attention's output
    bool gates_heads;     // one for each head
    bool capped;          // logits are divided by 2 and capped at 5
    bool scaled;          // the embedding, the residual stream and scores are
    bool fused;           // q, k and v are one tensor, and gate and up of a dense FFN
    bool ends_with_norms; // attention and FFN do
    bool sinks;           // of attention; the norm before the FFN is called post_attention_norm
    bool tempered;        // scores of positions from 64 on have another temperature, under YaRN
    int delta_period;     // all but the last layer of each so many are delta nets, and attention is
                          // gated; the norm before the FFN is called post_attention_norm; 0: none
    int latent_rank;      // of attention to latent vectors; 0: it has none
    bool low_queries;     // of latent attention are made in two steps
    bool convolves;       // these layers are short convolutions instead, and attention is not gated
    bool scans;           // or Mamba-2
    bool scans_beside;    // Mamba-2 is beside attention in every layer; delta_period is 1
    bool joined;          // learning rates and decays of delta nets are one tensor
    int window;           // positions that layers see whose architecture has windows; 0: no key
    uint64_t seed;
    int head_dim;       // 0: TINY_HEAD_DIM
    int other_heads;    // query heads of every second layer; 0: TINY_HEADS
    int local_head_dim; // of layers with a window; 0: as of the others
    int n_sharing; // last layers that read the cache of an earlier one, without keys and values
    int n_inputs;  // width of what the embedding makes for each layer
    bool beside;   // a dense FFN is beside the experts, which are fused, with other norms
    int n_experts; // instead of the dense FFN, of which a token goes to two; 0: none
    bool apart;    // each matrix of an expert is a tensor, as in early files
    bool shared;   // beside the experts is one for every token, with a gate
    int padding;   // rows of the matrices that have no token, at the end of TINY_VOCAB
};

// Members of a model with norms at the ends of its parts, gates of attention that have a matrix,
// and experts that have one norm with a shared one, if there is one.
#define TINY_AFMOE                                                                         \
    .architecture = "afmoe", .normed = true, .gated_apart = true, .ends_with_norms = true, \
    .selected = true

// Members of a model with a gate for each head, of which every second layer has more.
#define TINY_LAGUNA                                                                     \
    .architecture = "laguna", .normed = true, .gated_apart = true, .gates_heads = true, \
    .other_heads = 3 * TINY_KV_HEADS, .head_dim = 32, .selected = true

// All keys, the byte vocabulary and the tensors (matrices F16, norms F32), not yet finished: a test
// may add to it or leave some out. skip is a pattern, as of fnmatch, of the names of tensors or
// keys that are left out, or NULL.
void tiny_model_build(struct gguf_build *b, const struct tiny_model *m, const char *skip);
// Builds, finishes, writes and closes.
void tiny_model_write(const struct tiny_model *m, const char *path);

#endif

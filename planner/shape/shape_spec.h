/* shape_spec.h: a model's hyper-parameters and quantisation rule, and their expansion into a shape.
 *
 * A struct shape_spec holds a JSON file as a plain value without pointers: shape_file.c fills it,
 * shape_expand.c makes units and tensors of it. Only for the planner's own files. Any thread.
 * Tested by tests/planner/test_shape.c.
 */
#ifndef TANDEM_PLANNER_SHAPE_SHAPE_SPEC_H
#define TANDEM_PLANNER_SHAPE_SHAPE_SPEC_H

#include "planner/shape/shape.h"

enum { BIAS_Q, BIAS_K, BIAS_V, BIAS_OUTPUT, BIASES };

// Letters of the text "layers", one for each layer. A model with layers of the last two kinds has
// nothing else in a layer than its letter says; in other models an FFN or experts follow.
enum { LAYER_ATTENTION = 'a', LAYER_RECURRENT = 'r', LAYER_FFN = 'f', LAYER_EXPERTS = 'e' };

// The model in the numbers that papers and cards give. Numbers are in the ranges of shape.h.
struct shape_spec {
    char name[64], architecture[32], quant[16], ffn_norm_name[24];
    char layers[MAX_LAYERS + 1]; // a letter for each layer; "": recurrent.period tells
    int32_t n_layers, n_embd, n_vocab, n_ctx_train;
    int32_t n_layer_input; // 0: none
    bool tied, can_run, layer_scale, lacks_pre_norms;
    struct {
        int32_t n_heads, n_kv_heads, head_dim, n_rot;
        int32_t n_shared;           // last layers that read the cache of an earlier one
        struct latent_shape latent; // rank 0: none
        bool has_bias[BIASES], qk_norm, sinks, gated, post_norm, value_norm, keys_are_values;
        bool joint_qk_norm; // one norm for all query heads, and one for all key heads
    } attention;
    struct {
        int32_t positions, period;           // period 0: no windows
        int32_t n_kv_heads, head_dim, n_rot; // of layers with a window
    } window;
    struct {
        enum recurrence kind; // RECURRENCE_NONE: no layer is
        int32_t period, n_heads, head_dim, n_groups, state_size, conv_kernel;
        bool joins_gates, beside, norm;
    } recurrent;
    struct {
        int32_t n_ff;         // 0: no dense FFN
        int32_t n_ff_sharing; // of layers that read the cache of an earlier one
        bool post_norm, ungated;
    } ffn;
    struct {
        int32_t n_experts, n_experts_used, n_ff, n_ff_shared, n_dense_layers; // n_experts 0: none
        bool shared_gate, biases, beside_ffn, selection_bias, ungated;
    } experts;
};

// Zeroes and fills *out, and checks it. ERR_FORMAT if the quantisation rule is unknown or the
// numbers together are out of range.
enum status shape_expand(struct shape *out, const struct shape_spec *spec, struct err *e);

#endif

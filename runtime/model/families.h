/* families.h: the model families that the runtime can compute, as data.
 *
 * A family holds the facts that its files lack. Numbers come from keys (model_numbers.h); the
 * blocks (planner/blocks/) name the tensors. Constants; any thread. Tested by
 * tests/runtime/test_model.c.
 */
#ifndef TANDEM_RUNTIME_MODEL_FAMILIES_H
#define TANDEM_RUNTIME_MODEL_FAMILIES_H

#include "kernels/ops.h"
#include "planner/planner.h"

#include <stdbool.h>
#include <stddef.h>

enum { FAMILY_ROLES = 6 }; // in a list; ROLE_OTHER ends a shorter one

struct family {
    const char *architecture; // general.architecture of its files
    enum glu glu;
    float glu_limit; // as in struct hparams
    enum expert_gate expert_gate;
    bool normalise_experts, rope_neox; // as in struct hparams
    int32_t no_rope_period;            // as in struct hparams
    bool scales_embedding;             // by sqrt(n_embd)
    bool needs_scales;                 // early files lack those of embedding, residual and logits
    bool norms_values;                 // as in struct unit
    bool norms_turned;                 // as in struct hparams
    bool norms_centred;                // as in struct hparams
    bool norms_all_heads;              // as in struct shape
    bool windows_turn;                 // as in struct hparams, of models with windows
    bool windows_unscaled;             // positions are not scaled in layers with a window
    bool multiplies_logits;            // by the scale in the file; else it is their divisor
    float attention_scale;             // as in struct hparams, unless the file has another
    float attention_softcap, logit_softcap; // the same
    // Factors that no file of the family has: of the embedding; of what attention and FFNs make,
    // times sqrt(n_layers); of logits, times n_embd.
    float embed_factor, depth_factor, head_factor;
    float local_rope_base; // of layers with a window, unless the file has another; 0:
                           // that of the other layers
    bool attends_latent;   // to latent vectors (struct latent_shape)
    bool gates_attention;  // by a sigmoid of rows that follow those of each query head; a family
                           // that needs ROLE_ATTN_GATE has a matrix for that
    bool gates_heads;      // that matrix makes one gate for each head
    bool gates_softly;     // as in struct hparams
    enum recurrence recurrence;
    int32_t recurrent_period; // all but the last layer of each so many are recurrent, unless the
                              // file says which; 0: those without KV heads are
    bool recurs_beside;       // attention in every layer, not in place of it
    bool parts_layers;        // those with a width of their FFN have nothing else
    bool halves_ffn;          // files count the columns of gate and up together
    bool skips_attention;     // layers without query heads have an FFN alone
    bool may_not_turn;        // files can say that they have no rotary positions
    enum key_order key_order; // as in struct hparams
    // The model with so many layers scales scores by sqrt(n_heads / n_embd). 0: none does.
    int32_t n_layers_of_widest;
    // The model with so many layers has slopes of scores (ALiBi) in place of rotary positions,
    // which no block computes. 0: none does.
    int32_t n_layers_of_sloped;
    // Tensors that blocks leave out where a file lacks them, and that every layer of the family has
    // to have, because it would compute something else without them. The norm before experts: of
    // layers that have experts.
    enum tensor_role needs[FAMILY_ROLES];
    // Tensors that blocks need and that no layer of the family has, or not all of them. An FFN
    // without a norm that follows attention with one reads that.
    enum tensor_role lacks[FAMILY_ROLES];
};

// NULL if there is no family of that name.
const struct family *family_find(const char *architecture);

// True if a list of roles has the role.
bool family_lists(const enum tensor_role roles[FAMILY_ROLES], enum tensor_role role);

// Writes the architectures of families, with commas between; dots for those that do not fit.
// Returns out.
const char *family_list(char *out, size_t size_bytes);

#endif

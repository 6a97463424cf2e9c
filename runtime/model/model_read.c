/* model_read.c: see model_read.h. */
#include "runtime/model/model_read.h"

#include "runtime/model/families.h"
#include "runtime/model/model_numbers.h"
#include "runtime/model/model_take.h"
#include "runtime/model/per_layer.h"

#include <ctype.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

static enum status refuse(const struct model *m, struct err *e) {
    char families[180]; // err.fix has room for no more
    if (!m->shape->architecture[0]) {
        err_set(e, ERR_FORMAT, "key general.architecture is missing");
        return err_fix(e, "this file holds no model; `tandem inspect` shows what it holds");
    }
    err_set(e, ERR_UNSUPPORTED, "models of architecture %s are not supported yet",
            m->shape->architecture);
    return err_fix(e, "'tandem plan' works; these run: %s", family_list(families, sizeof families));
}

static enum status read_names(struct model *m, struct err *e) {
    struct shape *s = m->shape;
    struct gguf_text architecture = {0}, name = {0};
    if (gguf_read_text(m->gguf, "general.architecture", &architecture, e) ||
        gguf_read_text(m->gguf, "general.name", &name, e))
        return e->status;
    if (!name.length) name = (struct gguf_text){"unnamed", 7};
    shape_set_text(s->architecture, sizeof s->architecture, architecture.bytes,
                   architecture.length);
    shape_set_text(s->name, sizeof s->name, name.bytes, name.length);
    m->family = family_find(s->architecture);
    return m->family ? OK : refuse(m, e);
}

// Reads the embedding and the head. The length of the embedding's table is the size of the
// vocabulary, whatever else the file says.
static enum status read_outside(struct model *m, struct err *e) {
    struct shape *s = m->shape;
    const struct gguf_tensor *table =
        gguf_find_tensor(m->gguf, tensor_role_info(ROLE_TOKEN_EMBED)->name);
    if (table && table->ne[1] <= SHAPE_VOCAB) s->n_vocab = (int32_t)table->ne[1];
    struct tensor_want freqs = {
        .role = ROLE_ROPE_FREQS, .n_cols = s->n_rot / 2, .n_rows = 1, .optional = true};
    if (model_take_global(m, &freqs, &m->rope_freqs, e)) return e->status;
    freqs.role = ROLE_ROPE_FACTORS_LONG;
    freqs.optional = !gguf_find_tensor(m->gguf, tensor_role_info(ROLE_ROPE_FACTORS_SHORT)->name);
    if (model_take_global(m, &freqs, &m->long_freqs, e)) return e->status;
    freqs.role = ROLE_ROPE_FACTORS_SHORT;
    freqs.optional = !m->long_freqs;
    return model_take_global(m, &freqs, &m->short_freqs, e);
}

// Lets the attention of a layer read the cache of the last one of its kind that has one.
static enum status share_cache(const struct model *m, struct unit *unit, struct err *e) {
    struct shape *s = m->shape;
    for (int32_t u = s->n_units - 2; u > 0; u--) {
        struct unit *other = &s->units[u];
        if (other->kind != UNIT_ATTENTION || other->layer >= m->n_own_caches) continue;
        if (!other->n_kv_heads || !other->window != !unit->window) continue;
        unit->cache_unit = u;
        unit->n_kv_heads = 0;
        unit->norms_values = false;
        other->lends_cache = true;
        return OK;
    }
    return err_set(e, ERR_FORMAT, "layer %d reads the cache of an earlier one, and there is none",
                   unit->layer);
}

static bool has_experts(const struct model *m, int32_t layer) {
    return m->shape->n_experts && m->feeds[layer] && layer >= m->n_dense_layers;
}

static void set_numbers(const struct model *m, struct unit *unit) {
    const struct shape *s = m->shape;
    const char *output = tensor_role_info(ROLE_OUTPUT)->name;
    if (unit->kind == UNIT_HEAD) unit->shares_embed = !gguf_find_tensor(m->gguf, output);
    const bool attention = unit->kind == UNIT_ATTENTION;
    const bool recurrent = attention && m->recurrent[unit->layer];
    if (recurrent) unit->state_bytes = recurrent_state_bytes(&s->recurrent);
    if (attention && (!recurrent || s->recurrent.beside)) {
        unit->gated = m->family->gates_attention;
        unit->gated_apart = family_lists(m->family->needs, ROLE_ATTN_GATE);
        m->shape->has_gates_apart = m->shape->has_gates_apart || unit->gated_apart;
        unit->n_heads = m->n_heads[unit->layer];
        unit->n_kv_heads = m->n_kv_heads[unit->layer];
        unit->head_dim_k = m->head_dims[unit->layer];
        unit->head_dim_v = s->latent.rank ? 0 : unit->head_dim_k;
        unit->norms_values = m->family->norms_values;
        unit->window = m->windows[unit->layer];
    }
    if (unit->kind == UNIT_FFN || unit->kind == UNIT_EXPERTS) {
        unit->joint_norm = has_experts(m, unit->layer) && m->n_ff[unit->layer] &&
                           per_layer_joint_norm(m->gguf, unit->layer);
        m->shape->has_joint_norms = m->shape->has_joint_norms || unit->joint_norm;
    }
    if (unit->kind == UNIT_EXPERTS) {
        unit->n_experts = s->n_experts;
        unit->n_experts_used = s->n_experts_used;
        unit->n_ff_expert = s->n_ff_expert;
    }
}

// The width of a unit that has no tensors yet.
static int64_t width_of(const struct model *m, const struct unit *unit, enum dim dim) {
    return dim == DIM_FF ? m->n_ff[unit->layer] : dims_of(m->shape, unit, dim);
}

// True if the tensor is another unit's in such a layer, or nobody's: the norm before experts is
// that of a shared expert unless both have it, routed experts have the end of the layer, and
// attention to the keys of another unit has no norm for any.
static bool is_elsewhere(const struct model *m, const struct unit *unit, enum tensor_role role) {
    const bool last = tensor_role_info(role)->owner == OWNER_LAST;
    if (unit->kind == UNIT_EXPERTS)
        return role == ROLE_FFN_NORM && m->n_ff[unit->layer] && !unit->joint_norm;
    if (unit->kind == UNIT_FFN) return last && has_experts(m, unit->layer);
    return unit->cache_unit && role == ROLE_ATTN_K_NORM;
}

// A bias of something that the unit lacks would be left out silently.
static enum status check_biases(const struct unit *unit, struct err *e) {
    static const enum tensor_role pairs[][2] = {{ROLE_ATTN_NORM_BIAS, ROLE_ATTN_NORM},
                                                {ROLE_FFN_NORM_BIAS, ROLE_FFN_NORM},
                                                {ROLE_FFN_GATE_BIAS, ROLE_FFN_GATE}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        const struct unit_tensor *bias = unit_find(unit, pairs[i][0]);
        if (!bias || unit_find(unit, pairs[i][1])) continue;
        return err_set(e, ERR_UNSUPPORTED, "tensor %s: a bias without %s", bias->name,
                       tensor_role_info(pairs[i][1])->name);
    }
    return OK;
}

static enum status read_unit(struct model *m, enum unit_kind kind, int32_t layer, struct err *e) {
    struct unit *unit = model_take_unit(m, kind, layer);
    set_numbers(m, unit);
    if (unit->n_heads && layer >= m->n_own_caches && share_cache(m, unit, e)) return e->status;
    const struct block *block = blocks_of_unit(m->shape, unit);
    for (int32_t i = 0; i < block->n_tensors; i++) {
        const struct block_tensor *t = &block->tensors[i];
        const bool from_keys = t->role == ROLE_ATTN_V && unit->norms_values;
        const bool needed = family_lists(m->family->needs, t->role);
        const bool lacking = family_lists(m->family->lacks, t->role);
        const bool per_expert = tensor_use_of(t->role) == USE_EXPERTS;
        const bool per_head = tensor_role_info(t->role)->kind == KIND_HEADS;
        const struct tensor_want want = {.role = t->role,
                                         .n_cols = width_of(m, unit, t->n_cols),
                                         .n_rows = width_of(m, unit, t->n_rows),
                                         .n_experts = per_expert ? unit->n_experts : 0,
                                         .n_heads = per_head ? unit->n_heads : 0,
                                         .optional =
                                             (t->optional && !needed) || from_keys || lacking};
        const bool nowhere = want.n_cols == 0 || (want.n_rows == 0 && t->n_rows != DIM_VOCAB);
        if (nowhere || is_elsewhere(m, unit, t->role)) continue;
        if (model_take_tensor(m, &want, e)) return e->status;
    }
    if (unit_find(unit, ROLE_SHARED_GATE)) m->shape->has_shared_gates = true;
    if (kind == UNIT_FFN && !unit_find(unit, ROLE_FFN_NORM))
        unit->reads_normed = unit_find(unit - 1, ROLE_ATTN_NORM);
    return check_biases(unit, e);
}

static enum status read_layer(struct model *m, int32_t layer, struct err *e) {
    if (has_experts(m, layer) && family_lists(m->family->needs, ROLE_EXPERT_NORM))
        m->shape->has_expert_norms = true;
    if ((m->mixes[layer] && read_unit(m, UNIT_ATTENTION, layer, e)) ||
        (m->n_ff[layer] && read_unit(m, UNIT_FFN, layer, e)) ||
        (has_experts(m, layer) && read_unit(m, UNIT_EXPERTS, layer, e)))
        return e->status;
    return OK;
}

// True for tensors that are known beside the roles: experts of early files, one by one, and angles.
static bool is_early(const char *rest) {
    const char *dot = strchr(rest, '.');
    const bool expert = strncmp(rest, "ffn_", 4) == 0 && dot && isdigit((unsigned char)dot[1]);
    return expert || strncmp(rest, "attn_rot_embd.", 14) == 0;
}

// The name of a tensor in the file.
struct named {
    char text[TENSOR_NAME];
    const char *rest; // in text, behind "blk.N."; the whole of it if no layer has the tensor
    long layer;       // -1: none
};

static void read_name(const struct gguf_tensor *t, struct named *n) {
    char *rest;
    shape_set_text(n->text, sizeof n->text, t->name.bytes, t->name.length);
    n->rest = n->text;
    n->layer = -1;
    if (strncmp(n->text, "blk.", 4) != 0) return;
    const long layer = strtol(n->text + 4, &rest, 10);
    if (*rest != '.' || layer < 0) return;
    n->layer = layer;
    n->rest = rest + 1;
}

// True for tensors outside layers that add nothing to a text: encoders of images and sounds, and
// heads of models that rank texts or embed them.
static bool is_aside(const char *name) {
    static const char *const beginnings[] = {"v.",          "mm.",      "a.",
                                             "cls.output.", "dense_2.", "dense_3."};
    for (size_t i = 0; i < sizeof beginnings / sizeof *beginnings; i++)
        if (strncmp(name, beginnings[i], strlen(beginnings[i])) == 0) return true;
    return false;
}

// Refuses what would be left out silently: layers behind the last one, factors of matrices, which
// only few blocks know, and what no role has in a layer that is computed or outside layers.
static enum status check_name(const struct model *m, const struct named *n, struct err *e) {
    if (n->layer >= m->n_blocks && strncmp(n->rest, "nextn.", 6) != 0) {
        err_set(e, ERR_FORMAT, "tensor %s is of a layer that the model does not have", n->text);
        err_expected(e, "a layer below %d, the value of %s.block_count", m->n_blocks,
                     m->shape->architecture);
        return err_fix(e, "fetch the file again, or a complete conversion of the model");
    }
    const bool outside = n->layer < 0;
    if (tensor_role_find(n->rest) != ROLE_OTHER || (outside && is_aside(n->rest))) return OK;
    const char *last = strrchr(n->rest, '.');
    if (last && strcmp(last, ".scale") == 0)
        return err_set(e, ERR_UNSUPPORTED, "tensor %s: the factor of a matrix", n->text);
    if (!outside && (n->layer >= m->shape->n_layers || is_early(n->rest))) return OK;
    err_set(e, ERR_UNSUPPORTED, "tensor %s belongs to no part of a %s that is known here", n->text,
            outside ? "model" : "layer");
    return err_fix(e, "update tandem, or fetch a conversion of the model without it");
}

static enum status check_names(const struct model *m, struct err *e) {
    struct named name;
    for (uint32_t i = 0; i < m->gguf->n_tensors; i++) {
        read_name(&m->gguf->tensors[i], &name);
        if (check_name(m, &name, e)) return e->status;
    }
    return OK;
}

// True if the unit has the tensor, or a part of it, which has the same name.
static bool is_taken(const struct model *m, int32_t u, const struct gguf_tensor *t) {
    for (int32_t i = 0; i < m->shape->units[u].n_tensors; i++)
        if (m->tensors[u][i]->name.bytes == t->name.bytes) return true;
    return false;
}

// True for tensors that files have though the unit does not read them: keys and values of layers
// that read the cache of another one, and what a matrix that is read holds, too.
static bool is_idle(const struct model *m, const struct unit *unit, enum tensor_role role) {
    const bool keys = role == ROLE_ATTN_K || role == ROLE_ATTN_V || role == ROLE_ATTN_K_NORM;
    if (keys && unit->cache_unit) return true;
    if (role == ROLE_ATTN_KV_B) return unit_find(unit, ROLE_ATTN_K_B) && !m->joins_kv;
    return unit->kind == UNIT_ATTENTION && model_is_joined(m, unit, role);
}

// Divisors of angles are of the whole model, and those by length replace the others.
static bool may_be_there(const struct model *m, const struct gguf_tensor *t, long layer,
                         enum tensor_role role) {
    if (tensor_role_info(role)->owner == OWNER_NOWHERE)
        return layer < 0 && (role != ROLE_ROPE_FREQS || !m->long_freqs);
    for (int32_t u = 0; u < m->shape->n_units; u++) {
        const struct unit *unit = &m->shape->units[u];
        if (unit->layer == layer && (is_taken(m, u, t) || is_idle(m, unit, role))) return true;
    }
    return false;
}

// Refuses tensors that are known, but not to the layers of this family: the model that they are of
// computes something else.
static enum status check_taken(const struct model *m, struct err *e) {
    struct named name;
    for (uint32_t i = 0; i < m->gguf->n_tensors; i++) {
        read_name(&m->gguf->tensors[i], &name);
        const enum tensor_role role = tensor_role_find(name.rest);
        if (role == ROLE_OTHER || name.layer >= m->shape->n_layers) continue;
        if (may_be_there(m, &m->gguf->tensors[i], name.layer, role)) continue;
        err_set(e, ERR_UNSUPPORTED, "tensor %s is read by no part of this %s model", name.text,
                m->shape->architecture);
        return err_fix(e, "update tandem, or fetch a conversion of the model without it");
    }
    return OK;
}

static enum status read_units(struct model *m, struct err *e) {
    if (read_unit(m, UNIT_EMBED, -1, e)) return e->status;
    for (int32_t l = 0; l < m->shape->n_layers; l++)
        if (read_layer(m, l, e)) return e->status;
    return read_unit(m, UNIT_HEAD, -1, e);
}

enum status model_read(struct model *m, struct shape *shape, const struct gguf *g, struct err *e) {
    memset(m, 0, sizeof *m);
    memset(shape, 0, offsetof(struct shape, units)); // model_take_unit clears each unit
    m->gguf = g;
    m->shape = shape;
    if (read_names(m, e) || model_numbers(m, e) || check_names(m, e) || read_outside(m, e) ||
        read_units(m, e) || check_taken(m, e))
        return e->status;
    shape->can_run = true;
    return OK;
}

const struct gguf_tensor *model_rope_divisors(const struct model *m, int32_t n_ctx) {
    if (!m->long_freqs) return m->rope_freqs;
    return n_ctx > m->n_ctx_short ? m->long_freqs : m->short_freqs;
}

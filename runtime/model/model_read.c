/* model_read.c: see model_read.h. */
#include "runtime/model/model_read.h"

#include "runtime/model/families.h"
#include "runtime/model/model_numbers.h"
#include "runtime/model/model_take.h"

#include <string.h>

static enum status refuse(const struct model *m, struct err *e) {
    char families[256];
    if (!m->shape->architecture[0]) {
        err_set(e, ERR_FORMAT, "key general.architecture is missing");
        return err_fix(e, "this file holds no model; `tandem inspect` shows what it holds");
    }
    err_set(e, ERR_UNSUPPORTED, "general.architecture is not one that this version runs");
    err_actual(e, "%s", m->shape->architecture);
    return err_fix(e, "use a model of one of these: %s", family_list(families, sizeof families));
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
    if (model_take_global(m, &freqs, &m->long_freqs, e)) return e->status;
    freqs.role = ROLE_ROPE_FACTORS_SHORT;
    freqs.optional = !m->long_freqs;
    return model_take_global(m, &freqs, &m->short_freqs, e);
}

static void set_numbers(const struct model *m, struct unit *unit) {
    const struct shape *s = m->shape;
    const char *output = tensor_role_info(ROLE_OUTPUT)->name;
    if (unit->kind == UNIT_HEAD) unit->shares_embed = !gguf_find_tensor(m->gguf, output);
    if (unit->kind == UNIT_ATTENTION && m->recurrent[unit->layer]) {
        unit->state_bytes = delta_state_bytes(&s->delta);
    } else if (unit->kind == UNIT_ATTENTION) {
        unit->gated = m->family->gates_attention;
        unit->n_heads = s->n_heads;
        unit->n_kv_heads = s->n_kv_heads;
        unit->head_dim_k = unit->head_dim_v = s->head_dim;
        unit->window = m->windows[unit->layer];
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

static enum status read_unit(struct model *m, enum unit_kind kind, int32_t layer, struct err *e) {
    struct unit *unit = model_take_unit(m, kind, layer);
    set_numbers(m, unit);
    const struct block *block = blocks_of_unit(m->shape, unit);
    const bool reads_normed = unit_reads_normed(m->shape, m->shape->n_units - 1);
    for (int32_t i = 0; i < block->n_tensors; i++) {
        const struct block_tensor *t = &block->tensors[i];
        if (reads_normed && t->role == ROLE_FFN_NORM) continue; // the shared expert has it
        const bool per_expert = tensor_use_of(t->role) == USE_EXPERTS;
        const struct tensor_want want = {.role = t->role,
                                         .n_cols = width_of(m, unit, t->n_cols),
                                         .n_rows = width_of(m, unit, t->n_rows),
                                         .n_experts = per_expert ? unit->n_experts : 0,
                                         .optional = t->optional};
        if (model_take_tensor(m, &want, e)) return e->status;
    }
    if (unit_find(unit, ROLE_SHARED_GATE)) m->shape->has_shared_gates = true;
    return OK;
}

static enum status read_layer(struct model *m, int32_t layer, struct err *e) {
    const bool experts = m->shape->n_experts && layer >= m->n_dense_layers;
    if (read_unit(m, UNIT_ATTENTION, layer, e) ||
        (m->n_ff[layer] && read_unit(m, UNIT_FFN, layer, e)) ||
        (experts && read_unit(m, UNIT_EXPERTS, layer, e)))
        return e->status;
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
    memset(shape, 0, sizeof *shape);
    m->gguf = g;
    m->shape = shape;
    if (read_names(m, e) || model_numbers(m, e) || read_outside(m, e) || read_units(m, e))
        return e->status;
    shape->can_run = true;
    return OK;
}

const struct gguf_tensor *model_rope_divisors(const struct model *m, int32_t n_ctx) {
    if (!m->long_freqs) return m->rope_freqs;
    return n_ctx > m->n_ctx_short ? m->long_freqs : m->short_freqs;
}

/* model.c: see model.h. */
#include "runtime/model/model.h"

#include "runtime/model/arch.h"

#include <string.h>

static const struct arch *const ARCHS[] = {&arch_llama};
enum { N_ARCHS = sizeof ARCHS / sizeof *ARCHS };

static void copy_text(char *target, size_t size_bytes, struct gguf_text text) {
    size_t n = text.length < size_bytes - 1 ? text.length : size_bytes - 1;
    if (n) memcpy(target, text.bytes, n);
    target[n] = 0;
}

enum status model_read(struct model *m, const struct gguf *g, struct err *e) {
    memset(m, 0, sizeof *m);
    m->gguf = g;
    struct gguf_text architecture = {0}, name = {"unnamed", 7};
    if (gguf_read_text(g, "general.architecture", &architecture, e)) return e->status;
    if (gguf_read_text(g, "general.name", &name, e)) return e->status;
    copy_text(m->architecture, sizeof m->architecture, architecture);
    copy_text(m->name, sizeof m->name, name);
    for (int i = 0; i < N_ARCHS; i++) {
        if (strcmp(ARCHS[i]->name, m->architecture) != 0) continue;
        m->arch = ARCHS[i];
        return m->arch->read(m, e);
    }
    if (!architecture.length) {
        err_set(e, ERR_FORMAT, "key general.architecture is missing");
        return err_fix(e, "this file holds no model; `tandem inspect` shows what it holds");
    }
    err_set(e, ERR_UNSUPPORTED, "general.architecture is not one that this version runs");
    err_expected(e, "llama");
    err_actual(e, "%s", m->architecture);
    return err_fix(e, "use a model of the llama family (Llama, Mistral, SmolLM2, TinyLlama, Yi)");
}

int32_t model_unit_tensors(const struct model *m, const struct unit *unit,
                           const struct gguf_tensor **out) {
    int32_t n = 0;
    if (unit->kind == UNIT_EMBED) {
        out[n++] = m->globals[W_EMBED];
    } else if (unit->kind == UNIT_HEAD) {
        out[n++] = m->globals[m->hp.tied ? W_EMBED : W_OUTPUT];
        out[n++] = m->globals[W_OUT_NORM];
    } else {
        bool attention = unit->kind == UNIT_ATTENTION;
        int first = attention ? W_ATTN_NORM : W_FFN_NORM;
        int end = attention ? W_FFN_NORM : W_LAYER_COUNT;
        for (int slot = first; slot < end; slot++) {
            if (m->layers[unit->layer][slot]) out[n++] = m->layers[unit->layer][slot];
        }
    }
    ASSERT(n <= MAX_UNIT_TENSORS);
    return n;
}

static enum tensor_role role_of(const struct unit *unit, const char *name) {
    if (unit->kind == UNIT_HEAD && strcmp(name, "token_embd.weight") == 0) return ROLE_OUTPUT;
    return tensor_role_find(unit->layer < 0 ? name : strchr(name + 4, '.') + 1);
}

static void add_unit(struct shape *out, const struct model *m, enum unit_kind kind, int32_t layer) {
    struct unit *unit = &out->units[out->n_units++];
    *unit = (struct unit){.kind = kind, .layer = layer};
    unit->shares_embed = kind == UNIT_HEAD && m->hp.tied;
    const struct gguf_tensor *tensors[MAX_UNIT_TENSORS];
    unit->n_tensors = model_unit_tensors(m, unit, tensors);
    for (int i = 0; i < unit->n_tensors; i++) {
        const struct gguf_tensor *t = tensors[i];
        struct unit_tensor *to = &unit->tensors[i];
        *to = (struct unit_tensor){.type = t->type,
                                   .n_cols = (int32_t)t->ne[0],
                                   .n_rows = (int32_t)t->ne[1],
                                   .n_matrices = 1,
                                   .size_bytes = t->size_bytes};
        shape_set_text(to->name, sizeof to->name, t->name.bytes, t->name.length);
        to->role = role_of(unit, to->name);
        to->use = tensor_use_of(to->role);
    }
    if (kind != UNIT_ATTENTION) return;
    unit->n_heads = m->hp.n_heads;
    unit->n_kv_heads = m->hp.n_kv_heads;
    unit->head_dim_k = unit->head_dim_v = m->hp.head_dim;
}

void model_shape(const struct model *m, struct shape *out) {
    const struct hparams *hp = &m->hp;
    memset(out, 0, sizeof *out);
    shape_set_text(out->name, sizeof out->name, m->name[0] ? m->name : "unnamed",
                   m->name[0] ? strlen(m->name) : 7);
    shape_set_text(out->architecture, sizeof out->architecture, m->architecture,
                   strlen(m->architecture));
    out->n_layers = hp->n_layers;
    out->n_embd = hp->n_embd;
    out->n_heads = hp->n_heads;
    out->n_kv_heads = hp->n_kv_heads;
    out->head_dim = hp->head_dim;
    out->n_rot = hp->n_rot;
    out->n_ff = hp->n_ff;
    out->n_vocab = hp->n_vocab;
    out->can_run = true;
    out->n_ctx_train = hp->n_ctx_train;
    add_unit(out, m, UNIT_EMBED, -1);
    for (int l = 0; l < hp->n_layers; l++) {
        add_unit(out, m, UNIT_ATTENTION, l);
        add_unit(out, m, UNIT_FFN, l);
    }
    add_unit(out, m, UNIT_HEAD, -1);
}

/* families.c: see families.h. */
#include "runtime/model/families.h"

#include "runtime/model/arch.h"

#include <string.h>

static const struct arch *const ARCHS[] = {&arch_llama};
enum { N_ARCHS = sizeof ARCHS / sizeof *ARCHS };

static enum status read_names(struct model *m, struct gguf_text *architecture, struct err *e) {
    struct gguf_text name = {0};
    if (gguf_read_text(m->gguf, "general.architecture", architecture, e) ||
        gguf_read_text(m->gguf, "general.name", &name, e))
        return e->status;
    if (!name.length) name = (struct gguf_text){"unnamed", 7};
    shape_set_text(m->shape->architecture, sizeof m->shape->architecture, architecture->bytes,
                   architecture->length);
    shape_set_text(m->shape->name, sizeof m->shape->name, name.bytes, name.length);
    return OK;
}

enum status model_read(struct model *m, struct shape *shape, const struct gguf *g, struct err *e) {
    memset(m, 0, sizeof *m);
    memset(shape, 0, sizeof *shape);
    m->gguf = g;
    m->shape = shape;
    struct gguf_text architecture = {0};
    if (read_names(m, &architecture, e)) return e->status;
    for (int i = 0; i < N_ARCHS; i++) {
        if (strcmp(ARCHS[i]->name, shape->architecture) != 0) continue;
        m->arch = ARCHS[i];
        if (m->arch->read(m, e)) return e->status;
        shape->can_run = true;
        return OK;
    }
    if (!architecture.length) {
        err_set(e, ERR_FORMAT, "key general.architecture is missing");
        return err_fix(e, "this file holds no model; `tandem inspect` shows what it holds");
    }
    err_set(e, ERR_UNSUPPORTED, "general.architecture is not one that this version runs");
    err_expected(e, "llama");
    err_actual(e, "%s", shape->architecture);
    return err_fix(e, "use a model of the llama family (Llama, Mistral, SmolLM2, TinyLlama, Yi)");
}

/* arch.h: what a model family brings: how to read its numbers and tensors.
 *
 * An arch is constant data. arch_*.c include this header; families.c lists them. What units compute
 * is in planner/blocks/. Any thread. Tested by tests/runtime/test_model.c.
 */
#ifndef TANDEM_RUNTIME_MODEL_ARCH_H
#define TANDEM_RUNTIME_MODEL_ARCH_H

#include "runtime/model/model.h"

struct arch {
    const char *name; // general.architecture
    // Fills m->hp, m->tensors and m->shape from m->gguf, checking everything.
    enum status (*read)(struct model *m, struct err *e);
};

extern const struct arch arch_llama;

#endif

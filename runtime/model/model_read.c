/* model_read.c: see model_read.h. */
#include "runtime/model/model_read.h"

#include <stdio.h>

enum status model_find_tensor(struct model *m, const struct tensor_want *want,
                              const struct gguf_tensor **out, struct err *e) {
    const struct gguf_tensor *t = gguf_find_tensor(m->gguf, want->name);
    *out = t;
    if (!t) {
        if (want->optional) return OK;
        err_set(e, ERR_FORMAT, "tensor %s is missing", want->name);
        return err_fix(e, "fetch the file again, or a complete conversion of the model");
    }
    enum weight_type type;
    bool typed = want->matrix ? dtype_weight(t->type, &type) : t->type == DTYPE_F32;
    if (!typed) {
        err_set(e, ERR_UNSUPPORTED, "tensor %s has a type that has no kernel", want->name);
        err_expected(e,
                     want->matrix ? "F32 F16 BF16 Q8_0 Q4_0 Q4_1 Q5_0 Q5_1 Q4_K Q5_K Q6_K" : "F32");
        err_actual(e, "%s", dtype_name(t->type));
        return err_fix(e, "fetch a Q4_K_M or Q8_0 file of the model");
    }
    if (t->ne[0] != want->ne0 || t->ne[1] != want->ne1 || t->ne[2] != 1 || t->ne[3] != 1) {
        err_set(e, ERR_FORMAT, "tensor %s has the wrong shape", want->name);
        err_expected(e, "[%llu, %llu]", (unsigned long long)want->ne0,
                     (unsigned long long)want->ne1);
        return err_actual(e, "[%llu, %llu, %llu, %llu]", (unsigned long long)t->ne[0],
                          (unsigned long long)t->ne[1], (unsigned long long)t->ne[2],
                          (unsigned long long)t->ne[3]);
    }
    if ((uintptr_t)t->data % 4) {
        err_set(e, ERR_UNSUPPORTED, "tensor %s does not start at a multiple of 4 bytes",
                want->name);
        return err_fix(e, "convert the model with general.alignment 32");
    }
    return OK;
}

enum status model_read_int(const struct model *m, const char *key, int32_t high, int32_t *out,
                           struct err *e) {
    char name[128];
    snprintf(name, sizeof name, "%s.%s", m->architecture, key);
    uint64_t value = (uint64_t)*out;
    if (gguf_read_u64(m->gguf, name, 1, (uint64_t)high, &value, e)) return e->status;
    if (*out == 0 && value == 0) {
        err_set(e, ERR_FORMAT, "key %s is missing", name);
        return err_fix(e, "fetch a complete conversion of the model");
    }
    *out = (int32_t)value;
    return OK;
}

enum status model_read_float(const struct model *m, const char *key, float *out, struct err *e) {
    char name[128];
    snprintf(name, sizeof name, "%s.%s", m->architecture, key);
    return gguf_read_f32(m->gguf, name, out, e);
}

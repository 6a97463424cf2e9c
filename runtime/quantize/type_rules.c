/* type_rules.c: see type_rules.h. */
#include "runtime/quantize/type_rules.h"

#include "kernels/cpu/quantize.h"

#include <strings.h>

static enum status refuse_type(const char *option, const char *name, struct err *e) {
    char known[sizeof e->expected] = "";
    for (uint32_t i = 0; i < DTYPE_COUNT; i++)
        if (dtype_find(i) && quantize_knows((enum dtype)i))
            err_list_add(known, sizeof known, dtype_name((enum dtype)i));
    err_set(e, ERR_USAGE, "%s names a type that cannot be made", option);
    err_expected(e, "%s", known);
    return err_actual(e, "'%.40s'", name);
}

// Finds the type of a name; without a name *out stays as it is.
static enum status read_type(enum dtype *out, const char *option, const char *name, struct err *e) {
    if (!name) return OK;
    for (uint32_t i = 0; i < DTYPE_COUNT; i++) {
        if (!dtype_find(i) || !quantize_knows((enum dtype)i)) continue;
        *out = (enum dtype)i;
        if (strcasecmp(dtype_name(*out), name) == 0) return OK;
    }
    return refuse_type(option, name, e);
}

enum status type_rules_open(struct type_rules *r, const struct type_wishes *wishes, struct err *e) {
    *r = (struct type_rules){.output = DTYPE_COUNT,
                             .embedding = DTYPE_COUNT,
                             .pure = wishes->pure,
                             .leave_output = wishes->leave_output};
    if (read_type(&r->output, "--output-tensor-type", wishes->output, e) ||
        read_type(&r->embedding, "--token-embedding-type", wishes->embedding, e))
        return e->status;
    return OK;
}

bool type_rules_change(const struct type_rules *r) {
    return r->output != DTYPE_COUNT || r->embedding != DTYPE_COUNT || r->pure || r->leave_output;
}

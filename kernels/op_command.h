/* op_command.h: an op call as data, for backends that keep a list of what was encoded, and the op
 * table that writes such calls down.
 *
 * Expands ops.def; owns nothing. A backend defines OP_ENCODE, the name of its function of type
 * op_encode_fn, and OP_TABLE, a name, and includes op_table.inc once; the table has every entry.
 * The argument structs are copied whole, so what they point to is not looked at. Any thread. Tested
 * by tests/kernels/test_device.c.
 */
#ifndef TANDEM_KERNELS_OP_COMMAND_H
#define TANDEM_KERNELS_OP_COMMAND_H

#include "kernels/ops.h"

#include <assert.h>
#include <stddef.h>

enum op_id {
#define OP(name, ...) OP_##name,
#define OP_W          OP
#include "kernels/ops.def"
#undef OP
#undef OP_W
    OP_COUNT
};

union op_args {
#define OP(name, ...) struct name##_args name;
#define OP_W          OP
#include "kernels/ops.def"
#undef OP
#undef OP_W
};
static_assert(sizeof(union op_args) <= 128, "a list of commands stays small");

enum { OP_POINTERS_MAX = 8 }; // that the arguments of an op begin with
#define OP(name, n_pointers, last)                                                         \
    static_assert((n_pointers) <= OP_POINTERS_MAX &&                                       \
                      (n_pointers) * sizeof(void *) <= offsetof(struct name##_args, last), \
                  "ops.def and the arguments of " #name " disagree");
#define OP_W OP
#include "kernels/ops.def"
#undef OP
#undef OP_W

struct op_command {
    enum op_id op;
    enum weight_type weight; // of ops with a weight type; 0 for others
    union op_args args;
};

typedef void (*op_encode_fn)(struct stream *s, enum op_id op, enum weight_type weight,
                             const void *args, uint32_t args_bytes);

static inline const char *op_name(enum op_id op) {
    static const char *const names[OP_COUNT] = {
#define OP(name, ...) #name,
#define OP_W          OP
#include "kernels/ops.def"
#undef OP
#undef OP_W
    };
    return names[op];
}

#endif

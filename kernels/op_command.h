/* op_command.h: an op call as data, for backends that keep a list of what was encoded, and the op
 * table that writes such calls down.
 *
 * Expands ops.def; owns nothing. A backend defines OP_ENCODE, the name of its function of type
 * op_encode_fn, and OP_TABLE, a name, and includes op_table.inc once; the table has every entry of
 * every weight type. The argument structs are copied whole, so what they point to is not looked at.
 * Any thread. Tested by tests/kernels/test_device.c.
 */
#ifndef TANDEM_KERNELS_OP_COMMAND_H
#define TANDEM_KERNELS_OP_COMMAND_H

#include "kernels/ops.h"

#include <assert.h>

enum op_id {
#define OP(name)   OP_##name,
#define OP_W(name) OP_##name,
#include "kernels/ops.def"
#undef OP
#undef OP_W
    OP_COUNT
};

union op_args {
#define OP(name)   struct name##_args name;
#define OP_W(name) struct name##_args name;
#include "kernels/ops.def"
#undef OP
#undef OP_W
};
static_assert(sizeof(union op_args) <= 128, "a list of commands stays small");

struct op_command {
    enum op_id op;
    enum weight_type weight; // of ops with a weight type; 0 for others
    union op_args args;
};

typedef void (*op_encode_fn)(struct stream *s, enum op_id op, enum weight_type weight,
                             const void *args, uint32_t args_bytes);

static inline const char *op_name(enum op_id op) {
    static const char *const names[OP_COUNT] = {
#define OP(name)   #name,
#define OP_W(name) #name,
#include "kernels/ops.def"
#undef OP
#undef OP_W
    };
    return names[op];
}

// A weight type has no name that the preprocessor can carry from one list into the other, so the
// functions are numbered; the assertion tells when a number is missing.
#define OP_EACH_WEIGHT(X, name) \
    X(name, 0)                  \
    X(name, 1)                  \
    X(name, 2)                  \
    X(name, 3)                  \
    X(name, 4)                  \
    X(name, 5)                  \
    X(name, 6)                  \
    X(name, 7)                  \
    X(name, 8)                  \
    X(name, 9)                  \
    X(name, 10)
static_assert(WEIGHT_COUNT == 11, "OP_EACH_WEIGHT lists every weight type");

#define OP_ENCODER(name)                                                          \
    static void encode_##name(struct stream *s, const struct name##_args *args) { \
        OP_ENCODE(s, OP_##name, (enum weight_type)0, args, sizeof *args);         \
    }
#define OP_ENCODER_OF_WEIGHT(name, weight)                                                   \
    static void encode_##name##_##weight(struct stream *s, const struct name##_args *args) { \
        OP_ENCODE(s, OP_##name, (enum weight_type)(weight), args, sizeof *args);             \
    }
#define OP_ENCODER_ENTRY(name, weight) encode_##name##_##weight,

#endif

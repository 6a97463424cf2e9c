/* tensor_roles.h: the roles of tensors in their units: name in files, kind, and cut when the unit
 * is split.
 *
 * Expands tensor_roles.def, the one list. Constants; nothing is owned. Must not know a model
 * family. Any thread. Included through planner/planner.h. Tested by tests/planner/test_shape.c.
 */
#ifndef TANDEM_PLANNER_SHAPE_TENSOR_ROLES_H
#define TANDEM_PLANNER_SHAPE_TENSOR_ROLES_H

#include <stdbool.h>

enum tensor_role {
    ROLE_OTHER, // a tensor that the list does not name
#define ROLE(id, name, owner, kind, cut) ROLE_##id,
#define ALIAS(id, name)
#include "planner/shape/tensor_roles.def"
#undef ROLE
#undef ALIAS
    ROLES
};

// The unit that has a tensor. The first five are as enum unit_kind of shape.h.
enum tensor_owner {
    OWNER_EMBED,
    OWNER_ATTENTION,
    OWNER_FFN,
    OWNER_EXPERTS,
    OWNER_HEAD,
    OWNER_AFTER, // the dense FFN of the layer, or its experts if it has no dense FFN
    OWNER_LAST,  // the experts of the layer, or its dense FFN if it has no experts
    OWNER_POST, // attention if another norm comes before the FFN; otherwise the tensor is the FFN's
                // norm
    OWNER_FIRST, // attention; in a layer without, the tensor is the norm of the FFN or the experts
    OWNER_NOWHERE, // no unit: the tensor is small and every device has it
};

enum tensor_kind {
    KIND_MATRIX,  // a matmul reads all of it
    KIND_VECTOR,  // read element by element
    KIND_ROWS,    // one row is read for each token
    KIND_EXPERTS, // a matrix for each expert
    KIND_BIASES,  // a vector for each expert
    KIND_HEADS,   // a matrix for each attention head; a matmul reads all of them
    KIND_ROUTER,  // a matrix that stays F32 in quantised files
};

// The part of a tensor on each device when its unit is split between two.
enum tensor_cut {
    CUT_NONE,    // all of a vector is on both, all of a matrix on the accelerator
    CUT_FIRST,   // rows of a matrix that the unit's first phase multiplies with
    CUT_LAST,    // rows of the matrix whose products the last phase adds to the residual stream
    CUT_EXPERTS, // the matrices of the first experts, and those of the last ones
};

struct tensor_role_info {
    const char *name; // in files, after "blk.N." if a layer has the tensor; "" for ROLE_OTHER
    enum tensor_owner owner;
    enum tensor_kind kind;
    enum tensor_cut cut;
};
const struct tensor_role_info *tensor_role_info(enum tensor_role role);

// Finds the role of a tensor by its name in a file, without "blk.N."; ROLE_OTHER if the list lacks
// it.
enum tensor_role tensor_role_find(const char *name);

// The i-th name of a role in files, counted from 0: its own, then its aliases; NULL behind the
// last.
const char *tensor_role_name(enum tensor_role role, int i);

// True if quantised files keep such a tensor in F32.
bool tensor_role_is_f32(enum tensor_role role);

#endif

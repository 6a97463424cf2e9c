/* tensor_roles.c: see tensor_roles.h. */
#include "planner/shape/tensor_roles.h"

#include "base/err.h"

#include <string.h>

static const struct tensor_role_info INFOS[ROLES] = {
    [ROLE_OTHER] = {"", OWNER_NOWHERE, KIND_MATRIX, CUT_NONE},
#define ROLE(id, name, owner, kind, cut) \
    [ROLE_##id] = {name, OWNER_##owner, KIND_##kind, CUT_##cut},
#define ALIAS(id, name)
#include "planner/shape/tensor_roles.def"
#undef ROLE
#undef ALIAS
};

static const struct {
    enum tensor_role role;
    const char *name;
} NAMES[] = {
#define ROLE(id, name, owner, kind, cut) {ROLE_##id, name},
#define ALIAS(id, name)                  {ROLE_##id, name},
#include "planner/shape/tensor_roles.def"
#undef ROLE
#undef ALIAS
};

const struct tensor_role_info *tensor_role_info(enum tensor_role role) {
    ASSERT((unsigned)role < ROLES);
    return &INFOS[role];
}

enum tensor_role tensor_role_find(const char *name) {
    for (size_t i = 0; i < sizeof NAMES / sizeof *NAMES; i++)
        if (strcmp(NAMES[i].name, name) == 0) return NAMES[i].role;
    return ROLE_OTHER;
}

const char *tensor_role_name(enum tensor_role role, int i) {
    for (size_t k = 0; k < sizeof NAMES / sizeof *NAMES; k++)
        if (NAMES[k].role == role && i-- == 0) return NAMES[k].name;
    return NULL;
}

bool tensor_role_is_f32(enum tensor_role role) {
    switch (tensor_role_info(role)->kind) {
    case KIND_VECTOR:
    case KIND_BIASES:
    case KIND_ROUTER: return true;
    default: return false;
    }
}

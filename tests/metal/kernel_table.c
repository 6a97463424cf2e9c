/* kernel_table.c: see kernel_table.h. A kernel that is listed but in no .metal file does not link.
 */
#include "tests/metal/kernel_table.h"

#include <string.h>

#define METAL_KERNEL(name, ...) extern const struct metal_function metal_function_##name;
#include "kernels/metal/kernels.def"
#undef METAL_KERNEL

const struct metal_function *const metal_functions[] = {
#define METAL_KERNEL(name, ...) &metal_function_##name,
#include "kernels/metal/kernels.def"
#undef METAL_KERNEL
    NULL,
};

const struct metal_function *metal_function_find(const char *name) {
    for (const struct metal_function *const *f = metal_functions; *f; f++)
        if (!strcmp((*f)->name, name)) return *f;
    return NULL;
}

/* run_kernel.c: see run_kernel.h. */
#include "tests/metal/run_kernel.h"

#include "tests/metal/kernel_table.h"

#include <stdalign.h>
#include <stdio.h>
#include <string.h>

bool run_kernel(struct simt *engine, const char *name, struct metal_grid grid, const void *params,
                uint32_t n_pointers, struct simt_report *report) {
    static alignas(16) char nothing[64]; // what a NULL pointer is bound to
    const struct metal_function *function = metal_function_find(name);
    if (!function) {
        snprintf(report->text, sizeof report->text, "there is no kernel %s", name);
        return false;
    }
    struct metal_bound bound = {.buffer = {(void *)(uintptr_t)params}};
    for (uint32_t k = 0; k < n_pointers; k++) {
        memcpy(&bound.buffer[k + 1], (const char *)params + k * sizeof(void *), sizeof(void *));
        if (!bound.buffer[k + 1]) bound.buffer[k + 1] = nothing;
    }
    const struct simt_launch launch = {
        .kernel = function->run,
        .params = &bound,
        .name = name,
        .grid = {grid.x, grid.y, grid.z},
        .block = {grid.threads, 1, 1},
        .shared_bytes = grid.threadgroup_bytes,
    };
    return simt_run(engine, &launch, report);
}

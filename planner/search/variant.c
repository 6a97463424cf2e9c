/* variant.c: see variant.h. */
#include "planner/search/variant.h"

#include "planner/plan/accounts.h"
#include "planner/plan/footprint.h"

#include <stdio.h>

static const uint64_t GIB = UINT64_C(1) << 30;
enum { LEAST_CONTEXT = 512, MORE_RAM_GIB = 4 };

static bool add_vram(struct variant *v) {
    const int8_t accelerator = machine_accelerator(&v->machine);
    struct machine_device *gpu = &v->machine.devices[accelerator];
    if (accelerator == DEVICE_HOST) return false;
    gpu->budget_bytes += GIB;
    gpu->capacity_bytes += GIB;
    if (v->constraints.vram_bytes) v->constraints.vram_bytes += GIB;
    return true;
}

// RAM helps where the plan leaves less than a sixteenth of it.
static bool add_ram(struct variant *v, const struct plan *plan) {
    const uint64_t more = MORE_RAM_GIB * GIB, limit = v->constraints.ram_bytes;
    struct machine_device *cpu = &v->machine.devices[DEVICE_HOST];
    const uint64_t room = limit && limit < cpu->budget_bytes ? limit : cpu->budget_bytes;
    if (plan_device_bytes(plan, DEVICE_HOST) < room - room / 16) return false;
    cpu->budget_bytes += more;
    cpu->capacity_bytes += more;
    if (limit) v->constraints.ram_bytes += more;
    return true;
}

static bool shorten_context(struct workload *w) {
    w->n_ctx /= 2;
    if (w->n_prompt > w->n_ctx) w->n_prompt = w->n_ctx;
    if (w->n_gen > w->n_ctx) w->n_gen = w->n_ctx;
    return w->n_ctx >= LEAST_CONTEXT;
}

// The type that most bytes of the weights have.
static const char *main_type(const struct shape *shape) {
    uint64_t bytes[DTYPE_COUNT] = {0};
    int most = 0;
    for (int u = 0; u < shape->n_units; u++)
        for (int i = 0; i < shape->units[u].n_tensors; i++)
            bytes[shape->units[u].tensors[i].type] += shape->units[u].tensors[i].size_bytes;
    for (int t = 1; t < DTYPE_COUNT; t++)
        if (bytes[t] > bytes[most]) most = t;
    return dtype_name((enum dtype)most);
}

bool variant_make(struct variant *v, enum advice advice, const struct plan *plan,
                  struct shape *smaller, char text[ADVICE_CHARS]) {
    switch (advice) {
    case ADVICE_VRAM: snprintf(text, ADVICE_CHARS, "1 GiB more of VRAM"); return add_vram(v);
    case ADVICE_RAM:
        snprintf(text, ADVICE_CHARS, "%d GiB more of RAM", MORE_RAM_GIB);
        return add_ram(v, plan);
    case ADVICE_LAYERS_AUTO:
        snprintf(text, ADVICE_CHARS, "-ngl auto");
        if (v->constraints.gpu_layers == GPU_LAYERS_AUTO) return false;
        v->constraints.gpu_layers = GPU_LAYERS_AUTO;
        return true;
    case ADVICE_SMALLER_QUANT:
        if (!shape_smaller_quant(v->shape, smaller)) return false;
        snprintf(text, ADVICE_CHARS, "a smaller quantization, mostly %s", main_type(smaller));
        v->shape = smaller;
        return true;
    case ADVICE_SHORTER_CONTEXT:
        snprintf(text, ADVICE_CHARS, "-c %d (half of the context)", v->workload.n_ctx / 2);
        return shorten_context(&v->workload);
    case ADVICE_KV_Q8_0:
        snprintf(text, ADVICE_CHARS, "-ctk q8_0 -ctv q8_0 (a smaller KV cache)");
        return footprint_shrink_kv(&v->workload, v->shape);
    case ADVICES: break;
    }
    ASSERT(false);
    return false;
}

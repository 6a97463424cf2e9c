/* plan.c: shows a plan to a person. Owns nothing; writes only to the stream it is given. Tested by
 * tests/test_planner.c. */
#include "planner/planner.h"

static const double MIB = 1024.0 * 1024.0;

const char *unit_kind_name(enum unit_kind kind) {
    static const char *const names[UNIT_KINDS] = {"embed", "attention", "ffn", "head"};
    return (unsigned)kind < UNIT_KINDS ? names[kind] : "unknown";
}

int32_t plan_layers_on_gpu(const struct plan *plan) {
    if (plan->machine.n_devices < 2) return 0;
    int32_t layers = plan->unit_device[plan->n_units - 1] == 1;
    for (int u = 1; u + 1 < plan->n_units; u += 2) {
        layers += plan->unit_device[u] == 1 && plan->unit_device[u + 1] == 1;
    }
    return layers;
}

// One character per unit: where it lives. "C" the CPU, "g" the accelerator.
static void print_strip(const struct plan *plan, FILE *out) {
    fprintf(out, "placement (embed, attention+ffn per layer, head; C cpu, g accelerator)\n  ");
    for (int u = 0; u < plan->n_units; u++) {
        if (u == 1 || u + 1 == plan->n_units || (u > 1 && u % 2 == 1)) fputc(' ', out);
        fputc(plan->unit_device[u] == 0 ? 'C' : 'g', out);
    }
    fputc('\n', out);
}

void plan_print(const struct plan *plan, const struct shape *shape, FILE *out) {
    fprintf(out, "%s (%s): %d layers, context %d, micro-batch %d, kv %s/%s\n", shape->name,
            shape->architecture, shape->n_layers, plan->workload.n_ctx, plan->workload.n_ubatch,
            dtype_name(plan->workload.kv_type_k), dtype_name(plan->workload.kv_type_v));
    fprintf(out, "%-40s %10s %10s %10s %10s %10s %10s  MiB\n", "device", "weights", "kv", "scratch",
            "staging", "total", "budget");
    for (int d = 0; d < plan->machine.n_devices; d++) {
        const uint64_t *b = plan->devices[d].bytes;
        uint64_t total = b[PLAN_WEIGHTS] + b[PLAN_KV] + b[PLAN_SCRATCH] + b[PLAN_STAGING];
        fprintf(out, "%-40.40s %10.2f %10.2f %10.2f %10.2f %10.2f %10.2f\n",
                plan->machine.devices[d].name, (double)b[PLAN_WEIGHTS] / MIB,
                (double)b[PLAN_KV] / MIB, (double)b[PLAN_SCRATCH] / MIB,
                (double)b[PLAN_STAGING] / MIB, (double)total / MIB,
                (double)plan->machine.devices[d].budget_bytes / MIB);
    }
    print_strip(plan, out);
    struct simulation one;
    plan_simulate(plan, 1, 1, &one);
    fprintf(out, "one token: %d steps, %d copies of %.1f KiB, weights read", one.n_steps,
            one.n_copies, (double)one.copied_bytes / 1024.0);
    for (int d = 0; d < plan->machine.n_devices; d++) {
        fprintf(out, " %s %.2f MiB%s", plan->machine.devices[d].kind,
                (double)one.weight_bytes[d] / MIB, d + 1 < plan->machine.n_devices ? "," : "\n");
    }
}

void plan_print_steps(const struct plan *plan, const struct shape *shape, enum batch_class batch,
                      FILE *out) {
    static const char *const names[] = {"inputs", "compute", "send", "wait", "logits"};
    for (int i = 0; i < plan->n_steps[batch]; i++) {
        const struct step *step = &plan->steps[batch][i];
        fprintf(out, "%4d %-8s %-6s", i, names[step->kind],
                plan->machine.devices[step->device].kind);
        if (step->kind == STEP_COMPUTE) {
            const struct unit *unit = &shape->units[step->unit];
            fprintf(out, " %s", unit_kind_name(unit->kind));
            if (unit->layer >= 0) fprintf(out, " %d", unit->layer);
            fprintf(out, ", %llu bytes of weights",
                    (unsigned long long)plan->unit_read_bytes[step->unit]);
        } else if (step->kind == STEP_SEND || step->kind == STEP_WAIT) {
            fprintf(out, " %s %s", step->kind == STEP_SEND ? "to" : "for",
                    plan->machine.devices[step->peer].kind);
        }
        if (step->bytes_per_row)
            fprintf(out, ", %llu bytes per row", (unsigned long long)step->bytes_per_row);
        if (step->bytes_fixed) fprintf(out, ", %llu bytes", (unsigned long long)step->bytes_fixed);
        fputc('\n', out);
    }
}

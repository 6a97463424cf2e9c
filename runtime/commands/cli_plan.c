/* cli_plan.c: `tandem plan`: plans where a model would go and how fast it would be, from its header
 * or its shape alone, on this machine or on another. See commands.h. */
#include "runtime/commands/commands.h"

#include "base/mem.h"
#include "base/new_file.h"
#include "runtime/host/devices.h"
#include "runtime/host/draft_place.h"
#include "runtime/host/plan_request.h"
#include "runtime/report/report_json.h"

#include <string.h>

struct planning { // too big for the stack
    struct engine_options options;
    struct shape shape;
    struct machine machine;
    struct plan plan;
    struct engine_options draft_options; // with a draft model
    struct shape draft_shape;
    struct plan draft_plan;
    struct advice_result advice[ADVICES];
    struct device *devices[MAX_DEVICES];
    int32_t n_devices;
};

// ---- The plan -----------------------------------------------------------------------------------

// Reads the machine that is named, or this one, whose devices are then open.
static enum status read_machine(struct planning *p, const char *name, struct err *e) {
    if (!name) {
        if (devices_open(p->devices, &p->n_devices, &p->options, e)) return e->status;
        return devices_machine(&p->machine, p->devices, p->n_devices, &p->options, e);
    }
    if (cli_read_machine(&p->machine, name, e)) return e->status;
    return p->machine.rates == RATES_NONE ? machine_take_nearest_rates(&p->machine, e) : OK;
}

// Plans the draft model, and leaves the rest of the machine to the model.
static enum status solve_draft(struct planning *p, struct cli *cli, struct err *e) {
    const struct cli_options *o = &cli->options;
    const struct draft_shapes shapes = {&p->shape, &p->draft_shape};
    if (o->drafts != DRAFTS_MODEL) return OK;
    cli_draft_options(cli, &p->draft_options);
    if (cli_read_draft_shape(&p->draft_shape, o, e)) return e->status;
    return draft_plan(&p->draft_plan, &p->draft_options, &p->options, &shapes, &p->machine, e);
}

static enum status solve(struct planning *p, struct cli *cli, struct err *e) {
    const char *machine = cli->options.machine;
    if (read_machine(p, machine, e) || solve_draft(p, cli, e)) return e->status;
    if (machine) return plan_request_solve(&p->plan, &p->shape, &p->machine, &p->options, e);
    return devices_plan(&p->plan, &p->shape, p->devices, p->n_devices, &p->options, e);
}

// Advice keeps the limits and the workload of a plan file, but not its placement.
static enum status advise(struct planning *p, struct err *e) {
    struct constraints constraints = {.gpu_layers = GPU_LAYERS_AUTO,
                                      .vram_bytes = p->options.constraints.vram_bytes,
                                      .ram_bytes = p->options.constraints.ram_bytes};
    struct engine_options silent = p->options;
    silent.log = NULL; // the same was said before
    if (p->plan.machine.rates == RATES_NONE) return OK;
    if (!silent.plan_path &&
        plan_request_constraints(&constraints, &p->shape, &p->plan.machine, &silent, e))
        return e->status;
    return planner_advise(&p->plan, &p->shape, &constraints, silent.workload.n_ubatch, p->advice,
                          e);
}

// ---- What comes out -----------------------------------------------------------------------------

static enum status write_plan(const struct planning *p, bool steps, struct err *e) {
    const struct plan *plan = &p->plan;
    const struct shape *shape = &p->shape;
    json_t *root = report_json_plan(plan, shape);
    json_object_set_new(root, "model", report_json_text(shape->name, strlen(shape->name)));
    json_object_set_new(root, "architecture",
                        report_json_text(shape->architecture, strlen(shape->architecture)));
    json_object_set_new(root, "weights_bytes", report_json_count(shape_weight_bytes(shape)));
    json_object_set_new(root, "can_run", json_boolean(shape->can_run));
    json_object_set_new(root, "units", report_json_units(plan, shape));
    json_object_set_new(root, "advice_now", report_json_advice_now(plan, shape));
    json_object_set_new(root, "advice", report_json_advice(plan, shape, p->advice));
    if (p->draft_plan.n_units)
        json_object_set_new(root, "draft_model", report_json_plan(&p->draft_plan, &p->draft_shape));
    if (steps) {
        json_object_set_new(root, "steps_one", report_json_steps(plan, shape, BATCH_ONE));
        json_object_set_new(root, "steps_prefill", report_json_steps(plan, shape, BATCH_PREFILL));
    }
    return report_json_write(root, stdout, e);
}

// Ends with what to type next: the same options for a conversation.
static void print_command(const struct planning *p, const struct cli_options *o) {
    if (!p->shape.can_run || o->quiet) return;
    printf("to run it%s: tandem chat%s", o->machine ? " there" : "", o->shape ? " -m FILE" : "");
    cli_options_print_again(o, COMMAND_CHAT, stdout);
    putchar('\n');
}

static enum status print_plan(const struct planning *p, const struct cli_options *o,
                              struct err *e) {
    if (o->json) return write_plan(p, o->verbose, e);
    if (p->draft_plan.n_units) {
        printf("the draft model:\n");
        plan_print(&p->draft_plan, &p->draft_shape, o->verbose, stdout);
        printf("the model, in what that leaves:\n");
    }
    plan_print(&p->plan, &p->shape, o->verbose, stdout);
    plan_print_advice(&p->plan, &p->shape, p->advice, stdout);
    print_command(p, o);
    if (!o->verbose) return OK;
    printf("steps for one token\n");
    plan_print_steps(&p->plan, &p->shape, BATCH_ONE, stdout);
    printf("steps for a prompt\n");
    plan_print_steps(&p->plan, &p->shape, BATCH_PREFILL, stdout);
    return OK;
}

static enum status write_steps(FILE *out, const void *context, struct err *e) {
    const struct planning *p = context;
    return plan_save(&p->plan, &p->shape, out, e);
}

static enum status save_plan(const struct planning *p, const char *path, struct err *e) {
    return path ? new_file_print(path, write_steps, p, e) : OK;
}

enum status cli_plan(struct cli *cli, struct err *e) {
    const struct cli_options *o = &cli->options;
    if (cli_options_list_names(o)) return cli_print_names(o, e);
    struct planning *p = mem_alloc(1, sizeof *p);
    if (!p) return err_memory(e, sizeof *p, "the plan");
    cli_engine_options(cli, &p->options);
    enum status status = OK;
    if (cli_read_shape(&p->shape, o, e) || solve(p, cli, e) || advise(p, e) ||
        save_plan(p, o->save_path, e) || print_plan(p, o, e))
        status = e->status;
    devices_close(p->devices);
    mem_free(p);
    return status;
}

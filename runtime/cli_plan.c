/* cli_plan.c: `tandem plan`: where a model would go, from its header alone. See cli_command.h. */
#include "base/mem.h"
#include "runtime/cli_command.h"
#include "runtime/gguf.h"
#include "runtime/model.h"
#include "runtime/placement.h"
#include "runtime/report.h"

#include <string.h>

struct planning { // too big for the stack
    struct gguf gguf;
    struct model model;
    struct shape shape;
    struct plan plan;
    struct device *devices[MAX_DEVICES];
    int32_t n_devices;
};

static json_t *steps_report(const struct plan *plan, enum batch_class class) {
    static const char *const kinds[] = {"inputs", "compute", "send", "wait", "logits"};
    json_t *list = json_array();
    for (int32_t i = 0; i < plan->n_steps[class]; i++) {
        const struct step *step = &plan->steps[class][i];
        json_array_append_new(list,
                              json_pack("{s:s, s:i, s:i, s:i}", "kind", kinds[step->kind], "device",
                                        step->device, "peer", step->peer, "unit", step->unit));
    }
    return list;
}

static enum status write_plan(const struct planning *p, bool steps, struct err *e) {
    json_t *root = report_plan(&p->plan);
    json_object_set_new(root, "model", report_text(p->shape.name, strlen(p->shape.name)));
    json_object_set_new(root, "architecture",
                        report_text(p->shape.architecture, strlen(p->shape.architecture)));
    if (steps) {
        json_object_set_new(root, "steps_one", steps_report(&p->plan, BATCH_ONE));
        json_object_set_new(root, "steps_prefill", steps_report(&p->plan, BATCH_PREFILL));
    }
    return report_write_json(root, stdout, e);
}

static enum status print_plan(const struct planning *p, const struct cli_options *o,
                              struct err *e) {
    if (o->json) return write_plan(p, o->verbose, e);
    plan_print(&p->plan, &p->shape, stdout);
    if (!o->verbose) return OK;
    printf("steps for one token\n");
    plan_print_steps(&p->plan, &p->shape, BATCH_ONE, stdout);
    printf("steps for a prompt\n");
    plan_print_steps(&p->plan, &p->shape, BATCH_PREFILL, stdout);
    return OK;
}

static enum status read_shape(struct planning *p, const char *path, struct err *e) {
    if (gguf_open(&p->gguf, path, e)) return e->status;
    if (model_read(&p->model, &p->gguf, e)) return err_context(e, "%s", path);
    model_shape(&p->model, &p->shape);
    return OK;
}

enum status cli_plan(struct cli *cli, struct err *e) {
    struct engine_options options;
    cli_engine_options(cli, &options);
    struct planning *p = mem_alloc(1, sizeof *p);
    if (!p) return err_memory(e, sizeof *p, "the plan");
    enum status status = OK;
    if (read_shape(p, options.model_path, e) ||
        placement_open_devices(p->devices, &p->n_devices, &options, e) ||
        placement_solve(&p->plan, &p->shape, p->devices, p->n_devices, &options, e) ||
        print_plan(p, &cli->options, e))
        status = e->status;
    placement_close_devices(p->devices);
    gguf_close(&p->gguf);
    mem_free(p);
    return status;
}

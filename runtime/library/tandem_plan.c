/* tandem_plan.c: plans and devices of tandem.h, without loading a model. See tandem_plan.h. */
#include "runtime/library/tandem_plan.h"

#include "base/mem.h"
#include "runtime/host/devices.h"
#include "runtime/host/draft_place.h"
#include "runtime/library/tandem_error.h"
#include "runtime/library/tandem_options.h"
#include "runtime/model/gguf_shape.h"
#include "runtime/text/vocab_match.h"

#include <errno.h>
#include <string.h>

enum { TEXT_BYTES = 1 << 16 }; // more than plan_print writes

struct plan_holder {         // a struct tandem_plan with the arrays that it points to
    struct tandem_plan plan; // first, so that both have one address
    struct tandem_plan_device devices[MAX_DEVICES];
    char model[64], architecture[32];
    char text[TEXT_BYTES];
    struct tandem_plan_layer layers[];
};

// ---- The plan -----------------------------------------------------------------------------------

static double per_second(double count, double us) { return us > 0 ? count * 1e6 / us : 0; }

static void tell_times(struct tandem_plan *out, const struct plan *plan,
                       const struct shape *shape) {
    struct prediction p;
    if (plan->machine.rates == RATES_NONE) return;
    plan_predict(plan, shape, &p);
    out->measured = plan->machine.rates == RATES_MEASURED;
    out->prompt_tokens_per_s = per_second(plan->workload.n_prompt, p.prompt_us);
    out->decode_tokens_per_s = per_second(1, p.decode_us);
    out->first_token_s = p.prompt_us / 1e6;
}

static void tell_device(struct tandem_plan_device *out, const struct plan *plan, int32_t d) {
    const struct machine_device *device = &plan->machine.devices[d];
    const uint64_t *bytes = plan->devices[d].bytes;
    *out = (struct tandem_plan_device){.weights_bytes = bytes[PLAN_WEIGHTS],
                                       .kv_bytes = bytes[PLAN_KV],
                                       .scratch_bytes = bytes[PLAN_SCRATCH],
                                       .staging_bytes = bytes[PLAN_STAGING],
                                       .budget_bytes = device->budget_bytes};
    memcpy(out->name, device->name, sizeof out->name);
    memcpy(out->kind, device->kind, sizeof out->kind);
}

static void tell_layers(struct tandem_plan_layer *layers, const struct plan *plan,
                        const struct shape *shape) {
    for (int32_t l = 0; l < shape->n_layers; l++)
        layers[l] = (struct tandem_plan_layer){
            .attention_device = -1, .ffn_device = -1, .experts_device = -1};
    for (int32_t u = 0; u < plan->n_units; u++) {
        const struct unit *unit = &shape->units[u];
        const struct unit_place *place = &plan->place.units[u];
        if (unit->layer < 0) continue;
        struct tandem_plan_layer *layer = &layers[unit->layer];
        // The CPU has all of its own units, and some parts of split ones.
        const int parts = place->device == 0 ? UNIT_PARTS : place->cpu_parts;
        const uint8_t percent = (uint8_t)(100 * parts / UNIT_PARTS);
        if (unit->kind == UNIT_EXPERTS) {
            layer->experts_device = place->device;
            layer->experts_cpu_percent = percent;
            layer->experts_streamed = place->streamed;
        }
        if (unit->kind == UNIT_ATTENTION) {
            layer->attention_device = place->device;
            layer->attention_cpu_percent = percent;
            layer->attention_streamed = place->streamed;
        }
        if (unit->kind == UNIT_FFN) {
            layer->ffn_device = place->device;
            layer->ffn_cpu_percent = percent;
            layer->ffn_streamed = place->streamed;
        }
    }
}

static enum status tell_text(char text[TEXT_BYTES], const struct plan *plan,
                             const struct shape *shape, struct err *e) {
    FILE *out = fmemopen(text, TEXT_BYTES, "w");
    if (!out) return err_errno(e, errno, "the text of a plan");
    plan_print(plan, shape, false, out);
    (void)fclose(out);
    text[TEXT_BYTES - 1] = 0;
    return OK;
}

enum status tandem_plan_make(struct tandem_plan **out, const struct plan *plan,
                             const struct shape *shape, struct err *e) {
    const size_t size_bytes =
        sizeof(struct plan_holder) + (size_t)shape->n_layers * sizeof(struct tandem_plan_layer);
    struct plan_holder *holder = mem_alloc(1, size_bytes);
    *out = NULL;
    if (!holder) return err_memory(e, size_bytes, "the plan");
    if (tell_text(holder->text, plan, shape, e)) {
        mem_free(holder);
        return e->status;
    }
    memcpy(holder->model, shape->name, sizeof holder->model);
    memcpy(holder->architecture, shape->architecture, sizeof holder->architecture);
    holder->plan = (struct tandem_plan){.model = holder->model,
                                        .architecture = holder->architecture,
                                        .can_run = shape->can_run,
                                        .n_ctx = plan->workload.n_ctx,
                                        .n_ubatch = plan->workload.n_ubatch,
                                        .n_prompt = plan->workload.n_prompt,
                                        .n_gen = plan->workload.n_gen,
                                        .n_devices = (size_t)plan->machine.n_devices,
                                        .n_layers = (size_t)shape->n_layers,
                                        .devices = holder->devices,
                                        .layers = holder->layers,
                                        .text = holder->text};
    tell_times(&holder->plan, plan, shape);
    for (int32_t d = 0; d < plan->machine.n_devices; d++) tell_device(&holder->devices[d], plan, d);
    tell_layers(holder->layers, plan, shape);
    *out = &holder->plan;
    return OK;
}

void tandem_plan_free(struct tandem_plan *plan) { mem_free(plan); }

// ---- Without a model ----------------------------------------------------------------------------

struct planning { // too big for the stack
    struct tandem_request request;
    struct shape shape;
    struct plan plan;
    struct device *devices[MAX_DEVICES];
    int32_t n_devices;
};

static enum status open_devices(struct planning *p, const char *model_path,
                                const struct tandem_engine_options *options, struct err *e) {
    if (tandem_request_read(&p->request, model_path, options, e)) return e->status;
    p->request.engine.calibrate = false; // a plan without a model to load measures nothing
    return devices_open(p->devices, &p->n_devices, &p->request.engine, e);
}

static enum status read_shape(struct shape *out, const char *model_path, struct err *e) {
    if (!model_path) return err_set(e, ERR_USAGE, "the path of the model is NULL");
    return gguf_shape_of_file(out, model_path, e);
}

struct draft_planning { // too big for the stack
    struct shape shape;
    struct machine machine;
    struct plan plan;
};

// Leaves the model what a draft model leaves.
static enum status plan_draft(struct planning *p, struct err *e) {
    struct tandem_request *r = &p->request;
    if (!r->draft.model_path) return OK;
    struct draft_planning *d = mem_alloc(1, sizeof *d);
    if (!d) return err_memory(e, sizeof *d, "the plan of the draft model");
    const struct draft_shapes shapes = {&p->shape, &d->shape};
    enum status status = OK;
    if (gguf_shape_of_file(&d->shape, r->draft.model_path, e) ||
        vocab_match_files(r->engine.model_path, r->draft.model_path, e) ||
        devices_machine(&d->machine, p->devices, p->n_devices, &r->engine, e) ||
        draft_plan(&d->plan, &r->draft, &r->engine, &shapes, &d->machine, e))
        status = e->status;
    mem_free(d);
    return status;
}

enum tandem_status tandem_plan_model(struct tandem_plan **out, const char *model_path,
                                     const struct tandem_engine_options *options,
                                     struct tandem_error *e) {
    struct err err = {0};
    struct planning *p = mem_alloc(1, sizeof *p);
    *out = NULL;
    if (!p) return tandem_error_give(err_memory(&err, sizeof *p, "the plan"), &err, e);
    enum status status = OK;
    if (read_shape(&p->shape, model_path, &err) || open_devices(p, model_path, options, &err) ||
        plan_draft(p, &err) ||
        devices_plan(&p->plan, &p->shape, p->devices, p->n_devices, &p->request.engine, &err) ||
        tandem_plan_make(out, &p->plan, &p->shape, &err))
        status = err.status;
    devices_close(p->devices);
    mem_free(p);
    return tandem_error_give(status, &err, e);
}

static enum status list_devices(struct tandem_device **out, const struct planning *p,
                                struct err *e) {
    *out = mem_alloc((size_t)p->n_devices, sizeof **out);
    if (!*out) return err_memory(e, (size_t)p->n_devices * sizeof **out, "the devices");
    for (int32_t d = 0; d < p->n_devices; d++) {
        const struct device_info *info = &p->devices[d]->info;
        struct tandem_device *device = &(*out)[d];
        device->capacity_bytes = info->capacity_bytes;
        device->free_bytes = info->free_bytes;
        memcpy(device->name, info->name, sizeof device->name);
        memcpy(device->kind, info->kind, sizeof device->kind);
    }
    return OK;
}

enum tandem_status tandem_devices(struct tandem_device **out, size_t *n,
                                  const struct tandem_engine_options *options,
                                  struct tandem_error *e) {
    struct err err = {0};
    struct planning *p = mem_alloc(1, sizeof *p);
    *out = NULL;
    *n = 0;
    if (!p) return tandem_error_give(err_memory(&err, sizeof *p, "the devices"), &err, e);
    enum status status = OK;
    if (open_devices(p, NULL, options, &err) || list_devices(out, p, &err)) status = err.status;
    if (status == OK) *n = (size_t)p->n_devices;
    devices_close(p->devices);
    mem_free(p);
    return tandem_error_give(status, &err, e);
}

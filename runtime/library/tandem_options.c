/* tandem_options.c: see tandem_options.h. */
#include "runtime/library/tandem_options.h"

#include "base/number.h"
#include "kernels/drivers.h"
#include "runtime/generate/draft_model.h"
#include "runtime/library/tandem_error.h"

#include <assert.h>
#include <string.h>

static_assert((int)TANDEM_LOG_NOTE == (int)LOG_NOTE && (int)TANDEM_LOG_DEBUG == (int)LOG_DEBUG,
              "both have the same list");

void tandem_engine_defaults(struct tandem_engine_options *options, size_t struct_size) {
    memset(options, 0, struct_size);
    options->struct_size = struct_size;
}

// Passes the engine's log lines to the caller.
static void on_log(void *context, enum log_level level, const char *text) {
    const struct tandem_request *r = context;
    r->asked.log(r->asked.log_context, (enum tandem_log_level)level, text);
}

static bool on_progress(void *context, const char *what, uint64_t done, uint64_t total) {
    struct tandem_request *r = context;
    if (atomic_load(&r->cancelled)) return false;
    return !r->asked.progress || r->asked.progress(r->asked.progress_context, what, done, total);
}

static enum status refuse(const char *field, const char *expected, double actual, struct err *e) {
    err_set(e, ERR_USAGE, "options: %s is out of range", field);
    err_expected(e, "%s", expected);
    return err_actual(e, "%.15g", actual);
}

static enum status check_numbers(const struct tandem_engine_options *o, struct err *e) {
    const struct {
        const char *name;
        int32_t value;
    } counts[] = {{"n_ctx", o->n_ctx},           {"n_ubatch", o->n_ubatch},
                  {"n_sessions", o->n_sessions}, {"max_logits", o->max_logits},
                  {"n_prompt", o->n_prompt},     {"n_gen", o->n_gen},
                  {"n_threads", o->n_threads},   {"n_threads_batch", o->n_threads_batch},
                  {"draft_max", o->draft_max}};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        if (counts[i].value < 0) return refuse(counts[i].name, "0 or more", counts[i].value, e);
    if (o->gpu_layers < TANDEM_LAYERS_NONE)
        return refuse("gpu_layers", "a number of layers or enum tandem_layers", o->gpu_layers, e);
    if (o->draft_gpu_layers < TANDEM_LAYERS_NONE)
        return refuse("draft_gpu_layers", "a number of layers or enum tandem_layers",
                      o->draft_gpu_layers, e);
    if (o->draft_max > DRAFT_SIZE_MOST) return refuse("draft_max", "at most 1024", o->draft_max, e);
    if ((unsigned)o->kv_type_k > TANDEM_KV_Q4_0)
        return refuse("kv_type_k", "one of enum tandem_kv_type", (int32_t)o->kv_type_k, e);
    if ((unsigned)o->kv_type_v > TANDEM_KV_Q4_0)
        return refuse("kv_type_v", "one of enum tandem_kv_type", (int32_t)o->kv_type_v, e);
    if ((unsigned)o->log_level > TANDEM_LOG_DEBUG)
        return refuse("log_level", "one of enum tandem_log_level", o->log_level, e);
    if (!(o->wait_limit_s >= 0)) return refuse("wait_limit_s", "0 or more", o->wait_limit_s, e);
    return OK;
}

static enum dtype cache_dtype(enum tandem_kv_type type) {
    static const enum dtype types[] = {
        [TANDEM_KV_F16] = DTYPE_F16,   [TANDEM_KV_F32] = DTYPE_F32,
        [TANDEM_KV_Q8_0] = DTYPE_Q8_0, [TANDEM_KV_Q4_0] = DTYPE_Q4_0,
        [TANDEM_KV_AUTO] = DTYPE_F16, // the planner may take Q8_0
    };
    return types[type];
}

static int32_t gpu_layers(int32_t asked) {
    if (asked == TANDEM_LAYERS_AUTO) return GPU_LAYERS_AUTO;
    if (asked == TANDEM_LAYERS_NONE) return 0;
    return asked == TANDEM_LAYERS_ALL ? GPU_LAYERS_ALL : asked;
}

static enum status read_strategy(struct tandem_request *r, struct err *e) {
    const char *name = r->asked.strategy;
    if (!name || strategy_parse(name, &r->engine.constraints.strategy)) return OK;
    err_set(e, ERR_USAGE, "options: strategy has no such name");
    err_expected(e, "auto, cpu, layers, attention-first, streamed or row-split");
    return err_actual(e, "%s", name);
}

// The draft model shares the devices, and each session has one of its own in it.
static struct engine_options draft_options(const struct tandem_request *r) {
    const struct tandem_engine_options *o = &r->asked;
    struct engine_options draft = r->engine;
    draft.model_path = o->draft_model;
    draft.plan_path = draft.tensor_overrides = NULL;
    draft.workload = (struct workload){.n_sessions = o->n_sessions,
                                       .n_prompt = o->n_prompt,
                                       .n_gen = o->n_gen,
                                       .kv_type_k = DTYPE_F16,
                                       .kv_type_v = DTYPE_F16};
    draft.constraints = (struct constraints){.gpu_layers = gpu_layers(o->draft_gpu_layers),
                                             .vram_bytes = o->vram_bytes,
                                             .ram_bytes = o->ram_bytes};
    return draft;
}

// A draft is computed at once, with a row of logits for each of its tokens and one before them.
static void read_drafts(struct tandem_request *r) {
    struct workload *w = &r->engine.workload;
    r->draft_max = r->asked.draft_max;
    if (r->asked.draft_model) r->draft = draft_options(r);
    if (r->asked.draft_model && !r->draft_max) r->draft_max = DRAFT_MODEL_MOST;
    if (r->draft_max > 0) w->max_logits = max_i32(w->max_logits, r->draft_max + 1);
}

enum status tandem_request_read(struct tandem_request *r, const char *model_path,
                                const struct tandem_engine_options *options, struct err *e) {
    struct tandem_engine_options *o = &r->asked;
    int n_drivers = 0;
    const size_t first_bytes = END_OF_FIELD(struct tandem_engine_options, progress_context);
    if (tandem_struct_read(o, sizeof *o, first_bytes, options, e) || check_numbers(o, e))
        return e->status;
    r->log = (struct log){.level = o->log_level ? (enum log_level)o->log_level : LOG_WARN,
                          .tell = o->log ? on_log : NULL,
                          .context = r};
    r->engine = (struct engine_options){
        .model_path = model_path,
        .device_spec = o->device,
        .drivers = device_drivers(&n_drivers),
        .cpu = {ISA_AUTO, o->n_threads, o->n_threads_batch, o->no_bind},
        .workload = {.n_ctx = o->n_ctx,
                     .n_ubatch = o->n_ubatch,
                     .n_sessions = o->n_sessions,
                     .max_logits = o->max_logits,
                     .kv_type_k = cache_dtype(o->kv_type_k),
                     .kv_type_v = cache_dtype(o->kv_type_v),
                     .n_prompt = o->n_prompt,
                     .n_gen = o->n_gen,
                     .full_windows = o->full_windows},
        .constraints = {.gpu_layers = gpu_layers(o->gpu_layers),
                        .vram_bytes = o->vram_bytes,
                        .ram_bytes = o->ram_bytes,
                        .kv_auto =
                            o->kv_type_k == TANDEM_KV_AUTO || o->kv_type_v == TANDEM_KV_AUTO},
        .tensor_overrides = o->overrides,
        .plan_path = o->plan_path,
        .cache_path = o->cache_path,
        .calibrate = o->calibrate,
        .measured = &r->measured,
        .strict = o->strict,
        .wait_limit_s = o->wait_limit_s,
        .log = &r->log,
        .progress = {on_progress, r},
    };
    r->engine.n_drivers = n_drivers;
    read_drafts(r);
    return read_strategy(r, e);
}

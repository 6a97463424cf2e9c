/* engine.c: see engine.h. */
#include "runtime/engine/engine.h"

#include "base/file.h"
#include "base/mem.h"
#include "base/new_file.h"
#include "base/number.h"
#include "runtime/gguf/gguf.h"
#include "runtime/engine/input_sums.h"
#include "runtime/engine/kv.h"
#include "runtime/model/model_read.h"
#include "runtime/engine/pieces.h"
#include "runtime/engine/pipeline.h"
#include "runtime/engine/session_file.h"
#include "runtime/engine/states.h"
#include "runtime/host/devices.h"
#include "runtime/text/tokenizer.h"
#include "runtime/engine/trace.h"
#include "runtime/engine/weights.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

struct session {
    struct engine *engine;
    int32_t index;   // row of the page lists
    int32_t length;  // tokens stored
    int32_t before;  // length before the running engine_eval, restored on failure
    int32_t n_items; // of the running engine_eval
};

struct engine {
    struct gguf gguf;
    struct model model;
    struct shape shape;
    struct plan plan;
    struct machine measured; // as of engine_options
    struct tokenizer *tokenizer;
    struct device *devices[MAX_DEVICES];
    int32_t n_devices;
    struct weights weights;
    struct trace *trace;           // NULL: times are not recorded
    struct input_sums *input_sums; // NULL: inputs are not added up
    struct pipeline pipeline;
    struct kv kv;
    struct states states;
    struct expert_counts counts;
    char *counts_path;        // owned, the folder in which they are kept; NULL: nothing is counted
    struct batch_item *again; // [n_ubatch] tokens that are computed again
    struct session *sessions; // [n_sessions]
    int32_t n_open;           // sessions in use
    int32_t n_replans;        // after refusals of the accelerator
    int32_t n_tokens_known;   // of the vocabulary; logits beyond are padding
    const struct gguf_value *suppressed; // token ids that are never to be drawn; NULL: none
    struct progress progress;
};

// Finds the tokens that are never to be drawn, such as those of images.
static enum status find_suppressed(struct engine *en, struct err *e) {
    static const char key[] = "tokenizer.ggml.suppress_tokens";
    const struct gguf_value *list = gguf_find(&en->gguf, key);
    const int32_t n_vocab = en->shape.n_vocab;
    if (!list) return OK;
    const bool whole = list->element != GGUF_STRING && list->element != GGUF_ARRAY &&
                       list->element != GGUF_F32 && list->element != GGUF_F64;
    if (list->type != GGUF_ARRAY || !whole) {
        err_set(e, ERR_FORMAT, "key %s", key);
        return err_expected(e, "a list of token ids");
    }
    for (uint64_t i = 0; i < list->count; i++) {
        const int64_t token = gguf_array_int(list, i);
        if (token >= 0 && token < n_vocab) continue;
        err_set(e, ERR_FORMAT, "key %s", key);
        err_expected(e, "token ids below %d", n_vocab);
        return err_actual(e, "%lld", (long long)token);
    }
    en->suppressed = list;
    return OK;
}

static enum status open_model(struct engine *en, const struct engine_options *o, struct err *e) {
    if (gguf_open(&en->gguf, o->model_path, e)) return e->status; // the error names the wrong part
    if (model_read(&en->model, &en->shape, &en->gguf, e) ||
        tokenizer_open(&en->tokenizer, &en->gguf, o->log, e)) {
        return err_context(e, "%s", o->model_path);
    }
    const uint32_t known = tokenizer_count(en->tokenizer);
    if (known > (uint32_t)en->shape.n_vocab) {
        err_set(e, ERR_FORMAT, "%s: the vocabulary is longer than token_embd.weight",
                o->model_path);
        err_expected(e, "at most %d tokens", en->shape.n_vocab);
        return err_actual(e, "%u", known);
    }
    en->n_tokens_known = (int32_t)known;
    return find_suppressed(en, e) ? err_context(e, "%s", o->model_path) : OK;
}

// Counts the tokens of the prompt that the options name, for the plan.
static enum status count_prompt(const struct engine *en, struct engine_options *o, struct err *e) {
    const struct tokenizer_flags flags = {.add_special = true, .parse_special = true};
    struct token_list tokens = {0};
    if (!o->prompt) return OK;
    const enum status status =
        tokenizer_encode(en->tokenizer, o->prompt, o->prompt_bytes, flags, &tokens, e);
    o->prompt_tokens = tokens.count < INT32_MAX ? (int32_t)tokens.count : INT32_MAX;
    token_list_close(&tokens);
    return status;
}

static uint32_t refusals(const struct engine *en) {
    uint32_t n = 0;
    for (int32_t d = DEVICE_HOST + 1; d < en->n_devices; d++) n += en->devices[d]->n_refused;
    return n;
}

// Halves the context until the plan fits. False if no context of use does.
static bool shorten_context(struct engine *en) {
    enum { LEAST_CONTEXT = 512 };
    int32_t *n_ctx = &en->plan.workload.n_ctx;
    struct err ignored;
    for (*n_ctx /= 2; *n_ctx >= LEAST_CONTEXT; *n_ctx /= 2)
        if (planner_complete(&en->plan, &en->shape, &ignored) == OK) return true;
    return false;
}

// Refuses to open after the accelerator has refused memory and no more units can move to the CPU:
// says what the CPU alone could hold, with the smallest micro-batch that the options allow.
static enum status refuse_rest(struct engine *en, const struct engine_options *o, struct err *e) {
    struct err alone = {0};
    int32_t ubatches[MAX_CHOICES];
    en->plan.place = (struct placement){0};
    en->plan.workload.n_ubatch = o->workload.n_ubatch;
    (void)workload_ubatches(&en->plan.workload, ubatches);
    en->plan.workload.n_ubatch = ubatches[0];
    if (planner_complete(&en->plan, &en->shape, &alone) == OK) {
        return err_fix(e, "close other programs that use the GPU, or do without it: "
                          "--device none fits");
    }
    char shorter[32] = "";
    if (shorten_context(en))
        (void)snprintf(shorter, sizeof shorter, "-c %d fits; or ", en->plan.workload.n_ctx);
    return err_fix(e, "RAM has no room for the rest of the model; without the GPU: %s%s", shorter,
                   alone.fix);
}

// Makes *out, a plan for what the accelerator gives now: what it says, or half of what it refused
// although it says that there is more. What was asked for (-ngl, a plan file, ...) no longer counts
// where it does not fit, but the context and the other sizes of the workload stay. False if nothing
// was on the accelerator, or nothing fits.
static bool plan_less(struct plan *out, const struct engine *en, const struct engine_options *o) {
    struct engine_options less = *o;
    const int32_t accelerator = machine_accelerator(&en->plan.machine);
    const uint64_t planned_bytes = plan_device_bytes(&en->plan, accelerator);
    const uint64_t free_bytes = device_free_bytes(en->devices[accelerator]);
    if (accelerator == DEVICE_HOST || !planned_bytes) return false;
    less.constraints.vram_bytes = free_bytes < planned_bytes ? free_bytes : planned_bytes / 2;
    if (!less.constraints.vram_bytes) less.constraints.vram_bytes = 1; // 0: no limit
    struct err refused = {0};
    if (devices_plan(out, &en->shape, en->devices, en->n_devices, &less, &refused) == OK)
        return true;
    less.plan_path = less.tensor_overrides = NULL;
    less.workload = en->plan.workload; // a plan file's, or the model's, where options name none
    less.workload.n_ubatch = o->workload.n_ubatch;
    less.constraints.gpu_layers = GPU_LAYERS_AUTO;
    less.constraints.strategy = STRATEGY_AUTO;
    less.constraints.has_units = less.constraints.has_placement = false;
    return devices_plan(out, &en->shape, en->devices, en->n_devices, &less, &refused) == OK;
}

// Replaces the engine's plan by a smaller one. False: the plan stays, as there is no smaller one.
static bool plan_smaller(struct engine *en, const struct engine_options *o) {
    struct plan *smaller = mem_alloc(1, sizeof *smaller);
    if (!smaller) return false;
    const bool found = plan_less(smaller, en, o);
    if (found) en->plan = *smaller;
    for (int32_t d = 0; found && d < en->n_devices; d++) device_forget_peak(en->devices[d]);
    mem_free(smaller);
    return found;
}

// If the system refused to pin the arena, so that copies from it would be slow and hold up the
// computing thread, plans for small pinned blocks instead, unless the user asked for an arena.
// Returns true if that is the plan now.
static bool plan_blocks(struct engine *en, struct engine_options *o) {
    struct err refused = {0};
    if (!en->weights.arena_refused || o->strict || o->plan_path ||
        o->constraints.place.feed != FEED_NONE)
        return false;
    struct plan *blocks = mem_alloc(1, sizeof *blocks);
    if (!blocks) return false;
    o->constraints.place.feed = FEED_STAGED;
    const bool found = !devices_plan(blocks, &en->shape, en->devices, en->n_devices, o, &refused);
    if (found) {
        en->plan = *blocks;
        log_line(o->log, LOG_WARN, "streamed weights go through small pinned blocks instead");
    } else {
        o->constraints.place.feed = FEED_NONE;
    }
    mem_free(blocks);
    return found;
}

// Opens what takes memory of devices. With an arena that the system did not pin, plans again first.
static enum status open_memory(struct engine *en, const struct placed_model *placed,
                               struct engine_options *o, struct err *e) {
    if (weights_open(&en->weights, placed, e)) return e->status;
    if (plan_blocks(en, o)) {
        weights_close(&en->weights);
        if (weights_open(&en->weights, placed, e)) return e->status;
    }
    return pipeline_open(&en->pipeline, placed, &en->weights, en->trace, e);
}

// Takes all memory of devices. If the accelerator refuses memory that was free when the plan was
// made (another program took it), a plan for less is made and everything is tried again.
static enum status reserve(struct engine *en, const struct placed_model *placed,
                           const struct engine_options *options, struct err *e) {
    struct engine_options o = *options;
    for (;;) {
        const uint32_t n_refused = refusals(en);
        struct err refused = {0};
        // The CPU's part is cleared, which takes seconds for a long context.
        if (!progress_tell(&en->progress, "reserve", 0, plan_device_bytes(&en->plan, DEVICE_HOST)))
            return err_set(e, ERR_CANCELLED, "loading was stopped");
        if (open_memory(en, placed, &o, &refused) == OK) {
            if (en->n_replans)
                log_line(o.log, LOG_WARN, "more of the model goes to the CPU: %s%s%s", e->what,
                         e->expected[0] ? ", wanted " : "", e->expected);
            return OK;
        }
        *e = refused;
        if (o.strict || refusals(en) == n_refused) return e->status;
        pipeline_close(&en->pipeline);
        weights_close(&en->weights);
        if (!plan_smaller(en, &o)) return refuse_rest(en, &o, e);
        en->n_replans++;
    }
}

static enum status open_states(struct engine *en, struct err *e) {
    const struct workload *w = &en->plan.workload;
    const size_t n = (size_t)w->n_ubatch;
    if (states_open(&en->states, &en->shape, w, e)) return e->status;
    en->again = mem_alloc(n, sizeof *en->again);
    return en->again ? OK : err_memory(e, n * sizeof *en->again, "a batch of tokens");
}

static enum status allocate(struct engine *en, const struct engine_options *o, struct err *e) {
    const size_t n_sessions = (size_t)en->plan.workload.n_sessions;
    en->sessions = mem_alloc(n_sessions, sizeof *en->sessions);
    if (!en->sessions) return err_memory(e, n_sessions * sizeof *en->sessions, "the sessions");
    const struct placed_model placed = {&en->model, &en->shape, &en->plan, en->devices};
    if (o->trace_spans > 0 && trace_open(&en->trace, o->trace_spans, e)) return e->status;
    for (int d = 0; d < en->n_devices && o->wait_limit_s > 0; d++)
        device_limit_waits(en->devices[d], o->wait_limit_s);
    if (reserve(en, &placed, o, e) || kv_open(&en->kv, &en->plan.workload, e) ||
        open_states(en, e) || weights_load(&en->weights, &placed, o, e)) {
        return e->status;
    }
    for (int d = 0; d < en->n_devices; d++) {
        // The bytes that the planner predicted are the bytes that are allocated.
        for (int p = 0; p < PURPOSE_COUNT; p++) {
            ASSERT(en->devices[d]->used_bytes[p] == en->plan.devices[d].bytes[p]);
        }
        device_seal(en->devices[d]);
    }
    return OK;
}

// Counts the different experts of prompts where what is counted can be kept. Without counting, the
// next engine plans as this one did.
static enum status open_counts(struct engine *en, const struct engine_options *o, struct err *e) {
    expert_counts_init(&en->counts, &en->shape);
    if (!o->cache_path || !en->shape.n_experts) return OK;
    expert_counts_load(&en->counts, o->cache_path, &en->shape);
    if (o->no_counting) return OK;
    en->counts_path = mem_text(o->cache_path, strlen(o->cache_path));
    if (!en->counts_path) return err_memory(e, strlen(o->cache_path), "a path");
    en->pipeline.counts = &en->counts;
    return OK;
}

static void close_counts(struct engine *en) {
    struct err ignored; // the next run plans with older counts
    if (en->counts_path && en->counts.n_added)
        (void)expert_counts_store(&en->counts, en->counts_path, &en->shape, &ignored);
    mem_free(en->counts_path);
}

enum status engine_open(struct engine **out, const struct engine_options *options, struct err *e) {
    *out = NULL;
    struct engine *en = mem_alloc(1, sizeof *en);
    if (!en) return err_memory(e, sizeof *en, "the engine");
    struct engine_options own = *options;
    if (!own.measured) own.measured = &en->measured;
    en->progress = own.progress;
    if (open_model(en, &own, e) || count_prompt(en, &own, e) ||
        devices_open(en->devices, &en->n_devices, &own, e) ||
        devices_plan(&en->plan, &en->shape, en->devices, en->n_devices, &own, e) ||
        allocate(en, &own, e) || open_counts(en, &own, e)) {
        goto fail;
    }
    *out = en;
    return OK;
fail:
    engine_close(en);
    return e->status;
}

void engine_close(struct engine *engine) {
    if (!engine) return;
    ASSERT(engine->n_open == 0);
    close_counts(engine);
    kv_close(&engine->kv);
    states_close(&engine->states);
    mem_free(engine->again);
    pipeline_close(&engine->pipeline);
    weights_close(&engine->weights);
    input_sums_close(engine->input_sums);
    bool lost = false; // copies and calls of a lost device may still read the files, which then
                       // stay open and mapped
    for (int d = 0; d < engine->n_devices; d++) lost |= engine->devices[d]->lost;
    devices_close(engine->devices);
    trace_close(engine->trace);
    tokenizer_close(engine->tokenizer);
    if (lost) engine->gguf.parts = NULL, engine->gguf.n_parts = 0;
    gguf_close(&engine->gguf);
    mem_free(engine->sessions);
    mem_free(engine);
}

const struct tokenizer *engine_tokenizer(const struct engine *engine) { return engine->tokenizer; }
const struct gguf *engine_gguf(const struct engine *engine) { return &engine->gguf; }
const struct plan *engine_plan(const struct engine *engine) { return &engine->plan; }
const struct shape *engine_shape(const struct engine *engine) { return &engine->shape; }
const struct workload *engine_workload(const struct engine *engine) {
    return &engine->plan.workload;
}
int32_t engine_n_vocab(const struct engine *engine) { return engine->shape.n_vocab; }

enum status session_new(struct session **out, struct engine *engine, struct err *e) {
    *out = NULL;
    int32_t index;
    if (kv_take(&engine->kv, &index, e)) return e->status;
    engine->sessions[index] = (struct session){.engine = engine, .index = index};
    engine->n_open++;
    *out = &engine->sessions[index];
    return OK;
}

void session_free(struct session *session) {
    if (!session) return;
    ASSERT(session->engine->n_open > 0);
    session->engine->n_open--;
    kv_give_back(&session->engine->kv, session->index);
    states_truncate(&session->engine->states, session->index, 0);
    *session = (struct session){0};
}

int32_t session_length(const struct session *session) { return session->length; }

void session_truncate(struct session *session, int32_t length) {
    ASSERT(length >= 0 && length <= session->length);
    kv_truncate(&session->engine->kv, session->index, length);
    states_truncate(&session->engine->states, session->index, length);
    session->length = length;
}

// The session's caches, in all slots that hold a state.
static struct cached caches_of(const struct session *s) {
    struct engine *en = s->engine;
    const struct session_states *of = &en->states.all[s->index];
    struct cached c = {.pipeline = &en->pipeline,
                       .kv = &en->kv,
                       .session = s->index,
                       .n = of->done,
                       .low = of->low};
    for (int32_t i = 0; i < STATE_SLOTS && en->states.recurrent; i++)
        if (of->at[i] >= 0) c.slots[c.n_slots++] = i;
    return c;
}

enum status session_copy(struct session *target, const struct session *source, struct err *e) {
    struct engine *en = target->engine;
    ASSERT(source->engine == en);
    if (target->length > 0)
        return err_set(e, ERR_USAGE, "the session to copy to has tokens already");
    if (en->pipeline.failed) return pipeline_refuse(e);
    const struct cached from = caches_of(source);
    struct cached to = from;
    to.session = target->index;
    if (kv_reserve(&en->kv, target->index, source->length, e)) return e->status;
    if (cached_copy(&to, &from, e)) {
        kv_truncate(&en->kv, target->index, 0);
        return e->status;
    }
    states_copy(&en->states, target->index, source->index);
    target->length = source->length;
    return OK;
}

static struct session_key key_of(const struct engine *en) {
    const struct workload *w = &en->plan.workload;
    return (struct session_key){.model = session_file_model(&en->gguf),
                                .kv_type_k = w->kv_type_k,
                                .kv_type_v = w->kv_type_v,
                                .n_ctx = w->n_ctx,
                                .n_vocab = en->shape.n_vocab,
                                .recurrent = en->states.recurrent};
}

const int32_t *session_tokens(const struct session *session) {
    const struct states *s = &session->engine->states;
    return s->tokens + (size_t)session->index * (size_t)s->n_ctx;
}

// Writes bytes, a multiple of 8, and adds them to the checksum.
static enum status put(struct new_file *f, uint64_t *sum, const void *bytes, uint64_t size_bytes,
                       struct err *e) {
    *sum = session_file_sum(*sum, bytes, size_bytes);
    return new_file_write(f, bytes, size_bytes, e);
}

// Writes a file whose head is in buffer, which has room for every piece too.
static enum status write_file(struct new_file *f, const struct cached *c, uint8_t *buffer,
                              uint64_t head_bytes, struct err *e) {
    struct piece_walk walk = {0};
    struct piece piece;
    uint64_t sum = 0;
    if (put(f, &sum, buffer, head_bytes, e)) return e->status;
    while (cached_next(c, &walk, &piece)) {
        const uint64_t padded = round_up(piece.size_bytes, 8);
        memset(buffer + padded - 8, 0, 8);
        if (cached_read(c, &piece, buffer, e) || put(f, &sum, buffer, padded, e)) return e->status;
    }
    return new_file_write(f, &sum, sizeof sum, e);
}

static enum status write_session(struct new_file *f, const struct session *s, int32_t pending,
                                 struct err *e) {
    const struct engine *en = s->engine;
    const struct cached c = caches_of(s);
    const struct session_key key = key_of(en);
    struct session_file file = {
        .n_tokens = s->length, .n = c.n, .low = c.low, .n_slots = c.n_slots};
    for (int32_t i = 0; i < c.n_slots; i++) file.at[i] = en->states.all[s->index].at[c.slots[i]];
    struct cached_sizes sizes = cached_sizes(&c);
    file.piece_bytes = sizes.padded;
    const bool more = pending >= 0 && s->length < key.n_ctx;
    const uint64_t head_bytes = session_file_head_bytes(s->length + more);
    const uint64_t room = max_u64(head_bytes, round_up(sizes.largest, 8)) + 8;
    uint8_t *buffer = mem_alloc(room, 1);
    int32_t *tokens = mem_alloc((size_t)s->length + 1, sizeof *tokens);
    enum status status = OK;
    if (!buffer || !tokens) {
        status = err_memory(e, room, "a saved session");
    } else {
        memcpy(tokens, session_tokens(s), (size_t)s->length * sizeof *tokens);
        if (more) tokens[file.n_tokens++] = pending;
        file.tokens = tokens;
        session_file_head(&file, &key, buffer);
        status = new_file_reserve(f, head_bytes + sizes.padded + 8, e);
        if (!status) status = write_file(f, &c, buffer, head_bytes, e);
    }
    mem_free(buffer);
    mem_free(tokens);
    return status;
}

enum status session_save(const struct session *session, int32_t pending, const char *path,
                         struct err *e) {
    struct new_file f;
    if (session->engine->pipeline.failed) return pipeline_refuse(e);
    if (new_file_open_over(&f, path, e)) return e->status;
    if (write_session(&f, session, pending, e) == OK) return new_file_commit(&f, e);
    new_file_close(&f);
    return e->status;
}

// The caches that a file is to fill, its states in the first slots.
static struct cached caches_to_fill(const struct session *s, const struct session_file *file) {
    struct engine *en = s->engine;
    struct cached c = {.pipeline = &en->pipeline,
                       .kv = &en->kv,
                       .session = s->index,
                       .n = file->n,
                       .low = file->low,
                       .n_slots = file->n_slots};
    for (int32_t i = 0; i < file->n_slots; i++) c.slots[i] = i;
    return c;
}

// Checks what the file has for the caches, whose pages are known once they are reserved. The
// session stays as it is.
static enum status check_sizes(struct session *s, const struct session_file *file, struct err *e) {
    struct kv *kv = &s->engine->kv;
    if (kv_reserve(kv, s->index, file->n_tokens, e)) return e->status;
    const struct cached c = caches_to_fill(s, file);
    const bool right = cached_sizes(&c).padded == file->piece_bytes;
    kv_truncate(kv, s->index, s->length);
    if (right) return OK;
    err_set(e, ERR_FORMAT, "the saved session is damaged: the size of its caches");
    return err_fix(e, "remove the file, or give another name");
}

// Fills the caches of an empty session from a file that was checked.
static enum status take_file(struct session *s, const struct session_file *file, struct err *e) {
    struct engine *en = s->engine;
    const struct cached c = caches_to_fill(s, file);
    struct session_states numbers = {.at = {-1, -1, -1}, .done = file->n, .low = file->low};
    struct piece_walk walk = {0};
    struct piece piece;
    const uint8_t *next = file->pieces;
    if (kv_reserve(&en->kv, s->index, file->n_tokens, e)) return e->status;
    for (int32_t i = 0; i < file->n_slots; i++) numbers.at[i] = file->at[i];
    // In a ring that is shorter than that of the file, later positions replace earlier ones.
    while (cached_next(&c, &walk, &piece)) {
        if (cached_write(&c, &piece, next, e)) return e->status;
        next += round_up(piece.size_bytes, 8);
    }
    states_restore(&en->states, s->index, &numbers, file->tokens, file->n_tokens);
    s->length = file->n_tokens;
    return OK;
}

enum status session_load(struct session *session, const char *path, struct err *e) {
    struct engine *en = session->engine;
    const struct session_key key = key_of(en);
    struct session_file file;
    struct file f;
    if (en->pipeline.failed) return pipeline_refuse(e);
    if (file_open(&f, path, e)) return e->status;
    enum status status = file_populate(&f, 0, f.size_bytes, e);
    if (!status) status = session_file_parse(&file, f.map, f.size_bytes, &key, e);
    if (!status) status = check_sizes(session, &file, e);
    if (!status) {
        session_truncate(session, 0);
        status = take_file(session, &file, e);
        if (status) kv_truncate(&en->kv, session->index, 0);
    }
    file_close(&f);
    return status ? err_context(e, "%s", path) : OK;
}

// Checks all items before anything runs.
static enum status check_items(const struct engine *en, const struct batch_item *items,
                               int32_t n_items, struct err *e) {
    int32_t n_logits = 0;
    for (int32_t i = 0; i < n_items; i++) {
        ASSERT(items[i].session && items[i].session->engine == en);
        n_logits += items[i].want_logits;
        if (items[i].token >= 0 && items[i].token < en->shape.n_vocab) continue;
        err_set(e, ERR_LIMIT, "token %d of the batch is not in the vocabulary", i);
        err_expected(e, "0 to %d", en->shape.n_vocab - 1);
        return err_actual(e, "%d", items[i].token);
    }
    if (n_logits > en->plan.workload.max_logits) {
        err_set(e, ERR_LIMIT, "too many rows of logits are wanted in one call");
        err_expected(e, "at most %d", en->plan.workload.max_logits);
        return err_actual(e, "%d", n_logits);
    }
    return OK;
}

// Fills the tables with n items and gives each its position, cache row and states.
static enum status fill_tables(struct engine *en, const struct batch_item *items, int32_t n,
                               struct micro_batch *batch, struct err *e) {
    struct batch_tables t = pipeline_tables(&en->pipeline);
    for (int32_t i = 0; i < n; i++) {
        struct session *s = items[i].session;
        if (kv_reserve(&en->kv, s->index, s->length + 1, e)) return e->status;
        t.tokens[i] = items[i].token;
        t.positions[i] = s->length;
        t.sequences[i] = s->index;
        t.cache_rows[i] = kv_row(&en->kv, s->index, s->length);
        if (en->kv.ring) t.ring_rows[i] = kv_ring_row(&en->kv, s->index, s->length);
        states_step(&en->states, s->index, s->length, items[i].token, t.steps + 2 * (size_t)i);
        if (items[i].want_logits) t.rows[batch->n_logits++] = i;
        s->length++;
    }
    batch->n_tokens = n;
    const size_t size_bytes = (size_t)workload_pages(&en->plan.workload) * sizeof *t.pages;
    memcpy(t.pages, en->kv.pages, size_bytes);
    if (en->kv.ring) memcpy(t.ring_pages, en->kv.ring, size_bytes);
    return OK;
}

// Masks padding and the tokens that the file says are never to be drawn.
static void mask_logits(struct engine *en, int32_t n_logits) {
    const int32_t n_vocab = en->shape.n_vocab;
    for (int32_t i = 0; i < n_logits; i++) {
        float *row = pipeline_logits(&en->pipeline) + (size_t)i * (size_t)n_vocab;
        for (int32_t v = en->n_tokens_known; v < n_vocab; v++) row[v] = -INFINITY;
        for (uint64_t k = 0; en->suppressed && k < en->suppressed->count; k++)
            row[gguf_array_int(en->suppressed, k)] = -INFINITY;
    }
}

// The work of a call, and how much of it was started.
struct progress_of_call {
    uint64_t n_done, n_total; // tokens, with those that are computed again
    int32_t n_logits;
};

// Starts one micro-batch, which may still run at the end.
static enum status start_one(struct engine *en, const struct batch_item *items, int32_t n,
                             struct progress_of_call *call, struct err *e) {
    struct micro_batch batch = {.first_logits = call->n_logits,
                                .progress = &en->progress,
                                .n_before = call->n_done,
                                .n_total = call->n_total};
    const bool started = pipeline_ready(&en->pipeline, e) == OK &&
                         fill_tables(en, items, n, &batch, e) == OK &&
                         pipeline_run(&en->pipeline, &batch, e) == OK;
    states_end(&en->states, started);
    if (!started) return e->status;
    call->n_logits += batch.n_logits;
    call->n_done += (uint64_t)n;
    if (call->n_total > 1 &&
        !progress_tell(&en->progress, "prefill", call->n_done, call->n_total)) {
        return err_set(e, ERR_CANCELLED, "prefill was stopped after %llu of %llu tokens",
                       (unsigned long long)call->n_done, (unsigned long long)call->n_total);
    }
    return OK;
}

// Computes the tokens of a session again that its caches lack since it was cut back. Rows that
// these still have get the same values once more.
static enum status catch_up(struct engine *en, struct session *s, struct progress_of_call *call,
                            struct err *e) {
    const int32_t n_ubatch = en->plan.workload.n_ubatch, length = s->length;
    s->length = states_length(&en->states, s->index, length);
    while (s->length < length) {
        const int32_t left = length - s->length, n = left < n_ubatch ? left : n_ubatch;
        for (int32_t i = 0; i < n; i++)
            en->again[i] = (struct batch_item){
                .session = s, .token = states_token(&en->states, s->index, s->length + i)};
        if (start_one(en, en->again, n, call, e)) return e->status;
    }
    return OK;
}

// Brings the caches of all sessions up to their lengths.
static enum status catch_up_all(struct engine *en, const struct batch_item *items, int32_t n_items,
                                struct progress_of_call *call, struct err *e) {
    for (int32_t i = 0; i < n_items; i++) {
        struct session *s = items[i].session;
        const bool behind = states_length(&en->states, s->index, s->length) < s->length;
        if (behind && catch_up(en, s, call, e)) return e->status;
        if (behind || s->n_items > 1) states_keep(&en->states, s->index);
    }
    return OK;
}

// Starts every micro-batch; the last ones may still run at the end.
static enum status start_all(struct engine *en, const struct batch_item *items, int32_t n_items,
                             struct progress_of_call *call, struct err *e) {
    const int32_t n_ubatch = en->plan.workload.n_ubatch;
    if (catch_up_all(en, items, n_items, call, e)) return e->status;
    for (int32_t i = 0; i < n_items; i += n_ubatch) {
        const int32_t n = n_items - i < n_ubatch ? n_items - i : n_ubatch;
        if (start_one(en, items + i, n, call, e)) return e->status;
    }
    return OK;
}

// Notes the lengths of all sessions. Returns the tokens to compute, those again that caches lack.
static uint64_t begin_items(const struct batch_item *items, int32_t n_items) {
    uint64_t n_total = (uint64_t)n_items;
    for (int32_t i = 0; i < n_items; i++) {
        struct session *s = items[i].session;
        s->before = s->length;
        s->n_items = 0;
    }
    for (int32_t i = 0; i < n_items; i++) {
        struct session *s = items[i].session;
        if (s->n_items++ > 0) continue;
        n_total += (uint64_t)(s->length - states_length(&s->engine->states, s->index, s->length));
    }
    return n_total;
}

// Runs all items. When it returns nothing runs any more, also after a failure, so that sessions may
// change.
static enum status eval_all(struct engine *en, const struct batch_item *items, int32_t n_items,
                            struct err *e) {
    struct progress_of_call call = {.n_total = begin_items(items, n_items)};
    struct err later;
    enum status status = start_all(en, items, n_items, &call, e);
    if (pipeline_finish(&en->pipeline, &later) && !status) {
        *e = later;
        status = later.status;
    }
    if (!status) mask_logits(en, call.n_logits);
    return status;
}

enum status engine_eval(struct engine *engine, const struct batch_item *items, int32_t n_items,
                        struct err *e) {
    ASSERT(n_items >= 1);
    if (check_items(engine, items, n_items, e)) return e->status;
    const enum status status = eval_all(engine, items, n_items, e);
    for (int32_t i = 0; i < n_items; i++) {
        struct session *s = items[i].session;
        if (status == OK && s->n_items > 1) states_keep(&engine->states, s->index);
        if (status != OK && s->length > s->before) session_truncate(s, s->before);
        if (status != OK) s->length = s->before; // it may have failed to catch up
    }
    return status;
}

const float *engine_logits(const struct engine *engine, int32_t i) {
    ASSERT(i >= 0 && i < engine->plan.workload.max_logits);
    return pipeline_logits(&engine->pipeline) + (size_t)i * (size_t)engine->shape.n_vocab;
}

const struct trace *engine_trace(const struct engine *engine) { return engine->trace; }

enum status engine_sum_inputs(struct engine *engine, struct err *e) {
    ASSERT(!engine->input_sums);
    if (engine->n_devices > DEVICE_HOST + 1)
        return err_set(e, ERR_UNSUPPORTED, "what matrices multiply is added up on the CPU alone");
    return input_sums_open(&engine->input_sums, engine->devices[DEVICE_HOST], &engine->gguf, e);
}

const struct input_sums *engine_input_sums(const struct engine *engine) {
    return engine->input_sums;
}

bool engine_rounds_by_batch(const struct engine *engine) {
    bool rounds = false;
    for (int32_t d = 0; d < engine->n_devices; d++) {
        rounds = rounds || engine->devices[d]->info.rounds_by_batch;
    }
    return rounds;
}

int32_t engine_n_replans(const struct engine *engine) { return engine->n_replans; }

int32_t engine_memory(const struct engine *engine, struct memory_row *rows, int32_t capacity) {
    int32_t n = 0;
    for (int d = 0; d < engine->n_devices; d++) {
        const struct device *device = engine->devices[d];
        for (int p = 0; p < PURPOSE_COUNT && n < capacity; p++) {
            rows[n++] =
                (struct memory_row){device->info.name, (enum purpose)p,
                                    engine->plan.devices[d].bytes[p], device->used_bytes[p]};
        }
    }
    return n;
}

uint64_t engine_peak_bytes(const struct engine *engine, int32_t device) {
    ASSERT(device >= 0 && device < engine->n_devices);
    return engine->devices[device]->peak_bytes;
}

/* tandem_engine.c: engines, sessions and evaluations of tandem.h. See tandem_engine.h. */
#include "runtime/library/tandem_engine.h"

#include "base/mem.h"
#include "base/number.h"
#include "runtime/library/tandem_plan.h"

#include <string.h>

// ---- Opening and closing ------------------------------------------------------------------------

static void describe_model(struct tandem_engine *en) {
    const struct shape *shape = engine_shape(en->engine);
    const struct tokenizer *tokenizer = engine_tokenizer(en->engine);
    en->model = (struct tandem_model){
        .name = shape->name,
        .architecture = shape->architecture,
        .n_vocab = engine_n_vocab(en->engine),
        .n_tokens = (int32_t)tokenizer_count(tokenizer),
        .n_ctx = engine_workload(en->engine)->n_ctx,
        .n_ctx_train = shape->n_ctx_train,
        .bos = tokenizer_bos(tokenizer),
        .eos = tokenizer_eos(tokenizer),
        .adds_bos = tokenizer_adds_bos(tokenizer),
        .has_chat = en->chat_refused.status == OK &&
                    (en->request.asked.chat_template ||
                     gguf_find(engine_gguf(en->engine), "tokenizer.chat_template")),
        .weights_bytes = shape_weight_bytes(shape),
    };
}

// Opens the chat format. A model without a template that works can do everything but chat.
static enum status find_chat(struct tandem_engine *en, struct err *e) {
    struct err refused = {0};
    const struct chat_options options = {.template = en->request.asked.chat_template,
                                         .kwargs = en->request.asked.chat_kwargs};
    const enum status status =
        chat_open(&en->chat, engine_gguf(en->engine), &options, &en->request.log, &refused);
    if (status != OK) en->chat_refused = refused;
    if (status == OK || (status != ERR_MEMORY && !options.template && !options.kwargs)) return OK;
    *e = refused;
    return status;
}

// Opens that of conversations with tools, where the file has another one for them.
static enum status find_tool_chat(struct tandem_engine *en, struct err *e) {
    const struct gguf *g = engine_gguf(en->engine);
    const struct chat_options options = {.kwargs = en->request.asked.chat_kwargs, .tools = true};
    struct err refused = {0};
    if (en->request.asked.chat_template || !chat_has_tool_template(g)) return OK;
    if (chat_open(&en->tool_chat, g, &options, &en->request.log, &refused) == ERR_MEMORY)
        *e = refused;
    return e->status;
}

const struct chat_format *tandem_chat_of(const struct tandem_engine *engine, bool tools) {
    return tools && engine->tool_chat.template ? &engine->tool_chat : &engine->chat;
}

static enum status make_sessions(struct tandem_engine *en, struct err *e) {
    const struct workload *w = engine_workload(en->engine);
    const size_t n_tokens = (size_t)w->n_sessions * ((size_t)w->n_ctx + 1);
    en->n_sessions = w->n_sessions;
    en->n_ctx = w->n_ctx;
    en->sessions = mem_alloc((size_t)w->n_sessions, sizeof *en->sessions);
    en->tokens = mem_alloc(n_tokens, sizeof *en->tokens);
    en->items = mem_alloc(n_tokens, sizeof *en->items);
    if (!en->sessions || !en->tokens || !en->items)
        return err_memory(e, n_tokens * (sizeof *en->tokens + sizeof *en->items), "the sessions");
    for (int32_t i = 0; i < en->n_sessions; i++) {
        en->sessions[i].engine = en;
        en->sessions[i].tokens = en->tokens + (size_t)i * ((size_t)en->n_ctx + 1);
    }
    return OK;
}

// A plan file says how many rows of logits there is memory for.
static enum status check_drafts(const struct tandem_engine *en, struct err *e) {
    const int32_t most = en->request.draft_max, rows = engine_workload(en->engine)->max_logits;
    if (most == 0 || rows > most) return OK;
    err_set(e, ERR_USAGE, "options: draft_max: rows of logits in the plan %s",
            en->request.engine.plan_path);
    err_expected(e, "%d", most + 1);
    err_actual(e, "%d", rows);
    return err_fix(e, "make the plan with the same drafts, or set draft_max to %d",
                   max_i32(rows - 1, 1));
}

// Opens both models, the draft model first.
static enum status open_models(struct tandem_engine *en, struct err *e) {
    struct tandem_request *r = &en->request;
    if (r->draft.model_path && draft_model_load(&en->draft_engine, &r->draft, &r->engine, e))
        return e->status;
    return engine_open(&en->engine, &r->engine, e) ? e->status : check_drafts(en, e);
}

static enum status open_drafts(struct tandem_engine *en, struct err *e) {
    const int32_t n_target = (int32_t)tokenizer_count(engine_tokenizer(en->engine));
    if (!en->draft_engine) return OK;
    en->drafts = mem_alloc((size_t)en->n_sessions, sizeof *en->drafts);
    if (!en->drafts) return err_memory(e, sizeof *en->drafts, "the draft model's sessions");
    for (int32_t i = 0; i < en->n_sessions; i++)
        if (draft_model_open(&en->drafts[i], en->draft_engine, n_target, e)) return e->status;
    return OK;
}

static enum status open_engine(struct tandem_engine *en, const char *model_path,
                               const struct tandem_engine_options *options, struct err *e) {
    if (!model_path) return err_set(e, ERR_USAGE, "the path of the model is NULL");
    if (tandem_request_read(&en->request, model_path, options, e) || open_models(en, e) ||
        make_sessions(en, e) || open_drafts(en, e) || find_chat(en, e) || find_tool_chat(en, e) ||
        tandem_plan_make(&en->plan, engine_plan(en->engine), engine_shape(en->engine), e))
        return e->status;
    describe_model(en);
    return OK;
}

enum tandem_status tandem_open(struct tandem_engine **out, const char *model_path,
                               const struct tandem_engine_options *options,
                               struct tandem_error *e) {
    struct err err = {0};
    struct tandem_engine *en = mem_alloc(1, sizeof *en);
    enum status status = en ? open_engine(en, model_path, options, &err)
                            : err_memory(&err, sizeof *en, "the engine");
    if (status != OK) {
        tandem_close(en);
        en = NULL;
    }
    *out = en;
    return tandem_error_give(status, &err, e);
}

void tandem_close(struct tandem_engine *engine) {
    if (!engine) return;
    for (int32_t i = 0; engine->sessions && i < engine->n_sessions; i++)
        generate_close(&engine->sessions[i].generator);
    for (int32_t i = 0; engine->drafts && i < engine->n_sessions; i++)
        draft_model_close(&engine->drafts[i]);
    engine_close(engine->draft_engine);
    engine_close(engine->engine);
    tandem_plan_free(engine->plan);
    chat_close(&engine->chat);
    chat_close(&engine->tool_chat);
    mem_free(engine->sessions);
    mem_free(engine->drafts);
    mem_free(engine->tokens);
    mem_free(engine->items);
    mem_free(engine);
}

void tandem_cancel(struct tandem_engine *engine) { atomic_store(&engine->request.cancelled, true); }

const struct tandem_model *tandem_engine_model(const struct tandem_engine *engine) {
    return &engine->model;
}

const struct tandem_plan *tandem_engine_plan(const struct tandem_engine *engine) {
    return engine->plan;
}

// ---- Sessions -----------------------------------------------------------------------------------

static struct tandem_session *find_free(struct tandem_engine *en) {
    for (int32_t i = 0; i < en->n_sessions; i++)
        if (!en->sessions[i].generator.session) return &en->sessions[i];
    return NULL;
}

// Every call that draws tokens sets sampler options of its own.
static struct generate_options options_of(const struct tandem_session *s) {
    const struct tandem_engine *en = s->engine;
    struct generate_options o = {.sampler = {.top_p = 1, .repeat_penalty = 1},
                                 .draft = {.size_m = en->request.draft_max}};
    if (en->drafts) {
        o.draft.guess = draft_model_guess;
        o.draft.context = &en->drafts[s - en->sessions];
    } else if (en->request.draft_max > 0) {
        o.draft.size_n = DRAFT_SIZE_N;
    }
    return o;
}

static enum status find_session(struct tandem_session **out, struct tandem_engine *engine,
                                struct err *e) {
    *out = find_free(engine);
    if (*out) return OK;
    err_set(e, ERR_LIMIT, "all sessions of the engine are open");
    err_expected(e, "at most %d", engine->n_sessions);
    return err_fix(e, "open it with more n_sessions");
}

enum tandem_status tandem_session_new(struct tandem_session **out, struct tandem_engine *engine,
                                      struct tandem_error *e) {
    struct err err = {0};
    struct tandem_session *s;
    *out = NULL;
    if (find_session(&s, engine, &err)) return tandem_error_give(err.status, &err, e);
    const struct generate_options o = options_of(s);
    if (generate_open(&s->generator, engine->engine, &o, &err))
        return tandem_error_give(err.status, &err, e);
    s->n_tokens = 0;
    *out = s;
    return tandem_error_give(OK, &err, e);
}

enum tandem_status tandem_session_fork(struct tandem_session **out,
                                       const struct tandem_session *source,
                                       struct tandem_error *e) {
    struct err err = {0};
    struct tandem_session *s;
    *out = NULL;
    if (find_session(&s, source->engine, &err)) return tandem_error_give(err.status, &err, e);
    const struct generate_options o = options_of(s);
    if (generate_fork(&s->generator, &source->generator, &o, &err))
        return tandem_error_give(err.status, &err, e);
    memcpy(s->tokens, source->tokens, (size_t)source->n_tokens * sizeof *s->tokens);
    s->n_tokens = source->n_tokens;
    *out = s;
    return tandem_error_give(OK, &err, e);
}

static enum status check_path(const char *path, struct err *e) {
    return path ? OK : err_set(e, ERR_USAGE, "the path of the session is NULL");
}

enum tandem_status tandem_session_save(const struct tandem_session *session, const char *path,
                                       struct tandem_error *e) {
    struct err err = {0};
    const struct generator *g = &session->generator;
    if (check_path(path, &err)) return tandem_error_give(err.status, &err, e);
    return tandem_error_give(session_save(g->session, g->pending, path, &err), &err, e);
}

enum tandem_status tandem_session_load(struct tandem_session *session, const char *path,
                                       struct tandem_error *e) {
    struct err err = {0};
    struct session *s = session->generator.session;
    if (check_path(path, &err)) return tandem_error_give(err.status, &err, e);
    const enum status status = session_load(s, path, &err);
    session->n_tokens = status && session_length(s) ? session->n_tokens : session_length(s);
    if (!session_length(s)) session->generator.pending = -1; // it was lost with the others
    if (status) return tandem_error_give(status, &err, e);
    session->generator.pending = -1;
    memcpy(session->tokens, session_tokens(s), (size_t)session->n_tokens * sizeof *session->tokens);
    return tandem_error_give(OK, &err, e);
}

void tandem_session_free(struct tandem_session *session) {
    if (session) generate_close(&session->generator);
}

const int32_t *tandem_session_tokens(const struct tandem_session *session, size_t *n) {
    *n = (size_t)session->n_tokens;
    return session->tokens;
}

void tandem_session_truncate(struct tandem_session *session, size_t length) {
    if (length >= (size_t)session->n_tokens) return;
    session->n_tokens = (int32_t)length;
    generate_keep(&session->generator, session->n_tokens);
}

void tandem_session_push(struct tandem_session *session, int32_t token) {
    ASSERT(session->n_tokens <= session->engine->n_ctx);
    session->tokens[session->n_tokens++] = token;
}

enum status tandem_session_full(const struct tandem_session *session, struct err *e) {
    err_set(e, ERR_LIMIT, "the tokens do not fit into the context of a session");
    err_expected(e, "at most %d more", generate_room(&session->generator));
    return err_fix(e, "open the engine with a larger n_ctx, or truncate the session");
}

// ---- Evaluation ---------------------------------------------------------------------------------

// Adds one item to the n of the batch, after the session's pending token if it is the session's
// first.
static enum status add_item(struct tandem_engine *en, const struct tandem_item *item, int32_t *n,
                            struct err *e) {
    struct tandem_session *s = item->session;
    if (!s || s->engine != en || !s->generator.session)
        return err_set(e, ERR_USAGE, "an item has no open session of this engine");
    if (s->n_tokens >= en->n_ctx) return tandem_session_full(s, e);
    struct session *session = s->generator.session;
    if (s->n_tokens == s->n_before && s->generator.pending >= 0)
        en->items[(*n)++] = (struct batch_item){session, s->generator.pending, false};
    en->items[(*n)++] = (struct batch_item){session, item->token, item->want_logits};
    en->n_logits += item->want_logits;
    tandem_session_push(s, item->token);
    return OK;
}

// Ends an evaluation: after success nothing is pending, after a failure the sessions are restored.
static enum status settle(struct tandem_engine *en, enum status status) {
    for (int32_t i = 0; i < en->n_sessions; i++) {
        struct tandem_session *s = &en->sessions[i];
        if (status != OK)
            s->n_tokens = s->n_before;
        else if (s->n_tokens > s->n_before)
            s->generator.pending = -1;
    }
    if (status != OK) en->n_logits = 0;
    return status;
}

// Returns the i-th item of a call.
typedef struct tandem_item (*item_fn)(const void *context, size_t i);

static enum status eval_items(struct tandem_engine *en, item_fn item_at, const void *context,
                              size_t n, struct err *e) {
    int32_t n_items = 0;
    enum status status = OK;
    if (n == 0) return err_set(e, ERR_USAGE, "there is no token to evaluate");
    for (int32_t i = 0; i < en->n_sessions; i++)
        en->sessions[i].n_before = en->sessions[i].n_tokens;
    en->n_logits = 0;
    for (size_t i = 0; i < n && status == OK; i++) {
        const struct tandem_item item = item_at(context, i);
        status = add_item(en, &item, &n_items, e);
    }
    if (status == OK) status = engine_eval(en->engine, en->items, n_items, e);
    return settle(en, status);
}

static struct tandem_item item_of_list(const void *context, size_t i) {
    return ((const struct tandem_item *)context)[i];
}

enum tandem_status tandem_eval_batch(struct tandem_engine *engine, const struct tandem_item *items,
                                     size_t n, struct tandem_error *e) {
    struct err err = {0};
    atomic_store(&engine->request.cancelled, false);
    const enum status status = eval_items(engine, item_of_list, items, n, &err);
    return tandem_error_give(status, &err, e);
}

struct tokens_of_session {
    struct tandem_session *session;
    const int32_t *tokens;
    size_t n;
};

static struct tandem_item item_of_session(const void *context, size_t i) {
    const struct tokens_of_session *t = context;
    return (struct tandem_item){t->session, t->tokens[i], i + 1 == t->n};
}

enum tandem_status tandem_eval(struct tandem_session *session, const int32_t *tokens, size_t n,
                               struct tandem_error *e) {
    struct err err = {0};
    const struct tokens_of_session all = {session, tokens, n};
    atomic_store(&session->engine->request.cancelled, false);
    const enum status status = eval_items(session->engine, item_of_session, &all, n, &err);
    return tandem_error_give(status, &err, e);
}

const float *tandem_logits(struct tandem_engine *engine, size_t i) {
    return i < (size_t)engine->n_logits ? engine_logits(engine->engine, (int32_t)i) : NULL;
}

/* tandem_engine.h: the structs behind the handles of tandem.h. Only for the files of this room.
 *
 * A struct tandem_engine owns the engine, the plan and the memory of its sessions, all of which is
 * taken when it opens. A session of tandem.h has every token of its timeline; the generator's
 * session may lack the last one, which was drawn but not yet computed. Threads as in tandem.h.
 * Tested by tests/runtime/test_library.c and test_library_sessions.c.
 */
#ifndef TANDEM_RUNTIME_LIBRARY_TANDEM_ENGINE_H
#define TANDEM_RUNTIME_LIBRARY_TANDEM_ENGINE_H

#include "runtime/engine/engine.h"
#include "runtime/generate/draft_model.h"
#include "runtime/generate/generate.h"
#include "runtime/library/tandem_error.h"
#include "runtime/library/tandem_options.h"
#include "runtime/text/chat.h"
#include "runtime/text/tokenizer.h"

struct tandem_session {
    struct tandem_engine *engine;
    struct generator generator; // its session is NULL if this entry is free
    int32_t *tokens;            // [n_ctx + 1], of the engine's memory: all, with a pending one
    int32_t n_tokens;
    int32_t n_before; // length before the running call, restored on failure
};

struct tandem_engine {
    struct tandem_request request;
    struct engine *engine;
    struct engine *draft_engine; // NULL: there is no draft model
    struct draft_model *drafts;  // owned, [n_sessions] with a draft model: one for each session
    struct tandem_model model;
    struct tandem_plan *plan;
    struct chat_format chat;
    struct chat_format tool_chat; // of conversations with tools; zeroed: chat is
    struct err chat_refused;      // status OK: chat is known
    int32_t n_sessions, n_ctx;
    struct tandem_session *sessions; // owned, [n_sessions]
    int32_t *tokens;                 // owned, [n_sessions, n_ctx + 1]
    struct batch_item *items; // owned, [n_sessions * (n_ctx + 1)]: what one call can hand over
    int32_t n_logits;         // rows that tandem_logits lends
};

// Appends a token that the generator has appended to its timeline. There must be room.
void tandem_session_push(struct tandem_session *session, int32_t token);
// ERR_LIMIT: the session has no room for what is asked.
enum status tandem_session_full(const struct tandem_session *session, struct err *e);
// The format of conversations with or without tools.
const struct chat_format *tandem_chat_of(const struct tandem_engine *engine, bool tools);

#endif

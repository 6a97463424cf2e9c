/* choice_scorer.h: has an engine say how likely the tokens of tasks are.
 *
 * The tokens that the texts of a task have in common are computed once, and copied to a session for
 * each text; several tasks are computed at once. A struct choice_scorer owns its sessions and
 * buffers and borrows the engine. One thread. Tested by tests/cli/cli_perplexity.sh.
 */
#ifndef TANDEM_RUNTIME_COMMANDS_CHOICE_SCORER_H
#define TANDEM_RUNTIME_COMMANDS_CHOICE_SCORER_H

#include "base/progress.h"
#include "runtime/commands/choice_tokens.h"
#include "runtime/engine/engine.h"

enum { CHOICE_SESSIONS = 100 };

struct choice_row;
struct choice_scorer {
    struct engine *engine;
    struct session *sessions[CHOICE_SESSIONS];
    int32_t n_sessions;
    const int32_t *ids;       // of all texts, borrowed while choice_scorer_run runs
    struct batch_item *items; // owned, [room]: what the engine gets next
    struct choice_row *rows;  // owned, [room]: who wants its rows of logits
    int32_t n_items, n_rows, room;
    int32_t n_scored; // tasks whose texts all have their log_sum
};

// Sets the context, the sessions and the rows of logits that tasks of such tokens need, of which
// none has more than CHOICE_SESSIONS texts.
void choice_scorer_workload(struct workload *w, const struct choice_tokens *tokens);

// Takes all sessions of an engine that was opened with that workload. On failure *s is closed.
enum status choice_scorer_open(struct choice_scorer *s, struct engine *engine, struct err *e);
void choice_scorer_close(struct choice_scorer *s); // accepts a zeroed or half-open one

// Sets log_sum of all texts of the tasks. ERR_DEVICE; ERR_CANCELLED from the listener, which is
// told "measure": then the first n_scored tasks are scored, fewer than all.
enum status choice_scorer_run(struct choice_scorer *s, const struct choice_tasks *tasks,
                              struct choice_tokens *tokens, const struct progress *progress,
                              struct err *e);

#endif

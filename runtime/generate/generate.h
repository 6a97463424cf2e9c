/* generate.h: the loop that reads prompts and writes text: a session, a sampler and a stream of
 * whole characters.
 *
 * A struct generator owns a session, a sampler and its buffers; it borrows the engine and the
 * engine's tokenizer. Nothing is allocated but by generate_open and generate_set_options. Must not
 * print, wait for a person or know signals: text goes to a sink, which also says when to stop.
 * Several generators may share an engine, one thread at a time. Tested by
 * tests/runtime/test_generate.c.
 */
#ifndef TANDEM_RUNTIME_GENERATE_GENERATE_H
#define TANDEM_RUNTIME_GENERATE_GENERATE_H

#include "runtime/engine/engine.h"
#include "runtime/generate/constraint.h"
#include "runtime/generate/draft.h"
#include "runtime/generate/sampler.h"
#include "runtime/generate/stop_filter.h"
#include "runtime/generate/timings.h"
#include "runtime/text/tokenizer.h"

enum stop_reason {
    STOP_END,     // the model has ended its text
    STOP_WORD,    // a stop text has come
    STOP_LIMIT,   // the limit of tokens is reached
    STOP_CONTEXT, // the context is full
    STOP_CANCEL,  // the sink wants no more
};
const char *
stop_reason_name(enum stop_reason reason); // "eos", "word", "limit", "context", "interrupt"

struct generate_options {
    struct sampler_options sampler;
    int32_t n_batch; // the engine gets at most that many tokens of a prompt at once; 0: all
    bool ignore_end; // no token that ends a text is drawn, but those that are stop texts
    // The text ends before the first of these texts; the name of a control token means that token.
    // They are copied.
    const char *const *stops;
    int32_t n_stops;
    // Texts that repetitions do not reach across, for DRY; sampler.dry.breakers is not read. NULL:
    // a newline, a colon, a quotation mark and an asterisk.
    const char *const *dry_breakers;
    int32_t n_dry_breakers;
    const char *grammar;      // in GBNF, that every text obeys from its beginning on; NULL: none
    const char *grammar_root; // the rule of a whole text; NULL: "root"
    const struct chat_style *style; // with a grammar, no text ends in a thought of this style;
                                    // NULL: none has thoughts. It is copied
    // Guesses tokens, which come faster where they are right; no longer than the engine has rows of
    // logits for, less one. Where passes of one and of several tokens round alike
    // (engine_rounds_by_batch), the text is the same as without drafts.
    struct draft_options draft;
};

// Takes the text as it is drawn. Called once for every token, with whole UTF-8 characters or, as
// long as a character is unfinished or could belong to a stop text, with none; once more at the end
// if anything is left. Bytes that are no UTF-8 come as U+FFFD. text is lent during the call.
// Returning false stops the generation.
struct text_sink {
    bool (*write)(void *context, const char *text, size_t length); // NULL: nobody reads the text
    void *context;                                                 // borrowed
};

// Takes the logits of a prompt: rows 0 to n - 1 of engine_logits are those of its tokens first to
// first + n - 1, until the call returns. An error ends the reading.
struct logits_sink {
    enum status (*take)(void *context, int32_t first, int32_t n, struct err *e);
    void *context; // borrowed
};

struct generator {
    struct engine *engine; // borrowed
    struct session *session;
    const struct tokenizer *tokenizer; // borrowed from the engine
    struct sampler sampler;
    struct breakers breakers; // lent to the sampler
    struct constraint constraint;
    const char *opening; // what the prompt has of the text, for the grammar; NULL: nothing
    bool shifts;         // a text that fills the context stays open
    bool open;           // the last text did, and has not ended
    int32_t n_ctx, n_batch;
    struct batch_item *items; // [n_batch]
    int32_t *tokens; // [n_ctx + 1]: the last generate_write drew these; no end token is among them
    int32_t n_tokens;
    const int32_t *put; // [n_put]: the next tokens, instead of drawn ones; borrowed
    int32_t n_put;
    int32_t pending; // drawn, but not in the session yet: the next prompt begins with it; -1: none
    int32_t prompt_row; // the first token after a prompt is drawn from this row of logits
    struct draft_options draft;
    struct draft_pace pace;
    int32_t *drafted; // [n_most]: the tokens of the last draft
    int32_t n_most;   // of a draft; 0: there are none
    int32_t n_ahead;  // last tokens of the session that are not in the text, or only pending
    int32_t n_draft;  // tokens of the last pass beside its first
    double draft_ns;  // that this pass took
    double guess_ns;  // that guessing took before it
    int32_t n_unread; // passes since the last guess
    struct token_stream stream;
    struct stop_filter filter;
    int32_t *stop_tokens; // [n_stop_tokens]
    int32_t n_stop_tokens;
    struct logit_bias *biases; // the sampler's, where no text may end; else NULL
    char *piece;               // [piece_bytes]: the text of one token
    size_t piece_bytes;
    struct timings timings; // add up since generate_open
};

// Takes a session of the engine. ERR_LIMIT if none is free, ERR_USAGE for a stop text that is empty
// or no UTF-8, a breaker of a wrong length or a bias of no token,
// ERR_FORMAT or ERR_LIMIT for the grammar, ERR_MEMORY. On failure *g is
// closed.
enum status generate_open(struct generator *g, struct engine *engine,
                          const struct generate_options *options, struct err *e);
void generate_close(struct generator *g); // accepts a zeroed one; leaves it zeroed

// The same, with a copy of source's session: both go on alike. ERR_DEVICE too.
enum status generate_fork(struct generator *g, const struct generator *source,
                          const struct generate_options *options, struct err *e);

// Takes other options for the texts to come; n_batch and draft stay. The penalties know what is
// held. Errors as generate_open's; after one, only generate_set_options and generate_close may
// follow.
enum status generate_set_options(struct generator *g, const struct generate_options *options,
                                 struct err *e);

// Tokens that the context still has room for.
int32_t generate_room(const struct generator *g);

// Tokens that were read and written so far: those of the session, and one that is pending.
int32_t generate_held(const struct generator *g);

// Keeps of what is held what a text of n tokens begins with, at most n - 1 tokens, and forgets the
// rest, as generate_keep does: generate_read goes on with those behind them. Returns how many were
// kept. The session may have been loaded since, if nothing is pending.
int32_t generate_keep_same(struct generator *g, const int32_t *ids, int32_t n);

// Puts n tokens behind what was read and written so far; what is drawn next goes on from there.
// With logits, which may be NULL, all of their logits are handed over, workload.max_logits rows at
// most at a time; nothing may be pending then. ERR_LIMIT if the context is too short, ERR_CANCELLED
// from the engine's progress call. On failure the generator is as it was.
enum status generate_read(struct generator *g, const int32_t *ids, int32_t n,
                          const struct logits_sink *logits, struct err *e);

// Says how the next text has begun at the end of the prompt, which its grammar is to know. Lent
// until generate_write returns. shifts: where the context is full the text stays open, so that
// after the beginning of it was forgotten and the rest read again, generate_write goes on with its
// grammar, its stop texts and its last character; generate_end ends it otherwise.
void generate_begin(struct generator *g, const char *opening, bool shifts);

// Draws at most limit tokens (below 0: no limit) and hands their text to sink. Called after
// generate_read. All drawn tokens stay in the session, also those of a stop text, and also after a
// failure; none that was only guessed does. A progress call of the engine that wants no more ends
// the text as the sink does.
enum status generate_write(struct generator *g, int32_t limit, const struct text_sink *sink,
                           enum stop_reason *reason, struct err *e);

// Called by the sink: the next n tokens of the text are ids, and are not drawn. They count as drawn
// ones do for the limit, the grammar and the stop texts. ids is lent until they are in the text or
// the next text begins.
void generate_put(struct generator *g, const int32_t *ids, int32_t n);

// Hands over what is held of a text that stayed open, if one did.
void generate_end(struct generator *g, const struct text_sink *sink);

// Forgets what was read and written behind the first n tokens, and so do the penalties. More than
// there are keeps them all.
void generate_keep(struct generator *g, int32_t n);

// Forgets all that was read and written: the session is empty, the penalty knows no token.
void generate_forget(struct generator *g);

#endif

/* draft_model.h: guesses the next tokens of a text by a smaller model with the same tokens.
 *
 * A struct draft_model owns a session of an engine that it borrows, and guesses for one generator
 * (struct draft_options). It draws the most likely token each time, as llama.cpp does, and ends a
 * draft where one more token would cost more time than it saves on average. Nothing is allocated
 * after draft_model_open. One thread. Tested by tests/runtime/test_draft_model.c.
 */
#ifndef TANDEM_RUNTIME_GENERATE_DRAFT_MODEL_H
#define TANDEM_RUNTIME_GENERATE_DRAFT_MODEL_H

#include "runtime/engine/engine.h"
#include "runtime/generate/draft.h"

enum { DRAFT_MODEL_MOST = 16 }; // the default

enum { DRAFT_MODEL_READ = 512 }; // tokens that are read at once

// After so many passes a draft model is given up that never took less than that share of a pass of
// the target, for it can hardly save time, and reading what the target writes costs some. Another
// prompt changes nothing.
enum { DRAFT_MODEL_PASSES = 4 };
#define DRAFT_MODEL_SLOW 0.8

struct draft_model {
    struct engine *engine; // borrowed
    struct session *session;
    int32_t n_tokens; // ids below are tokens of both models
    int32_t n_ctx;    // of the session
    int32_t n_least;  // shorter drafts are dropped
    float sure;       // a less likely token ends the draft, whatever it saves
    double pass_ns;   // of a pass of one token, smoothed; 0: none was measured
    double least_ns;  // of such passes
    int32_t n_passes; // that were measured, up to DRAFT_MODEL_PASSES
    bool given_up;    // the least pass takes DRAFT_MODEL_SLOW of one of the target, or more
    // The plan's time of a pass of one token with one_past positions before it.
    double one_us;
    int32_t one_past; // -1: not predicted yet
    struct batch_item items[DRAFT_MODEL_READ];
};

// Opens the draft model of these options, whose context and place are chosen (host/draft_place.h),
// and leaves *target, the options of the model that is opened next, the rest of the devices. Both
// are planned for the target's prompt and new tokens; the prompt is counted then.
// ERR_USAGE where the tokens of both differ; errors of draft_place_here and engine_open.
enum status draft_model_load(struct engine **out, const struct engine_options *draft,
                             struct engine_options *target, struct err *e);

// Takes a session of the engine, to guess for a model of n_target tokens. ERR_LIMIT if none is
// free. On failure *m is closed.
enum status draft_model_open(struct draft_model *m, struct engine *engine, int32_t n_target,
                             struct err *e);
void draft_model_close(struct draft_model *m); // accepts a zeroed one; leaves it zeroed

// The guess of struct draft_options, with a struct draft_model as its context. Reads what its
// session does not have of the text; where that is longer than its context, or has a token that the
// draft model does not know, or once it was given up, there is no guess. Errors as engine_eval's.
enum status draft_model_guess(void *context, const struct draft_text *text, int32_t most,
                              int32_t *out, struct draft_guess *guess, struct err *e);

#endif

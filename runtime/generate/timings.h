/* timings.h: the times of reading prompts and drawing tokens, beside those that the plan predicts.
 *
 * Plain numbers that own nothing. The times are measured by generate.c; here the plan's predictions
 * for the very passes that ran are added up. One thread. Tested by tests/runtime/test_generate.c.
 */
#ifndef TANDEM_RUNTIME_GENERATE_TIMINGS_H
#define TANDEM_RUNTIME_GENERATE_TIMINGS_H

#include "planner/planner.h"

#include <stdint.h>

struct timings {
    uint64_t load_ns; // set by whoever opens the engine
    int64_t prompt_tokens;
    uint64_t prompt_ns;
    int64_t new_tokens; // drawn, with the end token
    int64_t
        decode_steps; // tokens that passes were needed for, or drafts gave; the first token drawn
                      // after a prompt needs none, since the prompt's last pass gives its logits
    uint64_t decode_ns;
    int64_t drafted, accepted; // tokens that were guessed, and those of them that were drawn
    int64_t draft_passes;      // passes with guessed tokens
    uint64_t guess_ns;         // part of prompt_ns and decode_ns in which tokens were guessed
    int64_t prompt_passes;     // micro-batches of the prompts
    uint64_t disk_bytes;       // that the process read meanwhile,
    uint64_t disk_faults;      // and its major faults: see disk_reads
    // The plan's predictions for these very passes, 0 without rates.
    double predicted_prompt_us, predicted_decode_us;
};

double timings_ms(uint64_t ns);
double timings_rate(int64_t count, uint64_t ns); // count per second; 0 without time
// Tokens that each pass of one token, or of a draft, has given; 0 without a pass.
double timings_per_pass(const struct timings *t);
double timings_each_ms(int64_t count, uint64_t ns); // milliseconds of each; 0 without a count
// The error of a prediction as a share of the measured time: above 0 if the prediction is slower.
double timings_deviation(double predicted, double measured);

// Adds the passes of a prompt of count tokens behind the past ones of a session, with the logits of
// its last n_logits tokens. Every micro-batch but the last counts with its period, since the next
// one may start before it is done.
void timings_predict_prompt(struct timings *t, const struct plan *plan, const struct shape *shape,
                            int32_t past, int32_t count, int32_t n_logits);

// Adds the predicted time of the passes since before, which have led to a session of length tokens.
// The one in the middle stands for each of one token, and one at the end, with a draft of mean
// length, for each with a draft.
void timings_predict_decode(struct timings *t, const struct plan *plan, const struct shape *shape,
                            int32_t length, const struct timings *before);

#endif

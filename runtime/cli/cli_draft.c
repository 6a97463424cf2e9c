/* cli_draft.c: see cli_draft.h. */
#include "runtime/cli/cli_draft.h"

#include "runtime/text/tokenizer.h"

#include <stdio.h>

enum status cli_draft_open(struct cli_draft *d, struct cli *cli, struct engine_options *target,
                           struct err *e) {
    struct engine_options own;
    *d = (struct cli_draft){0};
    if (cli->options.drafts != DRAFTS_MODEL) return OK;
    cli_draft_options(cli, &own);
    const enum status status = draft_model_load(&d->engine, &own, target, e);
    d->ram_left = target->constraints.ram_bytes;
    d->vram_left = target->constraints.vram_bytes;
    progress_bar_clear(&cli->bar);
    return status;
}

enum status cli_draft_start(struct cli_draft *d, const struct cli *cli, const struct engine *target,
                            struct err *e) {
    const struct draft_model_options *o = &cli->options.draft_model;
    const int32_t n_target = (int32_t)tokenizer_count(engine_tokenizer(target));
    if (!d->engine) return OK;
    if (draft_model_open(&d->model, d->engine, n_target, e)) return e->status;
    d->model.n_least = o->n_least;
    d->model.sure = o->sure;
    if (d->model.n_ctx < engine_workload(target)->n_ctx)
        log_line(&cli->log, LOG_NOTE,
                 "drafts end after %d tokens: the draft model was trained for no more",
                 d->model.n_ctx);
    return OK;
}

void cli_draft_close(struct cli_draft *d) {
    draft_model_close(&d->model);
    engine_close(d->engine);
    *d = (struct cli_draft){0};
}

void cli_draft_report(const struct cli_draft *d) {
    if (d->model.given_up)
        fprintf(
            stderr,
            "tandem: the draft model was given up: a token takes it %.0f %% of the model's time "
            "or more. A smaller one helps\n",
            100 * DRAFT_MODEL_SLOW);
}

struct draft_options cli_draft_guesses(struct cli_draft *d, const struct cli_options *o) {
    if (d->engine)
        return (struct draft_options){
            .size_m = o->draft_model.n_most, .guess = draft_model_guess, .context = &d->model};
    if (o->drafts != DRAFTS_NGRAM) return (struct draft_options){0};
    return (struct draft_options){.size_n = o->draft_size_n, .size_m = o->draft_size_m};
}

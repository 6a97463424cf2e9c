/* cli_draft.h: an open draft model beside the model of run and chat.
 *
 * A struct cli_draft owns the draft model's engine, and guesses for one generator. One thread.
 * Tested by tests/cli/cli_draft_model.sh.
 */
#ifndef TANDEM_RUNTIME_CLI_CLI_DRAFT_H
#define TANDEM_RUNTIME_CLI_CLI_DRAFT_H

#include "runtime/cli/cli_command.h"
#include "runtime/generate/draft_model.h"

struct cli_draft {
    struct engine *engine;        // NULL: there is no draft model
    uint64_t ram_left, vram_left; // of --ram and --vram; 0: not given
    struct draft_model model;
};

// Opens the draft model of the options, if they name one, and leaves *target, the options of the
// model that is opened next, what is left of the devices. Errors as draft_model_load's. On failure
// *d is closed.
enum status cli_draft_open(struct cli_draft *d, struct cli *cli, struct engine_options *target,
                           struct err *e);
// Gets ready to guess for the engine of the model. ERR_LIMIT.
enum status cli_draft_start(struct cli_draft *d, const struct cli *cli, const struct engine *target,
                            struct err *e);
void cli_draft_close(struct cli_draft *d); // accepts a zeroed one; leaves it zeroed

// Prints a line if the draft model was given up.
void cli_draft_report(const struct cli_draft *d);

// The drafts that the options ask for.
struct draft_options cli_draft_guesses(struct cli_draft *d, const struct cli_options *o);

#endif

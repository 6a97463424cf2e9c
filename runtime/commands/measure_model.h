/* measure_model.h: the frame of a command that measures what a model knows: opens the model,
 * measures, writes what came out and closes.
 *
 * Owns the engine while the command runs, and lends it to the steps. One thread. Tested by
 * tests/cli/cli_perplexity.sh.
 */
#ifndef TANDEM_RUNTIME_COMMANDS_MEASURE_MODEL_H
#define TANDEM_RUNTIME_COMMANDS_MEASURE_MODEL_H

#include "runtime/cli/cli_command.h"

// The steps of a command, in their order; all get context.
struct measure_steps {
    enum status (*read)(void *context, const struct cli *cli, struct err *e); // texts and files
    // Sets what the engine needs room for, where no option says it.
    void (*size)(const void *context, struct workload *out);
    // Keeps the engine, which lives until close has returned.
    enum status (*measure)(void *context, struct cli *cli, struct engine *engine, struct err *e);
    enum status (*write)(void *context, struct cli *cli, struct err *e);
    void (*close)(void *context); // comes after every end, also of a command that did not begin
};
enum status measure_model(const struct measure_steps *steps, void *context, struct cli *cli,
                          struct err *e);

#endif

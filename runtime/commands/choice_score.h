/* choice_score.h: `tandem perplexity --hellaswag`, --winogrande and --multiple-choice: how often a
 * model finds the right one of several texts.
 *
 * The texts of a task share what they have in common: it is computed once and copied to a session
 * of each. Works on the options of the cli; prints the result. One thread. Tested by
 * tests/cli/cli_perplexity.sh.
 */
#ifndef TANDEM_RUNTIME_COMMANDS_CHOICE_SCORE_H
#define TANDEM_RUNTIME_COMMANDS_CHOICE_SCORE_H

#include "runtime/cli/cli_command.h"

// True if the options ask for one of the three.
bool choice_score_wanted(const struct cli_options *o);
enum status choice_score(struct cli *cli, struct err *e);

#endif

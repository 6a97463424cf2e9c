/* cli_options.h: the options of the command line: one table that parses, explains and limits them.
 *
 * A struct cli_options borrows its texts from argv and owns nothing. The table says for every
 * option its names, its value, the member that takes the value and the commands that know it, so
 * that the parser, the help and the tests cannot disagree. Must not open files or devices. Any
 * thread. Tested by tests/runtime/test_options.c and tests/cli/cli_usage.sh.
 */
#ifndef TANDEM_RUNTIME_CLI_CLI_OPTIONS_H
#define TANDEM_RUNTIME_CLI_CLI_OPTIONS_H

#include "base/err.h"
#include "runtime/cli/cli_option_types.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

// The whole table and its length.
const struct option_spec *cli_option_table(int32_t *count);

// True if --shape list or --machine list asks for the names that are built in.
bool cli_options_list_names(const struct cli_options *o);

// Changes a setting during a conversation: an option by its name without dashes. ERR_USAGE.
enum status cli_options_set(struct cli_options *o, const char *name, const char *value,
                            struct err *e);
// Prints these settings, a line each.
void cli_options_print_settings(const struct cli_options *o, FILE *out);

struct command_words {
    const char *name, *usage, *summary; // as it is typed, what follows it, and what it does
    const char *more;                   // further lines of the command's own page
    const char *example;                // what may follow the name; NULL: none
};
const struct command_words *command_words(enum command command);
const char *command_name(enum command command);

// The value of a variable among NAME=VALUE texts that NULL ends (variables may be NULL); NULL if it
// is not there or empty.
const char *cli_variable(char *const *variables, const char *name);

// Fills *o from the arguments, and from the variables of the environment (NAME=VALUE, ended by
// NULL; may be NULL) that llama.cpp reads too. Arguments win: a variable whose option they give, or
// which cannot be combined with one that they give, is left out; two variables that cannot be
// combined are refused by their names. ERR_USAGE names all unknown options, or the first other
// mistake, and the way out.
enum status cli_options_parse(struct cli_options *o, int argc, char **argv, char *const *variables,
                              struct err *e);

// Prints those arguments again which another command knows too, but not what asks for less output,
// as a shell reads them.
void cli_options_print_again(const struct cli_options *o, enum command other, FILE *out);

#endif

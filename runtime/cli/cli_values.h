/* cli_values.h: the values of options: reads, checks and prints them by their kind.
 *
 * A text that is a value is borrowed by the struct cli_options. Must not know which options belong
 * together. Any thread. Tested by tests/runtime/test_options.c.
 */
#ifndef TANDEM_RUNTIME_CLI_CLI_VALUES_H
#define TANDEM_RUNTIME_CLI_CLI_VALUES_H

#include "base/err.h"
#include "runtime/cli/cli_option_types.h"

#include <stdint.h>
#include <stdio.h>

// Says that text is no value of the option or variable of that name. Returns ERR_USAGE.
enum status cli_value_bad(struct err *e, const char *name, const char *expected, const char *text);

// Parse one value of an option that is a list of sizes, layers or types. name is the option's, for
// errors. ERR_USAGE.
enum status cli_value_size(const char *name, const char *text, uint64_t *out, struct err *e);
enum status cli_value_layers(const char *name, const char *text, int32_t *out, struct err *e);
enum status cli_value_kv_type(const char *name, const char *text, enum dtype *out, struct err *e);

// Sets the member of *o that the option has; text NULL turns a switch on. name is as it was given,
// for errors. ERR_USAGE.
enum status cli_value_set(struct cli_options *o, const struct option_spec *spec, const char *name,
                          const char *text, struct err *e);

// Prints the value of an option that /set may change.
void cli_value_print(const struct option_spec *spec, const void *value, FILE *out);

#endif

/* llama_options.h: options of llama.cpp's programs that tandem knows by name only, and the
 * environment variables that stand for those that it has.
 *
 * Constant tables. Must not know what options do. Any thread. Tested by
 * tests/runtime/test_options.c and tests/cli/cli_flags.sh.
 */
#ifndef TANDEM_RUNTIME_CLI_LLAMA_OPTIONS_H
#define TANDEM_RUNTIME_CLI_LLAMA_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum llama_value {
    LLAMA_NONE,   // nothing follows the name, but with llama-bench a switch
    LLAMA_ONE,    // a value does
    LLAMA_SWITCH, // on, off, auto, 0 or 1 may follow
};

struct llama_option {
    const char *names[3]; // unused ones are NULL
    bool ignored;         // accepted without effect; else refused
    enum llama_value value;
    const char *reason; // why it has no effect, or what is not in tandem yet
};

// The option of that name; NULL if there is none.
const struct llama_option *llama_option_find(const char *name, size_t length);

// True if text is a value of LLAMA_SWITCH, or a list of such values with commas.
bool llama_option_is_switch(const char *text);

// Reads what turns a switch on or off where it has a value: on, enabled, true or 1; off, disabled,
// false or 0. False if text is none of them.
bool llama_switch_parse(const char *text, bool *on);

struct llama_variable {
    const char *name;   // of the environment variable
    const char *option; // as it is typed
    const char *other;  // an option that excludes it; NULL: none
    const char *clash;  // the value that it excludes; NULL: any
    bool inverted;      // of a switch: what turns other switches off turns this one on
};
enum { LLAMA_VARIABLES_MAX = 64 };
const struct llama_variable *llama_variables(int32_t *count); // at most LLAMA_VARIABLES_MAX

#endif

/* cli_pages.h: the manual page and the completions of shells, from the table of options.
 *
 * Owns nothing. `make build` lets the program write them (tandem help --man, --bash, --zsh,
 * --fish), so that they cannot disagree with what it parses. Any thread. Tested by
 * tests/cli/cli_pages.sh.
 */
#ifndef TANDEM_RUNTIME_CLI_CLI_PAGES_H
#define TANDEM_RUNTIME_CLI_CLI_PAGES_H

#include <stdbool.h>
#include <stdio.h>

// Writes the page of that name, "--man", "--bash", "--zsh" or "--fish". False for another one.
bool cli_page_write(const char *name, FILE *out);

#endif

/* close_name.h: tells which name somebody may have meant who misspelt one.
 *
 * Owns and borrows nothing. Any thread. Tested by tests/runtime/test_options.c and
 * tests/cli/cli_chat.sh.
 */
#ifndef TANDEM_BASE_CLOSE_NAME_H
#define TANDEM_BASE_CLOSE_NAME_H

enum { CLOSE_NAME_CHARS = 40 }; // longer names are far from all others

// Insertions, deletions, replacements and swaps of neighbours between two names; CLOSE_NAME_CHARS
// if one is longer than that. Source: Damerau 1964, as optimal string alignment.
int close_name_changes(const char *a, const char *b);

// The most changes between a given name and one that may be meant: two, and a third of the letters,
// since short names have too many neighbours.
int close_name_most(const char *given);

#endif

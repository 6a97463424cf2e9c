/* grammar_build.h: a grammar while it is made: adds rules, alternatives and elements, and checks
 * the whole.
 *
 * A struct grammar_build owns the grammar until grammar_build_finish. A refused allocation or a
 * limit sticks and shows there. One thread. Used by grammar_parse.c.
 */
#ifndef TANDEM_RUNTIME_GRAMMAR_GRAMMAR_BUILD_H
#define TANDEM_RUNTIME_GRAMMAR_GRAMMAR_BUILD_H

#include "runtime/grammar/grammar.h"

struct grammar_build {
    struct grammar grammar;
    uint32_t n_elements, n_alternatives, n_rules, n_ranges; // rooms of the lists
    bool refused, too_large;
};

void grammar_build_open(struct grammar_build *b);
void grammar_build_close(struct grammar_build *b);

uint32_t grammar_build_rule(struct grammar_build *b); // a rule without alternatives
// Adds an empty alternative to those of the rule; returns it.
uint32_t grammar_build_alternative(struct grammar_build *b, uint32_t rule);
// Appends an element behind *last of the alternative, where 0 means at its front; moves *last on.
void grammar_build_append(struct grammar_build *b, uint32_t alternative, uint32_t *last,
                          struct grammar_element element);

// A set of the ranges[n], which are put in order and joined, or of all other characters.
struct grammar_element grammar_build_set(struct grammar_build *b, struct grammar_range *ranges,
                                         uint32_t n, bool others);
struct grammar_element grammar_build_reference(uint32_t rule);

// Hands the grammar over. ERR_MEMORY, ERR_LIMIT.
enum status grammar_build_finish(struct grammar_build *b, struct grammar *out, struct err *e);

// Fills begins[n_rules] with true for rules that begin with themselves, however many rules lie
// between. ERR_MEMORY.
enum status grammar_build_recursion(const struct grammar *g, bool *begins, struct err *e);

#endif

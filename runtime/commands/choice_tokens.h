/* choice_tokens.h: the tokens of tasks, what of them a model is asked about, and what it answered.
 *
 * A struct choice_tokens owns its lists; its texts are those of the tasks in their order. Must not
 * know an engine. One thread. Tested by tests/runtime/test_choice_tasks.c and
 * tests/cli/cli_perplexity.sh.
 */
#ifndef TANDEM_RUNTIME_COMMANDS_CHOICE_TOKENS_H
#define TANDEM_RUNTIME_COMMANDS_CHOICE_TOKENS_H

#include "runtime/commands/choice_tasks.h"
#include "runtime/text/tokenizer.h"

struct choice_text {
    uint64_t begin; // in the list of ids
    int32_t count;
    int32_t first, last; // tokens whose probabilities count: from first on, before last
    double log_sum;      // of these probabilities, once they are known
};

struct choice_tokens {
    struct token_list ids;
    struct choice_text *texts; // owned, [n_choices]
    int32_t *common;           // owned, [n_tasks]: first tokens that are those of all texts of a
                               // task, and on which no probability that counts depends alone
    int32_t longest;           // tokens of a text
    int32_t most;              // texts of a task
};

// Which tokens of a text count.
enum choice_rule {
    CHOICE_ENDINGS,  // a space and the choice, all tokens in which the texts of a task differ and
                     // those behind them
    CHOICE_SENTENCE, // the choice in its gap: all tokens behind it but the last one, or if that are
                     // few those behind what the texts have in common
};

// Makes the tokens of all tasks. ERR_FORMAT if a text has not two tokens, ERR_MEMORY.
enum status choice_tokens_open(struct choice_tokens *c, const struct choice_tasks *tasks,
                               const struct tokenizer *tokenizer, enum choice_rule rule,
                               struct err *e);
void choice_tokens_close(struct choice_tokens *c); // accepts a zeroed or half-open one

// The mean logarithm of the probabilities that count.
double choice_text_score(const struct choice_text *text);
// The choice of a task, counted from its first one, whose text has the highest score.
int32_t choice_tokens_best(const struct choice_tokens *c, const struct choice_task *task);

#endif

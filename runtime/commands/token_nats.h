/* token_nats.h: how unlikely a model finds a token, in natural logarithms. Owns nothing; any
 * thread. Tested by tests/cli/cli_perplexity.sh.
 */
#ifndef TANDEM_RUNTIME_COMMANDS_TOKEN_NATS_H
#define TANDEM_RUNTIME_COMMANDS_TOKEN_NATS_H

#include <stdint.h>

// -ln of the probability of token by logits[n_vocab]: ln of the sum of all exp(logit), minus its
// own logit. Not finite if a logit is none.
double token_nats(const float *logits, int32_t n_vocab, int32_t token);

#endif

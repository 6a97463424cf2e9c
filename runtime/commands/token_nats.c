/* token_nats.c: see token_nats.h. */
#include "runtime/commands/token_nats.h"

#include <math.h>

double token_nats(const float *logits, int32_t n_vocab, int32_t token) {
    float most = logits[0];
    for (int32_t i = 1; i < n_vocab; i++)
        if (logits[i] > most) most = logits[i];
    double sum = 0;
    for (int32_t i = 0; i < n_vocab; i++) sum += exp((double)logits[i] - most);
    return log(sum) + most - logits[token];
}

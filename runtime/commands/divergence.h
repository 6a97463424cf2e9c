/* divergence.h: how far the probabilities of a model are from those of another one, token by token:
 * the statistics of llama-perplexity --kl-divergence.
 *
 * A struct divergence owns its list of values. Sums are in double precision. One thread. Tested by
 * tests/cli/cli_perplexity.sh.
 */
#ifndef TANDEM_RUNTIME_COMMANDS_DIVERGENCE_H
#define TANDEM_RUNTIME_COMMANDS_DIVERGENCE_H

#include "runtime/commands/logits_file.h"

struct divergence {
    double *values; // owned, of each token; [n]
    int64_t n, capacity;
    int64_t n_same_best;
    double sum, squares;             // of the divergences
    double base_nats, base_squares;  // of -ln p of the next token by the other model
    double products;                 // of these and of this model's
    double gap_squares, gap_fourths; // of the difference of the next token's probabilities
};

enum status divergence_open(struct divergence *d, int64_t capacity, struct err *e);
void divergence_close(struct divergence *d); // accepts a zeroed one

// Adds a token: this model's logits [n_vocab], the other one's row, and the token that came next,
// with its -ln p by this model.
void divergence_add(struct divergence *d, const float *logits, int32_t n_vocab,
                    const struct logits_row *base, int32_t next, double nats);

// A mean of n values and its standard error, by the sums of the values and of their squares.
struct estimate {
    double value, error;
};
struct estimate divergence_mean(double sum, double squares, int64_t n);

struct divergence_result {
    struct estimate base_nats, ratio; // ratio: ln(perplexity / that of the other model)
    struct estimate mean;             // of the divergence, in nats
    double median, p90, p99, p999, most;
    struct estimate gap;       // root of the mean square, of 1
    struct estimate same_best; // share of the tokens
};

// Sorts the values. nats and squares are the sums of this model.
void divergence_result(struct divergence *d, double nats, double squares,
                       struct divergence_result *out);

#endif

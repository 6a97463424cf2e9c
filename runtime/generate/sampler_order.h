/* sampler_order.h: the steps of the sampler and the words and letters for them.
 *
 * A struct sampler_order is a plain value. Any thread. Tested by tests/runtime/test_sampler.c.
 */
#ifndef TANDEM_RUNTIME_GENERATE_SAMPLER_ORDER_H
#define TANDEM_RUNTIME_GENERATE_SAMPLER_ORDER_H

#include "base/err.h"

#include <stdint.h>

enum sampler_step { // in the usual order
    SAMPLER_PENALTIES,
    SAMPLER_DRY,
    SAMPLER_TOP_N_SIGMA,
    SAMPLER_TOP_K,
    SAMPLER_TYPICAL,
    SAMPLER_TOP_P,
    SAMPLER_MIN_P,
    SAMPLER_XTC,
    SAMPLER_TEMPERATURE,
    SAMPLER_STEPS
};

// The steps that run, one after the other; n 0: all of them in the usual order.
struct sampler_order {
    enum sampler_step steps[2 * SAMPLER_STEPS];
    int32_t n;
};

// The usual order if *given is empty.
struct sampler_order sampler_order_of(const struct sampler_order *given);

// Reads names with ';' between them ("penalties;top_k;temperature"; '-' stands for '_', and the
// short names of llama.cpp are known too), or a letter for each step ("ekt"). ERR_USAGE lists what
// there is.
enum status sampler_order_names(struct sampler_order *out, const char *text, struct err *e);
enum status sampler_order_letters(struct sampler_order *out, const char *text, struct err *e);

#endif

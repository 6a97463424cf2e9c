/* mixture.h: the types that a quantised file gives its tensors, as its name (Q4_K_M) says.
 *
 * The rules are those of llama-quantize, so that files of both have the same sizes. Owns nothing;
 * any thread. Tested by tests/runtime/test_mixture.c.
 */
#ifndef TANDEM_RUNTIME_QUANTIZE_MIXTURE_H
#define TANDEM_RUNTIME_QUANTIZE_MIXTURE_H

#include "base/err.h"
#include "runtime/gguf/gguf.h"
#include "runtime/quantize/importance.h"
#include "runtime/quantize/type_rules.h"

struct mixture {
    const char *name;
    uint32_t file_type; // general.file_type
    enum dtype base;    // of most matrices; DTYPE_COUNT: every tensor stays as it is
};

// ERR_USAGE lists the names; small letters are known too.
enum status mixture_find(const struct mixture **out, const char *name, struct err *e);

// True if it is COPY: no tensor changes, nor what the file says of its types.
bool mixture_copies(const struct mixture *m);

// Facts and wishes beside the mixture and the model that a choice depends on.
struct mixture_terms {
    const struct importance *importance; // NULL: none
    struct type_rules *rules;
    bool requantize; // a quantised matrix may be quantised again
};

// Fills types[g->n_tensors]; a tensor that stays as it is gets its own type. ERR_FORMAT for keys of
// the model that are no numbers, ERR_USAGE for rules of a copy, ERR_UNSUPPORTED for a matrix that
// has another quantised type already or whose importance is not known but needed.
enum status mixture_choose(const struct mixture *m, const struct gguf *g,
                           const struct mixture_terms *terms, enum dtype *types, struct err *e);

#endif

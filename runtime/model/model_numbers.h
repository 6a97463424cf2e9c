/* model_numbers.h: a model's numbers from the keys of its file.
 *
 * The keys are those of the GGUF format, the same for every family. Owns nothing; any thread.
 * Tested by tests/runtime/test_model.c.
 */
#ifndef TANDEM_RUNTIME_MODEL_MODEL_NUMBERS_H
#define TANDEM_RUNTIME_MODEL_MODEL_NUMBERS_H

#include "runtime/model/model.h"

// Fills m->hp and the numbers of m->shape, except n_vocab, for which there is no key. ERR_FORMAT or
// ERR_UNSUPPORTED, naming the key.
enum status model_numbers(struct model *m, struct err *e);

#endif

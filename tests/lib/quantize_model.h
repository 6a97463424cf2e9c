/* quantize_model.h: models of a few matrices for the tests that quantise, the files that they use,
 * and what they ask of the new file.
 *
 * Owns the fixture that cmocka hands from test to test. For cmocka programs only: what is refused
 * fails the test. Used by test_mixture.c, test_quantize_file.c, test_quantize_codebooks.c and
 * test_quantize_importance.c of tests/runtime/.
 */
#ifndef TANDEM_TESTS_LIB_QUANTIZE_MODEL_H
#define TANDEM_TESTS_LIB_QUANTIZE_MODEL_H

#include "runtime/quantize/quantize_file.h"
#include "tests/lib/gguf_build.h"

enum { LAYERS = 16, COLUMNS = 256, PATH_BYTES = 96 };

struct paths {
    char folder[32], source[PATH_BYTES], target[PATH_BYTES], importance[PATH_BYTES];
};
int make_paths(void **state);
int remove_paths(void **state);

void add_matrix(struct gguf_build *b, const char *name, uint64_t columns, uint64_t experts);
// A model with odd rows in one matrix; the layers come in the order of their names.
void write_model(const char *path, uint64_t experts, bool tied);
void write_bytes(const char *path, const void *bytes, size_t size);
void write_gguf_importance(const char *path, const char *name, uint64_t columns, uint64_t matrices,
                           float count);

// Quantises p->source to p->target, in place of what is there.
enum status quantize(const struct paths *p, const char *type, const char *importance,
                     struct quantize_result *result, struct err *e);
// The same, and opens the new file.
void must_quantize(const struct paths *p, const char *type, const char *importance, struct gguf *g);
void assert_type(const struct gguf *g, const char *name, enum dtype type);
void assert_layer(const struct gguf *g, int layer, const char *part, enum dtype type);

#endif

/* quantize_file.h: writes a model with smaller types.
 *
 * Reads the tensors from where the file is mapped, a few megabytes at a time, and quantises rows on
 * all lanes of a team; the bytes do not depend on their number. The new file appears when it is
 * whole. One thread. Tested by tests/runtime/test_quantize_file.c and tests/cli/cli_quantize.sh.
 */
#ifndef TANDEM_RUNTIME_QUANTIZE_QUANTIZE_FILE_H
#define TANDEM_RUNTIME_QUANTIZE_QUANTIZE_FILE_H

#include "base/log.h"
#include "base/progress.h"
#include "runtime/quantize/mixture.h"

struct quantize_options {
    const char *source;                 // a GGUF file, or part 1 of a split one
    const char *target;                 // a name that is free; NULL: nothing is written
    const char *importance;             // file of llama-imatrix; NULL: none
    struct importance_choice important; // of that file
    const struct mixture *mixture;      // borrowed
    struct type_wishes types;           // that go before the mixture's
    const char *const *overrides;       // [n_overrides]: values of keys, "KEY=TYPE:VALUE"
    int32_t n_overrides;
    const char *prune_layers; // that the new file has not, such as "3,7"; NULL: none
    bool keep_split;          // the new file has the parts of the source, which are called
                              // target-00001-of-00003.gguf
    bool requantize;          // tensors that are quantised already, too
    int32_t n_threads;        // 0: one per performance core
    const struct log *log;    // NULL: none
    struct progress progress; // told "quantize", in bytes of the source
};

struct quantize_result {
    uint64_t source_bytes, target_bytes; // of tensors
    uint64_t n_elements;                 // of all of them
    uint32_t n_tensors, n_changed;
    uint32_t n_parts;     // of the new file
    uint32_t n_important; // quantised with importance
};

// Without a target only the result is filled. ERR_FILE also if target exists or the disk is full;
// ERR_FORMAT, ERR_UNSUPPORTED for the source or the importance, also for an element that its new
// type cannot hold; ERR_MEMORY, ERR_CANCELLED. On failure no file is left.
enum status quantize_file(const struct quantize_options *options, struct quantize_result *result,
                          struct err *e);

#endif

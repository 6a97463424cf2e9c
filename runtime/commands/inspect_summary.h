/* inspect_summary.h: ten lines about a GGUF file, for somebody who wants to know whether it runs
 * here and why not; fewer about one of importance, which is no model.
 *
 * A struct inspect_summary is a plain value. Opens the devices for a moment, to plan; loads
 * nothing. One thread. Tested by tests/cli/cli_usage.sh.
 */
#ifndef TANDEM_RUNTIME_COMMANDS_INSPECT_SUMMARY_H
#define TANDEM_RUNTIME_COMMANDS_INSPECT_SUMMARY_H

#include "runtime/cli/cli_command.h"
#include "runtime/gguf/gguf.h"

#include <stdio.h>

struct inspect_summary {
    struct shape *shape; // owned; zeroed if the file is no model
    uint64_t n_parameters, tensor_bytes;
    enum dtype type;                     // with the most bytes of tensors
    char template[96];                   // where turns come from, in words
    uint64_t n_importances;              // matrices of a file of importance; 0: it is none
    struct err refused;                  // why the model does not run here; status OK: it does
    double tokens_per_s, first_token_us; // as planned, if it runs
};

// ERR_MEMORY is the only failure: all else is an answer.
enum status inspect_summary_make(struct inspect_summary *s, const struct gguf *g, struct cli *cli,
                                 struct err *e);
void inspect_summary_close(struct inspect_summary *s); // accepts a zeroed one
// One line: whether it would run here, and how fast.
void inspect_summary_print_speed(const struct inspect_summary *s, FILE *out);
void inspect_summary_print(const struct inspect_summary *s, const struct gguf *g, FILE *out);

#endif

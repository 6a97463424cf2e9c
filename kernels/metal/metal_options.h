/* metal_options.h: reads the text behind "--device metal:". Owns nothing; any thread. Tested by
 * tests/kernels/test_metal.c.
 */
#ifndef TANDEM_KERNELS_METAL_METAL_OPTIONS_H
#define TANDEM_KERNELS_METAL_METAL_OPTIONS_H

#include "base/err.h"

#include <stdbool.h>

struct metal_options {
    int32_t index;    // which GPU, as Metal lists them
    char driver[256]; // path of one library with the runtime and Metal; empty: those of macOS
    char source[256]; // file of kernels to compile instead of the program's; empty: the program's
    bool no_matrices; // kernels for devices without simdgroup matrices
};

// Reads "", "1" or "index=1,driver=PATH,source=PATH,matrix=0" in any order, each part optional.
// ERR_USAGE names what is wrong.
enum status metal_options_parse(struct metal_options *out, const char *spec, struct err *e);

#endif

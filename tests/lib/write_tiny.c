/* write_tiny.c: a tool of the scripts: writes a llama model of a few kilobytes whose matrices are
 * F16, with experts if the second argument says how many.
 *
 *   write_tiny FILE [EXPERTS]
 */
#include "tests/lib/tiny_model.h"

#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
    if (argc < 2 || argc > 3) {
        fprintf(stderr, "usage: write_tiny FILE [EXPERTS]\n");
        return 2;
    }
    const struct tiny_model m = {
        .n_layers = 4, .seed = 5, .n_experts = argc > 2 ? atoi(argv[2]) : 0};
    tiny_model_write(&m, argv[1]);
    return 0;
}

/* write_mutants.c: a tool of the scripts: writes COUNT random mutants of a GGUF file into a folder,
 * the same ones for the same seeds.
 *
 *   write_mutants FILE FIRST_SEED COUNT FOLDER
 */
#include "base/file.h"
#include "tests/lib/mutate_gguf.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
    if (argc != 5) {
        fprintf(stderr, "usage: write_mutants FILE FIRST_SEED COUNT FOLDER\n");
        return 2;
    }
    uint64_t first = strtoull(argv[2], NULL, 10), count = strtoull(argv[3], NULL, 10);
    struct file source;
    struct err e;
    if (file_open(&source, argv[1], &e) != OK) {
        fprintf(stderr, "write_mutants: %s\n", e.what);
        return 1;
    }
    for (uint64_t seed = first; seed < first + count; seed++) {
        struct gguf_build b = {0};
        char path[4096];
        snprintf(path, sizeof path, "%s/%" PRIu64 ".gguf", argv[4], seed);
        gguf_bytes_raw(&b.file, source.map, source.size_bytes);
        mutate_gguf(&b.file, seed);
        gguf_build_write(&b, path);
        gguf_build_close(&b);
    }
    file_close(&source);
    return 0;
}

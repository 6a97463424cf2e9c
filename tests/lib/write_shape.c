/* write_shape.c: a tool of the scripts: writes a GGUF file with the header of a model of
 * configs/models and, as a hole, room for its weights. Prints where the weights start.
 *
 *   write_shape NAME FILE
 */
#include "base/mem.h"
#include "tests/lib/shape_gguf.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static enum status find_shape(struct shape *out, const char *name, struct err *e) {
    for (int32_t i = 0; i < shape_builtin_count(); i++)
        if (strcmp(name, shape_builtin_name(i)) == 0) return shape_builtin(out, i, e);
    return err_set(e, ERR_USAGE, "no model has the name %s", name);
}

int main(int argc, char **argv) {
    if (argc != 3) {
        fprintf(stderr, "usage: write_shape NAME FILE\n");
        return 2;
    }
    uint64_t header_bytes;
    struct err e;
    struct shape *shape = mem_alloc(1, sizeof *shape);
    if (!shape || find_shape(shape, argv[1], &e) != OK) {
        fprintf(stderr, "write_shape: %s\n", shape ? e.what : "no memory");
        mem_free(shape);
        return 1;
    }
    shape_gguf_write(argv[2], shape, &header_bytes);
    printf("%" PRIu64 "\n", header_bytes);
    mem_free(shape);
    return 0;
}

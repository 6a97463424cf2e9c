/* multiply_each.c: multiplies on a GPU with a weight of each type, one launch after the other, for
 * cli_cuda_lines.sh, which counts what each touches.
 *
 *   multiply_each --device PREFIX:SPEC TOKENS ROWS COLUMNS
 *
 * Writes the name of each type to standard error before its product. Weights and input are random,
 * and the same in every run. One thread.
 */
#include "base/mem.h"
#include "bench/lib/random_weights.h"
#include "kernels/cpu/device/cpu_device.h"
#include "kernels/drivers.h"
#include "kernels/op_cost.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct product {
    struct device *device;
    struct stream *stream;
    struct buffer weight, x, out, scratch;
    struct matmul_args args;
    void *bytes; // owned: of the weight or the input, on the host
};

static enum status open_device(struct device **out, const char *spec, struct err *e) {
    int n;
    const struct device_driver *drivers = device_drivers(&n);
    const struct cpu_options cpu = {.isa = ISA_AUTO};
    for (int i = 0; i < n; i++) {
        const size_t length = strlen(drivers[i].prefix);
        if (!strncmp(spec, drivers[i].prefix, length) && spec[length] == ':')
            return drivers[i].open(out, spec + length + 1, &cpu, NULL, e);
    }
    return err_set(e, ERR_USAGE, "no device %s is built into this program", spec);
}

static enum status fill(struct product *p, enum weight_type type, const struct buffer *to,
                        uint64_t n, struct err *e) {
    uint64_t state = 88172645463325252u;
    random_weights(type, p->bytes, n, 0.02F, &state);
    stream_copy(p->stream, to->base, p->bytes, to->size_bytes, COPY_TO_DEVICE);
    return stream_wait(p->stream, e);
}

static enum status multiply(struct product *p, enum weight_type type, struct err *e) {
    struct matmul_args *a = &p->args;
    const uint64_t n_weights = (uint64_t)a->row_count * (uint64_t)a->n_cols;
    const uint64_t n_x = (uint64_t)a->n_tokens * (uint64_t)a->n_cols;
    const uint64_t out_bytes = (uint64_t)a->n_tokens * (uint64_t)a->row_count * sizeof(float);
    const uint64_t weight_bytes = dtype_bytes(weight_dtype(type), n_weights);
    const uint64_t most = (n_weights > n_x ? n_weights : n_x) * sizeof(float);
    p->bytes = mem_alloc(most, 1);
    if (!p->bytes) return err_memory(e, most, "a product");
    if (stream_new(p->device, STREAM_COMPUTE, &p->stream, e) ||
        buffer_new(p->device, weight_bytes, PURPOSE_WEIGHTS, &p->weight, e) ||
        buffer_new(p->device, n_x * sizeof(float), PURPOSE_SCRATCH, &p->x, e) ||
        buffer_new(p->device, out_bytes, PURPOSE_SCRATCH, &p->out, e) ||
        buffer_new(p->device,
                   matmul_scratch_bytes(type, a->n_cols, a->n_tokens, p->device->info.n_lanes),
                   PURPOSE_SCRATCH, &p->scratch, e) ||
        fill(p, type, &p->weight, n_weights, e) || fill(p, WEIGHT_F32, &p->x, n_x, e))
        return e->status;
    a->weight = p->weight.base;
    a->x = p->x.base;
    a->out = p->out.base;
    a->scratch = p->scratch.base;
    fprintf(stderr, "%s\n", dtype_name(weight_dtype(type)));
    p->device->ops->matmul(p->stream, type, a);
    return stream_wait(p->stream, e);
}

static void free_product(struct product *p) {
    stream_free(p->stream);
    buffer_free(&p->weight);
    buffer_free(&p->x);
    buffer_free(&p->out);
    buffer_free(&p->scratch);
    mem_free(p->bytes);
}

int main(int argc, char **argv) {
    struct err e = {0};
    char text[1024];
    struct device *device = NULL;
    if (argc != 6 || strcmp(argv[1], "--device") != 0) {
        fprintf(stderr, "usage: multiply_each --device PREFIX:SPEC TOKENS ROWS COLUMNS\n");
        return 2;
    }
    const struct matmul_args args = {.n_tokens = atoi(argv[3]),
                                     .row_count = atoi(argv[4]),
                                     .out_stride = atoi(argv[4]),
                                     .n_cols = atoi(argv[5])};
    enum status status = open_device(&device, argv[2], &e);
    for (int type = 0; type < WEIGHT_COUNT && !status; type++) {
        struct product p = {.device = device, .args = args};
        status = multiply(&p, (enum weight_type)type, &e);
        free_product(&p);
    }
    device_close(device);
    if (status) fprintf(stderr, "multiply_each: %s\n", err_text(&e, text, sizeof text));
    return status ? 1 : 0;
}

/* bench_peak.c: measures the peak rates of the instructions of the matmuls on a GPU, without any
 * memory access.
 *
 *   bench_peak [--device cuda[:SPEC]] [--ms N] [--quick] [--json]
 *
 * The backend chooses device and image. Prints a line per instruction: the best of five launches of
 * at least N ms (50) as operations per second, a multiply-add being two, and the weight types whose
 * matmuls of many tokens use it. --quick takes one round on two blocks, to test the program. The
 * sums are checked: exit code 1 if one is wrong. Tested by tests/cli/cli_kernels.sh.
 */
#include "base/clock.h"
#include "base/mem.h"
#include "bench/cuda/peak.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/cuda_embed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CUDA_IMAGE(target, arch, ptx, driver, file, path) CUDA_EMBED(target, file, path)
#include CUDA_IMAGES
#undef CUDA_IMAGE

static const struct image {
    const char *target, *bytes;
} IMAGES[] = {
#define CUDA_IMAGE(target, arch, ptx, driver, file, path) {#target, cuda_image_##target##_##file},
#include CUDA_IMAGES
#undef CUDA_IMAGE
};

enum {
    N_RUNS = 5,
    BLOCKS = 4,              // on a multiprocessor: 32 warps
    ROUNDS_MAX = 1 << 15,    // 2^19 steps of 16 products: sums of floats stay exact
    QUICK_BLOCKS = 2,        // in all
    BYTES = 0x02ff0301,      // 1, 3, -1, 2
    OTHER_BYTES = 0x01040203 // 3, 2, 4, 1: a product of the two is 7
};
static const uint32_t HALVES = 0x38003400, OTHER_HALVES = 0x34003800; // 0.25, 0.5 and 0.5, 0.25
static const uint32_t ONE = 0x3f800000, EIGHTH = 0x3e000000;

struct instruction {
    const char *name, *kernel;
    int least_arch;  // of the image
    int beyond_arch; // 0: none
    bool tensor_cores, floats;
    uint32_t a, b;
    double warp_ops;  // operations of a step by a warp
    double increment; // of a sum by a step
};

// The products of halves and the multiply-add of floats add an eighth.
static const struct instruction INSTRUCTIONS[] = {
    {"mma.m16n8k32.s8", "peak_s8_mma", 80, 0, true, false, BYTES, OTHER_BYTES, 2 * 16 * 8 * 32,
     7 * 8},
    {"mma.m8n8k16.s8", "peak_s8_mma", 75, 80, true, false, BYTES, OTHER_BYTES, 2 * 8 * 8 * 16,
     7 * 4},
    {"mma.m16n8k16.f16", "peak_f16_mma", 80, 0, true, true, HALVES, OTHER_HALVES, 2 * 16 * 8 * 16,
     16 * 0.125},
    {"mma.m16n8k8.f16", "peak_f16_mma", 75, 80, true, true, HALVES, OTHER_HALVES, 2 * 16 * 8 * 8,
     8 * 0.125},
    {"dp4a.s8", "peak_s8_dp4a", 61, 0, false, false, BYTES, OTHER_BYTES, 2 * 4 * 32, 7},
    {"fma.f32", "peak_f32_fma", 61, 0, false, true, ONE, EIGHTH, 2 * 32, 0.125},
};
enum { N_INSTRUCTIONS = sizeof INSTRUCTIONS / sizeof *INSTRUCTIONS };

struct bench {
    struct cuda_device *gpu;
    struct CUmod_st *module;
    struct CUstream_st *stream;
    unsigned long long out; // [n_blocks * PEAK_THREADS] on the device
    uint32_t *host;         // the same
    int n_blocks;
    uint64_t least_ns;
    bool quick, json;
    int n_lines;
};

static size_t out_bytes(const struct bench *b) {
    return (size_t)b->n_blocks * PEAK_THREADS * sizeof(uint32_t);
}

static bool is_there(const struct bench *b, const struct instruction *i) {
    const int arch = b->gpu->program.arch;
    return arch >= i->least_arch && (!i->beyond_arch || arch < i->beyond_arch) &&
           (!i->tensor_cores || b->gpu->tensor_cores);
}

// True if cuda_launch.c chooses that instruction for matmuls of many tokens.
static bool makes(const struct bench *b, const struct instruction *i, enum weight_type type) {
    const enum weight_kind kind = weight_kind(type);
    const bool mma = b->gpu->tensor_cores && kind != KIND_FLOATS;
    return i->tensor_cores == mma && i->floats == (kind != KIND_BYTES);
}

static enum status run(struct bench *b, const struct instruction *i, int n_rounds, uint64_t *ns,
                       struct err *e) {
    const struct cuda_driver *driver = &b->gpu->driver;
    struct peak_params params = {(uint32_t *)(uintptr_t)b->out, i->a, i->b, n_rounds, 0};
    void *pointers[] = {&params};
    struct CUfunc_st *kernel = NULL;
    unsigned code = driver->module_function(&kernel, b->module, i->kernel);
    if (cuda_check(driver, code, e, "finding %s", i->kernel)) return e->status;
    const uint64_t start = clock_ns();
    code = driver->launch(kernel, (unsigned)b->n_blocks, 1, 1, PEAK_THREADS, 1, 1, 0, b->stream,
                          pointers, NULL);
    if (code == DRIVER_SUCCESS) code = driver->stream_synchronize(b->stream);
    *ns = clock_ns() - start;
    return cuda_check(driver, code, e, "running %s", i->kernel);
}

static enum status check(struct bench *b, const struct instruction *i, int n_rounds,
                         struct err *e) {
    const struct cuda_driver *driver = &b->gpu->driver;
    const double expected = i->increment * n_rounds * PEAK_STEPS;
    unsigned code = driver->copy_from_device(b->host, b->out, out_bytes(b), b->stream);
    if (code == DRIVER_SUCCESS) code = driver->stream_synchronize(b->stream);
    if (cuda_check(driver, code, e, "reading the sums")) return e->status;
    for (int t = 0; t < b->n_blocks * PEAK_THREADS; t++) {
        float real;
        memcpy(&real, &b->host[t], sizeof real);
        const double actual = i->floats ? (double)real : (double)(int32_t)b->host[t];
        if (actual == expected) continue;
        err_set(e, ERR_DEVICE, "%s: %s: the sum of thread %d", b->gpu->base.info.name, i->name, t);
        err_expected(e, "%.17g", expected);
        return err_actual(e, "%.17g", actual);
    }
    return OK;
}

static enum status measure(struct bench *b, const struct instruction *i, double *out_gops,
                           struct err *e) {
    int n_rounds = 1;
    uint64_t ns = 0, best = UINT64_MAX;
    if (run(b, i, n_rounds, &ns, e)) return e->status; // not counted
    while (!b->quick) {
        if (run(b, i, n_rounds, &ns, e)) return e->status;
        if (ns >= b->least_ns || n_rounds >= ROUNDS_MAX) break;
        n_rounds *= 2;
    }
    for (int r = 0; r < (b->quick ? 1 : N_RUNS); r++) {
        if (run(b, i, n_rounds, &ns, e)) return e->status;
        if (ns < best) best = ns;
    }
    const double warps = (double)b->n_blocks * (PEAK_THREADS / 32);
    *out_gops = warps * n_rounds * PEAK_STEPS * PEAK_CHAINS * i->warp_ops / (double)best;
    return check(b, i, n_rounds, e);
}

static enum status report(struct bench *b, const struct instruction *i, struct err *e) {
    double gops = 0;
    if (measure(b, i, &gops, e)) return e->status;
    if (b->json)
        printf("%s  {\"instruction\": \"%s\", \"teraops\": %.4f, \"types\": \"",
               b->n_lines++ ? ",\n" : "", i->name, gops * 1e-3);
    else
        printf("%-18s %10.3f %s  ", i->name, gops * 1e-3, i->floats ? "TFLOP/s" : "TOP/s  ");
    const char *space = "";
    for (int w = 0; w < WEIGHT_COUNT; w++) {
        if (!makes(b, i, (enum weight_type)w)) continue;
        printf("%s%s", space, dtype_name(weight_dtype((enum weight_type)w)));
        space = " ";
    }
    printf("%s", b->json ? "\"}" : "\n");
    fflush(stdout);
    return OK;
}

static enum status load(struct bench *b, struct err *e) {
    const struct cuda_driver *driver = &b->gpu->driver;
    for (size_t i = 0; i < sizeof IMAGES / sizeof *IMAGES; i++) {
        if (strcmp(IMAGES[i].target, b->gpu->program.target) != 0) continue;
        return cuda_check(driver, driver->module_load(&b->module, IMAGES[i].bytes, 0, NULL, NULL),
                          e, "loading %s", IMAGES[i].target);
    }
    return err_set(e, ERR_DEVICE, "no image %s in this program", b->gpu->program.target);
}

static enum status open_bench(struct bench *b, const char *spec, struct err *e) {
    static const struct log log = {.level = LOG_QUIET};
    struct cuda_options options;
    struct device *device = NULL;
    if (cuda_options_parse(&options, spec, e) || cuda_device_open(&device, &options, &log, e))
        return e->status;
    b->gpu = (struct cuda_device *)device;
    b->n_blocks = b->quick ? QUICK_BLOCKS : BLOCKS * b->gpu->n_multiprocessors;
    b->host = mem_alloc(out_bytes(b), 1);
    if (!b->host) return err_memory(e, out_bytes(b), "the sums");
    const struct cuda_driver *driver = &b->gpu->driver;
    if (load(b, e) ||
        cuda_check(driver, driver->stream_create(&b->stream, DRIVER_STREAM_NON_BLOCKING), e,
                   "making a stream"))
        return e->status;
    return cuda_check(driver, driver->memory_alloc(&b->out, out_bytes(b)), e, "%zu bytes for sums",
                      out_bytes(b));
}

static void close_bench(struct bench *b) {
    if (!b->gpu) return;
    const struct cuda_driver *driver = &b->gpu->driver;
    if (b->out) (void)driver->memory_free(b->out);
    if (b->stream) (void)driver->stream_destroy(b->stream);
    if (b->module) (void)driver->module_unload(b->module);
    mem_free(b->host);
    device_close(&b->gpu->base);
    *b = (struct bench){0};
}

static enum status measure_all(struct bench *b, struct err *e) {
    if (b->json)
        printf("[\n");
    else
        printf("%s %s\n%s\n", b->gpu->base.info.kind, b->gpu->base.info.name,
               b->gpu->base.info.details);
    for (int i = 0; i < N_INSTRUCTIONS; i++)
        if (is_there(b, &INSTRUCTIONS[i]) && report(b, &INSTRUCTIONS[i], e)) return e->status;
    if (b->json) printf("\n]\n");
    return OK;
}

// Returns the text after "cuda:" in --device; NULL for another device.
static const char *spec_of(const char *device) {
    const size_t length = strlen("cuda");
    if (strncmp(device, "cuda", length) != 0) return NULL;
    if (!device[length]) return "";
    return device[length] == ':' ? device + length + 1 : NULL;
}

int main(int argc, char **argv) {
    struct bench b = {.least_ns = 50000000};
    const char *spec = "";
    bool good = true;
    for (int i = 1; i < argc && good; i++) {
        if (strcmp(argv[i], "--quick") == 0)
            b.quick = true;
        else if (strcmp(argv[i], "--json") == 0)
            b.json = true;
        else if (i + 1 < argc && strcmp(argv[i], "--device") == 0)
            good = (spec = spec_of(argv[++i])) != NULL;
        else if (i + 1 < argc && strcmp(argv[i], "--ms") == 0)
            b.least_ns = strtoull(argv[++i], NULL, 10) * 1000000;
        else
            good = false;
    }
    if (!good) {
        fprintf(stderr, "bench_peak [--device cuda[:SPEC]] [--ms N] [--quick] [--json]\n");
        return 2;
    }
    struct err e = {0};
    char text[1024];
    const bool done = open_bench(&b, spec, &e) == OK && measure_all(&b, &e) == OK;
    if (!done) fprintf(stderr, "bench_peak: %s\n", err_text(&e, text, sizeof text));
    close_bench(&b);
    return done ? 0 : 1;
}

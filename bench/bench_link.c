/* bench_link.c: measures the link between the host and an accelerator: rates of copies of pinned
 * and of pageable memory, both ways at once, and how well a copy hides behind computing.
 *
 *   bench_link --device PREFIX:SPEC [--mb N] [--quick]
 *
 * Blocks are N MiB (64) and, for rates by size, from 4 KiB up. Prints a JSON list with a line per
 * test, the median of five runs each: GB/s, and for "beside", a copy of pinned memory while the
 * device multiplies, the time of each alone, of both together and the share of the shorter one that
 * was hidden. "pinned" is false where the system refuses to pin. "round_trip" is a small copy to
 * the device, which its compute stream awaits, and back. --quick takes 1 MiB and one run, to test
 * the program. One thread. Run by tests/gpu_check.sh; tested by tests/cli/cli_gpu_check.sh.
 */
#include "base/clock.h"
#include "base/mem.h"
#include "base/number.h"
#include "bench/lib/random_weights.h"
#include "kernels/cpu/device/cpu_device.h"
#include "kernels/drivers.h"
#include "kernels/op_cost.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_RUNS = 5,
    SMALL_BYTES = 4096,
    RUN_BYTES = 16 << 20, // a run of smaller blocks copies as much, in at most MAX_COPIES
    MAX_COPIES = 256,
    COLS = 4096,
    ROWS = 4096,
    TOKENS = 256,
};

struct bench {
    struct device *device;
    struct stream *in, *out, *compute;
    struct event arrived, computed;
    char *host, *other; // pages, owned; only host is ever pinned
    struct buffer pool, weight, x, result, scratch;
    struct matmul_args matmul;
    uint64_t size_bytes;
    int32_t n_products; // of one run beside a copy
    int n_runs, n_lines;
    bool quick, pinned;
};

struct work {              // what is encoded and timed together
    const char *to, *from; // host memory of the copies, NULL: none
    uint64_t size_bytes;
    int32_t n_copies, n_products;
};

static enum status run(struct bench *b, const struct work *w, double *out_us, struct err *e) {
    const uint64_t start_ns = clock_ns();
    char *const half = (char *)b->pool.base + b->pool.size_bytes / 2;
    for (int32_t i = 0; i < w->n_products; i++)
        b->device->ops->matmul(b->compute, WEIGHT_Q4_K, &b->matmul);
    stream_flush(b->compute);
    for (int32_t i = 0; i < w->n_copies; i++) {
        if (w->to) stream_copy(b->in, b->pool.base, w->to, w->size_bytes, COPY_TO_DEVICE);
        if (w->from)
            stream_copy(b->out, (void *)(uintptr_t)w->from, half, w->size_bytes, COPY_FROM_DEVICE);
    }
    stream_flush(b->in);
    stream_flush(b->out);
    if (stream_wait(b->in, e) || stream_wait(b->out, e) || stream_wait(b->compute, e))
        return e->status;
    *out_us = (double)(clock_ns() - start_ns) * 1e-3;
    return OK;
}

// Measures the median of the runs, after one that does not count.
static enum status time_of(struct bench *b, const struct work *w, double *out_us, struct err *e) {
    double us[MAX_RUNS + 1];
    for (int i = 0; i <= b->n_runs; i++)
        if (run(b, w, &us[i], e)) return e->status;
    qsort(us + 1, (size_t)b->n_runs, sizeof *us, order_f64);
    *out_us = us[1 + b->n_runs / 2];
    return OK;
}

static void begin_line(struct bench *b, const char *test) {
    printf("%s  {\"test\": \"%s\"", b->n_lines++ ? ",\n" : "", test);
}

static void end_line(void) {
    printf("}");
    fflush(stdout);
}

static enum status report_rate(struct bench *b, const char *test, const struct work *w, bool pinned,
                               struct err *e) {
    double us;
    if (time_of(b, w, &us, e)) return e->status;
    const double ways = (w->to ? 1 : 0) + (w->from ? 1 : 0);
    begin_line(b, test);
    printf(", \"pinned\": %s, \"block_bytes\": %llu, \"us\": %.2f, \"gb_per_second\": %.3f",
           pinned ? "true" : "false", (unsigned long long)w->size_bytes, us / w->n_copies,
           ways * (double)w->size_bytes * w->n_copies / us * 1e-3);
    end_line();
    return OK;
}

// Copies of all sizes to the device and from it.
static enum status report_sizes(struct bench *b, const char *host, bool pinned, struct err *e) {
    for (uint64_t bytes = SMALL_BYTES; bytes <= b->size_bytes; bytes *= 4) {
        const uint64_t fits = RUN_BYTES / bytes;
        const int32_t n = b->quick || fits < 1 ? 1 : fits < MAX_COPIES ? (int32_t)fits : MAX_COPIES;
        const struct work to = {host, NULL, bytes, n, 0}, from = {NULL, host, bytes, n, 0};
        if (report_rate(b, "to_device", &to, pinned, e) ||
            report_rate(b, "from_device", &from, pinned, e))
            return e->status;
    }
    const struct work both = {host, host + b->size_bytes, b->size_bytes, 1, 0};
    return report_rate(b, "both_ways", &both, pinned, e);
}

// Finds how many products take about as long as a copy of the largest block.
static enum status choose_products(struct bench *b, struct err *e) {
    const struct work copy = {b->host, NULL, b->size_bytes, 1, 0};
    double copy_us, product_us;
    if (time_of(b, &copy, &copy_us, e) ||
        time_of(b, &(struct work){.n_products = 1}, &product_us, e))
        return e->status;
    const double n = copy_us / product_us;
    b->n_products = b->quick || n < 1 ? 1 : n > 1000 ? 1000 : (int32_t)n;
    return OK;
}

static enum status report_beside(struct bench *b, bool to, struct err *e) {
    struct work copy = {to ? b->host : NULL, to ? NULL : b->host, b->size_bytes, 1, 0}, both = copy;
    const struct work compute = {.n_products = b->n_products};
    double copy_us, compute_us, both_us;
    both.n_products = b->n_products;
    if (time_of(b, &copy, &copy_us, e) || time_of(b, &compute, &compute_us, e) ||
        time_of(b, &both, &both_us, e))
        return e->status;
    const double shorter = copy_us < compute_us ? copy_us : compute_us;
    begin_line(b, to ? "to_device_beside" : "from_device_beside");
    printf(", \"pinned\": %s, \"block_bytes\": %llu, \"copy_us\": %.2f, \"compute_us\": %.2f, "
           "\"both_us\": %.2f, \"percent_hidden\": %.1f",
           b->pinned ? "true" : "false", (unsigned long long)b->size_bytes, copy_us, compute_us,
           both_us, 100 * (copy_us + compute_us - both_us) / shorter);
    end_line();
    return OK;
}

static enum status report_round_trip(struct bench *b, struct err *e) {
    double us[MAX_RUNS];
    for (int i = -1; i < b->n_runs; i++) {
        const uint64_t start_ns = clock_ns();
        stream_copy(b->in, b->pool.base, b->host, SMALL_BYTES, COPY_TO_DEVICE);
        stream_record(b->in, &b->arrived);
        stream_flush(b->in);
        stream_wait_event(b->compute, &b->arrived);
        stream_record(b->compute, &b->computed);
        stream_flush(b->compute);
        stream_wait_event(b->out, &b->computed);
        stream_copy(b->out, b->host, b->pool.base, SMALL_BYTES, COPY_FROM_DEVICE);
        if (stream_wait(b->out, e)) return e->status;
        if (i >= 0) us[i] = (double)(clock_ns() - start_ns) * 1e-3;
    }
    qsort(us, (size_t)b->n_runs, sizeof *us, order_f64);
    begin_line(b, "round_trip");
    printf(", \"pinned\": %s, \"block_bytes\": %d, \"us\": %.2f", b->pinned ? "true" : "false",
           (int)SMALL_BYTES, us[b->n_runs / 2]);
    end_line();
    return OK;
}

static enum status measure(struct bench *b, struct err *e) {
    if (report_sizes(b, b->other, false, e)) return e->status;
    b->pinned = device_host_register(b->device, b->host, 2 * b->size_bytes);
    if (report_sizes(b, b->host, b->pinned, e) || report_round_trip(b, e) ||
        choose_products(b, e) || report_beside(b, true, e))
        return e->status;
    return report_beside(b, false, e);
}

// ---- Opening and closing ------------------------------------------------------------------------

static enum status open_device(struct device **out, const char *name, struct err *e) {
    const struct cpu_options cpu = {.isa = ISA_AUTO};
    static const struct log log = {.level = LOG_QUIET};
    int n_drivers;
    const struct device_driver *drivers = device_drivers(&n_drivers);
    const size_t length = strcspn(name, ":");
    for (int i = 0; i < n_drivers; i++)
        if (strlen(drivers[i].prefix) == length && !strncmp(drivers[i].prefix, name, length))
            return drivers[i].open(out, name + length + (name[length] == ':'), &cpu, &log, e);
    return err_set(e, ERR_USAGE, "no device %s is built into this program", name);
}

static enum status fill(struct bench *b, uint64_t rows, uint64_t cols, struct err *e) {
    uint64_t state = 88172645463325252u;
    random_weights(WEIGHT_Q4_K, b->other, rows * cols, 0.02F, &state);
    stream_copy(b->in, b->weight.base, b->other, b->weight.size_bytes, COPY_TO_DEVICE);
    if (stream_wait(b->in, e)) return e->status;
    random_weights(WEIGHT_F32, b->other, b->x.size_bytes / sizeof(float), 1, &state);
    stream_copy(b->in, b->x.base, b->other, b->x.size_bytes, COPY_TO_DEVICE);
    return stream_wait(b->in, e);
}

static enum status open_bench(struct bench *b, struct err *e) {
    const int32_t shrink = b->quick ? 16 : 1, cols = COLS / shrink, rows = ROWS / shrink;
    const int32_t tokens = TOKENS / shrink;
    const uint64_t weight_bytes =
        dtype_bytes(weight_dtype(WEIGHT_Q4_K), (uint64_t)rows * (uint64_t)cols);
    const uint64_t x_bytes = (uint64_t)tokens * (uint64_t)cols * sizeof(float);
    struct device *d = b->device;
    b->host = mem_map_pages(2 * b->size_bytes);
    b->other = mem_map_pages(2 * b->size_bytes);
    if (!b->host || !b->other || !mem_populate(b->host, 2 * b->size_bytes) ||
        !mem_populate(b->other, 2 * b->size_bytes))
        return err_memory(e, 4 * b->size_bytes, "memory to copy");
    if (stream_new(d, STREAM_COPY_IN, &b->in, e) || stream_new(d, STREAM_COPY_OUT, &b->out, e) ||
        stream_new(d, STREAM_COMPUTE, &b->compute, e) || event_new(d, &b->arrived, e) ||
        event_new(d, &b->computed, e) ||
        buffer_new(d, 2 * b->size_bytes, PURPOSE_SCRATCH, &b->pool, e) ||
        buffer_new(d, weight_bytes, PURPOSE_WEIGHTS, &b->weight, e) ||
        buffer_new(d, x_bytes, PURPOSE_SCRATCH, &b->x, e) ||
        buffer_new(d, x_bytes, PURPOSE_SCRATCH, &b->result, e) ||
        buffer_new(d, matmul_scratch_bytes(WEIGHT_Q4_K, cols, tokens, d->info.n_lanes),
                   PURPOSE_SCRATCH, &b->scratch, e))
        return e->status;
    b->matmul = (struct matmul_args){.out = b->result.base,
                                     .x = b->x.base,
                                     .weight = b->weight.base,
                                     .scratch = b->scratch.base,
                                     .n_tokens = tokens,
                                     .n_cols = cols,
                                     .row_count = rows,
                                     .out_stride = rows};
    return fill(b, (uint64_t)rows, (uint64_t)cols, e);
}

static void close_bench(struct bench *b) {
    struct buffer *buffers[] = {&b->pool, &b->weight, &b->x, &b->result, &b->scratch};
    struct stream *streams[] = {b->in, b->out, b->compute};
    for (int i = 0; i < 3; i++) stream_free(streams[i]);
    event_free(&b->arrived);
    event_free(&b->computed);
    for (int i = 0; i < 5; i++) buffer_free(buffers[i]);
    if (b->host) {
        if (b->device) device_host_unregister(b->device, b->host);
        mem_unmap_pages(b->host, 2 * b->size_bytes);
    }
    if (b->other) mem_unmap_pages(b->other, 2 * b->size_bytes);
    device_close(b->device);
}

int main(int argc, char **argv) {
    struct bench b = {.n_runs = MAX_RUNS, .size_bytes = UINT64_C(64) << 20};
    const char *device = NULL;
    bool good = true;
    for (int i = 1; i < argc && good; i++) {
        if (strcmp(argv[i], "--quick") == 0) {
            b.quick = true;
            b.n_runs = 1;
            b.size_bytes = 1 << 20;
        } else if (i + 1 < argc && strcmp(argv[i], "--device") == 0) {
            device = argv[++i];
        } else if (i + 1 < argc && strcmp(argv[i], "--mb") == 0) {
            b.size_bytes = strtoull(argv[++i], NULL, 10) << 20;
        } else {
            good = false;
        }
    }
    if (!good || !device || b.size_bytes < 1 << 20 || (!b.quick && b.size_bytes < 16 << 20)) {
        fprintf(stderr, "usage: bench_link --device PREFIX:SPEC [--mb N] [--quick]; N >= 16\n");
        return 2;
    }
    struct err e = {0};
    char text[1024];
    puts("[");
    const bool done = open_device(&b.device, device, &e) == OK && open_bench(&b, &e) == OK &&
                      measure(&b, &e) == OK;
    puts("\n]");
    if (!done) fprintf(stderr, "bench_link: %s\n", err_text(&e, text, sizeof text));
    close_bench(&b);
    return done ? 0 : 1;
}

/* bench_engine.c: measures tokens per second of the whole engine, prefill and decode, beside the
 * limit of memory.
 *
 *   bench_engine [-m MODEL] [-p PROMPT_TOKENS] [-n TOKENS] [-r REPEATS] [-t THREADS] [-i ISA]
 *                [-d DEVICE] [-g GPU_LAYERS] [-c FOLDER]
 *
 * Plans with the rates that FOLDER keeps, else with those of the nearest known machine.
 * Makes one run that does not count, then REPEATS of each test, all from an empty KV cache as
 * llama-bench does. Prints one JSON line per test: median, least and most tokens/s, and for decode
 * the bytes of weights read per second beside the best rate at which as many threads read memory
 * that is mapped as the model is.
 * There is no sampling and no tokenizer.
 */
#include "base/clock.h"
#include "base/mem.h"
#include "base/number.h"
#include "bench/lib/limits.h"
#include "kernels/drivers.h"
#include "runtime/engine/engine.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_REPEATS = 100 };

struct bench {
    struct engine *engine;
    struct session *session;
    struct batch_item *items;
    int32_t n_prompt, n_decode, n_repeats;
    double read_gbps; // of the CPU's memory; 0 if an accelerator takes part
};

static enum status prefill(struct bench *b, int32_t n, struct err *e) {
    session_truncate(b->session, 0);
    for (int32_t i = 0; i < n; i++) {
        const int32_t token = 1 + (i * 7919) % (engine_n_vocab(b->engine) - 1);
        b->items[i] = (struct batch_item){b->session, token, i == n - 1};
    }
    return engine_eval(b->engine, b->items, n, e);
}

static enum status decode(struct bench *b, int32_t n, struct err *e) {
    session_truncate(b->session, 0);
    for (int32_t i = 0; i < n; i++) {
        struct batch_item item = {b->session, 1 + (i * 7919) % (engine_n_vocab(b->engine) - 1),
                                  true};
        if (engine_eval(b->engine, &item, 1, e)) return e->status;
    }
    return OK;
}

// Times one test and prints its line.
static enum status measure(struct bench *b, const char *name,
                           enum status (*test)(struct bench *, int32_t, struct err *), int32_t n,
                           bool is_decode, struct err *e) {
    double rates[MAX_REPEATS];
    for (int32_t r = -1; r < b->n_repeats; r++) {
        const uint64_t start = clock_ns();
        if (test(b, n, e)) return e->status;
        const double seconds = (double)(clock_ns() - start) * 1e-9;
        if (r >= 0) rates[r] = n / seconds;
    }
    qsort(rates, (size_t)b->n_repeats, sizeof *rates, order_f64);
    const double median = rates[b->n_repeats / 2];
    printf("{\"test\": \"%s%d\", \"tokens_per_second\": %.2f, \"least\": %.2f, \"most\": %.2f",
           name, n, median, rates[0], rates[b->n_repeats - 1]);
    if (is_decode) {
        struct simulation one;
        const struct pass pass = {1, 1, 0};
        plan_simulate(engine_plan(b->engine), engine_shape(b->engine), &pass, &one);
        double rate = 0;
        for (int d = 0; d < MAX_DEVICES; d++) rate += median * (double)one.weight_bytes[d];
        printf(", \"weights_gb_per_second\": %.2f", rate * 1e-9);
        if (b->read_gbps > 0)
            printf(", \"memory_gb_per_second\": %.2f, \"percent\": %.1f", b->read_gbps,
                   100e-9 * rate / b->read_gbps);
    }
    printf("}\n");
    fflush(stdout);
    return OK;
}

// Measures the reader with a team of its own, before the engine has one.
static enum status measure_memory(struct bench *b, int32_t n_threads, struct err *e) {
    enum { SIZE_BYTES = 512 << 20 };
    struct team *team;
    if (team_open(&team, n_threads, true, e)) return e->status;
    char *memory = limits_map(SIZE_BYTES, false);
    if (memory) memset(memory, 1, SIZE_BYTES);
    b->read_gbps = memory ? limits_read_gbps(team, memory, SIZE_BYTES) : 0;
    limits_unmap(memory, SIZE_BYTES);
    team_close(team);
    return memory ? OK : err_memory(e, SIZE_BYTES, "memory to read");
}

static enum status run(struct bench *b, const struct engine_options *o, struct err *e) {
    if (engine_open(&b->engine, o, e)) return e->status;
    const int32_t n = b->n_prompt > b->n_decode ? b->n_prompt : b->n_decode;
    b->items = mem_alloc((size_t)n, sizeof *b->items);
    if (!b->items) err_memory(e, (size_t)n * sizeof *b->items, "the batch");
    if (!b->items || session_new(&b->session, b->engine, e)) return e->status;
    if (b->n_prompt && measure(b, "pp", prefill, b->n_prompt, false, e)) return e->status;
    return b->n_decode ? measure(b, "tg", decode, b->n_decode, true, e) : OK;
}

int main(int argc, char **argv) {
    struct bench b = {.n_prompt = 256, .n_decode = 64, .n_repeats = 5};
    struct engine_options o = {
        .model_path = "models/SmolLM2-135M-Instruct.Q4_1.gguf",
        .device_spec = "none",
        .cpu = {.isa = ISA_AUTO},
        .constraints = {.gpu_layers = GPU_LAYERS_AUTO},
        .workload = {.kv_type_k = DTYPE_F16, .kv_type_v = DTYPE_F16},
    };
    o.drivers = device_drivers(&o.n_drivers);
    for (int flag; (flag = getopt(argc, argv, "m:p:n:r:t:i:d:g:c:")) != -1;) {
        switch (flag) {
        case 'm': o.model_path = optarg; break;
        case 'p': b.n_prompt = atoi(optarg); break;
        case 'n': b.n_decode = atoi(optarg); break;
        case 'r': b.n_repeats = atoi(optarg); break;
        case 't': o.cpu.n_threads = atoi(optarg); break;
        case 'd': o.device_spec = optarg; break;
        case 'g': o.constraints.gpu_layers = atoi(optarg); break;
        case 'c': o.cache_path = optarg; break;
        case 'i':
            if (cpu_isa_parse(optarg, &o.cpu.isa)) break; // fall through
        default:
            fprintf(stderr,
                    "usage: %s [-m MODEL] [-p N] [-n N] [-r N] [-t N] [-i ISA] [-d DEVICE] "
                    "[-g LAYERS] [-c FOLDER]\n",
                    argv[0]);
            return 2;
        }
    }
    if (b.n_repeats < 1 || b.n_repeats > MAX_REPEATS || b.n_prompt < 0 || b.n_decode < 0) return 2;
    o.workload.n_ctx = b.n_prompt > b.n_decode ? b.n_prompt : b.n_decode;
    struct err e = {0};
    enum status status = OK;
    if (!strcmp(o.device_spec, "none")) status = measure_memory(&b, o.cpu.n_threads, &e);
    if (!status) status = run(&b, &o, &e);
    char text[1024];
    if (status) fprintf(stderr, "%s\n", err_text(&e, text, sizeof text));
    session_free(b.session);
    engine_close(b.engine);
    mem_free(b.items);
    return status != OK;
}

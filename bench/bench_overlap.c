/* bench_overlap.c: measures how well copies and computing overlap in a running plan, on the
 * simulated accelerator.
 *
 *   bench_overlap [-m MODEL] [-p PROMPT_TOKENS] [-r REPEATS] [-i ISA] [-v VRAM] [-s WORDS]
 *
 * -s has more words for the simulated device, as read=40G,flops=1000G, which give it the rates of a
 * GPU and a thread that stays awake (tests/sim/sim_timed.h); "taskset -c 0" keeps the CPU's lane
 * off the last processor, which that thread takes.
 *
 * Uses one lane of the CPU and one worker of the simulated device, so it needs two free cores. Runs
 * tests, each in a fresh engine per repeat, judged by the times of its own steps; of a model with
 * experts the first and the last, else the first three:
 *   stream  every FFN, or the experts of every layer, streamed over a link a tenth faster than
 *           computing: time / max(copying, computing)
 *   split   every FFN split so that both devices take as long: time / the slower one, summed over
 *           units
 *   ahead   the first half of the layers on the CPU, 8 micro-batches: computing of both / time
 *   decode  48 tokens one after the other, the experts of every layer split so that both devices
 *           take as long: as split
 * Prints one JSON line per test: median, least and most of that figure; serial, the figure without
 * any overlap, which has the sum of copying and both devices' computing instead of the time; and
 * the share of the copies' time that was hidden.
 */
#include "base/mem.h"
#include "base/number.h"
#include "runtime/engine/engine.h"
#include "runtime/engine/trace.h"
#include "tests/sim/sim_device.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { HOST, GPU, MAX_REPEATS = 100, N_SPANS = 1 << 16, N_AHEAD = 8, N_DECODE = 48 };

struct bench {
    struct engine_options options;
    struct batch_item *items;
    int32_t n_prompt, n_repeats;
    int32_t n_units;
    bool has_experts;
    int32_t n_decode;  // tokens behind the prompt; if there are any, they are what is measured
    const char *vram;  // of the test that streams
    const char *words; // more of the device's
    char spec[256];
};

struct figures {
    struct trace_usage usage;
    double split_us, slower_us;  // over split units: time, and computing of the slower device
    double unit_us[MAX_DEVICES]; // computing of split units
};

// ---- One prompt, and tokens behind it -----------------------------------------------------------

// Adds up the spans of one split unit in one pass, which are [first, end).
static void add_split(const struct trace *t, int32_t first, int32_t end, int16_t unit,
                      struct figures *out) {
    uint64_t from_ns = UINT64_MAX, to_ns = 0;
    double busy_us[MAX_DEVICES] = {0};
    for (int32_t i = first; i < end; i++) {
        const struct trace_span *span = trace_at(t, i);
        // The CPU begins to wait for the unit's residual stream while the previous unit runs.
        if (span->unit != unit || span->kind == STEP_WAIT) continue;
        if (span->first_ns < from_ns) from_ns = span->first_ns;
        if (span->last_ns > to_ns) to_ns = span->last_ns;
        if (span->kind == STEP_COMPUTE)
            busy_us[span->device] += (double)(span->last_ns - span->first_ns) * 1e-3;
    }
    if (to_ns == 0) return;
    for (int d = 0; d < MAX_DEVICES; d++) out->unit_us[d] += busy_us[d];
    out->split_us += (double)(to_ns - from_ns) * 1e-3;
    out->slower_us += busy_us[HOST] > busy_us[GPU] ? busy_us[HOST] : busy_us[GPU];
}

static void read_trace(const struct trace *t, const struct plan *plan, enum batch_class batch,
                       struct figures *out) {
    *out = (struct figures){0};
    trace_usage(t, batch, &out->usage);
    for (int32_t first = 0, end; first < trace_count(t); first = end) {
        for (end = first; end < trace_count(t); end++)
            if (trace_at(t, end)->pass != trace_at(t, first)->pass) break;
        if (batch_class_of(trace_at(t, first)->n_tokens) != batch) continue;
        for (int32_t u = 0; u < plan->n_units; u++)
            if (plan->place.units[u].cpu_parts) add_split(t, first, end, (int16_t)u, out);
    }
}

static enum status run_prompt(struct bench *b, struct figures *out, struct err *e) {
    struct engine *en;
    struct session *s = NULL;
    const int32_t n = b->options.workload.n_ctx, n_prompt = n - b->n_decode;
    if (engine_open(&en, &b->options, e)) return e->status;
    enum status status = session_new(&s, en, e);
    for (int32_t i = 0; i < n; i++)
        b->items[i] =
            (struct batch_item){s, 1 + (i * 7919) % (engine_n_vocab(en) - 1), i >= n_prompt - 1};
    if (!status) status = engine_eval(en, b->items, n_prompt, e);
    for (int32_t i = n_prompt; i < n && !status; i++) status = engine_eval(en, &b->items[i], 1, e);
    const enum batch_class batch = b->n_decode ? BATCH_ONE : BATCH_PREFILL;
    if (!status) read_trace(engine_trace(en), engine_plan(en), batch, out);
    session_free(s);
    engine_close(en);
    return status;
}

// The sum of copying and computing, divided by the longest of them.
static double serial_figure(const struct figures *f) {
    const struct trace_times *t = &f->usage.measured;
    double most = t->copy_us, sum = t->copy_us;
    for (int d = 0; d < MAX_DEVICES; d++) {
        sum += t->busy_us[d];
        if (t->busy_us[d] > most) most = t->busy_us[d];
    }
    return sum / most;
}

// Repeats the prompt; figure computes the number that is printed.
static enum status measure(struct bench *b, const char *name,
                           double (*figure)(const struct figures *), struct err *e) {
    double values[MAX_REPEATS], hidden[MAX_REPEATS], serial[MAX_REPEATS];
    for (int32_t r = 0; r < b->n_repeats; r++) {
        struct figures f;
        if (run_prompt(b, &f, e)) return e->status;
        values[r] = figure(&f);
        const struct trace_times *times = &f.usage.measured;
        hidden[r] = times->copy_us > 0 ? times->hidden_us / times->copy_us : 0;
        serial[r] = serial_figure(&f);
        fprintf(stderr, "%s: %.1f ms, CPU %.1f ms, accelerator %.1f ms, copies %.1f ms\n", name,
                times->total_us * 1e-3, times->busy_us[HOST] * 1e-3, times->busy_us[GPU] * 1e-3,
                times->copy_us * 1e-3);
    }
    qsort(values, (size_t)b->n_repeats, sizeof *values, order_f64);
    qsort(hidden, (size_t)b->n_repeats, sizeof *hidden, order_f64);
    qsort(serial, (size_t)b->n_repeats, sizeof *serial, order_f64);
    printf("{\"test\": \"%s\", \"median\": %.3f, \"least\": %.3f, \"most\": %.3f, "
           "\"serial\": %.3f, \"hidden_copies\": %.3f, \"repeats\": %d}\n",
           name, values[b->n_repeats / 2], values[0], values[b->n_repeats - 1],
           serial[b->n_repeats / 2], hidden[b->n_repeats / 2], b->n_repeats);
    return OK;
}

// ---- The tests ----------------------------------------------------------------------------------

// Layers are attention and an FFN or experts.
static bool is_ffn(const struct bench *b, int32_t u) {
    return u > 0 && u % 2 == 0 && u < b->n_units - 1;
}

static void use_device(struct bench *b, const char *spec) {
    (void)snprintf(b->spec, sizeof b->spec, "%s%s%s", spec, *b->words ? "," : "", b->words);
    b->options.device_spec = b->spec;
}

// Places everything but the embedding on the accelerator, with one micro-batch.
static void start_ways(struct bench *b, const char *spec) {
    struct constraints *c = &b->options.constraints;
    *c = (struct constraints){
        .gpu_layers = GPU_LAYERS_AUTO, .has_units = true, .has_placement = true};
    for (int32_t u = 0; u < b->n_units; u++) c->place.units[u].device = u > 0 ? GPU : HOST;
    use_device(b, spec);
    b->options.workload.n_ctx = b->options.workload.n_ubatch = b->n_prompt;
}

static double stream_figure(const struct figures *f) {
    const struct trace_times *times = &f->usage.measured;
    const double busy_us = times->busy_us[GPU];
    return times->total_us / (times->copy_us > busy_us ? times->copy_us : busy_us);
}

static enum status bench_stream(struct bench *b, struct err *e) {
    struct constraints *c = &b->options.constraints;
    struct figures f;
    char spec[64];
    (void)snprintf(spec, sizeof spec, "sim:vram=%s", b->vram);
    start_ways(b, spec);
    for (int32_t u = 0; u < b->n_units; u++) {
        c->place.units[u].streamed = is_ffn(b, u);
        if (is_ffn(b, u)) c->place.units[u].device = HOST;
    }
    c->place.feed = FEED_ARENA;
    if (run_prompt(b, &f, e)) return e->status;
    const double rate =
        1.1 * (double)f.usage.fetched_bytes / (f.usage.measured.busy_us[GPU] * 1e-6);
    (void)snprintf(spec, sizeof spec, "sim:vram=%s,h2d=%.0fK", b->vram, rate / 1024);
    use_device(b, spec);
    return measure(b, "stream", stream_figure, e);
}

static double split_figure(const struct figures *f) { return f->split_us / f->slower_us; }

static void split_all(struct bench *b, int32_t cpu_parts) {
    for (int32_t u = 0; u < b->n_units; u++)
        b->options.constraints.place.units[u].cpu_parts = is_ffn(b, u) ? (uint8_t)cpu_parts : 0;
}

static enum status bench_split(struct bench *b, const char *name, struct err *e) {
    struct figures f;
    start_ways(b, "sim:vram=1G,h2d=4G,d2h=4G");
    b->options.workload.n_ctx += b->n_decode;
    split_all(b, UNIT_PARTS / 2);
    if (run_prompt(b, &f, e)) return e->status;
    // Parts in proportion to the speeds just seen.
    const double share = f.unit_us[GPU] / (f.unit_us[HOST] + f.unit_us[GPU]);
    int32_t parts = (int32_t)(UNIT_PARTS * share + 0.5);
    if (parts < 1) parts = 1;
    if (parts > UNIT_PARTS - 1) parts = UNIT_PARTS - 1;
    split_all(b, parts);
    return measure(b, name, split_figure, e);
}

static enum status bench_decode(struct bench *b, struct err *e) {
    b->n_decode = N_DECODE;
    return bench_split(b, "decode", e);
}

static double ahead_figure(const struct figures *f) {
    const struct trace_times *times = &f->usage.measured;
    return (times->busy_us[HOST] + times->busy_us[GPU]) / times->total_us;
}

static enum status bench_ahead(struct bench *b, struct err *e) {
    start_ways(b, "sim:vram=1G,h2d=4G,d2h=4G");
    for (int32_t u = 0; u < b->n_units / 2; u++)
        b->options.constraints.place.units[u].device = HOST;
    b->options.workload.n_ctx = N_AHEAD * b->n_prompt;
    return measure(b, "ahead", ahead_figure, e);
}

// ---- The program --------------------------------------------------------------------------------

static enum status run(struct bench *b, struct err *e) {
    struct engine *en;
    b->options.workload.n_ctx = b->n_prompt;
    if (engine_open(&en, &b->options, e)) return e->status;
    b->n_units = engine_shape(en)->n_units;
    b->has_experts = engine_shape(en)->n_experts > 0;
    engine_close(en);
    b->items = mem_alloc((size_t)(N_AHEAD * b->n_prompt), sizeof *b->items);
    if (!b->items) return err_memory(e, (size_t)b->n_prompt * sizeof *b->items, "the prompt");
    b->options.trace_spans = N_SPANS;
    if (bench_stream(b, e)) return e->status;
    if (b->has_experts) return bench_decode(b, e);
    return bench_split(b, "split", e) ? e->status : bench_ahead(b, e);
}

int main(int argc, char **argv) {
    struct bench b = {.n_prompt = 128, .n_repeats = 5, .vram = "1G", .words = ""};
    b.options = (struct engine_options){
        .model_path = "models/SmolLM2-135M-Instruct.Q4_1.gguf",
        .device_spec = "none",
        .drivers = &sim_driver,
        .n_drivers = 1,
        .cpu = {.isa = ISA_AUTO, .n_threads = 1},
        .constraints = {.gpu_layers = GPU_LAYERS_AUTO},
        .workload = {.kv_type_k = DTYPE_F16, .kv_type_v = DTYPE_F16},
    };
    for (int flag; (flag = getopt(argc, argv, "m:p:r:i:s:v:")) != -1;) {
        switch (flag) {
        case 'm': b.options.model_path = optarg; break;
        case 'p': b.n_prompt = atoi(optarg); break;
        case 'r': b.n_repeats = atoi(optarg); break;
        case 'v': b.vram = optarg; break;
        case 's': b.words = optarg; break;
        case 'i':
            if (cpu_isa_parse(optarg, &b.options.cpu.isa)) break; // fall through
        default:
            fprintf(stderr, "usage: %s [-m MODEL] [-p N] [-r N] [-i ISA] [-v VRAM] [-s WORDS]\n",
                    argv[0]);
            return 2;
        }
    }
    // More than 32 tokens are a prompt.
    if (b.n_repeats < 1 || b.n_repeats > MAX_REPEATS || b.n_prompt <= 32) return 2;
    struct err e = {0};
    char text[1024];
    const enum status status = run(&b, &e);
    if (status) fprintf(stderr, "%s\n", err_text(&e, text, sizeof text));
    mem_free(b.items);
    return status != OK;
}

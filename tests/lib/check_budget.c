/* check_budget.c: random limits of memory on one kind of accelerator: each is kept to the byte, or
 * refused before anything is loaded with a message whose advice is true.
 *
 *   check_budget sim|cuda MODEL SEED FIRST COUNT
 *
 * Draw n of a seed is the same wherever it starts, so a failure is repeated with FIRST n, COUNT 1.
 * A run must give the logits of the CPU alone: the same bits on the simulated device, nearly the
 * same on a real or emulated one. One test per line, a summary at the end. Run by
 * tests/cli/cli_budget.sh.
 */
#include "runtime/engine/engine.h"

#include "base/mem.h"
#include "kernels/drivers.h"
#include "runtime/cli/heap.h"
#include "runtime/text/tokenizer.h"
#include "tests/lib/invent.h"
#include "tests/sim/sim_device.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_PROMPT = 14, MAX_ROWS = 3, MAX_SESSIONS = 3, MAX_MEMORY_ROWS = 16 };
static const char TEXT[] = "1, 2, 3, 4, 5, 6,"; // what comes next is far ahead of all others
static const double MIB = 1 << 20;
static const double MOST_NMSE = 5e-3; // devices that round differently
// With 4 bits a key that is rounded differently takes another step: ref and AVX2 differ by 0.22
// too.
static const double MOST_NMSE_Q4_0 = 0.3;

struct draw {
    int32_t index;
    uint64_t vram_bytes;    // of the device
    uint64_t taken_bytes;   // of it, once it was said to be free; 0: none (sim)
    int32_t refused_buffer; // the nth buffer is refused; 0: none (cuda)
    const char *capability; // cuda
    struct workload workload;
    struct constraints constraints;
    int32_t kv_k, kv_v; // enum kv_type
    bool cpu_alone;
    bool pages; // weights may be read from the disk in each pass
};

struct check {
    const char *kind, *model_path;
    bool is_sim;
    int32_t n_prompt, n_rows; // tokens of the prompt; logits wanted: after it, and each new token
    int32_t n_vocab;
    int32_t prompt[MAX_PROMPT];
    float *expected[KV_TYPES][KV_TYPES]; // [n_rows, n_vocab] on the CPU alone; NULL: not needed yet
    float *logits;                       // [MAX_SESSIONS, n_rows, n_vocab] of this draw
    bool loading_began;
    int32_t n_problems;                                                // of this draw
    int32_t n_ran, n_refused, n_replans, n_split, n_advised, n_failed; // draws
};

// ---- The accelerator, watched -------------------------------------------------------------------

// Records the engine's use of its accelerator, independently of the engine's own counts. One engine
// at a time.
static struct {
    const struct device_driver *driver;
    const struct device_class *inner;
    struct device_class outer;
    uint64_t free_bytes;
    uint64_t used_bytes, peak_bytes; // the peak of the plan that nothing was refused to
    int32_t n_buffers, n_refused;
} watch;

static enum status watched_buffer_new(struct device *d, uint64_t size_bytes, enum purpose purpose,
                                      void **base, struct err *e) {
    const enum status status = watch.inner->buffer_new(d, size_bytes, purpose, base, e);
    if (status) {
        watch.n_refused++;
        return status;
    }
    watch.n_buffers++;
    watch.used_bytes += size_bytes;
    if (watch.used_bytes > watch.peak_bytes) watch.peak_bytes = watch.used_bytes;
    return OK;
}

static void watched_buffer_free(struct device *d, void *base, uint64_t size_bytes) {
    watch.used_bytes -= size_bytes;
    watch.inner->buffer_free(d, base, size_bytes);
    if (watch.used_bytes == 0) watch.peak_bytes = 0;
}

static enum status watched_open(struct device **out, const char *spec,
                                const struct cpu_options *options, const struct log *log,
                                struct err *e) {
    if (watch.driver->open(out, spec, options, log, e)) return e->status;
    watch.inner = (*out)->class;
    watch.outer = *watch.inner;
    watch.outer.buffer_new = watched_buffer_new;
    watch.outer.buffer_free = watched_buffer_free;
    watch.free_bytes = (*out)->info.free_bytes;
    watch.used_bytes = watch.peak_bytes = 0;
    watch.n_buffers = watch.n_refused = 0;
    (*out)->class = &watch.outer;
    return OK;
}

static bool find_driver(const char *kind) {
    int n = 0;
    const struct device_driver *drivers = device_drivers(&n);
    watch.driver = strcmp(kind, sim_driver.prefix) == 0 ? &sim_driver : NULL;
    for (int i = 0; i < n && !watch.driver; i++)
        if (strcmp(kind, drivers[i].prefix) == 0) watch.driver = &drivers[i];
    return watch.driver != NULL;
}

// ---- What is drawn ------------------------------------------------------------------------------

static uint64_t draw_bytes(struct dice *dice, double low, double high) {
    return (uint64_t)dice_scale(dice, low, high);
}

static void draw_limits(struct draw *d, struct dice *dice, bool is_sim) {
    // A cuda device keeps no more than its reserve for itself from 32 MiB on.
    d->vram_bytes = draw_bytes(dice, (is_sim ? 1 : 32) * MIB, 200 * MIB) >> 10 << 10;
    d->constraints.ram_bytes = draw_bytes(dice, 20 * MIB, 400 * MIB);
    if (dice_chance(dice, 0.3)) d->constraints.vram_bytes = draw_bytes(dice, MIB, 200 * MIB);
    if (dice_chance(dice, 0.25)) {
        if (is_sim)
            d->taken_bytes = draw_bytes(dice, 0.2 * MIB, (double)d->vram_bytes) >> 10 << 10;
        else
            d->refused_buffer = dice_int(dice, 1, 40);
    }
    d->constraints.gpu_layers =
        dice_chance(dice, 0.75) ? GPU_LAYERS_AUTO : dice_int(dice, 0, is_sim ? 33 : 6);
}

static void draw_workload(struct draw *d, struct dice *dice, bool is_sim) {
    struct workload *w = &d->workload;
    d->kv_k = dice_int(dice, 0, KV_TYPES - 1);
    d->kv_v = dice_int(dice, 0, KV_TYPES - 1);
    w->kv_type_k = kv_dtype((enum kv_type)d->kv_k);
    w->kv_type_v = kv_dtype((enum kv_type)d->kv_v);
    w->n_ctx = (int32_t)dice_scale(dice, 16, is_sim ? 8192 : 256);
    w->n_sessions = is_sim ? dice_int(dice, 1, MAX_SESSIONS) : 1;
    w->max_logits = w->n_sessions;
    if (dice_chance(dice, 0.5)) w->n_ubatch = (int32_t)dice_scale(dice, 1, 1024);
}

static void make_draw(struct draw *d, const struct check *c, uint64_t seed, int32_t index) {
    static const char *const capabilities[] = {"6.1", "7.5", "8.6"};
    struct dice dice = {seed * UINT64_C(1000003) + (uint64_t)index};
    (void)dice_roll(&dice);
    *d = (struct draw){.index = index};
    d->capability = capabilities[dice_int(&dice, 0, 2)];
    draw_limits(d, &dice, c->is_sim);
    draw_workload(d, &dice, c->is_sim);
}

static void print_draw(const struct check *c, const struct draw *d) {
    const struct workload *w = &d->workload;
    printf("%s vram %" PRIu64 "K taken %" PRIu64 "K refused buffer %d, --vram %" PRIu64
           " --ram %" PRIu64 " -ngl %d -c %d -ub %d -ctk %s -ctv %s, %d sessions",
           c->kind, d->vram_bytes >> 10, d->taken_bytes >> 10, d->refused_buffer,
           d->constraints.vram_bytes, d->constraints.ram_bytes, d->constraints.gpu_layers, w->n_ctx,
           w->n_ubatch, dtype_name(w->kv_type_k), dtype_name(w->kv_type_v), w->n_sessions);
}

static void problem(struct check *c, const struct draw *d, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static void problem(struct check *c, const struct draw *d, const char *format, ...) {
    va_list list;
    va_start(list, format);
    printf("# %d: ", d->index);
    vprintf(format, list);
    printf("\n");
    va_end(list);
    c->n_problems++;
}

// ---- Running ------------------------------------------------------------------------------------

static bool note_loading(void *context, const char *what, uint64_t done, uint64_t total) {
    (void)done;
    (void)total;
    if (strcmp(what, "load") == 0) ((struct check *)context)->loading_began = true;
    return true;
}

static enum status open_draw(struct engine **out, struct check *c, const struct draw *d,
                             struct err *e) {
    char spec[96] = "cuda", vram[32], capability[16], nth[16];
    const struct device_driver driver = {.prefix = c->kind, .help = "", .open = watched_open};
    struct engine_options o = {.model_path = c->model_path,
                               .device_spec = spec,
                               .drivers = &driver,
                               .n_drivers = 1,
                               .cpu = {.isa = ISA_AUTO, .n_threads = 2},
                               .workload = d->workload,
                               .constraints = d->constraints,
                               .allow_paging = d->pages,
                               .progress = {note_loading, c}};
    snprintf(vram, sizeof vram, "%" PRIu64 "K", d->vram_bytes >> 10);
    if (d->cpu_alone) {
        snprintf(spec, sizeof spec, "none");
    } else if (c->is_sim) {
        int n = snprintf(spec, sizeof spec, "sim:vram=%s", vram);
        if (d->taken_bytes)
            snprintf(spec + n, sizeof spec - (size_t)n, ",taken=%" PRIu64 "K",
                     d->taken_bytes >> 10);
    } else {
        snprintf(capability, sizeof capability, "%s", d->capability);
        snprintf(nth, sizeof nth, "%d", d->refused_buffer);
        setenv("EMU_CUDA_VRAM", vram, 1);
        setenv("EMU_CUDA_CC", capability, 1);
        setenv("EMU_CUDA_FAIL_ALLOC", nth, 1);
    }
    c->loading_began = false;
    return engine_open(out, &o, e);
}

static int32_t greedy(const float *row, int32_t n) {
    int32_t best = 0;
    for (int32_t v = 1; v < n; v++)
        if (row[v] > row[best]) best = v;
    return best;
}

// Evaluates the prompt, or the token that follows row r - 1 of leader, in every session at once;
// without a leader each session follows its own logits.
static enum status eval_row(const struct check *c, struct engine *en, struct session **sessions,
                            int32_t r, const float *leader, struct err *e) {
    struct batch_item items[MAX_SESSIONS * MAX_PROMPT];
    const size_t n_vocab = (size_t)c->n_vocab, n_rows = (size_t)c->n_rows;
    const int32_t n_sessions = engine_workload(en)->n_sessions;
    int32_t n = 0;
    for (int32_t s = 0; s < n_sessions; s++) {
        float *own = c->logits + (size_t)s * n_rows * n_vocab;
        if (r > 0) {
            const float *logits = (leader ? leader : own) + (size_t)(r - 1) * n_vocab;
            const int32_t token = greedy(logits, c->n_vocab);
            items[n++] = (struct batch_item){sessions[s], token, true};
            continue;
        }
        for (int32_t t = 0; t < c->n_prompt; t++)
            items[n++] = (struct batch_item){sessions[s], c->prompt[t], t == c->n_prompt - 1};
    }
    if (engine_eval(en, items, n, e)) return e->status;
    for (int32_t s = 0; s < n_sessions; s++)
        memcpy(c->logits + ((size_t)s * n_rows + (size_t)r) * n_vocab, engine_logits(en, s),
               n_vocab * sizeof(float));
    return OK;
}

// Fills c->logits. *late_bytes is what the thread allocated after the prompt.
static enum status generate(const struct check *c, struct engine *en, const float *leader,
                            uint64_t *late_bytes, struct err *e) {
    struct session *sessions[MAX_SESSIONS] = {NULL};
    struct heap_watch heap;
    uint64_t before = 0;
    enum status status = OK;
    heap_watch_init(&heap);
    for (int32_t s = 0; s < engine_workload(en)->n_sessions && !status; s++)
        status = session_new(&sessions[s], en, e);
    for (int32_t r = 0; r < c->n_rows && !status; r++) {
        status = eval_row(c, en, sessions, r, leader, e);
        if (r == 0) before = heap_thread_bytes(&heap);
    }
    *late_bytes = heap_thread_bytes(&heap) - before;
    for (int32_t s = 0; s < MAX_SESSIONS; s++) session_free(sessions[s]);
    return status;
}

// The prompt's tokens, and room for logits, from the first engine.
static enum status learn(struct check *c, const struct engine *en, struct err *e) {
    if (c->logits) return OK;
    struct token_list list = {0};
    if (tokenizer_encode(engine_tokenizer(en), TEXT, strlen(TEXT), (struct tokenizer_flags){0},
                         &list, e))
        return e->status;
    const bool enough = list.count >= (uint64_t)c->n_prompt;
    for (int32_t t = 0; enough && t < c->n_prompt; t++) c->prompt[t] = list.ids[t];
    token_list_close(&list);
    if (!enough) return err_set(e, ERR_LIMIT, "the prompt has fewer than %d tokens", c->n_prompt);
    c->n_vocab = engine_n_vocab(en);
    const size_t n = (size_t)(MAX_SESSIONS * c->n_rows) * (size_t)c->n_vocab;
    c->logits = mem_alloc(n, sizeof *c->logits);
    return c->logits ? OK : err_memory(e, n * sizeof *c->logits, "logits");
}

// Returns the logits of the CPU alone with the draw's types of KV cache.
static const float *expected_logits(struct check *c, const struct draw *d, struct err *e) {
    float **out = &c->expected[d->kv_k][d->kv_v];
    if (*out) return *out;
    struct engine_options o = {.model_path = c->model_path,
                               .device_spec = "none",
                               .cpu = {.isa = ISA_AUTO, .n_threads = 2},
                               .workload = {.n_ctx = 64, .n_sessions = 1, .max_logits = 1},
                               .constraints = {.gpu_layers = GPU_LAYERS_AUTO}};
    o.workload.kv_type_k = d->workload.kv_type_k;
    o.workload.kv_type_v = d->workload.kv_type_v;
    struct engine *en;
    uint64_t ignored;
    if (engine_open(&en, &o, e)) return NULL;
    if (learn(c, en, e) == OK && generate(c, en, NULL, &ignored, e) == OK) {
        const size_t n = (size_t)c->n_rows * (size_t)c->n_vocab;
        *out = mem_alloc(n, sizeof **out);
        if (*out)
            memcpy(*out, c->logits, n * sizeof **out);
        else
            err_memory(e, n * sizeof **out, "logits");
    }
    engine_close(en);
    return *out;
}

// ---- Judging what runs --------------------------------------------------------------------------

static double nmse(const float *expected, const float *actual, int32_t n) {
    double wrong = 0, sum = 0;
    for (int32_t i = 0; i < n; i++) {
        const double error = (double)actual[i] - (double)expected[i];
        wrong += error * error;
        sum += (double)expected[i] * (double)expected[i];
    }
    return wrong / sum; // NaN if any logit is one
}

static void judge_logits(struct check *c, const struct draw *d, const float *expected) {
    const size_t n_vocab = (size_t)c->n_vocab;
    const bool coarse = !c->is_sim && (d->kv_k == KV_Q4_0 || d->kv_v == KV_Q4_0);
    const double most = c->is_sim ? 0 : coarse ? MOST_NMSE_Q4_0 : MOST_NMSE;
    for (int32_t i = 0; i < d->workload.n_sessions * c->n_rows; i++) {
        const float *row = c->logits + (size_t)i * n_vocab;
        const float *wanted = expected + (size_t)(i % c->n_rows) * n_vocab;
        const double error = nmse(wanted, row, c->n_vocab);
        if (!(error <= most)) problem(c, d, "row %d of logits is off by %g", i, error);
        if (!coarse && greedy(row, c->n_vocab) != greedy(wanted, c->n_vocab))
            problem(c, d, "row %d of logits leads to another token", i);
    }
}

static uint64_t least(uint64_t a, uint64_t b) { return a < b ? a : b; }

static void judge_memory(struct check *c, const struct draw *d, const struct engine *en) {
    struct memory_row rows[MAX_MEMORY_ROWS];
    uint64_t planned[MAX_DEVICES] = {0};
    const int32_t n = engine_memory(en, rows, MAX_MEMORY_ROWS);
    const int32_t n_devices = d->cpu_alone ? 1 : MAX_DEVICES;
    if (n != n_devices * PURPOSE_COUNT) problem(c, d, "%d rows of memory", n);
    for (int32_t i = 0; i < n; i++) {
        planned[i / PURPOSE_COUNT] += rows[i].planned_bytes;
        if (rows[i].planned_bytes != rows[i].allocated_bytes)
            problem(c, d, "%s %s: %" PRIu64 " bytes planned, %" PRIu64 " allocated", rows[i].device,
                    purpose_name(rows[i].purpose), rows[i].planned_bytes, rows[i].allocated_bytes);
    }
    const uint64_t asked = d->constraints.vram_bytes ? d->constraints.vram_bytes : UINT64_MAX;
    const uint64_t limits[MAX_DEVICES] = {
        d->constraints.ram_bytes,
        least(asked, least(watch.free_bytes, d->vram_bytes - d->taken_bytes))};
    for (int32_t i = 0; i < n_devices; i++) {
        const uint64_t peak = engine_peak_bytes(en, i);
        const uint64_t cold = i ? 0 : paging_cold_bytes(engine_plan(en)); // counted where mapped
        if (peak > limits[i] + cold || (cold > 0) != (i == 0 && d->pages))
            problem(c, d, "device %d: a peak of %" PRIu64 " bytes, the limit is %" PRIu64, i, peak,
                    limits[i]);
        if (peak != planned[i])
            problem(c, d, "device %d: a peak of %" PRIu64 " bytes, planned %" PRIu64, i, peak,
                    planned[i]);
    }
    if (d->cpu_alone) return;
    if (watch.used_bytes != planned[1] || watch.peak_bytes != engine_peak_bytes(en, 1))
        problem(c, d, "the accelerator gave %" PRIu64 " bytes, planned %" PRIu64, watch.used_bytes,
                planned[1]);
}

// Runs an open engine to the end.
static void judge_run(struct check *c, const struct draw *d, struct engine *en) {
    struct err e;
    char text[1024];
    uint64_t late_bytes = 0;
    const float *expected = c->expected[d->kv_k][d->kv_v];
    const int32_t n_buffers = watch.n_buffers;
    judge_memory(c, d, en);
    if (generate(c, en, expected, &late_bytes, &e))
        problem(c, d, "failed after it was ready: %s", err_text(&e, text, sizeof text));
    else
        judge_logits(c, d, expected);
    if (c->is_sim && late_bytes) problem(c, d, "decoding allocates %" PRIu64 " bytes", late_bytes);
    if (watch.n_buffers != n_buffers) problem(c, d, "memory was taken after it was ready");
    judge_memory(c, d, en);
}

// ---- Judging what is refused --------------------------------------------------------------------

// Number in text after the words; 0 if they are not there, or not followed by one.
static uint64_t number_after(const char *text, const char *words) {
    const char *at = strstr(text, words);
    return at ? strtoull(at + strlen(words), NULL, 10) : 0;
}

// Does what the message says would fit; false if it says nothing. Where there is a choice, each in
// turn.
static bool follow(struct draw *d, const struct err *e) {
    const uint64_t n_ctx = strstr(e->fix, " fits") ? number_after(e->fix, "-c ") : 0;
    uint64_t ram_mib = number_after(e->fix, "raise --ram to ");
    if (strstr(e->fix, "-ngl ") && strstr(e->fix, " fits")) {
        d->constraints.gpu_layers = (int32_t)number_after(e->fix, "-ngl ");
        if (ram_mib) d->constraints.ram_bytes = ram_mib << 20;
        return true;
    }
    d->cpu_alone = strstr(e->fix, "--device none fits") != NULL;
    d->pages = !n_ctx && strstr(e->fix, "--allow-paging reads");
    if (d->cpu_alone || d->pages) return true;
    if (n_ctx && (d->index % 2 || !ram_mib)) {
        d->workload.n_ctx = (int32_t)n_ctx;
        d->pages = strstr(e->fix, "fits with --allow-paging") != NULL;
    } else if (ram_mib) {
        d->constraints.ram_bytes = ram_mib << 20;
    }
    return n_ctx || ram_mib;
}

static void judge_advice(struct check *c, const struct draw *d, const struct err *e) {
    struct draw advised = *d;
    struct engine *en;
    struct err again;
    char text[1024];
    if (!follow(&advised, e)) {
        problem(c, d, "does not say what would fit: %s", err_text(e, text, sizeof text));
        return;
    }
    if (advised.workload.n_ctx < c->n_prompt + c->n_rows - 1) return; // too short to be tried
    // A plan that was refused did not know what others would take.
    if (watch.n_refused == 0) advised.taken_bytes = 0, advised.refused_buffer = 0;
    if (open_draw(&en, c, &advised, &again)) {
        problem(c, d, "what is said to fit does not: %s", err_text(e, text, sizeof text));
        problem(c, d, "%s", err_text(&again, text, sizeof text));
        return;
    }
    judge_run(c, &advised, en);
    engine_close(en);
    c->n_advised++;
}

static void judge_refusal(struct check *c, const struct draw *d, const struct err *e) {
    const bool vanished = d->taken_bytes || d->refused_buffer;
    if (e->status != ERR_MEMORY)
        problem(c, d, "status %s: %s, got %s", status_name(e->status), e->what, e->actual);
    if (c->loading_began) problem(c, d, "refused after loading began: %s", e->what);
    if (!vanished && (watch.n_buffers || watch.n_refused))
        problem(c, d, "refused after %d buffers: %s", watch.n_buffers, e->what);
    if (watch.used_bytes) problem(c, d, "%" PRIu64 " bytes are left behind", watch.used_bytes);
    const bool told = (strstr(e->what, " of RAM") && strstr(e->what, " for it")) ||
                      (strstr(e->what, " of its memory") && strstr(e->what, " are free"));
    if (!told && (!strchr(e->expected, ' ') || !strchr(e->actual, ' ')))
        problem(c, d, "says no numbers: %s", e->what);
    judge_advice(c, d, e);
}

static bool try_draw(struct check *c, const struct draw *d) {
    struct engine *en;
    struct err e = {0};
    char text[1024] = "";
    int32_t n_units = 0, n_replans = 0;
    c->n_problems = 0;
    if (!expected_logits(c, d, &e)) {
        problem(c, d, "the CPU alone: %s", err_text(&e, text, sizeof text));
    } else if (open_draw(&en, c, d, &e) == OK) {
        const struct plan *plan = engine_plan(en);
        for (int32_t u = 0; u < plan->n_units; u++) n_units += plan->place.units[u].device;
        n_replans = engine_n_replans(en);
        judge_run(c, d, en);
        c->n_split += n_units > 0 && n_units < plan->n_units;
        engine_close(en);
        c->n_ran++;
        c->n_replans += n_replans > 0;
        snprintf(text, sizeof text, "ran with %d units on it, %d plans refused", n_units,
                 n_replans);
    } else {
        judge_refusal(c, d, &e);
        c->n_refused++;
        snprintf(text, sizeof text, "refused: %s", e.fix);
    }
    printf("%sok budget_%s_%d ", c->n_problems ? "not " : "", c->kind, d->index);
    print_draw(c, d);
    printf(": %s\n", text);
    fflush(stdout);
    c->n_failed += c->n_problems > 0;
    return c->n_problems == 0;
}

static void close_check(struct check *c) {
    for (int k = 0; k < KV_TYPES; k++)
        for (int v = 0; v < KV_TYPES; v++) mem_free(c->expected[k][v]);
    mem_free(c->logits);
}

int main(int argc, char **argv) {
    if (argc != 6 || !find_driver(argv[1])) {
        fprintf(stderr, "usage: check_budget sim|cuda MODEL SEED FIRST COUNT\n");
        return 2;
    }
    const bool is_sim = watch.driver == &sim_driver;
    struct check c = {.kind = argv[1],
                      .model_path = argv[2],
                      .is_sim = is_sim,
                      .n_prompt = is_sim ? MAX_PROMPT : 4,
                      .n_rows = is_sim ? MAX_ROWS : 2};
    const uint64_t seed = strtoull(argv[3], NULL, 10);
    const int32_t first = atoi(argv[4]), count = atoi(argv[5]);
    for (int32_t i = first; i < first + count; i++) {
        struct draw d;
        make_draw(&d, &c, seed, i);
        (void)try_draw(&c, &d);
    }
    printf("# %s, seed %" PRIu64 ": %d budgets: %d ran (%d split, %d after a refusal), %d "
           "refused (%d ran as advised), %d failed\n",
           c.kind, seed, count, c.n_ran, c.n_split, c.n_replans, c.n_refused, c.n_advised,
           c.n_failed);
    close_check(&c);
    return c.n_failed > 0;
}

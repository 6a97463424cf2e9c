/* plan_print.c: prints a plan for people: the place of every unit, the predicted times, advice.
 *
 * Owns nothing; writes only to the stream it is given. Figures have three digits, so that the same
 * plan reads the same whatever compiled the program. Must not decide anything. Any thread. Tested
 * by tests/planner/test_planner.c and tests/cli/cli_plan.sh.
 */
#include "planner/plan/plan_print.h"

#include "base/mem.h"
#include "planner/plan/accounts.h"
#include "planner/plan/simulate.h"

#include <inttypes.h>
#include <string.h>

enum { STRIP_COLUMNS = 80 };

static const double MIB = 1024.0 * 1024.0;

// ---- Figures ------------------------------------------------------------------------------------

const char *plan_figure(double value, char out[PLAN_NUMBER_CHARS]) {
    int decimals = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
    snprintf(out, PLAN_NUMBER_CHARS, "%.*f", decimals, value);
    return out;
}

const char *plan_duration(double us, char out[PLAN_NUMBER_CHARS]) {
    char number[PLAN_NUMBER_CHARS];
    bool seconds = us >= 1e6;
    snprintf(out, PLAN_NUMBER_CHARS, "%.18s %s", plan_figure(us / (seconds ? 1e6 : 1e3), number),
             seconds ? "s" : "ms");
    return out;
}

// count per second; 0 without a time.
static double per_second(double count, double us) { return us > 0 ? count * 1e6 / us : 0; }

const char *bound_name(enum bound bound) {
    static const char *const names[BOUNDS] = {
        "reading RAM",          "computing on the CPU",       "reading VRAM",
        "computing on the GPU", "copies between CPU and GPU", "reading the disk",
        "launch overhead"};
    return (unsigned)bound < BOUNDS ? names[bound] : "unknown";
}

// ---- The table ----------------------------------------------------------------------------------

static void print_model(const struct plan *plan, const struct shape *shape, FILE *out) {
    const struct workload *w = &plan->workload;
    const struct machine *m = &plan->machine;
    char size[ERR_SIZE_CHARS];
    fprintf(out, "%s (%s): %d layer%s, %s of weights", shape->name, shape->architecture,
            shape->n_layers, shape->n_layers == 1 ? "" : "s",
            err_size_needed(size, shape_weight_bytes(shape)));
    if (m->name[0]) fprintf(out, ", on %s", m->name);
    fprintf(out, "\ncontext %d, micro-batch %d, KV cache %s", w->n_ctx, w->n_ubatch,
            dtype_name(w->kv_type_k));
    if (w->kv_type_v != w->kv_type_k) fprintf(out, "/%s", dtype_name(w->kv_type_v));
    if (w->n_sessions > 1) fprintf(out, ", %d sessions", w->n_sessions);
    fprintf(out, ", %d thread%s", m->devices[DEVICE_HOST].n_lanes,
            m->devices[DEVICE_HOST].n_lanes == 1 ? "" : "s");
    const int32_t team = machine_decode_team(m);
    if (team > 0 && team < m->devices[DEVICE_HOST].n_lanes)
        fprintf(out, " (%d already use all memory bandwidth)", team);
    fputc('\n', out);
}

static void print_table(const struct plan *plan, FILE *out) {
    fprintf(out, "%-36s %9s %9s %9s %9s %9s %9s\n", "MiB", "weights", "KV cache", "scratch",
            "staging", "total", "budget");
    for (int d = 0; d < plan->machine.n_devices; d++) {
        const struct machine_device *device = &plan->machine.devices[d];
        const uint64_t *b = plan->devices[d].bytes;
        const uint64_t total = b[PLAN_WEIGHTS] + b[PLAN_KV] + b[PLAN_SCRATCH] + b[PLAN_STAGING];
        fprintf(out, "%-4.8s %-31.31s", device->kind, device->name);
        for (int p = 0; p < PLAN_PURPOSES; p++) fprintf(out, " %9.2f", (double)b[p] / MIB);
        fprintf(out, " %9.2f %9.2f\n", (double)total / MIB, (double)device->budget_bytes / MIB);
    }
}

// ---- The strip ----------------------------------------------------------------------------------

static const struct {
    char letter;
    const char *meaning;
} LETTERS[] = {
    {'g', "GPU"},
    {'e', "experts on the CPU, the rest on the GPU"},
    {'a', "attention on the GPU, the rest on the CPU"},
    {'f', "attention on the CPU, the rest on the GPU"},
    {'r', "rows of the FFN split between GPU and CPU, the rest on the GPU"},
    {'b',
     "rows of the FFN split between GPU and CPU, in prompts all on the GPU; the rest on the GPU"},
    {'s', "FFN on the CPU, in prompts on the GPU; the rest on the GPU"},
    {'R', "rows of the FFN split between GPU and CPU, the rest on the CPU"},
    {'S', "CPU, but the FFN on the GPU in prompts"},
    {'p', "rows of attention and FFN split between GPU and CPU"},
    {'B', "rows of attention and FFN split between GPU and CPU, in prompts all on the GPU"},
    {'t', "CPU, in prompts GPU"},
    {'q', "rows of attention split between GPU and CPU, the rest on the GPU"},
    {'u', "attention on the CPU, in prompts on the GPU; the rest on the GPU"},
    {'x', "experts on the CPU, in prompts on the GPU; the rest on the GPU"},
    {'X', "CPU, but the experts on the GPU in prompts"},
    {'T', "attention and experts on the CPU, in prompts on the GPU"},
    {'d', "experts split between GPU and CPU, the rest on the GPU"},
    {'k', "experts split between GPU and CPU, in prompts all on the GPU; the rest on the GPU"},
    {'D', "experts and more split between GPU and CPU, the rest on the GPU"},
    {'K', "experts and more split between GPU and CPU, in prompts all on the GPU"},
    {'m', "its parts in different ways ('tandem plan -v' lists them)"},
    {'C', "CPU"},
};

// The facts about a layer that decide its letter.
enum { SPLIT = 1, STREAMED = 2 };
struct layer {
    int32_t n, there; // units; without those that are split or streamed
    bool attention, experts, any_experts;
    int attention_ways, ffn_ways, experts_ways; // sets of SPLIT and STREAMED
};

static void look_at_unit(struct layer *l, const struct plan *plan, const struct shape *shape,
                         int32_t u) {
    const enum unit_kind kind = shape->units[u].kind;
    const bool on_gpu = plan_unit_is_whole(plan, u);
    const int ways = (plan->place.units[u].cpu_parts ? SPLIT : 0) |
                     (plan->place.units[u].streamed ? STREAMED : 0);
    l->n += !ways;
    l->there += on_gpu;
    if (kind == UNIT_ATTENTION) l->attention = on_gpu, l->attention_ways = ways;
    if (kind == UNIT_FFN) l->ffn_ways = ways;
    if (kind == UNIT_EXPERTS) l->any_experts = true, l->experts = on_gpu, l->experts_ways = ways;
}

// The letter of a layer with split or streamed units; each combination has one.
static char ways_letter(const struct layer *l) {
    static const char both[] = "mptB", attention[] = "mqum", ffn[] = "mrsb", ffn_alone[] = "mRSS";
    const bool all = l->there == l->n;
    if (l->experts_ways & SPLIT) {
        const bool streams = l->experts_ways & STREAMED;
        const int others = l->attention_ways | l->ffn_ways;
        if (!all || (others && others != l->experts_ways)) return 'm';
        return others ? (streams ? 'K' : 'D') : streams ? 'k' : 'd';
    }
    if (l->experts_ways) { // streamed
        if (l->ffn_ways || l->attention_ways & SPLIT) return 'm';
        if (l->attention_ways) return l->n ? 'm' : 'T';
        return all ? 'x' : l->there ? 'm' : 'X';
    }
    if (!l->attention_ways) return (all ? ffn : ffn_alone)[l->ffn_ways];
    if (!l->ffn_ways) return all ? attention[l->attention_ways] : 'm';
    return l->attention_ways == l->ffn_ways ? both[l->ffn_ways] : 'm';
}

// The letter of the layer whose first unit is *u; *u becomes the first unit behind it.
static char layer_letter(const struct plan *plan, const struct shape *shape, int32_t *u) {
    const int32_t layer = shape->units[*u].layer;
    struct layer l = {0};
    for (; shape->units[*u].layer == layer; (*u)++) look_at_unit(&l, plan, shape, *u);
    if (l.attention_ways || l.ffn_ways || l.experts_ways) return ways_letter(&l);
    if (l.there == l.n) return 'g';
    if (l.there == 0) return 'C';
    if (l.any_experts && !l.experts && l.there == l.n - 1) return 'e';
    if (l.attention && l.there == 1) return 'a';
    if (!l.attention && l.there == l.n - 1) return 'f';
    return 'm';
}

// Prints a line for each letter in the strip.
static void print_meanings(const char *strip, int32_t n, FILE *out) {
    for (size_t i = 0; i < sizeof LETTERS / sizeof *LETTERS; i++)
        if (memchr(strip, LETTERS[i].letter, (size_t)n))
            fprintf(out, "      %c = %s\n", LETTERS[i].letter, LETTERS[i].meaning);
}

static void print_strip(const struct plan *plan, const struct shape *shape, FILE *out) {
    char strip[MAX_LAYERS + 1] = "";
    int32_t n = 0;
    for (int32_t u = 1; u + 1 < plan->n_units && n < MAX_LAYERS;)
        strip[n++] = layer_letter(plan, shape, &u);
    fprintf(out, "embedding on the %s, head on the %s, layers from 0:\n",
            plan->place.units[0].device != DEVICE_HOST ? "GPU" : "CPU",
            plan->place.units[plan->n_units - 1].device != DEVICE_HOST ? "GPU" : "CPU");
    for (int32_t i = 0; i < n; i += STRIP_COLUMNS)
        fprintf(out, "%5d %.*s\n", i, STRIP_COLUMNS, strip + i);
    print_meanings(strip, n, out);
}

// Prints the number of units that are split by experts, or by rows, and their parts.
static void print_splits(const struct plan *plan, const struct shape *shape, bool experts,
                         FILE *out) {
    int32_t n_split = 0, least = UNIT_PARTS, most = 0;
    for (int32_t u = 0; u < plan->n_units; u++) {
        const int32_t parts = plan->place.units[u].cpu_parts;
        if (!parts || (shape->units[u].kind == UNIT_EXPERTS) != experts) continue;
        n_split++;
        least = parts < least ? parts : least;
        most = parts > most ? parts : most;
    }
    if (!n_split) return;
    fprintf(out, "split by %s: %d unit%s, ", experts ? "experts" : "rows", n_split,
            n_split > 1 ? "s" : "");
    if (least < most) fprintf(out, "%d to ", least);
    fprintf(out, "%d of %d parts on the CPU\n", most, UNIT_PARTS);
}

// Prints the numbers of split and streamed units, and the ring.
static void print_ways(const struct plan *plan, const struct shape *shape, FILE *out) {
    static const char *const from[FEEDS] = {"nowhere", "pinned memory",
                                            "the file through pinned blocks"};
    int32_t n_streamed = 0;
    for (int32_t u = 0; u < plan->n_units; u++) n_streamed += plan->place.units[u].streamed;
    print_splits(plan, shape, false, out);
    print_splits(plan, shape, true, out);
    if (n_streamed)
        fprintf(out, "streamed in prompts: %d unit%s from %s, through %d slots of %.2f MiB\n",
                n_streamed, n_streamed > 1 ? "s" : "", from[plan->place.feed], RING_SLOTS,
                (double)plan->slot_bytes / MIB);
}

// ---- Times --------------------------------------------------------------------------------------

// Tokens per second with so many positions in the cache.
static const char *speed_after(const struct plan *plan, const struct shape *shape, int32_t n_past,
                               char out[PLAN_NUMBER_CHARS]) {
    struct simulation one;
    plan_simulate(plan, shape, &(struct pass){1, 1, n_past}, &one);
    return plan_figure(per_second(1, one.total_us), out);
}

static void print_depths(const struct plan *plan, const struct shape *shape, FILE *out) {
    const int32_t n_ctx = plan->workload.n_ctx;
    char empty[PLAN_NUMBER_CHARS], half[PLAN_NUMBER_CHARS], full[PLAN_NUMBER_CHARS];
    fprintf(out, "            %s tokens/s with an empty context, %s half full, %s full\n",
            speed_after(plan, shape, 0, empty), speed_after(plan, shape, n_ctx / 2, half),
            speed_after(plan, shape, n_ctx - 1, full));
}

static void print_bound(const struct phase_shares *phase, FILE *out) {
    fprintf(out, "; limited by %s (%.0f %% of the time)\n", bound_name(phase->bound),
            100 * phase->bound_share);
}

static void print_prediction(const struct plan *plan, const struct shape *shape, FILE *out) {
    const struct workload *w = &plan->workload;
    struct prediction p;
    char speed[PLAN_NUMBER_CHARS], time[PLAN_NUMBER_CHARS];
    plan_predict(plan, shape, &p);
    fprintf(out, "generation: %s tokens/s, %s each", plan_figure(per_second(1, p.decode_us), speed),
            plan_duration(p.decode_us, time));
    print_bound(&p.decode, out);
    print_depths(plan, shape, out);
    fprintf(out, "prompt of %d token%s: first token after %s, %s tokens/s", w->n_prompt,
            w->n_prompt == 1 ? "" : "s", plan_duration(p.prompt_us, time),
            plan_figure(per_second(w->n_prompt, p.prompt_us), speed));
    print_bound(&p.prompt, out);
}

static void print_pass(const struct plan *plan, const struct shape *shape, FILE *out) {
    struct simulation one;
    const struct pass pass = {1, 1, 0};
    plan_simulate(plan, shape, &pass, &one);
    fputs("per token: reads", out);
    for (int d = 0; d < plan->machine.n_devices; d++)
        fprintf(out, "%s %.2f MiB from %s", d ? " and" : "", (double)one.weight_bytes[d] / MIB,
                d == DEVICE_HOST ? "RAM" : "VRAM");
    fprintf(out, ", copies %.1f KiB (%d cop%s), %d step%s\n", (double)one.copied_bytes / 1024.0,
            one.n_copies, one.n_copies == 1 ? "y" : "ies", one.n_steps,
            one.n_steps == 1 ? "" : "s");
    if (!plan->slot_bytes) return;
    const struct pass prefill = plan_pass(plan, BATCH_PREFILL);
    struct simulation many;
    plan_simulate(plan, shape, &prefill, &many);
    fprintf(out, "per %d token%s of a prompt: copies %.1f MiB (%d cop%s), %d step%s",
            prefill.n_tokens, prefill.n_tokens == 1 ? "" : "s", (double)many.copied_bytes / MIB,
            many.n_copies, many.n_copies == 1 ? "y" : "ies", many.n_steps,
            many.n_steps == 1 ? "" : "s");
    if (many.copy_us > 0)
        fprintf(out, ", %.0f %% of their time hidden", 100 * many.hidden_copy_us / many.copy_us);
    fputc('\n', out);
}

static void print_rates(const struct machine *m, FILE *out) {
    switch (m->rates) {
    case RATES_NONE:
        fputs("speeds: unknown, so the GPU is filled by bytes and no time is planned\n", out);
        break;
    case RATES_NEAREST:
        fprintf(out,
                "speeds: estimated from a similar machine (%s); 'tandem calibrate' measures this "
                "one\n",
                m->rates_name);
        break;
    case RATES_FILE: fprintf(out, "speeds: as the file of %s says\n", m->rates_name); break;
    case RATES_MEASURED: fputs("speeds: measured on this machine\n", out); break;
    }
}

// Prints how many different experts are expected of some tokens.
static void print_experts(const struct plan *plan, const struct shape *shape, FILE *out) {
    const struct pass some = {32, 1, 0};
    if (!shape->n_experts) return;
    fprintf(out, "experts: %d tokens of a text choose about %.0f of %d, %s\n", some.n_tokens,
            op_cost_distinct_experts(pass_expert_tokens(&some, &plan->workload), shape->n_experts,
                                     shape->n_experts_used),
            shape->n_experts,
            plan->workload.expert_exponent > 0 ? "as counted in earlier runs" : "estimated");
}

static void print_notes(const struct plan *plan, const struct shape *shape, FILE *out) {
    const struct machine *m = &plan->machine;
    if (!shape->can_run && shape->why_not[0])
        fprintf(out, "note: this model can be planned but not run yet: %s\n", shape->why_not);
    else if (!shape->can_run)
        fprintf(out, "note: models of architecture %s can be planned but not run yet\n",
                shape->architecture);
    if (m->n_unused_accelerators > 0)
        fprintf(out, "note: %d more GPU%s here; a plan uses one\n", m->n_unused_accelerators,
                m->n_unused_accelerators > 1 ? "s are" : " is");
    const int8_t accelerator = machine_accelerator(m);
    if (accelerator != DEVICE_HOST && strcmp(m->devices[accelerator].kind, "sim") == 0)
        fputs("note: the GPU is simulated; its times are no card's\n", out);
}

void plan_print(const struct plan *plan, const struct shape *shape, bool detail, FILE *out) {
    print_model(plan, shape, out);
    print_table(plan, out);
    print_strip(plan, shape, out);
    if (detail) print_ways(plan, shape, out);
    if (detail) print_pass(plan, shape, out);
    if (plan->machine.rates != RATES_NONE) print_prediction(plan, shape, out);
    print_rates(&plan->machine, out);
    if (plan->machine.rates != RATES_NONE) print_experts(plan, shape, out);
    print_notes(plan, shape, out);
}

// ---- Steps --------------------------------------------------------------------------------------

static void print_compute(const struct plan *plan, const struct shape *shape,
                          const struct step *step, const struct pass *pass, FILE *out) {
    static const char *const phases[STEP_PHASES] = {"", ", first phase", ", middle phase",
                                                    ", last phase", ", norm"};
    const struct unit *unit = &shape->units[step->unit];
    uint64_t read_bytes = plan->unit_read_bytes[step->unit];
    const struct cost_place at = {shape, &plan->machine.devices[step->device], &plan->workload,
                                  false};
    if (step->phase != PHASE_ALL)
        read_bytes = (uint64_t)cost_of_part(
                         &at, unit, step_part(step, plan->place.units[step->unit].cpu_parts), pass)
                         .read_bytes;
    fputs(phases[step->phase], out);
    const enum step_phase idle = unit->kind == UNIT_EXPERTS ? PHASE_OUT : PHASE_MID;
    if (step->phase != idle && step->phase != PHASE_NORM)
        fprintf(out, ", %" PRIu64 " bytes of weights", read_bytes);
    if (step->slot >= 0) fprintf(out, ", from slot %d", step->slot);
}

static void print_step(const struct plan *plan, const struct shape *shape, const struct step *step,
                       const struct pass *pass, FILE *out) {
    fprintf(out, " %-8s %-5s", step_kind_name(step->kind),
            plan->machine.devices[step->device].kind);
    const bool copies = step->kind == STEP_SEND || step->kind == STEP_WAIT;
    if (copies)
        fprintf(out, " %s %s", step->kind == STEP_SEND ? "to" : "for",
                plan->machine.devices[step->peer].kind);
    if (step->unit >= 0) {
        char name[64];
        plan_unit_name(&shape->units[step->unit], name, sizeof name);
        fprintf(out, " %s", name);
    }
    if (copies && step->unit >= 0) fprintf(out, " %s", step_data_name(step->data));
    if (step->kind == STEP_SEND && step->unit >= 0)
        fprintf(out, " columns %d to %d,", step->first_col, step->first_col + step->n_cols - 1);
    if (step->kind == STEP_COMPUTE) print_compute(plan, shape, step, pass, out);
    if (step->kind == STEP_FETCH) fprintf(out, " to slot %d,", step->slot);
    if (step->kind == STEP_STORE) fprintf(out, " from slot %d,", step->slot);
    if (step->bytes_per_row) fprintf(out, " %" PRIu64 " bytes per row", step->bytes_per_row);
    if (step->bytes_fixed) fprintf(out, " %" PRIu64 " bytes", step->bytes_fixed);
    if (step->bytes_per_past)
        fprintf(out, ", %" PRIu64 " bytes per position in the KV cache", step->bytes_per_past);
    if (step->bytes_per_past && step->most_past < INT32_MAX)
        fprintf(out, ", of the last %d", step->most_past);
    fputc('\n', out);
}

void plan_print_steps(const struct plan *plan, const struct shape *shape, enum batch_class batch,
                      FILE *out) {
    const struct pass pass = plan_pass(plan, batch);
    batch = batch_class_of(pass.n_tokens); // few tokens run as a smaller class
    const size_t n_steps = (size_t)plan->n_steps[batch];
    struct step_times *times = NULL;
    if (plan->machine.rates != RATES_NONE) times = mem_alloc(n_steps, sizeof *times);
    if (times) {
        plan_step_times(plan, shape, &pass, times);
        fputs("step  from ms    for ms\n", out);
    }
    for (size_t i = 0; i < n_steps; i++) {
        fprintf(out, "%4zu", i);
        if (times)
            fprintf(out, " %8.3f %9.4f", times[i].first_us / 1e3,
                    (times[i].last_us - times[i].first_us) / 1e3);
        print_step(plan, shape, &plan->steps[batch][i], &pass, out);
    }
    mem_free(times);
}

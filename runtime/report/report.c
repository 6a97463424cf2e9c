/* report.c: see report.h. */
#include "runtime/report/report.h"

#include "base/utf8.h"

#include <inttypes.h>

static const double MIB = 1024.0 * 1024.0;

// Prints one line, with the speed of n_timed items in that time, if there are any.
static void print_line(const char *name, uint64_t ns, int64_t count, int64_t n_timed, FILE *out) {
    fprintf(out, "tandem: %-6s %10.1f ms, %6" PRId64 " %s", name, timings_ms(ns), count,
            count == 1 ? "token" : "tokens");
    if (n_timed > 0 && ns > 0) fprintf(out, ", %8.1f tokens/s", timings_rate(n_timed, ns));
    fputc('\n', out);
}

// rate and planned are tokens per second; 0: unknown.
static void print_speed(const char *name, int64_t count, double rate, double planned,
                        const struct machine *machine, FILE *out) {
    fprintf(out, "tandem: %-10s %6" PRId64 " %s", name, count, count == 1 ? "token" : "tokens");
    if (rate > 0) fprintf(out, ", %8.1f tokens/s", rate);
    if (rate > 0 && planned > 0)
        fprintf(out, " (%s %.1f)", machine->rates == RATES_MEASURED ? "planned" : "estimated",
                planned);
    fputc('\n', out);
}

static double rate_of(int64_t count, double us) { return us > 0 ? (double)count * 1e6 / us : 0; }

void report_print_speeds(const struct timings *t, const struct machine *machine, FILE *out) {
    print_speed("prompt", t->prompt_tokens, timings_rate(t->prompt_tokens, t->prompt_ns),
                rate_of(t->prompt_tokens, t->predicted_prompt_us), machine, out);
    print_speed("generation", t->new_tokens, timings_rate(t->decode_steps, t->decode_ns),
                rate_of(t->decode_steps, t->predicted_decode_us), machine, out);
}

void report_print_drafts(const struct timings *t, FILE *out) {
    const uint64_t all_ns = t->prompt_ns + t->decode_ns;
    const double share = all_ns ? 100 * (double)t->guess_ns / (double)all_ns : 0;
    if (t->drafted == 0 && (share < 1 || t->decode_steps == 0)) return;
    fprintf(out, "tandem: drafts     %6" PRId64 " %s, %" PRId64 " of them right", t->drafted,
            t->drafted == 1 ? "token" : "tokens", t->accepted);
    if (t->drafted > 0) fprintf(out, " (%.1f %%)", 100 * (double)t->accepted / (double)t->drafted);
    fprintf(out, ", %.2f tokens per pass", timings_per_pass(t));
    if (share >= 1) fprintf(out, ", guessed in %.0f %% of the time", share);
    fputc('\n', out);
}

void report_print_disk(const struct timings *t, const struct plan *plan, FILE *out) {
    const uint64_t own_pages = 16 << 20; // of the program and its libraries, at most
    const bool planned = paging_cold_bytes(plan) > 0;
    char size[ERR_SIZE_CHARS];
    if (t->disk_bytes <= own_pages) return;
    fprintf(out,
            "tandem: %s came from the disk during the run (%" PRIu64 " major faults), since %s\n",
            err_size_needed(size, t->disk_bytes), t->disk_faults,
            planned ? "not all weights fit in RAM" : "weights were not in RAM");
    fprintf(out, "  Free RAM for the next run, or take a smaller model%s.\n",
            planned ? "" : "; --mlock keeps weights there");
}

void report_print_timings(const struct timings *t, FILE *out) {
    fprintf(out, "tandem: load   %10.1f ms\n", timings_ms(t->load_ns));
    print_line("prompt", t->prompt_ns, t->prompt_tokens, t->prompt_tokens, out);
    print_line("new", t->decode_ns, t->new_tokens, t->decode_steps, out);
    fprintf(out, "tandem: disk   %9.1f MiB read, %" PRIu64 " major faults\n",
            (double)t->disk_bytes / MIB, t->disk_faults);
}

static void print_rates(const struct machine *machine, FILE *out) {
    if (machine->rates == RATES_NEAREST || machine->rates == RATES_FILE)
        fprintf(
            out,
            ". Predictions use the speeds of a similar machine (%s); 'tandem calibrate' measures "
            "this one",
            machine->rates_name);
}

// Prints nothing if the class was not run or not predicted. True if something was printed.
static bool print_class(const char *before, const char *name, const char *unit, double measured,
                        double predicted, FILE *out) {
    if (predicted <= 0 || measured <= 0) return false;
    fprintf(out, "%s%s %.1f %s (predicted %.1f, %+.0f %%)", before, name, measured, unit, predicted,
            100 * timings_deviation(predicted, measured));
    return true;
}

void report_memory_use(struct memory_use *out, const struct engine *engine) {
    *out = (struct memory_use){0};
    out->n_rows = engine_memory(engine, out->rows, (int32_t)(sizeof out->rows / sizeof *out->rows));
    for (int32_t d = 0; d < engine_plan(engine)->machine.n_devices; d++)
        out->peak_bytes[d] = engine_peak_bytes(engine, d);
}

void report_print_bytes(const struct memory_use *use, FILE *out) {
    uint64_t planned = 0, allocated = 0;
    for (int32_t i = 0; i < use->n_rows; i++) {
        planned += use->rows[i].planned_bytes;
        allocated += use->rows[i].allocated_bytes;
    }
    fprintf(out, "tandem: memory %9.1f MiB allocated, %.1f MiB planned\n", (double)allocated / MIB,
            (double)planned / MIB);
}

void report_print_predicted(const struct timings *t, const struct machine *machine, FILE *out) {
    const double steps = t->decode_steps ? (double)t->decode_steps : 1,
                 passes = t->prompt_passes ? (double)t->prompt_passes : 1;
    bool any = print_class("tandem: ", "decode", "ms/token",
                           timings_each_ms(t->decode_steps, t->decode_ns),
                           t->predicted_decode_us / 1e3 / steps, out);
    any |= print_class(any ? ", " : "tandem: ", "prompt", "ms/micro-batch",
                       timings_each_ms(t->prompt_passes, t->prompt_ns),
                       t->predicted_prompt_us / 1e3 / passes, out);
    if (!any) return;
    print_rates(machine, out);
    fputc('\n', out);
}

void report_print_memory(const struct memory_use *use, const struct machine *machine, FILE *out) {
    fprintf(out, "%-44s %-8s %12s %12s  MiB\n", "device", "purpose", "planned", "allocated");
    for (int32_t i = 0; i < use->n_rows; i++)
        fprintf(out, "%-44.44s %-8s %12.2f %12.2f\n", use->rows[i].device,
                purpose_name(use->rows[i].purpose), (double)use->rows[i].planned_bytes / MIB,
                (double)use->rows[i].allocated_bytes / MIB);
    for (int32_t d = 0; d < machine->n_devices; d++)
        fprintf(out, "%-44.44s %-8s %12s %12.2f\n", machine->devices[d].name, "peak", "",
                (double)use->peak_bytes[d] / MIB);
}

// Counts the units that are split or streamed.
static void print_ways(const struct plan *plan, FILE *out) {
    int32_t n_split = 0, n_streamed = 0;
    for (int32_t u = 0; u < plan->n_units; u++) {
        n_split += plan->place.units[u].cpu_parts > 0;
        n_streamed += plan->place.units[u].streamed;
    }
    if (n_split) fprintf(out, ", %d unit%s split", n_split, n_split == 1 ? "" : "s");
    if (n_streamed)
        fprintf(out, ", %d streamed in prompts (%s)", n_streamed, feed_name(plan->place.feed));
}

// Counts the layers of which something on the CPU is computed by the GPU in prompts.
static int32_t streamed_layers(const struct plan *plan, const struct shape *shape) {
    int32_t count = 0, last = -1;
    for (int32_t u = 0; u < plan->n_units; u++) {
        const int32_t layer = shape->units[u].layer;
        if (!plan->place.units[u].streamed || layer == last) continue;
        last = layer;
        count++;
    }
    return count;
}

// Prints where the model is, behind the name of the program or of the model's task.
static void print_place(const struct plan *plan, const struct shape *shape, const char *who,
                        FILE *out) {
    const struct machine *machine = &plan->machine;
    const int8_t gpu = machine_accelerator(machine);
    char size[ERR_SIZE_CHARS];
    fputs(who, out);
    if (gpu == DEVICE_HOST)
        fputs("on the CPU", out);
    else
        fprintf(out, "%d of %d layers on %s", plan_layers_on_gpu(plan, shape), shape->n_layers + 1,
                machine->devices[gpu].name);
    for (int32_t d = 0; d < machine->n_devices; d++)
        fprintf(out, "%s%s in %s", d ? ", " : "; weights: ",
                err_size_needed(size, plan->devices[d].bytes[PLAN_WEIGHTS]),
                d == DEVICE_HOST ? "RAM" : "VRAM");
    const int32_t n_streamed = streamed_layers(plan, shape);
    if (n_streamed) fprintf(out, "; prompts use the GPU for %d more", n_streamed);
    fprintf(out, "; context %d", plan->workload.n_ctx);
}

void report_print_plan(const struct plan *plan, const struct shape *shape, bool detail, FILE *out) {
    print_place(plan, shape, "tandem: ", out);
    if (detail) {
        fprintf(out, ", micro-batch %d", plan->workload.n_ubatch);
        print_ways(plan, out);
    }
    fputc('\n', out);
}

void report_print_draft_plan(const struct plan *plan, const struct shape *shape, FILE *out) {
    print_place(plan, shape, "tandem: the draft model: ", out);
    fputc('\n', out);
}

// ---- Bytes for a terminal -----------------------------------------------------------------------

static void print_control(uint32_t code, FILE *out) {
    switch (code) {
    case '\n': fputs("\\n", out); break;
    case '\r': fputs("\\r", out); break;
    case '\t': fputs("\\t", out); break;
    default: fprintf(out, code < 0x80 ? "\\x%02x" : "\\u%04x", code);
    }
}

void report_print_escaped(const char *bytes, size_t length, size_t limit, FILE *out) {
    size_t i = 0;
    for (size_t step; i < length && limit > 0; i += step, limit--) {
        if (utf8_look(bytes + i, length - i, &step) != UTF8_WHOLE) {
            step = 1;
            fprintf(out, "\\x%02x", (unsigned char)bytes[i]);
            continue;
        }
        uint32_t code = utf8_code(bytes + i, step);
        if (code < 0x20 || (code >= 0x7f && code < 0xa0))
            print_control(code, out);
        else
            fwrite(bytes + i, 1, step, out);
    }
    if (i < length) fprintf(out, "... (%zu more bytes)", length - i);
}

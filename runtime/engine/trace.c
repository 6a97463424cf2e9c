/* trace.c: see trace.h. */
#include "runtime/engine/trace.h"

#include "base/mem.h"

#include <inttypes.h>
#include <stdlib.h>

struct interval {
    double first_us, last_us;
};

struct trace {
    struct trace_span *spans;  // [capacity]
    struct interval *interval; // [capacity], for unions
    int32_t capacity, count;
    int64_t dropped;
};

const char *trace_track_name(enum trace_track track) {
    static const char *const names[TRACKS] = {"compute", "copy in", "copy out", "fetch", "stage"};
    ASSERT(track < TRACKS);
    return names[track];
}

// ---- The table ----------------------------------------------------------------------------------

enum status trace_open(struct trace **out, int32_t n_spans, struct err *e) {
    ASSERT(n_spans > 0);
    const size_t n = (size_t)n_spans;
    struct trace *t = *out = mem_alloc(1, sizeof *t);
    if (!t) return err_memory(e, sizeof *t, "the trace");
    t->spans = mem_alloc(n, sizeof *t->spans);
    t->interval = mem_alloc(n, sizeof *t->interval);
    t->capacity = n_spans;
    if (t->spans && t->interval) return OK;
    trace_close(t);
    *out = NULL;
    return err_memory(e, n * (sizeof *t->spans + sizeof *t->interval), "the trace");
}

void trace_close(struct trace *t) {
    if (!t) return;
    mem_free(t->spans);
    mem_free(t->interval);
    mem_free(t);
}

void trace_add(struct trace *t, const struct trace_span *span) {
    ASSERT(span->device >= 0 && span->device < MAX_DEVICES);
    ASSERT(span->track < TRACKS);
    ASSERT(span->first_ns <= span->last_ns);
    ASSERT(t->count == 0 || t->spans[t->count - 1].pass <= span->pass);
    if (t->count < t->capacity)
        t->spans[t->count++] = *span;
    else
        t->dropped++;
}

int32_t trace_count(const struct trace *t) { return t->count; }

const struct trace_span *trace_at(const struct trace *t, int32_t i) {
    ASSERT(i >= 0 && i < t->count);
    return &t->spans[i];
}

int64_t trace_dropped(const struct trace *t) { return t->dropped; }

// ---- Unions -------------------------------------------------------------------------------------

// The spans that are summed up: those of one class, as measured or as planned.
struct view {
    const struct trace *t;
    int32_t count; // of whole passes
    enum batch_class batch;
    bool planned;
};

// Selects the spans that count.
struct filter {
    bool passes, copies; // whole passes; copies between devices
    uint32_t computing;  // bit 1 << d: what device d computes
};

static bool is_copy(const struct trace_span *span) {
    return span->track == TRACK_COPY_IN || span->track == TRACK_COPY_OUT ||
           span->track == TRACK_FETCH;
}

static bool counts(const struct filter *filter, const struct trace_span *span) {
    if (is_copy(span)) return filter->copies;
    return span->kind == STEP_COMPUTE && filter->computing & 1u << span->device;
}

// Returns the end of the spans of the same pass as span i.
static int32_t pass_end(const struct trace *t, int32_t i, int32_t count) {
    const int32_t pass = t->spans[i].pass;
    while (i < count && t->spans[i].pass == pass) i++;
    return i;
}

static struct interval interval_of(const struct view *v, const struct trace_span *span,
                                   double pass_us) {
    if (v->planned)
        return (struct interval){pass_us + span->planned_first_us, pass_us + span->planned_last_us};
    const uint64_t origin_ns = v->t->spans[0].first_ns; // passes may begin before it
    return (struct interval){(double)(int64_t)(span->first_ns - origin_ns) / 1e3,
                             (double)(int64_t)(span->last_ns - origin_ns) / 1e3};
}

static struct interval hull(struct interval a, struct interval b) {
    return (struct interval){a.first_us < b.first_us ? a.first_us : b.first_us,
                             a.last_us > b.last_us ? a.last_us : b.last_us};
}

// Appends the intervals of those spans first..end-1, which are one pass, that the filter selects.
// Returns the interval of the whole pass.
static struct interval gather_pass(const struct view *v, const struct filter *filter, int32_t first,
                                   int32_t end, double pass_us, int32_t *n) {
    struct interval whole = interval_of(v, &v->t->spans[first], pass_us);
    for (int32_t i = first; i < end; i++) {
        const struct interval next = interval_of(v, &v->t->spans[i], pass_us);
        whole = hull(whole, next);
        if (counts(filter, &v->t->spans[i])) v->t->interval[(*n)++] = next;
    }
    if (v->planned) whole.first_us = pass_us;
    if (filter->passes) v->t->interval[(*n)++] = whole;
    return whole;
}

// Fills the intervals and returns their number. Planned passes that followed each other start a
// period apart.
static int32_t gather(const struct view *v, const struct filter *filter) {
    const struct trace *t = v->t;
    double pass_us = 0;
    int32_t n = 0;
    for (int32_t i = 0, end; i < v->count; i = end) {
        end = pass_end(t, i, v->count);
        const struct trace_span *span = &t->spans[i];
        if (batch_class_of(span->n_tokens) != v->batch) continue;
        const struct interval whole = gather_pass(v, filter, i, end, pass_us, &n);
        const bool goes_on = end < v->count && batch_class_of(t->spans[end].n_tokens) == v->batch;
        if (goes_on && span->planned_period_us > 0)
            pass_us += span->planned_period_us;
        else
            pass_us = whole.last_us;
    }
    return n;
}

static int by_start(const void *a, const void *b) {
    const double x = ((const struct interval *)a)->first_us;
    const double y = ((const struct interval *)b)->first_us;
    return (x > y) - (x < y);
}

static double union_us(const struct view *v, struct filter filter) {
    struct interval *list = v->t->interval;
    const int32_t n = gather(v, &filter);
    qsort(list, (size_t)n, sizeof *list, by_start);
    double sum = 0, covered = n > 0 ? list[0].first_us : 0;
    for (int32_t i = 0; i < n; i++) {
        if (list[i].first_us > covered) covered = list[i].first_us;
        if (list[i].last_us <= covered) continue;
        sum += list[i].last_us - covered;
        covered = list[i].last_us;
    }
    return sum;
}

// ---- Usage --------------------------------------------------------------------------------------

static void sum_times(const struct view *v, struct trace_times *out) {
    const uint32_t all = (1u << MAX_DEVICES) - 1;
    out->total_us = union_us(v, (struct filter){.passes = true});
    for (int d = 0; d < MAX_DEVICES; d++)
        out->busy_us[d] = union_us(v, (struct filter){.computing = 1u << d});
    out->copy_us = union_us(v, (struct filter){.copies = true});
    const double computing_us = union_us(v, (struct filter){.computing = all});
    const double either_us = union_us(v, (struct filter){.copies = true, .computing = all});
    const double hidden_us = out->copy_us + computing_us - either_us;
    out->hidden_us = hidden_us > 0 ? hidden_us : 0; // rounding must not make it negative
}

static void sum_bytes(const struct view *v, struct trace_usage *out) {
    for (int32_t i = 0; i < v->count; i++) {
        const struct trace_span *span = &v->t->spans[i];
        if (batch_class_of(span->n_tokens) != v->batch) continue;
        if (i == 0 || v->t->spans[i - 1].pass != span->pass) {
            out->n_passes++;
            out->n_tokens += span->n_tokens;
        }
        if (!is_copy(span)) continue;
        if (span->track == TRACK_COPY_OUT)
            out->from_bytes += span->bytes;
        else
            out->to_bytes += span->bytes;
        if (span->track == TRACK_FETCH) out->fetched_bytes += span->bytes;
    }
}

// Number of spans of passes that are complete.
static int32_t whole_count(const struct trace *t) {
    int32_t count = t->count;
    if (!t->dropped) return count;
    const int32_t last = t->spans[count - 1].pass;
    while (count > 0 && t->spans[count - 1].pass == last) count--;
    return count;
}

void trace_usage(const struct trace *t, enum batch_class batch, struct trace_usage *out) {
    ASSERT(batch < BATCH_CLASSES);
    struct view view = {.t = t, .count = whole_count(t), .batch = batch};
    *out = (struct trace_usage){0};
    sum_bytes(&view, out);
    sum_times(&view, &out->measured);
    view.planned = true;
    sum_times(&view, &out->planned);
}

// ---- For people ---------------------------------------------------------------------------------

static double percent(double part, double whole) { return whole > 0 ? 100 * part / whole : 0; }

static double gbps(const struct trace_usage *u, const struct trace_times *times) {
    return times->copy_us > 0 ? (double)(u->to_bytes + u->from_bytes) / times->copy_us / 1e3 : 0;
}

// "12.3 % (planned 12.0)", the second only with a plan.
static void print_percent(const char *name, double measured, double planned, bool has_plan,
                          FILE *out) {
    fprintf(out, "%s %.1f %%", name, measured);
    if (has_plan) fprintf(out, " (planned %.1f)", planned);
}

static void print_busy(const struct trace_usage *u, const struct plan *plan, FILE *out) {
    const struct trace_times *m = &u->measured, *p = &u->planned;
    const bool has_plan = p->total_us > 0;
    fputs("tandem:   busy:", out);
    for (int d = 0; d < plan->machine.n_devices; d++) {
        fputs(d ? ", " : " ", out);
        print_percent(plan->machine.devices[d].kind, percent(m->busy_us[d], m->total_us),
                      percent(p->busy_us[d], p->total_us), has_plan, out);
    }
    if (u->to_bytes + u->from_bytes > 0) {
        print_percent(", link", percent(m->copy_us, m->total_us), percent(p->copy_us, p->total_us),
                      has_plan, out);
        fprintf(out, " at %.2f GB/s", gbps(u, m));
        if (has_plan) fprintf(out, " (planned %.2f)", gbps(u, p));
    }
    fputc('\n', out);
}

static void print_copies(const struct trace_usage *u, FILE *out) {
    const struct trace_times *m = &u->measured, *p = &u->planned;
    const double mib = 1024.0 * 1024.0 * (double)u->n_tokens;
    if (u->to_bytes + u->from_bytes == 0) return;
    fprintf(out, "tandem:   copied per token: %.3f MiB there", (double)u->to_bytes / mib);
    if (u->fetched_bytes > 0) fprintf(out, " (%.3f fetched)", (double)u->fetched_bytes / mib);
    fprintf(out, ", %.3f back; of the copies' time ", (double)u->from_bytes / mib);
    print_percent("hidden", percent(m->hidden_us, m->copy_us), percent(p->hidden_us, p->copy_us),
                  p->total_us > 0, out);
    fputc('\n', out);
}

static void print_class(const char *name, const struct trace_usage *u, const struct plan *plan,
                        FILE *out) {
    const double n = (double)u->n_passes;
    fprintf(out, "tandem: %s: %" PRId32 " %s, %.3f ms each", name, u->n_passes,
            u->n_passes == 1 ? "pass" : "passes", u->measured.total_us / n / 1e3);
    if (u->planned.total_us > 0) fprintf(out, " (planned %.3f)", u->planned.total_us / n / 1e3);
    fputc('\n', out);
    print_busy(u, plan, out);
    print_copies(u, out);
}

void trace_print(const struct trace *t, const struct plan *plan, FILE *out) {
    static const char *const names[BATCH_CLASSES] = {"one token", "2 to 32 tokens", "prompt"};
    for (int batch = 0; batch < BATCH_CLASSES; batch++) {
        struct trace_usage usage;
        trace_usage(t, (enum batch_class)batch, &usage);
        if (usage.n_passes > 0) print_class(names[batch], &usage, plan, out);
    }
    if (t->dropped)
        fprintf(out,
                "tandem: the trace was full; %" PRId64 " more spans are not in these figures\n",
                t->dropped);
}

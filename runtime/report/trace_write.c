/* trace_write.c: writes the file of a trace. See trace_write.h.
 *
 * Writes one event after the other, so that a long run needs no second copy of itself in memory.
 * Measured spans are in threads with even numbers, planned ones in the odd number after. No two
 * devices share a thread number, since readers take it as unique in the system.
 */
#include "runtime/report/trace_write.h"

#include "base/new_file.h"
#include "base/number.h"
#include "runtime/report/report_json.h"

#include <errno.h>
#include <string.h>

enum { ROWS = 2 * TRACKS }; // threads of a device

struct writer {
    const struct trace *t;
    const struct plan *plan;
    const struct shape *shape;
    FILE *out;
    bool any;                               // an event is written
    uint64_t origin_ns;                     // where the file's time starts
    bool used[MAX_DEVICES][TRACKS];         // by any span
    double planned_us[MAX_DEVICES][TRACKS]; // where the last planned span ends
};

static enum status put(struct writer *w, json_t *event, struct err *e) {
    if (!event) return err_memory(e, 0, "an event of the trace");
    fputs(w->any ? ",\n" : "\n", w->out);
    w->any = true;
    const int result = json_dumpf(event, w->out, JSON_COMPACT | JSON_REAL_PRECISION(15));
    json_decref(event);
    return result == 0 ? OK : err_errno(e, errno, "writing");
}

// ---- Names of processes and threads -------------------------------------------------------------

static int process_id(int device) { return device + 1; }
static int thread_id(int device, enum trace_track track, bool planned) {
    return 1 + device * ROWS + 2 * (int)track + planned;
}

static enum status put_meta(struct writer *w, const char *what, int device, int thread,
                            json_t *args, struct err *e) {
    return put(w,
               json_pack("{s:s, s:s, s:i, s:i, s:o}", "name", what, "ph", "M", "pid",
                         process_id(device), "tid", thread, "args", args),
               e);
}

static enum status put_thread(struct writer *w, int device, enum trace_track track, bool planned,
                              struct err *e) {
    const int thread = thread_id(device, track, planned);
    char name[64];
    snprintf(name, sizeof name, "%s%s", trace_track_name(track), planned ? ", planned" : "");
    if (put_meta(w, "thread_name", device, thread, json_pack("{s:s}", "name", name), e))
        return e->status;
    return put_meta(w, "thread_sort_index", device, thread,
                    json_pack("{s:i}", "sort_index", thread), e);
}

static enum status put_device(struct writer *w, int device, struct err *e) {
    const char *name = w->plan->machine.devices[device].name;
    json_t *text = json_pack("{s:o}", "name", report_json_text(name, strlen(name)));
    json_t *place = json_pack("{s:i}", "sort_index", device);
    if (put_meta(w, "process_name", device, 0, text, e) ||
        put_meta(w, "process_sort_index", device, 0, place, e))
        return e->status;
    for (int track = 0; track < TRACKS; track++) {
        if (!w->used[device][track]) continue;
        if (put_thread(w, device, (enum trace_track)track, false, e) ||
            put_thread(w, device, (enum trace_track)track, true, e))
            return e->status;
    }
    return OK;
}

// ---- Spans --------------------------------------------------------------------------------------

// "blk.7.ffn", "blk.7.ffn in", "fetch blk.7.ffn", "inputs". *unit gets the unit's own name.
static void name_span(const struct writer *w, const struct trace_span *span, char name[96],
                      char unit[64]) {
    static const char *const phases[] = {[PHASE_ALL] = "",
                                         [PHASE_IN] = " in",
                                         [PHASE_MID] = " mid",
                                         [PHASE_OUT] = " out",
                                         [PHASE_NORM] = " norm"};
    const char *kind = step_kind_name(span->kind);
    unit[0] = 0;
    if (span->unit >= 0) plan_unit_name(&w->shape->units[span->unit], unit, 64);
    if (span->kind == STEP_COMPUTE)
        snprintf(name, 96, "%s%s", unit, phases[span->phase]);
    else
        snprintf(name, 96, "%s%s%s", kind, *unit ? " " : "", unit);
}

static json_t *span_args(const struct trace_span *span, const char *unit, double measured_us,
                         double planned_us) {
    const char *kind = step_kind_name(span->kind);
    json_t *args = json_pack("{s:s, s:i, s:i, s:i, s:f, s:f}", "kind", kind, "pass", span->pass,
                             "tokens", span->n_tokens, "past", span->n_past, "measured_us",
                             measured_us, "planned_us", planned_us);
    if (args && *unit) json_object_set_new(args, "unit", json_string(unit));
    if (!args || !span->bytes) return args;
    json_object_set_new(args, "bytes", report_json_count(span->bytes));
    if (measured_us > 0)
        json_object_set_new(args, "GB/s", json_real((double)span->bytes / measured_us / 1e3));
    return args;
}

static bool is_planned(const struct trace_span *span) { return span->planned_last_us > 0; }

// Writes one span where it was measured and, if it was planned, where the planned pass has it.
static enum status put_span(struct writer *w, const struct trace_span *span, double start_us,
                            struct err *e) {
    char name[96], unit[64];
    name_span(w, span, name, unit);
    const double measured_us = (double)(span->last_ns - span->first_ns) / 1e3;
    const double planned_us = span->planned_last_us - span->planned_first_us;
    for (int planned = 0; planned <= is_planned(span); planned++) {
        const double ts = planned ? start_us + span->planned_first_us
                                  : (double)(span->first_ns - w->origin_ns) / 1e3;
        json_t *args = span_args(span, unit, measured_us, planned_us);
        if (put(w,
                json_pack("{s:s, s:s, s:s, s:i, s:i, s:f, s:f, s:o}", "name", name, "cat",
                          step_kind_name(span->kind), "ph", "X", "pid", process_id(span->device),
                          "tid", thread_id(span->device, span->track, planned), "ts", ts, "dur",
                          planned ? planned_us : measured_us, "args", args),
                e))
            return e->status;
    }
    return OK;
}

// Returns where the planned pass of spans first..end-1 starts: with the measured one, or later, so
// that no span lies over one of an earlier pass.
static double place_pass(struct writer *w, int32_t first, int32_t end) {
    double start_us = -1;
    for (int32_t i = first; i < end; i++) {
        const struct trace_span *span = trace_at(w->t, i);
        const double measured_us = (double)(span->first_ns - w->origin_ns) / 1e3;
        if (start_us < 0 || measured_us < start_us) start_us = measured_us;
    }
    for (int32_t i = first; i < end; i++) {
        const struct trace_span *span = trace_at(w->t, i);
        if (!is_planned(span)) continue;
        const double busy_us = w->planned_us[span->device][span->track];
        start_us = max_us(start_us, busy_us - span->planned_first_us);
    }
    for (int32_t i = first; i < end; i++) {
        const struct trace_span *span = trace_at(w->t, i);
        double *busy_us = &w->planned_us[span->device][span->track];
        if (is_planned(span)) *busy_us = max_us(*busy_us, start_us + span->planned_last_us);
    }
    return start_us;
}

static enum status put_spans(struct writer *w, struct err *e) {
    const int32_t count = trace_count(w->t);
    for (int32_t first = 0, end; first < count; first = end) {
        for (end = first; end < count && trace_at(w->t, end)->pass == trace_at(w->t, first)->pass;)
            end++;
        const double start_us = place_pass(w, first, end);
        for (int32_t i = first; i < end; i++)
            if (put_span(w, trace_at(w->t, i), start_us, e)) return e->status;
    }
    return OK;
}

static void survey(struct writer *w) {
    for (int32_t i = 0; i < trace_count(w->t); i++) {
        const struct trace_span *span = trace_at(w->t, i);
        w->used[span->device][span->track] = true;
        if (i == 0 || span->first_ns < w->origin_ns) w->origin_ns = span->first_ns;
    }
}

static enum status put_all(struct writer *w, struct err *e) {
    survey(w);
    fprintf(w->out, "{\"displayTimeUnit\":\"ms\",\"otherData\":{\"dropped_spans\":%lld},",
            (long long)trace_dropped(w->t));
    fputs("\"traceEvents\":[", w->out);
    for (int d = 0; d < w->plan->machine.n_devices; d++)
        if (put_device(w, d, e)) return e->status;
    if (put_spans(w, e)) return e->status;
    fputs("\n]}\n", w->out);
    return ferror(w->out) ? err_errno(e, EIO, "writing") : OK;
}

static enum status print(FILE *out, const void *context, struct err *e) {
    struct writer w = *(const struct writer *)context;
    w.out = out;
    return put_all(&w, e);
}

enum status trace_write(const struct trace *t, const struct plan *plan, const struct shape *shape,
                        const char *path, struct err *e) {
    const struct writer w = {.t = t, .plan = plan, .shape = shape};
    return new_file_print(path, print, &w, e);
}

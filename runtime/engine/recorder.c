/* recorder.c: see recorder.h. */
#include "runtime/engine/recorder.h"

#include "base/mem.h"
#include "base/number.h"

struct step_place step_place(const struct step *step) {
    switch (step->kind) {
    case STEP_INPUTS: return (struct step_place){step->device, TRACK_COPY_IN};
    case STEP_FETCH: return (struct step_place){step->device, TRACK_FETCH};
    case STEP_STORE:
    case STEP_LOGITS: return (struct step_place){step->device, TRACK_COPY_OUT};
    case STEP_SEND:
        if (step->device == DEVICE_HOST) return (struct step_place){step->peer, TRACK_COPY_IN};
        return (struct step_place){step->device, TRACK_COPY_OUT};
    case STEP_COMPUTE:
    case STEP_WAIT: break;
    }
    return (struct step_place){step->device, TRACK_COMPUTE};
}

// Spans of one pass of the class on a device. A fetch through blocks has two.
static int32_t count_spans(const struct plan *plan, enum batch_class batch, int32_t device) {
    int32_t n = 0;
    for (int32_t i = 0; i < plan->n_steps[batch]; i++) {
        const struct step *step = &plan->steps[batch][i];
        if (step_place(step).device != device) continue;
        n += step->kind == STEP_FETCH && plan->place.feed == FEED_STAGED ? 2 : 1;
    }
    return n;
}

static enum status open_bank(struct recorder *r, struct recorder_bank *bank, int32_t n_marks,
                             struct device *const *devices, struct err *e) {
    bank->marks = mem_alloc((size_t)n_marks, sizeof *bank->marks);
    if (!bank->marks)
        return err_memory(e, (size_t)n_marks * sizeof *bank->marks, "the spans of a trace");
    for (int d = 0; d < r->plan->machine.n_devices; d++) {
        const size_t n_events = (size_t)r->n_events[d];
        bank->events[d] = mem_alloc(n_events, sizeof *bank->events[d]);
        if (!bank->events[d])
            return err_memory(e, n_events * sizeof *bank->events[d], "the events of a trace");
        for (size_t i = 0; i < n_events; i++)
            if (event_new_timed(devices[d], &bank->events[d][i], e)) return e->status;
    }
    return OK;
}

enum status recorder_open(struct recorder *r, const struct placed_model *placed,
                          struct trace *trace, struct err *e) {
    const struct plan *plan = placed->plan;
    *r = (struct recorder){.trace = trace, .plan = plan, .shape = placed->shape, .pass = -1};
    if (!trace) return OK;
    int32_t n_steps = 0, n_marks = 0;
    for (int batch = 0; batch < BATCH_CLASSES; batch++) {
        n_steps = max_i32(n_steps, plan->n_steps[batch]);
        int32_t n = 0;
        for (int d = 0; d < plan->machine.n_devices; d++) {
            const int32_t n_spans = count_spans(plan, (enum batch_class)batch, d);
            r->n_events[d] = max_i32(r->n_events[d], 2 * n_spans);
            n += n_spans;
        }
        n_marks = max_i32(n_marks, n);
    }
    r->planned = mem_alloc((size_t)n_steps, sizeof *r->planned);
    if (!r->planned)
        return err_memory(e, (size_t)n_steps * sizeof *r->planned, "the times of a trace");
    for (int i = 0; i < 2; i++)
        if (open_bank(r, &r->banks[i], n_marks, placed->devices, e)) return e->status;
    return OK;
}

void recorder_close(struct recorder *r) {
    for (int i = 0; i < 2; i++) {
        struct recorder_bank *bank = &r->banks[i];
        for (int d = 0; d < MAX_DEVICES; d++) {
            for (int32_t k = 0; bank->events[d] && k < r->n_events[d]; k++)
                event_free(&bank->events[d][k]);
            mem_free(bank->events[d]);
        }
        mem_free(bank->marks);
    }
    mem_free(r->planned);
    *r = (struct recorder){0};
}

void recorder_begin(struct recorder *r, enum batch_class batch, const struct pass *pass) {
    if (!r->trace) return;
    r->pass++;
    struct recorder_bank *bank = &r->banks[r->pass % 2];
    bank->n_marks = 0;
    for (int d = 0; d < MAX_DEVICES; d++) bank->n_used[d] = 0;
    bank->pass = *pass;
    bank->batch = batch;
}

static struct span_mark *add_mark(struct recorder *r, int32_t index, enum trace_track track) {
    struct recorder_bank *bank = &r->banks[r->pass % 2];
    const struct step *step = &r->plan->steps[bank->batch][index];
    struct span_mark *mark = &bank->marks[bank->n_marks++];
    *mark = (struct span_mark){.span = {.kind = step->kind,
                                        .track = track,
                                        .device = step_place(step).device,
                                        .unit = step->unit,
                                        .phase = step->phase,
                                        .pass = r->pass,
                                        .n_tokens = bank->pass.n_tokens,
                                        .n_past = bank->pass.n_past},
                               .step = index};
    return mark;
}

static struct event *next_event(struct recorder *r, int32_t device) {
    struct recorder_bank *bank = &r->banks[r->pass % 2];
    ASSERT(bank->n_used[device] < r->n_events[device]);
    return &bank->events[device][bank->n_used[device]++];
}

struct span_mark *recorder_first(struct recorder *r, int32_t step, enum trace_track track,
                                 struct stream *stream, uint64_t bytes) {
    if (!r->trace) return NULL;
    struct span_mark *mark = add_mark(r, step, track);
    mark->span.bytes = bytes;
    mark->first = next_event(r, mark->span.device);
    mark->last = next_event(r, mark->span.device);
    stream_record(stream, mark->first);
    return mark;
}

void recorder_last(struct span_mark *mark, struct stream *stream) {
    if (mark) stream_record(stream, mark->last);
}

void recorder_add(struct recorder *r, int32_t step, uint64_t first_ns, uint64_t last_ns) {
    if (!r->trace) return;
    struct span_mark *mark = add_mark(r, step, TRACK_COMPUTE);
    mark->span.first_ns = first_ns;
    mark->span.last_ns = last_ns;
}

enum status recorder_collect(struct recorder *r, int32_t before, struct err *e) {
    if (!r->trace || r->pass < before) return OK;
    struct recorder_bank *bank = &r->banks[(r->pass - before) % 2];
    struct simulation planned;
    plan_simulate(r->plan, r->shape, &bank->pass, &planned);
    plan_step_times(r->plan, r->shape, &bank->pass, r->planned);
    for (int32_t i = 0; i < bank->n_marks; i++) {
        struct span_mark *mark = &bank->marks[i];
        struct trace_span *span = &mark->span;
        if (mark->first &&
            (event_wait(mark->last, e) || event_time(mark->first, &span->first_ns, e) ||
             event_time(mark->last, &span->last_ns, e)))
            return e->status;
        // A device may relate its clock to the host's anew between the two.
        if (span->last_ns < span->first_ns) span->last_ns = span->first_ns;
        // Filling a block is no step of its own in the plan.
        if (span->track != TRACK_STAGE) {
            span->planned_first_us = r->planned[mark->step].first_us;
            span->planned_last_us = r->planned[mark->step].last_us;
            span->planned_period_us = planned.period_us;
        }
        trace_add(r->trace, span);
    }
    bank->n_marks = 0; // handed over
    return OK;
}

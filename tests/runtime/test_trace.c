/* test_trace.c: runtime/engine/trace.h with invented spans: unions, hidden copies, what is dropped,
 * and a file that parses and adds up. */
// link: wrap-alloc
#include "runtime/engine/trace.h"

#include "base/mem.h"
#include "runtime/report/trace_write.h"
#include "tests/lib/alloc_fail.h"
#include "tests/lib/invent.h"

#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { CPU, GPU };
static const uint64_t START_NS = 1000000000000; // clocks do not start at 0

// ---- Spans --------------------------------------------------------------------------------------

static struct trace *open_trace(int32_t n_spans) {
    struct trace *t;
    struct err e;
    assert_int_equal(trace_open(&t, n_spans, &e), OK);
    return t;
}

struct what { // of a span, in short
    int device;
    enum trace_track track;
    enum step_kind kind;
    uint64_t bytes;
};
static const struct what CPU_COMPUTES = {CPU, TRACK_COMPUTE, STEP_COMPUTE, 0};
static const struct what GPU_COMPUTES = {GPU, TRACK_COMPUTE, STEP_COMPUTE, 0};
static const struct what GPU_WAITS = {GPU, TRACK_COMPUTE, STEP_WAIT, 0};
static const struct what INPUTS = {GPU, TRACK_COPY_IN, STEP_INPUTS, 1000};
static const struct what SENT_BACK = {GPU, TRACK_COPY_OUT, STEP_SEND, 200};
static const struct what FETCH = {GPU, TRACK_FETCH, STEP_FETCH, 50000};
static const struct what STAGE = {GPU, TRACK_STAGE, STEP_FETCH, 50000};

struct pass_of { // the pass that spans are added to
    struct trace *t;
    int32_t number, n_tokens;
    double start_us; // after START_NS, of the planned pass
    double period_us;
    bool planned; // as it was measured
};

// A span from first to last us after START_NS.
static void add(const struct pass_of *p, struct what what, double first_us, double last_us) {
    struct trace_span span = {.kind = what.kind,
                              .track = what.track,
                              .device = (int8_t)what.device,
                              .unit = what.kind == STEP_COMPUTE || what.kind == STEP_FETCH ? 2 : -1,
                              .pass = p->number,
                              .n_tokens = p->n_tokens,
                              .bytes = what.bytes,
                              .first_ns = START_NS + (uint64_t)(first_us * 1e3),
                              .last_ns = START_NS + (uint64_t)(last_us * 1e3)};
    if (p->planned) {
        span.planned_first_us = first_us - p->start_us;
        span.planned_last_us = last_us - p->start_us;
        span.planned_period_us = p->period_us;
    }
    trace_add(p->t, &span);
}

static void assert_near(double actual, double expected) {
    if (fabs(actual - expected) > 1e-6) fail_msg("%.9g is not %.9g", actual, expected);
}

static struct trace_usage usage_of(const struct trace *t, enum batch_class batch) {
    struct trace_usage usage;
    trace_usage(t, batch, &usage);
    return usage;
}

// ---- Usage --------------------------------------------------------------------------------------

static void nothing_adds_up_to_nothing(void **state) {
    (void)state;
    struct trace *t = open_trace(1);
    const struct trace_usage usage = usage_of(t, BATCH_ONE), zero = {0};
    assert_memory_equal(&usage, &zero, sizeof zero);
    assert_int_equal(trace_count(t), 0);
    assert_true(trace_dropped(t) == 0);
    trace_close(t);
    trace_close(NULL);
}

static void what_overlaps_counts_once(void **state) {
    (void)state;
    struct trace *t = open_trace(16);
    const struct pass_of p = {.t = t, .n_tokens = 64};
    add(&p, INPUTS, 0, 10);
    add(&p, CPU_COMPUTES, 0, 30);
    add(&p, CPU_COMPUTES, 30, 50);
    add(&p, GPU_WAITS, 10, 40);
    add(&p, GPU_COMPUTES, 40, 100);
    add(&p, FETCH, 5, 35);
    add(&p, STAGE, 0, 100);
    add(&p, SENT_BACK, 100, 120);
    const struct trace_usage u = usage_of(t, BATCH_PREFILL);
    assert_int_equal(u.n_passes, 1);
    assert_int_equal(u.n_tokens, 64);
    assert_near(u.measured.total_us, 120);
    assert_near(u.measured.busy_us[CPU], 50);
    assert_near(u.measured.busy_us[GPU], 60);
    assert_near(u.measured.copy_us, 35 + 20);
    assert_near(u.measured.hidden_us, 35); // the last copy runs alone
    assert_near(u.planned.total_us, 0);
    assert_int_equal(u.to_bytes, 51000);
    assert_int_equal(u.from_bytes, 200);
    assert_int_equal(u.fetched_bytes, 50000);
    trace_close(t);
}

static void copies_beside_gaps_are_hidden_in_part(void **state) {
    (void)state;
    struct trace *t = open_trace(16);
    const struct pass_of p = {.t = t, .n_tokens = 1};
    add(&p, FETCH, 10, 50);
    add(&p, CPU_COMPUTES, 0, 15);  // hides 5
    add(&p, GPU_COMPUTES, 20, 30); // hides 10
    add(&p, CPU_COMPUTES, 25, 35); // hides 5 more
    add(&p, GPU_COMPUTES, 50, 60); // hides nothing
    const struct trace_usage u = usage_of(t, BATCH_ONE);
    assert_near(u.measured.hidden_us, 20);
    assert_near(u.measured.copy_us, 40);
    trace_close(t);
}

static void classes_are_apart(void **state) {
    (void)state;
    struct trace *t = open_trace(16);
    const int32_t n_tokens[] = {100, 32, 1, 1};
    for (int32_t i = 0; i < 4; i++) {
        const struct pass_of p = {.t = t, .number = i, .n_tokens = n_tokens[i]};
        add(&p, GPU_COMPUTES, 100 * i, 100 * i + 10 * (i + 1));
    }
    assert_near(usage_of(t, BATCH_PREFILL).measured.total_us, 10);
    assert_near(usage_of(t, BATCH_SMALL).measured.total_us, 20);
    const struct trace_usage one = usage_of(t, BATCH_ONE);
    assert_near(one.measured.total_us, 30 + 40); // not what lies between the passes
    assert_int_equal(one.n_passes, 2);
    assert_int_equal(one.n_tokens, 2);
    trace_close(t);
}

static void passes_may_run_at_the_same_time(void **state) {
    (void)state;
    struct trace *t = open_trace(16);
    for (int32_t i = 0; i < 3; i++) {
        const struct pass_of p = {t, i, 64, 60.0 * i, 60, true};
        add(&p, CPU_COMPUTES, 60 * i, 60 * i + 50);
        add(&p, GPU_COMPUTES, 60 * i + 50, 60 * i + 100);
    }
    const struct trace_usage u = usage_of(t, BATCH_PREFILL);
    const struct trace_times *both[] = {&u.measured, &u.planned};
    for (int i = 0; i < 2; i++) {
        assert_near(both[i]->total_us, 220);
        assert_near(both[i]->busy_us[CPU], 150);
        assert_near(both[i]->busy_us[GPU], 150);
    }
    trace_close(t);
}

static void planned_passes_do_not_depend_on_measured_ones(void **state) {
    (void)state;
    struct trace *t = open_trace(16);
    for (int32_t i = 0; i < 2; i++) { // planned one after the other, measured far apart
        const struct pass_of p = {t, i, 64, 1000.0 * i, 0, true};
        add(&p, FETCH, 1000 * i, 1000 * i + 40);
        add(&p, GPU_COMPUTES, 1000 * i + 20, 1000 * i + 100);
    }
    const struct pass_of late = {t, 2, 64, 5000, 30, true}; // its period says nothing: the last
    add(&late, GPU_COMPUTES, 5010, 5100);
    const struct trace_usage u = usage_of(t, BATCH_PREFILL);
    assert_near(u.planned.total_us, 300); // a pass starts when its first step could
    assert_near(u.planned.busy_us[GPU], 250);
    assert_near(u.planned.copy_us, 80);
    assert_near(u.planned.hidden_us, 40);
    trace_close(t);
}

static void a_period_ends_where_other_passes_come_between(void **state) {
    (void)state;
    struct trace *t = open_trace(16);
    const int32_t n_tokens[] = {64, 1, 64};
    for (int32_t i = 0; i < 3; i++) {
        const struct pass_of p = {t, i, n_tokens[i], 200.0 * i, 10, true};
        add(&p, GPU_COMPUTES, 200 * i, 200 * i + 100);
    }
    assert_near(usage_of(t, BATCH_PREFILL).planned.total_us, 200);
    trace_close(t);
}

// Adds up times in steps of 1 us.
static void count_by_hand(const struct trace *t, int32_t length_us, struct trace_times *out) {
    *out = (struct trace_times){0};
    for (int32_t us = 0; us < length_us; us++) {
        bool busy[MAX_DEVICES] = {false}, copied = false, any = false;
        const uint64_t at_ns = START_NS + (uint64_t)us * 1000 + 500;
        for (int32_t i = 0; i < trace_count(t); i++) {
            const struct trace_span *span = trace_at(t, i);
            if (span->first_ns > at_ns || span->last_ns < at_ns) continue;
            if (span->kind == STEP_COMPUTE) busy[span->device] = true;
            if (span->track != TRACK_COMPUTE && span->track != TRACK_STAGE) copied = true;
            any = true;
        }
        out->total_us += any;
        for (int d = 0; d < MAX_DEVICES; d++) out->busy_us[d] += busy[d];
        out->copy_us += copied;
        out->hidden_us += copied && (busy[CPU] || busy[GPU]);
    }
}

static void unions_are_those_of_counting(void **state) {
    (void)state;
    static const struct what *const kinds[] = {&CPU_COMPUTES, &GPU_COMPUTES, &INPUTS,
                                               &SENT_BACK,    &FETCH,        &GPU_COMPUTES};
    for (uint64_t seed = 1; seed <= 200; seed++) {
        struct dice dice = {seed};
        struct trace *t = open_trace(64);
        const struct pass_of p = {.t = t, .n_tokens = 1, .planned = true};
        const int32_t n = dice_int(&dice, 1, 40);
        add(&p, STAGE, 0, 300); // so that the pass has no gap
        for (int32_t i = 0; i < n; i++) {
            const int32_t first = dice_int(&dice, 0, 250);
            add(&p, *kinds[dice_int(&dice, 0, 5)], first, first + dice_int(&dice, 0, 50));
        }
        struct trace_times expected;
        count_by_hand(t, 300, &expected);
        const struct trace_usage u = usage_of(t, BATCH_ONE);
        const struct trace_times *both[] = {&u.measured, &u.planned};
        for (int i = 0; i < 2; i++) {
            assert_near(both[i]->total_us, expected.total_us);
            assert_near(both[i]->busy_us[CPU], expected.busy_us[CPU]);
            assert_near(both[i]->busy_us[GPU], expected.busy_us[GPU]);
            assert_near(both[i]->copy_us, expected.copy_us);
            assert_near(both[i]->hidden_us, expected.hidden_us);
        }
        trace_close(t);
    }
}

static void a_full_table_drops_and_leaves_out_the_broken_pass(void **state) {
    (void)state;
    struct trace *t = open_trace(5);
    for (int32_t i = 0; i < 3; i++) {
        const struct pass_of p = {.t = t, .number = i, .n_tokens = 1};
        add(&p, INPUTS, 100 * i, 100 * i + 10);
        add(&p, GPU_COMPUTES, 100 * i + 10, 100 * i + 50);
    }
    assert_int_equal(trace_count(t), 5);
    assert_true(trace_dropped(t) == 1);
    const struct trace_usage u = usage_of(t, BATCH_ONE);
    assert_int_equal(u.n_passes, 2);
    assert_near(u.measured.total_us, 100);
    assert_int_equal(u.to_bytes, 2000);
    trace_close(t);

    t = open_trace(1); // not even one whole pass
    const struct pass_of p = {.t = t, .n_tokens = 1};
    add(&p, INPUTS, 0, 10);
    add(&p, GPU_COMPUTES, 10, 50);
    assert_int_equal(usage_of(t, BATCH_ONE).n_passes, 0);
    trace_close(t);
}

static void refused_memory_is_an_error(void **state) {
    (void)state;
    for (int64_t n = 1;; n++) {
        struct trace *t;
        struct err e;
        alloc_fail_at(n);
        const enum status status = trace_open(&t, 100, &e);
        const bool refused = alloc_fail_happened();
        alloc_fail_at(0);
        assert_int_equal(status, refused ? ERR_MEMORY : OK);
        if (refused) assert_null(t);
        trace_close(t);
        if (!refused) break;
        assert_true(n < 10);
    }
}

// ---- For people ---------------------------------------------------------------------------------

static struct plan *invent_plan(const char *gpu_name) {
    struct plan *plan = mem_alloc(1, sizeof *plan);
    assert_non_null(plan);
    plan->machine.n_devices = 2;
    strcpy(plan->machine.devices[CPU].name, "a cpu");
    strcpy(plan->machine.devices[CPU].kind, "cpu");
    snprintf(plan->machine.devices[GPU].name, sizeof plan->machine.devices[GPU].name, "%s",
             gpu_name);
    strcpy(plan->machine.devices[GPU].kind, "toy");
    return plan;
}

static void assert_prints(const struct trace *t, const struct plan *plan, const char *expected) {
    char *text;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    assert_non_null(out);
    trace_print(t, plan, out);
    fclose(out);
    assert_string_equal(text, expected);
    free(text);
}

static void people_read_measured_beside_planned(void **state) {
    (void)state;
    struct plan *plan = invent_plan("a gpu");
    struct trace *t = open_trace(4);
    assert_prints(t, plan, "");
    const struct pass_of p = {.t = t, .n_tokens = 64, .planned = true};
    const struct what fetch = {GPU, TRACK_FETCH, STEP_FETCH, 64 << 20};
    add(&p, fetch, 0, 40000);
    add(&p, CPU_COMPUTES, 0, 10000);
    add(&p, GPU_COMPUTES, 40000, 80000);
    assert_prints(t, plan,
                  "tandem: prompt: 1 pass, 80.000 ms each (planned 80.000)\n"
                  "tandem:   busy: cpu 12.5 % (planned 12.5), toy 50.0 % (planned 50.0), link "
                  "50.0 % (planned 50.0) at 1.68 GB/s (planned 1.68)\n"
                  "tandem:   copied per token: 1.000 MiB there (1.000 fetched), 0.000 back; of the "
                  "copies' time hidden 25.0 % (planned 25.0)\n");
    trace_close(t);
    mem_free(plan);
}

static void without_a_plan_or_copies_there_is_less_to_say(void **state) {
    (void)state;
    struct plan *plan = invent_plan("a gpu");
    struct trace *t = open_trace(2);
    for (int32_t i = 0; i < 3; i++) {
        const struct pass_of p = {.t = t, .number = i, .n_tokens = 1};
        add(&p, CPU_COMPUTES, 100 * i, 100 * i + 50);
    }
    assert_prints(t, plan,
                  "tandem: one token: 1 pass, 0.050 ms each\n"
                  "tandem:   busy: cpu 100.0 %, toy 0.0 %\n"
                  "tandem: the trace was full; 1 more spans are not in these figures\n");
    trace_close(t);
    mem_free(plan);
}

// ---- The file -----------------------------------------------------------------------------------

static struct shape *invent_model(void) {
    struct shape *shape = mem_alloc(1, sizeof *shape);
    struct dice dice = {7};
    assert_non_null(shape);
    invent_shape(shape, &dice, INVENT_DENSE, 4);
    return shape;
}

// Writes t and reads it again.
static json_t *written(const struct trace *t, const struct plan *plan) {
    char path[] = "/tmp/test_trace_XXXXXX";
    struct shape *shape = invent_model();
    struct err e;
    const int descriptor = mkstemp(path);
    assert_true(descriptor >= 0);
    close(descriptor);
    assert_int_equal(trace_write(t, plan, shape, path, &e), OK);
    json_error_t error;
    json_t *root = json_load_file(path, 0, &error);
    if (!root) fail_msg("line %d: %s", error.line, error.text);
    unlink(path);
    mem_free(shape);
    return root;
}

static const char *text_of(const json_t *event, const char *key) {
    const char *text = json_string_value(json_object_get(event, key));
    assert_non_null(text);
    return text;
}
static double number_of(const json_t *event, const char *key) {
    const json_t *value = json_object_get(event, key);
    assert_true(json_is_number(value));
    return json_number_value(value);
}

// The name that a metadata event gives to a process (tid 0) or thread.
static const char *name_of(json_t *root, const char *what, double pid, double tid) {
    size_t i;
    json_t *event;
    json_array_foreach(json_object_get(root, "traceEvents"), i, event) {
        if (strcmp(text_of(event, "ph"), "M") == 0 && strcmp(text_of(event, "name"), what) == 0 &&
            number_of(event, "pid") == pid && number_of(event, "tid") == tid)
            return text_of(json_object_get(event, "args"), "name");
    }
    fail_msg("nobody names %g.%g", pid, tid);
    return NULL;
}

// Sum of the duration of the spans of one kind on one thread of that name.
static double sum_of(json_t *root, const char *process, const char *thread, const char *kind) {
    size_t i;
    json_t *event;
    double sum = 0;
    json_array_foreach(json_object_get(root, "traceEvents"), i, event) {
        if (strcmp(text_of(event, "ph"), "X") != 0 || strcmp(text_of(event, "cat"), kind) != 0)
            continue;
        const double pid = number_of(event, "pid"), tid = number_of(event, "tid");
        if (strcmp(name_of(root, "process_name", pid, 0), process) == 0 &&
            strcmp(name_of(root, "thread_name", pid, tid), thread) == 0)
            sum += number_of(event, "dur");
    }
    return sum;
}

static void the_file_parses_and_adds_up(void **state) {
    (void)state;
    struct plan *plan = invent_plan("a gpu");
    struct trace *t = open_trace(64);
    for (int32_t i = 0; i < 3; i++) {
        const struct pass_of p = {t, i, 64, 100.0 * i, 0, true};
        add(&p, INPUTS, 100 * i, 100 * i + 5.125);
        add(&p, FETCH, 100 * i + 10, 100 * i + 20);
        add(&p, GPU_COMPUTES, 100 * i + 20, 100 * i + 70);
        add(&p, SENT_BACK, 100 * i + 70, 100 * i + 80);
        add(&p, CPU_COMPUTES, 100 * i + 80, 100 * i + 90);
    }
    json_t *root = written(t, plan);
    const char *const suffixes[] = {"", ", planned"};
    for (int i = 0; i < 2; i++) {
        char thread[64];
        snprintf(thread, sizeof thread, "compute%s", suffixes[i]);
        assert_near(sum_of(root, "a cpu", thread, "compute"), 30);
        assert_near(sum_of(root, "a gpu", thread, "compute"), 150);
        snprintf(thread, sizeof thread, "copy in%s", suffixes[i]);
        assert_near(sum_of(root, "a gpu", thread, "inputs"), 3 * 5.125);
        snprintf(thread, sizeof thread, "copy out%s", suffixes[i]);
        assert_near(sum_of(root, "a gpu", thread, "send"), 30);
        snprintf(thread, sizeof thread, "fetch%s", suffixes[i]);
        assert_near(sum_of(root, "a gpu", thread, "fetch"), 30);
    }
    size_t i;
    json_t *event;
    json_array_foreach(json_object_get(root, "traceEvents"), i, event) {
        if (strcmp(text_of(event, "ph"), "X") != 0) continue;
        const json_t *args = json_object_get(event, "args");
        assert_true(number_of(args, "tokens") == 64);
        assert_true(number_of(event, "ts") >= 0);
        assert_near(number_of(args, "planned_us"), number_of(args, "measured_us"));
        if (strcmp(text_of(event, "cat"), "fetch") != 0) continue;
        assert_string_equal(text_of(event, "name"), "fetch blk.0.ffn");
        assert_string_equal(text_of(args, "unit"), "blk.0.ffn");
        assert_true(number_of(args, "bytes") == 50000);
        assert_near(number_of(args, "GB/s"), 5);
    }
    json_decref(root);
    trace_close(t);
    mem_free(plan);
}

static void phases_have_names(void **state) {
    (void)state;
    static const char *const names[] = {"blk.0.ffn", "blk.0.ffn in", "blk.0.ffn mid",
                                        "blk.0.ffn out", "blk.0.ffn norm"};
    struct plan *plan = invent_plan("a gpu");
    for (int phase = PHASE_ALL; phase < STEP_PHASES; phase++) {
        struct trace *t = open_trace(1);
        const struct trace_span span = {.kind = STEP_COMPUTE,
                                        .device = GPU,
                                        .unit = 2,
                                        .phase = (enum step_phase)phase,
                                        .n_tokens = 1,
                                        .first_ns = START_NS,
                                        .last_ns = START_NS + 1};
        trace_add(t, &span);
        json_t *root = written(t, plan), *events = json_object_get(root, "traceEvents");
        const json_t *last = json_array_get(events, json_array_size(events) - 1);
        assert_string_equal(text_of(last, "ph"), "X");
        assert_string_equal(text_of(last, "name"), names[phase]);
        json_decref(root);
        trace_close(t);
    }
    mem_free(plan);
}

// Spans of one thread lie one after the other, planned ones too, however the passes ran.
static void threads_have_no_overlaps(void **state) {
    (void)state;
    struct plan *plan = invent_plan("a gpu");
    struct trace *t = open_trace(256);
    for (int32_t i = 0; i < 20; i++) { // planned slower than measured, and a period apart
        const struct trace_span span = {.kind = STEP_COMPUTE,
                                        .device = GPU,
                                        .unit = 2,
                                        .pass = i,
                                        .n_tokens = 64,
                                        .first_ns = START_NS + (uint64_t)i * 1000,
                                        .last_ns = START_NS + (uint64_t)i * 1000 + 900,
                                        .planned_first_us = i % 3,
                                        .planned_last_us = i % 3 + 2.7,
                                        .planned_period_us = 1};
        trace_add(t, &span);
    }
    json_t *root = written(t, plan), *event;
    size_t i;
    double ends[4 * TRACKS + 1] = {0};
    int32_t n = 0;
    json_array_foreach(json_object_get(root, "traceEvents"), i, event) {
        if (strcmp(text_of(event, "ph"), "X") != 0) continue;
        const double ts = number_of(event, "ts");
        const int tid = (int)number_of(event, "tid");
        assert_in_range(tid, 1, 4 * TRACKS);
        assert_true(ts >= ends[tid] - 1e-6);
        ends[tid] = ts + number_of(event, "dur");
        n++;
    }
    assert_int_equal(n, 40);
    json_decref(root);
    trace_close(t);
    mem_free(plan);
}

static void spans_without_a_plan_have_no_planned_twin(void **state) {
    (void)state;
    struct plan *plan = invent_plan("a gpu");
    struct trace *t = open_trace(1);
    const struct pass_of p = {.t = t, .n_tokens = 1};
    add(&p, GPU_COMPUTES, 0, 10);
    add(&p, GPU_COMPUTES, 10, 20);
    json_t *root = written(t, plan), *event;
    size_t i, n = 0;
    json_array_foreach(json_object_get(root, "traceEvents"), i, event) n +=
        strcmp(text_of(event, "ph"), "X") == 0;
    assert_int_equal(n, 1);
    assert_true(number_of(json_object_get(root, "otherData"), "dropped_spans") == 1);
    json_decref(root);
    trace_close(t);
    mem_free(plan);
}

static void names_may_hold_anything(void **state) {
    (void)state;
    struct plan *plan = invent_plan("a \"gpu\" \\ \x01\n\x7f \xc3\xa9 \xff\xc3");
    struct trace *t = open_trace(1);
    const struct pass_of p = {.t = t, .n_tokens = 1};
    add(&p, GPU_COMPUTES, 0, 10);
    json_t *root = written(t, plan);
    assert_string_equal(name_of(root, "process_name", GPU + 1, 0),
                        "a \"gpu\" \\ \x01\n\x7f \xc3\xa9 \xef\xbf\xbd\xef\xbf\xbd");
    json_decref(root);
    trace_close(t);
    mem_free(plan);
}

static void files_that_refuse_are_named(void **state) {
    (void)state;
    struct plan *plan = invent_plan("a gpu");
    struct shape *shape = invent_model();
    struct trace *t = open_trace(4);
    struct err e = {0};
    const struct pass_of p = {.t = t, .n_tokens = 1};
    for (int i = 0; i < 4; i++) add(&p, GPU_COMPUTES, 10 * i, 10 * i + 10);
    assert_int_equal(trace_write(t, plan, shape, "/nonexistent/trace.json", &e), ERR_FILE);
    assert_non_null(strstr(e.what, "/nonexistent/trace.json"));
    if (access("/dev/full", W_OK) == 0) {
        assert_int_equal(trace_write(t, plan, shape, "/dev/full", &e), ERR_FILE);
        assert_non_null(strstr(e.what, "/dev/full"));
    }
    trace_close(t);
    mem_free(shape);
    mem_free(plan);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_adds_up_to_nothing),
        cmocka_unit_test(what_overlaps_counts_once),
        cmocka_unit_test(copies_beside_gaps_are_hidden_in_part),
        cmocka_unit_test(classes_are_apart),
        cmocka_unit_test(passes_may_run_at_the_same_time),
        cmocka_unit_test(planned_passes_do_not_depend_on_measured_ones),
        cmocka_unit_test(a_period_ends_where_other_passes_come_between),
        cmocka_unit_test(unions_are_those_of_counting),
        cmocka_unit_test(a_full_table_drops_and_leaves_out_the_broken_pass),
        cmocka_unit_test(refused_memory_is_an_error),
        cmocka_unit_test(people_read_measured_beside_planned),
        cmocka_unit_test(without_a_plan_or_copies_there_is_less_to_say),
        cmocka_unit_test(the_file_parses_and_adds_up),
        cmocka_unit_test(phases_have_names),
        cmocka_unit_test(threads_have_no_overlaps),
        cmocka_unit_test(spans_without_a_plan_have_no_planned_twin),
        cmocka_unit_test(names_may_hold_anything),
        cmocka_unit_test(files_that_refuse_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

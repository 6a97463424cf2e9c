/* test_report.c: tests of runtime/report/report.h, report_json.h and the figures of
 * runtime/generate/timings.h: every line and field for figures that a person can check.
 */
#include "runtime/report/report.h"
#include "runtime/report/report_json.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

// 50 tokens of prompt in 0.4 s and two micro-batches, 8 tokens in 7 steps of 20 ms.
static const struct timings run = {
    .load_ns = 1234567890,
    .prompt_tokens = 50,
    .prompt_ns = 400000000,
    .new_tokens = 8,
    .decode_steps = 7,
    .decode_ns = 140000000,
    .prompt_passes = 2,
    .predicted_prompt_us = 300000,
    .predicted_decode_us = 7 * 25000,
};

static const struct memory_use use = {
    .rows = {{"a cpu", PURPOSE_WEIGHTS, 100 << 20, 100 << 20},
             {"a cpu", PURPOSE_KV, 3 << 19, 3 << 19},
             {"a gpu", PURPOSE_SCRATCH, 2000000, 2500000}},
    .n_rows = 3,
    .peak_bytes = {200 << 20, 5 << 20},
};

static struct machine machine_of(enum rates_source rates) {
    struct machine m = {.n_devices = 2, .rates = rates, .rates_name = "rtx-9"};
    strcpy(m.devices[0].name, "a cpu");
    strcpy(m.devices[0].kind, "cpu");
    strcpy(m.devices[1].name, "a gpu");
    strcpy(m.devices[1].kind, "toy");
    return m;
}

// Lines that go to memory: begin opens it, assert_text closes it.
struct printed {
    FILE *out;
    char *text;
    size_t size;
};
static struct printed *begin(struct printed *s) {
    s->out = open_memstream(&s->text, &s->size);
    assert_non_null(s->out);
    return s;
}
static void assert_text(struct printed *s, const char *expected) {
    fclose(s->out);
    assert_string_equal(s->text, expected);
    free(s->text);
}

// ---- For people ---------------------------------------------------------------------------------

// The first token comes from the prompt's pass: eight tokens are seven steps.
static void rates_count_what_the_time_was_taken_for(void **state) {
    (void)state;
    struct printed s;
    report_print_timings(&run, begin(&s)->out);
    assert_text(&s, "tandem: load       1234.6 ms\n"
                    "tandem: prompt      400.0 ms,     50 tokens,    125.0 tokens/s\n"
                    "tandem: new         140.0 ms,      8 tokens,     50.0 tokens/s\n"
                    "tandem: disk         0.0 MiB read, 0 major faults\n");
    const struct timings one = {.prompt_tokens = 3,
                                .prompt_ns = 1,
                                .new_tokens = 1,
                                .disk_bytes = 3 << 19,
                                .disk_faults = 12};
    report_print_timings(&one, begin(&s)->out);
    assert_text(&s, "tandem: load          0.0 ms\n"
                    "tandem: prompt        0.0 ms,      3 tokens, 3000000000.0 tokens/s\n"
                    "tandem: new           0.0 ms,      1 token\n"
                    "tandem: disk         1.5 MiB read, 12 major faults\n");
    assert_true(timings_rate(5, 0) == 0 && timings_each_ms(0, 7) == 0);
    assert_true(timings_rate(3, 1500000000) == 2 && timings_each_ms(4, 10000000) == 2.5);
}

static void speeds_are_two_lines(void **state) {
    (void)state;
    struct printed s;
    struct machine m = machine_of(RATES_MEASURED);
    report_print_speeds(&run, &m, begin(&s)->out);
    assert_text(&s, "tandem: prompt         50 tokens,    125.0 tokens/s (planned 166.7)\n"
                    "tandem: generation      8 tokens,     50.0 tokens/s (planned 40.0)\n");
    m = machine_of(RATES_NEAREST);
    report_print_speeds(&run, &m, begin(&s)->out);
    assert_text(&s, "tandem: prompt         50 tokens,    125.0 tokens/s (estimated 166.7)\n"
                    "tandem: generation      8 tokens,     50.0 tokens/s (estimated 40.0)\n");
    const struct timings one = {.prompt_tokens = 1, .prompt_ns = 500000000, .new_tokens = 1};
    report_print_speeds(&one, &m, begin(&s)->out);
    assert_text(&s, "tandem: prompt          1 token,      2.0 tokens/s\n"
                    "tandem: generation      1 token\n");
}

static void reading_from_the_disk_is_told(void **state) {
    (void)state;
    struct printed s;
    struct timings t = {.disk_bytes = 16 << 20};
    struct plan *plan = calloc(1, sizeof *plan);
    assert_non_null(plan);
    plan->n_units = 2;
    report_print_disk(&t, plan, begin(&s)->out);
    assert_text(&s, "");
    t.disk_bytes = (uint64_t)3 << 29;
    t.disk_faults = 789;
    report_print_disk(&t, plan, begin(&s)->out);
    assert_text(&s, "tandem: 1.50 GiB came from the disk during the run (789 major faults), since "
                    "weights were not in RAM\n"
                    "  Free RAM for the next run, or take a smaller model; --mlock keeps weights "
                    "there.\n");
    plan->unit_cold_bytes[1] = 1 << 20;
    report_print_disk(&t, plan, begin(&s)->out);
    assert_text(&s, "tandem: 1.50 GiB came from the disk during the run (789 major faults), since "
                    "not all weights fit in RAM\n"
                    "  Free RAM for the next run, or take a smaller model.\n");
    free(plan);
}

// A prediction of 25 ms is a quarter more than the 20 that it took; 150 a quarter less than 200.
static void predictions_stand_beside_what_was_measured(void **state) {
    (void)state;
    struct printed s;
    struct machine m = machine_of(RATES_MEASURED);
    report_print_predicted(&run, &m, begin(&s)->out);
    assert_text(&s, "tandem: decode 20.0 ms/token (predicted 25.0, +25 %), prompt 200.0 "
                    "ms/micro-batch (predicted 150.0, -25 %)\n");
    m = machine_of(RATES_NEAREST);
    struct timings t = run;
    t.decode_steps = 0;
    t.decode_ns = 0;
    t.predicted_decode_us = 0;
    report_print_predicted(&t, &m, begin(&s)->out);
    assert_text(&s,
                "tandem: prompt 200.0 ms/micro-batch (predicted 150.0, -25 %). Predictions use the "
                "speeds of a similar machine (rtx-9); 'tandem calibrate' measures this one\n");
    t = run;
    t.predicted_prompt_us = 0;
    report_print_predicted(&t, &m, begin(&s)->out);
    assert_text(&s, "tandem: decode 20.0 ms/token (predicted 25.0, +25 %). Predictions use the "
                    "speeds of a similar machine (rtx-9); 'tandem calibrate' measures this one\n");
    t.predicted_decode_us = 0;
    report_print_predicted(&t, &m, begin(&s)->out);
    assert_text(&s, "");
    t = run;
    t.decode_ns = t.prompt_ns = 0;
    report_print_predicted(&t, &m, begin(&s)->out);
    assert_text(&s, "");
    assert_true(timings_deviation(3, 2) == 0.5 && timings_deviation(1, 2) == -0.5);
    assert_true(timings_deviation(1, 0) == 0);
}

static void bytes_are_mebibytes(void **state) {
    (void)state;
    struct printed s;
    const struct machine m = machine_of(RATES_NONE);
    report_print_bytes(&use, begin(&s)->out);
    assert_text(&s, "tandem: memory     103.9 MiB allocated, 103.4 MiB planned\n");
    report_print_memory(&use, &m, begin(&s)->out);
    assert_text(
        &s, "device                                       purpose       planned    allocated  MiB\n"
            "a cpu                                        weights        100.00       100.00\n"
            "a cpu                                        kv               1.50         1.50\n"
            "a gpu                                        scratch          1.91         2.38\n"
            "a cpu                                        peak                        200.00\n"
            "a gpu                                        peak                          5.00\n");
}

static void a_plan_is_one_line(void **state) {
    (void)state;
    struct printed s;
    struct plan *plan = calloc(1, sizeof *plan);
    struct shape *shape = calloc(1, sizeof *shape);
    assert_true(plan && shape);
    plan->machine = machine_of(RATES_NONE);
    plan->workload.n_ctx = 4096;
    plan->workload.n_ubatch = 512;
    plan->devices[0].bytes[PLAN_WEIGHTS] = 92 << 20;
    plan->machine.n_devices = 1;
    report_print_draft_plan(plan, shape, begin(&s)->out);
    assert_text(&s,
                "tandem: the draft model: on the CPU; weights: 92.00 MiB in RAM; context 4096\n");
    report_print_plan(plan, shape, false, begin(&s)->out);
    assert_text(&s, "tandem: on the CPU; weights: 92.00 MiB in RAM; context 4096\n");
    plan->machine.n_devices = 2;
    plan->devices[1].bytes[PLAN_WEIGHTS] = 3 << 19;
    shape->n_layers = 2;
    shape->n_units = plan->n_units = 6;
    for (int u = 0; u < 6; u++) {
        shape->units[u].kind = u == 0   ? UNIT_EMBED
                               : u == 5 ? UNIT_HEAD
                               : u % 2  ? UNIT_ATTENTION
                                        : UNIT_FFN;
        shape->units[u].layer = u == 0 || u == 5 ? -1 : (u - 1) / 2;
    }
    plan->place.units[3].device = plan->place.units[4].device = plan->place.units[5].device = 1;
    plan->place.units[2].cpu_parts = 8;
    plan->place.units[1].streamed = plan->place.units[2].streamed = true;
    plan->place.feed = FEED_ARENA;
    report_print_plan(plan, shape, true, begin(&s)->out);
    assert_text(&s, "tandem: 2 of 3 layers on a gpu; weights: 92.00 MiB in RAM, 1.50 MiB in VRAM; "
                    "prompts use the GPU for 1 more; context 4096, micro-batch 512, 1 unit split, "
                    "2 streamed in prompts (arena)\n");
    free(plan);
    free(shape);
}

static void bytes_of_a_file_do_not_steer_a_terminal(void **state) {
    (void)state;
    struct printed s;
    static const char bytes[] = "a\n\r\t\x1b[0m\xc2\x85\xff\xc3\xbc";
    report_print_escaped(bytes, sizeof bytes - 1, 100, begin(&s)->out);
    assert_text(&s, "a\\n\\r\\t\\x1b[0m\\u0085\\xff\xc3\xbc");
    report_print_escaped(bytes, sizeof bytes - 1, 3, begin(&s)->out);
    assert_text(&s, "a\\n\\r... (10 more bytes)");
    report_print_escaped("ab", 2, 2, begin(&s)->out);
    assert_text(&s, "ab");
}

// ---- For programs -------------------------------------------------------------------------------

static void assert_json(json_t *value, const char *expected) {
    char *text = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(6));
    assert_non_null(text);
    assert_string_equal(text, expected);
    free(text);
    json_decref(value);
}

static void json_has_the_names_of_the_llama_server(void **state) {
    (void)state;
    assert_json(report_json_timings(&run),
                "{\"prompt_n\":50,\"prompt_ms\":400.0,\"prompt_per_token_ms\":8.0,"
                "\"prompt_per_second\":125.0,\"predicted_n\":8,\"predicted_ms\":140.0,"
                "\"predicted_per_token_ms\":20.0,\"predicted_per_second\":50.0,"
                "\"decode_steps\":7,\"disk_bytes\":0,\"major_faults\":0}");
    assert_json(report_json_timings(&(struct timings){0}),
                "{\"prompt_n\":0,\"prompt_ms\":0.0,\"prompt_per_token_ms\":0.0,"
                "\"prompt_per_second\":0.0,\"predicted_n\":0,\"predicted_ms\":0.0,"
                "\"predicted_per_token_ms\":0.0,\"predicted_per_second\":0.0,"
                "\"decode_steps\":0,\"disk_bytes\":0,\"major_faults\":0}");
}

// 8 tokens in 7 steps, of which 3 were drafts that came true: 4 passes.
static void drafts_have_a_line_and_fields(void **state) {
    (void)state;
    struct printed s;
    struct timings t = run;
    report_print_drafts(&t, begin(&s)->out);
    assert_text(&s, "");
    t.drafted = 5;
    t.accepted = 3;
    report_print_drafts(&t, begin(&s)->out);
    assert_text(&s, "tandem: drafts          5 tokens, 3 of them right (60.0 %), 1.75 tokens per "
                    "pass\n");
    t.guess_ns = 54000000; // of 400 and 140 ms
    report_print_drafts(&t, begin(&s)->out);
    assert_text(&s, "tandem: drafts          5 tokens, 3 of them right (60.0 %), 1.75 tokens per "
                    "pass, guessed in 10 % of the time\n");
    assert_json(report_json_timings(&t),
                "{\"prompt_n\":50,\"prompt_ms\":400.0,\"prompt_per_token_ms\":8.0,"
                "\"prompt_per_second\":125.0,\"predicted_n\":8,\"predicted_ms\":140.0,"
                "\"predicted_per_token_ms\":20.0,\"predicted_per_second\":50.0,"
                "\"decode_steps\":7,\"disk_bytes\":0,\"major_faults\":0,\"draft_n\":5,"
                "\"draft_n_accepted\":3,\"draft_ms\":54.0,\"tokens_per_pass\":1.75}");
    t.drafted = t.accepted = 0; // never sure of one
    report_print_drafts(&t, begin(&s)->out);
    assert_text(&s,
                "tandem: drafts          0 tokens, 0 of them right, 1.00 tokens per pass, guessed "
                "in 10 % of the time\n");
    t.decode_steps = 0; // a prompt alone
    report_print_drafts(&t, begin(&s)->out);
    assert_text(&s, "");
}

static void json_predictions_have_a_sign(void **state) {
    (void)state;
    struct machine m = machine_of(RATES_NEAREST);
    assert_json(report_json_predicted(&run, &m),
                "{\"prompt_ms\":300.0,\"prompt_deviation\":-0.25,\"prompt_passes\":2,"
                "\"decode_per_token_ms\":25.0,\"decode_deviation\":0.25,"
                "\"rates\":{\"source\":\"nearest\",\"machine\":\"rtx-9\"}}");
    m.rates = RATES_NONE;
    assert_json(report_json_predicted(&run, &m), "null");
}

static void json_memory_is_bytes(void **state) {
    (void)state;
    const struct machine m = machine_of(RATES_NONE);
    assert_json(report_json_memory(&use),
                "[{\"device\":\"a cpu\",\"purpose\":\"weights\",\"planned_bytes\":104857600,"
                "\"allocated_bytes\":104857600},"
                "{\"device\":\"a cpu\",\"purpose\":\"kv\",\"planned_bytes\":1572864,"
                "\"allocated_bytes\":1572864},"
                "{\"device\":\"a gpu\",\"purpose\":\"scratch\",\"planned_bytes\":2000000,"
                "\"allocated_bytes\":2500000}]");
    assert_json(report_json_peaks(&use, &m), "[{\"device\":\"a cpu\",\"peak_bytes\":209715200},"
                                             "{\"device\":\"a gpu\",\"peak_bytes\":5242880}]");
    assert_json(report_json_count(UINT64_MAX), "9223372036854775807");
    assert_json(report_json_text("a\xff\xc3\xbc", 4), "\"a\xef\xbf\xbd\xc3\xbc\"");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rates_count_what_the_time_was_taken_for),
        cmocka_unit_test(speeds_are_two_lines),
        cmocka_unit_test(reading_from_the_disk_is_told),
        cmocka_unit_test(predictions_stand_beside_what_was_measured),
        cmocka_unit_test(bytes_are_mebibytes),
        cmocka_unit_test(a_plan_is_one_line),
        cmocka_unit_test(bytes_of_a_file_do_not_steer_a_terminal),
        cmocka_unit_test(json_has_the_names_of_the_llama_server),
        cmocka_unit_test(drafts_have_a_line_and_fields),
        cmocka_unit_test(json_predictions_have_a_sign),
        cmocka_unit_test(json_memory_is_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

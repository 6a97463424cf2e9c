/* test_cli_sampling.c: tests of runtime/cli/cli_sampling.h: which options a model's file sets, and
 * what it may not.
 */
#include "base/err.h"
#include "runtime/cli/cli_sampling.h"
#include "tests/lib/gguf_build.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

// Takes the keys of a file that holds those of build beside the arguments, up to a NULL, and closes
// build.
static enum status take(struct gguf_build *build, const char *const *arguments,
                        struct sampler_options *out, char told[SAMPLING_CHARS], struct err *e) {
    char path[] = "/tmp/keysXXXXXX", *argv[8] = {"tandem", "run", "-m", "m", "-p", "p"};
    char *const none[] = {NULL};
    struct cli_options o;
    struct gguf g;
    int argc = 6;
    while (*arguments) argv[argc++] = (char *)(uintptr_t)*arguments++;
    assert_int_equal(cli_options_parse(&o, argc, argv, none, e), OK);
    close(mkstemp(path));
    gguf_build_text(build, "general.architecture", "llama");
    gguf_build_finish(build);
    gguf_build_write(build, path);
    gguf_build_close(build);
    assert_int_equal(gguf_open(&g, path, e), OK);
    const enum status status = cli_take_sampling(&o, &g, told, e);
    *out = o.sampling;
    gguf_close(&g);
    unlink(path);
    return status;
}
static const char *const nothing[] = {NULL};

static void files_without_keys_change_nothing(void **state) {
    (void)state;
    const struct sampler_options defaults = sampler_defaults();
    struct sampler_options o;
    struct gguf_build build;
    struct err e;
    char told[SAMPLING_CHARS];
    gguf_build_init(&build);
    assert_int_equal(take(&build, nothing, &o, told, &e), OK);
    assert_string_equal(told, "");
    assert_float_equal(o.temp, defaults.temp, 0);
    assert_int_equal(o.top_k, defaults.top_k);
}

static void all_keys_are_taken(void **state) {
    (void)state;
    struct sampler_options o;
    struct gguf_build build;
    struct err e;
    char told[SAMPLING_CHARS];
    gguf_build_init(&build);
    gguf_build_f32(&build, "general.sampling.temp", 0.5F);
    gguf_build_int(&build, "general.sampling.top_k", GGUF_I32, 20);
    gguf_build_f32(&build, "general.sampling.top_p", 0.75F);
    gguf_build_int(&build, "general.sampling.min_p", GGUF_U32, 0); // a number of another type
    gguf_build_f32(&build, "general.sampling.xtc_probability", 0.25F);
    gguf_build_f32(&build, "general.sampling.xtc_threshold", 0.125F);
    gguf_build_int(&build, "general.sampling.penalty_last_n", GGUF_I32, (uint64_t)-1);
    gguf_build_f32(&build, "general.sampling.penalty_repeat", 1.5F);
    gguf_build_int(&build, "general.sampling.mirostat", GGUF_I32, 2);
    gguf_build_f32(&build, "general.sampling.mirostat_tau", 4);
    gguf_build_f32(&build, "general.sampling.mirostat_eta", 0.5F);
    gguf_build_text(&build, "general.sampling.sequence", "top_k;temperature");
    if (take(&build, nothing, &o, told, &e)) fail_msg("%s", e.what);
    assert_string_equal(told, "--temp 0.5 --top-k 20 --top-p 0.75 --min-p 0 --xtc-probability 0.25 "
                              "--xtc-threshold 0.125 --repeat-last-n -1 --repeat-penalty 1.5 "
                              "--mirostat 2 --mirostat-ent 4 --mirostat-lr 0.5 "
                              "--samplers 'top_k;temperature'");
    assert_float_equal(o.temp, 0.5, 0);
    assert_int_equal(o.top_k, 20);
    assert_float_equal(o.top_p, 0.75, 0);
    assert_float_equal(o.min_p, 0, 0);
    assert_float_equal(o.xtc_probability, 0.25, 0);
    assert_float_equal(o.xtc_threshold, 0.125, 0);
    assert_int_equal(o.repeat_last_n, -1);
    assert_float_equal(o.repeat_penalty, 1.5, 0);
    assert_int_equal(o.mirostat, 2);
    assert_float_equal(o.mirostat_tau, 4, 0);
    assert_float_equal(o.mirostat_eta, 0.5, 0);
    assert_int_equal(o.order.n, 2);
    assert_int_equal(o.order.steps[1], SAMPLER_TEMPERATURE);
}

// Keys of what was given are not even looked at.
static void given_options_count_more(void **state) {
    (void)state;
    struct sampler_options o;
    struct gguf_build build;
    struct err e;
    static const char *const given[] = {"--temp=0.8", "--sampling-seq=k", NULL};
    char told[SAMPLING_CHARS];
    gguf_build_init(&build);
    gguf_build_f32(&build, "general.sampling.temp", -50);
    gguf_build_f32(&build, "general.sampling.top_p", 0.5F);
    gguf_build_text(&build, "general.sampling.sequence", "nonsense");
    assert_int_equal(take(&build, given, &o, told, &e), OK);
    assert_string_equal(told, "--top-p 0.5");
    assert_float_equal(o.temp, 0.8F, 0);
    assert_int_equal(o.order.n, 1);
}

static void refused(struct gguf_build *build, const char *expected, const char *actual) {
    struct sampler_options o;
    struct err e;
    char told[SAMPLING_CHARS];
    assert_int_equal(take(build, nothing, &o, told, &e), ERR_FORMAT);
    assert_non_null(strstr(e.what, "general.sampling."));
    assert_non_null(strstr(e.expected, expected));
    assert_string_equal(e.actual, actual);
    assert_non_null(strstr(e.fix, "which counts instead"));
}

static void keys_that_fit_no_option_are_refused(void **state) {
    (void)state;
    struct gguf_build build;
    gguf_build_init(&build);
    gguf_build_f32(&build, "general.sampling.top_p", 2);
    refused(&build, "a number from 0 to 1", "'2'");
    gguf_build_init(&build);
    gguf_build_f32(&build, "general.sampling.top_k", 2.5F);
    refused(&build, "a whole number from -1", "'2.5'");
    gguf_build_init(&build);
    gguf_build_text(&build, "general.sampling.temp", "hot");
    refused(&build, "a number from -1 to 100", "'hot'");
    gguf_build_init(&build);
    gguf_build_ints(&build, "general.sampling.top_k", (const int32_t[]){1, 2}, 2);
    refused(&build, "a whole number from -1", "'array of i32'");
    gguf_build_init(&build);
    gguf_build_text(&build, "general.sampling.sequence", "top_k;nonsense");
    refused(&build, "top_k (k)", "");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_without_keys_change_nothing),
        cmocka_unit_test(all_keys_are_taken),
        cmocka_unit_test(given_options_count_more),
        cmocka_unit_test(keys_that_fit_no_option_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* test_options.c: tests of runtime/cli/cli_options.h and cli_help.h: every option of the table, its
 * values and the messages. */
#include "planner/planner.h"
#include "runtime/cli/cli_help.h"
#include "runtime/cli/cli_options.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { ARGUMENTS_MAX = 24 };

// Parses a command line given as words, with these variables; NULL ends each.
static enum status parse_in(struct cli_options *o, struct err *e, const char *const *variables,
                            const char *const *words) {
    char *argv[ARGUMENTS_MAX] = {(char *)(uintptr_t) "tandem"};
    int argc = 1;
    for (; words[argc - 1]; argc++) {
        assert_true(argc < ARGUMENTS_MAX);
        argv[argc] = (char *)(uintptr_t)words[argc - 1];
    }
    *e = (struct err){0};
    return cli_options_parse(o, argc, argv, (char *const *)(uintptr_t)variables, e);
}

static enum status parse(struct cli_options *o, struct err *e, const char *const *words) {
    return parse_in(o, e, NULL, words);
}

#define PARSE(...) parse(&o, &e, (const char *const[]){__VA_ARGS__, NULL})
#define RUN(...)   PARSE("run", "-m", "x", "-p", "y", __VA_ARGS__)

// The message must hold text.
static void assert_says(const struct err *e, const char *text) {
    char line[1024];
    err_text(e, line, sizeof line);
    if (!strstr(line, text)) fail_msg("'%s' does not say '%s'", line, text);
}

static void defaults_are_the_known_ones(void **state) {
    (void)state;
    struct cli_options o;
    struct err e;
    assert_int_equal(PARSE("run", "-m", "model.gguf", "-p", "text"), OK);
    assert_int_equal(o.command, COMMAND_RUN);
    assert_string_equal(o.model, "model.gguf");
    assert_string_equal(o.prompt, "text");
    assert_int_equal(o.n_predict, -1);
    assert_int_equal(o.n_ctx, 0);
    assert_int_equal(o.n_batch, 2048);
    assert_int_equal(o.n_ubatch, 0);
    assert_int_equal(o.kv_type_k, DTYPE_F16);
    assert_int_equal(o.gpu_layers, GPU_LAYERS_AUTO);
    assert_int_equal(o.n_threads, 0);
    assert_int_equal(o.isa, ISA_AUTO);
    const struct sampler_options *s = &o.sampling;
    assert_true(s->temp == 0.8f && s->top_p == 0.95f && s->min_p == 0.05f);
    assert_true(s->repeat_penalty == 1);
    assert_int_equal(s->top_k, 40);
    assert_int_equal(s->repeat_last_n, 64);
    assert_int_equal(s->seed, -1);
    assert_false(o.json || o.strict || o.ignore_end || o.no_bind);
    assert_int_equal(o.strategy, STRATEGY_AUTO);
    assert_int_equal(o.feed, FEED_NONE);
    assert_true(o.wait_limit_s == 0 && !o.trace_path);
}

// Something that each kind of option takes, and something that it does not.
static const char *good_value(const struct option_spec *spec) {
    switch (spec->kind) {
    case OPTION_TEXT:
    case OPTION_LIST: return "text";
    case OPTION_SIZE: return "3M";
    case OPTION_KV_TYPE: return "f32";
    case OPTION_STRATEGY: return "row-split";
    case OPTION_FEED: return "staged";
    case OPTION_REASONING: return "hide";
    case OPTION_THINKING: return "on";
    case OPTION_DRAFTS: return "ngram-simple";
    case OPTION_ISA: return "ref";
    case OPTION_SAMPLERS: return "dry;temperature";
    case OPTION_LETTERS: return "dt";
    case OPTION_BIAS: return "7-0.5";
    default: return spec->low > 1 ? "2" : spec->high < 1 ? "0" : "1";
    }
}
static const char *bad_value(enum option_kind kind) {
    return kind == OPTION_TEXT || kind == OPTION_LIST ? NULL : kind == OPTION_REAL ? "1x" : "1.5x";
}

static void drafts_have_the_names_of_llama_cli(void **state) {
    (void)state;
    struct cli_options o;
    struct err e;
    assert_int_equal(RUN("-c", "64"), OK);
    assert_true(o.drafts == DRAFTS_NONE && o.draft_size_n == 12 && o.draft_size_m == 48);
    assert_int_equal(RUN("--spec-type", "ngram-simple", "--spec-ngram-simple-size-n", "3",
                         "--spec-ngram-simple-size-m", "1024"),
                     OK);
    assert_true(o.drafts == DRAFTS_NGRAM && o.draft_size_n == 3 && o.draft_size_m == 1024);
    assert_int_equal(RUN("--spec-type", "ngram-simple", "--spec-type", "none"), OK);
    assert_int_equal(o.drafts, DRAFTS_NONE);
    assert_int_equal(RUN("--spec-ngram-simple-size-m", "0"), ERR_USAGE);
    assert_int_equal(RUN("--spec-type", "ngram-mod"), ERR_USAGE);
    assert_says(&e, "option --spec-type: ngram-mod is not in tandem yet. Fix: take ngram-simple, "
                    "draft-simple or none");
    assert_int_equal(RUN("--spec-type", "ngram"), ERR_USAGE);
    assert_says(&e, "option --spec-type: expected none, ngram-simple or draft-simple, got 'ngram'");
}

static void draft_models_have_the_names_of_llama_cli(void **state) {
    (void)state;
    struct cli_options o;
    struct err e;
    assert_int_equal(RUN("-md", "d.gguf"), OK);
    assert_int_equal(o.drafts, DRAFTS_MODEL);
    assert_string_equal(o.draft_model.path, "d.gguf");
    assert_true(o.draft_model.n_most == 16 && o.draft_model.n_least == 0);
    assert_true(o.draft_model.sure == 0 && o.draft_model.gpu_layers == GPU_LAYERS_AUTO);
    assert_int_equal(RUN("--spec-draft-model", "d", "--draft-max", "8", "--draft-min", "2",
                         "--draft-p-min", "0.5", "-ngld", "all", "-td", "3", "-ctkd", "q8_0"),
                     OK);
    assert_true(o.draft_model.n_most == 8 && o.draft_model.n_least == 2);
    assert_true(o.draft_model.sure == 0.5F && o.draft_model.gpu_layers == GPU_LAYERS_ALL);
    assert_true(o.draft_model.n_threads == 3 && o.draft_model.kv_type_k == DTYPE_Q8_0);
    assert_int_equal(RUN("-md", "d", "--spec-type", "none"), OK); // the model is not opened
    assert_int_equal(o.drafts, DRAFTS_NONE);
    assert_int_equal(RUN("-md", "d", "-n", "0"), OK); // nor where there is no text
    assert_int_equal(o.drafts, DRAFTS_NONE);
    assert_int_equal(RUN("--spec-type", "draft-simple"), ERR_USAGE);
    assert_says(&e, "--spec-type draft-simple needs a draft model: -md FILE or -hfd ORG/REPO");
    assert_int_equal(RUN("-md", "d", "--spec-type", "ngram-simple"), ERR_USAGE);
    assert_says(&e, "--spec-type ngram-simple and a draft model cannot be combined");
    assert_int_equal(RUN("-hfd", "a/b"), OK);
    assert_int_equal(o.drafts, DRAFTS_MODEL);
    assert_int_equal(RUN("-hfd", "a/b", "-md", "d"), ERR_USAGE);
    assert_says(&e, "-md and -hfd cannot be combined");
    assert_int_equal(RUN("-md", "d", "-ctkd", "auto"), ERR_USAGE);
    assert_says(&e, "auto needs both options: -ctkd auto -ctvd auto");
    char *argv[] = {"tandem", "plan", "x", "-md", "shape", "-c", "64"}; // printed again below
    char text[64] = "";
    assert_int_equal(cli_options_parse(&o, 7, argv, NULL, &e), OK);
    FILE *out = fmemopen(text, sizeof text, "w");
    cli_options_print_again(&o, COMMAND_CHAT, out);
    fclose(out);
    assert_string_equal(text, " x -md FILE -c 64");
}

static void sampling_is_read_as_llama_cli_does(void **state) {
    (void)state;
    struct cli_options o;
    struct err e;
    assert_int_equal(RUN("-l", "15043-inf", "--logit-bias", "7+1.5", "--sampling-seq", "kt"), OK);
    assert_int_equal(o.n_biases, 2);
    assert_int_equal(o.biases[0].token, 15043);
    assert_true(o.biases[0].bias == -INFINITY && o.biases[1].bias == 1.5F);
    assert_int_equal(o.sampling.order.n, 2);
    assert_int_equal(o.sampling.order.steps[1], SAMPLER_TEMPERATURE);
    assert_true(o.sampling_given[offsetof(struct sampler_options, order)]);
    assert_false(o.sampling_given[offsetof(struct sampler_options, temp)]);
    const char *const bad[] = {"", "7", "7*1", "+1", "7+", "7+1x", "7+inf", "7+nan", "-7+1"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(RUN("-l", bad[i]), ERR_USAGE);
    assert_int_equal(RUN("--dry-sequence-breaker", "none", "--mirostat", "2"), OK);
    assert_int_equal(o.dry_breakers.n, 1);
    assert_int_equal(RUN("--mirostat", "3"), ERR_USAGE);
    assert_int_equal(RUN("--samplers", "top_k,temp"), ERR_USAGE);
    assert_says(&e, "--samplers");
}

static const char *any_command(const struct option_spec *spec) {
    for (int c = 0; c < COMMAND_COUNT; c++)
        if (spec->commands & 1u << c) return command_name((enum command)c);
    fail_msg("%s belongs to no command", spec->names[0]);
    return NULL;
}

static void every_name_of_every_option_is_parsed(void **state) {
    (void)state;
    struct cli_options o;
    struct err e;
    int32_t count;
    const struct option_spec *table = cli_option_table(&count);
    assert_true(count > 30);
    for (int32_t i = 0; i < count; i++)
        for (int k = 0; k < OPTION_NAMES && table[i].names[k]; k++) {
            const struct option_spec *spec = &table[i];
            const char *name = spec->names[k], *command = any_command(spec);
            if (!spec->value) {
                PARSE(command, name);
                assert_null(strstr(e.what, "unknown"));
                if (spec->kind == OPTION_SWITCH) assert_true(*(bool *)((char *)&o + spec->offset));
                continue;
            }
            PARSE(command, name);
            assert_says(&e, "needs a value");
            PARSE(command, name, good_value(spec));
            assert_null(strstr(e.what, name));
            const char *bad = bad_value(spec->kind);
            if (!bad) continue;
            assert_int_equal(PARSE(command, name, bad), ERR_USAGE);
            assert_says(&e, name);
            assert_says(&e, bad);
        }
}

static void settings_change_by_their_names(void **state) {
    (void)state;
    struct cli_options o;
    struct err e;
    assert_int_equal(RUN("--temp", "1"), OK);
    assert_int_equal(cli_options_set(&o, "temp", "0.25", &e), OK);
    assert_int_equal(cli_options_set(&o, "n", "7", &e), OK);
    assert_int_equal(cli_options_set(&o, "reasoning-format", "hide", &e), OK);
    assert_int_equal(o.reasoning, REASONING_HIDE);
    assert_int_equal(cli_options_set(&o, "reasoning-format", "deepseek", &e), OK);
    assert_int_equal(o.reasoning, REASONING_AUTO);
    assert_int_equal(cli_options_set(&o, "reasoning", "off", &e), OK);
    assert_true(o.sampling.temp == 0.25f && o.n_predict == 7 && o.thinking == THINKING_OFF);
    assert_int_equal(cli_options_set(&o, "temp", "", &e), ERR_USAGE);
    assert_says(&e, "temp needs a value: T");
    assert_int_equal(cli_options_set(&o, "top-p", "2", &e), ERR_USAGE);
    assert_int_equal(cli_options_set(&o, "ngl", "2", &e), ERR_USAGE); // not in a conversation
    assert_says(&e, "no setting 'ngl'");
}

static void options_of_llama_cpp_have_names(void **state) {
    (void)state;
    struct cli_options o;
    struct err e;
    assert_int_equal(RUN("-fa", "on", "--jinja", "--flash-attn", "-n", "5", "-ts", "1,1"), OK);
    assert_int_equal(o.n_ignored, 4);
    assert_int_equal(o.n_predict, 5);
    assert_string_equal(o.ignored[1]->names[0], "--jinja");
    assert_int_equal(RUN("--lora", "x.gguf"), ERR_USAGE);
    assert_says(&e, "option --lora is not in tandem yet: adapters");
    assert_int_equal(RUN("--lora", "x", "--nonsense", "7", "--no-repeat", "-sys", "z"), ERR_USAGE);
    assert_says(&e, "4 options cannot be used: --lora (adapters) is not in tandem yet; --nonsense "
                    "is unknown; --no-repeat is unknown; -sys belongs to another command");
}

static void the_environment_gives_defaults(void **state) {
    (void)state;
    struct cli_options o;
    struct err e;
    char *argv[] = {"tandem", "run", "-p", "y", "-c", "77"};
    char *const set[] = {
        "LLAMA_ARG_CTX_SIZE=99",     "LLAMA_ARG_N_PREDICT=7", "LLAMA_ARG_CPU_MOE=1",
        "LLAMA_ARG_MODEL=m.gguf",    "LLAMA_ARG_TOP_K=",      "LLAMA_ARG_SWA_FULL=1",
        "LLAMA_ARG_TEMPERATURE=0.5", "LLAMA_ARG_MIN_P=0.25",  NULL};
    assert_int_equal(cli_options_parse(&o, 6, argv, set, &e), OK);
    assert_true(o.n_ctx == 77 && o.n_predict == 7 && o.cpu_experts && o.sampling.top_k == 40);
    assert_true(o.full_windows && o.sampling.temp == 0.5f && o.sampling.min_p == 0.25f);
    assert_true(o.sampling_given[offsetof(struct sampler_options, temp)]);
    assert_false(o.sampling_given[offsetof(struct sampler_options, top_k)]);
    assert_string_equal(o.model, "m.gguf");
    char *with_model[] = {"tandem", "inspect", "own.gguf"};
    assert_int_equal(cli_options_parse(&o, 3, with_model, set, &e), OK);
    assert_string_equal(o.model, "own.gguf");
    char *const bad[] = {"LLAMA_ARG_CTX_SIZE=many", "LLAMA_ARG_MODEL=m", NULL};
    assert_int_equal(cli_options_parse(&o, 4, argv, bad, &e), ERR_USAGE);
    assert_says(&e, "LLAMA_ARG_CTX_SIZE");
}

// Parses a command line with one variable in the environment.
static enum status parse_with(struct cli_options *o, struct err *e, const char *variable,
                              const char *const *words) {
    return parse_in(o, e, (const char *const[]){variable, NULL}, words);
}
#define PARSE_WITH(variable, ...) \
    parse_with(&o, &e, variable, (const char *const[]){__VA_ARGS__, NULL})

static void switches_of_the_environment_go_on_and_off(void **state) {
    (void)state;
    struct cli_options o;
    struct err e;
    const char *const on[] = {"on", "enabled", "true", "1"};
    const char *const off[] = {"off", "disabled", "false", "0", ""};
    const char *const wrong[] = {"On", "2", "yes", "truer", " 1"};
    char variable[64];
    for (size_t i = 0; i < sizeof on / sizeof *on; i++) {
        snprintf(variable, sizeof variable, "LLAMA_ARG_SWA_FULL=%s", on[i]);
        assert_int_equal(PARSE_WITH(variable, "run", "-m", "x", "-p", "y"), OK);
        assert_true(o.full_windows);
    }
    for (size_t i = 0; i < sizeof off / sizeof *off; i++) {
        snprintf(variable, sizeof variable, "LLAMA_ARG_SWA_FULL=%s", off[i]);
        assert_int_equal(PARSE_WITH(variable, "run", "-m", "x", "-p", "y"), OK);
        assert_false(o.full_windows);
        assert_int_equal(PARSE_WITH(variable, "run", "-m", "x", "-p", "y", "--swa-full"), OK);
        assert_true(o.full_windows);
    }
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        snprintf(variable, sizeof variable, "LLAMA_ARG_SWA_FULL=%s", wrong[i]);
        assert_int_equal(PARSE_WITH(variable, "run", "-m", "x", "-p", "y"), ERR_USAGE);
        assert_says(&e, "variable LLAMA_ARG_SWA_FULL: expected on, enabled, true, 1, off, "
                        "disabled, false or 0, got '");
        assert_says(&e, wrong[i]);
    }
}

// Each of these lines is right, whatever the environment holds.
static void arguments_exclude_variables(void **state) {
    (void)state;
    struct cli_options o;
    struct err e;
    const char *const set[] = {"LLAMA_ARG_MODEL=m",
                               "LLAMA_ARG_CTX_SIZE=8192",
                               "LLAMA_ARG_SWA_FULL=1",
                               "LLAMA_ARG_THREADS=2",
                               "LLAMA_ARG_THREADS_BATCH=2",
                               "LLAMA_ARG_N_GPU_LAYERS=99",
                               "LLAMA_ARG_CACHE_TYPE_K=auto",
                               "LLAMA_ARG_CACHE_TYPE_V=auto",
                               "LLAMA_ARG_DEVICE=none",
                               "LLAMA_ARG_LOG_FILE=log",
                               NULL};
#define PARSE_IN(...) parse_in(&o, &e, set, (const char *const[]){__VA_ARGS__, NULL})
    assert_int_equal(PARSE_IN("run", "-p", "y", "--plan", "f"), OK);
    assert_true(o.n_ctx == 0 && !o.full_windows && o.gpu_layers == GPU_LAYERS_AUTO);
    assert_true(o.kv_type_k == DTYPE_F16 && o.kv_type_v == DTYPE_F16 && o.n_threads == 2);
    assert_string_equal(o.model, "m");
    assert_int_equal(PARSE_IN("plan", "--shape", "s", "--machine", "x", "--strategy", "cpu"), OK);
    assert_true(!o.model && !o.device && o.n_threads == 0 && o.n_threads_batch == 0);
    assert_true(o.n_ctx == 8192 && o.full_windows && o.gpu_layers == GPU_LAYERS_AUTO);
    assert_true(o.kv_type_k == KV_TYPE_AUTO && o.kv_type_v == KV_TYPE_AUTO);
    assert_int_equal(PARSE_IN("perplexity", "--kl-divergence", "--kl-divergence-base", "b"), OK);
    assert_true(o.n_ctx == 0);
    assert_int_equal(PARSE_IN("run", "-p", "y", "-hf", "a/b", "-c", "0"), OK);
    assert_true(!o.model && o.n_ctx == N_CTX_OF_MODEL);
    assert_string_equal(o.log_path, "log");
    assert_int_equal(PARSE_IN("bench", "own.gguf"), OK);
    assert_true(o.bench.models.n == 1 && o.n_ctx == 0 && o.n_threads_batch == 2);
    // Mistakes of the arguments are told by their own names.
    assert_int_equal(PARSE_IN("run", "-p", "y", "--plan", "f", "-ngl", "3"), ERR_USAGE);
    assert_says(&e, "--plan and -ngl cannot be combined");
#undef PARSE_IN
    assert_int_equal(PARSE_WITH("LLAMA_ARG_HF_REPO=a/b", "bench", "-m", "f"), OK);
    assert_null(o.hub_repo);
    assert_int_equal(PARSE_WITH("LLAMA_ARG_HF_REPO=a/b", "bench", "f"), OK);
    assert_int_equal(PARSE_WITH("LLAMA_ARG_HF_REPO=a/b", "bench"), OK);
    assert_string_equal(o.hub_repo, "a/b");
    assert_int_equal(PARSE_WITH("LLAMA_ARG_HF_REPO=a/b", "run", "-mu", "c/d", "-p", "y"), OK);
    assert_string_equal(o.hub_repo, "c/d");
    const char *const both[] = {"LLAMA_ARG_MODEL_URL=c/d", "LLAMA_ARG_HF_REPO=a/b", NULL};
    assert_int_equal(parse_in(&o, &e, both, (const char *const[]){"inspect", NULL}), OK);
    assert_string_equal(o.hub_repo, "a/b");
    assert_int_equal(PARSE_WITH("LLAMA_ARG_CTX_SIZE=many", "run", "-m", "x", "-p", "y", "-c", "7"),
                     OK);
    assert_int_equal(o.n_ctx, 7);
}

static void variables_that_exclude_each_other_are_named(void **state) {
    (void)state;
    struct cli_options o;
    struct err e;
    const char *const set[] = {"LLAMA_ARG_MODEL=m", "LLAMA_ARG_THREADS=2", "LLAMA_ARG_HF_REPO=a/b",
                               NULL};
    const char *const line[] = {"run", "-p", "y", NULL};
    const char *const named[] = {"run", "-p", "y", "-m", "x", NULL};
    assert_int_equal(parse_in(&o, &e, set, line), ERR_USAGE);
    assert_says(&e, "variables LLAMA_ARG_HF_REPO and LLAMA_ARG_MODEL cannot be combined");
    assert_int_equal(parse_in(&o, &e, set, named), OK);
    assert_string_equal(o.model, "x");
    assert_true(!o.hub_repo && o.n_threads == 2);
}

static void no_option_follows_two_dashes(void **state) {
    (void)state;
    struct cli_options o;
    struct err e;
    char *argv[] = {"tandem", "run", "-p", "y", "--", "-m.gguf"}; // printed again below
    assert_int_equal(cli_options_parse(&o, 6, argv, NULL, &e), OK);
    assert_string_equal(o.model, "-m.gguf");
    char text[64] = "";
    FILE *out = fmemopen(text, sizeof text, "w");
    cli_options_print_again(&o, COMMAND_CHAT, out);
    fclose(out);
    assert_string_equal(text, " -p y -m -m.gguf");
    assert_int_equal(PARSE("bench", "--", "--", "-p"), OK);
    assert_true(o.bench.models.n == 2);
    assert_string_equal(o.bench.models.texts[0], "--");
    assert_int_equal(PARSE("tokenize", "-m", "x", "-p", "--"), OK);
    assert_string_equal(o.prompt, "--");
    assert_int_equal(PARSE("run", "x", "-p", "y", "--", "-n"), ERR_USAGE);
    assert_says(&e, "unexpected argument '-n'");
    assert_int_equal(PARSE("run", "-p", "y", "--"), ERR_USAGE);
    assert_says(&e, "needs a model");
}

static void values_that_are_wrong_say_what_is_right(void **state) {
    (void)state;
    struct cli_options o;
    struct err e;
    assert_int_equal(PARSE("run", "x", "-p", "y", "-c", "8m"), ERR_USAGE);
    assert_says(&e, "such as 8192 or 8k, from 0 to 2147483647");
    assert_int_equal(PARSE("run", "x", "-p", "y", "-n", "8m"), ERR_USAGE);
    assert_says(&e, "a whole number from -1 to 2147483647");
    assert_int_equal(PARSE("run", "x", "-p", "y", "-fa", "maybe"), ERR_USAGE);
    assert_says(&e, "option -fa: expected on, off or auto, got 'maybe'");
    assert_int_equal(PARSE("run", "-fa", "maybe", "-p", "y"), OK);
    assert_string_equal(o.model, "maybe");
}

// An argument also wins over a variable that sets another option of the same thing.
static void arguments_win_over_variables_of_other_options(void **state) {
    (void)state;
    struct cli_options o;
    struct err e;
    static const char *const experts[] = {"LLAMA_ARG_CPU_MOE=1", "LLAMA_ARG_N_CPU_MOE=9", NULL};
    static const char *const budget[] = {"LLAMA_ARG_THINK_BUDGET=0", NULL};
    const char *const line[] = {"run", "-m", "x", "-p", "y", NULL};
    const char *const some[] = {"run", "-m", "x", "-p", "y", "-ncmoe", "3", NULL};
    const char *const all[] = {"run", "-m", "x", "-p", "y", "--cpu-moe", NULL};
    assert_int_equal(parse_in(&o, &e, experts, line), OK);
    assert_true(o.cpu_experts);
    assert_int_equal(parse_in(&o, &e, experts, some), OK);
    assert_true(!o.cpu_experts && o.n_cpu_experts == 3);
    assert_int_equal(parse_in(&o, &e, experts, all), OK);
    assert_true(o.cpu_experts);
    assert_int_equal(PARSE_WITH(experts[0], "bench", "-m", "x", "-ncmoe", "0"), OK);
    assert_true(!o.cpu_experts && o.n_cpu_experts == 0);
    static const char *const autos[][3] = {
        {"LLAMA_ARG_CACHE_TYPE_V=auto"},
        {"LLAMA_ARG_CACHE_TYPE_K=auto", "LLAMA_ARG_CACHE_TYPE_V=auto"}};
    for (int i = 0; i < 2; i++) {
        const char *const k[] = {"run", "-m", "x", "-p", "y", "-ctk", "q8_0", NULL};
        const char *const v[] = {"run", "-m", "x", "-p", "y", "-ctv", "f16", NULL};
        const char *const half[] = {"run", "-m", "x", "-p", "y", "-ctk", "auto", NULL};
        assert_int_equal(parse_in(&o, &e, autos[i], k), OK);
        assert_true(o.kv_type_k == DTYPE_Q8_0 && o.kv_type_v == DTYPE_F16);
        assert_int_equal(parse_in(&o, &e, autos[i], v), OK);
        assert_true(o.kv_type_k == DTYPE_F16 && o.kv_type_v == DTYPE_F16);
        assert_int_equal(parse_in(&o, &e, autos[i], half), OK);
        assert_true(o.kv_type_k == KV_TYPE_AUTO && o.kv_type_v == KV_TYPE_AUTO);
    }
    assert_int_equal(parse_in(&o, &e, autos[0], line), ERR_USAGE);
    assert_says(&e, "auto needs both options");
    assert_int_equal(parse_in(&o, &e, budget, (const char *const[]){"chat", "x", NULL}), OK);
    assert_true(o.thinking == THINKING_OFF);
    assert_int_equal(PARSE_WITH(budget[0], "chat", "x", "--reasoning", "on"), OK);
    assert_true(o.thinking == THINKING_ON && o.reasoning_budget == -1);
    assert_int_equal(PARSE_WITH("LLAMA_ARG_THINK_BUDGET=7", "chat", "x", "-rea", "on"), OK);
    assert_true(o.thinking == THINKING_ON && o.reasoning_budget == 7);
}

static void the_environment_keeps_the_cache_on_the_cpu(void **state) {
    (void)state;
    struct cli_options o;
    struct err e;
    static const struct {
        const char *variable;
        bool on_cpu;
    } cases[] = {
        {"LLAMA_ARG_KV_OFFLOAD=0", true},       {"LLAMA_ARG_KV_OFFLOAD=off", true},
        {"LLAMA_ARG_KV_OFFLOAD=false", true},   {"LLAMA_ARG_KV_OFFLOAD=disabled", true},
        {"LLAMA_ARG_KV_OFFLOAD=1", false},      {"LLAMA_ARG_KV_OFFLOAD=on", false},
        {"LLAMA_ARG_KV_OFFLOAD=", false},       {"LLAMA_ARG_NO_KV_OFFLOAD=1", true},
        {"LLAMA_ARG_NO_KV_OFFLOAD=off", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(PARSE_WITH(cases[i].variable, "run", "-m", "x", "-p", "y"), OK);
        assert_int_equal(o.cpu_cache, cases[i].on_cpu);
        assert_int_equal(PARSE_WITH(cases[i].variable, "run", "-m", "x", "-p", "y", "-nkvo"), OK);
        assert_true(o.cpu_cache);
        assert_int_equal(PARSE_WITH(cases[i].variable, "run", "-m", "x", "-p", "y", "-kvo"), OK);
        assert_false(o.cpu_cache);
    }
    assert_int_equal(PARSE_WITH("LLAMA_ARG_KV_OFFLOAD=no", "run", "-m", "x", "-p", "y"), ERR_USAGE);
    assert_says(&e, "variable LLAMA_ARG_KV_OFFLOAD: expected on");
    assert_says(&e, "'no'");
}

static void the_environment_names_a_file_of_a_repository(void **state) {
    (void)state;
    struct cli_options o;
    struct err e;
    const char *const set[] = {"LLAMA_ARG_HF_REPO=a/b", "LLAMA_ARG_HF_FILE=f", NULL};
    const char *const run[] = {"run", "-p", "y", NULL};
    const char *const other[] = {"run", "-p", "y", "-hf", "c/d", NULL};
    const char *const file[] = {"run", "-p", "y", "-hff", "g", NULL};
    assert_int_equal(parse_in(&o, &e, set, run), OK);
    assert_string_equal(o.hub_repo, "a/b");
    assert_string_equal(o.hub_file, "f");
    assert_int_equal(parse_in(&o, &e, set + 1, other), OK);
    assert_string_equal(o.hub_repo, "c/d");
    assert_string_equal(o.hub_file, "f");
    assert_int_equal(parse_in(&o, &e, set, file), OK);
    assert_string_equal(o.hub_repo, "a/b");
    assert_string_equal(o.hub_file, "g");
    assert_int_equal(parse_in(&o, &e, set, other), OK); // f belongs to a/b
    assert_string_equal(o.hub_repo, "c/d");
    assert_null(o.hub_file);
    assert_int_equal(PARSE_WITH(set[1], "run", "-p", "y", "-m", "x"), OK);
    assert_null(o.hub_file);
    assert_int_equal(PARSE_WITH(set[1], "doctor"), OK);
    assert_int_equal(PARSE_WITH(set[1], "rm", "c/d"), OK);
    assert_null(o.hub_file);
    assert_int_equal(PARSE_WITH(set[1], "run", "-p", "y"), ERR_USAGE);
    assert_says(&e, "needs a model");
    assert_int_equal(PARSE("run", "-p", "y", "-hff", "g"), ERR_USAGE);
    assert_says(&e, "needs its name");
}

static void numbers_keep_their_range(void **state) {
    (void)state;
    struct cli_options o;
    struct err e;
    assert_int_equal(RUN("-n", "-1"), OK);
    assert_int_equal(RUN("-n", "2147483647"), OK);
    assert_int_equal(o.n_predict, INT32_MAX);
    const char *const bad[] = {"-2", "2147483648", "99999999999999999999", "", " 3", "3 ", "0x3"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(RUN("-n", bad[i]), ERR_USAGE);
    assert_says(&e, "from -1 to 2147483647");
    assert_int_equal(RUN("-ub", "0"), ERR_USAGE);
    assert_int_equal(RUN("--top-k", "-1"), OK);
    assert_true(o.sampling.top_k <= 0); // all
    assert_int_equal(RUN("--top-k", "-2"), ERR_USAGE);
    assert_int_equal(RUN("--top-p", "1.01"), ERR_USAGE);
    assert_int_equal(RUN("--top-p", "nan"), ERR_USAGE);
    assert_int_equal(RUN("--repeat-penalty", "0"), ERR_USAGE);
    assert_int_equal(RUN("-s", "4294967295"), OK);
    assert_int_equal(o.sampling.seed, 4294967295);
    assert_int_equal(RUN("-s", "4294967296"), ERR_USAGE);
    assert_int_equal(RUN("-t", "-1", "-tb", "-1"), OK);
    assert_int_equal(o.n_threads, 0);
    assert_int_equal(o.n_threads_batch, 0);
}

static void sizes_take_suffixes(void **state) {
    (void)state;
    struct cli_options o;
    struct err e;
    static const struct {
        const char *text;
        uint64_t bytes;
    } good[] = {
        {"1B", 1},
        {"16777216", 1 << 24},
        {"4096B", 4096},
        {"3K", 3 << 10},
        {"3k", 3 << 10},
        {"512M", 512u << 20},
        {"6G", (uint64_t)6 << 30},
        {"1.5GiB", (uint64_t)3 << 29},
        {"2TiB", (uint64_t)2 << 40},
        {"2KB", 2000},
        {"1GB", 1000000000},
    };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        assert_int_equal(RUN("--vram", good[i].text, "--ram", good[i].text), OK);
        assert_int_equal(o.vram_bytes, good[i].bytes);
        assert_int_equal(o.ram_bytes, good[i].bytes);
    }
    const char *const bad[] = {"0",  "-1G", "G",   "",     "6X",  "6GG",
                               "6i", "inf", "nan", "1e30", "1 G", "6GiBs"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(RUN("--vram", bad[i]), ERR_USAGE);
        assert_says(&e, "512M");
    }
}

// 6 means gigabytes to whoever types it.
static void small_sizes_need_a_unit(void **state) {
    (void)state;
    struct cli_options o;
    struct err e;
    static const struct {
        const char *text, *meant;
    } tiny[] = {{"6", "6G?"},       {"5.5", "5.5G?"},   {"1023", "1023G?"},
                {"1024", "1024M?"}, {"6144", "6144M?"}, {"16777215", "16777215M?"}};
    for (size_t i = 0; i < sizeof tiny / sizeof *tiny; i++)
        for (int ram = 0; ram < 2; ram++) {
            const char *name = ram ? "--ram" : "--vram";
            assert_int_equal(RUN(name, tiny[i].text), ERR_USAGE);
            assert_says(&e, name);
            assert_says(&e, tiny[i].meant);
        }
    assert_int_equal(PARSE("plan", "-m", "x", "--vram", "6"), ERR_USAGE);
    assert_int_equal(RUN("--vram", "6B"), OK);
    assert_int_equal(o.vram_bytes, 6);
}

static void layers_take_words(void **state) {
    (void)state;
    struct cli_options o;
    struct err e;
    assert_int_equal(RUN("-ngl", "all"), OK);
    assert_int_equal(o.gpu_layers, GPU_LAYERS_ALL);
    assert_int_equal(RUN("--gpu-layers", "auto"), OK);
    assert_int_equal(o.gpu_layers, GPU_LAYERS_AUTO);
    assert_int_equal(RUN("--n-gpu-layers", "999"), OK);
    assert_int_equal(o.gpu_layers, 999);
    assert_int_equal(RUN("-ngl=5"), ERR_USAGE);
    assert_int_equal(RUN("--gpu-layers=0"), OK);
    assert_int_equal(o.gpu_layers, 0);
    assert_int_equal(RUN("-ngl", "-2"), ERR_USAGE);
    assert_int_equal(RUN("-ngl", "most"), ERR_USAGE);
}

static void cache_types(void **state) {
    (void)state;
    struct cli_options o;
    struct err e;
    assert_int_equal(RUN("-ctk", "f32", "-ctv", "f16"), OK);
    assert_int_equal(o.kv_type_k, DTYPE_F32);
    assert_int_equal(o.kv_type_v, DTYPE_F16);
    assert_int_equal(RUN("-ctk", "q8_0", "-ctv", "q8_0"), OK);
    assert_int_equal(o.kv_type_k, DTYPE_Q8_0);
    assert_int_equal(o.kv_type_v, DTYPE_Q8_0);
    assert_int_equal(RUN("-ctk", "q4_0", "-ctv", "f32"), OK);
    assert_int_equal(o.kv_type_k, DTYPE_Q4_0);
    assert_int_equal(RUN("-ctk", "q4_1"), ERR_USAGE);
    assert_says(&e, "not supported yet");
    assert_int_equal(RUN("-ctv", "f64"), ERR_USAGE);
    assert_says(&e, "f16, f32, q8_0, q4_0 or auto");
    assert_int_equal(RUN("-ctk", "auto", "-ctv", "auto"), OK);
    assert_int_equal(o.kv_type_k, KV_TYPE_AUTO);
    assert_int_equal(RUN("-ctk", "auto"), ERR_USAGE);
    assert_int_equal(RUN("-ctk", "q8_0", "-ctv", "auto"), ERR_USAGE);
    assert_says(&e, "-ctk auto -ctv auto");
}

static void strategies_and_feeds_have_names(void **state) {
    (void)state;
    struct cli_options o;
    struct err e;
    static const char *const strategies[] = {"auto",     "cpu",      "layers", "attention-first",
                                             "streamed", "row-split"};
    for (int s = 0; s < STRATEGIES; s++) {
        assert_int_equal(RUN("--strategy", strategies[s]), OK);
        assert_int_equal(o.strategy, s);
    }
    assert_int_equal(RUN("--strategy", "fastest"), ERR_USAGE);
    assert_says(&e, "auto, cpu, layers, attention-first, streamed or row-split");
    static const char *const feeds[] = {"auto", "arena", "staged"};
    for (int f = 0; f < FEEDS; f++) {
        assert_int_equal(RUN("--feed", feeds[f]), OK);
        assert_int_equal(o.feed, f);
    }
    assert_int_equal(RUN("--feed", "none"), ERR_USAGE);
    assert_says(&e, "arena, staged or auto");
    assert_int_equal(RUN("--wait-limit", "0.5", "--trace", "t.json"), OK);
    assert_true(o.wait_limit_s == 0.5f);
    assert_string_equal(o.trace_path, "t.json");
    assert_int_equal(RUN("--wait-limit", "0"), ERR_USAGE);
    assert_int_equal(PARSE("plan", "-m", "x", "--trace", "t.json"), ERR_USAGE);
    assert_int_equal(PARSE("plan", "-m", "x", "--strategy", "streamed", "--feed", "staged"), OK);
}

static void a_plan_file_excludes_what_it_holds(void **state) {
    (void)state;
    struct cli_options o;
    struct err e;
    static const char *const held[][2] = {
        {"-c", "512"},         {"-ub", "64"},         {"-ctk", "q8_0"},    {"-ctv", "f32"},
        {"--n-prompt", "9"},   {"--n-gen", "9"},      {"-ngl", "3"},       {"-ot", "x=CPU"},
        {"--logits-out", "x"}, {"--strategy", "cpu"}, {"--feed", "arena"}, {"--n-cpu-moe", "4"},
    };
    for (size_t i = 0; i < sizeof held / sizeof *held; i++) {
        assert_int_equal(RUN(held[i][0], held[i][1]), OK);
        assert_int_equal(RUN("--plan", "x", held[i][0], held[i][1]), ERR_USAGE);
        assert_says(&e, "cannot be combined");
    }
    assert_int_equal(RUN("--plan", "x", "--cpu-moe"), ERR_USAGE);
    assert_int_equal(RUN("--plan", "x", "--vram", "2G", "--ram", "9G", "-t", "3"), OK);
    assert_string_equal(o.plan_path, "x");
}

static void a_machine_as_data_has_no_devices_to_open(void **state) {
    (void)state;
    struct cli_options o;
    struct err e;
    static const char *const opened[][2] = {
        {"--device", "none"}, {"-t", "3"}, {"-tb", "3"}, {"--isa", "ref"}};
    for (size_t i = 0; i < sizeof opened / sizeof *opened; i++) {
        assert_int_equal(PARSE("plan", "-m", "x", opened[i][0], opened[i][1]), OK);
        assert_int_equal(PARSE("plan", "-m", "x", "--machine", "y", opened[i][0], opened[i][1]),
                         ERR_USAGE);
        assert_says(&e, "cannot be combined");
    }
    assert_int_equal(PARSE("plan", "-m", "x", "--machine", "y", "--no-bind"), ERR_USAGE);
    assert_int_equal(PARSE("plan", "-m", "x", "--machine", "y"), OK);
    assert_int_equal(RUN("--machine", "y"), ERR_USAGE);
}

static void a_shape_stands_for_the_model(void **state) {
    (void)state;
    struct cli_options o;
    struct err e;
    assert_int_equal(PARSE("plan", "--shape", "s"), OK);
    assert_string_equal(o.shape, "s");
    assert_null(o.model);
    assert_int_equal(PARSE("plan"), ERR_USAGE);
    assert_says(&e, "--shape NAME");
    assert_int_equal(PARSE("plan", "-m", "x", "--shape", "s"), ERR_USAGE);
    assert_int_equal(PARSE("run", "--shape", "s", "-p", "y"), ERR_USAGE);
}

static void wrong_lines_say_what_to_do(void **state) {
    (void)state;
    struct cli_options o;
    struct err e;
    assert_int_equal(cli_options_parse(&o, 1, (char *[]){(char *)(uintptr_t) "tandem"}, NULL, &e),
                     OK);
    assert_true(o.command == COMMAND_HELP && o.topic == COMMAND_HELP);
    assert_int_equal(PARSE("rum"), ERR_USAGE);
    assert_says(&e, "did you mean 'run'");
    assert_int_equal(PARSE("-m", "x"), ERR_USAGE);
    assert_says(&e, "a command comes first");
    assert_int_equal(RUN("--tmep", "1"), ERR_USAGE);
    assert_says(&e, "unknown option --tmep");
    assert_says(&e, "did you mean --temp");
    assert_int_equal(RUN("--something-else"), ERR_USAGE);
    assert_null(strstr(e.fix, "did you mean"));
    assert_int_equal(RUN("--show-count"), ERR_USAGE);
    assert_says(&e, "does not belong to 'tandem run'");
    assert_int_equal(RUN("--json=1"), ERR_USAGE);
    assert_says(&e, "takes no value");
    assert_int_equal(RUN("stray"), ERR_USAGE);
    assert_says(&e, "'stray'");
    assert_int_equal(PARSE("run", "-p", "x"), ERR_USAGE);
    assert_says(&e, "needs a model");
    assert_int_equal(PARSE("run", "-m", "x"), ERR_USAGE);
    assert_says(&e, "needs a text");
    assert_int_equal(RUN("-f", "x"), ERR_USAGE);
    assert_says(&e, "just one");
    assert_int_equal(PARSE("perplexity", "-m", "x"), ERR_USAGE);
    assert_says(&e, "-f FILE");
    assert_int_equal(PARSE("perplexity", "-m", "x", "-bf", "y", "--multiple-choice"), OK);
    assert_true(o.multiple_choice && o.n_tasks == -1 && strcmp(o.file, "y") == 0);
    assert_int_equal(PARSE("perplexity", "-m", "x", "--hellaswag", "--chunks", "1"), ERR_USAGE);
    assert_says(&e, "--hellaswag and --chunks cannot be combined");
    assert_int_equal(PARSE("perplexity", "-m", "x", "-f", "y", "--ppl-stride", "9"), OK);
    assert_int_equal(o.stride, 9);
    assert_int_equal(PARSE("perplexity", "-m", "x", "--ppl-stride", "9", "--second-half"),
                     ERR_USAGE);
    assert_says(&e, "--ppl-stride and --second-half cannot be combined");
    assert_int_equal(PARSE("perplexity", "-m", "x", "--winogrande"), ERR_USAGE);
    assert_says(&e, "-f FILE");
    assert_int_equal(RUN("-v", "-q"), ERR_USAGE);
    assert_int_equal(PARSE("help", "nothing"), ERR_USAGE);
    assert_int_equal(PARSE("--version", "x"), ERR_USAGE);
    // Longer than any name.
    char name[500];
    memset(name, '-', sizeof name);
    name[sizeof name - 1] = 0;
    assert_int_equal(RUN(name), ERR_USAGE);
    assert_says(&e, "unknown option");
}

static void values_may_begin_with_a_dash(void **state) {
    (void)state;
    struct cli_options o;
    struct err e;
    assert_int_equal(PARSE("run", "-m", "x", "-p", "-n"), OK);
    assert_string_equal(o.prompt, "-n");
    assert_int_equal(PARSE("run", "-m", "x", "--prompt=-n=3"), OK);
    assert_string_equal(o.prompt, "-n=3");
    assert_int_equal(PARSE("run", "-m", "x", "-f", "-"), OK);
    assert_string_equal(o.file, "-");
}

static void a_plain_argument_is_the_model(void **state) {
    (void)state;
    struct cli_options o;
    struct err e;
    assert_int_equal(PARSE("inspect", "model.gguf", "--json"), OK);
    assert_string_equal(o.model, "model.gguf");
    assert_true(o.json);
    assert_int_equal(PARSE("devices", "model.gguf"), ERR_USAGE);
}

static void lists_gather_every_use(void **state) {
    (void)state;
    struct cli_options o;
    struct err e;
    assert_int_equal(PARSE("bench", "-m", "a", "b", "-p", "1,2", "-p", "64-128*2", "-n=3"),
                     ERR_USAGE);
    assert_int_equal(PARSE("bench", "-m", "a", "b", "-p", "1,2", "-p", "64-128*2"), OK);
    assert_int_equal(o.bench.models.n, 2);
    assert_string_equal(o.bench.models.texts[1], "b");
    assert_int_equal(o.bench.n_prompt.n, 2);
    assert_string_equal(o.bench.n_prompt.texts[1], "64-128*2");
    assert_int_equal(o.bench.n_gen.n, 0);
    assert_int_equal(o.bench.n_repeats, 5);
    assert_null(o.prompt);
    assert_int_equal(PARSE("bench", "-p", "1"), ERR_USAGE);
    assert_says(&e, "needs a model");
    assert_int_equal(PARSE("bench", "a", "a", "a", "a", "a", "a", "a", "a", "a", "a"), OK);
    assert_int_equal(o.bench.models.n, 10);
}

static void switches_of_llama_bench_have_values(void **state) {
    (void)state;
    struct cli_options o;
    struct err e;
    const char *const ignored[] = {"--no-host", "--repack", "-fa",          "-mmp", "--mmap",
                                   "-embd",     "-nopo",    "--embeddings", "-dio"};
    const char *const values[] = {"0", "1", "on", "off", "0,1", "1,off,0"};
    for (size_t i = 0; i < sizeof ignored / sizeof *ignored; i++)
        for (size_t k = 0; k < sizeof values / sizeof *values; k++) {
            assert_int_equal(PARSE("bench", ignored[i], values[k], "f"), OK);
            assert_int_equal(o.bench.models.n, 1);
            assert_string_equal(o.bench.models.texts[0], "f");
            assert_int_equal(o.n_ignored, 1);
        }
    assert_int_equal(PARSE("bench", "--no-host", "01", "-fa", "0,", "-mmp", ",1"), OK);
    assert_int_equal(o.bench.models.n, 3);
    assert_int_equal(PARSE("bench", "-m", "f", "-nkvo", "0"), OK);
    assert_true(o.bench.models.n == 1 && !o.cpu_cache);
    assert_int_equal(PARSE("bench", "-m", "f", "--no-kv-offload=0", "-nkvo", "1"), OK);
    assert_true(o.bench.models.n == 1 && o.cpu_cache);
    assert_int_equal(PARSE_WITH("LLAMA_ARG_KV_OFFLOAD=0", "bench", "-m", "f"), OK);
    assert_true(o.cpu_cache);
    assert_int_equal(PARSE_WITH("LLAMA_ARG_KV_OFFLOAD=0", "bench", "-m", "f", "-nkvo", "0"), OK);
    assert_false(o.cpu_cache);
    assert_int_equal(PARSE_WITH("LLAMA_ARG_OVERRIDE_TENSOR=x=CPU", "bench", "-m", "f"), OK);
    assert_true(o.bench.tensor_overrides.n == 0 && o.tensor_overrides.n == 0);
    assert_int_equal(PARSE("bench", "-m", "f", "-nkvo", "0,1"), ERR_USAGE);
    assert_says(&e, "option -nkvo: expected 0 or 1, got '0,1'");
    assert_says(&e, "one after the other");
    assert_int_equal(PARSE("bench", "-nkvo", "-m", "f"), ERR_USAGE);
    assert_says(&e, "expected 0 or 1, got '-m'");
    // Elsewhere they are switches.
    assert_int_equal(PARSE("inspect", "--no-host", "1"), OK);
    assert_string_equal(o.model, "1");
    assert_int_equal(RUN("-nkvo", "1"), ERR_USAGE);
    assert_says(&e, "unexpected argument '1'");
}

static void help_is_asked_for_in_many_ways(void **state) {
    (void)state;
    struct cli_options o;
    struct err e;
    const char *const words[] = {"help", "--help", "-h"};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(PARSE(words[i]), OK);
        assert_int_equal(o.command, COMMAND_HELP);
        assert_int_equal(o.topic, COMMAND_HELP);
    }
    assert_int_equal(PARSE("help", "plan"), OK);
    assert_int_equal(o.topic, COMMAND_PLAN);
    assert_int_equal(PARSE("chat", "--help"), OK);
    assert_int_equal(o.command, COMMAND_HELP);
    assert_int_equal(o.topic, COMMAND_CHAT);
    assert_int_equal(PARSE("--version"), OK);
    assert_int_equal(o.command, COMMAND_VERSION);
}

static char *help_page(enum command topic) {
    static const struct device_driver driver = {.prefix = "toy", .help = "a device for tests"};
    char *page;
    size_t size;
    FILE *out = open_memstream(&page, &size);
    assert_non_null(out);
    cli_help(topic, &driver, 1, out);
    fclose(out);
    return page;
}

// Is name on the page as a whole word?
static bool lists(const char *page, const char *name) {
    for (const char *p = page; (p = strstr(p, name)); p++)
        if (p[-1] == ' ' && strchr(" ,\n", p[strlen(name)])) return true;
    return false;
}

// Commands that know an option by that name, as bits: some names mean something else in another.
static uint32_t commands_that_know(const char *name) {
    int32_t count;
    const struct option_spec *table = cli_option_table(&count);
    uint32_t commands = 0;
    for (int32_t i = 0; i < count; i++)
        for (int k = 0; k < OPTION_NAMES && table[i].names[k]; k++)
            if (strcmp(table[i].names[k], name) == 0) {
                assert_int_equal(commands & table[i].commands, 0);
                commands |= table[i].commands;
            }
    return commands;
}

static void help_lists_what_a_command_knows_and_nothing_else(void **state) {
    (void)state;
    int32_t count;
    const struct option_spec *table = cli_option_table(&count);
    for (int c = 0; c < COMMAND_HELP; c++) {
        char *page = help_page((enum command)c);
        for (int32_t i = 0; i < count; i++)
            for (int k = 0; k < OPTION_NAMES && table[i].names[k]; k++) {
                bool known = commands_that_know(table[i].names[k]) & 1u << c;
                if (lists(page, table[i].names[k]) != known)
                    fail_msg("help of %s is wrong about %s", command_name((enum command)c),
                             table[i].names[k]);
            }
        assert_int_equal(strstr(page, "a device for tests") != NULL, lists(page, "--device"));
        for (char *line = strtok(page, "\n"); line; line = strtok(NULL, "\n"))
            assert_true(strlen(line) <= 100);
        free(page);
    }
}

static void help_of_all_names_every_command(void **state) {
    (void)state;
    char *page = help_page(COMMAND_HELP);
    for (int c = 0; c < COMMAND_COUNT; c++) assert_true(lists(page, command_name((enum command)c)));
    assert_non_null(strstr(page, "3 --strict"));
    free(page);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_are_the_known_ones),
        cmocka_unit_test(every_name_of_every_option_is_parsed),
        cmocka_unit_test(drafts_have_the_names_of_llama_cli),
        cmocka_unit_test(draft_models_have_the_names_of_llama_cli),
        cmocka_unit_test(sampling_is_read_as_llama_cli_does),
        cmocka_unit_test(settings_change_by_their_names),
        cmocka_unit_test(options_of_llama_cpp_have_names),
        cmocka_unit_test(the_environment_gives_defaults),
        cmocka_unit_test(switches_of_the_environment_go_on_and_off),
        cmocka_unit_test(arguments_exclude_variables),
        cmocka_unit_test(variables_that_exclude_each_other_are_named),
        cmocka_unit_test(arguments_win_over_variables_of_other_options),
        cmocka_unit_test(no_option_follows_two_dashes),
        cmocka_unit_test(values_that_are_wrong_say_what_is_right),
        cmocka_unit_test(the_environment_keeps_the_cache_on_the_cpu),
        cmocka_unit_test(the_environment_names_a_file_of_a_repository),
        cmocka_unit_test(numbers_keep_their_range),
        cmocka_unit_test(sizes_take_suffixes),
        cmocka_unit_test(small_sizes_need_a_unit),
        cmocka_unit_test(layers_take_words),
        cmocka_unit_test(cache_types),
        cmocka_unit_test(strategies_and_feeds_have_names),
        cmocka_unit_test(a_plan_file_excludes_what_it_holds),
        cmocka_unit_test(a_machine_as_data_has_no_devices_to_open),
        cmocka_unit_test(a_shape_stands_for_the_model),
        cmocka_unit_test(wrong_lines_say_what_to_do),
        cmocka_unit_test(values_may_begin_with_a_dash),
        cmocka_unit_test(a_plain_argument_is_the_model),
        cmocka_unit_test(lists_gather_every_use),
        cmocka_unit_test(switches_of_llama_bench_have_values),
        cmocka_unit_test(help_is_asked_for_in_many_ways),
        cmocka_unit_test(help_lists_what_a_command_knows_and_nothing_else),
        cmocka_unit_test(help_of_all_names_every_command),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

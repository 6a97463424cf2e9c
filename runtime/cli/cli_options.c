/* cli_options.c: see cli_options.h. */
#include "runtime/cli/cli_options.h"

#include "base/close_name.h"
#include "runtime/cli/cli_values.h"
#include "runtime/generate/draft_model.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

// The words for sets of commands in cli_options.def.
#define IN(command) (1u << COMMAND_##command)
#define GENERATE    (IN(RUN) | IN(CHAT))
#define PLANNED     (GENERATE | IN(PLAN))
#define ENGINE      (PLANNED | IN(PERPLEXITY))
#define OPENED      (ENGINE | IN(BENCH))
#define MODEL       (ENGINE | IN(INSPECT) | IN(TOKENIZE) | IN(IMATRIX))
#define NAMED       (MODEL | IN(DOCTOR) | IN(BENCH) | IN(PULL) | IN(SHOW) | IN(RM))
#define MEASURED    (IN(DEVICES) | IN(CALIBRATE) | IN(DOCTOR))
#define ALL         (NAMED | MEASURED | IN(QUANTIZE) | IN(LIST))

// A setting that /set changes during a conversation; no command.
#define LIVE  (1u << 31)
#define TUNED (GENERATE | LIVE)

#define AT(field) offsetof(struct cli_options, field)
#define NAMES(...) \
    { __VA_ARGS__ }

// A row without names is the heading of the rows that follow.
static const struct option_spec table[] = {
#define GROUP(heading) {.help = (heading), .commands = ALL},
#define OPTION(type, field, who, called, takes, text) \
    {called, takes, text, OPTION_##type, who, AT(field), 0, 0},
#define NUMBER(type, field, who, least, most, called, takes, text) \
    {called, takes, text, OPTION_##type, who, AT(field), least, most},
#include "runtime/cli/cli_options.def"
#undef GROUP
#undef OPTION
#undef NUMBER
};

enum { TABLE_COUNT = sizeof table / sizeof *table };

static const struct command_words commands[COMMAND_COUNT] = {
    [COMMAND_RUN] =
        {"run", "-m FILE -p TEXT", "completes a prompt",
         "Only the new text goes to standard output (--echo: the prompt too), statistics to "
         "standard\nerror. Ctrl-C ends the text, a second one the program.\n",
         "-m model.gguf -p \"Once upon a time\" -n 100"},
    [COMMAND_CHAT] =
        {"chat", "-m FILE", "holds a conversation with a model",
         "At a terminal each line is a turn, and /help lists the commands. -p, -f (both: one after "
         "the\nother) or a pipe ask one question. Ctrl-C stops an answer, which is kept.\n",
         "-m model.gguf -p \"What is the capital of Italy?\""},
    [COMMAND_PLAN] =
        {"plan", "-m FILE | --shape NAME", "shows where a model would go, without loading it",
         "Only the header of FILE is read. Predicts times from the machine's speeds, and "
         "says what limits\nthem, what would help and how to run it.\n",
         "--shape llama-3.1-8b --machine rtx-3060-12g -c 8192"},
    [COMMAND_BENCH] =
        {"bench", "-m FILE", "measures tokens per second, or compares strategies",
         "Lists are numbers and ranges with commas: 1,2,4 or 1-8 or 1-8+2 or 1-64*2. Every "
         "combination is\nmeasured; options may also be given several times.\n",
         "-m model.gguf -p 512 -n 128 -ngl 0,auto"},
    [COMMAND_INSPECT] = {"inspect", "-m FILE", "shows what a GGUF file holds",
                         "-v lists its tensors too.\n", "model.gguf"},
    [COMMAND_DEVICES] = {"devices", "", "shows what can compute here", "", "-v"},
    [COMMAND_CALIBRATE] = {"calibrate", "", "measures how fast this computer is, for planning",
                           "Takes at most 10 seconds. The result is kept for later runs; stop "
                           "other programs first.\n",
                           "--show"},
    [COMMAND_DOCTOR] = {"doctor", "[-m FILE | --shape NAME]",
                        "says what holds this computer back, what it costs and how to mend it",
                        "Costs are those of the model that is named, or of Llama 3.1 8B. Also says "
                        "how much of the\nmodel's file is in RAM, and how often programs wait for "
                        "pages from the disk (major faults).\n",
                        "-m model.gguf"},
    [COMMAND_TOKENIZE] = {"tokenize", "-m FILE -p TEXT", "shows the tokens of a text",
                          "Reads only the vocabulary. One line per token: its number -> 'its "
                          "text'.\n",
                          "-m model.gguf -p \"Hello world\" --ids"},
    [COMMAND_PERPLEXITY] = {"perplexity", "-m FILE -f FILE",
                            "measures how well a model knows a text",
                            "Cuts the tokens into windows of -c and scores every token of a window "
                            "but its first, in\nnatural logarithms. A last window of one token is "
                            "left out. llama-perplexity has another rule,\nwhose numbers are "
                            "lower: --second-half goes by it. "
                            "Ctrl-C prints what is scored so far.\n",
                            "-m model.gguf -f text.txt -c 512"},
    [COMMAND_QUANTIZE] =
        {"quantize", "FILE OUT TYPE", "writes a model with smaller types",
         "FILE holds F32, F16 or BF16, for MXFP4_MOE also experts in MXFP4, for "
         "COPY anything. TYPE names a\nmixture of types, as llama-quantize makes "
         "it: Q4_K_M, Q5_K_M, Q6_K, Q8_0 ... OUT appears when\nit is whole; a file "
         "is never overwritten.\n",
         "model-f16.gguf model-q4.gguf Q4_K_M"},
    [COMMAND_IMATRIX] =
        {"imatrix", "-m FILE -f FILE", "measures for quantize how much each column matters",
         "Computes the text in windows of -c tokens and writes, for each column of "
         "each matrix, the sum\nof squares of what it was multiplied with, as "
         "llama-imatrix does, for quantize or llama-quantize.\nRuns on the CPU; tokens "
         "that fill no window are left out; a file is never overwritten.\nCtrl-C ends it early "
         "and keeps what was computed.\n",
         "-m model-f16.gguf -f text.txt -o imatrix.gguf"},
    [COMMAND_PULL] =
        {"pull", "ORG/REPO[:QUANT]", "fetches a model from huggingface.co",
         "Says first where it would run here, and how fast. What was fetched is kept "
         "when the connection\nbreaks or Ctrl-C stops it, and the same command goes "
         "on; it ends with a check of the sha256.\nThe folder is the one of "
         "llama.cpp and the hub's own programs: LLAMA_CACHE,\nHF_HUB_CACHE, "
         "HF_HOME/hub, or ~/.cache/huggingface/hub. HF_TOKEN says who asks,\n"
         "HF_ENDPOINT names another server, HF_HUB_OFFLINE=1 keeps all commands off the "
         "net.\n",
         "ggml-org/gemma-3-4b-it-GGUF:Q4_K_M"},
    [COMMAND_LIST] = {"list", "", "lists the models that were fetched", "", "--json"},
    [COMMAND_SHOW] = {"show", "ORG/REPO[:QUANT] | FILE", "says in ten lines what a model is",
                      "Of a model that was not fetched only the header is read.\n",
                      "ggml-org/gemma-3-4b-it-GGUF"},
    [COMMAND_RM] = {"rm", "ORG/REPO[:QUANT]", "removes a model that was fetched",
                    "Without QUANT all GGUF files of the repository go, also those fetched in "
                    "part.\n",
                    "ggml-org/gemma-3-4b-it-GGUF:Q4_K_M"},
    [COMMAND_HELP] = {"help", "[COMMAND]", "this list, or a command's options", "", NULL},
    [COMMAND_VERSION] = {"version", "", "shows the version", "", NULL},
};

const struct option_spec *cli_option_table(int32_t *count) {
    *count = TABLE_COUNT;
    return table;
}

const struct command_words *command_words(enum command command) {
    ASSERT(command < COMMAND_COUNT);
    return &commands[command];
}

const char *command_name(enum command command) { return command_words(command)->name; }

// ---- Suggestions --------------------------------------------------------------------------------

enum { BEGINNING = 5 }; // "--ctx" means an option, "--" any

// The name closest to given if it is close at all, else one that given begins, else NULL.
static const char *closest_option(const char *given, enum command command) {
    const char *best = NULL, *begun = NULL;
    const size_t length = strlen(given);
    int least = close_name_most(given);
    for (int i = 0; i < TABLE_COUNT; i++)
        for (int k = 0; k < OPTION_NAMES && table[i].names[k]; k++) {
            if (!(table[i].commands & 1u << command)) continue;
            int distance = close_name_changes(given, table[i].names[k]);
            if (distance < least || (distance == least && distance > 0 && !best)) {
                least = distance;
                best = table[i].names[k];
            }
            if (!begun && length >= BEGINNING && strncmp(given, table[i].names[k], length) == 0)
                begun = table[i].names[k];
        }
    return best ? best : begun;
}

static const char *closest_command(const char *given) {
    for (int i = 0; i < COMMAND_COUNT; i++)
        if (close_name_changes(given, commands[i].name) <= close_name_most(given))
            return commands[i].name;
    return NULL;
}

// ---- Settings of a conversation -----------------------------------------------------------------

enum status cli_options_set(struct cli_options *o, const char *name, const char *value,
                            struct err *e) {
    for (int i = 0; i < TABLE_COUNT; i++)
        for (int k = 0; k < OPTION_NAMES && table[i].names[k]; k++) {
            const char *own = table[i].names[k] + strspn(table[i].names[k], "-");
            if (!(table[i].commands & LIVE) || strcmp(own, name) != 0) continue;
            if (*value) return cli_value_set(o, &table[i], name, value, e);
            err_set(e, ERR_USAGE, "%s needs a value: %s", name, table[i].value);
            return err_fix(e, "%s", table[i].help);
        }
    err_set(e, ERR_USAGE, "there is no setting '%s'", name);
    return err_fix(e, "/set lists the settings");
}

void cli_options_print_settings(const struct cli_options *o, FILE *out) {
    for (int i = 0; i < TABLE_COUNT; i++) {
        const struct option_spec *spec = &table[i];
        if (!(spec->commands & LIVE)) continue;
        const char *name = spec->names[0];
        for (int k = 1; k < OPTION_NAMES && strncmp(name, "--", 2) != 0 && spec->names[k]; k++)
            name = spec->names[k];
        fprintf(out, "  %-20s ", name + strspn(name, "-"));
        cli_value_print(spec, (const char *)o + spec->offset, out);
        fputc('\n', out);
    }
}

// ---- Arguments ----------------------------------------------------------------------------------

// Finds the option of that name: the command's own if it has one, else another command's or NULL.
static const struct option_spec *find_option(const char *name, size_t length,
                                             enum command command) {
    const struct option_spec *found = NULL;
    for (int i = 0; i < TABLE_COUNT; i++)
        for (int k = 0; k < OPTION_NAMES && table[i].names[k]; k++) {
            if (strlen(table[i].names[k]) != length || memcmp(table[i].names[k], name, length))
                continue;
            found = &table[i];
            if (found->commands & 1u << command) return found;
        }
    return found;
}

static enum status unknown_option(enum command command, const char *name, bool known,
                                  struct err *e) {
    const char *own = command_name(command);
    if (known)
        err_set(e, ERR_USAGE, "option %s does not belong to 'tandem %s'", name, own);
    else
        err_set(e, ERR_USAGE, "unknown option %s", name);
    const size_t length = strcspn(name, "=0123456789"); // of -n in -n2, of -p in -p=hi
    const struct option_spec *joined = name[length] ? find_option(name, length, command) : NULL;
    if (!known && joined && joined->value && joined->commands & 1u << command)
        return err_fix(e, "write its value as the next argument: %.*s %s", (int)length, name,
                       joined->value);
    const char *close = known ? NULL : closest_option(name, command);
    if (close) return err_fix(e, "did you mean %s? See 'tandem help %s'", close, own);
    return err_fix(e, "see 'tandem help %s'", own);
}

// Options that cannot be used, all of them, and the error of the first one.
struct wrong_options {
    char text[sizeof((struct err *)0)->what];
    int32_t n;
    struct err first;
};

static void add_wrong(struct wrong_options *w, const char *name, const char *why,
                      const struct err *e) {
    const size_t used = strlen(w->text);
    snprintf(w->text + used, sizeof w->text - used, "%s%s %s", w->n ? "; " : "", name, why);
    if (w->n++ == 0) w->first = *e;
}

static enum status tell_wrong(const struct wrong_options *w, struct err *e) {
    if (w->n == 0) return OK;
    *e = w->first;
    if (w->n == 1) return e->status;
    return err_set(e, ERR_USAGE, "%d options cannot be used: %s", (int)w->n, w->text);
}

// The values that follow an option which is not parsed: how many arguments to skip.
static int values_of(const struct llama_option *option, enum command command, const char *next) {
    if (!next) return 0;
    if (!option) return next[0] != '-';
    const bool is_switch = option->value == LLAMA_SWITCH || command == COMMAND_BENCH;
    return option->value == LLAMA_ONE || (is_switch && llama_option_is_switch(next));
}

// Takes an option that the command does not have: one of llama.cpp's, another command's, or none.
static void take_foreign(struct cli_options *o, const char *name, const struct option_spec *spec,
                         const struct llama_option *llama, struct wrong_options *w) {
    struct err e = {0};
    char why[160];
    if (llama && llama->ignored) {
        if (o->n_ignored < IGNORED_LIST) o->ignored[o->n_ignored++] = llama;
    } else if (llama) {
        snprintf(why, sizeof why, "(%s) is not in tandem yet", llama->reason);
        err_set(&e, ERR_USAGE, "option %s is not in tandem yet: %s", name, llama->reason);
        add_wrong(w, name, why, &e);
    } else {
        unknown_option(o->command, name, spec, &e);
        const char *close = spec ? NULL : closest_option(name, o->command);
        snprintf(why, sizeof why, "is unknown%s%s%s", close ? " (did you mean " : "",
                 close ? close : "", close ? "?)" : "");
        add_wrong(w, name, spec ? "belongs to another command" : why, &e);
    }
}

// The arguments after the command, up to argv[i], and the members of the options that they set.
struct arguments {
    int argc, i;
    char **argv;
    bool given[sizeof(struct cli_options)]; // by offset, of options with names
    struct wrong_options wrong;
};

// Keeps that the option was given, if it is one of sampling: a model's file has no say in it then.
static void mark_sampling(struct cli_options *o, const struct option_spec *spec) {
    if (spec->offset >= AT(sampling) && spec->offset < AT(sampling) + sizeof o->sampling)
        o->sampling_given[spec->offset - AT(sampling)] = true;
}

// Parses the option at argv[i], with its value in the same argument ("--top-k=5") or the next one.
static enum status parse_option(struct cli_options *o, struct arguments *a, struct err *e) {
    char *given = a->argv[a->i];
    const char *equals = strncmp(given, "--", 2) == 0 ? strchr(given, '=') : NULL;
    size_t length = equals ? (size_t)(equals - given) : strlen(given);
    char name[CLOSE_NAME_CHARS + 1];
    snprintf(name, sizeof name, "%.*s", (int)length, given);

    const struct option_spec *spec = find_option(given, length, o->command);
    if (!spec || !(spec->commands & 1u << o->command)) {
        const struct llama_option *llama = llama_option_find(given, length);
        take_foreign(o, name, spec, llama, &a->wrong);
        if (!equals && (llama || !spec || spec->value))
            a->i += values_of(llama, o->command, a->i + 1 < a->argc ? a->argv[a->i + 1] : NULL);
        return OK;
    }
    a->given[spec->offset] = true;
    mark_sampling(o, spec);
    if (!spec->value) {
        if (equals) return err_set(e, ERR_USAGE, "option %s takes no value", name);
        return cli_value_set(o, spec, name, NULL, e);
    }
    if (equals) return cli_value_set(o, spec, name, equals + 1, e);
    if (a->i + 1 >= a->argc)
        return err_set(e, ERR_USAGE, "option %s needs a value: %s", name, spec->value);
    return cli_value_set(o, spec, name, a->argv[++a->i], e);
}

// Takes an argument of quantize: the model, the new file, the type. False if there are more.
static bool take_quantize(struct cli_options *o, const char *text) {
    const char **const places[] = {&o->model, &o->output, &o->mixture};
    for (int i = 0; i < 3; i++)
        if (!*places[i]) return *places[i] = text, true;
    return false;
}

static enum status parse_plain(struct cli_options *o, const char *text, struct err *e) {
    if (o->command == COMMAND_QUANTIZE && take_quantize(o, text)) return OK;
    if ((MODEL & 1u << o->command) && !o->model) {
        o->model = text;
        return OK;
    }
    if (o->command == COMMAND_BENCH)
        return cli_value_set(o, find_option("-m", 2, COMMAND_BENCH), "-m", text, e);
    if ((IN(PULL) | IN(SHOW) | IN(RM)) & 1u << o->command && !o->hub_repo)
        return o->hub_repo = text, OK;
    err_set(e, ERR_USAGE, "unexpected argument '%s'", text);
    const bool takes_text = (GENERATE | IN(TOKENIZE)) & 1u << o->command;
    return takes_text ? err_fix(e, "write a text with spaces in quotes") : e->status;
}

static bool command_find(const char *text, enum command *out) {
    for (int i = 0; i < COMMAND_COUNT; i++)
        if (strcmp(text, commands[i].name) == 0) {
            *out = (enum command)i;
            return true;
        }
    return false;
}

static enum status unknown_command(const char *text, struct err *e) {
    const char *close = closest_command(text), *end = strrchr(text, '.');
    err_set(e, ERR_USAGE, "unknown command '%s'", text);
    if (end && strcmp(end, ".gguf") == 0)
        return err_fix(e, "a command comes first: tandem chat -m %s", text);
    return close ? err_fix(e, "did you mean '%s'?", close) : e->status;
}

static enum status parse_command(struct cli_options *o, const char *text, struct err *e) {
    if (command_find(text, &o->command)) return OK;
    if (strcmp(text, "--version") == 0 || strcmp(text, "-V") == 0) {
        o->command = COMMAND_VERSION;
        return OK;
    }
    if (strcmp(text, "-h") == 0 || strcmp(text, "--help") == 0) {
        o->command = COMMAND_HELP;
        return OK;
    }
    if (text[0] == '-') {
        err_set(e, ERR_USAGE, "a command comes first, not the option %s", text);
        return err_fix(e, "for example: tandem run %s ...", text);
    }
    static const char *const of_servers[] = {"ps", "serve", "server", "stop"};
    for (size_t i = 0; i < sizeof of_servers / sizeof *of_servers; i++)
        if (strcmp(text, of_servers[i]) == 0) {
            err_set(e, ERR_USAGE, "'tandem %s' is not in tandem yet: there is no server", text);
            return err_fix(e,
                           "'tandem chat' and 'tandem run' load a model and free it at their end");
        }
    return unknown_command(text, e);
}

static enum status parse_topic(struct cli_options *o, int argc, char **argv, struct err *e) {
    const bool asks = argc == 3 && (strcmp(argv[2], "-h") == 0 || strcmp(argv[2], "--help") == 0 ||
                                    strcmp(argv[2], "--usage") == 0);
    if (asks) return o->command = COMMAND_HELP, OK;
    if (o->command == COMMAND_HELP && argc == 3 && strncmp(argv[2], "--", 2) == 0)
        return o->page = argv[2], OK;
    if (o->command == COMMAND_HELP && argc > 2 && !command_find(argv[2], &o->topic))
        return unknown_command(argv[2], e);
    int most = o->command == COMMAND_HELP ? 3 : 2;
    if (argc > most) return err_set(e, ERR_USAGE, "unexpected argument '%s'", argv[most]);
    return OK;
}

// An option and whether it was given; first_given returns the first one that was, or NULL.
struct given {
    bool is;
    const char *name;
};
static const char *first_given(const struct given *list, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (list[i].is) return list[i].name;
    return NULL;
}

// A plan file excludes the options of the first list, and a machine given as data opens no devices.
static enum status check_plan(const struct cli_options *o, struct err *e) {
    const struct given planned[] = {
        {o->n_ctx, "-c"},
        {o->n_ubatch, "-ub"},
        {o->kv_type_k != DTYPE_F16, "-ctk"},
        {o->kv_type_v != DTYPE_F16, "-ctv"},
        {o->full_windows, "--swa-full"},
        {o->n_prompt, "--prompt-tokens"},
        {o->n_gen, "--gen-tokens"},
        {o->gpu_layers != GPU_LAYERS_AUTO, "-ngl"},
        {o->tensor_overrides.n, "-ot"},
        {o->cpu_cache, "--no-kv-offload"},
        {o->cpu_experts, "--cpu-moe"},
        {o->n_cpu_experts, "--n-cpu-moe"},
        {o->strategy != STRATEGY_AUTO, "--strategy"},
        {o->feed != FEED_NONE, "--feed"},
    };
    const struct given opened[] = {
        {o->device, "--device"},       {o->n_threads, "-t"},      {o->n_threads_batch, "-tb"},
        {o->isa != ISA_AUTO, "--isa"}, {o->no_bind, "--no-bind"},
    };
    const char *both = first_given(planned, sizeof planned / sizeof *planned);
    if (o->plan_path && both) {
        err_set(e, ERR_USAGE, "--plan and %s cannot be combined", both);
        return err_fix(e, "make a new plan: tandem plan ... %s ... --save FILE", both);
    }
    if (o->plan_path && o->logits_path) {
        err_set(e, ERR_USAGE,
                "--plan and --logits-out cannot be combined: no plan that was saved "
                "has room for the logits of all positions");
        return err_fix(e, "leave --plan out, and repeat the options that the plan was made with");
    }
    if (o->strategy == STRATEGY_CPU && o->gpu_layers != GPU_LAYERS_AUTO && o->gpu_layers != 0)
        return err_set(e, ERR_USAGE, "--strategy cpu and -ngl cannot be combined");
    both = first_given(opened, sizeof opened / sizeof *opened);
    if (o->machine && both)
        return err_set(e, ERR_USAGE, "--machine and %s cannot be combined", both);
    return OK;
}

bool cli_options_list_names(const struct cli_options *o) {
    return (o->shape && strcmp(o->shape, "list") == 0) ||
           (o->machine && strcmp(o->machine, "list") == 0);
}

static int count_texts(const struct cli_options *o) {
    return (o->prompt != NULL) + (o->file != NULL) + o->from_stdin;
}

// Checks that perplexity is to measure one thing.
static enum status check_measured(const struct cli_options *o, struct err *e) {
    const struct given suites[] = {
        {o->hellaswag, "--hellaswag"},
        {o->winogrande, "--winogrande"},
        {o->multiple_choice, "--multiple-choice"},
    };
    const struct given rules[] = {
        // the first three exclude a stride, too
        {o->kl_divergence, "--kl-divergence"}, {o->logits_base, "--kl-divergence-base"},
        {o->second_half, "--second-half"},     {o->stride, "--ppl-stride"},
        {o->n_windows >= 0, "--chunks"},       {o->plan_path, "--plan"},
    };
    const size_t n_suites = sizeof suites / sizeof *suites, n_rules = sizeof rules / sizeof *rules;
    const char *suite = first_given(suites, n_suites), *other = first_given(rules, n_rules);
    for (size_t i = 0; suite && i < n_suites; i++)
        if (suites[i].is && suites[i].name != suite) other = suites[i].name;
    if (!suite && o->stride) suite = "--ppl-stride", other = first_given(rules, 3);
    if (suite && other) return err_set(e, ERR_USAGE, "%s and %s cannot be combined", suite, other);
    return OK;
}

static bool has_draft_model(const struct cli_options *o) {
    return o->draft_model.path || o->draft_model.repo;
}

// Checks that no option excludes another one.
static enum status check_together(const struct cli_options *o, struct err *e) {
    if (o->hub_repo && (o->model || o->shape || o->bench.models.n))
        return err_set(e, ERR_USAGE, "-hf and %s cannot be combined", o->shape ? "--shape" : "-m");
    if (o->model && o->shape) return err_set(e, ERR_USAGE, "-m and --shape cannot be combined");
    if (o->kl_divergence && (count_texts(o) || o->n_ctx))
        return err_set(e, ERR_USAGE,
                       "--kl-divergence takes the text and its windows from its file");
    if ((o->grammar != NULL) + (o->grammar_file != NULL) + (o->schema != NULL) +
            (o->schema_file != NULL) >
        1)
        return err_set(e, ERR_USAGE, "only one grammar or JSON schema can be given");
    if (o->tools && (o->grammar || o->grammar_file || o->schema || o->schema_file))
        return err_set(e, ERR_USAGE, "--tools makes a grammar itself; leave the other one out");
    if (o->include_weights.n && o->exclude_weights.n)
        return err_set(e, ERR_USAGE, "--include-weights and --exclude-weights cannot be combined");
    if (o->system_prompt && o->system_file)
        return err_set(e, ERR_USAGE, "-sys and --system-prompt-file cannot be combined");
    if (o->verbose && o->quiet) return err_set(e, ERR_USAGE, "-v and -q cannot be combined");
    if (o->draft_model.path && o->draft_model.repo)
        return err_set(e, ERR_USAGE, "-md and -hfd cannot be combined");
    if (o->drafts == DRAFTS_NGRAM && has_draft_model(o))
        return err_set(e, ERR_USAGE,
                       "--spec-type ngram-simple and a draft model cannot be combined");
    if (check_measured(o, e)) return e->status;
    return check_plan(o, e);
}

// Checks that every command that opens a model has one.
static enum status check_model(const struct cli_options *o, struct err *e) {
    bool empty = o->model && !*o->model;
    for (int32_t i = 0; i < o->bench.models.n; i++) empty |= !*o->bench.models.texts[i];
    if (empty) return cli_value_bad(e, "-m", "a file", "");
    if (o->hub_file && !o->hub_repo)
        return err_set(e, ERR_USAGE, "a file of a repository needs its name: -hf ORG/REPO");
    if ((IN(PULL) | IN(SHOW) | IN(RM)) & 1u << o->command && !o->hub_repo) {
        err_set(e, ERR_USAGE, "'tandem %s' needs the name of a model", command_name(o->command));
        return err_fix(e, "for example: tandem %s ggml-org/gemma-3-4b-it-GGUF:Q4_K_M",
                       command_name(o->command));
    }
    if ((MODEL & 1u << o->command) && !o->model && !o->shape && !o->hub_repo &&
        !cli_options_list_names(o))
        return err_set(e, ERR_USAGE, "'tandem %s' needs a model: -m FILE or -hf ORG/REPO%s",
                       command_name(o->command),
                       o->command == COMMAND_PLAN ? " or --shape NAME" : "");
    if (o->command == COMMAND_BENCH && !o->bench.models.n && !o->hub_repo && !o->bench.list_devices)
        return err_set(e, ERR_USAGE, "'tandem bench' needs a model: -m FILE or -hf ORG/REPO");
    return OK;
}

static enum status check_drafts(const struct cli_options *o, struct err *e) {
    const struct draft_model_options *d = &o->draft_model;
    if (o->drafts == DRAFTS_MODEL && !has_draft_model(o))
        return err_set(e, ERR_USAGE,
                       "--spec-type draft-simple needs a draft model: -md FILE or -hfd ORG/REPO");
    if ((d->kv_type_k == KV_TYPE_AUTO) != (d->kv_type_v == KV_TYPE_AUTO))
        return err_set(e, ERR_USAGE, "auto needs both options: -ctkd auto -ctvd auto");
    return OK;
}

// Checks that nothing is missing that the command or an option needs.
static enum status check_needs(const struct cli_options *o, struct err *e) {
    const char *command = command_name(o->command);
    const int texts = count_texts(o);
    if (check_model(o, e)) return e->status;
    if (o->command == COMMAND_QUANTIZE && !(o->model && (o->output || o->dry_run) && o->mixture)) {
        err_set(e, ERR_USAGE,
                "'tandem quantize' needs a model, a name for the new file and a type");
        return err_fix(e, "for example: tandem quantize model-F16.gguf model-Q4_K_M.gguf Q4_K_M");
    }
    if ((o->include_weights.n || o->exclude_weights.n) && !o->importance)
        return err_set(e, ERR_USAGE, "%s needs --imatrix FILE",
                       o->include_weights.n ? "--include-weights" : "--exclude-weights");
    if (o->kl_divergence && !o->logits_base)
        return err_set(e, ERR_USAGE, "--kl-divergence needs --kl-divergence-base FILE");
    if (o->n_tasks >= 0 && !o->hellaswag && !o->winogrande && !o->multiple_choice)
        return err_set(e, ERR_USAGE,
                       "a number of tasks needs --hellaswag, --winogrande or --multiple-choice");
    if (o->command == COMMAND_IMATRIX && !texts)
        return err_set(e, ERR_USAGE, "'tandem imatrix' needs a text: -f FILE");
    if (o->command == COMMAND_PERPLEXITY && !texts && !o->kl_divergence)
        return err_set(e, ERR_USAGE, "'tandem perplexity' needs a text: -f FILE");
    if ((o->command == COMMAND_RUN || o->command == COMMAND_TOKENIZE) && texts != 1) {
        err_set(e, ERR_USAGE, "'tandem %s' needs %s text", command, texts ? "just one" : "a");
        return err_fix(e, "give either -p TEXT or -f FILE%s",
                       o->command == COMMAND_TOKENIZE ? " or --stdin" : "");
    }
    if ((o->kv_type_k == KV_TYPE_AUTO) != (o->kv_type_v == KV_TYPE_AUTO))
        return err_set(e, ERR_USAGE, "auto needs both options: -ctk auto -ctv auto");
    return check_drafts(o, e);
}

// ---- The environment ----------------------------------------------------------------------------

const char *cli_variable(char *const *variables, const char *name) {
    const size_t length = strlen(name);
    for (; variables && *variables; variables++)
        if (strncmp(*variables, name, length) == 0 && (*variables)[length] == '=')
            return (*variables)[length + 1] ? *variables + length + 1 : NULL;
    return NULL;
}

// Turns what was given into what the commands read.
static void settle(struct cli_options *o) {
    if (o->n_ctx == 0 && PLANNED & 1u << o->command) o->n_ctx = N_CTX_OF_MODEL;
    if (o->n_ctx < 0) o->n_ctx = 0;
    if (o->reasoning_budget == 0) o->thinking = THINKING_OFF;
    if (o->drafts == DRAFTS_AUTO) o->drafts = has_draft_model(o) ? DRAFTS_MODEL : DRAFTS_NONE;
    if (o->command == COMMAND_RUN && o->n_predict == 0) o->drafts = DRAFTS_NONE; // no text
    if (GENERATE & 1u << o->command) o->escape = !o->no_escape;
    if (o->dry_run && !o->mixture) { // FILE TYPE
        o->mixture = o->output;
        o->output = NULL;
    }
    if (o->n_threads < 0) o->n_threads = 0;
    if (o->n_threads_batch < 0) o->n_threads_batch = 0;
}

static bool fit_together(const struct cli_options *o) {
    struct cli_options settled = *o;
    struct err e = {0};
    settle(&settled);
    return check_together(&settled, &e) == OK;
}

// A variable of the environment, its value and the option of the command that it sets.
struct setting {
    const char *name, *value;
    const struct option_spec *spec;
};

static bool is_ignored(const struct cli_options *o, const char *name) {
    const struct llama_option *option = llama_option_find(name, strlen(name));
    for (int32_t i = 0; i < o->n_ignored; i++)
        if (o->ignored[i] == option) return true;
    return false;
}

// True if an argument gives the other option, which says the opposite of the variable.
static bool is_excluded(const struct llama_variable *variable, const char *value,
                        const struct cli_options *o, const struct arguments *a) {
    const char *other = variable->other;
    if (!other || (variable->clash && strcmp(variable->clash, value) != 0)) return false;
    const struct option_spec *spec = find_option(other, strlen(other), o->command);
    return spec ? a->given[spec->offset] : is_ignored(o, other);
}

// Finds the setting of a variable. False if it is not there, if the command has no such option, or
// if an argument gives it.
static bool find_setting(struct setting *out, const struct llama_variable *variable,
                         const struct cli_options *o, const struct arguments *a,
                         char *const *variables) {
    const char *option = variable->option;
    const struct option_spec *spec = find_option(option, strlen(option), o->command);
    *out = (struct setting){variable->name, cli_variable(variables, variable->name), spec};
    bool on;
    if (!out->value || !spec || !(spec->commands & 1u << o->command)) return false;
    if (is_excluded(variable, out->value, o, a)) return false;
    if (variable->inverted && llama_switch_parse(out->value, &on)) out->value = on ? "off" : "on";
    // Lists, and the context that they need, are what a benchmark is asked to measure.
    const bool is_list = spec->kind == OPTION_LIST && spec->offset != AT(tensor_overrides);
    if (is_list || (o->command == COMMAND_BENCH && spec->offset == AT(n_ctx))) return false;
    const bool is_text = spec->kind == OPTION_TEXT; // it may be an argument without a name
    return !a->given[spec->offset] &&
           !(is_text && *(const char *const *)((const char *)o + spec->offset));
}

static enum status apply(struct cli_options *o, const struct setting *s, struct err *e) {
    mark_sampling(o, s->spec);
    return cli_value_set(o, s->spec, s->name, s->value, e);
}

// Refuses a setting that excludes one of those before it, where the arguments take either.
static enum status check_pairs(const struct cli_options *o, const struct setting *before,
                               int32_t n_before, const struct setting *s, struct err *e) {
    for (int32_t i = 0; i < n_before; i++) {
        struct cli_options both = *o;
        if (apply(&both, &before[i], e) || apply(&both, s, e)) return e->status;
        if (fit_together(&both)) continue;
        err_set(e, ERR_USAGE, "variables %s and %s cannot be combined", before[i].name, s->name);
        return err_fix(e, "unset one of them, or say by an option what counts");
    }
    return OK;
}

// True if the file that LLAMA_ARG_HF_FILE names can be one of the repository that o names.
static bool has_file(const struct cli_options *o, const struct cli_options *by_arguments,
                     char *const *variables) {
    if (!o->hub_repo || ((IN(PULL) | IN(SHOW) | IN(RM)) & 1u << o->command)) return false;
    return !by_arguments->hub_repo || !cli_variable(variables, "LLAMA_ARG_HF_REPO");
}

// An auto goes for both types of the cache: where an argument gives one type, a variable's auto for
// the other is left out.
static void leave_half_out(struct cli_options *o, const struct cli_options *by_arguments,
                           const struct arguments *a) {
    const bool half = (o->kv_type_k == KV_TYPE_AUTO) != (o->kv_type_v == KV_TYPE_AUTO);
    if (half && a->given[AT(kv_type_k)] && o->kv_type_v == KV_TYPE_AUTO)
        o->kv_type_v = by_arguments->kv_type_v;
    if (half && a->given[AT(kv_type_v)] && o->kv_type_k == KV_TYPE_AUTO)
        o->kv_type_k = by_arguments->kv_type_k;
}

// Applies the variables of the environment whose options the arguments neither give nor exclude.
static enum status take_variables(struct cli_options *o, const struct arguments *a,
                                  char *const *variables, struct err *e) {
    const struct cli_options by_arguments = *o;
    struct setting taken[LLAMA_VARIABLES_MAX];
    int32_t count, n_taken = 0;
    const struct llama_variable *list = llama_variables(&count);
    ASSERT(count <= LLAMA_VARIABLES_MAX);
    for (int32_t i = 0; i < count; i++) {
        struct cli_options alone = by_arguments;
        struct setting s;
        if (!find_setting(&s, &list[i], &by_arguments, a, variables)) continue;
        if (apply(&alone, &s, e)) return e->status;
        if (!fit_together(&alone)) continue;
        if (check_pairs(&by_arguments, taken, n_taken, &s, e) || apply(o, &s, e)) return e->status;
        taken[n_taken++] = s;
    }
    leave_half_out(o, &by_arguments, a);
    if (!by_arguments.hub_file && !has_file(o, &by_arguments, variables)) o->hub_file = NULL;
    return OK;
}

// ---- The whole command line ---------------------------------------------------------------------

// True for the argument behind which none is an option.
static bool is_end(const char *text) { return strcmp(text, "--") == 0; }

// True for an option of llama.cpp's without effect here that may have a value.
static bool may_be_set(const char *text) {
    const struct llama_option *option = llama_option_find(text, strlen(text));
    return option && option->value == LLAMA_SWITCH;
}

static enum status parse_arguments(struct cli_options *o, struct arguments *a, struct err *e) {
    bool ended = false; // the options
    for (a->i = 2; a->i < a->argc; a->i++) {
        const char *text = a->argv[a->i];
        if (!ended && is_end(text)) {
            ended = true;
            continue;
        }
        const bool option = text[0] == '-' && text[1] && !ended;
        enum status status = option ? parse_option(o, a, e) : parse_plain(o, text, e);
        if (status && !option && may_be_set(a->argv[a->i - 1]))
            status = cli_value_bad(e, a->argv[a->i - 1], "on, off or auto", text);
        if (status != OK || o->command == COMMAND_HELP || o->command == COMMAND_VERSION)
            return status;
    }
    return tell_wrong(&a->wrong, e);
}

enum status cli_options_parse(struct cli_options *o, int argc, char **argv, char *const *variables,
                              struct err *e) {
    struct arguments arguments = {.argc = argc, .argv = argv};
    *o = (struct cli_options){
        .command = COMMAND_HELP, // until the command is known
        .topic = COMMAND_HELP,
        .n_predict = -1,
        .reasoning_budget = -1,
        .n_windows = -1,
        .n_tasks = -1,
        .n_ctx = -1, // not given
        .n_batch = 2048,
        .draft_size_n = DRAFT_SIZE_N,
        .draft_size_m = DRAFT_SIZE_M,
        .draft_model = {.n_most = DRAFT_MODEL_MOST,
                        .gpu_layers = GPU_LAYERS_AUTO,
                        .kv_type_k = DTYPE_F16,
                        .kv_type_v = DTYPE_F16},
        .kv_type_k = DTYPE_F16,
        .kv_type_v = DTYPE_F16,
        .gpu_layers = GPU_LAYERS_AUTO,
        .isa = ISA_AUTO,
        .sampling = sampler_defaults(),
        .bench = {.n_repeats = 5},
    };
    o->arguments = argv;
    o->n_arguments = argc;
    if (argc < 2) return OK; // the list of commands
    enum status status = parse_command(o, argv[1], e);
    if (status != OK) return status;
    if (o->command == COMMAND_HELP || o->command == COMMAND_VERSION)
        return parse_topic(o, argc, argv, e);

    status = parse_arguments(o, &arguments, e);
    if (status != OK || o->command == COMMAND_HELP || o->command == COMMAND_VERSION) return status;
    if (take_variables(o, &arguments, variables, e)) return e->status;
    settle(o);
    return check_together(o, e) || check_needs(o, e) ? e->status : OK;
}

// ---- The same arguments for another command -----------------------------------------------------

static void print_word(const char *text, FILE *out) {
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "_@%+=:,./-";
    if (*text && !text[strspn(text, plain)]) {
        fprintf(out, " %s", text);
        return;
    }
    fputs(" '", out);
    for (; *text; text++) fputs(*text == '\'' ? "'\\''" : (char[]){*text, 0}, out);
    fputc('\'', out);
}

// True if the other command has the option too; *has_value says whether the next argument is its
// value.
static bool is_shared(const struct cli_options *o, const char *given, const char *next,
                      enum command other, bool *has_value) {
    const char *equals = strncmp(given, "--", 2) == 0 ? strchr(given, '=') : NULL;
    const size_t length = equals ? (size_t)(equals - given) : strlen(given);
    const struct option_spec *own = find_option(given, length, o->command);
    const struct option_spec *spec = find_option(given, length, other);
    *has_value =
        !equals && (own ? own->value != NULL
                        : values_of(llama_option_find(given, length), o->command, next) > 0);
    return own && spec && spec->commands & 1u << other && spec->offset != AT(quiet);
}

// True for a draft model of which plan knows the shape alone.
static bool is_draft_shape(const struct cli_options *o, const char *given, const char *value) {
    const struct option_spec *spec = find_option(given, strlen(given), o->command);
    return spec && spec->offset == AT(draft_model.path) && access(value, F_OK) != 0;
}

void cli_options_print_again(const struct cli_options *o, enum command other, FILE *out) {
    bool ended = false; // the options
    for (int32_t i = 2; i < o->n_arguments; i++) {
        const char *given = o->arguments[i];
        if (!ended && is_end(given)) {
            ended = true;
            continue;
        }
        const char *next = i + 1 < o->n_arguments ? o->arguments[i + 1] : NULL;
        bool has_value = false;
        const bool dash = given[0] == '-' && given[1], option = dash && !ended;
        const bool keep =
            option ? is_shared(o, given, next, other, &has_value) : (MODEL & 1u << other) != 0;
        if (keep && dash && !option) print_word("-m", out); // what follows may be options again
        if (keep) print_word(given, out);
        if (keep && has_value) print_word(is_draft_shape(o, given, next) ? "FILE" : next, out);
        i += has_value;
    }
}

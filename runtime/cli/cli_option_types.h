/* cli_option_types.h: what the options of the command line are, and where their values lie.
 *
 * A struct cli_options borrows its texts from argv and the environment and owns nothing. Types
 * alone; cli_options.h reads a command line, cli_values.h one value. Tested by
 * tests/runtime/test_options.c.
 */
#ifndef TANDEM_RUNTIME_CLI_CLI_OPTION_TYPES_H
#define TANDEM_RUNTIME_CLI_CLI_OPTION_TYPES_H

#include "kernels/cpu/device/cpu_device.h"
#include "planner/planner.h"
#include "runtime/cli/llama_options.h"
#include "runtime/options.h"
#include "runtime/generate/draft.h"
#include "runtime/generate/sampler.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum command {
    COMMAND_RUN,
    COMMAND_CHAT,
    COMMAND_PLAN,
    COMMAND_BENCH,
    COMMAND_INSPECT,
    COMMAND_DEVICES,
    COMMAND_CALIBRATE,
    COMMAND_DOCTOR,
    COMMAND_TOKENIZE,
    COMMAND_PERPLEXITY,
    COMMAND_QUANTIZE,
    COMMAND_IMATRIX,
    COMMAND_PULL,
    COMMAND_LIST,
    COMMAND_SHOW,
    COMMAND_RM,
    COMMAND_HELP,
    COMMAND_VERSION,
    COMMAND_COUNT,
};

// Values of an option that may be given several times, as typed.
enum { TEXT_LIST = 16 };
struct text_list {
    const char *texts[TEXT_LIST];
    int32_t n;
};

// The measurements of `tandem bench`; bench_matrix.h says how the lists are read.
struct bench_options {
    struct text_list models, n_prompt, n_gen, prompt_gen, n_depth; // empty: the defaults
    struct text_list n_batch, n_ubatch, n_threads, gpu_layers, kv_type_k, kv_type_v, vram;
    struct text_list tensor_overrides; // "PATTERN=DEVICE;...,...": a comma ends a value
    int32_t n_repeats, delay_s;
    const char *output, *output_err, *plot_path; // NULL: not given
    bool progress, no_warmup, strategies, list_devices;
};

// How chat prints the thoughts of a model before its answer.
enum reasoning {
    REASONING_AUTO, // dimmed on a terminal, left out elsewhere
    REASONING_NONE, // printed as it comes
    REASONING_HIDE, // left out
};

// Where guesses of the next tokens come from.
enum drafts {
    DRAFTS_AUTO, // from a draft model if there is one
    DRAFTS_NONE,
    DRAFTS_NGRAM, // from what stands before them
    DRAFTS_MODEL,
};

struct draft_model_options {
    const char *path, *repo; // a file, or a name; NULL: not given
    int32_t n_most, n_least;
    float sure;                         // 0: whatever pays
    int32_t gpu_layers;                 // as of the model
    enum dtype kv_type_k, kv_type_v;    // both or neither KV_TYPE_AUTO
    int32_t n_threads, n_threads_batch; // 0: as the model
};

// Whether a model thinks before it answers, where its template has a switch.
enum thinking { THINKING_AUTO, THINKING_OFF, THINKING_ON };

enum { IGNORED_LIST = 24 };
struct cli_options {
    enum command command;
    enum command topic; // with COMMAND_HELP: the command to explain, or COMMAND_HELP for all
    char **arguments;   // as main got them: the program, the command and what follows
    int32_t n_arguments;
    const char *page; // with COMMAND_HELP: a page for installation (cli_pages.h); else NULL

    const char *hub_repo, *hub_file, *hub_token; // of a model by name; NULL: not given
    bool offline;                                // fetch nothing
    const char *model, *prompt, *file, *system_prompt, *logits_path; // NULL: not given
    const char *prompt_cache;                                        // NULL: not given
    const char *chat_template, *chat_kwargs; // a name, a file or a text, and JSON; NULL: not given
    const char *tools;                       // a file, or NULL
    enum reasoning reasoning;
    enum thinking thinking;
    bool no_context_shift, by_lines; // chat: forget no turns; each line of a pipe is a turn
    bool no_wrap;                    // chat: lines are broken by the terminal alone
    const char *system_file;         // NULL: not given
    int32_t reasoning_budget;        // tokens of a thought; 0: no thoughts; -1: no limit
    const char *reasoning_message;   // ends a thought that reaches them; NULL: none
    bool prompt_cache_all, prompt_cache_ro;
    bool from_stdin, escape, no_escape, ignore_end, no_parse_special, no_bos, echo, ids, show_count;
    int32_t n_predict; // -1: until the model ends the text or the context is full
    struct text_list stops;

    int32_t n_ctx, n_batch, n_ubatch;  // n_ctx and n_ubatch 0: the command's default
    enum dtype kv_type_k, kv_type_v;   // both or neither KV_TYPE_AUTO
    bool full_windows;                 // layers with a window keep all positions
    int32_t n_prompt, n_gen;           // the plan is made for these; 0: the planner's default
    const char *shape, *machine;       // names or files; NULL: the model's, this machine
    const char *plan_path, *save_path; // NULL: not given
    struct text_list tensor_overrides; // "PATTERN=DEVICE,..."
    bool cpu_cache;                    // and the attention that reads it
    bool cpu_experts;                  // of all layers
    int32_t n_cpu_experts;             // of the first layers
    enum strategy strategy;
    enum feed feed; // FEED_NONE: the planner's choice

    int32_t gpu_layers;                 // GPU_LAYERS_AUTO, GPU_LAYERS_ALL or a number
    uint64_t vram_bytes, ram_bytes;     // 0: no limit given
    const char *device;                 // "kind", "kind:spec", "none", or NULL
    int32_t n_threads, n_threads_batch; // 0: automatic
    enum cpu_isa isa;
    bool no_bind, strict;
    float wait_limit_s; // 0: the devices' own
    bool calibrate_show, calibrate_forget, allow_paging, lock_memory;
    const char *machine_out, *trace_path; // NULL: not given

    struct sampler_options sampling; // without breakers and biases, which are here:
    bool sampling_given[sizeof(struct sampler_options)]; // by offset, of members that were given
    struct text_list dry_breakers; // the text "none" stands for none; empty: the usual ones
    struct logit_bias biases[TEXT_LIST];
    int32_t n_biases;

    const char *grammar, *grammar_file; // that answers obey; NULL: not given
    const char *schema, *schema_file;   // as JSON schemas

    const char *output, *mixture, *importance; // of quantize; NULL: not given
    const char *output_type, *embedding_type;  // of its matrices; NULL: not given
    const char *tensor_type_file;              // NULL: not given
    const char *prune_layers;                  // NULL: not given
    struct text_list tensor_types, key_overrides;
    struct text_list include_weights, exclude_weights; // of importance
    bool pure, leave_output, requantize, dry_run, keep_split;

    const char *logits_base; // of perplexity; NULL: not given
    bool second_half, kl_divergence;
    int32_t n_windows; // -1: all
    int32_t stride;    // tokens between the beginnings of windows, 0: all of a window
    bool hellaswag, winogrande, multiple_choice;
    int32_t n_tasks; // of these; 0: all; -1: not given

    enum drafts drafts;
    int32_t draft_size_n; // last tokens that must have stood before
    int32_t draft_size_m; // tokens of such a draft
    struct draft_model_options draft_model;

    struct bench_options bench;

    const char *log_path; // gets what is meant for standard error; NULL: not given
    bool json, verbose, quiet, help;
    // Options of llama.cpp that were given and have no effect here.
    const struct llama_option *ignored[IGNORED_LIST];
    int32_t n_ignored;
};

enum option_kind {
    OPTION_SWITCH, // takes no value, sets a bool
    OPTION_BOOL,   // bool: 0 or 1, or a word for them
    OPTION_TEXT,
    OPTION_LIST,      // struct text_list: every use adds a text
    OPTION_INT,       // int32_t in low..high
    OPTION_SEED,      // int64_t in low..high
    OPTION_REAL,      // float in low..high
    OPTION_SIZE,      // uint64_t bytes, with a suffix
    OPTION_LAYERS,    // int32_t: a number, "auto" or "all"
    OPTION_KV_TYPE,   // enum dtype: f16, f32, q8_0, q4_0 or KV_TYPE_AUTO
    OPTION_STRATEGY,  // enum strategy
    OPTION_FEED,      // enum feed; auto is FEED_NONE
    OPTION_REASONING, // enum reasoning
    OPTION_THINKING,  // enum thinking
    OPTION_DRAFTS,    // enum drafts: none, ngram-simple or draft-simple
    OPTION_ISA,       // enum cpu_isa
    OPTION_SAMPLERS,  // struct sampler_order, by names
    OPTION_LETTERS,   // struct sampler_order, by letters
    OPTION_BIAS,      // adds to biases of struct cli_options
    OPTION_VERSION,   // shows the version
    OPTION_HELP,      // shows the help of the command
};

enum { OPTION_NAMES = 4 };
#define KV_TYPE_AUTO DTYPE_COUNT // -ctk auto: the planner chooses

struct option_spec {
    const char *names[OPTION_NAMES]; // unused ones are NULL; without any, help is a heading
    const char *value;               // the word for its value in the help; NULL for a switch
    const char *help;
    enum option_kind kind;
    uint32_t commands; // bit 1 << COMMAND_x for each command that knows it
    size_t offset;     // in struct cli_options
    double low, high;  // the range of a number
};

#endif

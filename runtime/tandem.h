/* tandem.h: the public interface of libtandem, which runs language models in GGUF files on CPU and
 * GPU together, also those larger than the memory of the GPU.
 *
 * An engine owns a loaded model, its devices and all memory; a session is one timeline of tokens in
 * it. Needs no other header of tandem; C11 and C++17. Tested by tests/runtime/test_library.c,
 * test_library_sessions.c and tests/cli/cli_library.sh; tests/examples/hello.c is a whole program.
 *
 * Errors: a call that can fail returns a status and fills *e, which may be NULL. Nothing is printed
 * and no environment is read; the process is ended only where the library finds a bug in itself.
 * Options: each struct of options has a call that fills it, tandem_X_defaults(&x, sizeof x). NULL
 * stands for the defaults, and a struct of zeros is valid too. struct_size says how much of a
 * struct the caller knows, so that later versions can add fields; 0 means the fields of version
 * 0.1. Memory: the result in *out belongs to the caller, who frees it by the call that is named; a
 * const pointer that a call returns is borrowed from the engine until tandem_close, unless the call
 * says otherwise. Text is UTF-8; sizes are bytes, times are seconds. Threads: one thread at a time
 * uses an engine with its sessions; engines know nothing of each other. Calls that take a const
 * engine, and tandem_cancel, may be made by any thread at any time before tandem_close. Callbacks
 * run in the thread that made the call (the log's may run in any thread), and they may only make
 * the calls that any thread may make. A thread that makes calls needs 1 MiB of stack; on macOS
 * threads other than the first have half of that unless they ask for more.
 */
#ifndef TANDEM_RUNTIME_TANDEM_H
#define TANDEM_RUNTIME_TANDEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TANDEM_VERSION_MAJOR 0
#define TANDEM_VERSION_MINOR 1
#define TANDEM_VERSION_PATCH 0
#define TANDEM_VERSION       "0.1.0"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default) // the library is built with all else hidden

// The version of the library that runs, "0.1.0". Programs keep working with later libraries of the
// same major number.
const char *tandem_version(void);

// ---- Errors -------------------------------------------------------------------------------------

enum tandem_status {
    TANDEM_OK = 0,
    TANDEM_ERR_USAGE,       // a wrong argument or option
    TANDEM_ERR_FILE,        // the operating system refused a file
    TANDEM_ERR_FORMAT,      // a file says something impossible
    TANDEM_ERR_UNSUPPORTED, // a valid file that needs a feature which this library lacks
    TANDEM_ERR_MEMORY,    // memory was refused, or the model does not fit: fix says what would fit
    TANDEM_ERR_DEVICE,    // a device failed or did not answer: the engine can only be closed
    TANDEM_ERR_LIMIT,     // the context or another stated limit is full
    TANDEM_ERR_CANCELLED, // tandem_cancel, or a callback returned false
};

struct tandem_error {
    enum tandem_status status;
    char what[320];     // the thing and what is wrong with it
    char expected[160]; // empty where it does not apply
    char actual[160];   // what came instead; empty where it does not apply
    char fix[240]; // the way out, with the option names of the program tandem: -c is n_ctx, -ngl is
                   // gpu_layers; empty if none is known
};

// "what: expected X, got Y (fix)" in one line, cut to size_bytes with its terminator. Returns out.
const char *tandem_error_text(const struct tandem_error *e, char *out, size_t size_bytes);
const char *tandem_status_name(enum tandem_status status); // "ok", "file", "memory", ...

// Frees an array or a text that belongs to the caller. NULL is allowed.
void tandem_free(void *memory);

// ---- Opening a model ----------------------------------------------------------------------------

enum tandem_log_level {
    TANDEM_LOG_NOTE = 1, // a fact worth knowing; nothing is wrong
    TANDEM_LOG_WARN,     // something is wrong, but work goes on
    TANDEM_LOG_INFO,
    TANDEM_LOG_DEBUG,
};
// Gets one line without its end.
typedef void (*tandem_log_fn)(void *context, enum tandem_log_level level, const char *line);

// Called during work that takes long: what is "load" (bytes), "prefill" (tokens of a prompt) or
// "calibrate" (milliseconds), and with "reserve" (bytes) before memory for a model is taken.
// Returning false stops it with TANDEM_ERR_CANCELLED.
typedef bool (*tandem_progress_fn)(void *context, const char *what, uint64_t done, uint64_t total);

enum tandem_layers {
    TANDEM_LAYERS_AUTO = 0,
    TANDEM_LAYERS_NONE = -1,
    TANDEM_LAYERS_ALL = INT32_MAX
};
enum tandem_kv_type {
    TANDEM_KV_F16,
    TANDEM_KV_F32,
    TANDEM_KV_Q8_0,
    TANDEM_KV_AUTO, // F16 or Q8_0, as the planner sees fit
    TANDEM_KV_Q4_0,
};

// 0 or NULL in any field asks for the value in brackets in its comment.
struct tandem_engine_options {
    size_t struct_size;
    const char *device;    // accelerator, "KIND" or "KIND:SPEC", or "none" [the first that opens]
    int32_t n_ctx;         // positions of a session [the model's, at most 4096]
    int32_t n_ubatch;      // tokens that run through the model at once [the fastest number]
    int32_t n_sessions;    // sessions that can be open at once [1]
    int32_t max_logits;    // rows of logits of one tandem_eval_batch [1]
    int32_t gpu_layers;    // last layers that must be on the accelerator, where there is one, the
                           // output as one more, or
                           // enum tandem_layers [the fastest placement]
    const char *strategy;  // as --strategy of tandem: "cpu", "layers", "streamed", ... ["auto"]
    const char *overrides; // "PATTERN=CPU,PATTERN=GPU": tensors that must be on that device [none]
    const char *plan_path; // plan file of `tandem plan --save` to follow [none]
    uint64_t vram_bytes;   // most memory of the accelerator to use [all that is free]
    uint64_t ram_bytes;    // most main memory to use [all that is free]
    enum tandem_kv_type kv_type_k, kv_type_v; // of the KV cache; if one is AUTO, both become F16 or
                                              // both Q8_0, whichever is faster [F16]
    int32_t n_prompt, n_gen; // tokens of the prompt and the answer for which the placement is
                             // optimised [512, 128, at any depth up to half of the context]
    int32_t n_threads; // for one token at a time [one per performance core, or as many as help]
    int32_t n_threads_batch; // for prompts [one per performance core, or n_threads]
    bool no_bind;            // threads are not bound to processors
    bool strict;    // memory that the accelerator refuses although it was free is an error; else a
                    // plan for less is made, with a line in the log
    bool calibrate; // measure this computer first if cache_path has no rates of it (8 to 15 s)
    const char *cache_path; // folder that keeps measured rates [none are read or kept]
    double wait_limit_s;    // longest wait for an accelerator [600]
    tandem_log_fn log;      // may be called until tandem_close [lines are dropped]
    void *log_context;
    enum tandem_log_level log_level; // the last level that is logged [TANDEM_LOG_WARN]
    tandem_progress_fn progress;     // may be called until tandem_close [progress is not reported]
    void *progress_context;
    const char *chat_template; // built-in one by name, file, or text in Jinja [the model's own]
    const char *chat_kwargs;   // JSON object of variables for it: {"enable_thinking": false} [none]
    bool full_windows;       // layers with a sliding window keep all positions, so that no cut of a
                             // session is computed again for them [a window and a micro-batch]
    const char *draft_model; // path of a smaller model with the same tokens. It guesses tokens, of
                             // which those that are right come faster; on CPUs the answers stay
                             // the same. The limits hold for both models together [none]
    int32_t draft_gpu_layers; // gpu_layers of the draft model [what fits on the accelerator, or
                              // nothing, whichever makes both together faster]
    int32_t draft_max; // most tokens that are guessed at once, each of which takes memory for a row
                       // of logits. Without a draft model they are guessed from what stands before
                       // them: for answers that repeat long parts [16 with a draft model, else 0]
};
void tandem_engine_defaults(struct tandem_engine_options *options, size_t struct_size);

struct tandem_engine;
struct tandem_session;

// Reads the model (a GGUF file, or part 1 of a split one), places it and loads it. On failure *out
// is NULL: TANDEM_ERR_FILE, _FORMAT or _UNSUPPORTED for the file, _UNSUPPORTED too if
// options.device names a kind without its driver, _MEMORY if it does not fit, _DEVICE, _USAGE for
// options, _CANCELLED by the progress call. Nothing is allocated on devices after this.
enum tandem_status tandem_open(struct tandem_engine **out, const char *model_path,
                               const struct tandem_engine_options *options, struct tandem_error *e);
// Frees the engine and its sessions. NULL is allowed.
void tandem_close(struct tandem_engine *engine);

// Stops the running tandem_eval, tandem_eval_batch or tandem_generate: in an answer between two
// tokens; in a prompt after a micro-batch at the latest, and within about a quarter of a second if
// the CPU computes. Does nothing if none runs.
void tandem_cancel(struct tandem_engine *engine);

struct tandem_model { // later versions may add fields at the end
    const char *name, *architecture;
    int32_t n_vocab;     // columns of the logits; columns beyond the last token are -inf
    int32_t n_tokens;    // tokens of the vocabulary
    int32_t n_ctx;       // positions of a session
    int32_t n_ctx_train; // positions that the model was trained with
    int32_t bos, eos;    // tokens that begin and end a text; -1: none
    bool adds_bos;       // texts begin with bos
    bool has_chat;       // the file has a chat template that works, or options name one
    uint64_t weights_bytes;
};
const struct tandem_model *tandem_engine_model(const struct tandem_engine *engine);

// ---- Where a model goes -------------------------------------------------------------------------

struct tandem_device {
    char name[96], kind[16]; // kind: "cpu", or a kind that options.device takes
    uint64_t capacity_bytes; // its memory
    uint64_t free_bytes;     // memory that may be used now
    uint64_t reserved[4];    // 0
};
// The devices [*n] that an engine would use with these options, the CPU first. Freed by
// tandem_free. TANDEM_ERR_USAGE if options.device names an unknown kind, TANDEM_ERR_UNSUPPORTED if
// its driver is missing, TANDEM_ERR_DEVICE.
enum tandem_status tandem_devices(struct tandem_device **out, size_t *n,
                                  const struct tandem_engine_options *options,
                                  struct tandem_error *e);

struct tandem_plan_device {
    char name[96], kind[16];
    uint64_t weights_bytes, kv_bytes, scratch_bytes, staging_bytes;
    uint64_t budget_bytes; // most that may be used
    uint64_t reserved[4];  // 0
};
struct tandem_plan_layer { // devices are indices of tandem_plan.devices
    int16_t attention_device, ffn_device, experts_device; // -1: the layer has none
    uint8_t attention_cpu_percent, ffn_cpu_percent;       // share of its rows on the CPU
    bool attention_streamed, ffn_streamed; // in prompts the accelerator computes the CPU's rows
                                           // too, from fetched weights
    uint8_t experts_cpu_percent;           // share of the experts on the CPU
    bool experts_streamed;                 // as above
    uint8_t reserved[4];                   // 0
};
struct tandem_plan { // later versions may add fields at the end
    const char *model, *architecture;
    bool can_run;  // false: models of this architecture can only be planned
    bool measured; // predicted by rates measured on this computer, else by those of the nearest
                   // known computer
    int32_t n_ctx, n_ubatch, n_prompt, n_gen; // as chosen; predicted for n_prompt and n_gen
    double prompt_tokens_per_s;               // 0 if the computer's speed is unknown
    double decode_tokens_per_s;               // mean over n_gen tokens after the prompt
    double first_token_s;                     // from the start of the prompt to the first new token
    size_t n_devices, n_layers;
    const struct tandem_plan_device *devices; // [n_devices], the CPU first
    const struct tandem_plan_layer *layers;   // [n_layers]
    const char *text;                         // the plan as text for people, many lines
};
// Plans where the model would go with these options, beside their draft model, from the headers of
// the files alone: nothing is loaded or measured. Freed by tandem_plan_free; on failure *out is
// NULL: TANDEM_ERR_MEMORY if the model would not fit, else the errors of tandem_open.
enum tandem_status tandem_plan_model(struct tandem_plan **out, const char *model_path,
                                     const struct tandem_engine_options *options,
                                     struct tandem_error *e);
void tandem_plan_free(struct tandem_plan *plan); // NULL is allowed
// The plan by which the engine's model is placed.
const struct tandem_plan *tandem_engine_plan(const struct tandem_engine *engine);

// ---- Text and tokens ----------------------------------------------------------------------------

struct tandem_tokens { // ids: freed by tandem_free; NULL after a failure
    int32_t *ids;
    size_t count;
};
struct tandem_text { // bytes: freed by tandem_free, with a 0 behind them; NULL after a failure
    char *bytes;
    size_t length;
};

enum {
    TANDEM_ADD_SPECIAL = 1,   // adds the tokens that begin and end a text, if the model wants them
    TANDEM_PARSE_SPECIAL = 2, // names of control tokens in the text become tokens, else plain text
    TANDEM_SHOW_SPECIAL = 4,  // control tokens become their names, else nothing
};
// Turns text[length], which may hold any bytes, into tokens. flags: ADD_SPECIAL, PARSE_SPECIAL. It
// fails where the model has no token for a character or a byte, as many have none for 0xff.
enum tandem_status tandem_tokenize(const struct tandem_engine *engine, const char *text,
                                   size_t length, unsigned flags, struct tandem_tokens *out,
                                   struct tandem_error *e);
// Turns tokens into text; bytes that are no UTF-8 become U+FFFD. flags: SHOW_SPECIAL.
enum tandem_status tandem_detokenize(const struct tandem_engine *engine, const int32_t *ids,
                                     size_t n, unsigned flags, struct tandem_text *out,
                                     struct tandem_error *e);
// True if the token ends a text or a turn.
bool tandem_is_end(const struct tandem_engine *engine, int32_t token);

enum tandem_role { TANDEM_SYSTEM, TANDEM_USER, TANDEM_ASSISTANT };
struct tandem_message {
    enum tandem_role role;
    const char *text; // names of control tokens in it stay plain text
};
enum tandem_chat {
    TANDEM_CHAT_REPLY, // a whole conversation, and the head of the model's reply
    TANDEM_CHAT_NEXT,  // the continuation of a session that ends with a reply: the reply's end,
                       // messages, a new head
    TANDEM_CHAT_WHOLE, // a whole conversation without a reply
};
// Writes messages[n] in the model's chat format: as tokens for a session, or as text for people.
// TANDEM_ERR_FORMAT where the template refuses the messages, TANDEM_ERR_UNSUPPORTED without a
// template that works, and for TANDEM_CHAT_NEXT if the template does not show where a reply ends.
// Errors count messages from 1.
enum tandem_status tandem_chat_tokens(const struct tandem_engine *engine,
                                      const struct tandem_message *messages, size_t n,
                                      enum tandem_chat part, struct tandem_tokens *out,
                                      struct tandem_error *e);
enum tandem_status tandem_chat_text(const struct tandem_engine *engine,
                                    const struct tandem_message *messages, size_t n,
                                    enum tandem_chat part, struct tandem_text *out,
                                    struct tandem_error *e);

struct tandem_conversation { // NULL in any field: none
    size_t struct_size;
    const char *messages; // JSON list as OpenAI's API takes it: role, content (a text, or a list of
                          // text parts), reasoning_content, tool_calls, tool_call_id
    const char *tools;    // JSON list of {"type": "function", "function": {...}}
    enum tandem_chat part;
};
// Writes a conversation with tools in the model's chat format, as tokens for a session. Errors as
// above; TANDEM_ERR_FORMAT for what is no such list, TANDEM_ERR_UNSUPPORTED where the model's
// template leaves tools out.
enum tandem_status tandem_conversation_tokens(const struct tandem_engine *engine,
                                              const struct tandem_conversation *conversation,
                                              struct tandem_tokens *out, struct tandem_error *e);

// ---- Sessions -----------------------------------------------------------------------------------

// TANDEM_ERR_LIMIT if n_sessions are open.
enum tandem_status tandem_session_new(struct tandem_session **out, struct tandem_engine *engine,
                                      struct tandem_error *e);
// Opens a session that is a copy of source: the same tokens, the same logits for what follows. It
// takes about as long as copying its part of the KV cache. TANDEM_ERR_LIMIT if n_sessions are open,
// TANDEM_ERR_DEVICE; source stays as it is.
enum tandem_status tandem_session_fork(struct tandem_session **out,
                                       const struct tandem_session *source, struct tandem_error *e);
// Writes the session to a file, which replaces another at path when it is whole: its tokens, and
// what the KV cache holds of them. The token that an answer drew when the context was full is left
// out. TANDEM_ERR_FILE, TANDEM_ERR_USAGE (no path), TANDEM_ERR_MEMORY, TANDEM_ERR_DEVICE.
enum tandem_status tandem_session_save(const struct tandem_session *session, const char *path,
                                       struct tandem_error *e);
// Replaces the tokens of the session by those of a saved one, on the same model with the same types
// of the KV cache; all other options may be different. They are not computed again. There are no
// logits before the next call. TANDEM_ERR_FILE, TANDEM_ERR_FORMAT, TANDEM_ERR_UNSUPPORTED,
// TANDEM_ERR_USAGE (no path, another model or cache) and TANDEM_ERR_LIMIT (a longer context) leave
// the session unchanged; after TANDEM_ERR_DEVICE it is empty.
enum tandem_status tandem_session_load(struct tandem_session *session, const char *path,
                                       struct tandem_error *e);
void tandem_session_free(struct tandem_session *session); // NULL is allowed
// The tokens of the timeline, borrowed until the session changes; *n (not NULL) gets their number.
const int32_t *tandem_session_tokens(const struct tandem_session *session, size_t *n);
// Forgets every token from position length on; 0 empties the session. A shorter session stays
// unchanged. A model with recurrent states (qwen35, qwen35moe) or sliding windows (gemma3, gpt-oss)
// may then compute tokens before length again in the next call, since a state cannot be cut back,
// and keys behind a window are gone.
void tandem_session_truncate(struct tandem_session *session, size_t length);

// Adds tokens[n] to the session and computes the logits after the last one. A failure leaves the
// session unchanged: TANDEM_ERR_LIMIT if the tokens do not fit or one is no token of the model,
// TANDEM_ERR_CANCELLED, TANDEM_ERR_DEVICE.
enum tandem_status tandem_eval(struct tandem_session *session, const int32_t *tokens, size_t n,
                               struct tandem_error *e);
struct tandem_item { // the next token of a session
    struct tandem_session *session;
    int32_t token;
    bool want_logits;
};
// Does the same for several sessions at once, whose items may be mixed: one token for each of
// several sessions takes hardly longer than for one. TANDEM_ERR_LIMIT also if more than max_logits
// are wanted; a failure leaves every session as it was.
enum tandem_status tandem_eval_batch(struct tandem_engine *engine, const struct tandem_item *items,
                                     size_t n, struct tandem_error *e);
// Returns the [n_vocab] logits of the i-th item with want_logits of the last of the two calls above
// (i is 0 after tandem_eval), valid until the next one; NULL if there is no such item.
const float *tandem_logits(struct tandem_engine *engine, size_t i);

// ---- Generation ---------------------------------------------------------------------------------

struct tandem_logit_bias {
    int32_t token;
    float bias; // added to its logit; -INFINITY: it is never drawn
};

struct tandem_sampling { // zeros draw the likeliest token always. Defaults in brackets
    size_t struct_size;
    float temp;            // temperature; 0 or less: the likeliest token [0.8]
    int32_t top_k;         // draw from the K likeliest; 0: from all [40]
    float top_p;           // draw from the likeliest whose probabilities add up to P; 0: off [0.95]
    float min_p;           // drop tokens less likely than P times the likeliest; 0: off [0.05]
    float repeat_penalty;  // make recent tokens less likely; 0 or 1: off [1]
    int32_t repeat_last_n; // tokens that are recent; 0: off, -1: all of the session [64]
    int64_t seed;          // of the random numbers; -1: a new one each time [-1]
    float frequency_penalty; // taken from the logit for each time that a token is recent [0]
    float presence_penalty;  // taken once from the logit of a recent token [0]
    float typical_p;   // draw from the tokens of the most usual surprise whose probabilities add
                       // up to P; 0: off [0]
    float top_n_sigma; // drop tokens N standard deviations below the best logit; 0: off [0]
    float xtc_probability; // with this probability drop all tokens above the threshold but the
                           // least likely; 0: off [0]
    float xtc_threshold;   // 0: 0.1; above 0.5: off [0.1]
    float dynatemp_range;  // temperatures from temp - range to temp + range by entropy; 0: off [0]
    float dynatemp_exponent;    // 0: 1 [1]
    float dry_multiplier;       // of the penalty for tokens that continue a repetition; 0: off [0]
    float dry_base;             // the penalty's base, 1 or more; 0: 1.75 [1.75]
    int32_t dry_allowed_length; // tokens that may be repeated; 0: 2 [2]
    int32_t dry_last_n;         // tokens that are looked at; 0: 64, -1: all of the session [64]
    const char *const *dry_breakers; // [n_dry_breakers] texts that repetitions do not reach across;
                                     // NULL: a newline, a colon, a quotation mark, an asterisk
    size_t n_dry_breakers;
    int32_t mirostat;   // 1 or 2: aim at a constant surprise by this version of Mirostat, in place
                        // of all steps but the temperature; 0: off [0]
    float mirostat_tau; // the surprise in bits; 0: 5 [5]
    float mirostat_eta; // learning rate; 0: 0.1 [0.1]
    const struct tandem_logit_bias *logit_bias; // [n_logit_bias], before all other steps
    size_t n_logit_bias;
    const char *samplers; // the steps in their order, as --samplers of tandem; NULL:
                          // "penalties;dry;top_n_sigma;top_k;typ_p;top_p;min_p;xtc;temperature"
};
void tandem_sampling_defaults(struct tandem_sampling *sampling, size_t struct_size);

// Receives text[length] while it is generated, in whole characters and without any part of a stop
// string; it is not terminated. Returning false ends the answer there.
typedef bool (*tandem_text_fn)(void *context, const char *text, size_t length);

enum tandem_part {
    TANDEM_PART_THOUGHT,
    TANDEM_PART_ANSWER,
    TANDEM_PART_CALL,      // the whole name of a tool: a call begins
    TANDEM_PART_ARGUMENTS, // a piece of the call's arguments: JSON, unless the reply is cut off
};
// Receives a piece of a reply while it is generated, never empty. Returning false ends the reply.
typedef bool (*tandem_part_fn)(void *context, enum tandem_part part, const char *text,
                               size_t length);

struct tandem_generate_options { // zeros are the defaults
    size_t struct_size;
    int32_t max_tokens;      // 0: until the text ends or the context is full
    bool ignore_end;         // never end the text: no token that does is drawn
    bool plain_prompt;       // names of control tokens in the prompt stay plain text
    const char *const *stop; // [n_stop] texts, or names of control tokens; the answer ends before
                             // the first of them
    size_t n_stop;
    const struct tandem_sampling *sampling; // NULL: its defaults
    tandem_text_fn on_text;                 // may be NULL
    void *context;                          // of on_text
    const char *grammar;     // GBNF, as llama.cpp reads it: the answer obeys it; NULL: none
    const char *json_schema; // the answer is JSON that this schema describes; NULL: none
    bool reply; // the prompt is a conversation: a grammar or a schema holds behind what the model
                // thinks first
    const char *tools; // JSON list, as of tandem_conversation: the model may call these, and its
                       // calls are valid. Makes it a reply; without grammar and json_schema
    bool must_call;    // with tools: the reply is a call
    tandem_part_fn on_part; // gets the parts of a reply, with context; may be NULL
};
void tandem_generate_defaults(struct tandem_generate_options *options, size_t struct_size);

enum tandem_stop {
    TANDEM_STOP_END,      // the model ended its text
    TANDEM_STOP_LIMIT,    // max_tokens
    TANDEM_STOP_CONTEXT,  // the context is full
    TANDEM_STOP_STRING,   // one of stop came
    TANDEM_STOP_CALLBACK, // on_text returned false
    TANDEM_STOP_CANCELLED // tandem_cancel after the prompt
};
struct tandem_result {
    enum tandem_stop stop;
    int32_t n_prompt, n_tokens; // tokens read and drawn, without the token that ends the text
    double prompt_s, answer_s;  // times for reading the prompt and for all drawn tokens
    int64_t seed;               // the seed that was used
    int64_t n_guessed, n_right; // tokens that drafts guessed, and those of them that were drawn
    uint64_t reserved[6];       // 0
};
// Continues the session: reads the prompt, of at least one token (with the tokens that begin a text
// if the session is empty), and draws tokens, which become part of the session (those of a stop
// text too, but not the token that ends the text). result may be NULL. A failure, or tandem_cancel
// within the prompt (TANDEM_ERR_CANCELLED), leaves the session unchanged.
enum tandem_status tandem_generate(struct tandem_session *session, const char *prompt,
                                   const struct tandem_generate_options *options,
                                   struct tandem_result *result, struct tandem_error *e);
// Does the same with a prompt of tokens.
enum tandem_status tandem_generate_tokens(struct tandem_session *session, const int32_t *tokens,
                                          size_t n, const struct tandem_generate_options *options,
                                          struct tandem_result *result, struct tandem_error *e);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif

/* request.h: the request for a plan: the workload, the strategy, limits and named devices.
 *
 * Plain values without pointers, filled by the caller. Must not know devices beyond their number.
 * Any thread. Included through planner/planner.h. Tested by tests/planner/test_planner.c.
 */
#ifndef TANDEM_PLANNER_PLAN_REQUEST_H
#define TANDEM_PLANNER_PLAN_REQUEST_H

#include "base/err.h"
#include "kernels/dtypes.h"
#include "planner/plan/placement.h"
#include "planner/shape/shape.h"

#include <stdbool.h>
#include <stdint.h>

enum { MAX_CHOICES = 6 }; // micro-batches that the planner chooses from

// The exponent of models that were not counted. Published counts of different experts: 1.55 times
// those of one token for 2 tokens (Qwen3-30B-A3B), 2.5 to 2.75 times for 4 (Cohere), 72 to 95 of
// 128 for 512 tokens with 4 each (gpt-oss-120b, llama.cpp PR 15346). This one gives 1.49, 2.2 and
// 94; independent choices (1) would give 1.94, 3.6 and 128.
#define EXPERT_EXPONENT 0.6

// The work that the model shall do. 0 means the default in brackets, filled in by
// workload_defaults.
struct workload {
    int32_t n_ctx;                   // positions of one session [the model's, at most 4096]
    int32_t n_ubatch;                // tokens of one micro-batch [the planner's choice]
    int32_t n_sessions;              // timelines at once [1]
    int32_t max_logits;              // rows of logits one call may ask for [1]
    enum dtype kv_type_k, kv_type_v; // of kv_types.def
    int32_t n_prompt, n_gen; // tokens that the time is predicted for [512 to 1024, or a sixteenth
                             // of n_ctx; 128; at most n_ctx]
    int32_t n_past; // that the placement is chosen for: positions in the cache before the prompt
                    // [n_prompt given: 0; else as many as the prompts and answers that fill half of
                    // the context have before them on average]
    // n tokens of a text choose as many different experts as n^expert_exponent tokens that choose
    // independently [EXPERT_EXPONENT]
    double expert_exponent;
    bool full_windows; // layers with a window keep all positions too
    int32_t window;    // set by workload_defaults: the longest of the model's, 0: none
};
int32_t workload_context(const struct workload *w, const struct shape *shape); // n_ctx or default
// Fills in the defaults; n_ubatch 0 stays 0. ERR_USAGE if a value is out of range, naming its
// option, or if a head is no whole number of blocks of a kv type.
enum status workload_defaults(struct workload *w, const struct shape *shape, struct err *e);

// ERR_USAGE if the cache of any unit cannot be of that type.
enum status workload_check_kv(enum dtype type, const struct shape *shape, const char *option,
                              struct err *e);
// The micro-batches that the planner may choose from for this workload: its own if it has one.
int32_t workload_ubatches(const struct workload *w, int32_t out[MAX_CHOICES]);

int32_t workload_pages(const struct workload *w); // pages in the KV pool, all sessions
int32_t workload_pages_per_session(const struct workload *w);
// Pages of one session in layers with a window: a ring that holds the window and a micro-batch, or
// all positions where these are fewer, or where the model has no window.
int32_t workload_ring_pages(const struct workload *w);
// Pages in the cache of one unit, all sessions.
int32_t workload_unit_pages(const struct workload *w, const struct unit *unit);

enum { GPU_LAYERS_AUTO = -1, GPU_LAYERS_ALL = INT32_MAX, CPU_EXPERTS_ALL = INT32_MAX };

// Families of plans that a user or a benchmark may ask for. All but AUTO follow one idea, and give
// the fastest plan of that family that fits.
enum strategy {
    STRATEGY_AUTO,            // the fastest of all
    STRATEGY_CPU,             // everything on the CPU
    STRATEGY_LAYERS,          // the last layers whole on the accelerator, the rest on the CPU
    STRATEGY_ATTENTION_FIRST, // attention on the accelerator, then as much of the last layers as
                              // fits
    STRATEGY_STREAMED,        // in prefill, every unit on the CPU that can be streamed is streamed
    STRATEGY_ROW_SPLIT,       // every dense FFN that is not whole on the accelerator is split, and
                              // attention and experts where it pays
    STRATEGIES
};
const char *
strategy_name(enum strategy strategy); // "auto", "cpu", "layers", "attention-first", ...
bool strategy_parse(const char *name, enum strategy *out);

struct constraints {
    int32_t gpu_layers;  // N layers, counted from the last, the head as one more; GPU_LAYERS_AUTO:
                         // the fastest placement that fits
    uint64_t vram_bytes; // upper limit for the accelerator, 0: its budget
    uint64_t ram_bytes;  // limit for the CPU, 0: its budget
    int32_t cpu_experts; // --cpu-moe, --n-cpu-moe: routed experts of the first N layers stay on the
                         // CPU; CPU_EXPERTS_ALL
    bool kv_auto;        // the planner may choose Q8_0 for the cache
    bool whole_units;    // no unit is split and nothing is streamed
    // Fixed places of units: with has_units the devices of place.units override everything above,
    // with DEVICE_ANY for units without constraint; with has_placement all of place is given, with
    // a device for every unit, and the planner chooses only the micro-batch. place.feed always
    // restricts streaming; FEED_NONE leaves the feed to the planner.
    bool has_units, has_placement;
    struct placement place;
    enum strategy strategy;
};

#endif

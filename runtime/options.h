/* options.h: how a model is to be opened: plain values that every room of the runtime may read.
 *
 * A struct engine_options owns nothing: what it points to is borrowed as each field says. The code
 * that opens an engine, plans or measures fills it; must not include a room of runtime/. Any
 * thread. Tested by tests/runtime/test_engine.c.
 */
#ifndef TANDEM_RUNTIME_OPTIONS_H
#define TANDEM_RUNTIME_OPTIONS_H

#include "base/log.h"
#include "base/progress.h"
#include "kernels/cpu/device/cpu_device.h"
#include "planner/planner.h"

#include <stdbool.h>
#include <stdint.h>

#define N_CTX_OF_MODEL INT32_MAX // of workload.n_ctx: as long as the model was trained for
#define BUDGET_NONE    1         // of budget_bytes: nothing is left

struct engine_options {
    const char *model_path;
    const char
        *device_spec; // "kind:spec" of the accelerator to use, or NULL: the first driver that opens
    const struct device_driver *drivers; // borrowed during engine_open; NULL if there are none
    int32_t n_drivers;
    struct cpu_options cpu;
    struct workload
        workload; // context, micro-batch, sessions, logits rows, KV types; 0s mean defaults
    struct constraints constraints;     // layers on the accelerator, memory limits
    uint64_t budget_bytes[MAX_DEVICES]; // that a draft model leaves of each device, as limits of
                                        // constraints do too. 0: all, as there is none
    const char *tensor_overrides;       // "PATTERN=DEVICE,...", added to constraints; may be NULL
    const char *plan_path;  // a plan file to replay: replaces workload and all of constraints
                            // but the memory limits; may be NULL
    const char *cache_path; // folder in which calibrations are kept; NULL: none is read or written
    bool no_counting;       // experts are planned as texts chose them, but these tokens are no text
    bool calibrate;         // measure first if no calibration is kept, but for plans of which the
                            // options decide all (plan_path, -ngl)
    uint64_t calibrate_limit_ns; // time for that, 0: as calibrate.h says
    // Filled by devices_open with a machine that was measured and cannot be kept in cache_path, and
    // used by later calls that find it: rates RATES_NONE at first; borrowed, may be NULL.
    struct machine *measured;
    // The text that will be read and written, as far as it is known: the plan is made for it, as
    // far as it fits in the context, where workload does not say other lengths. engine_open counts
    // the tokens of prompt as if marks in it were read.
    const char *prompt; // [prompt_bytes], borrowed during engine_open; NULL: not known
    size_t prompt_bytes;
    int32_t prompt_tokens, new_tokens; // 0: not known
    bool cpu_cache;                    // the KV cache stays on the CPU, and with it the attention
    bool allow_paging;     // weights that do not fit in RAM are read from the disk in each pass
    bool lock_memory;      // the CPU's weights are locked in RAM, as far as the system allows it
    bool strict;           // memory that an accelerator refuses is an error, not a new plan
    int32_t trace_spans;   // steps whose times are kept (trace.h), 0: none
    double wait_limit_s;   // longest wait for an accelerator, 0: the devices' default
    const struct log *log; // borrowed until engine_close; may be NULL
    // Told while measuring ("calibrate", in milliseconds), before memory is taken ("reserve", in
    // bytes), loading ("load", in bytes) and between micro-batches ("prefill", in tokens).
    struct progress progress;
};

#endif

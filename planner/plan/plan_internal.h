/* plan_internal.h: what the planner's files share and nobody else sees.
 *
 * From the ground up: cost.c says what a unit takes on a device, predict.c which passes stand for
 * the workload, pricing.c adds both up for a placement, knapsack.c proposes placements, search.c
 * takes the best that fits. Same rules as planner.h. Tested by tests/planner/test_planner.c and
 * tests/planner/test_solver.c.
 */
#ifndef TANDEM_PLANNER_PLAN_PLAN_INTERNAL_H
#define TANDEM_PLANNER_PLAN_PLAN_INTERNAL_H

#include "planner/planner.h"

enum { HOST = 0, GPU = 1 };

// ---- Steps and bytes ----------------------------------------------------------------------------

// Fills plan->steps from plan->unit_device and plan->tables.
void plan_schedule(struct plan *plan, const struct shape *shape);
// Fills every byte count of the plan for plan->unit_device and plan->workload.
void plan_count_bytes(struct plan *plan, const struct shape *shape);
// The matrix that makes what is added to the residual stream, in the last phase of a split unit: of
// a dense FFN the one that reads what swiglu made, which the others but vectors make; of attention
// that can be split the one of the output. NULL if there is none.
const struct unit_tensor *footprint_down(const struct unit *unit);
uint64_t plan_device_bytes(const struct plan *plan, int d);
// The limits of a machine, unified memory included, for bytes by device.
bool machine_holds(const struct machine *m, const uint64_t bytes[MAX_DEVICES]);
bool plan_holds(const struct plan *plan, int d); // of its machine

// ---- Cost (cost.c) ------------------------------------------------------------------------------

// The time of a unit by what it is spent on. Reading weights and caches counts as memory up to the
// device's rate of plain reads; what it takes beyond that is computing.
struct cost {
    double memory_us, compute_us, overhead_us;
};
struct cost_place {
    const struct shape *shape;
    const struct machine_device *device;
    const struct workload *w;
    double cached; // share of the weights that come from the device's cache
};
// What of a unit a device computes in one step: a phase of the rows of a split unit that the
// accelerator has (first), of those that the CPU has (last), or of both, in two matmuls each.
// cpu_parts 0: all rows, whatever first and last say.
struct unit_part {
    enum step_phase phase;
    int32_t cpu_parts;
    bool first, last;
};
#define WHOLE_UNIT ((struct unit_part){PHASE_ALL, 0, true, false})
// What a compute step computes.
struct unit_part plan_part(const struct plan *plan, const struct step *step);
struct cost cost_of_part(const struct cost_place *at, const struct unit *unit,
                         struct unit_part part, const struct pass *pass);
struct cost cost_of_unit(const struct cost_place *at, const struct unit *unit,
                         const struct pass *pass);
static inline double cost_sum(struct cost c) { return c.memory_us + c.compute_us + c.overhead_us; }
enum { CACHE_STEPS = 16 };
// The share of a pass's weights that each device finds in its cache when it reads so many, in whole
// CACHE_STEPS.
void cost_cached_shares(const struct machine *m, const uint64_t read_bytes[MAX_DEVICES],
                        double out[MAX_DEVICES]);
// Weights that the pass is expected to read: of routed experts, those that its tokens choose.
double cost_read_bytes(const struct unit *unit, struct unit_part part, const struct pass *pass);
// All weights that passes read again and again: all but the table of the embedding.
uint64_t cost_all_read_bytes(const struct unit *unit);
// One copy between the host and device d.
double cost_copy_us(const struct machine_device *device, double size_bytes, bool to_device,
                    bool pinned);
// One fetch of streamed weights. pinned: what the feed wants to pin may be.
double cost_feed_us(const struct machine_device *device, enum feed feed, double size_bytes,
                    bool pinned);
// One copy of cached keys and values, in two parts, between the host and a slot; 0 for no bytes.
double cost_cache_us(const struct machine_device *device, double size_bytes, bool to_device,
                     bool pinned);
// How often a fetched byte passes through the host's memory: into a pinned block and out again,
// unless it is copied from where it lies.
double cost_feed_passes(enum feed feed);

// ---- Passes that stand for a workload (predict.c) -----------------------------------------------

enum { MAX_SAMPLES = 16 };
// weight passes that take as long as this one on average.
struct sample {
    struct pass pass;
    double weight;
    bool is_prompt;
};
// The time of a pass is piecewise linear in n_past, with a kink where a window is full, so one pass
// in the middle of each piece stands for all of it exactly; nearly, where keys and values begin to
// outgrow a device's cache.
int32_t workload_samples(const struct workload *w, const struct shape *shape,
                         struct sample out[MAX_SAMPLES]);

// Whether nothing follows the pass before its logits are there: it takes total_us, others take
// period_us.
bool sample_waits(const struct sample *sample);

// Walks the steps of one pass (simulate.c). times may be NULL. parts: what compute_us is spent on.
void plan_walk(const struct plan *plan, const struct shape *shape, const struct pass *pass,
               struct step_times *times, struct simulation *out, struct cost parts[MAX_DEVICES]);

// ---- What placements cost (pricing.c) -----------------------------------------------------------

enum { MAX_CHOICES = 6, KIND_MASKS = 1 << UNIT_KINDS, MEMOS = 4096 };

// A placement, the ways of its units and the ring that feeds it: fields as in struct plan.
struct ways {
    int8_t device[MAX_UNITS];
    uint8_t cpu_parts[MAX_UNITS];
    bool streamed[MAX_UNITS];
    enum feed feed;
    int32_t n_slots;
};

// Passes of class prefill, in which units are streamed and micro-batches run ahead, are added up
// apart from the others.
enum pass_group { PASSES_PREFILL, PASSES_OTHER, PASS_GROUPS };

// A unit on each device: bytes with its cache, and time over the whole workload, by micro-batch.
struct unit_price {
    double us[MAX_DEVICES][2][PASS_GROUPS][MAX_CHOICES]; // [device][cached][group][choice]
    double streamed_us[2][MAX_CHOICES];                  // [split][choice], of class prefill
    uint64_t bytes[MAX_DEVICES][MAX_CHOICES], kv_bytes[MAX_DEVICES][MAX_CHOICES];
    uint64_t slot_bytes, fetch_bytes; // if it is not split
    uint64_t kv_row_bytes;            // of one cached position, if it can be streamed
    int32_t twin;                     // the first unit that takes the same, maybe itself
    int32_t split_cols, split_rows;   // of its footprint_down, if it can be split
    bool can_split, can_stream;
};

// One micro-batch size. Arrays by pinned (0: pageable, 1: pinned) are sums over the workload.
struct choice {
    struct workload w;
    int32_t n_samples, n_prefill; // the first n_prefill samples are of class prefill
    struct sample samples[MAX_SAMPLES];
    double n_passes[PASS_GROUPS];
    uint64_t staging_bytes;
    uint64_t scratch_bytes[MAX_DEVICES][KIND_MASKS];
    double to_us[PASS_GROUPS][2], from_us[PASS_GROUPS][2], logits_us[PASS_GROUPS][2];
    double inputs_us[2]; // of one pass
    // What each device takes, and the weights that are read, for the units before index u, one
    // sample after the other: [n_samples, n_units + 1]. Lie in pricing.memory.
    double *before_us[MAX_DEVICES][2]; // by cached
    double *before_bytes;
    double *streamed_us[2]; // likewise, but of unit u, on the accelerator; [split]
    int32_t first_line;     // of the choice's samples in pricing.lines
};

// The time of one phase of a split unit on one device: linear in the device's rows.
struct line {
    double base_us, row_us;
};

// What a split unit takes, from the residual stream at one device to the accelerator, over the
// workload.
struct split_price {
    double us[MAX_DEVICES][PASS_GROUPS][MAX_CHOICES]; // by the device that has the stream before
};
struct memo {
    uint32_t key; // 0: none
    struct split_price price;
};

// Sizes of a split unit's weights: on the devices, and what streaming the CPU's rows takes.
enum split_size { SPLIT_HOST = HOST, SPLIT_GPU = GPU, SPLIT_SLOT, SPLIT_FETCH, SPLIT_SIZES };

// Everything that the time and the bytes of any placement are added up from. Owns memory.
struct pricing {
    const struct shape *shape;
    const struct machine *machine;
    uint64_t own_bytes; // the host's budget as the machine says, for what is pinned
    int32_t n_units, n_choices, n_lines;
    struct choice choices[MAX_CHOICES];
    struct unit_price *units;           // [n_units]
    uint64_t *read_bytes;               // [n_units]
    uint64_t shared_bytes[MAX_DEVICES]; // a head less its table
    double *memory;
    // Of twins only; what attention does in between on the accelerator has no rows to it.
    struct line *lines;    // [n_units, MAX_DEVICES, 2 (cached), 2 (phase), n_lines]
    double *middle_us;     // [n_units, plain and cached, n_lines]
    uint64_t *split_bytes; // [n_units, SPLIT_SIZES, UNIT_PARTS]
    struct memo *memos;    // [MEMOS], of what split units were found to take
};

// A priced placement.
struct price {
    uint64_t bytes[MAX_CHOICES][MAX_DEVICES];
    bool holds[MAX_CHOICES]; // memory, less the blocks of the feed
    bool fits[MAX_CHOICES];  // memory, and what the feed pins
    double us[MAX_CHOICES];
    // Of FEED_ARENA: no ring is faster with any feed. Of a placement that streams nothing: nor is
    // it with any of its units streamed.
    double bound_us[MAX_CHOICES], streamed_us[MAX_CHOICES];
};

// machine, shape: borrowed until pricing_close. own_bytes: as above.
enum status pricing_open(struct pricing *p, const struct shape *shape,
                         const struct machine *machine, uint64_t own_bytes,
                         const struct workload *w, struct err *e);
void pricing_close(struct pricing *p);
// The time is that of plan_predict, to the rounding of sums. limit_us: INFINITY, or choices that do
// not fit or cannot be faster get INFINITY without being added up.
void pricing_of(const struct pricing *p, const struct ways *ways, double limit_us,
                struct price *out);

// The phases of a split unit in one pass, by device.
struct split_us {
    double in[MAX_DEVICES], middle, out[MAX_DEVICES];
    int32_t n_cols[MAX_DEVICES]; // of what swiglu makes, of the queries
    int32_t n_host_rows;         // of footprint_down
    bool attends;                // in the middle phase, on the accelerator
};
void pricing_split(const struct pricing *p, int32_t unit, int32_t parts,
                   const double cached[MAX_DEVICES], int32_t line, struct split_us *out);
static inline uint64_t pricing_split_bytes(const struct pricing *p, int32_t unit,
                                           enum split_size size, int32_t parts) {
    const size_t row = (size_t)p->units[unit].twin * SPLIT_SIZES + (size_t)size;
    return p->split_bytes[row * UNIT_PARTS + (size_t)parts];
}
// Every time is linear in the share of weights that come from a cache.
static inline double pricing_blend(double plain_us, double cached_us, double share) {
    return plain_us + share * (cached_us - plain_us);
}

// ---- Proposing placements (knapsack.c, search.c) ------------------------------------------------

// How a unit is placed: on a device, or split between both.
enum option { OPTION_HOST = HOST, OPTION_GPU = GPU, OPTION_SPLIT, OPTIONS };

// A chain of units, each of which takes one of several options.
struct knapsack {
    int32_t n_units, n_cells;
    double cell_bytes;
    double price_us;              // of one crossing; a split unit has two
    const uint8_t *allowed;       // [n_units], bit o: option o
    const double *bytes[OPTIONS]; // [n_units], on the accelerator
    const double *us[OPTIONS];    // [n_units]
    // What is known to be added to any placement's time by a unit, and by a crossing to a unit that
    // is not split. Decides nothing, but is summed up along the way.
    const double *least_us[OPTIONS]; // [n_units]
    double least_crossing_us;
    const bool *returns;  // [n_units], see knapsack_least_us
    struct label *labels; // room for knapsack_labels(n_cells)
    int32_t n_used;       // cells that may hold placements, of n_cells
    double least_unit_us; // of a label's least time
    uint16_t *came_from;  // [n_units, MAX_DEVICES, n_cells]
};
struct label {
    double us;
    uint64_t rest; // bytes, 32 bits in fixed point, above them 31 of the least time, and RETURNS
};
static inline size_t knapsack_labels(int32_t n_cells) { return 4 * (size_t)n_cells; }
// Finds for each of n_cells ranges of bytes on the accelerator, of which n_used are reached, the
// fastest placement, as far as one placement per range, last device and unit tells.
void knapsack_solve(struct knapsack *k);
// What the placement of a cell below n_used whose last unit is on device last takes at least;
// INFINITY if there is none. *returns: it comes back from the accelerator to a unit of k->returns.
double knapsack_least_us(const struct knapsack *k, int32_t cell, int last, bool *returns);
// That placement.
void knapsack_placement(const struct knapsack *k, int32_t cell, int last, uint8_t option[]);

// What is asked of a search.
struct search_request {
    const struct shape *shape;
    const uint8_t *allowed; // [n_units], bit d: may be on device d
    const struct constraints *constraints;
    uint64_t own_bytes; // as in struct pricing
};
// Finds the fastest placement, ways, micro-batch and KV type that fit, and writes them to plan.
// *found is false if nothing fits.
enum status search_placement(struct plan *plan, const struct search_request *request, bool *found,
                             struct err *e);

// ERR_USAGE if the cache of any unit cannot be of that type.
enum status workload_check_kv(enum dtype type, const struct shape *shape, const char *option,
                              struct err *e);
// The micro-batches that the planner may choose from for this workload: its own if it has one.
int32_t workload_ubatches(const struct workload *w, int32_t out[MAX_CHOICES]);

#endif

/* pricing.h: what a placement takes in bytes and time, from sums over its units.
 *
 * A struct pricing owns its tables until pricing_close; machine and shape are borrowed. One thread
 * at a time. Tested by tests/planner/test_solver.c.
 */
#ifndef TANDEM_PLANNER_SEARCH_PRICING_H
#define TANDEM_PLANNER_SEARCH_PRICING_H

#include "planner/plan/predict.h"
#include "planner/plan/pair.h"

enum { KIND_MASKS = 1 << UNIT_KINDS, MEMOS = 4096 };

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

// One micro-batch size. Times of copies are sums over the workload.
struct choice {
    struct workload w;
    int32_t n_samples, n_prefill; // the first n_prefill samples are of class prefill
    struct sample samples[MAX_SAMPLES];
    double n_passes[PASS_GROUPS];
    uint64_t staging_bytes;
    uint64_t scratch_bytes[MAX_DEVICES][KIND_MASKS];
    double to_us[PASS_GROUPS], from_us[PASS_GROUPS], logits_us[PASS_GROUPS];
    double inputs_us; // of one pass
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
void pricing_of(const struct pricing *p, const struct placement *ways, double limit_us,
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

#endif

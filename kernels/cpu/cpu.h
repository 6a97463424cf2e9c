/* cpu.h: internals of the CPU backend: lanes, and the table of kernels, whose entries the files of
 * an instruction set overwrite.
 *
 * A kernel is called by every lane (thread) of a team at the same moment with the same arguments
 * and does its share. It may meet the others at lane_barrier; the team meets after every op.
 * Kernels allocate nothing and keep nothing. Used only inside kernels/cpu/, by tests and by
 * benches. Tested by tests/kernels/check_ops.c.
 */
#ifndef TANDEM_KERNELS_CPU_CPU_H
#define TANDEM_KERNELS_CPU_CPU_H

#include "base/err.h"
#include "kernels/ops.h"

struct team;          // team.c
struct matmul_kernel; // matmul_work.h

struct lane {
    int32_t index, count; // the number of this thread, and the threads of the team
    struct team *team;
    const void *next_weight; // where the lane's share of the next matmul begins, which this one
                             // prefetches behind its own; NULL: unknown
};

// Waits until the work since the last barrier is done; writes before it are visible after it. Where
// lanes took that work through lane_take, it may be done before all lanes are here, and a late lane
// passes at once. Else all lanes have to be here.
void lane_barrier(const struct lane *lane);
// Memory of a lane of the team, LANE_ROOM_BYTES of it, through which lanes hand on what they
// computed within an op. Any lane may use it; the barrier orders their accesses. Call it with more
// than one lane only.
enum { LANE_ROOM_BYTES = 640 << 10 }; // 17 parts of 16 heads of HEAD_DIM_MAX in attention
void *lane_room(const struct lane *lane, int32_t index);

// The share of n items for this lane, in multiples of grain: first..last-1. The same n and team
// give the same shares.
static inline void lane_share(const struct lane *lane, int64_t n, int64_t grain, int64_t *first,
                              int64_t *last) {
    int64_t groups = (n + grain - 1) / grain;
    int64_t a = groups * lane->index / lane->count * grain,
            b = groups * (lane->index + 1) / lane->count * grain;
    *first = a < n ? a : n;
    *last = b < n ? b : n;
}

// The number of the lane that does an item of that cost, which begins at place in a sequence of
// items of any costs whose sum is total: the lane in whose equal share of the total the item's
// middle lies. So a lane's work begins and ends at most half an item beside that share.
static inline int32_t lane_of_item(const struct lane *lane, int64_t place, int64_t cost,
                                   int64_t total) {
    return (int32_t)((2 * place + cost) * lane->count / (2 * total));
}

// The next portion of a share of so many items, of which left are left. Its own lane takes a part
// that is soon done, however slow the lane is; another of count lanes, whose own share is done, a
// third of what each would get of the rest. In multiples of grain.
enum { PORTIONS = 24 }; // of a lane's own share
static inline int64_t lane_portion(int64_t share, int64_t left, int32_t count, bool own,
                                   int64_t grain) {
    int64_t n = (own ? share / PORTIONS : left / (3 * (int64_t)count)) / grain * grain;
    if (n == 0) n = grain;
    return n < left ? n : left;
}

// Takes the next portion of n items that no lane has taken yet: range[0]..range[1]-1. A lane gets
// its own share first, portion after portion, so that it reads memory in sequence, and then of the
// shares that others have not done: ranges increase, but for this change of shares. grain: items
// that are worth the lanes' meeting over them, which takes a part of a microsecond; of few grains
// each lane gets its share at once. Returns false if nothing is left. range begins as zeros and a
// call says that the portion before is computed. All lanes share out the same n items, once
// between two barriers, and do nothing else there: a lane may come so late that the work is done
// and its operands serve others, so it reads and writes them only while it has a portion. Which
// lane gets which is up to chance; no result may depend on it.
bool lane_take(const struct lane *lane, int64_t n, int64_t grain, int64_t range[2]);

// The share of n items that lane_take gives this lane first: share[0]..share[1]-1.
void lane_first_share(const struct lane *lane, int64_t n, int64_t grain, int64_t share[2]);

// Makes the next barrier wait for all lanes, though they took their work: for an op that reads
// operands without a portion. All lanes call it.
void lane_need_all(const struct lane *lane);

struct cpu_table {
#define OP(name, ...)   void (*name)(const struct lane *, const struct name##_args *);
#define OP_W(name, ...) void (*name[WEIGHT_COUNT])(const struct lane *, const struct name##_args *);
#include "kernels/ops.def"
#undef OP
#undef OP_W
    const struct matmul_kernel *matmul_kernel[WEIGHT_COUNT]; // of both matmuls; NULL: see ref.c
    enum kv_order kv_order;             // in which attention reads a cache fastest
    char matmul_path[WEIGHT_COUNT][24]; // what was chosen for each weight type, for `tandem
                                        // devices`: "avx2", "ref"
};

// Fills every entry with the plain C definitions of ref.c, ref_route.c and ref_state.c.
void cpu_table_ref(struct cpu_table *table);
// The definition of route (ref_route.c). All lanes call it and meet once if there is more than one
// token.
void cpu_route(const struct lane *lane, const struct route_args *args);
// The definitions of the ops with a state (ref_state.c).
void cpu_short_conv(const struct lane *lane, const struct short_conv_args *args);
void cpu_delta_rule(const struct lane *lane, const struct delta_rule_args *args);
void cpu_mamba_scan(const struct lane *lane, const struct mamba_scan_args *args);

// Converts one row of n elements of a weight type to floats; this defines each block format. n is a
// multiple of the block's elements.
void dequantize_row(enum weight_type type, const void *row, float *out, int64_t n);
// The 16 values that the nibbles of IQ4_NL and IQ4_XS stand for, in order.
extern const float UNEVEN[16];
// Converts half precision by value, to nearest even; NaN and infinities stay.
float half_to_float(uint16_t half);
uint16_t float_to_half(float value);

// Teams: threads, each bound to a core if bind is true and no more than the processors that the
// process may use. n_threads 0: one for each performance core that it may use, fewer under a
// processor quota. A team serves one thread at a time. ERR_USAGE, ERR_MEMORY, ERR_DEVICE if the
// system refuses threads.
typedef void (*team_fn)(const struct lane *lane, void *context);
enum status team_open(struct team **out, int32_t n_threads, bool bind, struct err *e);
// Runs fn on all lanes; the caller is lane 0. Returns when all are done, and with the caller's own
// affinity restored.
void team_run(struct team *team, team_fn fn, void *context);
// Sets the lanes of the next runs, 1 to n_threads; the other threads sleep on.
void team_use(struct team *team, int32_t n_lanes);
int32_t team_size(const struct team *team); // lanes of the next run
// Fills out with a line for people about the cores of this machine and which of them the threads
// take; with nothing where all cores are alike.
void team_describe(const struct team *team, char *out, size_t size_chars);
// The number of threads that n_threads 0 stands for on this machine.
enum status team_default_size(int32_t *out, struct err *e);
void team_close(struct team *team); // NULL is allowed

#endif

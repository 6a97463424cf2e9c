/* team.c: threads that walk through the same work together; declared in cpu.h.
 *
 * The threads are OpenMP's, so that they share its pool with any other user in the process; the
 * barrier is our own, because lanes meet after every op and an OpenMP barrier cannot be called from
 * a function that is not inlined into the region. The OpenMP region always has the same size,
 * because a change of size makes libgomp end and create threads; threads that are not in use only
 * pass through. Tested by tests/kernels/test_device.c.
 */
#include "kernels/cpu/cpu.h"

#include "base/affinity.h"
#include "base/clock.h"
#include "base/host.h"
#include "base/mem.h"
#include "kernels/cpu/cores.h"

#include <omp.h>
#include <sched.h>
#include <stdatomic.h>

enum {
    LINE = 64,              // bytes of a cache line
    SPIN_NS_MAX = 50000,    // how long a lane waits before it offers its processor to others
    SPIN_NS_MIN = 500,      // the same after such waits were in vain
    SPIN_NS_BOUND = 200000, // the same of a lane with a processor of its own, always
    PAUSES_A_LOOK = 8,      // pauses between two looks at the clock
    LANES_MAX = 1024,
    FEW_GRAINS = 4, // of work for each lane: too little to be worth meeting over it
};

// A lane's own state.
struct own {
    uint64_t spin_ns; // how long it waits before it yields; 0: not at all
    int64_t n_items;  // that lane_take shares out in this phase; 0: none
    uint32_t phase;   // barriers that the lane has passed
    char pad[LINE - 2 * sizeof(uint64_t) - sizeof(uint32_t)];
};

// A count of one phase, so that nobody has to reset it: the phase in the upper half, the count in
// the lower.
typedef atomic_ullong phase_count;

// Everything that a worker touches is reached through this struct. The two counters of a run order
// memory as OpenMP does, in a form that race detectors understand.
struct team {
    team_fn fn; // of the run in progress
    void *context;
    int32_t n_threads; // of the OpenMP region
    int32_t n_lanes;   // threads that work in the next run
    int32_t *cpus;     // [n_threads], owned: the processor of each lane; NULL: nothing is bound
    struct own *own;   // [n_threads], owned
    char *rooms;       // [n_threads, LANE_ROOM_BYTES], owned; NULL with one thread
    char pad0[LINE];
    atomic_uint begun; // runs so far
    atomic_int ended;  // threads that have left this run
    char pad1[LINE];
    phase_count arrived; // lanes at the barrier
    char pad2[LINE];
    atomic_uint phase;    // the latest; a phase ends with a barrier
    uint32_t first_phase; // of this run
    char pad3[LINE];
    phase_count taken; // items that lanes took
    char pad4[LINE];
    phase_count done; // items of those that are computed
    char pad5[LINE];
};

static inline void pause_a_little(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static uint64_t count_in(uint32_t phase, uint64_t count) { return (uint64_t)phase << 32 | count; }

static bool is_later(uint32_t phase, uint32_t than) { return (int32_t)(phase - than) > 0; }

// The count in a phase: 0 if it is still one of an earlier phase.
static uint64_t count_of(uint64_t value, uint32_t phase) {
    return (uint32_t)(value >> 32) == phase ? (uint32_t)value : 0;
}

// Adds to the count of a phase that cannot have ended. Returns the sum.
static uint64_t add_to(phase_count *counter, uint32_t phase, uint64_t n) {
    unsigned long long old = atomic_load_explicit(counter, memory_order_relaxed);
    uint64_t sum;
    do sum = count_of(old, phase) + n;
    while (!atomic_compare_exchange_weak_explicit(counter, &old, count_in(phase, sum),
                                                  memory_order_acq_rel, memory_order_relaxed));
    return sum;
}

static void end_phase(struct team *team, uint32_t phase) {
    (void)atomic_compare_exchange_strong_explicit(&team->phase, &phase, phase + 1,
                                                  memory_order_acq_rel, memory_order_acquire);
}

// True if the phase is over. It is also over when all of its items are computed, whichever lanes
// are still to come.
static bool has_ended(struct team *team, uint32_t phase, int64_t n_items) {
    if (is_later(atomic_load_explicit(&team->phase, memory_order_acquire), phase)) return true;
    if (n_items == 0 || atomic_load_explicit(&team->done, memory_order_acquire) !=
                            count_in(phase, (uint64_t)n_items))
        return false;
    end_phase(team, phase);
    return true;
}

// Waits for the end of a phase: at first by spinning, since the other lanes are nearly there, later
// by yielding. An unbound lane whose spinning was in vain spins for less time next time, because
// the lane it waits for may need this very processor: two lanes on one processor would otherwise
// take each other's time. A bound lane that yields at once would lose its processor to any other
// program for milliseconds, several hundred times a token.
static void wait_phase(struct team *team, uint32_t phase, int64_t n_items, struct own *own) {
    uint64_t spin_ns = own->spin_ns, start_ns = spin_ns ? clock_ns() : 0;
    while (spin_ns > 0) {
        for (int i = 0; i < PAUSES_A_LOOK; i++) {
            if (!has_ended(team, phase, n_items)) {
                pause_a_little();
                continue;
            }
            if (!team->cpus && spin_ns < SPIN_NS_MAX) own->spin_ns = spin_ns + spin_ns / 8;
            return;
        }
        if (clock_ns() - start_ns > spin_ns) break;
    }
    if (!team->cpus && spin_ns > SPIN_NS_MIN) own->spin_ns = spin_ns / 2;
    while (!has_ended(team, phase, n_items)) sched_yield();
}

// A lane that comes late, because its processor did something else, passes the phases that the
// others ended meanwhile.
void lane_barrier(const struct lane *lane) {
    if (lane->count == 1) return;
    struct team *team = lane->team;
    struct own *own = &team->own[lane->index];
    const uint32_t phase = own->phase++;
    const int64_t n_items = own->n_items;
    own->n_items = 0;
    if (has_ended(team, phase, n_items)) return;
    unsigned long long old = atomic_load_explicit(&team->arrived, memory_order_relaxed);
    uint64_t arrived;
    do {
        if (is_later((uint32_t)(old >> 32), phase)) break; // the phase has ended just now
        arrived = count_of(old, phase) + 1;
    } while (!atomic_compare_exchange_weak_explicit(&team->arrived, &old, count_in(phase, arrived),
                                                    memory_order_acq_rel, memory_order_relaxed));
    if (!is_later((uint32_t)(old >> 32), phase) && arrived == (uint64_t)lane->count)
        end_phase(team, phase);
    else
        wait_phase(team, phase, n_items, own);
}

// The lane's equal share, once. The next barrier waits for all lanes.
static bool take_share(const struct lane *lane, int64_t n, int64_t range[2]) {
    if (range[1] > 0) return false;
    lane_share(lane, n, 1, &range[0], &range[1]);
    return range[0] < range[1];
}

bool lane_take(const struct lane *lane, int64_t n, int64_t grain, int64_t range[2]) {
    if (lane->count == 1) {
        bool all = range[1] == 0 && n > 0;
        range[1] = n;
        return all;
    }
    if (n <= FEW_GRAINS * grain * lane->count) return take_share(lane, n, range);
    ASSERT(n <= INT32_MAX);
    struct team *team = lane->team;
    struct own *own = &team->own[lane->index];
    own->n_items = n;
    if (range[1] > range[0]) (void)add_to(&team->done, own->phase, (uint64_t)(range[1] - range[0]));
    unsigned long long old = atomic_load_explicit(&team->taken, memory_order_relaxed);
    int64_t start, end;
    do {
        start = (int64_t)count_of(old, own->phase);
        if (is_later((uint32_t)(old >> 32), own->phase) || start >= n) return false;
        end = start + lane_portion(n - start, lane->count, grain);
    } while (!atomic_compare_exchange_weak_explicit(&team->taken, &old,
                                                    count_in(own->phase, (uint64_t)end),
                                                    memory_order_relaxed, memory_order_relaxed));
    range[0] = start;
    range[1] = end;
    return true;
}

void lane_need_all(const struct lane *lane) {
    if (lane->count > 1) lane->team->own[lane->index].n_items = 0;
}

void *lane_room(const struct lane *lane, int32_t index) {
    return lane->team->rooms + (int64_t)index * LANE_ROOM_BYTES;
}

// Runs one thread's part of a run. A thread that is not on its processor, or is new, binds itself
// to it.
static void run_lane(struct team *team, int32_t index, int32_t n_threads) {
    (void)atomic_load_explicit(&team->begun, memory_order_acquire);
    int32_t count = team->n_lanes < n_threads ? team->n_lanes : n_threads;
    if (index < count) {
        if (team->cpus && affinity_cpu() != team->cpus[index])
            (void)affinity_set_cpu(team->cpus[index]); // a refusal costs speed only
        struct lane lane = {index, count, team};
        team->own[index].phase = team->first_phase;
        team->own[index].n_items = 0;
        team->fn(&lane, team->context);
    }
    atomic_fetch_add_explicit(&team->ended, 1, memory_order_release);
}

void team_run(struct team *team, team_fn fn, void *context) {
    ASSERT(team);
    ASSERT(fn);
    if (team->n_lanes == 1) {
        fn(&(struct lane){0, 1, team}, context);
        return;
    }
    // Each run restores the caller's own affinity; otherwise every thread that the caller starts
    // later would inherit one processor.
    struct affinity before;
    bool bound = team->cpus && affinity_get(&before) && affinity_set_cpu(team->cpus[0]);
    team->fn = fn;
    team->context = context;
    atomic_store_explicit(&team->ended, 0, memory_order_relaxed);
    team->first_phase = 1 + atomic_fetch_add_explicit(&team->phase, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&team->begun, 1, memory_order_release);
#pragma omp parallel default(none) firstprivate(team) num_threads(team->n_threads)
    run_lane(team, omp_get_thread_num(), omp_get_num_threads());
    ASSERT(atomic_load_explicit(&team->ended, memory_order_acquire) > 0);
    if (bound) (void)affinity_set(&before);
}

static void wake(const struct lane *lane, void *context) {
    (void)context;
    lane_barrier(lane);
}

static int32_t default_threads(const struct core_list *cores) {
    int32_t quota = host_cpu_quota(&HOST_ROOTS);
    return quota > 0 && quota < cores->n_fast ? quota : cores->n_fast;
}

enum status team_default_size(int32_t *out, struct err *e) {
    struct core_list cores;
    if (core_list_open(&cores, e) != OK) return e->status;
    *out = default_threads(&cores);
    core_list_close(&cores);
    return OK;
}

// Allocates a team without processors. Returns NULL if memory is short.
static struct team *new_team(int32_t n_threads, struct err *e) {
    struct team *team = mem_alloc(1, sizeof *team);
    if (team) {
        team->n_threads = team->n_lanes = n_threads;
        team->own = mem_alloc((size_t)n_threads, sizeof *team->own);
        team->rooms = n_threads > 1 ? mem_alloc((size_t)n_threads, LANE_ROOM_BYTES) : NULL;
    }
    if (team && team->own && (team->rooms || n_threads == 1)) return team;
    err_memory(e, (uint64_t)n_threads * LANE_ROOM_BYTES, "a team of threads");
    team_close(team);
    return NULL;
}

enum status team_open(struct team **out, int32_t n_threads, bool bind, struct err *e) {
    ASSERT(n_threads >= 0);
    *out = NULL;
    struct core_list cores = {0};
    if (n_threads > LANES_MAX) {
        err_set(e, ERR_USAGE, "too many threads");
        err_expected(e, "at most %d", LANES_MAX);
        return err_actual(e, "%d", n_threads);
    }
    if (core_list_open(&cores, e) != OK) return e->status;
    if (n_threads == 0) n_threads = default_threads(&cores);
    struct team *team = new_team(n_threads, e);
    if (!team) {
        core_list_close(&cores);
        return e->status;
    }
    bool fits = n_threads <= cores.n_cpus;
    for (int32_t i = 0; fits && i < n_threads; i++)
        team->own[i].spin_ns = bind ? SPIN_NS_BOUND : SPIN_NS_MAX;
    if (bind && fits) {
        team->cpus = cores.cpus; // the team owns the array now
        cores = (struct core_list){0};
    }
    core_list_close(&cores);
    team_run(team, wake, NULL);
    *out = team;
    return OK;
}

int32_t team_size(const struct team *team) { return team->n_lanes; }

void team_use(struct team *team, int32_t n_lanes) {
    ASSERT(n_lanes >= 1);
    ASSERT(n_lanes <= team->n_threads);
    team->n_lanes = n_lanes;
}

void team_close(struct team *team) {
    if (!team) return;
    mem_free(team->own);
    mem_free(team->rooms);
    mem_free(team->cpus);
    mem_free(team);
}

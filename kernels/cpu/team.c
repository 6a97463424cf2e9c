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
    LINE = 64,           // bytes of a cache line
    SPIN_NS_MAX = 50000, // how long a lane waits before it offers its processor to others
    SPIN_NS_MIN = 500,   // the same after such waits were in vain
    PAUSES_A_LOOK = 8,   // pauses between two looks at the clock
    LANES_MAX = 1024,
};

struct patience {
    uint64_t spin_ns; // 0: never
    char pad[LINE - sizeof(uint64_t)];
};

// Everything that a worker touches is reached through this struct. The two counters of a run order
// memory as OpenMP does, in a form that race detectors understand.
struct team {
    team_fn fn; // of the run in progress
    void *context;
    int32_t n_threads; // of the OpenMP region
    int32_t n_lanes;   // threads that work in the next run
    int32_t *cpus;     // [n_threads], owned: the processor of each lane; NULL: nothing is bound
    struct patience *patience; // [n_threads], owned: each lane's own
    char *rooms;               // [n_threads, LANE_ROOM_BYTES], owned; NULL with one thread
    char pad0[LINE];
    atomic_uint begun; // runs so far
    atomic_int ended;  // threads that have left this run
    char pad1[LINE];
    atomic_int arrived; // lanes at the barrier
    char pad2[LINE];
    atomic_uint generation; // barriers so far
    char pad3[LINE];
    atomic_llong taken; // items that lanes took since the last barrier
    char pad4[LINE];
};

static inline void pause_a_little(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

// Waits until *generation is no longer old: at first by spinning, since the other lanes are nearly
// there, later by yielding. A lane whose spinning was in vain spins for less time next time,
// because the lane it waits for may need this very processor: two unbound lanes on one processor
// would otherwise take each other's time.
static void wait_generation(const atomic_uint *generation, unsigned old,
                            struct patience *patience) {
    uint64_t spin_ns = patience->spin_ns, start_ns = spin_ns ? clock_ns() : 0;
    while (spin_ns > 0) {
        for (int i = 0; i < PAUSES_A_LOOK; i++) {
            if (atomic_load_explicit(generation, memory_order_acquire) == old) {
                pause_a_little();
                continue;
            }
            if (spin_ns < SPIN_NS_MAX) patience->spin_ns = spin_ns + spin_ns / 8;
            return;
        }
        if (clock_ns() - start_ns > spin_ns) break;
    }
    if (spin_ns > SPIN_NS_MIN) patience->spin_ns = spin_ns / 2;
    while (atomic_load_explicit(generation, memory_order_acquire) == old) sched_yield();
}

void lane_barrier(const struct lane *lane) {
    if (lane->count == 1) return;
    struct team *team = lane->team;
    unsigned generation = atomic_load_explicit(&team->generation, memory_order_relaxed);
    int arrived = 1 + atomic_fetch_add_explicit(&team->arrived, 1, memory_order_acq_rel);
    if (arrived < lane->count) {
        wait_generation(&team->generation, generation, &team->patience[lane->index]);
        return;
    }
    atomic_store_explicit(&team->arrived, 0, memory_order_relaxed);
    atomic_store_explicit(&team->taken, 0, memory_order_relaxed);
    atomic_store_explicit(&team->generation, generation + 1, memory_order_release);
}

bool lane_take(const struct lane *lane, int64_t n, int64_t grain, int64_t range[2]) {
    if (lane->count == 1) {
        bool all = range[1] == 0 && n > 0;
        range[1] = n;
        return all;
    }
    atomic_llong *taken = &lane->team->taken;
    long long start = atomic_load_explicit(taken, memory_order_relaxed), end;
    do {
        if (start >= n) return false;
        end = start + lane_portion(n - start, lane->count, grain);
    } while (!atomic_compare_exchange_weak_explicit(taken, &start, end, memory_order_relaxed,
                                                    memory_order_relaxed));
    range[0] = start;
    range[1] = end;
    return true;
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
    atomic_store_explicit(&team->taken, 0, memory_order_relaxed);
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
        team->patience = mem_alloc((size_t)n_threads, sizeof *team->patience);
        team->rooms = n_threads > 1 ? mem_alloc((size_t)n_threads, LANE_ROOM_BYTES) : NULL;
    }
    if (team && team->patience && (team->rooms || n_threads == 1)) return team;
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
    for (int32_t i = 0; fits && i < n_threads; i++) team->patience[i].spin_ns = SPIN_NS_MAX;
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
    mem_free(team->patience);
    mem_free(team->rooms);
    mem_free(team->cpus);
    mem_free(team);
}

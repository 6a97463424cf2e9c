/* team.c: threads that walk through the same work together; declared in cpu.h.
 *
 * A team owns its threads: the caller is lane 0, each other lane a thread that waits for its next
 * run by itself, so lanes that are not in use are left asleep. Waiting is spinning at first, then
 * sleeping. Tested by tests/kernels/test_team.c.
 */
#include "kernels/cpu/cpu.h"

#include "base/affinity.h"
#include "base/clock.h"
#include "base/gate.h"
#include "base/host.h"
#include "base/mem.h"
#include "kernels/cpu/cores.h"

#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

enum {
    LINE = 64,           // bytes of a cache line
    SPIN_NS_MAX = 50000, // how long a lane spins, since the others are nearly there
    SPIN_NS_MIN = 500,   // the same of an unbound lane after such waits were in vain
    BETWEEN_NS = 300000, // how much longer a bound one spins while the caller picks a token
    YIELD_NS = 60000,    // how long an unbound one waits altogether before it sleeps
    PAUSES_A_LOOK = 8,   // pauses between two looks at the clock
    LANES_MAX = 1024,
    STACK_BYTES = 4 << 20, // of a thread; attention takes 0.93 MiB, and macOS gives 0.5
    FEW_GRAINS = 4,        // of work for each lane: too little to be worth meeting over it
};

// The number of a team's first phase: old enough numbers look like later ones from the start.
static const uint32_t FIRST_PHASE = (uint32_t)INT32_MAX + 2;

// The thread of a lane.
struct worker {
    struct team *team;
    struct gate gate; // where it sleeps between runs
    pthread_t thread;
    int32_t index;
};

// A count of one phase, so that no barrier has to reset it: the phase in the upper half, the count
// in the lower.
typedef atomic_ullong phase_count;

// A lane's own state.
struct own {
    uint64_t spin_ns;  // how long it waits before it yields; 0: not at all
    int64_t n_items;   // that lane_take shares out in this phase; 0: none
    int64_t n_done;    // items that the lane computed, and that the team does not count yet
    phase_count taken; // items of the lane's share that some lane took
    uint32_t phase;    // barriers that the lane has passed
    atomic_uint run;   // the latest that the lane has to take part in
    char pad[LINE - 4 * sizeof(uint64_t) - 2 * sizeof(uint32_t)];
};

// Everything that a lane touches is reached through this struct.
struct team {
    team_fn fn; // of the run in progress; NULL: the threads end
    void *context;
    int32_t n_threads; // with the caller
    int32_t n_lanes;   // threads that work in the next run
    uint32_t runs;     // so far
    int32_t *cpus;     // [n_threads], owned: the processor of each lane; NULL: nothing is bound
    struct own *own;   // [n_threads], owned
    char *rooms;       // [n_threads, LANE_ROOM_BYTES], owned; NULL with one thread
    struct worker *workers; // [n_threads - 1], owned; of lanes 1 and up
    int32_t n_workers;      // that were started
    int32_t n_cores;        // that this process may use
    int32_t n_fast;         // performance cores among them
    struct gate gate;       // where lanes sleep until a phase or the run is over
    char pad0[LINE];
    atomic_uint at_work; // workers that have not left this run
    char pad1[LINE];
    phase_count arrived; // lanes at the barrier
    char pad2[LINE];
    atomic_uint phase;    // the latest; a phase ends with a barrier
    uint32_t first_phase; // of this run
    char pad3[LINE];
    phase_count done; // items that lane_take shared out and that are computed
    char pad4[LINE];
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
    if (atomic_compare_exchange_strong(&team->phase, &phase, phase + 1)) gate_open(&team->gate);
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

// A lane that waits, and the condition it waits for.
struct wait {
    struct team *team;
    struct own *own;
    uint32_t phase;       // that ends
    int64_t n_items;      // of that phase
    uint32_t run;         // the last one, after which another comes
    uint64_t patience_ns; // for which a bound lane spins besides
};

typedef bool (*wait_fn)(const void *wait);

// Spins until is_over. Returns false if that took too long. An unbound lane whose spinning was in
// vain spins for less time next time, and yields then, because the lane it waits for may need this
// very processor: two lanes on one processor would otherwise take each other's time. A bound lane
// always spins as long: at once asleep, it would lose its processor to any other program several
// hundred times a token. On a loaded machine spinning for 200 us instead costs a fifth of the
// speed.
static bool wait_awake(wait_fn is_over, const struct wait *wait) {
    struct own *own = wait->own;
    const bool bound = wait->team->cpus != NULL;
    const uint64_t spin_ns = own->spin_ns + (bound ? wait->patience_ns : 0), start_ns = clock_ns();
    uint64_t waited_ns = 0;
    for (; waited_ns <= spin_ns; waited_ns = clock_ns() - start_ns) {
        for (int i = 0; i < PAUSES_A_LOOK && spin_ns > 0; i++) {
            if (!is_over(wait)) {
                pause_a_little();
                continue;
            }
            if (!bound && spin_ns < SPIN_NS_MAX) own->spin_ns = spin_ns + spin_ns / 8;
            return true;
        }
        if (spin_ns == 0) break;
    }
    if (!bound && spin_ns > SPIN_NS_MIN) own->spin_ns = spin_ns / 2;
    for (; waited_ns <= YIELD_NS && !bound; waited_ns = clock_ns() - start_ns) {
        if (is_over(wait)) return true;
        sched_yield();
    }
    return is_over(wait);
}

// True once the phase is over, also if its items are computed though nobody has ended it.
static bool phase_is_over(const void *context) {
    const struct wait *w = context;
    return has_ended(w->team, w->phase, w->n_items);
}

// The lane that computed the last item ends the phase itself before it sleeps.
static bool phase_has_passed(const void *context) {
    const struct wait *w = context;
    return is_later(atomic_load(&w->team->phase), w->phase);
}

static void wait_phase(struct team *team, uint32_t phase, int64_t n_items, struct own *own) {
    const struct wait wait = {.team = team, .own = own, .phase = phase, .n_items = n_items};
    if (!wait_awake(phase_is_over, &wait)) gate_wait(&team->gate, phase_has_passed, &wait);
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

// Work that is too little to be worth meeting over it.
static bool is_little(const struct lane *lane, int64_t n, int64_t grain) {
    return n <= FEW_GRAINS * grain * lane->count;
}

void lane_first_share(const struct lane *lane, int64_t n, int64_t grain, int64_t share[2]) {
    lane_share(lane, n, is_little(lane, n, grain) ? 1 : grain, &share[0], &share[1]);
}

// The lane's share, once. The next barrier waits for all lanes.
static bool take_share(const struct lane *lane, int64_t n, int64_t grain, int64_t range[2]) {
    if (range[1] > 0) return false;
    lane_first_share(lane, n, grain, range);
    return range[0] < range[1];
}

// Takes a portion of the share of n items that is the lane's with number owner. Returns false if
// nothing of it is left.
static bool take_portion(const struct lane *lane, int32_t owner, int64_t n, int64_t grain,
                         int64_t range[2]) {
    const uint32_t phase = lane->team->own[lane->index].phase;
    phase_count *taken = &lane->team->own[owner].taken;
    unsigned long long old = atomic_load_explicit(taken, memory_order_relaxed);
    int64_t share[2], end;
    lane_first_share(&(struct lane){.index = owner, .count = lane->count}, n, grain, share);
    do {
        range[0] = share[0] + (int64_t)count_of(old, phase);
        if (is_later((uint32_t)(old >> 32), phase) || range[0] >= share[1]) return false;
        end = range[0] + lane_portion(share[1] - share[0], share[1] - range[0], lane->count,
                                      owner == lane->index, grain);
    } while (!atomic_compare_exchange_weak_explicit(taken, &old,
                                                    count_in(phase, (uint64_t)(end - share[0])),
                                                    memory_order_relaxed, memory_order_relaxed));
    range[1] = end;
    return true;
}

// Other lanes learn of computed items when the lane's own share is done, and then of each portion:
// until then they have to wait for it anyway.
bool lane_take(const struct lane *lane, int64_t n, int64_t grain, int64_t range[2]) {
    if (lane->count == 1) {
        bool all = range[1] == 0 && n > 0;
        range[1] = n;
        return all;
    }
    if (is_little(lane, n, grain)) return take_share(lane, n, grain, range);
    ASSERT(n <= INT32_MAX);
    struct team *team = lane->team;
    struct own *own = &team->own[lane->index];
    own->n_items = n;
    own->n_done += range[1] - range[0];
    if (take_portion(lane, lane->index, n, grain, range)) return true;
    if (own->n_done > 0) (void)add_to(&team->done, own->phase, (uint64_t)own->n_done);
    own->n_done = 0;
    for (int32_t i = 1; i < lane->count; i++) {
        if (take_portion(lane, (lane->index + i) % lane->count, n, grain, range)) return true;
    }
    return false;
}

void lane_need_all(const struct lane *lane) {
    if (lane->count > 1) lane->team->own[lane->index].n_items = 0;
}

void *lane_room(const struct lane *lane, int32_t index) {
    return lane->team->rooms + (int64_t)index * LANE_ROOM_BYTES;
}

static void run_lane(struct team *team, int32_t index) {
    struct own *own = &team->own[index];
    own->phase = team->first_phase;
    own->n_items = own->n_done = 0;
    team->fn(&(struct lane){.index = index, .count = team->n_lanes, .team = team}, team->context);
}

static bool has_run(const void *context) {
    const struct wait *w = context;
    return atomic_load(&w->own->run) != w->run;
}

static bool all_have_left(const void *context) {
    const struct wait *w = context;
    return atomic_load(&w->team->at_work) == 0;
}

// A worker's life: run after run, on its processor.
static void *work(void *context) {
    struct worker *worker = context;
    struct team *team = worker->team;
    struct wait wait = {.team = team, .own = &team->own[worker->index], .patience_ns = BETWEEN_NS};
    affinity_prefer_fast();
    if (team->cpus) (void)affinity_set_cpu(team->cpus[worker->index]); // a refusal costs speed only
    for (;;) {
        if (!wait_awake(has_run, &wait)) gate_wait(&worker->gate, has_run, &wait);
        wait.run = atomic_load(&wait.own->run); // the next one begins after this lane has left
        if (!team->fn) return NULL;
        run_lane(team, worker->index);
        if (atomic_fetch_sub(&team->at_work, 1) == 1) gate_open(&team->gate);
    }
}

// Sets the counts to the first phase of a run, before any of its lanes comes: one that is older by
// half of all numbers would look like a later one.
static void begin_counts(struct team *team) {
    const unsigned long long none = count_in(team->first_phase, 0);
    atomic_store_explicit(&team->arrived, none, memory_order_relaxed);
    for (int32_t i = 0; i < team->n_lanes; i++)
        atomic_store_explicit(&team->own[i].taken, none, memory_order_relaxed);
    atomic_store_explicit(&team->done, none, memory_order_relaxed);
}

// Begins a run, or with fn NULL the end, of the first n workers.
static void start_workers(struct team *team, int32_t n, team_fn fn, void *context) {
    team->fn = fn;
    team->context = context;
    team->runs++;
    for (int32_t i = 0; i < n; i++) {
        atomic_store(&team->own[i + 1].run, team->runs);
        gate_open(&team->workers[i].gate);
    }
}

void team_run(struct team *team, team_fn fn, void *context) {
    ASSERT(team);
    ASSERT(fn);
    if (team->n_lanes == 1) {
        fn(&(struct lane){.count = 1, .team = team}, context);
        return;
    }
    // Each run restores the caller's own affinity; otherwise every thread that the caller starts
    // later would inherit one processor.
    struct affinity before;
    bool bound = team->cpus && affinity_get(&before) && affinity_set_cpu(team->cpus[0]);
    team->first_phase = 1 + atomic_fetch_add_explicit(&team->phase, 1, memory_order_relaxed);
    begin_counts(team);
    atomic_store_explicit(&team->at_work, (unsigned)team->n_lanes - 1, memory_order_relaxed);
    start_workers(team, team->n_lanes - 1, fn, context);
    run_lane(team, 0);
    const struct wait wait = {.team = team, .own = &team->own[0]};
    if (!wait_awake(all_have_left, &wait)) gate_wait(&team->gate, all_have_left, &wait);
    if (bound) (void)affinity_set(&before);
}

static void meet(const struct lane *lane, void *context) {
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

// Allocates a team without processors or threads. Returns NULL if memory is short.
static struct team *new_team(int32_t n_threads, struct err *e) {
    struct team *team = mem_alloc(1, sizeof *team);
    if (team) {
        gate_init(&team->gate);
        atomic_init(&team->phase, FIRST_PHASE);
        team->n_threads = team->n_lanes = n_threads;
        team->own = mem_alloc((size_t)n_threads, sizeof *team->own);
        team->workers = mem_alloc((size_t)n_threads, sizeof *team->workers);
        team->rooms = n_threads > 1 ? mem_alloc((size_t)n_threads, LANE_ROOM_BYTES) : NULL;
    }
    if (team && team->own && team->workers && (team->rooms || n_threads == 1)) return team;
    err_memory(e, (uint64_t)n_threads * LANE_ROOM_BYTES, "a team of threads");
    team_close(team);
    return NULL;
}

// Starts the threads of all lanes but the caller's. They take no signals, which are for the
// program's own threads. Returns why the system refused one, or 0.
static int create_threads(struct team *team, const pthread_attr_t *attr) {
    sigset_t all, before;
    int refusal = 0;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    for (int32_t i = 1; i < team->n_threads && !refusal; i++) {
        struct worker *worker = &team->workers[i - 1];
        worker->team = team;
        worker->index = i;
        gate_init(&worker->gate);
        refusal = pthread_create(&worker->thread, attr, work, worker);
        team->n_workers += !refusal;
        if (refusal) gate_close(&worker->gate);
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return refusal;
}

static enum status start_threads(struct team *team, struct err *e) {
    pthread_attr_t attr;
    int refusal = pthread_attr_init(&attr);
    if (!refusal) {
        refusal = pthread_attr_setstacksize(&attr, STACK_BYTES);
        if (!refusal) refusal = create_threads(team, &attr);
        pthread_attr_destroy(&attr);
    }
    if (!refusal) return OK;
    err_set(e, ERR_DEVICE, "the system refuses threads: %s", strerror(refusal));
    err_actual(e, "%d of %d", team->n_workers + 1, team->n_threads);
    return err_fix(e, "use fewer threads (-t)");
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
    team->n_cores = cores.n_cores;
    team->n_fast = cores.n_fast;
    bool fits = n_threads <= cores.n_cpus;
    for (int32_t i = 0; fits && i < n_threads; i++) team->own[i].spin_ns = SPIN_NS_MAX;
    struct affinity own;
    if (bind && fits && affinity_get(&own)) {
        team->cpus = cores.cpus; // the team owns the array now
        cores = (struct core_list){0};
    }
    core_list_close(&cores);
    if (start_threads(team, e) != OK) {
        team_close(team);
        return e->status;
    }
    team_run(team, meet, NULL);
    *out = team;
    return OK;
}

int32_t team_size(const struct team *team) { return team->n_lanes; }

void team_describe(const struct team *team, char *out, size_t size_chars) {
    ASSERT(size_chars > 0);
    *out = 0;
    if (team->n_fast == team->n_cores) return;
    (void)snprintf(out, size_chars, "cores: %d performance, %d slower%s", team->n_fast,
                   team->n_cores - team->n_fast,
                   team->cpus ? "; threads are bound to performance cores first" : "");
}

void team_use(struct team *team, int32_t n_lanes) {
    ASSERT(n_lanes >= 1);
    ASSERT(n_lanes <= team->n_threads);
    team->n_lanes = n_lanes;
}

void team_close(struct team *team) {
    if (!team) return;
    start_workers(team, team->n_workers, NULL, NULL);
    for (int32_t i = 0; i < team->n_workers; i++) {
        pthread_join(team->workers[i].thread, NULL);
        gate_close(&team->workers[i].gate);
    }
    gate_close(&team->gate);
    mem_free(team->workers);
    mem_free(team->own);
    mem_free(team->rooms);
    mem_free(team->cpus);
    mem_free(team);
}

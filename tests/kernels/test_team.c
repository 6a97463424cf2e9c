/* test_team.c: teams of threads on the CPU: barriers, shares, portions, idle and bound lanes. */
#include "base/affinity.h"
#include "base/mem.h"
#include "kernels/cpu/cores.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/device/table.h"
#include "tests/lib/slow.h"
#include "tests/lib/thread_status.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

struct stress {
    int n_rounds;
    int64_t cells[4]; // one per lane, summed by all after each barrier
    atomic_int n_wrong;
};

static void stress_lane(const struct lane *lane, void *context) {
    struct stress *stress = context;
    for (int round = 0; round < stress->n_rounds; round++) {
        stress->cells[lane->index] = round;
        lane_barrier(lane);
        int64_t sum = 0;
        for (int32_t i = 0; i < lane->count; i++) sum += stress->cells[i];
        if (sum != (int64_t)round * lane->count) atomic_fetch_add(&stress->n_wrong, 1);
        lane_barrier(lane);
    }
}

static void test_barriers(void **state) {
    (void)state;
    for (int32_t n = 1; n <= 4; n++) {
        struct team *team;
        struct err e;
        assert_int_equal(team_open(&team, n, true, &e), OK);
        for (int32_t used = 1; used <= n; used++) {
            struct stress stress = {.n_rounds = 2000 / n};
            team_use(team, used);
            assert_int_equal(team_size(team), used);
            for (int run = 0; run < 20; run++) team_run(team, stress_lane, &stress);
            assert_int_equal(stress.n_wrong, 0);
        }
        team_close(team);
    }
    team_close(NULL);
}

enum { N_ITEMS = 1000 };

struct taking {
    atomic_int times[N_ITEMS]; // that each item was taken
};

static void take_lane(const struct lane *lane, void *context) {
    struct taking *taking = context;
    for (int round = 0; round < 10; round++) {
        for (int64_t range[2] = {0}; lane_take(lane, N_ITEMS, 1 + round, range);)
            for (int64_t i = range[0]; i < range[1]; i++) atomic_fetch_add(&taking->times[i], 1);
        lane_barrier(lane);
    }
}

// Lanes take each item once between two barriers.
static void test_taken_once(void **state) {
    (void)state;
    for (int32_t n = 1; n <= 4; n++) {
        struct team *team;
        struct err e;
        struct taking taking = {0};
        assert_int_equal(team_open(&team, n, true, &e), OK);
        for (int run = 0; run < 3; run++) team_run(team, take_lane, &taking);
        for (int i = 0; i < N_ITEMS; i++) assert_int_equal(taking.times[i], 30);
        team_close(team);
    }
}

// Items lie at most half beside a lane's equal share, so two lanes differ by one item at most; of
// nine segments of 8,320 keys the last is short, and the fifth belongs to the second lane.
static void test_items_of_lanes(void **state) {
    (void)state;
    const struct lane two = {.count = 2};
    assert_int_equal(lane_of_item(&two, 3 * 1024, 1024, 8320), 0);
    assert_int_equal(lane_of_item(&two, 4 * 1024, 1024, 8320), 1);
    for (int32_t count = 1; count <= 8; count++) {
        const struct lane lane = {.count = count};
        for (int64_t total = 1; total <= 40; total++) {
            for (int64_t cost = 1; cost <= total; cost++) {
                int64_t work[8] = {0};
                int32_t before = 0;
                for (int64_t at = 0; at < total; at += cost) {
                    const int64_t own = cost < total - at ? cost : total - at; // the last: the rest
                    const int32_t n = lane_of_item(&lane, at, own, total);
                    assert_in_range(n, before, count - 1);
                    before = n;
                    work[n] += own;
                }
                if (count == 2) assert_in_range(work[0] - work[1] + cost, 0, 2 * cost);
                for (int32_t n = 0; n < count; n++)
                    assert_in_range(count * work[n] + count * cost, total,
                                    total + 2 * count * cost);
            }
        }
    }
}

struct sequence {
    int32_t index; // of the lane that comes first
    atomic_bool done;
    int n_taken;  // portions
    int n_breaks; // of those that do not follow the one before
};

static void take_in_sequence(const struct lane *lane, void *context) {
    struct sequence *seq = context;
    const bool first = lane->index == seq->index;
    int64_t end, last;
    lane_share(lane, N_ITEMS, 3, &end, &last);
    while (!first && !atomic_load(&seq->done)) sched_yield();
    for (int64_t range[2] = {0}; lane_take(lane, N_ITEMS, 3, range); end = range[1]) {
        seq->n_taken++;
        seq->n_breaks += range[0] != end;
    }
    if (first) atomic_store(&seq->done, true);
    lane_barrier(lane);
}

// A lane's portions follow each other from its own share on, through the shares of the lanes after
// it, and then from the beginning.
static void test_portions_in_sequence(void **state) {
    (void)state;
    for (int32_t n = 2; n <= 4; n++) {
        struct team *team;
        struct err e;
        assert_int_equal(team_open(&team, n, true, &e), OK);
        for (int32_t i = 0; i < n; i++) {
            struct sequence seq = {.index = i};
            team_run(team, take_in_sequence, &seq);
            assert_in_range(seq.n_taken, 20 * n, N_ITEMS / 3 + n);
            assert_int_equal(seq.n_breaks, i > 0);
        }
        team_close(team);
    }
}

struct lateness {
    struct taking taking;
    atomic_bool others_done;
    atomic_int n_late; // items that the late lane took
};

static void take_late(const struct lane *lane, void *context) {
    struct lateness *late = context;
    const bool is_late = lane->index == lane->count - 1;
    while (is_late && !atomic_load(&late->others_done)) sched_yield();
    for (int round = 0; round < 10; round++) {
        for (int64_t range[2] = {0}; lane_take(lane, N_ITEMS, 1, range);) {
            if (is_late) atomic_fetch_add(&late->n_late, 1);
            for (int64_t i = range[0]; i < range[1]; i++)
                atomic_fetch_add(&late->taking.times[i], 1);
        }
        lane_barrier(lane);
    }
    if (lane->index == 0) atomic_store(&late->others_done, true);
}

// Lanes that took all the work go on without the one that is still to come; it finds nothing left.
static void test_late_lane(void **state) {
    (void)state;
    for (int32_t n = 2; n <= 4; n++) {
        struct team *team;
        struct err e;
        struct lateness late = {0};
        assert_int_equal(team_open(&team, n, true, &e), OK);
        team_run(team, take_late, &late);
        for (int i = 0; i < N_ITEMS; i++) assert_int_equal(late.taking.times[i], 10);
        assert_int_equal(late.n_late, 0);
        team_close(team);
    }
}

struct need {
    atomic_int n_taken; // items
    atomic_bool is_read;
    atomic_int n_early; // lanes that passed the barrier before the late one had read
};

static void need_lane(const struct lane *lane, void *context) {
    struct need *need = context;
    const bool is_late = lane->index == lane->count - 1;
    if (is_late) {
        while (atomic_load(&need->n_taken) < N_ITEMS) sched_yield();
        usleep(2000); // time for the others to pass, if they could
        atomic_store(&need->is_read, true);
    }
    for (int64_t range[2] = {0}; lane_take(lane, N_ITEMS, 1, range);)
        atomic_fetch_add(&need->n_taken, (int)(range[1] - range[0]));
    lane_need_all(lane);
    lane_barrier(lane);
    if (!atomic_load(&need->is_read)) atomic_fetch_add(&need->n_early, 1);
}

// Where lanes need all of them, those that took all the work wait for the one that still reads what
// they may write next.
static void test_needed_lane(void **state) {
    (void)state;
    for (int32_t n = 2; n <= 4; n++) {
        struct team *team;
        struct err e;
        struct need need = {0};
        assert_int_equal(team_open(&team, n, true, &e), OK);
        team_run(team, need_lane, &need);
        assert_int_equal(need.n_taken, N_ITEMS);
        assert_int_equal(need.n_early, 0);
        team_close(team);
    }
}

// The lane that is free first takes a portion of its own share, or of the next one with any left.
static void take_in_time(double *free_at, int64_t *left, int32_t n, int64_t share) {
    int32_t next = 0;
    for (int32_t i = 1; i < n; i++)
        if (free_at[i] < free_at[next]) next = i;
    int32_t owner = next;
    while (left[owner] == 0) owner = (owner + 1) % n;
    const int64_t portion = lane_portion(share, left[owner], n, owner == next, 1);
    assert_in_range(portion, 1, left[owner]);
    free_at[next] += (double)portion * (next == 0 ? 3 : 1);
    left[owner] -= portion;
}

// In a time of its own, in which the first lane has a third of the others' speed, a team is done in
// at most 1.15 of the time that no division of the work could beat.
static void test_slow_lane(void **state) {
    (void)state;
    for (int32_t n = 2; n <= 16; n *= 2) {
        double free_at[16] = {0}, end = 0;
        int64_t left[16], total = 0;
        for (int32_t i = 0; i < n; i++) total += left[i] = 100;
        while (total > 0) {
            take_in_time(free_at, left, n, 100);
            total = 0;
            for (int32_t i = 0; i < n; i++) total += left[i];
        }
        for (int32_t i = 0; i < n; i++) end = free_at[i] > end ? free_at[i] : end;
        assert_true(end <= 1.15 * 100 * n / (n - 1 + 1.0 / 3));
    }
}

struct sleeper {
    int32_t index; // of the lane
    pid_t thread;
};

static void note_thread(const struct lane *lane, void *context) {
    struct sleeper *s = context;
    if (lane->index == s->index) s->thread = (pid_t)syscall(SYS_gettid);
}

// A thread of no team that sleeps until its pipe is closed.
struct dormant {
    pthread_t thread;
    pid_t id;
    int pipe[2];
};

static void *sleep_at_pipe(void *context) {
    struct dormant *d = context;
    char byte;
    __atomic_store_n(&d->id, (pid_t)syscall(SYS_gettid), __ATOMIC_RELEASE);
    (void)!read(d->pipe[0], &byte, 1);
    return NULL;
}

static void start_dormant(struct dormant *d) {
    *d = (struct dormant){0};
    assert_int_equal(pipe(d->pipe), 0);
    assert_int_equal(pthread_create(&d->thread, NULL, sleep_at_pipe, d), 0);
    while (__atomic_load_n(&d->id, __ATOMIC_ACQUIRE) == 0 || thread_status(d->id, "State") != 'S')
        sched_yield();
}

static void end_dormant(struct dormant *d) {
    close(d->pipe[1]);
    pthread_join(d->thread, NULL);
    close(d->pipe[0]);
}

// Lanes that have nothing to do fall asleep, and runs of other lanes do not wake them. What stops
// the process for a while, a debugger or a freezer, wakes every thread: a lane and one of no team
// alike.
static void test_idle_lanes(void **state) {
    (void)state;
    struct team *team;
    struct err e;
    struct dormant dormant;
    struct stress stress = {.n_rounds = 10};
    struct sleeper sleepers[2] = {{.index = 1}, {.index = 3}};
    assert_int_equal(team_open(&team, 4, true, &e), OK);
    for (int i = 0; i < 2; i++) {
        team_run(team, note_thread, &sleepers[i]);
        while (thread_status(sleepers[i].thread, "State") != 'S') sched_yield();
    }
    start_dormant(&dormant);
    const long before = thread_sleeps(sleepers[1].thread) - thread_sleeps(dormant.id);
    team_use(team, 2);
    for (int run = 0; run < 100; run++) team_run(team, stress_lane, &stress);
    assert_int_equal(thread_sleeps(sleepers[1].thread) - thread_sleeps(dormant.id), before);
    assert_int_equal(thread_status(sleepers[1].thread, "State"), 'S');
    end_dormant(&dormant);
    team_use(team, 4);
    team_run(team, stress_lane, &stress);
    assert_int_equal(stress.n_wrong, 0);
    team_close(team);
}

static void stack_of(const struct lane *lane, void *context) {
    uint64_t *bytes = context;
    pthread_attr_t attr;
    size_t size = 0;
    assert_int_equal(pthread_getattr_np(pthread_self(), &attr), 0);
    assert_int_equal(pthread_attr_getstacksize(&attr, &size), 0);
    pthread_attr_destroy(&attr);
    bytes[lane->index] = size;
}

// Threads have room for the kernels where the system gives threads little, as macOS does.
static void test_stacks(void **state) {
    (void)state;
    pthread_attr_t given, small;
    uint64_t bytes[3] = {0};
    struct team *team = NULL;
    struct err e;
    assert_int_equal(pthread_getattr_default_np(&given), 0);
    assert_int_equal(pthread_attr_init(&small), 0);
    assert_int_equal(pthread_attr_setstacksize(&small, 512 << 10), 0);
    assert_int_equal(pthread_setattr_default_np(&small), 0);
    assert_int_equal(team_open(&team, 3, false, &e), OK);
    team_run(team, stack_of, bytes);
    team_close(team);
    assert_int_equal(pthread_setattr_default_np(&given), 0);
    assert_true(bytes[1] >= 2 << 20);
    assert_true(bytes[2] >= 2 << 20);
}

// Attention of a level by the caller alone.
struct attention_call {
    struct cpu_table table;
    struct attention_args args;
};

static void *attend(void *context) {
    const struct attention_call *call = context;
    call->table.attention(&(struct lane){.count = 1}, &call->args);
    return NULL;
}

// tandem.h asks a caller for 1 MiB of stack, of which attention, which takes most, leaves a part to
// what calls it.
static void test_stack_of_caller(void **state) {
    (void)state;
    enum { TOKENS = 16, HEADS = 16, STACK_BYTES = (1 << 20) - (32 << 10) };
    const size_t n = (size_t)TOKENS * HEADS * HEAD_DIM_MAX;
    float *floats = mem_alloc(2 * n + (size_t)KV_PAGE * HEAD_DIM_MAX, sizeof *floats);
    int32_t *positions = mem_alloc(2 * TOKENS, sizeof *positions);
    assert_non_null(floats);
    assert_non_null(positions);
    for (int32_t t = 0; t < TOKENS; t++) positions[t] = t;
    struct attention_call call = {.args = {.out = floats,
                                           .q = floats + n,
                                           .k_cache = floats + 2 * n,
                                           .v_cache = floats + 2 * n,
                                           .pages = positions + TOKENS,
                                           .positions = positions,
                                           .sequences = positions + TOKENS,
                                           .n_tokens = TOKENS,
                                           .n_heads = HEADS,
                                           .n_kv_heads = 1,
                                           .head_dim = HEAD_DIM_MAX,
                                           .max_pages = 1,
                                           .order = KV_BY_ROW,
                                           .scale = 1}};
    pthread_attr_t small;
    pthread_t thread;
    assert_int_equal(pthread_attr_init(&small), 0);
    // Sanitizers lay more on the stack.
    if (!SLOW) assert_int_equal(pthread_attr_setstacksize(&small, STACK_BYTES), 0);
    for (enum cpu_isa isa = ISA_REF; isa < ISA_AUTO; isa++) {
        if (!cpu_has_isa(isa)) continue;
        cpu_table_init(&call.table, isa);
        for (int type = 0; type < KV_TYPES; type++) {
            call.args.k_type = call.args.v_type = kv_dtype((enum kv_type)type);
            assert_int_equal(pthread_create(&thread, &small, attend, &call), 0);
            assert_int_equal(pthread_join(thread, NULL), 0);
        }
    }
    pthread_attr_destroy(&small);
    mem_free(positions);
    mem_free(floats);
}

static void test_too_many_threads(void **state) {
    (void)state;
    struct team *team;
    struct err e;
    assert_int_equal(team_open(&team, 1 << 20, true, &e), ERR_USAGE);
    assert_null(team);
}

struct place {
    int32_t cpus[4]; // where each lane ran
    struct affinity caller;
};

static void note_place(const struct lane *lane, void *context) {
    struct place *place = context;
    place->cpus[lane->index] = affinity_cpu();
    if (lane->index == 0) affinity_get(&place->caller);
}

// Each lane on a processor of its own while it works; the caller is free again afterwards.
static void test_binding(void **state) {
    (void)state;
    struct core_list cores;
    struct team *team;
    struct err e;
    struct affinity before, after;
    assert_int_equal(core_list_open(&cores, &e), OK);
    assert_true(cores.n_cores >= 1);
    int32_t n = cores.n_cpus < 4 ? cores.n_cpus : 4;
    assert_int_equal(team_open(&team, n, true, &e), OK);
    bool told = affinity_get(&before);
    struct place place = {0};
    team_run(team, note_place, &place);
    assert_int_equal(affinity_get(&after), told);
    if (told && n > 1) {
        assert_memory_equal(&before, &after, sizeof before);
        for (int32_t i = 0; i < n; i++) assert_int_equal(place.cpus[i], cores.cpus[i]);
        int bits = 0;
        for (int i = 0; i < AFFINITY_CPUS / 64; i++)
            bits += __builtin_popcountll(place.caller.mask[i]);
        assert_int_equal(bits, 1);
    }
    team_close(team);
    core_list_close(&cores);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_barriers),         cmocka_unit_test(test_taken_once),
        cmocka_unit_test(test_items_of_lanes),   cmocka_unit_test(test_portions_in_sequence),
        cmocka_unit_test(test_late_lane),        cmocka_unit_test(test_needed_lane),
        cmocka_unit_test(test_slow_lane),        cmocka_unit_test(test_idle_lanes),
        cmocka_unit_test(test_stacks),           cmocka_unit_test(test_stack_of_caller),
        cmocka_unit_test(test_too_many_threads), cmocka_unit_test(test_binding),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

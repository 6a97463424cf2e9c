/* simt.c: fibers, their scheduler and its checks; see simt.h.
 *
 * A worker starts the threads of a block in order on their own stacks. One that ends without having
 * waited hands its stack to the next, so that only threads that wait cost a switch. The switch is
 * eight instructions of x86-64. Built without -fsanitize=thread also where kernels are built with
 * it: a fiber is a TSan thread of its own, and only barriers and exchanges order them. Workers
 * share nothing but the launch. Tested by tests/kernels/test_simt.c.
 */
#include "tests/emulator/simt.h"

#include "base/inline.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#ifndef __x86_64__
#error "the fiber switch is written for x86-64"
#endif

#if defined(__SANITIZE_ADDRESS__)
#define SIMT_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SIMT_ASAN 1
#endif
#endif

enum {
    WARPS_MAX = SIMT_THREADS_MAX / SIMT_WARP,
    GROUPS_MAX = 8, // masks of one warp in use at the same moment
    CANARY_BYTES = 64,
    CANARY = 0xa5,
    PAGE_BYTES = 4096,
#ifdef SIMT_TSAN
    BLOCK_MAX = 128, // TSan tells about 255 threads apart
#else
    BLOCK_MAX = SIMT_THREADS_MAX,
#endif
};

enum fiber_state { FIBER_FRESH, FIBER_READY, FIBER_AT_BARRIER, FIBER_AT_EXCHANGE, FIBER_DONE };

struct fiber {
    struct simt_thread thread; // first: what simt_self points to
    struct worker *worker;
    enum fiber_state state;
    const struct simt_place *place; // where it waits; lies on its stack
    void *stack_pointer;
    struct warp *warp;
    char *stack;      // lowest address
    void *fake_stack; // ASan's
    void *tsan;       // TSan's name of the fiber
};

struct group {                      // the lanes of a warp that exchange under one mask
    uint32_t mask, arrived;         // arrived: all wait
    unsigned parity;                // of lanes[2] and met[2], so that slow readers keep theirs
    const struct simt_place *place; // of one that waits
    char met[2];                    // what TSan takes for the meeting
};

struct warp {
    struct simt_lanes lanes[2];
    struct group groups[GROUPS_MAX];
    unsigned last; // the group of the exchange before
    uint32_t busy; // groups in which lanes wait
    uint32_t alive;
};

struct loads { // of a thread in its block, the line of each
    uint64_t *lines;
    unsigned n, room;
};

struct worker { // owns stacks and fibers
    struct simt *simt;
    struct simt_block block;
    struct fiber main; // the OS thread
    struct fiber *fibers;
    struct simt_copy *copies; // [SIMT_THREADS_MAX, SIMT_COPIES_MAX]
    struct warp *warps;
    struct loads *loads; // [SIMT_THREADS_MAX], NULL: they are not counted
    char *stacks;        // what was mapped
    char *first_stack;
    pthread_t thread;
    unsigned n_threads, n_started, n_alive, n_at_barrier;
    unsigned n_guarded;               // stacks whose lowest page is closed
    const struct simt_place *barrier; // of one that waits
    // The objects that order threads at a barrier for TSan, in turns: a thread may reach the next
    // barrier before another has left this one, which does not order the second after the first.
    char met[2];
    unsigned barrier_parity;
    uint16_t ready[SIMT_THREADS_MAX]; // a ring of fibers that can run
    unsigned ready_first, n_ready;
    uint16_t ended[SIMT_THREADS_MAX]; // fibers whose stacks others may take, the warmest last
    unsigned n_ended;
    struct fiber *leaving; // the last to end: its stack is free once another runs
    uint32_t random;
    bool seeded;           // the order is random
    const void *asan_main; // the OS thread's stack
    size_t asan_main_bytes;
};

struct simt {
    struct simt_options options;
    int left_out_line; // of options.left_out, 0: none
    struct worker *workers;
    int n_started;
    pthread_mutex_t queue; // one launch at a time
    pthread_mutex_t lock;  // what follows
    pthread_cond_t begin, end;
    uint64_t generation;
    int n_called, n_busy; // workers that the launch wants, and that still run
    bool quit;
    const struct simt_launch *launch;
    atomic_ulong next_block, n_lines;
    atomic_bool stop;
    struct simt_report *report;
};

// ---- What the sanitizers must be told ----------------------------------------------------------

#ifdef SIMT_ASAN
void __sanitizer_start_switch_fiber(void **save, const void *stack, size_t size_bytes);
void __sanitizer_finish_switch_fiber(void *save, const void **stack, size_t *size_bytes);
void __asan_unpoison_memory_region(void const volatile *p, size_t size_bytes);
#endif
#ifdef SIMT_TSAN
void *__tsan_get_current_fiber(void);
void *__tsan_create_fiber(unsigned flags);
void __tsan_destroy_fiber(void *fiber);
void __tsan_switch_to_fiber(void *fiber, unsigned flags);
void __tsan_acquire(void *p);
void __tsan_release(void *p);
#define ACQUIRE(p) __tsan_acquire((void *)(p))
#define RELEASE(p) __tsan_release((void *)(p))
#else
#define ACQUIRE(p) (void)(p)
#define RELEASE(p) (void)(p)
#endif

// Finds the stack of the calling OS thread, to which fibers return.
static void learn_main_stack(struct worker *w) {
#ifdef SIMT_ASAN
    pthread_attr_t attributes;
    void *stack = NULL;
    if (!pthread_getattr_np(pthread_self(), &attributes)) {
        pthread_attr_getstack(&attributes, &stack, &w->asan_main_bytes);
        pthread_attr_destroy(&attributes);
    }
    w->asan_main = stack;
#endif
#ifdef SIMT_TSAN
    // Kernels have thread-local arrays. Whoever touches the library's first one allocates them all,
    // which must be before the fibers.
    static _Thread_local volatile char first;
    first = 1;
    w->main.tsan = __tsan_get_current_fiber();
#endif
    w->main.state = FIBER_READY;
}

static void before_switch(struct fiber *from, struct fiber *to) {
#ifdef SIMT_ASAN
    bool home = to == &to->worker->main;
    __sanitizer_start_switch_fiber(&from->fake_stack, home ? to->worker->asan_main : to->stack,
                                   home ? to->worker->asan_main_bytes : SIMT_STACK);
#endif
#ifdef SIMT_TSAN
    __tsan_switch_to_fiber(to->tsan, 1);
#endif
    (void)from, (void)to;
}

static void after_switch(struct fiber *back) {
#ifdef SIMT_ASAN
    __sanitizer_finish_switch_fiber(back ? back->fake_stack : NULL, NULL, NULL);
#endif
    (void)back;
}

// ---- Fibers ------------------------------------------------------------------------------------

// Saves what a callee must keep, swaps stacks, and returns on the other one.
void simt_switch(void **save, void *load);
__asm__(".text\n"
        ".hidden simt_switch\n"
        ".globl simt_switch\n"
        ".type simt_switch, @function\n"
        "simt_switch:\n"
        "    push %rbp\n"
        "    push %rbx\n"
        "    push %r12\n"
        "    push %r13\n"
        "    push %r14\n"
        "    push %r15\n"
        "    mov %rsp, (%rdi)\n"
        "    mov %rsi, %rsp\n"
        "    pop %r15\n"
        "    pop %r14\n"
        "    pop %r13\n"
        "    pop %r12\n"
        "    pop %rbx\n"
        "    pop %rbp\n"
        "    ret\n"
        ".size simt_switch, . - simt_switch\n");

static struct fiber *self(void) { return (struct fiber *)simt_self(); }

static void switch_fiber(struct fiber *from, struct fiber *to) {
    before_switch(from, to);
    simt_switch(&from->stack_pointer, to->stack_pointer);
    after_switch(from);
}

static void fiber_main(void);

static void set_owner(struct fiber *f) {
    char *first = f->worker->first_stack;
    struct simt_thread **owners = (struct simt_thread **)(first + SIMT_STACKS);
    owners[(f->stack - first) / SIMT_STACK] = &f->thread;
}

// Makes the stack one that simt_switch returns from into fiber_main. Different threads start at
// different lines of the first and the second cache.
static void prepare(struct fiber *f) {
    enum { COLOURS = 251, COLOUR_BYTES = 192 };
    set_owner(f);
    char *top = f->stack + SIMT_STACK - 64 - f->thread.linear % COLOURS * COLOUR_BYTES;
    void **sp = (void **)((uintptr_t)top & ~(uintptr_t)15);
    *--sp = NULL; // where a caller's return address would lie
    *--sp = (void *)fiber_main;
    for (int i = 0; i < 6; i++) *--sp = NULL;
    f->stack_pointer = sp;
}

static uint32_t next_random(struct worker *w) {
    w->random ^= w->random << 13;
    w->random ^= w->random >> 17;
    w->random ^= w->random << 5;
    return w->random;
}

static void make_ready(struct worker *w, unsigned linear) {
    w->fibers[linear].state = FIBER_READY;
    w->ready[(w->ready_first + w->n_ready++) % SIMT_THREADS_MAX] = (uint16_t)linear;
}

// ---- Faults ------------------------------------------------------------------------------------

static _Noreturn void leave_block(struct fiber *f) {
    struct worker *w = f->worker;
    atomic_store(&w->simt->stop, true);
    switch_fiber(f, &w->main);
    abort(); // nobody resumes a fiber of a failed launch
}

// Only the first fault of a launch is kept.
static void write_report(struct worker *w, const char *text) {
    struct simt *s = w->simt;
    const struct simt_dim *b = &w->block.index;
    pthread_mutex_lock(&s->lock);
    if (!s->report->text[0])
        snprintf(s->report->text, sizeof s->report->text, "kernel %s, block (%u, %u, %u): %s",
                 s->launch->name, b->x, b->y, b->z, text);
    pthread_mutex_unlock(&s->lock);
    atomic_store(&s->stop, true);
}

void simt_fault(const char *format, ...) {
    char text[800];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    struct fiber *f = self();
    size_t length = strlen(text);
    snprintf(text + length, sizeof text - length, " (thread %u)", f->thread.linear);
    write_report(f->worker, text);
    leave_block(f);
}

static bool same_place(struct simt_place a, struct simt_place b) {
    return a.line == b.line && (a.file == b.file || !strcmp(a.file, b.file));
}

static bool wait_alike(const struct fiber *a, const struct fiber *b) {
    if (a->state != b->state) return false;
    return a->state == FIBER_DONE || same_place(*a->place, *b->place);
}

// Nobody can run: says who waits where.
static void report_deadlock(struct worker *w) {
    char text[800];
    size_t used = (size_t)snprintf(text, sizeof text, "deadlock:");
    for (unsigned i = 0, last; i < w->n_threads && used < sizeof text - 1; i = last + 1) {
        const struct fiber *f = &w->fibers[i];
        last = i;
        while (last + 1 < w->n_threads && wait_alike(f, &w->fibers[last + 1])) last++;
        if (f->state == FIBER_DONE) continue;
        int n = snprintf(text + used, sizeof text - used, " threads %u..%u wait in a %s at %s:%d;",
                         i, last, f->state == FIBER_AT_BARRIER ? "barrier" : "warp exchange",
                         f->place->file, f->place->line);
        used += n > 0 ? (size_t)n : 0;
    }
    write_report(w, text);
}

// ---- The scheduler -----------------------------------------------------------------------------

static void swap_stacks(struct fiber *a, struct fiber *b) {
    char *stack = a->stack;
    a->stack = b->stack;
    b->stack = stack;
}

static struct fiber *start_thread(struct worker *w) {
    struct fiber *f = &w->fibers[w->n_started++];
    f->state = FIBER_READY;
#ifndef SIMT_TSAN
    if (w->n_ended) swap_stacks(f, &w->fibers[w->ended[--w->n_ended]]);
#endif
    return f;
}

// One that has not started yet, if there is no other or if chance decides so.
static struct fiber *pick_fresh(struct worker *w) {
    if (w->n_started == w->n_threads || (w->n_ready && !(next_random(w) & 1))) return NULL;
    struct fiber *f = start_thread(w);
    prepare(f);
    return f;
}

// Brings any of those that can run to the front.
static void shuffle_ready(struct worker *w) {
    unsigned other = (w->ready_first + next_random(w) % w->n_ready) % SIMT_THREADS_MAX;
    uint16_t first = w->ready[w->ready_first];
    w->ready[w->ready_first] = w->ready[other];
    w->ready[other] = first;
}

// Threads that wait no longer come first, so that a warp ends before the next one starts and its
// stacks stay in the cache.
static struct fiber *pick(struct worker *w) {
    if (!w->n_ready || w->seeded) {
        struct fiber *fresh = pick_fresh(w);
        if (fresh) return fresh;
        if (!w->n_ready) {
            if (w->n_alive) report_deadlock(w);
            return &w->main;
        }
        shuffle_ready(w);
    }
    struct fiber *f = &w->fibers[w->ready[w->ready_first]];
    w->ready_first = (w->ready_first + 1) % SIMT_THREADS_MAX;
    // The stack of the one behind it comes to the cache while this one runs.
    if (--w->n_ready) __builtin_prefetch(w->fibers[w->ready[w->ready_first]].stack_pointer);
    return f;
}

static void run_next(struct fiber *f) {
    struct fiber *to = pick(f->worker);
    if (to != f) switch_fiber(f, to);
}

static void check_end(const struct fiber *f) {
    const struct worker *w = f->worker;
    if (f->thread.n_copies)
        simt_fault("ends with %u asynchronous copies not waited for", f->thread.n_copies);
    if (w->n_at_barrier)
        simt_fault("ends while %u threads wait in the barrier at %s:%d", w->n_at_barrier,
                   w->barrier->file, w->barrier->line);
    const struct warp *warp = &w->warps[f->thread.linear / SIMT_WARP];
    for (int i = 0; i < GROUPS_MAX; i++) {
        const struct group *g = &warp->groups[i];
        if (g->arrived && g->mask >> f->thread.lane & 1)
            simt_fault("ends while lanes %08x wait for it in the exchange at %s:%d", g->arrived,
                       g->place->file, g->place->line);
    }
}

static void end_thread(struct fiber *f) {
    struct worker *w = f->worker;
    check_end(f);
    f->state = FIBER_DONE;
    w->n_alive--;
    w->warps[f->thread.linear / SIMT_WARP].alive &= ~(1U << f->thread.lane);
}

// Where no other can run, the next thread starts on the stack of the one that ended. NULL if it
// cannot.
static struct fiber *take_over(struct fiber *ended) {
    struct worker *w = ended->worker;
#ifdef SIMT_TSAN
    return NULL;
#endif
    if (w->n_started == w->n_threads || w->n_ready || w->simt->options.seed) return NULL;
    w->ended[w->n_ended++] = (uint16_t)ended->thread.linear;
    struct fiber *f = start_thread(w);
    set_owner(f);
    return f;
}

// The kernel behind a call that is not inlined: simt_self must be read anew for every thread.
OUT_OF_LINE void run_thread(struct fiber *f) {
    const struct simt_launch *launch = f->worker->simt->launch;
    ACQUIRE(&f->worker->block);
    launch->kernel(launch->params);
    RELEASE(f->worker);
}

// Runs another, which never comes back.
static void leave(struct fiber *f) {
    struct worker *w = f->worker;
    if (w->leaving) w->ended[w->n_ended++] = (uint16_t)w->leaving->thread.linear;
    w->leaving = f;
    run_next(f);
}

static void fiber_main(void) {
    after_switch(NULL);
    struct fiber *f = self();
    for (;;) {
        run_thread(f);
        end_thread(f);
        struct fiber *next = take_over(f);
        if (!next) leave(f);
        f = next;
    }
}

// ---- What kernels call -------------------------------------------------------------------------

// True if the host asked for the barrier at that place to be left out.
static bool left_out(const struct simt *s, struct simt_place place) {
    if (place.line != s->left_out_line) return false;
    const char *name = s->options.left_out;
    size_t length = strcspn(name, ":"), path = strlen(place.file);
    return path >= length && !strncmp(place.file + path - length, name, length);
}

void simt_barrier(struct simt_place place) {
    struct fiber *f = self();
    struct worker *w = f->worker;
    if (left_out(w->simt, place)) return;
    if (w->n_at_barrier && !same_place(*w->barrier, place))
        simt_fault("divergent barrier: here at %s:%d, %u others at %s:%d", place.file, place.line,
                   w->n_at_barrier, w->barrier->file, w->barrier->line);
    if (w->n_alive < w->n_threads)
        simt_fault("barrier at %s:%d after %u threads of the block have ended", place.file,
                   place.line, w->n_threads - w->n_alive);
    char *met = &w->met[w->barrier_parity];
    RELEASE(met);
    w->barrier = f->place = &place;
    f->state = FIBER_AT_BARRIER;
    if (++w->n_at_barrier == w->n_alive) {
        w->n_at_barrier = 0;
        w->barrier_parity ^= 1;
        for (unsigned i = 0; i < w->n_threads; i++)
            if (i != f->thread.linear) make_ready(w, i);
        f->state = FIBER_READY;
    } else {
        run_next(f);
    }
    ACQUIRE(met);
}

static struct group *find_group(struct warp *warp, uint32_t mask) {
    struct group *idle = NULL;
    for (int i = 0; i < GROUPS_MAX; i++) {
        struct group *g = &warp->groups[i];
        if (g->mask == mask) return g;
        if (!g->arrived) idle = g;
    }
    if (!idle) simt_fault("more than %d masks of one warp in use", GROUPS_MAX);
    idle->mask = mask;
    return idle;
}

static void check_exchange(const struct fiber *f, const struct warp *warp, uint32_t mask,
                           struct simt_place place) {
    if (!(mask >> f->thread.lane & 1))
        simt_fault("lane %u is not in its own mask %08x at %s:%d", f->thread.lane, mask, place.file,
                   place.line);
    if (mask & ~warp->alive)
        simt_fault("mask %08x names lanes that ended or never were (alive %08x) at %s:%d", mask,
                   warp->alive, place.file, place.line);
    for (int i = 0; i < GROUPS_MAX; i++) {
        const struct group *g = &warp->groups[i];
        if (g->arrived && g->mask == mask && !same_place(*g->place, place))
            simt_fault("divergent warp exchange: mask %08x at %s:%d, others at %s:%d", mask,
                       place.file, place.line, g->place->file, g->place->line);
    }
}

// The group of that mask, after all checks; in a loop of exchanges it is that of the one before.
static struct group *enter_group(const struct fiber *f, struct warp *warp, uint32_t mask,
                                 struct simt_place place) {
    struct group *g = &warp->groups[warp->last];
    bool same = g->mask == mask && !(warp->busy & ~(1U << warp->last)) && !(mask & ~warp->alive);
    bool together = !g->arrived || (g->place->line == place.line && g->place->file == place.file);
    if (same && together && mask >> f->thread.lane & 1) return g;
    check_exchange(f, warp, mask, place);
    g = find_group(warp, mask);
    warp->last = (unsigned)(g - warp->groups);
    return g;
}

const struct simt_lanes *simt_exchange(uint32_t mask, const uint64_t *words, int n,
                                       simt_combine_fn *combine, struct simt_place place) {
    struct fiber *f = self();
    struct worker *w = f->worker;
    const unsigned first = f->thread.linear - f->thread.lane;
    struct warp *warp = f->warp;
    if (n == 0 && left_out(w->simt, place)) return NULL;
    struct group *g = enter_group(f, warp, mask, place);
    struct simt_lanes *lanes = &warp->lanes[g->parity];
    for (int i = 0; i < n; i++) lanes->word[f->thread.lane][i] = words[i];
    char *met = &g->met[g->parity];
    RELEASE(met);
    const uint32_t others = g->arrived, own = 1U << f->thread.lane;
    if ((others | own) == mask) {
        ACQUIRE(met);
        if (combine) combine(lanes);
        RELEASE(met);
        for (uint32_t left = others; left; left &= left - 1)
            make_ready(w, first + (unsigned)__builtin_ctz(left));
        g->arrived = 0;
        warp->busy &= ~(1U << (g - warp->groups));
        g->parity ^= 1;
    } else {
        f->state = FIBER_AT_EXCHANGE;
        f->place = &place;
        g->arrived = others | own;
        if (!others) {
            g->place = &place;
            warp->busy |= 1U << (g - warp->groups);
        }
        run_next(f);
        ACQUIRE(met);
    }
    return lanes;
}

// ---- Cache lines -------------------------------------------------------------------------------

bool simt_counts_lines;

void simt_note_load(const void *p) {
    const struct fiber *f = (const struct fiber *)(const void *)simt_self();
    if (!f->worker->loads) return; // another engine's kernels are counted
    struct loads *l = &f->worker->loads[f->thread.linear];
    if (l->n == l->room) {
        const unsigned room = l->room ? 2 * l->room : 64;
        uint64_t *lines = realloc(l->lines, room * sizeof *lines);
        if (!lines) simt_fault("the host has no memory to count %u loads", room);
        l->lines = lines;
        l->room = room;
    }
    l->lines[l->n++] = (uintptr_t)p / SIMT_LINE;
}

// The number of different lines of load i of a warp's lanes.
static unsigned lines_of(const struct loads *lanes, unsigned i) {
    unsigned n = 0;
    for (unsigned lane = 0; lane < SIMT_WARP; lane++) {
        bool is_new = i < lanes[lane].n;
        for (unsigned other = 0; other < lane && is_new; other++)
            is_new = i >= lanes[other].n || lanes[other].lines[i] != lanes[lane].lines[i];
        n += is_new;
    }
    return n;
}

static void count_lines(struct worker *w) {
    for (unsigned first = 0; w->loads && first < w->n_threads; first += SIMT_WARP) {
        struct loads *lanes = &w->loads[first];
        unsigned most = 0, n = 0;
        for (unsigned lane = 0; lane < SIMT_WARP; lane++)
            most = lanes[lane].n > most ? lanes[lane].n : most;
        for (unsigned i = 0; i < most; i++) n += lines_of(lanes, i);
        for (unsigned lane = 0; lane < SIMT_WARP; lane++) lanes[lane].n = 0;
        atomic_fetch_add(&w->simt->n_lines, n);
    }
}

// ---- Blocks ------------------------------------------------------------------------------------

static void set_block(struct worker *w, unsigned long number) {
    const struct simt_launch *l = w->simt->launch;
    const struct simt_dim *grid = &l->grid;
    w->block.index = (struct simt_dim){
        .x = (unsigned)(number % grid->x),
        .y = (unsigned)(number / grid->x % grid->y),
        .z = (unsigned)(number / grid->x / grid->y),
    };
    w->n_started = w->n_ready = w->ready_first = w->n_ended = w->n_at_barrier = 0;
    w->leaving = NULL;
    w->n_alive = w->n_threads;
    w->random = (w->simt->options.seed + 1) * 2654435761U ^ (uint32_t)(number * 40503U + 1);
    w->random += !w->random;
    for (unsigned i = 0; i < w->n_threads; i++) {
        w->fibers[i].state = FIBER_FRESH;
        w->fibers[i].thread.n_copies = w->fibers[i].thread.copy_group = 0;
    }
    for (unsigned i = 0; i * SIMT_WARP < w->n_threads; i++) {
        unsigned left = w->n_threads - i * SIMT_WARP;
        memset(w->warps[i].groups, 0, sizeof w->warps[i].groups);
        w->warps[i].last = w->warps[i].busy = 0;
        w->warps[i].alive = left >= SIMT_WARP ? UINT32_MAX : (1U << left) - 1;
    }
}

// The lowest page of a stack is closed before the first use.
static void guard_stacks(struct worker *w) {
    for (; w->n_guarded < w->n_threads; w->n_guarded++)
        if (mprotect(w->fibers[w->n_guarded].stack, PAGE_BYTES, PROT_NONE)) return;
}

static void set_launch(struct worker *w) {
    const struct simt_launch *l = w->simt->launch;
    w->n_threads = l->block.x * l->block.y * l->block.z;
    w->block.size = l->block;
    w->block.grid = l->grid;
    w->block.arch = l->arch;
    guard_stacks(w);
    for (unsigned i = 0; i < w->n_threads; i++) {
        struct simt_dim *index = &w->fibers[i].thread.index;
        index->x = i % l->block.x;
        index->y = i / l->block.x % l->block.y;
        index->z = i / l->block.x / l->block.y;
    }
}

// Exactly as large as the launch says where ASan watches; else with a canary behind it.
static bool shared_new(struct worker *w, size_t size_bytes) {
    w->block.shared = NULL;
    if (!size_bytes) return true;
#ifndef SIMT_ASAN
    size_bytes += CANARY_BYTES;
#endif
    return !posix_memalign(&w->block.shared, 128, size_bytes);
}

static void shared_poison(struct worker *w, size_t size_bytes) {
    if (!size_bytes) return;
    memset(w->block.shared, 0xff, size_bytes);
#ifndef SIMT_ASAN
    memset((char *)w->block.shared + size_bytes, CANARY, CANARY_BYTES);
#endif
}

static void shared_check(struct worker *w, size_t size_bytes) {
#ifndef SIMT_ASAN
    const unsigned char *canary = (const unsigned char *)w->block.shared + size_bytes;
    for (int i = 0; size_bytes && i < CANARY_BYTES; i++) {
        char text[100];
        if (canary[i] == CANARY) continue;
        snprintf(text, sizeof text, "byte %zu of %zu bytes of shared memory was written",
                 size_bytes + (size_t)i, size_bytes);
        write_report(w, text);
        return;
    }
#endif
    (void)w, (void)size_bytes;
}

static void run_block(struct worker *w, unsigned long number) {
    size_t shared_bytes = w->simt->launch->shared_bytes;
    set_block(w, number);
    shared_poison(w, shared_bytes);
    RELEASE(&w->block);
    run_next(&w->main);
    ACQUIRE(w);
    if (!atomic_load(&w->simt->stop)) shared_check(w, shared_bytes);
    count_lines(w);
#ifdef SIMT_ASAN
    // Frames of threads that were given up have left their marks.
    for (unsigned i = 0; atomic_load(&w->simt->stop) && i < w->n_threads; i++)
        __asan_unpoison_memory_region(w->fibers[i].stack + PAGE_BYTES, SIMT_STACK - PAGE_BYTES);
#endif
}

static void run_blocks(struct worker *w) {
    struct simt *s = w->simt;
    const struct simt_launch *l = s->launch;
    unsigned long count = (unsigned long)l->grid.x * l->grid.y * l->grid.z, number;
    if (!shared_new(w, l->shared_bytes)) {
        write_report(w, "the host has no memory for its shared memory");
        return;
    }
    learn_main_stack(w);
    set_launch(w);
    if (s->options.poison) s->options.poison();
    while (!atomic_load(&s->stop) && (number = atomic_fetch_add(&s->next_block, 1)) < count)
        run_block(w, number);
    free(w->block.shared);
    w->block.shared = NULL;
}

static void *work(void *argument) {
    struct worker *w = argument;
    struct simt *s = w->simt;
    uint64_t seen = 0;
    if (s->options.enter) s->options.enter();
    pthread_mutex_lock(&s->lock);
    for (;;) {
        while (s->generation == seen && !s->quit) pthread_cond_wait(&s->begin, &s->lock);
        if (s->quit) break;
        seen = s->generation;
        if (w - s->workers >= s->n_called) continue;
        pthread_mutex_unlock(&s->lock);
        run_blocks(w);
        pthread_mutex_lock(&s->lock);
        if (--s->n_busy == 0) pthread_cond_signal(&s->end);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

bool simt_run(struct simt *s, const struct simt_launch *launch, struct simt_report *report) {
    unsigned long count = (unsigned long)launch->grid.x * launch->grid.y * launch->grid.z;
    unsigned n_threads = launch->block.x * launch->block.y * launch->block.z;
    report->text[0] = 0;
    report->n_lines = 0;
    if (n_threads < 1 || n_threads > BLOCK_MAX) {
        snprintf(report->text, sizeof report->text, "kernel %s: a block of %u threads, at most %d",
                 launch->name, n_threads, BLOCK_MAX);
        return false;
    }
    pthread_mutex_lock(&s->queue);
    pthread_mutex_lock(&s->lock);
    s->launch = launch;
    s->report = report;
    atomic_store(&s->next_block, 0);
    atomic_store(&s->n_lines, 0);
    atomic_store(&s->stop, false);
    s->n_called = (unsigned long)s->n_started < count ? s->n_started : (int)count;
    s->n_busy = s->n_called - 1;
    if (s->n_busy > 0) {
        s->generation++;
        pthread_cond_broadcast(&s->begin);
    }
    pthread_mutex_unlock(&s->lock);
    if (count) run_blocks(&s->workers[0]);
    pthread_mutex_lock(&s->lock);
    while (s->n_busy > 0) pthread_cond_wait(&s->end, &s->lock);
    report->n_lines = atomic_load(&s->n_lines);
    pthread_mutex_unlock(&s->lock);
    pthread_mutex_unlock(&s->queue);
    return !report->text[0];
}

// ---- Open and close ----------------------------------------------------------------------------

// Stacks lie at multiples of their size, all of them at a multiple of theirs, the table behind
// them.
enum {
    OWNERS_BYTES = SIMT_THREADS_MAX * sizeof(void *),
    MAPPED_BYTES = 2 * SIMT_STACKS + OWNERS_BYTES
};

static bool worker_stacks(struct worker *w) {
    w->stacks = mmap(NULL, MAPPED_BYTES, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (w->stacks == MAP_FAILED) return w->stacks = NULL, false;
    uintptr_t mask = SIMT_STACKS - 1;
    w->first_stack = (char *)(((uintptr_t)w->stacks + mask) & ~mask);
    for (unsigned i = 0; i < SIMT_THREADS_MAX; i++) {
        struct fiber *f = &w->fibers[i];
        f->stack = w->first_stack + (size_t)i * SIMT_STACK;
        f->worker = w;
        f->thread.block = &w->block;
        f->thread.copies = w->copies + (size_t)i * SIMT_COPIES_MAX;
        f->thread.linear = i;
        f->thread.lane = i % SIMT_WARP;
        f->warp = &w->warps[i / SIMT_WARP];
    }
    return true;
}

static bool worker_open(struct simt *s, struct worker *w) {
    w->simt = s;
    w->main.worker = w;
    w->seeded = s->options.seed;
    w->fibers = calloc(SIMT_THREADS_MAX, sizeof *w->fibers);
    w->copies = calloc((size_t)SIMT_THREADS_MAX * SIMT_COPIES_MAX, sizeof *w->copies);
    w->warps = calloc(WARPS_MAX, sizeof *w->warps);
    if (s->options.counts_lines && !(w->loads = calloc(SIMT_THREADS_MAX, sizeof *w->loads)))
        return false;
    if (!w->fibers || !w->copies || !w->warps || !worker_stacks(w)) return false;
#ifdef SIMT_TSAN
    for (unsigned i = 0; i < BLOCK_MAX; i++) w->fibers[i].tsan = __tsan_create_fiber(0);
#endif
    return w == s->workers || !pthread_create(&w->thread, NULL, work, w);
}

static void worker_close(struct worker *w) {
#ifdef SIMT_TSAN
    for (unsigned i = 0; w->fibers && i < BLOCK_MAX; i++)
        if (w->fibers[i].tsan) __tsan_destroy_fiber(w->fibers[i].tsan);
#endif
    if (w->stacks) munmap(w->stacks, MAPPED_BYTES);
    free(w->fibers);
    free(w->copies);
    free(w->warps);
    for (unsigned i = 0; w->loads && i < SIMT_THREADS_MAX; i++) free(w->loads[i].lines);
    free(w->loads);
}

struct simt *simt_open(const struct simt_options *options) {
    struct simt *s = calloc(1, sizeof *s);
    int n = options->n_workers > 1 ? options->n_workers : 1;
    if (!s) return NULL;
    s->options = *options;
    if (options->counts_lines) simt_counts_lines = true;
    const char *line = options->left_out ? strchr(options->left_out, ':') : NULL;
    s->left_out_line = line ? atoi(line + 1) : 0;
    pthread_mutex_init(&s->queue, NULL);
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->begin, NULL);
    pthread_cond_init(&s->end, NULL);
    s->workers = calloc((size_t)n, sizeof *s->workers);
    for (; s->workers && s->n_started < n; s->n_started++)
        if (!worker_open(s, &s->workers[s->n_started])) {
            worker_close(&s->workers[s->n_started]);
            break;
        }
    if (s->n_started == n) return s;
    simt_close(s);
    return NULL;
}

void simt_close(struct simt *s) {
    if (!s) return;
    pthread_mutex_lock(&s->lock);
    s->quit = true;
    pthread_cond_broadcast(&s->begin);
    pthread_mutex_unlock(&s->lock);
    for (int i = 1; i < s->n_started; i++) pthread_join(s->workers[i].thread, NULL);
    for (int i = 0; i < s->n_started; i++) worker_close(&s->workers[i]);
    pthread_mutex_destroy(&s->queue);
    pthread_mutex_destroy(&s->lock);
    pthread_cond_destroy(&s->begin);
    pthread_cond_destroy(&s->end);
    free(s->workers);
    free(s);
}

/* simt.h: runs the threads of a GPU kernel on the host, each as a fiber, and says what is wrong
 * with the kernel.
 *
 * A struct simt owns its workers (one OS thread and a set of fiber stacks each); a worker runs one
 * block at a time, a thread that never waits is a plain call. A fault (divergent barrier, deadlock,
 * early exit, copies not waited for, shared memory overrun) ends the launch with a text, never the
 * process. Must not know CUDA's names: cuda_host.hpp maps them. simt_run may be called by any
 * thread; calls queue. Tested by tests/kernels/test_simt.c.
 */
#ifndef TANDEM_TESTS_EMULATOR_SIMT_H
#define TANDEM_TESTS_EMULATOR_SIMT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    SIMT_WARP = 32,
    SIMT_WORDS = 8,          // 64-bit words that a lane can put into one exchange
    SIMT_THREADS_MAX = 1024, // in a block
    SIMT_COPIES_MAX = 64,    // asynchronous copies of one thread in flight
    SIMT_LINE = 128,         // bytes of a cache line
    SIMT_STACK = 1 << 17,    // bytes of a fiber's stack, a power of two and its alignment
    SIMT_STACKS = SIMT_STACK * SIMT_THREADS_MAX, // of a worker, and their alignment
};

struct simt_dim {
    unsigned x, y, z;
};

struct simt_place { // a line of a kernel
    const char *file;
    int line;
};

struct simt_block { // lent to the kernel while the block runs
    struct simt_dim index, size, grid;
    void *shared; // dynamic shared memory, all NaN when the block starts
    int arch;     // of the image, 10 * major + minor
};

struct simt_copy { // begun by a thread, not waited for yet
    void *target;
    const void *source;
    unsigned group;
};

struct simt_thread { // lent to the kernel while the thread runs
    struct simt_dim index;
    unsigned linear, lane;
    struct simt_block *block;
    unsigned n_copies, copy_group;
    struct simt_copy *copies; // [SIMT_COPIES_MAX]
};

struct simt_lanes { // what the lanes of a warp put into an exchange
    uint64_t word[SIMT_WARP][SIMT_WORDS];
};

typedef void simt_combine_fn(struct simt_lanes *lanes);

// ---- For kernels: only from inside simt_run ----------------------------------------------------

// The running thread: behind a worker's stacks lies a table of whose they are, close together,
// since every switch reads another entry.
static inline struct simt_thread *simt_self(void) {
    uintptr_t here;
    __asm__("movq %%rsp, %0" : "=r"(here));
    struct simt_thread **owners = (struct simt_thread **)((here | (SIMT_STACKS - 1)) + 1);
    return owners[here / SIMT_STACK % SIMT_THREADS_MAX];
}

// Waits for all threads of the block, which must come to the same place.
void simt_barrier(struct simt_place place);
// Puts n words into the exchange, waits for all lanes in mask at the same place, lets the last one
// run combine (may be NULL), and returns what all put there: valid until the lane's next exchange.
const struct simt_lanes *simt_exchange(uint32_t mask, const uint64_t *words, int n,
                                       simt_combine_fn *combine, struct simt_place place);
// True once an engine was opened that counts lines; then kernels note each of their loads.
extern bool simt_counts_lines;
// The running thread loads from p on, within one line.
void simt_note_load(const void *p);
// Ends the launch with that text.
void simt_fault(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));

// ---- For the host ------------------------------------------------------------------------------

struct simt;

struct simt_options {
    int n_workers;     // 0: 1
    bool counts_lines; // see struct simt_report
    // A barrier or __syncwarp that no thread waits at, as end of path:line; NULL: none. Lent.
    const char *left_out;
    unsigned seed;        // 0: threads run in order; else the order is random, the same per seed
    void (*poison)(void); // called on a worker before its first block of a launch; may be NULL
    void (*enter)(void);  // called once on every worker's own thread; may be NULL
};

struct simt_launch {
    void (*kernel)(const void *params);
    const void *params;
    const char *name; // for faults
    struct simt_dim grid, block;
    size_t shared_bytes;
    int arch;
};

struct simt_report {
    char text[1024]; // empty: none
    // Cache lines that the loads of all warps touch, if the engine counts them: the nth load of
    // each lane counts as one of the warp, as it is where lanes do not part.
    uint64_t n_lines;
};

// NULL if memory or threads are refused.
struct simt *simt_open(const struct simt_options *options);
// Runs all blocks. False with the text of the first fault.
bool simt_run(struct simt *s, const struct simt_launch *launch, struct simt_report *report);
void simt_close(struct simt *s); // NULL is allowed

#ifdef __cplusplus
}
#endif
#endif

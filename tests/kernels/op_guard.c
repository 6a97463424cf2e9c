/* op_guard.c: pages around the operands of an op that nobody can read or write, see op_check.h.
 *
 * Bytes beyond an operand that are only read change no result, and the sanitizers do not watch
 * mapped files: a load that goes too far is seen where it faults. Owns nothing but the handler of
 * the fault, which names the op and lets the program end by it. One thread arranges the scene, any
 * may fault. Used by tests/kernels/op_check.c.
 */
#include "tests/kernels/op_check.h"

#include "base/mem.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { LEAST_ALIGN = 4 }; // of operands: their numbers are floats and 32-bit integers

// The check that is running, for the handler.
static struct { const struct op_check *check; } watched;

uint64_t op_guard_add(struct op_check *c, uint64_t size_bytes) {
    ASSERT(c->n_regions < OP_REGIONS_MAX);
    const uint64_t first = round_up(c->used_bytes, c->page_bytes) + c->page_bytes;
    const uint64_t end = first + round_up(size_bytes, c->page_bytes);
    const bool at_end = op_random(c, 2);
    const uint64_t offset = at_end ? end - round_up(size_bytes, LEAST_ALIGN) : first;
    c->regions[c->n_regions++] = (struct op_region){offset, size_bytes};
    c->used_bytes = end + c->page_bytes;
    c->layout++;
    return offset;
}

struct op_region op_guard_span(const struct op_check *c, int i) {
    const struct op_region *region = &c->regions[i];
    const uint64_t first = region->offset & ~(c->page_bytes - 1);
    const uint64_t end = round_up(region->offset + region->size_bytes, c->page_bytes);
    return (struct op_region){first, end - first};
}

// How far place lies before the operand (negative) or beyond it.
static int64_t distance(const struct op_region *region, int64_t place) {
    const int64_t end = (int64_t)(region->offset + region->size_bytes);
    return place < (int64_t)region->offset ? place - (int64_t)region->offset : place - end + 1;
}

// Says which op touched the page, and how far from which operand.
static void tell(const struct op_check *c, int64_t place) {
    int nearest = 0;
    for (int i = 1; i < c->n_regions; i++) {
        if (llabs(distance(&c->regions[i], place)) < llabs(distance(&c->regions[nearest], place)))
            nearest = i;
    }
    const struct op_region *region = &c->regions[nearest];
    const int64_t off = distance(region, place);
    (void)dprintf(2, "not ok %s %s %s: %s: touched byte %lld %s operand %d of %llu bytes\n",
                  op_name(c->op), c->label, c->backend, c->what, llabs(off),
                  off < 0 ? "before" : "beyond", nearest, (unsigned long long)region->size_bytes);
}

// The fault comes again after this, without a handler, and ends the program.
static void at_fault(int number, siginfo_t *info, void *unused) {
    (void)unused;
    signal(number, SIG_DFL);
    const struct op_check *c = watched.check;
    const char *at = info->si_addr;
    for (int i = 0; i < c->n_rigs; i++) {
        const char *base = c->rigs[i].memory.base;
        if (at >= base && at < base + OP_SCENE_BYTES) tell(c, at - base);
    }
}

bool op_guard_close(struct op_check *c, struct op_rig *rig) {
    const struct sigaction action = {.sa_sigaction = at_fault, .sa_flags = SA_SIGINFO};
    char *base = rig->memory.base;
    bool done = mprotect(base, OP_SCENE_BYTES, PROT_READ | PROT_WRITE) == 0;
    uint64_t closed = 0; // where the pages between two operands begin
    for (int i = 0; i <= c->n_regions && done; i++) {
        const struct op_region span =
            i < c->n_regions ? op_guard_span(c, i) : (struct op_region){c->used_bytes, 0};
        done = mprotect(base + closed, span.offset - closed, PROT_NONE) == 0;
        closed = span.offset + span.size_bytes;
    }
    watched.check = c;
    done = done && sigaction(SIGSEGV, &action, NULL) == 0;
    if (!done) op_fail(c, "the pages around its operands: %s", strerror(errno));
    rig->layout = done ? c->layout : 0;
    return done;
}

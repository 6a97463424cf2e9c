/* fuzz_plan.c: libFuzzer entry for the reader of plan files.
 *
 * The shape is a fixed one with every kind of unit. What is accepted is replayed on a machine with
 * an accelerator, also with little RAM, and what is refused must say why. Run by
 * tests/fuzz/fuzz.sh.
 */
#include "tests/lib/small_shape.h"

#include "base/mem.h"
#include "planner/planner.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size_bytes);

static void replay(const struct shape *shape, const struct plan_file *file) {
    const struct machine machine = small_machine(UINT64_C(64) << 20);
    const struct constraints limits = {0}, little = {.ram_bytes = UINT64_C(20) << 20};
    struct plan *plan = mem_alloc(1, sizeof *plan);
    struct err e = {0};
    if (plan && plan_replay(plan, shape, &machine, file, &limits, &e)) ASSERT(e.what[0]);
    e = (struct err){0};
    if (plan && plan_replay_paged(plan, shape, &machine, file, &little, &e)) ASSERT(e.what[0]);
    mem_free(plan);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size_bytes) {
    struct shape *shape = mem_alloc(1, sizeof *shape);
    struct plan_file file;
    struct err e = {0};
    if (!shape) return 0;
    small_shape(shape);
    if (plan_parse(&file, shape, (const char *)bytes, size_bytes, &e) == OK)
        replay(shape, &file);
    else
        ASSERT(e.what[0]);
    mem_free(shape);
    return 0;
}

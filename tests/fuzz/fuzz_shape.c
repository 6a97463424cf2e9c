/* fuzz_shape.c: libFuzzer entry for shapes in JSON.
 *
 * A refusal must say why; an accepted shape must pass shape_check, have bytes, and stay a shape
 * with ever smaller types until there are none. Run by tests/fuzz/fuzz.sh.
 */
#include "planner/planner.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size_bytes);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size_bytes) {
    static struct shape room; // megabytes: too slow to allocate each time
    struct shape *shape = &room;
    struct err e;
    if (shape_parse(shape, (const char *)bytes, size_bytes, &e)) {
        ASSERT(e.status == ERR_FORMAT && e.what[0]);
    } else {
        uint64_t now = shape_weight_bytes(shape), last;
        ASSERT(now > 0);
        do {
            ASSERT(shape_check(shape, &e) == OK);
            last = now;
            if (!shape_smaller_quant(shape, shape)) break;
            now = shape_weight_bytes(shape);
            ASSERT(now < last);
        } while (last);
    }
    return 0;
}

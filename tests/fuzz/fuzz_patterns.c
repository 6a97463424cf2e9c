/* fuzz_patterns.c: libFuzzer entry for "-ot" texts.
 *
 * A text is refused as a wrong use with a reason, or gives every unit a device or none. Neither may
 * take long, however often a pattern repeats. Run by tests/fuzz/fuzz.sh.
 */
#include "planner/planner.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size_bytes);

static const char MODEL[] =
    "{\"name\":\"n\",\"architecture\":\"a\",\"quant\":\"F16\",\"n_layers\":2,\"n_embd\":64,"
    "\"n_vocab\":100,\"n_ctx_train\":512,\"attention\":{\"n_heads\":4},"
    "\"experts\":{\"n_experts\":4,\"n_experts_used\":2,\"n_ff\":32}}";

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size_bytes) {
    static struct shape shape; // big, and made once
    static struct constraints c;
    struct err e;
    char text[1024] = "";
    if (shape.n_units == 0) ASSERT(shape_parse(&shape, MODEL, strlen(MODEL), &e) == OK);
    if (size_bytes >= sizeof text) return 0;
    for (size_t i = 0; i < size_bytes; i++) text[i] = (char)(bytes[i] ? bytes[i] : 'a');
    c.has_units = false;
    if (constraints_add_patterns(&c, &shape, text, &e)) {
        ASSERT(e.status == ERR_USAGE && e.what[0]);
        return 0;
    }
    int n_set = 0;
    for (int u = 0; u < shape.n_units; u++) {
        ASSERT(c.place.units[u].device >= DEVICE_ANY && c.place.units[u].device < MAX_DEVICES);
        n_set += c.place.units[u].device != DEVICE_ANY;
    }
    ASSERT(n_set > 0);
    return 0;
}

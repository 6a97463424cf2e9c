/* fuzz_dmi.c: libFuzzer entry for the firmware's table of memory modules.
 *
 * Whatever the bytes are, the parser stays inside them and its counts are possible. Run by
 * tests/fuzz/fuzz.sh.
 */
#include "base/err.h"
#include "base/hardware.h"
#include "base/mem.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size_bytes);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size_bytes) {
    uint8_t *copy = mem_alloc(size_bytes + 1, 1); // so that an access behind the end is seen
    if (!copy) return 0;
    memcpy(copy + 1, bytes, size_bytes);
    struct memory_modules m;
    const bool found = hardware_parse_dmi(copy + 1, size_bytes, &m);
    ASSERT(found == (m.n_modules > 0));
    ASSERT(m.n_modules <= m.n_slots);
    ASSERT(m.n_channels <= m.n_modules);
    ASSERT((size_t)m.n_slots <= size_bytes / 23);
    mem_free(copy);
    return 0;
}

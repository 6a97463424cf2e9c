/* fuzz_gguf.c: libFuzzer entry for the GGUF reader.
 *
 * Every input is opened as a file in memory; what is accepted is read whole through the public API,
 * and what is refused must say why. Split models need more than one file and are left to
 * tests/test_gguf.c. Run by tests/fuzz.sh.
 */
#include "tests/gguf_walk.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size_bytes);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size_bytes) {
    gguf_walk_bytes(bytes, size_bytes);
    return 0;
}

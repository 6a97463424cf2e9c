/* fuzz_importance.c: libFuzzer entry for the readers of importance, in GGUF and in the older form.
 *
 * Every input is opened as a file in memory. Accepted values are all read, looked for by their
 * names and chosen among; refusals must say why. Run by tests/fuzz/fuzz.sh.
 */
#include "runtime/quantize/importance.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size_bytes);

static void read_entry(const struct importance *m, const struct importance_entry *entry) {
    struct gguf_tensor t = {.name = {entry->name, strlen(entry->name)},
                            .ne = {entry->n_values, 1, 1, 1}};
    const float *values = NULL;
    bool per_matrix;
    struct err e;
    for (uint64_t i = 0; i < entry->n_values; i++) ASSERT(entry->values[i] >= 0);
    ASSERT(importance_find(m, &t, &values, &per_matrix, &e) == OK);
    ASSERT(!values || values == entry->values);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size_bytes) {
    static const char *const names[] = {"a"};
    const struct importance_choice choice = {names, 1, true};
    char path[32];
    struct importance m;
    struct err e = {0};
    const int descriptor = memfd_create("importance", MFD_CLOEXEC);
    ASSERT(descriptor >= 0);
    ASSERT(write(descriptor, bytes, size_bytes) == (ssize_t)size_bytes);
    snprintf(path, sizeof path, "/proc/self/fd/%d", descriptor);
    if (importance_open(&m, path, &e) == OK) {
        for (uint32_t i = 0; i < m.n_entries; i++) read_entry(&m, &m.entries[i]);
        if (importance_choose(&m, &choice, NULL, &e)) ASSERT(m.n_entries == 0 && e.what[0]);
    } else {
        ASSERT(e.what[0]);
    }
    importance_close(&m);
    close(descriptor);
    return 0;
}

/* fuzz_machine.c: libFuzzer entry for machine files.
 *
 * An accepted machine passes machine_check, is saved and read again as the same machine, and
 * answers every question; a refusal says why. Run by tests/fuzz/fuzz.sh.
 */
#include "planner/machine/machine.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size_bytes);

static void require(bool condition) {
    if (!condition) abort();
}

static void check_round_trip(const struct machine *m) {
    char *text = NULL;
    size_t size;
    struct machine again;
    struct err e = {0};
    FILE *out = open_memstream(&text, &size);
    require(out && machine_save(m, out, &e) == OK);
    fclose(out);
    require(machine_parse(&again, text, size, &e) == OK);
    require(memcmp(m, &again, sizeof again) == 0);
    free(text);
}

static void check_questions(struct machine *m) {
    struct err e = {0};
    int32_t team = machine_decode_team(m);
    require(team >= 0 && (team > 0) == (m->n_team_sizes > 0));
    require(machine_take_nearest_rates(m, &e) == OK && machine_check(m, &e) == OK);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size_bytes) {
    struct machine m;
    struct err e = {0};
    if (machine_parse(&m, (const char *)bytes, size_bytes, &e) != OK) {
        require(e.status == ERR_FORMAT && e.what[0]);
        return 0;
    }
    require(machine_check(&m, &e) == OK);
    check_round_trip(&m);
    check_questions(&m);
    return 0;
}

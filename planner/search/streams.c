/* streams.c: see streams.h. */
#include "planner/search/streams.h"

#include "planner/machine/machine.h"

enum {
    ATTENTION = STREAM_SPLIT_ATTENTION | STREAM_ATTENTION,
    BOTH_FFNS = STREAM_FFNS | STREAM_EXPERTS,
};

uint8_t streams_group(enum unit_kind kind, const struct unit_place *place) {
    if (place->device != DEVICE_HOST && !place->cpu_parts) return 0;
    if (kind == UNIT_EXPERTS) return STREAM_EXPERTS;
    if (kind != UNIT_ATTENTION) return STREAM_FFNS;
    return place->cpu_parts ? STREAM_SPLIT_ATTENTION : STREAM_ATTENTION;
}

uint8_t streams_set(int i) {
    static const uint8_t SETS[STREAM_SETS] = {BOTH_FFNS, BOTH_FFNS | ATTENTION, ATTENTION,
                                              STREAM_FFNS, STREAM_FFNS | ATTENTION};
    return SETS[i];
}

/* calibration.h: the results of calibrate besides the rates in a struct machine, and whether they
 * are to be trusted.
 *
 * A plain value without pointers, filled by calibrate.c and calibrate_link.c. Any thread. Tested by
 * tests/runtime/test_calibrate.c.
 */
#ifndef TANDEM_RUNTIME_HOST_CALIBRATION_H
#define TANDEM_RUNTIME_HOST_CALIBRATION_H

#include "planner/planner.h"

#include <stdint.h>

enum { LINK_BLOCKS = 7 }; // 4 KiB, 16 KiB, ... 16 MiB

// Copies of one size from and to pinned memory; 0: not measured.
struct link_block {
    uint64_t size_bytes;
    double to_gbps, from_gbps;
};

struct calibration {
    uint32_t measured[MAX_DEVICES]; // bit 1 << WEIGHT_x: measured in all classes; the other types
                                    // are scaled
    struct link_block blocks[LINK_BLOCKS];
    double cpu_alone_gbps, cpu_beside_gbps;   // reading weights, without and beside copies
    double copy_alone_gbps, copy_beside_gbps; // copies to the device, without and beside reads
    int32_t decode_team; // threads by which the rates of one token were measured
    double seconds;
    double spread;      // a quarter of the figures differed among visits by that much or more: 0.1
                        // is 10 %
    double busy_others; // processors that other programs kept busy meanwhile, on average
    int64_t made_at;    // seconds since 1970
};

// How much others disturbed a measurement, as a share of what is tolerable.
double calibration_noise(const struct calibration *c);
// True if its rates are not to be trusted.
static inline bool calibration_is_noisy(const struct calibration *c) {
    return calibration_noise(c) > 1;
}
// True if it may take the place of an older one: it is quiet, or no noisier.
bool calibration_replaces(const struct calibration *c, const struct calibration *older);
// Writes the reason why one is noisy, in words that go on with "while": "the speeds varied by 31 %
// and other programs kept 1.9 processors busy". Returns out.
char *calibration_reason(const struct calibration *c, char *out, size_t size_bytes);
// Writes the day on which it was made, "2026-11-23", or "an unknown day". Returns out.
char *calibration_date(const struct calibration *c, char *out, size_t size_bytes);

#endif

/* calibration.h: the results of calibrate besides the rates in a struct machine.
 *
 * A plain value without pointers, filled by calibrate.c and calibrate_link.c. Any thread. Tested by
 * tests/runtime/test_calibrate.c.
 */
#ifndef TANDEM_RUNTIME_HOST_CALIBRATION_H
#define TANDEM_RUNTIME_HOST_CALIBRATION_H

#include "planner/planner.h"

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
};

#endif

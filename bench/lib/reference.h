/* reference.h: compares the machine's current speed with its calibration.
 *
 * A shared computer changes its speed within seconds. So one kernel that the calibration has timed
 * is timed again beside each measurement: if both times agree, the calibration still holds. Owns
 * the devices that it is given and memory to read. One thread. Used by bench_prediction.c.
 */
#ifndef TANDEM_BENCH_LIB_REFERENCE_H
#define TANDEM_BENCH_LIB_REFERENCE_H

#include "planner/planner.h"
#include "runtime/host/rig.h"

struct reference {
    struct device *devices[MAX_DEVICES]; // owned; NULL: there is none
    struct rig rigs[MAX_DEVICES];
    struct machine machine; // calibrated
    void *pool;             // memory that the CPU reads, owned
};

// Takes ownership of the devices, which must not be sealed, even if it fails; machine holds their
// measured rates. ERR_MEMORY, ERR_DEVICE. reference_close accepts a zeroed or half-open one.
enum status reference_open(struct reference *r, struct device *const devices[MAX_DEVICES],
                           const struct machine *machine, struct err *e);
void reference_close(struct reference *r);

// The timed kernel: a matmul of that type and class of tokens on device d, which reads as many
// bytes of weights in turn as a pass; cached: the device's cache should keep them.
struct reference_job {
    int d;
    enum weight_type type;
    int class; // index into RATE_TOKENS
    uint64_t read_bytes;
    double cached;
};

// Takes some 50 ms. *slower gets its current time divided by its time in the calibration: 1.2 is 20
// % slower.
enum status reference_time(struct reference *r, const struct reference_job *job, double *slower,
                           struct err *e);

#endif

/* meter.h: the clocks that a calibration reads: this computer's, or those of a test.
 *
 * A struct meter is a plain value that borrows its context. Nothing here waits or measures by
 * itself. Any thread. Tested by tests/runtime/test_calibrate.c.
 */
#ifndef TANDEM_RUNTIME_HOST_METER_H
#define TANDEM_RUNTIME_HOST_METER_H

#include <stdbool.h>
#include <stdint.h>

struct meter {
    uint64_t (*now_ns)(void *context); // as clock_ns
    // Processor time that programs other than this one have taken since some start, of all
    // processors together; 0 throughout if the system does not tell.
    uint64_t (*others_ns)(void *context);
    // Processor time of this program, as clock_process_ns; NULL: nobody knows, and the program
    // counts as one that always runs.
    uint64_t (*own_ns)(void *context);
    void *context; // borrowed
};

// The readings of a meter; NULL is this computer's own.
uint64_t meter_now_ns(const struct meter *meter);
uint64_t meter_others_ns(const struct meter *meter);
// False if the meter does not know.
bool meter_own_ns(const struct meter *meter, uint64_t *out);

#endif

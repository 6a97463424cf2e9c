/* cpu_device.h: opens the CPU as a device.
 *
 * Everything else about it goes through kernels/device.h. The caller owns the device and closes it.
 * One thread drives a device at a time. Tested by tests/kernels/test_device.c.
 */
#ifndef TANDEM_KERNELS_CPU_DEVICE_CPU_DEVICE_H
#define TANDEM_KERNELS_CPU_DEVICE_CPU_DEVICE_H

#include "kernels/cpu/device/isa.h"
#include "kernels/device.h"

struct cpu_options {
    enum cpu_isa isa; // the strongest level to use; ISA_AUTO: the best of this CPU. A level that it
                      // lacks is ERR_UNSUPPORTED
    int32_t n_threads;       // decode team; 0: one per performance core
    int32_t n_threads_batch; // prefill team; 0: as n_threads
    bool no_bind;            // threads are not bound to processors
};

// Opens the CPU as a device. The caller owns *out and closes it. log may be NULL.
enum status device_open_cpu(struct device **out, const struct cpu_options *options,
                            const struct log *log, struct err *e);

#endif

/* metal_device.h: opens the GPU of a Mac with Apple silicon as a device.
 *
 * Everything else about it goes through kernels/device.h. The caller owns the device and closes it.
 * Needs no Mac to build or start: elsewhere opening fails with the reason. One thread drives a
 * device at a time. Tested by tests/kernels/test_metal.c.
 */
#ifndef TANDEM_KERNELS_METAL_METAL_DEVICE_H
#define TANDEM_KERNELS_METAL_METAL_DEVICE_H

#include "kernels/device.h"
#include "kernels/metal/metal_options.h"

// ERR_UNSUPPORTED without Metal or a GPU that shares the host's memory, ERR_DEVICE if the GPU
// cannot be used, ERR_MEMORY, ERR_FILE. log may be NULL and must outlive the device.
enum status metal_device_open(struct device **out, const struct metal_options *options,
                              const struct log *log, struct err *e);

// Opens "--device metal" and "--device metal:SPEC".
enum status metal_device_open_spec(struct device **out, const char *spec,
                                   const struct cpu_options *cpu, const struct log *log,
                                   struct err *e);

#endif

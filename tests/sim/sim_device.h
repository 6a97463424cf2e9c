/* sim_device.h: an accelerator that exists only in host memory, for tests without one.
 *
 * It has its own address space, a fixed capacity, throttled links, a worker thread per stream and
 * faults on demand; it computes with the CPU's kernels, so that its results are bit for bit the
 * CPU's. Its addresses are no host addresses: whoever follows one on the host dies at once, and an
 * op or a copy that is given a wrong one fails its stream. Events of sim devices may be waited for
 * by each other. Tested by tests/sim/test_sim.c.
 */
#ifndef TANDEM_TESTS_SIM_SIM_DEVICE_H
#define TANDEM_TESTS_SIM_SIM_DEVICE_H

#include "kernels/device.h"

// "--device sim:vram=96M,h2d=2G,..."; see sim_spec.h.
extern const struct device_driver sim_driver;

#endif

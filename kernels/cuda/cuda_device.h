/* cuda_device.h: opens an NVIDIA GPU as a device.
 *
 * Everything else about it goes through kernels/device.h. The caller owns the device and closes it.
 * Needs no driver and no GPU to build or start: without them opening fails with the reason. One
 * thread drives a device at a time. Tested by tests/kernels/test_cuda.c.
 */
#ifndef TANDEM_KERNELS_CUDA_CUDA_DEVICE_H
#define TANDEM_KERNELS_CUDA_CUDA_DEVICE_H

#include "kernels/device.h"

struct cuda_options {
    int32_t index;        // which GPU, as the driver counts them
    char driver[256];     // path of the driver's library; empty: libcuda.so.1
    char image[24];       // the only set of kernels to load ("compute_75"); empty: the best
    bool no_graphs;       // no launches are replayed as graphs
    bool no_flags;        // the GPU does not wait for the CPU: the calling thread does
    bool no_tensor_cores; // kernels for devices without them
    bool wsl2;            // as on WSL2, where it is always so
    bool times; // measures each launch, one by one, and logs the times of kernels when it is closed
};

// Reads "", "1" or "index=1,driver=PATH,image=compute_75,graphs=0,flags=0,tensor=0,wsl2=1,times=1"
// in any order, each part optional. ERR_USAGE names what is wrong.
enum status cuda_options_parse(struct cuda_options *out, const char *spec, struct err *e);

// ERR_UNSUPPORTED without a driver or a GPU, ERR_DEVICE if the GPU cannot be used, ERR_MEMORY. log
// may be NULL and must outlive the device.
enum status cuda_device_open(struct device **out, const struct cuda_options *options,
                             const struct log *log, struct err *e);

// Opens "--device cuda" and "--device cuda:SPEC".
enum status cuda_device_open_spec(struct device **out, const char *spec,
                                  const struct cpu_options *cpu, const struct log *log,
                                  struct err *e);

#endif

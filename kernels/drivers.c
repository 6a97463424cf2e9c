/* drivers.c: see drivers.h. The only file that names the backends; the build says which there are.
 */
#include "kernels/drivers.h"

#if HAVE_CUDA
#include "kernels/cuda/cuda_device.h"
#endif
#include "kernels/metal/metal_device.h"

const struct device_driver *device_drivers(int *n) {
    static const struct device_driver drivers[] = {
#if HAVE_CUDA
        {.prefix = "cuda",
         .pci_vendor = 0x10de,
         .cache_variable = "CUDA_CACHE_PATH",
         .help = "cuda[:N]  NVIDIA GPU number N (0), compute capability 6.1 or newer",
         .open = cuda_device_open_spec},
#endif
        {.prefix = "metal",
         .help = "metal[:N]  GPU number N (0) of a Mac with Apple silicon; emulated, never run on "
                 "a Mac",
         .open = metal_device_open_spec},
    };
    *n = sizeof drivers / sizeof *drivers;
    return drivers;
}

/* drivers.c: see drivers.h. The only file that names the backends; the build says which there are.
 */
#include "kernels/drivers.h"

#include <stddef.h>

#if HAVE_CUDA
#include "kernels/cuda/cuda_device.h"
#endif

#if HAVE_CUDA
const struct device_driver *device_drivers(int *n) {
    *n = 1;
    return &cuda_device_driver;
}
#else
const struct device_driver *device_drivers(int *n) {
    *n = 0;
    return NULL;
}
#endif

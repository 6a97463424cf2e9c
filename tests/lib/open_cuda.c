/* open_cuda.c: see open_cuda.h. */
#include "tests/lib/open_cuda.h"

#include "kernels/cuda/cuda_device.h"
#include "tests/lib/find_emulator.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

struct device *open_cuda(const char *capability) {
    struct device *d = NULL;
    struct cuda_options o = {0};
    struct err e = {0};
    if (capability) setenv("EMU_CUDA_CC", capability, 1);
    assert_true(find_emulator(o.driver, sizeof o.driver));
    if (cuda_device_open(&d, &o, NULL, &e) != OK) fail_msg("%s", e.what);
    return d;
}

/* cuda_images.h: the compiled kernels inside this program, and the choice among them.
 *
 * A target ("sm_86", "compute_75") is a set of images, one per .cu file: native code of nvcc for
 * one architecture, or PTX that the driver translates for any architecture that is no older. The
 * build writes the table of images. A struct cuda_program is the caller's and owns the loaded
 * modules; the context must be current. One thread at a time. Tested by tests/kernels/test_cuda.c.
 */
#ifndef TANDEM_KERNELS_CUDA_CUDA_IMAGES_H
#define TANDEM_KERNELS_CUDA_CUDA_IMAGES_H

#include "base/log.h"
#include "kernels/cuda/cuda_driver.h"

enum cuda_kernel {
#define CUDA_KERNEL(name, params) KERNEL_##name,
#include "kernels/cuda/kernels.def"
#undef CUDA_KERNEL
    KERNEL_COUNT
};
const char *cuda_kernel_name(enum cuda_kernel kernel); // "rms_norm"

enum { CUDA_MODULES_MAX = 32 };

struct cuda_program {
    struct CUmod_st *modules[CUDA_MODULES_MAX];
    int n_modules;
    struct CUfunc_st *kernels[KERNEL_COUNT];
    bool tensor_cores;  // they are used: kernels for devices without them are NULL, else kernels
                        // that need them
    int arch;           // of the target: 75 for "sm_75" and "compute_75"
    char target[24];    // its name
    char refused[1024]; // "sm_90: made for another GPU; ...": the other targets and why each was
                        // refused
};

#define CUDA_TRANSLATION_NS UINT64_C(1000000000)

enum { TENSOR_CORES_ARCH = 75 }; // the first with the matrix instructions that the kernels use

struct cuda_program_options {
    int arch;              // compute capability of the device: 75 is 7.5
    bool tensor_cores;     // use them, where the target can
    const char *only;      // the single target to try, or NULL
    const char *device;    // its name
    const struct log *log; // borrowed during the call, may be NULL
};

// Loads the best target: native code of the nearest architecture, else the newest PTX; if the
// driver refuses one, the next. ERR_DEVICE if none is left, saying why each was refused; ERR_MEMORY
// if the host has none for the unpacked images, of which one at a time lives. Where the driver
// takes longer than CUDA_TRANSLATION_NS to translate PTX, a line says that it does.
enum status cuda_program_open(struct cuda_program *program, const struct cuda_driver *driver,
                              const struct cuda_program_options *options, struct err *e);
// Accepts a zeroed or half-built one; leaves it zeroed.
void cuda_program_close(struct cuda_program *program, const struct cuda_driver *driver);

#endif

/* device.metal: what every kernel begins with: Metal's library and the arguments of the ops.
 *
 * The structs are those of kernels/ops.h and kernels/metal/params.h, made from them by the build:
 * pointers are numbers in them (0: NULL), and buffer index k + 1 is what pointer k points to. Every
 * .metal file is a part of one text that the program hands to Metal, so that names of functions are
 * unique and a file that others include has guards like this one. Besides Metal's language only
 * #include, #define and #undef may be used. Owns nothing. Tested by
 * tests/cli/cli_metal_dialect.sh and tests/kernels/test_metal_kernels.c.
 */
#ifndef TANDEM_KERNELS_METAL_DEVICE_METAL
#define TANDEM_KERNELS_METAL_DEVICE_METAL

#include <metal_stdlib>
using namespace metal;

#include "build/metal/args.metal"

#endif

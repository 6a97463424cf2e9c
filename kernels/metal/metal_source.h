/* metal_source.h: the text of all kernels, which Metal compiles when a device is opened.
 *
 * Made at build time from the .metal files by the preprocessor and kernels/metal/source.awk; lines
 * name their files, so that Metal's errors do. Owns nothing; constant; any thread. Tested by
 * tests/kernels/test_metal_kernels.c.
 */
#ifndef TANDEM_KERNELS_METAL_METAL_SOURCE_H
#define TANDEM_KERNELS_METAL_METAL_SOURCE_H

extern const char metal_source[]; // Metal 2.3, UTF-8, ended by a zero

#endif

/* cuda_embed.h: puts an image that the build made into the program.
 *
 * CUDA_EMBED(target, file, path) declares cuda_image_<target>_<file>, the bytes of path, aligned as
 * the driver wants them and followed by a byte 0, since PTX is text. Owns nothing: the bytes are
 * read-only data. Included by cuda_images.c and by programs with kernels of their own. Tested by
 * tests/kernels/test_cuda.c.
 */
#ifndef TANDEM_KERNELS_CUDA_CUDA_EMBED_H
#define TANDEM_KERNELS_CUDA_CUDA_EMBED_H

#include "base/embed.h"

#define CUDA_EMBED(target, file, path) EMBED_FILE(cuda_image_##target##_##file, path, 64)

#endif

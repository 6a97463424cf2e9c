/* cuda_fuse.h: lets the launch that a stream's list ends with do what the next one would do.
 *
 * A launch costs more than the small ops of one token. A kernel that does both takes the place of
 * the list's last launch, and writes all that the two would have written, the same bits, so nobody
 * needs to know who reads what lies between. Nothing can come between the two: with a launch
 * between them another one is the last, and whatever must see the memory in between (an event, a
 * wait, a copy by the driver, a call of the host, a full list) submits the list before, which then
 * is empty. The two become one only where no thread of it can read what another thread of it
 * writes. Owns nothing. One thread per device. Tested by tests/kernels/test_cuda_fuse.c.
 */
#ifndef TANDEM_KERNELS_CUDA_CUDA_FUSE_H
#define TANDEM_KERNELS_CUDA_CUDA_FUSE_H

#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/params.h"

bool cuda_overlap(const void *a, uint64_t a_bytes, const void *b, uint64_t b_bytes);

// Quantises p->x where a norm, a gated unit or the last part of attention makes it, for few tokens.
// False, and nothing done, if the last launch is none of them or makes another x.
bool cuda_fuse_quantize(struct cuda_stream *s, const struct quantize_params *p);

// Stores k, and v with it, where rope turns k. False, and nothing done, if the last launch does
// not.
bool cuda_fuse_store(struct cuda_stream *s, const struct kv_store_args *a);

// Appends the product of a weight and one token, or computes it where products of the same x are
// computed, up to MATMUL_PARTS of them. Their types are the same, or all in MATMUL_MIXED.
void cuda_multiply_one(struct cuda_stream *s, enum weight_type type, const struct matmul_params *p);

#endif

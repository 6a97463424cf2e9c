/* cuda_backend.h: what the files of the CUDA backend share: its device, its streams, its op table.
 *
 * A device owns the driver, the device's primary context and the loaded kernels; a stream owns its
 * launches and the memory that attention cuts long contexts into. Included only inside
 * kernels/cuda. One thread drives a device at a time. Tested by tests/test_cuda.c.
 */
#ifndef TANDEM_KERNELS_CUDA_CUDA_BACKEND_H
#define TANDEM_KERNELS_CUDA_CUDA_BACKEND_H

#include "kernels/cuda/cuda_list.h"
#include "kernels/device.h"

enum {
    CUDA_REGIONS = 8,             // host memory that may be pinned at once
    CUDA_PARTIAL_BYTES = 2 << 20, // of one compute stream
};

struct cuda_device {
    struct device base;
    const struct log *log; // borrowed
    struct cuda_driver driver;
    struct CUctx_st *context;
    struct cuda_program program;
    int number; // the driver's, of the device
    int arch;   // compute capability: 75 is 7.5
    int n_multiprocessors;
    bool tensor_cores; // and kernels that use them
    void *pinned[CUDA_REGIONS];
};

// Activations that lie quantised in scratch: the next matmul of the same ones need not do it again.
struct cuda_quantized {
    const float *x; // NULL: none
    const void *scratch;
    int32_t n_tokens, n_cols;
};

struct cuda_stream {
    struct stream base;
    struct CUstream_st *handle;
    struct err failure;         // the first one; all that is encoded after it is skipped
    struct cuda_queue queue;    // of compute streams
    unsigned long long partial; // device memory of CUDA_PARTIAL_BYTES, of compute streams
    struct cuda_quantized quantized;
};

// The op table: every entry appends its launches to the stream's queue.
extern const struct op_table *const cuda_op_table;

// Submits what the stream has encoded; the context is current afterwards. Keeps the first failure.
void cuda_submit(struct cuda_stream *s);

#endif

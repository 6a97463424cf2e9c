/* cuda_check.c: holds our own declarations of the driver against the toolkit's, where there is one.
 *
 * Only static assertions: without cuda.h the file is empty, and nothing of it is ever called.
 * Prototypes are compared type by type; enumerations are compatible with unsigned there.
 */
#if __has_include(<cuda.h>)

#include "kernels/cuda/cuda_driver.h"

#include <assert.h>
#include <cuda.h>

#define SAME_TYPE(field, symbol, parameters) \
    static_assert(_Generic(&symbol, unsigned(*) parameters : 1, default : 0), #symbol);
CUDA_DRIVER_CALLS(SAME_TYPE)
#if CUDA_VERSION >= 11040
CUDA_DRIVER_GRAPH_CALLS(SAME_TYPE)
#endif
#undef SAME_TYPE

#define SAME_VALUE(ours, theirs) static_assert((int)(ours) == (int)(theirs), #theirs)
SAME_VALUE(DRIVER_SUCCESS, CUDA_SUCCESS);
SAME_VALUE(DRIVER_OUT_OF_MEMORY, CUDA_ERROR_OUT_OF_MEMORY);
SAME_VALUE(DRIVER_STUB_LIBRARY, CUDA_ERROR_STUB_LIBRARY);
SAME_VALUE(DRIVER_NO_DEVICE, CUDA_ERROR_NO_DEVICE);
SAME_VALUE(DRIVER_ATTRIBUTE_MULTIPROCESSORS, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
SAME_VALUE(DRIVER_ATTRIBUTE_MAJOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
SAME_VALUE(DRIVER_ATTRIBUTE_MINOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
SAME_VALUE(DRIVER_FUNCTION_MAX_THREADS, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
SAME_VALUE(DRIVER_STREAM_NON_BLOCKING, CU_STREAM_NON_BLOCKING);
SAME_VALUE(DRIVER_EVENT_DISABLE_TIMING, CU_EVENT_DISABLE_TIMING);
SAME_VALUE(DRIVER_JIT_ERROR_LOG, CU_JIT_ERROR_LOG_BUFFER);
SAME_VALUE(DRIVER_JIT_ERROR_LOG_BYTES, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES);

#if CUDA_VERSION >= 12000
typedef CUDA_KERNEL_NODE_PARAMS_v1 toolkit_kernel_node;
#else
typedef CUDA_KERNEL_NODE_PARAMS toolkit_kernel_node;
#endif
#define SAME_PLACE(ours, theirs) \
    static_assert(               \
        offsetof(struct cuda_kernel_node, ours) == offsetof(toolkit_kernel_node, theirs), #theirs)
static_assert(sizeof(struct cuda_kernel_node) == sizeof(toolkit_kernel_node), "kernel node");
SAME_PLACE(function, func);
SAME_PLACE(grid, gridDimX);
SAME_PLACE(block, blockDimX);
SAME_PLACE(shared_bytes, sharedMemBytes);
SAME_PLACE(params, kernelParams);
SAME_PLACE(extra, extra);

#else

enum { NO_TOOLKIT_TO_CHECK_AGAINST }; // ISO C wants a declaration in every file

#endif

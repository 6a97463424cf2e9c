/* cuda_check.c: compares our own declarations of the driver with those of the toolkit, where one is
 * installed.
 *
 * Only static assertions: without cuda.h the file is empty, and nothing of it is ever called.
 * Prototypes are compared type by type; an enumeration of the toolkit is compatible with unsigned.
 */
#if __has_include(<cuda.h>)

#include "kernels/cuda/cuda_driver.h"

#include <assert.h>
#include <cuda.h>

#define SAME_TYPE(field, symbol, parameters) \
    static_assert(_Generic(&symbol, unsigned(*) parameters : 1, default : 0), #symbol);
CUDA_DRIVER_CALLS(SAME_TYPE)
CUDA_DRIVER_HOST_CALLS(SAME_TYPE)
#define SAME_NEW_TYPE(field, symbol, old_symbol, parameters) SAME_TYPE(field, symbol, parameters)
CUDA_DRIVER_RENAMED_CALLS(SAME_NEW_TYPE)
#undef SAME_NEW_TYPE
#if CUDA_VERSION >= 11040
CUDA_DRIVER_GRAPH_CALLS(SAME_TYPE)
#endif
#if CUDA_VERSION >= 12000
CUDA_DRIVER_FLAG_CALLS(SAME_TYPE)
#endif
#undef SAME_TYPE

#define SAME_VALUE(ours, theirs) static_assert((int)(ours) == (int)(theirs), #theirs)
SAME_VALUE(DRIVER_SUCCESS, CUDA_SUCCESS);
SAME_VALUE(DRIVER_OUT_OF_MEMORY, CUDA_ERROR_OUT_OF_MEMORY);
SAME_VALUE(DRIVER_STUB_LIBRARY, CUDA_ERROR_STUB_LIBRARY);
SAME_VALUE(DRIVER_NO_DEVICE, CUDA_ERROR_NO_DEVICE);
SAME_VALUE(DRIVER_NOT_READY, CUDA_ERROR_NOT_READY);
SAME_VALUE(DRIVER_ILLEGAL_ADDRESS, CUDA_ERROR_ILLEGAL_ADDRESS);
SAME_VALUE(DRIVER_LAUNCH_FAILED, CUDA_ERROR_LAUNCH_FAILED);
SAME_VALUE(DRIVER_ATTRIBUTE_MULTIPROCESSORS, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
SAME_VALUE(DRIVER_ATTRIBUTE_MAPS_HOST, CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY);
SAME_VALUE(DRIVER_ATTRIBUTE_MEMORY_CLOCK, CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE);
SAME_VALUE(DRIVER_ATTRIBUTE_BUS_WIDTH, CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH);
SAME_VALUE(DRIVER_ATTRIBUTE_MAJOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
SAME_VALUE(DRIVER_ATTRIBUTE_MINOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
SAME_VALUE(DRIVER_FUNCTION_MAX_THREADS, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
SAME_VALUE(DRIVER_STREAM_NON_BLOCKING, CU_STREAM_NON_BLOCKING);
SAME_VALUE(DRIVER_EVENT_DISABLE_TIMING, CU_EVENT_DISABLE_TIMING);
SAME_VALUE(DRIVER_REGISTER_MAPPED, CU_MEMHOSTREGISTER_DEVICEMAP);
#if CUDA_VERSION >= 11010
SAME_VALUE(DRIVER_ATTRIBUTE_PINS_READ_ONLY, CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED);
SAME_VALUE(DRIVER_REGISTER_READ_ONLY, CU_MEMHOSTREGISTER_READ_ONLY);
#endif
SAME_VALUE(DRIVER_MEMORY_HOST, CU_MEMORYTYPE_HOST);
SAME_VALUE(DRIVER_MEMORY_DEVICE, CU_MEMORYTYPE_DEVICE);
SAME_VALUE(DRIVER_JIT_ERROR_LOG, CU_JIT_ERROR_LOG_BUFFER);
SAME_VALUE(DRIVER_JIT_ERROR_LOG_BYTES, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES);
#if CUDA_VERSION >= 12000
SAME_VALUE(DRIVER_WAIT_UNTIL_GREATER_OR_EQUAL, CU_STREAM_WAIT_VALUE_GEQ);
SAME_VALUE(DRIVER_WRITE_BEHIND_A_FENCE, CU_STREAM_WRITE_VALUE_DEFAULT);
SAME_VALUE(DRIVER_MEMORY_OP_WAIT, CU_STREAM_MEM_OP_WAIT_VALUE_32);
SAME_VALUE(DRIVER_MEMORY_OP_WRITE, CU_STREAM_MEM_OP_WRITE_VALUE_32);
#endif

#if CUDA_VERSION >= 12000
typedef CUDA_KERNEL_NODE_PARAMS_v1 toolkit_kernel_node;
#else
typedef CUDA_KERNEL_NODE_PARAMS toolkit_kernel_node;
#endif
#define SAME_PLACE(ours, field, theirs, member) \
    static_assert(offsetof(struct ours, field) == offsetof(theirs, member), #member)
static_assert(sizeof(struct cuda_kernel_node) == sizeof(toolkit_kernel_node), "kernel node");
SAME_PLACE(cuda_kernel_node, function, toolkit_kernel_node, func);
SAME_PLACE(cuda_kernel_node, grid, toolkit_kernel_node, gridDimX);
SAME_PLACE(cuda_kernel_node, block, toolkit_kernel_node, blockDimX);
SAME_PLACE(cuda_kernel_node, shared_bytes, toolkit_kernel_node, sharedMemBytes);
SAME_PLACE(cuda_kernel_node, params, toolkit_kernel_node, kernelParams);
SAME_PLACE(cuda_kernel_node, extra, toolkit_kernel_node, extra);
#if CUDA_VERSION >= 12000
static_assert(sizeof(struct cuda_memory_op) == sizeof(CUstreamBatchMemOpParams), "memory op");
SAME_PLACE(cuda_memory_op, operation, CUstreamBatchMemOpParams, waitValue.operation);
SAME_PLACE(cuda_memory_op, address, CUstreamBatchMemOpParams, waitValue.address);
SAME_PLACE(cuda_memory_op, value, CUstreamBatchMemOpParams, waitValue.value);
SAME_PLACE(cuda_memory_op, flags, CUstreamBatchMemOpParams, waitValue.flags);
SAME_PLACE(cuda_memory_op, address, CUstreamBatchMemOpParams, writeValue.address);
SAME_PLACE(cuda_memory_op, value, CUstreamBatchMemOpParams, writeValue.value);
SAME_PLACE(cuda_memory_op, flags, CUstreamBatchMemOpParams, writeValue.flags);
static_assert(sizeof(struct cuda_memory_node) == sizeof(CUDA_BATCH_MEM_OP_NODE_PARAMS_v1), "node");
SAME_PLACE(cuda_memory_node, context, CUDA_BATCH_MEM_OP_NODE_PARAMS_v1, ctx);
SAME_PLACE(cuda_memory_node, n_ops, CUDA_BATCH_MEM_OP_NODE_PARAMS_v1, count);
SAME_PLACE(cuda_memory_node, ops, CUDA_BATCH_MEM_OP_NODE_PARAMS_v1, paramArray);
SAME_PLACE(cuda_memory_node, flags, CUDA_BATCH_MEM_OP_NODE_PARAMS_v1, flags);
#endif
static_assert(sizeof(struct cuda_copy_2d) == sizeof(CUDA_MEMCPY2D), "copy of rows");
SAME_PLACE(cuda_copy_2d, source.first_byte, CUDA_MEMCPY2D, srcXInBytes);
SAME_PLACE(cuda_copy_2d, source.first_row, CUDA_MEMCPY2D, srcY);
SAME_PLACE(cuda_copy_2d, source.kind, CUDA_MEMCPY2D, srcMemoryType);
SAME_PLACE(cuda_copy_2d, source.host, CUDA_MEMCPY2D, srcHost);
SAME_PLACE(cuda_copy_2d, source.device, CUDA_MEMCPY2D, srcDevice);
SAME_PLACE(cuda_copy_2d, source.array, CUDA_MEMCPY2D, srcArray);
SAME_PLACE(cuda_copy_2d, source.stride_bytes, CUDA_MEMCPY2D, srcPitch);
SAME_PLACE(cuda_copy_2d, target.first_byte, CUDA_MEMCPY2D, dstXInBytes);
SAME_PLACE(cuda_copy_2d, target.first_row, CUDA_MEMCPY2D, dstY);
SAME_PLACE(cuda_copy_2d, target.kind, CUDA_MEMCPY2D, dstMemoryType);
SAME_PLACE(cuda_copy_2d, target.host, CUDA_MEMCPY2D, dstHost);
SAME_PLACE(cuda_copy_2d, target.device, CUDA_MEMCPY2D, dstDevice);
SAME_PLACE(cuda_copy_2d, target.array, CUDA_MEMCPY2D, dstArray);
SAME_PLACE(cuda_copy_2d, target.stride_bytes, CUDA_MEMCPY2D, dstPitch);
SAME_PLACE(cuda_copy_2d, row_bytes, CUDA_MEMCPY2D, WidthInBytes);
SAME_PLACE(cuda_copy_2d, n_rows, CUDA_MEMCPY2D, Height);

#else

enum { NO_TOOLKIT_TO_CHECK_AGAINST }; // ISO C wants a declaration in every file

#endif

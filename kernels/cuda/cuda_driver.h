/* cuda_driver.h: the calls of NVIDIA's driver that the backend makes, found at run time.
 *
 * Types and prototypes are our own, so that the build needs no toolkit and the program starts
 * without a driver; cuda_check.c compares them with those of the toolkit, where one is installed.
 * struct cuda_driver is the caller's and owns the loaded library. Nothing here keeps state
 * elsewhere. Any thread. Tested by tests/kernels/test_cuda.c.
 */
#ifndef TANDEM_KERNELS_CUDA_CUDA_DRIVER_H
#define TANDEM_KERNELS_CUDA_CUDA_DRIVER_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// The driver's handles are pointers to structs that only the driver knows.
struct CUctx_st;
struct CUmod_st;
struct CUfunc_st;
struct CUstream_st;
struct CUevent_st;
struct CUgraph_st;
struct CUgraphNode_st;
struct CUgraphExec_st;

// Results, attributes and flags, with the driver's numbers.
enum {
    DRIVER_SUCCESS = 0,
    DRIVER_OUT_OF_MEMORY = 2,
    DRIVER_STUB_LIBRARY = 34,
    DRIVER_NO_DEVICE = 100,
    DRIVER_NOT_READY = 600,
    DRIVER_ILLEGAL_ADDRESS = 700,
    DRIVER_LAUNCH_FAILED = 719,

    DRIVER_ATTRIBUTE_MULTIPROCESSORS = 16,
    DRIVER_ATTRIBUTE_MAPS_HOST = 19,
    DRIVER_ATTRIBUTE_MEMORY_CLOCK = 36,
    DRIVER_ATTRIBUTE_BUS_WIDTH = 37,
    DRIVER_ATTRIBUTE_MAJOR = 75,
    DRIVER_ATTRIBUTE_MINOR = 76,
    DRIVER_ATTRIBUTE_PINS_READ_ONLY = 113,

    DRIVER_FUNCTION_MAX_THREADS = 0,

    DRIVER_STREAM_NON_BLOCKING = 1,
    DRIVER_EVENT_DISABLE_TIMING = 2,
    DRIVER_REGISTER_MAPPED = 2,
    DRIVER_REGISTER_READ_ONLY = 8,

    DRIVER_WAIT_UNTIL_GREATER_OR_EQUAL = 0,
    DRIVER_WRITE_BEHIND_A_FENCE = 0,
    DRIVER_MEMORY_OP_WAIT = 1,
    DRIVER_MEMORY_OP_WRITE = 2,

    DRIVER_MEMORY_HOST = 1,
    DRIVER_MEMORY_DEVICE = 2,

    DRIVER_JIT_ERROR_LOG = 5,
    DRIVER_JIT_ERROR_LOG_BYTES = 6,
};

// A node of a graph that waits for words of memory and writes them: CUDA_BATCH_MEM_OP_NODE_PARAMS,
// and CUstreamBatchMemOpParams with the members of the two operations that are used.
struct cuda_memory_op {
    unsigned operation; // DRIVER_MEMORY_OP_*
    unsigned long long address;
    uint64_t value;
    unsigned flags;
    uint64_t unused[2];
};
struct cuda_memory_node {
    struct CUctx_st *context;
    unsigned n_ops;
    struct cuda_memory_op *ops;
    unsigned flags; // 0
};

// A kernel node of a graph: the first version of CUDA_KERNEL_NODE_PARAMS, which every driver with
// graphs takes.
struct cuda_kernel_node {
    struct CUfunc_st *function;
    uint32_t grid[3], block[3];
    uint32_t shared_bytes;
    void **params;
    void **extra;
};

// One side of a copy of rows.
struct cuda_rows {
    size_t first_byte, first_row; // 0
    unsigned kind;                // DRIVER_MEMORY_*: which of the next two holds
    const void *host;
    unsigned long long device;
    void *array; // NULL
    size_t stride_bytes;
};

// CUDA_MEMCPY2D with other names for all its members.
struct cuda_copy_2d {
    struct cuda_rows source, target;
    size_t row_bytes, n_rows;
};

// X(field, symbol, parameters): addresses of device memory are unsigned long long, devices are
// int, enumerations are unsigned, as the driver has them.
#define CUDA_DRIVER_CALLS(X)                                                                    \
    X(init, cuInit, (unsigned flags))                                                           \
    X(driver_version, cuDriverGetVersion, (int *version))                                       \
    X(error_name, cuGetErrorName, (unsigned code, const char **name))                           \
    X(device_count, cuDeviceGetCount, (int *n))                                                 \
    X(device_get, cuDeviceGet, (int *device, int index))                                        \
    X(device_name, cuDeviceGetName, (char *name, int size_bytes, int device))                   \
    X(device_attribute, cuDeviceGetAttribute, (int *value, unsigned attribute, int device))     \
    X(device_pci_id, cuDeviceGetPCIBusId, (char *id, int size_bytes, int device))               \
    X(context_retain, cuDevicePrimaryCtxRetain, (struct CUctx_st * *context, int device))       \
    X(context_set, cuCtxSetCurrent, (struct CUctx_st * context))                                \
    X(memory_info, cuMemGetInfo_v2, (size_t * free_bytes, size_t * total_bytes))                \
    X(memory_alloc, cuMemAlloc_v2, (unsigned long long *address, size_t size_bytes))            \
    X(memory_free, cuMemFree_v2, (unsigned long long address))                                  \
    X(host_register, cuMemHostRegister_v2, (void *base, size_t size_bytes, unsigned flags))     \
    X(host_unregister, cuMemHostUnregister, (void *base))                                       \
    X(host_address, cuMemHostGetDevicePointer_v2,                                               \
      (unsigned long long *address, void *host, unsigned flags))                                \
    X(copy_to_device, cuMemcpyHtoDAsync_v2,                                                     \
      (unsigned long long target, const void *source, size_t size_bytes,                        \
       struct CUstream_st *stream))                                                             \
    X(copy_from_device, cuMemcpyDtoHAsync_v2,                                                   \
      (void *target, unsigned long long source, size_t size_bytes, struct CUstream_st *stream)) \
    X(copy_within, cuMemcpyDtoDAsync_v2,                                                        \
      (unsigned long long target, unsigned long long source, size_t size_bytes,                 \
       struct CUstream_st *stream))                                                             \
    X(stream_create, cuStreamCreate, (struct CUstream_st * *stream, unsigned flags))            \
    X(stream_destroy, cuStreamDestroy_v2, (struct CUstream_st * stream))                        \
    X(stream_synchronize, cuStreamSynchronize, (struct CUstream_st * stream))                   \
    X(stream_query, cuStreamQuery, (struct CUstream_st * stream))                               \
    X(stream_wait_event, cuStreamWaitEvent,                                                     \
      (struct CUstream_st * stream, struct CUevent_st * event, unsigned flags))                 \
    X(event_create, cuEventCreate, (struct CUevent_st * *event, unsigned flags))                \
    X(event_destroy, cuEventDestroy_v2, (struct CUevent_st * event))                            \
    X(event_record, cuEventRecord, (struct CUevent_st * event, struct CUstream_st * stream))    \
    X(event_query, cuEventQuery, (struct CUevent_st * event))                                   \
    X(event_elapsed, cuEventElapsedTime,                                                        \
      (float *ms, struct CUevent_st *first, struct CUevent_st *last))                           \
    X(module_load, cuModuleLoadDataEx,                                                          \
      (struct CUmod_st * *module, const void *image, unsigned n_options, unsigned *options,     \
       void **values))                                                                          \
    X(module_unload, cuModuleUnload, (struct CUmod_st * module))                                \
    X(module_function, cuModuleGetFunction,                                                     \
      (struct CUfunc_st * *function, struct CUmod_st * module, const char *name))               \
    X(function_attribute, cuFuncGetAttribute,                                                   \
      (int *value, unsigned attribute, struct CUfunc_st *function))                             \
    X(launch, cuLaunchKernel,                                                                   \
      (struct CUfunc_st * function, unsigned grid_x, unsigned grid_y, unsigned grid_z,          \
       unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,             \
       struct CUstream_st *stream, void **params, void **extra))

// This call got a new name with CUDA 11.0; an older driver has the second one only.
#define CUDA_DRIVER_RENAMED_CALLS(X) \
    X(context_release, cuDevicePrimaryCtxRelease_v2, cuDevicePrimaryCtxRelease, (int device))

// This call takes a struct of ours, whose members cuda_check.c compares.
#define CUDA_DRIVER_ROW_CALLS(X) \
    X(copy_rows, cuMemcpy2DAsync_v2, (const struct cuda_copy_2d *copy, struct CUstream_st *stream))

// This call came with CUDA 10.0. With an older driver the calling thread waits and calls the
// function itself.
#define CUDA_DRIVER_HOST_CALLS(X)  \
    X(host_call, cuLaunchHostFunc, \
      (struct CUstream_st * stream, void (*fn)(void *context), void *context))

// Graphs in this form came with CUDA 11.4: an older driver lacks these, and every launch is then
// made singly.
#define CUDA_DRIVER_GRAPH_CALLS(X)                                                          \
    X(graph_create, cuGraphCreate, (struct CUgraph_st * *graph, unsigned flags))            \
    X(graph_destroy, cuGraphDestroy, (struct CUgraph_st * graph))                           \
    X(graph_instantiate, cuGraphInstantiateWithFlags,                                       \
      (struct CUgraphExec_st * *exec, struct CUgraph_st * graph, unsigned long long flags)) \
    X(graph_exec_destroy, cuGraphExecDestroy, (struct CUgraphExec_st * exec))               \
    X(graph_launch, cuGraphLaunch, (struct CUgraphExec_st * exec, struct CUstream_st * stream))

// This call belongs to them, but its prototype changed with the toolkit while the driver kept the
// symbol.
#define CUDA_DRIVER_OLD_GRAPH_CALLS(X)                                    \
    X(graph_add_kernel, cuGraphAddKernelNode,                             \
      (struct CUgraphNode_st * *node, struct CUgraph_st * graph,          \
       struct CUgraphNode_st *const *dependencies, size_t n_dependencies, \
       const struct cuda_kernel_node *params))

// Stream memory operations came with CUDA 11.7 in the form that every device has: an older driver
// lacks these, and the calling thread then submits what waits for the CPU when the CPU is done.
#define CUDA_DRIVER_FLAG_CALLS(X)                                                                \
    X(wait_value, cuStreamWaitValue32_v2,                                                        \
      (struct CUstream_st * stream, unsigned long long address, uint32_t value, unsigned flags)) \
    X(write_value, cuStreamWriteValue32_v2,                                                      \
      (struct CUstream_st * stream, unsigned long long address, uint32_t value, unsigned flags))

// This call belongs to them and takes structs of ours, whose members cuda_check.c compares.
#define CUDA_DRIVER_FLAG_NODE_CALLS(X)                                    \
    X(graph_add_memory, cuGraphAddBatchMemOpNode,                         \
      (struct CUgraphNode_st * *node, struct CUgraph_st * graph,          \
       struct CUgraphNode_st *const *dependencies, size_t n_dependencies, \
       const struct cuda_memory_node *params))

struct cuda_driver {
    void *library;
#define CUDA_DRIVER_FIELD(field, symbol, parameters) unsigned(*field) parameters;
    CUDA_DRIVER_CALLS(CUDA_DRIVER_FIELD)
#define CUDA_DRIVER_RENAMED_FIELD(field, symbol, old_symbol, parameters) \
    CUDA_DRIVER_FIELD(field, symbol, parameters)
    CUDA_DRIVER_RENAMED_CALLS(CUDA_DRIVER_RENAMED_FIELD)
#undef CUDA_DRIVER_RENAMED_FIELD
    CUDA_DRIVER_ROW_CALLS(CUDA_DRIVER_FIELD)
    CUDA_DRIVER_HOST_CALLS(CUDA_DRIVER_FIELD)
    CUDA_DRIVER_GRAPH_CALLS(CUDA_DRIVER_FIELD)
    CUDA_DRIVER_OLD_GRAPH_CALLS(CUDA_DRIVER_FIELD)
    CUDA_DRIVER_FLAG_CALLS(CUDA_DRIVER_FIELD)
    CUDA_DRIVER_FLAG_NODE_CALLS(CUDA_DRIVER_FIELD)
#undef CUDA_DRIVER_FIELD
    bool has_graphs, has_host_calls, has_flags;
    int version; // 12020 is 12.2
};

// Loads path, or libcuda.so.1 if NULL, and starts it. ERR_UNSUPPORTED without a driver or a GPU,
// ERR_DEVICE if the driver does not work; after a failure nothing stays loaded.
enum status cuda_driver_open(struct cuda_driver *driver, const char *path, struct err *e);
void cuda_driver_close(struct cuda_driver *driver); // accepts a zeroed one; leaves it zeroed

// The driver's word for a result: "CUDA_ERROR_OUT_OF_MEMORY". Never NULL.
const char *cuda_error_name(const struct cuda_driver *driver, unsigned code);

// code 0: OK. Otherwise ERR_MEMORY for refused memory and ERR_DEVICE for all else, with the call,
// the device, the name of the code and the way out.
enum status cuda_check(const struct cuda_driver *driver, unsigned code, struct err *e,
                       const char *what, ...) __attribute__((format(printf, 4, 5)));

#endif

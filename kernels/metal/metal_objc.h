/* metal_objc.h: the Objective-C runtime, Foundation and Metal, loaded when the program runs, and
 * the messages that this backend sends.
 *
 * A struct metal_objc is the caller's and owns the loaded libraries. Objects are Objective-C's: a
 * method whose name begins with new, alloc, copy or retain gives its caller one, to be released;
 * other objects belong to the thread's innermost pool and are gone when it ends. Sends no blocks,
 * so needs no compiler of Apple's. A struct metal_objc may be read by any thread, but objects are
 * bound to their own rules. Tested by tests/kernels/test_metal.c.
 */
#ifndef TANDEM_KERNELS_METAL_METAL_OBJC_H
#define TANDEM_KERNELS_METAL_METAL_OBJC_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct objc_selector;
struct objc_object; // any object, and any class
struct ns_string;
struct ns_error;
struct ns_array;
struct mtl_device;
struct mtl_options; // MTLCompileOptions
struct mtl_library;
struct mtl_function;
struct mtl_pipeline; // MTLComputePipelineState
struct mtl_buffer;
struct mtl_queue;
struct mtl_commands; // MTLCommandBuffer
struct mtl_compute;  // MTLComputeCommandEncoder
struct mtl_blit;     // MTLBlitCommandEncoder
struct mtl_event;    // MTLSharedEvent

typedef unsigned long objc_number; // NSUInteger

struct mtl_size { // MTLSize
    objc_number x, y, z;
};

enum {
    METAL_FAMILY_APPLE1 = 1001, // MTLGPUFamilyApple1 and so on: one more each
    METAL_FAMILY_APPLE7 = 1007, // M1
    METAL_FAMILY_APPLE_NEWEST = 1015,

    METAL_LANGUAGE_2_3 = (2 << 16) + 3, // MTLLanguageVersion2_3: macOS 11

    METAL_STORAGE_SHARED = 0, // MTLResourceStorageModeShared

    METAL_STATUS_COMPLETED = 4, // MTLCommandBufferStatus; what is greater is an error

    METAL_ERROR_ACCESS_REVOKED = 4, // MTLCommandBufferError...: after failures of earlier ones
    METAL_ERROR_OUT_OF_MEMORY = 8,
};

// X(result, field, name of the method, receiver and arguments ...)
#define METAL_MESSAGES(X)                                                                          \
    X(struct ns_string *, string_with, "stringWithUTF8String:", struct objc_object *,              \
      const char *)                                                                                \
    X(const char *, string_text, "UTF8String", struct ns_string *)                                 \
    X(objc_number, array_count, "count", struct ns_array *)                                        \
    X(struct mtl_device *, array_at, "objectAtIndex:", struct ns_array *, objc_number)             \
    X(struct ns_string *, error_text, "localizedDescription", struct ns_error *)                   \
    X(long, error_code, "code", struct ns_error *)                                                 \
    X(struct objc_object *, process_info, "processInfo", struct objc_object *)                     \
    X(struct ns_string *, system_version, "operatingSystemVersionString", struct objc_object *)    \
    X(struct ns_string *, device_name, "name", struct mtl_device *)                                \
    X(bool, device_is_unified, "hasUnifiedMemory", struct mtl_device *)                            \
    X(bool, device_is_of, "supportsFamily:", struct mtl_device *, long)                            \
    X(uint64_t, device_working_set, "recommendedMaxWorkingSetSize", struct mtl_device *)           \
    X(objc_number, device_allocated, "currentAllocatedSize", struct mtl_device *)                  \
    X(objc_number, device_buffer_max, "maxBufferLength", struct mtl_device *)                      \
    X(objc_number, device_threadgroup_max, "maxThreadgroupMemoryLength", struct mtl_device *)      \
    X(struct mtl_buffer *, new_buffer,                                                             \
      "newBufferWithBytesNoCopy:length:options:deallocator:", struct mtl_device *, void *,         \
      objc_number, objc_number, void *)                                                            \
    X(struct mtl_queue *, new_queue,                                                               \
      "newCommandQueueWithMaxCommandBufferCount:", struct mtl_device *, objc_number)               \
    X(struct mtl_event *, new_event, "newSharedEvent", struct mtl_device *)                        \
    X(struct mtl_options *, new_options, "new", struct objc_object *)                              \
    X(void, options_fast_math, "setFastMathEnabled:", struct mtl_options *, bool)                  \
    X(void, options_language, "setLanguageVersion:", struct mtl_options *, objc_number)            \
    X(struct mtl_library *, new_library,                                                           \
      "newLibraryWithSource:options:error:", struct mtl_device *, struct ns_string *,              \
      struct mtl_options *, struct ns_error **)                                                    \
    X(struct mtl_function *, new_function, "newFunctionWithName:", struct mtl_library *,           \
      struct ns_string *)                                                                          \
    X(struct mtl_pipeline *, new_pipeline,                                                         \
      "newComputePipelineStateWithFunction:error:", struct mtl_device *, struct mtl_function *,    \
      struct ns_error **)                                                                          \
    X(objc_number, pipeline_simd_width, "threadExecutionWidth", struct mtl_pipeline *)             \
    X(objc_number, pipeline_threads_max, "maxTotalThreadsPerThreadgroup", struct mtl_pipeline *)   \
    X(struct mtl_commands *, commands_of, "commandBuffer", struct mtl_queue *)                     \
    X(struct mtl_compute *, compute_of, "computeCommandEncoder", struct mtl_commands *)            \
    X(struct mtl_blit *, blit_of, "blitCommandEncoder", struct mtl_commands *)                     \
    X(void, signal, "encodeSignalEvent:value:", struct mtl_commands *, struct mtl_event *,         \
      uint64_t)                                                                                    \
    X(void, await, "encodeWaitForEvent:value:", struct mtl_commands *, struct mtl_event *,         \
      uint64_t)                                                                                    \
    X(void, commit, "commit", struct mtl_commands *)                                               \
    X(objc_number, commands_status, "status", struct mtl_commands *)                               \
    X(struct ns_error *, commands_error, "error", struct mtl_commands *)                           \
    X(double, commands_end_s, "GPUEndTime", struct mtl_commands *)                                 \
    X(void, use_pipeline, "setComputePipelineState:", struct mtl_compute *, struct mtl_pipeline *) \
    X(void, use_bytes, "setBytes:length:atIndex:", struct mtl_compute *, const void *,             \
      objc_number, objc_number)                                                                    \
    X(void, use_buffer, "setBuffer:offset:atIndex:", struct mtl_compute *, struct mtl_buffer *,    \
      objc_number, objc_number)                                                                    \
    X(void, use_threadgroup, "setThreadgroupMemoryLength:atIndex:", struct mtl_compute *,          \
      objc_number, objc_number)                                                                    \
    X(void, dispatch, "dispatchThreadgroups:threadsPerThreadgroup:", struct mtl_compute *,         \
      struct mtl_size, struct mtl_size)                                                            \
    X(void, end_compute, "endEncoding", struct mtl_compute *)                                      \
    X(void, copy,                                                                                  \
      "copyFromBuffer:sourceOffset:toBuffer:destinationOffset:size:", struct mtl_blit *,           \
      struct mtl_buffer *, objc_number, struct mtl_buffer *, objc_number, objc_number)             \
    X(void, end_blit, "endEncoding", struct mtl_blit *)                                            \
    X(uint64_t, event_value, "signaledValue", struct mtl_event *)                                  \
    X(void, event_set, "setSignaledValue:", struct mtl_event *, uint64_t)

struct metal_objc {
    void *libraries[3]; // handles of dlopen: the runtime, Foundation, Metal
    struct objc_object *(*class_named)(const char *name);
    struct objc_selector *(*selector_named)(const char *name);
    void *(*pool_push)(void);
    void (*pool_pop)(void *pool);
    struct objc_object *(*retain)(void *object);
    void (*release)(void *object); // NULL is allowed
    struct ns_array *(*copy_devices)(void);
    struct objc_object *string_class, *options_class, *process_class;
#define METAL_MESSAGE(result, field, name, receiver, ...)                \
    struct {                                                             \
        result (*send)(receiver, struct objc_selector *, ##__VA_ARGS__); \
        struct objc_selector *selector;                                  \
    } field;
    METAL_MESSAGES(METAL_MESSAGE)
#undef METAL_MESSAGE
};

// Sends a message of the list: METAL_SEND(objc, new_queue, device, 64).
#define METAL_SEND(objc, field, receiver, ...) \
    (objc)->field.send(receiver, (objc)->field.selector, ##__VA_ARGS__)

// Loads the three libraries, or path, one that has all. ERR_UNSUPPORTED where there is no Metal,
// ERR_DEVICE where a call is missing. Close it after a failure too.
enum status metal_objc_open(struct metal_objc *objc, const char *path, struct err *e);
void metal_objc_close(struct metal_objc *objc); // accepts a zeroed one; leaves it zeroed

// A string in the pool; NULL if Foundation refuses it.
struct ns_string *metal_string(const struct metal_objc *objc, const char *text);
// Text of a string, valid as long as the string; "" for NULL.
const char *metal_text(const struct metal_objc *objc, struct ns_string *string);
// The text of an error, valid as long as the pool; a sentence that says that there is none.
const char *metal_error_text(const struct metal_objc *objc, struct ns_error *error);

#endif

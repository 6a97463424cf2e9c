/* fake.h: the inside of the look-alike libcuda.so.1.
 *
 * main_libcuda.c reads the environment and answers what devices there are; fake_memory.c owns
 * device memory, fake_stream.c streams, events and copies, fake_module.c images, launches and
 * graphs. One struct fake per process, made by cuInit. A driver's own rules are checked where a
 * real one would only misbehave: every complaint is a line "emulator: ..." on stderr. Any thread.
 * Tested by tests/kernels/test_emulator.c.
 */
#ifndef TANDEM_TESTS_EMULATOR_FAKE_H
#define TANDEM_TESTS_EMULATOR_FAKE_H

#include "kernels/cuda/cuda_driver.h"
#include "tests/emulator/kernel_table.h"
#include "tests/emulator/simt.h"

#include <pthread.h>

// The driver's results that it gives besides those of cuda_driver.h.
enum {
    CODE_INVALID_VALUE = 1,
    CODE_NOT_INITIALIZED = 3,
    CODE_INVALID_DEVICE = 101,
    CODE_INVALID_IMAGE = 200,
    CODE_INVALID_CONTEXT = 201,
    CODE_NO_BINARY_FOR_GPU = 209,
    CODE_ECC_UNCORRECTABLE = 214,
    CODE_INVALID_PTX = 218,
    CODE_UNSUPPORTED_PTX_VERSION = 222,
    CODE_INVALID_HANDLE = 400,
    CODE_NOT_FOUND = 500,
    CODE_NOT_PERMITTED = 800,
    CODE_NOT_SUPPORTED = 801,
    CODE_UNKNOWN = 999,
};

// Calls that can be told to fail: the nth one since cuInit. A failed launch or copy sticks to the
// context, as do those that fail only when they run.
#define FAKE_FAULTS(X)                                               \
    X(ALLOC, DRIVER_OUT_OF_MEMORY)    /* cuMemAlloc */               \
    X(MODULE, CODE_INVALID_IMAGE)     /* cuModuleLoadDataEx */       \
    X(LAUNCH, DRIVER_LAUNCH_FAILED)   /* a launch, at the call */    \
    X(COPY, DRIVER_LAUNCH_FAILED)     /* a copy, at the call */      \
    X(KERNEL, DRIVER_ILLEGAL_ADDRESS) /* a launch, when it runs */   \
    X(DMA, CODE_ECC_UNCORRECTABLE)    /* a copy, when it runs */     \
    X(STREAM, DRIVER_OUT_OF_MEMORY)   /* cuStreamCreate */           \
    X(EVENT, DRIVER_OUT_OF_MEMORY)    /* cuEventCreate */            \
    X(CONTEXT, DRIVER_OUT_OF_MEMORY)  /* cuDevicePrimaryCtxRetain */ \
    X(REGISTER, DRIVER_OUT_OF_MEMORY) /* cuMemHostRegister */        \
    X(GRAPH, CODE_NOT_SUPPORTED)      /* cuGraphInstantiate */       \
    X(FLAG, CODE_NOT_SUPPORTED)       /* an operation on memory */   \
    X(RAISE, DRIVER_LAUNCH_FAILED)    /* a write of one: it is lost, without an error */

enum fake_fault {
#define FAKE_FAULT(name, code) FAULT_##name,
    FAKE_FAULTS(FAKE_FAULT)
#undef FAKE_FAULT
        FAULT_COUNT
};

enum {
    FAKE_DEVICES_MAX = 8,
    FAKE_KERNELS_MAX = 512,
    FAKE_PARAM_BYTES = 1024,
    FAKE_BLOCK_SHARED = 48 << 10, // bytes of shared memory of a block
};

struct fake_region { // an allocation, or pinned host memory
    char *base;
    size_t size_bytes;
    bool mapped;              // pinned memory that kernels reach
    bool read_only;           // pinned memory that nothing may write
    struct fake_region *next; // by address
};

struct fake_range { // a stretch of addresses closed to everybody but where memory is allocated
    char *base;
    size_t size_bytes;
};

// A device and its primary context.
struct CUctx_st {
    int number;
    pthread_mutex_t lock; // all below
    int n_retained;
    unsigned failure; // sticks until the context is released
    struct simt *simt;
    struct fake_range range;
    struct fake_region *regions;
    size_t used_bytes, peak_bytes;
    int n_streams, n_events, n_modules, n_graphs;
    int n_running;              // streams that work; device memory is closed at 0 if sealed
    pthread_cond_t moved;       // an event was passed
    pthread_mutex_t engines[2]; // one copy at a time in each direction
};

struct fake_options {
    uint64_t vram_bytes;
    uint64_t rate[2];              // bytes per second to the device and from it; 0: unlimited
    uint64_t fail_at[FAULT_COUNT]; // UINT64_MAX: every call
    unsigned init_code, seed, jit_ms;
    int n_devices, arch, version, n_workers;
    bool tensor_cores, maps_host, pins_read_only, sealed, sparse, stats, lines, blocking, flags;
    char name[96];
    char jit_folder[400]; // of what was translated, empty: none
    char left_out[64];    // see struct simt_options, empty: none
};

struct fake {
    struct fake_options options;
    bool started;
    struct CUctx_st devices[FAKE_DEVICES_MAX];
    pthread_key_t current; // the thread's context
    pthread_key_t calling; // not NULL while the thread runs a call of the host
    pthread_key_t shared;  // the static shared memory of the thread, fake_memory.c's
    pthread_mutex_t lock;  // pinned, counters
    struct fake_region *pinned;
    uint64_t counts[FAULT_COUNT];
    uint64_t n_launches, pinned_bytes, pageable_bytes, read_only_bytes;
    // Calls of the driver that decoding makes, but for questions, whose number depends on time.
    uint64_t n_single_launches, n_graph_launches, n_copies, n_event_calls, n_flag_calls;
    bool launched[FAKE_KERNELS_MAX]; // by the place of the kernel in its table
};

struct CUfunc_st {
    const struct fake_kernel *kernel;
    struct CUmod_st *module;
};

struct fake_launch {
    const struct fake_kernel *kernel;
    struct simt_dim grid, block;
    size_t shared_bytes;
    int arch;
    _Alignas(16) char params[FAKE_PARAM_BYTES];
};

// main_libcuda.c
struct fake *fake(void);
// The current context; NULL with *code set if there is none or it has failed.
struct CUctx_st *fake_current(unsigned *code);
void fake_fail(struct CUctx_st *context, unsigned code);
// Counts a call; the code to fail with if it is the one, else 0.
unsigned fake_fault(enum fake_fault fault);
void fake_count(uint64_t *counter); // of struct fake
void fake_complain(const char *format, ...) __attribute__((format(printf, 1, 2)));

// fake_memory.c
// Fills the static shared memory of the calling thread with NaN; close is for the thread's end.
void fake_poison_static_shared(void);
void fake_close_static_shared(void *shared_arrays);
bool fake_memory_open(struct CUctx_st *context);
void fake_memory_close(struct CUctx_st *context);
// Whether all of [address, address + size) was allocated.
bool fake_memory_holds(struct CUctx_st *context, uint64_t address, size_t size_bytes);
// Whether the address lies in the memory of any device.
bool fake_memory_is_device(const void *address);
bool fake_memory_is_pinned(const void *address, size_t size_bytes);
// Whether it is pinned memory that the device reaches.
bool fake_memory_is_mapped(const void *address, size_t size_bytes);
// Whether some of it was pinned for reading only.
bool fake_memory_is_read_only(const void *address, size_t size_bytes);
// Between these two the streams may touch device memory.
void fake_memory_enter(struct CUctx_st *context);
void fake_memory_leave(struct CUctx_st *context);
// False after a complaint naming what if bytes behind an allocation were written.
bool fake_memory_guards_hold(struct CUctx_st *context, const char *what);

// fake_stream.c
unsigned fake_stream_launch(struct CUstream_st *stream, const struct fake_launch *launch);

// Queues a wait for a word of memory, or its writing.
unsigned fake_stream_memory(struct CUstream_st *stream, const struct cuda_memory_op *op);
// Whether there are such operations, and the word is one that they reach.
unsigned fake_check_memory_op(const struct cuda_memory_op *op);

// Fails the stream's context.
void fake_stream_fail(struct CUstream_st *stream, unsigned code);

// fake_module.c: runs on the stream's thread.
void fake_run_launch(struct CUctx_st *context, const struct fake_launch *launch);

#define FAKE_API                                  __attribute__((visibility("default")))
#define FAKE_PROTOTYPE(field, symbol, parameters) FAKE_API unsigned symbol parameters;
CUDA_DRIVER_CALLS(FAKE_PROTOTYPE)
#define FAKE_BOTH_PROTOTYPES(field, symbol, old_symbol, parameters) \
    FAKE_PROTOTYPE(field, symbol, parameters)                       \
    FAKE_PROTOTYPE(field, old_symbol, parameters)
CUDA_DRIVER_RENAMED_CALLS(FAKE_BOTH_PROTOTYPES)
#undef FAKE_BOTH_PROTOTYPES
CUDA_DRIVER_ROW_CALLS(FAKE_PROTOTYPE)
CUDA_DRIVER_HOST_CALLS(FAKE_PROTOTYPE)
CUDA_DRIVER_GRAPH_CALLS(FAKE_PROTOTYPE)
CUDA_DRIVER_OLD_GRAPH_CALLS(FAKE_PROTOTYPE)
CUDA_DRIVER_FLAG_CALLS(FAKE_PROTOTYPE)
CUDA_DRIVER_FLAG_NODE_CALLS(FAKE_PROTOTYPE)
#undef FAKE_PROTOTYPE

#endif

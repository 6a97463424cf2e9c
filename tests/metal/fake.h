/* fake.h: the inside of the look-alike Metal: one library with an Objective-C runtime, as much of
 * Foundation as the backend uses, and Metal.
 *
 * main_libmetal.c reads the environment, fake_objc.c sends messages and counts references,
 * fake_foundation.c has strings, arrays and errors, fake_device.c devices, libraries and pipelines,
 * fake_buffer.c buffers, fake_encoder.c encoders, fake_queue.c queues, command buffers and events.
 * A rule of Metal that is broken ends the process with a line "fake Metal: rule NAME: ..." on
 * stderr: the real one would misbehave, or end it too where its validation is on. Any thread.
 * Tested by tests/kernels/test_metal_rules.c.
 */
#ifndef TANDEM_TESTS_METAL_FAKE_H
#define TANDEM_TESTS_METAL_FAKE_H

#include "kernels/metal/metal_list.h"
#include "kernels/metal/metal_objc.h"
#include "tests/emulator/simt.h"
#include "tests/metal/kernel_table.h"

#include <pthread.h>
#include <stdatomic.h>

// ---- The runtime -------------------------------------------------------------------------------

struct fake_method {
    const char *selector;
    void *function; // called with the object, the selector and the message's arguments
};

struct fake_class {
    const char *name;
    const struct fake_method *methods; // ended by a NULL selector
    void (*dealloc)(void *object);     // gives back what an object holds; may be NULL
    atomic_int n_live;                 // objects that are not freed
    struct fake_class *next;           // of all that had an object
    atomic_bool listed;
};

struct fake_object { // at the head of every object
    struct fake_class *isa;
    atomic_int count; // references; 0: freed, and kept to be recognised
};

// A new object with one reference, size_bytes long with its head, all else 0.
void *fake_new(struct fake_class *class, size_t size_bytes);
void *fake_retain(void *object); // NULL is allowed
void fake_release(void *object);
void *fake_autorelease(void *object); // to the thread's innermost pool
void fake_check_live(const void *object, const char *message);

// Ends the process: a rule of Metal's or the runtime's is broken.
void fake_rule(const char *rule, const char *format, ...)
    __attribute__((noreturn, format(printf, 2, 3)));
void fake_complain(const char *format, ...) __attribute__((format(printf, 1, 2)));

#define FAKE_API __attribute__((visibility("default")))

// ---- Foundation --------------------------------------------------------------------------------

struct fake_string {
    struct fake_object object;
    char *text;
};

struct fake_error {
    struct fake_object object;
    long code;
    char *text;
};

struct fake_string *fake_string(const char *text); // in the pool
// A new error, with one reference.
struct fake_error *fake_error(long code, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
// An array of objects with one reference, which it takes over.
void *fake_array(void *const *objects, size_t n);

// ---- Options and faults ------------------------------------------------------------------------

// Calls that can be told to fail: the nth one since the devices were listed.
#define FAKE_FAULTS(X)                                             \
    X(LIBRARY)  /* newLibraryWithSource: */                        \
    X(FUNCTION) /* newFunctionWithName: */                         \
    X(PIPELINE) /* newComputePipelineStateWithFunction: */         \
    X(QUEUE)    /* newCommandQueueWithMaxCommandBufferCount: */    \
    X(EVENT)    /* newSharedEvent */                               \
    X(BUFFER)   /* newBufferWithBytesNoCopy: */                    \
    X(COMMANDS) /* commandBuffer */                                \
    X(COMPUTE)  /* computeCommandEncoder */                        \
    X(BLIT)     /* blitCommandEncoder */                           \
    X(KERNEL)   /* a dispatch, when it runs */                     \
    X(COPY)     /* a copy of a blit encoder, when it runs */       \
    X(MEMORY)   /* a command buffer has no memory, when it runs */ \
    X(STALL)    /* a command buffer that never ends */

enum fake_fault {
#define FAKE_FAULT(name) FAULT_##name,
    FAKE_FAULTS(FAKE_FAULT)
#undef FAKE_FAULT
        FAULT_COUNT
};

struct fake_options {
    uint64_t memory_bytes;         // recommendedMaxWorkingSetSize
    uint64_t buffer_bytes;         // maxBufferLength
    uint64_t fail_at[FAULT_COUNT]; // UINT64_MAX: every call
    uint32_t simd_width, max_threads;
    int n_devices, family, n_workers;
    unsigned seed;
    bool unified, stats;
    char name[96];
};

struct fake {
    struct fake_options options;
    pthread_mutex_t lock; // counts
    uint64_t counts[FAULT_COUNT];
    atomic_ullong allocated_bytes;
    atomic_ullong n_dispatches, n_copies, n_commands;
    struct simt *simt; // of the devices that are there
    atomic_int n_devices;
    atomic_bool dispatched[METAL_KERNEL_COUNT]; // kernels that ran
    atomic_bool failed;  // a command buffer has, since the devices were opened
    atomic_bool stalled; // a command buffer never ends
};

struct fake *fake(void);
void fake_devices_less(void); // one is freed
// Counts a call; true if it is the one to fail.
bool fake_fault(enum fake_fault fault);

// ---- Metal -------------------------------------------------------------------------------------

enum {
    FAKE_BYTES_MAX = 4096,           // of setBytes
    FAKE_THREADGROUP_MAX = 32 << 10, // bytes of threadgroup memory
    FAKE_OFFSET_ALIGN = 4,           // of blits
};

struct fake_device {
    struct fake_object object;
    int number;
};

struct fake_pipeline {
    struct fake_object object;
    struct fake_device *device;
    const struct metal_function *function;
    size_t number; // of the function in metal_functions
};

struct fake_buffer {
    struct fake_object object;
    struct fake_device *device;
    char *bytes;
    uint64_t length;
};

struct fake_event {
    struct fake_object object;
    uint64_t value;
};

struct fake_slot {              // of a compute encoder
    struct fake_buffer *buffer; // retained by the command
    uint64_t offset;
    char *bytes; // of setBytes, a copy
    uint32_t bytes_length;
};

enum fake_kind { FAKE_DISPATCH, FAKE_COPY, FAKE_SIGNAL, FAKE_WAIT };

struct fake_command {
    enum fake_kind kind;
    struct fake_command *next;
    struct fake_pipeline *pipeline; // a dispatch
    struct fake_slot slots[METAL_SLOTS];
    uint32_t threadgroup_bytes[METAL_SLOTS];
    struct mtl_size grid, threads;
    struct fake_buffer *target, *source; // a copy
    uint64_t target_offset, source_offset, size_bytes;
    struct fake_event *event;
    uint64_t value;
};

struct fake_commands { // MTLCommandBuffer
    struct fake_object object;
    struct fake_queue *queue; // which outlives it
    struct fake_command *first, *last;
    void *encoder; // that is open
    bool committed;
    int status;
    struct fake_error *error;
    double end_s;
    struct fake_commands *next; // in the queue
};

// fake_device.c
extern struct fake_class fake_device_class;
struct fake_device *fake_device_hold(struct fake_device *device); // for a child of it

// fake_buffer.c, fake_queue.c: methods of a device
void *fake_new_buffer(struct fake_device *device, void *selector, void *bytes, objc_number length,
                      objc_number options, void *deallocator);
void *fake_new_queue(struct fake_device *device, void *selector, objc_number n_commands);
void *fake_new_event(struct fake_device *device, void *selector);

// fake_encoder.c: methods of a command buffer
void *fake_compute_encoder(struct fake_commands *commands, void *selector);
void *fake_blit_encoder(struct fake_commands *commands, void *selector);
void fake_free_command(struct fake_command *command);

// fake_queue.c
// Appends to the command buffer, which must take commands still.
struct fake_command *fake_append(struct fake_commands *commands, enum fake_kind kind);
// Ends the process if the command buffer is committed, or an encoder is open in it.
void fake_check_open(const struct fake_commands *commands, const char *what);

#endif

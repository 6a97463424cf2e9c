/* kernel_table.h: every kernel function of kernels/metal/, compiled for the host, by name.
 *
 * The build makes the table from the .metal files: one trampoline for each kernel, which casts what
 * is bound to the types of the kernel's arguments and calls it. A trampoline is run by simt
 * (tests/emulator/simt.h), once for each thread, with a struct metal_bound as its parameters; the
 * positions of the thread come from simt_self(). Owns nothing. Tested by tests/metal/.
 */
#ifndef TANDEM_TESTS_METAL_KERNEL_TABLE_H
#define TANDEM_TESTS_METAL_KERNEL_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { METAL_SLOTS = 31 }; // indices of [[buffer(n)]] and of [[threadgroup(n)]]

// The buffers and the threadgroup memory of one dispatch.
struct metal_bound {
    void *buffer[METAL_SLOTS];                // where the argument begins; NULL: nothing is bound
    uint32_t threadgroup_offset[METAL_SLOTS]; // in simt_block.shared
};

enum metal_argument_kind { METAL_DEVICE, METAL_CONSTANT, METAL_THREADGROUP };

struct metal_argument {
    enum metal_argument_kind kind;
    uint32_t index;       // of [[buffer(n)]] or [[threadgroup(n)]]
    uint32_t align_bytes; // of the type that the argument points to
    uint32_t size_bytes;  // of that type
};

struct metal_function {
    const char *name;               // by which the host asks for it: [[host_name("...")]] if given
    void (*run)(const void *bound); // struct metal_bound
    const struct metal_argument *arguments;
    uint32_t n_arguments;
    uint32_t threadgroup_bytes; // of the arrays that the kernel declares itself
    uint32_t max_threads;       // [[max_total_threads_per_threadgroup(n)]]; 0: not said
};

// Those of kernels.def in its order, ended by NULL.
extern const struct metal_function *const metal_functions[];

// NULL if there is none.
const struct metal_function *metal_function_find(const char *name);

#ifdef __cplusplus
}
#endif
#endif

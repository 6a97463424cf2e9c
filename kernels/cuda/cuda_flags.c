/* cuda_flags.c: flags: words of pinned memory by which the CPU and a CUDA device wait for each
 * other inside work that has been submitted.
 *
 * The driver's stream memory operations wait for a word and write it, as nodes of a graph among
 * kernels: no kernel spins, and a display that the device draws does not stand still. The order of
 * memory:
 * - The CPU's columns are seen by the kernel that reads them. The CPU stores the flag with release
 *   after its columns, all of which lie in pinned memory of the host, so a device that reads the
 *   new flag over the bus finds the columns there. The kernel starts after the wait has ended, and
 *   a kernel that starts has nothing of the host's memory cached. CU_STREAM_WAIT_VALUE_FLUSH is not
 *   needed: it is for writes of others to the device's own memory.
 * - The device's columns are seen by the CPU. The write of a flag follows the kernel that stores
 *   the columns in the stream's order, and the driver puts a fence of system scope before it
 *   (CU_STREAM_WRITE_VALUE_DEFAULT). The CPU loads the flag with acquire before it reads them.
 * Each word has a line of the cache of its own. Flags are not used where the driver would not start
 * a list before it has the CPU's word, or where a graph of it does not run: that is tried when the
 * device is opened. Ran on an H100. Owns the words. One thread drives a device at a
 * time. Tested by tests/kernels/test_cuda_flags.c.
 */
#include "base/clock.h"
#include "base/mem.h"
#include "kernels/cuda/cuda_backend.h"

enum { WORDS_BYTES = CUDA_FLAGS * CUDA_FLAG_BYTES };

static const uint64_t BLOCKED_NS = 1000000000; // no launch takes so long by itself

// ---- Trying -------------------------------------------------------------------------------------

enum { WORD_OF_HOST, WORD_OF_DEVICE };

struct trial {
    struct cuda_flags *flags;
    atomic_bool submitted; // the calling thread has submitted what waits for the CPU's word
    bool blocked;          // it did not before the word was given
};

// Gives the CPU's word when the calling thread has submitted all, or is known to wait.
static void give_word(void *context) {
    struct trial *trial = context;
    const uint64_t begin_ns = clock_ns();
    while (!atomic_load_explicit(&trial->submitted, memory_order_acquire) && !trial->blocked) {
        const uint64_t waited_ns = clock_ns() - begin_ns;
        trial->blocked = waited_ns > BLOCKED_NS;
        clock_rest(waited_ns);
    }
    atomic_store_explicit(cuda_flag_word(trial->flags, WORD_OF_HOST), 1, memory_order_release);
}

// Submits a list that waits for the CPU's word, starts a kernel and writes the device's word. True
// if that was done.
static bool try_list(struct cuda_device *cuda, struct cuda_queue *queue,
                     struct CUstream_st *other) {
    const struct swiglu_args nothing = {.n_cols = 0};
    struct cuda_flags *flags = &cuda->flags;
    struct trial trial = {.flags = flags};
    struct err ignored;
    for (int i = WORD_OF_HOST; i <= WORD_OF_DEVICE; i++) atomic_store(cuda_flag_word(flags, i), 0);
    if (cuda->driver.host_call(other, give_word, &trial) != DRIVER_SUCCESS) return false;
    cuda_queue_add_flag(queue, CUDA_WAIT_FLAG, cuda_flag_address(flags, WORD_OF_HOST));
    cuda_queue_add(queue, KERNEL_swiglu, (struct cuda_grid){1, 1, 1, 32, 0}, &nothing,
                   sizeof nothing);
    cuda_queue_add_flag(queue, CUDA_RAISE_FLAG, cuda_flag_address(flags, WORD_OF_DEVICE));
    const bool submitted = cuda_queue_submit(queue, &ignored) == OK;
    atomic_store_explicit(&trial.submitted, true, memory_order_release);
    const bool ended = cuda_await_stream(cuda, other, &ignored) == OK &&
                       cuda_await_stream(cuda, queue->stream, &ignored) == OK;
    if (!ended) return false; // the device is lost, or has failed
    return submitted && queue->use_graphs && !trial.blocked &&
           atomic_load_explicit(cuda_flag_word(flags, WORD_OF_DEVICE), memory_order_acquire);
}

// Tries it launch by launch and as a graph. Whether it works goes to *works.
static enum status try_flags(struct cuda_device *cuda, bool *works, struct err *e) {
    struct CUstream_st *other = NULL;
    struct cuda_queue queue = {0};
    const unsigned code = cuda->driver.stream_create(&other, DRIVER_STREAM_NON_BLOCKING);
    if (cuda_check(&cuda->driver, code, e, "%s: making a stream", cuda->base.info.name))
        return e->status;
    const enum status status =
        cuda_queue_open(&queue, &cuda->driver, &cuda->program, cuda->clock, NULL, e);
    queue.context = cuda->context;
    *works = !status;
    for (int round = 0; round < 2 && *works; round++) *works = try_list(cuda, &queue, other);
    if (cuda->base.lost) cuda_queue_abandon(&queue);
    cuda_queue_close(&queue);
    if (!cuda->base.lost) (void)cuda->driver.stream_destroy(other);
    return status;
}

// ---- Opening and closing ------------------------------------------------------------------------

enum status cuda_flags_open(struct cuda_device *cuda, struct err *e) {
    struct cuda_flags *flags = &cuda->flags;
    unsigned long long at = 0;
    bool works = false;
    if (!cuda->driver.has_flags || !cuda->driver.has_graphs || !cuda->driver.has_host_calls ||
        !cuda->base.info.reaches_host || cuda->wsl2)
        return OK;
    flags->words = mem_map_pages(WORDS_BYTES);
    if (!flags->words) return err_memory(e, WORDS_BYTES, "flags of a CUDA device");
    flags->pinned = cuda->driver.host_register(flags->words, WORDS_BYTES, DRIVER_REGISTER_MAPPED) ==
                    DRIVER_SUCCESS;
    if (flags->pinned && cuda->driver.host_address(&at, flags->words, 0) == DRIVER_SUCCESS) {
        flags->address = at;
        if (try_flags(cuda, &works, e)) return e->status;
        if (works) cuda->base.info.n_flags = CUDA_FLAGS;
    }
    if (cuda->base.lost) return device_lose(&cuda->base, e);
    return OK;
}

void cuda_flags_close(struct cuda_device *cuda) {
    struct cuda_flags *flags = &cuda->flags;
    if (flags->pinned) (void)cuda->driver.host_unregister(flags->words);
    if (flags->words) mem_unmap_pages(flags->words, WORDS_BYTES);
    *flags = (struct cuda_flags){0};
}

/* cuda_list.h: launches that were encoded and not yet submitted to the driver, and their
 * submission.
 *
 * A list owns room for its launches and their parameters, all allocated by cuda_list_open. A list
 * that equals one submitted before is replayed as a graph: one call instead of hundreds. Where the
 * CPU computes in between, the list waits for it by flags (cuda_flags.c); without these a token has
 * a list for each stretch between two hand-overs. Every table
 * that changes between two decode steps lies in device memory, so that their lists are equal. The
 * device's context must be current; one thread at a time. Tested by tests/kernels/test_cuda.c.
 */
#ifndef TANDEM_KERNELS_CUDA_CUDA_LIST_H
#define TANDEM_KERNELS_CUDA_CUDA_LIST_H

#include "kernels/cuda/cuda_history.h"
#include "kernels/cuda/cuda_times.h"

enum {
    CUDA_LIST_LAUNCHES = 4096,
    CUDA_LIST_PARAM_BYTES = CUDA_LIST_LAUNCHES * 128,
    CUDA_GRAPH_LAUNCHES = 2, // a shorter list is not worth a graph
    CUDA_GRAPHS = 1024,      // lists that are remembered: where the CPU has a part of each layer,
                             // a token takes up to five for each of them
    CUDA_GRAPHS_BYTES = 4 << 20, // and room for 25,000 of their launches
    CUDA_PARAMS_MAX = 1024,
};

struct cuda_queue {
    const struct cuda_driver *driver; // borrowed, like the four below
    const struct cuda_program *program;
    struct CUstream_st *stream;
    const struct log *log;
    struct cuda_times *times; // borrowed: measures each launch; NULL: nobody asks
    struct CUctx_st *context; // borrowed: of flags; set by whoever adds them
    struct cuda_list list;    // the launches to submit
    bool use_graphs;
    struct cuda_history history;
    uint64_t n_replays;
};

// Opens a queue of launches for stream; log may be NULL. ERR_MEMORY if host memory is refused;
// close the queue after a failure too. Without the driver's graph calls every launch is a call of
// its own.
enum status cuda_queue_open(struct cuda_queue *queue, const struct cuda_driver *driver,
                            const struct cuda_program *program, struct CUstream_st *stream,
                            const struct log *log, struct err *e);
// Forgets the graphs without calling the driver, whose stream does not end. Close the queue
// afterwards.
void cuda_queue_abandon(struct cuda_queue *queue);
void cuda_queue_close(struct cuda_queue *queue); // accepts a zeroed one; leaves it zeroed

// True if there is room for one more launch.
bool cuda_queue_has_room(const struct cuda_queue *queue);
// Appends a launch; params is copied. There must be room.
void cuda_queue_add(struct cuda_queue *queue, enum cuda_kernel kernel, struct cuda_grid grid,
                    const void *params, uint32_t params_bytes);
// Appends a wait for a flag, or the raising of one; address is the device's. There must be room.
void cuda_queue_add_flag(struct cuda_queue *queue, enum cuda_flag_command command,
                         uint64_t address);
// The launch that was appended last and not submitted, or NULL; and its parameters.
const struct cuda_launch *cuda_queue_last(const struct cuda_queue *queue);
const void *cuda_queue_last_params(const struct cuda_queue *queue);
// Takes it back: it was appended and not submitted.
void cuda_queue_take_back(struct cuda_queue *queue);
// Submits all launches to the driver, in order, and empties the list, also on failure. ERR_DEVICE
// or ERR_MEMORY, naming the kernel. A refused graph is no failure: from then on every launch is a
// call of its own, and the log says so.
enum status cuda_queue_submit(struct cuda_queue *queue, struct err *e);

#endif

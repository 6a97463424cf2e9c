/* cuda_times.h: how long each kernel runs, for --device cuda:times=1.
 *
 * A struct cuda_times owns events of the driver, of which one is recorded before the first launch
 * of a submission and one after each launch; the time between two is a kernel's, with what starting
 * it takes. Times are read when the driver has passed the last event, and never waited for:
 * launches that find no event left are not measured, and are counted. The device's context must be
 * current; one thread at a time. Tested by tests/kernels/test_cuda_event.c.
 */
#ifndef TANDEM_KERNELS_CUDA_CUDA_TIMES_H
#define TANDEM_KERNELS_CUDA_CUDA_TIMES_H

#include "kernels/cuda/cuda_images.h"

enum { CUDA_TIMES_EVENTS = 8192 };

struct cuda_times {
    const struct cuda_driver *driver; // borrowed
    struct CUevent_st **events;       // owned, [CUDA_TIMES_EVENTS]
    int32_t *kernels; // owned, the kernel before each event; -1: none, a submission begins
    int32_t n_events, n_recorded;
    double ms[KERNEL_COUNT]; // of all launches that were measured
    uint64_t n[KERNEL_COUNT], n_missed;
};

// ERR_MEMORY or ERR_DEVICE; close it after a failure too.
enum status cuda_times_open(struct cuda_times *t, const struct cuda_driver *driver, struct err *e);
void cuda_times_close(struct cuda_times *t); // accepts a zeroed one; leaves it zeroed

// Records an event on the stream: behind a launch of the kernel, or with -1 before the first one.
void cuda_times_mark(struct cuda_times *t, int32_t kernel, struct CUstream_st *stream);
// Adds up what has ended.
void cuda_times_read(struct cuda_times *t);
// A line for each kernel, the one that took longest first.
void cuda_times_print(const struct cuda_times *t, const struct log *log);

#endif

/* cuda_backend.c: the calls of cuda_backend.h that begin and end the entries of a CUDA device's
 * class.
 *
 * Owns nothing. cuda_device.c, cuda_event.c and cuda_launch.c call it; it calls none of them.
 * One thread drives a device at a time. Tested by tests/kernels/test_cuda.c.
 */
#include "kernels/cuda/cuda_backend.h"

void cuda_enter(const struct cuda_device *cuda) {
    (void)cuda->driver.context_set(cuda->context); // the call that follows reports a failure
}

void cuda_submit(struct cuda_stream *s) {
    struct err failure;
    if (s->base.device->lost) {
        if (s->failure.status == OK) (void)device_lose(s->base.device, &s->failure);
        return;
    }
    cuda_enter(cuda_of(s->base.device));
    if (cuda_queue_submit(&s->queue, &failure) == OK || s->failure.status != OK) return;
    s->failure = failure;
    err_context(&s->failure, "%s", s->base.device->info.name);
}

void cuda_keep(struct cuda_stream *s, unsigned code, const char *what) {
    struct cuda_device *cuda = cuda_of(s->base.device);
    struct err failure;
    if (s->failure.status != OK ||
        cuda_check(&cuda->driver, code, &failure, "%s: %s", s->base.device->info.name, what) == OK)
        return;
    s->failure = failure;
}

void cuda_add(struct cuda_stream *s, enum cuda_kernel kernel, struct cuda_grid grid,
              const void *params, uint32_t params_bytes) {
    if (!cuda_queue_has_room(&s->queue)) cuda_submit(s);
    if (s->failure.status == OK) cuda_queue_add(&s->queue, kernel, grid, params, params_bytes);
}

int cuda_flag_take(struct cuda_device *cuda, _Atomic uint32_t **out) {
    struct cuda_flags *flags = &cuda->flags;
    int place = 0;
    while (place < CUDA_FLAGS && flags->states[place] != CUDA_FLAG_FREE) place++;
    if (place == CUDA_FLAGS) return -1;
    flags->states[place] = CUDA_FLAG_TAKEN;
    *out = cuda_flag_word(flags, place);
    atomic_store_explicit(*out, 1, memory_order_relaxed);
    return place;
}

void cuda_flag_give_back(struct cuda_device *cuda, int place) {
    cuda->flags.states[place] = CUDA_FLAG_FREE;
}

void cuda_flag_encode(struct cuda_stream *s, enum cuda_flag_command command, int place) {
    struct cuda_flags *flags = &cuda_of(s->base.device)->flags;
    if (command == CUDA_WAIT_FLAG) flags->states[place] = CUDA_FLAG_AWAITED;
    if (!cuda_queue_has_room(&s->queue)) cuda_submit(s);
    if (s->failure.status == OK)
        cuda_queue_add_flag(&s->queue, command, cuda_flag_address(flags, place));
}

enum status cuda_lose(struct cuda_device *cuda, struct err *e) {
    const struct cuda_flags *flags = &cuda->flags;
    for (int i = 0; i < CUDA_FLAGS; i++)
        if (flags->states[i] == CUDA_FLAG_AWAITED)
            atomic_store_explicit(cuda_flag_word(flags, i), 1, memory_order_release);
    return device_lose(&cuda->base, e);
}

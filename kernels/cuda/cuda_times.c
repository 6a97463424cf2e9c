/* cuda_times.c: see cuda_times.h. */
#include "kernels/cuda/cuda_times.h"

#include "base/mem.h"

enum status cuda_times_open(struct cuda_times *t, const struct cuda_driver *driver, struct err *e) {
    *t = (struct cuda_times){.driver = driver};
    t->events = mem_alloc(CUDA_TIMES_EVENTS, sizeof *t->events);
    t->kernels = mem_alloc(CUDA_TIMES_EVENTS, sizeof *t->kernels);
    if (!t->events || !t->kernels)
        return err_memory(e, CUDA_TIMES_EVENTS * sizeof *t->events, "the times of kernels");
    while (t->n_events < CUDA_TIMES_EVENTS) {
        const unsigned code = driver->event_create(&t->events[t->n_events], 0);
        if (cuda_check(driver, code, e, "making an event")) return e->status;
        t->n_events++;
    }
    return OK;
}

void cuda_times_close(struct cuda_times *t) {
    for (int32_t i = 0; i < t->n_events; i++) (void)t->driver->event_destroy(t->events[i]);
    mem_free(t->events);
    mem_free(t->kernels);
    *t = (struct cuda_times){0};
}

void cuda_times_mark(struct cuda_times *t, int32_t kernel, struct CUstream_st *stream) {
    if (t->n_recorded == t->n_events ||
        t->driver->event_record(t->events[t->n_recorded], stream) != DRIVER_SUCCESS) {
        t->n_missed += kernel >= 0;
        return;
    }
    t->kernels[t->n_recorded++] = kernel;
}

void cuda_times_read(struct cuda_times *t) {
    if (t->n_recorded == 0 ||
        t->driver->event_query(t->events[t->n_recorded - 1]) != DRIVER_SUCCESS)
        return;
    for (int32_t i = 1; i < t->n_recorded; i++) {
        const int32_t kernel = t->kernels[i];
        float ms = 0;
        if (kernel < 0) continue;
        if (t->driver->event_elapsed(&ms, t->events[i - 1], t->events[i]) != DRIVER_SUCCESS) {
            t->n_missed++;
            continue;
        }
        t->ms[kernel] += (double)ms;
        t->n[kernel]++;
    }
    t->n_recorded = 0;
}

void cuda_times_print(const struct cuda_times *t, const struct log *log) {
    bool told[KERNEL_COUNT] = {false};
    double all = 0;
    for (int k = 0; k < KERNEL_COUNT; k++) all += t->ms[k];
    for (;;) {
        int most = -1;
        for (int k = 0; k < KERNEL_COUNT; k++)
            if (!told[k] && t->n[k] && (most < 0 || t->ms[k] > t->ms[most])) most = k;
        if (most < 0) break;
        told[most] = true;
        log_line(log, LOG_INFO, "kernel time: %.2f %%, %.3f ms, %llu launches of %s",
                 all > 0 ? 100 * t->ms[most] / all : 0, t->ms[most], (unsigned long long)t->n[most],
                 cuda_kernel_name((enum cuda_kernel)most));
    }
    if (t->n_missed)
        log_line(log, LOG_INFO, "kernel time: %llu launches were not measured",
                 (unsigned long long)t->n_missed);
}

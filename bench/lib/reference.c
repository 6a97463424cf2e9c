/* reference.c: see reference.h. */
#include "bench/lib/reference.h"

#include "base/clock.h"
#include "base/mem.h"

enum {
    HOST_POOL = 768 << 20,
    DEVICE_POOL = 256 << 20,
    HOST_SIZE = 1024, // rows and columns, as calibrate.c takes them on machines like these
    DEVICE_SIZE = 2048,
    LIMIT_NS = 50000000, // time of one measurement
    WARM_PASSES = 8, // passes before it for cached weights, since some caches take long to settle
};

enum status reference_open(struct reference *r, struct device *const devices[MAX_DEVICES],
                           const struct machine *machine, struct err *e) {
    *r = (struct reference){.machine = *machine};
    for (int d = 0; d < MAX_DEVICES; d++) r->devices[d] = devices[d];
    r->pool = mem_map_pages(HOST_POOL);
    if (r->pool) mem_use_small_pages(r->pool, HOST_POOL); // as calibrate.c
    if (!r->pool || !mem_populate(r->pool, HOST_POOL)) {
        reference_close(r);
        return err_memory(e, HOST_POOL, "weights to compare with");
    }
    rig_fill(r->pool, HOST_POOL);
    for (int d = 0; d < machine->n_devices; d++) {
        const bool host = machine->devices[d].is_host;
        if (rig_open(&r->rigs[d], r->devices[d], host ? r->pool : NULL,
                     host ? HOST_POOL : DEVICE_POOL, host ? HOST_SIZE : DEVICE_SIZE, e)) {
            reference_close(r);
            return e->status;
        }
        r->rigs[d].op_us = machine->devices[d].rates.op_us;
        r->rigs[d].pass_us = machine->devices[d].rates.pass_us;
    }
    return OK;
}

void reference_close(struct reference *r) {
    for (int d = 0; d < MAX_DEVICES; d++) rig_close(&r->rigs[d]);
    for (int d = MAX_DEVICES - 1; d >= 0; d--) device_close(r->devices[d]);
    if (r->pool) mem_unmap_pages(r->pool, HOST_POOL);
    *r = (struct reference){0};
}

enum status reference_time(struct reference *r, const struct reference_job *what, double *slower,
                           struct err *e) {
    const struct device_rates *rates = &r->machine.devices[what->d].rates;
    struct rig *rig = &r->rigs[what->d];
    const bool cached = what->cached > 0;
    const uint64_t window_bytes = cached ? what->read_bytes : 0;
    struct job one = rig_matmul(rig, what->type, 1, window_bytes); // warms the cache up
    struct job job = rig_matmul(rig, what->type, RATE_TOKENS[what->class], window_bytes);
    one.rests = job.rests = cached && r->machine.n_devices > 1; // as calibrate.c
    struct stopwatch watch = {.limit_ns = LIMIT_NS};
    double us;
    for (int pass = 0; pass < WARM_PASSES && cached; pass++)
        if (rig_pass(rig, &watch, &one, &us, e)) return e->status;
    job.warm = false; // whole passes of many tokens would take minutes
    watch = (struct stopwatch){.start_ns = clock_ns(), .limit_ns = LIMIT_NS};
    stopwatch_part(&watch, 1);
    if (rig_time(rig, &watch, &job, &us, e)) return e->status;
    const double size_bytes = (double)job_weight_bytes(rig, &job);
    const double memory_us = size_bytes / rates->memory_gbps * 1e-3;
    const double weights_us =
        cost_cached_us(rates, what->cached, memory_us,
                       size_bytes / rates->weight_gbps[what->type][what->class] * 1e-3);
    *slower = us / (weights_us + job_activation_bytes(rig, &job) / rates->vector_gbps * 1e-3);
    return OK;
}

/* calibrate_link.c: see calibrate_link.h. */
#include "runtime/host/calibrate_link.h"

#include "base/mem.h"

#include <string.h>

enum {
    FIRST_BLOCK = 4096,
    HOST_BYTES = 16 << 20,
    RUN_BYTES = 4 << 20, // one run copies at least that much, in at most MAX_COPIES copies
    MAX_COPIES = 64,
    LINK_RUNS = 7,
    LATENCY_RUNS = 25,
    IDLE_US = 300,     // the accelerator is idle for so long before a round trip
    BESIDE_US = 40000, // of copies while the CPU works
    STAGE_BYTES = HOST_BYTES / LINK_STAGES,
    LEAST_STAGED = 2 * LINK_STAGES, // blocks of one run
};

// MB/s, or bytes in a microsecond, below the rate of any link.
static const double SLOWEST_MBPS = 40;

static uint64_t now(const struct link_bench *bench) { return stopwatch_now(bench->watch); }

static double since_us(const struct link_bench *bench, uint64_t start_ns) {
    return (double)(now(bench) - start_ns) * 1e-3;
}

enum status link_open(struct link_bench *bench, struct rig *rig, struct stopwatch *watch,
                      struct err *e) {
    struct device *device = rig->device;
    *bench = (struct link_bench){.rig = rig, .watch = watch};
    bench->largest_bytes =
        rig->pool.size_bytes < HOST_BYTES ? rig->pool.size_bytes : (uint64_t)HOST_BYTES;
    bench->host = mem_map_pages(HOST_BYTES);
    bench->source = mem_map_pages(HOST_BYTES);
    if (!bench->host || !mem_populate(bench->host, HOST_BYTES) || !bench->source ||
        !mem_populate(bench->source, HOST_BYTES))
        return err_memory(e, 2 * HOST_BYTES, "copies to measure");
    rig_fill(bench->host, HOST_BYTES);
    rig_fill(bench->source, HOST_BYTES);
    for (int i = 0; i < LINK_STAGES; i++)
        if (event_new(device, &bench->drained[i], e)) return e->status;
    if (stream_new(device, STREAM_COPY_IN, &bench->in, e) ||
        stream_new(device, STREAM_COPY_OUT, &bench->out, e) ||
        event_new(device, &bench->event, e) || event_new(device, &bench->computed, e) ||
        event_new(device, &bench->event_out, e))
        return e->status;
    if (device->info.n_flags > 0 &&
        (event_new_flag(device, &bench->given, e) || event_new_flag(device, &bench->taken, e)))
        return e->status;
    return OK;
}

void link_close(struct link_bench *bench) {
    stream_free(bench->in);
    stream_free(bench->out);
    event_free(&bench->event);
    event_free(&bench->computed);
    event_free(&bench->event_out);
    event_free(&bench->given);
    event_free(&bench->taken);
    for (int i = 0; i < LINK_STAGES; i++) event_free(&bench->drained[i]);
    if (bench->source) mem_unmap_pages(bench->source, HOST_BYTES);
    if (bench->host) {
        device_host_unregister(bench->rig->device, bench->host);
        mem_unmap_pages(bench->host, HOST_BYTES);
    }
    *bench = (struct link_bench){0};
}

static void encode_copy(struct link_bench *bench, bool to, uint64_t size_bytes) {
    void *device = bench->rig->pool.base;
    if (to)
        stream_copy(bench->in, device, bench->host, size_bytes, COPY_TO_DEVICE);
    else
        stream_copy(bench->out, bench->host, device, size_bytes, COPY_FROM_DEVICE);
}

// The start of copies, which the program waits for until they are timed by copied.
static uint64_t start_copies(struct link_bench *bench) {
    const uint64_t start_ns = now(bench);
    bench->watch->waits = true;
    return start_ns;
}

// The microseconds since then. *again: so many bytes took so long that the program was stopped.
static double copied(struct link_bench *bench, uint64_t start_ns, double size_bytes, bool *again) {
    const double us = since_us(bench, start_ns) + 1e-3;
    bench->watch->waits = false;
    *again = stopwatch_too_long(bench->watch, us, size_bytes / SLOWEST_MBPS);
    return us;
}

// Microseconds of n copies, one after the other.
static enum status copies_us(struct link_bench *bench, bool to, uint64_t size_bytes, int32_t n,
                             double *out_us, struct err *e) {
    enum status status;
    bool again;
    do {
        const uint64_t start_ns = start_copies(bench);
        for (int32_t i = 0; i < n; i++) encode_copy(bench, to, size_bytes);
        status = stream_wait(to ? bench->in : bench->out, e);
        *out_us = copied(bench, start_ns, (double)size_bytes * n, &again);
    } while (!status && again);
    return status;
}

// Times as many copies of that size as its share of the time allows, at least two.
static enum status measure_block(struct link_bench *bench, bool to, uint64_t size_bytes,
                                 double *gbps, struct err *e) {
    double runs[LINK_RUNS], us;
    int32_t n = (int32_t)(RUN_BYTES / size_bytes), count = 0;
    n = n < 1 ? 1 : n > MAX_COPIES ? MAX_COPIES : n;
    if (copies_us(bench, to, size_bytes, 1, &us, e)) return e->status;
    const double slice_us = (double)bench->watch->limit_ns * 1e-3 * 0.005;
    while (n > 1 && us * n > slice_us) n /= 2;
    const uint64_t start_ns = now(bench);
    while (count == 0 || (count < LINK_RUNS && since_us(bench, start_ns) + us * n < slice_us))
        if (copies_us(bench, to, size_bytes, n, &runs[count++], e)) return e->status;
    *gbps = (double)size_bytes * n / median_of(runs, count) * 1e-3;
    return stopwatch_step(bench->watch, e);
}

// Measures all sizes in one direction; *best gets the rate of the largest measured size.
static enum status measure_way(struct link_bench *bench, bool to, struct link_block *blocks,
                               double *best, struct err *e) {
    uint64_t size_bytes = FIRST_BLOCK;
    for (int i = 0; i < LINK_BLOCKS; i++, size_bytes *= 4) {
        double *gbps = to ? &blocks[i].to_gbps : &blocks[i].from_gbps;
        blocks[i].size_bytes = size_bytes;
        const bool slow =
            *best > 0 && !stopwatch_fits(bench->watch, (double)size_bytes / *best * 3e-3);
        if (size_bytes > bench->largest_bytes || slow) continue;
        if (measure_block(bench, to, size_bytes, gbps, e)) return e->status;
        *best = *gbps;
    }
    return OK;
}

// Encodes a few bytes that go to the accelerator, are awaited by its compute stream, and come back,
// as the residual stream does between units on different devices.
static void encode_round_trip(struct link_bench *bench) {
    struct stream *compute = bench->rig->stream;
    encode_copy(bench, true, FIRST_BLOCK);
    stream_record(bench->in, &bench->event);
    stream_flush(bench->in);
    stream_wait_event(compute, &bench->event);
    stream_record(compute, &bench->computed);
    stream_flush(compute);
    stream_wait_event(bench->out, &bench->computed);
    encode_copy(bench, false, FIRST_BLOCK);
    stream_record(bench->out, &bench->event_out);
    stream_flush(bench->out);
}

// The same where hand-overs are commands of the compute stream itself. Returns the event of its
// end.
static struct event *encode_round_trip_in_order(struct link_bench *bench) {
    struct stream *compute = bench->rig->stream;
    void *device = bench->rig->pool.base;
    struct event *end = bench->taken.flag && bench->pinned ? &bench->taken : &bench->event_out;
    stream_copy(compute, device, bench->host, FIRST_BLOCK, COPY_TO_DEVICE);
    stream_copy(compute, bench->host, device, FIRST_BLOCK, COPY_FROM_DEVICE);
    stream_record(compute, end);
    stream_flush(compute);
    return end;
}

// Times a round trip in us, for both ways. Where the accelerator waits for the CPU by a flag, all
// is submitted before the CPU is busy, and the trip begins when the CPU raises it.
static enum status round_trip_us(struct link_bench *bench, double *out_us, struct err *e) {
    struct event *end = &bench->event_out;
    const bool ahead = bench->given.flag && bench->pinned;
    enum status status;
    bool again;
    do {
        if (ahead) {
            event_lower(&bench->given);
            stream_wait_event(bench->rig->stream, &bench->given);
            end = encode_round_trip_in_order(bench);
        }
        const uint64_t idle_ns = now(bench);
        while (since_us(bench, idle_ns) < IDLE_US)
            continue; // the CPU is busy; the accelerator falls asleep
        const uint64_t start_ns = start_copies(bench);
        if (ahead)
            event_raise(&bench->given);
        else if (bench->rig->device->info.reaches_host)
            end = encode_round_trip_in_order(bench);
        else
            encode_round_trip(bench);
        status = event_wait(end, e);
        *out_us = copied(bench, start_ns, 2 * FIRST_BLOCK, &again);
    } while (!status && again);
    return status;
}

double link_latency_us(double *round_trips_us, int32_t n, uint64_t block_bytes,
                       const struct link_rates *rates) {
    const double bytes_us =
        (double)block_bytes * (1 / rates->to_gbps + 1 / rates->from_gbps) * 1e-3;
    const double us = (median_of(round_trips_us, n) - bytes_us) / 2;
    return us > 0.1 ? us : 0.1;
}

static enum status measure_latency(struct link_bench *bench, struct link_rates *rates,
                                   struct err *e) {
    double runs[LATENCY_RUNS];
    int32_t count = 0;
    for (int32_t i = 0; i < LATENCY_RUNS; i++) {
        if (round_trip_us(bench, &runs[count++], e)) return e->status;
        if (i >= 2 && !stopwatch_fits(bench->watch, runs[i] + IDLE_US)) break;
    }
    rates->latency_us = link_latency_us(runs, count, FIRST_BLOCK, rates);
    return stopwatch_step(bench->watch, e);
}

// Copies n blocks to pinned blocks while earlier ones are copied on to the device.
static enum status copy_staged(struct link_bench *bench, uint64_t block_bytes, int32_t n,
                               struct err *e) {
    for (int32_t i = 0; i < n; i++) {
        struct event *drained = &bench->drained[i % LINK_STAGES];
        char *block = (char *)bench->host + (uint64_t)(i % LINK_STAGES) * STAGE_BYTES;
        if (event_wait(drained, e)) return e->status;
        memcpy(block, (char *)bench->source + (uint64_t)i * block_bytes % HOST_BYTES, block_bytes);
        stream_copy(bench->in, bench->rig->pool.base, block, block_bytes, COPY_TO_DEVICE);
        stream_record(bench->in, drained);
        stream_flush(bench->in);
    }
    return stream_wait(bench->in, e);
}

// Microseconds of n such blocks.
static enum status staged_us(struct link_bench *bench, uint64_t block_bytes, int32_t n,
                             double *out_us, struct err *e) {
    enum status status;
    bool again;
    do {
        const uint64_t start_ns = start_copies(bench);
        status = copy_staged(bench, block_bytes, n, e);
        *out_us = copied(bench, start_ns, (double)block_bytes * n, &again);
    } while (!status && again);
    return status;
}

// Measures staged copies in the largest blocks that memory and time allow.
static enum status measure_staged(struct link_bench *bench, struct link_rates *rates,
                                  struct err *e) {
    double runs[LINK_RUNS];
    int32_t count = 0;
    uint64_t block_bytes = STAGE_BYTES;
    while (
        block_bytes > FIRST_BLOCK &&
        (block_bytes > bench->largest_bytes ||
         !stopwatch_fits(bench->watch, 2e-3 * LEAST_STAGED * (double)block_bytes / rates->to_gbps)))
        block_bytes /= 2;
    const double slice_us = (double)bench->watch->limit_ns * 1e-3 * 0.005;
    const uint64_t start_ns = now(bench);
    while (count == 0 ||
           (count < LINK_RUNS && since_us(bench, start_ns) + runs[count - 1] < slice_us))
        if (staged_us(bench, block_bytes, LEAST_STAGED, &runs[count++], e)) return e->status;
    const double gbps = LEAST_STAGED * (double)block_bytes / median_of(runs, count) * 1e-3;
    rates->staged_to_gbps = gbps < rates->to_gbps ? gbps : rates->to_gbps;
    return stopwatch_step(bench->watch, e);
}

enum status link_measure(struct link_bench *bench, struct link_rates *rates,
                         struct link_block blocks[LINK_BLOCKS], struct err *e) {
    struct device *device = bench->rig->device;
    const double theoretical = rates->theoretical_gbps;
    *rates = (struct link_rates){.theoretical_gbps = theoretical};
    bench->pinned = device_host_register(device, bench->host, HOST_BYTES);
    if (measure_way(bench, true, blocks, &rates->to_gbps, e) ||
        measure_way(bench, false, blocks, &rates->from_gbps, e) || measure_staged(bench, rates, e))
        return e->status;
    return measure_latency(bench, rates, e);
}

// Times counts[0] multiplications of the CPU and counts[1] copies that run beside them, from the
// same start.
static enum status run_beside(struct link_bench *bench, struct rig *cpu, const struct job *job,
                              const int64_t counts[2], double us[2], struct err *e) {
    const double copied_bytes = (double)counts[1] * (double)bench->largest_bytes;
    bool again = true;
    while (again) {
        const uint64_t start_ns = start_copies(bench);
        for (int64_t i = 0; i < counts[1]; i++) encode_copy(bench, true, bench->largest_bytes);
        stream_flush(bench->in);
        for (int64_t i = 0; i < counts[0]; i++) job->encode(cpu, job, cpu->n_calls + i);
        cpu->n_calls += counts[0];
        if (stream_wait(cpu->stream, e)) return e->status;
        us[0] = since_us(bench, start_ns);
        if (stream_wait(bench->in, e)) return e->status;
        us[1] = copied(bench, start_ns, copied_bytes, &again);
    }
    return OK;
}

enum status link_measure_beside(struct link_bench *bench, struct rig *cpu, enum weight_type type,
                                double to_gbps, struct calibration *out, struct err *e) {
    const struct job job = rig_matmul(cpu, type, 1, 0);
    const double block = (double)bench->largest_bytes, bytes = (double)job_weight_bytes(cpu, &job);
    double alone_us, us[2] = {0, 0}; // time of the CPU and of the copies
    if (rig_time(cpu, bench->watch, &job, &alone_us, e)) return e->status;
    alone_us += cpu->op_us;
    // The CPU stops after about half of the copies, so that copies run during all of its work.
    int64_t n_copies = (int64_t)(BESIDE_US * to_gbps * 1e3 / block);
    n_copies = n_copies < 2 ? 2 : n_copies > MAX_COPIES ? MAX_COPIES : n_copies;
    const double copies_alone_us = (double)n_copies * block / to_gbps * 1e-3;
    const int64_t n_calls = (int64_t)(copies_alone_us / 2 / alone_us) + 1;
    if (run_beside(bench, cpu, &job, (int64_t[]){n_calls, n_copies}, us, e)) return e->status;
    out->cpu_alone_gbps = bytes / alone_us * 1e-3;
    out->cpu_beside_gbps = bytes * (double)n_calls / us[0] * 1e-3;
    out->copy_alone_gbps = to_gbps;
    // The copies that ended after the CPU ran alone, at the rate without the CPU.
    const double after_us = us[1] > us[0] ? us[1] - us[0] : 0;
    const double beside = (double)n_copies * block - after_us * to_gbps * 1e3;
    out->copy_beside_gbps = beside / us[0] * 1e-3;
    if (out->copy_beside_gbps > to_gbps) out->copy_beside_gbps = to_gbps;
    if (out->copy_beside_gbps < to_gbps / 10) out->copy_beside_gbps = to_gbps / 10;
    return stopwatch_step(bench->watch, e);
}

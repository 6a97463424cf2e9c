/* cuda_device.c: see cuda_device.h and kernels/device.h.
 *
 * Buffers are the driver's allocations; a stream of ours is one of the driver's, with a queue of
 * launches before it if it computes. Copies are in cuda_copy.c. A failure sticks to the stream. The
 * context is made current at the head of every entry, since any thread may drive a device. Once the
 * device is lost the driver is not called any more: it might wait. Events are in cuda_event.c.
 */
#include "kernels/cuda/cuda_device.h"

#include "base/hardware.h"
#include "base/mem.h"
#include "kernels/cuda/cuda_backend.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    ALIGN_BYTES = 256,
    OLDEST_ARCH = 61, // the first with integer dot products
};

// Free memory that stays unused, for graphs that the driver builds later, for the partial results
// of attention, and for the driver's rounding of allocations to 2 MiB. At most a sixteenth of the
// device.
static const uint64_t RESERVE_BYTES = UINT64_C(96) << 20;

static unsigned long long address_of(const void *p) { return (unsigned long long)(uintptr_t)p; }

// ---- Memory ------------------------------------------------------------------------------------

static uint64_t without_reserve(uint64_t free_bytes, uint64_t total_bytes) {
    const uint64_t reserve = total_bytes / 16 < RESERVE_BYTES ? total_bytes / 16 : RESERVE_BYTES;
    return free_bytes > reserve ? free_bytes - reserve : 0;
}

static uint64_t cuda_free_bytes(struct device *d) {
    struct cuda_device *cuda = cuda_of(d);
    size_t free_bytes = 0, total_bytes = 0;
    if (d->lost) return 0;
    cuda_enter(cuda);
    (void)cuda->driver.memory_info(&free_bytes, &total_bytes); // after a failure both stay 0
    return without_reserve(free_bytes, total_bytes);
}

static enum status refuse_memory(struct cuda_device *cuda, uint64_t size_bytes,
                                 enum purpose purpose, const char *why, struct err *e) {
    size_t free_bytes = 0, total_bytes = 0;
    (void)cuda->driver.memory_info(&free_bytes, &total_bytes);
    err_set(e, ERR_MEMORY, "%s: no memory for %s (%s)", cuda->base.info.name, purpose_name(purpose),
            why);
    char size[ERR_SIZE_CHARS], room[ERR_SIZE_CHARS], unused[ERR_SIZE_CHARS];
    err_expected(e, "%s", err_size_needed(size, size_bytes));
    err_actual(e, "%s taken of %s that tandem may use, %s free on the GPU",
               err_size_needed(size, device_used_bytes(&cuda->base)),
               err_size_limit(room, cuda->base.info.free_bytes),
               err_size_limit(unused, free_bytes));
    return err_fix(e, "close other programs that use the GPU, or give tandem less of it (--vram)");
}

static enum status cuda_buffer_new(struct device *d, uint64_t size_bytes, enum purpose purpose,
                                   void **base, struct err *e) {
    struct cuda_device *cuda = cuda_of(d);
    uint64_t used = device_used_bytes(d);
    if (d->lost) return device_lose(d, e);
    cuda_enter(cuda);
    if (used > d->info.free_bytes || size_bytes > d->info.free_bytes - used)
        return refuse_memory(cuda, size_bytes, purpose, "more than was free at the start", e);
    unsigned long long address = 0;
    unsigned code = cuda->driver.memory_alloc(&address, size_bytes);
    if (code != DRIVER_SUCCESS)
        return refuse_memory(cuda, size_bytes, purpose, cuda_error_name(&cuda->driver, code), e);
    *base = (void *)(uintptr_t)address;
    return OK;
}

static void cuda_buffer_free(struct device *d, void *base, uint64_t size_bytes) {
    (void)size_bytes;
    if (d->lost) return;
    cuda_enter(cuda_of(d));
    (void)cuda_of(d)->driver.memory_free(address_of(base));
}

// ---- Streams -----------------------------------------------------------------------------------

static void cuda_stream_free(struct stream *stream) {
    struct cuda_stream *s = (struct cuda_stream *)stream;
    struct cuda_device *cuda = cuda_of(stream->device);
    struct err ignored; // a wait that fails marks the device as lost
    cuda_submit(s);
    if (s->handle) (void)cuda_await_stream(cuda, s->handle, &ignored);
    if (!stream->device->lost) cuda_times_read(&cuda->times);
    if (stream->device->lost) cuda_queue_abandon(&s->queue);
    cuda_queue_close(&s->queue);
    if (s->partial && !stream->device->lost) (void)cuda->driver.memory_free(s->partial);
    if (s->handle && !stream->device->lost) (void)cuda->driver.stream_destroy(s->handle);
    mem_free(s);
}

static enum status open_compute(struct cuda_stream *s, struct err *e) {
    struct cuda_device *cuda = cuda_of(s->base.device);
    if (cuda_queue_open(&s->queue, &cuda->driver, &cuda->program, s->handle, cuda->log, e))
        return e->status;
    if (cuda->times.n_events) s->queue.times = &cuda->times;
    s->queue.context = cuda->context;
    unsigned code = cuda->driver.memory_alloc(&s->partial, CUDA_PARTIAL_BYTES);
    return cuda_check(&cuda->driver, code, e, "%s: %d bytes for partial results",
                      cuda->base.info.name, (int)CUDA_PARTIAL_BYTES);
}

static enum status cuda_stream_new(struct device *d, enum stream_kind kind, struct stream **out,
                                   struct err *e) {
    struct cuda_device *cuda = cuda_of(d);
    struct cuda_stream *s = mem_alloc(1, sizeof *s);
    if (!s) return err_memory(e, sizeof *s, "a stream of a CUDA device");
    s->base = (struct stream){.device = d, .kind = kind};
    cuda_enter(cuda);
    unsigned code = cuda->driver.stream_create(&s->handle, DRIVER_STREAM_NON_BLOCKING);
    if (cuda_check(&cuda->driver, code, e, "%s: making a stream", d->info.name)) goto fail;
    if (kind == STREAM_COMPUTE && open_compute(s, e)) goto fail;
    *out = &s->base;
    return OK;
fail:
    cuda_stream_free(&s->base);
    return e->status;
}

// On WSL2 what was submitted may stay in a queue of the process until the driver is asked about it,
// while the calling thread computes.
static void cuda_flush(struct stream *stream) {
    struct cuda_stream *s = (struct cuda_stream *)stream;
    const struct cuda_device *cuda = cuda_of(stream->device);
    cuda_submit(s);
    if (cuda->wsl2 && !stream->device->lost) (void)cuda->driver.stream_query(s->handle);
}

static enum status cuda_wait(struct stream *stream, struct err *e) {
    struct cuda_stream *s = (struct cuda_stream *)stream;
    struct err failure;
    cuda_submit(s);
    // A failed stream may still run launches that were submitted before.
    if (cuda_await_stream(cuda_of(stream->device), s->handle, &failure) != OK &&
        s->failure.status == OK)
        s->failure = failure;
    if (s->failure.status == OK) return OK;
    *e = s->failure;
    return e->status;
}

static void cuda_call(struct stream *stream, void (*fn)(void *context), void *context) {
    struct cuda_stream *s = (struct cuda_stream *)stream;
    const struct cuda_driver *driver = &cuda_of(stream->device)->driver;
    struct err ignored; // the stream keeps it
    cuda_submit(s);
    if (s->failure.status != OK) return;
    if (driver->has_host_calls)
        cuda_keep(s, driver->host_call(s->handle, fn, context), "a call of the host");
    else if (cuda_wait(stream, &ignored) == OK)
        fn(context);
}

// ---- Opening and closing -----------------------------------------------------------------------

static void cuda_batch_hint(struct device *d, int32_t n_tokens) {
    (void)d; // kernels are chosen op by op
    (void)n_tokens;
}

static void cuda_close(struct device *d) {
    struct cuda_device *cuda = cuda_of(d);
    for (int i = 0; i < CUDA_REGIONS; i++) ASSERT(!cuda->pinned[i].base);
    if (d->lost) {
        cuda->times.n_events = 0; // the driver's events stay
        cuda_times_close(&cuda->times);
        mem_free(cuda);
        return;
    }
    if (cuda->context) {
        cuda_enter(cuda);
        cuda_flags_close(cuda);
        cuda_clock_close(cuda);
        cuda_times_print(&cuda->times, cuda->log);
        cuda_times_close(&cuda->times);
        cuda_program_close(&cuda->program, &cuda->driver);
        (void)cuda->driver.context_set(NULL);
        (void)cuda->driver.context_release(cuda->number);
    }
    cuda_driver_close(&cuda->driver);
    mem_free(cuda);
}

static const struct device_class CUDA_CLASS = {
    .buffer_new = cuda_buffer_new,
    .buffer_free = cuda_buffer_free,
    .host_register = cuda_host_register,
    .host_lend = cuda_host_lend,
    .host_unregister = cuda_host_unregister,
    .stream_new = cuda_stream_new,
    .stream_free = cuda_stream_free,
    .event_new = cuda_event_new,
    .event_free = cuda_event_free,
    .copy = cuda_copy,
    .copy_rows = cuda_copy_rows,
    .call = cuda_call,
    .record = cuda_record,
    .wait_event = cuda_wait_event,
    .event_wait = cuda_event_wait,
    .event_time = cuda_event_time,
    .flush = cuda_flush,
    .wait = cuda_wait,
    .free_bytes = cuda_free_bytes,
    .batch_hint = cuda_batch_hint,
    .close = cuda_close,
};

static enum status find_device(struct cuda_device *cuda, int32_t index, struct err *e) {
    const struct cuda_driver *driver = &cuda->driver;
    int n = 0;
    if (cuda_check(driver, driver->device_count(&n), e, "counting the GPUs")) return e->status;
    if (n == 0) {
        err_set(e, ERR_UNSUPPORTED, "the NVIDIA driver finds no GPU");
        return err_fix(e, "look at nvidia-smi and at CUDA_VISIBLE_DEVICES");
    }
    if (index >= n) {
        err_set(e, ERR_USAGE, "there is no GPU number %d", index);
        return err_expected(e, "0 to %d", n - 1);
    }
    return cuda_check(driver, driver->device_get(&cuda->number, index), e, "opening GPU %d", index);
}

// The peak rate of the device's memory, which sends data twice in a period of its clock; 0 if the
// driver does not tell.
static double bus_gbps(const struct cuda_device *cuda) {
    const struct cuda_driver *driver = &cuda->driver;
    int khz = 0, bits = 0;
    if (driver->device_attribute(&khz, DRIVER_ATTRIBUTE_MEMORY_CLOCK, cuda->number) ||
        driver->device_attribute(&bits, DRIVER_ATTRIBUTE_BUS_WIDTH, cuda->number))
        return 0;
    return 2e-6 * khz * bits / 8;
}

static enum status describe_device(struct cuda_device *cuda, struct err *e) {
    const struct cuda_driver *driver = &cuda->driver;
    struct device_info *info = &cuda->base.info;
    int major = 0, minor = 0;
    unsigned code = driver->device_name(info->name, sizeof info->name, cuda->number);
    if (code == DRIVER_SUCCESS)
        code = driver->device_attribute(&major, DRIVER_ATTRIBUTE_MAJOR, cuda->number);
    if (code == DRIVER_SUCCESS)
        code = driver->device_attribute(&minor, DRIVER_ATTRIBUTE_MINOR, cuda->number);
    if (code == DRIVER_SUCCESS)
        code = driver->device_attribute(&cuda->n_multiprocessors, DRIVER_ATTRIBUTE_MULTIPROCESSORS,
                                        cuda->number);
    if (code == DRIVER_SUCCESS)
        code = driver->device_pci_id(info->pci_id, sizeof info->pci_id, cuda->number);
    int maps_host = 0;
    if (code == DRIVER_SUCCESS)
        code = driver->device_attribute(&maps_host, DRIVER_ATTRIBUTE_MAPS_HOST, cuda->number);
    if (cuda_check(driver, code, e, "asking the GPU what it is")) return e->status;
    info->reaches_host = maps_host;
    int pins_read_only = 0; // a driver before CUDA 11.1 does not know the question
    if (driver->device_attribute(&pins_read_only, DRIVER_ATTRIBUTE_PINS_READ_ONLY, cuda->number))
        pins_read_only = 0;
    info->pins_files = pins_read_only;
    cuda->arch = major * 10 + minor;
    (void)snprintf(info->kind, sizeof info->kind, "cuda");
    info->align_bytes = ALIGN_BYTES;
    info->n_lanes = 1;
    info->bus_gbps = bus_gbps(cuda);
    info->rounds_by_batch = true; // few tokens and many take different kernels
    if (cuda->arch >= OLDEST_ARCH) return OK;
    err_set(e, ERR_DEVICE, "%s is too old for the kernels", info->name);
    err_expected(e, "compute capability %d.%d or newer", OLDEST_ARCH / 10, OLDEST_ARCH % 10);
    err_actual(e, "%d.%d", major, minor);
    return err_fix(e, "use --device none");
}

// Only some devices of 7.5 have tensor cores, and the driver tells which only by their names: those
// called RTX, the T4 and similar ones have them; the GTX 16xx, the MX450 and the small Quadros do
// not. Shares of a device ("GRID T4-8Q", "GRID RTX6000-4Q") have more in the word.
static bool has_tensor_cores(int arch, const char *name) {
    static const char *const names[] = {"T4", "T4G", "T10"};
    if (arch != 75) return arch > 75;
    for (const char *word = name; *word; word += strspn(word, " ")) {
        const size_t length = strcspn(word, " -");
        if (!strncmp(word, "RTX", 3) && strspn(word + 3, "0123456789") == length - 3) return true;
        for (size_t i = 0; i < sizeof names / sizeof *names; i++)
            if (strlen(names[i]) == length && !strncmp(word, names[i], length)) return true;
        word += strcspn(word, " ");
    }
    return false;
}

// Launches a few kernels and a graph that do nothing, so that the driver has made its first
// allocations before the free memory is read.
static enum status warm_up(struct cuda_device *cuda, struct err *e) {
    const struct swiglu_args nothing = {.n_cols = 0};
    struct cuda_queue queue = {0};
    enum status status =
        cuda_queue_open(&queue, &cuda->driver, &cuda->program, cuda->clock, cuda->log, e);
    for (int round = 0; round < 2 && !status; round++) {
        for (int i = 0; i < CUDA_GRAPH_LAUNCHES; i++)
            cuda_queue_add(&queue, KERNEL_swiglu, (struct cuda_grid){1, 1, 1, 32, 0}, &nothing,
                           sizeof nothing);
        status = cuda_queue_submit(&queue, e);
    }
    if (!status)
        status = cuda_check(&cuda->driver, cuda->driver.stream_synchronize(cuda->clock), e,
                            "running the first kernel");
    cuda_queue_close(&queue);
    if (status) err_context(e, "%s", cuda->base.info.name);
    return status;
}

static enum status read_memory(struct cuda_device *cuda, struct err *e) {
    size_t free_bytes = 0, total_bytes = 0;
    unsigned code = cuda->driver.memory_info(&free_bytes, &total_bytes);
    if (cuda_check(&cuda->driver, code, e, "%s: asking for its free memory", cuda->base.info.name))
        return e->status;
    cuda->base.info.capacity_bytes = total_bytes;
    cuda->base.info.free_bytes = without_reserve(free_bytes, total_bytes);
    return OK;
}

static void tell(struct cuda_device *cuda) {
    struct device_info *info = &cuda->base.info;
    const char *tensor = cuda->tensor_cores ? "with tensor cores"
                         : has_tensor_cores(cuda->arch, info->name)
                             ? "tensor cores not used"
                             : "without tensor cores, by its name and generation";
    (void)snprintf(info->driver, sizeof info->driver, "%d.%d", cuda->driver.version / 1000,
                   cuda->driver.version % 1000 / 10);
    (void)snprintf(info->capability, sizeof info->capability, "%d.%d", cuda->arch / 10,
                   cuda->arch % 10);
    (void)snprintf(info->details, sizeof info->details,
                   "compute capability %d.%d, %d multiprocessors, %s\n"
                   "driver of CUDA %d.%d, PCI %s, %s%s%s\n"
                   "kernels: %s (others: %s)",
                   cuda->arch / 10, cuda->arch % 10, cuda->n_multiprocessors, tensor,
                   cuda->driver.version / 1000, cuda->driver.version % 1000 / 10, info->pci_id,
                   cuda->driver.has_graphs ? "launches in graphs" : "launches one by one",
                   info->n_flags ? ", the GPU waits for the CPU" : "", cuda->wsl2 ? ", WSL2" : "",
                   cuda->program.target, *cuda->program.refused ? cuda->program.refused : "none");
    log_line(cuda->log, LOG_INFO, "%s: kernels %s, %s", info->name, cuda->program.target, tensor);
}

static enum status open_parts(struct cuda_device *cuda, const struct cuda_options *o,
                              struct err *e) {
    if (cuda_driver_open(&cuda->driver, *o->driver ? o->driver : NULL, e) ||
        find_device(cuda, o->index, e) || describe_device(cuda, e))
        return e->status;
    if (o->no_graphs || o->times) cuda->driver.has_graphs = false;
    if (o->no_flags) cuda->driver.has_flags = false;
    cuda->wsl2 = o->wsl2 || hardware_is_wsl2(HARDWARE_DEV);
    const char *name = cuda->base.info.name;
    struct CUctx_st *context = NULL;
    unsigned code = cuda->driver.context_retain(&context, cuda->number);
    if (cuda_check(&cuda->driver, code, e, "%s: making a context", name)) return e->status;
    cuda->context = context;
    code = cuda->driver.context_set(context);
    if (cuda_check(&cuda->driver, code, e, "%s: entering its context", name)) return e->status;
    const struct cuda_program_options wanted = {.arch = cuda->arch,
                                                .tensor_cores = !o->no_tensor_cores &&
                                                                has_tensor_cores(cuda->arch, name),
                                                .only = *o->image ? o->image : NULL,
                                                .device = name,
                                                .log = cuda->log};
    if (cuda_program_open(&cuda->program, &cuda->driver, &wanted, e))
        return err_context(e, "%s", name);
    cuda->tensor_cores = cuda->program.tensor_cores;
    if (cuda_clock_open(cuda, e) || warm_up(cuda, e) || cuda_flags_open(cuda, e) ||
        cuda_clock_start(cuda, e) ||
        (o->times && cuda_times_open(&cuda->times, &cuda->driver, e)) || read_memory(cuda, e))
        return e->status;
    tell(cuda);
    return OK;
}

enum status cuda_device_open(struct device **out, const struct cuda_options *options,
                             const struct log *log, struct err *e) {
    *out = NULL;
    struct cuda_device *cuda = mem_alloc(1, sizeof *cuda);
    if (!cuda) return err_memory(e, sizeof *cuda, "a CUDA device");
    cuda->base.class = &CUDA_CLASS;
    cuda->base.wait_limit_s = DEVICE_WAIT_LIMIT_S;
    cuda->base.ops = cuda_op_table;
    cuda->log = log;
    if (open_parts(cuda, options, e)) {
        cuda_close(&cuda->base);
        return e->status;
    }
    *out = &cuda->base;
    return OK;
}

// ---- The command line ---------------------------------------------------------------------------

static enum status parse_number(int32_t *out, const char *text, int32_t largest, struct err *e) {
    char *end;
    long value = strtol(text, &end, 10);
    if (*text && !*end && value >= 0 && value <= largest) {
        *out = (int32_t)value;
        return OK;
    }
    err_set(e, ERR_USAGE, "--device cuda");
    err_expected(e, "a number from 0 to %d", largest);
    return err_actual(e, "%s", text);
}

static enum status parse_text(char *out, size_t size_bytes, const char *text, struct err *e) {
    if (strlen(text) < size_bytes) {
        memcpy(out, text, strlen(text) + 1);
        return OK;
    }
    return err_set(e, ERR_USAGE, "--device cuda: %.40s... is too long", text);
}

static enum status parse_setting(struct cuda_options *out, char *setting, struct err *e) {
    int32_t on = 1;
    char *equals = strchr(setting, '=');
    if (!equals) return parse_number(&out->index, setting, 255, e);
    *equals = 0;
    const char *value = equals + 1;
    enum status status = OK;
    if (!strcmp(setting, "index")) {
        status = parse_number(&out->index, value, 255, e);
    } else if (!strcmp(setting, "driver")) {
        status = parse_text(out->driver, sizeof out->driver, value, e);
    } else if (!strcmp(setting, "image")) {
        status = parse_text(out->image, sizeof out->image, value, e);
    } else if (!strcmp(setting, "graphs")) {
        status = parse_number(&on, value, 1, e);
        out->no_graphs = !on;
    } else if (!strcmp(setting, "flags")) {
        status = parse_number(&on, value, 1, e);
        out->no_flags = !on;
    } else if (!strcmp(setting, "tensor")) {
        status = parse_number(&on, value, 1, e);
        out->no_tensor_cores = !on;
    } else if (!strcmp(setting, "wsl2")) {
        status = parse_number(&on, value, 1, e);
        out->wsl2 = on;
    } else if (!strcmp(setting, "times")) {
        status = parse_number(&on, value, 1, e);
        out->times = on;
    } else {
        err_set(e, ERR_USAGE, "--device cuda");
        err_expected(e, "index, driver, image, graphs, flags, tensor, times or wsl2");
        status = err_actual(e, "%s", setting);
    }
    return status;
}

enum status cuda_options_parse(struct cuda_options *out, const char *spec, struct err *e) {
    char text[512], *rest = text;
    *out = (struct cuda_options){0};
    if (parse_text(text, sizeof text, spec, e)) return e->status;
    while (*rest) {
        char *setting = rest;
        rest += strcspn(rest, ",");
        if (*rest) *rest++ = 0;
        if (parse_setting(out, setting, e)) return e->status;
    }
    return OK;
}

enum status cuda_device_open_spec(struct device **out, const char *spec,
                                  const struct cpu_options *cpu, const struct log *log,
                                  struct err *e) {
    (void)cpu;
    struct cuda_options options;
    if (cuda_options_parse(&options, spec, e)) return e->status;
    return cuda_device_open(out, &options, log, e);
}

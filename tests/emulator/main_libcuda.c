/* main_libcuda.c: the entry of the look-alike libcuda.so.1: options, devices, contexts, errors.
 *
 *   EMU_CUDA_VRAM=6G       memory of each device (K, M, G)
 *   EMU_CUDA_DEVICES=1     how many; 0: a driver without a device
 *   EMU_CUDA_CC=8.6        compute capability
 *   EMU_CUDA_NAME=...      the device's name
 *   EMU_CUDA_TENSOR=0      complain about matrix kernels: a card of 7.5 without tensor cores
 *   EMU_CUDA_MAP=0         kernels do not reach pinned memory
 *   EMU_CUDA_FLAGS=0       streams do not wait for words of memory, nor write them
 *   EMU_CUDA_READ_ONLY=0   memory that cannot be written cannot be pinned
 *   EMU_CUDA_DRIVER=12020  the driver's version
 *   EMU_CUDA_INIT=100      what cuInit returns
 *   EMU_CUDA_H2D=4G, EMU_CUDA_D2H=2G   bytes per second of copies to and from the device
 *   EMU_CUDA_FAIL_ALLOC=3  the third allocation is refused (all: every one); see FAKE_FAULTS
 *   EMU_CUDA_JIT=200       milliseconds to translate a file of PTX, once if CUDA_CACHE_PATH is set
 *   EMU_CUDA_WORKERS=2     threads that run blocks
 *   EMU_CUDA_SEED=7        random order of GPU threads, random delays of streams
 *   EMU_CUDA_SEAL=1        device memory is closed to the host while no stream runs
 *   EMU_CUDA_SPARSE=1      large allocations are zeros that take memory only where they are touched
 *   EMU_CUDA_STATS=1       totals at the end: kernels, calls, bytes copied
 *   EMU_CUDA_LINES=1       the cache lines that the loads of each launch touch
 *   EMU_CUDA_WITHOUT=norm.cu:18   no thread waits at the barrier of that line
 *   CUDA_LAUNCH_BLOCKING=1 a launch waits for its kernel and has its error, as with a real driver
 *
 * They are read by cuInit; while a context is held, only the faults are read and counted anew.
 * Owns the one struct fake of the process. Any thread. Tested by tests/kernels/test_emulator.c.
 */
#include "tests/emulator/fake.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct fake the_fake = {.lock = PTHREAD_MUTEX_INITIALIZER};

struct fake *fake(void) {
    return &the_fake;
}

void fake_complain(const char *format, ...) {
    char text[1400];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    fprintf(stderr, "emulator: %s\n", text);
}

void fake_count(uint64_t *counter) {
    pthread_mutex_lock(&the_fake.lock);
    ++*counter;
    pthread_mutex_unlock(&the_fake.lock);
}

// ---- Faults ------------------------------------------------------------------------------------

static const struct {
    const char *name;
    unsigned code;
} FAULTS[FAULT_COUNT] = {
#define FAULT(name, code) {#name, code},
    FAKE_FAULTS(FAULT)
#undef FAULT
};

unsigned fake_fault(enum fake_fault fault) {
    struct fake *f = &the_fake;
    pthread_mutex_lock(&f->lock);
    uint64_t count = ++f->counts[fault], at = f->options.fail_at[fault];
    pthread_mutex_unlock(&f->lock);
    return count == at || at == UINT64_MAX ? FAULTS[fault].code : DRIVER_SUCCESS;
}

// ---- Options -----------------------------------------------------------------------------------

static const char *option(const char *name) {
    char full[64];
    snprintf(full, sizeof full, "EMU_CUDA_%s", name);
    return getenv(full);
}

static uint64_t number_option(const char *name, uint64_t otherwise) {
    const char *text = option(name);
    if (!text || !*text) return otherwise;
    char *end;
    uint64_t number = strtoull(text, &end, 10);
    switch (*end) {
    case 'K': return number << 10;
    case 'M': return number << 20;
    case 'G': return number << 30;
    case 0: return number;
    default: fake_complain("EMU_CUDA_%s=%s is no number", name, text); return otherwise;
    }
}

static void read_faults(struct fake *f) {
    for (int i = 0; i < FAULT_COUNT; i++) {
        char name[32];
        snprintf(name, sizeof name, "FAIL_%s", FAULTS[i].name);
        const char *text = option(name);
        bool all = text && !strcmp(text, "all");
        f->options.fail_at[i] = all ? UINT64_MAX : number_option(name, 0);
        f->counts[i] = 0;
    }
    f->options.init_code = (unsigned)number_option("INIT", 0);
}

// "8.6" or "86".
static int arch_option(void) {
    const char *text = option("CC");
    int major, minor;
    if (!text || !*text) return 86;
    if (!strchr(text, '.') && sscanf(text, "%d", &major) == 1) return major;
    if (sscanf(text, "%d.%d", &major, &minor) == 2) return major * 10 + minor;
    fake_complain("EMU_CUDA_CC=%s is no compute capability", text);
    return 86;
}

// Real names, since a host tells some properties by them.
static const char *default_name(int arch, bool tensor_cores) {
    if (arch < 70) return "NVIDIA GeForce GTX 1060 6GB (emulated)";
    if (arch < 75) return "NVIDIA TITAN V (emulated)";
    if (arch < 80 && !tensor_cores) return "NVIDIA GeForce GTX 1660 (emulated)";
    if (arch < 80) return "NVIDIA GeForce RTX 2060 (emulated)";
    if (arch < 89) return "NVIDIA GeForce RTX 3060 (emulated)";
    return "NVIDIA GeForce RTX 4090 (emulated)";
}

static void read_options(struct fake_options *o) {
    const char *name = option("NAME");
    long n_cpus = sysconf(_SC_NPROCESSORS_ONLN);
    uint64_t n_devices = number_option("DEVICES", 1);
    o->arch = arch_option();
    o->vram_bytes = number_option("VRAM", (uint64_t)6 << 30);
    o->n_devices = n_devices < FAKE_DEVICES_MAX ? (int)n_devices : FAKE_DEVICES_MAX;
    o->tensor_cores = number_option("TENSOR", o->arch >= 70) != 0;
    o->maps_host = number_option("MAP", 1) != 0;
    o->flags = number_option("FLAGS", 1) != 0;
    o->pins_read_only = number_option("READ_ONLY", 1) != 0;
    o->version = (int)number_option("DRIVER", 12020);
    o->rate[0] = number_option("H2D", 0);
    o->rate[1] = number_option("D2H", 0);
    o->n_workers = (int)number_option("WORKERS", n_cpus > 0 ? (uint64_t)n_cpus : 1);
    o->seed = (unsigned)number_option("SEED", 0);
    o->jit_ms = (unsigned)number_option("JIT", 0);
    o->sealed = number_option("SEAL", 0) != 0;
    o->sparse = number_option("SPARSE", 0) != 0;
    const char *folder = getenv("CUDA_CACHE_PATH");
    snprintf(o->jit_folder, sizeof o->jit_folder, "%s", folder ? folder : "");
    const char *blocking = getenv("CUDA_LAUNCH_BLOCKING");
    o->blocking = blocking && strcmp(blocking, "1") == 0;
    o->stats = number_option("STATS", 0) != 0;
    o->lines = number_option("LINES", 0) != 0;
    const char *left_out = option("WITHOUT");
    snprintf(o->left_out, sizeof o->left_out, "%s", left_out ? left_out : "");
    snprintf(o->name, sizeof o->name, "%s", name ? name : default_name(o->arch, o->tensor_cores));
}

// ---- The driver as a whole ---------------------------------------------------------------------

static bool is_held(const struct fake *f) {
    bool held = false;
    for (int i = 0; i < FAKE_DEVICES_MAX; i++) held = held || f->devices[i].n_retained;
    return held;
}

static void start(struct fake *f) {
    for (int i = 0; i < FAKE_DEVICES_MAX; i++) {
        struct CUctx_st *c = &f->devices[i];
        c->number = i;
        pthread_mutex_init(&c->lock, NULL);
        pthread_mutex_init(&c->engines[0], NULL);
        pthread_mutex_init(&c->engines[1], NULL);
        pthread_cond_init(&c->moved, NULL);
    }
    pthread_key_create(&f->current, NULL);
    pthread_key_create(&f->calling, NULL);
    pthread_key_create(&f->shared, fake_close_static_shared);
    f->started = true;
}

unsigned cuInit(unsigned flags) {
    struct fake *f = &the_fake;
    if (flags) return CODE_INVALID_VALUE;
    pthread_mutex_lock(&f->lock);
    if (!is_held(f)) read_options(&f->options);
    read_faults(f);
    unsigned code = f->options.init_code;
    if (!code && !f->options.n_devices) code = DRIVER_NO_DEVICE;
    if (!code && !__builtin_cpu_supports("avx2")) {
        fake_complain("this CPU lacks AVX2, which the emulated kernels are compiled for");
        code = DRIVER_NO_DEVICE;
    }
    if (!code && !f->started) start(f);
    pthread_mutex_unlock(&f->lock);
    return code;
}

// In one line, which may name all kernels.
static void print_totals(const struct fake *f) {
    fprintf(stderr,
            "emulator: %llu kernels run; calls: %llu launches, %llu copies, %llu events, %llu "
            "flags, and %llu graphs launched; copied %llu bytes of pinned and %llu of pageable "
            "memory, pinned %llu bytes for reading only; never launched:",
            (unsigned long long)f->n_launches, (unsigned long long)f->n_single_launches,
            (unsigned long long)f->n_copies, (unsigned long long)f->n_event_calls,
            (unsigned long long)f->n_flag_calls, (unsigned long long)f->n_graph_launches,
            (unsigned long long)f->pinned_bytes, (unsigned long long)f->pageable_bytes,
            (unsigned long long)f->read_only_bytes);
    bool none = true;
    for (const struct fake_kernel *k = kernels_800; k->name; k++) {
        if (f->launched[k - kernels_800]) continue;
        fprintf(stderr, " %s", k->name);
        none = false;
    }
    fputs(none ? " none\n" : "\n", stderr);
}

// Reports objects that the program has not freed when the library is unloaded.
__attribute__((destructor)) static void end(void) {
    struct fake *f = &the_fake;
    if (!f->started) return;
    for (int i = 0; i < f->options.n_devices; i++) {
        struct CUctx_st *c = &f->devices[i];
        if (c->n_retained)
            fake_complain("left behind on device %d: a context retained %d times, %zu bytes, %d "
                          "streams, %d events, %d modules, %d graphs",
                          i, c->n_retained, c->used_bytes, c->n_streams, c->n_events, c->n_modules,
                          c->n_graphs);
        if (f->options.stats)
            fake_complain("device %d: at most %zu bytes allocated", i, c->peak_bytes);
    }
    if (f->pinned) fake_complain("left behind: %zu bytes of pinned memory", f->pinned->size_bytes);
    if (f->options.stats) print_totals(f);
    pthread_key_delete(f->current);
    pthread_key_delete(f->calling);
    pthread_key_delete(f->shared);
}

unsigned cuDriverGetVersion(int *version) {
    *version = the_fake.options.version;
    return DRIVER_SUCCESS;
}

unsigned cuGetErrorName(unsigned code, const char **name) {
    static const struct {
        unsigned code;
        const char *name;
    } NAMES[] = {
        {DRIVER_SUCCESS, "CUDA_SUCCESS"},
        {CODE_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE"},
        {DRIVER_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY"},
        {CODE_NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED"},
        {DRIVER_STUB_LIBRARY, "CUDA_ERROR_STUB_LIBRARY"},
        {DRIVER_NO_DEVICE, "CUDA_ERROR_NO_DEVICE"},
        {CODE_INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE"},
        {CODE_INVALID_IMAGE, "CUDA_ERROR_INVALID_IMAGE"},
        {CODE_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT"},
        {CODE_NO_BINARY_FOR_GPU, "CUDA_ERROR_NO_BINARY_FOR_GPU"},
        {CODE_ECC_UNCORRECTABLE, "CUDA_ERROR_ECC_UNCORRECTABLE"},
        {CODE_INVALID_PTX, "CUDA_ERROR_INVALID_PTX"},
        {CODE_UNSUPPORTED_PTX_VERSION, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION"},
        {CODE_INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE"},
        {CODE_NOT_FOUND, "CUDA_ERROR_NOT_FOUND"},
        {DRIVER_ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS"},
        {DRIVER_NOT_READY, "CUDA_ERROR_NOT_READY"},
        {DRIVER_LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED"},
        {CODE_NOT_PERMITTED, "CUDA_ERROR_NOT_PERMITTED"},
        {CODE_NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED"},
        {CODE_UNKNOWN, "CUDA_ERROR_UNKNOWN"},
    };
    *name = NULL;
    for (size_t i = 0; i < sizeof NAMES / sizeof *NAMES; i++)
        if (NAMES[i].code == code) *name = NAMES[i].name;
    return *name ? DRIVER_SUCCESS : CODE_INVALID_VALUE;
}

// ---- Devices and contexts ----------------------------------------------------------------------

static unsigned check_device(int device) {
    if (!the_fake.started) return CODE_NOT_INITIALIZED;
    if (device < 0 || device >= the_fake.options.n_devices) return CODE_INVALID_DEVICE;
    return DRIVER_SUCCESS;
}

unsigned cuDeviceGetCount(int *n) {
    *n = the_fake.options.n_devices;
    return the_fake.started ? DRIVER_SUCCESS : CODE_NOT_INITIALIZED;
}

unsigned cuDeviceGet(int *device, int index) {
    *device = index;
    return check_device(index);
}

unsigned cuDeviceGetName(char *name, int size_bytes, int device) {
    if (size_bytes > 0) snprintf(name, (size_t)size_bytes, "%s", the_fake.options.name);
    return check_device(device);
}

unsigned cuDeviceGetAttribute(int *value, unsigned attribute, int device) {
    switch (attribute) {
    case DRIVER_ATTRIBUTE_MULTIPROCESSORS: *value = 10; break;
    case DRIVER_ATTRIBUTE_MAPS_HOST: *value = the_fake.options.maps_host; break;
    case DRIVER_ATTRIBUTE_PINS_READ_ONLY: *value = the_fake.options.pins_read_only; break;
    case DRIVER_ATTRIBUTE_MEMORY_CLOCK: *value = 7000000; break; // kHz
    case DRIVER_ATTRIBUTE_BUS_WIDTH: *value = 192; break;
    case DRIVER_ATTRIBUTE_MAJOR: *value = the_fake.options.arch / 10; break;
    case DRIVER_ATTRIBUTE_MINOR: *value = the_fake.options.arch % 10; break;
    default:
        fake_complain("device attribute %u is not emulated", attribute);
        return CODE_INVALID_VALUE;
    }
    return check_device(device);
}

unsigned cuDeviceGetPCIBusId(char *id, int size_bytes, int device) {
    if (size_bytes < 13) return CODE_INVALID_VALUE;
    snprintf(id, (size_t)size_bytes, "0000:%02x:00.0", (unsigned)device + 1);
    return check_device(device);
}

static unsigned open_context(struct CUctx_st *c) {
    const struct simt_options options = {.n_workers = the_fake.options.n_workers,
                                         .counts_lines = the_fake.options.lines,
                                         .seed = the_fake.options.seed,
                                         .left_out = the_fake.options.left_out,
                                         .poison = fake_poison_static_shared};
    c->failure = DRIVER_SUCCESS;
    c->simt = simt_open(&options);
    if (c->simt && fake_memory_open(c)) return DRIVER_SUCCESS;
    simt_close(c->simt);
    c->simt = NULL;
    return DRIVER_OUT_OF_MEMORY;
}

unsigned cuDevicePrimaryCtxRetain(struct CUctx_st **context, int device) {
    unsigned code = check_device(device);
    if (code) return code;
    if ((code = fake_fault(FAULT_CONTEXT))) return code;
    struct CUctx_st *c = &the_fake.devices[device];
    pthread_mutex_lock(&c->lock);
    if (!c->n_retained) code = open_context(c);
    if (!code) c->n_retained++;
    pthread_mutex_unlock(&c->lock);
    *context = c;
    return code;
}

static unsigned release_context(int device) {
    unsigned code = check_device(device);
    if (code) return code;
    struct CUctx_st *c = &the_fake.devices[device];
    pthread_mutex_lock(&c->lock);
    if (!c->n_retained) code = CODE_INVALID_CONTEXT;
    if (!code && --c->n_retained == 0) {
        if (c->used_bytes || c->n_streams || c->n_events || c->n_modules || c->n_graphs)
            fake_complain("released with %zu bytes, %d streams, %d events, %d modules, %d graphs",
                          c->used_bytes, c->n_streams, c->n_events, c->n_modules, c->n_graphs);
        simt_close(c->simt);
        c->simt = NULL;
        fake_memory_close(c);
    }
    pthread_mutex_unlock(&c->lock);
    return code;
}

unsigned cuDevicePrimaryCtxRelease_v2(int device) { return release_context(device); }

unsigned cuDevicePrimaryCtxRelease(int device) { return release_context(device); }

unsigned cuCtxSetCurrent(struct CUctx_st *context) {
    if (!the_fake.started) return CODE_NOT_INITIALIZED;
    if (context && !context->n_retained) return CODE_INVALID_CONTEXT;
    if (pthread_getspecific(the_fake.calling)) {
        fake_complain("the driver is called from a call of the host");
        return CODE_NOT_PERMITTED;
    }
    pthread_setspecific(the_fake.current, context);
    return DRIVER_SUCCESS;
}

struct CUctx_st *fake_current(unsigned *code) {
    struct CUctx_st *c = the_fake.started ? pthread_getspecific(the_fake.current) : NULL;
    if (c && c->n_retained) {
        pthread_mutex_lock(&c->lock);
        *code = c->failure;
        pthread_mutex_unlock(&c->lock);
        return *code ? NULL : c;
    }
    *code = the_fake.started ? CODE_INVALID_CONTEXT : CODE_NOT_INITIALIZED;
    fake_complain("a call without a current context");
    return NULL;
}

void fake_fail(struct CUctx_st *context, unsigned code) {
    pthread_mutex_lock(&context->lock);
    if (!context->failure) context->failure = code;
    pthread_cond_broadcast(&context->moved);
    pthread_mutex_unlock(&context->lock);
}

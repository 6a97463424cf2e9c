/* main_libmetal.c: the entry of the look-alike Metal: options, faults, and the devices that there
 * are.
 *
 *   EMU_METAL_DEVICES=1     how many there are
 *   EMU_METAL_NAME=...      the device's name
 *   EMU_METAL_FAMILY=7      of Apple's families: 7 is the M1; 0: another maker's
 *   EMU_METAL_UNIFIED=0     a device with memory of its own
 *   EMU_METAL_MEMORY=6G     recommendedMaxWorkingSetSize (K, M, G)
 *   EMU_METAL_BUFFER=4G     the longest buffer
 *   EMU_METAL_WIDTH=32      threads of a simdgroup that pipelines say
 *   EMU_METAL_THREADS=1024  the largest threadgroup of a pipeline
 *   EMU_METAL_FAIL_BUFFER=3 the third buffer is refused (all: every one); see FAKE_FAULTS
 *   EMU_METAL_WORKERS=2     host threads that run threadgroups
 *   EMU_METAL_SEED=7        random order of GPU threads, random delays of queues
 *   EMU_METAL_STATS=1       totals at the end, and the kernels that never ran
 *
 * They are read when the devices are listed; while there is one, only the faults are read and
 * counted anew. Owns the one struct fake of the process. Any thread. Tested by
 * tests/kernels/test_metal.c.
 */
#include "tests/metal/fake.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct fake the_fake = {.lock = PTHREAD_MUTEX_INITIALIZER};

struct fake *fake(void) {
    return &the_fake;
}

// ---- Options -----------------------------------------------------------------------------------

static const char *const FAULTS[FAULT_COUNT] = {
#define FAULT(name) #name,
    FAKE_FAULTS(FAULT)
#undef FAULT
};

static const char *option(const char *name) {
    char full[64];
    snprintf(full, sizeof full, "EMU_METAL_%s", name);
    const char *text = getenv(full);
    return text && *text ? text : NULL;
}

static uint64_t number_option(const char *name, uint64_t otherwise) {
    const char *text = option(name);
    if (!text) return otherwise;
    char *end;
    const uint64_t number = strtoull(text, &end, 10);
    switch (*end) {
    case 'K': return number << 10;
    case 'M': return number << 20;
    case 'G': return number << 30;
    case 0: return number;
    default: fake_complain("EMU_METAL_%s=%s is no number", name, text); return otherwise;
    }
}

static void read_faults(struct fake *f) {
    for (int i = 0; i < FAULT_COUNT; i++) {
        char name[32];
        snprintf(name, sizeof name, "FAIL_%s", FAULTS[i]);
        const char *text = option(name);
        f->options.fail_at[i] = text && !strcmp(text, "all") ? UINT64_MAX : number_option(name, 0);
        f->counts[i] = 0;
    }
}

static void read_options(struct fake_options *o) {
    const char *name = option("NAME");
    const long n_cpus = sysconf(_SC_NPROCESSORS_ONLN);
    o->n_devices = (int)number_option("DEVICES", 1);
    o->family = (int)number_option("FAMILY", 7);
    o->unified = number_option("UNIFIED", 1) != 0;
    o->memory_bytes = number_option("MEMORY", UINT64_C(6) << 30);
    o->buffer_bytes = number_option("BUFFER", UINT64_C(4) << 30);
    o->simd_width = (uint32_t)number_option("WIDTH", 32);
    o->max_threads = (uint32_t)number_option("THREADS", 1024);
    o->n_workers = (int)number_option("WORKERS", n_cpus > 0 ? (uint64_t)n_cpus : 1);
    o->seed = (unsigned)number_option("SEED", 0);
    o->stats = number_option("STATS", 0) != 0;
    snprintf(o->name, sizeof o->name, "%s", name ? name : "Apple M1 (emulated)");
}

bool fake_fault(enum fake_fault fault) {
    struct fake *f = &the_fake;
    pthread_mutex_lock(&f->lock);
    const uint64_t count = ++f->counts[fault], at = f->options.fail_at[fault];
    pthread_mutex_unlock(&f->lock);
    return count == at || at == UINT64_MAX;
}

// One line with the kernels that no dispatch has run.
static void complain_of_idle(void) {
    int n = 0;
    fputs("fake Metal: never dispatched:", stderr);
    for (size_t i = 0; metal_functions[i]; i++)
        if (!atomic_load(&the_fake.dispatched[i]) && ++n)
            fprintf(stderr, " %s", metal_functions[i]->name);
    fputs(n ? "\n" : " none\n", stderr);
}

__attribute__((destructor)) static void end(void) {
    if (!the_fake.options.stats) return;
    fake_complain("%llu dispatches, %llu copies, %llu command buffers",
                  atomic_load(&the_fake.n_dispatches), atomic_load(&the_fake.n_copies),
                  atomic_load(&the_fake.n_commands));
    complain_of_idle();
}

// ---- Devices -----------------------------------------------------------------------------------

void fake_devices_less(void) {
    if (atomic_fetch_sub(&the_fake.n_devices, 1) > 1) return;
    simt_close(the_fake.simt);
    the_fake.simt = NULL;
}

FAKE_API void *MTLCopyAllDevices(void) {
    enum { DEVICES_MAX = 8 };
    void *devices[DEVICES_MAX];
    struct fake *f = &the_fake;
    pthread_mutex_lock(&f->lock);
    if (!atomic_load(&f->n_devices)) {
        read_options(&f->options);
        atomic_store(&f->failed, false);
    }
    read_faults(f);
    if (!f->simt && f->options.n_devices > 0)
        f->simt = simt_open(
            &(struct simt_options){.n_workers = f->options.n_workers, .seed = f->options.seed});
    pthread_mutex_unlock(&f->lock);
    int n = 0;
    for (; f->simt && n < f->options.n_devices && n < DEVICES_MAX; n++) {
        struct fake_device *d = fake_new(&fake_device_class, sizeof *d);
        d->number = n;
        atomic_fetch_add(&f->n_devices, 1);
        devices[n] = d;
    }
    return fake_array(devices, (size_t)n);
}

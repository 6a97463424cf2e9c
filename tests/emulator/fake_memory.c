/* fake_memory.c: the memory of emulated devices; see fake.h.
 *
 * All addresses of a device lie in one reserved stretch in which only allocations are open, each
 * in pages of its own with a closed page between them. What lies between the end of an allocation
 * and the end of its page is a guard: closed to ASan, a pattern elsewhere, looked at after every
 * kernel. New memory is all ones, a NaN in every float; where EMU_CUDA_SPARSE asks for it, that of
 * 1 GiB or more is left to the system, whose pages take memory when they are touched. As on a real
 * device, large allocations are counted in steps of 2 MiB (64 KiB where there is less than 1 GiB).
 * Tested by tests/kernels/test_emulator.c.
 */
#include "tests/emulator/fake.h"

#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__)
#define FAKE_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define FAKE_ASAN 1
#endif
#endif
#ifdef FAKE_ASAN
void __asan_poison_memory_region(void const volatile *p, size_t size_bytes);
void __asan_unpoison_memory_region(void const volatile *p, size_t size_bytes);
#endif

enum { PAGE = 4096, GUARD = 0xa5, SMALL_STEP = 512 };

static size_t up(size_t n, size_t step) { return (n + step - 1) / step * step; }

// ---- Static shared memory ----------------------------------------------------------------------

// The static __shared__ arrays are all that is thread-local in this library. In each launch they
// start as NaN: their whole pages are a private view of a file of ones, in which the next launch
// drops those that a kernel wrote. There are 5 MB of them, of which a kernel uses some 20 KB.
struct shared_arrays {              // of a thread
    char *base, *pages;             // of all; the first whole page
    size_t size_bytes, pages_bytes; // pages_bytes 0: no file could be made
};

static int find_arrays(struct dl_phdr_info *info, size_t size_bytes, void *found) {
    (void)size_bytes;
    struct shared_arrays *a = found;
    bool ours = false;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        uintptr_t start = info->dlpi_addr + p->p_vaddr, here = (uintptr_t)find_arrays;
        if (p->p_type == PT_TLS) a->size_bytes = p->p_memsz;
        if (p->p_type == PT_LOAD && here >= start && here < start + p->p_memsz) ours = true;
    }
    a->base = info->dlpi_tls_data;
    return ours;
}

static bool view_ones(char *pages, size_t size_bytes) {
    const int file = memfd_create("ones", MFD_CLOEXEC);
    if (file < 0) return false;
    void *ones = MAP_FAILED;
    if (!ftruncate(file, (off_t)size_bytes))
        ones = mmap(NULL, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    bool done = ones != MAP_FAILED;
    if (done) {
        memset(ones, 0xff, size_bytes);
        munmap(ones, size_bytes);
        done = mmap(pages, size_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, file, 0) !=
               MAP_FAILED;
    }
    close(file);
    return done;
}

static struct shared_arrays *open_shared(void) {
    static _Thread_local volatile char
        anchor; // a thread gets its copy of them with the first touch
    struct shared_arrays *a = calloc(1, sizeof *a);
    if (!a) return NULL;
    anchor = 1;
    (void)anchor;
    dl_iterate_phdr(find_arrays, a);
    a->pages = a->base + (-(uintptr_t)a->base & (PAGE - 1));
    const size_t before = (size_t)(a->pages - a->base);
    if (a->base && a->size_bytes > before + PAGE)
        a->pages_bytes = (a->size_bytes - before) / PAGE * PAGE;
    if (a->pages_bytes && !view_ones(a->pages, a->pages_bytes)) a->pages_bytes = 0;
    pthread_setspecific(fake()->shared, a);
    return a;
}

// Gives the thread's pages back as they came, for what its memory serves next.
void fake_close_static_shared(void *shared_arrays) {
    const struct shared_arrays *a = shared_arrays;
    if (a->pages_bytes)
        (void)mmap(a->pages, a->pages_bytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    free(shared_arrays);
}

void fake_poison_static_shared(void) {
    const struct shared_arrays *a = pthread_getspecific(fake()->shared);
    if (!a && !(a = open_shared())) {
        fake_complain("no memory to find static shared memory, which is not filled");
        return;
    }
    if (!a->base) return;
    const char *end = a->base + a->size_bytes;
    if (a->pages_bytes && !madvise(a->pages, a->pages_bytes, MADV_DONTNEED)) {
        memset(a->base, 0xff, (size_t)(a->pages - a->base));
        memset(a->pages + a->pages_bytes, 0xff, (size_t)(end - a->pages) - a->pages_bytes);
    } else {
        memset(a->base, 0xff, a->size_bytes);
    }
}

// ---- The stretch of a device -------------------------------------------------------------------

bool fake_memory_open(struct CUctx_st *c) {
    c->range.size_bytes = 2 * fake()->options.vram_bytes + ((size_t)64 << 20);
    c->range.base = mmap(NULL, c->range.size_bytes, PROT_NONE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (c->range.base == MAP_FAILED) c->range.base = NULL;
    return c->range.base;
}

static void close_region(struct fake_region *r) {
#ifdef FAKE_ASAN
    __asan_unpoison_memory_region(r->base + r->size_bytes, up(r->size_bytes, PAGE) - r->size_bytes);
#endif
    free(r);
}

void fake_memory_close(struct CUctx_st *c) {
    while (c->regions) {
        struct fake_region *r = c->regions;
        c->regions = r->next;
        close_region(r);
    }
    if (c->range.base) munmap(c->range.base, c->range.size_bytes);
    c->range = (struct fake_range){0};
    c->used_bytes = 0;
}

static size_t cost(size_t size_bytes) {
    size_t step = fake()->options.vram_bytes >> 30 ? (size_t)2 << 20 : (size_t)64 << 10;
    return up(size_bytes, size_bytes < step ? SMALL_STEP : step);
}

// The first gap that is large enough, with a closed page before and behind. NULL: none.
static struct fake_region **find_gap(struct CUctx_st *c, size_t size_bytes, char **base) {
    *base = c->range.base + PAGE;
    struct fake_region **place = &c->regions;
    for (; *place; place = &(*place)->next) {
        if ((size_t)((*place)->base - *base) >= up(size_bytes, PAGE) + PAGE) return place;
        *base = (*place)->base + up((*place)->size_bytes, PAGE) + PAGE;
    }
    size_t left = (size_t)(c->range.base + c->range.size_bytes - *base);
    return left >= up(size_bytes, PAGE) + PAGE ? place : NULL;
}

static void fill(const struct fake_region *r) {
    size_t whole = up(r->size_bytes, PAGE);
    if (!fake()->options.sparse || !(r->size_bytes >> 30)) memset(r->base, 0xff, r->size_bytes);
    memset(r->base + r->size_bytes, GUARD, whole - r->size_bytes);
#ifdef FAKE_ASAN
    __asan_poison_memory_region(r->base + r->size_bytes, whole - r->size_bytes);
#endif
}

static bool open_pages(const struct CUctx_st *c, const struct fake_region *r, bool open) {
    bool usable = open || c->n_running || !fake()->options.sealed;
    return !mprotect(r->base, up(r->size_bytes, PAGE), usable ? PROT_READ | PROT_WRITE : PROT_NONE);
}

static bool allocate(struct CUctx_st *c, size_t size_bytes, uint64_t *address) {
    char *base;
    if (c->used_bytes + cost(size_bytes) > fake()->options.vram_bytes) return false;
    struct fake_region **place = find_gap(c, size_bytes, &base);
    struct fake_region *r = place ? malloc(sizeof *r) : NULL;
    if (!r) return false;
    *r = (struct fake_region){.base = base, .size_bytes = size_bytes, .next = *place};
    if (!open_pages(c, r, true)) {
        free(r);
        return false;
    }
    *place = r;
    fill(r);
    open_pages(c, r, false);
    c->used_bytes += cost(size_bytes);
    if (c->used_bytes > c->peak_bytes) c->peak_bytes = c->used_bytes;
    *address = (uint64_t)(uintptr_t)base;
    return true;
}

unsigned cuMemAlloc_v2(unsigned long long *address, size_t size_bytes) {
    unsigned code;
    uint64_t found = 0;
    struct CUctx_st *c = fake_current(&code);
    if (!c) return code;
    if (!size_bytes) return CODE_INVALID_VALUE;
    if ((code = fake_fault(FAULT_ALLOC))) return code;
    pthread_mutex_lock(&c->lock);
    bool done = size_bytes <= fake()->options.vram_bytes && allocate(c, size_bytes, &found);
    pthread_mutex_unlock(&c->lock);
    *address = found;
    return done ? DRIVER_SUCCESS : DRIVER_OUT_OF_MEMORY;
}

static bool guard_holds(const struct fake_region *r) {
#ifndef FAKE_ASAN
    const unsigned char *end = (const unsigned char *)r->base + up(r->size_bytes, PAGE);
    for (const unsigned char *p = (const unsigned char *)r->base + r->size_bytes; p < end; p++)
        if (*p != GUARD) return false;
#endif
    (void)r;
    return true;
}

bool fake_memory_guards_hold(struct CUctx_st *c, const char *what) {
    bool hold = true;
    pthread_mutex_lock(&c->lock);
    for (const struct fake_region *r = c->regions; r && hold; r = r->next) {
        hold = guard_holds(r);
        if (!hold)
            fake_complain("%s wrote behind the end of an allocation of %zu bytes", what,
                          r->size_bytes);
    }
    pthread_mutex_unlock(&c->lock);
    return hold;
}

// Freeing waits for the device, as the driver does.
unsigned cuMemFree_v2(unsigned long long address) {
    unsigned code;
    struct CUctx_st *c = fake_current(&code);
    if (!c) c = fake()->started ? pthread_getspecific(fake()->current) : NULL;
    if (!c) return code; // a failed context still frees
    pthread_mutex_lock(&c->lock);
    while (c->n_running && !c->failure) pthread_cond_wait(&c->moved, &c->lock);
    struct fake_region **place = &c->regions, *r;
    while (*place && (uintptr_t)(*place)->base != address) place = &(*place)->next;
    r = *place;
    if (r) {
        *place = r->next;
        c->used_bytes -= cost(r->size_bytes);
        char *base = r->base;
        size_t whole = up(r->size_bytes, PAGE);
        close_region(r);
        if (madvise(base, whole, MADV_DONTNEED) || mprotect(base, whole, PROT_NONE))
            fake_complain("memory that was freed cannot be closed");
    }
    pthread_mutex_unlock(&c->lock);
    if (!r) fake_complain("%llx was freed and is no allocation", address);
    return r ? code : CODE_INVALID_VALUE;
}

unsigned cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes) {
    unsigned code;
    struct CUctx_st *c = fake_current(&code);
    if (!c) return code;
    pthread_mutex_lock(&c->lock);
    *total_bytes = fake()->options.vram_bytes;
    *free_bytes = *total_bytes - c->used_bytes;
    pthread_mutex_unlock(&c->lock);
    return DRIVER_SUCCESS;
}

// ---- Questions ---------------------------------------------------------------------------------

bool fake_memory_holds(struct CUctx_st *c, uint64_t address, size_t size_bytes) {
    bool held = false;
    pthread_mutex_lock(&c->lock);
    for (const struct fake_region *r = c->regions; r && !held; r = r->next) {
        uint64_t start = (uint64_t)(uintptr_t)r->base;
        held = address >= start && address - start <= r->size_bytes &&
               size_bytes <= r->size_bytes - (address - start);
    }
    pthread_mutex_unlock(&c->lock);
    return held;
}

bool fake_memory_is_device(const void *address) {
    const char *p = address;
    for (int i = 0; i < fake()->options.n_devices; i++) {
        const struct fake_range *r = &fake()->devices[i].range;
        if (r->base && p >= r->base && p < r->base + r->size_bytes) return true;
    }
    return false;
}

bool fake_memory_is_pinned(const void *address, size_t size_bytes) {
    const char *p = address;
    bool pinned = false;
    pthread_mutex_lock(&fake()->lock);
    for (const struct fake_region *r = fake()->pinned; r && !pinned; r = r->next)
        pinned = p >= r->base && p + size_bytes <= r->base + r->size_bytes;
    pthread_mutex_unlock(&fake()->lock);
    return pinned;
}

bool fake_memory_is_mapped(const void *address, size_t size_bytes) {
    const char *p = address;
    bool mapped = false;
    pthread_mutex_lock(&fake()->lock);
    for (const struct fake_region *r = fake()->pinned; r && !mapped; r = r->next)
        mapped = r->mapped && p >= r->base && p + size_bytes <= r->base + r->size_bytes;
    pthread_mutex_unlock(&fake()->lock);
    return mapped;
}

bool fake_memory_is_read_only(const void *address, size_t size_bytes) {
    const char *p = address;
    bool read_only = false;
    pthread_mutex_lock(&fake()->lock);
    for (const struct fake_region *r = fake()->pinned; r && !read_only; r = r->next)
        read_only = r->read_only && p < r->base + r->size_bytes && p + size_bytes > r->base;
    pthread_mutex_unlock(&fake()->lock);
    return read_only;
}

static void seal(struct CUctx_st *c) {
    for (const struct fake_region *r = c->regions; r; r = r->next)
        if (!open_pages(c, r, false)) fake_complain("device memory cannot be opened or closed");
}

void fake_memory_enter(struct CUctx_st *c) {
    pthread_mutex_lock(&c->lock);
    if (c->n_running++ == 0 && fake()->options.sealed) seal(c);
    pthread_mutex_unlock(&c->lock);
}

void fake_memory_leave(struct CUctx_st *c) {
    pthread_mutex_lock(&c->lock);
    if (--c->n_running == 0 && fake()->options.sealed) seal(c);
    pthread_cond_broadcast(&c->moved);
    pthread_mutex_unlock(&c->lock);
}

// ---- Pinned host memory ------------------------------------------------------------------------

// By the table of the process; true if it cannot be read.
static bool is_writable(const void *address) {
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[512], rights[8];
    unsigned long first, end;
    bool writable = true, found = false;
    while (maps && !found && fgets(line, sizeof line, maps)) {
        if (sscanf(line, "%lx-%lx %7s", &first, &end, rights) != 3) continue;
        found = (uintptr_t)address >= first && (uintptr_t)address < end;
        if (found) writable = rights[1] == 'w';
    }
    if (maps) fclose(maps);
    return writable;
}

unsigned cuMemHostRegister_v2(void *base, size_t size_bytes, unsigned flags) {
    unsigned code;
    if (!fake_current(&code)) return code;
    if (!base || !size_bytes || fake_memory_is_device(base)) return CODE_INVALID_VALUE;
    const unsigned known = DRIVER_REGISTER_MAPPED | DRIVER_REGISTER_READ_ONLY;
    const bool read_only = flags & DRIVER_REGISTER_READ_ONLY;
    if (flags & ~known) return CODE_INVALID_VALUE;
    if (read_only && !fake()->options.pins_read_only) return CODE_NOT_SUPPORTED;
    if (!read_only && !is_writable(base)) {
        fake_complain("%p is pinned for writing and cannot be written", base);
        return CODE_INVALID_VALUE;
    }
    if ((code = fake_fault(FAULT_REGISTER))) return code;
    struct fake_region *r = malloc(sizeof *r);
    if (!r) return DRIVER_OUT_OF_MEMORY;
    pthread_mutex_lock(&fake()->lock);
    *r = (struct fake_region){base, size_bytes, flags & DRIVER_REGISTER_MAPPED, read_only,
                              fake()->pinned};
    if (read_only) fake()->read_only_bytes += size_bytes;
    fake()->pinned = r;
    pthread_mutex_unlock(&fake()->lock);
    return DRIVER_SUCCESS;
}

unsigned cuMemHostUnregister(void *base) {
    struct fake_region **place = &fake()->pinned, *r;
    pthread_mutex_lock(&fake()->lock);
    while (*place && (*place)->base != base) place = &(*place)->next;
    r = *place;
    if (r) *place = r->next;
    pthread_mutex_unlock(&fake()->lock);
    free(r);
    if (!r) fake_complain("%p was unregistered and is not pinned", base);
    return r ? DRIVER_SUCCESS : CODE_INVALID_VALUE;
}

// Memory of the host has one address for all.
unsigned cuMemHostGetDevicePointer_v2(unsigned long long *address, void *host, unsigned flags) {
    unsigned code;
    bool mapped = false;
    if (!fake_current(&code)) return code;
    pthread_mutex_lock(&fake()->lock);
    for (const struct fake_region *r = fake()->pinned; r; r = r->next)
        mapped |= r->mapped && (char *)host >= r->base && (char *)host < r->base + r->size_bytes;
    pthread_mutex_unlock(&fake()->lock);
    if (flags || !mapped || !fake()->options.maps_host) return CODE_INVALID_VALUE;
    *address = (unsigned long long)(uintptr_t)host;
    return DRIVER_SUCCESS;
}

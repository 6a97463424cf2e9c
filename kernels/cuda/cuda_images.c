/* cuda_images.c: see cuda_images.h. */
#include "kernels/cuda/cuda_images.h"

#include "base/clock.h"
#include "base/mem.h"
#include "kernels/cuda/cuda_embed.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#if CUDA_PACKED
#include <zstd.h>
#endif

// CUDA_IMAGES is a file that the build writes; it has a line per file and target, with the lines of
// one target next to each other: CUDA_IMAGE(target, architecture, whether it is PTX, oldest driver,
// file, path of the image). With CUDA_PACKED every image is a frame of zstd (RFC 8878).
#define CUDA_IMAGE(target, arch, ptx, driver, file, path) CUDA_EMBED(target, file, path)
#include CUDA_IMAGES
#undef CUDA_IMAGE

struct image {
    const char *target;
    const char *file;
    const char *bytes, *end;
    int arch, oldest_driver;
    bool ptx;
};

static const struct image IMAGES[] = {
#define CUDA_IMAGE(target, arch, ptx, driver, file, path)                                    \
    {#target, #file, cuda_image_##target##_##file, cuda_image_##target##_##file##_end, arch, \
     driver,  ptx},
#include CUDA_IMAGES
#undef CUDA_IMAGE
};
enum { N_IMAGES = sizeof IMAGES / sizeof *IMAGES, N_TARGETS_MAX = 32 };

const char *cuda_kernel_name(enum cuda_kernel kernel) {
    static const char *const names[KERNEL_COUNT] = {
#define CUDA_KERNEL(name, params) #name,
#include "kernels/cuda/kernels.def"
#undef CUDA_KERNEL
    };
    return names[kernel];
}

static void __attribute__((format(printf, 2, 3)))
refuse(struct cuda_program *program, const char *format, ...) {
    size_t used = strlen(program->refused);
    size_t room = sizeof program->refused - used;
    int n = snprintf(program->refused + used, room, "%s", used ? "; " : "");
    if ((size_t)n >= room) return;
    va_list list;
    va_start(list, format);
    (void)vsnprintf(program->refused + used + n, room - (size_t)n, format, list);
    va_end(list);
}

// Native code runs on devices of its own major version from its minor version on; PTX on every
// newer device too.
static bool runs_on(const struct image *image, int arch) {
    if (image->arch > arch) return false;
    return image->ptx || image->arch / 10 == arch / 10;
}

// The better one for a device that both run on.
static bool better(const struct image *a, const struct image *b) {
    return a->ptx == b->ptx ? a->arch > b->arch : b->ptx;
}

// The bytes of an image and a 0 behind them, since PTX is text. NULL if memory is refused. The
// caller frees them with mem_free.
static char *unpack(const struct image *image) {
    const size_t stored = (size_t)(image->end - image->bytes);
#if CUDA_PACKED
    const size_t size = (size_t)ZSTD_getFrameContentSize(image->bytes, stored);
    char *bytes = mem_alloc(size + 1, 1);
    const bool done = bytes && ZSTD_decompress(bytes, size, image->bytes, stored) == size;
#else
    char *bytes = mem_alloc(stored + 1, 1);
    const bool done = bytes != NULL;
    if (bytes) memcpy(bytes, image->bytes, stored);
#endif
    if (done) return bytes;
    mem_free(bytes);
    return NULL;
}

static enum status load_module(struct cuda_program *program, const struct cuda_driver *driver,
                               const struct image *image, struct err *e) {
    char text[256] = "";
    unsigned options[] = {DRIVER_JIT_ERROR_LOG, DRIVER_JIT_ERROR_LOG_BYTES};
    void *values[] = {text, (void *)(sizeof text - 1)};
    char *bytes = unpack(image);
    if (!bytes) return err_memory(e, (size_t)(image->end - image->bytes), "the kernels of a GPU");
    unsigned code =
        driver->module_load(&program->modules[program->n_modules], bytes, 2, options, values);
    mem_free(bytes);
    if (code == DRIVER_SUCCESS) {
        program->n_modules++;
        return OK;
    }
    text[strcspn(text, "\n")] = 0;
    return err_set(e, ERR_DEVICE, "%s: %s %s%s%s", image->target, image->file,
                   cuda_error_name(driver, code), *text ? ": " : "", text);
}

// Tiles with and without tensor cores exclude each other and take most of the time to translate: 9
// of 32 s on a host of an H100. Files and kernels of either kind have its instruction in the name.
static bool is_of_others(const struct cuda_program *program, const char *name) {
    return strstr(name, program->tensor_cores ? "_dp4a" : "_mma") != NULL;
}

// Finds every kernel that this device runs and asks for its registers, so that a driver that loads
// kernels one by one has loaded all before the free memory is read.
static enum status find_kernels(struct cuda_program *program, const struct cuda_driver *driver,
                                const char *target, struct err *e) {
    for (int k = 0; k < KERNEL_COUNT; k++) {
        int threads = 0;
        unsigned code = DRIVER_SUCCESS;
        program->kernels[k] = NULL;
        if (is_of_others(program, cuda_kernel_name((enum cuda_kernel)k))) continue;
        for (int m = 0; m < program->n_modules && !program->kernels[k]; m++)
            code = driver->module_function(&program->kernels[k], program->modules[m],
                                           cuda_kernel_name((enum cuda_kernel)k));
        if (code == DRIVER_SUCCESS && program->kernels[k])
            code = driver->function_attribute(&threads, DRIVER_FUNCTION_MAX_THREADS,
                                              program->kernels[k]);
        if (code != DRIVER_SUCCESS || !program->kernels[k])
            return err_set(e, ERR_DEVICE, "%s: kernel %s %s", target,
                           cuda_kernel_name((enum cuda_kernel)k), cuda_error_name(driver, code));
    }
    return OK;
}

static void unload(struct cuda_program *program, const struct cuda_driver *driver) {
    while (program->n_modules > 0)
        (void)driver->module_unload(program->modules[--program->n_modules]);
}

// Loads the images of the target whose first one is given, but those for other devices.
static enum status load_target(struct cuda_program *program, const struct cuda_driver *driver,
                               const struct image *first, const struct cuda_program_options *o,
                               struct err *e) {
    const struct image *end = IMAGES + N_IMAGES;
    const uint64_t start_ns = clock_ns();
    bool told = !first->ptx;
    enum status status = OK;
    program->tensor_cores = o->tensor_cores && first->arch >= TENSOR_CORES_ARCH;
    for (const struct image *i = first; i < end && !status; i++) {
        if (strcmp(i->target, first->target) != 0) break;
        if (is_of_others(program, i->file)) continue;
        ASSERT(program->n_modules < CUDA_MODULES_MAX);
        status = load_module(program, driver, i, e);
        if (told || clock_ns() - start_ns < CUDA_TRANSLATION_NS) continue;
        told = true;
        log_line(o->log, LOG_NOTE, "the driver translates the kernels for %s, once", o->device);
    }
    if (!status) status = find_kernels(program, driver, first->target, e);
    if (status) unload(program, driver);
    program->arch = first->arch;
    (void)snprintf(program->target, sizeof program->target, "%s", first->target);
    return status;
}

// Lists the first image of every target that may be tried, the best first, and notes why the others
// are refused.
static int choose(struct cuda_program *program, const struct cuda_driver *driver, int arch,
                  const char *only, const struct image **chosen) {
    int n = 0;
    for (int i = 0; i < N_IMAGES; i++) {
        const struct image *image = &IMAGES[i];
        if (i > 0 && strcmp(image->target, IMAGES[i - 1].target) == 0) continue;
        if (only && strcmp(image->target, only) != 0) continue;
        if (!runs_on(image, arch)) {
            refuse(program, "%s: for another GPU", image->target);
        } else if (driver->version < image->oldest_driver) {
            refuse(program, "%s: needs a driver of CUDA %d.%d", image->target,
                   image->oldest_driver / 1000, image->oldest_driver % 1000 / 10);
        } else {
            ASSERT(n < N_TARGETS_MAX);
            int place = n++;
            for (; place > 0 && better(image, chosen[place - 1]); place--)
                chosen[place] = chosen[place - 1];
            chosen[place] = image;
        }
    }
    return n;
}

enum status cuda_program_open(struct cuda_program *program, const struct cuda_driver *driver,
                              const struct cuda_program_options *o, struct err *e) {
    const int arch = o->arch;
    *program = (struct cuda_program){0};
    const struct image *chosen[N_TARGETS_MAX];
    int n = choose(program, driver, arch, o->only, chosen);
    for (int i = 0; i < n; i++) {
        struct err failure;
        if (load_target(program, driver, chosen[i], o, &failure) == OK) {
            for (i++; i < n; i++) refuse(program, "%s: not needed", chosen[i]->target);
            return OK;
        }
        if (failure.status == ERR_MEMORY) {
            *e = failure;
            return failure.status;
        }
        refuse(program, "%s", failure.what);
    }
    err_set(e, ERR_DEVICE, "no kernels for this GPU: %s", program->refused);
    err_actual(e, "compute capability %d.%d, driver of CUDA %d.%d", arch / 10, arch % 10,
               driver->version / 1000, driver->version % 1000 / 10);
    return err_fix(e, "update the NVIDIA driver; GPUs before compute capability 6.1 are too old");
}

void cuda_program_close(struct cuda_program *program, const struct cuda_driver *driver) {
    unload(program, driver);
    *program = (struct cuda_program){0};
}

/* metal_library.c: see metal_library.h. */
#include "kernels/metal/metal_library.h"

#include "base/clock.h"

#include <string.h>

const char *metal_kernel_name(enum metal_kernel kernel) {
    static const char *const names[METAL_KERNEL_COUNT] = {
#define METAL_KERNEL(name, params, n_pointers) #name,
#include "kernels/metal/kernels.def"
#undef METAL_KERNEL
    };
    return names[kernel];
}

// The first line that has an error, or the first one.
static void first_error(char *out, size_t size_bytes, const char *text) {
    const char *found = strstr(text, "error:");
    const char *line = found ? found : text;
    while (line > text && line[-1] != '\n') line--;
    size_t length = strcspn(line, "\n");
    if (length >= size_bytes) length = size_bytes - 1;
    memcpy(out, line, length);
    out[length] = 0;
}

static void log_lines(const struct log *log, const char *text) {
    while (*text) {
        const int length = (int)strcspn(text, "\n");
        if (length > 0) log_line(log, LOG_WARN, "Metal: %.*s", length, text);
        text += length + (text[length] == '\n');
    }
}

struct compiler {
    const struct metal_objc *objc;
    struct mtl_device *device;
    struct mtl_library *code;
    const struct log *log;
};

static enum status refuse(const struct compiler *c, struct ns_error *error, const char *what,
                          struct err *e) {
    char line[256];
    const char *text = metal_error_text(c->objc, error);
    first_error(line, sizeof line, text);
    if (strchr(text, '\n')) log_lines(c->log, text);
    err_set(e, ERR_DEVICE, "%s: %s", what, line);
    return err_fix(e, "update macOS; if it stays, report it, or use --device none");
}

static enum status check_pipeline(const struct compiler *c, struct metal_library *library,
                                  enum metal_kernel kernel, struct err *e) {
    struct mtl_pipeline *pipeline = library->pipelines[kernel];
    const objc_number width = METAL_SEND(c->objc, pipeline_simd_width, pipeline);
    library->max_threads[kernel] = (uint32_t)METAL_SEND(c->objc, pipeline_threads_max, pipeline);
    if (width == METAL_SIMD_WIDTH) return OK;
    err_set(e, ERR_DEVICE, "the kernel %s does not run on this GPU", metal_kernel_name(kernel));
    err_expected(e, "simdgroups of %d threads", METAL_SIMD_WIDTH);
    err_actual(e, "%lu", width);
    return err_fix(e, "use --device none");
}

static enum status make_pipeline(const struct compiler *c, struct metal_library *library,
                                 enum metal_kernel kernel, struct err *e) {
    const char *name = metal_kernel_name(kernel);
    struct ns_error *error = NULL;
    struct ns_string *string = metal_string(c->objc, name);
    struct mtl_function *function =
        string ? METAL_SEND(c->objc, new_function, c->code, string) : NULL;
    if (!function) return err_set(e, ERR_DEVICE, "Metal finds no kernel %s", name);
    library->pipelines[kernel] = METAL_SEND(c->objc, new_pipeline, c->device, function, &error);
    c->objc->release(function);
    if (library->pipelines[kernel]) return check_pipeline(c, library, kernel, e);
    char what[96];
    (void)snprintf(what, sizeof what, "the kernel %s is refused", name);
    return refuse(c, error, what, e);
}

// Fast mathematics would reorder sums and drop NaN and infinities, which the kernels count on.
static enum status compile(struct compiler *c, const char *source, struct err *e) {
    const struct metal_objc *objc = c->objc;
    struct ns_error *error = NULL;
    struct ns_string *text = metal_string(objc, source);
    struct mtl_options *options = METAL_SEND(objc, new_options, objc->options_class);
    if (text && options) {
        METAL_SEND(objc, options_fast_math, options, false);
        METAL_SEND(objc, options_language, options, METAL_LANGUAGE_2_3);
        c->code = METAL_SEND(objc, new_library, c->device, text, options, &error);
    }
    objc->release(options);
    return c->code ? OK : refuse(c, error, "the kernels do not compile", e);
}

enum status metal_library_open(struct metal_library *library, const struct metal_objc *objc,
                               struct mtl_device *device, const char *source, const struct log *log,
                               struct err *e) {
    *library = (struct metal_library){0};
    const uint64_t begin_ns = clock_ns();
    log_line(log, LOG_INFO, "compiling %d kernels for the GPU", (int)METAL_KERNEL_COUNT);
    struct compiler c = {objc, device, NULL, log};
    void *pool = objc->pool_push();
    enum status status = compile(&c, source, e);
    for (int k = 0; k < METAL_KERNEL_COUNT && !status; k++)
        status = make_pipeline(&c, library, (enum metal_kernel)k, e);
    objc->release(c.code);
    objc->pool_pop(pool);
    if (status) return status;
    const double seconds = (double)(clock_ns() - begin_ns) * 1e-9;
    log_line(log, seconds > 1 ? LOG_NOTE : LOG_INFO,
             "%d kernels compiled in %.1f s; the system keeps them for the next start",
             (int)METAL_KERNEL_COUNT, seconds);
    return OK;
}

void metal_library_close(struct metal_library *library, const struct metal_objc *objc) {
    for (int k = 0; k < METAL_KERNEL_COUNT; k++)
        if (library->pipelines[k]) objc->release(library->pipelines[k]);
    *library = (struct metal_library){0};
}

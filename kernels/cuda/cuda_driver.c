/* cuda_driver.c: see cuda_driver.h. */
#include "kernels/cuda/cuda_driver.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

// Oldest driver whose PTX we write: CUDA 9.
enum { DRIVER_OLDEST = 9000 };

static enum status find_call(struct cuda_driver *driver, const char *symbol, void *field,
                             struct err *e) {
    void *address = dlsym(driver->library, symbol);
    memcpy(field, &address, sizeof address);
    if (address) return OK;
    err_set(e, ERR_DEVICE, "the NVIDIA driver lacks the call %s", symbol);
    return err_fix(e, "update the NVIDIA driver, or use --device none");
}

static enum status find_calls(struct cuda_driver *driver, struct err *e) {
#define FIND(field, symbol, parameters) \
    if (find_call(driver, #symbol, &driver->field, e)) return e->status;
    CUDA_DRIVER_CALLS(FIND)
    CUDA_DRIVER_ROW_CALLS(FIND)
#undef FIND
    struct err lacking;
#define FIND(field, symbol, old_symbol, parameters)             \
    if (find_call(driver, #symbol, &driver->field, &lacking) && \
        find_call(driver, #old_symbol, &driver->field, e))      \
        return e->status;
    CUDA_DRIVER_RENAMED_CALLS(FIND)
#undef FIND
    driver->has_host_calls = true;
#define FIND(field, symbol, parameters) \
    if (find_call(driver, #symbol, &driver->field, &lacking)) driver->has_host_calls = false;
    CUDA_DRIVER_HOST_CALLS(FIND)
#undef FIND
    driver->has_graphs = true;
#define FIND(field, symbol, parameters) \
    if (find_call(driver, #symbol, &driver->field, &lacking)) driver->has_graphs = false;
    CUDA_DRIVER_GRAPH_CALLS(FIND)
    CUDA_DRIVER_OLD_GRAPH_CALLS(FIND)
#undef FIND
    driver->has_flags = true;
#define FIND(field, symbol, parameters) \
    if (find_call(driver, #symbol, &driver->field, &lacking)) driver->has_flags = false;
    CUDA_DRIVER_FLAG_CALLS(FIND)
    CUDA_DRIVER_FLAG_NODE_CALLS(FIND)
#undef FIND
    return OK;
}

static enum status start(struct cuda_driver *driver, struct err *e) {
    unsigned code = driver->init(0);
    if (code == DRIVER_STUB_LIBRARY) {
        err_set(e, ERR_UNSUPPORTED, "libcuda.so.1 is the toolkit's stub, not a driver");
        return err_fix(e, "take the toolkit's folder \"stubs\" out of LD_LIBRARY_PATH");
    }
    if (code == DRIVER_NO_DEVICE) {
        err_set(e, ERR_UNSUPPORTED, "the NVIDIA driver finds no GPU (%s)",
                cuda_error_name(driver, code));
        return err_fix(e, "look at nvidia-smi and at CUDA_VISIBLE_DEVICES");
    }
    if (code != DRIVER_SUCCESS) {
        err_set(e, ERR_DEVICE, "the NVIDIA driver does not start (%s)",
                cuda_error_name(driver, code));
        return err_fix(e, "look at nvidia-smi; after an update of the driver, restart the machine");
    }
    code = driver->driver_version(&driver->version);
    if (cuda_check(driver, code, e, "asking for the driver's version")) return e->status;
    if (driver->version >= DRIVER_OLDEST) return OK;
    err_set(e, ERR_DEVICE, "the NVIDIA driver is too old");
    err_expected(e, "CUDA 9.0 or newer");
    err_actual(e, "CUDA %d.%d", driver->version / 1000, driver->version % 1000 / 10);
    return err_fix(e, "update the NVIDIA driver");
}

enum status cuda_driver_open(struct cuda_driver *driver, const char *path, struct err *e) {
    *driver = (struct cuda_driver){0};
    driver->library = dlopen(path ? path : "libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!driver->library) {
        const char *why = dlerror();
        err_set(e, ERR_UNSUPPORTED, "no NVIDIA driver (%s)",
                why ? why : "libcuda.so.1 does not load");
        return err_fix(e, "install the NVIDIA driver to use the GPU");
    }
    if (find_calls(driver, e) == OK && start(driver, e) == OK) return OK;
    cuda_driver_close(driver);
    return e->status;
}

void cuda_driver_close(struct cuda_driver *driver) {
    if (driver->library) (void)dlclose(driver->library);
    *driver = (struct cuda_driver){0};
}

const char *cuda_error_name(const struct cuda_driver *driver, unsigned code) {
    const char *name = NULL;
    if (driver->error_name(code, &name) != DRIVER_SUCCESS || !name)
        return "an error without a name";
    return name;
}

enum status cuda_check(const struct cuda_driver *driver, unsigned code, struct err *e,
                       const char *what, ...) {
    if (code == DRIVER_SUCCESS) return OK;
    char text[256];
    va_list list;
    va_start(list, what);
    (void)vsnprintf(text, sizeof text, what, list);
    va_end(list);
    bool memory = code == DRIVER_OUT_OF_MEMORY;
    err_set(e, memory ? ERR_MEMORY : ERR_DEVICE, "%s: %s (%u)", text, cuda_error_name(driver, code),
            code);
    if (memory)
        return err_fix(e, "close other programs that use the GPU, or give tandem less (--vram)");
    // A kernel did it, but which one is known only where the driver waits for each.
    if (code == DRIVER_ILLEGAL_ADDRESS || code == DRIVER_LAUNCH_FAILED)
        return err_fix(e,
                       "run it again with --device cuda:graphs=0 and CUDA_LAUNCH_BLOCKING=1 in the "
                       "environment, which names the kernel, and report it; --device none "
                       "avoids it");
    return err_fix(e, "start again; if it stays, look at dmesg for the GPU, or use --device none");
}

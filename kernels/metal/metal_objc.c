/* metal_objc.c: see metal_objc.h. */
#include "kernels/metal/metal_objc.h"

#include <dlfcn.h>
#include <string.h>

enum { N_LIBRARIES = sizeof((struct metal_objc *)0)->libraries / sizeof(void *) };

// Where macOS keeps them, since version 11 without a file.
static const char *const LIBRARIES[N_LIBRARIES] = {
    "/usr/lib/libobjc.A.dylib",
    "/System/Library/Frameworks/Foundation.framework/Foundation",
    "/System/Library/Frameworks/Metal.framework/Metal",
};

static enum status load(struct metal_objc *objc, const char *path, struct err *e) {
    for (int i = 0; i < N_LIBRARIES; i++) {
        const char *name = path ? path : LIBRARIES[i];
        objc->libraries[i] = dlopen(name, RTLD_NOW | RTLD_LOCAL);
        if (objc->libraries[i]) continue;
        const char *why = dlerror();
        err_set(e, ERR_UNSUPPORTED, "no Metal on this machine (%s)", why ? why : name);
        return err_fix(e, "Metal needs a Mac with Apple silicon");
    }
    return OK;
}

static enum status find_call(const struct metal_objc *objc, const char *symbol, void *field,
                             struct err *e) {
    void *address = NULL;
    for (int i = 0; i < N_LIBRARIES && !address; i++) address = dlsym(objc->libraries[i], symbol);
    memcpy(field, &address, sizeof address);
    if (address) return OK;
    err_set(e, ERR_DEVICE, "Metal lacks the call %s", symbol);
    return err_fix(e, "update macOS to 11 or newer, or use --device none");
}

static enum status find_class(struct metal_objc *objc, const char *name, struct objc_object **out,
                              struct err *e) {
    *out = objc->class_named(name);
    if (*out) return OK;
    err_set(e, ERR_DEVICE, "Metal lacks the class %s", name);
    return err_fix(e, "update macOS to 11 or newer, or use --device none");
}

// One function sends every message; a caller calls it as if it were the method.
static enum status find_messages(struct metal_objc *objc, struct err *e) {
    void *send = NULL;
    if (find_call(objc, "objc_msgSend", &send, e)) return e->status;
#define FIND(result, field, name, ...)             \
    memcpy(&objc->field.send, &send, sizeof send); \
    objc->field.selector = objc->selector_named(name);
    METAL_MESSAGES(FIND)
#undef FIND
    return OK;
}

enum status metal_objc_open(struct metal_objc *objc, const char *path, struct err *e) {
    *objc = (struct metal_objc){0};
    if (load(objc, path, e) || find_call(objc, "objc_getClass", &objc->class_named, e) ||
        find_call(objc, "sel_registerName", &objc->selector_named, e) ||
        find_call(objc, "objc_autoreleasePoolPush", &objc->pool_push, e) ||
        find_call(objc, "objc_autoreleasePoolPop", &objc->pool_pop, e) ||
        find_call(objc, "objc_retain", &objc->retain, e) ||
        find_call(objc, "objc_release", &objc->release, e) ||
        find_call(objc, "MTLCopyAllDevices", &objc->copy_devices, e) || find_messages(objc, e) ||
        find_class(objc, "NSString", &objc->string_class, e) ||
        find_class(objc, "NSProcessInfo", &objc->process_class, e) ||
        find_class(objc, "MTLCompileOptions", &objc->options_class, e)) {
        metal_objc_close(objc);
        return e->status;
    }
    return OK;
}

void metal_objc_close(struct metal_objc *objc) {
    for (int i = N_LIBRARIES; i-- > 0;)
        if (objc->libraries[i]) (void)dlclose(objc->libraries[i]);
    *objc = (struct metal_objc){0};
}

struct ns_string *metal_string(const struct metal_objc *objc, const char *text) {
    return METAL_SEND(objc, string_with, objc->string_class, text);
}

const char *metal_text(const struct metal_objc *objc, struct ns_string *string) {
    const char *text = string ? METAL_SEND(objc, string_text, string) : NULL;
    return text ? text : "";
}

const char *metal_error_text(const struct metal_objc *objc, struct ns_error *error) {
    const char *text = error ? metal_text(objc, METAL_SEND(objc, error_text, error)) : "";
    return *text ? text : "Metal does not say why";
}

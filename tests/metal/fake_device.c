/* fake_device.c: devices, libraries and pipelines of the look-alike Metal; see fake.h.
 *
 * A library is not really compiled: its text is looked at for brackets that do not match, must be
 * the text that the emulated kernels were made of, and must have their names. Tested by
 * tests/kernels/test_metal.c.
 */
#include "kernels/metal/metal_source.h"
#include "tests/metal/fake.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---- Pipelines ---------------------------------------------------------------------------------

static void free_pipeline(void *object) { fake_release(((struct fake_pipeline *)object)->device); }

static objc_number simd_width(struct fake_pipeline *p, void *selector) {
    (void)p, (void)selector;
    return fake()->options.simd_width;
}

static objc_number threads_max(struct fake_pipeline *p, void *selector) {
    (void)selector;
    const uint32_t own = p->function->max_threads, all = fake()->options.max_threads;
    return own && own < all ? own : all;
}

static const struct fake_method PIPELINE_METHODS[] = {
    {"threadExecutionWidth", simd_width},
    {"maxTotalThreadsPerThreadgroup", threads_max},
    {NULL, NULL}};
static struct fake_class pipeline_class = {
    .name = "MTLComputePipelineState", .methods = PIPELINE_METHODS, .dealloc = free_pipeline};

// ---- Libraries ---------------------------------------------------------------------------------

struct function {
    struct fake_object object;
    const struct metal_function *function;
};

static struct fake_class function_class = {.name = "MTLFunction",
                                           .methods = (struct fake_method[]){{NULL, NULL}}};

struct library {
    struct fake_object object;
    char *text;
};

static void free_library(void *object) { free(((struct library *)object)->text); }

static void *new_function(struct library *library, void *selector, struct fake_string *name) {
    (void)selector;
    if (!name) fake_rule("nil-argument", "newFunctionWithName: of nil");
    fake_check_live(name, "newFunctionWithName:");
    const struct metal_function *found = metal_function_find(name->text);
    if (fake_fault(FAULT_FUNCTION) || !found || !strstr(library->text, name->text)) return NULL;
    struct function *f = fake_new(&function_class, sizeof *f);
    f->function = found;
    return f;
}

static const struct fake_method LIBRARY_METHODS[] = {{"newFunctionWithName:", new_function},
                                                     {NULL, NULL}};
static struct fake_class library_class = {
    .name = "MTLLibrary", .methods = LIBRARY_METHODS, .dealloc = free_library};

// ---- What stands for the compiler --------------------------------------------------------------

struct reader { // of a program's text
    const char *at;
    char file[64];
    int line, column;
};

static void step(struct reader *r) {
    r->column++;
    if (*r->at++ != '\n') return;
    r->line++;
    r->column = 1;
    // "#line 12 "file"" numbers the next line.
    int line;
    char file[64] = "";
    if (sscanf(r->at, "#line %d \"%63[^\"]\"", &line, file) < 1) return;
    r->at += strcspn(r->at, "\n");
    r->line = line - (*r->at == '\n');
    if (*file) snprintf(r->file, sizeof r->file, "%s", file);
}

// Goes over a comment or a string. False at anything else.
static bool skip(struct reader *r) {
    const char *end = !strncmp(r->at, "//", 2)   ? "\n"
                      : !strncmp(r->at, "/*", 2) ? "*/"
                      : *r->at == '"'            ? "\""
                                                 : NULL;
    if (!end) return false;
    step(r);
    if (*end == '*') step(r);
    while (*r->at && strncmp(r->at, end, strlen(end))) step(r);
    for (size_t i = 0; i < strlen(end) && *r->at && *end != '\n'; i++) step(r);
    return true;
}

// The first bracket that does not match, as a compiler says it; NULL if all do.
static struct fake_error *check_brackets(const char *text) {
    enum { DEPTH_MAX = 256 };
    static const char OPEN[] = "({[", CLOSE[] = ")}]";
    char wanted[DEPTH_MAX];
    int depth = 0;
    struct reader r = {.at = text, .file = "program_source", .line = 1, .column = 1};
    for (; *r.at;) {
        if (skip(&r)) continue;
        const char *open = strchr(OPEN, *r.at), *close = strchr(CLOSE, *r.at);
        if (open && depth < DEPTH_MAX) wanted[depth++] = CLOSE[open - OPEN];
        if (close && (depth == 0 || wanted[--depth] != *close)) break;
        step(&r);
    }
    if (!*r.at && depth == 0) return NULL;
    return fake_error(3, "%s:%d:%d: error: expected '%c'\n%.*s\n^\n1 error generated.\n", r.file,
                      r.line, r.column, depth ? wanted[depth - (*r.at == 0)] : ';',
                      (int)strcspn(r.at, "\n"), r.at);
}

static void *new_library(struct fake_device *device, void *selector, struct fake_string *text,
                         struct fake_object *options, struct fake_error **out) {
    (void)device, (void)selector;
    if (!text || !options) fake_rule("nil-argument", "newLibraryWithSource: of nil");
    fake_check_live(text, "newLibraryWithSource:");
    fake_check_live(options, "newLibraryWithSource:");
    struct fake_error *error = check_brackets(text->text);
    if (!error && fake_fault(FAULT_LIBRARY))
        error = fake_error(3, "%s",
                           "kernels/metal/norm.metal:12:5: error: use of undeclared identifier "
                           "'simd_som'\n    simd_som(sum);\n    ^\n1 error generated.\n");
    if (!error && strcmp(text->text, metal_source))
        error = fake_error(3, "program_source:1:1: error: not the text of the emulated kernels");
    if (error) {
        *out = fake_autorelease(error);
        return NULL;
    }
    struct library *library = fake_new(&library_class, sizeof *library);
    library->text = strdup(text->text);
    return library;
}

static void *new_pipeline(struct fake_device *device, void *selector, struct function *function,
                          struct fake_error **out) {
    (void)selector;
    if (!function) fake_rule("nil-argument", "newComputePipelineStateWithFunction: of nil");
    fake_check_live(function, "newComputePipelineStateWithFunction:");
    if (fake_fault(FAULT_PIPELINE)) {
        *out = fake_autorelease(
            fake_error(2, "Compiler encountered an internal error: %s", function->function->name));
        return NULL;
    }
    struct fake_pipeline *p = fake_new(&pipeline_class, sizeof *p);
    p->device = fake_device_hold(device);
    p->function = function->function;
    while (metal_functions[p->number] != p->function) p->number++;
    return p;
}

// ---- Devices -----------------------------------------------------------------------------------

struct fake_device *fake_device_hold(struct fake_device *device) {
    return fake_retain(device);
}

static void free_device(void *object) {
    (void)object;
    fake_devices_less();
}

static struct fake_string *device_name(struct fake_device *d, void *selector) {
    (void)d, (void)selector;
    return fake_string(fake()->options.name);
}

static bool is_unified(struct fake_device *d, void *selector) {
    (void)d, (void)selector;
    return fake()->options.unified;
}

static bool supports_family(struct fake_device *d, void *selector, long family) {
    (void)d, (void)selector;
    return family >= METAL_FAMILY_APPLE1 && family < METAL_FAMILY_APPLE1 + fake()->options.family;
}

static uint64_t working_set(struct fake_device *d, void *selector) {
    (void)d, (void)selector;
    return fake()->options.memory_bytes;
}

static objc_number allocated(struct fake_device *d, void *selector) {
    (void)d, (void)selector;
    return atomic_load(&fake()->allocated_bytes);
}

static objc_number buffer_max(struct fake_device *d, void *selector) {
    (void)d, (void)selector;
    return fake()->options.buffer_bytes;
}

static objc_number threadgroup_max(struct fake_device *d, void *selector) {
    (void)d, (void)selector;
    return FAKE_THREADGROUP_MAX;
}

static const struct fake_method DEVICE_METHODS[] = {
    {"name", device_name},
    {"hasUnifiedMemory", is_unified},
    {"supportsFamily:", supports_family},
    {"recommendedMaxWorkingSetSize", working_set},
    {"currentAllocatedSize", allocated},
    {"maxBufferLength", buffer_max},
    {"maxThreadgroupMemoryLength", threadgroup_max},
    {"newBufferWithBytesNoCopy:length:options:deallocator:", fake_new_buffer},
    {"newCommandQueueWithMaxCommandBufferCount:", fake_new_queue},
    {"newSharedEvent", fake_new_event},
    {"newLibraryWithSource:options:error:", new_library},
    {"newComputePipelineStateWithFunction:error:", new_pipeline},
    {NULL, NULL},
};
struct fake_class fake_device_class = {
    .name = "MTLDevice", .methods = DEVICE_METHODS, .dealloc = free_device};

/* fake_foundation.c: strings, arrays, errors and the process's information of the look-alike
 * Foundation, and the classes that are asked for by name; see fake.h. Tested by
 * tests/kernels/test_metal_rules.c.
 */
#include "tests/metal/fake.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---- Strings -----------------------------------------------------------------------------------

static void free_string(void *object) { free(((struct fake_string *)object)->text); }

static const char *string_text(struct fake_string *s, void *selector) {
    (void)selector;
    return s->text;
}

static const struct fake_method STRING_METHODS[] = {{"UTF8String", string_text}, {NULL, NULL}};
static struct fake_class string_class = {
    .name = "NSString", .methods = STRING_METHODS, .dealloc = free_string};

struct fake_string *fake_string(const char *text) {
    struct fake_string *s = fake_new(&string_class, sizeof *s);
    s->text = strdup(text);
    return fake_autorelease(s);
}

static struct fake_string *string_with(void *class, void *selector, const char *text) {
    (void)class, (void)selector;
    if (!text) fake_rule("nil-argument", "stringWithUTF8String: of NULL");
    return fake_string(text);
}

// ---- Errors ------------------------------------------------------------------------------------

static void free_error(void *object) { free(((struct fake_error *)object)->text); }

static struct fake_string *error_text(struct fake_error *error, void *selector) {
    (void)selector;
    return fake_string(error->text);
}

static long error_code(struct fake_error *error, void *selector) {
    (void)selector;
    return error->code;
}

static const struct fake_method ERROR_METHODS[] = {
    {"localizedDescription", error_text}, {"code", error_code}, {NULL, NULL}};
static struct fake_class error_class = {
    .name = "NSError", .methods = ERROR_METHODS, .dealloc = free_error};

struct fake_error *fake_error(long code, const char *format, ...) {
    char text[2048];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    struct fake_error *error = fake_new(&error_class, sizeof *error);
    error->code = code;
    error->text = strdup(text);
    return error;
}

// ---- Arrays ------------------------------------------------------------------------------------

struct fake_array {
    struct fake_object object;
    size_t n;
    void **objects;
};

static void free_array(void *object) {
    struct fake_array *a = object;
    for (size_t i = 0; i < a->n; i++) fake_release(a->objects[i]);
    free(a->objects);
}

static objc_number array_count(struct fake_array *a, void *selector) {
    (void)selector;
    return a->n;
}

static void *array_at(struct fake_array *a, void *selector, objc_number i) {
    (void)selector;
    if (i >= a->n) fake_rule("index", "objectAtIndex: %lu of an array of %zu", i, a->n);
    return a->objects[i];
}

static const struct fake_method ARRAY_METHODS[] = {
    {"count", array_count}, {"objectAtIndex:", array_at}, {NULL, NULL}};
static struct fake_class array_class = {
    .name = "NSArray", .methods = ARRAY_METHODS, .dealloc = free_array};

void *fake_array(void *const *objects, size_t n) {
    struct fake_array *a = fake_new(&array_class, sizeof *a);
    a->n = n;
    a->objects = calloc(n ? n : 1, sizeof *a->objects);
    if (n) memcpy(a->objects, objects, n * sizeof *objects);
    return a;
}

// ---- Classes that are asked for ----------------------------------------------------------------

static struct fake_string *system_version(void *process, void *selector) {
    (void)process, (void)selector;
    return fake_string("Version 14.5 (emulated)");
}

static const struct fake_method PROCESS_METHODS[] = {
    {"operatingSystemVersionString", system_version}, {NULL, NULL}};
static struct fake_class process_class = {.name = "NSProcessInfo", .methods = PROCESS_METHODS};
static struct fake_object process = {.isa = &process_class, .count = 1};

static void *process_info(void *class, void *selector) {
    (void)class, (void)selector;
    return &process;
}

static void set_fast_math(void *options, void *selector, bool on) {
    (void)options, (void)selector;
    if (on) fake_complain("the kernels are compiled with fast mathematics");
}

static void set_language(void *options, void *selector, objc_number version) {
    (void)options, (void)selector;
    if (version != METAL_LANGUAGE_2_3) fake_rule("language", "version %lu", version);
}

static const struct fake_method OPTIONS_METHODS[] = {
    {"setFastMathEnabled:", set_fast_math}, {"setLanguageVersion:", set_language}, {NULL, NULL}};
static struct fake_class options_class = {.name = "MTLCompileOptions", .methods = OPTIONS_METHODS};

static void *new_options(void *class, void *selector) {
    (void)class, (void)selector;
    return fake_new(&options_class, sizeof(struct fake_object));
}

// A class is an object whose class has its class methods.
static const struct {
    const char *name;
    struct fake_method methods[2];
} CLASS_METHODS[] = {
    {"NSString", {{"stringWithUTF8String:", string_with}}},
    {"NSProcessInfo", {{"processInfo", process_info}}},
    {"MTLCompileOptions", {{"new", new_options}}},
};
enum { N_CLASSES = sizeof CLASS_METHODS / sizeof *CLASS_METHODS };
static struct fake_class metaclasses[N_CLASSES];
static struct fake_object classes[N_CLASSES];

FAKE_API void *objc_getClass(const char *name) {
    for (int i = 0; i < N_CLASSES; i++) {
        if (strcmp(CLASS_METHODS[i].name, name)) continue;
        metaclasses[i].name = name;
        metaclasses[i].methods = CLASS_METHODS[i].methods;
        classes[i].isa = &metaclasses[i];
        atomic_store(&classes[i].count, 1);
        return &classes[i];
    }
    return NULL;
}

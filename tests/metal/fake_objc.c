/* fake_objc.c: the runtime of the look-alike Metal: messages, references and pools; see fake.h.
 *
 * Objects that are freed are kept, so that a message to one is recognised; their own memory is
 * small. Tested by tests/kernels/test_metal_rules.c.
 */
#include "tests/metal/fake.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    SELECTORS_MAX = 512,
    POOL_OBJECTS_MAX = 4096, // of one thread
    FREED_MAX = 8192,        // objects that are kept after they were freed
};

struct objc_selector {
    char *name;
};

static struct {
    pthread_mutex_t lock; // all below
    struct objc_selector selectors[SELECTORS_MAX];
    int n_selectors;
    struct fake_class *classes;
    void *freed[FREED_MAX]; // a ring
    uint64_t n_freed;
} runtime = {.lock = PTHREAD_MUTEX_INITIALIZER};

static _Thread_local struct {
    void *objects[POOL_OBJECTS_MAX]; // NULL: a pool begins
    int n;
} pools;

void fake_rule(const char *rule, const char *format, ...) {
    char text[1400];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    fprintf(stderr, "fake Metal: rule %s: %s\n", rule, text);
    abort();
}

void fake_complain(const char *format, ...) {
    char text[1400];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    fprintf(stderr, "fake Metal: %s\n", text);
}

// ---- Messages ----------------------------------------------------------------------------------

FAKE_API struct objc_selector *sel_registerName(const char *name) {
    pthread_mutex_lock(&runtime.lock);
    int i = 0;
    while (i < runtime.n_selectors && strcmp(runtime.selectors[i].name, name)) i++;
    if (i == SELECTORS_MAX) abort();
    if (i == runtime.n_selectors) runtime.selectors[runtime.n_selectors++].name = strdup(name);
    pthread_mutex_unlock(&runtime.lock);
    return &runtime.selectors[i];
}

void fake_check_live(const void *object, const char *message) {
    const struct fake_object *o = object;
    if (atomic_load(&o->count) <= 0)
        fake_rule("freed-object", "-[%s %s] is sent to an object that was freed", o->isa->name,
                  message);
}

// The function of a message. Called by objc_msgSend, which keeps the arguments meanwhile.
__attribute__((used, visibility("hidden"))) void *
fake_find_method(const struct fake_object *object, const struct objc_selector *selector) {
    fake_check_live(object, selector->name);
    for (const struct fake_method *m = object->isa->methods; m->selector; m++)
        if (!strcmp(m->selector, selector->name)) return m->function;
    fake_rule("unknown-selector", "-[%s %s]", object->isa->name, selector->name);
}

// Jumps to the method with all registers of arguments, and the stack, as the caller left them. A
// message to NULL gives 0.
__asm__(".text\n"
        ".globl objc_msgSend\n"
        ".type objc_msgSend, @function\n"
        "objc_msgSend:\n"
        "    testq %rdi, %rdi\n"
        "    jz 1f\n"
        "    pushq %rbp\n"
        "    movq %rsp, %rbp\n"
        "    subq $192, %rsp\n"
        "    movq %rdi, (%rsp)\n"
        "    movq %rsi, 8(%rsp)\n"
        "    movq %rdx, 16(%rsp)\n"
        "    movq %rcx, 24(%rsp)\n"
        "    movq %r8, 32(%rsp)\n"
        "    movq %r9, 40(%rsp)\n"
        "    movups %xmm0, 64(%rsp)\n"
        "    movups %xmm1, 80(%rsp)\n"
        "    movups %xmm2, 96(%rsp)\n"
        "    movups %xmm3, 112(%rsp)\n"
        "    movups %xmm4, 128(%rsp)\n"
        "    movups %xmm5, 144(%rsp)\n"
        "    movups %xmm6, 160(%rsp)\n"
        "    movups %xmm7, 176(%rsp)\n"
        "    call fake_find_method\n"
        "    movq %rax, %r11\n"
        "    movq (%rsp), %rdi\n"
        "    movq 8(%rsp), %rsi\n"
        "    movq 16(%rsp), %rdx\n"
        "    movq 24(%rsp), %rcx\n"
        "    movq 32(%rsp), %r8\n"
        "    movq 40(%rsp), %r9\n"
        "    movups 64(%rsp), %xmm0\n"
        "    movups 80(%rsp), %xmm1\n"
        "    movups 96(%rsp), %xmm2\n"
        "    movups 112(%rsp), %xmm3\n"
        "    movups 128(%rsp), %xmm4\n"
        "    movups 144(%rsp), %xmm5\n"
        "    movups 160(%rsp), %xmm6\n"
        "    movups 176(%rsp), %xmm7\n"
        "    leave\n"
        "    jmp *%r11\n"
        "1:  xorl %eax, %eax\n"
        "    pxor %xmm0, %xmm0\n"
        "    ret\n"
        ".size objc_msgSend, . - objc_msgSend\n");

// ---- References --------------------------------------------------------------------------------

void *fake_new(struct fake_class *class, size_t size_bytes) {
    struct fake_object *o = calloc(1, size_bytes);
    if (!o) abort();
    o->isa = class;
    atomic_store(&o->count, 1);
    atomic_fetch_add(&class->n_live, 1);
    if (!atomic_exchange(&class->listed, true)) {
        pthread_mutex_lock(&runtime.lock);
        class->next = runtime.classes;
        runtime.classes = class;
        pthread_mutex_unlock(&runtime.lock);
    }
    return o;
}

void *fake_retain(void *object) {
    struct fake_object *o = object;
    if (!o) return NULL;
    fake_check_live(o, "retain");
    atomic_fetch_add(&o->count, 1);
    return o;
}

static void keep_freed(void *object) {
    pthread_mutex_lock(&runtime.lock);
    void **place = &runtime.freed[runtime.n_freed++ % FREED_MAX];
    free(*place);
    *place = object;
    pthread_mutex_unlock(&runtime.lock);
}

void fake_release(void *object) {
    struct fake_object *o = object;
    if (!o) return;
    fake_check_live(o, "release");
    if (atomic_fetch_sub(&o->count, 1) > 1) return;
    if (o->isa->dealloc) o->isa->dealloc(o);
    atomic_fetch_sub(&o->isa->n_live, 1);
    keep_freed(o);
}

void *fake_autorelease(void *object) {
    if (pools.n == 0)
        fake_rule("pool-missing", "a %s is autoreleased outside of all pools",
                  ((struct fake_object *)object)->isa->name);
    if (pools.n == POOL_OBJECTS_MAX) fake_rule("pool-full", "a pool has thousands of objects");
    pools.objects[pools.n++] = object;
    return object;
}

FAKE_API void *objc_retain(void *object) { return fake_retain(object); }

FAKE_API void objc_release(void *object) { fake_release(object); }

FAKE_API void *objc_autoreleasePoolPush(void) {
    if (pools.n == POOL_OBJECTS_MAX) fake_rule("pool-full", "pools are not popped");
    pools.objects[pools.n++] = NULL;
    return (void *)(uintptr_t)pools.n;
}

FAKE_API void objc_autoreleasePoolPop(void *pool) {
    const int place = (int)(uintptr_t)pool - 1;
    if (place < 0 || place >= pools.n || pools.objects[place])
        fake_rule("pool-order", "a pool is popped twice, or by another thread");
    while (pools.n > place) {
        void *object = pools.objects[--pools.n];
        if (!object && pools.n > place) fake_rule("pool-order", "an inner pool is still there");
        fake_release(object);
    }
}

// References must be balanced when the library is unloaded, but where the program has given up a
// device that never ends.
__attribute__((destructor)) static void end(void) {
    bool left = false;
    for (const struct fake_class *c = runtime.classes; c; c = c->next) {
        const int n = atomic_load(&c->n_live);
        left = left || n;
        if (n && !atomic_load(&fake()->stalled)) fake_complain("left behind: %d %s", n, c->name);
    }
    if (left && !atomic_load(&fake()->stalled))
        fake_rule("left-behind", "objects were not released");
    if (left) return;
    for (int i = 0; i < FREED_MAX; i++) free(runtime.freed[i]);
    for (int i = 0; i < runtime.n_selectors; i++) free(runtime.selectors[i].name);
}

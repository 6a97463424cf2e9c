/* test_metal_rules.c: the look-alike Metal catches a program that breaks a rule of Metal's or of
 * its runtime: each is broken once, in a process of its own that must end with the rule's name. A
 * program that keeps them all runs to its end. */
#include "base/mem.h"
#include "kernels/metal/metal_objc.h"
#include "kernels/metal/metal_source.h"
#include "kernels/metal/params.h"
#include "tests/lib/find_emulator.h"

#include <limits.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { PAGE = 4096, N_PAGES = 4 };

struct rig { // all that a dispatch needs
    struct metal_objc objc;
    void *pool;
    struct mtl_device *device;
    struct mtl_queue *queue;
    struct mtl_library *library;
    struct mtl_pipeline *pipeline; // move_rows
    char *pages;
    struct mtl_buffer *buffer; // over the pages
    struct mtl_event *event;
    struct mtl_commands *commands; // in the pool
    struct mtl_compute *compute;   // NULL until encode
};

static struct mtl_buffer *wrap(struct rig *r, void *bytes, objc_number length) {
    return METAL_SEND(&r->objc, new_buffer, r->device, bytes, length, METAL_STORAGE_SHARED, NULL);
}

static struct mtl_pipeline *pipeline_of(struct rig *r, const char *name) {
    struct ns_error *error = NULL;
    struct mtl_function *function =
        METAL_SEND(&r->objc, new_function, r->library, metal_string(&r->objc, name));
    struct mtl_pipeline *pipeline = METAL_SEND(&r->objc, new_pipeline, r->device, function, &error);
    r->objc.release(function);
    return pipeline;
}

static void open_rig(struct rig *r) {
    char path[PATH_MAX];
    struct err e = {0};
    struct ns_error *error = NULL;
    *r = (struct rig){0};
    if (!find_metal(path, sizeof path) || metal_objc_open(&r->objc, path, &e)) _exit(2);
    r->pool = r->objc.pool_push();
    struct ns_array *all = r->objc.copy_devices();
    r->device = METAL_SEND(&r->objc, array_at, all, 0);
    (void)r->objc.retain(r->device);
    r->objc.release(all);
    r->queue = METAL_SEND(&r->objc, new_queue, r->device, 4);
    struct mtl_options *options = METAL_SEND(&r->objc, new_options, r->objc.options_class);
    r->library = METAL_SEND(&r->objc, new_library, r->device, metal_string(&r->objc, metal_source),
                            options, &error);
    r->objc.release(options);
    r->pipeline = pipeline_of(r, "move_rows");
    r->pages = mem_map_pages(N_PAGES * PAGE);
    r->buffer = wrap(r, r->pages, N_PAGES * PAGE);
    r->event = METAL_SEND(&r->objc, new_event, r->device);
    r->commands = METAL_SEND(&r->objc, commands_of, r->queue);
}

static void close_rig(struct rig *r) {
    r->objc.pool_pop(r->pool);
    r->objc.release(r->pipeline);
    r->objc.release(r->library);
    r->objc.release(r->queue);
    r->objc.release(r->buffer);
    r->objc.release(r->event);
    r->objc.release(r->device);
    metal_objc_close(&r->objc);
    mem_unmap_pages(r->pages, N_PAGES * PAGE);
}

// A dispatch of move_rows with all that it needs, not yet dispatched.
static void encode(struct rig *r) {
    const struct move_params p = {.target = r->pages,
                                  .source = r->pages + PAGE,
                                  .row_bytes = PAGE,
                                  .unit_bytes = 1,
                                  .n_rows = 1};
    r->compute = METAL_SEND(&r->objc, compute_of, r->commands);
    METAL_SEND(&r->objc, use_pipeline, r->compute, r->pipeline);
    METAL_SEND(&r->objc, use_bytes, r->compute, &p, sizeof p, 0);
    METAL_SEND(&r->objc, use_buffer, r->compute, r->buffer, 0, 1);
    METAL_SEND(&r->objc, use_buffer, r->compute, r->buffer, PAGE, 2);
}

static void dispatch(struct rig *r, objc_number threads) {
    METAL_SEND(&r->objc, dispatch, r->compute, ((struct mtl_size){1, 1, 1}),
               ((struct mtl_size){threads, 1, 1}));
}

static void end_and_commit(struct rig *r) {
    METAL_SEND(&r->objc, end_compute, r->compute);
    METAL_SEND(&r->objc, commit, r->commands);
    while (METAL_SEND(&r->objc, commands_status, r->commands) < METAL_STATUS_COMPLETED) usleep(100);
}

static void blit(struct rig *r, objc_number source, objc_number target, objc_number size_bytes) {
    struct mtl_blit *encoder = METAL_SEND(&r->objc, blit_of, r->commands);
    METAL_SEND(&r->objc, copy, encoder, r->buffer, source, r->buffer, target, size_bytes);
    METAL_SEND(&r->objc, end_blit, encoder);
}

// ---- Each rule, broken -------------------------------------------------------------------------

#define BREAKS(name) static void name(struct rig *r)

BREAKS(unknown_selector) {
    METAL_SEND(&r->objc, end_compute, (struct mtl_compute *)(void *)r->queue);
}

BREAKS(freed_object) {
    r->objc.release(r->event);
    (void)METAL_SEND(&r->objc, event_value, r->event);
}

BREAKS(freed_twice) {
    r->objc.release(r->event);
    r->objc.release(r->event);
}

BREAKS(freed_buffer) {
    encode(r);
    struct mtl_buffer *buffer = wrap(r, r->pages, PAGE);
    r->objc.release(buffer);
    METAL_SEND(&r->objc, use_buffer, r->compute, buffer, 0, 1);
}

BREAKS(left_behind) {
    (void)METAL_SEND(&r->objc, new_event, r->device);
    close_rig(r);
}

BREAKS(pool_missing) {
    r->objc.pool_pop(r->pool);
    (void)metal_string(&r->objc, "a string in no pool");
}

BREAKS(pool_order) {
    r->objc.pool_pop(r->pool);
    r->objc.pool_pop(r->pool);
}

BREAKS(page_address) { (void)wrap(r, r->pages + 64, PAGE); }
BREAKS(page_length) { (void)wrap(r, r->pages, PAGE - 64); }
BREAKS(empty_buffer) { (void)wrap(r, r->pages, 0); }
BREAKS(long_buffer) { (void)wrap(r, r->pages, UINT64_C(1) << 40); }
BREAKS(no_library_text) { (void)metal_string(&r->objc, NULL); }
BREAKS(queue_length) { (void)METAL_SEND(&r->objc, new_queue, r->device, 0); }

BREAKS(buffer_offset) {
    encode(r);
    METAL_SEND(&r->objc, use_buffer, r->compute, r->buffer, N_PAGES * PAGE, 1);
}

BREAKS(index_of_buffer) {
    encode(r);
    METAL_SEND(&r->objc, use_buffer, r->compute, r->buffer, 0, 31);
}

// cap_logits takes floats.
BREAKS(offset_alignment) {
    const struct cap_logits_args a = {.x = (float *)r->pages, .n_rows = 1, .n_cols = 1};
    struct mtl_pipeline *pipeline = pipeline_of(r, "cap_logits");
    encode(r);
    METAL_SEND(&r->objc, use_pipeline, r->compute, pipeline);
    METAL_SEND(&r->objc, use_bytes, r->compute, &a, sizeof a, 0);
    METAL_SEND(&r->objc, use_buffer, r->compute, r->buffer, 2, 1);
    dispatch(r, 32);
}

BREAKS(missing_buffer) {
    encode(r);
    METAL_SEND(&r->objc, use_buffer, r->compute, NULL, 0, 2);
    dispatch(r, 32);
}

BREAKS(missing_pipeline) {
    r->compute = METAL_SEND(&r->objc, compute_of, r->commands);
    dispatch(r, 32);
}

BREAKS(bytes_length) {
    encode(r);
    METAL_SEND(&r->objc, use_bytes, r->compute, r->pages, 4097, 0);
}

BREAKS(bytes_short) {
    encode(r);
    METAL_SEND(&r->objc, use_bytes, r->compute, r->pages, 8, 0);
    dispatch(r, 32);
}

BREAKS(threadgroup_length) {
    encode(r);
    METAL_SEND(&r->objc, use_threadgroup, r->compute, 24, 0);
}

// attention has threadgroup memory of its own, and an argument for more.
static void dispatch_attention(struct rig *r, objc_number threadgroup_bytes) {
    struct mtl_pipeline *pipeline = pipeline_of(r, "attention_tiles_half_64");
    encode(r);
    METAL_SEND(&r->objc, use_pipeline, r->compute, pipeline);
    METAL_SEND(&r->objc, use_bytes, r->compute, r->pages, 1024, 0);
    for (objc_number i = 1; i < 12; i++)
        METAL_SEND(&r->objc, use_buffer, r->compute, r->buffer, 0, i);
    if (threadgroup_bytes) METAL_SEND(&r->objc, use_threadgroup, r->compute, threadgroup_bytes, 0);
    dispatch(r, 32);
}

BREAKS(threadgroup_memory) { dispatch_attention(r, 32784); }
BREAKS(threadgroup_missing) { dispatch_attention(r, 0); }

BREAKS(threads) {
    encode(r);
    dispatch(r, 1056);
}

BREAKS(no_threads) {
    encode(r);
    dispatch(r, 0);
}

BREAKS(empty_grid) {
    encode(r);
    METAL_SEND(&r->objc, dispatch, r->compute, ((struct mtl_size){0, 1, 1}),
               ((struct mtl_size){32, 1, 1}));
}

BREAKS(two_encoders) {
    encode(r);
    (void)METAL_SEND(&r->objc, blit_of, r->commands);
}

BREAKS(commit_in_encoder) {
    encode(r);
    METAL_SEND(&r->objc, commit, r->commands);
}

BREAKS(signal_in_encoder) {
    encode(r);
    METAL_SEND(&r->objc, signal, r->commands, r->event, 1);
}

BREAKS(encoder_never_ended) {
    encode(r);
    r->objc.pool_pop(r->pool);
}

BREAKS(ended_twice) {
    encode(r);
    METAL_SEND(&r->objc, end_compute, r->compute);
    METAL_SEND(&r->objc, end_compute, r->compute);
}

BREAKS(dispatch_after_end) {
    encode(r);
    METAL_SEND(&r->objc, end_compute, r->compute);
    dispatch(r, 32);
}

BREAKS(committed_twice) {
    METAL_SEND(&r->objc, commit, r->commands);
    METAL_SEND(&r->objc, commit, r->commands);
}

BREAKS(encoder_after_commit) {
    METAL_SEND(&r->objc, commit, r->commands);
    encode(r);
}

BREAKS(wait_after_commit) {
    METAL_SEND(&r->objc, commit, r->commands);
    METAL_SEND(&r->objc, await, r->commands, r->event, 1);
}

BREAKS(blit_range) { blit(r, 0, 2 * PAGE, 3 * PAGE); }
BREAKS(blit_alignment) { blit(r, 2, 2 * PAGE, 64); }
BREAKS(blit_size) { blit(r, 0, 2 * PAGE, 63); }
BREAKS(blit_overlap) { blit(r, 0, 32, 64); }

BREAKS(language) {
    struct mtl_options *options = METAL_SEND(&r->objc, new_options, r->objc.options_class);
    METAL_SEND(&r->objc, options_language, options, METAL_LANGUAGE_2_3 + 1);
}

static const struct {
    const char *name, *rule;
    void (*breaks)(struct rig *r);
} RULES[] = {
#define RULE(name, rule) \
    { #name, rule, name }
    RULE(unknown_selector, "unknown-selector: -[MTLCommandQueue endEncoding]"),
    RULE(freed_object, "freed-object: -[MTLSharedEvent signaledValue]"),
    RULE(freed_twice, "freed-object: -[MTLSharedEvent release]"),
    RULE(freed_buffer, "freed-object: -[MTLBuffer setBuffer:offset:atIndex:]"),
    RULE(left_behind, "left-behind"),
    RULE(pool_missing, "pool-missing"),
    RULE(pool_order, "pool-order"),
    RULE(page_address, "page-alignment"),
    RULE(page_length, "page-alignment"),
    RULE(empty_buffer, "buffer-length"),
    RULE(long_buffer, "buffer-length"),
    RULE(no_library_text, "nil-argument"),
    RULE(queue_length, "queue-length"),
    RULE(buffer_offset, "buffer-offset"),
    RULE(index_of_buffer, "index"),
    RULE(offset_alignment, "offset-alignment: cap_logits"),
    RULE(missing_buffer, "argument-missing: move_rows"),
    RULE(missing_pipeline, "pipeline-missing"),
    RULE(bytes_length, "bytes-length"),
    RULE(bytes_short, "bytes-short: move_rows"),
    RULE(threadgroup_length, "threadgroup-length"),
    RULE(threadgroup_memory, "threadgroup-memory: attention_tiles_half_64"),
    RULE(threadgroup_missing, "argument-missing: attention_tiles_half_64"),
    RULE(threads, "threads: move_rows: 1056x1x1"),
    RULE(no_threads, "threads: move_rows: 0x1x1"),
    RULE(empty_grid, "grid: move_rows"),
    RULE(two_encoders, "encoder-open"),
    RULE(commit_in_encoder, "encoder-open"),
    RULE(signal_in_encoder, "encoder-open"),
    RULE(encoder_never_ended, "encoder-open"),
    RULE(ended_twice, "encoder-ended"),
    RULE(dispatch_after_end, "encoder-ended"),
    RULE(committed_twice, "committed"),
    RULE(encoder_after_commit, "committed"),
    RULE(wait_after_commit, "committed"),
    RULE(blit_range, "blit-range"),
    RULE(blit_alignment, "blit-alignment"),
    RULE(blit_size, "blit-alignment"),
    RULE(blit_overlap, "blit-overlap"),
    RULE(language, "language"),
};

// Runs it in a process of its own; what that says goes to text. Returns the status of its end.
static int run_apart(void (*run)(struct rig *r), char *text, size_t size_bytes) {
    int ends[2], status = 0;
    size_t length = 0;
    assert_int_equal(pipe(ends), 0);
    fflush(NULL);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct rig r;
        signal(SIGABRT, SIG_DFL);
        dup2(ends[1], STDERR_FILENO);
        open_rig(&r);
        run(&r);
        _exit(0);
    }
    close(ends[1]);
    for (ssize_t n; length + 1 < size_bytes; length += (size_t)n)
        if ((n = read(ends[0], text + length, size_bytes - 1 - length)) <= 0) break;
    text[length] = 0;
    close(ends[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

static void test_each_rule_is_kept(void **state) {
    (void)state;
    char text[4096], wanted[128];
    for (size_t i = 0; i < sizeof RULES / sizeof *RULES; i++) {
        const int status = run_apart(RULES[i].breaks, text, sizeof text);
        snprintf(wanted, sizeof wanted, "fake Metal: rule %s", RULES[i].rule);
        if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGABRT || !strstr(text, wanted))
            fail_msg("%s: status %d, wanted \"%s\" in: %s", RULES[i].name, status, wanted, text);
    }
}

static void keep_all(struct rig *r) {
    memset(r->pages, 1, PAGE);
    memset(r->pages + PAGE, 2, 3 * PAGE);
    encode(r);
    dispatch(r, MOVE_THREADS);
    end_and_commit(r);
    if (r->pages[0] != 2 || r->pages[PAGE - 1] != 2) _exit(3);
    r->commands = METAL_SEND(&r->objc, commands_of, r->queue);
    memset(r->pages + 64, 3, 64);
    blit(r, 64, 2 * PAGE, 64);
    METAL_SEND(&r->objc, signal, r->commands, r->event, 7);
    METAL_SEND(&r->objc, commit, r->commands);
    while (METAL_SEND(&r->objc, event_value, r->event) < 7) usleep(100);
    if (r->pages[2 * PAGE] != 3 || r->pages[2 * PAGE + 64] != 2) _exit(4);
    close_rig(r);
}

static void test_who_keeps_them_runs(void **state) {
    (void)state;
    char text[4096];
    assert_int_equal(run_apart(keep_all, text, sizeof text), 0);
    assert_string_equal(text, "");
}

int main(void) {
    char path[PATH_MAX];
    if (!find_metal(path, sizeof path)) {
        puts("1..1\nok 1 # SKIP there is no look-alike Metal (it needs x86-64 and a C++ compiler)");
        return 0;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_rule_is_kept),
        cmocka_unit_test(test_who_keeps_them_runs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

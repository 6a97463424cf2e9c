/* test_experts_split.c: experts of a layer on both devices at once give the logits of the CPU
 * alone, bit for bit, at every split point; every failure ends cleanly, and the bytes are those of
 * the plan.
 *
 * The second of three layers has its attention on the CPU, so that experts are split behind units
 * of both devices.
 */
#include "runtime/engine/engine.h"

#include "base/mem.h"
#include "tests/lib/slow.h"
#include "tests/lib/tiny_model.h"
#include "tests/sim/sim_device.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { HOST, GPU, N_LAYERS = 3, N_CTX = 192, N_PROMPT = 60, N_SOME = 9, N_ONES = 2, MAX_ROWS = 4 };

static const struct tiny_model MODELS[] = {
    {.biased = true, .freqs = true, .head_dim = 32, .n_experts = 16},
    {.architecture = "qwen3moe", .normed = true, .n_experts = 4},
    {.architecture = "qwen2moe", .n_experts = 8, .shared = true},
    {.architecture = "gpt-oss", .sinks = true, .biased = true, .n_experts = 4, .window = 50},
    {.architecture = "ernie4_5-moe", .n_experts = 8, .selected = true, .shared = true},
    {.architecture = "granitemoe", .scaled = true, .n_experts = 4, .shared = true},
    {.architecture = "deepseek2", .latent_rank = 56, .n_experts = 4, .shared = true},
    {TINY_AFMOE, .n_experts = 4, .shared = true, .window = 30},
    {TINY_LAGUNA, .n_experts = 4, .shared = true, .window = 30},
    {.biased = true, .halves = true, .n_experts = 4},
    {.n_experts = 4, .apart = true},
};
enum { N_MODELS = sizeof MODELS / sizeof *MODELS };

struct fixture {
    char path[64];
    struct engine_options options;
    int32_t tokens[N_CTX];
    int32_t n_units;
    float *expected; // [N_CTX, TINY_VOCAB], alone on the CPU
};

static struct engine *open_ok(const struct engine_options *o) {
    struct engine *en;
    struct err e;
    char text[1024];
    if (engine_open(&en, o, &e)) fail_msg("%s", err_text(&e, text, sizeof text));
    return en;
}

// Writes a model, and computes what is expected of it.
static void use_model(struct fixture *f, const struct tiny_model *model) {
    struct tiny_model tiny = *model;
    struct engine_options o = f->options;
    struct batch_item items[N_CTX];
    struct session *s;
    struct err e;
    tiny.n_layers = N_LAYERS;
    tiny.seed = 5;
    tiny_model_write(&tiny, f->path);
    o.device_spec = "none";
    o.constraints = (struct constraints){.gpu_layers = GPU_LAYERS_AUTO};
    o.workload.n_ubatch = o.workload.max_logits = N_CTX;
    struct engine *en = open_ok(&o);
    f->n_units = engine_shape(en)->n_units;
    assert_int_equal(session_new(&s, en, &e), OK);
    for (int i = 0; i < N_CTX; i++) items[i] = (struct batch_item){s, f->tokens[i], true};
    assert_int_equal(engine_eval(en, items, N_CTX, &e), OK);
    memcpy(f->expected, engine_logits(en, 0), N_CTX * TINY_VOCAB * sizeof(float));
    session_free(s);
    engine_close(en);
}

static int setup(void **state) {
    struct fixture *f = mem_alloc(1, sizeof *f);
    if (!f) return -1;
    *state = f;
    f->expected = mem_alloc(N_CTX * TINY_VOCAB, sizeof *f->expected);
    if (!f->expected) return -1;
    snprintf(f->path, sizeof f->path, "/tmp/tandem_test_experts.%d.gguf", (int)getpid());
    for (int i = 0; i < N_CTX; i++) f->tokens[i] = (i * 37 + i * i * 11) % 256;
    f->options = (struct engine_options){
        .model_path = f->path,
        .device_spec = "sim:vram=16M",
        .drivers = &sim_driver,
        .n_drivers = 1,
        .cpu = {.isa = ISA_AUTO, .n_threads = 1},
        .workload = {.n_ctx = N_CTX,
                     .n_ubatch = 40,
                     .max_logits = MAX_ROWS,
                     .kv_type_k = DTYPE_F16,
                     .kv_type_v = DTYPE_F16},
        .strict = true,
        .constraints = {.gpu_layers = GPU_LAYERS_AUTO, .has_units = true, .has_placement = true},
    };
    return 0;
}

static int teardown(void **state) {
    struct fixture *f = *state;
    unlink(f->path);
    mem_free(f->expected);
    mem_free(f);
    return 0;
}

// Splits the experts of every layer, with all on one device at both ends; those of the last are
// streamed in prefill if streams.
static void place(struct fixture *f, const struct tiny_model *m, int parts, bool streams) {
    struct placement *place = &f->options.constraints.place;
    const int per_layer = m->shared ? 3 : 2;
    *place = (struct placement){.feed = parts % 2 ? FEED_ARENA : FEED_STAGED};
    for (int u = 0; u < f->n_units; u++) {
        const bool experts = u > 0 && u < f->n_units - 1 && u % per_layer == 0;
        const bool all = experts && parts == UNIT_PARTS;
        place->units[u].device = u == 0 || u == 1 + per_layer || all ? HOST : GPU;
        place->units[u].cpu_parts = experts && !all ? (uint8_t)parts : 0;
        place->units[u].streamed = experts && streams && u == f->n_units - 2;
    }
}

static void check_books(const struct engine *en) {
    struct memory_row rows[16];
    const int32_t n = engine_memory(en, rows, 16);
    for (int i = 0; i < n; i++) assert_int_equal(rows[i].planned_bytes, rows[i].allocated_bytes);
}

// Feeds count tokens at once and compares the logits of the last.
static enum status feed(const struct fixture *f, struct engine *en, struct session *s,
                        int32_t count, struct err *e) {
    struct batch_item items[N_PROMPT];
    const int32_t first = session_length(s), last = first + count - 1;
    for (int32_t i = 0; i < count; i++)
        items[i] = (struct batch_item){s, f->tokens[first + i], i == count - 1};
    if (engine_eval(en, items, count, e)) return e->status;
    if (memcmp(f->expected + (size_t)last * TINY_VOCAB, engine_logits(en, 0),
               TINY_VOCAB * sizeof(float)) != 0)
        fail_msg("%d parts: other logits at position %d",
                 engine_plan(en)->place.units[f->n_units - 2].cpu_parts, last);
    return OK;
}

// A prompt of two micro-batches, some tokens, and one after the other.
static enum status run(const struct fixture *f, struct err *e) {
    struct engine *en;
    struct session *s;
    if (engine_open(&en, &f->options, e)) return e->status;
    check_books(en);
    assert_int_equal(session_new(&s, en, e), OK);
    enum status status = feed(f, en, s, N_PROMPT, e);
    if (!status) status = feed(f, en, s, N_SOME, e);
    for (int i = 0; i < N_ONES && !status; i++) status = feed(f, en, s, 1, e);
    session_free(s);
    engine_close(en);
    return status;
}

static void run_ok(const struct fixture *f) {
    struct err e;
    char text[1024];
    if (run(f, &e)) fail_msg("%s", err_text(&e, text, sizeof text));
}

static void test_split_points(void **state) {
    struct fixture *f = *state;
    static const char *const specs[] = {"sim:vram=16M", "sim:vram=16M,reach=1",
                                        "sim:vram=16M,d2h=8M,h2d=60M"};
    for (int m = 0; m < N_MODELS; m++) {
        use_model(f, &MODELS[m]);
        for (int parts = 0; parts <= UNIT_PARTS; parts += m ? (SLOW ? 16 : 8) : SLOW ? 4 : 1) {
            f->options.device_spec = specs[parts % 3];
            f->options.cpu.n_threads = 1 + parts / 3 % 2;
            place(f, &MODELS[m], parts, parts / 2 % 2);
            run_ok(f);
        }
    }
    f->options.cpu.n_threads = 1;
}

// The nth copy, the nth op, and a device that is lost at the nth of both, until nothing fails.
static void test_faults(void **state) {
    struct fixture *f = *state;
    static const char *const kinds[] = {"copy", "op", "lost"};
    use_model(f, &MODELS[0]);
    for (int i = 0; i < 6; i++) {
        enum status status = ERR_DEVICE;
        place(f, &MODELS[0], 11 + i % 2, i % 2);
        for (int n = 1; status; n += SLOW ? 13 : 1) {
            struct err e = {0};
            char spec[64];
            snprintf(spec, sizeof spec, "sim:vram=16M,fail=%s:%d%s", kinds[i / 2], n,
                     n % 2 ? ",reach=1" : "");
            f->options.device_spec = spec;
            status = run(f, &e);
            if (!status) assert_true(n > 60);
            if (!status) break;
            assert_int_equal(status, ERR_DEVICE);
            assert_non_null(strstr(e.what, "sim"));
        }
    }
    f->options.device_spec = "sim:vram=16M";
}

#if defined(__SANITIZE_ADDRESS__)
// See test_pipeline.c.
__attribute__((visibility("default"))) const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void) { return "leak:upload_open\nleak:gguf_open"; }
#endif

// A stalled copy names the experts that wait for it. Which command is the nth depends on how the
// streams get along, so some are tried.
static void test_stall_names(void **state) {
    struct fixture *f = *state;
    bool named = false;
    use_model(f, &MODELS[1]);
    place(f, &MODELS[1], 16, false);
    f->options.wait_limit_s = 0.1;
    for (int n = 30; n < 120 && !named; n++) {
        struct err e = {0};
        char spec[64];
        snprintf(spec, sizeof spec, "sim:vram=16M,stall=%d:1", n);
        f->options.device_spec = spec;
        if (run(f, &e) == OK) continue;
        named = strstr(e.what, "waiting for the pairs of blk.0.experts") != NULL;
    }
    assert_true(named);
    f->options.wait_limit_s = 0;
    f->options.device_spec = "sim:vram=16M";
    sleep(1); // what hung ends before the sanitizers look for what is left
}

// The plan goes through a file, and the run of the file is the same.
static void test_replay(void **state) {
    struct fixture *f = *state;
    char path[64];
    struct err e;
    use_model(f, &MODELS[2]);
    place(f, &MODELS[2], 9, true);
    struct engine *en = open_ok(&f->options);
    const struct plan *plan = engine_plan(en);
    snprintf(path, sizeof path, "/tmp/tandem_test_experts.%d.json", (int)getpid());
    FILE *out = fopen(path, "w");
    assert_non_null(out);
    assert_int_equal(plan_save(plan, engine_shape(en), out, &e), OK);
    fclose(out);
    const struct constraints given = f->options.constraints;
    f->options.plan_path = path;
    f->options.constraints = (struct constraints){.gpu_layers = GPU_LAYERS_AUTO};
    struct engine *again = open_ok(&f->options);
    assert_memory_equal(&engine_plan(again)->place, &plan->place, sizeof plan->place);
    for (int d = 0; d < MAX_DEVICES; d++)
        assert_memory_equal(engine_plan(again)->devices[d].bytes, plan->devices[d].bytes,
                            sizeof plan->devices[d].bytes);
    engine_close(again);
    engine_close(en);
    run_ok(f);
    f->options.plan_path = NULL;
    f->options.constraints = given;
    unlink(path);
}

// Both devices have some of the experts, and the bytes of both are those of all.
static void test_bytes(void **state) {
    struct fixture *f = *state;
    use_model(f, &MODELS[0]);
    uint64_t whole = 0;
    for (int parts = 0; parts < UNIT_PARTS; parts++) {
        place(f, &MODELS[0], parts, false);
        struct engine *en = open_ok(&f->options);
        const struct plan *plan = engine_plan(en);
        const struct unit *unit = &engine_shape(en)->units[2];
        const uint64_t cpu_bytes = plan->unit_cpu_bytes[2];
        if (parts == 0) whole = plan->unit_weight_bytes[2];
        assert_true(parts == 0 ? cpu_bytes == 0 : cpu_bytes > 0);
        assert_true(plan->unit_weight_bytes[2] + cpu_bytes >= whole);
        for (int i = 0; i < unit->n_tensors; i++) {
            if (unit->tensors[i].use != USE_EXPERTS) continue;
            const struct cut cut = footprint_cut(&unit->tensors[i], parts);
            assert_int_equal(cut.n, 16);
            assert_int_equal(cut.first, parts == 31 ? 1 : 16 - (parts + 1) / 2);
        }
        engine_close(en);
    }
}

// Experts beside a dense FFN are not split.
static void test_refused(void **state) {
    struct fixture *f = *state;
    static const struct tiny_model gemma = {.architecture = "gemma4",
                                            .ends_with_norms = true,
                                            .normed = true,
                                            .window = 50,
                                            .n_experts = 4,
                                            .beside = true};
    struct engine *en;
    struct err e;
    use_model(f, &gemma);
    place(f, &gemma, 0, false);
    f->options.constraints.place.units[3].cpu_parts = 8;
    assert_int_equal(engine_open(&en, &f->options, &e), ERR_USAGE);
    assert_non_null(strstr(e.what, "blk.0.experts cannot be split"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_split_points), cmocka_unit_test(test_faults),
        cmocka_unit_test(test_stall_names),  cmocka_unit_test(test_replay),
        cmocka_unit_test(test_bytes),        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}

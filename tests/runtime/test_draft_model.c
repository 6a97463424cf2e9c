/* test_draft_model.c: tests of runtime/generate/draft_model.h, runtime/host/draft_place.h and
 * runtime/text/vocab_match.h: a draft model guesses what it would write itself, whatever was cut
 * from the text before; texts by its drafts are those without; and both models have their places.
 */
#include "runtime/generate/draft_model.h"

#include "base/mem.h"
#include "runtime/generate/generate.h"
#include "runtime/host/draft_place.h"
#include "runtime/host/plan_request.h"
#include "runtime/text/vocab_match.h"
#include "tests/lib/slow.h"
#include "tests/lib/tiny_model.h"
#include "tests/lib/vocab_open.h"
#include "tests/sim/sim_device.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { N_CTX = 200, N_PROMPT = 40, N_TEXT = 100, MOST = 6 };

// The target, a draft model that is it, one that is another, and one with a state.
static const struct tiny_model MODELS[] = {
    {.n_layers = 3, .biased = true, .seed = 5},
    {.n_layers = 1, .seed = 9},
    {.architecture = "qwen35", .n_layers = 3, .delta_period = 2, .normed = true, .seed = 5},
};
enum { N_MODELS = sizeof MODELS / sizeof *MODELS };

struct fixture {
    char paths[N_MODELS][64];
    int32_t prompt[N_PROMPT];
    struct shape target, draft; // with plans of them too big for the stack
    struct machine machine;
    struct plan plan, draft_plan;
};

static int setup(void **state) {
    struct fixture *f = mem_alloc(1, sizeof *f);
    if (!f) return -1;
    *state = f;
    for (int i = 0; i < N_PROMPT; i++) f->prompt[i] = i * 37 % 250;
    for (int i = 0; i < N_MODELS; i++) {
        snprintf(f->paths[i], sizeof f->paths[i], "/tmp/tandem_draft_model.%d.%d.gguf", i,
                 (int)getpid());
        tiny_model_write(&MODELS[i], f->paths[i]);
    }
    return 0;
}

static int teardown(void **state) {
    struct fixture *f = *state;
    for (int i = 0; i < N_MODELS; i++) unlink(f->paths[i]);
    mem_free(f);
    return 0;
}

static struct engine *open_engine(const struct fixture *f, int model, const char *device,
                                  int32_t n_ctx) {
    struct err e;
    char text[1024];
    struct engine *engine;
    const struct engine_options o = {
        .model_path = f->paths[model],
        .device_spec = device,
        .drivers = &sim_driver,
        .n_drivers = 1,
        .cpu = {.isa = ISA_AUTO, .n_threads = 1},
        .workload = {.n_ctx = n_ctx,
                     .n_ubatch = 16,
                     .max_logits = MOST + 1,
                     .kv_type_k = DTYPE_F16,
                     .kv_type_v = DTYPE_F16},
        .constraints = {.gpu_layers = 2},
    };
    if (engine_open(&engine, &o, &e)) fail_msg("%s", err_text(&e, text, sizeof text));
    return engine;
}

// A draft model that guesses for a target of n_target tokens, in an engine of its own.
struct guesser {
    struct engine *engine;
    struct draft_model *m;
};

static struct guesser open_guesser(const struct fixture *f, int model, const char *device,
                                   int32_t n_ctx, int32_t n_target) {
    struct guesser g = {open_engine(f, model, device, n_ctx), mem_alloc(1, sizeof *g.m)};
    struct err e;
    assert_int_equal(draft_model_open(g.m, g.engine, n_target, &e), OK);
    return g;
}

static void close_guesser(struct guesser *g) {
    draft_model_close(g->m);
    mem_free(g->m);
    engine_close(g->engine);
}

static void guess(const struct guesser *g, const struct draft_text *text, int32_t most,
                  int32_t out[MOST], struct draft_guess *guess) {
    struct err e;
    assert_int_equal(draft_model_guess(g->m, text, most, out, guess, &e), OK);
}

// ---- Guesses ------------------------------------------------------------------------------------

// The most likely tokens behind a text, one pass each.
static void write_greedily(struct engine *engine, const int32_t *tokens, int32_t n, int32_t *out) {
    struct session *session;
    struct err e;
    struct batch_item items[N_CTX];
    assert_int_equal(session_new(&session, engine, &e), OK);
    for (int32_t i = 0; i < n; i++) items[i] = (struct batch_item){session, tokens[i], i == n - 1};
    for (int32_t made = 0; made < MOST; made++) {
        assert_int_equal(engine_eval(engine, items, made ? 1 : n, &e), OK);
        const float *logits = engine_logits(engine, 0);
        out[made] = 0;
        for (int32_t i = 1; i < TINY_VOCAB; i++)
            if (logits[i] > logits[out[made]]) out[made] = i;
        items[0] = (struct batch_item){session, out[made], true};
    }
    session_free(session);
}

// Guesses behind the first n tokens as if every token paid, and compares.
static void check_guess(const struct guesser *g, struct engine *alone, const int32_t *tokens,
                        int32_t n) {
    int32_t expected[MOST], out[MOST];
    struct draft_guess found;
    const struct draft_text text = {tokens, n - 1, tokens[n - 1], 1e12, 0};
    guess(g, &text, MOST, out, &found);
    write_greedily(alone, tokens, n, expected);
    for (int32_t i = 0; i < MOST; i++) {
        if (expected[i] == 256) { // it ends the text
            assert_int_equal(found.n, i);
            return;
        }
        assert_true(found.n > i);
        assert_int_equal(out[i], expected[i]);
    }
    assert_int_equal(found.n, MOST);
}

static void guesses_are_what_the_model_would_write(void **state) {
    const struct fixture *f = *state;
    // Lengths of the text, some of which go back.
    static const int32_t lengths[] = {10, 11, 12, 30, 25, 25, 5, 90, 89, 91, 1, 100};
    int32_t tokens[N_TEXT];
    for (int i = 0; i < N_TEXT; i++) tokens[i] = i * 53 % 250;
    for (int m = 0; m < N_MODELS; m++) {
        struct guesser g = open_guesser(f, m, "none", N_CTX, TINY_VOCAB);
        struct engine *alone = open_engine(f, m, "none", N_CTX);
        for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
            check_guess(&g, alone, tokens, lengths[i]);
            tokens[lengths[i] / 2] = (tokens[lengths[i] / 2] + 1) % 250; // the text was changed
            check_guess(&g, alone, tokens, lengths[i]);
        }
        engine_close(alone);
        close_guesser(&g);
    }
}

static void a_guess_ends_where_it_does_not_pay(void **state) {
    const struct fixture *f = *state;
    struct guesser g = open_guesser(f, 0, "none", N_CTX, TINY_VOCAB);
    struct draft_model *m = g.m;
    int32_t out[MOST];
    struct draft_guess found;
    struct draft_text text = {f->prompt, N_PROMPT - 1, f->prompt[N_PROMPT - 1], 1e12, 0};
    guess(&g, &text, 0, out, &found);
    assert_true(found.n == 0 && found.planned_us > 0);
    guess(&g, &text, MOST, out, &found);
    assert_int_equal(found.n, MOST);
    text.more_ns = 2e12; // each guess adds more than a right one can save
    guess(&g, &text, MOST, out, &found);
    assert_int_equal(found.n, 0);
    text.more_ns = 0;
    m->pass_ns = 2e12; // one is there anyway, and the next one costs too much
    guess(&g, &text, MOST, out, &found);
    assert_int_equal(found.n, 1);
    m->pass_ns = 0;
    m->sure = 1.1F;
    guess(&g, &text, MOST, out, &found);
    assert_int_equal(found.n, 0);
    m->sure = 0;
    m->n_least = MOST;
    guess(&g, &text, MOST - 1, out, &found);
    assert_int_equal(found.n, 0);
    close_guesser(&g);
}

static void a_draft_model_as_slow_as_the_target_is_given_up(void **state) {
    const struct fixture *f = *state;
    struct guesser g = open_guesser(f, 0, "none", N_CTX, TINY_VOCAB);
    struct draft_model *m = g.m;
    int32_t out[MOST];
    struct draft_guess found;
    struct draft_text text = {f->prompt, N_PROMPT - 1, f->prompt[N_PROMPT - 1], 1e12, 0};
    m->pass_ns = 1e15; // too few passes were measured to judge
    guess(&g, &text, MOST, out, &found);
    assert_true(found.n == 1 && m->n_passes == 0);
    m->pass_ns = 1;
    guess(&g, &text, MOST, out, &found);
    assert_true(found.n == MOST && m->n_passes == DRAFT_MODEL_PASSES && !m->given_up);
    assert_true(m->pass_ns < 2 && m->least_ns > 2); // long ones count as two
    m->pass_ns = m->n_passes = 1;
    guess(&g, &text, 1, out, &found); // the last guess is cut off, and the last token computed
    assert_true(m->n_passes == 2 && m->pass_ns == 1);
    m->n_passes = DRAFT_MODEL_PASSES;
    m->pass_ns = 5e12; // a stop of the program
    m->least_ns = 0.79e12;
    guess(&g, &text, 0, out, &found);
    assert_false(m->given_up);
    m->least_ns = 0.8e12;
    guess(&g, &text, MOST, out, &found);
    assert_true(found.n == 0 && m->given_up);
    m->least_ns = 1; // it stays so, and reads no more
    text.n = 20;
    guess(&g, &text, MOST, out, &found);
    assert_true(found.n == 0 && session_length(m->session) > 21);
    close_guesser(&g);
}

static void texts_that_the_model_cannot_read_get_no_guess(void **state) {
    const struct fixture *f = *state;
    struct guesser g = open_guesser(f, 0, "none", 64, 200);
    struct draft_model *m = g.m;
    int32_t tokens[100] = {0}, out[MOST];
    struct draft_guess found;
    struct draft_text text = {tokens, 62, 1, 1e12, 0};
    assert_int_equal(m->n_tokens, 200); // of the smaller target
    guess(&g, &text, MOST, out, &found);
    assert_int_equal(found.n, 2); // behind the first one the context is full
    text.n = 64;
    guess(&g, &text, MOST, out, &found);
    assert_int_equal(found.n, 0);
    text.n = 30;
    text.last = 200;
    guess(&g, &text, MOST, out, &found);
    assert_int_equal(found.n, 0);
    text.last = 199;
    guess(&g, &text, MOST, out, &found);
    assert_int_equal(found.n, MOST);
    for (int i = 0; i < MOST; i++) assert_true(out[i] < 200);
    close_guesser(&g);
}

// ---- Texts --------------------------------------------------------------------------------------

struct written {
    int32_t tokens[N_CTX + 1], n;
    int64_t drafted, accepted;
};

// Writes in two turns, of which the second one cuts the first.
static void write_text(const struct fixture *f, struct engine *target, struct draft_model *m,
                       struct written *out) {
    const struct generate_options o = {
        .sampler = {.temp = 0.8F, .top_p = 1, .repeat_penalty = 1, .seed = 4, .top_k = 4},
        .ignore_end = true,
        .draft = {.size_m = MOST,
                  .always = true,
                  .guess = m ? draft_model_guess : NULL,
                  .context = m},
    };
    struct generator g;
    struct err e;
    char text[1024];
    enum stop_reason reason;
    const struct text_sink nobody = {0};
    if (generate_open(&g, target, &o, &e)) fail_msg("%s", err_text(&e, text, sizeof text));
    for (int turn = 0; turn < 2; turn++) {
        if (turn) generate_keep(&g, N_PROMPT + 10);
        assert_int_equal(generate_read(&g, f->prompt, N_PROMPT - 15 * turn, NULL, &e), OK);
        if (generate_write(&g, 50, &nobody, &reason, &e))
            fail_msg("%s", err_text(&e, text, sizeof text));
    }
    out->n = session_length(g.session);
    memcpy(out->tokens, session_tokens(g.session), (size_t)out->n * sizeof *out->tokens);
    out->drafted = g.timings.drafted;
    out->accepted = g.timings.accepted;
    if (m) assert_true(g.timings.guess_ns > 0);
    generate_close(&g);
}

static void texts_stay_the_same(void **state) {
    const struct fixture *f = *state;
    static const char *const devices[] = {"none", "sim:vram=64M"};
    for (size_t d = 0; d < 2; d++)
        for (int model = 0; model < N_MODELS; model++) {
            struct engine *target = open_engine(f, 0, devices[d], N_CTX);
            struct guesser g = open_guesser(f, model, devices[1 - d], N_CTX, TINY_VOCAB);
            struct written plain, drafted;
            write_text(f, target, NULL, &plain);
            write_text(f, target, g.m, &drafted);
            assert_int_equal(plain.drafted, 0);
            assert_int_equal(plain.n, drafted.n);
            assert_memory_equal(plain.tokens, drafted.tokens, (size_t)plain.n * 4);
            assert_true(drafted.drafted > 10);
            if (model == 0) assert_true(drafted.accepted > 5); // it is the target
            close_guesser(&g);
            engine_close(target);
        }
}

// ---- Vocabularies -------------------------------------------------------------------------------

static enum status match(const struct vocab_build *a, const struct vocab_build *b, struct err *e) {
    struct gguf_build x, y;
    struct gguf target, draft;
    struct err opening;
    vocab_write(a, &x);
    vocab_write(b, &y);
    assert_int_equal(vocab_open_bytes(x.file.bytes, x.file.size, &target, &opening), OK);
    assert_int_equal(vocab_open_bytes(y.file.bytes, y.file.size, &draft, &opening), OK);
    *e = (struct err){0};
    const enum status status = vocab_match(&target, &draft, e);
    gguf_close(&target);
    gguf_close(&draft);
    gguf_build_close(&x);
    gguf_build_close(&y);
    return status;
}

static void vocabularies_match_by_text(void **state) {
    struct vocab_build *a = mem_alloc(1, sizeof *a), *b = mem_alloc(1, sizeof *b);
    struct err e;
    char text[1024];
    (void)state;
    vocab_init_bpe(a);
    vocab_init_bpe(b);
    assert_int_equal(match(a, b, &e), OK);
    b->tokens[4] = "other"; // a control token, often
    assert_int_equal(match(a, b, &e), OK);
    for (int i = 0; i < 128; i++) vocab_add(b, "padding", TOKEN_UNUSED, 0);
    assert_int_equal(match(a, b, &e), OK);
    assert_int_equal(match(b, a, &e), OK);
    vocab_add(b, "padding", TOKEN_UNUSED, 0);
    assert_int_equal(match(a, b, &e), ERR_USAGE);
    assert_non_null(strstr(err_text(&e, text, sizeof text), "expected 256 tokens"));
    assert_non_null(strstr(text, "got 385"));
    assert_int_equal(match(b, a, &e), ERR_USAGE);
    b->n_tokens = 256;
    b->n_types = 256;
    b->tokens[200] = "other";
    assert_int_equal(match(a, b, &e), ERR_USAGE);
    assert_non_null(strstr(err_text(&e, text, sizeof text), "token 200 of the draft model"));
    vocab_init_spm(b);
    assert_int_equal(match(a, b, &e), ERR_USAGE);
    assert_non_null(strstr(err_text(&e, text, sizeof text), "expected 'gpt2'"));
    b->model = NULL;
    b->n_tokens = 0;
    assert_int_equal(match(a, b, &e), ERR_FORMAT);
    mem_free(a);
    mem_free(b);
}

// ---- Places -------------------------------------------------------------------------------------

static int32_t named(const char *name, int32_t n, const char *(*name_of)(int32_t)) {
    int32_t i = 0;
    while (i < n && strcmp(name_of(i), name) != 0) i++;
    assert_true(i < n);
    return i;
}

static void read_pair(struct fixture *f, const char *machine, const char *target,
                      const char *draft) {
    struct err e;
    const int32_t m = named(machine, machine_builtin_count(), machine_builtin_name),
                  t = named(target, shape_builtin_count(), shape_builtin_name),
                  d = named(draft, shape_builtin_count(), shape_builtin_name);
    assert_int_equal(machine_builtin(&f->machine, m, &e), OK);
    assert_int_equal(shape_builtin(&f->target, t, &e), OK);
    assert_int_equal(shape_builtin(&f->draft, d, &e), OK);
}

static const struct engine_options OPTIONS = {
    .workload = {.n_ctx = 4096, .kv_type_k = DTYPE_F16, .kv_type_v = DTYPE_F16},
    .constraints = {.gpu_layers = GPU_LAYERS_AUTO},
};

// Plans both as they were placed. The bytes of each device are within its budget, and within limits
// that were given.
static void check_fit(struct fixture *f, const struct engine_options *draft,
                      struct engine_options *target) {
    struct err e;
    char text[1024];
    if (plan_request_solve(&f->draft_plan, &f->draft, &f->machine, draft, &e))
        fail_msg("%s", err_text(&e, text, sizeof text));
    draft_leave(target, &f->machine, &f->draft_plan);
    if (plan_request_solve(&f->plan, &f->target, &f->machine, target, &e))
        fail_msg("%s", err_text(&e, text, sizeof text));
    const uint64_t limits[] = {draft->constraints.ram_bytes, draft->constraints.vram_bytes};
    for (int32_t d = 0; d < f->machine.n_devices; d++) {
        const uint64_t both = plan_needs(&f->plan, d) + plan_needs(&f->draft_plan, d);
        assert_true(both <= f->machine.devices[d].budget_bytes);
        assert_true(!limits[d] || both <= limits[d]);
    }
}

static void both_models_fit(void **state) {
    struct fixture *f = *state;
    static const uint64_t vram[] = {0, UINT64_C(3) << 30, UINT64_C(1) << 30};
    const struct draft_shapes shapes = {&f->target, &f->draft};
    struct err e;
    char text[1024];
    read_pair(f, "rtx-2060-6g", "llama-3.1-8b", "llama-3.2-1b");
    for (size_t i = 0; i < sizeof vram / sizeof *vram; i++) {
        struct engine_options draft = OPTIONS, target = OPTIONS;
        target.constraints.vram_bytes = draft.constraints.vram_bytes = vram[i];
        if (draft_place(&draft, &target, &shapes, &f->machine, &e))
            fail_msg("%s", err_text(&e, text, sizeof text));
        assert_int_equal(draft.workload.n_ctx, 4096);
        check_fit(f, &draft, &target);
    }
}

// Plans both with the draft model where it is asked for, and returns a token's time.
static double time_of(struct fixture *f, int32_t gpu_layers, uint64_t vram_bytes) {
    struct engine_options draft = OPTIONS, target = OPTIONS;
    struct prediction p, q;
    struct err e;
    const struct draft_shapes shapes = {&f->target, &f->draft};
    draft.constraints.gpu_layers = gpu_layers;
    draft.constraints.vram_bytes = target.constraints.vram_bytes = vram_bytes;
    assert_int_equal(draft_place(&draft, &target, &shapes, &f->machine, &e), OK);
    assert_int_equal(draft.constraints.gpu_layers, gpu_layers);
    check_fit(f, &draft, &target);
    assert_int_equal(plan_layers_on_gpu(&f->draft_plan, &f->draft),
                     gpu_layers ? f->draft.n_layers + 1 : 0);
    plan_predict_after(&f->plan, &f->target, f->plan.workload.n_past, &p);
    plan_predict_after(&f->draft_plan, &f->draft, f->draft_plan.workload.n_past, &q);
    return p.decode_us + 3 * q.decode_us;
}

// The faster of two places is taken, unless one is asked for.
static void the_draft_model_goes_where_it_is_faster(void **state) {
    struct fixture *f = *state;
    static const struct {
        const char *draft;
        uint64_t vram_bytes;
    } cases[] = {{"llama-3.2-1b", 0}, {"llama-3.2-1b", 1500000000}, {"llama-3.2-3b", 2700000000}};
    const struct draft_shapes shapes = {&f->target, &f->draft};
    struct err e;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct engine_options draft = OPTIONS, target = OPTIONS;
        read_pair(f, "rtx-2060-6g", "llama-3.1-8b", cases[i].draft);
        const double cpu_us = time_of(f, 0, cases[i].vram_bytes),
                     gpu_us = time_of(f, GPU_LAYERS_ALL, cases[i].vram_bytes);
        draft.constraints.vram_bytes = target.constraints.vram_bytes = cases[i].vram_bytes;
        assert_int_equal(draft_place(&draft, &target, &shapes, &f->machine, &e), OK);
        assert_int_equal(draft.constraints.gpu_layers, gpu_us <= cpu_us ? GPU_LAYERS_AUTO : 0);
    }
}

static void a_target_without_room_is_refused(void **state) {
    struct fixture *f = *state;
    const struct draft_shapes shapes = {&f->target, &f->draft};
    struct engine_options draft = OPTIONS, target = OPTIONS;
    struct err e = {0};
    char text[1024];
    read_pair(f, "rtx-3060-12g", "qwen3-14b", "qwen3-14b");
    target.constraints.ram_bytes = draft.constraints.ram_bytes = UINT64_C(10) << 30;
    target.constraints.vram_bytes = draft.constraints.vram_bytes = UINT64_C(1) << 30;
    assert_int_equal(draft_place(&draft, &target, &shapes, &f->machine, &e), ERR_MEMORY);
    assert_non_null(strstr(err_text(&e, text, sizeof text), "leave out the draft model (-md)"));
}

// A shorter training ends the draft model's context, and a model that was trained for more has the
// target's.
static void contexts_are_as_long_as_the_training(void **state) {
    struct fixture *f = *state;
    const struct draft_shapes shapes = {&f->target, &f->draft};
    struct err e;
    read_pair(f, "rtx-2060-6g", "llama-3.1-8b", "llama-3.2-1b");
    const int32_t trained = f->draft.n_ctx_train;
    f->draft.n_ctx_train = 2000;
    struct engine_options draft = OPTIONS, target = OPTIONS;
    assert_int_equal(draft_place(&draft, &target, &shapes, &f->machine, &e), OK);
    assert_int_equal(draft.workload.n_ctx, 2000);
    f->draft.n_ctx_train = trained;
    f->target.n_ctx_train = 9000;
    target.workload.n_ctx = N_CTX_OF_MODEL;
    assert_int_equal(draft_place(&draft, &target, &shapes, &f->machine, &e), OK);
    assert_int_equal(draft.workload.n_ctx, 9000);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(guesses_are_what_the_model_would_write),
        cmocka_unit_test(a_guess_ends_where_it_does_not_pay),
        cmocka_unit_test(a_draft_model_as_slow_as_the_target_is_given_up),
        cmocka_unit_test(texts_that_the_model_cannot_read_get_no_guess),
        cmocka_unit_test(texts_stay_the_same),
        cmocka_unit_test(vocabularies_match_by_text),
        cmocka_unit_test(both_models_fit),
        cmocka_unit_test(the_draft_model_goes_where_it_is_faster),
        cmocka_unit_test(a_target_without_room_is_refused),
        cmocka_unit_test(contexts_are_as_long_as_the_training),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}

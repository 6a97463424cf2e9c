/* test_draft.c: tests of runtime/generate/draft.h, and of texts that are written by drafts:
 * whatever is guessed, and however much of it is right, the text, the session and the random
 * numbers are those of a generator that guesses nothing.
 */
#include "runtime/generate/generate.h"

#include "base/mem.h"
#include "tests/lib/slow.h"
#include "tests/lib/tiny_model.h"
#include "tests/sim/sim_device.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { N_CTX = 160, N_PROMPT = 50, N_FIRST = 30, N_MORE = 5, TEXT_BYTES = 4096, END_TOKEN = 256 };
enum { MOST = 8, WINDOW = 30 };

// ---- Where the text stood before ----------------------------------------------------------------

static void drafts_go_on_as_the_text_did(void **state) {
    (void)state;
    static const struct {
        int32_t tokens[10], n, last, size_n, most;
        int32_t expected[8], n_expected;
    } cases[] = {
        {{1, 2, 3, 4, 1}, 5, 2, 2, 2, {3, 4}, 2},
        {{1, 2, 3, 4, 1}, 5, 2, 1, 2, {3, 4}, 2},
        {{1, 2, 3, 4, 1}, 5, 2, 3, 2, {0}, 0}, // nothing stands before the 1
        {{1, 2, 3, 4, 1}, 5, 9, 1, 2, {0}, 0},
        {{1, 2, 3, 1, 2, 4, 1}, 7, 2, 2, 3, {4, 1, 2}, 3}, // the last place counts
        {{5, 2, 3, 1, 2, 4, 5}, 7, 2, 2, 1, {3}, 1},       // unless less is the same there
        {{1, 2, 1}, 3, 2, 2, 7, {1, 2, 1, 2, 1, 2, 1}, 7}, // the draft repeats itself
        {{7, 7}, 2, 7, 2, 5, {7, 7, 7, 7, 7}, 5},
        {{7}, 1, 7, 1, 3, {7, 7, 7}, 3},
        {{7}, 1, 7, 2, 3, {0}, 0}, // no room for an earlier place
        {{0}, 0, 7, 1, 3, {0}, 0},
        {{0}, 0, 7, 12, 3, {0}, 0},
        {{1, 2, 1}, 3, 2, 2, 0, {0}, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int32_t out[8] = {0};
        const struct draft_text text = {
            .tokens = cases[i].tokens, .n = cases[i].n, .last = cases[i].last};
        const int32_t n = draft_find(&text, cases[i].size_n, cases[i].most, out);
        if (n != cases[i].n_expected || memcmp(out, cases[i].expected, sizeof out) != 0)
            fail_msg("case %zu: %d tokens, the first is %d", i, n, out[0]);
    }
}

// ---- Whether drafts pay -------------------------------------------------------------------------

static void drafts_grow_as_long_as_they_are_right(void **state) {
    (void)state;
    struct draft_pace p = {0};
    assert_int_equal(draft_pace_length(&p, 48), 0); // no time is known
    draft_pace_note(&p, 0, 0, 100, 0);
    assert_int_equal(draft_pace_length(&p, 48), 4);
    assert_int_equal(draft_pace_length(&p, 3), 3);
    draft_pace_note(&p, 3, 3, 150, 0); // shorter than it could be
    assert_int_equal(draft_pace_length(&p, 48), 4);
    for (int32_t length = 4; length <= 32; length *= 2) {
        draft_pace_note(&p, length, length, 200, 0);
        assert_int_equal(draft_pace_length(&p, 1000), 2 * length);
    }
    draft_pace_note(&p, 48, 6, 200, 0);
    assert_int_equal(draft_pace_length(&p, 48), 7);
    draft_pace_note(&p, 7, 0, 200, 0);
    assert_int_equal(draft_pace_length(&p, 48), 2);
}

// Passes until the next draft.
static int32_t pause_of(struct draft_pace *p) {
    int32_t n = 0;
    for (; draft_pace_length(p, 48) == 0; n++) draft_pace_note(p, 0, 0, 100, 0);
    return n;
}

static void drafts_that_lose_time_pause(void **state) {
    (void)state;
    static const int32_t pauses[] = {16, 32, 64, 128, 256, 512, 1024, 1024};
    struct draft_pace p = {0};
    draft_pace_note(&p, 0, 0, 100, 0);
    for (size_t i = 0; i < sizeof pauses / sizeof *pauses; i++) {
        for (int k = 0; k < 4; k++) {
            assert_int_not_equal(draft_pace_length(&p, 48), 0);
            draft_pace_note(&p, 2, 0, 201, 0); // loses 101
        }
        assert_int_equal(pause_of(&p), pauses[i]);
    }
    for (int k = 0; k < 4; k++) draft_pace_note(&p, 2, 2, 200, 0); // saves 100
    for (int k = 0; k < 8; k++) {
        assert_int_not_equal(draft_pace_length(&p, 48), 0);
        draft_pace_note(&p, 2, 0, 201, 0);
    }
    assert_int_equal(pause_of(&p), 16);
    // Drafts of a mixture of experts that are right may lose too.
    for (int k = 0; k < 5; k++) draft_pace_note(&p, 2, 2, 400, 0);
    assert_int_equal(pause_of(&p), 32);
}

// Computing again what a recurrent state has lost comes with the next pass.
static void what_a_cut_costs_later_counts(void **state) {
    (void)state;
    struct draft_pace p = {0};
    draft_pace_note(&p, 0, 0, 100, 0);
    for (int k = 0; k < 3; k++) {
        draft_pace_note(&p, 2, 1, 200, 0);
        assert_int_not_equal(draft_pace_length(&p, 48), 0);
        draft_pace_note(&p, 0, 0, 250, 0);
    }
    assert_int_equal(pause_of(&p), 16);
    assert_true(p.one_ns == 100);
}

// Guessing takes time too, also where nothing comes of it.
static void the_time_of_guesses_counts(void **state) {
    (void)state;
    struct draft_pace p = {0};
    draft_pace_note(&p, 0, 0, 100, 0);
    for (int k = 0; k < 4; k++) draft_pace_note(&p, 0, 0, 100, 100);
    assert_int_not_equal(draft_pace_length(&p, 48), 0);
    draft_pace_note(&p, 0, 0, 100, 1);
    assert_int_equal(pause_of(&p), 16);
    assert_true(p.one_ns == 100);
    for (int k = 0; k < 2; k++) draft_pace_note(&p, 2, 2, 150, 300); // three tokens, and loses 150
    assert_int_not_equal(draft_pace_length(&p, 48), 0);
    for (int k = 0; k < 2; k++) draft_pace_note(&p, 2, 2, 150, 300);
    assert_int_equal(pause_of(&p), 32);
    assert_true(p.more_ns == 25);
}

// The time of a pass without a draft may change while all have one.
static void the_time_of_one_token_is_measured_again(void **state) {
    (void)state;
    struct draft_pace p = {0};
    draft_pace_note(&p, 0, 0, 100, 0);
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 16; i++) {
            assert_int_not_equal(draft_pace_length(&p, 48), 0);
            draft_pace_note(&p, 2, 2, 150, 0);
        }
        assert_int_equal(draft_pace_length(&p, 48), 0);
        draft_pace_note(&p, 0, 0, 60, 0);
    }
    assert_true(p.one_ns < 90);
}

// A program that was stopped for a while makes one pass long, and must not end drafts for good.
static void one_long_pass_says_little(void **state) {
    (void)state;
    struct draft_pace p = {0};
    draft_pace_note(&p, 0, 0, 100, 0);
    draft_pace_note(&p, 0, 0, 1e9, 0);
    assert_true(p.one_ns == 112.5);
    p.one_ns = 100;
    draft_pace_note(&p, 2, 2, 1e9, 0);
    assert_true(p.more_ns == 100);
    draft_pace_note(&p, 2, 2, 1e9, 0);
    assert_true(p.more_ns == 112.5);
    draft_pace_note(&p, 0, 0, 100, 1); // nothing was worth a draft
    assert_true(p.more_ns == 112.5 * 7 / 8);
}

// ---- Texts --------------------------------------------------------------------------------------

enum script {
    ALL_RIGHT,
    NONE_RIGHT,
    FIRST_RIGHT,
    IN_TURN,   // every second token is right
    SOME_MORE, // 0, 1, 2, ... tokens of the drafts are right
    ENDS,      // the second token ends the text
    OUTSIDE,   // the second token is none of the vocabulary
    SEARCHED,  // no script: draft_find
    PACED,     // the same, as long as it pays
    SCRIPTS
};

// A text written in two turns, and all that may depend on drafts.
struct written {
    int32_t tokens[N_CTX + 1], n_tokens; // of the session and what is pending
    char text[TEXT_BYTES];
    size_t length;
    enum stop_reason reasons[2];
    uint64_t random[4];
    float mu;
    int64_t new_tokens, decode_steps, drafted, accepted;
    int64_t held, room; // sums of what the generator says whenever text comes
};

static const struct tiny_model MODELS[] = {
    {.n_layers = 3, .biased = true, .freqs = true, .seed = 5},
    {.architecture = "gemma3",
     .n_layers = 3,
     .ends_with_norms = true,
     .normed = true,
     .window = WINDOW,
     .seed = 6},
    {.architecture = "qwen35", .n_layers = 3, .delta_period = 2, .normed = true, .seed = 5},
    {.n_layers = 2, .n_experts = 8, .seed = 7},
};
enum { N_MODELS = sizeof MODELS / sizeof *MODELS };

struct fixture {
    char paths[N_MODELS][64];
    int32_t prompt[N_PROMPT];
    struct engine *en;
    bool refuses; // progress
    enum script script;
    int n_drafts, n_read;
    enum status guess_status; // of every guess
    const struct written *known;
    struct written plain, drafted;
    struct written *out;       // takes the text
    const struct generator *g; // writes it
};

// Spoils the right tokens as the script says.
static enum status scripted(void *context, const struct draft_text *text, int32_t most,
                            int32_t *out, struct draft_guess *guess, struct err *e) {
    struct fixture *f = context;
    *guess = (struct draft_guess){most, 0};
    if (f->guess_status) return err_set(e, f->guess_status, "no guess");
    if (most == 0) return f->n_read++, OK;
    const int32_t n_right = f->n_drafts++ % (most + 1);
    for (int32_t i = 0; i < most; i++) {
        const int32_t at = text->n + 1 + i;
        const int32_t right = at < f->known->n_tokens ? f->known->tokens[at] : 0;
        const int32_t wrong = (right + 1) % END_TOKEN;
        switch (f->script) {
        case NONE_RIGHT: out[i] = wrong; break;
        case FIRST_RIGHT: out[i] = i == 0 ? right : wrong; break;
        case IN_TURN: out[i] = i % 2 == 0 ? right : wrong; break;
        case SOME_MORE: out[i] = i < n_right ? right : wrong; break;
        case ENDS: out[i] = i == 1 ? END_TOKEN : right; break;
        case OUTSIDE: out[i] = i == 1 ? (n_right % 2 ? -1 : TINY_VOCAB) : right; break;
        default: out[i] = right;
        }
    }
    return OK;
}

static bool listen(void *context, const char *what, uint64_t done, uint64_t total) {
    struct fixture *f = context;
    (void)done, (void)total;
    return !f->refuses || strcmp(what, "prefill") != 0;
}

static int setup(void **state) {
    struct fixture *f = mem_alloc(1, sizeof *f);
    if (!f) return -1;
    *state = f;
    // It repeats itself, as drafts that are searched need.
    for (int i = 0; i < N_PROMPT; i++) f->prompt[i] = i % 10 * 11 + 30;
    for (int i = 0; i < N_MODELS; i++) {
        snprintf(f->paths[i], sizeof f->paths[i], "/tmp/tandem_test_draft.%d.%d.gguf", i,
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

static void open_engine(struct fixture *f, int model, const char *device, int32_t gpu_layers,
                        enum strategy strategy) {
    struct err e;
    char text[1024];
    const struct engine_options o = {
        .model_path = f->paths[model],
        .device_spec = device,
        .drivers = &sim_driver,
        .n_drivers = 1,
        .cpu = {.isa = ISA_AUTO, .n_threads = 1},
        .workload = {.n_ctx = N_CTX,
                     .n_ubatch = 16,
                     .max_logits = MOST + 1,
                     .kv_type_k = DTYPE_F16,
                     .kv_type_v = DTYPE_F16},
        .constraints = {.gpu_layers = gpu_layers, .strategy = strategy},
        .progress = {listen, f},
    };
    if (engine_open(&f->en, &o, &e)) fail_msg("%s", err_text(&e, text, sizeof text));
}

static bool take(void *context, const char *text, size_t length) {
    const struct fixture *f = context;
    struct written *w = f->out;
    assert_true(w->length + length < TEXT_BYTES);
    memcpy(w->text + w->length, text, length);
    w->length += length;
    w->held += generate_held(f->g);
    w->room += generate_room(f->g);
    return true;
}

static void keep(struct written *w, const struct generator *g) {
    w->n_tokens = session_length(g->session);
    memcpy(w->tokens, session_tokens(g->session), (size_t)w->n_tokens * sizeof *w->tokens);
    if (g->pending >= 0) w->tokens[w->n_tokens++] = g->pending;
    assert_int_equal(generate_held(g), w->n_tokens);
    memcpy(w->random, g->sampler.state, sizeof w->random);
    w->mu = g->sampler.mu;
    w->new_tokens = g->timings.new_tokens;
    w->decode_steps = g->timings.decode_steps;
    w->drafted = g->timings.drafted;
    w->accepted = g->timings.accepted;
}

// Writes a text of two turns, the second until it ends.
static void write_text(struct fixture *f, const struct generate_options *o, struct written *out) {
    const struct text_sink sink = {take, f};
    struct generator g;
    struct err e;
    char text[1024];
    *out = (struct written){0};
    f->out = out;
    f->g = &g;
    f->n_drafts = 0;
    if (generate_open(&g, f->en, o, &e)) fail_msg("%s", err_text(&e, text, sizeof text));
    for (int turn = 0; turn < 2; turn++) {
        const int32_t n = turn ? N_MORE : N_PROMPT;
        assert_int_equal(generate_read(&g, f->prompt, n, NULL, &e), OK);
        if (generate_write(&g, turn ? -1 : N_FIRST, &sink, &out->reasons[turn], &e))
            fail_msg("%s", err_text(&e, text, sizeof text));
    }
    keep(out, &g);
    generate_close(&g);
}

static void assert_same(const struct written *a, const struct written *b) {
    assert_int_equal(a->n_tokens, b->n_tokens);
    assert_memory_equal(a->tokens, b->tokens, (size_t)a->n_tokens * sizeof *a->tokens);
    assert_int_equal(a->length, b->length);
    assert_memory_equal(a->text, b->text, a->length);
    assert_memory_equal(a->reasons, b->reasons, sizeof a->reasons);
    assert_memory_equal(a->random, b->random, sizeof a->random);
    assert_true(a->mu == b->mu);
    assert_int_equal(a->new_tokens, b->new_tokens);
    assert_int_equal(a->decode_steps, b->decode_steps);
    assert_int_equal(a->held, b->held);
    assert_int_equal(a->room, b->room);
}

// Writes the text without drafts, and by every script with drafts of least to most tokens, where it
// is slow of these two lengths alone.
static void compare(struct fixture *f, const struct generate_options *options, int32_t least,
                    int32_t most) {
    struct generate_options o = *options;
    o.draft = (struct draft_options){0};
    write_text(f, &o, &f->plain);
    assert_int_equal(f->plain.drafted, 0);
    f->known = &f->plain;
    for (int32_t k = least; k <= most; k += SLOW && k < most ? most - k : 1)
        for (f->script = 0; f->script < SCRIPTS; f->script++) {
            const bool searched = f->script >= SEARCHED;
            o.draft = (struct draft_options){.size_n = searched ? 2 : 0,
                                             .size_m = k,
                                             .always = f->script != PACED,
                                             .guess = searched ? NULL : scripted,
                                             .context = f};
            write_text(f, &o, &f->drafted);
            assert_same(&f->plain, &f->drafted);
            // A text that ends by itself leaves right tokens behind its end.
            if (f->script == ALL_RIGHT && f->plain.reasons[0] == STOP_LIMIT &&
                f->plain.reasons[1] == STOP_CONTEXT)
                assert_int_equal(f->drafted.accepted, f->drafted.drafted);
            if (f->script == NONE_RIGHT) assert_int_equal(f->drafted.accepted, 0);
            if (f->script < ENDS && f->plain.decode_steps > 4) assert_true(f->drafted.drafted > 0);
        }
}

static const struct generate_options GREEDY = {.sampler = {.repeat_penalty = 1},
                                               .ignore_end = true};

static void the_likeliest_tokens_are_the_same(void **state) {
    struct fixture *f = *state;
    for (int m = 0; m < N_MODELS; m++) {
        open_engine(f, m, "none", 0, STRATEGY_AUTO);
        compare(f, &GREEDY, 1, MOST);
        assert_int_equal(f->plain.n_tokens, N_CTX + 1);
        engine_close(f->en);
    }
}

static void drawn_tokens_are_the_same(void **state) {
    struct fixture *f = *state;
    struct generate_options penalised = {.ignore_end = true, .sampler = sampler_defaults()},
                            surprised = penalised, ends = penalised;
    penalised.sampler.seed = 7;
    penalised.sampler.repeat_penalty = 1.2F;
    penalised.sampler.frequency_penalty = penalised.sampler.presence_penalty = 0.3F;
    penalised.sampler.dry =
        (struct dry_options){.multiplier = 1, .base = 1.75F, .allowed_length = 2, .last_n = -1};
    surprised.sampler.seed = 8;
    surprised.sampler.mirostat = 2;
    ends.ignore_end = false;
    ends.sampler.temp = 100;
    for (int m = 0; m < N_MODELS; m++) {
        open_engine(f, m, "none", 0, STRATEGY_AUTO);
        compare(f, &penalised, 3, 4);
        compare(f, &surprised, 5, 5);
        for (ends.sampler.seed = 0; ends.sampler.seed < (SLOW ? 1 : 4); ends.sampler.seed++)
            compare(f, &ends, MOST, MOST);
        engine_close(f->en);
    }
}

static void texts_end_in_the_same_place(void **state) {
    struct fixture *f = *state;
    struct generate_options o = GREEDY;
    static const char grammar[] = "root ::= \"ab\"* [c-f] [a-z]* \".\"";
    open_engine(f, 0, "none", 0, STRATEGY_AUTO);
    o.grammar = grammar;
    compare(f, &o, 1, 3);
    o.ignore_end = false;
    compare(f, &o, 4, 4);
    o = GREEDY;
    write_text(f, &o, &f->plain);
    for (size_t at = 0; at + 3 < f->plain.length && at < 24; at += 3) {
        char stop[4] = "";
        memcpy(stop, f->plain.text + at, 2);
        if ((unsigned char)stop[0] >= 0x80 || (unsigned char)stop[1] >= 0x80) continue;
        const char *const stops[] = {stop};
        struct generate_options with = GREEDY;
        with.stops = stops;
        with.n_stops = 1;
        compare(f, &with, 5, 6);
        write_text(f, &o, &f->plain);
    }
    engine_close(f->en);
}

// A draft has more tokens than a prompt may have at once.
static void prompts_may_come_in_smaller_parts(void **state) {
    struct fixture *f = *state;
    struct generate_options o = GREEDY;
    open_engine(f, 0, "none", 0, STRATEGY_AUTO);
    for (o.n_batch = 1; o.n_batch <= 3; o.n_batch++) compare(f, &o, MOST, MOST);
    engine_close(f->en);
}

// Each pass counts once, those with drafts by the mean number of their tokens.
static void the_predicted_time_is_that_of_the_passes(void **state) {
    struct fixture *f = *state;
    open_engine(f, 0, "sim:vram=64M", GPU_LAYERS_AUTO, STRATEGY_AUTO);
    const struct plan *plan = engine_plan(f->en);
    const struct shape *shape = engine_shape(f->en);
    const struct timings before = {
        .decode_steps = 5, .drafted = 4, .accepted = 2, .draft_passes = 1};
    struct timings t = {.decode_steps = 15, .drafted = 13, .accepted = 8, .draft_passes = 3};
    timings_predict_decode(&t, plan, shape, 100, &before);
    struct simulation one, draft;
    plan_simulate(plan, shape, &(struct pass){1, 1, 95}, &one);
    plan_simulate(plan, shape, &(struct pass){6, 6, 94}, &draft);
    assert_true(one.total_us > 0 && draft.total_us > one.total_us);
    const double expected = 2 * one.total_us + 2 * draft.total_us;
    assert_true(fabs(t.predicted_decode_us - expected) < 1e-6 * expected);
    engine_close(f->en);
}

static void every_split_gives_the_same(void **state) {
    struct fixture *f = *state;
    static const enum strategy strategies[] = {STRATEGY_ROW_SPLIT, STRATEGY_STREAMED};
    for (int m = 0; m < N_MODELS; m++)
        for (int32_t layers = 0; layers <= MODELS[m].n_layers + 1; layers += 1 + SLOW) {
            open_engine(f, m, "sim:vram=64M", layers, STRATEGY_AUTO);
            compare(f, &GREEDY, MOST, MOST);
            engine_close(f->en);
        }
    for (size_t i = 0; i < sizeof strategies / sizeof *strategies; i++) {
        open_engine(f, 0, "sim:vram=64M", GPU_LAYERS_AUTO, strategies[i]);
        compare(f, &GREEDY, MOST, MOST);
        engine_close(f->en);
    }
}

static void a_cancelled_draft_ends_the_text(void **state) {
    struct fixture *f = *state;
    struct generate_options o = GREEDY;
    const struct text_sink sink = {take, f};
    struct generator g;
    struct err e;
    enum stop_reason reason;
    open_engine(f, 0, "none", 0, STRATEGY_AUTO);
    f->script = NONE_RIGHT;
    f->plain = f->drafted = (struct written){0};
    f->known = &f->plain;
    f->out = &f->drafted;
    f->g = &g;
    o.draft = (struct draft_options){.size_m = 3, .always = true, .guess = scripted, .context = f};
    f->n_read = 0;
    assert_int_equal(generate_open(&g, f->en, &o, &e), OK);
    assert_int_equal(generate_read(&g, f->prompt, N_PROMPT, NULL, &e), OK);
    assert_int_equal(f->n_read, 1);
    f->refuses = true;
    assert_int_equal(generate_write(&g, 9, &sink, &reason, &e), OK);
    f->refuses = false;
    assert_int_equal(reason, STOP_CANCEL);
    assert_int_equal(g.n_tokens, 1);
    assert_int_equal(session_length(g.session), N_PROMPT);
    assert_int_equal(generate_held(&g), N_PROMPT + 1);
    generate_close(&g);
    engine_close(f->en);
}

// After a guess that fails the prompt or the text is as it was before, and goes on.
static void a_guess_that_fails_changes_nothing(void **state) {
    struct fixture *f = *state;
    struct generate_options o = GREEDY;
    const struct text_sink sink = {take, f};
    struct generator g;
    struct err e;
    enum stop_reason reason;
    open_engine(f, 0, "none", 0, STRATEGY_AUTO);
    f->script = NONE_RIGHT;
    f->plain = f->drafted = (struct written){0};
    f->known = &f->plain;
    f->out = &f->drafted;
    f->g = &g;
    o.draft = (struct draft_options){.size_m = 3, .always = true, .guess = scripted, .context = f};
    assert_int_equal(generate_open(&g, f->en, &o, &e), OK);
    f->guess_status = ERR_DEVICE;
    assert_int_equal(generate_read(&g, f->prompt, N_PROMPT, NULL, &e), ERR_DEVICE);
    assert_true(session_length(g.session) == 0 && g.timings.prompt_tokens == 0);
    f->guess_status = OK;
    assert_int_equal(generate_read(&g, f->prompt, N_PROMPT, NULL, &e), OK);
    f->guess_status = ERR_DEVICE;
    assert_int_equal(generate_write(&g, 9, &sink, &reason, &e), ERR_DEVICE);
    assert_true(g.n_tokens == 1 && session_length(g.session) == N_PROMPT);
    f->guess_status = ERR_CANCELLED;
    assert_int_equal(generate_read(&g, f->prompt, 5, NULL, &e), ERR_CANCELLED);
    assert_int_equal(generate_held(&g), N_PROMPT + 1);
    f->guess_status = OK;
    assert_int_equal(generate_read(&g, f->prompt, 5, NULL, &e), OK);
    f->guess_status = ERR_CANCELLED;
    assert_int_equal(generate_write(&g, 9, &sink, &reason, &e), OK);
    assert_int_equal(reason, STOP_CANCEL);
    assert_int_equal(generate_held(&g), N_PROMPT + 7);
    f->guess_status = OK;
    generate_close(&g);
    engine_close(f->en);
}

// Drafts that rested read what was written meanwhile before the next one, and not between two.
static void a_rest_is_read_before_the_next_draft(void **state) {
    struct fixture *f = *state;
    static const int32_t rests[] = {DRAFT_REST - 1, DRAFT_REST};
    const struct text_sink sink = {take, f};
    struct generate_options o = GREEDY;
    struct generator g;
    struct err e;
    enum stop_reason reason;
    open_engine(f, 0, "none", 0, STRATEGY_AUTO);
    f->script = NONE_RIGHT;
    f->known = &f->plain;
    f->out = &f->drafted;
    f->g = &g;
    o.draft = (struct draft_options){.size_m = 3, .guess = scripted, .context = f};
    for (int i = 0; i < 2; i++) {
        f->plain = f->drafted = (struct written){0};
        f->n_read = f->n_drafts = 0;
        assert_int_equal(generate_open(&g, f->en, &o, &e), OK);
        assert_int_equal(generate_read(&g, f->prompt, N_PROMPT, NULL, &e), OK);
        g.pace = (struct draft_pace){.n_skipped = rests[i], .one_ns = 1};
        assert_int_equal(generate_write(&g, rests[i] + 3, &sink, &reason, &e), OK);
        assert_int_equal(f->n_drafts, 1);
        assert_int_equal(f->n_read, 1 + i); // the prompt, and the rest
        generate_close(&g);
    }
    engine_close(f->en);
}

// A draft is no longer than the rows of logits that there is memory for.
static void drafts_fit_into_the_plan(void **state) {
    struct fixture *f = *state;
    struct generate_options o = GREEDY;
    struct generator g;
    struct err e;
    open_engine(f, 0, "none", 0, STRATEGY_AUTO);
    o.draft = (struct draft_options){.size_n = 2, .size_m = 1000};
    assert_int_equal(generate_open(&g, f->en, &o, &e), OK);
    assert_int_equal(g.n_most, MOST);
    generate_close(&g);
    o.draft.size_n = 0;
    assert_int_equal(generate_open(&g, f->en, &o, &e), OK);
    assert_int_equal(g.n_most, 0);
    generate_close(&g);
    engine_close(f->en);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(drafts_go_on_as_the_text_did),
        cmocka_unit_test(drafts_grow_as_long_as_they_are_right),
        cmocka_unit_test(drafts_that_lose_time_pause),
        cmocka_unit_test(what_a_cut_costs_later_counts),
        cmocka_unit_test(the_time_of_guesses_counts),
        cmocka_unit_test(the_time_of_one_token_is_measured_again),
        cmocka_unit_test(one_long_pass_says_little),
        cmocka_unit_test(the_likeliest_tokens_are_the_same),
        cmocka_unit_test(drawn_tokens_are_the_same),
        cmocka_unit_test(texts_end_in_the_same_place),
        cmocka_unit_test(prompts_may_come_in_smaller_parts),
        cmocka_unit_test(the_predicted_time_is_that_of_the_passes),
        cmocka_unit_test(every_split_gives_the_same),
        cmocka_unit_test(a_cancelled_draft_ends_the_text),
        cmocka_unit_test(a_guess_that_fails_changes_nothing),
        cmocka_unit_test(a_rest_is_read_before_the_next_draft),
        cmocka_unit_test(drafts_fit_into_the_plan),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}

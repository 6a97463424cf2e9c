/* test_generate.c: tests of runtime/generate/generate.h and timings.h on tiny models: what is drawn
 * is what the engine's logits give, whatever came before, and every way a text can end.
 */
// link: wrap-alloc
#include "runtime/generate/generate.h"

#include "base/disk.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "tests/lib/alloc_fail.h"
#include "tests/lib/tiny_model.h"
#include "tests/sim/sim_device.h"

#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cmocka.h>

enum { N_PROMPT = 90, N_CTX = 128, TEXT_BYTES = 4096, END_TOKEN = 256 };

// The text that a sink was given, and when it stops the generation.
struct taken {
    char text[TEXT_BYTES];
    size_t length;
    int n_calls, n_empty, stop_at; // stop_at 0: never
};

// When loading or reading is cancelled.
struct listener {
    const char *what; // NULL: never
    int left;         // calls of that kind until then
};

struct fixture {
    char path[64];
    int32_t prompt[N_PROMPT];
    struct engine_options options;
    struct generate_options greedy;
    struct listener listener;
    struct taken taken;
};

static bool listen(void *context, const char *what, uint64_t done, uint64_t total) {
    struct listener *l = context;
    (void)done;
    (void)total;
    return !l->what || strcmp(l->what, what) != 0 || l->left-- > 0;
}

static int setup(void **state) {
    struct fixture *f = mem_alloc(1, sizeof *f);
    if (!f) return -1;
    *state = f;
    snprintf(f->path, sizeof f->path, "/tmp/tandem_test_generate.%d.gguf", (int)getpid());
    tiny_model_write(&(struct tiny_model){.n_layers = 3, .biased = true, .freqs = true, .seed = 5},
                     f->path);
    for (int i = 0; i < N_PROMPT; i++) f->prompt[i] = (i * 37 + i * i * 11) % 256;
    f->greedy = (struct generate_options){.sampler = {.repeat_penalty = 1}, .ignore_end = true};
    f->options = (struct engine_options){
        .model_path = f->path,
        .device_spec = "none",
        .drivers = &sim_driver,
        .n_drivers = 1,
        .cpu = {.isa = ISA_AUTO, .n_threads = 2},
        .workload = {.n_ctx = N_CTX,
                     .n_ubatch = 16,
                     .max_logits = 16,
                     .n_sessions = 2,
                     .kv_type_k = DTYPE_F16,
                     .kv_type_v = DTYPE_F16},
        .constraints = {.gpu_layers = GPU_LAYERS_AUTO},
        .progress = {listen, &f->listener},
    };
    return 0;
}

static int teardown(void **state) {
    struct fixture *f = *state;
    unlink(f->path);
    mem_free(f);
    return 0;
}

static void open_ok(struct fixture *f, struct engine **en, struct generator *g) {
    struct err e;
    char text[1024];
    if (engine_open(en, &f->options, &e) || generate_open(g, *en, &f->greedy, &e))
        fail_msg("%s", err_text(&e, text, sizeof text));
}

static void close_both(struct engine *en, struct generator *g) {
    generate_close(g);
    engine_close(en);
}

static bool take(void *context, const char *text, size_t length) {
    struct taken *t = context;
    assert_true(t->length + length < TEXT_BYTES);
    assert_true(utf8_valid(text, length));
    memcpy(t->text + t->length, text, length);
    t->length += length;
    t->n_empty += length == 0;
    return ++t->n_calls != t->stop_at;
}

// Draws at most limit tokens into f->taken.
static enum stop_reason write_ok(struct fixture *f, struct generator *g, int32_t limit,
                                 int stop_at) {
    const struct text_sink sink = {take, &f->taken};
    enum stop_reason reason;
    struct err e;
    f->taken = (struct taken){.stop_at = stop_at};
    assert_int_equal(generate_write(g, limit, &sink, &reason, &e), OK);
    return reason;
}

static void read_ok(struct generator *g, const int32_t *ids, int32_t n) {
    struct err e;
    char text[1024];
    if (generate_read(g, ids, n, NULL, &e)) fail_msg("%s", err_text(&e, text, sizeof text));
}

static int32_t likeliest(const float *logits) {
    int32_t best = 0;
    for (int32_t i = 1; i < TINY_VOCAB; i++)
        if (i != END_TOKEN && logits[i] > logits[best]) best = i;
    return best;
}

// The likeliest n tokens behind a text, by the engine alone.
static void expect_tokens(struct fixture *f, const int32_t *text, int32_t count, int32_t *out,
                          int32_t n) {
    struct engine *en;
    struct session *s;
    struct err e;
    struct batch_item items[N_CTX];
    assert_int_equal(engine_open(&en, &f->options, &e), OK);
    assert_int_equal(session_new(&s, en, &e), OK);
    for (int32_t i = 0; i < count; i++) items[i] = (struct batch_item){s, text[i], i == count - 1};
    assert_int_equal(engine_eval(en, items, count, &e), OK);
    for (int32_t i = 0; i < n; i++) {
        out[i] = likeliest(engine_logits(en, 0));
        items[0] = (struct batch_item){s, out[i], true};
        if (i < n - 1) assert_int_equal(engine_eval(en, items, 1, &e), OK);
    }
    session_free(s);
    engine_close(en);
}

static void the_likeliest_tokens_are_drawn(void **state) {
    struct fixture *f = *state;
    int32_t expected[20];
    expect_tokens(f, f->prompt, N_PROMPT, expected, 20);
    for (int i = 1; i < 20; i++) assert_int_not_equal(expected[i], expected[i - 1]);
    static const int32_t batches[] = {0, 1, 7, N_PROMPT, 1000};
    for (size_t i = 0; i < sizeof batches / sizeof *batches; i++) {
        struct engine *en;
        struct generator g;
        f->greedy.n_batch = batches[i];
        open_ok(f, &en, &g);
        read_ok(&g, f->prompt, N_PROMPT);
        assert_int_equal(write_ok(f, &g, 20, 0), STOP_LIMIT);
        assert_int_equal(g.n_tokens, 20);
        assert_memory_equal(g.tokens, expected, sizeof expected);
        assert_int_equal(g.timings.prompt_tokens, N_PROMPT);
        assert_int_equal(g.timings.new_tokens, 20);
        assert_int_equal(g.timings.decode_steps, 19);
        close_both(en, &g);
    }
    f->greedy.n_batch = 0;
}

// Puts two tokens into the text after the fourth.
struct putter {
    struct generator *g;
    int32_t ids[2];
    int n_calls;
};

static bool put_two(void *context, const char *text, size_t length) {
    struct putter *p = context;
    (void)text, (void)length;
    if (++p->n_calls == 4) generate_put(p->g, p->ids, 2);
    return true;
}

// The tokens drawn behind them go on from them, and none is left for the next text.
static void tokens_of_the_sink_are_in_the_text(void **state) {
    struct fixture *f = *state;
    int32_t text[N_CTX], expected[5];
    struct engine *en;
    struct generator g;
    struct err e;
    enum stop_reason reason;
    open_ok(f, &en, &g);
    struct putter p = {&g, {200, 3}, 0};
    const struct text_sink sink = {put_two, &p};
    read_ok(&g, f->prompt, N_PROMPT);
    assert_int_equal(generate_write(&g, 10, &sink, &reason, &e), OK);
    assert_int_equal(g.n_tokens, 10);
    assert_memory_equal(g.tokens + 4, p.ids, sizeof p.ids);
    memcpy(text, f->prompt, sizeof f->prompt);
    memcpy(text + N_PROMPT, g.tokens, 10 * sizeof *text);
    expect_tokens(f, text, N_PROMPT + 6, expected, 4);
    assert_memory_equal(g.tokens + 6, expected, 4 * sizeof *expected);
    p.n_calls = 0;
    read_ok(&g, f->prompt, 1);
    assert_int_equal(generate_write(&g, 4, &sink, &reason, &e), OK);
    memcpy(text + N_PROMPT + 10, f->prompt, sizeof *text);
    memcpy(text + N_PROMPT + 11, g.tokens, 4 * sizeof *text);
    read_ok(&g, f->prompt, 1);
    text[N_PROMPT + 15] = f->prompt[0];
    expect_tokens(f, text, N_PROMPT + 16, expected, 5);
    assert_int_equal(write_ok(f, &g, 5, 0), STOP_LIMIT);
    assert_memory_equal(g.tokens, expected, sizeof expected);
    close_both(en, &g);
}

// ---- How a text ends ----------------------------------------------------------------------------

// The last token is drawn from the logits of the last position, and has none itself.
static void a_full_context_gives_every_token(void **state) {
    struct fixture *f = *state;
    for (int32_t n = N_CTX - 3; n <= N_CTX; n++) {
        struct engine *en;
        struct generator g;
        int32_t ids[N_CTX];
        struct err e;
        for (int32_t i = 0; i < n; i++) ids[i] = f->prompt[i % N_PROMPT];
        open_ok(f, &en, &g);
        assert_int_equal(generate_room(&g), N_CTX);
        read_ok(&g, ids, n);
        assert_int_equal(generate_room(&g), N_CTX - n);
        assert_int_equal(write_ok(f, &g, -1, 0), STOP_CONTEXT);
        assert_int_equal(n + g.n_tokens, N_CTX + 1);
        assert_int_equal(f->taken.n_calls - (f->taken.n_calls > g.n_tokens), g.n_tokens);
        assert_int_equal(generate_room(&g), 0);
        assert_int_equal(generate_read(&g, ids, 1, NULL, &e), ERR_LIMIT);
        close_both(en, &g);
    }
}

static void a_prompt_that_is_too_long_changes_nothing(void **state) {
    struct fixture *f = *state;
    struct engine *en;
    struct generator g;
    struct err e;
    char text[1024];
    open_ok(f, &en, &g);
    read_ok(&g, f->prompt, N_PROMPT);
    const struct timings before = g.timings;
    assert_int_equal(generate_read(&g, f->prompt, N_CTX - N_PROMPT + 1, NULL, &e), ERR_LIMIT);
    assert_string_equal(err_text(&e, text, sizeof text),
                        "the prompt does not fit into the context of 128 tokens: expected at "
                        "most 38 tokens behind the 90 that it holds, got 39. Fix: use a longer "
                        "context: -c 130");
    assert_int_equal(session_length(g.session), N_PROMPT);
    assert_memory_equal(&g.timings, &before, sizeof before);
    read_ok(&g, f->prompt, N_CTX - N_PROMPT);
    close_both(en, &g);
}

static void limits_and_sinks_end_a_text(void **state) {
    struct fixture *f = *state;
    struct engine *en;
    struct generator g;
    enum stop_reason reason;
    struct err e;
    open_ok(f, &en, &g);
    read_ok(&g, f->prompt, N_PROMPT);
    assert_int_equal(write_ok(f, &g, 0, 0), STOP_LIMIT);
    assert_true(g.n_tokens == 0 && f->taken.n_calls == 0 && g.timings.new_tokens == 0);
    assert_int_equal(write_ok(f, &g, -1, 5), STOP_CANCEL);
    assert_true(g.n_tokens == 5 && f->taken.n_calls == 5);
    assert_int_equal(session_length(g.session), N_PROMPT + 4);
    read_ok(&g, f->prompt, 1);
    assert_int_equal(generate_write(&g, 3, &(struct text_sink){0}, &reason, &e), OK);
    assert_int_equal(reason, STOP_LIMIT);
    assert_int_equal(g.n_tokens, 3);
    close_both(en, &g);
    for (int i = STOP_END; i < STOP_CANCEL; i++)
        assert_string_not_equal(stop_reason_name((enum stop_reason)i),
                                stop_reason_name((enum stop_reason)(i + 1)));
}

// Nearly every token is as likely as the others, so that one of some seeds is the end.
static void the_end_token_ends_a_text(void **state) {
    struct fixture *f = *state;
    struct engine *en;
    struct generator g;
    int ends = 0;
    f->greedy.sampler = (struct sampler_options){.temp = 100, .top_p = 1, .repeat_penalty = 1};
    for (int ignore = 0; ignore < 2; ignore++)
        for (int64_t seed = 0; seed < 20; seed++) {
            f->greedy.sampler.seed = seed;
            f->greedy.ignore_end = ignore;
            open_ok(f, &en, &g);
            read_ok(&g, f->prompt, 1);
            const enum stop_reason reason = write_ok(f, &g, -1, 0);
            bool has_end = false;
            for (int32_t i = 0; i < g.n_tokens; i++) has_end |= g.tokens[i] == END_TOKEN;
            assert_false(has_end);
            assert_int_equal(reason == STOP_END, !ignore && g.n_tokens < N_CTX);
            assert_int_equal(g.timings.new_tokens, g.n_tokens + (reason == STOP_END));
            assert_int_equal(session_length(g.session), 1 + g.timings.decode_steps);
            if (reason == STOP_END) assert_int_equal(g.pending, -1);
            ends += reason == STOP_END;
            close_both(en, &g);
        }
    assert_true(ends >= 2); // of the first 20, since the others may not end
    f->greedy = (struct generate_options){.sampler = {.repeat_penalty = 1}, .ignore_end = true};
}

// ---- Text ---------------------------------------------------------------------------------------

// Tokens of this model are bytes, of which some happen to make up characters: take() checks that no
// call cuts one, and nothing is lost.
static void characters_come_whole(void **state) {
    struct fixture *f = *state;
    struct engine *en;
    struct generator g;
    int n_empty = 0;
    f->greedy.sampler = (struct sampler_options){.temp = 100, .top_p = 1, .repeat_penalty = 1};
    for (f->greedy.sampler.seed = 0; f->greedy.sampler.seed < 20; f->greedy.sampler.seed++) {
        char text[TEXT_BYTES];
        size_t length = 0;
        struct token_stream stream;
        open_ok(f, &en, &g);
        read_ok(&g, f->prompt, 1);
        write_ok(f, &g, -1, 0);
        token_stream_init(&stream, engine_tokenizer(en), false);
        for (int32_t i = 0; i < g.n_tokens; i++)
            length += token_stream_push(&stream, g.tokens[i], text + length, sizeof text - length);
        length += token_stream_finish(&stream, text + length, sizeof text - length);
        assert_int_equal(length, f->taken.length);
        assert_memory_equal(text, f->taken.text, length);
        n_empty += f->taken.n_empty;
        close_both(en, &g);
    }
    assert_true(n_empty > 20); // unfinished characters, or control tokens
    f->greedy.sampler = (struct sampler_options){.repeat_penalty = 1};
}

// ---- Stop texts ---------------------------------------------------------------------------------

// Pushes the pieces (NULL ends them) through a filter and returns all that it lets through.
static const char *filtered(char *out, const char *const *stops, const char *const *pieces,
                            bool *met) {
    struct stop_filter f;
    struct err e;
    int32_t n = 0;
    while (stops[n]) n++;
    out[0] = 0;
    assert_int_equal(stop_filter_open(&f, stops, n, 16, &e), OK);
    for (; *pieces; pieces++) {
        stop_filter_push(&f, *pieces, strlen(*pieces));
        strncat(out, f.text, f.n_ready);
    }
    *met = f.met;
    stop_filter_push(&f, "", 0);
    stop_filter_finish(&f);
    strncat(out, f.text, f.n_ready);
    stop_filter_close(&f);
    return out;
}

#define LIST(...) ((const char *const[]){__VA_ARGS__, NULL})

static void stop_texts_never_show(void **state) {
    (void)state;
    static const struct {
        const char *stops[4], *pieces[8], *shown;
        bool met;
    } cases[] = {
        {{NULL}, {"a", "bc", NULL}, "abc", false},
        {{"bc", NULL}, {"abcd", NULL}, "a", true},
        {{"bc", NULL}, {"ab", "cd", "bc", NULL}, "a", true},
        {{"bcd", NULL}, {"ab", "c", NULL}, "abc", false}, // held back, given out at the end
        {{"bcd", NULL}, {"ab", "c", "e", "bcd", NULL}, "abce", true},
        {{"aab", NULL}, {"a", "a", "a", "b", NULL}, "a", true}, // begins within what is held
        {{"abcde", "cd", NULL}, {"x", "abc", "d", "e", NULL}, "xab", true},
        {{"cd", "bcd", NULL}, {"ab", "cd", NULL}, "a", true}, // the one that begins first
        {{"\n\nUser:", NULL}, {"hi\n", "\n", "\nUser", ": no", NULL}, "hi\n", true},
        {{"ü", NULL}, {"m", "ü", "ll", NULL}, "m", true},
        {{"abc", NULL}, {"abc", NULL}, "", true},
        {{"abc", "b", "c", NULL}, {"", "a", "", NULL}, "a", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char out[64];
        bool met;
        filtered(out, cases[i].stops, cases[i].pieces, &met);
        if (strcmp(out, cases[i].shown) != 0 || met != cases[i].met)
            fail_msg("case %zu shows '%s'%s", i, out, met ? " and stops" : "");
    }
}

// Text that is no prefix of a stop text is not held back.
static void text_is_held_back_no_longer_than_needed(void **state) {
    (void)state;
    struct stop_filter f;
    struct err e;
    assert_int_equal(stop_filter_open(&f, LIST("User:", "er"), 2, 8, &e), OK);
    static const struct {
        const char *piece, *ready;
    } steps[] = {{"hello", "hello"}, {" Us", " "}, {"Us", "Us"}, {"ual", "Usual"},
                 {"e", ""},          {"e", "e"},   {"x", "ex"},  {"User", "Us"}};
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        stop_filter_push(&f, steps[i].piece, strlen(steps[i].piece));
        assert_int_equal(f.n_ready, strlen(steps[i].ready));
        assert_memory_equal(f.text, steps[i].ready, f.n_ready);
    }
    assert_true(f.met);
    stop_filter_reset(&f);
    stop_filter_push(&f, "ab", 2);
    assert_true(!f.met && f.n_ready == 2);
    stop_filter_close(&f);
    static const char *const bad[] = {"", "\xff", "a\xc3"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(stop_filter_open(&f, LIST("fine", bad[i]), 2, 8, &e), ERR_USAGE);
        assert_null(f.stops);
    }
}

// Every two characters of a text end it where they first stand, though tokens here are single
// bytes; the tokens of the stop text itself are in the session.
static void a_stop_text_ends_the_text_before_it(void **state) {
    struct fixture *f = *state;
    struct engine *en;
    struct generator g;
    char whole[TEXT_BYTES];
    open_ok(f, &en, &g);
    read_ok(&g, f->prompt, N_PROMPT);
    write_ok(f, &g, 30, 0);
    memcpy(whole, f->taken.text, sizeof whole);
    const size_t length = f->taken.length;
    close_both(en, &g);
    int n_stops = 0;
    for (size_t at = 0, step, next; at < length; at += step) {
        char stop[16] = "";
        step = utf8_step(whole + at, length - at);
        next = at + step < length ? utf8_step(whole + at + step, length - at - step) : 0;
        memcpy(stop, whole + at, step + next);
        const size_t first = (size_t)(strstr(whole, stop) - whole);
        f->greedy.stops = LIST("<s999>", stop);
        f->greedy.n_stops = 2;
        open_ok(f, &en, &g);
        read_ok(&g, f->prompt, N_PROMPT);
        assert_int_equal(write_ok(f, &g, 30, 0), STOP_WORD);
        assert_int_equal(f->taken.length, first);
        assert_memory_equal(f->taken.text, whole, first);
        assert_int_equal(session_length(g.session), N_PROMPT + g.n_tokens - 1);
        n_stops += first > 0;
        close_both(en, &g);
    }
    assert_true(n_stops >= 10);
    f->greedy.stops = NULL;
    f->greedy.n_stops = 0;
}

// Options may change between texts, and are then as if the generator had been opened with them.
static void other_options_for_the_next_text(void **state) {
    struct fixture *f = *state;
    struct engine *en;
    struct generator g;
    struct generate_options other = f->greedy;
    struct err e;
    char whole[TEXT_BYTES], stop[8] = "";
    open_ok(f, &en, &g);
    read_ok(&g, f->prompt, N_PROMPT);
    write_ok(f, &g, 20, 0);
    memcpy(whole, f->taken.text, sizeof whole);
    memcpy(stop, whole, utf8_step(whole, f->taken.length));
    other.stops = LIST(stop);
    other.n_stops = 1;
    assert_int_equal(generate_set_options(&g, &other, &e), OK);
    session_truncate(g.session, N_PROMPT - 1);
    g.pending = -1;
    read_ok(&g, f->prompt + N_PROMPT - 1, 1);
    assert_int_equal(write_ok(f, &g, 20, 0), STOP_WORD);
    assert_int_equal(f->taken.length, 0);
    other.stops = LIST("");
    assert_int_equal(generate_set_options(&g, &other, &e), ERR_USAGE);
    assert_int_equal(generate_set_options(&g, &f->greedy, &e), OK);
    generate_forget(&g);
    read_ok(&g, f->prompt, N_PROMPT);
    assert_int_equal(write_ok(f, &g, 20, 0), STOP_LIMIT);
    assert_string_equal(f->taken.text, whole);
    close_both(en, &g);
}

// A control token shows no text, but has a name; what was held back before it is text.
static void the_name_of_a_control_token_is_the_token(void **state) {
    struct fixture *f = *state;
    struct engine *en;
    struct generator g;
    int stops = 0;
    f->greedy.stops = LIST("<s260>", "<s261>", "<s262>", "<s263>", "\xef\xbf\xbd<s264>");
    f->greedy.n_stops = 5;
    f->greedy.sampler = (struct sampler_options){.temp = 100, .top_p = 1, .repeat_penalty = 1};
    for (f->greedy.sampler.seed = 0; f->greedy.sampler.seed < 10; f->greedy.sampler.seed++) {
        open_ok(f, &en, &g);
        read_ok(&g, f->prompt, 1);
        const enum stop_reason reason = write_ok(f, &g, -1, 0);
        stops += reason == STOP_WORD;
        for (int32_t i = 0; i < g.n_tokens; i++)
            assert_true(g.tokens[i] < 260 || g.tokens[i] > 263);
        if (reason == STOP_WORD) assert_int_equal(g.pending, -1);
        char text[TEXT_BYTES];
        size_t length = 0;
        struct token_stream stream;
        token_stream_init(&stream, engine_tokenizer(en), false);
        for (int32_t i = 0; i < g.n_tokens; i++)
            length += token_stream_push(&stream, g.tokens[i], text + length, sizeof text - length);
        length += token_stream_finish(&stream, text + length, sizeof text - length);
        assert_int_equal(length, f->taken.length);
        close_both(en, &g);
    }
    assert_true(stops >= 5);
    f->greedy.sampler = (struct sampler_options){.repeat_penalty = 1};
    f->greedy.stops = NULL;
    f->greedy.n_stops = 0;
}

// ---- Turns --------------------------------------------------------------------------------------

// A second turn draws the tokens that a fresh generator draws after reading everything.
static void expect_fresh(struct fixture *f, struct generator *g, const int32_t *text,
                         int32_t count) {
    int32_t expected[10];
    expect_tokens(f, text, count, expected, 10);
    assert_int_equal(write_ok(f, g, 10, 0), STOP_LIMIT);
    assert_memory_equal(g->tokens, expected, sizeof expected);
}

static void a_second_turn_knows_the_first(void **state) {
    struct fixture *f = *state;
    struct engine *en;
    struct generator g;
    int32_t text[N_CTX], count = 40;
    memcpy(text, f->prompt, 40 * sizeof *text);
    open_ok(f, &en, &g);
    read_ok(&g, text, count);
    assert_int_equal(write_ok(f, &g, 9, 0), STOP_LIMIT);
    memcpy(text + count, g.tokens, 9 * sizeof *text); // the last of them is pending
    count += 9;
    assert_int_equal(generate_room(&g), N_CTX - count);
    memcpy(text + count, f->prompt + 50, 30 * sizeof *text);
    assert_int_equal(generate_keep_same(&g, text, count + 1), count);
    assert_int_equal(generate_held(&g), count); // the pending one is among them
    read_ok(&g, f->prompt + 50, 12);
    read_ok(&g, f->prompt + 62, 18);
    count += 30;
    assert_int_equal(session_length(g.session), count);
    expect_fresh(f, &g, text, count);
    assert_int_equal(generate_keep_same(&g, text, 30), 29); // the last one's logits are wanted
    assert_int_equal(generate_held(&g), 29);
    generate_forget(&g);
    assert_int_equal(generate_room(&g), N_CTX);
    read_ok(&g, text, 40);
    expect_fresh(f, &g, text, 40);
    close_both(en, &g);
}

// Penalties count what is held, also for new options and in a copy, and nothing that was taken
// back: the same text comes again.
static void penalties_know_the_text_that_is_held(void **state) {
    struct fixture *f = *state;
    const struct generate_options plain = f->greedy;
    struct engine *en;
    struct generator g, copy;
    struct err e;
    char first[TEXT_BYTES];
    f->greedy.sampler = (struct sampler_options){
        .repeat_penalty = 1, .presence_penalty = 3, .frequency_penalty = 3, .repeat_last_n = -1};
    open_ok(f, &en, &g);
    read_ok(&g, f->prompt, N_PROMPT);
    write_ok(f, &g, 20, 0);
    memcpy(first, f->taken.text, sizeof first);
    for (int round = 0; round < 2; round++) {
        assert_int_equal(generate_keep_same(&g, f->prompt, N_PROMPT), N_PROMPT - 1);
        if (round == 1) {
            assert_int_equal(generate_set_options(&g, &plain, &e), OK);
            assert_int_equal(generate_set_options(&g, &f->greedy, &e), OK);
        }
        assert_int_equal(generate_fork(&copy, &g, &f->greedy, &e), OK);
        read_ok(&g, f->prompt + N_PROMPT - 1, 1);
        write_ok(f, &g, 20, 0);
        assert_string_equal(f->taken.text, first);
        read_ok(&copy, f->prompt + N_PROMPT - 1, 1);
        write_ok(f, &copy, 20, 0);
        assert_string_equal(f->taken.text, first);
        generate_close(&copy);
    }
    close_both(en, &g);
    f->greedy = plain;
}

// A prompt that is cancelled between two calls of the engine, or within one, was never there.
static void a_cancelled_prompt_was_never_there(void **state) {
    struct fixture *f = *state;
    for (int left = 0; left < 4; left++) {
        struct engine *en;
        struct generator g;
        struct err e;
        int32_t text[N_CTX], count = 20;
        f->greedy.n_batch = 20; // with n_ubatch 16: "prefill" is told twice in each call
        open_ok(f, &en, &g);
        read_ok(&g, f->prompt, 20);
        write_ok(f, &g, 5, 0);
        memcpy(text, f->prompt, 20 * sizeof *text);
        memcpy(text + count, g.tokens, 5 * sizeof *text);
        count += 5;
        const struct timings before = g.timings;
        f->listener = (struct listener){"prefill", left};
        assert_int_equal(generate_read(&g, f->prompt + 20, 60, NULL, &e), ERR_CANCELLED);
        f->listener = (struct listener){0};
        assert_int_equal(session_length(g.session), 24);
        assert_memory_equal(&g.timings, &before, sizeof before);
        read_ok(&g, f->prompt + 7, 30);
        memcpy(text + count, f->prompt + 7, 30 * sizeof *text);
        expect_fresh(f, &g, text, count + 30);
        close_both(en, &g);
    }
    f->greedy.n_batch = 0;
}

// Two generators on one engine do not disturb each other.
static void generators_share_an_engine(void **state) {
    struct fixture *f = *state;
    struct engine *en;
    struct generator a, b, c;
    struct err e;
    open_ok(f, &en, &a);
    assert_int_equal(generate_open(&b, en, &f->greedy, &e), OK);
    assert_int_equal(generate_open(&c, en, &f->greedy, &e), ERR_LIMIT);
    assert_null(c.engine);
    generate_close(&c);
    read_ok(&b, f->prompt + 30, 30);
    read_ok(&a, f->prompt, 50);
    expect_fresh(f, &a, f->prompt, 50);
    read_ok(&b, f->prompt + 60, 20);
    expect_fresh(f, &b, f->prompt + 30, 50);
    generate_close(&b);
    close_both(en, &a);
}

// ---- Logits -------------------------------------------------------------------------------------

struct rows {
    const struct engine *engine;
    float *logits; // [N_PROMPT, TINY_VOCAB]
    int32_t count, fail_at;
};

static enum status take_rows(void *context, int32_t first, int32_t n, struct err *e) {
    struct rows *r = context;
    assert_int_equal(first, r->count);
    for (int32_t i = 0; i < n; i++, r->count++) {
        if (r->count == r->fail_at) return err_set(e, ERR_FILE, "full");
        memcpy(r->logits + (size_t)r->count * TINY_VOCAB, engine_logits(r->engine, i),
               TINY_VOCAB * sizeof(float));
    }
    return OK;
}

static void all_logits_of_a_prompt(void **state) {
    struct fixture *f = *state;
    struct engine *en;
    struct generator g;
    struct err e;
    float *logits = mem_alloc((size_t)2 * N_PROMPT * TINY_VOCAB, sizeof *logits);
    float *again = logits + (size_t)N_PROMPT * TINY_VOCAB;
    f->greedy.n_batch = 11;
    open_ok(f, &en, &g);
    struct rows rows = {en, logits, 0, -1};
    assert_int_equal(
        generate_read(&g, f->prompt, N_PROMPT, &(struct logits_sink){take_rows, &rows}, &e), OK);
    assert_int_equal(rows.count, N_PROMPT);
    expect_fresh(f, &g, f->prompt, N_PROMPT);
    generate_forget(&g);
    for (int32_t i = 0; i < N_PROMPT; i++) {
        read_ok(&g, f->prompt + i, 1);
        memcpy(again + (size_t)i * TINY_VOCAB, engine_logits(en, 0), TINY_VOCAB * sizeof(float));
    }
    assert_memory_equal(logits, again, (size_t)N_PROMPT * TINY_VOCAB * sizeof *logits);
    generate_forget(&g);
    rows = (struct rows){en, logits, 0, 30};
    assert_int_equal(
        generate_read(&g, f->prompt, N_PROMPT, &(struct logits_sink){take_rows, &rows}, &e),
        ERR_FILE);
    assert_int_equal(session_length(g.session), 0);
    close_both(en, &g);
    f->greedy.n_batch = 0;
    mem_free(logits);
}

// ---- Predictions --------------------------------------------------------------------------------

static double simulated(const struct engine *en, struct pass pass, bool last) {
    struct simulation s;
    plan_simulate(engine_plan(en), engine_shape(en), &pass, &s);
    if (!last) assert_true(s.period_us < s.total_us);
    return last ? s.total_us : s.period_us;
}

// On a plan that runs ahead a prompt takes a period for each micro-batch that another one follows.
static void predictions_are_those_of_the_passes(void **state) {
    struct fixture *f = *state;
    struct engine *en;
    struct generator g;
    f->options.device_spec = "sim:vram=16M";
    f->options.constraints.gpu_layers = GPU_LAYERS_ALL;
    f->options.workload.n_ubatch = 33;
    open_ok(f, &en, &g);
    assert_true(engine_plan(en)->runs_ahead);
    read_ok(&g, f->prompt, 8);
    assert_int_equal(g.timings.prompt_passes, 1);
    g.timings = (struct timings){0};
    read_ok(&g, f->prompt, 76); // 33, 33 and 10 behind 8
    const double prompt = simulated(en, (struct pass){33, 0, 8}, false) +
                          simulated(en, (struct pass){33, 0, 41}, false) +
                          simulated(en, (struct pass){10, 1, 74}, true);
    assert_int_equal(g.timings.prompt_passes, 3);
    assert_true(prompt > 0 && g.timings.predicted_prompt_us == prompt);
    write_ok(f, &g, 6, 0); // five steps, from 84 to 89: the middle one has 86 before it
    assert_true(g.timings.predicted_decode_us == 5 * simulated(en, (struct pass){1, 1, 86}, true));
    close_both(en, &g);
    f->options.device_spec = "none";
    f->options.constraints.gpu_layers = GPU_LAYERS_AUTO;
    f->options.workload.n_ubatch = 16;
}

// ---- Reads from the disk ------------------------------------------------------------------------

enum { COLD_PAGES = 24, COLD_STEP = 64 << 10 }; // too far apart for a fault to bring two of them

// A file whose pages no memory has; each call of a sink waits for two of them, by two threads.
struct cold_file {
    volatile const char *map;
    int32_t n_touched;
};

static void *touch(void *context) {
    struct cold_file *c = context;
    (void)c->map[(size_t)c->n_touched++ * COLD_STEP];
    return NULL;
}

static void touch_two(struct cold_file *c) {
    pthread_t other;
    assert_in_range(c->n_touched, 0, COLD_PAGES - 2);
    touch(c);
    assert_int_equal(pthread_create(&other, NULL, touch, c), 0);
    assert_int_equal(pthread_join(other, NULL), 0);
}

static enum status touch_at_rows(void *context, int32_t first, int32_t n, struct err *e) {
    (void)first, (void)n, (void)e;
    touch_two(context);
    return OK;
}

static bool touch_at_text(void *context, const char *text, size_t length) {
    (void)text, (void)length;
    touch_two(context);
    return true;
}

// Maps the file. Returns false where its pages cannot be dropped, and where its file system has no
// disk of its own (device number 0).
static bool open_cold(struct cold_file *c) {
    char path[] = "build/test_generate_XXXXXX";
    const size_t size = COLD_PAGES * COLD_STEP, page = 4096;
    unsigned char in_memory[COLD_PAGES * COLD_STEP / 4096];
    struct stat info;
    const int file = mkstemp(path);
    assert_true(file >= 0 && unlink(path) == 0 && ftruncate(file, (off_t)size) == 0);
    for (size_t at = 0; at < size; at += COLD_STEP)
        assert_int_equal(pwrite(file, "x", 1, (off_t)at), 1);
    assert_true(fsync(file) == 0 && posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED) == 0);
    void *map = mmap(NULL, size, PROT_READ, MAP_SHARED, file, 0);
    assert_true(map != MAP_FAILED && madvise(map, size, MADV_RANDOM) == 0);
    assert_true(mincore(map, size, in_memory) == 0 && fstat(file, &info) == 0);
    close(file);
    *c = (struct cold_file){.map = map};
    bool cold = major(info.st_dev) != 0;
    for (size_t at = 0; at < size; at += COLD_STEP) cold = cold && !(in_memory[at / page] & 1);
    return cold;
}

// Six parts of a prompt and three tokens wait for 18 pages: two reads and a text add up, each with
// the faults of all threads.
static void faults_of_all_parts_and_threads_add_up(void **state) {
    struct fixture *f = *state;
    struct engine *en;
    struct generator g;
    struct err e;
    struct cold_file c;
    enum stop_reason reason;
    const struct logits_sink rows = {touch_at_rows, &c};
    open_ok(f, &en, &g);
    if (!open_cold(&c)) {
        close_both(en, &g);
        skip();
    }
    const uint64_t before = disk_reads().faults;
    assert_int_equal(generate_read(&g, f->prompt, 48, &rows, &e), OK);
    assert_int_equal(c.n_touched, 6);
    assert_in_range(g.timings.disk_faults, 6, disk_reads().faults - before);
    assert_int_equal(generate_read(&g, f->prompt + 48, 42, &rows, &e), OK);
    assert_int_equal(c.n_touched, 12);
    assert_in_range(g.timings.disk_faults, 12, disk_reads().faults - before);
    assert_int_equal(generate_write(&g, 3, &(struct text_sink){touch_at_text, &c}, &reason, &e),
                     OK);
    assert_true(c.n_touched >= 18);
    assert_in_range(g.timings.disk_faults, c.n_touched, disk_reads().faults - before);
    munmap((void *)(uintptr_t)c.map, COLD_PAGES * COLD_STEP);
    close_both(en, &g);
}

// ---- Memory -------------------------------------------------------------------------------------

static void refused_allocations_leave_nothing(void **state) {
    struct fixture *f = *state;
    struct engine *en;
    struct generator g;
    struct err e;
    int refused = 0;
    f->greedy.sampler.repeat_penalty = 1.5f;
    f->greedy.sampler.repeat_last_n = 8;
    f->greedy.stops = LIST("one", "two");
    f->greedy.n_stops = 2;
    assert_int_equal(engine_open(&en, &f->options, &e), OK);
    for (bool happened = true; happened; refused += happened) {
        alloc_fail_at(refused + 1);
        const enum status status = generate_open(&g, en, &f->greedy, &e);
        happened = alloc_fail_happened();
        alloc_fail_at(0);
        assert_int_equal(status, happened ? ERR_MEMORY : OK);
    }
    assert_true(refused >= 11);
    // Nothing is allocated any more.
    alloc_fail_at(1);
    read_ok(&g, f->prompt, N_PROMPT);
    write_ok(f, &g, -1, 0);
    generate_forget(&g);
    assert_int_equal(alloc_fail_count(), 0);
    alloc_fail_at(0);
    generate_close(&g);
    generate_close(&g);
    engine_close(en);
    f->greedy.sampler = (struct sampler_options){.repeat_penalty = 1};
    f->greedy.stops = NULL;
    f->greedy.n_stops = 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_likeliest_tokens_are_drawn),
        cmocka_unit_test(tokens_of_the_sink_are_in_the_text),
        cmocka_unit_test(a_full_context_gives_every_token),
        cmocka_unit_test(a_prompt_that_is_too_long_changes_nothing),
        cmocka_unit_test(limits_and_sinks_end_a_text),
        cmocka_unit_test(the_end_token_ends_a_text),
        cmocka_unit_test(characters_come_whole),
        cmocka_unit_test(stop_texts_never_show),
        cmocka_unit_test(text_is_held_back_no_longer_than_needed),
        cmocka_unit_test(a_stop_text_ends_the_text_before_it),
        cmocka_unit_test(other_options_for_the_next_text),
        cmocka_unit_test(the_name_of_a_control_token_is_the_token),
        cmocka_unit_test(a_second_turn_knows_the_first),
        cmocka_unit_test(penalties_know_the_text_that_is_held),
        cmocka_unit_test(a_cancelled_prompt_was_never_there),
        cmocka_unit_test(generators_share_an_engine),
        cmocka_unit_test(all_logits_of_a_prompt),
        cmocka_unit_test(predictions_are_those_of_the_passes),
        cmocka_unit_test(faults_of_all_parts_and_threads_add_up),
        cmocka_unit_test(refused_allocations_leave_nothing),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}

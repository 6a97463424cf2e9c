/* test_sampler.c: tests of runtime/generate/sampler.h: the chain step by step, the drawn
 * frequencies, bad logits, refused allocations. test_sampler_golden.c has the formulas of the
 * chain.
 */
// link: wrap-alloc
#include "base/mem.h"
#include "runtime/generate/sampler.h"
#include "runtime/gguf/gguf.h"
#include "tests/lib/alloc_fail.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

static const struct sampler_options plain = {.temp = 1, .top_p = 1, .repeat_penalty = 1, .seed = 7};

// Draws count times and counts what came out.
static void count_draws(const struct sampler_options *options, const float *logits, int32_t n_vocab,
                        int count, int *counts) {
    struct sampler s;
    struct err e;
    int32_t token;
    assert_int_equal(sampler_init(&s, options, n_vocab, 16, &e), OK);
    memset(counts, 0, (size_t)n_vocab * sizeof *counts);
    for (int i = 0; i < count; i++) {
        assert_int_equal(sampler_draw(&s, logits, &token, &e), OK);
        assert_in_range(token, 0, n_vocab - 1);
        counts[token]++;
    }
    sampler_close(&s);
}

// Five standard deviations of a binomial around the expected number of draws.
static void assert_frequency(int count, int total, double probability) {
    double expected = total * probability;
    double allowed = 5 * sqrt(expected * (1 - probability)) + 1e-9;
    if (fabs(count - expected) > allowed)
        fail_msg("drawn %d times, expected %.0f +- %.0f", count, expected, allowed);
}

static void log_of(const double *probabilities, int n, float *logits) {
    for (int i = 0; i < n; i++) logits[i] = (float)(log(probabilities[i]) + 3);
}

// The first outputs of splitmix64 from seed 0 are published; xoshiro256** was computed from them.
static void generator_is_the_published_one(void **state) {
    (void)state;
    static const uint64_t seeded[4] = {0xe220a8397b1dcdaf, 0x6e789e6aa1b965f4, 0x06c45d188009454f,
                                       0xf88bb8a8724c81ec};
    struct sampler s;
    struct err e;
    struct sampler_options options = plain;
    options.seed = 0;
    assert_int_equal(sampler_init(&s, &options, 4, 16, &e), OK);
    assert_memory_equal(s.state, seeded, sizeof seeded);
    static const uint64_t small[4] = {1, 2, 3, 4};
    memcpy(s.state, small, sizeof small);
    static const uint64_t published[] = {11520, 0, 1509978240, 1215971899390074240};
    for (int i = 0; i < 4; i++)
        assert_true(sampler_uniform(&s) == (double)(published[i] >> 11) * 0x1p-53);
    sampler_close(&s);
}

static void greedy_takes_the_first_of_the_likeliest(void **state) {
    (void)state;
    const float logits[] = {-INFINITY, 2, 5, 5, -1};
    for (int temp = 0; temp >= -1; temp--) {
        struct sampler_options options = plain;
        options.temp = (float)temp;
        int counts[5];
        count_draws(&options, logits, 5, 10, counts);
        assert_int_equal(counts[2], 10);
    }
}

static void frequencies_follow_the_softmax(void **state) {
    (void)state;
    const double p[] = {0.5, 0.25, 0.15, 0.1};
    float logits[5];
    int counts[5];
    log_of(p, 4, logits);
    logits[4] = -INFINITY;
    count_draws(&plain, logits, 5, 100000, counts);
    for (int i = 0; i < 4; i++) assert_frequency(counts[i], 100000, p[i]);
    assert_int_equal(counts[4], 0);
}

static void temperature_sharpens(void **state) {
    (void)state;
    const double p[] = {0.5, 0.25, 0.15, 0.1};
    float logits[4];
    int counts[4];
    log_of(p, 4, logits);
    struct sampler_options options = plain;
    options.temp = 0.5f; // squares the probabilities
    count_draws(&options, logits, 4, 100000, counts);
    double sum = 0.25 + 0.0625 + 0.0225 + 0.01;
    for (int i = 0; i < 4; i++) assert_frequency(counts[i], 100000, p[i] * p[i] / sum);
}

// Quotients beyond the largest float are no numbers in a softmax: the likeliest is all that is
// left.
static void lowest_temperatures_take_the_likeliest(void **state) {
    (void)state;
    const float logits[] = {3, 100, 2.5f};
    const struct {
        float temp, range;
    } cases[] = {{1e-38f, 0}, {1, 1}, {1e-3f, 5}}; // the range takes them to almost 0: one is sure
    int counts[3];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct sampler_options options = plain;
        options.temp = cases[i].temp;
        options.dynatemp_range = cases[i].range;
        options.dynatemp_exponent = 1;
        count_draws(&options, logits, 3, 20, counts);
        assert_int_equal(counts[1], 20);
    }
}

static void top_k_keeps_the_k_likeliest(void **state) {
    (void)state;
    const double p[] = {0.1, 0.3, 0.05, 0.25, 0.2, 0.1};
    float logits[6];
    int counts[6];
    log_of(p, 6, logits);
    struct sampler_options options = plain;
    options.top_k = 3;
    count_draws(&options, logits, 6, 50000, counts);
    const double expected[] = {0, 0.4, 0, 0.25 / 0.75, 0.2 / 0.75, 0};
    for (int i = 0; i < 6; i++) assert_frequency(counts[i], 50000, expected[i]);

    options.top_k = 5; // of the two with 0.1, none is dropped, but 0.05 is
    count_draws(&options, logits, 6, 50000, counts);
    assert_int_equal(counts[2], 0);
    assert_true(counts[0] > 0 && counts[5] > 0);

    options.top_k = 1;
    count_draws(&options, logits, 6, 100, counts);
    assert_int_equal(counts[1], 100);
    options.top_k = 1000; // more than there are: off
    count_draws(&options, logits, 6, 50000, counts);
    for (int i = 0; i < 6; i++) assert_frequency(counts[i], 50000, p[i]);
}

static void equal_logits_are_cut_by_number(void **state) {
    (void)state;
    float logits[64];
    int counts[64];
    for (int i = 0; i < 64; i++) logits[i] = 1;
    struct sampler_options options = plain;
    options.top_k = 4;
    count_draws(&options, logits, 64, 4000, counts);
    for (int i = 0; i < 64; i++) assert_frequency(counts[i], 4000, i < 4 ? 0.25 : 0);
}

static void top_p_keeps_the_smallest_set_that_reaches_p(void **state) {
    (void)state;
    const double p[] = {0.1, 0.5, 0.15, 0.25};
    float logits[4];
    int counts[4];
    log_of(p, 4, logits);
    struct sampler_options options = plain;
    options.top_p = 0.74f;
    count_draws(&options, logits, 4, 50000, counts);
    const double two[] = {0, 2.0 / 3, 0, 1.0 / 3};
    for (int i = 0; i < 4; i++) assert_frequency(counts[i], 50000, two[i]);
    options.top_p = 0.76f;
    count_draws(&options, logits, 4, 50000, counts);
    const double three[] = {0, 0.5 / 0.9, 0.15 / 0.9, 0.25 / 0.9};
    for (int i = 0; i < 4; i++) assert_frequency(counts[i], 50000, three[i]);
    options.top_p = 0; // always at least one
    count_draws(&options, logits, 4, 100, counts);
    assert_int_equal(counts[1], 100);
}

static void min_p_is_relative_to_the_likeliest(void **state) {
    (void)state;
    const double p[] = {0.1, 0.5, 0.15, 0.25};
    float logits[4];
    int counts[4];
    log_of(p, 4, logits);
    struct sampler_options options = plain;
    options.min_p = 0.4f; // 0.2 and more
    count_draws(&options, logits, 4, 50000, counts);
    const double expected[] = {0, 2.0 / 3, 0, 1.0 / 3};
    for (int i = 0; i < 4; i++) assert_frequency(counts[i], 50000, expected[i]);
    options.min_p = 1;
    count_draws(&options, logits, 4, 100, counts);
    assert_int_equal(counts[1], 100);
}

// After top-k 3 the probabilities are 5/9, 3/9, 1/9; top-p 0.7 counts them, not those before.
static void each_step_sees_what_the_last_one_left(void **state) {
    (void)state;
    const double p[] = {0.5, 0.3, 0.1, 0.06, 0.04};
    float logits[5];
    int counts[5];
    log_of(p, 5, logits);
    struct sampler_options options = plain;
    options.top_k = 3;
    options.top_p = 0.85f;
    options.temp = 100; // comes last: does not change what is cut
    count_draws(&options, logits, 5, 1000, counts);
    assert_true(counts[0] > 0 && counts[1] > 0);
    assert_int_equal(counts[2] + counts[3] + counts[4], 0);
}

static void penalty_counts_a_token_once_and_forgets(void **state) {
    (void)state;
    const float logits[] = {4, 3, -1, -2};
    struct sampler_options options = plain;
    options.temp = 0;
    options.repeat_penalty = 1.5f;
    options.repeat_last_n = 3;
    struct sampler s;
    struct err e;
    int32_t token;
    assert_int_equal(sampler_init(&s, &options, 4, 16, &e), OK);
    sampler_accept(&s, 0);
    sampler_accept(&s, 0); // twice would be 4 / 2.25; once is 2.67, below 3 both ways
    assert_int_equal(sampler_draw(&s, logits, &token, &e), OK);
    assert_int_equal(token, 1);
    assert_true(s.candidates.list[0].logit == 4 / 1.5f);
    sampler_accept(&s, 2);
    assert_int_equal(sampler_draw(&s, logits, &token, &e), OK);
    assert_true(s.candidates.list[2].logit == -1.5f);
    sampler_accept(&s, 1);
    sampler_accept(&s, 1); // 0 has left the window of three
    assert_int_equal(sampler_draw(&s, logits, &token, &e), OK);
    assert_int_equal(token, 0);
    sampler_forget(&s);
    assert_int_equal(sampler_draw(&s, logits, &token, &e), OK);
    assert_int_equal(token, 0);
    sampler_close(&s);
}

// After it forgot, only tokens that came since are penalised, wherever the window was.
static void what_was_forgotten_is_not_penalised(void **state) {
    (void)state;
    const float logits[] = {4, 4.1f, 4.2f, 4.3f, 4.4f};
    struct sampler_options options = plain;
    options.temp = 0;
    options.repeat_penalty = 2;
    options.repeat_last_n = 4;
    struct sampler s;
    struct err e;
    int32_t token;
    assert_int_equal(sampler_init(&s, &options, 5, 16, &e), OK);
    for (int before = 1; before < 10; before++) {
        sampler_forget(&s);
        for (int i = 0; i < before; i++) sampler_accept(&s, i % 4);
        sampler_forget(&s);
        sampler_accept(&s, 4);
        assert_int_equal(sampler_draw(&s, logits, &token, &e), OK);
        assert_int_equal(token, 3);
        sampler_accept(&s, 3);
        assert_int_equal(sampler_draw(&s, logits, &token, &e), OK);
        assert_int_equal(token, 2);
    }
    sampler_close(&s);
}

static void window_of_the_whole_context(void **state) {
    (void)state;
    struct sampler_options options = plain;
    options.repeat_penalty = 2;
    options.repeat_last_n = -1;
    struct sampler s;
    struct err e;
    assert_int_equal(sampler_init(&s, &options, 4, 16, &e), OK);
    assert_int_equal(s.penalties.n_window, 16);
    for (int i = 0; i < 40; i++) sampler_accept(&s, i % 4);
    assert_int_equal(s.penalties.n_recent, 16);
    sampler_close(&s);
    options.repeat_last_n = 0;
    assert_int_equal(sampler_init(&s, &options, 4, 16, &e), OK);
    sampler_accept(&s, 1);
    assert_int_equal(s.penalties.n_recent, 0);
    sampler_close(&s);
}

static void same_seed_same_tokens(void **state) {
    (void)state;
    float logits[1000];
    for (int i = 0; i < 1000; i++) logits[i] = (float)((i * 37) % 1000) / 200;
    int32_t first[50], token;
    struct err e;
    bool random_differs = false;
    for (int round = 0; round < 3; round++) {
        struct sampler_options options = {.temp = 0.8f,
                                          .top_k = 40,
                                          .top_p = 0.95f,
                                          .min_p = 0.05f,
                                          .repeat_penalty = 1.1f,
                                          .repeat_last_n = 64,
                                          .seed = round < 2 ? 42 : -1};
        struct sampler s;
        assert_int_equal(sampler_init(&s, &options, 1000, 64, &e), OK);
        assert_true(s.options.seed >= 0);
        for (int i = 0; i < 50; i++) {
            assert_int_equal(sampler_draw(&s, logits, &token, &e), OK);
            sampler_accept(&s, token);
            if (round == 0) first[i] = token;
            if (round == 1) assert_int_equal(token, first[i]);
            random_differs |= round == 2 && token != first[i];
        }
        sampler_close(&s);
    }
    assert_true(random_differs);
}

static void broken_logits_are_a_device_error(void **state) {
    (void)state;
    const float nan_logits[] = {0, 1, NAN, 2}, inf_logits[] = {0, INFINITY, 1, 2};
    const float none[] = {-INFINITY, -INFINITY, -INFINITY, -INFINITY};
    for (int greedy = 0; greedy < 2; greedy++) {
        struct sampler_options options = plain;
        options.temp = greedy ? 0 : 1;
        struct sampler s;
        struct err e;
        int32_t token;
        assert_int_equal(sampler_init(&s, &options, 4, 16, &e), OK);
        assert_int_equal(sampler_draw(&s, nan_logits, &token, &e), ERR_DEVICE);
        assert_non_null(strstr(e.what, "token 2"));
        assert_non_null(strstr(e.fix, "-ctk f32 -ctv f32"));
        assert_int_equal(sampler_draw(&s, inf_logits, &token, &e), ERR_DEVICE);
        assert_null(strstr(e.fix, "-ctk"));
        assert_int_equal(sampler_draw(&s, none, &token, &e), ERR_DEVICE);
        sampler_close(&s);
    }
}

// ---- Steps that the golden cases do not reach ---------------------------------------------------

static void order_is_read_by_names_and_letters(void **state) {
    (void)state;
    struct sampler_order names, letters;
    struct err e;
    assert_int_equal(sampler_order_names(&names,
                                         "penalties;dry;top_n_sigma;top_k;typ_p;top_p;"
                                         "min_p;xtc;temperature",
                                         &e),
                     OK);
    assert_int_equal(sampler_order_letters(&letters, "edskypmxt", &e), OK);
    assert_int_equal(names.n, SAMPLER_STEPS);
    assert_int_equal(letters.n, SAMPLER_STEPS);
    for (int i = 0; i < SAMPLER_STEPS; i++) {
        assert_int_equal(names.steps[i], i);
        assert_int_equal(letters.steps[i], i);
    }
    assert_int_equal(sampler_order_names(&names, "temp;top-k;nucleus;typ", &e), OK);
    assert_int_equal(names.n, 4);
    assert_int_equal(names.steps[0], SAMPLER_TEMPERATURE);
    assert_int_equal(names.steps[1], SAMPLER_TOP_K);
    assert_int_equal(names.steps[2], SAMPLER_TOP_P);
    assert_int_equal(names.steps[3], SAMPLER_TYPICAL);
    const char *const bad[] = {"", "top_k;", ";", "top_kk", "infill"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(sampler_order_names(&names, bad[i], &e), ERR_USAGE);
    assert_non_null(strstr(e.what, "'infill'"));
    assert_non_null(strstr(e.expected, "top_n_sigma (s)"));
    assert_int_equal(sampler_order_letters(&letters, "kz", &e), ERR_USAGE);
    assert_int_equal(sampler_order_letters(&letters, "", &e), ERR_USAGE);
    assert_int_equal(sampler_order_letters(&letters, "kkkkkkkkkkkkkkkkkkk", &e), ERR_USAGE);
}

// XTC draws for every token, and cuts as often as it is asked to: then only the 0.2 is left of the
// three above the threshold, beside the 0.05.
static void xtc_cuts_as_often_as_asked(void **state) {
    (void)state;
    const double p[] = {0.5, 0.25, 0.2, 0.05};
    float logits[4];
    int counts[4];
    log_of(p, 4, logits);
    struct sampler_options options = plain;
    options.xtc_probability = 0.3f;
    options.xtc_threshold = 0.1f;
    count_draws(&options, logits, 4, 100000, counts);
    assert_frequency(counts[0], 100000, 0.7 * 0.5);
    assert_frequency(counts[2], 100000, 0.7 * 0.2 + 0.3 * 0.8);
    options.xtc_threshold = 0.51f; // off
    count_draws(&options, logits, 4, 100000, counts);
    for (int i = 0; i < 4; i++) assert_frequency(counts[i], 100000, p[i]);
}

// A greedy sampler obeys the steps that can drop the likeliest token.
static void greedy_obeys_xtc_and_typical(void **state) {
    (void)state;
    const double p[] = {0.5, 0.3, 0.1, 0.1};
    float logits[4];
    int counts[4];
    log_of(p, 4, logits);
    struct sampler_options options = plain;
    options.temp = 0;
    options.xtc_probability = 1;
    options.xtc_threshold = 0.2f;
    count_draws(&options, logits, 4, 10, counts);
    assert_int_equal(counts[1], 10);
    options.xtc_probability = 0;
    options.typical_p = 0.2f; // the entropy is 1.17: -ln 0.3 is nearest
    count_draws(&options, logits, 4, 10, counts);
    assert_int_equal(counts[1], 10);
}

// Penalties behind a cut, or behind the temperature, do not bring back what these dropped.
static void greedy_obeys_the_order(void **state) {
    (void)state;
    static const struct {
        const char *order;
        int32_t token;
    } cases[] = {
        {"penalties;top_k;temperature", 1},     {"dry;penalties;temperature", 1},
        {"top_k;penalties;temperature", 0},     {"temperature;penalties", 0},
        {"min_p;dry;penalties;temperature", 0},
    };
    const float logits[] = {2, 1.5f, 0};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct sampler_options options = plain;
        struct sampler s;
        struct err e;
        int32_t token;
        options.temp = 0;
        options.top_k = 1;
        options.min_p = 0.9f;
        options.presence_penalty = 1;
        options.repeat_last_n = 8;
        assert_int_equal(sampler_order_names(&options.order, cases[i].order, &e), OK);
        assert_int_equal(sampler_init(&s, &options, 3, 64, &e), OK);
        sampler_accept(&s, 0);
        assert_int_equal(sampler_draw(&s, logits, &token, &e), OK);
        assert_int_equal(token, cases[i].token);
        sampler_close(&s);
    }
}

static void mirostat_follows_the_surprise(void **state) {
    (void)state;
    const double p[] = {0.5, 0.25, 0.125, 0.125};
    float logits[4];
    log_of(p, 4, logits);
    for (int version = 1; version <= 2; version++) {
        struct sampler_options options = plain;
        options.mirostat = version;
        options.mirostat_tau = 3;
        options.mirostat_eta = 0.5f;
        struct sampler s;
        struct err e;
        int32_t token;
        assert_int_equal(sampler_init(&s, &options, 4, 16, &e), OK);
        assert_true(s.mu == 6);
        for (int i = 0; i < 20; i++) {
            const float mu = s.mu;
            assert_int_equal(sampler_draw(&s, logits, &token, &e), OK);
            double kept = 0;
            for (int32_t k = 0; k < s.candidates.n; k++) kept += p[s.candidates.list[k].token];
            const double surprise = -log2(p[token] / kept);
            assert_true(fabs(s.mu - (mu - 0.5 * (surprise - 3))) < 1e-5);
        }
        sampler_forget(&s);
        assert_true(s.mu == 6);
        sampler_close(&s);
    }
}

static void biases_move_and_forbid_tokens(void **state) {
    (void)state;
    const float logits[] = {1, 2, 3, 4};
    struct logit_bias biases[] = {{3, -INFINITY}, {0, 2.5f}, {1, -INFINITY}, {2, -INFINITY}};
    struct sampler_options options = plain;
    options.temp = 0;
    options.biases = biases;
    options.n_biases = 2;
    int counts[4];
    count_draws(&options, logits, 4, 5, counts);
    assert_int_equal(counts[0], 5);

    struct sampler s;
    struct err e;
    int32_t token;
    biases[1].bias = -INFINITY;
    options.n_biases = 4;
    assert_int_equal(sampler_init(&s, &options, 4, 16, &e), OK);
    assert_int_equal(sampler_draw(&s, logits, &token, &e), ERR_USAGE);
    assert_non_null(strstr(e.what, "biases leave no token"));
    sampler_close(&s);
    const struct logit_bias bad[] = {{4, 1}, {-1, 1}, {0, NAN}, {0, INFINITY}};
    for (int i = 0; i < 4; i++) {
        options.biases = &bad[i];
        options.n_biases = 1;
        assert_int_equal(sampler_init(&s, &options, 4, 16, &e), ERR_USAGE);
        assert_null(s.memory);
    }
}

// "the in" begins within the token " the" of this vocabulary, and is whole in none.
static void breakers_begin_within_tokens(void **state) {
    (void)state;
    struct gguf gguf;
    struct tokenizer *t;
    struct breakers b;
    struct err e;
    int32_t n, n_whole = 0;
    const char *const texts[] = {"the in"}, *const empty[] = {"ok", ""};
    assert_int_equal(gguf_open(&gguf, "tests/golden/tiny/experts_mixed.gguf", &e), OK);
    assert_int_equal(tokenizer_open(&t, &gguf, NULL, &e), OK);
    assert_int_equal(breakers_open(&b, t, texts, 1, &e), OK);
    const int32_t the = tokenizer_find(t, "\u0120the", 5), in = tokenizer_find(t, "\u0120in", 4);
    const struct breaker *found = breakers_of(&b, the, &n);
    assert_true(the >= 0 && n == 1 && found->n_tail > 0);
    if (in >= 0) assert_int_equal(found->tail[0], in);
    for (int32_t i = 0; i < b.n; i++) n_whole += b.list[i].n_tail == 0;
    assert_int_equal(n_whole, 0);
    breakers_of(&b, tokenizer_bos(t), &n);
    assert_int_equal(n, 0);
    breakers_close(&b);
    assert_int_equal(breakers_open(&b, t, empty, 2, &e), ERR_USAGE);
    tokenizer_close(t);
    gguf_close(&gguf);
}

// Repetitions that end at a breaker, or are as long as allowed, by hand: the texts are of tokens 0
// to 7, 7 is a breaker, and so is 5 with a 6 behind it.
static void repetitions_end_at_breakers(void **state) {
    (void)state;
    enum { TEXT = 8, VOCAB = 8 };
    struct breaker list[] = {{.head = 5, .n_tail = 1, .tail = {6}}, {.head = 7}};
    const struct breakers breakers = {.list = list, .n = 2, .capacity = 2};
    static const struct {
        const char *text;
        int32_t allowed, token; // that loses loss; -1: none does
        float loss;
    } cases[] = {
        {"12312", 2, 3, 1},   {"4123412", 2, 3, 2}, {"12312", 3, -1, 0},
        {"123712", 2, 3, 1}, // nothing but the two that are allowed lies behind the breaker
        {"123712", 3, -1, 0}, {"56356", 1, -1, 0}, // the text ends with a breaker and its tail
        {"5635", 1, 6, 1},                         // with its head alone
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct dry_options dry = {.multiplier = 1,
                                        .base = 2,
                                        .allowed_length = cases[i].allowed,
                                        .last_n = -1,
                                        .breakers = &breakers};
        struct candidate tokens[VOCAB] = {{0}};
        struct candidates c = {tokens, VOCAB};
        struct penalties p;
        struct err e;
        const struct penalty_options off = {.repeat = 1};
        assert_int_equal(penalties_open(&p, &off, &dry, VOCAB, TEXT, &e), OK);
        for (int32_t t = 0; t < VOCAB; t++) tokens[t].token = t;
        for (const char *at = cases[i].text; *at; at++) penalties_accept(&p, *at - '0');
        penalties_dry(&p, &c);
        for (int32_t t = 0; t < VOCAB; t++)
            if (tokens[t].logit != (t == cases[i].token ? -cases[i].loss : 0))
                fail_msg("%s: token %d has %g", cases[i].text, t, (double)tokens[t].logit);
        penalties_close(&p);
    }
}

static void refused_allocations_are_errors(void **state) {
    (void)state;
    struct gguf gguf;
    struct tokenizer *t;
    struct err e;
    const char *const texts[] = {"\n", "the in"};
    assert_int_equal(gguf_open(&gguf, "tests/golden/tiny/plain.gguf", &e), OK);
    assert_int_equal(tokenizer_open(&t, &gguf, NULL, &e), OK);
    struct sampler_options options = plain;
    options.repeat_penalty = 2;
    options.repeat_last_n = 4;
    bool refused = true;
    for (int64_t n = 1; refused; n++) {
        struct breakers b = {0};
        struct sampler s = {0};
        enum status status = OK;
        alloc_fail_at(n);
        if (breakers_open(&b, t, texts, 2, &e) || sampler_init(&s, &options, 8, 16, &e))
            status = e.status;
        refused = alloc_fail_happened();
        alloc_fail_at(0);
        assert_int_equal(status, refused ? ERR_MEMORY : OK);
        assert_true(n < 1000);
        sampler_close(&s);
        breakers_close(&b);
    }
    tokenizer_close(t);
    gguf_close(&gguf);
}

static void close_accepts_a_zeroed_one(void **state) {
    (void)state;
    struct sampler s = {0};
    sampler_close(&s);
    assert_null(s.memory);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(generator_is_the_published_one),
        cmocka_unit_test(greedy_takes_the_first_of_the_likeliest),
        cmocka_unit_test(frequencies_follow_the_softmax),
        cmocka_unit_test(temperature_sharpens),
        cmocka_unit_test(lowest_temperatures_take_the_likeliest),
        cmocka_unit_test(top_k_keeps_the_k_likeliest),
        cmocka_unit_test(equal_logits_are_cut_by_number),
        cmocka_unit_test(top_p_keeps_the_smallest_set_that_reaches_p),
        cmocka_unit_test(min_p_is_relative_to_the_likeliest),
        cmocka_unit_test(each_step_sees_what_the_last_one_left),
        cmocka_unit_test(penalty_counts_a_token_once_and_forgets),
        cmocka_unit_test(what_was_forgotten_is_not_penalised),
        cmocka_unit_test(window_of_the_whole_context),
        cmocka_unit_test(same_seed_same_tokens),
        cmocka_unit_test(broken_logits_are_a_device_error),
        cmocka_unit_test(order_is_read_by_names_and_letters),
        cmocka_unit_test(xtc_cuts_as_often_as_asked),
        cmocka_unit_test(greedy_obeys_xtc_and_typical),
        cmocka_unit_test(greedy_obeys_the_order),
        cmocka_unit_test(mirostat_follows_the_surprise),
        cmocka_unit_test(biases_move_and_forbid_tokens),
        cmocka_unit_test(breakers_begin_within_tokens),
        cmocka_unit_test(repetitions_end_at_breakers),
        cmocka_unit_test(refused_allocations_are_errors),
        cmocka_unit_test(close_accepts_a_zeroed_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* test_sampler_golden.c: runtime/generate/sampler.h leaves the tokens that llama.cpp leaves, with
 * its probabilities (tests/golden/make_sampler_golden.py).
 */
#include "base/mem.h"
#include "runtime/generate/sampler.h"
#include "runtime/gguf/gguf.h"

#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

enum { VOCAB_MOST = 512, LISTED = 16, LINE_BYTES = 1 << 16 };

struct golden_case {
    json_t *json;
    float logits[VOCAB_MOST];
    int32_t n_vocab;
    struct sampler_options options;
    struct logit_bias biases[LISTED];
    struct breakers breakers;
};

static float number(const json_t *options, const char *name) {
    return (float)json_number_value(json_object_get(options, name));
}

static int32_t whole(const json_t *options, const char *name) {
    return (int32_t)json_integer_value(json_object_get(options, name));
}

static void read_logits(struct golden_case *c) {
    const json_t *list = json_object_get(c->json, "logits");
    c->n_vocab = (int32_t)json_array_size(list);
    assert_in_range(c->n_vocab, 1, VOCAB_MOST);
    for (int32_t i = 0; i < c->n_vocab; i++) {
        const json_t *x = json_array_get(list, (size_t)i);
        c->logits[i] = json_is_null(x) ? -INFINITY : (float)json_integer_value(x) / 1024;
    }
}

static void read_options(struct golden_case *c, const json_t *o) {
    c->options = (struct sampler_options){
        .temp = number(o, "temp"),
        .top_k = whole(o, "top_k"),
        .top_p = json_object_get(o, "top_p") ? number(o, "top_p") : 1,
        .min_p = number(o, "min_p"),
        .repeat_penalty = number(o, "repeat_penalty"),
        .repeat_last_n = whole(o, "repeat_last_n"),
        .frequency_penalty = number(o, "frequency_penalty"),
        .presence_penalty = number(o, "presence_penalty"),
        .typical_p = number(o, "typical_p"),
        .top_n_sigma = number(o, "top_n_sigma"),
        .xtc_probability = number(o, "xtc_probability"),
        .xtc_threshold = number(o, "xtc_threshold"),
        .dynatemp_range = number(o, "dynatemp_range"),
        .dynatemp_exponent = number(o, "dynatemp_exponent"),
        .dry = {.multiplier = number(o, "dry_multiplier"),
                .base = number(o, "dry_base"),
                .allowed_length = whole(o, "dry_allowed_length"),
                .last_n = whole(o, "dry_last_n"),
                .breakers = &c->breakers},
        .mirostat = whole(o, "mirostat"),
        .mirostat_tau = number(o, "mirostat_tau"),
        .mirostat_eta = number(o, "mirostat_eta"),
        .biases = c->biases,
        .n_biases = (int32_t)json_array_size(json_object_get(o, "biases")),
    };
}

static void read_lists(struct golden_case *c, const json_t *o, const struct tokenizer *t) {
    struct err e;
    const json_t *list = json_object_get(o, "biases"), *texts = json_object_get(o, "breakers");
    const char *samplers = json_string_value(json_object_get(o, "samplers"));
    const char *breakers[LISTED];
    assert_true(json_array_size(list) <= LISTED && json_array_size(texts) <= LISTED);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *pair = json_array_get(list, i);
        c->biases[i].token = (int32_t)json_integer_value(json_array_get(pair, 0));
        c->biases[i].bias = (float)json_number_value(json_array_get(pair, 1));
    }
    const int32_t n = (int32_t)json_array_size(texts);
    for (int32_t i = 0; i < n; i++)
        breakers[i] = json_string_value(json_array_get(texts, (size_t)i));
    if (n > 0) assert_int_equal(breakers_open(&c->breakers, t, breakers, n, &e), OK);
    if (samplers) assert_int_equal(sampler_order_names(&c->options.order, samplers, &e), OK);
}

// The probability of the token by the candidates of s, 0 if it is not left.
static float probability_of(const struct sampler *s, int32_t token) {
    for (int32_t i = 0; i < s->candidates.n; i++)
        if (s->candidates.list[i].token == token) return s->candidates.list[i].p;
    return 0;
}

// Compares with the golden probabilities, which are in ascending order of tokens.
static void check_left(const struct golden_case *c, const struct sampler *s, int line) {
    const json_t *left = json_object_get(c->json, "left");
    size_t next = 0;
    for (int32_t token = 0; token < c->n_vocab; token++) {
        const json_t *pair = json_array_get(left, next);
        const bool listed = json_integer_value(json_array_get(pair, 0)) == token && pair;
        const double expected = listed ? json_number_value(json_array_get(pair, 1)) : 0;
        const float actual = probability_of(s, token);
        if (fabs(actual - expected) > 1e-6)
            fail_msg("line %d, token %d: %.9g, expected %.9g", line, token, (double)actual,
                     expected);
        next += listed;
    }
    assert_int_equal(next, json_array_size(left));
}

static void check_case(struct golden_case *c, const struct tokenizer *t, int line) {
    struct sampler s;
    struct err e;
    const json_t *options = json_object_get(c->json, "options"), *token;
    const json_t *history = json_object_get(c->json, "history");
    size_t i;
    read_logits(c);
    read_options(c, options);
    read_lists(c, options, t);
    assert_int_equal(sampler_init(&s, &c->options, c->n_vocab, 4096, &e), OK);
    json_array_foreach(history, i, token) sampler_accept(&s, (int32_t)json_integer_value(token));
    for (int round = 0; round < 2; round++) { // nothing stays behind from one token to the next
        assert_int_equal(sampler_apply(&s, c->logits, &e), OK);
        check_left(c, &s, line);
    }
    sampler_close(&s);
    breakers_close(&c->breakers);
}

static void probabilities_are_those_of_llama_cpp(void **state) {
    (void)state;
    struct gguf gguf;
    struct tokenizer *t;
    struct err e;
    static char text[LINE_BYTES];
    int line = 0;
    assert_int_equal(gguf_open(&gguf, "tests/golden/tiny/plain.gguf", &e), OK);
    assert_int_equal(tokenizer_open(&t, &gguf, NULL, &e), OK);
    FILE *file = fopen("tests/golden/samplers.jsonl", "r");
    assert_non_null(file);
    while (fgets(text, sizeof text, file)) {
        struct golden_case c = {.json = json_loads(text, 0, NULL)};
        assert_non_null(c.json);
        check_case(&c, t, ++line);
        json_decref(c.json);
    }
    fclose(file);
    assert_true(line >= 200);
    tokenizer_close(t);
    gguf_close(&gguf);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(probabilities_are_those_of_llama_cpp),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

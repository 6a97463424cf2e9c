/* test_mixture.c: tests of runtime/quantize/mixture.h and type_rules.h: the type of every tensor by
 * the rules of the mixtures and by those of the user. */
#include "tests/lib/quantize_model.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

// A matrix in the first and the second layer of 8.
static void write_two_layers(const char *path) {
    struct gguf_build b;
    gguf_build_init(&b);
    gguf_build_text(&b, "general.architecture", "llama");
    gguf_build_int(&b, "llama.block_count", GGUF_U32, 8);
    add_matrix(&b, "blk.0.ffn_down.weight", COLUMNS, 1);
    add_matrix(&b, "blk.1.ffn_down.weight", COLUMNS, 1);
    gguf_build_finish(&b);
    gguf_build_write(&b, path);
    gguf_build_close(&b);
}

// With 16 layers the first and last two have more bits, and 4, 7, 10, 13 between them.
static bool has_more_bits(int layer) { return layer < 2 || layer >= 14 || layer % 3 == 1; }

static void types_follow_the_rules(void **state) {
    const struct paths *p = *state;
    struct gguf g;
    write_model(p->source, 1, false);
    must_quantize(p, "Q4_K_M", NULL, &g);
    for (int i = 0; i < LAYERS; i++) {
        assert_layer(&g, i, "attn_q", DTYPE_Q4_K);
        assert_layer(&g, i, "attn_v", has_more_bits(i) ? DTYPE_Q6_K : DTYPE_Q4_K);
        assert_layer(&g, i, "ffn_down", has_more_bits(i) ? DTYPE_Q6_K : DTYPE_Q4_K);
        assert_layer(&g, i, "ffn_gate_inp", DTYPE_F32);
        assert_layer(&g, i, "attn_norm", DTYPE_F32);
    }
    assert_type(&g, "token_embd.weight", DTYPE_Q4_K);
    assert_type(&g, "output.weight", DTYPE_Q6_K);
    assert_type(&g, "odd.weight", DTYPE_Q5_0);
    assert_type(&g, "very_odd.weight", DTYPE_F16);
    gguf_close(&g);

    must_quantize(p, "Q4_K_S", NULL, &g);
    for (int i = 0; i < LAYERS; i++) {
        assert_layer(&g, i, "attn_v", i < 4 ? DTYPE_Q5_K : DTYPE_Q4_K);
        assert_layer(&g, i, "ffn_down", i < 2 ? DTYPE_Q5_K : DTYPE_Q4_K);
    }
    gguf_close(&g);

    must_quantize(p, "Q3_K_M", NULL, &g);
    for (int i = 0; i < LAYERS; i++) {
        assert_layer(&g, i, "attn_v", i < 2 ? DTYPE_Q5_K : DTYPE_Q4_K);
        assert_layer(&g, i, "ffn_down", i < 1 ? DTYPE_Q5_K : DTYPE_Q4_K);
        assert_layer(&g, i, "attn_output", DTYPE_Q4_K);
        assert_layer(&g, i, "ffn_up", DTYPE_Q3_K);
    }
    assert_type(&g, "odd.weight", DTYPE_Q4_0);
    gguf_close(&g);
}

// Large and small mixtures differ in values, down and what attention makes.
static void sizes_of_a_mixture_have_their_rules(void **state) {
    const struct paths *p = *state;
    const struct mixture *m;
    struct gguf g;
    struct err e;
    write_model(p->source, 1, false);
    must_quantize(p, "Q3_K_L", NULL, &g);
    assert_layer(&g, 7, "attn_v", DTYPE_Q5_K);
    assert_layer(&g, 7, "ffn_down", DTYPE_Q5_K);
    assert_layer(&g, 7, "attn_output", DTYPE_Q5_K);
    assert_layer(&g, 7, "attn_q", DTYPE_Q3_K);
    gguf_close(&g);
    must_quantize(p, "Q3_K_S", NULL, &g);
    for (int i = 0; i < LAYERS; i++) {
        assert_layer(&g, i, "attn_v", DTYPE_Q3_K);
        assert_layer(&g, i, "ffn_down", DTYPE_Q3_K);
        assert_layer(&g, i, "attn_output", DTYPE_Q3_K);
    }
    assert_type(&g, "output.weight", DTYPE_Q6_K);
    gguf_close(&g);
    write_model(p->source, 8, true);
    must_quantize(p, "Q3_K_L", NULL, &g);
    assert_layer(&g, 5, "attn_output", DTYPE_Q3_K);
    gguf_close(&g);
    must_quantize(p, "Q3_K_S", NULL, &g);
    assert_layer(&g, 5, "attn_output", DTYPE_Q5_K);
    gguf_close(&g);
    assert_int_equal(mixture_find(&m, "q4_k", &e), OK);
    assert_string_equal(m->name, "Q4_K_M");
    assert_int_equal(mixture_find(&m, "Q4_", &e), ERR_USAGE);
}

// Two bits for most: what carries values has three, and the small one wants to know what matters.
static void two_bits_have_their_rules(void **state) {
    const struct paths *p = *state;
    struct quantize_result result;
    struct gguf g;
    struct err e;
    write_model(p->source, 1, false);
    must_quantize(p, "Q2_K", NULL, &g);
    for (int i = 0; i < LAYERS; i++) {
        assert_layer(&g, i, "attn_q", DTYPE_Q2_K);
        assert_layer(&g, i, "attn_v", DTYPE_Q3_K);
        assert_layer(&g, i, "attn_output", DTYPE_Q3_K);
        assert_layer(&g, i, "ffn_down", DTYPE_Q3_K);
    }
    assert_type(&g, "token_embd.weight", DTYPE_Q2_K);
    assert_type(&g, "odd.weight", DTYPE_Q4_0);
    gguf_close(&g);
    assert_int_equal(quantize(p, "Q2_K_S", NULL, &result, &e), ERR_UNSUPPORTED);
    assert_non_null(strstr(e.fix, "--imatrix"));
    write_gguf_importance(p->importance, "blk.2.ffn_down.weight", COLUMNS, 1, 1);
    assert_int_equal(quantize(p, "Q2_K_S", p->importance, &result, &e), ERR_UNSUPPORTED);
    assert_non_null(strstr(e.what, "blk.0.attn_q.weight"));
    write_two_layers(p->source);
    write_gguf_importance(p->importance, "blk.1.ffn_down.weight", COLUMNS, 1, 1);
    must_quantize(p, "Q2_K_S", p->importance, &g);
    assert_layer(&g, 0, "ffn_down", DTYPE_Q4_K);
    assert_layer(&g, 1, "ffn_down", DTYPE_Q2_K);
    gguf_close(&g);
}

static void uneven_values_have_their_rules(void **state) {
    const struct paths *p = *state;
    struct gguf g;
    write_model(p->source, 1, false);
    must_quantize(p, "IQ4_XS", NULL, &g);
    for (int i = 0; i < LAYERS; i++) {
        assert_layer(&g, i, "attn_v", DTYPE_IQ4_XS);
        assert_layer(&g, i, "ffn_down", i < 2 ? DTYPE_Q5_K : DTYPE_IQ4_XS);
    }
    assert_type(&g, "output.weight", DTYPE_Q6_K);
    assert_type(&g, "odd.weight", DTYPE_IQ4_NL);
    gguf_close(&g);
    write_gguf_importance(p->importance, "blk.0.ffn_down.weight", COLUMNS, 1, 1);
    must_quantize(p, "IQ4_NL", p->importance, &g);
    assert_layer(&g, 0, "ffn_down", DTYPE_IQ4_NL);
    gguf_close(&g);
    write_model(p->source, 8, true);
    must_quantize(p, "IQ4_NL", NULL, &g);
    assert_layer(&g, 5, "attn_output", DTYPE_Q5_K);
    gguf_close(&g);
}

static void tied_and_expert_models_have_their_rules(void **state) {
    const struct paths *p = *state;
    struct gguf g;
    write_model(p->source, 4, true);
    must_quantize(p, "MXFP4_MOE", NULL, &g);
    assert_type(&g, "token_embd.weight", DTYPE_Q8_0);
    assert_layer(&g, 3, "ffn_down_exps", DTYPE_MXFP4);
    assert_layer(&g, 3, "attn_k", DTYPE_Q8_0);
    gguf_close(&g);
    must_quantize(p, "Q5_K_M", NULL, &g);
    assert_type(&g, "token_embd.weight", DTYPE_Q6_K);
    assert_type(&g, "odd.weight", DTYPE_Q5_1);
    for (int i = 0; i < LAYERS; i++) { // by the layer, where each has two
        assert_layer(&g, i, "ffn_down_exps", has_more_bits(i) ? DTYPE_Q6_K : DTYPE_Q5_K);
        assert_layer(&g, i, "ffn_down_shexp", has_more_bits(i) ? DTYPE_Q6_K : DTYPE_Q5_K);
    }
    gguf_close(&g);
    write_model(p->source, 8, true);
    must_quantize(p, "Q4_K_M", NULL, &g);
    assert_layer(&g, 5, "attn_v", DTYPE_Q8_0);
    assert_layer(&g, 5, "attn_k", DTYPE_Q8_0);
    assert_layer(&g, 5, "attn_output", DTYPE_Q5_K);
    gguf_close(&g);
}

// The type that a mixture gives the values of a fifth layer.
static enum dtype fifth_values(const struct paths *p, const char *mixture, const char *architecture,
                               uint64_t n_layers, uint64_t n_kv_heads) {
    struct gguf_build b;
    struct gguf g;
    char key[64], name[64];
    gguf_build_init(&b);
    gguf_build_text(&b, "general.architecture", architecture);
    snprintf(key, sizeof key, "%s.block_count", architecture);
    gguf_build_int(&b, key, GGUF_U32, n_layers);
    snprintf(key, sizeof key, "%s.attention.head_count", architecture);
    gguf_build_int(&b, key, GGUF_U32, 64);
    snprintf(key, sizeof key, "%s.attention.head_count_kv", architecture);
    if (n_kv_heads) gguf_build_int(&b, key, GGUF_U32, n_kv_heads);
    for (int i = 0; i < 5; i++) {
        snprintf(name, sizeof name, "blk.%d.attn_v.weight", i);
        add_matrix(&b, name, COLUMNS, 1);
    }
    gguf_build_finish(&b);
    gguf_build_write(&b, p->source);
    gguf_build_close(&b);
    must_quantize(p, mixture, NULL, &g);
    const enum dtype type = gguf_find_tensor(&g, "blk.4.attn_v.weight")->type;
    gguf_close(&g);
    return type;
}

static void values_of_many_query_heads_have_more_bits(void **state) {
    const struct paths *p = *state;
    assert_int_equal(fifth_values(p, "Q4_K_S", "llama", 80, 8), DTYPE_Q5_K);  // Llama 2 70B
    assert_int_equal(fifth_values(p, "Q4_K_S", "llama", 80, 64), DTYPE_Q4_K); // LLaMA 65B
    assert_int_equal(fifth_values(p, "Q4_K_S", "llama", 80, 0),
                     DTYPE_Q4_K); // as many as query heads
    assert_int_equal(fifth_values(p, "Q4_K_S", "llama", 79, 8), DTYPE_Q4_K);
    assert_int_equal(fifth_values(p, "Q4_K_S", "qwen2", 80, 64), DTYPE_Q5_K); // Qwen1.5 72B
    assert_int_equal(fifth_values(p, "Q4_K_S", "qwen2vl", 80, 8),
                     DTYPE_Q4_K); // a family without the rule
    // Four heads and more share values: with two bits for the rest they cost little.
    assert_int_equal(fifth_values(p, "Q2_K", "llama", 5, 17), DTYPE_Q3_K);
    assert_int_equal(fifth_values(p, "Q2_K", "qwen3", 5, 16), DTYPE_Q4_K);
    assert_int_equal(fifth_values(p, "Q2_K", "qwen3", 5, 0), DTYPE_Q3_K);
    assert_int_equal(fifth_values(p, "Q2_K", "llama", 80, 8), DTYPE_Q5_K);
    assert_int_equal(fifth_values(p, "IQ4_NL", "qwen3", 5, 16), DTYPE_Q5_K);
}

// Quantises by rules of the user; *g is left as it was where that fails.
static enum status quantize_by(const struct paths *p, const char *type, struct type_wishes wishes,
                               struct gguf *g, struct err *e) {
    struct quantize_options o = {
        .source = p->source, .target = p->target, .types = wishes, .n_threads = 2};
    struct quantize_result result;
    assert_int_equal(mixture_find(&o.mixture, type, e), OK);
    unlink(p->target);
    const enum status status = quantize_file(&o, &result, e);
    if (!status) assert_int_equal(gguf_open(g, p->target, e), OK);
    return status;
}

static void rules_go_before_the_mixture(void **state) {
    const struct paths *p = *state;
    struct gguf g;
    struct err e;
    write_model(p->source, 8, false);
    struct type_wishes wishes = {.output = "q5_1", .embedding = "F16", .pure = true};
    assert_int_equal(quantize_by(p, "Q4_K_M", wishes, &g, &e), OK);
    assert_type(&g, "output.weight", DTYPE_Q5_1);
    assert_type(&g, "token_embd.weight", DTYPE_F16);
    assert_type(&g, "odd.weight", DTYPE_Q5_0);
    assert_layer(&g, 1, "attn_v", DTYPE_Q4_K);
    assert_layer(&g, 1, "ffn_down_exps", DTYPE_Q4_K);
    assert_layer(&g, 1, "ffn_gate_inp", DTYPE_F32);
    gguf_close(&g);
    wishes = (struct type_wishes){.leave_output = true};
    assert_int_equal(quantize_by(p, "Q4_K_M", wishes, &g, &e), OK);
    assert_type(&g, "output.weight", DTYPE_F32);
    gguf_close(&g);
    write_model(p->source, 1, true); // the embedding is the output, too
    wishes = (struct type_wishes){.output = "q5_1", .leave_output = true};
    assert_int_equal(quantize_by(p, "Q4_K_M", wishes, &g, &e), OK);
    assert_type(&g, "token_embd.weight", DTYPE_Q5_1);
    gguf_close(&g);
    wishes.embedding = "q8_0";
    assert_int_equal(quantize_by(p, "Q4_K_M", wishes, &g, &e), OK);
    assert_type(&g, "token_embd.weight", DTYPE_Q8_0);
    gguf_close(&g);
}

// The first pattern that matches decides, and what the mixture does not choose does not count among
// the first layers that it gives more bits.
static void patterns_name_matrices(void **state) {
    const struct paths *p = *state;
    static const char *const named[] = {"BLK.0.ATTN_V=q8_0", "(?=blk)blk\\.\\d\\.attn_v=F16",
                                        "norm|gate_inp=q8_0"};
    static const char more[] = " blk.1[01].attn_v=bf16\n\todd=iq4_xs\r\n\n";
    struct gguf g;
    struct err e;
    write_model(p->source, 1, false);
    write_bytes(p->importance, more, sizeof more - 1);
    const struct type_wishes wishes = {
        .named = named, .n_named = 3, .named_file = p->importance, .embedding = "q5_0"};
    assert_int_equal(quantize_by(p, "Q4_K_S", wishes, &g, &e), OK);
    assert_layer(&g, 0, "attn_v", DTYPE_Q8_0);
    assert_layer(&g, 9, "attn_v", DTYPE_F16);
    assert_layer(&g, 10, "attn_v", DTYPE_BF16);
    for (int i = 12; i < LAYERS; i++) assert_layer(&g, i, "attn_v", DTYPE_Q5_K);
    assert_layer(&g, 3, "attn_norm", DTYPE_F32);
    assert_layer(&g, 3, "ffn_gate_inp", DTYPE_F32);
    assert_type(&g, "odd.weight", DTYPE_IQ4_NL); // its columns fit no larger blocks
    assert_type(&g, "token_embd.weight", DTYPE_Q5_0);
    gguf_close(&g);
    assert_int_equal(quantize_by(p, "F16", wishes, &g, &e), OK);
    assert_layer(&g, 0, "attn_v", DTYPE_Q8_0);
    assert_layer(&g, 0, "attn_k", DTYPE_F16);
    gguf_close(&g);
}

static void impossible_patterns_are_refused(void **state) {
    const struct paths *p = *state;
    static const struct {
        const char *text, *words;
    } wrong[] = {{"attn_v", "cannot be read"},    {"=q8_0", "cannot be read"},
                 {"attn_v=", "cannot be read"},   {"attn_v=q9", "cannot be made"},
                 {"attn_(v=q8_0", "character 8"}, {"((.+)+)+[#%]=q8_0", "too long"}};
    struct gguf g;
    struct err e;
    write_model(p->source, 1, false);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        const struct type_wishes one = {.named = &wrong[i].text, .n_named = 1};
        const struct type_wishes in_file = {.named_file = p->importance};
        assert_int_equal(quantize_by(p, "Q8_0", one, &g, &e), ERR_USAGE);
        if (!strstr(e.what, wrong[i].words)) fail_msg("%s: %s", wrong[i].text, e.what);
        write_bytes(p->importance, wrong[i].text, strlen(wrong[i].text));
        assert_int_equal(quantize_by(p, "Q8_0", in_file, &g, &e), ERR_USAGE);
    }
    const struct type_wishes none = {.named_file = p->folder};
    assert_int_equal(quantize_by(p, "Q8_0", none, &g, &e), ERR_FILE);
}

static void count_warnings(void *context, enum log_level level, const char *text) {
    assert_int_equal(level, LOG_WARN);
    assert_non_null(strstr(text, "attn_q2=Q8_0"));
    ++*(int *)context;
}

static void patterns_without_a_matrix_are_told(void **state) {
    const struct paths *p = *state;
    static const char *const named[] = {"attn_v=q8_0", "attn_q2=q8_0"};
    int n_warnings = 0;
    const struct log log = {.level = LOG_WARN, .tell = count_warnings, .context = &n_warnings};
    struct quantize_options o = {.source = p->source,
                                 .target = p->target,
                                 .types = {.named = named, .n_named = 2},
                                 .n_threads = 1,
                                 .log = &log};
    struct quantize_result result;
    struct err e;
    write_model(p->source, 1, false);
    assert_int_equal(mixture_find(&o.mixture, "Q4_0", &e), OK);
    assert_int_equal(quantize_file(&o, &result, &e), OK);
    assert_int_equal(n_warnings, 1);
}

static void impossible_rules_are_refused(void **state) {
    const struct paths *p = *state;
    struct gguf g;
    struct err e;
    write_model(p->source, 1, false);
    assert_int_equal(quantize_by(p, "Q8_0", (struct type_wishes){.output = "Q9"}, &g, &e),
                     ERR_USAGE);
    assert_non_null(strstr(e.expected, "Q4_K"));
    assert_int_equal(quantize_by(p, "Q8_0", (struct type_wishes){.embedding = "IQ1_S"}, &g, &e),
                     ERR_USAGE);
    assert_int_equal(quantize_by(p, "COPY", (struct type_wishes){.pure = true}, &g, &e), ERR_USAGE);
}

// Small matrices of models that see and hear.
static void matrices_of_eyes_and_ears_stay(void **state) {
    const struct paths *p = *state;
    static const char *const kept[] = {"v.sam.pos_embd.weight", "v.sam.neck.0.weight",
                                       "v.sam.net_2.weight",    "a.rvq.codebook.weight",
                                       "mm.a.code_embd.weight", "v.patch_embd.weight"};
    struct gguf_build b;
    struct gguf g;
    gguf_build_init(&b);
    gguf_build_text(&b, "general.architecture", "clip");
    for (int i = 0; i < 6; i++) add_matrix(&b, kept[i], COLUMNS, 1);
    add_matrix(&b, "v.blk.0.attn_q.weight", COLUMNS, 1);
    gguf_build_finish(&b);
    gguf_build_write(&b, p->source);
    gguf_build_close(&b);
    must_quantize(p, "Q4_0", NULL, &g);
    for (int i = 0; i < 6; i++) assert_type(&g, kept[i], DTYPE_F32);
    assert_type(&g, "v.blk.0.attn_q.weight", DTYPE_Q4_0);
    gguf_close(&g);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, make_paths, remove_paths)
    const struct CMUnitTest tests[] = {
        TEST(types_follow_the_rules),
        TEST(two_bits_have_their_rules),
        TEST(uneven_values_have_their_rules),
        TEST(tied_and_expert_models_have_their_rules),
        TEST(sizes_of_a_mixture_have_their_rules),
        TEST(values_of_many_query_heads_have_more_bits),
        TEST(rules_go_before_the_mixture),
        TEST(impossible_rules_are_refused),
        TEST(patterns_name_matrices),
        TEST(impossible_patterns_are_refused),
        TEST(patterns_without_a_matrix_are_told),
        TEST(matrices_of_eyes_and_ears_stay),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

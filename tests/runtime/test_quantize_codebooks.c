/* test_quantize_codebooks.c: the types of files with codebooks of two and three bits, the
 * importance that they need, and that what is written is read again. */
#include "tests/lib/quantize_model.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

static const char *const PARTS[] = {"attn_q",   "attn_k", "attn_v",  "attn_output",
                                    "ffn_gate", "ffn_up", "ffn_down"};
enum { N_PARTS = 7 };

static void write_source(const char *path, uint64_t n_heads, uint64_t n_experts) {
    struct gguf_build b;
    char name[64];
    gguf_build_init(&b);
    gguf_build_text(&b, "general.architecture", "llama");
    gguf_build_int(&b, "llama.block_count", GGUF_U32, LAYERS);
    gguf_build_int(&b, "llama.attention.head_count", GGUF_U32, n_heads);
    gguf_build_int(&b, "llama.attention.head_count_kv", GGUF_U32, 1);
    if (n_experts) gguf_build_int(&b, "llama.expert_count", GGUF_U32, n_experts);
    add_matrix(&b, "token_embd.weight", COLUMNS, 1);
    add_matrix(&b, "output.weight", COLUMNS, 1);
    for (int i = 0; i < LAYERS * N_PARTS; i++) {
        snprintf(name, sizeof name, "blk.%d.%s.weight", i / N_PARTS, PARTS[i % N_PARTS]);
        add_matrix(&b, name, COLUMNS, 1);
    }
    add_matrix(&b, "odd.weight", 96, 1);
    gguf_build_finish(&b);
    gguf_build_write(&b, path);
    gguf_build_close(&b);
}

static void write_importance(const char *path) {
    static float sums[COLUMNS];
    const float count = 1;
    struct gguf_build b;
    char name[80];
    for (int i = 0; i < COLUMNS; i++) sums[i] = (float)(1 + i % 5);
    gguf_build_init(&b);
    for (int i = 0; i < LAYERS * N_PARTS; i++) {
        snprintf(name, sizeof name, "blk.%d.%s.weight.in_sum2", i / N_PARTS, PARTS[i % N_PARTS]);
        gguf_build_tensor(&b, name, 1, (const uint64_t[]){COLUMNS}, DTYPE_F32, sums);
        snprintf(name, sizeof name, "blk.%d.%s.weight.counts", i / N_PARTS, PARTS[i % N_PARTS]);
        gguf_build_tensor(&b, name, 1, (const uint64_t[]){1}, DTYPE_F32, &count);
    }
    gguf_build_finish(&b);
    gguf_build_write(&b, path);
    gguf_build_close(&b);
}

static int make_files(void **state) {
    if (make_paths(state)) return -1;
    write_importance(((const struct paths *)*state)->importance);
    return 0;
}

// Types of parts in the first, the second, a middle and the last layer, of the embedding and of the
// output, as llama-quantize gives them.
struct expected {
    const char *type;
    bool important;
    uint64_t n_heads, n_experts;
    enum dtype parts[N_PARTS][4];
    enum dtype embedding, output, odd;
};

#define ALL(t) \
    { DTYPE_##t, DTYPE_##t, DTYPE_##t, DTYPE_##t }
#define TWO(a, b) \
    { DTYPE_##a, DTYPE_##a, DTYPE_##b, DTYPE_##b }

static const struct expected EXPECTED[] = {
    {"IQ3_M",
     false,
     1,
     0,
     {ALL(IQ3_S), ALL(IQ3_S), ALL(Q4_K), ALL(Q4_K), ALL(IQ3_S), ALL(IQ3_S), TWO(Q4_K, IQ3_S)},
     DTYPE_IQ3_S,
     DTYPE_Q6_K,
     DTYPE_IQ4_NL},
    {"IQ3_S",
     false,
     4,
     0,
     {ALL(IQ3_S), ALL(IQ3_S), ALL(Q4_K), ALL(IQ3_S), ALL(IQ3_S), ALL(IQ3_S), ALL(IQ3_S)},
     DTYPE_IQ3_S,
     DTYPE_Q6_K,
     DTYPE_IQ4_NL},
    {"IQ3_XS",
     true,
     1,
     0,
     {ALL(IQ3_XXS),
      ALL(IQ3_XXS),
      ALL(IQ3_S),
      ALL(IQ3_S),
      {DTYPE_IQ3_S, DTYPE_IQ3_S, DTYPE_IQ3_XXS, DTYPE_IQ3_S},
      {DTYPE_IQ3_S, DTYPE_IQ3_S, DTYPE_IQ3_XXS, DTYPE_IQ3_S},
      ALL(IQ3_S)},
     DTYPE_IQ3_S,
     DTYPE_Q6_K,
     DTYPE_IQ4_NL},
    {"IQ3_XXS",
     true,
     1,
     0,
     {ALL(IQ2_S), ALL(IQ2_S), ALL(IQ3_XXS), ALL(IQ3_S), ALL(IQ3_XXS), ALL(IQ3_XXS), ALL(IQ3_XXS)},
     DTYPE_IQ3_S,
     DTYPE_Q5_K,
     DTYPE_IQ4_NL},
    {"IQ2_M",
     true,
     1,
     0,
     {ALL(IQ2_S), ALL(IQ2_S), ALL(IQ3_S), ALL(IQ3_S), ALL(IQ2_S), ALL(IQ2_S), TWO(IQ3_S, IQ2_S)},
     DTYPE_IQ3_S,
     DTYPE_Q5_K,
     DTYPE_IQ4_NL},
    {"IQ2_S",
     true,
     4,
     0,
     {ALL(IQ2_XS), ALL(IQ2_XS), ALL(Q4_K), ALL(IQ3_S), ALL(IQ2_XS), ALL(IQ2_XS),
      TWO(IQ3_S, IQ2_XS)},
     DTYPE_IQ3_S,
     DTYPE_Q5_K,
     DTYPE_IQ4_NL},
    {"IQ2_XS",
     true,
     1,
     8,
     {ALL(IQ2_XS), ALL(Q4_K), ALL(Q4_K), ALL(Q5_K), ALL(IQ2_XS), ALL(IQ2_XS), TWO(Q2_K, IQ2_XS)},
     DTYPE_Q2_K,
     DTYPE_Q5_K,
     DTYPE_IQ4_NL},
    {"IQ2_XXS",
     true,
     1,
     0,
     {ALL(IQ2_XXS), ALL(IQ2_XXS), ALL(Q2_K), ALL(IQ2_XXS), ALL(IQ2_XXS), ALL(IQ2_XXS),
      TWO(Q2_K, IQ2_XXS)},
     DTYPE_Q2_K,
     DTYPE_Q5_K,
     DTYPE_IQ4_NL},
    {"TQ1_0",
     false,
     1,
     0,
     {ALL(TQ1_0), ALL(TQ1_0), ALL(TQ1_0), ALL(TQ1_0), ALL(TQ1_0), ALL(TQ1_0), ALL(TQ1_0)},
     DTYPE_Q4_K,
     DTYPE_Q6_K,
     DTYPE_Q4_0},
    {"TQ2_0",
     false,
     1,
     0,
     {ALL(TQ2_0), ALL(TQ2_0), ALL(TQ2_0), ALL(TQ2_0), ALL(TQ2_0), ALL(TQ2_0), ALL(TQ2_0)},
     DTYPE_Q4_K,
     DTYPE_Q6_K,
     DTYPE_Q4_0},
};

static void assert_file_has(const struct gguf *g, const char *file, const char *name,
                            enum dtype type) {
    const struct gguf_tensor *t = gguf_find_tensor(g, name);
    assert_non_null(t);
    if (t->type != type)
        fail_msg("%s: %s is %s, not %s", file, name, dtype_name(t->type), dtype_name(type));
}

static void types_follow_the_rules(void **state) {
    const struct paths *p = *state;
    static const int layers[] = {0, 1, 7, LAYERS - 1};
    struct quantize_result result;
    struct gguf g;
    struct err e;
    char name[64];
    for (size_t c = 0; c < sizeof EXPECTED / sizeof *EXPECTED; c++) {
        const struct expected *x = &EXPECTED[c];
        write_source(p->source, x->n_heads, x->n_experts);
        assert_int_equal(quantize(p, x->type, x->important ? p->importance : NULL, &result, &e),
                         OK);
        assert_int_equal(gguf_open(&g, p->target, &e), OK);
        for (int i = 0; i < 4 * N_PARTS; i++) {
            snprintf(name, sizeof name, "blk.%d.%s.weight", layers[i % 4], PARTS[i / 4]);
            assert_file_has(&g, x->type, name, x->parts[i / 4][i % 4]);
        }
        assert_file_has(&g, x->type, "token_embd.weight", x->embedding);
        assert_file_has(&g, x->type, "output.weight", x->output);
        assert_file_has(&g, x->type, "odd.weight", x->odd);
        gguf_close(&g);
    }
}

// Where fewer bits cannot do without importance, the error says so before anything is written.
static void the_smallest_need_importance(void **state) {
    const struct paths *p = *state;
    static const char *const need[] = {"IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ2_M", "IQ3_XXS", "IQ3_XS"};
    struct quantize_result result;
    struct err e;
    write_source(p->source, 1, 0);
    for (size_t i = 0; i < sizeof need / sizeof *need; i++) {
        assert_int_equal(quantize(p, need[i], NULL, &result, &e), ERR_UNSUPPORTED);
        assert_non_null(strstr(e.what, "needs the importance of the columns of blk.0.attn_"));
        assert_non_null(strstr(e.fix, "--imatrix FILE, or take "));
        assert_int_not_equal(access(p->target, F_OK), 0);
    }
    const struct mixture *m;
    assert_int_equal(mixture_find(&m, "IQ3", &e), ERR_USAGE); // the medium one has no short name
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(types_follow_the_rules, make_files, remove_paths),
        cmocka_unit_test_setup_teardown(the_smallest_need_importance, make_files, remove_paths),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* test_quantize_importance.c: tests of runtime/quantize/importance.h: which entries count, what the
 * new file says of them, refused allocations. */
// link: wrap-alloc
#include "kernels/cpu/cpu.h"
#include "tests/lib/alloc_fail.h"
#include "tests/lib/quantize_model.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

enum { ROWS = 4 };

static const char *const NAMES[] = {"blk.0.attn_q.weight", "blk.0.ffn_down.weight",
                                    "blk.1.ffn_down.weight"};
enum { N_NAMES = 3 };

static void write_source(const char *path) {
    static float values[COLUMNS * ROWS];
    struct gguf_build b;
    for (int i = 0; i < COLUMNS * ROWS; i++) values[i] = sinf((float)(i * i % 1009));
    gguf_build_init(&b);
    gguf_build_text(&b, "general.architecture", "llama");
    gguf_build_int(&b, "llama.block_count", GGUF_U32, 2);
    for (int i = 0; i < N_NAMES; i++)
        gguf_build_tensor(&b, NAMES[i], 2, (const uint64_t[]){COLUMNS, ROWS}, DTYPE_F32, values);
    gguf_build_finish(&b);
    gguf_build_write(&b, path);
    gguf_build_close(&b);
}

static void write_importance(const char *path) {
    static float sums[COLUMNS];
    const float count = 1;
    struct gguf_build b;
    char name[64];
    for (int i = 0; i < COLUMNS; i++) sums[i] = i % 8 == 3 ? 1000 : 0.001F;
    gguf_build_init(&b);
    gguf_build_text(&b, "general.type", "imatrix");
    for (int i = 0; i < N_NAMES; i++) {
        snprintf(name, sizeof name, "%s.in_sum2", NAMES[i]);
        gguf_build_tensor(&b, name, 2, (const uint64_t[]){COLUMNS, 1}, DTYPE_F32, sums);
        snprintf(name, sizeof name, "%s.counts", NAMES[i]);
        gguf_build_tensor(&b, name, 2, (const uint64_t[]){1, 1}, DTYPE_F32, &count);
    }
    gguf_build_finish(&b);
    gguf_build_write(&b, path);
    gguf_build_close(&b);
}

static int make_files(void **state) {
    if (make_paths(state)) return -1;
    const struct paths *p = *state;
    write_source(p->source);
    write_importance(p->importance);
    return 0;
}

static void count_warnings(void *context, enum log_level level, const char *text) {
    (void)text;
    *(int *)context += level == LOG_WARN;
}

static enum status quantize_by(const struct paths *p, const struct importance_choice *choice,
                               int *n_warnings, struct quantize_result *result, struct err *e) {
    const struct log log = {.level = LOG_WARN, .tell = count_warnings, .context = n_warnings};
    struct quantize_options o = {.source = p->source,
                                 .target = p->target,
                                 .importance = p->importance,
                                 .important = *choice,
                                 .n_threads = 1,
                                 .log = &log};
    assert_int_equal(mixture_find(&o.mixture, "Q4_K_M", e), OK);
    unlink(p->target);
    return quantize_file(&o, result, e);
}

// The weighted squared error of a matrix of the new file.
static double error_of(const struct paths *p, const char *name) {
    struct gguf before, after;
    struct err e;
    float rows[2][COLUMNS];
    double sum = 0;
    enum weight_type type;
    assert_int_equal(gguf_open(&before, p->source, &e), OK);
    assert_int_equal(gguf_open(&after, p->target, &e), OK);
    const struct gguf_tensor *a = gguf_find_tensor(&before, name);
    const struct gguf_tensor *b = gguf_find_tensor(&after, name);
    assert_true(dtype_weight(b->type, &type));
    for (uint64_t r = 0; r < ROWS; r++) {
        memcpy(rows[0], a->data + r * sizeof rows[0], sizeof rows[0]);
        dequantize_row(type, b->data + r * dtype_bytes(b->type, COLUMNS), rows[1], COLUMNS);
        for (int i = 3; i < COLUMNS; i += 8) sum += pow((double)rows[0][i] - (double)rows[1][i], 2);
    }
    gguf_close(&before);
    gguf_close(&after);
    return sum;
}

static uint64_t entries_told(const struct paths *p) {
    struct gguf g;
    struct err e;
    uint64_t n = UINT64_MAX;
    assert_int_equal(gguf_open(&g, p->target, &e), OK);
    assert_int_equal(gguf_read_u64(&g, "quantize.imatrix.entries_count", 0, 99, &n, &e), OK);
    gguf_close(&g);
    return n;
}

static void only_chosen_entries_count(void **state) {
    const struct paths *p = *state;
    static const char *const texts[] = {"blk.0.", "1.ffn"};
    static const struct {
        struct importance_choice choice;
        bool has[N_NAMES];
    } cases[] = {{{NULL, 0, false}, {true, true, true}},
                 {{texts, 1, false}, {true, true, false}},
                 {{texts, 1, true}, {false, false, true}},
                 {{texts, 2, false}, {true, true, true}},
                 {{texts + 1, 1, true}, {true, true, false}}};
    struct quantize_result result;
    struct err e;
    double with = 0, without[N_NAMES] = {0};
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        int n_warnings = 0;
        uint32_t n = 0;
        assert_int_equal(quantize_by(p, &cases[c].choice, &n_warnings, &result, &e), OK);
        for (int i = 0; i < N_NAMES; i++) {
            const double error = error_of(p, NAMES[i]);
            n += cases[c].has[i];
            if (c == 0 && i == 0) with = error;
            if (cases[c].has[i] && i < 1) assert_true(error == with);
            if (!cases[c].has[i]) without[i] = error;
        }
        assert_int_equal(result.n_important, n);
        assert_int_equal(entries_told(p), n);
        assert_int_equal(n_warnings, 0);
    }
    assert_true(with < 0.5 * without[0]);
}

static void texts_without_an_entry_are_told(void **state) {
    const struct paths *p = *state;
    static const char *const texts[] = {"attn_q", "attn_Q", ""};
    struct quantize_result result;
    struct err e;
    int n_warnings = 0;
    assert_int_equal(
        quantize_by(p, &(struct importance_choice){texts, 2, true}, &n_warnings, &result, &e), OK);
    assert_int_equal(n_warnings, 1);
    assert_int_equal(entries_told(p), 2);
    assert_int_equal(
        quantize_by(p, &(struct importance_choice){texts + 1, 1, false}, &n_warnings, &result, &e),
        ERR_USAGE);
    assert_non_null(strstr(e.what, "--include-weights"));
    assert_int_equal(
        quantize_by(p, &(struct importance_choice){texts, 3, true}, &n_warnings, &result, &e),
        ERR_USAGE);
    assert_non_null(strstr(e.what, "--exclude-weights"));
    assert_int_not_equal(access(p->target, F_OK), 0);
}

// Sizes of another model are told with those that fit, and what to do.
static void sizes_of_another_model_are_refused(void **state) {
    const struct paths *p = *state;
    struct gguf_tensor t = {.name = {NAMES[0], strlen(NAMES[0])}, .ne = {COLUMNS / 2, ROWS, 3, 1}};
    struct importance m;
    struct err e;
    const float *values;
    bool per_matrix;
    assert_int_equal(importance_open(&m, p->importance, &e), OK);
    assert_int_equal(importance_find(&m, &t, &values, &per_matrix, &e), ERR_FORMAT);
    assert_non_null(strstr(e.what, NAMES[0]));
    assert_string_equal(e.expected, "384 values, or 128 for all matrices");
    assert_string_equal(e.actual, "256");
    assert_non_null(strstr(e.fix, "tandem imatrix"));
    importance_close(&m);
}

static void refused_allocations_are_errors(void **state) {
    const struct paths *p = *state;
    static const char *const texts[] = {"ffn"};
    const struct importance_choice choice = {texts, 1, false};
    struct importance m;
    struct err e;
    enum status status = ERR_MEMORY;
    for (int n = 1; status; n++) {
        assert_true(n < 100);
        alloc_fail_at(n);
        status = importance_open(&m, p->importance, &e);
        if (!status) status = importance_choose(&m, &choice, NULL, &e);
        alloc_fail_at(0);
        if (status) assert_int_equal(status, ERR_MEMORY);
        importance_close(&m);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(only_chosen_entries_count, make_files, remove_paths),
        cmocka_unit_test_setup_teardown(texts_without_an_entry_are_told, make_files, remove_paths),
        cmocka_unit_test_setup_teardown(sizes_of_another_model_are_refused, make_files,
                                        remove_paths),
        cmocka_unit_test_setup_teardown(refused_allocations_are_errors, make_files, remove_paths),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

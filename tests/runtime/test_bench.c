/* test_bench.c: tests of runtime/measure/bench_*.h: lists and ranges, their combinations, what is
 * timed, statistics, formats, what a token takes at least, strategies. */
#include "base/mem.h"
#include "runtime/measure/bench_estimate.h"
#include "runtime/measure/bench_format.h"
#include "runtime/measure/bench_measure.h"
#include "runtime/measure/bench_plot.h"
#include "runtime/measure/bench_record.h"
#include "runtime/measure/bench_strategies.h"
#include "tests/lib/tiny_model.h"

#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static void assert_says(const struct err *e, const char *text) {
    char line[1024];
    err_text(e, line, sizeof line);
    if (!strstr(line, text)) fail_msg("'%s' does not say '%s'", line, text);
}

static void assert_close(double got, double want) {
    if (!(fabs(got - want) <= 1e-9 * fabs(want))) fail_msg("%.12g instead of %.12g", got, want);
}

// ---- Lists --------------------------------------------------------------------------------------

// The values of a list as text, "1 2 4"; the first message if it is none.
static const char *values_of(const char *text) {
    static char out[4096];
    struct bench_values values = {.n = 0};
    struct err e = {0};
    if (bench_values_add(&values, "-p", text, -1, 5000, &e)) {
        assert_int_equal(e.status, ERR_USAGE);
        return err_text(&e, out, sizeof out);
    }
    size_t used = 0;
    *out = 0;
    for (int32_t i = 0; i < values.n; i++)
        used += (size_t)snprintf(out + used, sizeof out - used, "%s%lld", i ? " " : "",
                                 (long long)values.values[i]);
    return out;
}

static void lists_and_ranges(void **state) {
    (void)state;
    assert_string_equal(values_of("4"), "4");
    assert_string_equal(values_of("1,2,4"), "1 2 4");
    assert_string_equal(values_of("1-8"), "1 2 3 4 5 6 7 8");
    assert_string_equal(values_of("1-8+2"), "1 3 5 7");
    assert_string_equal(values_of("1-64*2"), "1 2 4 8 16 32 64");
    assert_string_equal(values_of("3-50*4"), "3 12 48");
    assert_string_equal(values_of("-1,0,16-16,5-6"), "-1 0 16 5 6");
    assert_string_equal(values_of("7-8+100"), "7");
}

static void bad_lists_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *text, *says;
    } bad[] = {
        {"", "ranges such as"},
        {",", "got ''"},
        {"1,", "got ''"},
        {"1,,2", "got ''"},
        {"x", "got 'x'"},
        {" 1", "got ' 1'"},
        {"1.5", "got '1.5'"},
        {"1-", "got '1-'"},
        {"1-2-3", "got '1-2-3'"},
        {"1-8+", "got '1-8+'"},
        {"1-8/2", "got '1-8/2'"},
        {"1-8+2+2", "got '1-8+2+2'"},
        {"-1-5", "got '-1-5'"},
        {"--1", "got '--1'"},
        {"99999999999999999999", "got '99999999999999999999'"},
        {"-2", "from -1 to 5000"},
        {"5001", "from -1 to 5000"},
        {"1-5001", "from -1 to 5000"},
        {"5-1", "5-1 is empty"},
        {"1-8+0", "never ends"},
        {"1-8*1", "never ends"},
        {"1-8*0", "never ends"},
        {"0-8*2", "never ends"},
        {"1-5000", "more than 256 values"},
        {"1111111111222222222233333333334444444444555555555566666666667777", "ranges such as"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const char *text = values_of(bad[i].text);
        if (!strstr(text, bad[i].says))
            fail_msg("'%s': '%s' does not say '%s'", bad[i].text, text, bad[i].says);
        assert_non_null(strstr(text, "-p"));
    }
}

// ---- Combinations -------------------------------------------------------------------------------

static struct text_list list_of(const char *a, const char *b) {
    return (struct text_list){{a, b}, (a != NULL) + (b != NULL)};
}

static struct bench_options options_with_model(void) {
    return (struct bench_options){.models = list_of("a.gguf", NULL), .n_repeats = 5};
}

static void defaults_are_those_of_llama_bench(void **state) {
    (void)state;
    struct bench_options o = options_with_model();
    struct bench_matrix m;
    struct err e = {0};
    char name[64];
    assert_int_equal(bench_matrix_open(&m, &o, &e), OK);
    assert_int_equal(m.n_configs, 1);
    assert_string_equal(m.configs[0].model, "a.gguf");
    assert_int_equal(m.configs[0].gpu_layers, GPU_LAYERS_AUTO);
    assert_int_equal(m.configs[0].n_batch, 2048);
    assert_int_equal(m.configs[0].n_ubatch, 0);
    assert_int_equal(m.configs[0].n_threads, 0);
    assert_int_equal(m.configs[0].vram_bytes, 0);
    assert_int_equal(m.configs[0].kv_type_k, DTYPE_F16);
    assert_int_equal(m.n_tests, 2);
    assert_string_equal(bench_test_name(&m.tests[0], name, sizeof name), "pp512");
    assert_string_equal(bench_test_name(&m.tests[1], name, sizeof name), "tg128");
    assert_int_equal(bench_matrix_context(&m), 512);
    bench_matrix_close(&m);
    assert_null(m.configs);
}

static void every_combination_is_there_once(void **state) {
    (void)state;
    struct bench_options o = options_with_model();
    struct bench_matrix m;
    struct err e = {0};
    o.models = list_of("a.gguf", "b.gguf");
    o.vram = list_of("1G,2G", NULL);
    o.gpu_layers = list_of("auto,0-2", "all");
    o.n_ubatch = list_of("0", "16-64*2");
    o.kv_type_k = list_of("f16,q8_0", NULL);
    o.n_threads = list_of("-1,1", NULL);
    assert_int_equal(bench_matrix_open(&m, &o, &e), OK);
    assert_int_equal(m.n_configs, 2 * 2 * 5 * 4 * 2 * 2);
    // The last list varies fastest.
    assert_int_equal(m.configs[0].n_threads, 0);
    assert_int_equal(m.configs[1].n_threads, 1);
    assert_int_equal(m.configs[2].kv_type_k, DTYPE_Q8_0);
    assert_int_equal(m.configs[4].n_ubatch, 16);
    assert_int_equal(m.configs[16].gpu_layers, 0);
    assert_int_equal(m.configs[4 * 16].gpu_layers, GPU_LAYERS_ALL);
    assert_true(m.configs[79].vram_bytes == 1u << 30 && m.configs[80].vram_bytes == 2u << 30);
    assert_string_equal(m.configs[159].model, "a.gguf");
    assert_string_equal(m.configs[160].model, "b.gguf");
    for (int32_t i = 0; i < m.n_configs; i++)
        for (int32_t k = 0; k < i; k++)
            assert_memory_not_equal(&m.configs[i], &m.configs[k], sizeof m.configs[i]);
    bench_matrix_close(&m);
}

// A comma and another -ot begin another placement, as in llama-bench, but one in a pattern does
// not.
static void overrides_are_placements(void **state) {
    (void)state;
    static const struct bench_overrides want[] = {
        {"a=CPU;b=GPU", "a=CPU,b=GPU"},
        {"c{1,2}=CPU;x,y=GPU", "c{1,2}=CPU,x,y=GPU"},
        {"none", NULL},
        {"(?<=d)e{3,}=CPU", "(?<=d)e{3,}=CPU"},
        {"none", NULL},
        {"a=CPU", "a=CPU"},
        {"f=CPU", "f=CPU"},
        {"none", NULL},
    };
    enum { N = sizeof want / sizeof *want };
    struct bench_options o = options_with_model();
    struct bench_matrix m;
    struct err e = {0};
    assert_int_equal(bench_matrix_open(&m, &o, &e), OK);
    assert_string_equal(m.configs[0].overrides.text, "none");
    assert_null(m.configs[0].overrides.patterns);
    bench_matrix_close(&m);
    o.tensor_overrides = list_of("a=CPU;b=GPU,c{1,2}=CPU;x,y=GPU,,(?<=d)e{3,}=CPU;,", "a=CPU");
    o.tensor_overrides.texts[o.tensor_overrides.n++] = "f=CPU;,;";
    o.gpu_layers = list_of("0,1", NULL);
    o.n_batch = list_of("1-3", NULL);
    assert_int_equal(bench_matrix_open(&m, &o, &e), OK);
    assert_int_equal(m.n_configs, 2 * N * 3);
    for (int32_t i = 0; i < m.n_configs; i++) { // batches vary faster, layers more slowly
        const struct bench_overrides *got = &m.configs[i].overrides, *due = &want[i / 3 % N];
        assert_string_equal(got->text, due->text);
        assert_int_equal(!got->patterns, !due->patterns);
        if (due->patterns) assert_string_equal(got->patterns, due->patterns);
    }
    bench_matrix_close(&m);
}

static void tests_come_by_depth_and_kind(void **state) {
    (void)state;
    static const char *const want[] = {"pp8",       "pp16",       "tg4",       "pp32+tg2",
                                       "pp8 @ d64", "pp16 @ d64", "tg4 @ d64", "pp32+tg2 @ d64"};
    struct bench_options o = options_with_model();
    struct bench_matrix m;
    struct err e = {0};
    char name[64];
    o.n_prompt = list_of("0,8-16*2", NULL);
    o.n_gen = list_of("4", NULL);
    o.prompt_gen = list_of("32,2", "0,0");
    o.n_depth = list_of("0,64", NULL);
    assert_int_equal(bench_matrix_open(&m, &o, &e), OK);
    assert_int_equal(m.n_tests, 8);
    for (int32_t i = 0; i < m.n_tests; i++)
        assert_string_equal(bench_test_name(&m.tests[i], name, sizeof name), want[i]);
    assert_int_equal(bench_matrix_context(&m), 98);
    bench_matrix_close(&m);
}

static void bad_combinations_are_refused(void **state) {
    (void)state;
    struct bench_matrix m;
    struct err e = {0};
    struct bench_options o = options_with_model();
    o.n_batch = list_of("1-65", NULL);
    o.n_ubatch = list_of("1-65", NULL);
    assert_int_equal(bench_matrix_open(&m, &o, &e), ERR_USAGE);
    assert_says(&e, "at most 4096, got 4225");
    o = options_with_model();
    o.n_depth = list_of("1-250", NULL);
    o.n_gen = list_of("1-250", NULL);
    assert_int_equal(bench_matrix_open(&m, &o, &e), ERR_USAGE);
    assert_says(&e, "too many tests");
    o = options_with_model();
    o.n_prompt = o.n_gen = list_of("0", NULL);
    assert_int_equal(bench_matrix_open(&m, &o, &e), ERR_USAGE);
    assert_says(&e, "nothing to measure");
    o = options_with_model();
    o.prompt_gen = list_of("8-9,4", NULL);
    assert_int_equal(bench_matrix_open(&m, &o, &e), ERR_USAGE);
    assert_says(&e, "such as 512,128, got '8-9,4'");
    o = options_with_model();
    o.kv_type_k = list_of("auto", NULL);
    assert_int_equal(bench_matrix_open(&m, &o, &e), ERR_USAGE);
    assert_says(&e, "auto is for the whole cache");
    o = options_with_model();
    o.vram = list_of("1G,", NULL);
    assert_int_equal(bench_matrix_open(&m, &o, &e), ERR_USAGE);
    assert_says(&e, "--vram");
    o = options_with_model();
    o.tensor_overrides = list_of("a=CPU", "b=CPU,c(=CPU");
    assert_int_equal(bench_matrix_open(&m, &o, &e), ERR_USAGE);
    assert_says(&e, "-ot pattern 'c('");
    assert_null(m.texts);
    assert_null(m.overrides);
    assert_null(m.configs);
    assert_null(m.tests);
}

// ---- Statistics ---------------------------------------------------------------------------------

static void statistics_of_few_values(void **state) {
    (void)state;
    const double values[] = {4, 1, 7, 2}, one[] = {3};
    double scratch[4];
    struct bench_stats s;
    bench_stats(values, 4, scratch, &s);
    assert_close(s.mean, 3.5);
    assert_close(s.stddev, sqrt(21.0 / 3));
    assert_close(s.median, 3);
    assert_close(s.least, 1);
    assert_close(s.most, 7);
    bench_stats(values, 3, scratch, &s);
    assert_close(s.median, 4);
    bench_stats(one, 1, scratch, &s);
    assert_close(s.median, 3);
    assert_true(s.stddev == 0);
    assert_true(values[0] == 4);
}

static void tokens_are_known_ones(void **state) {
    (void)state;
    int32_t different = 0;
    for (int32_t i = 0; i < 1000; i++) {
        const int32_t token = bench_token(i, 272);
        assert_in_range(token, 1, 271);
        assert_int_equal(token, bench_token(i, 272));
        different += token != bench_token(i + 1, 272);
    }
    assert_true(different > 950);
    assert_int_equal(bench_token(5, 1), 0);
}

// A clock that ticks with every token.
static uint64_t tokens_so_far(void *context) {
    return (uint64_t)session_length(*(struct session **)context);
}

// The cache is filled to a test's depth, or emptied down to it, before the clock starts.
static void only_the_test_is_timed(void **state) {
    static const struct bench_test tests[] = {
        {0, 1, 64}, {0, 1, 64}, {16, 0, 40}, {5, 3, 0}, {30, 2, 20}};
    (void)state;
    char path[64];
    struct bench_engine b;
    struct err e;
    uint64_t ticks;
    snprintf(path, sizeof path, "/tmp/tandem_test_bench.%d.gguf", (int)getpid());
    tiny_model_write(&(struct tiny_model){.n_layers = 1, .tied = true, .seed = 3}, path);
    const struct engine_options options = {
        .model_path = path,
        .device_spec = "none",
        .cpu = {.isa = ISA_AUTO, .n_threads = 1},
        .workload = {.n_ctx = 128, .n_ubatch = 32},
        .constraints = {.gpu_layers = GPU_LAYERS_AUTO},
    };
    assert_int_equal(bench_engine_open(&b, &options, 32, &e), OK);
    unlink(path);
    b.now_ns = tokens_so_far;
    b.clock_context = &b.session;
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) {
        const struct bench_test *test = &tests[i];
        assert_int_equal(bench_engine_run(&b, test, &ticks, &e), OK);
        assert_int_equal(ticks, test->n_prompt + test->n_gen);
        assert_int_equal(session_length(b.session), test->n_depth + test->n_prompt + test->n_gen);
    }
    bench_engine_close(&b);
}

// ---- Formats ------------------------------------------------------------------------------------

// Returns the writer's output for two records, of which the second has an unknown real. The caller
// frees it.
static char *written(enum bench_output format, int32_t n_rows) {
    static const uint64_t counts[] = {1, 2};
    static const double reals[] = {0.5, 1.5};
    static const struct bench_column columns[] = {{"name", 8, true}, {"t/s", 12, false}};
    static const char cells[2][2][BENCH_CELL_BYTES] = {{"a|b", "1.50 ± 0.25"}, {"c", "-"}};
    char *text = NULL;
    size_t size = 0;
    struct err e = {0};
    FILE *out = open_memstream(&text, &size);
    assert_non_null(out);
    struct bench_writer w = {out, format, "numbers", columns, 2, 0};
    for (int32_t i = 0; i < n_rows; i++) {
        const struct bench_field fields[] = {bench_text("name", i ? "it's" : "a \"b\", c"),
                                             bench_count("count", -7),
                                             bench_real("speed", i ? NAN : 2.5),
                                             bench_flag("flag", i == 0),
                                             bench_counts("samples_ns", counts, 2),
                                             bench_reals("samples_ts", reals, 2)};
        const struct bench_record record = {fields, 6, cells[i]};
        assert_int_equal(bench_writer_row(&w, &record, &e), OK);
    }
    assert_int_equal(bench_writer_end(&w, &e), OK);
    fclose(out);
    return text;
}

static void assert_written(enum bench_output format, int32_t n_rows, const char *want) {
    char *text = written(format, n_rows);
    assert_string_equal(text, want);
    free(text);
}

static void markdown_columns_line_up(void **state) {
    (void)state;
    assert_written(BENCH_MD, 2,
                   "| name     |          t/s |\n"
                   "| -------- | -----------: |\n"
                   "| a/b      |  1.50 ± 0.25 |\n"
                   "| c        |            - |\n");
    assert_written(BENCH_MD, 0, "");
}

static void csv_quotes_and_leaves_lists_out(void **state) {
    (void)state;
    assert_written(BENCH_CSV, 2,
                   "name,count,speed,flag\n"
                   "\"a \"\"b\"\", c\",\"-7\",\"2.500000\",\"1\"\n"
                   "\"it's\",\"-7\",,\"0\"\n");
}

static void sql_makes_a_table(void **state) {
    (void)state;
    assert_written(BENCH_SQL, 2,
                   "CREATE TABLE IF NOT EXISTS numbers (\n  name TEXT,\n  count INTEGER,\n"
                   "  speed REAL,\n  flag INTEGER\n);\n\n"
                   "INSERT INTO numbers (name, count, speed, flag) VALUES "
                   "('a \"b\", c', '-7', '2.500000', '1');\n"
                   "INSERT INTO numbers (name, count, speed, flag) VALUES "
                   "('it''s', '-7', NULL, '0');\n");
}

static void check_objects(json_t *const rows[2]) {
    const char *name;
    json_int_t count, first, second;
    double speed, half, more;
    int flag;
    assert_int_equal(json_unpack(rows[0], "{s:s, s:I, s:f, s:b, s:[I, I], s:[f, f]}", "name", &name,
                                 "count", &count, "speed", &speed, "flag", &flag, "samples_ns",
                                 &first, &second, "samples_ts", &half, &more),
                     0);
    assert_string_equal(name, "a \"b\", c");
    assert_int_equal(count, -7);
    assert_true(speed == 2.5 && flag && first == 1 && second == 2 && half == 0.5 && more == 1.5);
    assert_true(json_is_null(json_object_get(rows[1], "speed")));
    assert_true(json_is_false(json_object_get(rows[1], "flag")));
}

static void json_is_whole_with_any_number_of_rows(void **state) {
    (void)state;
    for (int32_t n = 0; n <= 2; n++) {
        char *text = written(BENCH_JSON, n);
        json_t *root = json_loads(text, 0, NULL);
        assert_non_null(root);
        assert_int_equal(json_array_size(root), n);
        if (n == 2)
            check_objects((json_t *const[]){json_array_get(root, 0), json_array_get(root, 1)});
        json_decref(root);
        free(text);
    }
}

static void json_lines_are_one_object_each(void **state) {
    (void)state;
    char *text = written(BENCH_JSONL, 2);
    json_t *rows[2];
    char *rest = text;
    for (int i = 0; i < 2; i++) {
        char *line = strsep(&rest, "\n");
        rows[i] = json_loads(line, 0, NULL);
        assert_non_null(rows[i]);
    }
    assert_string_equal(rest, "");
    check_objects(rows);
    json_decref(rows[0]);
    json_decref(rows[1]);
    free(text);
}

static void a_full_disk_is_reported(void **state) {
    (void)state;
    FILE *full = fopen("/dev/full", "w");
    if (!full) skip();
    struct err e = {0};
    struct bench_writer w = {.out = full, .format = BENCH_JSONL, .table = "numbers"};
    const struct bench_field field = bench_count("count", 1);
    assert_int_equal(bench_writer_row(&w, &(struct bench_record){&field, 1, NULL}, &e), ERR_FILE);
    fclose(full);
}

static void formats_have_names(void **state) {
    (void)state;
    enum bench_output format = BENCH_MD;
    assert_true(bench_output_parse("jsonl", &format) && format == BENCH_JSONL);
    assert_true(bench_output_parse("md", &format) && format == BENCH_MD);
    assert_false(bench_output_parse("xml", &format));
}

// ---- Model and limits ---------------------------------------------------------------------------

enum { N_LAYERS = 2, N_EMBD = 64, N_FF = 128, N_VOCAB = 320 };

static struct unit_tensor matrix(enum tensor_role role, int32_t n_cols, int32_t n_rows) {
    const uint64_t size_bytes = 2 * (uint64_t)n_cols * (uint64_t)n_rows;
    return (struct unit_tensor){"matrix", role, tensor_use_of(role), DTYPE_F16, n_cols,
                                n_rows,   1,    size_bytes};
}

static void fill_shape(struct shape *shape) {
    *shape = (struct shape){.name = "toy",
                            .architecture = "llama",
                            .n_layers = N_LAYERS,
                            .n_embd = N_EMBD,
                            .n_vocab = N_VOCAB,
                            .n_ctx_train = 256,
                            .n_heads = 2,
                            .n_kv_heads = 1,
                            .head_dim = 32,
                            .n_rot = 32,
                            .n_ff = N_FF,
                            .can_run = true,
                            .n_units = 2 + 2 * N_LAYERS};
    shape->units[0] = (struct unit){.kind = UNIT_EMBED, .layer = -1, .n_tensors = 1};
    shape->units[0].tensors[0] = matrix(ROLE_TOKEN_EMBED, N_EMBD, N_VOCAB);
    for (int32_t l = 0; l < N_LAYERS; l++) {
        struct unit *attention = &shape->units[1 + 2 * l], *ffn = attention + 1;
        *attention = (struct unit){.kind = UNIT_ATTENTION, .layer = l, .n_tensors = 4};
        attention->n_heads = 2;
        attention->n_kv_heads = 1;
        attention->head_dim_k = attention->head_dim_v = 32;
        attention->tensors[0] = matrix(ROLE_ATTN_Q, N_EMBD, N_EMBD);
        attention->tensors[1] = matrix(ROLE_ATTN_K, N_EMBD, 32);
        attention->tensors[2] = matrix(ROLE_ATTN_V, N_EMBD, 32);
        attention->tensors[3] = matrix(ROLE_ATTN_OUTPUT, N_EMBD, N_EMBD);
        *ffn = (struct unit){.kind = UNIT_FFN, .layer = l, .n_tensors = 3};
        ffn->tensors[0] = matrix(ROLE_FFN_GATE, N_EMBD, N_FF);
        ffn->tensors[1] = matrix(ROLE_FFN_UP, N_EMBD, N_FF);
        ffn->tensors[2] = matrix(ROLE_FFN_DOWN, N_FF, N_EMBD);
    }
    struct unit *head = &shape->units[shape->n_units - 1];
    *head = (struct unit){.kind = UNIT_HEAD, .layer = -1, .shares_embed = true, .n_tensors = 1};
    head->tensors[0] = matrix(ROLE_OUTPUT, N_EMBD, N_VOCAB);
}

static void the_model_is_summed_up(void **state) {
    (void)state;
    struct shape *shape = mem_alloc(1, sizeof *shape);
    struct bench_model model;
    char text[32];
    fill_shape(shape);
    bench_model_of(shape, &model);
    const uint64_t each = 2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 128;
    assert_int_equal(model.n_params, 64 * 320 + 2 * each);
    assert_int_equal(model.size_bytes, 2 * model.n_params);
    assert_string_equal(model.type, "llama 94K F16");
    bench_print_size(text, sizeof text, 3u << 9);
    assert_string_equal(text, "1.50 KiB");
    bench_print_size(text, sizeof text, 3u << 19);
    assert_string_equal(text, "1.50 MiB");
    bench_print_size(text, sizeof text, 3ull << 29);
    assert_string_equal(text, "1.50 GiB");
    bench_print_params(text, sizeof text, 134515008);
    assert_string_equal(text, "134.52 M");
    bench_print_params(text, sizeof text, 8030261248);
    assert_string_equal(text, "8.03 B");
    bench_print_real(text, sizeof text, NAN, 2);
    assert_string_equal(text, "-");
    mem_free(shape);
}

// Reads at 10 and 100 GB/s, one token's rates for every type, 1 us for each copy.
static struct machine toy_machine(void) {
    struct machine m = {.rates = RATES_FILE, .n_devices = 2, .dram_gbps = 10};
    for (int d = 0; d < 2; d++) {
        struct machine_device *device = &m.devices[d];
        device->capacity_bytes = device->budget_bytes = 1u << 30;
        device->align_bytes = 64;
        device->n_lanes = 1;
        device->is_host = d == 0;
        device->rates.memory_gbps = d ? 100 : 10;
        for (int t = 0; t < WEIGHT_COUNT; t++)
            for (int c = 0; c < RATE_CLASSES; c++)
                device->rates.weight_gbps[t][c] = device->rates.memory_gbps;
    }
    (void)snprintf(m.devices[0].kind, sizeof m.devices[0].kind, "cpu");
    (void)snprintf(m.devices[1].kind, sizeof m.devices[1].kind, "sim");
    m.devices[1].link = (struct link_rates){.to_gbps = 2, .from_gbps = 2, .latency_us = 1};
    return m;
}

static void a_token_takes_at_least_its_bytes(void **state) {
    (void)state;
    struct shape *shape = mem_alloc(1, sizeof *shape);
    struct plan *plan = mem_alloc(1, sizeof *plan);
    struct machine machine = toy_machine();
    struct workload w = {.n_ctx = 128, .n_ubatch = 16, .n_prompt = 16, .n_gen = 8};
    struct constraints c = {.gpu_layers = 0};
    struct err e = {0};
    w.kv_type_k = w.kv_type_v = DTYPE_F16;
    fill_shape(shape);
    assert_int_equal(workload_defaults(&w, shape, &e), OK);
    assert_int_equal(planner_solve(plan, shape, &machine, &w, &c, &e), OK);
    // All on the CPU: every weight but the embedding's table, which the head reads; 64 bytes each
    // of keys and values for every position and layer.
    const double weights = 2.0 * (64 * 320 + 2 * (2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 128));
    const double cache = 2 * 128 * 101;
    assert_close(bench_limit_us(plan, shape, &(struct pass){1, 1, 100}), (weights + cache) / 10e3);
    // Without logits neither the last FFN nor the head is read.
    const double tail = 2.0 * (64 * 320 + 3 * 64 * 128);
    assert_close(bench_limit_us(plan, shape, &(struct pass){1, 0, 100}),
                 (weights + cache - tail) / 10e3);
    // A token reads 2 of the 8 experts of a layer; then a part comes from the cache, twice as fast.
    const double experts = 2.0 * 3 * 64 * 128;
    shape->units[2].n_experts = 8, shape->units[2].n_experts_used = 2;
    const double left = weights + cache - 0.75 * experts;
    assert_close(bench_limit_us(plan, shape, &(struct pass){1, 1, 100}), left / 10e3);
    struct device_rates *rates = &plan->machine.devices[0].rates;
    rates->cache_factor = 2;
    rates->cache_bytes = (uint64_t)weights; // of all weights, and of more of a token's
    rates->cache_quarter_bytes = 4 * rates->cache_bytes;
    const double kept = 0.75 - 0.25 * log2((weights - 0.75 * experts) / weights);
    assert_close(bench_limit_us(plan, shape, &(struct pass){1, 1, 100}),
                 ((left - 0.25 * experts) * (1 - kept / 2) + 0.25 * experts * (1 - 0.75 / 2)) /
                     10e3);
    shape->units[2].n_experts = 0;
    plan->machine.rates = RATES_NONE;
    assert_true(bench_limit_us(plan, shape, &(struct pass){1, 1, 100}) == 0);

    // The last layer and the head on the accelerator: one hand-over.
    c.gpu_layers = 2;
    assert_int_equal(planner_solve(plan, shape, &machine, &w, &c, &e), OK);
    const double layer = 2.0 * (2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 128) + 128 * 101;
    const double head = 2.0 * 64 * 320;
    assert_close(bench_limit_us(plan, shape, &(struct pass){1, 1, 100}),
                 layer / 10e3 + (layer + head) / 100e3 + 1);
    mem_free(plan);
    mem_free(shape);
}

// Half the rows of queries and output on the CPU, 32 of 128 bytes each, and nothing else; then all
// of attention there and streamed with its cache.
static void attention_takes_at_least_its_bytes(void **state) {
    (void)state;
    struct shape *shape = mem_alloc(1, sizeof *shape);
    struct plan *plan = mem_alloc(1, sizeof *plan);
    const struct machine machine = toy_machine();
    const struct workload w = {.n_ctx = 128,
                               .n_ubatch = 64,
                               .kv_type_k = DTYPE_F16,
                               .kv_type_v = DTYPE_F16,
                               .n_prompt = 64,
                               .n_gen = 8};
    struct constraints c = {
        .gpu_layers = GPU_LAYERS_AUTO, .has_units = true, .has_placement = true};
    struct err e = {0};
    fill_shape(shape);
    for (int u = 0; u < shape->n_units; u++) c.place.units[u].device = 1;
    c.place.units[1].cpu_parts = 16;
    assert_int_equal(planner_solve(plan, shape, &machine, &w, &c, &e), OK);
    const double attention = 2.0 * (2 * 64 * 64 + 2 * 64 * 32), cache = 128 * 101;
    const double rest = 2.0 * (64 * 320 + 2 * 3 * 64 * 128) + attention + cache;
    const double split = fmax(2 * 32 * 128 / 10e3, (attention + cache) * (1 - 1 / 3.0) / 100e3);
    assert_close(bench_limit_us(plan, shape, &(struct pass){1, 1, 100}), rest / 100e3 + split + 4);
    c.place.units[1].device = 0;
    c.place.units[1].cpu_parts = 0;
    c.place.units[1].streamed = true;
    assert_int_equal(planner_solve(plan, shape, &machine, &w, &c, &e), OK);
    plan->machine.devices[1].link.to_gbps = 0.001;
    assert_close(bench_limit_us(plan, shape, &(struct pass){64, 0, 50}), attention + 128 * 50);
    // The last FFN is fetched if there are logits.
    c.place.units[4] = c.place.units[1];
    assert_int_equal(planner_solve(plan, shape, &machine, &w, &c, &e), OK);
    plan->machine.devices[1].link.to_gbps = 0.001;
    assert_close(bench_limit_us(plan, shape, &(struct pass){64, 0, 50}), attention + 128 * 50);
    assert_close(bench_limit_us(plan, shape, &(struct pass){64, 1, 50}),
                 attention + 128 * 50 + 2 * 3 * 64 * 128);
    mem_free(plan);
    mem_free(shape);
}

static void a_test_is_the_sum_of_its_passes(void **state) {
    (void)state;
    struct shape *shape = mem_alloc(1, sizeof *shape);
    struct plan *plan = mem_alloc(1, sizeof *plan);
    struct machine machine = toy_machine();
    struct workload w = {.n_ctx = 128, .n_ubatch = 16, .n_prompt = 16, .n_gen = 8};
    const struct constraints c = {.gpu_layers = 0};
    struct err e = {0};
    struct bench_estimate whole, one;
    struct simulation first, second, third, token;
    w.kv_type_k = w.kv_type_v = DTYPE_F16;
    fill_shape(shape);
    assert_int_equal(planner_solve(plan, shape, &machine, &w, &c, &e), OK);
    // Batches of 24 in micro-batches of 16: 16, 8 with logits, 6 with logits.
    bench_estimate(plan, shape, &(struct bench_test){30, 5, 10}, 24, &whole);
    plan_simulate(plan, shape, &(struct pass){16, 0, 10}, &first);
    plan_simulate(plan, shape, &(struct pass){8, 1, 26}, &second);
    plan_simulate(plan, shape, &(struct pass){6, 1, 34}, &third);
    plan_simulate(plan, shape, &(struct pass){1, 1, 42}, &token);
    assert_close(whole.planned_us,
                 first.total_us + second.total_us + third.total_us + 5 * token.total_us);
    assert_close(whole.read_bytes, (double)(first.weight_bytes[0] + second.weight_bytes[0] +
                                            third.weight_bytes[0] + 5 * token.weight_bytes[0]));
    bench_estimate(plan, shape, &(struct bench_test){0, 1, 42}, 24, &one);
    assert_close(one.limit_us, bench_limit_us(plan, shape, &(struct pass){1, 1, 42}));
    assert_true(whole.limit_us > 5 * one.limit_us && whole.limit_us <= whole.planned_us);
    mem_free(plan);
    mem_free(shape);
}

// ---- Strategies ---------------------------------------------------------------------------------

static void differences_are_relative(void **state) {
    (void)state;
    const float want[] = {1, -2, 2, -INFINITY}, same[] = {1, -2, 2, 5}, other[] = {1, -2, 5, 0};
    assert_true(bench_nmse(want, same, 4) == 0);
    assert_close(bench_nmse(want, other, 4), 1);
    assert_true(bench_nmse(want, want, 4) == 0);
}

static void agreement_is_put_in_words(void **state) {
    (void)state;
    char text[128];
    struct bench_agreement a = {-1, 0, true};
    assert_string_equal(bench_agreement_text(&a, text, sizeof text), "same");
    a = (struct bench_agreement){7, 3.1e-4, true};
    assert_string_equal(bench_agreement_text(&a, text, sizeof text),
                        "differs at 7: NMSE 3.1e-04, at most 1e-02");
    a.is_good = false;
    assert_string_equal(bench_agreement_text(&a, text, sizeof text),
                        "WRONG: differs at 7: NMSE 3.1e-04, at most 1e-02");
}

// The machine is that much slower in each round.
static const double SLOWER[3] = {1, 4, 0.5};

static void set_prompt(struct bench_case *c, double us) {
    c->prompt.time_us.median = us;
    for (int i = 0; i < 3; i++) c->prompt.us[i] = us * SLOWER[i];
}

// A case as if it had been measured in three rounds: prompt of 100 tokens, 10 new ones.
static void fill_case(struct bench_case *c, enum strategy strategy, double prompt_us, double gen_us,
                      uint64_t plan_id) {
    *c = (struct bench_case){.config = {.strategy = strategy, .vram_bytes = 1u << 30}};
    c->plan_id = plan_id;
    struct err e;
    assert_int_equal(bench_result_open(&c->prompt, 3, &e), OK);
    assert_int_equal(bench_result_open(&c->gen, 3, &e), OK);
    c->prompt.test = (struct bench_test){100, 0, 0};
    c->gen.test = (struct bench_test){0, 10, 100};
    set_prompt(c, prompt_us);
    c->gen.time_us.median = gen_us;
    for (int i = 0; i < 3; i++) c->gen.us[i] = gen_us * SLOWER[i];
    c->prompt.speed.least = c->prompt.speed.most = 1e8 / prompt_us;
    c->gen.speed.least = c->gen.speed.most = 1e7 / gen_us;
    c->gen_estimate.planned_us = gen_us / 2;
}

static void the_choice_is_judged_by_total_time(void **state) {
    (void)state;
    struct bench_case cases[STRATEGIES];
    struct bench_verdict v;
    for (int32_t i = 0; i < STRATEGIES; i++)
        fill_case(&cases[i], bench_strategy(i), 1000, 1000 + 100 * i, (uint64_t)i);
    assert_int_equal(cases[STRATEGIES - 1].config.strategy, STRATEGY_AUTO);
    assert_int_equal(cases[0].config.strategy, STRATEGY_CPU);
    bench_verdict(cases, STRATEGIES, &v);
    assert_int_equal(v.best, 0);
    assert_int_equal(v.chosen, STRATEGIES - 1);
    assert_close(v.ratio, 2500.0 / 2000);
    assert_false(v.is_good);
    // Slower in one part, faster in the other.
    set_prompt(&cases[STRATEGIES - 1], 600);
    bench_verdict(cases, STRATEGIES, &v);
    assert_close(v.ratio, 2100.0 / 2000);
    assert_true(v.is_good);
    // One round that was disturbed does not decide.
    cases[STRATEGIES - 1].prompt.us[2] = 1e6;
    bench_verdict(cases, STRATEGIES, &v);
    assert_close(v.ratio, 2100.0 / 2000);
    // Equal plans take equal time, whatever the clock said.
    set_prompt(&cases[STRATEGIES - 1], 5000);
    for (int i = 1; i < STRATEGIES - 1; i++) cases[i].plan_id = STRATEGIES - 1;
    bench_verdict(cases, STRATEGIES, &v);
    assert_int_equal(v.best, 0);
    assert_close(v.ratio, (6500 + 2100 + 2200 + 2300 + 2400) / 5.0 / 2000);
    cases[0].plan_id = STRATEGIES - 1;
    bench_verdict(cases, STRATEGIES, &v);
    assert_true(v.is_good && v.ratio == 1 && v.best == v.chosen);
    for (int i = 0; i < STRATEGIES; i++) cases[i].plan_id = (uint64_t)i;
    cases[0].is_refused = true;
    bench_verdict(cases, STRATEGIES, &v);
    assert_int_equal(v.best, 1);
    assert_false(v.is_good);
    assert_true(isinf(bench_case_total_us(&cases[0])));
    cases[STRATEGIES - 1].is_refused = true;
    bench_verdict(cases, STRATEGIES, &v);
    assert_true(v.chosen == -1 && v.best == 1 && !v.is_good);
    for (int32_t i = 0; i < STRATEGIES; i++) cases[i].is_refused = true;
    bench_verdict(cases, STRATEGIES, &v);
    assert_true(v.best == -1 && v.is_good);
    for (int32_t i = 0; i < STRATEGIES; i++) bench_case_close(&cases[i]);
}

static void plans_are_told_apart(void **state) {
    (void)state;
    struct plan *plan = mem_alloc(1, sizeof *plan);
    plan->n_units = 5;
    const uint64_t before = bench_plan_id(plan);
    assert_true(bench_plan_id(plan) == before);
    plan->place.units[6].device = 1; // behind the last unit
    assert_true(bench_plan_id(plan) == before);
    plan->place.units[2].cpu_parts = 3;
    const uint64_t split = bench_plan_id(plan);
    plan->place.units[2].cpu_parts = 0;
    plan->place.units[2].streamed = true;
    const uint64_t streamed = bench_plan_id(plan);
    plan->place.feed = FEED_STAGED;
    assert_true(split != before && streamed != before && streamed != split &&
                bench_plan_id(plan) != streamed);
    mem_free(plan);
}

static int32_t count_of(const char *text, const char *what) {
    int32_t n = 0;
    for (const char *p = text; (p = strstr(p, what)); p++) n++;
    return n;
}

static void the_plot_has_every_bar(void **state) {
    (void)state;
    struct bench_case cases[2 * STRATEGIES];
    const struct bench_plot plot = {cases, 2, "it's `a` title\n", "below", "file.svg"};
    char *text = NULL;
    size_t size = 0;
    for (int32_t i = 0; i < 2 * STRATEGIES; i++)
        fill_case(&cases[i], bench_strategy(i % STRATEGIES), 1000, 2000, 0);
    cases[3].is_refused = true;
    cases[4].gen_estimate.planned_us = 20; // 100 times as fast
    FILE *out = open_memstream(&text, &size);
    assert_non_null(out);
    bench_plot_write(&plot, out);
    fclose(out);
    assert_non_null(strstr(text, "set output 'file.svg'"));
    assert_non_null(strstr(text, "'it''s `a` title?'.\"\\n\".'below'"));
    assert_int_equal(count_of(text, "title 'row-split'"), 2);
    assert_int_equal(count_of(text, "title 'planned'"), 2);
    assert_int_equal(count_of(text, "'1 GiB'"), 2);
    assert_int_equal(count_of(text, "set label 'does not fit'"), 2);
    assert_int_equal(count_of(text, " 100000 100000 100000 NaN NaN\n"), 2 * STRATEGIES - 1);
    assert_int_equal(count_of(text, " 5000 5000 5000 10000 NaN\n"), 2 * STRATEGIES - 2);
    assert_int_equal(count_of(text, " 5000 5000 5000 NaN 10290\n"), 1); // just below the end
    assert_int_equal(count_of(text, "set yrange [0:10500]\n"), 1);
    assert_int_equal(count_of(text, "set yrange [0:105000]\n"), 1);
    assert_int_equal(count_of(text, "title 'planned, off the scale'"), 1);
    free(text);
    for (int32_t i = 0; i < 2 * STRATEGIES; i++) bench_case_close(&cases[i]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists_and_ranges),
        cmocka_unit_test(bad_lists_are_refused),
        cmocka_unit_test(defaults_are_those_of_llama_bench),
        cmocka_unit_test(every_combination_is_there_once),
        cmocka_unit_test(overrides_are_placements),
        cmocka_unit_test(tests_come_by_depth_and_kind),
        cmocka_unit_test(bad_combinations_are_refused),
        cmocka_unit_test(statistics_of_few_values),
        cmocka_unit_test(tokens_are_known_ones),
        cmocka_unit_test(only_the_test_is_timed),
        cmocka_unit_test(markdown_columns_line_up),
        cmocka_unit_test(csv_quotes_and_leaves_lists_out),
        cmocka_unit_test(sql_makes_a_table),
        cmocka_unit_test(json_is_whole_with_any_number_of_rows),
        cmocka_unit_test(json_lines_are_one_object_each),
        cmocka_unit_test(a_full_disk_is_reported),
        cmocka_unit_test(formats_have_names),
        cmocka_unit_test(the_model_is_summed_up),
        cmocka_unit_test(a_token_takes_at_least_its_bytes),
        cmocka_unit_test(attention_takes_at_least_its_bytes),
        cmocka_unit_test(a_test_is_the_sum_of_its_passes),
        cmocka_unit_test(differences_are_relative),
        cmocka_unit_test(agreement_is_put_in_words),
        cmocka_unit_test(the_choice_is_judged_by_total_time),
        cmocka_unit_test(plans_are_told_apart),
        cmocka_unit_test(the_plot_has_every_bar),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

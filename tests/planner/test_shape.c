/* test_shape.c: checks of shapes, shapes from JSON (configs/models), smaller types, and patterns of
 * tensor names. Shapes from GGUF headers are tests/runtime/test_gguf_shape.c's.
 */
// link: wrap-alloc
#include "planner/planner.h"

#include "base/mem.h"
#include "tests/lib/alloc_fail.h"

#include <dirent.h>
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char FOLDER[] = "configs/models";

// Two shapes: both are megabytes.
static int open_shapes(void **state) {
    *state = mem_alloc(2, sizeof(struct shape));
    return *state ? 0 : -1;
}
static int close_shapes(void **state) {
    mem_free(*state);
    return 0;
}

static void load(struct shape *out, const char *name) {
    char path[300];
    struct err e;
    snprintf(path, sizeof path, "%s/%s", FOLDER, name);
    if (shape_load(out, path, &e)) fail_msg("%s: %s %s", e.what, e.expected, e.actual);
    assert_int_equal(shape_check(out, &e), OK);
}

static bool is_model(const struct dirent *entry) {
    const size_t length = strlen(entry->d_name);
    return length > 5 && strcmp(entry->d_name + length - 5, ".json") == 0;
}

// ---- configs/models -----------------------------------------------------------------------------

// The published size, to which every file holds its rule.
static void check_weights(const char *name, const struct shape *shape) {
    char path[300];
    snprintf(path, sizeof path, "%s/%s", FOLDER, name);
    json_t *json = json_load_file(path, 0, NULL);
    const double expected = 1e9 * json_number_value(json_object_get(json, "weights_gb"));
    const double actual = (double)shape_weight_bytes(shape);
    assert_true(expected > 0);
    if (actual < 0.985 * expected || actual > 1.015 * expected)
        fail_msg("%s: %.3f GB of weights, published are %.3f", name, actual / 1e9, expected / 1e9);
    json_decref(json);
}

static void test_models_have_published_bytes(void **state) {
    struct shape *shape = *state;
    int count = 0;
    DIR *folder = opendir(FOLDER);
    assert_non_null(folder);
    for (struct dirent *entry; (entry = readdir(folder));) {
        if (!is_model(entry)) continue;
        load(shape, entry->d_name);
        check_weights(entry->d_name, shape);
        count++;
    }
    closedir(folder);
    assert_true(count >= 14);
}

static int count_type(const struct shape *shape, enum dtype type) {
    int count = 0;
    for (int u = 0; u < shape->n_units; u++) {
        const struct unit *unit = &shape->units[u];
        for (int i = unit->shares_embed; i < unit->n_tensors; i++)
            count += unit->tensors[i].type == type;
    }
    return count;
}

static void test_models_are_in_the_program(void **state) {
    struct shape *from_file = *state, *built_in = from_file + 1;
    struct err e;
    assert_true(shape_builtin_count() >= 14);
    for (int32_t i = 0; i < shape_builtin_count(); i++) {
        char name[100];
        snprintf(name, sizeof name, "%s.json", shape_builtin_name(i));
        load(from_file, name);
        assert_int_equal(shape_builtin(built_in, i, &e), OK);
        assert_string_equal(built_in->name, from_file->name);
        assert_int_equal(shape_weight_bytes(built_in), shape_weight_bytes(from_file));
        if (i > 0) assert_true(strcmp(shape_builtin_name(i - 1), shape_builtin_name(i)) < 0);
    }
}

// How many tensors of each type the published files have.
static void test_models_have_published_mixtures(void **state) {
    static const struct {
        const char *name;
        enum dtype type;
        int count;
    } counts[] = {{"llama-3.1-8b.json", DTYPE_Q4_K, 193},
                  {"llama-3.1-8b.json", DTYPE_Q6_K, 33},
                  {"llama-3.1-8b.json", DTYPE_F32, 65},
                  {"llama-3.2-3b.json", DTYPE_Q4_K, 168},
                  {"llama-3.2-3b.json", DTYPE_Q6_K, 29},
                  {"qwen3-30b-a3b.json", DTYPE_Q4_K, 289},
                  {"qwen3-30b-a3b.json", DTYPE_Q6_K, 49},
                  {"qwen3.5-9b.json", DTYPE_Q4_K, 205},
                  {"qwen3.5-9b.json", DTYPE_Q5_K, 24},
                  {"qwen3.5-9b.json", DTYPE_Q6_K, 21},
                  {"gpt-oss-20b.json", DTYPE_MXFP4, 72},
                  {"gpt-oss-20b.json", DTYPE_Q8_0, 98},
                  {"gpt-oss-20b.json", DTYPE_F32, 289},
                  {"smollm2-135m-q4_1.json", DTYPE_Q4_1, 210},
                  {"smollm2-135m-q4_1.json", DTYPE_Q8_0, 1},
                  {"nemotron-3-nano-30b-a3b.json", DTYPE_Q5_0, 110},
                  {"nemotron-3-nano-30b-a3b.json", DTYPE_Q4_K, 29},
                  {"nemotron-3-nano-30b-a3b.json", DTYPE_Q8_0, 25}};
    struct shape *shape = *state;
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        load(shape, counts[i].name);
        assert_int_equal(count_type(shape, counts[i].type), counts[i].count);
    }
}

static void test_kinds_of_layers(void **state) {
    struct shape *shape = *state;
    uint64_t state_bytes = 0;
    load(shape, "qwen3.5-35b-a3b.json");
    int n_cached = 0;
    for (int u = 0; u < shape->n_units; u++) {
        state_bytes += shape->units[u].state_bytes;
        n_cached += shape->units[u].n_kv_heads > 0;
    }
    assert_int_equal(n_cached, 10);
    assert_int_equal(state_bytes, 30 * (32 * 128 * 128 * 4 + 3 * 8192 * 4)); // 62.8 MiB
    assert_int_equal(shape->n_units, 2 + 3 * 40);
    assert_int_equal(shape->n_ff, 512);
    load(shape, "gpt-oss-20b.json");
    for (int u = 0; u < shape->n_units; u++) {
        const struct unit *unit = &shape->units[u];
        if (unit->kind == UNIT_ATTENTION)
            assert_int_equal(unit->window, unit->layer % 2 == 0 ? 128 : 0);
    }
    load(shape, "gemma-3-12b.json");
    for (int u = 0; u < shape->n_units; u++) {
        const struct unit *unit = &shape->units[u];
        if (unit->kind == UNIT_ATTENTION)
            assert_int_equal(unit->window, (unit->layer + 1) % 6 == 0 ? 0 : 1024);
    }
}

// ---- Roles --------------------------------------------------------------------------------------

// Names lead back to their roles, and each names one role.
static void test_roles_have_names(void **state) {
    (void)state;
    for (int role = ROLE_OTHER + 1; role < ROLES; role++) {
        const struct tensor_role_info *info = tensor_role_info((enum tensor_role)role);
        assert_true(strlen(info->name) < TENSOR_NAME);
        assert_int_equal(tensor_role_find(info->name), role);
        const bool experts = info->cut == CUT_EXPERTS;
        if (info->cut != CUT_NONE)
            assert_int_equal(info->kind, experts ? KIND_EXPERTS : KIND_MATRIX);
    }
    assert_int_equal(tensor_role_find("ffn_down_shexp.weight"), ROLE_FFN_DOWN);
    assert_int_equal(tensor_role_find("exp_probs_b"), ROLE_SELECTION_BIAS);
    assert_int_equal(tensor_role_find("attn_q"), ROLE_OTHER);
    assert_int_equal(tensor_role_find(""), ROLE_OTHER);
}

static enum tensor_role role_in(const struct shape *shape, const char *name) {
    for (int u = 0; u < shape->n_units; u++)
        for (int i = 0; i < shape->units[u].n_tensors; i++)
            if (strcmp(shape->units[u].tensors[i].name, name) == 0)
                return shape->units[u].tensors[i].role;
    fail_msg("no %s", name);
    return ROLE_OTHER;
}

// Shared experts are dense FFNs, and the norm before an FFN may have another name.
static void test_models_have_roles(void **state) {
    struct shape *shape = *state;
    load(shape, "qwen3.5-35b-a3b.json");
    assert_int_equal(role_in(shape, "blk.3.attn_q.weight"), ROLE_ATTN_Q);
    assert_int_equal(role_in(shape, "blk.0.ssm_out.weight"), ROLE_SSM_OUT);
    assert_int_equal(role_in(shape, "blk.0.post_attention_norm.weight"), ROLE_FFN_NORM);
    assert_int_equal(role_in(shape, "blk.0.ffn_gate_shexp.weight"), ROLE_FFN_GATE);
    assert_int_equal(role_in(shape, "blk.0.ffn_down_exps.weight"), ROLE_EXPERT_DOWN);
    load(shape, "gemma-3-12b.json");
    assert_int_equal(role_in(shape, "blk.0.post_attention_norm.weight"), ROLE_ATTN_POST_NORM);
    const struct unit *head = &shape->units[shape->n_units - 1];
    assert_string_equal(head->tensors[0].name, "token_embd.weight");
    assert_int_equal(head->tensors[0].role, ROLE_OUTPUT);
}

// ---- JSON ---------------------------------------------------------------------------------------

#define HEAD      "{\"name\":\"n\",\"architecture\":\"a\",\"quant\":\"F16\",\"n_layers\":2,"
#define TOP       HEAD "\"n_embd\":64,\"n_vocab\":100,\"n_ctx_train\":512,"
#define ATTENTION "\"attention\":{\"n_heads\":4,\"n_kv_heads\":2},"
#define FFN       "\"ffn\":{\"n_ff\":96}"
#define EXPERTS   "\"experts\":{\"n_experts\":4,\"n_experts_used\":2,\"n_ff\":32"

static enum status parse(struct shape *out, const char *text, struct err *e) {
    return shape_parse(out, text, strlen(text), e);
}

static void test_parses_small(void **state) {
    struct shape *shape = *state;
    struct err e;
    assert_int_equal(parse(shape, TOP ATTENTION FFN "}", &e), OK);
    assert_int_equal(shape->n_units, 6);
    assert_int_equal(shape->head_dim, 16);
    assert_int_equal(shape->n_rot, 16);
    assert_false(shape->units[5].shares_embed);
    assert_string_equal(shape->units[1].tensors[2].name, "blk.0.attn_k.weight");
    assert_int_equal(shape->units[1].tensors[2].n_rows, 32);
    // 2 tables, 2 layers of q, k, v, o, gate, up, down in F16, norms in F32.
    assert_int_equal(shape_weight_bytes(shape), 2 * 2 * 64 * 100 +
                                                    2 * 2 * (2 * 64 * 64 + 2 * 64 * 32) +
                                                    2 * 2 * 3 * 64 * 96 + 4 * 64 * (2 * 2 + 1));
    // The first layer is dense, the second has experts and a shared one.
    assert_int_equal(
        parse(shape, TOP ATTENTION FFN "," EXPERTS ",\"n_ff_shared\":32,\"n_dense_layers\":1}}",
              &e),
        OK);
    assert_int_equal(shape->n_units, 7);
    assert_int_equal(shape->units[2].kind, UNIT_FFN);
    assert_int_equal(shape->units[4].kind, UNIT_FFN);
    assert_int_equal(shape->units[5].kind, UNIT_EXPERTS);
    assert_int_equal(shape->units[5].tensors[1].n_matrices, 4);
    assert_string_equal(shape->units[4].tensors[0].name, "blk.1.ffn_norm.weight");
}

struct broken {
    const char *text, *what, *expected; // parts of the error
};

static void test_refuses_json(void **state) {
    static const struct broken cases[] = {
        {"", "line 1", ""},
        {"{", "line 1", ""},
        {"{\n\"name\": nul}", "line 2", ""},
        {"[]", "no JSON object", ""},
        {"7", "line 1", ""},
        {"{}", "field name", "a text"},
        {"{\"name\":\"\"}", "field name", "a text of 1"},
        {"{\"name\":7}", "field name", "a text"},
        {"{\"name\":\"a\",\"name\":\"b\"}", "duplicate", ""},
        {HEAD "\"n_embd\":0}", "field n_embd", "1 to"},
        {HEAD "\"n_embd\":64.5}", "field n_embd", "a whole number"},
        {HEAD "\"n_embd\":\"64\"}", "field n_embd", "a whole number"},
        {HEAD "\"n_embd\":-64}", "field n_embd", "1 to"},
        {HEAD "\"n_embd\":99999999999999999999}", "too big", ""},
        {HEAD "\"n_embd\":4611686018427387904}", "field n_embd", "1 to"},
        {TOP FFN "}", "field attention", "an object"},
        {TOP "\"attention\":[]," FFN "}", "field attention", "an object"},
        {TOP "\"attention\":{}," FFN "}", "field attention.n_heads", "1 to"},
        {TOP "\"attention\":{\"n_heads\":65}," FFN "}", "field attention.head_dim", "1 to"},
        {TOP "\"attention\":{\"n_heads\":4,\"n_kv_heads\":5}," FFN "}",
         "field attention.n_kv_heads", "1 to 4"},
        {TOP "\"attention\":{\"n_heads\":4,\"n_rot\":18}," FFN "}", "field attention.n_rot",
         "0 to 16"},
        {TOP "\"attention\":{\"n_heads\":4,\"biases\":true}," FFN "}", "field attention.biases",
         "a list"},
        {TOP "\"attention\":{\"n_heads\":4,\"biases\":[\"x\"]}," FFN "}", "field attention.biases",
         "q, k, v, output"},
        {TOP "\"attention\":{\"n_heads\":4,\"biases\":[1]}," FFN "}", "field attention.biases",
         "q, k, v, output"},
        {TOP "\"attention\":{\"n_heads\":4,\"qk_norm\":1}," FFN "}", "field attention.qk_norm",
         "true or false"},
        {TOP "\"attention\":{\"n_heads\":4,\"heads\":1}," FFN "}",
         "field attention.heads is unknown", ""},
        {TOP "\"attention\":{\"n_heads\":4096,\"head_dim\":8192}," FFN "}", "n_heads * head_dim",
         ""},
        {TOP "\"attention\":{\"n_heads\":64,\"head_dim\":8192}," FFN "}", "n_kv_heads * head_dim",
         ""},
        {TOP ATTENTION "\"window\":{\"positions\":9}," FFN "}", "field window.period", "2 to"},
        {TOP ATTENTION "\"recurrent\":{\"period\":2}," FFN "}", "field recurrent.n_heads", "1 to"},
        {TOP ATTENTION FFN ",\"experts\":{}}", "field experts.n_experts", "1 to"},
        {TOP ATTENTION FFN "," EXPERTS "}}", "field ffn", "nothing"},
        {TOP ATTENTION EXPERTS ",\"n_dense_layers\":1}}", "field ffn", "an object"},
        {TOP ATTENTION EXPERTS ",\"n_dense_layers\":3}}", "field experts.n_dense_layers", "0 to 2"},
        {TOP ATTENTION "\"experts\":{\"n_experts\":4,\"n_experts_used\":5,\"n_ff\":1}}",
         "field experts.n_experts_used", "1 to 4"},
        {TOP ATTENTION "\"ffn\":{\"n_ff\":0}}", "field ffn.n_ff", "1 to"},
        {TOP "\"attention\":{\"n_heads\":4}}", "field ffn", "an object"},
        {TOP ATTENTION FFN ",\"depth\":3}", "field depth is unknown", ""},
        {TOP ATTENTION FFN ",\"layers\":\"a\"}", "field layers", "a letter for each layer"},
        {TOP ATTENTION FFN ",\"layers\":\"ab\"}", "field layers", "a letter for each layer"},
        {TOP ATTENTION FFN ",\"layers\":\"ar\"}", "field recurrent", "an object"},
        {TOP ATTENTION EXPERTS "},\"layers\":\"fe\"}", "field ffn", "an object"},
        {TOP ATTENTION "\"recurrent\":{\"kind\":\"rwkv\"}," FFN "}", "field recurrent.kind",
         "delta, conv or mamba"},
        {TOP ATTENTION "\"recurrent\":{\"kind\":\"conv\",\"period\":2}," FFN "}",
         "field recurrent.conv_kernel", "2 to"},
        {TOP ATTENTION FFN ",\"weights_gb\":-1}", "field weights_gb", "above 0"},
        {TOP ATTENTION FFN ",\"tied\":null}", "field tied", "true or false"},
    };
    struct shape *shape = *state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct err e;
        if (parse(shape, cases[i].text, &e) != ERR_FORMAT) fail_msg("accepted: %s", cases[i].text);
        if (!strstr(e.what, cases[i].what) || !strstr(e.expected, cases[i].expected))
            fail_msg("%s: \"%s\", expected \"%s\"", cases[i].text, e.what, e.expected);
    }
}

static void test_refuses_quants_and_files(void **state) {
    struct shape *shape = *state;
    struct err e;
    static const char *const quants[] = {"Q4_KM", "q4_k_m", "I32", "Q4_K_M_L"};
    for (size_t i = 0; i < sizeof quants / sizeof *quants; i++) {
        char text[600];
        snprintf(text, sizeof text,
                 "{\"name\":\"n\",\"architecture\":\"a\",\"quant\":\"%s\",\"n_layers\":2,"
                 "\"n_embd\":64,\"n_vocab\":100,\"n_ctx_train\":512," ATTENTION FFN "}",
                 quants[i]);
        assert_int_equal(parse(shape, text, &e), ERR_FORMAT);
        assert_non_null(strstr(e.what, "field quant"));
        assert_non_null(strstr(e.actual, quants[i]));
    }
    assert_int_equal(shape_load(shape, "configs/models/none.json", &e), ERR_FILE);
    assert_non_null(strstr(e.what, "none.json"));
    assert_int_equal(shape_load(shape, "configs/models/README.md", &e), ERR_FORMAT);
    assert_non_null(strstr(e.what, "README.md"));
}

// ---- shape_check --------------------------------------------------------------------------------

static void no_name(struct shape *s) { s->name[0] = 0; }
static void open_name(struct shape *s) { memset(s->name, 'x', sizeof s->name); }
static void odd_name(struct shape *s) { s->name[0] = 27; }
static void no_layers(struct shape *s) { s->n_layers = 0; }
static void one_layer_less(struct shape *s) { s->n_layers--; }
static void negative_width(struct shape *s) { s->n_embd = -1; }
static void kv_heads(struct shape *s) { s->n_kv_heads = s->n_heads + 1; }
static void rot(struct shape *s) { s->n_rot = s->head_dim + 1; }
static void too_many_units(struct shape *s) { s->n_units = MAX_UNITS + 1; }
static void experts_without(struct shape *s) { s->n_experts_used = 1; }
static void first_unit(struct shape *s) { s->units[0].kind = UNIT_HEAD; }
static void strange_unit(struct shape *s) { s->units[3].kind = (enum unit_kind)77; }
static void swapped_units(struct shape *s) {
    struct unit unit = s->units[1];
    s->units[1] = s->units[2];
    s->units[2] = unit;
}
static void wrong_layer(struct shape *s) { s->units[3].layer = 0; }
static void no_tensors(struct shape *s) { s->units[1].n_tensors = 0; }
static void many_tensors(struct shape *s) { s->units[1].n_tensors = MAX_UNIT_TENSORS + 1; }
static void tensor_name(struct shape *s) { s->units[1].tensors[1].name[2] = '\n'; }
static void tensor_type(struct shape *s) { s->units[1].tensors[1].type = (enum dtype)4; }
static void tensor_use(struct shape *s) { s->units[1].tensors[1].use = (enum tensor_use)9; }
static void tensor_rows(struct shape *s) { s->units[1].tensors[1].use = USE_ROWS; }
static void tensor_experts(struct shape *s) { s->units[2].tensors[1].use = USE_EXPERTS; }
static void role_of_ffn(struct shape *s) { s->units[1].tensors[1].role = ROLE_FFN_UP; }
static void role_outside(struct shape *s) { s->units[1].tensors[0].role = ROLE_ROPE_FREQS; }
static void role_of_table(struct shape *s) { s->units[0].tensors[0].role = ROLE_OTHER; }
static void role_twice(struct shape *s) { s->units[1].tensors[2].role = ROLE_ATTN_Q; }
static void role_unknown(struct shape *s) { s->units[1].tensors[1].role = ROLES; }
static void role_of_vector(struct shape *s) { s->units[1].tensors[1].role = ROLE_ATTN_Q_NORM; }
static void tensor_blocks(struct shape *s) { s->units[1].tensors[1].type = DTYPE_Q6_K; }
static void tensor_bytes(struct shape *s) { s->units[1].tensors[1].size_bytes++; }
static void tensor_huge(struct shape *s) { s->units[1].tensors[1].n_rows = 1 << 30; }
static void tensor_columns(struct shape *s) { s->units[1].tensors[1].n_cols = 0; }
static void tensor_matrices(struct shape *s) { s->units[1].tensors[1].n_matrices = 2; }
static void vector_rows(struct shape *s) { s->units[1].tensors[0].n_rows = 2; }
static void unit_heads(struct shape *s) { s->units[1].n_heads = s->n_heads + 1; }
static void unit_no_heads(struct shape *s) { s->units[1].n_heads = 0; }
static void unit_dim(struct shape *s) { s->units[1].head_dim_k = 0; }
static void unit_window(struct shape *s) { s->units[1].window = -1; }
static void unit_state(struct shape *s) { s->units[1].state_bytes = UINT64_MAX; }
static void ffn_window(struct shape *s) { s->units[2].window = 1; }
static void ffn_experts(struct shape *s) { s->units[2].n_experts = 1; }
static void embed_rows(struct shape *s) { s->n_vocab++; }
static void shared_other(struct shape *s) { s->units[5].tensors[0].type = DTYPE_BF16; }
static void shared_attention(struct shape *s) { s->units[1].shares_embed = true; }

static void test_checks(void **state) {
    static const struct {
        void (*edit)(struct shape *);
        const char *what;
    } cases[] = {
        {no_name, "name"},
        {open_name, "name"},
        {odd_name, "name"},
        {no_layers, "n_layers"},
        {one_layer_less, "n_units"},
        {negative_width, "n_embd"},
        {kv_heads, "n_kv_heads"},
        {rot, "n_rot"},
        {too_many_units, "n_units"},
        {experts_without, "n_experts_used"},
        {first_unit, "units[0]"},
        {strange_unit, "units[3]"},
        {swapped_units, "units[2] (attention, layer 0) is out of order"},
        {wrong_layer, "units[3]"},
        {no_tensors, "attention of layer 0: n_tensors"},
        {many_tensors, "n_tensors"},
        {tensor_name, "name"},
        {tensor_type, "tensor blk.0.attn_q.weight: type"},
        {tensor_use, "use"},
        {tensor_rows, "use"},
        {tensor_experts, "ffn of layer 0: tensor blk.0.ffn_gate.weight: use"},
        {role_of_ffn, "tensor blk.0.attn_q.weight: role: not one that such a unit has"},
        {role_outside, "tensor blk.0.attn_norm.weight: role"},
        {role_of_table, "embed: tensor token_embd.weight: role"},
        {role_twice, "tensor blk.0.attn_k.weight: role: twice"},
        {role_unknown, "tensor blk.0.attn_q.weight: role: none"},
        {role_of_vector, "tensor blk.0.attn_q.weight: use: not what its role says"},
        {tensor_blocks, "n_cols: no whole number of blocks"},
        {tensor_bytes, "size_bytes"},
        {tensor_huge, "size_bytes"},
        {tensor_columns, "n_cols"},
        {tensor_matrices, "n_matrices"},
        {vector_rows, "n_rows"},
        {unit_heads, "n_heads"},
        {unit_no_heads, "n_heads"},
        {unit_dim, "head_dim_k"},
        {unit_window, "window"},
        {unit_state, "state_bytes"},
        {ffn_window, "window"},
        {ffn_experts, "n_experts"},
        {embed_rows, "embed: tensor token_embd.weight: n_rows"},
        {shared_other, "head: shares_embed"},
        {shared_attention, "attention of layer 0: shares_embed"},
    };
    struct shape *good = *state, *bad = good + 1;
    struct err e;
    assert_int_equal(parse(good, TOP "\"tied\":true," ATTENTION FFN "}", &e), OK);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        *bad = *good;
        cases[i].edit(bad);
        if (shape_check(bad, &e) != ERR_FORMAT) fail_msg("accepted: %s", cases[i].what);
        if (!strstr(e.what, cases[i].what))
            fail_msg("%s: \"%s\", not \"%s\"", cases[i].what, e.what, cases[i].what);
    }
    assert_int_equal(shape_check(good, &e), OK);
}

static void test_checks_experts(void **state) {
    struct shape *good = *state, *bad = good + 1;
    struct err e;
    assert_int_equal(parse(good, TOP ATTENTION EXPERTS "}}", &e), OK);
    *bad = *good;
    bad->units[2].n_experts_used = 3;
    assert_int_equal(shape_check(bad, &e), ERR_FORMAT);
    assert_string_equal(e.what, "experts of layer 0: n_experts_used");
    *bad = *good;
    bad->units[2].tensors[2].n_matrices = 3;
    assert_int_equal(shape_check(bad, &e), ERR_FORMAT);
    assert_string_equal(e.what,
                        "experts of layer 0: tensor blk.0.ffn_gate_exps.weight: n_matrices");
    *bad = *good;
    bad->units[2].n_tensors = 2; // the norm and the router
    assert_int_equal(shape_check(bad, &e), ERR_FORMAT);
    assert_string_equal(e.what, "experts of layer 0: no tensor has experts");
}

static void test_text_is_printable(void **state) {
    (void)state;
    char text[8];
    shape_set_text(text, sizeof text, "a\x1b[31mlong", 9);
    assert_string_equal(text, "a?[31ml");
    shape_set_text(text, sizeof text, NULL, 0);
    assert_string_equal(text, "");
}

// ---- Smaller types ------------------------------------------------------------------------------

static void test_smaller_types(void **state) {
    static const enum dtype narrow[] = {DTYPE_F16,  DTYPE_Q8_0, DTYPE_Q5_1,
                                        DTYPE_Q5_0, DTYPE_Q4_1, DTYPE_Q4_0};
    static const enum dtype wide[] = {DTYPE_F16,  DTYPE_Q8_0, DTYPE_Q6_K, DTYPE_Q5_K,
                                      DTYPE_Q4_K, DTYPE_Q3_K, DTYPE_Q2_K};
    struct shape *shape = *state, *smaller = shape + 1;
    struct err e;
    assert_int_equal(parse(shape, TOP ATTENTION EXPERTS "}}", &e), OK);
    for (int step = 0; step < 6; step++) {
        assert_int_equal(shape->units[1].tensors[1].type, narrow[step]);
        assert_int_equal(shape->units[2].tensors[4].type, narrow[step]);
        assert_int_equal(shape->units[1].tensors[0].type, DTYPE_F32); // a norm
        assert_int_equal(shape->units[2].tensors[1].type, DTYPE_F32); // the router
        const uint64_t bytes = shape_weight_bytes(shape);
        assert_int_equal(shape_smaller_quant(shape, smaller), step < 5);
        assert_int_equal(shape_check(smaller, &e), OK);
        if (step < 5) assert_true(shape_weight_bytes(smaller) < bytes);
        *shape = *smaller;
    }
    load(shape, "llama-3.2-1b.json");
    for (int u = 0; u < shape->n_units; u++)
        for (int i = 0; i < shape->units[u].n_tensors; i++) {
            struct unit_tensor *t = &shape->units[u].tensors[i];
            if (t->use == USE_VECTOR) continue;
            t->type = DTYPE_F16;
            t->size_bytes = 2 * (uint64_t)t->n_cols * (uint64_t)t->n_rows;
        }
    for (int step = 0; step < 7; step++) {
        assert_int_equal(shape->units[1].tensors[1].type, wide[step]);
        assert_int_equal(shape->units[0].tensors[0].type, wide[step]);
        assert_int_equal(shape_smaller_quant(shape, shape), step < 6);
        assert_int_equal(shape_check(shape, &e), OK);
    }
}

// A mixture loses only where it is above the least type.
static void test_smaller_mixture(void **state) {
    struct shape *shape = *state;
    load(shape, "llama-3.1-8b.json");
    assert_true(shape_smaller_quant(shape, shape));
    assert_int_equal(count_type(shape, DTYPE_Q6_K), 0);
    assert_int_equal(count_type(shape, DTYPE_Q5_K), 33);
    assert_int_equal(count_type(shape, DTYPE_Q3_K), 193);
    for (int step = 0; step < 3; step++) assert_true(shape_smaller_quant(shape, shape));
    assert_int_equal(count_type(shape, DTYPE_Q2_K), 226);
    assert_false(shape_smaller_quant(shape, shape));
}

// ---- Patterns -----------------------------------------------------------------------------------

static struct constraints *add(const struct shape *shape, const char *text, struct err *e) {
    struct constraints *c = mem_alloc(1, sizeof *c);
    assert_non_null(c);
    constraints_add_patterns(c, shape, text, e);
    return c;
}

// How many units of a kind are asked for a device.
static int count_at(const struct constraints *c, const struct shape *shape, enum unit_kind kind,
                    int8_t device) {
    int count = 0;
    for (int u = 0; u < shape->n_units; u++)
        count += shape->units[u].kind == kind && c->place.units[u].device == device;
    return count;
}

static void test_patterns_move_units(void **state) {
    static const struct {
        const char *text;
        enum unit_kind kind;
        int n_cpu, n_gpu;
    } cases[] = {
        {"ffn_.*_exps=CPU", UNIT_EXPERTS, 48, 0},
        {"exps=cpu", UNIT_EXPERTS, 48, 0},
        {"\\.ffn_(up|down|gate)_exps\\.weight=CPU", UNIT_EXPERTS, 48, 0},
        {"blk\\.(1[0-9]|2[0-3])\\.ffn_.*_exps\\.=CUDA0", UNIT_EXPERTS, 0, 14},
        {"blk\\.\\d\\.ffn_.*exps=GPU,exps=CPU", UNIT_EXPERTS, 38, 10},
        {"blk\\.[\\d]{2}\\.ffn_(?:up|down|gate)_exps=Metal", UNIT_EXPERTS, 0, 38},
        {"blk\\.[0-9]{1,2}\\.ffn=gpu0", UNIT_EXPERTS, 0, 48},
        {"blk\\.4[]0]\\..*?_exps.+?t=CPU", UNIT_EXPERTS, 1, 0},
        {"blk\\.(1[0-9]|2\\d)\\.ffn_(gate|up|down)_exps\\.=CPU", UNIT_EXPERTS, 20, 0},
        {"blk\\.(?!4[0-7])\\d+\\.ffn_\\w+_exps=CPU", UNIT_EXPERTS, 40, 0},
        {"^blk\\.\\d{2}\\.(?=ffn).*[\\w.]exps\\b=CPU", UNIT_EXPERTS, 38, 0},
        {"blk\\.[0-9]++\\.ffn_((((((up|gate|down))))))_exps=CPU", UNIT_EXPERTS, 48, 0},
        {"blk\\.[[:digit:]]\\.ffn_[^\\s]*_exps\\.weight$=CPU", UNIT_EXPERTS, 10, 0},
        {"(?<=ffn_)(up|gate|down){1,1}_exps=CPU,blk\\.\\d{1,}\\.attn(?=_)=GPU", UNIT_EXPERTS, 48,
         0},
        {"ffn_gate_exps=CPU,ffn_up_exps=CPU,ffn_down_exps=CPU", UNIT_EXPERTS, 48, 0},
        {"ffn_(up|down)_exps=CPU,exps=CPU", UNIT_EXPERTS, 48, 0},
        {"attn_=GPU", UNIT_ATTENTION, 0, 48},
        {"^token_embd\\.weight$=CPU", UNIT_EMBED, 1, 0},
        {"^output\\.=GPU", UNIT_HEAD, 0, 1},
        {".=CPU", UNIT_HEAD, 1, 0},
    };
    struct shape *shape = *state;
    load(shape, "qwen3-30b-a3b.json");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct err e;
        struct constraints *c = add(shape, cases[i].text, &e);
        if (e.status) fail_msg("%s: %s (%s)", cases[i].text, e.what, e.expected);
        assert_true(c->has_units);
        assert_int_equal(count_at(c, shape, cases[i].kind, 0), cases[i].n_cpu);
        assert_int_equal(count_at(c, shape, cases[i].kind, 1), cases[i].n_gpu);
        mem_free(c);
    }
}

static void test_patterns_add_up(void **state) {
    struct shape *shape = *state;
    struct err e;
    load(shape, "llama-3.2-1b.json");
    struct constraints *c = add(shape, "ffn=CPU,attn=GPU", &e);
    assert_int_equal(count_at(c, shape, UNIT_FFN, 0), 16);
    assert_int_equal(count_at(c, shape, UNIT_ATTENTION, 1), 16);
    assert_int_equal(count_at(c, shape, UNIT_HEAD, DEVICE_ANY), 1);
    assert_int_equal(constraints_add_patterns(c, shape, "blk\\.3\\.ffn=GPU", &e), OK);
    assert_int_equal(count_at(c, shape, UNIT_FFN, 0), 15);
    assert_int_equal(count_at(c, shape, UNIT_FFN, 1), 1);
    // The tied head does not go with the embedding.
    assert_int_equal(constraints_add_patterns(c, shape, "token_embd=CPU", &e), OK);
    assert_int_equal(count_at(c, shape, UNIT_HEAD, DEVICE_ANY), 1);
    assert_int_equal(constraints_add_patterns(c, shape, "^output=GPU", &e), OK);
    assert_int_equal(count_at(c, shape, UNIT_HEAD, 1), 1);
    mem_free(c);
}

static void test_refuses_patterns(void **state) {
    static const struct broken cases[] = {
        {"", "-ot", "PATTERN=DEVICE"},
        {"exps", "-ot exps", "PATTERN=DEVICE"},
        {"exps=", "names a device", "CPU or GPU"},
        {"exps=CPUS", "names a device", "CPU or GPU"},
        {"exps=CUDA1", "names a device", "CPU or GPU"},
        {"up_exps=CUDA1,exps=CPU", "names a device", "CPU or GPU"},
        {"=CPU", "a pattern of 0 characters", "1 to"},
        {"exps=CPU,", "-ot", "PATTERN=DEVICE"},
        {"ffn_(up=CPU", "-ot pattern 'ffn_(up': character 8: missing", ""},
        {"ffn_[up=CPU", "-ot pattern 'ffn_[up': character 8: missing", ""},
        {"*=CPU{", "names a device", ""},
        {"*exps=CPU", "character 1: quantifier", ""},
        {"a\\y=CPU", "unrecognized", ""},
        {"a\\=CPU", "at end of pattern", ""},
        {"a**=CPU", "quantifier", ""},
        {"((a{999}){999}){99}=CPU", "too large", ""},
        {"a{99999999999999999999}=CPU", "too big", ""},
        {"(*UTF8)exps=CPU", "disabled", ""},
        {"((.+)+)+[#%]=CPU", "takes too long with token_embd.weight", ""},
        {"FFN_.*_EXPS=CPU", "matches no matrix", ""},
        {"nothing=CPU", "-ot: 'nothing' matches no matrix", ""},
        {"norm=CPU", "-ot: 'norm' matches no matrix", ""},
        {"gate_inp=CPU", "matches no matrix", ""},
        {"exps=CPU,ffn_up_exps=GPU", "-ot: 'ffn_up_exps' matches no matrix", ""},
        {"ffn_up_exps=CPU", "takes experts of layer 0 apart",
         "with blk.0.ffn_up_exps.weight also blk.0.ffn_gate_exps.weight "
         "blk.0.ffn_down_exps.weight"},
        {"blk\\.7\\.attn_q=GPU", "takes attention of layer 7 apart", "blk.7.attn_k.weight"},
        {"output=CPU", "takes attention of layer 0 apart", "blk.0.attn_output.weight"},
        {"up_exps=GPU,exps=CPU", "takes experts of layer 0 apart", "ffn_gate_exps"},
    };
    struct shape *shape = *state;
    load(shape, "qwen3-30b-a3b.json");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct err e;
        mem_free(add(shape, cases[i].text, &e));
        if (e.status != ERR_USAGE) fail_msg("accepted: %s", cases[i].text);
        if (!strstr(e.what, cases[i].what) || !strstr(e.expected, cases[i].expected))
            fail_msg("%s: \"%s\", expected \"%s\"", cases[i].text, e.what, e.expected);
    }
    char text[800];
    memset(text, 'a', sizeof text);
    memcpy(text + sizeof text - 5, "=CPU", 5);
    struct err e;
    mem_free(add(shape, text, &e));
    assert_non_null(strstr(e.what, "a pattern of 795 characters"));
    char *many = mem_alloc(65, 6);
    for (int i = 0; i < 65; i++) memcpy(many + 6 * i, i < 64 ? "a=CPU," : "a=CPU", 6);
    mem_free(add(shape, many, &e));
    assert_non_null(strstr(e.what, "more than 64 patterns"));
    mem_free(many);
}

// The fix that a message names must be one, for all layers that were meant and no other unit.
static void test_fixes_work(void **state) {
    struct shape *shape = *state;
    static const struct {
        const char *half;
        enum unit_kind kind;
        int n;
    } cases[] = {
        {"ffn_up_exps=CPU", UNIT_EXPERTS, 40},
        {"blk\\.[3-5]\\.ffn_(up|down)_exps=CPU", UNIT_EXPERTS, 3},
        {"blk\\.[1-3]\\d\\.ffn_(up|down)_exps=CPU", UNIT_EXPERTS, 30},
        {"blk\\.(?!7\\.).*ffn_up_exps=CPU", UNIT_EXPERTS, 39},
        {"blk\\.7\\.attn_q=CPU", UNIT_ATTENTION, 1},
        {"ffn_up_shexp=CPU", UNIT_FFN, 40},
        {"ssm_out=CPU", UNIT_ATTENTION, 30},
        {"attn_q=CPU", UNIT_ATTENTION, 40},
        {"output=GPU", UNIT_ATTENTION, 10},
        {"blk\\.(?!7\\.).*exps=CPU,up_exps=GPU,down_exps=CPU", UNIT_EXPERTS, 40},
    };
    load(shape, "qwen3.5-35b-a3b.json");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct err e;
        mem_free(add(shape, cases[i].half, &e));
        assert_int_equal(e.status, ERR_USAGE);
        char text[300];
        assert_int_equal(sscanf(e.fix, "-ot '%299[^']' matches all of it", text), 1);
        struct constraints *c = add(shape, text, &e);
        if (e.status) fail_msg("%s: %s (%s)", text, e.what, e.expected);
        int n_placed = 0;
        for (int u = 0; u < shape->n_units; u++) n_placed += c->place.units[u].device != DEVICE_ANY;
        if (n_placed != cases[i].n ||
            n_placed != count_at(c, shape, cases[i].kind, 0) + count_at(c, shape, cases[i].kind, 1))
            fail_msg("%s: %s places %d units", cases[i].half, text, n_placed);
        mem_free(c);
    }
}

// ---- Refused allocations ------------------------------------------------------------------------

static void test_allocation_failures(void **state) {
    struct shape *shape = *state;
    struct constraints *c = mem_alloc(1, sizeof *c);
    assert_non_null(c);
    load(shape, "llama-3.2-1b.json");
    for (int64_t n = 1;; n++) {
        struct err e;
        *c = (struct constraints){0};
        alloc_fail_at(n);
        const enum status status = constraints_add_patterns(c, shape, "ffn=CPU,attn=GPU", &e);
        const bool reached = alloc_fail_happened();
        alloc_fail_at(0);
        assert_int_equal(status, reached ? ERR_MEMORY : OK);
        if (!reached) break;
    }
    for (int64_t n = 1;; n++) {
        struct err e;
        alloc_fail_at(n);
        const enum status status = shape_load(shape, "configs/models/llama-3.2-1b.json", &e);
        const bool reached = alloc_fail_happened();
        alloc_fail_at(0);
        assert_int_equal(status, reached ? ERR_MEMORY : OK);
        if (!reached) break;
    }
    mem_free(c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_models_have_published_bytes),
        cmocka_unit_test(test_models_have_published_mixtures),
        cmocka_unit_test(test_models_are_in_the_program),
        cmocka_unit_test(test_kinds_of_layers),
        cmocka_unit_test(test_roles_have_names),
        cmocka_unit_test(test_models_have_roles),
        cmocka_unit_test(test_parses_small),
        cmocka_unit_test(test_refuses_json),
        cmocka_unit_test(test_refuses_quants_and_files),
        cmocka_unit_test(test_checks),
        cmocka_unit_test(test_checks_experts),
        cmocka_unit_test(test_text_is_printable),
        cmocka_unit_test(test_smaller_types),
        cmocka_unit_test(test_smaller_mixture),
        cmocka_unit_test(test_patterns_move_units),
        cmocka_unit_test(test_patterns_add_up),
        cmocka_unit_test(test_refuses_patterns),
        cmocka_unit_test(test_fixes_work),
        cmocka_unit_test(test_allocation_failures),
    };
    return cmocka_run_group_tests(tests, open_shapes, close_shapes);
}

/* test_quantize_file.c: tests of runtime/quantize but the types of tensors (test_mixture.c): keys
 * that stay, parts, importance in both forms, broken input, refused allocations. */
// link: wrap-alloc
#include "base/mem.h"
#include "runtime/quantize/importance.h"
#include "tests/lib/alloc_fail.h"
#include "tests/lib/quantize_model.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

static void keys_stay_and_the_type_is_told(void **state) {
    const struct paths *p = *state;
    struct gguf before, after;
    struct err e;
    uint64_t number = 0;
    float real = 0;
    write_model(p->source, 1, false);
    must_quantize(p, "Q5_0", NULL, &after);
    assert_int_equal(gguf_open(&before, p->source, &e), OK);
    assert_int_equal(gguf_read_u64(&after, "general.file_type", 0, 99, &number, &e), OK);
    assert_int_equal(number, 8);
    assert_int_equal(gguf_read_u64(&after, "general.quantization_version", 0, 9, &number, &e), OK);
    assert_int_equal(number, 2);
    assert_int_equal(gguf_read_f32(&after, "some.number", &real, &e), OK);
    assert_true(real == 1.5F);
    const struct gguf_value *old = gguf_find(&before, "some.texts");
    const struct gguf_value *new = gguf_find(&after, "some.texts");
    assert_true(new &&new->count == old->count &&new->size_bytes == old->size_bytes);
    assert_memory_equal(new->data, old->data, old->size_bytes);
    assert_int_equal(after.n_tensors, before.n_tensors);
    for (uint32_t i = 0; i < after.n_tensors; i++) // the order of the file, too
        assert_memory_equal(after.tensors[i].name.bytes, before.tensors[i].name.bytes,
                            before.tensors[i].name.length);
    const struct gguf_tensor *norm = gguf_find_tensor(&after, "blk.3.attn_norm.weight");
    assert_memory_equal(norm->data, gguf_find_tensor(&before, "blk.3.attn_norm.weight")->data,
                        norm->size_bytes);
    gguf_close(&before);
    gguf_close(&after);
}

// One type for all matrices but those that always stay; what is too large for halves is not for
// others.
static void floats_become_other_floats(void **state) {
    const struct paths *p = *state;
    static const struct {
        const char *name;
        enum dtype type;
        uint64_t number;
    } rows[] = {{"F32", DTYPE_F32, 0}, {"F16", DTYPE_F16, 1}, {"BF16", DTYPE_BF16, 32}};
    for (int i = 0; i < 3; i++) {
        struct gguf g;
        struct err e;
        uint64_t number = 99;
        write_model(p->source, 4, true);
        must_quantize(p, rows[i].name, NULL, &g);
        assert_type(&g, "token_embd.weight", rows[i].type);
        assert_type(&g, "very_odd.weight", rows[i].type);
        assert_layer(&g, 3, "ffn_down_exps", rows[i].type);
        assert_layer(&g, 3, "ffn_gate_inp", DTYPE_F32);
        assert_int_equal(gguf_read_u64(&g, "general.file_type", 0, 99, &number, &e), OK);
        assert_int_equal(number, rows[i].number);
        gguf_close(&g);
    }
}

static void copies_keep_every_byte(void **state) {
    const struct paths *p = *state;
    struct gguf before, after;
    struct quantize_result result;
    struct err e;
    uint64_t number = 0;
    char quantised[PATH_BYTES];
    write_model(p->source, 1, false);
    must_quantize(p, "Q3_K_M", NULL, &before);
    snprintf(quantised, sizeof quantised, "%s/quantised", p->folder);
    assert_int_equal(rename(p->target, quantised), 0);
    struct quantize_options o = {.source = quantised, .target = p->target, .n_threads = 1};
    assert_int_equal(mixture_find(&o.mixture, "copy", &e), OK);
    assert_int_equal(quantize_file(&o, &result, &e), OK);
    assert_int_equal(result.n_changed, 0);
    assert_int_equal(gguf_open(&after, p->target, &e), OK);
    assert_int_equal(gguf_read_u64(&after, "general.file_type", 0, 99, &number, &e), OK);
    assert_int_equal(number, 12);
    for (uint32_t i = 0; i < before.n_tensors; i++) {
        assert_int_equal(before.tensors[i].type, after.tensors[i].type);
        assert_memory_equal(before.tensors[i].data, after.tensors[i].data,
                            before.tensors[i].size_bytes);
    }
    gguf_close(&before);
    gguf_close(&after);
    unlink(quantised);
}

static void keys_get_other_values(void **state) {
    const struct paths *p = *state;
    static const char *const overrides[] = {"some.number=int:7",      "new.text=str:a=b:c",
                                            "new.number=float:-0.5",  "new.switch=bool:true",
                                            "some.number=float:2.25", "general.file_type=int:99"};
    struct quantize_options o = {.source = p->source,
                                 .target = p->target,
                                 .overrides = overrides,
                                 .n_overrides = 6,
                                 .n_threads = 1};
    struct quantize_result result;
    struct gguf g;
    struct err e;
    struct gguf_text text = {0};
    float numbers[2] = {0};
    uint64_t file_type = 0;
    bool is = false;
    write_model(p->source, 1, false);
    assert_int_equal(mixture_find(&o.mixture, "Q8_0", &e), OK);
    assert_int_equal(quantize_file(&o, &result, &e), OK);
    assert_int_equal(gguf_open(&g, p->target, &e), OK);
    assert_int_equal(gguf_read_text(&g, "new.text", &text, &e), OK);
    assert_true(text.length == 5 && memcmp(text.bytes, "a=b:c", 5) == 0);
    assert_int_equal(gguf_read_f32(&g, "some.number", &numbers[0], &e), OK);
    assert_int_equal(gguf_read_f32(&g, "new.number", &numbers[1], &e), OK);
    assert_true(numbers[0] == 2.25F && numbers[1] == -0.5F);
    assert_int_equal(gguf_read_bool(&g, "new.switch", &is, &e), OK);
    assert_true(is);
    assert_int_equal(gguf_read_u64(&g, "general.file_type", 0, 99, &file_type, &e), OK);
    assert_int_equal(file_type, 99);
    gguf_close(&g);
}

static void impossible_keys_are_refused(void **state) {
    const struct paths *p = *state;
    static const char *const wrong[] = {
        "a",         "=int:1",        "a=1",        "a=int:-1",
        "a=int:1.5", "a=int:1e",      "a=int:",     "a=int:4294967296",
        "a=float:x", "a=float:nan",   "a=bool:yes", "general.alignment=int:64",
        "a=u8:1",    "split.no=int:0"};
    write_model(p->source, 1, false);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct quantize_options o = {.source = p->source,
                                     .target = p->target,
                                     .overrides = &wrong[i],
                                     .n_overrides = 1,
                                     .n_threads = 1};
        struct quantize_result result;
        struct err e;
        assert_int_equal(mixture_find(&o.mixture, "Q8_0", &e), OK);
        if (quantize_file(&o, &result, &e) != ERR_USAGE) fail_msg("%s", wrong[i]);
        assert_non_null(strstr(e.what, wrong[i]));
    }
}

// A model in two parts, with a matrix in each.
static void write_parts(const struct paths *p, char parts[2][PATH_BYTES]) {
    for (uint64_t i = 0; i < 2; i++) {
        struct gguf_build b;
        gguf_build_init(&b);
        gguf_build_text(&b, "general.architecture", "llama");
        gguf_build_split(&b, i, 2, 2);
        add_matrix(&b, i ? "b.weight" : "a.weight", COLUMNS, 1);
        gguf_build_finish(&b);
        snprintf(parts[i], PATH_BYTES, "%s/m-%05d-of-00002.gguf", p->folder, (int)i + 1);
        gguf_build_write(&b, parts[i]);
        gguf_build_close(&b);
    }
}

static void split_files_become_one(void **state) {
    const struct paths *p = *state;
    char parts[2][PATH_BYTES];
    struct quantize_options o = {.source = parts[0], .target = p->target, .n_threads = 1};
    struct quantize_result result;
    struct gguf g;
    struct err e;
    write_parts(p, parts);
    assert_int_equal(mixture_find(&o.mixture, "Q8_0", &e), OK);
    assert_int_equal(quantize_file(&o, &result, &e), OK);
    assert_int_equal(gguf_open(&g, p->target, &e), OK);
    assert_int_equal(g.n_parts, 1);
    assert_null(gguf_find(&g, "split.count"));
    assert_type(&g, "a.weight", DTYPE_Q8_0);
    assert_type(&g, "b.weight", DTYPE_Q8_0);
    gguf_close(&g);
    unlink(parts[0]);
    unlink(parts[1]);
}

// Takes the name of the last part, whose file was begun when it was free.
static bool take_last_name(void *context, const char *what, uint64_t done, uint64_t total) {
    (void)what;
    if (done == total) write_bytes(context, "mine", 4);
    return true;
}

// Where the last part cannot have its name, no part stays, and what has the name does.
static void parts_have_names_together(void **state) {
    const struct paths *p = *state;
    char parts[2][PATH_BYTES], new[2][PATH_BYTES], text[8] = "";
    struct quantize_options o = {.source = parts[0],
                                 .target = p->target,
                                 .keep_split = true,
                                 .n_threads = 1,
                                 .progress = {take_last_name, new[1]}};
    struct quantize_result result;
    struct err e;
    write_parts(p, parts);
    for (int i = 0; i < 2; i++)
        snprintf(new[i], PATH_BYTES, "%s/target-%05d-of-00002.gguf", p->folder, i + 1);
    assert_int_equal(mixture_find(&o.mixture, "Q8_0", &e), OK);
    assert_int_equal(quantize_file(&o, &result, &e), ERR_FILE);
    assert_non_null(strstr(e.what, "target-00002-of-00002.gguf exists"));
    assert_int_not_equal(access(new[0], F_OK), 0);
    FILE *file = fopen(new[1], "rb");
    assert_non_null(file);
    assert_int_equal(fread(text, 1, sizeof text, file), 4);
    assert_string_equal(text, "mine");
    fclose(file);
    unlink(new[1]);
    o.progress.tell = NULL;
    assert_int_equal(quantize_file(&o, &result, &e), OK);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(unlink(new[i]), 0);
        unlink(parts[i]);
    }
}

// ---- Importance ---------------------------------------------------------------------------------

// A file of the older form with one record: uses 4, values 4 * value. It comes from 3 chunks of
// c.txt.
static void write_dat(const char *path, const char *name, int32_t n_values, float value) {
    uint8_t bytes[8192];
    size_t size = 0;
    const int32_t one = 1, length = (int32_t)strlen(name), uses = 4;
    const float sum = 4 * value;
    memcpy(bytes + size, &one, 4), size += 4;
    memcpy(bytes + size, &length, 4), size += 4;
    memcpy(bytes + size, name, strlen(name)), size += strlen(name);
    memcpy(bytes + size, &uses, 4), size += 4;
    memcpy(bytes + size, &n_values, 4), size += 4;
    for (int32_t i = 0; i < n_values; i++) memcpy(bytes + size, &sum, 4), size += 4;
    memcpy(bytes + size, "\3\0\0\0\5\0\0\0c.txt", 13), size += 13;
    write_bytes(path, bytes, size);
}

static void importance_is_read_in_both_forms(void **state) {
    const struct paths *p = *state;
    struct importance m;
    struct err e;
    const float *values;
    bool per_matrix;
    struct gguf_tensor t = {.name = {"blk.0.x.weight", 14}, .ne = {COLUMNS, 4, 1, 1}};
    write_dat(p->importance, "blk.0.x.weight", COLUMNS, 2.5F);
    assert_int_equal(importance_open(&m, p->importance, &e), OK);
    assert_int_equal(importance_find(&m, &t, &values, &per_matrix, &e), OK);
    assert_true(values && values[0] == 2.5F && values[COLUMNS - 1] == 2.5F && !per_matrix);
    assert_int_equal(m.n_chunks, 3);
    assert_string_equal(m.dataset, "c.txt");
    t.ne[0] = 128;
    assert_int_equal(importance_find(&m, &t, &values, &per_matrix, &e), ERR_FORMAT);
    t.name.length = 3;
    assert_int_equal(importance_find(&m, &t, &values, &per_matrix, &e), OK);
    assert_null(values);
    importance_close(&m);

    write_gguf_importance(p->importance, "blk.0.x.weight", COLUMNS, 4, 2);
    t = (struct gguf_tensor){.name = {"blk.0.x.weight", 14}, .ne = {COLUMNS, 4, 4, 1}};
    assert_int_equal(importance_open(&m, p->importance, &e), OK);
    assert_int_equal(importance_find(&m, &t, &values, &per_matrix, &e), OK);
    assert_true(per_matrix && values[3] == 2);
    assert_true(values[COLUMNS + 3] == 1); // a matrix that was never used
    importance_close(&m);
}

static void importance_changes_the_rows(void **state) {
    const struct paths *p = *state;
    struct gguf plain, weighted;
    char other[PATH_BYTES];
    write_model(p->source, 4, false);
    write_gguf_importance(p->importance, "blk.2.ffn_down_exps.weight", COLUMNS, 4, 1);
    must_quantize(p, "Q4_0", NULL, &plain);
    snprintf(other, sizeof other, "%s/plain", p->folder);
    assert_int_equal(rename(p->target, other), 0);
    must_quantize(p, "Q4_0", p->importance, &weighted);
    assert_layer(&weighted, 0, "ffn_down_exps", DTYPE_Q4_1); // only with importance
    const struct gguf_tensor *a = gguf_find_tensor(&plain, "blk.2.ffn_down_exps.weight");
    const struct gguf_tensor *b = gguf_find_tensor(&weighted, "blk.2.ffn_down_exps.weight");
    assert_int_equal(a->type, b->type);
    assert_memory_not_equal(a->data, b->data, a->size_bytes);
    // The second expert was never used: all its columns count alike.
    a = gguf_find_tensor(&plain, "blk.2.attn_q.weight");
    b = gguf_find_tensor(&weighted, "blk.2.attn_q.weight");
    assert_memory_equal(a->data, b->data, a->size_bytes);
    struct gguf_text text = {0};
    struct err e;
    assert_int_equal(gguf_read_text(&weighted, "quantize.imatrix.file", &text, &e), OK);
    assert_int_equal(text.length, strlen(p->importance));
    assert_int_equal(gguf_read_text(&weighted, "quantize.imatrix.dataset", &text, &e), OK);
    assert_true(text.length == 5 && memcmp(text.bytes, "a.txt", 5) == 0);
    uint64_t n_chunks = 0;
    assert_int_equal(
        gguf_read_u64(&weighted, "quantize.imatrix.chunks_count", 0, 99, &n_chunks, &e), OK);
    assert_int_equal(n_chunks, 7);
    unlink(other);
    gguf_close(&plain);
    gguf_close(&weighted);
}

static void broken_importance_is_refused(void **state) {
    const struct paths *p = *state;
    struct importance m;
    struct err e;
    static const struct {
        const char *bytes;
        size_t size;
    } broken[] = {
        {"", 0},
        {"\1\0\0", 3},
        {"\1\0\0\0", 4},
        {"\xff\xff\xff\xff", 4},
        {"\1\0\0\0\1\0\0\0x\1\0\0\0\xff\xff\xff\x7f", 17},
        {"\1\0\0\0\xff\xff\xff\x7fx", 9},
        {"\1\0\0\0\1\0\0\0x\1\0\0\0\1\0\0\0\0\0\xc0\x7f", 21}, // no number
        {"\1\0\0\0\1\0\0\0x\1\0\0\0\1\0\0\0\0\0\x80\xbf", 21}, // -1
    };
    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) {
        write_bytes(p->importance, broken[i].bytes, broken[i].size);
        if (importance_open(&m, p->importance, &e) != ERR_FORMAT) fail_msg("case %zu", i);
        assert_null(m.entries);
    }
    write_model(p->importance, 1, true); // a model is none
    assert_int_equal(importance_open(&m, p->importance, &e), ERR_FORMAT);
}

// ---- What goes wrong ----------------------------------------------------------------------------

static void unusable_numbers_are_refused(void **state) {
    const struct paths *p = *state;
    static const float bad[] = {NAN, INFINITY, -1e6F};
    for (int i = 0; i < 3; i++) {
        struct gguf_build b;
        struct quantize_result result;
        struct err e;
        float values[2 * COLUMNS] = {0};
        values[COLUMNS + 9] = bad[i];
        gguf_build_init(&b);
        gguf_build_text(&b, "general.architecture", "llama");
        gguf_build_tensor(&b, "blk.0.attn_q.weight", 2, (const uint64_t[]){COLUMNS, 2}, DTYPE_F32,
                          values);
        gguf_build_finish(&b);
        gguf_build_write(&b, p->source);
        gguf_build_close(&b);
        assert_int_equal(quantize(p, "BF16", NULL, &result, &e), i < 2 ? ERR_FORMAT : OK);
        assert_int_equal(quantize(p, "F16", NULL, &result, &e), ERR_FORMAT);
        assert_int_equal(quantize(p, "Q4_0", NULL, &result, &e), ERR_FORMAT);
        assert_non_null(strstr(e.what, "attn_q.weight, row 1"));
        assert_int_not_equal(access(p->target, F_OK), 0);
    }
}

static void only_floats_and_blocks_are_read(void **state) {
    const struct paths *p = *state;
    static const uint8_t zeros[2 * COLUMNS * 4];
    static const enum dtype types[] = {DTYPE_I32, DTYPE_Q8_1, DTYPE_Q4_0};
    for (int i = 0; i < 3; i++) {
        struct quantize_options o = {
            .source = p->source, .target = p->target, .requantize = true, .n_threads = 1};
        struct quantize_result result;
        struct gguf_build b;
        struct err e;
        gguf_build_init(&b);
        gguf_build_text(&b, "general.architecture", "llama");
        gguf_build_tensor(&b, "blk.0.attn_q.weight", 2, (const uint64_t[]){COLUMNS, 2}, types[i],
                          zeros);
        gguf_build_finish(&b);
        gguf_build_write(&b, p->source);
        gguf_build_close(&b);
        assert_int_equal(mixture_find(&o.mixture, "Q8_0", &e), OK);
        assert_int_equal(quantize_file(&o, &result, &e), i < 2 ? ERR_UNSUPPORTED : OK);
        if (i < 2) assert_string_equal(e.actual, dtype_name(types[i]));
        o.requantize = false;
        unlink(p->target);
        assert_int_equal(quantize_file(&o, &result, &e), ERR_UNSUPPORTED);
    }
}

// Importance of another model is found before the work, also where nothing is written.
static void dry_runs_fail_as_others_do(void **state) {
    const struct paths *p = *state;
    struct quantize_options o = {.source = p->source, .importance = p->importance};
    struct quantize_result result;
    struct err e;
    write_model(p->source, 1, false);
    write_dat(p->importance, "output.weight", COLUMNS / 2, 1);
    assert_int_equal(mixture_find(&o.mixture, "Q5_0", &e), OK);
    assert_int_equal(quantize_file(&o, &result, &e), ERR_FORMAT);
    write_dat(p->importance, "output.weight", COLUMNS, 1);
    assert_int_equal(quantize_file(&o, &result, &e), OK);
    assert_int_equal(result.n_important, 1);
    assert_true(result.target_bytes > 0 && result.target_bytes < result.source_bytes / 2);
}

// 12 layers, each of a matrix with its number in all elements.
static void write_numbered_layers(const char *path, uint64_t n_values) {
    static const int32_t zeros[12];
    struct gguf_build b;
    char name[64];
    gguf_build_init(&b);
    gguf_build_text(&b, "general.architecture", "llama");
    gguf_build_int(&b, "llama.block_count", GGUF_U32, 12);
    gguf_build_ints(&b, "llama.some_values", zeros, n_values);
    for (int layer = 11; layer >= 0; layer--) {
        float values[COLUMNS * 2];
        for (int i = 0; i < COLUMNS * 2; i++) values[i] = (float)layer;
        snprintf(name, sizeof name, "x.blk.%d.ffn_down.weight", layer);
        gguf_build_tensor(&b, name, 2, (const uint64_t[]){COLUMNS, 2}, DTYPE_F32, values);
    }
    gguf_build_finish(&b);
    gguf_build_write(&b, path);
    gguf_build_close(&b);
}

static void pruned_layers_are_left_out(void **state) {
    const struct paths *p = *state;
    static const float left[] = {0, 1, 3, 4, 5, 6, 7, 8, 9, 11};
    struct gguf g;
    struct quantize_result result;
    struct err e;
    uint64_t number = 0;
    char name[64];
    write_numbered_layers(p->source, 11);
    // The importance of layer 11 is that of layer 9 of the new file, that of 10 goes.
    struct quantize_options o = {.source = p->source, .target = p->target, .n_threads = 1};
    o.importance = p->importance;
    o.prune_layers = "10,2,10";
    assert_int_equal(mixture_find(&o.mixture, "Q8_0", &e), OK);
    write_gguf_importance(p->importance, "x.blk.10.ffn_down.weight", COLUMNS, 1, 1);
    assert_int_equal(quantize_file(&o, &result, &e), OK);
    assert_true(result.n_important == 0 && result.n_tensors == 10);
    write_gguf_importance(p->importance, "x.blk.11.ffn_down.weight", COLUMNS, 1, 1);
    unlink(p->target);
    assert_int_equal(quantize_file(&o, &result, &e), OK);
    assert_int_equal(result.n_important, 1);
    o.importance = NULL;
    assert_int_equal(mixture_find(&o.mixture, "COPY", &e), OK);
    unlink(p->target);
    assert_int_equal(quantize_file(&o, &result, &e), OK);
    assert_int_equal(gguf_open(&g, p->target, &e), OK);
    assert_int_equal(gguf_read_u64(&g, "llama.block_count", 0, 99, &number, &e), OK);
    assert_true(number == 10 && g.n_tensors == 10);
    for (int layer = 0; layer < 10; layer++) {
        snprintf(name, sizeof name, "x.blk.%d.ffn_down.weight", layer);
        const struct gguf_tensor *t = gguf_find_tensor(&g, name);
        assert_non_null(t);
        assert_memory_equal(t->data, &left[layer], sizeof left[layer]);
    }
    gguf_close(&g);
    write_numbered_layers(p->source, 12);
    o.prune_layers = "0";
    assert_int_equal(quantize_file(&o, &result, &e), ERR_UNSUPPORTED);
    assert_non_null(strstr(e.what, "llama.some_values"));
}

static bool stop_halfway(void *context, const char *what, uint64_t done, uint64_t total) {
    (void)context;
    assert_string_equal(what, "quantize");
    return done < total / 2;
}

static void stopping_leaves_no_file(void **state) {
    const struct paths *p = *state;
    struct quantize_options o = {
        .source = p->source, .target = p->target, .n_threads = 1, .progress = {stop_halfway, NULL}};
    struct quantize_result result;
    struct err e;
    write_model(p->source, 1, false);
    unlink(p->target);
    assert_int_equal(mixture_find(&o.mixture, "Q8_0", &e), OK);
    assert_int_equal(quantize_file(&o, &result, &e), ERR_CANCELLED);
    assert_int_not_equal(access(p->target, F_OK), 0);
}

static void refused_allocations_are_errors(void **state) {
    const struct paths *p = *state;
    bool refused = true;
    write_model(p->source, 1, false);
    write_gguf_importance(p->importance, "blk.2.ffn_down.weight", COLUMNS, 1, 1);
    static const char *const named[] = {"attn_v=q8_0", "ffn_(up|down)=q5_0"};
    for (int64_t n = 1; refused; n++) {
        struct quantize_options o = {.source = p->source,
                                     .target = p->target,
                                     .importance = p->importance,
                                     .types = {.named = named, .n_named = 2},
                                     .overrides = (const char *const[]){"a=int:1", "b=str:x"},
                                     .n_overrides = 2,
                                     .prune_layers = "1",
                                     .n_threads = 2};
        struct quantize_result result;
        struct err e;
        assert_int_equal(mixture_find(&o.mixture, "Q4_K_M", &e), OK);
        unlink(p->target);
        alloc_fail_at(n);
        const enum status status = quantize_file(&o, &result, &e);
        refused = alloc_fail_happened();
        alloc_fail_at(0);
        assert_int_equal(status, refused ? ERR_MEMORY : OK);
        assert_true(n < 1000);
        if (refused) assert_int_not_equal(access(p->target, F_OK), 0);
    }
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, make_paths, remove_paths)
    const struct CMUnitTest tests[] = {
        TEST(pruned_layers_are_left_out),
        TEST(keys_stay_and_the_type_is_told),
        TEST(floats_become_other_floats),
        TEST(copies_keep_every_byte),
        TEST(keys_get_other_values),
        TEST(impossible_keys_are_refused),
        TEST(split_files_become_one),
        TEST(parts_have_names_together),
        TEST(importance_is_read_in_both_forms),
        TEST(importance_changes_the_rows),
        TEST(broken_importance_is_refused),
        TEST(unusable_numbers_are_refused),
        TEST(only_floats_and_blocks_are_read),
        TEST(dry_runs_fail_as_others_do),
        TEST(stopping_leaves_no_file),
        TEST(refused_allocations_are_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

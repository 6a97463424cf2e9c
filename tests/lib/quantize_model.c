/* quantize_model.c: see quantize_model.h. */
#include "tests/lib/quantize_model.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

int make_paths(void **state) {
    static struct paths p;
    strcpy(p.folder, "/tmp/quantizeXXXXXX");
    assert_non_null(mkdtemp(p.folder));
    snprintf(p.source, sizeof p.source, "%s/source.gguf", p.folder);
    snprintf(p.target, sizeof p.target, "%s/target.gguf", p.folder);
    snprintf(p.importance, sizeof p.importance, "%s/importance", p.folder);
    *state = &p;
    return 0;
}

int remove_paths(void **state) {
    const struct paths *p = *state;
    unlink(p->source);
    unlink(p->target);
    unlink(p->importance);
    return rmdir(p->folder); // fails if anything else is left
}

void add_matrix(struct gguf_build *b, const char *name, uint64_t columns, uint64_t experts) {
    static float values[COLUMNS * 4 * 8];
    const uint64_t ne[] = {columns, 4, experts};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        values[i] = sinf((float)(i * i % 1009)) / 8;
    gguf_build_tensor(b, name, experts > 1 ? 3 : 2, ne, DTYPE_F32, values);
}

static void add_layer(struct gguf_build *b, int layer, uint64_t experts) {
    static const char *const names[] = {"attn_q",      "attn_k",   "attn_v",
                                        "attn_output", "ffn_gate", "ffn_up"};
    const uint64_t ne[] = {COLUMNS};
    char name[64];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(name, sizeof name, "blk.%d.%s.weight", layer, names[i]);
        add_matrix(b, name, COLUMNS, 1);
    }
    snprintf(name, sizeof name, "blk.%d.ffn_down%s.weight", layer, experts > 1 ? "_exps" : "");
    add_matrix(b, name, COLUMNS, experts);
    snprintf(name, sizeof name, "blk.%d.ffn_down_shexp.weight", layer);
    if (experts > 1) add_matrix(b, name, COLUMNS, 1);
    snprintf(name, sizeof name, "blk.%d.ffn_gate_inp.weight", layer);
    add_matrix(b, name, COLUMNS, 1);
    snprintf(name, sizeof name, "blk.%d.attn_norm.weight", layer);
    gguf_build_tensor(b, name, 1, ne, DTYPE_F32, NULL);
}

void write_model(const char *path, uint64_t experts, bool tied) {
    static const char *const texts[] = {"a", "", "longer text"};
    struct gguf_build b;
    gguf_build_init(&b);
    gguf_build_text(&b, "general.architecture", "llama");
    gguf_build_int(&b, "general.file_type", GGUF_U32, 1);
    gguf_build_int(&b, "llama.block_count", GGUF_U32, LAYERS);
    if (experts > 1) gguf_build_int(&b, "llama.expert_count", GGUF_U32, experts);
    gguf_build_texts(&b, "some.texts", texts, 3);
    gguf_build_f32(&b, "some.number", 1.5F);
    add_matrix(&b, "token_embd.weight", COLUMNS, 1);
    if (!tied) add_matrix(&b, "output.weight", COLUMNS, 1);
    for (int i = 0; i < LAYERS; i++) add_layer(&b, i < 2 ? i : LAYERS + 1 - i, experts);
    add_matrix(&b, "odd.weight", 96, 1);
    add_matrix(&b, "very_odd.weight", 20, 1);
    gguf_build_finish(&b);
    gguf_build_write(&b, path);
    gguf_build_close(&b);
}

void write_bytes(const char *path, const void *bytes, size_t size) {
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

void write_gguf_importance(const char *path, const char *name, uint64_t columns, uint64_t matrices,
                           float count) {
    struct gguf_build b;
    char text[128];
    float sums[COLUMNS * 4], counts[4];
    for (size_t i = 0; i < COLUMNS * 4; i++) sums[i] = (float)(i % 7 + 1);
    for (int i = 0; i < 4; i++) counts[i] = i == 1 ? 0 : count;
    gguf_build_init(&b);
    gguf_build_text(&b, "general.type", "imatrix");
    gguf_build_texts(&b, "imatrix.datasets", (const char *const[]){"a.txt", "b.txt"}, 2);
    gguf_build_int(&b, "imatrix.chunk_count", GGUF_U32, 7);
    snprintf(text, sizeof text, "%s.in_sum2", name);
    gguf_build_tensor(&b, text, 2, (const uint64_t[]){columns, matrices}, DTYPE_F32, sums);
    snprintf(text, sizeof text, "%s.counts", name);
    gguf_build_tensor(&b, text, 2, (const uint64_t[]){1, matrices}, DTYPE_F32, counts);
    gguf_build_finish(&b);
    gguf_build_write(&b, path);
    gguf_build_close(&b);
}

enum status quantize(const struct paths *p, const char *type, const char *importance,
                     struct quantize_result *result, struct err *e) {
    struct quantize_options o = {
        .source = p->source, .target = p->target, .importance = importance, .n_threads = 2};
    assert_int_equal(mixture_find(&o.mixture, type, e), OK);
    unlink(p->target);
    return quantize_file(&o, result, e);
}

void must_quantize(const struct paths *p, const char *type, const char *importance,
                   struct gguf *g) {
    struct quantize_result result;
    struct err e;
    if (quantize(p, type, importance, &result, &e)) fail_msg("%s: %s", type, e.what);
    if (gguf_open(g, p->target, &e)) fail_msg("%s: %s", type, e.what);
}

void assert_type(const struct gguf *g, const char *name, enum dtype type) {
    const struct gguf_tensor *t = gguf_find_tensor(g, name);
    assert_non_null(t);
    if (t->type != type) fail_msg("%s is %s, not %s", name, dtype_name(t->type), dtype_name(type));
}

void assert_layer(const struct gguf *g, int layer, const char *part, enum dtype type) {
    char name[64];
    snprintf(name, sizeof name, "blk.%d.%s.weight", layer, part);
    assert_type(g, name, type);
}

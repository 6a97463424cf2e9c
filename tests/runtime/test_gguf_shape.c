/* test_gguf_shape.c: shapes from GGUF headers: equal to what the runtime reads where it can run the
 * model, equal to configs/models where it cannot, refused with a name where the file is wrong, and
 * never touching weights.
 */
// link: wrap-alloc
#include "runtime/model/gguf_shape.h"

#include "base/mem.h"
#include "runtime/model/model_read.h"
#include "tests/lib/alloc_fail.h"
#include "tests/lib/shape_gguf.h"
#include "tests/lib/tiny_model.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

static const char MODEL[] = "models/SmolLM2-135M-Instruct.Q4_1.gguf";

struct fixture {
    struct shape shapes[2]; // big: on the heap
    struct model model;
    char path[64]; // of a file that a test may write
};

static int open_fixture(void **state) {
    struct fixture *f = *state = mem_alloc(1, sizeof *f);
    if (!f) return -1;
    snprintf(f->path, sizeof f->path, "/tmp/tandem_test_shape.%d.gguf", (int)getpid());
    return 0;
}
static int close_fixture(void **state) {
    unlink(((struct fixture *)*state)->path);
    mem_free(*state);
    return 0;
}

static void same_tensor(const struct unit_tensor *a, const struct unit_tensor *b) {
    assert_string_equal(a->name, b->name);
    assert_int_equal(a->role, b->role);
    assert_int_equal(a->use, b->use);
    assert_int_equal(a->type, b->type);
    assert_int_equal(a->n_cols, b->n_cols);
    assert_int_equal(a->n_rows, b->n_rows);
    assert_int_equal(a->n_matrices, b->n_matrices);
    assert_int_equal(a->size_bytes, b->size_bytes);
}

static void same_unit(const struct unit *a, const struct unit *b) {
    assert_int_equal(a->kind, b->kind);
    assert_int_equal(a->layer, b->layer);
    assert_int_equal(a->shares_embed, b->shares_embed);
    assert_int_equal(a->n_tensors, b->n_tensors);
    for (int i = 0; i < a->n_tensors; i++) same_tensor(&a->tensors[i], &b->tensors[i]);
    assert_int_equal(a->n_heads, b->n_heads);
    assert_int_equal(a->n_kv_heads, b->n_kv_heads);
    assert_int_equal(a->head_dim_k, b->head_dim_k);
    assert_int_equal(a->head_dim_v, b->head_dim_v);
    assert_int_equal(a->window, b->window);
    assert_int_equal(a->gated, b->gated);
    assert_int_equal(a->gated_apart, b->gated_apart);
    assert_int_equal(a->joint_norm, b->joint_norm);
    assert_int_equal(a->lends_cache, b->lends_cache);
    assert_int_equal(a->cache_unit, b->cache_unit);
    assert_int_equal(a->state_bytes, b->state_bytes);
    assert_int_equal(a->n_experts, b->n_experts);
    assert_int_equal(a->n_experts_used, b->n_experts_used);
    assert_int_equal(a->n_ff_expert, b->n_ff_expert);
}

// All but can_run.
static void same_shape(const struct shape *a, const struct shape *b) {
    assert_string_equal(a->name, b->name);
    assert_string_equal(a->architecture, b->architecture);
    const int32_t of_a[] = {a->n_layers, a->n_embd,     a->n_vocab,        a->n_ctx_train,
                            a->n_heads,  a->n_kv_heads, a->head_dim,       a->n_rot,
                            a->n_ff,     a->n_experts,  a->n_experts_used, a->n_ff_expert};
    const int32_t of_b[] = {b->n_layers, b->n_embd,     b->n_vocab,        b->n_ctx_train,
                            b->n_heads,  b->n_kv_heads, b->head_dim,       b->n_rot,
                            b->n_ff,     b->n_experts,  b->n_experts_used, b->n_ff_expert};
    assert_memory_equal(of_a, of_b, sizeof of_a);
    assert_int_equal(a->has_other_angles, b->has_other_angles);
    assert_int_equal(a->has_shared_gates, b->has_shared_gates);
    assert_int_equal(a->has_gated_q, b->has_gated_q);
    assert_int_equal(a->has_gates_apart, b->has_gates_apart);
    assert_int_equal(a->gates_heads, b->gates_heads);
    assert_int_equal(a->has_joint_norms, b->has_joint_norms);
    assert_memory_equal(&a->recurrent, &b->recurrent, sizeof a->recurrent);
    assert_memory_equal(&a->latent, &b->latent, sizeof a->latent);
    assert_int_equal(a->n_units, b->n_units);
    for (int u = 0; u < a->n_units; u++) same_unit(&a->units[u], &b->units[u]);
}

// ---- What the runtime knows ---------------------------------------------------------------------

// The file's shape by names, by the runtime's reader and by gguf_shape are the same.
static void check_known(struct fixture *f, const char *path) {
    struct gguf g;
    struct err e;
    assert_int_equal(gguf_open(&g, path, &e), OK);
    assert_int_equal(model_read(&f->model, &f->shapes[0], &g, &e), OK);
    assert_true(f->shapes[0].can_run);
    assert_int_equal(shape_check(&f->shapes[0], &e), OK);
    if (gguf_shape_by_names(&f->shapes[1], &g, &e)) fail_msg("%s: %s", e.what, e.actual);
    assert_false(f->shapes[1].can_run);
    same_shape(&f->shapes[0], &f->shapes[1]);
    assert_int_equal(gguf_shape(&f->shapes[1], &g, &e), OK);
    assert_true(f->shapes[1].can_run);
    same_shape(&f->shapes[0], &f->shapes[1]);
    gguf_close(&g);
}

static void test_equals_model_of_tiny(void **state) {
    struct fixture *f = *state;
    for (int i = 0; i < 8; i++) {
        const struct tiny_model tiny = {
            .n_layers = 1 + i,
            .tied = i & 1,
            .biased = i & 2,
            .freqs = i & 4,
            .normed = i % 4 == 3,
            .seed = 3,
            .n_experts = i % 3 == 2 ? 2 + i : 0,
        };
        tiny_model_write(&tiny, f->path);
        check_known(f, f->path);
    }
    const struct tiny_model windows = {.architecture = "gemma3",
                                       .n_layers = 5,
                                       .ends_with_norms = true,
                                       .normed = true,
                                       .window = 30};
    tiny_model_write(&windows, f->path);
    check_known(f, f->path);
    assert_true(f->shapes[0].has_other_angles);
    for (int i = 0; i < 2; i++) {
        const struct tiny_model latent = {
            .architecture = "deepseek2", .n_layers = 2, .latent_rank = 40, .low_queries = i};
        tiny_model_write(&latent, f->path);
        check_known(f, f->path);
    }
    static const char *const recurrent_ones[] = {"qwen35", "lfm2", "granitehybrid", "falcon-h1"};
    for (int i = 0; i < 4; i++) {
        const struct tiny_model recurrent = {.architecture = recurrent_ones[i],
                                             .n_layers = 3,
                                             .normed = i < 2,
                                             .delta_period = i < 3 ? 2 : 1,
                                             .convolves = i == 1,
                                             .scans = i == 2,
                                             .scans_beside = i == 3};
        tiny_model_write(&recurrent, f->path);
        check_known(f, f->path);
    }
    const struct tiny_model sinks = {.architecture = "gpt-oss",
                                     .n_layers = 2,
                                     .biased = true,
                                     .sinks = true,
                                     .window = 30,
                                     .n_experts = 3};
    tiny_model_write(&sinks, f->path);
    check_known(f, f->path);
    const struct tiny_model shared = {
        .architecture = "qwen2moe", .n_layers = 2, .n_experts = 3, .shared = true};
    tiny_model_write(&shared, f->path);
    check_known(f, f->path);
    assert_true(f->shapes[0].has_shared_gates);
    const struct tiny_model sharing = {.architecture = "gemma4",
                                       .n_layers = 5,
                                       .ends_with_norms = true,
                                       .normed = true,
                                       .window = 30,
                                       .n_sharing = 2};
    tiny_model_write(&sharing, f->path);
    check_known(f, f->path);
    assert_int_equal(f->shapes[0].units[7].cache_unit, 3);
    assert_int_equal(f->shapes[0].units[9].cache_unit, 5);
}

// Gates of attention with a matrix of their own, and one norm of the sum of experts and a shared
// one, both of which have the norm before them.
static void test_equals_model_of_afmoe(void **state) {
    struct fixture *f = *state;
    for (int shared = 0; shared < 2; shared++) {
        const struct tiny_model tiny = {TINY_AFMOE, .n_layers = 2, .n_experts = 3,
                                        .shared = shared};
        tiny_model_write(&tiny, f->path);
        check_known(f, f->path);
        const struct shape *s = &f->shapes[0];
        const struct unit *experts = &s->units[s->n_units - 2];
        assert_true(s->has_gates_apart && s->units[1].gated_apart);
        assert_int_equal(s->has_joint_norms, shared);
        assert_int_equal(experts->joint_norm, shared);
        assert_non_null(unit_find(experts, ROLE_FFN_NORM));
        assert_non_null(unit_post_norm(experts));
        if (shared) assert_true(unit_leaves_branch(experts - 1) && !unit_post_norm(experts - 1));
    }
}

// A gate for each head, and other heads in every second layer.
static void test_equals_model_of_laguna(void **state) {
    struct fixture *f = *state;
    const struct tiny_model tiny = {TINY_LAGUNA, .n_layers = 5, .n_experts = 3, .window = 20};
    tiny_model_write(&tiny, f->path);
    check_known(f, f->path);
    const struct shape *s = &f->shapes[0];
    assert_true(s->has_gates_apart && s->gates_heads);
    assert_int_equal(s->n_heads, tiny.other_heads);
    for (int32_t layer = 0; layer < 5; layer++) { // the first of two layers sees all
        const struct unit *unit = &s->units[1 + 2 * layer];
        assert_int_equal(unit->n_heads, layer % 2 ? tiny.other_heads : TINY_HEADS);
        assert_int_equal(unit->window, layer % 2 ? 20 : 0);
        assert_int_equal(dims_of(s, unit, DIM_GATED), unit->n_heads);
    }
}

static void test_equals_model_of_default(void **state) {
    struct fixture *f = *state;
    if (access(MODEL, R_OK) != 0) skip();
    check_known(f, MODEL);
    struct err e;
    struct shape *from_json = &f->shapes[1];
    assert_int_equal(shape_load(from_json, "configs/models/smollm2-135m-q4_1.json", &e), OK);
    same_shape(&f->shapes[0], from_json);
    assert_true(from_json->can_run);
}

// ---- Big models ---------------------------------------------------------------------------------

static void load(struct shape *out, const char *name) {
    char path[96];
    struct err e;
    snprintf(path, sizeof path, "configs/models/%s.json", name);
    if (shape_load(out, path, &e)) fail_msg("%s: %s", path, e.what);
}

// Header and JSON are two independent ways to the same shape; the header also tells what can run.
static void check_model(struct fixture *f, const char *name) {
    struct gguf g;
    struct err e;
    uint64_t header_bytes;
    load(&f->shapes[0], name);
    shape_gguf_write(f->path, &f->shapes[0], &header_bytes);
    assert_int_equal(gguf_open(&g, f->path, &e), OK);
    if (gguf_shape_by_names(&f->shapes[1], &g, &e))
        fail_msg("%s: %s %s %s", name, e.what, e.expected, e.actual);
    same_shape(&f->shapes[0], &f->shapes[1]);
    if (gguf_shape(&f->shapes[1], &g, &e))
        fail_msg("%s: %s %s %s", name, e.what, e.expected, e.actual);
    same_shape(&f->shapes[0], &f->shapes[1]);
    if (!f->shapes[1].can_run) fail_msg("%s cannot run: %s", name, f->shapes[1].why_not);
    assert_true(f->shapes[0].can_run);
    gguf_close(&g);
}

// Every model of configs/models runs: the runtime takes the header of its file.
static void test_models_run(void **state) {
    assert_true(shape_builtin_count() >= 36);
    for (int32_t i = 0; i < shape_builtin_count(); i++) check_model(*state, shape_builtin_name(i));
}

// Sliding layers where the file tells only how far they see.
static void test_known_windows(void **state) {
    struct fixture *f = *state;
    struct gguf_build b;
    struct gguf g;
    struct err e;
    uint64_t size_bytes;
    load(&f->shapes[0], "gemma-3-12b");
    for (int u = 0; u < f->shapes[0].n_units; u++) f->shapes[0].units[u].window = 0;
    shape_gguf_build(&b, &f->shapes[0], &size_bytes);
    gguf_build_int(&b, "gemma3.attention.sliding_window", GGUF_U32, 1024);
    gguf_build_finish(&b);
    gguf_build_write(&b, f->path);
    assert_int_equal(truncate(f->path, (off_t)(b.file.size + size_bytes)), 0);
    gguf_build_close(&b);
    assert_int_equal(gguf_open(&g, f->path, &e), OK);
    assert_int_equal(gguf_shape(&f->shapes[1], &g, &e), OK);
    gguf_close(&g);
    load(&f->shapes[0], "gemma-3-12b");
    same_shape(&f->shapes[0], &f->shapes[1]);
}

// 19 GB: reading the header brings none of the weights into memory.
static void test_touches_no_weights(void **state) {
    struct fixture *f = *state;
    enum { NEAR = 4 << 20 }; // behind the header, where the system reads ahead
    struct gguf g;
    struct err e;
    uint64_t header_bytes;
    load(&f->shapes[0], "qwen3-30b-a3b");
    shape_gguf_write(f->path, &f->shapes[0], &header_bytes);
    assert_int_equal(gguf_open(&g, f->path, &e), OK);
    assert_int_equal(gguf_shape(&f->shapes[1], &g, &e), OK);
    same_shape(&f->shapes[0], &f->shapes[1]);
    const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    const uint64_t first = round_up(header_bytes + NEAR, page);
    const uint64_t n_pages = (g.parts[0].size_bytes - first) / page;
    assert_true(g.parts[0].size_bytes > UINT64_C(18000000000));
    unsigned char *resident = mem_alloc(n_pages, 1);
    assert_non_null(resident);
    assert_int_equal(mincore((void *)(uintptr_t)(g.parts[0].map + first), n_pages * page, resident),
                     0);
    uint64_t touched = 0;
    for (uint64_t i = 0; i < n_pages; i++) touched += resident[i] & 1;
    assert_int_equal(touched, 0);
    // The check sees a page that is touched.
    volatile uint8_t byte = g.parts[0].map[first + page * (n_pages / 2)];
    (void)byte;
    mincore((void *)(uintptr_t)(g.parts[0].map + first), n_pages * page, resident);
    for (uint64_t i = 0; i < n_pages; i++) touched += resident[i] & 1;
    assert_true(touched > 0);
    mem_free(resident);
    gguf_close(&g);
}

// ---- Other families, by hand --------------------------------------------------------------------

// A file of one architecture that grows line by line.
struct hand {
    struct gguf_build b;
    const char *architecture;
};

static void key(struct hand *h, const char *name, uint64_t value) {
    char text[96];
    snprintf(text, sizeof text, "%s.%s", h->architecture, name);
    gguf_build_int(&h->b, text, GGUF_U32, value);
}

static void matrix(struct hand *h, const char *name, uint64_t n_cols, uint64_t n_rows) {
    gguf_build_tensor(&h->b, name, 2, (uint64_t[]){n_cols, n_rows}, DTYPE_F16, NULL);
}
static void vector(struct hand *h, const char *name, uint64_t count) {
    gguf_build_tensor(&h->b, name, 1, &count, DTYPE_F32, NULL);
}

static void start(struct hand *h, const char *architecture, uint64_t n_layers) {
    gguf_build_init(&h->b);
    h->architecture = architecture;
    gguf_build_text(&h->b, "general.architecture", architecture);
    key(h, "block_count", n_layers);
    key(h, "context_length", 512);
    key(h, "embedding_length", 32);
    key(h, "attention.head_count", 2);
    matrix(h, "token_embd.weight", 32, 40);
    vector(h, "output_norm.weight", 32);
}

// Attention and FFN of a plain layer.
static void plain_layer(struct hand *h, int layer) {
    static const struct {
        const char *name;
        uint64_t n_cols, n_rows;
    } matrices[] = {{"attn_q", 32, 32},      {"attn_k", 32, 32}, {"attn_v", 32, 32},
                    {"attn_output", 32, 32}, {"ffn_up", 32, 64}, {"ffn_down", 64, 32}};
    char name[64];
    for (int i = 0; i < 6; i++) {
        snprintf(name, sizeof name, "blk.%d.%s.weight", layer, matrices[i].name);
        matrix(h, name, matrices[i].n_cols, matrices[i].n_rows);
    }
}

static enum status read_hand(struct hand *h, struct fixture *f, struct err *e) {
    struct gguf g;
    gguf_build_finish(&h->b);
    gguf_build_write(&h->b, f->path);
    gguf_build_close(&h->b);
    enum status status = gguf_open(&g, f->path, e);
    if (!status) status = gguf_shape(&f->shapes[0], &g, e);
    gguf_close(&g);
    return status;
}

static void test_plain_and_unknown_tensors(void **state) {
    struct fixture *f = *state;
    struct hand h;
    struct err e;
    start(&h, "newcomer", 3);
    key(&h, "nextn_predict_layers", 1);
    plain_layer(&h, 0);
    plain_layer(&h, 1);
    vector(&h, "blk.1.attn_something.weight", 7);
    vector(&h, "blk.1.ffn_something.weight", 9);
    matrix(&h, "blk.2.nextn.eh_proj.weight", 64, 32); // of a block that drafts
    vector(&h, "rope_freqs.weight", 8);
    assert_int_equal(read_hand(&h, f, &e), OK);
    const struct shape *s = &f->shapes[0];
    assert_string_equal(s->name, "unnamed");
    assert_int_equal(s->n_layers, 2);
    assert_int_equal(s->n_units, 6);
    assert_true(s->units[5].shares_embed);
    assert_int_equal(s->n_ff, 64);
    assert_int_equal(s->units[3].n_tensors, 5);
    assert_string_equal(s->units[3].tensors[4].name, "blk.1.attn_something.weight");
    assert_string_equal(s->units[4].tensors[2].name, "blk.1.ffn_something.weight");
    assert_int_equal(s->units[1].head_dim_k, 16);
    assert_int_equal(s->units[1].n_kv_heads, 2);
}

static void test_latent_attention(void **state) {
    struct fixture *f = *state;
    struct hand h;
    struct err e;
    start(&h, "deepseek32", 1);
    key(&h, "attention.head_count_kv", 1);
    key(&h, "attention.kv_lora_rank", 24);
    key(&h, "attention.key_length", 32);
    key(&h, "rope.dimension_count", 8);
    matrix(&h, "blk.0.attn_q.weight", 32, 64);
    matrix(&h, "blk.0.attn_kv_a_mqa.weight", 32, 32);
    gguf_build_tensor(&h.b, "blk.0.attn_k_b.weight", 3, (uint64_t[]){24, 24, 2}, DTYPE_F16, NULL);
    matrix(&h, "blk.0.ffn_up.weight", 32, 64);
    matrix(&h, "blk.0.ffn_down.weight", 64, 32);
    if (read_hand(&h, f, &e)) fail_msg("%s", e.what);
    const struct unit *attention = &f->shapes[0].units[1];
    assert_int_equal(attention->n_kv_heads, 1);
    assert_int_equal(attention->head_dim_k, 24 + 8);
    assert_int_equal(attention->head_dim_v, 0);
    assert_int_equal(attention->tensors[2].n_rows, 48);
    assert_int_equal(f->shapes[0].n_rot, 8);
}

static void test_convolutions_and_shared_caches(void **state) {
    struct fixture *f = *state;
    struct hand h;
    struct err e;
    start(&h, "lfm9", 3);
    key(&h, "shortconv.l_cache", 3);
    key(&h, "attention.shared_kv_layers", 1);
    gguf_build_ints(&h.b, "lfm9.attention.head_count_kv", (int32_t[]){0, 2, 2}, 3);
    matrix(&h, "blk.0.shortconv.in_proj.weight", 32, 96);
    matrix(&h, "blk.0.ffn_up.weight", 32, 64);
    plain_layer(&h, 1);
    plain_layer(&h, 2);
    if (read_hand(&h, f, &e)) fail_msg("%s", e.what);
    const struct unit *units = f->shapes[0].units;
    assert_int_equal(units[1].n_kv_heads, 0);
    assert_int_equal(units[1].state_bytes, 2 * 32 * 4);
    assert_int_equal(units[3].n_kv_heads, 2);
    assert_int_equal(units[5].n_kv_heads, 0);
}

// ---- Refused files ------------------------------------------------------------------------------

static void layer_7(struct hand *h) { vector(h, "blk.7.attn_norm.weight", 32); }
static void no_number(struct hand *h) { vector(h, "blk.x.attn_norm.weight", 32); }
static void huge_number(struct hand *h) { vector(h, "blk.99999999999.attn_q.weight", 32); }
static void unknown_part(struct hand *h) { vector(h, "blk.0.time_mix_k.weight", 32); }
static void unknown_global(struct hand *h) { vector(h, "v.patch_embd.weight", 32); }
static void single_expert(struct hand *h) { matrix(h, "blk.0.ffn_up.3.weight", 32, 64); }
static void experts_without_key(struct hand *h) {
    gguf_build_tensor(&h->b, "blk.0.ffn_up_exps.weight", 3, (uint64_t[]){32, 64, 2}, DTYPE_F16,
                      NULL);
}
static void other_experts(struct hand *h) {
    key(h, "expert_count", 4);
    key(h, "expert_used_count", 2);
    key(h, "expert_feed_forward_length", 64);
    gguf_build_tensor(&h->b, "blk.0.ffn_down_exps.weight", 3, (uint64_t[]){64, 32, 2}, DTYPE_F16,
                      NULL);
}
static void used_experts(struct hand *h) {
    key(h, "expert_count", 4);
    key(h, "expert_used_count", 5);
}
static void no_used_experts(struct hand *h) { key(h, "expert_count", 4); }
static void kv_heads(struct hand *h) { key(h, "attention.head_count_kv", 1); }
static void key_length(struct hand *h) { key(h, "attention.key_length", 8); }
static void short_list(struct hand *h) {
    gguf_build_ints(&h->b, "newcomer.attention.sliding_window", (int32_t[]){1}, 1);
}
static void negative_list(struct hand *h) {
    gguf_build_ints(&h->b, "newcomer.attention.head_count_kv", (int32_t[]){2, -1}, 2);
}
static void text_list(struct hand *h) {
    gguf_build_texts(&h->b, "newcomer.attention.head_count_kv", (const char *const[]){"a", "b"}, 2);
}
static void all_drafting(struct hand *h) { key(h, "nextn_predict_layers", 2); }
static void wide_rope(struct hand *h) { key(h, "rope.dimension_count", 17); }
static void state_keys(struct hand *h) { vector(h, "blk.0.ssm_a", 2); }
static void many_tensors(struct hand *h) {
    char name[64];
    for (int i = 0; i < MAX_UNIT_TENSORS; i++) {
        snprintf(name, sizeof name, "blk.0.attn_extra_%d.weight", i);
        vector(h, name, 4);
    }
}

static void test_refuses(void **state) {
    static const struct {
        void (*edit)(struct hand *);
        enum status status;
        const char *what;
    } cases[] = {
        {layer_7, ERR_FORMAT, "tensor blk.7.attn_norm.weight"},
        {no_number, ERR_UNSUPPORTED, "tensor blk.x.attn_norm.weight"},
        {huge_number, ERR_UNSUPPORTED, "tensor blk.99999999999"},
        {unknown_part, ERR_UNSUPPORTED, "tensor blk.0.time_mix_k.weight"},
        {unknown_global, ERR_UNSUPPORTED, "tensor v.patch_embd.weight"},
        {single_expert, ERR_UNSUPPORTED, "tensor blk.0.ffn_up.3.weight holds a single expert"},
        {experts_without_key, ERR_FORMAT, "experts of layer 0: n_experts"},
        {other_experts, ERR_FORMAT, "tensor blk.0.ffn_down_exps.weight: n_matrices"},
        {used_experts, ERR_FORMAT, "newcomer.expert_used_count"},
        {no_used_experts, ERR_FORMAT, "newcomer.expert_used_count is missing"},
        {kv_heads, ERR_FORMAT, "tensor blk.0.attn_k.weight"},
        {key_length, ERR_FORMAT, "tensor blk.0.attn_k.weight"},
        {short_list, ERR_FORMAT, "newcomer.attention.sliding_window has too few"},
        {negative_list, ERR_FORMAT, "newcomer.attention.head_count_kv is out of range"},
        {text_list, ERR_FORMAT, "newcomer.attention.head_count_kv"},
        {all_drafting, ERR_FORMAT, "newcomer.nextn_predict_layers"},
        {wide_rope, ERR_FORMAT, "newcomer.rope.dimension_count"},
        {state_keys, ERR_FORMAT, "newcomer.ssm.inner_size is missing"},
        {many_tensors, ERR_UNSUPPORTED, "blk.0.attn_extra_"},
    };
    struct fixture *f = *state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct hand h;
        struct err e;
        start(&h, "newcomer", 2);
        plain_layer(&h, 0);
        plain_layer(&h, 1);
        cases[i].edit(&h);
        const enum status status = read_hand(&h, f, &e);
        if (status != cases[i].status) fail_msg("%s: %s", cases[i].what, status_name(status));
        if (!strstr(e.what, cases[i].what)) fail_msg("\"%s\" not \"%s\"", e.what, cases[i].what);
    }
}

static void test_refuses_what_lacks(void **state) {
    struct fixture *f = *state;
    struct hand h;
    struct err e;
    start(&h, "newcomer", 2);
    plain_layer(&h, 0);
    assert_int_equal(read_hand(&h, f, &e), ERR_UNSUPPORTED);
    assert_string_equal(e.what, "layer 1 has no matrices");
    start(&h, "newcomer", 1);
    vector(&h, "blk.0.attn_norm.weight", 32);
    assert_int_equal(read_hand(&h, f, &e), ERR_UNSUPPORTED);
    assert_string_equal(e.what, "layer 0 has no matrices");
    gguf_build_init(&h.b);
    assert_int_equal(read_hand(&h, f, &e), ERR_FORMAT);
    assert_string_equal(e.what, "key general.architecture is missing");
    gguf_build_init(&h.b);
    gguf_build_text(&h.b, "general.architecture", "newcomer");
    assert_int_equal(read_hand(&h, f, &e), ERR_FORMAT);
    assert_string_equal(e.what, "key newcomer.block_count is missing");
}

// A model of the runtime's own family that is broken is not planned as one of another.
static void test_refuses_broken_llama(void **state) {
    struct fixture *f = *state;
    struct hand h = {0};
    struct err e;
    tiny_model_build(&h.b, &(struct tiny_model){.n_layers = 2}, "blk.1.ffn_up.weight");
    assert_int_equal(read_hand(&h, f, &e), ERR_FORMAT);
    assert_string_equal(e.what, "tensor blk.1.ffn_up.weight is missing");
}

static void test_allocation_failures(void **state) {
    struct fixture *f = *state;
    struct gguf g;
    struct err e;
    uint64_t header_bytes;
    load(&f->shapes[0], "qwen3-4b");
    shape_gguf_write(f->path, &f->shapes[0], &header_bytes);
    assert_int_equal(gguf_open(&g, f->path, &e), OK);
    for (int64_t n = 1;; n++) {
        alloc_fail_at(n);
        const enum status status = gguf_shape(&f->shapes[1], &g, &e);
        const bool reached = alloc_fail_happened();
        alloc_fail_at(0);
        assert_int_equal(status, reached ? ERR_MEMORY : OK);
        if (!reached) break;
    }
    gguf_close(&g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_equals_model_of_tiny),
        cmocka_unit_test(test_equals_model_of_afmoe),
        cmocka_unit_test(test_equals_model_of_laguna),
        cmocka_unit_test(test_equals_model_of_default),
        cmocka_unit_test(test_models_run),
        cmocka_unit_test(test_known_windows),
        cmocka_unit_test(test_touches_no_weights),
        cmocka_unit_test(test_plain_and_unknown_tensors),
        cmocka_unit_test(test_latent_attention),
        cmocka_unit_test(test_convolutions_and_shared_caches),
        cmocka_unit_test(test_refuses),
        cmocka_unit_test(test_refuses_what_lacks),
        cmocka_unit_test(test_refuses_broken_llama),
        cmocka_unit_test(test_allocation_failures),
    };
    return cmocka_run_group_tests(tests, open_fixture, close_fixture);
}

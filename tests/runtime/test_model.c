/* test_model.c: what model_read accepts and refuses, each refusal naming the key or tensor. */
#include "runtime/model/model_read.h"

#include "base/mem.h"
#include "tests/lib/tiny_model.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static const char PATH[] = "/tmp/tandem_test_model.gguf";

struct fixture { // big: on the heap
    struct model model;
    struct shape shape;
    enum dtype norm_type; // of the first norm in the file
};

// Reads the model that edit makes of a tiny one; *e and *f are filled.
static enum status read_tiny(const struct tiny_model *tiny, void (*edit)(struct gguf_build *),
                             const char *skip, struct fixture *f, struct err *e) {
    struct gguf_build b;
    tiny_model_build(&b, tiny, skip);
    if (edit) edit(&b);
    gguf_build_finish(&b);
    char path[64];
    snprintf(path, sizeof path, "%s.%d", PATH, (int)getpid());
    gguf_build_write(&b, path);
    gguf_build_close(&b);
    struct gguf g;
    enum status status = gguf_open(&g, path, e);
    if (!status) status = model_read(&f->model, &f->shape, &g, e);
    if (!status) f->norm_type = f->model.tensors[1][0]->type;
    gguf_close(&g);
    unlink(path);
    return status;
}

static enum status read_edited(void (*edit)(struct gguf_build *), const char *skip,
                               struct fixture *f, struct err *e) {
    const struct tiny_model tiny = {.n_layers = 2, .biased = true, .seed = 1};
    return read_tiny(&tiny, edit, skip, f, e);
}

static void test_reads_dimensions(void **state) {
    struct fixture *f = *state;
    const struct shape *s = &f->shape;
    struct err e;
    assert_int_equal(read_edited(NULL, NULL, f, &e), OK);
    assert_int_equal(s->n_layers, 2);
    assert_int_equal(s->head_dim, TINY_HEAD_DIM);
    assert_int_equal(s->n_rot, TINY_HEAD_DIM);
    assert_int_equal(s->n_vocab, TINY_VOCAB);
    assert_int_equal(s->n_units, 6);
    assert_false(s->units[5].shares_embed);
    assert_int_equal(read_edited(NULL, "output.weight", f, &e), OK);
    assert_true(s->units[5].shares_embed);
    assert_int_equal(s->units[5].tensors[0].role, ROLE_OUTPUT);
    assert_string_equal(s->units[5].tensors[0].name, "token_embd.weight");
}

static void yarn(struct gguf_build *b) {
    gguf_build_text(b, "llama.rope.scaling.type", "yarn");
    gguf_build_f32(b, "llama.rope.scaling.factor", 4);
    gguf_build_int(b, "llama.rope.scaling.original_context_length", GGUF_U32, 128);
}
static void linear(struct gguf_build *b) { gguf_build_f32(b, "llama.rope.scaling.factor", 4); }
static void experts(struct gguf_build *b) { gguf_build_int(b, "llama.expert_count", GGUF_U32, 8); }
static void expert_keys(struct gguf_build *b, uint64_t count, uint64_t n_used, uint64_t n_ff) {
    gguf_build_int(b, "llama.expert_count", GGUF_U32, count);
    gguf_build_int(b, "llama.expert_used_count", GGUF_U32, n_used);
    gguf_build_int(b, "llama.expert_feed_forward_length", GGUF_U32, n_ff);
}
static void used_experts(struct gguf_build *b) { expert_keys(b, 8, 9, 32); }
static void many_experts(struct gguf_build *b) { expert_keys(b, EXPERTS_MAX + 1, 2, 32); }
static void many_used(struct gguf_build *b) { expert_keys(b, 64, EXPERTS_USED_MAX + 1, 32); }
static void no_experts(struct gguf_build *b) { expert_keys(b, 8, 2, 32); }
// A router for eight experts, and n matrices of n_ff rows.
static void add_experts(struct gguf_build *b, uint64_t n, uint64_t n_ff, enum dtype type) {
    expert_keys(b, 8, 2, n_ff);
    gguf_build_tensor(b, "blk.0.ffn_gate_inp.weight", 2, (uint64_t[]){TINY_EMBD, 8}, DTYPE_F32,
                      NULL);
    gguf_build_tensor(b, "blk.0.ffn_gate_exps.weight", 3, (uint64_t[]){TINY_EMBD, n_ff, n}, type,
                      NULL);
}
static void few_experts(struct gguf_build *b) { add_experts(b, 7, 32, DTYPE_F16); }
static void odd_experts(struct gguf_build *b) { add_experts(b, 8, 31, DTYPE_Q8_0); }
static void other_value(struct gguf_build *b) {
    gguf_build_int(b, "llama.attention.value_length", GGUF_U32, 8);
}
static void bad_base(struct gguf_build *b) { gguf_build_f32(b, "llama.rope.freq_base", -1); }
static void bad_rot(struct gguf_build *b) {
    gguf_build_int(b, "llama.rope.dimension_count", GGUF_U32, 18);
}
static void odd_rot(struct gguf_build *b) {
    gguf_build_int(b, "llama.rope.dimension_count", GGUF_U32, 7);
}
static void bad_scaling(struct gguf_build *b) {
    gguf_build_text(b, "llama.rope.scaling.type", "spiral");
}
static void text_base(struct gguf_build *b) { gguf_build_text(b, "llama.rope.freq_base", "ten"); }
static void bad_bias(struct gguf_build *b) {
    gguf_build_tensor(b, "blk.0.attn_q.bias", 1, (uint64_t[]){3}, DTYPE_F32, NULL);
}
static void bad_norm(struct gguf_build *b) {
    gguf_build_tensor(b, "blk.0.attn_q_norm.weight", 1, (uint64_t[]){TINY_EMBD}, DTYPE_F32, NULL);
}
static void bad_type(struct gguf_build *b) {
    gguf_build_tensor(b, "output_norm.weight", 1, (uint64_t[]){TINY_EMBD}, DTYPE_Q8_0, NULL);
}
static void no_kernel(struct gguf_build *b) {
    gguf_build_tensor(b, "blk.1.ffn_up.weight", 2, (uint64_t[]){TINY_EMBD, TINY_FF}, DTYPE_Q8_1,
                      NULL);
}
static void kv_heads(struct gguf_build *b) {
    gguf_build_int(b, "llama.attention.head_count_kv", GGUF_U32, 3);
}
static void no_kv_heads(struct gguf_build *b) {
    gguf_build_ints(b, "llama.attention.head_count_kv", (int32_t[]){TINY_KV_HEADS, 0}, 2);
}

static void one_expert(struct gguf_build *b) {
    gguf_build_int(b, "llama.expert_count", GGUF_U32, 1);
}

// Experts take the place of the dense FFN, and have its width unless the file says another.
static void test_reads_experts(void **state) {
    const struct tiny_model tiny = {.n_layers = 1, .n_experts = 6};
    struct fixture *f = *state;
    const struct unit *unit = &f->shape.units[2];
    struct err e;
    assert_int_equal(read_tiny(&tiny, NULL, NULL, f, &e), OK);
    assert_int_equal(f->shape.n_units, 4);
    assert_int_equal(f->shape.n_ff, 0);
    assert_int_equal(unit->kind, UNIT_EXPERTS);
    assert_int_equal(unit->n_experts, 6);
    assert_int_equal(unit->n_experts_used, 2);
    assert_int_equal(unit->n_ff_expert, TINY_FF);
    assert_int_equal(unit->n_tensors, 5);
    assert_int_equal(unit_find(unit, ROLE_EXPERT_DOWN)->n_matrices, 6);
    assert_int_equal(f->model.hp.expert_gate, GATE_SOFTMAX);
    assert_true(f->model.hp.normalise_experts);
    assert_int_equal(shape_check(&f->shape, &e), OK);
    assert_int_equal(read_edited(one_expert, NULL, f, &e), OK);
    assert_int_equal(unit->kind, UNIT_FFN);
    assert_int_equal(f->shape.n_experts, 0);
}

static void weights_of_experts(struct gguf_build *b) {
    gguf_build_int(b, "qwen2moe.expert_gating_func", GGUF_U32, 2);
    gguf_build_int(b, "qwen2moe.expert_weights_norm", GGUF_BOOL, 1);
    gguf_build_f32(b, "qwen2moe.expert_weights_scale", 2.5f);
}

// A shared expert is an FFN before the routed ones, has the norm of both, and any name of its key.
static void test_reads_shared_experts(void **state) {
    const struct tiny_model tiny = {
        .architecture = "qwen2moe", .n_layers = 2, .n_experts = 4, .shared = true};
    static const char width[] = "qwen2moe.expert_shared_feed_forward_length";
    struct fixture *f = *state;
    const struct hparams *hp = &f->model.hp;
    const struct unit *ffn = &f->shape.units[2], *experts = &f->shape.units[3];
    struct err e;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(read_tiny(&tiny, NULL, i ? width : NULL, f, &e), OK);
        assert_int_equal(f->shape.n_units, 8);
        assert_true(ffn->kind == UNIT_FFN && ffn->n_tensors == 5);
        assert_string_equal(ffn->tensors[1].name, "blk.0.ffn_gate_shexp.weight");
        assert_true(experts->kind == UNIT_EXPERTS && experts->n_tensors == 4);
        assert_int_equal(f->shape.n_ff, TINY_FF);
        assert_true(f->shape.has_shared_gates);
    }
    assert_false(hp->normalise_experts);
    assert_int_equal(hp->expert_gate, GATE_SOFTMAX);
    assert_int_equal(read_tiny(&tiny, weights_of_experts, NULL, f, &e), OK);
    assert_true(hp->normalise_experts);
    assert_int_equal(hp->expert_gate, GATE_SIGMOID);
    assert_float_equal(hp->expert_scale, 2.5f, 0);
    assert_int_equal(read_tiny(&tiny, NULL, "blk.1.ffn_down_shexp.weight", f, &e), ERR_FORMAT);
    assert_non_null(strstr(e.what, "blk.1.ffn_down"));
}

// Experts of Mistrals are weighted alike in files of either name.
static void test_mistral_experts(void **state) {
    static const char *const architectures[] = {"llama", "mistral3"};
    struct fixture *f = *state;
    struct err e;
    for (int i = 0; i < 2; i++) {
        const struct tiny_model tiny = {
            .architecture = architectures[i], .n_layers = 1, .n_experts = 4};
        assert_int_equal(read_tiny(&tiny, NULL, NULL, f, &e), OK);
        assert_int_equal(f->model.hp.expert_gate, GATE_SOFTMAX);
        assert_true(f->model.hp.normalise_experts);
    }
}

static void dense_start(struct gguf_build *b) {
    static const char *const names[] = {"blk.0.ffn_gate.weight", "blk.0.ffn_up.weight",
                                        "blk.0.ffn_down.weight"};
    gguf_build_int(b, "llama.leading_dense_block_count", GGUF_U32, 1);
    for (int i = 0; i < 3; i++)
        gguf_build_tensor(b, names[i], 2,
                          i < 2 ? (uint64_t[]){TINY_EMBD, TINY_FF}
                                : (uint64_t[]){TINY_FF, TINY_EMBD},
                          DTYPE_F16, NULL);
}

static void test_reads_dense_start(void **state) {
    const struct tiny_model tiny = {.n_layers = 3, .n_experts = 4};
    struct fixture *f = *state;
    struct err e;
    assert_int_equal(read_tiny(&tiny, dense_start, "blk.0.ffn_*_*", f, &e), OK);
    assert_int_equal(f->shape.n_units, 8);
    assert_int_equal(f->shape.units[2].kind, UNIT_FFN);
    assert_int_equal(f->shape.units[4].kind, UNIT_EXPERTS);
    assert_int_equal(f->shape.units[6].kind, UNIT_EXPERTS);
    assert_int_equal(f->shape.n_ff, TINY_FF);
    assert_int_equal(shape_check(&f->shape, &e), OK);
}

static void add_expert(struct gguf_build *b, enum dtype type) {
    gguf_build_tensor(b, "blk.1.ffn_up.2.weight", 2, (uint64_t[]){TINY_EMBD, TINY_FF}, type, NULL);
}
static void late_expert(struct gguf_build *b) { add_expert(b, DTYPE_F16); }
static void other_expert(struct gguf_build *b) { add_expert(b, DTYPE_Q8_0); }

// The experts of early files, each a tensor, are like one tensor of all. In their usual order each
// is as far from the one before it as all others.
static void test_reads_experts_apart(void **state) {
    static const char one[] = "blk.1.ffn_up.2.weight";
    const struct tiny_model tiny = {.n_layers = 2, .n_experts = 4, .apart = true};
    const uint64_t matrix = (uint64_t)TINY_EMBD * TINY_FF * 2;
    struct fixture *f = *state;
    const struct unit *unit = &f->shape.units[4];
    const uint64_t *strides = f->model.strides[4];
    struct err e;
    assert_int_equal(read_tiny(&tiny, NULL, NULL, f, &e), OK);
    assert_int_equal(shape_check(&f->shape, &e), OK);
    for (int i = 2; i < 5; i++) {
        assert_int_equal(unit->tensors[i].n_matrices, 4);
        assert_int_equal(unit->tensors[i].size_bytes, 4 * matrix);
        assert_int_equal(strides[i], 3 * matrix);
    }
    assert_string_equal(unit_find(unit, ROLE_EXPERT_UP)->name, "blk.1.ffn_up_exps.weight");
    assert_int_equal(strides[0] + strides[1], 0);
    assert_int_equal(read_tiny(&tiny, late_expert, one, f, &e), OK);
    for (int i = 2; i < 5; i++) assert_true(strides[i] == EXPERTS_APART);
    assert_int_equal(read_tiny(&tiny, NULL, one, f, &e), ERR_FORMAT);
    assert_non_null(strstr(e.what, "the tensor of expert 2 is missing"));
    assert_int_equal(read_tiny(&tiny, other_expert, one, f, &e), ERR_UNSUPPORTED);
    assert_non_null(strstr(e.what, "blk.1.ffn_up.2.weight has another type"));
}

// Writes a model of two parts, whose second has the ups of the second expert, further from its
// start than anything lies from that of the first. Sets the parts' paths.
static void write_parts(char paths[2][96]) {
    static const char one[] = "blk.0.ffn_up.1.weight";
    const struct tiny_model tiny = {.n_layers = 1, .n_experts = 2, .apart = true};
    struct gguf_build parts[2];
    tiny_model_build(&parts[0], &tiny, one);
    gguf_build_init(&parts[1]);
    const uint64_t n_tensors = parts[0].n_tensors + 1;
    for (int i = 0; i < 2; i++) {
        gguf_build_split(&parts[i], (uint64_t)i, 2, n_tensors);
        if (i == 1) {
            gguf_bytes_raw(&parts[1].data, parts[0].file.bytes, parts[0].file.size);
            gguf_build_tensor(&parts[1], one, 2, (uint64_t[]){TINY_EMBD, TINY_FF}, DTYPE_F16, NULL);
        }
        gguf_build_finish(&parts[i]);
        snprintf(paths[i], sizeof paths[i], "%s.%d-0000%d-of-00002.gguf", PATH, (int)getpid(),
                 i + 1);
        gguf_build_write(&parts[i], paths[i]);
    }
    for (int i = 0; i < 2; i++) gguf_build_close(&parts[i]);
}

// Experts in two parts have no distance, whatever their places in the two files.
static void test_reads_experts_in_parts(void **state) {
    struct fixture *f = *state;
    const uint64_t *strides = f->model.strides[2];
    char paths[2][96];
    struct gguf g;
    struct err e;
    write_parts(paths);
    assert_int_equal(gguf_open(&g, paths[0], &e), OK);
    assert_int_equal(model_read(&f->model, &f->shape, &g, &e), OK);
    const struct unit *unit = &f->shape.units[2];
    assert_non_null(unit_find(unit, ROLE_EXPERT_UP));
    for (int i = 0; i < unit->n_tensors; i++)
        assert_true((strides[i] == EXPERTS_APART) == (unit->tensors[i].role == ROLE_EXPERT_UP));
    gguf_close(&g);
    for (int i = 0; i < 2; i++) unlink(paths[i]);
}

// Small tensors are F32 in the unit, with as many bytes, whatever they are in the file.
static void test_reads_halves(void **state) {
    const struct tiny_model tiny = {.n_layers = 1, .n_experts = 4, .biased = true, .halves = true};
    struct fixture *f = *state;
    struct err e;
    assert_int_equal(read_tiny(&tiny, NULL, NULL, f, &e), OK);
    assert_int_equal(shape_check(&f->shape, &e), OK);
    const struct unit_tensor *norm = &f->shape.units[1].tensors[0];
    const struct unit_tensor *router = unit_find(&f->shape.units[2], ROLE_ROUTER);
    const struct unit_tensor *biases = unit_find(&f->shape.units[2], ROLE_EXPERT_UP_BIAS);
    assert_true(norm->type == DTYPE_F32 && norm->size_bytes == 4 * TINY_EMBD);
    assert_true(router->type == DTYPE_F32 && router->size_bytes == 4 * 4 * TINY_EMBD);
    assert_true(biases->type == DTYPE_F32 && biases->size_bytes == 4 * 4 * TINY_FF);
    assert_int_equal(f->norm_type, DTYPE_F16);
    const struct tiny_model turned = {.n_layers = 1, .freqs = true, .halves = true};
    assert_int_equal(read_tiny(&turned, NULL, NULL, f, &e), ERR_UNSUPPORTED);
    assert_non_null(strstr(e.what, "rope_freqs.weight"));
}

static void test_scaling(void **state) {
    struct fixture *f = *state;
    const struct hparams *hp = &f->model.hp;
    struct err e;
    assert_int_equal(read_edited(linear, NULL, f, &e), OK);
    assert_float_equal(hp->rope.scale, 0.25f, 0);
    assert_float_equal(hp->rope.ext, 0, 0);
    assert_int_equal(read_edited(yarn, NULL, f, &e), OK);
    assert_float_equal(hp->rope.ext, 1, 0);
    // 16 / (2 ln 10000) * ln(128 / (2 pi 32)) is below 0; for beta 1: 0.8686 * 3.0142 = 2.62,
    // rounded up.
    assert_float_equal(hp->rope.corr_low, 0, 0);
    assert_float_equal(hp->rope.corr_high, 3, 0);
    assert_float_equal(hp->rope.magnitude, 1.1386294f, 1e-6f);
}

static void latent_yarn(struct gguf_build *b) {
    gguf_build_text(b, "deepseek2.rope.scaling.type", "yarn");
    gguf_build_f32(b, "deepseek2.rope.scaling.factor", 4);
}
static void latent_scores(struct gguf_build *b) {
    latent_yarn(b);
    gguf_build_f32(b, "deepseek2.rope.scaling.yarn_log_multiplier", 0.1F);
}

// All columns of latent attention have YaRN's magnitude if the file says so, or those that turn.
static void test_latent_scaling(void **state) {
    struct fixture *f = *state;
    const struct hparams *hp = &f->model.hp;
    const struct tiny_model tiny = {.architecture = "deepseek2", .n_layers = 1, .latent_rank = 40};
    const float magnitude = 1.1386294F, scale = 1 / sqrtf(TINY_LATENT_KEY);
    struct err e;
    assert_int_equal(read_tiny(&tiny, latent_yarn, NULL, f, &e), OK);
    assert_float_equal(hp->rope.magnitude, magnitude, 1e-6f);
    assert_float_equal(hp->attention_scale, scale, 1e-6f);
    assert_int_equal(read_tiny(&tiny, latent_scores, NULL, f, &e), OK);
    assert_float_equal(hp->rope.magnitude, 1, 0);
    assert_float_equal(hp->attention_scale, scale * magnitude * magnitude, 1e-6f);
}

static void short_fused(struct gguf_build *b) {
    gguf_build_tensor(b, "blk.1.attn_qkv.weight", 2, (uint64_t[]){TINY_EMBD, 100}, DTYPE_F16, NULL);
}

// The parts of fused tensors follow each other, and each has its own rows.
static void test_reads_fused(void **state) {
    const struct tiny_model tiny = {.n_layers = 2, .fused = true, .biased = true};
    enum { Q = TINY_HEADS * TINY_HEAD_DIM, KV = TINY_KV_HEADS * TINY_HEAD_DIM };
    struct fixture *f = *state;
    struct err e;
    assert_int_equal(read_tiny(&tiny, NULL, NULL, f, &e), OK);
    assert_int_equal(shape_check(&f->shape, &e), OK);
    const struct gguf_tensor *const *attn = f->model.tensors[3], *const *ffn = f->model.tensors[4];
    assert_int_equal(attn[1]->ne[1], Q);
    assert_int_equal(attn[2]->ne[1], KV);
    assert_ptr_equal(attn[2]->data, attn[1]->data + attn[1]->size_bytes);
    assert_ptr_equal(attn[3]->data, attn[2]->data + attn[2]->size_bytes);
    assert_int_equal(attn[3]->size_bytes, KV * TINY_EMBD * 2);
    assert_int_equal(attn[5]->size_bytes, Q * sizeof(float));
    assert_ptr_equal(attn[7]->data, attn[5]->data + (Q + KV) * sizeof(float));
    assert_int_equal(ffn[1]->ne[1], TINY_FF);
    assert_ptr_equal(ffn[2]->data, ffn[1]->data + ffn[1]->size_bytes);
    assert_int_equal(read_tiny(&tiny, short_fused, "blk.1.attn_qkv.weight", f, &e), ERR_FORMAT);
    assert_non_null(strstr(e.what, "blk.1.attn_qkv.weight has the wrong shape"));
}

static void scales(struct gguf_build *b) {
    gguf_build_f32(b, "llama.embedding_scale", 3);
    gguf_build_f32(b, "llama.residual_scale", 0.5f);
    gguf_build_f32(b, "llama.logit_scale", 8);
}

// The residual stream is kept divided by its scale, which early files of minicpm do not tell.
static void test_scales(void **state) {
    struct fixture *f = *state;
    const struct hparams *hp = &f->model.hp;
    struct err e;
    assert_int_equal(read_edited(scales, NULL, f, &e), OK);
    assert_float_equal(hp->embed_scale, 6, 0);
    assert_float_equal(hp->residual_eps, 4e-5f, 1e-10f);
    assert_float_equal(hp->norm_eps, 1e-5f, 0);
    assert_float_equal(hp->logit_scale, 0.125f, 0);
    struct tiny_model tiny = {.architecture = "minicpm", .n_layers = 1, .scaled = true};
    assert_int_equal(read_tiny(&tiny, NULL, NULL, f, &e), OK);
    tiny.scaled = false;
    assert_int_equal(read_tiny(&tiny, NULL, NULL, f, &e), ERR_FORMAT);
    assert_non_null(strstr(e.what, "minicpm.residual_scale is missing"));
}

// The widest Gemmas scale scores by the columns of a head that they would have had.
static void test_widest(void **state) {
    struct fixture *f = *state;
    struct tiny_model tiny = {.architecture = "gemma2", .n_layers = 46, .ends_with_norms = true};
    struct err e;
    assert_int_equal(read_tiny(&tiny, NULL, NULL, f, &e), OK);
    assert_float_equal(f->model.hp.attention_scale, 0.25f, 0); // sqrt(heads / n_embd)
    tiny.n_layers = 45;
    assert_int_equal(read_tiny(&tiny, NULL, NULL, f, &e), OK);
    assert_float_equal(f->model.hp.attention_scale, 0, 0);
    tiny = (struct tiny_model){
        .architecture = "gemma3", .n_layers = 62, .ends_with_norms = true, .normed = true};
    assert_int_equal(read_tiny(&tiny, NULL, NULL, f, &e), OK);
    assert_float_equal(f->model.hp.attention_scale, 0.25f, 0);
}

static void add_matrix(struct gguf_build *b, const char *name) {
    gguf_build_tensor(b, name, 2, (const uint64_t[]){TINY_EMBD, 2}, DTYPE_F32, NULL);
}
static void other_matrix(struct gguf_build *b) { add_matrix(b, "blk.1.attn_other.weight"); }
static void factor(struct gguf_build *b) { add_matrix(b, "blk.1.attn_q.scale"); }
static void unread(struct gguf_build *b) {
    add_matrix(b, "blk.1.attn_rot_embd.weight"); // of early files
    add_matrix(b, "blk.9.nextn.eh_proj.weight"); // of no layer that is computed
    add_matrix(b, "v.patch_embd.weight");        // of encoders of images and sounds
    add_matrix(b, "mm.0.weight");
    add_matrix(b, "a.conv1d.1.weight");
    add_matrix(b, "cls.output.weight"); // of models that rank texts or embed them
    add_matrix(b, "dense_2.bias");
    add_matrix(b, "dense_3.weight");
}
static void outside(struct gguf_build *b) { add_matrix(b, "vision.weight"); }
static void outside_factor(struct gguf_build *b) { add_matrix(b, "output.scale"); }
static void no_layer(struct gguf_build *b) { add_matrix(b, "blk.x.attn_q.weight"); }

// A tensor that nobody knows would be left out silently.
static void test_other_tensors(void **state) {
    struct fixture *f = *state;
    struct err e;
    assert_int_equal(read_edited(unread, NULL, f, &e), OK);
    assert_int_equal(read_edited(factor, NULL, f, &e), ERR_UNSUPPORTED);
    assert_int_equal(read_edited(other_matrix, NULL, f, &e), ERR_UNSUPPORTED);
    assert_non_null(strstr(e.what, "blk.1.attn_other.weight belongs to no part of a layer"));
    assert_int_equal(read_edited(outside, NULL, f, &e), ERR_UNSUPPORTED);
    assert_non_null(strstr(e.what, "vision.weight belongs to no part of a model"));
    assert_int_equal(read_edited(outside_factor, NULL, f, &e), ERR_UNSUPPORTED);
    assert_non_null(strstr(e.what, "output.scale: the factor of a matrix"));
    assert_int_equal(read_edited(no_layer, NULL, f, &e), ERR_UNSUPPORTED);
    assert_non_null(strstr(e.what, "blk.x.attn_q.weight"));
}

static void fewer_layers(struct gguf_build *b) { add_matrix(b, "blk.2.attn_q.weight"); }
static void fused_matrix(struct gguf_build *b) { add_matrix(b, "blk.1.attn_qkv.weight"); }
static void router(struct gguf_build *b) { add_matrix(b, "blk.1.ffn_gate_inp.weight"); }
static void inputs(struct gguf_build *b) { add_matrix(b, "per_layer_model_proj.weight"); }
static void layer_freqs(struct gguf_build *b) { add_matrix(b, "blk.1.rope_freqs.weight"); }
static void add_divisors(struct gguf_build *b, const char *name) {
    gguf_build_tensor(b, name, 1, (const uint64_t[]){TINY_HEAD_DIM / 2}, DTYPE_F32, NULL);
}
static void short_divisors(struct gguf_build *b) { add_divisors(b, "rope_factors_short.weight"); }
static void both_divisors(struct gguf_build *b) {
    short_divisors(b);
    add_divisors(b, "rope_factors_long.weight");
    add_divisors(b, "rope_freqs.weight");
}

// Tensors that some models have, but not those of the family or not there, divisors of angles that
// others replace or lack, and layers behind the last one.
static void test_tensors_of_others(void **state) {
    const struct {
        void (*edit)(struct gguf_build *);
        const char *names;
        enum status status;
    } cases[] = {{fewer_layers, "blk.2.attn_q.weight", ERR_FORMAT},
                 {fused_matrix, "blk.1.attn_qkv.weight", ERR_UNSUPPORTED},
                 {router, "blk.1.ffn_gate_inp.weight", ERR_UNSUPPORTED},
                 {inputs, "per_layer_model_proj.weight", ERR_UNSUPPORTED},
                 {layer_freqs, "blk.1.rope_freqs.weight", ERR_UNSUPPORTED},
                 {short_divisors, "rope_factors_long.weight is missing", ERR_FORMAT},
                 {both_divisors, "rope_freqs.weight", ERR_UNSUPPORTED}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct err e;
        assert_int_equal(read_edited(cases[i].edit, NULL, *state, &e), cases[i].status);
        assert_non_null(strstr(e.what, cases[i].names));
    }
}

static void drafting(struct gguf_build *b) {
    gguf_build_int(b, "llama.nextn_predict_layers", GGUF_U32, 1);
}
static void shared_keys(struct gguf_build *b) {
    gguf_build_int(b, "llama.attention.shared_kv_layers", GGUF_U32, 1);
}
static void joined_too(struct gguf_build *b) { add_matrix(b, "blk.0.attn_kv_b.weight"); }

// Files have these on purpose: layers that draft, keys and values beside the cache of another
// layer, as in Gemma 4, and the matrix that those of latent attention were made of.
static void test_idle_tensors(void **state) {
    struct fixture *f = *state;
    const struct tiny_model plain = {.n_layers = 3, .seed = 1};
    const struct tiny_model latent = {
        .architecture = "deepseek2", .n_layers = 1, .latent_rank = 32, .low_queries = true};
    struct err e;
    assert_int_equal(read_tiny(&plain, drafting, NULL, f, &e), OK);
    assert_int_equal(f->shape.n_layers, 2);
    assert_int_equal(read_tiny(&plain, shared_keys, NULL, f, &e), OK);
    assert_int_equal(f->shape.units[5].n_kv_heads, 0);
    assert_int_equal(read_tiny(&latent, joined_too, NULL, f, &e), OK);
}

static void local_base(struct gguf_build *b) {
    gguf_build_f32(b, "llama.rope.freq_base_swa", 500);
    gguf_build_int(b, "llama.rope.dimension_count_swa", GGUF_U32, 8);
}

// Only layers with a window turn otherwise.
static void test_no_local_rope(void **state) {
    struct fixture *f = *state;
    struct err e;
    assert_int_equal(read_edited(local_base, NULL, f, &e), OK);
    assert_float_equal(f->model.hp.local_rope.base, 0, 0);
    assert_false(f->shape.has_other_angles);
    const struct tiny_model tiny = {
        .architecture = "gemma3", .n_layers = 1, .ends_with_norms = true, .normed = true};
    assert_int_equal(read_tiny(&tiny, NULL, NULL, f, &e), OK);
    assert_float_equal(f->model.hp.local_rope.base, 0, 0);
}

static void mellum_keys(struct gguf_build *b) {
    gguf_build_int(b, "mellum.attention.sliding_window", GGUF_U32, 8);
    gguf_build_f32(b, "mellum.rope.freq_base", 5e5F);
    gguf_build_text(b, "mellum.rope.scaling.type", "linear");
    gguf_build_f32(b, "mellum.rope.scaling.factor", 4);
}

// All but the last of four layers have a window, in which positions are not scaled and the base is
// that of the others, unless a key tells another.
static void test_unscaled_windows(void **state) {
    const struct tiny_model tiny = {
        .architecture = "mellum", .n_layers = 4, .n_experts = 4, .normed = true};
    struct fixture *f = *state;
    struct err e;
    assert_int_equal(read_tiny(&tiny, mellum_keys, "mellum.*.freq_base", f, &e), OK);
    for (int l = 0; l < 4; l++) assert_int_equal(f->model.windows[l], l < 3 ? 8 : 0);
    assert_float_equal(f->model.hp.rope.scale, 0.25F, 0);
    assert_float_equal(f->model.hp.local_rope.scale, 1, 0);
    assert_float_equal(f->model.hp.local_rope.base, 5e5F, 0);
}

static void turned(struct gguf_build *b) {
    gguf_build_int(b, "granite.rope.scaling.finetuned", GGUF_BOOL, 1);
}
static void not_turned(struct gguf_build *b) {
    gguf_build_int(b, "granite.rope.scaling.finetuned", GGUF_BOOL, 0);
}
static void llama_not_turned(struct gguf_build *b) {
    gguf_build_int(b, "llama.rope.scaling.finetuned", GGUF_BOOL, 0);
}

// Granites without rotary positions say so by a key that tells nothing of other families.
static void test_turning(void **state) {
    struct fixture *f = *state;
    const struct tiny_model tiny = {.architecture = "granite", .n_layers = 1};
    const struct tiny_model hybrid = {
        .architecture = "granitehybrid", .n_layers = 2, .delta_period = 2, .scans = true};
    struct err e;
    assert_int_equal(read_tiny(&tiny, NULL, NULL, f, &e), OK);
    assert_int_equal(f->model.hp.no_rope_period, 0);
    assert_int_equal(read_tiny(&tiny, turned, NULL, f, &e), OK);
    assert_int_equal(f->model.hp.no_rope_period, 0);
    assert_int_equal(read_tiny(&tiny, not_turned, NULL, f, &e), OK);
    assert_int_equal(f->model.hp.no_rope_period, 1);
    assert_int_equal(read_tiny(&hybrid, NULL, NULL, f, &e), OK);
    assert_int_equal(f->model.hp.no_rope_period, 0);
    assert_int_equal(read_edited(llama_not_turned, NULL, f, &e), OK);
    assert_int_equal(f->model.hp.no_rope_period, 0);
}

static void bare_norm(struct gguf_build *b) {
    gguf_build_tensor(b, "blk.0.ffn_norm", 1, (const uint64_t[]){TINY_EMBD}, DTYPE_F32, NULL);
}

// The norm before the FFN of Falcon-H1 has a name without a suffix.
static void test_bare_norm(void **state) {
    static const char norm[] = "blk.0.ffn_norm.weight";
    struct fixture *f = *state;
    const struct tiny_model tiny = {
        .architecture = "falcon-h1", .n_layers = 1, .delta_period = 1, .scans_beside = true};
    struct err e;
    assert_int_equal(read_tiny(&tiny, NULL, norm, f, &e), ERR_FORMAT);
    assert_int_equal(read_tiny(&tiny, bare_norm, norm, f, &e), OK);
    assert_string_equal(f->shape.units[2].tensors[0].name, "blk.0.ffn_norm");
}

static void caps(struct gguf_build *b) {
    gguf_build_f32(b, "gemma2.attn_logit_softcapping", 2);
    gguf_build_f32(b, "gemma2.final_logit_softcapping", 5);
}

// Early files of Gemma 2 do not tell its caps.
static void test_caps(void **state) {
    struct fixture *f = *state;
    const struct hparams *hp = &f->model.hp;
    const struct tiny_model tiny = {
        .architecture = "gemma2", .n_layers = 1, .ends_with_norms = true};
    struct err e;
    assert_int_equal(read_tiny(&tiny, NULL, NULL, f, &e), OK);
    assert_float_equal(hp->attention_softcap, 50, 0);
    assert_float_equal(hp->logit_softcap, 30, 0);
    assert_int_equal(read_tiny(&tiny, caps, NULL, f, &e), OK);
    assert_float_equal(hp->attention_softcap, 2, 0);
    assert_float_equal(hp->logit_softcap, 5, 0);
}

static void test_refusals(void **state) {
    static const struct {
        void (*edit)(struct gguf_build *);
        const char *skip;
        enum status status;
        const char *names;
    } cases[] = {
        {experts, NULL, ERR_FORMAT, "llama.expert_used_count is missing"},
        {used_experts, NULL, ERR_FORMAT, "llama.expert_used_count"},
        {many_experts, NULL, ERR_UNSUPPORTED, "experts of a layer"},
        {many_used, NULL, ERR_UNSUPPORTED, "experts of a token"},
        {no_experts, NULL, ERR_FORMAT, "blk.0.ffn_gate_inp.weight is missing"},
        {few_experts, NULL, ERR_FORMAT, "blk.0.ffn_gate_exps.weight has the wrong shape"},
        {odd_experts, NULL, ERR_UNSUPPORTED, "blk.0.ffn_gate_exps.weight: the bytes of one"},
        {other_value, NULL, ERR_UNSUPPORTED, "value heads"},
        {bad_base, NULL, ERR_FORMAT, "rope.freq_base"},
        {text_base, NULL, ERR_FORMAT, "rope.freq_base"},
        {bad_rot, NULL, ERR_FORMAT, "rope.dimension_count"},
        {odd_rot, NULL, ERR_UNSUPPORTED, "rope.dimension_count"},
        {bad_scaling, NULL, ERR_UNSUPPORTED, "rope.scaling.type"},
        {bad_bias, "blk.0.attn_q.bias", ERR_FORMAT, "blk.0.attn_q.bias"},
        {bad_norm, NULL, ERR_FORMAT, "blk.0.attn_q_norm.weight"},
        {bad_type, "output_norm.weight", ERR_UNSUPPORTED, "output_norm.weight"},
        {no_kernel, "blk.1.ffn_up.weight", ERR_UNSUPPORTED, "blk.1.ffn_up.weight"},
        {kv_heads, "llama.attention.head_count_kv", ERR_FORMAT, "head_count"},
        {no_kv_heads, "llama.attention.head_count_kv", ERR_FORMAT, "head_count_kv of layer 1"},
        {NULL, "token_embd.weight", ERR_FORMAT, "token_embd.weight"},
        {NULL, "output_norm.weight", ERR_FORMAT, "output_norm.weight"},
        {NULL, "blk.1.attn_k.weight", ERR_FORMAT, "blk.1.attn_k.weight"},
        {NULL, "blk.0.ffn_down.weight", ERR_FORMAT, "blk.0.ffn_down.weight"},
        {NULL, "llama.block_count", ERR_FORMAT, "llama.block_count"},
        {NULL, "llama.embedding_length", ERR_FORMAT, "llama.embedding_length"},
        {NULL, "llama.context_length", ERR_FORMAT, "llama.context_length"},
        {NULL, "llama.attention.head_count", ERR_FORMAT, "llama.attention.head_count"},
        {NULL, "llama.feed_forward_length", ERR_FORMAT, "llama.feed_forward_length"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct err e = {0};
        enum status status = read_edited(cases[i].edit, cases[i].skip, *state, &e);
        if (status != cases[i].status || !strstr(e.what, cases[i].names)) {
            fail_msg("case %zu (%s): got %s: %s", i, cases[i].names, status_name(status), e.what);
        }
    }
}

enum {
    DELTA_ROWS = (2 * TINY_DELTA_KEYS + 2 * TINY_DELTA_HEADS) * TINY_DELTA_DIM,
};
static void ssm_in(struct gguf_build *b) {
    gguf_build_tensor(b, "blk.0.ssm_in.weight", 2, (uint64_t[]){TINY_EMBD, DELTA_ROWS}, DTYPE_F16,
                      NULL);
}
static void long_ssm_in(struct gguf_build *b) {
    gguf_build_tensor(b, "blk.0.ssm_in.weight", 2, (uint64_t[]){TINY_EMBD, DELTA_ROWS + 2},
                      DTYPE_F16, NULL);
}

// Early files of qwen3next, which have queries, keys, values and gates in one tensor.
static void test_early_delta(void **state) {
    const struct tiny_model tiny = {.architecture = "qwen3next",
                                    .normed = true,
                                    .n_layers = 2,
                                    .n_experts = 4,
                                    .shared = true,
                                    .delta_period = 2,
                                    .joined = true};
    struct err e;
    assert_int_equal(read_tiny(&tiny, NULL, NULL, *state, &e), OK);
    assert_int_equal(read_tiny(&tiny, ssm_in, "blk.0.attn_qkv.weight", *state, &e), OK);
    assert_int_equal(read_tiny(&tiny, long_ssm_in, "blk.0.attn_qkv.weight", *state, &e),
                     ERR_FORMAT);
    assert_non_null(strstr(e.what, "blk.0.ssm_in.weight has the wrong shape"));
}

static void shared_caches(struct gguf_build *b) {
    gguf_build_int(b, "granitehybrid.attention.shared_kv_layers", GGUF_U32, 2);
}

// Layers 1 and 3 of four have attention. The latter, which reads the cache of an earlier layer,
// reads that of layer 1; where that has none either, there is nothing to read.
static void test_caches_beside_states(void **state) {
    struct fixture *f = *state;
    struct tiny_model tiny = {
        .architecture = "granitehybrid", .n_layers = 4, .delta_period = 2, .scans = true};
    struct err e;
    assert_int_equal(read_tiny(&tiny, shared_caches, NULL, f, &e), OK);
    const struct unit *units = f->shape.units;
    assert_true(units[3].n_kv_heads > 0 && units[3].lends_cache);
    assert_int_equal(units[5].cache_unit, 0); // a recurrent layer
    assert_int_equal(units[7].cache_unit, 3);
    tiny.n_layers = 3;
    assert_int_equal(read_tiny(&tiny, shared_caches, NULL, f, &e), ERR_FORMAT);
    assert_non_null(strstr(e.what, "layer 1 reads the cache of an earlier one"));
}

static void deci_numbers(struct gguf_build *b, const int32_t heads[2], const int32_t kv_heads[2],
                         const int32_t widths[2]) {
    gguf_build_ints(b, "deci.attention.head_count", heads, 2);
    gguf_build_ints(b, "deci.attention.head_count_kv", kv_heads, 2);
    gguf_build_ints(b, "deci.feed_forward_length", widths, 2);
}
static void deci_without_ffn(struct gguf_build *b) {
    deci_numbers(b, (int32_t[]){TINY_HEADS, TINY_HEADS}, (int32_t[]){TINY_KV_HEADS, TINY_KV_HEADS},
                 (int32_t[]){TINY_FF, 0});
}
static void deci_with_matrix(struct gguf_build *b) {
    deci_numbers(b, (int32_t[]){TINY_HEADS, TINY_HEADS}, (int32_t[]){TINY_KV_HEADS, 0},
                 (int32_t[]){TINY_FF, TINY_FF});
}
static void deci_without_heads(struct gguf_build *b) {
    deci_numbers(b, (int32_t[]){0, 0}, (int32_t[]){0, 0}, (int32_t[]){TINY_FF, TINY_FF});
}

// Larger models of Baichuan have other positions, which no key tells.
static void test_sloped(void **state) {
    struct tiny_model tiny = {.architecture = "baichuan", .n_layers = 39};
    struct err e;
    assert_int_equal(read_tiny(&tiny, NULL, NULL, *state, &e), OK);
    tiny.n_layers = 40;
    assert_int_equal(read_tiny(&tiny, NULL, NULL, *state, &e), ERR_UNSUPPORTED);
    assert_non_null(strstr(e.what, "baichuan with 40 layers has slopes of scores (ALiBi)"));
}

// Layers of deci may lack attention, but not have something else in its place, nor lack an FFN.
static void test_layers_without_attention(void **state) {
    static const struct {
        void (*edit)(struct gguf_build *);
        enum status status;
        const char *what;
    } cases[] = {
        {deci_without_ffn, ERR_UNSUPPORTED, "layer 1 has no FFN"},
        {deci_with_matrix, ERR_UNSUPPORTED, "layer 1 has a matrix in place of attention"},
        {deci_without_heads, ERR_FORMAT, "key deci.attention.head_count is missing"},
    };
    const struct tiny_model tiny = {.architecture = "deci", .n_layers = 2};
    struct err e;
    assert_int_equal(read_tiny(&tiny, NULL, NULL, *state, &e), OK);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(read_tiny(&tiny, cases[i].edit, "deci.[af]*[tvh]", *state, &e),
                         cases[i].status);
        assert_string_equal(e.what, cases[i].what);
    }
}

static void heads_of_none(struct gguf_build *b) {
    gguf_build_ints(b, "laguna.attention.head_count", (int32_t[]){TINY_HEADS, 0}, 2);
}
static void heads_of_odd(struct gguf_build *b) {
    gguf_build_ints(b, "laguna.attention.head_count", (int32_t[]){TINY_HEADS, TINY_KV_HEADS + 1},
                    2);
}

// Layers may differ in query heads, of which each has some, in groups of one size.
static void test_heads_of_layers(void **state) {
    static const struct {
        void (*edit)(struct gguf_build *);
        const char *what;
    } cases[] = {
        {heads_of_none, "key laguna.attention.head_count is 0 for layer 1"},
        {heads_of_odd, "laguna.attention.head_count is no multiple of head_count_kv"},
    };
    struct fixture *f = *state;
    struct tiny_model tiny = {TINY_LAGUNA, .n_layers = 2, .n_experts = 4};
    struct err e;
    assert_int_equal(read_tiny(&tiny, NULL, NULL, f, &e), OK);
    assert_int_equal(f->shape.units[1].n_heads, TINY_HEADS);
    assert_int_equal(f->shape.units[3].n_heads, tiny.other_heads);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(read_tiny(&tiny, cases[i].edit, "laguna.attention.head_count", f, &e),
                         ERR_FORMAT);
        assert_string_equal(e.what, cases[i].what);
    }
    tiny.gates_heads = false; // a gate for each column has another form
    assert_int_equal(read_tiny(&tiny, NULL, NULL, f, &e), ERR_FORMAT);
    assert_non_null(strstr(e.what, "blk.0.attn_gate.weight has the wrong shape"));
}

static void xielu_keys(struct gguf_build *b, const float *above, uint64_t count) {
    gguf_build_floats(b, "xielu.alpha_p", above, count);
    gguf_build_f32(b, "xielu.alpha_n", 0);
    gguf_build_f32(b, "xielu.beta", 0.5F);
}
static void xielu_of_each(struct gguf_build *b) {
    xielu_keys(b, (float[]){0, 100}, 2);
    gguf_build_f32(b, "xielu.eps", -1e-6F);
}
static void xielu_of_one(struct gguf_build *b) {
    xielu_keys(b, (float[]){0}, 1);
    gguf_build_f32(b, "xielu.eps", -1e-6F);
}
static void xielu_without_eps(struct gguf_build *b) { xielu_keys(b, (float[]){0, 1}, 2); }
static void xielu_infinite(struct gguf_build *b) {
    xielu_keys(b, (float[]){0, INFINITY}, 2);
    gguf_build_f32(b, "xielu.eps", -1e-6F);
}

// The numbers of an activation that each layer has, or one for all of them.
static void test_xielu(void **state) {
    static const struct {
        void (*edit)(struct gguf_build *);
        const char *what;
    } cases[] = {
        {xielu_of_one, "key xielu.alpha_p has too few elements"},
        {xielu_without_eps, "key xielu.eps is missing"},
        {xielu_infinite, "key xielu.alpha_p of layer 1"},
    };
    const struct tiny_model tiny = {
        .architecture = "apertus", .n_layers = 2, .normed = true, .ungated = true};
    struct fixture *f = *state;
    const struct xielu_numbers *n = f->model.hp.xielu;
    struct err e;
    assert_int_equal(read_tiny(&tiny, xielu_of_each, NULL, f, &e), OK);
    assert_float_equal(n[0].positive, 0.693147F, 1e-6F);
    assert_float_equal(n[1].positive, 100, 1e-5F);
    assert_float_equal(n[1].negative, 1.193147F, 1e-6F);
    assert_float_equal(n[0].linear, 0.5F, 0);
    assert_float_equal(n[1].top, -1e-6F, 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(read_tiny(&tiny, cases[i].edit, NULL, f, &e), ERR_FORMAT);
        assert_string_equal(e.what, cases[i].what);
    }
}

// Norms that ops can leave out, and that a family does not.
static void test_needed_tensors(void **state) {
    const struct tiny_model gemma4 = {
        .architecture = "gemma4", .n_layers = 2, .ends_with_norms = true, .normed = true};
    struct tiny_model experts = gemma4;
    experts.n_experts = 4;
    experts.beside = true;
    static const struct {
        bool experts;
        const char *skip;
    } cases[] = {
        {false, "blk.1.post_ffw_norm.weight"},  {false, "blk.0.post_attention_norm.weight"},
        {false, "blk.1.attn_q_norm.weight"},    {false, "blk.0.attn_k_norm.weight"},
        {true, "blk.1.post_ffw_norm.weight"},   {true, "blk.0.post_ffw_norm_1.weight"},
        {true, "blk.0.post_ffw_norm_2.weight"}, {true, "blk.1.pre_ffw_norm_2.weight"},
        {true, "blk.0.ffn_gate_inp.scale"},
    };
    struct err e;
    assert_int_equal(read_tiny(&gemma4, NULL, NULL, *state, &e), OK);
    assert_int_equal(read_tiny(&experts, NULL, NULL, *state, &e), OK);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct tiny_model *tiny = cases[i].experts ? &experts : &gemma4;
        assert_int_equal(read_tiny(tiny, NULL, cases[i].skip, *state, &e), ERR_FORMAT);
        if (!strstr(e.what, cases[i].skip)) fail_msg("%s: %s", cases[i].skip, e.what);
    }
}

// The families that a message names are whole words, and dots say that there are more.
static void test_names_families(void **state) {
    const struct tiny_model tiny = {.architecture = "gpt2", .n_layers = 1};
    struct err e;
    assert_int_equal(read_tiny(&tiny, NULL, NULL, *state, &e), ERR_UNSUPPORTED);
    const size_t length = strlen(e.fix);
    assert_true(length < sizeof e.fix - 1);
    assert_non_null(strstr(e.fix, "llama, qwen2, "));
    assert_string_equal(e.fix + length - 5, ", ...");
}

static int setup(void **state) {
    *state = mem_alloc(1, sizeof(struct fixture));
    return *state ? 0 : -1;
}

static int teardown(void **state) {
    mem_free(*state);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reads_dimensions),
        cmocka_unit_test(test_reads_experts),
        cmocka_unit_test(test_reads_shared_experts),
        cmocka_unit_test(test_mistral_experts),
        cmocka_unit_test(test_reads_dense_start),
        cmocka_unit_test(test_reads_halves),
        cmocka_unit_test(test_reads_experts_apart),
        cmocka_unit_test(test_reads_experts_in_parts),
        cmocka_unit_test(test_scaling),
        cmocka_unit_test(test_latent_scaling),
        cmocka_unit_test(test_scales),
        cmocka_unit_test(test_widest),
        cmocka_unit_test(test_bare_norm),
        cmocka_unit_test(test_caps),
        cmocka_unit_test(test_turning),
        cmocka_unit_test(test_no_local_rope),
        cmocka_unit_test(test_unscaled_windows),
        cmocka_unit_test(test_other_tensors),
        cmocka_unit_test(test_tensors_of_others),
        cmocka_unit_test(test_idle_tensors),
        cmocka_unit_test(test_reads_fused),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_early_delta),
        cmocka_unit_test(test_caches_beside_states),
        cmocka_unit_test(test_sloped),
        cmocka_unit_test(test_layers_without_attention),
        cmocka_unit_test(test_heads_of_layers),
        cmocka_unit_test(test_xielu),
        cmocka_unit_test(test_needed_tensors),
        cmocka_unit_test(test_names_families),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}

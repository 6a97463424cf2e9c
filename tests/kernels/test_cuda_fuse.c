/* test_cuda_fuse.c: which neighbouring ops of a CUDA stream's list are one launch, on the emulated
 * driver, and that they leave the same bytes in all memory as in lists of their own. What whole
 * layers compute at once is check_ops's. */
#include "base/mem.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/params.h"
#include "tests/lib/open_cuda.h"
#include "tests/lib/open_device.h"

#include <assert.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { SIZE = 2 << 20, SLOT = 64 << 10, N_COLS = 256, N_ROWS = 24 };

// The operands, each a slot of the memory.
enum slot {
    X,
    NORMED,
    NORM_WEIGHT,
    SCRATCH,
    OUT,
    OTHER_OUT,
    THIRD_OUT,
    RESIDUAL,
    BIAS,
    GATE,
    UP,
    ELSEWHERE,
    QUERIES,
    KEYS,
    VALUES,
    TABLE,
    K_CACHE,
    V_CACHE,
    NUMBERS, // int32: page, position and cache row 0
    WEIGHTS,
    SLOTS = WEIGHTS + 8,
};
static_assert(SLOTS * SLOT <= SIZE, "the slots lie in the memory");

struct bench {
    struct device *device;
    struct stream *stream;
    struct buffer memory;
    uint8_t *before, *after; // all memory
    bool apart;              // each op has a list of its own
    uint32_t random;
};

static uint32_t next(struct bench *b, uint32_t limit) {
    b->random = b->random * 1664525 + 1013904223;
    return (uint32_t)((uint64_t)(b->random >> 8) * limit >> 24);
}

static struct bench open_bench(const char *capability) {
    struct bench b = {.random = 7};
    b.device = open_cuda(capability);
    b.stream = new_stream(b.device, STREAM_COMPUTE);
    b.memory = new_buffer(b.device, SIZE, PURPOSE_SCRATCH);
    b.before = mem_alloc(SIZE, 1);
    b.after = mem_alloc(SIZE, 1);
    assert_true(b.before && b.after);
    return b;
}

static void close_bench(struct bench *b) {
    mem_free(b->before);
    mem_free(b->after);
    stream_free(b->stream);
    buffer_free(&b->memory);
    device_close(b->device);
}

static struct cuda_queue *queue_of(const struct bench *b) {
    return &((struct cuda_stream *)b->stream)->queue;
}

static void *at(const struct bench *b, enum slot slot) {
    return (char *)b->memory.base + (size_t)slot * SLOT;
}

// Floats within -1..1; numbers 0; weights of bytes that are small positive numbers in every type.
static void fill(struct bench *b) {
    float *values = (float *)(void *)b->before;
    for (int i = 0; i < WEIGHTS * SLOT / 4; i++)
        values[i] = ((float)next(b, 20001) - 10000) / 10000;
    memset(b->before + NUMBERS * SLOT, 0, SLOT);
    memset(b->before + K_CACHE * SLOT, 0, 2 * SLOT);
    for (int i = WEIGHTS * SLOT; i < SIZE; i++) b->before[i] = (uint8_t)(1 + next(b, 47));
}

// ---- Ops and what lies between them ------------------------------------------------------------

// Ways in which two ops are no neighbours, or not each other's input.
enum twist {
    PLAIN,
    // Between the two.
    OP_BETWEEN,
    EVENT_BETWEEN,
    COPY_BETWEEN,
    CALL_BETWEEN,
    // How the second differs.
    OTHER_INPUT,
    OTHER_ROWS,
    MANY_ROWS,
    OVERLAPS,
    ODD_STRIDE,
    MISALIGNED,
    ODD_WIDTH,
    FLOATS,
    OTHER_TYPE,
    MIXED_TYPES,
    FOURTH,
    SAME_OUT,
    READS_OUT,
    BIAS_IS_OUT,
    WEIGHT_IS_OUT,
    OTHER_SCRATCH,
    NARROW_FLOATS,
    SOFTPLUS,
};

static void no_call(void *context) { (void)context; }

static void come_between(struct bench *b, enum twist twist) {
    const struct swiglu_args other = {.out = at(b, ELSEWHERE),
                                      .gate = at(b, ELSEWHERE),
                                      .n_rows = 1,
                                      .n_cols = 8,
                                      .stride = 8,
                                      .form = GLU_SQUARE};
    struct event event;
    struct err e = {0};
    if (b->apart) stream_flush(b->stream);
    switch (twist) {
    case OP_BETWEEN: b->device->ops->swiglu(b->stream, &other); break;
    case EVENT_BETWEEN:
        assert_int_equal(event_new(b->device, &event, &e), OK);
        stream_record(b->stream, &event);
        event_free(&event);
        break;
    case COPY_BETWEEN: stream_copy(b->stream, at(b, ELSEWHERE), at(b, X), 64, COPY_WITHIN); break;
    case CALL_BETWEEN: stream_call(b->stream, no_call, NULL); break;
    default: break;
    }
    if (b->apart) stream_flush(b->stream);
}

static struct matmul_args product_of(const struct bench *b, enum slot x, int32_t n_tokens) {
    return (struct matmul_args){.out = at(b, OUT),
                                .x = at(b, x),
                                .weight = at(b, WEIGHTS),
                                .scratch = at(b, SCRATCH),
                                .n_tokens = n_tokens,
                                .n_cols = N_COLS,
                                .row_count = N_ROWS,
                                .out_stride = N_ROWS};
}

static void multiply(struct bench *b, enum weight_type type, const struct matmul_args *a) {
    b->device->ops->matmul(b->stream, type, a);
}

// The sequences: two ops or more, with the twist between them or in the second.

static void norm_product(struct bench *b, enum twist twist) {
    const uint32_t most = twist == FLOATS ? MATVEC_F16_TOKENS : MATVEC_TOKENS;
    const int32_t n = twist == MANY_ROWS ? MATVEC_TOKENS + 1 : 1 + (int32_t)next(b, most);
    struct rms_norm_args norm = {.out = at(b, NORMED),
                                 .x = at(b, X),
                                 .weight = at(b, NORM_WEIGHT),
                                 .residual = next(b, 2) ? at(b, RESIDUAL) : NULL,
                                 .bias = next(b, 2) ? at(b, BIAS) : NULL,
                                 .n_rows = n,
                                 .n_cols = N_COLS,
                                 .eps = 1e-5F,
                                 .centred = next(b, 2)};
    struct matmul_args product = product_of(b, twist == OTHER_INPUT ? X : NORMED, n);
    if (twist == OTHER_ROWS) norm.n_rows = n + 1;
    if (twist == OVERLAPS) norm.x = at(b, SCRATCH);
    b->device->ops->rms_norm(b->stream, &norm);
    come_between(b, twist);
    multiply(b, twist == FLOATS ? WEIGHT_F16 : WEIGHT_Q8_0, &product);
}

// A row that a block goes over several times.
static void wide_norm_product(struct bench *b, enum twist twist) {
    struct matmul_args product = product_of(b, NORMED, 2);
    product.n_cols = 2304;
    product.row_count = product.out_stride = 2;
    const struct rms_norm_args norm = {
        .out = at(b, NORMED), .x = at(b, X), .n_rows = 2, .n_cols = 2304, .eps = 1e-5F};
    b->device->ops->rms_norm(b->stream, &norm);
    come_between(b, twist);
    multiply(b, WEIGHT_Q4_0, &product);
}

static void swiglu_product(struct bench *b, enum twist twist) {
    const int32_t n = 1 + (int32_t)next(b, MATVEC_TOKENS - 1);
    struct swiglu_args unit = {.out = at(b, GATE),
                               .gate = at(b, GATE),
                               .up = next(b, 4) ? at(b, UP) : NULL,
                               .row_gate = next(b, 2) ? at(b, BIAS) : NULL,
                               .n_rows = n,
                               .n_cols = N_COLS,
                               .stride = N_COLS,
                               .up_stride = N_COLS * (int32_t)next(b, 2),
                               .form = (enum glu)next(b, GLU_XIELU + 1),
                               .limit = 0.5F,
                               .xielu = {0.9F, 0.7F, 0.4F, -0.01F}};
    struct matmul_args product = product_of(b, twist == OTHER_INPUT ? UP : GATE, n);
    if (twist == OTHER_ROWS) unit.n_rows = n + 1;
    if (twist == ODD_STRIDE) unit.n_cols = N_COLS / 2;
    if (twist == MISALIGNED) unit.up = (float *)at(b, UP) + 1;
    if (twist == OVERLAPS) unit.up = at(b, SCRATCH);
    if (twist == SOFTPLUS) unit.row_gate = at(b, BIAS), unit.row_form = ROW_SOFTPLUS;
    b->device->ops->swiglu(b->stream, &unit);
    come_between(b, twist);
    multiply(b, WEIGHT_Q8_0, &product);
}

static void attention_product(struct bench *b, enum twist twist) {
    const int32_t n = 1 + (int32_t)next(b, 3), head_dim = twist == ODD_WIDTH ? 16 : 64;
    const struct attention_args attention = {.out = at(b, NORMED),
                                             .q = at(b, QUERIES),
                                             .k_cache = at(b, K_CACHE),
                                             .v_cache = at(b, V_CACHE),
                                             .pages = at(b, NUMBERS),
                                             .positions = at(b, NUMBERS),
                                             .sequences = at(b, NUMBERS),
                                             .n_tokens = n,
                                             .n_heads = N_COLS / head_dim,
                                             .n_kv_heads = 2,
                                             .head_dim = head_dim,
                                             .max_pages = 4,
                                             .k_type = DTYPE_F16,
                                             .v_type = DTYPE_F16,
                                             .scale = 1};
    const struct matmul_args product = product_of(b, twist == OTHER_INPUT ? X : NORMED, n);
    b->device->ops->attention(b->stream, &attention);
    come_between(b, twist);
    multiply(b, WEIGHT_Q8_0, &product);
}

static void rope_store(struct bench *b, enum twist twist) {
    static const enum dtype types[] = {DTYPE_F32, DTYPE_F16, DTYPE_Q8_0, DTYPE_Q4_0};
    const int32_t head_dim = twist == ODD_WIDTH ? 48 : 64;
    const struct rope_args rope = {.q = at(b, QUERIES),
                                   .k = at(b, KEYS),
                                   .table = at(b, TABLE),
                                   .n_tokens = twist == OTHER_ROWS ? 2 : 1,
                                   .n_heads = 6,
                                   .n_kv_heads = 2,
                                   .head_dim = head_dim,
                                   .n_rot = 40,
                                   .neox = next(b, 2)};
    struct kv_store_args store = {.k_cache = at(b, K_CACHE),
                                  .v_cache = at(b, V_CACHE),
                                  .k = at(b, twist == OTHER_INPUT ? VALUES : KEYS),
                                  .v = next(b, 4) ? at(b, VALUES) : NULL,
                                  .cache_rows = at(b, NUMBERS),
                                  .n_tokens = 1,
                                  .n_cols = 2 * head_dim,
                                  .k_type = types[twist == ODD_WIDTH ? 0 : next(b, 4)],
                                  .v_type = types[twist == ODD_WIDTH ? 1 : next(b, 4)]};
    if (twist == OVERLAPS) store.v = at(b, QUERIES);
    b->device->ops->rope(b->stream, &rope);
    come_between(b, twist);
    b->device->ops->kv_store(b->stream, &store);
}

// The rows of a matrix in two pieces, of which the second lies behind others in the same output;
// then two more matrices.
static void products(struct bench *b, enum twist twist) {
    static const enum weight_type mixed[] = {WEIGHT_Q4_K, WEIGHT_Q5_K, WEIGHT_Q6_K, WEIGHT_Q8_0};
    enum weight_type types[4] = {WEIGHT_Q8_0, WEIGHT_Q8_0, WEIGHT_Q8_0, WEIGHT_Q6_K};
    struct matmul_args a = product_of(b, X, twist == MANY_ROWS ? 2 : 1);
    if (twist == FLOATS) types[0] = WEIGHT_F32;
    if (twist == OTHER_TYPE) types[1] = WEIGHT_Q4_0;
    if (twist == NARROW_FLOATS) types[0] = types[1] = WEIGHT_F32;
    if (twist == MIXED_TYPES)
        types[0] = mixed[next(b, 4)], types[1] = mixed[next(b, 3)], types[2] = WEIGHT_Q8_0;
    a.bias = next(b, 2) ? at(b, BIAS) : NULL;
    a.row_count = 7;
    multiply(b, types[0], &a);
    come_between(b, twist);
    a.row_first = 9;
    a.row_count = N_ROWS - 9;
    if (next(b, 2)) a.residual = at(b, RESIDUAL);
    if (twist == OVERLAPS) a.out = at(b, X);
    if (twist == SAME_OUT) a.row_first = 6, a.row_count = 4;
    if (twist == READS_OUT || twist == BIAS_IS_OUT || twist == WEIGHT_IS_OUT)
        a.out = at(b, OTHER_OUT);
    if (twist == READS_OUT) a.residual = (float *)at(b, OUT) - 9;
    if (twist == BIAS_IS_OUT) a.bias = (float *)at(b, OUT) - 3;
    if (twist == WEIGHT_IS_OUT) a.weight = (char *)at(b, OUT) - 10 * N_COLS / 32 * 34;
    if (twist == OTHER_SCRATCH) a.scratch = at(b, ELSEWHERE);
    if (twist == OTHER_INPUT) a.x = at(b, NORMED);
    if (twist == NARROW_FLOATS) a.n_cols = N_COLS / 2;
    multiply(b, types[1], &a);
    if (b->apart) stream_flush(b->stream);
    a = product_of(b, X, 1);
    a.out = at(b, OTHER_OUT);
    a.row_count = 1 + (int32_t)next(b, 12);
    if (twist == PLAIN || twist == MIXED_TYPES || twist == FOURTH) multiply(b, types[2], &a);
    if (b->apart) stream_flush(b->stream);
    a.out = at(b, THIRD_OUT);
    if (twist == FOURTH) multiply(b, types[3], &a);
}

// ---- Sequences ---------------------------------------------------------------------------------

struct sequence {
    const char *name;
    void (*encode)(struct bench *b, enum twist twist);
    enum twist twist;
    enum cuda_kernel kernels[5]; // that the list begins with at the end; of_few of them
    int n_kernels;
    int n_launches; // in the list at the end
};

#define LIST(n, ...) \
    {__VA_ARGS__}, sizeof((enum cuda_kernel[]){__VA_ARGS__}) / sizeof(enum cuda_kernel), n
#define SINGLES   LIST(3, KERNEL_quantize_acts, KERNEL_matmul_vec_q8_0, KERNEL_matmul_vec_q8_0)
#define QUANTIZED LIST(2, KERNEL_quantize_acts, KERNEL_matmul_vec_q8_0)

static const struct sequence SEQUENCES[] = {
    {"norm", norm_product, PLAIN, LIST(2, KERNEL_rms_norm_quantize, KERNEL_matmul_vec_q8_0)},
    {"wide norm", wide_norm_product, PLAIN,
     LIST(2, KERNEL_rms_norm_quantize, KERNEL_matmul_vec_q4_0)},
    {"norm, op", norm_product, OP_BETWEEN,
     LIST(4, KERNEL_rms_norm, KERNEL_swiglu, KERNEL_quantize_acts, KERNEL_matmul_vec_q8_0)},
    {"norm, event", norm_product, EVENT_BETWEEN, QUANTIZED},
    {"norm, copy", norm_product, COPY_BETWEEN, QUANTIZED},
    {"norm, call", norm_product, CALL_BETWEEN, QUANTIZED},
    {"norm of other rows", norm_product, OTHER_ROWS,
     LIST(3, KERNEL_rms_norm, KERNEL_quantize_acts, KERNEL_matmul_vec_q8_0)},
    {"norm of other x", norm_product, OTHER_INPUT,
     LIST(3, KERNEL_rms_norm, KERNEL_quantize_acts, KERNEL_matmul_vec_q8_0)},
    {"norm of many", norm_product, MANY_ROWS, LIST(3, KERNEL_rms_norm, KERNEL_quantize_acts)},
    {"norm of scratch", norm_product, OVERLAPS,
     LIST(3, KERNEL_rms_norm, KERNEL_quantize_acts, KERNEL_matmul_vec_q8_0)},
    {"norm for floats", norm_product, FLOATS, LIST(2, KERNEL_rms_norm, KERNEL_matmul_vec_f16)},
    {"unit", swiglu_product, PLAIN, LIST(2, KERNEL_swiglu_quantize, KERNEL_matmul_vec_q8_0)},
    {"unit, op", swiglu_product, OP_BETWEEN,
     LIST(4, KERNEL_swiglu, KERNEL_swiglu, KERNEL_quantize_acts, KERNEL_matmul_vec_q8_0)},
    {"unit of other rows", swiglu_product, OTHER_ROWS,
     LIST(3, KERNEL_swiglu, KERNEL_quantize_acts, KERNEL_matmul_vec_q8_0)},
    {"unit of other x", swiglu_product, OTHER_INPUT,
     LIST(3, KERNEL_swiglu, KERNEL_quantize_acts, KERNEL_matmul_vec_q8_0)},
    {"unit of a part of x", swiglu_product, ODD_STRIDE,
     LIST(3, KERNEL_swiglu, KERNEL_quantize_acts, KERNEL_matmul_vec_q8_0)},
    {"unit of odd addresses", swiglu_product, MISALIGNED,
     LIST(3, KERNEL_swiglu, KERNEL_quantize_acts, KERNEL_matmul_vec_q8_0)},
    {"unit with softplus", swiglu_product, SOFTPLUS,
     LIST(3, KERNEL_swiglu, KERNEL_quantize_acts, KERNEL_matmul_vec_q8_0)},
    {"unit of scratch", swiglu_product, OVERLAPS,
     LIST(3, KERNEL_swiglu, KERNEL_quantize_acts, KERNEL_matmul_vec_q8_0)},
    {"attention", attention_product, PLAIN,
     LIST(3, KERNEL_attention_64, KERNEL_attention_merge_quantize, KERNEL_matmul_vec_q8_0)},
    {"attention, event", attention_product, EVENT_BETWEEN, QUANTIZED},
    {"attention of other x", attention_product, OTHER_INPUT,
     LIST(4, KERNEL_attention_64, KERNEL_attention_merge, KERNEL_quantize_acts,
          KERNEL_matmul_vec_q8_0)},
    {"attention of narrow heads", attention_product, ODD_WIDTH,
     LIST(4, KERNEL_attention_64, KERNEL_attention_merge, KERNEL_quantize_acts,
          KERNEL_matmul_vec_q8_0)},
    {"rope", rope_store, PLAIN, LIST(1, KERNEL_rope_store)},
    {"rope, op", rope_store, OP_BETWEEN, LIST(3, KERNEL_rope, KERNEL_swiglu, KERNEL_kv_store)},
    {"rope, call", rope_store, CALL_BETWEEN, LIST(1, KERNEL_kv_store)},
    {"rope of other k", rope_store, OTHER_INPUT, LIST(2, KERNEL_rope, KERNEL_kv_store)},
    {"rope of other tokens", rope_store, OTHER_ROWS, LIST(2, KERNEL_rope, KERNEL_kv_store)},
    {"rope of odd heads", rope_store, ODD_WIDTH, LIST(2, KERNEL_rope, KERNEL_kv_store)},
    {"rope of values", rope_store, OVERLAPS, LIST(2, KERNEL_rope, KERNEL_kv_store)},
    {"products", products, PLAIN, QUANTIZED},
    {"mixed products", products, MIXED_TYPES, LIST(2, KERNEL_quantize_acts, KERNEL_matmul_mixed)},
    {"products of types that are not mixed", products, OTHER_TYPE,
     LIST(3, KERNEL_quantize_acts, KERNEL_matmul_vec_q8_0, KERNEL_matmul_vec_q4_0)},
    {"four products", products, FOURTH,
     LIST(3, KERNEL_quantize_acts, KERNEL_matmul_vec_q8_0, KERNEL_matmul_vec_q6_k)},
    {"products, op", products, OP_BETWEEN,
     LIST(5, KERNEL_quantize_acts, KERNEL_matmul_vec_q8_0, KERNEL_swiglu, KERNEL_quantize_acts,
          KERNEL_matmul_vec_q8_0)},
    {"products, event", products, EVENT_BETWEEN, LIST(1, KERNEL_matmul_vec_q8_0)},
    {"products of two tokens", products, MANY_ROWS, SINGLES},
    {"a product that writes x", products, OVERLAPS, SINGLES},
    {"products that write the same", products, SAME_OUT, SINGLES},
    {"a product that adds another", products, READS_OUT, SINGLES},
    {"a product with another as bias", products, BIAS_IS_OUT, SINGLES},
    {"a product with another as weight", products, WEIGHT_IS_OUT, SINGLES},
    {"products of two inputs", products, OTHER_INPUT,
     LIST(4, KERNEL_quantize_acts, KERNEL_matmul_vec_q8_0, KERNEL_quantize_acts,
          KERNEL_matmul_vec_q8_0)},
    {"products with two scratches", products, OTHER_SCRATCH,
     LIST(4, KERNEL_quantize_acts, KERNEL_matmul_vec_q8_0, KERNEL_quantize_acts,
          KERNEL_matmul_vec_q8_0)},
    {"a product of fewer columns", products, NARROW_FLOATS,
     LIST(2, KERNEL_matmul_vec_f32, KERNEL_matmul_vec_f32)},
    {"a product of floats first", products, FLOATS,
     LIST(3, KERNEL_matmul_vec_f32, KERNEL_quantize_acts, KERNEL_matmul_vec_q8_0)},
};

// The kernel of a type for few tokens, where it is that of one token.
static enum cuda_kernel of_few(enum cuda_kernel kernel) {
    static const enum cuda_kernel kernels[][2] = {
#define WEIGHT(NAME, name, ...) {KERNEL_matmul_one_##name, KERNEL_matmul_vec_##name},
#include "kernels/weights.def"
#undef WEIGHT
    };
    for (int t = 0; t < WEIGHT_COUNT; t++)
        if (kernel == kernels[t][0]) return kernels[t][1];
    return kernel;
}

static void expect_list(const struct bench *b, const struct sequence *s) {
    const struct cuda_list *list = &queue_of(b)->list;
    if (list->n_launches != s->n_launches)
        fail_msg("%s: %d launches, not %d", s->name, list->n_launches, s->n_launches);
    for (int i = 0; i < s->n_kernels; i++)
        if (of_few(list->launches[i].kernel) != s->kernels[i])
            fail_msg("%s: launch %d is %s, not %s", s->name, i,
                     cuda_kernel_name(list->launches[i].kernel), cuda_kernel_name(s->kernels[i]));
}

// Runs a sequence; what is in memory then comes into b->after.
static void run(struct bench *b, const struct sequence *s, bool apart) {
    struct err e = {0};
    b->apart = apart;
    stream_copy(b->stream, b->memory.base, b->before, SIZE, COPY_TO_DEVICE);
    s->encode(b, s->twist);
    if (!apart) expect_list(b, s);
    stream_copy(b->stream, b->after, b->memory.base, SIZE, COPY_FROM_DEVICE);
    if (stream_wait(b->stream, &e) != OK) fail_msg("%s: %s", s->name, e.what);
}

static void check_device(const char *capability, int n_rounds) {
    struct bench b = open_bench(capability);
    uint8_t *apart = mem_alloc(SIZE, 1);
    assert_non_null(apart);
    for (size_t i = 0; i < sizeof SEQUENCES / sizeof *SEQUENCES; i++)
        for (int round = 0; round < n_rounds; round++) {
            fill(&b);
            const uint32_t random = b.random;
            run(&b, &SEQUENCES[i], true);
            memcpy(apart, b.after, SIZE);
            b.random = random; // the same shape
            run(&b, &SEQUENCES[i], false);
            if (memcmp(apart, b.after, SIZE) != 0)
                fail_msg("%s on %s: other bytes", SEQUENCES[i].name, capability);
        }
    mem_free(apart);
    close_bench(&b);
}

static void test_pascal(void **state) {
    (void)state;
    check_device("6.1", 4);
}
static void test_turing(void **state) {
    (void)state;
    check_device("7.5", 4);
}
static void test_ampere(void **state) {
    (void)state;
    check_device("8.6", 12);
}

// The list is full when the second op comes, which still finds the first one.
static void test_full_list(void **state) {
    (void)state;
    struct bench b = open_bench("8.6");
    struct err e = {0};
    for (int i = 0; i < CUDA_LIST_LAUNCHES - 1; i++) come_between(&b, OP_BETWEEN);
    norm_product(&b, PLAIN);
    assert_int_equal(queue_of(&b)->list.n_launches, 1); // the product; the rest was submitted
    assert_int_equal(stream_wait(b.stream, &e), OK);
    close_bench(&b);
}

// A launch that fails has the name of the kernel that does both.
static void test_failed_launch(void **state) {
    (void)state;
    char text[16];
    snprintf(text, sizeof text, "%d", CUDA_LAUNCHES_AT_START + 1);
    setenv("EMU_CUDA_FAIL_LAUNCH", text, 1);
    struct bench b = open_bench("8.6");
    struct err e = {0};
    swiglu_product(&b, PLAIN);
    assert_int_equal(stream_wait(b.stream, &e), ERR_DEVICE);
    assert_non_null(strstr(e.what, "starting the kernel swiglu_quantize"));
    unsetenv("EMU_CUDA_FAIL_LAUNCH");
    close_bench(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pascal),        cmocka_unit_test(test_turing),
        cmocka_unit_test(test_ampere),        cmocka_unit_test(test_full_list),
        cmocka_unit_test(test_failed_launch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

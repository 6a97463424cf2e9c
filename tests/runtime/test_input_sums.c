/* test_input_sums.c: tests of runtime/engine/input_sums.h and the file made of it: sums of
 * products, of experts and of heads, more looks than wait at once, refused allocations. */
// link: wrap-alloc
#include "runtime/engine/input_sums.h"
#include "base/mem.h"
#include "kernels/op_cost.h"
#include "runtime/quantize/importance.h"
#include "runtime/quantize/importance_write.h"
#include "tests/lib/alloc_fail.h"
#include "tests/lib/open_device.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

enum { COLUMNS = 32, ROWS = 2, TOKENS = 5, EXPERTS = 3, USED = 2, PAIRS = TOKENS * USED };

static float matrices[4][EXPERTS * ROWS * COLUMNS]; // of the four tensors

static struct gguf_tensor tensor(const char *name, uint64_t n_matrices, int i) {
    return (struct gguf_tensor){.name = {name, strlen(name)},
                                .type = DTYPE_F32,
                                .n_dims = n_matrices > 1 ? 3 : 2,
                                .ne = {COLUMNS, ROWS, n_matrices, 1},
                                .data = (const uint8_t *)matrices[i]};
}

// A device, its stream, its scratch, and the sums of three tensors of a layer.
struct fixture {
    struct device *device;
    struct stream *stream;
    struct gguf_tensor tensors[4];
    struct gguf gguf;
    struct input_sums *sums;
    void *scratch;
    float x[PAIRS * COLUMNS], out[PAIRS * ROWS];
};

static int setup(void **state) {
    static struct fixture f;
    struct err e;
    memset(&f, 0, sizeof f);
    f.device = open_cpu(2, 2);
    assert_int_equal(stream_new(f.device, STREAM_COMPUTE, &f.stream, &e), OK);
    f.tensors[0] = tensor("blk.0.ffn_up_exps.weight", EXPERTS, 0);
    f.tensors[1] = tensor("blk.0.attn_k_b.weight", EXPERTS, 1);
    f.tensors[2] = tensor("blk.0.attn_q.weight", 1, 2);
    f.tensors[3] = tensor("output.weight", 1, 3);
    f.gguf = (struct gguf){.tensors = f.tensors, .n_tensors = 4};
    for (int i = 0; i < PAIRS * COLUMNS; i++) f.x[i] = sinf((float)(i * i % 101));
    const size_t bytes = matmul_scratch_bytes(WEIGHT_F32, COLUMNS, PAIRS, 2);
    f.scratch = aligned_alloc(64, round_up(bytes, 64) + 64);
    assert_non_null(f.scratch);
    assert_int_equal(input_sums_open(&f.sums, f.device, &f.gguf, &e), OK);
    *state = &f;
    return 0;
}

static int teardown(void **state) {
    struct fixture *f = *state;
    input_sums_close(f->sums);
    stream_free(f->stream);
    device_close(f->device);
    free(f->scratch);
    return 0;
}

static void multiply(struct fixture *f, int i) {
    f->device->ops->matmul(f->stream, WEIGHT_F32,
                           &(struct matmul_args){.out = f->out,
                                                 .x = f->x,
                                                 .weight = matrices[i],
                                                 .scratch = f->scratch,
                                                 .n_tokens = TOKENS,
                                                 .n_cols = COLUMNS,
                                                 .row_count = ROWS,
                                                 .out_stride = ROWS});
}

static struct matmul_experts_args pairs_of(const struct fixture *f, int i) {
    return (struct matmul_experts_args){.out = (float *)(uintptr_t)f->out,
                                        .x = f->x,
                                        .weight = matrices[i],
                                        .scratch = f->scratch,
                                        .slot_bytes = sizeof(float) * ROWS * COLUMNS,
                                        .n_tokens = TOKENS,
                                        .n_used = USED,
                                        .n_experts = EXPERTS,
                                        .n_cols = COLUMNS,
                                        .n_rows = ROWS,
                                        .row_count = ROWS,
                                        .out_stride = ROWS};
}

static const struct input_sum *sum_of(const struct fixture *f, const char *name) {
    for (uint32_t i = 0; i < input_sums_count(f->sums); i++) {
        const struct input_sum *sum = input_sums_at(f->sums, i);
        if (strncmp(sum->tensor->name.bytes, name, strlen(name)) == 0) return sum;
    }
    fail_msg("no sum of %s", name);
    return NULL;
}

static void assert_near(float found, double wanted) {
    if (!(fabs((double)found - wanted) <= 1e-4 * (1 + wanted)))
        fail_msg("%g, expected %g", (double)found, wanted);
}

static void products_are_added_up(void **state) {
    struct fixture *f = *state;
    struct err e;
    const struct input_sum *sum = sum_of(f, "blk.0.attn_q");
    assert_int_equal(input_sums_count(f->sums), 3);
    for (int k = 0; k < 2; k++) multiply(f, 2);
    multiply(f, 3); // of no layer
    assert_int_equal(stream_wait(f->stream, &e), OK);
    assert_int_equal(sum->counts[0], 2 * TOKENS);
    for (int c = 0; c < COLUMNS; c++) {
        double wanted = 0;
        for (int t = 0; t < TOKENS; t++) wanted += 2 * pow((double)f->x[t * COLUMNS + c], 2);
        assert_near(sum->sums[c], wanted);
    }
}

// Inputs change between the calls of one list: each is looked at when its turn comes. More wait
// than there is room for.
static void looks_come_in_turn(void **state) {
    struct fixture *f = *state;
    struct err e;
    const struct input_sum *sum = sum_of(f, "blk.0.attn_q");
    const float twos[COLUMNS] = {[0 ... COLUMNS - 1] = 2};
    const int n = 3000;
    for (int i = 0; i < TOKENS * COLUMNS; i++) f->x[i] = 1;
    multiply(f, 2);
    stream_copy(f->stream, f->x, twos, sizeof twos, COPY_TO_DEVICE);
    for (int k = 0; k < n; k++) multiply(f, 2);
    assert_int_equal(stream_wait(f->stream, &e), OK);
    assert_int_equal(sum->counts[0], (n + 1) * TOKENS);
    assert_near(sum->sums[7], TOKENS + n * (TOKENS - 1 + 4));
}

static void experts_are_apart(void **state) {
    struct fixture *f = *state;
    struct err e;
    static const int32_t slots[EXPERTS] = {0, 1, 2}, starts[EXPERTS + 1] = {0, 4, 4, PAIRS};
    static const int32_t order[PAIRS] = {1, 2, 5, 9, 0, 3, 4, 6, 7, 8};
    const struct input_sum *sum = sum_of(f, "blk.0.ffn_up_exps");
    for (int apart = 0; apart < 2; apart++) {
        struct matmul_experts_args args = pairs_of(f, 0);
        args.slots = slots;
        args.starts = starts;
        args.order = order;
        args.x_per_pair = apart;
        f->device->ops->matmul_experts(f->stream, WEIGHT_F32, &args);
    }
    assert_int_equal(stream_wait(f->stream, &e), OK);
    assert_true(sum->by_expert && sum->counts[0] == 8 && sum->counts[1] == 0);
    assert_int_equal(sum->counts[2], 12);
    for (int k = 0; k < EXPERTS; k++)
        for (int c = 0; c < COLUMNS; c++) {
            double wanted = 0;
            for (int i = starts[k]; i < starts[k + 1]; i++)
                wanted += pow((double)f->x[order[i] * COLUMNS + c], 2) +
                          pow((double)f->x[order[i] / USED * COLUMNS + c], 2);
            assert_near(sum->sums[k * COLUMNS + c], wanted);
        }
}

static void heads_are_used_by_every_token(void **state) {
    struct fixture *f = *state;
    struct err e;
    const struct input_sum *sum = sum_of(f, "blk.0.attn_k_b");
    struct matmul_experts_args args = pairs_of(f, 1);
    args.n_tokens = 3;
    args.n_used = EXPERTS;
    args.x_per_pair = true;
    f->device->ops->matmul_experts(f->stream, WEIGHT_F32, &args);
    assert_int_equal(stream_wait(f->stream, &e), OK);
    assert_true(!sum->by_expert && sum->counts[0] == 3 && sum->n_matrices == EXPERTS);
    for (int k = 0; k < EXPERTS; k++) {
        double wanted = 0;
        for (int t = 0; t < 3; t++) wanted += pow((double)f->x[(t * EXPERTS + k) * COLUMNS + 9], 2);
        assert_near(sum->sums[k * COLUMNS + 9], wanted);
    }
}

static void the_device_has_its_own_table_again(void **state) {
    struct fixture *f = *state;
    struct err e;
    const struct op_table *table = f->device->ops;
    input_sums_close(f->sums);
    assert_true(f->device->ops != table);
    multiply(f, 2);
    assert_int_equal(stream_wait(f->stream, &e), OK);
    assert_int_equal(input_sums_open(&f->sums, f->device, &f->gguf, &e), OK);
    assert_int_equal(sum_of(f, "blk.0.attn_q")->counts[0], 0);
}

static void refused_allocations_are_errors(void **state) {
    struct fixture *f = *state;
    const struct op_table *table;
    bool refused = true;
    input_sums_close(f->sums);
    table = f->device->ops;
    for (int n = 1; refused; n++) {
        struct err e;
        alloc_fail_at(n);
        const enum status status = input_sums_open(&f->sums, f->device, &f->gguf, &e);
        refused = alloc_fail_happened();
        alloc_fail_at(0);
        assert_int_equal(status, refused ? ERR_MEMORY : OK);
        if (refused) assert_true(!f->sums && f->device->ops == table);
    }
}

// Writes sums of a matrix and of experts; *e is filled on failure.
static enum status write_sums(const char *path, float first, struct err *e) {
    float sums[2 * COLUMNS];
    static const uint64_t counts[] = {4, 0};
    struct new_file file;
    for (int i = 0; i < 2 * COLUMNS; i++) sums[i] = i ? (float)i : first;
    const struct importance_sums list[] = {
        {{"blk.0.a.weight", 14}, sums, counts, 2 * COLUMNS, 1},
        {{"blk.0.b_exps.weight", 19}, sums, counts, COLUMNS, 2},
    };
    const struct importance_file all = {list, 2, "text.txt", 7, 512};
    if (new_file_open(&file, path, e)) return e->status;
    if (importance_write(&file, &all, e) == OK) return new_file_commit(&file, e);
    new_file_close(&file);
    return e->status;
}

static void files_are_read_again(void **state) {
    char folder[] = "/tmp/input_sumsXXXXXX", path[64];
    struct importance m;
    struct err e;
    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/file", folder);
    assert_int_equal(write_sums(path, NAN, &e), ERR_FORMAT);
    assert_non_null(strstr(e.what, "blk.0.a.weight, column 0"));
    enum status status = ERR_MEMORY;
    for (int n = 1; status; n++) {
        assert_true(n < 30);
        alloc_fail_at(n);
        status = write_sums(path, 0, &e);
        alloc_fail_at(0);
        if (status) assert_int_equal(status, ERR_MEMORY);
        if (status) assert_int_not_equal(access(path, F_OK), 0);
    }
    assert_int_equal(importance_open(&m, path, &e), OK);
    assert_int_equal(m.n_entries, 2);
    assert_int_equal(m.n_chunks, 7);
    assert_string_equal(m.dataset, "text.txt");
    assert_true(m.entries[0].n_values == 2 * COLUMNS && m.entries[0].values[40] == 10);
    assert_true(m.entries[1].n_values == 2 * COLUMNS && m.entries[1].values[8] == 2);
    assert_true(m.entries[1].values[COLUMNS + 8] == 1); // an expert that was never used
    importance_close(&m);
    unlink(path);
    rmdir(folder);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(products_are_added_up),
        TEST(looks_come_in_turn),
        TEST(experts_are_apart),
        TEST(heads_are_used_by_every_token),
        TEST(the_device_has_its_own_table_again),
        TEST(refused_allocations_are_errors),
        cmocka_unit_test(files_are_read_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* test_kv.c: page lists against a plain model of them, under random use, and where keys and values
 * lie in a cache; and which rows a batch sees through a window. */
#include "runtime/engine/feed.h"
#include "runtime/engine/kv.h"

#include "base/mem.h"
#include "kernels/ops.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void check_disjoint(const struct kv *kv, const int32_t *lengths) {
    bool used[64] = {false};
    int32_t n_used = 0;
    for (int32_t s = 0; s < kv->n_sessions; s++) {
        assert_int_equal(kv->n_pages[s], (lengths[s] + KV_PAGE - 1) / KV_PAGE);
        for (int32_t p = 0; p < kv->n_pages[s]; p++, n_used++) {
            int32_t page = kv->pages[s * kv->pages_per_session + p];
            assert_in_range(page, 0, kv->n_sessions * kv->pages_per_session - 1);
            assert_false(used[page]);
            used[page] = true;
        }
        for (int32_t i = 0; i < lengths[s]; i++) {
            int32_t page = kv->pages[s * kv->pages_per_session + i / KV_PAGE];
            assert_int_equal(kv_row(kv, s, i), page * KV_PAGE + i % KV_PAGE);
        }
    }
    assert_int_equal(kv->n_free + n_used, kv->n_sessions * kv->pages_per_session);
}

// The rows of any positions of all sessions, in order, are those that kv_row says; runs are as
// long as they can be.
static void check_rows(const struct kv *kv, const int32_t *lengths) {
    struct kv_rows rows[64];
    int32_t kv_rows[4 * 300], n_kv_rows = 0, n = 0, at = 0;
    for (int32_t s = 0; s < kv->n_sessions; s++) {
        const int32_t first = lengths[s] ? rand() % lengths[s] : 0;
        const int32_t end = first + (lengths[s] ? rand() % (lengths[s] - first + 1) : 0);
        n = kv_add_rows(rows, n, kv->pages + s * kv->pages_per_session, first, end);
        for (int32_t i = first; i < end; i++) kv_rows[n_kv_rows++] = kv_row(kv, s, i);
    }
    for (int32_t i = 0; i < n; i++) {
        if (i > 0) assert_int_not_equal(rows[i - 1].first + rows[i - 1].count, rows[i].first);
        assert_true(rows[i].count > 0);
        for (int32_t k = 0; k < rows[i].count; k++)
            assert_int_equal(kv_rows[at++], rows[i].first + k);
    }
    assert_int_equal(at, n_kv_rows);
}

static void test_random_use(void **state) {
    (void)state;
    struct workload w = {.n_ctx = 300, .n_sessions = 4};
    struct kv kv;
    struct err e;
    int32_t lengths[4] = {0}, index;
    assert_int_equal(kv_open(&kv, &w, &e), OK);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(kv_take(&kv, &index, &e), OK);
        assert_int_equal(index, i);
    }
    assert_int_equal(kv_take(&kv, &index, &e), ERR_LIMIT);
    srand(7);
    for (int i = 0; i < 3000; i++) {
        int32_t s = rand() % 4, length = rand() % 301;
        if (length >= lengths[s])
            assert_int_equal(kv_reserve(&kv, s, length, &e), OK);
        else
            kv_truncate(&kv, s, length);
        lengths[s] = length;
        check_disjoint(&kv, lengths);
        check_rows(&kv, lengths);
    }
    assert_int_equal(kv_reserve(&kv, 0, 301, &e), ERR_LIMIT);
    assert_non_null(strstr(e.fix, "-c"));
    kv_give_back(&kv, 2);
    lengths[2] = 0;
    check_disjoint(&kv, lengths);
    assert_int_equal(kv_take(&kv, &index, &e), OK);
    assert_int_equal(index, 2);
    kv_close(&kv);
}

// Keys and values of every row, without a gap but between them, end where the footprint does.
static void test_layout(void **state) {
    (void)state;
    const struct unit unit = {
        .kind = UNIT_ATTENTION, .n_heads = 4, .n_kv_heads = 3, .head_dim_k = 32, .head_dim_v = 64};
    for (int i = 0; i < KV_TYPES * KV_TYPES; i++) {
        const struct workload w = {.n_ctx = 300,
                                   .n_sessions = 2,
                                   .kv_type_k = kv_dtype((enum kv_type)(i % KV_TYPES)),
                                   .kv_type_v = kv_dtype((enum kv_type)(i / KV_TYPES))};
        const struct machine_device device = {.align_bytes = 4096};
        const struct kv_layout layout = kv_layout_of(&w, &unit, device.align_bytes);
        const uint64_t n_rows = 2 * 5 * KV_PAGE;
        assert_int_equal(layout.k_row_bytes, dtype_bytes(w.kv_type_k, 3 * 32));
        assert_int_equal(layout.v_row_bytes, dtype_bytes(w.kv_type_v, 3 * 64));
        assert_int_equal(layout.values, round_up(n_rows * layout.k_row_bytes, 4096));
        assert_int_equal(footprint_unit_kv(&unit, &w, &device),
                         layout.values + round_up(n_rows * layout.v_row_bytes, 4096));
        assert_int_equal(footprint_kv_row(&unit, &w), layout.k_row_bytes + layout.v_row_bytes);
    }
}

// A batch behind a window of 30 sees 29 positions before its own.
static void test_window_rows(void **state) {
    (void)state;
    enum { N_CTX = 300, FIRST = 100, ADDED = 10, WINDOW = 30 };
    enum { PAGES = (N_CTX + KV_PAGE - 1) / KV_PAGE };
    int32_t first, end, pages[PAGES], positions[ADDED], sequences[ADDED] = {0};
    struct kv_rows rows[4][PAGES];
    struct plan *plan = mem_alloc(1, sizeof *plan);
    assert_non_null(plan);
    plan->workload = (struct workload){.n_ctx = N_CTX, .n_sessions = 1, .window = WINDOW};
    struct feeder feeder = {.plan = plan,
                            .first = &first,
                            .end = &end,
                            .rows = {.past = rows[0], .fresh = rows[1]},
                            .ring_rows = {.past = rows[2], .fresh = rows[3]}};
    for (int32_t i = 0; i < PAGES; i++) pages[i] = i;
    for (int32_t i = 0; i < ADDED; i++) positions[i] = FIRST + i;
    const struct batch_tables tables = {
        .positions = positions, .sequences = sequences, .pages = pages, .ring_pages = pages};
    feed_batch(&feeder, &tables, ADDED);
    assert_int_equal(feeder.rows.n_past_rows, FIRST);
    assert_int_equal(feeder.ring_rows.n_past_rows, WINDOW - 1);
    assert_int_equal(rows[2][0].first, FIRST - (WINDOW - 1));
    mem_free(plan);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_random_use),
                                       cmocka_unit_test(test_layout),
                                       cmocka_unit_test(test_window_rows)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

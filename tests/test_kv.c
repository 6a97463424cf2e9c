/* test_kv.c: page lists against a plain model of them, under random use. */
#include "runtime/kv.h"

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
            assert_int_equal(kv_slot(kv, s, i), page * KV_PAGE + i % KV_PAGE);
        }
    }
    assert_int_equal(kv->n_free + n_used, kv->n_sessions * kv->pages_per_session);
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

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_random_use)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* test_ranks.c: tests of bench/lib/ranks.h. */
#include "bench/lib/ranks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

// At least percent of the values are at or below the rank, and fewer below it.
static void test_nearest_rank(void **state) {
    (void)state;
    assert_int_equal(nearest_rank(10, 90), 8); // the ninth of ten
    assert_int_equal(nearest_rank(8, 90), 7);
    assert_int_equal(nearest_rank(1, 1), 0);
    for (int32_t n = 1; n <= 200; n++) {
        for (int32_t percent = 1; percent <= 100; percent++) {
            const int32_t rank = nearest_rank(n, percent);
            assert_in_range(rank, 0, n - 1);
            assert_true(100 * (rank + 1) >= n * percent);
            assert_true(100 * rank < n * percent);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nearest_rank),
    };
    return cmocka_run_group_tests_name("ranks", tests, NULL, NULL);
}

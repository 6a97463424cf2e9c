/* test_cuda_history.c: the lists of launches that a CUDA queue remembers, in a store that holds a
 * few of them. No driver is called. */
#include "kernels/cuda/cuda_history.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

// The bytes of the launch i of the list number which.
static uint32_t fill_launch(struct cuda_launch *l, char *params, int which, int i) {
    const uint32_t size_bytes = 16 * (uint32_t)(1 + (which + i) % 5);
    *l = (struct cuda_launch){
        KERNEL_swiglu, {(uint32_t)which, 1, 1, 32, 0}, (uint32_t)i * 80, size_bytes};
    memset(params, which + i, size_bytes);
    return size_bytes;
}

// Lists of different sizes go round a store that holds a few of them: what is found equals what was
// added, and all that is found is among the latest.
static void test_history(void **state) {
    (void)state;
    enum { N_LISTS = 5, STORE = 2048, LAUNCHES = 8, ROUNDS = 400 };
    struct cuda_history h;
    struct err e = {0};
    struct cuda_launch launches[LAUNCHES];
    char params[LAUNCHES * 80];
    uint32_t most = 0;
    assert_int_equal(cuda_history_open(&h, N_LISTS, STORE, &e), OK);
    for (int r = 0; r < ROUNDS; r++) {
        struct cuda_list list = {launches, params, 1 + r * 7 % LAUNCHES, 0};
        for (int i = 0; i < list.n_launches; i++)
            list.params_bytes += fill_launch(&launches[i], params + list.params_bytes, r, i);
        assert_null(cuda_history_find(&h, &list));
        for (struct cuda_graph *oldest; (oldest = cuda_history_crowded(&h, &list));) {
            assert_ptr_equal(oldest, cuda_history_at(&h, 0));
            cuda_history_drop(&h);
        }
        cuda_history_add(&h, &list);
        if (h.n > most) most = h.n;
        const struct cuda_graph *newest = cuda_history_at(&h, h.n - 1);
        assert_ptr_equal(cuda_history_find(&h, &list), newest);
        assert_true(newest->end_byte <= STORE);
        for (uint32_t i = 0; i + 1 < h.n; i++) { // no two overlap, and each is still whole
            const struct cuda_graph *g = cuda_history_at(&h, i);
            assert_true(g->end_byte <= newest->first_byte || newest->end_byte <= g->first_byte);
            assert_ptr_equal(cuda_history_find(&h, &g->list), g);
            assert_int_equal(g->list.launches[0].grid.x, (uint32_t)r - (h.n - 1 - i));
        }
        launches[0].grid.y = 2; // differs where the key does not look
        assert_null(cuda_history_find(&h, &list));
    }
    assert_int_equal(most, N_LISTS);
    cuda_history_close(&h);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_history)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* cuda_history.h: the lists of launches that a queue has submitted, to be known when they come
 * again.
 *
 * A history owns room for a number of lists and a store for their bytes, all allocated by
 * cuda_history_open; each list takes its size. The oldest ones make room for new ones. It keeps the
 * driver's handle of a list's graph, but calls no driver. One thread at a time. Tested by
 * tests/kernels/test_cuda_history.c.
 */
#ifndef TANDEM_KERNELS_CUDA_CUDA_HISTORY_H
#define TANDEM_KERNELS_CUDA_CUDA_HISTORY_H

#include "kernels/cuda/cuda_images.h"

struct cuda_grid { // of one launch
    uint32_t x, y, z;
    uint32_t threads, shared_bytes;
};

// Commands of a list that are no kernels: their parameter is the address of a flag.
enum cuda_flag_command { CUDA_WAIT_FLAG = KERNEL_COUNT, CUDA_RAISE_FLAG };

struct cuda_launch {
    enum cuda_kernel kernel; // or an enum cuda_flag_command
    struct cuda_grid grid;
    uint32_t params_at; // in params
    uint32_t params_bytes;
};

struct cuda_list {
    struct cuda_launch *launches;
    char *params;
    int32_t n_launches;
    uint32_t params_bytes; // used
};

struct cuda_graph {        // a list submitted before
    struct cuda_list list; // in the store
    uint32_t first_byte, end_byte;
    struct CUgraphExec_st *exec; // of the queue; NULL until the list is seen again
};

struct cuda_history {
    char *store;              // owned, [store_bytes]
    struct cuda_graph *lists; // owned, [n_max], a ring: the oldest is the first
    uint64_t *keys;           // owned, [n_max], of the lists; 0: no list
    uint32_t store_bytes, n_max;
    uint32_t first, n;
    uint32_t n_places; // of the ring that have ever been taken
    uint32_t end_byte; // of the newest list
};

// ERR_MEMORY if host memory is refused; close the history after a failure too.
enum status cuda_history_open(struct cuda_history *h, uint32_t n_max, uint32_t store_bytes,
                              struct err *e);
void cuda_history_close(struct cuda_history *h); // accepts a zeroed one; leaves it zeroed

// The remembered list that equals this one, or NULL.
struct cuda_graph *cuda_history_find(const struct cuda_history *h, const struct cuda_list *list);
// The oldest list if it has to go before this one has room, else NULL. The caller frees its graph
// and drops it.
struct cuda_graph *cuda_history_crowded(const struct cuda_history *h, const struct cuda_list *list);
void cuda_history_drop(struct cuda_history *h); // the oldest list, of which there is one
// Copies a list that is not remembered, for which there is room.
void cuda_history_add(struct cuda_history *h, const struct cuda_list *list);
// The list i of h->n, the oldest first.
struct cuda_graph *cuda_history_at(const struct cuda_history *h, uint32_t i);

#endif

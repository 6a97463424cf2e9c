/* cuda_list.c: see cuda_list.h. */
#include "kernels/cuda/cuda_list.h"

#include "base/mem.h"

#include <string.h>

static enum status open_list(struct cuda_list *list, struct err *e) {
    list->launches = mem_alloc(CUDA_LIST_LAUNCHES, sizeof *list->launches);
    list->params = mem_alloc(CUDA_LIST_PARAM_BYTES, 1);
    if (list->launches && list->params) return OK;
    return err_memory(e, CUDA_LIST_LAUNCHES * sizeof *list->launches + CUDA_LIST_PARAM_BYTES,
                      "a list of launches");
}

static void close_list(struct cuda_list *list) {
    mem_free(list->launches);
    mem_free(list->params);
}

enum status cuda_queue_open(struct cuda_queue *queue, const struct cuda_driver *driver,
                            const struct cuda_program *program, struct CUstream_st *stream,
                            const struct log *log, struct err *e) {
    *queue = (struct cuda_queue){.driver = driver,
                                 .program = program,
                                 .stream = stream,
                                 .log = log,
                                 .use_graphs = driver->has_graphs};
    if (open_list(&queue->list, e)) return e->status;
    if (!queue->use_graphs) return OK;
    return cuda_history_open(&queue->history, CUDA_GRAPHS, CUDA_GRAPHS_BYTES, e);
}

// Frees a graph; the driver lets a running graph end first.
static void forget(struct cuda_queue *queue, struct cuda_graph *graph) {
    if (!graph->exec) return;
    (void)queue->driver->graph_exec_destroy(graph->exec);
    graph->exec = NULL;
}

void cuda_queue_abandon(struct cuda_queue *queue) {
    for (uint32_t i = 0; i < queue->history.n; i++)
        cuda_history_at(&queue->history, i)->exec = NULL;
}

void cuda_queue_close(struct cuda_queue *queue) {
    for (uint32_t i = 0; i < queue->history.n; i++)
        forget(queue, cuda_history_at(&queue->history, i));
    cuda_history_close(&queue->history);
    close_list(&queue->list);
    *queue = (struct cuda_queue){0};
}

bool cuda_queue_has_room(const struct cuda_queue *queue) {
    return queue->list.n_launches < CUDA_LIST_LAUNCHES &&
           queue->list.params_bytes + CUDA_PARAMS_MAX <= CUDA_LIST_PARAM_BYTES;
}

void cuda_queue_add(struct cuda_queue *queue, enum cuda_kernel kernel, struct cuda_grid grid,
                    const void *params, uint32_t params_bytes) {
    ASSERT(cuda_queue_has_room(queue));
    ASSERT(params_bytes <= CUDA_PARAMS_MAX);
    struct cuda_list *list = &queue->list;
    list->launches[list->n_launches++] =
        (struct cuda_launch){kernel, grid, list->params_bytes, params_bytes};
    char *target = list->params + list->params_bytes;
    uint32_t room = (uint32_t)round_up(params_bytes, 16);
    memcpy(target, params, params_bytes);
    memset(target + params_bytes, 0, room - params_bytes); // equal lists are equal bytes
    list->params_bytes += room;
}

void cuda_queue_add_flag(struct cuda_queue *queue, enum cuda_flag_command command,
                         uint64_t address) {
    cuda_queue_add(queue, (enum cuda_kernel)command, (struct cuda_grid){0}, &address,
                   sizeof address);
}

const struct cuda_launch *cuda_queue_last(const struct cuda_queue *queue) {
    const int32_t n = queue->list.n_launches;
    return n ? &queue->list.launches[n - 1] : NULL;
}

const void *cuda_queue_last_params(const struct cuda_queue *queue) {
    return queue->list.params + cuda_queue_last(queue)->params_at;
}

void cuda_queue_take_back(struct cuda_queue *queue) {
    ASSERT(queue->list.n_launches > 0);
    queue->list.params_bytes = cuda_queue_last(queue)->params_at;
    queue->list.n_launches--;
}

// The operation on memory that the command is. False if it is a launch.
static bool read_flag(const struct cuda_list *list, const struct cuda_launch *l,
                      struct cuda_memory_op *out) {
    const bool waits = l->kernel == (enum cuda_kernel)CUDA_WAIT_FLAG;
    uint64_t address;
    if (!waits && l->kernel != (enum cuda_kernel)CUDA_RAISE_FLAG) return false;
    memcpy(&address, list->params + l->params_at, sizeof address);
    *out = (struct cuda_memory_op){
        .operation = waits ? DRIVER_MEMORY_OP_WAIT : DRIVER_MEMORY_OP_WRITE,
        .address = address,
        .value = 1,
        .flags = waits ? DRIVER_WAIT_UNTIL_GREATER_OR_EQUAL : DRIVER_WRITE_BEHIND_A_FENCE};
    return true;
}

static enum status start_flag(struct cuda_queue *queue, const struct cuda_memory_op *op,
                              struct err *e) {
    const bool waits = op->operation == DRIVER_MEMORY_OP_WAIT;
    const unsigned code =
        waits ? queue->driver->wait_value(queue->stream, op->address, 1, op->flags)
              : queue->driver->write_value(queue->stream, op->address, 1, op->flags);
    if (queue->times) cuda_times_mark(queue->times, -1, queue->stream);
    return cuda_check(queue->driver, code, e, "%s a flag", waits ? "waiting for" : "raising");
}

static enum status start_launch(struct cuda_queue *queue, const struct cuda_launch *l,
                                struct err *e) {
    void *params[] = {queue->list.params + l->params_at};
    unsigned code = queue->driver->launch(queue->program->kernels[l->kernel], l->grid.x, l->grid.y,
                                          l->grid.z, l->grid.threads, 1, 1, l->grid.shared_bytes,
                                          queue->stream, params, NULL);
    if (cuda_check(queue->driver, code, e, "starting the kernel %s", cuda_kernel_name(l->kernel)))
        return e->status;
    if (queue->times) cuda_times_mark(queue->times, (int32_t)l->kernel, queue->stream);
    return OK;
}

static enum status launch_all(struct cuda_queue *queue, struct err *e) {
    const struct cuda_list *list = &queue->list;
    if (queue->times) cuda_times_read(queue->times);
    if (queue->times) cuda_times_mark(queue->times, -1, queue->stream);
    for (int32_t i = 0; i < list->n_launches; i++) {
        const struct cuda_launch *l = &list->launches[i];
        struct cuda_memory_op op;
        if (read_flag(list, l, &op) ? start_flag(queue, &op, e) : start_launch(queue, l, e))
            return e->status;
    }
    return OK;
}

static unsigned add_launch(struct cuda_queue *queue, struct CUgraph_st *graph,
                           const struct cuda_launch *l, struct CUgraphNode_st **last) {
    void *params[] = {queue->list.params + l->params_at};
    const struct cuda_kernel_node node = {
        .function = queue->program->kernels[l->kernel],
        .grid = {l->grid.x, l->grid.y, l->grid.z},
        .block = {l->grid.threads, 1, 1},
        .shared_bytes = l->grid.shared_bytes,
        .params = params,
    };
    struct CUgraphNode_st *before = *last;
    return queue->driver->graph_add_kernel(last, graph, before ? &before : NULL, before ? 1 : 0,
                                           &node);
}

static unsigned add_flag(struct cuda_queue *queue, struct CUgraph_st *graph,
                         struct cuda_memory_op *op, struct CUgraphNode_st **last) {
    const struct cuda_memory_node node = {.context = queue->context, .n_ops = 1, .ops = op};
    struct CUgraphNode_st *before = *last;
    return queue->driver->graph_add_memory(last, graph, before ? &before : NULL, before ? 1 : 0,
                                           &node);
}

// Adds the launches as a chain, in which each follows the one before, as on a stream.
static unsigned add_nodes(struct cuda_queue *queue, struct CUgraph_st *graph) {
    const struct cuda_list *list = &queue->list;
    struct CUgraphNode_st *last = NULL;
    for (int32_t i = 0; i < list->n_launches; i++) {
        const struct cuda_launch *l = &list->launches[i];
        struct cuda_memory_op op;
        const unsigned code = read_flag(list, l, &op) ? add_flag(queue, graph, &op, &last)
                                                      : add_launch(queue, graph, l, &last);
        if (code != DRIVER_SUCCESS) return code;
    }
    return DRIVER_SUCCESS;
}

static enum status build(struct cuda_queue *queue, struct cuda_graph *graph, struct err *e) {
    struct CUgraph_st *plan = NULL;
    unsigned code = queue->driver->graph_create(&plan, 0);
    if (code == DRIVER_SUCCESS) code = add_nodes(queue, plan);
    if (code == DRIVER_SUCCESS) code = queue->driver->graph_instantiate(&graph->exec, plan, 0);
    if (plan) (void)queue->driver->graph_destroy(plan);
    return cuda_check(queue->driver, code, e, "building a graph of %d launches",
                      queue->list.n_launches);
}

// Remembers the list; the oldest ones make room for it.
static void remember(struct cuda_queue *queue) {
    struct cuda_graph *oldest;
    while ((oldest = cuda_history_crowded(&queue->history, &queue->list))) {
        forget(queue, oldest);
        cuda_history_drop(&queue->history);
    }
    cuda_history_add(&queue->history, &queue->list);
}

static enum status replay(struct cuda_queue *queue, struct cuda_graph *graph, struct err *e) {
    char text[512];
    if (!graph->exec && build(queue, graph, e)) {
        log_line(queue->log, LOG_WARN, "no CUDA graphs, decoding will be slower: %s",
                 err_text(e, text, sizeof text));
        queue->use_graphs = false;
        return launch_all(queue, e);
    }
    queue->n_replays++;
    return cuda_check(queue->driver, queue->driver->graph_launch(graph->exec, queue->stream), e,
                      "starting a graph of %d launches", queue->list.n_launches);
}

enum status cuda_queue_submit(struct cuda_queue *queue, struct err *e) {
    if (queue->list.n_launches == 0) return OK;
    enum status status;
    bool worth = queue->use_graphs && queue->list.n_launches >= CUDA_GRAPH_LAUNCHES;
    struct cuda_graph *graph = worth ? cuda_history_find(&queue->history, &queue->list) : NULL;
    if (graph) {
        status = replay(queue, graph, e);
    } else {
        if (worth) remember(queue);
        status = launch_all(queue, e);
    }
    queue->list.n_launches = 0;
    queue->list.params_bytes = 0;
    return status;
}

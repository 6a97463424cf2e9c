/* token_list.c: see token_list.h. */
#include "runtime/text/token_list.h"

#include "base/mem.h"

enum status token_list_push(struct token_list *list, int32_t id, struct err *e) {
    if (list->count == list->capacity) {
        uint64_t capacity = list->capacity ? list->capacity * 2 : 64;
        int32_t *ids = mem_resize(list->ids, capacity, sizeof *ids);
        if (!ids) return err_memory(e, capacity * sizeof *ids, "token ids");
        list->ids = ids;
        list->capacity = capacity;
    }
    list->ids[list->count++] = id;
    return OK;
}

void token_list_close(struct token_list *list) {
    mem_free(list->ids);
    *list = (struct token_list){0};
}

enum status token_buffer_reserve(struct token_buffer *b, size_t count, size_t element_bytes,
                                 struct err *e) {
    uint64_t wanted;
    if (!mul_size(count, element_bytes, &wanted)) return err_memory(e, SIZE_MAX, "a text");
    if (wanted <= b->size_bytes) return OK;
    mem_free(b->memory);
    b->size_bytes = 0;
    wanted = wanted < 1024 ? 1024 : wanted + wanted / 2;
    b->memory = mem_alloc(wanted, 1);
    if (!b->memory) return err_memory(e, wanted, "a text");
    b->size_bytes = wanted;
    return OK;
}

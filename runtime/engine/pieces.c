/* pieces.c: see pieces.h. */
#include "runtime/engine/pieces.h"

#include "base/mem.h"
#include "base/number.h"

#include <string.h>

enum { PART_KEYS, PART_VALUES, PART_INPUTS, PART_MATRICES, PARTS };

// Makes a piece of count rows, from row on, of a cache by head.
static void turn_piece(struct piece *piece, const struct kv_view *cache, int32_t row,
                       int32_t count) {
    piece->page = *cache;
    piece->page.base += kv_place(cache, row / KV_PAGE * KV_PAGE, 0);
    piece->at = piece->page.base;
    piece->first_row = row % KV_PAGE;
    piece->n_rows = count;
}

// The rows of one page of keys or values, from walk->position on. False behind the last one; a
// cache of latent vectors has no values.
static bool next_rows(const struct cached *c, struct piece_walk *walk, struct piece *out) {
    const struct pipeline *p = c->pipeline;
    const struct workload *w = &p->plan->workload;
    const struct unit *unit = &p->shape->units[walk->unit];
    const struct kv_layout layout =
        kv_layout_of(w, unit, p->devices[out->device].device->info.align_bytes);
    const bool values = walk->part == PART_VALUES;
    const uint64_t row_bytes = values ? layout.v_row_bytes : layout.k_row_bytes;
    int32_t *at = &walk->position;
    if (unit->window) *at = max_i32(*at, c->low);
    if (*at >= c->n || !unit->n_kv_heads || row_bytes == 0) return false;
    const int32_t row =
        unit->window ? kv_ring_row(c->kv, c->session, *at) : kv_row(c->kv, c->session, *at);
    const int32_t count = min_i32(c->n - *at, KV_PAGE - *at % KV_PAGE);
    const enum kv_order order = pipeline_kv_order(p, walk->unit);
    const char *cache = p->caches[walk->unit] + (values ? layout.values : 0);
    const struct kv_view view =
        values ? kv_values(order, cache, w->kv_type_v, unit->n_kv_heads, unit->head_dim_v)
               : kv_keys(order, cache, w->kv_type_k, unit->n_kv_heads, unit->head_dim_k);
    out->at = view.base + (uint64_t)row * row_bytes;
    out->size_bytes = (uint64_t)count * row_bytes;
    if (order == KV_BY_HEAD) turn_piece(out, &view, row, count);
    *at += count;
    return true;
}

// The inputs of the convolution or the matrices of the walk's slot. False behind the last one.
static bool next_state(const struct cached *c, struct piece_walk *walk, struct piece *out) {
    const struct pipeline *p = c->pipeline;
    const struct recurrent_shape *recurrent = &p->shape->recurrent;
    if (!unit_has_state(p->shape, &p->shape->units[walk->unit]) || walk->slot >= c->n_slots)
        return false;
    const int64_t slot = (int64_t)c->session * STATE_SLOTS + c->slots[walk->slot++];
    const int64_t inputs = (recurrent->n_taps - 1) * recurrent_channels(recurrent);
    const int64_t matrices = recurrent_cells(recurrent);
    const struct kv_layout layout = kv_layout_of(&p->plan->workload, &p->shape->units[walk->unit],
                                                 p->devices[out->device].device->info.align_bytes);
    float *states = (float *)(void *)(p->caches[walk->unit] + layout.states);
    const bool is_matrix = walk->part == PART_MATRICES;
    if (is_matrix) states += states_conv_floats(&p->plan->workload, recurrent);
    const int64_t n = is_matrix ? matrices : inputs;
    if (n == 0) return false;
    out->at = (char *)(states + slot * n);
    out->size_bytes = (uint64_t)n * sizeof *states;
    return true;
}

bool cached_next(const struct cached *c, struct piece_walk *walk, struct piece *out) {
    const struct pipeline *p = c->pipeline;
    *out = (struct piece){0};
    while (walk->unit < p->plan->n_units) {
        out->device = p->plan->place.units[walk->unit].device;
        const bool rows = walk->part < PART_INPUTS;
        if (p->shape->units[walk->unit].kind == UNIT_ATTENTION &&
            (rows ? next_rows(c, walk, out) : next_state(c, walk, out)))
            return true;
        walk->position = walk->slot = 0;
        if (++walk->part < PARTS) continue;
        walk->part = 0;
        walk->unit++;
    }
    return false;
}

struct cached_sizes cached_sizes(const struct cached *c) {
    struct cached_sizes sizes = {0};
    struct piece_walk walk = {0};
    struct piece piece;
    while (cached_next(c, &walk, &piece)) {
        sizes.largest = max_u64(sizes.largest, piece.size_bytes);
        sizes.padded += round_up(piece.size_bytes, 8);
    }
    return sizes;
}

// ---- Copies -------------------------------------------------------------------------------------

// Ends the copies that were encoded for a device. After a failure nothing can run any more.
static enum status finish(struct pipeline *p, int device, struct err *e) {
    if (stream_wait(p->devices[device].copy_in, e) == OK) return OK;
    p->failed = true;
    return err_context(e, "copying a session");
}

// Copies the rows of a piece by head, one behind the other, from their page, or to it.
static void copy_rows(const struct piece *piece, char *rows, bool to_page) {
    const struct kv_view *page = &piece->page;
    const int64_t row_bytes = (int64_t)dtype_bytes(page->type, (uint64_t)page->head_dim);
    for (int32_t r = piece->first_row; r < piece->first_row + piece->n_rows; r++)
        for (int32_t h = 0; h < page->n_heads; h++, rows += row_bytes)
            kv_copy_row(page, r, h, rows, to_page);
}

// Copies a piece of the host to one with the same rows.
static void copy_on_host(const struct piece *to, const struct piece *from) {
    const struct kv_view *page = &from->page;
    if (from->n_rows == 0 || from->n_rows == KV_PAGE) {
        memcpy(to->at, from->at, from->size_bytes);
        return;
    }
    for (int32_t r = from->first_row; r < from->first_row + from->n_rows; r++) {
        for (int32_t h = 0; h < page->n_heads; h++) {
            char row[HEAD_DIM_MAX * sizeof(float)];
            kv_copy_row(page, r, h, row, false);
            kv_copy_row(&to->page, r, h, row, true);
        }
    }
}

enum status cached_copy(const struct cached *target, const struct cached *source, struct err *e) {
    struct pipeline *p = source->pipeline;
    struct piece_walk from_walk = {0}, to_walk = {0};
    struct piece from, to;
    while (cached_next(source, &from_walk, &from)) {
        const bool both = cached_next(target, &to_walk, &to);
        ASSERT(both && from.size_bytes == to.size_bytes && from.device == to.device);
        if (from.device == DEVICE_HOST)
            copy_on_host(&to, &from);
        else
            stream_copy(p->devices[from.device].copy_in, to.at, from.at, from.size_bytes,
                        COPY_WITHIN);
    }
    for (int d = DEVICE_HOST + 1; d < p->n_devices; d++)
        if (finish(p, d, e)) return e->status;
    return OK;
}

enum status cached_read(const struct cached *c, const struct piece *piece, void *target,
                        struct err *e) {
    if (piece->n_rows > 0) return copy_rows(piece, target, false), OK;
    if (piece->device == DEVICE_HOST) return memcpy(target, piece->at, piece->size_bytes), OK;
    stream_copy(c->pipeline->devices[piece->device].copy_in, target, piece->at, piece->size_bytes,
                COPY_FROM_DEVICE);
    return finish(c->pipeline, piece->device, e);
}

enum status cached_write(const struct cached *c, const struct piece *piece, const void *source,
                         struct err *e) {
    if (piece->n_rows > 0) return copy_rows(piece, (char *)(uintptr_t)source, true), OK;
    if (piece->device == DEVICE_HOST) return memcpy(piece->at, source, piece->size_bytes), OK;
    stream_copy(c->pipeline->devices[piece->device].copy_in, piece->at, source, piece->size_bytes,
                COPY_TO_DEVICE);
    return finish(c->pipeline, piece->device, e);
}

/* footprint.c: the exact bytes of every buffer, from shape, workload and device alone.
 *
 * Owns nothing; pure functions. The solver adds these numbers up and the runtime allocates these
 * numbers: there is no second formula anywhere. Any thread. Tested by tests/planner/test_planner.c
 * and tests/planner/test_schedule.c.
 */
#include "planner/plan/footprint.h"

#include "base/mem.h"
#include "base/number.h"
#include "kernels/op_cost.h"
#include "planner/blocks/blocks.h"

#include <limits.h>

enum {
    ALIGN = 256, // every area and table starts at a multiple: 64-byte vectors, 256-byte GPU rows
    BLOCKS = 4,
    BLOCK_LIMIT = 8 << 20,
    PAGE = 4096,
};

uint64_t footprint_unit_weights(const struct unit *unit, const struct machine_device *device,
                                bool embed_is_here) {
    uint64_t total = 0;
    for (int i = 0; i < unit->n_tensors; i++) {
        if (i == 0 && unit->shares_embed && embed_is_here) continue;
        total += round_up(unit->tensors[i].size_bytes, device->align_bytes);
    }
    return total;
}

// ---- Parts of units -----------------------------------------------------------------------------

int32_t footprint_split_row(int32_t n_rows, int32_t cpu_parts) {
    ASSERT(cpu_parts >= 0 && cpu_parts < UNIT_PARTS);
    if (cpu_parts == 0) return n_rows;
    ASSERT(n_rows >= 2 * SPLIT_STEP);
    const int32_t row = (int32_t)((int64_t)n_rows * (UNIT_PARTS - cpu_parts) / UNIT_PARTS);
    const int32_t last = (n_rows - SPLIT_STEP) / SPLIT_STEP * SPLIT_STEP;
    const int32_t whole = row / SPLIT_STEP * SPLIT_STEP;
    return whole < SPLIT_STEP ? SPLIT_STEP : min_i32(whole, last);
}

struct cut footprint_cut(const struct unit_tensor *t, int32_t cpu_parts) {
    const int32_t n = t->use == USE_EXPERTS ? t->n_matrices : t->n_rows;
    if (cpu_parts == 0) return (struct cut){n, n};
    if (t->use != USE_EXPERTS) return (struct cut){n, footprint_split_row(n, cpu_parts)};
    const int32_t first = (int32_t)((int64_t)n * (UNIT_PARTS - cpu_parts) / UNIT_PARTS);
    return (struct cut){n, max_i32(first, 1)};
}

int32_t footprint_split_width(const struct unit *unit) {
    return unit_find(unit, unit->kind == UNIT_FFN ? ROLE_FFN_DOWN : ROLE_ATTN_OUTPUT)->n_cols;
}

// Bytes of a tensor of a split unit on one device: the first or the last rows, or experts, of what
// is cut, all or nothing of another matrix, all of a vector and of the biases of experts.
static uint64_t cut_bytes(const struct unit_tensor *t, int32_t cpu_parts, bool first) {
    if (!unit_is_cut(t)) return first || t->use != USE_MATRIX ? t->size_bytes : 0;
    const struct cut cut = footprint_cut(t, cpu_parts);
    return t->size_bytes / (uint64_t)cut.n * (uint64_t)(first ? cut.first : cut.n - cut.first);
}

uint64_t footprint_split_weights(const struct unit *unit, const struct machine_device *device,
                                 int32_t cpu_parts) {
    uint64_t total = 0;
    for (int i = 0; i < unit->n_tensors; i++) {
        const uint64_t size_bytes = cut_bytes(&unit->tensors[i], cpu_parts, !device->is_host);
        total += round_up(size_bytes, device->align_bytes);
    }
    return total;
}

uint64_t footprint_fetch(const struct unit *unit, int32_t cpu_parts, uint64_t align_bytes) {
    uint64_t total = 0;
    for (int i = 0; i < unit->n_tensors; i++) {
        const struct unit_tensor *t = &unit->tensors[i];
        if (cpu_parts == 0 || unit_is_cut(t))
            total +=
                round_up(cpu_parts ? cut_bytes(t, cpu_parts, false) : t->size_bytes, align_bytes);
    }
    return total;
}

uint64_t footprint_slot(const struct unit *unit, const struct workload *w,
                        const struct machine_device *accelerator, int32_t cpu_parts) {
    const uint64_t weights = footprint_fetch(unit, cpu_parts, accelerator->align_bytes);
    return weights + (cpu_parts ? 0 : footprint_unit_kv(unit, w, accelerator));
}

void footprint_blocks(enum feed feed, uint64_t fetch_bytes, int32_t *n_blocks,
                      uint64_t *block_bytes) {
    const uint64_t whole = round_up(fetch_bytes, PAGE);
    *n_blocks = feed == FEED_STAGED ? BLOCKS : 0;
    *block_bytes = feed == FEED_STAGED ? min_u64(whole, BLOCK_LIMIT) : 0;
}

// ---- Caches and scratch -------------------------------------------------------------------------

uint64_t footprint_kv_row(const struct unit *unit, const struct workload *w) {
    if (unit->kind != UNIT_ATTENTION) return 0;
    const uint64_t n_kv_heads = (uint64_t)unit->n_kv_heads;
    return dtype_bytes(w->kv_type_k, n_kv_heads * (uint64_t)unit->head_dim_k) +
           dtype_bytes(w->kv_type_v, n_kv_heads * (uint64_t)unit->head_dim_v);
}

// Bytes of one position in all layers.
static uint64_t kv_bytes(const struct workload *w, const struct shape *shape) {
    uint64_t bytes = 0;
    for (int u = 0; u < shape->n_units; u++) bytes += footprint_kv_row(&shape->units[u], w);
    return bytes;
}

bool footprint_shrink_kv(struct workload *w, const struct shape *shape) {
    struct err ignored;
    const struct workload before = *w;
    if (workload_check_kv(DTYPE_Q8_0, shape, "", &ignored)) return false;
    w->kv_type_k = w->kv_type_v = DTYPE_Q8_0;
    return kv_bytes(w, shape) < kv_bytes(&before, shape);
}

uint64_t footprint_starts(const struct shape *shape) {
    return round_up(((uint64_t)shape->n_experts + 1) * 4, ALIGN);
}

bool footprint_fetches_kv(const struct unit *unit, const struct unit_place *place) {
    return place->streamed && !place->cpu_parts && unit->kind == UNIT_ATTENTION &&
           unit->n_kv_heads > 0;
}

uint64_t footprint_unit_kv(const struct unit *unit, const struct workload *w,
                           const struct machine_device *device) {
    if (unit->kind != UNIT_ATTENTION) return 0;
    const uint64_t n_pages = (uint64_t)workload_unit_pages(w, unit);
    const uint64_t rows = n_pages * KV_PAGE * (uint64_t)unit->n_kv_heads;
    const uint64_t align = device->align_bytes;
    return round_up(dtype_bytes(w->kv_type_k, rows * (uint64_t)unit->head_dim_k), align) +
           round_up(dtype_bytes(w->kv_type_v, rows * (uint64_t)unit->head_dim_v), align) +
           round_up(unit->state_bytes * (uint64_t)w->n_sessions * STATE_SLOTS, align);
}

// Reserves count elements of 4 bytes at *at and returns where they start.
static uint64_t part(uint64_t *at, int64_t count) {
    uint64_t start = *at;
    *at = round_up(start + (uint64_t)count * 4, ALIGN);
    return start;
}

void footprint_tables(const struct shape *shape, const struct workload *w,
                      struct tables_layout *out) {
    uint64_t at = 0;
    out->tokens = part(&at, w->n_ubatch);
    out->positions = part(&at, w->n_ubatch);
    out->sequences = part(&at, w->n_ubatch);
    out->cache_rows = part(&at, w->n_ubatch);
    out->rows = part(&at, w->max_logits);
    out->pages = part(&at, workload_pages(w));
    out->ring_rows = part(&at, w->window ? w->n_ubatch : 0);
    out->ring_pages = part(&at, w->window ? workload_pages(w) : 0);
    out->steps = part(&at, shape->recurrent.kind ? 2 * (int64_t)w->n_ubatch : 0);
    out->size_bytes = at;
}

static int64_t rows_of(enum area_rows rows, const struct shape *shape, const struct workload *w) {
    switch (rows) {
    case ROWS_ONE: return 1;
    case ROWS_TOKENS: return w->n_ubatch;
    case ROWS_PAIRS: return (int64_t)w->n_ubatch * shape->n_experts_used;
    case ROWS_HEADS: return (int64_t)w->n_ubatch * shape->n_heads;
    case ROWS_LOGITS: return w->max_logits;
    }
    ASSERT(false);
    return 0;
}

struct area_size {
    uint64_t size_bytes;
    unsigned users; // blocks that compute while it is in use, by bits
};

// The areas are for such a model, workload and device.
struct needs {
    const struct shape *shape;
    const struct workload *w;
    enum weight_type acts_type; // the one of the model's whose activations take most
    int32_t n_lanes;
};

static void add_areas(struct area_size sizes[AREAS], const struct needs *needs,
                      const struct block *block, unsigned user) {
    for (int32_t i = 0; i < block->n_areas; i++) {
        const struct block_area *need = &block->areas[i];
        const int64_t n_rows = rows_of(need->rows, needs->shape, needs->w);
        const int64_t n_cols = dims_of(needs->shape, NULL, need->n_cols);
        const uint64_t size_bytes = need->area == AREA_MATMUL && n_cols > 0
                                        ? matmul_scratch_bytes(needs->acts_type, (int32_t)n_cols,
                                                               (int32_t)n_rows, needs->n_lanes)
                                        : (uint64_t)(n_rows * n_cols) * 4;
        struct area_size *size = &sizes[need->area];
        size->size_bytes = max_u64(size->size_bytes, size_bytes);
        size->users |= user;
    }
}

// Places each area after all earlier areas that are in use at the same time.
static void place_areas(const struct area_size sizes[AREAS], struct scratch_layout *out) {
    *out = (struct scratch_layout){0};
    uint64_t ends[AREAS];
    for (int i = 0; i < AREAS; i++) {
        for (int before = 0; before < i; before++)
            if (sizes[i].users & sizes[before].users)
                out->at[i] = max_u64(out->at[i], ends[before]);
        out->size[i] = sizes[i].size_bytes;
        ends[i] = round_up(out->at[i] + sizes[i].size_bytes, ALIGN);
        out->size_bytes = max_u64(out->size_bytes, ends[i]);
    }
}

void footprint_scratch(const struct shape *shape, const struct workload *w,
                       const struct machine_device *device, uint32_t kinds,
                       struct scratch_layout *out) {
    static const enum area_life lives[AREAS] = {
#define AREA(id, life) [AREA_##id] = LIFE_##life,
#include "planner/blocks/areas.def"
#undef AREA
    };
    const struct needs needs = {shape, w,
                                shape_has_matrices(shape, DTYPE_BF16) ? WEIGHT_BF16 : WEIGHT_Q8_0,
                                device->n_lanes};
    struct area_size sizes[AREAS] = {{0}};
    struct tables_layout tables;
    for (int kind = 0; kind < UNIT_KINDS; kind++) {
        const struct block *blocks[BLOCKS_OF_KIND];
        const int n = kinds >> kind & 1 ? blocks_of_kind(shape, (enum unit_kind)kind, blocks) : 0;
        for (int i = 0; i < n; i++)
            add_areas(sizes, &needs, blocks[i], 1u << (BLOCKS_OF_KIND * kind + i));
    }
    footprint_tables(shape, w, &tables);
    if (kinds && !device->is_host) sizes[AREA_TABLES].size_bytes = tables.size_bytes;
    if (kinds & SPLIT_EXPERTS) sizes[AREA_EXPERT_SLOTS].size_bytes *= 2 * UNIT_PARTS;
    if (kinds & SPLIT_EXPERTS && !device->is_host) sizes[AREA_CPU_OUT] = sizes[AREA_EXPERT_OUT];
    if (device->is_host)
        sizes[AREA_LOGITS].size_bytes = (uint64_t)w->max_logits * (uint64_t)shape->n_vocab * 4;
    for (int i = 0; i < AREAS; i++)
        if (lives[i] == LIFE_PASS) sizes[i].users = UINT_MAX;
    place_areas(sizes, out);
}

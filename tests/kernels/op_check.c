/* op_check.c: see op_check.h. */
#include "tests/kernels/op_check.h"

#include "base/mem.h"
#include "tests/lib/block_scales.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { GUARD_BYTES = 256, GUARD = 0xa5, POISON = 0xff };
enum { STRETCH = 1024 };   // bytes that memcmp compares at once
enum { FEW_OUTPUTS = 32 }; // too few for their mean error to say much

// One op, called through a device's table or through the definition.
struct op_entry {
    void (*encode)(struct stream *s, enum weight_type type, const union op_args *args);
    void (*define)(const struct cpu_table *t, const struct lane *lane, enum weight_type type,
                   const union op_args *args);
    struct op_cost (*cost)(enum weight_type type, const union op_args *args);
};

#define OP(name, ...)                                                                            \
    static void encode_##name(struct stream *s, enum weight_type type, const union op_args *a) { \
        (void)type;                                                                              \
        s->device->ops->name(s, &a->name);                                                       \
    }                                                                                            \
    static void define_##name(const struct cpu_table *t, const struct lane *lane,                \
                              enum weight_type type, const union op_args *a) {                   \
        (void)type;                                                                              \
        t->name(lane, &a->name);                                                                 \
    }                                                                                            \
    static struct op_cost cost_##name(enum weight_type type, const union op_args *a) {           \
        (void)type;                                                                              \
        return op_cost_##name(&a->name, 1);                                                      \
    }
#define OP_W(name, ...)                                                                          \
    static void encode_##name(struct stream *s, enum weight_type type, const union op_args *a) { \
        s->device->ops->name(s, type, &a->name);                                                 \
    }                                                                                            \
    static void define_##name(const struct cpu_table *t, const struct lane *lane,                \
                              enum weight_type type, const union op_args *a) {                   \
        t->name[type](lane, &a->name);                                                           \
    }                                                                                            \
    static struct op_cost cost_##name(enum weight_type type, const union op_args *a) {           \
        return op_cost_##name(type, &a->name);                                                   \
    }
#include "kernels/ops.def"
#undef OP
#undef OP_W

static const struct op_entry OPS[OP_COUNT] = {
#define OP(name, ...) {encode_##name, define_##name, cost_##name},
#define OP_W          OP
#include "kernels/ops.def"
#undef OP
#undef OP_W
};

// ---- Opening and closing ------------------------------------------------------------------------

bool op_check_open(struct op_check *c, uint64_t seed) {
    *c = (struct op_check){.seed = seed, .align_bytes = 64};
    cpu_table_ref(&c->definition);
    uint8_t **const parts[] = {&c->before, &c->expected, &c->actual, &c->whole, &c->roles};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        *parts[i] = mem_map_pages(OP_SCENE_BYTES);
        if (*parts[i]) continue;
        fprintf(stderr, "check_ops: no memory for the scene\n");
        op_check_close(c);
        return false;
    }
    return true;
}

bool op_check_add(struct op_check *c, struct device *device) {
    struct err e;
    char text[512];
    ASSERT(c->n_rigs < OP_RIGS_MAX);
    struct op_rig *rig = &c->rigs[c->n_rigs++];
    rig->device = device;
    if (device->info.align_bytes > c->align_bytes) c->align_bytes = device->info.align_bytes;
    c->page_bytes = device->info.is_host ? (uint64_t)sysconf(_SC_PAGESIZE) : 0;
    if (stream_new(device, STREAM_COMPUTE, &rig->stream, &e) == OK &&
        buffer_new(device, OP_SCENE_BYTES, PURPOSE_SCRATCH, &rig->memory, &e) == OK)
        return true;
    fprintf(stderr, "check_ops: %s\n", err_text(&e, text, sizeof text));
    return false;
}

void op_check_close_rigs(struct op_check *c) {
    for (int i = 0; i < c->n_rigs; i++) {
        stream_free(c->rigs[i].stream);
        buffer_free(&c->rigs[i].memory);
        device_close(c->rigs[i].device);
        c->rigs[i] = (struct op_rig){0};
    }
    c->n_rigs = 0;
}

void op_check_close(struct op_check *c) {
    op_check_close_rigs(c);
    uint8_t *const parts[] = {c->before, c->expected, c->actual, c->whole, c->roles};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (parts[i]) mem_unmap_pages(parts[i], OP_SCENE_BYTES);
    *c = (struct op_check){0};
}

// ---- Lines of output ----------------------------------------------------------------------------

void op_line_start(struct op_check *c, enum op_id op, const char *label) {
    c->op = op;
    (void)snprintf(c->label, sizeof c->label, "%s", label);
    c->worst = 0;
    c->few = (struct op_few){0};
    c->bits = 0;
    c->random = c->seed;
    c->failed = false;
}

static void compare_few(struct op_check *c) {
    if (c->few.count == 0) return;
    double nmse = c->few.error / (double)c->few.count;
    op_describe(c, "%" PRId64 " outputs of small cases together", c->few.count);
    if (!(nmse <= c->worst)) c->worst = nmse;
    if (!(nmse <= c->few.limit)) op_fail(c, "nmse %.3g, limit %.3g", nmse, c->few.limit);
}

void op_line_end(struct op_check *c) {
    compare_few(c);
    if (c->failed) {
        c->n_failed++;
        printf("not ok %s %s %s nmse %.1e: %s\n", op_name(c->op), c->label, c->backend, c->worst,
               c->why);
    } else {
        c->n_passed++;
        printf("ok %s %s %s nmse %.1e bits %016" PRIx64 "\n", op_name(c->op), c->label, c->backend,
               c->worst, c->bits);
    }
    fflush(stdout);
}

void op_describe(struct op_check *c, const char *format, ...) {
    va_list list;
    va_start(list, format);
    (void)vsnprintf(c->what, sizeof c->what, format, list);
    va_end(list);
}

// The first failure of a line is the one that is shown.
void op_fail(struct op_check *c, const char *format, ...) {
    if (c->failed) return;
    c->failed = true;
    char text[240];
    va_list list;
    va_start(list, format);
    (void)vsnprintf(text, sizeof text, format, list);
    va_end(list);
    (void)snprintf(c->why, sizeof c->why, "%s: %s", c->what, text);
}

// ---- The scene ----------------------------------------------------------------------------------

void op_scene_clear(struct op_check *c) {
    c->used_bytes = 0;
    c->n_regions = 0;
}

static uint64_t add_between_bands(struct op_check *c, uint64_t size_bytes) {
    uint64_t offset = round_up(c->used_bytes + GUARD_BYTES, c->align_bytes);
    c->used_bytes = offset + size_bytes + GUARD_BYTES;
    return offset;
}

uint64_t op_scene_add(struct op_check *c, uint64_t size_bytes) {
    uint64_t start = c->used_bytes;
    uint64_t offset = (c->page_bytes ? op_guard_add : add_between_bands)(c, size_bytes);
    ASSERT(c->used_bytes <= OP_SCENE_BYTES);
    memset(c->before + start, GUARD, c->used_bytes - start);
    memset(c->actual + start, GUARD, c->used_bytes - start); // closed pages are not copied
    memset(c->before + offset, POISON, size_bytes);
    return offset;
}

void *op_scene_at(struct op_check *c, uint64_t offset) { return c->before + offset; }

void op_mark(uint8_t *roles, uint64_t offset, uint64_t size_bytes, enum op_role role) {
    memset(roles + offset, (int)role, size_bytes);
}

// splitmix64
static uint64_t next_random(struct op_check *c) {
    uint64_t z = c->random += 0x9e3779b97f4a7c15U;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9U;
    z = (z ^ z >> 27) * 0x94d049bb133111ebU;
    return z ^ z >> 31;
}

uint32_t op_random(struct op_check *c, uint32_t limit) {
    return (uint32_t)((next_random(c) >> 32) * limit >> 32);
}

// A sum of four uniform numbers is close enough to a normal one, and quick.
void op_fill_normal(struct op_check *c, float *out, int64_t count, float deviation) {
    float factor = deviation * 1.7320508F / 65536.0F;
    for (int64_t i = 0; i < count; i++) {
        uint64_t r = next_random(c);
        int32_t sum = (int32_t)((r & 0xffff) + (r >> 16 & 0xffff) + (r >> 32 & 0xffff) + (r >> 48));
        out[i] = (float)(sum - 131070) * factor;
    }
}

uint64_t op_scene_normal(struct op_check *c, int64_t count, float deviation) {
    uint64_t offset = op_scene_add(c, (uint64_t)count * sizeof(float));
    op_fill_normal(c, op_scene_at(c, offset), count, deviation);
    return offset;
}

static void fill_plain(struct op_check *c, enum weight_type type, uint8_t *out, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        float value;
        uint32_t bits;
        op_fill_normal(c, &value, 1, 1);
        memcpy(&bits, &value, sizeof bits);
        uint16_t narrow = type == WEIGHT_F16 ? float_to_half(value) : (uint16_t)(bits >> 16);
        if (type == WEIGHT_F32)
            memcpy(out + 4 * i, &value, sizeof value);
        else
            memcpy(out + 2 * i, &narrow, sizeof narrow);
    }
}

static void fill_blocks(struct op_check *c, enum weight_type type, uint8_t *out, int64_t n_blocks) {
    uint32_t block_bytes = dtype_find((uint32_t)weight_dtype(type))->block_bytes;
    const struct block_scales scales = block_scales_of(type);
    for (int64_t b = 0; b < n_blocks; b++, out += block_bytes) {
        for (uint32_t i = 0; i < block_bytes; i++) out[i] = (uint8_t)(next_random(c) >> 56);
        float values[2];
        op_fill_normal(c, values, 2, 1);
        for (int i = 0; i < 2; i++) values[i] *= scales.factor[i];
        block_scales_put(&scales, values, out);
    }
}

void op_fill_weights(struct op_check *c, enum weight_type type, void *out, int64_t count) {
    const struct dtype_info *info = dtype_find((uint32_t)weight_dtype(type));
    if (info->block_elements == 1)
        fill_plain(c, type, out, count);
    else
        fill_blocks(c, type, out, count / info->block_elements);
}

uint64_t op_scene_weights(struct op_check *c, enum weight_type type, int64_t count) {
    uint64_t offset = op_scene_add(c, dtype_bytes(weight_dtype(type), (uint64_t)count));
    op_fill_weights(c, type, op_scene_at(c, offset), count);
    return offset;
}

void op_row_squares(struct op_check *c, enum weight_type type, uint64_t weight, int32_t n_rows,
                    int32_t n_cols, double *squares) {
    float row[8192];
    uint64_t row_bytes = dtype_bytes(weight_dtype(type), (uint64_t)n_cols);
    ASSERT(n_cols <= (int32_t)(sizeof row / sizeof *row));
    for (int32_t r = 0; r < n_rows; r++) {
        const char *from = (const char *)op_scene_at(c, weight) + (uint64_t)r * row_bytes;
        dequantize_row(type, from, row, n_cols);
        squares[r] = 0;
        for (int32_t i = 0; i < n_cols; i++) squares[r] += (double)row[i] * row[i];
    }
}

double op_product_limit(const struct op_check *c, enum weight_type type) {
    if (dtype_find((uint32_t)weight_dtype(type))->block_elements > 1) return 5e-4;
    return type == WEIGHT_BF16 && c->rounds_bf16 ? 5e-6 : 1e-6;
}

uint64_t op_scratch_bytes(const struct op_check *c, enum weight_type type, int32_t n_cols,
                          int32_t n_rows) {
    int32_t n_lanes = 1;
    for (int i = 0; i < c->n_rigs; i++)
        if (c->rigs[i].device->info.n_lanes > n_lanes) n_lanes = c->rigs[i].device->info.n_lanes;
    return matmul_scratch_bytes(type, n_cols, n_rows, n_lanes);
}

// ---- Running and comparing ----------------------------------------------------------------------

// Copies what is open of the scene, all of it without closed pages.
static void copy_scene(struct op_check *c, struct op_rig *rig, enum copy_direction way) {
    for (int i = 0; i < (c->page_bytes ? c->n_regions : 1); i++) {
        struct op_region part = {0, c->used_bytes};
        if (c->page_bytes) part = op_guard_span(c, i);
        char *there = (char *)rig->memory.base + part.offset;
        if (way == COPY_TO_DEVICE)
            stream_copy(rig->stream, there, c->before + part.offset, part.size_bytes, way);
        else
            stream_copy(rig->stream, c->actual + part.offset, there, part.size_bytes, way);
    }
}

// The scene goes to the device, the op runs, the scene comes back into actual.
static bool run_on(struct op_check *c, int rig_index, const struct op_case *k, const void *shape) {
    struct op_rig *rig = &c->rigs[rig_index];
    struct err e;
    char text[200];
    union op_args args;
    k->place(&args, shape, rig->memory.base);
    if (c->page_bytes && rig->layout != c->layout && !op_guard_close(c, rig)) return false;
    copy_scene(c, rig, COPY_TO_DEVICE);
    OPS[k->op].encode(rig->stream, k->type, &args);
    copy_scene(c, rig, COPY_FROM_DEVICE);
    if (stream_wait(rig->stream, &e) == OK) return true;
    op_fail(c, "%s", err_text(&e, text, sizeof text));
    return false;
}

// The first place from i on where the two differ, or n. Equal stretches go to memcmp, since a
// sanitized loop over bytes is slow.
static uint64_t next_difference(const uint8_t *one, const uint8_t *other, uint64_t i, uint64_t n) {
    while (i < n && one[i] == other[i]) {
        const uint64_t length = n - i < STRETCH ? n - i : STRETCH;
        if (memcmp(one + i, other + i, length))
            i++;
        else
            i += length;
    }
    return i;
}

// The first byte from i on that no op may write, or n.
static uint64_t next_kept(const struct op_check *c, uint64_t i, uint64_t n) {
    const uint8_t *found = memchr(c->roles + i, ROLE_KEPT, n - i);
    return found ? (uint64_t)(found - c->roles) : n;
}

// Guard bands, inputs and the columns that were not asked for are what they were.
static void compare_kept(struct op_check *c, const uint8_t *found, const char *who) {
    const uint64_t n = c->used_bytes;
    uint64_t i = next_difference(found, c->before, 0, n);
    while (i < n && c->roles[i] != ROLE_KEPT)
        i = next_difference(found, c->before, next_kept(c, i, n), n);
    if (i == n) return;
    op_fail(c, "%s wrote byte %" PRIu64 " of the scene, outside of its outputs", who, i);
}

static bool is_output(uint8_t role) { return role != ROLE_KEPT && role != ROLE_SCRATCH; }
static bool is_exact(uint8_t role) { return role == ROLE_BITS; }

// A half that is NaN in both: GPUs write 0x7fff for any NaN, CPUs keep the first bits of its
// payload. Regions begin at even offsets.
static bool both_nan(const struct op_check *c, const uint8_t *reference, uint64_t i) {
    uint16_t one, other;
    if (c->roles[i] != ROLE_F16) return false;
    memcpy(&one, c->actual + i / 2 * 2, sizeof one);
    memcpy(&other, reference + i / 2 * 2, sizeof other);
    return (one & 0x7fff) > 0x7c00 && (other & 0x7fff) > 0x7c00;
}

// The outputs with such a role are those of reference, bit for bit.
static void compare_bits(struct op_check *c, const uint8_t *reference, bool (*with)(uint8_t role),
                         const char *who) {
    const uint64_t n = c->outputs_end;
    uint64_t i = next_difference(c->actual, reference, c->outputs_start, n);
    while (i < n && (!with(c->roles[i]) || both_nan(c, reference, i)))
        i = next_difference(c->actual, reference, i + 1, n);
    if (i < n) op_fail(c, "%s differs in bits", who);
}

static float read_output(const uint8_t *p, enum op_role role) {
    float value;
    uint16_t half;
    memcpy(&value, p, sizeof value);
    memcpy(&half, p, sizeof half);
    return role == ROLE_F16 ? half_to_float(half) : value;
}

struct errors {
    double error, energy; // sums of squares, of the differences and of the reference
    double largest;       // difference
    int64_t count;
};

static struct errors find_errors(const struct op_check *c, bool may_be_nan) {
    struct errors found = {0};
    for (uint64_t i = c->outputs_start; i < c->outputs_end;) {
        enum op_role role = (enum op_role)c->roles[i];
        if (role != ROLE_F32 && role != ROLE_F16) {
            i++;
            continue;
        }
        double want = read_output(c->expected + i, role), got = read_output(c->actual + i, role);
        i += role == ROLE_F32 ? 4 : 2;
        if (may_be_nan && isnan(want) && isnan(got)) continue;
        double off = fabs(want - got);
        found.error += off * off;
        found.energy += want * want;
        if (isnan(off) || off > found.largest) found.largest = off; // a NaN stays
        found.count++;
    }
    return found;
}

// The error of all outputs together against their energy, and no single one far off: one wrong
// element among thousands would drown in the mean. What has to be exact is. The mean of a few
// squared errors is as much chance as error, so those of small cases are averaged over the line,
// each output against the energy of its own case.
static void compare_values(struct op_check *c, const struct op_case *k, const void *shape) {
    compare_bits(c, c->expected, is_exact, "a run");
    struct errors found = find_errors(c, k->may_be_nan);
    double count = (double)(found.count > 0 ? found.count : 1);
    double energy = k->expect ? fmax(found.energy, k->expect(shape)) : found.energy;
    double nmse = found.error > 0 ? found.error / energy : found.error;
    double bound = 10 * sqrt(k->limit * energy / count);
    if (!(found.largest <= bound))
        op_fail(c, "one output is off by %.3g, limit %.3g", found.largest, bound);
    if (found.count < FEW_OUTPUTS) {
        c->few.error += nmse * (double)found.count;
        c->few.count += found.count;
        c->few.limit = k->limit;
        return;
    }
    if (!(nmse <= c->worst)) c->worst = nmse;
    if (!(nmse <= k->limit)) op_fail(c, "nmse %.3g, limit %.3g", nmse, k->limit);
}

// op_cost promises as many written bytes as there are output bytes.
static void compare_cost(struct op_check *c, const struct op_case *k, const union op_args *args) {
    uint64_t outputs = 0;
    for (uint64_t i = c->outputs_start; i < c->outputs_end; i++) outputs += is_output(c->roles[i]);
    struct op_cost cost = OPS[k->op].cost(k->type, args);
    bool right = k->may_skip  ? cost.written_bytes >= outputs
                 : k->of_many ? cost.written_bytes <= outputs
                              : cost.written_bytes == outputs;
    if (!right)
        op_fail(c, "op_cost says %" PRIu64 " bytes are written, it was %" PRIu64,
                cost.written_bytes, outputs);
    if (cost.read_bytes == 0) op_fail(c, "op_cost says that nothing is read");
}

// Finds where outputs may be, so that the loops over bytes leave out the weights and caches.
static void find_outputs(struct op_check *c) {
    static const uint8_t KEPT[STRETCH] = {ROLE_KEPT};
    uint64_t start = 0, end = c->used_bytes;
    while (start + STRETCH <= end && !memcmp(c->roles + start, KEPT, STRETCH)) start += STRETCH;
    while (start + STRETCH <= end && !memcmp(c->roles + end - STRETCH, KEPT, STRETCH))
        end -= STRETCH;
    c->outputs_start = start;
    c->outputs_end = end;
}

static void set_roles(struct op_check *c, const struct op_case *k, const void *shape) {
    memset(c->roles, ROLE_KEPT, c->used_bytes);
    k->mark(c->roles, shape);
    find_outputs(c);
}

static void keep_outputs(struct op_check *c) {
    memcpy(c->whole + c->outputs_start, c->actual + c->outputs_start,
           c->outputs_end - c->outputs_start);
}

// FNV-1a, over the outputs alone: scratch and padding may differ.
static void add_bits(struct op_check *c) {
    for (uint64_t i = c->outputs_start; i < c->outputs_end; i++)
        if (is_output(c->roles[i])) c->bits = (c->bits ^ c->actual[i]) * 0x100000001b3U;
}

void op_run_whole(struct op_check *c, const struct op_case *k, const void *shape) {
    const struct lane alone = {.count = 1};
    union op_args args;
    char who[32];
    set_roles(c, k, shape);
    memcpy(c->expected, c->before, c->used_bytes);
    k->place(&args, shape, (char *)c->expected);
    OPS[k->op].define(&c->definition, &alone, k->type, &args);
    compare_kept(c, c->expected, "the definition");
    compare_cost(c, k, &args);
    for (int i = 0; i < c->n_rigs; i++) {
        if (!run_on(c, i, k, shape)) return;
        (void)snprintf(who, sizeof who, "the run on %d lanes", c->rigs[i].device->info.n_lanes);
        compare_kept(c, c->actual, who);
        if (i == 0) {
            if (k->limit > 0)
                compare_values(c, k, shape);
            else
                compare_bits(c, c->expected, is_output, who);
            keep_outputs(c);
            add_bits(c);
        } else {
            compare_bits(c, c->whole, is_output, who);
        }
    }
}

void op_run_part(struct op_check *c, const struct op_case *k, const void *part) {
    set_roles(c, k, part);
    if (!run_on(c, c->n_rigs - 1, k, part)) return;
    compare_kept(c, c->actual, "a part");
    const struct device_info *info = &c->rigs[c->n_rigs - 1].device->info;
    const bool may_round =
        k->op == OP_matmul || k->op == OP_matmul_experts || k->op == OP_attention;
    if ((may_round && info->rounds_by_batch) || (k->is_other && !info->is_host))
        compare_values(c, k, part);
    else
        compare_bits(c, c->whole, is_output, "a part");
}

void op_compare_levels(struct op_check *c, int i) {
    uint64_t *bits = &c->level_bits[c->op][i];
    if (!c->rigs[0].device->info.is_host || !strcmp(c->backend, "ref")) return;
    if (*bits == 0) *bits = c->bits;
    if (*bits != c->bits) op_fail(c, "other bits than those of a weaker level");
}

// ---- Chains -------------------------------------------------------------------------------------

// The scene goes to the device, the ops run, the scene comes back into actual.
static bool run_chain_on(struct op_check *c, int rig_index, const struct op_chain *chain,
                         bool apart) {
    struct op_rig *rig = &c->rigs[rig_index];
    struct err e;
    char text[200];
    if (c->page_bytes && rig->layout != c->layout && !op_guard_close(c, rig)) return false;
    copy_scene(c, rig, COPY_TO_DEVICE);
    for (int i = 0; i < chain->n; i++) {
        const struct op_command *op = &chain->commands[i];
        if (apart) stream_flush(rig->stream);
        OPS[op->op].encode(rig->stream, op->weight, &op->args);
    }
    copy_scene(c, rig, COPY_FROM_DEVICE);
    if (stream_wait(rig->stream, &e) == OK) return true;
    op_fail(c, "%s", err_text(&e, text, sizeof text));
    return false;
}

void op_run_chain(struct op_check *c,
                  void (*place)(struct op_chain *chain, const void *shape, char *base),
                  const void *shape) {
    find_outputs(c);
    for (int i = 0; i < 2 * c->n_rigs; i++) {
        const bool apart = i % 2 == 0;
        struct op_chain chain;
        place(&chain, shape, c->rigs[i / 2].memory.base);
        if (!run_chain_on(c, i / 2, &chain, apart)) return;
        if (i > 0) compare_bits(c, c->whole, is_output, apart ? "a run by parts" : "a run at once");
        if (i > 0) continue;
        keep_outputs(c);
        add_bits(c);
    }
}

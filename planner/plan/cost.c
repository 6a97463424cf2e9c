/* cost.c: what a unit takes on a device, by the device's measured rates.
 *
 * A page to check by hand. For a pass of n tokens with n_past positions cached:
 *
 * - matmul: bytes of the matrix * time per byte(type, n). RATE_TOKENS has the measured n; between
 *   them the time is interpolated, above the last it grows in proportion. And 8 bytes for each
 * token and column or row by the rate of vector ops: activations are read, written in 8 bits and
 * read again, results are written.
 * - experts: the same with the bytes of the experts that are expected to be chosen when each token
 *   takes n_experts_used of n_experts by chance, and with tokens per such expert:
 *   distinct = n_experts * (1 - (1 - used / n_experts)^n), n * used / distinct tokens.
 * - attention: the greater of 2 * n * keys * n_heads * (head_dim_k + head_dim_v) flops by the rate
 *   of attention, and keys cached rows by the rate of plain reads; keys = n_past + (n + 1) / 2,
 *   what a token sees on average, at most the window. The CPU takes a KV head's queries four at a
 *   time and rates are measured with whole fours, so of n tokens of n_heads / n_kv_heads queries
 *   one that is left over counts as 2.5, two as 3, three as 3.5.
 * - others: bytes read and written by the rate of vector ops.
 *
 * Of matmuls and attention, what plain reads of their bytes would take is spent waiting for memory.
 * Where the device's cache keeps the pass's weights, that part passes cache_factor times as fast.
 *
 * Of a split unit, a device takes its rows of every matrix that is cut, by the phase that the
 * matrix belongs to, and the accelerator takes those that are not; norm and swiglu are of the first
 * phase, the other ops of attention of its middle one. A streamed split unit takes both devices'
 * rows on the accelerator, in two matmuls for each matrix that is cut. Weights in a slot come from
 * no cache.
 *
 * Add op_us for each op that the encoders (planner/blocks/) encode for the unit: one per
 * matmul, and embed 1; attention 4 (norm, rope, kv_store, attention); FFN 2 (norm, swiglu); experts
 * 4 (norm, route, swiglu, combine); head 2 (gather, norm). What happens once per pass, such as the
 * table of angles, is in pass_us. Weight types without kernels take the rates of the type that is
 * nearest in bits. Owns nothing; any thread. Tested by tests/planner/test_planner.c and
 * tests/planner/test_simulate.c.
 */
#include "planner/plan/cost.h"

#include "kernels/op_cost.h"
#include "planner/plan/footprint.h"

#include <math.h>

static const double PER_US = 1e3; // 1e9 bytes per second are 1e3 bytes per microsecond

static bool has_rates(const double rates[RATE_CLASSES]) {
    for (int i = 0; i < RATE_CLASSES; i++)
        if (!(rates[i] > 0)) return false;
    return true;
}

// 1 / rate at that many tokens; beyond the last class it stays as it is.
static double inverse_rate(const double rates[RATE_CLASSES], double tokens) {
    if (tokens <= RATE_TOKENS[0]) return 1 / rates[0];
    for (int i = 1; i < RATE_CLASSES; i++) {
        if (tokens > RATE_TOKENS[i]) continue;
        const double low = RATE_TOKENS[i - 1], high = RATE_TOKENS[i];
        const double part = (tokens - low) / (high - low);
        return (1 - part) / rates[i - 1] + part / rates[i];
    }
    return 1 / rates[RATE_CLASSES - 1];
}

static double bits(enum dtype type) {
    const struct dtype_info *info = dtype_find((uint32_t)type);
    return info ? 8.0 * info->block_bytes / info->block_elements : 0;
}

// The row of rates for a type: its own, or that of the type with rates that is nearest in bits.
// NULL if no type has any.
static const double *rates_of(const double rates[WEIGHT_COUNT][RATE_CLASSES], enum dtype type) {
    enum weight_type own;
    if (dtype_weight(type, &own) && has_rates(rates[own])) return rates[own];
    const double *nearest = NULL;
    double least = INFINITY;
    for (int i = 0; i < WEIGHT_COUNT; i++) {
        const double far = fabs(bits(weight_dtype((enum weight_type)i)) - bits(type));
        if (far >= least || !has_rates(rates[i])) continue;
        nearest = rates[i];
        least = far;
    }
    return nearest;
}

static double divide(double amount, double rate) { return rate > 0 ? amount / rate : 0; }

static void add_op(struct cost *c, const struct device_rates *r, double memory_us, double us) {
    const double memory = memory_us < us ? memory_us : us;
    c->memory_us += memory;
    c->compute_us += us - memory;
    c->overhead_us += r->op_us;
}

// An op that reads and writes size_bytes element by element.
static void add_vector(struct cost *c, const struct device_rates *r, double size_bytes) {
    const double us = divide(size_bytes, r->vector_gbps * PER_US);
    add_op(c, r, us, us);
}

bool cost_is_cached(const struct machine *m, uint64_t host_read_bytes) {
    const uint64_t cache_bytes = m->devices[DEVICE_HOST].rates.cache_bytes;
    return cache_bytes > 0 && host_read_bytes <= cache_bytes;
}

double cost_cached_us(const struct device_rates *rates, double memory_us, double us) {
    const double factor = rates->cache_factor;
    return factor > 1 ? us - fmin(memory_us, us) * (1 - 1 / factor) : us;
}

// What a matmul reads and how often.
struct reads {
    int32_t n_rows; // of each matrix
    double count;   // of the tensor's matrices
    double tokens;  // for each of them
};

static void add_matmul(struct cost *c, const struct cost_place *at, const struct unit_tensor *t,
                       struct reads reads) {
    const double tokens = reads.tokens, part = (double)reads.n_rows / t->n_rows;
    const double size_bytes = reads.count * (double)t->size_bytes / t->n_matrices * part;
    const struct device_rates *r = &at->device->rates;
    const double memory_us = divide(size_bytes, r->memory_gbps * PER_US);
    const double *rates = rates_of(r->weight_gbps, t->type);
    double us = rates ? size_bytes * inverse_rate(rates, tokens) / PER_US : memory_us;
    if (tokens > RATE_TOKENS[RATE_CLASSES - 1]) us *= tokens / RATE_TOKENS[RATE_CLASSES - 1];
    if (at->cached) us = cost_cached_us(r, memory_us, us);
    us += divide(8 * reads.count * tokens * ((double)t->n_cols + reads.n_rows),
                 r->vector_gbps * PER_US);
    add_op(c, r, memory_us, us);
}

static double chosen_experts(const struct unit *unit, int32_t n_tokens) {
    if (unit->n_experts <= 0) return 0;
    return op_cost_distinct_experts(n_tokens, unit->n_experts, unit->n_experts_used);
}

static double tensor_read_bytes(const struct unit *unit, const struct unit_tensor *t,
                                double chosen) {
    const double size_bytes = (double)t->size_bytes;
    return t->use == USE_EXPERTS && unit->n_experts ? size_bytes * chosen / unit->n_experts
                                                    : size_bytes;
}

// Rows of a matrix that the part computes with its first or its last matmul. What is not cut
// belongs to the first.
static int32_t part_rows(const struct unit_tensor *t, struct unit_part part, bool last) {
    if (last ? !part.last : part.cpu_parts && !part.first) return 0;
    const bool cut = part.cpu_parts && unit_is_cut(t);
    const int32_t row = footprint_split_row(t->n_rows, cut ? part.cpu_parts : 0);
    return last ? t->n_rows - row : row;
}

// Whether the phase has to do with a tensor of a unit with that down (footprint_down): with it
// alone the last one, with none the middle one, with all others the first.
static bool is_of_phase(const struct unit_tensor *t, const struct unit_tensor *down,
                        enum step_phase phase) {
    switch (phase) {
    case PHASE_ALL: return true;
    case PHASE_IN: return t != down;
    case PHASE_MID: return false;
    case PHASE_OUT: return t == down;
    }
    ASSERT(false);
    return false;
}

double cost_read_bytes(const struct unit *unit, struct unit_part part, const struct pass *pass) {
    if (unit->kind == UNIT_EMBED || (unit->kind == UNIT_HEAD && !pass->n_logits)) return 0;
    const double chosen = chosen_experts(unit, pass->n_tokens);
    const struct unit_tensor *down = part.phase == PHASE_ALL ? NULL : footprint_down(unit);
    double sum = 0;
    for (int i = 0; i < unit->n_tensors; i++) {
        const struct unit_tensor *t = &unit->tensors[i];
        if (!is_of_phase(t, down, part.phase)) continue;
        double share = 1;
        if (part.cpu_parts && t->use == USE_MATRIX)
            share = (part_rows(t, part, false) + part_rows(t, part, true)) / (double)t->n_rows;
        sum += tensor_read_bytes(unit, t, chosen) * share;
    }
    return sum;
}

uint64_t cost_all_read_bytes(const struct unit *unit) {
    uint64_t sum = 0;
    for (int i = 0; i < unit->n_tensors && unit->kind != UNIT_EMBED; i++)
        sum += unit->tensors[i].size_bytes;
    return sum;
}

static int kv_row(enum dtype type) {
    return type == DTYPE_F32 ? RATE_KV_F32 : type == DTYPE_F16 ? RATE_KV_F16 : RATE_KV_Q8_0;
}

// Of keys or values of that type, whichever is slower; 0 if there are no rates.
static double us_per_flop(const double gflops[RATE_KV_TYPES][RATE_CLASSES],
                          const struct workload *w, double tokens) {
    const double *k = gflops[kv_row(w->kv_type_k)], *v = gflops[kv_row(w->kv_type_v)];
    const double k_us = has_rates(k) ? inverse_rate(k, tokens) / PER_US : 0;
    const double v_us = has_rates(v) ? inverse_rate(v, tokens) / PER_US : 0;
    return k_us > v_us ? k_us : v_us;
}

// Bytes of one element on average: blocks are shared by the heads' elements evenly.
static double element_bytes(enum dtype type) { return bits(type) / 8; }

// The CPU computes four queries of a KV head together. Those left over take more than their part:
// three 7/8 of the time of four, two 3/4, one 5/8. Returns how many, in whole fours, take as long.
static double host_queries(double queries) {
    const double fours = floor(queries / 4), rest = queries - 4 * fours;
    return 4 * fours + (rest > 0 ? 2 + rest / 2 : 0);
}

static void add_attention(struct cost *c, const struct cost_place *at, const struct unit *unit,
                          const struct pass *pass) {
    const struct device_rates *r = &at->device->rates;
    const double n = pass->n_tokens, seen = pass->n_past + (n + 1) / 2;
    const double keys = unit->window && unit->window < seen ? unit->window : seen;
    double queries = n * unit->n_heads;
    if (at->device->is_host && unit->n_kv_heads > 0)
        queries = unit->n_kv_heads * host_queries(queries / unit->n_kv_heads);
    const double flops = 2 * queries * keys * (unit->head_dim_k + unit->head_dim_v);
    const double row_bytes =
        unit->n_kv_heads * (unit->head_dim_k * element_bytes(at->w->kv_type_k) +
                            unit->head_dim_v * element_bytes(at->w->kv_type_v));
    const double memory_us = divide(keys * row_bytes, r->memory_gbps * PER_US);
    const double flops_us = flops * us_per_flop(r->attention_gflops, at->w, n);
    const double us = fmax(flops_us, memory_us);
    add_op(c, r, memory_us, at->cached ? cost_cached_us(r, memory_us, us) : us);
}

// Norm, rope, kv_store and attention; the state of a recurrent block is read and written once. All
// but the norm belong to the middle phase.
static void add_attention_ops(struct cost *c, const struct cost_place *at, const struct unit *unit,
                              enum step_phase phase, const struct pass *pass) {
    const struct device_rates *r = &at->device->rates;
    const double n = pass->n_tokens, k = (double)unit->n_kv_heads * unit->head_dim_k,
                 v = (double)unit->n_kv_heads * unit->head_dim_v;
    if (phase == PHASE_ALL || phase == PHASE_IN) add_vector(c, r, 8 * n * at->shape->n_embd);
    if (phase == PHASE_IN || phase == PHASE_OUT) return;
    add_vector(c, r, 8 * n * (unit->n_heads * unit->head_dim_k + k));
    add_vector(c, r,
               n * (k * (4 + element_bytes(at->w->kv_type_k)) +
                    v * (4 + element_bytes(at->w->kv_type_v))) +
                   2 * (double)unit->state_bytes);
    add_attention(c, at, unit, pass);
}

// What swiglu makes of a token: the rows of the widest matrix that reads the residual stream.
static double hidden_cols(const struct unit *unit, int32_t n_embd) {
    int32_t most = 0;
    for (int i = 0; i < unit->n_tensors; i++) {
        const struct unit_tensor *t = &unit->tensors[i];
        if (t->use == USE_MATRIX && t->n_cols == n_embd && t->n_rows > most) most = t->n_rows;
    }
    return most;
}

// Norm and swiglu. With one token each device makes its own columns, with more both make all, of
// which those of the other are overwritten.
static void add_ffn_ops(struct cost *c, const struct cost_place *at, const struct unit *unit,
                        struct unit_part part, const struct pass *pass) {
    if (part.phase == PHASE_OUT) return;
    const struct device_rates *r = &at->device->rates;
    const double n = pass->n_tokens;
    double n_cols = hidden_cols(unit, at->shape->n_embd);
    if (part.cpu_parts && pass->n_tokens == 1 && !(part.first && part.last)) {
        const int32_t n_ff = footprint_down(unit)->n_cols;
        const int32_t row = footprint_split_row(n_ff, part.cpu_parts);
        n_cols = part.last ? n_ff - row : row;
    }
    add_vector(c, r, 2 * n * 4.0 * at->shape->n_embd);
    add_vector(c, r, 12 * n * n_cols);
}

// The ops of a unit besides its matrices.
static void add_other_ops(struct cost *c, const struct cost_place *at, const struct unit *unit,
                          struct unit_part part, const struct pass *pass) {
    const struct device_rates *r = &at->device->rates;
    const double n = pass->n_tokens, row_bytes = 4.0 * at->shape->n_embd;
    switch (unit->kind) {
    case UNIT_EMBED: add_vector(c, r, 2 * n * row_bytes); break;
    case UNIT_ATTENTION: add_attention_ops(c, at, unit, part.phase, pass); break;
    case UNIT_FFN: add_ffn_ops(c, at, unit, part, pass); break;
    case UNIT_EXPERTS: {
        const double pairs = n * unit->n_experts_used;
        add_vector(c, r, 2 * n * row_bytes);
        add_vector(c, r, 4 * n * unit->n_experts);
        add_vector(c, r, 12 * pairs * unit->n_ff_expert);
        add_vector(c, r, (pairs + 2 * n) * row_bytes);
        break;
    }
    case UNIT_HEAD:
        add_vector(c, r, 2 * pass->n_logits * row_bytes);
        add_vector(c, r, 2 * pass->n_logits * row_bytes);
        break;
    case UNIT_KINDS: ASSERT(false);
    }
}

// The matmuls of one tensor: two if the rows lie apart.
static void add_tensor(struct cost *c, const struct cost_place *at, const struct unit_tensor *t,
                       struct unit_part part, int32_t tokens) {
    for (int last = 0; last < 2; last++) {
        const int32_t n_rows = part_rows(t, part, last);
        if (n_rows) add_matmul(c, at, t, (struct reads){n_rows, 1, tokens});
    }
}

struct cost cost_of_part(const struct cost_place *at, const struct unit *unit,
                         struct unit_part part, const struct pass *pass) {
    struct cost c = {0};
    if (unit->kind == UNIT_HEAD && !pass->n_logits) return c;
    const int32_t tokens = unit->kind == UNIT_HEAD ? pass->n_logits : pass->n_tokens;
    const double chosen = chosen_experts(unit, tokens);
    const double per_expert = chosen > 0 ? tokens * unit->n_experts_used / chosen : 0;
    const struct unit_tensor *down = part.phase == PHASE_ALL ? NULL : footprint_down(unit);
    for (int i = 0; i < unit->n_tensors; i++) {
        const struct unit_tensor *t = &unit->tensors[i];
        if (!is_of_phase(t, down, part.phase)) continue;
        if (t->use == USE_MATRIX) add_tensor(&c, at, t, part, tokens);
        if (t->use == USE_EXPERTS)
            add_matmul(&c, at, t, (struct reads){t->n_rows, chosen, per_expert});
    }
    add_other_ops(&c, at, unit, part, pass);
    return c;
}

struct cost cost_of_unit(const struct cost_place *at, const struct unit *unit,
                         const struct pass *pass) {
    return cost_of_part(at, unit, WHOLE_UNIT, pass);
}

double cost_unit_us(const struct shape *shape, const struct unit *unit,
                    const struct machine_device *device, const struct workload *w,
                    const struct pass *pass, bool cached) {
    const struct cost_place at = {shape, device, w, cached};
    return cost_sum(cost_of_unit(&at, unit, pass));
}

double cost_copy_us(struct link link, double size_bytes) {
    return link.latency_us + divide(size_bytes, link.gbps * PER_US);
}

double cost_feed_us(struct link link, enum feed feed, double size_bytes) {
    const double gbps = feed == FEED_STAGED ? link.staged_gbps : link.gbps;
    return link.latency_us + divide(size_bytes, gbps * PER_US);
}

double cost_cache_us(struct link link, double size_bytes) {
    if (!(size_bytes > 0)) return 0;
    return link.latency_us + cost_copy_us(link, size_bytes);
}

double cost_feed_passes(enum feed feed) {
    static const double passes[FEEDS] = {0, 1, 3};
    return passes[feed];
}

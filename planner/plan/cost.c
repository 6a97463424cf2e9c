/* cost.c: the time of a unit on a device, by the device's measured rates.
 *
 * A page to check by hand. A part of a unit is the ops that its block encodes (part.h), whose bytes
 * and flops kernels/op_cost.h gives. For a pass of n tokens after n_past positions in the KV cache:
 *
 * - matmul: bytes of the matrices * time per byte(type, tokens). RATE_TOKENS has the measured
 *   numbers of tokens; between them the time is interpolated, above the last it grows in
 *   proportion. Twice the bytes of activations (cost_activation_bytes) are added by the rate of
 *   vector ops. Weights that lie elsewhere than what was read last take start_us more, once for
 *   each matrix, unless they come from the cache.
 * - experts: as matmul, with the matrices of the experts that a text is expected to choose
 *   (part.c, pass_expert_tokens), and with tokens per such expert; of split ones with the device's
 *   share of them, and more (op_cost_uneven_experts).
 * - attention: start_us, and the greater of its flops by the rate of attention, and keys rows of
 *   the KV cache by the rate of plain reads; keys = n_past + (n + 1) / 2, the average that a token
 *   sees, at most the window. Tokens of several sequences each read their own. The CPU reads the
 *   keys and values of a KV head once for up to six queries: one takes 3/4 of the time of six.
 *   Rates are measured with four queries for each token. What it does once for each query
 *   (cost_query_bytes) is added by the rate of vector ops.
 * - the delta rule: as attention of so many tokens with F32 keys, whose rows are the state.
 * - others, and the state of a recurrent block without ops: bytes read and written by the rate of
 *   vector ops.
 *
 * Each op adds op_us, of which launch_us is the calling thread's. In matmuls and attention, the
 * time of plain reads of their bytes counts as waiting for memory. For the share of the unit's
 * weights that the device's cache keeps (cost_host_cached), that time is cache_factor times
 * shorter, of attention also for the share that it keeps of the keys and values of all layers;
 * weights in a slot come from no cache. Passes of more tokens read more experts than one, but wait
 * for memory in little of their time.
 * Weight types without kernels have the rates of the type that is nearest in bits. Ops that blocks
 * encode once per pass, for the table of angles, are not counted: they are less than 0.1 % of a
 * pass. Owns nothing; any thread. Tested by tests/planner/test_planner.c and
 * tests/planner/test_simulate.c.
 */
#include "planner/plan/cost.h"

#include "planner/plan/footprint.h"

#include <math.h>

static const double PER_US = 1e3; // 1e9 bytes per second are 1e3 bytes per microsecond

static bool has_rates(const double rates[RATE_CLASSES]) {
    for (int i = 0; i < RATE_CLASSES; i++)
        if (!(rates[i] > 0)) return false;
    return true;
}

// 1 / rate at that many tokens; constant beyond the last class; 0 without rates.
static double inverse_rate(const double rates[RATE_CLASSES], double tokens) {
    if (!has_rates(rates)) return 0;
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
    c->launch_us += r->launch_us;
}

void cost_add_reads(struct host_reads *reads, const struct unit *unit, uint64_t size_bytes,
                    uint64_t n) {
    const double share = unit->n_experts > 0 ? (double)unit->n_experts_used / unit->n_experts : 1;
    reads->all_bytes += n * size_bytes;
    reads->token_bytes += n * (uint64_t)(share * (double)size_bytes);
}

// By the logarithm of the size a straight line through the two measured points.
double cost_kept(const struct device_rates *rates, double size_bytes) {
    const double most = (double)rates->cache_bytes, quarter = (double)rates->cache_quarter_bytes;
    if (!(most > 0)) return 0;
    if (!(quarter > most)) return size_bytes <= most ? 1 : 0;
    if (!(size_bytes > 0)) return 1;
    const double share = 0.75 - 0.5 * log(size_bytes / most) / log(quarter / most);
    return fmin(fmax(share, 0), 1);
}

struct host_cached cost_host_cached(const struct machine *m, const struct host_reads *reads) {
    const struct device_rates *rates = &m->devices[DEVICE_HOST].rates;
    return (struct host_cached){.shared = cost_kept(rates, (double)reads->token_bytes),
                                .experts = cost_kept(rates, (double)reads->all_bytes)};
}

double cost_cached_us(const struct device_rates *rates, double share, double memory_us, double us) {
    const double factor = rates->cache_factor;
    return factor > 1 ? us - share * fmin(memory_us, us) * (1 - 1 / factor) : us;
}

double cost_activation_bytes(struct op_cost matmul) {
    return 2 * ((double)matmul.read_bytes + (double)matmul.written_bytes);
}

double cost_query_bytes(struct op_cost attention) { return 10 * (double)attention.written_bytes; }

// A part of a unit whose ops are added up.
struct bill {
    const struct cost_place *at;
    const struct unit *unit;
    const struct pass *pass;
    struct cost cost;
};

// The time of the first bytes of a matrix, or of each of the experts' matrices that are read.
static double starts_us(const struct bill *b, const struct op_call *call, double read_bytes) {
    const struct unit_tensor *t = call->tensor;
    if (!(read_bytes > 0)) return 0;
    const double each = (double)t->size_bytes / (t->use == USE_EXPERTS ? t->n_matrices : 1);
    const double n = t->use == USE_EXPERTS ? read_bytes / each : 1;
    return n * b->at->device->rates.start_us;
}

static void add_matmul(struct bill *b, const struct op_call *call) {
    const struct device_rates *r = &b->at->device->rates;
    const double read_bytes =
        call->weight_bytes * op_cost_uneven_experts(pass_expert_tokens(b->pass, b->at->w),
                                                    b->unit->n_experts, b->unit->n_experts_used,
                                                    call->share);
    // Each number of an F32 matrix takes two flops for each token.
    const double tokens = 2 * call->cost.flops / (double)call->cost.weight_bytes;
    const double memory_us = divide(read_bytes, r->memory_gbps * PER_US);
    const double *rates = rates_of(r->weight_gbps, call->tensor->type);
    double us = rates ? read_bytes * inverse_rate(rates, tokens) / PER_US : memory_us;
    if (tokens > RATE_TOKENS[RATE_CLASSES - 1]) us *= tokens / RATE_TOKENS[RATE_CLASSES - 1];
    us = cost_cached_us(r, b->at->cached, memory_us, us) +
         (1 - b->at->cached) * starts_us(b, call, read_bytes);
    us += call->share * divide(cost_activation_bytes(call->cost), r->vector_gbps * PER_US);
    add_op(&b->cost, r, memory_us, us);
}

uint64_t cost_all_read_bytes(const struct unit *unit) {
    uint64_t sum = 0;
    for (int i = 0; i < unit->n_tensors; i++)
        sum += unit->tensors[i].use == USE_ROWS ? 0 : unit->tensors[i].size_bytes;
    return sum;
}

// Time per operation of attention with keys and values of those types, whichever is slower; 0
// without rates.
static double us_per_flop(const double gflops[KV_TYPES][RATE_CLASSES], const struct workload *w,
                          double tokens) {
    enum kv_type k_type = KV_F32, v_type = KV_F32;
    (void)(dtype_kv(w->kv_type_k, &k_type) && dtype_kv(w->kv_type_v, &v_type));
    return fmax(inverse_rate(gflops[k_type], tokens), inverse_rate(gflops[v_type], tokens)) /
           PER_US;
}

// The time of so many queries of a KV head on the CPU, which computes six of them together, in the
// time of one among six. r of them take 0.7 + 0.05 r of the time of six (bench/results.tsv).
static double host_queries(double queries) {
    const double sixes = floor(queries / 6), rest = queries - 6 * sixes;
    return 6 * sixes + (rest > 0 ? 4.2 + 0.3 * rest : 0);
}

static void add_attention(struct bill *b, const struct op_call *call) {
    const struct device_rates *r = &b->at->device->rates;
    const struct unit *unit = unit_with_cache(b->at->shape, b->unit);
    const double n_sequences = pass_sequences(b->pass), n = b->pass->n_tokens / n_sequences;
    const double seen = b->pass->n_past + (n + 1) / 2;
    const double keys = unit->window && unit->window < seen ? unit->window : seen;
    double flops = call->cost.flops * keys, query_us = 0;
    if (b->at->device->is_host && flops > 0) {
        query_us = divide(cost_query_bytes(call->cost), r->vector_gbps * PER_US);
        const double queries = n * unit->n_heads / unit->n_kv_heads;
        flops *= host_queries(queries) / queries * (4 * n / host_queries(4 * n));
    }
    const double row_bytes = (double)footprint_kv_row(unit, b->at->w);
    const double memory_us = divide(n_sequences * keys * row_bytes, r->memory_gbps * PER_US);
    const double us = fmax(flops * us_per_flop(r->attention_gflops, b->at->w, n), memory_us);
    // All layers read their keys and values in a pass, besides the weights.
    const double all_bytes = b->at->shape->n_layers * n_sequences * keys * row_bytes;
    const double cached = b->at->cached * cost_kept(r, all_bytes);
    add_op(&b->cost, r, memory_us,
           cost_cached_us(r, cached, memory_us, us) + (1 - cached) * r->start_us + query_us);
}

// The state stays in a cache while tokens pass.
static void add_delta_rule(struct bill *b, const struct op_call *call) {
    const struct device_rates *r = &b->at->device->rates;
    const double *gflops = r->attention_gflops[KV_F32];
    const double memory_us = divide(op_cost_bytes(call->cost), r->memory_gbps * PER_US);
    const double us = call->cost.flops * inverse_rate(gflops, b->pass->n_tokens) / PER_US;
    add_op(&b->cost, r, memory_us, fmax(us, memory_us));
}

// Adds an op that reads and writes element by element.
static void add_vector(struct bill *b, const struct op_call *call) {
    const struct device_rates *r = &b->at->device->rates;
    const double size_bytes =
        call->weight_bytes + (double)call->cost.read_bytes + (double)call->cost.written_bytes;
    const double us = divide(size_bytes, r->vector_gbps * PER_US);
    add_op(&b->cost, r, us, us);
}

static void add_call(void *context, const struct op_call *call) {
    struct bill *b = context;
    b->cost.read_bytes += call->weight_bytes + call->vector_bytes;
    if (call->op == OP_attention)
        add_attention(b, call);
    else if (call->op == OP_delta_rule)
        add_delta_rule(b, call);
    else if (call->tensor && call->tensor->use != USE_ROWS)
        add_matmul(b, call);
    else
        add_vector(b, call);
}

struct cost cost_of_part(const struct cost_place *at, const struct unit *unit,
                         struct unit_part part, const struct pass *pass) {
    const struct pass own = pass_of_unit(pass, at->shape, unit);
    struct bill b = {.at = at, .unit = unit, .pass = &own};
    part_walk(&(struct part_walk){at->shape, unit, at->w, pass, part, add_call, &b});
    const bool all = part.phase == PHASE_ALL || part.phase == PHASE_MID;
    if (all && !unit_has_state(at->shape, unit))
        b.cost.memory_us +=
            divide(2.0 * (double)unit->state_bytes, at->device->rates.vector_gbps * PER_US);
    return b.cost;
}

double cost_move_us(double gbps, double size_bytes) { return divide(size_bytes, gbps * PER_US); }

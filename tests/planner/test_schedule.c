/* test_schedule.c: split and streamed units: their bytes, their steps, how they are shown, and
 * which of them are given up first, by hand on a small model and at random.
 */
#include "tests/lib/pair.h"
#include "planner/plan/schedule.h"
#include "planner/planner.h"

#include "tests/lib/small_plan.h"
#include "tests/lib/small_shape.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { TEXT = 4096 };

// ---- Bytes --------------------------------------------------------------------------------------

static void test_rows(void **state) {
    (void)state;
    assert_int_equal(footprint_split_row(256, 0), 256);
    assert_int_equal(footprint_split_row(256, 8), 192);
    assert_int_equal(footprint_split_row(256, 1), 224); // 248, cut to whole blocks
    assert_int_equal(footprint_split_row(256, 31), 32);
    assert_int_equal(footprint_split_row(64, 1), 32);
    assert_int_equal(footprint_split_row(100, 1), 64); // 32 rows at least are left
    for (int32_t n_rows = 64; n_rows < 3000; n_rows += 7) {
        int32_t last = n_rows;
        for (int32_t parts = 1; parts < UNIT_PARTS; parts++) {
            const int32_t row = footprint_split_row(n_rows, parts);
            assert_true(row % 32 == 0 && row >= 32 && row <= n_rows - 32 && row <= last);
            last = row;
        }
    }
}

static void test_what_can_be_split(void **state) {
    struct small_plan *f = *state;
    small_model(f, 1);
    struct unit *ffn = &f->shape.units[2];
    assert_true(unit_can_split(ffn) && unit_can_stream(ffn));
    for (int u = 0; u < 4; u++) {
        if (u == 1 || u == 2) continue;
        assert_false(unit_can_split(&f->shape.units[u]));
        assert_false(unit_can_stream(&f->shape.units[u]));
    }
    assert_int_equal(footprint_split_width(ffn), ffn->tensors[3].n_cols);
    ffn->tensors[1].n_rows = ffn->tensors[2].n_rows = ffn->tensors[3].n_cols = 32;
    assert_false(unit_can_split(ffn));
    small_model(f, 1);
    ffn->tensors[1].size_bytes -= 34; // rows of unequal length
    assert_false(unit_can_split(ffn));
    small_model(f, 1);
    ffn->n_tensors = 3; // nothing reads what swiglu makes
    assert_false(unit_can_split(ffn));
    small_model(f, 1);
    ffn->tensors[1].role = ROLE_LAYER_GATE; // not a matrix that is cut
    assert_false(unit_can_split(ffn));
    small_model(f, 1);
    ffn->tensors[1].n_rows *= 2; // gate and up in one matrix
    ffn->tensors[1].size_bytes *= 2;
    assert_false(unit_can_split(ffn));
}

static bool can_split_with(struct small_plan *f, int tensor, enum tensor_role role) {
    small_model(f, 1);
    f->shape.units[1].tensors[tensor].role = role;
    return unit_can_split(&f->shape.units[1]);
}

// Every matrix is square, so roles tell which are cut.
static void test_what_attention_can_be_split(void **state) {
    struct small_plan *f = *state;
    small_model(f, 1);
    struct unit *unit = &f->shape.units[1];
    struct unit_tensor *t = unit->tensors;
    assert_true(unit_can_split(unit));
    assert_int_equal(footprint_split_width(unit), t[4].n_cols);
    for (int i = 0; i < 5; i++) assert_int_equal(unit_is_cut(&t[i]), i == 1 || i == 4);
    assert_false(can_split_with(f, 1, ROLE_OTHER));
    assert_false(can_split_with(f, 1, ROLE_ATTN_QKV));
    assert_false(can_split_with(f, 4, ROLE_OTHER));
    // Queries of two kinds in one matrix, other widths, too few rows, rows of unequal length.
    for (int i = 0; i < 5; i++) {
        small_model(f, 1);
        if (i == 0) t[1].n_rows *= 2;
        if (i == 1) t[4].n_cols = 64;
        if (i == 2) t[1].n_cols = 64;
        if (i == 3) unit->n_heads = 1, t[1].n_rows = t[4].n_cols = t[4].n_rows = t[1].n_cols = 32;
        if (i == 4) t[4].size_bytes -= 34;
        assert_false(unit_can_split(unit));
        assert_true(unit_can_stream(unit));
    }
    small_model(f, 1);
    unit->head_dim_v = 32; // what is attended to is narrower than the queries
    assert_false(unit_can_split(unit));
    small_model(f, 1);
    unit->window = 64;
    assert_true(unit_can_split(unit) && unit_can_stream(unit));
    unit->window = 0;
    unit->state_bytes = 64; // beside its cache
    assert_true(!unit_can_split(unit) && !unit_can_stream(unit));
    unit->state_bytes = 0;
    unit->n_kv_heads = 0;
    assert_true(!unit_can_split(unit) && !unit_can_stream(unit));
    assert_int_equal(footprint_kv_row(unit, &f->workload), 0);
}

// 8 of 32 parts: the accelerator has 192 of 256 rows of gate and up, and 96 of 128 of down, 26112
// bytes of each, 26624 with padding; the CPU has 64 and 32 rows, 8704 bytes of each. The norm has
// 512 bytes.
static void test_bytes_of_a_split_unit(void **state) {
    struct small_plan *f = *state;
    ffns_apart(f, 1, 8, false);
    const struct plan *p = &f->plan;
    assert_int_equal(p->unit_weight_bytes[2], 1024 + 3 * 26624);
    assert_int_equal(p->unit_cpu_bytes[2], 512 + 3 * 8704);
    assert_int_equal(p->unit_cpu_bytes[1], 0);
    assert_int_equal(p->devices[HOST].bytes[PLAN_WEIGHTS], VOCAB * 136 + 512 + 3 * 8704);
    assert_int_equal(p->place.feed, FEED_NONE);
    assert_int_equal(p->slot_bytes, 0);
    assert_int_equal(p->devices[GPU].bytes[PLAN_STAGING], 0);
    assert_int_equal(p->devices[HOST].bytes[PLAN_STAGING], p->tables.size_bytes);
    // Both have room for what swiglu makes.
    const uint64_t *at = p->devices[HOST].scratch.at;
    assert_true(at[AREA_GATE] + UBATCH * FF * 4 <= at[AREA_UP]);
    const uint64_t *at_gpu = p->devices[GPU].scratch.at;
    assert_true(at_gpu[AREA_GATE] + UBATCH * FF * 4 <= at_gpu[AREA_UP]);
}

static void test_bytes_of_a_streamed_unit(void **state) {
    struct small_plan *f = *state;
    ffns_apart(f, 3, 0, true);
    const struct plan *p = &f->plan;
    assert_int_equal(p->slot_bytes, 1024 + 3 * 34816); // 34 whole KiB
    assert_int_equal(p->unit_weight_bytes[2], 512 + 3 * 34816);
    assert_int_equal(p->devices[GPU].bytes[PLAN_STAGING], 2 * p->slot_bytes);
    assert_int_equal(p->n_blocks, 0);
    assert_int_equal(p->devices[HOST].bytes[PLAN_STAGING], p->tables.size_bytes);
    const uint64_t *at_gpu = p->devices[GPU].scratch.at;
    assert_true(at_gpu[AREA_GATE] + UBATCH * FF * 4 <= at_gpu[AREA_UP]);
    assert_int_equal(p->pinned_bytes, p->devices[HOST].bytes[PLAN_STAGING] +
                                          p->devices[HOST].bytes[PLAN_SCRATCH] +
                                          3 * (512 + 3 * 34816));
    f->c.place.feed = FEED_STAGED;
    solve_given(f);
    assert_int_equal(p->devices[GPU].bytes[PLAN_STAGING], 2 * p->slot_bytes);
    assert_int_equal(p->n_blocks, 4);
    assert_int_equal(p->block_bytes, 106496); // 104960, rounded up to pages of 4096
    assert_int_equal(p->devices[HOST].bytes[PLAN_STAGING], p->tables.size_bytes + 4 * 106496);
    int32_t n;
    uint64_t size;
    footprint_blocks(FEED_STAGED, 100 << 20, &n, &size);
    assert_int_equal(n, 4);
    assert_int_equal(size, 8 << 20);
    // Only the CPU's rows of a split unit pass through the ring, and no norm.
    ffns_apart(f, 3, 8, true);
    assert_int_equal(p->slot_bytes, 3 * 9216);
    assert_int_equal(p->unit_cpu_bytes[2], 512 + 3 * 8704);
    assert_int_equal(footprint_fetch(&f->shape.units[2], 8, 1), 3 * 8704);
}

// 8 of 32 parts: the accelerator has 96 of 128 rows of queries and output, 13056 bytes, 13312 with
// padding, and all of keys and values; the CPU has 32 rows of two, 4352 bytes each. Both have the
// norm.
static void test_bytes_of_split_attention(void **state) {
    struct small_plan *f = *state;
    const struct plan *p = &f->plan;
    attention_apart(f, 1, 8, false);
    assert_int_equal(p->unit_weight_bytes[1], 1024 + 2 * 13312 + 2 * 17408);
    assert_int_equal(p->unit_cpu_bytes[1], 512 + 2 * 4352);
    assert_int_equal(p->unit_kv_bytes[1], 1024 * 512);
    assert_int_equal(p->devices[GPU].bytes[PLAN_KV], 1024 * 512);
    assert_int_equal(p->devices[HOST].bytes[PLAN_KV], 0);
    // Both have room for queries and for what they attend to.
    for (int d = 0; d < MAX_DEVICES; d++) {
        const struct scratch_layout *s = &p->devices[d].scratch;
        assert_true(s->at[AREA_Q] + UBATCH * EMBD * 4 <= s->at[AREA_ATTENDED]);
        assert_true(s->at[AREA_ATTENDED] + UBATCH * EMBD * 4 <= s->at[AREA_K]);
    }
    // Only the CPU's rows of split attention pass through the ring; the cache stays.
    attention_apart(f, 1, 8, true);
    assert_int_equal(p->slot_bytes, 2 * 5120);
    assert_int_equal(footprint_fetch(&f->shape.units[1], 8, 1), 2 * 4352);
    assert_int_equal(p->pinned_bytes, p->devices[HOST].bytes[PLAN_STAGING] +
                                          p->devices[HOST].bytes[PLAN_SCRATCH] + 512 + 2 * 4352);
}

// The slot holds norm and matrices, each padded to whole KiB, and the cache.
static void test_bytes_of_streamed_attention(void **state) {
    struct small_plan *f = *state;
    const struct plan *p = &f->plan;
    attention_apart(f, 3, 0, true);
    assert_int_equal(footprint_kv_row(&f->shape.units[1], &p->workload), 512);
    assert_int_equal(p->slot_bytes, 1024 + 4 * 17408 + 1024 * 512);
    assert_int_equal(footprint_fetch(&f->shape.units[1], 0, 1), 512 + 4 * 17408);
    assert_int_equal(p->devices[HOST].bytes[PLAN_KV], 3 * 1024 * 512);
    assert_int_equal(p->devices[GPU].bytes[PLAN_KV], 0);
    assert_int_equal(p->devices[GPU].bytes[PLAN_STAGING], 2 * p->slot_bytes);
    for (int feed = FEED_ARENA; feed < FEEDS; feed++) {
        f->c.place.feed = (enum feed)feed;
        solve_given(f);
        uint64_t pinned_bytes =
            p->devices[HOST].bytes[PLAN_STAGING] + p->devices[HOST].bytes[PLAN_SCRATCH];
        if (feed == FEED_ARENA) pinned_bytes += 3 * (512 + 4 * 17408);
        pinned_bytes += 3 * 1024 * 512;
        assert_int_equal(p->pinned_bytes, pinned_bytes);
    }
    // Blocks carry weights alone.
    f->c.place.feed = FEED_STAGED;
    solve_given(f);
    assert_int_equal(p->block_bytes, 73728); // 70144, rounded up to pages of 4096
    // Keys and values of different types.
    f->workload.kv_type_k = DTYPE_Q8_0;
    solve_given(f);
    assert_int_equal(footprint_kv_row(&f->shape.units[1], &p->workload), 136 + 256);
    assert_int_equal(p->slot_bytes, 1024 + 4 * 17408 + 1024 * (136 + 256));
}

// Makes every FFN 8 experts with 64 rows, of which a token goes to 2; those of each layer are
// split. A matrix of one expert has 8704 bytes.
static void experts_apart(struct small_plan *f, int32_t n_layers, int cpu_parts, bool streamed) {
    small_model(f, n_layers);
    given_ways(f);
    f->shape.n_experts = 8, f->shape.n_experts_used = 2, f->shape.n_ff_expert = 64;
    for (int u = 1; u < f->shape.n_units; u++) {
        struct unit *unit = &f->shape.units[u];
        f->c.place.units[u].device = GPU;
        if (unit->kind != UNIT_FFN) continue;
        f->c.place.units[u].cpu_parts = (uint8_t)cpu_parts;
        f->c.place.units[u].streamed = streamed;
        unit->kind = UNIT_EXPERTS;
        unit->n_experts = 8, unit->n_experts_used = 2, unit->n_ff_expert = 64;
        static const enum tensor_role roles[] = {ROLE_EXPERT_GATE, ROLE_EXPERT_UP,
                                                 ROLE_EXPERT_DOWN};
        for (int i = 0; i < 3; i++) {
            const bool down = roles[i] == ROLE_EXPERT_DOWN;
            unit->tensors[2 + i] = (struct unit_tensor){.role = roles[i],
                                                        .use = USE_EXPERTS,
                                                        .type = DTYPE_Q8_0,
                                                        .n_cols = down ? 64 : EMBD,
                                                        .n_rows = down ? EMBD : 64,
                                                        .n_matrices = 8,
                                                        .size_bytes = 8 * 8704};
        }
        unit->tensors[1] = (struct unit_tensor){.role = ROLE_ROUTER,
                                                .use = USE_MATRIX,
                                                .n_cols = EMBD,
                                                .n_rows = 8,
                                                .n_matrices = 1,
                                                .size_bytes = 4 * 8 * EMBD};
        unit->n_tensors = 5;
    }
    solve_given(f);
}

// 8 of 32 parts are 2 of 8 experts. The accelerator has the router and 6, and room for the rows of
// all pairs of the CPU; both have tables for every split.
static void test_bytes_of_split_experts(void **state) {
    struct small_plan *f = *state;
    experts_apart(f, 2, 8, false);
    const struct plan *p = &f->plan;
    const struct unit *unit = &f->shape.units[2];
    assert_int_equal(p->unit_weight_bytes[2], 1024 + 4096 + 3 * 52224); // 51 whole KiB
    assert_int_equal(p->unit_cpu_bytes[2], 512 + 3 * 2 * 8704);
    for (int d = 0; d < MAX_DEVICES; d++) {
        const struct scratch_layout *s = &p->devices[d].scratch;
        assert_int_equal(s->size[AREA_EXPERT_SLOTS], 32 * 2 * 8 * 4);
        assert_int_equal(s->size[AREA_EXPERT_OUT], UBATCH * 2 * EMBD * 4);
        assert_int_equal(s->size[AREA_CPU_OUT], d == GPU ? UBATCH * 2 * EMBD * 4 : 0);
        assert_int_equal(s->at[AREA_PAIR_ORDER] - s->at[AREA_PAIR_STARTS], 256);
    }
    experts_apart(f, 2, 8, true);
    assert_int_equal(p->slot_bytes, 3 * 17408);
    assert_int_equal(footprint_fetch(unit, 8, 1), 3 * 2 * 8704);
    for (int parts = 1; parts < UNIT_PARTS; parts++) {
        const struct cut cut = footprint_cut(&unit->tensors[2], parts);
        assert_true(cut.n == 8 && cut.first >= 1 && cut.first <= 7);
    }
    // Experts with a norm of their own, or with a matrix that is not cut, are whole.
    assert_true(unit_can_split(unit));
    f->shape.units[2].tensors[2].role = ROLE_EXPERT_GATE_UP;
    assert_false(unit_can_split(unit));
    f->shape.units[2].tensors[2].role = ROLE_EXPERT_NORM;
    assert_false(unit_can_split(unit));
    f->shape.units[2].n_tensors = 2;
    assert_false(unit_can_split(unit));
}

// The time of a token where the CPU computes all and its cache has so many bytes.
static double cached_us(struct small_plan *f, uint64_t cache_bytes) {
    const struct pass pass = {1, 1, 0};
    struct simulation simulation;
    f->plan.machine.devices[HOST].rates.cache_bytes = cache_bytes;
    plan_simulate(&f->plan, &f->shape, &pass, &simulation);
    return simulation.compute_us[HOST];
}

// A cache for what one token reads, a quarter of the experts among it, keeps all weights but those
// of the experts: the next token goes to others.
static void test_cached_beside_experts(void **state) {
    struct small_plan *f = *state;
    const struct pass pass = {1, 1, 0};
    experts_apart(f, 2, 0, false);
    for (int u = 1; u < f->shape.n_units; u++) f->c.place.units[u].device = HOST;
    solve_given(f);
    f->plan.machine.devices[HOST].rates.cache_factor = 2;
    f->plan.machine.devices[HOST].rates.cache_bytes = 1 << 20; // keys and values fit
    struct host_reads reads = {0};
    double saved_us[2] = {0}; // by the weights of units without and with experts
    for (int u = 0; u < f->shape.n_units; u++) {
        const struct unit *unit = &f->shape.units[u];
        struct cost_place at = {&f->shape, &f->plan.machine.devices[HOST], &f->workload, false};
        const double plain_us = cost_sum(cost_of_part(&at, unit, WHOLE_UNIT, &pass));
        at.cached = true;
        saved_us[unit->kind == UNIT_EXPERTS] +=
            plain_us - cost_sum(cost_of_part(&at, unit, WHOLE_UNIT, &pass));
        reads.all_bytes += f->plan.unit_read_bytes[u];
        reads.token_bytes += f->plan.unit_read_bytes[u] / (unit->kind == UNIT_EXPERTS ? 4 : 1);
    }
    assert_true(saved_us[0] > 1 && saved_us[1] > 1);
    const double plain_us = cached_us(f, reads.token_bytes - 1);
    assert_near(plain_us, cached_us(f, 0));
    assert_near(plain_us - saved_us[0], cached_us(f, reads.token_bytes));
    assert_near(plain_us - saved_us[0], cached_us(f, reads.all_bytes - 1));
    assert_near(plain_us - saved_us[0] - saved_us[1], cached_us(f, reads.all_bytes));
}

// A token's 2 of 8 experts: the CPU is expected to read a quarter of them, and waits for more,
// since it may have both; with very many tokens it reads its 2, and the time is that of its bytes.
static void test_costs_of_split_experts(void **state) {
    struct small_plan *f = *state;
    experts_apart(f, 2, 8, false);
    const struct unit *unit = &f->shape.units[2];
    struct cost cost[2][2]; // [of the CPU, whole there][one token, many]
    for (int whole = 0; whole < 2; whole++) {
        for (int many = 0; many < 2; many++) {
            const struct pass pass = {many ? 4096 : 1, 1, 0};
            const struct cost_place at = {&f->shape, &f->machine.devices[HOST], &f->workload,
                                          false};
            const struct unit_part part = {PHASE_MID, 8, false, true};
            cost[whole][many] = cost_of_part(&at, unit, whole ? WHOLE_UNIT : part, &pass);
        }
    }
    const double rest = 512 + 4096; // norm and router
    assert_near(cost[0][0].read_bytes, 3 * 2 * 8704 / 4.0);
    assert_near(cost[1][0].read_bytes, 3 * 2 * 8704 + rest);
    assert_near(cost[0][1].read_bytes, 3 * 2 * 8704);
    assert_near(cost[1][1].read_bytes, 3 * 8 * 8704 + rest);
    // Half an expert is expected, with a variance of 2 * 1/4 * 3/4 * 6/7.
    const double more = 0.4 * sqrt(2 * 3 / 16.0 * 6 / 7) / 0.5;
    const double size_bytes = 3 * 2 * 8704 / 4.0;
    assert_true(cost_sum(cost[0][0]) > size_bytes * (1 + more) / 1e3);
    assert_true(cost_sum(cost[0][0]) < cost_sum(cost[1][0]) / 2);
}

// ---- Steps --------------------------------------------------------------------------------------

// I: inputs; F2>0: unit 2 to slot 0; C1/2<0: device 1, unit 2, from slot 0; C1/2in, C1/2out: its
// phases, and C1/1mid; S0r0+128: residual columns 0..127 from device 0; S1h0+192@2: hidden, of unit
// 2; W0h@2: device 0 waits for it; q, a: queries and what they attended to; s: what a shared expert
// leaves to the routed ones; p, e: the pairs and the rows of split experts; B1<0: the cache of unit
// 1 is stored from slot 0; L: logits.
static void describe(const struct step *s, char *out, size_t size) {
    static const char *const phases[] = {"", "in", "mid", "out"};
    const char data = "rhqabsipe"[s->data];
    char unit[16] = "", slot[16] = "";
    if (s->unit >= 0) snprintf(unit, sizeof unit, "@%d", s->unit);
    if (s->slot >= 0) snprintf(slot, sizeof slot, "<%d", s->slot);
    switch (s->kind) {
    case STEP_INPUTS: snprintf(out, size, "I "); break;
    case STEP_FETCH: snprintf(out, size, "F%d>%d ", s->unit, s->slot); break;
    case STEP_COMPUTE:
        snprintf(out, size, "C%d/%d%s%s ", s->device, s->unit, phases[s->phase], slot);
        break;
    case STEP_SEND:
        snprintf(out, size, "S%d%c%d+%d%s ", s->device, data, s->first_col, s->n_cols, unit);
        break;
    case STEP_WAIT: snprintf(out, size, "W%d%c%s ", s->device, data, unit); break;
    case STEP_STORE: snprintf(out, size, "B%d<%d ", s->unit, s->slot); break;
    case STEP_LOGITS: snprintf(out, size, "L "); break;
    }
}

static void assert_steps(const struct plan *p, enum batch_class batch, const char *expected) {
    char text[TEXT] = "";
    size_t length = 0;
    for (int i = 0; i < p->n_steps[batch]; i++) {
        const struct step *s = &p->steps[batch][i];
        describe(s, text + length, sizeof text - length);
        length += strlen(text + length);
        const bool sends = s->kind == STEP_SEND;
        if (sends) assert_int_equal(s->bytes_per_row, 4 * s->n_cols);
        if (sends || s->kind == STEP_WAIT) assert_int_equal(s->peer, 1 - s->device);
        assert_int_equal(s->unit < 0, s->kind == STEP_INPUTS || s->kind == STEP_LOGITS ||
                                          ((sends || s->kind == STEP_WAIT) && s->unit < 0));
    }
    assert_string_equal(text, expected);
}

static void test_steps_of_streamed_units(void **state) {
    struct small_plan *f = *state;
    ffns_apart(f, 3, 0, true);
    assert_steps(&f->plan, BATCH_PREFILL,
                 "I F2>0 F4>1 C0/0 S0r0+128 W1r C1/1 C1/2<0 F6>0 C1/3 C1/4<1 C1/5 C1/6<0 C1/7 L ");
    for (int batch = 0; batch < BATCH_PREFILL; batch++)
        assert_steps(&f->plan, (enum batch_class)batch,
                     "I C0/0 S0r0+128 W1r C1/1 S1r0+128 W0r C0/2 S0r0+128 W1r C1/3 S1r0+128 W0r "
                     "C0/4 S0r0+128 W1r C1/5 S1r0+128 W0r C0/6 S0r0+128 W1r C1/7 L ");
    assert_true(f->plan.runs_ahead);
    assert_int_equal(f->plan.steps[BATCH_PREFILL][1].bytes_fixed, 512 + 3 * 34816);
    assert_int_equal(placement_device(&f->plan.place, BATCH_PREFILL, 2), GPU);
    assert_int_equal(placement_device(&f->plan.place, BATCH_ONE, 2), HOST);
    // Attention on the CPU: the residual stream comes back, and the accelerator has no more to do
    // than the FFN; with one token, nothing.
    small_model(f, 1);
    f->c.place.units[1].device = f->c.place.units[3].device = HOST;
    solve_given(f);
    assert_steps(&f->plan, BATCH_PREFILL,
                 "I F2>0 C0/0 C0/1 S0r0+128 W1r C1/2<0 S1r0+128 W0r C0/3 ");
    assert_steps(&f->plan, BATCH_ONE, "C0/0 C0/1 C0/2 C0/3 ");
    assert_false(f->plan.runs_ahead);
}

#define JOINS(c1in)                                                               \
    c1in " S1h0+192@2 C0/2in S0h192+64@2 W0h@2 W1h@2 C1/2out C0/2out S0r96+32@2 " \
         "W1r@2 "

static void test_steps_of_split_units(void **state) {
    struct small_plan *f = *state;
    ffns_apart(f, 1, 8, false);
    for (int batch = 0; batch < BATCH_CLASSES; batch++)
        assert_steps(&f->plan, (enum batch_class)batch,
                     "I C0/0 S0r0+128 W1r C1/1 S1r0+128@2 W0r@2 " JOINS("C1/2in") "C1/3 L ");
    assert_false(f->plan.runs_ahead);
    // The CPU has the residual stream before it and needs it behind it.
    f->c.place.units[1].device = f->c.place.units[3].device = HOST;
    solve_given(f);
    assert_steps(&f->plan, BATCH_PREFILL,
                 "I C0/0 C0/1 S0r0+128@2 W1r@2 " JOINS("C1/2in") "S1r0+128 W0r C0/3 ");
}

static void test_steps_of_both(void **state) {
    struct small_plan *f = *state;
    ffns_apart(f, 1, 8, true);
    assert_steps(&f->plan, BATCH_PREFILL, "I F2>0 C0/0 S0r0+128 W1r C1/1 C1/2<0 C1/3 L ");
    assert_steps(&f->plan, BATCH_ONE,
                 "I C0/0 S0r0+128 W1r C1/1 S1r0+128@2 W0r@2 " JOINS("C1/2in") "C1/3 L ");
    assert_true(f->plan.runs_ahead);
    assert_int_equal(f->plan.steps[BATCH_PREFILL][1].bytes_fixed, 3 * 8704);
}

static void test_steps_of_streamed_attention(void **state) {
    struct small_plan *f = *state;
    attention_apart(f, 3, 0, true);
    assert_steps(&f->plan, BATCH_PREFILL,
                 "I F1>0 F3>1 C0/0 S0r0+128 W1r C1/1<0 B1<0 F5>0 C1/2 C1/3<1 B3<1 C1/4 C1/5<0 B5<0 "
                 "C1/6 C1/7 L ");
    assert_true(f->plan.runs_ahead);
    const struct step *steps = f->plan.steps[BATCH_PREFILL];
    assert_int_equal(steps[1].bytes_fixed, 512 + 4 * 17408);
    assert_int_equal(steps[1].bytes_per_past, 512);
    assert_int_equal(steps[1].bytes_per_row, 0);
    assert_int_equal(steps[7].bytes_per_row, 512);
    assert_int_equal(steps[7].bytes_per_past + steps[7].bytes_fixed, 0);
    attention_apart(f, 1, 0, true);
    for (int batch = 0; batch < BATCH_PREFILL; batch++)
        assert_steps(&f->plan, (enum batch_class)batch, "I C0/0 C0/1 S0r0+128 W1r C1/2 C1/3 L ");
    // Everything of the CPU streamed: one ring for both kinds.
    f->c.place.units[2].device = HOST;
    f->c.place.units[2].streamed = true;
    solve_given(f);
    assert_steps(&f->plan, BATCH_PREFILL,
                 "I F1>0 F2>1 C0/0 S0r0+128 W1r C1/1<0 B1<0 C1/2<1 C1/3 L ");
    assert_int_equal(f->plan.slot_bytes, 1024 + 4 * 17408 + 1024 * 512);
    // With a window, the slot has a ring, and a fetch brings what the next token sees.
    f->shape.units[1].window = 100;
    solve_given(f);
    const struct step *fetch = &f->plan.steps[BATCH_PREFILL][1];
    const int32_t ring = (100 + f->plan.workload.n_ubatch + 63) / 64 * 64;
    assert_true(ring < 1024);
    assert_int_equal(f->plan.slot_bytes, 1024 + 4 * 17408 + ring * 512);
    assert_int_equal(step_past_bytes(fetch, 60), 60 * 512);
    assert_int_equal(step_past_bytes(fetch, 99), 99 * 512);
    assert_int_equal(step_past_bytes(fetch, 1000), 99 * 512);
    f->shape.units[1].window = 0;
}

#define ATTENDS                                                                           \
    "C1/1in C0/1in S0q96+32@1 W1q@1 C1/1mid S1a0+128@1 W0a@1 C1/1out C0/1out S0r96+32@1 " \
    "W1r@1 "

static void test_steps_of_split_attention(void **state) {
    struct small_plan *f = *state;
    attention_apart(f, 1, 8, false);
    for (int batch = 0; batch < BATCH_CLASSES; batch++)
        assert_steps(&f->plan, (enum batch_class)batch,
                     "I C0/0 S0r0+128@1 W1r@1 " ATTENDS "C1/2 C1/3 L ");
    assert_false(f->plan.runs_ahead);
    // The accelerator has the residual stream before it, and an FFN that is split follows.
    f->c.place.units[0].device = GPU;
    f->c.place.units[2].cpu_parts = 8;
    solve_given(f);
    assert_steps(&f->plan, BATCH_ONE,
                 "I C1/0 S1r0+128@1 W0r@1 " ATTENDS "S1r0+128@2 W0r@2 " JOINS("C1/2in") "C1/3 L ");
    // Streamed: in prefill it is whole, and what is cached never moves.
    attention_apart(f, 1, 8, true);
    assert_steps(&f->plan, BATCH_PREFILL, "I F1>0 C0/0 S0r0+128 W1r C1/1<0 C1/2 C1/3 L ");
    assert_steps(&f->plan, BATCH_ONE, "I C0/0 S0r0+128@1 W1r@1 " ATTENDS "C1/2 C1/3 L ");
    assert_int_equal(f->plan.steps[BATCH_PREFILL][1].bytes_fixed, 2 * 4352);
    assert_int_equal(f->plan.steps[BATCH_PREFILL][1].bytes_per_past, 0);
    assert_true(f->plan.runs_ahead);
}

// The most steps that a layer of two units has, and as many layers as there may be.
static void test_longest_list(void **state) {
    struct small_plan *f = *state;
    small_model(f, MAX_LAYERS);
    given_ways(f);
    for (int u = 1; u < f->shape.n_units; u++) f->c.place.units[u].device = GPU;
    for (int u = 1; u + 1 < f->shape.n_units; u++) f->c.place.units[u].cpu_parts = 16;
    for (int d = 0; d < MAX_DEVICES; d++) f->machine.devices[d].budget_bytes = UINT64_C(1) << 40;
    solve_given(f);
    for (int batch = 0; batch < BATCH_CLASSES; batch++)
        assert_int_equal(f->plan.n_steps[batch], 4 + 25 * MAX_LAYERS);
}

// Everything on one device, or handed over once: as ever, and what runs ahead.
static void test_steps_of_whole_units(void **state) {
    struct small_plan *f = *state;
    small_model(f, 1);
    given_ways(f);
    solve_given(f);
    assert_steps(&f->plan, BATCH_PREFILL, "C0/0 C0/1 C0/2 C0/3 ");
    assert_false(f->plan.runs_ahead);
    f->c.place.units[2].device = f->c.place.units[3].device = GPU;
    solve_given(f);
    assert_steps(&f->plan, BATCH_PREFILL, "I C0/0 C0/1 S0r0+128 W1r C1/2 C1/3 L ");
    assert_true(f->plan.runs_ahead);
    f->c.place.units[0].device = f->c.place.units[1].device = GPU;
    solve_given(f);
    assert_steps(&f->plan, BATCH_PREFILL, "I C1/0 C1/1 C1/2 C1/3 L ");
    assert_true(f->plan.runs_ahead);
}

// Routed experts get what they read besides the residual stream in the same copy.
static void test_steps_behind_a_shared_expert(void **state) {
    struct small_plan *f = *state;
    small_model(f, 1);
    given_ways(f);
    small_shape(&f->shape);
    for (int u = 0; u < f->shape.n_units; u++) f->c.place.units[u].device = u != 7;
    solve_given(f);
    assert_steps(&f->plan, BATCH_ONE,
                 "I C1/0 C1/1 C1/2 C1/3 C1/4 C1/5 C1/6 S1s0+512 W0s C0/7 S0r0+256 W1r C1/8 L ");
    const uint64_t *at = f->plan.devices[GPU].scratch.at;
    assert_true(at[AREA_NORMED] >= at[AREA_RESIDUAL] + UBATCH * 256 * 4);
    // Experts on the accelerator, and those of a layer without a shared one on the CPU.
    for (int u = 0; u < f->shape.n_units; u++) f->c.place.units[u].device = u == 7;
    solve_given(f);
    assert_steps(&f->plan, BATCH_ONE,
                 "I C0/0 C0/1 C0/2 C0/3 C0/4 C0/5 C0/6 S0s0+512 W1s C1/7 S1r0+256 W0r C0/8 ");
    assert_false(f->plan.runs_ahead);
}

// One join: the pairs go to the CPU, and the rows of its experts come back.
static void test_steps_of_split_experts(void **state) {
    struct small_plan *f = *state;
    experts_apart(f, 1, 8, true);
    assert_steps(
        &f->plan, BATCH_ONE,
        "I C0/0 S0r0+128 W1r C1/1 C1/2in S1p0+130@2 C1/2mid W0p@2 C0/2mid S0e0+256@2 W1e@2 "
        "C1/2out C1/3 L ");
    assert_steps(&f->plan, BATCH_PREFILL, "I F2>0 C0/0 S0r0+128 W1r C1/1 C1/2<0 C1/3 L ");
    const struct step *sent = &f->plan.steps[BATCH_ONE][6];
    assert_int_equal(sent->bytes_per_row, 130 * 4);
    assert_int_equal(sent->bytes_fixed, 256); // 9 starts, padded
    f->c.place.units[1].device = HOST;
    f->c.place.units[2].streamed = false;
    solve_given(f);
    assert_steps(
        &f->plan, BATCH_PREFILL,
        "I C0/0 C0/1 S0r0+128 W1r C1/2in S1p0+130@2 C1/2mid W0p@2 C0/2mid S0e0+256@2 W1e@2 "
        "C1/2out C1/3 L ");
    assert_false(f->plan.runs_ahead);
}

// The k-th streamed unit goes to slot k % 2, as soon as unit k - 2 was computed, and the first two
// at the start.
static void test_rings(void **state) {
    struct small_plan *f = *state;
    const int n = RING_SLOTS;
    ffns_apart(f, 9, 0, true);
    int fetched = 0, computed = 0;
    const struct step *steps = f->plan.steps[BATCH_PREFILL];
    for (int i = 0; i < f->plan.n_steps[BATCH_PREFILL]; i++) {
        const struct step *s = &steps[i];
        if (s->kind == STEP_FETCH) {
            assert_int_equal(s->slot, fetched % n);
            assert_int_equal(s->unit, 2 * fetched + 2);
            assert_int_equal(fetched - computed, computed ? n - 1 : fetched);
            if (fetched >= n) assert_int_equal(steps[i - 1].unit, 2 * (fetched - n) + 2);
            fetched++;
        } else if (s->kind == STEP_COMPUTE && s->slot >= 0) {
            assert_int_equal(s->slot, computed % n);
            assert_int_equal(s->unit, 2 * computed + 2);
            computed++;
        }
    }
    assert_int_equal(fetched, 9);
    assert_int_equal(computed, 9);
}

// ---- Steps of any plan --------------------------------------------------------------------------

// The activations of the current unit that each device has.
struct state {
    bool residual[MAX_DEVICES];         // has all columns of the residual stream
    bool normed[MAX_DEVICES];           // and what the dense FFN of the layer leaves its experts:
                                        // what it has read, or its output, whole
    int n_cols[STEP_DATA][MAX_DEVICES]; // of the others; 0: not computed
    int next_unit;
    int16_t in_slot[RING_SLOTS];
    const struct step *before;
    const struct step *sent[MAX_DEVICES]; // last, to that device
};

static bool keeps_cache_on_host(const struct small_plan *f, int unit) {
    return f->shape.units[unit].kind == UNIT_ATTENTION && !f->plan.place.units[unit].cpu_parts;
}

// A phase of split experts: both devices have the pairs, and the accelerator the rows of both.
static void follow_experts(struct small_plan *f, struct state *st, const struct step *s) {
    const int32_t n_used = f->shape.units[s->unit].n_experts_used;
    const int32_t routed = f->shape.n_embd + n_used, width = n_used * f->shape.n_embd;
    const int d = s->device;
    assert_int_equal(s->slot, -1);
    if (s->phase == PHASE_IN) {
        assert_true(d == GPU && st->residual[GPU]);
        st->n_cols[DATA_ROUTED][GPU] = routed;
    } else if (s->phase == PHASE_MID) {
        assert_int_equal(st->n_cols[DATA_ROUTED][d], routed);
        st->n_cols[DATA_EXPERTS][d] += width;
    } else {
        assert_true(s->phase == PHASE_OUT && d == GPU);
        assert_int_equal(st->n_cols[DATA_EXPERTS][GPU], 2 * width);
        for (int i = 0; i < MAX_DEVICES; i++)
            st->n_cols[DATA_ROUTED][i] = st->n_cols[DATA_EXPERTS][i] = 0;
        st->residual[HOST] = false;
        st->next_unit++;
    }
}

// A phase of a split unit: what it reads is there, all columns of it.
static void follow_phase(struct small_plan *f, struct state *st, const struct step *s) {
    const struct unit *unit = &f->shape.units[s->unit];
    const bool attention = unit->kind == UNIT_ATTENTION;
    const enum step_data made = attention ? DATA_QUERIES : DATA_HIDDEN,
                         read = attention ? DATA_ATTENDED : DATA_HIDDEN;
    const int32_t width = footprint_split_width(unit);
    const int32_t parts = f->plan.place.units[s->unit].cpu_parts;
    const int32_t row = footprint_split_row(width, parts),
                  out_row = footprint_split_row(f->shape.n_embd, parts);
    const bool normed = unit_post_norm(unit), leaves_branch = normed || unit->joint_norm;
    const int d = s->device;
    assert_int_equal(s->slot, -1);
    if (s->phase == PHASE_IN) {
        st->n_cols[made][d] = d == HOST ? width - row : row;
    } else if (s->phase == PHASE_MID) {
        assert_true(attention && d == GPU && st->n_cols[made][d] == width);
        st->n_cols[read][d] = width;
    } else if (s->phase == PHASE_OUT) {
        assert_int_equal(st->n_cols[read][d], width);
        st->n_cols[made][d] = st->n_cols[read][d] = 0;
        if (leaves_branch)
            st->n_cols[DATA_BRANCH][d] = d == HOST ? f->shape.n_embd - out_row : out_row;
        st->next_unit += !normed && st->n_cols[read][1 - d] == 0;
        st->residual[HOST] = st->residual[HOST] && d != HOST;
    } else {
        assert_true(normed && s->phase == PHASE_NORM && d == GPU);
        assert_int_equal(st->n_cols[DATA_BRANCH][d], f->shape.n_embd);
        st->n_cols[DATA_BRANCH][HOST] = st->n_cols[DATA_BRANCH][GPU] = 0;
        st->next_unit++;
    }
}

static void follow_compute(struct small_plan *f, struct state *st, const struct step *s) {
    assert_int_equal(s->unit, st->next_unit);
    if (s->phase != PHASE_ALL && f->shape.units[s->unit].kind == UNIT_EXPERTS) {
        if (s->phase == PHASE_IN && unit_reads_normed(&f->shape, s->unit))
            assert_true(st->normed[GPU]);
        follow_experts(f, st, s);
        return;
    }
    if (s->unit > 0) assert_true(st->residual[s->device]);
    if (unit_reads_normed(&f->shape, s->unit)) assert_true(st->normed[s->device]);
    st->normed[HOST] = st->normed[HOST] && s->device != HOST;
    st->normed[GPU] = st->normed[GPU] && s->device != GPU;
    const bool in_part = s->phase != PHASE_ALL && f->shape.units[s->unit].joint_norm;
    if (f->shape.units[s->unit].kind == UNIT_FFN && !in_part) st->normed[s->device] = true;
    if (s->phase != PHASE_ALL) {
        follow_phase(f, st, s);
        return;
    }
    assert_true(!f->plan.place.units[s->unit].cpu_parts || s->slot >= 0);
    if (s->slot >= 0) {
        assert_int_equal(st->in_slot[s->slot], s->unit);
        assert_true(f->plan.place.units[s->unit].streamed);
        if (!keeps_cache_on_host(f, s->unit)) st->in_slot[s->slot] = -1;
    }
    st->residual[s->device] = true;
    st->residual[1 - s->device] = false;
    st->next_unit++;
}

// A store follows attention that has added rows to a fetched cache.
static void follow_store(struct small_plan *f, struct state *st, const struct step *s) {
    assert_true(keeps_cache_on_host(f, s->unit) && s->device == GPU);
    assert_true(st->before->kind == STEP_COMPUTE && st->before->unit == s->unit &&
                st->before->slot == s->slot);
    assert_int_equal(st->in_slot[s->slot], s->unit);
    assert_int_equal(s->bytes_per_row,
                     footprint_kv_row(&f->shape.units[s->unit], &f->plan.workload));
    st->in_slot[s->slot] = -1;
}

static void follow_fetch(struct small_plan *f, struct state *st, const struct step *s) {
    const struct unit *unit = &f->shape.units[s->unit];
    const int parts = f->plan.place.units[s->unit].cpu_parts;
    assert_int_equal(st->in_slot[s->slot], -1);
    assert_int_equal(s->bytes_fixed, footprint_fetch(unit, parts, 1));
    assert_int_equal(s->bytes_per_past, keeps_cache_on_host(f, s->unit)
                                            ? footprint_kv_row(unit, &f->plan.workload)
                                            : 0);
    assert_true(footprint_slot(unit, &f->plan.workload, &f->machine.devices[GPU], parts) <=
                f->plan.slot_bytes);
    st->in_slot[s->slot] = s->unit;
}

static void follow_wait(struct small_plan *f, struct state *st, const struct step *s) {
    const struct step *sent = st->sent[s->device];
    assert_non_null(sent);
    assert_true(sent->data == s->data && sent->unit == s->unit);
    if (s->data == DATA_SHARED) st->normed[s->device] = st->normed[s->peer];
    if (s->data == DATA_SHARED || s->data == DATA_RESIDUAL)
        st->residual[s->device] = true;
    else
        st->n_cols[s->data][s->device] += sent->n_cols;
    if (s->data != DATA_BRANCH || !f->shape.units[s->unit].joint_norm) return;
    st->normed[s->device] = st->n_cols[DATA_BRANCH][s->device] == f->shape.n_embd;
    st->n_cols[DATA_BRANCH][HOST] = st->n_cols[DATA_BRANCH][GPU] = 0;
}

// Walks the steps of a class and checks that nothing is read before it is there.
static void follow(struct small_plan *f, enum batch_class batch) {
    struct state st = {.in_slot = {-1, -1}};
    st.residual[f->plan.place.units[0].device] = true;
    int n_logits = 0;
    for (int i = 0; i < f->plan.n_steps[batch]; i++) {
        const struct step *s = &f->plan.steps[batch][i];
        switch (s->kind) {
        case STEP_INPUTS: assert_int_equal(i, 0); break;
        case STEP_FETCH: follow_fetch(f, &st, s); break;
        case STEP_COMPUTE: follow_compute(f, &st, s); break;
        case STEP_SEND: st.sent[s->peer] = s; break;
        case STEP_WAIT: follow_wait(f, &st, s); break;
        case STEP_STORE: follow_store(f, &st, s); break;
        case STEP_LOGITS: n_logits++; break;
        }
        st.before = s;
    }
    assert_int_equal(st.next_unit, f->plan.n_units);
    const int8_t last = f->plan.place.units[f->plan.n_units - 1].device;
    assert_int_equal(n_logits, last == GPU);
    for (int i = 0; i < RING_SLOTS; i++) assert_int_equal(st.in_slot[i], -1);
}

static void test_steps_of_random_plans(void **state) {
    struct small_plan *f = *state;
    int n_split[UNIT_KINDS] = {0}, n_streamed[UNIT_KINDS] = {0}, n_ahead = 0, n_joint = 0;
    for (uint64_t seed = 0; seed < N_RANDOM; seed++) {
        struct err e;
        if (!invent_given(f, seed, 40)) continue;
        assert_int_equal(shape_check(&f->shape, &e), OK);
        for (int batch = 0; batch < BATCH_CLASSES; batch++) follow(f, (enum batch_class)batch);
        n_ahead += f->plan.runs_ahead;
        for (int u = 0; u < f->plan.n_units; u++) {
            n_split[f->shape.units[u].kind] += f->plan.place.units[u].cpu_parts > 0;
            n_streamed[f->shape.units[u].kind] += f->plan.place.units[u].streamed;
            n_joint += f->shape.units[u].kind == UNIT_FFN && f->shape.units[u].joint_norm &&
                       f->plan.place.units[u].cpu_parts > 0;
        }
    }
    for (int kind = UNIT_ATTENTION; kind <= UNIT_EXPERTS; kind++)
        assert_true(n_split[kind] > N_RANDOM / 4 && n_streamed[kind] > N_RANDOM / 4);
    assert_true(n_ahead > 0);
    assert_true(n_joint > N_RANDOM / 16);
}

// ---- What people see ----------------------------------------------------------------------------

static void assert_prints(const struct small_plan *f, const char *const expected[], size_t n) {
    char *text = NULL;
    size_t length;
    FILE *out = open_memstream(&text, &length);
    assert_non_null(out);
    plan_print(&f->plan, &f->shape, true, out);
    plan_print_steps(&f->plan, &f->shape, BATCH_PREFILL, out);
    plan_print_steps(&f->plan, &f->shape, BATCH_ONE, out);
    fclose(out);
    for (size_t i = 0; i < n; i++)
        if (!strstr(text, expected[i])) fail_msg("no '%s' in\n%s", expected[i], text);
    free(text);
}

static void test_printed(void **state) {
    struct small_plan *f = *state;
    ffns_apart(f, 6, 8, true);
    f->c.place.units[4].streamed = false; // 1: split only
    f->c.place.units[6].cpu_parts = 0;    // 2: streamed from the CPU
    f->c.place.units[6].device = HOST;
    f->c.place.units[7].device = HOST; // 3: its attention on the CPU
    f->c.place.units[9].device = HOST; // 4: likewise, and split only
    f->c.place.units[10].streamed = false;
    f->c.place.units[12].cpu_parts = 0; // 5: whole
    f->c.place.units[12].streamed = false;
    f->c.place.units[10].cpu_parts = 16;
    solve_given(f);
    static const char *const expected[] = {
        "\n    0 brsSRg\n",
        "      r = rows of the FFN split between GPU and CPU, the rest on the GPU\n",
        "      s = FFN on the CPU, in prompts on the GPU; the rest on the GPU\n",
        "split by rows: 4 units, 8 to 16 of 32 parts on the CPU\n",
        "streamed in prompts: 3 units from pinned memory, through 2 slots of 0.10 MiB\n",
        " of their time hidden\n",
        " fetch    sim   blk.0.ffn to slot 0, 26112 bytes\n",
        " compute  sim   blk.2.ffn, 104960 bytes of weights, from slot 1\n",
        " compute  cpu   blk.1.ffn, first phase, 17920 bytes of weights\n",
        " compute  sim   blk.1.ffn, last phase, 26112 bytes of weights\n",
        " send     cpu   to sim blk.1.ffn hidden columns 192 to 255, 256 bytes per row\n",
        " wait     sim   for cpu blk.1.ffn residual\n",
        " send     cpu   to sim 512 bytes per row\n",
    };
    assert_prints(f, expected, sizeof expected / sizeof *expected);
    assert_int_equal(plan_layers_on_gpu(&f->plan, &f->shape), 2); // the last, and the head
    // A micro-batch that is too small to be streamed prints what it does.
    f->workload.n_ubatch = 8;
    solve_given(f);
    static const char *const small[] = {" compute  cpu   blk.2.ffn, 104960 bytes of weights\n"};
    assert_prints(f, small, 1);
}

static void test_attention_printed(void **state) {
    struct small_plan *f = *state;
    static const struct {
        int device[2], parts[2];
        bool streamed[2];
    } layers[] = {
        {{GPU, GPU}, {8, 8}, {false, false}},  {{HOST, HOST}, {0, 0}, {true, true}},
        {{GPU, GPU}, {8, 8}, {true, true}},    {{GPU, GPU}, {8, 0}, {false, false}},
        {{HOST, GPU}, {0, 0}, {true, false}},  {{HOST, HOST}, {0, 0}, {true, false}},
        {{HOST, GPU}, {0, 8}, {false, false}}, {{GPU, HOST}, {0, 0}, {false, false}},
    };
    enum { N = sizeof layers / sizeof *layers };
    small_model(f, N);
    given_ways(f);
    for (int i = 0; i < 2 * N; i++) {
        f->c.place.units[1 + i].device = (int8_t)layers[i / 2].device[i % 2];
        f->c.place.units[1 + i].cpu_parts = (uint8_t)layers[i / 2].parts[i % 2];
        f->c.place.units[1 + i].streamed = layers[i / 2].streamed[i % 2];
    }
    solve_given(f);
    static const char *const expected[] = {
        "\n    0 ptBqumRa\n",
        " p = rows of attention and FFN split between GPU and CPU\n",
        " t = CPU, in prompts GPU\n",
        " B = rows of attention and FFN split between GPU and CPU, in prompts all on the GPU\n",
        " q = rows of attention split between GPU and CPU, the rest on the GPU\n",
        " u = attention on the CPU, in prompts on the GPU; the rest on the GPU\n",
        "split by rows: 6 units, 8 of 32 parts on the CPU\n",
        "streamed in prompts: 6 units from pinned memory, through 2 slots of 0.57 MiB\n",
        (" fetch    sim   blk.1.attention to slot 0, 70144 bytes, 512 bytes per position in the KV "
         "cache\n"),
        " compute  sim   blk.1.attention, 70144 bytes of weights, from slot 0\n",
        " store    sim   blk.1.attention from slot 0, 512 bytes per row\n",
        " compute  sim   blk.0.attention, first phase, 48384 bytes of weights\n",
        " compute  cpu   blk.0.attention, first phase, 4864 bytes of weights\n",
        " send     cpu   to sim blk.0.attention queries columns 96 to 127, 128 bytes per row\n",
        " wait     sim   for cpu blk.0.attention queries\n",
        " compute  sim   blk.0.attention, middle phase\n",
        " send     sim   to cpu blk.0.attention attended columns 0 to 127, 512 bytes per row\n",
        " compute  cpu   blk.0.attention, last phase, 4352 bytes of weights\n",
    };
    assert_prints(f, expected, sizeof expected / sizeof *expected);
}

static void test_experts_printed(void **state) {
    struct small_plan *f = *state;
    experts_apart(f, 4, 8, false);
    f->c.place.units[4].streamed = true;
    f->c.place.units[5].cpu_parts = 12;
    f->c.place.units[7].device = HOST;
    solve_given(f);
    static const char *const expected[] = {
        "\n    0 dkDm\n",
        " d = experts split between GPU and CPU, the rest on the GPU\n",
        "split by rows: 1 unit, 12 of 32 parts on the CPU\n",
        "split by experts: 4 units, 8 of 32 parts on the CPU\n",
        (" send     sim   to cpu blk.0.experts routed columns 0 to 129, 520 bytes per row 256 "
         "bytes\n"),
        " compute  cpu   blk.0.experts, middle phase, ",
        " send     cpu   to sim blk.0.experts expert columns 0 to 255, 1024 bytes per row\n",
        " compute  sim   blk.0.experts, last phase\n",
    };
    assert_prints(f, expected, sizeof expected / sizeof *expected);
}

// ---- Classes ------------------------------------------------------------------------------------

static void test_classes(void **state) {
    (void)state;
    assert_int_equal(batch_class_of(1), BATCH_ONE);
    assert_int_equal(batch_class_of(2), BATCH_SMALL);
    assert_int_equal(batch_class_of(32), BATCH_SMALL);
    assert_int_equal(batch_class_of(33), BATCH_PREFILL);
    assert_int_equal(batch_class_of(4096), BATCH_PREFILL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_classes),
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_what_can_be_split),
        cmocka_unit_test(test_what_attention_can_be_split),
        cmocka_unit_test(test_bytes_of_a_split_unit),
        cmocka_unit_test(test_bytes_of_a_streamed_unit),
        cmocka_unit_test(test_bytes_of_split_attention),
        cmocka_unit_test(test_bytes_of_streamed_attention),
        cmocka_unit_test(test_bytes_of_split_experts),
        cmocka_unit_test(test_costs_of_split_experts),
        cmocka_unit_test(test_cached_beside_experts),
        cmocka_unit_test(test_steps_of_streamed_units),
        cmocka_unit_test(test_steps_of_split_units),
        cmocka_unit_test(test_steps_of_both),
        cmocka_unit_test(test_steps_of_streamed_attention),
        cmocka_unit_test(test_steps_of_split_attention),
        cmocka_unit_test(test_longest_list),
        cmocka_unit_test(test_steps_of_whole_units),
        cmocka_unit_test(test_steps_behind_a_shared_expert),
        cmocka_unit_test(test_steps_of_split_experts),
        cmocka_unit_test(test_rings),
        cmocka_unit_test(test_steps_of_random_plans),
        cmocka_unit_test(test_printed),
        cmocka_unit_test(test_attention_printed),
        cmocka_unit_test(test_experts_printed),
    };
    return cmocka_run_group_tests(tests, open_small_plan, close_small_plan);
}

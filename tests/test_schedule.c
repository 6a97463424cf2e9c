/* test_schedule.c: split and streamed units: their bytes, their steps, and what these add up to, by
 * hand on a small model and at random.
 */
#include "planner/plan_internal.h"

#include "base/mem.h"
#include "tests/invent.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

// Sanitizers are slow: fewer rounds.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { N_RANDOM = 100 };
#else
enum { N_RANDOM = 400 };
#endif
enum { EMBD = 128, FF = 256, VOCAB = 320, UBATCH = 64, TEXT = 4096 };

struct fixture {
    struct shape shape;
    struct machine machine;
    struct workload workload;
    struct constraints c;
    struct plan plan, other;
    struct dice dice;
};

static int setup(void **state) {
    *state = mem_alloc(1, sizeof(struct fixture));
    return *state ? 0 : -1;
}

static int teardown(void **state) {
    mem_free(*state);
    return 0;
}

static void assert_near(double actual, double expected) {
    if (fabs(actual - expected) > 1e-9 * fabs(expected))
        fail_msg("%.12g is not %.12g", actual, expected);
}

// ---- A small model and a machine of round numbers -----------------------------------------------

static struct unit *add_unit(struct shape *s, enum unit_kind kind, int32_t layer) {
    struct unit *unit = &s->units[s->n_units++];
    *unit = (struct unit){.kind = kind, .layer = layer};
    return unit;
}

static void add_tensor(struct unit *unit, enum tensor_use use, int32_t n_cols, int32_t n_rows) {
    struct unit_tensor *t = &unit->tensors[unit->n_tensors++];
    *t = (struct unit_tensor){.use = use, .n_cols = n_cols, .n_rows = n_rows, .n_matrices = 1};
    t->type = use == USE_VECTOR ? DTYPE_F32 : DTYPE_Q8_0;
    t->size_bytes = dtype_bytes(t->type, (uint64_t)n_cols * (uint64_t)n_rows);
}

// Units: embed, attention and FFN of each layer, head. A row of an FFN's gate and up has 136 bytes,
// one of down 272: each matrix has 34816.
static void small_model(struct fixture *f, int32_t n_layers) {
    struct shape *s = &f->shape;
    memset(s, 0, sizeof *s);
    s->n_layers = n_layers;
    s->n_embd = EMBD;
    s->n_heads = s->n_kv_heads = 2;
    s->head_dim = s->n_rot = 64;
    s->n_ff = FF;
    s->n_vocab = VOCAB;
    s->n_ctx_train = 2048;
    add_tensor(add_unit(s, UNIT_EMBED, -1), USE_ROWS, EMBD, VOCAB);
    for (int32_t layer = 0; layer < n_layers; layer++) {
        struct unit *attention = add_unit(s, UNIT_ATTENTION, layer);
        attention->n_heads = attention->n_kv_heads = 2;
        attention->head_dim_k = attention->head_dim_v = 64;
        add_tensor(attention, USE_VECTOR, EMBD, 1);
        for (int i = 0; i < 4; i++) add_tensor(attention, USE_MATRIX, EMBD, EMBD);
        struct unit *ffn = add_unit(s, UNIT_FFN, layer);
        add_tensor(ffn, USE_VECTOR, EMBD, 1);
        add_tensor(ffn, USE_MATRIX, EMBD, FF);
        add_tensor(ffn, USE_MATRIX, EMBD, FF);
        add_tensor(ffn, USE_MATRIX, FF, EMBD);
    }
    add_tensor(add_unit(s, UNIT_HEAD, -1), USE_MATRIX, EMBD, VOCAB);
    f->workload = (struct workload){.n_ctx = 1024,
                                    .n_ubatch = UBATCH,
                                    .kv_type_k = DTYPE_F16,
                                    .kv_type_v = DTYPE_F16,
                                    .n_prompt = 4 * UBATCH,
                                    .n_gen = 16};
}

// The CPU reads 1 GB/s and the accelerator 2, whatever the number of tokens; the link carries 1.
static void round_machine(struct fixture *f) {
    struct machine *m = &f->machine;
    *m = (struct machine){
        .rates = RATES_FILE, .n_devices = 2, .pinned_bytes = UINT64_MAX, .dram_gbps = 1000};
    for (int d = 0; d < MAX_DEVICES; d++) {
        struct machine_device *device = &m->devices[d];
        *device = (struct machine_device){.capacity_bytes = 1 << 30,
                                          .budget_bytes = 1 << 30,
                                          .align_bytes = d ? 1024 : 64,
                                          .n_lanes = 1,
                                          .is_host = d == 0};
        snprintf(device->name, sizeof device->name, "device %d", d);
        snprintf(device->kind, sizeof device->kind, d ? "sim" : "cpu");
        struct device_rates *r = &device->rates;
        for (int t = 0; t < WEIGHT_COUNT; t++)
            for (int c = 0; c < RATE_CLASSES; c++) r->weight_gbps[t][c] = d ? 2 : 1;
        for (int t = 0; t < RATE_KV_TYPES; t++)
            for (int c = 0; c < RATE_CLASSES; c++) r->attention_gflops[t][c] = 100;
        r->vector_gbps = r->memory_gbps = d ? 2 : 1;
        r->op_us = 1;
        r->pass_us = 5;
    }
    m->devices[GPU].link = (struct link_rates){.to_gbps = 1,
                                               .from_gbps = 2,
                                               .pageable_to_gbps = 0.5,
                                               .pageable_from_gbps = 1,
                                               .staged_to_gbps = 0.8,
                                               .latency_us = 10};
}

static void given_ways(struct fixture *f) {
    round_machine(f);
    f->c = (struct constraints){.gpu_layers = GPU_LAYERS_AUTO,
                                .has_units = true,
                                .has_ways = true,
                                .feed = FEED_ARENA,
                                .n_slots = 2};
}

static void solve(struct fixture *f) {
    struct err e;
    char text[512];
    if (planner_solve(&f->plan, &f->shape, &f->machine, &f->workload, &f->c, &e))
        fail_msg("%s", err_text(&e, text, sizeof text));
}

// All but the embedding on the accelerator; FFNs are split by cpu_parts, or with 0 on the CPU, and
// streamed or not.
static void ffns_apart(struct fixture *f, int32_t n_layers, int cpu_parts, bool streamed) {
    small_model(f, n_layers);
    given_ways(f);
    for (int u = 1; u < f->shape.n_units; u++) {
        const bool ffn = f->shape.units[u].kind == UNIT_FFN;
        f->c.unit_device[u] = !ffn || cpu_parts ? GPU : HOST;
        f->c.unit_cpu_parts[u] = (uint8_t)(ffn ? cpu_parts : 0);
        f->c.unit_streamed[u] = ffn && streamed;
    }
    solve(f);
}

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
    struct fixture *f = *state;
    small_model(f, 1);
    struct unit *ffn = &f->shape.units[2];
    assert_true(unit_can_split(ffn) && unit_can_stream(ffn));
    for (int u = 0; u < 4; u++) {
        if (u == 2) continue;
        assert_false(unit_can_split(&f->shape.units[u]));
        assert_false(unit_can_stream(&f->shape.units[u]));
    }
    assert_ptr_equal(footprint_down(ffn), &ffn->tensors[3]);
    ffn->tensors[1].n_rows = ffn->tensors[2].n_rows = ffn->tensors[3].n_cols = 32;
    assert_false(unit_can_split(ffn));
    small_model(f, 1);
    ffn->tensors[1].size_bytes -= 34; // rows of unequal length
    assert_false(unit_can_split(ffn));
    small_model(f, 1);
    ffn->n_tensors = 3; // nothing reads what swiglu makes
    assert_false(unit_can_split(ffn));
}

// 8 of 32 parts: the accelerator has 192 of 256 rows of gate and up, and 96 of 128 of down, 26112
// bytes of each, 26624 with padding; the CPU has 64 and 32 rows, 8704 bytes of each. The norm has
// 512 bytes.
static void test_bytes_of_a_split_unit(void **state) {
    struct fixture *f = *state;
    ffns_apart(f, 1, 8, false);
    const struct plan *p = &f->plan;
    assert_int_equal(p->unit_weight_bytes[2], 1024 + 3 * 26624);
    assert_int_equal(p->unit_cpu_bytes[2], 512 + 3 * 8704);
    assert_int_equal(p->unit_cpu_bytes[1], 0);
    assert_int_equal(p->devices[HOST].bytes[PLAN_WEIGHTS], VOCAB * 136 + 512 + 3 * 8704);
    assert_int_equal(p->n_slots, 0);
    assert_int_equal(p->feed, FEED_NONE);
    assert_int_equal(p->slot_bytes, 0);
    assert_int_equal(p->devices[GPU].bytes[PLAN_STAGING], 0);
    assert_int_equal(p->devices[HOST].bytes[PLAN_STAGING], p->tables.size_bytes);
    // Both have room for what swiglu makes.
    assert_true(p->devices[HOST].scratch.gate + UBATCH * FF * 4 <= p->devices[HOST].scratch.up);
    assert_true(p->devices[GPU].scratch.gate + UBATCH * FF * 4 <= p->devices[GPU].scratch.up);
    for (int d = 0; d < MAX_DEVICES; d++) {
        struct simulation sim;
        plan_simulate(p, &f->shape, &(struct pass){1, 1, 0}, &sim);
        assert_int_equal(sim.peak_bytes[d], plan_device_bytes(p, d));
    }
}

static void test_bytes_of_a_streamed_unit(void **state) {
    struct fixture *f = *state;
    ffns_apart(f, 3, 0, true);
    const struct plan *p = &f->plan;
    assert_int_equal(p->slot_bytes, 1024 + 3 * 34816); // 34 whole KiB
    assert_int_equal(p->unit_weight_bytes[2], 512 + 3 * 34816);
    assert_int_equal(p->devices[GPU].bytes[PLAN_STAGING], 2 * p->slot_bytes);
    assert_int_equal(p->n_blocks, 0);
    assert_int_equal(p->devices[HOST].bytes[PLAN_STAGING], p->tables.size_bytes);
    assert_true(p->devices[GPU].scratch.gate + UBATCH * FF * 4 <= p->devices[GPU].scratch.up);
    assert_int_equal(plan_pinned_bytes(p), p->devices[HOST].bytes[PLAN_STAGING] +
                                               p->devices[HOST].bytes[PLAN_SCRATCH] +
                                               3 * (512 + 3 * 34816));
    f->c.feed = FEED_STAGED;
    f->c.n_slots = 4;
    solve(f);
    assert_int_equal(p->devices[GPU].bytes[PLAN_STAGING], 4 * p->slot_bytes);
    assert_int_equal(p->n_blocks, 4);
    assert_int_equal(p->block_bytes, 106496); // 104960, rounded up to pages of 4096
    assert_int_equal(p->devices[HOST].bytes[PLAN_STAGING], p->tables.size_bytes + 4 * 106496);
    int32_t n;
    uint64_t size;
    footprint_blocks(FEED_STAGED, 100 << 20, &n, &size);
    assert_int_equal(n, 4);
    assert_int_equal(size, 8 << 20);
    // Of a split unit only the CPU's rows pass through the ring, and no norm.
    ffns_apart(f, 3, 8, true);
    assert_int_equal(p->slot_bytes, 3 * 9216);
    assert_int_equal(p->unit_cpu_bytes[2], 512 + 3 * 8704);
    assert_int_equal(footprint_fetch(&f->shape.units[2], 8), 3 * 8704);
}

// ---- Steps --------------------------------------------------------------------------------------

// I: inputs; F2>0: unit 2 to slot 0; C1/2<0: device 1, unit 2, from slot 0; C1/2in, C1/2out: its
// phases; S0r0+128: residual columns 0..127 from device 0; S1h0+192@2: hidden, of unit 2; W0h@2:
// device 0 waits for it; L: logits.
static void describe(const struct step *s, char *out, size_t size) {
    static const char *const phases[] = {"", "in", "out"};
    const char data = s->data == DATA_HIDDEN ? 'h' : 'r';
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
    struct fixture *f = *state;
    ffns_apart(f, 3, 0, true);
    assert_steps(&f->plan, BATCH_PREFILL,
                 "I F2>0 F4>1 C0/0 S0r0+128 W1r C1/1 C1/2<0 F6>0 C1/3 C1/4<1 C1/5 C1/6<0 C1/7 L ");
    for (int batch = 0; batch < BATCH_PREFILL; batch++)
        assert_steps(&f->plan, (enum batch_class)batch,
                     "I C0/0 S0r0+128 W1r C1/1 S1r0+128 W0r C0/2 S0r0+128 W1r C1/3 S1r0+128 W0r "
                     "C0/4 S0r0+128 W1r C1/5 S1r0+128 W0r C0/6 S0r0+128 W1r C1/7 L ");
    assert_true(f->plan.runs_ahead);
    assert_int_equal(f->plan.steps[BATCH_PREFILL][1].bytes_fixed, 512 + 3 * 34816);
    assert_int_equal(plan_compute_device(&f->plan, BATCH_PREFILL, 2), GPU);
    assert_int_equal(plan_compute_device(&f->plan, BATCH_ONE, 2), HOST);
    // Attention on the CPU: the residual stream comes back, and the accelerator has no more to do
    // than the FFN; with one token, nothing.
    small_model(f, 1);
    f->c.unit_device[1] = f->c.unit_device[3] = HOST;
    solve(f);
    assert_steps(&f->plan, BATCH_PREFILL,
                 "I F2>0 C0/0 C0/1 S0r0+128 W1r C1/2<0 S1r0+128 W0r C0/3 ");
    assert_steps(&f->plan, BATCH_ONE, "C0/0 C0/1 C0/2 C0/3 ");
    assert_false(f->plan.runs_ahead);
}

#define JOINS(c1in)                                                               \
    c1in " S1h0+192@2 C0/2in S0h192+64@2 W0h@2 W1h@2 C1/2out C0/2out S0r96+32@2 " \
         "W1r@2 "

static void test_steps_of_split_units(void **state) {
    struct fixture *f = *state;
    ffns_apart(f, 1, 8, false);
    for (int batch = 0; batch < BATCH_CLASSES; batch++)
        assert_steps(&f->plan, (enum batch_class)batch,
                     "I C0/0 S0r0+128 W1r C1/1 S1r0+128@2 W0r@2 " JOINS("C1/2in") "C1/3 L ");
    assert_false(f->plan.runs_ahead);
    // The CPU has the residual stream before it and needs it behind it.
    f->c.unit_device[1] = f->c.unit_device[3] = HOST;
    solve(f);
    assert_steps(&f->plan, BATCH_PREFILL,
                 "I C0/0 C0/1 S0r0+128@2 W1r@2 " JOINS("C1/2in") "S1r0+128 W0r C0/3 ");
}

static void test_steps_of_both(void **state) {
    struct fixture *f = *state;
    ffns_apart(f, 1, 8, true);
    assert_steps(&f->plan, BATCH_PREFILL, "I F2>0 C0/0 S0r0+128 W1r C1/1 C1/2<0 C1/3 L ");
    assert_steps(&f->plan, BATCH_ONE,
                 "I C0/0 S0r0+128 W1r C1/1 S1r0+128@2 W0r@2 " JOINS("C1/2in") "C1/3 L ");
    assert_true(f->plan.runs_ahead);
    assert_int_equal(f->plan.steps[BATCH_PREFILL][1].bytes_fixed, 3 * 8704);
}

// Everything on one device, or handed over once: as ever, and what runs ahead.
static void test_steps_of_whole_units(void **state) {
    struct fixture *f = *state;
    small_model(f, 1);
    given_ways(f);
    solve(f);
    assert_steps(&f->plan, BATCH_PREFILL, "C0/0 C0/1 C0/2 C0/3 ");
    assert_false(f->plan.runs_ahead);
    f->c.unit_device[2] = f->c.unit_device[3] = GPU;
    solve(f);
    assert_steps(&f->plan, BATCH_PREFILL, "I C0/0 C0/1 S0r0+128 W1r C1/2 C1/3 L ");
    assert_true(f->plan.runs_ahead);
    f->c.unit_device[0] = f->c.unit_device[1] = GPU;
    solve(f);
    assert_steps(&f->plan, BATCH_PREFILL, "I C1/0 C1/1 C1/2 C1/3 L ");
    assert_true(f->plan.runs_ahead);
}

// The k-th streamed unit goes to slot k % n, as soon as unit k - n was computed, and the first n at
// the start.
static void test_rings(void **state) {
    struct fixture *f = *state;
    for (int n = MIN_SLOTS; n <= MAX_SLOTS; n++) {
        ffns_apart(f, 9, 0, true);
        f->c.n_slots = n;
        solve(f);
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
}

// ---- Steps of any plan --------------------------------------------------------------------------

// A random model, machine and ways; false if it does not fit.
static bool invent(struct fixture *f, uint64_t seed, int32_t max_units) {
    struct err e;
    f->dice = (struct dice){seed};
    invent_small_shape(&f->shape, &f->dice, max_units);
    invent_machine(&f->machine, &f->dice, &f->shape);
    invent_workload(&f->workload, &f->dice, &f->shape);
    invent_ways(&f->c, &f->dice, &f->shape);
    for (int d = 0; d < MAX_DEVICES; d++) f->machine.devices[d].budget_bytes = UINT64_C(1) << 50;
    return planner_solve(&f->plan, &f->shape, &f->machine, &f->workload, &f->c, &e) == OK;
}

// What a device has of the unit that is being computed.
struct state {
    bool residual[MAX_DEVICES]; // has all columns of the residual stream
    int n_hidden[MAX_DEVICES];  // columns of hidden; 0: the phase was not computed
    int next_unit;
    int16_t in_slot[MAX_SLOTS];
    const struct step *sent[MAX_DEVICES]; // last, to that device
};

static void follow_compute(struct fixture *f, struct state *st, const struct step *s) {
    const int parts = f->plan.unit_cpu_parts[s->unit], d = s->device;
    assert_int_equal(s->unit, st->next_unit);
    if (s->unit > 0) assert_true(st->residual[d]);
    if (s->slot >= 0) {
        assert_int_equal(st->in_slot[s->slot], s->unit);
        assert_true(f->plan.unit_streamed[s->unit]);
        st->in_slot[s->slot] = -1;
    }
    if (s->phase == PHASE_ALL) {
        assert_true(!parts || s->slot >= 0);
        st->residual[d] = true;
        st->residual[1 - d] = false;
        st->next_unit++;
        return;
    }
    const int32_t n_ff = footprint_down(&f->shape.units[s->unit])->n_cols;
    const int32_t row = footprint_split_row(n_ff, parts);
    if (s->phase == PHASE_IN) {
        st->n_hidden[d] = d == HOST ? n_ff - row : row;
    } else {
        assert_int_equal(st->n_hidden[d], n_ff);
        st->n_hidden[d] = 0;
        st->next_unit += st->n_hidden[1 - d] == 0;
        st->residual[HOST] = st->residual[HOST] && d != HOST;
    }
}

// Walks the steps of a class and checks that nothing is read before it is there.
static void follow(struct fixture *f, enum batch_class batch) {
    struct state st = {.in_slot = {-1, -1, -1, -1}};
    st.residual[f->plan.unit_device[0]] = true;
    int n_logits = 0;
    for (int i = 0; i < f->plan.n_steps[batch]; i++) {
        const struct step *s = &f->plan.steps[batch][i];
        switch (s->kind) {
        case STEP_INPUTS: assert_int_equal(i, 0); break;
        case STEP_FETCH:
            assert_int_equal(st.in_slot[s->slot], -1);
            st.in_slot[s->slot] = s->unit;
            break;
        case STEP_COMPUTE: follow_compute(f, &st, s); break;
        case STEP_SEND: st.sent[s->peer] = s; break;
        case STEP_WAIT:
            assert_non_null(st.sent[s->device]);
            assert_int_equal(st.sent[s->device]->data, s->data);
            assert_int_equal(st.sent[s->device]->unit, s->unit);
            if (s->data == DATA_HIDDEN) st.n_hidden[s->device] += st.sent[s->device]->n_cols;
            if (s->data == DATA_RESIDUAL) st.residual[s->device] = true;
            break;
        case STEP_LOGITS: n_logits++; break;
        }
    }
    assert_int_equal(st.next_unit, f->plan.n_units);
    const int8_t last = f->plan.unit_device[f->plan.n_units - 1];
    assert_int_equal(n_logits, last == GPU);
    for (int i = 0; i < MAX_SLOTS; i++) assert_int_equal(st.in_slot[i], -1);
}

static void test_steps_of_random_plans(void **state) {
    struct fixture *f = *state;
    int n_split = 0, n_streamed = 0, n_ahead = 0;
    for (uint64_t seed = 0; seed < N_RANDOM; seed++) {
        if (!invent(f, seed, 40)) continue;
        for (int batch = 0; batch < BATCH_CLASSES; batch++) follow(f, (enum batch_class)batch);
        n_ahead += f->plan.runs_ahead;
        for (int u = 0; u < f->plan.n_units; u++) {
            n_split += f->plan.unit_cpu_parts[u] > 0;
            n_streamed += f->plan.unit_streamed[u];
        }
    }
    assert_true(n_split > N_RANDOM / 4 && n_streamed > N_RANDOM / 4 && n_ahead > 0);
}

// ---- Time ---------------------------------------------------------------------------------------

static double part_us(const struct fixture *f, int d, struct unit_part part,
                      const struct pass *pass) {
    const struct cost_place at = {&f->shape, &f->plan.machine.devices[d], &f->plan.workload, false};
    return cost_sum(cost_of_part(&at, &f->shape.units[2], part, pass));
}

// One token on the CPU at 1000 bytes per us: 64 rows of gate and up, 2 * 8704 bytes, 8 bytes for
// each of 2 * (128 + 64) columns and rows, norm 8 * 128, swiglu 12 * 64, 4 ops; then 32 rows of
// down, 8704 bytes, 8 * (256 + 32), 1 op.
static void test_cost_of_parts(void **state) {
    struct fixture *f = *state;
    ffns_apart(f, 1, 8, false);
    const struct unit_part in = {PHASE_IN, 8, false, true}, out = {PHASE_OUT, 8, false, true};
    struct pass pass = {1, 1, 0};
    assert_near(part_us(f, HOST, in, &pass),
                (2 * 8704 + 8 * 2 * 192 + 8 * 128 + 12 * 64) / 1e3 + 4);
    assert_near(part_us(f, HOST, out, &pass), (8704 + 8 * (256 + 32)) / 1e3 + 1);
    // Of several tokens, both devices make all columns of what swiglu makes.
    pass.n_tokens = 10;
    assert_near(part_us(f, HOST, in, &pass),
                (2 * 8704 + 10 * (8 * 2 * 192 + 8 * 128 + 12 * 256)) / 1e3 + 4);
    // The accelerator, with all rows in two matmuls for each matrix, at 2000 bytes per us.
    const struct unit_part both = {PHASE_ALL, 8, true, true};
    assert_near(part_us(f, GPU, both, &pass),
                (3 * 34816 + 10 * (8 * (4 * 128 + 2 * 256 + 2 * 256 + 128) + 8 * 128 + 12 * 256)) /
                        2e3 +
                    8);
    assert_near(cost_read_bytes(&f->shape.units[2], in, &pass), 512 + 2 * 8704);
    assert_near(cost_read_bytes(&f->shape.units[2], out, &pass), 8704);
    assert_near(cost_read_bytes(&f->shape.units[2], both, &pass), 512 + 3 * 34816);
    struct simulation sim;
    plan_simulate(&f->plan, &f->shape, &pass, &sim);
    assert_int_equal(sim.weight_bytes[HOST], 512 + 3 * 8704);
}

static double last_step_us(const struct fixture *f, const struct pass *pass, int from_end) {
    struct step_times times[MAX_STEPS];
    plan_step_times(&f->plan, &f->shape, pass, times);
    const struct step_times *t =
        &times[f->plan.n_steps[batch_class_of(pass->n_tokens)] - 1 - from_end];
    return t->last_us - t->first_us;
}

// Many layers whose copies take longer than they are computed: the link is never idle, and after it
// comes what is left of the last layer.
static void test_streaming_is_bound_by_the_link(void **state) {
    struct fixture *f = *state;
    const struct pass pass = {UBATCH, 1, 0};
    for (int n_slots = MIN_SLOTS; n_slots <= MAX_SLOTS; n_slots++) {
        ffns_apart(f, 24, 0, true);
        f->c.n_slots = n_slots;
        f->machine.devices[GPU].link.to_gbps = 0.1;
        solve(f);
        struct simulation sim;
        plan_simulate(&f->plan, &f->shape, &pass, &sim);
        const double fetch_us = 24 * (10 + 104960 / 1e2);
        assert_true(fetch_us > sim.compute_us[GPU]);
        const double rest_us =
            last_step_us(f, &pass, 0) + last_step_us(f, &pass, 1) + last_step_us(f, &pass, 2);
        assert_near(sim.total_us, 10 + fetch_us + rest_us);
        // Passes in a row: the tables and the residual stream go over the same link.
        const double others_us = 20 + (double)f->plan.tables.size_bytes / 1e2 + UBATCH * 512 / 1e2;
        assert_near(sim.period_us, fmin(sim.total_us, fetch_us + others_us));
    }
}

// Copies faster than computing: nothing waits for them but the start, and they are hidden.
static void test_streaming_is_bound_by_computing(void **state) {
    struct fixture *f = *state;
    const struct pass pass = {UBATCH, 1, 0};
    ffns_apart(f, 24, 0, true);
    f->machine.devices[GPU].link.to_gbps = 50;
    solve(f);
    struct simulation sim;
    struct step_times times[MAX_STEPS];
    plan_simulate(&f->plan, &f->shape, &pass, &sim);
    plan_step_times(&f->plan, &f->shape, &pass, times);
    assert_int_equal(f->plan.steps[BATCH_PREFILL][6].unit, 1); // the first of the accelerator
    assert_near(sim.total_us, times[6].first_us + sim.compute_us[GPU] + last_step_us(f, &pass, 0));
    assert_true(sim.hidden_copy_us >= 0.85 * sim.copy_us && sim.hidden_copy_us <= sim.copy_us);
    // In a row: the accelerator computes, after it got its tables and the residual stream.
    const double in_us = 20 + (double)f->plan.tables.size_bytes / 5e4 + UBATCH * 512 / 5e4;
    assert_near(sim.period_us, 5 + in_us + sim.compute_us[GPU]);
    assert_true(sim.period_us < sim.total_us);
    struct prediction p;
    plan_predict(&f->plan, &f->shape, &p);
    double expected = 0;
    for (int i = 0; i < 4; i++) {
        plan_simulate(&f->plan, &f->shape, &(struct pass){UBATCH, i == 3, i * UBATCH}, &sim);
        expected += i < 3 ? sim.period_us : sim.total_us;
    }
    assert_near(p.prompt_us, expected);
}

static void test_feeds(void **state) {
    struct fixture *f = *state;
    const struct pass pass = {UBATCH, 0, 0};
    ffns_apart(f, 4, 0, true);
    const double gbps[FEEDS] = {0, 1, 0.8, 0.5};
    for (int feed = FEED_ARENA; feed < FEEDS; feed++) {
        f->c.feed = (enum feed)feed;
        solve(f);
        struct step_times times[MAX_STEPS];
        plan_step_times(&f->plan, &f->shape, &pass, times);
        assert_near(times[1].last_us - times[1].first_us, 10 + 104960 / gbps[feed] / 1e3);
        f->plan.machine.pinned_bytes = plan_pinned_bytes(&f->plan) - 1;
        plan_step_times(&f->plan, &f->shape, &pass, times);
        assert_near(times[1].last_us - times[1].first_us, 10 + 104960 / 0.5 / 1e3);
    }
    // Memory that is slower than the rest: its bytes decide, three times those that are staged.
    for (int feed = FEED_ARENA; feed < FEEDS; feed++) {
        f->machine.dram_gbps = 0.01;
        f->c.feed = (enum feed)feed;
        solve(f);
        struct simulation sim;
        plan_simulate(&f->plan, &f->shape, &pass, &sim);
        assert_near(sim.total_us, 10 + (feed == FEED_ARENA ? 1 : 3) * 4 * 104960 / 1e1);
    }
}

// From when both have the residual stream, phases and joins are the greater of two lanes.
static void test_lanes_of_a_split_unit(void **state) {
    struct fixture *f = *state;
    for (int parts = 1; parts < UNIT_PARTS; parts++) {
        ffns_apart(f, 1, parts, false);
        const struct pass pass = {UBATCH, 1, 0};
        struct step_times t[MAX_STEPS];
        plan_step_times(&f->plan, &f->shape, &pass, t);
        const struct step *steps = f->plan.steps[BATCH_PREFILL];
        assert_true(steps[7].phase == PHASE_IN && steps[14].phase == PHASE_OUT);
        const struct unit_part first[2] = {{PHASE_IN, parts, true, false},
                                           {PHASE_OUT, parts, true, false}},
                               last[2] = {{PHASE_IN, parts, false, true},
                                          {PHASE_OUT, parts, false, true}};
        const double r_ff = footprint_split_row(FF, parts), r = footprint_split_row(EMBD, parts);
        const double start_us = t[5].first_us, have_us = t[6].last_us; // residual sent; arrived
        const double gpu_in = start_us + part_us(f, GPU, first[0], &pass),
                     cpu_in = have_us + part_us(f, HOST, last[0], &pass);
        const double to_cpu = fmax(gpu_in, have_us) + 10 + UBATCH * 4 * r_ff / 2e3,
                     to_gpu = cpu_in + 10 + UBATCH * 4 * (FF - r_ff) / 1e3;
        const double gpu_out = fmax(gpu_in, to_gpu) + part_us(f, GPU, first[1], &pass),
                     cpu_out = fmax(cpu_in, to_cpu) + part_us(f, HOST, last[1], &pass);
        const double joined = fmax(gpu_out, cpu_out + 10 + UBATCH * 4 * (EMBD - r) / 1e3);
        assert_int_equal(steps[16].kind, STEP_WAIT);
        assert_near(t[16].last_us, joined);
    }
}

// A faster link, more bandwidth of any memory, or a faster device never makes a slower pass.
static void test_faster_parts_never_slow_down(void **state) {
    struct fixture *f = *state;
    for (uint64_t seed = 0; seed < N_RANDOM; seed++) {
        if (!invent(f, 7000 + seed, 40)) continue;
        const struct pass passes[] = {{1, 1, 100}, {20, 0, 0}, {f->plan.workload.n_ubatch, 0, 0}};
        f->other = f->plan;
        struct machine *m = &f->other.machine;
        const double factor = dice_real(&f->dice, 1, 3);
        switch (seed % 5) {
        case 0: m->dram_gbps *= factor; break;
        case 1:
            m->devices[GPU].link.to_gbps *= factor;
            m->devices[GPU].link.from_gbps *= factor;
            break;
        case 2: m->devices[GPU].link.latency_us /= factor; break;
        default:
            for (int t = 0; t < WEIGHT_COUNT; t++)
                for (int c = 0; c < RATE_CLASSES; c++)
                    m->devices[seed % 2].rates.weight_gbps[t][c] *= factor;
            m->devices[seed % 2].rates.vector_gbps *= factor;
        }
        for (size_t i = 0; i < sizeof passes / sizeof *passes; i++) {
            struct simulation before, after;
            plan_simulate(&f->plan, &f->shape, &passes[i], &before);
            plan_simulate(&f->other, &f->shape, &passes[i], &after);
            assert_true(after.total_us <= before.total_us * (1 + 1e-12));
            assert_true(after.period_us <= before.period_us * (1 + 1e-12));
            assert_true(before.period_us <= before.total_us);
            assert_true(before.hidden_copy_us >= 0 && before.hidden_copy_us <= before.copy_us);
            assert_true(before.total_us >= before.compute_us[HOST]);
            assert_true(before.total_us >= before.compute_us[GPU]);
        }
        struct prediction before, after;
        plan_predict(&f->plan, &f->shape, &before);
        plan_predict(&f->other, &f->shape, &after);
        assert_true(after.total_us <= before.total_us * (1 + 1e-12));
    }
}

// ---- What people see ----------------------------------------------------------------------------

static void assert_prints(const struct fixture *f, const char *const expected[], size_t n) {
    char *text = NULL;
    size_t length;
    FILE *out = open_memstream(&text, &length);
    assert_non_null(out);
    plan_print(&f->plan, &f->shape, out);
    plan_print_steps(&f->plan, &f->shape, BATCH_PREFILL, out);
    plan_print_steps(&f->plan, &f->shape, BATCH_ONE, out);
    fclose(out);
    for (size_t i = 0; i < n; i++)
        if (!strstr(text, expected[i])) fail_msg("no '%s' in\n%s", expected[i], text);
    free(text);
}

static void test_printed(void **state) {
    struct fixture *f = *state;
    ffns_apart(f, 6, 8, true);
    f->c.unit_streamed[4] = false; // 1: split only
    f->c.unit_cpu_parts[6] = 0;    // 2: streamed from the CPU
    f->c.unit_device[6] = HOST;
    f->c.unit_device[7] = HOST; // 3: its attention on the CPU
    f->c.unit_device[9] = HOST; // 4: likewise, and split only
    f->c.unit_streamed[10] = false;
    f->c.unit_cpu_parts[12] = 0; // 5: whole
    f->c.unit_streamed[12] = false;
    f->c.unit_cpu_parts[10] = 16;
    solve(f);
    static const char *const expected[] = {
        "\n    0 brsSRg\n",
        "r: the FFN's rows split between both",
        "s: the FFN on the CPU, in prefill streamed",
        "split by rows: 4 units, 8 to 16 of 32 parts on the CPU\n",
        "streamed in prefill: 3 units from pinned memory, through 2 slots of 0.10 MiB\n",
        " of their time hidden\n",
        " fetch    sim   blk.0.ffn to slot 0, 26112 bytes\n",
        " compute  sim   blk.2.ffn, 104960 bytes of weights, from slot 1\n",
        " compute  cpu   blk.1.ffn, first phase, 17920 bytes of weights\n",
        " compute  sim   blk.1.ffn, second phase, 26112 bytes of weights\n",
        " send     cpu   to sim blk.1.ffn hidden columns 192 to 255, 256 bytes per row\n",
        " wait     sim   for cpu blk.1.ffn residual\n",
        " send     cpu   to sim 512 bytes per row\n",
    };
    assert_prints(f, expected, sizeof expected / sizeof *expected);
    assert_int_equal(plan_layers_on_gpu(&f->plan, &f->shape), 2); // the last, and the head
    // A micro-batch that is too small to be streamed prints what it does.
    f->workload.n_ubatch = 8;
    solve(f);
    static const char *const small[] = {" compute  cpu   blk.2.ffn, 104960 bytes of weights\n"};
    assert_prints(f, small, 1);
}

// ---- Giving up what is on the accelerator
// --------------------------------------------------------

// Every step frees bytes there, and at last nothing is left; at no time is anything half done.
static void test_demotion(void **state) {
    struct fixture *f = *state;
    int n_rings = 0, n_splits = 0;
    for (uint64_t seed = 0; seed < N_RANDOM / 4; seed++) {
        if (!invent(f, seed, 14)) continue;
        for (;;) {
            const uint64_t before = plan_device_bytes(&f->plan, GPU);
            int32_t unit;
            f->other = f->plan;
            if (!planner_demote(&f->plan, &f->shape, &unit)) break;
            assert_true(plan_device_bytes(&f->plan, GPU) < before);
            if (unit == DEMOTED_RING) {
                for (int u = 0; u < f->plan.n_units; u++) assert_false(f->plan.unit_streamed[u]);
                assert_int_equal(f->plan.n_slots, 0);
                n_rings++;
            } else {
                assert_int_equal(f->other.unit_device[unit], GPU);
                assert_int_equal(f->plan.unit_device[unit], HOST);
                assert_int_equal(f->plan.unit_cpu_parts[unit], 0);
                n_splits += f->other.unit_cpu_parts[unit] > 0;
            }
            struct err e;
            f->other = f->plan;
            assert_int_equal(planner_complete(&f->plan, &f->shape, &e), OK);
            assert_memory_equal(&f->plan, &f->other, offsetof(struct plan, n_steps));
        }
        for (int u = 0; u < f->plan.n_units; u++) assert_int_equal(f->plan.unit_device[u], HOST);
    }
    assert_true(n_rings > N_RANDOM / 40);
    assert_true(n_splits > N_RANDOM / 40);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_what_can_be_split),
        cmocka_unit_test(test_bytes_of_a_split_unit),
        cmocka_unit_test(test_bytes_of_a_streamed_unit),
        cmocka_unit_test(test_steps_of_streamed_units),
        cmocka_unit_test(test_steps_of_split_units),
        cmocka_unit_test(test_steps_of_both),
        cmocka_unit_test(test_steps_of_whole_units),
        cmocka_unit_test(test_rings),
        cmocka_unit_test(test_steps_of_random_plans),
        cmocka_unit_test(test_cost_of_parts),
        cmocka_unit_test(test_streaming_is_bound_by_the_link),
        cmocka_unit_test(test_streaming_is_bound_by_computing),
        cmocka_unit_test(test_feeds),
        cmocka_unit_test(test_lanes_of_a_split_unit),
        cmocka_unit_test(test_faster_parts_never_slow_down),
        cmocka_unit_test(test_printed),
        cmocka_unit_test(test_demotion),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}

/* test_pipeline.c: every way of carrying a plan out gives the logits of the CPU alone, bit for bit
 * (the simulated device computes with the CPU's kernels), and every way of failing ends cleanly.
 *
 * Plans are random and given unit by unit: experts whole or streamed, FFNs and attention whole,
 * split, streamed, through each feed, in micro-batches of 1 to 512 tokens, over fast and slow
 * links. Faults come at the first copy, op or both, at a later one (1, 3, 7 or 11 further on), and
 * so forth until nothing fails; stalls at some commands.
 */
// link: wrap-alloc
#include "runtime/engine/engine.h"

#include "base/mem.h"
#include "runtime/engine/feed.h"
#include "runtime/host/devices.h"
#include "runtime/model/model_read.h"
#include "runtime/engine/trace.h"
#include "tests/lib/alloc_fail.h"
#include "tests/lib/slow.h"
#include "tests/sim/sim_device.h"
#include "tests/lib/tiny_model.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum {
    HOST,
    GPU,
    N_LAYERS = 3,
    N_UNITS = 2 * N_LAYERS + 2, // of the models in most tests
    N_CTX = 448,
    N_SESSIONS = 3,
    MAX_ROWS = 6,
    N_PLANS = SLOW ? 30 : 200,
    EXPERTS_MODEL = 4, // of MODELS, with N_UNITS
};

#define F16_CACHE DTYPE_F16, DTYPE_F16

// Heads of 32 make more queries than there are columns in the residual stream, and types with
// blocks want them.
// The last of four layers of smollm3 has no rotary positions.
static const struct {
    struct tiny_model tiny;
    enum dtype k_type, v_type; // of its cache
} MODELS[] = {
    {{.tied = true, .biased = true, .freqs = true}, F16_CACHE},
    {{.capped = true}, DTYPE_F32, DTYPE_F16},
    {{.biased = true, .freqs = true, .head_dim = 32}, DTYPE_Q8_0, DTYPE_Q8_0},
    {{.normed = true, .head_dim = 32}, DTYPE_F16, DTYPE_Q8_0},
    {{.biased = true, .freqs = true, .head_dim = 32, .n_experts = 4}, F16_CACHE},
    {{.architecture = "qwen2", .biased = true, .head_dim = 32}, DTYPE_Q4_0, DTYPE_Q4_0},
    {{.architecture = "qwen3", .normed = true}, F16_CACHE},
    {{.architecture = "granite", .scaled = true, .capped = true}, F16_CACHE},
    {{.architecture = "granitemoe", .scaled = true, .n_experts = 4, .shared = true}, F16_CACHE},
    {{.architecture = "glm4", .biased = true, .ends_with_norms = true}, F16_CACHE},
    {{.architecture = "ernie4_5", .head_dim = 32, .tied = true}, DTYPE_F16, DTYPE_Q4_0},
    {{.architecture = "phi3", .fused = true, .biased = true, .head_dim = 32}, F16_CACHE},
    {{.architecture = "gemma2", .ends_with_norms = true, .window = 100, .capped = true}, F16_CACHE},
    {{.architecture = "gemma3", .ends_with_norms = true, .normed = true, .window = 30}, F16_CACHE},
    {{.architecture = "gpt-oss", .sinks = true, .biased = true, .n_experts = 4, .window = 50},
     F16_CACHE},
    {{.architecture = "qwen3moe", .normed = true, .n_experts = 4}, F16_CACHE},
    {{.architecture = "qwen2moe", .n_experts = 4, .shared = true}, F16_CACHE},
    {{.biased = true, .halves = true, .head_dim = 32}, F16_CACHE},
    {{.biased = true, .halves = true, .n_experts = 4}, F16_CACHE},
    {{.n_experts = 4, .apart = true}, F16_CACHE},
    {{.architecture = "smollm3", .n_layers = 4, .tied = true}, F16_CACHE},
    {{.architecture = "mistral3", .tempered = true, .head_dim = 32}, DTYPE_Q4_0, DTYPE_Q8_0},
    {{.architecture = "qwen35", .normed = true, .delta_period = 2}, F16_CACHE},
    {{.architecture = "qwen35", .normed = true, .delta_period = 3, .head_dim = 32},
     DTYPE_Q8_0,
     DTYPE_Q8_0},
    {{.architecture = "qwen35moe",
      .normed = true,
      .n_experts = 4,
      .shared = true,
      .delta_period = 2},
     F16_CACHE},
    {{.architecture = "qwen3next",
      .normed = true,
      .n_experts = 4,
      .shared = true,
      .delta_period = 2,
      .joined = true},
     F16_CACHE},
    {{.architecture = "deepseek2", .latent_rank = 40, .low_queries = true}, DTYPE_F16, DTYPE_F32},
    {{.architecture = "deepseek2", .latent_rank = 40, .tempered = true}, DTYPE_F16, DTYPE_F32},
    {{.architecture = "deepseek2", .latent_rank = 56, .n_experts = 4, .shared = true},
     DTYPE_Q8_0,
     DTYPE_F16},
    {{.architecture = "lfm2", .delta_period = 2, .convolves = true, .normed = true, .tied = true},
     F16_CACHE},
    {{.architecture = "granitehybrid",
      .delta_period = 3,
      .scans = true,
      .scaled = true,
      .n_experts = 4,
      .shared = true},
     DTYPE_F16,
     DTYPE_F32},
    {{.architecture = "falcon-h1", .delta_period = 1, .scans_beside = true, .head_dim = 32},
     DTYPE_Q8_0,
     DTYPE_F16},
    {{.architecture = "hunyuan-dense", .normed = true}, F16_CACHE},
    {{.architecture = "olmo2",
      .no_norms = true,
      .ends_with_norms = true,
      .normed = true,
      .normed_whole = true,
      .window = 60},
     F16_CACHE},
    {{.architecture = "exaone4",
      .no_norms = true,
      .ends_with_norms = true,
      .normed = true,
      .window = 30},
     F16_CACHE},
    {{.architecture = "exaone-moe", .normed = true, .n_experts = 4, .window = 30}, F16_CACHE},
    {{TINY_AFMOE, .n_experts = 4, .shared = true, .window = 30, .head_dim = 32},
     DTYPE_F16,
     DTYPE_Q8_0},
    {{TINY_LAGUNA, .n_experts = 4, .shared = true, .window = 30}, DTYPE_Q8_0, DTYPE_F16},
    {{.architecture = "plm", .latent_rank = 40, .ungated = true, .tied = true},
     DTYPE_F16,
     DTYPE_F32},
    {{.architecture = "cohere2", .side_by_side = true, .capped = true, .window = 40}, F16_CACHE},
    {{.architecture = "starcoder2", .biased = true, .norm_biases = true, .ungated = true},
     F16_CACHE},
    {{.architecture = "stablelm", .norm_biases = true}, F16_CACHE},
    {{.architecture = "phi2",
      .biased = true,
      .norm_biases = true,
      .ungated = true,
      .side_by_side = true,
      .head_dim = 32},
     DTYPE_Q8_0,
     DTYPE_Q8_0},
    {{.architecture = "ernie4_5-moe", .n_experts = 4, .selected = true, .shared = true}, F16_CACHE},
    {{.architecture = "gemma4",
      .ends_with_norms = true,
      .normed = true,
      .freqs = true,
      .window = 30,
      .head_dim = 32,
      .local_head_dim = 16,
      .n_layers = 6,
      .n_sharing = 3,
      .n_inputs = 16},
     F16_CACHE},
    {{.architecture = "gemma4",
      .ends_with_norms = true,
      .normed = true,
      .window = 50,
      .n_experts = 4,
      .beside = true},
     F16_CACHE},
};
enum { N_MODELS = sizeof MODELS / sizeof *MODELS };

struct model_file {
    char path[64];
    enum dtype k_type, v_type;
    int n_units;
    int per_layer;     // units: attention, then a dense FFN, experts, or both
    bool has_experts;  // the last of a layer, which are not split
    int first_sharing; // layer from which on attention reads the cache of an earlier layer
    int delta_period;  // delta nets and gated attention are whole; 0: the model has none
    bool is_latent;    // attention is, which is whole
    float *expected;   // [N_CTX, TINY_VOCAB], after each token, alone on the CPU
};

struct fixture {
    struct model_file models[N_MODELS];
    int32_t tokens[N_CTX]; // of every timeline
    struct engine_options options;
    uint64_t random;
    int32_t left, n_cancelled; // tells of prompts until one is refused; how often that was
    int copies;                // calls after the third before which a session is copied
};

static bool listen(void *context, const char *what, uint64_t done, uint64_t total) {
    struct fixture *f = context;
    assert_true(done <= total);
    if (strcmp(what, "prefill") != 0 || f->left-- > 0) return true;
    f->left = INT32_MAX;
    f->n_cancelled++;
    return false;
}

static int32_t below(struct fixture *f, int32_t n) { // xorshift64*, Vigna 2016
    f->random ^= f->random >> 12;
    f->random ^= f->random << 25;
    f->random ^= f->random >> 27;
    return (int32_t)((f->random * 0x2545f4914f6cdd1du >> 33) % (uint64_t)n);
}

static struct engine *open_ok(const struct engine_options *o) {
    struct engine *en;
    struct err e;
    char text[1024];
    if (engine_open(&en, o, &e)) fail_msg("%s", err_text(&e, text, sizeof text));
    return en;
}

static struct engine_options options_for(const struct fixture *f, const struct model_file *m) {
    struct engine_options o = f->options;
    o.model_path = m->path;
    o.workload.kv_type_k = m->k_type;
    o.workload.kv_type_v = m->v_type;
    return o;
}

static void compute_expected(struct fixture *f, struct model_file *m) {
    struct engine_options o = options_for(f, m);
    struct session *s;
    struct err e;
    struct batch_item items[N_CTX];
    o.device_spec = "none";
    o.workload.n_ubatch = o.workload.max_logits = N_CTX;
    struct engine *en = open_ok(&o);
    assert_int_equal(session_new(&s, en, &e), OK);
    for (int i = 0; i < N_CTX; i++) items[i] = (struct batch_item){s, f->tokens[i], true};
    assert_int_equal(engine_eval(en, items, N_CTX, &e), OK);
    memcpy(m->expected, engine_logits(en, 0), N_CTX * TINY_VOCAB * sizeof(float));
    session_free(s);
    engine_close(en);
}

static int setup(void **state) {
    struct fixture *f = mem_alloc(1, sizeof *f);
    if (!f) return -1;
    *state = f;
    f->random = 20261121;
    f->left = INT32_MAX;
    for (int i = 0; i < N_CTX; i++) f->tokens[i] = (i * 37 + i * i * 11) % 256;
    f->options = (struct engine_options){
        .device_spec = "sim:vram=16M",
        .drivers = &sim_driver,
        .n_drivers = 1,
        .cpu = {.isa = ISA_AUTO, .n_threads = 1},
        .workload = {.n_ctx = N_CTX, .max_logits = MAX_ROWS, .n_sessions = N_SESSIONS},
        .progress = {listen, f},
        .constraints = {.gpu_layers = GPU_LAYERS_AUTO, .has_units = true, .has_placement = true},
    };
    for (int i = 0; i < N_MODELS; i++) {
        struct model_file *m = &f->models[i];
        struct tiny_model tiny = MODELS[i].tiny;
        snprintf(m->path, sizeof m->path, "/tmp/tandem_test_pipeline.%d.%d.gguf", (int)getpid(), i);
        m->k_type = MODELS[i].k_type;
        m->v_type = MODELS[i].v_type;
        m->has_experts = tiny.n_experts > 0;
        m->per_layer = tiny.shared || tiny.beside ? 3 : 2;
        if (!tiny.n_layers) tiny.n_layers = N_LAYERS;
        m->n_units = m->per_layer * tiny.n_layers + 2;
        m->first_sharing = tiny.n_layers - tiny.n_sharing;
        m->delta_period = tiny.delta_period;
        m->is_latent = tiny.latent_rank;
        tiny.seed = 3;
        tiny_model_write(&tiny, m->path);
        m->expected = mem_alloc(N_CTX * TINY_VOCAB, sizeof *m->expected);
        if (!m->expected) return -1;
        compute_expected(f, m);
    }
    return 0;
}

static int teardown(void **state) {
    struct fixture *f = *state;
    for (int i = 0; i < N_MODELS; i++) {
        unlink(f->models[i].path);
        mem_free(f->models[i].expected);
    }
    mem_free(f);
    return 0;
}

// ---- Plans --------------------------------------------------------------------------------------

static bool is_layer(const struct model_file *m, int u) { return u > 0 && u < m->n_units - 1; }

static bool is_attention(const struct model_file *m, int u) {
    return is_layer(m, u) && u % m->per_layer == 1;
}

static bool is_experts(const struct model_file *m, int u) {
    return is_layer(m, u) && m->has_experts && u % m->per_layer == 0;
}

static bool can_be_split(const struct model_file *m, int u) {
    if (is_attention(m, u)) return !m->delta_period && !m->is_latent;
    return is_layer(m, u) && !is_experts(m, u);
}

// True for experts, for gated attention, between delta nets, and for latent attention: none of them
// can be split.
static bool streams_whole(const struct model_file *m, int u) {
    const int layer = (u - 1) / m->per_layer;
    if (is_experts(m, u)) return true;
    if (m->is_latent) return is_attention(m, u);
    return is_attention(m, u) && m->delta_period > 1 && (layer + 1) % m->delta_period == 0;
}

// Places a unit at random; the CPU gets all of an FFN or attention, or some parts.
static void random_unit(struct fixture *f, struct constraints *c, int u, bool never_on_cpu) {
    c->place.units[u].cpu_parts = 0;
    c->place.units[u].device = (int8_t)below(f, 2);
    if (c->place.units[u].device == GPU && below(f, 2))
        c->place.units[u].cpu_parts = (uint8_t)(1 + below(f, UNIT_PARTS - 1));
    const bool cpu_has = c->place.units[u].device == HOST || c->place.units[u].cpu_parts > 0;
    c->place.units[u].streamed = cpu_has && (never_on_cpu || below(f, 2));
}

// Places attention that reads an earlier cache with the layer that has it, of every second one.
static void follow_caches(const struct model_file *m, struct constraints *c, bool ahead) {
    for (int l = m->first_sharing; l < (m->n_units - 2) / m->per_layer; l++) {
        const int leader = m->first_sharing - 1 - (l - m->first_sharing + 1) % 2;
        struct unit_place *of_leader = &c->place.units[1 + leader * m->per_layer];
        of_leader->streamed = false;
        if (ahead) *of_leader = (struct unit_place){.device = GPU};
        c->place.units[1 + l * m->per_layer] = (struct unit_place){.device = of_leader->device};
    }
}

// ahead: a plan with which micro-batches run ahead of the accelerator.
static void random_ways(struct fixture *f, const struct model_file *m, struct engine_options *o,
                        bool ahead) {
    struct constraints *c = &o->constraints;
    for (int u = 0; u < m->n_units; u++) {
        if (can_be_split(m, u)) {
            random_unit(f, c, u, ahead);
            continue;
        }
        c->place.units[u].cpu_parts = 0;
        c->place.units[u].streamed = false;
        c->place.units[u].device = (int8_t)(ahead && u > 0 ? GPU : below(f, 2));
        if (!streams_whole(m, u) || !below(f, 2)) continue;
        c->place.units[u].device = HOST;
        c->place.units[u].streamed = true;
    }
    follow_caches(m, c, ahead);
    c->place.feed = (enum feed)(FEED_ARENA + below(f, FEEDS - FEED_ARENA));
    const int32_t sizes[] = {1 + below(f, 32), 33 + below(f, 64), 1 + below(f, 512)};
    o->workload.n_ubatch = sizes[below(f, 3)];
    static const char *const links[] = {"", ",d2h=8M,reach=1", ",h2d=60M",
                                        ",d2h=30M,h2d=90M,reach=1"};
    static char spec[64];
    snprintf(spec, sizeof spec, "sim:vram=16M%s", links[below(f, 4)]);
    o->device_spec = spec;
}

// One of everything: units on both devices, FFNs and attention split, streamed, and both.
static void all_ways(struct constraints *c, enum feed feed) {
    const int8_t devices[N_UNITS] = {HOST, GPU, GPU, HOST, HOST, GPU, GPU, HOST};
    c->place = (struct placement){0};
    for (int u = 0; u < N_UNITS; u++) c->place.units[u].device = devices[u];
    c->place.units[2].cpu_parts = c->place.units[6].cpu_parts = 12;
    c->place.units[1].cpu_parts = c->place.units[5].cpu_parts = 16;
    c->place.units[3].streamed = c->place.units[5].streamed = true;
    c->place.units[4].streamed = c->place.units[6].streamed = true;
    c->place.feed = feed;
}

// Everything but the embedding is computed on the accelerator, in slots.
static void ahead_ways(struct constraints *c, enum feed feed) {
    all_ways(c, feed);
    c->place.units[1].device = HOST;
    c->place.units[1].cpu_parts = 0;
    c->place.units[N_UNITS - 1].device = GPU;
    for (int u = 1; u < N_UNITS - 1; u++) c->place.units[u].streamed = true;
}

// ---- Running ------------------------------------------------------------------------------------

struct rows { // whose logits were wanted in one call
    int32_t positions[MAX_ROWS];
    int n;
};

// Feeds each session its next counts[i] tokens in one call, mixed; logits are wanted of some of
// them and of the last.
static enum status feed_sessions(struct fixture *f, struct engine *en, struct session **sessions,
                                 const int32_t *counts, struct rows *rows, struct err *e) {
    static struct batch_item items[N_SESSIONS * N_CTX];
    int32_t left[N_SESSIONS], n = 0, total = 0;
    for (int i = 0; i < N_SESSIONS; i++) total += left[i] = counts[i];
    rows->n = 0;
    while (n < total) {
        const int i = below(f, N_SESSIONS);
        for (int32_t k = 1 + below(f, 40); k > 0 && left[i] > 0; k--, left[i]--) {
            const int32_t at = session_length(sessions[i]) + counts[i] - left[i];
            const bool last = n == total - 1;
            const bool want = last || (rows->n < MAX_ROWS - 1 && below(f, 30) == 0);
            if (want) rows->positions[rows->n++] = at;
            items[n++] = (struct batch_item){sessions[i], f->tokens[at], want};
        }
    }
    return engine_eval(en, items, n, e);
}

static void expect_rows(const struct model_file *m, const struct engine *en,
                        const struct rows *rows, const char *what) {
    for (int i = 0; i < rows->n; i++) {
        const float *expected = m->expected + (size_t)rows->positions[i] * TINY_VOCAB;
        if (memcmp(expected, engine_logits(en, i), TINY_VOCAB * sizeof(float)) != 0)
            fail_msg("%s: other logits at position %d", what, rows->positions[i]);
    }
}

static void describe(const struct model_file *m, const struct engine_options *o, int number,
                     char *out, size_t size_bytes) {
    const struct constraints *c = &o->constraints;
    int n = snprintf(out, size_bytes, "plan %d, feed %s, -ub %d:", number, feed_name(c->place.feed),
                     o->workload.n_ubatch);
    for (int u = 0; u < m->n_units; u++)
        n += snprintf(out + n, size_bytes - (size_t)n, " %d/%d%s", c->place.units[u].device,
                      c->place.units[u].cpu_parts, c->place.units[u].streamed ? "s" : "");
}

static void check_books(const struct engine *en) {
    struct memory_row rows[16];
    const int32_t n = engine_memory(en, rows, 16);
    uint64_t planned[2] = {0};
    assert_int_equal(n, 2 * PURPOSE_COUNT);
    for (int i = 0; i < n; i++) {
        assert_int_equal(rows[i].planned_bytes, rows[i].allocated_bytes);
        planned[i / PURPOSE_COUNT] += rows[i].planned_bytes;
    }
    for (int d = 0; d < 2; d++) assert_int_equal(planned[d], engine_peak_bytes(en, d));
}

// How many tokens each timeline gets in a call: a long prompt for one and shorter ones for the
// others, some tokens, more of a prompt, and one after the other.
static void count_tokens(struct fixture *f, int call, int32_t counts[N_SESSIONS]) {
    const int longest = below(f, N_SESSIONS);
    for (int i = 0; i < N_SESSIONS; i++) {
        counts[i] = 0;
        if (call == 0) counts[i] = below(f, i == longest ? 300 : 130);
        if (call == 1) counts[i] = 1 + below(f, 8);
        if (call == 2) counts[i] = below(f, 60);
    }
    if (call > 2) counts[call - 3] = 1;
    counts[0] += call == 0 || call == 2;
}

// Ends the first session and puts a copy of the last in its place, which then forgets its end too.
static void replace_first(struct fixture *f, struct engine *en, struct session **sessions) {
    struct session *last = sessions[N_SESSIONS - 1];
    struct err e;
    session_free(sessions[0]);
    assert_int_equal(session_new(&sessions[0], en, &e), OK);
    if (session_copy(sessions[0], last, &e)) fail_msg("%s", e.what);
    assert_int_equal(session_length(sessions[0]), session_length(last));
    if (below(f, 2)) session_truncate(sessions[0], below(f, 1 + session_length(last)));
}

// Calls for up to three timelines, of which the last forgets its end in between and is copied; the
// first prompt may be stopped anywhere and is fed again. Returns whether micro-batches ran ahead.
static bool run_plan(struct fixture *f, const struct model_file *m, const struct engine_options *o,
                     const char *what) {
    struct engine *en = open_ok(o);
    struct session *sessions[N_SESSIONS];
    struct err e;
    struct rows rows;
    check_books(en);
    for (int i = 0; i < N_SESSIONS; i++) assert_int_equal(session_new(&sessions[i], en, &e), OK);
    for (int call = 0; call < 3 + N_SESSIONS; call++) {
        int32_t counts[N_SESSIONS];
        struct session *last = sessions[N_SESSIONS - 1];
        count_tokens(f, call, counts);
        if (call == 2) session_truncate(last, below(f, session_length(last)));
        if (call == 2 + f->copies) replace_first(f, en, sessions);
        if (call == 0) f->left = below(f, 10);
        alloc_fail_at(1);
        enum status status = feed_sessions(f, en, sessions, counts, &rows, &e);
        if (status == ERR_CANCELLED) status = feed_sessions(f, en, sessions, counts, &rows, &e);
        f->left = INT32_MAX;
        const bool allocated = alloc_fail_happened();
        alloc_fail_at(0);
        assert_false(allocated);
        if (status) fail_msg("%s: %s", what, e.what);
        expect_rows(m, en, &rows, what);
    }
    const bool runs_ahead = engine_plan(en)->runs_ahead;
    for (int i = 0; i < N_SESSIONS; i++) session_free(sessions[i]);
    engine_close(en);
    return runs_ahead;
}

// [attention][split][streamed]: units of all plans. The few plans under sanitizers have some of
// each.
static void check_ways(const int n[2][2][2]) {
    const int least = SLOW ? 0 : N_PLANS / 8;
    for (int attention = 0; attention < 2; attention++) {
        assert_true(n[attention][0][1] > least);
        assert_true(n[attention][1][0] > least);
        assert_true(n[attention][1][1] > least);
    }
}

static void test_random_plans(void **state) {
    struct fixture *f = *state;
    int n_ahead = 0, n[2][2][2] = {0};
    for (int i = 0; i < N_PLANS; i++) {
        const struct model_file *m = &f->models[below(f, N_MODELS)];
        struct engine_options o = options_for(f, m);
        char what[256];
        random_ways(f, m, &o, i % 3 == 0);
        f->copies = i % 2; // before the shortened session is fed, or after
        describe(m, &o, i, what, sizeof what);
        n_ahead += run_plan(f, m, &o, what);
        for (int u = 1; u < m->n_units - 1; u++) {
            const struct constraints *c = &o.constraints;
            if (!can_be_split(m, u)) continue;
            n[is_attention(m, u)][c->place.units[u].cpu_parts > 0][c->place.units[u].streamed]++;
        }
    }
    check_ways(n);
    assert_true(n_ahead > N_PLANS / 4);
    assert_true(f->n_cancelled > N_PLANS / 3);
}

// Every experts unit streamed, one after the other and all at once, through each feed.
static void test_streamed_experts(void **state) {
    struct fixture *f = *state;
    for (int i = 0; i < N_MODELS; i += SLOW ? 4 : 1) {
        const struct model_file *m = &f->models[i];
        const int n_layers = (m->n_units - 2) / m->per_layer;
        for (int layer = 0; layer <= n_layers && m->has_experts; layer++) {
            struct engine_options o = options_for(f, m);
            struct constraints *c = &o.constraints;
            char what[256];
            for (int u = 0; u < m->n_units; u++) {
                const bool streams =
                    is_experts(m, u) && (layer == n_layers || (u - 1) / m->per_layer == layer);
                c->place.units[u] =
                    (struct unit_place){.device = streams ? HOST : GPU, .streamed = streams};
            }
            c->place.feed = layer % 2 ? FEED_STAGED : FEED_ARENA;
            o.workload.n_ubatch = 40 + below(f, 100);
            describe(m, &o, i, what, sizeof what);
            assert_true(run_plan(f, m, &o, what));
        }
    }
}

// Every split point, and the CPU's team with more than one lane.
static void test_split_points(void **state) {
    struct fixture *f = *state;
    const struct model_file *m = &f->models[3];
    struct engine_options o = options_for(f, m);
    all_ways(&o.constraints, FEED_ARENA);
    for (int parts = 1; parts < UNIT_PARTS; parts += SLOW ? 10 : 3) {
        char what[256];
        static const int split[] = {1, 2, 5, 6};
        for (int i = 0; i < 4; i++) o.constraints.place.units[split[i]].cpu_parts = (uint8_t)parts;
        o.workload.n_ubatch = 1 + below(f, 100);
        o.cpu.n_threads = 1 + parts % 2;
        describe(m, &o, parts, what, sizeof what);
        run_plan(f, m, &o, what);
    }
}

// ---- Failures -----------------------------------------------------------------------------------

// Copies the session to a new one. Whatever happens to the device, neither gets another length but
// that.
static enum status copy_short(struct engine *en, const struct session *s, struct err *e) {
    struct session *other;
    const int32_t length = session_length(s);
    assert_int_equal(session_new(&other, en, e), OK);
    const enum status status = session_copy(other, s, e);
    assert_int_equal(session_length(s), length);
    assert_int_equal(session_length(other), status ? 0 : length);
    if (!status) assert_int_equal(session_copy(other, s, e), ERR_USAGE);
    session_free(other);
    return status;
}

// Opens, runs a prompt of two micro-batches, copies the session, runs one token, and closes.
static enum status run_short(struct fixture *f, const struct engine_options *o, struct err *e) {
    struct engine *en;
    struct session *s;
    if (engine_open(&en, o, e)) return e->status;
    assert_int_equal(session_new(&s, en, e), OK);
    const int32_t counts[] = {80, 1};
    struct batch_item items[80];
    enum status status = OK;
    for (int call = 0; call < 2 && !status; call++) {
        const int32_t before = session_length(s);
        for (int32_t i = 0; i < counts[call]; i++)
            items[i] = (struct batch_item){s, f->tokens[before + i], i == counts[call] - 1};
        if (call == 1) status = copy_short(en, s, e);
        if (status) break;
        status = engine_eval(en, items, counts[call], e);
        if (!status) continue;
        struct err again;
        assert_int_equal(session_length(s), before);
        assert_non_null(strstr(e->what, "waiting for"));
        assert_int_equal(engine_eval(en, items, 1, &again), ERR_DEVICE);
    }
    session_free(s);
    engine_close(en);
    return status;
}

// Experts streamed before and behind experts on each device.
static struct engine_options experts_options(const struct fixture *f, enum feed feed) {
    const int8_t devices[N_UNITS] = {HOST, GPU, HOST, HOST, GPU, GPU, HOST, GPU};
    struct engine_options o = options_for(f, &f->models[EXPERTS_MODEL]);
    struct placement *place = &o.constraints.place;
    o.workload.n_ubatch = 40;
    o.strict = true;
    *place = (struct placement){.feed = feed};
    for (int u = 0; u < N_UNITS; u++) place->units[u].device = devices[u];
    place->units[2].streamed = place->units[3].streamed = place->units[6].streamed = true;
    return o;
}

static struct engine_options short_options(const struct fixture *f, bool ahead, enum feed feed) {
    struct engine_options o = options_for(f, &f->models[0]);
    o.workload.n_ubatch = 40;
    o.strict = true;
    if (ahead)
        ahead_ways(&o.constraints, feed);
    else
        all_ways(&o.constraints, feed);
    return o;
}

// The nth copy, the nth op, and a device that is lost at the nth of both, until nothing fails.
static void test_faults(void **state) {
    struct fixture *f = *state;
    static const char *const kinds[] = {"copy", "op", "lost"};
    for (int i = 0; i < 3 * 6; i++) {
        const int kind = i / 6, way = i % 6;
        struct engine_options o = short_options(f, way % 2, way < 2 ? FEED_ARENA : FEED_STAGED);
        if (way >= 4) o = experts_options(f, way % 2 ? FEED_STAGED : FEED_ARENA);
        enum status status = ERR_DEVICE;
        const int step = SLOW ? 11 : way == 1 || way == 2 ? 7 : kind ? 3 : 1;
        for (int n = 1; status; n += step) {
            struct err e = {0};
            char spec[64];
            snprintf(spec, sizeof spec, "sim:vram=16M,fail=%s:%d%s", kinds[kind], n,
                     way == 1 || way == 2 ? ",reach=1" : "");
            o.device_spec = spec;
            status = run_short(f, &o, &e);
            if (!status) assert_true(n > 30);
            if (!status) break;
            assert_int_equal(status, ERR_DEVICE);
            assert_non_null(strstr(e.what, "sim"));
        }
    }
}

#if defined(__SANITIZE_ADDRESS__)
// The contexts of calls of a lost device, and the files that they read, are left to the process's
// end. The sanitizer's library looks the function up, so it must not be hidden.
__attribute__((visibility("default"))) const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void) {
    return "leak:open_chunks\nleak:upload_open\nleak:gguf_open";
}
#endif

// A command that hangs: the wait for it ends, names a step, and nothing waits for it again.
static void test_stalls(void **state) {
    struct fixture *f = *state;
    for (int way = 0; way < 4; way++) {
        struct engine_options o = short_options(f, way % 2, way < 2 ? FEED_ARENA : FEED_STAGED);
        o.wait_limit_s = 0.1;
        for (int n = 80; n < 140; n += SLOW ? 40 : 20) { // loading takes fewer
            struct err e = {0};
            char spec[64];
            snprintf(spec, sizeof spec, "sim:vram=16M,stall=%d:1%s", n, way % 2 ? ",reach=1" : "");
            o.device_spec = spec;
            assert_int_equal(run_short(f, &o, &e), ERR_DEVICE);
            assert_non_null(strstr(e.what, "no answer"));
            assert_non_null(strstr(e.what, "waiting for "));
        }
    }
    sleep(1); // what hung ends before the sanitizers look for what is left
}

// While the CPU waits for attention that is split, that is what the message names. Which command is
// the nth depends on how the streams get along, so some are tried.
static void test_stall_names(void **state) {
    struct fixture *f = *state;
    struct engine_options o = short_options(f, false, FEED_ARENA);
    bool named = false;
    o.wait_limit_s = 0.1;
    for (int n = 40; n < 100 && !named; n++) {
        struct err e = {0};
        char spec[64];
        snprintf(spec, sizeof spec, "sim:vram=16M,stall=%d:1", n);
        o.device_spec = spec;
        assert_int_equal(run_short(f, &o, &e), ERR_DEVICE);
        named = strstr(e.what, "waiting for what was attended to in blk.0.attention") != NULL;
    }
    assert_true(named);
    sleep(1);
}

// Every allocation of engine_open refused in turn, with a ring, blocks, splits and a trace.
static void test_refused_allocations(void **state) {
    struct fixture *f = *state;
    struct engine_options o = short_options(f, false, FEED_STAGED);
    o.trace_spans = 100;
    const int64_t mapped_bytes = alloc_fail_mapped_bytes(); // left to lost devices
    int n = 1;
    for (;; n++) {
        struct engine *en;
        struct err e = {0};
        alloc_fail_at(n);
        const enum status status = engine_open(&en, &o, &e);
        const bool happened = alloc_fail_happened();
        alloc_fail_at(0);
        if (status == OK) engine_close(en);
        assert_int_equal(alloc_fail_mapped_bytes(), mapped_bytes);
        if (!happened) break;
        assert_int_equal(status, ERR_MEMORY);
    }
    assert_true(n > 100);
}

// ---- The feed alone -----------------------------------------------------------------------------

// A feeder for a plan with one of everything.
struct feed_rig {
    struct gguf gguf;
    struct device *devices[MAX_DEVICES];
    struct model *model;
    struct shape *shape;
    struct plan *plan;
    struct weights weights;
    struct buffer caches[N_UNITS];
    struct feeder feeder;
};

// block_bytes 0: as planned.
static void open_feed(struct feed_rig *r, const struct engine_options *o, uint64_t block_bytes) {
    struct err e;
    int32_t n_devices;
    *r = (struct feed_rig){.model = mem_alloc(1, sizeof *r->model),
                           .shape = mem_alloc(1, sizeof *r->shape),
                           .plan = mem_alloc(1, sizeof *r->plan)};
    assert_true(r->model && r->shape && r->plan);
    assert_int_equal(gguf_open(&r->gguf, o->model_path, &e), OK);
    assert_int_equal(model_read(r->model, r->shape, &r->gguf, &e), OK);
    assert_int_equal(devices_open(r->devices, &n_devices, o, &e), OK);
    assert_int_equal(devices_plan(r->plan, r->shape, r->devices, n_devices, o, &e), OK);
    if (block_bytes) r->plan->n_blocks = 3;
    if (block_bytes) r->plan->block_bytes = block_bytes;
    const struct placed_model placed = {r->model, r->shape, r->plan, r->devices};
    for (int u = 0; u < N_UNITS; u++)
        assert_int_equal(buffer_new(r->devices[r->plan->place.units[u].device],
                                    r->plan->unit_kv_bytes[u], PURPOSE_KV, &r->caches[u], &e),
                         OK);
    assert_int_equal(weights_open(&r->weights, &placed, &e), OK);
    assert_int_equal(feed_open(&r->feeder, &placed, &r->weights, r->caches, &e), OK);
    assert_int_equal(weights_load(&r->weights, &placed, o, &e), OK);
}

static void close_feed(struct feed_rig *r) {
    feed_close(&r->feeder);
    weights_close(&r->weights);
    for (int u = 0; u < N_UNITS; u++) buffer_free(&r->caches[u]);
    devices_close(r->devices);
    gguf_close(&r->gguf);
    mem_free(r->model);
    mem_free(r->shape);
    mem_free(r->plan);
}

static void expect_in_slot(struct feed_rig *r, const void *device, const void *expected,
                           uint64_t size_bytes) {
    struct err e;
    char got[TINY_EMBD * TINY_FF * 2];
    assert_true(size_bytes <= sizeof got);
    stream_copy(r->feeder.fetch, got, device, size_bytes, COPY_FROM_DEVICE);
    assert_int_equal(stream_wait(r->feeder.fetch, &e), OK);
    assert_memory_equal(got, expected, size_bytes);
}

// Blocks much smaller than a tensor, and more fetches than slots: every byte arrives, and nothing
// that the accelerator has anyway.
static void test_small_blocks(void **state) {
    struct fixture *f = *state;
    const struct engine_options o = short_options(f, false, FEED_STAGED);
    static const int32_t units[] = {3, 4, 5, 6, 6, 3, 5};
    struct feed_rig r;
    open_feed(&r, &o, 1000);
    for (int i = 0; i < 7; i++) {
        const int32_t u = units[i], slot = i % RING_SLOTS;
        const bool split = r.plan->place.units[u].cpu_parts > 0;
        struct weight bound[MAX_UNIT_TENSORS];
        feed_begin(&r.feeder, slot);
        feed_fetch(&r.feeder, u, slot);
        feed_bind(&r.feeder, u, slot, bound);
        const struct unit *unit = &r.shape->units[u];
        const struct weight *source = weights_of_cpu(&r.weights, u, split);
        for (int w = 0; w < MAX_UNIT_TENSORS; w++) {
            const bool here = w < unit->n_tensors && (!split || unit_is_cut(&unit->tensors[w]));
            assert_int_equal(bound[w].n_rows > 0, here);
            if (!here) continue;
            assert_int_equal(bound[w].first_row, source[w].first_row);
            expect_in_slot(
                &r, bound[w].data, source[w].data,
                dtype_bytes(source[w].type, (uint64_t)(source[w].n_cols * source[w].n_rows)));
        }
    }
    close_feed(&r);
}

// Two sessions whose pages lie crosswise, each with a part of a page behind it, whose tokens take
// turns in the batch. role[row] gets 1 for what the batch sees and 2 for what it adds.
static void batch_of_two(struct feed_rig *r, uint8_t *role) {
    enum { ADDED = 90, PAGES = (N_CTX + KV_PAGE - 1) / KV_PAGE };
    static const int32_t first[] = {70, 10};
    int32_t pages[N_SESSIONS * PAGES] = {0}, positions[2 * ADDED], sequences[2 * ADDED];
    for (int i = 0; i < 3; i++) pages[i] = 4 + 2 * i, pages[PAGES + i] = 7 - 2 * i;
    for (int i = 0; i < 2 * ADDED; i++) {
        sequences[i] = i % 2;
        positions[i] = first[i % 2] + i / 2;
    }
    const struct batch_tables tables = {
        .positions = positions, .sequences = sequences, .pages = pages};
    feed_batch(&r->feeder, &tables, 2 * ADDED);
    assert_int_equal(r->feeder.rows.n_past_rows, first[0] + first[1]);
    for (int32_t s = 0; s < 2; s++)
        for (int32_t at = 0; at < first[s] + ADDED; at++)
            role[pages[s * PAGES + at / KV_PAGE] * KV_PAGE + at % KV_PAGE] = at < first[s] ? 1 : 2;
}

// Rows with the role moved are as in source, which is laid out as from says; all others hold 0xee.
static void expect_cache(const struct kv_layout *layout, const uint8_t *cache,
                         const struct kv_layout *from, const uint8_t *source, const uint8_t *role,
                         uint8_t moved) {
    const int32_t n_rows = N_SESSIONS * ((N_CTX + KV_PAGE - 1) / KV_PAGE) * KV_PAGE;
    for (int values = 0; values < 2; values++) {
        const uint64_t row_bytes = values ? layout->v_row_bytes : layout->k_row_bytes;
        for (int32_t row = 0; row < n_rows; row++) {
            const uint64_t at = (uint64_t)row * row_bytes;
            const uint8_t *got = cache + (values ? layout->values : 0) + at;
            const uint8_t *expected = source + (values ? from->values : 0) + at;
            for (uint64_t i = 0; i < row_bytes; i++)
                assert_int_equal(got[i], role[row] == moved ? expected[i] : 0xee);
        }
    }
}

// The rows that the batch reads arrive in the slot, and those that it adds come back, not a row
// more.
static void test_caches(void **state) {
    struct fixture *f = *state;
    const struct engine_options o = short_options(f, false, FEED_ARENA);
    const int32_t u = 3, slot = 1;
    struct feed_rig r;
    struct err e;
    struct stream *out;
    open_feed(&r, &o, 0);
    for (int32_t other = 0; other < N_UNITS; other++)
        assert_int_equal(feed_moves_cache(&r.feeder, other), other == u);
    const struct unit *unit = &r.shape->units[u];
    const struct kv_layout on_host =
        kv_layout_of(&r.plan->workload, unit, r.devices[HOST]->info.align_bytes);
    const struct kv_layout in_slot =
        kv_layout_of(&r.plan->workload, unit, r.devices[GPU]->info.align_bytes);
    const uint64_t size_bytes =
        footprint_unit_kv(unit, &r.plan->workload, &r.plan->machine.devices[GPU]);
    const uint64_t host_bytes = r.plan->unit_kv_bytes[u];
    uint8_t *role = mem_alloc((size_t)workload_pages(&r.plan->workload) * KV_PAGE, 1);
    uint8_t *copy = mem_alloc(size_bytes, 1), *cache = r.caches[u].base;
    assert_true(role && copy);
    batch_of_two(&r, role);
    void *device = feed_cache(&r.feeder, u, slot);

    memset(copy, 0xee, size_bytes);
    for (uint64_t i = 0; i < host_bytes; i++) cache[i] = (uint8_t)(i * 7 + i / 256);
    stream_copy(r.feeder.fetch, device, copy, size_bytes, COPY_TO_DEVICE);
    feed_fetch(&r.feeder, u, slot);
    stream_copy(r.feeder.fetch, copy, device, size_bytes, COPY_FROM_DEVICE);
    assert_int_equal(stream_wait(r.feeder.fetch, &e), OK);
    expect_cache(&in_slot, copy, &on_host, cache, role, 1);

    assert_int_equal(stream_new(r.devices[GPU], STREAM_COPY_OUT, &out, &e), OK);
    for (uint64_t i = 0; i < size_bytes; i++) copy[i] = (uint8_t)(i * 5 + i / 256);
    memset(cache, 0xee, host_bytes);
    stream_copy(out, device, copy, size_bytes, COPY_TO_DEVICE);
    feed_store(&r.feeder, u, slot, out);
    assert_int_equal(stream_wait(out, &e), OK);
    expect_cache(&on_host, cache, &in_slot, copy, role, 2);
    stream_free(out);
    mem_free(role);
    mem_free(copy);
    close_feed(&r);
}

// ---- Times --------------------------------------------------------------------------------------

// A fetch or a store of the only session copies the bytes of the plan.
static void check_bytes(const struct trace_span *span, const struct plan *plan) {
    const enum batch_class class = batch_class_of(span->n_tokens);
    for (int32_t i = 0; i < plan->n_steps[class]; i++) {
        const struct step *step = &plan->steps[class][i];
        if (step->kind != span->kind || step->unit != span->unit) continue;
        const int32_t past = span->track == TRACK_STAGE ? 0 : span->n_past;
        assert_int_equal(span->bytes, step->bytes_fixed + step_past_bytes(step, past) +
                                          step->bytes_per_row * (uint64_t)span->n_tokens);
    }
}

// Every step of every micro-batch has a span, with times that can be.
static void check_spans(const struct trace *t, const struct plan *plan) {
    int32_t n_steps = 0, last_pass = -1, n_stores = 0;
    for (int32_t i = 0; i < trace_count(t); i++) {
        const struct trace_span *span = trace_at(t, i);
        assert_true(span->first_ns > 0 && span->first_ns <= span->last_ns);
        assert_true(span->planned_first_us <= span->planned_last_us);
        assert_true(span->pass == last_pass || span->pass == last_pass + 1);
        if (span->pass != last_pass && last_pass >= 0) {
            const struct trace_span *before = trace_at(t, i - 1);
            assert_int_equal(n_steps, plan->n_steps[batch_class_of(before->n_tokens)]);
        }
        n_steps = span->pass == last_pass ? n_steps : 0;
        n_steps += span->track != TRACK_STAGE;
        n_stores += span->kind == STEP_STORE;
        if (span->kind == STEP_STORE || span->kind == STEP_FETCH) check_bytes(span, plan);
        last_pass = span->pass;
    }
    assert_int_equal(last_pass, 4);
    assert_true(n_stores >= 3);
}

static void test_trace(void **state) {
    struct fixture *f = *state;
    for (int way = 0; way < 2; way++) {
        struct engine_options o = short_options(f, way, way ? FEED_STAGED : FEED_ARENA);
        struct session *s;
        struct err e;
        o.trace_spans = 1000;
        struct engine *en = open_ok(&o);
        assert_non_null(engine_trace(en));
        assert_int_equal(session_new(&s, en, &e), OK);
        const int32_t counts[] = {120, 8, 1};
        struct batch_item items[120];
        for (int call = 0; call < 3; call++) {
            // The head is part of every micro-batch, so each has all its steps.
            for (int32_t i = 0; i < counts[call]; i++)
                items[i] =
                    (struct batch_item){s, f->tokens[i], i % 40 == 39 || i == counts[call] - 1};
            assert_int_equal(engine_eval(en, items, counts[call], &e), OK);
        }
        assert_int_equal(trace_dropped(engine_trace(en)), 0);
        check_spans(engine_trace(en), engine_plan(en));
        session_free(s);
        engine_close(en);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_plans),
        cmocka_unit_test(test_split_points),
        cmocka_unit_test(test_streamed_experts),
        cmocka_unit_test(test_faults),
        cmocka_unit_test(test_stalls),
        cmocka_unit_test(test_stall_names),
        cmocka_unit_test(test_refused_allocations),
        cmocka_unit_test(test_small_blocks),
        cmocka_unit_test(test_caches),
        cmocka_unit_test(test_trace),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}

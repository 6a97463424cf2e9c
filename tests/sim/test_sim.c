/* test_sim.c: what is special to the simulated accelerator: an address space, throttled links,
 * faults on demand, and waits that end although it does not answer. */
#include "base/clock.h"
#include "tests/lib/open_device.h"
#include "tests/sim/sim_device.h"
#include "tests/sim/sim_spec.h"
#include "tests/sim/sim_timed.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define MIB (UINT64_C(1) << 20)

// ---- The host and the device's memory -----------------------------------------------------------

static void test_spec(void **state) {
    (void)state;
    struct sim_spec spec;
    struct err e;
    assert_int_equal(sim_spec_parse(&spec, "", ISA_AUTO, &e), OK);
    assert_int_equal(spec.vram_bytes, 1024 * MIB);
    assert_int_equal(spec.isa, ISA_AUTO);
    assert_int_equal(sim_spec_parse(&spec,
                                    "vram=96M,h2d=2G,d2h=512K,isa=ref,fail=copy:3,fail=lost:12",
                                    ISA_AUTO, &e),
                     OK);
    assert_int_equal(spec.vram_bytes, 96 * MIB);
    assert_int_equal(spec.rate[COPY_TO_DEVICE], 2048 * MIB);
    assert_int_equal(spec.rate[COPY_FROM_DEVICE], MIB / 2);
    assert_int_equal(spec.isa, ISA_REF);
    assert_int_equal(spec.fail_at[SIM_FAULT_COPY], 3);
    assert_int_equal(spec.fail_at[SIM_FAULT_LOST], 12);
    assert_int_equal(spec.fail_at[SIM_FAULT_OP], 0);
    assert_int_equal(spec.stall_at, 0);
    assert_int_equal(sim_spec_parse(&spec, "stall=7:0.25,vram=1M", ISA_AUTO, &e), OK);
    assert_int_equal(spec.stall_at, 7);
    assert_true(spec.stall_s == 0.25);
    static const char *const wrong[] = {
        "vram",
        "vram=",
        "vram=0",
        "vram=-1",
        "vram=1T",
        "vram=1.5G",
        "launch=x",
        "half=2M",
        "h2d=x",
        "ram=1M",
        "isa=sse",
        "fail=copy",
        "fail=copy:0",
        "fail=x:1",
        "fail=alloc:1K",
        "vram=1M,,h2d=1G",
        ",",
        "fail=opx:1",
        "fail=o:1",
        "vram=99999999999999999999G",
        "stall=1",
        "stall=0:1",
        "stall=1:",
        "stall=1:-1",
        "stall=1:1s",
        "stall=1:nan",
        "stall=1:1.2.3",
        "stall=:1",
        "stall=1:99999999",
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        if (sim_spec_parse(&spec, wrong[i], ISA_AUTO, &e) != ERR_USAGE)
            fail_msg("\"%s\" is accepted", wrong[i]);
    struct device *d;
    struct cpu_options options = {.isa = ISA_REF};
    assert_int_equal(sim_driver.open(&d, "vram=no", &options, NULL, &e), ERR_USAGE);
    assert_null(d);
}

// Follows an address in a process of its own; false if that process ends well.
static bool kills(const volatile char *address) {
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        signal(SIGSEGV, SIG_DFL); // cmocka's handler would go on with the tests
        close(STDERR_FILENO);
        _exit(*address == 'x');
    }
    int status = 0;
    waitpid(child, &status, 0);
    return !WIFEXITED(status) || WEXITSTATUS(status) > 1;
}

static void test_host_cannot_follow_addresses(void **state) {
    (void)state;
    struct device *d = open_sim("vram=1M");
    struct buffer b = new_buffer(d, 100, PURPOSE_KV);
    char on_host = 0;
    assert_true(kills(b.base));
    assert_false(kills(&on_host));
    buffer_free(&b);
    device_close(d);
}

// A stream that runs one bad command reports it; returns after closing all but the device.
static void expect_bad(struct device *d, void (*encode)(struct stream *, struct buffer *),
                       const char *what) {
    struct stream *s = new_stream(d, STREAM_COMPUTE);
    struct buffer b = new_buffer(d, 4096, PURPOSE_SCRATCH);
    encode(s, &b);
    wait_fails(s, what);
    swiglu(s, b.base, b.base, b.base, 1);
    wait_fails(s, what); // the first failure stays
    stream_free(s);
    buffer_free(&b);
}

static void use_freed(struct stream *s, struct buffer *b) {
    void *old = b->base;
    buffer_free(b);
    *b = new_buffer(s->device, 4096, PURPOSE_SCRATCH);
    swiglu(s, old, b->base, b->base, 1);
}

static void use_past_end(struct stream *s, struct buffer *b) {
    swiglu(s, (char *)b->base + b->size_bytes, b->base, b->base, 1);
}

static void use_host_memory(struct stream *s, struct buffer *b) {
    static float host[4];
    swiglu(s, b->base, host, b->base, 1);
}

static void copy_past_end(struct stream *s, struct buffer *b) {
    static char host[4096];
    stream_copy(s, (char *)b->base + 1, host, sizeof host, COPY_TO_DEVICE);
}

// All but the last row lie inside.
static void rows_past_end(struct stream *s, struct buffer *b) {
    static char host[4000];
    const struct row_copy rows = {b->base, host, 1100, 1000, 1000, 4};
    stream_copy_rows(s, &rows, COPY_TO_DEVICE);
}

static void rows_beyond_numbers(struct stream *s, struct buffer *b) {
    static char host[64];
    const struct row_copy rows = {host, b->base, 16, UINT64_MAX / 2, 16, 4};
    stream_copy_rows(s, &rows, COPY_FROM_DEVICE);
}

static void copy_wrong_way(struct stream *s, struct buffer *b) {
    stream_copy(s, b->base, b->base, 16, COPY_TO_DEVICE);
}

static void test_bad_addresses(void **state) {
    (void)state;
    struct device *d = open_sim("vram=1M");
    expect_bad(d, use_freed, "op swiglu touches freed memory");
    expect_bad(d, use_past_end, "op swiglu touches freed memory or none");
    expect_bad(d, use_host_memory, "op swiglu is given the host's memory");
    expect_bad(d, copy_past_end, "a copy touches freed memory or none");
    expect_bad(d, rows_past_end, "a copy touches freed memory or none");
    expect_bad(d, rows_beyond_numbers, "a copy touches freed memory or none");
    expect_bad(d, copy_wrong_way, "for the host's memory");
    device_close(d);
}

// A copy of 1 MiB takes at least as long as the link says, and two of them twice that, on two
// streams and in rows too. There is no upper bound: the machine may be busy.
static void test_throttle(void **state) {
    (void)state;
    static char host[MIB];
    struct device *d = open_sim("vram=4M,h2d=100M,d2h=50M");
    struct stream *in = new_stream(d, STREAM_COPY_IN), *out = new_stream(d, STREAM_COPY_OUT);
    struct buffer b = new_buffer(d, MIB, PURPOSE_STAGING);
    uint64_t start_ns = clock_ns();
    const struct row_copy half = {b.base, host, MIB / 8, MIB / 8, MIB / 16, 8};
    struct event begun = new_event(d), ended = new_event(d);
    struct err e;
    uint64_t begun_ns, ended_ns;
    stream_copy(in, b.base, host, MIB, COPY_TO_DEVICE);
    stream_record(out, &begun);
    stream_copy_rows(out, &half, COPY_TO_DEVICE);
    stream_copy_rows(out, &half, COPY_TO_DEVICE);
    stream_record(out, &ended);
    wait_ok(in);
    wait_ok(out);
    assert_true(clock_ns() - start_ns >= 20 * UINT64_C(1000000));
    assert_int_equal(event_time(&begun, &begun_ns, &e), OK);
    assert_int_equal(event_time(&ended, &ended_ns, &e), OK);
    assert_true(ended_ns - begun_ns >= 10 * UINT64_C(1000000));
    event_free(&begun);
    event_free(&ended);
    start_ns = clock_ns();
    stream_copy(out, host, b.base, MIB, COPY_FROM_DEVICE);
    wait_ok(out);
    assert_true(clock_ns() - start_ns >= 20 * UINT64_C(1000000));
    stream_free(in);
    stream_free(out);
    buffer_free(&b);
    device_close(d);
}

// Waits for a record after all that was encoded, and returns the stream's time.
static uint64_t stream_time_ns(struct stream *s) {
    struct event event = new_event(s->device);
    struct err e;
    uint64_t time_ns;
    stream_record(s, &event);
    wait_ok(s);
    assert_int_equal(event_time(&event, &time_ns, &e), OK);
    event_free(&event);
    return time_ns;
}

// Copies of a mebibyte each way at the same time take as long as the shared thing takes for both.
static void check_shared(const char *spec) {
    static char host[2 * MIB];
    struct device *d = open_sim(spec);
    struct stream *in = new_stream(d, STREAM_COPY_IN), *out = new_stream(d, STREAM_COPY_OUT);
    struct buffer b = new_buffer(d, 2 * MIB, PURPOSE_STAGING);
    const uint64_t start_ns = clock_ns();
    stream_copy(in, b.base, host, MIB, COPY_TO_DEVICE);
    stream_copy(out, host + MIB, (char *)b.base + MIB, MIB, COPY_FROM_DEVICE);
    const uint64_t in_ns = stream_time_ns(in), out_ns = stream_time_ns(out);
    assert_true((in_ns > out_ns ? in_ns : out_ns) - start_ns >= 200 * UINT64_C(1000000));
    stream_free(in);
    stream_free(out);
    buffer_free(&b);
    device_close(d);
}

static void test_shared_memory(void **state) {
    (void)state;
    check_shared("vram=4M,h2d=10M,d2h=10M,half=1");
    check_shared("vram=4M,dram=10M");
}

// A launch keeps this thread busy, an op and a copy take longer.
static void test_costs(void **state) {
    (void)state;
    static char host[256];
    struct device *d = open_sim("vram=1M,launch=1000,op=2000,latency=3000");
    struct stream *s = new_stream(d, STREAM_COMPUTE);
    struct buffer b = new_buffer(d, 4096, PURPOSE_SCRATCH);
    const uint64_t ms = 1000000, start_ns = clock_ns();
    stream_copy(s, b.base, host, sizeof host, COPY_TO_DEVICE);
    const uint64_t copied_ns = stream_time_ns(s);
    assert_true(copied_ns - start_ns >= 3 * ms);
    const uint64_t encoding_ns = clock_ns();
    for (int i = 0; i < 3; i++)
        d->ops->rms_norm(
            s, &(struct rms_norm_args){
                   .out = b.base, .x = b.base, .weight = b.base, .n_rows = 1, .n_cols = 32});
    assert_true(clock_ns() - encoding_ns >= 3 * ms);
    assert_true(stream_time_ns(s) - copied_ns >= 6 * ms);
    stream_free(s);
    buffer_free(&b);
    device_close(d);
}

static struct matmul_args product(const struct buffer *b) {
    char *base = b->base;
    return (struct matmul_args){.out = (float *)(void *)(base + 8192),
                                .x = (float *)(void *)base,
                                .weight = base + 4096,
                                .scratch = base + 12288,
                                .n_tokens = 1,
                                .n_cols = 256,
                                .row_count = 4,
                                .out_stride = 4};
}

// The time of an op with rates: of its bytes or of its operations, whichever is longer, with the
// keys and the experts that its tables name; of products' activations besides.
static void test_rated_times(void **state) {
    (void)state;
    const struct sim_spec both = {.read = 1000, .flops = 1000}, reads = {.read = 1000},
                          computes = {.flops = 1000};
    const uint64_t second = 1000000000;
    struct op_command op = {.op = OP_matmul, .weight = WEIGHT_Q8_0};
    op.args.matmul = (struct matmul_args){.n_tokens = 1, .n_cols = 32, .row_count = 10};
    // 340 bytes of weights, 128 and 40 of activations; 640 operations.
    assert_int_equal(sim_timed_ns(&reads, &op), (340 + 2 * 168) * second / 1000);
    assert_int_equal(sim_timed_ns(&both, &op), (640 + 2 * 168) * second / 1000);
    const int32_t positions[] = {7, 8};
    op.op = OP_attention;
    op.args.attention = (struct attention_args){.positions = positions,
                                                .n_tokens = 2,
                                                .n_heads = 1,
                                                .n_kv_heads = 1,
                                                .head_dim = 64,
                                                .k_type = DTYPE_F16,
                                                .v_type = DTYPE_F16};
    // Eight and nine keys; a window of four.
    assert_int_equal(sim_timed_ns(&computes, &op), 4 * 64 * 17 * second / 1000);
    op.args.attention.window = 4;
    assert_int_equal(sim_timed_ns(&computes, &op), 4 * 64 * 8 * second / 1000);
    // Four of six pairs go to two of the three experts, which are here.
    const int32_t starts[] = {0, 2, 4, 6}, order[6] = {0}, slots[] = {0, -1, 1};
    op.op = OP_matmul_experts;
    op.args.matmul_experts = (struct matmul_experts_args){.slots = slots,
                                                          .starts = starts,
                                                          .order = order,
                                                          .n_tokens = 3,
                                                          .n_used = 2,
                                                          .n_experts = 3,
                                                          .n_cols = 32,
                                                          .n_rows = 10,
                                                          .row_count = 10};
    assert_int_equal(sim_timed_ns(&computes, &op), 4 * 640 * second / 1000);
    // 680 bytes of weights; three rows, two tables of starts and slots, and the pairs; outputs.
    assert_int_equal(sim_timed_ns(&reads, &op), (680 + 2 * (384 + 28 + 24 + 160)) * second / 1000);
}

// A copy that waits for an op does not keep one of another stream back that was encoded later.
static void test_rated_copies(void **state) {
    (void)state;
    static char host[1024];
    struct device *d = open_sim("vram=1M,read=1G,op=50000,h2d=1M");
    struct stream *ops = new_stream(d, STREAM_COMPUTE), *one = new_stream(d, STREAM_COPY_IN),
                  *other = new_stream(d, STREAM_COPY_IN);
    struct buffer b = new_buffer(d, 4096, PURPOSE_SCRATCH);
    struct event event = new_event(d), copied = new_event(d), last = new_event(d);
    struct err e;
    uint64_t op_ns, copied_ns, last_ns;
    swiglu(ops, b.base, b.base, b.base, 1); // 50 ms
    stream_record(ops, &event);
    stream_wait_event(one, &event);
    stream_copy(one, b.base, host, sizeof host, COPY_TO_DEVICE);
    stream_copy(other, (char *)b.base + 2048, host, sizeof host, COPY_TO_DEVICE);
    stream_record(other, &copied);
    stream_record(one, &last);
    wait_ok(one);
    wait_ok(other);
    assert_int_equal(event_time(&event, &op_ns, &e), OK);
    assert_int_equal(event_time(&copied, &copied_ns, &e), OK);
    assert_int_equal(event_time(&last, &last_ns, &e), OK);
    assert_true(copied_ns < op_ns && last_ns > op_ns);
    event_free(&event);
    event_free(&copied);
    event_free(&last);
    stream_free(ops);
    stream_free(one);
    stream_free(other);
    buffer_free(&b);
    device_close(d);
}

// Large ops are not computed, but those that choose experts are.
static void test_stand_ins(void **state) {
    (void)state;
    const float residual[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    float out[8] = {9, 9, 9, 9, 9, 9, 9, 9};
    struct op_command op = {.op = OP_matmul, .weight = WEIGHT_F32}; // a router
    op.args.matmul = (struct matmul_args){.out = out,
                                          .residual = residual,
                                          .n_tokens = 2,
                                          .row_first = 1,
                                          .row_count = 2,
                                          .out_stride = 4};
    assert_false(sim_stand_in(&op));
    assert_true(out[1] == 9);
    op.weight = WEIGHT_Q8_0;
    assert_true(sim_stand_in(&op));
    const float copied[8] = {9, 2, 3, 9, 9, 6, 7, 9};
    assert_memory_equal(out, copied, sizeof out);
    // Pairs 1 and 3 go to the expert that is here, 0 and 2 to another device's.
    const int32_t starts[] = {0, 2, 4}, order[] = {1, 3, 0, 2}, slots[] = {0, -1};
    op.op = OP_matmul_experts;
    op.args.matmul_experts = (struct matmul_experts_args){.out = out,
                                                          .slots = slots,
                                                          .starts = starts,
                                                          .order = order,
                                                          .n_tokens = 2,
                                                          .n_used = 2,
                                                          .n_experts = 2,
                                                          .row_count = 2,
                                                          .out_stride = 2};
    assert_true(sim_stand_in(&op));
    const float cleared[8] = {9, 2, 0, 0, 9, 6, 0, 0};
    assert_memory_equal(out, cleared, sizeof out);
    op = (struct op_command){.op = OP_attention};
    op.args.attention =
        (struct attention_args){.out = out, .n_tokens = 1, .n_heads = 2, .head_dim = 1};
    assert_true(sim_stand_in(&op) && out[0] == 0 && out[1] == 0 && out[4] == 9);
    op = (struct op_command){.op = OP_swiglu};
    op.args.swiglu = (struct swiglu_args){.out = out + 4, .n_rows = 1, .n_cols = 1, .stride = 4};
    assert_true(sim_stand_in(&op) && out[4] == 9 && out[5] == 6); // not even touched
    op = (struct op_command){.op = OP_rope};
    assert_true(sim_stand_in(&op));
    op = (struct op_command){.op = OP_rms_norm};
    assert_false(sim_stand_in(&op));
}

struct called {
    atomic_bool may_end;
    uint64_t at_ns;
};

static void note_call(void *context) {
    struct called *c = context;
    c->at_ns = clock_ns();
    while (!atomic_load(&c->may_end)) continue;
}

// One thread serves all streams in the order of encoding: a stream that waits for another one's
// event finds it. Times are those of the rates: of ops with what each costs, of copies within the
// device, and of who waits; a call comes when all before it is over.
static void test_rated_streams(void **state) {
    (void)state;
    struct device *d = open_sim("vram=1M,read=1M,op=7000");
    struct stream *one = new_stream(d, STREAM_COMPUTE), *other = new_stream(d, STREAM_COPY_IN);
    struct buffer b = new_buffer(d, 32768, PURPOSE_SCRATCH);
    struct event events[3] = {new_event(d), new_event(d), new_event(d)};
    struct called held = {.may_end = false}, last = {.may_end = true};
    struct err e;
    char *base = b.base;
    float *numbers = b.base;
    uint64_t times_ns[3];
    const uint64_t ms = 1000000;
    stream_call(other, note_call, &held); // meanwhile the rest is encoded
    stream_call(one, note_call, &held);
    stream_record(one, &events[0]);
    swiglu(one, numbers, numbers, numbers, 1); // 7 ms
    stream_record(one, &events[1]);
    stream_copy(one, base + 16384, base, 10240, COPY_WITHIN); // 19.5 ms there and back
    stream_record(one, &events[2]);
    stream_wait_event(other, &events[2]);
    stream_call(other, note_call, &last);
    atomic_store(&held.may_end, true);
    const uint64_t end_ns = stream_time_ns(other);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(event_wait(&events[i], &e), OK);
        assert_int_equal(event_time(&events[i], &times_ns[i], &e), OK);
    }
    assert_in_range(times_ns[1] - times_ns[0], 7 * ms, 8 * ms);
    assert_in_range(times_ns[2] - times_ns[1], 19 * ms, 20 * ms);
    assert_true(last.at_ns >= times_ns[2]);
    assert_true(end_ns >= last.at_ns);
    for (int i = 0; i < 3; i++) event_free(&events[i]);
    stream_free(one);
    stream_free(other);
    buffer_free(&b);
    device_close(d);
}

// With rates a product is not computed: it is zero, or the residual stream.
static void test_rates(void **state) {
    (void)state;
    struct device *d = open_sim("vram=1M,read=100K,flops=100K");
    struct stream *s = new_stream(d, STREAM_COMPUTE);
    struct buffer b = new_buffer(d, 32768, PURPOSE_SCRATCH);
    float *out = (float *)(void *)((char *)b.base + 8192), host[4] = {1, 2, 3, 4}, back[4];
    const uint64_t ms = 1000000;
    struct matmul_args args = product(&b);
    stream_copy(s, out, host, sizeof host, COPY_TO_DEVICE);
    uint64_t before_ns = stream_time_ns(s), after_ns;
    args.residual = out;
    d->ops->matmul(s, WEIGHT_Q8_0, &args); // 2 * 4 * 256 operations: 20 ms
    after_ns = stream_time_ns(s);
    assert_true(after_ns - before_ns >= 20 * ms);
    stream_copy(s, back, out, sizeof back, COPY_FROM_DEVICE);
    wait_ok(s);
    assert_memory_equal(back, host, sizeof back);
    args.residual = NULL;
    args.row_count = 2;
    args.row_first = 1;
    d->ops->matmul(s, WEIGHT_Q8_0, &args);
    stream_copy(s, back, out, sizeof back, COPY_FROM_DEVICE);
    wait_ok(s);
    assert_true(back[0] == 1 && back[1] == 0 && back[2] == 0 && back[3] == 4);
    // A norm is computed.
    d->ops->rms_norm(s, &(struct rms_norm_args){.out = out, .x = out, .n_rows = 1, .n_cols = 4});
    stream_copy(s, back, out, sizeof back, COPY_FROM_DEVICE);
    wait_ok(s);
    assert_true(back[0] > 0.4 && back[0] < 0.5 && back[3] > 1.9 && back[3] < 2);
    stream_free(s);
    buffer_free(&b);
    device_close(d);
}

// A copy of memory that is not pinned is done when the call returns; of pinned memory it waits for
// a stream that stalls.
static void test_blocking_copies(void **state) {
    (void)state;
    static char host[512];
    struct device *d = open_sim("vram=1M,blocks=1,stall=2:0.5");
    struct stream *s = new_stream(d, STREAM_COPY_OUT);
    struct buffer b = new_buffer(d, 4096, PURPOSE_SCRATCH);
    memset(host, 7, sizeof host);
    stream_copy(s, b.base, host, 256, COPY_TO_DEVICE);
    assert_true(device_host_register(d, host + 256, 256));
    stream_copy(s, host + 256, b.base, 128, COPY_FROM_DEVICE); // stalls
    stream_copy(s, host, (char *)b.base + 256, 1, COPY_FROM_DEVICE);
    for (int i = 0; i < 128; i++) assert_int_equal(host[256 + i], 7); // the last has waited for it
    assert_int_not_equal(host[0], 7);
    device_host_unregister(d, host + 256);
    wait_ok(s);
    stream_free(s);
    buffer_free(&b);
    device_close(d);
}

static void test_refused_buffers(void **state) {
    (void)state;
    for (int n = 1; n <= 3; n++) {
        char spec[64];
        snprintf(spec, sizeof spec, "vram=1M,fail=alloc:%d", n);
        struct device *d = open_sim(spec);
        struct buffer b[4];
        struct err e;
        for (int i = 0; i < 4; i++)
            assert_int_equal(buffer_new(d, 1000, PURPOSE_KV, &b[i], &e),
                             i + 1 == n ? ERR_MEMORY : OK);
        assert_int_equal(device_used_bytes(d), 3000);
        for (int i = 0; i < 4; i++) buffer_free(&b[i]);
        device_close(d);
    }
}

// Six copies and six ops in turn, two events between them; the fault comes at the nth.
static void check_fault(const char *kind, int n, int first_bad, const char *what) {
    char spec[64];
    snprintf(spec, sizeof spec, "vram=1M,fail=%s:%d", kind, n);
    struct device *d = open_sim(spec), *cpu = open_cpu(2, 2);
    struct stream *s = new_stream(d, STREAM_COMPUTE), *other = new_stream(d, STREAM_COPY_OUT);
    struct stream *host = new_stream(cpu, STREAM_COMPUTE);
    struct buffer b = new_buffer(d, 64, PURPOSE_KV);
    struct event before = new_event(d), after = new_event(d), last = new_event(cpu);
    float zeros[4] = {0}, untouched = 5;
    struct host_work work = {0};
    struct err e;
    if (first_bad == 0) stream_record(s, &before);
    for (int i = 0; i < 6; i++) {
        stream_copy(s, b.base, zeros, sizeof zeros, COPY_TO_DEVICE);
        if (2 * i + 1 == first_bad) stream_record(s, &before);
        swiglu(s, b.base, b.base, b.base, 4);
        if (2 * i + 2 == first_bad) stream_record(s, &before);
    }
    stream_record(s, &after);
    stream_call(s, add_one, &work); // skipped
    uint64_t time_ns = 0;
    assert_int_equal(event_wait(&before, &e), OK);
    assert_int_equal(event_time(&before, &time_ns, &e), OK);
    assert_true(time_ns > 0);
    assert_int_equal(event_wait(&after, &e), ERR_DEVICE);
    assert_non_null(strstr(e.what, what));
    assert_int_equal(event_time(&after, &time_ns, &e), ERR_DEVICE);
    assert_non_null(strstr(e.what, what));
    // The failure goes on to whoever waits: a stream of the device, the CPU, and back.
    stream_wait_event(other, &after);
    stream_copy(other, &untouched, b.base, 4, COPY_FROM_DEVICE);
    stream_wait_event(host, &after);
    stream_copy(host, &untouched, zeros, 4, COPY_WITHIN);
    stream_call(host, add_one, &work);
    stream_record(host, &last);
    stream_flush(host);
    stream_wait_event(other, &last);
    wait_fails(other, what);
    wait_fails(host, what);
    wait_fails(s, what);
    assert_true(untouched == 5);
    assert_int_equal(work.n_calls, 0);
    stream_free(s);
    stream_free(other);
    stream_free(host);
    event_free(&before);
    event_free(&after);
    event_free(&last);
    buffer_free(&b);
    device_close(cpu);
    device_close(d);
}

static void test_faults(void **state) {
    (void)state;
    for (int n = 1; n <= 6; n++) check_fault("copy", n, 2 * n - 2, "a copy failed");
    for (int n = 1; n <= 6; n++) check_fault("op", n, 2 * n - 1, "op swiglu failed");
    for (int n = 1; n <= 12; n++) check_fault("lost", n, n - 1, "the device is lost");
}

// A CPU event whose stream failed stops a stream that waits for it.
static void test_failure_from_the_cpu(void **state) {
    (void)state;
    struct device *broken = open_sim("vram=1M,fail=copy:1"), *cpu = open_cpu(2, 2);
    struct device *whole = open_sim("vram=1M");
    struct stream *streams[3] = {new_stream(broken, STREAM_COPY_IN),
                                 new_stream(cpu, STREAM_COMPUTE),
                                 new_stream(whole, STREAM_COMPUTE)};
    struct event events[2] = {new_event(broken), new_event(cpu)};
    struct buffer b = new_buffer(broken, 64, PURPOSE_KV);
    char host[64] = {0};
    stream_copy(streams[0], b.base, host, sizeof host, COPY_TO_DEVICE);
    stream_record(streams[0], &events[0]);
    stream_wait_event(streams[1], &events[0]);
    stream_record(streams[1], &events[1]);
    stream_flush(streams[1]);
    stream_wait_event(streams[2], &events[1]);
    for (int i = 0; i < 3; i++) {
        wait_fails(streams[i], "a copy failed");
        stream_free(streams[i]);
    }
    event_free(&events[0]);
    event_free(&events[1]);
    buffer_free(&b);
    device_close(whole);
    device_close(cpu);
    device_close(broken);
}

// After the loss nothing is given out any more, and every stream says so, even an idle one.
static void test_lost_device(void **state) {
    (void)state;
    struct device *d = open_sim("vram=1M,fail=lost:1");
    struct stream *s = new_stream(d, STREAM_COMPUTE), *idle = new_stream(d, STREAM_COPY_IN);
    struct buffer b = new_buffer(d, 64, PURPOSE_KV), more;
    struct err e;
    swiglu(s, b.base, b.base, b.base, 1);
    wait_fails(s, "lost");
    wait_fails(idle, "lost");
    assert_int_equal(buffer_new(d, 64, PURPOSE_KV, &more, &e), ERR_DEVICE);
    assert_int_equal(device_used_bytes(d), 64);
    stream_free(s);
    stream_free(idle);
    buffer_free(&b);
    device_close(d);
}

// A failed stream is freed with its list full of work that will not be done.
static void test_free_while_failed(void **state) {
    (void)state;
    for (int cpu = 0; cpu < 2; cpu++) {
        struct device *d = open_sim("vram=1M,fail=op:1");
        struct device *worker = cpu ? open_cpu(2, 2) : d;
        struct stream *s = new_stream(d, STREAM_COMPUTE),
                      *tail = new_stream(worker, STREAM_COMPUTE);
        struct buffer b = new_buffer(d, 64, PURPOSE_KV);
        struct event event = new_event(d);
        char host[2] = {0};
        swiglu(s, b.base, b.base, b.base, 1);
        stream_record(s, &event);
        stream_wait_event(tail, &event);
        for (int i = 0; i < 5000; i++)
            stream_copy(tail, cpu ? host : b.base, host + 1, 1, cpu ? COPY_WITHIN : COPY_TO_DEVICE);
        stream_free(tail);
        stream_free(s);
        event_free(&event);
        buffer_free(&b);
        if (cpu) device_close(worker);
        device_close(d);
    }
}

// ---- Waits that end ----------------------------------------------------------------------------

// Checks the error of every call to a device that does not answer.
static void lost(struct device *d, enum status status, const struct err *e) {
    assert_int_equal(status, ERR_DEVICE);
    if (!strstr(e->what, d->info.name) || !strstr(e->what, "limit of 0.05 s"))
        fail_msg("%s", e->what);
    assert_non_null(strstr(e->fix, "--wait-limit"));
    assert_true(d->lost);
}

enum way_to_wait { WAIT_STREAM, WAIT_EVENT, WAIT_ON_CPU, WAIT_FOR_ROOM, WAIT_FREE, N_WAYS };

static void wait_in_vain(enum way_to_wait way, struct stream *s, struct event *event,
                         struct stream *on_cpu, const struct buffer *b) {
    static char host[64]; // what a lost device may still touch stays
    struct err e = {0};
    switch (way) {
    case WAIT_STREAM: lost(s->device, stream_wait(s, &e), &e); break;
    case WAIT_EVENT: lost(s->device, event_wait(event, &e), &e); break;
    case WAIT_ON_CPU:
        stream_wait_event(on_cpu, event);
        stream_copy(on_cpu, host, host + 32, 1, COPY_WITHIN);
        stream_flush(on_cpu);
        lost(s->device, stream_wait(on_cpu, &e), &e);
        break;
    case WAIT_FOR_ROOM:
        for (int i = 0; i < 5000; i++) stream_copy(s, b->base, host, 1, COPY_TO_DEVICE);
        break;
    case WAIT_FREE:
    case N_WAYS: break;
    }
}

// The second command stalls for longer than any test; everything ends all the same.
static void test_waits_end(void **state) {
    (void)state;
    static char host[64];
    for (enum way_to_wait way = WAIT_STREAM; way < N_WAYS; way++) {
        struct device *d = open_sim("vram=1M,stall=2:100000"), *cpu = open_cpu(2, 2);
        struct stream *s = new_stream(d, STREAM_COPY_IN), *second = new_stream(d, STREAM_COMPUTE),
                      *on_cpu = new_stream(cpu, STREAM_COMPUTE);
        struct buffer b = new_buffer(d, 64, PURPOSE_STAGING);
        struct event first = new_event(d), event = new_event(d);
        struct err e = {0};
        uint64_t time_ns;
        assert_true(d->wait_limit_s == DEVICE_WAIT_LIMIT_S);
        device_limit_waits(d, 0.05);
        stream_copy(s, b.base, host, 64, COPY_TO_DEVICE);
        stream_record(s, &first);
        stream_copy(s, b.base, host, 64, COPY_TO_DEVICE);
        stream_record(s, &event);
        stream_wait_event(second, &event);
        wait_in_vain(way, s, &event, on_cpu, &b);
        if (way == WAIT_FREE) stream_free(s);
        if (way != WAIT_FREE) lost(d, stream_wait(s, &e), &e);
        device_limit_waits(d, 0.05);
        lost(d, event_wait(&event, &e), &e);
        lost(d, event_wait(&first, &e), &e); // though it is done
        lost(d, event_time(&first, &time_ns, &e), &e);
        for (int i = 0; i < 2000; i++) stream_copy(second, b.base, host, 1, COPY_TO_DEVICE);
        stream_record(second, &event);
        lost(d, stream_wait(second, &e), &e);
        if (way != WAIT_FREE) stream_free(s);
        stream_free(second);
        stream_free(on_cpu);
        event_free(&first);
        event_free(&event);
        buffer_free(&b);
        device_close(cpu);
        device_close(d);
    }
}

// Commands of a lost device run on after everything of it has been closed.
static void test_lost_streams_run_on(void **state) {
    (void)state;
    static struct host_work work; // what it may touch stays
    static char host[64];
    struct device *d = open_sim("vram=1M,stall=2:2");
    struct stream *s = new_stream(d, STREAM_COPY_IN), *second = new_stream(d, STREAM_COMPUTE);
    struct buffer b = new_buffer(d, 64, PURPOSE_STAGING);
    struct event event = new_event(d);
    struct err e = {0};
    device_limit_waits(d, 0.05);
    stream_copy(s, b.base, host, 64, COPY_TO_DEVICE);
    stream_call(s, add_one, &work);
    stream_record(s, &event);
    stream_wait_event(second, &event);
    stream_call(second, add_one, &work);
    lost(d, event_wait(&event, &e), &e);
    stream_free(s);
    stream_free(second);
    event_free(&event);
    buffer_free(&b);
    device_close(d);
    for (int i = 0; i < 6000 && atomic_load(&work.n_calls) < 2; i++) clock_sleep_ns(10000000);
    assert_int_equal(work.n_calls, 2);
}

// A stall that is shorter than the limit only delays.
static void test_stall(void **state) {
    (void)state;
    char host[64] = {1}, back[64] = {0};
    struct device *d = open_sim("vram=1M,stall=2:0.03");
    struct stream *s = new_stream(d, STREAM_COPY_IN);
    struct buffer b = new_buffer(d, 64, PURPOSE_STAGING);
    const uint64_t start_ns = clock_ns();
    stream_copy(s, b.base, host, 64, COPY_TO_DEVICE);
    stream_copy(s, back, b.base, 64, COPY_FROM_DEVICE);
    wait_ok(s);
    assert_true(clock_ns() - start_ns >= 30 * UINT64_C(1000000));
    assert_memory_equal(host, back, 64);
    assert_false(d->lost);
    stream_free(s);
    buffer_free(&b);
    device_close(d);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_host_cannot_follow_addresses), // forks: before there are threads
        cmocka_unit_test(test_spec),
        cmocka_unit_test(test_bad_addresses),
        cmocka_unit_test(test_throttle),
        cmocka_unit_test(test_shared_memory),
        cmocka_unit_test(test_costs),
        cmocka_unit_test(test_rated_times),
        cmocka_unit_test(test_rated_copies),
        cmocka_unit_test(test_stand_ins),
        cmocka_unit_test(test_rated_streams),
        cmocka_unit_test(test_rates),
        cmocka_unit_test(test_blocking_copies),
        cmocka_unit_test(test_refused_buffers),
        cmocka_unit_test(test_faults),
        cmocka_unit_test(test_failure_from_the_cpu),
        cmocka_unit_test(test_lost_device),
        cmocka_unit_test(test_free_while_failed),
        cmocka_unit_test(test_waits_end),
        cmocka_unit_test(test_lost_streams_run_on),
        cmocka_unit_test(test_stall),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

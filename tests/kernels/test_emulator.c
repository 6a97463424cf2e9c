/* test_emulator.c: the look-alike driver by itself: what it refuses, what it notices, and that its
 * streams are asynchronous.
 *
 * Rates only make a wait that is missing show; nothing here is right or wrong by how long it takes.
 * Graphs, pinned memory and faults are tested with the backend on top, in
 * tests/kernels/test_cuda.c.
 */
#include "kernels/cuda/cuda_driver.h"
#include "kernels/cuda/params.h"
#include "kernels/ops.h"
#include "tests/lib/find_emulator.h"

#include <limits.h>
#include <math.h>
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum {
    INVALID_VALUE = 1,
    INVALID_HANDLE = 400,
    NOT_FOUND = 500,
    ILLEGAL_ADDRESS = 700,
    NOT_PERMITTED = 800
};
enum { GATE_BYTES = 4096 };

static struct cuda_driver driver;
static struct CUctx_st *context;
static struct CUstream_st *stream;
static char library[PATH_MAX];

// Every variable of the emulator that a test sets.
static const char *const VARIABLES[] = {"READ_ONLY", "VRAM", "CC",     "DRIVER",  "H2D",   "D2H",
                                        "SEAL",      "SEED", "TENSOR", "WORKERS", "SPARSE"};

static void ok(unsigned code) { assert_int_equal(code, DRIVER_SUCCESS); }

// "NAME=value" of the emulator's variables; NULL ends the list.
static void open_driver(const char *setting, ...) {
    struct err e;
    va_list list;
    va_start(list, setting);
    for (; setting; setting = va_arg(list, const char *)) {
        char name[64];
        size_t length = strcspn(setting, "=");
        bool known = false; // or the next test would find it set
        for (size_t i = 0; i < sizeof VARIABLES / sizeof *VARIABLES; i++)
            known |= strlen(VARIABLES[i]) == length && !strncmp(VARIABLES[i], setting, length);
        assert_true(known);
        snprintf(name, sizeof name, "EMU_CUDA_%.*s", (int)length, setting);
        setenv(name, setting + length + 1, 1);
    }
    va_end(list);
    if (cuda_driver_open(&driver, library, &e)) fail_msg("%s", e.what);
    ok(driver.context_retain(&context, 0));
    ok(driver.context_set(context));
    ok(driver.stream_create(&stream, DRIVER_STREAM_NON_BLOCKING));
}

static int close_driver(void **state) {
    (void)state;
    if (stream) driver.stream_destroy(stream);
    if (context) driver.context_release(0);
    cuda_driver_close(&driver);
    stream = NULL;
    context = NULL;
    for (size_t i = 0; i < sizeof VARIABLES / sizeof *VARIABLES; i++) {
        char name[64];
        snprintf(name, sizeof name, "EMU_CUDA_%s", VARIABLES[i]);
        unsetenv(name);
    }
    return 0;
}

static unsigned long long memory_of(size_t size_bytes) {
    unsigned long long address = 0;
    ok(driver.memory_alloc(&address, size_bytes));
    return address;
}

static void *host(unsigned long long address) { return (void *)(uintptr_t)address; }

// ---- Memory ------------------------------------------------------------------------------------

static void test_memory(void **state) {
    (void)state;
    open_driver("VRAM=8M", NULL);
    unsigned long long a = memory_of(1000), b = memory_of(5 << 20), c = 0;
    size_t free_bytes, total_bytes;
    uint8_t bytes[1000];
    assert_int_equal(a % 256, 0);
    assert_int_equal(driver.memory_alloc(&c, 3 << 20), DRIVER_OUT_OF_MEMORY);
    assert_int_equal(driver.memory_alloc(&c, 0), INVALID_VALUE);
    assert_int_equal(driver.memory_alloc(&c, SIZE_MAX), DRIVER_OUT_OF_MEMORY);
    ok(driver.memory_info(&free_bytes, &total_bytes));
    assert_int_equal(total_bytes, 8 << 20);
    assert_int_equal(free_bytes, (3 << 20) - 1024);
    // New memory is NaN in every float.
    ok(driver.copy_from_device(bytes, a, sizeof bytes, stream));
    ok(driver.stream_synchronize(stream));
    for (size_t i = 0; i < sizeof bytes; i++) assert_int_equal(bytes[i], 0xff);
    assert_int_equal(driver.memory_free(b + 1), INVALID_VALUE);
    ok(driver.memory_free(b));
    assert_int_equal(driver.memory_free(b), INVALID_VALUE);
    b = memory_of(7 << 20);
    ok(driver.memory_free(b));
    ok(driver.memory_free(a));
}

static void test_copies_that_miss(void **state) {
    (void)state;
    open_driver(NULL);
    unsigned long long a = memory_of(1000), b = memory_of(1000);
    char bytes[1001] = {0};
    ok(driver.copy_to_device(a, bytes, 1000, stream));
    assert_int_equal(driver.copy_to_device(a, bytes, 1001, stream), INVALID_VALUE);
    assert_int_equal(driver.copy_to_device(a + 999, bytes, 2, stream), INVALID_VALUE);
    assert_int_equal(driver.copy_from_device(bytes, a - 1, 2, stream), INVALID_VALUE);
    assert_int_equal(driver.copy_from_device(host(b), a, 10, stream), INVALID_VALUE);
    assert_int_equal(driver.copy_to_device(a, host(b), 10, stream), INVALID_VALUE);
    assert_int_equal(driver.copy_within(a, b, 1001, stream), INVALID_VALUE);
    assert_int_equal(driver.copy_within(a, a + 10, 100, stream), INVALID_VALUE);
    ok(driver.stream_synchronize(stream)); // nothing of that sticks
    ok(driver.memory_free(a));
    ok(driver.memory_free(b));
}

// Rows whose last byte lies in memory, and what is wrong with them.
static void test_rows_that_miss(void **state) {
    (void)state;
    open_driver(NULL);
    unsigned long long a = memory_of(1000), b = memory_of(1000);
    static char bytes[1000];
    const struct cuda_copy_2d good = {
        .source = {.kind = DRIVER_MEMORY_HOST, .host = bytes, .stride_bytes = 100},
        .target = {.kind = DRIVER_MEMORY_DEVICE, .device = a + 10, .stride_bytes = 200},
        .row_bytes = 90,
        .n_rows = 5,
    };
    struct cuda_copy_2d c = good;
    uint8_t back[1000];
    for (int i = 0; i < 1000; i++) bytes[i] = (char)(i / 100 * 20 + i % 100 / 10);
    ok(driver.copy_rows(&c, stream));
    ok(driver.copy_from_device(back, a, sizeof back, stream));
    ok(driver.stream_synchronize(stream));
    for (int i = 0; i < 1000; i++) {
        const int row = i / 200, column = i % 200 - 10;
        const bool copied = column >= 0 && column < 90;
        assert_int_equal(back[i], copied ? row * 20 + column / 10 : 0xff);
    }
    c.n_rows = 0;
    ok(driver.copy_rows(&c, stream)); // nothing to do
    c = good, c.n_rows = 6;
    assert_int_equal(driver.copy_rows(&c, stream), INVALID_VALUE);
    c = good, c.row_bytes = 101;
    assert_int_equal(driver.copy_rows(&c, stream), INVALID_VALUE);
    c = good, c.source.first_row = 1;
    assert_int_equal(driver.copy_rows(&c, stream), INVALID_VALUE);
    c = good, c.source.host = host(b);
    assert_int_equal(driver.copy_rows(&c, stream), INVALID_VALUE);
    c = good, c.target.device = (uintptr_t)bytes;
    assert_int_equal(driver.copy_rows(&c, stream), INVALID_VALUE);
    c = good, c.target.kind = 0;
    assert_int_equal(driver.copy_rows(&c, stream), INVALID_VALUE);
    ok(driver.stream_synchronize(stream)); // nothing of that sticks
    ok(driver.memory_free(a));
    ok(driver.memory_free(b));
}

// While no stream runs, the host that follows a device address is stopped; streams are not.
static void test_seal(void **state) {
    (void)state;
    open_driver("SEAL=1", NULL);
    unsigned long long a = memory_of(4096);
    const int value = 5;
    int status = 0, read = 0;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        signal(SIGSEGV, SIG_DFL);
        (void)*(volatile char *)host(a);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGSEGV);
    ok(driver.copy_to_device(a, &value, sizeof value, stream));
    ok(driver.copy_from_device(&read, a, sizeof read, stream));
    ok(driver.stream_synchronize(stream));
    assert_int_equal(read, value);
    ok(driver.memory_free(a));
}

// Memory that cannot be written is pinned for reading only, and no copy writes to such.
static void test_read_only(void **state) {
    enum { SIZE = 8192 };
    for (int supported = 0; supported < 2; supported++) {
        open_driver(supported ? "READ_ONLY=1" : "READ_ONLY=0", NULL);
        const unsigned long long a = memory_of(SIZE);
        uint8_t read[SIZE];
        uint8_t *pages =
            mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        assert_true(pages != MAP_FAILED);
        memset(pages, 7, SIZE);
        assert_int_equal(mprotect(pages, SIZE, PROT_READ), 0);
        assert_int_not_equal(driver.host_register(pages, SIZE, 0), DRIVER_SUCCESS);
        const unsigned code = driver.host_register(pages, SIZE, DRIVER_REGISTER_READ_ONLY);
        assert_int_equal(code == DRIVER_SUCCESS, supported);
        if (supported) {
            ok(driver.copy_to_device(a, pages, SIZE, stream));
            assert_int_not_equal(driver.copy_from_device(pages + 16, a, 16, stream),
                                 DRIVER_SUCCESS);
            ok(driver.copy_from_device(read, a, SIZE, stream));
            ok(driver.stream_synchronize(stream));
            assert_memory_equal(read, pages, SIZE);
            ok(driver.host_unregister(pages));
        }
        ok(driver.memory_free(a));
        munmap(pages, SIZE);
        close_driver(state);
    }
}

// ---- Streams and events ------------------------------------------------------------------------

// A slow copy, a copy on the device behind it on another stream, and one back on a third. Without
// any one of the waits a round reads what is not there yet, or writes over what was not yet read.
static void test_order(void **state) {
    (void)state;
    enum { SIZE = 1 << 20, ROUNDS = 5 };
    open_driver("H2D=100M", "D2H=70M", "SEED=3", NULL);
    struct CUstream_st *second, *third;
    struct CUevent_st *arrived, *moved, *fetched;
    ok(driver.stream_create(&second, DRIVER_STREAM_NON_BLOCKING));
    ok(driver.stream_create(&third, DRIVER_STREAM_NON_BLOCKING));
    ok(driver.event_create(&arrived, DRIVER_EVENT_DISABLE_TIMING));
    ok(driver.event_create(&moved, DRIVER_EVENT_DISABLE_TIMING));
    ok(driver.event_create(&fetched, DRIVER_EVENT_DISABLE_TIMING));
    unsigned long long a = memory_of(SIZE), b = memory_of(SIZE);
    static uint8_t in[ROUNDS][SIZE], out[ROUNDS][SIZE];
    for (int i = 0; i < ROUNDS; i++) {
        memset(in[i], i + 1, SIZE);
        ok(driver.stream_wait_event(stream, moved, 0)); // the last round has taken a
        ok(driver.copy_to_device(a, in[i], SIZE, stream));
        ok(driver.event_record(arrived, stream));
        ok(driver.stream_wait_event(second, arrived, 0));
        ok(driver.stream_wait_event(second, fetched, 0)); // and b
        ok(driver.copy_within(b, a, SIZE, second));
        ok(driver.event_record(moved, second));
        ok(driver.stream_wait_event(third, moved, 0));
        ok(driver.copy_from_device(out[i], b, SIZE, third));
        ok(driver.event_record(fetched, third));
    }
    ok(driver.stream_synchronize(third));
    assert_memory_equal(in, out, sizeof in);
    ok(driver.event_destroy(arrived));
    ok(driver.event_destroy(moved));
    ok(driver.event_destroy(fetched));
    ok(driver.stream_destroy(second));
    ok(driver.stream_destroy(third));
    ok(driver.memory_free(a));
    ok(driver.memory_free(b));
}

// The write waits for a read that was queued on another stream, and a second read for the write.
// Each is slower than what must not overtake it. Events may be destroyed while they are in use.
static void test_waits(void **state) {
    (void)state;
    open_driver("H2D=20", "D2H=40", NULL); // 0.2 and 0.1 s for four bytes
    struct CUstream_st *second;
    struct CUevent_st *read, *written;
    const int values[] = {1, 2};
    int before = 0, after = 0;
    ok(driver.stream_create(&second, DRIVER_STREAM_NON_BLOCKING));
    ok(driver.event_create(&read, DRIVER_EVENT_DISABLE_TIMING));
    ok(driver.event_create(&written, DRIVER_EVENT_DISABLE_TIMING));
    unsigned long long a = memory_of(sizeof *values);
    ok(driver.copy_to_device(a, &values[0], sizeof *values, second));
    ok(driver.copy_from_device(&before, a, sizeof before, second));
    ok(driver.event_record(read, second));
    ok(driver.stream_wait_event(stream, read, 0));
    ok(driver.copy_to_device(a, &values[1], sizeof *values, stream));
    ok(driver.event_record(written, stream));
    ok(driver.stream_wait_event(second, written, 0));
    ok(driver.copy_from_device(&after, a, sizeof after, second));
    ok(driver.event_destroy(read));
    ok(driver.event_destroy(written));
    ok(driver.stream_synchronize(second));
    assert_int_equal(before, 1);
    assert_int_equal(after, 2);
    ok(driver.stream_destroy(second));
    ok(driver.memory_free(a));
}

// Host memory that holds up whoever reads it until the test lets go.
static struct {
    char *closed, *open; // the same page, mapped twice
    sem_t let_go;
    pthread_t test;
    volatile sig_atomic_t held_test; // the test's own thread came by: the copy was made at the call
} gate;

static void at_gate(int number, siginfo_t *info, void *unused) {
    (void)unused;
    if (info->si_addr < (void *)gate.closed || info->si_addr >= (void *)(gate.closed + GATE_BYTES))
        signal(number, SIG_DFL); // somebody else's fault, which comes again
    else if (pthread_equal(pthread_self(), gate.test))
        gate.held_test = 1;
    else
        while (sem_wait(&gate.let_go)) {
        }
    mprotect(gate.closed, GATE_BYTES, PROT_READ | PROT_WRITE);
}

static void open_gate(struct sigaction *old) {
    const struct sigaction action = {.sa_sigaction = at_gate, .sa_flags = SA_SIGINFO};
    int file = memfd_create("gate", MFD_CLOEXEC);
    assert_true(file >= 0);
    assert_int_equal(ftruncate(file, GATE_BYTES), 0);
    gate.open = mmap(NULL, GATE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    gate.closed = mmap(NULL, GATE_BYTES, PROT_NONE, MAP_SHARED, file, 0);
    assert_ptr_not_equal(gate.open, MAP_FAILED);
    assert_ptr_not_equal(gate.closed, MAP_FAILED);
    close(file);
    assert_int_equal(sem_init(&gate.let_go, 0, 0), 0);
    gate.test = pthread_self();
    gate.held_test = 0;
    assert_int_equal(sigaction(SIGSEGV, &action, old), 0);
}

// Work is only queued: while a copy is under way the test goes on, what it then writes to the
// copy's source is what arrives, and another stream that does not wait reads what was there before.
static void test_asynchrony(void **state) {
    (void)state;
    uint8_t early[GATE_BYTES], late[GATE_BYTES];
    struct CUstream_st *second;
    struct sigaction old;
    open_driver(NULL);
    ok(driver.stream_create(&second, DRIVER_STREAM_NON_BLOCKING));
    unsigned long long a = memory_of(GATE_BYTES);
    open_gate(&old);
    memset(gate.open, 1, GATE_BYTES);
    struct CUevent_st *copied;
    ok(driver.event_create(&copied, 0));
    ok(driver.event_query(copied)); // never recorded
    ok(driver.copy_to_device(a, gate.closed, GATE_BYTES, stream));
    ok(driver.event_record(copied, stream));
    assert_int_equal(driver.stream_query(stream), DRIVER_NOT_READY);
    assert_int_equal(driver.event_query(copied), DRIVER_NOT_READY);
    assert_int_equal(driver.event_elapsed(&(float){0}, copied, copied), DRIVER_NOT_READY);
    ok(driver.copy_from_device(late, a, GATE_BYTES, stream));
    ok(driver.copy_from_device(early, a, GATE_BYTES, second));
    ok(driver.stream_synchronize(second));
    memset(gate.open, 2, GATE_BYTES);
    sem_post(&gate.let_go);
    ok(driver.stream_synchronize(stream));
    ok(driver.stream_query(stream));
    ok(driver.event_query(copied));
    ok(driver.event_destroy(copied));
    sigaction(SIGSEGV, &old, NULL);
    assert_false(gate.held_test);
    for (int i = 0; i < GATE_BYTES; i++) {
        assert_int_equal(early[i], 0xff); // as new memory is
        assert_int_equal(late[i], 2);
    }
    munmap(gate.open, GATE_BYTES);
    munmap(gate.closed, GATE_BYTES);
    sem_destroy(&gate.let_go);
    ok(driver.stream_destroy(second));
    ok(driver.memory_free(a));
}

// The second event comes a copy of 20 ms after the first.
static void test_times(void **state) {
    (void)state;
    open_driver("H2D=50K", NULL);
    struct CUevent_st *first, *last, *without;
    unsigned long long a = memory_of(1024);
    const char bytes[1024] = {0};
    float ms = 0;
    ok(driver.event_create(&first, 0));
    ok(driver.event_create(&last, 0));
    ok(driver.event_create(&without, DRIVER_EVENT_DISABLE_TIMING));
    ok(driver.event_record(first, stream));
    ok(driver.copy_to_device(a, bytes, sizeof bytes, stream));
    ok(driver.event_record(without, stream));
    assert_int_equal(driver.event_elapsed(&ms, first, last), INVALID_HANDLE); // not yet recorded
    ok(driver.event_record(last, stream));
    ok(driver.stream_synchronize(stream));
    ok(driver.event_elapsed(&ms, first, last));
    assert_true(ms >= 20);
    ok(driver.event_elapsed(&ms, last, first));
    assert_true(ms <= -20);
    assert_int_equal(driver.event_elapsed(&ms, first, without), INVALID_HANDLE);
    ok(driver.event_destroy(first));
    ok(driver.event_destroy(last));
    ok(driver.event_destroy(without));
    ok(driver.memory_free(a));
}

struct host_work {
    uint8_t in[64], out[64];
    unsigned code; // of a call of the driver from there
};

static void turn_around(void *argument) {
    struct host_work *work = argument;
    for (int i = 0; i < 64; i++) work->out[i] = work->in[63 - i];
    work->code = driver.context_set(context);
}

// A call comes between the copies before and after it, and may not call the driver.
static void test_host_calls(void **state) {
    (void)state;
    open_driver("H2D=2K", "D2H=2K", "SEED=5", NULL); // 32 ms for each copy
    struct host_work work = {0};
    unsigned long long a = memory_of(64), b = memory_of(64);
    uint8_t values[64], back[64];
    for (int i = 0; i < 64; i++) values[i] = (uint8_t)(i + 1);
    ok(driver.copy_to_device(a, values, 64, stream));
    ok(driver.copy_from_device(work.in, a, 64, stream));
    ok(driver.host_call(stream, turn_around, &work));
    ok(driver.copy_to_device(b, work.out, 64, stream));
    ok(driver.copy_from_device(back, b, 64, stream));
    assert_int_equal(driver.host_call(stream, NULL, NULL), INVALID_VALUE);
    ok(driver.stream_synchronize(stream));
    for (int i = 0; i < 64; i++) assert_int_equal(back[i], 64 - i);
    assert_int_equal(work.code, NOT_PERMITTED);
    ok(driver.memory_free(a));
    ok(driver.memory_free(b));
}

// ---- Images ------------------------------------------------------------------------------------

static unsigned load(struct CUmod_st **module, const void *image, char *log) {
    unsigned options[] = {DRIVER_JIT_ERROR_LOG, DRIVER_JIT_ERROR_LOG_BYTES};
    void *values[] = {log, (void *)(uintptr_t)200};
    return driver.module_load(module, image, 2, options, values);
}

static unsigned load_ptx(const char *version, const char *target) {
    char text[200], log[200] = "";
    struct CUmod_st *module = NULL;
    snprintf(text, sizeof text, "//\n.version %s\n.target %s\n.visible .entry swiglu(\n", version,
             target);
    unsigned code = load(&module, text, log);
    assert_int_equal(code != 0, *log != 0);
    if (module) driver.module_unload(module);
    return code;
}

static void test_ptx(void **state) {
    (void)state;
    open_driver("CC=7.5", "DRIVER=12020", NULL);
    assert_int_equal(load_ptx("6.0", "sm_61"), 0);
    assert_int_equal(load_ptx("8.2", "sm_75"), 0);
    assert_int_equal(load_ptx("8.3", "sm_75"), 222);
    assert_int_equal(load_ptx("7.0", "sm_80"), 218);
    assert_int_equal(load_ptx("7.0", "none"), 218);
}

// The header of an ELF file as nvcc 12 (ABI 7) and 13 (ABI 8) write it.
static unsigned load_cubin(int abi, unsigned flags, int machine) {
    char log[200] = "";
    _Alignas(8) uint8_t elf[64] = {0x7f, 'E', 'L', 'F', 2, 1, 1, 0x33, (uint8_t)abi};
    struct CUmod_st *module = NULL;
    memcpy(elf + 18, &(uint16_t){(uint16_t)machine}, 2);
    memcpy(elf + 48, &flags, 4);
    unsigned code = load(&module, elf, log);
    if (module) driver.module_unload(module);
    return code;
}

static void test_cubins(void **state) {
    (void)state;
    open_driver("CC=8.6", "DRIVER=12020", NULL);
    assert_int_equal(load_cubin(7, 0x560556, 190), 0);
    assert_int_equal(load_cubin(7, 0x500550, 190), 0);   // 8.0 runs on 8.6
    assert_int_equal(load_cubin(7, 0x590559, 190), 209); // 8.9 does not
    assert_int_equal(load_cubin(7, 0x4b054b, 190), 209); // nor 7.5
    assert_int_equal(load_cubin(7, 0x560556, 62), 200);  // a program of the host
    assert_int_equal(load_cubin(8, 0x6005604, 190), 200);
    close_driver(NULL);
    open_driver("CC=8.6", "DRIVER=13000", NULL);
    assert_int_equal(load_cubin(8, 0x6005604, 190), 0);
    assert_int_equal(load_cubin(8, 0x6007802, 190), 209);
}

// ---- Launches ----------------------------------------------------------------------------------

static struct CUmod_st *kernels(struct CUfunc_st **swiglu, struct CUfunc_st **mma) {
    struct CUmod_st *module = NULL;
    struct CUfunc_st *none = NULL;
    char log[200];
    assert_int_equal(load(&module,
                          "//\n.version 6.5\n.target sm_75\n.visible .entry swiglu(\n"
                          ".visible .entry gemm_mma_q4_k(\n",
                          log),
                     0);
    ok(driver.module_function(swiglu, module, "swiglu"));
    ok(driver.module_function(mma, module, "gemm_mma_q4_k"));
    assert_int_equal(driver.module_function(&none, module, "rms_norm"), NOT_FOUND);
    return module;
}

static unsigned launch(struct CUfunc_st *f, unsigned blocks, unsigned threads,
                       unsigned shared_bytes, void *params) {
    return driver.launch(f, blocks, 1, 1, threads, 1, 1, shared_bytes, stream, &params, NULL);
}

static void test_launches_that_miss(void **state) {
    (void)state;
    open_driver("CC=7.5", "TENSOR=0", NULL);
    struct CUfunc_st *swiglu, *mma;
    struct CUmod_st *module = kernels(&swiglu, &mma);
    unsigned long long a = memory_of(400);
    struct swiglu_args args = {.out = host(a),
                               .gate = host(a),
                               .up = host(a),
                               .n_rows = 1,
                               .n_cols = 100,
                               .stride = 100,
                               .up_stride = 100};
    ok(launch(swiglu, 1, 128, 48 << 10, &args));
    ok(driver.stream_synchronize(stream));
    assert_int_equal(launch(swiglu, 0, 128, 0, &args), INVALID_VALUE);
    assert_int_equal(launch(swiglu, 1, 1025, 0, &args), INVALID_VALUE);
    assert_int_equal(launch(swiglu, 1, 128, (48 << 10) + 1, &args), INVALID_VALUE);
    assert_int_equal(launch(mma, 1, 128, 0, (char[1024]){0}), INVALID_VALUE); // no tensor cores
    ok(driver.stream_synchronize(stream)); // nothing of that sticks
    ok(driver.module_unload(module));
    ok(driver.memory_free(a));
}

// A kernel that writes behind its memory fails, and so does all that comes after it.
static void test_guards(void **state) {
    (void)state;
    if (strstr(library, "/asan/")) skip(); // ASan ends the program at the write itself
    open_driver("CC=7.5", NULL);
    struct CUfunc_st *swiglu, *mma;
    struct CUmod_st *module = kernels(&swiglu, &mma);
    unsigned long long a = memory_of(400), b = memory_of(404), c = 0;
    struct swiglu_args args = {.out = host(a),
                               .gate = host(b),
                               .up = host(b),
                               .n_rows = 1,
                               .n_cols = 101,
                               .stride = 101,
                               .up_stride = 101};
    ok(launch(swiglu, 1, 128, 0, &args));
    assert_int_equal(driver.stream_synchronize(stream), ILLEGAL_ADDRESS);
    assert_int_equal(launch(swiglu, 1, 128, 0, &args), ILLEGAL_ADDRESS);
    assert_int_equal(driver.memory_alloc(&c, 10), ILLEGAL_ADDRESS);
    assert_int_equal(driver.memory_free(a), ILLEGAL_ADDRESS); // but it is free
    assert_int_equal(driver.memory_free(a), INVALID_VALUE);
    assert_int_equal(driver.memory_free(b), ILLEGAL_ADDRESS);
    ok(driver.module_unload(module));
    close_driver(NULL);
    open_driver("CC=7.5", NULL); // a new context starts anew
    a = memory_of(400);
    ok(driver.stream_synchronize(stream));
    ok(driver.memory_free(a));
}

// Static shared memory is NaN in each launch: a block with too few threads leaves places that the
// others would have written, and must not find there what the launch before has left.
static void test_static_shared(void **state) {
    (void)state;
    open_driver("CC=7.5", "WORKERS=1", NULL);
    struct CUmod_st *module = NULL;
    struct CUfunc_st *norm = NULL;
    char log[200];
    ok(load(&module, "//\n.version 6.5\n.target sm_75\n.visible .entry rms_norm(\n", log));
    ok(driver.module_function(&norm, module, "rms_norm"));
    unsigned long long a = memory_of(400);
    float *x = host(a), *out = x + 10;
    struct rms_norm_args args = {.out = out, .x = x, .n_rows = 1, .n_cols = 3, .eps = 1};
    for (int round = 0; round < 3; round++) {
        x[0] = x[1] = x[2] = 1, out[0] = 0;
        ok(launch(norm, 1, round == 1 ? 32 : RMS_NORM_THREADS, 0, &args));
        ok(driver.stream_synchronize(stream));
        if (round == 1)
            assert_true(isnan(out[0]));
        else
            assert_true(out[0] > 0.7F && out[0] < 0.71F); // 1 / sqrt(2)
    }
    ok(driver.module_unload(module));
    ok(driver.memory_free(a));
}

// Large memory takes room where it is touched: 64 GiB fit anywhere.
static void test_sparse(void **state) {
    (void)state;
    open_driver("VRAM=100G", "SPARSE=1", NULL);
    const size_t size_bytes = (size_t)64 << 30;
    unsigned long long a = memory_of(size_bytes), b = memory_of(1000);
    uint8_t *bytes = host(a);
    bytes[size_bytes - 1] = 7;
    assert_int_equal(bytes[size_bytes / 2], 0);
    assert_int_equal(*(uint8_t *)host(b), 0xff); // small memory is filled
    ok(driver.memory_free(a));
    ok(driver.memory_free(b));
}

#define TEST(name) cmocka_unit_test_teardown(name, close_driver)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(test_memory),
        TEST(test_copies_that_miss),
        TEST(test_rows_that_miss),
        TEST(test_seal),
        TEST(test_read_only),
        TEST(test_order),
        TEST(test_asynchrony),
        TEST(test_waits),
        TEST(test_times),
        TEST(test_host_calls),
        TEST(test_ptx),
        TEST(test_cubins),
        TEST(test_launches_that_miss),
        TEST(test_guards),
        TEST(test_static_shared),
        TEST(test_sparse),
    };
    if (!find_emulator(library, sizeof library)) {
        fprintf(stderr, "test_emulator: no libcuda.so.1 beside the tests (make emulator)\n");
        return 1;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}

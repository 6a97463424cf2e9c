/* limits.c: see limits.h.
 *
 * The loops of multiply-adds keep all operands in registers. An empty assembler statement changes
 * an operand as far as the compiler knows, so that it computes every round. Dots of bytes are
 * assembler too, since intrinsics belong to kernels.
 */
#include "bench/lib/limits.h"

#include "base/clock.h"
#include "base/mem.h"

#include <time.h>
#include <unistd.h>

enum {
    READ_ROUNDS = 3, // over the memory, by each distance of prefetches
    READ_PIECES = 8, // of the memory, timed apart, since other programs disturb most long runs
    PEAK_RUNS = 30,
    PEAK_ROUNDS = 20000, // of a loop, some 100 us
    SUMS = 12,           // of floats in registers: their latency is hidden by so many
    TOKENS = 4,
    LANES = 1024, // at most
    SPREAD = 8,   // words between two lanes' results, which share no cache line
};

uint64_t limits_clock_ns(const struct team *team) {
    struct timespec time;
    if (team_size(team) > 1 || clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time) != 0)
        return clock_ns();
    return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

// ---- Reading ------------------------------------------------------------------------------------

void *limits_map(uint64_t size_bytes, bool huge_pages) {
    void *memory = mem_map_pages(size_bytes);
    if (memory && !huge_pages) mem_use_small_pages(memory, size_bytes);
    if (memory && mem_populate(memory, size_bytes)) return memory;
    limits_unmap(memory, size_bytes);
    return NULL;
}

void limits_unmap(void *memory, uint64_t size_bytes) { mem_unmap_pages(memory, size_bytes); }

struct reading {
    const uint64_t *words;
    int64_t count;
    int64_t ahead;                 // words from a load to its prefetch; 0: none
    uint64_t sums[LANES * SPREAD]; // by lane; they keep the compiler from removing the reads
};

// Many sums hide the latency of the additions; the compiler makes vectors of them.
#if HAVE_X86
__attribute__((target_clones("avx512f", "avx2", "default")))
#endif
static uint64_t
sum_words(const uint64_t *words, int64_t count, int64_t ahead) {
    uint64_t sums[32] = {0}, total = 0;
    for (int64_t i = 0; i + 32 <= count; i += 32) {
        for (int k = 0; ahead && k < 32; k += 8) __builtin_prefetch(words + i + k + ahead);
        for (int k = 0; k < 32; k++) sums[k] += words[i + k];
    }
    for (int k = 0; k < 32; k++) total += sums[k];
    return total;
}

static void read_lane(const struct lane *lane, void *context) {
    struct reading *r = context;
    int64_t first, last;
    lane_share(lane, r->count, 512, &first, &last);
    r->sums[lane->index * SPREAD] += sum_words(r->words + first, last - first, r->ahead);
}

double limits_read_gbps(struct team *team, const void *memory, uint64_t size_bytes) {
    static const int64_t AHEAD[] = {0, 256, 1024, 3072};
    struct reading r = {.count = (int64_t)(size_bytes / sizeof *r.words / READ_PIECES)};
    uint64_t best_ns = UINT64_MAX;
    for (int i = 0; i < READ_ROUNDS * 4 * READ_PIECES; i++) {
        r.words = (const uint64_t *)memory + i % READ_PIECES * r.count;
        r.ahead = AHEAD[i / READ_PIECES % 4];
        const uint64_t start_ns = limits_clock_ns(team);
        team_run(team, read_lane, &r);
        const uint64_t ns = limits_clock_ns(team) - start_ns;
        if (ns < best_ns) best_ns = ns;
    }
    return (double)r.count * (double)sizeof *r.words / (double)best_ns;
}

// ---- Multiplying --------------------------------------------------------------------------------

// A loop of PEAK_ROUNDS rounds. Returns a number that depends on all of them.
typedef float peak_fn(void);

struct peak_loop {
    peak_fn *run;
    double flops; // of a round
};

#if HAVE_X86

#ifdef __clang__
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

typedef int32_t ints256 __attribute__((vector_size(32)));
typedef int32_t ints512 __attribute__((vector_size(64)));
typedef float floats256 __attribute__((vector_size(32)));
typedef float floats512 __attribute__((vector_size(64)));

// A round: SUMS multiply-adds of vectors, which do not wait for each other.
#define FLOAT_LOOP(NAME, TARGET, FLOATS)                                        \
    __attribute__((target(TARGET))) static float NAME(void) {                   \
        FLOATS sums[SUMS], a = (FLOATS){0} + 0.999F, b = (FLOATS){0} + 0.001F;  \
        float out = 0;                                                          \
        UNROLL for (int i = 0; i < SUMS; i++) sums[i] = (FLOATS){0} + (float)i; \
        for (int n = 0; n < PEAK_ROUNDS; n++) {                                 \
            __asm__ volatile("" : "+v"(a));                                     \
            UNROLL for (int i = 0; i < SUMS; i++) sums[i] = sums[i] * a + b;    \
        }                                                                       \
        UNROLL for (int i = 0; i < SUMS; i++) out += sums[i][0];                \
        return out;                                                             \
    }

FLOAT_LOOP(floats_avx2, "avx2,fma", floats256)
FLOAT_LOOP(floats_avx512, "avx512f,avx512vl", floats512)

// A round: as many sums of products of pairs. Assembler, since older compilers lack the intrinsic.
__attribute__((target("avx512f,avx512vl"))) static float pairs_avx512bf16(void) {
    floats512 sums[SUMS], a = {0}, b = {0};
    float out = 0;
    UNROLL for (int i = 0; i < SUMS; i++) sums[i] = (floats512){0} + (float)i;
    for (int n = 0; n < PEAK_ROUNDS; n++) {
        UNROLL for (int i = 0; i < SUMS; i++) {
            __asm__ volatile("vdpbf16ps %2, %1, %0" : "+v"(sums[i]) : "v"(a), "v"(b));
        }
    }
    UNROLL for (int i = 0; i < SUMS; i++) out += sums[i][0];
    return out;
}

// Statements of one instruction, which the compiler neither moves out of a loop nor joins.
#define DOT4_AVX512(sum, w, x) __asm__ volatile("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(w), "v"(x))
#define DOT4_AVXVNNI(sum, w, x) \
    __asm__ volatile("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sum) : "x"(w), "x"(x))
#define SET(OP, out, a, b) __asm__ volatile(OP " %2, %1, %0" : "=x"(out) : "x"(a), "x"(b))

// Each adds the dots of 16 columns to sum, which begins as zeros.
#define DOT16_AVX512(sum, w, x)  UNROLL for (int c = 0; c < 4; c++) DOT4_AVX512(sum, w[c], x)
#define DOT16_AVXVNNI(sum, w, x) UNROLL for (int c = 0; c < 4; c++) DOT4_AVXVNNI(sum, w[c], x)
#define DOT16_AVX2(sum, w, x)                                                \
    ints256 pairs[4];                                                        \
    UNROLL for (int c = 0; c < 4; c++) SET("vpmaddubsw", pairs[c], w[c], x); \
    SET("vpaddw", pairs[0], pairs[0], pairs[1]);                             \
    SET("vpaddw", pairs[2], pairs[2], pairs[3]);                             \
    SET("vpaddw", pairs[0], pairs[0], pairs[2]);                             \
    SET("vpmaddwd", sum, pairs[0], ones)

// A round: for each of TOKENS tokens the dots of 32 columns, in two sums of 16, then the float work
// that a block of 32 columns needs.
#define BLOCK_LOOP(NAME, TARGET, INTS, FLOATS, DOT16)                                      \
    __attribute__((target(TARGET))) static float NAME(void) {                              \
        FLOATS sums[TOKENS], scale = (FLOATS){0} + 0.001F, factor = (FLOATS){0} + 0.5F;    \
        INTS w[4], x = (INTS){0} + 0x3030303, ones = (INTS){0} + 0x10001;                  \
        float out = 0;                                                                     \
        (void)ones;                                                                        \
        UNROLL for (int c = 0; c < 4; c++) w[c] = (INTS){0} + 0x1010101 * (c + 1);         \
        UNROLL for (int t = 0; t < TOKENS; t++) sums[t] = (FLOATS){0};                     \
        for (int n = 0; n < PEAK_ROUNDS; n++) {                                            \
            UNROLL for (int t = 0; t < TOKENS; t++) {                                      \
                INTS low = {0}, high = {0};                                                \
                __asm__ volatile("" : "+v"(factor));                                       \
                { DOT16(low, w, x); }                                                      \
                { DOT16(high, w, x); }                                                     \
                sums[t] += __builtin_convertvector(low + high, FLOATS) * (scale * factor); \
            }                                                                              \
        }                                                                                  \
        UNROLL for (int t = 0; t < TOKENS; t++) out += sums[t][0];                         \
        return out;                                                                        \
    }

BLOCK_LOOP(blocks_avx2, "avx2,fma", ints256, floats256, DOT16_AVX2)
BLOCK_LOOP(blocks_avxvnni, "avx2,fma", ints256, floats256, DOT16_AVXVNNI)
BLOCK_LOOP(blocks_avx512, "avx512f,avx512vl", ints512, floats512, DOT16_AVX512)

#define FLOATS_256 \
    { floats_avx2, SUMS * 8 * 2.0 }
#define FLOATS_512 \
    { floats_avx512, SUMS * 16 * 2.0 }
#define BLOCKS_512 \
    { blocks_avx512, TOKENS * 16 * 32 * 2.0 }
static const struct peak_loop FLOATS[ISA_COUNT] = {
    [ISA_AVX2] = FLOATS_256, [ISA_AVXVNNI] = FLOATS_256, [ISA_AVX512] = FLOATS_512,
    [ISA_VBMI] = FLOATS_512, [ISA_ZEN4] = FLOATS_512,    [ISA_AVX512BF16] = FLOATS_512};
static const struct peak_loop PAIRS[ISA_COUNT] = {
    [ISA_AVX512BF16] = {pairs_avx512bf16, SUMS * 32 * 2.0}};
static const struct peak_loop BLOCKS[ISA_COUNT] = {
    [ISA_AVX2] = {blocks_avx2, TOKENS * 8 * 32 * 2.0},
    [ISA_AVXVNNI] = {blocks_avxvnni, TOKENS * 8 * 32 * 2.0},
    [ISA_AVX512] = BLOCKS_512,
    [ISA_VBMI] = BLOCKS_512,
    [ISA_ZEN4] = BLOCKS_512,
    [ISA_AVX512BF16] = BLOCKS_512};

#else

static const struct peak_loop FLOATS[ISA_COUNT], PAIRS[ISA_COUNT],
    BLOCKS[ISA_COUNT]; // not measured here

#endif

struct peak_job {
    peak_fn *run;
    float results[LANES * SPREAD];
};

static void peak_lane(const struct lane *lane, void *context) {
    struct peak_job *job = context;
    job->results[lane->index * SPREAD] = job->run();
}

static double peak_gflops(struct team *team, const struct peak_loop *loop) {
    struct peak_job job = {.run = loop->run};
    uint64_t best_ns = UINT64_MAX;
    if (!loop->run) return 0;
    for (int i = 0; i < PEAK_RUNS; i++) {
        const uint64_t start_ns = limits_clock_ns(team);
        team_run(team, peak_lane, &job);
        const uint64_t ns = limits_clock_ns(team) - start_ns;
        if (ns < best_ns) best_ns = ns;
    }
    return loop->flops * PEAK_ROUNDS * team_size(team) / (double)best_ns;
}

struct limits_peak limits_peak(struct team *team, enum cpu_isa isa) {
    ASSERT(cpu_has_isa(isa));
    return (struct limits_peak){.floats = peak_gflops(team, &FLOATS[isa]),
                                .pairs = peak_gflops(team, &PAIRS[isa]),
                                .blocks = peak_gflops(team, &BLOCKS[isa])};
}

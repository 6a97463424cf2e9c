/* table.c: which kernels the CPU backend runs, by what this CPU can do.
 *
 * The plain C table comes first; each instruction-set level that the CPU has overwrites entries,
 * weakest first. The only place that names the levels' functions. Owns nothing; any thread. Tested
 * by tests/kernels/check_ops.c, which runs every level.
 */
#include "kernels/cpu/cpu.h"

#include "base/err.h"

#include <string.h>

#ifndef HAVE_X86 // 0 leaves the x86 files out of a build for an x86 machine
#ifdef __x86_64__
#define HAVE_X86 1
#else
#define HAVE_X86 0
#endif
#endif

static const char *const NAMES[ISA_COUNT] = {"ref", "avx2", "avxvnni", "avx512", "auto"};

bool cpu_isa_parse(const char *name, enum cpu_isa *out) {
    for (int i = 0; i < ISA_COUNT; i++)
        if (!strcmp(name, NAMES[i])) return *out = (enum cpu_isa)i, true;
    return false;
}

const char *cpu_isa_name(enum cpu_isa isa) {
    ASSERT(isa < ISA_COUNT);
    return NAMES[isa];
}

#if HAVE_X86
#include <cpuid.h>

// __builtin_cpu_supports also asks XGETBV whether the operating system saves the wide registers.
// It does not know every flag with every compiler; those are read from CPUID.
static bool has_avx2(void) {
    unsigned a, b, c, d;
    bool f16c = __get_cpuid(1, &a, &b, &c, &d) && c >> 29 & 1;
    return f16c && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

static bool has_avxvnni(void) {
    unsigned a, b, c, d;
    return has_avx2() && __get_cpuid_count(7, 1, &a, &b, &c, &d) && a >> 4 & 1;
}

static bool has_avx512(void) {
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512vnni");
}

bool cpu_has_isa(enum cpu_isa isa) {
    switch (isa) {
    case ISA_REF:
    case ISA_AUTO: return true;
    case ISA_AVX2: return has_avx2();
    case ISA_AVXVNNI: return has_avxvnni();
    case ISA_AVX512: return has_avx512();
    case ISA_COUNT: break;
    }
    return false;
}

// A CPU can have a level without the one below it (AVX-512 without AVX-VNNI), so each is asked for.
static void add_levels(struct cpu_table *table, enum cpu_isa isa) {
    if (isa >= ISA_AVX2 && has_avx2()) {
        cpu_matmul_avx2(table);
        cpu_ops_avx2(table);
    }
    if (isa >= ISA_AVXVNNI && has_avxvnni()) cpu_matmul_avxvnni(table);
    if (isa >= ISA_AVX512 && has_avx512()) cpu_matmul_avx512(table);
}
#else
bool cpu_has_isa(enum cpu_isa isa) { return isa == ISA_REF || isa == ISA_AUTO; }

static void add_levels(struct cpu_table *table, enum cpu_isa isa) { (void)table, (void)isa; }
#endif

void cpu_table_init(struct cpu_table *table, enum cpu_isa isa) {
    ASSERT(cpu_has_isa(isa));
    cpu_table_ref(table);
    add_levels(table, isa);
}

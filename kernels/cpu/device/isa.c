/* isa.c: see isa.h. */
#include "kernels/cpu/device/isa.h"

#include "base/err.h"
#include "base/host.h"

#include <string.h>

static const char *const NAMES[ISA_COUNT] = {"ref",     "avx2", "avxvnni",    "avx512",
                                             "vbmi",    "zen4", "avx512bf16", "neon",
                                             "dotprod", "i8mm", "auto"};

bool cpu_isa_parse(const char *name, enum cpu_isa *out) {
    for (int i = 0; i < ISA_COUNT; i++)
        if (!strcmp(name, NAMES[i])) return *out = (enum cpu_isa)i, true;
    return false;
}

const char *cpu_isa_name(enum cpu_isa isa) {
    ASSERT(isa < ISA_COUNT);
    return NAMES[isa];
}

// The bits by which Linux reports the instructions of aarch64.
#define HWCAP_ASIMD_BIT   (UINT64_C(1) << 1)
#define HWCAP_ASIMDDP_BIT (UINT64_C(1) << 20)
#define HWCAP2_I8MM_BIT   (UINT64_C(1) << 13)

bool cpu_isa_in_hwcaps(enum cpu_isa isa, uint64_t hwcap, uint64_t hwcap2) {
    const bool neon = hwcap & HWCAP_ASIMD_BIT, dotprod = neon && hwcap & HWCAP_ASIMDDP_BIT;
    switch (isa) {
    case ISA_NEON: return neon;
    case ISA_DOTPROD: return dotprod;
    case ISA_I8MM: return dotprod && hwcap2 & HWCAP2_I8MM_BIT;
    default: return false;
    }
}

bool cpu_isa_was_run(enum cpu_isa isa) {
    return isa != ISA_NEON && isa != ISA_DOTPROD && isa != ISA_I8MM;
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

// AVX-512 with permutations of bytes, and with products of bit matrices.
static bool has_vbmi(void) {
    unsigned a, b, c, d;
    bool gfni = __get_cpuid_count(7, 0, &a, &b, &c, &d) && c >> 8 & 1;
    return gfni && has_avx512() && __builtin_cpu_supports("avx512vbmi") &&
           __builtin_cpu_supports("bmi2");
}

static bool has_avx512bf16(void) { return has_avx512() && __builtin_cpu_supports("avx512bf16"); }

bool cpu_has_isa(enum cpu_isa isa) {
    switch (isa) {
    case ISA_REF:
    case ISA_AUTO: return true;
    case ISA_AVX2: return has_avx2();
    case ISA_AVXVNNI: return has_avxvnni();
    case ISA_AVX512: return has_avx512();
    case ISA_VBMI:
    case ISA_ZEN4: return has_vbmi();
    case ISA_AVX512BF16: return has_avx512bf16();
    default: return false;
    }
}
#elif HAVE_ARM
bool cpu_has_isa(enum cpu_isa isa) {
    if (isa == ISA_REF || isa == ISA_AUTO) return true;
    uint64_t hwcaps[2];
    host_hwcaps(hwcaps);
    return cpu_isa_in_hwcaps(isa, hwcaps[0], hwcaps[1]);
}
#else
bool cpu_has_isa(enum cpu_isa isa) { return isa == ISA_REF || isa == ISA_AUTO; }
#endif

bool cpu_isa_pays(enum cpu_isa isa) {
    if (isa != ISA_ZEN4 && isa != ISA_AVX512BF16) return true;
#if HAVE_X86
    return __builtin_cpu_is("amd");
#else
    return false;
#endif
}

enum cpu_isa cpu_best_isa(void) {
    for (enum cpu_isa isa = ISA_AUTO; isa-- > ISA_REF;)
        if (cpu_has_isa(isa) && cpu_isa_pays(isa)) return isa;
    return ISA_REF;
}

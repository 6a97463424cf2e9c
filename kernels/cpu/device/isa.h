/* isa.h: the levels of instructions that the CPU backend has kernels for.
 *
 * Owns nothing; any thread. Tested by tests/kernels/check_ops.c.
 */
#ifndef TANDEM_KERNELS_CPU_DEVICE_ISA_H
#define TANDEM_KERNELS_CPU_DEVICE_ISA_H

#include <stdbool.h>
#include <stdint.h>

#ifndef HAVE_X86 // 0 leaves the x86 files out of a build for an x86 machine
#ifdef __x86_64__
#define HAVE_X86 1
#else
#define HAVE_X86 0
#endif
#endif

#ifdef __aarch64__
#define HAVE_ARM 1
#else
#define HAVE_ARM 0
#endif

// The levels of x86, then those of aarch64, each family from the weakest on.
enum cpu_isa {
    ISA_REF,
    ISA_AVX2,
    ISA_AVXVNNI,
    ISA_AVX512,
    ISA_VBMI,
    ISA_ZEN4,
    ISA_AVX512BF16,
    ISA_NEON,
    ISA_DOTPROD,
    ISA_I8MM,
    ISA_AUTO,
    ISA_COUNT
};
// The names that cpu_isa_parse takes, for messages.
#define CPU_ISA_NAMES \
    "ref, avx2, avxvnni, avx512, vbmi, zen4, avx512bf16, neon, dotprod, i8mm or auto"
// False for another name.
bool cpu_isa_parse(const char *name, enum cpu_isa *out);
const char *cpu_isa_name(enum cpu_isa isa);
// True if this CPU (and this build) can run that level.
bool cpu_has_isa(enum cpu_isa isa);
// True if an aarch64 system that reports these bits of AT_HWCAP and AT_HWCAP2 can run a level of
// that family; false for the levels of x86.
bool cpu_isa_in_hwcaps(enum cpu_isa isa, uint64_t hwcap, uint64_t hwcap2);
// False for a level that ran on emulated processors only.
bool cpu_isa_was_run(enum cpu_isa isa);
// True if stronger levels include that one on this CPU. Those of Zen 4 and of pairs of BF16 are for
// AMD's processors: others that can run them are slower by them, Intel's since they take two cycles
// for a product of pairs (bench/results.tsv).
bool cpu_isa_pays(enum cpu_isa isa);
// The strongest level that this CPU has and that pays.
enum cpu_isa cpu_best_isa(void);

#endif

/* isa.h: the levels of instructions that the CPU backend has kernels for.
 *
 * Owns nothing; any thread. Tested by tests/kernels/check_ops.c.
 */
#ifndef TANDEM_KERNELS_CPU_DEVICE_ISA_H
#define TANDEM_KERNELS_CPU_DEVICE_ISA_H

#include <stdbool.h>

#ifndef HAVE_X86 // 0 leaves the x86 files out of a build for an x86 machine
#ifdef __x86_64__
#define HAVE_X86 1
#else
#define HAVE_X86 0
#endif
#endif

enum cpu_isa { ISA_REF, ISA_AVX2, ISA_AVXVNNI, ISA_AVX512, ISA_AUTO, ISA_COUNT };
// Parses "ref", "avx2", "avxvnni", "avx512" or "auto". False for another name.
bool cpu_isa_parse(const char *name, enum cpu_isa *out);
const char *cpu_isa_name(enum cpu_isa isa);
// True if this CPU (and this build) can run that level.
bool cpu_has_isa(enum cpu_isa isa);
// The strongest level for which cpu_has_isa is true.
enum cpu_isa cpu_best_isa(void);

#endif

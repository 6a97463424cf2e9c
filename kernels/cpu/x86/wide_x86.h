/* wide_x86.h: vectors of the including file's width, so that one source serves 256 and 512 bits.
 *
 * The including file sets WIDE: 16 floats in 512 bits, else 8 in 256. Types and macros alone; any
 * thread. Used by the x86 matmul and attention files. Tested by tests/kernels/check_ops.c.
 */
#ifndef TANDEM_KERNELS_CPU_X86_WIDE_X86_H
#define TANDEM_KERNELS_CPU_X86_WIDE_X86_H

#include "base/inline.h"

#include <immintrin.h>

#ifdef __clang__
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

#if WIDE
typedef __m512i veci; // integers
typedef __m512 vecf;  // floats
typedef unsigned shift_count;
#define V(op)    _mm512_##op
#define V_SI(op) _mm512_##op##_si512
#define V_REPEAT _mm512_broadcast_i32x4
enum { ROWS = 16 }; // 32-bit lanes
#else
typedef __m256i veci;
typedef __m256 vecf;
typedef int shift_count;
#define V(op)    _mm256_##op
#define V_SI(op) _mm256_##op##_si256
#define V_REPEAT _mm256_broadcastsi128_si256
enum { ROWS = 8 };
#endif

#endif

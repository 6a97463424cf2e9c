/* inline.h: the two ways to overrule the compiler about inlining. Owns nothing; any thread. */
#ifndef TANDEM_BASE_INLINE_H
#define TANDEM_BASE_INLINE_H

#define INLINE      static inline __attribute__((always_inline))
#define OUT_OF_LINE static __attribute__((noinline))

#endif

/* slow.h: SLOW is 1 in programs that a sanitizer watches, which are slow, and 0 in others.
 *
 * A constant. Only for tests, which try less where it is 1.
 */
#ifndef TANDEM_TESTS_LIB_SLOW_H
#define TANDEM_TESTS_LIB_SLOW_H

#ifdef __has_feature
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SLOW 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SLOW 1
#endif
#ifndef SLOW
#define SLOW 0
#endif

#endif

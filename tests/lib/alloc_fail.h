/* alloc_fail.h: refuses the nth host allocation of a test that is linked with --wrap ("link:
 * wrap-alloc").
 *
 * Counts calls of mem_alloc and mem_resize of all threads. Its two counters are the one exception
 * to the rule against file-level variables: the linker's wrapping gives them no other place.
 */
#ifndef TANDEM_TESTS_LIB_ALLOC_FAIL_H
#define TANDEM_TESTS_LIB_ALLOC_FAIL_H

#include <stdbool.h>
#include <stdint.h>

// The nth allocation from now on is refused, once; 0: none. Forgets what happened before.
void alloc_fail_at(int64_t n);
bool alloc_fail_happened(void);
// Allocations since alloc_fail_at.
int64_t alloc_fail_count(void);

#endif

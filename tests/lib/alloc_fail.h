/* alloc_fail.h: refuses the nth host allocation of a test that is linked with --wrap ("link:
 * wrap-alloc"), and counts the bytes of mapped pages, which no sanitizer sees.
 *
 * Counts calls of mem_alloc, mem_resize and mem_map_pages of all threads. Its counters are the one
 * exception to the rule against file-level variables: the linker's wrapping gives them no other
 * place.
 */
#ifndef TANDEM_TESTS_LIB_ALLOC_FAIL_H
#define TANDEM_TESTS_LIB_ALLOC_FAIL_H

#include <stdbool.h>
#include <stdint.h>

// The nth allocation from now on is refused, once; 0: none. Forgets what happened before, but not
// what is mapped.
void alloc_fail_at(int64_t n);
bool alloc_fail_happened(void);
// Allocations since alloc_fail_at.
int64_t alloc_fail_count(void);
// Bytes from mem_map_pages that are not given back yet, with the size that they were asked with.
int64_t alloc_fail_mapped_bytes(void);

#endif

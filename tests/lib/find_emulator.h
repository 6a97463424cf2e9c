/* find_emulator.h: where the look-alike libcuda.so.1 of this build lies.
 *
 * Owns nothing. Any thread. Used by the tests of the CUDA backend and of the emulator.
 */
#ifndef TANDEM_TESTS_LIB_FIND_EMULATOR_H
#define TANDEM_TESTS_LIB_FIND_EMULATOR_H

#include <stdbool.h>
#include <stddef.h>

// Writes its path: beside tests/ of the running test's build, or one folder further up for release.
// False if there is none.
bool find_emulator(char *path, size_t size_bytes);

#endif

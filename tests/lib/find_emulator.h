/* find_emulator.h: where the look-alike libcuda.so.1 and the look-alike Metal of this build lie.
 *
 * Owns nothing. Any thread. Used by the tests of the CUDA and Metal backends and of the emulators.
 */
#ifndef TANDEM_TESTS_LIB_FIND_EMULATOR_H
#define TANDEM_TESTS_LIB_FIND_EMULATOR_H

#include <stdbool.h>
#include <stddef.h>

// Each writes the library's path: beside tests/ of the running test's build, or one folder further
// up for release. False if there is none.
bool find_emulator(char *path, size_t size_bytes); // the driver of CUDA
bool find_metal(char *path, size_t size_bytes);

#endif

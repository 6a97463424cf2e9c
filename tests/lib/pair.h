/* pair.h: the numbers of the two devices of invented machines and plans.
 *
 * Constants. Only for tests.
 */
#ifndef TANDEM_TESTS_LIB_PAIR_H
#define TANDEM_TESTS_LIB_PAIR_H

enum { HOST = 0, GPU = 1 };

#endif

/* in_child.h: runs a part of a test in a process of its own, since nothing of a lost device is
 * given back.
 *
 * For cmocka programs only, in the thread of the test. Used by the tests of backends.
 */
#ifndef TANDEM_TESTS_LIB_IN_CHILD_H
#define TANDEM_TESTS_LIB_IN_CHILD_H

// Runs fn in a child of this process and fails unless that ends with 0. What fails in fn makes the
// child end as this program does.
void in_child(void (*fn)(void));

#endif

/* open_device.h: devices, streams, events and buffers for tests, which fail where one is refused.
 *
 * The caller owns what it gets. For cmocka programs only, in the thread of the test. Used by
 * tests/kernels/test_device.c, test_cuda.c, test_metal.c and tests/sim/test_sim.c.
 */
#ifndef TANDEM_TESTS_LIB_OPEN_DEVICE_H
#define TANDEM_TESTS_LIB_OPEN_DEVICE_H

#include "kernels/device.h"

#include <stdatomic.h>

struct device *open_sim(const char *spec); // as after "--device sim:"
struct device *open_cpu(int32_t n_threads, int32_t n_threads_batch);

struct stream *new_stream(struct device *d, enum stream_kind kind);
struct event new_event(struct device *d);
struct buffer new_buffer(struct device *d, uint64_t size_bytes, enum purpose purpose);

void wait_ok(struct stream *s);
void wait_fails(struct stream *s, const char *what); // with ERR_DEVICE and a message that has what

// out = gate * sigmoid(gate) * up over count floats: the simplest op that computes.
void swiglu(struct stream *s, void *out, void *gate, void *up, int32_t count);

// The operands of add_one, a host call for stream_call: target = source + 1.
struct host_work {
    int64_t source, target;
    atomic_int n_calls;
};
void add_one(void *context);

#endif

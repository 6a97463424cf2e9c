/* move.cu: copies rows between the device's memory and pinned memory of the host, which it reaches.
 *
 * Grid (n_rows, chunks of MOVE_BYTES of a row); a thread moves 16 bytes, or 4 where a row does not
 * start at a multiple of 16. Reads and writes each byte once. A row of 16 KiB is under way at once,
 * in 8 blocks: the link's latency counts once. A copy by the driver takes a start of its own and
 * two waits between streams. Tested by tests/kernels/test_cuda_copy.c.
 */
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/params.h"

KERNEL void __launch_bounds__(MOVE_THREADS) move_rows(const struct move_params p) {
    const char *source = (const char *)p.source + (int64_t)blockIdx.x * p.source_stride;
    char *target = (char *)p.target + (int64_t)blockIdx.x * p.target_stride;
    const int first = (int)blockIdx.y * MOVE_BYTES;
    const int end = min(first + MOVE_BYTES, p.row_bytes);
    const int at = first + (int)threadIdx.x * p.unit_bytes;
    if (p.unit_bytes == 16) {
        if (at < end) *(uint4 *)(target + at) = *(const uint4 *)(source + at);
        return;
    }
    for (int i = at; i < end; i += MOVE_THREADS * 4)
        *(uint32_t *)(target + i) = *(const uint32_t *)(source + i);
}

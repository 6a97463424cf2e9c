/* move.metal: move_rows, copies within the memory that a device reaches.
 *
 * Grid (chunks of MOVE_BYTES of a row, rows). A thread strides over the chunk's units of 16, 4 or
 * one byte, so neighbouring threads copy neighbouring units. Reads and writes each byte once; the
 * rows may overlap neither themselves nor each other. Tested by tests/kernels/test_metal.c.
 */
#include "kernels/metal/device.metal"

template <class T>
static void move_units(device T *target, device const T *source, int count, int index) {
    for (int i = index; i < count; i += MOVE_THREADS) target[i] = source[i];
}

kernel void move_rows(constant move_params &p [[buffer(0)]],
                      device uchar *target [[buffer(1)]],
                      device const uchar *source [[buffer(2)]],
                      uint2 group [[threadgroup_position_in_grid]],
                      uint index [[thread_index_in_threadgroup]]) {
    const long first = long(group.x) * MOVE_BYTES;
    const int bytes = int(min(long(MOVE_BYTES), p.row_bytes - first));
    device uchar *to = target + long(group.y) * p.target_stride + first;
    device const uchar *from = source + long(group.y) * p.source_stride + first;
    if (p.unit_bytes == 16)
        move_units((device uint4 *)to, (device const uint4 *)from, bytes / 16, int(index));
    else if (p.unit_bytes == 4)
        move_units((device uint *)to, (device const uint *)from, bytes / 4, int(index));
    else
        move_units(to, from, bytes, int(index));
}

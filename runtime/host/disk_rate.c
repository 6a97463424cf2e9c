/* disk_rate.c: see disk_rate.h. */
#include "runtime/host/disk_rate.h"

enum {
    PIECES = 8,             // all over the file
    MOST_BYTES = 16 << 20,  // of a piece: as large as a unit of a small model
    LEAST_BYTES = 1 << 20,  // a smaller piece says little
    LIMIT_NS = 3000000000u, // a slow disk is told apart sooner
};

double disk_rate(const struct file *file, const struct meter *meter) {
    const uint64_t share = file->size_bytes / PIECES;
    const uint64_t size_bytes = share < MOST_BYTES ? share : (uint64_t)MOST_BYTES;
    uint64_t read_bytes = 0, took_ns = 0;
    for (uint64_t i = 0; i < PIECES && size_bytes >= LEAST_BYTES && took_ns < LIMIT_NS; i++) {
        struct err ignored;
        file_drop(file, i * share, size_bytes);
        if (file_resident_bytes(file, i * share, size_bytes) > size_bytes / 16) continue;
        const uint64_t start_ns = meter_now_ns(meter);
        file_expect(file, i * share, size_bytes);
        if (file_populate(file, i * share, size_bytes, &ignored)) break;
        took_ns += meter_now_ns(meter) - start_ns;
        read_bytes += size_bytes;
    }
    return took_ns > 0 ? (double)read_bytes / (double)took_ns : 0;
}

double disk_rate_of(const char *path, const struct meter *meter) {
    struct file file;
    struct err ignored;
    if (file_open(&file, path, &ignored)) return 0;
    const double gbps = disk_rate(&file, meter);
    file_close(&file);
    return gbps;
}

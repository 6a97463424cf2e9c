/* host_darwin.c: see host.h. Asks the kernel of macOS; base/apple.c knows what the answers mean.
 *
 * There are no control groups, so the roots stay unused. Built by make macos-check, never run on a
 * Mac.
 */
#include "base/apple.h"

#include <errno.h>
#include <mach/mach.h>
#include <stdio.h>
#include <string.h>
#include <sys/sysctl.h>
#include <unistd.h>

// Numbers have 4 or 8 bytes.
static bool read_number(const void *context, const char *name, uint64_t *out) {
    (void)context;
    uint64_t value = 0;
    size_t size_bytes = sizeof value;
    if (sysctlbyname(name, &value, &size_bytes, NULL, 0) != 0) return false;
    uint32_t half;
    memcpy(&half, &value, sizeof half);
    if (size_bytes != sizeof half && size_bytes != sizeof value) return false;
    *out = size_bytes == sizeof half ? half : value;
    return true;
}

static const struct apple_table TABLE = {.number = read_number};

enum status host_memory_read(struct host_memory *out, const struct host_roots *roots,
                             struct err *e) {
    (void)roots;
    *out = (struct host_memory){0};
    uint64_t total_bytes;
    if (!read_number(NULL, "hw.memsize", &total_bytes)) return err_errno(e, errno, "hw.memsize");
    vm_statistics64_data_t stats;
    mach_msg_type_number_t count = HOST_VM_INFO64_COUNT;
    const mach_port_t host = mach_host_self();
    const kern_return_t code =
        host_statistics64(host, HOST_VM_INFO64, (host_info64_t)&stats, &count);
    mach_port_deallocate(mach_task_self(), host);
    if (code != KERN_SUCCESS) {
        err_set(e, ERR_FILE, "the system does not say how much memory is free");
        return err_actual(e, "host_statistics64 returned %d", code);
    }
    const struct apple_pages pages = {.internal = stats.internal_page_count,
                                      .purgeable = stats.purgeable_count,
                                      .wired = stats.wire_count,
                                      .compressed = stats.compressor_page_count};
    const uint64_t free_bytes =
        apple_free_bytes(total_bytes, (uint64_t)sysconf(_SC_PAGESIZE), &pages);
    *out = (struct host_memory){total_bytes, free_bytes, free_bytes, "host_statistics64"};
    return OK;
}

int32_t host_cpu_quota(const struct host_roots *roots) {
    (void)roots;
    return 0;
}

uint64_t host_busy_ns(const struct host_roots *roots) {
    (void)roots;
    host_cpu_load_info_data_t load;
    mach_msg_type_number_t count = HOST_CPU_LOAD_INFO_COUNT;
    const mach_port_t host = mach_host_self();
    const kern_return_t code =
        host_statistics(host, HOST_CPU_LOAD_INFO, (host_info_t)&load, &count);
    mach_port_deallocate(mach_task_self(), host);
    const long hertz = sysconf(_SC_CLK_TCK);
    if (code != KERN_SUCCESS || hertz <= 0) return 0;
    const uint64_t ticks = (uint64_t)load.cpu_ticks[CPU_STATE_USER] +
                           load.cpu_ticks[CPU_STATE_SYSTEM] + load.cpu_ticks[CPU_STATE_NICE];
    return ticks * (UINT64_C(1000000000) / (uint64_t)hertz);
}

uint64_t host_major_faults(const struct host_roots *roots) {
    (void)roots;
    vm_statistics64_data_t memory;
    mach_msg_type_number_t count = HOST_VM_INFO64_COUNT;
    const mach_port_t host = mach_host_self();
    const kern_return_t code =
        host_statistics64(host, HOST_VM_INFO64, (host_info64_t)&memory, &count);
    mach_port_deallocate(mach_task_self(), host);
    return code == KERN_SUCCESS ? memory.pageins : 0;
}

char *host_cpu_name(const struct host_roots *roots, char *out, size_t size_bytes) {
    ASSERT(size_bytes > 0);
    (void)roots;
    char text[256];
    size_t length = sizeof text - 1;
    if (sysctlbyname("machdep.cpu.brand_string", text, &length, NULL, 0) != 0) length = 0;
    text[length] = 0;
    snprintf(out, size_bytes, "%s", *text && length > 0 ? text : "CPU");
    return out;
}

void host_cores_read(struct host_cores *out) { apple_cores(out, &TABLE); }

void host_hwcaps(uint64_t out[2]) { apple_hwcaps(out, &TABLE); }

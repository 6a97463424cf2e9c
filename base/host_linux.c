/* host_linux.c: see host.h. */
#include "base/host.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/resource.h>
#include <unistd.h>

enum {
    PATH_BYTES = 1024,
    TEXT_BYTES = 16384,
    UNUSED_BYTES = 32 << 20, // address space that allocators map and do not use
};

// The first size - 1 bytes of folder/name as text. False if it cannot be read.
static bool read_text(const char *folder, const char *name, char *text, size_t size_bytes) {
    char path[PATH_BYTES];
    int length = snprintf(path, sizeof path, "%s/%s", folder, name);
    if (length < 0 || (size_t)length >= sizeof path) {
        errno = ENAMETOOLONG;
        return false;
    }
    int descriptor = open(path, O_RDONLY | O_CLOEXEC);
    if (descriptor < 0) return false;
    size_t used = 0;
    ssize_t n;
    while ((n = read(descriptor, text + used, size_bytes - 1 - used)) > 0) used += (size_t)n;
    close(descriptor);
    text[used] = 0;
    return n == 0;
}

// The number after key at the start of a line, as in "MemTotal:  32 kB" or "inactive_file 4096".
static bool find_number(const char *text, const char *key, uint64_t *out) {
    size_t length = strlen(key);
    for (const char *line = text; line; line = strchr(line, '\n')) {
        if (*line == '\n') line++;
        if (strncmp(line, key, length) != 0) continue;
        char *end;
        unsigned long long number = strtoull(line + length, &end, 10);
        if (end == line + length) return false;
        *out = number;
        return true;
    }
    return false;
}

// A file that holds one number. False for "max", for a negative number and for a missing file.
static bool read_number(const char *folder, const char *name, uint64_t *out) {
    char text[64], *end;
    if (!read_text(folder, name, text, sizeof text)) return false;
    if (text[0] < '0' || text[0] > '9') return false;
    *out = strtoull(text, &end, 10);
    return true;
}

// Finds this process's group under one version-1 controller, or under version 2 if controller is
// "".
static bool find_group(const struct host_roots *roots, const char *controller, char *path,
                       size_t size_bytes) {
    char text[TEXT_BYTES], *save = NULL;
    if (!read_text(roots->proc, "self/cgroup", text, sizeof text)) return false;
    for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        char *names = strchr(line, ':'), *group = names ? strchr(names + 1, ':') : NULL;
        if (!group) continue;
        *group++ = 0;
        char *next = names + 1, *name;
        while ((name = strsep(&next, ","))) {
            if (strcmp(name, controller) != 0) continue;
            int length = snprintf(path, size_bytes, "%s", group);
            return length >= 0 && (size_t)length < size_bytes;
        }
    }
    return false;
}

typedef void (*level_fn)(const char *folder, void *context);

// Calls fn for the folder of a group and for every folder above it, up to the mount point.
static void each_level(const char *mount, const char *group, level_fn fn, void *context) {
    char folder[PATH_BYTES];
    int length = snprintf(folder, sizeof folder, "%s%s", mount, group);
    if (length < 0 || (size_t)length >= sizeof folder) return;
    size_t top = strlen(mount);
    while (strlen(folder) > top) {
        fn(folder, context);
        *strrchr(folder, '/') = 0;
    }
    fn(mount, context);
}

// Walks one controller in both versions; a hybrid system mounts version 2 under "unified".
static void walk_groups(const struct host_roots *roots, const char *controller, level_fn version1,
                        level_fn version2, void *context) {
    char group[PATH_BYTES / 2], mount[PATH_BYTES / 2];
    if (find_group(roots, controller, group, sizeof group)) {
        snprintf(mount, sizeof mount, "%s/%s", roots->cgroup, controller);
        each_level(mount, group, version1, context);
    }
    if (find_group(roots, "", group, sizeof group)) {
        each_level(roots->cgroup, group, version2, context);
        snprintf(mount, sizeof mount, "%s/unified", roots->cgroup);
        each_level(mount, group, version2, context);
    }
}

static void bound_free(struct host_memory *memory, uint64_t free_bytes, const char *source) {
    if (free_bytes >= memory->free_bytes) return;
    memory->free_bytes = free_bytes;
    snprintf(memory->limited_by, sizeof memory->limited_by, "%.*s",
             (int)sizeof memory->limited_by - 1, source);
}

static void bound_memory(struct host_memory *memory, const char *folder, const char *name,
                         uint64_t used_bytes) {
    uint64_t limit;
    if (!read_number(folder, name, &limit)) return;
    if (limit < memory->total_bytes) memory->total_bytes = limit;
    char source[PATH_BYTES];
    snprintf(source, sizeof source, "%.900s/%s", folder, name);
    bound_free(memory, limit > used_bytes ? limit - used_bytes : 0, source);
}

// Bytes that a control group uses, without the pages of files.
static uint64_t group_used(const char *folder, const char *usage_name, const char *prefix) {
    char text[TEXT_BYTES], key[64];
    uint64_t used = 0, active = 0, inactive = 0;
    if (!read_number(folder, usage_name, &used)) return 0;
    if (!read_text(folder, "memory.stat", text, sizeof text)) return used;
    snprintf(key, sizeof key, "%sactive_file ", prefix);
    if (!find_number(text, key, &active)) active = 0;
    snprintf(key, sizeof key, "%sinactive_file ", prefix);
    if (!find_number(text, key, &inactive)) inactive = 0;
    if (active > used) return 0;
    return used - active > inactive ? used - active - inactive : 0;
}

static void memory_level1(const char *folder, void *context) {
    uint64_t used = group_used(folder, "memory.usage_in_bytes", "total_");
    bound_memory(context, folder, "memory.limit_in_bytes", used);
}

static void memory_level2(const char *folder, void *context) {
    uint64_t used = group_used(folder, "memory.current", "");
    bound_memory(context, folder, "memory.max", used);
    bound_memory(context, folder, "memory.high", used);
}

// Bytes of this process's mappings of files that are shared and only read, as those of weights are.
static uint64_t mapped_files(const struct host_roots *roots) {
    char path[PATH_BYTES], line[PATH_BYTES], rights[5];
    unsigned long long first, end;
    uint64_t sum = 0;
    (void)snprintf(path, sizeof path, "%.900s/self/maps", roots->proc);
    FILE *in = fopen(path, "re");
    while (in && fgets(line, sizeof line, in)) {
        if (sscanf(line, "%llx-%llx %4s", &first, &end, rights) != 3) continue;
        if (strcmp(rights, "r--s") == 0 && end > first) sum += end - first;
    }
    if (in) fclose(in);
    return sum;
}

// The address space of this process. What its files of weights take of it counts as free, since a
// plan counts it.
static void bound_space(struct host_memory *memory, const struct host_roots *roots) {
    struct rlimit limit;
    uint64_t pages = 0;
    if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return;
    if (!read_number(roots->proc, "self/statm", &pages)) pages = 0;
    const uint64_t mapped = pages * (uint64_t)sysconf(_SC_PAGESIZE), files = mapped_files(roots);
    const uint64_t used = (mapped > files ? mapped - files : 0) + UNUSED_BYTES;
    if (limit.rlim_cur < memory->total_bytes) memory->total_bytes = limit.rlim_cur;
    bound_free(memory, limit.rlim_cur > used ? limit.rlim_cur - used : 0, "RLIMIT_AS");
}

enum status host_memory_read(struct host_memory *out, const struct host_roots *roots,
                             struct err *e) {
    *out = (struct host_memory){0};
    char text[TEXT_BYTES];
    if (!read_text(roots->proc, "meminfo", text, sizeof text))
        return err_errno(e, errno, "%s/meminfo", roots->proc);
    uint64_t total_kib, available_kib;
    if (!find_number(text, "MemTotal:", &total_kib) ||
        !find_number(text, "MemAvailable:", &available_kib)) {
        err_set(e, ERR_FILE, "%s/meminfo does not say how much memory there is", roots->proc);
        return err_expected(e, "MemTotal and MemAvailable");
    }
    const uint64_t available_bytes = available_kib << 10;
    *out = (struct host_memory){total_kib << 10, available_bytes, available_bytes, "MemAvailable"};
    walk_groups(roots, "memory", memory_level1, memory_level2, out);
    bound_space(out, roots);
    return OK;
}

static void bound_quota(int32_t *cpus, uint64_t quota_us, uint64_t period_us) {
    if (period_us == 0) return;
    uint64_t whole = quota_us / period_us;
    if (whole < 1) whole = 1;
    if (whole < (uint64_t)*cpus) *cpus = (int32_t)whole;
}

static void quota_level1(const char *folder, void *context) {
    uint64_t quota, period;
    if (read_number(folder, "cpu.cfs_quota_us", &quota) &&
        read_number(folder, "cpu.cfs_period_us", &period))
        bound_quota(context, quota, period);
}

static void quota_level2(const char *folder, void *context) {
    char text[64];
    unsigned long long quota, period;
    if (read_text(folder, "cpu.max", text, sizeof text) &&
        sscanf(text, "%llu %llu", &quota, &period) == 2)
        bound_quota(context, quota, period);
}

int32_t host_cpu_quota(const struct host_roots *roots) {
    int32_t cpus = INT32_MAX;
    walk_groups(roots, "cpu", quota_level1, quota_level2, &cpus);
    return cpus == INT32_MAX ? 0 : cpus;
}

// The line is "cpu  user nice system idle iowait irq softirq steal ...", in ticks.
uint64_t host_busy_ns(const struct host_roots *roots) {
    char text[TEXT_BYTES];
    unsigned long long user, nice, system, irq, softirq, steal;
    const long hertz = sysconf(_SC_CLK_TCK);
    if (hertz <= 0 || !read_text(roots->proc, "stat", text, sizeof text) ||
        sscanf(text, "cpu %llu %llu %llu %*u %*u %llu %llu %llu", &user, &nice, &system, &irq,
               &softirq, &steal) != 6)
        return 0;
    const unsigned long long ticks = user + nice + system + irq + softirq + steal;
    return ticks * (UINT64_C(1000000000) / (uint64_t)hertz);
}

uint64_t host_major_faults(const struct host_roots *roots) {
    char text[TEXT_BYTES];
    uint64_t faults;
    const bool good = read_text(roots->proc, "vmstat", text, sizeof text);
    return good && find_number(text, "pgmajfault ", &faults) ? faults : 0;
}

char *host_cpu_name(const struct host_roots *roots, char *out, size_t size_bytes) {
    ASSERT(size_bytes > 0);
    char text[TEXT_BYTES];
    snprintf(out, size_bytes, "CPU");
    // The file is as long as there are processors; the beginning names the first one.
    if (!read_text(roots->proc, "cpuinfo", text, sizeof text)) return out;
    char *line = strstr(text, "model name"), *value = line ? strchr(line, ':') : NULL;
    if (!value) return out;
    value += 1 + strspn(value + 1, " \t");
    snprintf(out, size_bytes, "%.*s", (int)strcspn(value, "\n"), value);
    return out;
}

void host_cores_read(struct host_cores *out) {
    const long n = sysconf(_SC_NPROCESSORS_ONLN);
    const int32_t cores = n > 0 && n <= INT32_MAX ? (int32_t)n : 1;
    *out = (struct host_cores){.n_threads = cores, .n_cores = cores, .n_performance = cores};
}

void host_hwcaps(uint64_t out[2]) {
    out[0] = getauxval(AT_HWCAP);
    out[1] = getauxval(AT_HWCAP2);
}

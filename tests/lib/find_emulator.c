/* find_emulator.c: see find_emulator.h. */
#include "tests/lib/find_emulator.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static bool find(char *path, size_t size_bytes, const char *file) {
    static const char *const places[] = {"../../emulator", "../../../emulator"};
    char self[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    self[length > 0 ? length : 0] = 0;
    char *name = strrchr(self, '/');
    if (name) *name = 0;
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        int n = snprintf(path, size_bytes, "%s/%s/%s", self, places[i], file);
        if ((size_t)n < size_bytes && !access(path, R_OK)) return true;
    }
    return false;
}

bool find_emulator(char *path, size_t size_bytes) { return find(path, size_bytes, "libcuda.so.1"); }

bool find_metal(char *path, size_t size_bytes) { return find(path, size_bytes, "libmetal.so"); }

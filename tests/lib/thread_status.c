/* thread_status.c: see thread_status.h. */
#include "tests/lib/thread_status.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

long thread_status(pid_t thread, const char *name) {
    char path[64], line[128];
    long value = -1;
    snprintf(path, sizeof path, "/proc/self/task/%d/status", (int)thread);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    while (fgets(line, sizeof line, file)) {
        if (strncmp(line, name, strlen(name)) != 0) continue;
        const char *text = line + strlen(name) + strspn(line + strlen(name), ":\t ");
        value = *text >= '0' && *text <= '9' ? atol(text) : *text;
    }
    fclose(file);
    return value;
}

long thread_sleeps(pid_t thread) { return thread_status(thread, "voluntary_ctxt_switches"); }

int32_t threads_but(const pid_t *known, int32_t n_known, pid_t *out, int32_t most) {
    int32_t n = 0;
    DIR *folder = opendir("/proc/self/task");
    assert_non_null(folder);
    for (struct dirent *entry; (entry = readdir(folder));) {
        const pid_t thread = (pid_t)atoi(entry->d_name);
        bool is_known = thread == 0; // "." and ".."
        for (int32_t i = 0; i < n_known; i++) is_known |= known[i] == thread;
        if (is_known) continue;
        assert_true(n < most);
        out[n++] = thread;
    }
    closedir(folder);
    return n;
}

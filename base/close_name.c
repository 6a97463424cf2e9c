/* close_name.c: see close_name.h. */
#include "base/close_name.h"

#include <stddef.h>
#include <string.h>

static int smaller(int a, int b) { return a < b ? a : b; }

int close_name_changes(const char *a, const char *b) {
    const size_t m = strlen(a), n = strlen(b);
    if (m > CLOSE_NAME_CHARS || n > CLOSE_NAME_CHARS) return CLOSE_NAME_CHARS;
    int rows[3][CLOSE_NAME_CHARS + 1], *before = rows[0], *last = rows[1], *row = rows[2];
    for (size_t j = 0; j <= n; j++) row[j] = (int)j;
    for (size_t i = 1; i <= m; i++) {
        int *const free_row = before;
        before = last, last = row, row = free_row;
        row[0] = (int)i;
        for (size_t j = 1; j <= n; j++) {
            row[j] =
                smaller(last[j - 1] + (a[i - 1] != b[j - 1]), smaller(row[j - 1], last[j]) + 1);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                row[j] = smaller(row[j], before[j - 2] + 1);
        }
    }
    return row[n];
}

int close_name_most(const char *given) {
    return smaller(2, (int)strlen(given + strspn(given, "-")) / 3);
}

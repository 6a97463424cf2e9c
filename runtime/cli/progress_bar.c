/* progress_bar.c: see progress_bar.h. */
#include "runtime/cli/progress_bar.h"

#include "base/clock.h"

#include <string.h>
#include <unistd.h>

enum { BAR_CHARS = 40 };
static const uint64_t INTERVAL_NS = 100000000;

void progress_bar_init(struct progress_bar *bar, FILE *out, bool wanted) {
    *bar = (struct progress_bar){.out = wanted && isatty(fileno(out)) ? out : NULL};
}

void progress_bar_show(struct progress_bar *bar, const char *what, uint64_t done, uint64_t total) {
    if (!bar->out || total == 0) return;
    if (done >= total) {
        if (bar->drawn && strcmp(bar->drawn, what) == 0) progress_bar_clear(bar);
        return;
    }
    uint64_t now = clock_ns();
    if (bar->last_ns && now - bar->last_ns < INTERVAL_NS) return;
    bar->last_ns = now;
    bar->drawn = what;
    double part = (double)done / (double)total;
    char cells[BAR_CHARS + 1];
    int full = (int)(part * BAR_CHARS);
    memset(cells, '#', (size_t)full);
    memset(cells + full, '.', (size_t)(BAR_CHARS - full));
    cells[BAR_CHARS] = 0;
    fprintf(bar->out, "\r%-8s [%s] %3d%%", what, cells, (int)(part * 100));
    fflush(bar->out);
}

void progress_bar_clear(struct progress_bar *bar) {
    if (!bar->drawn) return;
    fputs("\r\033[K", bar->out);
    fflush(bar->out);
    bar->drawn = NULL;
}

/* progress_bar.c: see progress_bar.h. */
#include "runtime/cli/progress_bar.h"

#include "base/clock.h"

#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

// Beside the cells: the word, brackets, the share.
enum { BAR_CHARS = 40, REST_CHARS = 18 };
static const uint64_t INTERVAL_NS = 100000000;

void progress_bar_init(struct progress_bar *bar, FILE *out, bool wanted) {
    *bar = (struct progress_bar){.out = wanted && isatty(fileno(out)) ? out : NULL};
}

// Cells for which the window has room: a bar that takes two lines cannot be erased.
static int count_cells(const struct progress_bar *bar) {
    struct winsize size = {0};
    if (ioctl(fileno(bar->out), TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return BAR_CHARS;
    const int room = size.ws_col - REST_CHARS;
    return room < 0 ? 0 : room < BAR_CHARS ? room : BAR_CHARS;
}

void progress_bar_show(struct progress_bar *bar, const char *what, uint64_t done, uint64_t total) {
    if (!bar->out || bar->hidden || total == 0) return;
    if (done >= total) {
        if (bar->drawn && strcmp(bar->drawn, what) == 0) progress_bar_clear(bar);
        return;
    }
    uint64_t now = clock_ns();
    const bool follows = bar->drawn && strcmp(bar->drawn, what) == 0;
    if (follows && now - bar->last_ns < INTERVAL_NS) return;
    bar->last_ns = now;
    bar->drawn = what;
    double part = (double)done / (double)total;
    char cells[BAR_CHARS + 1];
    const int n_cells = count_cells(bar), full = (int)(part * n_cells);
    memset(cells, '#', (size_t)full);
    memset(cells + full, '.', (size_t)(n_cells - full));
    cells[n_cells] = 0;
    fprintf(bar->out, "\r%-8s [%s] %3d%%", what, cells, (int)(part * 100));
    fflush(bar->out);
}

void progress_bar_clear(struct progress_bar *bar) {
    if (!bar->drawn) return;
    fputs("\r\033[K", bar->out);
    fflush(bar->out);
    bar->drawn = NULL;
}

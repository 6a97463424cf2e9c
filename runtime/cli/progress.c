/* progress.c: see progress.h. */
#include "runtime/cli/progress.h"

#include "base/clock.h"

#include <string.h>
#include <unistd.h>

enum { BAR_CHARS = 40 };
static const uint64_t INTERVAL_NS = 100000000;

void progress_init(struct progress *p, FILE *out, bool wanted) {
    *p = (struct progress){.out = wanted && isatty(fileno(out)) ? out : NULL};
}

void progress_show(struct progress *p, const char *what, uint64_t done, uint64_t total) {
    if (!p->out || total == 0) return;
    if (done >= total) {
        if (p->drawn && strcmp(p->drawn, what) == 0) progress_clear(p);
        return;
    }
    uint64_t now = clock_ns();
    if (p->last_ns && now - p->last_ns < INTERVAL_NS) return;
    p->last_ns = now;
    p->drawn = what;
    double part = (double)done / (double)total;
    char bar[BAR_CHARS + 1];
    int full = (int)(part * BAR_CHARS);
    memset(bar, '#', (size_t)full);
    memset(bar + full, '.', (size_t)(BAR_CHARS - full));
    bar[BAR_CHARS] = 0;
    fprintf(p->out, "\r%-8s [%s] %3d%%", what, bar, (int)(part * 100));
    fflush(p->out);
}

void progress_clear(struct progress *p) {
    if (!p->drawn) return;
    fputs("\r\033[K", p->out);
    fflush(p->out);
    p->drawn = NULL;
}

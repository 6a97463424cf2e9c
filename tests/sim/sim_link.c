/* sim_link.c: see sim_link.h. */
#include "tests/sim/sim_link.h"

#include <string.h>

static void remove_span(struct sim_link *link, int at) {
    link->n--;
    memmove(&link->taken[at], &link->taken[at + 1], (size_t)(link->n - at) * sizeof *link->taken);
}

// Joins a span with the next one if they touch.
static void join(struct sim_link *link, int at) {
    if (at < 0 || at + 1 >= link->n || link->taken[at].last_ns < link->taken[at + 1].first_ns)
        return;
    link->taken[at].last_ns = link->taken[at + 1].last_ns;
    remove_span(link, at + 1);
}

uint64_t sim_link_take(struct sim_link *link, uint64_t begin_ns, uint64_t length_ns) {
    if (link->n == SIM_LINK_SPANS) remove_span(link, 0);
    uint64_t first_ns = begin_ns;
    int at = 0;
    while (at < link->n && link->taken[at].first_ns < first_ns + length_ns) {
        if (link->taken[at].last_ns > first_ns) first_ns = link->taken[at].last_ns;
        at++;
    }
    if (length_ns == 0) return first_ns;
    memmove(&link->taken[at + 1], &link->taken[at], (size_t)(link->n - at) * sizeof *link->taken);
    link->taken[at].first_ns = first_ns;
    link->taken[at].last_ns = first_ns + length_ns;
    link->n++;
    join(link, at);
    join(link, at - 1);
    return first_ns + length_ns;
}

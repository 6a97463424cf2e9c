/* sim_link.h: when a link, or the host's memory, is free to carry bytes.
 *
 * Copies are asked for in the order in which they were encoded, but one that waits for an op may
 * begin long after one that is asked for later. So the times that are taken are kept, and a copy
 * gets the first gap that holds it. A struct sim_link is a plain value, zeroed at first; the caller
 * guards it. Tested by tests/sim/test_sim.c.
 */
#ifndef TANDEM_TESTS_SIM_SIM_LINK_H
#define TANDEM_TESTS_SIM_SIM_LINK_H

#include <stdint.h>

enum { SIM_LINK_SPANS = 64 }; // the earliest is forgotten; touching ones are one

struct sim_link {
    struct {
        uint64_t first_ns, last_ns;
    } taken[SIM_LINK_SPANS]; // in order, with gaps between
    int n;
};

// Takes the first gap of that length which begins at begin_ns or later, and returns its end.
uint64_t sim_link_take(struct sim_link *link, uint64_t begin_ns, uint64_t length_ns);

#endif

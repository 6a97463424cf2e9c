/* machine.c: see machine.h. */
#include "planner/machine/machine.h"

#include <string.h>

const int32_t RATE_TOKENS[RATE_CLASSES] = {1, 2, 4, 8, 32, 512};

struct link machine_link(const struct machine *m, int from, int to) {
    ASSERT((from == DEVICE_HOST) != (to == DEVICE_HOST));
    if (from == DEVICE_HOST) {
        const struct link_rates *rates = &m->devices[to].link;
        return (struct link){rates->to_gbps, rates->staged_to_gbps, rates->latency_us};
    }
    const struct link_rates *rates = &m->devices[from].link;
    return (struct link){.gbps = rates->from_gbps, .latency_us = rates->latency_us};
}

void machine_copy_rates(struct machine *m, const struct machine *from) {
    ASSERT(m->n_devices == from->n_devices);
    m->rates = from->rates;
    memcpy(m->rates_name, from->rates_name, sizeof m->rates_name);
    memcpy(m->source, from->source, sizeof m->source);
    m->dram_gbps = from->dram_gbps;
    m->disk_gbps = from->disk_gbps;
    m->n_team_sizes = from->n_team_sizes;
    memcpy(m->team_size, from->team_size, sizeof m->team_size);
    memcpy(m->team_gbps, from->team_gbps, sizeof m->team_gbps);
    for (int32_t d = 0; d < m->n_devices; d++) {
        m->devices[d].rates = from->devices[d].rates;
        m->devices[d].link = from->devices[d].link;
    }
}

int8_t machine_accelerator(const struct machine *m) { return m->n_devices > 1 ? 1 : DEVICE_HOST; }

int32_t machine_decode_team(const struct machine *m) {
    double best = 0;
    for (int32_t i = 0; i < m->n_team_sizes; i++)
        if (m->team_gbps[i] > best) best = m->team_gbps[i];
    for (int32_t i = 0; i < m->n_team_sizes; i++)
        if (m->team_gbps[i] >= 0.97 * best) return m->team_size[i];
    return 0;
}

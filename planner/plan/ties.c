/* ties.c: see ties.h. */
#include "planner/plan/ties.h"

void ties_follow(const struct shape *shape, struct placement *place) {
    for (int32_t u = 0; u < shape->n_units; u++) {
        const int32_t leader = unit_leader(shape, u);
        if (leader != u)
            place->units[u] = (struct unit_place){.device = place->units[leader].device};
    }
}

static enum status refuse(const struct shape *shape, int32_t u, struct err *e) {
    char name[64], leader[64];
    plan_unit_name(&shape->units[u], name, sizeof name);
    plan_unit_name(&shape->units[unit_leader(shape, u)], leader, sizeof leader);
    err_set(e, ERR_USAGE, "%s reads the cache of %s and is not placed with it", name, leader);
    return err_expected(e, "both on one device, the first whole and not streamed");
}

enum status ties_allow(const struct shape *shape, const struct placement *asked, uint8_t allowed[],
                       struct err *e) {
    for (int32_t u = 0; u < shape->n_units; u++) {
        uint8_t *leader = &allowed[unit_leader(shape, u)];
        if (*leader & allowed[u])
            *leader &= allowed[u];
        else if (asked && asked->units[u].device != DEVICE_ANY)
            return refuse(shape, u, e);
    }
    for (int32_t u = 0; u < shape->n_units; u++) allowed[u] = allowed[unit_leader(shape, u)];
    return OK;
}

enum status ties_check(const struct shape *shape, const struct placement *place, struct err *e) {
    for (int32_t u = 0; u < shape->n_units; u++) {
        const struct unit_place *mine = &place->units[u];
        const int32_t leader = unit_leader(shape, u);
        if (leader != u &&
            (mine->device != place->units[leader].device || mine->cpu_parts || mine->streamed))
            return refuse(shape, u, e);
    }
    return OK;
}

bool ties_read_inputs(const struct shape *shape, const struct placement *place,
                      enum batch_class batch, int8_t d) {
    for (int32_t u = 0; u < shape->n_units && shape->n_layer_input; u++)
        if (placement_device(place, batch, u) == d && unit_find(&shape->units[u], ROLE_LAYER_GATE))
            return true;
    return false;
}

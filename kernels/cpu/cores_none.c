/* cores_none.c: see cores.h; for builds without hwloc. */
#include "kernels/cpu/cores.h"

enum status core_list_open(struct core_list *out, struct err *e) {
    struct affinity allowed;
    *out = (struct core_list){0};
    if (affinity_get(&allowed)) return core_list_plain(out, &allowed, "/sys/devices/system/cpu", e);
    err_set(e, ERR_DEVICE, "the system does not tell which processors may be used");
    return err_fix(e, "build with hwloc");
}

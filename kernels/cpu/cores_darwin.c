/* cores_darwin.c: see cores.h; for macOS, which numbers no processors and binds no thread to one.
 *
 * The numbers only count. Built by make macos-check, never run on a Mac.
 */
#include "base/host.h"
#include "base/mem.h"
#include "kernels/cpu/cores.h"

enum status core_list_open(struct core_list *out, struct err *e) {
    struct host_cores cores;
    host_cores_read(&cores);
    *out = (struct core_list){
        .n_cpus = cores.n_threads, .n_cores = cores.n_cores, .n_fast = cores.n_performance};
    out->cpus = mem_alloc((size_t)out->n_cpus, sizeof *out->cpus);
    if (!out->cpus) {
        *out = (struct core_list){0};
        return err_memory(e, (size_t)cores.n_threads * sizeof *out->cpus, "the list of processors");
    }
    for (int32_t i = 0; i < out->n_cpus; i++) out->cpus[i] = i;
    return OK;
}

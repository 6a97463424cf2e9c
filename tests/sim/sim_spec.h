/* sim_spec.h: the words after "sim:" that describe a simulated accelerator.
 *
 * A plain struct, owns nothing; any thread. Must accept nothing that it does not understand. Tested
 * by tests/sim/test_sim.c.
 */
#ifndef TANDEM_TESTS_SIM_SIM_SPEC_H
#define TANDEM_TESTS_SIM_SIM_SPEC_H

#include "base/err.h"
#include "kernels/cpu/device/cpu_device.h"

#include <stdint.h>

enum sim_fault {
    SIM_FAULT_ALLOC, // the nth buffer is refused
    SIM_FAULT_COPY,  // the nth copy fails
    SIM_FAULT_OP,    // the nth op fails
    SIM_FAULT_LOST,  // the device is lost at the nth copy or op
    SIM_FAULT_COUNT
};

struct sim_spec {
    uint64_t vram_bytes;
    uint64_t taken_bytes; // of it, taken by others after the device said that all is free
    uint64_t rate[2]; // bytes per second by copy_direction, to and from the device; 0: as fast as
                      // memory
    uint64_t reach;   // not 0: its ops reach the host's memory (device_info.reaches_host)
    // Costs of a real GPU system, each 0 unless it is asked for.
    uint64_t launch_us;  // the calling thread is busy so long with each op: launches on CUDA take 2
                         // us and more
    uint64_t op_us;      // an op takes so much longer: a kernel's start on CUDA, 2 to 3 us
    uint64_t latency_us; // a copy ends so much later, at an idle link too: 10 to 15 us on PCIe
    uint64_t blocks;     // not 0: copies from and to memory that is not pinned hold up the calling
                         // thread, as "API synchronization behavior" of CUDA's manual says
    uint64_t half;       // not 0: one way at a time, as with one copy engine (asyncEngineCount 1)
    uint64_t dram;       // bytes per second of all copies together: both ways are the host's memory
    // Rates of ops instead of this CPU's, for measuring alone (sim_timed.h): bytes of the device's
    // memory and operations per second. 0: no limit; both 0: ops are computed.
    uint64_t read, flops;
    uint64_t fail_at[SIM_FAULT_COUNT]; // counted from 1; 0: never
    uint64_t stall_at;                 // the nth copy, op or call begins late; 0: none
    double stall_s;                    // by so many seconds
    enum cpu_isa isa;                  // whose kernels compute
};

// "vram=96M,taken=20M,h2d=2G,d2h=2G,reach=1,isa=ref,fail=copy:3,stall=7:0.5" and
// "launch=3,op=3,latency=15,blocks=1,half=1,dram=20G,read=200G,flops=4000G", every part optional,
// fail as often as wanted; sizes are whole numbers with K, M or G (powers of 1024). ERR_USAGE names
// the part that is wrong. *out holds the defaults before: 1 GiB and isa_default.
enum status sim_spec_parse(struct sim_spec *out, const char *text, enum cpu_isa isa_default,
                           struct err *e);

#endif

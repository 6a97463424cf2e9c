/* doctor.h: finds problems of this machine in facts about it: each finding has its cost and the
 * fix.
 *
 * Pure: facts in, findings out; cli_doctor.c gathers the facts and prints. Owns nothing and
 * allocates one plan while it works. Must not open devices or files. Any thread. Tested by
 * tests/runtime/test_doctor.c and tests/cli/cli_doctor.sh.
 */
#ifndef TANDEM_RUNTIME_HOST_DOCTOR_H
#define TANDEM_RUNTIME_HOST_DOCTOR_H

#include "base/hardware.h"
#include "base/host.h"
#include "planner/planner.h"

enum { MAX_FINDINGS = 16 };

struct doctor_facts {
    struct machine machine; // as `tandem plan` uses it
    struct memory_modules modules;
    struct pci_link link;      // of the accelerator
    struct host_memory memory; // within this process's limits
    uint64_t available_bytes;  // MemAvailable, without any limit
    int32_t cpu_quota;         // whole processors, 0: no limit
    int32_t n_nvidia_cards;    // display controllers of that vendor on the PCI bus
    char no_accelerator[512];  // why no GPU of NVIDIA could be opened; empty if one is open
    bool pin_refused;          // the driver refused to pin memory
    bool wsl2;                 // Linux runs in Windows, which owns the GPU
    bool on_battery, has_vector_isa;
    char governor[32], isa[16];
    const struct shape *shape; // borrowed; NULL: costs are told without a model
    struct workload workload;
    uint64_t ram_bytes, vram_bytes;    // limits that the user sets; 0: none
    uint64_t file_bytes, cached_bytes; // of the model's file, and of it in RAM; 0, 0: no file
    double faults_per_s;               // major faults of other programs, now
    struct err refused;                // how `tandem plan` refuses the model; zeroed: it does not
};

enum severity { FINDING_NOTE, FINDING_SLOW, FINDING_BROKEN };

struct finding {
    enum severity severity;
    char name[24]; // "link", "memory-channels": for scripts
    char what[320], cost[240], fix[320];
};

// Writes the findings, worst first, and returns their number; 0: nothing is wrong. *e is set
// (ERR_MEMORY) and -1 returned if there is no room to plan in.
int32_t doctor_examine(const struct doctor_facts *facts, struct finding out[MAX_FINDINGS],
                       struct err *e);

const char *severity_name(enum severity severity); // "note", "slow", "broken"

#endif

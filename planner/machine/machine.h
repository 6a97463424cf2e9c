/* machine.h: the devices of a computer and their rates, as data.
 *
 * A struct machine is a plain value without pointers: probed (machine_probe for the CPU side, the
 * runtime for devices), calibrated (runtime/host/calibrate.c), loaded from JSON, saved, or
 * invented. Must not open devices. Included through planner/planner.h. Any thread. Tested by
 * tests/planner/test_machine.c.
 */
#ifndef TANDEM_PLANNER_MACHINE_MACHINE_H
#define TANDEM_PLANNER_MACHINE_MACHINE_H

#include "base/err.h"
#include "kernels/dtypes.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum {
    MAX_DEVICES = 2,  // the CPU and one accelerator
    DEVICE_HOST = 0,  // the CPU, in every machine
    RATE_CLASSES = 6, // batch classes that are measured
    MAX_TEAM_SIZES = 16,
};

// Tokens of each batch class: 1, 2, 4, 8, 32, 512. Time is interpolated between them, and grows in
// proportion above the last.
extern const int32_t RATE_TOKENS[RATE_CLASSES];

// How fast a device computes. GB/s are 1e9 bytes per second.
struct device_rates {
    // Weight bytes per second of a matmul with that many tokens whose weights come from the
    // device's memory, without the time for activations (cost.c).
    double weight_gbps[WEIGHT_COUNT][RATE_CLASSES];
    // Multiply-adds (two each) of attention per second, 1e9, with long caches, by class of tokens;
    // on the CPU without the time that each query takes with any number of keys (cost.c).
    double attention_gflops[KV_TYPES][RATE_CLASSES];
    double vector_gbps; // bytes read and written by norms, rope and activations of many rows
    double memory_gbps; // plain reads of the device's memory by the best team
    double op_us;       // one op besides its bytes: a barrier of the team, a launch
    double launch_us;   // of op_us, what the calling thread takes to encode and submit it, while it
                        // computes nothing else; of an accelerator, 0: unknown
    double pass_us;     // one pass besides its ops: waking, submitting, waiting
    double start_us;    // what an op takes longer whose weights or KV cache lie elsewhere in memory
                        // than what was read last: nothing has prefetched its first bytes
    // For the CPU: the sizes of what passes read of which its cache keeps three quarters and one
    // quarter until the next pass (cost_kept), which is read cache_factor times as fast as from
    // memory (a factor up to 1 is no gain). cache_bytes 0: the cache keeps no weights;
    // cache_quarter_bytes 0: it keeps all up to cache_bytes and nothing of more.
    uint64_t cache_bytes, cache_quarter_bytes;
    double cache_factor;
};

// Rates of copies between the host's memory and the device's. Zero for the CPU.
struct link_rates {
    double to_gbps, from_gbps; // large blocks, pinned host memory
    double staged_to_gbps;     // from mapped memory through a few pinned blocks
    double latency_us; // of handing over a few bytes: a copy, a wait for its event, the start of
                       // computing
    double theoretical_gbps; // of the PCIe link at its current speed and width, 0: unknown
};

struct machine_device {
    char name[96], kind[16]; // kind: "cpu", "sim", ...: as in device_info
    uint64_t capacity_bytes; // memory it has
    uint64_t budget_bytes;   // memory that a plan may use: free memory less reserve_bytes
    uint64_t reserve_bytes;  // left free for the driver's context, the program itself and others
    uint32_t align_bytes;
    int32_t n_lanes;
    bool is_host;    // the CPU: weights are used where the file is mapped
    bool unified;    // its memory is the host's: the bytes of both together stay within the host's
                     // budget
    char driver[32]; // version, empty: unknown
    char capability[16]; // "6.1", empty: unknown
    char pci_id[16];     // "0000:01:00.0", empty: none
    double bus_gbps;     // peak of its memory, bus width times clock; 0: unknown
    struct device_rates rates;
    struct link_rates link;
};

// Where the rates come from.
enum rates_source { RATES_NONE, RATES_NEAREST, RATES_FILE, RATES_MEASURED };

struct machine {
    char name[96];
    char source[240];    // where its figures come from, for people
    char rates_name[96]; // with RATES_FILE and RATES_NEAREST: the machine whose rates they are
    enum rates_source rates;
    // The CPU side, from hwloc.
    int32_t n_packages, n_cores, n_threads, n_performance_cores, n_efficiency_cores, n_numa;
    uint64_t cache_bytes;     // last level, all of them
    uint64_t ram_bytes;       // all of it
    char ram_limited_by[160]; // the source of the host's budget
    // The host's memory serves the CPU and the copies of accelerators at once.
    double dram_gbps;          // both together, 0: unknown
    int32_t n_memory_channels; // 0: unknown
    double disk_gbps;          // reads of a model's file that is not in RAM, 0: unknown
    // Rates of reading memory by team size, for the choice of the decode team.
    int32_t n_team_sizes, team_size[MAX_TEAM_SIZES];
    double team_gbps[MAX_TEAM_SIZES];
    int32_t n_unused_accelerators; // more than one accelerator: the plan uses devices[1] alone
    int32_t n_devices;             // devices[0] is the CPU
    struct machine_device devices[MAX_DEVICES];
};

// Fills the CPU side (neither devices nor rates) from hwloc: of this computer if xml_path is NULL,
// else of a topology file. In a build without hwloc n_cores and n_threads come from the operating
// system and the rest is 0. *link_gbps gets the rate of the card at pci_id, 0 if that is unknown,
// NULL or empty. ERR_FILE, ERR_FORMAT.
enum status machine_probe(struct machine *out, const char *xml_path, const char *pci_id,
                          double *link_gbps, struct err *e);

// Checks that every number is in range: finite, not negative, known rates positive, devices[0] the
// host. The planner relies on it. ERR_FORMAT names the field.
enum status machine_check(const struct machine *m, struct err *e);

// Read and write JSON (configs/machines/README.md has the format). machine_load also reads the
// topology file that the file names, from its folder. machine_save writes everything, so that
// loading it again gives an equal machine.
enum status machine_parse(struct machine *out, const char *text, size_t length, struct err *e);
enum status machine_load(struct machine *out, const char *path, struct err *e);
enum status machine_save(const struct machine *m, FILE *out, struct err *e);

// The machines of configs/machines, built into the program. i in 0..count-1.
int32_t machine_builtin_count(void);
const char *machine_builtin_name(int32_t i); // "gtx-1060-ddr4"
enum status machine_builtin(struct machine *out, int32_t i, struct err *e);

// Cores that a team has without a number of threads: all of them where no kinds are told apart, 0
// if their number is unknown.
int32_t machine_performance_cores(const struct machine *m);

// Takes rates for a machine without calibration: each device gets those of the nearest built-in
// device, of the same kind if there is one, then by compute capability, memory and cores
// (configs/machines/README.md defines the distance), scaled by cores, memory channels and bus_gbps.
// They are for one thread per performance core. Sets rates and rates_name, and dram_gbps and the
// teams if these are unknown.
enum status machine_take_nearest_rates(struct machine *m, struct err *e);

// Copies what was measured of another machine with the same devices: their rates and links, the
// host's memory and teams, and the words for where all that comes from.
void machine_copy_rates(struct machine *m, const struct machine *from);

// Threads at which reading memory saturates: the smallest team within 3 % of the best rate; 0 if
// not measured.
int32_t machine_decode_team(const struct machine *m);

// The accelerator that plans use: the first device that is not the host; DEVICE_HOST if there is
// none.
int8_t machine_accelerator(const struct machine *m);

// Rates of copies in one direction.
struct link {
    double gbps, staged_gbps; // from pinned memory, and from mapped memory through pinned blocks
    double latency_us;        // as in link_rates
};
// The link for copies from one device to another, of which one is the host.
struct link machine_link(const struct machine *m, int from, int to);

#endif

/* hardware.h: facts about the machine that only the operating system's tables tell: PCI links,
 * memory modules, power.
 *
 * Reads files below /sys; owns nothing and allocates nothing. Every fact may be missing: then it is
 * zero or false, which means unknown. Must not open devices. Any thread. Tested by
 * tests/base/test_hardware.c with invented trees and fuzzed by tests/fuzz/fuzz_dmi.c.
 */
#ifndef TANDEM_BASE_HARDWARE_H
#define TANDEM_BASE_HARDWARE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HARDWARE_SYS "/sys"
#define HARDWARE_DEV "/dev"

struct pci_link {             // one direction, in the card's slot
    double gtps, max_gtps;    // transfers per second and lane, 1e9
    int32_t width, max_width; // lanes
};

// Reads the link of the card at pci_id, such as "0000:01:00.0". False if the system does not tell.
bool hardware_pci_link(const char *sys, const char *pci_id, struct pci_link *out);
// Bytes per second, 1e9, after the line code: 8b/10b up to 5 GT/s, 128b/130b above. 0 for unknown.
double hardware_link_gbps(double gtps, int32_t width);

// PCI ids of display controllers of one vendor (0x10de is NVIDIA); at most capacity are written.
// Returns how many there are.
int32_t hardware_display_cards(const char *sys, uint32_t vendor, char (*out)[16], int32_t capacity);

struct memory_modules {
    int32_t n_modules, n_slots;
    int32_t n_channels;     // channels with a module, by the names of slots; 0: names say nothing
    int32_t mega_transfers; // configured speed, MT/s, of the slowest module
    uint64_t size_bytes;    // all modules
};

// Reads the firmware's table (SMBIOS type 17), which most systems show to root only. False if it
// cannot be read.
bool hardware_memory_modules(const char *sys, struct memory_modules *out);
// Parses the bytes of such a table, which may be anything.
bool hardware_parse_dmi(const uint8_t *bytes, size_t size_bytes, struct memory_modules *out);

// True if a mains adapter is there and none is plugged in.
bool hardware_on_battery(const char *sys);

// True on WSL2 with a GPU: Windows owns it, and Linux reaches it through /dev/dxg.
bool hardware_is_wsl2(const char *dev);

// The frequency governor of the first processor ("powersave"), empty if unknown. Returns out.
char *hardware_governor(const char *sys, char *out, size_t size_bytes);

#endif

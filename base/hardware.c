/* hardware.c: see hardware.h. Format: DSP0134, System Management BIOS, type 17. */
#include "base/hardware.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PATH_BYTES = 512, DMI_BYTES = 1 << 17, MAX_CHANNELS = 32 };

// The first size - 1 bytes of a file; -1 if it cannot be read.
static ssize_t read_file(const char *path, void *out, size_t size_bytes) {
    int descriptor = open(path, O_RDONLY | O_CLOEXEC);
    if (descriptor < 0) return -1;
    size_t used = 0;
    ssize_t n;
    while ((n = read(descriptor, (char *)out + used, size_bytes - 1 - used)) > 0) used += (size_t)n;
    close(descriptor);
    ((char *)out)[used] = 0;
    return n < 0 ? -1 : (ssize_t)used;
}

// Reads a file of one line, without the end of the line.
static bool read_line(const char *folder, const char *name, char *out, size_t size_bytes) {
    char path[PATH_BYTES];
    int length = snprintf(path, sizeof path, "%s/%s", folder, name);
    if (length < 0 || (size_t)length >= sizeof path || read_file(path, out, size_bytes) < 0)
        return false;
    out[strcspn(out, "\n")] = 0;
    return true;
}

static bool read_number(const char *folder, const char *name, double *out) {
    char text[64], *end;
    if (!read_line(folder, name, text, sizeof text)) return false;
    *out = strtod(text, &end); // "8.0 GT/s PCIe"
    return end != text && *out > 0 && *out < 1e6;
}

bool hardware_pci_link(const char *sys, const char *pci_id, struct pci_link *out) {
    *out = (struct pci_link){0};
    char folder[PATH_BYTES];
    int length = snprintf(folder, sizeof folder, "%s/bus/pci/devices/%s", sys, pci_id);
    double width = 0, max_width = 0;
    if (length < 0 || (size_t)length >= sizeof folder || !*pci_id ||
        !read_number(folder, "current_link_speed", &out->gtps) ||
        !read_number(folder, "current_link_width", &width))
        return false;
    if (!read_number(folder, "max_link_speed", &out->max_gtps)) out->max_gtps = out->gtps;
    if (!read_number(folder, "max_link_width", &max_width)) max_width = width;
    out->width = (int32_t)width;
    out->max_width = (int32_t)max_width;
    return true;
}

double hardware_link_gbps(double gtps, int32_t width) {
    const double code = gtps <= 5 ? 8.0 / 10 : 128.0 / 130;
    return gtps * code * width / 8;
}

int32_t hardware_display_cards(const char *sys, uint32_t vendor, char (*out)[16],
                               int32_t capacity) {
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "%s/bus/pci/devices", sys);
    DIR *folder = opendir(path);
    if (!folder) return 0;
    int32_t n = 0;
    for (const struct dirent *entry; (entry = readdir(folder));) {
        char card[PATH_BYTES + sizeof entry->d_name], text[64];
        snprintf(card, sizeof card, "%s/%s", path, entry->d_name);
        if (entry->d_name[0] == '.' || strlen(entry->d_name) > 15) continue;
        if (!read_line(card, "class", text, sizeof text) || strtoul(text, NULL, 16) >> 16 != 3)
            continue;
        if (!read_line(card, "vendor", text, sizeof text) || strtoul(text, NULL, 16) != vendor)
            continue;
        if (n < capacity) snprintf(out[n], sizeof out[n], "%.15s", entry->d_name);
        n++;
    }
    closedir(folder);
    return n;
}

static uint32_t little_endian(const uint8_t *bytes, int n) {
    uint32_t value = 0;
    for (int i = n - 1; i >= 0; i--) value = value << 8 | bytes[i];
    return value;
}

// Returns text number `index` (from 1) of those that follow a structure; empty if there is none.
static const char *text_of(const uint8_t *texts, const uint8_t *end, int index) {
    const char *text = (const char *)texts;
    while (index > 1 && (const uint8_t *)text < end && *text) {
        text += strlen(text) + 1; // the table ends in zeros, so every text does
        index--;
    }
    return index >= 1 && (const uint8_t *)text < end ? text : "";
}

// The letter or number of the channel in a slot's names, as in "ChannelA-DIMM0", "P0 CHANNEL B",
// "DIMM_A1", "Controller1-DIMM0"; 0: none.
static int channel_of(const char *slot, const char *bank) {
    const char *const words[] = {"channel", "controller", "dimm_"};
    for (int i = 0; i < 3; i++) {
        for (int source = 0; source < 2; source++) {
            const char *at = strcasestr(source ? slot : bank, words[i]);
            if (!at) continue;
            at += strlen(words[i]);
            at += strspn(at, " -_");
            if (*at >= '0' && *at <= '9') return 1 + (*at - '0');
            if ((*at | 32) >= 'a' && (*at | 32) <= 'h') return 11 + ((*at | 32) - 'a');
        }
    }
    return 0;
}

static void add_module(const uint8_t *s, int length, const uint8_t *end, uint64_t *channels,
                       struct memory_modules *out) {
    out->n_slots++;
    uint64_t size_bytes = little_endian(s + 0x0c, 2);
    if (size_bytes == 0 || size_bytes == 0xffff) return; // empty, or unknown
    if (size_bytes == 0x7fff && length >= 0x20)
        size_bytes = (uint64_t)little_endian(s + 0x1c, 4) << 20;
    else
        size_bytes = (size_bytes & 0x7fff) << (size_bytes & 0x8000 ? 10 : 20);
    out->n_modules++;
    out->size_bytes += size_bytes;
    int32_t speed = length >= 0x22 ? (int32_t)little_endian(s + 0x20, 2) : 0;
    if (speed == 0 && length >= 0x17) speed = (int32_t)little_endian(s + 0x15, 2);
    if (speed && (!out->mega_transfers || speed < out->mega_transfers)) out->mega_transfers = speed;
    const int channel =
        channel_of(text_of(s + length, end, s[0x10]), text_of(s + length, end, s[0x11]));
    if (channel) *channels |= UINT64_C(1) << channel;
}

bool hardware_parse_dmi(const uint8_t *bytes, size_t size_bytes, struct memory_modules *out) {
    *out = (struct memory_modules){0};
    const uint8_t *at = bytes, *end = bytes + size_bytes;
    uint64_t channels = 0;
    while (end - at >= 4) {
        const int length = at[1];
        if (length < 4 || end - at < length + 2) break;
        const uint8_t *next = at + length; // starts after the texts, of which the last is empty
        while (end - next >= 2 && (next[0] || next[1])) next++;
        if (end - next < 2) break;
        if (at[0] == 17 && length >= 0x15) add_module(at, length, next, &channels, out);
        at = next + 2;
    }
    out->n_channels = __builtin_popcountll(channels);
    return out->n_modules > 0;
}

bool hardware_memory_modules(const char *sys, struct memory_modules *out) {
    static const char name[] = "firmware/dmi/tables/DMI";
    *out = (struct memory_modules){0};
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "%s/%s", sys, name);
    uint8_t bytes[DMI_BYTES];
    ssize_t n = read_file(path, bytes, sizeof bytes);
    return n > 0 && hardware_parse_dmi(bytes, (size_t)n, out);
}

bool hardware_on_battery(const char *sys) {
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "%s/class/power_supply", sys);
    DIR *folder = opendir(path);
    if (!folder) return false;
    int n_adapters = 0, n_plugged = 0;
    for (const struct dirent *entry; (entry = readdir(folder));) {
        char supply[PATH_BYTES + sizeof entry->d_name], text[64];
        snprintf(supply, sizeof supply, "%s/%s", path, entry->d_name);
        if (!read_line(supply, "type", text, sizeof text) || strcmp(text, "Mains") != 0) continue;
        n_adapters++;
        n_plugged += read_line(supply, "online", text, sizeof text) && text[0] == '1';
    }
    closedir(folder);
    return n_adapters > 0 && n_plugged == 0;
}

bool hardware_is_wsl2(const char *dev) {
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "%s/dxg", dev);
    return access(path, F_OK) == 0;
}

char *hardware_governor(const char *sys, char *out, size_t size_bytes) {
    char folder[PATH_BYTES];
    snprintf(folder, sizeof folder, "%s/devices/system/cpu/cpu0/cpufreq", sys);
    out[0] = 0;
    (void)read_line(folder, "scaling_governor", out, size_bytes);
    return out;
}

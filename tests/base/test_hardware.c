/* test_hardware.c: base/hardware on invented /sys trees and firmware tables. */
#include "base/hardware.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

static char sys[64];

// Writes sys/path with its folders.
static void put(const char *path, const void *bytes, size_t size_bytes) {
    char full[256];
    snprintf(full, sizeof full, "%s/%s", sys, path);
    for (char *p = strchr(full + 1, '/'); p; p = strchr(p + 1, '/')) {
        *p = 0;
        mkdir(full, 0700);
        *p = '/';
    }
    FILE *out = fopen(full, "w");
    assert_non_null(out);
    assert_int_equal(fwrite(bytes, 1, size_bytes, out), size_bytes);
    fclose(out);
}

static void put_text(const char *path, const char *text) { put(path, text, strlen(text)); }

static int make_tree(void **state) {
    (void)state;
    snprintf(sys, sizeof sys, "/tmp/tandem_hardware_XXXXXX");
    return mkdtemp(sys) ? 0 : -1;
}

static int remove_tree(void **state) {
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -r %s", sys);
    return system(command);
}

static void test_link(void **state) {
    (void)state;
    struct pci_link link;
    assert_false(hardware_pci_link(sys, "0000:01:00.0", &link));
    assert_false(hardware_pci_link(sys, "", &link));
    put_text("bus/pci/devices/0000:01:00.0/current_link_speed", "8.0 GT/s PCIe\n");
    assert_false(hardware_pci_link(sys, "0000:01:00.0", &link));
    put_text("bus/pci/devices/0000:01:00.0/current_link_width", "4\n");
    assert_true(hardware_pci_link(sys, "0000:01:00.0", &link));
    assert_int_equal(link.max_width, 4); // unknown: as it is now
    put_text("bus/pci/devices/0000:01:00.0/max_link_width", "16\n");
    put_text("bus/pci/devices/0000:01:00.0/max_link_speed", "16.0 GT/s PCIe\n");
    assert_true(hardware_pci_link(sys, "0000:01:00.0", &link));
    assert_int_equal(link.width, 4);
    assert_int_equal(link.max_width, 16);
    assert_true(link.gtps == 8 && link.max_gtps == 16);
    put_text("bus/pci/devices/0000:01:00.0/current_link_width", "Unknown\n");
    assert_false(hardware_pci_link(sys, "0000:01:00.0", &link));
}

static void test_link_rates(void **state) {
    (void)state;
    const double v1 = hardware_link_gbps(2.5, 16), v3 = hardware_link_gbps(8, 16);
    assert_true(v1 > 3.99 && v1 < 4.01);
    assert_true(v3 > 15.75 && v3 < 15.76);
}

static void test_cards(void **state) {
    (void)state;
    char ids[1][16];
    assert_int_equal(hardware_display_cards(sys, 0x10de, ids, 1), 0);
    put_text("bus/pci/devices/0000:01:00.0/class", "0x030000\n");
    put_text("bus/pci/devices/0000:01:00.0/vendor", "0x10de\n");
    put_text("bus/pci/devices/0000:01:00.1/class", "0x040300\n"); // its sound
    put_text("bus/pci/devices/0000:01:00.1/vendor", "0x10de\n");
    put_text("bus/pci/devices/0000:00:02.0/class", "0x030000\n"); // built-in graphics
    put_text("bus/pci/devices/0000:00:02.0/vendor", "0x8086\n");
    assert_int_equal(hardware_display_cards(sys, 0x10de, ids, 1), 1);
    assert_string_equal(ids[0], "0000:01:00.0");
    put_text("bus/pci/devices/0000:02:00.0/class", "0x030200\n"); // a card without outputs
    put_text("bus/pci/devices/0000:02:00.0/vendor", "0x10de\n");
    assert_int_equal(hardware_display_cards(sys, 0x10de, ids, 1), 2);
}

enum { MODULE_BYTES = 0x22 };

// Appends a type 17 structure to the table; megabytes 0: an empty slot. Returns the new length.
static size_t module(uint8_t *table, size_t at, uint16_t megabytes, uint16_t speed,
                     const char *slot) {
    uint8_t *s = table + at;
    memset(s, 0, MODULE_BYTES);
    s[0] = 17, s[1] = MODULE_BYTES;
    memcpy(s + 0x0c, &megabytes, 2);
    memcpy(s + 0x15, &speed, 2);
    s[0x10] = 1;
    strcpy((char *)s + MODULE_BYTES, slot);
    const size_t end = at + MODULE_BYTES + strlen(slot) + 1;
    table[end] = 0;
    return end + 1;
}

static void test_modules(void **state) {
    (void)state;
    static const uint8_t bios[] = {0, 5, 0, 0, 9, 0, 0}; // another kind of structure, without texts
    uint8_t table[1024];
    struct memory_modules m;
    memcpy(table, bios, sizeof bios);
    size_t size = module(table, sizeof bios, 8192, 3200, "ChannelA-DIMM0");
    size = module(table, size, 0, 0, "ChannelB-DIMM0");
    assert_true(hardware_parse_dmi(table, size, &m));
    assert_int_equal(m.n_modules, 1);
    assert_int_equal(m.n_slots, 2);
    assert_int_equal(m.n_channels, 1);
    assert_int_equal(m.mega_transfers, 3200);
    assert_true(m.size_bytes == UINT64_C(8) << 30);
    size = module(table, size, 16384, 2666, "DIMM_B2");
    assert_true(hardware_parse_dmi(table, size, &m));
    assert_int_equal(m.n_channels, 2);
    assert_int_equal(m.mega_transfers, 2666);
    for (size_t cut = 0; cut < size; cut++) { // a table that ends early
        uint8_t *copy = malloc(cut + 1);
        memcpy(copy, table, cut);
        (void)hardware_parse_dmi(copy, cut, &m);
        assert_in_range(m.n_modules, 0, 2);
        free(copy);
    }
    assert_false(hardware_memory_modules(sys, &m));
    put("firmware/dmi/tables/DMI", table, size);
    assert_true(hardware_memory_modules(sys, &m));
    assert_int_equal(m.n_modules, 2);
}

static void test_power(void **state) {
    (void)state;
    char governor[32];
    assert_false(hardware_on_battery(sys));
    assert_string_equal(hardware_governor(sys, governor, sizeof governor), "");
    put_text("devices/system/cpu/cpu0/cpufreq/scaling_governor", "powersave\n");
    assert_string_equal(hardware_governor(sys, governor, sizeof governor), "powersave");
    put_text("class/power_supply/BAT0/type", "Battery\n");
    assert_false(hardware_on_battery(sys)); // no adapter is known
    put_text("class/power_supply/AC/type", "Mains\n");
    put_text("class/power_supply/AC/online", "0\n");
    assert_true(hardware_on_battery(sys));
    put_text("class/power_supply/AC/online", "1\n");
    assert_false(hardware_on_battery(sys));
}

static void test_wsl2(void **state) {
    (void)state;
    assert_false(hardware_is_wsl2(sys));
    put_text("dxg", "");
    assert_true(hardware_is_wsl2(sys));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_link),  cmocka_unit_test(test_link_rates),
        cmocka_unit_test(test_cards), cmocka_unit_test(test_modules),
        cmocka_unit_test(test_power), cmocka_unit_test(test_wsl2),
    };
    return cmocka_run_group_tests(tests, make_tree, remove_tree);
}

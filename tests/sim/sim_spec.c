/* sim_spec.c: see sim_spec.h. */
#include "tests/sim/sim_spec.h"

#include "base/mem.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

static const char *const FAULTS[SIM_FAULT_COUNT] = {"alloc", "copy", "op", "lost"};

// A whole number that is not 0, with an optional unit when units is true.
static bool parse_number(const char *text, bool units, uint64_t *out) {
    if (*text < '0' || *text > '9') return false;
    char *end;
    uint64_t number = strtoull(text, &end, 10), unit = 1;
    if (units && *end == 'K')
        unit = UINT64_C(1) << 10, end++;
    else if (units && *end == 'M')
        unit = UINT64_C(1) << 20, end++;
    else if (units && *end == 'G')
        unit = UINT64_C(1) << 30, end++;
    return *end == 0 && number > 0 && mul_size(number, unit, out);
}

static enum status bad_value(struct err *e, const char *key, const char *value,
                             const char *expected) {
    err_set(e, ERR_USAGE, "--device sim: %s", key);
    err_expected(e, "%s", expected);
    return err_actual(e, "%s", value);
}

static enum status parse_fault(struct sim_spec *spec, char *value, struct err *e) {
    char *number = strchr(value, ':');
    for (int f = 0; number && f < SIM_FAULT_COUNT; f++) {
        size_t length = strlen(FAULTS[f]);
        if (length != (size_t)(number - value) || strncmp(value, FAULTS[f], length) != 0) continue;
        if (parse_number(number + 1, false, &spec->fail_at[f])) return OK;
    }
    return bad_value(e, "fail", value, "alloc:N, copy:N, op:N or lost:N, N from 1");
}

// "7:0.5": digits with at most one point among them, no more than a year.
static enum status parse_stall(struct sim_spec *spec, char *value, struct err *e) {
    char *seconds = strchr(value, ':'), *end = NULL;
    if (seconds) {
        *seconds++ = 0;
        if (*seconds >= '0' && *seconds <= '9' && strspn(seconds, "0123456789.") == strlen(seconds))
            spec->stall_s = strtod(seconds, &end);
        if (end && !*end && spec->stall_s <= 3.2e7 && parse_number(value, false, &spec->stall_at))
            return OK;
        seconds[-1] = ':';
    }
    return bad_value(e, "stall", value, "N:SECONDS, N from 1");
}

// The parts that are whole numbers.
static const struct {
    const char *key;
    size_t offset; // in struct sim_spec
    const char *expected;
    bool units; // K, M, G
} NUMBERS[] = {
#define NUMBER(key, member, expected, units) \
    { key, offsetof(struct sim_spec, member), expected, units }
#define SIZE(key, member)         NUMBER(key, member, "a size like 96M or 2G", true)
#define MICROSECONDS(key, member) NUMBER(key, member, "whole microseconds, from 1", false)
#define SWITCH(key, member)       NUMBER(key, member, "1", false)
    SIZE("vram", vram_bytes),
    SIZE("taken", taken_bytes),
    SIZE("h2d", rate[COPY_TO_DEVICE]),
    SIZE("d2h", rate[COPY_FROM_DEVICE]),
    SIZE("dram", dram),
    SIZE("read", read),
    SIZE("flops", flops),
    MICROSECONDS("launch", launch_us),
    MICROSECONDS("op", op_us),
    MICROSECONDS("latency", latency_us),
    SWITCH("reach", reach),
    SWITCH("blocks", blocks),
    SWITCH("half", half),
};

static enum status parse_part(struct sim_spec *spec, char *part, struct err *e) {
    char *value = strchr(part, '=');
    if (value) *value++ = 0;
    for (size_t i = 0; value && i < sizeof NUMBERS / sizeof *NUMBERS; i++) {
        if (strcmp(part, NUMBERS[i].key) != 0) continue;
        uint64_t *target = (uint64_t *)(void *)((char *)spec + NUMBERS[i].offset);
        return parse_number(value, NUMBERS[i].units, target)
                   ? OK
                   : bad_value(e, part, value, NUMBERS[i].expected);
    }
    if (value && strcmp(part, "isa") == 0)
        return cpu_isa_parse(value, &spec->isa) ? OK : bad_value(e, part, value, CPU_ISA_NAMES);
    if (value && strcmp(part, "fail") == 0) return parse_fault(spec, value, e);
    if (value && strcmp(part, "stall") == 0) return parse_stall(spec, value, e);
    err_set(e, ERR_USAGE, "--device sim: unknown part");
    err_expected(e, "vram=, taken=, h2d=, d2h=, dram=, read=, flops=, launch=, op=, latency=, "
                    "reach=, blocks=, half=, isa=, fail= or stall=");
    return err_actual(e, "%s", part);
}

enum status sim_spec_parse(struct sim_spec *out, const char *text, enum cpu_isa isa_default,
                           struct err *e) {
    *out = (struct sim_spec){.vram_bytes = UINT64_C(1) << 30, .isa = isa_default};
    if (!*text) return OK;
    char *copy = mem_text(text, strlen(text));
    if (!copy) return err_memory(e, strlen(text), "a device's description");
    enum status status = OK;
    for (char *rest = copy, *part; status == OK && (part = strsep(&rest, ","));)
        status = parse_part(out, part, e);
    mem_free(copy);
    return status;
}

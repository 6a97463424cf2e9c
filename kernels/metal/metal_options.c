/* metal_options.c: see metal_options.h. */
#include "kernels/metal/metal_options.h"

#include <stdlib.h>
#include <string.h>

static enum status read_number(int32_t *out, const char *text, int32_t largest, struct err *e) {
    char *end;
    const long value = strtol(text, &end, 10);
    if (*text && !*end && value >= 0 && value <= largest) {
        *out = (int32_t)value;
        return OK;
    }
    err_set(e, ERR_USAGE, "--device metal");
    err_expected(e, "a number from 0 to %d", largest);
    return err_actual(e, "%s", text);
}

static enum status read_text(char *out, size_t size_bytes, const char *text, struct err *e) {
    if (strlen(text) >= size_bytes)
        return err_set(e, ERR_USAGE, "--device metal: %.40s... is too long", text);
    memcpy(out, text, strlen(text) + 1);
    return OK;
}

static enum status read_setting(struct metal_options *out, char *setting, struct err *e) {
    int32_t on = 1;
    char *value = strchr(setting, '=');
    if (!value) return read_number(&out->index, setting, 255, e);
    *value++ = 0;
    if (!strcmp(setting, "index")) return read_number(&out->index, value, 255, e);
    if (!strcmp(setting, "driver")) return read_text(out->driver, sizeof out->driver, value, e);
    if (!strcmp(setting, "source")) return read_text(out->source, sizeof out->source, value, e);
    if (!strcmp(setting, "matrix")) {
        const enum status status = read_number(&on, value, 1, e);
        out->no_matrices = !on;
        return status;
    }
    err_set(e, ERR_USAGE, "--device metal");
    err_expected(e, "index, driver, source or matrix");
    return err_actual(e, "%s", setting);
}

enum status metal_options_parse(struct metal_options *out, const char *spec, struct err *e) {
    char text[512], *rest = text;
    *out = (struct metal_options){0};
    if (read_text(text, sizeof text, spec, e)) return e->status;
    while (*rest) {
        char *setting = rest;
        rest += strcspn(rest, ",");
        if (*rest) *rest++ = 0;
        if (read_setting(out, setting, e)) return e->status;
    }
    return OK;
}

/* sampler_keys.c: see sampler_keys.h. */
#include "runtime/generate/sampler_keys.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

enum { KEY_CHARS = 64, ORDER_CHARS = 256 };

struct key {
    const char *name, *option; // behind "general.sampling."
    size_t offset;             // of the member
    bool whole;                // an int32_t, else a float
    double low, high;          // as the option has them
};

#define AT(member) offsetof(struct sampler_options, member)
static const struct key KEYS[] = {
    {"temp", "--temp", AT(temp), false, -1, 100},
    {"top_k", "--top-k", AT(top_k), true, -1, INT32_MAX},
    {"top_p", "--top-p", AT(top_p), false, 0, 1},
    {"min_p", "--min-p", AT(min_p), false, 0, 1},
    {"xtc_probability", "--xtc-probability", AT(xtc_probability), false, 0, 1},
    {"xtc_threshold", "--xtc-threshold", AT(xtc_threshold), false, 0, 1},
    {"penalty_last_n", "--repeat-last-n", AT(repeat_last_n), true, -1, INT32_MAX},
    {"penalty_repeat", "--repeat-penalty", AT(repeat_penalty), false, 0.01, 100},
    {"mirostat", "--mirostat", AT(mirostat), true, 0, 2},
    {"mirostat_tau", "--mirostat-ent", AT(mirostat_tau), false, 0, 100},
    {"mirostat_eta", "--mirostat-lr", AT(mirostat_eta), false, 0, 100},
};
static const struct key ORDER = {.name = "sequence", .option = "--samplers", .offset = AT(order)};

static const struct gguf_value *find(const struct gguf *g, const struct key *key) {
    char name[KEY_CHARS];
    (void)snprintf(name, sizeof name, "general.sampling.%s", key->name);
    return gguf_find(g, name);
}

static enum status refuse(const struct gguf *g, const struct key *key, struct err *e) {
    err_set(e, ERR_FORMAT, "%s: key general.sampling.%s", gguf_part_name(g->parts), key->name);
    return err_fix(e, "give %s, which counts instead", key->option);
}

static void tell(char *told, const char *option, const char *value) {
    const size_t used = strlen(told);
    (void)snprintf(told + used, SAMPLER_KEYS_CHARS - used, "%s%s %s", used ? " " : "", option,
                   value);
}

// Gets a number of any type. False if the value is none.
static bool read_number(const struct gguf_value *value, double *out) {
    switch (value->type) {
    case GGUF_F32:
    case GGUF_F64: *out = gguf_array_float(value, 0); return true;
    case GGUF_STRING:
    case GGUF_ARRAY:
    case GGUF_BOOL: return false;
    default: *out = (double)gguf_array_int(value, 0); return true;
    }
}

static enum status take_number(struct sampler_options *o, const struct key *key,
                               const struct gguf *g, char *told, struct err *e) {
    const struct gguf_value *value = find(g, key);
    char text[64];
    double number = 0;
    if (!value) return OK;
    const bool is_number = read_number(value, &number);
    const bool fits = number >= key->low && number <= key->high;
    if (!is_number || !fits || (key->whole && number != (int32_t)number)) {
        refuse(g, key, e);
        err_expected(e, "a%s number from %g to %g", key->whole ? " whole" : "", key->low,
                     key->high);
        if (is_number) return err_actual(e, "%g", number);
        return err_actual(e, "%s", gguf_type_text(value, text, sizeof text));
    }
    if (key->whole)
        *(int32_t *)(void *)((char *)o + key->offset) = (int32_t)number;
    else
        *(float *)(void *)((char *)o + key->offset) = (float)number;
    (void)snprintf(text, sizeof text, key->whole ? "%.0f" : "%g", number);
    tell(told, key->option, text);
    return OK;
}

static enum status take_order(struct sampler_options *o, const struct gguf *g, char *told,
                              struct err *e) {
    const struct gguf_value *value = find(g, &ORDER);
    struct gguf_text names;
    char text[ORDER_CHARS], quoted[ORDER_CHARS + 2];
    if (!value) return OK;
    if (gguf_read_text(g, "general.sampling.sequence", &names, e)) return e->status;
    (void)snprintf(text, sizeof text, "%.*s", (int)names.length, names.bytes);
    if (sampler_order_names(&o->order, text, e)) {
        err_context(e, "%s: key general.sampling.sequence", gguf_part_name(g->parts));
        err_fix(e, "give --samplers, which counts instead");
        return e->status = ERR_FORMAT;
    }
    (void)snprintf(quoted, sizeof quoted, "'%.*s'", (int)sizeof text - 1, text);
    tell(told, ORDER.option, quoted);
    return OK;
}

enum status sampler_take_keys(struct sampler_options *o, const bool *given, const struct gguf *g,
                              char told[SAMPLER_KEYS_CHARS], struct err *e) {
    told[0] = 0;
    for (size_t i = 0; i < sizeof KEYS / sizeof *KEYS; i++)
        if (!given[KEYS[i].offset] && take_number(o, &KEYS[i], g, told, e)) return e->status;
    return given[ORDER.offset] ? OK : take_order(o, g, told, e);
}
